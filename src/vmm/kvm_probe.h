/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvm_probe.h - the guest that vmm_kvm_probe() runs: pure, for its test.
 *
 * Memory map of the guest (identity mapped, 4 KiB pages, ring 0, long mode):
 *   0x1000 PML4   0x2000 PDPT   0x3000 PD     0x4000 PT
 *   0x5000 GDT    0x6000 IDT    0x7000 code   0x8000-0x8fff stack
 *   0x9000 data   0xa000, 0xb000 two pages shown in turn at 0xc000
 */
#ifndef CLOCHE_VMM_KVM_PROBE_H
#define CLOCHE_VMM_KVM_PROBE_H

#include "base/util.h"

enum {
	KVM_GUEST_BYTES = 0x10000,
	KVM_GUEST_PML4 = 0x1000,
	KVM_GUEST_PT = 0x4000,
	KVM_GUEST_GDT = 0x5000,
	KVM_GUEST_IDT = 0x6000,
	KVM_GUEST_CODE = 0x7000,
	KVM_GUEST_STACK_TOP = 0x9000,
	KVM_GUEST_STAGE = 0x9100, /* u32: the stage that runs */
	KVM_GUEST_ALIAS = 0xc000,
	KVM_GUEST_STAGES = 7,  /* value of the stage after the last one */
	KVM_GUEST_PORT = 0xf4, /* written to at the end */
};

/* Fill @mem, KVM_GUEST_BYTES long, with tables and code. */
void kvm_guest_build(uint8_t *mem);

/* "cmpxchg16b", "xsave", ...; "start" for 0 and "?" beyond. */
const char *kvm_guest_stage_name(uint32_t stage);

#endif
