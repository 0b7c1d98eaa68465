/* SPDX-License-Identifier: Apache-2.0 */
/* Pins, resolv.conf and hosts, answers of servers, and the lines of the event log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/ip.h"
#include "event/loop.h"
#include "relay/answer.h"
#include "relay/events.h"
#include "relay/pins.h"
#include "relay/resolvconf.h"

/* ---- pins ---------------------------------------------------------------------- */

static char told[4096]; /* "+ADDR:PORT " and "-ADDR:PORT ", addresses by their last byte */

static void tell(char sign, uint32_t addr, uint16_t port)
{
	size_t n = strlen(told);

	(void)snprintf(told + n, sizeof(told) - n, "%c%u:%u ", sign, addr & 255, port);
}

static void on_open(void *arg UNUSED, uint32_t addr, uint16_t port)
{
	tell('+', addr, port);
}

static void on_close(void *arg UNUSED, uint32_t addr, uint16_t port)
{
	tell('-', addr, port);
}

static const struct pins_ops ops = { .open = on_open, .close = on_close };

#define TOLD(text)                               \
	do {                                     \
		assert_string_equal(told, text); \
		told[0] = '\0';                  \
	} while (0)

enum { X = IP4(203, 0, 113, 1), Y = IP4(203, 0, 113, 2) };

static void test_pins_life(void **state UNUSED)
{
	static const uint16_t https[] = { 443 }, both[] = { 443, 22 };
	struct pins *p = pins_new(PINS_MAX, &ops, NULL);
	uint64_t end = (PINS_TTL_MIN_S + PINS_GRACE_S) * 1000;

	told[0] = '\0';
	pins_add(p, X, "a.test", https, 1, PINS_TTL_MIN_S, 0);
	TOLD("+1:443 ");
	/* the same address by another name opens what is not open yet */
	pins_add(p, X, "b.test", both, 2, 40, 0);
	TOLD("+1:22 ");
	assert_non_null(pins_find(p, X, "a.test", end - 1));
	assert_null(pins_find(p, X, "a.test", end));
	assert_null(pins_find(p, Y, "a.test", 0));
	assert_null(pins_find(p, X, "c.test", 0));
	pins_sweep(p, end - 1);
	assert_int_equal(pins_count(p), 2);
	pins_sweep(p, end);
	assert_int_equal(pins_count(p), 1);
	TOLD(""); /* b.test holds 443 open */
	/* asked again: it lives longer, not shorter */
	pins_add(p, X, "b.test", both, 2, PINS_TTL_MIN_S, 0);
	pins_sweep(p, end + 9999);
	assert_int_equal(pins_count(p), 1);
	pins_sweep(p, end + 10000);
	assert_int_equal(pins_count(p), 0);
	TOLD("-1:443 -1:22 ");
	pins_free(p);
}

static void test_pins_ttl(void **state UNUSED)
{
	static const struct {
		uint64_t in;
		uint32_t out;
	} t[] = {
		{ 0, 30 },
		{ 29, 30 },
		{ 30, 30 },
		{ 31, 31 },
		{ 3599, 3599 },
		{ 3600, 3600 },
		{ 3601, 3600 },
		{ 1000000, 3600 },
		{ UINT32_MAX, 3600 },
		{ UINT64_MAX, 3600 },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(pins_ttl_s(t[i].in), t[i].out);
}

static void test_pins_cap(void **state UNUSED)
{
	static const uint16_t https[] = { 443 };
	struct pins *p = pins_new(3, &ops, NULL);

	told[0] = '\0';
	pins_add(p, X, "a.test", https, 1, 100, 0);
	pins_add(p, X, "b.test", https, 1, 50, 0);
	pins_add(p, Y, "c.test", https, 1, 200, 0);
	assert_int_equal(pins_count(p), 3);
	/* one over: what expires first goes */
	pins_add(p, Y, "d.test", https, 1, 300, 0);
	assert_int_equal(pins_count(p), 3);
	assert_null(pins_find(p, X, "b.test", 0));
	assert_non_null(pins_find(p, X, "a.test", 0));
	TOLD("+1:443 +2:443 ");
	/* one that is there needs no room */
	pins_add(p, X, "a.test", https, 1, 100, 0);
	assert_int_equal(pins_count(p), 3);
	pins_free(p);
	/* the real size: 20,000 names, and not more than PINS_MAX of them held */
	p = pins_new(PINS_MAX, &ops, NULL);
	for (unsigned i = 0; i < 20000; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "n%u.test", i);
		pins_add(p, IP4(198, 51, 100, 0) + i % 256, name, https, 1, i % 4000, 0);
		told[0] = '\0';
	}
	assert_int_equal(pins_count(p), PINS_MAX);
	pins_free(p);
}

static int ports_of(void *arg UNUSED, const char *name, uint16_t *out)
{
	if (strcmp(name, "gone.test") == 0)
		return -1;
	out[0] = 8443;
	out[1] = 443;
	return 2;
}

static void test_pins_refresh(void **state UNUSED)
{
	static const uint16_t ports[] = { 443, 22 };
	struct pins *p = pins_new(PINS_MAX, &ops, NULL);
	size_t n = 0;

	told[0] = '\0';
	pins_add(p, X, "stays.test", ports, 2, 60, 0);
	pins_add(p, Y, "gone.test", ports, 2, 60, 0);
	pins_add(p, X, "gone.test", ports, 2, 60, 0);
	TOLD("+1:443 +1:22 +2:443 +2:22 ");
	pins_refresh(p, ports_of, NULL);
	assert_null(strstr(told, "+1:443")); /* it was never closed */
	assert_non_null(strstr(told, "+1:8443"));
	assert_non_null(strstr(told, "-1:22"));
	assert_non_null(strstr(told, "-2:443"));
	for (const struct pin *q = NULL; (q = pins_next(p, X, q, 0));)
		n++;
	assert_int_equal(n, 1);
	assert_null(pins_next(p, Y, NULL, 0));
	assert_null(pins_next(p, X, NULL, 1000000));
	pins_free(p);
}

/* ---- resolv.conf and hosts -------------------------------------------------------- */

static void test_resolvconf(void **state UNUSED)
{
	static const struct {
		const char *why, *text,
			*want; /* servers;search;ndots timeout attempts vc left_out */
	} t[] = {
		{ "nothing", "", "127.0.0.1;;1 5 2 0 0" },
		{ "one", "nameserver 192.0.2.1\n", "192.0.2.1;;1 5 2 0 0" },
		{ "no newline at the end", "nameserver 192.0.2.1", "192.0.2.1;;1 5 2 0 0" },
		{ "CR, tabs and more words", "nameserver\t192.0.2.1 x\r\n",
		  "192.0.2.1;;1 5 2 0 0" },
		{ "IPv6", "nameserver 2001:db8::1\nnameserver 192.0.2.1\n",
		  "2001:db8::1,192.0.2.1;;1 5 2 0 0" },
		{ "a scope is left out", "nameserver fe80::1%eth0\nnameserver 192.0.2.1\n",
		  "192.0.2.1;;1 5 2 0 1" },
		{ "no address", "nameserver 192.0.2.256\nnameserver 010.0.0.1\nnameserver x\n",
		  "127.0.0.1;;1 5 2 0 3" },
		{ "comments", "# nameserver 192.0.2.9\n;nameserver 192.0.2.8\n",
		  "127.0.0.1;;1 5 2 0 0" },
		{ "search", "search a.test B.test. bad..name -x\n",
		  "127.0.0.1;a.test,b.test;1 5 2 0 0" },
		{ "the last of search and domain counts",
		  "search a.test b.test\ndomain c.test d.test\n", "127.0.0.1;c.test;1 5 2 0 0" },
		{ "a lone dot", "search .\n", "127.0.0.1;;1 5 2 0 0" },
		{ "options", "options ndots:2 timeout:3 attempts:4 use-vc rotate\n",
		  "127.0.0.1;;2 3 4 1 0" },
		{ "options at their caps", "options ndots:15 timeout:30 attempts:5\n",
		  "127.0.0.1;;15 30 5 0 0" },
		{ "options over their caps", "options ndots:16 timeout:99999999999999 attempts:6\n",
		  "127.0.0.1;;15 30 5 0 0" },
		{ "options of zero", "options ndots:0 timeout:0 attempts:0\n",
		  "127.0.0.1;;0 1 1 0 0" },
		{ "options that are none", "options ndots: timeout:x attempts:-1\n",
		  "127.0.0.1;;1 5 2 0 0" },
		{ "nine servers",
		  "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n"
		  "nameserver 192.0.2.4\nnameserver 192.0.2.5\nnameserver 192.0.2.6\n"
		  "nameserver 192.0.2.7\nnameserver 192.0.2.8\nnameserver 192.0.2.9\n",
		  "192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4,192.0.2.5,192.0.2.6,192.0.2.7,192.0.2.8;"
		  ";"
		  "1 5 2 0 1" },
		{ "other lines", "sortlist 1.2.3.4\nnameservers 1.2.3.4\n\n \n",
		  "127.0.0.1;;1 5 2 0 0" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct resolvconf c;
		char got[1024];
		int n = 0;

		resolvconf_parse(&c, span_str(t[i].text));
		for (size_t k = 0; k < c.n_servers; k++)
			n += snprintf(got + n, sizeof(got) - (size_t)n, "%s%s", k ? "," : "",
			              c.servers[k]);
		n += snprintf(got + n, sizeof(got) - (size_t)n, ";");
		for (size_t k = 0; k < c.n_search; k++)
			n += snprintf(got + n, sizeof(got) - (size_t)n, "%s%s", k ? "," : "",
			              c.search[k]);
		(void)snprintf(got + n, sizeof(got) - (size_t)n, ";%u %u %u %d %u", c.ndots,
		               c.timeout_s, c.attempts, c.use_vc, c.left_out);
		if (strcmp(got, t[i].want) != 0)
			fail_msg("%s: got %s, want %s", t[i].why, got, t[i].want);
	}
	/* a NUL is no address */
	struct resolvconf c;
	resolvconf_parse(&c, span_of("nameserver 192.0.2.1\0x\n", 23));
	assert_int_equal(c.left_out, 1);
}

static void candidates(const char *conf, const char *name, char *got, size_t cap)
{
	struct resolvconf c;
	char out[HOST_NAME_BYTES];
	size_t n = 0;

	resolvconf_parse(&c, span_str(conf));
	got[0] = '\0';
	for (size_t i = 0; resolvconf_candidate(&c, name, i, out); i++)
		n += (size_t)snprintf(got + n, cap - n, "%s ", out);
}

static void test_candidates(void **state UNUSED)
{
	static const struct {
		const char *conf, *name, *want;
	} t[] = {
		{ "", "a", "a " },
		{ "search x.test y.test", "a", "a.x.test a.y.test a " },
		{ "search x.test y.test", "a.b", "a.b a.b.x.test a.b.y.test " },
		{ "search x.test\noptions ndots:2", "a.b", "a.b.x.test a.b " },
		{ "search x.test\noptions ndots:0", "a", "a a.x.test " },
	};
	char got[4096], name[HOST_NAME_BYTES];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		candidates(t[i].conf, t[i].name, got, sizeof(got));
		assert_string_equal(got, t[i].want);
	}
	/* 246 bytes and ".x.test" are 253, the most that there is; one more is left out */
	for (size_t i = 0; i < 247; i++)
		name[i] = i % 50 == 49 ? '.' : 'a';
	name[246] = '\0';
	candidates("search x.test", name, got, sizeof(got));
	assert_int_equal(strlen(got), 246 + 1 + 253 + 1);
	name[246] = 'a';
	name[247] = '\0';
	candidates("search x.test", name, got, sizeof(got));
	assert_int_equal(strlen(got), 247 + 1);
}

static void test_hosts(void **state UNUSED)
{
	static const char text[] = "# a.test\n127.0.0.1 localhost\n"
				   "192.0.2.1 a.test b.test # c.test\r\n"
				   "192.0.2.2\tA.TEST\n"
				   "2001:db8::1 a.test six.test\n"
				   "192.0.2.300 bad.test\n"
				   "192.0.2.4 a.testing";
	static const struct {
		const char *name;
		bool known;
		size_t n;
	} t[] = {
		{ "a.test", true, 2 },    { "b.test", true, 1 },   { "c.test", false, 0 },
		{ "six.test", true, 0 },  { "bad.test", true, 0 }, { "a.tes", false, 0 },
		{ "a.testing", true, 1 }, { "", false, 0 },
	};
	uint32_t got[HOSTS_ADDRS_MAX];
	bool known;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		size_t n = hosts_find(span_str(text), t[i].name, got, &known);
		if (n != t[i].n || known != t[i].known)
			fail_msg("%s: %zu, %d", t[i].name, n, known);
	}
	assert_int_equal(hosts_find(span_str(text), "a.test", got, NULL), 2);
	assert_int_equal(got[1], IP4(192, 0, 2, 2));
	assert_int_equal(hosts_find(span_of(NULL, 0), "a.test", got, &known), 0);
	char many[32 * 20] = "";
	for (int i = 0; i < HOSTS_ADDRS_MAX + 1; i++)
		(void)snprintf(many + strlen(many), 20, "192.0.2.%d m\n", i);
	assert_int_equal(hosts_find(span_str(many), "m", got, NULL), HOSTS_ADDRS_MAX);
}

/* ---- answers of servers ------------------------------------------------------------ */

struct msg {
	uint8_t b[4096];
	size_t n;
};

static void put16(struct msg *m, unsigned v)
{
	m->b[m->n++] = (uint8_t)(v >> 8);
	m->b[m->n++] = (uint8_t)v;
}

static void put_name(struct msg *m, const char *name)
{
	while (*name) {
		size_t n = strcspn(name, ".");

		m->b[m->n++] = (uint8_t)n;
		memcpy(m->b + m->n, name, n);
		m->n += n;
		name += n + (name[n] == '.');
	}
	m->b[m->n++] = 0;
}

static void put_head(struct msg *m, unsigned flags, const char *name)
{
	m->n = 0;
	put16(m, 1);
	put16(m, flags);
	put16(m, 1);
	for (int i = 0; i < 3; i++)
		put16(m, 0);
	put_name(m, name);
	put16(m, 1);
	put16(m, 1);
}

static void put_record(struct msg *m, const char *owner, unsigned type, uint32_t ttl,
                       const void *data, size_t n)
{
	put_name(m, owner);
	put16(m, type);
	put16(m, 1);
	put16(m, ttl >> 16);
	put16(m, ttl & 0xffff);
	put16(m, (unsigned)n);
	memcpy(m->b + m->n, data, n);
	m->n += n;
	m->b[7]++; /* answers */
}

static void put_a(struct msg *m, const char *owner, uint32_t ttl, uint8_t last)
{
	put_record(m, owner, 1, ttl, (uint8_t[]){ 203, 0, 113, last }, 4);
}

static void put_alias(struct msg *m, const char *owner, uint32_t ttl, const char *target)
{
	struct msg t = { .n = 0 };

	put_name(&t, target);
	put_record(m, owner, 5, ttl, t.b, t.n);
}

static struct msg msg;
static struct answer ans;

static int parsed(const char *name)
{
	ans = (struct answer){ 0 };
	return answer_parse(&ans, span_of(msg.b, msg.n), name);
}

static void test_answer_plain(void **state UNUSED)
{
	put_head(&msg, 0x8180, "A.Test");
	put_a(&msg, "a.tesT", 300, 1);
	put_a(&msg, "a.test", 200, 2);
	assert_int_equal(parsed("a.test"), 0);
	assert_int_equal(ans.n, 2);
	assert_int_equal(ans.addrs[0], IP4(203, 0, 113, 1));
	assert_int_equal(ans.ttl_s, 200);
	assert_int_equal(parsed("b.test"), -EPROTO);
	for (size_t n = 0; n < msg.n; n++)
		assert_int_equal(answer_parse(&ans, span_of(msg.b, n), "a.test"), -EPROTO);
	/* a negative TTL is none (RFC 2181 8) */
	put_a(&msg, "a.test", 0x80000000u, 3);
	assert_int_equal(parsed("a.test"), 0);
	assert_int_equal(ans.ttl_s, 0);
	put_head(&msg, 0x8183, "a.test");
	assert_int_equal(parsed("a.test"), 0);
	assert_int_equal(ans.rcode, 3);
	put_head(&msg, 0x8180, "a.test");
	assert_int_equal(parsed("a.test"), 0);
	assert_int_equal(ans.n, 0);
}

static void test_answer_refused(void **state UNUSED)
{
	static const struct {
		const char *why;
		size_t at;
		uint8_t v;
	} t[] = {
		{ "a question", 2, 0x01 },
		{ "another opcode", 2, 0x91 },
		{ "cut", 2, 0x83 },
		{ "two questions", 5, 2 },
		{ "no question", 5, 0 },
		{ "more records than there are", 7, 2 },
		{ "too many records", 6, 3 },
		{ "another type", 12 + 8 + 1, 28 },
		{ "another class", 12 + 8 + 3, 3 },
		{ "an address of five bytes", 12 + 8 + 4 + 8 + 9, 5 },
		{ "a label's length with a reserved bit", 12 + 8 + 4, 0x41 },
		{ "a pointer forward", 12 + 8 + 4, 0xc0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		put_head(&msg, 0x8180, "a.test");
		put_a(&msg, "a.test", 300, 1);
		assert_int_equal(parsed("a.test"), 0);
		msg.b[t[i].at] = t[i].v;
		if (strstr(t[i].why, "forward"))
			msg.b[t[i].at + 1] = (uint8_t)(t[i].at + 4);
		if (parsed("a.test") != -EPROTO)
			fail_msg("%s: was accepted", t[i].why);
	}
}

static void test_answer_chain(void **state UNUSED)
{
	/* in any order; the lowest TTL of the chain */
	put_head(&msg, 0x8180, "a.test");
	put_a(&msg, "c.test", 300, 1);
	put_alias(&msg, "b.test", 40, "c.test");
	put_alias(&msg, "a.test", 100, "b.test");
	assert_int_equal(parsed("a.test"), 0);
	assert_int_equal(ans.n, 1);
	assert_int_equal(ans.chain, 2);
	assert_int_equal(ans.ttl_s, 40);
	/* injected: no record leads from the question to them */
	put_head(&msg, 0x8180, "a.test");
	put_a(&msg, "evil.test", 300, 9);
	put_alias(&msg, "other.test", 300, "a.test");
	put_a(&msg, "a.test", 300, 1);
	put_a(&msg, "test", 300, 8);
	put_a(&msg, "a.test.test", 300, 7);
	assert_int_equal(parsed("a.test"), 0);
	assert_int_equal(ans.n, 1);
	assert_int_equal(ans.addrs[0], IP4(203, 0, 113, 1));
	/* an alias and an address of one owner: the alias counts */
	put_head(&msg, 0x8180, "a.test");
	put_a(&msg, "a.test", 300, 9);
	put_alias(&msg, "a.test", 300, "b.test");
	put_a(&msg, "b.test", 300, 1);
	assert_int_equal(parsed("a.test"), 0);
	assert_int_equal(ans.n, 1);
	assert_int_equal(ans.addrs[0], IP4(203, 0, 113, 1));
	/* two aliases that differ */
	put_head(&msg, 0x8180, "a.test");
	put_alias(&msg, "a.test", 300, "b.test");
	put_alias(&msg, "a.test", 300, "c.test");
	assert_int_equal(parsed("a.test"), -EPROTO);
	/* a loop */
	put_head(&msg, 0x8180, "a.test");
	put_alias(&msg, "a.test", 300, "b.test");
	put_alias(&msg, "b.test", 300, "a.test");
	assert_int_equal(parsed("a.test"), -EPROTO);
	/* an alias with bytes behind its name */
	put_head(&msg, 0x8180, "a.test");
	put_record(&msg, "a.test", 5, 300, "\1b\0x", 4);
	assert_int_equal(parsed("a.test"), -EPROTO);
}

static void test_answer_limits(void **state UNUSED)
{
	for (int extra = -1; extra <= 1; extra++) {
		int links = ANSWER_CHAIN_MAX + extra;
		char a[16] = "a.test", b[16];

		put_head(&msg, 0x8180, "a.test");
		for (int i = 0; i < links; i++) {
			(void)snprintf(b, sizeof(b), "n%d.test", i);
			put_alias(&msg, a, 300, b);
			memcpy(a, b, sizeof(a));
		}
		put_a(&msg, a, 300, 1);
		assert_int_equal(parsed("a.test"), extra > 0 ? -EPROTO : 0);
	}
	for (int n = ANSWER_ADDRS_MAX - 1; n <= ANSWER_ADDRS_MAX + 1; n++) {
		put_head(&msg, 0x8180, "a.test");
		for (int i = 0; i < n; i++)
			put_a(&msg, "a.test", 300, (uint8_t)i);
		assert_int_equal(parsed("a.test"), 0);
		assert_int_equal(ans.n, MIN(n, (int)ANSWER_ADDRS_MAX));
	}
	/* pointers: 32 of them for one name, each to the one before */
	for (int jumps = 31; jumps <= 33; jumps++) {
		put_head(&msg, 0x8180, "a.test");
		/* the data of a record that nobody asks for holds the ladder */
		uint8_t ladder[128];
		size_t base = msg.n + 1 + 10;
		for (int i = 0; i < jumps; i++) {
			size_t to = i == 0 ? 12 : base + 2 * (size_t)(i - 1);
			ladder[2 * i] = (uint8_t)(0xc0 | to >> 8);
			ladder[2 * i + 1] = (uint8_t)to;
		}
		put_record(&msg, "", 16, 300, ladder, 2 * (size_t)jumps);
		size_t last = base + 2 * (size_t)(jumps - 2);
		put16(&msg, 0xc000u | (unsigned)last); /* jumps in all, with this one */
		put16(&msg, 1);
		put16(&msg, 1);
		put16(&msg, 0);
		put16(&msg, 300);
		put16(&msg, 4);
		put16(&msg, 203 << 8);
		put16(&msg, 113 << 8 | 5);
		msg.b[7]++;
		assert_int_equal(parsed("a.test"), jumps <= 32 ? 0 : -EPROTO);
		if (jumps <= 32)
			assert_int_equal(ans.n, 1);
	}
}

/* ---- the event log ------------------------------------------------------------------- */

static void test_event_line(void **state UNUSED)
{
	static const uint32_t one[] = { IP4(203, 0, 113, 1) }, two[] = { 1, 2 };
	static const struct {
		struct event e;
		const char *want;
	} t[] = {
		{ { .ev = "end" }, "{\"t\":\"1970-01-01T00:00:00.000Z\",\"ev\":\"end\"}\n" },
		{ { .ev = "flow",
		    .verdict = "refused",
		    .reason = "name",
		    .name = "a.test",
		    .proto = "tls",
		    .n_addrs = 1,
		    .addrs = one,
		    .port = 443,
		    .guest_port = 40000 },
		  "{\"t\":\"1970-01-01T00:00:00.000Z\",\"ev\":\"flow\",\"verdict\":\"refused\","
		  "\"reason\":\"name\",\"name\":\"a.test\",\"proto\":\"tls\","
		  "\"addr\":\"203.0.113.1\",\"port\":443,\"guest_port\":40000}\n" },
		{ { .ev = "dns",
		    .name = "a\"\\\n\x7f\xc3",
		    .n_addrs = 2,
		    .addrs = two,
		    .count = 7 },
		  "{\"t\":\"1970-01-01T00:00:00.000Z\",\"ev\":\"dns\","
		  "\"name\":\"a\\\"\\\\\\u000a\\u007f\\u00c3\",\"addrs\":[\"0.0.0.1\",\"0.0.0.2\"],"
		  "\"count\":7}\n" },
		{ { .ev = "close", .has_bytes = true, .bytes_out = UINT64_MAX },
		  "{\"t\":\"1970-01-01T00:00:00.000Z\",\"ev\":\"close\","
		  "\"bytes_out\":18446744073709551615,\"bytes_in\":0}\n" },
	};
	char b[EVENT_LINE_MAX];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		size_t n = event_put(b, sizeof(b) - 1, 0, &t[i].e);
		assert_true(n > 0);
		b[n] = '\0';
		assert_string_equal(b, t[i].want);
		/* as long as it is, with room for the NUL that vsnprintf wants; one less is too short */
		assert_int_equal(event_put(b, n + 1, 0, &t[i].e), n);
		assert_int_equal(event_put(b, n, 0, &t[i].e), 0);
	}
	assert_int_equal(event_put(b, sizeof(b), 1700000000123, &t[0].e), 44);
	assert_memory_equal(b, "{\"t\":\"2023-11-14T22:13:20.123Z\"", 31);
	/* the longest there is: 16 addresses, a name whose every byte is written by number */
	char name[HOST_NAME_BYTES + 8];
	uint32_t addrs[16];
	memset(name, 1, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	memset(addrs, 255, sizeof(addrs));
	struct event e = t[1].e;
	e.name = name;
	e.detail = e.reason = "a-long-word-that-explains";
	e.n_addrs = 16;
	e.addrs = addrs;
	e.has_bytes = true;
	e.bytes_in = e.bytes_out = e.count = UINT64_MAX;
	assert_true(event_put(b, sizeof(b), 1700000000123, &e) > 0);
}

static uint64_t clock_ns;

static uint64_t now_ns(void *arg UNUSED)
{
	return clock_ns;
}

static size_t lines_of(int fd, char *b, size_t cap)
{
	ssize_t n = pread(fd, b, cap - 1, 0);
	size_t lines = 0;

	assert_true(n >= 0);
	b[n] = '\0';
	for (ssize_t i = 0; i < n; i++)
		lines += b[i] == '\n';
	return lines;
}

static void test_event_rate(void **state UNUSED)
{
	static char b[1 << 20];
	struct loop *l = loop_new();
	AUTO_CLOSE int fd = fd_memfd("events");
	struct event refused = { .ev = "dns", .verdict = "refused", .reason = "name", .name = "x" };
	struct event dropped = { .ev = "drop", .verdict = "refused", .reason = "icmp", .count = 5 };

	clock_ns = 1;
	loop_set_clock(l, now_ns, NULL);
	struct events *e = events_new(l, fd, EVENTS_BYTES_MAX, NULL, NULL);
	for (int i = 0; i < EVENTS_LINES_A_SECOND + 100; i++)
		events_write(e, &refused);
	events_write(e, &dropped);
	events_write(e, &dropped);
	assert_int_equal(lines_of(fd, b, sizeof(b)), EVENTS_LINES_A_SECOND);
	clock_ns += 999 * UINT64_C(1000000);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(lines_of(fd, b, sizeof(b)), EVENTS_LINES_A_SECOND);
	clock_ns += UINT64_C(1000000);
	assert_int_equal(loop_once(l, 0), 0);
	/* two kinds, a line each, and none is lost */
	assert_int_equal(lines_of(fd, b, sizeof(b)), EVENTS_LINES_A_SECOND + 2);
	assert_non_null(strstr(b, "\"reason\":\"name\",\"count\":100}"));
	assert_non_null(strstr(b, "\"reason\":\"icmp\",\"count\":10}"));
	/* a new second, new lines */
	events_write(e, &refused);
	assert_int_equal(lines_of(fd, b, sizeof(b)), EVENTS_LINES_A_SECOND + 3);
	for (int i = 0; i < EVENTS_LINES_A_SECOND; i++)
		events_write(e, &refused);
	events_free(e, &(struct event){ .ev = "end", .reason = "net" });
	/* what was counted, and the end */
	assert_int_equal(lines_of(fd, b, sizeof(b)), 2 * EVENTS_LINES_A_SECOND + 4);
	assert_non_null(strstr(b, "\"ev\":\"end\",\"reason\":\"net\"}\n"));
	loop_free(l);
}

static void on_lost(void *arg, int code)
{
	int *times = arg;

	assert_int_equal(code, -EFBIG);
	(*times)++;
}

static void limit_files(rlim_t bytes)
{
	struct rlimit l;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &l), 0);
	l.rlim_cur = MIN(bytes, l.rlim_max);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

/* A disk that is full for a while: what is lost is counted, and takes nothing else with it. */
static void test_event_lost(void **state UNUSED)
{
	static char b[1 << 16];
	struct loop *l = loop_new();
	AUTO_CLOSE int fd = fd_memfd("events");
	struct event ev = { .ev = "dns", .verdict = "refused", .reason = "name", .name = "first" };
	int times = 0;

	(void)signal(SIGXFSZ, SIG_IGN);
	clock_ns = 1;
	loop_set_clock(l, now_ns, NULL);
	struct events *e = events_new(l, fd, EVENTS_BYTES_MAX, on_lost, &times);
	events_write(e, &ev);
	off_t one = lseek(fd, 0, SEEK_END);
	limit_files((rlim_t)one + 20); /* a part of the second fits */
	ev.name = "second";
	events_write(e, &ev);
	events_write(e, &ev);
	assert_int_equal(times, 1);
	limit_files(RLIM_INFINITY);
	ev.name = "fourth";
	events_write(e, &ev);
	assert_int_equal(lines_of(fd, b, sizeof(b)), 4);
	assert_null(strstr(b, "second"));
	const char *torn = strchr(b, '\n') + 1;
	const char *third = strchr(torn, '\n') + 1;
	assert_int_equal(third - torn, 21);
	assert_memory_equal(third, "{\"t\":", 5);
	assert_non_null(strstr(third, "\"ev\":\"lost\",\"count\":2}\n{\"t\":"));
	assert_non_null(strstr(third, "\"name\":\"fourth\"}\n"));
	/* once it is told */
	events_write(e, &ev);
	assert_int_equal(lines_of(fd, b, sizeof(b)), 5);
	limit_files((rlim_t)lseek(fd, 0, SEEK_END) + 5);
	events_free(e, &ev);
	limit_files(RLIM_INFINITY);
	/* whoever goes on with the file ends the line, too */
	e = events_new(l, fd, EVENTS_BYTES_MAX, on_lost, &times);
	ev.name = "later";
	events_write(e, &ev);
	assert_int_equal(lines_of(fd, b, sizeof(b)), 7);
	assert_non_null(strstr(b, "\"name\":\"later\"}\n"));
	assert_int_equal(times, 1);
	events_free(e, NULL);
	loop_free(l);
}

static void test_event_size(void **state UNUSED)
{
	static char b[1 << 20];
	struct loop *l = loop_new();
	AUTO_CLOSE int fd = fd_memfd("events");
	struct event ev = { .ev = "drop", .verdict = "refused", .reason = "icmp" };
	const uint64_t max = 3 * EVENT_LINE_MAX;

	clock_ns = 1;
	loop_set_clock(l, now_ns, NULL);
	struct events *e = events_new(l, fd, max, NULL, NULL);
	for (int i = 0; i < 150; i++)
		events_write(e, &ev);
	size_t lines = lines_of(fd, b, sizeof(b));
	assert_true(lines > 2 && lines < 150);
	assert_true(strlen(b) <= max);
	const char *last = strstr(b, "{\"t\":");
	for (const char *p = last; p; p = strstr(p + 1, "{\"t\":"))
		last = p;
	assert_non_null(strstr(last, "\"ev\":\"end\",\"reason\":\"log-full\"}"));
	/* that was the last word, also of who starts again */
	events_free(e, &(struct event){ .ev = "end", .reason = "net" });
	e = events_new(l, fd, max, NULL, NULL);
	events_write(e, &ev);
	events_free(e, NULL);
	assert_int_equal(lines_of(fd, b, sizeof(b)), lines);
	loop_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pins_life),      cmocka_unit_test(test_pins_ttl),
		cmocka_unit_test(test_pins_cap),       cmocka_unit_test(test_pins_refresh),
		cmocka_unit_test(test_resolvconf),     cmocka_unit_test(test_candidates),
		cmocka_unit_test(test_hosts),          cmocka_unit_test(test_answer_plain),
		cmocka_unit_test(test_answer_refused), cmocka_unit_test(test_answer_chain),
		cmocka_unit_test(test_answer_limits),  cmocka_unit_test(test_event_line),
		cmocka_unit_test(test_event_rate),     cmocka_unit_test(test_event_size),
		cmocka_unit_test(test_event_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
