/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties: a message of the switch that is accepted is said back byte for byte; a list of
 * addresses that is accepted is written back byte for byte.
 */
#include <stdlib.h>

#include "net/swmap.h"
#include "net/swmsg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[SWMSG_BYTES_MAX];
	static struct swmap *map;
	AUTO_BUF struct buf b = { 0 };
	struct swmsg m;

	if (swmsg_parse(&m, span_of(data, size)) == 0 &&
	    (swmsg_put(again, sizeof(again), &m) != size || memcmp(again, data, size) != 0))
		abort();
	if (!map)
		map = swmap_new();
	if (swmap_parse(map, span_of(data, size)) == 0 &&
	    (swmap_put(map, &b) < 0 || b.len != size || memcmp(b.p, data, size) != 0))
		abort();
	return 0;
}
