/* SPDX-License-Identifier: Apache-2.0 */
/* git2_priv.h - the one thing that libgit2 is used for: a diff of two buffers. */
#ifndef CLOCHE_REVIEW_GIT2_PRIV_H
#define CLOCHE_REVIEW_GIT2_PRIV_H

#include "base/span.h"

/* "@@ -1,3 +1,4 @@ ...\n"; a negative answer ends the diff with it. */
typedef int (*git2_hunk_fn)(void *arg, struct span header);
/*
 * @origin: ' ', '+', '-' before the content of a line; '=', '>', '<' for the
 * note that a side has no newline at its end, which @content spells.
 */
typedef int (*git2_line_fn)(void *arg, char origin, struct span content);

int git2_init(void) MUST_CHECK;
int git2_diff(struct span a, struct span b, git2_hunk_fn hunk, git2_line_fn line,
              void *arg) MUST_CHECK;

#endif
