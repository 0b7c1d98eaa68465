/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/pins.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/*
 * The hash of an address is not keyed: 4096 entries in one bucket, the worst that
 * servers can do by choosing addresses, are a search of microseconds.
 */
enum { BUCKETS = 4096 };

/* How many pins hold this address and port open. */
struct opened {
	uint32_t addr;
	uint16_t port;
	uint32_t refs;
	struct opened *next;
};

struct pins {
	size_t n, max;
	const struct pins_ops *ops;
	void *arg;
	struct pin *by_addr[BUCKETS];
	struct opened *opened[BUCKETS];
};

static size_t bucket(uint32_t addr, uint16_t port)
{
	uint64_t k = ((uint64_t)addr << 16 | port) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(k >> 52);
}

struct pins *pins_new(size_t max, const struct pins_ops *ops, void *arg)
{
	ASSERT(max > 0 && max <= PINS_MAX);
	struct pins *p = xcalloc(1, sizeof(*p));
	p->max = max;
	p->ops = ops;
	p->arg = arg;
	return p;
}

void pins_free(struct pins *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct pin *e = p->by_addr[i], *next; e; e = next) {
			next = e->next;
			free(e);
		}
		for (struct opened *e = p->opened[i], *next; e; e = next) {
			next = e->next;
			free(e);
		}
	}
	free(p);
}

uint32_t pins_ttl_s(uint64_t ttl_s)
{
	return (uint32_t)MIN(MAX(ttl_s, (uint64_t)PINS_TTL_MIN_S), (uint64_t)PINS_TTL_MAX_S);
}

static void open_port(struct pins *p, uint32_t addr, uint16_t port)
{
	struct opened **at = &p->opened[bucket(addr, port)];

	for (struct opened *e = *at; e; e = e->next) {
		if (e->addr == addr && e->port == port) {
			e->refs++;
			return;
		}
	}
	struct opened *e = xcalloc(1, sizeof(*e));
	*e = (struct opened){ .addr = addr, .port = port, .refs = 1, .next = *at };
	*at = e;
	p->ops->open(p->arg, addr, port);
}

static void close_port(struct pins *p, uint32_t addr, uint16_t port)
{
	struct opened **at = &p->opened[bucket(addr, port)];

	while (*at && ((*at)->addr != addr || (*at)->port != port))
		at = &(*at)->next;
	ASSERT(*at); /* each port of a pin was opened with it */
	struct opened *e = *at;
	if (--e->refs > 0)
		return;
	*at = e->next;
	free(e);
	p->ops->close(p->arg, addr, port);
}

/* The new ports first: a port that stays is never closed in between. */
static void set_ports(struct pins *p, struct pin *e, const uint16_t *ports, size_t n)
{
	uint16_t old[PINS_PORTS_MAX];
	size_t n_old = e->n_ports;

	ASSERT(n <= PINS_PORTS_MAX);
	memcpy(old, e->ports, sizeof(old));
	for (size_t i = 0; i < n; i++)
		open_port(p, e->addr, ports[i]);
	for (size_t i = 0; i < n_old; i++)
		close_port(p, e->addr, old[i]);
	e->n_ports = (uint16_t)n;
	if (n)
		memcpy(e->ports, ports, n * sizeof(*ports));
}

static void drop(struct pins *p, struct pin **at)
{
	struct pin *e = *at;

	*at = e->next;
	set_ports(p, e, NULL, 0);
	free(e);
	p->n--;
}

/* Make room: what is nearest to its end goes. */
static void evict(struct pins *p)
{
	struct pin **first = NULL;

	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct pin **at = &p->by_addr[i]; *at; at = &(*at)->next) {
			if (!first || (*at)->until_ms < (*first)->until_ms)
				first = at;
		}
	}
	if (first)
		drop(p, first);
}

static struct pin *find(const struct pins *p, uint32_t addr, const char *name)
{
	struct pin *e = p->by_addr[bucket(addr, 0)];

	while (e && (e->addr != addr || strcmp(e->name, name) != 0))
		e = e->next;
	return e;
}

void pins_add(struct pins *p, uint32_t addr, const char *name, const uint16_t *ports,
              size_t n_ports, uint32_t ttl_s, uint64_t now_ms)
{
	uint64_t until_ms = now_ms + ((uint64_t)pins_ttl_s(ttl_s) + PINS_GRACE_S) * 1000;
	struct pin *e = find(p, addr, name);

	if (!e) {
		struct pin **at = &p->by_addr[bucket(addr, 0)];

		if (p->n == p->max)
			evict(p);
		e = xcalloc(1, sizeof(*e));
		e->addr = addr;
		e->until_ms = until_ms;
		size_t len = strnlen(name, HOST_NAME_MAX_BYTES);
		memcpy(e->name, name, len);
		e->next = *at;
		*at = e;
		p->n++;
	}
	e->until_ms = MAX(e->until_ms, until_ms);
	set_ports(p, e, ports, n_ports);
}

const struct pin *pins_find(const struct pins *p, uint32_t addr, const char *name, uint64_t now_ms)
{
	const struct pin *e = find(p, addr, name);

	return e && e->until_ms > now_ms ? e : NULL;
}

const struct pin *pins_next(const struct pins *p, uint32_t addr, const struct pin *prev,
                            uint64_t now_ms)
{
	const struct pin *e = prev ? prev->next : p->by_addr[bucket(addr, 0)];

	while (e && (e->addr != addr || e->until_ms <= now_ms))
		e = e->next;
	return e;
}

void pins_sweep(struct pins *p, uint64_t now_ms)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct pin **at = &p->by_addr[i]; *at;) {
			if ((*at)->until_ms <= now_ms)
				drop(p, at);
			else
				at = &(*at)->next;
		}
	}
}

void pins_refresh(struct pins *p, int (*ports_of)(void *arg, const char *name, uint16_t *out),
                  void *arg)
{
	uint16_t ports[PINS_PORTS_MAX];

	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct pin **at = &p->by_addr[i]; *at;) {
			int n = ports_of(arg, (*at)->name, ports);

			if (n < 0) {
				drop(p, at);
				continue;
			}
			set_ports(p, *at, ports, (size_t)n);
			at = &(*at)->next;
		}
	}
}

size_t pins_count(const struct pins *p)
{
	return p->n;
}
