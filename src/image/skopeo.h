/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skopeo.h - images are fetched by the user's own skopeo: its logins, mirrors, proxies,
 * certificates and signature policy are what podman and docker have too.
 *
 * skopeo gets what it needs of the user's environment and nothing else, no terminal and no
 * shell; where an image comes from is one argument that ref.h made. What it says is read for
 * its kind and one line of words, and that line is made visible by who shows it.
 *
 * All functions but skopeo_read() run a program and wait for it.
 */
#ifndef CLOCHE_IMAGE_SKOPEO_H
#define CLOCHE_IMAGE_SKOPEO_H

#include "base/mem.h"
#include "image/ref.h"

enum { SKOPEO_WORDS_BYTES = 400, SKOPEO_RAW_MAX = 4 * 1024 * 1024 };

/* Why it failed, as far as its words tell. */
enum skopeo_fault {
	SKOPEO_OTHER,
	SKOPEO_LOGIN,  /* credentials are missing or wrong */
	SKOPEO_HELPER, /* a credential helper of the user's failed */
	SKOPEO_ABSENT, /* no such image */
	SKOPEO_NETWORK,
	SKOPEO_TLS,
	SKOPEO_ARCH, /* not for this machine */
	SKOPEO_SIGNATURE,
	SKOPEO_DIGEST, /* other bytes than were promised */
	SKOPEO_SPACE,
	SKOPEO_RATE,  /* too many requests */
	SKOPEO_STORE, /* podman's store or Docker cannot be used */
	SKOPEO_FAULTS
};

/*
 * skopeo_read() - the kind and the words of a failure. Pure.
 * @said:	its standard error, any bytes
 * @words:	its last message, NUL-terminated, cut to @cap (at least 2); not made visible
 */
enum skopeo_fault skopeo_read(struct span said, char *words, size_t cap);

/* How a run of it is waited for. */
struct skopeo_job {
	const char *tmp;         /* absolute: for what it unpacks on the way */
	bool (*tick)(void *arg); /* called a few times a second; false: give up */
	void *arg;
	enum skopeo_fault fault; /* out: of the last failure */
};

/*
 * skopeo_raw() - the manifest that a registry has for @ref, byte for byte.
 * @digest:	ask for this one instead of @ref's tag or digest; or NULL
 * @out:	appended, at most SKOPEO_RAW_MAX
 *
 * Return: 0; -ENOPKG without skopeo; -EACCES, -ENOENT, -ENETUNREACH, -ECANCELED, -EIO, ...
 * with @err and its remedy.
 */
int skopeo_raw(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
               struct buf *out, struct err *err) MUST_CHECK;

/* The same for the config of the image for linux/amd64, which is @digest or below it. */
int skopeo_config(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
                  struct buf *out, struct err *err) MUST_CHECK;

/* What skopeo is to demand of who signed an image. */
enum skopeo_policy {
	SKOPEO_POLICY_NONE, /* nothing */
	SKOPEO_POLICY_USER, /* what policy.json of the user or of the system says */
};

/*
 * skopeo_copy() - fetch what of the image for linux/amd64 is missing in @blobs.
 * @digest:	as above
 * @blobs:	absolute: the folder with sha256/HEX; what is there is not fetched again
 * @out:	digest of the manifest that was written (for sources that are no registry)
 */
int skopeo_copy(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
                const char *blobs, enum skopeo_policy policy, char out[REF_DIGEST_BYTES],
                struct err *err) MUST_CHECK;

/*
 * cosign_verify() - has the holder of @key, or of @identity at @issuer, signed this digest?
 * Exactly one of @key and (@identity, @issuer) is given.
 * Return: 0; -ENOPKG without cosign; -EKEYREJECTED with its words; -ECANCELED; -errno.
 */
int cosign_verify(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
                  const char *key, const char *identity, const char *issuer,
                  struct err *err) MUST_CHECK;
bool cosign_installed(void);

#endif
