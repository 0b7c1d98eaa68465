/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: an answer that is believed is exactly the question with a header and
 * one record behind it, byte for byte but for the flags and the time to live that
 * nobody looks at. The input is the number (2 bytes, little endian), then the answer.
 */
#include <stdlib.h>

#include "guest/selftest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t q[SELFTEST_BYTES_MAX];

	if (size < 2)
		return 0;
	uint16_t id = (uint16_t)(data[0] | data[1] << 8);
	struct span in = span_of(data + 2, size - 2);
	(void)selftest_is_ipv6_answer(in);
	int bits = selftest_answer(in, id);
	if (bits < 0)
		return 0;
	size_t n = selftest_question(q, id);
	if (in.len != n + 16 || bits > 255 || in.p[in.len - 1] != bits)
		abort();
	if (memcmp(in.p, q, 2) != 0 || memcmp(in.p + 12, q + 12, n - 12) != 0)
		abort();
	if (selftest_answer(in, (uint16_t)(id + 1)) >= 0)
		abort();
	return 0;
}
