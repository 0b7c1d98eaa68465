# SPDX-License-Identifier: Apache-2.0
"""The way back: change sets, review, apply, conflicts, recover, and processes that die."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

from harness import signal_pid, snapshot, tree_changes, wait_until
from schema import assert_valid

SAMPLE = {"a.txt": "one\ntwo\n", "src/b.c": "int b;\n", "old.txt": "old\n",
          "run.sh": ("#!/bin/sh\n", 0o644), "Makefile": "all:\n"}


def pending(h):
    return sorted(n for n in os.listdir(h.changes) if not n.startswith("."))


def test_edit_add_delete_chmod(h):
    p = h.project("demo", SAMPLE)
    before = snapshot(p)
    r = h.sh(p, "echo three >> a.txt; rm old.txt; mkdir -p new/d; echo n > new/d/f; chmod +x run.sh;"
             "ln -s a.txt link; echo '	true' >> Makefile")
    assert r.rc == 0, r
    assert tree_changes(before, snapshot(p)) == {}, "nothing is applied without being asked"
    [cs] = pending(h)
    assert cs in r.errtext and "cloche review" in r.errtext, r
    j = json.loads(h.run("changes", "--json", cwd=p).text)
    got = {c["path"]: c["kind"] for c in j["changes"]}
    assert got == {"a.txt": "modified", "old.txt": "deleted", "new/d/f": "added", "run.sh": "mode",
                   "link": "added", "Makefile": "modified"} or set(got) >= {
        "a.txt", "old.txt", "new/d/f", "run.sh", "link", "Makefile"}, got
    d = h.run("diff", "a.txt", cwd=p)
    assert "+three" in d.text and "--- a/a.txt" in d.text, d
    r = h.run("apply", cwd=p)
    assert r.rc == 0, r
    assert h.read(p, "a.txt") == b"one\ntwo\nthree\n"
    assert not os.path.exists(os.path.join(p, "old.txt"))
    assert h.read(p, "new/d/f") == b"n\n"
    assert os.stat(os.path.join(p, "run.sh")).st_mode & 0o777 == 0o755
    assert os.readlink(os.path.join(p, "link")) == "a.txt"
    r = h.run("changes", cwd=p)
    assert r.rc == 0, r
    h.wait_clean()


def test_apply_auto_leaves_tier1(h):
    p = h.project("demo", SAMPLE, git=True)
    r = h.sh(p, "echo x >> a.txt; mkdir -p .husky .vscode; echo bad > .husky/pre-commit; echo '{}' > .vscode/tasks.json;"
             "echo bad > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; git config core.pager evil;"
             "echo 'all: ; evil' > Makefile", flags=["--apply=auto"])
    assert r.rc == 0, r
    assert h.read(p, "a.txt").endswith(b"x\n")
    assert h.read(p, "Makefile") == b"all: ; evil\n"     # tier 2: applied, with a warning
    for gone in (".husky/pre-commit", ".vscode/tasks.json", ".git/hooks/pre-commit"):
        assert not os.path.exists(os.path.join(p, gone)), gone
    assert b"evil" not in h.read(p, ".git/config")
    assert ".husky/pre-commit" in r.errtext + r.text and "Makefile" in r.errtext + r.text, r
    # the risky ones wait, and are applied when named
    r = h.run("apply", ".husky/pre-commit", cwd=p)
    assert h.read(p, ".husky/pre-commit") == b"bad\n", r
    h.run("apply", ".git/hooks/pre-commit", cwd=p)
    assert not os.path.exists(os.path.join(p, ".git/hooks/pre-commit"))


def test_host_edit_is_a_conflict(h):
    p = h.project("demo", SAMPLE)
    q = h.start(*h.shell_argv(p, ["sh", "-c", "cat a.txt src/b.c >/dev/null; echo up; read x; echo g >> a.txt; echo g >> src/b.c"],
                              flags=["--apply=auto"]))
    assert q.stdout.readline() == b"up\n"
    time.sleep(1.5)
    h.write(p, "a.txt", "mine\n")               # both edit: conflict
    h.write(p, "old.txt", "mine, too\n")        # only we: stays
    r = h.finish(q, b"\n")
    assert h.read(p, "a.txt") == b"mine\n", r
    assert h.read(p, "old.txt") == b"mine, too\n"
    assert h.read(p, "src/b.c") == b"int b;\ng\n"
    assert "conflict" in r.errtext + r.text, r
    assert h.run("apply", cwd=p).rc == 3
    assert h.read(p, "a.txt") == b"mine\n"


def test_file_changed_before_capture(h):
    """The guest gets an error, never a mix; the host's edit survives."""
    p = h.project("demo", {"big": b"a" * 300000, "other": "o\n"})
    with open(os.path.join(p, "pad"), "wb") as f:
        f.truncate(20 << 20)    # a small tree would be frozen before the guest is up
    q = h.start(*h.shell_argv(p, ["sh", "-c", "echo up; read x; cat big | tr -d a | wc -c; cat big >/dev/null; echo rc=$?; cat other"],
                              flags=[]))
    # between the scan and the first command nothing was read: change it as soon as the VM is up
    h.wait_helper("cloche-worker", of=q.pid)
    wait_until(lambda: any(os.path.exists(os.path.join(h.sandboxes, s, "ws.meta")) and
                           os.path.getsize(os.path.join(h.sandboxes, s, "ws.meta")) > 0
                           for s in os.listdir(h.sandboxes)), 60)
    time.sleep(0.3)
    h.write(p, "big", b"b" * 300000)
    r = h.finish(q, b"\n")
    assert "rc=1" in r.text and r.text.splitlines()[1] == "0" and r.text.endswith("o\n"), r
    assert h.read(p, "big") == b"b" * 300000


def test_overlay_table(h):
    """Each thing that can be done to a tree arrives on the host as what it was."""
    files = {"f": "f\n", "same": "same\n", "touch": "t\n", "mod": "m\n", "d/1": "1", "d/2": "2", "d/sub/3": "3",
             "swap": "file\n", "dir/x": "x", "ren": "ren\n", "rdir/a": "a", "rdir/b": "b", "hl1": "h\n",
             "link": ("link", "f"), "keep/x": "x", "empty": "", "ex": ("#!/bin/sh\n", 0o755)}
    p = h.project("demo", files)
    os.link(os.path.join(p, "hl1"), os.path.join(p, "hl2"))
    h.write(p, b"bad\xff\nname", "odd\n")
    long = "n" * 255
    r = h.sh(p, f"""set -e
        echo g > f.tmp; mv f.tmp f                       # editors
        echo x >> same; printf 'same\\n' > same          # modify and restore
        touch touch; chmod 600 mod
        rm -r d; mkdir d; echo new > d/1                 # delete and make anew
        rm swap; mkdir swap; echo in > swap/in           # file to directory
        rm -r dir; echo now > dir                        # directory to file
        mv ren ren2                                      # rename
        mv rdir rdir2
        echo h2 > hl1                                    # one of two hard links
        rm link; ln -s keep/x link                       # link text
        chmod -x ex
        mkfifo fifo; echo s > {long}
        truncate -s 1M sparse; printf end >> sparse
        rm "$(printf 'bad\\377\\nname')"; printf o > "$(printf 'new\\376\\033[2J')"
        mkdir -p deep; cd deep; perl -e '$d = "x" x 200; for (1..40) {{ mkdir $d; chdir $d or die; }} open F, ">file"; print F "deep\n"' 
        """, flags=["--apply=auto"])
    assert r.rc == 0, r
    assert "\x1b" not in r.text + r.errtext
    deepest = subprocess.run(["find", os.path.join(p, "deep"), "-name", "file"], capture_output=True, text=True).stdout
    assert len(deepest) > 8000, len(deepest)
    subprocess.run(["rm", "-rf", os.path.join(p, "deep")], check=True)      # too deep for Python
    got = snapshot(p, mtime=False)
    assert h.read(p, "f") == b"g\n" and h.read(p, "same") == b"same\n"
    assert os.stat(os.path.join(p, "mod")).st_mode & 0o777 == 0o644, "only x bits are carried"
    assert h.read(p, "d/1") == b"new\n" and b"d/2" not in got and b"d/sub" not in got
    assert h.read(p, "swap/in") == b"in\n" and h.read(p, "dir") == b"now\n"
    assert b"ren" not in got and h.read(p, "ren2") == b"ren\n"
    assert b"rdir" not in got and h.read(p, "rdir2/b") == b"b"
    assert h.read(p, "hl1") == b"h2\n" and h.read(p, "hl2") == b"h\n"
    assert os.readlink(os.path.join(p, "link")) == "keep/x"
    assert os.stat(os.path.join(p, "ex")).st_mode & 0o111 == 0
    assert b"fifo" not in got and h.read(p, long) == b"s\n"
    st = os.stat(os.path.join(p, "sparse"))
    assert st.st_size == 1048579 and st.st_blocks * 512 < 100000, st
    assert b"bad\xff\nname" not in got and got[b"new\xfe\x1b[2J"][3] == 1


def test_ignored_and_hidden(h):
    p = h.project("demo", {".gitignore": "build/\n*.log\n", "build/o": "o\n", "x.log": "l\n", ".env": "SECRET=1\n",
                           "id_rsa": "key", "d/secret.pem": "pem", "d/ok": "ok"}, git=True)
    r = h.sh(p, "ls -A; cat build/o; echo n > build/o; echo n > x.log; echo n > new.log; echo evil > .env;"
             "rm -r d; echo new > src", flags=["--apply=auto"])
    assert ".env" not in r.text and "id_rsa" not in r.text and "o\n" in r.text, r
    assert h.read(p, ".env") == b"SECRET=1\n" and h.read(p, "id_rsa") == b"key"
    assert h.read(p, "build/o") == b"o\n" and h.read(p, "x.log") == b"l\n"
    assert not os.path.exists(os.path.join(p, "new.log"))
    assert h.read(p, "d/secret.pem") == b"pem" and not os.path.exists(os.path.join(p, "d/ok"))
    assert h.read(p, "src") == b"new\n"


def test_review_on_a_terminal(h):
    p = h.project("demo", SAMPLE)
    t = h.pty("run", "shell", p, *h.accel_flags(), "--", "sh", "-c",
              "echo x >> a.txt; echo y >> src/b.c; rm old.txt", cwd=p)
    t.expect("accept?", 240)
    t.send("y\r")
    t.expect("accept?")
    t.send("n\r")
    t.expect("accept?")
    t.send("q\r")
    assert t.wait(60) == 0
    assert t.attrs_restored()
    states = [h.read(p, "a.txt").endswith(b"x\n"), h.read(p, "src/b.c").endswith(b"y\n"),
              not os.path.exists(os.path.join(p, "old.txt"))]
    assert states.count(True) == 1, states
    # the third is still pending; end of input is no
    r = h.run("review", cwd=p)
    assert r.rc in (0, 3), r
    assert states.count(True) == 1


def test_discard(h):
    p = h.project("demo", SAMPLE)
    h.sh(p, "echo x >> a.txt")
    [cs] = pending(h)
    assert h.run("discard", cwd=p).rc == 3      # nobody answered
    assert pending(h) == [cs]
    assert h.run("discard", "-y", cwd=p).rc == 0
    assert pending(h) == []
    assert h.read(p, "a.txt") == b"one\ntwo\n"


def test_several_sets(h):
    p = h.project("demo", SAMPLE)
    h.sh(p, "echo x >> a.txt")
    h.sh(p, "echo y >> src/b.c")
    r = h.run("apply", cwd=p)
    assert r.rc == 2, r
    one, two = pending(h)
    assert one in r.text + r.errtext and two in r.text + r.errtext, r
    assert h.run("apply", "-c", one).rc == 0
    assert h.run("apply", cwd=p).rc == 0
    assert h.read(p, "a.txt").endswith(b"x\n") and h.read(p, "src/b.c").endswith(b"y\n")


def test_big_file_small_memory(h):
    """2 GiB made in the guest, exported and applied; no process of ours grows."""
    p = h.project("demo", {})
    # mostly a hole: the guest hashes all of it, and emulation is slow at that
    q = h.start(*h.shell_argv(p, ["sh", "-c", "head -c 67108864 /dev/urandom > big; truncate -s 2G big;"
                                  "head -c 67108864 big | sha256sum"], flags=["--apply=auto", "--memory", "1g"]))
    peak = {}
    while q.poll() is None:
        for pid, comm, _ in h.descendants():
            if not comm.startswith("cloche"):
                continue
            try:
                with open(f"/proc/{pid}/status") as f:
                    m = re.search(r"RssAnon:\s+(\d+)", f.read())
            except OSError:
                continue
            if m:
                peak[comm] = max(peak.get(comm, 0), int(m[1]))
        time.sleep(0.2)
    r = h.finish(q)
    assert r.rc == 0, r
    want = r.text.split()[0]
    assert os.path.getsize(os.path.join(p, "big")) == 2 << 30
    got = subprocess.run("head -c 67108864 big | sha256sum", shell=True, cwd=p, capture_output=True,
                         text=True).stdout.split()[0]
    assert got == want
    assert os.stat(os.path.join(p, "big")).st_blocks * 512 < 80 << 20, "holes stay holes"
    assert all(v < 64 * 1024 for v in peak.values()), peak


test_big_file_small_memory.timeout_s = 900


# --- processes that die ------------------------------------------------------------

LIVE = ["sh", "-c", "echo kept > made; sync; echo up; read x; exit 0"]


def start_live(h, p):
    q = h.start(*h.shell_argv(p, LIVE))
    assert q.stdout.readline() == b"up\n"
    time.sleep(7)       # longer than the guest's syncfs
    return q


def recover_made(h, p):
    r = h.run("recover", timeout_s=60)
    assert r.rc == 3 and "demo-" in r.text, r
    sid = re.search(r"demo-\w{6}", r.text)[0]
    r = h.run("recover", sid, *h.accel_flags(), timeout_s=240)
    assert r.rc in (0, 3), r
    r = h.run("apply", cwd=p)
    assert r.rc == 0, r
    assert h.read(p, "made") == b"kept\n"
    h.wait_clean()


def dies(h, name, sig=signal.SIGKILL):
    p = h.project("demo", SAMPLE)
    q = start_live(h, p)
    pid = h.wait_helper(name)
    signal_pid(pid, sig)
    r = h.finish(q, b"\n", timeout_s=120)
    return p, r


def test_qemu_killed(h):
    p, r = dies(h, "qemu-system-x86")
    assert r.rc == 125 and "cloche recover" in r.errtext, r
    h.wait_clean(keep_sandboxes=True)
    recover_made(h, p)


def test_worker_killed(h):
    p, r = dies(h, "cloche-worker")
    assert r.rc == 125 and "cloche recover" in r.errtext, r
    h.wait_clean(keep_sandboxes=True)
    recover_made(h, p)


def test_super_killed(h):
    p, r = dies(h, "cloche-super")
    assert r.rc == 125, r
    h.wait_clean(keep_sandboxes=True)
    recover_made(h, p)


def test_disk_killed(h):
    """Files that were not read yet are lost to the guest; its own work is not."""
    p, r = dies(h, "cloche-disk")
    assert r.rc == 0 and "serves the project" in r.errtext, r
    r = h.run("apply", cwd=p)
    assert h.read(p, "made") == b"kept\n", r
    h.wait_clean()


def test_cli_killed(h):
    """A closed terminal: the sandbox takes the changes out by itself."""
    p = h.project("demo", SAMPLE)
    q = start_live(h, p)
    q.kill()
    q.wait()
    wait_until(lambda: pending(h), 120)
    h.wait_clean(timeout_s=60)
    assert h.run("apply", cwd=p).rc == 0
    assert h.read(p, "made") == b"kept\n"


def test_scan_killed(h):
    p = h.project("demo", {f"d{i}/f{j}": "x" for i in range(60) for j in range(60)})
    q = h.start(*h.shell_argv(p, ["true"]))
    try:
        h.kill_helper("cloche-scan", timeout_s=5)
    except AssertionError:
        pass    # it was faster than we
    r = h.finish(q, timeout_s=120)
    assert r.rc in (0, 125), r
    h.wait_clean()


def test_killed_while_exporting(h):
    """kill -9 of the worker in the middle of the export; then recover finds everything."""
    p = h.project("demo", {})
    q = h.start(*h.shell_argv(p, ["sh", "-c", "for i in $(seq 2000); do echo $i > f$i; done; sync; echo done"]))
    assert q.stdout.readline() == b"done\n"
    pid = h.wait_helper("cloche-worker")
    wait_until(lambda: any(os.listdir(os.path.join(h.sandboxes, s, "staging")) for s in os.listdir(h.sandboxes)), 60, 0.005)
    signal_pid(pid, signal.SIGKILL)
    r = h.finish(q, timeout_s=120)
    if r.rc == 125:
        sid = re.search(r"recover (demo-\w{6})", r.errtext)[1]
        r = h.run("recover", sid, *h.accel_flags(), timeout_s=240)
        assert r.rc in (0, 3), r
    assert h.run("apply", cwd=p).rc == 0
    assert len(os.listdir(p)) == 2000
    h.wait_clean()


def test_recover_of_a_moved_project(h):
    """The work comes back although the project lies elsewhere now."""
    p, r = dies(h, "qemu-system-x86")
    sid = re.search(r"recover (demo-\w{6})", r.errtext)[1]
    os.rename(p, p + "2")
    r = h.run("recover", sid, *h.accel_flags(), timeout_s=240)
    assert r.rc in (0, 3), r
    assert pending(h) == [sid], r
    assert "+kept" in h.run("diff", "-c", sid, cwd=p + "2").text
    h.wait_clean()


def test_apply_to_a_project_cloned_anew(h):
    """Another directory under the path takes nothing by itself, and what it has of the start
    when it is named; an edit of meanwhile is a conflict."""
    p = h.project("demo", {"a.txt": "one\n", "b.txt": "one\n", "d/c.txt": "one\n"})
    r = h.run_shell(p, "sh", "-c", "for f in a.txt b.txt d/c.txt; do echo longer >>$f; done; echo n >n")
    assert r.rc == 0, r
    os.rename(p, p + ".old")
    shutil.copytree(p + ".old", p)
    with open(os.path.join(p, "b.txt"), "a") as f:
        f.write("mine\n")
    r = h.run("apply", cwd=p)
    assert r.rc == 125 and "not the directory that the sandbox saw" in r.errtext and \
        "--to DIR" in r.errtext, r
    r = h.run("review", cwd=p)
    assert r.rc == 125, r
    for home in ("/", os.path.join(p, "a.txt"), os.path.join(p, "none")):
        r = h.run("apply", "--to", home, cwd=p)
        assert r.rc == 125 and "longer" not in h.read(p, "a.txt").decode(), r
    r = h.run("apply", "--to", ".", "c.txt", cwd=os.path.join(p, "d"))
    assert r.rc != 0 and "not an existing" not in r.errtext, r   # DIR is d, and has no d/c.txt
    r = h.run("apply", "--to", "..", "c.txt", cwd=os.path.join(p, "d"))
    assert r.rc == 3 and h.read(p, "d/c.txt") == b"one\nlonger\n", r
    r = h.run("apply", "--to", ".", cwd=p)
    assert r.rc == 3 and "b.txt" in r.text, r
    assert h.read(p, "a.txt") == b"one\nlonger\n" and h.read(p, "n") == b"n\n"
    assert h.read(p, "b.txt") == b"one\nmine\n"
    h.wait_clean()


def test_recover_lists_and_discards(h):
    p, r = dies(h, "qemu-system-x86")
    sid = re.search(r"recover (demo-\w{6})", r.errtext)[1]
    j = assert_valid(h.run("recover", "--json").text, "recover")
    assert [s["id"] for s in j["sandboxes"]] == [sid], j
    # a recovery that fails itself leaves the disk where it was
    r = h.run("recover", sid, "--ready-timeout=1", "--accel=tcg")
    assert r.rc == 125 and sid in r.errtext, r
    assert [s["id"] for s in json.loads(h.run("recover", "--json").text)["sandboxes"]] == [sid]
    assert h.run("recover", sid, "--discard").rc == 0
    assert h.run("recover").rc == 0
    h.wait_clean()


def test_limits_are_named(h):
    """A set beyond a limit is kept on the sandbox's disk, and recover takes more when told so."""
    p = h.project("demo", SAMPLE)
    r = h.run_shell(p, "sh", "-c", "truncate -s 300m big; echo x > small", flags=["--disk=128m"])
    sid = re.search(r"demo-\w{6}", r.errtext)[0]
    assert r.rc == 125 and "bytes in changed files" in r.errtext and str(128 << 20) in r.errtext, r
    assert f"cloche recover {sid} --limit" in r.errtext, r
    for flags, words in ((["--limit=1"], "more than 1 changed names"),
                         (["--limit=200m"], f"more than {200 << 20} bytes in changed files")):
        r = h.run("recover", sid, *flags, *h.accel_flags(), timeout_s=240)
        assert r.rc == 125 and words in r.errtext and "--limit" in r.errtext, (flags, r)
    for wrong in ("0", "8000001", "many", "-1g"):
        assert h.run("recover", sid, "--limit=" + wrong).rc == 2, wrong
    r = h.run("recover", sid, "--limit=8000000", "--limit=1g", *h.accel_flags(), timeout_s=240)
    assert r.rc in (0, 3), r
    assert h.run("apply", cwd=p).rc == 0
    assert h.read(p, "small") == b"x\n" and os.path.getsize(os.path.join(p, "big")) == 300 << 20
    h.wait_clean()
test_limits_are_named.timeout_s = 600


def test_empty_after_a_crash(h):
    """A name may have reached the disk without its content: recovered and empty is suspect."""
    p = h.project("demo", dict(SAMPLE, empty=""))
    q = h.start(*h.shell_argv(p, ["sh", "-c", ": > none; : > a.txt; : > empty; echo x > some; sync; "
                                  "echo up; read x"]))
    assert q.stdout.readline() == b"up\n"
    time.sleep(7)       # longer than the guest's syncfs
    signal_pid(h.wait_helper("qemu-system-x86"), signal.SIGKILL)
    r = h.finish(q, b"\n", timeout_s=120)
    sid = re.search(r"recover (demo-\w{6})", r.errtext)[1]
    r = h.run("recover", sid, *h.accel_flags(), timeout_s=240)
    assert r.errtext.count("empty after a crash") == 2, r
    j = assert_valid(h.run("changes", "--json", cwd=p).text, "review")
    suspect = {c["path"] for c in j["changes"] if "suspect" in c["flags"]}
    assert suspect == {"none", "a.txt"} and j["summary"]["suspect"] == 2, j
    assert h.run("discard", "-y", cwd=p).rc == 0
    r = h.run_shell(p, "sh", "-c", ": > none")      # no crash, no suspicion
    j = json.loads(h.run("changes", "--json", cwd=p).text)
    assert j["summary"]["suspect"] == 0 and len(j["changes"]) == 1, j
    h.wait_clean()


def test_failed_review_is_a_failed_run(h):
    """The command succeeded, what follows did not: that is no success, and the set is kept."""
    p = h.project("demo", SAMPLE)
    q = h.start(*h.shell_argv(p, ["sh", "-c", "echo x > new; echo up; read x"], flags=["--apply=auto"]))
    assert q.stdout.readline() == b"up\n"
    os.rename(p, p + ".old")
    os.mkdir(p)
    r = h.finish(q, b"\n", timeout_s=120)
    assert r.rc == 125 and "not the directory that the sandbox saw" in r.errtext, r
    assert os.listdir(p) == [] and len(pending(h)) == 1
    h.wait_clean()


def test_damaged_sandbox(h):
    """One whose state cannot be read is listed with what can be done about it."""
    state = h.path("state", "cloche")
    h.run("recover")                                    # makes the folders
    d = os.path.join(state, "sandboxes", "demo-aaaaaa")
    os.mkdir(d, 0o700)
    for name, text in (("lock", ""), ("state.json", "{"), ("scratch.img", "x")):
        with open(os.path.join(d, name), "w") as f:
            f.write(text)
    r = h.run("recover")
    assert r.rc == 3 and "demo-aaaaaa" in r.text and "--discard" in r.errtext, r
    [s] = assert_valid(h.run("recover", "--json").text, "recover")["sandboxes"]
    assert s["id"] == "demo-aaaaaa" and s["damaged"] and "state.json" in s["why"], s
    r = h.run("recover", "demo-aaaaaa")
    assert r.rc == 125 and "cannot be brought back" in r.errtext and "--discard" in r.errtext, r
    assert os.path.exists(os.path.join(d, "scratch.img"))
    assert h.run("recover", "demo-aaaaaa", "--discard").rc == 0
    assert not os.path.exists(d)


def test_fifo_at_our_names(h):
    """Configuration and state: a FIFO there is an error, and not a wait for who writes to it."""
    p = h.project("demo", SAMPLE)
    h.run("recover")
    os.makedirs(h.path("config", "cloche"), exist_ok=True)
    config = h.path("config", "cloche", "config.yaml")
    if os.path.exists(config):
        os.unlink(config)
    os.mkfifo(config)
    for argv in (["info", "shell", p], ["recover"], ["run", "shell", p, "--", "true"]):
        r = h.run(*argv, timeout_s=20)
        assert r.rc == 125 and "config.yaml" in r.errtext, (argv, r)
    os.unlink(config)
    d = h.path("state", "cloche", "sandboxes", "demo-aaaaaa")
    os.mkdir(d, 0o700)
    os.mkfifo(os.path.join(d, "state.json"))
    os.mkfifo(os.path.join(d, "lock"))
    assert h.run("recover", timeout_s=20).rc in (0, 3)
    assert h.run("recover", "demo-aaaaaa", timeout_s=20).rc == 125
    shutil.rmtree(d)


def test_words_that_name_nothing(h):
    """Wrong words are wrong wherever one stands, not only where there is a change set."""
    d = h.path("empty")
    os.mkdir(d)
    for verb in ("discard", "review", "changes"):
        r = h.run(verb, "word", cwd=d)
        assert r.rc == 2 and "takes no paths" in r.errtext, (verb, r)
    assert h.run("discard", cwd=d).rc == 125


def test_verbs_without_stdin(h):
    """Every verb ends at once when stdin is closed."""
    p = h.project("demo", SAMPLE)
    h.sh(p, "echo x >> a.txt")
    for argv in (["changes"], ["diff"], ["review"], ["discard"], ["apply", "--json"], ["recover"], ["image", "ls"],
                 ["doctor"], ["info", "shell", *h.accel_flags()], ["version"], ["help"]):
        q = subprocess.Popen([h.cloche, *argv], cwd=p, env=h.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=lambda: os.close(0))
        q.communicate(timeout=60)
        assert q.returncode in (0, 3), (argv, q.returncode)
