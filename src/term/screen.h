/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.h - text for people: widths, numbers with units, tables.
 *
 * Cells and messages may hold names that somebody else chose: everything here
 * passes them through vis first. Nothing writes to a descriptor; the caller
 * prints the buffer. Words carry the meaning, colour only helps.
 */
#ifndef CLOCHE_TERM_SCREEN_H
#define CLOCHE_TERM_SCREEN_H

#include "base/mem.h"
#include "base/span.h"

enum { TERM_FMT_BYTES = 48 };

/* A terminal that can erase and colour: isatty, and TERM is neither unset, empty nor "dumb". */
bool term_can_redraw(int fd);
/* As above, and NO_COLOR is unset or empty (https://no-color.org). */
bool term_can_colour(int fd);

/*
 * Columns of printable UTF-8 (wide 2, combining 0), whatever the user's locale is.
 * Invalid bytes and controls count 1 each.
 */
size_t term_width(struct span s);

/*
 * Append @s, made visible, cut to @cols columns: what does not fit ends in "…".
 * @pad: fill with spaces up to @cols. Return: 0 or -ENOMEM.
 */
int term_put_cut(struct buf *b, struct span s, size_t cols, bool pad) MUST_CHECK;

/* Each returns @dst. */
const char *term_fmt_size(char dst[TERM_FMT_BYTES], uint64_t bytes);  /* 1.1 GiB, 612 MiB */
const char *term_fmt_duration(char dst[TERM_FMT_BYTES], uint64_t ns); /* 0.41 s, 12 min 3 s */
const char *term_fmt_age(char dst[TERM_FMT_BYTES], uint64_t seconds); /* 12 s, 2 h, 3 d */
const char *term_fmt_count(char dst[TERM_FMT_BYTES], uint64_t n);     /* 84 211 */

/*
 * A table: one header line, cells padded to the widest, two spaces or more
 * between columns, no trailing blanks.
 */
enum { TERM_TABLE_COLS_MAX = 16, TERM_TABLE_CELL_MAX = 4096 };

enum term_align { TERM_LEFT, TERM_RIGHT };

struct term_col {
	const char *head; /* NULL in all columns: no header line */
	enum term_align align;
	bool elastic; /* cut first (the widest first) when the line is too long */
};

struct term_table {
	const struct term_col *cols; /* borrowed */
	size_t n_cols, n_rows, cap;
	char **cells; /* made visible, the table's */
};

void term_table_init(struct term_table *t, const struct term_col *cols, size_t n_cols);
/* Copy one row of @n_cols strings; NULL is shown as "-". Aborts without memory. */
void term_table_row(struct term_table *t, const char *const *cells);
/* Append all lines. @width: columns of the terminal; 0: no limit. Return: 0 or -ENOMEM. */
int term_table_put(const struct term_table *t, size_t width, struct buf *out) MUST_CHECK;
void term_table_fini(struct term_table *t);

#endif
