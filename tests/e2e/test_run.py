# SPDX-License-Identifier: Apache-2.0
"""`cloche run shell`: commands, streams, exit codes, terminal, what the guest may do."""
import fcntl
import hashlib
import json
import os
import re
import signal
import time

from harness import cmdline, snapshot, tree_changes, wait_until
from schema import assert_valid

SAMPLE = {"a.txt": "one\n", "src/b.c": "int b;\n", "run.sh": ("#!/bin/sh\n", 0o755)}


def test_true_leaves_nothing(h):
    p = h.project("demo", SAMPLE, git=True)
    before = snapshot(p)
    r = h.run_shell(p, "true")
    assert r.rc == 0, r
    assert tree_changes(before, snapshot(p)) == {}
    h.wait_clean()
    assert os.listdir(h.changes) == []


def test_exit_codes(h):
    """Several commands, each in its own sandbox: the code is the command's."""
    p = h.project("demo", SAMPLE)
    for script, want in (("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)):
        r = h.sh(p, script)
        assert r.rc == want, (script, want, r)
    h.wait_clean()


def test_exit_126_127(h):
    p = h.project("demo", {"plain": "no program\n"})
    r = h.run_shell(p, "./plain")
    assert r.rc == 126, r
    r = h.run_shell(p, "no-such-program")
    assert r.rc == 127, r
    h.wait_clean()


def test_stdin_stdout_exact(h):
    """Every byte, both ways, past every buffer: nothing is filtered between pipes."""
    p = h.project("demo", {})
    data = os.urandom(3 * 1024 * 1024 + 17)
    r = h.run_shell(p, "sh", "-c", "tee /tmp/x | sha256sum >&2; cat /tmp/x", input=data)
    assert r.rc == 0, r.errtext
    assert r.out == data
    assert hashlib.sha256(data).hexdigest() in r.errtext


def test_tail_is_not_lost(h):
    p = h.project("demo", {})
    r = h.sh(p, "head -c 1048576 /dev/zero | tr '\\0' x; echo end; exit 7")
    assert r.rc == 7
    assert r.out == b"x" * 1048576 + b"end\n"


def test_stdout_and_stderr_apart(h):
    p = h.project("demo", {})
    r = h.sh(p, "echo out; echo err >&2")
    assert r.text == "out\n"
    assert "err" in r.errtext


def test_argv_is_not_split(h):
    p = h.project("demo", {})
    words = ["a b", "", "$HOME", "*", "it's", 'say "x"', "new\nline", "\u00e4", "-n", "--"]
    r = h.run_shell(p, "printf", "[%s]", *words)
    assert r.text == "".join(f"[{w}]" for w in words), r


def test_environment_and_place(h):
    p = h.project("my project", {})
    r = h.run_shell(p, "sh", "-c", "pwd; id -u; id -g; id -un; echo $HOME; echo $TERM; echo $LANG;"
                    "readlink /workspace; command -v git; umask; touch ~/x && stat -c %U ~ ~/x /work/*",
                    env={"TERM": "xterm-ghostty", "TZ": "Europe/Vienna"})
    lines = r.text.splitlines()
    assert lines[:8] == ["/work/my project", "1000", "1000", "agent", "/home/agent", "xterm-ghostty",
                         "C.UTF-8", "/work/my project"], r
    assert lines[8] == "/usr/bin/git", r
    assert lines[10:] == ["agent", "agent", "agent"], r


def test_forwarded_values(h):
    """What is passed arrives byte for byte, and stands in no argument list, log or message."""
    p = h.project("demo", {})
    log = h.path("t", "my.log")
    value = "one\ntwo 'three' \"four\" $five \x01 s3cret-V4LUE"
    run = h.start("run", "shell", p, *h.accel_flags(), "--log-file", log, "--debug", "--env-forward", "MY_*", "--",
                  "sh", "-c", 'printf "%s" "$MY_VALUE"; echo "|$MY_REF|$OTHER|"; sleep 3',
                  env={"MY_VALUE": value, "MY_REF": "op://s3cret-V4LUE", "OTHER": "x"})
    seen = ""
    while run.poll() is None and "|" not in seen:
        seen += os.read(run.stdout.fileno(), 4096).decode()
    lines = "\n".join(f"{comm}: {cmdline(pid)}" for pid, comm, _ in h.descendants())
    r = h.finish(run)
    assert seen == value + "|||\n", (seen, r)
    assert r.rc == 0 and "qemu" in lines and "cloche-super" in lines, (r, lines)
    assert "s3cret" not in lines, lines
    assert "MY_REF is not passed" in r.errtext and "s3cret" not in r.errtext, r
    assert "s3cret" not in open(log, encoding="utf-8", errors="replace").read()


def test_own_agent(h):
    """A page of YAML is an agent: its command, variables, and what answers its first questions."""
    p = h.project("demo", {})
    os.makedirs(h.path("config", "cloche", "profiles"))
    with open(h.path("config", "cloche", "profiles", "own.yaml"), "w", encoding="utf-8") as f:
        f.write("""name: own
aliases: [mine]
command: [/bin/sh, -c, 'echo "$0|$1|$MODE|$NODE_OPTIONS|$CLOCHE_AGENT_NAME|$(id -u)"; cd; cat .own/state.json .own/c.toml;
  stat -c "%a %U" .own .own/state.json; grep -c . .bashrc']
image: base
env: {pass: [KEY], set: {MODE: 'two
    words'}, heap: [node]}
credentials: {env: [KEY]}
onboarding: [{path: .own/state.json, format: json, merge: {done: true}}, {path: .bashrc, format: yaml, when: always, merge: {a: 1}}]
trust: [{path: .own/c.toml, format: toml, merge: {projects: {'${CLOCHE_WORKSPACE}': {trusted: true}}}}]
""")
    r = h.run("run", "mine", p, *h.accel_flags(), "--memory", "1g", "--", "a b", "c", env={"KEY": "k"})
    lines = r.text.splitlines()
    assert r.rc == 0 and lines[0] == "a b|c|two words|--max-old-space-size=768|own|1000", r
    assert json.loads("".join(lines[1:4])) == {"done": True}, r
    assert lines[4:6] == ['[projects."/work/demo"]', "trusted = true"], r
    assert lines[6:8] == ["755 agent", "600 agent"], r
    assert int(lines[8]) > 10, "what the image has in its home stays"


def test_cwd_follows(h):
    p = h.project("demo", {"sub/dir/x": "x"})
    r = h.run("run", "shell", p, *h.accel_flags(), "--", "pwd", cwd=os.path.join(p, "sub", "dir"))
    assert r.text == "/work/demo/sub/dir\n", r


def test_default_project_is_cwd(h):
    p = h.project("demo", {"x": "x"})
    r = h.run("run", "shell", *h.accel_flags(), "--", "ls", cwd=p)
    assert r.text == "x\n", r


def test_two_projects(h):
    a = h.project("one", {"x": "1"})
    b = h.project("two", {"y": "2"})
    r = h.run("run", "shell", a, b, *h.accel_flags(), "--apply=auto", "--", "sh", "-c",
              "pwd; ls /work /work/one /work/two; echo n > /work/two/new; echo m > /work/one/x")
    assert r.text.split() == ["/work/one", "/work:", "one", "two", "/work/one:", "x", "/work/two:", "y"], r
    assert r.rc == 0, r
    assert h.read(b, "new") == b"n\n" and h.read(a, "x") == b"m\n"


def test_agent_has_no_rights(h):
    p = h.project("demo", {})
    r = h.sh(p, "grep -E 'CapEff|CapBnd|CapPrm|NoNewPrivs|Seccomp:' /proc/self/status;"
             "mount -t tmpfs x /mnt 2>&1; unshare -r true 2>&1; dmesg 2>&1 | head -1;"
             "cat /proc/sys/kernel/kptr_restrict; cat /sys/class/net/*/address 2>&1;"
             "ls -ld /root; touch /usr/x 2>&1; ls /dev/vd* 2>&1; head -c1 /dev/vda 2>&1;"
             "cat /proc/1/environ 2>&1 | head -c 10; ls /work/.. >/dev/null; kill -9 1 2>&1")
    t = r.text
    assert re.search(r"CapEff:\t0+\n", t) and re.search(r"CapBnd:\t0+\n", t), t
    assert "NoNewPrivs:\t1" in t and "Seccomp:\t2" in t, t
    assert "\n2\n" in t, t
    assert t.count("denied") + t.count("not permitted") >= 4, t


def test_no_network(h):
    p = h.project("demo", {})
    r = h.sh(p, "ls /sys/class/net; timeout 5 bash -c 'exec 3<>/dev/tcp/198.51.100.1/80' 2>&1; echo $?")
    assert r.text.split()[0] == "lo" and "eth0" not in r.text, r
    assert r.text.strip().endswith("1"), r


def test_tmp_size_and_disk(h):
    p = h.project("demo", {})
    r = h.run_shell(p, "sh", "-c", "df -m /tmp / | awk 'NR>1{print $2}'; findmnt -no OPTIONS /tmp",
                    flags=["--tmp-size", "64m", "--disk", "2g"])
    tmp, disk, opts = r.text.split()
    assert tmp == "64" and 1700 < int(disk) <= 2048, r
    assert "nosuid" in opts and "nodev" in opts, r


def test_oom_is_said(h):
    p = h.project("demo", {})
    r = h.run_shell(p, "sh", "-c", "dd if=/dev/zero bs=300M count=4 iflag=fullblock | dd of=/dev/null bs=300M iflag=fullblock",
                    flags=["--memory", "512m"])
    assert "out of memory" in r.errtext, r


def test_user_root(h):
    p = h.project("demo", {})
    r = h.run_shell(p, "sh", "-c", "id -u; mknod /tmp/null c 1 3 && echo made", flags=["--user", "root"])
    assert r.text == "0\nmade\n", r
    assert "root" in r.errtext


def test_closed_stdin_and_pipes(h):
    """Every stream may be closed; a reader that leaves ends the writer."""
    p = h.project("demo", {})
    r = h.run_shell(p, "cat")
    assert r.rc == 0 and r.out == b""
    q = h.start(*h.shell_argv(p, ["sh", "-c", "yes; echo $? >&2"]))
    assert q.stdout.read(20) == b"y\n" * 10
    q.stdout.close()
    q.stdout = None
    q.stdin.close()
    q.stdin = None
    q.wait(60)
    h.wait_clean()


# --- a terminal ----------------------------------------------------------------

def pty_shell(h, p, **kw):
    t = h.pty("run", "shell", p, *h.accel_flags(), "--apply=none", **kw)
    t.expect(re.compile(rb"agent@|\$ "), 180)
    return t


def test_interactive_shell(h):
    p = h.project("demo", SAMPLE)
    t = pty_shell(h, p, rows=30, cols=100)
    t.send("stty size; echo m$((6*7))k\r")
    t.expect("30 100")
    t.expect("m42k")
    t.resize(40, 120, quiet=True)
    time.sleep(0.5)
    t.send("stty size\r")
    t.expect("40 120")
    # Ctrl-C ends what runs in the guest, not us
    t.send("sleep 1000\r")
    time.sleep(0.5)
    t.send("\x03")
    t.send("echo alive=$?\r")
    t.expect("alive=130")
    # job control inside
    t.send("sleep 1000\r")
    time.sleep(0.5)
    t.send("\x1a")
    t.expect("Stopped")
    t.send("kill -9 %1; wait; echo do''ne=1\r")
    t.expect("done=1")
    t.send("exit 7\r")
    assert t.wait(120) == 7
    assert t.attrs_restored()
    h.wait_clean()


def test_terminal_sequences(h):
    """24-bit colour and paste mode pass; clipboard, titles and status strings do not; all is undone."""
    p = h.project("demo", {})
    t = h.pty("run", "shell", p, *h.accel_flags(), "--apply=none", "--", "sh", "-c",
              r"printf '\033[38;2;1;2;3mcolour\033[0m\033[?2004hpaste\033[?1049halt';"
              r"printf '\033]52;c;ZXZpbA==\007clip\033]0;title\007\033P$qm\033\\end'; sleep 1")
    assert t.wait(240) == 0
    out = t.out
    assert b"colour" in out and re.search(rb"\x1b\[[0-9;:]*38[;:]2[;:]", out), out
    assert b"\x1b[?2004h" in out
    assert b"\x1b]52" not in out and b"\x1b]0;" not in out and b"\x1bP" not in out, out
    # after the end: paste mode off, alternate screen left
    end = out.rindex(b"end")
    assert b"\x1b[?2004l" in out[end:] and b"\x1b[?1049l" in out[end:], out[end:]
    assert t.attrs_restored()


def test_terminal_restored_after_kill(h):
    """TERM from outside: the guest's command gets it, the terminal is as before."""
    p = h.project("demo", {})
    t = pty_shell(h, p)
    os.kill(t.p.pid, signal.SIGTERM)
    rc = t.wait(120)
    assert rc == 143, rc    # an interactive shell ignores TERM: it is ended after a grace
    assert t.attrs_restored()
    h.wait_clean(timeout_s=60)


def test_sigterm_reaches_the_command(h):
    p = h.project("demo", {})
    q = h.start(*h.shell_argv(p, ["sh", "-c", "trap 'echo got; exit 5' TERM; echo up; while :; do sleep 1; done"]))
    assert q.stdout.readline() == b"up\n"
    q.terminate()
    r = h.finish(q)
    assert r.rc == 5 and r.out == b"got\n", r
    h.wait_clean()


def test_interrupt_during_boot(h):
    p = h.project("demo", {})
    q = h.start(*h.shell_argv(p, ["true"]))
    h.wait_helper("cloche-worker", of=q.pid)
    q.send_signal(signal.SIGINT)
    r = h.finish(q, timeout_s=60)
    assert r.rc != 0, r
    h.wait_clean(timeout_s=30)


# --- the command line ------------------------------------------------------------

def test_refusals(h):
    """Words that cannot be right: a clear message, the right code, and at once."""
    p = h.project("demo", SAMPLE)
    home = h.path("home")
    cases = [
        (["run"], 2, "which agent"),
        (["run", "shel"], 125, "did you mean shell? known agents: claude-code, "),
        (["run", "shell@x", p], 125, "named sessions"),
        (["run", "shell", p + "/a.txt"], 2, "after --"),
        (["run", "shell", "no-such-dir"], 2, "after --"),
        (["run", "shell", p, "--acel", "tcg"], 2, "did you mean --accel"),
        (["run", "shell", p, "--cpus", "0"], 2, "whole number"),
        (["run", "shell", p, "--cpus", "2x"], 2, "whole number"),
        (["run", "shell", p, "--memory", "-1"], 2, "size"),
        (["run", "shell", p, "--memory", "12"], 2, "size"),
        (["run", "shell", p, "--pull", "sometimes"], 2, "--pull"),
        (["run", "shell", p, "--no-image-cache", "--pull", "never"], 2, "contradict"),
        (["run", "shell", p, "--review", "--apply", "auto"], 2, "contradict"),
        (["run", "shell", p, "--workspace-mode", "direct"], 125, "direct mode"),
        (["run", "shell", home], 125, "--allow-home"),
        (["run", "shell", "/"], 125, "--allow-home"),
        (["run", "shell", p, p], 125, "named twice"),
        (["frobnicate"], 2, "unknown command"),
        (["chnages"], 2, "did you mean cloche changes"),
        (["apply", "-c", "../../x"], 125, ""),
    ]
    for argv, rc, text in cases:
        t0 = time.monotonic()
        r = h.run(*argv, timeout_s=30)
        assert r.rc == rc and text in r.errtext and not r.out, (argv, rc, text, r)
        assert time.monotonic() - t0 < 10, argv
        assert "usage:" not in r.errtext, r
        assert r.errtext.startswith("cloche: "), r


def test_refusals_in_a_removed_directory(h):
    """No agent's words are at fault when the directory that one stands in is gone."""
    gone = h.path("gone")
    script = f'mkdir {gone} && cd {gone} && rmdir {gone} && exec {h.cloche} "$@"'
    for argv in (["run", "shell", "--", "true"], ["info", "shell"]):
        r = h.run("-c", script, "sh", *argv, program="/bin/sh", timeout_s=30)
        assert r.rc == 2 and "directory was removed" in r.errtext and "after --" not in r.errtext, (argv, r)


def test_help_and_version(h):
    r = h.run("help")
    assert r.rc == 0 and "usage: cloche" in r.text and not r.errtext, r
    r = h.run("run", "--help")
    assert r.rc == 0 and "--memory" in r.text, r
    r = h.run("--version")
    assert re.match(r"cloche \d+\.\d+\.\d+ \(.+\)\n", r.text), r
    assert h.run("version").text == r.text
    assert h.run().rc == 2


def test_accel_auto_never_emulates(h):
    if h.accel != "tcg":
        return
    p = h.project("demo", {})
    r = h.run("run", "shell", p, "--", "true", timeout_s=60)
    assert r.rc == 125 and "--accel tcg" in r.errtext and "kvm" in r.errtext, r
    h.wait_clean()


def test_emulation_is_said(h):
    if h.accel != "tcg":
        return
    p = h.project("demo", {})
    r = h.run_shell(p, "true")
    assert "EMULATED" in r.errtext, r


def test_older_spellings(h):
    """Options under the names that they have elsewhere mean the same."""
    p = h.project("demo", {"a": "1"})
    same = ["info", "shell", p, "--network=isolated", "--json", *h.accel_flags()]
    old = h.run(*same, "--egress-profile", "locked", "--pull", "if-not-present", "--review")
    new = h.run(*same, "--egress", "locked", "--pull", "missing", "--apply", "ask")
    assert old.rc == new.rc == 0, (old, new)
    assert json.loads(old.text) == json.loads(new.text)


def test_info_starts_nothing(h):
    p = h.project("demo", {**SAMPLE, ".env": "K=1\n"}, git=True)
    r = h.run("info", "shell", p, *h.accel_flags(), "--memory", "1g")
    assert r.rc == 0, r
    for want in ("microVM", "/work/demo", "offline", "hidden", "1.0 GiB", "none"):
        assert want in r.text, (want, r)
    assert not os.path.exists(h.sandboxes) or os.listdir(h.sandboxes) == []
    j = assert_valid(h.run("info", "shell", p, *h.accel_flags(), "--json").text, "info")
    assert j["network"] == "offline" and j["projects"][0]["name"] == "demo", j
    assert j["resources"]["vcpus"] == 2 and j["credentials"] == [], j


def test_doctor(h):
    r = h.run("doctor")
    assert r.rc in (0, 3), r
    j = assert_valid(h.run("doctor", "--json").text, "doctor")
    assert_valid(h.run("image", "ls", "--json").text, "images")
    assert j["can_run"] in ("microvm", "emulation"), j
    names = {c["check"] for c in j["checks"]}
    assert {"host", "kvm", "cage", "cloche-net", "cloche-relay", "cloche-switch", "cloche-keeper",
            "qemu-system-x86_64"} <= names, names
    assert "seccomp" in j["cage"], j


def test_log_and_timings(h):
    p = h.project("demo", {})
    log = h.path("t", "my.log")
    r = h.run_shell(p, "true", flags=["--log-file", log, "--debug", "--timings", "--trace", h.path("t", "tr")])
    assert r.rc == 0, r
    assert os.stat(log).st_mode & 0o777 == 0o600
    text = open(log).read()
    assert "cloche-super" in text and "guest kernel" in text, text
    first = os.stat(log).st_size
    assert "guest ready" in r.errtext and "first byte" not in r.text, r
    assert json.load(open(h.path("t", "tr")))["guest_kernel_ns"] > 0
    h.run_shell(p, "true", flags=["--log-file", log])
    assert os.stat(log).st_size < first * 2      # truncated, not appended
    for n in os.listdir(h.path("t")):
        os.unlink(h.path("t", n))
    # without the flag: in the state folder, and named when something fails
    logs = h.path("state", "cloche", "logs")
    h.run_shell(p, "true")
    assert all(os.stat(os.path.join(logs, n)).st_mode & 0o777 == 0o600 for n in os.listdir(logs))


def test_twenty_at_once(h):
    p = h.project("demo", SAMPLE)
    runs = [h.start(*h.shell_argv(p, ["sh", "-c", f"echo {i} > f{i}; cat f{i}"],
                                  flags=["--memory", "256m", "--cpus", "1", "--ready-timeout", "900"]))
            for i in range(20)]
    for i, q in enumerate(runs):
        r = h.finish(q, timeout_s=900)
        assert r.rc == 0 and r.text == f"{i}\n", (i, r)
    h.wait_clean(timeout_s=60)
    assert len(os.listdir(h.changes)) == 20


test_twenty_at_once.timeout_s = 1200
test_twenty_at_once.alone = True


def test_ordinary_user(h):
    """The whole way as a user without any rights."""
    h.as_user()
    p = h.project("demo", SAMPLE, git=True)
    r = h.run_shell(p, "sh", "-c", "echo more >> a.txt; id -u", flags=["--apply=auto"])
    assert r.rc == 0 and r.text.startswith("1000\n"), r
    assert h.read(p, "a.txt") == b"one\nmore\n"
    h.wait_clean()


def test_exec_keep_and_sweep(h):
    """--exec replaces the command; --keep keeps the folder; only what is dead and empty is swept."""
    p = h.project("demo", {})

    def folder(name, phase, lock=True):
        d = os.path.join(h.sandboxes, name)
        os.makedirs(d, 0o700)
        with open(os.path.join(d, "state.json"), "w") as f:
            json.dump({"schema": 1, "id": name, "agent": "shell", "phase": phase, "created_s": 1,
                       "projects": [{"name": "demo", "path": p}], "failure": ""}, f)
        if lock:
            open(os.path.join(d, "lock"), "w").close()
        return d

    os.makedirs(h.sandboxes, 0o700)
    dead = folder("dead-aaaaaa", "starting")
    work = folder("work-aaaaaa", "running")
    foreign = folder("else-aaaaaa", "starting", lock=False)
    alive = folder("live-aaaaaa", "starting")
    with open(os.path.join(alive, "lock")) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        r = h.run_shell(p, "-c", "echo exec $0 $1", "a", "b", flags=["--exec", "/bin/sh", "--keep"])
        assert r.text == "exec a b\n", r
        assert [os.path.isdir(d) for d in (dead, work, foreign, alive)] == [False, True, True, True]
        kept = [n for n in os.listdir(h.sandboxes) if n.startswith("demo-")]
        assert len(kept) == 1 and os.path.exists(os.path.join(h.sandboxes, kept[0], "scratch.img"))
        h.run_shell(p, "true")
        assert [n for n in os.listdir(h.sandboxes) if n.startswith("demo-")] == kept


def test_crash_is_explained(h):
    p = h.project("demo", {})
    r = h.sh(p, "kill -SEGV $$")
    assert r.rc == 139 and "crashed (segmentation fault)" in r.errtext, r


def test_no_home(h):
    """Without a place for state nothing is made anywhere."""
    p = h.project("demo", {})
    for argv in (["run", "shell", p, "--accel", "tcg", "--", "true"], ["changes"], ["recover"]):
        r = h.run(*argv, env={"HOME": None, "XDG_STATE_HOME": None, "XDG_CONFIG_HOME": None,
                              "XDG_CACHE_HOME": None}, timeout_s=30)
        assert r.rc == 125 and "HOME is not set" in r.errtext, (argv, r)


def test_config_file(h):
    p = h.project("demo", {})
    with open(h.path("config", "cloche", "config.yaml"), "w") as f:
        f.write("network: {mode: offline}\nvm:\n  accel: tcg\n  cpus: 1\n  memory: 512m\nworkspace:\n  exclude: ['*.o']\n")
    h.write(p, "x.o", "o")
    h.write(p, "x.c", "c")
    r = h.run("run", "shell", p, "--memory", "768m", "--", "sh", "-c",
              "nproc; ls; awk '/MemTotal/{print ($2 > 600000)}' /proc/meminfo")
    assert r.text == "1\nx.c\n1\n", r      # a flag beats the file
    with open(h.path("config", "cloche", "config.yaml"), "a") as f:
        f.write("review:\n  aply: auto\n")
    r = h.run("run", "shell", p, "--", "true")
    assert r.rc == 125 and "config.yaml:9:" in r.errtext and "apply" in r.errtext, r


def test_repository_file(h):
    """.cloche.yaml: what it may tighten holds in the guest, what it may not does not."""
    p = h.project("demo", {"a.c": "x\n", "b.key1": "x\n"})
    h.write(p, ".cloche.yaml", "vm: {cpus: 1, memory: 512m}\nworkspace: {exclude: ['*.key1']}\n"
            "agents: {shell: {command: [sh, -c, 'echo evil']}}\n")
    r = h.sh(p, "nproc; ls; awk '/MemTotal/{print ($2 < 600000)}' /proc/meminfo")
    assert r.text == "1\na.c\n1\n", r
    assert "vm.cpus 1 (applied)" in r.errtext and "agents ... (ignored: " in r.errtext, r


def test_state_is_private(h):
    p = h.project("demo", {})
    h.sh(p, "echo x > y")
    for top, dirs, files in os.walk(h.path("state", "cloche")):
        assert os.stat(top).st_mode & 0o077 == 0, top
        for f in files:
            assert os.stat(os.path.join(top, f)).st_mode & 0o077 == 0, (top, f)
    wait_until(lambda: not os.listdir(h.sandboxes))
