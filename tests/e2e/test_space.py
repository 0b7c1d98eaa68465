# SPDX-License-Identifier: Apache-2.0
"""A full disk on the host: while a command runs, while the changes come out, while they are applied."""
import contextlib
import os
import re
import subprocess
import time

from harness import Skip, wait_until


@contextlib.contextmanager
def small_disk(path, size):
    """A file system of that size at path; yields a function that resizes it."""
    if os.getuid() != 0:
        raise Skip("needs root to mount a small file system")
    os.makedirs(path, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", path], check=True)
    try:
        yield lambda s: subprocess.run(["mount", "-o", f"remount,size={s}", path], check=True)
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def read_until(p, what, timeout_s):
    """Read the process's stderr until a text comes; what came."""
    got = b""
    os.set_blocking(p.stderr.fileno(), False)
    end = time.monotonic() + timeout_s
    while what not in got:
        assert time.monotonic() < end and p.poll() is None, got
        got += p.stderr.read() or b""
        time.sleep(0.1)
    os.set_blocking(p.stderr.fileno(), True)
    return got


def test_full_while_running(h):
    """The machine is paused, the user is told, and it goes on when there is room."""
    p = h.project("demo", {})
    with small_disk(h.path("state"), "120m") as resize:
        q = h.start(*h.shell_argv(p, ["sh", "-c", "head -c 200000000 /dev/zero | tr '\\0' x > ~/big; sync; wc -c < ~/big"]))
        read_until(q, b"no space left", 240)
        time.sleep(3)
        assert q.poll() is None
        resize("900m")
        r = h.finish(q, timeout_s=300)
        assert r.rc == 0 and r.text == "200000000\n", r
    h.wait_clean()


test_full_while_running.timeout_s = 600


def test_full_while_exporting(h):
    """The work stays on the sandbox's disk, and recover has all of it."""
    p = h.project("demo", {})
    with small_disk(h.path("state"), "110m") as resize:
        r = h.sh(p, "head -c 70000000 /dev/urandom > big; sha256sum big", timeout_s=300)
        assert r.rc == 125 and "No space left" in r.errtext and "cloche recover" in r.errtext, r
        assert not os.listdir(h.changes), os.listdir(h.changes)
        resize("900m")
        sid = re.search(r"recover (demo-\w{6})", r.errtext)[1]
        r2 = h.run("recover", sid, *h.accel_flags(), timeout_s=300)
        assert r2.rc in (0, 3), r2
        assert h.run("apply", cwd=p).rc == 0
        got = subprocess.run(["sha256sum", "big"], cwd=p, capture_output=True, text=True).stdout
        assert got == r.text, (got, r)
    h.wait_clean()


test_full_while_exporting.timeout_s = 600


def test_full_while_applying(h):
    """The original is whole, the rest is pending, and the same again works with room."""
    top = h.path("small")
    with small_disk(top, "20m") as resize:
        p = os.path.join(top, "demo")
        os.mkdir(p)
        h.write(p, "a", b"a" * 5000000)
        r = h.sh(p, "head -c 16000000 /dev/zero | tr '\\0' b > a")
        assert r.rc == 0, r
        r = h.run("apply", cwd=p)
        assert r.rc == 3 and "space" in r.text + r.errtext, r
        assert h.read(p, "a") == b"a" * 5000000
        assert os.listdir(p) == ["a"], os.listdir(p)
        resize("60m")
        r = h.run("apply", cwd=p)
        assert r.rc == 0, r
        assert h.read(p, "a") == b"b" * 16000000
    wait_until(lambda: not os.listdir(h.sandboxes))
