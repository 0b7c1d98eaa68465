/* SPDX-License-Identifier: Apache-2.0 */
/* pullstore.h - the folder oci/ of the image cache (pull.h), as pull.c uses it. */
#ifndef CLOCHE_IMAGE_PULLSTORE_H
#define CLOCHE_IMAGE_PULLSTORE_H

#include "image/pull_priv.h"

struct pull_store {
	int cache, oci, blobs, refs; /* the cache, oci/, oci/blobs/sha256/, oci/refs/ */
	char *path;                  /* of oci/, absolute */
};
#define PULL_STORE_INIT                                         \
	{                                                       \
		.cache = -1, .oci = -1, .blobs = -1, .refs = -1 \
	}

/* Open, made where it is missing. 0 or -errno with @err. */
int store_open(struct pull_store *s, const char *cache_dir, struct err *err) MUST_CHECK;
void store_close(struct pull_store *s);

/* A file to flock while what @ref means is looked into. Return: fd or -errno. */
int store_lock(const struct pull_store *s, const char *ref) MUST_CHECK;

/* What the reference means: 0, -ENOENT, -EBADMSG, -errno. */
int store_get_entry(const struct pull_store *s, const char *ref, struct pull_entry *out) MUST_CHECK;
int store_put_entry(const struct pull_store *s, const struct pull_entry *e,
                    struct err *err) MUST_CHECK;

/* The image @digest: 0 with *out for pull_info_fini(); -ENOENT, -EBADMSG, -errno. */
int store_load(const struct pull_store *s, const char *digest, struct pull_info *out,
               int *out_fd) MUST_CHECK;

/* The lock file at @path (NULL: none): *out is empty when it does not know @ref. */
int store_lock_get(const struct pull_store *s, const char *path, const char *ref,
                   char out[REF_DIGEST_BYTES], struct err *err) MUST_CHECK;
int store_lock_put(const struct pull_store *s, const char *path, const char *ref,
                   const char *digest, struct err *err) MUST_CHECK;

/* Says once that @ref moved while nobody looked. */
void store_tell_moved(const struct pull_opts *o, const struct image_ref *ref);

#endif
