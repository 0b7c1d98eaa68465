/* SPDX-License-Identifier: Apache-2.0 */
#include "config/seeds.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "config/env.h"
#include "config/profile.h"

enum { KEY_TAIL = 20 };

/* ---- names in texts ----------------------------------------------------- */

struct names {
	const struct seeds_in *in;
	const char *project;  /* ${CLOCHE_WORKSPACE} */
	const char *key_tail; /* ${CLOCHE_KEY_TAIL}, or NULL */
};

static const char *value_of(const struct names *n, const char *name, size_t len)
{
	static const char *const of_env[] = { "CLOCHE_HOME", "CLOCHE_AGENT_NAME",
		                              "CLOCHE_SESSION_ID" };

	if (len == strlen("CLOCHE_WORKSPACE") && strncmp(name, "CLOCHE_WORKSPACE", len) == 0)
		return n->project;
	if (len == strlen("CLOCHE_MCP_URL") && strncmp(name, "CLOCHE_MCP_URL", len) == 0)
		return n->in->mcp_url;
	if (len == strlen("CLOCHE_KEY_TAIL") && strncmp(name, "CLOCHE_KEY_TAIL", len) == 0)
		return n->key_tail;
	for (size_t i = 0; i < ARRAY_LEN(of_env); i++) {
		if (strlen(of_env[i]) == len && strncmp(name, of_env[i], len) == 0)
			return env_value(n->in->env, of_env[i]);
	}
	return NULL;
}

/* @s with every "${NAME}" that has a value; any other stays as it is. malloc'd. */
static char *put_names(const struct names *n, const char *s)
{
	struct buf b = { 0 };
	const char *at;
	int r = 0;

	for (; r == 0 && (at = strstr(s, "${")); s = at) {
		const char *end = strchr(at, '}');
		const char *v = end ? value_of(n, at + 2, (size_t)(end - at) - 2) : NULL;
		r = buf_put(&b, s, (size_t)(at - s));
		if (r == 0)
			r = v ? buf_put(&b, v, strlen(v)) : buf_put(&b, at, 2);
		at = v ? end + 1 : at + 2;
	}
	if (r == 0)
		r = buf_put(&b, s, strlen(s) + 1);
	ASSERT(r == 0); /* as xmalloc(): texts are bounded by the profile */
	return (char *)b.p;
}

/* A tree of our own, changed in place. */
static void put_names_in(const struct names *n, struct ynode *t)
{
	for (struct ynode *c = t->child; c; c = c->next) {
		if (c->key && strstr(c->key, "${")) {
			char *key = put_names(n, c->key);
			free(c->key);
			c->key = key;
		}
		if (c->text && strstr(c->text, "${")) {
			char *text = put_names(n, c->text);
			free(c->text);
			c->text = text;
			c->plain = false; /* a text, whatever it looks like now */
		}
		put_names_in(n, c);
	}
}

/* ---- the files ---------------------------------------------------------- */

struct file {
	const char *path;
	unsigned format;
	struct ynode *tree;
};

struct work {
	const struct seeds_in *in;
	bool login;
	struct file *v;
	size_t n;
};

static bool applies(const struct work *w, const struct profile_seed *s)
{
	switch (s->when) {
	case PROFILE_LOGIN:
		return w->login;
	case PROFILE_ENV:
		return env_value(w->in->env, s->when_env) != NULL;
	default:
		return true;
	}
}

static void lay(struct work *w, const struct profile_seed *s, const char *project)
{
	const char *key = s->when == PROFILE_ENV ? env_value(w->in->env, s->when_env) : NULL;
	size_t len = key ? strlen(key) : 0;
	struct names names = { .in = w->in,
		               .project = project,
		               .key_tail =
		                       key ? key + (len > KEY_TAIL ? len - KEY_TAIL : 0) : NULL };
	struct ynode *over = ynode_merge(NULL, s->merge);
	struct file *f = NULL;

	put_names_in(&names, over);
	for (size_t i = 0; i < w->n && !f; i++) {
		if (strcmp(w->v[i].path, s->path) == 0)
			f = &w->v[i];
	}
	if (!f) {
		w->v = xrealloc(w->v, (w->n + 1) * sizeof(*w->v));
		f = &w->v[w->n++];
		*f = (struct file){ .path = s->path, .format = s->format };
	}
	struct ynode *both = ynode_merge(f->tree, over);
	ynode_free(f->tree);
	ynode_free(over);
	f->tree = both;
}

static void lay_all(struct work *w, const struct profile_seeds *s, const char *project)
{
	for (size_t i = 0; i < s->n; i++) {
		if (applies(w, &s->v[i]))
			lay(w, &s->v[i], project);
	}
}

int seeds_build(struct seed_files *out, const struct seeds_in *in, struct err *err)
{
	const struct profile *p = in->profile;
	struct work w = { .in = in, .login = in->login };
	const char *first = in->n_projects ? in->projects[0] : "/work";
	int r = 0;

	*out = (struct seed_files){ 0 };
	for (size_t i = 0; i < p->credentials.env.n; i++)
		w.login |= env_value(in->env, p->credentials.env.v[i]) != NULL;
	out->login = w.login;
	lay_all(&w, &p->quiet.files, first);
	lay_all(&w, &p->onboarding, first);
	for (size_t i = 0; i < in->n_projects; i++)
		lay_all(&w, &p->trust, in->projects[i]);
	if (in->mcp_url)
		lay_all(&w, &p->mcp.inject, first);
	out->v = xcalloc(w.n + 1, sizeof(*out->v));
	for (size_t i = 0; i < w.n; i++) {
		struct seed_file *f = &out->v[out->n++];
		f->path = xstrdup(w.v[i].path);
		/* JSON is JSONC and YAML, too */
		if (r == 0 && w.v[i].format == PROFILE_TOML)
			r = seeds_put_toml(&f->text, w.v[i].tree);
		else if (r == 0)
			r = ynode_json(&f->text, w.v[i].tree, 0);
		if (r == 0 && w.v[i].format != PROFILE_TOML)
			r = buf_put(&f->text, "\n", 1);
		if (r == 0 && f->text.len > SEED_BYTES_MAX)
			r = err_set(err, -EFBIG,
			            "the profile of %s makes '%s' larger than %d bytes", p->name,
			            f->path, SEED_BYTES_MAX);
		ynode_free(w.v[i].tree);
	}
	free(w.v);
	return r == -ENOMEM ? err_set(err, r, "no memory") : r;
}

void seed_files_fini(struct seed_files *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->v[i].path);
		/* it may hold the end of a key */
		if (f->v[i].text.p)
			explicit_bzero(f->v[i].text.p, f->v[i].text.len);
		buf_fini(&f->v[i].text);
	}
	free(f->v);
	*f = (struct seed_files){ 0 };
}

/* ---- TOML --------------------------------------------------------------- */

/* A bare key where it may be one; a basic string has the escapes of JSON's. */
static int put_key(struct buf *b, const char *key)
{
	bool bare = key[0] && key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                                      "0123456789_-")] == '\0';

	return bare ? buf_printf(b, "%s", key) : ynode_json_text(b, key);
}

static int put_inline(struct buf *b, const struct ynode *n)
{
	bool map = n->kind == YNODE_MAP;
	int r;

	if (n->kind == YNODE_TEXT || n->kind == YNODE_NULL)
		return ynode_json(b, n, -1); /* true, 1.5, "text" are the same in both */
	r = buf_printf(b, map ? "{" : "[");
	for (const struct ynode *c = n->child; c && r == 0; c = c->next) {
		if (map)
			r = put_key(b, c->key);
		if (r == 0 && map)
			r = buf_printf(b, " = ");
		if (r == 0)
			r = put_inline(b, c);
		if (r == 0 && c->next)
			r = buf_printf(b, ", ");
	}
	return r == 0 ? buf_printf(b, map ? "}" : "]") : r;
}

/* Plain values of a table first, then the tables below it. */
static int put_table(struct buf *b, const struct ynode *map, const char *prefix)
{
	int r = 0;

	for (const struct ynode *c = map->child; c && r == 0; c = c->next) {
		if (c->kind == YNODE_MAP)
			continue;
		r = put_key(b, c->key);
		if (r == 0)
			r = buf_printf(b, " = ");
		if (r == 0)
			r = put_inline(b, c);
		if (r == 0)
			r = buf_printf(b, "\n");
	}
	for (const struct ynode *c = map->child; c && r == 0; c = c->next) {
		AUTO_BUF struct buf name = { 0 };
		if (c->kind != YNODE_MAP)
			continue;
		r = buf_printf(&name, "%s%s", prefix, prefix[0] ? "." : "");
		if (r == 0)
			r = put_key(&name, c->key);
		if (r == 0)
			r = buf_put(&name, "", 1);
		/* a table of tables only needs no line of its own; an empty one does */
		bool plain = c->child == NULL;
		for (const struct ynode *x = c->child; x; x = x->next)
			plain |= x->kind != YNODE_MAP;
		if (r == 0 && plain)
			r = buf_printf(b, "%s[%s]\n", b->len ? "\n" : "", (const char *)name.p);
		if (r == 0)
			r = put_table(b, c, (const char *)name.p);
	}
	return r;
}

int seeds_put_toml(struct buf *b, const struct ynode *map)
{
	return put_table(b, map, "");
}
