/* SPDX-License-Identifier: Apache-2.0 */
#include "term/screen.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <unistd.h>
#include <wchar.h>

#include "base/vis.h"

bool term_can_redraw(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) == 1 && term && *term && strcmp(term, "dumb") != 0;
}

bool term_can_colour(int fd)
{
	const char *no = getenv("NO_COLOR");

	return term_can_redraw(fd) && !(no && *no);
}

/* wcwidth() answers -1 for all but ASCII in the C locale, so it is asked in one with UTF-8 */
static size_t cp_width(uint32_t cp)
{
	static locale_t utf8;
	static bool tried;

	if (cp < 0x80)
		return 1;
	if (!tried) {
		tried = true;
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	}
	if (!utf8)
		return 1;
	locale_t old = uselocale(utf8);
	int w = wcwidth((wchar_t)cp);
	(void)uselocale(old);
	return w < 0 ? 1 : (size_t)w;
}

/* The character at @s. Return: its bytes. */
static size_t next_char(struct span s, size_t *out_width)
{
	uint32_t cp = 0;
	size_t n = vis_utf8(s, &cp);

	*out_width = n ? cp_width(cp) : 1;
	return n ? n : 1;
}

size_t term_width(struct span s)
{
	size_t sum = 0;

	while (s.len) {
		size_t w;
		size_t n = next_char(s, &w);

		sum += w;
		s.p += n;
		s.len -= n;
	}
	return sum;
}

static int put_spaces(struct buf *b, size_t n)
{
	int r = 0;

	while (n-- && r == 0)
		r = buf_put(b, " ", 1);
	return r;
}

/* @s is visible already */
static int put_fit(struct buf *b, struct span s, size_t cols, bool pad)
{
	size_t full = term_width(s);
	size_t used = 0, at = 0;
	int r;

	if (full <= cols) {
		r = buf_put(b, s.p, s.len);
		return r == 0 && pad ? put_spaces(b, cols - full) : r;
	}
	if (cols == 0)
		return 0;
	while (at < s.len) {
		size_t w;
		size_t n = next_char(span_of(s.p + at, s.len - at), &w);

		if (used + w > cols - 1) /* one column is the mark's */
			break;
		used += w;
		at += n;
	}
	r = buf_put(b, s.p, at);
	if (r == 0)
		r = buf_put(b, "…", strlen("…"));
	return r == 0 && pad ? put_spaces(b, cols - 1 - used) : r;
}

int term_put_cut(struct buf *b, struct span s, size_t cols, bool pad)
{
	AUTO_BUF struct buf v = { 0 };
	int r = vis_put(&v, s, VIS_KEEP_BACKSLASH);

	return r < 0 ? r : put_fit(b, span_of(v.p, v.len), cols, pad);
}

const char *term_fmt_size(char dst[TERM_FMT_BYTES], uint64_t bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	size_t u = 0;
	uint64_t whole = bytes, rest = 0;

	while (whole >= 1024 && u + 1 < ARRAY_LEN(unit)) {
		rest = whole % 1024;
		whole /= 1024;
		u++;
	}
	uint64_t tenths = (rest * 10 + 512) / 1024;
	if (u > 0 && whole * 10 + tenths < 100) {
		whole += tenths / 10;
		(void)snprintf(dst, TERM_FMT_BYTES, "%llu.%llu %s", (unsigned long long)whole,
		               (unsigned long long)(tenths % 10), unit[u]);
		return dst;
	}
	whole += rest >= 512;
	if (whole >= 1024 && u + 1 < ARRAY_LEN(unit))
		(void)snprintf(dst, TERM_FMT_BYTES, "1.0 %s", unit[u + 1]);
	else
		(void)snprintf(dst, TERM_FMT_BYTES, "%llu %s", (unsigned long long)whole, unit[u]);
	return dst;
}

const char *term_fmt_duration(char dst[TERM_FMT_BYTES], uint64_t ns)
{
	unsigned long long ms = ns / 1000000u;
	unsigned long long s = (ms + 500) / 1000;

	if (ms < 9995)
		(void)snprintf(dst, TERM_FMT_BYTES, "%llu.%02llu s", (ms + 5) / 1000,
		               (ms + 5) % 1000 / 10);
	else if (s < 60)
		(void)snprintf(dst, TERM_FMT_BYTES, "%llu s", s);
	else if (s < 3600)
		(void)snprintf(dst, TERM_FMT_BYTES, "%llu min %llu s", s / 60, s % 60);
	else if (s < 86400)
		(void)snprintf(dst, TERM_FMT_BYTES, "%llu h %llu min", s / 3600, s % 3600 / 60);
	else
		(void)snprintf(dst, TERM_FMT_BYTES, "%llu d %llu h", s / 86400, s % 86400 / 3600);
	return dst;
}

const char *term_fmt_age(char dst[TERM_FMT_BYTES], uint64_t seconds)
{
	static const struct {
		uint64_t seconds;
		const char *unit;
	} t[] = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
	size_t i = 0;

	while (i + 1 < ARRAY_LEN(t) && seconds < t[i].seconds)
		i++;
	(void)snprintf(dst, TERM_FMT_BYTES, "%llu %s", (unsigned long long)(seconds / t[i].seconds),
	               t[i].unit);
	return dst;
}

const char *term_fmt_count(char dst[TERM_FMT_BYTES], uint64_t n)
{
	char digits[24];
	size_t len = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
	size_t k = 0;

	for (size_t i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			dst[k++] = ' ';
		dst[k++] = digits[i];
	}
	dst[k] = '\0';
	return dst;
}

void term_table_init(struct term_table *t, const struct term_col *cols, size_t n_cols)
{
	ASSERT(n_cols > 0 && n_cols <= TERM_TABLE_COLS_MAX);
	*t = (struct term_table){ .cols = cols, .n_cols = n_cols };
}

void term_table_row(struct term_table *t, const char *const *cells)
{
	if (t->n_rows == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 16;
		t->cells = xrealloc(t->cells, t->cap * t->n_cols * sizeof(*t->cells));
	}
	for (size_t i = 0; i < t->n_cols; i++) {
		const char *s = cells[i] ? cells[i] : "-";
		struct buf b = { 0 };
		size_t n = strnlen(s, TERM_TABLE_CELL_MAX);
		int r = vis_put(&b, span_of(s, n), VIS_KEEP_BACKSLASH);

		if (r == 0)
			r = buf_put(&b, "", 1);
		ASSERT(r == 0);
		t->cells[t->n_rows * t->n_cols + i] = (char *)b.p;
	}
	t->n_rows++;
}

static void fit_widths(const struct term_table *t, size_t *w, size_t width)
{
	size_t sum = 2 * (t->n_cols - 1);

	for (size_t i = 0; i < t->n_cols; i++)
		sum += w[i];
	while (width && sum > width) {
		size_t best = t->n_cols;

		for (size_t i = 0; i < t->n_cols; i++) {
			if (t->cols[i].elastic && w[i] > 8 && (best == t->n_cols || w[i] > w[best]))
				best = i;
		}
		if (best == t->n_cols)
			return; /* nothing may shrink further: the terminal wraps the line */
		w[best]--;
		sum--;
	}
}

static int put_line(const struct term_table *t, const size_t *w, const char *const *cells,
                    struct buf *out)
{
	int r = 0;

	for (size_t i = 0; i < t->n_cols && r == 0; i++) {
		struct span s = span_str(cells[i]);
		size_t have = MIN(term_width(s), w[i]);

		if (i)
			r = buf_put(out, "  ", 2);
		if (r == 0 && t->cols[i].align == TERM_RIGHT)
			r = put_spaces(out, w[i] - have);
		if (r == 0)
			r = put_fit(out, s, w[i], t->cols[i].align == TERM_LEFT);
	}
	while (out->len && out->p[out->len - 1] == ' ')
		out->len--;
	return r < 0 ? r : buf_put(out, "\n", 1);
}

int term_table_put(const struct term_table *t, size_t width, struct buf *out)
{
	size_t w[TERM_TABLE_COLS_MAX] = { 0 };
	const char *head[TERM_TABLE_COLS_MAX];
	bool heads = false;
	int r = 0;

	for (size_t i = 0; i < t->n_cols; i++) {
		head[i] = t->cols[i].head ? t->cols[i].head : "";
		heads |= t->cols[i].head != NULL;
		w[i] = term_width(span_str(head[i]));
		for (size_t k = 0; k < t->n_rows; k++)
			w[i] = MAX(w[i], term_width(span_str(t->cells[k * t->n_cols + i])));
	}
	fit_widths(t, w, width);
	if (heads)
		r = put_line(t, w, head, out);
	for (size_t k = 0; k < t->n_rows && r == 0; k++)
		r = put_line(t, w, (const char *const *)&t->cells[k * t->n_cols], out);
	return r;
}

void term_table_fini(struct term_table *t)
{
	for (size_t i = 0; i < t->n_rows * t->n_cols; i++)
		free(t->cells[i]);
	free(t->cells);
	t->cells = NULL;
	t->n_rows = t->cap = 0;
}
