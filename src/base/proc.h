/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - starting our own programs and others, and ending them.
 *
 * A child gets exactly the descriptors of its list, at the numbers the list
 * says; everything else is closed. It dies with its parent thread
 * (PR_SET_PDEATHSIG) unless told otherwise. Ending is by pidfd only, so a
 * recycled pid is never signalled.
 */
#ifndef CLOCHE_BASE_PROC_H
#define CLOCHE_BASE_PROC_H

#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

struct err;

struct proc_fd {
	int from; /* borrowed: ours */
	int to;   /* the child's number */
};

struct proc_spec {
	const char *path;          /* absolute; executed directly, no shell, no PATH */
	const char *const *argv;   /* NULL-terminated */
	const char *const *envp;   /* NULL-terminated; NULL: an empty environment */
	const struct proc_fd *fds; /* 0, 1, 2 that are not listed become /dev/null */
	size_t n_fds;
	bool keep_on_parent_death;
	bool new_session; /* setsid(): out of the terminal's job control */
	uid_t uid;        /* with set_ids: run as these, no groups */
	gid_t gid;
	bool set_ids;
	const char *cwd; /* NULL: "/" */
};

struct proc {
	pid_t pid;
	int pidfd; /* -1 when there is no process */
	/* set when it is reaped: what it used, with what it reaped itself */
	uint64_t cpu_us, rss_max;
};

/*
 * proc_spawn() - start a program.
 *
 * Return: 0 with @out filled, or -errno with @err, also when exec itself
 * failed in the child.
 */
int proc_spawn(struct proc *out, const struct proc_spec *spec, struct err *err) MUST_CHECK;

/* Wait at most @timeout_ms (-1: for ever). Return: 0 with a wait status, -ETIMEDOUT, -errno. */
int proc_wait(struct proc *p, int timeout_ms, int *out_status) MUST_CHECK;

/* Send @sig through the pidfd. 0, or -ESRCH once it is gone. */
int proc_signal(const struct proc *p, int sig);

/* TERM, @grace_ms, KILL, reap. Accepts a finished or empty @p. */
void proc_end(struct proc *p, int grace_ms);

/* The exit status as a shell reports it: code, or 128+N for a signal. */
int proc_shell_status(int wait_status);

/*
 * proc_find_program() - absolute path of a program in fixed system folders
 * (/usr/bin, /bin, /usr/sbin, /sbin, /usr/local/bin): never the user's PATH
 * order for what we run on their behalf. *out is malloc'd.
 */
int proc_find_program(const char *name, char **out) MUST_CHECK;

/* Directory of our own executable, where cloche-* helpers lie. malloc'd. */
char *proc_self_dir(void) MUST_CHECK;

#endif
