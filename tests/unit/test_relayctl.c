/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "wire/relayctl.h"

static uint8_t b[RELAYCTL_BYTES_MAX + 1];
static uint8_t file[RELAYCTL_FILE_MAX + 1];

static void test_round_trip(void **state UNUSED)
{
	const struct relayctl all[] = {
		{ .type = RELAYCTL_RESOLV, .number = 1, .file = span_of(file, RELAYCTL_FILE_MAX) },
		{ .type = RELAYCTL_HOSTS, .number = UINT32_MAX, .file = span_str("") },
		{ .type = RELAYCTL_ALLOW, .pattern = span_str("*.example.com:8443") },
		{ .type = RELAYCTL_DENY, .pattern = span_str("a.b") },
		{ .type = RELAYCTL_LISTEN,
		  .listen = { 8080, true, RELAYCTL_DEADLINE_MAX_S, span_str("callback") } },
		{ .type = RELAYCTL_LISTEN, .listen = { 65535, false, 0, span_str("") } },
		{ .type = RELAYCTL_OK, .number = 7 },
		{ .type = RELAYCTL_ERR, .number = 7, .text = span_str("no such thing") },
		{ .type = RELAYCTL_LOST, .text = span_str("No space left on device") },
		{ .type = RELAYCTL_FORWARD, .guest_port = 1 },
	};
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		struct relayctl out;
		size_t n = relayctl_put(b, sizeof(b), &all[i]);

		assert_true(n > 0);
		assert_int_equal(relayctl_put(b, n - 1, &all[i]), 0);
		assert_int_equal(relayctl_put(b, n, &all[i]), n);
		assert_int_equal(relayctl_parse(&out, span_of(b, n)), 0);
		assert_int_equal(out.type, all[i].type);
		assert_int_equal(out.number, all[i].number);
		/* one byte short and one too many are lies */
		assert_int_equal(relayctl_parse(&out, span_of(b, n - 1)), -EPROTO);
		b[n] = 0;
		assert_int_equal(relayctl_parse(&out, span_of(b, n + 1)), -EPROTO);
	}
}

static void test_fields(void **state UNUSED)
{
	const struct relayctl in = { .type = RELAYCTL_LISTEN,
		                     .number = 3,
		                     .listen = { 8080, true, 300, span_str("oauth") } };
	struct relayctl out;
	size_t n = relayctl_put(b, sizeof(b), &in);

	assert_int_equal(relayctl_parse(&out, span_of(b, n)), 0);
	assert_int_equal(out.listen.guest_port, 8080);
	assert_true(out.listen.once);
	assert_int_equal(out.listen.deadline_s, 300);
	assert_true(span_eq(out.listen.label, span_str("oauth")));
}

/* What put() refuses to say: each is one over a limit that test_round_trip() is at. */
static void test_limits(void **state UNUSED)
{
	static uint8_t text[RELAYCTL_TEXT_MAX + 1];
	const struct {
		const char *why;
		struct relayctl m;
	} t[] = {
		{ "type 0", { .type = 0 } },
		{ "unknown type", { .type = RELAYCTL_LISTEN + 1 } },
		{ "file too long",
		  { .type = RELAYCTL_RESOLV, .file = span_of(file, sizeof(file)) } },
		{ "empty pattern", { .type = RELAYCTL_ALLOW, .pattern = span_str("") } },
		{ "control in a pattern",
		  { .type = RELAYCTL_DENY, .pattern = span_str("a\x1f.b") } },
		{ "delete in a pattern",
		  { .type = RELAYCTL_DENY, .pattern = span_str("a\x7f.b") } },
		{ "guest port 0", { .type = RELAYCTL_LISTEN, .listen = { 0, false, 0, { 0 } } } },
		{ "deadline",
		  { .type = RELAYCTL_LISTEN,
		    .listen = { 1, true, RELAYCTL_DEADLINE_MAX_S + 1, { 0 } } } },
		{ "newline in a label",
		  { .type = RELAYCTL_LISTEN, .listen = { 1, true, 0, span_str("a\nb") } } },
		{ "text", { .type = RELAYCTL_ERR, .text = span_of(text, sizeof(text)) } },
		{ "forward to port 0", { .type = RELAYCTL_FORWARD, .guest_port = 0 } },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (relayctl_put(b, sizeof(b), &t[i].m) != 0)
			fail_msg("%s: was said", t[i].why);
	}
	struct relayctl m = { .type = RELAYCTL_ALLOW };
	uint8_t pattern[RELAYCTL_PATTERN_MAX + 1];
	memset(pattern, 'a', sizeof(pattern));
	m.pattern = span_of(pattern, RELAYCTL_PATTERN_MAX);
	assert_true(relayctl_put(b, sizeof(b), &m) > 0);
	m.pattern.len++;
	assert_int_equal(relayctl_put(b, sizeof(b), &m), 0);
	m = (struct relayctl){ .type = RELAYCTL_LISTEN, .listen = { 1, false, 0, { 0 } } };
	m.listen.label = span_of(pattern, RELAYCTL_LABEL_MAX);
	assert_true(relayctl_put(b, sizeof(b), &m) > 0);
	m.listen.label.len++;
	assert_int_equal(relayctl_put(b, sizeof(b), &m), 0);
}

/* What parse() refuses to hear. */
static void test_lies(void **state UNUSED)
{
	static const struct {
		const char *why;
		size_t len;
		uint8_t b[24];
	} t[] = {
		{ "nothing", 0, { 0 } },
		{ "type alone", 2, { 32, 0 } },
		{ "number cut", 5, { 32, 0, 1, 0, 0 } },
		{ "once is 2", 17, { 5, 0, 1, 0, 0, 0, 1, 0, 2 } },
		{ "length over the end", 11, { 3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 'a' } },
		{ "length of 4 GiB", 11, { 1, 0, 1, 0, 0, 0, 255, 255, 255, 255, 'a' } },
		{ "lost, as an answer", 10, { 34, 0, 1, 0, 0, 0, 0, 0, 0, 0 } },
		{ "forward to port 0", 8, { 64, 0, 1, 0, 0, 0, 0, 0 } },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct relayctl m;
		if (relayctl_parse(&m, span_of(t[i].b, t[i].len)) != -EPROTO)
			fail_msg("%s: was accepted", t[i].why);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_lies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
