/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/netmsg.h"

#include <errno.h>

#include "base/hostname.h"

_Static_assert((int)NETMSG_NAME_MAX == (int)HOST_NAME_MAX_BYTES, "one grammar");

static const char *const drop_names[NETMSG_DROPS] = {
	[NETMSG_DROP_ADDRESS] = "address",   [NETMSG_DROP_PORT] = "port",
	[NETMSG_DROP_UDP] = "udp",           [NETMSG_DROP_ICMP] = "icmp",
	[NETMSG_DROP_IPV6] = "ipv6",         [NETMSG_DROP_FRAGMENT] = "fragment",
	[NETMSG_DROP_VLAN] = "vlan",         [NETMSG_DROP_ETHERTYPE] = "ethertype",
	[NETMSG_DROP_SPOOFED] = "spoofed",   [NETMSG_DROP_MALFORMED] = "malformed",
	[NETMSG_DROP_PROTOCOL] = "protocol", [NETMSG_DROP_OPTIONS] = "options",
	[NETMSG_DROP_FLOWS] = "flows",       [NETMSG_DROP_DNS] = "dns",
	[NETMSG_DROP_PEER] = "peer",         [NETMSG_DROP_CLOSED] = "closed",
};

const char *netmsg_drop_name(unsigned d)
{
	return d < NETMSG_DROPS ? drop_names[d] : NULL;
}

/* The limits of each kind, for both directions of the codec. */
static bool limits_ok(const struct netmsg *m)
{
	switch (m->type) {
	case NETMSG_QUESTION:
		return m->question.id < NETMSG_IDS && host_name_ok(m->question.name);
	case NETMSG_FLOW:
		return m->flow.port && m->flow.guest_port;
	case NETMSG_DROPPED:
		return netmsg_drop_name(m->dropped.why) && m->dropped.count;
	case NETMSG_DATAGRAM:
		return m->datagram.guest_port && m->datagram.port &&
		       m->datagram.payload.len <= NETMSG_DATAGRAM_MAX;
	case NETMSG_ANSWER:
		switch (m->answer.rcode) {
		case NETMSG_NOERROR:
			return m->answer.id < NETMSG_IDS && m->answer.n <= NETMSG_ADDRS_MAX;
		case NETMSG_SERVFAIL:
		case NETMSG_NXDOMAIN:
		case NETMSG_REFUSED:
			return m->answer.id < NETMSG_IDS && m->answer.n == 0;
		default:
			return false;
		}
	case NETMSG_OPEN:
		return m->open.port != 0;
	case NETMSG_CLOSE:
		return true;
	default:
		return false;
	}
}

int netmsg_parse(struct netmsg *out, struct span in)
{
	struct rd r = rd_of(in.p, in.len);
	struct netmsg m = { .type = (uint16_t)rd_le(&r, 2) };

	switch (m.type) {
	case NETMSG_QUESTION:
		m.question.id = (uint16_t)rd_le(&r, 2);
		m.question.qtype = (uint16_t)rd_le(&r, 2);
		m.question.name = rd_blob(&r, 1, NETMSG_NAME_MAX);
		break;
	case NETMSG_FLOW:
		m.flow.addr = (uint32_t)rd_le(&r, 4);
		m.flow.port = (uint16_t)rd_le(&r, 2);
		m.flow.guest_port = (uint16_t)rd_le(&r, 2);
		break;
	case NETMSG_DROPPED:
		m.dropped.why = (uint8_t)rd_le(&r, 1);
		m.dropped.proto = (uint8_t)rd_le(&r, 1);
		m.dropped.addr = (uint32_t)rd_le(&r, 4);
		m.dropped.port = (uint16_t)rd_le(&r, 2);
		m.dropped.count = (uint32_t)rd_le(&r, 4);
		break;
	case NETMSG_DATAGRAM:
		m.datagram.guest_port = (uint16_t)rd_le(&r, 2);
		m.datagram.addr = (uint32_t)rd_le(&r, 4);
		m.datagram.port = (uint16_t)rd_le(&r, 2);
		m.datagram.payload = rd_blob(&r, 2, NETMSG_DATAGRAM_MAX);
		break;
	case NETMSG_ANSWER:
		m.answer.id = (uint16_t)rd_le(&r, 2);
		m.answer.rcode = (uint8_t)rd_le(&r, 1);
		m.answer.ttl_s = (uint32_t)rd_le(&r, 4);
		m.answer.n = (uint8_t)rd_le(&r, 1);
		if (m.answer.n > NETMSG_ADDRS_MAX)
			return -EPROTO;
		for (size_t i = 0; i < m.answer.n; i++)
			m.answer.addrs[i] = (uint32_t)rd_le(&r, 4);
		break;
	case NETMSG_OPEN:
	case NETMSG_CLOSE:
		m.open.addr = (uint32_t)rd_le(&r, 4);
		m.open.port = (uint16_t)rd_le(&r, 2);
		break;
	default:
		return -EPROTO;
	}
	if (r.bad || r.left || !limits_ok(&m))
		return -EPROTO;
	*out = m;
	return 0;
}

size_t netmsg_put(uint8_t *dst, size_t cap, const struct netmsg *m)
{
	struct wr w = wr_of(dst, cap);

	if (!limits_ok(m))
		return 0;
	wr_le(&w, m->type, 2);
	switch (m->type) {
	case NETMSG_QUESTION:
		wr_le(&w, m->question.id, 2);
		wr_le(&w, m->question.qtype, 2);
		wr_blob(&w, m->question.name, 1);
		break;
	case NETMSG_FLOW:
		wr_le(&w, m->flow.addr, 4);
		wr_le(&w, m->flow.port, 2);
		wr_le(&w, m->flow.guest_port, 2);
		break;
	case NETMSG_DROPPED:
		wr_le(&w, m->dropped.why, 1);
		wr_le(&w, m->dropped.proto, 1);
		wr_le(&w, m->dropped.addr, 4);
		wr_le(&w, m->dropped.port, 2);
		wr_le(&w, m->dropped.count, 4);
		break;
	case NETMSG_DATAGRAM:
		wr_le(&w, m->datagram.guest_port, 2);
		wr_le(&w, m->datagram.addr, 4);
		wr_le(&w, m->datagram.port, 2);
		wr_blob(&w, m->datagram.payload, 2);
		break;
	case NETMSG_ANSWER:
		wr_le(&w, m->answer.id, 2);
		wr_le(&w, m->answer.rcode, 1);
		wr_le(&w, m->answer.ttl_s, 4);
		wr_le(&w, m->answer.n, 1);
		for (size_t i = 0; i < m->answer.n; i++)
			wr_le(&w, m->answer.addrs[i], 4);
		break;
	default: /* OPEN, CLOSE: limits_ok() knows no other */
		wr_le(&w, m->open.addr, 4);
		wr_le(&w, m->open.port, 2);
		break;
	}
	return w.bad ? 0 : cap - w.left;
}
