/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - unified diffs of two buffers, safe to show on a terminal.
 *
 * The only file that uses libgit2 is diff.c, and of it only the diff of
 * buffers: no repository is ever opened. It runs in the caged review worker.
 */
#ifndef CLOCHE_REVIEW_DIFF_H
#define CLOCHE_REVIEW_DIFF_H

#include "base/mem.h"
#include "base/span.h"

enum {
	DIFF_BYTES_MAX = 10 * 1024 * 1024, /* of either side; a notice beyond */
	DIFF_PROBE = 8 * 1024,             /* a NUL in here means binary */
	DIFF_OUT_MAX = 64 * 1024 * 1024,   /* bytes of output; a notice ends it */
};

enum {                       /* flags */
       DIFF_COLOUR = 1 << 0, /* SGR around lines; nothing else of a terminal's */
       DIFF_RAW = 1 << 1,    /* bytes as they are: for tests and for files */
};

struct diff_stat {
	uint32_t added, removed; /* lines */
	bool binary, too_big, cut;
};

/* Load what libgit2 loads lazily; before the cage. 0 or -errno. */
int diff_init(void) MUST_CHECK;

bool diff_is_binary(struct span head);

/*
 * diff_render() - append a unified diff to @out: "--- a/PATH", "+++ b/PATH", hunks.
 * @path:	shown, made visible
 * @had/@has:	does the side exist ("/dev/null" otherwise)
 *
 * Return: 0, -ENOMEM, -EIO when libgit2 fails.
 */
int diff_render(struct buf *out, struct span path, struct span a, bool had, struct span b, bool has,
                int flags, struct diff_stat *stat) MUST_CHECK;

/* Append the notice that stands for a diff: binary or too big, with both sizes. */
int diff_notice(struct buf *out, struct span path, const struct diff_stat *stat, uint64_t a_size,
                uint64_t b_size) MUST_CHECK;

#endif
