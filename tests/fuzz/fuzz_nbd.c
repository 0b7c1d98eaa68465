/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: however the client's bytes are cut, the same replies and requests
 * come out; each request lies within the export and its limits; the machine
 * never waits for more than NBD_INPUT_MAX bytes nor puts more than NBD_REPLY_MAX.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "disk/nbd.h"

enum { OUT_MAX = 1024 * 1024, CUT = 3 };

struct log {
	size_t len;
	int end;
	uint8_t b[OUT_MAX];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* @chunk: bytes that arrive at once */
static void run(struct log *l, const uint8_t *data, size_t size, uint64_t export, size_t chunk)
{
	struct wr w = wr_of(l->b, sizeof(l->b));
	size_t at = 0, have = MIN(chunk, size);
	struct nbd s;

	nbd_init(&s, export, &w);
	l->end = 0;
	while (w.left >= 2 * NBD_REPLY_MAX) {
		struct nbd_request q = { 0 };
		size_t used = 0, before = w.left;
		int r = nbd_take(&s, data + at, have - at, &used, &w, &q);

		if (w.bad || before - w.left > NBD_REPLY_MAX)
			abort();
		if (r == -EAGAIN) {
			if (before != w.left || have - at >= NBD_INPUT_MAX)
				abort();
			if (have == size)
				break;
			have += MIN(chunk, size - have);
			continue;
		}
		l->end = r;
		if (r == -EPROTO || r == NBD_END)
			break;
		if (used == 0 || used > have - at)
			abort();
		at += used;
		if (r == NBD_REQUEST) {
			if (q.length == 0 || q.length > NBD_READ_MAX || q.length % NBD_ALIGN ||
			    q.offset % NBD_ALIGN || q.offset > export ||
			    q.length > export - q.offset)
				abort();
			wr_put(&w, &q, sizeof(q));
		}
	}
	l->len = sizeof(l->b) - w.left;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct log whole, cut;
	uint64_t export = NBD_ALIGN;

	if (size) {
		export = (uint64_t)NBD_ALIGN << (data[0] % 40);
		data++;
		size--;
	}
	run(&whole, data, size, export, SIZE_MAX);
	run(&cut, data, size, export, CUT);
	if (whole.len != cut.len || whole.end != cut.end || memcmp(whole.b, cut.b, cut.len) != 0)
		abort();
	return 0;
}
