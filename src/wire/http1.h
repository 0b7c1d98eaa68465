/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http1.h - heads and bodies of HTTP/1 requests, strictly (RFC 9110, RFC 9112).
 *
 * Pure. It stands between a client that may lie and a server that may read
 * differently, so whatever two parsers could understand in two ways is refused:
 * bare LF or CR, NUL, white space before a colon, folded lines, more than one
 * Host, two lengths, a length together with chunked, a transfer coding other than
 * exactly "chunked", an absolute URI that names another host than Host, user
 * information in an authority, HTTP/0.9 and 2 (its preface is refused).
 */
#ifndef CLOCHE_WIRE_HTTP1_H
#define CLOCHE_WIRE_HTTP1_H

#include "base/span.h"

enum {
	HTTP1_HEAD_MAX = 16 * 1024,
	HTTP1_FIELDS_MAX = 128,
	HTTP1_NAME_BYTES = 254,
	HTTP1_METHOD_MAX = 32,
};

enum http1_body { HTTP1_NO_BODY, HTTP1_LENGTH, HTTP1_CHUNKED };

struct http1_field {
	struct span name, value; /* value without white space around it */
};

struct http1_head {
	struct span method, target;  /* borrowed from the input */
	uint8_t minor;               /* HTTP/1.minor: 0 or 1 */
	char host[HTTP1_NAME_BYTES]; /* lower case, without port; "" only for 1.0 without Host */
	uint16_t port;               /* of Host or the absolute URI; 0: none named */
	bool connect;                /* method CONNECT: host and port are the target's */
	bool upgrade;                /* asks to switch protocols */
	bool close;                  /* no request follows on this connection */
	bool expect;                 /* Expect: 100-continue */
	enum http1_body body;
	uint64_t length;
	size_t n_fields;
	struct http1_field fields[HTTP1_FIELDS_MAX];
	size_t bytes; /* of the head with its final empty line */
};

/* Could this be the beginning of an HTTP/1 request (method token, space)? As far as seen. */
bool http1_is_request(struct span in);

/*
 * http1_head_parse() - one request head at the start of @in.
 * Return: 0; -EAGAIN when more is needed (with HTTP1_HEAD_MAX bytes and no end: -EMSGSIZE); -EPROTO.
 * An address as host is -EPROTO unless @allow_address (then host is its text).
 */
int http1_head_parse(struct http1_head *out, struct span in, bool allow_address) MUST_CHECK;

/* Chunked framing (RFC 9112 7.1), byte by byte; zero-initialise. Extensions are refused: -EPROTO. */
struct http1_chunks {
	uint8_t state;
	uint64_t left;
	uint32_t trailer_bytes;
	uint8_t digits;
};
/*
 * http1_chunks_take() - go over @in. *out_used bytes belong to the body and its
 * framing. Return: 1 when the body ended at *out_used; 0 when all of @in was
 * used and more follows; -EPROTO.
 */
int http1_chunks_take(struct http1_chunks *c, struct span in, size_t *out_used) MUST_CHECK;

/* One client's side of a connection: every head is given to a judge, the bytes between are counted. */
struct http1_stream {
	uint8_t state;
	uint64_t left;
	struct http1_chunks chunks;
	uint64_t requests;
};
/*
 * http1_stream_take() - what of @in may be forwarded.
 * @judge:	0, or -errno: the request must not pass
 *
 * Return: 0 with *out_used bytes that were judged (the rest waits for more: at
 * most HTTP1_HEAD_MAX); -EPROTO, -EMSGSIZE, or what @judge answered.
 */
int http1_stream_take(struct http1_stream *s, struct span in,
                      int (*judge)(void *arg, const struct http1_head *h), void *arg,
                      size_t *out_used) MUST_CHECK;

/* Status code of a response that begins so: 100 to 599; -EAGAIN; -EPROTO. */
int http1_status_parse(struct span in) MUST_CHECK;

#endif
