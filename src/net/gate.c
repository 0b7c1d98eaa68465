/* SPDX-License-Identifier: Apache-2.0 */
#include "net/gate.h"

#include <errno.h>

#include "base/ip.h"
#include "base/mem.h"
#include "policy/egress.h"
#include "wire/netmsg.h"

enum {
	PORT_DNS = 53,
	PORT_DHCP_SERVER = 67,
	PORT_DHCP_CLIENT = 68,
	PORT_HTTPS = 443,
	PEERS_BYTES = 65536 / 8,
	IP6_BYTES = 40,
	IP6_DST = 24,
};

#define PROBE_ADDR IP4(198, 51, 100, 1)
#define BROADCAST UINT32_MAX

/* docs/network.md, "Addresses": what a sandbox of the shared network may have */
#define PEER_FIRST IP4(10, 87, 0, 16)
#define PEER_LAST IP4(10, 87, 254, 254)

enum flow_state { FLOW_FREE, FLOW_HALF, FLOW_OPEN };

struct flow {
	struct gate_flow_key key;
	uint8_t state;
	bool answered;         /* the terminator's SYN went down */
	bool fin_up, fin_down; /* ... and from which sequence number on there is nothing */
	bool done;             /* in the list of gate_flow_done() */
	int next;              /* of the free list, or of that one */
	uint32_t up_next;      /* the guest's next byte; all before it have passed */
	uint32_t up_edge;      /* ... and the end of the window that it was given */
	uint32_t up_ack;       /* what the guest has acknowledged */
	uint32_t down_next;    /* the same of the terminator */
	uint32_t down_ack;
	uint32_t up_end, down_end; /* behind the FIN */
};

struct open {
	uint32_t addr;
	uint16_t port; /* 0: free */
};

struct gate {
	struct gate_config c;
	struct packet_macs to_guest, to_slirp;
	struct flow *flows;
	int *slots; /* flow + 1, hashed by key, linear; 0: free */
	size_t slots_mask, n_flows, n_half;
	int free_flow, done_flow;
	struct open *opens; /* hashed by address, linear: the ports of one lie together */
	size_t opens_mask, n_opens;
	unsigned probes;
	uint8_t peers[PEERS_BYTES];
};

static size_t pow2_above(size_t n)
{
	size_t p = 16;

	while (p < n)
		p *= 2;
	return p;
}

struct gate *gate_new(const struct gate_config *c)
{
	struct gate *g = xcalloc(1, sizeof(*g));

	g->c = *c;
	if (g->c.flows_max == 0)
		g->c.flows_max = GATE_FLOWS_MAX;
	if (g->c.half_open_max == 0)
		g->c.half_open_max = GATE_HALF_OPEN_MAX;
	if (g->c.opens_max == 0)
		g->c.opens_max = GATE_OPENS_MAX;
	memcpy(g->to_guest.to, c->mac, MAC_BYTES);
	memcpy(g->to_guest.from, c->gateway_mac, MAC_BYTES);
	memcpy(g->to_slirp.to, c->gateway_mac, MAC_BYTES);
	memcpy(g->to_slirp.from, c->mac, MAC_BYTES);
	/* at most half full, so a walk that finds nothing is short */
	g->slots_mask = pow2_above(g->c.flows_max * 2) - 1;
	g->slots = xcalloc(g->slots_mask + 1, sizeof(*g->slots));
	g->flows = xcalloc(g->c.flows_max, sizeof(*g->flows));
	g->opens_mask = pow2_above(g->c.opens_max * 2) - 1;
	g->opens = xcalloc(g->opens_mask + 1, sizeof(*g->opens));
	g->done_flow = GATE_NO_FLOW;
	g->free_flow = GATE_NO_FLOW;
	for (size_t i = g->c.flows_max; i-- > 0;) {
		g->flows[i].next = g->free_flow;
		g->free_flow = (int)i;
	}
	return g;
}

void gate_free(struct gate *g)
{
	if (!g)
		return;
	free(g->flows);
	free(g->slots);
	free(g->opens);
	free(g);
}

/* ---- opened addresses --------------------------------------------------- */

static size_t open_home(const struct gate *g, uint32_t addr)
{
	return (size_t)hash_keyed(g->c.key, &addr, sizeof(addr)) & g->opens_mask;
}

/* The slot of the pair, or the free one where it would go. */
static size_t open_find(const struct gate *g, uint32_t addr, uint16_t port)
{
	size_t i = open_home(g, addr);

	while (g->opens[i].port && (g->opens[i].addr != addr || g->opens[i].port != port))
		i = (i + 1) & g->opens_mask;
	return i;
}

static bool is_open(const struct gate *g, uint32_t addr, uint16_t port)
{
	return g->opens[open_find(g, addr, port)].port != 0;
}

int gate_open(struct gate *g, uint32_t addr, uint16_t port)
{
	ASSERT(port != 0);
	size_t i = open_find(g, addr, port);

	if (g->opens[i].port)
		return 0;
	if (g->n_opens == g->c.opens_max)
		return -ENOSPC;
	g->opens[i] = (struct open){ .addr = addr, .port = port };
	g->n_opens++;
	return 0;
}

/* Free slot @i, and move up what was put behind it because of it: no tombstones. */
static void open_remove(struct gate *g, size_t i)
{
	size_t k = i;

	for (;;) {
		k = (k + 1) & g->opens_mask;
		if (!g->opens[k].port)
			break;
		size_t home = open_home(g, g->opens[k].addr);
		/* does the walk from its home to k pass i? */
		if (((k - home) & g->opens_mask) >= ((k - i) & g->opens_mask)) {
			g->opens[i] = g->opens[k];
			i = k;
		}
	}
	g->opens[i] = (struct open){ 0 };
	g->n_opens--;
}

void gate_close(struct gate *g, uint32_t addr, uint16_t port)
{
	if (port) {
		size_t i = open_find(g, addr, port);

		if (g->opens[i].port)
			open_remove(g, i);
		return;
	}
	for (size_t i = open_home(g, addr); g->opens[i].port;) {
		if (g->opens[i].addr == addr)
			open_remove(g, i); /* another one is at i now, or none */
		else
			i = (i + 1) & g->opens_mask;
	}
}

size_t gate_opens(const struct gate *g)
{
	return g->n_opens;
}

/* ---- peers -------------------------------------------------------------- */

static bool peer_range(uint32_t addr)
{
	return addr >= PEER_FIRST && addr <= PEER_LAST;
}

static bool is_peer(const struct gate *g, uint32_t addr)
{
	unsigned n = addr & 0xffff;

	return peer_range(addr) && (g->peers[n / 8] & 1U << n % 8);
}

void gate_peer(struct gate *g, uint32_t addr, bool there)
{
	unsigned n = addr & 0xffff, bit = 1U << n % 8;

	if (!peer_range(addr) || addr == g->c.addr)
		return;
	g->peers[n / 8] = (uint8_t)(there ? g->peers[n / 8] | bit : g->peers[n / 8] & ~bit);
}

/* ---- flows -------------------------------------------------------------- */

static size_t flow_home(const struct gate *g, const struct gate_flow_key *k)
{
	uint8_t b[8];

	put_be32(b, k->addr);
	put_be16(b + 4, k->port);
	put_be16(b + 6, k->guest_port);
	return (size_t)hash_keyed(g->c.key, b, sizeof(b)) & g->slots_mask;
}

static size_t flow_slot(const struct gate *g, const struct gate_flow_key *k)
{
	size_t i = flow_home(g, k);

	for (; g->slots[i]; i = (i + 1) & g->slots_mask) {
		const struct gate_flow_key *f = &g->flows[g->slots[i] - 1].key;

		if (f->addr == k->addr && f->port == k->port && f->guest_port == k->guest_port)
			break;
	}
	return i;
}

static struct flow *flow_find(const struct gate *g, const struct gate_flow_key *k)
{
	int n = g->slots[flow_slot(g, k)];

	return n ? &g->flows[n - 1] : NULL;
}

static int flow_index(const struct gate *g, const struct flow *f)
{
	return (int)(f - g->flows);
}

static struct flow *flow_at(const struct gate *g, int i)
{
	ASSERT(i >= 0 && (size_t)i < g->c.flows_max && g->flows[i].state != FLOW_FREE);
	return &g->flows[i];
}

/* The caps are checked by the caller. */
static struct flow *flow_new(struct gate *g, const struct gate_flow_key *k)
{
	int i = g->free_flow;

	ASSERT(i != GATE_NO_FLOW);
	struct flow *f = &g->flows[i];
	g->free_flow = f->next;
	*f = (struct flow){ .key = *k, .state = FLOW_HALF, .next = GATE_NO_FLOW };
	g->slots[flow_slot(g, k)] = i + 1;
	g->n_flows++;
	g->n_half++;
	return f;
}

size_t gate_flows(const struct gate *g, size_t *out_half_open)
{
	if (out_half_open)
		*out_half_open = g->n_half;
	return g->n_flows;
}

struct gate_flow_key gate_flow_key(const struct gate *g, int flow)
{
	return flow_at(g, flow)->key;
}

static void slot_remove(struct gate *g, size_t i)
{
	size_t k = i;

	for (;;) {
		k = (k + 1) & g->slots_mask;
		if (!g->slots[k])
			break;
		size_t home = flow_home(g, &g->flows[g->slots[k] - 1].key);
		if (((k - home) & g->slots_mask) >= ((k - i) & g->slots_mask)) {
			g->slots[i] = g->slots[k];
			i = k;
		}
	}
	g->slots[i] = 0;
}

static void done_remove(struct gate *g, int flow)
{
	int *p = &g->done_flow;

	while (*p != flow) {
		ASSERT(*p != GATE_NO_FLOW);
		p = &g->flows[*p].next;
	}
	*p = g->flows[flow].next;
}

void gate_flow_gone(struct gate *g, int flow)
{
	struct flow *f = flow_at(g, flow);

	if (f->done)
		done_remove(g, flow);
	slot_remove(g, flow_slot(g, &f->key));
	if (f->state == FLOW_HALF)
		g->n_half--;
	g->n_flows--;
	*f = (struct flow){ .state = FLOW_FREE, .next = g->free_flow };
	g->free_flow = flow;
}

int gate_flow_done(struct gate *g)
{
	int i = g->done_flow;

	if (i != GATE_NO_FLOW) {
		g->done_flow = g->flows[i].next;
		g->flows[i].next = GATE_NO_FLOW;
		g->flows[i].done = false;
	}
	return i;
}

static void check_done(struct gate *g, struct flow *f)
{
	if (f->done || !f->fin_up || !f->fin_down || f->down_ack != f->up_end ||
	    f->up_ack != f->down_end)
		return;
	f->done = true;
	f->next = g->done_flow;
	g->done_flow = flow_index(g, f);
}

size_t gate_flow_reset_put(const struct gate *g, int flow, uint8_t *dst, size_t cap)
{
	const struct flow *f = flow_at(g, flow);
	struct packet_end from = { g->c.addr, f->key.guest_port },
			  to = { f->key.addr, f->key.port };

	return packet_tcp_put(dst, cap, &g->to_slirp, from, to, f->up_next, f->down_next,
	                      TCP_RST | TCP_ACK);
}

size_t gate_flow_refuse_put(const struct gate *g, int flow, uint8_t *dst, size_t cap)
{
	const struct flow *f = flow_at(g, flow);
	struct packet_end from = { f->key.addr, f->key.port },
			  to = { g->c.addr, f->key.guest_port };

	return packet_tcp_put(dst, cap, &g->to_guest, from, to, f->down_next, f->up_next,
	                      TCP_RST | TCP_ACK);
}

/* ---- refusing ----------------------------------------------------------- */

static void refuse(struct gate_out *out, int why)
{
	out->verdict = GATE_DROP;
	out->why = (uint8_t)why;
	out->flow = GATE_NO_FLOW;
}

static void probe(struct gate *g, const struct gate_out *out)
{
	if (out->addr != PROBE_ADDR)
		return;
	if (out->proto == PROTO_ICMP)
		g->probes |= GATE_PROBE_ICMP;
	if (out->proto == PROTO_UDP && out->port == PORT_DNS)
		g->probes |= GATE_PROBE_UDP_DNS;
	if (out->proto == PROTO_TCP && out->port == PORT_DNS)
		g->probes |= GATE_PROBE_TCP_DNS;
	if (out->proto == PROTO_TCP && out->port == PORT_HTTPS)
		g->probes |= GATE_PROBE_TCP;
}

unsigned gate_probes(const struct gate *g)
{
	return g->probes;
}

/* A refused segment is answered at once, so that nobody waits for a time-out. */
static void refuse_tcp(struct gate *g, const struct packet *p, struct gate_out *out, int why)
{
	refuse(out, why);
	out->reply_len = packet_reset_put(out->reply, sizeof(out->reply), &g->to_guest, p);
}

/* May anything go there? 0, or why not. */
static int judge_end(const struct gate *g, uint32_t addr, uint16_t port)
{
	if (egress_port_closed(port, NULL))
		return NETMSG_DROP_PORT;
	if (addr != g->c.service && egress_addr_closed(g->c.closed, addr))
		return NETMSG_DROP_CLOSED;
	if (addr == g->c.service ? is_open(g, addr, port)
	                         : g->c.permissive || is_open(g, addr, port))
		return 0;
	return NETMSG_DROP_ADDRESS;
}

/* ---- from the guest ----------------------------------------------------- */

static void pass(struct gate_out *out, enum gate_verdict v, const struct packet *p)
{
	out->verdict = v;
	out->len = ETH_BYTES + p->len;
}

static void judge_arp(struct gate *g, const uint8_t *a, size_t len, struct gate_out *out)
{
	static const uint8_t head[] = { 0, 1, 8, 0, MAC_BYTES, 4, 0 }; /* Ethernet, IP */

	if (len < ARP_BYTES || (len > ARP_BYTES && len > ETH_MIN_BYTES - ETH_BYTES) ||
	    memcmp(a, head, sizeof(head)) != 0 || (a[7] != 1 && a[7] != 2)) {
		refuse(out, NETMSG_DROP_MALFORMED);
		return;
	}
	uint32_t sender = get_be32(a + 14), target = get_be32(a + 24);
	/* 0: it asks whether its address is taken (RFC 5227) */
	if (memcmp(a + 8, g->c.mac, MAC_BYTES) != 0 || (sender != g->c.addr && sender != 0)) {
		refuse(out, NETMSG_DROP_SPOOFED);
		return;
	}
	out->addr = target;
	refuse(out, 0);
	/* an announcement, a reply: nothing to be learned here. Its own address is not ours to claim */
	if (a[7] != 1 || target == g->c.addr || target == sender)
		return;
	out->reply_len =
		packet_arp_reply_put(out->reply, sizeof(out->reply), &g->to_guest, target, sender);
}

static void judge_ip6(struct gate *g, const uint8_t *p, size_t len, struct gate_out *out)
{
	static const uint8_t nobody[16] = { 0x20, 1, 0xd, 0xb8, [15] = 1 };

	if (len >= IP6_BYTES && memcmp(p + IP6_DST, nobody, sizeof(nobody)) == 0)
		g->probes |= GATE_PROBE_IPV6;
	refuse(out, NETMSG_DROP_IPV6);
}

static void judge_udp(struct gate *g, struct packet *p, bool bcast, struct gate_out *out)
{
	bool dhcp = p->sport == PORT_DHCP_CLIENT && p->dport == PORT_DHCP_SERVER &&
	            (p->dst == BROADCAST || p->dst == g->c.gateway) &&
	            (p->src == g->c.addr || p->src == 0);

	if (dhcp) {
		pass(out, GATE_IS_DHCP, p);
		out->bcast = bcast;
		return;
	}
	if (bcast || p->src != g->c.addr) {
		/* broadcast: names of a local network and the like; nobody is there */
		refuse(out, p->src != g->c.addr ? NETMSG_DROP_SPOOFED : NETMSG_DROP_UDP);
		return;
	}
	if (p->dst == g->c.gateway && p->dport == PORT_DNS) {
		pass(out, GATE_IS_DNS, p);
		return;
	}
	if (g->c.shared && is_peer(g, p->dst)) {
		pass(out, GATE_TO_SWITCH, p);
		return;
	}
	int why = NETMSG_DROP_UDP;
	if (g->c.shared && peer_range(p->dst))
		why = NETMSG_DROP_PEER;
	else if (g->c.permissive && p->dst != g->c.service)
		why = judge_end(g, p->dst, p->dport);
	if (why == 0 && p->payload_len <= NETMSG_DATAGRAM_MAX) {
		pass(out, GATE_IS_DATAGRAM, p);
		return;
	}
	refuse(out, why ? why : NETMSG_DROP_MALFORMED);
	out->reply_len = packet_refusal_put(out->reply, sizeof(out->reply), &g->to_guest, p);
}

static bool seq_gt(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

static void judge_syn(struct gate *g, struct packet *p, const struct gate_flow_key *k,
                      struct gate_out *out)
{
	int why = judge_end(g, p->dst, p->dport);

	if (why == 0 && g->n_flows == g->c.flows_max)
		why = NETMSG_DROP_FLOWS;
	if (why) {
		refuse_tcp(g, p, out, why);
		return;
	}
	/* room comes as soon as the guest acknowledges those before: the SYN comes again */
	if (g->n_half == g->c.half_open_max) {
		refuse(out, 0);
		return;
	}
	packet_cut_payload(p);
	struct flow *f = flow_new(g, k);
	f->up_next = p->seq + 1;
	f->up_edge = f->up_next;
	pass(out, GATE_TO_SLIRP, p);
	out->flow = flow_index(g, f);
	out->syn = true;
}

/* A segment of a flow that is there: the terminator gets its bytes in order or not at all. */
static void judge_segment(struct gate *g, struct packet *p, struct flow *f, struct gate_out *out)
{
	uint32_t end = p->seq + (uint32_t)p->payload_len;

	refuse(out, 0);
	/* another SYN: the terminator answers the first until it is acknowledged, and one with
	 * options in the middle of a flow would make it forget what it holds */
	if (p->flags & TCP_SYN)
		return;
	if (p->flags & TCP_RST) {
		if (seq_gt(p->seq, f->up_next))
			return;
		pass(out, GATE_TO_SLIRP, p);
		out->flow = flow_index(g, f);
		return;
	}
	if (!f->answered || seq_gt(p->ack, f->down_next))
		return; /* it acknowledges what was not said */
	if (seq_gt(p->seq, f->up_next))
		return; /* a gap */
	if (f->state == FLOW_HALF) {
		/* the terminator opens the flow at exactly this, and we count with it */
		if (p->ack != f->down_next || seq_gt(end, f->up_edge))
			return;
		f->state = FLOW_OPEN;
		g->n_half--;
	}
	if (seq_gt(p->ack, f->up_ack))
		f->up_ack = p->ack;
	/* bytes behind up_next, and room for them: beyond it is a probe, of which nothing is taken */
	int64_t fresh = (int64_t)(int32_t)(p->seq - f->up_next) + (int64_t)p->payload_len;
	int64_t room = (int32_t)(f->up_edge - f->up_next);
	if (MIN(fresh, room) > 0)
		f->up_next += (uint32_t)MIN(fresh, room);
	if ((p->flags & TCP_FIN) && fresh >= 0 && fresh <= room && !f->fin_up) {
		f->fin_up = true;
		f->up_end = ++f->up_next;
	}
	pass(out, GATE_TO_SLIRP, p);
	out->flow = flow_index(g, f);
	check_done(g, f);
}

static void judge_tcp(struct gate *g, struct packet *p, struct gate_out *out)
{
	struct gate_flow_key k = { .addr = p->dst, .port = p->dport, .guest_port = p->sport };

	packet_clear_urgent(p);
	if (g->c.shared && peer_range(p->dst)) {
		if (is_peer(g, p->dst)) {
			pass(out, GATE_TO_SWITCH, p);
		} else {
			refuse_tcp(g, p, out, NETMSG_DROP_PEER);
		}
		return;
	}
	struct flow *f = flow_find(g, &k);
	if (f) {
		judge_segment(g, p, f, out);
		return;
	}
	if ((p->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN) {
		judge_syn(g, p, &k, out);
		return;
	}
	/* of a flow that is gone: common at the end of one, and worth no word */
	refuse_tcp(g, p, out, judge_end(g, p->dst, p->dport));
}

static void judge_guest_ip(struct gate *g, uint8_t *frame, size_t len, struct gate_out *out)
{
	static const uint8_t all[MAC_BYTES] = { 255, 255, 255, 255, 255, 255 };
	bool bcast = memcmp(frame, all, MAC_BYTES) == 0;
	struct packet p;
	int why = packet_ip(&p, frame + ETH_BYTES, len - ETH_BYTES);

	if (why == NETMSG_DROP_MALFORMED) {
		refuse(out, why);
		return;
	}
	if (why) { /* the addresses stand where they should: the log may name them */
		out->proto = frame[ETH_BYTES + 9];
		out->addr = get_be32(frame + ETH_BYTES + 16);
		refuse(out, why);
		return;
	}
	out->proto = p.proto;
	out->addr = p.dst;
	/* multicast and other machines' MACs lead nowhere */
	if (!bcast && memcmp(frame, g->c.gateway_mac, MAC_BYTES) != 0) {
		refuse(out, p.proto == PROTO_UDP ? NETMSG_DROP_UDP : NETMSG_DROP_MALFORMED);
		return;
	}
	if (p.src != g->c.addr && !(p.src == 0 && p.proto == PROTO_UDP && bcast)) {
		refuse(out, NETMSG_DROP_SPOOFED);
		return;
	}
	switch (p.proto) {
	case PROTO_TCP:
		why = bcast ? NETMSG_DROP_MALFORMED : packet_tcp(&p);
		break;
	case PROTO_UDP:
		why = packet_udp(&p);
		break;
	case PROTO_ICMP:
		why = NETMSG_DROP_ICMP;
		break;
	default:
		why = NETMSG_DROP_PROTOCOL;
		break;
	}
	if (why) {
		refuse(out, why);
		return;
	}
	out->port = p.dport;
	out->guest_port = p.sport;
	out->payload = span_of(p.payload, p.payload_len);
	if (p.proto == PROTO_TCP)
		judge_tcp(g, &p, out);
	else
		judge_udp(g, &p, bcast, out);
}

static void judge_guest(struct gate *g, uint8_t *frame, size_t len, struct gate_out *out)
{
	if (len < ETH_BYTES || len > GATE_FRAME_MAX) {
		refuse(out, NETMSG_DROP_MALFORMED);
		return;
	}
	if (memcmp(frame + MAC_BYTES, g->c.mac, MAC_BYTES) != 0) {
		refuse(out, NETMSG_DROP_SPOOFED);
		return;
	}
	switch (get_be16(frame + 2 * (size_t)MAC_BYTES)) {
	case ETHER_IP4:
		judge_guest_ip(g, frame, len, out);
		break;
	case ETHER_ARP:
		judge_arp(g, frame + ETH_BYTES, len - ETH_BYTES, out);
		break;
	case ETHER_IP6:
		judge_ip6(g, frame + ETH_BYTES, len - ETH_BYTES, out);
		break;
	case ETHER_VLAN:
	case ETHER_VLAN_SERVICE:
	case ETHER_VLAN_OLD:
		refuse(out, NETMSG_DROP_VLAN);
		break;
	default:
		refuse(out, NETMSG_DROP_ETHERTYPE);
		break;
	}
	if (out->verdict == GATE_DROP && out->why)
		probe(g, out);
}

/* ---- to the guest ------------------------------------------------------- */

static void judge_terminator(struct gate *g, uint8_t *frame, size_t len, struct gate_out *out)
{
	struct packet p;

	refuse(out, 0);
	if (len < ETH_BYTES || len > GATE_FRAME_MAX ||
	    get_be16(frame + 2 * (size_t)MAC_BYTES) != ETHER_IP4 ||
	    packet_ip(&p, frame + ETH_BYTES, len - ETH_BYTES) != 0 || p.proto != PROTO_TCP ||
	    packet_tcp_header(&p) != 0 || p.dst != g->c.addr)
		return;
	struct gate_flow_key k = { .addr = p.src, .port = p.sport, .guest_port = p.dport };
	struct flow *f = flow_find(g, &k);

	if (!f && !(p.flags & TCP_RST))
		return;
	packet_clear_urgent(&p);
	packet_eth_put(frame, &g->to_guest, ETHER_IP4);
	pass(out, GATE_TO_GUEST, &p);
	out->addr = p.src;
	out->port = p.sport;
	out->guest_port = p.dport;
	out->proto = PROTO_TCP;
	out->rst = p.flags & TCP_RST;
	if (!f)
		return;
	out->flow = flow_index(g, f);
	if (out->rst)
		return;
	uint32_t end =
		p.seq + (uint32_t)p.payload_len + !!(p.flags & TCP_SYN) + !!(p.flags & TCP_FIN);
	if (p.flags & TCP_SYN) {
		f->answered = true;
		f->down_next = end;
		f->up_ack = p.seq;
		f->down_ack = p.ack;
		f->up_edge = p.ack + p.window;
	}
	if (seq_gt(end, f->down_next))
		f->down_next = end;
	if (seq_gt(p.ack, f->down_ack))
		f->down_ack = p.ack;
	if (seq_gt(p.ack + p.window, f->up_edge))
		f->up_edge = p.ack + p.window;
	/* it took more than we counted: a probe's byte, for which there was room after all */
	if (seq_gt(p.ack, f->up_next))
		f->up_next = p.ack;
	if ((p.flags & TCP_FIN) && !f->fin_down) {
		f->fin_down = true;
		f->down_end = end;
	}
	check_done(g, f);
}

/* The other sandbox's gate has seen it, too; we do not rely on that. */
static void judge_peer(struct gate *g, uint8_t *frame, size_t len, struct gate_out *out)
{
	struct packet p;

	refuse(out, NETMSG_DROP_PEER);
	if (!g->c.shared || len < ETH_BYTES || len > GATE_FRAME_MAX)
		return;
	if (packet_ip(&p, frame + ETH_BYTES, len - ETH_BYTES) != 0 || p.len != len - ETH_BYTES)
		return;
	out->proto = p.proto;
	out->addr = p.src;
	if (!is_peer(g, p.src) || p.dst != g->c.addr)
		return;
	if (p.proto == PROTO_TCP ? packet_tcp(&p) != 0
	                         : p.proto != PROTO_UDP || packet_udp(&p) != 0)
		return;
	if (p.proto == PROTO_TCP)
		packet_clear_urgent(&p);
	packet_eth_put(frame, &g->to_guest, ETHER_IP4);
	out->why = 0;
	out->port = p.sport;
	out->guest_port = p.dport;
	pass(out, GATE_TO_GUEST, &p);
}

void gate_judge(struct gate *g, enum gate_from from, uint8_t *frame, size_t len,
                struct gate_out *out)
{
	*out = (struct gate_out){ .verdict = GATE_DROP, .flow = GATE_NO_FLOW };
	switch (from) {
	case GATE_GUEST:
		judge_guest(g, frame, len, out);
		break;
	case GATE_TERMINATOR:
		judge_terminator(g, frame, len, out);
		break;
	case GATE_PEER:
		judge_peer(g, frame, len, out);
		break;
	}
}
