/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a pattern file, a NUL, a path. Properties: the index by last byte
 * changes no verdict, what one file says alone decides in a set, too, and what
 * lies below an ignored directory is ignored.
 */
#include <stdlib.h>

#include "policy/ignore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EXTRA = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = size ? memrchr(data, 0, size) : NULL;
	AUTO_BUF struct buf more = { 0 };
	struct ignore_list *plain = NULL, *indexed = NULL;
	struct ignore_set *set = NULL;

	if (!nul || size > 4096)
		return 0;
	struct span text = span_of(data, (size_t)(nul - data));
	struct span path = span_of(nul + 1, size - text.len - 1);
	if (path.len == 0 || path.p[0] == '/' || path.p[path.len - 1] == '/' ||
	    memmem(path.p, path.len, "//", 2) || (text.len && text.p[0] == 0xef))
		return 0; /* no path of a tree, or a byte order mark that would move */
	for (int i = 0; i < EXTRA; i++)
		if (buf_put(&more, "[\n", 2) < 0)
			return 0;
	if (buf_put(&more, text.p, text.len) < 0 || ignore_parse(&plain, text, 0) < 0)
		return 0;
	if (ignore_parse(&indexed, span_of(more.p, more.len), 0) < 0)
		abort();
	for (int dir = 0; dir < 2; dir++) {
		uint32_t a = 0, b = EXTRA;
		enum ignore_verdict v = ignore_match(plain, path, dir, &a);

		if (v != ignore_match(indexed, path, dir, &b) || a + EXTRA != b)
			abort();
	}
	ignore_free(indexed);
	enum ignore_verdict own = ignore_match(plain, path, true, NULL);
	bool below = false;
	set = ignore_set_new();
	if (ignore_set_add(set, span_str(""), plain, 1) == 0) {
		bool ignored = ignore_set_match(set, path, true);

		for (size_t i = 1; i < path.len; i++)
			if (path.p[i] == '/')
				below = below || ignore_set_match(set, span_of(path.p, i), true);
		if (ignored != (below || own == IGNORE_YES))
			abort();
	}
	ignore_set_free(set);
	return 0;
}
