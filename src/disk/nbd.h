/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nbd.h - the server's side of the NBD protocol as a value machine: bytes in,
 * replies and requests out. No descriptor, no allocation, no clock.
 *
 * Fixed newstyle handshake, one read-only export with the name "", simple
 * replies (the protocol: doc/proto.md of the NBD project). The peer may send anything.
 * A client that asks for too much (a read out of range, misaligned, over
 * NBD_READ_MAX; an unknown command without data) gets an error reply; one that
 * breaks the protocol's framing, or sends data to write, loses the connection.
 * Numbers of the protocol are big endian.
 */
#ifndef CLOCHE_DISK_NBD_H
#define CLOCHE_DISK_NBD_H

#include "base/span.h"

enum {
	NBD_READ_MAX = 4 * 1024 * 1024, /* announced, so a client splits larger reads */
	NBD_ALIGN = 512,                /* of offset and length, announced */
	NBD_PREFERRED = 4096,
	NBD_REPLY_MAX = 256,                 /* most that one nbd_take() puts */
	NBD_OPTION_MAX = 4096,               /* bytes of data of one option */
	NBD_OPTIONS_MAX = 64,                /* options before the transmission begins */
	NBD_INPUT_MAX = 16 + NBD_OPTION_MAX, /* most that nbd_take() ever waits for */
	NBD_REPLY_HEADER = 16,
};

enum nbd_state { NBD_FLAGS, NBD_OPTIONS, NBD_TRANSMISSION, NBD_CLOSED };

struct nbd {
	enum nbd_state state;
	uint64_t size; /* of the export, in bytes */
	bool no_zeroes;
	unsigned options; /* taken so far */
};

/* A read; all else the machine answers itself. */
struct nbd_request {
	uint64_t cookie; /* of the client, comes back in the reply */
	uint64_t offset; /* multiple of NBD_ALIGN; the whole read is within the export */
	uint32_t length; /* NBD_ALIGN to NBD_READ_MAX, multiple of NBD_ALIGN */
};

enum nbd_event {
	NBD_NONE = 0,    /* the bytes used asked for no more than the reply that was put */
	NBD_REQUEST = 1, /* *req is to be answered */
	NBD_END = 2,     /* the client said goodbye: close once replies are sent */
};

/* Start, and put the server's greeting. @size is a multiple of NBD_ALIGN. */
void nbd_init(struct nbd *s, uint64_t size, struct wr *reply);

/*
 * nbd_take() - take one step of the client's bytes.
 * @reply:	room for NBD_REPLY_MAX at least
 *
 * Return: an enum nbd_event with *out_used bytes taken; -EAGAIN when more bytes
 * are needed (at most NBD_INPUT_MAX in all; nothing was taken or put); -EPROTO: close.
 */
int nbd_take(struct nbd *s, const void *buf, size_t len, size_t *out_used, struct wr *reply,
             struct nbd_request *out) MUST_CHECK;

/* Header of the reply to a request; @error is 0 or a positive errno. Data follows when 0. */
void nbd_put_reply(struct wr *w, uint64_t cookie, int error);

#endif
