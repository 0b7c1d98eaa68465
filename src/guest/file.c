/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that the host puts into the guest. Folders on the way may belong to the
 * agent, so no link is followed, what is in the place of the file is unlinked
 * instead of opened, and the chunks of one file go to one open descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "guest/guest.h"

int file_put_text(int dirfd, const char *path, const char *text)
{
	AUTO_CLOSE int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	size_t n = strlen(text);

	if (fd < 0)
		return -errno;
	ssize_t k = write(fd, text, n);
	if (k < 0)
		return -errno;
	return (size_t)k == n ? 0 : -EIO;
}

ssize_t file_get_text(int dirfd, const char *path, char *dst, size_t cap)
{
	AUTO_CLOSE int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, dst, cap - 1);
	if (n < 0)
		return -errno;
	dst[n] = '\0';
	return n;
}

void file_close(struct guest *g)
{
	auto_close_(&g->file);
	g->file = -1;
	free(g->file_path);
	g->file_path = NULL;
}

int file_make_dirs(int root, struct span path, uid_t uid, gid_t gid)
{
	AUTO_CLOSE int at = fcntl(root, F_DUPFD_CLOEXEC, 0);

	if (at < 0)
		return -errno;
	while (path.len) {
		const uint8_t *slash = memchr(path.p, '/', path.len);
		size_t n = slash ? (size_t)(slash - path.p) : path.len;
		char name[PATH_NAME_MAX + 1];

		memcpy(name, path.p, n); /* path_check() bounds a component */
		name[n] = '\0';
		bool made = mkdirat(at, name, 0755) == 0;
		if (!made && errno != EEXIST)
			return -errno;
		int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return errno == ENOTDIR ? -ELOOP : -errno;
		(void)close(at);
		at = next;
		if (made && fchown(at, uid, gid) < 0)
			return -errno;
		path = slash ? span_of(slash + 1, path.len - n - 1) : (struct span){ 0 };
	}
	return take_fd(&at);
}

/* Add to the file @name that is there. -ENOENT when there is none. */
static int extend(struct guest *g, int dir, const char *name, struct span bytes)
{
	struct stat st;
	AUTO_CLOSE int fd =
		openat(dir, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	int r = fd_write_all(fd, bytes.p, bytes.len);
	if (r == 0)
		g->file = take_fd(&fd);
	return r;
}

int file_write(struct guest *g, const struct msg *m, struct err *err)
{
	struct span path = span_of(m->file.path.p + 1, m->file.path.len - 1);
	struct span base = path_base(path);
	uid_t uid = user_uid(g, m->file.uid);
	gid_t gid = user_gid(g, m->file.gid);
	char name[PATH_NAME_MAX + 1];
	AUTO_FREE char *shown = strndup((const char *)m->file.path.p, m->file.path.len);
	int r;

	if (!shown)
		return err_set(err, -ENOMEM, "no memory");
	if (m->file.flags & MSG_FILE_APPEND) {
		if (g->file < 0 || strcmp(g->file_path, shown) != 0)
			return err_set(err, -EINVAL, "'%s' is not the file that was begun", shown);
		r = fd_write_all(g->file, m->file.bytes.p, m->file.bytes.len);
		return r < 0 ? err_code(err, r, "cannot write '%s'", shown) : 0;
	}
	file_close(g);
	memcpy(name, base.p, base.len);
	name[base.len] = '\0';
	AUTO_CLOSE int dir = file_make_dirs(g->root, path_parent(path), uid, gid);
	if (dir < 0)
		return err_code(err, dir, "cannot make the folder of '%s'", shown);
	if (m->file.flags & MSG_FILE_DIR) {
		AUTO_CLOSE int d = file_make_dirs(dir, base, uid, gid);
		if (d < 0 || fchown(d, uid, gid) < 0 || fchmod(d, m->file.mode) < 0)
			return err_code(err, d < 0 ? d : -errno, "cannot make '%s'", shown);
		return 0;
	}
	if (m->file.flags & MSG_FILE_EXTEND) {
		r = extend(g, dir, name, m->file.bytes);
		if (r == 0)
			g->file_path = take_ptr(&shown);
		if (r != -ENOENT)
			return r < 0 ? err_code(err, r, "cannot add to '%s'", shown) : 0;
	}
	struct stat st;
	if ((m->file.flags & MSG_FILE_KEEP) && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		/* further chunks of it go nowhere, too */
		AUTO_CLOSE int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		if (null < 0)
			return err_errno(err, "cannot leave '%s' as it is", shown);
		g->file = take_fd(&null);
		g->file_path = take_ptr(&shown);
		return 0;
	}
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return err_errno(err, "cannot replace '%s'", shown);
	AUTO_CLOSE int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(err, "cannot create '%s'", shown);
	r = fd_write_all(fd, m->file.bytes.p, m->file.bytes.len);
	if (r < 0)
		return err_code(err, r, "cannot write '%s'", shown);
	/* the owner first: a change of it takes set-id bits away */
	if (fchown(fd, uid, gid) < 0 || fchmod(fd, m->file.mode) < 0)
		return err_errno(err, "cannot hand over '%s'", shown);
	g->file = take_fd(&fd);
	g->file_path = take_ptr(&shown);
	return 0;
}
