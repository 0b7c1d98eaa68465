/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - one direction of a connection: bytes from one socket to another.
 *
 * What the far end does not take is held, at most COPY_BYTES, and nothing more is
 * read until it is gone: the source is slowed down, never the memory filled. An
 * end of file is passed on as one when everything before it is. Sockets are
 * nonblocking and borrowed.
 *
 * read() and write(): splice() was measured at 0.5 to 1.8 of their speed, depending
 * on the direction and the size of the writes, and both at some ten times of what
 * libslirp brings. It would cost a pipe, two descriptors, for each direction.
 */
#ifndef CLOCHE_RELAY_COPY_H
#define CLOCHE_RELAY_COPY_H

#include "base/span.h"

enum { COPY_BYTES = 128 * 1024 };

struct copy {
	int from, to;   /* -1: not there yet */
	uint8_t *held;  /* malloc'd while there is something */
	size_t at, len; /* what is left of it */
	bool eof;       /* no more is read */
	bool shut;      /* and the far end was told */
	uint64_t bytes; /* that the far end took */
};

void copy_fini(struct copy *c);

static inline bool copy_reads(const struct copy *c)
{
	return !c->eof && c->len == 0;
}

/* Write what is held; tell the end. 0, or -errno of the far end. */
int copy_flush(struct copy *c) MUST_CHECK;
/* Write @s (nothing is held), hold what is not taken. 0 or -errno of the far end. */
int copy_push(struct copy *c, struct span s) MUST_CHECK;
/* No more comes: as after an end of file. 0 or -errno of the far end. */
int copy_end(struct copy *c) MUST_CHECK;

/*
 * copy_step() - read once, and write.
 * @seen:	sees the bytes on their way; may be NULL
 * @out_read:	true when the error is the source's, not the far end's
 *
 * Return: 0 or -errno.
 */
int copy_step(struct copy *c, void (*seen)(void *arg, struct span s), void *arg,
              bool *out_read) MUST_CHECK;

#endif
