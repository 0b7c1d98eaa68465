#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stress_apply.py BUILD [SECONDS]: folders become links elsewhere while changes are applied.

One change set is made in a VM. Then, for so long: a fresh copy of project and set, a
second process that swaps a folder of the project with a link to a place outside, over
and over, and `cloche apply` beside it. Whatever apply says, nothing outside may change,
and each file of the project is whole: the old content or the new one. Every fifth round
apply is killed at a random time instead, and started again.
"""
import os
import random
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import harness  # noqa: E402

FILES = 40
OLD, NEW = b"old content\n" * 50, b"new content\n" * 80

SWAPPER = """
import ctypes, os, sys
top, outside = sys.argv[1:]
libc = ctypes.CDLL(None)
a, b = os.path.join(top, "d/e").encode(), os.path.join(top, "link").encode()
os.symlink(outside, b)
while True:     # RENAME_EXCHANGE: never a moment without a name
    libc.renameat2(-100, a, -100, b, 2)
"""


def make(h):
    """The project's folder and the id of its change set."""
    files = {f"d/e/f{i:03}": OLD for i in range(FILES)}
    p = h.project("p", files)
    r = h.sh(p, f"cd d/e; for f in f*; do yes 'new content' | head -n 80 >$f; done; rm f{FILES - 1:03};"
             "for i in 1 2 3 4 5; do echo n >new$i; done", flags=["--apply=none"])
    assert r.rc == 0, r
    return p


def one_round(h, project, state, outside, kill):
    for src, dst in ((project + ".orig", project), (state + ".orig", state)):
        shutil.rmtree(dst)
        subprocess.run(["cp", "-a", src, dst], check=True)
    before = harness.snapshot(outside)
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, project, outside])
    try:
        p = h.start("apply", cwd=project, stdin=subprocess.DEVNULL)
        if kill:
            time.sleep(random.random() * 0.3)
            p.kill()
        r = h.finish(p, timeout_s=60)
    finally:
        swapper.kill()
        swapper.wait()
    assert harness.snapshot(outside) == before, f"written outside: " \
        f"{harness.tree_changes(before, harness.snapshot(outside))}\n{r}"
    # the folder is at one of its two names now
    real = [d for d in ("d/e", "link") if not os.path.islink(os.path.join(project, d))]
    assert len(real) == 1, real
    left = 0
    for n in sorted(os.listdir(os.path.join(project, real[0]))):
        body = h.read(project, f"{real[0]}/{n}")
        if n.startswith("f"):
            assert body in (OLD, NEW), f"{n}: torn, {len(body)} bytes"
        elif n.startswith("new"):
            assert body == b"n\n", f"{n}: {body!r}"
        else:
            left += 1           # a temporary file: only after a kill
    assert kill or left == 0, f"{left} temporary files"
    # with the folder in its place again the rest can be applied
    if os.path.islink(os.path.join(project, "d/e")):
        os.unlink(os.path.join(project, "d/e"))
        os.rename(os.path.join(project, "link"), os.path.join(project, "d/e"))
    else:
        os.unlink(os.path.join(project, "link"))
    r2 = h.run("apply", cwd=project)
    done = {n: h.read(project, f"d/e/{n}") for n in os.listdir(os.path.join(project, "d/e"))}
    assert r2.rc == 0 or "no pending" in r2.text + r2.errtext, (r, r2)
    assert sum(1 for b in done.values() if b == NEW) == FILES - 1, (sorted(done), r, r2)
    assert f"f{FILES - 1:03}" not in done and "new5" in done, (sorted(done), r, r2)
    return r.rc


def main():
    build, seconds = sys.argv[1], float(sys.argv[2] if len(sys.argv) > 2 else 60)
    harness.prepare(build)
    h = harness.Harness(build, "stress_apply")
    try:
        p = make(h)
        state = h.path("state")
        outside = h.path("outside")
        os.makedirs(outside)
        for i in range(FILES):
            h.write(outside, f"f{i:03}", OLD)       # the same as the baseline: tempting
        subprocess.run(["cp", "-a", p, p + ".orig"], check=True)
        subprocess.run(["cp", "-a", state, state + ".orig"], check=True)
        end = time.monotonic() + seconds
        rounds, codes = 0, {}
        while time.monotonic() < end:
            rounds += 1
            rc = one_round(h, p, state, outside, kill=rounds % 5 == 0)
            codes[rc] = codes.get(rc, 0) + 1
        print(f"{rounds} rounds, exit codes {codes}")
    finally:
        h.close()


if __name__ == "__main__":
    main()
