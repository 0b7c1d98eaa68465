#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""back.py BUILD: what the way back costs when three files changed in a tree of 80,000.

By strace: the files that `cloche changes`, `cloche diff` and `cloche apply` open
and the bytes that they read, in that tree and in one of a tenth of its size: the
cost must follow the change, not the tree. Then the resident memory of each of
our processes, for those and for a run that makes a file of BENCH_BIG_MIB (default
2048) MiB which is exported and applied.
"""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import benchlib as bl  # noqa: E402 pylint: disable=wrong-import-position

RSS_MAX_MIB, SAME_MAX = 64, 1.1
BIG_MIB = int(os.environ.get("BENCH_BIG_MIB", "2048"))
CHANGE = "echo one >>Makefile; echo two >>README; echo three >>MAINTAINERS; echo up"
OPENS = re.compile(r"\b(?:openat2?|open|creat)\(.*\) += \d+")
READS = re.compile(r"\b(?:read|pread64|readv|preadv2?|copy_file_range|sendfile)\(.*\) += (\d+)")
MAPS = re.compile(r"\bmmap\(NULL, (\d+), PROT_READ, .*, (\d+), 0\) += 0x")


def trace(b, words):
    """({opened, read, mapped}, output) of a command: files, and bytes twice"""
    log = f"{b.tmp}/strace"
    argv = ["strace", "-f", "-qq", "-s", "200", "-o", log, "-e",
            "trace=open,openat,openat2,creat,read,pread64,readv,preadv,preadv2,"
            "copy_file_range,sendfile,mmap", b.cloche, *words]
    p = subprocess.run(argv, env=b.env, cwd=b.tmp, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    with open(log, encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    if p.returncode not in (0, 3):
        sys.exit(f"{words}: {p.returncode}: {p.stdout.decode()}")
    mapped = [(int(m[1]), int(m[2])) for m in map(MAPS.search, lines) if m]
    return {"opened": sum(bool(OPENS.search(x)) for x in lines),
            "read": sum(int(m[1]) for m in map(READS.search, lines) if m),
            "mapped": sum(n for n, _ in mapped)}, p.stdout.decode(errors="replace")


def peak(b, words, ok=(0, 3)):
    """Peak resident bytes of a command and of its children, the largest of them."""
    code = ("import os,resource,subprocess,sys\n"
            "r=subprocess.run(sys.argv[1:],stdin=0,stdout=2).returncode\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024, r)")
    p = subprocess.run([sys.executable, "-S", "-c", code, b.cloche, *words], env=b.env, cwd=b.tmp,
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, check=True)
    rss, rc = p.stdout.split()
    if int(rc) not in ok:
        sys.exit(f"{words}: status {rc.decode()}")
    return int(rss)


def set_of(b):
    out = subprocess.run([b.cloche, "changes", "--all", "--json"], env=b.env, check=True,
                         stdout=subprocess.PIPE).stdout
    return re.search(r'"id": *"([^"]+)"', out.decode())[1]


def forget(b):
    shutil.rmtree(f"{b.tmp}/state", ignore_errors=True)


def three(b, tree):
    """Counts by command, and the run, for three changed files in @tree."""
    r = b.run(tree, ["sh", "-c", CHANGE])
    assert r.rc == 0, r.err
    name = set_of(b)
    got = {w: trace(b, [w, "-c", name])[0] for w in ("changes", "diff")}
    got["apply"], said = trace(b, ["apply", "--all", "-c", name])
    with open(f"{tree}/README", encoding="utf-8") as f:
        assert f.read().endswith("two\n"), f"nothing was applied: {said}"
    forget(b)
    r2 = b.run(tree, ["sh", "-c", CHANGE])
    name = set_of(b)
    rss = dict(r2.rss)
    rss["cloche changes"] = peak(b, ["changes", "-c", name])
    rss["cloche diff"] = peak(b, ["diff", "-c", name])
    rss["cloche apply"] = peak(b, ["apply", "--all", "-c", name])
    forget(b)
    return got, rss


def big(b):
    """Resident bytes by process for a large file that is exported and applied."""
    p = bl.project(f"{b.tmp}/big", {"a": "a\n"})
    words = ["sh", "-c", f"head -c {BIG_MIB}M /dev/zero | tr '\\0' x >big.bin; echo up"]
    r = b.run(p, words)
    assert r.rc == 0, r.err
    name = set_of(b)
    rss = dict(r.rss)
    rss["cloche changes"] = peak(b, ["changes", "-c", name])
    rss["cloche diff"] = peak(b, ["diff", "-c", name])
    rss["cloche apply"] = peak(b, ["apply", "--all", "-c", name])
    size = os.stat(f"{p}/big.bin").st_size
    assert size == BIG_MIB << 20, size
    shutil.rmtree(p)
    forget(b)
    return rss


def main(b):
    small = bl.linux_tree(b, "tenth", 10)
    tree = bl.linux_tree(b)
    n = [sum(len(f) for _, _, f in os.walk(t)) for t in (small, tree)]
    few, few_rss = three(b, small)
    many, many_rss = three(b, tree)
    shutil.rmtree(tree)
    rows, worst = [], 0.0
    for w, c in many.items():
        for k in c:
            ratio = c[k] / few[w][k] if few[w][k] else 1.0
            rows.append([f"{w}: {k}", str(few[w][k]), str(c[k]), f"{ratio:.2f}"])
            if k != "mapped": # what is mapped is not yet read
                worst = max(worst, ratio)
    bl.table(["three changed files", f"of {n[0]}", f"of {n[1]}", "ratio"], rows)
    bl.target("files opened and bytes read, large tree against small", worst, SAME_MAX)
    big_rss = big(b)
    names = [k for k in {**many_rss, **big_rss} if k != "QEMU"]
    bl.table(["most resident memory, MiB", f"of {n[0]}", f"of {n[1]}", f"a file of {BIG_MIB} MiB"],
             [[k] + [f"{x.get(k, 0) / (1 << 20):.1f}" for x in (few_rss, many_rss, big_rss)]
              for k in names])
    bl.target("resident memory of any of our processes, MiB",
              max(x[k] for x in (many_rss, big_rss) for k in names if k in x) / (1 << 20),
              RSS_MAX_MIB)


bl.main(main)
