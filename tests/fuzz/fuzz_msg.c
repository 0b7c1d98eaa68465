/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a message that is accepted is said back byte for byte, keeps the
 * bounds of its rule, and with a byte less or more is refused.
 */
#include <stdlib.h>

#include "wire/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[MSG_BYTES_MAX];
	static struct msg m;

	if (msg_parse(&m, span_of(data, size)) != 0)
		return 0;
	const struct msg_rule *r = msg_rule_find(m.type);
	if (!r || size < r->min_bytes || size > r->max_bytes)
		abort();
	if (msg_put(again, sizeof(again), &m) != size || memcmp(again, data, size) != 0)
		abort();
	if (msg_put(again, size - 1, &m) != 0)
		abort();
	if (msg_parse(&m, span_of(data, size - 1)) == 0)
		abort();
	return 0;
}
