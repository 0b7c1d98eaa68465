/* SPDX-License-Identifier: Apache-2.0 */
#include "workspace/symlink.h"

#include <errno.h>

/* Where the walk stands: a directory of the tree, and how many unknown names below it. */
struct place {
	const void *dir;
	size_t unknown;
	bool hidden; /* something on the way is not shown */
};

struct budget {
	unsigned hops, steps;
};

static struct span component(struct span *rest)
{
	while (rest->len && rest->p[0] == '/')
		*rest = span_of(rest->p + 1, rest->len - 1);
	const uint8_t *slash = rest->len ? memchr(rest->p, '/', rest->len) : NULL;
	struct span c = span_of(rest->p, slash ? (size_t)(slash - rest->p) : rest->len);

	*rest = span_of(rest->p + c.len, rest->len - c.len);
	return c;
}

/* What of absolute @text lies behind the project's own path; false when it is elsewhere. */
static bool inside_path(struct span project, struct span text, struct span *out_rest)
{
	for (;;) {
		struct span want = component(&project);
		struct span got = { 0 };

		if (want.len == 0) {
			*out_rest = text;
			return true;
		}
		do {
			got = component(&text);
		} while (span_eq(got, span_str(".")));
		if (!span_eq(want, got))
			return false;
	}
}

/* Recursion is bounded by the hops. */
static enum symlink_verdict follow(const struct symlink_tree *t, struct span text, struct place *at,
                                   struct budget *b)
{
	if (text.len && text.p[0] == '/') {
		if (!inside_path(t->path, text, &text))
			return SYMLINK_OUTSIDE;
		*at = (struct place){ .dir = t->root, .hidden = at->hidden };
	}
	for (;;) {
		struct span name = component(&text);
		const void *node = NULL;

		if (name.len == 0)
			return SYMLINK_INSIDE;
		if (++b->steps > SYMLINK_STEPS_MAX)
			return SYMLINK_LOOP;
		if (span_eq(name, span_str(".")))
			continue;
		if (span_eq(name, span_str(".."))) {
			if (at->unknown) {
				at->unknown--;
			} else if (at->dir == t->root) {
				return SYMLINK_OUTSIDE;
			} else {
				at->dir = t->parent(t->arg, at->dir);
			}
			continue;
		}
		if (at->unknown) {
			at->unknown++;
			continue;
		}
		switch (t->child(t->arg, at->dir, name, &node)) {
		case SYMLINK_DIR:
			at->dir = node;
			break;
		case SYMLINK_LINK: {
			if (++b->hops > SYMLINK_HOPS_MAX)
				return SYMLINK_LOOP;
			enum symlink_verdict v = follow(t, t->text(t->arg, node), at, b);
			if (v != SYMLINK_INSIDE)
				return v;
			break;
		}
		case SYMLINK_ABSENT:
			at->hidden = true;
			at->unknown = 1;
			break;
		case SYMLINK_NONE:
		case SYMLINK_FILE:
			at->unknown = 1;
			break;
		}
	}
}

int symlink_judge(const struct symlink_tree *t, const void *link, struct buf *out_text)
{
	struct place at = { .dir = t->parent(t->arg, link) };
	struct budget b = { 0 };
	struct span text = t->text(t->arg, link);
	struct span rest;
	enum symlink_verdict v = follow(t, text, &at, &b);

	if (v == SYMLINK_OUTSIDE)
		return SYMLINK_OUTSIDE;
	if (text.len && text.p[0] == '/') {
		AUTO_BUF struct buf rel = { 0 };

		if (!inside_path(t->path, text, &rest))
			return SYMLINK_OUTSIDE;
		for (const void *d = t->parent(t->arg, link); d != t->root;
		     d = t->parent(t->arg, d))
			if (buf_put(&rel, "../", 3) < 0)
				return -ENOMEM;
		while (rest.len && rest.p[0] == '/')
			rest = span_of(rest.p + 1, rest.len - 1);
		if (rest.len == 0 && buf_put(&rel, ".", 1) < 0)
			return -ENOMEM;
		if (buf_put(&rel, rest.p, rest.len) < 0)
			return -ENOMEM;
		if (rel.len > SYMLINK_TEXT_MAX)
			return -ENAMETOOLONG;
		if (buf_put(out_text, rel.p, rel.len) < 0)
			return -ENOMEM;
	}
	if (v == SYMLINK_LOOP)
		return SYMLINK_LOOP;
	return at.hidden ? SYMLINK_HIDDEN : SYMLINK_INSIDE;
}
