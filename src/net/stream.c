/* SPDX-License-Identifier: Apache-2.0 */
#include "net/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/packet.h"

void stream_in_init(struct stream_in *l)
{
	*l = (struct stream_in){ .buf = xmalloc(STREAM_IN_BYTES) };
}

void stream_in_fini(struct stream_in *l)
{
	free(l->buf);
	*l = (struct stream_in){ 0 };
}

void stream_out_init(struct stream_out *l)
{
	*l = (struct stream_out){ .buf = xmalloc(STREAM_OUT_BYTES) };
}

void stream_out_fini(struct stream_out *l)
{
	free(l->buf);
	*l = (struct stream_out){ 0 };
}

ssize_t stream_fill(struct stream_in *l, int fd)
{
	ssize_t k;

	if (l->at) {
		memmove(l->buf, l->buf + l->at, l->end - l->at);
		l->end -= l->at;
		l->at = 0;
	}
	if (l->end == STREAM_IN_BYTES)
		return -EAGAIN; /* the caller has frames to take first */
	do {
		k = recv(fd, l->buf + l->end, STREAM_IN_BYTES - l->end, MSG_DONTWAIT);
	} while (k < 0 && errno == EINTR);
	if (k < 0)
		return -errno;
	l->end += (size_t)k;
	return k;
}

int stream_next(struct stream_in *l, uint8_t **out, size_t *out_len)
{
	size_t left = l->end - l->at;

	if (left < STREAM_HEADER_BYTES)
		return 0;
	size_t n = get_be32(l->buf + l->at);
	if (n > STREAM_FRAME_MAX)
		return -EPROTO; /* where the next frame begins is not known any more */
	if (left - STREAM_HEADER_BYTES < n)
		return 0;
	*out = l->buf + l->at + STREAM_HEADER_BYTES;
	*out_len = n;
	l->at += STREAM_HEADER_BYTES + n;
	return 1;
}

uint8_t *stream_reserve(struct stream_out *l, size_t n)
{
	ASSERT(n > 0 && n <= STREAM_FRAME_MAX);
	if (STREAM_OUT_BYTES - l->end < STREAM_HEADER_BYTES + n) {
		memmove(l->buf, l->buf + l->at, l->end - l->at);
		l->end -= l->at;
		l->at = 0;
	}
	if (STREAM_OUT_BYTES - l->end < STREAM_HEADER_BYTES + n)
		return NULL;
	return l->buf + l->end + STREAM_HEADER_BYTES;
}

void stream_commit(struct stream_out *l, size_t n)
{
	if (n == 0)
		return;
	put_be32(l->buf + l->end, (uint32_t)n);
	l->end += STREAM_HEADER_BYTES + n;
	ASSERT(l->end <= STREAM_OUT_BYTES);
}

size_t stream_waiting(const struct stream_out *l)
{
	return l->end - l->at;
}

int stream_flush(struct stream_out *l, int fd)
{
	while (l->at < l->end) {
		ssize_t k = send(fd, l->buf + l->at, l->end - l->at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return errno == EAGAIN ? 0 : -errno;
		l->at += (size_t)k;
	}
	l->at = l->end = 0;
	return 0;
}
