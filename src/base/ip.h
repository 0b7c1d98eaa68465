/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ip.h - IPv4 addresses as numbers in host byte order, and ranges of them.
 *
 * Pure. The guest's network is IPv4 only (docs/network.md says why).
 */
#ifndef CLOCHE_BASE_IP_H
#define CLOCHE_BASE_IP_H

#include "base/span.h"

enum { IP4_STR_BYTES = 16, IP4_NET_STR_BYTES = 19 };

struct ip4_net {
	uint32_t addr; /* no bits set behind the prefix */
	uint8_t bits;  /* 0 to 32 */
};

#define IP4(a, b, c, d) \
	((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

/* Four decimals without leading zeros, nothing else. Return: 0 or -EINVAL. */
int ip4_parse(uint32_t *out, struct span s) MUST_CHECK;
/* Return: @dst. */
const char *ip4_str(char dst[IP4_STR_BYTES], uint32_t addr);

/* "10.0.0.0/8", or an address alone (/32). Bits behind the prefix: -EINVAL. */
int ip4_net_parse(struct ip4_net *out, struct span s) MUST_CHECK;
const char *ip4_net_str(char dst[IP4_NET_STR_BYTES], struct ip4_net n);
bool ip4_net_has(struct ip4_net n, uint32_t addr);

#endif
