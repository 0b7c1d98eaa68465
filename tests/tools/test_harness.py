# SPDX-License-Identifier: Apache-2.0
"""The harness itself, with small programs in the place of `cloche`."""
import os
import re
import signal
import sys
import time

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
import harness  # noqa: E402


def with_harness(f):
    def test(tmp):
        bin_dir = os.path.join(tmp, "b", "bin")
        os.makedirs(bin_dir)
        with open(os.path.join(bin_dir, "cloche"), "w", encoding="utf-8") as out:
            out.write('#!/bin/sh\nexec "$@"\n')
        os.chmod(os.path.join(bin_dir, "cloche"), 0o755)
        os.environ["CLOCHE_TEST_ACCEL"] = "tcg"
        h = harness.Harness(os.path.join(tmp, "b"), f.__name__)
        try:
            f(h)
        finally:
            h.close()
            assert not os.path.exists(h.tmp)
    return test


@with_harness
def test_run(h):
    r = h.run("sh", "-c", "cat; echo err >&2; exit 7", input="in")
    assert r == (7, b"in", b"err\n"), r
    assert h.run("sh", "-c", "kill -TERM $$").rc == 143
    assert h.shell_argv("/p", ["a", "b c"], ["-x"]) == ["run", "shell", "/p", "--accel", "tcg", "-x",
                                                        "--", "a", "b c"]
    h.wait_clean(2)


@with_harness
def test_timeout_shows_output_and_ends_it(h):
    try:
        h.run("sh", "-c", "echo so far; sleep 60 & sleep 60", timeout_s=0.5)
    except AssertionError as e:
        assert "so far" in str(e)
    else:
        raise AssertionError("no error")
    h.wait_clean(2)


@with_harness
def test_orphan_is_found(h):
    h.run("sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & true")
    pid = h.wait_helper("sleep", timeout_s=20)
    left = h.leftovers()
    assert len(left) == 1 and "sleep" in left[0], left
    assert h.kill_helper("sleep", timeout_s=20) == pid
    h.wait_clean(20)

    def collected():            # it may be a zombie for a moment more
        h.leftovers()
        return harness.proc_stat(pid) is None
    harness.wait_until(collected, 20)


@with_harness
def test_left_sandbox_and_file_are_found(h):
    os.makedirs(os.path.join(h.sandboxes, "x1"))
    os.makedirs(h.path("run", "cloche"))
    open(h.path("run", "cloche", "s"), "w").close()
    assert len(h.leftovers()) == 2 and len(h.leftovers(keep_sandboxes=True)) == 1


@with_harness
def test_pty(h):
    t = h.pty("sh", "-c", 'stty size; read x; echo "got <$x>"; trap "stty size" WINCH; read y; exit 3',
              rows=30, cols=100)
    t.expect("30 100", 5)
    t.send("word\r")
    t.expect(re.compile(rb"got <(\w+)>"), 5)
    t.resize(40, 90)
    time.sleep(0.1)
    t.send("\r")
    assert t.wait(5) == 3
    assert t.attrs_restored()


@with_harness
def test_pty_says_what_came_instead(h):
    t = h.pty("echo", "other")
    try:
        t.expect("never", 5)
    except AssertionError as e:
        assert "other" in str(e)
    else:
        raise AssertionError("no error")


@with_harness
def test_pty_settings_that_stay_changed(h):
    t = h.pty("stty", "raw")
    t.wait(5)
    assert not t.attrs_restored()


def test_screen(tmp):
    s = harness.Screen(4, 10)
    s.feed(b"one\r\ntwo\x1b[1;5Hx\x1b[31")
    s.feed(b"my\x1b[0m\xc3")
    s.feed(b"\xa9\r\n\x1b[Kend\x1b]0;title\x07!")
    assert s.lines() == ["one xy\u00e9", "end!", "", ""], s.lines()
    s.feed(b"\x1b[?1049hother\x1b[?2004h")
    assert "one" not in s.text() and 2004 in s.modes
    s.feed(b"\x1b[?1049l\n\n\n\n")
    assert s.lines()[0] == "", s.lines()


@with_harness
def test_trees(h):
    p = h.project("x", {"a": "1", "d/b": b"\0", "e": None, "l": ("link", "a"), "x": ("#!", 0o755),
                        b"odd\xff\nname": "n"}, git=True)
    before = harness.snapshot(p)
    assert before[b"x"][1] == 0o755 and before[b"l"][3] == b"a" and before[b"e"][0] == "dir"
    assert not harness.tree_changes(before, harness.snapshot(p))
    os.unlink(os.path.join(p, "a"))
    os.chmod(os.path.join(p, "x"), 0o644)
    h.write(p, "new", "n")
    h.write(p, "d/b", b"\1")
    got = harness.tree_changes(before, harness.snapshot(p))
    assert got == {b"a": "deleted", b"x": "changed mode", b"new": "added",
                   b"d/b": "changed mtime,content"}, got
    assert "D a" in h.git(p, "status", "--short")


@with_harness
def test_as_user(h):
    if os.getuid() != 0:
        return
    h.as_user()
    p = h.project("x", {"a": "1"})
    r = h.run("sh", "-c", f'id -u; echo 2 >"{p}/a"; touch "$XDG_STATE_HOME/y" "$XDG_CACHE_HOME/z"')
    assert r.rc == 0 and r.text.strip() == str(h.user.pw_uid), r
    assert h.run("cat", "/etc/shadow").rc != 0


@with_harness
def test_kill_all_gets_a_tree_that_ignores_signals(h):
    h.start("sh", "-c", "trap '' TERM; setsid sh -c 'sleep 60; true' & sleep 60; true")
    harness.wait_until(lambda: len(h.helpers("sleep")) == 2, 5)
    h.kill_all()
    h.wait_clean(2)


@with_harness
def test_signal_is_exact(h):
    p = h.start("sleep", "60")
    assert harness.signal_pid(p.pid, signal.SIGTERM)
    assert h.finish(p).rc == 143
    assert not harness.signal_pid(p.pid, 0)


mini.main(globals())
