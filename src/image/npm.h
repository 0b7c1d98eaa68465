/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npm.h - a package of npm at an exact version: its tarball, fetched by the user's own
 * npm with the user's configuration, and its integrity.
 *
 * The registry is npm's business: no host is known here. npm runs in an empty
 * folder of ours, so that no project's .npmrc is read, and is told to run no
 * script. What it brings is a file; nothing of it is opened here but to hash it.
 */
#ifndef CLOCHE_IMAGE_NPM_H
#define CLOCHE_IMAGE_NPM_H

#include "base/hash.h"
#include "base/span.h"

struct err;

enum {
	NPM_NAME_MAX = 214, /* of npm itself */
	NPM_VERSION_MAX = 64,
	NPM_INTEGRITY_BYTES = 7 + 88 + 1, /* "sha512-", base64, NUL */
};
#define NPM_TARBALL_MAX ((uint64_t)1 << 30)

/* "name" or "@scope/name" of lower-case letters, digits and . _ - ; a name of npm. */
bool npm_name_ok(const char *s);
/* One exact version (semver.org): no range, no tag. */
bool npm_version_ok(const char *s);
/* A command's name, as it may stand in /usr/local/bin. */
bool npm_bin_ok(const char *s);

/*
 * npm_integrity_parse() - "sha512-BASE64" (W3C Subresource Integrity), one hash, a line
 * feed behind it or not. Return: 0, or -EINVAL: another hash is not enough.
 */
int npm_integrity_parse(uint8_t out[SHA512_BYTES], struct span text) MUST_CHECK;
void npm_integrity_put(char dst[NPM_INTEGRITY_BYTES], const uint8_t sum[SHA512_BYTES]);

/*
 * npm_last_words() - the line of npm's stderr that says most.
 * Return: a part of @text, empty when there is none.
 */
struct span npm_last_words(struct span text);

/*
 * npm_fetch() - bring the tarball of @package at @version.
 * @path:	a fresh, empty folder of the caller's, absolute
 * @dirfd:	the same
 * @known:	what its hash must be, or NULL: then the registry is asked
 * @tick:	called a few times a second; false cancels
 * @out_fd:	the tarball, read-only, at its start; the caller's
 * @out_sum:	its hash, checked
 *
 * Return: 0; -ENOPKG without npm (hint); -EIO when npm fails (its words in @err);
 * -EBADMSG when the tarball is not the one that was named; -ECANCELED; -errno.
 */
int npm_fetch(const char *package, const char *version, const char *path, int dirfd,
              const uint8_t *known, bool (*tick)(void *arg), void *arg, int *out_fd,
              uint8_t out_sum[SHA512_BYTES], struct err *err) MUST_CHECK;

#endif
