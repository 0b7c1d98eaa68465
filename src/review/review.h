/* SPDX-License-Identifier: Apache-2.0 */
/*
 * review.h - change sets for the command line: list, show, decide, apply.
 *
 * The command line never parses what came out of a guest. review_open() forks
 * a worker that enters the cage (read-only set and projects), reads the set,
 * and answers with checked records and finished texts; review_apply() forks
 * one that may write below the projects and nowhere else. Both die with the
 * caller. All texts given out here are made visible (vis.h) already.
 *
 * One process at a time decides or applies in a set (its lock) and applies to
 * a project (a lock named by the project's device and inode).
 */
#ifndef CLOCHE_REVIEW_REVIEW_H
#define CLOCHE_REVIEW_REVIEW_H

#include "base/mem.h"
#include "review/apply.h"
#include "review/changeset.h"
#include "review/compare.h"
#include "review/diff.h"

struct err;

/* A directory that the user names in the place of a project that is not where it was. */
struct review_to {
	const char *project; /* its name in the guest; NULL: the only one */
	const char *path;    /* absolute */
	int fd;
};

struct review_env {
	int changes_fd; /* `changes/`; borrowed */
	int locks_fd;   /* folder for the project locks; borrowed */
	bool no_cage;   /* tests only: workers stay uncaged */
	/* where the user stands, absolute or NULL: a project that was moved is found above it */
	const char *cwd;
	const struct review_to *to; /* borrowed while opening */
	size_t n_to;
};

/* Exit codes of review and apply. */
enum { REVIEW_EXIT_DONE = 0, REVIEW_EXIT_SEVERAL = 2, REVIEW_EXIT_OPEN = 3 };

/*
 * review_find() - which set is meant.
 * @want:	an id, AGENT@SESSION (its newest open set), or NULL: the only open set of the project
 *		around @cwd
 * @cwd:	absolute
 * @out_id:	CHANGESET_ID_MAX + 1 bytes
 * @out_several: what matches when it is not one; changeset_list_fini() it; may be NULL
 *
 * Return: 0; -ENOENT; -ENOTUNIQ (exit REVIEW_EXIT_SEVERAL); @err says what to do.
 */
int review_find(const struct review_env *env, const char *want, const char *cwd, char *out_id,
                struct changeset_list *out_several, struct err *err) MUST_CHECK;

/*
 * The part of @cwd that is the project @p: its path, or, for one that was moved or reached by
 * another path, a directory with its numbers. Return: its length (0 for "/"), or -1.
 */
ssize_t review_project_in(const struct changeset_project *p, const char *cwd);

struct review;

/* One change, as the command line sees it. */
struct review_item {
	struct compare_change c; /* spans, base and reason are empty here */
	char *path; /* shown and typed: "src/a.c", with several projects "demo/src/a.c" */
	char *link, *old_link; /* link texts, visible, or NULL */
	char *reason;          /* of the tier, or NULL */
	char *renamed;         /* shown path of the other half, or NULL */
	uint8_t host;          /* enum apply_result of apply_check() when it was opened */
	char *host_text;       /* why not, or NULL */
	bool raw_ok;           /* path is exactly the bytes of the name */
	struct buf raw;        /* those bytes, for matching PATH arguments */
};

/*
 * Open set @id, work out its list, check it against the host. The set stays locked until closed.
 * -ESTALE with a remedy when no project is there, or only other directories under their paths.
 */
int review_open(struct review **out, const struct review_env *env, const char *id,
                struct err *err) MUST_CHECK;
/* As review_open(), without the lock: only for looking. */
int review_open_readonly(struct review **out, const struct review_env *env, const char *id,
                         struct err *err) MUST_CHECK;
void review_close(struct review *r);

const struct changeset_meta *review_meta(const struct review *r);
/* Project @i where it is now, by review_env.to too; its path may be the recorded one otherwise. */
const struct changeset_project *review_place(const struct review *r, uint32_t i);
uint32_t review_count(const struct review *r);
/* Valid until eight others have been asked for: a set may be large, copy what is to stay. */
const struct review_item *review_item(const struct review *r, uint32_t i);
const struct compare_summary *review_summary(const struct review *r);
void review_counts(const struct review *r, struct changeset_counts *out);
/* Chosen by an apply that was cut off, and still pending; n may be 0. */
const uint32_t *review_interrupted(const struct review *r, size_t *out_n);

/* The diff of change @i, ready to print (flags of diff.h). 0 or -errno. */
int review_diff(struct review *r, uint32_t i, int flags, struct buf *out, struct diff_stat *stat,
                struct err *err) MUST_CHECK;

/* Reject or make pending again. Written to the disk before it returns. */
int review_decide(struct review *r, uint32_t i, enum changeset_status v,
                  struct err *err) MUST_CHECK;

/* As struct apply_outcome, in less room: most have no text. */
struct review_outcome {
	char *text; /* or NULL */
	uint32_t change;
	uint8_t result;
	bool broke_link, no_setid;
};

struct review_result {
	uint32_t done, already, conflict, refused, blocked, failed;
	uint32_t skipped_tier1, warned_tier2, broke_links;
	struct review_outcome *outcomes; /* in the order of the work */
	size_t n;
	int exit_code; /* REVIEW_EXIT_DONE or REVIEW_EXIT_OPEN */
};
void review_result_fini(struct review_result *r);

/* Apply changes by index. Statuses, `applied` and meta.json are written. */
int review_apply(struct review *r, const uint32_t *chosen, size_t n, struct review_result *out,
                 struct err *err) MUST_CHECK;

enum review_select {
	REVIEW_AUTO = 1,    /* all that is pending, without tier 1 and what is in conflict */
	REVIEW_ALL = 2,     /* --all: what was rejected or in conflict is tried again; no tier 1 */
	REVIEW_IGNORED = 4, /* --ignored: what was set aside by ignore rules, too */
	REVIEW_LOOK = 8,    /* review_match() for diffs: everything */
};

/*
 * review_match() - the changes that PATH arguments name.
 * @cwd_rel:	the user's directory below the project, "" for the project itself
 * @paths:	as typed; a path is relative to @cwd_rel; with several projects the first component
 *		is the project's name
 * @select:	bits of enum review_select, for what lies below a path: it takes what they take,
 *		and never what runs by itself. A path that is named exactly is taken in any case.
 *
 * Return: 0 with a malloc'd ascending list; -ENOENT, @err naming the first without a match.
 */
int review_match(const struct review *r, const char *cwd_rel, char *const *paths, size_t n_paths,
                 int select, uint32_t **out, size_t *out_n, struct err *err) MUST_CHECK;

/* The changes that a mode selects; malloc'd, ascending. @out_skipped: tier 1 left out. */
int review_select(const struct review *r, int select, uint32_t **out, size_t *out_n,
                  uint32_t *out_skipped) MUST_CHECK;

/* Where the line mode talks; text is complete lines or a prompt. */
struct review_io {
	/* One line of input without its end. 1: a line, 0: end of input, -errno. */
	int (*ask)(void *arg, const char *prompt, char *dst, size_t cap);
	void (*say)(void *arg, const char *text, size_t len);
	void *arg;
	int diff_flags; /* DIFF_COLOUR */
};

/*
 * review_lines() - the line mode: one change after the other, "accept? [y,n,a,A,q,?]".
 * Default and end of input are no; `a` takes the rest and asks again for each of tier 1; `A`
 * rejects the rest; `q` leaves the rest pending. What was accepted is applied at the end.
 * Return: 0 with *out, or -errno.
 */
int review_lines(struct review *r, const struct review_io *io, struct review_result *out,
                 struct err *err) MUST_CHECK;

/* Remove a set with all its content. -EBUSY while another process works on it. */
int review_discard(const struct review_env *env, const char *id, struct err *err) MUST_CHECK;

/* --- text; all end in a newline. What has no bound is written to @fd piece by piece:
 * 0; -EPIPE when nobody reads any more; -errno. --- */
int review_text_list(int fd, const struct review *r) MUST_CHECK;
int review_text_item(struct buf *out, const struct review *r, uint32_t i) MUST_CHECK;
/* Indented lines below it: risk, conflict, what is not carried. May be nothing. */
int review_text_notes(struct buf *out, const struct review *r, uint32_t i) MUST_CHECK;
int review_text_result(int fd, const struct review *r, const struct review_result *res) MUST_CHECK;

/* --- JSON, docs/schemas/{changes,review,apply}.json --- */
int review_json_sets(struct buf *out, const struct changeset_list *l) MUST_CHECK;
int review_json_list(int fd, const struct review *r) MUST_CHECK;
int review_json_result(int fd, const struct review *r, const struct review_result *res) MUST_CHECK;

#endif
