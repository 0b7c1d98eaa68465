#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU of cloche-scan (scan, manifest and complete EROFS metadata) as a share of reading every
file once, on a tree of 84,000 files; cp -a and cp --reflink=auto of the same tree beside it.
Arguments: the build folder, and optionally the tree. Without one linux-source-6.1 is unpacked
when its archive is installed, else a tree of as many small files is made."""
import glob
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROUNDS, SHARE_MAX = 5, 0.25


def cpu(argv, **kw):
    """CPU and wall seconds of a command and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(argv, check=True, **kw)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            time.monotonic() - start)


def scan(build, tree, tmp, flags=()):
    fds = [os.open(tree, os.O_RDONLY)]
    args = [os.path.join(build, "bin/cloche-scan"), "--project", f"tree={fds[0]}"]
    for what in ("manifest", "meta", "report"):
        fds.append(os.open(os.path.join(tmp, what), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        args += ["--" + what, str(fds[-1])]
    try:
        return cpu(args + list(flags), pass_fds=fds)
    finally:
        for fd in fds:
            os.close(fd)


def make_tree(tmp):
    archives = sorted(glob.glob("/usr/src/linux-source-*.tar.xz"))
    if archives:
        subprocess.run(["tar", "-C", tmp, "-xf", archives[0]], check=True)
        return glob.glob(tmp + "/linux-source-*")[0]
    top = os.path.join(tmp, "tree")
    for d in range(5250):
        folder = f"{top}/{d % 75}/{d}"
        os.makedirs(folder)
        for f in range(16):
            with open(f"{folder}/some-source-{f}.c", "wb") as out:
                out.write(b"x" * (1 + (d * 7919 + f * 104729) % 30000))
    return top


def main():
    build = sys.argv[1]
    tmp = tempfile.mkdtemp(prefix="cloche-bench-scan-")
    try:
        tree = sys.argv[2] if len(sys.argv) > 2 else make_tree(tmp)
        count = sum(len(d) + len(f) for _, d, f in os.walk(tree))
        read = ["sh", "-c", 'find "$1" -type f -print0 | xargs -0 cat >/dev/null', "sh", tree]
        subprocess.run(read, check=True)  # into the page cache
        reads, scans = [], []
        for _ in range(ROUNDS):
            reads.append(cpu(read))
            scans.append(scan(build, tree, tmp))
        r, s = min(reads), min(scans)
        print("%d names; CPU s: read all %.3f, scan %.3f; wall s: %.3f, %.3f" %
              (count, r[0], s[0], r[1], s[1]))
        print("share %.3f (at most %.2f)" % (s[0] / r[0], SHARE_MAX))
        print("manifest %d KiB, metadata %d KiB" %
              (os.stat(tmp + "/manifest").st_size >> 10, os.stat(tmp + "/meta").st_size >> 10))
        if os.environ.get("CLOCHE_BENCH_COPY", "1") != "0":
            for how in (["-a"], ["-a", "--reflink=auto"]):
                c = cpu(["cp", *how, tree, os.path.join(tmp, "copy")])
                print("cp %s: CPU %.3f s, wall %.3f s" % (" ".join(how), c[0], c[1]))
                shutil.rmtree(tmp + "/copy")
        sys.exit(s[0] / r[0] > SHARE_MAX)
    finally:
        shutil.rmtree(tmp)


main()
