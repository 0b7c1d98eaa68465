/* SPDX-License-Identifier: Apache-2.0 */
/*
 * span.h - borrowed bytes, and the sticky cursors that codecs read and write
 * with.
 *
 * A reader that runs out of bytes sets `bad` and answers zeros from then on,
 * so a parser reads straight through and checks `bad` once, before it believes
 * anything. A writer that runs out of room sets `bad` and writes nothing more.
 * All numbers are little endian. Nothing here allocates.
 */
#ifndef CLOCHE_BASE_SPAN_H
#define CLOCHE_BASE_SPAN_H

#include <string.h>

#include "base/util.h"

struct span {
	const uint8_t *p;
	size_t len;
};

struct rd {
	const uint8_t *p;
	size_t left;
	bool bad;
};

struct wr {
	uint8_t *p;
	size_t left;
	bool bad;
};

static inline struct span span_of(const void *p, size_t len)
{
	return (struct span){ .p = p, .len = len };
}

static inline struct span span_str(const char *s)
{
	return span_of(s, strlen(s));
}

static inline bool span_eq(struct span a, struct span b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

/* Order of unsigned bytes, the shorter first: as EROFS and git sort names. */
static inline int span_cmp(struct span a, struct span b)
{
	size_t n = MIN(a.len, b.len);
	int c = n ? memcmp(a.p, b.p, n) : 0;

	if (c)
		return c;
	return a.len < b.len ? -1 : a.len > b.len;
}

static inline struct rd rd_of(const void *p, size_t len)
{
	return (struct rd){ .p = p, .left = len };
}

/* The next @n bytes, or an empty span and `bad`. */
static inline struct span rd_take(struct rd *r, size_t n)
{
	if (r->bad || n > r->left) {
		r->bad = true;
		r->left = 0;
		return (struct span){ 0 };
	}
	struct span s = { .p = r->p, .len = n };
	r->p += n;
	r->left -= n;
	return s;
}

/* A number of @n bytes (1 to 8), little endian; 0 once `bad`. */
static inline uint64_t rd_le(struct rd *r, size_t n)
{
	struct span s = rd_take(r, n);
	uint64_t v = 0;

	for (size_t i = s.len; i-- > 0;)
		v = v << 8 | s.p[i];
	return v;
}

/* A byte string behind its own length of @n bytes, at most @max long. */
static inline struct span rd_blob(struct rd *r, size_t n, size_t max)
{
	uint64_t len = rd_le(r, n);

	if (len > max) {
		r->bad = true;
		r->left = 0;
		return (struct span){ 0 };
	}
	return rd_take(r, (size_t)len);
}

static inline struct wr wr_of(void *p, size_t cap)
{
	return (struct wr){ .p = p, .left = cap };
}

static inline void wr_put(struct wr *w, const void *p, size_t n)
{
	if (w->bad || n > w->left) {
		w->bad = true;
		return;
	}
	if (n)
		memcpy(w->p, p, n);
	w->p += n;
	w->left -= n;
}

static inline void wr_le(struct wr *w, uint64_t v, size_t n)
{
	uint8_t b[8];

	ASSERT(n <= sizeof(b));
	for (size_t i = 0; i < n; i++) {
		b[i] = (uint8_t)v;
		v >>= 8;
	}
	wr_put(w, b, n);
}

static inline void wr_blob(struct wr *w, struct span s, size_t n)
{
	wr_le(w, s.len, n);
	wr_put(w, s.p, s.len);
}

#endif
