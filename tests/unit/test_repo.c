/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "config/repo.h"

static int read_text(struct repo_asks *a, const char *text, struct err *e)
{
	*e = (struct err){ 0 };
	return repo_read(a, text, strlen(text), e);
}

/* ---- the file and its lines ------------------------------------------------ */

static void test_file(void **state UNUSED)
{
	struct repo_asks a, again;
	struct buf b = { 0 };
	struct err e;

	assert_int_equal(read_text(&a, "", &e), 0);
	assert_int_equal(a.n, 0);
	assert_int_equal(read_text(&a,
	                           "vm: {cpus: 1}\nnetwork:\n  egress: locked\n"
	                           "  deny_hosts: [a.example, '*.b.example']\n"
	                           "workspace: {exclude: []}\nagents: {claude: {x: 1}}\n",
	                           &e),
	                 0);
	assert_int_equal(repo_put(&b, &a), 0);
	assert_int_equal(buf_put(&b, "", 1), 0);
	assert_string_equal(b.p, "vm.cpus=1\nnetwork.egress=locked\n"
	                         "network.deny_hosts=a.example\nnetwork.deny_hosts=*.b.example\n"
	                         "agents=...\n");
	assert_int_equal(repo_parse(&again, span_of(b.p, b.len - 1)), 0);
	assert_int_equal(again.n, a.n);
	assert_memory_equal(again.v, a.v, a.n * sizeof(*a.v));
	repo_asks_fini(&again);
	repo_asks_fini(&a);
	buf_fini(&b);
}

static void test_bad_files(void **state UNUSED)
{
	static const struct {
		const char *text, *want;
	} t[] = {
		{ "vm: {cpu: 1}", ".cloche.yaml:1:11: unknown key 'vm.cpu'" },
		{ "vm: {cpus: 65}", "'vm.cpus' must be a number" },
		{ "vm: {cpus: 1, cpus: 2}", ".cloche.yaml:1:" },
		{ "a: &x 1\nb: *x\n", ".cloche.yaml:1:" },
		{ "vm:\n\tcpus: 1\n", ".cloche.yaml:" },
		{ "- x\n", "must be a mapping" },
		{ "workspace: {exclude: [\"a\\nvm.cpus=9\"]}", "control characters" },
		{ "workspace: {exclude: [\"\\e[2J\"]}", "control characters" },
	};
	struct repo_asks a;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		assert_int_equal(read_text(&a, t[i].text, &e), -EINVAL);
		if (!strstr(e.text, t[i].want))
			fail_msg("'%s' lacks '%s'", e.text, t[i].want);
		assert_null(a.v);
	}
}

static int list_of(size_t n, size_t value_len, struct repo_asks *a)
{
	static char text[REPO_BYTES_MAX + 64];
	char value[REPO_VALUE_MAX + 2] = "";
	struct err e = { 0 };
	size_t at = (size_t)snprintf(text, sizeof(text), "network: {deny_hosts: [");

	memset(value, 'a', value_len);
	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s,", "a.example");
	if (value_len)
		(void)snprintf(text, sizeof(text), "workspace: {exclude: [%s", value);
	(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "]}\n");
	return repo_read(a, text, strlen(text), &e);
}

static void test_limits(void **state UNUSED)
{
	static char big[REPO_BYTES_MAX + 1];
	struct repo_asks a;
	struct err e = { 0 };

	assert_int_equal(list_of(REPO_ASKS_MAX - 1, 0, &a), 0);
	repo_asks_fini(&a);
	assert_int_equal(list_of(REPO_ASKS_MAX, 0, &a), 0);
	assert_int_equal(a.n, REPO_ASKS_MAX);
	repo_asks_fini(&a);
	assert_int_equal(list_of(REPO_ASKS_MAX + 1, 0, &a), -EINVAL);
	assert_int_equal(list_of(0, REPO_VALUE_MAX - 1, &a), 0);
	repo_asks_fini(&a);
	assert_int_equal(list_of(0, REPO_VALUE_MAX, &a), 0);
	repo_asks_fini(&a);
	assert_int_equal(list_of(0, REPO_VALUE_MAX + 1, &a), -EINVAL);
	memset(big, '#', sizeof(big));
	assert_int_equal(repo_read(&a, big, REPO_BYTES_MAX - 1, &e), 0);
	assert_int_equal(repo_read(&a, big, REPO_BYTES_MAX, &e), 0);
	assert_int_equal(repo_read(&a, big, REPO_BYTES_MAX + 1, &e), -EINVAL);
}

static void test_lines(void **state UNUSED)
{
	static const char *const bad[] = { "vm.cpus=1",  "=1\n",         "vm.cpus\n",
		                           "vm.cpus=\n", "VM=1\n",       "vm.cpus=\x1b[2J\n",
		                           "\n",         "vm.cpus=1\n\n" };
	struct repo_asks a;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(repo_parse(&a, span_str(bad[i])), -EPROTO);
	assert_int_equal(repo_parse(&a, span_of("vm.cpus=\0\n", 10)), -EPROTO);
	assert_int_equal(repo_parse(&a, span_str("a=b=c\n")), 0);
	assert_string_equal(a.v[0].value, "b=c");
	repo_asks_fini(&a);
}

/* ---- the matrix ------------------------------------------------------------ */

/* What a run is, by its flag or not; what the file asks; what comes of it. */
static const struct rule {
	const char *key, *value;
	bool flag;
	enum repo_fate fate;
} rules[] = {
	/* looser, equal, tighter; then tighter than a flag */
	{ "vm.cpus", "5", false, REPO_IGNORED },
	{ "vm.cpus", "4", false, REPO_SAME },
	{ "vm.cpus", "3", false, REPO_APPLIED },
	{ "vm.cpus", "3", true, REPO_IGNORED },
	{ "vm.memory", "4097", false, REPO_IGNORED },
	{ "vm.memory", "4g", false, REPO_SAME },
	{ "vm.memory", "4095", false, REPO_APPLIED },
	{ "vm.memory", "512", false, REPO_APPLIED },
	{ "vm.memory", "511", false, REPO_IGNORED }, /* the agent needs 512 */
	{ "vm.memory", "4095", true, REPO_IGNORED },
	{ "vm.disk", "17g", false, REPO_IGNORED },
	{ "vm.disk", "16g", false, REPO_SAME },
	{ "vm.disk", "15g", false, REPO_APPLIED },
	{ "vm.disk", "15g", true, REPO_IGNORED },
	{ "vm.tmp_size", "3g", false, REPO_IGNORED },
	{ "vm.tmp_size", "2g", false, REPO_SAME },
	{ "vm.tmp_size", "1g", false, REPO_APPLIED },
	{ "vm.tmp_size", "1g", true, REPO_IGNORED },
	{ "workspace.exclude", "*.o", false, REPO_APPLIED },
	{ "workspace.exclude", "!*.o", false, REPO_IGNORED },
	{ "workspace.exclude_heavy", "true", false, REPO_APPLIED },
	{ "workspace.exclude_heavy", "false", false, REPO_SAME },
	{ "review.apply", "auto", false, REPO_IGNORED },
	{ "review.apply", "ask", false, REPO_SAME },
	{ "review.apply", "none", false, REPO_APPLIED },
	{ "review.apply", "none", true, REPO_IGNORED },
	{ "network.mode", "shared", false, REPO_IGNORED },
	{ "network.mode", "isolated", false, REPO_SAME },
	{ "network.mode", "offline", false, REPO_APPLIED },
	{ "network.mode", "offline", true, REPO_IGNORED },
	{ "network.egress", "permissive", false, REPO_IGNORED },
	{ "network.egress", "standard", false, REPO_SAME },
	{ "network.egress", "locked", false, REPO_APPLIED },
	{ "network.egress_profile", "locked", false, REPO_APPLIED },
	{ "network.egress", "locked", true, REPO_IGNORED },
	{ "network.deny_hosts", "a.example", false, REPO_APPLIED },
	{ "network.allow_hosts", "a.example", false, REPO_IGNORED },
	{ "network.allow_private", "10.1.0.0/16", false, REPO_IGNORED },
	{ "network.host_services", "80", false, REPO_IGNORED },
	{ "network.host_ca", "true", false, REPO_SAME },
	{ "network.host_ca", "false", false, REPO_APPLIED },
	{ "network.publish_localhost", "true", false, REPO_IGNORED },
	{ "network.publish_localhost", "false", false, REPO_SAME },
	{ "vm.accel", "tcg", false, REPO_IGNORED },
	{ "image.suite", "bookworm", false, REPO_IGNORED },
	{ "image.pull", "always", false, REPO_IGNORED },
	{ "image.mirror", "http://mirror.example", false, REPO_IGNORED },
	{ "agents", "...", false, REPO_IGNORED },
};

static struct repo_run usual(bool flags)
{
	return (struct repo_run){
		.cpus = 4,
		.memory_mib = 4096,
		.memory_min_mib = 512,
		.disk_bytes = (uint64_t)16 << 30,
		.tmp_bytes = (uint64_t)2 << 30,
		.cpus_given = flags,
		.memory_given = flags,
		.disk_given = flags,
		.tmp_given = flags,
		.mode_given = flags,
		.egress_given = flags,
		.apply_given = flags,
		.mode = 1,
		.egress = EGRESS_STANDARD,
		.host_ca = true,
		.apply = CONFIG_APPLY_ASK,
	};
}

static bool same(const struct repo_run *a, const struct repo_run *b)
{
	return a->cpus == b->cpus && a->memory_mib == b->memory_mib &&
	       a->disk_bytes == b->disk_bytes && a->tmp_bytes == b->tmp_bytes &&
	       a->mode == b->mode && a->egress == b->egress && a->host_ca == b->host_ca &&
	       a->publish_localhost == b->publish_localhost &&
	       a->exclude_heavy == b->exclude_heavy && a->apply == b->apply &&
	       a->n_exclude == b->n_exclude && a->deny.n == b->deny.n;
}

static void test_matrix(void **state UNUSED)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		struct repo_run before = usual(rules[i].flag), r = before;
		struct repo_effect e;
		struct repo_ask ask = { 0 };
		struct repo_asks a = { .v = &ask, .n = 1 };

		(void)snprintf(ask.key, sizeof(ask.key), "%s", rules[i].key);
		(void)snprintf(ask.value, sizeof(ask.value), "%s", rules[i].value);
		assert_int_equal(repo_tighten(&r, &a, &e), 0);
		if (e.fate != rules[i].fate || (e.fate == REPO_IGNORED) != (e.why != NULL))
			fail_msg("%s: %s%s: %d", ask.key, ask.value, rules[i].flag ? " (flag)" : "",
			         (int)e.fate);
		assert_int_equal(same(&before, &r), e.fate != REPO_APPLIED);
		config_hosts_fini(&r.deny);
	}
}

static void tighten(struct repo_run *r, const char *lines, struct repo_effect *e, int want)
{
	struct repo_asks a;

	assert_int_equal(repo_parse(&a, span_str(lines)), 0);
	assert_int_equal(repo_tighten(r, &a, e), want);
	repo_asks_fini(&a);
}

static void test_together(void **state UNUSED)
{
	struct repo_run r = usual(false);
	struct repo_effect e[8];

	/* all the way down, also from permissive; a denial sees the profile of the whole file */
	r.egress = EGRESS_PERMISSIVE;
	r.apply = CONFIG_APPLY_AUTO;
	r.mode = 2;
	r.publish_localhost = true;
	tighten(&r,
	        "network.deny_hosts=a.example\nnetwork.egress=locked\nreview.apply=ask\n"
	        "network.mode=isolated\nnetwork.publish_localhost=false\n",
	        e, 0);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(e[i].fate, REPO_APPLIED);
	assert_int_equal(r.deny.n, 1);
	assert_int_equal(r.mode, 1);
	assert_int_equal(r.egress, EGRESS_LOCKED);
	config_hosts_fini(&r.deny);
	/* permissive refuses nobody, and says so; offline has nobody to refuse */
	r = usual(false);
	r.egress = EGRESS_PERMISSIVE;
	tighten(&r, "network.deny_hosts=a.example\n", e, 0);
	assert_int_equal(e[0].fate, REPO_IGNORED);
	r.mode = 0;
	tighten(&r, "network.deny_hosts=a.example\n", e, 0);
	assert_int_equal(e[0].fate, REPO_SAME);
	/* two projects: the tightest of all counts */
	r = usual(false);
	tighten(&r, "vm.cpus=2\nvm.cpus=3\nvm.cpus=1\n", e, 0);
	assert_int_equal(e[1].fate, REPO_IGNORED);
	assert_int_equal(r.cpus, 1);
}

static void test_lies(void **state UNUSED)
{
	static const char *const t[] = { "vm.cpus=0\n",       "vm.cpus=x\n",
		                         "vm.what=1\n",       "vm=1\n",
		                         "network.mode=on\n", "network.deny_hosts=*\n",
		                         "agents.x=1\n",      "network.egress=-1\n" };

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct repo_run r = usual(false);
		struct repo_effect e[4];

		tighten(&r, t[i], e, -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),   cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_limits), cmocka_unit_test(test_lines),
		cmocka_unit_test(test_matrix), cmocka_unit_test(test_together),
		cmocka_unit_test(test_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
