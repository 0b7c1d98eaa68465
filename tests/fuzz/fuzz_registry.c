/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: whatever tools write gives a list within its limits that goes through our own
 * form unchanged; and what is accepted as our own form is said back byte for byte.
 */
#include <stdlib.h>
#include <string.h>

#include "image/registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void say_back(const struct registry_list *l, struct buf *b)
{
	if (l->n > REGISTRY_MAX || registry_put(l, b) < 0 || b->len > REGISTRY_TEXT_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct registry_list l, again;
	AUTO_BUF struct buf b = { 0 }, c = { 0 };

	size_t left_out = registry_scan(&l, span_of(data, size));
	if (left_out && l.n != REGISTRY_MAX)
		abort();
	say_back(&l, &b);
	if (registry_parse(&again, span_of(b.p, b.len)) < 0 || again.n != l.n)
		abort();
	if (registry_parse(&l, span_of(data, size)) == 0) {
		say_back(&l, &c);
		if (c.len != size || (size && memcmp(c.p, data, size) != 0))
			abort();
	}
	return 0;
}
