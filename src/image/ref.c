/* SPDX-License-Identifier: Apache-2.0 */
#include "image/ref.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "base/vis.h"

enum { HEX_DIGITS = 64 };

static const char sha256[] = "sha256:";
static const char docker_io[] = "docker.io";

static const char *const prefixes[REF_SOURCES] = {
	[REF_REGISTRY] = "docker://",           [REF_CONTAINERS_STORAGE] = "containers-storage:",
	[REF_DOCKER_DAEMON] = "docker-daemon:", [REF_OCI] = "oci:",
	[REF_OCI_ARCHIVE] = "oci-archive:",
};

/* ---- characters --------------------------------------------------------- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_word(char c)
{
	return is_digit(c) || is_lower(c) || is_upper(c);
}

static bool one_of(char c, const char *set)
{
	return c && strchr(set, c);
}

bool ref_digest_ok(const char *s)
{
	const size_t n = sizeof(sha256) - 1;

	if (strncmp(s, sha256, n) != 0)
		return false;
	return strspn(s + n, "0123456789abcdef") == HEX_DIGITS && s[n + HEX_DIGITS] == '\0';
}

/* ---- parts of a name ---------------------------------------------------- */

/* HOST or HOST:PORT, n bytes; in lower case and without :443 to @dst (REF_NAME_MAX + 1). */
static bool take_host(char *dst, const char *s, size_t n)
{
	size_t k = 0, len = 0;

	if (s[0] == '[') { /* IPv6 */
		while (k < n && s[k] != ']')
			k++;
		if (k == n || k < 3)
			return false;
		for (size_t i = 1; i < k; i++) {
			if (!one_of(s[i], "0123456789abcdefABCDEF:."))
				return false;
		}
		k++;
	} else {
		for (bool start = true; k < n && s[k] != ':'; k++) {
			if (s[k] == '.') {
				if (start || s[k - 1] == '-')
					return false;
				start = true;
				continue;
			}
			if (!is_word(s[k]) && (s[k] != '-' || start))
				return false;
			start = false;
		}
		if (k == 0 || one_of(s[k - 1], ".-"))
			return false;
	}
	for (; len < k; len++)
		dst[len] = is_upper(s[len]) ? (char)(s[len] - 'A' + 'a') : s[len];
	dst[len] = '\0';
	if (k == n)
		return true;
	unsigned port = 0;
	if (s[k] != ':' || n - k < 2 || n - k > 6 || s[k + 1] == '0')
		return false;
	for (size_t i = k + 1; i < n; i++) {
		if (!is_digit(s[i]))
			return false;
		port = port * 10 + (unsigned)(s[i] - '0');
	}
	if (port > UINT16_MAX)
		return false;
	/* without a dot it would no longer be told from the first part of a path */
	if (port != 443 || !(strpbrk(dst, ".:") || strcmp(dst, "localhost") == 0))
		(void)snprintf(dst + len, REF_NAME_MAX + 1 - len, ":%u", port);
	return true;
}

/* [a-z0-9]+ joined by ".", "_", "__" or dashes, and the whole by "/". */
static bool path_ok(const char *s)
{
	for (;;) {
		size_t n = 0;
		while (is_digit(s[n]) || is_lower(s[n]))
			n++;
		if (n == 0)
			return false;
		s += n;
		if (*s == '\0')
			return true;
		if (*s == '/' || *s == '.')
			s++;
		else if (*s == '_')
			s += s[1] == '_' ? 2 : 1;
		else if (*s == '-')
			s += strspn(s, "-");
		else
			return false;
	}
}

static bool tag_ok(const char *s)
{
	size_t n = 0;

	while (is_word(s[n]) || one_of(s[n], "_.-"))
		n++;
	return n && n <= REF_TAG_MAX && s[n] == '\0' && !one_of(s[0], ".-");
}

/* A word that an OCI layout has for one of its images. */
static bool word_ok(const char *s)
{
	size_t n = 0;

	while (is_word(s[n]) || one_of(s[n], "_.-/@:+"))
		n++;
	return n && n <= REF_NAME_MAX && s[n] == '\0' && is_word(s[0]);
}

/* ---- the whole ---------------------------------------------------------- */

static int bad(struct err *err, const char *text, const char *why)
{
	char seen[160];

	return err_set(err, -EINVAL, "'%s' is not the reference of an image: %s",
	               vis_str(seen, sizeof(seen), span_str(text)), why);
}

static int too_long(struct err *err, const char *what, int max)
{
	return err_set(err, -ENAMETOOLONG, "the reference of an image has %s of more than %d bytes",
	               what, max);
}

/* NAME[:TAG][@DIGEST] behind the source. */
static int parse_name(struct image_ref *r, const char *text, const char *s, struct err *err)
{
	char host[REF_NAME_MAX + 1], rest[REF_NAME_MAX + 1];
	const char *at = strchr(s, '@'), *slash, *tag = NULL;
	size_t n = at ? (size_t)(at - s) : strlen(s);

	if (at) {
		if (!ref_digest_ok(at + 1))
			return bad(err, text,
			           "behind @ belongs sha256: and 64 digits of 0-9 and a-f");
		memcpy(r->digest, at + 1, strlen(at + 1) + 1);
	}
	/* a colon behind the last slash is that of the tag */
	slash = memrchr(s, '/', n);
	const char *from = slash ? slash : s;
	const char *colon = memchr(from, ':', n - (size_t)(from - s));
	if (colon) {
		size_t len = n - (size_t)(colon + 1 - s);
		if (len > REF_TAG_MAX)
			return too_long(err, "a tag", REF_TAG_MAX);
		memcpy(r->tag, colon + 1, len);
		r->tag[len] = '\0';
		tag = r->tag;
		n = (size_t)(colon - s);
	}
	if (tag && !tag_ok(tag))
		return bad(err, text, "a tag is a word of letters, digits, '_', '.' and '-'");
	if (n > REF_NAME_MAX)
		return too_long(err, "a name", REF_NAME_MAX);
	/* as docker tells a host from the first part of a path */
	slash = memchr(s, '/', n);
	size_t first = slash ? (size_t)(slash - s) : 0;
	bool is_host = false;
	for (size_t i = 0; i < first; i++)
		is_host |= one_of(s[i], ".:[") || is_upper(s[i]);
	is_host |= first == 9 && memcmp(s, "localhost", 9) == 0;
	if (is_host) {
		if (!take_host(host, s, first))
			return bad(err, text, "its host is none");
		/* capitals are what makes "Registry" a host for docker: gone, it would be none */
		if (!strpbrk(host, ".:") && strcmp(host, "localhost") != 0)
			return bad(err, text,
			           "a host without a dot has its port, as in host:443/name");
		s += first + 1;
		n -= first + 1;
		if (strcmp(host, "index.docker.io") == 0)
			memcpy(host, docker_io, sizeof(docker_io));
	} else {
		memcpy(host, docker_io, sizeof(docker_io));
	}
	memcpy(rest, s, n);
	rest[n] = '\0';
	if (n == 0 || !path_ok(rest))
		return bad(err, text,
		           "its name is made of lower-case letters and digits, joined by '/', '.', "
		           "'_' and '-'");
	bool library = strcmp(host, docker_io) == 0 && !strchr(rest, '/');
	int k = snprintf(r->name, sizeof(r->name), "%s/%s%s", host, library ? "library/" : "",
	                 rest);
	if (k < 0 || k > REF_NAME_MAX)
		return too_long(err, "a name", REF_NAME_MAX);
	memcpy(r->host, host, strlen(host) + 1);
	if (r->digest[0])
		r->tag[0] = '\0';
	else if (!tag)
		memcpy(r->tag, "latest", sizeof("latest"));
	return 0;
}

/* DIR or FILE, and a word behind the last colon. */
static int parse_path(struct image_ref *r, const char *text, const char *s, const char *cwd,
                      struct err *err)
{
	const char *colon = strchr(s, ':');
	size_t n = colon ? (size_t)(colon - s) : strlen(s);

	if (n == 0)
		return bad(err, text, "there is no path in it");
	for (const char *p = s; *p; p++) {
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return bad(err, text, "a path with blanks or control characters");
	}
	if (colon && !word_ok(colon + 1))
		return bad(err, text, "behind the path belongs the word of one image in it");
	int k = snprintf(r->name, sizeof(r->name), "%s%s%.*s", s[0] == '/' ? "" : cwd,
	                 s[0] == '/' ? "" : "/", (int)MIN(n, (size_t)REF_PATH_MAX + 1), s);
	if (k < 0 || k > REF_PATH_MAX)
		return too_long(err, "a path", REF_PATH_MAX);
	/* also those of the folder that we are in */
	if (strpbrk(r->name, ":") || strcspn(r->name, " \t\n\r\v\f") != strlen(r->name))
		return bad(err, text, "its folder has a name with blanks or a colon");
	if (colon)
		memcpy(r->tag, colon + 1, strlen(colon + 1) + 1);
	return 0;
}

static void put_text(struct image_ref *r)
{
	const char *what = r->digest[0] ? r->digest : r->tag;

	(void)snprintf(r->text, sizeof(r->text), "%s%s%s%s", prefixes[r->source], r->name,
	               !what[0]       ? ""
	               : r->digest[0] ? "@"
	                              : ":",
	               what);
}

static bool has_prefix(const char *s, const char *prefix)
{
	for (; *prefix; s++, prefix++) {
		char c = is_upper(*s) ? (char)(*s - 'A' + 'a') : *s;
		if (c != *prefix)
			return false;
	}
	return true;
}

/* Sources that skopeo knows, and this does not. */
static bool is_other(const char *s)
{
	static const char *const others[] = {
		"http://",         "https://", "dir:", "docker-archive:",
		"docker-storage:", "ostree:",  "sif:", "tarball:"
	};

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		if (has_prefix(s, others[i]))
			return true;
	}
	return false;
}

int ref_parse(struct image_ref *out, const char *text, const char *cwd, struct err *err)
{
	struct image_ref r = { .source = REF_REGISTRY };
	const char *s = text;
	int e;

	if (is_other(text))
		return bad(err, text,
		           "images come from docker://, containers-storage:, docker-daemon:, "
		           "oci: or oci-archive:");
	for (unsigned i = 0; i < REF_SOURCES; i++) {
		if (has_prefix(text, prefixes[i])) {
			r.source = (enum ref_source)i;
			s = text + strlen(prefixes[i]);
			break;
		}
	}
	e = r.source == REF_OCI || r.source == REF_OCI_ARCHIVE ? parse_path(&r, text, s, cwd, err)
	                                                       : parse_name(&r, text, s, err);
	if (e < 0)
		return e;
	if (r.digest[0] && r.source != REF_REGISTRY)
		return bad(err, text, "only images of a registry have a digest to name them by");
	put_text(&r);
	*out = r;
	return 0;
}

void ref_at(char dst[REF_TEXT_BYTES], const struct image_ref *ref, const char *digest)
{
	(void)snprintf(dst, REF_TEXT_BYTES, "%s%s@%s", prefixes[ref->source], ref->name, digest);
}

/* Would this be taken for something else than a path of docker.io? "oci:latest", "a.b/c" */
static bool misread(const char *path)
{
	size_t n = strcspn(path, "/");

	for (unsigned i = 0; i < REF_SOURCES; i++) {
		if (has_prefix(path, prefixes[i]))
			return true;
	}
	if (is_other(path))
		return true;

	return path[n] && (memchr(path, '.', n) || (n == 9 && memcmp(path, "localhost", n) == 0));
}

const char *ref_short(const struct image_ref *ref)
{
	static const char hub[] = "docker.io/", official[] = "library/";
	const char *s = ref->text + strlen(prefixes[REF_REGISTRY]);

	if (ref->source != REF_REGISTRY)
		return ref->text;
	if (strncmp(s, hub, sizeof(hub) - 1) != 0)
		return s;
	const char *path = s + sizeof(hub) - 1;
	if (strncmp(path, official, sizeof(official) - 1) == 0 &&
	    !strchr(path + sizeof(official) - 1, '/'))
		path += sizeof(official) - 1;
	return misread(path) ? s : path;
}

void ref_agent(char *dst, size_t cap, const struct image_ref *ref)
{
	const char *slash = strrchr(ref->name, '/');
	size_t n = 0;

	for (const char *p = slash ? slash + 1 : ref->name; *p && n + 1 < cap; p++) {
		char c = is_upper(*p) ? (char)(*p - 'A' + 'a') : *p;
		if (is_digit(c) || is_lower(c))
			dst[n++] = c;
		else if (n && dst[n - 1] != '-')
			dst[n++] = '-';
	}
	while (n && dst[n - 1] == '-')
		n--;
	dst[n] = '\0';
	if (n == 0)
		(void)snprintf(dst, cap, "run-image");
}
