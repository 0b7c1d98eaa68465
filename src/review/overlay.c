/* SPDX-License-Identifier: Apache-2.0 */
#include "review/compare_priv.h"

#include <errno.h>

#include "base/path.h"

static size_t place(const struct compare_overlay *o, uint16_t project, struct span path)
{
	uint64_t h = 0xcbf29ce484222325u ^ project; /* FNV-1a */

	for (size_t i = 0; i < path.len; i++)
		h = (h ^ path.p[i]) * 0x100000001b3u;
	size_t at = (size_t)(h ^ h >> 32) & (o->cap - 1);
	while (o->slots[at].seq &&
	       (o->slots[at].a.project != project || !span_eq(o->slots[at].a.path, path)))
		at = (at + 1) & (o->cap - 1);
	return at;
}

static size_t count(struct span t)
{
	struct changeset_applied a;
	size_t n = 0, used;

	while (changeset_applied_parse(&a, t, &used) == 0) {
		t.p += used;
		t.len -= used;
		n++;
	}
	return n;
}

int compare_overlay_load(struct compare_overlay *o, const struct span *tables, size_t n_tables)
{
	struct changeset_applied a;
	size_t n = 0, used;
	uint32_t seq = 0;

	for (size_t i = 0; i < n_tables; i++)
		n += count(tables[i]);
	if (n == 0)
		return 0;
	if (n > CHANGESET_APPLIED_MAX / 64)
		return -EFBIG;
	for (o->cap = 16; o->cap < 2 * n;)
		o->cap *= 2;
	o->slots = calloc(o->cap, sizeof(*o->slots));
	if (!o->slots)
		return -ENOMEM;
	for (size_t i = 0; i < n_tables; i++) {
		struct span t = tables[i];
		while (changeset_applied_parse(&a, t, &used) == 0) {
			struct compare_applied *p = &o->slots[place(o, a.project, a.path)];
			o->n += p->seq == 0;
			p->a = a;
			p->seq = ++seq;
			if (a.kind == 0)
				p->deleted_seq = seq;
			t.p += used;
			t.len -= used;
		}
	}
	return 0;
}

void compare_overlay_fini(struct compare_overlay *o)
{
	free(o->slots);
	*o = (struct compare_overlay){ 0 };
}

const struct compare_applied *compare_overlay_find(const struct compare_overlay *o,
                                                   uint16_t project, struct span path)
{
	if (o->n == 0)
		return NULL;
	const struct compare_applied *p = &o->slots[place(o, project, path)];
	return p->seq ? p : NULL;
}

uint32_t compare_overlay_deleted_above(const struct compare_overlay *o, uint16_t project,
                                       struct span path)
{
	uint32_t seq = 0;

	for (path = path_parent(path); path.len; path = path_parent(path)) {
		const struct compare_applied *p = compare_overlay_find(o, project, path);
		if (p)
			seq = MAX(seq, p->deleted_seq);
	}
	return seq;
}
