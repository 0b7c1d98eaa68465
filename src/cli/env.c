/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run's command finds in its environment, and `cloche env`, which says so: names and
 * where they come from, never a value.
 */
#include "cli/env.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/vis.h"
#include "cli/cli.h"

extern char **environ;

enum { GIT_WAIT_MS = 2000, GIT_BYTES_MAX = 8192 };

/* ---- this host ---------------------------------------------------------- */

/* The host's time zone by name, from TZ or from where /etc/localtime points. */
static char *host_tz(void)
{
	char link[512];
	const char *tz = getenv("TZ");

	if (tz && tz[0] && tz[0] != '/' && tz[0] != ':' && strlen(tz) < 64)
		return xstrdup(tz);
	ssize_t n = readlink("/etc/localtime", link, sizeof(link) - 1);
	if (n <= 0)
		return NULL;
	link[n] = '\0';
	char *z = strstr(link, "zoneinfo/");
	return z ? xstrdup(z + 9) : NULL;
}

struct identity {
	char *name, *email;
};

/* "user.name\nAda\0user.email\nada@example.com\0": the last of a key counts. */
static void take_identity(struct identity *id, const char *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		const char *end = memchr(p + at, 0, n - at);
		if (!end)
			return;
		const char *nl = strchr(p + at, '\n');
		char **to = strncmp(p + at, "user.name\n", 10) == 0    ? &id->name
		            : strncmp(p + at, "user.email\n", 11) == 0 ? &id->email
		                                                       : NULL;
		if (to && nl) {
			free(*to);
			*to = xstrdup(nl + 1);
		}
		at = (size_t)(end - p) + 1;
	}
}

/*
 * The user's own identity for git. Only their own configuration is asked, in / and with a
 * deadline: the project's belongs to whoever wrote it. Without git, or an answer in time,
 * there is none.
 */
static void host_identity(struct identity *id)
{
	static const char *const pass[] = { "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL" };
	const char *envp[ARRAY_LEN(pass) + 2] = { 0 };
	char *own[ARRAY_LEN(pass)] = { 0 }, answer[GIT_BYTES_MAX];
	AUTO_FREE char *git = NULL;
	struct proc p = { .pidfd = -1 };
	size_t n_env = 0, len = 0;
	int io[2], status = 0;

	if (proc_find_program("git", &git) < 0 || pipe2(io, O_CLOEXEC) < 0)
		return;
	AUTO_CLOSE int rd = io[0];
	AUTO_CLOSE int wr = io[1];
	for (size_t i = 0; i < ARRAY_LEN(pass); i++) {
		const char *v = getenv(pass[i]);
		if (v)
			envp[n_env++] = own[i] = xasprintf("%s=%s", pass[i], v);
	}
	envp[n_env] = "PATH=/usr/bin:/bin";
	const char *const argv[] = { "git",
		                     "config",
		                     "--global",
		                     "--includes",
		                     "--null",
		                     "--get-regexp",
		                     "^user\\.(name|email)$",
		                     NULL };
	struct proc_fd fds[] = { { .from = wr, .to = 1 } };
	struct proc_spec spec = { .path = git, .argv = argv, .envp = envp, .fds = fds, .n_fds = 1 };
	if (proc_spawn(&p, &spec, NULL) == 0) {
		auto_close_(&wr);
		ssize_t n = -1;
		while (len < sizeof(answer)) {
			struct pollfd pf = { .fd = rd, .events = POLLIN };
			n = poll(&pf, 1, GIT_WAIT_MS) > 0
			            ? read(rd, answer + len, sizeof(answer) - len)
			            : -1;
			if (n <= 0)
				break;
			len += (size_t)n;
		}
		if (n == 0 && proc_wait(&p, GIT_WAIT_MS, &status) == 0 && status == 0)
			take_identity(id, answer, len);
		proc_end(&p, 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		free(own[i]);
}

/* Will the guest get CAs of this host? The run that plans its network reads the same folder. */
static bool host_cas(const struct plan *p)
{
	struct hostca ca = { 0 };

	if (p->net.mode == NET_OFFLINE || p->net.no_host_ca)
		return false;
	(void)!hostca_load(&ca, HOSTCA_DIR, NULL); /* what cannot be read is said by the plan */
	bool any = ca.n != 0;
	hostca_fini(&ca);
	return any;
}

int cli_env(struct plan *p, const char *session_id, struct err *err)
{
	AUTO_FREE char *tz = host_tz();
	AUTO_FREE char *workspace = xasprintf("/work/%s", p->projects[0].name);
	struct identity id = { 0 };
	bool cas = host_cas(p);

	if (!getenv("GIT_AUTHOR_NAME") || !getenv("GIT_AUTHOR_EMAIL") ||
	    !getenv("GIT_COMMITTER_NAME") || !getenv("GIT_COMMITTER_EMAIL"))
		host_identity(&id);
	struct env_in in = {
		.profile = p->profile,
		.host = (const char *const *)environ,
		.forward = p->env_forward,
		.n_forward = p->n_env_forward,
		.allow = p->allow_env,
		.n_allow = p->n_allow_env,
		.tz = tz,
		.git_name = id.name,
		.git_email = id.email,
		.agent = p->agent,
		.workspace = workspace,
		.session_id = session_id,
		.ca_file = cas ? HOSTCA_GUEST_FILE : NULL,
		.ca_bundle = cas ? HOSTCA_GUEST_BUNDLE : NULL,
		.image = (const char *const *)p->oci.info.config.env,
		.guest_user = p->has_ref && !p->root_user,
		.guest_home = p->is_adhoc && !p->root_user,
		.memory_mib = p->memory_mib,
		.root = p->root_user,
	};
	int r = env_build(&p->env, &in, err);
	free(id.name);
	free(id.email);
	return r;
}

int cli_seeds(struct seed_files *out, const struct plan *p, struct err *err)
{
	char *projects[PLAN_PROJECTS_MAX];
	struct seeds_in in = { .profile = p->profile,
		               .env = &p->env,
		               .projects = (const char *const *)projects,
		               .n_projects = p->n_projects };

	/* no login is delivered and no tool server is reached in this version: in.login is
	 * false and in.mcp_url is NULL */
	for (size_t i = 0; i < p->n_projects; i++)
		projects[i] = xasprintf("/work/%s", p->projects[i].name);
	int r = seeds_build(out, &in, err);
	for (size_t i = 0; i < p->n_projects; i++)
		free(projects[i]);
	return r;
}

/* ---- what is said ------------------------------------------------------- */

static const char *why(const struct env_var *v)
{
	switch (v->fate) {
	case ENV_METERED:
		return "metered: with it the agent charges an API account instead of using a login";
	case ENV_DENIED:
		return "the profile denies it";
	case ENV_REFERENCE:
		return "its value is the reference of a secret manager, of no use in the guest";
	case ENV_TOO_LONG:
		return "its value is too long";
	case ENV_UNSET:
		return v->required ? "required, and not set" : "not set";
	default:
		return v->host_path ? "names a file that is not in the guest" : "";
	}
}

int cli_env_warnings(struct buf *b, const struct env_set *e)
{
	int r = 0;

	for (size_t i = 0; i < e->n && r == 0; i++) {
		const struct env_var *v = &e->v[i];
		bool lift =
			v->fate == ENV_METERED || v->fate == ENV_DENIED || v->fate == ENV_REFERENCE;
		if (lift)
			r = buf_printf(b, "cloche: %s is not passed: %s (--allow-env %s)\n",
			               v->name, why(v), v->name);
		else if (v->fate == ENV_TOO_LONG || v->host_path)
			r = buf_printf(b, "cloche: %s%s: %s\n", v->name,
			               v->host_path ? "" : " is not passed", why(v));
	}
	return r;
}

/* "environment CLAUDE_*", "memory". */
static void put_origin(char *dst, size_t cap, const struct env_var *v)
{
	char by[300] = "";

	if (v->by && strcmp(v->by, v->name) != 0)
		(void)snprintf(by, sizeof(by), " (%s)", v->by);
	(void)snprintf(dst, cap, "%s%s%s", env_origin_name(v->origin), by,
	               v->hinted ? ", with a memory hint" : "");
}

static int report(struct buf *b, const struct plan *p, const struct env_set *e)
{
	char origin[400];
	size_t width = 8;
	int r = 0;

	for (size_t i = 0; i < e->n; i++)
		width = MAX(width, MIN(strlen(e->v[i].name), (size_t)40));
	r = buf_printf(b, "agent       %s   profile %s\n", p->agent,
	               profile_source_name(&p->profiles, p->entry, (uint8_t)p->profile->from));
	for (int passed = 1; passed >= 0 && r == 0; passed--) {
		bool any = false;
		for (size_t i = 0; i < e->n && r == 0; i++) {
			const struct env_var *v = &e->v[i];
			const char *reason = why(v);
			if ((v->fate == ENV_PASSED) != (passed == 1))
				continue;
			if (!any)
				r = buf_printf(b, passed ? "passed\n" : "not passed\n");
			any = true;
			put_origin(origin, sizeof(origin), v);
			if (r == 0 && passed)
				r = buf_printf(b, "  %-*s  %s%s%s\n", (int)width, v->name, origin,
				               reason[0] ? ": " : "", reason);
			else if (r == 0)
				r = buf_printf(b, "  %-*s  %s\n", (int)width, v->name, reason);
		}
	}
	for (size_t i = 0; i < e->n_secrets && r == 0; i++)
		r = buf_printf(b, "%ssecret %s: required, and not there\n", i ? "" : "secrets\n  ",
		               e->secrets[i]);
	return r;
}

static const char *fate_name(const struct env_var *v)
{
	static const char *const names[] = {
		[ENV_PASSED] = "passed", [ENV_UNSET] = "unset",         [ENV_METERED] = "metered",
		[ENV_DENIED] = "denied", [ENV_REFERENCE] = "reference", [ENV_TOO_LONG] = "too_long",
	};

	return names[v->fate];
}

static int report_json(struct buf *b, const struct plan *p, const struct env_set *e, bool ok)
{
	json_t *vars = json_array(), *secrets = json_array();

	for (size_t i = 0; i < e->n; i++) {
		const struct env_var *v = &e->v[i];
		json_t *j =
			json_pack("{ss ss ss sb}", "name", v->name, "state", fate_name(v), "origin",
		                  env_origin_name(v->origin), "required", v->required);
		if (v->by)
			(void)json_object_set_new(j, "by", json_string(v->by));
		if (v->host_path)
			(void)json_object_set_new(j, "host_path", json_true());
		if (v->hinted)
			(void)json_object_set_new(j, "memory_hint", json_true());
		(void)json_array_append_new(vars, j);
	}
	for (size_t i = 0; i < e->n_secrets; i++)
		(void)json_array_append_new(secrets, json_string(e->secrets[i]));
	json_t *top = json_pack("{si ss sb so so}", "schema", 1, "agent", p->agent, "ok", ok,
	                        "variables", vars, "missing_secrets", secrets);
	AUTO_FREE char *s = top ? json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
	json_decref(top);
	return s ? buf_printf(b, "%s\n", s) : -ENOMEM;
}

int cmd_env(int argc, char **argv)
{
	static struct plan p;
	struct err e = { 0 };
	AUTO_BUF struct buf b = { 0 };
	int code = CLI_EXIT_REFUSED;

	/* the names are the same for every project, so any directory will do */
	char **words = xcalloc((size_t)argc + 2, sizeof(*words));
	static char any[] = "--allow-home";
	words[0] = argv[0];
	words[1] = any;
	memcpy(words + 2, argv + 1, (size_t)(argc - 1) * sizeof(*words));
	if (plan_parse(&p, argc + 1, words, &code, &e) < 0) {
		(void)cli_fail(&e);
		goto out;
	}
	code = CLI_EXIT_REFUSED;
	if (cli_env(&p, "-", &e) < 0) {
		(void)cli_fail(&e);
		goto out;
	}
	bool ok = env_check(&p.env, p.profile, &e) == 0;
	int r = p.json ? report_json(&b, &p, &p.env, ok) : report(&b, &p, &p.env);
	code = cli_print(&b, r < 0 ? CLI_EXIT_REFUSED : 0);
	if (!ok)
		code = cli_fail(&e); /* as a run would */
out:
	plan_fini(&p);
	free(words);
	return code;
}
