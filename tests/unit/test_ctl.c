/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "super/ctl.h"

static uint8_t b[CTL_BYTES_MAX];

static void test_round_trip(void **state UNUSED)
{
	static struct ctl in, out;
	const struct ctl all[] = {
		{ .type = CTL_EXEC, .exec = { 1, 24, 80, CTL_EXEC_PTY | CTL_EXEC_LOGIN, { 0 } } },
		{ .type = CTL_RESIZE, .resize = { 255, 1, 2 } },
		{ .type = CTL_SIGNAL, .signal = { 1, 64 } },
		{ .type = CTL_FINISH, .finish = { -1 } },
		{ .type = CTL_PHASE, .phase = { CTL_PHASE_BOOTED, 1, 2, 3 } },
		{ .type = CTL_UP },
		{ .type = CTL_STARTED, .started = { 1, -2, { 0 } } },
		{ .type = CTL_EXITED, .exited = { 1, 1, 9, 1 } },
		{ .type = CTL_NOTE, .note = { 1, { 0 } } },
		{ .type = CTL_STAGED },
		{ .type = CTL_FAILED, .failed = { -5, { 0 }, { 0 } } },
		{ .type = CTL_FILE, .file = { { 0 }, 0644, 0, 0, 0, { 0 } } },
		{ .type = CTL_FILED, .filed = { -5, { 0 } } },
	};
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		size_t n = ctl_put(b, sizeof(b), &all[i]);
		assert_true(n > 0);
		assert_int_equal(ctl_parse(&out, span_of(b, n)), 0);
		assert_int_equal(out.type, all[i].type);
		/* one byte short and one too many are lies */
		assert_int_equal(ctl_parse(&out, span_of(b, n - 1)), -EPROTO);
		b[n] = 0;
		assert_int_equal(ctl_parse(&out, span_of(b, n + 1)), -EPROTO);
	}
	in = (struct ctl){ .type = CTL_ARGS };
	in.args.n = 2;
	in.args.words[0] = span_str("a b");
	in.args.words[1] = span_str("");
	size_t n = ctl_put(b, sizeof(b), &in);
	assert_int_equal(ctl_parse(&out, span_of(b, n)), 0);
	assert_int_equal(out.args.n, 2);
	assert_true(span_eq(out.args.words[0], span_str("a b")));
	assert_int_equal(out.args.words[1].len, 0);
}

static void test_limits(void **state UNUSED)
{
	static struct ctl out;
	static const uint8_t nul[] = { 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 'a', 0 };
	static const struct {
		const char *why;
		struct ctl c;
	} t[] = {
		{ "channel 0", { .type = CTL_EXEC, .exec = { 0, 1, 1, 0, { 0 } } } },
		{ "channel 256", { .type = CTL_EXEC, .exec = { 256, 1, 1, 0, { 0 } } } },
		{ "unknown flag", { .type = CTL_EXEC, .exec = { 1, 1, 1, 8, { 0 } } } },
		{ "signal 0", { .type = CTL_SIGNAL, .signal = { 1, 0 } } },
		{ "signal 65", { .type = CTL_SIGNAL, .signal = { 1, 65 } } },
		{ "status below -1", { .type = CTL_FINISH, .finish = { -2 } } },
		{ "status above 255", { .type = CTL_FINISH, .finish = { 256 } } },
		{ "phase 0", { .type = CTL_PHASE, .phase = { 0, 0, 0, 0 } } },
		{ "phase one over", { .type = CTL_PHASE, .phase = { CTL_PHASES, 0, 0, 0 } } },
		{ "start code above 0", { .type = CTL_STARTED, .started = { 1, 1, { 0 } } } },
		{ "ended by signal 128", { .type = CTL_EXITED, .exited = { 1, 1, 128, 0 } } },
		{ "level 4", { .type = CTL_NOTE, .note = { 4, { 0 } } } },
		{ "failed with 0", { .type = CTL_FAILED } },
		{ "filed above 0", { .type = CTL_FILED, .filed = { 1, { 0 } } } },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		size_t n = ctl_put(b, sizeof(b), &t[i].c);
		if (n == 0 || ctl_parse(&out, span_of(b, n)) != -EPROTO)
			fail_msg("%s: was accepted", t[i].why);
	}
	/* a word with a NUL would be another word in the guest */
	assert_int_equal(ctl_parse(&out, span_of(nul, sizeof(nul))), -EPROTO);
	assert_int_equal(ctl_parse(&out, span_of(b, 0)), -EPROTO);
	out = (struct ctl){ .type = 77 };
	assert_int_equal(ctl_put(b, sizeof(b), &out), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
