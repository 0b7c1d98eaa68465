/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "review/apply_priv.h"
#include "review/changeset_priv.h"
#include "review/classify.h"
#include "review/diff.h"
#include "review/review_priv.h"

static void test_id(void **state)
{
	static const struct {
		const char *why, *path, *prefix;
	} t[] = {
		{ "plain", "/home/ada/demo", "demo-" },
		{ "final slashes", "/home/ada/demo//", "demo-" },
		{ "capitals and blanks", "/x/My Project", "my-project-" },
		{ "a dot in front would hide it", "/x/.config", "config-" },
		{ "nothing usable", "/x/\xff\xfe", "project-" },
		{ "the root", "/", "project-" },
	};
	char id[CHANGESET_ID_MAX + 1], path[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		changeset_make_id(id, t[i].path);
		if (strncmp(id, t[i].prefix, strlen(t[i].prefix)) != 0 ||
		    strlen(id) != strlen(t[i].prefix) + 6 || !changeset_id_ok(id))
			fail_msg("%s: %s", t[i].why, id);
	}
	for (size_t n = 63; n <= 65; n++) {
		path[0] = '/';
		memset(path + 1, 'a', n);
		path[n + 1] = '\0';
		changeset_make_id(id, path);
		assert_int_equal(strlen(id), MIN(n, 64u) + 7);
		assert_true(changeset_id_ok(id));
	}
	static const struct {
		const char *why, *id;
		bool ok;
	} ids[] = {
		{ "empty", "", false },       { "up", "..", false },
		{ "hidden", ".a", false },    { "slash", "a/b", false },
		{ "capital", "aB", false },   { "option", "-c", false },
		{ "usual", "a.b_c-1", true }, { "unfinished set", ".new-a", false },
		{ "newline", "a\n", false },
	};
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		if (changeset_id_ok(ids[i].id) != ids[i].ok)
			fail_msg("%s", ids[i].why);
	}
	memset(path, 'a', sizeof(path));
	path[CHANGESET_ID_MAX] = '\0';
	assert_true(changeset_id_ok(path));
	path[CHANGESET_ID_MAX] = 'a';
	path[CHANGESET_ID_MAX + 1] = '\0';
	assert_false(changeset_id_ok(path));
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define META(id, created, more)                                                             \
	"{\"schema\":1,\"id\":\"" id "\",\"agent\":\"shell\",\"session\":\"\",\"sandbox\":" \
	"\"s\",\"created\":" created ",\"closed\":0,\"exit_status\":0,\"recovered\":false," \
	"\"manifest\":\"" HEX64                                                             \
	"\",\"projects\":[{\"path\":\"x\",\"path_hex\":\"2f61\",\"dev\":1,\"ino\":"         \
	"2}]" more "}"

static void test_meta(void **state)
{
	static const struct {
		const char *why, *text;
		int want;
	} t[] = {
		{ "good", META("a-1", "5", ""), 0 },
		{ "unknown keys are for later versions", META("a-1", "5", ",\"later\":[]"), 0 },
		{ "a key twice", META("a-1", "5", ",\"id\":\"b\""), -EPROTO },
		{ "an id that is a path", META("../x", "5", ""), -EPROTO },
		{ "a negative time", META("a-1", "-1", ""), -EPROTO },
		{ "a text for a number", META("a-1", "\"5\"", ""), -EPROTO },
		{ "counts with a hole", META("a-1", "5", ",\"counts\":{\"pending\":1}"), -EPROTO },
		{ "cut", "{\"schema\":1", -EPROTO },
		{ "not an object", "[]", -EPROTO },
		{ "empty", "", -EPROTO },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct changeset_meta m;
		int got = changeset_meta_parse(&m, span_str(t[i].text));
		if (got != t[i].want)
			fail_msg("%s: got %d", t[i].why, got);
		if (got == 0)
			assert_string_equal(m.projects[0].path, "/a");
		changeset_meta_fini(&m);
	}
}

static void test_classify_words(void **state)
{
	static const struct {
		const char *path;
		enum classify_tier want;
	} t[] = {
		{ "a.c", CLASSIFY_PLAIN },
		{ "vscode/x", CLASSIFY_PLAIN },
		{ ".vscodex/x", CLASSIFY_PLAIN },
		{ ".vscode", CLASSIFY_AUTO },
		{ "a/b/.vscode/x", CLASSIFY_AUTO },
		{ "a/.cargo/config", CLASSIFY_AUTO },
		{ ".cargo/other", CLASSIFY_PLAIN },
		{ "config.toml", CLASSIFY_PLAIN },
		{ "x.code-workspace", CLASSIFY_AUTO },
		{ "x.code-workspace2", CLASSIFY_PLAIN },
		{ ".HUSKY/pre-commit", CLASSIFY_AUTO },
		{ ".hu\xc5\xbfky/x", CLASSIFY_AUTO },      /* long s */
		{ ".hus\xe2\x84\xaay/x", CLASSIFY_AUTO },  /* Kelvin sign */
		{ ".hus\xe2\x80\x8bky/x", CLASSIFY_AUTO }, /* zero-width space */
		{ "modules/.git/hooks/x", CLASSIFY_AUTO },
		{ "Makefile", CLASSIFY_BUILD },
		{ "makefile.am", CLASSIFY_PLAIN },
		{ "src/MAKEFILE", CLASSIFY_BUILD },
		{ ".github/CODEOWNERS", CLASSIFY_BUILD },
		{ "docker-compose.prod.yaml", CLASSIFY_BUILD },
		{ "package.json", CLASSIFY_BUILD },
		{ "package.json/x", CLASSIFY_BUILD },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		const char *reason;
		enum classify_tier got = classify_path(span_str(t[i].path), &reason);
		if (got != t[i].want || (got != CLASSIFY_PLAIN) != (reason != NULL))
			fail_msg("%s: %d", t[i].path, got);
	}
	/* patterns are compared with folded names: one with a capital would never match */
	for (int k = 0; k < 2; k++) {
		for (const struct classify_rule *r = k ? classify_tier1 : classify_tier2;
		     r->pattern; r++) {
			for (const char *p = r->pattern; *p; p++)
				assert_false(*p >= 'A' && *p <= 'Z');
			assert_true(r->reason && r->reason[0]);
		}
	}
}

static void test_classify_links(void **state)
{
	static const struct {
		const char *text;
		uint32_t depth;
		enum classify_link want;
	} t[] = {
		{ "a", 0, CLASSIFY_LINK_INSIDE },       { "./a//b/.", 0, CLASSIFY_LINK_INSIDE },
		{ "..", 0, CLASSIFY_LINK_LEAVES },      { "..", 1, CLASSIFY_LINK_INSIDE },
		{ "../..", 1, CLASSIFY_LINK_LEAVES },   { "../../a", 2, CLASSIFY_LINK_INSIDE },
		{ "a/..", 5, CLASSIFY_LINK_UNCLEAR },   { "/", 5, CLASSIFY_LINK_ABSOLUTE },
		{ ".GIT/hooks", 0, CLASSIFY_LINK_GIT }, { "", 0, CLASSIFY_LINK_BAD },
		{ "...", 0, CLASSIFY_LINK_INSIDE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (classify_link_text(span_str(t[i].text), t[i].depth) != t[i].want)
			fail_msg("%s at %u", t[i].text, t[i].depth);
	}
	assert_int_equal(classify_link_text(span_of("a\0b", 3), 0), CLASSIFY_LINK_BAD);
}

static void test_journal(void **state)
{
#define T1 ".cloche-tmp-abcdefghijklmnop"
#define T2 ".cloche-tmp-ponmlkjihgfedcba"
	static const struct {
		const char *why, *text;
		size_t plan;
		bool open, swap, made;
		uint64_t ino;
	} t[] = {
		{ "empty", "", 0, false, false, false, 0 },
		{ "a plan", "plan 1\nplan 7\n", 2, false, false, false, 0 },
		{ "temp", "plan 1\ntemp 1 " T1 "\n", 1, true, false, true, 0 },
		{ "over", "temp 1 " T1 "\nover 1\n", 0, false, false, false, 0 },
		{ "swap", "temp 1 " T1 "\nswap 1 " T1 " 55 61\n", 0, true, true, false, 55 },
		{ "made, then moved away", "temp 1 " T1 "\nswap 1 " T2 " 0 612f62\n", 0, true, true,
		  true, 0 },
		{ "last line cut", "plan 1\ntemp 1 " T1, 1, false, false, false, 0 },
		{ "a name that is not ours", "temp 1 ../../etc/passwd\n", 0, false, false, false,
		  0 },
		{ "a path that climbs", "swap 1 " T1 " 5 2e2e2f61\n", 0, false, true, false, 0 },
		{ "an absolute path", "swap 1 " T1 " 5 2f61\n", 0, false, true, false, 0 },
		{ "no number", "plan x\nplan 1\n", 0, false, false, false, 0 },
		{ "too large a number", "plan 4294967296\n", 0, false, false, false, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct journal j;
		journal_parse(&j, span_str(t[i].text));
		if (j.n_plan != t[i].plan || j.open != t[i].open ||
		    (j.open && j.swap != t[i].swap) || j.made_open != t[i].made ||
		    (j.open && j.swap && j.ino != t[i].ino))
			fail_msg("%s", t[i].why);
		journal_fini(&j);
	}
}

static void test_applied(void **state)
{
	struct changeset_applied a = { .project = 1,
		                       .kind = MANIFEST_FILE,
		                       .mode = 0644,
		                       .size = 5,
		                       .ino = 6,
		                       .mtime_ns = -7,
		                       .ctime_ns = 8,
		                       .path = span_str("a/b") },
				 got;
	uint8_t b[256];
	size_t used;

	(void)state;
	int fd = fd_memfd("applied");
	assert_int_equal(changeset_applied_put(fd, &a), 0);
	ssize_t n = pread(fd, b, sizeof(b), 0);
	(void)close(fd);
	assert_int_equal(changeset_applied_parse(&got, span_of(b, (size_t)n), &used), 0);
	assert_int_equal(used, n);
	assert_true(span_eq(got.path, a.path) && got.mtime_ns == -7 && got.project == 1);
	for (ssize_t k = 0; k < n; k++)
		assert_int_equal(changeset_applied_parse(&got, span_of(b, (size_t)k), &used),
		                 -EAGAIN);
	b[n - 2] = '.'; /* "a/b" -> "a.b": still a path; then make it climb */
	b[n - 3] = '.';
	b[n - 1] = '\0';
	assert_int_equal(changeset_applied_parse(&got, span_of(b, (size_t)n), &used), -EPROTO);
}

static void test_overlay(void **state)
{
	static const struct changeset_applied t[] = {
		{ .kind = MANIFEST_DIR, .path = { (const uint8_t *)"d", 1 } },
		{ .kind = MANIFEST_FILE, .path = { (const uint8_t *)"d/x", 3 } },
		{ .kind = 0, .path = { (const uint8_t *)"d", 1 } },
		{ .kind = MANIFEST_DIR, .path = { (const uint8_t *)"d", 1 } },
	};
	struct compare_overlay o = { 0 };
	uint8_t b[1024];

	(void)state;
	int fd = fd_memfd("applied");
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(changeset_applied_put(fd, &t[i]), 0);
	ssize_t n = pread(fd, b, sizeof(b), 0);
	(void)close(fd);
	struct span tables[] = { span_of(b, (size_t)n) };
	assert_int_equal(compare_overlay_load(&o, tables, 1), 0);
	const struct compare_applied *d = compare_overlay_find(&o, 0, span_str("d"));
	const struct compare_applied *x = compare_overlay_find(&o, 0, span_str("d/x"));
	assert_true(d && d->a.kind == MANIFEST_DIR && d->seq == 4 && d->deleted_seq == 3);
	/* the file went with the directory, though that exists again */
	assert_true(x && x->seq < compare_overlay_deleted_above(&o, 0, span_str("d/x")));
	assert_null(compare_overlay_find(&o, 1, span_str("d")));
	compare_overlay_fini(&o);
}

static void test_clean_text(void **state)
{
	static const struct {
		const char *why, *in, *want;
		int flags;
	} t[] = {
		{ "colour asked for", "\033[31m-a\033[m\n", "\033[31m-a\033[m\n", DIFF_COLOUR },
		{ "colour not asked for", "\033[31m", "\\e[31m", 0 },
		{ "another sequence", "\033]0;x\007", "\\e]0;x\\x07", DIFF_COLOUR },
		{ "cut", "\033[3", "\\e[3", DIFF_COLOUR },
		{ "cursor", "\033[2J", "\\e[2J", DIFF_COLOUR },
		{ "too long", "\033[11111111111111111m", "\\e[11111111111111111m", DIFF_COLOUR },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };
		assert_int_equal(review_clean_text(&b, span_str(t[i].in), t[i].flags), 0);
		if (!span_eq(span_of(b.p, b.len), span_str(t[i].want)))
			fail_msg("%s: %.*s", t[i].why, (int)b.len, (char *)b.p);
	}
}

static void test_diff_limits(void **state)
{
	struct diff_stat st;
	size_t n = DIFF_BYTES_MAX;
	AUTO_FREE uint8_t *big = xmalloc(n + 1);
	uint8_t probe[DIFF_PROBE + 2];

	(void)state;
	assert_int_equal(diff_init(), 0);
	memset(big, 'a', n + 1);
	for (size_t i = 0; i < n; i += 4000)
		big[i] = '\n'; /* few lines: it is the size that counts */
	for (int over = -1; over <= 1; over++) {
		AUTO_BUF struct buf b = { 0 };
		size_t k = (size_t)((long)n + over);
		assert_int_equal(diff_render(&b, span_str("f"), span_of(big, k), true,
		                             span_of(big, k - 1), true, 0, &st),
		                 0);
		assert_true(st.too_big == (over > 0));
	}
	memset(probe, 'a', sizeof(probe));
	for (int at = -1; at <= 1; at++) {
		probe[DIFF_PROBE + at] = '\0';
		assert_true(diff_is_binary(span_of(probe, sizeof(probe))) == (at < 0));
		probe[DIFF_PROBE + at] = 'a';
	}
	assert_false(diff_is_binary(span_of("", 0)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_id),
		cmocka_unit_test(test_meta),
		cmocka_unit_test(test_classify_words),
		cmocka_unit_test(test_classify_links),
		cmocka_unit_test(test_journal),
		cmocka_unit_test(test_applied),
		cmocka_unit_test(test_overlay),
		cmocka_unit_test(test_clean_text),
		cmocka_unit_test(test_diff_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
