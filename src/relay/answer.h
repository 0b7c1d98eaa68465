/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.h - what an upstream server's message says about one name's addresses.
 *
 * Pure (RFC 1035). The message counts only as far as it answers our question:
 * one question, which is ours; of the answer section the chain of CNAMEs that
 * starts at the name asked for, at most ANSWER_CHAIN_MAX long, and the A records
 * at its end. Every other record is passed over: it is an attempt to give a
 * name that was not asked for, or of no use to us.
 */
#ifndef CLOCHE_RELAY_ANSWER_H
#define CLOCHE_RELAY_ANSWER_H

#include "base/hostname.h"

enum {
	ANSWER_ADDRS_MAX = 16, /* what is beyond is left out */
	ANSWER_CHAIN_MAX = 8,
	ANSWER_RECORDS_MAX = 512,
	ANSWER_BYTES_MAX = 65535,
};

struct answer {
	uint8_t rcode;
	size_t n; /* 0 with rcode 0: no such record */
	uint32_t addrs[ANSWER_ADDRS_MAX];
	uint32_t ttl_s; /* the lowest of the chain and its addresses; 0 without any */
	size_t chain;   /* CNAMEs that were followed */
};

/*
 * answer_parse() - @in answers an A question of class IN for @name (in the grammar).
 * The letter case of names does not matter.
 *
 * Return: 0; -EPROTO (no answer to that question, cut, a bad name, a chain that is
 * too long or a loop).
 */
int answer_parse(struct answer *out, struct span in, const char *name) MUST_CHECK;

#endif
