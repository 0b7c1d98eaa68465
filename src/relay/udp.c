/* SPDX-License-Identifier: Apache-2.0 */
/*
 * udp.c - the guest's datagrams, under PERMISSIVE only.
 *
 * Each (port of the guest, far end) has a connected socket of its own, so that the
 * kernel lets only that far end answer. A datagram that cannot be sent or taken at
 * once is lost, as datagrams are.
 */
#include "relay/relay_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

enum { DATAGRAMS_A_TURN = 16 };

struct udp_flow {
	struct relay *r;
	uint16_t guest_port, port;
	uint32_t addr;
	int fd;
	struct loop_fd src;
	uint64_t used_ms; /* the last datagram of either direction */
	uint64_t bytes_out, bytes_in;
	struct udp_flow *next;
};

static struct event event_of(const char *ev, uint16_t guest_port, const uint32_t *addr,
                             uint16_t port)
{
	return (struct event){ .ev = ev,
		               .proto = "udp",
		               .n_addrs = 1,
		               .addrs = addr,
		               .port = port,
		               .guest_port = guest_port };
}

static void drop(struct udp_flow **at, const char *reason)
{
	struct udp_flow *u = *at;
	struct event e = event_of("close", u->guest_port, &u->addr, u->port);

	e.reason = reason;
	e.has_bytes = true;
	e.bytes_out = u->bytes_out;
	e.bytes_in = u->bytes_in;
	events_write(u->r->events, &e);
	loop_fd_del(u->r->l, &u->src);
	auto_close_(&u->fd);
	u->r->n_udp--;
	*at = u->next;
	free(u);
}

static void on_readable(void *arg, uint32_t events UNUSED)
{
	static uint8_t b[NETMSG_DATAGRAM_MAX + 1];
	struct udp_flow *u = arg;

	for (int i = 0; i < DATAGRAMS_A_TURN; i++) {
		ssize_t k = recv(u->fd, b, sizeof(b), MSG_DONTWAIT | MSG_TRUNC);

		/* an error is what ICMP said about an earlier one: it is read away with it */
		if (k < 0)
			return;
		if ((size_t)k > NETMSG_DATAGRAM_MAX)
			continue; /* larger than our link */
		struct netmsg m = { .type = NETMSG_DATAGRAM,
			            .datagram = { u->guest_port, u->addr, u->port,
			                          span_of(b, (size_t)k) } };
		u->used_ms = relay_now_ms(u->r);
		u->bytes_in += (uint64_t)k;
		net_send_datagram(u->r, &m);
	}
}

static void make_room(struct relay *r)
{
	struct udp_flow **oldest = &r->udp;

	if (r->n_udp < RELAY_UDP_MAX)
		return;
	for (struct udp_flow **at = &r->udp; *at; at = &(*at)->next) {
		if ((*at)->used_ms < (*oldest)->used_ms)
			oldest = at;
	}
	drop(oldest, "limit");
}

static struct udp_flow *start(struct relay *r, uint16_t guest_port, uint32_t addr, uint16_t port)
{
	struct judge_in in = { .policy = r->policy, .pins = r->pins, .addr = addr, .port = port };
	struct event e = event_of("udp", guest_port, &addr, port);
	const char *detail;
	enum why why = judge_datagram(&in, &detail);
	AUTO_CLOSE int fd = -1;

	e.verdict = "refused";
	if (why == WHY_NONE) {
		make_room(r);
		fd = dial(r->policy, SOCK_DGRAM, addr, port, &why, &detail);
	}
	if (why != WHY_NONE) {
		e.reason = why_name(why);
		e.detail = detail;
		events_write(r->events, &e);
		return NULL;
	}
	struct udp_flow *u = xcalloc(1, sizeof(*u));
	*u = (struct udp_flow){ .r = r,
		                .guest_port = guest_port,
		                .addr = addr,
		                .port = port,
		                .fd = -1,
		                .src = { .fd = -1 } };
	if (fd < 0 || loop_fd_add(r->l, &u->src, fd, EPOLLIN, on_readable, u) < 0) {
		free(u);
		return NULL; /* no route, or no descriptors: lost */
	}
	const struct pin *pin = pins_next(r->pins, addr, NULL, relay_now_ms(r));
	e.verdict = "allowed";
	e.name = pin ? pin->name : NULL;
	events_write(r->events, &e);
	u->fd = take_fd(&fd);
	u->next = r->udp;
	r->udp = u;
	r->n_udp++;
	return u;
}

void udp_send(struct relay *r, uint16_t guest_port, uint32_t addr, uint16_t port,
              struct span payload)
{
	struct udp_flow *u = r->udp;

	while (u && (u->guest_port != guest_port || u->addr != addr || u->port != port))
		u = u->next;
	if (!u)
		u = start(r, guest_port, addr, port);
	if (!u)
		return;
	u->used_ms = relay_now_ms(r);
	/* the first try may report what ICMP said about an earlier datagram */
	for (int i = 0; i < 2; i++) {
		if (send(u->fd, payload.p, payload.len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
			u->bytes_out += payload.len;
			return;
		}
		if (errno != ECONNREFUSED)
			return;
	}
}

void udp_sweep(struct relay *r, uint64_t now_ms)
{
	unsigned idle_ms = r->o->udp_idle_ms ? r->o->udp_idle_ms : RELAY_UDP_IDLE_MS;

	for (struct udp_flow **at = &r->udp; *at;) {
		if (now_ms - (*at)->used_ms >= idle_ms)
			drop(at, "idle");
		else
			at = &(*at)->next;
	}
}

void udp_fini(struct relay *r)
{
	while (r->udp)
		drop(&r->udp, "end");
}
