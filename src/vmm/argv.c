/* SPDX-License-Identifier: Apache-2.0 */
/*
 * argv.c - the machine as QEMU's arguments. Pure.
 *
 * Why each choice: docs/architecture.md, "The machine". In short: microvm with
 * ACPI, because a stock kernel finds virtio-mmio devices by nothing else; the
 * kernel's ELF entered by PVH, no firmware option ROMs; every device named
 * here, nothing by default.
 */
#include "vmm/vmm.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/span.h"

enum { ARGS_MAX = 160, FDS_MAX = VMM_DISKS_MAX + 8 };

static bool serial_ok(const char *s)
{
	size_t n = s ? strlen(s) : 0;

	/* a letter first: it is a node name of QEMU's too */
	if (n == 0 || n > VMM_SERIAL_MAX || s[0] < 'a' || s[0] > 'z')
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

int vmm_cmdline(struct buf *out, const struct vmm_config *cfg)
{
	size_t before = out->len;
	/* reboot=t: a triple fault is the quickest way off (with -no-reboot); panic=-1: at
	 * once. audit and apparmor have no user in the guest; the self-tests of
	 * the crypto API are a tenth of the boot. Mitigations stay on. */
	int r = buf_printf(out, "%s reboot=t panic=-1 audit=0 apparmor=0 cryptomgr.notests",
	                   cfg->console_fd >= 0 ? "console=ttyS0" : "quiet");

	if (r == 0 && cfg->accel == VMM_ACCEL_TCG && cfg->tsc_khz)
		/* calibration loops do not end under emulation, and the check of the timer
		 * can end in a panic: it wants more than four ticks within ten ticks' time
		 * of a CPU that a busy host may stop (under KVM the kernel skips it itself) */
		r = buf_printf(out, " no_timer_check tsc=reliable tsc_early_khz=%u", cfg->tsc_khz);
	if (r == 0 && cfg->cmdline_extra) {
		for (const char *p = cfg->cmdline_extra; *p; p++)
			if (*p < ' ' || *p > '~')
				return -EINVAL;
		r = buf_printf(out, " %s", cfg->cmdline_extra);
	}
	if (r == 0 && out->len - before > VMM_CMDLINE_MAX)
		r = -E2BIG;
	return r;
}

static void add(struct vmm_argv *a, const char *fmt, ...) PRINTF_FMT(2, 3);

static void add(struct vmm_argv *a, const char *fmt, ...)
{
	va_list ap;

	ASSERT(a->n + 1 < ARGS_MAX);
	va_start(ap, fmt);
	if (vasprintf(&a->v[a->n], fmt, ap) < 0)
		ASSERT(!"memory");
	va_end(ap);
	a->v[++a->n] = NULL;
}

/* Pass @fd on. Return: its number in the child. */
static int pass(struct vmm_argv *a, int fd)
{
	int to = VMM_FD_BASE + (int)a->n_fds;

	ASSERT(a->n_fds < FDS_MAX);
	a->fds[a->n_fds++] = (struct proc_fd){ .from = fd, .to = to };
	return to;
}

static void add_disk(struct vmm_argv *a, const struct vmm_disk *d, size_t i)
{
	const char *ro = d->read_only ? "on" : "off";
	int fd = pass(a, d->fd);

	if (d->kind == VMM_DISK_NBD_FD) {
		add(a, "-blockdev");
		add(a, "driver=nbd,node-name=%s,read-only=%s,server.type=fd,server.str=%d",
		    d->serial, ro, fd);
	} else {
		add(a, "-add-fd");
		add(a, "fd=%d,set=%zu", fd, i + 1);
		add(a, "-blockdev");
		/* no locks: the monitor's lock file holds the sandbox */
		add(a,
		    "driver=file,node-name=%s,filename=/dev/fdset/%zu,read-only=%s,"
		    "auto-read-only=off,locking=off%s",
		    d->serial, i + 1, ro, d->read_only ? "" : ",discard=unmap");
	}
	add(a, "-device");
	/* a full host stops the guest instead of failing its writes */
	add(a, "virtio-blk-device,drive=%s,serial=%s,num-queues=1%s", d->serial, d->serial,
	    d->read_only ? "" : ",werror=enospc,rerror=report");
}

/* No option ROM to load on virtio-mmio, and no offloads: a stream has no header that says them. */
static void add_net(struct vmm_argv *a, const struct vmm_config *cfg)
{
	const uint8_t *m = cfg->net_mac;

	add(a, "-netdev");
	add(a, "stream,id=net,server=off,addr.type=fd,addr.str=%d", pass(a, cfg->net_fd));
	add(a, "-device");
	add(a, "virtio-net-device,netdev=net,mac=%02x:%02x:%02x:%02x:%02x:%02x,host_mtu=%u", m[0],
	    m[1], m[2], m[3], m[4], m[5], cfg->net_mtu);
}

static int check(const struct vmm_config *cfg, struct err *err)
{
	if (!cfg->qemu || cfg->qemu[0] != '/')
		return err_set(err, -EINVAL, "no path of QEMU");
	if (!cfg->kernel || cfg->kernel[0] != '/' || !cfg->initrd || cfg->initrd[0] != '/')
		return err_set(err, -EINVAL, "no path of kernel or initramfs");
	if (cfg->memory_mib < VMM_MEMORY_MIN_MIB || cfg->memory_mib > VMM_MEMORY_MAX_MIB)
		return err_set(err, -EINVAL, "memory of %u MiB is not between %d and %d",
		               cfg->memory_mib, VMM_MEMORY_MIN_MIB, VMM_MEMORY_MAX_MIB);
	if (cfg->vcpus < 1 || cfg->vcpus > VMM_VCPUS_MAX)
		return err_set(err, -EINVAL, "%u vCPUs are not between 1 and %d", cfg->vcpus,
		               VMM_VCPUS_MAX);
	if (cfg->n_disks > VMM_DISKS_MAX)
		return err_set(err, -EINVAL, "more than %d disks", VMM_DISKS_MAX);
	if (cfg->accel != VMM_ACCEL_KVM && cfg->accel != VMM_ACCEL_TCG)
		return err_set(err, -EINVAL, "no accelerator was chosen");
	if (cfg->control_fd < 0 || cfg->qmp_fd < 0)
		return err_set(err, -EINVAL, "no control or QMP socket");
	if (cfg->net_fd >= 0) {
		static const uint8_t none[sizeof(cfg->net_mac)];

		if ((cfg->net_mac[0] & 1) || memcmp(cfg->net_mac, none, sizeof(none)) == 0)
			return err_set(err, -EINVAL, "the card's address is not a unicast one");
		if (cfg->net_mtu < VMM_MTU_MIN || cfg->net_mtu > VMM_MTU_MAX)
			return err_set(err, -EINVAL, "an MTU of %u is not between %d and %d",
			               cfg->net_mtu, VMM_MTU_MIN, VMM_MTU_MAX);
	}
	for (size_t i = 0; i < cfg->n_disks; i++) {
		const struct vmm_disk *d = &cfg->disks[i];

		if (!serial_ok(d->serial) || d->fd < 0)
			return err_set(err, -EINVAL, "disk %zu has no usable serial or file", i);
		for (size_t k = 0; k < i; k++)
			if (strcmp(cfg->disks[k].serial, d->serial) == 0)
				return err_set(err, -EINVAL, "two disks '%s'", d->serial);
	}
	return 0;
}

int vmm_qemu_argv(struct vmm_argv *out, const struct vmm_config *cfg, struct err *err)
{
	struct vmm_argv a = { 0 };
	AUTO_BUF struct buf line = { 0 };
	bool kvm = cfg->accel == VMM_ACCEL_KVM;
	int r = check(cfg, err);

	if (r < 0)
		return r;
	r = vmm_cmdline(&line, cfg);
	if (r < 0)
		return err_code(err, r, "cannot make the kernel's command line");
	a.v = xcalloc(ARGS_MAX, sizeof(*a.v));
	a.fds = xcalloc(FDS_MAX, sizeof(*a.fds));
	add(&a, "%s", cfg->qemu);
	add(&a, "-nodefaults");
	add(&a, "-no-user-config");
	add(&a, "-nographic");
	add(&a, "-no-reboot");
	add(&a, "-sandbox");
	add(&a, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	add(&a, "-machine");
	/* guest memory neither in core dumps nor merged with that of others (KSM leaks by
	 * its timing) */
	add(&a, "microvm,x-option-roms=off,isa-serial=%s,acpi=on,dump-guest-core=off,mem-merge=off",
	    cfg->console_fd >= 0 ? "on" : "off");
	/* The small one: it starts a PVH kernel as it is, and needs no option ROM for that.
	 * QEMU takes SeaBIOS where there is ACPI; that is slower (0.6 s of a boot under
	 * emulation), and without option ROMs QEMU 10's finds "no bootable device". */
	add(&a, "-bios");
	add(&a, "qboot.rom");
	add(&a, "-accel");
	/*
	 * One thread for all vCPUs under emulation. With several, QEMU before 8.1 can
	 * translate a code page while another vCPU patches it, and keeps the stale code: a
	 * jump label that Linux patched by way of int3 then traps for ever ("Oops: int3" at
	 * boot, one in a hundred). The kernel patches code all its life.
	 */
	add(&a, "%s", kvm ? "kvm" : "tcg,thread=single");
	add(&a, "-cpu");
	/* An emulator's string instructions go byte by byte: told that they are fast, Linux
	 * copies with them, at half the speed of its loop of words. */
	add(&a, "%s", kvm ? "host" : "max,erms=off");
	add(&a, "-m");
	add(&a, "%uM", cfg->memory_mib);
	add(&a, "-smp");
	add(&a, "%u", cfg->vcpus);
	add(&a, "-kernel");
	add(&a, "%s", cfg->kernel);
	add(&a, "-initrd");
	add(&a, "%s", cfg->initrd);
	add(&a, "-append");
	add(&a, "%.*s", (int)line.len, (const char *)line.p);
	add(&a, "-chardev");
	add(&a, "socket,id=qmp,fd=%d", pass(&a, cfg->qmp_fd));
	add(&a, "-mon");
	add(&a, "chardev=qmp,mode=control");
	add(&a, "-device");
	add(&a, "virtio-serial-device,max_ports=2");
	add(&a, "-chardev");
	add(&a, "socket,id=control,fd=%d", pass(&a, cfg->control_fd));
	add(&a, "-device");
	add(&a, "virtserialport,chardev=control,name=cloche.0");
	add(&a, "-object");
	add(&a, "rng-builtin,id=rng");
	add(&a, "-device");
	add(&a, "virtio-rng-device,rng=rng");
	for (size_t i = 0; i < cfg->n_disks; i++)
		add_disk(&a, &cfg->disks[i], i);
	if (cfg->net_fd >= 0)
		add_net(&a, cfg);
	if (cfg->console_fd >= 0) {
		add(&a, "-add-fd");
		add(&a, "fd=%d,set=%d", pass(&a, cfg->console_fd), VMM_DISKS_MAX + 1);
		add(&a, "-chardev");
		add(&a, "file,id=console,path=/dev/fdset/%d", VMM_DISKS_MAX + 1);
		add(&a, "-serial");
		add(&a, "chardev:console");
	}
	*out = a;
	return 0;
}

void vmm_argv_fini(struct vmm_argv *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->n; i++)
		free(a->v[i]);
	free(a->v);
	free(a->fds);
	*a = (struct vmm_argv){ 0 };
}
