/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sanitized.c - linked into every program of a sanitizer build: what the
 * address sanitizer may not do in a cage. Unit tests keep its leak check.
 */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
