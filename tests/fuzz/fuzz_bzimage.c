/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_bzimage.c - property: what is accepted lies in the input, and the same
 * payload in a bzImage of our own making is found again, alike.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "image/kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum { HEAD = 1024 };
	struct bzimage z, again;
	uint64_t entry;

	(void)!kernel_elf_check(span_of(data, size), &entry); /* any answer, no crash */
	if (bzimage_payload(&z, span_of(data, size)) < 0)
		return 0;
	if (z.payload.p < data || z.payload.len > size - (size_t)(z.payload.p - data))
		abort();
	if (z.elf_bytes == 0 || z.elf_bytes > KERNEL_ELF_MAX)
		abort();
	size_t trailer = z.kind == BZIMAGE_GZIP ? 0 : 4, len = z.payload.len + trailer;
	AUTO_FREE uint8_t *b = xcalloc(1, HEAD + len);
	struct wr w = wr_of(b + 0x248, 8), v = wr_of(b + 0x206, 2),
		  t = wr_of(b + HEAD + len - 4, 4);
	b[0x1f1] = 1;
	memcpy(b + 0x202, "HdrS", 4);
	wr_le(&v, 0x208, 2);
	wr_le(&w, 0, 4);
	wr_le(&w, len, 4);
	memcpy(b + HEAD, z.payload.p, z.payload.len);
	wr_le(&t, z.elf_bytes, 4);
	if (HEAD + len > KERNEL_BZIMAGE_MAX)
		return 0;
	if (bzimage_payload(&again, span_of(b, HEAD + len)) < 0 || again.kind != z.kind ||
	    again.elf_bytes != z.elf_bytes || !span_eq(again.payload, z.payload))
		abort();
	return 0;
}
