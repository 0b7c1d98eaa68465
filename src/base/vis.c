/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vis.h"

#include <errno.h>

/* Unicode 15, table 3-7: well-formed byte sequences, no surrogates, no overlongs */
size_t vis_utf8(struct span s, uint32_t *out_cp)
{
	if (s.len == 0)
		return 0;
	uint8_t c = s.p[0];
	if (c < 0x80) {
		*out_cp = c;
		return 1;
	}
	size_t n = c >= 0xc2 && c <= 0xdf   ? 2
	           : (c & 0xf0) == 0xe0     ? 3
	           : c >= 0xf0 && c <= 0xf4 ? 4
	                                    : 0;
	if (n == 0 || s.len < n)
		return 0;
	uint32_t cp = c & (0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s.p[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (s.p[i] & 0x3f);
	}
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	if (cp < least[n] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	*out_cp = cp;
	return n;
}

/* Ranges that steer a terminal, reorder a line or cannot be seen. */
static const struct {
	uint32_t first, last;
} hidden[] = {
	{ 0x0000, 0x001f },   { 0x007f, 0x009f },    { 0x00ad, 0x00ad },   { 0x034f, 0x034f },
	{ 0x061c, 0x061c },   { 0x115f, 0x1160 },    { 0x17b4, 0x17b5 },   { 0x180b, 0x180f },
	{ 0x200b, 0x200f },   { 0x2028, 0x202e },    { 0x2060, 0x206f },   { 0x3164, 0x3164 },
	{ 0xe000, 0xf8ff },   { 0xfdd0, 0xfdef },    { 0xfeff, 0xfeff },   { 0xffa0, 0xffa0 },
	{ 0xfff0, 0xfffb },   { 0x13430, 0x1343f },  { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
	{ 0xe0000, 0xe0fff }, { 0xf0000, 0x10ffff },
};

static bool is_hidden(uint32_t cp)
{
	if ((cp & 0xfffe) == 0xfffe)
		return true;
	for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
		if (cp >= hidden[i].first && cp <= hidden[i].last)
			return true;
	}
	return false;
}

static int put_escaped(struct buf *b, uint8_t c)
{
	static const char hex[] = "0123456789abcdef";
	char e[4] = { '\\', 'x', hex[c >> 4], hex[c & 15] };

	switch (c) {
	case '\n':
		return buf_put(b, "\\n", 2);
	case '\t':
		return buf_put(b, "\\t", 2);
	case '\r':
		return buf_put(b, "\\r", 2);
	case 0x1b:
		return buf_put(b, "\\e", 2);
	default:
		return buf_put(b, e, 4);
	}
}

int vis_put(struct buf *b, struct span s, int flags)
{
	size_t start = b->len;
	int r = 0;

	while (s.len && r == 0) {
		uint32_t cp = 0;
		size_t n = vis_utf8(s, &cp);

		if (n == 0) {
			n = 1;
			r = put_escaped(b, s.p[0]);
		} else if (cp == '\\') {
			r = buf_put(b, "\\\\", flags & VIS_KEEP_BACKSLASH ? 1 : 2);
		} else if (!is_hidden(cp) || (cp == '\t' && (flags & VIS_KEEP_TAB)) ||
		           (cp == '\n' && (flags & VIS_KEEP_NEWLINE))) {
			r = buf_put(b, s.p, n);
		} else {
			for (size_t i = 0; i < n && r == 0; i++)
				r = put_escaped(b, s.p[i]);
		}
		s.p += n;
		s.len -= n;
	}
	if (r < 0)
		b->len = start;
	return r;
}

char *vis_dup(struct span s)
{
	struct buf b = { 0 };
	int r = vis_put(&b, s, 0);

	if (r == 0)
		r = buf_put(&b, "", 1);
	ASSERT(r == 0);
	return (char *)b.p;
}

const char *vis_str(char *dst, size_t cap, struct span s)
{
	AUTO_FREE char *v = vis_dup(s);
	size_t n = strlen(v);

	ASSERT(cap >= 8);
	if (n < cap) {
		memcpy(dst, v, n + 1);
		return dst;
	}
	n = cap - 4;
	while (n && ((uint8_t)v[n] & 0xc0) == 0x80) /* not inside a character */
		n--;
	memcpy(dst, v, n);
	memcpy(dst + n, "...", 4);
	return dst;
}
