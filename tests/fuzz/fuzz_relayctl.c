/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what the parser accepts can be said back, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "wire/relayctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[RELAYCTL_BYTES_MAX];
	struct relayctl m;

	if (relayctl_parse(&m, span_of(data, size)) < 0)
		return 0;
	size_t n = relayctl_put(again, sizeof(again), &m);
	if (n != size || memcmp(again, data, n) != 0)
		abort();
	return 0;
}
