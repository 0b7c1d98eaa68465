/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mux.h - streams with credit over one byte stream; the same code on both ends.
 *
 * Pure: bytes in by mux_feed(), bytes out by mux_out(). No stream sends more
 * than the other end has granted, so a slow reader of one stream never stops
 * another, and no queue grows without bound: at most MUX_CREDIT_MAX bytes a
 * stream are owed to the consumer. A peer that exceeds a credit, reuses an
 * open channel, sends on a closed stream or in the wrong direction is a liar:
 * mux_feed() answers -EPROTO and the connection is over.
 *
 * A stream is ended by its sender (EOF, or RESET: cut short). Its receiver may
 * send RESET: it wants no more; the sender then gets reset(), and the end of
 * the stream is said for it. What was under way is dropped silently, so
 * mux_close() is safe at any time. A channel number is free again when the
 * channel was closed here and every stream was ended by its sender; until then
 * mux_open() answers -EBUSY. Callbacks may call anything but mux_feed(),
 * mux_out_done() and mux_free().
 */
#ifndef CLOCHE_WIRE_MUX_H
#define CLOCHE_WIRE_MUX_H

#include "wire/frame.h"

enum {
	MUX_CREDIT_MAX = 256 * 1024,   /* granted to a stream when its channel opens */
	MUX_OUT_MAX = 4 * 1024 * 1024, /* bytes queued for the wire; beyond: -ENOBUFS */
};

enum mux_side { MUX_HOST, MUX_GUEST };

struct mux_ops {
	/* Each answers 0 or -errno; an error ends mux_feed() with it. Payloads are borrowed. */
	int (*control)(void *arg, struct span msg);
	int (*data)(void *arg, uint16_t channel, uint8_t stream, struct span bytes);
	int (*eof)(void *arg, uint16_t channel, uint8_t stream);
	int (*reset)(void *arg, uint16_t channel, uint8_t stream);
	/* more may be sent on a stream of ours (mux_credit() grew): after a credit of 0 this comes */
	int (*writable)(void *arg, uint16_t channel, uint8_t stream);
};

struct mux;

struct mux *mux_new(enum mux_side side, const struct mux_ops *ops, void *arg) MUST_CHECK;
void mux_free(struct mux *m);

/* Take @n bytes from the wire, any split. Return: 0, -EPROTO, -ENOMEM, or a callback's error. */
int mux_feed(struct mux *m, const void *p, size_t n) MUST_CHECK;

/* What is to be written to the wire now, and: so many of it were (may call writable()). */
struct span mux_out(const struct mux *m);
void mux_out_done(struct mux *m, size_t n);

int mux_send_control(struct mux *m, struct span msg) MUST_CHECK;

/* Open channel @ch (1 to FRAME_CHANNELS_MAX - 1) on this side, with full credit both ways. */
int mux_open(struct mux *m, uint16_t ch) MUST_CHECK;
/* No more of it: streams that have not ended are RESET, late data is dropped, no callbacks. */
void mux_close(struct mux *m, uint16_t ch);
bool mux_is_open(const struct mux *m, uint16_t ch);

/* Bytes that may be sent on a stream of ours now; 0 also while the queue is long. */
size_t mux_credit(struct mux *m, uint16_t ch, uint8_t stream);
/* Send @n <= mux_credit() bytes, cut into frames. 0, -ENOBUFS (more), -EPIPE after reset or EOF. */
int mux_send(struct mux *m, uint16_t ch, uint8_t stream, const void *p, size_t n) MUST_CHECK;
int mux_send_eof(struct mux *m, uint16_t ch, uint8_t stream) MUST_CHECK;
/* Ours: cut it short. Theirs: want no more of it. 0 also when it has ended already. */
int mux_send_reset(struct mux *m, uint16_t ch, uint8_t stream) MUST_CHECK;
/* The consumer has dealt with @n bytes of a stream of theirs: grant as many anew. */
int mux_consumed(struct mux *m, uint16_t ch, uint8_t stream, size_t n) MUST_CHECK;

#endif
