/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what comes out holds certificates only, and reads again as exactly itself. */
#include <stdlib.h>
#include <string.h>

#include "cli/hostca.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_BUF struct buf out = { 0 }, again = { 0 };
	int n = hostca_take(&out, span_of(data, size));

	if (n <= 0) {
		if (out.len)
			abort();
		return 0;
	}
	if (hostca_take(&again, span_of(out.p, out.len)) != n || again.len != out.len ||
	    memcmp(again.p, out.p, out.len) != 0)
		abort();
	if (buf_put(&out, "", 1) < 0 || strstr((const char *)out.p, "PRIVATE KEY"))
		abort();
	return 0;
}
