/* SPDX-License-Identifier: Apache-2.0 */
/* Property: a frame that is accepted is said back byte for byte, and no part of it is accepted. */
#include <errno.h>
#include <stdlib.h>

#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];
	struct frame f, g;
	size_t used = 0, used2;

	int r = frame_parse(&f, data, size, &used);
	if (r == -EAGAIN && size >= FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX)
		abort(); /* waits for more than a frame can have */
	if (r != 0)
		return 0;
	if (used > size || frame_put(again, sizeof(again), &f) != used ||
	    memcmp(again, data, used) != 0)
		abort();
	for (size_t cut = 0; cut<used; cut += used> 200 ? 61 : 1) {
		if (frame_parse(&g, data, cut, &used2) != -EAGAIN)
			abort();
	}
	return 0;
}
