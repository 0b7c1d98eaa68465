/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vterm.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/vis.h"
#include "term/filter.h"

#include <fcntl.h>

#define E "\033"
#define FFFD "\xef\xbf\xbd"

/* Filter @in in pieces of @step bytes, with as little room as is allowed. */
static void run_steps(struct term_filter *f, struct span in, size_t step, struct buf *out)
{
	while (in.len) {
		struct span piece = span_of(in.p, MIN(step, in.len));

		in.p += piece.len;
		in.len -= piece.len;
		while (piece.len) {
			uint8_t room[TERM_FILTER_ROOM_MIN + 7];
			struct wr w = wr_of(room, sizeof(room));
			size_t n = term_filter_run(f, piece, &w);

			assert_true(n > 0 && n <= piece.len);
			assert_int_equal(buf_put(out, room, sizeof(room) - w.left), 0);
			piece.p += n;
			piece.len -= n;
		}
	}
}

static void check(const char *why, const char *in, size_t len, const char *want)
{
	static const size_t steps[] = { 1, 2, 3, 1000000 };

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		AUTO_BUF struct buf out = { 0 };
		AUTO_BUF struct buf a = { 0 };
		struct term_filter f = { 0 };

		run_steps(&f, span_of(in, len), steps[i], &out);
		if (span_eq(span_of(out.p, out.len), span_str(want)))
			continue;
		assert_int_equal(vis_put(&a, span_of(out.p, out.len), 0), 0);
		fail_msg("%s, pieces of %zu: got '%.*s'", why, steps[i], (int)a.len, (char *)a.p);
	}
}

static void check_str(const char *why, const char *in, const char *want)
{
	check(why, in, strlen(in), want);
}

/* --- every row of the table --- */

/* The name of the row, what comes in, what must come out. */
static const struct {
	const char *seq, *in, *out;
} rows[] = {
	{ "ENQ", "\005", "" },
	{ "BEL", "\a", "\a" },
	{ "BS", "\b", "\b" },
	{ "HT", "\t", "\t" },
	{ "LF", "\n", "\n" },
	{ "VT", "\v", "\v" },
	{ "FF", "\f", "\f" },
	{ "CR", "\r", "\r" },
	{ "SO", "\016", "\016" },
	{ "SI", "\017", "\017" },
	{ "ESC 7", E "7", E "7" },
	{ "ESC 8", E "8", E "8" },
	{ "ESC D", E "D", E "D" },
	{ "ESC E", E "E", E "E" },
	{ "ESC H", E "H", E "H" },
	{ "ESC M", E "M", E "M" },
	{ "ESC =", E "=", E "=" },
	{ "ESC >", E ">", E ">" },
	{ "ESC ( B", E "(B", E "(B" },
	{ "ESC ( 0", E "(0", E "(0" },
	{ "ESC ) B", E ")B", E ")B" },
	{ "ESC ) 0", E ")0", E ")0" },
	{ "ESC c", E "c", "\030" E "(B" E "[m" E "[?25h" E "[H" E "[2J" },
	{ "ESC N", E "N", "" },
	{ "ESC O", E "O", "" },
	{ "ESC n", E "n", "" },
	{ "ESC o", E "o", "" },
	{ "ESC Z", E "Z", "" },
	{ "ESC l", E "l", "" },
	{ "ESC # 8", E "#8", "" },
	{ "ESC # 3", E "#3", "" },
	{ "ESC % @", E "%@", "" },
	{ "ESC % G", E "%G", "" },
	{ "ESC SP F", E " F", "" },
	{ "ESC SP G", E " G", "" },
	{ "CSI Ps @", E "[3@", E "[3@" },
	{ "CSI Ps A", E "[A", E "[A" },
	{ "CSI Ps B", E "[02B", E "[2B" },
	{ "CSI Ps C", E "[99999C", E "[32767C" },
	{ "CSI Ps D", E "[1D", E "[1D" },
	{ "CSI Ps E", E "[1E", E "[1E" },
	{ "CSI Ps F", E "[1F", E "[1F" },
	{ "CSI Ps G", E "[1G", E "[1G" },
	{ "CSI Ps ; Ps H", E "[;5H", E "[;5H" },
	{ "CSI Ps I", E "[1I", E "[1I" },
	{ "CSI Ps J", E "[2J" E "[3J", E "[2J" },
	{ "CSI Ps K", E "[1K" E "[4K", E "[1K" },
	{ "CSI Ps L", E "[1L", E "[1L" },
	{ "CSI Ps M", E "[1M", E "[1M" },
	{ "CSI Ps P", E "[1P", E "[1P" },
	{ "CSI Ps S", E "[1S", E "[1S" },
	{ "CSI Ps T", E "[1T" E "[1;2;3;4;5T", E "[1T" },
	{ "CSI Ps X", E "[1X", E "[1X" },
	{ "CSI Ps Z", E "[1Z", E "[1Z" },
	{ "CSI Ps `", E "[7`", E "[7`" },
	{ "CSI Ps a", E "[7a", E "[7a" },
	{ "CSI Ps b", E "[7bx" E "[7b" E "[7bx" E "[4096bx" E "[1;1bx" E "[4097b\xc3\xa9" E "[2b",
	  "x" E "[7bx" E "[4096bxx" E "[4096b\xc3\xa9" },
	{ "CSI Ps c", E "[c" E "[0c" E "[1c", E "[c" E "[0c" },
	{ "CSI > Ps c", E "[>c" E "[>0c", E "[>c" E "[>0c" },
	{ "CSI = Ps c", E "[=c", "" },
	{ "CSI Ps d", E "[7d", E "[7d" },
	{ "CSI Ps e", E "[7e", E "[7e" },
	{ "CSI Ps ; Ps f", E "[7;8f", E "[7;8f" },
	{ "CSI Ps g", E "[g" E "[3g" E "[1g", E "[g" E "[3g" },
	{ "CSI Pm h", E "[2h" E "[4;20h" E "[12h", E "[4h" },
	{ "CSI Pm l", E "[2;4l", E "[4l" },
	{ "CSI ? Pm h", E "[?2h" E "[?3;1049;1001;1006h", E "[?1049h" E "[?1006h" },
	{ "CSI ? Pm l", E "[?2l" E "[?25;7l", E "[?25l" E "[?7l" },
	{ "CSI ? Pm s", E "[?1049s", "" },
	{ "CSI ? Pm r", E "[?1049r", "" },
	{ "CSI Ps i", E "[i" E "[5i", "" },
	{ "CSI ? Ps i", E "[?5i", "" },
	{ "CSI Pm m", E "[1;38;2;1;2;3;4:3;99m" E "[99m", E "[1;38;2;1;2;3;4:3m" },
	{ "CSI > 4 ; Ps m", E "[>4;2m" E "[>1;2m" E "[>4;4m" E "[>4m", E "[>4;2m" E "[>4m" },
	{ "CSI ? 4 m", E "[?4m" E "[?1m", E "[?4m" },
	{ "CSI Ps n", E "[5n" E "[6n" E "[n" E "[7n", E "[5n" E "[6n" },
	{ "CSI ? Ps n", E "[?6n" E "[?996n" E "[?15n" E "[?26n", E "[?6n" E "[?996n" },
	{ "CSI ! p", E "[!p", E "[!p" },
	{ "CSI Ps $ p", E "[4$p", E "[4$p" },
	{ "CSI ? Ps $ p", E "[?2026$p" E "[?$p", E "[?2026$p" },
	{ "CSI Ps ; Ps \" p", E "[62;1\"p", "" },
	{ "CSI > Ps p", E "[>3p", "" },
	{ "CSI Ps SP q", E "[6 q" E "[7 q", E "[6 q" },
	{ "CSI > Ps q", E "[>q" E "[>0q", "" },
	{ "CSI Ps q", E "[1q", "" },
	{ "CSI Ps ; Ps r", E "[2;9r" E "[r", E "[2;9r" E "[r" },
	{ "CSI Ps ; Ps s", E "[s" E "[3;9s", E "[s" E "[3;9s" },
	{ "CSI u", E "[u" E "[1u", E "[u" },
	{ "CSI > Ps u", E "[>1u" E "[>32u" E "[>u", E "[>0u" E "[>1u" E "[>0u" },
	{ "CSI < Ps u", E "[<u" E "[>1u" E "[<9u", E "[>0u" E "[>1u" E "[<1u" E "[=0;1u" },
	{ "CSI = Ps ; Ps u", E "[=5u" E "[=1;4u", E "[>0u" E "[=5;1u" },
	{ "CSI ? u", E "[?u", E "[?u" },
	{ "CSI Ps t",
	  E "[14t" E "[16t" E "[18t" E "[14;2t" E "[20t" E "[21t" E "[22;0t" E "[8;9;9t" E "[t",
	  E "[14t" E "[16t" E "[18t" },
	{ "CSI Pm SP t", E "[1 t", "" },
	{ "CSI > Pm t", E "[>2t", "" },
	{ "CSI Pm $ x", E "[32;1;1;2;2$x" E "[27;1;1;2;2$x" E "[$x", E "[32;1;1;2;2$x" },
	{ "CSI Pm $ z", E "[1;1;2;2$z", E "[1;1;2;2$z" },
	{ "CSI Pm * y", E "[1;1;1;1;9;9*y", "" },
	{ "CSI Ps x", E "[x", "" },
	{ "CSI Ps ; Ps \" v", E "[\"v", "" },
	{ "CSI ? Pm S", E "[?1;1;0S", "" },
	{ "CSI Ps # S", E "[#S", "" },
	{ "CSI Pm # P", E "[#P", "" },
	{ "CSI Pm # Q", E "[#Q", "" },
	{ "CSI Ps ' z", E "[1'z", "" },
	{ "OSC 0", E "]0;x\a" E "]0;x" E "\\", "" },
	{ "OSC 1", E "]1;x\a", "" },
	{ "OSC 2", E "]2;x\a" E "]002;x\a", "" },
	{ "OSC 3", E "]3;x\a", "" },
	{ "OSC 4", E "]4;7;?\a" E "]4;007;?" E "\\" E "]4;256;?\a" E "]4;1;red\a" E "]4;1;?;2;?\a",
	  E "]4;7;?\a" E "]4;7;?" E "\\" },
	{ "OSC 7", E "]7;file:///\a", "" },
	{ "OSC 8", E "]8;id=a.1:x=y;https://example.com/\a",
	  E "]8;id=a.1;https://example.com/" E "\\" },
	{ "OSC 9", E "]9;x\a" E "]9;4;1;50\a", "" },
	{ "OSC 10", E "]10;?\a" E "]10;red\a" E "]10;?;?\a", E "]10;?\a" },
	{ "OSC 11", E "]11;?" E "\\" E "]11;#fff\a", E "]11;?" E "\\" },
	{ "OSC 12", E "]12;?\a", E "]12;?\a" },
	{ "OSC 22", E "]22;hand\a", "" },
	{ "OSC 50", E "]50;?\a", "" },
	{ "OSC 52", E "]52;c;QQ==\a" E "]52;c;?\a" E "]052;c;?\a", "" },
	{ "OSC 99", E "]99;;x\a", "" },
	{ "OSC 104", E "]104\a", "" },
	{ "OSC 133", E "]133;A\a", "" },
	{ "OSC 633", E "]633;A\a", "" },
	{ "OSC 777", E "]777;notify;a;b\a", "" },
	{ "OSC 1337", E "]1337;File=:AA\a", "" },
	{ "DCS", E "P$qm" E "\\" E "P+q544e" E "\\" E "Pq#0" E "\\", "" },
	{ "SOS", E "Xabc" E "\\", "" },
	{ "PM", E "^abc" E "\\", "" },
	{ "APC", E "_Ga=T,t=f;L2V0Yy9wYXNzd2Q=" E "\\", "" },
	{ "ESC k", E "ktitle" E "\\", "" },
};

static void test_rows(void **state UNUSED)
{
	check("NUL", "a\0b", 3, "ab");
	for (size_t i = 0; i < term_filter_n_rules; i++) {
		const struct term_filter_rule *r = &term_filter_rules[i];
		bool found = strcmp(r->seq, "NUL") == 0;

		for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
			if (strcmp(rows[k].seq, r->seq) != 0)
				continue;
			found = true;
			check_str(r->seq, rows[k].in, rows[k].out);
			if (r->verdict == TERM_DROP)
				assert_string_equal(rows[k].out, "");
		}
		if (!found)
			fail_msg("row '%s' has no sample", r->seq);
		/* the verdict shown is the verdict applied, and a key is there once */
		assert_true((r->put == NULL) == (r->verdict == TERM_DROP));
		for (size_t k = 0; k < i; k++) {
			const struct term_filter_rule *q = &term_filter_rules[k];

			assert_false(q->kind == r->kind && q->prefix == r->prefix &&
			             q->inter == r->inter && q->final == r->final &&
			             q->osc == r->osc);
		}
	}
}

static void test_modes(void **state UNUSED)
{
	for (unsigned n = 0; n < 10000; n++) {
		struct term_filter f = { 0 };
		char in[32];
		bool listed = false;
		AUTO_BUF struct buf out = { 0 };

		for (size_t i = 0; i < term_filter_n_modes; i++)
			listed |= term_filter_modes[i].number == n;
		(void)snprintf(in, sizeof(in), E "[?%uh" E "[?%ul", n, n);
		run_steps(&f, span_str(in), 99, &out);
		if (listed != span_eq(span_of(out.p, out.len), span_str(in)))
			fail_msg("mode %u", n);
	}
}

/* --- the stream --- */

static void test_stream(void **state UNUSED)
{
	static const struct {
		const char *why, *in, *out;
	} t[] = {
		{ "plain", "hello\r\n", "hello\r\n" },
		{ "UTF-8 of each length", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		  "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
		{ "private use glyphs of prompts", "\xee\x82\xb0", "\xee\x82\xb0" },
		{ "DEL", "a\177b", "ab" },
		{ "raw C1 CSI",
		  "a\x9b"
		  "31mb",
		  "a" FFFD "31mb" },
		{ "raw C1 OSC",
		  "\x9d"
		  "0;x\x9c",
		  FFFD "0;x" FFFD },
		{ "C1 CSI in UTF-8",
		  "a\xc2\x9b"
		  "31mb",
		  "a31mb" },
		{ "C1 DCS in UTF-8", "\xc2\x90", "" },
		{ "last C1 and the first beyond", "\xc2\x9f\xc2\xa0", "\xc2\xa0" },
		{ "overlong",
		  "\xc0\x9b"
		  "a\xe0\x82\x9b",
		  FFFD FFFD "a" FFFD FFFD FFFD },
		{ "surrogate", "\xed\xa0\x80", FFFD FFFD FFFD },
		{ "beyond Unicode", "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD },
		{ "cut character, then text",
		  "\xe2\x82"
		  "a",
		  FFFD "a" },
		{ "cut character, then a sequence", "\xe2\x82" E "[1m", FFFD E "[1m" },
		{ "cut character, then CAN", "\xf0\x9f\x98\030x", FFFD "x" },
		{ "cut character at the end", "a\xe2\x82", "a" },
		{ "cut sequence at the end", "a" E "[31", "a" },
		{ "cut string at the end", "a" E "]0;x", "a" },
		{ "CAN ends a sequence", E "[31\030m", "m" },
		{ "SUB ends a string", E "]0;x\032m", "m" },
		{ "CAN ends a DCS", E "Pabc\030m", "m" },
		{ "ESC restarts", E "[31" E "[1m", E "[1m" },
		{ "ESC ends a string and starts", E "]0;x" E "[1m", E "[1m" },
		{ "BEL does not end a DCS", E "Pa\abc" E "\\x", "x" },
		{ "C0 acts inside of a sequence", E "[3\r1m", "\r" E "[31m" },
		{ "ENQ inside of a sequence", E "[3\0051m", E "[31m" },
		{ "tmux wrap around OSC 52", E "Ptmux;" E E "]52;c;QQ==\a" E "\\x", "x" },
		{ "screen wrap", E "P" E "]52;c;QQ==\a" E "\\x", "x" },
		{ "8-bit ST does not end our OSC", E "]0;a\x9c" E "[1mb\a", E "[1mb\a" },
		{ "high byte in a CSI", E "[3\xc3\xa9m", "\xc3\xa9m" },
		{ "prefix in the wrong place", E "[1?25h", "" },
		{ "two prefixes", E "[??25h", "" },
		{ "two intermediates", E "[1 !p", "" },
		{ "number behind an intermediate", E "[!1p", "" },
		{ "intermediate with an ESC sequence", E "(!0", "" },
		{ "unlisted CSI", E "[1y" E "[1\\" E "[1~" E "[>1z", "" },
		{ "unlisted charset", E "(A" E "*0" E "-A", "" },
		{ "colon where there is none", E "[1:2H", "" },
		{ "one number too many", E "[1;2;3H", "" },
		{ "private forms of plain ones", E "[?1J" E "[>1H" E "[?1;2H", "" },
		{ "leading zeros", E "[0000000000000000000000031m", E "[31m" },
		{ "OSC without a number", E "];x\a" E "]x\a" E "]\a", "" },
		{ "OSC with a number too long", E "]0000000000052;c;?\a" E "]65588;?\a", "" },
		{ "OSC with a control inside", E "]10;\n?\a", "" },
		{ "title report in every spelling", E "[21t" E "[021t" E "[21;0t" E "[;21t", "" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		check_str(t[i].why, t[i].in, t[i].out);
}

static void test_sgr(void **state UNUSED)
{
	static const struct {
		const char *in, *out;
	} t[] = {
		{ E "[m", E "[m" },
		{ E "[0m", E "[0m" },
		{ E "[;1m", E "[0;1m" },
		{ E "[1;m", E "[1;0m" },
		{ E "[38;5;255m", E "[38;5;255m" },
		{ E "[38;5;256m", "" },
		{ E "[38;5m", "" },
		{ E "[38m", "" },
		{ E "[1;38m", E "[1m" },
		{ E "[38;2;1;2m", "" },
		{ E "[48;2;1;2;3;1m", E "[48;2;1;2;3;1m" },
		{ E "[38:2:1:2:3m", E "[38:2:1:2:3m" },
		{ E "[38:2::1:2:3m", E "[38:2::1:2:3m" },
		{ E "[38:2:0:1:2:3m", E "[38:2:0:1:2:3m" },
		{ E "[58:5:7;4:3m", E "[58:5:7;4:3m" },
		{ E "[4:6m", "" },
		{ E "[4:3:1m", "" },
		{ E "[38:5:256;1m", E "[1m" },
		{ E "[38;2:1:2:3m", "" },
		{ E "[1:2m", "" },
		{ E "[1;48:5:9;58;4:3m", E "[1;48:5:9m" },
		{ E "[38;5;1:2;4m", "" },
		{ E "[38;5;256;4m", E "[4m" },
		{ E "[107;108;100m", E "[107;100m" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		check_str(t[i].in + 1, t[i].in, t[i].out);
}

static void test_links(void **state UNUSED)
{
#define OPEN E "]8;;https://a" E "\\"
#define CLOSE E "]8;;" E "\\"
	static const struct {
		const char *why, *in, *out;
	} t[] = {
		{ "plain", E "]8;;https://a" E "\\x" E "]8;;" E "\\", OPEN "x" CLOSE },
		{ "closing nothing", E "]8;;\a", "" },
		{ "http", E "]8;;http://a\a", E "]8;;http://a" E "\\" },
		{ "scheme in capitals", E "]8;;HTTPS://a\a", E "]8;;HTTPS://a" E "\\" },
		{ "file", E "]8;;file:///etc/passwd\a", "" },
		{ "file ends the one before", E "]8;;https://a\a" E "]8;;file:///\a", OPEN CLOSE },
		{ "javascript", E "]8;;javascript:alert(1)\a", "" },
		{ "no host", E "]8;;https://\a" E "]8;;https:///x\a", "" },
		{ "blank", E "]8;;https://a b\a", "" },
		{ "not ASCII", E "]8;;https://a\xc3\xa9\a", "" },
		{ "control", E "]8;;https://a\rb\a", "" },
		{ "user", E "]8;;https://bank.example@evil.example/\a", "" },
		{ "@ in the path", E "]8;;https://a/@b\a", E "]8;;https://a/@b" E "\\" },
		{ "semicolon in the address", E "]8;;https://a/;b\a", E "]8;;https://a/;b" E "\\" },
		{ "id with a blank", E "]8;id=a b;https://a\a", OPEN },
		{ "empty id", E "]8;id=;https://a\a", OPEN },
		{ "id behind others", E "]8;x=1:id=b;https://a\a", E "]8;id=b;https://a" E "\\" },
		{ "no second semicolon", E "]8;https://a\a", "" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		check_str(t[i].why, t[i].in, t[i].out);
#undef OPEN
#undef CLOSE
}

/* --- limits: the limit, one below, one above --- */

static void check_repeat(const char *why, const char *head, char fill, size_t n, const char *tail,
                         bool pass)
{
	AUTO_BUF struct buf in = { 0 };
	AUTO_BUF struct buf out = { 0 };
	struct term_filter f = { 0 };

	assert_int_equal(buf_put(&in, head, strlen(head)), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(buf_put(&in, &fill, 1), 0);
	assert_int_equal(buf_put(&in, tail, strlen(tail)), 0);
	run_steps(&f, span_of(in.p, in.len), in.len, &out);
	if ((out.len > 0) != pass)
		fail_msg("%s with %zu: %zu bytes came out", why, n, out.len);
	out.len = 0;
	run_steps(&f, span_str("x"), 1, &out);
	assert_int_equal(out.len, 1); /* and the stream goes on */
}

static void test_limits(void **state UNUSED)
{
	const size_t url = TERM_FILTER_URL_MAX - strlen("https://");
	static const char tail[] = E "\\";

	/* n semicolons are n + 1 numbers */
	for (int d = -1; d <= 1; d++)
		check_repeat("numbers", E "[1", ';', (size_t)(TERM_FILTER_NUMBERS_MAX - 1 + d), "m",
		             d <= 0);
	for (int d = -1; d <= 1; d++)
		check_repeat("address", E "]8;;https://", 'a', url + (size_t)d, tail, d <= 0);
	check_repeat("OSC far beyond its room", E "]8;;https://", 'a', 100000, tail, false);
	check_repeat("OSC query behind too much", E "]10;", '?', 100000, tail, false);
	check_repeat("DCS without end, then one", E "P", 'a', 100000, tail, false);
	check_repeat("intermediates", E, ' ', 1000, "F", false);

	/* id: the limit and one more, which only loses the id */
	for (int d = 0; d <= 1; d++) {
		char in[256], id[128] = "";

		memset(id, 'i', (size_t)(TERM_FILTER_ID_MAX + d));
		(void)snprintf(in, sizeof(in), E "]8;id=%s;https://a" E "\\", id);
		check_str("id", in, d == 0 ? in : E "]8;;https://a" E "\\");
	}
	/* an overlong link ends the one before */
	AUTO_BUF struct buf in = { 0 };
	AUTO_BUF struct buf out = { 0 };
	struct term_filter f = { 0 };
	assert_int_equal(buf_printf(&in, E "]8;;https://a\ax" E "]8;;https://%05000d\ay", 1), 0);
	run_steps(&f, span_of(in.p, in.len), 77, &out);
	assert_int_equal(buf_put(&out, "", 1), 0);
	assert_string_equal((char *)out.p, E "]8;;https://a" E "\\x" E "]8;;" E "\\y");
	/* the kitty stack: pushes beyond the limit are not sent, the end pops what was */
	struct term_filter k = { 0 };
	out.len = 0;
	for (int i = 0; i < TERM_FILTER_KEYS_MAX + 3; i++)
		run_steps(&k, span_str(E "[>1u"), 9, &out);
	assert_int_equal(out.len, 5 * (1 + TERM_FILTER_KEYS_MAX));
}

/* --- the end of a session --- */

static const char *reset_of(const char *in)
{
	static char text[TERM_FILTER_RESET_MAX + 1];
	struct term_filter f = { 0 };
	AUTO_BUF struct buf out = { 0 };
	struct wr w = wr_of(text, TERM_FILTER_RESET_MAX);

	run_steps(&f, span_str(in), 3, &out);
	term_filter_reset_seq(&f, &w);
	assert_false(w.bad);
	text[TERM_FILTER_RESET_MAX - w.left] = '\0';
	return text;
}

static void test_reset(void **state UNUSED)
{
#define REST E "(B" E "[m" E "[?25h"
	static const struct {
		const char *in, *out;
	} t[] = {
		{ "", "\030" REST },
		{ E "[?1000;1006h", "\030" E "[?1000l" E "[?1006l" REST },
		{ E "[?1000h" E "[?1000l", "\030" REST },
		{ E "[?7l", "\030" E "[?7h" REST },
		{ E "[?25l", "\030" E "[?25h" REST },
		{ E "[?2004h" E "[?1049h", "\030" E "[?1049l" E "[?2004l" REST },
		{ E "[>4;2m", "\030" E "[>4m" REST },
		{ E "[2;5r", "\030" E "7" E "[r" E "8" REST },
		{ E "[2;5r" E "[r", "\030" REST },
		{ E "[?6h" E "[2;5r", "\030" E "[?6l" E "[r" E "[9999H" REST },
		{ E ")0\016", "\030" E ")B\017" REST },
		{ E "=", "\030" E ">" REST },
		{ E "[4h", "\030" E "[4l" REST },
		{ E "[2 q", "\030" E "[0 q" REST },
		{ E "]8;;http://a\a", "\030" E "]8;;" E "\\" REST },
		{ E "[>1u" E "[>3u", "\030" E "[<3u" REST },
		{ E "[=1u", "\030" E "[<1u" REST },
		/* each screen has its own stack */
		{ E "[>1u" E "[?1049h" E "[>3u", "\030" E "[<2u" E "[?1049l" E "[<2u" REST },
		{ E "[?1049h" E "[>3u" E "[?1049l", "\030" REST },
		/* what the guest sent and was dropped leaves nothing to undo */
		{ E "[?3h" E "[20h" E "]0;x\a", "\030" REST },
		{ E "[?1049;1000h" E "c", "\030" REST },
	};
#undef REST
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_string_equal(reset_of(t[i].in), t[i].out);

	/* everything at once fits, also over a state that makes no sense (a signal in between) */
	struct term_filter f;
	uint8_t room[TERM_FILTER_RESET_MAX];
	struct wr w = wr_of(room, sizeof(room));
	memset(&f, 0xff, offsetof(struct term_filter, region));
	f.region = f.charset = f.shifted = f.keypad = f.insert = f.link = f.cursor_style = true;
	f.keys_base[0] = f.keys_base[1] = true; /* a bool of 0xff is undefined */
	term_filter_reset_seq(&f, &w);
	assert_false(w.bad);
	w = wr_of(room, sizeof(room));
	term_filter_resume_seq(&f, &w);
	assert_false(w.bad);
}

static void test_resume(void **state UNUSED)
{
	struct term_filter f = { 0 };
	AUTO_BUF struct buf out = { 0 };
	uint8_t room[TERM_FILTER_RESET_MAX];
	struct wr w = wr_of(room, sizeof(room));

	run_steps(&f,
	          span_str(E "[?1049h" E "[>1u" E "[=4;2u" E "[?1002;2004h" E "[?25l" E "[>4;1m"),
	          99, &out);
	term_filter_resume_seq(&f, &w);
	static const char want[] =
		E "[?1049h" E "[>0u" E "[>5u" E "[>4;1m" E "[?25l" E "[?1002h" E "[?2004h";
	assert_true(span_eq(span_of(room, sizeof(room) - w.left), span_str(want)));
}

static void test_may_answer(void **state UNUSED)
{
	static const struct {
		const char *in;
		bool want;
	} t[] = {
		{ "text" E "[1m" E "[?1049h", false },
		{ E "[6n", true },
		{ E "]11;?\a", true },
		{ E "[?2026$p", true },
		{ E "[?1003h", true },
		{ E "[?1003h" E "[?1003l", false },
		{ E "[21t", false },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct term_filter f = { 0 };
		AUTO_BUF struct buf out = { 0 };

		run_steps(&f, span_str(t[i].in), 2, &out);
		assert_int_equal(term_filter_may_answer(&f), t[i].want);
	}
}

/* --- a terminal as oracle: libvterm --- */

enum { ROWS = 24, COLS = 80 };

struct oracle {
	VTerm *vt;
	int titles, strings;
	char answer[4096];
	size_t answer_len;
};

static int on_prop(VTermProp prop, VTermValue *val UNUSED, void *user)
{
	struct oracle *o = user;

	o->titles += prop == VTERM_PROP_TITLE || prop == VTERM_PROP_ICONNAME;
	return 1;
}

/* what libvterm itself does not know reaches these; queries and links may */
static bool osc_is_ours(long number)
{
	return number == 4 || number == 8 || (number >= 10 && number <= 12);
}

#if VTERM_VERSION_MINOR >= 2
static int on_osc(int number, VTermStringFragment frag UNUSED, void *user)
{
	((struct oracle *)user)->strings += !osc_is_ours(number);
	return 1;
}

static int on_dcs(const char *s UNUSED, size_t n UNUSED, VTermStringFragment frag UNUSED,
                  void *user)
{
	((struct oracle *)user)->strings++;
	return 1;
}

static int on_other(VTermStringFragment frag UNUSED, void *user)
{
	((struct oracle *)user)->strings++;
	return 1;
}

static int on_clip(VTermSelectionMask mask UNUSED, VTermStringFragment frag UNUSED, void *user)
{
	((struct oracle *)user)->strings++;
	return 1;
}

static int on_clip_query(VTermSelectionMask mask UNUSED, void *user)
{
	((struct oracle *)user)->strings++;
	return 1;
}

static const VTermStateFallbacks fallbacks = {
	.osc = on_osc, .dcs = on_dcs, .apc = on_other, .pm = on_other, .sos = on_other
};
#else
static int on_osc(const char *s, size_t n, void *user)
{
	char text[16] = "";

	memcpy(text, s, MIN(n, sizeof(text) - 1));
	((struct oracle *)user)->strings += !osc_is_ours(strtol(text, NULL, 10));
	return 1;
}

static int on_dcs(const char *s UNUSED, size_t n UNUSED, void *user)
{
	((struct oracle *)user)->strings++;
	return 1;
}

static const VTermParserCallbacks fallbacks = { .osc = on_osc, .dcs = on_dcs };
#endif

static void on_answer(const char *s, size_t n, void *user)
{
	struct oracle *o = user;

	n = MIN(n, sizeof(o->answer) - o->answer_len);
	memcpy(o->answer + o->answer_len, s, n);
	o->answer_len += n;
}

static void oracle_open(struct oracle *o)
{
	static const VTermScreenCallbacks screen = { .settermprop = on_prop };
	*o = (struct oracle){ .vt = vterm_new(ROWS, COLS) };
	vterm_set_utf8(o->vt, 1);
	vterm_output_set_callback(o->vt, on_answer, o);
	vterm_screen_enable_altscreen(vterm_obtain_screen(o->vt), 1);
	vterm_screen_reset(vterm_obtain_screen(o->vt), 1);
	vterm_screen_set_callbacks(vterm_obtain_screen(o->vt), &screen, o);
#if VTERM_VERSION_MINOR >= 2
	static const VTermSelectionCallbacks clip = { .set = on_clip, .query = on_clip_query };
	static char clip_room[64];
	vterm_state_set_selection_callbacks(vterm_obtain_state(o->vt), &clip, o, clip_room,
	                                    sizeof(clip_room));
#endif
	vterm_screen_set_unrecognised_fallbacks(vterm_obtain_screen(o->vt), &fallbacks, o);
}

static bool same_colour(const VTermColor *a, const VTermColor *b)
{
	return vterm_color_is_equal(a, b);
}

/* The two screens are equal: characters, attributes, colours, cursor. */
static bool same_screen(const struct oracle *a, const struct oracle *b, char *why, size_t cap)
{
	VTermPos ca, cb;

	vterm_state_get_cursorpos(vterm_obtain_state(a->vt), &ca);
	vterm_state_get_cursorpos(vterm_obtain_state(b->vt), &cb);
	if (ca.row != cb.row || ca.col != cb.col) {
		(void)snprintf(why, cap, "cursor %d,%d and %d,%d", ca.row, ca.col, cb.row, cb.col);
		return false;
	}
	for (VTermPos at = { 0 }; at.row < ROWS; at.row++) {
		for (at.col = 0; at.col < COLS; at.col++) {
			VTermScreenCell x = { 0 }, y = { 0 }; /* filled only up to the last one */

			(void)vterm_screen_get_cell(vterm_obtain_screen(a->vt), at, &x);
			(void)vterm_screen_get_cell(vterm_obtain_screen(b->vt), at, &y);
			if (memcmp(x.chars, y.chars, sizeof(x.chars)) != 0 || x.width != y.width ||
			    !same_colour(&x.fg, &y.fg) || !same_colour(&x.bg, &y.bg) ||
			    x.attrs.bold != y.attrs.bold || x.attrs.reverse != y.attrs.reverse ||
			    x.attrs.underline != y.attrs.underline ||
			    x.attrs.italic != y.attrs.italic || x.attrs.strike != y.attrs.strike) {
				(void)snprintf(why, cap, "cell %d,%d: U+%04x and U+%04x", at.row,
				               at.col, x.chars[0], y.chars[0]);
				return false;
			}
		}
	}
	return true;
}

/* @in as it is against @in filtered; hostile input only has to do nothing outside the screen. */
static void oracle_check(struct span in, bool same)
{
	struct oracle raw, cooked;
	struct term_filter f = { 0 };
	AUTO_BUF struct buf out = { 0 };
	AUTO_BUF struct buf shown = { 0 };
	char why[128] = "";

	oracle_open(&raw);
	oracle_open(&cooked);
	run_steps(&f, in, 11, &out);
	assert_int_equal(vis_put(&shown, span_of(in.p, MIN(in.len, 300u)), 0), 0);
	if (same) /* of hostile input only what comes out of the filter counts */
		(void)vterm_input_write(raw.vt, (const char *)in.p, in.len);
	(void)vterm_input_write(cooked.vt, (const char *)out.p, out.len);
	if (same && !same_screen(&raw, &cooked, why, sizeof(why)))
		fail_msg("%s: %.*s", why, (int)shown.len, (char *)shown.p);
	if (same && (raw.answer_len != cooked.answer_len ||
	             memcmp(raw.answer, cooked.answer, raw.answer_len) != 0))
		fail_msg("answers differ: %.*s", (int)shown.len, (char *)shown.p);
	if (cooked.titles || cooked.strings)
		fail_msg("%d titles, %d strings: %.*s", cooked.titles, cooked.strings,
		         (int)shown.len, (char *)shown.p);
	/* all that may be answered is numbers, colours and mode reports: never words */
	for (size_t i = 0; i < cooked.answer_len; i++) {
		uint8_t c = (uint8_t)cooked.answer[i];

		assert_true(c == 0x1b || (c >= 0x20 && c < 0x7f));
	}
	vterm_free(raw.vt);
	vterm_free(cooked.vt);
}

static uint32_t rand_state = 1;

static unsigned rnd(unsigned n)
{
	rand_state = rand_state * 1664525u + 1013904223u;
	return (rand_state >> 8) % n;
}

static void test_oracle_allowed(void **state UNUSED)
{
	static const char *const t[] = {
		"plain\r\ntext\twith\btabs",
		E "[2J" E "[5;10Hhere" E "[1;31mred" E "[0m" E "[3A" E "[2Cx" E "[K",
		E "[38;2;10;20;30mcolour" E "[48;5;200mback" E "[m" E "[38:2::1:2:3mcolon",
		E "[?1049h" E "[Halt" E "[?1049lback",
		"a\r\nb\r\nc\r\n" E "[2;3r" E "[3;1H\n\n" E "[r",
		E "[5;5Habcdef" E "[5;5H" E "[2@" E "[1P" E "[1L" E "[M" E "[3X",
		E "(0lqqk" E "(B" E ")0\016x\017y",
		E "[3g" E "[10G" E "H\r\tx" E "[2Zy",
		E "7" E "[10;10Hx" E "8y" E "[sz" E "[Hq" E "[uw",
		E "[?6h" E "[3;9r" E "[Hx" E "[?6l" E "[r",
		E "[?7l"
		  "0123456789012345678901234567890123456789012345678901234567890123456789"
		  "01234567890123456789" E "[?7h",
		E "[4hinsert" E "[Hxx" E "[4l",
		"x" E "[5b" E "[4;4f" E "[2d" E "[3`" E "[1a" E "[1e" E "[2E" E "[1Fz",
		E "[10;1Habc" E "M" E "Dd" E "Ee" E "[2S" E "[1T",
		"\xe4\xb8\xad\xe6\x96\x87 wide \xf0\x9f\x98\x80 e\xcc\x81",
		"\xff\xc3(\xe2\x82", /* both show a replacement each; see below for the cut end */
		E "[c" E "[5n" E "[6n" E "[?6n" E "[?25$p",
		E "[1;4;9;7mall" E "[22;24;29;27mnone" E "[3mi" E "[4:3mcurl",
		E "[31\r\n;1mC0 inside",
		E "[!p",
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (strcmp(t[i], "\xff\xc3(\xe2\x82") == 0)
			continue; /* how many marks an ill-formed run gets is the terminal's choice */
		oracle_check(span_str(t[i]), true);
	}
	/* and mixed at random: whole strings of the list one behind the other */
	for (int round = 0; round < 300; round++) {
		AUTO_BUF struct buf in = { 0 };

		for (unsigned n = 1 + rnd(12); n > 0; n--) {
			const char *s = t[rnd(ARRAY_LEN(t))];
			if ((uint8_t)s[0] != 0xff)
				assert_int_equal(buf_put(&in, s, strlen(s)), 0);
		}
		if (in.len)
			oracle_check(span_of(in.p, in.len), true);
	}
}

static void test_oracle_hostile(void **state UNUSED)
{
	static const char *const t[] = {
		E "]0;title\a",
		E "]2;title" E "\\",
		"\x9d"
		"2;title\x9c",
		"\xc2\x9d"
		"2;title\xc2\x9c",
		E "]52;c;aGk=\a",
		E "]52;c;?\a",
		E "P$qm" E "\\",
		E "P+q544e" E "\\",
		E "_Gx" E "\\",
		E "^x" E "\\",
		E "Xx" E "\\",
		E "[21t",
		E "[8;10;10t",
		E "P" E "P" E "]52;c;aGk=\a",
		"\x90$qm\x9c",
		"\xc2\x90$qm\xc2\x9c",
		E E "]2;x\a",
		E "[" E "]2;x\a",
		E "]8;;" E "]2;x\a",
		"\xe2" E "]2;x\a",
		E "]10;?" E "]2;x\a",
		"\030" E "]2;x\a",
		E "\177]2;x\a",
		E "]\0302;x\a",
		E "\r]2;x\a",
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		oracle_check(span_str(t[i]), false);
	/* pieces of them cut anywhere, with noise between */
	for (int round = 0; round < 3000; round++) {
		AUTO_BUF struct buf in = { 0 };

		for (unsigned n = 1 + rnd(6); n > 0; n--) {
			const char *s = t[rnd(ARRAY_LEN(t))];
			size_t at = rnd((unsigned)strlen(s));
			uint8_t noise = (uint8_t)rnd(256);

			assert_int_equal(buf_put(&in, s + at, 1 + rnd((unsigned)(strlen(s) - at))),
			                 0);
			if (rnd(2))
				assert_int_equal(buf_put(&in, &noise, 1), 0);
		}
		oracle_check(span_of(in.p, in.len), false);
	}
}

/* After anything and the reset sequence a terminal prints a line as a fresh one does. */
static void test_oracle_reset(void **state UNUSED)
{
	for (int round = 0; round < 500; round++) {
		struct oracle used, fresh;
		struct term_filter f = { 0 };
		AUTO_BUF struct buf out = { 0 };
		uint8_t room[TERM_FILTER_RESET_MAX];
		struct wr w = wr_of(room, sizeof(room));
		static const char probe[] = E "[H" E "[2Jprompt$ lqk \r\nnext";
		char why[128] = "";

		for (unsigned n = 1 + rnd(20); n > 0; n--) {
			const char *s = rows[rnd(ARRAY_LEN(rows))].in;
			run_steps(&f, span_of(s, 1 + rnd((unsigned)strlen(s))), 5, &out);
		}
		term_filter_reset_seq(&f, &w);
		oracle_open(&used);
		oracle_open(&fresh);
		(void)vterm_input_write(used.vt, (char *)out.p, out.len);
		(void)vterm_input_write(used.vt, (char *)room, sizeof(room) - w.left);
		(void)vterm_input_write(used.vt, probe, strlen(probe));
		(void)vterm_input_write(fresh.vt, probe, strlen(probe));
		if (!same_screen(&used, &fresh, why, sizeof(why))) {
			AUTO_BUF struct buf shown = { 0 };
			assert_int_equal(vis_put(&shown, span_of(out.p, out.len), 0), 0);
			fail_msg("%s after '%.*s'", why, (int)shown.len, (char *)shown.p);
		}
		vterm_free(used.vt);
		vterm_free(fresh.vt);
	}
}

/* --- docs/terminal.md says what the code does --- */

static void put_row(struct buf *b, const char *seq, const char *name, const char *verdict,
                    const char *note)
{
	assert_int_equal(buf_printf(b, "| `%s%s%s` | %s | %s |%s%s |\n",
	                            strchr(seq, '`') ? "` " : "", seq, strchr(seq, '`') ? " `" : "",
	                            name, verdict, *note ? " " : "", note),
	                 0);
}

static void put_tables(struct buf *b)
{
	static const char *const verdict[] = { "passes", "changed", "dropped" };

	assert_int_equal(buf_printf(b, "| sequence | name | verdict | what and why |\n"
	                               "|---|---|---|---|\n"),
	                 0);
	for (size_t i = 0; i < term_filter_n_rules; i++) {
		const struct term_filter_rule *r = &term_filter_rules[i];

		put_row(b, r->seq, r->name, verdict[r->verdict], r->note);
	}
	assert_int_equal(buf_printf(b, "\n| mode | name | at the end |\n|---|---|---|\n"), 0);
	for (size_t i = 0; i < term_filter_n_modes; i++) {
		const struct term_filter_mode *m = &term_filter_modes[i];

		assert_int_equal(buf_printf(b, "| %u | %s | %s |\n", m->number, m->name,
		                            m->momentary ? "-"
		                            : m->rest    ? "on"
		                                         : "off"),
		                 0);
	}
}

static void test_docs(void **state UNUSED)
{
	AUTO_CLOSE int fd = open(DOCS_DIR "/terminal.md", O_RDONLY | O_CLOEXEC);
	AUTO_BUF struct buf want = { 0 };
	AUTO_FREE char *text = NULL;
	size_t len = 0;

	assert_true(fd >= 0);
	assert_int_equal(fd_read_file(fd, 1 << 20, &text, &len), 0);
	put_tables(&want);
	assert_int_equal(buf_put(&want, "", 1), 0);
	if (!strstr(text, (char *)want.p))
		fail_msg("docs/terminal.md differs from the table; print it with: test_term_filter "
		         "table");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),           cmocka_unit_test(test_modes),
		cmocka_unit_test(test_stream),         cmocka_unit_test(test_sgr),
		cmocka_unit_test(test_links),          cmocka_unit_test(test_limits),
		cmocka_unit_test(test_reset),          cmocka_unit_test(test_resume),
		cmocka_unit_test(test_may_answer),     cmocka_unit_test(test_oracle_allowed),
		cmocka_unit_test(test_oracle_hostile), cmocka_unit_test(test_oracle_reset),
		cmocka_unit_test(test_docs),
	};
	if (argc == 2 && strcmp(argv[1], "table") == 0) {
		AUTO_BUF struct buf b = { 0 };

		put_tables(&b);
		return fwrite(b.p, 1, b.len, stdout) == b.len ? 0 : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
