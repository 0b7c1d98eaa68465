/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: any bytes give a profile or an error with a text, never both. A profile holds its
 * own rules whatever was written, and its tree as JSON is the same profile again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config/profile.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct profile *p = NULL, *again = NULL;
	struct buf a = { 0 }, b = { 0 };
	struct err e = { 0 };

	int r = profile_parse(&p, "f", data, size, PROFILE_FILE, &e);
	check((r < 0) == (e.code < 0) && (r < 0) == (p == NULL) && (r == 0 || e.text[0]));
	if (p) {
		check_rules(p);
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
