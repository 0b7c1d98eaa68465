/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvm_guest_boot.S - multiboot entry that puts the KVM probe's guest (mem.bin)
 * to address 0 and enters it in the state that kvm_probe.c sets.
 */
	.code32
	.section .text
	.balign	4
	.long	0x1BADB002, 0, -(0x1BADB002)
	.globl	_start
_start:
	cli
	movl	$image, %esi
	xorl	%edi, %edi
	movl	$0x10000/4, %ecx
	rep movsl
	movl	$0x40620, %eax
	movl	%eax, %cr4
	movl	$0x1000, %eax
	movl	%eax, %cr3
	movl	$0xc0000080, %ecx
	movl	$0x100, %eax
	xorl	%edx, %edx
	wrmsr
	/* this code, at 1 MiB, must stay mapped until the jump */
	movl	$0x4000+256*8, %edi
	movl	$0x100003, %eax
	movl	$64, %ecx
1:	movl	%eax, (%edi)
	movl	$0, 4(%edi)
	addl	$0x1000, %eax
	addl	$8, %edi
	loop	1b
	lgdt	gdtr
	lidt	idtr
	movl	$0x80050033, %eax
	movl	%eax, %cr0
	ljmp	$8, $go
	.code64
go:
	movl	$16, %eax
	movl	%eax, %ss
	movl	%eax, %ds
	movl	$0x9000, %esp
	movl	$0x7000, %eax
	jmp	*%rax
gdtr:	.word	23
	.long	0x5000
idtr:	.word	32*16-1
	.quad	0x6000
	.balign	16
image:	.incbin	"mem.bin"
