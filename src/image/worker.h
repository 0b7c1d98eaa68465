/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - what the caged process does: tar stream to root file system, kernel
 * package to kernel and modules. Works on open descriptors only.
 */
#ifndef CLOCHE_IMAGE_WORKER_H
#define CLOCHE_IMAGE_WORKER_H

#include "image/recipe.h"
#include "image/registry.h"
#include "image/tar.h"
#include "image/tree.h"

struct err;

enum {
	WORKER_TEXT_MAX = 120,
	WORKER_EXIT_DAMAGED = 3, /* the input was cut short or is no archive */
	WORKER_EXIT_REFUSED = 4, /* everything else */
	WORKER_EXIT_OTHER = 5,   /* an image for another system */
};

/* What a worker says at its end; the parent believes none of it unchecked. */
struct worker_report {
	uint64_t entries;                /* rootfs: inodes; kernel: modules */
	char text[WORKER_TEXT_MAX + 1];  /* rootfs: name of the package file; kernel: release */
	struct registry_list registries; /* rootfs: what the image's tools fetch from */
};
/* It fits into a pipe: the worker never waits for us to read it. */
enum { WORKER_REPORT_BYTES = 4 + 8 + WORKER_TEXT_MAX + REGISTRY_TEXT_MAX };
_Static_assert(WORKER_REPORT_BYTES < 64 * 1024, "more than a pipe holds");
void worker_report_put(uint8_t out[WORKER_REPORT_BYTES], const struct worker_report *r);
/* Return: 0, or -EPROTO: text must be of [A-Za-z0-9.+~_-] or empty, registries in their form. */
int worker_report_parse(struct worker_report *out,
                        const uint8_t in[WORKER_REPORT_BYTES]) MUST_CHECK;

struct rootfs_opts {
	const struct recipe *recipe; /* NULL: the archive as it is */
	struct tree_limits limits;
	int out_fd; /* empty file, for pwrite */
	int deb_fd; /* the package below var/cache/cloche goes here; -1: nowhere */
	uint8_t uuid[16];
	int64_t now_s; /* time of the files that the recipe makes */
};

/*
 * rootfs_write() - merge @in and write the image.
 * @in:	read to its end
 *
 * Data goes out as it arrives, from block 1; memory holds the tree only.
 *
 * Return: 0; -EBADMSG for a stream that is cut short or no archive; -EPROTO or
 * -EFBIG for what it may not hold; -errno.
 */
int rootfs_write(struct tar *in, const struct rootfs_opts *o, struct worker_report *out,
                 struct err *err) MUST_CHECK;

/*
 * rootfs_merge() - as rootfs_write() up to the metadata: data is written, @t filled.
 * @out_block:	first free block behind the data
 */
int rootfs_merge(struct tar *in, const struct rootfs_opts *o, struct tree *t,
                 struct worker_report *rep, uint64_t *out_block, struct err *err) MUST_CHECK;

/* A package of npm as a layer. */
enum { PACKAGE_BIN_MAX = 16, PACKAGE_OMIT_MAX = 64, PACKAGE_ENTRIES_MAX = 200 * 1000 };
#define PACKAGE_BYTES_MAX ((uint64_t)4 << 30)

struct package_bin {
	const char *name; /* in /usr/local/bin */
	const char *path; /* in the package */
};

struct package_opts {
	const char *name; /* "pkg" or "@scope/pkg", checked */
	struct package_bin bin[PACKAGE_BIN_MAX];
	size_t n_bin;
	const char *omit[PACKAGE_OMIT_MAX]; /* fnmatch(3) patterns over paths in the package */
	size_t n_omit;
	struct tree_limits limits; /* zeroed: the above */
	int out_fd;
	uint8_t uuid[16];
	int64_t now_s;
};

/*
 * package_write() - the package's files below /usr/local/lib/node_modules/NAME, where npm
 * would put them, and a link in /usr/local/bin for each command. Nothing is run.
 * @in:	the package's tarball: files below one folder, whatever its name
 *
 * All files are root's, 0644 or 0755. Return: as rootfs_write(); -EPROTO also for a link, a
 * device or a fifo, which a package never holds; -ENOENT when a command is not in it.
 */
int package_write(struct tar *in, const struct package_opts *o, struct worker_report *out,
                  struct err *err) MUST_CHECK;

/* As rootfs_merge() is to rootfs_write(). */
int package_merge(struct tar *in, const struct package_opts *o, struct tree *t, uint64_t *out_block,
                  struct err *err) MUST_CHECK;

/*
 * kernel_write() - kernel ELF and initramfs modules out of a Debian package.
 * @deb_fd:	read to its end
 *
 * Return: 0; -EBADMSG as above; -EPROTO; -ENOENT when a module that every boot needs is missing.
 */
int kernel_write(int deb_fd, int vmlinux_fd, int modules_fd, struct worker_report *out,
                 struct err *err) MUST_CHECK;

#endif
