/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/hello.h"

#include <errno.h>

#include "base/hostname.h"

_Static_assert((int)HELLO_NAME_BYTES == (int)HOST_NAME_BYTES, "one grammar");

enum {
	RECORD_HEADER = 5,
	RECORD_MAX = 16384, /* RFC 8446 5.1 */
	TYPE_HANDSHAKE = 22,
	MAJOR = 3,
	MSG_HEADER = 4,
	MSG_CLIENT_HELLO = 1,
	RANDOM_BYTES = 32,
	SESSION_ID_MAX = 32,
	EXT_SERVER_NAME = 0,
	EXT_QUIC = 0x39,         /* RFC 9001 8.2 */
	EXT_QUIC_DRAFT = 0xffa5, /* the same in drafts that were in use */
	EXT_ECH = 0xfe0d,        /* RFC 9849 */
	EXT_ESNI = 0xffce,       /* what came before it */
	ECH_OUTER = 0,
	ECH_INNER = 1,
	NAME_HOST = 0,
};

bool hello_is_tls(struct span in)
{
	return (in.len < 1 || in.p[0] == TYPE_HANDSHAKE) && (in.len < 2 || in.p[1] == MAJOR);
}

static size_t rd_be(struct rd *r, size_t n)
{
	struct span s = rd_take(r, n);
	size_t v = 0;

	for (size_t i = 0; i < s.len; i++)
		v = v << 8 | s.p[i];
	return v;
}

/* A vector behind its length of @n bytes. */
static struct rd rd_vec(struct rd *r, size_t n)
{
	struct span s = rd_take(r, rd_be(r, n));

	return (struct rd){ .p = s.p, .left = s.len, .bad = r->bad };
}

static int take_server_name(struct hello *h, struct rd ext)
{
	struct rd list = rd_vec(&ext, 2);
	size_t type = rd_be(&list, 1);
	struct rd name = rd_vec(&list, 2);

	/* exactly one entry: of several, two servers may choose differently */
	if (ext.bad || ext.left || list.bad || list.left || type != NAME_HOST)
		return -EPROTO;
	return host_name_parse(h->name, span_of(name.p, name.left), NULL) < 0 ? -EPROTO : 0;
}

static int take_ech(struct hello *h, struct rd ext)
{
	size_t type = rd_be(&ext, 1);

	if (ext.bad || type > ECH_INNER || (type == ECH_INNER && ext.left))
		return -EPROTO;
	h->ech |= type == ECH_OUTER;
	return 0;
}

static int take_extensions(struct hello *h, struct rd *r)
{
	uint8_t seen[65536 / 8] = { 0 };
	struct rd list = rd_vec(r, 2);
	int got = 0;

	if (r->bad || r->left)
		return -EPROTO;
	while (list.left && got == 0) {
		size_t type = rd_be(&list, 2);
		struct rd ext = rd_vec(&list, 2);

		/* twice the same (RFC 8446 4.2): some read the first, some the last */
		if (list.bad || (seen[type / 8] & 1u << type % 8))
			return -EPROTO;
		seen[type / 8] |= (uint8_t)(1u << type % 8);
		if (type == EXT_SERVER_NAME)
			got = take_server_name(h, ext);
		else if (type == EXT_ECH)
			got = take_ech(h, ext);
		h->ech |= type == EXT_ESNI;
		h->quic |= type == EXT_QUIC || type == EXT_QUIC_DRAFT;
	}
	return got;
}

/* The message behind its header, whole. */
static int take_body(struct hello *out, struct span body)
{
	struct rd r = rd_of(body.p, body.len);
	struct hello h = { 0 };

	size_t version = rd_be(&r, 2);
	(void)rd_take(&r, RANDOM_BYTES);
	struct rd session = rd_vec(&r, 1), suites = rd_vec(&r, 2), methods = rd_vec(&r, 1);
	if (r.bad || version >> 8 != MAJOR || session.left > SESSION_ID_MAX || suites.left == 0 ||
	    suites.left % 2 || methods.left == 0)
		return -EPROTO;
	/* before TLS 1.3 they were optional */
	if (r.left && take_extensions(&h, &r) < 0)
		return -EPROTO;
	*out = h;
	return 0;
}

/*
 * Goes over the records in their order and decides at the first byte that can:
 * what was refused or accepted once stays so however many bytes follow.
 */
int hello_parse(struct hello *out, struct span in)
{
	uint8_t msg[HELLO_BYTES_MAX];
	size_t have = 0, claimed = 0, need = 0; /* bytes of the message; need 0: not known */
	struct rd r = rd_of(in.p, MIN(in.len, (size_t)HELLO_BYTES_MAX));

	while (r.left) {
		struct rd h = r;
		size_t type = rd_be(&h, 1), major = rd_be(&h, 1);

		if (type != TYPE_HANDSHAKE || (r.left > 1 && major != MAJOR))
			return -EPROTO;
		(void)rd_be(&h, 1); /* RFC 8446 5.1: to be ignored */
		size_t len = rd_be(&h, 2);
		if (h.bad)
			break;
		if (len == 0 || len > RECORD_MAX)
			return -EPROTO;
		struct span part = rd_take(&h, MIN(len, h.left));
		claimed += len;
		if (part.len)
			memcpy(msg + have, part.p, part.len); /* shorter than the input */
		have += part.len;
		if (have && msg[0] != MSG_CLIENT_HELLO)
			return -EPROTO;
		if (have >= MSG_HEADER) {
			need = MSG_HEADER + ((size_t)msg[1] << 16 | (size_t)msg[2] << 8 | msg[3]);
			if (need > HELLO_BYTES_MAX)
				return -EMSGSIZE;
			if (claimed > need)
				return -EPROTO; /* a second message in the record of the first */
			if (have == need)
				return take_body(out, span_of(msg + MSG_HEADER, need - MSG_HEADER));
		}
		r = h;
	}
	return in.len >= HELLO_BYTES_MAX ? -EMSGSIZE : -EAGAIN;
}
