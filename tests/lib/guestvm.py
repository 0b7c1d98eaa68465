# SPDX-License-Identifier: Apache-2.0
"""A guest on bare QEMU, without cloche's host side: the driver of tests/e2e/test_guest.py.

Needs a folder with vmlinux, modules.cpio and rootfs.erofs, as `cloche image build`
makes it, and the built cloche-init.
"""
import os
import shutil
import socket
import struct
import subprocess
import time

import wire

# not in the PATH of an ordinary user
MKFS = shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or "mkfs.ext4"

SCRATCH_BYTES = 8 << 30


def cpio(files):
    """A newc archive of (name, mode, content)."""
    out = bytearray()
    for i, (name, mode, content) in enumerate(files + [("TRAILER!!!", 0, b"")]):
        name = name.encode() + b"\0"
        head = "070701" + "".join("%08x" % v for v in (
            i + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0))
        out += head.encode() + name
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out)


def tsc_khz():
    """From the kernel; the command line of an emulated guest needs it (it hangs otherwise)."""
    for line in open("/proc/cpuinfo"):
        if line.startswith("cpu MHz"):
            return int(float(line.split(":")[1]) * 1000)
    return 2000000


class Guest:
    """Boots in the constructor; `host` speaks to it."""

    def __init__(self, image, init, tmp, tree=None, memory_mib=512, cpus=1, accel="tcg",
                 scratch=None, console=None, devices=(), fds=(), prefix=()):
        os.makedirs(tmp, exist_ok=True)
        self.tmp = tmp
        initrd = os.path.join(tmp, "initrd")
        with open(init, "rb") as f, open(initrd, "wb") as o:
            o.write(cpio([("init", 0o100755, f.read())]))
            o.write(bytes(-o.tell() % 4))
            with open(os.path.join(image, "modules.cpio"), "rb") as m:
                shutil.copyfileobj(m, o)
        disks = [("base", os.path.join(image, "rootfs.erofs"), True)]
        if tree:
            work = os.path.join(tmp, "work.erofs")
            subprocess.run(["mkfs.erofs", work, tree], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            disks.append(("work", work, True))
        self.scratch = scratch or os.path.join(tmp, "scratch.img")
        if not os.path.exists(self.scratch):
            with open(self.scratch, "wb") as f:
                f.truncate(SCRATCH_BYTES)
            subprocess.run([MKFS, "-q", "-F", "-m0", "-O", "^resize_inode,sparse_super2",
                            "-E", "lazy_itable_init=1,nodiscard,packed_meta_blocks=1",
                            self.scratch], check=True)
        disks.append(("scratch", self.scratch, False))
        ours, theirs = socket.socketpair()
        cmdline = ("quiet" if console is None else "console=ttyS0") + \
            " reboot=t panic=-1 audit=0 apparmor=0"
        if accel == "tcg":
            cmdline += f" no_timer_check tsc=reliable tsc_early_khz={tsc_khz()}"
        argv = [*prefix, "qemu-system-x86_64", "-M",
                "microvm,x-option-roms=off,acpi=on,isa-serial=" + ("on" if console else "off"),
                "-accel", "tcg,thread=single" if accel == "tcg" else accel,
                "-cpu", "max,erms=off" if accel == "tcg" else "host",
                "-m", str(memory_mib), "-smp", str(cpus), "-nodefaults", "-no-user-config",
                "-nographic", "-no-reboot", "-bios", "qboot.rom", "-kernel", os.path.join(image, "vmlinux"),
                "-initrd", initrd, "-append", cmdline,
                "-device", "virtio-serial-device",
                "-chardev", f"socket,id=c0,fd={theirs.fileno()}",
                "-device", "virtserialport,chardev=c0,name=cloche.0"]
        if console:
            argv += ["-serial", f"file:{console}"]
        for name, path, ro in disks:
            argv += ["-blockdev", f"driver=file,node-name={name},filename={path},locking=off," +
                     f"read-only={'on' if ro else 'off,discard=unmap'}",
                     "-device", f"virtio-blk-device,drive={name},serial={name}"]
        argv += list(devices)
        self.t0 = time.monotonic()
        self.qemu = subprocess.Popen(argv, pass_fds=[theirs.fileno(), *fds], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL,
                                     stderr=open(os.path.join(tmp, "qemu.err"), "wb"))
        theirs.close()
        self.sock = ours
        self.host = wire.Host(ours)

    def up(self, projects=("demo",), work=True, account=None, **setup):
        """All the way to commands."""
        h = self.host
        h.hello(timeout_s=120)
        h.clock()
        h.entropy()
        h.setup(**setup)
        h.mount_root()
        if account is not None:
            h.account(*account)
        if work:
            h.mount_work(projects)
        return h

    def wait_end(self, timeout_s=20):
        return self.qemu.wait(timeout_s)

    def cut(self):
        """The host's end of the channel is gone."""
        self.sock.close()
        self.host.gone = True

    def close(self):
        if self.qemu.poll() is None:
            self.qemu.kill()
        self.qemu.wait()
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
