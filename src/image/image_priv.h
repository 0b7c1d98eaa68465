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

/* Layers (layer.h): their manifests, and the lock file of all of them. As above. */
struct layer_info;
enum { IMAGE_LOCK_MAX = 4 * 1024 * 1024 };
int image_layer_parse(struct layer_info *out, const void *p, size_t n) MUST_CHECK;
int image_layer_format(const struct layer_info *l, char **out) MUST_CHECK;
/*
 * The integrity of PACKAGE@VERSION in the lock file's text. @out has NPM_INTEGRITY_BYTES.
 * Return: 1, 0 when there is none, -EBADMSG for a file that is not of this form.
 */
int image_lock_get(const void *p, size_t n, const char *package, const char *version,
                   char *out) MUST_CHECK;
/* The text with one line more, all else as it was; @n 0: a new file. *out NULL: it has it. */
int image_lock_put(const void *p, size_t n, const char *package, const char *version,
                   const char *integrity, char **out) MUST_CHECK;

/* Make a folder @name below @fd, and hold a flock on it: *out. 0 or -errno. */
int image_make_locked(int fd, const char *name, mode_t mode, int *out) MUST_CHECK;
/* Open, make if missing, a file to flock. Return: fd or -errno. */
int image_lock_file(int dirfd, const char *name) MUST_CHECK;
/* Remove the folders PREFIX* below @fd, of ours, whose lock nobody holds; @rm: how. */
void image_sweep_with(int fd, const char *prefix, void (*rm)(int fd, const char *name));
void image_sweep(int fd, const char *prefix);

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
