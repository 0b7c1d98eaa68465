/* SPDX-License-Identifier: Apache-2.0 */
#include "net/packet.h"

#include "wire/netmsg.h"

enum {
	IP_TTL = 64,
	IP_RESERVED_OR_MORE = 0xa000, /* everything of the flags but "do not fragment" */
	IP_OFFSET = 0x1fff,
	PSEUDO_BYTES = 12,
	TCP_OPTIONS_MAX = 40,
	OPT_END = 0,
	OPT_NOP = 1,
	OPT_MSS = 2,
	OPT_MSS_BYTES = 4,
	ICMP_UNREACHABLE = 3,
	ICMP_PROHIBITED = 13,
};

/* Eight bytes at a time, the carries counted apart: the compiler makes vectors of it. */
static uint64_t sum_add(uint64_t sum, const uint8_t *p, size_t n)
{
	uint64_t low = 0, high = 0, tail = 0;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		uint64_t v;

		memcpy(&v, p + i, 8);
		low += v & 0xffffffff;
		high += v >> 32;
	}
	memcpy(&tail, p + i, n - i); /* zeros behind the last byte, as RFC 1071 pads */
	low += (tail & 0xffffffff) + (tail >> 32);
	/* at most 2^32 adds of 32 bits each: no packet is that long */
	return sum + (low & 0xffffffff) + (low >> 32) + (high & 0xffffffff) + (high >> 32);
}

/* The sum is the same in either byte order (RFC 1071 2 B): taken native, turned at the end. */
static uint16_t sum_fold(uint64_t sum)
{
	uint8_t b[2];

	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	uint16_t v = (uint16_t)sum;
	memcpy(b, &v, 2);
	return get_be16(b);
}

uint16_t packet_sum(const void *p, size_t n)
{
	return sum_fold(sum_add(0, p, n));
}

/* Sum of the pseudo header and all of the transport layer: 0xffff when the checksum is right. */
static uint16_t l4_sum(const struct packet *p)
{
	uint8_t h[PSEUDO_BYTES];

	put_be32(h, p->src);
	put_be32(h + 4, p->dst);
	put_be16(h + 8, p->proto);
	put_be16(h + 10, (unsigned)p->l4_len);
	return sum_fold(sum_add(sum_add(0, h, sizeof(h)), p->l4, p->l4_len));
}

int packet_ip(struct packet *out, uint8_t *p, size_t len)
{
	struct packet k = { .ip = p };

	if (len < IP4_BYTES || p[0] >> 4 != 4 || (p[0] & 15) < 5)
		return NETMSG_DROP_MALFORMED;
	if ((p[0] & 15) != 5)
		return NETMSG_DROP_OPTIONS;
	k.len = get_be16(p + 2);
	if (k.len < IP4_BYTES || k.len > len || (len > k.len && len > ETH_MIN_BYTES - ETH_BYTES))
		return NETMSG_DROP_MALFORMED;
	if (packet_sum(p, IP4_BYTES) != 0xffff)
		return NETMSG_DROP_MALFORMED;
	unsigned frag = get_be16(p + 6);
	if (frag & (IP_RESERVED_OR_MORE | IP_OFFSET))
		return NETMSG_DROP_FRAGMENT;
	if (p[8] == 0)
		return NETMSG_DROP_MALFORMED; /* out of time to live before it began */
	k.proto = p[9];
	k.src = get_be32(p + 12);
	k.dst = get_be32(p + 16);
	k.l4 = p + IP4_BYTES;
	k.l4_len = k.len - IP4_BYTES;
	*out = k;
	return 0;
}

/* Every option whole; MSS, the only one that a terminator of ours reads, of its one length. */
static bool tcp_options_ok(const uint8_t *p, size_t n)
{
	while (n) {
		if (*p == OPT_END)
			return true;
		if (*p == OPT_NOP) {
			p++;
			n--;
			continue;
		}
		if (n < 2 || p[1] < 2 || p[1] > n)
			return false;
		if (*p == OPT_MSS && p[1] != OPT_MSS_BYTES)
			return false;
		n -= p[1];
		p += p[1];
	}
	return true;
}

static bool tcp_flags_ok(unsigned f)
{
	switch (f & (TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST)) {
	case TCP_SYN:
	case TCP_SYN | TCP_ACK:
	case TCP_ACK:
	case TCP_ACK | TCP_FIN:
	case TCP_RST:
	case TCP_RST | TCP_ACK:
		return true;
	default:
		return false;
	}
}

int packet_tcp_header(struct packet *p)
{
	const uint8_t *t = p->l4;

	if (p->proto != PROTO_TCP || p->l4_len < TCP_BYTES)
		return NETMSG_DROP_MALFORMED;
	size_t header = (size_t)(t[12] >> 4) * 4;
	/* bits 4 to 6 of the byte are reserved; the lowest belongs to ECN (RFC 3540) */
	if (header < TCP_BYTES || header > p->l4_len || (t[12] & 0x0e) != 0)
		return NETMSG_DROP_MALFORMED;
	p->sport = get_be16(t);
	p->dport = get_be16(t + 2);
	p->seq = get_be32(t + 4);
	p->ack = get_be32(t + 8);
	p->flags = t[13];
	p->window = get_be16(t + 14);
	p->urgent = get_be16(t + 18);
	p->payload = p->l4 + header;
	p->payload_len = p->l4_len - header;
	if (p->sport == 0 || p->dport == 0 || !tcp_flags_ok(p->flags))
		return NETMSG_DROP_MALFORMED;
	if ((p->flags & TCP_RST) && p->payload_len)
		return NETMSG_DROP_MALFORMED; /* allowed to be a text (RFC 1122 4.2.2.12); nobody does */
	return tcp_options_ok(t + TCP_BYTES, header - TCP_BYTES) ? 0 : NETMSG_DROP_MALFORMED;
}

int packet_tcp(struct packet *p)
{
	int r = packet_tcp_header(p);

	return r == 0 && l4_sum(p) != 0xffff ? NETMSG_DROP_MALFORMED : r;
}

int packet_udp(struct packet *p)
{
	const uint8_t *u = p->l4;

	if (p->proto != PROTO_UDP || p->l4_len < UDP_BYTES || get_be16(u + 4) != p->l4_len)
		return NETMSG_DROP_MALFORMED;
	p->sport = get_be16(u);
	p->dport = get_be16(u + 2);
	p->payload = p->l4 + UDP_BYTES;
	p->payload_len = p->l4_len - UDP_BYTES;
	if (p->sport == 0 || p->dport == 0)
		return NETMSG_DROP_MALFORMED;
	/* 0: the sender made none */
	if (get_be16(u + 6) != 0 && l4_sum(p) != 0xffff)
		return NETMSG_DROP_MALFORMED;
	return 0;
}

/* Put @v at a 16-bit word of the segment, and repair the checksum: RFC 1624, equation 3. */
static void tcp_put_word(struct packet *p, size_t at, uint16_t v)
{
	uint16_t old = get_be16(p->l4 + at);
	uint32_t sum = (uint16_t)~get_be16(p->l4 + 16);

	sum += (uint16_t)~old;
	sum += v;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	put_be16(p->l4 + at, v);
	put_be16(p->l4 + 16, (uint16_t)~sum);
}

void packet_clear_urgent(struct packet *p)
{
	if (!(p->flags & TCP_URG) && p->urgent == 0)
		return;
	p->flags &= (uint8_t)~TCP_URG;
	tcp_put_word(p, 12, (uint16_t)(get_be16(p->l4 + 12) & ~(unsigned)TCP_URG));
	tcp_put_word(p, 18, 0);
	p->urgent = 0;
}

static void ip_sum_put(uint8_t *ip)
{
	put_be16(ip + 10, 0);
	put_be16(ip + 10, (uint16_t)~packet_sum(ip, IP4_BYTES));
}

/* @at: of the checksum below @p->l4. */
static void l4_sum_put(struct packet *p, size_t at)
{
	put_be16(p->l4 + at, 0);
	put_be16(p->l4 + at, (uint16_t)~l4_sum(p));
}

void packet_cut_payload(struct packet *p)
{
	if (p->payload_len == 0)
		return;
	p->len -= p->payload_len;
	p->l4_len -= p->payload_len;
	p->payload_len = 0;
	put_be16(p->ip + 2, (unsigned)p->len);
	ip_sum_put(p->ip);
	l4_sum_put(p, 16);
}

/* ---- packets of our own ------------------------------------------------- */

void packet_eth_put(uint8_t *dst, const struct packet_macs *m, unsigned type)
{
	memcpy(dst, m->to, MAC_BYTES);
	memcpy(dst + MAC_BYTES, m->from, MAC_BYTES);
	put_be16(dst + 2 * (size_t)MAC_BYTES, type);
}

/* Frame and IP header; the packet's transport part of @l4_len bytes is the caller's to fill. */
static bool ip_put(struct packet *out, uint8_t *dst, size_t cap, const struct packet_macs *m,
                   unsigned proto, uint32_t src, uint32_t to, size_t l4_len)
{
	uint8_t *ip = dst + ETH_BYTES;

	if (l4_len > UINT16_MAX - IP4_BYTES || cap < ETH_BYTES + IP4_BYTES + l4_len)
		return false;
	packet_eth_put(dst, m, ETHER_IP4);
	memset(ip, 0, IP4_BYTES);
	ip[0] = 0x45;
	put_be16(ip + 2, (unsigned)(IP4_BYTES + l4_len));
	put_be16(ip + 6, 0x4000); /* whole, so the id may be 0 (RFC 6864) */
	ip[8] = IP_TTL;
	ip[9] = (uint8_t)proto;
	put_be32(ip + 12, src);
	put_be32(ip + 16, to);
	ip_sum_put(ip);
	*out = (struct packet){ .ip = ip,
		                .len = IP4_BYTES + l4_len,
		                .proto = (uint8_t)proto,
		                .src = src,
		                .dst = to,
		                .l4 = ip + IP4_BYTES,
		                .l4_len = l4_len };
	return true;
}

size_t packet_udp_put(uint8_t *dst, size_t cap, const struct packet_macs *m, struct packet_end from,
                      struct packet_end to, struct span payload)
{
	struct packet p;

	if (payload.len > UINT16_MAX - IP4_BYTES - UDP_BYTES ||
	    !ip_put(&p, dst, cap, m, PROTO_UDP, from.addr, to.addr, UDP_BYTES + payload.len))
		return 0;
	put_be16(p.l4, from.port);
	put_be16(p.l4 + 2, to.port);
	put_be16(p.l4 + 4, (unsigned)p.l4_len);
	if (payload.len)
		memcpy(p.l4 + UDP_BYTES, payload.p, payload.len);
	l4_sum_put(&p, 6);
	if (get_be16(p.l4 + 6) == 0)
		put_be16(p.l4 + 6, 0xffff); /* 0 would say "none" (RFC 768) */
	return ETH_BYTES + p.len;
}

size_t packet_tcp_put(uint8_t *dst, size_t cap, const struct packet_macs *m, struct packet_end from,
                      struct packet_end to, uint32_t seq, uint32_t ack, unsigned flags)
{
	struct packet p;

	if (!ip_put(&p, dst, cap, m, PROTO_TCP, from.addr, to.addr, TCP_BYTES))
		return 0;
	memset(p.l4, 0, TCP_BYTES);
	put_be16(p.l4, from.port);
	put_be16(p.l4 + 2, to.port);
	put_be32(p.l4 + 4, seq);
	put_be32(p.l4 + 8, ack);
	p.l4[12] = (TCP_BYTES / 4) << 4;
	p.l4[13] = (uint8_t)flags;
	l4_sum_put(&p, 16);
	return ETH_BYTES + p.len;
}

size_t packet_reset_put(uint8_t *dst, size_t cap, const struct packet_macs *m,
                        const struct packet *p)
{
	struct packet_end from = { p->dst, p->dport }, to = { p->src, p->sport };
	uint32_t end =
		p->seq + (uint32_t)p->payload_len + !!(p->flags & TCP_SYN) + !!(p->flags & TCP_FIN);

	if (p->flags & TCP_RST)
		return 0;
	if (p->flags & TCP_ACK)
		return packet_tcp_put(dst, cap, m, from, to, p->ack, 0, TCP_RST);
	return packet_tcp_put(dst, cap, m, from, to, 0, end, TCP_RST | TCP_ACK);
}

size_t packet_refusal_put(uint8_t *dst, size_t cap, const struct packet_macs *m,
                          const struct packet *p)
{
	size_t quoted = MIN(p->len, (size_t)IP4_BYTES + 8); /* RFC 792: the header and 64 bits */
	struct packet k;

	if (!ip_put(&k, dst, cap, m, PROTO_ICMP, p->dst, p->src, ICMP_BYTES + quoted))
		return 0;
	memset(k.l4, 0, ICMP_BYTES);
	k.l4[0] = ICMP_UNREACHABLE;
	k.l4[1] = ICMP_PROHIBITED;
	memcpy(k.l4 + ICMP_BYTES, p->ip, quoted);
	put_be16(k.l4 + 2, (uint16_t)~packet_sum(k.l4, k.l4_len));
	return ETH_BYTES + k.len;
}

size_t packet_arp_reply_put(uint8_t *dst, size_t cap, const struct packet_macs *m, uint32_t addr,
                            uint32_t to_addr)
{
	static const uint8_t head[] = { 0, 1, 8, 0, MAC_BYTES, 4, 0, 2 }; /* Ethernet, IP, reply */
	uint8_t *a = dst + ETH_BYTES;

	if (cap < ETH_BYTES + ARP_BYTES)
		return 0;
	packet_eth_put(dst, m, ETHER_ARP);
	memcpy(a, head, sizeof(head));
	memcpy(a + 8, m->from, MAC_BYTES);
	put_be32(a + 14, addr);
	memcpy(a + 18, m->to, MAC_BYTES);
	put_be32(a + 24, to_addr);
	return ETH_BYTES + ARP_BYTES;
}
