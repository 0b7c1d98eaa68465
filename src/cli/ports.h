/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports.h - ports of the guest on the user's machine.
 *
 * The CLI binds and listens before anything is started, so that a port in use is
 * an error at once. Published ports stand on an address of the sandbox's own in
 * 127.64.0.0/10: cookies of http://localhost are sent to every port of it, and two
 * sandboxes may want the same number. Callbacks must be on localhost, where a
 * login's redirect leads.
 */
#ifndef CLOCHE_CLI_PORTS_H
#define CLOCHE_CLI_PORTS_H

#include "base/mem.h"
#include "cli/netopts.h"

enum { PORTS_TURNS = 16, PORTS_CALLBACK_S = 5 * 60 };

/* The sockets behind a net_spec's ports. */
struct ports {
	struct net_port v[NET_PORTS_MAX];
	uint16_t host[NET_PORTS_MAX]; /* of each */
	size_t n;
	uint32_t address; /* of the published ones; 0: localhost */
};

/* The @turn-th address of sandbox @id; pure. Never ends in .0 or .255. */
uint32_t ports_address(const char *id, unsigned turn);

/*
 * ports_open() - bind and listen for everything in @o.
 * Return: 0 (also for nothing), or -errno with @err (hint: what to do) and nothing open.
 */
int ports_open(struct ports *p, const struct netopts *o, const char *id,
               struct err *err) MUST_CHECK;
void ports_close(struct ports *p);

/* One callback on localhost; the entry's sockets are the caller's. */
int ports_open_callback(struct net_port *out, uint16_t port, struct err *err) MUST_CHECK;

/* Lines for the banner: where each port is. 0 or -ENOMEM. */
int ports_put(const struct ports *p, struct buf *out) MUST_CHECK;

#endif
