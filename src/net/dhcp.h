/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dhcp.h - DHCP towards the guest: its requests, our answers (RFC 2131, RFC 2132).
 *
 * Pure and strict. There is one client and one address for it, for ever. A guest
 * of ours has its address set over the control channel; this is for images that
 * ask. What does not parse is dropped, not answered.
 */
#ifndef CLOCHE_NET_DHCP_H
#define CLOCHE_NET_DHCP_H

#include "base/span.h"

enum {
	DHCP_BYTES_MAX = 1500, /* of a request */
	DHCP_ANSWER_MAX = 548, /* what every client takes: RFC 2131 2 */
	DHCP_SEARCH_MAX = 64,  /* a domain in text */
};

enum dhcp_type {
	DHCP_NONE = 0, /* no answer */
	DHCP_DISCOVER = 1,
	DHCP_OFFER = 2,
	DHCP_REQUEST = 3,
	DHCP_ACK = 5,
	DHCP_NAK = 6,
	DHCP_INFORM = 8,
};

struct dhcp_request {
	uint8_t type; /* DISCOVER, REQUEST, INFORM; others are -ENOTSUP */
	bool broadcast;
	uint32_t xid;
	uint16_t secs;
	uint32_t client;    /* the address that it has; 0: none */
	uint32_t requested; /* the one that it wants; 0: none named */
	uint32_t server;    /* whose offer it takes; 0: none named */
	uint8_t mac[6];
};

struct dhcp_config {
	uint32_t addr, mask, router, dns, server;
	uint16_t mtu;
	const char *search; /* a domain of labels and dots; NULL: none */
};

/* Return: 0, -EPROTO, or -ENOTSUP for what is right and gets no answer (RELEASE, DECLINE). */
int dhcp_parse(struct dhcp_request *out, struct span in) MUST_CHECK;

/* What to answer: OFFER, ACK, NAK, or NONE (it takes somebody else's offer). */
enum dhcp_type dhcp_decide(const struct dhcp_request *q, const struct dhcp_config *c);

/* The answer of @type. Return: bytes, or 0 when it does not fit. */
size_t dhcp_answer_put(uint8_t *dst, size_t cap, const struct dhcp_request *q,
                       const struct dhcp_config *c, enum dhcp_type type) MUST_CHECK;

#endif
