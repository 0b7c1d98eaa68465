/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - the way back, worker side: takes the guest's change stream and
 * stages it as a change set.
 *
 * Fed with the bytes of the export channel. Every record is parsed, checked
 * against the walk and the limits, re-encoded and stored. A file whose
 * baseline has the same size may be an unchanged copy: cloche-disk is asked for
 * the baseline's hash, and only what differs is fetched. Memory does not grow
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
	/* nothing was wanted or the last blob is in: the set is on disk in staging */
	int (*done)(void *arg, const char *id, uint32_t records, uint64_t bytes);
	void *arg;
};

struct export_opts {
	int staging_fd;                  /* borrowed */
	int manifest_fd;                 /* borrowed; copied into the set */
	const struct manifest *manifest; /* NULL: no baseline is known, everything is fetched */
	struct changeset_meta meta;
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
 * with @err.
 */
int export_feed(struct export *x, struct span bytes, struct err *err) MUST_CHECK;

/* The guest said that its index is complete: only now it takes a WANT. As export_hash(). */
int export_index_done(struct export *x, struct err *err) MUST_CHECK;

/* The answer to the oldest question: @code 0 with the hash, or -errno (fetch it then). */
int export_hash(struct export *x, int code, const struct hash *h, struct err *err) MUST_CHECK;

#endif
