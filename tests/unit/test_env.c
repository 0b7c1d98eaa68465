/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "config/env.h"
#include "config/profile.h"

enum { HOST_MAX = 16 };

struct fixture {
	struct profile *p;
	struct env_in in;
	struct env_set set;
	struct err err;
	const char *host[HOST_MAX];
};

/* Build for a profile with this text behind its name and command. */
static void build(struct fixture *f, const char *more)
{
	AUTO_FREE char *text = xasprintf("name: a\ncommand: [a]\n%s", more);

	profile_free(f->p);
	env_fini(&f->set);
	f->p = NULL;
	f->err = (struct err){ 0 };
	if (profile_parse(&f->p, "f", text, strlen(text), PROFILE_FILE, &f->err) < 0)
		fail_msg("%s", f->err.text);
	f->in.profile = f->p;
	f->in.host = f->host;
	f->in.agent = "a";
	f->in.workspace = "/work/demo";
	f->in.session_id = "demo-1";
	if (f->in.memory_mib == 0)
		f->in.memory_mib = 2048;
	if (env_build(&f->set, &f->in, &f->err) < 0)
		fail_msg("%s", f->err.text);
}

static int setup(void **state)
{
	*state = xcalloc(1, sizeof(struct fixture));
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	profile_free(f->p);
	env_fini(&f->set);
	free(f);
	return 0;
}

static void assert_value(const struct fixture *f, const char *name, const char *want)
{
	const char *got = env_value(&f->set, name);

	if (!got != !want || (got && want && strcmp(got, want) != 0))
		fail_msg("%s is '%s', not '%s'", name, got ? got : "(none)",
		         want ? want : "(none)");
}

static void assert_fate(const struct fixture *f, const char *name, enum env_fate want)
{
	const struct env_var *v = env_find(&f->set, name);

	if (!v || v->fate != want)
		fail_msg("%s: %d, not %d", name, v ? (int)v->fate : 0, (int)want);
	if (v && v->fate != ENV_PASSED && v->value)
		fail_msg("%s: a value that is not passed is kept", name);
}

static void test_nothing_but_what_is_asked_for(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "AWS_SECRET_ACCESS_KEY=s", "HOME=/home/me", "TERM=xterm", NULL };

	memcpy(f->host, host, sizeof(host));
	build(f, "");
	assert_null(env_find(&f->set, "AWS_SECRET_ACCESS_KEY"));
	assert_value(f, "HOME", "/home/agent");
	assert_value(f, "TERM", "xterm");
	assert_value(f, "LANG", "C.UTF-8");
	assert_value(f, "CLOCHE_WORKSPACE", "/work/demo");
	assert_value(f, "CLOCHE_AGENT_NAME", "a");
	assert_value(f, "GIT_TERMINAL_PROMPT", "0");
	assert_value(f, "CLOCHE_GIT_TOKEN_AVAILABLE", "0");
	assert_null(env_find(&f->set, "CLOCHE_MCP_URL")); /* nothing serves it */
	f->in.root = true;
	build(f, "");
	assert_value(f, "HOME", "/root");
	assert_value(f, "USER", "root");
}

static void test_patterns(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "A_ONE=1",   "A_TWO=",          "AB=3",       "B=4",
		               "HOME=/x",   "CLOCHE_MIRROR=u", "A_f%%=()",   "HUGE=1",
		               "PATH=/bin", "PWD=/x",          "GH_TOKEN=t", NULL };

	memcpy(f->host, host, sizeof(host));
	build(f, "env: {pass: ['A_*', B, UNSET, 'H*', 'C*', 'P*']}\n");
	assert_value(f, "A_ONE", "1");
	assert_null(env_find(&f->set, "A_TWO")); /* an empty one is none */
	assert_null(env_find(&f->set, "AB"));
	assert_null(env_find(&f->set, "A_f%%"));
	assert_value(f, "B", "4");
	assert_fate(f, "UNSET", ENV_UNSET);
	assert_value(f, "HUGE", "1");
	/* a prefix does not mean the host's own shell */
	assert_value(f, "HOME", "/home/agent");
	assert_null(env_find(&f->set, "CLOCHE_MIRROR"));
	assert_null(env_find(&f->set, "PWD"));
	assert_non_null(strstr(env_value(&f->set, "PATH"), "/usr/local/bin"));
	assert_string_equal(env_find(&f->set, "A_ONE")->by, "A_*");
	assert_int_equal(env_find(&f->set, "A_ONE")->origin, ENV_FROM_HOST);
	/* a flag adds, and says so */
	const char *forward[] = { "AB", "GH_*" };
	f->in.forward = forward;
	f->in.n_forward = 2;
	build(f, "env: {pass: ['A_*']}\n");
	assert_value(f, "AB", "3");
	assert_int_equal(env_find(&f->set, "AB")->origin, ENV_FROM_FLAG);
	assert_value(f, "CLOCHE_GIT_TOKEN_AVAILABLE", "1");
}

static void test_image(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "MINE=host", "LANG=de_DE.UTF-8", NULL };
	const char *image[] = { "PATH=/opt/bin:/bin",
		                "MINE=image",
		                "MODE=image",
		                "ONLY=a=b",
		                "X_KEY=k",
		                "X_HOME=/h",
		                "URL=postgres://db",
		                "TERM=dumb2",
		                "LANG=C",
		                "CLOCHE_WORKSPACE=/evil",
		                "HOME=/app",
		                "bad-name=1",
		                "novalue",
		                "=x",
		                "STAR*=1",
		                NULL };

	memcpy(f->host, host, sizeof(host));
	f->in.image = image;
	build(f, "env: {pass: [MINE], metered: [X_KEY], deny: [X_HOME], set: {MODE: profile}}\n");
	assert_value(f, "PATH", "/opt/bin:/bin");
	assert_value(f, "ONLY", "a=b");
	assert_int_equal(env_find(&f->set, "ONLY")->origin, ENV_FROM_IMAGE);
	/* a reference of a secret manager is of use to nobody but the user: this is a URL */
	assert_value(f, "URL", "postgres://db");
	/* below what the user, the profile and cloche say */
	assert_value(f, "MINE", "host");
	assert_value(f, "MODE", "profile");
	assert_value(f, "CLOCHE_WORKSPACE", "/work/demo");
	assert_value(f, "HOME", "/home/agent");
	assert_value(f, "TERM", "dumb");
	assert_value(f, "SHELL", "/bin/sh");
	assert_value(f, "LANG", "C");
	assert_fate(f, "X_KEY", ENV_METERED);
	assert_fate(f, "X_HOME", ENV_DENIED);
	assert_null(env_find(&f->set, "bad-name"));
	assert_null(env_find(&f->set, "novalue"));
	assert_null(env_find(&f->set, "STAR*"));
	/* who it is is the guest's to say */
	f->in.guest_user = f->in.guest_home = true;
	build(f, "");
	assert_value(f, "HOME", "/app");
	assert_null(env_find(&f->set, "USER"));
	assert_null(env_find(&f->set, "SHELL"));
	assert_null(env_find(&f->set, "CLOCHE_HOME"));
	const char *names[] = { "X_KEY" };
	f->in.allow = names;
	f->in.n_allow = 1;
	build(f, "env: {metered: [X_KEY]}\n");
	assert_value(f, "X_KEY", "k");
}

static void test_denied(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "X_KEY=k", "X_HOME=/h", "X_MODE=m", NULL };
	const char *profile = "env: {pass: ['X_*'], metered: [X_KEY, X_OTHER], deny: [X_HOME]}\n";

	memcpy(f->host, host, sizeof(host));
	build(f, profile);
	assert_fate(f, "X_KEY", ENV_METERED);
	assert_fate(f, "X_HOME", ENV_DENIED);
	assert_fate(f, "X_MODE", ENV_PASSED);
	assert_null(env_find(&f->set, "X_OTHER")); /* not set: nothing to say */
	/* said, also when nothing asks for it */
	build(f, "env: {metered: [X_KEY]}\n");
	assert_fate(f, "X_KEY", ENV_METERED);
	/* --env-forward does not lift it, --allow-env does, for that name alone */
	const char *names[] = { "X_KEY", "X_HOME" };
	f->in.forward = names;
	f->in.n_forward = 2;
	build(f, profile);
	assert_fate(f, "X_KEY", ENV_METERED);
	f->in.n_forward = 0;
	f->in.allow = names;
	f->in.n_allow = 1;
	build(f, profile);
	assert_value(f, "X_KEY", "k");
	assert_int_equal(env_find(&f->set, "X_KEY")->origin, ENV_FROM_FLAG);
	assert_fate(f, "X_HOME", ENV_DENIED);
	/* the identity for git is a variable, too */
	f->in.git_name = "Me";
	build(f, "env: {deny: [GIT_AUTHOR_NAME]}\n");
	assert_value(f, "GIT_AUTHOR_NAME", NULL);
	assert_value(f, "GIT_COMMITTER_NAME", "Me");
}

static void test_references(void **state)
{
	struct fixture *f = *state;
	static const struct {
		const char *value;
		bool is;
	} t[] = {
		{ "op://vault/item", true },
		{ "vault+kv2://a", true },
		{ "postgres://u:p@h/db", true },
		{ "http://127.0.0.1:1", false },
		{ "HTTPS://a.example.com", false },
		{ "httpx://a", true },
		{ "://", false },
		{ "1p://x", false },
		{ "sk-ant-1", false },
		{ "a:b://c", false },
		{ "", false },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (env_is_reference(t[i].value) != t[i].is)
			fail_msg("'%s'", t[i].value);
	}
	const char *host[] = { "KEY=op://v/i", "URL=https://a.example.com", "NEXT=n", NULL };
	memcpy(f->host, host, sizeof(host));
	build(f, "env: {pass: [KEY, URL], set: {TOKEN: {refs: [env.KEY, env.NEXT]}}}\n");
	assert_fate(f, "KEY", ENV_REFERENCE);
	assert_value(f, "URL", "https://a.example.com");
	assert_value(f, "TOKEN", "n"); /* the next of the chain */
	const char *names[] = { "KEY" };
	f->in.allow = names;
	f->in.n_allow = 1;
	build(f, "env: {pass: [KEY]}\n");
	assert_value(f, "KEY", "op://v/i");
	/* a literal of the profile is not asked: who wrote it meant it */
	build(f, "env: {set: {LITERAL: 'op://v/i'}}\n");
	assert_value(f, "LITERAL", "op://v/i");
}

static void test_chains(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "SECOND=2", NULL };
	const char *profile = "secrets: [t]\n"
			      "env:\n"
			      "  set:\n"
			      "    LITERAL: \"two\\nlines\"\n"
			      "    ONE: {refs: [env.FIRST, secrets.t, env.SECOND, env.THIRD]}\n"
			      "    NONE: {ref: env.FIRST}\n"
			      "    STORE: {ref: secrets.t}\n";

	memcpy(f->host, host, sizeof(host));
	build(f, profile);
	assert_value(f, "LITERAL", "two\nlines");
	assert_int_equal(env_find(&f->set, "LITERAL")->origin, ENV_FROM_PROFILE);
	assert_value(f, "ONE", "2");
	assert_string_equal(env_find(&f->set, "ONE")->by, "env.SECOND");
	assert_fate(f, "NONE", ENV_UNSET);
	assert_fate(f, "STORE", ENV_UNSET);
	assert_null(env_find(&f->set, "SECOND"));
	assert_int_equal(env_check(&f->set, f->p, &f->err), 0);
}

static void test_required(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "R_KEY=op://x", "M_KEY=m", "GOOD=g", NULL };

	memcpy(f->host, host, sizeof(host));
	build(f, "env: {pass: [R_KEY, GOOD, GONE], required: [GOOD, GONE, R_KEY, NOWHERE]}\n"
	         "secrets: [{name: s1, required: true, hint: do this}, {name: s2}]\n");
	assert_int_equal(env_check(&f->set, f->p, &f->err), -EINVAL);
	/* all at once, by name, and not one value */
	assert_string_equal(f->err.text, "a needs what is not there: GONE, NOWHERE, "
	                                 "R_KEY (set, but a reference), secret s1");
	assert_null(strstr(f->err.text, "op://"));
	build(f, "env: {pass: [GOOD], required: [GOOD]}\n");
	assert_int_equal(env_check(&f->set, f->p, &f->err), 0);
	/* a chain that the environment answers needs no store, a file does */
	build(f, "secrets: [{name: s, required: true}]\n"
	         "env: {set: {T: {refs: [env.GOOD, secrets.s]}}}\n");
	assert_int_equal(env_check(&f->set, f->p, &f->err), 0);
	build(f, "secrets: [{name: s, required: true, hint: do this}]\n"
	         "env: {set: {T: {refs: [env.GOOD, secrets.s]}}}\n"
	         "volumes: [{kind: tmpfs, path: v}]\n"
	         "files: [{secret: s, path: v/s}]\n");
	assert_int_equal(env_check(&f->set, f->p, &f->err), -EINVAL);
	assert_string_equal(f->err.text, "a needs what is not there: secret s");
	assert_string_equal(f->err.hint, "do this");
}

static void test_memory_hints(void **state)
{
	struct fixture *f = *state;
	const char *profile = "env: {heap: [node, go], pass: [NODE_OPTIONS, GOMEMLIMIT]}\n";
	const char *host[] = { "NODE_OPTIONS=--use-system-ca", "GOMEMLIMIT=1GiB", NULL };

	build(f, profile);
	assert_value(f, "NODE_OPTIONS", "--max-old-space-size=1536");
	assert_value(f, "GOMEMLIMIT", "1433MiB");
	f->in.memory_mib = 4096;
	build(f, profile);
	assert_value(f, "NODE_OPTIONS", "--max-old-space-size=3072");
	assert_value(f, "GOMEMLIMIT", "2867MiB");
	/* what the user says stays */
	memcpy(f->host, host, sizeof(host));
	build(f, profile);
	assert_value(f, "NODE_OPTIONS", "--max-old-space-size=3072 --use-system-ca");
	assert_true(env_find(&f->set, "NODE_OPTIONS")->hinted);
	assert_int_equal(env_find(&f->set, "NODE_OPTIONS")->origin, ENV_FROM_HOST);
	assert_value(f, "GOMEMLIMIT", "1GiB");
	f->host[0] = "NODE_OPTIONS=--max_old_space_size=512";
	build(f, profile);
	assert_value(f, "NODE_OPTIONS", "--max_old_space_size=512");
	build(f, "");
	assert_value(f, "NODE_OPTIONS", NULL);
}

static void test_git_identity(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "GIT_AUTHOR_NAME=Env", NULL };

	memcpy(f->host, host, sizeof(host));
	f->in.git_name = "Ada L";
	f->in.git_email = "ada@example.com";
	build(f, "");
	assert_value(f, "GIT_AUTHOR_NAME", "Env");
	assert_value(f, "GIT_COMMITTER_NAME", "Ada L");
	assert_value(f, "GIT_AUTHOR_EMAIL", "ada@example.com");
	assert_int_equal(env_find(&f->set, "GIT_AUTHOR_EMAIL")->origin, ENV_FROM_GIT);
	f->in.git_name = "two\nlines";
	f->in.git_email = "<a@b>";
	build(f, "");
	assert_value(f, "GIT_COMMITTER_NAME", NULL);
	assert_value(f, "GIT_AUTHOR_EMAIL", NULL);
}

static void test_order(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "Q=host", "S=host", NULL };

	memcpy(f->host, host, sizeof(host));
	build(f, "env: {set: {S: profile, T: profile}, pass: [Q, S]}\nquiet: {env: {Q: quiet}}\n");
	assert_value(f, "Q", "host");
	assert_value(f, "S", "host");
	assert_value(f, "T", "profile");
	build(f, "quiet: {env: {Q: quiet}}\n");
	assert_value(f, "Q", "quiet");
	assert_int_equal(env_find(&f->set, "Q")->origin, ENV_FROM_QUIET);
}

static void test_host_paths(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "CREDS=/home/me/key.json", NULL };

	memcpy(f->host, host, sizeof(host));
	build(f, "env: {pass: [CREDS, OTHER], paths: [CREDS, OTHER]}\n");
	assert_true(env_find(&f->set, "CREDS")->host_path);
	assert_value(f, "CREDS", "/home/me/key.json");
	assert_false(env_find(&f->set, "OTHER")->host_path);
}

static void test_strings(void **state)
{
	struct fixture *f = *state;
	const char *host[] = { "ODD=a=b\n'\"$x\xff", "KEY=k", NULL };
	size_t n = 0;
	bool odd = false;

	memcpy(f->host, host, sizeof(host));
	build(f, "env: {pass: [ODD], metered: [KEY]}\n");
	char **v = env_strings(&f->set, &n);
	for (size_t i = 0; i < n; i++) {
		odd |= strcmp(v[i], "ODD=a=b\n'\"$x\xff") == 0;
		assert_true(strncmp(v[i], "KEY=", 4) != 0);
		if (i)
			assert_true(strcmp(v[i - 1], v[i]) < 0);
	}
	assert_null(v[n]);
	assert_true(odd);
	env_strings_free(v);
}

static void test_limits(void **state)
{
	struct fixture *f = *state;
	char *big = xmalloc(ENV_VALUE_MAX + 8);

	for (int d = -1; d <= 1; d++) {
		size_t n = (size_t)(ENV_VALUE_MAX + d);
		memcpy(big, "BIG=", 4);
		memset(big + 4, 'x', n);
		big[4 + n] = '\0';
		f->host[0] = big;
		build(f, "env: {pass: [BIG], required: [BIG]}\n");
		assert_fate(f, "BIG", d > 0 ? ENV_TOO_LONG : ENV_PASSED);
		assert_int_equal(env_check(&f->set, f->p, &f->err), d > 0 ? -EINVAL : 0);
	}
	/* all of it together */
	char *many[12];
	const char *forward[] = { "V*" };
	f->in.forward = forward;
	f->in.n_forward = 1;
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		many[i] = xmalloc(100 * 1024);
		memset(many[i], 'x', 100 * 1024 - 1);
		many[i][100 * 1024 - 1] = '\0';
		many[i][0] = 'V';
		many[i][1] = (char)('A' + i);
		many[i][2] = '=';
		f->host[i] = many[i];
	}
	struct env_set set;
	f->err = (struct err){ 0 };
	assert_int_equal(env_build(&set, &f->in, &f->err), -E2BIG);
	assert_non_null(strstr(f->err.text, "variables with"));
	env_fini(&set);
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		free(many[i]);
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_but_what_is_asked_for, setup,
		                                teardown),
		cmocka_unit_test_setup_teardown(test_patterns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_denied, setup, teardown),
		cmocka_unit_test_setup_teardown(test_image, setup, teardown),
		cmocka_unit_test_setup_teardown(test_references, setup, teardown),
		cmocka_unit_test_setup_teardown(test_chains, setup, teardown),
		cmocka_unit_test_setup_teardown(test_required, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory_hints, setup, teardown),
		cmocka_unit_test_setup_teardown(test_git_identity, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_host_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_strings, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
