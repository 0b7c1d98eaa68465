/* SPDX-License-Identifier: Apache-2.0 */
/* What a finished comparison tells: paths, sides, sums, the baseline, renames. */
#include "review/compare_items.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "review/classify.h"

struct change_record compare_record_at(const struct compare *c, int64_t at)
{
	struct change_record r = { 0 };
	size_t used;
	struct span s = c->set->index;

	/* checked when the set was opened */
	ASSERT(at >= 0 && (uint64_t)at < s.len);
	ASSERT(change_parse(&r, s.p + at, s.len - (size_t)at, &used) == 0);
	return r;
}

struct span compare_node_name(const struct compare *c, uint32_t node)
{
	return c->nodes[node].at == COMPARE_NO_OFFSET
	               ? span_of("", 0)
	               : compare_record_at(c, c->nodes[node].at).name;
}

uint32_t compare_count(const struct compare *c)
{
	return c->n_items;
}

static struct span item_name(const struct compare *c, const struct compare_item *it)
{
	struct manifest_entry e;

	if (it->at != COMPARE_NO_OFFSET)
		return compare_record_at(c, it->at).name;
	manifest_get(&c->set->manifest, it->entry, &e);
	return e.name;
}

int compare_path(const struct compare *c, uint32_t i, struct buf *b)
{
	ASSERT(i < c->n_items);
	const struct compare_item *it = &c->items[i];
	uint32_t chain[CHANGE_DEPTH_MAX + 1];
	size_t n = 0;

	for (uint32_t k = it->node; c->nodes[k].depth > 1; k = c->nodes[k].parent)
		chain[n++] = k;
	while (n) {
		struct span s = compare_node_name(c, chain[--n]);
		if (buf_put(b, s.p, s.len) < 0 || buf_put(b, "/", 1) < 0)
			return -ENOMEM;
	}
	struct span s = item_name(c, it);
	return buf_put(b, s.p, s.len);
}

static void fill_new(const struct compare *c, const struct compare_item *it,
                     struct compare_change *out)
{
	if (it->at == COMPARE_NO_OFFSET)
		return;
	struct change_record r = compare_record_at(c, it->at);
	out->ordinal = it->slot;
	out->new_mode = r.mode & 07777;
	out->new_mtime_ns = r.mtime_ns;
	switch (r.type) {
	case CHANGE_FILE:
		out->new_type = MANIFEST_FILE;
		out->new_size = r.size;
		out->hash = r.hash;
		break;
	case CHANGE_LINK:
		out->new_type = MANIFEST_LINK;
		out->link = r.bytes;
		out->new_size = r.bytes.len;
		break;
	case CHANGE_DIR:
		out->new_type = MANIFEST_DIR;
		break;
	case CHANGE_SPECIAL:
		out->new_type = MANIFEST_OTHER;
		out->new_mode = r.mode;
		break;
	default:
		break; /* a whiteout: nothing is there */
	}
}

static void fill_old(const struct compare *c, const struct compare_item *it,
                     struct compare_change *out)
{
	struct manifest_entry e = { 0 };
	uint8_t type = 0; /* enum manifest_kind; 0: nothing that the guest saw */

	if (it->entry != MANIFEST_NONE) {
		manifest_get(&c->set->manifest, it->entry, &e);
		type = e.flags & MANIFEST_ABSENT ? 0 : e.kind;
	}
	if (c->overlay.n) {
		/* as in the walk: the overlay speaks for the place */
		AUTO_BUF struct buf path = { 0 };
		const struct compare_node *n = &c->nodes[it->node];
		const struct compare_applied *a = NULL;
		if (compare_path(c, (uint32_t)(it - c->items), &path) == 0)
			a = compare_overlay_find(&c->overlay, n->project,
			                         span_of(path.p, path.len));
		uint32_t parents = 0;
		if (a)
			parents = compare_overlay_deleted_above(&c->overlay, n->project,
			                                        span_of(path.p, path.len));
		if (a && a->seq > parents) {
			out->base_applied = true;
			out->base_hash = a->a.hash;
			out->base_hash_known = a->a.kind == MANIFEST_FILE;
			type = a->a.kind;
			e.kind = a->a.kind;
			e.mode = a->a.mode;
			e.size = a->a.size;
			e.ino = a->a.ino;
			e.mtime_ns = a->a.mtime_ns;
			e.ctime_ns = a->a.ctime_ns;
			e.nlink = 1;
		} else if (parents) {
			type = 0;
		}
	}
	out->base = e;
	out->old_type = type;
	if (type) {
		out->old_mode = e.mode;
		out->old_size = type == MANIFEST_DIR ? 0 : e.size;
		out->old_link = out->base_applied ? (struct span){ 0 } : e.link;
	}
	if (!out->base_applied && type == MANIFEST_FILE && it->at != COMPARE_NO_OFFSET)
		out->base_hash_known = changeset_baseline(c->set, it->slot, &out->base_hash);
}

void compare_get(const struct compare *c, uint32_t i, struct compare_change *out)
{
	ASSERT(i < c->n_items);
	const struct compare_item *it = &c->items[i];

	*out = (struct compare_change){
		.slot = it->slot,
		.ordinal = COMPARE_NONE,
		.entry = it->entry,
		.project = c->nodes[it->node].project,
		.kind = it->kind,
		.why = it->why,
		.tier = it->tier,
		.status = (uint8_t)changeset_status_get(c->set, it->slot),
		.flags = it->flags,
		.subtree = it->subtree,
		.renamed = it->renamed,
	};
	fill_new(c, it, out);
	fill_old(c, it, out);
	if (it->tier) {
		AUTO_BUF struct buf path = { 0 };
		if (compare_path(c, i, &path) == 0)
			(void)compare_judge(c, it, span_of(path.p, path.len), &out->reason);
	}
}

void compare_summary(const struct compare *c, struct compare_summary *out)
{
	*out = c->sum;
}

void compare_counts(const struct compare *c, struct changeset_counts *out)
{
	*out = (struct changeset_counts){ .aside = c->sum.git.paths };
	for (uint32_t i = 0; i < c->n_items; i++) {
		const struct compare_item *it = &c->items[i];
		enum changeset_status v = changeset_status_get(c->set, it->slot);
		if (it->flags & COMPARE_REFUSED ||
		    (it->flags & COMPARE_IGNORED && v == CHANGESET_PENDING)) {
			out->aside++;
			continue;
		}
		switch (v) {
		case CHANGESET_PENDING:
			out->pending++;
			break;
		case CHANGESET_APPLIED:
			out->applied++;
			break;
		case CHANGESET_REJECTED:
			out->rejected++;
			break;
		case CHANGESET_CONFLICT:
			out->conflict++;
			break;
		}
	}
}

bool compare_baseline_at(const struct compare *c, uint16_t project, struct span path,
                         uint32_t entry, struct manifest_entry *out)
{
	const struct compare_applied *a = compare_overlay_find(&c->overlay, project, path);
	uint32_t parents =
		c->overlay.n ? compare_overlay_deleted_above(&c->overlay, project, path) : 0;

	*out = (struct manifest_entry){ 0 };
	if (entry != MANIFEST_NONE)
		manifest_get(&c->set->manifest, entry, out);
	if (!a || a->seq <= parents)
		return entry != MANIFEST_NONE && parents == 0;
	if (a->a.kind == 0)
		return false;
	out->kind = a->a.kind;
	out->mode = a->a.mode;
	out->size = a->a.size;
	out->ino = a->a.ino;
	out->mtime_ns = a->a.mtime_ns;
	out->ctime_ns = a->a.ctime_ns;
	return true;
}

uint32_t compare_slots(const struct compare *c)
{
	return c->set->records + c->n_virtual;
}

uint32_t compare_parent_mode(const struct compare *c, uint32_t i, uint32_t depth)
{
	ASSERT(i < c->n_items);
	uint32_t k = c->items[i].node;

	/* a node's depth counts the project as 1 */
	while (c->nodes[k].depth > depth + 1)
		k = c->nodes[k].parent;
	return c->nodes[k].at == COMPARE_NO_OFFSET
	               ? 0755
	               : compare_record_at(c, c->nodes[k].at).mode & 0777;
}

uint32_t compare_blocker(const struct compare *c, uint32_t i)
{
	ASSERT(i < c->n_items);
	for (uint32_t k = c->items[i].node; c->nodes[k].depth > 1; k = c->nodes[k].parent) {
		if (c->nodes[k].type_item != COMPARE_NONE)
			return c->nodes[k].type_item;
	}
	return COMPARE_NONE;
}

/* --- renames, for display --- */

struct candidate {
	uint64_t size;
	uint32_t item;
	struct hash hash;
};

static int by_size(const void *x, const void *y)
{
	const struct candidate *a = x, *b = y;

	if (a->size != b->size)
		return a->size < b->size ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

static size_t gather(const struct compare *c, uint8_t kind, uint64_t max_bytes,
                     struct candidate *out)
{
	struct compare_change ch;
	size_t n = 0;

	for (uint32_t i = 0; i < c->n_items; i++) {
		if (c->items[i].kind != kind ||
		    c->items[i].flags & (COMPARE_REFUSED | COMPARE_IGNORED))
			continue;
		compare_get(c, i, &ch);
		uint8_t type = kind == COMPARE_ADDED ? ch.new_type : ch.old_type;
		uint64_t size = kind == COMPARE_ADDED ? ch.new_size : ch.old_size;
		if (type == MANIFEST_FILE && size > 0 && size <= max_bytes)
			out[n++] = (struct candidate){ .size = size, .item = i, .hash = ch.hash };
	}
	qsort(out, n, sizeof(*out), by_size);
	return n;
}

void compare_renames(struct compare *c, int (*hash_of)(void *arg, uint32_t i, struct hash *out),
                     void *arg, uint64_t max_bytes, uint64_t max_total)
{
	enum { CANDIDATES_MAX = 20000 };
	if (c->sum.added == 0 || c->sum.deleted == 0 || c->sum.added > CANDIDATES_MAX ||
	    c->sum.deleted > CANDIDATES_MAX)
		return;
	AUTO_FREE struct candidate *add = xcalloc(c->sum.added, sizeof(*add));
	AUTO_FREE struct candidate *del = xcalloc(c->sum.deleted, sizeof(*del));
	size_t n_add = gather(c, COMPARE_ADDED, max_bytes, add);
	size_t n_del = gather(c, COMPARE_DELETED, max_bytes, del);
	size_t first = 0;

	for (size_t d = 0; d < n_del; d++) {
		while (first < n_add && add[first].size < del[d].size)
			first++;
		if (first == n_add)
			return;
		if (add[first].size != del[d].size || del[d].size > max_total)
			continue; /* never read for nothing */
		max_total -= del[d].size;
		if (hash_of(arg, del[d].item, &del[d].hash) < 0)
			continue;
		for (size_t a = first; a < n_add && add[a].size == del[d].size; a++) {
			struct compare_item *it = &c->items[add[a].item];
			if (it->renamed != COMPARE_NONE || !hash_eq(&add[a].hash, &del[d].hash))
				continue;
			it->renamed = del[d].item;
			c->items[del[d].item].renamed = add[a].item;
			break;
		}
	}
}

const char *compare_why_str(uint8_t why)
{
	static const char *const text[] = {
		[COMPARE_WHY_NONE] = "",
		[COMPARE_WHY_SECRET] = "a name that usually holds secrets",
		[COMPARE_WHY_HIDDEN] =
			"the host has something there that the sandbox could not see",
		[COMPARE_WHY_SPECIAL] = "a fifo, socket or device",
		[COMPARE_WHY_NO_PROJECT] = "it lies beside the projects",
		[COMPARE_WHY_NO_CONTENT] = "the change set does not hold its content",
		[COMPARE_WHY_NAME] = "a name that cloche uses for temporary files",
		[COMPARE_WHY_BELOW] = "it lies below something that is refused",
	};

	return why < ARRAY_LEN(text) ? text[why] : "";
}

char compare_letter(uint8_t kind)
{
	static const char letters[] = "?AMDmT";

	return kind < sizeof(letters) - 1 ? letters[kind] : '?';
}
