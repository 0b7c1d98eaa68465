/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port.h - a multiplexer on a descriptor on a loop: reads, feeds, writes.
 *
 * Used for the guest channel, and on both ends of a sandbox's client socket.
 */
#ifndef CLOCHE_SUPER_PORT_H
#define CLOCHE_SUPER_PORT_H

#include "event/loop.h"
#include "wire/mux.h"

struct port {
	struct loop *l;
	struct mux *mux;
	int fd; /* owned; -1 once it is over */
	struct loop_fd src;
	bool stalled; /* the owner asked not to read for now */
	bool deaf;    /* the peer takes nothing any more; what it said before is still read */
	/* the end: 0 for an end of file, -EPROTO for a lie, other -errno; called once */
	void (*over)(void *arg, int code);
	void *arg;
};

/* @fd: nonblocking socket; taken, also on failure. Return: 0 or -errno. */
int port_init(struct port *p, struct loop *l, int fd, enum mux_side side, const struct mux_ops *ops,
              void (*over)(void *arg, int code), void *arg) MUST_CHECK;
void port_fini(struct port *p);

/* After anything was sent through p->mux: write what the socket takes, watch for the rest. */
void port_flush(struct port *p);
/* Bytes that wait to be written. */
size_t port_pending(const struct port *p);
/* Stop or go on reading: back-pressure on everything of this port. */
void port_stall(struct port *p, bool stalled);

#endif
