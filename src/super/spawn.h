/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn.h - starting cloche-scan and cloche-disk with exactly their descriptors.
 * Both are trusted to be ours and enter their cage by themselves.
 */
#ifndef CLOCHE_SUPER_SPAWN_H
#define CLOCHE_SUPER_SPAWN_H

#include "base/proc.h"
#include "super/state.h"

enum { SPAWN_EXCLUDES_MAX = 256 };

struct spawn_scan {
	const struct state_project *projects; /* names and paths */
	const int *fds;                       /* their directories; borrowed */
	size_t n_projects;
	int manifest_fd, meta_fd, report_fd; /* outputs; report -1: none */
	const char *const *exclude;
	size_t n_exclude;
	bool heavy;
	const struct state_dirs *dirs; /* our own folders, to leave out */
	uid_t uid;
};

/* @out_stderr: read end of a pipe; the caller's. */
int spawn_scan(struct proc *out, int *out_stderr, const struct spawn_scan *s,
               struct err *err) MUST_CHECK;

struct spawn_disk {
	const int *fds;
	size_t n_projects;
	int nbd_fd, control_fd, cache_fd, log_fd;
	uid_t uid;
	bool moved; /* recover: the projects may lie elsewhere by now */
};
int spawn_disk(struct proc *out, int *out_stderr, const struct spawn_disk *s,
               struct err *err) MUST_CHECK;

#endif
