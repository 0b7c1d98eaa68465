/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets.h - change sets on the command line: end of a run, changes, diff,
 * review, apply, discard.
 */
#ifndef CLOCHE_CLI_SETS_H
#define CLOCHE_CLI_SETS_H

#include "cli/plan.h"

struct sets_end {
	const char *id;
	enum config_apply apply;
	bool tty; /* stdin and stderr are terminals: the review may open */
	bool quiet;
};

/* Summary of a staged set, then --apply's way. Return: 0, 3 or 125. */
int sets_end_of_run(const struct plan *p, const struct sets_end *e);

#endif
