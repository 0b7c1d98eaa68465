/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "policy/egress.h"
#include "policy/sources.h"

#define L63 "a23456789012345678901234567890123456789012345678901234567890123"
#define L61 "a234567890123456789012345678901234567890123456789012345678901"
#define N253 L63 "." L63 "." L63 "." L61
#define N254 L63 "." L63 "." L63 "." L61 "x"

static void test_ip4(void **state UNUSED)
{
	static const struct {
		const char *text;
		bool ok;
		uint32_t addr;
	} t[] = {
		{ "0.0.0.0", true, 0 },
		{ "255.255.255.255", true, 0xffffffff },
		{ "10.87.0.1", true, IP4(10, 87, 0, 1) },
		{ "256.0.0.1", false, 0 },
		{ "1.2.3.256", false, 0 },
		{ "01.2.3.4", false, 0 },
		{ "1.2.3.00", false, 0 },
		{ "1.2.3", false, 0 },
		{ "1.2.3.", false, 0 },
		{ "1.2.3.4.", false, 0 },
		{ "1.2.3.4.5", false, 0 },
		{ ".1.2.3.4", false, 0 },
		{ "1..3.4", false, 0 },
		{ "1.2.3.1000", false, 0 },
		{ "0x7f.0.0.1", false, 0 },
		{ "1.2.3.-4", false, 0 },
		{ "1.2.3.4 ", false, 0 },
		{ "2130706433", false, 0 },
		{ "", false, 0 },
	};
	char s[IP4_STR_BYTES];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint32_t a = 1;
		int r = ip4_parse(&a, span_str(t[i].text));

		if (r != (t[i].ok ? 0 : -EINVAL) || a != (t[i].ok ? t[i].addr : 1))
			fail_msg("'%s': %d, %x", t[i].text, r, a);
		if (t[i].ok)
			assert_string_equal(ip4_str(s, a), t[i].text);
	}
}

static void test_ip4_net(void **state UNUSED)
{
	static const struct {
		const char *text, *said; /* said: NULL when it is refused */
	} t[] = {
		{ "10.0.0.0/8", "10.0.0.0/8" },
		{ "0.0.0.0/0", "0.0.0.0/0" },
		{ "1.2.3.4/32", "1.2.3.4/32" },
		{ "1.2.3.4", "1.2.3.4/32" },
		{ "1.2.3.4/31", "1.2.3.4/31" },
		{ "1.2.3.5/31", NULL },
		{ "128.0.0.0/1", "128.0.0.0/1" },
		{ "64.0.0.0/1", NULL },
		{ "0.0.0.1/0", NULL },
		{ "1.2.3.4/33", NULL },
		{ "1.2.3.4/", NULL },
		{ "1.2.3.4/032", NULL },
		{ "10.0.0.0/08", NULL },
		{ "10.0.0.0/8/8", NULL },
		{ "10.0.0.0/ 8", NULL },
		{ "/8", NULL },
		{ "10/8", NULL },
		{ "", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct ip4_net n;
		char s[IP4_NET_STR_BYTES];
		int r = ip4_net_parse(&n, span_str(t[i].text));

		if (r != (t[i].said ? 0 : -EINVAL))
			fail_msg("'%s': %d", t[i].text, r);
		if (r == 0)
			assert_string_equal(ip4_net_str(s, n), t[i].said);
	}
	struct ip4_net n = { IP4(172, 16, 0, 0), 12 };
	assert_true(ip4_net_has(n, IP4(172, 16, 0, 0)) && ip4_net_has(n, IP4(172, 31, 255, 255)));
	assert_false(ip4_net_has(n, IP4(172, 15, 255, 255)) || ip4_net_has(n, IP4(172, 32, 0, 0)));
	assert_true(ip4_net_has((struct ip4_net){ 0 }, 0xffffffff));
}

static void test_host_names(void **state UNUSED)
{
	static const struct {
		const char *why, *text, *want; /* want: NULL when it is refused */
	} t[] = {
		{ "plain", "example.com", "example.com" },
		{ "upper case is lowered", "API.GitHub.com", "api.github.com" },
		{ "one label", "intranet", "intranet" },
		{ "digits and hyphens inside", "a-1.b--c.x9", "a-1.b--c.x9" },
		{ "underscore", "_dmarc._tcp.x_", "_dmarc._tcp.x_" },
		{ "numbers in front", "1.2.3.com", "1.2.3.com" },
		{ "label of 63", L63 ".com", L63 ".com" },
		{ "label of 64", L63 "x.com", NULL },
		{ "253 bytes", N253, N253 },
		{ "254 bytes", N254, NULL },
		{ "empty", "", NULL },
		{ "dot", ".", NULL },
		{ "final dot", "example.com.", NULL },
		{ "leading dot", ".example.com", NULL },
		{ "two dots", "example..com", NULL },
		{ "hyphen first", "-a.com", NULL },
		{ "hyphen last", "a-.com", NULL },
		{ "hyphen last of all", "a.com-", NULL },
		{ "hyphen alone", "-", NULL },
		{ "space", "a b.com", NULL },
		{ "slash", "a.com/x", NULL },
		{ "percent", "a%2ecom", NULL },
		{ "at", "u@a.com", NULL },
		{ "beyond ASCII",
		  "b\xc3\xbc"
		  "cher.example",
		  NULL },
		{ "wildcard is no name", "*.example.com", NULL },
		{ "port is no part of it", "example.com:443", NULL },
		{ "address", "127.0.0.1", NULL },
		{ "address in one number", "2130706433", NULL },
		{ "address in hex", "0x7f000001", NULL },
		{ "address of two numbers", "127.1", NULL },
		{ "address, the last in hex", "127.0.0.0x1", NULL },
		{ "address, no digits behind 0x", "1.2.3.0x", NULL },
		{ "ends in a number", "example.123", NULL },
		{ "ends in octal", "example.017", NULL },
		{ "hex digits alone are a name", "dead.beef", "dead.beef" },
		{ "0x and more is a name", "example.0xyz", "example.0xyz" },
		{ "bracketed", "[::1]", NULL },
		{ "v6", "fe80::1", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		char out[HOST_NAME_BYTES] = "unchanged";
		const char *why = NULL;
		int r = host_name_parse(out, span_str(t[i].text), &why);

		if (r != (t[i].want ? 0 : -EINVAL) || (r < 0) != (why != NULL))
			fail_msg("%s: %d (%s)", t[i].why, r, why ? why : "no reason");
		assert_string_equal(out, t[i].want ? t[i].want : "unchanged");
		if (host_name_ok(span_str(t[i].text)) !=
		    (t[i].want && strcmp(t[i].want, t[i].text) == 0))
			fail_msg("%s: host_name_ok()", t[i].why);
	}
	char out[HOST_NAME_BYTES];
	assert_int_equal(host_name_parse(out, span_of("a\0b.com", 7), NULL), -EINVAL);
	assert_int_equal(host_name_parse(out, (struct span){ 0 }, NULL), -EINVAL);
}

static void test_host_patterns(void **state UNUSED)
{
	static const struct {
		const char *text, *said; /* said: NULL when it is refused */
		uint16_t port;
		bool wild;
	} t[] = {
		{ "example.com", "example.com", 0, false },
		{ "Example.COM:8443", "example.com:8443", 8443, false },
		{ "*.Example.com", "*.example.com", 0, true },
		{ "*.example.com:22", "*.example.com:22", 22, true },
		{ "*." N253, "*." N253, 0, true },
		{ "*." N254, NULL, 0, false },
		{ "*.com", NULL, 0, false },
		{ "*", NULL, 0, false },
		{ "*.", NULL, 0, false },
		{ "*:443", NULL, 0, false },
		{ "*example.com", NULL, 0, false },
		{ "a.*.example.com", NULL, 0, false },
		{ "*.*.example.com", NULL, 0, false },
		{ "exam*ple.com", NULL, 0, false },
		{ "*.1.2", NULL, 0, false },
		{ "a:1", "a:1", 1, false },
		{ "a:0", NULL, 0, false },
		{ "a:65535", "a:65535", 65535, false },
		{ "a:65536", NULL, 0, false },
		{ "a:99999999999", NULL, 0, false },
		{ "a:080", NULL, 0, false },
		{ "a:+80", NULL, 0, false },
		{ "a: 80", NULL, 0, false },
		{ "a:80 ", NULL, 0, false },
		{ "a:http", NULL, 0, false },
		{ "a:", NULL, 0, false },
		{ ":443", NULL, 0, false },
		{ "", NULL, 0, false },
		{ "a:1:2", NULL, 0, false },
		{ "::1", NULL, 0, false },
		{ "[::1]:443", NULL, 0, false },
		{ "10.0.0.1:443", NULL, 0, false },
		{ "10.0.0.0/8", NULL, 0, false },
		{ "https://example.com", NULL, 0, false },
		{ "example.com.", NULL, 0, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct host_pattern p;
		const char *why = NULL;
		char s[HOST_PATTERN_BYTES];
		int r = host_pattern_parse(&p, span_str(t[i].text), &why);

		if (r != (t[i].said ? 0 : -EINVAL) || (r < 0) != (why != NULL))
			fail_msg("'%s': %d (%s)", t[i].text, r, why ? why : "no reason");
		if (r < 0)
			continue;
		assert_true(host_pattern_ok(&p));
		assert_int_equal(p.port, t[i].port);
		assert_int_equal(p.wild, t[i].wild);
		assert_string_equal(host_pattern_str(s, &p), t[i].said);
	}
}

static struct host_pattern pattern(const char *text)
{
	struct host_pattern p;

	assert_int_equal(host_pattern_parse(&p, span_str(text), NULL), 0);
	return p;
}

static void test_host_match(void **state UNUSED)
{
	static const struct {
		const char *pattern, *name;
		bool want;
	} t[] = {
		{ "example.com", "example.com", true },
		{ "example.com", "a.example.com", false },
		{ "example.com", "example.co", false },
		{ "example.com", "xexample.com", false },
		{ "*.example.com", "a.example.com", true },
		{ "*.example.com", "a.b.c.example.com", true },
		{ "*.example.com", "example.com", false },
		{ "*.example.com", "xexample.com", false },
		{ "*.example.com", "a.example.com.evil.net", false },
		{ "*.example.com", "com", false },
		{ "*.example.com", "", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct host_pattern p = pattern(t[i].pattern);

		if (host_pattern_match(&p, t[i].name) != t[i].want)
			fail_msg("%s, %s", t[i].pattern, t[i].name);
	}
}

static int add(struct egress *e, const char *text, bool deny)
{
	struct egress_rule r = { .host = pattern(text),
		                 .origin = EGRESS_FROM_CONFIG,
		                 .deny = deny };

	return egress_add(e, &r);
}

static void allow(struct egress *e, const char *text)
{
	assert_int_equal(add(e, text, false), 0);
}

static void test_egress_words(void **state UNUSED)
{
	static const char *const names[] = { "permissive", "standard", "locked" };
	static const char *const wrong[] = { "", "Standard", "lock", "locked ", "offline" };
	enum egress_profile p = EGRESS_LOCKED;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_int_equal(egress_profile_parse(names[i], &p), 0);
		assert_int_equal(p, i);
		assert_string_equal(egress_profile_name(p), names[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(egress_profile_parse(wrong[i], &p), -EINVAL);
	for (unsigned o = EGRESS_FROM_PROVIDER; o <= EGRESS_FROM_LIVE; o++)
		assert_non_null(egress_origin_name((enum egress_origin)o));
}

static void test_egress_answers(void **state UNUSED)
{
	static const struct {
		const char *why, *name;
		uint16_t port;
		int kind; /* 0: refused */
	} t[] = {
		{ "a rule without a port is 443", "github.com", 443, EGRESS_NAMED },
		{ "a named port is raw", "github.com", 22, EGRESS_RAW },
		{ "another port is refused", "github.com", 80, 0 },
		{ "wildcard", "a.example.com", 443, EGRESS_NAMED },
		{ "wildcard, deep", "a.b.c.d.example.com", 443, EGRESS_NAMED },
		{ "a wildcard is not its name", "example.com", 443, 0 },
		{ "port 80 is not raw", "plain.test", 80, EGRESS_NAMED },
		{ "denied below a wildcard", "bad.example.com", 443, 0 },
		{ "a denial of a name is not one of what lies below", "x.bad.example.com", 443,
		  EGRESS_NAMED },
		{ "denied by a wildcard, allowed by name", "a.internal.test", 443, 0 },
		{ "above that denial", "internal.test", 443, EGRESS_NAMED },
		{ "denied on one port", "two.test", 443, 0 },
		{ "open on the other", "two.test", 80, EGRESS_NAMED },
		{ "unknown", "evil.test", 443, 0 },
		{ "suffix without a dot", "evilgithub.com", 443, 0 },
		{ "prefix", "github.co", 443, 0 },
		{ "mail", "mail.test", 25, 0 },
		{ "no name", "", 443, 0 },
		{ "only dots", "....", 443, 0 },
		{ "longer than a name", N254 "." N253, 443, 0 },
	};
	struct egress *e = egress_new(EGRESS_STANDARD);

	allow(e, "github.com");
	allow(e, "github.com:22");
	allow(e, "*.example.com");
	allow(e, "plain.test:80");
	allow(e, "a.internal.test");
	allow(e, "internal.test");
	allow(e, "two.test:80");
	allow(e, "two.test:443");
	assert_int_equal(add(e, "mail.test:25", false), -EINVAL);
	assert_int_equal(add(e, "bad.example.com", true), 0);
	assert_int_equal(add(e, "*.internal.test", true), 0);
	assert_int_equal(add(e, "two.test:443", true), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		const struct egress_rule *r = egress_find(e, t[i].name, t[i].port);

		if ((r ? r->kind : 0) != t[i].kind)
			fail_msg("%s: %d", t[i].why, r ? r->kind : 0);
		if (r && !egress_name_ok(e, t[i].name))
			fail_msg("%s: not resolved", t[i].why);
	}
	assert_true(egress_name_ok(e, "two.test"));
	assert_false(egress_name_ok(e, "bad.example.com"));
	assert_false(egress_name_ok(e, "a.internal.test"));
	assert_false(egress_name_ok(e, "evil.test"));
	assert_non_null(egress_denied(e, "a.internal.test", 443));
	assert_true(egress_denied(e, "a.internal.test", 443)->host.wild);
	assert_null(egress_denied(e, "evil.test", 443));

	uint16_t ports[4];
	assert_int_equal(egress_ports(e, "github.com", ports, 4), 2);
	assert_int_equal(ports[0] + ports[1], 443 + 22);
	assert_int_equal(egress_ports(e, "github.com", ports, 1), 1);
	assert_int_equal(egress_ports(e, "two.test", ports, 4), 1);
	assert_int_equal(ports[0], 80);
	assert_int_equal(egress_ports(e, "bad.example.com", ports, 4), 0);
	egress_free(e);
	egress_free(NULL);
}

/* Of several rules that match the most specific is the answer, and each port counts once. */
static void test_egress_specific(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_LOCKED);
	uint16_t ports[4];

	allow(e, "*.test.org:8443");
	allow(e, "*.b.test.org:8443");
	allow(e, "a.b.test.org:8443");
	const struct egress_rule *r = egress_find(e, "a.b.test.org", 8443);
	assert_true(r && !r->host.wild);
	r = egress_find(e, "c.b.test.org", 8443);
	assert_true(r && r->host.wild && strcmp(r->host.name, "b.test.org") == 0);
	r = egress_find(e, "c.test.org", 8443);
	assert_true(r && strcmp(r->host.name, "test.org") == 0);
	assert_int_equal(egress_ports(e, "a.b.test.org", ports, 4), 1);
	egress_free(e);
}

static void test_egress_again(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_STANDARD);
	char first[] = "first", second[] = "second";
	struct egress_rule r = { .host = pattern("x.test"),
		                 .origin = EGRESS_FROM_REGISTRY,
		                 .note = first };

	assert_int_equal(egress_add(e, &r), 0);
	r.note = second;
	assert_int_equal(egress_add(e, &r), 0);
	assert_int_equal(egress_count(e), 1);
	assert_string_equal(egress_rule_at(e, 0)->note, "first");
	r.kind = EGRESS_RAW;
	r.origin = EGRESS_FROM_FLAG;
	assert_int_equal(egress_add(e, &r), 0);
	assert_int_equal(egress_count(e), 1);
	assert_string_equal(egress_rule_at(e, 0)->note, "second");
	assert_int_equal(egress_rule_at(e, 0)->origin, EGRESS_FROM_FLAG);
	assert_int_equal(egress_find(e, "x.test", 443)->kind, EGRESS_RAW);
	egress_free(e);
}

static void test_egress_deny(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_STANDARD);
	struct host_pattern h = pattern("x.test"), h22 = pattern("x.test:22");

	allow(e, "x.test");
	allow(e, "x.test:22");
	allow(e, "*.test.org");
	/* one port: the other stays */
	assert_int_equal(egress_deny(e, &h22), 0);
	assert_int_equal(egress_count(e), 3);
	assert_null(egress_find(e, "x.test", 22));
	assert_non_null(egress_find(e, "x.test", 443));
	/* allowing does not lift it */
	allow(e, "x.test:22");
	assert_null(egress_find(e, "x.test", 22));
	/* every port */
	assert_int_equal(egress_deny_from(e, &h, EGRESS_FROM_LIVE), 0);
	assert_false(egress_name_ok(e, "x.test"));
	assert_int_equal(egress_count(e), 3); /* the wildcard and two denials */
	allow(e, "x.test");
	assert_false(egress_name_ok(e, "x.test"));
	/* the denials of port 22 and of all ports */
	assert_int_equal(egress_undeny(e, &h22), 2);
	assert_true(egress_name_ok(e, "x.test"));
	assert_int_equal(egress_undeny(e, &h22), 0);
	/* below a wildcard */
	struct host_pattern below = pattern("a.test.org");
	assert_int_equal(egress_deny(e, &below), 0);
	assert_false(egress_name_ok(e, "a.test.org"));
	assert_true(egress_name_ok(e, "b.test.org"));
	assert_int_equal(egress_undeny(e, &below), 1);
	assert_true(egress_name_ok(e, "a.test.org"));
	assert_int_equal(egress_count(e), 2);
	egress_free(e);
}

static void test_egress_permissive(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_PERMISSIVE);
	struct host_pattern h = pattern("x.test");

	allow(e, "y.test"); /* no effect, no error */
	assert_int_equal(egress_deny(e, &h), -ENOTSUP);
	assert_true(egress_name_ok(e, "x.test"));
	assert_int_equal(egress_find(e, "x.test", 1)->kind, EGRESS_RAW);
	assert_null(egress_find(e, "x.test", 25));
	assert_string_equal(egress_addr_closed(e, IP4(127, 0, 0, 1)), "loopback");
	egress_free(e);

	/* an empty list is a policy: nothing passes */
	e = egress_new(EGRESS_LOCKED);
	assert_false(egress_name_ok(e, "x.test"));
	egress_free(e);
}

static void test_egress_refused(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_STANDARD);
	char note[EGRESS_NOTE_MAX + 2];
	struct egress_rule ok = { .host = pattern("x.test"), .origin = EGRESS_FROM_CONFIG };
	struct egress_rule r;

	memset(note, 'n', sizeof(note));
	note[EGRESS_NOTE_MAX] = '\0';
	r = ok;
	r.note = note;
	assert_int_equal(egress_add(e, &r), 0);
	note[EGRESS_NOTE_MAX] = 'n';
	note[EGRESS_NOTE_MAX + 1] = '\0';
	r.host.port = 1;
	assert_int_equal(egress_add(e, &r), -EINVAL);
	r = ok;
	r.origin = 0;
	assert_int_equal(egress_add(e, &r), -EINVAL);
	r.origin = EGRESS_FROM_LIVE + 1;
	assert_int_equal(egress_add(e, &r), -EINVAL);
	r = ok;
	r.kind = EGRESS_RAW + 1;
	assert_int_equal(egress_add(e, &r), -EINVAL);
	r = ok;
	strcpy(r.host.name, "X.test");
	assert_int_equal(egress_add(e, &r), -EINVAL);
	strcpy(r.host.name, "10.0.0.1");
	assert_int_equal(egress_add(e, &r), -EINVAL);
	strcpy(r.host.name, "com");
	r.host.wild = true;
	assert_int_equal(egress_add(e, &r), -EINVAL);
	memset(r.host.name, 'a', sizeof(r.host.name)); /* no end */
	assert_int_equal(egress_add(e, &r), -EINVAL);
	assert_int_equal(egress_count(e), 1);
	egress_free(e);
}

static void test_egress_limits(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_STANDARD);
	char text[HOST_PATTERN_BYTES];

	for (unsigned i = 0; i < EGRESS_PORTS_MAX; i++) {
		(void)snprintf(text, sizeof(text), "ports.test:%u", 1000 + i);
		allow(e, text);
	}
	assert_int_equal(add(e, "ports.test:999", false), -E2BIG);
	assert_int_equal(add(e, "ports.test:1000", false), 0); /* it is there */
	assert_int_equal(add(e, "ports.test:999", true), 0);   /* denials count apart */
	for (unsigned i = (unsigned)egress_count(e); i < EGRESS_RULES_MAX; i++) {
		(void)snprintf(text, sizeof(text), "%sh%u.test.org", i & 1 ? "*." : "", i);
		allow(e, text);
	}
	assert_int_equal(egress_count(e), EGRESS_RULES_MAX);
	assert_int_equal(add(e, "one.more", false), -E2BIG);
	assert_int_equal(add(e, "one.more", true), -E2BIG);
	assert_true(egress_name_ok(e, "h100.test.org"));
	assert_true(egress_name_ok(e, "a.b.h101.test.org"));
	assert_false(egress_name_ok(e, "a.h100.test.org"));

	for (uint16_t i = 0; i < EGRESS_SERVICES_MAX; i++)
		assert_int_equal(egress_add_service(e, (uint16_t)(8000 + i)), 0);
	assert_int_equal(egress_add_service(e, 8000), 0);
	assert_int_equal(egress_add_service(e, 7999), -E2BIG);
	assert_true(egress_service_ok(e, 8000 + EGRESS_SERVICES_MAX - 1));
	assert_false(egress_service_ok(e, 8000 + EGRESS_SERVICES_MAX));
	for (uint32_t i = 0; i < EGRESS_PRIVATE_MAX; i++)
		assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(10, 0, i, 0), 24 }),
		                 0);
	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(10, 0, 0, 0), 24 }), 0);
	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(10, 1, 0, 0), 24 }), -E2BIG);

	/* the whole of it, carried */
	AUTO_BUF struct buf b = { 0 }, again = { 0 };
	struct egress *f = NULL;
	assert_int_equal(egress_put(e, &b), 0);
	assert_int_equal(egress_parse(&f, span_of(b.p, b.len)), 0);
	assert_int_equal(egress_put(f, &again), 0);
	assert_true(span_eq(span_of(b.p, b.len), span_of(again.p, again.len)));
	egress_free(f);
	/* counts are looked at before anything is made of them */
	b.p[6] = (EGRESS_RULES_MAX + 1) & 255;
	b.p[7] = (EGRESS_RULES_MAX + 1) >> 8;
	assert_int_equal(egress_parse(&f, span_of(b.p, b.len)), -E2BIG);
	egress_free(e);
}

static void test_egress_addresses(void **state UNUSED)
{
	static const struct {
		uint32_t first, last;
		const char *why; /* NULL: open */
	} t[] = {
		{ IP4(0, 0, 0, 0), IP4(0, 255, 255, 255), "this-network" },
		{ IP4(1, 0, 0, 0), IP4(9, 255, 255, 255), NULL },
		{ IP4(10, 0, 0, 0), IP4(10, 255, 255, 255), "private" },
		{ IP4(11, 0, 0, 0), IP4(100, 63, 255, 255), NULL },
		{ IP4(100, 64, 0, 0), IP4(100, 127, 255, 255), "shared-space" },
		{ IP4(100, 128, 0, 0), IP4(126, 255, 255, 255), NULL },
		{ IP4(127, 0, 0, 0), IP4(127, 255, 255, 255), "loopback" },
		{ IP4(128, 0, 0, 0), IP4(169, 253, 255, 255), NULL },
		{ IP4(169, 254, 0, 0), IP4(169, 254, 169, 253), "link-local" },
		{ IP4(169, 254, 169, 254), IP4(169, 254, 169, 254), "metadata" },
		{ IP4(169, 254, 169, 255), IP4(169, 254, 255, 255), "link-local" },
		{ IP4(169, 255, 0, 0), IP4(172, 15, 255, 255), NULL },
		{ IP4(172, 16, 0, 0), IP4(172, 31, 255, 255), "private" },
		{ IP4(172, 32, 0, 0), IP4(191, 255, 255, 255), NULL },
		{ IP4(192, 0, 0, 0), IP4(192, 0, 0, 255), "reserved" },
		{ IP4(192, 0, 1, 0), IP4(192, 167, 255, 255), NULL }, /* 192.0.2.0/24 too */
		{ IP4(192, 168, 0, 0), IP4(192, 168, 255, 255), "private" },
		{ IP4(192, 169, 0, 0), IP4(198, 17, 255, 255), NULL },
		{ IP4(198, 18, 0, 0), IP4(198, 19, 255, 255), NULL },
		{ IP4(198, 51, 100, 0), IP4(198, 51, 100, 255), NULL },
		{ IP4(203, 0, 113, 0), IP4(223, 255, 255, 255), NULL },
		{ IP4(224, 0, 0, 0), IP4(239, 255, 255, 255), "multicast" },
		{ IP4(240, 0, 0, 0), IP4(255, 255, 255, 254), "reserved" },
		{ IP4(255, 255, 255, 255), IP4(255, 255, 255, 255), "broadcast" },
	};
	struct egress *e = egress_new(EGRESS_LOCKED);

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		const uint32_t a[] = { t[i].first, t[i].last,
			               t[i].first + (t[i].last - t[i].first) / 2 };

		for (size_t k = 0; k < ARRAY_LEN(a); k++) {
			const char *why = egress_addr_closed(e, a[k]);

			if (!why != !t[i].why || (why && strcmp(why, t[i].why) != 0))
				fail_msg("%x: %s", a[k], why ? why : "open");
		}
	}
	const char *why = NULL;
	assert_true(egress_port_closed(25, &why) && why);
	assert_false(egress_port_closed(24, NULL) || egress_port_closed(26, NULL));
	egress_free(e);
}

static void test_egress_private(void **state UNUSED)
{
	static const struct {
		const char *net;
		int want;
	} t[] = {
		{ "10.1.0.0/16", 0 },           { "192.168.1.1", 0 },
		{ "127.0.0.1/32", 0 },          { "100.64.0.0/10", 0 },
		{ "169.254.0.0/16", 0 },        { "0.0.0.0/0", -EINVAL },
		{ "10.0.0.0/7", -EINVAL },      { "172.0.0.0/8", -EINVAL },
		{ "192.0.0.0/2", -EINVAL },     { "224.0.0.1", -EINVAL },
		{ "0.0.0.0/8", -EINVAL },       { "255.255.255.255", -EINVAL },
		{ "198.51.100.0/24", -EINVAL }, { "192.0.0.0/24", -EINVAL },
	};
	struct egress *e = egress_new(EGRESS_STANDARD);
	struct ip4_net n;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		assert_int_equal(ip4_net_parse(&n, span_str(t[i].net)), 0);
		if (egress_allow_private(e, n) != t[i].want)
			fail_msg("%s", t[i].net);
	}
	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(10, 0, 0, 1), 24 }),
	                 -EINVAL);
	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(10, 0, 0, 1), 33 }),
	                 -EINVAL);
	assert_null(egress_addr_closed(e, IP4(10, 1, 255, 255)));
	assert_string_equal(egress_addr_closed(e, IP4(10, 2, 0, 0)), "private");
	assert_null(egress_addr_closed(e, IP4(127, 0, 0, 1)));
	assert_string_equal(egress_addr_closed(e, IP4(127, 0, 0, 2)), "loopback");
	/* a range around it does not open the metadata address */
	assert_null(egress_addr_closed(e, IP4(169, 254, 169, 253)));
	assert_string_equal(egress_addr_closed(e, IP4(169, 254, 169, 254)), "metadata");
	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(169, 254, 169, 254), 32 }),
	                 0);
	assert_null(egress_addr_closed(e, IP4(169, 254, 169, 254)));
	assert_int_equal(egress_add_service(e, 0), -EINVAL);
	assert_int_equal(egress_add_service(e, 25), -EINVAL);
	egress_free(e);
}

static void test_egress_carried(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_STANDARD), *f = NULL;
	char note[] = "npm";
	struct egress_rule r = { .host = pattern("*.x.test:8080"),
		                 .origin = EGRESS_FROM_REGISTRY,
		                 .note = note };
	AUTO_BUF struct buf b = { 0 };
	const struct ip4_net *nets;
	const uint16_t *services;

	assert_int_equal(egress_add(e, &r), 0);
	assert_int_equal(add(e, "y.test", true), 0);
	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(10, 1, 0, 0), 16 }), 0);
	assert_int_equal(egress_add_service(e, 11434), 0);
	assert_int_equal(buf_put(&b, "before", 6), 0);
	assert_int_equal(egress_put(e, &b), 0);
	assert_memory_equal(b.p, "before", 6);
	buf_consume(&b, 6);
	assert_int_equal(egress_parse(&f, span_of(b.p, b.len)), 0);
	assert_int_equal(egress_profile_of(f), EGRESS_STANDARD);
	assert_int_equal(egress_count(f), 2);
	assert_string_equal(egress_rule_at(f, 0)->note, "npm");
	assert_int_equal(egress_rule_at(f, 0)->kind, EGRESS_RAW);
	assert_true(egress_rule_at(f, 1)->deny && !egress_rule_at(f, 1)->note);
	assert_int_equal(egress_privates(f, &nets), 1);
	assert_int_equal(nets[0].bits, 16);
	assert_int_equal(egress_services(f, &services), 1);
	assert_int_equal(services[0], 11434);
	egress_free(f);

	/* no part of it, and no byte more */
	for (size_t n = 0; n < b.len; n++) {
		if (egress_parse(&f, span_of(b.p, n)) != -EPROTO)
			fail_msg("%zu bytes were enough", n);
	}
	assert_int_equal(buf_put(&b, "", 1), 0);
	assert_int_equal(egress_parse(&f, span_of(b.p, b.len)), -EPROTO);
	b.len--;

	/* no value that egress_add() would have to make its own of: offset, byte */
	static const struct {
		const char *why;
		size_t at;
		uint8_t byte;
	} lies[] = {
		{ "magic", 0, 'X' },
		{ "version", 4, 2 },
		{ "profile", 5, 3 },
		{ "fewer rules than follow", 6, 1 },
		{ "more rules than follow", 6, 3 },
		{ "unknown flag", 14, 5 },
		{ "kind 0", 15, 0 },
		{ "kind 3", 15, 3 },
		{ "origin 0", 16, 0 },
		{ "origin 7", 16, 7 },
		{ "upper case", 20, 'X' },
		{ "NUL in a note", 27, 0 },
		{ "a denial with a kind", 31, 1 },
		{ "permissive with a denial", 5, 0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		uint8_t was = b.p[lies[i].at];

		b.p[lies[i].at] = lies[i].byte;
		int got = egress_parse(&f, span_of(b.p, b.len));
		if (got != -EPROTO)
			fail_msg("%s: %d", lies[i].why, got);
		b.p[lies[i].at] = was;
	}
	assert_int_equal(egress_parse(&f, span_of(b.p, EGRESS_BYTES_MAX + 1ul)), -E2BIG);
	assert_int_equal(egress_parse(&f, (struct span){ 0 }), -EPROTO);
	egress_free(e);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* always there */
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The least of some runs: what a lookup costs when nothing else is at work. */
static uint64_t lookup_ns(const struct egress *e)
{
	uint64_t least = UINT64_MAX;

	for (int run = 0; run < 20; run++) {
		uint64_t start = now_ns();

		for (int i = 0; i < 200; i++)
			(void)egress_find(e, "some.host.below.evil.example", 443);
		least = MIN(least, now_ns() - start);
	}
	return least;
}

/* A scan of 20,000 rules would be a thousand times slower; a table is not ten times. */
static void test_egress_no_scan(void **state UNUSED)
{
	struct egress *few = egress_new(EGRESS_STANDARD), *many = egress_new(EGRESS_STANDARD);
	char text[HOST_PATTERN_BYTES];

	allow(few, "github.com");
	for (unsigned i = 0; i < EGRESS_RULES_MAX; i++) {
		(void)snprintf(text, sizeof(text), "*.host%u.example", i);
		allow(many, text);
	}
	uint64_t a = lookup_ns(few), b = lookup_ns(many);
	if (b > 10 * a)
		fail_msg("one rule: %lu ns, %d rules: %lu ns", (unsigned long)a / 200,
		         EGRESS_RULES_MAX, (unsigned long)b / 200);
	egress_free(few);
	egress_free(many);
}

static void test_sources(void **state UNUSED)
{
	struct egress *e = egress_new(EGRESS_STANDARD);

	assert_int_equal(host_sources_add(e), 0);
	assert_int_equal(egress_find(e, "github.com", 443)->kind, EGRESS_NAMED);
	assert_int_equal(egress_find(e, "github.com", 22)->kind, EGRESS_RAW);
	assert_int_equal(egress_find(e, "github.com", 22)->origin, EGRESS_FROM_SOURCES);
	assert_non_null(egress_find(e, "raw.githubusercontent.com", 443));
	assert_non_null(egress_find(e, "ghcr.io", 443));
	assert_non_null(egress_find(e, "auth.docker.io", 443));
	assert_null(egress_find(e, "docker.io", 443));
	assert_null(egress_find(e, "gist.github.com", 443));
	for (size_t i = 0; host_extras[i].name; i++) {
		assert_ptr_equal(host_extra_find(host_extras[i].name), &host_extras[i]);
		for (size_t k = 0; host_extras[i].patterns[k]; k++)
			allow(e, host_extras[i].patterns[k]);
	}
	assert_null(host_extra_find("npm"));
	assert_non_null(egress_find(e, "gist.github.com", 443));
	assert_non_null(egress_find(e, "docker.io", 443));
	egress_free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ip4),
		cmocka_unit_test(test_ip4_net),
		cmocka_unit_test(test_host_names),
		cmocka_unit_test(test_host_patterns),
		cmocka_unit_test(test_host_match),
		cmocka_unit_test(test_egress_words),
		cmocka_unit_test(test_egress_answers),
		cmocka_unit_test(test_egress_specific),
		cmocka_unit_test(test_egress_again),
		cmocka_unit_test(test_egress_deny),
		cmocka_unit_test(test_egress_permissive),
		cmocka_unit_test(test_egress_refused),
		cmocka_unit_test(test_egress_limits),
		cmocka_unit_test(test_egress_addresses),
		cmocka_unit_test(test_egress_private),
		cmocka_unit_test(test_egress_carried),
		cmocka_unit_test(test_egress_no_scan),
		cmocka_unit_test(test_sources),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
