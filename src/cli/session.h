/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one run of a sandbox from the CLI: boot, a command on the user's
 * terminal or pipes, export, end.
 */
#ifndef CLOCHE_CLI_SESSION_H
#define CLOCHE_CLI_SESSION_H

#include "super/client.h"

/* A file for the guest, before the command runs: root's, for all to read. */
struct session_file {
	char *path;
	struct span bytes;
	bool extend; /* behind what is there (wire/msg.h) */
	bool agent;  /* the agent's, for it alone */
	bool keep;   /* what is there stays */
};

struct session_opts {
	struct client_spec spec;
	const struct session_file *files;
	size_t n_files;
	const char *const *argv; /* of the command; n_argv 0: a login shell */
	size_t n_argv;
	const char *const *env; /* NAME=VALUE */
	size_t n_env;
	const char *cwd;
	bool root;  /* run it as root in the guest */
	bool quiet; /* no progress, no banner */
	bool timings;
	/* called once the project was read: prints the banner. May be NULL */
	void (*banner)(void *arg);
	/* called once the machine is up: what the start only borrowed may go. May be NULL */
	void (*up)(void *arg);
	void *arg;
	uint64_t t0_ns; /* CLOCK_MONOTONIC when the CLI began */
};

struct session_result {
	int exit_status; /* of the command as a shell says it; -1: it never ran */
	bool oom;        /* the guest's kernel ended something of it */
	int signal;      /* that ended it, or 0 */
	bool staged;     /* the way back is complete: id may still be empty (no change) */
	char set_id[CTL_ID_MAX + 1];
	uint32_t records;
	bool detached;    /* the user did not wait: the sandbox finishes by itself */
	bool recoverable; /* it failed with the work on its disk */
	struct err err;   /* when it failed: code != 0 */
	uint64_t phase_ns[CTL_PHASES];
	uint64_t guest_kernel_ns, guest_init_ns;
};

/* Return: 0 when the run went its way (whatever the command's status), -errno with out->err. */
int session_run(const struct session_opts *o, struct session_result *out);

#endif
