/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm.h - the virtual machine monitor: QEMU's microvm, and whether KVM works.
 *
 * The seam for another backend. Everything that the guest can reach is in
 * struct vmm_config; QEMU opens no disk and no socket by name, it inherits
 * them. Emulation is never chosen silently: vmm_accel_choose() refuses.
 */
#ifndef CLOCHE_VMM_VMM_H
#define CLOCHE_VMM_VMM_H

#include <sys/types.h>

#include "base/proc.h"
#include "base/util.h"

struct buf;
struct err;

/* ---- KVM ---------------------------------------------------------------- */

enum vmm_kvm { VMM_KVM_USABLE, VMM_KVM_ABSENT, VMM_KVM_NO_PERMISSION, VMM_KVM_BROKEN };

struct vmm_kvm_report {
	enum vmm_kvm state;
	char reason[200]; /* "/dev/kvm: permission denied"; "" when usable */
	char remedy[240]; /* what to do; "" when usable */
	uint32_t elapsed_us;
};

/*
 * vmm_kvm_probe() - can this host's KVM run a stock kernel?
 * Opens @path, runs a tiny guest in a forked child (cmpxchg16b, xsave, page
 * tables, an exception, some million instructions) under a deadline.
 * @path:	NULL for /dev/kvm
 *
 * Never fails: what goes wrong is the report. At most 1 s, usually 10-50 ms.
 */
void vmm_kvm_probe(struct vmm_kvm_report *out, const char *path);

const char *vmm_kvm_name(enum vmm_kvm k); /* usable, absent, no-permission, broken */

enum vmm_accel { VMM_ACCEL_AUTO, VMM_ACCEL_KVM, VMM_ACCEL_TCG };

/* "auto", "kvm", "tcg". Return: 0 or -EINVAL. */
int vmm_accel_parse(const char *s, enum vmm_accel *out) MUST_CHECK;
const char *vmm_accel_name(enum vmm_accel a);

/*
 * vmm_accel_choose() - KVM, or emulation when it was asked for by name.
 * @asked:	AUTO and KVM need a usable KVM
 * @report:	of vmm_kvm_probe(); not looked at for TCG (may be NULL then)
 * @out:	VMM_ACCEL_KVM or VMM_ACCEL_TCG
 *
 * Return: 0, or -ENOTSUP / -EACCES with the reason, and the remedy that ends in
 * "--accel tcg".
 */
int vmm_accel_choose(enum vmm_accel asked, const struct vmm_kvm_report *report, enum vmm_accel *out,
                     struct err *err) MUST_CHECK;

/*
 * vmm_tsc_khz() - frequency of the host's TSC, for the guest's command line
 * under emulation (whose calibration loops would hang). Measures for 10 ms
 * against CLOCK_MONOTONIC_RAW. Return: kHz, or 0 when it is not constant.
 */
uint32_t vmm_tsc_khz(void);

/* ---- the machine -------------------------------------------------------- */

enum {
	VMM_DISKS_MAX = 12,  /* microvm has 24 transports, and we three more devices */
	VMM_SERIAL_MAX = 20, /* virtio-blk: VIRTIO_BLK_ID_BYTES */
	VMM_VCPUS_MAX = 64,
	VMM_MEMORY_MIN_MIB = 128,
	VMM_MEMORY_MAX_MIB = 1024 * 1024,
	VMM_MTU_MIN = 1280,
	VMM_MTU_MAX = 65500,    /* a frame must fit libslirp's and QEMU's buffers */
	VMM_CMDLINE_MAX = 2000, /* the kernel's COMMAND_LINE_SIZE is 2048 */
	VMM_FD_BASE = 10,       /* the child's numbers of the descriptors start here */
};

enum vmm_disk_kind {
	VMM_DISK_RAW_FD, /* a file that holds the disk's bytes */
	VMM_DISK_NBD_FD, /* a connected stream socket to an NBD server (export "") */
};

struct vmm_disk {
	const char *serial; /* 1 to 20 of [a-z0-9-]: /sys/block/X/serial in the guest; also
	                       the QMP node name */
	enum vmm_disk_kind kind;
	int fd; /* borrowed; a file is open O_RDONLY when read_only, else O_RDWR */
	bool read_only;
};

struct vmm_config {
	const char *qemu;          /* absolute path of qemu-system-x86_64; NULL: found */
	const char *kernel;        /* absolute path of the kernel's ELF (PVH) */
	const char *initrd;        /* absolute path */
	const char *cmdline_extra; /* appended to ours; NULL: nothing */
	uint32_t memory_mib;
	uint32_t vcpus;
	struct vmm_disk disks[VMM_DISKS_MAX];
	size_t n_disks;
	int control_fd; /* our end is the peer's; QEMU gets this one: virtio-serial "cloche.0" */
	int qmp_fd;
	int console_fd; /* -1, or a file that gets the kernel's serial console (slow) */
	int net_fd;     /* -1: no card at all; or a stream socket of Ethernet frames, each behind
	                         its length (32 bits, big endian) */
	uint8_t net_mac[6];   /* unicast */
	uint16_t net_mtu;     /* the guest is told it */
	enum vmm_accel accel; /* KVM or TCG */
	uint32_t tsc_khz;     /* for TCG: vmm_tsc_khz(); 0 leaves the hint out */
};

/* The kernel's command line. Return: 0, -EINVAL, or -E2BIG. */
int vmm_cmdline(struct buf *out, const struct vmm_config *cfg) MUST_CHECK;

struct vmm_argv {
	char **v; /* NULL-terminated; v[0] is the program */
	size_t n;
	struct proc_fd *fds; /* what the child inherits */
	size_t n_fds;
};

/*
 * vmm_qemu_argv() - QEMU's arguments and the descriptors they name. Pure.
 * Return: 0, or -EINVAL with @err for a value out of its limits.
 */
int vmm_qemu_argv(struct vmm_argv *out, const struct vmm_config *cfg, struct err *err) MUST_CHECK;
void vmm_argv_fini(struct vmm_argv *a);

/* ---- starting it -------------------------------------------------------- */

struct vmm_launch {
	const char *cage;     /* absolute path of cloche-cage; NULL: beside our own program */
	uid_t uid;            /* as root: cage_uid_pick(); else 0 */
	unsigned skip_layers; /* tests: cage.h */
	bool uncaged;         /* tests and measurements only: QEMU without cloche-cage */
};

/*
 * vmm_spawn() - start QEMU in its cage.
 * The child dies with the calling thread. Its descriptors in @cfg stay the
 * caller's: close them afterwards, so that the end of QEMU is an end of file.
 * @out_stderr:	read end of a pipe with what the cage and QEMU say; nonblocking,
 *		close-on-exec, the caller's; feed it to a struct vmm_tail
 *
 * Return: 0, or -errno with @err.
 */
int vmm_spawn(struct proc *out, int *out_stderr, const struct vmm_config *cfg,
              const struct vmm_launch *launch, struct err *err) MUST_CHECK;

/* The last lines that QEMU wrote: zero-initialise. */
enum { VMM_TAIL_BYTES = 2048 };
struct vmm_tail {
	char b[VMM_TAIL_BYTES];
	size_t len;
	bool at_end;
};

/* Read what is there. Return: 0, -EAGAIN when more may come, -errno. Sets at_end. */
int vmm_tail_read(struct vmm_tail *t, int fd);

/*
 * vmm_exit_err() - say why QEMU ended too early.
 * @wait_status:	of waitpid()
 * Fills @err with status and the last lines, made visible. Return: -EIO.
 */
int vmm_exit_err(struct err *err, const struct vmm_tail *t, int wait_status);

#endif
