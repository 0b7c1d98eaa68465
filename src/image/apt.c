/* SPDX-License-Identifier: Apache-2.0 */
#include "image/apt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/err.h"
#include "base/fd.h"

/* ---- words -------------------------------------------------------------- */

static struct span take_line(struct span *rest)
{
	const uint8_t *nl = rest->len ? memchr(rest->p, '\n', rest->len) : NULL;
	size_t n = nl ? (size_t)(nl - rest->p) : rest->len;
	struct span line = span_of(rest->p, n);

	*rest = span_of(rest->p + n + (nl != NULL), rest->len - n - (nl != NULL));
	if (line.len && line.p[line.len - 1] == '\r')
		line.len--;
	return line;
}

static bool blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

static struct span trim(struct span s)
{
	while (s.len && blank(s.p[0]))
		s = span_of(s.p + 1, s.len - 1);
	while (s.len && blank(s.p[s.len - 1]))
		s.len--;
	return s;
}

static struct span take_word(struct span *line)
{
	*line = trim(*line);
	if (line->len == 0)
		return (struct span){ 0 };
	size_t n = 0;
	while (n < line->len && !blank(line->p[n]))
		n++;
	struct span w = span_of(line->p, n);
	*line = span_of(line->p + n, line->len - n);
	return w;
}

static bool plain(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] <= ' ' || s.p[i] >= 0x7f || s.p[i] == '"' || s.p[i] == '\'' ||
		    s.p[i] == '\\' || s.p[i] == '[' || s.p[i] == ']')
			return false;
	}
	return true;
}

static bool copy(char *dst, size_t cap, struct span s)
{
	if (s.len >= cap || !plain(s))
		return false;
	if (s.len)
		memcpy(dst, s.p, s.len);
	dst[s.len] = '\0';
	return true;
}

static bool starts_with(struct span s, const char *prefix)
{
	size_t n = strlen(prefix);

	return s.len >= n && memcmp(s.p, prefix, n) == 0;
}

static void add(struct apt_entries *out, struct span uri, struct span suite, struct span signed_by)
{
	struct apt_entry e = { 0 };

	if (out->n == APT_ENTRIES_MAX || uri.len == 0 || suite.len == 0)
		return;
	if (!starts_with(uri, "http://") && !starts_with(uri, "https://"))
		return;
	while (uri.len && uri.p[uri.len - 1] == '/')
		uri.len--;
	if (!copy(e.uri, sizeof(e.uri), uri) || !copy(e.suite, sizeof(e.suite), suite))
		return;
	if (signed_by.len && signed_by.p[0] == '/' &&
	    !copy(e.signed_by, sizeof(e.signed_by), signed_by))
		return;
	out->e[out->n++] = e;
}

/* ---- sources.list(5) ---------------------------------------------------- */

void apt_parse_list(struct span text, struct apt_entries *out)
{
	while (text.len) {
		struct span line = take_line(&text), signed_by = { 0 };
		const uint8_t *hash = line.len ? memchr(line.p, '#', line.len) : NULL;

		if (hash)
			line.len = (size_t)(hash - line.p);
		if (!span_eq(take_word(&line), span_str("deb")))
			continue;
		line = trim(line);
		if (line.len && line.p[0] == '[') {
			const uint8_t *end = memchr(line.p, ']', line.len);
			if (!end)
				continue;
			struct span opts = span_of(line.p + 1, (size_t)(end - line.p) - 1);
			line = span_of(end + 1, line.len - (size_t)(end - line.p) - 1);
			for (struct span w = take_word(&opts); w.len; w = take_word(&opts)) {
				if (starts_with(w, "signed-by="))
					signed_by = span_of(w.p + 10, w.len - 10);
			}
		}
		struct span uri = take_word(&line), suite = take_word(&line);
		add(out, uri, suite, signed_by);
	}
}

struct stanza {
	struct span types, uris, suites, signed_by, enabled;
};

static void flush(struct stanza *s, struct apt_entries *out)
{
	bool is_deb = false;
	struct span types = s->types, uris = s->uris;

	for (struct span w = take_word(&types); w.len; w = take_word(&types))
		is_deb |= span_eq(w, span_str("deb"));
	if (is_deb && !span_eq(s->enabled, span_str("no"))) {
		for (struct span u = take_word(&uris); u.len; u = take_word(&uris)) {
			struct span suites = s->suites;
			for (struct span w = take_word(&suites); w.len; w = take_word(&suites))
				add(out, u, w, s->signed_by);
		}
	}
	*s = (struct stanza){ 0 };
}

static bool field(struct span line, const char *name, struct span *value)
{
	size_t n = strlen(name);

	if (line.len <= n || line.p[n] != ':' || strncasecmp((const char *)line.p, name, n) != 0)
		return false;
	*value = trim(span_of(line.p + n + 1, line.len - n - 1));
	return true;
}

/* Values that go on in the next line (a key in place, long lists) are cut at the first. */
void apt_parse_deb822(struct span text, struct apt_entries *out)
{
	struct stanza s = { 0 };

	while (text.len) {
		struct span line = take_line(&text);

		if (trim(line).len == 0) {
			flush(&s, out);
			continue;
		}
		if (line.p[0] == '#' || blank(line.p[0]))
			continue;
		if (field(line, "Types", &s.types) || field(line, "URIs", &s.uris) ||
		    field(line, "Suites", &s.suites) || field(line, "Enabled", &s.enabled) ||
		    field(line, "Signed-By", &s.signed_by))
			continue;
	}
	flush(&s, out);
}

/* ---- Release files ------------------------------------------------------ */

/* As apt's URItoFileName(): scheme and user away, some bytes as %xx, '/' as '_'. */
bool apt_release_name(const struct apt_entry *e, char *dst, size_t cap)
{
	static const char odd[] = "\\|{}[]<>\"^~_=!@#$%^&*";
	char full[APT_URI_MAX + APT_SUITE_MAX + 16];
	const char *p = strstr(e->uri, "://");
	size_t n = 0;

	if (!p)
		return false;
	p += 3;
	size_t host = strcspn(p, "/");
	const char *at = memchr(p, '@', host);
	if (at)
		p = at + 1;
	(void)snprintf(full, sizeof(full), "%s/dists/%s", p, e->suite);
	for (const char *c = full; *c; c++) {
		if (n + 4 > cap)
			return false;
		if (strchr(odd, *c))
			n += (size_t)snprintf(dst + n, cap - n, "%%%02x", (unsigned char)*c);
		else
			dst[n++] = *c == '/' ? '_' : *c;
	}
	dst[n] = '\0';
	return true;
}

bool apt_release_has_origin(struct span release, const char *origin)
{
	for (int i = 0; release.len && i < 64; i++) { /* the head; the hashes come behind */
		struct span line = take_line(&release), v;
		if (field(line, "Origin", &v))
			return span_eq(v, span_str(origin));
	}
	return false;
}

bool apt_uri_ok(const char *uri)
{
	struct span s = span_str(uri);

	if (!starts_with(s, "http://") && !starts_with(s, "https://"))
		return false;
	return s.len < APT_URI_MAX && plain(s) && !strchr(uri, '@');
}

/* ---- options ------------------------------------------------------------ */

size_t apt_conf_pick(struct span dump, char *out[APT_OPTIONS_MAX])
{
	static const char *const keys[] = { "Acquire::http::",     "Acquire::https::",
		                            "Acquire::Retries",    "Acquire::Check-Valid-Until",
		                            "Acquire::Check-Date", "Acquire::ForceIPv4",
		                            "Acquire::ForceIPv6" };
	size_t n = 0;

	while (dump.len && n < APT_OPTIONS_MAX) {
		struct span line = take_line(&dump);
		const uint8_t *sp = line.len ? memchr(line.p, ' ', line.len) : NULL;
		bool wanted = false;

		for (size_t i = 0; i < ARRAY_LEN(keys); i++)
			wanted |= starts_with(line, keys[i]);
		if (!wanted || !sp || line.len > 1024)
			continue;
		/* KEY "VALUE"; with a value that is not empty and no quote in it */
		struct span key = span_of(line.p, (size_t)(sp - line.p));
		struct span v = span_of(sp + 1, line.len - key.len - 1);
		if (v.len < 4 || v.p[0] != '"' || v.p[v.len - 1] != ';' || v.p[v.len - 2] != '"')
			continue;
		v = span_of(v.p + 1, v.len - 3);
		bool ok = plain(key) && memchr(v.p, '"', v.len) == NULL;
		for (size_t i = 0; i < v.len; i++)
			ok &= v.p[i] >= ' ' && v.p[i] != 0x7f;
		if (ok)
			out[n++] = xasprintf("%.*s", (int)line.len, (const char *)line.p);
	}
	return n;
}

/* ---- the host ----------------------------------------------------------- */

static bool read_file(const char *path, struct buf *out)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *p;
	size_t n;

	if (fd < 0 || fd_read_file(fd, APT_FILE_MAX, &p, &n) < 0)
		return false;
	buf_fini(out);
	*out = (struct buf){ .p = (uint8_t *)p, .len = n, .cap = n };
	return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_sources(const char *etc, struct apt_entries *out)
{
	AUTO_BUF struct buf text = { 0 };
	AUTO_FREE char *main_list = xasprintf("%s/sources.list", etc);
	AUTO_FREE char *dir = xasprintf("%s/sources.list.d", etc);
	struct dirent **names = NULL;

	if (read_file(main_list, &text))
		apt_parse_list(span_of(text.p, text.len), out);
	int n = scandir(dir, &names, NULL, by_name);
	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(names[i]->d_name, '.');
		AUTO_FREE char *path = xasprintf("%s/%s", dir, names[i]->d_name);
		if (dot && strcmp(dot, ".list") == 0 && read_file(path, &text))
			apt_parse_list(span_of(text.p, text.len), out);
		if (dot && strcmp(dot, ".sources") == 0 && read_file(path, &text))
			apt_parse_deb822(span_of(text.p, text.len), out);
		free(names[i]);
	}
	free(names);
}

enum answer { NO, YES, UNKNOWN };

static enum answer is_debian(const char *lists, const struct apt_entry *e)
{
	static const char *const ends[] = { "_InRelease", "_Release" };
	AUTO_BUF struct buf text = { 0 };
	char name[APT_URI_MAX * 2];

	if (!apt_release_name(e, name, sizeof(name)))
		return NO;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		AUTO_FREE char *path = xasprintf("%s/%s%s", lists, name, ends[i]);
		if (read_file(path, &text))
			return apt_release_has_origin(span_of(text.p, text.len), "Debian") ? YES
			                                                                   : NO;
	}
	return UNKNOWN;
}

static bool is_security(const struct apt_entry *e)
{
	size_t n = strlen(e->suite);

	return n > 9 && strcmp(e->suite + n - 9, "-security") == 0;
}

int apt_host_find(const char *etc, const char *lists, const char *codename, struct apt_host *out,
                  struct err *err)
{
	AUTO_FREE struct apt_entries *all = xcalloc(1, sizeof(*all));
	const struct apt_entry *main_entry = NULL, *security = NULL, *guess = NULL,
			       *guess_sec = NULL;

	read_sources(etc, all);
	for (size_t i = 0; i < all->n; i++) {
		const struct apt_entry *e = &all->e[i];
		size_t n = codename ? strlen(codename) : 0;
		bool ours = n && strncmp(e->suite, codename, n) == 0 &&
		            (e->suite[n] == '\0' || is_security(e));
		enum answer a = is_debian(lists, e);

		if (!apt_uri_ok(e->uri))
			continue;
		if (a == YES && is_security(e) && !security)
			security = e;
		else if (a == YES && !is_security(e) && !main_entry)
			main_entry = e;
		else if (a == UNKNOWN && ours && is_security(e) && !guess_sec)
			guess_sec = e;
		else if (a == UNKNOWN && ours && !is_security(e) && !guess)
			guess = e;
	}
	if (!main_entry) {
		main_entry = guess;
		security = security ? security : guess_sec;
	}
	if (!main_entry) {
		(void)err_set(err, -ENOENT, "no Debian mirror in this host's apt sources");
		(void)err_hint(
			err,
			"name one: image.mirror in the configuration, or CLOCHE_MIRROR=http://…");
		return -ENOENT;
	}
	*out = (struct apt_host){ 0 };
	memcpy(out->uri, main_entry->uri, sizeof(out->uri));
	memcpy(out->signed_by, main_entry->signed_by, sizeof(out->signed_by));
	if (security)
		memcpy(out->security, security->uri, sizeof(out->security));
	return 0;
}
