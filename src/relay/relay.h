/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h - the only process of a sandbox with INET sockets (docs/network.md).
 *
 * It gets questions and TCP connections of the guest from cloche-net, judges them
 * (judge.h), asks the host's resolvers, dials, and copies. One thread, one loop.
 */
#ifndef CLOCHE_RELAY_RELAY_H
#define CLOCHE_RELAY_RELAY_H

#include "base/util.h"

struct egress;
struct err;
struct resolve;

struct relay_opts {
	/* borrowed: all are open until relay_run() returns */
	int net;     /* SOCK_SEQPACKET to cloche-net (wire/netmsg.h) */
	int control; /* SOCK_SEQPACKET to the monitor (wire/relayctl.h) */
	int keeper;  /* the same to cloche-keeper; -1: the monitor sends those two files */
	int worker;  /* SOCK_SEQPACKET: accepted connections go there; -1: no ports */
	int events;  /* append-only file */
	/* tests: smaller than what is built in; 0: that */
	unsigned judge_ms;
	unsigned dial_ms;
	unsigned udp_idle_ms;
	uint64_t events_max;
};

/*
 * relay_run() - until cloche-net or the monitor is gone.
 * @policy:	borrowed, and changed by the monitor's messages
 * @resolve:	made before the cage was entered; taken
 *
 * Return: 0, or -errno with @err (a peer that lied: -EPROTO).
 */
int relay_run(const struct relay_opts *o, struct egress *policy, struct resolve *resolve,
              struct err *err) MUST_CHECK;

#endif
