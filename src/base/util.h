/* SPDX-License-Identifier: Apache-2.0 */
/*
 * util.h - the handful of macros that every module uses.
 *
 * Nothing here allocates or calls the system. ASSERT() is always compiled in
 * and means "we are wrong": input alone must never reach it.
 */
#ifndef CLOCHE_BASE_UTIL_H
#define CLOCHE_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_FMT(fmt, first) __attribute__((format(printf, fmt, first)))
#define UNUSED __attribute__((unused))
#define NORETURN __attribute__((noreturn))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

NORETURN void assert_failed(const char *what, const char *file, int line);

#define ASSERT(cond)                                              \
	do {                                                      \
		if (__builtin_expect(!(cond), 0))                 \
			assert_failed(#cond, __FILE__, __LINE__); \
	} while (0)

/* Sums and products of sizes that come from outside: false on overflow. */
static inline MUST_CHECK bool size_add(size_t a, size_t b, size_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

static inline MUST_CHECK bool size_mul(size_t a, size_t b, size_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

static inline MUST_CHECK bool u64_add(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

/* @align is a power of two; the caller knows that the sum cannot overflow. */
static inline uint64_t align_up(uint64_t n, uint64_t align)
{
	return (n + align - 1) & ~(align - 1);
}

#endif
