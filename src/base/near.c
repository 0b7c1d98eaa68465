/* SPDX-License-Identifier: Apache-2.0 */
#include "base/near.h"

#include <string.h>

/* Edit distance with transpositions, cut off at NEAR_MAX; words are short. */
enum { NEAR_WORD = 40, NEAR_MAX = 3 };

static size_t distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);
	size_t d[NEAR_WORD + 1][NEAR_WORD + 1];

	if (la > NEAR_WORD || lb > NEAR_WORD)
		return NEAR_WORD;
	for (size_t i = 0; i <= la; i++)
		d[i][0] = i;
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = j;
	for (size_t i = 1; i <= la; i++) {
		for (size_t j = 1; j <= lb; j++) {
			size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			best = MIN(best, d[i - 1][j] + 1);
			best = MIN(best, d[i][j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = MIN(best, d[i - 2][j - 2] + 1);
			d[i][j] = best;
		}
	}
	return d[la][lb];
}

const char *near_word(const char *word, const char *const *known, size_t n)
{
	const char *best = NULL;
	size_t best_d = NEAR_MAX + 1;

	for (size_t i = 0; i < n; i++) {
		size_t k = distance(word, known[i]);
		if (k < best_d && k < strlen(known[i])) {
			best_d = k;
			best = known[i];
		}
	}
	return best;
}
