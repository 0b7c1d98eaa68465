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
 *   base        hashes of the baseline's content, for those FILE records where the worker
 *               learned one: it lets a file that was only touched on the host be told
 *               from one that was edited; ordinal u32, hash, ascending; may be missing
 *   status      one byte a change: enum changeset_status. Slot N is record N; the slots behind
 *               are for deletions that have no record (below an opaque directory), numbered by
 *               compare.h in walk order. A file that is shorter than the slot means pending
 *   applied     what apply wrote, so that a later set of the same sandbox compares with it
 *               (struct changeset_applied); only appended to
 *   journal     apply's progress, for a crash in the middle (review/apply.c)
 *   lock        flock while something is applied or decided
 *
 * A name of the guest's is never a name of a file here. The worker, which reads the
 * guest, stages index, base and blobs (changeset_commit() without a manifest); the
 * monitor makes the set of them (changeset_adopt()) and says itself what it knows:
 * which directories the projects are, which manifest is the baseline, whose set it
 * is. So meta.json, manifest and every file that apply writes have never been in
 * reach of a process that reads what a guest sent. Index, base and blobs have, and
 * are parsed as input that is not trusted. What a lie in `base` yields is that an
 * edit of the host whose whole content the liar knows counts as no edit.
 */
#ifndef CLOCHE_REVIEW_CHANGESET_H
#define CLOCHE_REVIEW_CHANGESET_H

#include <sys/types.h>

#include "base/mem.h"
#include "manifest/manifest.h"
#include "wire/change.h"

struct err;

enum {
	CHANGESET_SCHEMA = 1,
	CHANGESET_ID_MAX = 80, /* project name cut to 64, '-', six base32 characters */
	CHANGESET_META_MAX = 1024 * 1024,
	CHANGESET_SETS_MAX = 10 * 1000,             /* in one `changes/` */
	CHANGESET_APPLIED_MAX = 1024 * 1024 * 1024, /* bytes of one `applied` file */
	CHANGESET_KEEP_S = 14 * 24 * 3600,          /* blobs of a closed set */
};

enum changeset_status {
	CHANGESET_PENDING = 0,
	CHANGESET_APPLIED = 1,
	CHANGESET_REJECTED = 2,
	CHANGESET_CONFLICT = 3,
	CHANGESET_STATUS_LAST = CHANGESET_CONFLICT,
};

struct changeset_project {
	char *path; /* absolute host path when it was scanned; bytes, not text */
	uint64_t dev, ino;
};

/* Changes by status; what lies below .git or is ignored is in `aside` only. */
struct changeset_counts {
	uint32_t pending, applied, rejected, conflict, aside;
};

struct changeset_meta {
	char id[CHANGESET_ID_MAX + 1];
	char agent[65], session[65];        /* "shell", "" */
	char sandbox[CHANGESET_ID_MAX + 1]; /* id of the sandbox it came from */
	int64_t created_s;                  /* CLOCK_REALTIME */
	int exit_status;                    /* of the command, as a shell reports it; -1 unknown */
	bool recovered; /* exported after a crash: zero-length files are suspect */
	struct changeset_project *projects; /* as many and in the order of the manifest's */
	uint32_t n_projects;

	/* the rest is kept by this module; a writer leaves it zero */
	struct hash manifest; /* of the file, all of it: another baseline is refused */
	int64_t closed_s; /* 0: something is pending or in conflict, or nobody has counted yet */
	bool counted;     /* `counts` is from the last changeset_settle() */
	struct changeset_counts counts;
};

/* Frees what @m points to, not @m. */
void changeset_meta_fini(struct changeset_meta *m);

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
/* The baseline's content hash of record @ordinal, when known. Ascending; any time before commit. */
int changeset_put_baseline(struct changeset_writer *w, uint32_t ordinal, const struct hash *h,
                           struct err *err) MUST_CHECK;
/*
 * Sync everything, rename to ID. @manifest_fd is copied (or cloned) in; meta's projects are read
 * from it. -1: the set is staged only, for changeset_adopt().
 * Adds END to the index when the last record was not one.
 * Frees @w in every case; on failure nothing is left but what a sweep removes.
 */
int changeset_commit(struct changeset_writer *w, int manifest_fd, struct err *err) MUST_CHECK;
void changeset_abort(struct changeset_writer *w);

/*
 * changeset_adopt() - make a set of what a worker staged, believing none of it.
 * @staged_fd:	folder that the worker committed, on the file system of @changes_fd
 * @meta:	complete, with projects; borrowed
 * @manifest_fd: the baseline, from whoever may say what it is
 *
 * Index and base are copied and the blobs' folder is moved into a folder that the worker has no
 * descriptor of; whatever else it put there stays behind. On failure @staged_fd is as it was.
 * Return: 0; -EEXIST when there is such a set; -ENOENT, -EPROTO when nothing whole is staged.
 */
int changeset_adopt(int changes_fd, int staged_fd, const struct changeset_meta *meta,
                    int manifest_fd, struct err *err) MUST_CHECK;

/*
 * changeset_sweep() - remove `.new-*` whose writer is gone (its flock on the folder is).
 * Return: the number removed, or -errno; one that cannot be removed stays.
 */
int changeset_sweep(int changes_fd);

/* --- the list of sets: cheap, reads meta.json only --- */

struct changeset_list {
	struct changeset_meta *sets; /* oldest first */
	size_t n;
	uint32_t damaged; /* folders whose meta.json is missing or wrong: never touched */
};
int changeset_list(int changes_fd, struct changeset_list *out, struct err *err) MUST_CHECK;
void changeset_list_fini(struct changeset_list *l);

/*
 * changeset_retain() - remove the blobs of sets that were closed CHANGESET_KEEP_S before
 * @now_s. A set that is not closed, or is locked, is never touched.
 * Return: the number of sets that lost theirs, or -errno.
 */
int changeset_retain(int changes_fd, int64_t now_s);

/* --- reading one --- */

/*
 * A set that is open. Its content is checked input: index is a walk (change_walk), manifest
 * was opened. Mapped, not read: what is never looked at costs no memory.
 */
struct changeset {
	int dir_fd;
	struct changeset_meta meta;
	struct span index; /* records up to and with END */
	struct span manifest_map;
	struct manifest manifest;
	struct span base;  /* whole entries only */
	uint32_t records;  /* without END */
	uint8_t *has_blob; /* a bit a record; NULL when there are none */
	bool blobs_gone;   /* removed by changeset_retain() */
	int status_fd;     /* -1 when opened read-only */
	uint8_t *status;   /* slots known at opening, n_status of them; the rest are pending */
	uint32_t n_status;
};

enum { CHANGESET_READONLY = 1 };

/*
 * changeset_open() - open and check set @id of `changes/`.
 * Return: 0; -ENOENT; -EPROTO when it is damaged, -EFBIG over a limit; @err filled.
 */
int changeset_open(struct changeset **out, int changes_fd, const char *id, int flags,
                   struct err *err) MUST_CHECK;
/* The same for an open folder; @dir_fd is taken on success. */
int changeset_open_fd(struct changeset **out, int dir_fd, int flags, struct err *err) MUST_CHECK;
void changeset_close(struct changeset *s);

enum changeset_status changeset_status_get(const struct changeset *s, uint32_t slot);
/* Seen by every reader at once; on the disk after changeset_status_sync(). 0 or -errno. */
int changeset_status_set(struct changeset *s, uint32_t slot, enum changeset_status v) MUST_CHECK;
int changeset_status_sync(struct changeset *s) MUST_CHECK;

/*
 * changeset_settle() - note the counts in meta.json, and since when nothing is open.
 * A set that gets something pending again (a rejected path reviewed again) is reopened.
 */
int changeset_settle(struct changeset *s, const struct changeset_counts *c, int64_t now_s,
                     struct err *err) MUST_CHECK;

/* Blob of FILE record @ordinal, read-only. Return: fd, -ENOENT when it has none, or -errno. */
int changeset_blob_open(const struct changeset *s, uint32_t ordinal) MUST_CHECK;
bool changeset_has_blob(const struct changeset *s, uint32_t ordinal);
/* The baseline's content hash, when known. */
bool changeset_baseline(const struct changeset *s, uint32_t ordinal, struct hash *out);

/*
 * changeset_lock() - take the set's lock, not waiting.
 * Return: an fd to close, -EWOULDBLOCK when another process decides or applies, or -errno.
 */
int changeset_lock(int dir_fd) MUST_CHECK;

/* --- what was applied --- */

struct changeset_applied {
	uint16_t project;
	uint8_t kind; /* enum manifest_kind; 0: it was deleted */
	uint32_t mode;
	uint64_t size, ino;
	int64_t mtime_ns, ctime_ns;
	struct hash hash; /* files: content; links: of the text */
	struct span path; /* below the project; borrowed */
};

int changeset_applied_put(int fd, const struct changeset_applied *a) MUST_CHECK;
/* The next record of a buffer: 0 with *out_used, -EAGAIN when cut (a crash: ends the table),
 * -EPROTO. Pure. */
int changeset_applied_parse(struct changeset_applied *out, struct span b,
                            size_t *out_used) MUST_CHECK;

#endif
