/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "config/config.h"
#include "config/profiles.h"

/* ---- the built-in ones -------------------------------------------------- */

static struct profile *builtin(const char *name)
{
	const char *text = profile_builtin_text(name);
	struct profile *p = NULL;
	struct err e = { 0 };

	assert_non_null(text);
	if (profile_parse(&p, name, text, strlen(text), PROFILE_BUILTIN, &e) < 0)
		fail_msg("%s", e.text);
	assert_string_equal(p->name, name);
	return p;
}

static void test_builtins(void **state UNUSED)
{
	static const struct {
		const char *name, *command, *alias, *host, *pass, *denied, *login, *npm;
		unsigned kind;
	} t[] = {
		{ "claude-code", "claude", "claude", "api.anthropic.com", "CLAUDE_*",
		  "ANTHROPIC_API_KEY", ".claude/.credentials.json",
		  "@anthropic-ai/claude-code-linux-x64", PROFILE_AGENT },
		{ "codex", "codex", NULL, "chatgpt.com", "CODEX_*", "OPENAI_API_KEY",
		  ".codex/auth.json", "@openai/codex", PROFILE_AGENT },
		{ "gemini", "gemini", NULL, "cloudcode-pa.googleapis.com", "GEMINI_*", NULL,
		  ".gemini/oauth_creds.json", "@google/gemini-cli", PROFILE_AGENT },
		{ "opencode", "opencode", NULL, "openrouter.ai", "OPENROUTER_API_KEY", NULL,
		  ".local/share/opencode/auth.json", "opencode-linux-x64-baseline", PROFILE_AGENT },
		{ "hermes", "hermes", NULL, "*.nousresearch.com", "HF_TOKEN", NULL, NULL, NULL,
		  PROFILE_AGENT },
		{ "grok", "grok", NULL, "*.grok.com", "XAI_API_KEY", NULL, NULL, NULL,
		  PROFILE_AGENT },
		{ "cursor", "cursor-agent", NULL, "*.cursor.sh", "CURSOR_API_KEY", NULL, NULL, NULL,
		  PROFILE_AGENT },
		{ "shell", "/bin/bash", NULL, NULL, NULL, NULL, NULL, NULL, PROFILE_SHELL },
		{ "ubuntu", "/bin/bash", NULL, NULL, NULL, NULL, NULL, NULL, PROFILE_SHELL },
	};

	assert_int_equal(profile_builtins_n, ARRAY_LEN(t));
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct profile *p = builtin(t[i].name);
		if (strcmp(p->command.v[0], t[i].command) != 0 || p->kind != t[i].kind)
			fail_msg("%s: command or kind", t[i].name);
		if (t[i].alias && !profile_is(p, t[i].alias))
			fail_msg("%s: alias", t[i].name);
		if (t[i].host && !profile_texts_have(&p->hosts, t[i].host))
			fail_msg("%s: host", t[i].name);
		if (t[i].pass && !profile_texts_have(&p->env.pass, t[i].pass))
			fail_msg("%s: variable", t[i].name);
		if (t[i].denied && !profile_texts_have(&p->env.metered, t[i].denied))
			fail_msg("%s: metered key", t[i].name);
		if (t[i].login && !profile_texts_have(&p->credentials.login, t[i].login))
			fail_msg("%s: login", t[i].name);
		/* a layer can be built, or the hint says what to do */
		if (t[i].npm &&
		    (!p->recipe.npm.n || strcmp(p->recipe.npm.v[0].package, t[i].npm) != 0))
			fail_msg("%s: package", t[i].name);
		if (p->has_recipe && !p->recipe.npm.n && !p->recipe.commands.n && !p->recipe.hint)
			fail_msg("%s: no way to an image", t[i].name);
		/* a run never waits for what cloche itself provides */
		if (p->env.required.n)
			fail_msg("%s: required variables", t[i].name);
		profile_free(p);
	}
}

/* First start, trust and quiet switches of the four that have a recipe. */
static void test_first_run_data(void **state UNUSED)
{
	struct profile *p = builtin("claude-code");
	AUTO_BUF struct buf b = { 0 };

	/* the login dialogue is skipped only where there is a login */
	assert_string_equal(p->onboarding.v[0].path, ".claude.json");
	assert_int_equal(p->onboarding.v[0].when, PROFILE_LOGIN);
	assert_non_null(ynode_get(p->onboarding.v[0].merge, "hasCompletedOnboarding"));
	assert_int_equal(p->onboarding.v[1].when, PROFILE_ENV);
	assert_string_equal(p->onboarding.v[1].when_env, "ANTHROPIC_API_KEY");
	assert_int_equal(ynode_json(&b, p->trust.v[0].merge, -1), 0);
	assert_int_equal(buf_put(&b, "", 1), 0);
	assert_string_equal(
		(char *)b.p,
		"{\"projects\":{\"${CLOCHE_WORKSPACE}\":{\"hasTrustDialogAccepted\":true}}}");
	assert_int_equal(p->trust.v[0].when, PROFILE_ALWAYS);
	assert_int_equal(p->quiet.env.n, 5);
	/* the login's file lies in memory, its history and settings are kept */
	assert_string_equal(p->files.v[0].path, ".claude/.credentials.json");
	assert_int_equal(p->files.v[0].mode, 0600);
	assert_int_equal(p->volumes.v[0].size, 512ull << 20);
	profile_free(p);

	p = builtin("codex");
	assert_int_equal(p->trust.v[0].format, PROFILE_TOML);
	assert_int_equal(p->quiet.files.n, 1);
	assert_int_equal(p->callback_ports.v[0], 1455);
	profile_free(p);

	p = builtin("opencode");
	assert_int_equal(p->quiet.env.n, 4);
	assert_int_equal(p->mcp.inject.v[0].format, PROFILE_JSONC);
	assert_true(profile_texts_have(&p->settings.v[0].drop, "client_secret"));
	profile_free(p);

	p = builtin("gemini");
	assert_true(profile_texts_have(&p->env.paths, "GOOGLE_APPLICATION_CREDENTIALS"));
	assert_false(profile_texts_have(&p->settings.v[0].keys, "mcpServers"));
	assert_false(profile_texts_have(&p->settings.v[0].keys, "hooks"));
	profile_free(p);
}

/* What is said once in code must hold for all data: nothing imports hooks or tool servers. */
static void test_no_hooks_are_imported(void **state UNUSED)
{
	static const char *const never[] = { "hooks",        "hooksConfig", "env",
		                             "mcpServers",   "mcp",         "mcp_servers",
		                             "apiKeyHelper", "security",    "telemetry" };

	for (size_t i = 0; i < profile_builtins_n; i++) {
		struct profile *p = builtin(profile_builtins[i].name);
		for (size_t k = 0; k < p->settings.n; k++) {
			for (size_t j = 0; j < ARRAY_LEN(never); j++) {
				if (profile_texts_have(&p->settings.v[k].keys, never[j]))
					fail_msg("%s imports %s", p->name, never[j]);
			}
		}
		profile_free(p);
	}
}

static void test_patterns(void **state UNUSED)
{
	static const struct {
		const char *pattern;
		bool ok;
	} t[] = {
		{ "A", true },    { "A_*", true },  { "A*", true },  { "_", true },
		{ "*", false },   { "", false },    { " ", false },  { " *", false },
		{ "*A", false },  { "A*B", false }, { "1A", false }, { "A-B", false },
		{ "A=B", false }, { "A**", false },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (profile_pattern_ok(t[i].pattern) != t[i].ok)
			fail_msg("'%s'", t[i].pattern);
	}
	assert_true(profile_pattern_match("A_*", "A_B"));
	assert_true(profile_pattern_match("A_*", "A_"));
	assert_false(profile_pattern_match("A_*", "A"));
	assert_true(profile_pattern_match("A", "A"));
	assert_false(profile_pattern_match("A", "AB"));
}

/* ---- all of a user ------------------------------------------------------ */

struct folder {
	char dir[40];
	struct profiles ps;
	struct config config;
	struct err err;
};

static int setup(void **state)
{
	struct folder *f = xcalloc(1, sizeof(*f));

	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/cloche-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	config_init(&f->config);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct folder *f = *state;

	profiles_fini(&f->ps);
	config_fini(&f->config);
	int r = path_remove_tree(AT_FDCWD, f->dir);
	free(f);
	return r;
}

static void write_file(const struct folder *f, const char *name, const char *text)
{
	AUTO_FREE char *path = xasprintf("%s/%s", f->dir, name);
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void load(struct folder *f, const char *config)
{
	struct err e = { 0 };

	if (config && config_parse(&f->config, "config.yaml", config, strlen(config), &e) < 0)
		fail_msg("%s", e.text);
	if (profiles_load(&f->ps, f->dir, config_agents(&f->config), "config.yaml", &f->err) < 0)
		fail_msg("%s", f->err.text);
}

static void assert_problem(const struct folder *f, const char *want)
{
	for (size_t i = 0; i < f->ps.n_problems; i++) {
		if (strstr(f->ps.problems[i], want))
			return;
	}
	fail_msg("no problem says '%s' (%zu)", want, f->ps.n_problems);
}

static const struct profile *get(struct folder *f, const char *name)
{
	const struct profile_entry *e = NULL;

	f->err = (struct err){ 0 };
	return profiles_get(&f->ps, name, &e, &f->err) == 0 ? e->profile : NULL;
}

static const struct profile *must(struct folder *f, const char *name)
{
	const struct profile *p = get(f, name);

	if (!p)
		fail_msg("%s", f->err.text);
	ASSERT(p); /* fail_msg() does not come back */
	return p;
}

static void test_no_folder(void **state)
{
	struct folder *f = *state;

	assert_int_equal(profiles_load(&f->ps, "/nonexistent/x", NULL, "config.yaml", &f->err), 0);
	assert_int_equal(f->ps.n, 9);
	assert_int_equal(f->ps.n_problems, 0);
	assert_ptr_equal(get(f, "claude"), get(f, "claude-code"));
	assert_null(get(f, "claud"));
	assert_string_equal(f->err.text, "unknown agent 'claud'");
	assert_non_null(strstr(f->err.hint, "did you mean claude? known agents: claude-code, "));
}

static void test_own_files(void **state)
{
	struct folder *f = *state;

	write_file(f, "aider.yaml", "name: aider\ncommand: [aider]\nimage: x\n");
	write_file(f, "shell.json", "{\"name\": \"shell\", \"command\": [\"/bin/zsh\"]}");
	write_file(f, "other-name.yml", "name: third\ncommand: [x]\n");
	write_file(f, "notes.txt", "not: a profile");
	write_file(f, ".hidden.yaml", "not: a profile");
	write_file(f, "broken.yaml", "name: broken\ncommand: [x]\nimmage: y\n");
	write_file(f, "unreadable.yaml", "name: [\n");
	load(f, NULL);
	assert_int_equal(f->ps.n, 9 + 4);
	assert_string_equal(must(f, "aider")->image, "x");
	assert_non_null(get(f, "third"));
	assert_string_equal(must(f, "shell")->command.v[0], "/bin/zsh");
	assert_non_null(profiles_find(&f->ps, "shell")->builtin);
	/* bad ones are told, with file, line and column, and the others load */
	assert_int_equal(f->ps.n_problems, 2);
	assert_problem(f, "/broken.yaml:3:1: unknown key 'immage'");
	assert_problem(f, "/unreadable.yaml:2:1: ");
	/* a run of one is told why, with the same words */
	assert_null(get(f, "broken"));
	assert_int_equal(f->err.code, -EINVAL);
	assert_non_null(strstr(f->err.text, "agent 'broken' is declared, but not valid: "));
	assert_non_null(strstr(f->err.text, "/broken.yaml:3:1: unknown key 'immage'"));
	assert_string_equal(f->err.hint, "did you mean 'image'?");
	assert_null(get(f, "unreadable"));
	assert_int_equal(f->err.code, -EINVAL);
}

/* A file of a built-in's name that is not valid: never the built-in in its place. */
static void test_bad_override_is_no_way_back(void **state)
{
	struct folder *f = *state;

	write_file(f, "claude.yaml", "name: claude-code\ncommand: [claude]\negress: lockd\n");
	load(f, NULL);
	assert_null(get(f, "claude")); /* by its other name, too */
	assert_int_equal(f->err.code, -EINVAL);
	assert_null(get(f, "claude-code"));
	assert_non_null(strstr(f->err.text, "'egress' must be standard or locked, not 'lockd'"));
	assert_non_null(get(f, "codex"));
}

static void test_two_of_a_name(void **state)
{
	struct folder *f = *state;

	write_file(f, "a.yaml", "name: twice\ncommand: [first]\n");
	write_file(f, "b.yaml", "name: twice\ncommand: [last]\n");
	load(f, NULL);
	assert_string_equal(must(f, "twice")->command.v[0], "last");
	assert_problem(f, "'twice' is declared twice, in ");
	assert_int_equal(f->ps.n_problems, 1);
}

static void test_not_a_file(void **state)
{
	struct folder *f = *state;
	AUTO_FREE char *fifo = xasprintf("%s/fifo.yaml", f->dir);
	AUTO_FREE char *dir = xasprintf("%s/dir.yaml", f->dir);
	AUTO_FREE char *big = xasprintf("%s/big.yaml", f->dir);

	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
	AUTO_CLOSE int fd = open(big, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, PROFILE_BYTES_MAX + 1), 0);
	load(f, NULL); /* at once */
	assert_problem(f, "'fifo.yaml' is not a regular file");
	assert_problem(f, "'dir.yaml' is not a regular file");
	assert_problem(f, "'big.yaml' has more than 1048576 bytes");
	assert_null(get(f, "fifo"));
	assert_int_equal(f->err.code, -EINVAL);
	assert_non_null(get(f, "shell"));
}

static void test_size_limit(void **state UNUSED)
{
	static char text[PROFILE_BYTES_MAX + 2];

	for (int d = -1; d <= 1; d++) {
		struct profile *p = NULL;
		size_t n = (size_t)(PROFILE_BYTES_MAX + d);
		memset(text, '#', n);
		memcpy(text, "name: a\ncommand: [a]\n", 21);
		int r = profile_parse(&p, "f", text, n, PROFILE_FILE, NULL);
		if ((r == -EFBIG) != (d > 0) || (r == 0) != (d <= 0))
			fail_msg("%d: %d", d, r);
		profile_free(p);
	}
}

static void test_aliases(void **state)
{
	struct folder *f = *state;

	write_file(f, "a.yaml", "name: mine\naliases: [claude, codex, m]\ncommand: [x]\n");
	write_file(f, "b.yaml", "name: claude\ncommand: [z]\n");
	load(f, NULL);
	/* a name beats an alias, an earlier alias a later one */
	assert_string_equal(must(f, "claude")->command.v[0], "z");
	assert_string_equal(must(f, "codex")->command.v[0], "codex");
	assert_string_equal(must(f, "m")->name, "mine");
	assert_problem(f, "'claude' means claude, and is no other name of claude-code");
	assert_problem(f, "'codex' means codex, and is no other name of mine");
}

static void test_configured(void **state)
{
	struct folder *f = *state;

	write_file(f, "a.yaml", "name: mine\ncommand: [x]\nhosts: [a.example.com]\n");
	load(f, "agents:\n"
	        "  claude:\n"
	        "    resources: {memory: 8g}\n"
	        "    env:\n"
	        "      pass: [ONE]\n"
	        "  mine:\n"
	        "    hosts: [b.example.com]\n"
	        "  new-one:\n"
	        "    command: [q]\n"
	        "  bad:\n"
	        "    command: q\n"
	        "  codex: {sudo: maybe}\n"
	        "  gemini: {name: x}\n"
	        "  'A B': {command: [x]}\n"
	        "  shell:\n");
	const struct profile *p = must(f, "claude-code");
	const struct profile_entry *e = profiles_find(&f->ps, "claude-code");

	assert_int_equal(p->resources.memory, 8ull << 30);
	assert_int_equal(p->resources.min_memory, 384ull << 20);
	assert_int_equal(p->env.pass.n, 1); /* a list replaces */
	assert_true(profile_texts_have(&p->env.metered, "ANTHROPIC_API_KEY"));
	assert_int_equal(p->from, PROFILE_BUILTIN);
	assert_true(e->configured);
	assert_string_equal(profile_source_name(&f->ps, e,
	                                        profile_at(p, "resources.memory")->source),
	                    "config.yaml");
	assert_string_equal(profile_source_name(&f->ps, e,
	                                        profile_at(p, "resources.min_memory")->source),
	                    "built-in");
	e = profiles_find(&f->ps, "mine");
	assert_string_equal(e->profile->hosts.v[0], "b.example.com");
	assert_string_equal(
		profile_source_name(&f->ps, e, profile_at(e->profile, "command")->source), e->path);
	assert_string_equal(must(f, "new-one")->command.v[0], "q");
	assert_null(get(f, "bad"));
	assert_problem(f, "config.yaml:11:14: 'command' must be a list");
	assert_null(get(f, "codex"));
	assert_problem(f, "config.yaml:12:17: 'sudo' must be true or false, not 'maybe'");
	assert_null(get(f, "gemini"));
	assert_problem(f, "config.yaml:13:12: 'agents.gemini' has its name already");
	assert_problem(f, "config.yaml:14:3: 'A B' cannot be the name of an agent");
	assert_non_null(get(f, "shell"));
}

static void test_lost_denials(void **state)
{
	struct folder *f = *state;

	write_file(f, "claude.yaml",
	           "name: claude-code\ncommand: [claude]\n"
	           "env: {deny: [ANTHROPIC_API_KEY], pass: ['CLAUDE_*']}\n");
	load(f, "agents: {codex: {env: {metered: []}}}\n");
	assert_problem(f,
	               "claude.yaml: the built-in profile 'claude-code' denies "
	               "ANTHROPIC_AUTH_TOKEN, CLAUDE_CONFIG_DIR, and what stands for it does not");
	assert_problem(f, "config.yaml: the built-in profile 'codex' denies OPENAI_API_KEY, "
	                  "CODEX_API_KEY, and");
	assert_int_equal(f->ps.n_problems, 2);
}

/* One look-up must not be able to change another: what is laid over is a copy. */
static void test_builtin_stays(void **state)
{
	struct folder *f = *state;

	load(f, "agents: {claude-code: {command: [other]}}\n");
	assert_string_equal(must(f, "claude")->command.v[0], "other");
	assert_string_equal(profiles_find(&f->ps, "claude")->builtin->command.v[0], "claude");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_builtins),
		cmocka_unit_test(test_first_run_data),
		cmocka_unit_test(test_no_hooks_are_imported),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_size_limit),
		cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
		cmocka_unit_test_setup_teardown(test_own_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_override_is_no_way_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_of_a_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_a_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_aliases, setup, teardown),
		cmocka_unit_test_setup_teardown(test_configured, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost_denials, setup, teardown),
		cmocka_unit_test_setup_teardown(test_builtin_stays, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
