/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/mem.h"

int fd_close(int *fd)
{
	int r = close(take_fd(fd));

	/* Linux has closed it even after EINTR, and nothing was lost by that */
	return r < 0 && errno != EINTR ? -errno : 0;
}

static int wait_for(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	while (poll(&p, 1, -1) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int fd_write_all(int fd, const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n) {
		ssize_t k = write(fd, b, n);
		if (k > 0) {
			b += k;
			n -= (size_t)k;
			continue;
		}
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno != EAGAIN)
			return -errno;
		int r = wait_for(fd, POLLOUT);
		if (r < 0)
			return r;
	}
	return 0;
}

int fd_pwrite_all(int fd, const void *p, size_t n, off_t off)
{
	const uint8_t *b = p;

	while (n) {
		ssize_t k = pwrite(fd, b, n, off);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return -EIO;
		b += k;
		n -= (size_t)k;
		off += k;
	}
	return 0;
}

int fd_read_exact(int fd, void *p, size_t n)
{
	uint8_t *b = p;

	while (n) {
		ssize_t k = read(fd, b, n);
		if (k > 0) {
			b += k;
			n -= (size_t)k;
			continue;
		}
		if (k == 0)
			return -ENODATA;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		int r = wait_for(fd, POLLIN);
		if (r < 0)
			return r;
	}
	return 0;
}

int fd_pread_exact(int fd, void *p, size_t n, off_t off)
{
	uint8_t *b = p;

	while (n) {
		ssize_t k = pread(fd, b, n, off);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return -ENODATA;
		b += k;
		n -= (size_t)k;
		off += k;
	}
	return 0;
}

int fd_read_file(int fd, size_t max, char **out, size_t *out_len)
{
	size_t cap = 4096, len = 0;
	char *b = malloc(cap);
	int r = -ENOMEM;

	if (!b)
		return -ENOMEM;
	for (;;) {
		if (len + 1 == cap) {
			char *nb = realloc(b, cap * 2);
			if (!nb)
				goto fail;
			b = nb;
			cap *= 2;
		}
		ssize_t k = read(fd, b + len, cap - len - 1);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			r = -errno;
			goto fail;
		}
		if (k == 0)
			break;
		len += (size_t)k;
		if (len > max) {
			r = -EFBIG;
			goto fail;
		}
	}
	b[len] = '\0';
	*out = b;
	if (out_len)
		*out_len = len;
	return 0;
fail:
	free(b);
	return r;
}

static int change_flag(int fd, int get, int set, int flag, bool on)
{
	int f = fcntl(fd, get);

	if (f < 0)
		return -errno;
	return fcntl(fd, set, on ? f | flag : f & ~flag) < 0 ? -errno : 0;
}

int fd_set_nonblock(int fd, bool on)
{
	return change_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_set_cloexec(int fd, bool on)
{
	return change_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

union pass_buf {
	char b[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
	struct cmsghdr align;
};

int fd_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)p, .iov_len = n };
	union pass_buf u = { 0 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds > FD_PASS_MAX || n == 0)
		return -EINVAL;
	if (n_fds) {
		m.msg_control = &u;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	ssize_t k;
	do {
		k = sendmsg(sock, &m, MSG_NOSIGNAL);
	} while (k < 0 && errno == EINTR);
	if (k < 0)
		return -errno;
	if ((size_t)k == n)
		return 0;
	/* a stream socket took a part: the descriptors went with it */
	return fd_write_all(sock, (const char *)p + k, n - (size_t)k);
}

ssize_t fd_recv(int sock, void *p, size_t cap, int *fds, size_t cap_fds, size_t *out_n_fds)
{
	struct iovec iov = { .iov_base = p, .iov_len = cap };
	union pass_buf u = { 0 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof(u)
	};
	size_t got = 0;
	bool too_many = false;
	ssize_t k;

	do {
		k = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	} while (k < 0 && errno == EINTR);
	if (k < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (got < cap_fds) {
				fds[got++] = fd;
			} else {
				(void)close(fd); /* not asked for */
				too_many = true;
			}
		}
	}
	if (too_many || (m.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
		while (got)
			(void)close(fds[--got]); /* refused as a whole */
		return -EPROTO;
	}
	if (out_n_fds)
		*out_n_fds = got;
	return k;
}

int fd_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int copy_range(int from, int to, off_t at, off_t end)
{
	enum { PIECE = 256 * 1024 };
	AUTO_FREE uint8_t *b = xmalloc(PIECE);

	while (at < end) {
		size_t n = (size_t)MIN((off_t)PIECE, end - at);
		int r = fd_pread_exact(from, b, n, at);
		if (r == 0)
			r = fd_pwrite_all(to, b, n, at);
		if (r < 0)
			return r;
		at += (off_t)n;
	}
	return 0;
}

int fd_copy(int from, int to, uint64_t size)
{
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (ftruncate(to, (off_t)size) < 0)
		return -errno;
	off_t at = 0;
	for (;;) {
		at = lseek(from, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno;
		off_t end = lseek(from, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		int r = copy_range(from, to, at, end);
		if (r < 0)
			return r;
		at = end;
	}
}
