/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: what can be read can be written with marks, reads back with the
 * same names in the same order, and the marks are where they were asked for.
 */
#include <errno.h>
#include <stdlib.h>

#include "workspace/gitindex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool want_mark(const struct gitindex_entry *e)
{
	return e->path.len % 2;
}

static bool hidden(void *arg UNUSED, const struct gitindex_entry *e)
{
	return want_mark(e);
}

static int list(void *arg, const struct gitindex_entry *e)
{
	if (buf_put(arg, e->path.p, e->path.len) < 0)
		return -ENOMEM;
	return buf_put(arg, "", 1);
}

static int list_marked(void *arg, const struct gitindex_entry *e)
{
	if (want_mark(e) && !e->skip_worktree)
		abort();
	return list(arg, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_BUF struct buf a = { 0 };
	AUTO_BUF struct buf b = { 0 };
	AUTO_BUF struct buf out = { 0 };
	struct gitindex_info info;
	size_t hash = size && data[size - 1] & 1 ? GITINDEX_SHA256 : GITINDEX_SHA1;

	if (gitindex_read(span_of(data, size), hash, list, &a, &info) < 0)
		return 0;
	if (gitindex_skip(span_of(data, size), hash, hidden, NULL, &out) < 0 ||
	    gitindex_read(span_of(out.p, out.len), hash, list_marked, &b, &info) < 0 ||
	    info.caches || !span_eq(span_of(a.p, a.len), span_of(b.p, b.len)))
		abort();
	return 0;
}
