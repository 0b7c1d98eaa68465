/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents.h - what the verbs of `cloche agents` share.
 */
#ifndef CLOCHE_CLI_AGENTS_H
#define CLOCHE_CLI_AGENTS_H

#include <jansson.h>

#include "cli/cli.h"
#include "config/profiles.h"

enum { AGENTS_LIST_MAX = 64 };

enum agents_verb {
	AGENTS_LIST = 1 << 0,
	AGENTS_INSPECT = 1 << 1,
	AGENTS_DOCTOR = 1 << 2,
	AGENTS_INIT = 1 << 3,
	AGENTS_ADD = 1 << 4,
	AGENTS_IMPORT = 1 << 5,
	AGENTS_EXPORT = 1 << 6,
	AGENTS_EDIT = 1 << 7,
	AGENTS_RM = 1 << 8,
};

struct agents_texts {
	const char *v[AGENTS_LIST_MAX];
	size_t n;
};

struct agents {
	enum agents_verb verb;
	const char *verb_name;
	struct state_dirs dirs;
	struct config config;
	struct profiles ps;
	/* words behind the verb */
	char **words;
	size_t n_words;
	/* options */
	bool json, force, yes, mcp, with_values;
	const char *name, *image, *description, *memory, *cpus, *tmp_size, *egress, *authz;
	struct agents_texts command, env, required, hosts;
};

/* What a verb changed, for its receipt. */
struct agents_write {
	bool created, replaced;
	const char
		*comments; /* "kept", "verbatim", "new"; what became of what was written by hand */
	struct span before, after;
};

/* The verbs. Return: the exit code; errors are printed. */
int agents_list(struct agents *a);
int agents_inspect(struct agents *a);
int agents_doctor(struct agents *a);
int agents_init(struct agents *a);
int agents_add(struct agents *a);
int agents_import(struct agents *a);
int agents_export(struct agents *a);
int agents_edit(struct agents *a);
int agents_rm(struct agents *a);

/* The entry named by the first word, also an invalid one; NULL with @err when there is none. */
const struct profile_entry *agents_entry(struct agents *a, struct err *err);

/*
 * A receipt: what was done, with what, and what was not. @p, @w and @checks (taken) may be
 * NULL; @non_effects is NULL-terminated. No values of variables.
 */
json_t *agents_receipt(const struct agents *a, const char *path, bool ok, const struct profile *p,
                       const struct agents_write *w, json_t *checks,
                       const char *const *non_effects);
/* Print it (taken) on stdout. Return: @code, or an error's. */
int agents_print_json(json_t *j, int code);

#endif
