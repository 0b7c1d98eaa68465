/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <errno.h>

#include "base/hostname.h"
#include "base/ip.h"

_Static_assert((int)HTTP1_NAME_BYTES == (int)HOST_NAME_BYTES, "one grammar");

enum { PORT_HTTP = 80 };

/* ---- bytes and words ---- */

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? c | 32 : c;
}

/* RFC 9110 5.6.2 */
static bool is_token_byte(uint8_t c)
{
	return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

static struct span from(struct span s, size_t n)
{
	return n ? span_of(s.p + n, s.len - n) : s;
}

static struct span trim(struct span s)
{
	while (s.len && is_blank(s.p[0]))
		s = from(s, 1);
	while (s.len && is_blank(s.p[s.len - 1]))
		s.len--;
	return s;
}

static size_t find(struct span s, uint8_t c)
{
	const uint8_t *at = s.len ? memchr(s.p, c, s.len) : NULL;

	return at ? (size_t)(at - s.p) : s.len;
}

static bool is_word(struct span s, const char *word)
{
	if (s.len != strlen(word))
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (lower(s.p[i]) != (uint8_t)word[i])
			return false;
	}
	return true;
}

static bool begins(struct span s, const char *word)
{
	size_t n = strlen(word);

	return s.len >= n && is_word(span_of(s.p, n), word);
}

/* The next element of a comma-separated list, empty ones passed over. False: none is left. */
static bool next_of_list(struct span *list, struct span *out)
{
	while (list->len) {
		size_t n = find(*list, ',');

		*out = trim(span_of(list->p, n));
		*list = from(*list, MIN(n + 1, list->len));
		if (out->len)
			return true;
	}
	return false;
}

/* Digits only, no leading zeros, at most @max. */
static bool take_number(struct span s, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	if (s.len == 0 || (s.len > 1 && s.p[0] == '0'))
		return false;
	for (size_t i = 0; i < s.len; i++) {
		uint64_t d = (uint64_t)s.p[i] - '0';

		if (!is_digit(s.p[i]) || v > (max - d) / 10)
			return false;
		v = v * 10 + d;
	}
	*out = v;
	return true;
}

/* ---- authorities ---- */

struct authority {
	char host[HTTP1_NAME_BYTES];
	uint16_t port; /* 0: none named */
};

static int authority_parse(struct authority *out, struct span s, bool allow_address)
{
	struct authority a = { 0 };
	size_t colon = find(s, ':');
	struct span name = span_of(s.p, colon);
	uint64_t port = 0;
	uint32_t addr;

	if (colon < s.len) {
		if (!take_number(from(s, colon + 1), UINT16_MAX, &port) || port == 0)
			return -EPROTO;
		a.port = (uint16_t)port;
	}
	if (allow_address && ip4_parse(&addr, name) == 0)
		(void)ip4_str(a.host, addr);
	else if (host_name_parse(a.host, name, NULL) < 0)
		return -EPROTO;
	*out = a;
	return 0;
}

static bool same_authority(const struct authority *a, const struct authority *b, uint16_t none)
{
	return strcmp(a->host, b->host) == 0 &&
	       (a->port ? a->port : none) == (b->port ? b->port : none);
}

/* ---- the head ---- */

/* What the lines have said so far, beside what is in the head. */
struct seen {
	bool has_target, has_host, has_length, has_coding, has_upgrade, has_expect;
	bool keep_alive, upgrade_token;
	struct authority target, host;
};

/* Up to @at of @in is used; the next line, which ends with CRLF, without it. */
static int next_line(struct span in, size_t *at, struct span *out)
{
	struct span rest = from(in, *at);
	size_t n = find(rest, '\n');

	/* RFC 9112 2.2: some take a bare LF for the end of a line, and a bare CR, too */
	if (n == rest.len) {
		size_t cr = find(rest, '\r');

		return cr + 1 < rest.len ? -EPROTO : -EAGAIN;
	}
	if (n == 0 || find(rest, '\r') != n - 1)
		return -EPROTO;
	*out = span_of(rest.p, n - 1);
	*at += n + 1;
	return 0;
}

static int take_target(struct http1_head *h, struct seen *s, bool allow_address)
{
	struct span t = h->target;

	if (h->connect) {
		s->has_target = true;
		if (authority_parse(&s->target, t, allow_address) < 0 || s->target.port == 0)
			return -EPROTO;
		return 0;
	}
	if (t.p[0] == '/')
		return 0;
	if (is_word(t, "*"))
		return is_word(h->method, "options") ? 0 : -EPROTO;
	if (!begins(t, "http://"))
		return -EPROTO;
	t = from(t, strlen("http://"));
	s->has_target = true;
	return authority_parse(&s->target, span_of(t.p, MIN(find(t, '/'), find(t, '?'))),
	                       allow_address);
}

static int take_request_line(struct http1_head *h, struct seen *s, struct span line,
                             bool allow_address)
{
	size_t n = find(line, ' ');

	if (n == 0 || n > HTTP1_METHOD_MAX || n == line.len)
		return -EPROTO;
	h->method = span_of(line.p, n);
	for (size_t i = 0; i < n; i++) {
		uint8_t c = line.p[i];

		if (!(c >= 'A' && c <= 'Z') && !(c == '-' && i > 0))
			return -EPROTO;
	}
	line = from(line, n + 1);
	n = find(line, ' ');
	if (n == 0 || n == line.len)
		return -EPROTO;
	h->target = span_of(line.p, n);
	for (size_t i = 0; i < n; i++) {
		if (line.p[i] <= ' ' || line.p[i] >= 0x7f || line.p[i] == '#')
			return -EPROTO;
	}
	struct span version = from(line, n + 1);
	if (span_eq(version, span_str("HTTP/1.1")))
		h->minor = 1;
	else if (!span_eq(version, span_str("HTTP/1.0")))
		return -EPROTO;
	h->connect = span_eq(h->method, span_str("CONNECT"));
	return take_target(h, s, allow_address);
}

/* The fields that decide about names and framing. */
static const char *const weighty[] = { "host",       "content-length", "transfer-encoding",
	                               "connection", "upgrade",        "expect" };

static bool is_weighty(struct span name)
{
	for (size_t i = 0; i < ARRAY_LEN(weighty); i++) {
		if (is_word(name, weighty[i]))
			return true;
	}
	return false;
}

/* Gateways that put fields into environment variables read '_' and '-' alike. */
static bool is_disguised(struct span name)
{
	for (size_t i = 0; i < ARRAY_LEN(weighty); i++) {
		const char *w = weighty[i];
		size_t k = 0;

		if (name.len != strlen(w) || find(name, '_') == name.len)
			continue;
		while (k < name.len && lower(name.p[k] == '_' ? '-' : name.p[k]) == (uint8_t)w[k])
			k++;
		if (k == name.len)
			return true;
	}
	return false;
}

static int take_connection(struct http1_head *h, struct seen *s, struct span list)
{
	struct span option;

	while (next_of_list(&list, &option)) {
		if (is_word(option, "close"))
			h->close = true;
		else if (is_word(option, "keep-alive"))
			s->keep_alive = true;
		else if (is_word(option, "upgrade"))
			s->upgrade_token = true;
		else if (is_weighty(option))
			return -EPROTO; /* RFC 9110 7.6.1: a gateway would remove that field */
	}
	return 0;
}

/* A field that may come once; @seen remembers. */
static bool is_again(bool *seen)
{
	bool was = *seen;

	*seen = true;
	return was;
}

static int take_weighty(struct http1_head *h, struct seen *s, const struct http1_field *f,
                        bool allow_address)
{
	if (is_word(f->name, "host")) {
		if (is_again(&s->has_host))
			return -EPROTO;
		return authority_parse(&s->host, f->value, allow_address);
	}
	if (is_word(f->name, "content-length")) {
		if (is_again(&s->has_length) || !take_number(f->value, INT64_MAX, &h->length))
			return -EPROTO;
		h->body = h->length ? HTTP1_LENGTH : HTTP1_NO_BODY;
		return 0;
	}
	if (is_word(f->name, "transfer-encoding")) {
		if (is_again(&s->has_coding) || !span_eq(f->value, span_str("chunked")))
			return -EPROTO;
		return 0;
	}
	if (is_word(f->name, "upgrade"))
		return is_again(&s->has_upgrade) || !is_word(f->value, "websocket") ? -EPROTO : 0;
	if (is_word(f->name, "expect"))
		return is_again(&s->has_expect) || !is_word(f->value, "100-continue") ? -EPROTO : 0;
	return take_connection(h, s, f->value);
}

static int take_field(struct http1_head *h, struct seen *s, struct span line, bool allow_address)
{
	size_t n = find(line, ':');
	struct http1_field f;

	if (n == 0 || n == line.len)
		return -EPROTO;
	/* a folded line begins with a blank, which is no byte of a name */
	for (size_t i = 0; i < n; i++) {
		if (!is_token_byte(line.p[i]))
			return -EPROTO;
	}
	for (size_t i = n + 1; i < line.len; i++) {
		if ((line.p[i] < ' ' && line.p[i] != '\t') || line.p[i] == 0x7f)
			return -EPROTO;
	}
	if (h->n_fields == HTTP1_FIELDS_MAX)
		return -EMSGSIZE;
	f = (struct http1_field){ .name = span_of(line.p, n), .value = trim(from(line, n + 1)) };
	h->fields[h->n_fields++] = f;
	if (is_disguised(f.name))
		return -EPROTO;
	return is_weighty(f.name) ? take_weighty(h, s, &f, allow_address) : 0;
}

static int take_names(struct http1_head *h, const struct seen *s)
{
	const struct authority *a = s->has_host ? &s->host : &s->target;

	if (!s->has_host && h->minor == 1)
		return -EPROTO;
	if (h->connect && s->has_host && s->host.port == 0) {
		/* some clients leave the port out here */
		if (strcmp(s->host.host, s->target.host) != 0)
			return -EPROTO;
		a = &s->target;
	} else if (s->has_host && s->has_target) {
		if (!same_authority(&s->host, &s->target, h->connect ? 0 : PORT_HTTP))
			return -EPROTO;
		a = s->host.port ? &s->host : &s->target;
	}
	memcpy(h->host, a->host, sizeof(h->host));
	h->port = a->port;
	return 0;
}

static int take_end(struct http1_head *h, const struct seen *s)
{
	int r = take_names(h, s);

	if (r < 0)
		return r;
	if (s->has_coding) {
		/* RFC 9112 6.1: faulty framing, both of them */
		if (s->has_length || h->minor == 0)
			return -EPROTO;
		h->body = HTTP1_CHUNKED;
	}
	h->upgrade = s->has_upgrade || s->upgrade_token;
	h->expect = s->has_expect;
	/* an Upgrade that is only named, or in 1.0, is one for some (RFC 9110 7.8) */
	if (h->upgrade && (!s->has_upgrade || !s->upgrade_token || h->minor == 0 || h->close))
		return -EPROTO;
	if (h->body != HTTP1_NO_BODY &&
	    (h->connect || h->upgrade || span_eq(h->method, span_str("TRACE"))))
		return -EPROTO;
	if (h->expect && (h->body == HTTP1_NO_BODY || h->minor == 0))
		return -EPROTO;
	if (h->close && s->keep_alive)
		return -EPROTO;
	if (h->connect && (h->upgrade || h->close))
		return -EPROTO;
	if (h->minor == 0 && !s->keep_alive)
		h->close = true;
	return 0;
}

int http1_head_parse(struct http1_head *out, struct span in, bool allow_address)
{
	struct span all = span_of(in.p, MIN(in.len, (size_t)HTTP1_HEAD_MAX)), line;
	struct http1_head h = { 0 };
	struct seen s = { 0 };
	int r;

	while ((r = next_line(all, &h.bytes, &line)) == 0) {
		if (h.method.len == 0) {
			r = take_request_line(&h, &s, line, allow_address);
		} else if (line.len) {
			r = take_field(&h, &s, line, allow_address);
		} else {
			r = take_end(&h, &s);
			if (r == 0)
				*out = h;
			return r;
		}
		if (r < 0)
			return r;
	}
	return r == -EAGAIN && in.len >= HTTP1_HEAD_MAX ? -EMSGSIZE : r;
}

bool http1_is_request(struct span in)
{
	size_t end = find(in, '\n');
	struct span line = span_of(in.p, end);
	size_t n = 0;

	while (n < line.len && is_token_byte(line.p[n]))
		n++;
	if (n == line.len)
		return end == in.len; /* a whole line of one word is none */
	if (n == 0 || !is_blank(line.p[n]))
		return false;
	for (size_t i = n; i < line.len; i++) {
		uint8_t c = line.p[i];

		if ((c < ' ' && c != '\t' && c != '\r') || c == 0x7f)
			return false;
	}
	if (end == in.len)
		return true;
	if (line.len && line.p[line.len - 1] == '\r')
		line.len--;
	line = trim(line);
	for (n = line.len; n > 0 && !is_blank(line.p[n - 1]);)
		n--;
	return begins(from(line, n), "http/1");
}

/* ---- chunks ---- */

enum {
	CHUNK_SIZE,    /* before and in the digits */
	CHUNK_SIZE_LF, /* the CR behind them was there */
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_END_CR, /* behind the last chunk: an empty line, no trailers */
	CHUNK_END_LF,
	CHUNK_DONE,
	CHUNK_BAD,
};

enum { CHUNK_DIGITS_MAX = 8 };

static int hex_digit(uint8_t c)
{
	if (is_digit(c))
		return c - '0';
	c = lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool chunk_size_byte(struct http1_chunks *c, uint8_t b)
{
	int d = hex_digit(b);

	if (d >= 0) {
		if (c->digits == CHUNK_DIGITS_MAX)
			return false;
		c->digits++;
		c->left = c->left << 4 | (unsigned)d;
		return c->left <= HTTP1_CHUNK_MAX;
	}
	if (b != '\r' || c->digits == 0)
		return false; /* an extension, or no size */
	c->state = CHUNK_SIZE_LF;
	return true;
}

/* A byte that is not of the data. */
static bool chunk_byte(struct http1_chunks *c, uint8_t b)
{
	switch (c->state) {
	case CHUNK_SIZE:
		return chunk_size_byte(c, b);
	case CHUNK_SIZE_LF:
		c->state = c->left ? CHUNK_DATA : CHUNK_END_CR;
		c->digits = 0;
		return b == '\n';
	case CHUNK_DATA_CR:
		c->state = CHUNK_DATA_LF;
		return b == '\r';
	case CHUNK_DATA_LF:
		c->state = CHUNK_SIZE;
		return b == '\n';
	case CHUNK_END_CR:
		c->state = CHUNK_END_LF;
		return b == '\r';
	case CHUNK_END_LF:
		c->state = CHUNK_DONE;
		return b == '\n';
	default:
		return false;
	}
}

int http1_chunks_take(struct http1_chunks *c, struct span in, size_t *out_used)
{
	size_t at = 0;

	while (at < in.len && c->state != CHUNK_DONE) {
		if (c->state == CHUNK_DATA) {
			size_t n = (size_t)MIN(c->left, (uint64_t)(in.len - at));

			at += n;
			c->left -= n;
			if (c->left == 0)
				c->state = CHUNK_DATA_CR;
			continue;
		}
		if (!chunk_byte(c, in.p[at])) {
			c->state = CHUNK_BAD;
			break;
		}
		at++;
	}
	*out_used = at;
	return c->state == CHUNK_BAD ? -EPROTO : c->state == CHUNK_DONE;
}

/* ---- a connection ---- */

enum {
	STREAM_HEAD,
	STREAM_LENGTH,
	STREAM_CHUNKED,
	STREAM_WAITS, /* for the server's answer to CONNECT or Upgrade */
	STREAM_OPAQUE,
	STREAM_OVER, /* no byte may follow */
};

static void request_ends(struct http1_stream *s)
{
	s->state = s->last ? STREAM_OVER : STREAM_HEAD;
}

static int stream_head(struct http1_stream *s, struct span in,
                       int (*judge)(void *arg, const struct http1_head *h), void *arg,
                       size_t *out_used)
{
	struct http1_head h;
	int r = http1_head_parse(&h, in, s->allow_address);

	if (r < 0)
		return r;
	r = judge(arg, &h);
	ASSERT(r != -EAGAIN); /* it would be taken for a head that is cut short */
	if (r < 0)
		return r;
	s->requests++;
	s->last = h.close;
	s->left = h.length;
	s->chunks = (struct http1_chunks){ 0 };
	if (h.connect || h.upgrade)
		s->state = STREAM_WAITS;
	else if (h.body == HTTP1_CHUNKED)
		s->state = STREAM_CHUNKED;
	else if (h.body == HTTP1_LENGTH)
		s->state = STREAM_LENGTH;
	else
		request_ends(s);
	*out_used = h.bytes;
	return 0;
}

/* The next part of @in, which is not empty. *out_used 0: it waits. */
static int stream_step(struct http1_stream *s, struct span in,
                       int (*judge)(void *arg, const struct http1_head *h), void *arg,
                       size_t *out_used)
{
	int r;

	switch (s->state) {
	case STREAM_HEAD:
		return stream_head(s, in, judge, arg, out_used);
	case STREAM_LENGTH:
		*out_used = (size_t)MIN(s->left, (uint64_t)in.len);
		s->left -= *out_used;
		if (s->left == 0)
			request_ends(s);
		return 0;
	case STREAM_CHUNKED:
		r = http1_chunks_take(&s->chunks, in, out_used);
		if (r > 0)
			request_ends(s);
		return MIN(r, 0);
	case STREAM_WAITS:
		return 0;
	case STREAM_OPAQUE:
		*out_used = in.len;
		return 0;
	default:
		return -EPROTO;
	}
}

int http1_stream_take(struct http1_stream *s, struct span in,
                      int (*judge)(void *arg, const struct http1_head *h), void *arg,
                      size_t *out_used)
{
	*out_used = 0;
	while (in.len && s->error == 0) {
		size_t n = 0;
		int r = stream_step(s, in, judge, arg, &n);

		*out_used += n;
		in = from(in, n);
		if (r == -EAGAIN)
			break;
		s->error = r;
		if (r == 0 && n == 0)
			break;
	}
	return s->error;
}

bool http1_stream_waits(const struct http1_stream *s)
{
	return s->state == STREAM_WAITS;
}

void http1_stream_switched(struct http1_stream *s, bool yes)
{
	if (s->state != STREAM_WAITS)
		return;
	if (yes)
		s->state = STREAM_OPAQUE;
	else
		request_ends(s);
}

/* ---- the other side ---- */

int http1_status_parse(struct span in)
{
	static const char form[] = "HTTP/1.# ### "; /* #: a digit; the last may be a CR, too */
	int status = 0;

	for (size_t i = 0; i < sizeof(form) - 1; i++) {
		if (i == in.len)
			return -EAGAIN;
		uint8_t c = in.p[i];

		if (form[i] == '#' ? !is_digit(c) : c != (uint8_t)form[i]) {
			if (i != sizeof(form) - 2 || c != '\r')
				return -EPROTO;
		}
		if (i >= 9 && i < 12)
			status = status * 10 + (c - '0');
	}
	return status >= 100 && status <= 599 ? status : -EPROTO;
}
