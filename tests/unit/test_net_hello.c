/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/hello.h"

#define L63 "a23456789012345678901234567890123456789012345678901234567890123"
#define L61 "a234567890123456789012345678901234567890123456789012345678901"
#define N253 L63 "." L63 "." L63 "." L61

static uint8_t msg[70000], in[70000];

static void be(struct wr *w, size_t v, size_t n)
{
	while (n-- > 0)
		wr_le(w, v >> 8 * n & 255, 1);
}

/* What of a ClientHello the tests bend. */
struct bend {
	struct span exts; /* the extensions, behind their common length */
	bool no_exts;     /* not even the length */
	size_t version, session, suites, methods;
};

static const struct bend plain = { .version = 0x0303, .session = 32, .suites = 4, .methods = 1 };

/* The message in msg. Return: its length. */
static size_t message(const struct bend *b)
{
	struct wr w = wr_of(msg, sizeof(msg));
	static const uint8_t zeros[256];

	be(&w, 1, 1);
	be(&w, 0, 3);
	be(&w, b->version, 2);
	wr_put(&w, zeros, 32);
	be(&w, b->session, 1);
	wr_put(&w, zeros, b->session);
	be(&w, b->suites, 2);
	wr_put(&w, zeros, b->suites);
	be(&w, b->methods, 1);
	wr_put(&w, zeros, b->methods);
	if (!b->no_exts) {
		be(&w, b->exts.len, 2);
		wr_put(&w, b->exts.p, b->exts.len);
	}
	assert_false(w.bad);
	size_t n = sizeof(msg) - w.left;
	w = wr_of(msg + 1, 3);
	be(&w, n - 4, 3);
	return n;
}

/* msg in records of @size bytes, in `in`. Return: bytes. */
static size_t records(size_t len, size_t size)
{
	struct wr w = wr_of(in, sizeof(in));

	for (size_t at = 0; at < len; at += size) {
		size_t n = MIN(size, len - at);

		be(&w, 0x160301, 3);
		be(&w, n, 2);
		wr_put(&w, msg + at, n);
	}
	assert_false(w.bad);
	return sizeof(in) - w.left;
}

static int parse_bent(const struct bend *b, struct hello *h)
{
	return hello_parse(h, span_of(in, records(message(b), 16384)));
}

static int parse_exts(struct span exts, struct hello *h)
{
	struct bend b = plain;

	b.exts = exts;
	return parse_bent(&b, h);
}

/* server_name with one entry */
static struct span sni(uint8_t *dst, size_t type, struct span name)
{
	struct wr w = wr_of(dst, 600);

	be(&w, 0, 2);
	be(&w, name.len + 5, 2);
	be(&w, name.len + 3, 2);
	be(&w, type, 1);
	be(&w, name.len, 2);
	wr_put(&w, name.p, name.len);
	assert_false(w.bad);
	return span_of(dst, 600 - w.left);
}

static void test_names(void **state UNUSED)
{
#define S(s)                                        \
	{                                           \
		(const uint8_t *)(s), sizeof(s) - 1 \
	}
	static const struct {
		const char *why;
		struct span name;
		const char *want; /* NULL: refused */
	} t[] = {
		{ "plain", S("api.example.com"), "api.example.com" },
		{ "upper case", S("API.Example.com"), "api.example.com" },
		{ "253 bytes", S(N253), N253 },
		{ "254 bytes", S(N253 "x"), NULL },
		{ "255 bytes", S(N253 "xy"), NULL },
		{ "empty", S(""), NULL },
		{ "NUL at the end", S("example.com\0"), NULL },
		{ "NUL inside", S("allowed.com\0.evil.com"), NULL },
		{ "final dot", S("example.com."), NULL },
		{ "address", S("10.0.0.1"), NULL },
		{ "v6 address", S("::1"), NULL },
		{ "port", S("example.com:443"), NULL },
		{ "space", S("example.com "), NULL },
		{ "wildcard", S("*.example.com"), NULL },
		{ "beyond ASCII",
		  S("b\xc3\xbc"
		    "cher.example"),
		  NULL },
		{ "punycode", S("xn--bcher-kva.example"), "xn--bcher-kva.example" },
	};
	uint8_t b[600];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct hello h = { .name = "unchanged" };
		int r = parse_exts(sni(b, 0, t[i].name), &h);

		if (r != (t[i].want ? 0 : -EPROTO))
			fail_msg("%s: %d", t[i].why, r);
		assert_string_equal(h.name, t[i].want ? t[i].want : "unchanged");
	}
	struct hello h;
	assert_int_equal(parse_exts(sni(b, 1, span_str("a.b")), &h), -EPROTO);
}

static void test_extensions(void **state UNUSED)
{
#define SNI_AB "\0\0\0\x08\0\x06\0\0\3a.b"
	static const struct {
		const char *why;
		int want;
		struct span exts;
		const char *name;
		bool ech, quic;
	} t[] = {
		{ "none", 0, S(""), "", false, false },
		{ "name", 0, S(SNI_AB), "a.b", false, false },
		{ "GREASE around it", 0, S("\x1a\x1a\0\0" SNI_AB "\xfa\xfa\0\1\0"), "a.b", false,
		  false },
		{ "two entries", -EPROTO, S("\0\0\0\x0e\0\x0c\0\0\3a.b\0\0\3c.d"), NULL, false,
		  false },
		{ "two of the same", -EPROTO, S("\0\0\0\x0e\0\x0c\0\0\3a.b\0\0\3a.b"), NULL, false,
		  false },
		{ "an entry of another type behind", -EPROTO,
		  S("\0\0\0\x0e\0\x0c\0\0\3a.b\1\0\3c.d"), NULL, false, false },
		{ "an entry of another type before", -EPROTO,
		  S("\0\0\0\x0e\0\x0c\1\0\3a.b\0\0\3c.d"), NULL, false, false },
		{ "twice", -EPROTO, S(SNI_AB SNI_AB), NULL, false, false },
		{ "twice, apart", -EPROTO, S(SNI_AB "\0\x10\0\0" SNI_AB), NULL, false, false },
		{ "another twice", -EPROTO, S(SNI_AB "\0\x10\0\0\0\x10\0\0"), NULL, false, false },
		{ "GREASE twice", -EPROTO, S("\x1a\x1a\0\0\x1a\x1a\0\0"), NULL, false, false },
		{ "no list", -EPROTO, S("\0\0\0\0"), NULL, false, false },
		{ "empty list", -EPROTO, S("\0\0\0\2\0\0"), NULL, false, false },
		{ "list too short", -EPROTO, S("\0\0\0\x08\0\x05\0\0\3a.b"), NULL, false, false },
		{ "list too long", -EPROTO, S("\0\0\0\x08\0\x07\0\0\3a.b"), NULL, false, false },
		{ "name too short", -EPROTO, S("\0\0\0\x08\0\x06\0\0\2a.b"), NULL, false, false },
		{ "name too long", -EPROTO, S("\0\0\0\x08\0\x06\0\0\4a.b"), NULL, false, false },
		{ "extension too long", -EPROTO, S("\0\0\0\x09\0\x06\0\0\3a.b"), NULL, false,
		  false },
		{ "a byte behind the list", -EPROTO, S("\0\0\0\x09\0\x06\0\0\3a.b\0"), NULL, false,
		  false },
		{ "extension too short", -EPROTO, S("\0\0\0\x07\0\x06\0\0\3a.b"), NULL, false,
		  false },
		{ "half an extension", -EPROTO, S(SNI_AB "\0\x10\0"), NULL, false, false },
		{ "ECH outer", 0, S(SNI_AB "\xfe\x0d\0\4\0\1\2\3"), "a.b", true, false },
		{ "ECH outer, no name", 0, S("\xfe\x0d\0\1\0"), "", true, false },
		{ "ECH inner", 0, S(SNI_AB "\xfe\x0d\0\1\1"), "a.b", false, false },
		{ "ECH inner with more", -EPROTO, S("\xfe\x0d\0\2\1\0"), NULL, false, false },
		{ "ECH of type 2", -EPROTO, S("\xfe\x0d\0\1\2"), NULL, false, false },
		{ "ECH without type", -EPROTO, S("\xfe\x0d\0\0"), NULL, false, false },
		{ "ESNI", 0, S("\xff\xce\0\1x"), "", true, false },
		{ "QUIC", 0, S(SNI_AB "\0\x39\0\0"), "a.b", false, true },
		{ "QUIC of the drafts", 0, S("\xff\xa5\0\1x"), "", false, true },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct hello h;
		int r = parse_exts(t[i].exts, &h);

		if (r != t[i].want)
			fail_msg("%s: %d", t[i].why, r);
		if (r == 0 &&
		    (strcmp(h.name, t[i].name) != 0 || h.ech != t[i].ech || h.quic != t[i].quic))
			fail_msg("%s: '%s' %d %d", t[i].why, h.name, h.ech, h.quic);
	}
}

static void test_bodies(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		struct bend b;
	} t[] = {
		{ "without extensions", 0, { { 0 }, true, 0x0301, 0, 2, 1 } },
		{ "version 3.0", 0, { { 0 }, false, 0x0300, 0, 2, 1 } },
		{ "version 2.0", -EPROTO, { { 0 }, false, 0x0200, 0, 2, 1 } },
		{ "DTLS", -EPROTO, { { 0 }, false, 0xfefd, 0, 2, 1 } },
		{ "session of 32", 0, { { 0 }, false, 0x0303, 32, 2, 1 } },
		{ "session of 33", -EPROTO, { { 0 }, false, 0x0303, 33, 2, 1 } },
		{ "no cipher suite", -EPROTO, { { 0 }, false, 0x0303, 0, 0, 1 } },
		{ "half a cipher suite", -EPROTO, { { 0 }, false, 0x0303, 0, 3, 1 } },
		{ "no compression method", -EPROTO, { { 0 }, false, 0x0303, 0, 2, 0 } },
	};
	struct hello h;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = parse_bent(&t[i].b, &h);

		if (r != t[i].want)
			fail_msg("%s: %d", t[i].why, r);
	}
	/* every cut of the body, said to be whole */
	size_t n = message(&plain);
	for (size_t len = 4; len < n; len++) {
		msg[2] = (uint8_t)((len - 4) >> 8);
		msg[3] = (uint8_t)(len - 4);
		/* only behind the compression methods, where extensions may be left out */
		int want = len == n - 2 ? 0 : -EPROTO;
		if (hello_parse(&h, span_of(in, records(len, 16384))) != want)
			fail_msg("a body of %zu bytes", len - 4);
	}
	/* a byte behind the extensions */
	n = message(&plain);
	msg[n] = 0;
	msg[3]++;
	assert_int_equal(hello_parse(&h, span_of(in, records(n + 1, 16384))), -EPROTO);
}

static void test_records(void **state UNUSED)
{
	struct bend b = plain;
	struct hello h;
	uint8_t ext[600];

	b.exts = sni(ext, 0, span_str("api.example.com"));
	size_t n = message(&b);
	for (size_t size = 1; size <= n; size++) {
		size_t len = records(n, size);

		memset(&h, 0xff, sizeof(h));
		if (hello_parse(&h, span_of(in, len)) != 0 ||
		    strcmp(h.name, "api.example.com") != 0)
			fail_msg("records of %zu bytes", size);
		for (size_t cut = 0; cut < len; cut++) {
			if (hello_parse(&h, span_of(in, cut)) != -EAGAIN ||
			    !hello_is_tls(span_of(in, cut)))
				fail_msg("records of %zu bytes, %zu bytes of it", size, cut);
		}
	}
	/* what follows is not looked at */
	size_t len = records(n, 16384);
	memset(in + len, 0xff, 100);
	assert_int_equal(hello_parse(&h, span_of(in, len + 100)), 0);

	static const struct {
		const char *why;
		int want;
		size_t at;
		uint8_t byte;
		bool tls;
	} t[] = {
		{ "alert", -EPROTO, 0, 21, false },
		{ "change of cipher", -EPROTO, 0, 20, false },
		{ "application data", -EPROTO, 0, 23, false },
		{ "SSL 2", -EPROTO, 0, 0x80, false },
		{ "major 2", -EPROTO, 1, 2, false },
		{ "major 4", -EPROTO, 1, 4, false },
		{ "any minor", 0, 2, 0xff, true },
		{ "ServerHello", -EPROTO, 5, 2, true },
		{ "HelloRequest", -EPROTO, 5, 0, true },
		{ "second record: alert", -EPROTO, 15, 21, true },
		{ "second record: major 2", -EPROTO, 16, 2, true },
		{ "second record of no bytes", -EPROTO, 19, 0, true },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		len = records(n, 10);
		in[t[i].at] = t[i].byte;
		int r = hello_parse(&h, span_of(in, len));
		if (r != t[i].want || hello_is_tls(span_of(in, len)) != t[i].tls)
			fail_msg("%s: %d", t[i].why, r);
		/* with no byte more than the one that is wrong */
		if (t[i].want && hello_parse(&h, span_of(in, t[i].at + 1)) != t[i].want)
			fail_msg("%s: late", t[i].why);
	}
	/* the record goes on behind the message: another message would hide there */
	len = records(n, 16384);
	in[4]++;
	assert_int_equal(hello_parse(&h, span_of(in, len + 1)), -EPROTO);
	assert_int_equal(hello_parse(&h, span_of(in, 9)), -EPROTO);
}

static void test_sizes(void **state UNUSED)
{
	struct hello h;
	static uint8_t exts[20000];

	/* a record of the largest size, and one byte more: both cannot be whole within the limit */
	static const struct {
		const char *why;
		int want;
		uint8_t b[9];
		size_t len;
	} t[] = {
		{ "record of 16384", -EAGAIN, { 22, 3, 1, 0x40, 0x00, 1, 0, 0x3f, 0xfc }, 9 },
		{ "record of 16385", -EPROTO, { 22, 3, 1, 0x40, 0x01 }, 5 },
		{ "record of 65535", -EPROTO, { 22, 3, 1, 0xff, 0xff }, 5 },
		{ "record of 0", -EPROTO, { 22, 3, 1, 0, 0 }, 5 },
		{ "message of the limit", -EAGAIN, { 22, 3, 1, 0, 4, 1, 0, 0x3f, 0xfc }, 9 },
		{ "message of one more", -EMSGSIZE, { 22, 3, 1, 0, 4, 1, 0, 0x3f, 0xfd }, 9 },
		{ "message of 16 MiB", -EMSGSIZE, { 22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff }, 9 },
		{ "message of no bytes", -EPROTO, { 22, 3, 1, 0, 4, 1, 0, 0, 0 }, 9 },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = hello_parse(&h, span_of(t[i].b, t[i].len));
		if (r != t[i].want)
			fail_msg("%s: %d", t[i].why, r);
	}

	/* messages whose end is just within what is looked at, and just not */
	for (size_t over = 0; over < 3; over++) {
		struct bend b = plain;
		size_t base = 5 + 4 + 2 + 32 + 1 + 32 + 2 + 4 + 1 + 1 + 2;

		b.exts = span_of(exts, HELLO_BYTES_MAX - 1 - base + over);
		struct wr w = wr_of(exts, 4);
		be(&w, 0x15, 2); /* padding */
		be(&w, b.exts.len - 4, 2);
		size_t len = records(message(&b), 16384);
		int want = over < 2 ? 0 : -EMSGSIZE;
		assert_int_equal(len, HELLO_BYTES_MAX - 1 + over);
		if (hello_parse(&h, span_of(in, len)) != want)
			fail_msg("%zu bytes", len);
		assert_int_equal(hello_parse(&h, span_of(in, HELLO_BYTES_MAX - 2)), -EAGAIN);
		assert_int_equal(hello_parse(&h, span_of(in, len + 100)), want);
	}
}

static void test_is_tls(void **state UNUSED)
{
	assert_true(hello_is_tls((struct span){ 0 }));
	assert_true(hello_is_tls(span_str("\x16")));
	assert_true(hello_is_tls(span_str("\x16\x03")));
	assert_true(hello_is_tls(span_str("\x16\x03\x04")));
	assert_false(hello_is_tls(span_str("\x15")));
	assert_false(hello_is_tls(span_str("\x16\x02\x01")));
	assert_false(hello_is_tls(span_str("GET / HTTP/1.1")));
	assert_false(hello_is_tls(span_str("SSH-2.0-x")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),  cmocka_unit_test(test_extensions),
		cmocka_unit_test(test_bodies), cmocka_unit_test(test_records),
		cmocka_unit_test(test_sizes),  cmocka_unit_test(test_is_tls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
