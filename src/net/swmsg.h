/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swmsg.h - messages between cloche-switch and the sandboxes of a shared network.
 *
 * One message a packet of a SOCK_SEQPACKET connection, which is a port. The first is
 * HELLO, answered by WELCOME or REFUSED; from then on the port belongs to one name and
 * one address. The one who starts the sandbox says HELLO, as the guest's address must
 * be known before cloche-net begins; cloche-net gets the socket after WELCOME.
 *
 * Wire form, little endian: type u8, then the fields of its kind.
 */
#ifndef CLOCHE_NET_SWMSG_H
#define CLOCHE_NET_SWMSG_H

#include "base/span.h"

enum {
	SWMSG_NAME_MAX = 63, /* one label of DNS: <name>.cloche */
	SWMSG_PACKET_MAX = 16000,
	SWMSG_BYTES_MAX = 1 + SWMSG_PACKET_MAX,
};

enum swmsg_type {
	/* to the switch */
	SWMSG_HELLO = 1,
	SWMSG_FORGET, /* instead of HELLO: free the address of a name that is not there */
	/* from the switch */
	SWMSG_WELCOME, /* the answer to both: the address */
	SWMSG_REFUSED,
	SWMSG_PEER_UP, /* another sandbox is there; those that are, behind WELCOME */
	SWMSG_PEER_DOWN,
	/* both ways: an IP packet */
	SWMSG_PACKET,
};

enum swmsg_why {
	SWMSG_NAME_TAKEN = 1, /* a sandbox of this name is there */
	SWMSG_NAME_BAD,
	SWMSG_EXHAUSTED, /* no address is left */
	SWMSG_FULL,      /* too many sandboxes at one time */
};
const char *swmsg_why_str(unsigned why); /* for a person; NULL when unknown */

struct swmsg {
	uint8_t type;
	uint8_t why;        /* REFUSED */
	bool keep;          /* HELLO: the address stays the name's after the sandbox's end */
	uint32_t addr;      /* HELLO: the one wanted, 0 none; WELCOME, PEER_ */
	struct span name;   /* HELLO, FORGET, PEER_UP: borrowed */
	struct span packet; /* PACKET: borrowed */
};

/*
 * A name of a sandbox: [a-z0-9-], 1 to 63, no hyphen at an end, and none of those that
 * .cloche has already ("host", "selftest", "gateway").
 */
bool swmsg_name_ok(struct span name);

/* Return: 0 or -EPROTO. Names and reasons of the other end are checked. */
int swmsg_parse(struct swmsg *out, struct span in) MUST_CHECK;
/* Bytes written, or 0 when it does not fit or breaks a limit. */
size_t swmsg_put(uint8_t *dst, size_t cap, const struct swmsg *m) MUST_CHECK;

#endif
