/* SPDX-License-Identifier: Apache-2.0 */
#include "super/netctl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "super/net.h"

/* By way of the folder's descriptor: the path of a socket has 108 bytes, a user's may be longer. */
int netctl_address(int dir_fd, const char *id, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){ .sun_family = AF_UNIX };
	int n = snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/%s.net", dir_fd,
	                 id);

	return n > 0 && (size_t)n < sizeof(out->sun_path) && id[0] && id[0] != '.' &&
	                       !strchr(id, '/')
	               ? 0
	               : -EINVAL;
}

static int open_socket(const char *id, int *out, struct err *err)
{
	struct err e = { 0 };
	struct sockaddr_un a;

	AUTO_CLOSE int dir = net_runtime_dir(false, &e);
	if (dir < 0 && dir != -ENOENT) {
		*err = e;
		return dir;
	}
	AUTO_CLOSE int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return err_errno(err, "cannot make a socket");
	if (dir >= 0 && netctl_address(dir, id, &a) < 0)
		return err_set(err, -EINVAL, "'%s' is no name of a sandbox", id);
	if (dir < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (dir >= 0 && errno != ENOENT && errno != ECONNREFUSED)
			return err_errno(err, "cannot reach sandbox '%s'", id);
		return err_set(err, -ENOENT, "sandbox '%s' does not run, or has no network", id);
	}
	*out = take_fd(&s);
	return 0;
}

int netctl_call(const char *id, const struct netctl_msg *req, const int *fds, size_t n_fds,
                struct netctl_msg *out, int *out_fd, struct err *err)
{
	AUTO_CLOSE int s = -1;
	AUTO_CLOSE int got_fd = -1;
	struct netctl_msg a;
	size_t n_got = 0;
	int r = open_socket(id, &s, err);

	if (r < 0)
		return r;
	r = fd_send(s, req, sizeof(*req), fds, n_fds);
	if (r < 0)
		return err_code(err, r, "cannot ask sandbox '%s'", id);
	struct pollfd p = { .fd = s, .events = POLLIN };
	r = poll(&p, 1, NETCTL_WAIT_MS);
	if (r < 0)
		return err_errno(err, "cannot wait for sandbox '%s'", id);
	if (r == 0)
		return err_set(err, -ETIMEDOUT, "sandbox '%s' does not answer", id);
	ssize_t k = fd_recv(s, &a, sizeof(a), &got_fd, 1, &n_got);
	if (k != (ssize_t)sizeof(a) || a.type != NETCTL_ANSWER)
		return err_set(err, k < 0 ? (int)k : -EPIPE, "sandbox '%s' did not answer", id);
	a.text[sizeof(a.text) - 1] = '\0';
	if (a.code < 0)
		return err_set(err, a.code, "%s", a.text[0] ? a.text : strerror(-a.code));
	if (out)
		*out = a;
	if (out_fd)
		*out_fd = take_fd(&got_fd);
	return 0;
}
