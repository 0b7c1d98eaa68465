#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stress_apply.py BUILD [SECONDS]: a folder becomes a link elsewhere while changes are applied.

One change set of many files is made in a VM. Then, for so long, a second process
exchanges the project's folder with a link to a place outside, over and over, while
`cloche apply` writes ten of the files at a time; every fifth is killed at a random
moment. Whatever apply says, nothing outside may change, and each file of the project is
whole: the old content or the new one. In the end, with the folder in its place, the rest
is applied, and nothing is missing.
"""
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import harness  # noqa: E402

FILES, CHUNK = 1200, 10
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
    """The project's folder, with its change set waiting."""
    p = h.project("p", {f"d/e/f{i:04}": OLD for i in range(FILES)})
    r = h.sh(p, "cd d/e; new=$(yes 'new content' | head -n 80); for f in f*; do echo \"$new\" >$f; done;"
             "rm f???9; for i in 1 2 3 4 5 6 7 8 9; do echo n >new$i; done", flags=["--apply=none"],
             timeout_s=600)
    assert r.rc == 0, r
    return p


def check(h, project, outside, before, after_kill, r):
    now = harness.snapshot(outside)
    assert now == before, f"written outside: {harness.tree_changes(before, now)}\n{r}"
    for name in ("d/e", "link"):        # it is at one of the two, and moves while we look
        try:
            fd = os.open(os.path.join(project, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            for n in os.listdir(fd):
                with open(n, "rb", opener=lambda p, f: os.open(p, f, dir_fd=fd)) as f:
                    body = f.read()
                if n.startswith("f"):
                    assert body in (OLD, NEW), f"{n}: torn, {len(body)} bytes\n{r}"
                elif n.startswith("new"):
                    assert body == b"n\n", f"{n}: {body!r}\n{r}"
                else:
                    assert after_kill, f"{n} is left\n{r}"
        finally:
            os.close(fd)


def main():
    build, seconds = sys.argv[1], float(sys.argv[2] if len(sys.argv) > 2 else 60)
    harness.prepare(build)
    h = harness.Harness(build, "stress_apply")
    swapper = None
    try:
        p = make(h)
        outside = h.path("outside")
        for i in range(FILES):          # the same as the baseline: tempting
            h.write(outside, f"f{i:04}", OLD)
        before = harness.snapshot(outside)
        names = [f"d/e/f{i:04}" for i in range(FILES)] + [f"d/e/new{i}" for i in range(1, 10)]
        swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, p, outside])
        harness.wait_until(lambda: os.path.lexists(os.path.join(p, "link")), 20, 0.005)
        end = time.monotonic() + seconds
        rounds, codes, killed = 0, {}, False
        while time.monotonic() < end:
            some = random.sample(names, CHUNK)
            rounds += 1
            q = h.start("apply", *some, cwd=p, stdin=subprocess.DEVNULL)
            if rounds % 5 == 0:
                time.sleep(random.random() * 0.2)
                q.kill()
                killed = True
            r = h.finish(q, timeout_s=60)
            codes[r.rc] = codes.get(r.rc, 0) + 1
            check(h, p, outside, before, killed, r)
        swapper.kill()
        swapper.wait()
        swapper = None
        if os.path.islink(os.path.join(p, "d/e")):
            os.unlink(os.path.join(p, "d/e"))
            os.rename(os.path.join(p, "link"), os.path.join(p, "d/e"))
        else:
            os.unlink(os.path.join(p, "link"))
        done = sum(1 for n in os.listdir(os.path.join(p, "d/e"))
                   if n.startswith("f") and h.read(p, f"d/e/{n}") == NEW)
        r = h.run("apply", *names, cwd=p)
        assert r.rc == 0, r
        have = {n: h.read(p, f"d/e/{n}") for n in os.listdir(os.path.join(p, "d/e"))}
        want = {f"f{i:04}": NEW for i in range(FILES) if i % 10 != 9}
        want.update({f"new{i}": b"n\n" for i in range(1, 10)})
        assert have == want, (sorted(have.keys() ^ want.keys()), r)
        print(f"{rounds} runs, exit codes {codes}; {done} of {FILES} files had been applied meanwhile")
    finally:
        if swapper:
            swapper.kill()
        h.close()


if __name__ == "__main__":
    main()
