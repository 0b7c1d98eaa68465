/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"

bool path_name_ok(struct span s)
{
	if (s.len == 0 || s.len > PATH_NAME_MAX)
		return false;
	if (memchr(s.p, '/', s.len) || memchr(s.p, '\0', s.len))
		return false;
	return !(s.p[0] == '.' && (s.len == 1 || (s.len == 2 && s.p[1] == '.')));
}

int path_check(struct span s)
{
	int depth = 0;

	if (s.len == 0)
		return -EINVAL;
	if (s.len > PATH_BYTES_MAX)
		return -ENAMETOOLONG;
	for (;;) {
		const uint8_t *slash = memchr(s.p, '/', s.len);
		size_t n = slash ? (size_t)(slash - s.p) : s.len;

		if (n > PATH_NAME_MAX)
			return -ENAMETOOLONG;
		if (!path_name_ok(span_of(s.p, n)))
			return -EINVAL;
		if (++depth > PATH_DEPTH_MAX)
			return -ENAMETOOLONG;
		if (!slash)
			return depth;
		s.p += n + 1;
		s.len -= n + 1;
	}
}

static size_t last_slash(struct span s)
{
	for (size_t i = s.len; i-- > 0;) {
		if (s.p[i] == '/')
			return i;
	}
	return SIZE_MAX;
}

struct span path_base(struct span s)
{
	size_t i = last_slash(s);

	return i == SIZE_MAX ? s : span_of(s.p + i + 1, s.len - i - 1);
}

struct span path_parent(struct span s)
{
	size_t i = last_slash(s);

	return i == SIZE_MAX ? span_of(s.p, 0) : span_of(s.p, i);
}

static int open_beneath(int dirfd, const char *name, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
		.mode = (flags & O_CREAT) ? mode & 07777 : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	for (int tries = 0;; tries++) {
		long fd = syscall(SYS_openat2, dirfd, name, &how, sizeof(how));
		if (fd >= 0)
			return (int)fd;
		/* EAGAIN: a rename raced with RESOLVE_BENEATH, see openat2(2) */
		if (errno != EINTR && (errno != EAGAIN || tries > 100))
			return -errno;
	}
}

/*
 * Walk in pieces that fit PATH_MAX. Every piece is opened beneath the one
 * before, so the whole stays beneath @dirfd.
 */
int path_open(int dirfd, struct span path, int flags, mode_t mode)
{
	AUTO_CLOSE int at = -1;
	char piece[PATH_MAX];
	int r = path_check(path);

	if (r < 0)
		return r;
	while (path.len >= sizeof(piece)) {
		size_t n = sizeof(piece) - 1;
		while (path.p[n] != '/')
			n--;
		memcpy(piece, path.p, n);
		piece[n] = '\0';
		int next = open_beneath(at < 0 ? dirfd : at, piece, O_PATH | O_DIRECTORY, 0);
		if (next < 0)
			return next;
		auto_close_(&at);
		at = next;
		path.p += n + 1;
		path.len -= n + 1;
	}
	memcpy(piece, path.p, path.len);
	piece[path.len] = '\0';
	return open_beneath(at < 0 ? dirfd : at, piece, flags, mode);
}

int path_open_dir(int dirfd, struct span path)
{
	if (path.len == 0) {
		int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	return path_open(dirfd, path, O_RDONLY | O_DIRECTORY, 0);
}

int path_mkdirs(int dirfd, struct span path, mode_t mode)
{
	AUTO_CLOSE int at = path_open_dir(dirfd, span_of("", 0));
	char name[PATH_NAME_MAX + 1];
	int r = path.len ? path_check(path) : 0;

	if (at < 0)
		return at;
	if (r < 0)
		return r;
	while (path.len) {
		const uint8_t *slash = memchr(path.p, '/', path.len);
		size_t n = slash ? (size_t)(slash - path.p) : path.len;

		memcpy(name, path.p, n);
		name[n] = '\0';
		if (mkdirat(at, name, mode) < 0 && errno != EEXIST)
			return -errno;
		int next = open_beneath(at, name, O_RDONLY | O_DIRECTORY, 0);
		if (next < 0)
			return next;
		auto_close_(&at);
		at = next;
		n += slash ? 1 : 0;
		path.p += n;
		path.len -= n;
	}
	return take_fd(&at);
}

int path_own_dir(const char *path, int *out_fd, struct err *err)
{
	AUTO_FREE char *p = xstrdup(path);
	struct stat st;

	if (path[0] != '/')
		return err_set(err, -EINVAL, "'%s' is not an absolute path", path);
	for (char *s = p + 1;; s++) {
		if (*s != '/' && *s != '\0')
			continue;
		char c = *s;
		*s = '\0';
		if (mkdir(p, 0700) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return err_errno(err, "cannot create directory '%s'", p);
		*s = c;
		if (c == '\0')
			break;
	}
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, "cannot open directory '%s'", path);
	if (st.st_uid != geteuid())
		return err_set(err, -EPERM, "directory '%s' belongs to user %u, not to you", path,
		               (unsigned)st.st_uid);
	/*
	 * With a umask of 002, as users of Debian 13 have it, their own group may write: that
	 * with their number, which is theirs alone. Nothing needs that here, so it is taken away.
	 */
	if ((st.st_mode & 022) == 020 && st.st_gid == st.st_uid && st.st_uid != 0 &&
	    fchmod(fd, st.st_mode & 07777 & ~020U) == 0)
		st.st_mode &= ~020U;
	if (st.st_mode & 022) {
		err_set(err, -EPERM, "others may write to directory '%s'", path);
		return err_hint(err, "chmod go-w '%s'", path);
	}
	*out_fd = take_fd(&fd);
	return 0;
}

enum { REMOVE_DEPTH_MAX = 4096 };

static int remove_at(int dirfd, const char *name, int depth)
{
	if (unlinkat(dirfd, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM && errno != EACCES)
		return -errno;
	if (depth > REMOVE_DEPTH_MAX)
		return -ELOOP;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && fchmodat(dirfd, name, 0700, 0) == 0)
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *d = fdopendir(fd);
	if (!d) {
		int r = -errno;
		(void)close(fd);
		return r;
	}
	int r = 0;
	for (struct dirent *e; r == 0 && (e = readdir(d));) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = remove_at(fd, e->d_name, depth + 1);
		if (r == -EACCES && fchmod(fd, 0700) == 0) /* an unwritable directory of ours */
			r = remove_at(fd, e->d_name, depth + 1);
	}
	(void)closedir(d); /* only read */
	if (r < 0)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int path_rename_new(int from_fd, const char *from, int to_fd, const char *to)
{
	struct stat st;

	/* rename(2) of anything else would replace a file */
	if (fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (fstatat(to_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (renameat(from_fd, from, to_fd, to) == 0)
		return 0;
	return errno == ENOTEMPTY || errno == ENOTDIR ? -EEXIST : -errno;
}

int path_exchange_dirs(int dirfd, const char *a, const char *b)
{
	char aside[PATH_NAME_MAX + 1];

	if (renameat2(dirfd, a, dirfd, b, RENAME_EXCHANGE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* beside @a, whose name says whose it is to a sweep */
	if (snprintf(aside, sizeof(aside), "%s~", a) >= (int)sizeof(aside))
		return -ENAMETOOLONG;
	int r = path_rename_new(dirfd, b, dirfd, aside);
	if (r < 0)
		return r;
	r = path_rename_new(dirfd, a, dirfd, b);
	if (r < 0) {
		(void)!path_rename_new(dirfd, aside, dirfd, b); /* as it was, if that is possible */
		return r;
	}
	return path_rename_new(dirfd, aside, dirfd, a);
}

int path_remove_tree(int dirfd, const char *name)
{
	int r = remove_at(dirfd, name, 0);

	return r == -ENOENT ? 0 : r;
}
