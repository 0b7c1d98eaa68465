/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: whatever comes, in whatever order, nothing passes that is not allowed. What that
 * is, a second and simpler reading of the frame says, with lists of its own: what was opened,
 * which flows there are, how far their bytes have come.
 *
 * The input is a mode byte and steps: frames as they are, frames of which the checksums are
 * made right, segments of flows, frames of the terminator, packets of peers, and the calls
 * that open, close and end.
 */
#include <stdlib.h>

#include "base/ip.h"
#include "lib/netframe.h"
#include "net/gate.h"
#include "policy/egress.h"
#include "wire/netmsg.h"

enum {
	FLOWS = 6,
	HALF = 3,
	OPENS = 8,
	PORTS = 4,
	ADDRS = 8,
	FIN = 1,
	SYN = 2,
	RST = 4,
	ACK = 16,
	URG = 32,
	STEPS = 400,
};

#define MODE_PERMISSIVE 1
#define MODE_SHARED 2
#define SELF_SHARED IP4(10, 87, 0, 16)

/* some of each kind */
static const uint32_t addrs[ADDRS] = {
	IP4(198, 51, 100, 7), IP4(203, 0, 113, 9), NF_SERVICE,          IP4(10, 87, 0, 17),
	IP4(10, 87, 0, 18),   IP4(127, 0, 0, 1),   IP4(192, 168, 1, 1), NF_GATEWAY,
};
static const uint16_t ports[PORTS] = { 443, 22, 25, 53 };

struct model_flow {
	int index; /* the gate's; -1: none */
	uint32_t addr;
	uint16_t port, guest_port;
	uint32_t next; /* the guest's next byte */
	uint32_t down; /* the terminator's */
	bool answered, opened;
};

static struct model {
	bool permissive, shared;
	uint32_t self;
	struct {
		uint32_t addr;
		uint16_t port;
	} opens[OPENS];
	bool peers[ADDRS];
	struct model_flow flows[FLOWS];
} m;

static struct nf f;
static struct gate_out o;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(cond)              \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

static bool closed_to_all(uint32_t a)
{
	unsigned b = a >> 24;

	return b == 0 || b == 10 || b == 127 || b >= 224 || a >> 22 == IP4(100, 64, 0, 0) >> 22 ||
	       a >> 16 == IP4(169, 254, 0, 0) >> 16 || a >> 20 == IP4(172, 16, 0, 0) >> 20 ||
	       a >> 16 == IP4(192, 168, 0, 0) >> 16;
}

static bool opened(uint32_t addr, uint16_t port)
{
	for (size_t i = 0; i < OPENS; i++) {
		if (m.opens[i].port == port && m.opens[i].addr == addr)
			return port != 0;
	}
	return false;
}

static bool peer(uint32_t addr)
{
	for (size_t i = 0; i < ADDRS; i++) {
		if (m.peers[i] && addrs[i] == addr)
			return true;
	}
	return false;
}

static struct model_flow *flow(uint32_t addr, uint16_t port, uint16_t guest_port)
{
	for (size_t i = 0; i < FLOWS; i++) {
		struct model_flow *k = &m.flows[i];

		if (k->index >= 0 && k->addr == addr && k->port == port &&
		    k->guest_port == guest_port)
			return k;
	}
	return NULL;
}

/* Whole, alone, in order of RFC 791; of the guest or for it. */
static void check_ip(const uint8_t *frame, size_t len, bool may_be_padded)
{
	const uint8_t *ip = frame + NF_ETH;

	HOLDS(len >= NF_ETH + NF_IP && len <= 16014);
	HOLDS(nf_g16(frame + 12) == 0x0800 && ip[0] == 0x45 && ip[8] != 0);
	HOLDS(nf_g16(ip + 2) == len - NF_ETH || (may_be_padded && nf_g16(ip + 2) < len - NF_ETH));
	HOLDS((nf_g16(ip + 6) & ~0x4000u) == 0);
	HOLDS(nf_sum(0, ip, NF_IP) == 0xffff);
}

static void check_tcp(const uint8_t *ip, size_t l4_len)
{
	const uint8_t *t = ip + NF_IP;
	size_t head = (size_t)(t[12] >> 4) * 4;

	HOLDS(ip[9] == 6 && l4_len >= 20 && head >= 20 && head <= l4_len);
	HOLDS(nf_g16(t) != 0 && nf_g16(t + 2) != 0);
	HOLDS(!(t[13] & URG) && nf_g16(t + 18) == 0);
	for (size_t i = 20; i < head && t[i] != 0; i += t[i] == 1 ? 1 : t[i + 1]) {
		HOLDS(t[i] == 1 || (i + 1 < head && t[i + 1] >= 2 && i + t[i + 1] <= head));
		HOLDS(t[i] != 2 || t[i + 1] == 4);
	}
}

static void check_to_slirp(void)
{
	const uint8_t *ip = f.b + NF_ETH, *t = ip + NF_IP;

	check_ip(f.b, o.len, false);
	size_t l4_len = o.len - NF_ETH - NF_IP;
	check_tcp(ip, l4_len);
	HOLDS(nf_l4_sum(ip, l4_len) == 0xffff);
	HOLDS(nf_g32(ip + 12) == m.self);
	uint32_t dst = nf_g32(ip + 16), seq = nf_g32(t + 4);
	uint16_t port = (uint16_t)nf_g16(t + 2), guest_port = (uint16_t)nf_g16(t);
	uint32_t payload = (uint32_t)(l4_len - (size_t)(t[12] >> 4) * 4);
	struct model_flow *k = flow(dst, port, guest_port);
	unsigned flags = t[13] & (SYN | ACK | FIN | RST);

	if (flags == SYN) {
		bool service = dst == NF_SERVICE;
		size_t n = 0, half = 0;

		HOLDS(o.syn && payload == 0 && !k && port != 25);
		HOLDS(service || !closed_to_all(dst));
		HOLDS(opened(dst, port) || (m.permissive && !service));
		for (size_t i = 0; i < FLOWS; i++) {
			n += m.flows[i].index >= 0;
			half += m.flows[i].index >= 0 && !m.flows[i].opened;
			if (m.flows[i].index < 0)
				k = &m.flows[i];
		}
		HOLDS(n < FLOWS && half < HALF && k);
		*k = (struct model_flow){ .index = o.flow,
			                  .addr = dst,
			                  .port = port,
			                  .guest_port = guest_port,
			                  .next = seq + 1 };
		return;
	}
	HOLDS(!o.syn && k && k->index == o.flow);
	HOLDS((int32_t)(seq - k->next) <= 0);
	if (flags & RST) {
		HOLDS(!(flags & (SYN | FIN)) && payload == 0);
		return;
	}
	HOLDS(flags == ACK || flags == (ACK | FIN));
	HOLDS(k->answered && (int32_t)(nf_g32(t + 8) - k->down) <= 0);
	k->opened = true;
	/* a terminator with room for all: what it would have now */
	uint32_t end = seq + payload + (flags & FIN);
	if ((int32_t)(end - k->next) > 0)
		k->next = end;
}

static void check_guest(size_t len)
{
	const uint8_t *ip = f.b + NF_ETH;

	switch (o.verdict) {
	case GATE_DROP:
		HOLDS(o.why < NETMSG_DROPS && o.reply_len <= sizeof(o.reply));
		break;
	case GATE_TO_SLIRP:
		check_to_slirp();
		break;
	case GATE_TO_SWITCH:
		check_ip(f.b, o.len, false);
		HOLDS(m.shared && peer(nf_g32(ip + 16)) && nf_g32(ip + 12) == m.self);
		HOLDS(ip[9] == 6 || ip[9] == 17);
		if (ip[9] == 6)
			check_tcp(ip, o.len - NF_ETH - NF_IP);
		break;
	case GATE_IS_DNS:
	case GATE_IS_DHCP:
	case GATE_IS_DATAGRAM: {
		uint32_t dst = nf_g32(ip + 16), src = nf_g32(ip + 12);
		unsigned port = nf_g16(ip + NF_IP + 2);

		check_ip(f.b, len, true);
		HOLDS(ip[9] == 17 && o.payload.p == ip + NF_IP + 8);
		HOLDS(o.payload.len + 8 == nf_g16(ip + NF_IP + 4));
		HOLDS(NF_IP + 8 + o.payload.len == nf_g16(ip + 2));
		if (o.verdict == GATE_IS_DNS)
			HOLDS(dst == NF_GATEWAY && port == 53 && src == m.self);
		else if (o.verdict == GATE_IS_DHCP)
			HOLDS(port == 67 && nf_g16(ip + NF_IP) == 68 &&
			      (dst == NF_GATEWAY || dst == UINT32_MAX));
		else
			HOLDS(m.permissive && src == m.self && port != 25 && port != 0 &&
			      !closed_to_all(dst) && o.addr == dst && o.port == port);
		break;
	}
	case GATE_TO_GUEST:
		abort();
	}
	if (o.reply_len) { /* ours are right, too, and no larger than what they answer */
		HOLDS(memcmp(o.reply, f.b + 6, 6) == 0 && o.verdict == GATE_DROP);
		if (nf_g16(o.reply + 12) == 0x0800) {
			check_ip(o.reply, o.reply_len, false);
			HOLDS(nf_g32(o.reply + 30) == m.self);
		}
	}
}

/* ---- steps -------------------------------------------------------------- */

static struct rd in;

static unsigned byte(void)
{
	return (unsigned)rd_le(&in, 1);
}

static void read_frame(void)
{
	size_t n = (size_t)rd_le(&in, 2) % 1600;

	n = MIN(n, in.left);
	struct span s = rd_take(&in, n);

	f.len = n;
	if (n)
		memcpy(f.b, s.p, n);
}

static void judge_guest(struct gate *g)
{
	/* exactly as long as the frame, so a sanitizer sees one byte too many */
	size_t len = f.len;
	uint8_t *b = malloc(len ? len : 1);

	HOLDS(b);
	memcpy(b, f.b, len);
	gate_judge(g, GATE_GUEST, b, len, &o);
	memcpy(f.b, b, len);
	if (o.payload.len || o.payload.p)
		o.payload.p = f.b + (o.payload.p - b);
	free(b);
	check_guest(len);
}

static void step_frame(struct gate *g, bool fix)
{
	static const uint8_t mac[] = NF_GUEST_MAC, gateway[] = NF_GATEWAY_MAC;

	read_frame();
	if (fix && f.len >= NF_ETH + NF_IP) {
		memcpy(f.b, gateway, 6);
		memcpy(f.b + 6, mac, 6);
		nf16(f.b + 12, 0x0800);
		f.b[NF_ETH] = 0x45;
		nf16(f.b + NF_ETH + 2, (unsigned)(f.len - NF_ETH));
		nf32(f.b + NF_ETH + 12, m.self);
		nf_fix(&f);
	}
	judge_guest(g);
}

static void step_segment(struct gate *g)
{
	unsigned a = byte(), flags = byte(), ack = byte(), payload = byte();
	uint32_t dst = addrs[a % ADDRS];
	uint16_t port = ports[a / ADDRS % PORTS], guest_port = (uint16_t)(1000 + a / 32 % 8);
	const struct model_flow *k = flow(dst, port, guest_port);
	int32_t d = (int32_t)(int16_t)rd_le(&in, 2);

	nf_tcp(&f, m.self, guest_port, dst, port, flags, (k ? k->next : 0) + (uint32_t)d,
	       (k ? k->down : 0) + (uint32_t)(int32_t)(int8_t)ack, payload);
	if (byte() & 1) { /* urgent */
		nf16(f.b + NF_ETH + NF_IP + 18, 2000);
		nf_fix(&f);
	}
	judge_guest(g);
}

/* The terminator: it has taken all that passed, and answers. */
static void step_down(struct gate *g)
{
	static const uint8_t mac[] = NF_GUEST_MAC;
	struct model_flow *k = &m.flows[byte() % FLOWS];
	unsigned flags = byte() & (FIN | RST), payload = byte() % 64;

	if (k->index < 0)
		return;
	if (flags & RST)
		flags = RST;
	if (!k->answered)
		flags = SYN | ACK;
	if (flags & (RST | SYN))
		payload = 0;
	nf_tcp(&f, k->addr, k->port, m.self, k->guest_port, flags | ACK, k->down, k->next, payload);
	nf16(f.b + NF_ETH + NF_IP + 14, 0xffff);
	nf_fix(&f);
	memset(f.b, 0x52, 12);
	gate_judge(g, GATE_TERMINATOR, f.b, f.len, &o);
	HOLDS(o.verdict == GATE_TO_GUEST && o.flow == k->index && o.len == f.len);
	HOLDS(memcmp(f.b, mac, 6) == 0);
	if (flags & RST)
		return;
	k->answered = true;
	k->down += payload + !!(flags & SYN) + !!(flags & FIN);
}

static void step_peer(struct gate *g)
{
	bool fix = byte() & 1;

	read_frame();
	if (f.len < NF_ETH)
		f.len = NF_ETH;
	if (fix && f.len >= NF_ETH + NF_IP) {
		f.b[NF_ETH] = 0x45;
		nf16(f.b + NF_ETH + 2, (unsigned)(f.len - NF_ETH));
		nf32(f.b + NF_ETH + 12, addrs[3 + f.b[NF_ETH + 12] % 2]);
		nf32(f.b + NF_ETH + 16, m.self);
		nf_fix(&f);
	}
	gate_judge(g, GATE_PEER, f.b, f.len, &o);
	if (o.verdict == GATE_DROP)
		return;
	check_ip(f.b, o.len, false);
	const uint8_t *ip = f.b + NF_ETH;
	HOLDS(o.verdict == GATE_TO_GUEST && o.len == f.len && m.shared);
	HOLDS(peer(nf_g32(ip + 12)) && nf_g32(ip + 16) == m.self && (ip[9] == 6 || ip[9] == 17));
}

static void step_open(struct gate *g, bool open)
{
	unsigned a = byte();
	uint32_t addr = addrs[a % ADDRS];
	uint16_t port = ports[a / ADDRS % PORTS];
	size_t n = 0, room = OPENS;

	if (!open) {
		bool all = a & 128;

		gate_close(g, addr, all ? 0 : port);
		for (size_t i = 0; i < OPENS; i++) {
			if (m.opens[i].addr == addr && (all || m.opens[i].port == port))
				m.opens[i].port = 0;
		}
	} else if (!opened(addr, port)) {
		for (size_t i = 0; i < OPENS; i++) {
			n += m.opens[i].port != 0;
			if (!m.opens[i].port)
				room = i;
		}
		HOLDS((gate_open(g, addr, port) == 0) == (n < OPENS));
		if (room < OPENS) {
			m.opens[room].addr = addr;
			m.opens[room].port = port;
		}
	} else {
		HOLDS(gate_open(g, addr, port) == 0);
	}
	n = 0;
	for (size_t i = 0; i < OPENS; i++)
		n += m.opens[i].port != 0;
	HOLDS(gate_opens(g) == n);
}

static void step_gone(struct gate *g)
{
	struct model_flow *k = &m.flows[byte() % FLOWS];

	if (k->index < 0)
		return;
	struct gate_flow_key key = gate_flow_key(g, k->index);
	HOLDS(key.addr == k->addr && key.port == k->port && key.guest_port == k->guest_port);
	gate_flow_gone(g, k->index);
	k->index = -1;
}

static void step(struct gate *g)
{
	size_t n = 0, half = 0, got_half;
	int i;

	switch (byte() % 10) {
	case 0:
		step_frame(g, false);
		break;
	case 1:
		step_frame(g, true);
		break;
	case 2:
	case 3:
		step_segment(g);
		break;
	case 4:
		step_down(g);
		break;
	case 5:
		step_peer(g);
		break;
	case 6:
		step_open(g, true);
		break;
	case 7:
		step_open(g, false);
		break;
	case 8:
		step_gone(g);
		break;
	case 9:
		i = (int)(byte() % ADDRS);
		if (addrs[i] >> 8 == IP4(10, 87, 0, 0) >> 8 && addrs[i] != NF_SERVICE &&
		    addrs[i] != NF_GATEWAY)
			m.peers[i] = !m.peers[i];
		gate_peer(g, addrs[i], m.peers[i]);
		break;
	}
	for (i = 0; i < FLOWS; i++) {
		n += m.flows[i].index >= 0;
		half += m.flows[i].index >= 0 && !m.flows[i].opened;
	}
	HOLDS(gate_flows(g, &got_half) == n && got_half == half);
	while ((i = gate_flow_done(g)) != GATE_NO_FLOW)
		(void)gate_flow_key(g, i); /* one that is there */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct egress *e;

	if (!e)
		e = egress_new(EGRESS_STANDARD);
	in = rd_of(data, size);
	unsigned mode = byte();
	m = (struct model){ .permissive = mode & MODE_PERMISSIVE, .shared = mode & MODE_SHARED };
	m.self = m.shared ? SELF_SHARED : NF_GUEST;
	for (size_t i = 0; i < FLOWS; i++)
		m.flows[i].index = -1;
	const struct gate_config c = { .addr = m.self,
		                       .gateway = NF_GATEWAY,
		                       .service = NF_SERVICE,
		                       .mac = NF_GUEST_MAC,
		                       .gateway_mac = NF_GATEWAY_MAC,
		                       .permissive = m.permissive,
		                       .shared = m.shared,
		                       .closed = e,
		                       .flows_max = FLOWS,
		                       .half_open_max = HALF,
		                       .opens_max = OPENS };
	struct gate *g = gate_new(&c);

	for (int i = 0; i < STEPS && in.left; i++)
		step(g);
	gate_free(g);
	return 0;
}
