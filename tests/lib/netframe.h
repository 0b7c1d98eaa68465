/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netframe.h - frames of a guest for tests: right ones, to be made wrong.
 *
 * Built here byte by byte and not with net/packet.h, which they are to test.
 */
#ifndef CLOCHE_TESTS_LIB_NETFRAME_H
#define CLOCHE_TESTS_LIB_NETFRAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NF_GUEST 0x0a57ff02u
#define NF_GATEWAY 0x0a570001u
#define NF_SERVICE 0x0a570002u
#define NF_GUEST_MAC                               \
	{                                          \
		0x02, 0xc1, 0x0c, 0x57, 0xff, 0x02 \
	}
#define NF_GATEWAY_MAC                             \
	{                                          \
		0x02, 0xc1, 0x0c, 0x00, 0x00, 0x01 \
	}

enum { NF_MAX = 20000, NF_ETH = 14, NF_IP = 20 };

struct nf {
	size_t len;
	uint8_t b[NF_MAX];
};

static inline void nf16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static inline void nf32(uint8_t *p, uint32_t v)
{
	nf16(p, v >> 16);
	nf16(p + 2, v & 0xffff);
}

static inline unsigned nf_g16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static inline uint32_t nf_g32(const uint8_t *p)
{
	return (uint32_t)nf_g16(p) << 16 | nf_g16(p + 2);
}

/* RFC 1071 word by word, as slow and plain as it is written there. */
static inline uint32_t nf_sum(uint32_t sum, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i += 2)
		sum += (unsigned)p[i] << 8 | (i + 1 < n ? p[i + 1] : 0);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static inline uint32_t nf_l4_sum(const uint8_t *ip, size_t l4_len)
{
	uint32_t sum = nf_sum(0, ip + 12, 8);

	return nf_sum(sum + ip[9] + (uint32_t)l4_len, ip + NF_IP, l4_len);
}

/* Make both checksums right again after a change. */
static inline void nf_fix(struct nf *f)
{
	uint8_t *ip = f->b + NF_ETH;
	size_t l4_len = f->len - NF_ETH - NF_IP;
	size_t at = ip[9] == 6 ? 16 : 6;

	nf16(ip + 10, 0);
	nf16(ip + 10, (uint16_t)~nf_sum(0, ip, NF_IP));
	if ((ip[9] != 6 && ip[9] != 17) || l4_len < at + 2)
		return;
	nf16(ip + NF_IP + at, 0);
	nf16(ip + NF_IP + at, (uint16_t)~nf_l4_sum(ip, l4_len));
}

static inline uint8_t *nf_ip_of(struct nf *f)
{
	return f->b + NF_ETH;
}

static inline uint8_t *nf_l4_of(struct nf *f)
{
	return f->b + NF_ETH + NF_IP;
}

static inline void nf_ip(struct nf *f, unsigned proto, uint32_t src, uint32_t dst, size_t l4_len)
{
	static const uint8_t guest[] = NF_GUEST_MAC, gateway[] = NF_GATEWAY_MAC;
	uint8_t *ip = f->b + NF_ETH;

	f->len = NF_ETH + NF_IP + l4_len;
	memset(f->b, 0, f->len);
	memcpy(f->b, gateway, 6);
	memcpy(f->b + 6, guest, 6);
	nf16(f->b + 12, 0x0800);
	ip[0] = 0x45;
	nf16(ip + 2, (unsigned)(NF_IP + l4_len));
	nf16(ip + 6, 0x4000);
	ip[8] = 64;
	ip[9] = (uint8_t)proto;
	nf32(ip + 12, src);
	nf32(ip + 16, dst);
	nf_fix(f);
}

/* Payload bytes are 'a', 'b', ... */
static inline void nf_tcp(struct nf *f, uint32_t src, unsigned sport, uint32_t dst, unsigned dport,
                          unsigned flags, uint32_t seq, uint32_t ack, size_t payload)
{
	nf_ip(f, 6, src, dst, 20 + payload);
	uint8_t *t = nf_l4_of(f);

	nf16(t, sport);
	nf16(t + 2, dport);
	nf32(t + 4, seq);
	nf32(t + 8, ack);
	t[12] = 0x50;
	t[13] = (uint8_t)flags;
	nf16(t + 14, 65535);
	for (size_t i = 0; i < payload; i++)
		t[20 + i] = (uint8_t)('a' + i % 26);
	nf_fix(f);
}

static inline void nf_udp(struct nf *f, uint32_t src, unsigned sport, uint32_t dst, unsigned dport,
                          size_t payload)
{
	nf_ip(f, 17, src, dst, 8 + payload);
	uint8_t *u = nf_l4_of(f);

	nf16(u, sport);
	nf16(u + 2, dport);
	nf16(u + 4, (unsigned)(8 + payload));
	memset(u + 8, 'u', payload);
	nf_fix(f);
}

static inline void nf_arp(struct nf *f, unsigned op, uint32_t sender, uint32_t target)
{
	static const uint8_t guest[] = NF_GUEST_MAC, head[] = { 0, 1, 8, 0, 6, 4, 0 };

	memset(f->b, 0, NF_ETH + 28);
	f->len = NF_ETH + 28;
	memset(f->b, 255, 6);
	memcpy(f->b + 6, guest, 6);
	nf16(f->b + 12, 0x0806);
	memcpy(f->b + NF_ETH, head, sizeof(head));
	f->b[NF_ETH + 7] = (uint8_t)op;
	memcpy(f->b + NF_ETH + 8, guest, 6);
	nf32(f->b + NF_ETH + 14, sender);
	nf32(f->b + NF_ETH + 24, target);
}

#endif
