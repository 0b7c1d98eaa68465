/* SPDX-License-Identifier: Apache-2.0 */
#include "config/profile_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"

enum { STEP_MS = 20 };

int profile_store_open(struct profile_store *s, const char *dir, struct err *err)
{
	s->dir = xstrdup(dir);
	int r = path_own_dir(dir, &s->dirfd, err);
	if (r < 0)
		return r;
	s->lock_fd = openat(s->dirfd, ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return err_errno(err, "cannot lock '%s'", dir);
	for (int waited = 0; flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0; waited += STEP_MS) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_errno(err, "cannot lock '%s'", dir);
		if (waited >= PROFILE_STORE_WAIT_MS) {
			(void)err_set(err, -EAGAIN,
			              "another cloche is changing the profiles in '%s'", dir);
			return err_hint(err, "try again when it is done");
		}
		const struct timespec step = { .tv_nsec = STEP_MS * 1000000L };
		(void)nanosleep(&step, NULL); /* a signal shortens it */
	}
	return 0;
}

void profile_store_close(struct profile_store *s)
{
	auto_close_(&s->lock_fd);
	auto_close_(&s->dirfd);
	free(s->dir);
	s->dir = NULL;
}

int profile_store_write(const struct profile_store *s, const char *name, struct span text,
                        struct err *err)
{
	AUTO_FREE char *tmp = xasprintf(".%s.%d", name, (int)getpid());
	int r = 0;

	if (!path_name_ok(span_str(name)))
		return err_set(err, -EINVAL, "'%s' is no name of a file", name);
	(void)unlinkat(s->dirfd, tmp, 0); /* of a process that had our number */
	AUTO_CLOSE int fd =
		openat(s->dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_errno(err, "cannot write '%s/%s'", s->dir, name);
	r = fd_write_all(fd, text.p, text.len);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0)
		r = fd_close(&fd);
	if (r == 0 && renameat(s->dirfd, tmp, s->dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(s->dirfd, tmp, 0); /* the error is told already */
		return err_code(err, r, "cannot write '%s/%s'", s->dir, name);
	}
	(void)fsync(s->dirfd); /* the file is whole with either name */
	return 0;
}

int profile_store_remove(const struct profile_store *s, const char *name, struct err *err)
{
	if (unlinkat(s->dirfd, name, 0) < 0)
		return err_errno(err, "cannot remove '%s/%s'", s->dir, name);
	(void)fsync(s->dirfd);
	return 0;
}
