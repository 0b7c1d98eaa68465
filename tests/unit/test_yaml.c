/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/err.h"
#include "base/near.h"
#include "config/yamlread.h"

static struct ynode *parse(const char *text)
{
	struct ynode *t = NULL;
	struct err e = { 0 };

	if (ynode_parse(&t, "f.yaml", text, strlen(text), &e) < 0)
		fail_msg("%s: %s", text, e.text);
	return t;
}

/* The bytes of a value, and of its key. */
static void assert_bytes(const char *text, const struct ynode *n, const char *want_key,
                         const char *want)
{
	if (want_key && (n->key_end - n->key_begin != strlen(want_key) ||
	                 memcmp(text + n->key_begin, want_key, strlen(want_key)) != 0))
		fail_msg("key '%s', not '%.*s'", want_key, (int)(n->key_end - n->key_begin),
		         text + n->key_begin);
	if (n->end - n->begin != strlen(want) || memcmp(text + n->begin, want, strlen(want)) != 0)
		fail_msg("'%s', not '%.*s'", want, (int)(n->end - n->begin), text + n->begin);
}

static void test_places(void **state UNUSED)
{
	const char *text = "# käse\n"
			   "naïve: plain text # comment\n"
			   "'b c':\n"
			   "  - x\n"
			   "  - {k: [1, 2], \"l\": ''}  # more\n"
			   "\n"
			   "# end of b\n"
			   "t: |\n"
			   "  one\n"
			   "  two\n"
			   "\n"
			   "empty:\n"
			   "last: 'ü'";
	struct ynode *t = parse(text);

	assert_bytes(text, ynode_get(t, "naïve"), "naïve", "plain text");
	assert_int_equal(ynode_get(t, "naïve")->at.line, 2);
	assert_int_equal(ynode_get(t, "naïve")->at.column, 8); /* characters */
	const struct ynode *b = ynode_get(t, "b c");
	assert_bytes(text, b, "'b c'", "- x\n  - {k: [1, 2], \"l\": ''}");
	assert_int_equal(b->n, 2);
	assert_false(b->flow);
	const struct ynode *m = b->child->next;
	assert_bytes(text, m, NULL, "{k: [1, 2], \"l\": ''}");
	assert_true(m->flow);
	assert_bytes(text, ynode_get(m, "k"), "k", "[1, 2]");
	assert_bytes(text, ynode_get(m, "l"), "\"l\"", "''");
	assert_bytes(text, ynode_get(t, "t"), "t", "|\n  one\n  two");
	assert_string_equal(ynode_get(t, "t")->text, "one\ntwo\n");
	assert_bytes(text, ynode_get(t, "empty"), "empty", "");
	assert_int_equal(ynode_get(t, "empty")->kind, YNODE_NULL);
	assert_bytes(text, ynode_get(t, "last"), "last", "'ü'");
	ynode_free(t);
}

static void test_types(void **state UNUSED)
{
	static const struct {
		const char *text;
		enum ynode_type want;
	} t[] = {
		{ "true", YNODE_BOOL },
		{ "True", YNODE_AMBIGUOUS },
		{ "yes", YNODE_AMBIGUOUS },
		{ "No", YNODE_AMBIGUOUS },
		{ "'no'", YNODE_STRING },
		{ "\"true\"", YNODE_STRING },
		{ "0", YNODE_NUMBER },
		{ "-1.5e3", YNODE_NUMBER },
		{ "12345678901234567890", YNODE_NUMBER },
		{ "007", YNODE_AMBIGUOUS },
		{ "+1", YNODE_AMBIGUOUS },
		{ ".5", YNODE_AMBIGUOUS },
		{ "1_000", YNODE_AMBIGUOUS },
		{ "0x1f", YNODE_AMBIGUOUS },
		{ "0o17", YNODE_AMBIGUOUS },
		{ "1:20", YNODE_AMBIGUOUS },
		{ "2024-01-02", YNODE_AMBIGUOUS },
		{ ".inf", YNODE_AMBIGUOUS },
		{ "-.INF", YNODE_AMBIGUOUS },
		{ "2.1", YNODE_NUMBER },
		{ "2.1.332", YNODE_STRING },
		{ "0.171.0-linux-x64", YNODE_STRING },
		{ "4g", YNODE_STRING },
		{ "a.b", YNODE_STRING },
		{ "-p", YNODE_STRING },
		{ "/bin/bash", YNODE_STRING },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct ynode *n = parse(t[i].text);
		if (ynode_type(n) != t[i].want)
			fail_msg("%s: %d", t[i].text, (int)ynode_type(n));
		ynode_free(n);
	}
}

static void test_merge(void **state UNUSED)
{
	struct ynode *a = parse("k: 1\nm: {x: 1, y: [1, 2]}\nl: [a]\n");
	struct ynode *b = parse("m: {y: [3], z: {q: w}}\nl: {a: b}\nnew: ~\n");
	AUTO_BUF struct buf out = { 0 };

	ynode_set_source(a, 1);
	ynode_set_source(b, 2);
	struct ynode *m = ynode_merge(a, b);
	ynode_free(a);
	ynode_free(b);
	assert_int_equal(ynode_json(&out, m, -1), 0);
	assert_int_equal(buf_put(&out, "", 1), 0);
	assert_string_equal((char *)out.p, "{\"k\":1,\"m\":{\"x\":1,\"y\":[3],\"z\":{\"q\":\"w\"}},"
	                                   "\"l\":{\"a\":\"b\"},\"new\":null}");
	assert_int_equal(ynode_get(m, "k")->source, 1);
	assert_int_equal(ynode_get(ynode_get(m, "m"), "x")->source, 1);
	assert_int_equal(ynode_get(ynode_get(m, "m"), "y")->source, 2);
	assert_int_equal(ynode_get(m, "new")->source, 2);
	ynode_free(m);
	assert_null(ynode_merge(NULL, NULL));
}

static void test_json_text(void **state UNUSED)
{
	AUTO_BUF struct buf b = { 0 };

	assert_int_equal(ynode_json_text(&b, "a\"\\\n\x1b\x7f\xc2\x85ü\xff"), 0);
	assert_int_equal(buf_put(&b, "", 1), 0);
	assert_string_equal((char *)b.p, "\"a\\\"\\\\\\u000a\\u001b\\u007f\\u0085ü\\ufffd\"");
}

static char *nested(unsigned depth)
{
	char *s = xcalloc(2 * depth + 1, 1);

	memset(s, '[', depth);
	memset(s + depth, ']', depth);
	return s;
}

static void test_limits(void **state UNUSED)
{
	struct ynode *t;
	struct err e = { 0 };

	for (unsigned d = YNODE_DEPTH_MAX - 1; d <= YNODE_DEPTH_MAX + 1; d++) {
		AUTO_FREE char *s = nested(d);
		t = NULL;
		int r = ynode_parse(&t, "f", s, strlen(s), &e);
		if ((r < 0) != (d > YNODE_DEPTH_MAX))
			fail_msg("depth %u: %d", d, r);
		ynode_free(t);
	}
	for (unsigned map = 0; map < 2; map++) {
		unsigned max = map ? YNODE_WIDTH_MAX : YNODE_LIST_MAX;
		for (unsigned w = max - 1; w <= max + 1; w++) {
			AUTO_BUF struct buf b = { 0 };
			for (unsigned i = 0; i < w; i++)
				assert_int_equal(map ? buf_printf(&b, "k%u: x\n", i)
				                     : buf_printf(&b, "- x\n"),
				                 0);
			t = NULL;
			int r = ynode_parse(&t, "f", b.p, b.len, &e);
			if ((r < 0) != (w > max))
				fail_msg("width %u: %d", w, r);
			ynode_free(t);
		}
	}
}

static void test_refused(void **state UNUSED)
{
	static const struct {
		const char *why, *text, *want;
	} t[] = {
		{ "duplicate", "a: 1\nb: 2\na: 3\n", "f:3:1: this key stands twice" },
		{ "duplicate below", "x:\n  a: 1\n  'a': 2\n", "f:3:3: this key stands twice" },
		{ "alias", "a: &q 1\n", "f:1:4: anchors and tags are not allowed" },
		{ "merge key", "<<: {}\n", "f:1:1: merge keys" },
		{ "list as key", "? [a]\n: b\n", "f:1:3: a key is expected here" },
		{ "second document", "a: 1\n---\nb: 1\n", "only one document" },
		{ "not closed", "a: [1\n", "f:2:1:" },
		{ "not UTF-8", "a: \xff\n", "f:" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct ynode *n = NULL;
		struct err e = { 0 };
		int r = ynode_parse(&n, "f", t[i].text, strlen(t[i].text), &e);
		if (r >= 0 || n || !strstr(e.text, t[i].want))
			fail_msg("%s: %d '%s'", t[i].why, r, e.text);
	}
	struct ynode *n = NULL;
	assert_int_equal(ynode_parse(&n, "f", "# only\n---\n~\n", 13, NULL), 0);
	assert_null(n);
}

static void test_near(void **state UNUSED)
{
	static const char *const known[] = { "memory", "cpus", "disk" };

	assert_string_equal(near_word("memroy", known, 3), "memory");
	assert_string_equal(near_word("cpu", known, 3), "cpus");
	assert_null(near_word("network", known, 3));
	assert_null(near_word("", known, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places), cmocka_unit_test(test_types),
		cmocka_unit_test(test_merge),  cmocka_unit_test(test_json_text),
		cmocka_unit_test(test_limits), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_near),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
