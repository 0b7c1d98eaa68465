/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/http1.h"

#define L63 "a23456789012345678901234567890123456789012345678901234567890123"
#define L61 "a234567890123456789012345678901234567890123456789012345678901"
#define N253 L63 "." L63 "." L63 "." L61

#define S(s)                                        \
	{                                           \
		(const uint8_t *)(s), sizeof(s) - 1 \
	}
#define H "Host: example.com\r\n"
#define GET "GET / HTTP/1.1\r\n"
#define POST "POST / HTTP/1.1\r\n" H
#define E "\r\n"

/* The verdict is the same whatever the head is followed by, and no part of a good one is enough. */
static int parse(const char *why, struct http1_head *h, struct span in, bool allow_address)
{
	AUTO_BUF struct buf b = { 0 };
	struct http1_head part;
	int r = http1_head_parse(h, in, allow_address);

	assert_int_equal(buf_put(&b, in.p, in.len), 0);
	assert_int_equal(buf_put(&b, "GET", 3), 0);
	if (r != -EAGAIN && http1_head_parse(&part, span_of(b.p, b.len), allow_address) != r)
		fail_msg("%s: another verdict with more bytes", why);
	if (r == 0) {
		for (size_t n = 0; n < h->bytes; n++) {
			if (http1_head_parse(&part, span_of(in.p, n), allow_address) != -EAGAIN ||
			    !http1_is_request(span_of(in.p, n)))
				fail_msg("%s: with %zu bytes", why, n);
		}
	}
	return r;
}

static void test_lines(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		struct span in;
	} t[] = {
		{ "plain", 0, S(GET H E) },
		{ "nothing", -EAGAIN, S("") },
		{ "no end", -EAGAIN, S(GET H) },
		{ "half an end", -EAGAIN, S(GET H "\r") },
		{ "1.0", 0, S("GET / HTTP/1.0\r\n" H E) },
		{ "1.2", -EPROTO, S("GET / HTTP/1.2\r\n" H E) },
		{ "2.0", -EPROTO, S("GET / HTTP/2.0\r\n" H E) },
		{ "1.10", -EPROTO, S("GET / HTTP/1.10\r\n" H E) },
		{ "01.1", -EPROTO, S("GET / HTTP/01.1\r\n" H E) },
		{ "lower case version", -EPROTO, S("GET / http/1.1\r\n" H E) },
		{ "another protocol", -EPROTO, S("GET / RTSP/1.0\r\n" H E) },
		{ "0.9", -EPROTO, S("GET /\r\n") },
		{ "0.9 with its name", -EPROTO, S("GET / HTTP/0.9\r\n" H E) },
		{ "preface of HTTP/2", -EPROTO, S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") },
		{ "bare LF everywhere", -EPROTO, S("GET / HTTP/1.1\nHost: example.com\n\n") },
		{ "bare LF in the request line", -EPROTO, S("GET / HTTP/1.1\n" H E) },
		{ "bare LF behind a field", -EPROTO, S(GET "Host: example.com\n" E) },
		{ "bare LF at the end", -EPROTO, S(GET H "\n") },
		{ "bare CR in a line", -EPROTO, S("GET /\rx HTTP/1.1\r\n" H E) },
		{ "bare CR in a value", -EPROTO, S(GET H "X: a\rHost: evil.com\r\n" E) },
		{ "CR CR LF", -EPROTO, S(GET H "X: a\r\r\n" E) },
		{ "CR CR LF at the end", -EPROTO, S(GET H "\r\r\n") },
		{ "empty line before", -EPROTO, S(E GET H E) },
		{ "LF before", -EPROTO, S("\n" GET H E) },
		{ "space before", -EPROTO, S(" " GET H E) },
		{ "two spaces", -EPROTO, S("GET  / HTTP/1.1\r\n" H E) },
		{ "two spaces before the version", -EPROTO, S("GET /  HTTP/1.1\r\n" H E) },
		{ "space behind the version", -EPROTO, S("GET / HTTP/1.1 \r\n" H E) },
		{ "tab", -EPROTO, S("GET\t/\tHTTP/1.1\r\n" H E) },
		{ "form feed", -EPROTO, S("GET / \x0cHTTP/1.1\r\n" H E) },
		{ "space in the target", -EPROTO, S("GET /a b HTTP/1.1\r\n" H E) },
		{ "NUL in the target", -EPROTO, S("GET /a\0b HTTP/1.1\r\n" H E) },
		{ "fragment", -EPROTO, S("GET /a#b HTTP/1.1\r\n" H E) },
		{ "beyond ASCII in the target", -EPROTO, S("GET /\xc3\xbc HTTP/1.1\r\n" H E) },
		{ "DEL in the target", -EPROTO, S("GET /\x7f HTTP/1.1\r\n" H E) },
		{ "target that is no path", -EPROTO, S("GET index.html HTTP/1.1\r\n" H E) },
		{ "query alone", -EPROTO, S("GET ?x HTTP/1.1\r\n" H E) },
		{ "two slashes", 0, S("GET //evil.com/ HTTP/1.1\r\n" H E) },
		{ "lower case method", -EPROTO, S("get / HTTP/1.1\r\n" H E) },
		{ "method with a digit", -EPROTO, S("GET2 / HTTP/1.1\r\n" H E) },
		{ "method with a hyphen", 0, S("M-SEARCH / HTTP/1.1\r\n" H E) },
		{ "hyphen first", -EPROTO, S("-GET / HTTP/1.1\r\n" H E) },
		{ "method with a colon", -EPROTO, S("GET: / HTTP/1.1\r\n" H E) },
		{ "method with a NUL", -EPROTO, S("G\0T / HTTP/1.1\r\n" H E) },
		{ "method of 32", 0, S("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\n" H E) },
		{ "method of 33", -EPROTO,
		  S("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" H E) },
		{ "no method", -EPROTO, S("/ HTTP/1.1\r\n" H E) },
		{ "asterisk", 0, S("OPTIONS * HTTP/1.1\r\n" H E) },
		{ "asterisk of GET", -EPROTO, S("GET * HTTP/1.1\r\n" H E) },
		{ "asterisk and more", -EPROTO, S("OPTIONS *x HTTP/1.1\r\n" H E) },
		{ "TLS", -EPROTO, S("\x16\x03\x01\r\n\r\n") },
		{ "ssh", -EPROTO, S("SSH-2.0-OpenSSH_9.2 x\r\n\r\n") },
		/* fields */
		{ "no value", 0, S(GET H "X:\r\n" E) },
		{ "blanks around a value", 0, S(GET H "X: \t a \t \r\n" E) },
		{ "no blank", 0, S(GET H "X:a\r\n" E) },
		{ "Latin-1 in a value", 0, S(GET H "X: \xe4\r\n" E) },
		{ "no colon", -EPROTO, S(GET H "X\r\n" E) },
		{ "no name", -EPROTO, S(GET H ": a\r\n" E) },
		{ "space before the colon", -EPROTO, S(GET H "X : a\r\n" E) },
		{ "tab before the colon", -EPROTO, S(GET H "X\t: a\r\n" E) },
		{ "space before the colon of Host", -EPROTO, S(GET "Host : example.com\r\n" E) },
		{ "folded with a space", -EPROTO, S(GET H "X: a\r\n b\r\n" E) },
		{ "folded with a tab", -EPROTO, S(GET H "X: a\r\n\tb\r\n" E) },
		{ "folded, nothing in it", -EPROTO, S(GET H "X: a\r\n \r\n" E) },
		{ "folded first line", -EPROTO, S(GET " " H E) },
		{ "folded Host", -EPROTO, S(GET "Host:\r\n example.com\r\n" E) },
		{ "NUL in a value", -EPROTO, S(GET H "X: a\0b\r\n" E) },
		{ "control in a value", -EPROTO, S(GET H "X: a\x1b[m\r\n" E) },
		{ "vertical tab in a value", -EPROTO, S(GET H "X: \x0b\r\n" E) },
		{ "DEL in a value", -EPROTO, S(GET H "X: \x7f\r\n" E) },
		{ "NUL in a name", -EPROTO, S(GET H "X\0: a\r\n" E) },
		{ "beyond ASCII in a name", -EPROTO, S(GET H "X\xe4: a\r\n" E) },
		{ "slash in a name", -EPROTO, S(GET H "X/y: a\r\n" E) },
		{ "bracket in a name", -EPROTO, S(GET H "X[0]: a\r\n" E) },
		{ "token bytes in a name", 0, S(GET H "!#$%&'*+-.^_`|~09Az: a\r\n" E) },
	};
	struct http1_head h;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = parse(t[i].why, &h, t[i].in, false);

		if (r != t[i].want)
			fail_msg("%s: %d", t[i].why, r);
		if (r == 0 && h.bytes != t[i].in.len)
			fail_msg("%s: %zu bytes", t[i].why, h.bytes);
	}
}

static void test_hosts(void **state UNUSED)
{
#define A(target) "GET " target " HTTP/1.1\r\n"
#define C(target) "CONNECT " target " HTTP/1.1\r\n"
	static const struct {
		const char *why, *host; /* NULL: refused */
		uint16_t port;
		struct span in;
	} t[] = {
		{ "plain", "example.com", 0, S(GET H E) },
		{ "case", "example.com", 0, S(GET "hOST:Example.COM \t\r\n" E) },
		{ "port", "example.com", 8080, S(GET "Host: example.com:8080\r\n" E) },
		{ "port 1", "example.com", 1, S(GET "Host: example.com:1\r\n" E) },
		{ "port 65535", "example.com", 65535, S(GET "Host: example.com:65535\r\n" E) },
		{ "port 65536", NULL, 0, S(GET "Host: example.com:65536\r\n" E) },
		{ "port 0", NULL, 0, S(GET "Host: example.com:0\r\n" E) },
		{ "port 080", NULL, 0, S(GET "Host: example.com:080\r\n" E) },
		{ "port +80", NULL, 0, S(GET "Host: example.com:+80\r\n" E) },
		{ "port beyond 64 bits", NULL, 0,
		  S(GET "Host: example.com:18446744073709551696\r\n" E) },
		{ "no port behind the colon", NULL, 0, S(GET "Host: example.com:\r\n" E) },
		{ "two ports", NULL, 0, S(GET "Host: example.com:80:80\r\n" E) },
		{ "port and junk", NULL, 0, S(GET "Host: example.com:80@evil.com\r\n" E) },
		{ "none", NULL, 0, S(GET E) },
		{ "none in 1.0", "", 0, S("GET / HTTP/1.0\r\n" E) },
		{ "empty", NULL, 0, S(GET "Host:\r\n" E) },
		{ "empty in 1.0", NULL, 0, S("GET / HTTP/1.0\r\nHost:\r\n" E) },
		{ "port alone", NULL, 0, S(GET "Host: :80\r\n" E) },
		{ "twice", NULL, 0, S(GET H H E) },
		{ "twice, apart and in another case", NULL, 0,
		  S(GET H "X: y\r\nhOSt: evil.com\r\n" E) },
		{ "twice in 1.0", NULL, 0, S("GET / HTTP/1.0\r\n" H H E) },
		{ "list", NULL, 0, S(GET "Host: example.com, evil.com\r\n" E) },
		{ "two words", NULL, 0, S(GET "Host: example.com evil.com\r\n" E) },
		{ "final dot", NULL, 0, S(GET "Host: example.com.\r\n" E) },
		{ "user", NULL, 0, S(GET "Host: u@example.com\r\n" E) },
		{ "percent", NULL, 0, S(GET "Host: example%2ecom\r\n" E) },
		{ "path", NULL, 0, S(GET "Host: example.com/x\r\n" E) },
		{ "URI", NULL, 0, S(GET "Host: http://example.com\r\n" E) },
		{ "backslash", NULL, 0, S(GET "Host: example.com\\.evil.com\r\n" E) },
		{ "quoted", NULL, 0, S(GET "Host: \"example.com\"\r\n" E) },
		{ "beyond ASCII", NULL, 0, S(GET "Host: ex\xc3\xa4mple.com\r\n" E) },
		{ "wildcard", NULL, 0, S(GET "Host: *.example.com\r\n" E) },
		{ "v6", NULL, 0, S(GET "Host: [::1]\r\n" E) },
		{ "v6 and port", NULL, 0, S(GET "Host: [::1]:80\r\n" E) },
		{ "v4", NULL, 0, S(GET "Host: 127.0.0.1\r\n" E) },
		{ "v4 as a number", NULL, 0, S(GET "Host: 2130706433\r\n" E) },
		{ "v4 in hex", NULL, 0, S(GET "Host: 0x7f.1\r\n" E) },
		{ "253 bytes", N253, 0, S(GET "Host: " N253 "\r\n" E) },
		{ "254 bytes", NULL, 0, S(GET "Host: " N253 "x\r\n" E) },
		{ "with an underscore is no field of ours", "example.com", 0,
		  S(GET H "X_Host: evil.com\r\n" E) },
		/* absolute URIs */
		{ "absolute", "example.com", 0, S(A("http://example.com/x") H E) },
		{ "absolute, case", "example.com", 0, S(A("HTTP://EXAMPLE.com/x") H E) },
		{ "absolute, no path", "example.com", 0, S(A("http://example.com") H E) },
		{ "absolute, query", "example.com", 0, S(A("http://example.com?@evil.com/") H E) },
		{ "absolute, port 80 in it", "example.com", 80,
		  S(A("http://example.com:80/") H E) },
		{ "absolute, port 80 in Host", "example.com", 80,
		  S(A("http://example.com/") "Host: example.com:80\r\n" E) },
		{ "absolute, port of its own", NULL, 0, S(A("http://example.com:81/") H E) },
		{ "absolute, port of Host only", NULL, 0,
		  S(A("http://example.com/") "Host: example.com:81\r\n" E) },
		{ "absolute, the same port", "example.com", 81,
		  S(A("http://example.com:81/") "Host: example.com:81\r\n" E) },
		{ "absolute, another host", NULL, 0, S(A("http://evil.com/") H E) },
		{ "absolute, a host below", NULL, 0, S(A("http://a.example.com/") H E) },
		{ "absolute, user", NULL, 0, S(A("http://example.com@evil.com/") H E) },
		{ "absolute, user of the same", NULL, 0, S(A("http://u:p@example.com/") H E) },
		{ "absolute, backslash", NULL, 0, S(A("http://evil.com\\@example.com/") H E) },
		{ "absolute, empty host", NULL, 0, S(A("http:///x") H E) },
		{ "absolute, empty port", NULL, 0, S(A("http://example.com:/") H E) },
		{ "absolute, percent", NULL, 0, S(A("http://example%2ecom/") H E) },
		{ "absolute, https", NULL, 0, S(A("https://example.com/") H E) },
		{ "absolute, ftp", NULL, 0, S(A("ftp://example.com/") H E) },
		{ "absolute, one slash", NULL, 0, S(A("http:/example.com/") H E) },
		{ "absolute without Host", NULL, 0, S(A("http://example.com/") E) },
		{ "absolute without Host in 1.0", "example.com", 0,
		  S("GET http://example.com/ HTTP/1.0\r\n" E) },
		{ "absolute against Host in 1.0", NULL, 0,
		  S("GET http://evil.com/ HTTP/1.0\r\n" H E) },
		/* CONNECT */
		{ "connect", "example.com", 443,
		  S(C("example.com:443") "Host: example.com:443\r\n" E) },
		{ "connect, Host without port", "example.com", 443, S(C("example.com:443") H E) },
		{ "connect, another port", NULL, 0,
		  S(C("example.com:443") "Host: example.com:80\r\n" E) },
		{ "connect, another host", NULL, 0, S(C("evil.com:443") H E) },
		{ "connect, no port", NULL, 0, S(C("example.com") H E) },
		{ "connect, no Host", NULL, 0, S(C("example.com:443") E) },
		{ "connect, path", NULL, 0, S(C("/") H E) },
		{ "connect, URI", NULL, 0, S(C("http://example.com/") H E) },
		{ "connect, user", NULL, 0, S(C("u@example.com:443") H E) },
		{ "connect, asterisk", NULL, 0, S(C("*") H E) },
		{ "authority of another method", NULL, 0, S(A("example.com:443") H E) },
	};
	struct http1_head h;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = parse(t[i].why, &h, t[i].in, false);

		if (r != (t[i].host ? 0 : -EPROTO))
			fail_msg("%s: %d", t[i].why, r);
		if (r == 0 && (strcmp(h.host, t[i].host) != 0 || h.port != t[i].port))
			fail_msg("%s: %s %u", t[i].why, h.host, h.port);
	}
	/* addresses, where the caller takes them */
	static const struct span v4 = S(GET "Host: 127.0.0.1:8080\r\n" E);
	static const struct span v6 = S(GET "Host: [::1]:8080\r\n" E);
	static const struct span zeros = S(GET "Host: 127.0.0.01\r\n" E);
	assert_int_equal(parse("v4", &h, v4, true), 0);
	assert_string_equal(h.host, "127.0.0.1");
	assert_int_equal(h.port, 8080);
	assert_int_equal(parse("v6", &h, v6, true), -EPROTO);
	assert_int_equal(parse("zeros", &h, zeros, true), -EPROTO);
}

static void test_framing(void **state UNUSED)
{
	static const struct {
		const char *why;
		int body; /* or -EPROTO */
		uint64_t length;
		struct span in;
	} t[] = {
		{ "none", HTTP1_NO_BODY, 0, S(POST E) },
		{ "length", HTTP1_LENGTH, 5, S(POST "Content-Length: 5\r\n" E) },
		{ "length 0", HTTP1_NO_BODY, 0, S(POST "Content-Length: 0\r\n" E) },
		{ "largest length", HTTP1_LENGTH, INT64_MAX,
		  S(POST "Content-Length: 9223372036854775807\r\n" E) },
		{ "one more", -EPROTO, 0, S(POST "Content-Length: 9223372036854775808\r\n" E) },
		{ "beyond 64 bits", -EPROTO, 0,
		  S(POST "Content-Length: 18446744073709551621\r\n" E) },
		{ "many digits", -EPROTO, 0,
		  S(POST "Content-Length: 00000000000000000000000000000000000005\r\n" E) },
		{ "plus", -EPROTO, 0, S(POST "Content-Length: +5\r\n" E) },
		{ "minus", -EPROTO, 0, S(POST "Content-Length: -5\r\n" E) },
		{ "leading zero", -EPROTO, 0, S(POST "Content-Length: 05\r\n" E) },
		{ "00", -EPROTO, 0, S(POST "Content-Length: 00\r\n" E) },
		{ "hex", -EPROTO, 0, S(POST "Content-Length: 0x5\r\n" E) },
		{ "fraction", -EPROTO, 0, S(POST "Content-Length: 5.0\r\n" E) },
		{ "underscore in it", -EPROTO, 0, S(POST "Content-Length: 1_0\r\n" E) },
		{ "space in it", -EPROTO, 0, S(POST "Content-Length: 1 0\r\n" E) },
		{ "empty length", -EPROTO, 0, S(POST "Content-Length:\r\n" E) },
		{ "list of equal ones", -EPROTO, 0, S(POST "Content-Length: 5, 5\r\n" E) },
		{ "two equal ones", -EPROTO, 0,
		  S(POST "Content-Length: 5\r\nContent-Length: 5\r\n" E) },
		{ "two", -EPROTO, 0, S(POST "Content-Length: 5\r\ncontent-length: 6\r\n" E) },
		{ "chunked", HTTP1_CHUNKED, 0, S(POST "Transfer-Encoding: chunked\r\n" E) },
		{ "chunked, case of the name", HTTP1_CHUNKED, 0,
		  S(POST "tRANSFER-eNCODING: chunked\r\n" E) },
		{ "chunked, case of the coding", -EPROTO, 0,
		  S(POST "Transfer-Encoding: Chunked\r\n" E) },
		{ "chunked and length", -EPROTO, 0,
		  S(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" E) },
		{ "length 0 and chunked", -EPROTO, 0,
		  S(POST "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n" E) },
		{ "chunked twice", -EPROTO, 0,
		  S(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" E) },
		{ "chunked, chunked", -EPROTO, 0,
		  S(POST "Transfer-Encoding: chunked, chunked\r\n" E) },
		{ "gzip, chunked", -EPROTO, 0, S(POST "Transfer-Encoding: gzip, chunked\r\n" E) },
		{ "chunked, identity", -EPROTO, 0,
		  S(POST "Transfer-Encoding: chunked, identity\r\n" E) },
		{ "identity", -EPROTO, 0, S(POST "Transfer-Encoding: identity\r\n" E) },
		{ "xchunked", -EPROTO, 0, S(POST "Transfer-Encoding: xchunked\r\n" E) },
		{ "quoted", -EPROTO, 0, S(POST "Transfer-Encoding: \"chunked\"\r\n" E) },
		{ "parameter", -EPROTO, 0, S(POST "Transfer-Encoding: chunked;x=y\r\n" E) },
		{ "empty coding", -EPROTO, 0, S(POST "Transfer-Encoding:\r\n" E) },
		{ "vertical tab before it", -EPROTO, 0,
		  S(POST "Transfer-Encoding:\x0b"
		         "chunked\r\n" E) },
		{ "comma before it", -EPROTO, 0, S(POST "Transfer-Encoding: ,chunked\r\n" E) },
		{ "chunked in 1.0", -EPROTO, 0,
		  S("POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n" E) },
		{ "length in 1.0", HTTP1_LENGTH, 5,
		  S("POST / HTTP/1.0\r\n" H "Content-Length: 5\r\n" E) },
		{ "disguised coding", -EPROTO, 0, S(POST "Transfer_Encoding: chunked\r\n" E) },
		{ "disguised length", -EPROTO, 0, S(POST "CONTENT_LENGTH: 5\r\n" E) },
		{ "length of GET", HTTP1_LENGTH, 5, S(GET H "Content-Length: 5\r\n" E) },
		{ "body of TRACE", -EPROTO, 0,
		  S("TRACE / HTTP/1.1\r\n" H "Content-Length: 5\r\n" E) },
		{ "body of CONNECT", -EPROTO, 0,
		  S("CONNECT example.com:443 HTTP/1.1\r\n" H "Content-Length: 5\r\n" E) },
		{ "chunks of CONNECT", -EPROTO, 0,
		  S("CONNECT example.com:443 HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n" E) },
		/* Connection may not name what frames or names a request */
		{ "Connection: host", -EPROTO, 0, S(POST "Connection: close, Host\r\n" E) },
		{ "Connection: content-length", -EPROTO, 0,
		  S(POST "Connection: content-length\r\n" E) },
		{ "Connection: transfer-encoding", -EPROTO, 0,
		  S(POST "Connection: transfer-encoding\r\n" E) },
		{ "Connection: something else", HTTP1_NO_BODY, 0,
		  S(POST "Connection: X-Foo, TE\r\n" E) },
	};
	struct http1_head h;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = parse(t[i].why, &h, t[i].in, false);

		if (r != MIN(t[i].body, 0))
			fail_msg("%s: %d", t[i].why, r);
		if (r == 0 && (h.body != (enum http1_body)t[i].body || h.length != t[i].length))
			fail_msg("%s: %d, %lu", t[i].why, h.body, (unsigned long)h.length);
	}
}

static void test_options(void **state UNUSED)
{
	enum { CLOSE = 1, UPGRADE = 2, EXPECT = 4, CONNECT = 8, REFUSED = 16 };
#define G10 "GET / HTTP/1.0\r\n" H
	static const struct {
		const char *why;
		int want;
		struct span in;
	} t[] = {
		{ "1.1", 0, S(GET H E) },
		{ "1.1 keep-alive", 0, S(GET H "Connection: keep-alive\r\n" E) },
		{ "1.1 close", CLOSE, S(GET H "Connection: Close\r\n" E) },
		{ "close in a list", CLOSE, S(GET H "Connection: TE,, close\r\n" E) },
		{ "close in a second field", CLOSE,
		  S(GET H "Connection: TE\r\nConnection: close\r\n" E) },
		{ "both", REFUSED, S(GET H "Connection: close, keep-alive\r\n" E) },
		{ "closed is another word", 0, S(GET H "Connection: closed\r\n" E) },
		{ "1.0", CLOSE, S(G10 E) },
		{ "1.0 keep-alive", 0, S(G10 "Connection: Keep-Alive\r\n" E) },
		{ "websocket", UPGRADE,
		  S(GET H "Connection: Upgrade\r\nUpgrade: WebSocket\r\n" E) },
		{ "no Connection", REFUSED, S(GET H "Upgrade: websocket\r\n" E) },
		{ "no Upgrade", REFUSED, S(GET H "Connection: upgrade\r\n" E) },
		{ "h2c", REFUSED,
		  S(GET H "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
		          "A\r\n" E) },
		{ "websocket or h2c", REFUSED,
		  S(GET H "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n" E) },
		{ "h2c in a second field", REFUSED,
		  S(GET H "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n" E) },
		{ "TLS", REFUSED, S(GET H "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n" E) },
		{ "upgrade in 1.0", REFUSED,
		  S(G10 "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" E) },
		{ "upgrade and close", REFUSED,
		  S(GET H "Connection: close, Upgrade\r\nUpgrade: websocket\r\n" E) },
		{ "upgrade with a body", REFUSED,
		  S(POST "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n" E) },
		{ "expect", EXPECT, S(POST "Expect: 100-Continue\r\nContent-Length: 1\r\n" E) },
		{ "expect, chunked", EXPECT,
		  S(POST "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n" E) },
		{ "expect without a body", REFUSED, S(GET H "Expect: 100-continue\r\n" E) },
		{ "expect something else", REFUSED,
		  S(POST "Expect: 200-ok\r\nContent-Length: 1\r\n" E) },
		{ "expect twice", REFUSED,
		  S(POST
		    "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 1\r\n" E) },
		{ "expect in 1.0", REFUSED,
		  S("POST / HTTP/1.0\r\n" H "Expect: 100-continue\r\nContent-Length: 1\r\n" E) },
		{ "connect", CONNECT, S("CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n" E) },
		{ "connect and close", REFUSED,
		  S("CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\nConnection: close\r\n" E) },
		{ "connect and upgrade", REFUSED,
		  S("CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\nConnection: upgrade\r\n"
		    "Upgrade: websocket\r\n" E) },
	};
	struct http1_head h;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = parse(t[i].why, &h, t[i].in, false);

		if (r != (t[i].want == REFUSED ? -EPROTO : 0))
			fail_msg("%s: %d", t[i].why, r);
		if (r < 0)
			continue;
		int got = (h.close ? CLOSE : 0) | (h.upgrade ? UPGRADE : 0) |
		          (h.expect ? EXPECT : 0) | (h.connect ? CONNECT : 0);
		if (got != t[i].want)
			fail_msg("%s: %d", t[i].why, got);
	}
}

static void test_values(void **state UNUSED)
{
	static const struct span in = S("PUT /a?b HTTP/1.1\r\nA:\r\nHost: example.com:8080\r\n"
	                                "B: \t c d\t\r\n\r\nrest");
	struct http1_head h;

	assert_int_equal(http1_head_parse(&h, in, false), 0);
	assert_true(span_eq(h.method, span_str("PUT")) && span_eq(h.target, span_str("/a?b")));
	assert_int_equal(h.minor, 1);
	assert_int_equal(h.n_fields, 3);
	assert_true(span_eq(h.fields[0].name, span_str("A")) && h.fields[0].value.len == 0);
	assert_true(span_eq(h.fields[1].value, span_str("example.com:8080")));
	assert_true(span_eq(h.fields[2].name, span_str("B")));
	assert_true(span_eq(h.fields[2].value, span_str("c d")));
	assert_int_equal(h.bytes, in.len - 4);
}

static void test_sizes(void **state UNUSED)
{
	static char b[HTTP1_HEAD_MAX + 100];
	struct http1_head h;

	/* fields: the most, and one more */
	for (int n = HTTP1_FIELDS_MAX; n <= HTTP1_FIELDS_MAX + 1; n++) {
		size_t at = (size_t)snprintf(b, sizeof(b), "%s%s", GET, H);

		for (int i = 1; i < n; i++)
			at += (size_t)snprintf(b + at, sizeof(b) - at, "X: y\r\n");
		at += (size_t)snprintf(b + at, sizeof(b) - at, "\r\n");
		int want = n == HTTP1_FIELDS_MAX ? 0 : -EMSGSIZE;
		assert_int_equal(http1_head_parse(&h, span_of(b, at), false), want);
	}
	/* one long field, so that the head has the limit, and one byte more */
	for (size_t over = 0; over <= 1; over++) {
		size_t at = (size_t)snprintf(b, sizeof(b), "%s%sX: ", GET, H);

		memset(b + at, 'y', sizeof(b) - at);
		memcpy(b + HTTP1_HEAD_MAX - 4 + over, "\r\n\r\nrest", 8);
		int want = over ? -EMSGSIZE : 0;
		assert_int_equal(http1_head_parse(&h, span_of(b, HTTP1_HEAD_MAX + over), false),
		                 want);
		assert_int_equal(http1_head_parse(&h, span_of(b, HTTP1_HEAD_MAX + 50), false),
		                 want);
		assert_int_equal(http1_head_parse(&h, span_of(b, HTTP1_HEAD_MAX - 1), false),
		                 -EAGAIN);
	}
	/* a request line without end */
	memset(b, 'A', sizeof(b));
	assert_int_equal(http1_head_parse(&h, span_of(b, HTTP1_HEAD_MAX - 1), false), -EAGAIN);
	assert_int_equal(http1_head_parse(&h, span_of(b, HTTP1_HEAD_MAX), false), -EMSGSIZE);
}

static void test_is_request(void **state UNUSED)
{
	static const struct {
		bool want;
		struct span in;
	} t[] = {
		{ true, S("") },
		{ true, S("G") },
		{ true, S("GET") },
		{ true, S("GET ") },
		{ true, S("GET / HT") },
		{ true, S("GET / HTTP/1.1\r\n") },
		{ true, S("GET / HTTP/1.1\n") },
		{ true, S("get / http/1.1\r\n") },
		{ true, S("GET\t/ HTTP/1.0 \r\nx") },
		{ true, S("GET  /x y HTTP/1.9\r\n") },
		{ false, S("GET /\r\n") },
		{ false, S("PRI * HTTP/2.0\r\n\r\n") },
		{ false, S("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n") },
		{ false, S("SSH-2.0-libssh2_1.10.0\r\n") },
		{ false, S("EHLO example.com\r\n") },
		{ false, S("SET key value\r\n") },
		{ false, S("*1\r\n$4\r\nPING\r\n") },
		{ false, S("HELLO\n") },
		{ false, S("\x16\x03\x01") },
		{ false, S("\0") },
		{ false, S("GET \0") },
		{ false, S(" GET") },
		{ false, S("\r\nGET / HTTP/1.1\r\n") },
		{ false, S("G\xc3T / HTTP/1.1\r\n") },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (http1_is_request(t[i].in) != t[i].want)
			fail_msg("'%.*s'", (int)t[i].in.len, (const char *)t[i].in.p);
	}
}

static void test_chunks(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		size_t used;
		struct span in;
	} t[] = {
		{ "empty body", 1, 5, S("0\r\n\r\nrest") },
		{ "one chunk", 1, 15, S("5\r\nhello\r\n0\r\n\r\n") },
		{ "hex, both cases", 1, 38,
		  S("a\r\n0123456789\r\nB\r\n0123456789a\r\n000\r\n\r\n") },
		{ "incomplete", 0, 7, S("5\r\nhell") },
		{ "8 digits", 1, 19, S("00000002\r\nhi\r\n0\r\n\r\n") },
		{ "9 digits", -EPROTO, 8, S("000000002\r\nhi\r\n0\r\n\r\n") },
		{ "largest", 0, 10, S("7fffffff\r\n") },
		{ "one more", -EPROTO, 7, S("80000000\r\n") },
		{ "beyond", -EPROTO, 7, S("ffffffff\r\n") },
		{ "0x", -EPROTO, 1, S("0x5\r\nhello\r\n") },
		{ "no digits", -EPROTO, 0, S("\r\nhello") },
		{ "sign", -EPROTO, 0, S("+5\r\nhello") },
		{ "space before", -EPROTO, 0, S(" 5\r\nhello") },
		{ "space behind", -EPROTO, 1, S("5 \r\nhello") },
		{ "tab behind", -EPROTO, 1, S("5\t\r\nhello") },
		{ "extension", -EPROTO, 1, S("5;x=y\r\nhello") },
		{ "extension of the last", -EPROTO, 1, S("0;x\r\n\r\n") },
		{ "bare LF behind the size", -EPROTO, 1, S("5\nhello\r\n") },
		{ "bare CR behind the size", -EPROTO, 2, S("5\rhello\r\n") },
		{ "no line end behind the data", -EPROTO, 8, S("5\r\nhello0\r\n\r\n") },
		{ "bare LF behind the data", -EPROTO, 8, S("5\r\nhello\n0\r\n\r\n") },
		{ "bare CR behind the data", -EPROTO, 9, S("5\r\nhello\r0\r\n\r\n") },
		{ "trailer", -EPROTO, 3, S("0\r\nX: y\r\n\r\n") },
		{ "bare LF at the end", -EPROTO, 3, S("0\r\n\n") },
		{ "bare CR at the end", -EPROTO, 4, S("0\r\n\r\r\n") },
		{ "NUL", -EPROTO, 1, S("5\0\r\nhello") },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		for (size_t step = 1; step <= t[i].in.len; step++) {
			struct http1_chunks c = { 0 };
			size_t at = 0, used = 0;
			int r = 0;

			while (r == 0 && at < t[i].in.len) {
				size_t n = MIN(step, t[i].in.len - at);

				r = http1_chunks_take(&c, span_of(t[i].in.p + at, n), &used);
				at += used;
			}
			if (r != t[i].want || at != t[i].used)
				fail_msg("%s, by %zu: %d, %zu bytes", t[i].why, step, r, at);
			if (r != 0 && (http1_chunks_take(&c, t[i].in, &used) != r || used != 0))
				fail_msg("%s: it went on", t[i].why);
		}
	}
}

/* ---- a connection ---- */

struct judged {
	int n, refuse_at; /* refuses the request of that number, from 1 */
	char hosts[256];
};

static int judge(void *arg, const struct http1_head *h)
{
	struct judged *j = arg;

	j->n++;
	strcat(strcat(j->hosts, h->host), " ");
	return j->n == j->refuse_at ? -EACCES : 0;
}

#define R(host) "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"
#define WS "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

static void test_stream(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		size_t rest; /* bytes at the end that are not used */
		int refuse_at;
		const char *hosts;
		struct span in;
	} t[] = {
		{ "one", 0, 0, 0, "a ", S(R("a")) },
		{ "pipelined", 0, 0, 0, "a b c ", S(R("a") R("b") R("c")) },
		{ "a head that waits", 0, 3, 0, "a ", S(R("a") "GET") },
		{ "the second is refused", -EACCES, sizeof(R("b")) - 1, 2, "a b ",
		  S(R("a") R("b")) },
		{ "the second is none", -EPROTO, 5, 0, "a ", S(R("a") "\r\n\r\n ") },
		{ "body, request", 0, 0, 0, "a b ",
		  S("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18\r\n\r\n"
		    "GET / HTTP/1.1\r\n\r\n" R("b")) },
		{ "chunks, request", 0, 0, 0, "a b ",
		  S("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		    "5\r\nhello\r\n0\r\n\r\n" R("b")) },
		{ "a bad chunk", -EPROTO, 5, 0, "a ",
		  S("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		    "5\r\nhelloxxxxx") },
		{ "no request for chunks of two bodies", 0, 0, 0, "a b ",
		  S("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		    "POST / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: "
		    "chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n") },
		{ "close, nothing more", 0, 0, 0, "a ",
		  S("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") },
		{ "close, body", 0, 0, 0, "a ",
		  S("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: "
		    "2\r\n\r\nhi") },
		{ "close, and a byte", -EPROTO, 1, 0, "a ",
		  S("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: "
		    "2\r\n\r\nhi!") },
		{ "1.0, and a request", -EPROTO, sizeof(R("b")) - 1, 0, "a ",
		  S("GET / HTTP/1.0\r\nHost: a\r\n\r\n" R("b")) },
		{ "upgrade waits", 0, sizeof(R("b")) - 1, 0, "a ", S(WS R("b")) },
		{ "connect waits", 0, sizeof(R("b")) - 1, 0, "a.b ",
		  S("CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n" R("b")) },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		for (size_t step = 1; step <= t[i].in.len; step++) {
			struct judged j = { .refuse_at = t[i].refuse_at };
			struct http1_stream s = { 0 };
			size_t at = 0, end = 0, used;
			int r = 0;

			while (r == 0 && end < t[i].in.len) {
				end = MIN(end + step, t[i].in.len);
				r = http1_stream_take(&s, span_of(t[i].in.p + at, end - at), judge,
				                      &j, &used);
				at += used;
			}
			if (r != t[i].want || strcmp(j.hosts, t[i].hosts) != 0 ||
			    t[i].in.len - at != t[i].rest)
				fail_msg("%s, by %zu: %d, %s, %zu bytes left", t[i].why, step, r,
				         j.hosts, t[i].in.len - at);
			/* over is over */
			if (r < 0 && http1_stream_take(&s, span_str(R("z")), judge, &j, &used) != r)
				fail_msg("%s: it went on", t[i].why);
		}
	}
}

static void test_stream_switch(void **state UNUSED)
{
	static const struct span in = S(WS R("b"));

	for (int yes = 0; yes <= 1; yes++) {
		struct judged j = { 0 };
		struct http1_stream s = { 0 };
		size_t used, more;

		assert_int_equal(http1_stream_take(&s, in, judge, &j, &used), 0);
		assert_true(http1_stream_waits(&s));
		assert_int_equal(used, sizeof(WS) - 1);
		assert_int_equal(http1_stream_take(&s, span_of(in.p + used, 9), judge, &j, &more),
		                 0);
		assert_int_equal(more, 0);
		http1_stream_switched(&s, yes);
		assert_false(http1_stream_waits(&s));
		assert_int_equal(http1_stream_take(&s, span_of(in.p + used, in.len - used), judge,
		                                   &j, &more),
		                 0);
		assert_int_equal(more, in.len - used);
		assert_string_equal(j.hosts, yes ? "a " : "a b ");
		if (yes)
			assert_int_equal(
				http1_stream_take(&s, span_str("\0\n any"), judge, &j, &more), 0);
	}
	/* elsewhere it changes nothing */
	struct http1_stream s = { 0 };
	struct judged j = { 0 };
	size_t used;
	http1_stream_switched(&s, true);
	assert_int_equal(http1_stream_take(&s, span_str("x\r\n"), judge, &j, &used), -EPROTO);
	/* an address is for who asked for it */
	s = (struct http1_stream){ .allow_address = true };
	assert_int_equal(http1_stream_take(&s, span_str(R("127.0.0.1:1")), judge, &j, &used), 0);
	s = (struct http1_stream){ 0 };
	assert_int_equal(http1_stream_take(&s, span_str(R("127.0.0.1:1")), judge, &j, &used),
	                 -EPROTO);
}

static void test_stream_waits_no_more(void **state UNUSED)
{
	static uint8_t b[HTTP1_HEAD_MAX];
	struct http1_stream s = { 0 };
	struct judged j = { 0 };
	size_t used;

	memset(b, 'A', sizeof(b));
	assert_int_equal(http1_stream_take(&s, span_of(b, sizeof(b) - 1), judge, &j, &used), 0);
	assert_int_equal(used, 0);
	assert_int_equal(http1_stream_take(&s, span_of(b, sizeof(b)), judge, &j, &used), -EMSGSIZE);
}

static void test_status(void **state UNUSED)
{
	static const struct {
		int want;
		struct span in;
	} t[] = {
		{ -EAGAIN, S("") },
		{ -EAGAIN, S("HTTP/1.1 20") },
		{ -EAGAIN, S("HTTP/1.1 200") },
		{ 200, S("HTTP/1.1 200 ") },
		{ 200, S("HTTP/1.0 200 OK\r\n") },
		{ 101, S("HTTP/1.1 101\r") },
		{ 100, S("HTTP/1.1 100 Continue") },
		{ 599, S("HTTP/1.1 599 ") },
		{ -EPROTO, S("HTTP/1.1 099 ") },
		{ -EPROTO, S("HTTP/1.1 600 ") },
		{ -EPROTO, S("HTTP/1.1 2000") },
		{ -EPROTO, S("HTTP/1.1 20x") },
		{ -EPROTO, S("HTTP/1.1  20") },
		{ -EPROTO, S("HTTP/1.1 200\n") },
		{ -EPROTO, S("HTTP/2") },
		{ -EPROTO, S("ICY 200 OK\r\n") },
		{ -EPROTO, S("http/1.1 200 OK\r\n") },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int got = http1_status_parse(t[i].in);

		if (got != t[i].want)
			fail_msg("'%.*s': %d", (int)t[i].in.len, (const char *)t[i].in.p, got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_framing),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_is_request),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stream_switch),
		cmocka_unit_test(test_stream_waits_no_more),
		cmocka_unit_test(test_status),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
