/* SPDX-License-Identifier: Apache-2.0 */
/* repoplan.h - what the .cloche.yaml of the projects does to a run (config/repo.h). */
#ifndef CLOCHE_CLI_REPOPLAN_H
#define CLOCHE_CLI_REPOPLAN_H

#include <jansson.h>

#include "config/repo.h"
#include "super/client.h"

struct plan;

struct repoplan {
	struct repo_asks asks;       /* of all projects */
	struct repo_effect *effects; /* one each */
	struct buf warnings;         /* lines, safe for a terminal: files that count as absent */
	struct repo_run run;         /* with what they asked for; borrows from asks */
};

/*
 * repoplan_read() - read the file of each project, in the caged cloche-scan.
 * A file that cannot be read, or has an error, counts as absent, with a warning.
 * Return: 0, or -errno with @err when the cage failed.
 */
int repoplan_read(struct repoplan *r, const struct state_project *projects, const int *fds,
                  size_t n, struct err *err) MUST_CHECK;
/* Let them tighten @r->run, which the caller filled in. Return: 0 or -EPROTO. */
int repoplan_apply(struct repoplan *r, struct err *err) MUST_CHECK;
void repoplan_fini(struct repoplan *r);

/* "repository  .cloche.yaml asks for: ..." behind @indent, and the warnings; 0 or -ENOMEM. */
int repoplan_put(struct buf *b, const struct repoplan *r, const char *indent) MUST_CHECK;
/* [{"key", "value", "effect": "applied"|"same"|"ignored", "reason"}]; NULL without memory. */
json_t *repoplan_json(const struct repoplan *r) MUST_CHECK;

#endif
