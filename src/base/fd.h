/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd.h - descriptors: ownership by scope, whole reads and writes, passing.
 *
 * Every descriptor in this program is close-on-exec from birth; children get
 * theirs by an explicit list (proc.h). Leaf functions: 0 or -errno.
 */
#ifndef CLOCHE_BASE_FD_H
#define CLOCHE_BASE_FD_H

#include <sys/types.h>
#include <unistd.h>

#include "base/util.h"

static inline void auto_close_(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* nothing was written, or fd_close() checked it */
	*fd = -1;                 /* it is called by hand, too: never close a number twice */
}

/* close() at the end of the scope; initialise with -1 or a descriptor */
#define AUTO_CLOSE __attribute__((cleanup(auto_close_)))

static inline int take_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

/* Close a descriptor that was written to: a late I/O error is data loss. Sets *fd = -1. */
int fd_close(int *fd) MUST_CHECK;

/* Write all of it, through EINTR and short writes; a full pipe blocks (poll on EAGAIN). */
int fd_write_all(int fd, const void *p, size_t n) MUST_CHECK;
int fd_pwrite_all(int fd, const void *p, size_t n, off_t off) MUST_CHECK;

/* Read exactly @n bytes. Return: 0, -ENODATA at an early end, or -errno. */
int fd_read_exact(int fd, void *p, size_t n) MUST_CHECK;
int fd_pread_exact(int fd, void *p, size_t n, off_t off) MUST_CHECK;

/* Read a whole small file, at most @max bytes: -EFBIG beyond. *out is malloc'd, NUL-terminated. */
int fd_read_file(int fd, size_t max, char **out, size_t *out_len) MUST_CHECK;

/* Clone or copy the @size bytes of file @from into the empty file @to; holes stay holes. */
int fd_copy(int from, int to, uint64_t size) MUST_CHECK;

int fd_set_nonblock(int fd, bool on) MUST_CHECK;
int fd_set_cloexec(int fd, bool on) MUST_CHECK;

/* One message of up to FD_PASS_MAX descriptors on a unix socket (seqpacket or stream). */
enum { FD_PASS_MAX = 16 };
int fd_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds) MUST_CHECK;

/*
 * fd_recv() - receive one message with descriptors.
 * Received descriptors are close-on-exec and the caller's. More descriptors
 * than @cap_fds, or a cut message, are closed and answer -EPROTO.
 *
 * Return: bytes received (0 at the end of the stream), or -errno.
 */
ssize_t fd_recv(int sock, void *p, size_t cap, int *fds, size_t cap_fds,
                size_t *out_n_fds) MUST_CHECK;

/* An anonymous file (memfd), close-on-exec. Return: fd or -errno. */
int fd_memfd(const char *name) MUST_CHECK;

#endif
