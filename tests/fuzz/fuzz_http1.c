/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first byte says what and how the rest is cut; the rest is one client's bytes.
 *
 * A connection: fed in any cut, the same heads are judged, the same bytes used, and it
 * ends the same. A head that is accepted is so with no byte less, begins like a
 * request, and is read by a second, naive reader as one with the same single Host, with
 * CR and LF only together, and with not both framings.
 * Chunks: the same end in any cut, and where a naive decoder finds it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/mem.h"
#include "wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

enum { MODE_CHUNKS = 1, MODE_ADDRESS = 2, MODE_SWITCH = 4 };

/* ---- heads ---- */

/* A copy of the value of the only field @name, or NULL; more than one is wrong. */
static char *naive_field(const char *head, const char *name)
{
	char *found = NULL;

	for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
		line += 2;
		if (strncasecmp(line, name, strlen(name)) != 0 || line[strlen(name)] != ':')
			continue;
		check(!found);
		const char *v = line + strlen(name) + 1, *end = strstr(v, "\r\n");
		v += strspn(v, " \t");
		while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
			end--;
		found = xstrndup(v, (size_t)(end - v));
	}
	return found;
}

static void check_head(const struct http1_head *h, struct span in)
{
	AUTO_FREE char *head = xstrndup((const char *)in.p, h->bytes);
	char want[HTTP1_NAME_BYTES + 8];

	check(strlen(head) == h->bytes); /* no NUL */
	check(strstr(head, "\r\n\r\n") == head + h->bytes - 4);
	for (const char *p = head; *p; p++)
		check((*p == '\n') == (p > head && p[-1] == '\r'));
	AUTO_FREE char *host = naive_field(head, "host");
	AUTO_FREE char *length = naive_field(head, "content-length");
	AUTO_FREE char *coding = naive_field(head, "transfer-encoding");
	check(host || h->minor == 0);
	check(!(length && coding));
	check((h->body == HTTP1_CHUNKED) == (coding != NULL));
	check(h->length == (length ? strtoull(length, NULL, 10) : 0));
	if (host) {
		char *colon = strchr(host, ':');
		bool port_of_target = !colon && h->port; /* named by the absolute URI alone */

		(void)snprintf(want, sizeof(want), colon || port_of_target ? "%s:%u" : "%s",
		               h->host, h->port);
		if (port_of_target)
			*strchr(want, ':') = '\0';
		check(strcasecmp(host, want) == 0);
	}
	check(h->n_fields <= HTTP1_FIELDS_MAX && h->bytes <= HTTP1_HEAD_MAX);
	check(!h->upgrade || h->body == HTTP1_NO_BODY);

	struct http1_head part;
	for (size_t n = 0; n<h->bytes; n += h->bytes> 300 ? 37 : 1) {
		check(http1_is_request(span_of(in.p, n)));
		check(http1_head_parse(&part, span_of(in.p, n), true) == -EAGAIN);
	}
	check(http1_is_request(span_of(in.p, h->bytes)));
}

/* ---- connections ---- */

struct log {
	struct span all;
	bool look;
	uint64_t sum, heads;
};

static int judge(void *arg, const struct http1_head *h)
{
	struct log *l = arg;
	const uint8_t *b = h->method.p;

	if (l->look)
		check_head(h, span_of(b, (size_t)(l->all.p + l->all.len - b)));
	for (size_t i = 0; i < h->bytes; i++)
		l->sum = l->sum * 1099511628211u + b[i];
	l->sum = l->sum * 31 + (size_t)(b - l->all.p);
	l->heads++;
	return h->host[0] == 'x' ? -EACCES : 0;
}

/* Feed all of it, @step bytes more at a time; what is not used is offered again. */
static int feed(struct log *l, unsigned mode, size_t step, size_t *out_used)
{
	struct http1_stream s = { .allow_address = mode & MODE_ADDRESS };
	size_t end = 0, at = 0;
	int r = 0;

	while (r == 0 && end < l->all.len) {
		end = MIN(end + step, l->all.len);
		for (;;) {
			size_t used = 0;

			r = http1_stream_take(&s, span_of(l->all.p + at, end - at), judge, l,
			                      &used);
			check(used <= end - at);
			at += used;
			if (r != 0 || !http1_stream_waits(&s))
				break;
			http1_stream_switched(&s, mode & MODE_SWITCH);
		}
		check(r != 0 || end - at < HTTP1_HEAD_MAX);
	}
	check(s.requests <= l->heads && l->heads - s.requests <= 1);
	*out_used = at;
	return r;
}

static void connection(struct span in, unsigned mode)
{
	static const size_t steps[] = { 1, 2, 3, 7, 64, 1000 };
	struct log whole = { .all = in, .look = true };
	size_t used;
	int r = feed(&whole, mode, in.len, &used);

	for (size_t i = in.len > 2000 ? 4 : 0; i < ARRAY_LEN(steps); i++) {
		struct log l = { .all = in };
		size_t n;

		check(feed(&l, mode, steps[i], &n) == r && n == used);
		check(l.sum == whole.sum && l.heads == whole.heads);
	}
}

/* ---- chunks ---- */

static int chunks(struct span in, size_t step, size_t *out_used)
{
	struct http1_chunks c = { 0 };
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < in.len) {
		size_t n = MIN(step, in.len - at), used;

		r = http1_chunks_take(&c, span_of(in.p + at, n), &used);
		check(used <= n && (r != 0 || used == n));
		at += used;
	}
	*out_used = at;
	return r;
}

static void body(struct span in)
{
	size_t used, n, at = 0;
	int r = chunks(in, in.len, &used);

	for (size_t step = 1; step < 10; step++)
		check(chunks(in, step, &n) == r && n == used);
	if (r != 1)
		return;
	for (;;) {
		char digits[9] = "";
		size_t k = 0;

		while (k < 8 && at + k < used && in.p[at + k] != '\r') {
			digits[k] = (char)in.p[at + k];
			k++;
		}
		size_t len = strtoul(digits, NULL, 16);
		check(k > 0 && memcmp(in.p + at + k, "\r\n", 2) == 0);
		at += k + 2 + len;
		check(at + 2 <= used && memcmp(in.p + at, "\r\n", 2) == 0);
		at += 2;
		if (len == 0)
			break;
	}
	check(at == used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	struct span in = span_of(data + 1, size - 1);
	if (data[0] & MODE_CHUNKS)
		body(in);
	else
		connection(in, data[0]);
	return 0;
}
