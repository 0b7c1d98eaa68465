#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""image.py BUILD [RUNS]: the time of an image build against plain mmdebstrap.

The same mmdebstrap command, without our hook for the kernel, writes its tar into
a file; a build does that, downloads the kernel, and writes and hashes the image.
In turns, the least of RUNS (default 2) each. At most 1.3 times is asked; CPU time
of all processes is shown beside it, since it does not depend on what else runs.
"""
import os
import subprocess
import sys
import tempfile
import time

LIMIT = 1.3


def find_command(pid):
    """Arguments of the mmdebstrap that build @pid started, once it runs."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) != pid:
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as f:
                args = f.read().split(b"\0")[:-1]
        except OSError:
            continue
        for i, a in enumerate(args):
            if a.endswith(b"mmdebstrap") and b"--format=tar" in args:
                return args[i:]
    return None


def children_cpu():
    t = os.times()
    return t.children_user + t.children_system


def build(program, cache):
    t0, c0 = time.monotonic(), children_cpu()
    p = subprocess.Popen([program, "build", "base", "--force"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, env={**os.environ, "XDG_CACHE_HOME": cache})
    args = None
    while args is None and p.poll() is None:
        args = find_command(p.pid)
        time.sleep(0.02)
    err = p.communicate()[1]
    if p.returncode != 0:
        sys.exit(f"build failed:\n{err.decode(errors='backslashreplace')}")
    return (time.monotonic() - t0, children_cpu() - c0), args


def plain(args, cache):
    args = [a for a in args if not a.startswith(b"--customize-hook=")]
    out = os.path.join(cache, "plain.tar")
    t0, c0 = time.monotonic(), children_cpu()
    with open(out, "wb") as f:
        subprocess.run([b"mmdebstrap", *args[1:]], stdout=f, stderr=subprocess.DEVNULL, check=True)
        os.fsync(f.fileno())
    took = time.monotonic() - t0, children_cpu() - c0
    os.unlink(out)
    return took


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "bin", "cloche-image")
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="cloche-bench-", dir="/var/tmp") as cache:
        for _ in range(runs):
            took, args = build(program, cache)
            ours.append(took)
            theirs.append(plain(args, cache))
        t0 = time.monotonic()
        subprocess.run([program, "build", "base"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "XDG_CACHE_HOME": cache})
        again = time.monotonic() - t0
    wall, cpu = (min(t[0] for t in ours), min(t[0] for t in theirs)), (
        min(t[1] for t in ours), min(t[1] for t in theirs))
    ratio = wall[0] / wall[1]
    print(f"image build {wall[0]:.1f} s, plain mmdebstrap to tar {wall[1]:.1f} s, ratio {ratio:.2f} "
          f"(at most {LIMIT}); CPU {cpu[0]:.1f} s and {cpu[1]:.1f} s, ratio {cpu[0] / cpu[1]:.2f}; "
          f"second build {again * 1000:.0f} ms")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
