/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - a process that the monitor started: seen by its pidfd, with the last
 * lines that it said.
 */
#ifndef CLOCHE_SUPER_CHILD_H
#define CLOCHE_SUPER_CHILD_H

#include "base/proc.h"
#include "event/loop.h"
#include "vmm/vmm.h"

struct child {
	const char *name; /* for people */
	struct proc p;    /* proc_spawn() fills it */
	int err_fd;       /* read end of its standard error, or -1; owned */
	struct vmm_tail tail;
	bool running;
	int status; /* of waitpid(), once it has ended */
	struct loop *l;
	struct loop_fd src, err_src;
	void (*ended)(void *arg, struct child *c);
	void *arg;
};

void child_init(struct child *c, const char *name);

/* It runs: @ended is called once, when it has ended and was reaped. 0 or -errno with @err. */
int child_watch(struct child *c, struct loop *l, void (*ended)(void *arg, struct child *c),
                void *arg, struct err *err) MUST_CHECK;

/* Why it ended, of what it said and its status. */
void child_describe(struct child *c, struct err *err);

/* TERM, @grace_ms, KILL, reap; @ended is not called. Also for one that never ran or has ended. */
void child_end(struct child *c, int grace_ms);

#endif
