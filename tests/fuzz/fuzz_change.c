/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties: a record is said back byte for byte; change_walk accepts a
 * sequence exactly when a model that keeps all paths finds it to be a tree; and
 * change_blobs accepts exactly what fills each file at most once.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/change.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NODES = 2000, RECORDS_MAX = 1500, BYTES_MAX = 1 << 20 };

/* Every name with the node of its folder; node 0 is the top. */
static struct {
	int parent;
	struct span name;
} nodes[NODES];
static int n_nodes, here, taken;
static uint64_t bytes;
static bool over;

static size_t path_len(int node)
{
	size_t n = 0;

	for (; node != 0; node = nodes[node].parent)
		n += nodes[node].name.len + (nodes[node].parent != 0);
	return n;
}

static int depth(int node)
{
	int d = 0;

	for (; node != 0; node = nodes[node].parent)
		d++;
	return d;
}

static bool model_name(const struct change_record *r)
{
	for (int i = 1; i < n_nodes; i++) {
		if (nodes[i].parent == here && span_cmp(nodes[i].name, r->name) >= 0)
			return false;
	}
	nodes[n_nodes].parent = here;
	nodes[n_nodes].name = r->name;
	if (path_len(n_nodes) > CHANGE_PATH_MAX)
		return false;
	n_nodes++;
	return true;
}

static bool model_take(const struct change_record *r)
{
	if (over)
		return false;
	if (r->type == CHANGE_END) {
		over = true;
		return here == 0 && (int64_t)r->ordinal == taken;
	}
	if (taken >= RECORDS_MAX)
		return false;
	switch (r->type) {
	case CHANGE_DIR:
		if (depth(here) == CHANGE_DEPTH_MAX || !model_name(r))
			return false;
		here = n_nodes - 1;
		break;
	case CHANGE_UP:
		if (here == 0)
			return false;
		here = nodes[here].parent;
		break;
	case CHANGE_FILE:
		bytes += r->size;
		if (bytes > BYTES_MAX || !model_name(r))
			return false;
		break;
	case CHANGE_LINK:
	case CHANGE_WHITEOUT:
	case CHANGE_SPECIAL:
		if (!model_name(r))
			return false;
		break;
	default:
		return false;
	}
	taken++;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[CHANGE_RECORD_MAX];
	static struct change_walk w;
	struct change_blobs b = { 0 };
	struct change_record r;
	bool walk_ok = true, blobs_ok = true;
	uint64_t filled = 0, end = 0;
	size_t used;

	change_walk_init(&w, RECORDS_MAX, BYTES_MAX);
	n_nodes = 1;
	here = taken = 0;
	bytes = 0;
	over = false;
	for (size_t at = 0; change_parse(&r, data + at, size - at, &used) == 0; at += used) {
		if (change_put(again, sizeof(again), &r) != used ||
		    memcmp(again, data + at, used) != 0 || change_put(again, used - 1, &r) != 0)
			abort();
		if (walk_ok) {
			walk_ok = model_take(&r);
			if ((change_walk_take(&w, &r) == 0) != walk_ok)
				abort();
			if (walk_ok &&
			    ((int)w.depth != depth(here) || w.path_len != path_len(here)))
				abort();
		}
		if (blobs_ok) {
			blobs_ok = change_blobs_take(&b, &r) == 0;
			if (blobs_ok && r.type == CHANGE_BLOB)
				filled = end = 0;
			if (blobs_ok && r.type == CHANGE_EXTENT) {
				filled += r.bytes.len;
				if (r.offset < end || filled > b.size)
					abort();
				end = r.offset + r.bytes.len;
				if (end > b.size)
					abort();
			}
		}
	}
	return 0;
}
