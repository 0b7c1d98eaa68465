/* SPDX-License-Identifier: Apache-2.0 */
/* apply_priv.h - the pieces of apply: looking, single steps, the journal. */
#ifndef CLOCHE_REVIEW_APPLY_PRIV_H
#define CLOCHE_REVIEW_APPLY_PRIV_H

#include <sys/stat.h>

#include "review/apply.h"
#include "review/compare_priv.h"

/* One change on its way. */
struct apply_work {
	const struct apply_opts *o;
	uint32_t i;
	struct compare_change ch;
	struct buf path; /* below the project */
	int project_fd;  /* borrowed */
	int dir_fd;      /* parent of the name; -1 until opened */
	char name[256];
	struct stat st; /* of the host's thing, when have_st */
	bool have_st;
	struct apply_outcome *out;
};

/* Fill the outcome. Return: @result. */
int apply_say(struct apply_work *w, enum apply_result result, int code, const char *fmt, ...)
	PRINTF_FMT(4, 5);

/* --- apply_host.c: what is there, and is it the baseline? --- */

/* Open the parent; -ENOENT, -ENOTDIR, -ELOOP, ... */
int apply_open_parent(struct apply_work *w) MUST_CHECK;
bool apply_same_stat(const struct manifest_entry *e, const struct stat *st);
/* Two looks at one inode between which it was only moved. */
bool apply_same_inode(const struct stat *a, const struct stat *b);
int apply_hash_fd(int fd, struct hash *out) MUST_CHECK;
/* Content of regular file @name, when it has @size bytes and did not change meanwhile. */
int apply_hash_at(int dir_fd, const char *name, const struct stat *st, struct hash *out) MUST_CHECK;

enum {
	APPLY_GO = 100, /* the host has the baseline: act */
};
/* Return: APPLY_GO, or an apply_result with the outcome filled. Fills w->st. */
int apply_verify(struct apply_work *w) MUST_CHECK;
/* Is all of the host's directory @name the baseline's @entry? 0, -ESTALE with @what, -errno. */
int apply_verify_tree(struct apply_work *w, int dir_fd, const char *name, uint32_t entry,
                      struct buf *path, struct buf *what) MUST_CHECK;

/* --- apply_step.c: each either happened or did not --- */

void apply_tmp_name(char dst[COMPARE_TMP_LEN + 1]);

/*
 * Give the finished temporary thing @tmp the final name, instead of what w->st describes or, if
 * !w->have_st, of nothing. Return: 0; -ESTALE when the host changed (undone); -errno (undone).
 */
int apply_swap(struct apply_work *w, const char *tmp, const struct stat *tmp_st) MUST_CHECK;
/*
 * Remove @name below @from_fd, if it is what @st says. It is moved to the parent of the change
 * first and looked at there. Return: 0; -ESTALE (put back), -errno.
 */
int apply_remove(struct apply_work *w, int from_fd, const char *name, struct span path,
                 const struct stat *st) MUST_CHECK;
/* Remove the visible part of a verified tree. 0; -ESTALE, -ENOTEMPTY (something stays), -errno. */
int apply_remove_tree(struct apply_work *w, int dir_fd, const char *name, uint32_t entry,
                      struct buf *path) MUST_CHECK;
/* Make the temporary thing. -EBADMSG: the set's content is damaged; -EPERM: owner. */
int apply_make_file(struct apply_work *w, const char *tmp, struct stat *out_st) MUST_CHECK;
int apply_make_link(struct apply_work *w, const char *tmp, struct stat *out_st) MUST_CHECK;
int apply_make_dir(struct apply_work *w, int dir_fd, const char *name, uint32_t mode) MUST_CHECK;

void apply_hook(const struct apply_work *w, enum apply_point at, const char *name);
/* Append to the applied table: what is at @path now (@st), or that it is gone (NULL). */
int apply_note(struct apply_work *w, struct span path, const struct stat *st,
               const struct hash *h) MUST_CHECK;

/* --- apply_journal.c: text lines, the last one may be cut --- */

int journal_plan(int fd, const uint32_t *slots, size_t n) MUST_CHECK;
int journal_temp(int fd, uint32_t slot, const char *tmp) MUST_CHECK;
int journal_swap(int fd, uint32_t slot, const char *tmp, uint64_t ino, struct span path) MUST_CHECK;
int journal_over(int fd, uint32_t slot) MUST_CHECK;
int journal_clear(int fd) MUST_CHECK;

struct journal {
	uint32_t *plan; /* slots */
	size_t n_plan;
	bool open, swap; /* a step was under way, and it had got to the swap */
	bool made_open;  /* and before it, for the same change, a temporary thing was made */
	char made[COMPARE_TMP_LEN + 1];
	uint32_t slot;
	char tmp[COMPARE_TMP_LEN + 1];
	uint64_t ino;
	struct buf path; /* where the thing under tmp was, for a swap */
};
enum { JOURNAL_MAX = 256 * 1024 * 1024 };
/* Pure; what cannot be understood ends it. */
void journal_parse(struct journal *out, struct span text);
void journal_fini(struct journal *j);

#endif
