#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of cloche-disk on a tree of 84,000 files: memory, time to the first read, and its
CPU for reading everything, against `cat` of the same files. Argument: the build folder."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "disk"))

from disk_client import BLOCK, Disk  # noqa: E402 pylint: disable=wrong-import-position

FOLDERS, FILES = 5250, 16
RSS_MAX = 64 << 20
STEP = 1 << 20


def tree(top):
    data = os.urandom(64 << 10)
    for d in range(FOLDERS):
        folder = f"{top}/{d % 75}/{d}"
        os.makedirs(folder)
        for f in range(FILES):
            with open(f"{folder}/some-source-{f}.c", "wb") as out:
                out.write(data[:1 + (d * 7919 + f * 104729) % 30000])


class Meter:
    """CPU and memory of a process."""

    def __init__(self, pid):
        self.pid = pid
        self.last = self.cpu()

    def cpu(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def step(self):
        before, self.last = self.last, self.cpu()
        return self.last - before

    def rss(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


def read_all(disk):
    end = max(b + (s + BLOCK - 1) // BLOCK for _, b, s in disk.files.values()) * BLOCK
    disk.nbd_socket.settimeout(None)
    stream = disk.nbd_socket.makefile("rb", buffering=1 << 20)
    sent = got = 0
    lengths = {}
    while got < end:
        while sent < end and len(lengths) < 8:
            n = min(STEP, end - sent)
            lengths[disk.nbd.send(sent, n)] = n
            sent += n
        head = stream.read(16)
        n = lengths.pop(int.from_bytes(head[8:], "big"))
        assert head[4:8] == bytes(4) and len(stream.read(n)) == n
        got += n
    return end


def main():
    build = sys.argv[1]
    tmp = tempfile.mkdtemp(prefix="bench-disk.")
    disk = None
    try:
        tree(f"{tmp}/tree")
        disk = Disk(f"{build}/bin/cloche-disk", f"{build}/tests/disk/disk_fixture", tmp,
                    f"{tmp}/tree")
        disk.scan()
        disk.nbd.hello()
        meter = Meter(disk.process.pid)
        start = time.monotonic()
        assert disk.ready() == 0
        print(f"{len(disk.files)} files: ready {1e3 * (time.monotonic() - start):.1f} ms after "
              "the scan")
        read_all(disk)  # warm
        meter.step()
        start = time.monotonic()
        n = read_all(disk)
        cpu, wall = meter.step(), time.monotonic() - start
        print(f"live: {n / 1e6:.0f} MB, {cpu:.2f} s CPU, {n / wall / 1e6:.0f} MB/s")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(f"find {tmp}/tree -type f -print0 | xargs -0 cat >{tmp}/out", shell=True,
                       check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cat = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"cat of the same files: {cat:.2f} s CPU; the disk's share {cpu / cat:.2f}")
        start = time.monotonic()
        disk.control.settimeout(600)
        assert disk.freeze() == 0
        print(f"freeze: {meter.step():.2f} s CPU, {time.monotonic() - start:.1f} s")
        start = time.monotonic()
        read_all(disk)
        cpu, wall = meter.step(), time.monotonic() - start
        print(f"frozen: {cpu:.2f} s CPU, {n / wall / 1e6:.0f} MB/s")
        rss = meter.rss()
        print(f"most resident memory: {rss / (1 << 20):.1f} MiB")
        return 0 if rss < RSS_MAX else 1
    finally:
        if disk:
            disk.end()
        shutil.rmtree(tmp)


sys.exit(main())
