/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ip.h"
#include "base/mem.h"
#include "lib/netframe.h"
#include "net/dhcp.h"
#include "net/drops.h"
#include "net/gate.h"
#include "net/stream.h"
#include "net/swmap.h"
#include "net/swmsg.h"
#include "policy/egress.h"

#define HOST IP4(198, 51, 100, 7)
#define OTHER IP4(198, 51, 100, 8)
#define PEER IP4(10, 87, 0, 17)
#define NOPEER IP4(10, 87, 0, 18)
#define SHARED IP4(10, 87, 0, 16)

enum { SYN = 2, RST = 4, FIN = 1, ACK = 16, PSH = 8, URG = 32, GUEST_PORT = 40000 };

static struct egress *closed;
static struct nf f;
static struct gate_out o;

static struct gate *new_gate(bool permissive, bool shared, size_t flows, size_t half, size_t opens)
{
	struct gate_config c = { .addr = shared ? SHARED : NF_GUEST,
		                 .gateway = NF_GATEWAY,
		                 .service = NF_SERVICE,
		                 .mac = NF_GUEST_MAC,
		                 .gateway_mac = NF_GATEWAY_MAC,
		                 .permissive = permissive,
		                 .shared = shared,
		                 .closed = closed,
		                 .flows_max = flows,
		                 .half_open_max = half,
		                 .opens_max = opens };

	return gate_new(&c);
}

static void judge(struct gate *g, enum gate_from from)
{
	gate_judge(g, from, f.b, f.len, &o);
}

/* ---- every reason ------------------------------------------------------- */

enum change {
	NONE,
	CUT,      /* .at: bytes of the frame that are left */
	BYTE,     /* set .at to .v, checksums as they were */
	BYTE_FIX, /* set .at to .v, checksums right */
	WORD_FIX, /* the same for two bytes */
	PAD,      /* .at: zeros behind it */
	TYPE,     /* .v: ethertype */
	OPTIONS,  /* IP header of .v words */
	TCP_OPTS, /* TCP header of 24 bytes, the last word .v */
};

enum kind { K_SYN, K_ACK, K_UDP, K_ICMP, K_ARP };

static const struct reason {
	const char *why;
	int want; /* netmsg_drop; 0: it passes, or is dropped without a word: .verdict */
	enum gate_verdict verdict;
	enum kind kind;
	uint32_t dst;
	uint16_t port;
	enum change change;
	size_t at;
	uint32_t v;
} reasons[] = {
	{ "a SYN to what is open", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, NONE, 0, 0 },
	{ "padded to 60 bytes", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, PAD, 6, 0 },
	{ "padded to 61", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, PAD, 7, 0 },
	{ "one byte of the TCP header is missing", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, CUT,
	  53, 0 },
	{ "one byte of the IP header is missing", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, CUT,
	  33, 0 },
	{ "no IP header", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, CUT, 14, 0 },
	{ "less than an Ethernet header", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, CUT, 13, 0 },
	{ "nothing", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, CUT, 0, 0 },
	{ "a frame over the MTU", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, PAD, 16014 - 54 + 1,
	  0 },
	{ "IP version 6 in an IPv4 frame", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 14,
	  0x65 },
	{ "header of 16 bytes", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 14, 0x44 },
	{ "header of 24 bytes", NETMSG_DROP_OPTIONS, 0, K_SYN, HOST, 443, OPTIONS, 0, 6 },
	{ "header of 60 bytes", NETMSG_DROP_OPTIONS, 0, K_SYN, HOST, 443, OPTIONS, 0, 15 },
	{ "total length one too long", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, WORD_FIX, 16,
	  41 },
	{ "total length below the header", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, WORD_FIX, 16,
	  19 },
	{ "total length of the header alone", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, WORD_FIX,
	  16, 20 },
	{ "more fragments", NETMSG_DROP_FRAGMENT, 0, K_SYN, HOST, 443, WORD_FIX, 20, 0x2000 },
	{ "more fragments, do not fragment", NETMSG_DROP_FRAGMENT, 0, K_SYN, HOST, 443, WORD_FIX,
	  20, 0x6000 },
	{ "the last fragment", NETMSG_DROP_FRAGMENT, 0, K_SYN, HOST, 443, WORD_FIX, 20, 0x0001 },
	{ "an offset of all bits", NETMSG_DROP_FRAGMENT, 0, K_SYN, HOST, 443, WORD_FIX, 20,
	  0x1fff },
	{ "the reserved bit", NETMSG_DROP_FRAGMENT, 0, K_SYN, HOST, 443, WORD_FIX, 20, 0x8000 },
	{ "no flags at all", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, WORD_FIX, 20, 0 },
	{ "no time to live", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 22, 0 },
	{ "the least time to live", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, BYTE_FIX, 22, 1 },
	{ "IP checksum", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE, 24, 0x5a },
	{ "another source", NETMSG_DROP_SPOOFED, 0, K_SYN, HOST, 443, BYTE_FIX, 29, 3 },
	{ "another card", NETMSG_DROP_SPOOFED, 0, K_SYN, HOST, 443, BYTE, 11, 3 },
	{ "to another card", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE, 5, 2 },
	{ "to a group of cards", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE, 0, 1 },
	{ "TCP checksum", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE, 50, 0x5a },
	{ "TCP header of 16 bytes", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 46,
	  0x40 },
	{ "TCP header longer than the segment", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443,
	  BYTE_FIX, 46, 0x60 },
	{ "reserved bits", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 46, 0x58 },
	{ "the bit of ECN", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, BYTE_FIX, 46, 0x51 },
	{ "no flags", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 47, 0 },
	{ "FIN alone", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 47, FIN },
	{ "SYN and FIN", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 47, SYN | FIN },
	{ "SYN and RST", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 47, SYN | RST },
	{ "all flags", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, BYTE_FIX, 47, 0xff },
	{ "SYN and the flags of ECN", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, BYTE_FIX, 47,
	  SYN | 0xc0 },
	{ "SYN and URG", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, BYTE_FIX, 47, SYN | URG },
	{ "SYN with an ACK: nothing was asked of it", 0, GATE_DROP, K_SYN, HOST, 443, BYTE_FIX, 47,
	  SYN | ACK },
	{ "port 0", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 0, NONE, 0, 0 },
	{ "from port 0", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, WORD_FIX, 34, 0 },
	{ "MSS", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, TCP_OPTS, 0, 0x020405b4 },
	{ "MSS of three bytes", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, TCP_OPTS, 0,
	  0x02030500 },
	{ "MSS cut", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, TCP_OPTS, 0, 0x01020405 },
	{ "an option without a length", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, TCP_OPTS, 0,
	  0x01010108 },
	{ "an option of length 0", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, TCP_OPTS, 0,
	  0x08000000 },
	{ "an option of length 1", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, TCP_OPTS, 0,
	  0x08010000 },
	{ "an option of two bytes", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, TCP_OPTS, 0, 0x04020101 },
	{ "an option one too long", NETMSG_DROP_MALFORMED, 0, K_SYN, HOST, 443, TCP_OPTS, 0,
	  0x08050000 },
	{ "an end, and anything behind it", 0, GATE_TO_SLIRP, K_SYN, HOST, 443, TCP_OPTS, 0,
	  0x00ffffff },
	{ "not opened", NETMSG_DROP_ADDRESS, 0, K_SYN, OTHER, 443, NONE, 0, 0 },
	{ "opened on another port", NETMSG_DROP_ADDRESS, 0, K_SYN, HOST, 80, NONE, 0, 0 },
	{ "a segment to what is not open", NETMSG_DROP_ADDRESS, 0, K_ACK, OTHER, 443, NONE, 0, 0 },
	{ "a segment of a flow that is gone", 0, GATE_DROP, K_ACK, HOST, 443, NONE, 0, 0 },
	{ "mail", NETMSG_DROP_PORT, 0, K_SYN, HOST, 25, NONE, 0, 0 },
	{ "loopback", NETMSG_DROP_CLOSED, 0, K_SYN, IP4(127, 0, 0, 1), 443, NONE, 0, 0 },
	{ "the gateway", NETMSG_DROP_CLOSED, 0, K_SYN, NF_GATEWAY, 443, NONE, 0, 0 },
	{ "this network", NETMSG_DROP_CLOSED, 0, K_SYN, 0, 443, NONE, 0, 0 },
	{ "everybody", NETMSG_DROP_CLOSED, 0, K_SYN, UINT32_MAX, 443, NONE, 0, 0 },
	{ "metadata", NETMSG_DROP_CLOSED, 0, K_SYN, IP4(169, 254, 169, 254), 80, NONE, 0, 0 },
	{ "a service of the host", 0, GATE_TO_SLIRP, K_SYN, NF_SERVICE, 8080, NONE, 0, 0 },
	{ "no service of the host", NETMSG_DROP_ADDRESS, 0, K_SYN, NF_SERVICE, 8081, NONE, 0, 0 },
	{ "a sandbox, isolated", NETMSG_DROP_CLOSED, 0, K_SYN, PEER, 80, NONE, 0, 0 },
	{ "a question", 0, GATE_IS_DNS, K_UDP, NF_GATEWAY, 53, NONE, 0, 0 },
	{ "a question elsewhere", NETMSG_DROP_UDP, 0, K_UDP, HOST, 53, NONE, 0, 0 },
	{ "another port of the gateway", NETMSG_DROP_UDP, 0, K_UDP, NF_GATEWAY, 123, NONE, 0, 0 },
	{ "QUIC", NETMSG_DROP_UDP, 0, K_UDP, HOST, 443, NONE, 0, 0 },
	{ "UDP to a service", NETMSG_DROP_UDP, 0, K_UDP, NF_SERVICE, 8080, NONE, 0, 0 },
	{ "UDP length one too long", NETMSG_DROP_MALFORMED, 0, K_UDP, NF_GATEWAY, 53, WORD_FIX, 38,
	  13 },
	{ "UDP length one too short", NETMSG_DROP_MALFORMED, 0, K_UDP, NF_GATEWAY, 53, WORD_FIX, 38,
	  11 },
	{ "UDP checksum", NETMSG_DROP_MALFORMED, 0, K_UDP, NF_GATEWAY, 53, BYTE, 41, 0x5a },
	{ "UDP to port 0", NETMSG_DROP_MALFORMED, 0, K_UDP, NF_GATEWAY, 0, NONE, 0, 0 },
	{ "UDP of an mDNS to its group", NETMSG_DROP_UDP, 0, K_UDP, IP4(224, 0, 0, 251), 5353, BYTE,
	  0, 1 },
	{ "a ping", NETMSG_DROP_ICMP, 0, K_ICMP, HOST, 0, NONE, 0, 0 },
	{ "a ping of the gateway", NETMSG_DROP_ICMP, 0, K_ICMP, NF_GATEWAY, 0, NONE, 0, 0 },
	{ "IGMP", NETMSG_DROP_PROTOCOL, 0, K_ICMP, HOST, 0, BYTE_FIX, 23, 2 },
	{ "protocol 0", NETMSG_DROP_PROTOCOL, 0, K_ICMP, HOST, 0, BYTE_FIX, 23, 0 },
	{ "protocol 255", NETMSG_DROP_PROTOCOL, 0, K_ICMP, HOST, 0, BYTE_FIX, 23, 255 },
	{ "IPv6", NETMSG_DROP_IPV6, 0, K_SYN, HOST, 443, TYPE, 0, 0x86dd },
	{ "a VLAN", NETMSG_DROP_VLAN, 0, K_SYN, HOST, 443, TYPE, 0, 0x8100 },
	{ "a provider's VLAN", NETMSG_DROP_VLAN, 0, K_SYN, HOST, 443, TYPE, 0, 0x88a8 },
	{ "an old VLAN", NETMSG_DROP_VLAN, 0, K_SYN, HOST, 443, TYPE, 0, 0x9100 },
	{ "NC-SI", NETMSG_DROP_ETHERTYPE, 0, K_SYN, HOST, 443, TYPE, 0, 0x88f8 },
	{ "a length", NETMSG_DROP_ETHERTYPE, 0, K_SYN, HOST, 443, TYPE, 0, 40 },
	{ "type 0x07ff", NETMSG_DROP_ETHERTYPE, 0, K_SYN, HOST, 443, TYPE, 0, 0x07ff },
	{ "type 0x0801", NETMSG_DROP_ETHERTYPE, 0, K_SYN, HOST, 443, TYPE, 0, 0x0801 },
	{ "ARP", 0, GATE_DROP, K_ARP, NF_GATEWAY, 0, NONE, 0, 0 },
	{ "ARP cut", NETMSG_DROP_MALFORMED, 0, K_ARP, NF_GATEWAY, 0, CUT, 41, 0 },
	{ "ARP of another hardware", NETMSG_DROP_MALFORMED, 0, K_ARP, NF_GATEWAY, 0, BYTE, 15, 6 },
	{ "ARP of operation 3", NETMSG_DROP_MALFORMED, 0, K_ARP, NF_GATEWAY, 0, BYTE, 21, 3 },
	{ "ARP in another's name", NETMSG_DROP_SPOOFED, 0, K_ARP, NF_GATEWAY, 0, BYTE, 31, 1 },
	{ "ARP with another's MAC", NETMSG_DROP_SPOOFED, 0, K_ARP, NF_GATEWAY, 0, BYTE, 27, 1 },
};

static void build(const struct reason *t)
{
	uint8_t options[4];

	switch (t->kind) {
	case K_SYN:
		nf_tcp(&f, NF_GUEST, GUEST_PORT, t->dst, t->port, SYN, 1000, 0, 0);
		break;
	case K_ACK:
		nf_tcp(&f, NF_GUEST, GUEST_PORT, t->dst, t->port, ACK, 1000, 77, 3);
		break;
	case K_UDP:
		nf_udp(&f, NF_GUEST, GUEST_PORT, t->dst, t->port, 4);
		break;
	case K_ICMP:
		nf_ip(&f, 1, NF_GUEST, t->dst, 8);
		break;
	case K_ARP:
		nf_arp(&f, 1, NF_GUEST, t->dst);
		break;
	}
	switch (t->change) {
	case NONE:
		break;
	case CUT:
		f.len = t->at;
		break;
	case BYTE:
	case BYTE_FIX:
		f.b[t->at] = (uint8_t)t->v;
		if (t->change == BYTE_FIX)
			nf_fix(&f);
		break;
	case WORD_FIX:
		nf16(f.b + t->at, t->v);
		nf_fix(&f);
		break;
	case PAD:
		memset(f.b + f.len, 0, t->at);
		f.len += t->at;
		break;
	case TYPE:
		nf16(f.b + 12, t->v);
		break;
	case OPTIONS: /* of zeros: the sum of 20 bytes is that of all */
		memmove(f.b + 14 + t->v * 4, f.b + 34, f.len - 34);
		memset(f.b + 34, 0, t->v * 4 - 20);
		f.len += t->v * 4 - 20;
		f.b[14] = (uint8_t)(0x40 | t->v);
		nf16(f.b + 16, (unsigned)f.len - 14);
		nf16(f.b + 24, 0);
		nf16(f.b + 24, (uint16_t)~nf_sum(0, f.b + 14, t->v * 4));
		break;
	case TCP_OPTS:
		nf32(options, t->v);
		memcpy(f.b + f.len, options, 4);
		f.len += 4;
		nf16(f.b + 16, 44);
		f.b[46] = 0x60;
		nf_fix(&f);
		break;
	}
}

static void test_reasons(void **state UNUSED)
{
	bool seen[NETMSG_DROPS] = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
		const struct reason *t = &reasons[i];
		struct gate *g = new_gate(false, false, 0, 0, 64);

		assert_int_equal(gate_open(g, HOST, 443), 0);
		assert_int_equal(gate_open(g, NF_SERVICE, 8080), 0);
		build(t);
		judge(g, GATE_GUEST);
		if (o.why != t->want || o.verdict != t->verdict)
			fail_msg("%s: verdict %d, why %u (%s)", t->why, o.verdict, o.why,
			         o.why ? netmsg_drop_name(o.why) : "-");
		if ((o.verdict == GATE_TO_SLIRP) != (gate_flows(g, NULL) == 1))
			fail_msg("%s: %zu flows", t->why, gate_flows(g, NULL));
		seen[o.why] = true;
		gate_free(g);
	}
	/* those have tests of their own */
	seen[NETMSG_DROP_FLOWS] = seen[NETMSG_DROP_DNS] = seen[NETMSG_DROP_PEER] = true;
	for (unsigned i = 1; i < NETMSG_DROPS; i++) {
		if (!seen[i])
			fail_msg("no row for '%s'", netmsg_drop_name(i));
	}
}

/* ---- what is answered --------------------------------------------------- */

static void test_replies(void **state UNUSED)
{
	static const uint8_t guest[] = NF_GUEST_MAC, gateway[] = NF_GATEWAY_MAC;
	struct gate *g = new_gate(false, false, 0, 0, 64);

	nf_tcp(&f, NF_GUEST, GUEST_PORT, OTHER, 443, SYN, 1000, 0, 5);
	judge(g, GATE_GUEST);
	assert_int_equal(o.reply_len, 54);
	assert_memory_equal(o.reply, guest, 6);
	assert_memory_equal(o.reply + 6, gateway, 6);
	assert_int_equal(nf_g32(o.reply + 26), OTHER);
	assert_int_equal(nf_g32(o.reply + 30), NF_GUEST);
	assert_int_equal(nf_g16(o.reply + 34), 443);
	assert_int_equal(nf_g16(o.reply + 36), GUEST_PORT);
	assert_int_equal(nf_g32(o.reply + 42), 1000 + 1 + 5);
	assert_int_equal(o.reply[47], RST | ACK);
	assert_int_equal(nf_sum(0, o.reply + 14, 20), 0xffff);
	assert_int_equal(nf_l4_sum(o.reply + 14, 20), 0xffff);

	nf_tcp(&f, NF_GUEST, GUEST_PORT, OTHER, 443, ACK, 1000, 99, 5);
	judge(g, GATE_GUEST);
	assert_int_equal(nf_g32(o.reply + 38), 99);
	assert_int_equal(o.reply[47], RST);

	nf_tcp(&f, NF_GUEST, GUEST_PORT, OTHER, 443, RST, 1000, 0, 0);
	judge(g, GATE_GUEST);
	assert_int_equal(o.reply_len, 0);

	nf_udp(&f, NF_GUEST, GUEST_PORT, OTHER, 443, 100);
	judge(g, GATE_GUEST);
	assert_int_equal(o.reply_len, 14 + 20 + 8 + 28);
	assert_int_equal(o.reply[23], 1);
	assert_memory_equal(o.reply + 34, "\x03\x0d", 2);
	assert_memory_equal(o.reply + 42, f.b + 14, 28);
	assert_int_equal(nf_sum(0, o.reply + 34, 36), 0xffff);

	/* to everybody: no answer, it could be used to fill a network */
	memset(f.b, 255, 6);
	judge(g, GATE_GUEST);
	assert_int_equal(o.why, NETMSG_DROP_UDP);
	assert_int_equal(o.reply_len, 0);

	nf_arp(&f, 1, 0, IP4(203, 0, 113, 1));
	judge(g, GATE_GUEST);
	assert_int_equal(o.reply_len, 42);
	assert_memory_equal(o.reply + 22, gateway, 6);
	assert_int_equal(nf_g32(o.reply + 28), IP4(203, 0, 113, 1));
	static const struct {
		unsigned op;
		uint32_t sender, target;
	} silent[] = { { 1, NF_GUEST, NF_GUEST },
		       { 1, 0, NF_GUEST },
		       { 2, NF_GUEST, NF_GATEWAY },
		       { 1, 0, 0 } };
	for (size_t i = 0; i < ARRAY_LEN(silent); i++) {
		nf_arp(&f, silent[i].op, silent[i].sender, silent[i].target);
		judge(g, GATE_GUEST);
		assert_int_equal(o.reply_len, 0);
		assert_int_equal(o.why, 0);
	}
	gate_free(g);
}

/* ---- a flow ------------------------------------------------------------- */

static void up(struct gate *g, unsigned flags, uint32_t seq, uint32_t ack, size_t payload)
{
	nf_tcp(&f, NF_GUEST, GUEST_PORT, HOST, 443, flags, seq, ack, payload);
	judge(g, GATE_GUEST);
}

static void down(struct gate *g, unsigned flags, uint32_t seq, uint32_t ack, unsigned window,
                 size_t payload)
{
	nf_tcp(&f, HOST, 443, NF_GUEST, GUEST_PORT, flags, seq, ack, payload);
	nf16(nf_l4_of(&f) + 14, window);
	judge(g, GATE_TERMINATOR);
}

enum { ISS = 0xfffffff0, IRS = 0xffffff00 }; /* both wrap */
#define U(n) ((uint32_t)ISS + 1 + (uint32_t)(n))
#define D(n) ((uint32_t)IRS + 1 + (uint32_t)(n))

static struct gate *open_flow(unsigned window)
{
	struct gate *g = new_gate(false, false, 4, 2, 64);
	size_t half;

	assert_int_equal(gate_open(g, HOST, 443), 0);
	up(g, SYN, ISS, 0, 0);
	assert_true(o.verdict == GATE_TO_SLIRP && o.syn);
	(void)gate_flows(g, &half);
	assert_int_equal(half, 1);
	down(g, SYN | ACK, IRS, U(0), window, 0);
	assert_int_equal(o.verdict, GATE_TO_GUEST);
	up(g, ACK, U(0), D(0), 0);
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	assert_int_equal(gate_flows(g, &half), 1);
	assert_int_equal(half, 0);
	return g;
}

static void test_order(void **state UNUSED)
{
	static const struct {
		const char *why;
		int seq; /* behind 100 bytes that have passed, in a window of 1000 */
		size_t payload;
		unsigned flags;
		bool passes;
		int next; /* in the end: the next byte that is no gap */
	} t[] = {
		{ "next", 100, 10, ACK, true, 110 },
		{ "next, and an empty one", 100, 0, ACK, true, 100 },
		{ "one byte of a gap", 101, 10, ACK, false, 100 },
		{ "an empty one behind a gap", 101, 0, ACK, false, 100 },
		{ "sent again", 0, 100, ACK, true, 100 },
		{ "sent again in part", 90, 20, ACK, true, 110 },
		{ "keep-alive", 99, 0, ACK, true, 100 },
		{ "to the end of the window", 100, 900, ACK, true, 1000 },
		{ "one byte beyond it", 100, 901, ACK, true, 1000 },
		{ "half of the numbers away", 100 - (INT32_MAX), 10, ACK, true, 100 },
		{ "a FIN", 100, 0, ACK | FIN, true, 101 },
		{ "a FIN with bytes", 100, 10, ACK | FIN, true, 111 },
		{ "a FIN behind a gap", 105, 0, ACK | FIN, false, 100 },
		{ "a FIN that does not fit", 100, 901, ACK | FIN, true, 1000 },
		{ "a reset", 100, 0, RST, true, 100 },
		{ "a reset behind a gap", 101, 0, RST, false, 100 },
		{ "another SYN", 100, 0, SYN, false, 100 },
		{ "a SYN with ACK", 100, 0, SYN | ACK, false, 100 },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct gate *g = open_flow(1000);

		up(g, ACK, U(0), D(0), 100);
		assert_int_equal(o.verdict, GATE_TO_SLIRP);
		up(g, t[i].flags, U(t[i].seq), D(0), t[i].payload);
		if ((o.verdict == GATE_TO_SLIRP) != t[i].passes || o.why)
			fail_msg("%s: verdict %d, why %u", t[i].why, o.verdict, o.why);
		up(g, ACK, U(t[i].next), D(0), 1);
		if (o.verdict != GATE_TO_SLIRP)
			fail_msg("%s: %d is a gap", t[i].why, t[i].next);
		up(g, ACK, U(t[i].next + 2), D(0), 1);
		if (o.verdict != GATE_DROP)
			fail_msg("%s: %d is no gap", t[i].why, t[i].next + 2);
		gate_free(g);
	}
}

static void test_window(void **state UNUSED)
{
	struct gate *g = open_flow(10);

	up(g, ACK, U(0), D(0), 10);
	up(g, ACK, U(10), D(0), 1); /* a probe: passes, and does not count */
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	up(g, ACK, U(11), D(0), 1);
	assert_int_equal(o.verdict, GATE_DROP);
	down(g, ACK, D(0), U(10), 0, 0);
	up(g, ACK, U(11), D(0), 1);
	assert_int_equal(o.verdict, GATE_DROP);
	down(g, ACK, D(0), U(11), 5, 0); /* it was taken after all */
	up(g, ACK, U(11), D(0), 5);
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	up(g, ACK, U(17), D(0), 1);
	assert_int_equal(o.verdict, GATE_DROP);
	/* an acknowledgement of what was not sent */
	up(g, ACK, U(16), D(1), 0);
	assert_int_equal(o.verdict, GATE_DROP);
	down(g, ACK, D(0), U(16), 5, 1);
	up(g, ACK, U(16), D(1), 0);
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	gate_free(g);
}

static void test_half_open(void **state UNUSED)
{
	struct gate *g = new_gate(false, false, 4, 2, 64);
	size_t half;

	assert_int_equal(gate_open(g, HOST, 443), 0);
	up(g, SYN, ISS, 0, 9);
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	assert_int_equal(o.len, 54); /* what it carried was cut off */
	assert_int_equal(nf_g16(f.b + 16), 40);
	assert_int_equal(nf_sum(0, f.b + 14, 20), 0xffff);
	assert_int_equal(nf_l4_sum(f.b + 14, 20), 0xffff);
	int flow = o.flow;
	struct gate_flow_key k = gate_flow_key(g, flow);
	assert_true(k.addr == HOST && k.port == 443 && k.guest_port == GUEST_PORT);
	up(g, ACK, U(0), D(0), 0); /* to what was not said */
	assert_int_equal(o.verdict, GATE_DROP);
	up(g, SYN, ISS + 99, 0, 0);
	assert_int_equal(o.verdict, GATE_DROP);
	down(g, SYN | ACK, IRS, U(0), 1000, 0);
	for (int d = -1; d <= 1; d += 2) {
		up(g, ACK, U(0), D(d), 0);
		assert_int_equal(o.verdict, GATE_DROP);
	}
	up(g, ACK, U(0), D(0), 1001); /* more than it may */
	assert_int_equal(o.verdict, GATE_DROP);
	(void)gate_flows(g, &half);
	assert_int_equal(half, 1);
	up(g, ACK, U(0), D(0), 1000);
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	(void)gate_flows(g, &half);
	assert_int_equal(half, 0);
	/* what the guest says does not free it */
	up(g, RST, U(1000), 0, 0);
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	assert_int_equal(gate_flows(g, NULL), 1);
	gate_flow_gone(g, flow);
	assert_int_equal(gate_flows(g, NULL), 0);
	up(g, ACK, U(1000), D(0), 0);
	assert_true(o.verdict == GATE_DROP && o.why == 0 && o.reply_len);
	gate_free(g);
}

static void test_caps(void **state UNUSED)
{
	struct gate *g = new_gate(false, false, 4, 2, 64);
	int flows[4];

	assert_int_equal(gate_open(g, HOST, 443), 0);
	for (unsigned i = 0; i < 6; i++) {
		nf_tcp(&f, NF_GUEST, 100 + i, HOST, 443, SYN, 0, 0, 0);
		judge(g, GATE_GUEST);
		if (i == 5) { /* four in all */
			assert_int_equal(o.why, NETMSG_DROP_FLOWS);
			assert_int_equal(o.reply[47], RST | ACK);
			continue;
		}
		assert_int_equal(o.verdict, GATE_TO_SLIRP);
		flows[i - (i > 2)] = o.flow;
		if (i < 1)
			continue;
		/* the first two, and the fourth, are opened */
		for (unsigned k = i == 1 ? 0 : i; k <= i; k++) {
			nf_tcp(&f, HOST, 443, NF_GUEST, 100 + k, SYN | ACK, 0, 1, 0);
			judge(g, GATE_TERMINATOR);
		}
		if (i == 1) {
			nf_tcp(&f, NF_GUEST, 102, HOST, 443, SYN, 0, 0, 0);
			judge(g, GATE_GUEST);
			/* two of them half-open: it comes again, and nothing is said */
			assert_true(o.verdict == GATE_DROP && o.why == 0 && !o.reply_len);
		}
		for (unsigned k = i == 1 ? 0 : i; k <= i; k++) {
			nf_tcp(&f, NF_GUEST, 100 + k, HOST, 443, ACK, 1, 1, 0);
			judge(g, GATE_GUEST);
			assert_int_equal(o.verdict, GATE_TO_SLIRP);
		}
		if (i == 1)
			i++;
	}
	assert_int_equal(gate_flows(g, NULL), 4);
	gate_flow_gone(g, flows[1]);
	nf_tcp(&f, NF_GUEST, 999, HOST, 443, SYN, 0, 0, 0);
	judge(g, GATE_GUEST);
	assert_int_equal(o.verdict, GATE_TO_SLIRP);
	gate_free(g);
}

static void test_done(void **state UNUSED)
{
	uint8_t rst[GATE_REPLY_MAX];

	/* the far end closes first, and its terminator would wait */
	struct gate *g = open_flow(1000);
	down(g, FIN | ACK, D(0), U(0), 1000, 3);
	up(g, ACK, U(0), D(4), 5);
	assert_int_equal(gate_flow_done(g), GATE_NO_FLOW);
	up(g, ACK | FIN, U(5), D(4), 0);
	assert_int_equal(gate_flow_done(g), GATE_NO_FLOW);
	down(g, ACK, D(4), U(6), 1000, 0);
	int flow = gate_flow_done(g);
	assert_int_not_equal(flow, GATE_NO_FLOW);
	assert_int_equal(gate_flow_done(g), GATE_NO_FLOW);
	assert_int_equal(gate_flow_reset_put(g, flow, rst, sizeof(rst)), 54);
	assert_int_equal(nf_g32(rst + 26), NF_GUEST);
	assert_int_equal(nf_g32(rst + 38), U(6));
	assert_int_equal(rst[47], RST | ACK);
	assert_int_equal(gate_flow_reset_put(g, flow, rst, 53), 0);
	assert_int_equal(gate_flow_refuse_put(g, flow, rst, sizeof(rst)), 54);
	assert_int_equal(nf_g32(rst + 38), D(4));
	assert_int_equal(nf_g32(rst + 30), NF_GUEST);
	gate_free(g);

	/* gone while it stands in the list: its entry is somebody else's then */
	g = open_flow(1000);
	down(g, FIN | ACK, D(0), U(0), 1000, 0);
	down(g, ACK, D(1), U(1), 1000, 0);
	up(g, ACK | FIN, U(0), D(1), 0);
	flow = o.flow;
	gate_flow_gone(g, flow);
	assert_int_equal(gate_flow_done(g), GATE_NO_FLOW);
	gate_free(g);
}

static void test_urgent(void **state UNUSED)
{
	struct gate *g = new_gate(false, false, 4, 2, 64);
	assert_int_equal(gate_open(g, HOST, 443), 0);
	up(g, SYN | URG, ISS, 0, 0); /* libslirp makes no flow of such a one */
	assert_true(o.syn && nf_l4_of(&f)[13] == SYN);
	gate_free(g);
	for (unsigned i = 0; i < 3; i++) {
		g = open_flow(1000);
		nf_tcp(&f, NF_GUEST, GUEST_PORT, HOST, 443, i < 2 ? ACK | URG : ACK, U(0), D(0), 5);
		nf16(nf_l4_of(&f) + 18, i == 1 ? 0 : 2000);
		nf_fix(&f);
		judge(g, GATE_GUEST);
		assert_int_equal(o.verdict, GATE_TO_SLIRP);
		assert_int_equal(nf_l4_of(&f)[13], ACK);
		assert_int_equal(nf_g16(nf_l4_of(&f) + 18), 0);
		assert_int_equal(nf_l4_sum(nf_ip_of(&f), 25), 0xffff);
		gate_free(g);
	}
}

static void test_down(void **state UNUSED)
{
	static const uint8_t guest[] = NF_GUEST_MAC, gateway[] = NF_GATEWAY_MAC;
	struct gate *g = open_flow(1000);

	nf_tcp(&f, HOST, 443, NF_GUEST, GUEST_PORT, ACK | URG, D(0), U(0), 5);
	memset(f.b, 0x52, 12);
	judge(g, GATE_TERMINATOR);
	assert_true(o.verdict == GATE_TO_GUEST && o.len == f.len && o.addr == HOST);
	assert_memory_equal(f.b, guest, 6);
	assert_memory_equal(f.b + 6, gateway, 6);
	assert_int_equal(nf_l4_of(&f)[13], ACK);
	/* of no flow: nothing but a reset */
	nf_tcp(&f, HOST, 80, NF_GUEST, GUEST_PORT, ACK, 1, 1, 5);
	judge(g, GATE_TERMINATOR);
	assert_int_equal(o.verdict, GATE_DROP);
	nf_tcp(&f, HOST, 80, NF_GUEST, GUEST_PORT, RST, 1, 0, 0);
	judge(g, GATE_TERMINATOR);
	assert_true(o.verdict == GATE_TO_GUEST && o.rst && o.flow == GATE_NO_FLOW);
	/* not for the guest; not TCP; not IP: libslirp has nothing of that to say */
	nf_tcp(&f, HOST, 443, NF_GUEST + 1, GUEST_PORT, ACK, D(0), U(0), 5);
	judge(g, GATE_TERMINATOR);
	assert_int_equal(o.verdict, GATE_DROP);
	nf_udp(&f, HOST, 443, NF_GUEST, GUEST_PORT, 5);
	judge(g, GATE_TERMINATOR);
	assert_int_equal(o.verdict, GATE_DROP);
	nf_arp(&f, 1, NF_GATEWAY, NF_GUEST);
	judge(g, GATE_TERMINATOR);
	assert_int_equal(o.verdict, GATE_DROP);
	f.len = 13;
	judge(g, GATE_TERMINATOR);
	assert_int_equal(o.verdict, GATE_DROP);
	gate_free(g);
}

/* ---- tables ------------------------------------------------------------- */

static bool syn_passes(struct gate *g, uint32_t addr, uint16_t port)
{
	nf_tcp(&f, NF_GUEST, GUEST_PORT, addr, port, SYN, 0, 0, 0);
	judge(g, GATE_GUEST);
	if (o.verdict != GATE_TO_SLIRP)
		return false;
	gate_flow_gone(g, o.flow);
	return true;
}

static void test_opens(void **state UNUSED)
{
	enum { N = 1000 };
	struct gate *g = new_gate(false, false, 4, 2, N);

	/* three ports of each address */
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(gate_open(g, HOST + i / 3, (uint16_t)(1000 + i % 3)), 0);
	assert_int_equal(gate_open(g, HOST, 1000), 0); /* it is */
	assert_int_equal(gate_open(g, HOST, 4000), -ENOSPC);
	assert_int_equal(gate_opens(g), N);
	for (uint32_t i = 0; i < N; i += 3)
		gate_close(g, HOST + i / 3, (uint16_t)(1000 + i / 3 % 3));
	for (uint32_t i = 0; i < N; i += 30)
		gate_close(g, HOST + i / 3, 0);
	gate_close(g, HOST, 4000); /* it is not */
	gate_close(g, HOST + N, 0);
	size_t n = 0;
	for (uint32_t i = 0; i < N; i++) {
		bool want = i % 3 != i / 3 % 3 && i / 3 % 10 != 0;

		n += want;
		if (syn_passes(g, HOST + i / 3, (uint16_t)(1000 + i % 3)) != want)
			fail_msg("%u", i);
	}
	assert_int_equal(gate_opens(g), n);
	gate_free(g);
}

static void test_flows_table(void **state UNUSED)
{
	enum { N = 1024 };
	struct gate *g = new_gate(true, false, N, N, 64);
	int flow[N];

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < N; i++) {
			if (round && i % 3 != round)
				continue;
			nf_tcp(&f, NF_GUEST, 1000 + i, HOST + i % 7, 443, SYN, i, 0, 0);
			judge(g, GATE_GUEST);
			assert_int_equal(o.verdict, GATE_TO_SLIRP);
			flow[i] = o.flow;
		}
		assert_int_equal(gate_flows(g, NULL), N);
		for (unsigned i = 0; i < N; i++) {
			struct gate_flow_key k = gate_flow_key(g, flow[i]);

			assert_true(k.guest_port == 1000 + i && k.addr == HOST + i % 7);
			nf_tcp(&f, NF_GUEST, 1000 + i, HOST + i % 7, 443, RST, i, 0, 0);
			judge(g, GATE_GUEST);
			assert_int_equal(o.flow, flow[i]);
		}
		for (unsigned i = 0; i < N; i++) {
			if (i % 3 == round + 1)
				gate_flow_gone(g, flow[i]);
		}
	}
	gate_free(g);
}

/* ---- other modes -------------------------------------------------------- */

static void test_permissive(void **state UNUSED)
{
	static const struct {
		uint32_t addr;
		uint16_t port;
		int tcp, udp;
	} t[] = {
		{ HOST, 443, 0, 0 },
		{ HOST, 25, NETMSG_DROP_PORT, NETMSG_DROP_PORT },
		{ IP4(10, 1, 2, 3), 80, NETMSG_DROP_CLOSED, NETMSG_DROP_CLOSED },
		{ IP4(192, 168, 7, 1), 80, 0, 0 }, /* allowed by the user */
		{ IP4(192, 168, 8, 1), 80, NETMSG_DROP_CLOSED, NETMSG_DROP_CLOSED },
		{ IP4(224, 0, 0, 1), 80, NETMSG_DROP_CLOSED, NETMSG_DROP_CLOSED },
		{ NF_SERVICE, 80, NETMSG_DROP_ADDRESS, NETMSG_DROP_UDP },
		{ NF_GATEWAY, 80, NETMSG_DROP_CLOSED, NETMSG_DROP_CLOSED },
		{ NF_GUEST, 80, NETMSG_DROP_CLOSED, NETMSG_DROP_CLOSED },
	};
	struct egress *e = egress_new(EGRESS_PERMISSIVE), *was = closed;

	assert_int_equal(egress_allow_private(e, (struct ip4_net){ IP4(192, 168, 7, 0), 24 }), 0);
	closed = e;
	struct gate *g = new_gate(true, false, 4, 2, 64);
	closed = was;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		nf_tcp(&f, NF_GUEST, GUEST_PORT, t[i].addr, t[i].port, SYN, 0, 0, 0);
		judge(g, GATE_GUEST);
		assert_int_equal(o.why, t[i].tcp);
		if (o.verdict == GATE_TO_SLIRP)
			gate_flow_gone(g, o.flow);
		nf_udp(&f, NF_GUEST, GUEST_PORT, t[i].addr, t[i].port, 5);
		judge(g, GATE_GUEST);
		assert_int_equal(o.why, t[i].udp);
		assert_int_equal(o.verdict == GATE_IS_DATAGRAM, t[i].udp == 0);
		if (o.verdict == GATE_IS_DATAGRAM)
			assert_true(span_eq(o.payload, span_str("uuuuu")) && o.addr == t[i].addr &&
			            o.port == t[i].port && o.guest_port == GUEST_PORT);
	}
	gate_free(g);
	egress_free(e);
}

static void test_shared(void **state UNUSED)
{
	struct gate *g = new_gate(false, true, 4, 2, 64);

	gate_peer(g, PEER, true);
	gate_peer(g, SHARED, true);             /* itself: is not */
	gate_peer(g, IP4(10, 87, 0, 15), true); /* no address of a sandbox */
	gate_peer(g, IP4(10, 87, 255, 2), true);
	static const struct {
		const char *why;
		uint32_t dst;
		bool passes;
	} to[] = {
		{ "a sandbox", PEER, true },
		{ "none", NOPEER, false },
		{ "itself", SHARED, false },
		{ "below the range", IP4(10, 87, 0, 15), false },
		{ "above it", IP4(10, 87, 255, 2), false },
		{ "everybody", IP4(10, 87, 255, 255), false },
	};
	for (size_t i = 0; i < ARRAY_LEN(to); i++) {
		nf_tcp(&f, SHARED, GUEST_PORT, to[i].dst, 25, SYN, 0, 0, 0);
		judge(g, GATE_GUEST);
		if ((o.verdict == GATE_TO_SWITCH) != to[i].passes)
			fail_msg("%s: TCP", to[i].why);
		nf_udp(&f, SHARED, GUEST_PORT, to[i].dst, 9, 5);
		judge(g, GATE_GUEST);
		if ((o.verdict == GATE_TO_SWITCH) != to[i].passes)
			fail_msg("%s: UDP", to[i].why);
		nf_ip(&f, 1, SHARED, to[i].dst, 8);
		judge(g, GATE_GUEST);
		assert_int_equal(o.why, NETMSG_DROP_ICMP);
	}
	nf_tcp(&f, SHARED, GUEST_PORT, NOPEER, 80, SYN, 0, 0, 0);
	judge(g, GATE_GUEST);
	assert_true(o.why == NETMSG_DROP_PEER && o.reply[47] == (RST | ACK));
	/* answers to a connection from there pass without a flow */
	nf_tcp(&f, SHARED, 80, PEER, GUEST_PORT, SYN | ACK | URG, 0, 1, 0);
	judge(g, GATE_GUEST);
	assert_true(o.verdict == GATE_TO_SWITCH && nf_l4_of(&f)[13] == (SYN | ACK));

	static const struct {
		const char *why;
		uint32_t src, dst;
		enum change change;
		size_t at;
		uint32_t v;
		bool passes;
	} from[] = {
		{ "a sandbox", PEER, SHARED, NONE, 0, 0, true },
		{ "none", NOPEER, SHARED, NONE, 0, 0, false },
		{ "itself", SHARED, SHARED, NONE, 0, 0, false },
		{ "the world", HOST, SHARED, NONE, 0, 0, false },
		{ "the gateway", NF_GATEWAY, SHARED, NONE, 0, 0, false },
		{ "for another", PEER, NOPEER, NONE, 0, 0, false },
		{ "a fragment", PEER, SHARED, WORD_FIX, 20, 0x2000, false },
		{ "ICMP", PEER, SHARED, BYTE_FIX, 23, 1, false },
		{ "padded", PEER, SHARED, PAD, 1, 0, false },
		{ "cut", PEER, SHARED, CUT, 53, 0, false },
		{ "TCP checksum", PEER, SHARED, BYTE, 50, 0x5a, false },
	};
	for (size_t i = 0; i < ARRAY_LEN(from); i++) {
		nf_tcp(&f, from[i].src, 80, from[i].dst, GUEST_PORT, SYN, 0, 0, 0);
		if (from[i].change == PAD)
			f.b[f.len++] = 0;
		else if (from[i].change == CUT)
			f.len = from[i].at;
		else if (from[i].change == WORD_FIX)
			nf16(f.b + from[i].at, from[i].v);
		else if (from[i].change != NONE)
			f.b[from[i].at] = (uint8_t)from[i].v;
		if (from[i].change == WORD_FIX || from[i].change == BYTE_FIX)
			nf_fix(&f);
		judge(g, GATE_PEER);
		if ((o.verdict == GATE_TO_GUEST) != from[i].passes ||
		    (o.why == NETMSG_DROP_PEER) == from[i].passes)
			fail_msg("from %s: verdict %d why %u", from[i].why, o.verdict, o.why);
	}
	gate_peer(g, PEER, false);
	nf_tcp(&f, SHARED, GUEST_PORT, PEER, 80, SYN, 0, 0, 0);
	judge(g, GATE_GUEST);
	assert_int_equal(o.why, NETMSG_DROP_PEER);
	gate_free(g);
	/* an isolated sandbox has no peers, whatever it is told */
	g = new_gate(false, false, 4, 2, 64);
	gate_peer(g, PEER, true);
	nf_tcp(&f, NF_GUEST, GUEST_PORT, PEER, 80, SYN, 0, 0, 0);
	judge(g, GATE_GUEST);
	assert_int_equal(o.why, NETMSG_DROP_CLOSED);
	nf_tcp(&f, PEER, 80, NF_GUEST, GUEST_PORT, SYN, 0, 0, 0);
	judge(g, GATE_PEER);
	assert_int_equal(o.verdict, GATE_DROP);
	gate_free(g);
}

static void test_dhcp_gate(void **state UNUSED)
{
	static const struct {
		const char *why;
		uint32_t src, dst;
		uint16_t sport, dport;
		bool bcast, dhcp;
	} t[] = {
		{ "to everybody", 0, UINT32_MAX, 68, 67, true, true },
		{ "with its address", NF_GUEST, UINT32_MAX, 68, 67, true, true },
		{ "renewal", NF_GUEST, NF_GATEWAY, 68, 67, false, true },
		{ "another port", 0, UINT32_MAX, 69, 67, true, false },
		{ "to the client's port", 0, UINT32_MAX, 68, 68, true, false },
		{ "no address, to one card", 0, UINT32_MAX, 68, 67, false, false },
		{ "another's address", HOST, UINT32_MAX, 68, 67, true, false },
		{ "to another server", NF_GUEST, HOST, 68, 67, false, false },
	};
	struct gate *g = new_gate(false, false, 4, 2, 64);

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		nf_udp(&f, t[i].src, t[i].sport, t[i].dst, t[i].dport, 5);
		if (t[i].bcast)
			memset(f.b, 255, 6);
		judge(g, GATE_GUEST);
		if ((o.verdict == GATE_IS_DHCP) != t[i].dhcp)
			fail_msg("%s: verdict %d, why %u", t[i].why, o.verdict, o.why);
	}
	gate_free(g);
}

/* ---- drops -------------------------------------------------------------- */

#define S UINT64_C(1000000000)

static void test_drops(void **state UNUSED)
{
	struct drops d = { 0 };
	struct netmsg m;
	uint64_t now = 100 * S;

	assert_false(drops_take(&d, now, &m));
	assert_int_equal(drops_wait_ms(&d, now), -1);
	for (int i = 0; i < 5; i++)
		drops_add(&d, NETMSG_DROP_UDP, 17, HOST, 53);
	assert_int_equal(drops_wait_ms(&d, now), 0);
	assert_true(drops_take(&d, now, &m));
	assert_int_equal(m.dropped.count, 5);
	assert_true(m.type == NETMSG_DROPPED && m.dropped.why == NETMSG_DROP_UDP &&
	            m.dropped.proto == 17 && m.dropped.addr == HOST && m.dropped.port == 53);
	assert_false(drops_take(&d, now, &m));
	drops_add(&d, NETMSG_DROP_UDP, 17, HOST, 53); /* the same: in a second */
	drops_add(&d, NETMSG_DROP_UDP, 17, HOST, 54); /* another: now */
	assert_true(drops_take(&d, now, &m));
	assert_int_equal(m.dropped.port, 54);
	assert_false(drops_take(&d, now + S - 1, &m));
	assert_int_equal(drops_wait_ms(&d, now + S - 1000000), 2);
	assert_true(drops_take(&d, now + S, &m));
	assert_int_equal(m.dropped.count, 1);
	assert_int_equal(d.total, 7);
}

static void test_drops_limit(void **state UNUSED)
{
	struct drops d = { 0 };
	struct netmsg m;
	uint64_t now = 100 * S, total = 0;
	unsigned said = 0, rest = 0;

	for (unsigned i = 0; i < 10000; i++)
		drops_add(&d, NETMSG_DROP_ADDRESS, 6, HOST + i, 443);
	while (drops_take(&d, now, &m)) {
		said++;
		total += m.dropped.count;
	}
	assert_int_equal(said, DROPS_PER_S);
	assert_true(drops_wait_ms(&d, now) > 900);
	for (int i = 1; drops_wait_ms(&d, now) >= 0; i++) {
		assert_true(i < 10);
		now += S;
		while (drops_take(&d, now, &m)) {
			total += m.dropped.count;
			rest += m.dropped.addr == 0;
		}
	}
	assert_int_equal(total, 10000);
	assert_int_equal(rest, 1); /* what had no entry, under its reason */
}

/* ---- DHCP --------------------------------------------------------------- */

struct dhcp_in {
	size_t len;
	uint8_t b[600];
};

static struct dhcp_in dhcp_request(const char *options, size_t n)
{
	static const uint8_t mac[] = NF_GUEST_MAC;
	struct dhcp_in in = { .len = 240 + n, .b = { 1, 1, 6, 0 } };

	nf32(in.b + 4, 0x12345678);
	memcpy(in.b + 28, mac, 6);
	nf32(in.b + 236, 0x63825363);
	memcpy(in.b + 240, options, n);
	return in;
}

#define OPTS(s) s, sizeof(s) - 1

static void test_dhcp_parse(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		const char *options;
		size_t n;
		int at; /* of a byte to change; -1: none */
		uint8_t v;
	} t[] = {
		{ "discover", 0, OPTS("\x35\1\1\xff"), -1, 0 },
		{ "request", 0, OPTS("\x35\1\3\x32\4\1\2\3\4\x36\4\5\6\7\10\xff"), -1, 0 },
		{ "inform", 0, OPTS("\x35\1\10\xff"), -1, 0 },
		{ "padding, and options we do not know", 0,
		  OPTS("\0\0\x35\1\1\0\x37\3\1\2\3\xff\0\0"), -1, 0 },
		{ "release", -ENOTSUP, OPTS("\x35\1\7\xff"), -1, 0 },
		{ "decline", -ENOTSUP, OPTS("\x35\1\4\xff"), -1, 0 },
		{ "an answer's type", -ENOTSUP, OPTS("\x35\1\2\xff"), -1, 0 },
		{ "type 9", -EPROTO, OPTS("\x35\1\11\xff"), -1, 0 },
		{ "type 0", -EPROTO, OPTS("\x35\1\0\xff"), -1, 0 },
		{ "no type", -EPROTO, OPTS("\xff"), -1, 0 },
		{ "no end", -EPROTO, OPTS("\x35\1\1"), -1, 0 },
		{ "no options", -EPROTO, OPTS(""), -1, 0 },
		{ "something behind the end", -EPROTO, OPTS("\x35\1\1\xff\1"), -1, 0 },
		{ "two types", -EPROTO, OPTS("\x35\1\1\x35\1\1\xff"), -1, 0 },
		{ "a type of two bytes", -EPROTO, OPTS("\x35\2\1\1\xff"), -1, 0 },
		{ "an address of three bytes", -EPROTO, OPTS("\x35\1\3\x32\3\1\2\3\xff"), -1, 0 },
		{ "two servers", -EPROTO, OPTS("\x35\1\3\x36\4aaaa\x36\4aaaa\xff"), -1, 0 },
		{ "overload", -EPROTO, OPTS("\x35\1\1\x34\1\1\xff"), -1, 0 },
		{ "an option cut", -EPROTO, OPTS("\x35\1\1\x37\5\1\2"), -1, 0 },
		{ "an option without a length", -EPROTO, OPTS("\x35\1\1\x37"), -1, 0 },
		{ "a reply", -EPROTO, OPTS("\x35\1\1\xff"), 0, 2 },
		{ "another hardware", -EPROTO, OPTS("\x35\1\1\xff"), 1, 6 },
		{ "an address of eight bytes", -EPROTO, OPTS("\x35\1\1\xff"), 2, 8 },
		{ "by a relay agent", -EPROTO, OPTS("\x35\1\1\xff"), 3, 1 },
		{ "another cookie", -EPROTO, OPTS("\x35\1\1\xff"), 239, 0x64 },
	};
	struct dhcp_request q;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct dhcp_in in = dhcp_request(t[i].options, t[i].n);

		if (t[i].at >= 0)
			in.b[t[i].at] = t[i].v;
		int r = dhcp_parse(&q, span_of(in.b, in.len));
		if (r != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, r, t[i].want);
	}
	struct dhcp_in in = dhcp_request(OPTS("\x35\1\3\x32\4\1\2\3\4\x36\4\5\6\7\10\xff"));
	in.b[10] = 0x80;
	nf32(in.b + 12, NF_GUEST);
	assert_int_equal(dhcp_parse(&q, span_of(in.b, in.len)), 0);
	assert_true(q.type == DHCP_REQUEST && q.broadcast && q.xid == 0x12345678 &&
	            q.client == NF_GUEST && q.requested == 0x01020304 && q.server == 0x05060708);
	assert_int_equal(dhcp_parse(&q, span_of(in.b, 239)), -EPROTO);
}

static void test_dhcp_answers(void **state UNUSED)
{
	const struct dhcp_config c = { .addr = NF_GUEST,
		                       .mask = IP4(255, 255, 0, 0),
		                       .router = NF_GATEWAY,
		                       .dns = NF_GATEWAY,
		                       .server = NF_GATEWAY,
		                       .mtu = 16000,
		                       .search = "a.cloche" };
	static const struct {
		const char *why;
		struct dhcp_request q;
		enum dhcp_type want;
	} t[] = {
		{ "discover", { .type = DHCP_DISCOVER, .requested = 1 }, DHCP_OFFER },
		{ "takes ours",
		  { .type = DHCP_REQUEST, .server = NF_GATEWAY, .requested = NF_GUEST },
		  DHCP_ACK },
		{ "takes another's",
		  { .type = DHCP_REQUEST, .server = HOST, .requested = NF_GUEST },
		  DHCP_NONE },
		{ "wants another", { .type = DHCP_REQUEST, .requested = HOST }, DHCP_NAK },
		{ "renews", { .type = DHCP_REQUEST, .client = NF_GUEST }, DHCP_ACK },
		{ "renews another", { .type = DHCP_REQUEST, .client = HOST }, DHCP_NAK },
		{ "wants nothing", { .type = DHCP_REQUEST }, DHCP_NAK },
		{ "asks only", { .type = DHCP_INFORM, .client = NF_GUEST }, DHCP_ACK },
		{ "asks with another address", { .type = DHCP_INFORM, .client = HOST }, DHCP_NONE },
	};
	uint8_t b[DHCP_ANSWER_MAX];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (dhcp_decide(&t[i].q, &c) != t[i].want)
			fail_msg("%s", t[i].why);
	}
	struct dhcp_request q = { .type = DHCP_DISCOVER, .xid = 7, .broadcast = true };
	size_t n = dhcp_answer_put(b, sizeof(b), &q, &c, DHCP_OFFER);
	assert_int_equal(n, 300);
	assert_true(b[0] == 2 && nf_g32(b + 4) == 7 && b[10] == 0x80 && nf_g32(b + 16) == NF_GUEST);
	static const char search[] = "\x77\x0a\1a\6cloche";
	bool found = false;
	for (size_t i = 240; i + sizeof(search) <= n; i++)
		found |= memcmp(b + i, search, sizeof(search)) == 0;
	assert_true(found);
	assert_int_equal(dhcp_answer_put(b, 260, &q, &c, DHCP_OFFER), 0);
	/* a domain that is none is left out */
	struct dhcp_config bad = c;
	static const char *const domains[] = { "", ".", "a..b", "a.", NULL };
	for (size_t i = 0; i < ARRAY_LEN(domains); i++) {
		bad.search = domains[i];
		assert_int_equal(dhcp_answer_put(b, sizeof(b), &q, &bad, DHCP_OFFER), 300);
		for (size_t k = 240; k < n; k++)
			assert_int_not_equal(b[k], 119);
	}
}

/* ---- framing ------------------------------------------------------------ */

static void test_stream(void **state UNUSED)
{
	struct stream_in in;
	struct stream_out out;
	uint8_t *p;
	size_t len;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	stream_in_init(&in);
	stream_out_init(&out);
	assert_int_equal(stream_fill(&in, sv[1]), -EAGAIN);
	assert_int_equal(stream_next(&in, &p, &len), 0);
	/* byte for byte, and two at once */
	static const uint8_t wire[] = { 0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0, 0, 0, 0, 1, 'c' };
	for (size_t i = 0; i < sizeof(wire); i++) {
		assert_int_equal(write(sv[0], wire + i, 1), 1);
		assert_int_equal(stream_fill(&in, sv[1]), 1);
		int r = stream_next(&in, &p, &len);
		assert_int_equal(r, i == 5 || i == 9 || i == 14);
		if (i == 5)
			assert_true(len == 2 && memcmp(p, "ab", 2) == 0);
		if (i == 9)
			assert_int_equal(len, 0);
		if (i == 14)
			assert_true(len == 1 && *p == 'c');
	}
	/* the largest, and one more */
	uint8_t head[4];
	nf32(head, STREAM_FRAME_MAX);
	assert_int_equal(write(sv[0], head, 4), 4);
	assert_int_equal(stream_fill(&in, sv[1]), 4);
	assert_int_equal(stream_next(&in, &p, &len), 0);
	nf32(head, STREAM_FRAME_MAX + 1);
	in.at = in.end = 0;
	assert_int_equal(write(sv[0], head, 4), 4);
	assert_int_equal(stream_fill(&in, sv[1]), 4);
	assert_int_equal(stream_next(&in, &p, &len), -EPROTO);
	/* out: what is taken back is not sent, nor is a length of 0 */
	uint8_t *dst = stream_reserve(&out, 100);
	assert_non_null(dst);
	stream_commit(&out, 0);
	assert_int_equal(stream_waiting(&out), 0);
	dst = stream_reserve(&out, 100);
	memcpy(dst, "xyz", 3);
	stream_commit(&out, 3);
	assert_int_equal(stream_waiting(&out), 7);
	assert_int_equal(stream_flush(&out, sv[1]), 0);
	uint8_t got[16];
	assert_int_equal(read(sv[0], got, sizeof(got)), 7);
	assert_memory_equal(got, "\0\0\0\3xyz", 7);
	/* until it is full, and all of it arrives */
	size_t frames = 0, bytes = 0;
	while ((dst = stream_reserve(&out, STREAM_FRAME_MAX))) {
		memset(dst, (int)frames, STREAM_FRAME_MAX);
		stream_commit(&out, STREAM_FRAME_MAX);
		frames++;
	}
	assert_int_equal(frames, STREAM_OUT_BYTES / (STREAM_FRAME_MAX + 4));
	in.at = in.end = 0;
	for (size_t i = 0; i < frames;) {
		assert_int_equal(stream_flush(&out, sv[1]), 0);
		assert_true(stream_fill(&in, sv[0]) > 0);
		while (stream_next(&in, &p, &len) == 1) {
			assert_true(len == STREAM_FRAME_MAX && p[0] == (uint8_t)i &&
			            p[len - 1] == (uint8_t)i);
			bytes += len;
			i++;
			/* room again in the middle of it */
			dst = stream_reserve(&out, 1);
			if (dst)
				stream_commit(&out, 0);
		}
	}
	assert_int_equal(bytes, frames * STREAM_FRAME_MAX);
	assert_int_equal(stream_waiting(&out), 0);
	assert_int_equal(close(sv[0]), 0);
	assert_int_equal(stream_fill(&in, sv[1]), 0);
	assert_non_null(stream_reserve(&out, 1));
	stream_commit(&out, 1);
	assert_int_equal(stream_flush(&out, sv[1]), -EPIPE);
	stream_in_fini(&in);
	stream_out_fini(&out);
	(void)close(sv[1]);
}

/* ---- the shared network ------------------------------------------------- */

static void test_swmsg(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		const char *b;
		size_t n;
	} t[] = {
		{ "nothing", -EPROTO, OPTS("") },
		{ "type 0", -EPROTO, OPTS("\0") },
		{ "type 8", -EPROTO, OPTS("\10") },
		{ "hello", 0, OPTS("\1\0\0\0\0\0demo") },
		{ "hello, kept", 0,
		  OPTS("\1\1\x10\0\x57\x0a"
		       "a") },
		{ "hello, kept twice", -EPROTO, OPTS("\1\2\0\0\0\0demo") },
		{ "hello of nobody", -EPROTO, OPTS("\1\0\0\0\0\0") },
		{ "a name with a dot", -EPROTO, OPTS("\1\0\0\0\0\0a.b") },
		{ "a name in capitals", -EPROTO, OPTS("\1\0\0\0\0\0A") },
		{ "a name that begins with a hyphen", -EPROTO, OPTS("\1\0\0\0\0\0-a") },
		{ "a name that ends with one", -EPROTO, OPTS("\1\0\0\0\0\0a-") },
		{ "a name that is taken", -EPROTO, OPTS("\1\0\0\0\0\0host") },
		{ "longest name", 0,
		  OPTS("\1\0\0\0\0\0"
		       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") },
		{ "one longer", -EPROTO,
		  OPTS("\1\0\0\0\0\0"
		       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") },
		{ "forget", 0, OPTS("\2demo") },
		{ "welcome", 0, OPTS("\3\1\2\3\4") },
		{ "welcome, one short", -EPROTO, OPTS("\3\1\2\3") },
		{ "welcome, one long", -EPROTO, OPTS("\3\1\2\3\4\5") },
		{ "refused", 0, OPTS("\4\4") },
		{ "refused, why?", -EPROTO, OPTS("\4\5") },
		{ "refused for nothing", -EPROTO, OPTS("\4\0") },
		{ "peer up", 0, OPTS("\5\1\2\3\4demo") },
		{ "peer down", 0, OPTS("\6\1\2\3\4") },
		{ "a packet", 0, OPTS("\7x") },
		{ "an empty one", -EPROTO, OPTS("\7") },
	};
	static uint8_t big[SWMSG_BYTES_MAX + 1] = { SWMSG_PACKET }, again[SWMSG_BYTES_MAX + 1];
	struct swmsg m;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = swmsg_parse(&m, span_of(t[i].b, t[i].n));

		if (r != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, r, t[i].want);
		if (r == 0 && (swmsg_put(again, sizeof(again), &m) != t[i].n ||
		               memcmp(again, t[i].b, t[i].n) != 0))
			fail_msg("%s: said back differently", t[i].why);
		if (r == 0)
			assert_int_equal(swmsg_put(again, t[i].n - 1, &m), 0);
	}
	assert_int_equal(swmsg_parse(&m, span_of(big, SWMSG_BYTES_MAX)), 0);
	assert_int_equal(swmsg_parse(&m, span_of(big, SWMSG_BYTES_MAX + 1)), -EPROTO);
	assert_non_null(swmsg_why_str(SWMSG_FULL));
	assert_null(swmsg_why_str(0));
	assert_null(swmsg_why_str(SWMSG_FULL + 1));
}

static uint32_t assign(struct swmap *m, const char *name, uint32_t want, bool keep)
{
	uint32_t a = 0;

	return swmap_assign(m, span_str(name), want, keep, &a) == 0 ? a : 0;
}

static void test_swmap(void **state UNUSED)
{
	AUTO_BUF struct buf b = { 0 };
	struct swmap *m = swmap_new();
	uint32_t a;

	assert_int_equal(assign(m, "one", 0, true), SWMAP_FIRST);
	assert_int_equal(assign(m, "two", 0, false), SWMAP_FIRST + 1);
	assert_int_equal(assign(m, "three", 0, true), SWMAP_FIRST + 2);
	assert_int_equal(assign(m, "one", SWMAP_FIRST + 9, false), SWMAP_FIRST); /* it has one */
	assert_int_equal(assign(m, "nine", SWMAP_FIRST + 9, true), SWMAP_FIRST + 9);
	assert_int_equal(assign(m, "ten", SWMAP_FIRST + 9, false), SWMAP_FIRST + 3); /* taken */
	assert_int_equal(assign(m, "gate", IP4(10, 87, 0, 1), false), SWMAP_FIRST + 4);
	assert_int_equal(assign(m, "last", SWMAP_LAST, true), SWMAP_LAST);
	swmap_release(m, span_str("two"));
	swmap_release(m, span_str("one")); /* kept */
	assert_int_equal(assign(m, "again", 0, false), SWMAP_FIRST + 1);
	assert_int_equal(swmap_remove(m, span_str("three"), &a), 0);
	assert_int_equal(a, SWMAP_FIRST + 2);
	assert_int_equal(swmap_remove(m, span_str("three"), &a), -ENOENT);
	assert_int_equal(swmap_put(m, &b), 0);
	static const char text[] = "cloche-switch 1\n10.87.0.16 one\n10.87.0.25 nine\n"
				   "10.87.254.254 last\nend 3\n";
	assert_int_equal(b.len, sizeof(text) - 1);
	assert_memory_equal(b.p, text, b.len);
	assert_int_equal(swmap_parse(m, span_str(text)), 0);
	assert_int_equal(swmap_count(m), 3);
	assert_int_equal(assign(m, "nine", 0, false), SWMAP_FIRST + 9);

	static const char *const corrupt[] = {
		"",
		"cloche-switch 1\n",
		"cloche-switch 2\nend 0\n",
		"cloche-switch 1\nend 1\n",
		"cloche-switch 1\nend 0",
		"cloche-switch 1\nend 0\n\n",
		"cloche-switch 1\n10.87.0.16 one\nend 1\nend 1\n",
		"cloche-switch 1\n10.87.0.16  one\nend 1\n",
		"cloche-switch 1\n10.87.0.16 one \nend 1\n",
		"cloche-switch 1\n10.87.0.16\nend 1\n",
		"cloche-switch 1\n10.87.0.15 one\nend 1\n",
		"cloche-switch 1\n10.87.254.255 one\nend 1\n",
		"cloche-switch 1\n10.88.0.16 one\nend 1\n",
		"cloche-switch 1\n10.87.0.17 one\n10.87.0.16 two\nend 2\n",
		"cloche-switch 1\n10.87.0.16 one\n10.87.0.16 two\nend 2\n",
		"cloche-switch 1\n10.87.0.16 one\n10.87.0.17 one\nend 2\n",
		"cloche-switch 1\n10.87.0.16 host\nend 1\n",
	};
	for (size_t i = 0; i < ARRAY_LEN(corrupt); i++) {
		if (swmap_parse(m, span_str(corrupt[i])) != -EPROTO)
			fail_msg("taken: %s", corrupt[i]);
		assert_int_equal(swmap_count(m), 0);
	}
	swmap_free(m);
}

static void test_swmap_exhausted(void **state UNUSED)
{
	AUTO_BUF struct buf b = { 0 };
	struct swmap *m = swmap_new();
	char name[16];
	uint32_t a;

	for (uint32_t i = 0; i < SWMAP_NAMES_MAX; i++) {
		(void)snprintf(name, sizeof(name), "n%u", i);
		assert_int_equal(assign(m, name, 0, true), SWMAP_FIRST + i);
	}
	assert_int_equal(swmap_assign(m, span_str("more"), 0, true, &a), -ENOSPC);
	assert_int_equal(assign(m, "n77", 0, true), SWMAP_FIRST + 77);
	assert_int_equal(swmap_put(m, &b), 0);
	assert_int_equal(swmap_parse(m, span_of(b.p, b.len)), 0);
	assert_int_equal(swmap_count(m), SWMAP_NAMES_MAX);
	assert_int_equal(swmap_remove(m, span_str("n77"), &a), 0);
	assert_int_equal(assign(m, "more", SWMAP_LAST, false), SWMAP_LAST);
	swmap_free(m);
}

static int set_up(void **state UNUSED)
{
	closed = egress_new(EGRESS_STANDARD);
	return 0;
}

static int tear_down(void **state UNUSED)
{
	egress_free(closed);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reasons),     cmocka_unit_test(test_replies),
		cmocka_unit_test(test_order),       cmocka_unit_test(test_window),
		cmocka_unit_test(test_half_open),   cmocka_unit_test(test_caps),
		cmocka_unit_test(test_done),        cmocka_unit_test(test_urgent),
		cmocka_unit_test(test_down),        cmocka_unit_test(test_opens),
		cmocka_unit_test(test_flows_table), cmocka_unit_test(test_permissive),
		cmocka_unit_test(test_shared),      cmocka_unit_test(test_dhcp_gate),
		cmocka_unit_test(test_drops),       cmocka_unit_test(test_drops_limit),
		cmocka_unit_test(test_dhcp_parse),  cmocka_unit_test(test_dhcp_answers),
		cmocka_unit_test(test_stream),      cmocka_unit_test(test_swmsg),
		cmocka_unit_test(test_swmap),       cmocka_unit_test(test_swmap_exhausted),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
