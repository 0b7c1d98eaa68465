/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns.h - DNS messages towards the guest: its questions, our answers.
 *
 * RFC 1035, RFC 6891 (EDNS). Pure and strict: a question is a query (QR 0,
 * opcode 0) with exactly one question of class IN, no answer, no authority, at
 * most one OPT record in the additional section, no compression, no trailing
 * bytes. What does not parse is dropped, not answered. Answers are made from
 * values, never from bytes that somebody else sent.
 */
#ifndef CLOCHE_WIRE_DNS_H
#define CLOCHE_WIRE_DNS_H

#include "base/span.h"

enum {
	DNS_NAME_MAX = 253,
	DNS_UDP_MAX = 512, /* without EDNS; with it what the asker takes, at most DNS_EDNS_MAX */
	DNS_EDNS_MAX = 1232,
	DNS_ADDRS_MAX = 16,
	DNS_TYPE_A = 1,
	DNS_TYPE_AAAA = 28,
	DNS_TYPE_SVCB = 64,
	DNS_TYPE_HTTPS = 65,
};
enum { DNS_NOERROR = 0, DNS_FORMERR = 1, DNS_SERVFAIL = 2, DNS_NXDOMAIN = 3, DNS_REFUSED = 5 };

struct dns_question {
	uint16_t id;
	uint16_t qtype;
	bool rd, edns, dnssec_ok;
	uint16_t udp_max; /* bytes that the asker takes */
	/* As asked, so that an answer can repeat its letter case (some resolvers mix it on
	 * purpose); text form without the final dot, and lowered beside it. Labels with bytes
	 * outside of [A-Za-z0-9_-] make the question -EPROTO; the root name is "". */
	char asked[DNS_NAME_MAX + 1];
	char name[DNS_NAME_MAX + 1];
};

/* Return: 0 or -EPROTO. */
int dns_question_parse(struct dns_question *out, struct span in) MUST_CHECK;

struct dns_answer {
	uint8_t rcode;
	uint32_t ttl_s;
	size_t n; /* A records of the name asked for; only for DNS_TYPE_A */
	uint32_t addrs[DNS_ADDRS_MAX];
};

/*
 * dns_answer_put() - the whole response to @q. Records that do not fit are left
 * out without TC: the client has no TCP to us, and fewer addresses are a
 * correct answer. Return: bytes written, or 0 when not even the header fits.
 */
size_t dns_answer_put(uint8_t *dst, size_t cap, const struct dns_question *q,
                      const struct dns_answer *a) MUST_CHECK;

#endif
