/* SPDX-License-Identifier: Apache-2.0 */
/* pull_priv.h - between the files behind pull.h: their texts on disk. */
#ifndef CLOCHE_IMAGE_PULL_PRIV_H
#define CLOCHE_IMAGE_PULL_PRIV_H

#include "base/span.h"
#include "image/image_priv.h"
#include "image/pull.h"

/* another number for a change of how layers are merged: images are made again */
enum { PULL_FORMAT = 1, PULL_TEXT_MAX = 4 * 1024 * 1024, PULL_POLICY_MAX = 1024 * 1024 };

/* manifest.json of an image: all of pull_info but ref, more_refs, vouched and seen_s. */
int pull_info_parse(struct pull_info *out, const void *p, size_t n) MUST_CHECK;
int pull_info_format(const struct pull_info *i, char **out) MUST_CHECK;

/* refs/HEX.json */
struct pull_entry {
	char ref[REF_TEXT_BYTES];
	char digest[REF_DIGEST_BYTES];
	enum pull_vouched vouched;
	int64_t seen_s;
	char was[REF_DIGEST_BYTES]; /* moved from here, and nobody was told; or empty */
};
int pull_entry_parse(struct pull_entry *out, const void *p, size_t n) MUST_CHECK;
int pull_entry_format(const struct pull_entry *e, char **out) MUST_CHECK;

/* The lock file: the digest that @ref had. 1, 0 when there is none, -EBADMSG. */
int pull_lock_get(const void *p, size_t n, const char *ref, char out[REF_DIGEST_BYTES]) MUST_CHECK;
/* The text with it, all else as it was; *out NULL: it says so already. */
int pull_lock_put(const void *p, size_t n, const char *ref, const char *digest,
                  char **out) MUST_CHECK;

/* What a signature policy (containers-policy.json(5)) asks of an image. */
enum pull_demand {
	PULL_DEMAND_NOTHING, /* anything is accepted */
	PULL_DEMAND_SIGNED,  /* a signature */
	PULL_DEMAND_REJECT,  /* it is refused in any case */
	PULL_DEMAND_BY_TAG,  /* a signature, of this tag and not of its repository */
};
/* -EBADMSG for a text that is not such a policy. */
int pull_policy_demand(const void *p, size_t n, const struct image_ref *ref,
                       enum pull_demand *out) MUST_CHECK;

#endif
