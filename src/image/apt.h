/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apt.h - where this host gets Debian from: sources.list(5) in both styles, the
 * Release files that apt keeps, and the options that apt needs to reach it.
 *
 * The parsers are pure. The files belong to the host's administrator, and what
 * they say ends up as arguments of mmdebstrap, so values are checked to be plain.
 */
#ifndef CLOCHE_IMAGE_APT_H
#define CLOCHE_IMAGE_APT_H

#include "base/mem.h"
#include "base/span.h"

struct err;

enum {
	APT_ENTRIES_MAX = 128,
	APT_URI_MAX = 512,
	APT_SUITE_MAX = 64,
	APT_KEYRING_MAX = 256,
	APT_OPTIONS_MAX = 32,
	APT_FILE_MAX = 1024 * 1024,
};

struct apt_entry { /* one URI with one suite */
	char uri[APT_URI_MAX];
	char suite[APT_SUITE_MAX];
	char signed_by[APT_KEYRING_MAX]; /* a path; "" when not said, or a key in place */
};

struct apt_entries {
	struct apt_entry e[APT_ENTRIES_MAX];
	size_t n;
};

/*
 * Append the binary entries with an http(s) URI; the rest, and what is not
 * understood, is passed over: apt complains about it better than we do.
 */
void apt_parse_list(struct span text, struct apt_entries *out);   /* *.list */
void apt_parse_deb822(struct span text, struct apt_entries *out); /* *.sources */

/* Name of the Release file of @e in apt's lists, without "_InRelease". False: too long. */
bool apt_release_name(const struct apt_entry *e, char *dst, size_t cap);

/* Does a Release or InRelease file say "Origin: @origin"? */
bool apt_release_has_origin(struct span release, const char *origin);

/* An http(s) URI without user, password, quotes, blanks or control characters. */
bool apt_uri_ok(const char *uri);

/*
 * apt_conf_pick() - those lines of `apt-config dump` that another apt needs to
 * reach the same mirror: proxies, TLS, retries, checks of dates.
 * @out:	malloc'd lines 'KEY "VALUE";', at most APT_OPTIONS_MAX
 *
 * Return: how many.
 */
size_t apt_conf_pick(struct span dump, char *out[APT_OPTIONS_MAX]);

struct apt_host {
	char uri[APT_URI_MAX];
	char security[APT_URI_MAX];      /* "" when the host has none */
	char signed_by[APT_KEYRING_MAX]; /* "" : what apt trusts anyhow */
};

/*
 * apt_host_find() - the host's Debian entry.
 * @etc:	"/etc/apt" but in tests; @lists: "/var/lib/apt/lists"
 * @codename:	of the host when it is Debian, else NULL: taken as Debian's entry
 *		when apt keeps no Release files (trimmed systems)
 *
 * Return: 0, or -ENOENT (hint: image.mirror).
 */
int apt_host_find(const char *etc, const char *lists, const char *codename, struct apt_host *out,
                  struct err *err) MUST_CHECK;

#endif
