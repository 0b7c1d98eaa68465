/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: what is taken for a request has exactly one type in options that end, and the
 * answer to it fits, has the request's number and card, names our address or none, and is
 * itself no request.
 */
#include <stdlib.h>

#include "lib/netframe.h"
#include "net/dhcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(cond)              \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

/* Times that option @code stands in @p; -1 when they do not end. */
static int count(const uint8_t *p, size_t n, unsigned code)
{
	int found = 0;

	for (size_t i = 240; i < n; i += p[i] ? 2u + p[i + 1] : 1u) {
		if (p[i] == 255)
			return found;
		if (p[i] && i + 1 >= n)
			return -1;
		found += p[i] == code;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct dhcp_config c = { .addr = NF_GUEST,
		                       .mask = 0xffff0000,
		                       .router = NF_GATEWAY,
		                       .dns = NF_GATEWAY,
		                       .server = NF_GATEWAY,
		                       .mtu = 16000,
		                       .search = "cloche" };
	uint8_t b[DHCP_ANSWER_MAX];
	struct dhcp_request q, again;

	if (dhcp_parse(&q, span_of(data, size)) != 0)
		return 0;
	HOLDS(size >= 244 && size <= DHCP_BYTES_MAX && data[0] == 1 && data[2] == 6);
	HOLDS(count(data, size, 53) == 1 && count(data, size, 50) <= 1);
	HOLDS(q.xid == nf_g32(data + 4) && memcmp(q.mac, data + 28, 6) == 0);
	enum dhcp_type type = dhcp_decide(&q, &c);
	HOLDS(type == DHCP_NONE || type == DHCP_OFFER || type == DHCP_ACK || type == DHCP_NAK);
	HOLDS(type != DHCP_ACK || q.type == DHCP_INFORM || q.requested == c.addr ||
	      (!q.requested && q.client == c.addr));
	if (type == DHCP_NONE)
		return 0;
	size_t n = dhcp_answer_put(b, sizeof(b), &q, &c, type);
	HOLDS(n >= 300 && n <= sizeof(b) && b[0] == 2 && nf_g32(b + 4) == q.xid);
	HOLDS(memcmp(b + 28, q.mac, 6) == 0);
	HOLDS(nf_g32(b + 16) == 0 || nf_g32(b + 16) == NF_GUEST);
	HOLDS(count(b, n, 53) == 1 && count(b, n, 54) == 1);
	HOLDS(dhcp_parse(&again, span_of(b, n)) != 0);
	return 0;
}
