/* SPDX-License-Identifier: Apache-2.0 */
/* scan_tree.c - decisions that need the whole tree. */
#include <errno.h>

#include "workspace/scan_priv.h"
#include "workspace/symlink.h"

/* Heavy names go, but for what is tracked and the way to it. */
static void drop_heavy(struct scan *s)
{
	struct list stack = { 0 };

	for (size_t i = 0; i < s->heavies.n; i++)
		*(struct node **)list_add(&stack, sizeof(void *)) =
			((struct node **)s->heavies.p)[i];
	while (stack.n) {
		struct node *n = ((struct node **)stack.p)[--stack.n];

		/* a .git in a directory that stays is what makes it a repository */
		if (n->flags & (MANIFEST_ABSENT | MANIFEST_GIT))
			continue;
		if (!(n->flags & MANIFEST_TRACKED)) {
			scan_hide(s, n, MANIFEST_EXCLUDED, 0);
			continue;
		}
		for (uint32_t i = 0; i < n->n_kids; i++)
			*(struct node **)list_add(&stack, sizeof(void *)) = &n->kids[i];
	}
	free(stack.p);
}

/* Is it still there? A directory above it may have been dropped after it was listed. */
static bool reachable(const struct node *n)
{
	for (; !(n->own & OWN_PROJECT); n = n->parent)
		if (n->flags & MANIFEST_ABSENT || n->parent->n_kids == 0)
			return false;
	return true;
}

static enum symlink_node child(void *arg, const void *dir, struct span name, const void **out)
{
	const struct node *d = dir;
	const struct node *n;

	(void)arg;
	n = scan_child(d, name);
	if (!n)
		return SYMLINK_NONE;
	*out = n;
	if (n->kind == MANIFEST_LINK && n->link_len &&
	    (!(n->flags & MANIFEST_ABSENT) || n->why == MANIFEST_WHY_LINK_OUT))
		return SYMLINK_LINK; /* one that was dropped just now still leads where it led */
	if (n->flags & MANIFEST_ABSENT)
		return SYMLINK_ABSENT;
	return n->kind == MANIFEST_DIR ? SYMLINK_DIR : SYMLINK_FILE;
}

static const void *parent(void *arg, const void *node)
{
	const struct node *n = node;

	(void)arg;
	return n->parent;
}

static struct span text(void *arg, const void *link)
{
	const struct node *n = link;

	(void)arg;
	return span_of(n->link, n->link_len);
}

/* New texts are kept aside until all links are judged: the judging is by the host's texts. */
struct new_text {
	struct node *node;
	uint8_t *text;
	size_t len;
};

static int judge_links(struct scan *s, struct err *err)
{
	struct node **links = s->links.p;
	struct list texts = { 0 };
	int ret = 0;

	for (size_t i = 0; i < s->links.n; i++) {
		struct node *n = links[i];
		AUTO_BUF struct buf rel = { 0 };

		if (!reachable(n))
			continue;
		const char *path = s->o->projects[n->project].path;
		struct symlink_tree t = { .root = s->roots[n->project],
			                  .child = child,
			                  .parent = parent,
			                  .text = text,
			                  .path = span_str(path) };
		ret = symlink_judge(&t, n, &rel);
		if (ret == -ENAMETOOLONG) {
			scan_hide(s, n, MANIFEST_SKIPPED, MANIFEST_WHY_LIMIT);
			continue;
		}
		if (ret < 0)
			break;
		if (ret == SYMLINK_OUTSIDE) {
			scan_hide(s, n, MANIFEST_SKIPPED, MANIFEST_WHY_LINK_OUT);
			continue;
		}
		if (ret == SYMLINK_HIDDEN)
			n->flags |= MANIFEST_DANGLING;
		if (rel.len) {
			n->flags |= MANIFEST_RELATIVE;
			scan_note(s, NOTE_RELATIVE, n, text(NULL, n));
			struct new_text *x = list_add(&texts, sizeof(*x));
			*x = (struct new_text){ n, rel.p, rel.len };
			rel = (struct buf){ 0 };
		}
	}
	struct new_text *x = texts.p;
	for (size_t i = 0; i < texts.n; i++) {
		x[i].node->link = x[i].text;
		x[i].node->link_len = (uint16_t)x[i].len;
		*(void **)list_add(&s->chunks, sizeof(void *)) = x[i].text;
	}
	free(texts.p);
	return ret < 0 ? err_code(err, ret, "cannot judge the symlinks") : 0;
}

int scan_tree(struct scan *s, struct err *err)
{
	if (s->heavy && !s->index_failed)
		drop_heavy(s);
	return judge_links(s, err);
}
