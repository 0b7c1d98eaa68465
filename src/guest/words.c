/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest/guest.h"

static int grow(struct words *w, size_t need)
{
	if (need <= w->cap)
		return 0;
	size_t cap = MAX(w->cap * 2, MAX(need, (size_t)64));
	char **v = realloc(w->v, cap * sizeof(*v));
	if (!v)
		return -ENOMEM;
	w->v = v;
	w->cap = cap;
	return 0;
}

int words_add(struct words *w, const struct span *v, size_t n)
{
	if (n > GUEST_WORDS_MAX - w->n)
		return -E2BIG;
	int r = grow(w, w->n + n + 1);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (v[i].len > GUEST_WORDS_BYTES_MAX - w->bytes)
			return -E2BIG;
		char *s = malloc(v[i].len + 1);
		if (!s)
			return -ENOMEM;
		if (v[i].len)
			memcpy(s, v[i].p, v[i].len);
		s[v[i].len] = '\0';
		w->v[w->n++] = s;
		w->bytes += v[i].len;
	}
	return 0;
}

int words_end(struct words *w)
{
	int r = grow(w, w->n + 1);

	if (r == 0)
		w->v[w->n] = NULL;
	return r;
}

void words_clear(struct words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i]);
	free(w->v);
	*w = (struct words){ 0 };
}
