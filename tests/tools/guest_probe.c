/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_probe.c - what a test in a guest needs beyond a shell: system calls by
 * name, and the kinds of files no shell makes. Static, so it runs in any image.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <pty.h>
#include <unistd.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

static long do_socket(long family)
{
	return socket((int)family, SOCK_DGRAM, 0) < 0 && errno == EPERM ? -1 : 0;
}

static long raw(long nr)
{
	return syscall(nr, 0, 0, 0, 0, 0, 0);
}

static long do_mount(long x)
{
	(void)x;
	return mount("none", "/tmp", "tmpfs", 0, NULL);
}

static long do_ptrace(long x)
{
	return ptrace(PTRACE_ATTACH, (pid_t)x, 0, 0);
}

static long do_clone(long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid < 0 ? -1 : 0;
}

static const struct {
	const char *name;
	long (*fn)(long);
	long arg;
} calls[] = {
	{ "mount", do_mount, 0 },
	{ "umount2", raw, SYS_umount2 },
	{ "pivot_root", raw, SYS_pivot_root },
	{ "chroot", raw, SYS_chroot },
	{ "fsopen", raw, SYS_fsopen },
	{ "open_tree", raw, SYS_open_tree },
	{ "move_mount", raw, SYS_move_mount },
	{ "unshare", raw, SYS_unshare },
	{ "setns", raw, SYS_setns },
	{ "perf_event_open", raw, SYS_perf_event_open },
	{ "userfaultfd", raw, SYS_userfaultfd },
	{ "personality", raw, SYS_personality },
	{ "keyctl", raw, SYS_keyctl },
	{ "add_key", raw, SYS_add_key },
	{ "kcmp", raw, SYS_kcmp },
	{ "swapon", raw, SYS_swapon },
	{ "acct", raw, SYS_acct },
	{ "quotactl", raw, SYS_quotactl },
	{ "settimeofday", raw, SYS_settimeofday },
	{ "reboot", raw, SYS_reboot },
	{ "newuser", do_clone, CLONE_NEWUSER },
	{ "newns", do_clone, CLONE_NEWNS },
	{ "netlink", do_socket, AF_NETLINK },
	{ "packet", do_socket, AF_PACKET },
	{ "alg", do_socket, AF_ALG },
	{ "vsock", do_socket, AF_VSOCK },
	{ "io_uring_setup", raw, SYS_io_uring_setup },
	{ "clone3", raw, SYS_clone3 },
	{ "ptrace", do_ptrace, 1 },
	{ "process_vm_readv", raw, SYS_process_vm_readv },
	{ "bpf", raw, SYS_bpf },
	{ "seccomp", raw, SYS_seccomp },
	{ "kexec_load", raw, SYS_kexec_load },
	{ "finit_module", raw, SYS_finit_module },
	/* these must go on */
	{ "clone", do_clone, 0 },
	{ "inet", do_socket, AF_INET },
	{ "unix", do_socket, AF_UNIX },
	{ "landlock", raw, 444 /* landlock_create_ruleset: EINVAL or EFAULT */ },
};

/* name=killed, name=ok or name=errno for each call, in a child of its own */
static int deny(void)
{
	for (size_t i = 0; i < N(calls); i++) {
		int st;
		pid_t pid = fork();
		if (pid == 0)
			_exit(calls[i].fn(calls[i].arg) < 0 ? errno : 0);
		if (waitpid(pid, &st, 0) < 0)
			return 1;
		if (WIFSIGNALED(st))
			printf("%s=killed%d\n", calls[i].name, WTERMSIG(st));
		else if (WEXITSTATUS(st))
			printf("%s=%s\n", calls[i].name, strerrorname_np(WEXITSTATUS(st)));
		else
			printf("%s=ok\n", calls[i].name);
	}
	return 0;
}

static int do_pty(void)
{
	int m, s;
	char b[16];

	if (openpty(&m, &s, NULL, NULL, NULL) < 0 || write(s, "x", 1) != 1 || read(m, b, 16) != 1)
		return 1;
	printf("%s\n", ttyname(s));
	return 0;
}

static _Noreturn void eat(void)
{
	for (;;) {
		char *p = malloc(1 << 20);
		if (p)
			memset(p, 1, 1 << 20);
	}
}

static int make_socket(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(a.sun_path, path, sizeof(a.sun_path) - 1);
	return bind(s, (struct sockaddr *)&a, sizeof(a)) < 0;
}

static int map_write(const char *path)
{
	int fd = open(path, O_RDWR);
	char *p = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return 1;
	p[0] = 'M';
	return 0;
}

/* folders nested below the working directory, with a file in the deepest */
static int nest(int depth, size_t len)
{
	char name[256];

	memset(name, 'n', len);
	name[len] = '\0';
	for (int i = 0; i < depth; i++) {
		if (mkdir(name, 0755) < 0 || chdir(name) < 0)
			return 1;
	}
	return close(open("leaf", O_CREAT | O_WRONLY, 0644)) < 0;
}

/* @n short-lived children, each with a child of its own that is left behind */
static int breed(int n)
{
	for (int i = 0; i < n; i++) {
		int st;
		pid_t pid = fork();
		if (pid == 0) {
			if (fork() == 0)
				_exit(1);
			_exit(i % 200);
		}
		if (pid < 0 || waitpid(pid, &st, 0) != pid || WEXITSTATUS(st) != i % 200)
			return 1;
	}
	return 0;
}

/* descriptors until there are none, then processes */
static int exhaust(void)
{
	int pipes = 0, forks = 0, p[2];

	while (pipe(p) == 0)
		pipes++;
	for (;;) {
		pid_t pid = fork();
		if (pid < 0)
			break;
		if (pid == 0) {
			(void)pause();
			_exit(0);
		}
		forks++;
	}
	printf("%d %d %s\n", pipes, forks, strerrorname_np(errno));
	fflush(stdout);
	return 0;
}

/* As an agent confines itself: by landlock, to @dir; what is beside it must be shut then. */
static int own_sandbox(const char *dir, const char *beside)
{
	struct {
		uint64_t fs;
	} rules = { .fs = 1 << 2 /* READ_FILE */ | 1 << 3 /* READ_DIR */ };
	struct {
		uint64_t allowed;
		int32_t fd;
	} __attribute__((packed)) below = { .allowed = rules.fs, .fd = open(dir, O_PATH) };
	int set = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
	char in[4096];

	if (set < 0 || below.fd < 0 || syscall(SYS_landlock_add_rule, set, 1, &below, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_landlock_restrict_self, set, 0) < 0) {
		perror("landlock");
		return 1;
	}
	snprintf(in, sizeof(in), "%s/in", dir);
	int ok = open(in, O_RDONLY), no = open(beside, O_RDONLY);
	printf("inside %s, beside %s\n", ok < 0 ? strerrorname_np(errno) : "ok",
	       no < 0 ? strerrorname_np(errno) : "ok");
	return ok < 0 || no >= 0;
}

int main(int argc, char **argv)
{
	const char *w = argc > 1 ? argv[1] : "";

	if (strcmp(w, "deny") == 0)
		return deny();
	if (strcmp(w, "mount") == 0)
		return mount("none", "/mnt", "tmpfs", 0, NULL) < 0;
	if (strcmp(w, "pty") == 0)
		return do_pty();
	if (strcmp(w, "eat") == 0)
		eat();
	if (strcmp(w, "socket") == 0 && argc > 2)
		return make_socket(argv[2]);
	if (strcmp(w, "mmap") == 0 && argc > 2)
		return map_write(argv[2]);
	if (strcmp(w, "nest") == 0 && argc > 3)
		return nest(atoi(argv[2]), (size_t)atoi(argv[3]));
	if (strcmp(w, "breed") == 0 && argc > 2)
		return breed(atoi(argv[2]));
	if (strcmp(w, "sandbox") == 0 && argc > 3)
		return own_sandbox(argv[2], argv[3]);
	if (strcmp(w, "exhaust") == 0)
		return exhaust();
	return 2;
}
