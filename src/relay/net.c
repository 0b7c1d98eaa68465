/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.c - the socket to cloche-net. It parses the guest's frames and may be the
 * guest's by now: what does not parse ends the relay, and with it the network.
 */
#include "relay/relay_priv.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

enum { MESSAGES_A_TURN = 64 };

static void watch(struct relay *r)
{
	/* what we cannot say slows down what we hear: the guest's questions make our answers */
	loop_fd_set(r->l, &r->net_src, r->out.b.len > r->out.at ? EPOLLOUT : EPOLLIN);
}

static void flush(struct relay *r)
{
	struct outbox *o = &r->out;

	while (o->b.len - o->at >= 4) {
		struct rd rd = rd_of(o->b.p + o->at, o->b.len - o->at);
		size_t n = (size_t)rd_le(&rd, 4);
		int k = fd_send(r->o->net, rd.p, n, NULL, 0);

		if (k == -EAGAIN)
			break;
		if (k < 0) {
			relay_stop(r, 0, "net"); /* it is gone */
			return;
		}
		o->at += 4 + n;
	}
	buf_consume(&o->b, o->at);
	o->at = 0;
	watch(r);
}

static void send_message(struct relay *r, const struct netmsg *m, bool may_drop)
{
	uint8_t b[4 + NETMSG_BYTES_MAX];
	size_t n = netmsg_put(b + 4, sizeof(b) - 4, m);
	struct wr w = wr_of(b, 4);

	ASSERT(n > 0); /* what we say keeps the limits */
	if (r->out.b.len == 0) {
		int k = fd_send(r->o->net, b + 4, n, NULL, 0);

		if (k == 0)
			return;
		if (k != -EAGAIN) {
			relay_stop(r, 0, "net");
			return;
		}
	}
	if (may_drop)
		return;
	wr_le(&w, n, 4);
	if (r->out.b.len > RELAY_OUT_MAX || buf_put(&r->out.b, b, 4 + n) < 0) {
		log_error("cloche-net takes no messages");
		relay_stop(r, -ENOBUFS, "net");
		return;
	}
	watch(r);
}

void net_send(struct relay *r, const struct netmsg *m)
{
	send_message(r, m, false);
}

void net_send_datagram(struct relay *r, const struct netmsg *m)
{
	send_message(r, m, true);
}

void net_open(void *arg, uint32_t addr, uint16_t port)
{
	net_send(arg, &(struct netmsg){ .type = NETMSG_OPEN, .open = { addr, port } });
}

void net_close(void *arg, uint32_t addr, uint16_t port)
{
	net_send(arg, &(struct netmsg){ .type = NETMSG_CLOSE, .open = { addr, port } });
}

static void on_dropped(struct relay *r, const struct netmsg *m)
{
	static const struct {
		uint8_t n;
		const char *name;
	} protos[] = {
		{ 1, "icmp" }, { 2, "igmp" }, { 6, "tcp" }, { 17, "udp" }, { 58, "icmpv6" }
	};
	struct event e = { .ev = "drop",
		           .verdict = "refused",
		           .reason = netmsg_drop_name(m->dropped.why),
		           .n_addrs = m->dropped.addr ? 1 : 0,
		           .addrs = &m->dropped.addr,
		           .port = m->dropped.port,
		           .count = m->dropped.count };

	for (size_t i = 0; i < ARRAY_LEN(protos); i++) {
		if (protos[i].n == m->dropped.proto)
			e.proto = protos[i].name;
	}
	events_write(r->events, &e);
}

/* Return: 0 or -EPROTO; takes @fd (-1: none) when it is 0. */
static int on_message(struct relay *r, const struct netmsg *m, int fd)
{
	char name[HOST_NAME_BYTES] = "";

	if ((m->type == NETMSG_FLOW) != (fd >= 0))
		return -EPROTO;
	switch (m->type) {
	case NETMSG_QUESTION:
		memcpy(name, m->question.name.p, m->question.name.len);
		lookup_question(r, m->question.id, m->question.qtype, name);
		return 0;
	case NETMSG_FLOW:
		flow_start(r, fd, m->flow.addr, m->flow.port, m->flow.guest_port);
		return 0;
	case NETMSG_DROPPED:
		on_dropped(r, m);
		return 0;
	case NETMSG_DATAGRAM:
		udp_send(r, m->datagram.guest_port, m->datagram.addr, m->datagram.port,
		         m->datagram.payload);
		return 0;
	default:
		return -EPROTO; /* ours to say */
	}
}

static void on_net(void *arg, uint32_t events)
{
	static uint8_t b[NETMSG_BYTES_MAX]; /* one thread, not kept across calls */
	struct relay *r = arg;

	if (events & EPOLLOUT)
		flush(r);
	for (int i = 0; i < MESSAGES_A_TURN && r->out.b.len == 0 && !r->end; i++) {
		struct netmsg m;
		size_t n_fds = 0;
		int fds[1] = { -1 };
		ssize_t k = fd_recv(r->o->net, b, sizeof(b), fds, 1, &n_fds);

		if (k == -EAGAIN)
			return;
		if (k <= 0 && k != -EPROTO) {
			relay_stop(r, 0, "net");
			return;
		}
		AUTO_CLOSE int fd = n_fds ? fds[0] : -1;
		if (k < 0 || netmsg_parse(&m, span_of(b, (size_t)k)) < 0 ||
		    on_message(r, &m, fd) < 0) {
			log_error("cloche-net sent what is no message");
			relay_stop(r, -EPROTO, "net");
			return;
		}
		(void)take_fd(&fd); /* the flow's now */
	}
}

int net_start(struct relay *r)
{
	int k = fd_set_nonblock(r->o->net, true);

	if (k == 0)
		k = loop_fd_add(r->l, &r->net_src, r->o->net, EPOLLIN, on_net, r);
	return k;
}

void net_fini(struct relay *r)
{
	loop_fd_del(r->l, &r->net_src);
	buf_fini(&r->out.b);
}
