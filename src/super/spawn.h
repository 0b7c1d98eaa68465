/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn.h - starting the other programs of a sandbox with exactly their descriptors.
 * All are trusted to be ours and enter their cage by themselves.
 */
#ifndef CLOCHE_SUPER_SPAWN_H
#define CLOCHE_SUPER_SPAWN_H

#include "base/ip.h"
#include "base/proc.h"
#include "super/state.h"

enum { SPAWN_EXCLUDES_MAX = 1024 };

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

enum { SPAWN_STATUS_REFUSED = 1 }; /* of cloche-scan: the input has an error, said on stderr */
/* Read a repository's configuration from @in, and write what it asks for to @out (repo.h). */
int spawn_repository(struct proc *out, int *out_stderr, int in_fd, int lines_fd, uid_t uid,
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

struct spawn_net {
	const char *name;
	int frames_fd, relay_fd, switch_fd, log_fd; /* switch, log: or -1 */
	uint32_t address;
	const uint8_t *mac; /* 6 bytes */
	const char *profile, *search;
	const struct ip4_net *privates; /* ranges that are not closed */
	size_t n_privates;
	uid_t uid;
};
int spawn_net(struct proc *out, int *out_stderr, const struct spawn_net *s,
              struct err *err) MUST_CHECK;

struct spawn_relay {
	int net_fd, control_fd, keeper_fd, worker_fd, policy_fd, events_fd,
		log_fd; /* keeper: or -1 */
	uid_t uid;
};
int spawn_relay(struct proc *out, int *out_stderr, const struct spawn_relay *s,
                struct err *err) MUST_CHECK;

struct spawn_keeper {
	int relay_fd, log_fd;
	uid_t uid;
};
int spawn_keeper(struct proc *out, int *out_stderr, const struct spawn_keeper *s,
                 struct err *err) MUST_CHECK;

/* Lives on when this process ends. */
struct spawn_switch {
	int listen_fd, map_fd, log_fd;
	uid_t uid;
};
int spawn_switch(struct proc *out, int *out_stderr, const struct spawn_switch *s,
                 struct err *err) MUST_CHECK;

#endif
