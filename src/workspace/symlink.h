/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symlink.h - which symlinks of a project the guest gets, and with which text.
 *
 * Decided on the text that was read once, never by asking the host's file
 * system again. The text is followed through the scanned tree: real
 * directories, "..", and other links, whose texts count as well. A link that
 * leaves the project at any step is outside. Names that are not in the tree
 * are followed by their words alone. Pure; the tree is asked through callbacks.
 */
#ifndef CLOCHE_WORKSPACE_SYMLINK_H
#define CLOCHE_WORKSPACE_SYMLINK_H

#include "base/mem.h"
#include "base/span.h"

enum {
	SYMLINK_HOPS_MAX = 40, /* as the kernel (MAXSYMLINKS) */
	SYMLINK_TEXT_MAX = 4095,
	SYMLINK_STEPS_MAX = 4096, /* components in all, over all links on the way */
};

enum symlink_verdict {
	SYMLINK_INSIDE = 0,
	SYMLINK_OUTSIDE, /* leaves the project */
	SYMLINK_HIDDEN,  /* inside, but what it points to is not shown: stays, dangling */
	SYMLINK_LOOP,    /* goes round or is too long a way: stays, as harmless as on the host */
};

enum symlink_node {
	SYMLINK_NONE = 0, /* no such name */
	SYMLINK_DIR,
	SYMLINK_LINK,
	SYMLINK_FILE,
	SYMLINK_ABSENT, /* there, but the guest does not see it */
};

struct symlink_tree {
	void *arg;
	const void *root; /* the project's directory */
	/* the child of directory @dir: what it is, and the node itself */
	enum symlink_node (*child)(void *arg, const void *dir, struct span name, const void **out);
	const void *(*parent)(void *arg, const void *node);
	struct span (*text)(void *arg, const void *link); /* as it was read on the host */
	struct span path; /* the project's absolute path on the host, without a '/' at the end */
};

/*
 * symlink_judge() - judge link @link of @t.
 * @out_text:	appended to: the text for the guest when it is not the original (absolute
 *		text into the project made relative); nothing otherwise
 *
 * Return: an enum symlink_verdict, -ENOMEM, -ENAMETOOLONG when the relative text is too long.
 */
int symlink_judge(const struct symlink_tree *t, const void *link, struct buf *out_text) MUST_CHECK;

#endif
