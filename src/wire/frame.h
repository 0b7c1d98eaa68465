/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - frames of the control channel between host and guest.
 *
 * The channel is a lossless byte stream (a virtio-serial port). Wire form,
 * little endian: magic u16, type u8, stream u8, channel u16, reserved u16 (0),
 * length u32, then `length` bytes. Either end may be hostile to this code: a
 * frame is believed only after frame_parse() returned 0. Nothing here
 * allocates; a payload points into the caller's buffer and dies with it.
 */
#ifndef CLOCHE_WIRE_FRAME_H
#define CLOCHE_WIRE_FRAME_H

#include "base/span.h"

enum {
	FRAME_MAGIC = 0xc10c,
	FRAME_HEADER_BYTES = 12,
	FRAME_PAYLOAD_MAX = 64 * 1024,
	FRAME_CHANNELS_MAX = 256,
	FRAME_STREAMS = 3,
};

enum frame_type {
	FRAME_CONTROL = 1, /* channel 0, stream 0: one message of msg.h */
	FRAME_DATA = 2,    /* 1 to FRAME_PAYLOAD_MAX bytes of a stream, within its credit */
	FRAME_EOF = 3,     /* no more data on this stream; empty */
	FRAME_CREDIT = 4,  /* u32: the receiver of a stream takes that many bytes more */
	FRAME_RESET = 5, /* the sender of this frame takes or gives no more of the stream; empty */
};

/* A channel carries three one-way streams. */
enum frame_stream {
	FRAME_IN = 0,  /* host to guest: standard input, or a connection's bytes */
	FRAME_OUT = 1, /* guest to host: standard output, terminal, export */
	FRAME_ERR = 2, /* guest to host: standard error */
};

struct frame {
	uint8_t type;
	uint8_t stream;
	uint16_t channel;
	struct span payload; /* borrowed from the input buffer */
};

/*
 * frame_parse() - the frame at the start of @buf.
 * Return: 0 with @out and *out_used bytes consumed; -EAGAIN when @buf holds
 * only a part of a frame (a whole header is judged before its payload is waited for); -EPROTO.
 */
int frame_parse(struct frame *out, const void *buf, size_t len, size_t *out_used) MUST_CHECK;

/* Bytes written, or 0 when @cap is too small or @f is not allowed. */
size_t frame_put(uint8_t *dst, size_t cap, const struct frame *f) MUST_CHECK;

#endif
