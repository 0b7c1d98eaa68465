/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull.h - images of somebody else: fetched, checked, kept and found again.
 *
 * Below oci/ in the image cache:
 *
 *	blobs/sha256/HEX	as they were fetched: manifests as the registry published them,
 *				configs, layers. Only a cache: what is missing or damaged is
 *				fetched again when an image is made, and a finished image needs none
 *	HEX/			an image, named by the digest that its reference resolved to:
 *		rootfs.erofs	its layers merged
 *		manifest.json	digest, size and hash, what its config asks of a run, last use
 *	refs/HEX.json		what a reference means: its text, digest, when that was asked, and
 *				who vouched for it. HEX is the SHA-256 of the text
 *
 * An image appears whole or not at all; what a killed pull left is swept by the next. A lock
 * a reference makes two pulls at once one pull. The entry of a reference is replaced only when
 * the new image is there: a pull that fails loses nothing.
 *
 * The digest that was resolved is the root of everything: it is what a signature is looked up
 * for, what skopeo is asked for, what the manifest's bytes are hashed to, and below it each part
 * is named by its hash. So what was verified is what boots, whatever a tag means meanwhile.
 *
 * The lock file (layer.h) remembers the digest that each reference last had on this machine, so
 * that a tag that moved is said, also when the cache was emptied in between.
 */
#ifndef CLOCHE_IMAGE_PULL_H
#define CLOCHE_IMAGE_PULL_H

#include "image/image.h"
#include "image/oci.h"
#include "image/ref.h"

enum pull_policy { PULL_MISSING, PULL_ALWAYS, PULL_BACKGROUND, PULL_NEVER };

/* image.verify: what is demanded of who signed an image. */
enum pull_verify { PULL_VERIFY_OFF, PULL_VERIFY_WARN, PULL_VERIFY_REQUIRE };

/* Who vouched for it when it was fetched. */
enum pull_vouched { PULL_BY_NOBODY, PULL_BY_POLICY, PULL_BY_COSIGN };
const char *pull_vouched_name(enum pull_vouched v);

struct pull_opts {
	const char *cache_dir; /* as in struct image_opts */
	const char *lock_path; /* as in struct layer_opts */
	enum pull_verify verify;
	/* who may sign: a key, or an identity at an issuer; NULL: cosign is not asked */
	const char *cosign_key, *cosign_identity, *cosign_issuer;
	/* a signature is wrong or missing: go on? NULL, without a terminal: no */
	bool (*confirm)(void *arg, const char *why);
	/* one line that the user should read: a tag moved, nobody vouched; may be NULL */
	void (*note)(void *arg, const char *text);
	image_progress_fn fn; /* may be NULL */
	void *arg;
};

/* What an image is, without its files. */
struct pull_info {
	char digest[REF_DIGEST_BYTES];   /* what its reference resolved to */
	char ref[REF_TEXT_BYTES];        /* one that means it, or empty when none does any more */
	size_t more_refs;                /* how many others do */
	enum pull_vouched vouched;       /* for @ref */
	struct hash hash;                /* of rootfs.erofs */
	uint64_t size;                   /* of it */
	int64_t built_s, used_s, seen_s; /* seconds since 1970; seen: the registry was asked */
	struct oci_config config;        /* freed with pull_info_fini() */
};
void pull_info_fini(struct pull_info *i);

/* An image in use: the file may be removed meanwhile, the descriptor stays good. */
struct pull_image {
	struct pull_info info;
	bool asked; /* pull_get() asked what the reference means now */
	int fd;     /* of rootfs.erofs, read-only; -1 while closed */
	char *path; /* absolute */
};
#define PULL_IMAGE_INIT  \
	{                \
		.fd = -1 \
	}
void pull_close(struct pull_image *img);

/*
 * pull_open() - the image that @ref means, as far as the cache knows; asks nobody.
 *
 * Return: 0; -ENOENT when it is not there; -EKEYREJECTED when @o demands a signature and nobody
 * vouched for it; -EBADMSG when damaged; -errno. @err is filled.
 */
int pull_open(const struct pull_opts *o, const struct image_ref *ref, struct pull_image *out,
              struct err *err) MUST_CHECK;

/*
 * pull_get() - the same, fetched as @policy says: MISSING and BACKGROUND when it is not there
 * or not usable, ALWAYS after asking the registry what @ref means now, NEVER not at all.
 *
 * Return: as pull_open(), skopeo_copy() and image_oci_build(); -EPERM when @o demands a
 * signature and there is no way to check one.
 */
int pull_get(const struct pull_opts *o, const struct image_ref *ref, enum pull_policy policy,
             struct pull_image *out, struct err *err) MUST_CHECK;

/* Its last use is now. Failures are nobody's: the cache may be read-only. */
void pull_used(const struct pull_opts *o, const struct pull_image *img);

/* All images in the cache, the last used first. *out is malloc'd, each for pull_info_fini(). */
int pull_list(const struct pull_opts *o, struct pull_info **out, size_t *out_n,
              struct err *err) MUST_CHECK;

/*
 * pull_find() - the image by digest, by the first 12 or more of its digits, or by reference.
 * Return: 0 with its digest; -ENOENT; -EEXIST when several begin so; -errno; @err is filled.
 */
int pull_find(const struct pull_opts *o, const char *name, char digest[REF_DIGEST_BYTES],
              struct err *err) MUST_CHECK;

/* pull_rm() - remove the image with this digest and what refers to it. 0, -ENOENT, -errno. */
int pull_rm(const struct pull_opts *o, const char *digest, struct err *err) MUST_CHECK;

/* Read its file and compare with the hash. 0, -ENOENT, -EBADMSG, -errno. */
int pull_check(const struct pull_opts *o, const char *digest, struct err *err) MUST_CHECK;

/* The image by its digest. 0, -ENOENT, -EBADMSG, -errno. */
int pull_load(const struct pull_opts *o, const char *digest, struct pull_image *out,
              struct err *err) MUST_CHECK;

#endif
