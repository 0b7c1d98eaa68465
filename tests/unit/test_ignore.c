/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "policy/ignore.h"
#include "policy/secret_paths.h"

enum { D = 1, F = 0, Y = IGNORE_YES, N = IGNORE_NO, S = IGNORE_SILENT };

static void test_table(void **state UNUSED)
{
	static const struct {
		const char *why;
		const char *text, *path;
		int dir, want;
	} t[] = {
		{ "empty file", "", "a", F, S },
		{ "a word, any depth", "a", "x/a", F, Y },
		{ "a word is a whole component", "a", "ab", F, S },
		{ "comment", "#a", "#a", F, S },
		{ "escaped hash", "\\#a", "#a", F, Y },
		{ "escaped exclamation mark", "\\!a", "!a", F, Y },
		{ "negation", "a\n!a", "a", F, N },
		{ "last line decides", "!a\na", "a", F, Y },
		{ "return before newline", "a\r\n", "a", F, Y },
		{ "return at the end of the file", "a\r", "a", F, Y },
		{ "byte order mark",
		  "\xef\xbb\xbf"
		  "a",
		  "a", F, Y },
		{ "trailing spaces", "a  ", "a", F, Y },
		{ "escaped trailing space", "a\\ ", "a ", F, Y },
		{ "one of two trailing spaces escaped", "a\\  ", "a ", F, Y },
		{ "leading space counts", " a", "a", F, S },
		{ "only spaces", "   ", " ", F, S },
		{ "directory only, directory", "a/", "a", D, Y },
		{ "directory only, file", "a/", "a", F, S },
		{ "anchored", "/a", "a", F, Y },
		{ "anchored, deeper", "/a", "x/a", F, S },
		{ "slash in the middle anchors", "a/b", "a/b", F, Y },
		{ "slash in the middle anchors, deeper", "a/b", "x/a/b", F, S },
		{ "slash at the end does not anchor", "b/", "a/b", D, Y },
		{ "suffix", "*.o", "x/y.o", F, Y },
		{ "suffix is the whole name", "*.o", ".o", F, Y },
		{ "suffix, shorter name", "*.oo", "o", F, S },
		{ "star crosses no slash", "a/*c", "a/b/c", F, S },
		{ "star is empty", "a/*", "a/b", F, Y },
		{ "star needs its name", "a/*/c", "a/c", F, S },
		{ "question mark", "a?c", "abc", F, Y },
		{ "question mark is no slash", "x/a?c", "x/a/c", F, S },
		{ "class", "[ab]x", "bx", F, Y },
		{ "range", "[a-c]", "b", F, Y },
		{ "range, one above", "[a-c]", "d", F, S },
		{ "range, one below", "[b-d]", "a", F, S },
		{ "negated class", "[!ab]", "c", F, Y },
		{ "negated class, caret", "[^ab]", "a", F, S },
		{ "class never matches a slash", "a[!b]c/x", "a/c/x", F, S },
		{ "bracket first is a member", "[]a]", "]", F, Y },
		{ "minus first is a member", "[-a]", "-", F, Y },
		{ "minus last is a member", "[a-]", "-", F, Y },
		{ "escape in a class", "[\\]]", "]", F, Y },
		{ "named class", "[[:digit:]]", "7", F, Y },
		{ "unknown named class", "[[:nope:]x]", "x", F, S },
		{ "class without an end", "[ab", "[ab", F, S },
		{ "class without an end, member", "a[", "a[", F, S },
		{ "backslash at the end", "a\\", "a\\", F, S },
		{ "escaped star", "a\\*", "a*", F, Y },
		{ "escaped star is no star", "a\\*", "ab", F, S },
		{ "two stars in front", "**/a", "x/y/a", F, Y },
		{ "two stars in front, none", "**/a", "a", F, Y },
		{ "two stars in front, part of a name", "**/a", "ba", F, S },
		{ "two stars at the end", "a/**", "a/x/y", F, Y },
		{ "two stars at the end, itself", "a/**", "a", D, S },
		{ "two stars between", "a/**/b", "a/b", F, Y },
		{ "two stars between, deeper", "a/**/b", "a/x/y/b", F, Y },
		{ "two stars between, glued", "a/**/b", "a/xb", F, S },
		{ "two stars in a word are one", "a/b**c", "a/b/c", F, S },
		{ "two stars in a word", "a/b**c", "a/bxxc", F, Y },
		{ "two stars and nothing behind them", "a**//", "a", D, Y },
		{ "three stars", "a/***/b", "a/x/y/b", F, Y },
		{ "only two stars", "**", "a/b", F, Y },
		{ "only a slash", "/", "a", D, S },
		{ "only two slashes", "//", "a", D, S },
		{ "only an exclamation mark", "!", "a", F, S },
		{ "case counts", "A", "a", F, S },
		{ "bytes that are no text", "\xff*", "\xff\xfe", F, Y },
		{ "newline cannot be written", "a\nb", "a\nb", F, S },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct ignore_list *l = NULL;

		assert_int_equal(ignore_parse(&l, span_str(t[i].text), 0), 0);
		int got = (int)ignore_match(l, span_str(t[i].path), t[i].dir, NULL);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		ignore_free(l);

		/* the same through the index by last byte */
		AUTO_BUF struct buf b = { 0 };
		uint32_t line = 0;
		for (int k = 0; k < 20; k++)
			assert_int_equal(buf_put(&b, "!zz?zz\n", 7), 0);
		if (strncmp(t[i].text, "\xef\xbb\xbf", 3) == 0)
			continue;
		assert_int_equal(buf_put(&b, t[i].text, strlen(t[i].text)), 0);
		assert_int_equal(ignore_parse(&l, span_of(b.p, b.len), 0), 0);
		got = (int)ignore_match(l, span_str(t[i].path), t[i].dir, &line);
		if (got != t[i].want || (got != S && line < 21))
			fail_msg("%s, with an index: got %d, want %d", t[i].why, got, t[i].want);
		ignore_free(l);
	}
}

static void test_fold(void **state UNUSED)
{
	struct ignore_list *l = NULL;

	assert_int_equal(
		ignore_parse(&l, span_str("*.PEM\nAb\n[x-z]q?\n[!k]0\n"), IGNORE_FOLD_CASE), 0);
	assert_int_equal(ignore_match(l, span_str("a.pEm"), F, NULL), Y);
	assert_int_equal(ignore_match(l, span_str("aB"), F, NULL), Y);
	assert_int_equal(ignore_match(l, span_str("YQ1"), F, NULL), Y);
	assert_int_equal(ignore_match(l, span_str("K0"), F, NULL), S);
	ignore_free(l);
}

static void test_limits(void **state UNUSED)
{
	const struct {
		const char *why;
		size_t lines, line_bytes;
		int want;
	} t[] = {
		{ "pattern at the limit", 1, IGNORE_PATTERN_MAX, 0 },
		{ "pattern one over", 1, IGNORE_PATTERN_MAX + 1, -EFBIG },
		{ "patterns at the limit", IGNORE_PATTERNS_MAX, 1, 0 },
		{ "patterns one over", IGNORE_PATTERNS_MAX + 1, 1, -EFBIG },
		{ "file at the limit", 1024, 1023, 0 },
		{ "file over the limit", 1025, 1023, -EFBIG },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };
		struct ignore_list *l = NULL;

		for (size_t k = 0; k < t[i].lines; k++) {
			assert_int_equal(buf_reserve(&b, t[i].line_bytes + 1), 0);
			memset(b.p + b.len, 'a', t[i].line_bytes);
			b.len += t[i].line_bytes;
			b.p[b.len++] = '\n';
		}
		int got = ignore_parse(&l, span_of(b.p, b.len), 0);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		if (got == 0)
			ignore_free(l);
	}
}

/* A pattern made to backtrack: the time must stay that of length times length. */
static void test_time(void **state UNUSED)
{
	AUTO_BUF struct buf pat = { 0 };
	AUTO_BUF struct buf path = { 0 };
	struct ignore_list *l = NULL;
	struct timespec a, b;

	assert_int_equal(buf_put(&pat, "x/", 2), 0);
	while (pat.len < IGNORE_PATTERN_MAX - 4)
		assert_int_equal(buf_put(&pat, "*a", 2), 0);
	assert_int_equal(buf_put(&pat, "cb", 2), 0);
	assert_int_equal(buf_put(&path, "x/", 2), 0);
	while (path.len < 16000)
		assert_int_equal(buf_put(&path, "a", 1), 0);
	assert_int_equal(buf_put(&path, "b", 1), 0);
	assert_int_equal(ignore_parse(&l, span_of(pat.p, pat.len), 0), 0);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	assert_int_equal(ignore_match(l, span_of(path.p, path.len), F, NULL), S);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	/* 65 million steps; a backtracking matcher would not end in this century */
	assert_true(b.tv_sec - a.tv_sec < 60);
	ignore_free(l);
}

static void put(struct ignore_set *s, const char *dir, const char *text, int rank)
{
	struct ignore_list *l = NULL;

	assert_int_equal(ignore_parse(&l, span_str(text), 0), 0);
	assert_int_equal(ignore_set_add(s, span_str(dir), l, rank), 0);
}

static void test_set(void **state UNUSED)
{
	struct ignore_set *s = ignore_set_new();
	static const struct {
		const char *why;
		const char *path;
		int dir, want;
	} t[] = {
		{ "top file", "x.o", F, 1 },
		{ "deeper file wins", "lib/x.o", F, 0 },
		{ "deeper file reaches down", "lib/sub/x.o", F, 0 },
		{ "its scope is its directory", "libx/x.o", F, 1 },
		{ "anchored to its directory", "lib/only", F, 1 },
		{ "anchored, not below", "lib/sub/only", F, 0 },
		{ "below an ignored directory", "out/deep/file", F, 1 },
		{ "no negation below an ignored directory", "out/keep", F, 1 },
		{ "info/exclude is asked last", "both", F, 0 },
		{ "info/exclude alone", "local", F, 1 },
	};

	assert_false(ignore_set_match(s, span_str("a"), F));
	put(s, "", "local\nboth\n", 0);
	put(s, "", "*.o\nout/\n!out/keep\n!both\n", 1);
	put(s, "lib", "!*.o\n/only\n", 1);
	put(s, "out", "!keep\n", 1);
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		if (ignore_set_match(s, span_str(t[i].path), t[i].dir) != t[i].want)
			fail_msg("%s: want %d", t[i].why, t[i].want);
	ignore_set_free(s);
	ignore_set_free(NULL);
}

static void test_secrets(void **state UNUSED)
{
	static const struct {
		const char *path;
		int dir;
		const char *want;
	} t[] = {
		{ ".env", F, ".env*" },
		{ "a/b/.env.local", F, ".env*" },
		{ ".envrc", F, ".env*" },
		{ "env", F, NULL },
		{ "x.env", F, NULL },
		{ "server.PEM", F, "*.pem" },
		{ ".pem", F, "*.pem" },
		{ "xpem", F, NULL },
		{ "server.pem.txt", F, NULL },
		{ "ID_RSA", F, "id_rsa*" },
		{ "id_rsa.pub", F, "id_rsa*" },
		{ "my_id_rsa", F, NULL },
		{ "x/.ssh", D, ".ssh/" },
		{ "x/.ssh", F, NULL },
		{ "x/.SSH/config", F, ".ssh/" },
		{ ".docker/config.json", F, ".docker/config.json" },
		{ "a/.docker/config.json", F, ".docker/config.json" },
		{ "docker/config.json", F, NULL },
		{ "config.json", F, NULL },
		{ ".config/gh/hosts.yml", F, ".config/gh/hosts.yml" },
		{ "x/.Config/GH/Hosts.yml", F, ".config/gh/hosts.yml" },
		{ "gh/hosts.yml", F, NULL },
		{ ".config/gcloud", D, ".config/gcloud/" },
		{ ".config/gcloud/x", F, ".config/gcloud/" },
		{ ".config", D, NULL },
		{ ".kube/config", F, ".kube/config" },
		{ "terraform.tfstate.backup", F, "*.tfstate*" },
		{ "x.tfstate", F, "*.tfstate*" },
		{ "tfstate", F, NULL },
		{ "service-account-prod.json", F, "service-account*.json" },
		{ "service-account", F, NULL },
		{ ".cargo/credentials.toml", F, ".cargo/credentials*" },
		{ ".cargo/config.toml", F, NULL },
		{ ".npmrc", F, ".npmrc" },
		{ ".cloche.yaml", F, ".cloche.yaml" },
		{ "keys.kdbx", F, "*.kdbx" },
		{ "a/_netrc", F, "_netrc" },
		{ "_NETRC", F, "_netrc" },
		{ "x_netrc", F, NULL },
		{ "__init__", F, NULL },
		{ ".s3cfg", F, ".s3cfg" },
		{ ".boto", F, ".boto" },
		{ "x/.dockercfg", F, ".dockercfg" },
		{ "site/.htpasswd", F, ".htpasswd" },
		{ "config/secrets.yml", F, "secrets.yml" },
		{ "config/Secrets.yaml", F, "secrets.yaml" },
		{ "secrets.yml.example", F, NULL },
		{ "my-secrets.yml", F, NULL },
		{ ".config/op/config", F, ".config/op/" },
		{ "op/config", F, NULL },
		{ ".config/rclone/rclone.conf", F, ".config/rclone/" },
		{ "key.ppk", F, "*.ppk" },
		{ ".vault_pass.txt", F, ".vault_pass*" },
		{ "src/main.c", F, NULL },
		{ "Makefile", F, NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		const char *got = secret_path_match(span_str(t[i].path), t[i].dir);

		if (!got != !t[i].want || (got && strcmp(got, t[i].want) != 0))
			fail_msg("%s: got %s, want %s", t[i].path, got ? got : "nothing",
			         t[i].want ? t[i].want : "nothing");
	}
	assert_true(secret_pattern_named(span_str(".env*")));
	assert_true(secret_pattern_named(span_str("**/.ssh")));
	assert_true(secret_pattern_named(span_str("/.ssh/")));
	assert_true(secret_pattern_named(span_str(".env.example")));
	assert_true(secret_pattern_named(span_str("certs/server.pem")));
	assert_false(secret_pattern_named(span_str("node_modules/")));
	assert_false(secret_pattern_named(span_str("/")));
	/* every pattern matches its own spelling, stars read as empty */
	for (size_t i = 0; secret_patterns[i]; i++)
		assert_true(secret_pattern_named(span_str(secret_patterns[i])));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),  cmocka_unit_test(test_fold),
		cmocka_unit_test(test_limits), cmocka_unit_test(test_time),
		cmocka_unit_test(test_set),    cmocka_unit_test(test_secrets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
