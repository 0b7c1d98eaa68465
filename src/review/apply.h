/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.h - writing accepted changes to the host's tree.
 *
 * Theory. The host's tree is alive: editors, builds and other tools change it
 * while we work, and a hostile process of the same user may swap names under
 * us. So (1) everything happens below the project's directory descriptor, a
 * parent is walked once by openat2 without following links and then acted on
 * by its descriptor; (2) new content is complete and synced in a temporary
 * file beside its name before the name changes; (3) an existing name is
 * replaced by exchange, a deleted one is renamed away, and only then is what
 * came out compared with what was verified: if it is something else it is put
 * back, so there is no moment at which a host edit can be lost; where the file
 * system cannot exchange, by a rename right after the check. (4) A path is
 * applied when the host still has the baseline, is already applied when the
 * host has the new content, and is a conflict otherwise. That makes each step
 * repeatable, so a crash is continued by doing it again; the journal only
 * holds which changes were chosen and the name of the one temporary file.
 *
 * Content is hashed over the very bytes that are written. Never setuid,
 * setgid or sticky. Directories are removed only when empty.
 */
#ifndef CLOCHE_REVIEW_APPLY_H
#define CLOCHE_REVIEW_APPLY_H

#include <sys/types.h>

#include "review/compare.h"

enum apply_result {
	APPLY_DONE = 0,
	APPLY_ALREADY,  /* the host had it; nothing was written */
	APPLY_CONFLICT, /* the host differs from the baseline; untouched */
	APPLY_REFUSED,  /* cannot be carried: never, or not with these rights */
	APPLY_BLOCKED,  /* its directory is a change that was not applied */
	APPLY_FAILED,   /* the system refused (disk full, read-only): host intact, stays pending */
};

enum { APPLY_TEXT_BYTES = 256 };

struct apply_outcome {
	uint32_t change;             /* index in the compare list */
	uint8_t result;              /* enum apply_result */
	bool broke_link;             /* the old file has other names, which keep the old content */
	bool no_setid;               /* the host's file lost setuid, setgid or sticky */
	int code;                    /* -errno of FAILED, REFUSED */
	char text[APPLY_TEXT_BYTES]; /* reason, made visible; "" for DONE */
};

/* Points where a test may swap things; NULL in real life. */
enum apply_point {
	APPLY_AT_VERIFIED = 1, /* host verified, parent open, temporary file complete */
	APPLY_AT_MOVED,        /* exchanged or renamed away, not yet checked */
	APPLY_AT_PUT_BACK,     /* a mismatch was seen, about to be undone */
	APPLY_AT_DONE,         /* host changed, status not yet written */
};

struct apply_opts {
	struct changeset *set;      /* opened for writing and locked by the caller */
	const struct compare *list; /* of that set */
	const int *project_fds;     /* one a project of the manifest; -1: not available */
	int applied_fd;             /* `applied`, O_APPEND */
	int journal_fd;             /* `journal`, read and write */
	mode_t mask;                /* the user's umask */
	bool as_root;               /* new files get their parent's owner */
	void (*hook)(void *arg, enum apply_point at, uint32_t change, int dir_fd, const char *name);
	void *hook_arg;
};

/*
 * apply_check() - would change @i apply? Looks, changes nothing, writes no status.
 * Return: 0 with *out filled.
 */
void apply_check(const struct apply_opts *o, uint32_t i, struct apply_outcome *out);

typedef void (*apply_report_fn)(void *arg, const struct apply_outcome *o);

/*
 * apply_run() - apply changes @chosen (indexes, ascending), one after the other.
 * A status is written after each path; one that fails does not stop the rest, but a full disk
 * or an I/O error does: what remains is reported as FAILED with the same reason.
 *
 * Return: the number that are not done (0: all done), or -errno when nothing could be begun.
 */
int apply_run(const struct apply_opts *o, const uint32_t *chosen, size_t n, apply_report_fn report,
              void *arg, struct err *err) MUST_CHECK;

/*
 * apply_recover() - after a crash: finish or undo the one step that was under way.
 * @out_left:	malloc'd indexes of the changes that were chosen and are still pending
 * Return: 1 when there was something to do, 0 when the journal was clean, -errno.
 */
int apply_recover(const struct apply_opts *o, uint32_t **out_left, size_t *out_n,
                  struct err *err) MUST_CHECK;

/* What apply_recover() would leave, from the journal's bytes; nothing is touched. 0 or -errno. */
int apply_planned(const struct apply_opts *o, struct span journal, uint32_t **out_left,
                  size_t *out_n) MUST_CHECK;

/* Content hash of the host's file of change @i, if it still is the baseline: for renames. */
int apply_hash_host(const struct apply_opts *o, uint32_t i, struct hash *out) MUST_CHECK;

/*
 * apply_open_host() - the host's file of change @i for reading (diffs).
 * Return: fd, -ENOENT, or -errno; *out_same: it still is the baseline.
 */
int apply_open_host(const struct apply_opts *o, uint32_t i, bool *out_same) MUST_CHECK;

const char *apply_result_str(uint8_t result);

#endif
