/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h - which frames pass between a guest and the rest, and as what.
 *
 * One function, gate_judge(), sees every frame both ways before anything else
 * does. Pure: frame and tables in; a verdict out, the frame repaired in place. No
 * descriptor, no clock; memory is taken once, in gate_new().
 *
 * From the guest there pass, all else being refused with a reason (netmsg.h):
 *   - TCP to an address and port that gate_open() opened (PERMISSIVE: to all that
 *     are not closed), to the terminator (slirp.h);
 *   - UDP to port 53 of the gateway: a question for us; DHCP: for us;
 *   - ARP requests, which are answered here with the gateway's MAC;
 *   - PERMISSIVE: UDP to addresses that are not closed, as datagrams;
 *   - shared network: TCP and UDP to another sandbox, as packets for the switch.
 *
 * What passes is whole: checksums are right, headers have no options but TCP's,
 * which are well-formed, nothing is a fragment. TCP passes in the order of its
 * bytes: a segment behind a gap is dropped and sent again by the guest, so the
 * terminator never holds or reassembles anything, and of two versions of a byte
 * the first one counts. (The link loses and reorders nothing; a gap is made on
 * purpose.) URG is taken off, as urgent data makes libslirp 4.7.0 read beyond its
 * buffers. Data on a SYN is cut off: the guest sends it again (RFC 9293 3.4).
 *
 * A flow is in the table from the SYN that passed until gate_flow_gone(), which
 * the terminator's owner calls when the terminator has let go of it (libslirp: a
 * half-open one after 75 s). What the guest says never frees an entry, so the caps
 * hold for the terminator, too.
 */
#ifndef CLOCHE_NET_GATE_H
#define CLOCHE_NET_GATE_H

#include "base/hash.h"
#include "base/span.h"
#include "net/packet.h"

struct egress;

enum {
	GATE_FLOWS_MAX = 1024,
	GATE_HALF_OPEN_MAX = 128,
	GATE_OPENS_MAX = 128 * 1024, /* pairs of address and port */
	GATE_MTU_MAX = 16000,
	GATE_FRAME_MAX = ETH_BYTES + GATE_MTU_MAX,
	GATE_REPLY_MAX = 128,
	GATE_NO_FLOW = -1,
};

struct gate_config {
	uint32_t addr, gateway, service; /* the guest; its resolver; host.cloche */
	uint8_t mac[MAC_BYTES], gateway_mac[MAC_BYTES];
	bool permissive, shared;
	const struct egress *closed; /* egress_addr_closed(); borrowed */
	uint8_t key[HASH_KEY_BYTES]; /* of the tables: random */
	/* 0: the constants above; tests have smaller ones */
	size_t flows_max, half_open_max, opens_max;
};

enum gate_from {
	GATE_GUEST,      /* a frame of the guest */
	GATE_TERMINATOR, /* a frame of libslirp */
	GATE_PEER,       /* an IP packet of another sandbox, behind ETH_BYTES of room */
};

enum gate_verdict {
	GATE_DROP,       /* nothing passes; reply may hold an answer */
	GATE_TO_SLIRP,   /* @len bytes of the frame, to the terminator */
	GATE_TO_GUEST,   /* @len bytes of the frame, to the guest */
	GATE_TO_SWITCH,  /* the frame's IP packet, to the switch */
	GATE_IS_DNS,     /* @payload is a question for us, of guest_port */
	GATE_IS_DHCP,    /* @payload is for our DHCP */
	GATE_IS_DATAGRAM /* @payload goes to addr, port; from guest_port */
};

struct gate_out {
	enum gate_verdict verdict;
	/* what was refused, and why (NETMSG_DROP_); 0: nothing that is worth a word */
	uint8_t why;
	uint8_t proto; /* of IP; 0 unknown */
	uint32_t addr; /* of the far end */
	uint16_t port, guest_port;
	size_t len;
	int flow;   /* TO_SLIRP, TO_GUEST: its index, or GATE_NO_FLOW */
	bool syn;   /* TO_SLIRP: the first of a flow */
	bool rst;   /* TO_GUEST: a reset */
	bool bcast; /* IS_DHCP: sent to everybody */
	struct span payload;
	size_t reply_len; /* a frame for the guest: ARP, a reset, a refusal */
	uint8_t reply[GATE_REPLY_MAX];
};

struct gate;

/* Aborts without memory. */
struct gate *gate_new(const struct gate_config *c) MUST_CHECK;
void gate_free(struct gate *g);

/* gate_judge() - the verdict on one frame. @frame may be changed, also when it is refused. */
void gate_judge(struct gate *g, enum gate_from from, uint8_t *frame, size_t len,
                struct gate_out *out);

/* Let SYNs to @addr and @port pass. Return: 0 (also when they do), -ENOSPC. */
int gate_open(struct gate *g, uint32_t addr, uint16_t port) MUST_CHECK;
/* ... no more; @port 0: to none of its ports. Flows stay. */
void gate_close(struct gate *g, uint32_t addr, uint16_t port);
size_t gate_opens(const struct gate *g);

/* Another sandbox of the shared network came (@there) or went. */
void gate_peer(struct gate *g, uint32_t addr, bool there);

/* ---- flows; an index is good until gate_flow_gone() ---- */

struct gate_flow_key {
	uint32_t addr;
	uint16_t port, guest_port;
};

size_t gate_flows(const struct gate *g, size_t *out_half_open);
struct gate_flow_key gate_flow_key(const struct gate *g, int flow);
void gate_flow_gone(struct gate *g, int flow);
/*
 * gate_flow_done() - take a flow on which both ends have sent and acknowledged all:
 * a terminator that keeps it (TIME_WAIT) keeps it for nothing on such a link.
 * Return: its index, or GATE_NO_FLOW.
 */
int gate_flow_done(struct gate *g);
/* A reset of @flow as the guest would send it, for the terminator. Return: bytes. */
size_t gate_flow_reset_put(const struct gate *g, int flow, uint8_t *dst, size_t cap) MUST_CHECK;
/* ... and one as the far end would, for the guest. */
size_t gate_flow_refuse_put(const struct gate *g, int flow, uint8_t *dst, size_t cap) MUST_CHECK;

/*
 * gate_probes() - which of the start's forbidden acts were refused so far. The self-test
 * of a sandbox tries them against addresses that are nobody's (RFC 5737, RFC 3849).
 */
enum {
	GATE_PROBE_TCP = 1,     /* TCP to 198.51.100.1 port 443 */
	GATE_PROBE_TCP_DNS = 2, /* TCP port 53 */
	GATE_PROBE_UDP_DNS = 4, /* UDP port 53 */
	GATE_PROBE_ICMP = 8,    /* ICMP to it */
	GATE_PROBE_IPV6 = 16,   /* IPv6 to 2001:db8::1 */
	GATE_PROBE_ALL = 31,
};
unsigned gate_probes(const struct gate *g);

#endif
