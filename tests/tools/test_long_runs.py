# SPDX-License-Identifier: Apache-2.0
"""The programs that nobody runs daily: check-kvm.sh with a cloche that is made up, and what
the soak calls growth. With real machines they are run by e2e/test_long.py."""
import os
import subprocess
import sys

import mini

sys.path[:0] = [os.path.join(mini.ROOT, "tests", "soak")]
import soak_sessions as soak  # noqa: E402

STUB = """#!/bin/sh
# doctor RC, then what `run` prints and its status
echo "$*" >>"$0.calls"
case $1 in
doctor) echo "kvm: as told"; exit %(doctor)s ;;
image) exit %(image)s ;;
run) case "$*" in
	*--timings*) exit 0 ;;
	*) echo "%(says)s"; echo "why not" >&2; exit %(rc)s ;;
	esac ;;
esac
exit 99
"""


def check_kvm(tmp, **what):
    stub = os.path.join(tmp, "cloche")
    values = {"doctor": 0, "image": 0, "says": "hello", "rc": 0, **what}
    with open(stub, "w", encoding="utf-8") as f:
        f.write(STUB % values)
    os.chmod(stub, 0o755)
    if os.path.exists(stub + ".calls"):
        os.unlink(stub + ".calls")
    before = set(os.listdir(tmp))
    r = subprocess.run(["sh", os.path.join(mini.ROOT, "scripts", "check-kvm.sh"), stub],
                       capture_output=True, text=True, timeout=60, env=dict(os.environ, TMPDIR=tmp))
    with open(stub + ".calls", encoding="utf-8") as f:
        calls = f.read().split("\n")[:-1]
    assert set(os.listdir(tmp)) - before == {"cloche.calls"}, "its folder is left behind"
    return r.returncode, r.stdout, calls


def test_check_kvm(tmp):
    rc, out, calls = check_kvm(tmp)
    assert rc == 0 and out.count(": ok, ") == 6 and "first boot: ok" in out, out
    runs = [c for c in calls if c.startswith("run shell")]
    assert len(runs) == 7 and all("--accel kvm" in c and "--apply=none" in c for c in runs), calls

    rc, out, calls = check_kvm(tmp, doctor=3)
    assert rc == 3 and "no usable KVM" in out and calls == ["doctor"], (rc, out, calls)
    rc, out, calls = check_kvm(tmp, doctor=125)
    assert rc == 1 and "FAILED" in out and calls == ["doctor"], (rc, out, calls)
    rc, out, calls = check_kvm(tmp, image=1)
    assert rc == 1 and len(calls) == 2, (rc, out, calls)
    rc, out, calls = check_kvm(tmp, rc=125)
    assert rc == 1 and "first boot: FAILED (status 125)" in out and "    why not" in out, out
    rc, out, calls = check_kvm(tmp, says="something else")
    assert rc == 1 and "first boot: FAILED (status 0)" in out, out


def test_growth(tmp):
    assert soak.grown({"a": 10, "b": 1}, {"a": 14, "b": 1, "new": 99}, 4) == []
    assert soak.grown({"a": 10}, {"a": 15}, 4) == ["a: 10 at first, 15 now"]
    assert soak.grown({"a": 10}, {}, 4) == []

    os.makedirs(os.path.join(tmp, "state", "logs"))
    assert soak.on_disk(os.path.join(tmp, "state")) == (0, 0, 0)
    for rel, n in (("logs/a", 10), ("x", 5000), ("logs.txt", 0)):
        with open(os.path.join(tmp, "state", rel), "wb") as f:
            f.write(b"x" * n)
    files, size, logs = soak.on_disk(os.path.join(tmp, "state"))
    assert (files, logs) == (2, 1) and 0 <= size <= 64 << 10, (files, size, logs)
    fd = os.open(tmp, os.O_RDONLY)
    n = soak.fds("self")
    os.close(fd)
    assert n == soak.fds("self") + 1


mini.main(globals())
