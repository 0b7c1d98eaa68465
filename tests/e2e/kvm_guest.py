#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvm_guest.py KVM-GUEST-DUMP

Runs the KVM probe's guest on QEMU's software emulation, so that it is known to
be right where no KVM is: the port that it writes its last stage to ends QEMU
with 2 * stage + 1. Exit 77 (skipped) without QEMU.
"""
import os
import shutil
import subprocess
import sys
import tempfile

STAGES = 7  # KVM_GUEST_STAGES


def main():
    dump = os.path.abspath(sys.argv[1])
    boot = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kvm_guest_boot.S")
    qemu = shutil.which("qemu-system-x86_64")
    if not qemu:
        sys.exit(77)
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "mem.bin"), "wb") as f:
            subprocess.run([dump], stdout=f, check=True)
        # the comments are the C preprocessor's
        subprocess.run(["cc", "-E", "-P", "-x", "assembler-with-cpp", boot, "-o", "boot.s"],
                       cwd=d, check=True)
        subprocess.run(["as", "--32", "boot.s", "-o", "boot.o"], cwd=d, check=True)
        subprocess.run(["ld", "-m", "elf_i386", "-Ttext", "0x100000", "-o", "boot.elf", "boot.o"],
                       cwd=d, check=True)
        r = subprocess.run([qemu, "-accel", "tcg", "-cpu", "max", "-m", "64", "-kernel", "boot.elf",
                            "-device", "isa-debug-exit,iobase=0xf4,iosize=1",
                            "-display", "none", "-nodefaults"], cwd=d, timeout=120)
    if r.returncode != 2 * STAGES + 1:
        sys.exit("the guest stopped: status %d" % r.returncode)


if __name__ == "__main__":
    main()
