/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a tree by the tables of profile_schema.c.
 */
#include "config/profile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/near.h"
#include "base/vis.h"
#include "config/config.h"
#include "config/profile_priv.h"

enum { PATH_ROOM = 256, KNOWN_MAX = 64 };

struct load {
	struct profile *p;
	const char *const *names;
	struct err *err;
	char path[PATH_ROOM]; /* dotted, of the value at hand */
	size_t path_len;
};

/* Every list of the struct: an array and its length. */
struct any_list {
	void *v;
	size_t n;
};

static int read_map(struct load *l, const struct pshape *s, void *obj, const struct ynode *n);

/* ---- errors ------------------------------------------------------------- */

static int bad_v(struct load *l, uint8_t source, const struct yaml_mark *m, const char *fmt,
                 va_list ap)
{
	const char *name = source < PROFILE_SOURCES ? l->names[source] : NULL;
	char text[400];

	(void)vsnprintf(text, sizeof(text), fmt, ap);
	return err_set(l->err, -EINVAL, "%s:%u:%u: %s", name ? name : "profile", m->line, m->column,
	               text);
}

static int bad(struct load *l, uint8_t source, const struct yaml_mark *m, const char *fmt, ...)
	PRINTF_FMT(4, 5);
static int bad(struct load *l, uint8_t source, const struct yaml_mark *m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int r = bad_v(l, source, m, fmt, ap);
	va_end(ap);
	return r;
}

int profile_bad(struct load *l, const struct ynode *n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int r = bad_v(l, n->source, &n->at, fmt, ap);
	va_end(ap);
	return r;
}

int profile_bad_key(struct load *l, const struct ynode *n, const char *key, const char *fmt, ...)
{
	const struct ynode *c = ynode_get(n, key);
	va_list ap;

	va_start(ap, fmt);
	int r = bad_v(l, (c ? c : n)->source, &(c ? c : n)->at, fmt, ap);
	va_end(ap);
	return r;
}

static int bad_value(struct load *l, const struct ynode *n, const struct pkey *k)
{
	char seen[100];

	if (k->secret_value || n->kind != YNODE_TEXT)
		return profile_bad(l, n, "'%s' must be %s", l->path, k->what);
	return profile_bad(l, n, "'%s' must be %s, not '%s'", l->path, k->what,
	                   vis_str(seen, sizeof(seen), span_str(n->text)));
}

/* The dotted path grows by @name; what was before is what path_back() cuts to. */
static size_t path_in(struct load *l, const char *name)
{
	char seen[80];
	size_t before = l->path_len;

	int n = snprintf(l->path + before, sizeof(l->path) - before, "%s%s", before ? "." : "",
	                 vis_str(seen, sizeof(seen), span_str(name)));
	l->path_len = MIN(before + (size_t)MAX(n, 0), sizeof(l->path) - 1);
	return before;
}

static void path_back(struct load *l, size_t before)
{
	l->path_len = before;
	l->path[before] = '\0';
}

static int unknown_key(struct load *l, const struct pshape *s, const struct ynode *c)
{
	const char *known[KNOWN_MAX];
	char seen[100];
	size_t n = 0;

	for (; n < s->n_keys && n < KNOWN_MAX; n++)
		known[n] = s->keys[n].name;
	const char *near = near_word(c->key, known, n);
	(void)bad(l, c->source, &c->key_at, "unknown key '%s%s%s'", l->path, l->path_len ? "." : "",
	          vis_str(seen, sizeof(seen), span_str(c->key)));
	if (near)
		return err_hint(l->err, "did you mean '%s'?", near);
	return err_hint(l->err, "docs/profiles.md lists the keys");
}

/* ---- values ------------------------------------------------------------- */

void *profile_grab(struct load *l, size_t n, size_t size)
{
	struct profile *p = l->p;

	p->blocks = xrealloc(p->blocks, (p->n_blocks + 1) * sizeof(*p->blocks));
	p->blocks[p->n_blocks] = xcalloc(n ? n : 1, size);
	return p->blocks[p->n_blocks++];
}

/* A text that every reader of YAML takes for one. */
static int want_text(struct load *l, const struct ynode *n, const struct pkey *k, size_t max)
{
	if (n->kind != YNODE_TEXT)
		return bad_value(l, n, k);
	if (ynode_type(n) != YNODE_STRING)
		return profile_bad(
			l, n,
			"'%s'%s%s must stand in quotes: without them not every reader of "
			"YAML takes it for a text",
			l->path, k->secret_value ? "" : ": ", k->secret_value ? "" : n->text);
	if (strlen(n->text) > max)
		return profile_bad(l, n, "'%s' is longer than %zu bytes", l->path, max);
	return 0;
}

static int read_text(struct load *l, const struct pkey *k, const struct ynode *n, const char **out)
{
	int r = want_text(l, n, k, k->secret_value ? PROFILE_VALUE_MAX : PROFILE_TEXT_MAX);

	if (r < 0)
		return r;
	if (k->words) {
		for (const char *const *w = k->words; *w; w++) {
			if (strcmp(*w, n->text) == 0) {
				*out = *w;
				return 0;
			}
		}
		return bad_value(l, n, k);
	}
	if (k->ok && !k->ok(n->text))
		return bad_value(l, n, k);
	*out = n->text;
	return 0;
}

static int read_int(struct load *l, const struct pkey *k, const struct ynode *n, uint64_t *out)
{
	uint64_t v = 0;

	if (n->kind != YNODE_TEXT || ynode_type(n) != YNODE_NUMBER)
		return bad_value(l, n, k);
	for (const char *p = n->text; *p; p++) {
		if (*p < '0' || *p > '9' || v > k->max)
			return bad_value(l, n, k);
		v = v * 10 + (uint64_t)(*p - '0');
	}
	if (v < k->min || v > k->max)
		return bad_value(l, n, k);
	*out = v;
	return 0;
}

static int read_size(struct load *l, const struct pkey *k, const struct ynode *n, uint64_t *out)
{
	uint64_t v;

	if (n->kind != YNODE_TEXT || ynode_type(n) == YNODE_AMBIGUOUS ||
	    config_size(n->text, &v) < 0 || v < k->min || v > k->max)
		return bad_value(l, n, k);
	*out = v;
	return 0;
}

static int read_enum(struct load *l, const struct pkey *k, const struct ynode *n, unsigned *out)
{
	int r = want_text(l, n, k, PROFILE_TEXT_MAX);

	for (unsigned i = 0; r == 0 && k->words[i]; i++) {
		if (strcmp(k->words[i], n->text) == 0) {
			*out = i;
			return 0;
		}
	}
	return r < 0 ? r : bad_value(l, n, k);
}

static int want_list(struct load *l, const struct pkey *k, const struct ynode *n,
                     enum ynode_kind kind)
{
	if (n->kind != kind)
		return profile_bad(l, n, "'%s' must be a %s of %s", l->path,
		                   kind == YNODE_LIST ? "list" : "mapping", k->what);
	if (k->kind == PKEY_INTS ? n->n > PROFILE_LIST_MAX : n->n > k->max)
		return profile_bad(l, n, "'%s' has too many entries", l->path);
	if (k->kind == PKEY_TEXTS && n->n < k->min)
		return profile_bad(l, n, "'%s' must not be empty", l->path);
	return 0;
}

static int read_texts(struct load *l, const struct pkey *k, const struct ynode *n,
                      struct profile_texts *out)
{
	int r = want_list(l, k, n, YNODE_LIST);

	if (r < 0)
		return r;
	out->v = profile_grab(l, n->n, sizeof(*out->v));
	for (const struct ynode *c = n->child; c; c = c->next) {
		char seen[100];
		const char *s;
		r = read_text(l, k, c, &s);
		if (r < 0)
			return r;
		if (!k->repeats && profile_texts_have(out, s))
			return profile_bad(l, c, "'%s' has '%s' twice", l->path,
			                   vis_str(seen, sizeof(seen), span_str(s)));
		out->v[out->n++] = s;
	}
	return 0;
}

static int read_ints(struct load *l, const struct pkey *k, const struct ynode *n,
                     struct any_list *out)
{
	int r = want_list(l, k, n, YNODE_LIST);

	if (r < 0)
		return r;
	uint64_t *v = profile_grab(l, n->n, sizeof(*v));
	out->v = v;
	for (const struct ynode *c = n->child; c; c = c->next) {
		r = read_int(l, k, c, &v[out->n]);
		if (r < 0)
			return r;
		for (size_t i = 0; i < out->n; i++) {
			if (v[i] == v[out->n])
				return profile_bad(l, c, "'%s' has %s twice", l->path, c->text);
		}
		out->n++;
	}
	return 0;
}

/* An entry of a list or a mapping: a mapping by the shape, or a text where that is allowed. */
static int read_entry(struct load *l, const struct pkey *k, const struct ynode *n, void *obj,
                      const char **text)
{
	if (text && n->kind == YNODE_TEXT) {
		int r = read_text(l, k, n, text);
		if (r < 0 || !k->shape->done)
			return r;
		return k->shape->done(l, obj, n);
	}
	if (k->shape->n_keys == 0 || n->kind != YNODE_MAP)
		return profile_bad(l, n, "'%s' must be %s", l->path, k->what);
	return read_map(l, k->shape, obj, n);
}

static int read_list(struct load *l, const struct pkey *k, const struct ynode *n,
                     struct any_list *out)
{
	int r = want_list(l, k, n, YNODE_LIST);

	if (r < 0)
		return r;
	char *v = profile_grab(l, n->n, k->shape->size);
	out->v = v;
	for (const struct ynode *c = n->child; c; c = c->next) {
		void *obj = v + out->n * k->shape->size;
		r = read_entry(l, k, c, obj, k->shape->text_ok ? (const char **)obj : NULL);
		if (r < 0)
			return r;
		out->n++;
	}
	return 0;
}

static int read_dict(struct load *l, const struct pkey *k, const struct ynode *n,
                     struct any_list *out)
{
	int r = want_list(l, k, n, YNODE_MAP);

	if (r < 0)
		return r;
	char *v = profile_grab(l, n->n, k->shape->size);
	out->v = v;
	for (const struct ynode *c = n->child; c; c = c->next) {
		void *obj = v + out->n * k->shape->size;
		const char **pair = obj; /* its first members: the name and the text */
		char seen[100];
		if (!k->shape->name_ok(c->key))
			return bad(l, c->source, &c->key_at, "'%s': '%s' is not %s", l->path,
			           vis_str(seen, sizeof(seen), span_str(c->key)),
			           k->shape->name_what);
		pair[0] = c->key;
		size_t before = path_in(l, c->key);
		r = read_entry(l, k, c, obj, &pair[1]);
		path_back(l, before);
		if (r < 0)
			return r;
		out->n++;
	}
	return 0;
}

static int read_key(struct load *l, const struct pkey *k, void *field, const struct ynode *n)
{
	struct any_list list = { 0 };
	int r;

	if (n->kind == YNODE_NULL)
		return profile_bad(l, n, "'%s' has no value", l->path);
	switch (k->kind) {
	case PKEY_TEXT:
		return read_text(l, k, n, field);
	case PKEY_BOOL:
		if (n->kind != YNODE_TEXT || ynode_type(n) != YNODE_BOOL)
			return bad_value(l, n, k);
		*(bool *)field = n->text[0] == 't';
		return 0;
	case PKEY_INT:
		return read_int(l, k, n, field);
	case PKEY_SIZE:
		return read_size(l, k, n, field);
	case PKEY_ENUM:
		return read_enum(l, k, n, field);
	case PKEY_TEXTS:
		return read_texts(l, k, n, field);
	case PKEY_MAP:
		if (n->kind != YNODE_MAP)
			return profile_bad(l, n, "'%s' must be a mapping", l->path);
		return read_map(l, k->shape, field, n);
	case PKEY_TREE:
		if (n->kind != YNODE_MAP || n->n == 0)
			return profile_bad(l, n, "'%s' must be %s", l->path, k->what);
		*(const struct ynode **)field = n;
		return 0;
	case PKEY_INTS:
		r = read_ints(l, k, n, &list);
		break;
	case PKEY_LIST:
		r = read_list(l, k, n, &list);
		break;
	case PKEY_DICT:
		r = read_dict(l, k, n, &list);
		break;
	default:
		ASSERT(!"a kind of key");
	}
	/* by memcpy: the array has a type of its own in each struct */
	memcpy(field, &list.v, sizeof(list.v));
	memcpy((char *)field + sizeof(list.v), &list.n, sizeof(list.n));
	return r;
}

static int read_map(struct load *l, const struct pshape *s, void *obj, const struct ynode *n)
{
	for (const struct ynode *c = n->child; c; c = c->next) {
		const struct pkey *k = NULL;
		for (size_t i = 0; i < s->n_keys && !k; i++) {
			if (strcmp(s->keys[i].name, c->key) == 0)
				k = &s->keys[i];
		}
		if (!k)
			return unknown_key(l, s, c);
		size_t before = path_in(l, c->key);
		int r = read_key(l, k, (char *)obj + k->at, c);
		path_back(l, before);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < s->n_keys; i++) {
		if (s->keys[i].required && !ynode_get(n, s->keys[i].name))
			return profile_bad(l, n, "'%s%s%s' is missing: %s", l->path,
			                   l->path_len ? "." : "", s->keys[i].name,
			                   s->keys[i].what);
	}
	return s->done ? s->done(l, obj, n) : 0;
}

/* ---- documents ---------------------------------------------------------- */

int profile_decode(struct profile **out, struct ynode *tree,
                   const char *const names[PROFILE_SOURCES], struct err *err)
{
	struct profile *p = xcalloc(1, sizeof(*p));
	struct load l = { .p = p, .names = names, .err = err };
	int r;

	p->tree = tree;
	if (!tree) {
		const struct yaml_mark top = { 1, 1 };
		r = bad(&l, PROFILE_FILE, &top, "the profile is empty");
	} else if (tree->kind != YNODE_MAP) {
		r = profile_bad(&l, tree, "the profile must be a mapping");
	} else {
		p->from = tree->source;
		r = read_map(&l, &profile_shape, p, tree);
	}
	if (r < 0)
		profile_free(p);
	else
		*out = p;
	return r;
}

int profile_parse(struct profile **out, const char *name, const void *p, size_t n,
                  enum profile_source source, struct err *err)
{
	const char *const names[PROFILE_SOURCES] = { name, name, name, name };
	struct ynode *tree = NULL;

	if (n > PROFILE_BYTES_MAX)
		return err_set(err, -EFBIG, "%s: a profile has at most %d bytes", name,
		               PROFILE_BYTES_MAX);
	int r = ynode_parse(&tree, name, p, n, err);
	if (r < 0)
		return r;
	if (tree)
		ynode_set_source(tree, (uint8_t)source);
	return profile_decode(out, tree, names, err);
}

void profile_free(struct profile *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_blocks; i++)
		free(p->blocks[i]);
	free(p->blocks);
	ynode_free(p->tree);
	free(p);
}

bool profile_texts_have(const struct profile_texts *t, const char *s)
{
	for (size_t i = 0; i < t->n; i++) {
		if (strcmp(t->v[i], s) == 0)
			return true;
	}
	return false;
}

bool profile_is(const struct profile *p, const char *name)
{
	return strcmp(p->name, name) == 0 || profile_texts_have(&p->aliases, name);
}

const struct ynode *profile_at(const struct profile *p, const char *key)
{
	const struct ynode *n = p->tree;

	while (n && *key) {
		size_t len = strcspn(key, ".");
		AUTO_FREE char *one = xstrndup(key, len);
		n = ynode_get(n, one);
		key += len + (key[len] == '.');
	}
	return n;
}

static void each_key(const struct pshape *s, const char *prefix,
                     void (*fn)(void *arg, const char *key, const char *what), void *arg)
{
	for (size_t i = 0; i < s->n_keys; i++) {
		const struct pkey *k = &s->keys[i];
		AUTO_FREE char *full = xasprintf("%s%s", prefix, k->name);
		fn(arg, full, k->what);
		if (!k->shape)
			continue;
		AUTO_FREE char *below = xasprintf("%s%s.", full,
		                                  k->kind == PKEY_LIST   ? "[]"
		                                  : k->kind == PKEY_DICT ? ".NAME"
		                                                         : "");
		each_key(k->shape, below, fn, arg);
	}
}

void profile_each_key(void (*fn)(void *arg, const char *key, const char *what), void *arg)
{
	each_key(&profile_shape, "", fn, arg);
}

const char *profile_without_effect(const struct profile *p, size_t *i)
{
	static const char *const keys[] = { "files", "volumes", "settings" };

	while (*i < ARRAY_LEN(keys)) {
		const char *key = keys[(*i)++];

		if (profile_at(p, key))
			return key;
	}
	return NULL;
}
