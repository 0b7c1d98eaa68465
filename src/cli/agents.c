/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche agents`: the profiles there are, what each says, and whether it will do.
 */
#include "cli/agents.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/near.h"
#include "base/vis.h"
#include "config/env.h"
#include "term/screen.h"
#include "term/tty.h"

extern char **environ;

enum {
	A_JSON = 1,
	A_FORCE,
	A_YES,
	A_NAME,
	A_IMAGE,
	A_COMMAND,
	A_DESCRIPTION,
	A_ENV,
	A_REQUIRED,
	A_MEMORY,
	A_CPUS,
	A_TMP,
	A_EGRESS,
	A_HOST,
	A_MCP,
	A_AUTHZ,
	A_VALUES,
};

static const struct cli_opt opts[] = {
	{ "json", 0, CLI_FLAG, A_JSON, NULL, "machine-readable output, or a receipt" },
	{ "force", 'f', CLI_FLAG, A_FORCE, NULL,
	  "add, import, export: change or replace what is there" },
	{ "yes", 'y', CLI_FLAG, A_YES, NULL, "rm: do not ask" },
	{ "name", 0, CLI_VALUE, A_NAME, "NAME", "import: under this name" },
	{ "with-values", 0, CLI_FLAG, A_VALUES, NULL,
	  "export: with the literal values of variables" },
	{ "command", 0, CLI_VALUE, A_COMMAND, "WORD",
	  "add: the program, and once more for each word" },
	{ "image", 0, CLI_VALUE, A_IMAGE, "IMAGE", "add: the image that has it" },
	{ "description", 0, CLI_VALUE, A_DESCRIPTION, "TEXT", "add: one line" },
	{ "env", 0, CLI_VALUE, A_ENV, "PATTERN", "add: pass these variables; may be repeated" },
	{ "env-required", 0, CLI_VALUE, A_REQUIRED, "NAME",
	  "add: a run needs it; may be repeated" },
	{ "memory", 'm', CLI_VALUE, A_MEMORY, "SIZE", "add: memory of its machine" },
	{ "cpus", 0, CLI_VALUE, A_CPUS, "N", "add: virtual CPUs" },
	{ "tmp-size", 0, CLI_VALUE, A_TMP, "SIZE", "add: size of /tmp" },
	{ "egress", 0, CLI_VALUE, A_EGRESS, "PROFILE", "add: standard or locked" },
	{ "egress-profile", 0, CLI_VALUE, A_EGRESS, "PROFILE", "the same as --egress" },
	{ "allow-host", 0, CLI_VALUE, A_HOST, "NAME[:PORT]",
	  "add: a host it may reach; may be repeated" },
	{ "mcp", 0, CLI_FLAG, A_MCP, NULL, "add: tell it of tool servers by a variable" },
	{ "mcp-authz-profile", 0, CLI_VALUE, A_AUTHZ, "PROFILE",
	  "add: full-access, safe-tools, observe or custom; with --mcp" },
};
const struct cli_opt *const agents_opts = opts;
const size_t agents_n_opts = ARRAY_LEN(opts);

/* Which verbs an option is for. */
static unsigned verbs_of(int id)
{
	switch (id) {
	case A_JSON:
		return ~(unsigned)(AGENTS_INIT | AGENTS_EDIT);
	case A_FORCE:
		return AGENTS_ADD | AGENTS_IMPORT | AGENTS_EXPORT;
	case A_YES:
		return AGENTS_RM;
	case A_NAME:
		return AGENTS_IMPORT;
	case A_VALUES:
		return AGENTS_EXPORT;
	default:
		return AGENTS_ADD;
	}
}

static int add_text(struct agents_texts *t, const char *v, const char *opt, struct err *err)
{
	if (t->n == AGENTS_LIST_MAX)
		return err_set(err, -E2BIG, "%s stands more than %d times", opt, AGENTS_LIST_MAX);
	t->v[t->n++] = v;
	return 0;
}

static int on_opt(void *arg, int id, const char *v, struct err *err)
{
	struct agents *a = arg;

	if (!(verbs_of(id) & a->verb)) {
		const char *name = "";
		for (size_t i = 0; i < ARRAY_LEN(opts); i++) {
			if (opts[i].id == id)
				name = opts[i].name;
		}
		return err_set(err, -EINVAL, "--%s means nothing to agents %s", name, a->verb_name);
	}
	switch (id) {
	case A_JSON:
		a->json = true;
		return 0;
	case A_FORCE:
		a->force = true;
		return 0;
	case A_YES:
		a->yes = true;
		return 0;
	case A_NAME:
		a->name = v;
		return 0;
	case A_IMAGE:
		a->image = v;
		return 0;
	case A_COMMAND:
		return add_text(&a->command, v, "--command", err);
	case A_DESCRIPTION:
		a->description = v;
		return 0;
	case A_ENV:
		return add_text(&a->env, v, "--env", err);
	case A_REQUIRED:
		return add_text(&a->required, v, "--env-required", err);
	case A_MEMORY:
		a->memory = v;
		return 0;
	case A_CPUS:
		a->cpus = v;
		return 0;
	case A_TMP:
		a->tmp_size = v;
		return 0;
	case A_EGRESS:
		a->egress = v;
		return 0;
	case A_HOST:
		return add_text(&a->hosts, v, "--allow-host", err);
	case A_MCP:
		a->mcp = true;
		return 0;
	case A_AUTHZ:
		a->authz = v;
		return 0;
	case A_VALUES:
		a->with_values = true;
		return 0;
	default:
		return err_set(err, -EINVAL, "unknown option");
	}
}

static const struct verb {
	const char *name;
	enum agents_verb verb;
	int (*fn)(struct agents *a);
	size_t min_words, max_words;
	const char *usage;
} verbs[] = {
	{ "list", AGENTS_LIST, agents_list, 0, 0, "list" },
	{ "inspect", AGENTS_INSPECT, agents_inspect, 1, 1, "inspect NAME" },
	{ "doctor", AGENTS_DOCTOR, agents_doctor, 1, 1, "doctor NAME" },
	{ "init", AGENTS_INIT, agents_init, 0, 1, "init [NAME]" },
	{ "add", AGENTS_ADD, agents_add, 1, 1, "add NAME --command WORD... [options]" },
	{ "import", AGENTS_IMPORT, agents_import, 1, 1, "import FILE|-" },
	{ "export", AGENTS_EXPORT, agents_export, 1, 2, "export NAME [NEW-NAME]" },
	{ "edit", AGENTS_EDIT, agents_edit, 1, 1, "edit NAME" },
	{ "rm", AGENTS_RM, agents_rm, 1, 1, "rm NAME" },
};

static const struct verb *find_verb(const char *word, struct err *err)
{
	const char *names[ARRAY_LEN(verbs)];
	char seen[64];

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		names[i] = verbs[i].name;
		if (strcmp(word, verbs[i].name) == 0)
			return &verbs[i];
	}
	const char *near = near_word(word, names, ARRAY_LEN(names));
	(void)err_set(err, -EINVAL, "agents has no verb '%s'",
	              vis_str(seen, sizeof(seen), span_str(word)));
	if (near)
		(void)err_hint(err, "did you mean cloche agents %s?", near);
	else
		(void)err_hint(err, "cloche help agents");
	return NULL;
}

static int load_all(struct agents *a, struct err *err)
{
	int r = state_dirs_init(&a->dirs, false, err);

	if (r < 0)
		return r;
	AUTO_FREE char *file = xasprintf("%s/config.yaml", a->dirs.config);
	AUTO_FREE char *dir = xasprintf("%s/profiles", a->dirs.config);
	r = config_load(&a->config, file, err);
	return r < 0 ? r
	             : profiles_load(&a->ps, dir, config_agents(&a->config), "config.yaml", err);
}

int cmd_agents(int argc, char **argv)
{
	struct agents a = { .verb_name = "list" };
	struct err e = { 0 };
	const struct verb *v = &verbs[0];
	/* an option first: the list's */
	bool named = argc > 1 && argv[1][0] != '-';
	int rest, code = CLI_EXIT_USAGE;

	if (named) {
		v = find_verb(argv[1], &e);
		if (!v)
			return cli_usage(&e);
	}
	a.verb = v->verb;
	a.verb_name = v->name;
	config_init(&a.config);
	a.words = xcalloc((size_t)argc + 1, sizeof(*a.words));
	if (cli_parse(argc - named, argv + named, opts, ARRAY_LEN(opts), on_opt, &a, a.words,
	              &a.n_words, &rest, &e) < 0) {
		code = cli_usage(&e);
		goto out;
	}
	if (rest < argc - named || a.n_words < v->min_words || a.n_words > v->max_words) {
		(void)err_set(&e, -EINVAL, "usage: cloche agents %s", v->usage);
		code = cli_usage(&e);
		goto out;
	}
	if (load_all(&a, &e) < 0)
		code = cli_fail(&e);
	else
		code = v->fn(&a);
out:
	profiles_fini(&a.ps);
	config_fini(&a.config);
	state_dirs_fini(&a.dirs);
	free(a.words);
	return code;
}

int cmd_list(int argc, char **argv)
{
	char **words = xcalloc((size_t)argc + 2, sizeof(*words));
	static char agents[] = "agents", list[] = "list";

	words[0] = agents;
	words[1] = list;
	memcpy(words + 2, argv + 1, (size_t)(argc - 1) * sizeof(*words));
	int code = cmd_agents(argc + 1, words);
	free(words);
	return code;
}

const struct profile_entry *agents_entry(struct agents *a, struct err *err)
{
	const struct profile_entry *e = profiles_find(&a->ps, a->words[0]);

	if (!e)
		(void)!profiles_get(&a->ps, a->words[0], &e, err); /* it says what there is */
	return e;
}

int agents_print_json(json_t *j, int code)
{
	AUTO_BUF struct buf b = { 0 };
	AUTO_FREE char *s = j ? json_dumps(j, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;

	json_decref(j);
	if (!s || buf_printf(&b, "%s\n", s) < 0)
		return CLI_EXIT_REFUSED;
	return cli_print(&b, code);
}

/* A text of a file that somebody wrote, for JSON: jansson takes UTF-8 only. */
static json_t *text_json(const char *s)
{
	AUTO_FREE char *seen = vis_dup(span_str(s));

	return json_string(seen);
}

static json_t *texts_json(const struct profile_texts *t)
{
	json_t *j = json_array();

	for (size_t i = 0; i < t->n; i++)
		(void)json_array_append_new(j, text_json(t->v[i]));
	return j;
}

/* ---- list --------------------------------------------------------------- */

static const char *type_of(const struct profile_entry *e)
{
	if (e->path)
		return e->builtin || profile_builtin_text(e->name) ? "replaces built-in"
		                                                   : "own file";
	return profile_builtin_text(e->name) ? "built-in" : "config.yaml";
}

/* What its image is made of, in a few words. */
static void image_of(const struct profile *p, char *dst, size_t cap)
{
	const struct profile_recipe *r = &p->recipe;

	if (p->image)
		(void)snprintf(dst, cap, "%s", p->image);
	else if (r->npm.n)
		(void)snprintf(dst, cap, "npm %s %s", r->npm.v[0].package, r->npm.v[0].version);
	else if (r->commands.n)
		(void)snprintf(dst, cap, "%s and %zu commands", r->over, r->commands.n);
	else if (p->kind == PROFILE_SHELL)
		(void)snprintf(dst, cap, "base");
	else
		(void)snprintf(dst, cap, "of your own (--image)");
}

static void say_problems(const struct agents *a)
{
	for (size_t i = 0; i < a->ps.n_problems; i++) {
		AUTO_FREE char *seen = vis_dup(span_str(a->ps.problems[i]));
		(void)fprintf(stderr, "cloche: %s\n", seen);
	}
}

static json_t *problems_json(const struct agents *a)
{
	json_t *j = json_array();

	for (size_t i = 0; i < a->ps.n_problems; i++)
		(void)json_array_append_new(j, text_json(a->ps.problems[i]));
	return j;
}

static json_t *entry_json(const struct profile_entry *e)
{
	const struct profile *p = e->profile;
	json_t *j = json_pack("{ss ss sb sb}", "name", e->name, "type", type_of(e), "valid",
	                      p != NULL, "configured", e->configured);

	if (e->path)
		(void)json_object_set_new(j, "path", text_json(e->path));
	if (!p) {
		(void)json_object_set_new(j, "error", text_json(e->err.text));
		return j;
	}
	json_t *secrets = json_array();
	for (size_t i = 0; i < p->secrets.n; i++)
		(void)json_array_append_new(
			secrets, json_pack("{ss sb sb}", "name", p->secrets.v[i].name, "required",
		                           p->secrets.v[i].required, "importable",
		                           p->secrets.v[i].sources.n != 0));
	char image[600];
	image_of(p, image, sizeof(image));
	(void)json_object_set_new(j, "aliases", texts_json(&p->aliases));
	(void)json_object_set_new(j, "kind", json_string(profile_kind_name(p)));
	(void)json_object_set_new(j, "image", text_json(image));
	(void)json_object_set_new(j, "secrets", secrets);
	if (p->description)
		(void)json_object_set_new(j, "description", text_json(p->description));
	return j;
}

static void join(char *dst, size_t cap, const struct profile_texts *t)
{
	size_t n = 0;

	dst[0] = '\0';
	for (size_t i = 0; i < t->n && n < cap; i++)
		n += (size_t)snprintf(dst + n, cap - n, "%s%s", i ? ", " : "", t->v[i]);
}

static int by_name(const void *x, const void *y)
{
	const struct profile_entry *const *a = x, *const *b = y;

	return strcmp((*a)->name, (*b)->name);
}

int agents_list(struct agents *a)
{
	static const struct term_col cols[] = {
		{ "AGENT", TERM_LEFT, false },  { "ALSO", TERM_LEFT, false },
		{ "KIND", TERM_LEFT, false },   { "FROM", TERM_LEFT, false },
		{ "SECRETS", TERM_LEFT, true }, { "IMAGE", TERM_LEFT, true }
	};
	const struct profile_entry **sorted = xcalloc(a->ps.n, sizeof(*sorted));
	AUTO_BUF struct buf b = { 0 };
	struct term_table t;
	json_t *arr = json_array();

	for (size_t i = 0; i < a->ps.n; i++)
		sorted[i] = &a->ps.v[i];
	qsort(sorted, a->ps.n, sizeof(*sorted), by_name);
	term_table_init(&t, cols, ARRAY_LEN(cols));
	for (size_t i = 0; i < a->ps.n; i++) {
		const struct profile_entry *e = sorted[i];
		const struct profile *p = e->profile;
		char image[600] = "not valid: cloche agents doctor", also[200] = "", from[64];
		char secrets[200] = "";
		(void)json_array_append_new(arr, entry_json(e));
		(void)snprintf(from, sizeof(from), "%s%s", type_of(e),
		               e->configured && (e->path || profile_builtin_text(e->name))
		                       ? ", config.yaml"
		                       : "");
		if (p) {
			image_of(p, image, sizeof(image));
			join(also, sizeof(also), &p->aliases);
			for (size_t k = 0, n = 0; k < p->secrets.n && n < sizeof(secrets); k++)
				n += (size_t)snprintf(secrets + n, sizeof(secrets) - n, "%s%s%s",
				                      k ? ", " : "", p->secrets.v[k].name,
				                      p->secrets.v[k].required ? "!" : "");
		}
		const char *row[] = { e->name, also,    p ? profile_kind_name(p) : "?",
			              from,    secrets, image };
		term_table_row(&t, row);
	}
	free(sorted);
	int code;
	if (a->json) {
		code = agents_print_json(json_pack("{si so so}", "schema", 1, "agents", arr,
		                                   "problems", problems_json(a)),
		                         0);
	} else {
		json_decref(arr);
		say_problems(a);
		int r = term_table_put(&t, term_is_tty(1) ? term_tty_size(1).cols : 0, &b);
		code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
	}
	term_table_fini(&t);
	return code;
}

/* ---- inspect ------------------------------------------------------------ */

/* Mappings whose values may be secrets: their keys only. */
static bool names_only(const char *key)
{
	return strcmp(key, "env.set") == 0 || strcmp(key, "quiet.env") == 0;
}

static int put_text(struct buf *b, const char *s)
{
	AUTO_FREE char *seen = vis_dup(span_str(s));

	return buf_printf(b, "%s", seen);
}

/* An entry of a list by what tells it from the others. */
static int put_entry(struct buf *b, const struct ynode *n)
{
	static const char *const tells[] = { "name", "package", "secret", "path" };
	int r = 0;
	bool any = false;

	if (n->kind == YNODE_TEXT)
		return put_text(b, n->text);
	for (size_t i = 0; i < ARRAY_LEN(tells) && r == 0; i++) {
		const struct ynode *c = ynode_get(n, tells[i]);
		if (!c || c->kind != YNODE_TEXT)
			continue;
		r = any ? buf_printf(b, " ") : 0;
		if (r == 0)
			r = put_text(b, c->text);
		any = true;
	}
	const struct ynode *version = ynode_get(n, "version");
	if (r == 0 && version && version->kind == YNODE_TEXT)
		r = buf_printf(b, " %s", version->text);
	return r;
}

static int put_summary(struct buf *b, const char *key, const struct ynode *n)
{
	int r = 0;

	if (n->kind == YNODE_TEXT)
		return put_text(b, n->text);
	if (n->n == 0)
		return buf_printf(b, "none");
	for (const struct ynode *c = n->child; c && r == 0; c = c->next) {
		r = c == n->child ? 0 : buf_printf(b, strcmp(key, "command") == 0 ? " " : ", ");
		if (r == 0)
			r = n->kind == YNODE_MAP ? put_text(b, c->key) : put_entry(b, c);
	}
	return r;
}

struct inspect {
	struct agents *a;
	const struct profile_entry *e;
	struct buf b;
	json_t *values;
	int r;
};

static json_t *node_json(const char *key, const struct ynode *n)
{
	AUTO_BUF struct buf b = { 0 };

	if (names_only(key)) {
		json_t *j = json_array();
		for (const struct ynode *c = n->child; c; c = c->next)
			(void)json_array_append_new(j, text_json(c->key));
		return j;
	}
	if (ynode_json(&b, n, -1) < 0)
		return json_null();
	json_t *j = json_loadb((const char *)b.p, b.len, JSON_DECODE_ANY, NULL);
	return j ? j : json_null();
}

/* Keys of the top, and of the mappings directly below it, one line each. */
static void on_key(void *arg, const char *key, const char *what UNUSED)
{
	struct inspect *in = arg;
	const struct ynode *n = profile_at(in->e->profile, key);
	const char *dot = strchr(key, '.');
	bool section = n && n->kind == YNODE_MAP && !dot;

	if (in->r < 0 || !n || strchr(key, '[') || strstr(key, ".NAME") ||
	    (dot && strchr(dot + 1, '.')) || section)
		return;
	const char *origin = profile_source_name(&in->a->ps, in->e, n->source);
	(void)json_array_append_new(in->values,
	                            json_pack("{ss so so}", "key", key, "value", node_json(key, n),
	                                      "origin", text_json(origin)));
	in->r = buf_printf(&in->b, "%-22s ", key);
	if (in->r == 0)
		in->r = put_summary(&in->b, key, n);
	if (in->r == 0)
		in->r = buf_printf(&in->b, "   [%s]\n", origin);
}

/* Is there a value for what the profile requires? By the run's own rules. */
static json_t *required_json(const struct profile *p, bool *all)
{
	json_t *j = json_array();
	struct env_set set = { 0 };
	struct env_in in = { .profile = p,
		             .host = (const char *const *)environ,
		             .agent = p->name,
		             .workspace = "/work",
		             .session_id = "-",
		             .memory_mib = 4096 };

	*all = env_build(&set, &in, NULL) == 0;
	for (size_t i = 0; i < p->env.required.n; i++) {
		bool there = env_value(&set, p->env.required.v[i]) != NULL;
		*all &= there;
		(void)json_array_append_new(j, json_pack("{ss sb}", "name", p->env.required.v[i],
		                                         "present", there));
	}
	env_fini(&set);
	return j;
}

static json_t *lost_json(const struct profile_entry *e)
{
	const char *lost[2 * PROFILE_LIST_MAX];
	size_t n = profile_lost_denials(e, lost, ARRAY_LEN(lost));
	json_t *j = json_array();

	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(j, json_string(lost[i]));
	return j;
}

int agents_inspect(struct agents *a)
{
	struct err err = { 0 };
	const struct profile_entry *e = agents_entry(a, &err);
	struct inspect in = { .a = a, .e = e, .values = json_array() };
	int code = CLI_EXIT_REFUSED;

	if (!e || !e->profile) {
		if (e && a->json) {
			json_decref(in.values);
			return agents_print_json(json_pack("{si so so}", "schema", 1, "agent",
			                                   entry_json(e), "values", json_array()),
			                         CLI_EXIT_REFUSED);
		}
		if (e)
			(void)!profiles_get(&a->ps, a->words[0], &e, &err);
		json_decref(in.values);
		return cli_fail(&err);
	}
	const struct profile *p = e->profile;
	profile_each_key(on_key, &in);
	bool all;
	json_t *required = required_json(p, &all);
	if (a->json) {
		code = agents_print_json(json_pack("{si so so so so}", "schema", 1, "agent",
		                                   entry_json(e), "values", in.values, "required",
		                                   required, "lost_denials", lost_json(e)),
		                         in.r < 0 ? CLI_EXIT_REFUSED : 0);
	} else {
		size_t i;
		json_t *x;
		json_array_foreach(required, i, x)
		{
			if (in.r == 0)
				in.r = buf_printf(&in.b, "%-22s %s %s\n", i ? "" : "required",
				                  json_string_value(json_object_get(x, "name")),
				                  json_is_true(json_object_get(x, "present"))
				                          ? "present"
				                          : "MISSING");
		}
		json_decref(required);
		json_decref(in.values);
		say_problems(a);
		code = in.r < 0 ? CLI_EXIT_REFUSED : cli_print(&in.b, 0);
	}
	buf_fini(&in.b);
	return code;
}

/* ---- receipts ----------------------------------------------------------- */

static json_t *fingerprint(struct span s)
{
	char hex[HASH_HEX_BYTES];
	struct hash h;

	if (!s.p)
		return json_null();
	hash_bytes(&h, s.p, s.len);
	hash_hex(hex, &h);
	return json_string(hex);
}

json_t *agents_receipt(const struct agents *a, const char *path, bool ok, const struct profile *p,
                       const struct agents_write *w, json_t *checks, const char *const *non_effects)
{
	AUTO_FREE char *command = xasprintf("agents %s", a->verb_name);
	json_t *not_done = json_array();
	bool all;

	for (; *non_effects; non_effects++)
		(void)json_array_append_new(not_done, json_string(*non_effects));
	json_t *j = json_pack("{si ss so ss sb so}", "schema", 1, "command", command, "config_path",
	                      text_json(path), "validator_version", "1", "ok", ok, "non_effects",
	                      not_done);
	if (p) {
		char image[600];
		image_of(p, image, sizeof(image));
		json_t *agent =
			json_pack("{ss ss so so ss ss ss si so so so si}", "name", p->name, "type",
		                  p->from == PROFILE_BUILTIN ? "built-in" : "custom", "image",
		                  text_json(image), "command", texts_json(&p->command), "kind",
		                  profile_kind_name(p), "egress_profile", profile_egress_name(p),
		                  "mcp_mode",
		                  p->mcp.mode == PROFILE_MCP_NONE  ? "none"
		                  : p->mcp.mode == PROFILE_MCP_ENV ? "env"
		                                                   : "config",
		                  "mcp_inject_count", (int)p->mcp.inject.n, "env_forward",
		                  texts_json(&p->env.pass), "env_required", required_json(p, &all),
		                  "credential_paths", texts_json(&p->credentials.paths),
		                  "settings_entries", (int)p->settings.n);
		if (p->mcp.authz != PROFILE_AUTHZ_UNSAID)
			(void)json_object_set_new(agent, "mcp_authz_profile",
			                          json_string(profile_authz_names[p->mcp.authz]));
		if (p->description)
			(void)json_object_set_new(agent, "description", text_json(p->description));
		(void)json_object_set_new(j, "agent", agent);
	}
	if (w)
		(void)json_object_set_new(j, "write",
		                          json_pack("{sb sb ss s{ss so so}}", "created", w->created,
		                                    "replaced", w->replaced, "comment_handling",
		                                    w->comments, "fingerprint", "algorithm",
		                                    "blake2b-256", "before", fingerprint(w->before),
		                                    "after", fingerprint(w->after)));
	if (checks)
		(void)json_object_set_new(j, "checks", checks);
	return j;
}

/* ---- doctor ------------------------------------------------------------- */

enum verdict { OK, WARN, FAIL };

struct doctor {
	json_t *checks;
	struct buf b;
	bool failed;
	int r;
};

static void check(struct doctor *d, enum verdict v, const char *fmt, ...) PRINTF_FMT(3, 4);
static void check(struct doctor *d, enum verdict v, const char *fmt, ...)
{
	static const char *const words[] = { "ok", "warn", "fail" };
	char text[900];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	AUTO_FREE char *seen = vis_dup(span_str(text));
	d->failed |= v == FAIL;
	(void)json_array_append_new(d->checks, json_pack("{sb ss ss}", "ok", v != FAIL, "status",
	                                                 words[v], "message", seen));
	if (d->r == 0)
		d->r = buf_printf(&d->b, "%-5s %s\n", words[v], seen);
}

static void check_valid(struct doctor *d, const struct agents *a, const struct profile_entry *e)
{
	const struct profile *p = e->profile;
	const char *lost[2 * PROFILE_LIST_MAX];

	if (!e->path && !e->configured)
		check(d, OK, "the definition is built in: nothing to check");
	else
		check(d, OK, "the definition is valid (%s)", e->path ? e->path : a->ps.config);
	for (size_t i = 0, n = profile_lost_denials(e, lost, ARRAY_LEN(lost)); i < n; i++)
		check(d, WARN, "the built-in profile denies %s, this one does not", lost[i]);
	for (size_t i = 0; i < p->aliases.n; i++) {
		const struct profile_entry *o = profiles_find(&a->ps, p->aliases.v[i]);
		if (o != e)
			check(d, WARN, "its other name '%s' means %s", p->aliases.v[i], o->name);
	}
	for (size_t i = 0; i < p->env.required.n; i++) {
		const char *name = p->env.required.v[i];
		bool all;
		json_t *j = required_json(p, &all);
		bool there = json_is_true(json_object_get(json_array_get(j, i), "present"));
		json_decref(j);
		check(d, there ? OK : FAIL, "%s, which it requires, %s", name,
		      there ? "is set" : "has no value: cloche env shows why");
	}
	for (size_t i = 0; i < p->secrets.n; i++) {
		const struct profile_secret *s = &p->secrets.v[i];
		if (s->required)
			check(d, FAIL, "secret %s, which it requires, is not there: %s", s->name,
			      s->hint ? s->hint : "this version has no store of secrets");
	}
	if (p->kind == PROFILE_AGENT && !p->image && !p->recipe.npm.n)
		check(d, WARN, "no image has it: a run needs --image%s%s",
		      p->recipe.hint ? "; " : "", p->recipe.hint ? p->recipe.hint : "");
}

int agents_doctor(struct agents *a)
{
	static const char *const none[] = { "Nothing was changed: doctor only reads.",
		                            "No value of a variable was read into this report.",
		                            "Nothing in a project was read.", NULL };
	struct err err = { 0 };
	const struct profile_entry *e = agents_entry(a, &err);
	struct doctor d = { .checks = json_array() };

	if (!e) {
		json_decref(d.checks);
		return cli_fail(&err);
	}
	if (e->profile)
		check_valid(&d, a, e);
	else
		check(&d, FAIL, "%s%s%s", e->err.text, e->err.hint[0] ? "; " : "", e->err.hint);
	char **files = NULL;
	size_t n = 0;
	if (profiles_files_of(&a->ps, e->name, &files, &n, &err) < 0)
		check(&d, FAIL, "%s", err.text);
	if (n > 1)
		check(&d, WARN, "%zu files declare it; the last, %s, is used", n, files[n - 1]);
	for (size_t i = 0; i < n; i++)
		free(files[i]);
	free(files);
	int code = d.failed ? CLI_EXIT_REFUSED : 0;
	if (a->json) {
		code = agents_print_json(agents_receipt(a, e->path ? e->path : a->ps.dir, !d.failed,
		                                        e->profile, NULL, d.checks, none),
		                         code);
	} else {
		json_decref(d.checks);
		code = d.r < 0 ? CLI_EXIT_REFUSED : cli_print(&d.b, code);
	}
	buf_fini(&d.b);
	return code;
}
