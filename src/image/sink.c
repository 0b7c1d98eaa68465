/* SPDX-License-Identifier: Apache-2.0 */
#include "image/sink.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fd.h"
#include "erofs/erofs.h"
#include "image/tar.h"

enum { SINK_BYTES = 1024 * 1024 };

int sink_init(struct sink *s, int fd)
{
	*s = (struct sink){ .fd = fd, .at = EROFS_BLOCK_BYTES, .p = malloc(SINK_BYTES) };
	return s->p ? 0 : -ENOMEM;
}

void sink_fini(struct sink *s)
{
	free(s->p);
	s->p = NULL;
}

int sink_flush(struct sink *s)
{
	int r = s->n ? fd_pwrite_all(s->fd, s->p, s->n, (off_t)s->at) : 0;

	s->at += s->n;
	s->n = 0;
	return r;
}

int sink_put(struct sink *s, struct span d)
{
	while (d.len) {
		size_t k = MIN(d.len, SINK_BYTES - s->n);
		memcpy(s->p + s->n, d.p, k);
		s->n += k;
		d = span_of(d.p + k, d.len - k);
		int r = s->n == SINK_BYTES ? sink_flush(s) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* Go on at @to: zeros for a short gap, a hole in the image for a long one. */
static int skip(struct sink *s, uint64_t to)
{
	static const uint8_t zeros[EROFS_BLOCK_BYTES];
	uint64_t gap = to - (s->at + s->n);

	if (gap > 64 * 1024) {
		int r = sink_flush(s);
		s->at = to;
		return r;
	}
	while (gap) {
		size_t k = (size_t)MIN(gap, sizeof(zeros));
		int r = sink_put(s, span_of(zeros, k));
		if (r < 0)
			return r;
		gap -= k;
	}
	return 0;
}

int sink_align(struct sink *s)
{
	return skip(s, align_up(s->at + s->n, EROFS_BLOCK_BYTES));
}

uint64_t sink_block(const struct sink *s)
{
	return (s->at + s->n) / EROFS_BLOCK_BYTES;
}

int sink_take(struct sink *s, struct tar *in, uint64_t size, struct buf *copy)
{
	uint64_t start = s->at + s->n, off, end = 0;
	struct span d;
	int r;

	while ((r = tar_data(in, &d, &off)) == 1) {
		if (d.len == 0)
			continue;
		if (off < end || off > size || d.len > size - off)
			return -EPROTO; /* backwards, or more than it said */
		r = skip(s, start + off);
		if (r == 0)
			r = sink_put(s, d);
		if (r == 0 && copy)
			r = off == end ? buf_put(copy, d.p, d.len) : -EPROTO;
		if (r < 0)
			return r;
		end = off + d.len;
	}
	if (r < 0)
		return r;
	return skip(s, start + align_up(size, EROFS_BLOCK_BYTES));
}
