/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yamledit.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "config/yamlread.h"

enum { INDENT = 2 };

/* One splice: @del bytes at @at go, @ins comes. */
struct splice {
	size_t at, del;
	struct buf ins;
};

/* ---- texts -------------------------------------------------------------- */

int yaml_put_text(struct buf *out, const char *s)
{
	struct ynode n = { .kind = YNODE_TEXT, .plain = true, .text = (char *)(uintptr_t)s };
	bool plain = s[0] &&
	             s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                         "0123456789_./+-")] == '\0' &&
	             s[0] != '-' && s[0] != '.' && s[0] != '+' && ynode_type(&n) == YNODE_STRING;

	return plain ? buf_put(out, s, strlen(s)) : ynode_json_text(out, s);
}

/* Begin of the line that @at is in, and the end of it (at its line break or the end). */
static size_t line_begin(struct span t, size_t at)
{
	while (at > 0 && t.p[at - 1] != '\n')
		at--;
	return at;
}

static size_t line_end(struct span t, size_t at)
{
	while (at < t.len && t.p[at] != '\n')
		at++;
	return at;
}

static const char *line_break(struct span t)
{
	size_t end = line_end(t, 0);

	return end > 0 && end < t.len && t.p[end - 1] == '\r' ? "\r\n" : "\n";
}

static bool blank(struct span t, size_t from, size_t to)
{
	for (; from < to; from++) {
		if (t.p[from] != ' ')
			return false;
	}
	return true;
}

/* An object with quoted keys, and not some other mapping in braces? */
static bool is_json(struct span t)
{
	size_t at = 0;

	while (at < t.len && memchr(" \t\r\n", t.p[at], 4))
		at++;
	if (at == t.len || t.p[at] != '{')
		return false;
	for (at++; at < t.len && memchr(" \t\r\n", t.p[at], 4);)
		at++;
	return at < t.len && (t.p[at] == '"' || t.p[at] == '}');
}

/* Where the entry ends: an empty value may stand before the key's own end. */
static size_t entry_end(const struct ynode *c)
{
	return MAX(c->end, c->key_end);
}

/* ---- what is written ---------------------------------------------------- */

/* "key: value", what is below a new key in lines of its own at @column + 2 and so on. */
static int put_block(struct buf *b, const char *const *keys, size_t n, const char *value,
                     size_t column, const char *nl)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		r = buf_printf(b, "%*s", (int)(column + i * INDENT), "");
		if (r == 0)
			r = yaml_put_text(b, keys[i]);
		if (r == 0)
			r = i + 1 < n ? buf_printf(b, ":%s", nl) : buf_printf(b, ": %s", value);
	}
	return r;
}

/* "key: {key: value}". @json: the text is JSON and shall stay it. */
static int put_flow(struct buf *b, const char *const *keys, size_t n, const char *value, bool json)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		r = buf_printf(b, i ? "{" : "");
		if (r == 0)
			r = json ? ynode_json_text(b, keys[i]) : yaml_put_text(b, keys[i]);
		if (r == 0)
			r = buf_printf(b, ": ");
	}
	if (r == 0)
		r = buf_printf(b, "%s", value);
	for (size_t i = 1; i < n && r == 0; i++)
		r = buf_put(b, "}", 1);
	return r;
}

/* ---- splices ------------------------------------------------------------ */

/* The value of an entry that is there. */
static int replace(struct splice *s, struct span t, const struct ynode *n, const char *value)
{
	bool lines = (n->kind == YNODE_LIST || n->kind == YNODE_MAP) && !n->flow;

	if (n->kind == YNODE_TEXT && n->begin < t.len)
		lines = t.p[n->begin] == '|' || t.p[n->begin] == '>';
	if (!lines) {
		bool empty = n->begin == n->end; /* right behind the colon */
		*s = (struct splice){ .at = n->begin, .del = n->end - n->begin };
		return buf_printf(&s->ins, "%s%s", empty ? " " : "", value);
	}
	/* "key:" and whatever else is in its line stays; the lines below become one value */
	size_t colon = n->key_end;
	while (colon < n->begin && t.p[colon] != ':')
		colon++;
	if (colon >= n->begin)
		return -EINVAL;
	size_t rest = line_end(t, colon);
	if (rest > 0 && rest <= t.len && t.p[rest - 1] == '\r')
		rest--;
	*s = (struct splice){ .at = colon + 1, .del = n->end - colon - 1 };
	int r = buf_printf(&s->ins, " %s", value);
	if (r == 0 && rest < n->begin && !blank(t, colon + 1, rest))
		r = buf_put(&s->ins, t.p + colon + 1, rest - colon - 1); /* a comment */
	return r;
}

/* New keys in a mapping that is there. */
static int insert(struct splice *s, struct span t, const struct ynode *map, const char *const *keys,
                  size_t n, const char *value)
{
	const struct ynode *first = map->child, *last = first;
	const char *nl = line_break(t);

	while (last && last->next)
		last = last->next;
	if (map->flow) {
		*s = (struct splice){ .at = last ? entry_end(last) : map->begin + 1 };
		int r = last ? buf_printf(&s->ins, ", ") : 0;
		return r == 0 ? put_flow(&s->ins, keys, n, value, is_json(t)) : r;
	}
	if (!first)
		return -EINVAL; /* a block mapping has an entry */
	size_t column = first->key_begin - line_begin(t, first->key_begin);
	size_t at = line_end(t, entry_end(last));
	*s = (struct splice){ .at = at };
	/* behind the last line, whose own end may be missing */
	bool open = at == t.len;
	s->at = open ? at : at + 1;
	int r = open ? buf_printf(&s->ins, "%s", nl) : 0;
	if (r == 0)
		r = put_block(&s->ins, keys, n, value, column, nl);
	return r == 0 && !open ? buf_printf(&s->ins, "%s", nl) : r;
}

/* An empty value gets keys: lines of their own below a key of a block, else in braces. */
static int fill(struct splice *s, struct span t, const struct ynode *n, bool in_flow,
                const char *const *keys, size_t n_keys, const char *value)
{
	const char *nl = line_break(t);

	*s = (struct splice){ .at = n->begin, .del = n->end - n->begin };
	if (in_flow || n->begin != n->end || !blank(t, line_begin(t, n->key_begin), n->key_begin)) {
		int r = buf_printf(&s->ins, "%s{", n->begin == n->end ? " " : "");
		if (r == 0)
			r = put_flow(&s->ins, keys, n_keys, value, is_json(t));
		return r == 0 ? buf_put(&s->ins, "}", 1) : r;
	}
	size_t at = line_end(t, n->begin);
	size_t column = n->key_begin - line_begin(t, n->key_begin) + INDENT;
	bool open = at == t.len;
	s->at = open ? at : at + 1;
	s->del = 0;
	int r = open ? buf_printf(&s->ins, "%s", nl) : 0;
	if (r == 0)
		r = put_block(&s->ins, keys, n_keys, value, column, nl);
	return r == 0 && !open ? buf_printf(&s->ins, "%s", nl) : r;
}

static int remove_entry(struct splice *s, struct span t, const struct ynode *map,
                        const struct ynode *n)
{
	if (map->flow) {
		const struct ynode *before = NULL;
		for (const struct ynode *c = map->child; c != n; c = c->next)
			before = c;
		if (n->next)
			*s = (struct splice){ .at = n->key_begin,
				              .del = n->next->key_begin - n->key_begin };
		else if (before)
			*s = (struct splice){ .at = entry_end(before),
				              .del = entry_end(n) - entry_end(before) };
		else
			*s = (struct splice){ .at = n->key_begin,
				              .del = entry_end(n) - n->key_begin };
		return 0;
	}
	size_t from = line_begin(t, n->key_begin), to = line_end(t, entry_end(n));
	if (!blank(t, from, n->key_begin))
		return -EINVAL;
	*s = (struct splice){ .at = from, .del = MIN(to + 1, t.len) - from };
	return 0;
}

/* ---- checking ----------------------------------------------------------- */

static bool same(const struct ynode *a, const struct ynode *b)
{
	if (a->kind != b->kind || a->n != b->n)
		return false;
	if (a->kind == YNODE_TEXT &&
	    (strcmp(a->text, b->text) != 0 || ynode_type(a) != ynode_type(b)))
		return false;
	const struct ynode *y = b->child;
	for (const struct ynode *x = a->child; x; x = x->next, y = y->next) {
		if ((x->key && strcmp(x->key, y->key) != 0) || !same(x, y))
			return false;
	}
	return true;
}

/* The tree that is wanted: a copy of @top with the entry at @path being @value (NULL: none). */
static struct ynode *wanted(const struct ynode *top, const char *const *path, size_t depth,
                            const struct ynode *value)
{
	struct ynode *n = ynode_merge(NULL, top);

	if (depth == 0 || !n) {
		ynode_free(n);
		n = ynode_merge(NULL, value);
		return n;
	}
	if (n->kind == YNODE_NULL)
		n->kind = YNODE_MAP;
	struct ynode **at = &n->child;
	while (*at && strcmp((*at)->key, path[0]) != 0)
		at = &(*at)->next;
	struct ynode *old = *at, *rest = old ? old->next : NULL;
	struct ynode empty = { .kind = YNODE_MAP };
	struct ynode *new_one = depth == 1 && !value
	                                ? NULL
	                                : wanted(old ? old : &empty, path + 1, depth - 1, value);
	if (new_one && new_one->kind == YNODE_MAP && new_one->n == 0 && !value) {
		ynode_free(new_one);
		new_one = NULL;
	}
	if (new_one) {
		free(new_one->key);
		new_one->key = xstrdup(path[0]);
		new_one->next = rest;
	}
	n->n += (new_one != NULL) - (old != NULL);
	*at = new_one ? new_one : rest;
	if (old) {
		old->next = NULL;
		ynode_free(old);
	}
	return n;
}

static int refuse(struct err *err)
{
	(void)err_set(err, -EINVAL,
	              "the text is written in a way that cannot be changed like this");
	return err_hint(err, "change it in an editor");
}

/* Put the splice in, and see that it says what was asked for. */
static int apply(struct buf *out, struct span t, struct splice *s, const struct ynode *top,
                 const char *const *path, size_t depth, const struct ynode *value, struct err *err)
{
	struct ynode *got = NULL, *want = NULL;
	struct err quiet = { 0 };

	int r = buf_put(out, t.p, s->at);
	if (r == 0)
		r = buf_put(out, s->ins.p, s->ins.len);
	if (r == 0)
		r = buf_put(out, t.p + s->at + s->del, t.len - s->at - s->del);
	buf_fini(&s->ins);
	if (r < 0)
		return err_set(err, r, "no memory");
	if (ynode_parse(&got, "text", out->p, out->len, &quiet) < 0)
		r = refuse(err);
	if (r == 0) {
		static const struct ynode none = { .kind = YNODE_MAP };
		want = wanted(top ? top : &none, path, depth, value);
		bool gone = !want || want->n == 0;
		if (gone ? got != NULL && got->n != 0 : !got || !same(want, got))
			r = refuse(err);
	}
	ynode_free(want);
	ynode_free(got);
	return r;
}

/* ---- the two changes ---------------------------------------------------- */

/* A new document behind whatever comments there are. */
static int append(struct splice *s, struct span t, const char *const *path, size_t depth,
                  const char *value)
{
	const char *nl = line_break(t);
	bool open = t.len > 0 && t.p[t.len - 1] != '\n';

	*s = (struct splice){ .at = t.len };
	int r = open ? buf_printf(&s->ins, "%s", nl) : 0;
	if (r == 0)
		r = put_block(&s->ins, path, depth, value, 0, nl);
	return r == 0 ? buf_printf(&s->ins, "%s", nl) : r;
}

static int find_splice(struct splice *s, struct span t, const struct ynode *top,
                       const char *const *path, size_t depth, const char *value)
{
	const struct ynode *map = top;
	bool in_flow = false;

	if (!top)
		return append(s, t, path, depth, value);
	for (size_t i = 0; i < depth; i++) {
		if (map->kind != YNODE_MAP)
			return -ENOTDIR;
		const struct ynode *c = ynode_get(map, path[i]);
		in_flow |= map->flow;
		if (!c)
			return insert(s, t, map, path + i, depth - i, value);
		if (i + 1 == depth)
			return replace(s, t, c, value);
		if (c->kind == YNODE_NULL)
			return fill(s, t, c, in_flow, path + i + 1, depth - i - 1, value);
		map = c;
	}
	return -EINVAL;
}

int yaml_edit_set(struct buf *out, struct span text, const char *const *path, size_t depth,
                  const char *value, struct err *err)
{
	struct ynode *top = NULL, *new_value = NULL;
	struct splice s = { 0 };

	ASSERT(depth > 0 && depth <= YAML_PATH_MAX && out->len == 0);
	int r = ynode_parse(&top, "text", text.p, text.len, err);
	if (r == 0)
		r = ynode_parse(&new_value, "value", value, strlen(value), err);
	if (r == 0 && (!new_value || strpbrk(value, "\n\r")))
		r = err_set(err, -EINVAL, "the value is empty, or no single line");
	if (r == 0) {
		r = find_splice(&s, text, top, path, depth, value);
		if (r == -ENOTDIR)
			r = err_set(err, -EINVAL, "the text has no mapping where '%s' is to be",
			            path[depth - 1]);
		else if (r < 0)
			r = refuse(err);
		else
			r = apply(out, text, &s, top, path, depth, new_value, err);
	}
	buf_fini(&s.ins);
	ynode_free(new_value);
	ynode_free(top);
	if (r < 0)
		out->len = 0;
	return r;
}

int yaml_edit_delete(struct buf *out, struct span text, const char *const *path, size_t depth,
                     struct err *err)
{
	const struct ynode *maps[YAML_PATH_MAX + 1];
	struct ynode *top = NULL;
	struct splice s = { 0 };
	size_t found = 0;

	ASSERT(depth > 0 && depth <= YAML_PATH_MAX && out->len == 0);
	int r = ynode_parse(&top, "text", text.p, text.len, err);
	if (r < 0)
		return r;
	for (maps[0] = top; found < depth; found++) {
		maps[found + 1] = ynode_get(maps[found], path[found]);
		if (!maps[found + 1])
			break;
	}
	if (found < depth) {
		ynode_free(top);
		return buf_put(out, text.p, text.len) < 0 ? err_set(err, -ENOMEM, "no memory") : 0;
	}
	/* what would be empty goes with it */
	size_t from = depth;
	while (from > 1 && maps[from - 1]->n == 1)
		from--;
	r = remove_entry(&s, text, maps[from - 1], maps[from]);
	if (r < 0)
		r = refuse(err);
	else
		r = apply(out, text, &s, top, path, from, NULL, err);
	ynode_free(top);
	if (r < 0)
		out->len = 0;
	return r < 0 ? r : 1;
}
