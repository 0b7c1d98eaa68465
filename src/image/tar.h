/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar.h - archives and compressed streams, read by libarchive.
 *
 * The only adapter of <archive.h>. Everything here parses bytes from outside
 * and runs in the caged process (and in tests). Reads are sequential; nothing
 * is opened by name.
 */
#ifndef CLOCHE_IMAGE_TAR_H
#define CLOCHE_IMAGE_TAR_H

#include "base/hash.h"
#include "base/mem.h"
#include "base/span.h"
#include "image/tree.h"

struct tar;

struct tar_entry {
	struct span path;
	struct span hardlink;  /* empty when it is none */
	struct tree_meta meta; /* points into the reader until the next tar_next() */
};

/* A tar stream from @fd (borrowed), not compressed. NULL without memory. */
struct tar *tar_open_fd(int fd) MUST_CHECK;

/* The same compressed with gzip. */
struct tar *tar_open_gz(int fd) MUST_CHECK;

/* A layer of an image: not compressed, gzip or zstd, hashed as it is read. */
struct tar *tar_open_layer(int fd) MUST_CHECK;
/*
 * tar_layer_sum() - SHA-256 and size of the whole input of a layer; what was not read yet is.
 * Return: 0, -EFBIG when there are more than @max bytes, -errno.
 */
int tar_layer_sum(struct tar *t, uint64_t max, uint8_t sum[SHA256_BYTES],
                  uint64_t *out_size) MUST_CHECK;

/* As tar_open_fd() from memory (tests); @bytes is borrowed. */
struct tar *tar_open_mem(struct span bytes) MUST_CHECK;

/*
 * tar_open_deb() - the data.tar of a Debian package that is read from @fd.
 * An ar archive with the members debian-binary, control.tar*, data.tar* (deb(5)).
 *
 * Return: 0, or -EPROTO when there is no data.tar, or -errno.
 */
int tar_open_deb(int fd, struct tar **out) MUST_CHECK;

void tar_free(struct tar *t);

/* Return: 1 with an entry, 0 at the end, -EPROTO for a damaged archive, -ENOMEM. */
int tar_next(struct tar *t, struct tar_entry *out) MUST_CHECK;

/*
 * tar_data() - the next piece of the current entry's data.
 * @out_off:	where it lies in the file; gaps are holes
 *
 * Return: 1 with a piece, 0 at the end, -EPROTO.
 */
int tar_data(struct tar *t, struct span *out, uint64_t *out_off) MUST_CHECK;

/* Read the rest of the input, so that its writer is not cut off. 0 or -errno. */
int tar_drain(int fd) MUST_CHECK;

/* Did a call fail because the archive is damaged, or its input failed? */
bool tar_is_damaged(const struct tar *t);

/* What libarchive said last; from outside in parts: show through vis_*. */
const char *tar_error(const struct tar *t);

/*
 * tar_unpack() - decompress one stream (gzip, xz, lz4 with its legacy frame,
 * zstd; or none of them: the bytes as they are).
 * @max:	at most so many bytes come out
 *
 * Return: 0 with @out filled (appended), -EFBIG beyond @max, -EPROTO, -ENOMEM.
 */
int tar_unpack(struct span in, size_t max, struct buf *out) MUST_CHECK;

#endif
