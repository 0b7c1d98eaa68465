/* SPDX-License-Identifier: Apache-2.0 */
#include "super/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"

enum {
	SPAWN_FD_FIRST = 10, /* project folders are 10, 11, … in the child */
	SPAWN_FDS_MAX = 32,
	SPAWN_ARGS_MAX = 2 * (MSG_PROJECTS_MAX + SPAWN_EXCLUDES_MAX) + 32,
	/* 1 TiB of sparse virtual disk: larger than the image of any project we take */
	SPAWN_DISK_BYTES_LOG2 = 40,
};

struct args {
	char *own[SPAWN_ARGS_MAX]; /* every word, malloc'd */
	size_t n;
	struct proc_fd fds[SPAWN_FDS_MAX];
	size_t n_fds;
};

static void args_fini(struct args *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->own[i]);
}

static void add(struct args *a, char *word)
{
	ASSERT(a->n + 1 < SPAWN_ARGS_MAX);
	a->own[a->n++] = word;
}

static int give(struct args *a, int fd)
{
	ASSERT(a->n_fds < SPAWN_FDS_MAX);
	int to = SPAWN_FD_FIRST + (int)a->n_fds;
	a->fds[a->n_fds++] = (struct proc_fd){ .from = fd, .to = to };
	return to;
}

static void add_uid(struct args *a, uid_t uid)
{
	if (!uid)
		return;
	add(a, xstrdup("--uid"));
	add(a, xasprintf("%u", (unsigned)uid));
}

static void add_fd(struct args *a, const char *option, int fd)
{
	if (fd < 0)
		return;
	add(a, xstrdup(option));
	add(a, xasprintf("%d", give(a, fd)));
}

static int run_with(struct proc *out, int *out_stderr, const char *program, struct args *a,
                    bool lives_on, struct err *err)
{
	AUTO_FREE char *dir = proc_self_dir();
	AUTO_FREE char *path = xasprintf("%s/%s", dir, program);
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_errno(err, "cannot create a pipe");
	AUTO_CLOSE int rd = p[0];
	AUTO_CLOSE int wr = p[1];
	a->fds[a->n_fds++] = (struct proc_fd){ .from = wr, .to = 2 };
	a->own[a->n] = NULL;
	struct proc_spec spec = {
		.path = path,
		.argv = (const char *const *)a->own,
		.fds = a->fds,
		.n_fds = a->n_fds,
		.keep_on_parent_death = lives_on,
		.new_session = lives_on,
	};
	int r = proc_spawn(out, &spec, err);
	if (r == 0)
		*out_stderr = take_fd(&rd);
	return r;
}

static int run(struct proc *out, int *out_stderr, const char *program, struct args *a,
               struct err *err)
{
	return run_with(out, out_stderr, program, a, false, err);
}

/* Our own folders may lie inside the project: never part of the image. */
static void skip_dir(struct args *a, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return;
	add(a, xstrdup("--skip-dev-ino"));
	add(a,
	    xasprintf("%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino));
}

int spawn_scan(struct proc *out, int *out_stderr, const struct spawn_scan *s, struct err *err)
{
	struct args a = { 0 };

	if (s->n_projects > SPAWN_FDS_MAX - 8)
		return err_set(err, -E2BIG, "more than %d projects in one sandbox",
		               SPAWN_FDS_MAX - 8);
	add(&a, xstrdup("cloche-scan"));
	for (size_t i = 0; i < s->n_projects; i++) {
		add(&a, xstrdup("--project"));
		add(&a, xasprintf("%s=%d", s->projects[i].name, give(&a, s->fds[i])));
	}
	add(&a, xstrdup("--manifest"));
	add(&a, xasprintf("%d", give(&a, s->manifest_fd)));
	add(&a, xstrdup("--meta"));
	add(&a, xasprintf("%d", give(&a, s->meta_fd)));
	if (s->report_fd >= 0) {
		add(&a, xstrdup("--report"));
		add(&a, xasprintf("%d", give(&a, s->report_fd)));
	}
	for (size_t i = 0; i < s->n_exclude; i++) {
		add(&a, xstrdup("--exclude"));
		add(&a, xstrdup(s->exclude[i]));
	}
	if (s->heavy)
		add(&a, xstrdup("--heavy"));
	skip_dir(&a, s->dirs->state);
	skip_dir(&a, s->dirs->cache);
	add_uid(&a, s->uid);
	int r = run(out, out_stderr, "cloche-scan", &a, err);
	args_fini(&a);
	return r;
}

int spawn_repository(struct proc *out, int *out_stderr, int in_fd, int lines_fd, uid_t uid,
                     struct err *err)
{
	struct args a = { 0 };

	add(&a, xstrdup("cloche-scan"));
	add(&a, xstrdup("--repository"));
	add(&a, xasprintf("%d", give(&a, in_fd)));
	add(&a, xasprintf("%d", give(&a, lines_fd)));
	add(&a, xasprintf("%u", (unsigned)uid));
	int r = run(out, out_stderr, "cloche-scan", &a, err);
	args_fini(&a);
	return r;
}

int spawn_disk(struct proc *out, int *out_stderr, const struct spawn_disk *s, struct err *err)
{
	struct args a = { 0 };

	add(&a, xstrdup("cloche-disk"));
	add(&a, xstrdup("--nbd"));
	add(&a, xasprintf("%d", give(&a, s->nbd_fd)));
	add(&a, xstrdup("--control"));
	add(&a, xasprintf("%d", give(&a, s->control_fd)));
	for (size_t i = 0; i < s->n_projects; i++) {
		add(&a, xstrdup("--workspace"));
		add(&a, xasprintf("%d", give(&a, s->fds[i])));
	}
	add(&a, xstrdup("--cache"));
	add(&a, xasprintf("%d", give(&a, s->cache_fd)));
	add(&a, xstrdup("--size"));
	add(&a, xasprintf("%llu", 1ull << SPAWN_DISK_BYTES_LOG2));
	add_uid(&a, s->uid);
	if (s->moved) {
		add(&a, xstrdup("--moved"));
		add(&a, xstrdup("1"));
	}
	int r = run(out, out_stderr, "cloche-disk", &a, err);
	args_fini(&a);
	return r;
}

int spawn_net(struct proc *out, int *out_stderr, const struct spawn_net *s, struct err *err)
{
	struct args a = { 0 };
	const uint8_t *m = s->mac;
	char text[IP4_NET_STR_BYTES];

	add(&a, xstrdup("cloche-net"));
	add_fd(&a, "--frames", s->frames_fd);
	add_fd(&a, "--relay", s->relay_fd);
	add_fd(&a, "--switch", s->switch_fd);
	add_fd(&a, "--log", s->log_fd);
	add(&a, xstrdup("--name"));
	add(&a, xstrdup(s->name));
	add(&a, xstrdup("--address"));
	add(&a, xstrdup(ip4_str(text, s->address)));
	add(&a, xstrdup("--mac"));
	add(&a, xasprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]));
	add(&a, xstrdup("--profile"));
	add(&a, xstrdup(s->profile));
	for (size_t i = 0; i < s->n_privates; i++) {
		add(&a, xstrdup("--allow-private"));
		add(&a, xstrdup(ip4_net_str(text, s->privates[i])));
	}
	if (s->search) {
		add(&a, xstrdup("--search"));
		add(&a, xstrdup(s->search));
	}
	add_uid(&a, s->uid);
	int r = run(out, out_stderr, "cloche-net", &a, err);
	args_fini(&a);
	return r;
}

int spawn_relay(struct proc *out, int *out_stderr, const struct spawn_relay *s, struct err *err)
{
	struct args a = { 0 };

	add(&a, xstrdup("cloche-relay"));
	add_fd(&a, "--net", s->net_fd);
	add_fd(&a, "--control", s->control_fd);
	add_fd(&a, "--keeper", s->keeper_fd);
	add_fd(&a, "--worker", s->worker_fd);
	add_fd(&a, "--policy", s->policy_fd);
	add_fd(&a, "--events", s->events_fd);
	add_fd(&a, "--log", s->log_fd);
	add_uid(&a, s->uid);
	int r = run(out, out_stderr, "cloche-relay", &a, err);
	args_fini(&a);
	return r;
}

int spawn_keeper(struct proc *out, int *out_stderr, const struct spawn_keeper *s, struct err *err)
{
	struct args a = { 0 };

	add(&a, xstrdup("cloche-keeper"));
	add_fd(&a, "--relay", s->relay_fd);
	add_fd(&a, "--log", s->log_fd);
	add_uid(&a, s->uid);
	int r = run(out, out_stderr, "cloche-keeper", &a, err);
	args_fini(&a);
	return r;
}

int spawn_switch(struct proc *out, int *out_stderr, const struct spawn_switch *s, struct err *err)
{
	struct args a = { 0 };

	add(&a, xstrdup("cloche-switch"));
	add_fd(&a, "--listen", s->listen_fd);
	add_fd(&a, "--map", s->map_fd);
	add_fd(&a, "--log", s->log_fd);
	add_uid(&a, s->uid);
	int r = run_with(out, out_stderr, "cloche-switch", &a, true, err);
	args_fini(&a);
	return r;
}
