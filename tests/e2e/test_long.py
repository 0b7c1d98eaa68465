# SPDX-License-Identifier: Apache-2.0
"""The long runs, as short as they can be: that they work, and fail when they should."""
import os
import subprocess
import sys

import harness


def run(h, rel, *args):
    p = subprocess.run([sys.executable, os.path.join(harness.ROOT, "tests", rel), h.build, *args],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280,
                       env=dict(os.environ, CLOCHE_TEST_NO_PREPARE="1"))
    return p.returncode, p.stdout + p.stderr


def test_stress(h):
    rc, out = run(h, "stress/stress_sessions.py", "1")
    assert rc == 0 and "staged" in out and "largest, KiB" in out, out


def test_soak(h):
    rc, out = run(h, "soak/soak_sessions.py", "1")
    assert rc == 0 and "round 2: 0 files" in out and out.rstrip().endswith("2 rounds"), out
