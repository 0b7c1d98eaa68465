/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a change of one value leaves the bytes before its key and behind its last line as
 * they were; and a key that was added, taken out again, leaves the text as it was before, up to
 * a missing end of the last line. (That the result says what was asked for is checked inside.)
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config/yamledit.h"
#include "config/yamlread.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool path_has_null(const struct ynode *n, const char *const *path, size_t depth)
{
	for (size_t i = 0; i < depth && n; i++) {
		if (n->kind == YNODE_NULL || n->n == 0)
			return true; /* taking out what it got takes it out, too */
		n = ynode_get(n, path[i]);
	}
	return n && n->kind == YNODE_NULL;
}

static void add_and_remove(struct span t, const struct ynode *top, const char *const *path,
                           size_t depth)
{
	struct buf with = { 0 }, without = { 0 };
	struct err e = { 0 };

	if (yaml_edit_set(&with, t, path, depth, "\"v 1\"", &e) == 0) {
		check(memmem(with.p, with.len, "\"v 1\"", 5) != NULL);
		int r = yaml_edit_delete(&without, span_of(with.p, with.len), path, depth, &e);
		if (r == 1 && top && !path_has_null(top, path, depth)) {
			check(without.len >= t.len && without.len <= t.len + 2);
			check(t.len == 0 || memcmp(without.p, t.p, t.len) == 0);
		}
	} else {
		check(with.len == 0 && e.text[0]);
	}
	buf_fini(&with);
	buf_fini(&without);
}

static void change(struct span t, const struct ynode *n)
{
	const char *path[] = { n->key };
	struct buf out = { 0 };
	struct err e = { 0 };

	if (strlen(n->key) < 200 && yaml_edit_set(&out, t, path, 1, "[new]", &e) == 0) {
		size_t end = MAX(n->end, n->key_end);
		while (end < t.len && t.p[end] != '\n')
			end++;
		check(out.len >= n->key_end && memcmp(out.p, t.p, n->key_end) == 0);
		check(out.len >= t.len - end);
		check(t.len == end ||
		      memcmp(out.p + out.len - (t.len - end), t.p + end, t.len - end) == 0);
	}
	buf_fini(&out);
	if (strlen(n->key) < 200)
		(void)!yaml_edit_delete(&out, t, path, 1, &e);
	buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const one[] = { "zz_new" }, *const two[] = { "a", "zz_new" },
				 *const three[] = { "env", "set", "zz_new" };
	struct ynode *top = NULL;
	struct span t = span_of(data, size);

	if (ynode_parse(&top, "f", data, size, NULL) < 0)
		return 0;
	add_and_remove(t, top, one, 1);
	add_and_remove(t, top, two, 2);
	add_and_remove(t, top, three, 3);
	if (top && top->kind == YNODE_MAP) {
		for (const struct ynode *c = top->child; c; c = c->next)
			change(t, c);
	}
	ynode_free(top);
	return 0;
}
