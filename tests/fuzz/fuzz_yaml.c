/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a tree that was read says where its bytes are, entries in order, each inside its
 * parent; and its JSON is YAML that reads as the same tree.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config/yamlread.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct ynode *a, const struct ynode *b)
{
	if (a->kind != b->kind || a->n != b->n)
		return false;
	if (a->kind == YNODE_TEXT && strcmp(a->text, b->text) != 0)
		return false;
	const struct ynode *y = b->child;
	for (const struct ynode *x = a->child; x; x = x->next, y = y->next) {
		if (!y || !x->key != !y->key || (x->key && strcmp(x->key, y->key) != 0) ||
		    !same(x, y))
			return false;
	}
	return y == NULL;
}

static bool long_key(const struct ynode *n)
{
	for (const struct ynode *c = n->child; c; c = c->next) {
		if ((c->key && strlen(c->key) > 150) || long_key(c))
			return true; /* YAML ends a simple key at 1024 characters, escapes counted */
	}
	return false;
}

static void check_places(const struct ynode *n, size_t size)
{
	size_t at = n->begin;

	if (n->begin > n->end || n->end > size)
		abort();
	for (const struct ynode *c = n->child; c; c = c->next) {
		if (c->key &&
		    (c->key_begin < at || c->key_end < c->key_begin || c->begin < c->key_end))
			abort();
		if (c->begin < at || MAX(c->end, c->key_end) > n->end)
			abort();
		at = MAX(c->end, c->key_end);
		check_places(c, size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ynode *top = NULL, *again = NULL;
	struct buf b = { 0 };
	struct err e = { 0 };

	int r = ynode_parse(&top, "f", data, size, &e);
	if ((r < 0) != (e.code < 0) || (r < 0 && (e.text[0] == '\0' || top)))
		abort();
	if (top) {
		check_places(top, size);
		if (ynode_json(&b, top, size % 2 ? 0 : -1) < 0)
			abort();
		if (!long_key(top) &&
		    (ynode_parse(&again, "j", b.p, b.len, &e) < 0 || !again || !same(top, again)))
			abort();
	}
	buf_fini(&b);
	ynode_free(top);
	ynode_free(again);
	return 0;
}
