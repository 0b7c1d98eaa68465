/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each row is an act tried by a forked child inside a cage, for each role, with
 * each set of layers that a host may offer, as each kind of user that this run
 * can be: what is killed, what is refused, and what still works.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cage/cage.h"
#include "cage/cage_priv.h"

enum {
	KILLED = -1,     /* by SIGSYS */
	REFUSED = -2,    /* an error of access, or a kill */
	ABORTED = -3,    /* by SIGABRT */
	NOT_KILLED = -4, /* any answer of the kernel */
	NOBODY = 65534,
	HELPER_UID = 0x7f000123,
};

#define R(role) (1U << CAGE_##role)
#define OURS (R(SCAN) | R(DISK) | R(WORKER) | R(IMAGE) | R(APPLY) | R(REVIEW) | NETWORK)
#define NETWORK (R(RELAY) | R(NET) | R(SWITCH))
#define LOOKS (OURS & ~(R(IMAGE) | NETWORK))
#define OFFLINE (OURS & ~R(RELAY))
#define CHANGES (R(WORKER) | R(APPLY))
#define THREADS (R(SCAN) | R(DISK))
#define SOCKETS (R(DISK) | R(WORKER) | NETWORK)

struct env {
	char dir[64];  /* holds "secret" and the workspace "ws" */
	int ws, other; /* other: a directory that is open and not listed */
	int out;       /* a file that is open for writing */
	int sock[2];
	pid_t sibling;
	in_port_t tcp_port; /* of a listener on loopback; network order */
};

static struct env env;

/* ---- acts: 0 or errno --------------------------------------------------- */

static int err_of(long r)
{
	return r < 0 ? errno : 0;
}

static int open_path(const char *path)
{
	return err_of(open(path, O_RDONLY | O_CLOEXEC));
}

static int do_open_outside(void)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/secret", env.dir);
	return open_path(path);
}

static int do_open_passwd(void)
{
	return open_path("/etc/passwd");
}

static int do_open_up(void)
{
	return err_of(openat(env.ws, "../secret", O_RDONLY));
}

static int do_open_up2(void)
{
	struct open_how how = { .flags = O_RDONLY };

	return err_of(syscall(SYS_openat2, env.ws, "../secret", &how, sizeof(how)));
}

static int do_stat_up(void)
{
	struct stat st;

	return err_of(fstatat(env.ws, "../secret", &st, 0));
}

static int do_create_up(void)
{
	return err_of(openat(env.ws, "../new", O_CREAT | O_WRONLY, 0644));
}

static int do_other_dir(void)
{
	return err_of(openat(env.other, "secret", O_RDONLY));
}

static int do_inet(void)
{
	return err_of(socket(AF_INET, SOCK_STREAM, 0));
}

static int do_unix(void)
{
	return err_of(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int do_pair(void)
{
	int sv[2];

	return err_of(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
}

static int do_inet_pair(void)
{
	int sv[2];

	return err_of(socketpair(AF_INET, SOCK_STREAM, 0, sv));
}

static int do_connect(void)
{
	struct sockaddr sa = { .sa_family = AF_UNSPEC };

	return err_of(connect(env.sock[0], &sa, sizeof(sa)));
}

static int do_dial(void)
{
	static const int on = 1;
	static const struct linger now = { .l_onoff = 1 };
	struct sockaddr_in to = { .sin_family = AF_INET,
		                  .sin_port = env.tcp_port,
		                  .sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(to);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int six = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);
	int d = socket(AF_INET, SOCK_DGRAM, 0);

	if (s < 0 || (six < 0 && errno != EAFNOSUPPORT) || d < 0)
		return errno;
	if (setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
	    setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) < 0 ||
	    setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) < 0)
		return errno;
	if (setsockopt(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on)) == 0 ||
	    errno != EPERM)
		return 201;
	if (connect(s, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
		return errno;
	if (connect(d, (struct sockaddr *)&to, sizeof(to)) < 0 ||
	    getsockname(d, (struct sockaddr *)&to, &len) < 0)
		return errno;
	return 0;
}

static int do_raw_socket(void)
{
	return err_of(socket(AF_INET, SOCK_RAW, IPPROTO_TCP));
}

static int do_ping_socket(void)
{
	return err_of(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
}

static int do_packet_socket(void)
{
	return err_of(socket(AF_PACKET, SOCK_DGRAM, 0));
}

static int do_bind(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int s = socket(AF_INET, SOCK_DGRAM, 0); /* Landlock knows of TCP, and refuses that */

	return err_of(bind(s, (struct sockaddr *)&any, sizeof(any)));
}

static int do_listen(void)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);

	return err_of(listen(s, 1));
}

static int do_addresses(void)
{
	struct ifconf c = { 0 };
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	return err_of(ioctl(s, SIOCGIFCONF, &c));
}

static int do_interface(void)
{
	struct ifreq q = { .ifr_name = "lo" };
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	return err_of(ioctl(s, SIOCGIFFLAGS, &q));
}

static int do_other_option(void)
{
	static const int on = 1;
	int s = socket(AF_INET, SOCK_STREAM, 0);

	return err_of(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
}

static int do_exec(void)
{
	char *const argv[] = { (char *)(uintptr_t) "/bin/true", NULL };

	return err_of(execv(argv[0], argv));
}

static int do_ptrace(void)
{
	return err_of(ptrace(PTRACE_ATTACH, env.sibling, NULL, NULL));
}

static int do_vm_read(void)
{
	char b[8];
	struct iovec l = { b, sizeof(b) }, r = { &env, sizeof(b) };

	return err_of(process_vm_readv(env.sibling, &l, 1, &r, 1, 0));
}

static int do_pidfd(void)
{
	return err_of(syscall(SYS_pidfd_open, env.sibling, 0));
}

static int do_pidfd_getfd(void)
{
	return err_of(syscall(SYS_pidfd_getfd, 0, 0, 0));
}

static int do_kill(void)
{
	return err_of(kill(env.sibling, 0));
}

static int do_kill_all(void)
{
	return err_of(kill(-1, 0));
}

static int do_tgkill(void)
{
	return err_of(syscall(SYS_tgkill, env.sibling, env.sibling, 0));
}

static int do_setown(void)
{
	return err_of(fcntl(env.sock[0], F_SETOWN, env.sibling));
}

static int do_limit_other(void)
{
	struct rlimit r;

	return err_of(prlimit(env.sibling, RLIMIT_NOFILE, NULL, &r));
}

static int do_fork(void)
{
	pid_t p = (pid_t)syscall(SYS_fork);

	if (p == 0)
		_exit(0);
	return err_of(p);
}

static int do_unshare(void)
{
	return err_of(syscall(SYS_unshare, 0x10000000 /* CLONE_NEWUSER */));
}

static int do_mount(void)
{
	return err_of(mount("none", "/", "tmpfs", 0, NULL));
}

static int do_code(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int do_dumpable(void)
{
	return err_of(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
}

static int do_uring(void)
{
	return err_of(syscall(SYS_io_uring_setup, 1, NULL));
}

static int do_chmod_path(void)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/secret", env.dir);
	return err_of(chmod(path, 0777));
}

static int do_abort(void)
{
	abort();
}

/* What every program of ours and its C library do. */
static int do_basics(void)
{
	char b[64];
	struct timespec ts;
	struct stat st;
	struct rlimit rl;
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t set;
	time_t now = time(NULL);
	struct tm tm;

	for (size_t i = 0; i < 64; i++) {
		char *p = malloc(i * 4096 + 1);

		if (!p)
			return ENOMEM;
		memset(p, 1, i * 4096 + 1);
		free(p);
	}
	char *big = malloc(64 << 20);
	if (!big)
		return ENOMEM;
	memset(big, 1, 64 << 20);
	big = realloc(big, 32 << 20);
	free(big);
	if (clock_gettime(CLOCK_MONOTONIC, &ts) < 0 || !localtime_r(&now, &tm))
		return 200;
	random_bytes(b, sizeof(b));
	if (strlen(strerror(ENOENT)) == 0)
		return 201;
	int ep = epoll_create1(EPOLL_CLOEXEC), tf = timerfd_create(CLOCK_MONOTONIC, 0),
	    evfd = eventfd(0, EFD_CLOEXEC);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGUSR1);
	int sf = signalfd(-1, &set, SFD_CLOEXEC);
	if (ep < 0 || tf < 0 || evfd < 0 || sf < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, evfd, &ev) < 0 ||
	    epoll_wait(ep, &ev, 1, 0) < 0)
		return errno;
	if (fcntl(env.sock[0], F_SETFL, O_NONBLOCK) < 0 || fstat(env.out, &st) < 0 ||
	    fd_write_all(env.out, b, sizeof(b)) < 0 || fsync(env.out) < 0 ||
	    pwrite(env.out, b, 1, 4096) != 1 || lseek(env.out, 0, SEEK_HOLE) < 0)
		return errno;
	if (writev(env.sock[0], &(struct iovec){ b, 1 }, 1) != 1 || read(env.sock[1], b, 1) != 1)
		return errno;
	FILE *f = fdopen(dup(env.out), "w");
	if (!f || fprintf(f, "%d %s\n", 1, "line") < 0 || fclose(f) != 0)
		return 202;
	if (fcntl(1, F_GETFD) >= 0)
		(void)isatty(1);
	if (getrlimit(RLIMIT_CORE, &rl) < 0 || rl.rlim_max > 1)
		return 203;
	if (prctl(PR_SET_NAME, "caged", 0, 0, 0) < 0)
		return errno;
	/* refused, not killed: libraries try these */
	if (access("/etc/ld.so.preload", R_OK) == 0 || open("/proc/self/maps", O_RDONLY) >= 0)
		return 204;
	return 0;
}

static int do_look(void)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC,
		                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	char b[16];
	struct stat st;
	struct statx sx;
	int n = 0;

	int fd = (int)syscall(SYS_openat2, env.ws, "sub/file", &how, sizeof(how));
	if (fd < 0 || read(fd, b, 4) != 4)
		return errno;
	int sub = openat(env.ws, "sub", O_RDONLY | O_DIRECTORY);
	DIR *d = sub < 0 ? NULL : fdopendir(sub);
	if (!d)
		return errno;
	while (readdir(d))
		n++;
	(void)closedir(d);
	if (n < 3)
		return 200;
	if (fstatat(env.ws, "sub/file", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    statx(env.ws, "sub/file", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &sx) < 0 ||
	    readlinkat(env.ws, "link", b, sizeof(b)) < 0)
		return errno;
	return 0;
}

static int do_create(void)
{
	AUTO_CLOSE int fd = openat(env.ws, "made", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	return err_of(fd);
}

static int do_overwrite(void)
{
	AUTO_CLOSE int fd = openat(env.ws, "sub/file", O_WRONLY | O_CLOEXEC);

	return err_of(fd);
}

static int do_change(void)
{
	char name[32];

	/* names of this process: the other sets of layers see the same workspace */
	(void)snprintf(name, sizeof(name), "d%d", (int)getpid());
	AUTO_CLOSE int fd = openat(env.ws, "tmp", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || fchmod(fd, 0640) < 0 || fsync(fd) < 0)
		return errno;
	if (mkdirat(env.ws, name, 0755) < 0)
		return errno;
	AUTO_CLOSE int dir = openat(env.ws, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || renameat(env.ws, "tmp", dir, "final") < 0 || fsync(dir) < 0 ||
	    symlinkat("final", dir, "l") < 0 || unlinkat(dir, "final", 0) < 0 ||
	    unlinkat(dir, "l", 0) < 0 || unlinkat(env.ws, name, AT_REMOVEDIR) < 0)
		return errno;
	return 0;
}

static int do_owner(void)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "o%d", (int)getpid());
	AUTO_CLOSE int fd = openat(env.ws, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct timespec ts[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

	if (fd < 0 || fchown(fd, (uid_t)-1, getegid()) < 0)
		return errno;
	if (fsetxattr(fd, "user.x", "y", 1, 0) < 0 && errno != EOPNOTSUPP)
		return errno;
	if (futimens(fd, ts) < 0 || unlinkat(env.ws, name, 0) < 0)
		return errno;
	return 0;
}

static int do_clone_range(void)
{
	struct file_clone_range r = { .src_fd = env.out, .src_length = 4096 };

	return err_of(ioctl(env.out, FICLONERANGE, &r));
}

static int do_sendmsg(void)
{
	char c = 'x';
	struct iovec iov = { &c, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (sendmsg(env.sock[0], &m, MSG_NOSIGNAL) != 1 || recvmsg(env.sock[1], &m, 0) != 1)
		return errno;
	return 0;
}

static void *thread_main(void *arg)
{
	void *p = malloc(100000); /* an arena of its own */

	memset(p, 0, 100000);
	free(p);
	*(int *)arg = 1;
	return NULL;
}

static int do_thread(void)
{
	pthread_t t;
	int ran = 0;
	int r = pthread_create(&t, NULL, thread_main, &ran);

	if (r != 0)
		return r;
	(void)pthread_join(t, NULL);
	return ran ? 0 : 200;
}

static int do_private(void)
{
	return err_of(openat(env.ws, "private", O_RDONLY));
}

static const struct row {
	const char *why;
	unsigned roles;
	int (*act)(void);
	int want;
	unsigned without; /* not tried when these layers are skipped */
} rows[] = {
	{ "basics", OURS, do_basics, 0, 0 },
	{ "abort", OURS, do_abort, ABORTED, 0 },
	{ "a file outside, by its path", OURS, do_open_outside, REFUSED, 0 },
	{ "/etc/passwd", OURS, do_open_passwd, REFUSED, 0 },
	{ "a file outside, by ..", OURS, do_open_up, REFUSED, 0 },
	{ "a file outside, by openat2 and ..", OURS, do_open_up2, REFUSED, 0 },
	/* landlock does not hide that a name exists */
	{ "stat outside", OURS, do_stat_up, REFUSED, CAGE_MOUNTNS },
	{ "create outside", OURS, do_create_up, REFUSED, 0 },
	{ "a directory that is not listed", OURS, do_other_dir, REFUSED, 0 },
	{ "inet socket", OFFLINE, do_inet, KILLED, 0 },
	{ "unix socket", OURS, do_unix, KILLED, 0 },
	{ "a socketpair", R(NET), do_pair, 0, 0 },
	{ "a socketpair", OURS & ~R(NET), do_pair, KILLED, 0 },
	{ "a socketpair of another kind", OURS, do_inet_pair, KILLED, 0 },
	{ "connect", OFFLINE, do_connect, KILLED, 0 },
	{ "TCP and UDP to a listener", R(RELAY), do_dial, 0, 0 },
	{ "raw socket", R(RELAY), do_raw_socket, KILLED, 0 },
	{ "ping socket", R(RELAY), do_ping_socket, KILLED, 0 },
	{ "packet socket", R(RELAY), do_packet_socket, KILLED, 0 },
	{ "bind", R(RELAY), do_bind, 0, 0 },
	{ "listen", R(RELAY), do_listen, KILLED, 0 },
	{ "addresses of the machine", R(RELAY), do_addresses, 0, 0 },
	{ "another question about interfaces", R(RELAY), do_interface, KILLED, 0 },
	{ "an option of a socket that is not listed", R(RELAY), do_other_option, KILLED, 0 },
	{ "exec", OURS, do_exec, KILLED, 0 },
	{ "ptrace of a sibling", OURS, do_ptrace, KILLED, 0 },
	{ "memory of a sibling", OURS, do_vm_read, KILLED, 0 },
	{ "pidfd of a sibling", OURS, do_pidfd, KILLED, 0 },
	{ "pidfd_getfd", OURS, do_pidfd_getfd, KILLED, 0 },
	{ "signal to a sibling", OURS, do_kill, KILLED, 0 },
	{ "signal to all", OURS, do_kill_all, KILLED, 0 },
	{ "tgkill of a sibling", OURS, do_tgkill, KILLED, 0 },
	{ "F_SETOWN of a sibling", OURS, do_setown, KILLED, 0 },
	{ "limits of a sibling", OURS, do_limit_other, KILLED, 0 },
	{ "fork", OURS, do_fork, KILLED, 0 },
	{ "unshare", OURS, do_unshare, KILLED, 0 },
	{ "mount", OURS, do_mount, KILLED, 0 },
	{ "new code", OURS, do_code, KILLED, 0 },
	{ "dumpable again", OURS, do_dumpable, KILLED, 0 },
	{ "io_uring", OURS, do_uring, KILLED, 0 },
	{ "chmod by path", OURS, do_chmod_path, KILLED, 0 },
	{ "look below", LOOKS, do_look, 0, 0 },
	{ "look below", OURS & ~LOOKS, do_look, EACCES, 0 },
	{ "change below", CHANGES, do_change, 0, 0 },
	{ "create below", LOOKS & ~CHANGES, do_create, REFUSED, 0 },
	{ "overwrite below", LOOKS & ~CHANGES, do_overwrite, REFUSED, 0 },
	{ "owners and xattrs", R(APPLY), do_owner, 0, 0 },
	{ "owners and xattrs", R(WORKER), do_owner, KILLED, 0 },
	{ "clone a range", R(DISK) | R(APPLY) | R(WORKER), do_clone_range, NOT_KILLED, 0 },
	{ "clone a range", OURS & ~(R(DISK) | R(APPLY) | R(WORKER)), do_clone_range, KILLED, 0 },
	{ "sendmsg", SOCKETS, do_sendmsg, 0, 0 },
	{ "sendmsg", OURS & ~SOCKETS, do_sendmsg, KILLED, 0 },
	{ "thread", THREADS, do_thread, 0, 0 },
	{ "thread", OURS & ~THREADS, do_thread, KILLED, 0 },
	{ "a file of root's", THREADS, do_private, 0, 0 },
	/* QEMU's list denies, it does not kill */
	{ "a file outside, by its path", R(QEMU), do_open_outside, REFUSED, 0 },
	{ "/etc/passwd", R(QEMU), do_open_passwd, REFUSED, 0 },
	{ "inet socket", R(QEMU), do_inet, EPERM, 0 },
	{ "unix socket", R(QEMU), do_unix, EPERM, 0 },
	{ "connect", R(QEMU), do_connect, EPERM, 0 },
	{ "exec of what is not listed", R(QEMU), do_exec, REFUSED, 0 },
	{ "ptrace of a sibling", R(QEMU), do_ptrace, EPERM, 0 },
	{ "memory of a sibling", R(QEMU), do_vm_read, EPERM, 0 },
	{ "pidfd of a sibling", R(QEMU), do_pidfd, EPERM, 0 },
	{ "signal to a sibling", R(QEMU), do_kill, EPERM, 0 },
	{ "signal to all", R(QEMU), do_kill_all, EPERM, 0 },
	{ "tgkill of a sibling", R(QEMU), do_tgkill, EPERM, 0 },
	{ "F_SETOWN of a sibling", R(QEMU), do_setown, EPERM, 0 },
	{ "limits of a sibling", R(QEMU), do_limit_other, EPERM, 0 },
	{ "fork", R(QEMU), do_fork, EPERM, 0 },
	{ "unshare", R(QEMU), do_unshare, EPERM, 0 },
	{ "mount", R(QEMU), do_mount, EPERM, 0 },
	{ "io_uring", R(QEMU), do_uring, EPERM, 0 },
	{ "thread", R(QEMU), do_thread, 0, 0 },
	{ "new code", R(QEMU), do_code, 0, 0 }, /* it translates */
	{ "abort", R(QEMU), do_abort, ABORTED, 0 },
};

/* ---- who and what with -------------------------------------------------- */

enum who { AS_HELPER, AS_ROOT, AS_USER, WHOS };

static const char *const who_names[] = { "root with a uid", "root", "an ordinary user" };

static const struct {
	const char *name;
	unsigned skip;
} offers[] = {
	{ "all layers", 0 },
	{ "no landlock", CAGE_LANDLOCK },
	{ "no namespaces", CAGE_USERNS | CAGE_MOUNTNS | CAGE_NETNS | CAGE_IPCNS },
};

static unsigned offered; /* layers that this machine has at all */

static int become(enum who who)
{
	if (who != AS_USER || geteuid() != 0)
		return 0;
	if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		return -errno;
	return 0;
}

/* In a child: enter and act. Ends with 0 or an errno; 250 and up: not entered. */
NORETURN static void child(enum cage_role role, enum who who, unsigned skip, int (*act)(void))
{
	struct err err = { 0 };
	struct cage_fs fs = { .fd = env.ws,
		              .access =
		                      CAGE_FS_READ | (CHANGES & 1U << role ? CAGE_FS_WRITE : 0U) };
	struct cage_path paths[] = {
		{ .path = "/dev/null", .access = CAGE_FS_DEV },
		{ .path = "/usr/lib", .access = CAGE_FS_READ | CAGE_FS_LIB },
	};
	struct cage_opts o = { .role = role, .skip_layers = skip };

	if (role == CAGE_QEMU) {
		o.paths = paths;
		o.n_paths = ARRAY_LEN(paths);
	} else {
		o.fs = &fs;
		o.n_fs = 1;
	}
	if (who == AS_HELPER)
		o.uid = HELPER_UID;
	if (become(who) < 0)
		_exit(250);
	if (cage_enter(&o, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.text);
		_exit(251);
	}
	_exit(act());
}

static bool as_wanted(int status, int want)
{
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

	switch (want) {
	case KILLED:
		return killed;
	case ABORTED:
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
	case NOT_KILLED:
		return code >= 0 && code < 200;
	case REFUSED:
		return killed || code == EACCES || code == EPERM || code == ENOENT ||
		       code == EROFS || code == EBADF || code == ENOTDIR;
	default:
		return code == want;
	}
}

static int run_child(enum cage_role role, enum who who, unsigned skip, int (*act)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		child(role, who, skip, act);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static bool who_possible(enum who who)
{
	return geteuid() == 0 || who == AS_USER;
}

static void test_roles(void **state UNUSED)
{
	int bad = 0, tried = 0;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		for (unsigned role = 0; role < CAGE_ROLES; role++) {
			for (unsigned who = 0; who < WHOS; who++) {
				for (size_t k = 0; k < ARRAY_LEN(offers); k++) {
					const struct row *r = &rows[i];
					unsigned skip = offers[k].skip;
					unsigned left = offered & ~skip;

					if (!(r->roles & 1U << role) ||
					    !who_possible((enum who)who) || (r->without & skip) ||
					    (r->without & ~offered))
						continue;
					if (!(left & (CAGE_LANDLOCK | CAGE_MOUNTNS)))
						continue; /* below the floor here */
					/* apply keeps its groups, so an ordinary user's has no
					 * root of its own while landlock holds */
					if (role == CAGE_APPLY && who == AS_USER &&
					    (r->without & CAGE_MOUNTNS))
						continue;
					if (r->act == do_private && who == AS_USER)
						continue; /* nobody promised that */
					tried++;
					int st = run_child((enum cage_role)role, (enum who)who,
					                   skip, r->act);
					if (as_wanted(st, r->want))
						continue;
					bad++;
					print_error("%s, %s, %s, %s: wait status %#x, want %d\n",
					            r->why, cage_roles[role].name, who_names[who],
					            offers[k].name, st, r->want);
				}
			}
		}
	}
	print_message("%d acts tried\n", tried);
	if (bad)
		fail_msg("%d of %d acts", bad, tried);
}

/* ---- around the roles --------------------------------------------------- */

static void test_floor(void **state UNUSED)
{
	static const unsigned below[] = {
		CAGE_SECCOMP,
		CAGE_LANDLOCK | CAGE_MOUNTNS,
	};

	for (size_t i = 0; i < ARRAY_LEN(below); i++) {
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (pid == 0) {
			struct err err = { 0 };
			unsigned layers = 0;
			struct cage_opts o = { .role = CAGE_REVIEW,
				               .skip_layers = below[i],
				               .out_layers = &layers };

			int r = cage_enter(&o, &err);
			_exit(r == -EPERM && err.text[0] && strstr(err.hint, "Landlock") &&
			                      !(layers & below[i])
			              ? 0
			              : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

static void *sleeper(void *arg)
{
	(void)pause();
	return arg;
}

static void test_threads_before(void **state UNUSED)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		pthread_t t;
		struct err err;
		struct cage_opts o = { .role = CAGE_SCAN };

		if (pthread_create(&t, NULL, sleeper, NULL) != 0)
			_exit(2);
		_exit(cage_enter(&o, &err) == -EBUSY ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* A caged grandchild must still die with its parent. */
static void test_parent_death(void **state UNUSED)
{
	for (unsigned who = 0; who < WHOS; who++) {
		int p[2], status;
		char c;

		if (!who_possible((enum who)who))
			continue;
		assert_int_equal(pipe2(p, O_CLOEXEC), 0);
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			pid_t self = getpid();
			int ready[2];

			if (become((enum who)who) < 0 || pipe2(ready, O_CLOEXEC) < 0)
				_exit(2);
			if (fork() == 0) {
				struct cage_opts o = { .role = CAGE_WORKER };

				if (who == AS_HELPER)
					o.uid = HELPER_UID;
				(void)close(ready[0]);
				(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (getppid() != self || cage_enter(&o, NULL) < 0)
					_exit(1);
				(void)!write(ready[1], "r", 1);
				for (;;)
					(void)pause();
			}
			(void)close(ready[1]);
			_exit(read(ready[0], &c, 1) == 1 ? 0 : 3);
		}
		(void)close(p[1]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		/* the end of the pipe is the end of the grandchild */
		(void)alarm(20);
		assert_int_equal(read(p[0], &c, 1), 0);
		(void)alarm(0);
		(void)close(p[0]);
	}
}

static int show_ids(void)
{
	return getuid() == HELPER_UID && geteuid() == HELPER_UID && getgid() == HELPER_UID ? 0 : 1;
}

static void test_ids(void **state UNUSED)
{
	uid_t a, b;
	static const char sub[] = "ada:100000:65536\nbad\nbo:2130706432:10\n:x:y\nlast:5:1";
	static const char all[] = "         0          0 4294967295\n";
	static const char some[] =
		"         0       1000          1\n         1     100000      65536\n";

	assert_true(cage_subid_has(sub, sizeof(sub) - 1, 100000));
	assert_false(cage_subid_has(sub, sizeof(sub) - 1, 99999));
	assert_true(cage_subid_has(sub, sizeof(sub) - 1, 165535));
	assert_false(cage_subid_has(sub, sizeof(sub) - 1, 165536));
	assert_true(cage_subid_has(sub, sizeof(sub) - 1, 0x7f000009));
	assert_false(cage_subid_has(sub, sizeof(sub) - 1, 0x7f00000a));
	assert_true(cage_subid_has(sub, sizeof(sub) - 1, 5));
	assert_false(cage_subid_has("", 0, 5));
	assert_true(cage_idmap_has(all, sizeof(all) - 1, 0x7ffdffff));
	assert_true(cage_idmap_has(some, sizeof(some) - 1, 65536));
	assert_false(cage_idmap_has(some, sizeof(some) - 1, 65537));
	assert_false(cage_idmap_has(some, sizeof(some) - 1, 0x7f000000));
	assert_int_equal(cage_uid_pick(7, &a), 0);
	assert_int_equal(cage_uid_pick(7, &b), 0);
	assert_int_equal(a, b);
	if (geteuid() == 0)
		assert_int_equal(run_child(CAGE_WORKER, AS_HELPER, 0, show_ids), 0);
}

static void test_probe(void **state UNUSED)
{
	struct cage_probe p;
	char b[128];

	assert_int_equal(cage_probe(&p), 0);
	print_message("landlock ABI %d, %s%s%s\n", p.landlock_abi,
	              cage_layers_str(b, sizeof(b), p.layers), p.floor ? "" : ": ", p.why);
	assert_true(p.floor == ((p.layers & CAGE_SECCOMP) != 0));
	assert_true(p.floor == (p.why[0] == '\0'));
	assert_true((p.landlock_abi > 0) == ((p.layers & CAGE_LANDLOCK) != 0));
	/* of each program: the relay alone stays in the host's network */
	for (int role = 0; role < CAGE_QEMU; role++) {
		struct cage_probe one;

		assert_int_equal(cage_probe_role((enum cage_role)role, &one), 0);
		assert_int_equal(one.floor, p.floor);
		assert_int_equal(one.layers & CAGE_SECCOMP, p.layers & CAGE_SECCOMP);
		if (role == CAGE_RELAY)
			assert_false(one.layers & CAGE_NETNS);
		else if (role == CAGE_NET || role == CAGE_SWITCH)
			assert_int_equal(one.layers, p.layers);
	}
	assert_string_equal(cage_layers_str(b, sizeof(b), CAGE_SECCOMP | CAGE_USERNS),
	                    "seccomp userns");
	assert_string_equal(cage_layers_str(b, 10, CAGE_SECCOMP | CAGE_USERNS), "seccomp");
	assert_string_equal(cage_layers_str(b, sizeof(b), 0), "");
}

/* ---- set-up ------------------------------------------------------------- */

static int set_up(void **state UNUSED)
{
	struct cage_probe p;
	char path[128];

	(void)snprintf(env.dir, sizeof(env.dir), "/tmp/test_cage.XXXXXX");
	if (!mkdtemp(env.dir) || chmod(env.dir, 0755) < 0)
		return -1;
	env.other = open(env.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int secret = openat(env.other, "secret", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (secret < 0 || mkdirat(env.other, "ws", 0755) < 0)
		return -1;
	(void)snprintf(path, sizeof(path), "%s/ws", env.dir);
	env.ws = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (env.ws < 0 || fchmod(env.ws, 0777) < 0 || mkdirat(env.ws, "sub", 0755) < 0)
		return -1;
	AUTO_CLOSE int f = openat(env.ws, "sub/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	AUTO_CLOSE int g = openat(env.ws, "private", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (f < 0 || g < 0 || fd_write_all(f, "text\n", 5) < 0 ||
	    symlinkat("sub/file", env.ws, "link") < 0)
		return -1;
	/* the user's file where its acts run as another user than this one */
	env.out = openat(env.ws, "out", O_CREAT | O_RDWR | O_CLOEXEC, 0666);
	if (env.out < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, env.sock) < 0)
		return -1;
	struct sockaddr_in sin = { .sin_family = AF_INET,
		                   .sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(sin);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* until the end of the tests */
	if (s < 0 || bind(s, (struct sockaddr *)&sin, sizeof(sin)) < 0 || listen(s, 64) < 0 ||
	    getsockname(s, (struct sockaddr *)&sin, &len) < 0)
		return -1;
	env.tcp_port = sin.sin_port;
	env.sibling = fork();
	if (env.sibling == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)pause();
	}
	if (env.sibling < 0 || cage_probe(&p) < 0)
		return -1;
	offered = p.layers;
	return 0;
}

static int tear_down(void **state UNUSED)
{
	char cmd[128];

	(void)kill(env.sibling, SIGKILL); /* ours, not reaped yet */
	(void)waitpid(env.sibling, NULL, 0);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", env.dir);
	return system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_floor),
		cmocka_unit_test(test_threads_before),
		cmocka_unit_test(test_parent_death),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_roles),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
