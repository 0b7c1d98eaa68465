/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets.h - change sets on the command line: end of a run, changes, diff,
 * review, apply, discard.
 */
#ifndef CLOCHE_CLI_SETS_H
#define CLOCHE_CLI_SETS_H

#include "config/config.h"
#include "super/client.h"

struct sets_end {
	const char *id;
	const struct client_spec *spec; /* of the run: its projects are what may be written to */
	enum config_apply apply;
	bool tty; /* stdin and stderr are terminals: the review may open */
	bool quiet;
};

/* Summary of a staged set, then --apply's way. Return: 0, 3 or 125. */
int sets_end_of_run(const struct sets_end *e);

#endif
