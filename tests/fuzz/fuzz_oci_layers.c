/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: two bytes of length, a tar of that length, and another one over it. Property: whatever
 * they hold, the merged tree can be written as an image, and no mark is left in it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "erofs/erofs.h"
#include "image/ocireader.h"
#include "image/sink.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(struct span bytes, struct tree *t, struct sink *sink)
{
	struct tar *in = tar_open_mem(bytes);

	if (!in)
		return -1;
	int r = oci_take_layer(in, t, sink, NULL);
	tar_free(in);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tree_limits lim = { .entries = 2000, .bytes = 1 << 20 };
	struct erofs_opts eo = { .volume = "fuzz" };
	struct erofs_source src;
	struct erofs_result res;
	struct sink sink;

	if (size < 2)
		return 0;
	size_t n = MIN((size_t)(data[0] | data[1] << 8), size - 2);
	AUTO_CLOSE int fd = fd_memfd("image");
	struct tree *t = tree_new(&lim);
	if (fd < 0 || !t || sink_init(&sink, fd) < 0)
		abort();
	int r = take(span_of(data + 2, n), t, &sink);
	if (r == 0)
		r = take(span_of(data + 2 + n, size - 2 - n), t, &sink);
	if (r == 0) {
		if (sink_flush(&sink) < 0)
			abort();
		eo.meta_block = sink_block(&sink);
		if (tree_source(t, &src) < 0 || erofs_write(fd, &src, &eo, &res, NULL) < 0)
			abort();
		if (tree_lookup(t, span_str(".wh..wh..opq")) != TREE_NONE)
			abort();
	}
	sink_fini(&sink);
	tree_free(t);
	return 0;
}
