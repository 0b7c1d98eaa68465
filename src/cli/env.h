/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - the environment of a run's command: config/env.h with what this host says.
 */
#ifndef CLOCHE_CLI_ENV_H
#define CLOCHE_CLI_ENV_H

#include "cli/plan.h"
#include "config/seeds.h"

/*
 * cli_env() - work out p->env, the variables of a run.
 * @session_id:	what the run is called
 * Return: 0, also when something required is missing (env_check()), or -errno with @err.
 */
int cli_env(struct plan *p, const char *session_id, struct err *err) MUST_CHECK;

/*
 * The agent's first-start files (config/seeds.h) for a run with p->env.
 * Return: 0 or -errno with @err.
 */
int cli_seeds(struct seed_files *out, const struct plan *p, struct err *err) MUST_CHECK;

/* What the user should hear at the start of a run: refused keys, paths of the host. */
int cli_env_warnings(struct buf *b, const struct env_set *e) MUST_CHECK;

#endif
