# SPDX-License-Identifier: Apache-2.0
"""The e2e runner, over tests that pass, fail, skip and hang."""
import os
import subprocess
import sys

import mini

TESTS = '''
import os, time, harness
def test_good(h):
    assert os.path.isdir(h.tmp)
def test_bad(h):
    print("words of the bad test")
    assert 1 == 2
def test_exit(h):
    os._exit(0)         # no exception, but the tests after it must still run
def test_skip(h):
    raise harness.Skip("no such thing here")
def test_hang(h):
    with open(os.path.join(os.environ["MARK"], "tmp"), "w") as f:
        f.write(h.tmp)
    time.sleep(60)
test_hang.timeout_s = 1
def test_lonely(h):
    pass
test_lonely.alone = True
'''


def run(tmp, *words):
    with open(os.path.join(tmp, "test_x.py"), "w", encoding="utf-8") as f:
        f.write(TESTS)
    env = dict(os.environ, MARK=tmp, CLOCHE_TEST_NO_PREPARE="1")
    p = subprocess.run([sys.executable, os.path.join(mini.ROOT, "tests/e2e/run.py"), "--folder", tmp,
                        "--build", tmp, *words], env=env, capture_output=True, text=True, timeout=60)
    return p.returncode, p.stdout.splitlines()


def test_all(tmp):
    rc, lines = run(tmp)
    assert rc == 1, lines
    assert lines[-1] == "3 passed, 2 failed", lines
    starts = [" ".join(line.split()[:2]) for line in lines]
    for want in ("ok x.good", "FAILED x.bad", "ok x.exit", "skipped x.skip", "FAILED x.hang", "ok x.lonely"):
        assert want in starts, (want, lines)
    assert any("words of the bad test" in line for line in lines)
    assert "skipped x.skip no such thing here" in lines
    with open(os.path.join(tmp, "tmp"), encoding="utf-8") as f:
        assert not os.path.exists(f.read()), "the scratch folder of a test that hung is left"


def test_filter(tmp):
    rc, lines = run(tmp, "x.good")
    assert rc == 0 and lines[-1] == "1 passed, 0 failed", lines


mini.main(globals())
