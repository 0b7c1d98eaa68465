/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: what is behind the answers (authority, additional, junk) changes nothing,
 * and every address is four bytes of the message.
 */
#include <stdlib.h>
#include <string.h>

#include "relay/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct answer *a, const struct answer *b)
{
	return a->rcode == b->rcode && a->n == b->n && a->ttl_s == b->ttl_s &&
	       a->chain == b->chain && memcmp(a->addrs, b->addrs, a->n * sizeof(a->addrs[0])) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t b[4096 + 64];
	struct answer a = { 0 }, again = { 0 };

	if (size > 4096 || answer_parse(&a, span_of(data, size), "a.test") < 0)
		return 0;
	if (a.n > ANSWER_ADDRS_MAX || a.chain > ANSWER_CHAIN_MAX || (a.rcode && a.n))
		abort();
	for (size_t i = 0; i < a.n; i++) {
		const uint8_t four[4] = { (uint8_t)(a.addrs[i] >> 24), (uint8_t)(a.addrs[i] >> 16),
			                  (uint8_t)(a.addrs[i] >> 8), (uint8_t)a.addrs[i] };
		if (!memmem(data, size, four, 4))
			abort();
	}
	memcpy(b, data, size);
	memset(b + size, 0xff, 64);
	if (answer_parse(&again, span_of(b, size + 64), "a.test") < 0 || !same(&a, &again))
		abort();
	return 0;
}
