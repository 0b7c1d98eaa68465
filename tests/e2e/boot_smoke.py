#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""boot_smoke.py BUILD-DIR WORK-DIR [arguments of boot_smoke]

Makes, once in WORK-DIR, a kernel ELF and an initramfs from the distribution's
cloud kernel package and tests/e2e/boot_init.c, then runs boot_smoke on them.
An independent way to the same files that `cloche image build` makes.
"""
import glob
import os
import struct
import subprocess
import sys

MODULES = ["virtio_ring", "virtio", "virtio_mmio", "virtio_blk", "virtio_console"]
# magic, program that unpacks its standard input to its standard output
PACKERS = [(b"\x28\xb5\x2f\xfd", ["zstd", "-dc"]), (b"\xfd7zXZ\x00", ["xz", "-dc"]),
           (b"\x02\x21\x4c\x18", ["lz4", "-dc"]), (b"\x1f\x8b", ["gzip", "-dc"])]


def run(args, **kw):
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, **kw).stdout


def payload(bz):
    """The compressed kernel inside a bzImage (boot protocol 2.08)."""
    setup = (bz[0x1F1] or 4) + 1
    offset, length = struct.unpack_from("<II", bz, 0x248)
    return bz[setup * 512 + offset:setup * 512 + offset + length]


def unpack(data):
    for magic, args in PACKERS:
        if data.startswith(magic):
            # what follows the stream (the length) makes the tools complain: not fatal
            out = subprocess.run(args, input=data, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL).stdout
            if out[:4] == b"\x7fELF":
                return out
    sys.exit("boot_smoke: the kernel's payload is in no known format")


def cpio(entries):
    """A newc archive of (name, mode, bytes)."""
    out = b""
    for ino, (name, mode, data) in enumerate(entries + [("TRAILER!!!", 0, b"")], 1):
        fields = [ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0"
        head += b"\0" * (-len(head) % 4)
        out += head + data + b"\0" * (-len(data) % 4)
    return out


def prepare(work):
    os.makedirs(work, exist_ok=True)
    kernel, initrd = os.path.join(work, "vmlinux"), os.path.join(work, "initrd")
    if os.path.exists(kernel) and os.path.exists(initrd):
        return kernel, initrd
    debs = glob.glob(os.path.join(work, "linux-image-*.deb"))
    if not debs:
        deps = run(["apt-cache", "depends", "linux-image-cloud-amd64"], text=True)
        name = [l.split()[-1] for l in deps.splitlines() if "Depends: linux-image" in l][0]
        run(["apt-get", "download", name], cwd=work)
        debs = glob.glob(os.path.join(work, "linux-image-*.deb"))
    tree = os.path.join(work, "tree")
    run(["dpkg-deb", "-x", debs[0], tree])
    with open(glob.glob(tree + "/boot/vmlinuz-*")[0], "rb") as f:
        elf = unpack(payload(f.read()))
    with open(kernel, "wb") as f:
        f.write(elf)
    init = os.path.join(work, "init")
    run(["cc", "-D_GNU_SOURCE", "-O2", "-static", "-o", init,
         os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot_init.c")])
    entries = [("mods", 0o40755, b""), ("dev", 0o40755, b"")]
    number = 0
    for module in MODULES:
        found = glob.glob(tree + "/**/" + module + ".ko*", recursive=True)
        if found:  # else built in
            with open(found[0], "rb") as f:
                data = f.read()
            if found[0].endswith(".xz"):
                data = run(["xz", "-dc"], input=data)
            entries.append(("mods/%02d.ko" % number, 0o100644, data))
            number += 1
    with open(init, "rb") as f:
        entries.append(("init", 0o100755, f.read()))
    with open(initrd, "wb") as f:
        f.write(cpio(entries))
    return kernel, initrd


def main():
    build, work = sys.argv[1:3]
    kernel, initrd = prepare(work)
    smoke = os.path.join(build, "tests", "e2e", "boot_smoke")
    cage = os.path.join(os.path.abspath(build), "bin", "cloche-cage")
    sys.exit(subprocess.call([smoke, kernel, initrd, "--cage", cage] + sys.argv[3:]))


if __name__ == "__main__":
    main()
