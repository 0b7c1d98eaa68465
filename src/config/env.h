/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - the environment of the command in the guest, and why each variable is in
 * it or not.
 *
 * Pure: the user's environment and the profile in, variables out. The same result
 * starts the command and is what `cloche env` and `info` report, so a report cannot say
 * something else than what a run does. Values never leave it but by env_strings(); reports
 * have names and origins.
 *
 * In this order, the later wins: terminal, locale and what every shell needs; what the image
 * says; the profile's
 * quiet switches and its own variables; what is passed from the user's environment; the hints on
 * memory, beside what the user set; the identity for git; what cloche itself says.
 */
#ifndef CLOCHE_CONFIG_ENV_H
#define CLOCHE_CONFIG_ENV_H

#include "base/mem.h"

struct err;
struct profile;

enum {
	ENV_VALUE_MAX = 128 * 1024 - 1024, /* Linux ends a string of an exec at 128 KiB */
	ENV_TOTAL_MAX = 1024 * 1024,
	ENV_VARS_MAX = 2000,
	ENV_IDENTITY_MAX = 512,
};

enum env_origin {
	ENV_FROM_CLOCHE = 1, /* the same in every session */
	ENV_FROM_TERMINAL,   /* terminal, locale and time zone of the host */
	ENV_FROM_QUIET,      /* quiet.env of the profile */
	ENV_FROM_PROFILE,    /* a literal of env.set */
	ENV_FROM_HOST,       /* the user's environment; by: the pattern or the reference */
	ENV_FROM_FLAG,       /* the same by --env-forward or --allow-env */
	ENV_FROM_MEMORY,     /* a hint computed from the machine's memory */
	ENV_FROM_GIT,        /* the user's identity in git's configuration */
	ENV_FROM_IMAGE,      /* ENV of an image of somebody else */
};
const char *env_origin_name(enum env_origin o);

enum env_fate {
	ENV_PASSED = 1,
	/* the rest is in the report only */
	ENV_UNSET,     /* asked for by name, and not set on the host */
	ENV_METERED,   /* set, but would be charged in place of the login */
	ENV_DENIED,    /* set, but the profile denies it */
	ENV_REFERENCE, /* set, but looks like a reference of a secret manager */
	ENV_TOO_LONG,  /* set, but no program could be started with it */
};

struct env_var {
	char *name, *value; /* value: only of what is PASSED */
	enum env_origin origin;
	enum env_fate fate;
	char *by;       /* what asked for it: "CLAUDE_*", "env.OTHER"; or NULL */
	bool required;  /* by the profile */
	bool host_path; /* PASSED, but names a file that is not in the guest */
	bool hinted;    /* a hint on memory was put beside the value */
};

struct env_set {
	struct env_var *v; /* sorted by name once it is built */
	size_t n, bytes;
	/* secrets of the store that the profile requires, and that cannot be had; borrowed */
	const char **secrets;
	size_t n_secrets;
};

struct env_in {
	const struct profile *profile;
	const char *const *host;    /* NAME=VALUE, NULL-terminated: environ */
	const char *const *forward; /* patterns of --env-forward */
	size_t n_forward;
	const char *const *allow; /* names of --allow-env */
	size_t n_allow;
	const char *tz;                             /* name of the host's time zone, or NULL */
	const char *git_name, *git_email;           /* identity of the user, or NULL */
	const char *agent, *workspace, *session_id; /* as the guest sees them */
	const char *ca_file, *ca_bundle;            /* in the guest: CAs of the host, or NULL */
	const char *const *image; /* NAME=VALUE that the image says, NULL-terminated; or NULL */
	/* the guest says who it is (USER, LOGNAME, SHELL), and where its home is */
	bool guest_user, guest_home;
	uint32_t memory_mib;
	bool root;
};

/*
 * env_build() - work it all out.
 * Return: 0; -E2BIG over ENV_TOTAL_MAX or ENV_VARS_MAX with @err. env_fini() in any case.
 */
int env_build(struct env_set *out, const struct env_in *in, struct err *err) MUST_CHECK;
void env_fini(struct env_set *e);

const struct env_var *env_find(const struct env_set *e, const char *name);
/* Is it passed, and a key: one of credentials.env or metered, or a token for git hosts? */
bool env_is_key(const struct env_var *v, const struct profile *p);
/* Its value when it is passed, else NULL. */
const char *env_value(const struct env_set *e, const char *name);

/*
 * env_check() - is everything there that the profile requires? All that is missing is in
 * one error, variables and secrets. Return: 0 or -EINVAL.
 */
int env_check(const struct env_set *e, const struct profile *p, struct err *err) MUST_CHECK;

/* NAME=VALUE of all that is passed, NULL-terminated; *out_n without the NULL. */
char **env_strings(const struct env_set *e, size_t *out_n) MUST_CHECK;
/* Wipes them. */
void env_strings_free(char **v);

/* Does the value look like op://, vault://, ...? http and https are values. */
bool env_is_reference(const char *value);

#endif
