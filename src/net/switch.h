/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switch.h - the shared network: packets from one sandbox's gate to another's.
 *
 * One process for all sandboxes of a user that chose --network shared. A connection
 * on the listening socket is a port (swmsg.h); it has one name and one address, which
 * swmap.h keeps. A packet passes when its source is its port's address and its
 * destination that of another port, and it is whole TCP or UDP; there is no broadcast.
 * A port that does not read loses packets, and holds nobody up.
 *
 * The switch ends when the last port is gone, or when nobody came for a while.
 */
#ifndef CLOCHE_NET_SWITCH_H
#define CLOCHE_NET_SWITCH_H

#include "base/util.h"

enum {
	SWITCH_PORTS_MAX = 256,
	SWITCH_HELLO_MS = 10 * 1000, /* for a connection to say who it is */
	SWITCH_ALONE_MS = 30 * 1000, /* for the first port */
};

struct switch_opts {
	int listen; /* SOCK_SEQPACKET, listening; non-blocking */
	int map;    /* the file of swmap.h, read-write; -1: none */
};

struct swtch;

/* Before the cage: reads the map; a corrupt one is begun again, with a line in the log. */
struct swtch *switch_new(const struct switch_opts *o) MUST_CHECK;
void switch_free(struct swtch *s);
/* In the cage. Return: 0, -errno. */
int switch_run(struct swtch *s);

#endif
