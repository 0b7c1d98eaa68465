/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - an error text that the user can act on, in a fixed buffer.
 *
 * Leaf functions return -errno and nothing else. Operations that a user could
 * name also fill a struct err on the caller's stack: no ownership, works
 * without memory. Callers add context outward with err_wrap(). Every function
 * accepts a NULL @err, and returns the code, so it can stand in a return; err_wrap()
 * and err_hint() then return the code of the last error that was set with NULL.
 */
#ifndef CLOCHE_BASE_ERR_H
#define CLOCHE_BASE_ERR_H

#include "base/util.h"

enum { ERR_TEXT_BYTES = 512, ERR_HINT_BYTES = 384 };

struct err {
	int code;                  /* -errno, 0 while there is no error */
	char text[ERR_TEXT_BYTES]; /* one line, without a final dot */
	char hint[ERR_HINT_BYTES]; /* what to do; empty when there is nothing to say */
};

/* Set @err to @code (< 0) and the formatted text. Return: @code. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF_FMT(3, 4);

/* As err_set() with -errno of now, the system's reason appended. */
int err_errno(struct err *err, const char *fmt, ...) PRINTF_FMT(2, 3);

/* As err_errno() for a @code (< 0) that a leaf function returned. */
int err_code(struct err *err, int code, const char *fmt, ...) PRINTF_FMT(3, 4);

/* Put "context: " before the present text. Return: the unchanged code. */
int err_wrap(struct err *err, const char *fmt, ...) PRINTF_FMT(2, 3);

/* Set the remedy shown in a line of its own; an earlier one stays. Return: the code. */
int err_hint(struct err *err, const char *fmt, ...) PRINTF_FMT(2, 3);

#endif
