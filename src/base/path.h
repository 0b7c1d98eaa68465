/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.h - paths that somebody else chose.
 *
 * A relative path from the guest, an image or the repository never reaches
 * open(), rename() or unlink() as a string of several components. Walk to the
 * parent with path_open_dir() (openat2 with RESOLVE_BENEATH, NO_SYMLINKS and
 * NO_MAGICLINKS, openat2(2)), then act on the last component below that fd.
 */
#ifndef CLOCHE_BASE_PATH_H
#define CLOCHE_BASE_PATH_H

#include <sys/types.h>

#include "base/span.h"

struct err;

enum { PATH_NAME_MAX = 255, PATH_BYTES_MAX = 64 * 1024, PATH_DEPTH_MAX = 256 };

/*
 * path_check() - is @s a relative path of ours: components of 1 to 255 bytes
 * joined by single '/', none of them "." or "..", no NUL, within the limits.
 *
 * Return: the number of components, or -EINVAL, -ENAMETOOLONG.
 */
int path_check(struct span s) MUST_CHECK;

/* One component: 1-255 bytes, no '/', no NUL, not "." or "..". */
bool path_name_ok(struct span s);

/* The last component of a checked path, and what is before its '/' (may be empty). */
struct span path_base(struct span s);
struct span path_parent(struct span s);

/*
 * path_open() - open a checked relative path strictly below @dirfd, no symlink
 * followed anywhere. Paths beyond PATH_MAX are walked piecewise.
 * @flags:	open(2) flags; O_CLOEXEC and O_NOFOLLOW are added
 *
 * Return: a descriptor the caller closes, or -errno; -ELOOP for a symlink and
 * -EXDEV for an escape.
 */
int path_open(int dirfd, struct span path, int flags, mode_t mode) MUST_CHECK;

/* The directory @path ("" is @dirfd itself, duplicated). Return: fd or -errno. */
int path_open_dir(int dirfd, struct span path) MUST_CHECK;

/*
 * path_mkdirs() - create what is missing of @path below @dirfd.
 * Return: fd of the last directory, or -errno.
 */
int path_mkdirs(int dirfd, struct span path, mode_t mode) MUST_CHECK;

/*
 * path_own_dir() - create and open a directory of our own by absolute path
 * (0700, parents included), and check that it is ours and not writable by others. Of a user's
 * own group (the one with the user's number) the right to write is taken away.
 */
int path_own_dir(const char *path, int *out_fd, struct err *err) MUST_CHECK;

/*
 * path_rename_new() - rename a directory to a name that is not taken. Where the file system
 * has no RENAME_NOREPLACE (NFS, some of FUSE), by a look and rename(2), which replaces nothing
 * but an empty directory. Return: 0; -EEXIST; -ENOTDIR for what is no directory; -errno.
 */
int path_rename_new(int from_fd, const char *from, int to_fd, const char *to) MUST_CHECK;

/*
 * path_exchange_dirs() - two directories of @dirfd change their names. Where the file system
 * has no RENAME_EXCHANGE in three steps, with a moment in which @b is not there; the caller's
 * lock keeps others away. Return: 0 or -errno.
 */
int path_exchange_dirs(int dirfd, const char *a, const char *b) MUST_CHECK;

/* Remove @name below @dirfd with all below it, never following a link. 0 or -errno. */
int path_remove_tree(int dirfd, const char *name) MUST_CHECK;

#endif
