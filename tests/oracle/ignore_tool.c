/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ignore_tool.c - answers the oracle script. stdin, all numbers decimal lines:
 * lists: count, then per list: dir length, rank, text length, dir, text;
 * then paths: count, then per path: is_dir, length, bytes. Output: 0 or 1 a line.
 */
#include <stdio.h>

#include "policy/ignore.h"

static size_t number(void)
{
	unsigned long v = 0;

	if (scanf("%lu", &v) != 1 || getchar() != '\n')
		exit(2);
	return v;
}

static void *bytes(size_t n)
{
	uint8_t *p = xmalloc(n + 1);

	if (fread(p, 1, n, stdin) != n)
		exit(2);
	return p;
}

int main(void)
{
	struct ignore_set *s = ignore_set_new();

	for (size_t n = number(); n-- > 0;) {
		size_t dir_len = number();
		int rank = (int)number();
		size_t text_len = number();
		AUTO_FREE void *dir = bytes(dir_len);
		AUTO_FREE void *text = bytes(text_len);
		struct ignore_list *l = NULL;

		if (ignore_parse(&l, span_of(text, text_len), 0) < 0 ||
		    ignore_set_add(s, span_of(dir, dir_len), l, rank) < 0)
			return 3;
	}
	for (size_t n = number(); n-- > 0;) {
		bool is_dir = number() != 0;
		size_t len = number();
		AUTO_FREE void *path = bytes(len);

		puts(ignore_set_match(s, span_of(path, len), is_dir) ? "1" : "0");
	}
	ignore_set_free(s);
	return 0;
}
