/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slirp.h - the far end of the guest's TCP connections: the adapter of libslirp.
 *
 * libslirp only terminates TCP: what the gate lets pass goes in as frames, and each
 * connection comes out as one end of a stream socketpair. It opens no connection,
 * answers no DNS, DHCP, TFTP, ARP or ICMP, and has IPv6 off.
 *
 * How: every address is its "virtual network", in which it accepts what a guest
 * forward to a unix socket is set for (slirp_add_unix()). Forwards are made for a
 * SYN that the gate let pass. When the guest's ACK completes the handshake libslirp
 * calls socket() and connect() for the forward's path; both are defined in this file
 * (the executable's symbols win over the C library's), make the pair, and hand out
 * its other end. tcpend_self_test() shows that they really are what it calls.
 *
 * The entry of a flow in the gate is freed when libslirp has freed its socket. Of
 * libslirp 4.7.0: it forgets the path's few bytes when a forward is removed, so they
 * stay until there are FORWARDS_MAX; it looks forwards and flows up one by one, hence
 * the caps; MSG_OOB of the relay is never asked for.
 *
 * One per process.
 */
#ifndef CLOCHE_NET_SLIRP_H
#define CLOCHE_NET_SLIRP_H

#include <poll.h>

#include "net/gate.h"

struct err;
struct tcpend;

struct tcpend_config {
	struct gate *gate; /* borrowed */
	uint32_t addr, gateway;
	uint8_t mac[MAC_BYTES];
	uint16_t mtu;
	/* A frame for the guest: judge it (GATE_TERMINATOR) into @out, and send it. */
	void (*down)(void *arg, const void *frame, size_t len, struct gate_out *out);
	/* A connection: @fd, taken, is the end for the relay. */
	void (*connected)(void *arg, const struct gate_flow_key *k, int fd);
	void *arg;
	int64_t (*now_ns)(void); /* NULL: CLOCK_MONOTONIC; tests own theirs */
};

/* Before the cage. Return: 0 or -errno with @err. */
int tcpend_new(struct tcpend **out, const struct tcpend_config *c, struct err *err) MUST_CHECK;
void tcpend_free(struct tcpend *t);

/* A connection through libslirp to our own connect(), and its end. 0, or -ENOSYS with @err. */
int tcpend_self_test(struct tcpend *t, struct err *err) MUST_CHECK;

/* A frame with the verdict GATE_TO_SLIRP. */
void tcpend_input(struct tcpend *t, const uint8_t *frame, const struct gate_out *o);

/* No new connections to @addr, @port (0: all of its ports): forwards that are not in use go. */
void tcpend_forget(struct tcpend *t, uint32_t addr, uint16_t port);

/*
 * tcpend_fill() - what to poll for. At most GATE_FLOWS_MAX entries are appended.
 * @timeout_ms:	lowered to when libslirp wants to be called (-1: never)
 * Return: how many.
 */
size_t tcpend_fill(struct tcpend *t, struct pollfd *v, int *timeout_ms);
/* After poll(), once for each tcpend_fill(). @n 0: nothing is read or written, timers run. */
void tcpend_turn(struct tcpend *t, const struct pollfd *v, size_t n);

/* How many connections libslirp itself has: as many as the gate has flows. For tests; slow. */
size_t tcpend_count(struct tcpend *t);

#endif
