/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gitindex.h - names and flags of a git index, and a copy with more of them skipped.
 *
 * Reads versions 2, 3 and 4 (git: Documentation/gitformat-index.txt) of SHA-1
 * and SHA-256 repositories. Pure; nothing of an entry but its path, mode and
 * flags is looked at. The trailing checksum is not verified: git itself does
 * not, and a wrong index only makes names untracked.
 */
#ifndef CLOCHE_WORKSPACE_GITINDEX_H
#define CLOCHE_WORKSPACE_GITINDEX_H

#include "base/mem.h"
#include "base/span.h"

enum {
	GITINDEX_BYTES_MAX = 1024 * 1024 * 1024,
	GITINDEX_ENTRIES_MAX = 4 * 1000 * 1000,
	GITINDEX_SHA1 = 20, /* @hash_bytes of the functions below */
	GITINDEX_SHA256 = 32,
};

struct gitindex_entry {
	struct span
		path;  /* valid during the call; relative to the work tree, not checked further */
	uint32_t mode; /* git's: 0100644, 0120000, 0160000 (submodule), 040000 (sparse) */
	uint8_t stage;
	bool skip_worktree;
};

struct gitindex_info {
	uint32_t version, entries;
	bool split;  /* the rest of the entries is in a shared index file */
	bool caches; /* holds extensions that only fit the host (untracked cache, fsmonitor) */
};

/*
 * gitindex_read() - call @fn for every entry.
 *
 * Return: 0; -EPROTO for a malformed file (@fn may have been called for what
 * came before), -EFBIG over a limit, -ENOTSUP for another version, or what @fn returned.
 */
int gitindex_read(struct span file, size_t hash_bytes,
                  int (*fn)(void *arg, const struct gitindex_entry *e), void *arg,
                  struct gitindex_info *out_info) MUST_CHECK;

/*
 * gitindex_skip() - a copy with the skip-worktree flag set where @hidden says so.
 * Extensions that only fit the host are left out. Entries of version 2 become
 * version 3 when one needs the flag. The checksum is made anew.
 *
 * Return: as gitindex_read(), -ENOMEM; @out is appended to on success only.
 */
int gitindex_skip(struct span file, size_t hash_bytes,
                  bool (*hidden)(void *arg, const struct gitindex_entry *e), void *arg,
                  struct buf *out) MUST_CHECK;

#endif
