/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpio.h - writes the newc archive that the kernel unpacks as initramfs.
 *
 * Pure. Source: Documentation/driver-api/early-userspace/buffer-format.rst.
 * Archives may be joined: the kernel unpacks one behind the other, so that
 * init and the modules are separate files in the cache.
 */
#ifndef CLOCHE_IMAGE_CPIO_H
#define CLOCHE_IMAGE_CPIO_H

#include "base/mem.h"
#include "base/span.h"

enum { CPIO_NAME_MAX = 255 };

struct cpio {
	struct buf out;
	uint32_t inode;
};

/*
 * cpio_add() - one file or directory (empty @data); owner 0:0, mtime 0.
 * @mode:	S_IFREG or S_IFDIR with permission bits
 *
 * Return: 0, -EINVAL for a bad name, -EFBIG for data of 4 GiB, -ENOMEM.
 */
int cpio_add(struct cpio *c, const char *name, uint32_t mode, struct span data) MUST_CHECK;

/* The end record, padded to 512 bytes, so that another archive may follow. */
int cpio_end(struct cpio *c) MUST_CHECK;
void cpio_fini(struct cpio *c);

#endif
