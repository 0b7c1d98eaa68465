/* SPDX-License-Identifier: Apache-2.0 */
#include "net/drops.h"

#define SECOND_NS UINT64_C(1000000000)

void drops_add(struct drops *d, uint8_t why, uint8_t proto, uint32_t addr, uint16_t port)
{
	struct drops_kind *room = NULL;

	ASSERT(netmsg_drop_name(why));
	d->total++;
	for (size_t i = 0; i < DROPS_KINDS_MAX; i++) {
		struct drops_kind *k = &d->kinds[i];

		if (k->why == why && k->proto == proto && k->addr == addr && k->port == port) {
			if (k->count < UINT32_MAX)
				k->count++;
			return;
		}
		/* a free entry, else the one that was silent for longest */
		if (k->count == 0 && (!room || k->said_ns < room->said_ns))
			room = k;
	}
	if (!room) {
		room = &d->rest[why];
		room->why = why;
		if (room->count < UINT32_MAX)
			room->count++;
		return;
	}
	*room = (struct drops_kind){
		.why = why, .proto = proto, .addr = addr, .port = port, .count = 1
	};
}

static uint64_t due_ns(const struct drops_kind *k)
{
	return k->said_ns ? k->said_ns + SECOND_NS : 0;
}

/* The entry that has waited for longest. */
static const struct drops_kind *first_due(const struct drops *d)
{
	const struct drops_kind *best = NULL;

	for (size_t i = 0; i < DROPS_KINDS_MAX + NETMSG_DROPS; i++) {
		const struct drops_kind *k =
			i < DROPS_KINDS_MAX ? &d->kinds[i] : &d->rest[i - DROPS_KINDS_MAX];

		if (k->count && (!best || due_ns(k) < due_ns(best)))
			best = k;
	}
	return best;
}

bool drops_take(struct drops *d, uint64_t now_ns, struct netmsg *out)
{
	struct drops_kind *k = (struct drops_kind *)(uintptr_t)first_due(d);

	if (!k || due_ns(k) > now_ns)
		return false;
	if (now_ns - d->second_ns >= SECOND_NS) {
		d->second_ns = now_ns;
		d->said = 0;
	}
	if (d->said == DROPS_PER_S)
		return false;
	d->said++;
	*out = (struct netmsg){ .type = NETMSG_DROPPED,
		                .dropped = { .why = k->why,
		                             .proto = k->proto,
		                             .addr = k->addr,
		                             .port = k->port,
		                             .count = k->count } };
	k->count = 0;
	k->said_ns = MAX(now_ns, UINT64_C(1));
	return true;
}

int drops_wait_ms(const struct drops *d, uint64_t now_ns)
{
	const struct drops_kind *k = first_due(d);

	if (!k)
		return -1;
	uint64_t at = due_ns(k);
	if (d->said == DROPS_PER_S && now_ns - d->second_ns < SECOND_NS)
		at = MAX(at, d->second_ns + SECOND_NS);
	return at <= now_ns ? 0 : (int)((at - now_ns) / 1000000 + 1);
}
