/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - where things lie, and what a sandbox's folder says about it.
 *
 * sandboxes/ID/state.json is written by the monitor only, by rename. Whether a
 * sandbox lives is not in it: the monitor holds a flock on sandboxes/ID/lock
 * as long as it runs, and a lock cannot be stale.
 */
#ifndef CLOCHE_SUPER_STATE_H
#define CLOCHE_SUPER_STATE_H

#include <limits.h>

#include "base/mem.h"
#include "super/net.h"
#include "wire/msg.h"

struct err;

enum { STATE_SCHEMA = 1, STATE_ID_MAX = 80, STATE_BYTES_MAX = 256 * 1024 };

/* Folders of ours, created 0700 and checked; XDG variables, else below $HOME. */
struct state_dirs {
	char *state;     /* …/cloche */
	char *sandboxes; /* state/sandboxes */
	char *changes;   /* state/changes */
	char *logs;      /* state/logs */
	char *cache;     /* …/cloche */
	char *config;    /* …/cloche; not created */
};
/* @create: make what is missing. Return: 0 or -errno with @err. */
int state_dirs_init(struct state_dirs *d, bool create, struct err *err) MUST_CHECK;
void state_dirs_fini(struct state_dirs *d);

enum state_phase {
	STATE_STARTING = 1, /* nothing ran yet: nothing can be lost */
	STATE_RUNNING,      /* commands ran: the scratch disk holds their work */
	STATE_STAGED,       /* the change set is on disk (or there was no change) */
};

struct state_project {
	char *name, *path;
	uint64_t dev, ino; /* of the directory when the sandbox was made */
};

struct state {
	char id[STATE_ID_MAX + 1];
	char agent[65];
	enum state_phase phase;
	int64_t created_s;
	uint64_t scratch_bytes, tmp_bytes;
	uint32_t memory_mib, vcpus;
	char image[96], accel[8];
	char *log;
	/* what it was started with; offline in files that do not know it */
	enum net_mode network;
	char egress[16]; /* profile; empty offline */
	char *events;    /* events.jsonl, or NULL */
	struct state_project projects[MSG_PROJECTS_MAX];
	size_t n_projects;
	char failure[512]; /* why it ended without a change set; for `cloche recover` */
};

int state_write(int dirfd, const struct state *s, struct err *err) MUST_CHECK;
int state_read(int dirfd, struct state *out, struct err *err) MUST_CHECK;
void state_fini(struct state *s);

/*
 * state_lock() - take the lock of the sandbox in @dirfd.
 * @top_fd:	`sandboxes/`. Who only looks takes a sandbox's lock for a moment, too; all do it
 *		while they hold a lock on this folder, so nobody takes a look for a life.
 * @out_lock:	the caller's
 * Return: 0; -EBUSY; -ENOENT without a lock file; -errno.
 */
int state_lock(int top_fd, int dirfd, int *out_lock) MUST_CHECK;

/* One sandbox folder, for listing: lives, can be recovered, or is left over. */
struct state_item {
	struct state s;
	bool alive;
	bool damaged; /* only s.id and, in s.failure, what is wrong with state.json */
};
/*
 * state_sweep() - remove folders of dead sandboxes that hold nothing: never
 * ran, or staged. What can be recovered, or is damaged, stays. Folders without our lock file
 * are left alone. Return: how many went, or -errno.
 */
int state_sweep(const struct state_dirs *d);
/* All sandboxes. *out is malloc'd, n items; state_items_free(). */
int state_list(const struct state_dirs *d, struct state_item **out, size_t *out_n,
               struct err *err) MUST_CHECK;
void state_items_free(struct state_item *it, size_t n);

/* logs/ID.log, and logs/ID.events.jsonl: what the network decided. */
#define STATE_EVENTS_SUFFIX ".events.jsonl"

/* Keep the newest @keep of either kind. */
void state_prune_logs(const struct state_dirs *d, size_t keep);

#endif
