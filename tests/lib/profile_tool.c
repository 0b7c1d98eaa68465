/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loader of profiles says, for tests: documents come on stdin, each ended by a NUL
 * byte; a line of JSON goes out for each: {"ok":..., "error":..., "hint":..., "ambiguous":...,
 * "tree":...}.
 * --keys: the keys of the schema, a line each.
 * --seeds [login] [mcp=URL] [NAME=VALUE...]: {"login":..., "files": {path: text}} for a document,
 * in a run of two projects with that environment.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "config/env.h"
#include "config/profile.h"
#include "config/seeds.h"

enum { INPUT_MAX = 64 * 1024 * 1024 };

static void on_key(void *arg, const char *key, const char *what)
{
	(void)arg;
	(void)printf("%s\t%s\n", key, what);
}

/* Is there a text that not every reader of YAML takes for one? */
static bool ambiguous(const struct ynode *n)
{
	bool found = n->kind == YNODE_TEXT && ynode_type(n) == YNODE_AMBIGUOUS;

	for (const struct ynode *c = n->child; c && !found; c = c->next)
		found = ambiguous(c);
	return found;
}

static int one(struct buf *b, const char *text, size_t n)
{
	struct profile *p = NULL;
	struct ynode *tree = NULL;
	struct err e = { 0 }, e2 = { 0 };

	int r = profile_parse(&p, "doc", text, n, PROFILE_FILE, &e);
	int x = buf_printf(b, "{\"ok\":%s,\"error\":", r == 0 ? "true" : "false");
	if (x == 0)
		x = ynode_json_text(b, e.text);
	if (x == 0)
		x = buf_printf(b, ",\"hint\":");
	if (x == 0)
		x = ynode_json_text(b, e.hint);
	if (x == 0 && ynode_parse(&tree, "doc", text, n, &e2) == 0 && tree) {
		x = buf_printf(b,
		               ",\"ambiguous\":%s,\"tree\":", ambiguous(tree) ? "true" : "false");
		if (x == 0)
			x = ynode_json(b, tree, -1);
	}
	ynode_free(tree);
	profile_free(p);
	return x == 0 ? buf_printf(b, "}\n") : x;
}

static int seeds(struct buf *b, const char *text, size_t n, char **args)
{
	static const char *const projects[] = { "/work/demo", "/work/o \"ther" };
	struct seeds_in in = { .projects = projects, .n_projects = 2 };
	struct profile *p = NULL;
	struct env_set env = { 0 };
	struct seed_files f = { 0 };
	struct err e = { 0 };

	int r = profile_parse(&p, "doc", text, n, PROFILE_FILE, &e);
	for (; r == 0 && *args && !strchr(*args, '='); args++)
		in.login |= strcmp(*args, "login") == 0;
	if (r == 0 && *args && strncmp(*args, "mcp=", 4) == 0)
		in.mcp_url = *args++ + 4;
	struct env_in ei = { .profile = p,
		             .host = (const char *const *)args,
		             .agent = p ? p->name : "",
		             .workspace = projects[0],
		             .session_id = "demo-1",
		             .memory_mib = 1024 };
	if (r == 0)
		r = env_build(&env, &ei, &e);
	in.profile = p;
	in.env = &env;
	if (r == 0)
		r = seeds_build(&f, &in, &e);
	int x = r < 0 ? -1 : buf_printf(b, "{\"login\":%s,\"files\":{", f.login ? "true" : "false");
	for (size_t i = 0; i < f.n && x == 0; i++) {
		x = buf_printf(b, i ? "," : "");
		if (x == 0)
			x = ynode_json_text(b, f.v[i].path);
		if (x == 0)
			x = buf_printf(b, ":");
		if (x == 0)
			x = buf_put(&f.v[i].text, "", 1);
		if (x == 0)
			x = ynode_json_text(b, (const char *)f.v[i].text.p);
	}
	seed_files_fini(&f);
	env_fini(&env);
	profile_free(p);
	return x == 0 ? buf_printf(b, "}}\n") : x;
}

int main(int argc, char **argv)
{
	bool want_seeds = argc > 1 && strcmp(argv[1], "--seeds") == 0;
	AUTO_FREE char *all = NULL;
	AUTO_BUF struct buf b = { 0 };
	size_t len = 0;

	if (argc > 1 && strcmp(argv[1], "--keys") == 0) {
		profile_each_key(on_key, NULL);
		return 0;
	}
	if (fd_read_file(0, INPUT_MAX, &all, &len) < 0)
		return 1;
	for (size_t at = 0; at < len;) {
		const char *end = memchr(all + at, 0, len - at);
		size_t n = end ? (size_t)(end - all) - at : len - at;
		if (want_seeds ? seeds(&b, all + at, n, argv + 2) < 0 : one(&b, all + at, n) < 0)
			return 1;
		at += n + 1;
	}
	return fd_write_all(1, b.p, b.len) < 0;
}
