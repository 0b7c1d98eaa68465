/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vis.h - text from outside made printable.
 *
 * Names, messages and file contents that a guest, a repository or an image
 * chose reach a terminal or a log only through these. Valid UTF-8 passes,
 * except what can steer a terminal or mislead a reader: C0, DEL and C1
 * controls, bidirectional controls, zero-width and other invisible format
 * characters, line and paragraph separators, tags, private use and
 * noncharacters. Those, and every byte that is not valid UTF-8, come out as
 * \xNN per byte (\n, \t, \r, \e for the common ones), and a backslash as \\,
 * so the text can be read back.
 */
#ifndef CLOCHE_BASE_VIS_H
#define CLOCHE_BASE_VIS_H

#include "base/mem.h"
#include "base/span.h"

/* Bits of @flags */
enum {
	VIS_KEEP_TAB = 1,       /* a tab passes: for file contents */
	VIS_KEEP_NEWLINE = 2,   /* a newline passes: for blocks of text */
	VIS_KEEP_BACKSLASH = 4, /* not doubled: for contents shown to a person */
};

/* Append @s to @b, made visible. Return: 0 or -ENOMEM. */
int vis_put(struct buf *b, struct span s, int flags) MUST_CHECK;

/* A NUL-terminated copy, malloc'd; aborts without memory. For names. */
char *vis_dup(struct span s) MUST_CHECK;

/*
 * vis_str() - @s made visible in @dst, cut with "..." when it does not fit.
 * Return: @dst, for use as an argument of a format.
 */
const char *vis_str(char *dst, size_t cap, struct span s);

/* Decode one UTF-8 scalar at @s. Return: its bytes (1-4), or 0 when invalid. */
size_t vis_utf8(struct span s, uint32_t *out_cp);

#endif
