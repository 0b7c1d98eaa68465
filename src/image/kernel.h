/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - pure parsers for what a kernel package holds: the compressed ELF
 * inside a bzImage, that ELF, and the dependencies of modules.
 *
 * All input is untrusted; results point into the caller's bytes.
 */
#ifndef CLOCHE_IMAGE_KERNEL_H
#define CLOCHE_IMAGE_KERNEL_H

#include "base/span.h"

enum {
	KERNEL_BZIMAGE_MAX = 64 * 1024 * 1024,
	KERNEL_ELF_MAX = 512 * 1024 * 1024,
	KMOD_BYTES_MAX = 64 * 1024 * 1024,
	KMOD_NAME_MAX = 64,
	KMOD_DEPS_MAX = 32,
	KMOD_LIST_MAX = 128,
};

enum bzimage_kind { BZIMAGE_GZIP, BZIMAGE_XZ, BZIMAGE_LZ4, BZIMAGE_ZSTD };

struct bzimage {
	enum bzimage_kind kind;
	struct span payload; /* one compressed stream, without the size behind it */
	uint32_t elf_bytes;  /* what it must unpack to; 1 to KERNEL_ELF_MAX */
};

/*
 * bzimage_payload() - find the compressed kernel in a bzImage.
 *
 * Source: Documentation/arch/x86/boot.rst (setup_sects 0x1f1, "HdrS" 0x202,
 * version 0x206, payload_offset 0x248, payload_length 0x24c). The build appends
 * the unpacked size as u32 to the payload; gzip has its own in the same place,
 * which stays part of the stream.
 *
 * Return: 0 or -EPROTO.
 */
int bzimage_payload(struct bzimage *out, struct span image) MUST_CHECK;

/*
 * kernel_elf_check() - is it an x86-64 ELF executable whose segments lie in
 * the file and that can be entered through PVH (a "Xen" note of type 18)?
 *
 * Return: 0 with the entry's physical address, or -EPROTO.
 */
int kernel_elf_check(struct span elf, uint64_t *out_pvh_entry) MUST_CHECK;

struct kmod_deps {
	struct span name[KMOD_DEPS_MAX]; /* as written: '-' and '_' are the same */
	size_t n;
};

/*
 * kmod_depends() - the "depends=" of a module's .modinfo section.
 * Return: 0 or -EPROTO (no 64-bit little endian ELF, no such section, over a limit).
 */
int kmod_depends(struct kmod_deps *out, struct span ko) MUST_CHECK;

/*
 * kmod_slim() - take out of a module what costs the guest time and serves nobody
 * there: the appended signature (the guest checks none: whoever could swap the
 * module holds the kernel, too) and the type information of tracers (.BTF).
 * Hashing and parsing them was 40% of the guest's way from PID 1 to ready.
 * @ko:		changed in place
 *
 * Return: the new length; @len when it is not as expected, then unchanged.
 */
size_t kmod_slim(uint8_t *ko, size_t len) MUST_CHECK;

/* Are these names of the same module ('-' equals '_')? */
bool kmod_name_eq(struct span a, struct span b);

/* "virtio-rng" of "./lib/modules/R/kernel/drivers/virtio-rng.ko.xz"; empty when it is no module. */
struct span kmod_name_of_path(struct span path);

struct kmod {
	struct span name;
	struct kmod_deps deps;
	bool is_wanted; /* in: asked for; its dependencies come by themselves */
};

/*
 * kmod_order() - an order of loading: every module behind what it depends on,
 * otherwise as in @mods.
 * @order:	KMOD_LIST_MAX indices into @mods
 *
 * A dependency that is not in @mods is built in, or was not packed: skipped,
 * since the caller completed @mods before.
 *
 * Return: how many, or -EPROTO for a cycle or more than KMOD_LIST_MAX modules.
 */
int kmod_order(const struct kmod *mods, size_t n, uint16_t order[KMOD_LIST_MAX]) MUST_CHECK;

#endif
