/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h - where the data of an image's files goes while its archive is read.
 *
 * Data is appended from block 1 on, each file at the start of a block; many small
 * files become few writes. What an entry says of its size is held against what
 * it has.
 */
#ifndef CLOCHE_IMAGE_SINK_H
#define CLOCHE_IMAGE_SINK_H

#include "base/mem.h"
#include "base/span.h"

struct tar;

struct sink {
	int fd; /* borrowed; an empty file */
	uint8_t *p;
	size_t n;
	uint64_t at; /* offset of p[0] in the image */
};

/* 0 or -ENOMEM; sink_fini() also of a zeroed one. */
int sink_init(struct sink *s, int fd) MUST_CHECK;
void sink_fini(struct sink *s);

int sink_put(struct sink *s, struct span d) MUST_CHECK;
/* Zeros, or a hole, up to the next block. */
int sink_align(struct sink *s) MUST_CHECK;
int sink_flush(struct sink *s) MUST_CHECK;
/* The block where the next byte goes; only after sink_align(). */
uint64_t sink_block(const struct sink *s);

/*
 * sink_take() - the data of the current entry of @in, aligned at its end.
 * @size:	what its header said
 * @copy:	gets it too, where that is wanted; else NULL
 *
 * Return: 0; -EPROTO for more data than said, or data that goes backwards; -errno.
 */
int sink_take(struct sink *s, struct tar *in, uint64_t size, struct buf *copy) MUST_CHECK;

#endif
