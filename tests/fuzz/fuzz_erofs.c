/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a tree that the input describes, written and read back by the
 * independent reader, is the same tree; and writing it again gives the same bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/fd.h"
#include "lib/erofs_tree.h"

enum { INODES_MAX = 1500, DATA_BLOCKS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *image(struct et *t, const struct erofs_opts *o, struct erofs_result *r, size_t *len)
{
	struct erofs_source src = et_source(t);
	struct err err;
	int fd = fd_memfd("image");
	int e = erofs_write(fd, &src, o, r, &err);

	if (e == -EFBIG) { /* the sizes add up to more than the format can address */
		(void)close(fd);
		return NULL;
	}
	if (e < 0) {
		(void)fprintf(stderr, "%s\n", err.text);
		abort();
	}
	*len = (size_t)r->data_block * EROFS_BLOCK_BYTES;
	void *p = mmap(NULL, *len, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		abort();
	(void)close(fd);
	return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct et_rng rng = { .p = data, .left = size };
	struct erofs_opts o = { .volume = "fuzz", .meta_block = 1, .build_time_s = 1 };
	struct erofs_result r, again;
	size_t len = 0, len2 = 0;
	struct et t;

	et_init(&t);
	o.uuid[3] = (uint8_t)et_pick(&rng, 256);
	if (et_pick(&rng, 2))
		o.meta_block = 1 + DATA_BLOCKS;
	o.data_align = et_pick(&rng, 3) ? 0 : et_pick(&rng, 20);
	et_random(&t, &rng, INODES_MAX, UINT64_MAX);
	if (o.meta_block > 1) { /* some of the data is there already */
		for (uint32_t i = 0; i < t.n; i += 3) {
			if (t.v[i].in.size && t.v[i].in.size <= 20 * EROFS_BLOCK_BYTES) {
				t.v[i].in.is_placed = true;
				t.v[i].in.block_at = 1 + i % 40;
			}
		}
	}
	uint8_t *a = image(&t, &o, &r, &len);
	if (a) {
		const char *why = et_compare(&t, a, len, &o, &r);

		if (why) {
			(void)fprintf(stderr, "%s\n", why);
			abort();
		}
		uint8_t *b = image(&t, &o, &again, &len2);
		if (!b || len != len2 || memcmp(a, b, len) != 0)
			abort();
		(void)munmap(b, len2);
		(void)munmap(a, len);
	}
	et_fini(&t);
	return 0;
}
