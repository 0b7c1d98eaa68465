/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - what the workspace disk holds: the image's metadata, and each file's
 * data as it was when the tree was scanned.
 *
 * A file is in one of three states. Live: data comes from the workspace, checked
 * against the manifest before and after each read. Frozen: a checked copy lies in
 * the cache at the offset it has in the image. Changed: the host changed it before
 * that; it has no data any more. A file never leaves the last two.
 *
 * What the check cannot see: a write within the same tick of the file system's
 * clock as the scan, and one through a shared mapping whose page was dirty before.
 */
#ifndef CLOCHE_DISK_STORE_H
#define CLOCHE_DISK_STORE_H

#include <sys/types.h>

#include "base/util.h"

struct err;
struct store;
struct disk_stats;

/*
 * store_new() - a store without an image.
 * @workspaces:	directories, in the order of the manifest's projects; borrowed
 * @cache:	a file for frozen data, read and written; borrowed
 * @size:	bytes of the disk
 */
struct store *store_new(const int *workspaces, size_t n_workspaces, int cache,
                        uint64_t size) MUST_CHECK;
void store_free(struct store *s);

/*
 * store_allow_moved() - take the image although a workspace is not what was
 * scanned: moved, restored, or its device renumbered by a reboot. Each file is still
 * compared before a byte of it is served, so what differs is -ESTALE.
 */
void store_allow_moved(struct store *s);

/*
 * store_open() - take the image.
 * @manifest, @meta:	taken on success
 *
 * Return: 0; -EALREADY, -ESTALE when the workspaces are not those of the
 * manifest, -EFBIG when the image is larger than the disk, -EPROTO, -errno.
 */
int store_open(struct store *s, int manifest, int meta, struct err *err) MUST_CHECK;
bool store_is_open(const struct store *s);

/* Bytes of the disk, all of them or an error: 0, -ESTALE for changed files, -errno. */
int store_read(struct store *s, uint64_t offset, void *buf, size_t len) MUST_CHECK;

/*
 * Bytes of a regular file of the manifest, as they were. Return: how many (0 at
 * the end of the file); -EAGAIN without an image, -EINVAL for what is no such
 * file, -ESTALE, -errno.
 */
ssize_t store_read_entry(struct store *s, uint32_t entry, uint64_t offset, void *buf,
                         size_t len) MUST_CHECK;

/*
 * store_freeze_step() - copy about STORE_STEP_BYTES into the cache.
 * Return: 1 when there is more to do, 0 when all is done, -ENOSPC below the
 * reserve of the cache's file system, or -errno of the cache: no sense to go on.
 */
enum { STORE_STEP_BYTES = 1024 * 1024, STORE_STEP_FILES = 32, STORE_RESERVE_PERCENT = 5 };
int store_freeze_step(struct store *s) MUST_CHECK;

/* A changed file that was not given out before. Return: its entry, or MANIFEST_NONE. */
uint32_t store_next_changed(struct store *s);

/* The part of @out that the store knows; the rest stays. */
void store_stats(const struct store *s, struct disk_stats *out);

#endif
