/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - the way back, worker side: takes the guest's change stream and
 * stages it as a change set.
 *
 * Fed with the bytes of the export channel. Every record is parsed, checked
 * against the walk and the limits, re-encoded and stored. cloche-disk is asked for
 * the hash of a changed file's baseline: one that is equal is an unchanged copy and
 * is not fetched, another is noted in the set, so that a file that is restored from
 * a backup is known again. Memory does not grow
 * with the change: what must be remembered a record (hash, size) goes to an
 * unlinked file.
 */
#ifndef CLOCHE_SUPER_EXPORT_H
#define CLOCHE_SUPER_EXPORT_H

#include "base/hash.h"
#include "manifest/manifest.h"
#include "review/changeset.h"
#include "wire/msg.h"

struct export;

struct export_ops {
	/* ask for the hash of a baseline entry; the answer comes by export_hash(), in order */
	int (*ask_hash)(void *arg, uint32_t entry);
	/* index is complete and decided: send these to the guest as WANT */
	int (*want)(void *arg, const struct msg_range *r, uint32_t n, bool last);
	/* nothing was wanted or the last blob is in: it is on disk for changeset_adopt() */
	int (*done)(void *arg, const char *id, uint32_t records, uint64_t bytes);
	void *arg;
};

struct export_opts {
	int staging_fd;                  /* borrowed */
	const struct manifest *manifest; /* NULL: no baseline is known, everything is fetched */
	const char *id;                  /* of the set */
	bool recovered;                  /* after a crash: empty files are suspect */
	uint32_t records_max;
	uint64_t bytes_max;
};

int export_new(struct export **out, const struct export_opts *o, const struct export_ops *ops,
               struct err *err) MUST_CHECK;
/* Gives up what is not finished; accepts NULL. */
void export_free(struct export *x);

/*
 * export_feed() - bytes of the stream.
 * Return: 0; -EAGAIN when it waits for hashes: feed nothing more until
 * export_hash() returned 0 (the bytes were taken); -EPROTO, -EFBIG, -ENOSPC, -errno
 * with @err. After such an error the export is dead: nothing more of it is taken or
 * committed, and each call answers that error again.
 */
int export_feed(struct export *x, struct span bytes, struct err *err) MUST_CHECK;

/*
 * The answer to the oldest question, which was for @entry: @code 0 with the hash, or -errno
 * (fetch it then). As export_feed(); -EPROTO for an answer to no question of ours.
 */
int export_hash(struct export *x, uint32_t entry, int code, const struct hash *h,
                struct err *err) MUST_CHECK;
/* Nobody answers any more: whatever was asked is fetched instead. As export_feed(). */
int export_no_hashes(struct export *x, struct err *err) MUST_CHECK;
/*
 * The guest has answered EXPORT, or a want(): what belonged to it is all there, and the (next)
 * want() may go out. The guest's answer comes after its bytes, which were fed before.
 * Return: as export_feed().
 */
int export_answered(struct export *x, struct err *err) MUST_CHECK;
/* What can be done about a limit that was met: @code is -EFBIG or -ENAMETOOLONG. */
void export_limit_hint(const char *sandbox, int code, struct err *err);
/* Questions without an answer. */
size_t export_asked(const struct export *x);

#endif
