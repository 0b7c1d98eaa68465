/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "guest/selftest.h"

/* As a resolver makes it of our question. */
static size_t answer(uint8_t *b, uint16_t id, uint8_t bits)
{
	static const uint8_t record[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 198, 51, 100 };
	size_t n = selftest_question(b, id);

	b[2] = 0x81;
	b[3] = 0x80;
	b[7] = 1;
	memcpy(b + n, record, sizeof(record));
	n += sizeof(record);
	b[n++] = bits;
	return n;
}

static void test_answer(void **state UNUSED)
{
	static const struct {
		const char *why;
		size_t at;
		uint8_t value;
		bool want;
	} t[] = {
		{ "as it should be", 0, 0x12, true },
		{ "another question's", 1, 0x35, false },
		{ "a question", 2, 0x01, false },
		{ "authoritative", 2, 0x85, true },
		{ "cut", 2, 0x83, false },
		{ "another opcode", 2, 0x89, false },
		{ "no such name", 3, 0x83, false },
		{ "without recursion", 3, 0x00, true },
		{ "no question", 5, 0, false },
		{ "two answers", 7, 2, false },
		{ "no answer", 7, 0, false },
		{ "authority", 9, 1, false },
		{ "additional", 11, 1, false },
		{ "another name", 13, 'S', false },
		{ "another class of the question", 32, 3, false },
		{ "another name of the record", 34, 13, false },
		{ "AAAA", 36, 28, false },
		{ "another class", 38, 3, false },
		{ "five bytes", 44, 5, false },
		{ "197.51.100", 45, 197, false },
		{ "198.52.100", 46, 52, false },
		{ "198.51.101", 47, 101, false },
	};
	uint8_t b[SELFTEST_BYTES_MAX + 32];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		size_t n = answer(b, 0x1234, 31);
		b[t[i].at] = t[i].value;
		int got = selftest_answer(span_of(b, n), 0x1234);
		if (got != (t[i].want ? 31 : -EPROTO))
			fail_msg("%s: %d", t[i].why, got);
	}
	for (unsigned bits = 0; bits < 256; bits++) {
		size_t n = answer(b, 7, (uint8_t)bits);
		assert_int_equal(selftest_answer(span_of(b, n), 7), bits);
	}
	size_t n = answer(b, 7, 31);
	for (size_t cut = 0; cut < n; cut++)
		assert_int_equal(selftest_answer(span_of(b, cut), 7), -EPROTO);
	b[n] = 0;
	assert_int_equal(selftest_answer(span_of(b, n + 1), 7), -EPROTO);
}

static uint16_t sum(const uint8_t *p, size_t n, uint32_t s)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		s += (uint32_t)(p[i] << 8 | p[i + 1]);
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)s;
}

/* What is sent is whole, so that a way out would carry it. */
static void test_packets(void **state UNUSED)
{
	static const uint8_t to[6] = { 2, 0xc1, 0x0c, 0, 0, 1 }, from[6] = { 2, 1, 2, 3, 4, 5 };
	uint8_t b[SELFTEST_BYTES_MAX];

	size_t n = selftest_echo(b, 0xc10c);
	assert_int_equal(b[0], 8);
	assert_int_equal(sum(b, n, 0), 0xffff);
	n = selftest_ipv6(b, to, from);
	assert_int_equal(n, 14 + 40 + 12);
	assert_memory_equal(b, to, 6);
	assert_memory_equal(b + 6, from, 6);
	assert_int_equal(sum(b + 54, 12, sum(b + 22, 32, 12 + 17)), 0xffff);
	/* addressed to 2001:db8::1, so not from there */
	assert_false(selftest_is_ipv6_answer(span_of(b, n)));
	uint8_t a[16];
	memcpy(a, b + 22, 16);
	memcpy(b + 22, b + 38, 16);
	memcpy(b + 38, a, 16);
	assert_true(selftest_is_ipv6_answer(span_of(b, n)));
	assert_true(selftest_is_ipv6_answer(span_of(b, 54)));
	assert_false(selftest_is_ipv6_answer(span_of(b, 53)));
	b[20] = 58; /* ICMPv6 */
	assert_false(selftest_is_ipv6_answer(span_of(b, n)));
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_packets),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
