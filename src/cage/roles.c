/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roles.c - what each role may ask of the kernel: the whole table.
 *
 * Three answers: allowed, an error for what the C library tries on its own and
 * can do without, and death for all else. Arguments are checked where one call
 * does several things; a pointer's target cannot be, so openat2 and clone3 rely
 * on landlock, the empty root, and their absence.
 */
#include "cage/cage_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* not in the headers of Debian 12's libseccomp; x86-64 only, like the program */
#ifndef __NR_futex_waitv
#define __NR_futex_waitv 449
#endif

/* asm/ioctls.h and linux/prctl.h, which clash with what is included above */
enum {
	IOC_TIOCSTI = 0x5412,
	IOC_TIOCLINUX = 0x541c,
	IOC_FIOSETOWN = 0x8901,
	IOC_SIOCSPGRP = 0x8902,
	IOC_SIOCGIFCONF = 0x8912,
	PRCTL_SET_VMA = 0x53564d41,
};

#define CAP(x) (UINT64_C(1) << (x))

enum { MIB = 1024 * 1024 };
#define GIB (UINT64_C(1024) * MIB)

const struct cage_role_info cage_roles[CAGE_ROLES] = {
	[CAGE_SCAN] = { .name = "scan",
	                .memory_max = 16 * GIB,
	                .nofile_max = 4096,
	                .threads = true,
	                .root_caps = CAP(CAP_DAC_READ_SEARCH) },
	[CAGE_DISK] = { .name = "disk",
	                .memory_max = 16 * GIB,
	                .nofile_max = 4096,
	                .threads = true,
	                .root_caps = CAP(CAP_DAC_READ_SEARCH) },
	[CAGE_WORKER] = { .name = "worker", .memory_max = 4 * GIB, .nofile_max = 4096 },
	[CAGE_IMAGE] = { .name = "image", .memory_max = 16 * GIB, .nofile_max = 256 },
	[CAGE_APPLY] = { .name = "apply",
	                 .memory_max = 16 * GIB,
	                 .nofile_max = 4096,
	                 .keeps_root = true,
	                 .real_ids = true,
	                 .root_caps = CAP(CAP_CHOWN) | CAP(CAP_FOWNER) | CAP(CAP_DAC_OVERRIDE) |
	                              CAP(CAP_DAC_READ_SEARCH) },
	[CAGE_REVIEW] = { .name = "review",
	                  .memory_max = 16 * GIB,
	                  .nofile_max = 1024,
	                  .root_caps = CAP(CAP_DAC_READ_SEARCH) },
	[CAGE_RELAY] = { .name = "relay",
	                 .memory_max = 2 * GIB,
	                 .nofile_max = 4096,
	                 .host_net = true },
	/* a flow has two buffers of 128 KiB in libslirp and two descriptors on their way */
	[CAGE_NET] = { .name = "net", .memory_max = GIB, .nofile_max = 4096 },
	[CAGE_SWITCH] = { .name = "switch", .memory_max = GIB, .nofile_max = 512 },
	/* the guest's memory and any number of mappings: bounded by the guest's size */
	[CAGE_QEMU] = { .name = "qemu", .memory_max = 0, .nofile_max = 4096, .threads = true },
};

/* Act on what is open already, on our own memory, and on time. */
static const int base_calls[] = {
	SCMP_SYS(read),
	SCMP_SYS(readv),
	SCMP_SYS(pread64),
	SCMP_SYS(preadv),
	SCMP_SYS(preadv2),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(pwrite64),
	SCMP_SYS(pwritev),
	SCMP_SYS(pwritev2),
	SCMP_SYS(lseek),
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(fsync),
	SCMP_SYS(fdatasync),
	SCMP_SYS(sync_file_range),
	SCMP_SYS(fadvise64),
	SCMP_SYS(readahead),
	SCMP_SYS(copy_file_range),
	SCMP_SYS(sendfile),
	SCMP_SYS(splice),
	SCMP_SYS(tee),
	SCMP_SYS(flock),
	SCMP_SYS(fstat),
	SCMP_SYS(fstatfs),
	SCMP_SYS(close),
	SCMP_SYS(close_range),
	SCMP_SYS(dup),
	SCMP_SYS(dup2),
	SCMP_SYS(dup3),
	SCMP_SYS(pipe2),
	SCMP_SYS(memfd_create),
	SCMP_SYS(fchdir),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(select),
	SCMP_SYS(pselect6),
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_pwait2),
	SCMP_SYS(eventfd2),
	SCMP_SYS(timerfd_create),
	SCMP_SYS(timerfd_settime),
	SCMP_SYS(timerfd_gettime),
	SCMP_SYS(signalfd4),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_getres),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(time),
	SCMP_SYS(times),
	SCMP_SYS(getrusage),
	SCMP_SYS(getrandom),
	SCMP_SYS(brk),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(msync),
	SCMP_SYS(mlock),
	SCMP_SYS(mlock2),
	SCMP_SYS(munlock),
	SCMP_SYS(mincore),
	SCMP_SYS(futex),
	SCMP_SYS(futex_waitv),
	SCMP_SYS(membarrier),
	SCMP_SYS(rseq),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigpending),
	SCMP_SYS(rt_sigtimedwait),
	SCMP_SYS(rt_sigsuspend),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(pause),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(getppid),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(getcpu),
	SCMP_SYS(umask),
	SCMP_SYS(uname),
	SCMP_SYS(sysinfo),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

/* Look below a directory: what may be seen is landlock's and the root's business. */
static const int look_calls[] = {
	SCMP_SYS(openat),     SCMP_SYS(openat2),    SCMP_SYS(getdents64), SCMP_SYS(statx),
	SCMP_SYS(newfstatat), SCMP_SYS(readlinkat), SCMP_SYS(faccessat),  SCMP_SYS(faccessat2),
	SCMP_SYS(fgetxattr),  SCMP_SYS(flistxattr),
};

static const int change_calls[] = {
	SCMP_SYS(mkdirat), SCMP_SYS(unlinkat),  SCMP_SYS(renameat), SCMP_SYS(renameat2),
	SCMP_SYS(linkat),  SCMP_SYS(symlinkat), SCMP_SYS(fchmod),   SCMP_SYS(syncfs),
};

static const int owner_calls[] = {
	SCMP_SYS(fchown),
	SCMP_SYS(fchownat),
	SCMP_SYS(fsetxattr),
	SCMP_SYS(fremovexattr),
};

static const int image_calls[] = { SCMP_SYS(fchmod) };

/* Talk on sockets that are open already. */
static const int socket_calls[] = {
	SCMP_SYS(sendmsg),     SCMP_SYS(recvmsg),     SCMP_SYS(sendto),   SCMP_SYS(recvfrom),
	SCMP_SYS(sendmmsg),    SCMP_SYS(recvmmsg),    SCMP_SYS(shutdown), SCMP_SYS(getsockopt),
	SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(accept4),  SCMP_SYS(accept),
};

/* What is more than talking: where to is not for a filter to see. */
static const int dial_calls[] = { SCMP_SYS(connect), SCMP_SYS(bind) };

/* What libraries try on their own, and go on without. */
static const struct {
	int call, error;
} refused_calls[] = {
	{ SCMP_SYS(open), EACCES },
	{ SCMP_SYS(openat), EACCES },
	{ SCMP_SYS(openat2), EACCES },
	{ SCMP_SYS(access), EACCES },
	{ SCMP_SYS(faccessat), EACCES },
	{ SCMP_SYS(faccessat2), EACCES },
	{ SCMP_SYS(stat), EACCES },
	{ SCMP_SYS(lstat), EACCES },
	{ SCMP_SYS(statx), EACCES },
	{ SCMP_SYS(readlink), EACCES },
	{ SCMP_SYS(readlinkat), EACCES },
	{ SCMP_SYS(statfs), EACCES },
	{ SCMP_SYS(getcwd), EACCES },
	{ SCMP_SYS(clone3), ENOSYS }, /* the fallback is clone, whose flags can be seen */
	{ SCMP_SYS(getrlimit), EPERM },
	{ SCMP_SYS(sched_setaffinity), EPERM },
	{ SCMP_SYS(setsockopt), EPERM },
};

/* QEMU: what it has no reason to call answers EPERM; it needs too many others to list. */
static const int qemu_denied[] = {
	SCMP_SYS(socket),
	SCMP_SYS(connect),
	SCMP_SYS(bind),
	SCMP_SYS(listen),
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(process_madvise),
	SCMP_SYS(kcmp),
	SCMP_SYS(pidfd_getfd),
	SCMP_SYS(pidfd_open),
	SCMP_SYS(pidfd_send_signal),
	SCMP_SYS(tkill),
	SCMP_SYS(rt_sigqueueinfo),
	SCMP_SYS(rt_tgsigqueueinfo),
	SCMP_SYS(fork),
	SCMP_SYS(vfork),
	SCMP_SYS(execveat),
	SCMP_SYS(unshare),
	SCMP_SYS(setns),
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(pivot_root),
	SCMP_SYS(chroot),
	SCMP_SYS(move_mount),
	SCMP_SYS(open_tree),
	SCMP_SYS(fsopen),
	SCMP_SYS(fsconfig),
	SCMP_SYS(fsmount),
	SCMP_SYS(fspick),
	SCMP_SYS(mount_setattr),
	SCMP_SYS(name_to_handle_at),
	SCMP_SYS(open_by_handle_at),
	SCMP_SYS(fanotify_init),
	SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open),
	SCMP_SYS(userfaultfd),
	SCMP_SYS(io_uring_setup),
	SCMP_SYS(io_uring_enter),
	SCMP_SYS(io_uring_register),
	SCMP_SYS(keyctl),
	SCMP_SYS(add_key),
	SCMP_SYS(request_key),
	SCMP_SYS(init_module),
	SCMP_SYS(finit_module),
	SCMP_SYS(delete_module),
	SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load),
	SCMP_SYS(reboot),
	SCMP_SYS(swapon),
	SCMP_SYS(swapoff),
	SCMP_SYS(acct),
	SCMP_SYS(quotactl),
	SCMP_SYS(syslog),
	SCMP_SYS(iopl),
	SCMP_SYS(ioperm),
	SCMP_SYS(modify_ldt),
	SCMP_SYS(personality),
	SCMP_SYS(migrate_pages),
	SCMP_SYS(move_pages),
	SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime),
	SCMP_SYS(adjtimex),
	SCMP_SYS(clock_adjtime),
	SCMP_SYS(sethostname),
	SCMP_SYS(setdomainname),
	SCMP_SYS(vhangup),
	SCMP_SYS(msgget),
	SCMP_SYS(semget),
	SCMP_SYS(shmget),
	SCMP_SYS(mq_open),
	SCMP_SYS(chmod),
	SCMP_SYS(chown),
	SCMP_SYS(lchown),
	SCMP_SYS(fchmodat),
	SCMP_SYS(fchownat),
	SCMP_SYS(setxattr),
	SCMP_SYS(lsetxattr),
};

struct calls {
	const int *v;
	size_t n;
};

#define CALLS(list) ((struct calls){ .v = list, .n = ARRAY_LEN(list) })

enum { LISTS_MAX = 8 };

/* Roles that may not even try to open: what they work on is open when they begin. */
static bool never_opens(enum cage_role role)
{
	return role == CAGE_IMAGE || role == CAGE_RELAY || role == CAGE_NET || role == CAGE_SWITCH;
}

static size_t role_lists(enum cage_role role, struct calls out[LISTS_MAX])
{
	size_t n = 0;

	out[n++] = CALLS(base_calls);
	if (!never_opens(role))
		out[n++] = CALLS(look_calls);
	if (role == CAGE_IMAGE)
		out[n++] = CALLS(image_calls);
	if (role == CAGE_WORKER || role == CAGE_APPLY)
		out[n++] = CALLS(change_calls);
	if (role == CAGE_APPLY)
		out[n++] = CALLS(owner_calls);
	if (role == CAGE_DISK || role == CAGE_WORKER || role == CAGE_RELAY || role == CAGE_NET ||
	    role == CAGE_SWITCH)
		out[n++] = CALLS(socket_calls);
	if (role == CAGE_RELAY)
		out[n++] = CALLS(dial_calls);
	return n;
}

static bool listed(const struct calls *l, size_t n, int call)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < l[i].n; k++) {
			if (l[i].v[k] == call)
				return true;
		}
	}
	return false;
}

/* One rule on one argument. */
static void rule(scmp_filter_ctx c, int *r, uint32_t action, int call, struct scmp_arg_cmp a)
{
	if (*r == 0)
		*r = seccomp_rule_add_array(c, action, call, 1, &a);
}

/*
 * TCP and UDP over IPv4, and IPv6 for name servers: no raw or packet socket, no
 * ping, no unix socket, which could be connected to what listens on a path.
 */
static int allow_sockets(scmp_filter_ctx c)
{
	static const uint64_t families[] = { AF_INET, AF_INET6 };
	static const struct {
		uint32_t type, proto;
	} kinds[] = {
		{ SOCK_STREAM, 0 },
		{ SOCK_STREAM, IPPROTO_TCP },
		{ SOCK_DGRAM, 0 },
		{ SOCK_DGRAM, IPPROTO_UDP },
	};
	static const struct {
		uint32_t level, option, action;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, SCMP_ACT_ALLOW },
		{ SOL_SOCKET, SO_LINGER, SCMP_ACT_ALLOW },
		{ SOL_SOCKET, SO_KEEPALIVE, SCMP_ACT_ALLOW },
		/* newer c-ares, which goes on without */
		{ IPPROTO_TCP, TCP_FASTOPEN_CONNECT, SCMP_ACT_ERRNO(EPERM) },
	};
	const uint64_t type_bits = 0xfffffffful & ~(uint64_t)(SOCK_NONBLOCK | SOCK_CLOEXEC);
	int r = 0;

	for (size_t f = 0; f < ARRAY_LEN(families); f++) {
		for (size_t k = 0; r == 0 && k < ARRAY_LEN(kinds); k++)
			r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3,
			                     SCMP_A0_32(SCMP_CMP_EQ, (uint32_t)families[f]),
			                     SCMP_A1_32(SCMP_CMP_MASKED_EQ, (uint32_t)type_bits,
			                                kinds[k].type),
			                     SCMP_A2_32(SCMP_CMP_EQ, kinds[k].proto));
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(options); i++)
		r = seccomp_rule_add(c, options[i].action, SCMP_SYS(setsockopt), 2,
		                     SCMP_A1_32(SCMP_CMP_EQ, options[i].level),
		                     SCMP_A2_32(SCMP_CMP_EQ, options[i].option));
	/* which addresses are the host's own */
	rule(c, &r, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), SCMP_A1_32(SCMP_CMP_EQ, IOC_SIOCGIFCONF));
	return r;
}

/* Calls that do several things, by their arguments; what no row names is death. */
static int allow_checked(scmp_filter_ctx c, enum cage_role role)
{
	static const int fcntls[] = { F_GETFD,     F_SETFD,         F_GETFL,      F_SETFL,
		                      F_DUPFD,     F_DUPFD_CLOEXEC, F_GETLK,      F_SETLK,
		                      F_SETLKW,    F_OFD_GETLK,     F_OFD_SETLK,  F_OFD_SETLKW,
		                      F_ADD_SEALS, F_GET_SEALS,     F_GETPIPE_SZ, F_SETPIPE_SZ };
	/* TCGETS, TCGETS2, TIOCGWINSZ: is it a terminal? asked by stdio: no */
	static const uint32_t tty[] = { 0x5401, 0x802c542a, 0x5413 };
	const uint32_t ok = SCMP_ACT_ALLOW;
	uint64_t pid = (uint64_t)getpid();
	int r = 0;

	/* never F_SETOWN and its kind: they make the kernel signal another process */
	for (size_t i = 0; i < ARRAY_LEN(fcntls); i++)
		rule(c, &r, ok, SCMP_SYS(fcntl), SCMP_A1_32(SCMP_CMP_EQ, (uint32_t)fcntls[i]));
	for (size_t i = 0; i < ARRAY_LEN(tty); i++)
		rule(c, &r, SCMP_ACT_ERRNO(ENOTTY), SCMP_SYS(ioctl),
		     SCMP_A1_32(SCMP_CMP_EQ, tty[i]));
	/* no new code */
	rule(c, &r, ok, SCMP_SYS(mmap), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	rule(c, &r, ok, SCMP_SYS(mprotect), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* abort() and raise(): ourselves only */
	rule(c, &r, ok, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, pid));
	rule(c, &r, ok, SCMP_SYS(kill), SCMP_A0(SCMP_CMP_EQ, pid));
	rule(c, &r, ok, SCMP_SYS(prctl), SCMP_A0_32(SCMP_CMP_EQ, PR_SET_NAME));
	/* malloc names its mappings under a tunable of newer C libraries */
	rule(c, &r, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl),
	     SCMP_A0_32(SCMP_CMP_EQ, PRCTL_SET_VMA));
	/* futimens() */
	rule(c, &r, ok, SCMP_SYS(utimensat), SCMP_A1(SCMP_CMP_EQ, 0));
	/* limits of our own, to read */
	if (r == 0)
		r = seccomp_rule_add(c, ok, SCMP_SYS(prlimit64), 2, SCMP_A0(SCMP_CMP_EQ, 0),
		                     SCMP_A2(SCMP_CMP_EQ, 0));
	if (role == CAGE_RELAY && r == 0)
		r = allow_sockets(c);
	if (never_opens(role)) {
		/* fstat() of some C libraries; by a path: no */
		rule(c, &r, ok, SCMP_SYS(newfstatat),
		     SCMP_A3_32(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH));
		rule(c, &r, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(newfstatat),
		     SCMP_A3_32(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, 0));
	}
	if (role == CAGE_NET)
		rule(c, &r, ok, SCMP_SYS(socketpair), SCMP_A0_32(SCMP_CMP_EQ, AF_UNIX));
	if (cage_roles[role].threads)
		rule(c, &r, ok, SCMP_SYS(clone),
		     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	if (role == CAGE_DISK || role == CAGE_APPLY || role == CAGE_WORKER) {
		rule(c, &r, ok, SCMP_SYS(ioctl), SCMP_A1_32(SCMP_CMP_EQ, FICLONERANGE));
		rule(c, &r, ok, SCMP_SYS(ioctl), SCMP_A1_32(SCMP_CMP_EQ, FICLONE));
	}
	return r;
}

static int fill_allowed(scmp_filter_ctx c, enum cage_role role)
{
	struct calls l[LISTS_MAX];
	size_t n = role_lists(role, l);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		for (size_t k = 0; r == 0 && k < l[i].n; k++)
			r = seccomp_rule_add(c, SCMP_ACT_ALLOW, l[i].v[k], 0);
	}
	if (r == 0)
		r = allow_checked(c, role);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(refused_calls); i++) {
		/* checked by its arguments above */
		if (role == CAGE_RELAY && refused_calls[i].call == SCMP_SYS(setsockopt))
			continue;
		if (!listed(l, n, refused_calls[i].call))
			r = seccomp_rule_add(c, SCMP_ACT_ERRNO((uint32_t)refused_calls[i].error),
			                     refused_calls[i].call, 0);
	}
	return r;
}

static int fill_qemu(scmp_filter_ctx c)
{
	const uint32_t no = SCMP_ACT_ERRNO(EPERM);
	static const uint64_t clone_flags[] = { CLONE_NEWUSER,  CLONE_NEWNS,  CLONE_NEWNET,
		                                CLONE_NEWPID,   CLONE_NEWIPC, CLONE_NEWUTS,
		                                CLONE_NEWCGROUP };
	uint64_t pid = (uint64_t)getpid(); /* stays the same across exec */
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(qemu_denied); i++)
		r = seccomp_rule_add(c, no, qemu_denied[i], 0);
	if (r == 0)
		r = seccomp_rule_add(c, no, SCMP_SYS(kill), 1, SCMP_A0(SCMP_CMP_NE, pid));
	if (r == 0)
		r = seccomp_rule_add(c, no, SCMP_SYS(tgkill), 1, SCMP_A0(SCMP_CMP_NE, pid));
	if (r == 0)
		r = seccomp_rule_add(c, no, SCMP_SYS(prlimit64), 1, SCMP_A0(SCMP_CMP_NE, 0));
	if (r == 0)
		r = seccomp_rule_add(c, no, SCMP_SYS(fcntl), 1, SCMP_A1_32(SCMP_CMP_EQ, F_SETOWN));
	if (r == 0)
		r = seccomp_rule_add(c, no, SCMP_SYS(fcntl), 1,
		                     SCMP_A1_32(SCMP_CMP_EQ, F_SETOWN_EX));
	/* the same on sockets; and typing for the user of a terminal */
	static const uint32_t ioctls[] = { IOC_FIOSETOWN, IOC_SIOCSPGRP, IOC_TIOCSTI,
		                           IOC_TIOCLINUX };
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(ioctls); i++)
		r = seccomp_rule_add(c, no, SCMP_SYS(ioctl), 1, SCMP_A1_32(SCMP_CMP_EQ, ioctls[i]));
	/* threads only: the C library falls back to clone, whose flags can be seen */
	if (r == 0)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (r == 0)
		r = seccomp_rule_add(c, no, SCMP_SYS(clone), 1,
		                     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(clone_flags); i++)
		r = seccomp_rule_add(c, no, SCMP_SYS(clone), 1,
		                     SCMP_A0(SCMP_CMP_MASKED_EQ, clone_flags[i], clone_flags[i]));
	return r;
}

int cage_filter_load(enum cage_role role)
{
	bool qemu = role == CAGE_QEMU;
	scmp_filter_ctx c = seccomp_init(qemu ? SCMP_ACT_ALLOW : SCMP_ACT_KILL_PROCESS);
	int r;

	if (!c)
		return -ENOMEM;
	/* not there in an older libseccomp: a slower filter, not a weaker one */
	(void)seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	r = seccomp_attr_set(c, SCMP_FLTATR_CTL_NNP, 1);
	if (r == 0)
		r = qemu ? fill_qemu(c) : fill_allowed(c, role);
	if (r == 0)
		r = seccomp_load(c);
	seccomp_release(c);
	return r;
}
