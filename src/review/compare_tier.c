/* SPDX-License-Identifier: Apache-2.0 */
/* How much care each change asks for, and the sums over all. */
#include "review/compare_items.h"

#include <errno.h>
#include <string.h>

#include "review/classify.h"

static const char *const link_reasons[] = {
	[CLASSIFY_LINK_ABSOLUTE] = "a link to an absolute path",
	[CLASSIFY_LINK_LEAVES] = "a link that leaves the project",
	[CLASSIFY_LINK_UNCLEAR] = "a link whose target cannot be judged by its text",
	[CLASSIFY_LINK_GIT] = "a link into git's own data",
	[CLASSIFY_LINK_BAD] = "a link with a broken text",
};

/* Would the text lead through a link or a hidden place of the host? */
static bool through_other(const struct compare *c, uint32_t node, struct span text)
{
	const struct manifest *m = &c->set->manifest;
	uint32_t at = c->nodes[node].entry;
	struct manifest_entry e;

	while (text.len) {
		const uint8_t *slash = memchr(text.p, '/', text.len);
		size_t n = slash ? (size_t)(slash - text.p) : text.len;
		struct span name = span_of(text.p, n);

		n += slash ? 1 : 0;
		text = span_of(text.p + n, text.len - n);
		if (name.len == 0 || (name.len == 1 && name.p[0] == '.'))
			continue;
		if (name.len == 2 && memcmp(name.p, "..", 2) == 0) {
			/* only in front: classify_link_text() saw to that */
			node = c->nodes[node].parent;
			at = c->nodes[node].entry;
			continue;
		}
		if (at == MANIFEST_NONE)
			return false;
		at = manifest_child(m, at, name);
		if (at == MANIFEST_NONE)
			return false;
		manifest_get(m, at, &e);
		if (e.flags & MANIFEST_ABSENT && e.kind != MANIFEST_FILE)
			return true;
		if (e.kind != MANIFEST_DIR)
			return text.len && e.kind == MANIFEST_LINK;
	}
	return false;
}

uint8_t compare_judge(const struct compare *c, const struct compare_item *it, struct span path,
                      const char **out_reason)
{
	uint8_t tier = (uint8_t)classify_path(path, out_reason);

	if (tier == CLASSIFY_AUTO)
		return tier;
	if (it->at != COMPARE_NO_OFFSET) {
		struct change_record r = compare_record_at(c, it->at);
		const struct compare_node *n = &c->nodes[it->node];
		if (r.type == CHANGE_LINK) {
			enum classify_link l =
				classify_link_text(r.bytes, n->depth ? n->depth - 1u : 0);
			if (l != CLASSIFY_LINK_INSIDE) {
				*out_reason = link_reasons[l];
				return CLASSIFY_AUTO;
			}
			if (through_other(c, it->node, r.bytes)) {
				*out_reason = "a link that leads through another link";
				return CLASSIFY_AUTO;
			}
		}
	}
	for (uint32_t k = it->node; c->nodes[k].depth > 0; k = c->nodes[k].parent) {
		if (c->nodes[k].bare) {
			*out_reason = "its directory is shaped like a bare git repository";
			return CLASSIFY_AUTO;
		}
	}
	return tier;
}

int compare_finish(struct compare *c)
{
	AUTO_BUF struct buf path = { 0 };
	struct compare_summary *s = &c->sum;
	const char *reason;

	for (uint32_t i = 0; i < c->n_items; i++) {
		struct compare_item *it = &c->items[i];
		if (it->flags & COMPARE_IGNORED) {
			s->ignored += 1 + (it->flags & COMPARE_REFUSED ? it->subtree : 0);
		} else if (it->flags & COMPARE_REFUSED) {
			s->refused++;
			continue;
		}
		if (it->flags & COMPARE_REFUSED)
			continue;
		path.len = 0;
		if (compare_path(c, i, &path) < 0)
			return -ENOMEM;
		it->tier = compare_judge(c, it, span_of(path.p, path.len), &reason);
		if (it->flags & COMPARE_IGNORED)
			continue;
		s->added += it->kind == COMPARE_ADDED;
		s->modified += it->kind == COMPARE_MODIFIED;
		s->deleted += it->kind == COMPARE_DELETED;
		s->mode += it->kind == COMPARE_MODE;
		s->type += it->kind == COMPARE_TYPE;
		s->tier1 += it->tier == CLASSIFY_AUTO;
		s->tier2 += it->tier == CLASSIFY_BUILD;
		s->suspect += it->flags & COMPARE_SUSPECT ? 1 : 0;
	}
	return 0;
}
