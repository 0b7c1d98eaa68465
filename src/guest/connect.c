/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections from the host to servers in the guest: published ports, callbacks
 * of logins. They are made by PID 1, so that a server on the guest's loopback is
 * reached, which no frame from outside could.
 *
 * Each direction ends for itself. What the host sent waits in a queue that its
 * credit bounds; what the server sends is read only within the host's credit.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "guest/guest.h"

enum { READ_BYTES = 64 * 1024, READS_A_TURN = 16, CONNECT_MS = 5000 };

enum where { LOOPBACK4, LOOPBACK6, CARD, NOWHERE };

struct conn {
	struct guest *g;
	uint16_t channel, port;
	uint32_t seq;
	enum where where; /* tried now */
	bool up;
	int fd, why; /* -errno of the last attempt */
	struct loop_fd src;
	struct loop_timer timer;
	struct buf queue; /* for the server, at most MUX_CREDIT_MAX */
	bool in_eof;      /* nothing more comes for it */
	bool in_over;     /* ... and it knows, or wants no more */
	bool out_over;    /* the server has ended its side */
	bool paused;      /* no credit */
};

static uint8_t chunk[READ_BYTES];

static void drop_socket(struct conn *c)
{
	loop_fd_del(c->g->loop, &c->src);
	loop_timer_del(c->g->loop, &c->timer);
	auto_close_(&c->fd);
	c->fd = -1;
}

/* Streams that have not ended are reset. */
static void conn_free(struct conn *c)
{
	struct guest *g = c->g;

	drop_socket(c);
	buf_fini(&c->queue);
	mux_close(g->mux, c->channel);
	g->conns[c->channel] = NULL;
	g->n_conns--;
	free(c);
}

/* Both directions are over. The end of the error stream comes last: the number is free. */
static void finish(struct conn *c)
{
	drop_socket(c);
	int r = mux_send_eof(c->g->mux, c->channel, FRAME_ERR);
	if (r < 0 && r != -EPIPE)
		c->g->off = true;
	conn_free(c);
}

/* The host's client is gone: the server hears of it as of any that dies. */
static void abort_conn(struct conn *c)
{
	const struct linger now = { .l_onoff = 1 };

	(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	c->in_over = c->out_over = true;
	conn_free(c);
}

static void on_conn(void *arg, uint32_t events);

/* Watch for what can go on. Without credit and with nothing to write for nothing at all: a
 * hang-up would be reported again and again. */
static int conn_watch(struct conn *c)
{
	uint32_t want = 0;

	if (!c->out_over && !c->paused)
		want |= EPOLLIN;
	if (!c->in_over && c->queue.len)
		want |= EPOLLOUT;
	if (!want && !c->out_over) {
		loop_fd_del(c->g->loop, &c->src);
		return 0;
	}
	if (!c->src.fn)
		return loop_fd_add(c->g->loop, &c->src, c->fd, want, on_conn, c);
	loop_fd_set(c->g->loop, &c->src, want);
	return 0;
}

static int pump_in(struct conn *c)
{
	struct guest *g = c->g;

	while (!c->in_over && c->queue.len) {
		ssize_t n = send(c->fd, c->queue.p, c->queue.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0) { /* the server wants no more of it */
			c->in_over = true;
			buf_fini(&c->queue);
			return mux_send_reset(g->mux, c->channel, FRAME_IN);
		}
		buf_consume(&c->queue, (size_t)n);
		int r = mux_consumed(g->mux, c->channel, FRAME_IN, (size_t)n);
		if (r < 0)
			return r;
	}
	if (!c->in_over && c->in_eof) {
		c->in_over = true;
		(void)shutdown(c->fd, SHUT_WR); /* gone already: the reading side says so */
	}
	return 0;
}

static int pump_out(struct conn *c)
{
	struct guest *g = c->g;

	for (int turn = 0; turn < READS_A_TURN && !c->out_over; turn++) {
		size_t credit = mux_credit(g->mux, c->channel, FRAME_OUT);
		c->paused = credit == 0;
		if (c->paused)
			return 0;
		ssize_t n = recv(c->fd, chunk, MIN(credit, sizeof(chunk)), 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n > 0) {
			int r = mux_send(g->mux, c->channel, FRAME_OUT, chunk, (size_t)n);
			if (r < 0)
				return r;
			continue;
		}
		c->out_over = true;
		int r = n == 0 ? mux_send_eof(g->mux, c->channel, FRAME_OUT)
		               : mux_send_reset(g->mux, c->channel, FRAME_OUT);
		return r == -EPIPE ? 0 : r;
	}
	return 0;
}

/* Everything that can be done now; @c may be gone afterwards. */
static int pump(struct conn *c)
{
	int r = pump_in(c);

	if (r == 0)
		r = pump_out(c);
	if (r < 0)
		return r;
	if (c->in_over && c->out_over) {
		finish(c);
		return 0;
	}
	return conn_watch(c);
}

static void try_next(struct conn *c);

/* The first reason counts, the others are about fallbacks; but silence says more than a refusal. */
static void note(struct conn *c, int why)
{
	if (c->why == 0 || why == -ETIMEDOUT)
		c->why = why;
}

static void failed(struct conn *c, int why)
{
	drop_socket(c);
	note(c, why);
	c->where++;
	try_next(c);
}

static void on_late(void *arg)
{
	failed(arg, -ETIMEDOUT);
}

static void on_conn(void *arg, uint32_t events)
{
	struct conn *c = arg;
	struct guest *g = c->g;
	int code = 0;
	socklen_t n = sizeof(code);

	if (!c->up) {
		if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &code, &n) < 0)
			code = errno;
		if (code) {
			failed(c, -code);
			return;
		}
		c->up = true;
		loop_timer_del(g->loop, &c->timer);
		guest_done(g, c->seq, 0, NULL);
	} else if (events & (EPOLLERR | EPOLLHUP) && c->out_over && !c->in_over) {
		/* nobody reads it, and nothing is left to be written that would say so */
		c->in_over = true;
		if (mux_send_reset(g->mux, c->channel, FRAME_IN) < 0)
			g->off = true;
	}
	if (pump(c) < 0)
		g->off = true;
}

static int begin(struct conn *c)
{
	struct sockaddr_in in4 = { .sin_family = AF_INET, .sin_port = htons(c->port) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
		                    .sin6_port = htons(c->port),
		                    .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	bool six = c->where == LOOPBACK6;

	in4.sin_addr.s_addr = htonl(c->where == CARD ? c->g->address : INADDR_LOOPBACK);
	if (c->where == CARD && !c->g->address)
		return -ECONNREFUSED;
	c->fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return -errno;
	int r = six ? connect(c->fd, (struct sockaddr *)&in6, sizeof(in6))
	            : connect(c->fd, (struct sockaddr *)&in4, sizeof(in4));
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	r = loop_fd_add(c->g->loop, &c->src, c->fd, EPOLLOUT, on_conn, c);
	if (r == 0)
		loop_timer_set(c->g->loop, &c->timer, CONNECT_MS, on_late, c);
	return r;
}

static void try_next(struct conn *c)
{
	for (; c->where < NOWHERE; c->where++) {
		int r = begin(c);
		if (r == 0)
			return;
		drop_socket(c);
		note(c, r);
	}
	struct err err = { 0 };
	(void)err_code(&err, c->why, "cannot connect to port %u", c->port);
	guest_done(c->g, c->seq, c->why, &err);
	conn_free(c);
}

int connect_start(struct guest *g, const struct msg *m, struct err *err)
{
	uint16_t ch = m->connect.channel;
	int r = mux_open(g->mux, ch);

	if (r < 0)
		return err_code(err, r, "channel %u is in use", ch);
	struct conn *c = g->n_conns < GUEST_CONNS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		mux_close(g->mux, ch);
		return err_set(err, g->n_conns < GUEST_CONNS_MAX ? -ENOMEM : -EMFILE,
		               "too many connections into the guest");
	}
	*c = (struct conn){ .g = g,
		            .channel = ch,
		            .port = m->connect.port,
		            .seq = m->seq,
		            .fd = -1,
		            .src = { .fd = -1 } };
	g->conns[ch] = c;
	g->n_conns++;
	try_next(c);
	return 1;
}

int connect_data(struct guest *g, uint16_t ch, struct span bytes)
{
	struct conn *c = g->conns[ch];

	if (c->in_over)
		return 0; /* late; the credit is not given back, so it has an end */
	int r = buf_put(&c->queue, bytes.p, bytes.len);
	return r < 0 || !c->up ? r : pump(c);
}

int connect_eof(struct guest *g, uint16_t ch)
{
	struct conn *c = g->conns[ch];

	c->in_eof = true;
	return c->up ? pump(c) : 0;
}

int connect_reset(struct guest *g, uint16_t ch, uint8_t stream)
{
	struct conn *c = g->conns[ch];

	if (stream == FRAME_ERR)
		return 0; /* it never carries anything */
	if (!c->up) {
		struct err err = { 0 };
		(void)err_set(&err, -ECANCELED, "the host wants no connection any more");
		guest_done(g, c->seq, err.code, &err);
	}
	abort_conn(c);
	return 0;
}

int connect_writable(struct guest *g, uint16_t ch, uint8_t stream)
{
	struct conn *c = g->conns[ch];

	if (stream != FRAME_OUT || !c->up || !c->paused)
		return 0;
	c->paused = false;
	return pump(c);
}

void connect_close_all(struct guest *g)
{
	for (unsigned ch = 1; ch < FRAME_CHANNELS_MAX && g->n_conns; ch++) {
		struct conn *c = g->conns[ch];
		if (c)
			(void)connect_reset(g, (uint16_t)ch, FRAME_IN);
	}
}
