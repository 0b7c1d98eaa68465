/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

void copy_fini(struct copy *c)
{
	free(c->held);
	c->held = NULL;
	c->len = 0;
}

static bool later(int error)
{
	return error == EAGAIN || error == EINTR;
}

/* How much of @s the far end takes now. Bytes or -errno. */
static ssize_t put(struct copy *c, struct span s)
{
	size_t done = 0;

	while (done < s.len) {
		ssize_t k = send(c->to, s.p + done, s.len - done, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (k < 0 && !later(errno))
			return -errno;
		if (k <= 0)
			break;
		done += (size_t)k;
	}
	c->bytes += done;
	return (ssize_t)done;
}

static int tell_end(struct copy *c)
{
	if (!c->eof || c->shut || c->len > 0)
		return 0;
	c->shut = true;
	/* ENOTCONN: it is gone, which the other direction finds */
	if (shutdown(c->to, SHUT_WR) < 0 && errno != ENOTCONN)
		return -errno;
	return 0;
}

int copy_flush(struct copy *c)
{
	if (c->len > 0) {
		ssize_t k = put(c, span_of(c->held + c->at, c->len));

		if (k < 0)
			return (int)k;
		c->at += (size_t)k;
		c->len -= (size_t)k;
		if (c->len == 0)
			copy_fini(c);
	}
	return tell_end(c);
}

int copy_push(struct copy *c, struct span s)
{
	ASSERT(c->len == 0 && s.len <= COPY_BYTES);
	ssize_t k = put(c, s);

	if (k < 0)
		return (int)k;
	if ((size_t)k < s.len) {
		c->len = s.len - (size_t)k;
		c->at = 0;
		c->held = xmemdup(s.p + k, c->len);
	}
	return 0;
}

int copy_end(struct copy *c)
{
	c->eof = true;
	return tell_end(c);
}

int copy_step(struct copy *c, void (*seen)(void *arg, struct span s), void *arg, bool *out_read)
{
	static uint8_t b[COPY_BYTES]; /* one thread, not kept across calls */

	*out_read = false;
	if (!copy_reads(c))
		return 0;
	ssize_t k = recv(c->from, b, sizeof(b), MSG_DONTWAIT);
	if (k < 0 && later(errno))
		return 0;
	if (k < 0) {
		*out_read = true;
		return -errno;
	}
	if (k == 0)
		return copy_end(c);
	struct span s = span_of(b, (size_t)k);
	if (seen)
		seen(arg, s);
	return copy_push(c, s);
}
