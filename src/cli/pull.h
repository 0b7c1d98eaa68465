/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull.h - images of somebody else, as the commands use them: the user's configuration, what is
 * asked on the terminal, and what such an image asks of a run.
 */
#ifndef CLOCHE_CLI_PULL_H
#define CLOCHE_CLI_PULL_H

#include "cli/plan.h"

/* Settings for pull.h of the image module, with progress and questions on the terminal. */
struct cli_pull {
	struct pull_opts o;
	struct term_progress *progress; /* set while one runs */
	char *lock_path;
};
void cli_pull_init(struct cli_pull *p, const struct config *c, const struct state_dirs *dirs,
                   bool quiet);
void cli_pull_fini(struct cli_pull *p);

/* plan_pull as the image module says it. */
enum pull_policy cli_pull_policy(enum plan_pull p);

/*
 * cli_pull_get() - the image of a run: p->oci, fetched as p->pull says.
 * Return: 0 or -errno with @err.
 */
int cli_pull_get(struct plan *p, struct err *err) MUST_CHECK;

/* Ask the registry again, in a process of its own that outlives this one (--pull background). */
void cli_pull_refresh(const struct plan *p);

/*
 * cli_pull_argv() - the command of an ad hoc run: ENTRYPOINT and CMD as docker joins them.
 * *out: an array to free(), of borrowed words. Return: 0, or -EINVAL when there is none.
 */
int cli_pull_argv(const struct plan *p, const char ***out, size_t *out_n,
                  struct err *err) MUST_CHECK;

/* Is what the image asks of a run within what a run can give? 0 or -errno with @err. */
int cli_pull_check_config(const struct plan *p, struct err *err) MUST_CHECK;

/* For `cloche image`: WORD is pull, inspect. Return: exit code. */
int cli_image_pull(const struct config *c, const struct state_dirs *dirs, const char *name,
                   bool json, bool quiet);
int cli_image_inspect(const struct config *c, const struct state_dirs *dirs, const char *name,
                      bool json);

#endif
