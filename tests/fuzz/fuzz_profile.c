/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: any bytes give a profile or an error with a text, never both. A profile holds its
 * own rules whatever was written, and its tree as JSON is the same profile again. Whatever it
 * says, an environment and first-start files can be made of it: no denied variable is passed,
 * and a file in JSON can be read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config/env.h"
#include "config/profile.h"
#include "config/seeds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_path(const char *s)
{
	check(s[0] && s[0] != '/' && strcmp(s, "..") != 0 && strncmp(s, "../", 3) != 0 &&
	      !strstr(s, "/../"));
}

static void check_seeds(const struct profile_seeds *s)
{
	for (size_t i = 0; i < s->n; i++) {
		check_path(s->v[i].path);
		check(s->v[i].merge && s->v[i].merge->kind == YNODE_MAP && s->v[i].merge->n > 0);
		check(s->v[i].when != PROFILE_WHEN_UNSAID);
		check((s->v[i].when == PROFILE_ENV) == (s->v[i].when_env != NULL));
	}
}

static void check_rules(const struct profile *p)
{
	check(profile_name_ok(p->name) && p->command.n >= 1 && p->command.v[0][0]);
	check(p->home[0] == '/' && !(p->image && p->has_recipe));
	check(p->resources.cpus <= 64 &&
	      (!p->resources.memory || p->resources.memory >> 20 >= 256));
	for (size_t i = 0; i < p->env.pass.n; i++) {
		check(profile_pattern_ok(p->env.pass.v[i]) && p->env.pass.v[i][0] != '*');
		check(!profile_texts_have(&p->env.deny, p->env.pass.v[i]));
	}
	for (size_t i = 0; i < p->env.set.n; i++)
		check((p->env.set.v[i].value != NULL) != (p->env.set.v[i].refs.n != 0));
	for (size_t i = 0; i < p->files.n; i++) {
		check_path(p->files.v[i].path);
		check(p->volumes.n > 0 && p->files.v[i].mode <= 0777);
	}
	check_seeds(&p->onboarding);
	check_seeds(&p->trust);
	check_seeds(&p->mcp.inject);
	check_seeds(&p->quiet.files);
}

static void check_use(const struct profile *p)
{
	static const char *const host[] = { "A=1", "A_B=x://y", "ANTHROPIC_API_KEY=k", "ONE=1",
		                            NULL };
	static const char *const projects[] = { "/work/a", "/work/b" };
	struct env_in in = { .profile = p,
		             .host = host,
		             .agent = p->name,
		             .workspace = projects[0],
		             .session_id = "s",
		             .memory_mib = 512 };
	struct env_set env = { 0 };
	struct seed_files f = { 0 };
	struct err e = { 0 };

	check(env_build(&env, &in, &e) == 0);
	for (size_t i = 0; i < env.n; i++) {
		const struct env_var *v = &env.v[i];
		check((v->value != NULL) == (v->fate == ENV_PASSED));
		check(!v->value || v->origin == ENV_FROM_CLOCHE || v->origin == ENV_FROM_TERMINAL ||
		      (!profile_texts_have(&p->env.deny, v->name) &&
		       !profile_texts_have(&p->env.metered, v->name)));
	}
	struct seeds_in si = { .profile = p,
		               .env = &env,
		               .projects = projects,
		               .n_projects = 2,
		               .mcp_url = "http://h/",
		               .login = true };
	int r = seeds_build(&f, &si, &e);
	check(r == 0 || r == -EFBIG);
	for (size_t i = 0; r == 0 && i < f.n; i++) {
		struct ynode *t = NULL;
		if (f.v[i].text.len && f.v[i].text.p[0] == '{' &&
		    ynode_parse(&t, "s", f.v[i].text.p, f.v[i].text.len, &e) < 0)
			check(strstr(e.text, "simple key") || strstr(e.text, "':'") ||
			      strstr(e.text, "stands twice"));
		ynode_free(t);
	}
	seed_files_fini(&f);
	env_fini(&env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct profile *p = NULL, *again = NULL;
	struct buf a = { 0 }, b = { 0 };
	struct err e = { 0 };

	int r = profile_parse(&p, "f", data, size, PROFILE_FILE, &e);
	check((r < 0) == (e.code < 0) && (r < 0) == (p == NULL) && (r == 0 || e.text[0]));
	if (p) {
		check_rules(p);
		check_use(p);
		check(ynode_json(&a, p->tree, 0) == 0);
		/* keys of free mappings may be longer than YAML's limit once they are escaped */
		r = profile_parse(&again, "j", a.p, a.len, PROFILE_FILE, &e);
		check(r == 0 || strstr(e.text, "simple key") || strstr(e.text, "':'"));
		if (again) {
			check_rules(again);
			check(ynode_json(&b, again->tree, 0) == 0);
			check(a.len == b.len && memcmp(a.p, b.p, a.len) == 0);
		}
	}
	buf_fini(&a);
	buf_fini(&b);
	profile_free(p);
	profile_free(again);
	return 0;
}
