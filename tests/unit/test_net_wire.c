/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "lib/dns_read.h"
#include "wire/dns.h"
#include "wire/netmsg.h"

#define L63 "a23456789012345678901234567890123456789012345678901234567890123"
#define L61 "a234567890123456789012345678901234567890123456789012345678901"
#define N253 L63 "." L63 "." L63 "." L61

/* ---- messages between net and relay ---- */

static struct netmsg question(const char *name)
{
	return (struct netmsg){ .type = NETMSG_QUESTION, .question.name = span_str(name) };
}

static void test_netmsg_limits(void **state UNUSED)
{
	static const uint8_t bytes[NETMSG_DATAGRAM_MAX + 1];
	static uint8_t b[NETMSG_BYTES_MAX + 64];
	const struct {
		const char *why;
		bool ok;
		struct netmsg m;
	} t[] = {
		{ "question", true, question("a.example.com") },
		{ "name of 253 bytes", true, question(N253) },
		{ "name of 254 bytes", false, question(N253 "x") },
		{ "no name", false, question("") },
		{ "upper case", false, question("A.example.com") },
		{ "final dot", false, question("a.example.com.") },
		{ "address", false, question("10.0.0.1") },
		{ "last id", true, { NETMSG_QUESTION, .question = { 255, 1, span_str("a") } } },
		{ "id beyond", false, { NETMSG_QUESTION, .question = { 256, 1, span_str("a") } } },
		{ "flow", true, { NETMSG_FLOW, .flow = { 0, 1, 65535 } } },
		{ "flow to port 0", false, { NETMSG_FLOW, .flow = { 1, 0, 1 } } },
		{ "flow from port 0", false, { NETMSG_FLOW, .flow = { 1, 1, 0 } } },
		{ "first reason", true, { NETMSG_DROPPED, .dropped = { 1, 0, 0, 0, 1 } } },
		{ "last reason",
		  true,
		  { NETMSG_DROPPED, .dropped = { NETMSG_DROPS - 1, 255, 1, 65535, UINT32_MAX } } },
		{ "reason 0", false, { NETMSG_DROPPED, .dropped = { 0, 6, 1, 1, 1 } } },
		{ "reason beyond",
		  false,
		  { NETMSG_DROPPED, .dropped = { NETMSG_DROPS, 6, 1, 1, 1 } } },
		{ "none dropped", false, { NETMSG_DROPPED, .dropped = { 1, 6, 1, 1, 0 } } },
		{ "empty datagram",
		  true,
		  { NETMSG_DATAGRAM, .datagram = { 1, 2, 3, span_of(bytes, 0) } } },
		{ "largest datagram",
		  true,
		  { NETMSG_DATAGRAM,
		    .datagram = { 1, 2, 3, span_of(bytes, NETMSG_DATAGRAM_MAX) } } },
		{ "datagram too large",
		  false,
		  { NETMSG_DATAGRAM,
		    .datagram = { 1, 2, 3, span_of(bytes, NETMSG_DATAGRAM_MAX + 1) } } },
		{ "datagram to port 0",
		  false,
		  { NETMSG_DATAGRAM, .datagram = { 1, 2, 0, span_of(bytes, 1) } } },
		{ "datagram from port 0",
		  false,
		  { NETMSG_DATAGRAM, .datagram = { 0, 2, 3, span_of(bytes, 1) } } },
		{ "no such record", true, { NETMSG_ANSWER, .answer = { 255, 0, 0, 0, { 0 } } } },
		{ "most addresses",
		  true,
		  { NETMSG_ANSWER,
		    .answer = { 1, 0, UINT32_MAX, NETMSG_ADDRS_MAX, { 7, 8, 9 } } } },
		{ "an address more",
		  false,
		  { NETMSG_ANSWER, .answer = { 1, 0, 60, NETMSG_ADDRS_MAX + 1, { 0 } } } },
		{ "id of an answer beyond",
		  false,
		  { NETMSG_ANSWER, .answer = { 256, 0, 60, 0, { 0 } } } },
		{ "no such name", true, { NETMSG_ANSWER, .answer = { 1, 3, 60, 0, { 0 } } } },
		{ "no such name, with an address",
		  false,
		  { NETMSG_ANSWER, .answer = { 1, 3, 60, 1, { 1 } } } },
		{ "failure", true, { NETMSG_ANSWER, .answer = { 1, 2, 0, 0, { 0 } } } },
		{ "refused", true, { NETMSG_ANSWER, .answer = { 1, 5, 0, 0, { 0 } } } },
		{ "no code of ours", false, { NETMSG_ANSWER, .answer = { 1, 1, 0, 0, { 0 } } } },
		{ "open", true, { NETMSG_OPEN, .open = { 1, 1 } } },
		{ "open port 0", false, { NETMSG_OPEN, .open = { 1, 0 } } },
		{ "close every port", true, { NETMSG_CLOSE, .open = { 1, 0 } } },
		{ "type 0", false, { 0, .flow = { 1, 1, 1 } } },
		{ "type 5", false, { 5, .flow = { 1, 1, 1 } } },
		{ "type 31", false, { 31, .flow = { 1, 1, 1 } } },
		{ "type 35", false, { 35, .flow = { 1, 1, 1 } } },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct netmsg m;
		size_t n = netmsg_put(b, sizeof(b), &t[i].m);

		if ((n != 0) != t[i].ok)
			fail_msg("%s: %zu bytes", t[i].why, n);
		if (n == 0)
			continue;
		if (netmsg_put(b, n - 1, &t[i].m) != 0 || n > NETMSG_BYTES_MAX)
			fail_msg("%s: room", t[i].why);
		if (netmsg_parse(&m, span_of(b, n)) != 0 || m.type != t[i].m.type)
			fail_msg("%s: not read", t[i].why);
		if (netmsg_parse(&m, span_of(b, n - 1)) != -EPROTO)
			fail_msg("%s: a part was enough", t[i].why);
		b[n] = 0;
		if (netmsg_parse(&m, span_of(b, n + 1)) != -EPROTO)
			fail_msg("%s: and a byte", t[i].why);
	}
}

static void test_netmsg_values(void **state UNUSED)
{
	uint8_t b[NETMSG_BYTES_MAX];
	struct netmsg in = question("a.b"), m;

	in.question.id = 7;
	in.question.qtype = 28;
	size_t n = netmsg_put(b, sizeof(b), &in);
	static const uint8_t want[] = { 1, 0, 7, 0, 28, 0, 3, 'a', '.', 'b' };
	assert_int_equal(n, sizeof(want));
	assert_memory_equal(b, want, n);
	assert_int_equal(netmsg_parse(&m, span_of(b, n)), 0);
	assert_true(m.question.id == 7 && m.question.qtype == 28);
	assert_true(span_eq(m.question.name, span_str("a.b")));

	in = (struct netmsg){ NETMSG_ANSWER, .answer = { 9, 0, 300, 2, { 0x01020304, 5 } } };
	n = netmsg_put(b, sizeof(b), &in);
	assert_int_equal(netmsg_parse(&m, span_of(b, n)), 0);
	assert_true(m.answer.id == 9 && m.answer.rcode == 0 && m.answer.ttl_s == 300);
	assert_true(m.answer.n == 2 && m.answer.addrs[0] == 0x01020304 && m.answer.addrs[1] == 5);

	in = (struct netmsg){ NETMSG_DROPPED, .dropped = { NETMSG_DROP_ICMP, 1, 2, 3, 4 } };
	n = netmsg_put(b, sizeof(b), &in);
	assert_int_equal(netmsg_parse(&m, span_of(b, n)), 0);
	assert_true(m.dropped.why == NETMSG_DROP_ICMP && m.dropped.proto == 1 &&
	            m.dropped.addr == 2 && m.dropped.port == 3 && m.dropped.count == 4);

	in = (struct netmsg){ NETMSG_DATAGRAM, .datagram = { 1, 2, 3, span_str("payload") } };
	n = netmsg_put(b, sizeof(b), &in);
	assert_int_equal(netmsg_parse(&m, span_of(b, n)), 0);
	assert_true(m.datagram.guest_port == 1 && m.datagram.addr == 2 && m.datagram.port == 3);
	assert_true(span_eq(m.datagram.payload, span_str("payload")));

	in = (struct netmsg){ NETMSG_FLOW, .flow = { 0x0a570001, 443, 50000 } };
	n = netmsg_put(b, sizeof(b), &in);
	assert_int_equal(netmsg_parse(&m, span_of(b, n)), 0);
	assert_true(m.flow.addr == 0x0a570001 && m.flow.port == 443 && m.flow.guest_port == 50000);

	in = (struct netmsg){ NETMSG_CLOSE, .open = { 0x0a570001, 443 } };
	n = netmsg_put(b, sizeof(b), &in);
	assert_int_equal(netmsg_parse(&m, span_of(b, n)), 0);
	assert_true(m.type == NETMSG_CLOSE && m.open.addr == 0x0a570001 && m.open.port == 443);
	assert_int_equal(netmsg_parse(&m, (struct span){ 0 }), -EPROTO);
}

static void test_netmsg_names(void **state UNUSED)
{
	assert_null(netmsg_drop_name(0));
	for (unsigned i = 1; i < NETMSG_DROPS; i++) {
		assert_non_null(netmsg_drop_name(i));
		for (unsigned k = 1; k < i; k++)
			assert_string_not_equal(netmsg_drop_name(i), netmsg_drop_name(k));
	}
	assert_null(netmsg_drop_name(NETMSG_DROPS));
	assert_null(netmsg_drop_name(UINT32_MAX));
	assert_string_equal(netmsg_drop_name(NETMSG_DROP_SPOOFED), "spoofed");
}

/* ---- DNS ---- */

/* A question built by hand: header words, name as text, type and class, tail. */
struct ask {
	uint16_t flags, qd, an, ns, ar;
	const char *name;
	uint16_t type, class;
	const char *tail;
	size_t tail_len;
};

static void put16(uint8_t **p, unsigned v)
{
	*(*p)++ = (uint8_t)(v >> 8);
	*(*p)++ = (uint8_t)v;
}

static size_t ask_put(uint8_t *b, const struct ask *a)
{
	uint8_t *p = b;

	put16(&p, 0xbeef);
	put16(&p, a->flags);
	put16(&p, a->qd);
	put16(&p, a->an);
	put16(&p, a->ns);
	put16(&p, a->ar);
	for (const char *s = a->name; *s;) {
		size_t n = strcspn(s, ".");

		*p++ = (uint8_t)n;
		memcpy(p, s, n);
		p += n;
		s += n + (s[n] == '.');
	}
	*p++ = 0;
	put16(&p, a->type);
	put16(&p, a->class);
	memcpy(p, a->tail, a->tail_len);
	return (size_t)(p - b) + a->tail_len;
}

#define OPT(size, ttl, len) "\0\0\x29" size ttl len

static void test_dns_questions(void **state UNUSED)
{
#define TAIL(s) s, sizeof(s) - 1
#define RD 0x0100
	static const struct {
		const char *why;
		bool ok;
		struct ask a;
	} t[] = {
		{ "plain", true, { RD, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "without RD", true, { 0, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "AD and CD", true, { 0x0130, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "a response", false, { 0x8100, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "opcode STATUS", false, { 0x1100, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "opcode UPDATE", false, { 0x2800, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "AA", false, { 0x0500, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "truncated", false, { 0x0300, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "RA", false, { 0x0180, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "Z", false, { 0x0140, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "a code", false, { 0x0103, 1, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "no question", false, { RD, 0, 0, 0, 0, "example.com", 1, 1, TAIL("") } },
		{ "two questions",
		  false,
		  { RD, 2, 0, 0, 0, "example.com", 1, 1, TAIL("\1a\0\0\1\0\1") } },
		{ "an answer",
		  false,
		  { RD, 1, 1, 0, 0, "a", 1, 1, TAIL("\1a\0\0\1\0\1\0\0\0\0\0\4\1\2\3\4") } },
		{ "an authority",
		  false,
		  { RD, 1, 0, 1, 0, "a", 1, 1, TAIL("\1a\0\0\1\0\1\0\0\0\0\0\4\1\2\3\4") } },
		{ "class CH", false, { RD, 1, 0, 0, 0, "version.bind", 16, 3, TAIL("") } },
		{ "class ANY", false, { RD, 1, 0, 0, 0, "example.com", 1, 255, TAIL("") } },
		{ "any type", true, { RD, 1, 0, 0, 0, "example.com", 255, 1, TAIL("") } },
		{ "the root", true, { RD, 1, 0, 0, 0, "", 2, 1, TAIL("") } },
		{ "253 bytes", true, { RD, 1, 0, 0, 0, N253, 1, 1, TAIL("") } },
		{ "254 bytes", false, { RD, 1, 0, 0, 0, N253 "x", 1, 1, TAIL("") } },
		{ "label of 63", true, { RD, 1, 0, 0, 0, L63, 1, 1, TAIL("") } },
		{ "label of 64", false, { RD, 1, 0, 0, 0, L63 "x", 1, 1, TAIL("") } },
		{ "hyphens anywhere are for the policy",
		  true,
		  { RD, 1, 0, 0, 0, "-a.b-", 1, 1, TAIL("") } },
		{ "space", false, { RD, 1, 0, 0, 0, "a b.c", 1, 1, TAIL("") } },
		{ "beyond ASCII", false, { RD, 1, 0, 0, 0, "\xc3\xbc.c", 1, 1, TAIL("") } },
		{ "wildcard", false, { RD, 1, 0, 0, 0, "*.c", 1, 1, TAIL("") } },
		{ "a byte behind", false, { RD, 1, 0, 0, 0, "a", 1, 1, TAIL("\0") } },
		{ "EDNS",
		  true,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\0")) } },
		{ "EDNS, options",
		  true,
		  { RD, 1, 0, 0, 1, "a", 1, 1,
		    TAIL(OPT("\x04\xd0", "\0\0\x80\0", "\0\x0a") "\0\x0c\0\2xy\0\x0a\0\0") } },
		{ "EDNS, an option cut short",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1,
		    TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\5") "\0\x0c\0\2x") } },
		{ "EDNS, half an option",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\1") "\0") } },
		{ "EDNS, data cut short",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\4")) } },
		{ "EDNS, a byte behind",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\0") "x") } },
		{ "EDNS version 1",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL(OPT("\x04\xd0", "\0\1\0\0", "\0\0")) } },
		{ "EDNS with a code",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL(OPT("\x04\xd0", "\1\0\0\0", "\0\0")) } },
		{ "EDNS of a name",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL("\1a\0\0\x29\x04\xd0\0\0\0\0\0\0") } },
		{ "EDNS that is not counted",
		  false,
		  { RD, 1, 0, 0, 0, "a", 1, 1, TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\0")) } },
		{ "EDNS that is missing", false, { RD, 1, 0, 0, 1, "a", 1, 1, TAIL("") } },
		{ "EDNS, two counted",
		  false,
		  { RD, 1, 0, 0, 2, "a", 1, 1, TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\0")) } },
		{ "EDNS twice",
		  false,
		  { RD, 1, 0, 0, 2, "a", 1, 1,
		    TAIL(OPT("\x04\xd0", "\0\0\0\0", "\0\0")
		                 OPT("\x04\xd0", "\0\0\0\0", "\0\0")) } },
		{ "an address there",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL("\0\0\1\0\1\0\0\0\0\0\4\1\2\3\4") } },
		{ "TSIG",
		  false,
		  { RD, 1, 0, 0, 1, "a", 1, 1, TAIL("\0\0\xfa\0\xff\0\0\0\0\0\0") } },
	};
	uint8_t b[1024];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct dns_question q;
		size_t n = ask_put(b, &t[i].a);
		int r = dns_question_parse(&q, span_of(b, n));

		if (r != (t[i].ok ? 0 : -EPROTO))
			fail_msg("%s: %d", t[i].why, r);
		if (r < 0)
			continue;
		assert_int_equal(q.id, 0xbeef);
		assert_int_equal(q.qtype, t[i].a.type);
		assert_int_equal(q.rd, (t[i].a.flags & RD) != 0);
		assert_int_equal(q.edns, t[i].a.ar);
		assert_string_equal(q.asked, t[i].a.name);
		for (size_t cut = 0; cut < n; cut++) {
			if (dns_question_parse(&q, span_of(b, cut)) != -EPROTO)
				fail_msg("%s: %zu bytes were enough", t[i].why, cut);
		}
	}
}

/* Bytes that no text form has: pointers, dots and NULs in labels. */
static void test_dns_names(void **state UNUSED)
{
	static const struct {
		const char *why, *name;
		size_t len;
	} t[] = {
		{ "pointer to itself", TAIL("\xc0\x0c") },
		{ "pointer to the header", TAIL("\xc0\x00") },
		{ "pointer forward", TAIL("\xc0\x12") },
		{ "pointer behind a label", TAIL("\1a\xc0\x0c") },
		{ "label type 01", TAIL("\x41" L63 "x\0") },
		{ "label type 10", TAIL("\x81x\0") },
		{ "dot in a label", TAIL("\3a.b\0") },
		{ "NUL in a label", TAIL("\3a\0b\0") },
		{ "escape in a label", TAIL("\4\\046\0") },
		{ "no end", TAIL("\1a") },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		static const uint8_t header[12] = { 0, 1, 1, 0, 0, 1 };
		struct dns_question q;
		uint8_t b[128], *p = b;

		memcpy(p, header, 12);
		memcpy(p + 12, t[i].name, t[i].len);
		p += 12 + t[i].len;
		put16(&p, 1);
		put16(&p, 1);
		if (dns_question_parse(&q, span_of(b, (size_t)(p - b))) != -EPROTO)
			fail_msg("%s", t[i].why);
	}
}

static struct dns_question ask(const char *name, uint16_t type, const char *tail, size_t len)
{
	struct ask a = { RD, 1, 0, 0, len ? 1 : 0, name, type, 1, tail, len };
	struct dns_question q;
	uint8_t b[1024];

	assert_int_equal(dns_question_parse(&q, span_of(b, ask_put(b, &a))), 0);
	return q;
}

static void test_dns_sizes(void **state UNUSED)
{
	static const struct {
		const char *size;
		unsigned want;
	} t[] = {
		{ "\0\0", 512 },      { "\x01\xff", 512 },  { "\x02\x00", 512 },
		{ "\x02\x01", 513 },  { "\x04\xcf", 1231 }, { "\x04\xd0", 1232 },
		{ "\x04\xd1", 1232 }, { "\xff\xff", 1232 },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		char tail[11] = "\0\0\x29";

		memcpy(tail + 3, t[i].size, 2);
		struct dns_question q = ask("a", 1, tail, sizeof(tail));
		assert_int_equal(q.udp_max, t[i].want);
	}
	assert_int_equal(ask("a", 1, "", 0).udp_max, 512);
}

static void test_dns_answers(void **state UNUSED)
{
	static const char opt[] = OPT("\xff\xff", "\0\0\x80\0", "\0\0");
	uint8_t b[2048];
	struct dns_read d;
	struct dns_answer a = { .ttl_s = 0x12345678, .n = DNS_ADDRS_MAX };

	for (size_t i = 0; i < a.n; i++)
		a.addrs[i] = 0x0a000000u + (uint32_t)i;
	/* the case of the letters comes back */
	struct dns_question q = ask("aPi.Example.COM", 1, "", 0);
	assert_string_equal(q.name, "api.example.com");
	size_t n = dns_answer_put(b, sizeof(b), &q, &a);
	assert_true(n && dns_read_response(&d, b, n));
	assert_string_equal(d.qname, "aPi.Example.COM");
	assert_int_equal(d.id, 0xbeef);
	assert_int_equal(d.flags, 0x8180);
	assert_int_equal(d.n_a, DNS_ADDRS_MAX);
	assert_int_equal(d.addr[15], 0x0a00000f);
	assert_int_equal(d.ttl[15], 0x12345678);
	assert_false(d.opt);
	/* addresses answer A alone, and only success */
	q.qtype = DNS_TYPE_AAAA;
	n = dns_answer_put(b, sizeof(b), &q, &a);
	assert_true(n && dns_read_response(&d, b, n) && d.n_a == 0 && d.qtype == DNS_TYPE_AAAA);
	q.qtype = DNS_TYPE_A;
	a.rcode = DNS_NXDOMAIN;
	q.rd = false;
	n = dns_answer_put(b, sizeof(b), &q, &a);
	assert_true(n && dns_read_response(&d, b, n) && d.n_a == 0 && d.flags == 0x8083);
	a.rcode = DNS_NOERROR;
	/* what does not fit is left out, without TC; EDNS is said back */
	q = ask(N253, 1, "", 0);
	n = dns_answer_put(b, sizeof(b), &q, &a);
	assert_true(n && n <= 512 && n > 512 - 16 && dns_read_response(&d, b, n));
	assert_int_equal(d.n_a, (512 - 12 - 255 - 4) / 16);
	assert_int_equal(d.flags, 0x8180);
	q = ask(N253, 1, opt, sizeof(opt) - 1);
	n = dns_answer_put(b, sizeof(b), &q, &a);
	assert_true(n && dns_read_response(&d, b, n) && d.n_a == DNS_ADDRS_MAX);
	assert_true(d.opt && d.opt_do && d.opt_size == DNS_EDNS_MAX);
	/* room: all but the addresses, or nothing */
	size_t bare = 12 + 255 + 4 + 11;
	assert_int_equal(dns_answer_put(b, bare - 1, &q, &a), 0);
	assert_int_equal(dns_answer_put(b, bare, &q, &a), bare);
	assert_int_equal(dns_answer_put(b, bare + 15, &q, &a), bare);
	assert_int_equal(dns_answer_put(b, bare + 16, &q, &a), bare + 16);
	assert_int_equal(dns_answer_put(b, 0, &q, &a), 0);
	/* the root, and values that are ours to get right */
	q = ask("", 1, "", 0);
	n = dns_answer_put(b, sizeof(b), &q, &a);
	assert_true(n && dns_read_response(&d, b, n) && d.qname[0] == '\0');
	a.n = DNS_ADDRS_MAX + 1;
	assert_int_equal(dns_answer_put(b, sizeof(b), &q, &a), 0);
	a.n = 0;
	a.rcode = 16;
	assert_int_equal(dns_answer_put(b, sizeof(b), &q, &a), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_netmsg_limits), cmocka_unit_test(test_netmsg_values),
		cmocka_unit_test(test_netmsg_names),  cmocka_unit_test(test_dns_questions),
		cmocka_unit_test(test_dns_names),     cmocka_unit_test(test_dns_sizes),
		cmocka_unit_test(test_dns_answers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
