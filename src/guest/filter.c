/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* newer than the headers of Debian 12 */
enum {
	NR_X32_BIT = 0x40000000,
	NR_KEXEC_FILE_LOAD = 320,
	NR_LOOKUP_DCOOKIE = 212,
	NR_NFSSERVCTL = 180,
};

#define KILL SECCOMP_RET_KILL_PROCESS
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define ABSENT (SECCOMP_RET_ERRNO | ENOSYS)

static const struct {
	uint32_t nr, action;
} calls[] = {
	/* probed for by run-time libraries, which go on without it */
	{ SYS_io_uring_setup, ABSENT },
	{ SYS_io_uring_enter, ABSENT },
	{ SYS_io_uring_register, ABSENT },
	/* its flags lie in memory, out of a filter's sight; libraries fall back to clone */
	{ SYS_clone3, ABSENT },

	{ SYS_ptrace, KILL },
	{ SYS_process_vm_readv, KILL },
	{ SYS_process_vm_writev, KILL },
	{ SYS_kexec_load, KILL },
	{ NR_KEXEC_FILE_LOAD, KILL },
	{ SYS_init_module, KILL },
	{ SYS_finit_module, KILL },
	{ SYS_delete_module, KILL },
	{ SYS_bpf, KILL },
	{ SYS_seccomp, KILL },

	{ SYS_mount, REFUSE },
	{ SYS_umount2, REFUSE },
	{ SYS_mount_setattr, REFUSE },
	{ SYS_pivot_root, REFUSE },
	{ SYS_chroot, REFUSE },
	{ SYS_fsopen, REFUSE },
	{ SYS_fsconfig, REFUSE },
	{ SYS_fsmount, REFUSE },
	{ SYS_fspick, REFUSE },
	{ SYS_move_mount, REFUSE },
	{ SYS_open_tree, REFUSE },
	{ SYS_unshare, REFUSE },
	{ SYS_setns, REFUSE },
	{ SYS_perf_event_open, REFUSE },
	{ SYS_userfaultfd, REFUSE },
	{ SYS_personality, REFUSE },
	{ SYS_add_key, REFUSE },
	{ SYS_request_key, REFUSE },
	{ SYS_keyctl, REFUSE },
	{ SYS_acct, REFUSE },
	{ SYS_swapon, REFUSE },
	{ SYS_swapoff, REFUSE },
	{ SYS_quotactl, REFUSE },
	{ SYS_quotactl_fd, REFUSE },
	{ SYS_settimeofday, REFUSE },
	{ SYS_clock_settime, REFUSE },
	{ SYS_clock_adjtime, REFUSE },
	{ SYS_adjtimex, REFUSE },
	{ NR_LOOKUP_DCOOKIE, REFUSE },
	{ SYS_kcmp, REFUSE },
	{ NR_NFSSERVCTL, REFUSE },
	{ SYS_reboot, REFUSE },
	{ SYS_iopl, REFUSE },
	{ SYS_ioperm, REFUSE },
	{ SYS_modify_ldt, REFUSE },
	{ SYS_open_by_handle_at, REFUSE },
	{ SYS_fanotify_init, REFUSE },
};

static const uint32_t families[] = { AF_NETLINK, AF_PACKET, AF_KEY, AF_ALG, AF_VSOCK };

enum {
	NEW_NAMESPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
	                 CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET,
};

struct prog {
	struct sock_filter *out;
	size_t n;
};

static void emit(struct prog *p, struct sock_filter f)
{
	ASSERT(p->n < FILTER_INSNS_MAX); /* the tables above are all there is */
	p->out[p->n++] = f;
}

static void load(struct prog *p, size_t offset)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* The next instruction is skipped unless the value just loaded meets the test. */
static void unless_skip(struct prog *p, uint16_t test, uint32_t k)
{
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, k, 0, 1));
}

static void answer(struct prog *p, uint32_t action)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

size_t filter_build(struct sock_filter *out)
{
	struct prog p = { .out = out };

	load(&p, offsetof(struct seccomp_data, arch));
	emit(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
	answer(&p, KILL); /* other numbers would mean other calls */
	load(&p, offsetof(struct seccomp_data, nr));
	unless_skip(&p, BPF_JGE, NR_X32_BIT);
	answer(&p, ABSENT);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		unless_skip(&p, BPF_JEQ, calls[i].nr);
		answer(&p, calls[i].action);
	}
	emit(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
	load(&p, offsetof(struct seccomp_data, args[0]));
	unless_skip(&p, BPF_JSET, NEW_NAMESPACES);
	answer(&p, REFUSE);
	answer(&p, SECCOMP_RET_ALLOW);
	emit(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0));
	answer(&p, SECCOMP_RET_ALLOW);
	load(&p, offsetof(struct seccomp_data, args[0]));
	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		unless_skip(&p, BPF_JEQ, families[i]);
		answer(&p, REFUSE);
	}
	answer(&p, SECCOMP_RET_ALLOW);
	return p.n;
}

int filter_enter(void)
{
	struct sock_filter insns[FILTER_INSNS_MAX];
	struct sock_fprog prog = { .filter = insns };

	prog.len = (unsigned short)filter_build(insns);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0 ? -errno : 0;
}
