/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared network is one cloche-switch of this user. Whoever starts a sandbox
 * and finds none starts it, and it ends with its last sandbox: so looking for one
 * and starting one happen under a lock, and a switch that ends just then is looked
 * for once more.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cage/cage.h"
#include "net/swjoin.h"
#include "super/netproc_priv.h"
#include "super/spawn.h"

enum { TRIES = 3, BACKLOG = 64, LAST_MS = 100 };

static void on_switch(void *arg UNUSED, struct child *c)
{
	log_info("%s ended", c->name);
}

static int start_switch(struct netproc *n, const struct sockaddr_un *a, struct err *err)
{
	AUTO_FREE char *map = xasprintf("%s/addresses", n->o.state_dir);
	struct spawn_switch s = { .log_fd = n->o.log_fd };
	uint32_t seed;

	(void)unlink(a->sun_path); /* of one that was killed */
	AUTO_CLOSE int l = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (l < 0 || bind(l, (const struct sockaddr *)a, sizeof(*a)) < 0 || listen(l, BACKLOG) < 0)
		return err_errno(err, "cannot listen for the shared network");
	AUTO_CLOSE int map_fd = open(map, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (map_fd < 0)
		return err_errno(err, "cannot open '%s'", map);
	s.listen_fd = l;
	s.map_fd = map_fd;
	if (n->o.uid) { /* not of this sandbox: it outlives it */
		random_bytes(&seed, sizeof(seed));
		int r = cage_uid_pick(seed, &s.uid);
		if (r < 0)
			return err_code(err, r, "cannot find an unprivileged uid");
	}
	child_init(&n->sw, "cloche-switch");
	int r = spawn_switch(&n->sw.p, &n->sw.err_fd, &s, err);
	return r < 0 ? r : child_watch(&n->sw, n->o.l, on_switch, NULL, err);
}

static struct sockaddr_un address(int dir)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/switch.sock", dir);
	return a;
}

static int lock_switch(int dir)
{
	AUTO_CLOSE int lock =
		openat(dir, "switch.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	return lock < 0 || flock(lock, LOCK_EX) < 0 ? -errno : take_fd(&lock);
}

static int reach(struct netproc *n, int dir, int *out, struct err *err)
{
	const struct sockaddr_un a = address(dir);
	AUTO_CLOSE int lock = lock_switch(dir);

	if (lock < 0)
		return err_code(err, lock, "cannot lock the shared network");
	AUTO_CLOSE int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return err_errno(err, "cannot make a socket");
	if (connect(s, (const struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno != ENOENT && errno != ECONNREFUSED)
			return err_errno(err, "cannot reach the shared network");
		int r = start_switch(n, &a, err);
		if (r < 0)
			return r;
		if (connect(s, (const struct sockaddr *)&a, sizeof(a)) < 0)
			return err_errno(err, "cannot reach the shared network");
	}
	*out = take_fd(&s);
	return 0;
}

int netswitch_join(struct netproc *n, int *out_fd, uint32_t *out_addr, struct err *err)
{
	AUTO_CLOSE int dir = net_runtime_dir(true, err);
	int r = dir < 0 ? dir : -ECONNRESET;

	for (int i = 0; i < TRIES && r == -ECONNRESET; i++) {
		AUTO_CLOSE int s = -1;
		*err = (struct err){ 0 };
		r = reach(n, dir, &s, err);
		if (r == 0)
			r = switch_join(s, n->name, 0, n->spec.keep_address, out_addr, err);
		if (r == 0)
			*out_fd = take_fd(&s);
	}
	return r < 0 ? (err_wrap(err, "cannot join the shared network as '%s'", n->name), r) : 0;
}

void netswitch_left(struct netproc *n)
{
	struct err e = { 0 };
	int status;

	if (!n->sw.l)
		return;
	loop_fd_del(n->sw.l, &n->sw.src);
	if (n->sw.running && proc_wait(&n->sw.p, LAST_MS, &status) < 0)
		return; /* others are in it */
	AUTO_CLOSE int dir = net_runtime_dir(false, &e);
	AUTO_CLOSE int lock = dir < 0 ? -1 : lock_switch(dir);
	AUTO_CLOSE int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (lock < 0 || s < 0)
		return;
	const struct sockaddr_un a = address(dir);
	/* not the one of a switch that came after it */
	if (connect(s, (const struct sockaddr *)&a, sizeof(a)) < 0 && errno == ECONNREFUSED)
		(void)unlink(a.sun_path);
}
