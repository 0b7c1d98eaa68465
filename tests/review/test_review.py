#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Change sets made and applied on real trees (src/review)."""
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import box  # noqa: E402
from box import Box, Guest, HIDDEN, EXCLUDED, SKIPPED, TRACKED, IGNORED  # noqa: E402

VERIFIED, MOVED, PUT_BACK, DONE = 1, 2, 3, 4


def results(r):
    return {x["path"]: x["result"] for x in r["results"]}


def test_all_kinds_apply():
    with Box() as x:
        x.write("mod.c", b"one\ntwo\n")
        x.write("gone.c", b"bye\n")
        x.write("run.sh", b"#!/bin/sh\n", 0o640)
        x.write("dir/a", b"a")
        x.write("dir/sub/b", b"b")
        os.symlink("mod.c", x.at("l"))
        g = Guest().file("mod.c", b"one\nTWO\n").delete("gone.c")
        g.same("run.sh", os.fsdecode(x.at("run.sh")), 0o755)
        g.file("new/deep/n.txt", b"n", 0o600).dir("new", 0o750).dir("empty", 0o700)
        g.link("l", "dir/a").link("l2", "dir").delete("dir/sub")
        x.make(g)
        items = x.items()
        assert {k: v["kind"] for k, v in items.items()} == {
            "mod.c": "modified", "gone.c": "deleted", "run.sh": "mode", "new/deep/n.txt": "added",
            "empty": "added", "l": "modified", "l2": "added", "dir/sub": "deleted"}, items
        assert list(items) == sorted(items), list(items)
        r = x.apply("--auto", want=0, env={"UMASK": "1"})
        assert r["done"] == 8 and r["exit"] == 0, r
        assert x.read("mod.c") == b"one\nTWO\n" and not x.exists("gone.c")
        assert x.mode("run.sh") == 0o751, oct(x.mode("run.sh"))
        assert x.read("new/deep/n.txt") == b"n" and x.mode("new/deep/n.txt") == 0o600
        assert x.mode("new") == 0o750 and x.mode("empty") == 0o700
        assert os.readlink(x.at("l")) == b"dir/a" and os.readlink(x.at("l2")) == b"dir"
        assert not x.exists("dir/sub") and x.read("dir/a") == b"a"
        assert not x.leftovers()
        sets = json.loads(x.tool("sets").stdout)["sets"]
        assert sets[0]["closed"] and sets[0]["counts"]["applied"] == 8, sets
        # again: nothing to do
        assert x.apply("--all", want=0)["results"] == []


def test_unchanged_copies_are_no_changes():
    with Box() as x:
        x.write("a", b"same")
        x.write("b", b"")
        g = Guest().same("a", os.fsdecode(x.at("a")), 0o644).file("b", b"")
        g.dir("d")
        x.write("d/keep", b"")
        g._dir("d")["mode"] = 0o755
        x.make(g)
        assert x.items() == {}, x.items()


def test_content_that_equals_the_baseline_is_no_change():
    with Box() as x:
        x.write("a", b"same")
        x.make(Guest().file("a", b"same", base=True))
        assert x.items() == {}


def test_host_edits():
    with Box() as x:
        for n in ("mod", "both", "touched", "delme", "same", "gone"):
            x.write(n, b"base " + n.encode())
        x.write("untouched", b"u")
        g = Guest().file("mod", b"guest").file("both", b"guest").delete("delme")
        g.file("touched", b"guest", base=True).file("new", b"guest").file("same", b"equal")
        g.file("gone", b"guest")
        x.make(g)
        x.write("both", b"host edit")
        x.write("delme", b"host edit 2")
        x.write("untouched", b"host edit 3")
        x.write("new", b"host made this")
        x.write("same", b"equal")
        os.utime(x.at("touched"))
        os.unlink(x.at("gone"))
        items = x.items()
        assert items["both"]["host"] == "conflict" and items["mod"]["host"] == "unchanged"
        r = results(x.apply("--auto", want=3))
        assert r == {"mod": "applied", "both": "conflict", "delme": "conflict",
                     "touched": "applied", "new": "conflict", "same": "already there",
                     "gone": "conflict"}, r
        assert x.read("both") == b"host edit" and x.read("delme") == b"host edit 2"
        assert x.read("new") == b"host made this" and x.read("untouched") == b"host edit 3"
        assert x.read("touched") == b"guest" and not x.exists("gone")
        # a conflict is tried again with --all, and goes once the user has taken the guest's version
        x.write("both", b"guest")
        assert results(x.apply("--all"))["both"] == "already there"


def test_edited_with_times_put_back():
    with Box() as x:
        x.write("f", b"aaaa")
        x.make(Guest().file("f", b"guest"))
        st = os.stat(x.at("f"))
        with open(x.at("f"), "r+b") as f:
            f.write(b"bbbb")
        os.utime(x.at("f"), ns=(st.st_atime_ns, st.st_mtime_ns))
        assert results(x.apply("--auto", want=3)) == {"f": "conflict"}
        assert x.read("f") == b"bbbb"


def test_deleted_directory_keeps_what_was_hidden():
    with Box() as x:
        x.write("d/a", b"a")
        x.write("d/.env", b"secret")
        x.write("d/sub/b", b"b")
        os.mkfifo(x.at("d/pipe"))
        x.write("d/repo/.git/config", b"x")
        x.flags = {"d/.env": (HIDDEN, 0)}
        x.make(Guest().delete("d"))
        it = x.items()["d"]
        assert "keeps_directory" in it["flags"] and it["below"] == 4, it
        x.apply("--auto", want=0)
        assert x.read("d/.env") == b"secret" and x.exists("d/pipe") and x.exists("d/repo/.git/config")
        assert not x.exists("d/a") and not x.exists("d/sub")
        assert not x.leftovers()


def test_deleted_directory_that_gained_a_file_is_a_conflict():
    with Box() as x:
        x.write("d/a", b"a")
        x.make(Guest().delete("d"))
        x.write("d/mine", b"m")
        assert results(x.apply("--auto", want=3)) == {"d": "conflict"}
        assert x.read("d/a") == b"a" and x.read("d/mine") == b"m"


def test_opaque_directory():
    with Box() as x:
        x.write("d/a", b"a")
        x.write("d/b", b"b")
        x.write("d/c/x", b"x")
        x.write("d/c/y", b"y")
        x.write("d/.env", b"s")
        x.write("d/z", b"z")
        x.flags = {"d/.env": (HIDDEN, 0)}
        g = Guest().dir("d", opaque=True).file("d/b", b"b2").file("d/c/x", b"x2").file("d/m", b"m")
        x.make(g)
        got = {k: v["kind"] for k, v in x.items().items()}
        # a directory made again below one that was removed is empty, too
        assert got == {"d/a": "deleted", "d/b": "modified", "d/c/x": "modified",
                       "d/c/y": "deleted", "d/m": "added", "d/z": "deleted"}, got
        assert list(got) == sorted(got)
        x.apply("d/a", want=3)
        x.apply("--auto", want=0)
        assert sorted(os.listdir(x.at("d"))) == [b".env", b"b", b"c", b"m"]
        assert x.read("d/c/x") == b"x2" and not x.exists("d/c/y")
        assert x.apply("--all", want=0)["results"] == []


def test_opaque_directory_that_is_new():
    with Box() as x:
        x.write("k", b"")
        x.make(Guest().dir("n", opaque=True).file("n/f", b"f"))
        assert {k: v["kind"] for k, v in x.items().items()} == {"n/f": "added"}


def test_whole_project_removed():
    with Box() as x:
        x.write("a", b"a")
        x.write("d/b", b"b")
        g = Guest()
        g.root["flags"] = box.OPAQUE
        x.make(g)
        x.apply("--auto", want=0)
        assert os.listdir(x.project) == []


def test_type_changes():
    with Box() as x:
        x.write("f2d", b"f")
        x.write("d2f/a/b", b"b")
        x.write("f2l", b"f")
        os.symlink("f2l", x.at("l2f"))
        os.symlink("d2f", x.at("l2d"))
        x.write("d2l/x", b"x")
        g = Guest().file("f2d/in", b"in").file("d2f", b"now a file").link("f2l", "d2f")
        g.file("l2f", b"now a file").file("l2d/y", b"y").link("d2l", "f2l")
        x.make(g)
        assert x.items()["f2d"]["kind"] == "type"
        # a child cannot go before its directory
        r = results(x.apply("f2d/in", want=3))
        assert r["f2d/in"] == "blocked", r
        assert x.read("f2d") == b"f"
        x.apply("--auto", want=0)
        assert x.read("f2d/in") == b"in" and x.read("d2f") == b"now a file"
        assert os.readlink(x.at("f2l")) == b"d2f" and x.read("l2f") == b"now a file"
        assert not os.path.islink(x.at("l2f")) and x.read("l2d/y") == b"y"
        assert os.readlink(x.at("d2l")) == b"f2l"
        assert not x.leftovers()


def test_directory_with_hidden_things_is_not_replaced():
    with Box() as x:
        x.write("d/.env", b"s")
        x.write("d/a", b"a")
        x.flags = {"d/.env": (HIDDEN, 0)}
        x.make(Guest().file("d", b"file"))
        assert results(x.apply("--auto", want=3)) == {"d": "conflict"}
        assert x.read("d/a") == b"a" and x.read("d/.env") == b"s"


def test_setid_is_never_carried():
    with Box() as x:
        x.write("old", b"o", 0o4755)
        g = Guest().file("new", b"n", 0o6755).file("old", b"changed", 0o4755).dir("sticky", 0o3777)
        x.make(g)
        assert "setid_not_carried" in x.items()["new"]["flags"]
        x.apply("--auto", want=0)
        assert x.mode("new") & 0o7000 == 0 and x.mode("old") == 0o755
        assert x.mode("sticky") & 0o7000 == 0


def test_only_x_bits_and_the_umask():
    with Box() as x:
        x.write("f", b"x", 0o640)
        x.write("g", b"x", 0o755)
        x.write("h", b"x", 0o644)
        g = Guest().file("f", b"y", 0o777).file("g", b"y", 0o644).file("n", b"n", 0o666)
        g.same("h", os.fsdecode(x.at("h")), 0o600)
        x.make(g)
        assert x.list()["summary"]["mode_not_carried"] == 1
        old = os.umask(0o027)
        try:
            x.apply("--auto", want=0)
        finally:
            os.umask(old)
        assert x.mode("f") == 0o751 and x.mode("g") == 0o644 and x.mode("n") == 0o640
        assert x.mode("h") == 0o644


def test_hard_links():
    with Box() as x:
        x.write("a", b"one")
        os.link(x.at("a"), x.at("b"))
        x.make(Guest().file("a", b"two"))
        assert "breaks_hard_link" in x.items()["a"]["flags"]
        r = x.apply("--auto", want=0)
        assert r["results"][0]["broke_hard_link"] is True
        assert x.read("a") == b"two" and x.read("b") == b"one"


def test_xattrs_and_owner_stay():
    with Box() as x:
        x.write("f", b"x")
        x.write("d/k", b"k")
        try:
            os.setxattr(x.at("f"), "user.mine", b"v")
        except OSError:
            return "no xattrs here"
        if os.geteuid() == 0:
            os.chown(x.at("f"), 1234, 2345)
            os.chown(x.at("d"), 1234, 2345)
        x.make(Guest().file("f", b"y").file("d/new", b"n").link("d/l", "k").dir("d/e"))
        x.apply("--auto", want=0)
        assert x.read("f") == b"y" and os.getxattr(x.at("f"), "user.mine") == b"v"
        if os.geteuid() == 0:
            for n in ("f", "d/new", "d/l", "d/e"):
                st = os.lstat(x.at(n))
                assert (st.st_uid, st.st_gid) == (1234, 2345), n


def test_tiers():
    with Box() as x:
        x.write("k", b"")
        g = Guest()
        tier1 = [".vscode/tasks.json", ".VSCODE/settings.json", "sub/.Husky/pre-commit", ".mcp.json",
                 "a.code-workspace", ".cargo/config.toml", ".claude/settings.json",
                 "\u017fub/.v\u017fcode/x", "git~1/hooks/x", ".pre-commit-config.yaml",
                 ".vs\u200bcode/x"]
        tier2 = ["Makefile", "sub/PACKAGE.JSON", ".github/workflows/ci.yml", "conftest.py",
                 "CMakeLists.txt", "jenkinsfile"]
        for p in tier1 + tier2 + ["plain.c"]:
            g.file(p, b"x")
        x.make(g)
        items = x.items()
        by_raw = {os.fsdecode(bytes.fromhex(v["path_hex"])) if "path_hex" in v else k: v
                  for k, v in items.items()}
        for p in tier1:
            if classify_skipped(p):
                continue
            assert by_raw[p]["tier"] == 1 and by_raw[p]["reason"], (p, by_raw[p])
        for p in tier2:
            assert by_raw[p]["tier"] == 2 and by_raw[p]["reason"], (p, by_raw[p])
        assert by_raw["plain.c"]["tier"] == 0
        r = x.apply("--auto", want=3)
        assert r["skipped_tier1"] == sum(1 for v in items.values()
                                         if v["tier"] == 1 and v["status"] == "pending")
        assert x.exists("Makefile") and x.exists("plain.c") and not x.exists(".vscode")
        # naming the directory is not naming what runs by itself in it
        x.apply(".vscode", want=3)
        assert not x.exists(".vscode")
        x.apply(".vscode/tasks.json", want=3)
        assert x.exists(".vscode/tasks.json")
        x.apply("--all")        # tier 1 is never applied without its name
        assert not x.exists(".mcp.json")
        x.apply(".mcp.json")
        assert x.exists(".mcp.json")


def classify_skipped(p):
    return "git~1" in p     # counted as git's own, see the next test


def test_git_is_counted_and_never_applied():
    with Box() as x:
        x.write(".git/HEAD", b"ref: refs/heads/main\n")
        x.write(".git/config", b"[core]\n")
        x.write("a", b"a")
        g = Guest().file("a", b"b").file(".git/hooks/pre-commit", b"evil", 0o755)
        g.file(".git/objects/ab/cdef", b"o").file(".git/refs/heads/\x1b[31mx", b"r")
        g.file(".git/config", b"[core]\nfsmonitor=evil\n").delete(".git/HEAD")
        g.file("sub/.GIT/hooks/x", b"evil").file("w/.git", b"gitdir: /tmp/evil")
        # the pointer of a worktree: changed, and gone with its directory
        x.write("wt/.git", b"gitdir: ../.git/worktrees/wt\n")
        x.write("gone/.git", b"gitdir: ../.git/worktrees/gone\n")
        x.write("gone/f", b"f")
        g.file("wt/.git", b"gitdir: /tmp/evil\n").delete("gone")
        x.make(g)
        top = x.list()
        assert [c["path"] for c in top["changes"]] == ["a", "gone"], top
        git = top["summary"]["git"]
        assert git["paths"] == 8 and git["objects"] == 1 and git["refs"] == 1 and git["hooks"]
        text = x.tool("text", "set-aaaaaa").stdout
        assert b"git: 8 paths, 1 object, 1 ref" in text and b"\x1b" not in text, text
        x.apply("--all", "--ignored", want=0)
        assert x.read("wt/.git") == b"gitdir: ../.git/worktrees/wt\n"
        assert os.listdir(x.at("gone")) == [b".git"] and x.read("gone/.git").endswith(b"/gone\n")
        assert sorted(os.listdir(x.at(".git"))) == [b"HEAD", b"config"]
        assert x.read(".git/config") == b"[core]\n" and not x.exists("sub") and not x.exists("w")
        assert x.tool("apply", "set-aaaaaa", ".git/hooks/pre-commit").returncode == 125


def test_bare_repository_shape():
    with Box() as x:
        x.write("half/objects/x", b"")
        x.write("half/refs/y", b"")
        g = Guest().file("new/HEAD", b"h").dir("new/objects").dir("new/refs").file("new/config", b"c")
        g.file("half/HEAD", b"h").file("wt/head", b"h").file("wt/commondir", b"/tmp/evil")
        g.file("ok/HEAD", b"h")
        x.make(g)
        it = x.items()
        for p in ("new/HEAD", "new/config", "half/HEAD", "wt/head", "wt/commondir"):
            assert it[p]["tier"] == 1, (p, it[p])
        assert it["ok/HEAD"]["tier"] == 0


def test_links_that_leave():
    with Box() as x:
        x.write("d/k", b"")
        os.symlink("/etc", x.at("out"))
        x.flags = {"out": (SKIPPED, 4)}
        g = Guest()
        bad = {"abs": "/etc/passwd", "up": "../x", "d/up2": "../../x", "odd": "d/../../x",
               "git": ".git/hooks", "via": "out/passwd", "viaout": "out"}
        good = {"in": "d/k", "d/ok": "../d/k", "dangling": "nowhere"}
        for n, t in {**bad, **good}.items():
            g.link(n, t)
        x.make(g)
        it = x.items()
        for n in bad:
            assert it[n]["tier"] == 1, (n, it[n])
        for n in good:
            assert it[n]["tier"] == 0, (n, it[n])


def test_ignored():
    with Box() as x:
        x.write(".gitignore", b"*.o\n/out/\n")
        x.write("sub/.gitignore", b"!keep.o\n")
        x.write("old.o", b"old")
        x.write("tracked.o", b"t")
        x.flags = {"old.o": (IGNORED, 0), "tracked.o": (TRACKED, 0)}
        x.rules = [("", box.GITIGNORE, b"*.o\n/out/\n"), ("sub", box.GITIGNORE, b"!keep.o\n"),
                   ("", box.EXCLUDE, b"cache/\n")]
        g = Guest().file("a.o", b"1").file("old.o", b"2").file("tracked.o", b"3")
        g.file("out/x/y", b"4").file("sub/keep.o", b"5").file("cache/z", b"6").file("c", b"7")
        # the guest's own ignore file decides nothing
        g.file(".gitignore", b"c\n")
        x.make(g)
        it = x.items()
        ignored = {p for p, v in it.items() if "ignored" in v["flags"]}
        assert ignored == {"a.o", "old.o", "out/x/y", "cache/z"}, ignored
        text = x.tool("text", "set-aaaaaa").stdout.decode()
        assert "ignored: 4 paths" in text and "a.o" not in text.replace("ignored", ""), text
        x.apply("--all", want=0)
        assert not x.exists("a.o") and x.read("tracked.o") == b"3" and x.read("old.o") == b"old"
        x.apply("--auto", "--ignored", want=0)
        assert x.read("a.o") == b"1" and x.read("old.o") == b"2" and x.read("out/x/y") == b"4"


def test_submodules_are_said():
    """git takes nothing over by itself when .gitmodules changes: that is the user's to do."""
    with Box() as x:
        x.write(".gitmodules", b"[submodule \"a\"]\n")
        x.write("sub/.gitmodules", b"[submodule \"a\"]\n")
        x.write("not.gitmodules", b"")
        x.make(Guest().file(".gitmodules", b"x").file("sub/.gitmodules", b"x").file("not.gitmodules", b"x"))
        text = x.tool("text", "set-aaaaaa").stdout.decode()
        assert text.count("git submodule sync") == 2, text
        r = x.tool("apply", "set-aaaaaa", "--auto", env={"TEXT": "1"})
        assert r.returncode == 0 and r.stdout.count(b"git submodule sync") == 2, r


def test_refused():
    with Box() as x:
        x.write(".env", b"SECRET")
        x.write("node_modules/x", b"")
        x.write("sub/k", b"")
        x.flags = {".env": (HIDDEN, 0), "node_modules": (EXCLUDED, 0)}
        g = Guest().file(".env", b"mine").file("sub/id_rsa", b"k").file(".ssh/config", b"c")
        g.file(".ssh/deep/x", b"c").special("sub/pipe", stat.S_IFIFO | 0o644)
        g.file("node_modules/y/z", b"z").file(".cloche-tmp-aaaaaaaaaaaaaaaa", b"t").file("ok", b"k")
        g.delete("sub/.netrc")
        x.make(g)
        it = x.items()
        refused = {p: v["refused"] for p, v in it.items() if "refused" in v}
        assert set(refused) == {".env", "sub/id_rsa", ".ssh", "sub/pipe", "node_modules",
                                ".cloche-tmp-aaaaaaaaaaaaaaaa"}, refused
        assert it[".ssh"]["below"] == 3 and "ignored" in it["node_modules"]["flags"]
        r = x.apply("--all", want=0)
        assert results(r) == {"ok": "applied"}
        assert results(x.apply(".env", want=3)) == {".env": "refused"}
        assert x.read(".env") == b"SECRET" and not x.exists("sub/id_rsa") and not x.exists("sub/pipe")


def test_escape_sequences_never_come_out():
    with Box() as x:
        evil = b"\x1b]0;pwn\x07\x1b[31m\n\xff\xc2\x9b"
        x.write(b"old" + evil, b"a\x1b[2J\n")
        x.write("f", b"plain\n")
        g = Guest().file(b"old" + evil, b"b\x1b]52;c;aa\x07\r\n\xe2\x80\xae\n").link("l", b"x" + evil)
        g.file("f", b"\x1b[31mred\n").file(b"d" + evil + b"/x", b"n")
        x.make(g)
        out = b""
        for verb, args in (("text", []), ("list", []), ("diff", ["f"])):
            out += x.tool(verb, "set-aaaaaa", *args).stdout
        for c in x.list()["changes"]:
            out += x.tool("diff", "set-aaaaaa", c["path"]).stdout
        coloured = x.tool("diff", "set-aaaaaa", "f", env={"COLOUR": "1"}).stdout
        assert b"\x1b[32m+\\e[31mred\x1b[m" in coloured, coloured
        out += re.sub(rb"\x1b\[\d*m", b"", coloured)
        out += x.tool("lines", "set-aaaaaa", stdin="n\n" * 9).stdout
        out += x.tool("apply", "set-aaaaaa", "--all", env={"TEXT": "1"}).stdout
        bad = [c for c in out if c < 32 and c not in (9, 10)] + ([1] if b"\xc2\x9b" in out else [])
        assert not bad and "\u202e" not in out.decode(), (bad, out)
        assert x.read(b"old" + evil).startswith(b"b\x1b")   # the bytes are the guest's


def test_swapped_component():
    """A parent replaced by a link between the check and the write: nothing lands outside."""
    for kind in ("modify", "add", "delete"):
        with Box() as x:
            outside = os.path.join(x.top, "outside")
            os.mkdir(outside)
            x.write("d/f", b"base")
            g = Guest()
            {"modify": lambda: g.file("d/f", b"guest"), "add": lambda: g.file("d/n", b"guest"),
             "delete": lambda: g.delete("d/f")}[kind]()
            x.make(g)
            with open(os.path.join(outside, "f"), "wb") as f:
                f.write(b"theirs")
            r = x.hooked(VERIFIED, "cd '%s' && mv d d.old && ln -s '%s' d" % (x.project, outside))
            assert sorted(os.listdir(outside)) == ["f"], (kind, r.stdout)
            with open(os.path.join(outside, "f"), "rb") as f:
                assert f.read() == b"theirs"
        with Box() as x:
            # already a link when apply comes
            outside = os.path.join(x.top, "outside")
            os.mkdir(outside)
            x.write("d/f", b"base")
            g = Guest().file("d/f", b"guest").file("d/n", b"new")
            x.make(g)
            os.rename(x.at("d"), os.path.join(b(outside), b"d"))
            os.symlink(os.path.join(outside, "d"), x.at("d"))
            r = results(x.apply("--auto", want=3))
            assert set(r.values()) == {"conflict"}, r
            assert os.listdir(os.path.join(outside, "d")) == ["f"]


b = box.b


def test_swapped_file():
    """An edit between the last look and the rename is never lost."""
    edits = {
        "in place": "printf 'host edit' >f",
        "by rename": "printf 'host edit' >f.tmp && mv f.tmp f",
        "same size": "printf 'edit' >f.tmp && mv f.tmp f",
    }
    for how, cmd in edits.items():
        with Box() as x:
            x.write("f", b"base")
            x.make(Guest().file("f", b"guest"))
            r = x.hooked(VERIFIED, cmd)
            assert r.returncode == 3 and b"conflict f" in r.stdout, (how, r.stdout)
            assert x.read("f").endswith(b"edit"), (how, x.read("f"))
            assert not x.leftovers(), (how, x.leftovers())
        with Box() as x:
            x.write("f", b"base")
            x.make(Guest().delete("f"))
            r = x.hooked(VERIFIED, cmd)
            assert b"conflict f" in r.stdout, (how, r.stdout)
            assert x.read("f").endswith(b"edit") and not x.leftovers()
    with Box() as x:    # a file becomes a link, a directory, nothing
        for cmd in ("ln -sf /etc/passwd f", "rm f && mkdir f && touch f/x"):
            with Box() as y:
                y.write("f", b"base")
                y.make(Guest().file("f", b"guest"))
                before = open("/etc/passwd", "rb").read()
                r = y.hooked(VERIFIED, cmd)
                assert b"conflict f" in r.stdout, (cmd, r.stdout)
                assert open("/etc/passwd", "rb").read() == before and not y.leftovers()
        x.write("g", b"base")
        x.make(Guest().file("g", b"guest"))
        r = x.hooked(VERIFIED, "rm g")
        assert b"conflict g" in r.stdout and not x.exists("g") and not x.leftovers(), r.stdout
    with Box() as x:    # made meanwhile
        x.write("k", b"")
        x.make(Guest().file("n", b"guest"))
        r = x.hooked(VERIFIED, "printf host >n")
        assert b"conflict n" in r.stdout and x.read("n") == b"host" and not x.leftovers()
    with Box() as x:    # swapped while it was being put back: both versions are there
        x.write("f", b"base")
        x.make(Guest().file("f", b"guest"))
        env = {"HOOK_AT": str(VERIFIED), "HOOK_CMD": "printf first >f"}
        r = x.tool("apply-hooked", "set-aaaaaa", x.project, env=env)
        assert x.read("f") == b"first"
        r = x.hooked(MOVED, "printf late >'%s/.x' && mv '%s/.x' '%s/f'" % ((x.project,) * 3))
        kept = [x.read(n) for n in os.listdir(x.project)]
        assert b"first" in kept or b"late" in kept, (r.stdout, kept)


def test_edit_after_the_exchange_is_kept():
    with Box() as x:
        x.write("f", b"base")
        x.make(Guest().file("f", b"guest"))
        # between our exchange and our look the user saves over the new content
        x.hooked(VERIFIED, "printf edit1 >f")       # makes what comes out a mismatch
        assert x.read("f") == b"edit1"
    with Box() as x:
        x.write("f", b"base")
        x.make(Guest().file("f", b"guest"))
        env = {"HOOK_AT": "3", "HOOK_CMD": "printf newest >.n && mv .n f"}
        # PUT_BACK is reached only with a mismatch: swap the old thing under the temporary name
        env2 = dict(env, HOOK_AT=str(MOVED), HOOK_CMD='printf mine >"$HOOK_NAME"; printf newest >.n && mv .n f')
        x.tool("apply-hooked", "set-aaaaaa", x.project, env=env2)
        contents = {x.read(n) for n in os.listdir(x.project)}
        assert b"newest" in contents and b"mine" in contents, contents
        assert x.read("f") == b"newest", x.read("f")


def test_stress_swaps():
    """A thread flips a directory with a link to outside while sets are applied: never outside."""
    seconds = float(os.environ.get("CLOCHE_STRESS_SECONDS", "4"))
    with Box() as x:
        outside = os.path.join(x.top, "outside")
        os.mkdir(outside)
        x.write("d/f", b"base")
        x.make(Guest().file("d/f", b"guest").file("d/sub/n", b"guest").file("d/m", b"guest"))
        stop = threading.Event()

        def flip():
            d, old = x.at("d"), x.at("d.old")
            while not stop.is_set():
                try:
                    os.rename(d, old)
                    os.symlink(b(outside), d)
                    os.unlink(d)
                    os.rename(old, d)
                except OSError:
                    pass
        t = threading.Thread(target=flip)
        t.start()
        end, rounds = time.time() + seconds, 0
        try:
            while time.time() < end:
                x.tool("apply-hooked", "set-aaaaaa", x.project)
                with open(os.path.join(x.changes, "set-aaaaaa", "status"), "wb"):
                    pass        # pending again
                assert os.listdir(outside) == [], os.listdir(outside)
                rounds += 1
        finally:
            stop.set()
            t.join()
        assert rounds > 3, rounds


def test_kill_in_the_middle():
    """kill -9 at each point of each kind of step; the next apply goes on to the same end."""
    for point in (VERIFIED, MOVED, DONE):
        for nth in range(1, 8):
            with Box() as x:
                for n in ("a", "b", "c"):
                    x.write(n, b"base " + n.encode())
                x.write("d/x", b"x")
                x.write("d/y", b"y")
                x.write("t/z", b"z")
                g = Guest().file("a", b"guest a").delete("b").file("n/new", b"new").link("c", "a")
                g.delete("d").file("t", b"was a directory")
                x.make(g)
                r = x.hooked(point, "kill -9 $PPID", nth=nth)
                tmp = len(x.leftovers())
                assert tmp <= 2, x.leftovers()
                r2 = x.tool("apply-hooked", "set-aaaaaa", x.project)
                assert r2.returncode == 0, (point, nth, r.stdout, r2.stdout, r2.stderr)
                assert x.read("a") == b"guest a" and not x.exists("b") and x.read("n/new") == b"new"
                assert os.readlink(x.at("c")) == b"a" and not x.exists("d")
                assert x.read("t") == b"was a directory"
                assert not x.leftovers(), (point, nth, x.leftovers())
                if r.returncode == 0:
                    break


def test_kill_then_host_edit_is_not_lost():
    with Box() as x:
        x.write("a", b"base")
        x.make(Guest().file("a", b"guest"))
        # the host's edit is what came out from under the name when the process dies
        x.hooked(VERIFIED, "printf 'host edit' >a")
        assert x.read("a") == b"host edit"
        with Box() as y:
            y.write("a", b"base")
            y.make(Guest().file("a", b"guest"))
            y.hooked(MOVED, 'printf "host edit" >"$HOOK_NAME"; kill -9 $PPID')
            r = y.tool("apply-hooked", "set-aaaaaa", y.project)
            assert y.read("a") == b"host edit", (y.read("a"), r.stdout)
            assert r.returncode == 3 and not y.leftovers(), r.stdout


def test_interrupted_apply_is_shown():
    with Box() as x:
        x.write("a", b"1")
        x.write("b", b"2")
        x.make(Guest().file("a", b"x").file("b", b"y"))
        x.hooked(DONE, "kill -9 $PPID", nth=1)
        assert x.list()["interrupted"] == 2
        r = x.apply("--auto", want=0)
        assert results(r) == {"a": "already there", "b": "applied"}, r
        assert x.list()["interrupted"] == 0


NOSPACE = r"""
set -e
mount -t tmpfs -o size=1m,mode=755 none "$1"
cd "$1"
printf base >big
head -c 900000 /dev/urandom >fill
"""


def test_full_disk():
    unshare = ["unshare", "-Urm"]
    if subprocess.run(unshare + ["true"], stderr=subprocess.DEVNULL).returncode != 0:
        return "no user namespaces here"
    script = r"""
import sys, os
sys.path.insert(0, %r)
import box, subprocess
box.TOOL = %r
from box import Box, Guest
x = Box()
subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", x.project])
x.write("big", b"base")
x.write("small", b"base")
x.write("fill", os.urandom(800000))
x.make(Guest().file("big", os.urandom(30000) * 12).file("small", b"guest").file("a", b"first"))
r = x.tool("apply", "set-aaaaaa", "--auto", env={"NO_CAGE": "1"})
import json
res = json.loads(r.stdout)
got = {e["path"]: e["result"] for e in res["results"]}
assert r.returncode == 3 and got == {"a": "applied", "big": "failed", "small": "failed"}, res
assert x.read("big") == b"base" and x.read("small") == b"base" and not x.leftovers()
assert "No space left" in res["results"][1]["reason"], res
os.unlink(x.at("fill"))
r = x.tool("apply", "set-aaaaaa", "--auto", env={"NO_CAGE": "1"})
assert r.returncode == 0, r
assert len(x.read("big")) == 360000 and x.read("small") == b"guest"
subprocess.check_call(["umount", x.project])
x.__exit__()
print("fine")
""" % (os.path.dirname(os.path.abspath(__file__)), box.TOOL)
    r = subprocess.run(unshare + [sys.executable, "-c", script], capture_output=True)
    assert r.stdout == b"fine\n", (r.stdout, r.stderr)


def test_line_mode():
    def run(answers, files=("a", "b", "c")):
        x = Box()
        x.write("k", b"")
        g = Guest()
        for n in files:
            g.file(n, n.encode() + b"\n")
        x.make(g)
        r = x.tool("lines", "set-aaaaaa", stdin=answers)
        left = {n for n in files if x.exists(n)}
        st = {p: v["status"] for p, v in x.items().items()}
        x.__exit__()
        return r, left, st
    r, left, st = run("y\r\nn\ny\r\n")
    assert left == {"a", "c"} and st["b"] == "rejected" and r.returncode == 0, (left, st, r)
    assert b"[1/3] A a  +1 -0" in r.stdout, r.stdout
    assert run("\n\n\n")[1] == set()                      # Enter is no
    r, left, st = run("y\n")                              # end of input is no
    assert left == {"a"} and st["b"] == "pending" and r.returncode == 3
    r, left, st = run("n\na\n")
    assert left == {"b", "c"} and st["a"] == "rejected"
    r, left, st = run("y\nA\n")
    assert left == {"a"} and st["b"] == st["c"] == "rejected" and r.returncode == 0
    r, left, st = run("y\nq\n")
    assert left == {"a"} and st["c"] == "pending" and r.returncode == 3
    r, left, st = run("?\nhuh\nY\nYES\nNo\n")
    assert left == {"a", "b"} and b"reject" in r.stdout
    # all the rest is not what runs by itself
    files = ("a", ".vscode/tasks.json", "z")
    r, left, st = run("a\nn\n", files)
    assert left == {"a", "z"} and b"runs by itself" in r.stdout, (left, r.stdout)
    r, left, st = run("a\ny\n", files)
    assert left == set(files)
    # and "a" on such a one needs a second yes
    files = (".vscode/tasks.json", "z")
    assert run("a\n\n", files)[1] == {"z"}
    assert run("a\ny\n", files)[1] == set(files)


def test_rejected_can_be_reviewed_again():
    with Box() as x:
        x.write("k", b"")
        x.make(Guest().file("a", b"1"))
        assert x.tool("lines", "set-aaaaaa", stdin="n\n").returncode == 0
        assert json.loads(x.tool("sets").stdout)["sets"][0]["closed"]
        x.tool("lines", "set-aaaaaa", stdin="y\n")
        assert x.read("a") == b"1"


def test_second_set_of_the_same_sandbox():
    with Box() as x:
        x.write("f", b"base")
        x.write("g", b"base")
        x.write("d/x", b"x")
        scan = x.scan()
        g = Guest().file("f", b"one").delete("g").file("n/new", b"new").delete("d")
        x.make(g, scan=scan)
        x.apply("--auto", want=0)
        # the session went on: the upper still holds all of the first set
        g = Guest().file("f", b"two").delete("g").file("n/new", b"new").delete("d").file("m", b"m")
        x.make(g, id="set-bbbbbb", scan=scan, created=2000)
        got = {p: v["kind"] for p, v in x.items("set-bbbbbb").items()}
        assert got == {"f": "modified", "m": "added"}, got
        x.apply("--auto", id="set-bbbbbb", want=0)
        assert x.read("f") == b"two" and x.read("m") == b"m"
        # and a host edit after the first apply is a conflict in a third
        g = Guest().file("f", b"three").delete("g").file("n/new", b"newer").delete("d").file("m", b"m")
        x.make(g, id="set-cccccc", scan=scan, created=3000)
        x.write("f", b"host")
        r = results(x.apply("--auto", id="set-cccccc", want=3))
        assert r == {"f": "conflict", "n/new": "applied"}, r
        assert x.read("f") == b"host" and x.read("n/new") == b"newer"
        # another sandbox knows nothing of all that
        x.make(Guest().file("f", b"other"), id="set-dddddd", sandbox="box2", scan=scan, created=4000)
        assert results(x.apply("--auto", id="set-dddddd", want=3)) == {"f": "conflict"}


def test_sets_on_disk():
    with Box() as x:
        x.write("a", b"1")
        r = x.make(Guest().file("a", b"2"), env={"CRASH_BEFORE_COMMIT": "1"}, check=False)
        assert r.returncode == 9 and os.listdir(x.changes) == [".new-set-aaaaaa"]
        assert json.loads(x.tool("sets").stdout)["sets"] == []
        assert x.tool("sweep").stdout == b"1\n" and os.listdir(x.changes) == []
        x.make(Guest().file("a", b"2"))
        x.make(Guest().file("a", b"3"), id="set-bbbbbb", created=2000)
        assert x.tool("find", x.project).returncode == 2
        assert x.tool("find", x.project, "set-bbbbbb").stdout == b"set-bbbbbb\n"
        assert x.tool("find", x.project, "shell@s1").stdout == b"set-bbbbbb\n"
        assert x.tool("find", "/nowhere").returncode == 125
        assert x.tool("discard", "set-bbbbbb").returncode == 0
        assert x.tool("find", os.path.join(x.project, "deep/er")).stdout == b"set-aaaaaa\n"
        # a pending set is never collected, a closed one after 14 days
        assert x.tool("retain", str(int(time.time()) + 10 ** 8)).stdout == b"0\n"
        x.apply("--auto", want=0)
        assert x.tool("retain", str(int(time.time()) + 13 * 86400)).stdout == b"0\n"
        assert x.tool("retain", str(int(time.time()) + 15 * 86400)).stdout == b"1\n"
        assert not os.path.exists(os.path.join(x.changes, "set-aaaaaa/blobs"))
        r = x.tool("list", "set-aaaaaa")
        assert r.returncode == 125 and b"contents" in r.stderr, r
        # a damaged set is an error with a name, not a crash, and the list goes on
        x.make(Guest().file("a", b"4"), id="set-cccccc")
        with open(os.path.join(x.changes, "set-cccccc/index"), "r+b") as f:
            f.truncate(20)
        assert x.tool("list", "set-cccccc").returncode == 125
        with open(os.path.join(x.changes, "set-cccccc/meta.json"), "w") as f:
            f.write('{"schema":1,"schema":1}')
        assert json.loads(x.tool("sets").stdout)["damaged"] == 1
        assert x.tool("sweep").stdout == b"0\n"


def test_one_at_a_time():
    with Box() as x:
        x.write("a", b"1")
        x.make(Guest().file("a", b"2"))
        lock = os.open(os.path.join(x.changes, "set-aaaaaa/lock"), os.O_RDWR | os.O_CREAT)
        import fcntl
        fcntl.flock(lock, fcntl.LOCK_EX)
        r = x.tool("apply", "set-aaaaaa", "--auto")
        assert r.returncode == 125 and b"elsewhere" in r.stderr, r
        assert x.tool("list", "set-aaaaaa").returncode == 0     # looking is allowed
        fcntl.flock(lock, fcntl.LOCK_UN)
        st = os.stat(x.project)
        lock2 = os.open(os.path.join(x.locks, "%x-%d" % (st.st_dev, st.st_ino)), os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock2, fcntl.LOCK_EX)
        r = x.tool("apply", "set-aaaaaa", "--auto")
        assert r.returncode == 125 and b"another cloche" in r.stderr, r
        os.close(lock)
        os.close(lock2)


def test_fifo_on_the_host_blocks_nothing():
    with Box() as x:
        for n in ("mod", "del", "mode"):
            x.write(n, b"base")
        x.make(Guest().file("mod", b"guest", base=True).delete("del").file("new", b"g")
               .same("mode", os.fsdecode(x.at("mode")), 0o755))
        for n in ("mod", "del", "mode", "new"):
            if x.exists(n):
                os.unlink(x.at(n))
            os.mkfifo(x.at(n))
        start = time.time()
        x.list()
        x.tool("diff", "set-aaaaaa", "mod")
        assert set(results(x.apply("--all", want=3)).values()) == {"conflict"}
        assert time.time() - start < 20


def test_project_below_a_link():
    with Box() as x:
        x.write("a", b"1")
        x.make(Guest().file("a", b"2"))
        os.rename(x.project, x.project + ".real")
        os.symlink(x.project + ".real", x.project)
        x.apply("--auto", want=0)
        assert x.read("a") == b"2" and os.path.islink(x.project)


def test_project_replaced():
    with Box() as x:
        x.write("a", b"1")
        x.make(Guest().file("a", b"2").file("n", b"n"))
        os.rename(x.project, x.project + ".old")
        os.mkdir(x.project)
        x.write("a", b"1")
        r = x.tool("apply", "set-aaaaaa", "--auto")
        assert r.returncode == 125 and b"not the directory that the sandbox saw" in r.stderr and \
            b"--to DIR" in r.stderr, r
        r = x.tool("lines", "set-aaaaaa")
        assert r.returncode == 125 and b"--to DIR" in r.stderr, r
        assert os.listdir(x.project) == ["a"]
        assert {c["host"] for c in x.list()["changes"]} == {"failed"}
        shutil.rmtree(x.project)
        r = x.tool("apply", "set-aaaaaa", "--auto")
        assert r.returncode == 125 and b"is not there any more" in r.stderr, r


def test_project_restored():
    """A directory that is named takes the changes; what differs from the baseline is a conflict."""
    for name, rc in ((None, 3), ("demo", 3), ("other", 125)):
        with Box() as x:
            for n in "abcd":
                x.write(n, b"1")
            x.make(Guest().file("a", b"22", base=True).file("b", b"22", base=True).file("c", b"22")
                   .file("n", b"n").delete("d"))
            os.rename(x.project, x.project + ".old")
            new = x.project + "-new"
            shutil.copytree(x.project + ".old", new)
            with open(os.path.join(new, "b"), "wb") as f:
                f.write(b"edited")
            env = {"TO": new}
            if name:
                env["TO_NAME"] = name
            r = x.tool("apply", "set-aaaaaa", "--auto", env=env)
            assert r.returncode == rc, r
            if rc == 125:
                assert b"no project of the change set is named 'other'" in r.stderr, r
                continue
            # c: nobody knows the content that it had; d: nothing tells that it was only copied
            assert results(json.loads(r.stdout)) == {
                "a": "applied", "b": "conflict", "c": "conflict", "d": "conflict", "n": "applied"}, r
            got = {n: open(os.path.join(new, n), "rb").read() for n in sorted(os.listdir(new))}
            assert got == {"a": b"22", "b": b"edited", "c": b"1", "d": b"1", "n": b"n"}, got
            assert sorted(os.listdir(x.project + ".old")) == ["a", "b", "c", "d"]


def test_file_system_without_rename_flags():
    """NFS and some of FUSE: a set is written, applied, and discarded; nothing is replaced unseen."""
    env = {"NO_RENAME_FLAGS": "1"}
    with Box() as x:
        for n in ("mod", "del", "edited", "dir/f"):
            x.write(n, b"1")
        x.make(Guest().file("mod", b"22").file("new", b"n").file("taken", b"n").file("edited", b"22")
               .link("link", "mod").delete("del").delete("dir").file("deep/er/f", b"f"), env=env)
        x.write("taken", b"mine")
        x.write("edited", b"mine too")
        r = x.apply("--auto", want=3, env=env)
        got = results(r)
        assert {n for n in got if got[n] == "conflict"} == {"taken", "edited"}, got
        assert {n for n in got if got[n] == "applied"} == set(got) - {"taken", "edited"}, got
        assert x.read("mod") == b"22" and x.read("new") == b"n" and x.read("deep/er/f") == b"f"
        assert os.readlink(x.at("link")) == b"mod"
        assert not x.exists("del") and not x.exists("dir") and not x.leftovers()
        assert x.read("taken") == b"mine" and x.read("edited") == b"mine too"
        x.make(Guest().file("mod", b"3"), id="set-bbbbbb", env=env)
        r = x.make(Guest().file("mod", b"4"), id="set-bbbbbb", env=env, check=False)
        assert r.returncode == 125 and b"File exists" in r.stderr, r
        assert x.tool("discard", "set-aaaaaa", env=env).returncode == 0
        assert os.listdir(x.changes) == ["set-bbbbbb"]


def test_a_directory_names_what_is_pending():
    """Below a path that is named lies what was rejected, in conflict, ignored, refused or runs by
    itself: not taken with it, and taken by its own name."""
    def made(x):
        for n in ("d/edited", "d/mod", "d/.gitignore"):
            x.write(n, b"1")
        x.rules = [("d", box.GITIGNORE, b"*.o\n")]
        x.make(Guest().file("d/edited", b"2").file("d/mod", b"2").file("d/x.o", b"o")
               .file("d/.env", b"s").file("d/.mcp.json", b"r").file("e", b"e"))
        x.write("d/edited", b"mine")

    with Box() as x:
        made(x)
        assert results(x.apply("d", want=3)) == {"d/edited": "conflict", "d/mod": "applied"}
        assert results(x.apply("d", want=3)) == {}, "what is in conflict is not tried again"
        assert results(x.apply(".", want=3)) == {"e": "applied"}
        assert results(x.apply("--all", "d", want=3)) == {"d/edited": "conflict"}
        assert results(x.apply("--ignored", "d", want=3)) == {"d/x.o": "applied"}
        assert results(x.apply("d/.env", want=3)) == {"d/.env": "refused"}
        assert results(x.apply("d/.mcp.json", want=3)) == {"d/.mcp.json": "applied"}
        out = x.tool("diff", "set-aaaaaa", "d").stdout
        for n in (b"d/edited", b"d/x.o", b"d/.mcp.json"):
            assert n in out, (n, out)
    with Box() as x:
        made(x)
        assert x.tool("lines", "set-aaaaaa", stdin="A\n").returncode == 0
        assert results(x.apply("d")) == {}
        assert x.read("d/mod") == b"1"
        assert results(x.apply("d/mod")) == {"d/mod": "applied"}
        assert results(x.apply("d/x.o")) == {"d/x.o": "applied"}


def test_fifo_in_a_set_blocks_nothing():
    """A name of the set that is a FIFO is a damaged set, and not a wait for a writer."""
    for name in ("meta.json", "index", "base", "manifest", "status", "journal", "applied", "lock",
                 "blobs"):
        with Box() as x:
            x.write("a", b"1")
            x.make(Guest().file("a", b"2"))
            path = os.path.join(x.changes, "set-aaaaaa", name)
            subprocess.run(["rm", "-rf", path], check=True)
            os.mkfifo(path)
            for verb in (["list", "set-aaaaaa"], ["apply", "set-aaaaaa", "--auto"], ["sets"], ["sweep"],
                         ["retain", "9999999999"], ["find", "/", "set-aaaaaa"]):
                r = x.tool(verb[0], *verb[1:], timeout=10)      # TimeoutExpired is the failure
                assert r.returncode in (0, 2, 3, 125), (name, verb, r)
            if name in ("meta.json", "index", "manifest", "status"):
                assert x.read("a") == b"1", name


def test_what_cannot_be_read_is_not_removed():
    """A set whose meta.json is damaged may hold work: nothing that cleans up touches it."""
    with Box() as x:
        x.write("a", b"1")
        x.make(Guest().file("a", b"2"))
        meta = os.path.join(x.changes, "set-aaaaaa/meta.json")
        for text in (b"", b"{", b"[]", None):
            if text is None:
                os.unlink(meta)
            else:
                with open(meta, "wb") as f:
                    f.write(text)
            for verb in (["sweep"], ["retain", "9999999999"]):
                r = x.tool(*verb)
                assert r.returncode == 0 and r.stdout == b"0\n", r
            j = json.loads(x.tool("sets", check=True).stdout)
            assert j["damaged"] == 1 and j["sets"] == [], j
            assert os.listdir(os.path.join(x.changes, "set-aaaaaa/blobs")) == ["1"]


def test_error_at_close():
    """Where closing says that the content did not arrive (a network's file system), the file is
    not replaced."""
    with Box() as x:
        x.write("a", b"old")
        x.make(Guest().file("a", b"new content").file("n", b"n"))
        r = x.tool("apply-hooked", "set-aaaaaa", x.project, env={"CLOSE_FAILS": "1"})
        assert r.returncode == 3 and r.stdout.count(b"failed") == 2, r
        assert b"Input/output error" in r.stdout, r
        assert x.read("a") == b"old" and not x.exists("n"), r
        # and nothing is staged that did not arrive
        r = x.make(Guest().file("a", b"new content"), id="set-bbbbbb", env={"CLOSE_FAILS": "1"},
                   check=False)
        assert r.returncode == 125 and b"Input/output error" in r.stderr, r
        assert x.tool("sweep").stdout == b"1\n" and os.listdir(x.changes) == ["set-aaaaaa"]


def test_nothing_is_closed_twice():
    """Another thread, or the next file, may own the number by then: no close() of what is not
    open, with and without the fallbacks of old file systems."""
    if not shutil.which("strace"):
        return "no strace here"
    for env in ({}, {"NO_RENAME_FLAGS": "1"}):
        with Box() as x:
            for n in ("mod", "del", "edited"):
                x.write(n, b"1")
            x.make(Guest().file("mod", b"22").file("new/er", b"n").file("edited", b"2").delete("del")
                   .link("l", "mod"))
            x.write("edited", b"mine")
            log = os.path.join(x.top, "log")
            for verb in (["list"], ["apply", "--all"], ["diff", "mod"], ["discard"]):
                r = subprocess.run(["strace", "-f", "-qq", "-e", "trace=close", "-e", "status=failed", "-o",
                                    log, box.TOOL, verb[0], x.changes, x.locks, "set-aaaaaa", *verb[1:]],
                                   capture_output=True, env=dict(os.environ, NO_CAGE="1", **env))
                if r.returncode not in (0, 3):
                    return "strace does not work here"
                with open(log) as f:
                    text = f.read()
                assert "EBADF" not in text, (verb, text)


def test_a_long_list_in_little_memory():
    """The list of 200,000 changes: no process of ours grows with it beyond what an item needs,
    and a disk that takes nothing makes no other list."""
    n = 200000
    with Box() as x:
        x.write("k", b"")
        lines = x.scan() + ["D %s 493 0" % box.hx("demo")]
        for d in range(n // 1000):
            lines.append("D %s 493 0" % box.hx("dir%04d" % d))
            lines += ["L %s %s" % (box.hx("some-file-name-%06d.txt" % i), box.hx("target"))
                      for i in range(1000)]
            lines.append("U")
        x.tool("mk", "set-aaaaaa", "box", "5", stdin="\n".join(lines + ["U"]) + "\n", check=True,
               timeout=120)

        def full_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        def high_water(pid):
            try:
                with open("/proc/%d/status" % pid) as f:
                    return next(int(l.split()[1]) for l in f if l.startswith("VmHWM"))
            except (OSError, StopIteration):
                return 0    # it has ended

        def run(verb, setup=None):
            p = subprocess.Popen([box.TOOL, verb, x.changes, x.locks, "set-aaaaaa"],
                                 stdout=subprocess.PIPE, preexec_fn=setup)
            h, peak = hashlib.sha256(), {}
            while b := os.read(p.stdout.fileno(), 1 << 16):
                h.update(b)
                try:
                    with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
                        kids = [int(k) for k in f.read().split()]
                except OSError:
                    kids = []
                for pid in [p.pid] + kids:
                    peak[pid] = max(peak.get(pid, 0), high_water(pid))
            assert p.wait() == 0
            if not setup:   # it comes from the list: no less than when it began to be printed
                assert peak[p.pid] and max(peak.values()) < 32 * 1024, peak
            return h.hexdigest()

        assert run("text") == run("text", full_disk)
        assert run("list") == run("list", full_disk)
        # the one that writes has a list of its own, and not its parent's beside it
        p = subprocess.Popen([box.TOOL, "apply", x.changes, x.locks, "set-aaaaaa", "--auto"],
                             stdout=subprocess.DEVNULL)
        peak, end = {}, time.monotonic() + 60
        while not x.exists("dir0000/some-file-name-000099.txt") and time.monotonic() < end:
            with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
                for pid in [p.pid] + [int(k) for k in f.read().split()]:
                    peak[pid] = max(peak.get(pid, 0), high_water(pid))
            time.sleep(0.05)
        p.kill()
        p.wait()
        assert x.exists("dir0000/some-file-name-000099.txt") and max(peak.values()) < 40 * 1024, peak


def test_damaged_content_is_refused():
    with Box() as x:
        x.write("a", b"1")
        x.make(Guest().file("a", b"guest").file("n", b"new"))
        blobs = os.path.join(x.changes, "set-aaaaaa/blobs")
        for n in os.listdir(blobs):
            with open(os.path.join(blobs, n), "r+b") as f:
                f.write(b"X")
        assert set(results(x.apply("--auto", want=3)).values()) == {"refused"}
        assert x.read("a") == b"1" and not x.exists("n") and not x.leftovers()


def test_sparse_and_memory():
    with Box() as x:
        x.write("k", b"")
        src = os.path.join(x.top, "src")
        with open(src, "wb") as f:
            f.seek(300 << 20)
            f.write(b"end")
            f.truncate(2 << 30)
        x.make(Guest().big("big", src))
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        pid = os.fork()
        if pid == 0:
            x.tool("list", "set-aaaaaa", check=True)
            x.tool("apply", "set-aaaaaa", "--auto", check=True)
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            os._exit(0 if peak < 64 * 1024 else 1)
        assert os.waitpid(pid, 0)[1] == 0, "more than 64 MiB resident (before: %d)" % before
        st = os.stat(x.at("big"))
        assert st.st_size == 2 << 30 and st.st_blocks * 512 < 1 << 20, st.st_blocks
        out = x.tool("diff", "set-aaaaaa", "big").stdout
        assert b"no diff shown" in out or b"10 MiB" in out, out


def test_rename_is_shown():
    with Box() as x:
        x.write("old/name.c", b"long enough\n")
        x.make(Guest().delete("old/name.c").file("new/name.c", b"long enough\n"))
        it = x.items()
        assert it["new/name.c"]["renamed_from"] == "old/name.c", it
        assert it["old/name.c"]["renamed_to"] == "new/name.c"


def test_diff_notices():
    with Box() as x:
        x.write("bin", b"a\0b")
        x.write("nl", b"a\nb")
        big = b"x" * 79 + b"\n"
        x.write("big", big * 140000)
        x.write("late", b"y" * 9000 + b"\0\n")
        x.make(Guest().file("bin", b"a\0c").file("nl", b"a\nb\n").file("big", b"small\n")
               .file("late", b"y" * 9000 + b"\0z\n"))
        def d(p):
            return x.tool("diff", "set-aaaaaa", p).stdout.decode()
        assert d("bin") == "bin: binary, 3 -> 3 bytes, no diff shown\n"
        assert "10 MiB, 11200000 -> 6 bytes" in d("big")
        assert d("nl").endswith("-b\n\\ No newline at end of file\n+b\n"), d("nl")
        assert d("late").startswith("--- a/late")      # the probe is 8 KiB


def test_diff_against_git():
    if not shutil.which("git"):
        return "no git here"
    rnd = random.Random(7)
    words = ["alpha", "beta", "", "\tgamma", "{", "}", "return x;", "é"]
    with Box() as x:
        pairs = {}
        for i in range(40):
            old = [rnd.choice(words) for _ in range(rnd.randrange(0, 60))]
            new = list(old)
            for _ in range(rnd.randrange(1, 6)):
                at = rnd.randrange(0, len(new) + 1)
                new[at:at + rnd.randrange(0, 3)] = [rnd.choice(words)] * rnd.randrange(0, 3)
            end = [rnd.choice(["", "\n"]) for _ in "ab"]
            a, c = ("\n".join(old) + end[0]).encode(), ("\n".join(new) + end[1]).encode()
            if a != c:
                pairs["f%02d" % i] = (a, c)
        g = Guest()
        for n, (a, c) in pairs.items():
            x.write(n, a)
            g.file(n, c)
        x.make(g)
        tmp = os.path.join(x.top, "o")
        os.mkdir(tmp)
        for n, (a, c) in pairs.items():
            for side, data in (("a", a), ("b", c)):
                with open(os.path.join(tmp, side), "wb") as f:
                    f.write(data)
            want = subprocess.run(["git", "-c", "core.attributesFile=/dev/null", "diff", "--no-index", "--no-color",
                                   "--diff-algorithm=myers", "--no-indent-heuristic", "a", "b"],
                                  cwd=tmp, capture_output=True).stdout
            got = x.tool("diff", "set-aaaaaa", n).stdout

            def body(t):
                i = t.find(b"\n@@")
                # the text behind @@ is a guess at the function
                return re.sub(rb"(?m)^(@@ [^@]*@@).*$", rb"\1", t[i + 1:]) if i >= 0 else b""
            assert body(got) == body(want), (n, got, want)


def check_schema(schema, v, root=None, at="$"):
    """The part of JSON Schema that docs/schemas uses."""
    root = root or schema
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
             "null": type(None)}
    want = schema.get("type", [])
    want = [want] if isinstance(want, str) else want
    assert not want or any(type(v) is kinds[k] for k in want), (at, v)
    assert "const" not in schema or v == schema["const"], (at, v)
    assert "enum" not in schema or v in schema["enum"], (at, v)
    assert "pattern" not in schema or re.search(schema["pattern"], v), (at, v)
    if isinstance(v, dict):
        for k in schema.get("required", []):
            assert k in v, (at, k)
        known = schema.get("properties", {})
        for k, x in v.items():
            if k in known:
                check_schema(known[k], x, root, at + "." + k)
            elif isinstance(schema.get("additionalProperties"), dict):
                check_schema(schema["additionalProperties"], x, root, at + "." + k)
            else:
                assert not known or len(known) < len(schema.get("required", [])), (at, "undocumented", k)
    if isinstance(v, list) and "items" in schema:
        for i, x in enumerate(v):
            check_schema(schema["items"], x, root, "%s[%d]" % (at, i))
    if schema.get("format") == "date-time" and isinstance(v, str):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", v), (at, v)


def test_json_is_as_documented():
    docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "schemas")
    if not os.path.isdir(docs):
        return "no docs beside the tests"

    def schema(n):
        with open(os.path.join(docs, n + ".json")) as f:
            return json.load(f)
    with Box() as x:
        x.write("a", b"1")
        x.write("d/b", b"1")
        x.write("old", b"renamed content\n")
        g = Guest().file("a", b"2").delete("d").file(b"\xff", b"3").link("l", "/etc").file("new", b"renamed content\n")
        g.delete("old").file(".ssh/k", b"k").file(".git/HEAD", b"h").file("Makefile", b"m", 0o6755)
        x.make(g)
        check_schema(schema("review"), x.list())
        check_schema(schema("changes"), json.loads(x.tool("sets").stdout))
        x.write("a", b"host")
        check_schema(schema("apply"), x.apply("--auto", want=3))
        check_schema(schema("review"), x.list())
        check_schema(schema("changes"), json.loads(x.tool("sets").stdout))


def test_root_reviews_a_users_project():
    if os.geteuid() != 0:
        return "not root"
    with Box() as x:
        x.write("d/f", b"one\n", 0o600)
        for n in ("", "d", "d/f"):
            os.chown(x.at(n), 1234, 1234)
        os.chmod(x.at("d"), 0o700)
        x.make(Guest().file("d/f", b"two\n", 0o600))
        assert b"-one" in x.tool("diff", "set-aaaaaa", "d/f").stdout
        x.apply("--auto", want=0)
        st = os.stat(x.at("d/f"))
        assert x.read("d/f") == b"two\n" and (st.st_uid, st.st_gid) == (1234, 1234)


def test_names_and_depth():
    with Box() as x:
        x.write("k", b"")
        deep = "/".join(["d" * 100] * 60)       # beyond PATH_MAX
        g = Guest().file("x" * 255, b"1").file(b"\xff\xfe", b"2").file("new\nline", b"3").file(deep + "/f", b"4")
        x.make(g)
        x.apply("--auto", want=0)
        assert x.read("x" * 255) == b"1" and x.read(b"\xff\xfe") == b"2" and x.read("new\nline") == b"3"
        fd = os.open(x.project, os.O_RDONLY)
        for c in deep.split("/"):
            nfd = os.open(c, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = nfd
        assert os.listdir(fd) == ["f"]
        os.close(fd)
        subprocess.run(["rm", "-rf", x.project], check=True)


def test_cost_follows_the_change():
    """Files opened by listing and applying do not depend on the size of the tree."""
    if not shutil.which("strace"):
        return "no strace here"
    counts = []
    for n in (20, 2000):
        with Box() as x:
            for i in range(n):
                x.write("t/%d/f%d" % (i % 20, i), b"x")
            x.make(Guest().file("t/1/f1", b"y").file("t/2/new", b"z").delete("t/3/f3"))
            log = os.path.join(x.top, "log")
            r = subprocess.run(["strace", "-f", "-qq", "-e", "trace=openat,openat2,getdents64,newfstatat",
                                "-o", log, box.TOOL, "apply", x.changes, x.locks, "set-aaaaaa", "--auto"],
                               capture_output=True, env=dict(os.environ, NO_CAGE="1"))
            if r.returncode != 0:
                return "strace does not work here"
            with open(log) as f:
                counts.append(sum(1 for _ in f))
    assert counts[1] <= counts[0] + 5, counts


def main():
    box.TOOL = sys.argv[1]
    names = sys.argv[2:]
    failed = 0
    for name, fn in list(globals().items()):
        if not name.startswith("test_") or (names and name not in names):
            continue
        try:
            why = fn()
            print("%s %s%s" % ("skipped" if why else "ok", name, ": " + why if why else ""), flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print("FAILED %s" % name, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
