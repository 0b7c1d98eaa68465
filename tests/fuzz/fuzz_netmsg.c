/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a message that is accepted is said back byte for byte, no part of it is
 * accepted, and its numbers are within the limits that its reader indexes with.
 */
#include <stdlib.h>

#include "base/hostname.h"
#include "wire/netmsg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[NETMSG_BYTES_MAX];
	struct netmsg m, part;

	if (netmsg_parse(&m, span_of(data, size)) < 0)
		return 0;
	check(size <= NETMSG_BYTES_MAX);
	check(netmsg_put(again, sizeof(again), &m) == size && memcmp(again, data, size) == 0);
	check(netmsg_put(again, size - 1, &m) == 0);
	for (size_t cut = 0; cut<size; cut += size> 200 ? 97 : 1)
		check(netmsg_parse(&part, span_of(data, cut)) < 0);
	switch (m.type) {
	case NETMSG_QUESTION:
		check(m.question.id < NETMSG_IDS && host_name_ok(m.question.name));
		break;
	case NETMSG_DROPPED:
		check(netmsg_drop_name(m.dropped.why) != NULL);
		break;
	case NETMSG_DATAGRAM:
		check(m.datagram.payload.len <= NETMSG_DATAGRAM_MAX);
		break;
	case NETMSG_ANSWER:
		check(m.answer.id < NETMSG_IDS && m.answer.n <= NETMSG_ADDRS_MAX);
		break;
	default:
		break;
	}
	return 0;
}
