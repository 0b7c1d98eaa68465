/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - allocation, ownership by scope, and a growing byte buffer.
 *
 * xmalloc() and friends abort without memory: for sizes that we chose. A size
 * that comes from outside is compared with a named *_MAX first and then goes
 * through malloc() or buf_reserve(), which report -ENOMEM.
 */
#ifndef CLOCHE_BASE_MEM_H
#define CLOCHE_BASE_MEM_H

#include <stdlib.h>

#include "base/util.h"

void *xmalloc(size_t n) MUST_CHECK;
void *xcalloc(size_t n, size_t size) MUST_CHECK;
void *xrealloc(void *p, size_t n) MUST_CHECK;
char *xstrdup(const char *s) MUST_CHECK;
char *xstrndup(const char *s, size_t n) MUST_CHECK;
void *xmemdup(const void *p, size_t n) MUST_CHECK;
char *xasprintf(const char *fmt, ...) MUST_CHECK PRINTF_FMT(1, 2);

static inline void auto_free_(void *p)
{
	free(*(void **)p);
}

/* free() at the end of the scope; always initialised at the declaration */
#define AUTO_FREE __attribute__((cleanup(auto_free_)))

static inline void *take_ptr_(void **p)
{
	void *v = *p;

	*p = NULL;
	return v;
}

/* Hand ownership of an AUTO_* pointer on: returns it and clears the variable. */
#define take_ptr(p) ((__typeof__(*(p)))take_ptr_((void **)(p)))

/* A growing byte buffer. Zero-initialised is empty; buf_fini() accepts that. */
struct buf {
	uint8_t *p;
	size_t len, cap;
};

/* Return: 0 or -ENOMEM; the content is unchanged on failure. */
int buf_reserve(struct buf *b, size_t extra) MUST_CHECK;
int buf_put(struct buf *b, const void *p, size_t n) MUST_CHECK;
int buf_printf(struct buf *b, const char *fmt, ...) MUST_CHECK PRINTF_FMT(2, 3);
/* Drop the first @n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);
void buf_fini(struct buf *b);

#define AUTO_BUF __attribute__((cleanup(buf_fini)))

#endif
