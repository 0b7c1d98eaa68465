/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvm_probe.c - vmm_kvm_probe(): the raw KVM API (Documentation/virt/kvm/api.rst).
 *
 * In a forked child, because a broken KVM may hang in the kernel: the child has
 * a timer that makes KVM_RUN return, and the parent a longer one that ends the
 * child.
 */
#include "vmm/kvm_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "vmm/vmm.h"

enum {
	DEADLINE_MS = 800,
	PARENT_MS = 1000,
	CPUID_MAX = 256,
	KVM_API = 12,
	MSR_ARCH_CAPABILITIES = 0x10a,
	CR0_LONG = 0x80050033U, /* PG, AM, WP, NE, ET, MP, PE */
	CR4_LONG = 0x40620,     /* OSXSAVE, OSXMMEXCPT, OSFXSR, PAE */
	EFER_LONG = 0x500,      /* LMA, LME */
};

static const char with_tcg[] = "or run with --accel tcg (slow, weaker)";

static struct kvm_run *alarm_run;

static void on_alarm(int signo UNUSED)
{
	if (alarm_run)
		alarm_run->immediate_exit = 1;
}

static void broken(struct vmm_kvm_report *out, const char *fmt, ...) PRINTF_FMT(2, 3);

static void broken(struct vmm_kvm_report *out, const char *fmt, ...)
{
	char what[120];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	out->state = VMM_KVM_BROKEN;
	(void)snprintf(out->reason, sizeof(out->reason), "/dev/kvm cannot run a stock kernel (%s)",
	               what);
	(void)snprintf(out->remedy, sizeof(out->remedy),
	               "use a machine whose KVM runs unmodified kernels (in a VM: hardware nested "
	               "virtualisation of the host around it), %s",
	               with_tcg);
}

/* The processor that -cpu host would show. */
static bool set_cpu(struct vmm_kvm_report *out, int kvm, int vcpu, bool *out_arch_caps)
{
	AUTO_FREE struct kvm_cpuid2 *cpuid =
		xcalloc(1, sizeof(*cpuid) + CPUID_MAX * sizeof(struct kvm_cpuid_entry2));

	cpuid->nent = CPUID_MAX;
	if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid) < 0) {
		broken(out, "no CPUID: %s", strerror(errno));
		return false;
	}
	if (ioctl(vcpu, KVM_SET_CPUID2, cpuid) < 0) {
		broken(out, "CPUID refused: %s", strerror(errno));
		return false;
	}
	*out_arch_caps = false;
	for (uint32_t i = 0; i < cpuid->nent && i < CPUID_MAX; i++)
		if (cpuid->entries[i].function == 7 && cpuid->entries[i].index == 0)
			*out_arch_caps = cpuid->entries[i].edx & 1U << 29;
	return true;
}

/* The MSR that QEMU's -cpu host sets, and ends when it cannot. */
static void set_msr(struct vmm_kvm_report *out, int kvm, int vcpu)
{
	AUTO_FREE struct kvm_msrs *m = xcalloc(1, sizeof(*m) + sizeof(struct kvm_msr_entry));

	m->nmsrs = 1;
	m->entries[0].index = MSR_ARCH_CAPABILITIES;
	if (ioctl(kvm, KVM_GET_MSRS, m) == 1 && ioctl(vcpu, KVM_SET_MSRS, m) != 1)
		broken(out, "MSR 0x10a is offered and refused");
}

static bool set_registers(struct vmm_kvm_report *out, int vcpu)
{
	struct kvm_segment code = {
		.limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1
	};
	struct kvm_segment data = code;
	struct kvm_regs regs = { .rip = KVM_GUEST_CODE, .rsp = KVM_GUEST_STACK_TOP, .rflags = 2 };
	struct kvm_sregs s;

	data.selector = 16;
	data.type = 3;
	data.l = 0;
	data.db = 1;
	if (ioctl(vcpu, KVM_GET_SREGS, &s) < 0)
		goto fail;
	s.cs = code;
	s.ds = s.es = s.fs = s.gs = s.ss = data;
	s.gdt = (struct kvm_dtable){ .base = KVM_GUEST_GDT, .limit = 23 };
	s.idt = (struct kvm_dtable){ .base = KVM_GUEST_IDT, .limit = 32 * 16 - 1 };
	s.cr0 = CR0_LONG;
	s.cr3 = KVM_GUEST_PML4;
	s.cr4 = CR4_LONG;
	s.efer = EFER_LONG;
	if (ioctl(vcpu, KVM_SET_SREGS, &s) < 0 || ioctl(vcpu, KVM_SET_REGS, &regs) < 0)
		goto fail;
	return true;
fail:
	broken(out, "long mode refused: %s", strerror(errno));
	return false;
}

static void run_guest(struct vmm_kvm_report *out, int vcpu, struct kvm_run *run, const uint8_t *mem)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval at = { .it_value.tv_usec = DEADLINE_MS * 1000 };
	uint32_t stage;

	alarm_run = run;
	(void)sigaction(SIGALRM, &sa, NULL);
	(void)setitimer(ITIMER_REAL, &at, NULL);
	int r = ioctl(vcpu, KVM_RUN, 0);
	int e = errno;
	memcpy(&stage, mem + KVM_GUEST_STAGE, sizeof(stage));
	const char *where = kvm_guest_stage_name(stage);
	if (r < 0 && e == EINTR)
		broken(out, "no answer within %d ms, at %s", DEADLINE_MS, where);
	else if (r < 0)
		broken(out, "%s at %s", strerror(e), where);
	else if (run->exit_reason == KVM_EXIT_INTERNAL_ERROR)
		broken(out, "internal error %u at %s", run->internal.suberror, where);
	else if (run->exit_reason == KVM_EXIT_FAIL_ENTRY)
		broken(out, "entry failed at %s", where);
	else if (run->exit_reason != KVM_EXIT_IO || run->io.port != KVM_GUEST_PORT)
		broken(out, "exit %u at %s", run->exit_reason, where);
	else if (stage != KVM_GUEST_STAGES)
		broken(out, "wrong result at %s", where);
	else
		out->state = VMM_KVM_USABLE;
}

/* In the child. Descriptors and memory end with it. */
static void probe(struct vmm_kvm_report *out, int kvm)
{
	int api = ioctl(kvm, KVM_GET_API_VERSION, 0);

	if (api != KVM_API) {
		broken(out, "API version %d", api);
		return;
	}
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0) {
		broken(out, "no VM: %s", strerror(errno));
		return;
	}
	uint8_t *mem = mmap(NULL, KVM_GUEST_BYTES, PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED) {
		broken(out, "no memory");
		return;
	}
	kvm_guest_build(mem);
	struct kvm_userspace_memory_region region = {
		.memory_size = KVM_GUEST_BYTES,
		.userspace_addr = (uint64_t)(uintptr_t)mem,
	};
	/* Intel without unrestricted guest needs a place for its own tables */
	(void)ioctl(vm, KVM_SET_TSS_ADDR, 0xfffbd000UL);
	int vcpu;
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0 ||
	    (vcpu = ioctl(vm, KVM_CREATE_VCPU, 0)) < 0) {
		broken(out, "no VM: %s", strerror(errno));
		return;
	}
	int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	struct kvm_run *run = MAP_FAILED;
	if (size >= (int)sizeof(*run))
		run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (run == MAP_FAILED) {
		broken(out, "no vCPU: %s", strerror(errno));
		return;
	}
	bool arch_caps;
	if (!set_cpu(out, kvm, vcpu, &arch_caps) || !set_registers(out, vcpu))
		return;
	run_guest(out, vcpu, run, mem);
	if (out->state == VMM_KVM_USABLE && arch_caps)
		set_msr(out, kvm, vcpu);
}

static void open_failed(struct vmm_kvm_report *out, const char *path)
{
	int e = errno;

	if (e == EACCES || e == EPERM) {
		out->state = VMM_KVM_NO_PERMISSION;
		(void)snprintf(out->reason, sizeof(out->reason), "%s: permission denied", path);
		(void)snprintf(out->remedy, sizeof(out->remedy),
		               "add yourself to the group kvm (sudo usermod -aG kvm $USER, then "
		               "log in again), %s",
		               with_tcg);
		return;
	}
	out->state = VMM_KVM_ABSENT;
	(void)snprintf(out->reason, sizeof(out->reason), "%s: %s", path, strerror(e));
	(void)snprintf(out->remedy, sizeof(out->remedy),
	               "switch virtualisation on in the firmware and load kvm_intel or kvm_amd "
	               "(sudo modprobe kvm_intel), %s",
	               with_tcg);
}

static uint32_t elapsed_us(const struct timespec *since)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint32_t)((now.tv_sec - since->tv_sec) * 1000000 +
	                  (now.tv_nsec - since->tv_nsec) / 1000);
}

void vmm_kvm_probe(struct vmm_kvm_report *out, const char *path)
{
	struct timespec start;
	int p[2];

	*out = (struct vmm_kvm_report){ 0 };
	if (!path)
		path = "/dev/kvm";
	(void)clock_gettime(CLOCK_MONOTONIC, &start);
	AUTO_CLOSE int kvm = open(path, O_RDWR | O_CLOEXEC);
	if (kvm < 0) {
		open_failed(out, path);
		out->elapsed_us = elapsed_us(&start);
		return;
	}
	if (pipe2(p, O_CLOEXEC) < 0) {
		broken(out, "no pipe: %s", strerror(errno));
		return;
	}
	AUTO_CLOSE int rd = p[0];
	AUTO_CLOSE int wr = p[1];
	pid_t pid = fork();
	if (pid == 0) {
		probe(out, kvm);
		_exit(fd_write_all(wr, out, sizeof(*out)) < 0);
	}
	auto_close_(&wr);
	wr = -1;
	struct pollfd pf = { .fd = rd, .events = POLLIN };
	struct vmm_kvm_report got;
	if (pid < 0) {
		broken(out, "no process: %s", strerror(errno));
	} else if (poll(&pf, 1, PARENT_MS) <= 0) {
		(void)kill(pid, SIGKILL); /* ours, not reaped yet */
		broken(out, "hangs in the kernel");
	} else if (fd_read_exact(rd, &got, sizeof(got)) < 0) {
		broken(out, "the probe died");
	} else {
		*out = got;
	}
	/* one that hangs in the kernel cannot be waited for: init will reap it */
	for (int i = 0; pid > 0 && waitpid(pid, NULL, WNOHANG) == 0 && i < 100; i++)
		(void)usleep(1000);
	out->elapsed_us = elapsed_us(&start);
}

const char *vmm_kvm_name(enum vmm_kvm k)
{
	static const char *const names[] = {
		[VMM_KVM_USABLE] = "usable",
		[VMM_KVM_ABSENT] = "absent",
		[VMM_KVM_NO_PERMISSION] = "no-permission",
		[VMM_KVM_BROKEN] = "broken",
	};

	return names[k];
}
