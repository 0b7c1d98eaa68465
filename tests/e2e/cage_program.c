/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cage_program CLOCHE-CAGE - what a program started by cloche-cage finds.
 * The caged program is this one again, with the argument "inside".
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/proc.h"
#include "cage/cage.h"

enum { NOBODY = 65534, HELPER_UID = 0x7f000123, INSIDE_FD = 10, CANNOT_TRY = 77 };

static char self[4096];
static const char *cage;

/* ---- inside ------------------------------------------------------------- */

/* Return: 0, or the number of the line that found the cage open. */
static int inside(const char *own_path, bool empty_root)
{
	static const char *const hidden[] = { "/etc/passwd", "/root",         "/home", "/proc/self",
		                              "/sys/kernel", "/usr/bin/true", "/tmp" };
	struct rlimit r;
	char b[8];

	for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
		size_t n = strlen(hidden[i]);
		/* the folders down to this program itself are there, empty but for it */
		if (strncmp(own_path, hidden[i], n) == 0 && own_path[n] == '/')
			continue;
		if (open(hidden[i], O_RDONLY | O_CLOEXEC) >= 0)
			return __LINE__;
		if (empty_root && access(hidden[i], F_OK) == 0)
			return __LINE__;
	}
	if (open("/usr/lib/new", O_CREAT | O_WRONLY | O_CLOEXEC, 0644) >= 0 ||
	    open("/new", O_CREAT | O_WRONLY | O_CLOEXEC, 0644) >= 0)
		return __LINE__;
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	AUTO_CLOSE int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	if (null < 0 || random < 0 || read(random, b, sizeof(b)) != sizeof(b))
		return __LINE__;
	if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EPERM ||
	    socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EPERM)
		return __LINE__;
	if (syscall(SYS_fork) >= 0 || kill(getppid(), 0) == 0 || kill(-1, 0) == 0)
		return __LINE__;
	char *const argv[] = { (char *)(uintptr_t) "/usr/bin/true", NULL };
	(void)execv(argv[0], argv);
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return __LINE__;
	if (getrlimit(RLIMIT_CORE, &r) < 0 || r.rlim_max > 1)
		return __LINE__;
	if (empty_root) {
		DIR *d = opendir("/");

		/* not readable under landlock; else exactly what was bound, and the way to it */
		for (struct dirent *e; d && (e = readdir(d));) {
			size_t n = strlen(e->d_name);

			if (strncmp(own_path + 1, e->d_name, n) == 0 && own_path[1 + n] == '/')
				continue;
			if (strcmp(e->d_name, "home") == 0 || strcmp(e->d_name, "root") == 0)
				return __LINE__;
		}
	}
	return 0;
}

/* ---- outside ------------------------------------------------------------ */

enum who { AS_HELPER, AS_ROOT, AS_USER, WHOS };

static bool possible(enum who who)
{
	return geteuid() == 0 || who == AS_USER;
}

/* May everybody come to @path? The caged program is another user there. */
static bool for_everybody(const char *path)
{
	char p[sizeof(self)];
	struct stat st;

	(void)snprintf(p, sizeof(p), "%s", path);
	for (char *s; (s = strrchr(p, '/')) && s != p;) {
		*s = '\0';
		if (stat(p, &st) < 0 || !(st.st_mode & S_IXOTH))
			return false;
	}
	return true;
}

/* In a child of the test: run cloche-cage, answer its status. */
static int caged(enum who who, const char *mode, unsigned skip, int pass_fd, bool wait_for_it)
{
	char uid[16], bits[16];
	const char *argv[] = { cage, "--role", "qemu", "--skip", bits, "--uid",
		               uid,  "--",     self,   mode,     NULL };
	struct proc_fd fds[] = { { 2, 2 }, { pass_fd, INSIDE_FD } };
	struct proc_spec spec = {
		.path = cage, .argv = argv, .fds = fds, .n_fds = pass_fd < 0 ? 1 : 2
	};
	struct proc p;
	struct err err;
	int status;

	(void)snprintf(uid, sizeof(uid), "%u", who == AS_HELPER ? HELPER_UID : 0);
	(void)snprintf(bits, sizeof(bits), "%u", skip);
	if (who == AS_USER && geteuid() == 0 &&
	    (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return 250;
	if (access(cage, X_OK) < 0 || access(self, X_OK) < 0 ||
	    (who == AS_HELPER && !for_everybody(self)))
		return CANNOT_TRY; /* the build folder is not for everybody */
	if (proc_spawn(&p, &spec, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.text);
		return 251;
	}
	if (!wait_for_it)
		return 0;
	if (proc_wait(&p, 60 * 1000, &status) < 0)
		return 252;
	return proc_shell_status(status);
}

static int in_child(enum who who, const char *mode, unsigned skip)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(caged(who, mode, skip, -1, true));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 253;
}

static void test_inside(void **state UNUSED)
{
	struct cage_probe p;
	int bad = 0;

	assert_int_equal(cage_probe(&p), 0);
	for (unsigned who = 0; who < WHOS; who++) {
		const unsigned ns = CAGE_USERNS | CAGE_MOUNTNS | CAGE_NETNS | CAGE_IPCNS;
		const struct {
			const char *mode;
			unsigned skip;
		} t[] = {
			{ "inside-empty", 0 },
			{ "inside-empty", CAGE_LANDLOCK },
			{ "inside", ns },
		};

		if (!possible((enum who)who))
			continue;
		for (size_t i = 0; i < ARRAY_LEN(t); i++) {
			unsigned left = p.layers & ~t[i].skip;

			if (!(left & (CAGE_LANDLOCK | CAGE_MOUNTNS)) ||
			    (!t[i].skip && !(left & CAGE_MOUNTNS)))
				continue; /* not to be had here */
			int r = in_child((enum who)who, t[i].mode, t[i].skip);
			if (r == 0 || r == CANNOT_TRY)
				continue;
			bad++;
			print_error("user kind %u, layers left out %#x: status %d\n", who,
			            t[i].skip, r);
		}
	}
	assert_int_equal(bad, 0);
}

static void test_dies_with_parent(void **state UNUSED)
{
	for (unsigned who = 0; who < WHOS; who++) {
		int sv[2], status;
		char c;

		if (!possible((enum who)who))
			continue;
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
		/* the parent of the caged one is a child that ends at once */
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			(void)close(sv[0]);
			int r = caged((enum who)who, "wait", 0, sv[1], false);
			if (r == 0)
				(void)sleep(60); /* ended by the test, when the caged one runs */
			_exit(r);
		}
		(void)close(sv[1]);
		(void)alarm(60);
		ssize_t n = read(sv[0], &c, 1);
		if (n == 1)
			(void)kill(pid, SIGKILL); /* ours, not reaped yet */
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (n == 1)
			assert_int_equal(read(sv[0], &c, 1), 0);
		else
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_TRY);
		(void)alarm(0);
		(void)close(sv[0]);
	}
}

static void test_refusals(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		const char *argv[8];
	} t[] = {
		{ "nothing", 125, { "c", NULL } },
		{ "no role", 125, { "c", "--", "/usr/bin/true", NULL } },
		{ "another role", 125, { "c", "--role", "scan", "--", "/usr/bin/true", NULL } },
		{ "no program", 125, { "c", "--role", "qemu", "--", NULL } },
		{ "a relative program", 125, { "c", "--role", "qemu", "--", "true", NULL } },
		{ "an option of tomorrow",
		  125,
		  { "c", "--role", "qemu", "--x", "y", "--", "/a", NULL } },
		{ "a program that is not there",
		  125,
		  { "c", "--role", "qemu", "--", "/nonexistent", NULL } },
		{ "a path that is not there",
		  125,
		  { "c", "--role", "qemu", "--ro", "/nonexistent", "--", "/usr/bin/true", NULL } },
		{ "an optional one",
		  0,
		  { "c", "--role", "qemu", "--ro", "?/nonexistent", "--", "/usr/bin/true", NULL } },
		{ "its status", 1, { "c", "--role", "qemu", "--", "/usr/bin/false", NULL } },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct proc_spec spec = { .path = cage, .argv = t[i].argv };
		struct proc p;
		struct err err;
		int status;

		assert_int_equal(proc_spawn(&p, &spec, &err), 0);
		assert_int_equal(proc_wait(&p, 60 * 1000, &status), 0);
		if (proc_shell_status(status) != t[i].want)
			fail_msg("%s: %d", t[i].why, proc_shell_status(status));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_inside),
		cmocka_unit_test(test_dies_with_parent),
	};

	if (argc == 2 && strncmp(argv[1], "inside", 6) == 0) {
		int line = inside(argv[0], strcmp(argv[1], "inside-empty") == 0);

		if (line)
			(void)fprintf(stderr, "inside: line %d\n", line);
		return line ? 1 : 0;
	}
	if (argc == 2 && strcmp(argv[1], "wait") == 0) {
		(void)!write(INSIDE_FD, "r", 1);
		for (;;)
			(void)pause();
	}
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (argc != 2 || n <= 0)
		return 2;
	self[n] = '\0';
	cage = realpath(argv[1], NULL); /* lives as long as the process */
	if (!cage)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
