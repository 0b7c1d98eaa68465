# SPDX-License-Identifier: Apache-2.0
"""One process of a sandbox stands still (SIGSTOP), another is killed: whoever is left ends
the sandbox, and the work is in a change set or on the disk that `cloche recover` takes.

A stopped process is what a hung or hostile one looks like, and it makes the moment exact.
"""
import json
import re
import signal
import time

from harness import signal_pid

LIVE = ["sh", "-c", "echo kept > made; sync; echo up; read x; exit 0"]


def live(h):
    p = h.project("demo", {"a.txt": "one\n"})
    q = h.start(*h.shell_argv(p, LIVE))
    assert q.stdout.readline() == b"up\n"
    return p, q


def stop_kill(h, stopped, killed):
    stop, kill = h.wait_helper(stopped), h.wait_helper(killed)
    assert signal_pid(stop, signal.SIGSTOP)
    assert signal_pid(kill, signal.SIGKILL)
    return stop


def kept(h):
    """The id of the one sandbox that waits for recover."""
    [s] = json.loads(h.run("recover", "--json").text)["sandboxes"]
    return s["id"]


def test_worker_stopped_qemu_killed(h):
    _p, q = live(h)
    t0 = time.monotonic()
    stop_kill(h, "cloche-worker", "qemu-system-x86")
    r = h.finish(q, b"", timeout_s=60)
    assert r.rc == 125 and "cloche recover" in r.errtext and time.monotonic() - t0 < 30, r
    kept(h)
    h.wait_clean(keep_sandboxes=True)


def test_qemu_stopped_super_killed(h):
    """Nobody is left to tell a stopped QEMU that it is over, but the kernel."""
    p, q = live(h)
    time.sleep(6)           # longer than the guest's syncfs
    stop_kill(h, "qemu-system-x86", "cloche-super")
    r = h.finish(q, b"", timeout_s=60)
    assert r.rc == 125, r
    h.wait_clean(keep_sandboxes=True)
    r = h.run("recover", kept(h), *h.accel_flags(), timeout_s=240)
    assert r.rc in (0, 3), r
    assert h.run("apply", cwd=p).rc == 0
    assert h.read(p, "made") == b"kept\n"
    h.wait_clean()


def test_super_stopped_worker_killed(h):
    """The CLI has lost its connection and the monitor says nothing: Ctrl-C still works."""
    _p, q = live(h)
    pid = stop_kill(h, "cloche-super", "cloche-worker")
    time.sleep(1)
    q.send_signal(signal.SIGINT)
    time.sleep(0.5)
    q.send_signal(signal.SIGINT)
    r = h.finish(q, b"", timeout_s=20)
    assert "background" in r.errtext, r
    assert signal_pid(pid, signal.SIGCONT)
    h.wait_clean(keep_sandboxes=True)
    assert re.fullmatch(r"demo-\w{6}", kept(h))
