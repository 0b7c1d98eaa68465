# SPDX-License-Identifier: Apache-2.0
"""Words that name a change set or a path, and projects and directories that move or go."""
import json
import os
import shutil

SAMPLE = {"a.txt": "one\n", "sub/c.txt": "c\n", ".gitignore": "out/\n"}


def pending(h):
    return sorted(n for n in os.listdir(h.changes) if not n.startswith("."))


def test_words_and_places(h):
    p = h.project("demo", SAMPLE)
    r = h.sh(p, "echo two >> a.txt; echo d >> sub/c.txt; echo n > sub/new; mkdir out; echo o > out/o; echo b > b.txt")
    assert r.rc == 0, r
    [cs] = pending(h)

    # a word that is not looked at must not be believed
    for args in (("discard", "-y", "other-set"), ("discard", "-y", "a.txt"), ("changes", cs),
                 ("recover", "x", "y"), ("recover", "--discard")):
        r = h.run(*args, cwd=p)
        assert r.rc == 2 and pending(h) == [cs], (args, r)
    r = h.run("apply", "", cwd=p)
    assert r.rc == 125 and "empty word" in r.errtext, r
    r = h.run("apply", "/a.txt", cwd=p)
    assert r.rc == 125 and "not in the project" in r.errtext, r
    r = h.run("apply", "no\nsuch", cwd=p)
    assert "'no\\nsuch'" in r.errtext, r
    assert h.read(p, "a.txt") == b"one\n"
    assert "+two" in h.run("diff", os.path.join(p, "a.txt"), cwd=p).text

    # from a directory that is gone
    gone = h.path("gone")
    os.mkdir(gone)
    h.give(gone)
    run = ["/bin/sh", "-c", 'rmdir "$0"; exec "$@"', gone]
    r = h.run(*run[1:], h.cloche, "diff", "-c", cs, "a.txt", cwd=gone, program=run[0])
    assert r.rc == 0 and "+two" in r.text, r

    # moved: found where the user stands, paths are relative to that
    moved = p + " moved"
    os.rename(p, moved)
    sub = os.path.join(moved, "sub")
    r = h.run("diff", "-c", cs, "a.txt", cwd="/")
    assert "all of the sandbox's" in r.text and "+one" in r.text and "+two" in r.text, r
    r = h.run("apply", "new", cwd=sub)
    assert r.rc == 3 and h.read(sub, "new") == b"n\n", r
    # another directory at the old path is not the project, and hides the moved one
    os.mkdir(p)
    h.give(p)
    r = h.run("apply", cwd=p)
    assert r.rc == 125 and "--to DIR" in r.errtext and os.listdir(p) == [], r
    shutil.rmtree(p)
    os.rename(moved, p)

    # a reader that leaves ends nothing
    r = h.run("-c", '"$0" apply "$1" | sleep 0; exit "${PIPESTATUS[0]}"', h.cloche, p, cwd=p,
              program="/bin/bash")
    assert r.rc == 0, ("the root names all but what is ignored", r)
    assert h.read(p, "a.txt") == b"one\ntwo\n" and h.read(p, "b.txt") == b"b\n"
    assert not os.path.exists(os.path.join(p, "out"))
    sets = json.loads(h.run("changes", "--all", "--json", cwd=p).text)
    assert "closed" in json.dumps(sets), sets
    h.wait_clean()


def test_little_memory(h):
    p = h.project("demo", {"a": "1\n"})
    r = h.sh(p, "kill -9 $$", flags=["--memory=256m"])
    assert r.rc == 137 and "--memory 512m" in r.errtext, r
    h.wait_clean()
