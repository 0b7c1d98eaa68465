/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: USER, a line end, passwd, a line with "--", group. Property: what is found is never
 * root, and its texts are printable and, where they are paths, absolute.
 */
#include <stdlib.h>
#include <string.h>

#include "guest/account.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void text(const char *s, size_t max, bool path)
{
	if (strlen(s) == 0 || strlen(s) > max || (path && s[0] != '/'))
		abort();
	for (; *s; s++) {
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nl = size ? memchr(data, '\n', size) : NULL;
	struct account a = { 0 };

	if (!nl)
		return 0;
	struct span user = span_of(data, (size_t)(nl - data));
	struct span rest = span_of(nl + 1, size - user.len - 1), group = { 0 };
	const uint8_t *cut = rest.len ? memmem(rest.p, rest.len, "\n--\n", 4) : NULL;
	if (cut) {
		group = span_of(cut + 4, rest.len - (size_t)(cut - rest.p) - 4);
		rest.len = (size_t)(cut - rest.p) + 1;
	}
	if (account_find(&a, rest, group, user, NULL) < 0)
		return 0;
	if (a.uid == 0 || a.n_groups > ACCOUNT_GROUPS_MAX)
		abort();
	text(a.name, ACCOUNT_NAME_MAX, false);
	text(a.home, ACCOUNT_PATH_MAX, true);
	text(a.shell, ACCOUNT_PATH_MAX, true);
	return 0;
}
