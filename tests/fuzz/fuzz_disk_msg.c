/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what is accepted can be said again, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "disk/disk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[DISK_MSG_MAX];
	struct disk_msg m;

	if (disk_msg_parse(&m, data, size) == 0) {
		size_t n = disk_msg_put(again, sizeof(again), &m);

		if (n != size || memcmp(again, data, n) != 0)
			abort();
	}
	return 0;
}
