/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify.h - paths that get something else to run, and why.
 *
 * Tier 1 runs on its own (a hook, an editor's or an agent's start-up file): it
 * is never applied without naming the path. Tier 2 runs at the user's next
 * build or pipeline: it is applied with a warning. The rules are two const
 * tables (classify.c); each has the reason that is printed. Names compare
 * folded (ASCII case, the two letters that Unicode folds into ASCII, and the
 * invisible characters that a case-folding file system ignores), at any depth.
 * Pure.
 */
#ifndef CLOCHE_REVIEW_CLASSIFY_H
#define CLOCHE_REVIEW_CLASSIFY_H

#include "base/mem.h"
#include "base/span.h"

enum classify_tier {
	CLASSIFY_PLAIN = 0,
	CLASSIFY_AUTO = 1,  /* tier 1: runs by itself */
	CLASSIFY_BUILD = 2, /* tier 2: runs with the next build or pipeline */
};

struct classify_rule {
	const char *pattern; /* folded components joined by '/'; '*' within one */
	const char *reason;
};

/* NULL-terminated, in order of precedence. */
extern const struct classify_rule classify_tier1[];
extern const struct classify_rule classify_tier2[];

/*
 * classify_path() - judge @path (relative to the project).
 * @out_reason:	a constant text, or NULL when the path is plain
 */
enum classify_tier classify_path(struct span path, const char **out_reason);

/* One component folded into @dst. Return: its length, at most @cap (longer is cut). */
size_t classify_fold(char *dst, size_t cap, struct span name);

/* Is @name a git directory or file by any spelling (".git", ".GIT", "git~1")? */
bool classify_is_git(struct span name);

enum classify_link {
	CLASSIFY_LINK_INSIDE = 0,
	CLASSIFY_LINK_ABSOLUTE,
	CLASSIFY_LINK_LEAVES,  /* more ".." than directories */
	CLASSIFY_LINK_UNCLEAR, /* ".." behind a name: cannot be judged by its text */
	CLASSIFY_LINK_GIT,     /* goes through a .git */
	CLASSIFY_LINK_BAD,     /* empty, or a NUL in it */
};

/* Where does the text of a link lead that lies @depth directories below the project? */
enum classify_link classify_link_text(struct span text, uint32_t depth);

#endif
