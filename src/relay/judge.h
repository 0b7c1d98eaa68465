/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.h - may this connection be made: the destination, then the first bytes.
 *
 * Pure. The relay asks judge_dest() when a flow comes, judge_bytes() whenever
 * more of the client's first bytes are there, and judge_head() for every further
 * request on a cleartext HTTP connection; nothing is dialed before an ALLOW.
 * `cloche net check` asks the policy behind it.
 *
 * What a name must be to pass: allowed by the policy on the port of the flow, and
 * pinned to its address (pins.h). So two names on one address are told apart.
 *
 * ECH: the name that is seen may then be a front for another one on the same
 * servers, and a browser's GREASE of it looks the same, so both are refused. Our
 * DNS gives no ECH keys, and no command-line client sends it unasked.
 */
#ifndef CLOCHE_RELAY_JUDGE_H
#define CLOCHE_RELAY_JUDGE_H

#include "policy/egress.h"
#include "relay/pins.h"
#include "wire/http1.h"

/* Of DNS, flows and datagrams; the words of the event log (docs/network.md). */
enum why {
	WHY_NONE,
	/* the destination */
	WHY_LITERAL,      /* no name gave this address (to the guest), or HTTP named an address */
	WHY_CLOSED,       /* a range that is closed in every profile */
	WHY_HOST_ADDRESS, /* the host's own */
	WHY_PORT,         /* a port closed to all; or Host names another port */
	WHY_SERVICE,      /* host.cloche, a port that --host-service does not have */
	/* the first bytes */
	WHY_NAME,      /* the policy does not allow this name here */
	WHY_MISMATCH,  /* an allowed name, but not of this address */
	WHY_NO_NAME,   /* no server name, no Host */
	WHY_ECH,       /* an encrypted ClientHello */
	WHY_PROTOCOL,  /* neither TLS nor HTTP */
	WHY_MALFORMED, /* TLS or HTTP that could be read in two ways, or not at all */
	WHY_CONNECT,   /* a request for a tunnel */
	WHY_UPGRADE,   /* to another protocol, and not as the first request */
	WHY_HTTP2,     /* in cleartext */
	WHY_TOO_LONG,  /* no verdict within 16 KiB */
	WHY_TIMEOUT,   /* no verdict within 10 s */
	WHY_ENDED,     /* the client closed before a verdict */
	/* of the relay */
	WHY_LIMIT,     /* too many at one time */
	WHY_DENIED,    /* `cloche net deny` meanwhile */
	WHY_REBINDING, /* a name whose answer leads to a closed address */
	WHY_UPSTREAM,  /* no server answered the question */
	WHY_MULTICAST, /* a datagram for many */
	WHYS
};
const char *why_name(enum why w); /* "literal", ... */

enum verdict { VERDICT_MORE, VERDICT_ALLOW, VERDICT_REFUSE };

enum {
	/* host.cloche: the user's loopback (docs/network.md) */
	JUDGE_SERVICE_ADDR = (10 << 24) | (87 << 16) | 2,
	JUDGE_TTL_SERVICE_S = 60,
	JUDGE_BYTES_MAX = 16 * 1024,
};
#define JUDGE_SERVICE_NAME "host.cloche"

struct judge_in {
	const struct egress *policy;
	const struct pins *pins;
	uint32_t addr;
	uint16_t port;
	uint64_t now_ms;
};

enum proto { PROTO_UNKNOWN, PROTO_TLS, PROTO_HTTP, PROTO_RAW, PROTO_SERVICE };
const char *proto_name(enum proto p); /* "tls", ...; NULL for unknown */

struct judge_out {
	enum verdict verdict;
	enum why why;               /* of a REFUSE */
	enum proto proto;           /* as far as known */
	char name[HOST_NAME_BYTES]; /* what was named, also when refused; "" unknown */
	const char *detail;         /* of CLOSED: the range; else NULL */
	bool raw;                   /* MORE: a server that speaks first may be dialed */
	bool word;                  /* MORE, raw: one word without an end, which may be all */
};

/* Without a byte: ALLOW for services and under PERMISSIVE, else MORE or REFUSE. */
void judge_dest(struct judge_out *out, const struct judge_in *in);

/*
 * judge_bytes() - @first is everything that the client sent so far.
 * @ended:	it will send no more
 */
void judge_bytes(struct judge_out *out, const struct judge_in *in, struct span first, bool ended);

/*
 * judge_head() - a further request of a connection that was allowed for @allowed.
 * Only that name may have lost its pin meanwhile: the connection outlives it.
 * verdict is ALLOW or REFUSE.
 */
void judge_head(struct judge_out *out, const struct judge_in *in, const struct http1_head *h,
                const char *allowed);

/* Why a datagram may not go there, PERMISSIVE only, or WHY_NONE. @out_detail as above. */
enum why judge_datagram(const struct judge_in *in, const char **out_detail);

/* Why an address may not be the answer to a question, or WHY_NONE. */
enum why judge_answer(const struct egress *policy, uint32_t addr, const char **out_detail);

#endif
