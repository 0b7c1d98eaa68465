/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drops.h - what the gate refused, gathered into few messages.
 *
 * Pure. Refusals of one kind (reason, protocol, address, port) are one entry with
 * a count; the first of a kind is said at once, more of it at most once a second,
 * all together at most DROPS_PER_S messages a second. When there are more kinds
 * than entries, further ones are counted under their reason alone.
 */
#ifndef CLOCHE_NET_DROPS_H
#define CLOCHE_NET_DROPS_H

#include "base/util.h"
#include "wire/netmsg.h"

enum { DROPS_KINDS_MAX = 64, DROPS_PER_S = 20 };

struct drops_kind {
	uint8_t why, proto;
	uint16_t port;
	uint32_t addr, count; /* count 0: said; kept to know when to say more */
	uint64_t said_ns;     /* 0: never */
};

/* Zero-initialised is empty. */
struct drops {
	struct drops_kind kinds[DROPS_KINDS_MAX];
	struct drops_kind rest[NETMSG_DROPS]; /* by reason */
	uint64_t total;
	uint64_t second_ns; /* when the present second of the limit began */
	unsigned said;      /* in it */
};

/* Count one refusal. @why is a netmsg_drop. */
void drops_add(struct drops *d, uint8_t why, uint8_t proto, uint32_t addr, uint16_t port);

/* The next message that may be sent now. False: none, for now. */
bool drops_take(struct drops *d, uint64_t now_ns, struct netmsg *out);

/* Milliseconds until drops_take() has one; -1: nothing waits. */
int drops_wait_ms(const struct drops *d, uint64_t now_ns);

#endif
