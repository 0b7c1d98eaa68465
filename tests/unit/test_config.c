/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "config/config.h"

static int parse(struct config *c, const char *text, struct err *e)
{
	*e = (struct err){ 0 };
	config_init(c);
	return config_parse(c, "config.yaml", text, strlen(text), e);
}

static void test_good(void **state UNUSED)
{
	struct config c;
	struct err e;

	assert_int_equal(parse(&c, "", &e), 0);
	assert_string_equal(c.accel, "auto");
	assert_int_equal(c.memory_mib, 4096);
	config_fini(&c);
	assert_int_equal(parse(&c, "# nothing\n", &e), 0);
	config_fini(&c);
	assert_int_equal(
		parse(&c,
	              "vm:\n  accel: tcg\n  cpus: 8\n  memory: 2GiB\n  disk: 1g\n  tmp_size: 64\n"
	              "workspace:\n  exclude_heavy: true\n  exclude:\n    - a\n    - '!b'\n"
	              "review:\n  apply: none\nimage:\n  suite: bookworm\n",
	              &e),
		0);
	assert_string_equal(c.accel, "tcg");
	assert_int_equal(c.cpus, 8);
	assert_int_equal(c.memory_mib, 2048);
	assert_int_equal(c.tmp_bytes, 64 << 20);
	assert_int_equal(c.n_exclude, 2);
	assert_string_equal(c.exclude[1], "!b");
	assert_int_equal(c.apply, CONFIG_APPLY_NONE);
	config_fini(&c);
}

static void test_bad(void **state UNUSED)
{
	static const struct {
		const char *why, *text, *want;
	} t[] = {
		{ "misspelled key", "vm:\n  acel: tcg\n",
		  "config.yaml:2:9: unknown key 'vm.acel'" },
		{ "misspelled section", "vmm:\n  accel: tcg\n", "unknown key 'vmm'" },
		{ "wrong value", "vm:\n  accel: fast\n",
		  "2:10: 'vm.accel' must be auto, kvm or tcg" },
		{ "no value", "vm:\n  accel:\n", "has no value" },
		{ "list for a value", "vm:\n  accel: [tcg]\n", "must be a single value" },
		{ "value for a list", "workspace:\n  exclude: a\n", "must be a list" },
		{ "cpus 0", "vm: {cpus: 0}\n", "a number from 1 to 64" },
		{ "cpus 65", "vm: {cpus: 65}\n", "a number from 1 to 64" },
		{ "cpus text", "vm: {cpus: two}\n", "a number from 1 to 64" },
		{ "memory below", "vm: {memory: 255}\n", "a size from 256m" },
		{ "key twice", "vm: {cpus: 1, cpus: 2}\n", "stands twice" },
		{ "section twice", "vm: {cpus: 1}\nvm: {cpus: 2}\n", "stands twice" },
		{ "two documents", "vm: {cpus: 1}\n---\nvm: {}\n", "only one document" },
		{ "alias", "vm: {accel: &a tcg}\n", "anchors" },
		{ "tag", "vm: {accel: !!str tcg}\n", "anchors and tags" },
		{ "a list", "- a\n", "must be a mapping" },
		{ "nested too deep", "workspace: {exclude: [[a]]}\n", "single values" },
		{ "not YAML", "vm: {accel: tcg\n", "config.yaml:" },
		{ "section is a text", "vm: tcg\n", "'vm' must be a mapping" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct config c;
		struct err e;
		int r = parse(&c, t[i].text, &e);
		if (r >= 0 || !strstr(e.text, t[i].want))
			fail_msg("%s: %d '%s'", t[i].why, r, e.text);
		config_fini(&c);
	}
	struct config c;
	struct err e;
	assert_true(parse(&c, "vm:\n  acel: tcg\n", &e) < 0);
	assert_string_equal(e.hint, "did you mean 'accel'?");
	config_fini(&c);
}

static void test_size(void **state UNUSED)
{
	static const struct {
		const char *in;
		uint64_t want; /* 0: refused */
	} t[] = {
		{ "1", 1 << 20 },     { "512m", 512 << 20 }, { "512MiB", 512 << 20 },
		{ "4g", 4ull << 30 }, { "4Gi", 4ull << 30 }, { "", 0 },
		{ "g", 0 },           { "-1", 0 },           { "1.5g", 0 },
		{ "4t", 0 },          { "4 g", 0 },          { "4294967295", 4294967295ull << 20 },
		{ "4294967296", 0 },  { "4194304g", 0 }
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint64_t got = 0;
		int r = config_size(t[i].in, &got);
		if ((r < 0) != (t[i].want == 0) || (r == 0 && got != t[i].want))
			fail_msg("'%s': %d, %llu", t[i].in, r, (unsigned long long)got);
	}
}

/* Only a regular file, at once, and none is none. */
static void test_file(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-test-XXXXXX", path[64];
	struct config c;
	struct err e = { 0 };

	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/config.yaml", dir);
	config_init(&c);
	assert_int_equal(config_load(&c, path, &e), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_true(config_load(&c, path, &e) < 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_true(config_load(&c, path, &e) < 0);
	config_fini(&c);
	assert_int_equal(rmdir(path) | rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
