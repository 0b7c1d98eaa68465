/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - frames on a byte stream: QEMU's netdev "stream", both ways.
 *
 * Wire form: length u32, big endian, then that many bytes of an Ethernet frame.
 * QEMU 7.2 stops receiving for ever after a length of 0, so none is sent. Frames
 * are gathered and written together. Both buffers are bounded: a full one is the
 * caller's sign to stop taking from the other side.
 */
#ifndef CLOCHE_NET_STREAM_H
#define CLOCHE_NET_STREAM_H

#include <sys/types.h>

#include "base/util.h"

enum {
	STREAM_HEADER_BYTES = 4,
	STREAM_FRAME_MAX = 4096 + 65536, /* QEMU's largest (NET_BUFSIZE) */
	STREAM_IN_BYTES = 256 * 1024,
	STREAM_OUT_HIGH = 1024 * 1024, /* above it, no more should be made */
	STREAM_OUT_BYTES = 4 * 1024 * 1024,
};

struct stream_in {
	uint8_t *buf;
	size_t at, end; /* bytes that wait: [at, end) */
};

struct stream_out {
	uint8_t *buf;
	size_t at, end;
};

/* Abort without memory. fini accepts a zeroed one. */
void stream_in_init(struct stream_in *l);
void stream_in_fini(struct stream_in *l);
void stream_out_init(struct stream_out *l);
void stream_out_fini(struct stream_out *l);

/* Read what there is room for. Return: bytes, 0 at the end of the stream, -EAGAIN, -errno. */
ssize_t stream_fill(struct stream_in *l, int fd) MUST_CHECK;

/*
 * stream_next() - the next whole frame; it may be written to, and is good until the
 * next stream_fill().
 * Return: 1 with @out, 0 when there is none yet, -EPROTO for a length over the limit.
 */
int stream_next(struct stream_in *l, uint8_t **out, size_t *out_len) MUST_CHECK;

/* Room for a frame of @n bytes (1 to STREAM_FRAME_MAX), or NULL. stream_commit() sends it. */
uint8_t *stream_reserve(struct stream_out *l, size_t n) MUST_CHECK;
/* ... of which @n bytes became one; 0 takes it back. */
void stream_commit(struct stream_out *l, size_t n);
size_t stream_waiting(const struct stream_out *l);

/* Write what the stream takes. Return: 0 (also when it is full), -errno. */
int stream_flush(struct stream_out *l, int fd) MUST_CHECK;

#endif
