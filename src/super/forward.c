/* SPDX-License-Identifier: Apache-2.0 */
#include "super/forward.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/relayctl.h"

enum { READ_BYTES = 64 * 1024, READS_A_TURN = 16 };

struct link {
	struct forward *f;
	uint16_t channel;
	bool used;        /* until the guest has ended the channel, and the socket is closed */
	bool up;          /* the guest's server took it */
	bool ended;       /* the guest is done with the channel: mux_close() was called */
	int fd;           /* the host's end; -1 once both ways are over */
	bool in_over;     /* nothing more is read from it */
	bool out_eof;     /* the guest sends no more */
	bool out_over;    /* ... and that was said */
	bool paused;      /* no credit */
	struct buf out;   /* for it, at most MUX_CREDIT_MAX */
	uint64_t last_ns; /* a byte went either way */
	struct loop_fd src;
};

struct forward {
	struct loop *l;
	struct mux *mux;
	struct forward_ops ops;
	int relay_fd;
	struct loop_fd relay_src;
	struct link links[FORWARD_MAX];
	struct loop_timer full; /* no link is free: until one has been idle for long enough */
	uint8_t chunk[READ_BYTES];
};

bool forward_has(uint16_t channel)
{
	return channel >= FORWARD_FIRST && channel < FORWARD_FIRST + FORWARD_MAX;
}

static struct link *link_of(struct forward *f, uint16_t channel)
{
	struct link *k = &f->links[channel - FORWARD_FIRST];

	return k->used ? k : NULL;
}

static void close_fd(struct link *k)
{
	loop_fd_del(k->f->l, &k->src);
	auto_close_(&k->fd);
	k->fd = -1;
	buf_fini(&k->out);
	k->out = (struct buf){ 0 };
}

/* The number is free once the mux has forgotten the channel, too. */
static void free_if_over(struct link *k)
{
	if (k->fd < 0 && k->ended)
		*k = (struct link){ .fd = -1, .src = { .fd = -1 } };
}

/* The host's client is gone or what it wanted cannot be had: the guest hears of it. */
static void cut(struct link *k)
{
	close_fd(k);
	if (!k->ended)
		mux_close(k->f->mux, k->channel);
	k->ended = true;
	free_if_over(k);
}

static void on_client(void *arg, uint32_t events);

static void watch(struct link *k)
{
	uint32_t want = 0;

	if (!k->in_over && !k->paused)
		want |= EPOLLIN;
	if (k->out.len)
		want |= EPOLLOUT;
	if (k->src.fn)
		loop_fd_set(k->f->l, &k->src, want); /* its death is always seen */
	else if (want && loop_fd_add(k->f->l, &k->src, k->fd, want, on_client, k) < 0)
		cut(k);
}

/* Both ways are over: no reason to keep the socket until the guest has said so, too. */
static void after(struct link *k)
{
	if (k->fd >= 0 && k->in_over && k->out_over)
		close_fd(k);
	if (k->fd >= 0)
		watch(k);
	free_if_over(k);
}

static int read_client(struct link *k)
{
	struct forward *f = k->f;

	for (int turn = 0; turn < READS_A_TURN && !k->in_over; turn++) {
		size_t credit = mux_credit(f->mux, k->channel, FRAME_IN);
		k->paused = credit == 0;
		if (k->paused)
			return 0;
		ssize_t n = recv(k->fd, f->chunk, MIN(credit, sizeof(f->chunk)), 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n < 0) {
			cut(k);
			return 0;
		}
		k->last_ns = loop_now_ns(f->l);
		int r = n ? mux_send(f->mux, k->channel, FRAME_IN, f->chunk, (size_t)n)
		          : mux_send_eof(f->mux, k->channel, FRAME_IN);
		if (n == 0 || r == -EPIPE) /* the server wants no more */
			k->in_over = true;
		if (r < 0 && r != -EPIPE)
			return r;
	}
	return 0;
}

static int write_client(struct link *k)
{
	struct forward *f = k->f;

	while (k->out.len) {
		ssize_t n = send(k->fd, k->out.p, k->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0) {
			cut(k);
			return 0;
		}
		buf_consume(&k->out, (size_t)n);
		int r = mux_consumed(f->mux, k->channel, FRAME_OUT, (size_t)n);
		if (r < 0)
			return r;
	}
	if (k->out_eof && !k->out_over) {
		k->out_over = true;
		(void)shutdown(k->fd, SHUT_WR); /* gone already: then it is over anyway */
	}
	return 0;
}

static int pump(struct link *k)
{
	struct forward *f = k->f; /* of @k nothing may be left */
	int r = 0;

	if (k->fd >= 0 && k->up)
		r = write_client(k);
	if (r == 0 && k->fd >= 0 && k->up && !k->ended)
		r = read_client(k);
	if (k->used)
		after(k);
	f->ops.flush(f->ops.arg);
	return r;
}

static void on_client(void *arg, uint32_t events)
{
	struct link *k = arg;
	struct forward *f = k->f;

	if (events & EPOLLERR || (events & EPOLLHUP && (k->in_over || !k->up))) {
		cut(k);
		f->ops.flush(f->ops.arg);
		return;
	}
	if (events & EPOLLHUP && k->paused) {
		/* it said all it had to say, which waits to be read; no need to hear it again */
		loop_fd_del(f->l, &k->src);
		return;
	}
	/* a queue to the guest that is full ends the machine where it is written */
	if (pump(k) < 0 && k->used)
		cut(k);
}

/* ---- from the relay ----------------------------------------------------- */

static struct link *free_link(struct forward *f)
{
	for (uint16_t i = 0; i < FORWARD_MAX; i++) {
		struct link *k = &f->links[i];
		if (!k->used && !mux_is_open(f->mux, (uint16_t)(FORWARD_FIRST + i)))
			return k;
	}
	return NULL;
}

static void on_full(void *arg);

/*
 * A client or a server that never closes must not keep the last place for ever: when none
 * is free, the connection that was idle for longest goes once that is FORWARD_IDLE_MS.
 */
static void watch_full(struct forward *f)
{
	const uint64_t idle_ns = FORWARD_IDLE_MS * UINT64_C(1000000);
	struct link *oldest = &f->links[0];
	uint64_t now = loop_now_ns(f->l);

	for (size_t i = 0; i < FORWARD_MAX; i++) {
		if (!f->links[i].used)
			return;
		if (f->links[i].last_ns < oldest->last_ns)
			oldest = &f->links[i];
	}
	if (now - oldest->last_ns >= idle_ns) {
		log_info("an idle connection to a published port was closed: all %d are in use",
		         FORWARD_MAX);
		cut(oldest);
		f->ops.flush(f->ops.arg);
		return;
	}
	uint64_t ms = (oldest->last_ns + idle_ns - now + 999999) / 1000000;
	loop_timer_set(f->l, &f->full, ms, on_full, f);
}

static void on_full(void *arg)
{
	watch_full(arg);
}

/* Takes @fd. A connection that cannot be served is closed, which is all that is said. */
static void take_connection(struct forward *f, int fd, uint16_t port)
{
	struct link *k = f->ops.ready(f->ops.arg) ? free_link(f) : NULL;
	uint16_t ch = k ? (uint16_t)(FORWARD_FIRST + (k - f->links)) : 0;

	AUTO_CLOSE int owned = fd;
	if (!k || fd_set_nonblock(fd, true) < 0)
		return;
	*k = (struct link){
		.f = f, .channel = ch, .fd = -1, .src = { .fd = -1 }, .last_ns = loop_now_ns(f->l)
	};
	if (loop_fd_add(f->l, &k->src, fd, 0, on_client, k) < 0)
		return;
	/* asked first: a channel that the guest never hears of would never end */
	int r = f->ops.connect(f->ops.arg, ch, port);
	if (r == 0)
		r = mux_open(f->mux, ch);
	if (r < 0) {
		loop_fd_del(f->l, &k->src);
		log_debug("a connection to port %u was closed: %s", port, strerror(-r));
		return;
	}
	k->fd = take_fd(&owned);
	k->used = true;
	f->ops.flush(f->ops.arg);
	watch_full(f);
}

static void drop_relay(struct forward *f)
{
	loop_fd_del(f->l, &f->relay_src);
	auto_close_(&f->relay_fd);
	f->relay_fd = -1;
}

static void on_relay(void *arg, uint32_t events UNUSED)
{
	struct forward *f = arg;
	struct relayctl m;
	uint8_t b[64];
	size_t n_fds = 0;
	AUTO_CLOSE int fd = -1;
	ssize_t n = fd_recv(f->relay_fd, b, sizeof(b), &fd, 1, &n_fds);

	if (n == -EAGAIN)
		return;
	if (n == 0) { /* gone: the monitor says so */
		drop_relay(f);
		return;
	}
	if (n < 0 || relayctl_parse(&m, span_of(b, (size_t)n)) < 0 || m.type != RELAYCTL_FORWARD ||
	    n_fds != 1) {
		log_error("cloche-relay broke its protocol: it is not listened to any more");
		drop_relay(f);
		return;
	}
	take_connection(f, take_fd(&fd), m.guest_port);
}

int forward_new(struct forward **out, struct loop *l, struct mux *guest, int relay_fd,
                const struct forward_ops *ops)
{
	struct forward *f = calloc(1, sizeof(*f));

	AUTO_CLOSE int fd = relay_fd;
	if (!f)
		return -ENOMEM;
	*f = (struct forward){ .l = l, .mux = guest, .ops = *ops, .relay_fd = -1 };
	for (size_t i = 0; i < FORWARD_MAX; i++)
		f->links[i] = (struct link){ .fd = -1, .src = { .fd = -1 } };
	int r = loop_fd_add(l, &f->relay_src, fd, EPOLLIN, on_relay, f);
	if (r < 0) {
		free(f);
		return r;
	}
	f->relay_fd = take_fd(&fd);
	*out = f;
	return 0;
}

void forward_free(struct forward *f)
{
	if (!f)
		return;
	loop_timer_del(f->l, &f->full);
	for (size_t i = 0; i < FORWARD_MAX; i++) {
		if (f->links[i].used)
			close_fd(&f->links[i]);
	}
	drop_relay(f);
	free(f);
}

/* ---- from the guest ----------------------------------------------------- */

int forward_answered(struct forward *f, uint16_t channel, int code)
{
	struct link *k = link_of(f, channel);

	if (!k || k->ended)
		return 0; /* its client had gone meanwhile */
	if (k->up)
		return -EPROTO;
	if (code < 0) {
		cut(k);
		f->ops.flush(f->ops.arg);
		return 0;
	}
	k->up = true;
	return pump(k);
}

int forward_data(struct forward *f, uint16_t channel, uint8_t stream, struct span b)
{
	struct link *k = link_of(f, channel);

	if (!k || !k->up || stream != FRAME_OUT)
		return -EPROTO; /* before it stands, or where nothing is ever said */
	k->last_ns = loop_now_ns(f->l);
	if (k->fd < 0) /* the client takes no more, and the guest will hear of it */
		return mux_consumed(f->mux, channel, stream, b.len);
	int r = buf_put(&k->out, b.p, b.len);
	return r < 0 ? r : pump(k);
}

int forward_end(struct forward *f, uint16_t channel, uint8_t stream, bool reset)
{
	struct link *k = link_of(f, channel);

	if (!k || !k->up)
		return -EPROTO;
	switch (stream) {
	case FRAME_IN: /* a reset: the server wants no more; what comes is not read any more */
		k->in_over = true;
		return pump(k);
	case FRAME_OUT:
		k->out_eof = true;
		if (reset && !k->in_over) { /* the server died: nobody is left to talk to */
			int r = mux_send_reset(f->mux, channel, FRAME_IN);
			if (r < 0 && r != -EPIPE)
				return r;
			k->in_over = true;
		}
		return pump(k); /* what it said before still goes out */
	default:
		if (!k->in_over || !k->out_eof)
			return -EPROTO; /* the end of all before the end of a part */
		k->ended = true;
		mux_close(f->mux, channel);
		return pump(k);
	}
}

int forward_writable(struct forward *f, uint16_t channel)
{
	struct link *k = link_of(f, channel);

	return k && k->up && !k->ended ? pump(k) : 0;
}

void forward_close(struct forward *f)
{
	for (size_t i = 0; f && i < FORWARD_MAX; i++) {
		if (f->links[i].used)
			cut(&f->links[i]);
	}
}

size_t forward_count(const struct forward *f)
{
	size_t n = 0;

	for (size_t i = 0; f && i < FORWARD_MAX; i++)
		n += f->links[i].used;
	return n;
}
