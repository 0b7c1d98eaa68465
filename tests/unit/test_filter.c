/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's seccomp program, run by a small interpreter of classic BPF, and in a child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/filter.h"

#define KILL SECCOMP_RET_KILL_PROCESS
#define ALLOW SECCOMP_RET_ALLOW
#define NOT_PERMITTED (SECCOMP_RET_ERRNO | EPERM)
#define NOT_THERE (SECCOMP_RET_ERRNO | ENOSYS)

static struct sock_filter prog[FILTER_INSNS_MAX];
static size_t prog_n;

static uint32_t evaluate(const struct seccomp_data *d)
{
	uint32_t a = 0;

	for (size_t pc = 0; pc < prog_n;) {
		const struct sock_filter *f = &prog[pc++];
		bool yes = false;
		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert_true(f->k % 4 == 0 && f->k + 4 <= sizeof(*d));
			memcpy(&a, (const uint8_t *)d + f->k, 4);
			continue;
		case BPF_RET | BPF_K:
			return f->k;
		case BPF_JMP | BPF_JEQ | BPF_K:
			yes = a == f->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			yes = a >= f->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			yes = a & f->k;
			break;
		default:
			fail_msg("instruction %x", f->code);
		}
		pc += yes ? f->jt : f->jf;
	}
	fail_msg("runs off its end");
	return 0;
}

static void test_actions(void **state UNUSED)
{
	static const struct {
		const char *why;
		uint32_t arch;
		int nr;
		uint64_t arg0;
		uint32_t want;
	} t[] = {
		{ "read", AUDIT_ARCH_X86_64, SYS_read, 0, ALLOW },
		{ "execve", AUDIT_ARCH_X86_64, SYS_execve, 0, ALLOW },
		{ "the last number there is", AUDIT_ARCH_X86_64, 0x3fffffff, 0, ALLOW },
		{ "another architecture", AUDIT_ARCH_I386, SYS_read, 0, KILL },
		{ "x32", AUDIT_ARCH_X86_64, 0x40000000, 0, NOT_THERE },
		{ "x32 mount", AUDIT_ARCH_X86_64, 0x40000000 | SYS_mount, 0, NOT_THERE },
		{ "no number", AUDIT_ARCH_X86_64, -1, 0, NOT_THERE },
		{ "ptrace", AUDIT_ARCH_X86_64, SYS_ptrace, 0, KILL },
		{ "bpf", AUDIT_ARCH_X86_64, SYS_bpf, 0, KILL },
		{ "io_uring_setup", AUDIT_ARCH_X86_64, SYS_io_uring_setup, 0, NOT_THERE },
		{ "mount", AUDIT_ARCH_X86_64, SYS_mount, 0, NOT_PERMITTED },
		{ "unshare of nothing", AUDIT_ARCH_X86_64, SYS_unshare, 0, NOT_PERMITTED },
		{ "landlock, agents use it", AUDIT_ARCH_X86_64, 444, 0, ALLOW },
		{ "fork", AUDIT_ARCH_X86_64, SYS_clone, SIGCHLD, ALLOW },
		{ "thread", AUDIT_ARCH_X86_64, SYS_clone, CLONE_VM | CLONE_THREAD, ALLOW },
		{ "new user namespace", AUDIT_ARCH_X86_64, SYS_clone, CLONE_NEWUSER | SIGCHLD,
		  NOT_PERMITTED },
		{ "new mount namespace among flags", AUDIT_ARCH_X86_64, SYS_clone,
		  CLONE_VM | CLONE_NEWNS, NOT_PERMITTED },
		{ "high half is not a flag", AUDIT_ARCH_X86_64, SYS_clone, 1ull << 60, ALLOW },
		{ "clone3", AUDIT_ARCH_X86_64, SYS_clone3, 0, NOT_THERE },
		{ "tcp", AUDIT_ARCH_X86_64, SYS_socket, AF_INET, ALLOW },
		{ "unix", AUDIT_ARCH_X86_64, SYS_socket, AF_UNIX, ALLOW },
		{ "netlink", AUDIT_ARCH_X86_64, SYS_socket, AF_NETLINK, NOT_PERMITTED },
		{ "vsock", AUDIT_ARCH_X86_64, SYS_socket, AF_VSOCK, NOT_PERMITTED },
		{ "netlink, with a high half", AUDIT_ARCH_X86_64, SYS_socket,
		  1ull << 32 | AF_NETLINK, NOT_PERMITTED },
		{ "socketpair", AUDIT_ARCH_X86_64, SYS_socketpair, AF_UNIX, ALLOW },
	};

	prog_n = filter_build(prog);
	assert_true(prog_n > 0 && prog_n <= FILTER_INSNS_MAX);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		const struct seccomp_data d = { .arch = t[i].arch,
			                        .nr = t[i].nr,
			                        .args = { t[i].arg0 } };
		uint32_t got = evaluate(&d);
		if (got != t[i].want)
			fail_msg("%s: %x, want %x", t[i].why, got, t[i].want);
	}
}

/* The kernel takes it, and does what the interpreter says. */
static void test_in_kernel(void **state UNUSED)
{
	int st;
	pid_t pid = fork();

	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_enter() < 0)
			_exit(1);
		if (syscall(SYS_unshare, 0) == 0 || errno != EPERM)
			_exit(2);
		if (syscall(SYS_io_uring_setup, 0, 0) == 0 || errno != ENOSYS)
			_exit(3);
		if (socket(AF_UNIX, SOCK_STREAM, 0) < 0)
			_exit(4);
		(void)syscall(SYS_ptrace, 0, 0, 0, 0);
		_exit(5);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFSIGNALED(st));
	assert_int_equal(WTERMSIG(st), SIGSYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_actions),
		cmocka_unit_test(test_in_kernel),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
