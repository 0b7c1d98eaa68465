/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of the terminal filter, whatever comes in:
 * - a scanner that shares nothing with it finds only whole sequences of a short
 *   list in the output, and otherwise printable UTF-8;
 * - how the input was cut into pieces changes no byte;
 * - the output is bounded by a multiple of the input;
 * - what comes out goes through a second time unchanged.
 */
#include <stdlib.h>

#include "base/vis.h"
#include "term/filter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(cond)              \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

static void run(struct term_filter *f, struct span in, size_t step, struct buf *out)
{
	static uint8_t room[2 * TERM_FILTER_ROOM_MIN];

	while (in.len) {
		struct wr w = wr_of(room, sizeof(room));
		size_t n = term_filter_run(f, span_of(in.p, MIN(step, in.len)), &w);

		CHECK(n > 0 && buf_put(out, room, sizeof(room) - w.left) == 0);
		in.p += n;
		in.len -= n;
	}
}

static bool starts(struct span s, const char *with)
{
	size_t n = strlen(with);

	return s.len >= n && memcmp(s.p, with, n) == 0;
}

/* OSC at s.p (behind "ESC ]"). Return: its bytes with the end. */
static size_t scan_osc(struct span s)
{
	size_t n = 0;

	while (n < s.len && s.p[n] != 7 && s.p[n] != 0x1b)
		CHECK(s.p[n] > 0x20 && s.p[n++] < 0x7f);
	CHECK(n < s.len && n <= TERM_FILTER_STRING_MAX);
	size_t end = n + (s.p[n] == 7 ? 1 : 2);
	CHECK(end <= s.len && (s.p[n] == 7 || s.p[n + 1] == '\\'));
	struct span body = span_of(s.p, n);
	if (starts(body, "8;")) {
		size_t at = 2;
		while (at < n && s.p[at] != ';')
			at++;
		CHECK(at < n && (at == 2 || starts(span_of(s.p + 2, at - 2), "id=")));
		struct span url = span_of(s.p + at + 1, n - at - 1);
		CHECK(url.len == 0 || ((url.p[0] | 0x20) == 'h' && (url.p[3] | 0x20) == 'p'));
	} else {
		CHECK(starts(body, "4;") || starts(body, "10;") || starts(body, "11;") ||
		      starts(body, "12;"));
		CHECK(n >= 3 && s.p[n - 1] == '?' && s.p[n - 2] == ';');
	}
	return end;
}

/* CSI at s.p (behind "ESC ["). Return: its bytes. */
static size_t scan_csi(struct span s)
{
	size_t n = 0;
	uint8_t prefix = 0, inter = 0;
	unsigned first = 0;

	if (n < s.len && s.p[n] >= '<' && s.p[n] <= '?')
		prefix = s.p[n++];
	for (; n < s.len && s.p[n] >= '0' && s.p[n] <= '9'; n++)
		CHECK((first = first * 10 + (s.p[n] - '0')) <= TERM_FILTER_VALUE_MAX);
	while (n < s.len && s.p[n] >= '0' && s.p[n] <= ';')
		n++;
	if (n < s.len && s.p[n] >= 0x20 && s.p[n] < 0x30)
		inter = s.p[n++];
	CHECK(n < s.len);
	uint8_t final = s.p[n++];
	CHECK(final != 0 && strchr("@ABCDEFGHIJKLMPSTXZ`abcdefghlmnpqrstuxz", final));
	CHECK(!(final == 't' && (prefix || inter || (first != 14 && first != 16 && first != 18))));
	CHECK(!(final == 'J' && (prefix || first > 2)));
	CHECK(!(final == 'c' && (first || (prefix && prefix != '>'))));
	CHECK(!(final == 'q' && inter != ' '));
	CHECK(!(final == 'p' && inter != '$' && inter != '!'));
	CHECK(!((final == 'x' || final == 'z') && inter != '$'));
	CHECK(!((final == 'r' || final == 's' || final == 'S' || final == 'T') && prefix));
	CHECK(!((final == 'h' || final == 'l') && !prefix && first != 4));
	CHECK(!((final == 'h' || final == 'l') && prefix && (first == 2 || first == 3)));
	CHECK(!(prefix && strchr("@ABCDEFGHIJKLMPXZ`abdefgxz", final)));
	return n;
}

static void scan(struct span s)
{
	while (s.len) {
		uint32_t cp = 0;
		size_t n = vis_utf8(s, &cp);

		CHECK(n && !(cp >= 0x7f && cp < 0xa0));
		if (cp == 0x1b) {
			struct span rest = span_of(s.p + 2, s.len - MIN(s.len, 2u));
			CHECK(s.len >= 2);
			uint8_t c = s.p[1];
			n = 2;
			if (c == '[')
				n += scan_csi(rest);
			else if (c == ']')
				n += scan_osc(rest);
			else if (c == '(' || c == ')')
				CHECK(rest.len && (rest.p[0] == 'B' || rest.p[0] == '0') && n++);
			else
				CHECK(c != 0 && strchr("78DEHM=>", c));
		} else if (cp < 0x20) {
			/* CAN stands at the head of the answer to a full reset */
			CHECK((cp >= 7 && cp <= 15) || cp == 0x18);
		}
		s.p += n;
		s.len -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_BUF struct buf whole = { 0 };
	AUTO_BUF struct buf bytes = { 0 };
	AUTO_BUF struct buf cut = { 0 };
	AUTO_BUF struct buf again = { 0 };
	struct term_filter f[4] = { 0 };
	uint8_t seq[TERM_FILTER_RESET_MAX];
	struct wr w = wr_of(seq, sizeof(seq));
	size_t at = size ? data[0] * size / 256 : 0;

	run(&f[0], span_of(data, size), SIZE_MAX, &whole);
	run(&f[1], span_of(data, size), 1, &bytes);
	run(&f[2], span_of(data, at), SIZE_MAX, &cut);
	run(&f[2], span_of(data + at, size - at), SIZE_MAX, &cut);
	struct span out = span_of(whole.p, whole.len);
	CHECK(span_eq(out, span_of(bytes.p, bytes.len)));
	CHECK(span_eq(out, span_of(cut.p, cut.len)));
	CHECK(whole.len <= TERM_FILTER_EXPAND_MAX * size + TERM_FILTER_ROOM_MIN);
	scan(out);

	term_filter_reset_seq(&f[0], &w);
	CHECK(!w.bad);
	scan(span_of(seq, sizeof(seq) - w.left));
	w = wr_of(seq, sizeof(seq));
	term_filter_resume_seq(&f[0], &w);
	CHECK(!w.bad);
	scan(span_of(seq, sizeof(seq) - w.left));

	/*
	 * Left out: the keyboard stack (a second filter lays an entry of its own) and
	 * what a full reset becomes (its CAN is for the terminal only).
	 */
	if (!memchr(whole.p ? whole.p : data, 0x18, whole.len) &&
	    !memchr(whole.p ? whole.p : data, 'u', whole.len)) {
		run(&f[3], out, SIZE_MAX, &again);
		CHECK(span_eq(out, span_of(again.p, again.len)));
	}
	return 0;
}
