/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/close_range.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"

enum { CHILD_FD_BASE = 256, CHILD_FDS_MAX = 128 };

/* In the child: only async-signal-safe calls until exec. */
NORETURN static void child_main(const struct proc_spec *s, int report, pid_t parent)
{
	static const char *const no_env[] = { NULL };
	sigset_t none;
	int e;

	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL); /* KILL and STOP refuse, as they should */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (!s->keep_on_parent_death) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(127); /* it died before the line above */
	}
	if (s->new_session)
		(void)setsid();
	/* first all out of the way, then down to the wanted numbers */
	int rep = fcntl(report, F_DUPFD_CLOEXEC, CHILD_FD_BASE + CHILD_FDS_MAX);
	if (rep < 0)
		goto fail;
	report = rep;
	int high[CHILD_FDS_MAX];
	for (size_t i = 0; i < s->n_fds; i++) {
		high[i] = fcntl(s->fds[i].from, F_DUPFD_CLOEXEC, CHILD_FD_BASE);
		if (high[i] < 0)
			goto fail;
	}
	bool std[3] = { false };
	for (size_t i = 0; i < s->n_fds; i++) {
		if (dup2(high[i], s->fds[i].to) < 0)
			goto fail;
		if (s->fds[i].to < 3)
			std[s->fds[i].to] = true;
	}
	for (int i = 0; i < 3; i++) {
		if (std[i])
			continue;
		int n = open("/dev/null", i ? O_WRONLY : O_RDONLY);
		if (n < 0 || (n != i && dup2(n, i) < 0))
			goto fail;
		if (n != i)
			(void)close(n); /* the copy counts */
	}
	/* everything above the listed numbers goes at exec */
	for (int fd = 3; fd < CHILD_FD_BASE; fd++) {
		bool keep = false;
		for (size_t i = 0; i < s->n_fds; i++)
			keep |= s->fds[i].to == fd;
		if (!keep)
			(void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* EBADF: not open */
	}
	if (syscall(SYS_close_range, CHILD_FD_BASE, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		goto fail;
	if (chdir(s->cwd ? s->cwd : "/") < 0)
		goto fail;
	if (s->set_ids && (setgroups(0, NULL) < 0 || setresgid(s->gid, s->gid, s->gid) < 0 ||
	                   setresuid(s->uid, s->uid, s->uid) < 0))
		goto fail;
	if (s->set_ids && !s->keep_on_parent_death)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of uid cleared it */
	(void)execve(s->path, (char *const *)(uintptr_t)s->argv,
	             (char *const *)(uintptr_t)(s->envp ? s->envp : no_env));
fail:
	e = errno;
	(void)!write(report, &e, sizeof(e)); /* the parent reads EOF otherwise */
	_exit(127);
}

int proc_spawn(struct proc *out, const struct proc_spec *spec, struct err *err)
{
	int report[2];
	sigset_t all, old;

	ASSERT(spec->n_fds <= CHILD_FDS_MAX);
	for (size_t i = 0; i < spec->n_fds; i++)
		ASSERT(spec->fds[i].to >= 0 && spec->fds[i].to < CHILD_FD_BASE);
	if (pipe2(report, O_CLOEXEC) < 0)
		return err_errno(err, "cannot start '%s'", spec->path);
	pid_t parent = getpid();
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old); /* no handler runs in the child */
	pid_t pid = fork();
	if (pid == 0)
		child_main(spec, report[1], parent);
	int fork_errno = errno;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	(void)close(report[1]); /* so that exec's close is the end of the pipe */
	if (pid < 0) {
		(void)close(report[0]); /* unused */
		errno = fork_errno;
		return err_errno(err, "cannot start '%s'", spec->path);
	}
	int child_errno = 0;
	int r = fd_read_exact(report[0], &child_errno, sizeof(child_errno));
	(void)close(report[0]); /* read to its end */
	if (r == 0) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		errno = child_errno;
		return err_errno(err, "cannot start '%s'", spec->path);
	}
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) {
		r = err_errno(err, "cannot watch '%s'", spec->path);
		(void)kill(pid, SIGKILL); /* ours and not reaped, so the pid is right */
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return r;
	}
	*out = (struct proc){ .pid = pid, .pidfd = pidfd };
	return 0;
}

int proc_wait(struct proc *p, int timeout_ms, int *out_status)
{
	struct pollfd pf = { .fd = p->pidfd, .events = POLLIN };
	struct rusage ru = { 0 };
	int status = 0;

	if (p->pidfd < 0)
		return -ECHILD;
	int r = poll(&pf, 1, timeout_ms);
	if (r < 0)
		return -errno;
	if (r == 0)
		return -ETIMEDOUT;
	while (wait4(p->pid, &status, 0, &ru) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	auto_close_(&p->pidfd);
	*p = (struct proc){
		.pid = 0,
		.pidfd = -1,
		.cpu_us = (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000 +
		          (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec),
		.rss_max = (uint64_t)ru.ru_maxrss * 1024,
	};
	if (out_status)
		*out_status = status;
	return 0;
}

int proc_signal(const struct proc *p, int sig)
{
	if (p->pidfd < 0)
		return -ESRCH;
	return syscall(SYS_pidfd_send_signal, p->pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

void proc_end(struct proc *p, int grace_ms)
{
	if (p->pidfd < 0 || p->pid <= 0)
		return;
	if (grace_ms > 0 && proc_signal(p, SIGTERM) == 0 && proc_wait(p, grace_ms, NULL) == 0)
		return;
	(void)proc_signal(p, SIGKILL); /* gone already: reaped below */
	while (proc_wait(p, -1, NULL) == -EINTR)
		;
}

int proc_shell_status(int wait_status)
{
	if (WIFEXITED(wait_status))
		return WEXITSTATUS(wait_status);
	return 128 + WTERMSIG(wait_status);
}

int proc_find_program(const char *name, char **out)
{
	static const char *const dirs[] = { "/usr/bin",     "/bin",           "/usr/sbin",
		                            "/sbin",        "/usr/local/bin", "/usr/libexec",
		                            "/usr/lib/qemu" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		AUTO_FREE char *p = xasprintf("%s/%s", dirs[i], name);
		if (access(p, X_OK) == 0) {
			*out = take_ptr(&p);
			return 0;
		}
	}
	return -ENOENT;
}

char *proc_self_dir(void)
{
	char p[4096];
	ssize_t n = readlink("/proc/self/exe", p, sizeof(p) - 1);

	if (n <= 0)
		return xstrdup("/usr/bin");
	p[n] = '\0';
	char *slash = strrchr(p, '/');
	if (slash && slash != p)
		*slash = '\0';
	return xstrdup(p);
}
