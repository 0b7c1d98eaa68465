/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.h - which name gave which address, until when, and which ports that opens.
 *
 * Pure: the caller brings the time. An answer pins each of its addresses to its
 * name; a connection may go to an address only while some name is pinned to it,
 * and only under a name that is. The ports that the pins of one address open
 * together are told by ops.open and ops.close, each pair once, so that the gate
 * can be kept in step.
 */
#ifndef CLOCHE_RELAY_PINS_H
#define CLOCHE_RELAY_PINS_H

#include "base/hostname.h"

enum {
	PINS_MAX = 4096,
	PINS_PORTS_MAX = 64, /* of one name; as EGRESS_PORTS_MAX */
	PINS_TTL_MIN_S = 30,
	PINS_TTL_MAX_S = 3600,
	PINS_GRACE_S = 60, /* beyond the TTL: a client connects a little after it asked */
};

struct pin {
	uint32_t addr;
	uint64_t until_ms;
	uint16_t n_ports;
	uint16_t ports[PINS_PORTS_MAX];
	char name[HOST_NAME_BYTES];
	struct pin *next; /* of the same bucket */
};

struct pins_ops {
	void (*open)(void *arg, uint32_t addr, uint16_t port);
	void (*close)(void *arg, uint32_t addr, uint16_t port);
};

struct pins;

/* @max: at most PINS_MAX; beyond it the pin that expires first goes. Aborts without memory. */
struct pins *pins_new(size_t max, const struct pins_ops *ops, void *arg) MUST_CHECK;
/* Tells nothing. */
void pins_free(struct pins *p);

/* The TTL that we use and hand on, for the one that a server sent. */
uint32_t pins_ttl_s(uint64_t ttl_s);

/*
 * pins_add() - @name gave @addr, and opens @ports (egress_ports()).
 * @ttl_s:	from now; clamped as pins_ttl_s(), the grace is added here
 *
 * A pin that is there lives on until the later of both ends, with the new ports.
 */
void pins_add(struct pins *p, uint32_t addr, const char *name, const uint16_t *ports,
              size_t n_ports, uint32_t ttl_s, uint64_t now_ms);

/* The pin of @name to @addr, or with NULL the next one to @addr behind @prev. NULL: none. */
const struct pin *pins_find(const struct pins *p, uint32_t addr, const char *name, uint64_t now_ms);
const struct pin *pins_next(const struct pins *p, uint32_t addr, const struct pin *prev,
                            uint64_t now_ms);

/* Let go what is over. */
void pins_sweep(struct pins *p, uint64_t now_ms);

/*
 * pins_refresh() - the policy has changed.
 * @ports_of:	writes what @name opens now to @out; -1: the name is not allowed any more
 */
void pins_refresh(struct pins *p, int (*ports_of)(void *arg, const char *name, uint16_t *out),
                  void *arg);

size_t pins_count(const struct pins *p);

#endif
