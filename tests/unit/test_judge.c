/* SPDX-License-Identifier: Apache-2.0 */
/* Every reason to refuse, and what passes: each row at once, cut at every byte, and ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/judge.h"

enum {
	ONE = IP4(203, 0, 113, 1),   /* a.test, b.test */
	TWO = IP4(203, 0, 113, 2),   /* c.test */
	OTHER = IP4(203, 0, 113, 9), /* nobody's */
};

static struct egress *policy;
static struct pins *pins;

static void no_op(void *arg UNUSED, uint32_t addr UNUSED, uint16_t port UNUSED)
{
}

static const struct pins_ops ops = { .open = no_op, .close = no_op };

static void allow(struct egress *e, const char *pattern)
{
	struct egress_rule r = { .origin = EGRESS_FROM_FLAG };

	assert_int_equal(host_pattern_parse(&r.host, span_str(pattern), NULL), 0);
	assert_int_equal(egress_add(e, &r), 0);
}

static void pin(uint32_t addr, const char *name)
{
	uint16_t ports[PINS_PORTS_MAX];
	size_t n = egress_ports(policy, name, ports, PINS_PORTS_MAX);

	pins_add(pins, addr, name, ports, n, 300, 0);
}

static int set_up(void **state UNUSED)
{
	policy = egress_new(EGRESS_STANDARD);
	pins = pins_new(PINS_MAX, &ops, NULL);
	allow(policy, "a.test:443");
	allow(policy, "a.test:80");
	allow(policy, "b.test:443");
	allow(policy, "c.test:443");
	allow(policy, "c.test:80");
	allow(policy, "a.test:22");
	allow(policy, "d.test:443");
	assert_int_equal(egress_add_service(policy, 3000), 0);
	pin(ONE, "a.test");
	pin(ONE, "b.test");
	pin(TWO, "c.test");
	return 0;
}

static int tear_down(void **state UNUSED)
{
	pins_free(pins);
	egress_free(policy);
	return 0;
}

/* ---- first bytes -------------------------------------------------------------------- */

static uint8_t b[JUDGE_BYTES_MAX + 1];

static size_t put(size_t at, const void *p, size_t n)
{
	memcpy(b + at, p, n);
	return at + n;
}

static size_t be(size_t at, size_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		b[at + i] = (uint8_t)(v >> 8 * (n - 1 - i));
	return at + n;
}

/* A ClientHello with @name (NULL: none) and one more extension without data (0: none). */
static size_t hello(const char *name, unsigned extension, uint8_t data)
{
	size_t len = name ? strlen(name) : 0;
	size_t ext = (name ? 9 + len : 0) + (extension ? 5 : 0);
	size_t body = 2 + 32 + 1 + 4 + 2 + 2 + ext, at = 0;

	at = put(at, "\x16\x03\x01", 3);
	at = be(at, body + 4, 2);
	at = be(at, 1, 1);
	at = be(at, body, 3);
	at = be(at, 0x0303, 2);
	memset(b + at, 7, 32);
	at = be(at + 32, 0, 1);
	at = put(at, "\x00\x02\x13\x01", 4);
	at = put(at, "\x01\x00", 2);
	at = be(at, ext, 2);
	if (name) {
		at = be(at, 0, 2);
		at = be(at, len + 5, 2);
		at = be(at, len + 3, 2);
		at = be(at, 0, 1);
		at = be(at, len, 2);
		at = put(at, name, len);
	}
	if (extension) {
		at = be(at, extension, 2);
		at = be(at, 1, 2);
		at = be(at, data, 1);
	}
	return at;
}

static struct judge_out judge(uint32_t addr, uint16_t port, size_t n, bool ended)
{
	struct judge_in in = { .policy = policy, .pins = pins, .addr = addr, .port = port };
	struct judge_out o;

	judge_bytes(&o, &in, span_of(b, n), ended);
	return o;
}

/*
 * What is decided early is decided as it is with all bytes, so it does not matter how
 * a client cuts them; and an end makes a verdict of every MORE.
 */
static struct judge_out judge_all(const char *why, uint32_t addr, uint16_t port, size_t n)
{
	struct judge_out all = judge(addr, port, n, false);

	for (size_t k = 0; k < n; k++) {
		struct judge_out o = judge(addr, port, k, false);

		if (o.verdict != VERDICT_MORE &&
		    (o.verdict != all.verdict || o.why != all.why || strcmp(o.name, all.name) != 0))
			fail_msg("%s: %zu bytes say %d %s, all say %d %s", why, k, o.verdict,
			         why_name(o.why), all.verdict, why_name(all.why));
		if (judge(addr, port, k, true).verdict == VERDICT_MORE)
			fail_msg("%s: undecided at the end of %zu bytes", why, k);
	}
	return all;
}

static void check(const char *why, const struct judge_out *o, enum why want, const char *name)
{
	enum verdict v = want == WHY_NONE ? VERDICT_ALLOW : VERDICT_REFUSE;

	if (o->verdict != v || o->why != want)
		fail_msg("%s: verdict %d %s, want %d %s", why, o->verdict, why_name(o->why), v,
		         why_name(want));
	if (name && strcmp(o->name, name) != 0)
		fail_msg("%s: name '%s', want '%s'", why, o->name, name);
}

static void test_tls(void **state UNUSED)
{
	static const struct {
		const char *why, *name;
		uint32_t addr;
		uint16_t port;
		enum why want;
	} t[] = {
		{ "an allowed name", "a.test", ONE, 443, WHY_NONE },
		{ "the other one of this address", "b.test", ONE, 443, WHY_NONE },
		{ "upper case", "A.Test", ONE, 443, WHY_NONE },
		{ "not allowed", "evil.test", ONE, 443, WHY_NAME },
		{ "not allowed on this port", "b.test", ONE, 80, WHY_NAME },
		{ "TLS where HTTP is usual", "a.test", ONE, 80, WHY_NONE },
		{ "of another address", "c.test", ONE, 443, WHY_MISMATCH },
		{ "never resolved", "d.test", ONE, 443, WHY_MISMATCH },
		{ "no server name", NULL, ONE, 443, WHY_NO_NAME },
		{ "an address for a name", "203.0.113.1", ONE, 443, WHY_MALFORMED },
		{ "a trailing dot", "a.test.", ONE, 443, WHY_MALFORMED },
		{ "an address that nobody's answer gave", "a.test", OTHER, 443, WHY_LITERAL },
		{ "on a raw port", "a.test", ONE, 22, WHY_NONE },
		{ "another one on a raw port", "evil.test", ONE, 22, WHY_NAME },
		{ "none on a raw port", NULL, ONE, 22, WHY_NO_NAME },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct judge_out o =
			judge_all(t[i].why, t[i].addr, t[i].port, hello(t[i].name, 0, 0));
		check(t[i].why, &o, t[i].want, NULL);
		if (t[i].want == WHY_NONE)
			assert_int_equal(o.proto, PROTO_TLS);
	}
	struct judge_out o = judge_all("ECH", ONE, 443, hello("a.test", 0xfe0d, 0));
	check("ECH of type outer", &o, WHY_ECH, "a.test");
	o = judge_all("QUIC", ONE, 443, hello("a.test", 0x39, 0));
	check("QUIC's parameters", &o, WHY_PROTOCOL, NULL);
	/* the pin is over */
	struct judge_in in = { .policy = policy, .pins = pins, .addr = ONE, .port = 443 };
	in.now_ms = 360 * 1000 - 1;
	judge_bytes(&o, &in, span_of(b, hello("a.test", 0, 0)), false);
	check("just before the end of the pin", &o, WHY_NONE, "a.test");
	in.now_ms++;
	judge_bytes(&o, &in, span_of(b, hello("a.test", 0, 0)), false);
	check("at the end of the pin", &o, WHY_LITERAL, NULL);
}

static void test_http(void **state UNUSED)
{
	static const struct {
		const char *why, *text;
		uint32_t addr;
		uint16_t port;
		enum why want;
	} t[] = {
		{ "plain", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", ONE, 80, WHY_NONE },
		{ "with its port", "GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\n", ONE, 80, WHY_NONE },
		{ "with another port", "GET / HTTP/1.1\r\nHost: a.test:81\r\n\r\n", ONE, 80,
		  WHY_PORT },
		{ "another name", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", ONE, 80, WHY_NAME },
		{ "of another address", "GET / HTTP/1.1\r\nHost: c.test\r\n\r\n", ONE, 80,
		  WHY_MISMATCH },
		{ "an address", "GET / HTTP/1.1\r\nHost: 203.0.113.1\r\n\r\n", ONE, 80,
		  WHY_LITERAL },
		{ "1.0 without Host", "GET / HTTP/1.0\r\n\r\n", ONE, 80, WHY_NO_NAME },
		{ "1.1 without Host", "GET / HTTP/1.1\r\n\r\n", ONE, 80, WHY_MALFORMED },
		{ "two hosts", "GET / HTTP/1.1\r\nHost: a.test\r\nHost: evil.test\r\n\r\n", ONE, 80,
		  WHY_MALFORMED },
		{ "absolute URI, another host",
		  "GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", ONE, 80,
		  WHY_MALFORMED },
		{ "absolute URI of a proxy",
		  "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", ONE, 80, WHY_NAME },
		{ "absolute URI", "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", ONE, 80,
		  WHY_NONE },
		{ "CONNECT", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", ONE, 80,
		  WHY_CONNECT },
		{ "CONNECT to elsewhere",
		  "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", ONE, 80,
		  WHY_CONNECT },
		{ "WebSocket",
		  "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: "
		  "WebSocket\r\n\r\n",
		  ONE, 80, WHY_NONE },
		{ "h2c",
		  "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
		  ONE, 80, WHY_MALFORMED },
		{ "TLS by upgrade",
		  "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: "
		  "TLS/1.0\r\n\r\n",
		  ONE, 80, WHY_MALFORMED },
		{ "two of them",
		  "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket, "
		  "h2c\r\n\r\n",
		  ONE, 80, WHY_MALFORMED },
		{ "WebSocket with a body",
		  "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: "
		  "websocket\r\nContent-Length: 1\r\n\r\n",
		  ONE, 80, WHY_MALFORMED },
		{ "HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ONE, 80, WHY_HTTP2 },
		{ "HTTP/2 on a raw port", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ONE, 22, WHY_HTTP2 },
		{ "a bare LF", "GET / HTTP/1.1\nHost: a.test\n\n", ONE, 80, WHY_MALFORMED },
		{ "0.9", "GET /\r\n", ONE, 80, WHY_PROTOCOL },
		{ "on the port of TLS", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", ONE, 443,
		  WHY_NONE },
		{ "on a raw port", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", ONE, 22, WHY_NONE },
		{ "another name on a raw port", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", ONE,
		  22, WHY_NAME },
		{ "empty lines before it, on a raw port",
		  "\r\n\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", ONE, 22, WHY_MALFORMED },
		{ "odd spaces, on a raw port", "GET  /  HTTP/1.1\r\nHost: evil.test\r\n\r\n", ONE,
		  22, WHY_MALFORMED },
		{ "an unknown method, on a raw port", "FOO / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		  ONE, 22, WHY_NAME },
		{ "a tunnel on a raw port",
		  "CONNECT evil.test:1 HTTP/1.1\r\nHost: evil.test:1\r\n\r\n", ONE, 22,
		  WHY_CONNECT },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct judge_out o = judge_all(t[i].why, t[i].addr, t[i].port,
		                               put(0, t[i].text, strlen(t[i].text)));
		check(t[i].why, &o, t[i].want, NULL);
		if (t[i].want == WHY_NONE)
			assert_int_equal(o.proto, PROTO_HTTP);
	}
}

static void test_raw(void **state UNUSED)
{
	static const struct {
		const char *why, *text;
		size_t n;
		uint16_t port;
		enum verdict verdict;
		enum why want;
	} t[] = {
		{ "SSH", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", 40, 22, VERDICT_ALLOW,
		  WHY_NONE },
		{ "SSH, no raw port", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", 40, 443,
		  VERDICT_REFUSE, WHY_PROTOCOL },
		{ "git", "0032git-upload-pack /p\0host=a\0", 30, 22, VERDICT_ALLOW, WHY_NONE },
		{ "bytes", "\0\1\2", 3, 22, VERDICT_ALLOW, WHY_NONE },
		{ "bytes, no raw port", "\0\1\2", 3, 443, VERDICT_REFUSE, WHY_PROTOCOL },
		{ "SMTP", "EHLO me\r\n", 9, 22, VERDICT_ALLOW, WHY_NONE },
		{ "a word", "hello", 5, 22, VERDICT_MORE, WHY_NONE },
		{ "a request that goes on", "GET /aaaa", 9, 22, VERDICT_MORE, WHY_NONE },
		{ "nothing", "", 0, 22, VERDICT_MORE, WHY_NONE },
		{ "empty lines", "\r\n\r\n", 4, 22, VERDICT_MORE, WHY_NONE },
		{ "like TLS and not", "\x16\x04", 2, 22, VERDICT_ALLOW, WHY_NONE },
		{ "TLS that is none", "\x16\x03\x01\x00\x01x", 6, 22, VERDICT_REFUSE,
		  WHY_MALFORMED },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct judge_out o = judge_all(t[i].why, ONE, t[i].port, put(0, t[i].text, t[i].n));
		if (o.verdict != t[i].verdict || o.why != t[i].want)
			fail_msg("%s: %d %s", t[i].why, o.verdict, why_name(o.why));
	}
	/* what only listens is let through where a server may speak first, and not elsewhere */
	struct judge_out o = judge(ONE, 22, 0, true);
	check("silent on a raw port", &o, WHY_NONE, "a.test");
	o = judge(ONE, 443, 0, true);
	check("silent elsewhere", &o, WHY_ENDED, NULL);
	assert_true(judge(ONE, 22, 0, false).raw);
	assert_false(judge(ONE, 443, 0, false).raw);
	o = judge(ONE, 22, put(0, "hello", 5), true);
	check("a word and the end", &o, WHY_NONE, "a.test");
}

static void test_limits(void **state UNUSED)
{
	static const struct {
		const char *why, *begin;
		uint16_t port;
	} t[] = {
		{ "HTTP", "GET / HTTP/1.1\r\nX: ", 80 },
		{ "the first line", "GET /", 80 },
		{ "the first line, raw", "GET /", 22 },
		{ "a word", "", 443 },
		{ "a word, raw", "", 22 },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		memset(b, 'a', sizeof(b));
		(void)put(0, t[i].begin, strlen(t[i].begin));
		struct judge_out o = judge(ONE, t[i].port, JUDGE_BYTES_MAX - 1, false);
		if (o.verdict != VERDICT_MORE)
			fail_msg("%s: %s below the limit", t[i].why, why_name(o.why));
		o = judge(ONE, t[i].port, JUDGE_BYTES_MAX, false);
		check(t[i].why, &o, WHY_TOO_LONG, NULL);
	}
	/* a hello that says to be longer than what is looked at */
	memset(b, 0, sizeof(b));
	size_t n = put(0, "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11);
	assert_true(n < 16384);
	struct judge_out o = judge(ONE, 443, JUDGE_BYTES_MAX, false);
	assert_int_equal(o.verdict, VERDICT_REFUSE);
}

static struct judge_out dest(const struct egress *e, uint32_t addr, uint16_t port)
{
	struct judge_in in = { .policy = e, .pins = pins, .addr = addr, .port = port };
	struct judge_out o;

	judge_dest(&o, &in);
	return o;
}

static void test_destination(void **state UNUSED)
{
	static const struct {
		uint32_t addr;
		uint16_t port;
		enum why want;
		const char *detail;
	} t[] = {
		{ IP4(127, 0, 0, 1), 443, WHY_CLOSED, "loopback" },
		{ IP4(10, 0, 0, 1), 443, WHY_CLOSED, "private" },
		{ IP4(172, 31, 255, 255), 443, WHY_CLOSED, "private" },
		{ IP4(192, 168, 0, 1), 443, WHY_CLOSED, "private" },
		{ IP4(169, 254, 169, 254), 80, WHY_CLOSED, "metadata" },
		{ IP4(169, 254, 1, 1), 80, WHY_CLOSED, "link-local" },
		{ IP4(224, 0, 0, 1), 80, WHY_CLOSED, "multicast" },
		{ IP4(255, 255, 255, 255), 80, WHY_CLOSED, "broadcast" },
		{ IP4(0, 0, 0, 0), 80, WHY_CLOSED, "this-network" },
		{ IP4(100, 64, 0, 1), 80, WHY_CLOSED, "shared-space" },
		{ ONE, 25, WHY_PORT, NULL },
		{ OTHER, 443, WHY_LITERAL, NULL },
		{ JUDGE_SERVICE_ADDR, 3001, WHY_SERVICE, NULL },
		{ JUDGE_SERVICE_ADDR, 3000, WHY_NONE, NULL },
		{ JUDGE_SERVICE_ADDR + 1, 3000, WHY_CLOSED, "private" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct judge_out o = dest(policy, t[i].addr, t[i].port);
		check("destination", &o, t[i].want, NULL);
		assert_true(t[i].detail ? o.detail && strcmp(o.detail, t[i].detail) == 0
		                        : !o.detail);
	}
	assert_int_equal(dest(policy, ONE, 443).verdict, VERDICT_MORE);
	/* permissive: all but the closed ones */
	struct egress *e = egress_new(EGRESS_PERMISSIVE);
	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(10, 0, 0, 0), 8 }), 0);
	struct judge_out o = dest(e, OTHER, 12345);
	check("permissive", &o, WHY_NONE, "");
	o = dest(e, ONE, 12345);
	check("permissive, a name", &o, WHY_NONE, NULL);
	assert_true(o.name[0]);
	o = dest(e, IP4(127, 0, 0, 1), 443);
	check("permissive, loopback", &o, WHY_CLOSED, NULL);
	o = dest(e, ONE, 25);
	check("permissive, mail", &o, WHY_PORT, NULL);
	o = dest(e, IP4(10, 1, 2, 3), 443);
	check("permissive, an opened range", &o, WHY_NONE, NULL);
	o = dest(e, IP4(10, 87, 1, 1), 443);
	check("permissive, sandboxes in an opened range", &o, WHY_CLOSED, NULL);
	const char *detail;
	struct judge_in in = { .policy = e, .pins = pins, .addr = OTHER, .port = 5353 };
	assert_int_equal(judge_datagram(&in, &detail), WHY_NONE);
	in.addr = IP4(224, 0, 0, 251);
	assert_int_equal(judge_datagram(&in, &detail), WHY_MULTICAST);
	in.addr = UINT32_MAX;
	assert_int_equal(judge_datagram(&in, &detail), WHY_MULTICAST);
	in.addr = IP4(192, 168, 1, 1);
	assert_int_equal(judge_datagram(&in, &detail), WHY_CLOSED);
	in.policy = policy;
	in.addr = OTHER;
	assert_int_equal(judge_datagram(&in, &detail), WHY_PROTOCOL);
	assert_int_equal(judge_answer(e, IP4(10, 87, 0, 2), &detail), WHY_REBINDING);
	assert_int_equal(judge_answer(e, OTHER, &detail), WHY_NONE);
	egress_free(e);
}

/* The second request of a connection. */
static void test_later_heads(void **state UNUSED)
{
	static const struct {
		const char *why, *text;
		enum why want;
		uint64_t now_ms;
	} t[] = {
		{ "the same name", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", WHY_NONE, 0 },
		{ "the same, its pin is over", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", WHY_NONE,
		  1000000 },
		{ "another", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", WHY_NAME, 0 },
		{ "of another address", "GET / HTTP/1.1\r\nHost: c.test\r\n\r\n", WHY_MISMATCH, 0 },
		{ "an upgrade",
		  "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: "
		  "websocket\r\n\r\n",
		  WHY_UPGRADE, 0 },
		{ "CONNECT", "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n", WHY_CONNECT,
		  0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct judge_in in = { .policy = policy,
			               .pins = pins,
			               .addr = ONE,
			               .port = 80,
			               .now_ms = t[i].now_ms };
		struct http1_head h;
		struct judge_out o;

		assert_int_equal(http1_head_parse(&h, span_str(t[i].text), true), 0);
		judge_head(&o, &in, &h, "a.test");
		check(t[i].why, &o, t[i].want, NULL);
	}
}

static void test_words(void **state UNUSED)
{
	for (unsigned w = 0; w < WHYS; w++) {
		assert_non_null(why_name((enum why)w));
		for (unsigned v = 0; v < w; v++)
			assert_string_not_equal(why_name((enum why)w), why_name((enum why)v));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tls),         cmocka_unit_test(test_http),
		cmocka_unit_test(test_raw),         cmocka_unit_test(test_limits),
		cmocka_unit_test(test_destination), cmocka_unit_test(test_later_heads),
		cmocka_unit_test(test_words),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
