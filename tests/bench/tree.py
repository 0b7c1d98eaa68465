#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tree.py BUILD: a tree of 80,000 files (linux-source-6.1) as a project.

Scan and complete EROFS metadata (cloche-scan as it is in a run, with its cage)
against reading all the files once, `cp -a` and `cp --reflink=auto` of the same
tree beside them, all with a warm cache, CPU time, the least of BENCH_N. Then a
real run: was file data written before its first command started?
"""
import os
import shutil
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import benchlib as bl  # noqa: E402 pylint: disable=wrong-import-position

SHARE_MAX = 0.25


def scan(b, tree):
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    files = [os.open(f"{b.tmp}/{n}", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
             for n in ("manifest", "meta", "report")]
    try:
        cost = bl.measure([f"{b.build}/bin/cloche-scan", "--project", f"linux={fd}",
                           "--manifest", str(files[0]), "--meta", str(files[1]),
                           "--report", str(files[2]), *b.scan_uid()], pass_fds=[fd, *files])
        return cost, [os.fstat(f).st_size for f in files]
    finally:
        for f in (fd, *files):
            os.close(f)


def copy(b, tree, flags):
    to = f"{b.tmp}/copy"
    cost = bl.measure(["cp", "-a", *flags, tree, to])
    shutil.rmtree(to)
    return cost


class Cache(threading.Thread):
    """Blocks of the sandbox's ws.cache over time."""

    def __init__(self, b):
        super().__init__(daemon=True)
        self.b, self.seen, self.over, self.t0 = b, [], False, time.monotonic()

    def run(self):
        while not self.over:
            try:
                n = os.stat(f"{self.b.sandbox()}/ws.cache").st_blocks * 512
                self.seen.append((1e3 * (time.monotonic() - self.t0), n))
            except (OSError, IndexError):
                pass
            time.sleep(0.002)


def main(b):
    tree = bl.linux_tree(b)
    cat = ["sh", "-c", 'find "$1" -type f -print0 | xargs -0 cat >/dev/null', "sh", tree]
    bl.measure(cat)  # warm
    cost = {"read all (find | xargs cat)": [], "cloche-scan": [], "cp -a": [],
            "cp -a --reflink=auto": []}
    for i in range(bl.N):
        cost["read all (find | xargs cat)"].append(bl.measure(cat))
        c, sizes = scan(b, tree)
        cost["cloche-scan"].append(c)
        if i < 2:
            cost["cp -a"].append(copy(b, tree, ["--reflink=never"]))
            cost["cp -a --reflink=auto"].append(copy(b, tree, ["--reflink=auto"]))
    cpu = {k: bl.least(c for c, _ in v) for k, v in cost.items()}
    wall = {k: bl.least(w for _, w in v) for k, v in cost.items()}
    ref = cpu["read all (find | xargs cat)"]
    files = sum(len(f) for _, _, f in os.walk(tree))
    print(f"{files} files; metadata {sizes[1] / 1e6:.1f} MB, manifest {sizes[0] / 1e6:.1f} MB; "
          f"least of {bl.N} (copies of 2); load {os.getloadavg()[0]:.1f}")
    bl.table(["", "CPU s", "ratio", "wall s"],
             [[k, f"{cpu[k]:.2f}", f"{cpu[k] / ref:.3f}", f"{wall[k]:.2f}"] for k in cost])
    bl.target("scan and complete metadata against reading all, CPU", cpu["cloche-scan"] / ref,
              SHARE_MAX)

    cache = Cache(b)
    cache.start()
    r = b.run(tree, ["sh", "-c", "echo up; sleep 3"])
    cache.over = True
    cache.join()
    assert r.rc == 0, r.err
    started = r.marks["command started"]
    before = max([n for t, n in cache.seen if t < started - 5] or [0])
    print(f"  project scanned after {r.marks['project scanned']:.0f} ms, command started after "
          f"{started:.0f} ms; ws.cache held {before} bytes by then, "
          f"{max(n for _, n in cache.seen) / 1e6:.0f} MB at the end")
    print("  CPU ms: " + ", ".join(f"{k} {1e3 * v:.0f}" for k, v in r.cpu.items() if k != "QEMU"))
    bl.target("file data written before the first command, bytes", before, 0)


bl.main(main)
