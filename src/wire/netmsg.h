/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netmsg.h - messages between cloche-net and cloche-relay.
 *
 * One message a packet of a SOCK_SEQPACKET socketpair. cloche-net parses the
 * guest's frames, the relay answers of the world, so neither believes the other
 * beyond this codec: every field has its limits, a message is consumed exactly.
 * Addresses are numbers in host byte order (base/ip.h).
 *
 * Wire form, little endian: type u16, then the fields of its kind in the order in
 * which they stand below; a name behind its length of u8, a payload behind u16,
 * addrs behind n. Ports are 1 to 65535 where nothing else is said.
 */
#ifndef CLOCHE_WIRE_NETMSG_H
#define CLOCHE_WIRE_NETMSG_H

#include "base/span.h"

enum {
	NETMSG_NAME_MAX = 253,
	NETMSG_ADDRS_MAX = 16,
	NETMSG_DATAGRAM_MAX = 16 * 1024, /* payload of one UDP datagram */
	NETMSG_BYTES_MAX = NETMSG_DATAGRAM_MAX + 512,
	NETMSG_IDS = 256, /* questions that wait for an answer at one time */
};

enum netmsg_type {
	/* net to relay */
	NETMSG_QUESTION = 1, /* the guest asks for a name */
	NETMSG_FLOW,         /* a TCP connection of the guest; its descriptor comes along */
	NETMSG_DROPPED,      /* frames that the gate refused, counted */
	NETMSG_DATAGRAM,     /* both ways: UDP, PERMISSIVE only */
	/* relay to net */
	NETMSG_ANSWER = 32,
	NETMSG_OPEN,  /* SYNs to this address and port pass */
	NETMSG_CLOSE, /* ... pass no more; flows that are open stay */
};

/* Why the gate refused a frame. */
enum netmsg_drop {
	NETMSG_DROP_ADDRESS = 1, /* TCP to an address that no answer opened */
	NETMSG_DROP_PORT,        /* port 25 */
	NETMSG_DROP_UDP,         /* UDP to anything but our DNS */
	NETMSG_DROP_ICMP,
	NETMSG_DROP_IPV6,
	NETMSG_DROP_FRAGMENT,
	NETMSG_DROP_VLAN,
	NETMSG_DROP_ETHERTYPE,
	NETMSG_DROP_SPOOFED, /* source MAC or address is not the guest's */
	NETMSG_DROP_MALFORMED,
	NETMSG_DROP_PROTOCOL, /* another IP protocol */
	NETMSG_DROP_OPTIONS,  /* IP options */
	NETMSG_DROP_FLOWS,    /* too many flows at one time */
	NETMSG_DROP_DNS,      /* a question that is none */
	NETMSG_DROP_PEER,     /* shared network: not a sandbox of it */
	NETMSG_DROP_CLOSED,   /* an address that is closed in every profile */
	NETMSG_DROPS
};
const char *netmsg_drop_name(unsigned d); /* "address", "port", ...; NULL when unknown */

enum { NETMSG_NOERROR = 0, NETMSG_SERVFAIL = 2, NETMSG_NXDOMAIN = 3, NETMSG_REFUSED = 5 };

struct netmsg {
	uint16_t type;
	union {
		struct {
			uint16_t id; /* < NETMSG_IDS; chosen by net */
			uint16_t qtype;
			struct span name; /* as host_name_parse() gives it (base/hostname.h) */
		} question;
		struct {
			uint32_t addr;
			uint16_t port, guest_port;
		} flow;
		struct {
			uint8_t why;
			uint8_t proto;  /* of IP; 0 unknown */
			uint32_t addr;  /* destination of the first; 0 unknown */
			uint16_t port;  /* 0 unknown */
			uint32_t count; /* at least 1 */
		} dropped;
		struct {
			uint16_t guest_port;
			uint32_t addr; /* the far end */
			uint16_t port;
			struct span payload;
		} datagram;
		struct {
			uint16_t id;
			uint8_t rcode; /* one of the four above */
			uint32_t ttl_s;
			/* addresses, only with NOERROR; 0 of them: no such record (NODATA) */
			uint8_t n;
			uint32_t addrs[NETMSG_ADDRS_MAX];
		} answer;
		struct {
			uint32_t addr;
			uint16_t port; /* CLOSE: 0 is every port of the address */
		} open;
	};
};

/* Return: 0 or -EPROTO. Borrows from @in. */
int netmsg_parse(struct netmsg *out, struct span in) MUST_CHECK;
/*
 * Bytes written, or 0 when it does not fit or breaks a limit: a name of the guest's that
 * DNS allows and the grammar of hosts does not is for the sender to refuse (NXDOMAIN).
 */
size_t netmsg_put(uint8_t *dst, size_t cap, const struct netmsg *m) MUST_CHECK;

#endif
