/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ip.h"

#include <errno.h>
#include <stdio.h>

/* A decimal without leading zeros, at most @max, at the start of @s. Return: its bytes, or 0. */
static size_t decimal(struct span s, uint32_t max, uint32_t *out)
{
	uint32_t v = 0;
	size_t n = 0;

	while (n < s.len && n < 3 && s.p[n] >= '0' && s.p[n] <= '9')
		v = v * 10 + (uint32_t)(s.p[n++] - '0');
	if (v > max || (n > 1 && s.p[0] == '0'))
		return 0;
	*out = v;
	return n;
}

static struct span tail(struct span s, size_t n)
{
	return span_of(s.p + n, s.len - n);
}

int ip4_parse(uint32_t *out, struct span s)
{
	uint32_t addr = 0;

	for (int i = 0; i < 4; i++) {
		uint32_t v = 0;

		if (i > 0) {
			if (s.len == 0 || s.p[0] != '.')
				return -EINVAL;
			s = tail(s, 1);
		}
		size_t n = decimal(s, 255, &v);
		if (n == 0)
			return -EINVAL;
		addr = addr << 8 | v;
		s = tail(s, n);
	}
	if (s.len)
		return -EINVAL;
	*out = addr;
	return 0;
}

const char *ip4_str(char dst[IP4_STR_BYTES], uint32_t addr)
{
	(void)snprintf(dst, IP4_STR_BYTES, "%u.%u.%u.%u", addr >> 24, addr >> 16 & 255,
	               addr >> 8 & 255, addr & 255);
	return dst;
}

static uint32_t mask(uint8_t bits)
{
	return bits == 0 ? 0 : UINT32_MAX << (32 - bits);
}

int ip4_net_parse(struct ip4_net *out, struct span s)
{
	const uint8_t *slash = s.len ? memchr(s.p, '/', s.len) : NULL;
	size_t n = slash ? (size_t)(slash - s.p) : s.len;
	struct ip4_net net = { .bits = 32 };

	if (ip4_parse(&net.addr, span_of(s.p, n)) < 0)
		return -EINVAL;
	if (slash) {
		struct span rest = tail(s, n + 1);
		uint32_t bits = 0;

		if (rest.len == 0 || decimal(rest, 32, &bits) != rest.len)
			return -EINVAL;
		net.bits = (uint8_t)bits;
	}
	if (net.addr & ~mask(net.bits))
		return -EINVAL;
	*out = net;
	return 0;
}

const char *ip4_net_str(char dst[IP4_NET_STR_BYTES], struct ip4_net n)
{
	char a[IP4_STR_BYTES];

	(void)snprintf(dst, IP4_NET_STR_BYTES, "%s/%u", ip4_str(a, n.addr), n.bits % 100u);
	return dst;
}

bool ip4_net_has(struct ip4_net n, uint32_t addr)
{
	return n.bits <= 32 && (addr & mask(n.bits)) == n.addr;
}
