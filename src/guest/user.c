/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs the commands in an image of somebody else. The files that say so are the image's; a
 * user that they lack is added to them, on the scratch disk, and gets a home.
 *
 * All files of a project belong to uid 1000 on their disk. For a user with another uid that disk
 * is mounted with an id map (mount_setattr(2)), so that the files are theirs.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "guest/account.h"
#include "guest/guest.h"

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif

/* linux/mount.h has it from 5.12 on; the C library of the build may hide it */
struct idmap_attr {
	uint64_t attr_set, attr_clr, propagation, userns_fd;
};
enum { ATTR_IDMAP = 0x00100000, MOVE_EMPTY_PATH = 4 };

static char *read_list(struct guest *g, const char *path, size_t *out_n)
{
	AUTO_CLOSE int fd = openat(g->root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = malloc(ACCOUNT_FILE_MAX);
	struct stat st;
	size_t n = 0;

	*out_n = 0;
	if (!text || fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return text;
	while (n < ACCOUNT_FILE_MAX) {
		ssize_t k = read(fd, text + n, ACCOUNT_FILE_MAX - n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		n += (size_t)k;
	}
	*out_n = n;
	return text;
}

/* A line more at the end of a file, which is made if it is missing. */
static int add_line(struct guest *g, const char *path, struct span now, const char *line)
{
	AUTO_CLOSE int fd =
		openat(g->root, path,
	               O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (now.len && now.p[now.len - 1] != '\n') {
		int r = fd_write_all(fd, "\n", 1);
		if (r < 0)
			return r;
	}
	return fd_write_all(fd, line, strlen(line));
}

/* So that whoami, git and ssh know who they run as. */
static int list_it(struct guest *g, struct account *a, struct span passwd, struct span group)
{
	char line[2 * ACCOUNT_PATH_MAX + 200];
	int r = 0;

	if (account_has_name(passwd, a->name))
		(void)snprintf(a->name, sizeof(a->name), "agent%u", a->uid);
	(void)mkdirat(g->root, "etc", 0755);
	if (!a->group_there && !account_has_name(group, a->name)) {
		(void)snprintf(line, sizeof(line), "%s:x:%u:\n", a->name, a->gid);
		r = add_line(g, "etc/group", group, line);
	}
	(void)snprintf(line, sizeof(line), "%s:x:%u:%u::%s:%s\n", a->name, a->uid, a->gid, a->home,
	               a->shell);
	return r < 0 ? r : add_line(g, "etc/passwd", passwd, line);
}

static int make_home(struct guest *g, const struct account *a)
{
	struct span path = span_str(a->home + 1);

	if (a->home[1] == '\0')
		return 0; /* "/" */
	if (path_check(path) < 0)
		return -EINVAL;
	int fd = file_make_dirs(g->root, path, a->uid, a->gid);
	if (fd < 0)
		return fd;
	(void)close(fd);
	return 0;
}

int user_set(struct guest *g, const struct msg *m, struct err *err)
{
	struct span home = m->account.home;
	size_t np, ng;
	AUTO_FREE char *passwd = read_list(g, "etc/passwd", &np);
	AUTO_FREE char *group = read_list(g, "etc/group", &ng);
	struct account a;

	if (!passwd || !group)
		return err_set(err, -ENOMEM, "no memory for the image's users");
	int r = account_find(&a, span_of(passwd, np), span_of(group, ng), m->account.user, err);
	if (r < 0)
		return r;
	if (home.len >= sizeof(a.home))
		return err_set(err, -ENAMETOOLONG, "the home directory has too long a name");
	if (home.len) {
		memcpy(a.home, home.p, home.len);
		a.home[home.len] = '\0';
	}
	if (!a.listed) {
		r = list_it(g, &a, span_of(passwd, np), span_of(group, ng));
		if (r < 0)
			return err_code(err, r, "cannot add user %u to the image's users", a.uid);
	}
	r = make_home(g, &a);
	if (r < 0)
		guest_log(g, LOG_WARN, "cannot make the home directory '%s': %s", a.home,
		          strerror(-r));
	if (a.was_root)
		guest_log(g, LOG_INFO, "the image asks for root: commands run as uid %u", a.uid);
	g->account = a;
	g->has_account = true;
	return 0;
}

uint32_t user_uid(const struct guest *g, uint32_t uid)
{
	return g->has_account && uid == ACCOUNT_AGENT_ID ? g->account.uid : uid;
}

uint32_t user_gid(const struct guest *g, uint32_t gid)
{
	return g->has_account && gid == ACCOUNT_AGENT_ID ? g->account.gid : gid;
}

static bool has_var(const struct words *env, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < env->n; i++) {
		if (strncmp(env->v[i], name, n) == 0 && env->v[i][n] == '=')
			return true;
	}
	return false;
}

int user_env(const struct guest *g, struct words *env)
{
	const struct {
		const char *name, *value;
	} t[] = {
		{ "HOME", g->account.home },        { "USER", g->account.name },
		{ "LOGNAME", g->account.name },     { "SHELL", g->account.shell },
		{ "CLOCHE_HOME", g->account.home },
	};

	for (size_t i = 0; g->has_account && i < ARRAY_LEN(t); i++) {
		char text[ACCOUNT_PATH_MAX + 32];
		if (has_var(env, t[i].name))
			continue;
		int n = snprintf(text, sizeof(text), "%s=%s", t[i].name, t[i].value);
		struct span word = span_of(text, (size_t)n);
		int r = words_add(env, &word, 1);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the id map of the workspace --------------------------------------- */

static int put_map(pid_t pid, const char *file, uint32_t to)
{
	char path[64], text[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	(void)snprintf(text, sizeof(text), "%d %u 1\n", ACCOUNT_AGENT_ID, to);
	return file_put_text(AT_FDCWD, path, text);
}

/* A user namespace that maps the agent's ids to those of the account; nobody lives in it. */
static int open_map(const struct account *a)
{
	int ready[2];
	char b = 0;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	AUTO_CLOSE int rd = ready[0];
	AUTO_CLOSE int wr = ready[1];
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) < 0 || write(wr, "", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	auto_close_(&wr);
	int r = read(rd, &b, 1) == 1 ? 0 : -EPERM, fd = -1;
	if (r == 0)
		r = put_map(pid, "uid_map", a->uid);
	if (r == 0)
		r = put_map(pid, "gid_map", a->gid);
	if (r == 0) {
		char path[64];
		(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return r < 0 ? r : fd;
}

int user_map_mount(struct guest *g, const char *from, const char *to)
{
	struct idmap_attr attr = { .attr_set = ATTR_IDMAP };

	AUTO_CLOSE int map = open_map(&g->account);
	if (map < 0)
		return map;
	AUTO_CLOSE int tree =
		(int)syscall(SYS_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0)
		return -errno;
	attr.userns_fd = (uint64_t)map;
	if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
	    (mkdir(to, 0700) < 0 && errno != EEXIST) ||
	    syscall(SYS_move_mount, tree, "", AT_FDCWD, to, MOVE_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}
