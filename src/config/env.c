/* SPDX-License-Identifier: Apache-2.0 */
#include "config/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "config/profile.h"

/* ---- the set ------------------------------------------------------------ */

static struct env_var *find(const struct env_set *e, const char *name)
{
	for (size_t i = 0; i < e->n; i++) {
		if (strcmp(e->v[i].name, name) == 0)
			return &e->v[i];
	}
	return NULL;
}

static void wipe(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

/* What a variable is from now on; @value and @by are copied. */
static struct env_var *put(struct env_set *e, const char *name, const char *value,
                           enum env_origin origin, enum env_fate fate, const char *by)
{
	struct env_var *v = find(e, name);

	if (!v) {
		e->v = xrealloc(e->v, (e->n + 1) * sizeof(*e->v));
		v = &e->v[e->n++];
		*v = (struct env_var){ .name = xstrdup(name) };
	}
	if (v->value)
		e->bytes -= strlen(v->value) + 1;
	wipe(v->value);
	free(v->by);
	v->value = fate == ENV_PASSED ? xstrdup(value) : NULL;
	if (v->value)
		e->bytes += strlen(v->value) + 1;
	v->by = by ? xstrdup(by) : NULL;
	v->origin = origin;
	v->fate = fate;
	return v;
}

/* What is not passed is told, but does not displace what is. */
static void note(struct env_set *e, const char *name, enum env_origin origin, enum env_fate fate,
                 const char *by)
{
	const struct env_var *v = find(e, name);

	if (!v || (v->fate == ENV_UNSET && fate != ENV_UNSET))
		(void)put(e, name, NULL, origin, fate, by);
}

static void set(struct env_set *e, const char *name, const char *value, enum env_origin origin)
{
	(void)put(e, name, value, origin, ENV_PASSED, NULL);
}

void env_fini(struct env_set *e)
{
	for (size_t i = 0; i < e->n; i++) {
		free(e->v[i].name);
		free(e->v[i].by);
		wipe(e->v[i].value);
	}
	free(e->v);
	free(e->secrets);
	*e = (struct env_set){ 0 };
}

/* ---- the user's environment --------------------------------------------- */

/* The value of @name on the host; an empty one counts as none. */
static const char *host_value(const struct env_in *in, const char *name)
{
	size_t n = strlen(name);

	for (const char *const *h = in->host; h && *h; h++) {
		if (strncmp(*h, name, n) == 0 && (*h)[n] == '=')
			return (*h)[n + 1] ? *h + n + 1 : NULL;
	}
	return NULL;
}

static bool listed(const char *const *v, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(v[i], name) == 0)
			return true;
	}
	return false;
}

static bool denied(const struct profile_env *e, const char *name)
{
	return profile_texts_have(&e->metered, name) || profile_texts_have(&e->deny, name);
}

bool env_is_reference(const char *value)
{
	size_t n = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                         "0123456789+.-");

	if (n == 0 || !((value[0] | 0x20) >= 'a' && (value[0] | 0x20) <= 'z'))
		return false;
	if (strncmp(value + n, "://", 3) != 0)
		return false;
	return !(n == 4 && strncasecmp(value, "http", 4) == 0) &&
	       !(n == 5 && strncasecmp(value, "https", 5) == 0);
}

/* What belongs to the host's own shell; a prefix that happens to match does not mean it. */
static bool of_the_shell(const char *name)
{
	static const char *const own[] = { "HOME", "USER", "LOGNAME", "PATH",  "SHELL",
		                           "PWD",  "_",    "OLDPWD",  "SHLVL", "TMPDIR" };

	return listed(own, ARRAY_LEN(own), name) || strncmp(name, "CLOCHE_", 7) == 0;
}

/* One variable of the host that somebody asked for: passed, or noted with the reason. */
static bool take(struct env_set *e, const struct env_in *in, const char *name, const char *value,
                 const char *as, enum env_origin origin, const char *by)
{
	const struct profile_env *pe = &in->profile->env;
	bool allowed = listed(in->allow, in->n_allow, name);
	enum env_fate fate = ENV_PASSED;

	if (!value)
		fate = ENV_UNSET;
	else if (!allowed && profile_texts_have(&pe->metered, name))
		fate = ENV_METERED;
	else if (!allowed && profile_texts_have(&pe->deny, name))
		fate = ENV_DENIED;
	else if (!allowed && env_is_reference(value))
		fate = ENV_REFERENCE;
	else if (strlen(value) > ENV_VALUE_MAX)
		fate = ENV_TOO_LONG;
	if (fate == ENV_PASSED)
		(void)put(e, as, value, origin, fate, by);
	else
		note(e, as, origin, fate, by);
	return fate == ENV_PASSED;
}

static void take_pattern(struct env_set *e, const struct env_in *in, const char *pattern,
                         enum env_origin origin)
{
	size_t n = strlen(pattern);

	if (n == 0 || pattern[n - 1] != '*') {
		(void)take(e, in, pattern, host_value(in, pattern), pattern, origin, pattern);
		return;
	}
	for (const char *const *h = in->host; h && *h && e->n <= ENV_VARS_MAX; h++) {
		AUTO_FREE char *name = xstrndup(*h, strcspn(*h, "="));
		/* a name that is no identifier cannot be asked for by name either */
		if (profile_pattern_match(pattern, name) && profile_pattern_ok(name) &&
		    !of_the_shell(name) && host_value(in, name))
			(void)take(e, in, name, host_value(in, name), name, origin, pattern);
	}
}

/*
 * Metered and denied ones that are set are told although nothing asks for them: that the agent
 * does not get the key that the user sees in the shell is what they need to know.
 */
static void note_denied(struct env_set *e, const struct env_in *in)
{
	const struct profile_env *pe = &in->profile->env;

	for (size_t i = 0; i < pe->metered.n; i++) {
		if (host_value(in, pe->metered.v[i]))
			note(e, pe->metered.v[i], ENV_FROM_HOST, ENV_METERED, NULL);
	}
	for (size_t i = 0; i < pe->deny.n; i++) {
		if (host_value(in, pe->deny.v[i]))
			note(e, pe->deny.v[i], ENV_FROM_HOST, ENV_DENIED, NULL);
	}
}

/* ---- what the profile says ---------------------------------------------- */

static bool secret_required(const struct profile *p, const char *name)
{
	for (size_t i = 0; i < p->secrets.n; i++) {
		if (strcmp(p->secrets.v[i].name, name) == 0)
			return p->secrets.v[i].required;
	}
	return false;
}

static void own_variables(struct env_set *e, const struct env_in *in)
{
	const struct profile *p = in->profile;

	for (size_t i = 0; i < p->quiet.env.n; i++)
		set(e, p->quiet.env.v[i].name, p->quiet.env.v[i].value, ENV_FROM_QUIET);
	for (size_t i = 0; i < p->env.set.n; i++) {
		const struct profile_var *v = &p->env.set.v[i];
		if (v->value) {
			set(e, v->name, v->value, ENV_FROM_PROFILE);
			continue;
		}
		for (size_t k = 0; k < v->refs.n; k++) {
			/* a secret of the store is not to be had yet: the next of the chain */
			const char *host =
				strncmp(v->refs.v[k], "env.", 4) == 0 ? v->refs.v[k] + 4 : NULL;
			if (host && host_value(in, host) &&
			    take(e, in, host, host_value(in, host), v->name, ENV_FROM_HOST,
			         v->refs.v[k]))
				break;
		}
		if (!find(e, v->name))
			note(e, v->name, ENV_FROM_PROFILE, ENV_UNSET, NULL);
	}
}

static void required(struct env_set *e, const struct env_in *in)
{
	const struct profile *p = in->profile;

	for (size_t i = 0; i < p->env.required.n; i++) {
		struct env_var *v = find(e, p->env.required.v[i]);
		if (!v)
			v = put(e, p->env.required.v[i], NULL, ENV_FROM_HOST, ENV_UNSET, NULL);
		v->required = true;
	}
	e->secrets = xcalloc(p->secrets.n + 1, sizeof(*e->secrets));
	for (size_t i = 0; i < p->secrets.n; i++) {
		const char *name = p->secrets.v[i].name;
		bool answered = false;
		if (!secret_required(p, name))
			continue;
		/* a chain that the environment answers needs no store */
		for (size_t k = 0; k < p->env.set.n; k++) {
			const struct profile_var *v = &p->env.set.v[k];
			AUTO_FREE char *ref = xasprintf("secrets.%s", name);
			answered |= profile_texts_have(&v->refs, ref) && env_value(e, v->name);
		}
		for (size_t k = 0; k < p->files.n; k++)
			answered &= strcmp(p->files.v[k].secret, name) != 0;
		if (!answered)
			e->secrets[e->n_secrets++] = name;
	}
}

/* ---- hints, identity, and what is the same everywhere ------------------- */

/* V8 and Go misjudge a small machine: without a limit the kernel kills them. */
static void memory_hints(struct env_set *e, const struct env_in *in)
{
	char text[64];

	if (profile_texts_have(&in->profile->env.heap, "node")) {
		const struct env_var *v = find(e, "NODE_OPTIONS");
		(void)snprintf(text, sizeof(text), "--max-old-space-size=%u",
		               (unsigned)((uint64_t)in->memory_mib * 75 / 100));
		if (!v || !v->value) {
			set(e, "NODE_OPTIONS", text, ENV_FROM_MEMORY);
		} else if (!strstr(v->value, "max-old-space-size") &&
		           !strstr(v->value, "max_old_space_size")) {
			enum env_origin origin = v->origin;
			AUTO_FREE char *by = v->by ? xstrdup(v->by) : NULL;
			char *both = xasprintf("%s %s", text, v->value);
			put(e, "NODE_OPTIONS", both, origin, ENV_PASSED, by)->hinted = true;
			wipe(both);
		}
	}
	if (profile_texts_have(&in->profile->env.heap, "go") && !env_value(e, "GOMEMLIMIT")) {
		(void)snprintf(text, sizeof(text), "%uMiB",
		               (unsigned)((uint64_t)in->memory_mib * 70 / 100));
		set(e, "GOMEMLIMIT", text, ENV_FROM_MEMORY);
	}
}

/* One line that git takes as a name or an address as it is. */
static bool identity_ok(const char *s)
{
	if (!s || !s[0] || strlen(s) > ENV_IDENTITY_MAX)
		return false;
	for (const char *p = s; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f || strchr("<>\\\"", *p))
			return false;
	}
	return true;
}

static void git_identity(struct env_set *e, const struct env_in *in)
{
	static const struct {
		const char *name;
		bool email;
	} vars[] = { { "GIT_AUTHOR_NAME", false },
		     { "GIT_AUTHOR_EMAIL", true },
		     { "GIT_COMMITTER_NAME", false },
		     { "GIT_COMMITTER_EMAIL", true } };

	for (size_t i = 0; i < ARRAY_LEN(vars); i++) {
		const char *own = host_value(in, vars[i].name);
		const char *fallback = vars[i].email ? in->git_email : in->git_name;
		if (env_value(e, vars[i].name) || denied(&in->profile->env, vars[i].name))
			continue; /* the profile said one, or that there shall be none */
		if (own && strlen(own) <= ENV_VALUE_MAX)
			(void)put(e, vars[i].name, own, ENV_FROM_HOST, ENV_PASSED, vars[i].name);
		else if (identity_ok(fallback))
			set(e, vars[i].name, fallback, ENV_FROM_GIT);
	}
}

static void base_variables(struct env_set *e, const struct env_in *in)
{
	static const char *const pass[] = { "TERM",    "COLORTERM", "NO_COLOR",    "LANG",
		                            "LC_ALL",  "LC_CTYPE",  "LC_MESSAGES", "LC_COLLATE",
		                            "LC_TIME", "LC_NUMERIC" };

	set(e, "TERM", "dumb", ENV_FROM_CLOCHE);
	if (!host_value(in, "LANG") && !host_value(in, "LC_ALL"))
		set(e, "LANG", "C.UTF-8", ENV_FROM_CLOCHE);
	for (size_t i = 0; i < ARRAY_LEN(pass); i++) {
		const char *v = host_value(in, pass[i]);
		if (v && strlen(v) < 256 && !strpbrk(v, "\n\r"))
			set(e, pass[i], v, ENV_FROM_TERMINAL);
	}
	if (in->tz)
		set(e, "TZ", in->tz, ENV_FROM_TERMINAL);
	if (!in->guest_user)
		set(e, "SHELL", in->image ? "/bin/sh" : "/bin/bash", ENV_FROM_CLOCHE);
	set(e, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	    ENV_FROM_CLOCHE);
}

/*
 * ENV of an image: below everything that the user or the profile says. What the profile does not
 * let in from the user's environment does not come in by an image either.
 */
static void image_variables(struct env_set *e, const struct env_in *in)
{
	for (const char *const *p = in->image; p && *p; p++) {
		size_t n = strcspn(*p, "=");
		AUTO_FREE char *name = xstrndup(*p, n);
		/* TERM is the user's terminal, whatever the image was made on */
		if ((*p)[n] != '=' || !profile_pattern_ok(name) || strchr(name, '*') ||
		    strcmp(name, "TERM") == 0 || e->n > ENV_VARS_MAX)
			continue;
		const char *value = *p + n + 1;
		bool allowed = listed(in->allow, in->n_allow, name);
		if (!allowed && profile_texts_have(&in->profile->env.metered, name))
			note(e, name, ENV_FROM_IMAGE, ENV_METERED, NULL);
		else if (!allowed && profile_texts_have(&in->profile->env.deny, name))
			note(e, name, ENV_FROM_IMAGE, ENV_DENIED, NULL);
		else if (strlen(value) > ENV_VALUE_MAX)
			note(e, name, ENV_FROM_IMAGE, ENV_TOO_LONG, NULL);
		else
			set(e, name, value, ENV_FROM_IMAGE);
	}
}

/* Nothing overrides these. */
static void fixed_variables(struct env_set *e, const struct env_in *in)
{
	const char *home = in->root ? "/root" : in->profile->home;
	const char *user = in->root ? "root" : "agent";
	bool token = env_value(e, "GITHUB_TOKEN") || env_value(e, "GH_TOKEN");

	if (!in->guest_home) {
		set(e, "HOME", home, ENV_FROM_CLOCHE);
		set(e, "CLOCHE_HOME", home, ENV_FROM_CLOCHE);
	}
	if (!in->guest_user) {
		set(e, "USER", user, ENV_FROM_CLOCHE);
		set(e, "LOGNAME", user, ENV_FROM_CLOCHE);
	}
	set(e, "GIT_TERMINAL_PROMPT", "0", ENV_FROM_CLOCHE);
	/* node has a bundle of its own; OpenSSL looks for a certificate by its hash in the folder,
	 * where those of the host are not, unless it is told of the file */
	if (in->ca_file)
		set(e, "NODE_EXTRA_CA_CERTS", in->ca_file, ENV_FROM_CLOCHE);
	if (in->ca_bundle)
		set(e, "SSL_CERT_FILE", in->ca_bundle, ENV_FROM_CLOCHE);
	set(e, "CLOCHE_AGENT_NAME", in->agent, ENV_FROM_CLOCHE);
	set(e, "CLOCHE_WORKSPACE", in->workspace, ENV_FROM_CLOCHE);
	set(e, "CLOCHE_SESSION_ID", in->session_id, ENV_FROM_CLOCHE);
	set(e, "CLOCHE_GIT_TOKEN_AVAILABLE", token ? "1" : "0", ENV_FROM_CLOCHE);
}

/* ---- all ---------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	const struct env_var *x = a, *y = b;

	return strcmp(x->name, y->name);
}

int env_build(struct env_set *out, const struct env_in *in, struct err *err)
{
	const struct profile_env *pe = &in->profile->env;
	struct env_set *e = out;

	*e = (struct env_set){ 0 };
	base_variables(e, in);
	image_variables(e, in);
	own_variables(e, in);
	for (size_t i = 0; i < pe->pass.n; i++)
		take_pattern(e, in, pe->pass.v[i], ENV_FROM_HOST);
	for (size_t i = 0; i < in->n_forward; i++)
		take_pattern(e, in, in->forward[i], ENV_FROM_FLAG);
	for (size_t i = 0; i < in->n_allow; i++)
		take_pattern(e, in, in->allow[i], ENV_FROM_FLAG);
	note_denied(e, in);
	memory_hints(e, in);
	git_identity(e, in);
	fixed_variables(e, in);
	required(e, in);
	for (size_t i = 0; i < pe->paths.n; i++) {
		struct env_var *v = find(e, pe->paths.v[i]);
		if (v && v->fate == ENV_PASSED)
			v->host_path = true;
	}
	qsort(e->v, e->n, sizeof(*e->v), by_name);
	if (e->n > ENV_VARS_MAX || e->bytes > ENV_TOTAL_MAX) {
		(void)err_set(err, -E2BIG,
		              "the guest would get %zu variables with %zu bytes of values", e->n,
		              e->bytes);
		return err_hint(err, "at most %d and %d: narrow env.pass or --env-forward",
		                ENV_VARS_MAX, ENV_TOTAL_MAX);
	}
	return 0;
}

const struct env_var *env_find(const struct env_set *e, const char *name)
{
	return find(e, name);
}

const char *env_value(const struct env_set *e, const char *name)
{
	const struct env_var *v = find(e, name);

	return v ? v->value : NULL;
}

bool env_is_key(const struct env_var *v, const struct profile *p)
{
	return v->fate == ENV_PASSED &&
	       (profile_texts_have(&p->credentials.env, v->name) ||
	        profile_texts_have(&p->env.metered, v->name) || strcmp(v->name, "GH_TOKEN") == 0 ||
	        strcmp(v->name, "GITHUB_TOKEN") == 0);
}

static const char *why_missing(const struct env_var *v)
{
	switch (v->fate) {
	case ENV_METERED:
		return " (set, but metered)";
	case ENV_DENIED:
		return " (set, but denied)";
	case ENV_REFERENCE:
		return " (set, but a reference)";
	case ENV_TOO_LONG:
		return " (set, but too long)";
	default:
		return "";
	}
}

int env_check(const struct env_set *e, const struct profile *p, struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	const char *hint = NULL;
	size_t vars = 0;
	int r = 0;

	for (size_t i = 0; i < e->n && r == 0; i++) {
		const struct env_var *v = &e->v[i];
		if (!v->required || v->fate == ENV_PASSED)
			continue;
		r = buf_printf(&b, "%s%s%s", vars++ ? ", " : "", v->name, why_missing(v));
	}
	for (size_t i = 0; i < e->n_secrets && r == 0; i++) {
		r = buf_printf(&b, "%ssecret %s", b.len ? ", " : "", e->secrets[i]);
		for (size_t k = 0; k < p->secrets.n; k++) {
			if (!hint && strcmp(p->secrets.v[k].name, e->secrets[i]) == 0)
				hint = p->secrets.v[k].hint;
		}
	}
	if (r < 0)
		return err_set(err, r, "no memory");
	if (b.len == 0)
		return 0;
	(void)err_set(err, -EINVAL, "%s needs what is not there: %.*s", p->name, (int)b.len,
	              (const char *)b.p);
	if (vars)
		return err_hint(err, "set it in your environment; cloche env %s shows all",
		                p->name);
	return err_hint(err, "%s", hint ? hint : "this version has no store of secrets");
}

char **env_strings(const struct env_set *e, size_t *out_n)
{
	char **v = xcalloc(e->n + 1, sizeof(*v));
	size_t n = 0;

	for (size_t i = 0; i < e->n; i++) {
		if (e->v[i].fate == ENV_PASSED)
			v[n++] = xasprintf("%s=%s", e->v[i].name, e->v[i].value);
	}
	*out_n = n;
	return v;
}

void env_strings_free(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		wipe(v[i]);
	free(v);
}

const char *env_origin_name(enum env_origin o)
{
	static const char *const names[] = {
		[ENV_FROM_CLOCHE] = "cloche",       [ENV_FROM_TERMINAL] = "terminal",
		[ENV_FROM_QUIET] = "profile quiet", [ENV_FROM_PROFILE] = "profile",
		[ENV_FROM_HOST] = "environment",    [ENV_FROM_FLAG] = "command line",
		[ENV_FROM_MEMORY] = "memory",       [ENV_FROM_GIT] = "git configuration",
		[ENV_FROM_IMAGE] = "image",
	};

	return names[o];
}
