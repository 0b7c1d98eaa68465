/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http1.h - heads and bodies of HTTP/1 requests, strictly (RFC 9110, RFC 9112).
 *
 * Pure. It stands between a client that may lie and a server that may read
 * differently, so whatever two parsers could understand in two ways is refused:
 * - in lines: bare LF or CR, NUL and other controls, empty lines before a
 *   request, folded lines, white space before a colon, more than one space in
 *   the request line, fragments and bytes beyond ASCII in a target;
 * - of names: more than one Host or none (1.1), a Host that is no name of
 *   base/hostname.h with an optional port (an empty port, 0, leading zeros, a
 *   final dot, %-encoding, a list), user information, an absolute URI that is
 *   not http or names another host or port than Host;
 * - of framing: two lengths, also equal ones; anything but digits, leading
 *   zeros, more than 2^63-1; a length together with chunked; a transfer coding
 *   other than exactly "chunked", or one in HTTP/1.0; field names that become one
 *   of those that matter when '_' is read as '-'; Connection naming one of them;
 *   extensions of chunks, trailers, chunk sizes of more than 8 digits or 2^31;
 * - of protocols: HTTP/0.9 and 2 (its preface), an Upgrade to anything but
 *   websocket (h2c would carry requests that nobody judges), methods that are
 *   not of [A-Z-], an Expect other than 100-continue, or without a body.
 * Bodies of GET and the like pass: whether a server reads a body cannot be known
 * for POST either.
 */
#ifndef CLOCHE_WIRE_HTTP1_H
#define CLOCHE_WIRE_HTTP1_H

#include "base/span.h"

enum {
	HTTP1_HEAD_MAX = 16 * 1024,
	HTTP1_FIELDS_MAX = 128,
	HTTP1_NAME_BYTES = 254,
	HTTP1_METHOD_MAX = 32,
	HTTP1_CHUNK_MAX = 0x7fffffff, /* some read sizes into an int */
};

enum http1_body { HTTP1_NO_BODY, HTTP1_LENGTH, HTTP1_CHUNKED };

struct http1_field {
	struct span name, value; /* value without white space around it */
};

struct http1_head {
	struct span method, target;  /* borrowed from the input */
	uint8_t minor;               /* HTTP/1.minor: 0 or 1 */
	char host[HTTP1_NAME_BYTES]; /* lower case, without port; "" only for 1.0 without Host */
	uint16_t port;               /* of Host or the target; 0: none named */
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

/*
 * Could this be the beginning of an HTTP/1 request? As far as seen: a token, a space,
 * and once its first line is whole, "HTTP/1" in it as its last word. More is taken for a
 * request than is accepted (any token, a bare LF, lower case), so that nothing a lenient
 * server would serve goes for other bytes; "SSH-2.0-x y" and "EHLO x" do not.
 */
bool http1_is_request(struct span in);

/*
 * http1_head_parse() - one request head at the start of @in.
 * Return: 0; -EAGAIN when more is needed; -EMSGSIZE with HTTP1_HEAD_MAX bytes and no end, or
 * more than HTTP1_FIELDS_MAX fields; -EPROTO. Only the first HTTP1_HEAD_MAX bytes are looked
 * at, and what was answered once (other than -EAGAIN) stays so with more bytes.
 * An address as host is -EPROTO unless @allow_address (then host is its text; IPv4 only).
 */
int http1_head_parse(struct http1_head *out, struct span in, bool allow_address) MUST_CHECK;

/* Chunked framing (RFC 9112 7.1); zero-initialise. */
struct http1_chunks {
	uint8_t state;
	uint8_t digits;
	uint64_t left; /* of the chunk; its size so far */
};
/*
 * http1_chunks_take() - go over @in. *out_used bytes belong to the body and its
 * framing, also on failure: those before the byte that is wrong. Return: 1 when
 * the body ended at *out_used; 0 when all of @in was used and more follows;
 * -EPROTO, and again whenever it is asked.
 */
int http1_chunks_take(struct http1_chunks *c, struct span in, size_t *out_used) MUST_CHECK;

/*
 * One client's side of a connection: every head is given to a judge, the bytes between
 * are counted. Zero-initialise.
 *
 * Behind CONNECT and Upgrade the server decides what the client's next bytes are, so
 * nothing of them is used until http1_stream_switched() says. Behind a request that ends
 * the connection no byte may follow: -EPROTO.
 */
struct http1_stream {
	uint8_t state;
	bool allow_address; /* for http1_head_parse(); set by the caller */
	bool last;          /* the request at hand ends the connection */
	int error;          /* what ended it; stays */
	uint64_t left;
	struct http1_chunks chunks;
	uint64_t requests;
};
/*
 * http1_stream_take() - what of @in may be forwarded.
 * @judge:	0, or -errno (not -EAGAIN): the request must not pass. Called once for each head.
 *
 * Return: 0 with *out_used bytes that were judged (the rest waits for more: at
 * most HTTP1_HEAD_MAX, or until http1_stream_switched()); -EPROTO, -EMSGSIZE, or
 * what @judge answered, then *out_used are the bytes that were fine before it. How the
 * client cut its bytes changes neither the calls of @judge nor the sum of *out_used.
 */
int http1_stream_take(struct http1_stream *s, struct span in,
                      int (*judge)(void *arg, const struct http1_head *h), void *arg,
                      size_t *out_used) MUST_CHECK;
/* Does it wait for the server's answer to CONNECT or Upgrade? */
bool http1_stream_waits(const struct http1_stream *s);
/*
 * The server's answer to it: @yes (101, or 2xx to CONNECT) and all bytes pass from now on; no
 * (a final status), and the next request is awaited.
 */
void http1_stream_switched(struct http1_stream *s, bool yes);

/* Status code of a response that begins so: 100 to 599; -EAGAIN; -EPROTO. */
int http1_status_parse(struct span in) MUST_CHECK;

#endif
