/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h - layers: what an agent needs over a base image, as images of their own.
 *
 * A layer is one package of npm at one exact version. It is a folder below
 * layers/ in the image cache, NAME-VERSION-HASH, where HASH covers what decides its
 * content beside the tarball: which files are left out, which commands there
 * are, the format. In it:
 *
 *	layer.erofs	its files below /usr/local, uncompressed EROFS
 *	manifest.json	package, version, integrity of the tarball, digest, size
 *
 * It fits any base, and agents that need the same package (node) share one.
 *
 * The lock file remembers the hash of every tarball that was ever taken, by package
 * and version: what the registry says about a version may not change later, on
 * this machine or on another one that has the file. A layer in the cache whose
 * tarball is not the locked one counts as damaged.
 */
#ifndef CLOCHE_IMAGE_LAYER_H
#define CLOCHE_IMAGE_LAYER_H

#include "image/image.h"
#include "image/npm.h"

struct profile_npm;

enum { LAYER_ID_MAX = NPM_NAME_MAX + NPM_VERSION_MAX + 16 };

struct layer_opts {
	const char *cache_dir; /* as in struct image_opts */
	const char *lock_path; /* absolute; NULL: nothing is locked (tests) */
};

struct layer_info {
	char id[LAYER_ID_MAX];
	char package[NPM_NAME_MAX + 1], version[NPM_VERSION_MAX];
	char integrity[NPM_INTEGRITY_BYTES];
	struct hash digest; /* of layer.erofs */
	int64_t built_s;    /* seconds since 1970 */
	uint64_t size;
};

/* A layer in use: the file may be removed meanwhile, the descriptor stays good. */
struct layer {
	struct layer_info info;
	int fd;     /* read-only; -1 while closed */
	char *path; /* absolute */
};
#define LAYER_INIT       \
	{                \
		.fd = -1 \
	}

/*
 * layer_build() - fetch the package and make its layer, unless it is there.
 * @force:	make it again (from the same tarball: the lock holds)
 * @fn:		may be NULL; phases WAIT, DOWNLOAD, WRITE and FINISH
 * @out_built:	may be NULL
 *
 * Return: 0; -EINVAL for what is no package at an exact version; -ENOPKG without npm; as
 * npm_fetch() and image_build().
 */
int layer_build(const struct layer_opts *opts, const struct profile_npm *npm, bool force,
                image_progress_fn fn, void *arg, bool *out_built, struct err *err) MUST_CHECK;

/*
 * layer_open() - the layer of @npm, sizes checked, not the digest.
 * Return: 0, -ENOENT when it is not built, -EBADMSG when damaged or not of the locked
 * tarball, -errno; @err is filled.
 */
int layer_open(const struct layer_opts *opts, const struct profile_npm *npm, struct layer *out,
               struct err *err) MUST_CHECK;
void layer_close(struct layer *l);

/* All layers in the cache, sorted by id. *out is malloc'd (NULL when none). */
int layer_list(const struct layer_opts *opts, struct layer_info **out, size_t *out_n,
               struct err *err) MUST_CHECK;

/* Read the file and compare with the digest. 0, -ENOENT, -EBADMSG, -errno. */
int layer_verify(const struct layer_opts *opts, const char *id, struct err *err) MUST_CHECK;

/*
 * layer_rm() - remove a layer by id, or all of a package by its name.
 * Return: how many went, or -errno. None is no error.
 */
int layer_rm(const struct layer_opts *opts, const char *id_or_package, struct err *err) MUST_CHECK;

#endif
