/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what vis_put() lets out has no control byte but those asked for, and is valid UTF-8. */
#include <stdlib.h>

#include "base/vis.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_BUF struct buf b = { 0 };

	if (vis_put(&b, span_of(data, size), VIS_KEEP_NEWLINE) < 0)
		return 0;
	for (struct span s = span_of(b.p, b.len); s.len;) {
		uint32_t cp = 0;
		size_t n = vis_utf8(s, &cp);
		if (n == 0 || (cp < 0x20 && cp != '\n') || (cp >= 0x7f && cp < 0xa0))
			abort();
		s.p += n;
		s.len -= n;
	}
	return 0;
}
