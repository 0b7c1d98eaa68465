/* SPDX-License-Identifier: Apache-2.0 */
#include "super/port.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"

enum { PORT_READ_BYTES = 64 * 1024 };

static void finish(struct port *p, int code)
{
	if (p->fd < 0)
		return;
	loop_fd_del(p->l, &p->src);
	auto_close_(&p->fd);
	p->fd = -1;
	p->over(p->arg, code);
}

static void watch(struct port *p)
{
	uint32_t ev = p->stalled ? 0 : EPOLLIN;

	if (mux_out(p->mux).len)
		ev |= EPOLLOUT;
	loop_fd_set(p->l, &p->src, ev);
}

void port_flush(struct port *p)
{
	while (p->fd >= 0) {
		struct span s = mux_out(p->mux);
		if (s.len == 0)
			break;
		if (p->deaf) {
			mux_out_done(p->mux, s.len);
			continue;
		}
		ssize_t k = write(p->fd, s.p, s.len);
		if (k > 0) {
			mux_out_done(p->mux, (size_t)k);
			continue;
		}
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && (errno == EPIPE || errno == ECONNRESET)) {
			p->deaf = true; /* its last words, then its end, are found by reading */
			continue;
		}
		if (k < 0 && errno != EAGAIN) {
			finish(p, -errno);
			return;
		}
		break;
	}
	if (p->fd >= 0)
		watch(p);
}

size_t port_pending(const struct port *p)
{
	return mux_out(p->mux).len;
}

void port_stall(struct port *p, bool stalled)
{
	p->stalled = stalled;
	if (p->fd >= 0)
		watch(p);
}

static void on_fd(void *arg, uint32_t events)
{
	static uint8_t b[PORT_READ_BYTES]; /* one thread, not kept across calls */
	struct port *p = arg;

	if (events & EPOLLOUT)
		port_flush(p);
	if (p->fd < 0 || p->stalled || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		/* a peer that is gone while we do not read: say so, or epoll spins */
		if (p->fd >= 0 && p->stalled && (events & (EPOLLHUP | EPOLLERR)))
			finish(p, 0);
		return;
	}
	ssize_t k = read(p->fd, b, sizeof(b));
	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (k <= 0) {
		finish(p, k == 0 || errno == ECONNRESET ? 0 : -errno);
		return;
	}
	int r = mux_feed(p->mux, b, (size_t)k);
	if (p->fd < 0)
		return; /* a callback ended it */
	if (r < 0) {
		finish(p, r);
		return;
	}
	port_flush(p);
}

int port_init(struct port *p, struct loop *l, int fd, enum mux_side side, const struct mux_ops *ops,
              void (*over)(void *arg, int code), void *arg)
{
	*p = (struct port){ .l = l, .fd = fd, .src = { .fd = -1 }, .over = over, .arg = arg };
	int r = fd_set_nonblock(fd, true);

	if (r == 0) {
		p->mux = mux_new(side, ops, arg);
		r = p->mux ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = loop_fd_add(l, &p->src, fd, EPOLLIN, on_fd, p);
	if (r < 0)
		port_fini(p);
	return r;
}

void port_fini(struct port *p)
{
	if (p->l && p->src.fd >= 0)
		loop_fd_del(p->l, &p->src);
	if (p->l)
		auto_close_(&p->fd);
	p->fd = -1;
	mux_free(p->mux);
	p->mux = NULL;
}
