/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h - the network of one sandbox, between three sockets: QEMU's frames, the
 * relay, and the switch of the shared network if there is one.
 *
 * It ends when QEMU's or the relay's end is gone: without the relay nothing passes,
 * so a death anywhere closes the network and never opens it.
 */
#ifndef CLOCHE_NET_SERVE_H
#define CLOCHE_NET_SERVE_H

#include "net/packet.h"

struct egress;
struct err;

struct serve_opts {
	int frames; /* SOCK_STREAM, stream.h */
	int relay;  /* SOCK_SEQPACKET, wire/netmsg.h; non-blocking */
	int sw;     /* SOCK_SEQPACKET, swmsg.h, behind WELCOME; non-blocking; -1: isolated */
	uint32_t addr;
	uint8_t mac[MAC_BYTES];
	bool permissive;
	const struct egress *closed; /* what is closed in every profile; borrowed */
	uint16_t mtu;
	const char *search; /* domain of the DHCP answers; NULL: none */
};

struct serve;

/* Before the cage: all memory, libslirp and its self-test. Return: 0 or -errno with @err. */
int serve_new(struct serve **out, const struct serve_opts *o, struct err *err) MUST_CHECK;
void serve_free(struct serve *s);

enum serve_end {
	SERVE_GUEST_GONE, /* QEMU has ended */
	SERVE_RELAY_GONE,
	SERVE_BROKEN, /* a peer that does not keep to its protocol, or no descriptors */
};

/* In the cage. Logs why it ended. */
enum serve_end serve_run(struct serve *s);

#endif
