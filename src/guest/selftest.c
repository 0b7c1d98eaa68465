/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/selftest.h"

#include <errno.h>

enum {
	DNS_HEADER = 12,
	DNS_RECORD = 10, /* type, class, TTL, length, behind the name */
	ETH_HEADER = 14,
	IPV6_HEADER = 40,
	UDP_HEADER = 8,
	UDP = 17,
};

/* selftest.cloche, type A, class IN */
static const uint8_t question[] = { 8,   's', 'e', 'l', 'f', 't', 'e', 's', 't', 6, 'c',
	                            'l', 'o', 'c', 'h', 'e', 0,   0,   1,   0,   1 };
enum { QUESTION_BYTES = sizeof(question) };

static const uint8_t their_ip6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 };
static const uint8_t our_ip6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 2 };

static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* RFC 1071; @n is even. */
static uint32_t sum16(const uint8_t *p, size_t n, uint32_t s)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		s += be16(p + i);
	return s;
}

static uint16_t fold(uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)~s;
}

size_t selftest_question(uint8_t dst[SELFTEST_BYTES_MAX], uint16_t id)
{
	memset(dst, 0, DNS_HEADER);
	put16(dst, id);
	dst[2] = 1; /* RD */
	dst[5] = 1; /* one question */
	memcpy(dst + DNS_HEADER, question, sizeof(question));
	return DNS_HEADER + QUESTION_BYTES;
}

size_t selftest_echo(uint8_t dst[SELFTEST_BYTES_MAX], uint16_t id)
{
	enum { LEN = 16 };

	memset(dst, 0, LEN);
	dst[0] = 8;
	put16(dst + 4, id);
	put16(dst + 2, fold(sum16(dst, LEN, 0)));
	return LEN;
}

size_t selftest_ipv6(uint8_t dst[SELFTEST_BYTES_MAX], const uint8_t to[6], const uint8_t from[6])
{
	uint8_t *ip = dst + ETH_HEADER, *udp = ip + IPV6_HEADER;
	enum { PAYLOAD = 4, LEN = UDP_HEADER + PAYLOAD };

	memset(dst, 0, ETH_HEADER + IPV6_HEADER + LEN);
	memcpy(dst, to, 6);
	memcpy(dst + 6, from, 6);
	put16(dst + 12, 0x86dd);
	ip[0] = 0x60;
	put16(ip + 4, LEN);
	ip[6] = UDP;
	ip[7] = 64;
	memcpy(ip + 8, our_ip6, 16);
	memcpy(ip + 24, their_ip6, 16);
	put16(udp, 40053);
	put16(udp + 2, 53);
	put16(udp + 4, LEN);
	uint16_t c = fold(sum16(udp, LEN, sum16(ip + 8, 32, LEN + UDP)));
	put16(udp + 6, c ? c : 0xffff);
	return ETH_HEADER + IPV6_HEADER + LEN;
}

int selftest_answer(struct span in, uint16_t id)
{
	struct rd r = rd_of(in.p, in.len);
	struct span h = rd_take(&r, DNS_HEADER);
	struct span q = rd_take(&r, QUESTION_BYTES);

	/* an answer without error, not cut, to exactly our question, with one record */
	if (r.bad || be16(h.p) != id || (h.p[2] & 0xfa) != 0x80 || (h.p[3] & 0x0f) != 0 ||
	    be16(h.p + 4) != 1 || be16(h.p + 6) != 1 || be16(h.p + 8) != 0 || be16(h.p + 10) != 0 ||
	    memcmp(q.p, question, QUESTION_BYTES) != 0)
		return -EPROTO;
	struct span name = rd_take(&r, 2);
	struct span rec = rd_take(&r, DNS_RECORD);
	struct span a = rd_take(&r, 4);
	if (r.bad || r.left || be16(name.p) != (0xc000 | DNS_HEADER) || be16(rec.p) != 1 ||
	    be16(rec.p + 2) != 1 || be16(rec.p + 8) != 4 || a.p[0] != 198 || a.p[1] != 51 ||
	    a.p[2] != 100)
		return -EPROTO;
	return a.p[3];
}

bool selftest_is_ipv6_answer(struct span frame)
{
	return frame.len >= ETH_HEADER + IPV6_HEADER && be16(frame.p + 12) == 0x86dd &&
	       frame.p[ETH_HEADER + 6] == UDP &&
	       memcmp(frame.p + ETH_HEADER + 8, their_ip6, 16) == 0;
}
