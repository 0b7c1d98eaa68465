/* SPDX-License-Identifier: Apache-2.0 */
/* image_priv.h - shared by the files behind image.h: the cache's folder and manifests. */
#ifndef CLOCHE_IMAGE_PRIV_H
#define CLOCHE_IMAGE_PRIV_H

#include "base/fd.h"
#include "base/mem.h"
#include "image/image.h"
#include "image/recipe.h"

/* Close what was only read, and say so in the variable; -1 is fine. */
static inline void close_now(int *fd)
{
	AUTO_CLOSE int gone UNUSED = take_fd(fd);
}

#define IMAGE_ROOTFS "rootfs.erofs"
#define IMAGE_KERNEL "vmlinux"
#define IMAGE_MODULES "modules.cpio"
#define IMAGE_MANIFEST "manifest.json"
#define IMAGE_DEFAULT_SUITE "trixie"

enum { IMAGE_FILES = 3, IMAGE_MANIFEST_MAX = 64 * 1024, IMAGE_PACKAGE_MAX = 128 };
extern const char *const image_file_names[IMAGE_FILES]; /* rootfs, kernel, modules */

struct image_manifest {
	struct image_info info;
	char package[IMAGE_PACKAGE_MAX]; /* the kernel's package file */
	uint64_t size[IMAGE_FILES];
	struct hash digest[IMAGE_FILES];
	struct registry_list registries;
};

/* Return: 0, -EBADMSG for what we would not write, or -errno. */
int image_manifest_parse(struct image_manifest *out, const void *p, size_t n) MUST_CHECK;
/* malloc'd JSON text. -ENOMEM. */
int image_manifest_format(const struct image_manifest *m, char **out) MUST_CHECK;

/* The images folder, created and checked to be ours. *out_path is malloc'd; may be NULL. */
int image_cache_open(const struct image_opts *o, int *out_fd, char **out_path,
                     struct err *err) MUST_CHECK;

/* What the options mean: recipe (fini by the caller), suite and folder name. */
struct image_spec {
	struct recipe recipe;
	char suite[IMAGE_SUITE_MAX];
	char id[IMAGE_NAME_MAX + 16];
	char name[IMAGE_NAME_MAX];
};
int image_spec_init(struct image_spec *s, const struct image_opts *o, struct err *err) MUST_CHECK;
static inline void image_spec_fini(struct image_spec *s)
{
	recipe_fini(&s->recipe);
}

/*
 * Read and check the manifest of the image in folder @dirfd: sizes of the files too.
 * 0, -ENOENT without a manifest, -EBADMSG, -errno.
 */
int image_manifest_load(int dirfd, struct image_manifest *out) MUST_CHECK;

/* BLAKE2b and size of the open file, from its start. */
int image_hash_fd(int fd, struct hash *out, uint64_t *out_size) MUST_CHECK;

/* Write a file whole: temporary name, fsync, rename. */
int image_write_file(int dirfd, const char *name, const void *p, size_t n) MUST_CHECK;

/* Fill @err with "PROGRAM is not installed" and the apt line. -ENOPKG. */
int image_no_program(struct err *err, const char *program, const char *packages);

#endif
