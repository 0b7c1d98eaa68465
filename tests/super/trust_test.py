# SPDX-License-Identifier: Apache-2.0
"""The monitor against a worker that was taken over: trust_test.py BIN REVIEW_TOOL [NAME...]

cloche-super, cloche-scan and cloche-disk are the real ones; cloche-worker is this file, and
what stands for QEMU sleeps. The worker stages a forged change set and says that it is complete.
"""
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "review")]
import box  # noqa: E402
from box import Box, Guest  # noqa: E402

ID = "demo-aaaaaa"
LINK = struct.Struct("<IiIIQ96s512s384s")   # super/link.h
RUNNING, STAGED, OFF = 2, 3, 6
OK, SCANNED = 32, 33
BIN = None


# --- the worker --------------------------------------------------------------

def worker(conf):
    """Runs as cloche-worker, with the descriptors that the monitor gives it."""
    mon = socket.socket(fileno=13)

    def say(kind, code=0, name=b""):
        mon.send(LINK.pack(kind, code, 1, 0, 0, name, b"", b""))

    def wait(kind):
        while True:
            got = LINK.unpack(mon.recv(LINK.size))
            if got[0] == kind:
                return got[1]

    with open(conf["started"], "a") as f:
        f.write("x")
    wait(SCANNED)
    say(RUNNING)
    wait(OK)
    if conf["edit"]:
        with open(conf["edit"], "w") as f:
            f.write("the user's own\n")
    box.TOOL = conf["tool"]
    with Box("demo") as x:
        x.project = conf["forge"]
        x.make(Guest().file("a.txt", "from the guest\n"), id=ID, sandbox="another", created=5)
        forged = os.path.join(x.changes, ID)
        for name, text in (("applied", b"x" * 100), ("journal", b"junk"), ("lock", b""),
                           ("origin", b"mine")):
            with open(os.path.join(forged, name), "wb") as f:
                f.write(text)
        shutil.copytree(forged, f"/proc/self/fd/14/{ID}", symlinks=True)
    held = os.open(ID, os.O_RDONLY | os.O_DIRECTORY, dir_fd=14)
    files = {n: os.open(n, os.O_RDWR, dir_fd=held) for n in ("index", "base", "meta.json", "manifest")}
    say(STAGED, 7, conf["name"].encode())
    with open(conf["answer"], "w") as f:
        f.write(str(wait(OK)))
    # what it still holds must lead nowhere
    for fd in files.values():
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"forged again", 0)
    for name in ("meta.json", "manifest", "journal"):
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=held)
        os.write(fd, b"forged again")
        os.close(fd)
    say(OFF)


# --- the test's side ---------------------------------------------------------

class World:
    def __init__(self, edit=False, forge=None, name=ID):
        self.top = tempfile.mkdtemp(prefix="cloche-trust-")
        self.bin = os.path.join(self.top, "bin")
        self.project = os.path.join(self.top, "mine", "demo")
        self.victim = os.path.join(self.top, "victim", "demo")
        for d in (self.project, self.victim):
            os.makedirs(d)
            with open(os.path.join(d, "a.txt"), "w") as f:
                f.write("old\n")
        os.mkdir(self.bin)
        for n in ("cloche", "cloche-super", "cloche-scan", "cloche-disk"):
            shutil.copy(os.path.join(BIN, n), self.bin)
        # QEMU, too: what it would read as its kernel is kept
        self.program("cloche-cage", f"#!{sys.executable}\nimport os, shutil, sys, time\n"
                     "path = sys.argv[sys.argv.index('-kernel') + 1]\n"
                     "assert ['--ro', path] == sys.argv[(i := sys.argv.index(path)) - 1:i + 1]\n"
                     f"os.path.isfile(path) and shutil.copy(path, {self.top + '/seen'!r})\n"
                     f"open({self.top + '/path'!r}, 'w').write(path)\ntime.sleep(60)\n")
        self.conf = {"tool": box.TOOL, "answer": os.path.join(self.top, "answer"),
                     "started": os.path.join(self.top, "started"),
                     "forge": getattr(self, forge) if forge else self.victim,
                     "name": name,
                     "edit": os.path.join(self.project, "a.txt") if edit else None}
        self.program("cloche-worker", f"#!{sys.executable}\nimport sys\n"
                     f"sys.dont_write_bytecode = True\nsys.path[:0] = [{HERE!r}]\n"
                     f"import trust_test\ntrust_test.worker({self.conf!r})\n")
        self.env = dict(os.environ, HOME=self.top, XDG_STATE_HOME=self.top + "/state",
                        XDG_CACHE_HOME=self.top + "/cache", XDG_CONFIG_HOME=self.top + "/config",
                        XDG_RUNTIME_DIR=self.top + "/run")
        for n in ("state", "cache", "config", "run"):
            os.mkdir(os.path.join(self.top, n), 0o700)
        self.state = os.path.join(self.top, "state", "cloche")
        self.set = os.path.join(self.state, "changes", ID)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.top, ignore_errors=True)

    def program(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755)

    def run(self, *args, project=None, kernel=None):
        """cloche-super to its end. Its last words: (type, code, id, text)."""
        fd = os.open(project or self.project, os.O_RDONLY | os.O_DIRECTORY)
        null = os.open("/dev/null", os.O_RDONLY)
        rd, wr = os.pipe()
        log = os.open(os.path.join(self.top, "log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        subprocess.run(
            [os.path.join(self.bin, "cloche-super"), "--id", ID, "--agent", "shell",
             "--project", f"{fd}:demo:{self.project}", "--kernel",
             str(null if kernel is None else kernel), "--initrd", str(null), "--rootfs", str(null), "--memory", "128", "--cpus", "1",
             "--disk", str(64 << 20), "--tmp", "1048576", "--accel", "tcg", "--ready-ms", "60000",
             "--report", str(wr), "--log", str(log), "--keep", *args],
            env=self.env, pass_fds=[fd, wr, log, null] + ([kernel] if kernel is not None else []), timeout=100, check=False)
        os.close(wr)
        b = b""
        while len(b) < LINK.size:
            got = os.read(rd, LINK.size)
            if not got:
                break
            b += got
        for n in (fd, null, rd, log):
            os.close(n)
        kind, code, _, _, _, name, text, _ = LINK.unpack(b)
        return kind, code, name.rstrip(b"\0").decode(), text.rstrip(b"\0").decode()

    def cloche(self, *args):
        return subprocess.run([os.path.join(self.bin, "cloche"), *args], env=self.env, cwd=self.top,
                              capture_output=True, timeout=60)

    def log(self):
        with open(os.path.join(self.top, "log")) as f:
            return f.read()

    def answer(self):
        with open(self.conf["answer"]) as f:
            return int(f.read())

    def starts(self):
        return os.path.getsize(self.conf["started"]) if os.path.exists(self.conf["started"]) else 0

    def text(self, which):
        with open(os.path.join(getattr(self, which), "a.txt")) as f:
            return f.read()

    def meta(self):
        with open(os.path.join(self.set, "meta.json")) as f:
            return json.load(f)

    def sandbox(self, name=""):
        return os.path.join(self.state, "sandboxes", ID, name)

    def check_set(self):
        """Ours in all that a worker has no say in."""
        assert os.listdir(os.path.join(self.state, "changes")) == [ID]
        assert sorted(os.listdir(self.set)) == ["base", "blobs", "index", "manifest", "meta.json",
                                                "status"], os.listdir(self.set)
        m, st = self.meta(), os.stat(self.project)
        [p] = m["projects"]
        assert bytes.fromhex(p["path_hex"]).decode() == self.project, p
        assert (p["dev"], p["ino"]) == (st.st_dev, st.st_ino), p
        assert (m["id"], m["sandbox"], m["agent"]) == (ID, ID, "shell") and m["created"] > 5, m
        with open(self.sandbox("manifest"), "rb") as f, \
                open(os.path.join(self.set, "manifest"), "rb") as g:
            assert f.read() == g.read()
        for n in os.listdir(self.set):
            assert os.stat(os.path.join(self.set, n)).st_uid == os.geteuid(), n


def test_another_directory():
    """A forged set names another project: what is applied goes to the one of the run."""
    with World() as w:
        kind, _, name, text = w.run()
        assert kind == STAGED and name == ID, (kind, name, text, w.log())
        assert w.answer() == 0
        w.check_set()
        assert w.meta()["exit_status"] == 7
        r = w.cloche("apply", "-c", ID)
        assert r.returncode == 0, r
        assert w.text("project") == "from the guest\n" and w.text("victim") == "old\n"


def test_another_name():
    """The name of the set is the sandbox's, whatever the worker says."""
    with World(name="other-bbbbbb") as w:
        kind, _, name, _ = w.run()
        assert kind == STAGED and name == ID, w.log()
        w.check_set()


def test_another_baseline():
    """The user edits a file while the sandbox runs; the forged baseline says it was so at the start."""
    with World(edit=True, forge="project") as w:
        kind, _, _, text = w.run()
        assert kind == STAGED, (text, w.log())
        w.check_set()
        r = w.cloche("apply", "-c", ID)
        assert r.returncode == 3 and b"conflict" in r.stdout, r
        assert w.text("project") == "the user's own\n"


def test_baseline_is_what_was_recorded():
    """A manifest that is not the one of meta.json is refused."""
    with World() as w:
        w.run()
        path = os.path.join(w.set, "manifest")
        with open(path, "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)
            f.seek(-1, 2)
            f.write(bytes([last[0] ^ 1]))
        r = w.cloche("apply", "-c", ID)
        assert r.returncode == 125 and b"baseline is not the one" in r.stderr, r
        assert w.text("project") == "old\n"


def test_cut_off_while_publishing():
    """recover: the contents went with a half-made set, so they are taken out again; and a set
    that was published before its sandbox knew it is not made twice."""
    with World() as w:
        kind, _, _, _ = w.run()
        assert kind == STAGED and w.starts() == 1
        os.unlink(w.sandbox("keep"))
        kind, _, name, text = w.run("--recover")
        assert (kind, name) == (STAGED, ID) and w.starts() == 1, (kind, name, text, w.log())
        w.check_set()
        shutil.rmtree(w.set)        # as if the rename had not been reached
        os.makedirs(w.sandbox(f"staging/{ID}"), exist_ok=True)
        shutil.rmtree(w.sandbox(f"staging/{ID}/blobs"), ignore_errors=True)
        # what is at the project's path by now is not what the sandbox saw
        kind, _, name, text = w.run("--recover", project=w.victim)
        assert (kind, name) == (STAGED, ID) and w.starts() == 2, (kind, name, text, w.log())
        w.check_set()


def test_staged_before_the_end():
    """A set that was complete when all died is published without a machine."""
    with World() as w:
        w.run()
        staging = w.sandbox(f"staging/{ID}")
        shutil.rmtree(staging, ignore_errors=True)
        shutil.copytree(w.set, staging)
        shutil.rmtree(w.set)
        kind, _, name, text = w.run("--recover")
        assert (kind, name) == (STAGED, ID) and w.starts() == 1, (kind, name, text, w.log())
        w.check_set()
        assert w.meta()["exit_status"] == -1


def test_image_that_was_replaced():
    """The kernel that is booted is the one that the run opened, whatever has its path by then."""
    for case in ("link", "gone", "elsewhere", "elsewhere, gone"):
        where = tempfile.mkdtemp(dir="/dev/shm" if "elsewhere" in case else None)
        with World() as w:
            try:
                if "elsewhere" in case and os.stat(where).st_dev == os.stat(w.top).st_dev:
                    continue
                path = os.path.join(where, "kernel")
                with open(path, "w") as f:
                    f.write("the one that was opened")
                fd = os.open(path, os.O_RDONLY)
                if case == "link":      # as an image that was exchanged and is not removed yet
                    os.rename(path, path + ".old")
                if case != "elsewhere":
                    with open(path + ".new", "w") as f:
                        f.write("another")
                    os.rename(path + ".new", path)
                kind, _, _, text = w.run(kernel=fd)
                os.close(fd)
                assert kind == STAGED, (case, text, w.log())
                with open(os.path.join(w.top, "seen")) as f:
                    assert f.read() == "the one that was opened", case
                with open(os.path.join(w.top, "path")) as f:
                    assert (f.read() == path) == (case == "elsewhere"), case
            finally:
                shutil.rmtree(where)


def test_the_directory_that_was_checked():
    """What is scanned and served is the directory that was opened, not what has its path by now."""
    with World(forge="victim") as w:
        fd = os.open(w.project, os.O_RDONLY | os.O_DIRECTORY)
        ino = os.fstat(fd).st_ino
        with open(os.path.join(w.project, "only-here"), "w") as f:
            f.write("x")
        os.rename(w.project, w.project + ".old")
        os.rename(w.victim, w.project)
        shutil.copytree(w.project, w.victim)        # for the forger
        kind, _, _, text = w.run(project=f"/proc/self/fd/{fd}")
        os.close(fd)
        assert kind == STAGED, (text, w.log())
        assert w.meta()["projects"][0]["ino"] == ino != os.stat(w.project).st_ino
        with open(w.sandbox("manifest"), "rb") as f:
            assert b"only-here" in f.read()
        r = w.cloche("apply", "-c", ID)
        assert r.returncode == 125 and b"not the directory that the sandbox saw" in r.stderr, r
        assert w.text("project") == "old\n"


def test_not_files():
    """What is no regular file, or no folder, is not taken, and nothing gets a name."""
    for name in ("index", "blobs"):
        with World() as w:
            path = os.path.join(w.bin, "cloche-worker")
            with open(path) as f:
                text = f.read()
            # the forger's copy, then a FIFO or a link in its place
            w.program("cloche-worker", text.replace("trust_test.worker(", f"""
import os, shutil
real = shutil.copytree
def copytree(a, b, *more, **kw):
    real(a, b, *more, **kw)
    p = os.path.join(b, {name!r})
    if not os.path.exists(p):   # it calls itself for a folder
        return
    (os.unlink if {name!r} == "index" else shutil.rmtree)(p)
    os.mkfifo(p) if {name!r} == "index" else os.symlink({w.victim!r}, p)
shutil.copytree = copytree
trust_test.worker("""))
            said = w.run()
            assert os.path.exists(w.conf["answer"]) and w.answer() < 0, (said, w.log())
            assert os.listdir(os.path.join(w.state, "changes")) == [], name
            assert os.path.isfile(os.path.join(w.victim, "a.txt"))
            assert stat.S_ISREG(os.stat(w.sandbox("scratch.img")).st_mode)


def main():
    global BIN
    BIN, box.TOOL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    names = sys.argv[3:]
    failed = 0
    for name, fn in list(globals().items()):
        if not name.startswith("test_") or (names and name not in names):
            continue
        try:
            fn()
            print(f"ok {name}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
