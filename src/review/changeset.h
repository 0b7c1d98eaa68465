/* SPDX-License-Identifier: Apache-2.0 */
/*
 * changeset.h - a change set on disk.
 *
 * Folder `changes/ID/` (0700), complete from the moment it has its name: it is
 * filled as `changes/.new-ID` and renamed after everything in it was synced.
 *
 *   meta.json   who, when, which projects (struct changeset_meta); rewritten by rename
 *   manifest    the baseline (manifest/manifest.h)
 *   index       the guest's index, checked and re-encoded (wire/change.h), END included
 *   blobs/N     content of the FILE record with ordinal N (decimal), sparse where it had
 *               holes; missing when the content equals the baseline's
 *   status      one byte a record: enum changeset_status; the rest of the set never changes
 *   journal     apply's progress, for a crash in the middle (review/apply.c)
 *   lock        flock while something is applied or decided
 *
 * A name of the guest's is never a name of a file here. The worker writes a
 * set through the functions at the end; everything else only reads, and
 * parses it as input that is not trusted.
 */
#ifndef CLOCHE_REVIEW_CHANGESET_H
#define CLOCHE_REVIEW_CHANGESET_H

#include "base/mem.h"
#include "manifest/manifest.h"
#include "wire/change.h"

struct err;

enum {
	CHANGESET_SCHEMA = 1,
	CHANGESET_ID_MAX = 80, /* project name cut to 64, '-', six base32 characters */
	CHANGESET_META_MAX = 1024 * 1024,
};

enum changeset_status {
	CHANGESET_PENDING = 0,
	CHANGESET_APPLIED = 1,
	CHANGESET_REJECTED = 2,
	CHANGESET_CONFLICT = 3,
};

struct changeset_meta {
	char id[CHANGESET_ID_MAX + 1];
	char agent[65], session[65]; /* "shell", "" */
	char sandbox[65];            /* id of the sandbox it came from */
	int64_t created_s;           /* CLOCK_REALTIME */
	int exit_status;             /* of the command, as a shell reports it; -1 unknown */
	bool recovered;              /* exported after a crash: zero-length files are suspect */
	uint32_t records;            /* in the index, without END */
};

/* Make an id for @project_path: last component, cleaned to [a-z0-9._-], plus random base32. */
void changeset_make_id(char dst[CHANGESET_ID_MAX + 1], const char *project_path);
bool changeset_id_ok(const char *id);

/* --- writing: the worker, below the fd of `changes/`; all relative to it --- */

struct changeset_writer;

/* Create `.new-ID`. Return: 0 or -errno with @err. */
int changeset_begin(struct changeset_writer **out, int changes_fd,
                    const struct changeset_meta *meta, struct err *err) MUST_CHECK;
/* Append one checked index record. */
int changeset_put_record(struct changeset_writer *w, const struct change_record *r,
                         struct err *err) MUST_CHECK;
/* One blob: begin, extents in ascending order, end (sets the size, holes stay holes, verifies
 * that the content's hash is @want: -EBADMSG otherwise). */
int changeset_blob_begin(struct changeset_writer *w, uint32_t ordinal, uint64_t size,
                         const struct hash *want, struct err *err) MUST_CHECK;
int changeset_blob_extent(struct changeset_writer *w, uint64_t offset, struct span bytes,
                          struct err *err) MUST_CHECK;
int changeset_blob_end(struct changeset_writer *w, struct err *err) MUST_CHECK;
/*
 * Sync everything, rename to ID. @manifest_fd is copied (or cloned) in.
 * Frees @w in every case; on failure nothing is left but what a sweep removes.
 */
int changeset_commit(struct changeset_writer *w, int manifest_fd, struct err *err) MUST_CHECK;
void changeset_abort(struct changeset_writer *w);

#endif
