/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.h - what a change set would do to the projects.
 *
 * One pass over the index beside the manifest, both mapped: the cost follows
 * the change, never the tree. The result is a list in path order. Host files
 * are not looked at here (apply.h verifies them), so the same set always gives
 * the same list, and the slots of its statuses stay right.
 *
 * What is not a change: a record that equals the baseline (a copy that the
 * overlay made), a directory that was only walked through, a whiteout of
 * something that the guest could not see. What is hidden or absent in the
 * manifest is never deleted, and a directory that holds such a thing is never
 * removed: deleting it deletes what the guest saw.
 */
#ifndef CLOCHE_REVIEW_COMPARE_H
#define CLOCHE_REVIEW_COMPARE_H

#include "review/changeset.h"
#include "review/classify.h"

enum compare_kind {
	COMPARE_ADDED = 1,
	COMPARE_MODIFIED, /* content, or a link's text */
	COMPARE_DELETED,  /* a directory: with all that the guest saw below it */
	COMPARE_MODE,     /* x bits only */
	COMPARE_TYPE,     /* file, directory or link became another of these */
};

enum {                           /* bits of flags */
       COMPARE_IGNORED = 1 << 0, /* by the baseline's ignore rules: set aside, --ignored applies */
       COMPARE_GIT = 1 << 1,     /* .git or below: kept, counted, never applied */
       COMPARE_REFUSED = 1 << 2, /* never applied; `why` says the reason */
       COMPARE_SUSPECT = 1 << 3, /* zero length after a crash of the machine */
       COMPARE_BREAKS_LINK =
	       1 << 4,             /* the host's file has other names, which keep the old content */
       COMPARE_KEEPS_DIR = 1 << 5, /* deleted directory holds hidden names and stays */
       COMPARE_NO_BLOB = 1 << 6,   /* content is the baseline's (mode only) */
       COMPARE_SETID = 1 << 7,     /* the guest set setuid, setgid or sticky: not carried */
       COMPARE_VIRTUAL = 1 << 8,   /* a deletion without a record: below an opaque directory */
       COMPARE_TRACKED = 1 << 9,   /* the project's git tracks it */
};

enum compare_why {
	COMPARE_WHY_NONE = 0,
	COMPARE_WHY_SECRET,     /* its name matches a security pattern */
	COMPARE_WHY_HIDDEN,     /* the host has something there that the guest could not see */
	COMPARE_WHY_SPECIAL,    /* a fifo, socket or device */
	COMPARE_WHY_NO_PROJECT, /* beside the projects */
	COMPARE_WHY_NO_CONTENT, /* the set does not hold its content */
	COMPARE_WHY_NAME,       /* a name of our own temporary files */
	COMPARE_WHY_BELOW,      /* lies below something that is refused */
};

enum { COMPARE_NONE = 0xffffffff, COMPARE_NO_PROJECT = 0xffff };

/* One change, worked out on demand from the compact list. */
struct compare_change {
	uint32_t slot;              /* of its status */
	uint32_t ordinal;           /* its record; COMPARE_NONE for a virtual deletion */
	uint32_t entry;             /* in the manifest; MANIFEST_NONE when it is new there */
	uint16_t project;           /* or COMPARE_NO_PROJECT */
	uint8_t kind;               /* enum compare_kind */
	uint8_t why;                /* enum compare_why */
	uint8_t old_type, new_type; /* enum manifest_kind; 0: nothing */
	uint8_t tier;               /* enum classify_tier */
	uint8_t status;             /* enum changeset_status, now */
	uint16_t flags;
	const char *reason; /* of the tier; constant */
	uint32_t old_mode, new_mode;
	uint64_t old_size, new_size;
	int64_t new_mtime_ns;
	uint32_t subtree; /* deleted or refused directory: entries below it */
	uint32_t renamed; /* index of the other half of a rename, or COMPARE_NONE; for display */
	struct hash hash; /* FILE: new content */
	struct span link, old_link; /* borrowed */
	struct manifest_entry base; /* when entry is one; as the applied table corrects it */
	bool base_applied;          /* an earlier set wrote it: base and base_hash are from there */
	bool base_hash_known;
	struct hash base_hash;
};

struct compare_git {
	uint32_t paths, objects, refs; /* files; objects below objects/, names below refs/ */
	uint32_t deleted;
	bool head, index, config, hooks; /* touched */
	char ref[8][128];                /* the first few names, made visible */
	uint32_t n_ref;
};

struct compare_summary {
	uint32_t added, modified, deleted, mode, type; /* changes that may be applied */
	uint32_t tier1, tier2;
	uint32_t ignored, refused, suspect;
	uint32_t mode_not_carried; /* r or w bits only */
	uint32_t unchanged;        /* records that equal the baseline */
	uint32_t beside;           /* paths beside the projects */
	struct compare_git git;
};

struct compare;

/*
 * compare_new() - work out the list.
 * @s:		borrowed as long as the result lives
 * @applied:	`applied` tables of the sets of the same sandbox, oldest first; borrowed
 *
 * Return: 0; -ENOMEM; -ENODATA when the set's contents are gone (changeset_retain()).
 */
int compare_new(struct compare **out, const struct changeset *s, const struct span *applied,
                size_t n_applied, struct err *err) MUST_CHECK;
void compare_free(struct compare *c);

/* Changes in path order, ignored and refused ones included; those of .git are only counted. */
uint32_t compare_count(const struct compare *c);
void compare_get(const struct compare *c, uint32_t i, struct compare_change *out);
/* Path below the project appended to @b ("" never). 0 or -ENOMEM. */
int compare_path(const struct compare *c, uint32_t i, struct buf *b) MUST_CHECK;
void compare_summary(const struct compare *c, struct compare_summary *out);
/* Statuses as they are now, counted. */
void compare_counts(const struct compare *c, struct changeset_counts *out);
/* One above the highest slot in use. */
uint32_t compare_slots(const struct compare *c);

/*
 * compare_parent_mode() - the mode that the guest gave to a directory above change @i.
 * @depth:	1 is the topmost below the project
 */
uint32_t compare_parent_mode(const struct compare *c, uint32_t i, uint32_t depth);

/*
 * compare_baseline_at() - what the baseline has at @path: @entry of the manifest (or
 * MANIFEST_NONE), as earlier sets changed it. Return: false when nothing is there.
 */
bool compare_baseline_at(const struct compare *c, uint16_t project, struct span path,
                         uint32_t entry, struct manifest_entry *out);

/* Is a directory above change @i itself a change of type (was a file)? Its index, or NONE. */
uint32_t compare_blocker(const struct compare *c, uint32_t i);

/*
 * compare_renames() - pair deleted and added files of equal content, for display.
 * @hash_of:	content hash of deleted change @i on the host; 0, or -errno to leave it alone
 * Files above @max_bytes, and all beyond @max_total bytes, are left alone.
 */
void compare_renames(struct compare *c, int (*hash_of)(void *arg, uint32_t i, struct hash *out),
                     void *arg, uint64_t max_bytes, uint64_t max_total);

const char *compare_why_str(uint8_t why);
char compare_letter(uint8_t kind); /* A M D m T */

#endif
