/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what the parser accepts can be said back, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "super/ctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[CTL_BYTES_MAX];
	static struct ctl c;

	if (ctl_parse(&c, span_of(data, size)) < 0)
		return 0;
	size_t n = ctl_put(again, sizeof(again), &c);
	if (n != size || memcmp(again, data, n) != 0)
		abort();
	return 0;
}
