#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""start.py BUILD: what `cloche run shell` costs on a small project with a cached image.

The references, measured in the same run: bare QEMU with the same kernel, memory,
vCPUs and accelerator, (a) to its first process and (b) to a byte that this
process wrote to a virtio port, which needs the port's driver. The least of
BENCH_N runs each. Under emulation the CPU of QEMU is the time that the guest
had, so the ratios of CPU stay true on a busy machine.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import benchlib as bl  # noqa: E402 pylint: disable=wrong-import-position

INIT_MAX, FIRST_MAX = 0.25, 1.4


def main(b):
    p = bl.project(f"{b.tmp}/small", {f"src/file{i}.c": f"int f{i};\n" for i in range(20)})
    bare = bl.Bare(b)
    pid1, byte, runs, nothing = [], [], [], []
    for _ in range(bl.N):
        pid1.append(bare.to_pid1())
        byte.append(bare.to_byte())
        runs.append(b.run(p, ["echo", "x"]))
        nothing.append(b.run(p, ["true"]))
    assert all(r.rc == 0 and r.out == b"x\n" for r in runs), runs[0].err
    pid1 = [bl.least(x[i] for x in pid1) for i in (0, 1)]
    byte = [bl.least(x[i] for x in byte) for i in (0, 1)]

    print(f"accelerator {b.accel}; least of {bl.N}; load {os.getloadavg()[0]:.1f}")
    cpu = {k: bl.least(r.cpu.get(k) for r in nothing) for k in nothing[0].cpu}
    ours = min(sum(v for k, v in r.cpu.items() if k != "QEMU") for r in nothing)
    bl.table(["`cloche run shell -- true`", "CPU ms", "of a bare boot's"],
             [[k, 1e3 * v, f"{v / pid1[1]:.3f}"] for k, v in cpu.items()] +
             [["all but QEMU", 1e3 * ours, f"{ours / pid1[1]:.3f}"]])

    best = min(runs, key=lambda r: r.first_s)
    rows, before = [], 0.0
    for name, at in sorted(best.marks.items(), key=lambda x: x[1]):
        rows.append([name, at, at - before, f"{at / 1e3 / pid1[0]:.2f}"])
        before = at
    bl.table(["phase of the quickest run", "at ms", "took ms", "of a bare boot"], rows)

    first = bl.least(r.first_s for r in runs)
    fcpu = min(r.first_qemu_s + r.first_ours_s for r in runs if r.first_qemu_s)
    bl.table(["", "wall ms", "ratio", "CPU ms", "ratio"],
             [["bare boot to PID 1", 1e3 * pid1[0], "1", 1e3 * pid1[1], "1"],
              ["bare boot to a byte", 1e3 * byte[0], f"{byte[0] / pid1[0]:.2f}", 1e3 * byte[1],
               f"{byte[1] / pid1[1]:.2f}"],
              ["cloche to first byte", 1e3 * first, f"{first / pid1[0]:.2f}", 1e3 * fcpu,
               f"{fcpu / pid1[1]:.2f}"]])
    every = runs + nothing
    shares = [r.init_ms / r.kernel_ms for r in every]
    print(f"  guest: kernel {bl.least(r.kernel_ms for r in every):.0f} ms to PID 1, init "
          f"{bl.least(r.init_ms for r in every):.0f} ms to ready")
    bl.target("guest init against the kernel's time to PID 1",
              bl.least(r.init_ms for r in every) / bl.least(r.kernel_ms for r in every), INIT_MAX)
    print(f"  (pairs of single runs: {min(shares):.2f} to {max(shares):.2f})")
    bl.target("first byte against a bare boot to a byte, wall", first / byte[0], FIRST_MAX)
    bl.target("first byte against a bare boot to PID 1, wall", first / pid1[0], FIRST_MAX)
    bl.target("first byte against a bare boot to PID 1, CPU", fcpu / pid1[1], FIRST_MAX)


bl.main(main)
