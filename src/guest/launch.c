/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last steps of a process of the agent, in the child: identity, filter,
 * folder, program. Its descriptors 0 to 2, its session and its terminal are set
 * up before (session.c).
 *
 * A login session runs sh, which reads /etc/profile and then becomes this
 * program again (from a descriptor, since it lies in no folder that the session
 * sees); that puts the request's environment back over what the profile made of
 * it and becomes the command. So no word passes through a shell's parser.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "guest/filter.h"
#include "guest/guest.h"

enum {
	FD_EXE = 8,
	FD_ENV = 9,
	NOFILE_SOFT = 1024,
	NOFILE_HARD = 512 * 1024,
	CAP_NUMBERS = 64,
	EXIT_NOT_EXECUTABLE = 126,
	EXIT_NOT_FOUND = 127,
};

static const char default_path[] = "/usr/local/bin:/usr/bin:/bin";

/* Tell PID 1 why there will be no program. */
static NORETURN PRINTF_FMT(3, 4) void fail(int report, int code, const char *fmt, ...)
{
	struct launch_fail f = { .code = code };
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(f.what, sizeof(f.what), fmt, ap);
	va_end(ap);
	(void)!write(report, &f, sizeof(f)); /* atomic: below PIPE_BUF */
	_exit(EXIT_NOT_EXECUTABLE);
}

/* Become the program; what a shell would say and answer when there is none. */
static NORETURN void become(char **argv, char **env)
{
	environ = env;
	if (!getenv("PATH"))
		(void)setenv("PATH", default_path, 1);
	(void)execvp(argv[0], argv);
	int e = errno;
	bool absent = e == ENOENT || e == ENOTDIR;

	(void)dprintf(2, "cloche: %s: %s\n", argv[0], absent ? "not found" : strerror(e));
	_exit(absent ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { 0 } };

	return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

static void set_identity(const struct launch *l)
{
	uid_t uid = l->privileged ? 0 : l->uid;
	gid_t gid = l->privileged ? 0 : l->gid;
	bool confined = !l->privileged && !l->sudo;

	/* EINVAL: beyond the last capability of this kernel */
	for (int c = 0; confined && c < CAP_NUMBERS; c++) {
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EINVAL)
			fail(l->report, -errno, "cannot drop capabilities");
	}
	gid_t all[1 + ACCOUNT_GROUPS_MAX] = { gid };
	size_t n = 1;

	for (size_t i = 0; i < l->n_groups && n < ARRAY_LEN(all); i++)
		all[n++] = l->groups[i];
	if (setgroups(n, all) < 0 || setresgid(gid, gid, gid) < 0)
		fail(l->report, -errno, "cannot become group %u", gid);
	if (setresuid(uid, uid, uid) < 0)
		fail(l->report, -errno, "cannot become user %u", uid);
	if (!confined)
		return;
	int r = drop_capabilities(); /* uid 0 without MSG_EXEC_ROOT still has them */
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	if (r == 0)
		r = filter_enter();
	if (r < 0)
		fail(l->report, r, "cannot confine the process");
}

static void set_limits(void)
{
	const struct rlimit files = { NOFILE_SOFT, NOFILE_HARD }, core = { 0, 0 };

	(void)setrlimit(RLIMIT_NOFILE, &files);
	(void)setrlimit(RLIMIT_CORE, &core);
	(void)umask(022);
	/* ours is exempt from the OOM killer; what the agent runs is not */
	(void)file_put_text(AT_FDCWD, "/proc/self/oom_score_adj", "0");
}

static void reset_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		(void)signal(s, SIG_DFL); /* not for KILL, STOP and the library's own */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* sh -c SCRIPT sh argv... */
static char **login_argv(char **argv)
{
	static const char script[] = "[ -r /etc/profile ] && . /etc/profile\n"
				     "exec /proc/self/fd/8 --launch \"$@\"\n";
	size_t n = 0;

	while (argv[n])
		n++;
	char **v = xcalloc(n + 5, sizeof(*v)); /* in the child: its death is its own */
	v[0] = xstrdup("sh");
	v[1] = xstrdup("-c");
	v[2] = xstrdup(script);
	v[3] = xstrdup("sh");
	for (size_t i = 0; i < n; i++)
		v[4 + i] = argv[i];
	return v;
}

/* @fd under the number @to, open across exec. */
static int place(int fd, int to)
{
	if (fd == to)
		return fd_set_cloexec(fd, false);
	return dup2(fd, to) < 0 ? -errno : 0;
}

void launch_child(const struct launch *l)
{
	bool login = l->login && access("/bin/sh", X_OK) == 0;

	if (l->cgroup >= 0)
		(void)file_put_text(l->cgroup, "cgroup.procs", "0");
	set_limits();
	reset_signals();
	/* above both numbers, so that no one is overwritten before it is placed */
	int report = fcntl(l->report, F_DUPFD_CLOEXEC, FD_ENV + 1);
	int exe = login ? fcntl(l->exe, F_DUPFD_CLOEXEC, FD_ENV + 1) : -1;
	int env_fd = login ? fcntl(l->env_fd, F_DUPFD_CLOEXEC, FD_ENV + 1) : -1;
	if (report < 0 || (login && (exe < 0 || env_fd < 0)))
		fail(l->report, -errno, "cannot pass descriptors");
	for (int fd = 3; fd <= FD_ENV; fd++)
		(void)close(fd);
	if (login && (place(exe, FD_EXE) < 0 || place(env_fd, FD_ENV) < 0))
		fail(report, -errno, "cannot pass descriptors");
	/* all of ours are close-on-exec; this is for what a mistake may leave */
	(void)syscall(SYS_close_range, FD_ENV + 1, ~0u, CLOSE_RANGE_CLOEXEC);
	set_identity(l);
	if (chdir(l->cwd) < 0)
		fail(report, -errno, "cannot enter '%s'", l->cwd);
	if (login) {
		char **v = login_argv(l->argv);
		environ = l->env;
		(void)execv("/bin/sh", v);
		fail(report, -errno, "cannot run /bin/sh");
	}
	become(l->argv, l->env);
}

int launch_pack_env(char **env)
{
	AUTO_CLOSE int fd = fd_memfd("env");

	if (fd < 0)
		return fd;
	for (; env && *env; env++) {
		int r = fd_write_all(fd, *env, strlen(*env) + 1);
		if (r < 0)
			return r;
	}
	return take_fd(&fd);
}

static bool has_part(const char *path, const char *part, size_t n)
{
	for (;;) {
		size_t k = strcspn(path, ":");
		if (k == n && memcmp(path, part, n) == 0)
			return true;
		if (!path[k])
			return false;
		path += k + 1;
	}
}

/* The request's PATH, and behind it what the profile has that it lacks. */
static char *merge_path(const char *ours, const char *profile)
{
	char *out = xstrdup(ours);

	while (profile && *profile) {
		size_t n = strcspn(profile, ":");
		if (n > 0 && !has_part(out, profile, n)) {
			char *longer = xasprintf("%s:%.*s", out, (int)n, profile);
			free(out);
			out = longer;
		}
		profile += n + (profile[n] == ':');
	}
	return out;
}

int launch_main(int argc, char **argv)
{
	enum { ENV_MAX = GUEST_WORDS_BYTES_MAX + GUEST_WORDS_MAX };
	char *text = NULL;
	size_t len = 0;

	if (argc < 3 || lseek(FD_ENV, 0, SEEK_SET) < 0 ||
	    fd_read_file(FD_ENV, ENV_MAX, &text, &len) < 0) {
		(void)dprintf(2, "cloche-init: this program is the first process of a guest\n");
		return EXIT_NOT_EXECUTABLE;
	}
	(void)close(FD_EXE);
	(void)close(FD_ENV);
	/* what the shell made for itself */
	(void)unsetenv("_");
	(void)unsetenv("SHLVL");
	(void)unsetenv("OLDPWD");
	for (char *p = text; p < text + len; p += strlen(p) + 1) {
		if (strncmp(p, "PATH=", 5) == 0)
			(void)setenv("PATH", merge_path(p + 5, getenv("PATH")), 1);
		else
			(void)putenv(p); /* stays ours until exec */
	}
	become(argv + 2, environ);
}
