/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packet.h - Ethernet, ARP, IPv4, ICMP, TCP and UDP as bytes: strict parsing, and
 * the few packets that we make ourselves.
 *
 * Pure. RFC 791, 792, 793, 768, 826. A packet is believed only after its parser
 * answered 0, and then checksums, lengths and options are right, too. Numbers are
 * in host byte order; pointers borrow from the input. Parsers take bytes that may
 * be written to, because the gate repairs what it passes on in place.
 */
#ifndef CLOCHE_NET_PACKET_H
#define CLOCHE_NET_PACKET_H

#include "base/span.h"

enum {
	MAC_BYTES = 6,
	ETH_BYTES = 14,
	ETH_MIN_BYTES = 60, /* shorter frames may be padded up to here */
	IP4_BYTES = 20,
	TCP_BYTES = 20,
	UDP_BYTES = 8,
	ARP_BYTES = 28,
	ICMP_BYTES = 8,

	ETHER_IP4 = 0x0800,
	ETHER_ARP = 0x0806,
	ETHER_VLAN = 0x8100,
	ETHER_VLAN_SERVICE = 0x88a8,
	ETHER_VLAN_OLD = 0x9100,
	ETHER_IP6 = 0x86dd,

	PROTO_ICMP = 1,
	PROTO_TCP = 6,
	PROTO_UDP = 17,

	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_PSH = 0x08,
	TCP_ACK = 0x10,
	TCP_URG = 0x20,
};

static inline uint16_t get_be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)get_be16(p) << 16 | get_be16(p + 2);
}

static inline void put_be16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static inline void put_be32(uint8_t *p, uint32_t v)
{
	put_be16(p, v >> 16);
	put_be16(p + 2, v & 0xffff);
}

struct packet {
	uint8_t *ip; /* the IP header */
	size_t len;  /* its total length: header and payload, no padding */
	uint8_t proto;
	uint32_t src, dst;
	uint8_t *l4; /* what follows the IP header */
	size_t l4_len;
	/* TCP and UDP */
	uint16_t sport, dport;
	uint8_t *payload;
	size_t payload_len;
	/* TCP */
	uint8_t flags;
	uint16_t window, urgent;
	uint32_t seq, ack;
};

/* The ones' complement sum of RFC 1071 over @n bytes, folded to 16 bits; not inverted. */
uint16_t packet_sum(const void *p, size_t n);

/*
 * packet_ip() - an IPv4 header and nothing but its header.
 * @len:	bytes at @p; more than the header's total length is Ethernet padding,
 *		which only frames of at most ETH_MIN_BYTES may have
 *
 * Return: 0, or why not: NETMSG_DROP_MALFORMED, _OPTIONS, _FRAGMENT (also the reserved bit).
 */
int packet_ip(struct packet *out, uint8_t *p, size_t len) MUST_CHECK;

/*
 * The rest of a packet that packet_ip() accepted: header, options and checksum.
 * A TCP segment has exactly one of the meanings SYN, SYN with ACK, ACK (with FIN or not)
 * and RST. Return: 0 or NETMSG_DROP_MALFORMED.
 */
int packet_tcp(struct packet *p) MUST_CHECK;
int packet_tcp_header(struct packet *p) MUST_CHECK; /* all of that but the checksum */
int packet_udp(struct packet *p) MUST_CHECK;

/* Take URG and its pointer away; the checksum follows (RFC 1624). */
void packet_clear_urgent(struct packet *p);
/* Cut the payload off a TCP segment: lengths and checksums follow. */
void packet_cut_payload(struct packet *p);

/* ---- packets of our own: a whole frame in @dst. Return: bytes, 0 when it does not fit. ---- */

struct packet_macs {
	uint8_t to[MAC_BYTES], from[MAC_BYTES];
};

struct packet_end {
	uint32_t addr;
	uint16_t port;
};

void packet_eth_put(uint8_t *dst, const struct packet_macs *m, unsigned type);
size_t packet_udp_put(uint8_t *dst, size_t cap, const struct packet_macs *m, struct packet_end from,
                      struct packet_end to, struct span payload) MUST_CHECK;
/* A segment without payload and options. */
size_t packet_tcp_put(uint8_t *dst, size_t cap, const struct packet_macs *m, struct packet_end from,
                      struct packet_end to, uint32_t seq, uint32_t ack, unsigned flags) MUST_CHECK;
/* What a host without a listener answers to @p (RFC 793 3.4); 0 for an RST, which gets none. */
size_t packet_reset_put(uint8_t *dst, size_t cap, const struct packet_macs *m,
                        const struct packet *p) MUST_CHECK;
/* ICMP "destination unreachable, administratively prohibited" (RFC 1812 5.2.7.1) for @p. */
size_t packet_refusal_put(uint8_t *dst, size_t cap, const struct packet_macs *m,
                          const struct packet *p) MUST_CHECK;
/* @m.from says that it is @addr, to @to_addr. */
size_t packet_arp_reply_put(uint8_t *dst, size_t cap, const struct packet_macs *m, uint32_t addr,
                            uint32_t to_addr) MUST_CHECK;

#endif
