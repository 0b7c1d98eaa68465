/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/netevent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ip.h"

/* ---- JSON, as much as there is of it ------------------------------------ */

static bool take(struct span *s, char c)
{
	if (s->len == 0 || s->p[0] != (uint8_t)c)
		return false;
	*s = span_of(s->p + 1, s->len - 1);
	return true;
}

static int hex_of(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes beyond printable ASCII are written as \u00XX; nothing else is escaped but " and \. */
static int escaped(struct span *s)
{
	int c;

	if (s->len == 0)
		return -1;
	if (take(s, '"'))
		return '"';
	if (take(s, '\\'))
		return '\\';
	if (s->len < 5 || memcmp(s->p, "u00", 3) != 0 || hex_of(s->p[3]) < 0 || hex_of(s->p[4]) < 0)
		return -1;
	c = hex_of(s->p[3]) << 4 | hex_of(s->p[4]);
	*s = span_of(s->p + 5, s->len - 5);
	return c > 0 && (c < 0x20 || c > 0x7e) ? c : -1;
}

static bool string(struct span *s, char *dst, size_t cap)
{
	size_t n = 0;

	if (!take(s, '"'))
		return false;
	while (s->len && s->p[0] != '"') {
		int c = s->p[0];
		*s = span_of(s->p + 1, s->len - 1);
		if (c < 0x20 || c > 0x7e)
			return false;
		if (c == '\\')
			c = escaped(s);
		if (c < 0 || n + 1 >= cap)
			return false;
		dst[n++] = (char)c;
	}
	dst[n] = '\0';
	return n > 0 && take(s, '"');
}

static bool number(struct span *s, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;
	size_t n = 0;

	for (; n < s->len && s->p[n] >= '0' && s->p[n] <= '9'; n++) {
		uint64_t d = (uint64_t)(s->p[n] - '0');
		if (n > 0 && v == 0)
			return false; /* a leading zero */
		if (v > (max - MIN(d, max)) / 10)
			return false;
		v = v * 10 + d;
	}
	*s = span_of(s->p + n, s->len - n);
	*out = v;
	return n > 0;
}

/* ---- the fields --------------------------------------------------------- */

static bool word(struct span *s, char dst[NETEVENT_WORD_MAX + 1])
{
	if (!string(s, dst, NETEVENT_WORD_MAX + 1))
		return false;
	for (const char *p = dst; *p; p++) {
		if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '-'))
			return false;
	}
	return true;
}

/* "2026-01-31T23:59:59.999Z" */
static bool time_ok(const char *t)
{
	static const char form[] = "0000-00-00T00:00:00.000Z";

	if (strlen(t) != sizeof(form) - 1)
		return false;
	for (size_t i = 0; form[i]; i++) {
		if (form[i] == '0' ? t[i] < '0' || t[i] > '9' : t[i] != form[i])
			return false;
	}
	return true;
}

static bool address(struct span *s, struct netevent *e)
{
	char text[IP4_STR_BYTES];

	return e->n_addrs < NETEVENT_ADDRS_MAX && string(s, text, sizeof(text)) &&
	       ip4_parse(&e->addrs[e->n_addrs++], span_str(text)) == 0;
}

static bool addresses(struct span *s, struct netevent *e)
{
	if (!take(s, '['))
		return false;
	do {
		if (!address(s, e))
			return false;
	} while (take(s, ','));
	return take(s, ']');
}

static bool verdict(struct span *s, struct netevent *e)
{
	char text[16];

	if (!string(s, text, sizeof(text)))
		return false;
	e->verdict = strcmp(text, "allowed") == 0   ? NETEVENT_ALLOWED
	             : strcmp(text, "refused") == 0 ? NETEVENT_REFUSED
	                                            : NETEVENT_NONE;
	return e->verdict != NETEVENT_NONE;
}

static bool port(struct span *s, uint16_t *out)
{
	uint64_t v;

	if (!number(s, UINT16_MAX, &v) || v == 0)
		return false;
	*out = (uint16_t)v;
	return true;
}

/* In the order of the schema; each at most once. */
static const char *const keys[] = { "t",          "ev",        "verdict",  "reason", "detail",
	                            "name",       "proto",     "addr",     "addrs",  "port",
	                            "guest_port", "bytes_out", "bytes_in", "count" };
enum {
	K_T,
	K_EV,
	K_VERDICT,
	K_REASON,
	K_DETAIL,
	K_NAME,
	K_PROTO,
	K_ADDR,
	K_ADDRS,
	K_PORT,
	K_GUEST_PORT,
	K_OUT,
	K_IN,
	K_COUNT,
	KEYS
};
_Static_assert(ARRAY_LEN(keys) == KEYS, "a name for each key");

static bool field(struct span *s, int key, struct netevent *e)
{
	switch (key) {
	case K_T:
		return string(s, e->time, sizeof(e->time)) && time_ok(e->time);
	case K_EV:
		return word(s, e->ev);
	case K_VERDICT:
		return verdict(s, e);
	case K_REASON:
		return word(s, e->reason);
	case K_DETAIL:
		return string(s, e->detail, sizeof(e->detail));
	case K_NAME:
		return string(s, e->name, sizeof(e->name));
	case K_PROTO:
		return word(s, e->proto);
	case K_ADDR:
		return address(s, e);
	case K_ADDRS:
		return e->n_addrs == 0 && addresses(s, e);
	case K_PORT:
		return port(s, &e->port);
	case K_GUEST_PORT:
		return port(s, &e->guest_port);
	case K_OUT:
		e->has_bytes = true;
		return number(s, UINT64_MAX, &e->bytes_out);
	case K_IN:
		return number(s, UINT64_MAX, &e->bytes_in);
	case K_COUNT:
		return number(s, UINT64_MAX, &e->count) && e->count > 0;
	default:
		return false;
	}
}

int netevent_parse(struct netevent *out, struct span s)
{
	struct netevent e = { .count = 1 };
	bool seen[KEYS] = { 0 };
	char name[16];

	if (s.len >= NETEVENT_LINE_MAX || !take(&s, '{'))
		return -EPROTO;
	do {
		int k = 0;
		if (!string(&s, name, sizeof(name)) || !take(&s, ':'))
			return -EPROTO;
		while (k < KEYS && strcmp(name, keys[k]) != 0)
			k++;
		if (k == KEYS || seen[k] || !field(&s, k, &e))
			return -EPROTO;
		seen[k] = true;
	} while (take(&s, ','));
	if (!take(&s, '}') || s.len || !seen[K_T] || !seen[K_EV] || seen[K_OUT] != seen[K_IN] ||
	    (seen[K_ADDR] && seen[K_ADDRS]))
		return -EPROTO;
	*out = e;
	return 0;
}

int netevent_each(int fd, struct buf *carry, int (*fn)(void *arg, const struct netevent *e),
                  void *arg, uint64_t *out_bad)
{
	static struct netevent e;
	uint8_t piece[16384];

	for (;;) {
		ssize_t n = read(fd, piece, sizeof(piece));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		int r = buf_put(carry, piece, (size_t)n);
		const uint8_t *nl;
		size_t at = 0;
		while (r == 0 && (nl = memchr(carry->p + at, '\n', carry->len - at))) {
			size_t len = (size_t)(nl - carry->p) - at;
			if (netevent_parse(&e, span_of(carry->p + at, len)) == 0)
				r = fn(arg, &e);
			else
				(*out_bad)++;
			at += len + 1;
		}
		if (r != 0)
			return r;
		buf_consume(carry, at);
		if (carry->len >= NETEVENT_LINE_MAX) { /* no line of ours: its end is one more */
			carry->len = 0;
			(*out_bad)++;
		}
	}
}

const char *netevent_host(const struct netevent *e, char *dst, size_t cap)
{
	char ip[IP4_STR_BYTES] = "";

	if (!e->name[0] && e->n_addrs)
		(void)ip4_str(ip, e->addrs[0]);
	(void)snprintf(dst, cap, "%s", e->name[0] ? e->name : ip);
	return dst;
}

/* ---- summaries ---------------------------------------------------------- */

void netsum_add(struct netsum *s, const struct netevent *e, bool by_port)
{
	char host[NETEVENT_NAME_MAX + 1];
	uint16_t p = by_port ? e->port : 0;

	s->total += e->count;
	(void)netevent_host(e, host, sizeof(host));
	for (size_t i = 0; i < s->n && host[0]; i++) {
		struct netsum_host *h = &s->v[i];
		if (h->port != p || strcmp(h->host, host) != 0)
			continue;
		h->count += e->count;
		memcpy(h->reason, e->reason, sizeof(h->reason));
		return;
	}
	if (!host[0] || s->n == NETEVENT_HOSTS_MAX) {
		s->others += e->count;
		return;
	}
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 16;
		s->v = xrealloc(s->v, s->cap * sizeof(*s->v));
	}
	s->v[s->n] = (struct netsum_host){
		.host = xstrdup(host), .port = p, .is_name = e->name[0], .count = e->count
	};
	memcpy(s->v[s->n++].reason, e->reason, sizeof(e->reason));
}

static int often_first(const void *a, const void *b)
{
	const struct netsum_host *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	int c = strcmp(x->host, y->host);
	return c ? c : (x->port > y->port) - (x->port < y->port);
}

void netsum_sort(struct netsum *s)
{
	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), often_first);
}

void netsum_fini(struct netsum *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i].host);
	free(s->v);
	*s = (struct netsum){ 0 };
}
