/* SPDX-License-Identifier: Apache-2.0 */
/* kvm_guest_dump - write the memory of the KVM probe's guest to stdout. */
#include <stdio.h>

#include "vmm/kvm_probe.h"

int main(void)
{
	static uint8_t mem[KVM_GUEST_BYTES];

	kvm_guest_build(mem);
	return fwrite(mem, 1, sizeof(mem), stdout) == sizeof(mem) ? 0 : 1;
}
