/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvm_guest.c - the probe's guest: what a stock kernel does in its first
 * milliseconds and what nested or software KVMs have been seen to fail at.
 */
#include "vmm/kvm_probe.h"

#include <string.h>

#include "base/span.h"

/*
 * The stage is written before it begins, so that the host can say where the
 * guest stopped. Addresses are those of kvm_probe.h. Any exception but the one
 * asked for ends in "2:", a write to the port with the stage not at its end.
 */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "kvm_guest_code:\n"
        /* 1: a locked 16-byte exchange (SLUB, per-CPU counters) */
        "	movl	$1, 0x9100\n"
        "	xorl	%eax, %eax\n"
        "	xorl	%edx, %edx\n"
        "	movl	$0x11, %ebx\n"
        "	movl	$0x22, %ecx\n"
        "	lock cmpxchg16b 0x9000\n"
        "	jnz	2f\n"
        "	cmpl	$0x22, 0x9008\n"
        "	jne	2f\n"
        /* 2: extended state */
        "	movl	$2, 0x9100\n"
        "	xorl	%ecx, %ecx\n"
        "	xgetbv\n"
        "	movl	$3, %eax\n"
        "	xorl	%edx, %edx\n"
        "	xsetbv\n"
        "	xgetbv\n"
        "	cmpl	$3, %eax\n"
        "	jne	2f\n"
        "	movl	$3, %eax\n"
        "	xorl	%edx, %edx\n"
        "	xsave	0x9400\n"
        "	xrstor	0x9400\n"
        /* 3: page tables change under the processor's feet: invlpg */
        "	movl	$3, 0x9100\n"
        "	movl	$0xaaaa, 0xa000\n"
        "	movl	$0xbbbb, 0xb000\n"
        "	movl	$1000, %esi\n"
        "1:	movl	$0xa003, 0x4060\n"
        "	invlpg	0xc000\n"
        "	cmpl	$0xaaaa, 0xc000\n"
        "	jne	2f\n"
        "	movl	$0xb003, 0x4060\n"
        "	invlpg	0xc000\n"
        "	cmpl	$0xbbbb, 0xc000\n"
        "	jne	2f\n"
        "	decl	%esi\n"
        "	jnz	1b\n"
        /* 4: the same by CR3 */
        "	movl	$4, 0x9100\n"
        "	movl	$1000, %esi\n"
        "1:	movl	$0xa003, 0x4060\n"
        "	movq	%cr3, %rax\n"
        "	movq	%rax, %cr3\n"
        "	cmpl	$0xaaaa, 0xc000\n"
        "	jne	2f\n"
        "	movl	$0xb003, 0x4060\n"
        "	movq	%rax, %cr3\n"
        "	cmpl	$0xbbbb, 0xc000\n"
        "	jne	2f\n"
        "	decl	%esi\n"
        "	jnz	1b\n"
        /* 5: an exception, and back */
        "	movl	$5, 0x9100\n"
        "	xorl	%edi, %edi\n"
        "	ud2\n"
        "	cmpl	$0x77, %edi\n"
        "	jne	2f\n"
        /* 6: it must not crawl: ten million instructions */
        "	movl	$6, 0x9100\n"
        "	movl	$5000000, %ecx\n"
        "1:	decl	%ecx\n"
        "	jnz	1b\n"
        "	movl	$7, 0x9100\n"
        "2:	movl	0x9100, %eax\n"
        "	outb	%al, $0xf4\n"
        "3:	hlt\n"
        "	jmp	3b\n"
        ".balign 16\n"
        "kvm_guest_ud:\n" /* vector 6: step over ud2 (2 bytes) */
        "	addq	$2, (%rsp)\n"
        "	movl	$0x77, %edi\n"
        "	iretq\n"
        ".balign 16\n"
        "kvm_guest_fault:\n" /* any other vector */
        "	movl	0x9100, %eax\n"
        "	outb	%al, $0xf4\n"
        "4:	hlt\n"
        "	jmp	4b\n"
        "kvm_guest_end:\n"
        ".popsection\n");

extern const uint8_t kvm_guest_code[] __attribute__((visibility("hidden")));
extern const uint8_t kvm_guest_ud[] __attribute__((visibility("hidden")));
extern const uint8_t kvm_guest_fault[] __attribute__((visibility("hidden")));
extern const uint8_t kvm_guest_end[] __attribute__((visibility("hidden")));

enum { PRESENT_WRITE = 3, CODE_SELECTOR = 8, GATE_INTERRUPT = 0x8e, VECTOR_UD = 6, VECTORS = 32 };

static void put(uint8_t *mem, size_t at, uint64_t v)
{
	struct wr w = wr_of(mem + at, 8);

	wr_le(&w, v, 8);
}

static void gate(uint8_t *mem, unsigned vector, uint64_t handler)
{
	size_t at = KVM_GUEST_IDT + (size_t)vector * 16;

	/* SDM 3A 6.14.1 */
	put(mem, at,
	    (handler & 0xffff) | (uint64_t)CODE_SELECTOR << 16 | (uint64_t)GATE_INTERRUPT << 40 |
	            (handler >> 16 & 0xffff) << 48);
	put(mem, at + 8, handler >> 32);
}

/* Address in the guest of a label of the code above. */
static uint64_t at_code(const uint8_t *label)
{
	return KVM_GUEST_CODE + (uint64_t)(uintptr_t)label - (uint64_t)(uintptr_t)kvm_guest_code;
}

void kvm_guest_build(uint8_t *mem)
{
	size_t n = (size_t)((uintptr_t)kvm_guest_end - (uintptr_t)kvm_guest_code);

	memset(mem, 0, KVM_GUEST_BYTES);
	put(mem, KVM_GUEST_PML4, 0x2000 | PRESENT_WRITE);
	put(mem, 0x2000, 0x3000 | PRESENT_WRITE);
	put(mem, 0x3000, KVM_GUEST_PT | PRESENT_WRITE);
	for (size_t page = 0; page < KVM_GUEST_BYTES / 4096; page++)
		put(mem, KVM_GUEST_PT + page * 8, page * 4096 | PRESENT_WRITE);
	/* 64-bit code and data descriptors, for iretq to load again */
	put(mem, KVM_GUEST_GDT + 8, 0x00af9b000000ffff);
	put(mem, KVM_GUEST_GDT + 16, 0x00cf93000000ffff);
	for (unsigned v = 0; v < VECTORS; v++)
		gate(mem, v, at_code(v == VECTOR_UD ? kvm_guest_ud : kvm_guest_fault));
	ASSERT(n <= 0x1000);
	memcpy(mem + KVM_GUEST_CODE, kvm_guest_code, n);
}

const char *kvm_guest_stage_name(uint32_t stage)
{
	static const char *const names[] = { "start",     "cmpxchg16b", "xsave",        "invlpg",
		                             "CR3 loads", "exception",  "instructions", "end" };

	return stage < ARRAY_LEN(names) ? names[stage] : "?";
}
