/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "config/yamledit.h"

/* "a.b.c" as a path. */
static size_t split(const char *dotted, char *room, const char **path)
{
	size_t n = 0;

	strcpy(room, dotted);
	for (char *p = strtok(room, "."); p; p = strtok(NULL, "."))
		path[n++] = p;
	return n;
}

static void test_set(void **state UNUSED)
{
	static const struct {
		const char *why, *text, *path, *value, *want;
	} t[] = {
		{ "a plain value", "a: 1 # one\nb: 2\n", "a", "3", "a: 3 # one\nb: 2\n" },
		{ "a quoted value", "a: 'x y'\n", "a", "\"z\"", "a: \"z\"\n" },
		{ "a value on two lines", "a: x\n  y\nb: 1\n", "a", "z", "a: z\nb: 1\n" },
		{ "a block of text", "a: |\n  x\n  y\n\n# c\nb: 1\n", "a", "z",
		  "a: z\n\n# c\nb: 1\n" },
		{ "a list in lines", "a:  # why\n  # first\n  - x\n  - y  # last\n# end\nb: 1\n",
		  "a", "[z]", "a: [z]  # why  # last\n# end\nb: 1\n" },
		{ "a list in brackets", "a: [x,\n    y]  # c\nb: 1\n", "a", "[z]",
		  "a: [z]  # c\nb: 1\n" },
		{ "an empty value", "a:\nb: 1\n", "a", "z", "a: z\nb: 1\n" },
		{ "an empty value with a comment", "a:  # c\nb: 1\n", "a", "z",
		  "a: z  # c\nb: 1\n" },
		{ "a null", "a: ~\n", "a", "z", "a: z\n" },
		{ "a new key at the end", "a: 1\n# end\n", "b", "2", "a: 1\nb: 2\n# end\n" },
		{ "without an end of the last line", "a: 1", "b", "2", "a: 1\nb: 2" },
		{ "lines that end as on DOS", "a: 1\r\nc: 3\r\n", "b", "2",
		  "a: 1\r\nc: 3\r\nb: 2\r\n" },
		{ "a new key in a mapping", "m:\n    x: 1  # c\n\nz: 1\n", "m.w", "2",
		  "m:\n    x: 1  # c\n    w: 2\n\nz: 1\n" },
		{ "a new key behind a list", "m:\n  x:\n  - 1\n  - 2\nz: 1\n", "m.w", "3",
		  "m:\n  x:\n  - 1\n  - 2\n  w: 3\nz: 1\n" },
		{ "in braces", "m: {x: 1, y: 2}\n", "m.z", "3", "m: {x: 1, y: 2, z: 3}\n" },
		{ "in empty braces", "m: {}\n", "m.z", "3", "m: {z: 3}\n" },
		{ "in braces, a value", "m: {x: 1, y: 2}\n", "m.x", "[3]", "m: {x: [3], y: 2}\n" },
		{ "mappings that are missing", "a: 1\n", "m.q.o", "2",
		  "a: 1\nm:\n  q:\n    o: 2\n" },
		{ "the same in braces", "{a: 1}\n", "m.q.o", "2", "{a: 1, m: {q: {o: 2}}}\n" },
		{ "below an empty key", "agents:\nb: 1\n", "agents.x.w", "2",
		  "agents:\n  x:\n    w: 2\nb: 1\n" },
		{ "below an empty key, last", "agents:", "agents.x", "2", "agents:\n  x: 2" },
		{ "below a null", "agents: ~\n", "agents.x", "2", "agents: {x: 2}\n" },
		{ "only comments", "# a\n# b", "x.w", "1", "# a\n# b\nx:\n  w: 1\n" },
		{ "nothing", "", "x", "1", "x: 1\n" },
		{ "a byte order mark",
		  "\xef\xbb\xbf"
		  "a: ü\n",
		  "a", "ö",
		  "\xef\xbb\xbf"
		  "a: ö\n" },
		{ "a key that needs quotes", "a: 1\n", "yes", "1", "a: 1\n\"yes\": 1\n" },
		{ "JSON", "{\n  \"a\": [1, 2],\n  \"b\": {}\n}\n", "b.c", "\"x\"",
		  "{\n  \"a\": [1, 2],\n  \"b\": {\"c\": \"x\"}\n}\n" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf out = { 0 };
		char room[64];
		const char *path[YAML_PATH_MAX];
		struct err e = { 0 };
		size_t n = split(t[i].path, room, path);
		int r = yaml_edit_set(&out, span_str(t[i].text), path, n, t[i].value, &e);
		const char *want = t[i].want;
		if (r < 0 || out.len != strlen(want) || memcmp(out.p, want, out.len) != 0)
			fail_msg("%s: %d %s\n%.*s", t[i].why, r, e.text, (int)out.len,
			         out.p ? (char *)out.p : "");
	}
}

static void test_delete(void **state UNUSED)
{
	static const struct {
		const char *why, *text, *path, *want;
		int r;
	} t[] = {
		{ "a line", "a: 1 # c\n# d\nb: 2\n", "a", "# d\nb: 2\n", 1 },
		{ "a block", "a:\n  - x\n  # c\n  - y\nb: 2\n", "a", "b: 2\n", 1 },
		{ "the last line", "a: 1\nb: 2", "b", "a: 1\n", 1 },
		{ "deeper", "m:\n  x: 1\n  y: 2\nz: 3\n", "m.x", "m:\n  y: 2\nz: 3\n", 1 },
		{ "what is empty then", "m:\n  n:\n    x: 1\nz: 3\n", "m.n.x", "z: 3\n", 1 },
		{ "first in braces", "{a: 1, b: 2, c: 3}", "a", "{b: 2, c: 3}", 1 },
		{ "middle in braces", "{a: 1, b: 2, c: 3}", "b", "{a: 1, c: 3}", 1 },
		{ "last in braces", "{a: 1, b: 2, c: 3}", "c", "{a: 1, b: 2}", 1 },
		{ "all there is", "# c\na: 1\n", "a", "# c\n", 1 },
		{ "not there", "a: 1\n", "b", "a: 1\n", 0 },
		{ "not there, deeper", "a: 1\n", "a.b", "a: 1\n", 0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf out = { 0 };
		char room[64];
		const char *path[YAML_PATH_MAX];
		struct err e = { 0 };
		size_t n = split(t[i].path, room, path);
		int r = yaml_edit_delete(&out, span_str(t[i].text), path, n, &e);
		if (r != t[i].r || out.len != strlen(t[i].want) ||
		    memcmp(out.p, t[i].want, out.len) != 0)
			fail_msg("%s: %d %s\n%.*s", t[i].why, r, e.text, (int)out.len,
			         out.p ? (char *)out.p : "");
	}
}

/* What the rules do not understand is refused, never damaged. */
static void test_refused(void **state UNUSED)
{
	static const struct {
		const char *why, *text, *path, *value, *want;
	} t[] = {
		{ "no YAML", "a: [1\n", "b", "1", "text:2:1:" },
		{ "two documents", "a: 1\n---\nb: 1\n", "c", "1", "only one document" },
		{ "not a mapping", "- a\n", "b", "1", "no mapping" },
		{ "a value on the way", "a: 1\n", "a.b", "1", "no mapping" },
		{ "a value of two lines", "a: 1\n", "a", "x\ny", "no single line" },
		{ "a value that is none", "a: 1\n", "a", "", "empty" },
		{ "a value that is more", "a: 1\n", "a", "x # y", NULL },
		{ "an explicit key", "? a\n: 1\n", "a", "2", NULL },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf out = { 0 };
		char room[64];
		const char *path[YAML_PATH_MAX];
		struct err e = { 0 };
		size_t n = split(t[i].path, room, path);
		int r = yaml_edit_set(&out, span_str(t[i].text), path, n, t[i].value, &e);
		if (t[i].want && (r >= 0 || !strstr(e.text, t[i].want) || out.len))
			fail_msg("%s: %d %s", t[i].why, r, e.text);
	}
}

static void test_texts(void **state UNUSED)
{
	static const struct {
		const char *text, *want;
	} t[] = {
		{ "abc", "abc" },
		{ "a.b/c-d_e", "a.b/c-d_e" },
		{ "", "\"\"" },
		{ "yes", "\"yes\"" },
		{ "1", "\"1\"" },
		{ "1.2.3", "1.2.3" },
		{ "a b", "\"a b\"" },
		{ "-p", "\"-p\"" },
		{ "*.x", "\"*.x\"" },
		{ "A_*", "\"A_*\"" },
		{ "a: b", "\"a: b\"" },
		{ "#", "\"#\"" },
		{ "\"\\", "\"\\\"\\\\\"" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };
		assert_int_equal(yaml_put_text(&b, t[i].text), 0);
		if (b.len != strlen(t[i].want) || memcmp(b.p, t[i].want, b.len) != 0)
			fail_msg("%s: %.*s", t[i].text, (int)b.len, (char *)b.p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_delete),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_texts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
