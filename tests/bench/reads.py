#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reads.py BUILD: reading the project in the guest.

The same EROFS image three ways, in the same kind of guest: through cloche-disk,
as a raw file (the reference), and, where QEMU's virtiofsd starts, a plain copy
through virtiofs. Times are the guest's own, cold (caches dropped) and warm, the
least of BENCH_N. BENCH_FILES is the size of the tree (default 1000 files).
"""
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "disk"))

import benchlib as bl  # noqa: E402 pylint: disable=wrong-import-position
import guestvm  # noqa: E402 pylint: disable=wrong-import-position
from disk_client import BLOCK, Disk  # noqa: E402 pylint: disable=wrong-import-position

AT_LEAST = 0.9
FILES = int(os.environ.get("BENCH_FILES", "1000"))
VIRTIOFSD = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"]
JOBS = [("find", "find . >/dev/null"),
        ("stat", "find . -printf '%s %m %T@\\n' >/dev/null"),
        ("read all", "find . -type f -print0 | xargs -0 cat >/dev/null"),
        ("git status", "git status --short >/dev/null"),
        ("ripgrep", "rg -c some_word . >/dev/null; true")]
def tree(b):
    """A part of the kernel's source, as a git repository."""
    only = ("kernel", "mm", "block", "lib", "fs", "net", "sound", "crypto")
    src, top = bl.linux_tree(b, "linux", only=only), f"{b.tmp}/demo"
    os.mkdir(top)
    n = 0
    for name in only:
        if n < FILES and os.path.isdir(f"{src}/{name}"):
            shutil.move(f"{src}/{name}", f"{top}/{name}")
            n += sum(len(f) for _, _, f in os.walk(f"{top}/{name}"))
    shutil.rmtree(src)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*bl.GIT, "-C", top, *words], check=True)
    return top, n


def virtiofsd(b, top):
    """(process, socket path) of a virtiofsd that serves @top, or why there is none."""
    prog = next((p for p in VIRTIOFSD if os.access(p, os.X_OK)), None)
    if not prog:
        return None, "not installed"
    sock = f"{b.tmp}/vfs.sock"
    argv = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh", prog,
            f"--socket-path={sock}"]
    if prog.startswith("/usr/lib/qemu"):
        argv += ["-o", f"source={top},cache=always"]
    else:
        argv += [f"--shared-dir={top}", "--cache=always"]
    if os.geteuid() != 0:
        argv[1:2] = ["-Urm", "--map-auto"]
    err = open(f"{b.tmp}/vfs.err", "wb")
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    for _ in range(100):
        if os.path.exists(sock):
            return p, sock
        if p.poll() is not None:
            break
        time.sleep(0.05)
    with open(f"{b.tmp}/vfs.err", encoding="utf-8", errors="replace") as f:
        text = f.read().strip().splitlines()
    if p.poll() is None:
        p.kill()
        p.wait()
    return None, (text or ["it says nothing"])[-1]


def raw_image(disk, path):
    """All of the workspace disk as a file: its metadata, and the data behind it."""
    end = max(b + (n + BLOCK - 1) // BLOCK for _, b, n in disk.files.values()) * BLOCK
    with open(path, "wb") as f:
        for at in range(0, end, 1 << 20):
            f.write(disk.nbd.read(at, min(1 << 20, end - at)))


def boot(b, name, devices, fds=()):
    g = guestvm.Guest(b.image(), f"{b.build}/bin/cloche-init", f"{b.tmp}/vm-{name}",
                      memory_mib=1024, accel=b.accel, devices=devices, fds=fds)
    g.up(work=name != "virtiofs")
    where = "/work/demo"
    if name == "virtiofs":
        where = "/mnt"
        # the image has no mount(8); 165 is its system call
        r = g.host.run("perl", "-e", 'my ($s, $t, $f) = ("demo", "/mnt", "virtiofs");'
                       'syscall(165, $s, $t, $f, 0, 0) == 0 or die "$!\n"', root=True)
        if r.rc:
            g.close()
            raise RuntimeError(f"the guest cannot mount it: {r.err.decode().strip()}")
    return g, where


def job(g, where, text, cold, helper):
    """(wall s, CPU s of QEMU and of what serves it)"""
    if cold:
        g.host.run("sh", "-c", "sync; echo 3 >/proc/sys/vm/drop_caches", root=True)
        # the tools themselves lie on another disk: in memory again before the clock starts
        g.host.run("sh", "-c", f"mkdir -p /tmp/none; cd /tmp/none; {text}")
    def cpu():
        return (bl.cpu_ns(g.qemu.pid) or 0) + (bl.cpu_ns(helper) or 0 if helper else 0)
    c, t = cpu(), time.monotonic()
    r = g.host.run("sh", "-c", text, cwd=where, timeout_s=600)
    wall, used = time.monotonic() - t, (cpu() - c) / 1e9
    if r.rc or r.err:
        sys.exit(f"{text}: {r.rc} {r.err.decode(errors='replace')}")
    return wall, used


def main(b):
    top, n = tree(b)
    disk_of = lambda d: Disk(f"{b.build}/bin/cloche-disk", f"{b.build}/tests/disk/disk_fixture",
                             d, top)
    raw = f"{b.tmp}/raw.img"
    for d in ("d1", "d2"):
        os.mkdir(f"{b.tmp}/{d}")
    disk = disk_of(f"{b.tmp}/d1")
    disk.start()
    raw_image(disk, raw)
    disk.end()

    disk = disk_of(f"{b.tmp}/d2")
    disk.scan()
    fd = disk.nbd_socket.fileno()
    # not waited for here: QEMU's driver speaks first
    guests = {"raw file": (*boot(b, "raw", [
        "-blockdev", f"driver=file,node-name=work,filename={raw},read-only=on,locking=off",
        "-device", "virtio-blk-device,drive=work,serial=work"]), None)}
    assert disk.ready() == 0
    guests["cloche-disk"] = (*boot(b, "disk", [
        "-blockdev", f"driver=nbd,node-name=work,read-only=on,server.type=fd,server.str={fd}",
        "-device", "virtio-blk-device,drive=work,serial=work"], [fd]), disk.process.pid)
    disk.nbd_socket.close()
    vfs, sock = virtiofsd(b, top)
    why = sock
    if vfs:
        try:
            guests["virtiofs"] = (*boot(b, "virtiofs", [
                "-object", "memory-backend-memfd,id=mem,size=1024M,share=on",
                "-machine", "memory-backend=mem", "-global", "virtio-mmio.force-legacy=false",
                "-chardev", f"socket,id=vfs,path={sock}",
                "-device", "vhost-user-fs-device,chardev=vfs,tag=demo"]), vfs.pid)
        except (RuntimeError, AssertionError, OSError) as e:
            why = str(e)
    try:
        got = {}
        for _ in range(bl.N):
            for name, text in JOBS:
                for cold in (True, False):
                    for g, (vm, where, helper) in guests.items():
                        got.setdefault((name, cold, g), []).append(
                            job(vm, where, text, cold, helper))
    finally:
        for vm, _, _ in guests.values():
            vm.close()
        disk.end()
        if vfs:
            vfs.kill()
            vfs.wait()
    print(f"{n} files; accelerator {b.accel}; least of {bl.N}; load {os.getloadavg()[0]:.1f}; "
          "ratio: the raw file's time by this one's, more is better")
    rows, worst = [], {0: 9.0, 1: 9.0}
    for name, _ in JOBS:
        for cold in (True, False):
            low = {g: [bl.least(x[i] for x in got[name, cold, g]) for i in (0, 1)]
                   for g in guests}
            row = [f"{name}, {'cold' if cold else 'warm'}", f"{1e3 * low['raw file'][0]:.0f}"]
            for g in ("cloche-disk", "virtiofs"):
                row += [f"{low['raw file'][i] / low[g][i]:.2f}" if g in low else "-"
                        for i in (0, 1)]
            worst = {i: min(worst[i], low["raw file"][i] / low["cloche-disk"][i])
                     for i in (0, 1)}
            rows.append(row)
    bl.table(["", "raw ms", "disk wall", "disk CPU", "virtiofs wall", "virtiofs CPU"], rows)
    if "virtiofs" not in guests:
        print(f"  no virtiofs: {why}")
    bl.target("slowest through cloche-disk against the raw file, wall", worst[0], AT_LEAST, True)
    bl.target("slowest through cloche-disk against the raw file, CPU", worst[1], AT_LEAST, True)


bl.main(main)
