/* SPDX-License-Identifier: Apache-2.0 */
/*
 * review_priv.h - between the command line and its two workers.
 *
 * Messages on a stream socket: length u32 of what follows, type u8, payload.
 * The worker that shows and the one that applies run in the cage and have read
 * what a guest wrote: the parent checks every field and makes every text
 * visible itself.
 */
#ifndef CLOCHE_REVIEW_REVIEW_PRIV_H
#define CLOCHE_REVIEW_REVIEW_PRIV_H

#include "base/err.h"
#include "review/review.h"

enum {
	REVIEW_MSG_ITEM = 1, /* worker: one change */
	REVIEW_MSG_SUMMARY,  /* worker: struct compare_summary, then the cut-off plan */
	REVIEW_MSG_ERROR,    /* worker: code, text, hint; it ends */
	REVIEW_MSG_DIFF,     /* parent: index u32, flags u32; worker: struct diff_stat, text */
	REVIEW_MSG_OUTCOME,  /* apply worker: struct apply_outcome */
	REVIEW_MSG_DONE,     /* apply worker: the counts; it ends */
	REVIEW_HOST_AS_SENT = 0xff,
	REVIEW_MSG_MAX = DIFF_OUT_MAX + 1024 * 1024,
};

/* Bytes that are put once and looked at again; a little of it in memory. */
struct review_store {
	int fd; /* without a name; -1: none yet */
	bool no_file;
	struct buf b; /* behind what is in the file */
	uint64_t in_file;
	struct buf win; /* a piece of the file, from win_at */
	uint64_t win_at;
};
void review_store_fini(struct review_store *s);
int review_store_put(struct review_store *s, int dir_fd, struct span bytes) MUST_CHECK;
uint64_t review_store_len(const struct review_store *s);
/* What one put() gave, or a part of it: valid until the next call. */
struct span review_store_get(struct review_store *s, uint64_t at, size_t n);

/* What stands at the front of an item, without decoding the rest. */
struct review_head {
	uint32_t slot;
	uint16_t project, flags;
	uint8_t tier;
};

struct review {
	struct review_env env;
	struct changeset_meta meta;
	struct changeset_project *places; /* where the projects are now */
	char **names;                     /* of the projects, as in the guest: each another one */
	int dir_fd, lock_fd, status_fd;   /* lock and status -1: only looking */
	int *project_fds;
	int *project_locks;
	int *applied_fds; /* tables of the other sets of the sandbox, oldest first */
	size_t n_applied;
	mode_t mask;
	bool as_root, dirty;

	pid_t self; /* the command line */
	pid_t pid;  /* the worker that shows; 0: none */
	int sock;
	/*
	 * The changes as the worker sent them, checked: a hundred bytes each where a
	 * struct review_item with its texts takes a thousand. One is decoded when asked for.
	 */
	struct review_store raw;
	uint64_t *at; /* offset of each, and the end */
	struct review_head *heads;
	uint8_t *status, *host; /* what changed since; HOST_AS_SENT */
	uint32_t n_items, cap_items;
	uint32_t renamed_end; /* one above the highest index that a rename names */
	struct review_item ring[8];
	uint32_t ring_of[8];
	unsigned ring_next;
	struct compare_summary summary;
	uint32_t *interrupted;
	size_t n_interrupted;
};

int review_send(int sock, uint8_t type, struct span payload) MUST_CHECK;
/* 0; -EPIPE at the end of the stream; -EPROTO; -errno. */
int review_recv(int sock, uint8_t *out_type, struct buf *out) MUST_CHECK;

int review_put_item(struct buf *b, const struct compare_change *c, struct span path,
                    const struct apply_outcome *host) MUST_CHECK;
int review_get_item(struct review_item *out, struct span b, uint32_t n_projects) MUST_CHECK;
int review_put_outcome(struct buf *b, const struct apply_outcome *o) MUST_CHECK;
int review_get_outcome(struct apply_outcome *out, struct span b) MUST_CHECK;

void review_head(const struct review *r, uint32_t i, struct review_head *out);

/* The children's mains: never return. */
NORETURN void review_worker_show(const struct review *r, int sock);
NORETURN void review_worker_apply(const struct review *r, int sock, const uint32_t *chosen,
                                  size_t n);

/* Text of a worker: SGR sequences pass when @flags has DIFF_COLOUR, all else is made visible. */
int review_clean_text(struct buf *out, struct span s, int flags) MUST_CHECK;

#endif
