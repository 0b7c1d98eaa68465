/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema of profiles: which keys there are, what each may hold, and the rules
 * between them. docs/profiles.md and docs/schemas/profile.json say the same.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/path.h"
#include "config/profile_priv.h"
#include "policy/host.h"

/* ---- what a text may be ------------------------------------------------- */

static bool all_of(const char *s, const char *set)
{
	return s[0] && s[strspn(s, set)] == '\0';
}

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

bool profile_name_ok(const char *s)
{
	return all_of(s, LOWER DIGIT "._-") && strchr(LOWER DIGIT, s[0]) &&
	       strlen(s) <= PROFILE_NAME_MAX;
}

/* One line, nothing that steers a terminal. */
static bool line_ok(const char *s)
{
	for (const char *p = s; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return false;
	}
	return s[0] != '\0';
}

static bool description_ok(const char *s)
{
	return line_ok(s) && strlen(s) <= 200;
}

static bool word_ok(const char *s)
{
	return s[0] != '\0';
}

static bool home_path_ok(const char *s)
{
	return line_ok(s) && s[0] != '~' && path_check(span_str(s)) > 0 && strlen(s) <= 1024;
}

static bool absolute_ok(const char *s)
{
	return s[0] == '/' && home_path_ok(s + 1);
}

static bool host_file_ok(const char *s)
{
	return strncmp(s, "~/", 2) == 0 ? home_path_ok(s + 2) : absolute_ok(s);
}

static bool image_ok(const char *s)
{
	for (const char *p = s; *p; p++) {
		if (*p <= ' ' || *p > '~')
			return false;
	}
	return s[0] && s[0] != '-' && strlen(s) <= 512;
}

static bool package_ok(const char *s)
{
	const char *slash = strchr(s, '/');

	if (s[0] == '@') {
		AUTO_FREE char *scope = slash ? xstrndup(s + 1, (size_t)(slash - s - 1)) : NULL;
		return scope && all_of(scope, LOWER DIGIT "._-") && scope[0] != '.' &&
		       all_of(slash + 1, LOWER DIGIT "._-") && slash[1] != '.' && strlen(s) <= 214;
	}
	return all_of(s, LOWER DIGIT "._-") && s[0] != '.' && s[0] != '-' && strlen(s) <= 214;
}

/* MAJOR.MINOR.PATCH with what semver allows behind it: no range, no tag. */
static bool version_ok(const char *s)
{
	const char *p = s;

	for (int i = 0; i < 3; i++) {
		size_t n = strspn(p, DIGIT);
		if (n == 0 || n > 9 || (i < 2 && p[n] != '.'))
			return false;
		p += n + (i < 2);
	}
	return (*p == '\0' ||
	        ((*p == '-' || *p == '+') && all_of(p + 1, LOWER UPPER DIGIT ".+-"))) &&
	       strlen(s) <= 100;
}

static bool env_name_ok(const char *s)
{
	return all_of(s, LOWER UPPER DIGIT "_") && !strchr(DIGIT, s[0]) && strlen(s) <= 255;
}

bool profile_pattern_ok(const char *s)
{
	size_t n = strlen(s);

	if (n > 1 && s[n - 1] == '*') {
		AUTO_FREE char *prefix = xstrndup(s, n - 1);
		return env_name_ok(prefix);
	}
	return env_name_ok(s);
}

bool profile_pattern_match(const char *pattern, const char *name)
{
	size_t n = strlen(pattern);

	if (n > 0 && pattern[n - 1] == '*')
		return strncmp(pattern, name, n - 1) == 0;
	return strcmp(pattern, name) == 0;
}

static bool secret_ok(const char *s)
{
	return all_of(s, LOWER UPPER DIGIT "_-") && strchr(LOWER UPPER, s[0]) && strlen(s) <= 128;
}

static bool ref_ok(const char *s)
{
	if (strncmp(s, "env.", 4) == 0)
		return env_name_ok(s + 4);
	return strncmp(s, "secrets.", 8) == 0 && secret_ok(s + 8);
}

static bool command_name_ok(const char *s)
{
	return all_of(s, LOWER UPPER DIGIT "._+-") && s[0] != '.' && s[0] != '-' && strlen(s) <= 64;
}

static bool host_ok(const char *s)
{
	struct host_pattern h;

	return host_pattern_parse(&h, span_str(s), NULL) == 0;
}

static bool mode_ok(const char *s)
{
	return (strlen(s) == 3 || (strlen(s) == 4 && s[0] == '0')) && all_of(s, "01234567");
}

static bool when_ok(const char *s)
{
	return strcmp(s, "always") == 0 || strcmp(s, "login") == 0 ||
	       (strncmp(s, "env.", 4) == 0 && env_name_ok(s + 4));
}

/* ---- words -------------------------------------------------------------- */

static const char *const kinds[] = { [PROFILE_AGENT] = "agent", [PROFILE_SHELL] = "shell", NULL };
static const char *const egresses[] = {
	[PROFILE_STANDARD] = "standard", [PROFILE_LOCKED] = "locked", NULL
};
static const char *const heaps[] = { "node", "go", NULL };
static const char *const froms[] = { [PROFILE_FROM_KEYRING] = "keyring",
	                             [PROFILE_FROM_FILE] = "file",
	                             [PROFILE_FROM_ENV] = "env",
	                             NULL };
static const char *const volume_kinds[] = {
	[PROFILE_TMPFS] = "tmpfs", [PROFILE_PERSIST] = "persist", NULL
};
static const char *const categories[] = { "settings", "instructions", "rules",   "agents", "skills",
	                                  "commands", "tools",        "plugins", "themes", NULL };
static const char *const setting_kinds[] = { [PROFILE_COPY_FILE] = "file",
	                                     [PROFILE_COPY_DIR] = "directory",
	                                     [PROFILE_MERGE] = "merge",
	                                     NULL };
static const char *const formats[] = { [PROFILE_JSON] = "json",
	                               [PROFILE_JSONC] = "jsonc",
	                               [PROFILE_TOML] = "toml",
	                               [PROFILE_YAML] = "yaml",
	                               NULL };
static const char *const mcp_modes[] = { [PROFILE_MCP_NONE] = "none",
	                                 [PROFILE_MCP_ENV] = "env",
	                                 [PROFILE_MCP_CONFIG] = "config",
	                                 NULL };
const char *const profile_authz_names[] = { "full-access", "safe-tools", "observe", "custom",
	                                    NULL };

const char *profile_kind_name(const struct profile *p)
{
	return kinds[p->kind];
}

const char *profile_egress_name(const struct profile *p)
{
	return egresses[p->egress];
}

/* ---- rules between keys ------------------------------------------------- */

/* Variables that cloche sets itself, whatever a profile says. */
static bool reserved_var(const char *name)
{
	static const char *const own[] = { "HOME", "USER", "LOGNAME", "GIT_TERMINAL_PROMPT" };

	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		if (strcmp(name, own[i]) == 0)
			return true;
	}
	return strncmp(name, "CLOCHE_", 7) == 0;
}

static bool denied(const struct profile_env *e, const char *name)
{
	return profile_texts_have(&e->deny, name) || profile_texts_have(&e->metered, name);
}

static int var_done(struct load *l, void *obj, const struct ynode *n)
{
	struct profile_var *v = obj;
	int said = (v->value != NULL) + (v->ref != NULL) + (v->refs.n != 0);

	if (reserved_var(v->name))
		return profile_bad(l, n, "'%s' is set by cloche itself", v->name);
	if (said != 1)
		return profile_bad(l, n, "'env.set.%s' must have one of value, ref and refs",
		                   v->name);
	if (v->ref) {
		v->refs.v = profile_grab(l, 1, sizeof(*v->refs.v));
		v->refs.v[v->refs.n++] = v->ref;
	}
	return 0;
}

static int quiet_var_done(struct load *l, void *obj, const struct ynode *n)
{
	const struct profile_pair *v = obj;

	return reserved_var(v->name) ? profile_bad(l, n, "'%s' is set by cloche itself", v->name)
	                             : 0;
}

/* What is denied must not be asked for in the same breath. */
static int env_done(struct load *l, void *obj, const struct ynode *n)
{
	const struct profile_env *e = obj;

	for (size_t i = 0; i < e->pass.n; i++) {
		if (denied(e, e->pass.v[i]))
			return profile_bad_key(l, n, "pass", "'env.pass' has '%s', which is denied",
			                       e->pass.v[i]);
	}
	for (size_t i = 0; i < e->set.n; i++) {
		if (denied(e, e->set.v[i].name))
			return profile_bad_key(l, n, "set", "'env.set' has '%s', which is denied",
			                       e->set.v[i].name);
	}
	for (size_t i = 0; i < e->required.n; i++) {
		if (denied(e, e->required.v[i]))
			return profile_bad_key(l, n, "required",
			                       "'env.required' has '%s', which is denied",
			                       e->required.v[i]);
	}
	return 0;
}

static int locator_done(struct load *l, void *obj, const struct ynode *n)
{
	const struct profile_locator *s = obj;
	bool fits = s->from == PROFILE_FROM_KEYRING ? s->service && !s->path && !s->var
	            : s->from == PROFILE_FROM_FILE  ? s->path && !s->service && !s->var
	                                            : s->var && !s->service && !s->path;

	return fits ? 0
	            : profile_bad(l, n, "'from: %s' needs '%s', and no other place", froms[s->from],
	                          s->from == PROFILE_FROM_KEYRING ? "service"
	                          : s->from == PROFILE_FROM_FILE  ? "path"
	                                                          : "var");
}

static int file_done(struct load *l UNUSED, void *obj, const struct ynode *n UNUSED)
{
	struct profile_file *f = obj;
	const char *s = f->mode_text ? f->mode_text : "0600";

	for (f->mode = 0; *s; s++)
		f->mode = f->mode * 8 + (uint32_t)(*s - '0');
	return 0;
}

static int volume_done(struct load *l, void *obj, const struct ynode *n)
{
	struct profile_volume *v = obj;

	if (v->kind == PROFILE_PERSIST && v->size)
		return profile_bad_key(l, n, "size", "a persist volume has no size");
	if (v->kind == PROFILE_TMPFS && v->file)
		return profile_bad_key(l, n, "file", "a tmpfs volume is a directory");
	if (v->kind == PROFILE_TMPFS && v->size == 0)
		v->size = (uint64_t)64 << 20;
	return 0;
}

static int setting_done(struct load *l, void *obj, const struct ynode *n)
{
	struct profile_setting *s = obj;
	bool merge = s->kind == PROFILE_MERGE;

	if (merge != (ynode_get(n, "format") != NULL) || merge != (s->keys.n != 0))
		return profile_bad(l, n,
		                   merge ? "a merge needs 'format' and 'keys'"
		                         : "'format' and 'keys' are for 'kind: merge'");
	if (!merge && s->drop.n)
		return profile_bad_key(l, n, "drop", "'drop' is for 'kind: merge'");
	if (!s->to)
		s->to = s->path;
	return 0;
}

/* TOML has no null. */
static const struct ynode *null_in(const struct ynode *n)
{
	if (n->kind == YNODE_NULL)
		return n;
	for (const struct ynode *c = n->child; c; c = c->next) {
		const struct ynode *found = null_in(c);
		if (found)
			return found;
	}
	return NULL;
}

static const struct ynode *ambiguous_in(const struct ynode *n)
{
	if (n->kind == YNODE_TEXT && ynode_type(n) == YNODE_AMBIGUOUS)
		return n;
	for (const struct ynode *c = n->child; c; c = c->next) {
		const struct ynode *found = ambiguous_in(c);
		if (found)
			return found;
	}
	return NULL;
}

static int seed_done(struct load *l, void *obj, const struct ynode *n UNUSED)
{
	struct profile_seed *s = obj;
	const struct ynode *at = ambiguous_in(s->merge);

	if (at)
		return profile_bad(l, at, "'%s' needs quotes, or to be written as JSON does",
		                   at->text);
	at = s->format == PROFILE_TOML ? null_in(s->merge) : NULL;
	if (at)
		return profile_bad(l, at, "TOML has no null");
	if (!s->when_text)
		return 0;
	s->when = s->when_text[0] == 'a'   ? PROFILE_ALWAYS
	          : s->when_text[0] == 'l' ? PROFILE_LOGIN
	                                   : PROFILE_ENV;
	if (s->when == PROFILE_ENV)
		s->when_env = s->when_text + strlen("env.");
	return 0;
}

static int recipe_done(struct load *l, void *obj, const struct ynode *n)
{
	struct profile_recipe *r = obj;

	for (size_t i = 0; i < r->npm.n; i++) {
		for (size_t k = 0; k < r->npm.v[i].bin.n; k++) {
			const char *name = r->npm.v[i].bin.v[k].name;
			for (size_t j = 0; j < i; j++) {
				for (size_t m = 0; m < r->npm.v[j].bin.n; m++) {
					if (strcmp(r->npm.v[j].bin.v[m].name, name) == 0)
						return profile_bad_key(
							l, n, "npm",
							"two packages have the command '%s'", name);
				}
			}
		}
	}
	if (!r->npm.n && !r->commands.n && !r->hint)
		return profile_bad(l, n, "a recipe needs 'npm', 'commands' or 'hint'");
	if (!r->over)
		r->over = "base";
	return 0;
}

/* Is @path @top itself or below it? */
static bool below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static const struct ynode *nth(const struct ynode *list, size_t i)
{
	const struct ynode *c = list->child;

	while (i-- > 0)
		c = c->next;
	return c;
}

static int check_volumes(struct load *l, const struct profile *p, const struct ynode *n)
{
	const struct ynode *list = ynode_get(n, "volumes");

	for (size_t i = 0; i < p->volumes.n; i++) {
		const struct profile_volume *v = &p->volumes.v[i];
		bool inside = false;
		for (size_t k = 0; k < p->volumes.n; k++) {
			const struct profile_volume *o = &p->volumes.v[k];
			if (k < i && strcmp(o->path, v->path) == 0)
				return profile_bad(l, nth(list, i), "two volumes for '%s'",
				                   v->path);
			inside |= o->kind == PROFILE_TMPFS && k != i && below(v->path, o->path);
		}
		if (v->kind == PROFILE_PERSIST && !inside)
			return profile_bad(l, nth(list, i),
			                   "'%s' is not below a tmpfs volume, so it is kept anyway",
			                   v->path);
	}
	return 0;
}

static bool secret_known(const struct profile *p, const char *name)
{
	for (size_t i = 0; i < p->secrets.n; i++) {
		if (strcmp(p->secrets.v[i].name, name) == 0)
			return true;
	}
	return false;
}

static int check_files(struct load *l, const struct profile *p, const struct ynode *n)
{
	const struct ynode *list = ynode_get(n, "files");

	for (size_t i = 0; i < p->files.n; i++) {
		const struct profile_file *f = &p->files.v[i];
		size_t deepest = 0;
		bool in_memory = false;
		if (!secret_known(p, f->secret))
			return profile_bad(l, nth(list, i), "'%s' is not one of 'secrets'",
			                   f->secret);
		for (size_t k = 0; k < i; k++) {
			if (strcmp(p->files.v[k].path, f->path) == 0)
				return profile_bad(l, nth(list, i), "two files for '%s'", f->path);
		}
		/* the deepest volume decides; the path itself must be below one in memory */
		for (size_t k = 0; k < p->volumes.n; k++) {
			const struct profile_volume *v = &p->volumes.v[k];
			if (below(f->path, v->path) && strlen(v->path) >= deepest) {
				deepest = strlen(v->path);
				in_memory =
					v->kind == PROFILE_TMPFS && strcmp(f->path, v->path) != 0;
			}
		}
		if (!in_memory)
			return profile_bad(l, nth(list, i),
			                   "'%s' must lie in a tmpfs volume: a secret is never "
			                   "written to the disk",
			                   f->path);
	}
	return 0;
}

static int check_secrets(struct load *l, const struct profile *p, const struct ynode *n)
{
	const struct ynode *list = ynode_get(n, "secrets");

	for (size_t i = 0; i < p->secrets.n; i++) {
		for (size_t k = 0; k < i; k++) {
			if (strcmp(p->secrets.v[i].name, p->secrets.v[k].name) == 0)
				return profile_bad(l, nth(list, i), "two secrets '%s'",
				                   p->secrets.v[i].name);
		}
	}
	for (size_t i = 0; i < p->env.set.n; i++) {
		const struct profile_var *v = &p->env.set.v[i];
		for (size_t k = 0; k < v->refs.n; k++) {
			if (strncmp(v->refs.v[k], "secrets.", 8) == 0 &&
			    !secret_known(p, v->refs.v[k] + 8))
				return profile_bad(
					l,
					ynode_get(ynode_get(ynode_get(n, "env"), "set"), v->name),
					"'%s' is not one of 'secrets'", v->refs.v[k] + 8);
		}
	}
	return 0;
}

/* Seeds of one file are laid over each other, so they agree what it is. */
static int check_formats(struct load *l, const struct profile *p)
{
	const struct profile_seeds *const lists[] = { &p->quiet.files, &p->onboarding, &p->trust,
		                                      &p->mcp.inject };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		for (size_t k = 0; k < lists[i]->n; k++) {
			const struct profile_seed *a = &lists[i]->v[k], *b = NULL;
			for (size_t j = 0; j < ARRAY_LEN(lists) && !b; j++) {
				for (size_t m = 0; m < lists[j]->n && !b; m++) {
					if (strcmp(lists[j]->v[m].path, a->path) == 0)
						b = &lists[j]->v[m];
				}
			}
			if (b && b->format != a->format)
				return profile_bad(l, a->merge,
				                   "'%s' is %s here and %s in another place",
				                   a->path, formats[a->format], formats[b->format]);
		}
	}
	return 0;
}

static void default_when(struct profile_seeds *s, enum profile_when when)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->v[i].when == PROFILE_WHEN_UNSAID)
			s->v[i].when = when;
	}
}

static int mcp_done(struct load *l, void *obj, const struct ynode *n)
{
	struct profile_mcp *m = obj;

	if ((m->mode == PROFILE_MCP_CONFIG) != (m->inject.n != 0))
		return profile_bad(l, n,
		                   m->inject.n ? "'inject' is for 'mode: config'"
		                               : "'mode: config' needs 'inject'");
	if (!ynode_get(n, "authz"))
		m->authz = PROFILE_AUTHZ_UNSAID;
	return 0;
}

static int profile_done(struct load *l, void *obj, const struct ynode *n)
{
	struct profile *p = obj;
	int r;

	p->has_recipe = ynode_get(n, "recipe") != NULL;
	if (profile_texts_have(&p->aliases, p->name))
		return profile_bad_key(l, n, "aliases", "'%s' is the name itself", p->name);
	if (p->image && p->has_recipe)
		return profile_bad_key(l, n, "recipe", "'image' and 'recipe' exclude each other");
	if (p->resources.min_memory && p->resources.memory &&
	    p->resources.memory < p->resources.min_memory)
		return profile_bad_key(l, n, "resources",
		                       "'resources.memory' is below 'resources.min_memory'");
	for (size_t i = 0; i < p->quiet.env.n; i++) {
		if (denied(&p->env, p->quiet.env.v[i].name))
			return profile_bad_key(l, n, "quiet",
			                       "'quiet.env' has '%s', which is denied",
			                       p->quiet.env.v[i].name);
		for (size_t k = 0; k < p->env.set.n; k++) {
			if (strcmp(p->quiet.env.v[i].name, p->env.set.v[k].name) == 0)
				return profile_bad_key(
					l, n, "quiet",
					"'%s' stands in 'env.set' and in 'quiet.env'",
					p->quiet.env.v[i].name);
		}
	}
	r = check_secrets(l, p, n);
	if (r == 0)
		r = check_volumes(l, p, n);
	if (r == 0)
		r = check_files(l, p, n);
	if (r == 0)
		r = check_formats(l, p);
	if (!p->home)
		p->home = "/home/agent";
	if (!ynode_get(n, "mcp"))
		p->mcp.authz = PROFILE_AUTHZ_UNSAID;
	/* a question is answered beforehand only where the answer is true */
	default_when(&p->onboarding, PROFILE_LOGIN);
	default_when(&p->trust, PROFILE_ALWAYS);
	default_when(&p->mcp.inject, PROFILE_ALWAYS);
	default_when(&p->quiet.files, PROFILE_ALWAYS);
	return r;
}

/* ---- the tables --------------------------------------------------------- */

#define AT(type, member) offsetof(struct type, member)
#define KEYS(a) .keys = (a), .n_keys = ARRAY_LEN(a)
#define MIB ((uint64_t)1 << 20)
#define LIST .max = PROFILE_LIST_MAX

static const struct pshape pairs_bin = { .size = sizeof(struct profile_pair),
	                                 .name_ok = command_name_ok,
	                                 .name_what = "a command's name" };
static const struct pshape pairs_env = { .size = sizeof(struct profile_pair),
	                                 .name_ok = env_name_ok,
	                                 .name_what = "a variable's name",
	                                 .done = quiet_var_done };

static const struct pkey npm_keys[] = {
	{ "package", PKEY_TEXT, AT(profile_npm, package), "the name of an npm package",
	  .required = true, .ok = package_ok },
	{ "version", PKEY_TEXT, AT(profile_npm, version), "an exact version, as 1.2.3",
	  .required = true, .ok = version_ok },
	{ "omit", PKEY_TEXTS, AT(profile_npm, omit), "patterns of files in the package",
	  .ok = line_ok, LIST },
	{ "bin", PKEY_DICT, AT(profile_npm, bin), "the path of a file in the package",
	  .ok = home_path_ok, .shape = &pairs_bin, LIST },
};
static const struct pshape npm = { KEYS(npm_keys), .size = sizeof(struct profile_npm) };

static const struct pkey recipe_keys[] = {
	{ "over", PKEY_TEXT, AT(profile_recipe, over), "the name of a base image",
	  .ok = profile_name_ok },
	{ "npm", PKEY_LIST, AT(profile_recipe, npm), "a package of npm", .shape = &npm, .max = 16 },
	{ "commands", PKEY_TEXTS, AT(profile_recipe, commands), "lines of shell", .ok = word_ok,
	  .repeats = true, LIST },
	{ "hint", PKEY_TEXT, AT(profile_recipe, hint), "one line of text", .ok = line_ok },
};
static const struct pshape recipe = { KEYS(recipe_keys), .done = recipe_done };

static const struct pkey resources_keys[] = {
	{ "cpus", PKEY_INT, AT(profile_resources, cpus), "a number from 1 to 64", .min = 1,
	  .max = 64 },
	{ "memory", PKEY_SIZE, AT(profile_resources, memory), "a size from 256m to 1024g, as 4g",
	  .min = 256 * MIB, .max = 1024 * 1024 * MIB },
	{ "min_memory", PKEY_SIZE, AT(profile_resources, min_memory),
	  "a size from 256m to 1024g, as 512m", .min = 256 * MIB, .max = 1024 * 1024 * MIB },
	{ "disk", PKEY_SIZE, AT(profile_resources, disk), "a size from 64m to 16384g, as 16g",
	  .min = 64 * MIB, .max = 16 * 1024 * 1024 * MIB },
	{ "tmp_size", PKEY_SIZE, AT(profile_resources, tmp_size), "a size from 1m to 64g, as 2g",
	  .min = MIB, .max = 64 * 1024 * MIB },
};
static const struct pshape resources = { KEYS(resources_keys) };

static const struct pkey var_keys[] = {
	{ "value", PKEY_TEXT, AT(profile_var, value), "a text", .secret_value = true },
	{ "ref", PKEY_TEXT, AT(profile_var, ref), "env.NAME or secrets.NAME", .ok = ref_ok },
	{ "refs", PKEY_TEXTS, AT(profile_var, refs), "env.NAME or secrets.NAME, in order",
	  .ok = ref_ok, .max = 16 },
};
static const struct pshape var = { KEYS(var_keys), .size = sizeof(struct profile_var),
	                           .name_ok = env_name_ok, .name_what = "a variable's name",
	                           .done = var_done };

#define VARS "names of variables"
static const struct pkey env_keys[] = {
	{ "pass", PKEY_TEXTS, AT(profile_env, pass), "names of variables, or PREFIX*",
	  .ok = profile_pattern_ok, LIST },
	{ "required", PKEY_TEXTS, AT(profile_env, required), VARS, .ok = env_name_ok, LIST },
	{ "metered", PKEY_TEXTS, AT(profile_env, metered), VARS, .ok = env_name_ok, LIST },
	{ "deny", PKEY_TEXTS, AT(profile_env, deny), VARS, .ok = env_name_ok, LIST },
	{ "paths", PKEY_TEXTS, AT(profile_env, paths), VARS, .ok = env_name_ok, LIST },
	{ "heap", PKEY_TEXTS, AT(profile_env, heap), "node and go", .words = heaps, .max = 2 },
	{ "set", PKEY_DICT, AT(profile_env, set), "a text, or a mapping with value, ref or refs",
	  .secret_value = true, .shape = &var, LIST },
};
static const struct pshape env = { KEYS(env_keys), .done = env_done };

static const struct pkey locator_keys[] = {
	{ "from", PKEY_ENUM, AT(profile_locator, from), "keyring, file or env", .required = true,
	  .words = froms },
	{ "service", PKEY_TEXT, AT(profile_locator, service), "a keyring's name for it",
	  .ok = line_ok },
	{ "path", PKEY_TEXT, AT(profile_locator, path), "~/PATH or an absolute path",
	  .ok = host_file_ok },
	{ "var", PKEY_TEXT, AT(profile_locator, var), "a variable's name", .ok = env_name_ok },
	{ "hint", PKEY_TEXT, AT(profile_locator, hint), "one line of text", .ok = line_ok },
};
static const struct pshape locator = { KEYS(locator_keys), .size = sizeof(struct profile_locator),
	                               .done = locator_done };

static const struct pkey secret_keys[] = {
	{ "name", PKEY_TEXT, AT(profile_secret, name), "a secret's name", .required = true,
	  .ok = secret_ok },
	{ "required", PKEY_BOOL, AT(profile_secret, required), "true or false" },
	{ "field", PKEY_TEXT, AT(profile_secret, field), "the name of a JSON member",
	  .ok = line_ok },
	{ "expiry", PKEY_TEXT, AT(profile_secret, expiry), "the name of a JSON member",
	  .ok = line_ok },
	{ "hint", PKEY_TEXT, AT(profile_secret, hint), "one line of text", .ok = line_ok },
	{ "sources", PKEY_LIST, AT(profile_secret, sources), "a place on the host",
	  .shape = &locator, .max = 16 },
};
static const struct pshape secret = { KEYS(secret_keys), .size = sizeof(struct profile_secret),
	                              .text_ok = true };

static const struct pkey credentials_keys[] = {
	{ "paths", PKEY_TEXTS, AT(profile_credentials, paths), "paths below home",
	  .ok = home_path_ok, LIST },
	{ "login", PKEY_TEXTS, AT(profile_credentials, login), "paths below home",
	  .ok = home_path_ok, LIST },
	{ "env", PKEY_TEXTS, AT(profile_credentials, env), VARS, .ok = env_name_ok, LIST },
	{ "hint", PKEY_TEXT, AT(profile_credentials, hint), "one line of text", .ok = line_ok },
};
static const struct pshape credentials = { KEYS(credentials_keys) };

static const struct pkey file_keys[] = {
	{ "secret", PKEY_TEXT, AT(profile_file, secret), "a secret's name", .required = true,
	  .ok = secret_ok },
	{ "path", PKEY_TEXT, AT(profile_file, path), "a path below home", .required = true,
	  .ok = home_path_ok },
	{ "mode", PKEY_TEXT, AT(profile_file, mode_text), "an octal mode in quotes, as '0600'",
	  .ok = mode_ok },
};
static const struct pshape file = { KEYS(file_keys), .size = sizeof(struct profile_file),
	                            .done = file_done };

static const struct pkey volume_keys[] = {
	{ "kind", PKEY_ENUM, AT(profile_volume, kind), "tmpfs or persist", .required = true,
	  .words = volume_kinds },
	{ "path", PKEY_TEXT, AT(profile_volume, path), "a path below home", .required = true,
	  .ok = home_path_ok },
	{ "size", PKEY_SIZE, AT(profile_volume, size), "a size from 1m to 64g, as 64m", .min = MIB,
	  .max = 64 * 1024 * MIB },
	{ "file", PKEY_BOOL, AT(profile_volume, file), "true or false" },
};
static const struct pshape volume = { KEYS(volume_keys), .size = sizeof(struct profile_volume),
	                              .done = volume_done };

static const struct pkey setting_keys[] = {
	{ "category", PKEY_TEXT, AT(profile_setting, category),
	  "settings, instructions, rules, agents, skills, commands, tools, plugins or themes",
	  .required = true, .words = categories },
	{ "path", PKEY_TEXT, AT(profile_setting, path), "a path below the host's home",
	  .required = true, .ok = home_path_ok },
	{ "to", PKEY_TEXT, AT(profile_setting, to), "a path below home", .ok = home_path_ok },
	{ "kind", PKEY_ENUM, AT(profile_setting, kind), "file, directory or merge",
	  .required = true, .words = setting_kinds },
	{ "format", PKEY_ENUM, AT(profile_setting, format), "json, jsonc, toml or yaml",
	  .words = formats },
	{ "optional", PKEY_BOOL, AT(profile_setting, optional), "true or false" },
	{ "keys", PKEY_TEXTS, AT(profile_setting, keys), "names of members", .ok = line_ok, LIST },
	{ "drop", PKEY_TEXTS, AT(profile_setting, drop), "names of members", .ok = line_ok, LIST },
};
static const struct pshape setting = { KEYS(setting_keys), .size = sizeof(struct profile_setting),
	                               .done = setting_done };

static const struct pkey seed_keys[] = {
	{ "path", PKEY_TEXT, AT(profile_seed, path), "a path below home", .required = true,
	  .ok = home_path_ok },
	{ "format", PKEY_ENUM, AT(profile_seed, format), "json, jsonc, toml or yaml",
	  .required = true, .words = formats },
	{ "when", PKEY_TEXT, AT(profile_seed, when_text), "always, login or env.NAME",
	  .ok = when_ok },
	{ "merge", PKEY_TREE, AT(profile_seed, merge), "a mapping that is not empty",
	  .required = true },
};
static const struct pshape seed = { KEYS(seed_keys), .size = sizeof(struct profile_seed),
	                            .done = seed_done };

static const struct pkey mcp_keys[] = {
	{ "mode", PKEY_ENUM, AT(profile_mcp, mode), "none, env or config", .required = true,
	  .words = mcp_modes },
	{ "authz", PKEY_ENUM, AT(profile_mcp, authz), "full-access, safe-tools, observe or custom",
	  .words = profile_authz_names },
	{ "inject", PKEY_LIST, AT(profile_mcp, inject), "members to add to a file", .shape = &seed,
	  LIST },
};
static const struct pshape mcp = { KEYS(mcp_keys), .done = mcp_done };

static const struct pkey quiet_keys[] = {
	{ "env", PKEY_DICT, AT(profile_quiet, env), "a text", .ok = word_ok, .shape = &pairs_env,
	  LIST },
	{ "files", PKEY_LIST, AT(profile_quiet, files), "members to add to a file", .shape = &seed,
	  LIST },
};
static const struct pshape quiet = { KEYS(quiet_keys) };

static const struct pkey profile_keys[] = {
	{ "name", PKEY_TEXT, AT(profile, name),
	  "a name of at most 64 of a-z 0-9 . - _ that begins with a letter or a digit",
	  .required = true, .ok = profile_name_ok },
	{ "aliases", PKEY_TEXTS, AT(profile, aliases), "names", .ok = profile_name_ok, .max = 8 },
	{ "description", PKEY_TEXT, AT(profile, description), "one line of at most 200 bytes",
	  .ok = description_ok },
	{ "kind", PKEY_ENUM, AT(profile, kind), "agent or shell", .words = kinds },
	{ "command", PKEY_TEXTS, AT(profile, command), "words of a command, the first its program",
	  .required = true, .repeats = true, .ok = word_ok, .min = 1, .max = 64 },
	{ "home", PKEY_TEXT, AT(profile, home), "an absolute path", .ok = absolute_ok },
	{ "image", PKEY_TEXT, AT(profile, image), "the name or reference of an image",
	  .ok = image_ok },
	{ "recipe", PKEY_MAP, AT(profile, recipe), "how the agent's layer is made",
	  .shape = &recipe },
	{ "resources", PKEY_MAP, AT(profile, resources), "what the machine gets",
	  .shape = &resources },
	{ "sudo", PKEY_BOOL, AT(profile, sudo), "true or false" },
	{ "egress", PKEY_ENUM, AT(profile, egress), "standard or locked", .words = egresses },
	{ "hosts", PKEY_TEXTS, AT(profile, hosts), "hosts: NAME or *.NAME, with :PORT or without",
	  .ok = host_ok, LIST },
	{ "allow_hosts", PKEY_TEXTS, AT(profile, allow_hosts),
	  "hosts: NAME or *.NAME, with :PORT or without", .ok = host_ok, LIST },
	{ "callback_ports", PKEY_INTS, AT(profile, callback_ports), "ports from 1 to 65535",
	  .min = 1, .max = 65535 },
	{ "env", PKEY_MAP, AT(profile, env), "variables of the guest", .shape = &env },
	{ "secrets", PKEY_LIST, AT(profile, secrets), "the name of a secret, or a mapping",
	  .ok = secret_ok, .shape = &secret, LIST },
	{ "credentials", PKEY_MAP, AT(profile, credentials), "where logins lie",
	  .shape = &credentials },
	{ "files", PKEY_LIST, AT(profile, files), "a secret and its path", .shape = &file, LIST },
	{ "volumes", PKEY_LIST, AT(profile, volumes), "a volume", .shape = &volume, LIST },
	{ "settings", PKEY_LIST, AT(profile, settings), "a setting of the host", .shape = &setting,
	  LIST },
	{ "mcp", PKEY_MAP, AT(profile, mcp), "how tool servers are announced", .shape = &mcp },
	{ "onboarding", PKEY_LIST, AT(profile, onboarding), "members to add to a file",
	  .shape = &seed, LIST },
	{ "trust", PKEY_LIST, AT(profile, trust), "members to add to a file, for each project",
	  .shape = &seed, LIST },
	{ "quiet", PKEY_MAP, AT(profile, quiet), "what keeps the agent from calling elsewhere",
	  .shape = &quiet },
};
const struct pshape profile_shape = { KEYS(profile_keys), .done = profile_done };
