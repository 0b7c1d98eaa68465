/* SPDX-License-Identifier: Apache-2.0 */
/* test_registry.c - where tools fetch from: URLs, what probes write, our own form, the manifest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "image/image_priv.h"
#include "image/registry.h"
#include "image/worker.h"
#include "policy/sources.h"

static void test_url(void **state UNUSED)
{
	static const struct {
		const char *why, *in, *want; /* NULL: refused */
	} t[] = {
		{ "https", "https://a.example/x/y", "https://a.example:443" },
		{ "http", "http://a.example", "http://a.example:80" },
		{ "port", "http://a.example:8080/", "http://a.example:8080" },
		{ "port of the other scheme", "http://a.example:443", "http://a.example:443" },
		{ "upper case", "HTTPS://A.Example/", "https://a.example:443" },
		{ "login", "https://u:p@a.example/", "https://a.example:443" },
		{ "login with an at", "https://u@x:p@a.example/", "https://a.example:443" },
		{ "at in the path", "https://a.example/@b.example", "https://a.example:443" },
		{ "at in the query", "https://a.example?@b.example", "https://a.example:443" },
		{ "at in the fragment", "https://a.example#@b.example", "https://a.example:443" },
		{ "backslash", "https://a.example\\@b.example", NULL },
		{ "blank", "https://a.example /", NULL },
		{ "newline", "https://a.example\n", NULL },
		{ "not ASCII", "https://\xc3\xa4.example/", NULL },
		{ "no scheme", "a.example", NULL },
		{ "other scheme", "ftp://a.example/", NULL },
		{ "file", "file:///etc/passwd", NULL },
		{ "scheme only", "https://", NULL },
		{ "empty", "", NULL },
		{ "no host", "https:///x", NULL },
		{ "login only", "https://u@/x", NULL },
		{ "address", "https://192.0.2.1/", NULL },
		{ "address in brackets", "https://[2001:db8::1]:443/", NULL },
		{ "wildcard", "https://*.a.example/", NULL },
		{ "port 0", "https://a.example:0/", NULL },
		{ "port 65536", "https://a.example:65536/", NULL },
		{ "port 65535", "https://a.example:65535/", "https://a.example:65535" },
		{ "no port behind the colon", "https://a.example:/", NULL },
		{ "final dot", "https://a.example./", NULL },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct url_origin u;
		char got[URL_ORIGIN_BYTES] = "refused";
		const char *why = NULL;
		if (url_origin_parse(&u, span_str(t[i].in), &why) == 0)
			(void)url_origin_str(got, &u);
		else
			assert_non_null(why);
		if (strcmp(got, t[i].want ? t[i].want : "refused") != 0)
			fail_msg("%s: '%s'", t[i].why, got);
	}
}

static void test_url_limit(void **state UNUSED)
{
	char s[URL_BYTES_MAX + 2];
	struct url_origin u;

	memset(s, 'x', sizeof(s));
	memcpy(s, "https://a.example/", 18);
	assert_int_equal(url_origin_parse(&u, span_of(s, URL_BYTES_MAX - 1), NULL), 0);
	assert_int_equal(url_origin_parse(&u, span_of(s, URL_BYTES_MAX), NULL), 0);
	assert_int_equal(url_origin_parse(&u, span_of(s, URL_BYTES_MAX + 1), NULL), -EINVAL);
}

/* Every host of the table is a pattern with a port. */
static void test_sources(void **state UNUSED)
{
	size_t n = 0;

	for (; source_hosts[n]; n++) {
		struct host_pattern p;
		assert_int_equal(host_pattern_parse(&p, span_str(source_hosts[n]), NULL), 0);
		assert_int_not_equal(p.port, 0);
	}
	assert_true(n >= 5);
}

/* What the scan makes of @in, in our form; must be freed. */
static char *scanned(const char *in, size_t *left_out)
{
	static struct registry_list l;
	struct buf b = { 0 };

	*left_out = registry_scan(&l, span_str(in));
	assert_int_equal(registry_put(&l, &b), 0);
	char *s = xstrndup(b.len ? (const char *)b.p : "", b.len);
	buf_fini(&b);
	return s;
}

static void test_scan(void **state UNUSED)
{
	static const struct {
		const char *why, *in, *want;
	} t[] = {
		{ "nothing", "", "" },
		{ "before the first probe", "https://a.example/\n", "" },
		{ "one", "@npm\nhttps://a.example/\n", "npm https://a.example:443\n" },
		{ "no newline at the end", "@npm\nhttps://a.example/",
		  "npm https://a.example:443\n" },
		{ "blanks and CR around", "@npm\n \thttps://a.example/ \r\n",
		  "npm https://a.example:443\n" },
		{ "remarks", "@npm\nnpm warn old\nundefined\nhttps://a.example/\n",
		  "npm https://a.example:443\n" },
		{ "twice", "@npm\nhttps://a.example/x\nhttps://a.example/y\n",
		  "npm https://a.example:443\n" },
		{ "the same host for two tools",
		  "@npm\nhttps://a.example\n@pip\nhttps://a.example\n",
		  "npm https://a.example:443\npip https://a.example:443\n" },
		{ "two schemes", "@apt\nhttp://a.example\nhttps://a.example\n",
		  "apt http://a.example:80\napt https://a.example:443\n" },
		{ "a probe that is none of ours", "@npm\n@evil\nhttps://a.example\n", "" },
		{ "a login is not kept", "@pip\nhttps://u:secret@a.example/simple\n",
		  "pip https://a.example:443\n" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		size_t left_out;
		AUTO_FREE char *got = scanned(t[i].in, &left_out);
		if (strcmp(got, t[i].want) != 0 || left_out)
			fail_msg("%s: '%s'", t[i].why, got);
	}
}

static void test_scan_limits(void **state UNUSED)
{
	for (size_t n = REGISTRY_MAX - 1; n <= REGISTRY_MAX + 1; n++) {
		static struct registry_list l;
		AUTO_BUF struct buf b = { 0 };
		assert_int_equal(buf_printf(&b, "@go\n"), 0);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(buf_printf(&b, "https://h%zu.example\n", i), 0);
		assert_int_equal(registry_scan(&l, span_of(b.p, b.len)), n > REGISTRY_MAX);
		assert_int_equal(l.n, MIN(n, (size_t)REGISTRY_MAX));
	}
	/* what lies behind the limit of bytes is not read */
	static struct registry_list l;
	AUTO_BUF struct buf b = { 0 };
	assert_int_equal(buf_printf(&b, "@go\n"), 0);
	while (b.len < REGISTRY_OUTPUT_MAX - 1)
		assert_int_equal(buf_put(&b, "x", 1), 0);
	assert_int_equal(buf_printf(&b, "\nhttps://a.example\n"), 0);
	assert_int_equal(registry_scan(&l, span_of(b.p, b.len)), 0);
	assert_int_equal(l.n, 0);
}

static void test_form(void **state UNUSED)
{
	static const struct {
		const char *why, *in;
		int want;
	} t[] = {
		{ "empty", "", 0 },
		{ "one", "npm https://a.example:443\n", 0 },
		{ "two", "npm https://a.example:443\napt http://a.example:80\n", 0 },
		{ "no newline", "npm https://a.example:443", -EPROTO },
		{ "empty line", "\n", -EPROTO },
		{ "no port", "npm https://a.example\n", -EPROTO },
		{ "a path", "npm https://a.example:443/\n", -EPROTO },
		{ "upper case", "npm https://A.example:443\n", -EPROTO },
		{ "leading zero", "npm https://a.example:0443\n", -EPROTO },
		{ "unknown tool", "evil https://a.example:443\n", -EPROTO },
		{ "no tool", " https://a.example:443\n", -EPROTO },
		{ "two blanks", "npm  https://a.example:443\n", -EPROTO },
		{ "twice", "npm https://a.example:443\nnpm https://a.example:443\n", -EPROTO },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		static struct registry_list l;
		int got = registry_parse(&l, span_str(t[i].in));
		if (got != t[i].want)
			fail_msg("%s: %d", t[i].why, got);
	}
	for (size_t n = REGISTRY_MAX; n <= REGISTRY_MAX + 1; n++) {
		static struct registry_list l;
		AUTO_BUF struct buf b = { 0 };
		for (size_t i = 0; i < n; i++)
			assert_int_equal(buf_printf(&b, "go https://h%zu.example:443\n", i), 0);
		assert_int_equal(registry_parse(&l, span_of(b.p, b.len)),
		                 n > REGISTRY_MAX ? -EPROTO : 0);
	}
}

/* Every probe of a side is in its script, and no other; the shell can read it. */
static void test_script(void **state UNUSED)
{
	for (unsigned side = REGISTRY_IMAGE; side <= REGISTRY_HOST; side <<= 1) {
		AUTO_BUF struct buf b = { 0 };
		assert_int_equal(registry_script(&b, side), 0);
		AUTO_FREE char *s = xstrndup((const char *)b.p, b.len);
		for (size_t i = 0; i < registry_probes_n; i++) {
			AUTO_FREE char *mark = xasprintf("'@%s'", registry_probes[i].name);
			assert_int_equal(strstr(s, mark) != NULL,
			                 (registry_probes[i].sides & side) != 0);
			assert_true(strlen(registry_probes[i].name) < REGISTRY_TOOL_BYTES);
		}
		FILE *f = popen("sh -n", "w");
		assert_non_null(f);
		assert_int_equal(fwrite(b.p, 1, b.len, f), b.len);
		assert_int_equal(pclose(f), 0);
	}
}

static void test_report_and_manifest(void **state UNUSED)
{
	static struct worker_report r, got;
	static struct image_manifest m, back;
	static uint8_t b[WORKER_REPORT_BYTES];
	struct url_origin u;
	char *text = NULL;

	for (unsigned i = 0; i < REGISTRY_MAX; i++) {
		/* the longest names there are */
		AUTO_FREE char *s =
			xasprintf("https://%063u.%063u.%063u.%057u.x:65535", i, i, i, i);
		s[8] = s[72] = s[136] = s[200] = 'h';
		assert_int_equal(url_origin_parse(&u, span_str(s), NULL), 0);
		assert_int_equal(registry_add(&r.registries, "cargo", &u), 0);
	}
	worker_report_put(b, &r);
	assert_int_equal(worker_report_parse(&got, b), 0);
	assert_int_equal(got.registries.n, REGISTRY_MAX);
	assert_string_equal(got.registries.v[REGISTRY_MAX - 1].at.host,
	                    r.registries.v[REGISTRY_MAX - 1].at.host);
	b[4 + 8 + WORKER_TEXT_MAX] = 'X';
	assert_int_equal(worker_report_parse(&got, b), -EPROTO);

	m = (struct image_manifest){ .registries = r.registries, .size = { 4096, 1, 1 } };
	memcpy(m.info.name, "base", 5);
	memcpy(m.info.id, "base-1", 7);
	memcpy(m.info.suite, "trixie", 7);
	memcpy(m.info.kernel_release, "6.12", 5);
	memcpy(m.package, "x.deb", 6);
	assert_int_equal(image_manifest_format(&m, &text), 0);
	assert_int_equal(image_manifest_parse(&back, text, strlen(text)), 0);
	assert_int_equal(back.registries.n, REGISTRY_MAX);
	char *at = strstr(text, "cargo https");
	assert_non_null(at);
	*at = 'C';
	assert_int_equal(image_manifest_parse(&back, text, strlen(text)), -EBADMSG);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_url),         cmocka_unit_test(test_url_limit),
		cmocka_unit_test(test_sources),     cmocka_unit_test(test_scan),
		cmocka_unit_test(test_scan_limits), cmocka_unit_test(test_form),
		cmocka_unit_test(test_script),      cmocka_unit_test(test_report_and_manifest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
