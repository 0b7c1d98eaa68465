# SPDX-License-Identifier: Apache-2.0
"""What a test needs to run the built `cloche` from outside. Standard library only.

One test is one process with one Harness. The process is a subreaper: whatever a
run leaves behind becomes its descendant, so "nothing is left" and "kill that
helper" look at our own descendants and never at the machine's other processes.

    def test_edit(h):
        p = h.project("demo", {"a.txt": "one\n"})
        r = h.run_shell(p, "sh", "-c", "echo two >a.txt", flags=["--apply=auto"])
        assert r.rc == 0, r
        assert h.read(p, "a.txt") == b"two\n"
        h.wait_clean()

Environment: CLOCHE_TEST_CACHE (images, default BUILD/test-cache), CLOCHE_TEST_TMP
(scratch, default /tmp), CLOCHE_TEST_KEEP=1 (leave the scratch folder),
CLOCHE_TEST_ACCEL (kvm or tcg; asked of `cloche doctor` otherwise),
CLOCHE_TEST_USER (the ordinary user of root's test runs).
"""
import collections
import ctypes
import fcntl
import hashlib
import os
import pty
import pwd
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time

os.umask(0o022)            # that of users differs, and modes are compared

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PR_SET_CHILD_SUBREAPER = 36
DEFAULT_TIMEOUT_S = 180
IMAGE_TIMEOUT_S = 1500


class Skip(Exception):
    """This test cannot say anything on this machine; the text says why."""


Result = collections.namedtuple("Result", "rc out err")
Result.text = property(lambda self: self.out.decode(errors="backslashreplace"))
Result.errtext = property(lambda self: self.err.decode(errors="backslashreplace"))


def wait_until(what, timeout_s=15.0, step_s=0.05):
    """Call what() until it is true; its last value. AssertionError when it never is."""
    end = time.monotonic() + timeout_s
    while True:
        got = what()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not so after {timeout_s} s: {getattr(what, '__name__', what)}")
        time.sleep(step_s)


# --- processes ---------------------------------------------------------------

def proc_stat(pid):
    """(comm, state, ppid, start time) of a process, or None once it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            text = f.read()
    except OSError:
        return None
    left, right = text.index(b"("), text.rindex(b")")
    rest = text[right + 2:].split()
    return text[left + 1:right].decode(errors="replace"), rest[0].decode(), int(rest[1]), int(rest[19])


def descendants(root_pid):
    """Living descendants, oldest first: [(pid, comm, ppid)]. Zombies are not living."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            st = proc_stat(int(name))
            if st:
                table[int(name)] = st
    kids = collections.defaultdict(list)
    for pid, st in table.items():
        kids[st[2]].append(pid)
    out, todo = [], [root_pid]
    while todo:
        for k in kids[todo.pop()]:
            todo.append(k)
            if table[k][1] not in "ZX":
                out.append((table[k][3], k, table[k][0], table[k][2]))
    return [(pid, comm, ppid) for _, pid, comm, ppid in sorted(out)]


def signal_pid(pid, sig):
    """Signal exactly that process, through a pidfd."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(fd, sig)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


# --- trees -------------------------------------------------------------------

def snapshot(path, mtime=True):
    """Everything below path: {name: (kind, mode, mtime in ns, size or text, hash)}."""
    out = {}

    def visit(full, rel):
        st = os.lstat(full)
        when = st.st_mtime_ns if mtime and not stat.S_ISDIR(st.st_mode) else None
        mode = stat.S_IMODE(st.st_mode)
        if stat.S_ISLNK(st.st_mode):
            out[rel] = ("link", None, None, os.readlink(full), None)
        elif stat.S_ISREG(st.st_mode):
            h = hashlib.sha256()
            with open(full, "rb") as f:
                for block in iter(lambda: f.read(1 << 20), b""):
                    h.update(block)
            out[rel] = ("file", mode, when, st.st_size, h.hexdigest())
        elif stat.S_ISDIR(st.st_mode):
            out[rel] = ("dir", mode, None, None, None)
            for n in os.listdir(full):
                visit(os.path.join(full, n), os.path.join(rel, n) if rel != b"." else n)
        else:
            out[rel] = ("special", mode, None, stat.S_IFMT(st.st_mode), None)

    visit(os.fsencode(path), b".")
    return out


def tree_changes(before, after):
    """{name: "added" | "deleted" | "changed FIELDS"} between two snapshots."""
    out = {}
    fields = ("kind", "mode", "mtime", "size", "content")
    for name in before.keys() | after.keys():
        if name not in after:
            out[name] = "deleted"
        elif name not in before:
            out[name] = "added"
        elif before[name] != after[name]:
            diff = [f for f, a, b in zip(fields, before[name], after[name]) if a != b]
            out[name] = "changed " + ",".join(diff)
    return out


# --- terminals ---------------------------------------------------------------

class Screen:
    """A terminal small enough to read: text, cursor movement, erase, alternate screen."""

    def __init__(self, rows=24, cols=80):
        self.rows, self.cols = rows, cols
        self.cells = self._blank()
        self.other = None
        self.r = self.c = 0
        self.modes = set()
        self.pending = b""

    def _blank(self):
        return [[" "] * self.cols for _ in range(self.rows)]

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def text(self):
        return "\n".join(self.lines()).rstrip()

    def _scroll(self):
        self.cells.pop(0)
        self.cells.append([" "] * self.cols)

    def _put(self, ch):
        if self.c >= self.cols:
            self.c = 0
            self._down()
        self.cells[self.r][self.c] = ch
        self.c += 1

    def _down(self):
        if self.r == self.rows - 1:
            self._scroll()
        else:
            self.r += 1

    SEQUENCE = re.compile(
        rb"\x1b(?:\[([?<=>]?)([\d;:]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\"
        rb"|[()][0-9A-Za-z]|[ -/]?[0-~])")

    def feed(self, data):
        data = self.pending + data
        self.pending = b""
        i = 0
        while i < len(data):
            b = data[i]
            if b == 0x1b:
                m = self.SEQUENCE.match(data, i)
                if not m or (m.end() == i + 2 and data[i + 1:i + 2] in b"[]P"):
                    if len(data) - i < 256:
                        self.pending = data[i:]
                        return
                    i += 1
                    continue
                if m[3]:
                    self._csi(m[1], m[2], m[3])
                i = m.end()
            elif b == 13:
                self.c = 0
                i += 1
            elif b == 10:
                self._down()
                i += 1
            elif b == 8:
                self.c = max(0, self.c - 1)
                i += 1
            elif b == 9:
                self.c = min(self.cols - 1, (self.c // 8 + 1) * 8)
                i += 1
            elif b < 32:
                i += 1
            else:
                n = 1 if b < 0x80 else 2 if b < 0xe0 else 3 if b < 0xf0 else 4
                if i + n > len(data):
                    self.pending = data[i:]
                    return
                self._put(data[i:i + n].decode(errors="replace")[0])
                i += n

    def _csi(self, private, params, final):
        nums = [int(x) if x.isdigit() else 0 for x in params.decode().replace(":", ";").split(";")]
        n = max(1, nums[0])
        f = final.decode()
        if f in "hl" and private == b"?":
            for m in nums:
                (self.modes.add if f == "h" else self.modes.discard)(m)
                if m in (47, 1047, 1049):
                    if f == "h":
                        self.other, self.cells = self.cells, self._blank()
                    elif self.other:
                        self.cells, self.other = self.other, None
        elif private:
            return
        elif f == "A":
            self.r = max(0, self.r - n)
        elif f == "B":
            self.r = min(self.rows - 1, self.r + n)
        elif f == "C":
            self.c = min(self.cols - 1, self.c + n)
        elif f == "D":
            self.c = max(0, self.c - n)
        elif f == "G":
            self.c = min(self.cols - 1, n - 1)
        elif f == "d":
            self.r = min(self.rows - 1, n - 1)
        elif f in "Hf":
            self.r = min(self.rows - 1, n - 1)
            self.c = min(self.cols - 1, max(1, nums[1] if len(nums) > 1 else 1) - 1)
        elif f == "K":
            a, z = {0: (self.c, self.cols), 1: (0, self.c + 1), 2: (0, self.cols)}.get(nums[0], (0, 0))
            self.cells[self.r][a:min(z, self.cols)] = [" "] * (min(z, self.cols) - a)
        elif f == "J":
            if nums[0] == 2 or nums[0] == 3:
                self.cells = self._blank()
            elif nums[0] == 0:
                self.cells[self.r][self.c:] = [" "] * (self.cols - self.c)
                for r in range(self.r + 1, self.rows):
                    self.cells[r] = [" "] * self.cols


class Pty:
    """A program on a terminal of its own. `out` is every byte it wrote."""

    def __init__(self, argv, env, cwd, rows=24, cols=80, preexec=None):
        self.master, slave = pty.openpty()
        self.slave_name = os.ttyname(slave)
        self.resize(rows, cols, quiet=True)
        self.attrs_before = termios.tcgetattr(slave)
        self.screen = Screen(rows, cols)
        self.out = b""
        self.seen = 0           # expect() looks from here on
        self.rc = None

        def setup():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if preexec:
                preexec()

        self.p = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd,
                                  preexec_fn=setup, close_fds=True)
        self.slave = slave      # kept, to compare its settings at the end

    def resize(self, rows, cols, quiet=False):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if not quiet:
            self.screen = Screen(rows, cols)

    def send(self, data, timeout_s=30):
        """Types data; reads what comes back meanwhile, so neither side blocks."""
        data = data.encode() if isinstance(data, str) else data
        end = time.monotonic() + timeout_s
        while data:
            r, w, _ = select.select([self.master], [self.master], [], max(0, end - time.monotonic()))
            if r:
                self._read()
            if w:
                data = data[os.write(self.master, data[:1024]):]
            if not r and not w:
                raise AssertionError(f"cannot type: {len(data)} bytes left after {timeout_s} s")

    def _read(self):
        try:
            got = os.read(self.master, 65536)
        except OSError:         # EIO: nobody has the terminal open any more
            got = b""
        self.out += got
        self.screen.feed(got)
        return got

    def pump(self, seconds):
        """Read for so long, whatever comes."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0] and not self._read():
                time.sleep(min(left, 0.05))

    def expect(self, what, timeout_s=60):
        """Wait for bytes, text or a compiled pattern after the last match; the match."""
        pattern = what if isinstance(what, re.Pattern) else \
            re.compile(re.escape(what.encode() if isinstance(what, str) else what))
        end = time.monotonic() + timeout_s
        while True:
            m = pattern.search(self.out, self.seen)
            if m:
                self.seen = m.end()
                return m
            left = end - time.monotonic()
            dead = self.p.poll() is not None
            if left <= 0 or (dead and not select.select([self.master], [], [], 0.2)[0]):
                raise AssertionError(f"{what!r} did not come"
                                     f"{' before the end' if dead else f' in {timeout_s} s'}; after: "
                                     f"{self.out[self.seen:][-3000:]!r}")
            if select.select([self.master], [], [], min(left, 0.5))[0]:
                self._read()

    def wait(self, timeout_s=60):
        """Its exit status, once it has ended; reads all that is left."""
        end = time.monotonic() + timeout_s
        while self.p.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"no end in {timeout_s} s; last output {self.out[-2000:]!r}")
            if select.select([self.master], [], [], 0.05)[0]:
                self._read()
        while select.select([self.master], [], [], 0.1)[0] and self._read():
            pass
        self.rc = self.p.returncode
        return self.rc

    def attrs_restored(self):
        """The terminal's settings are those from before."""
        return termios.tcgetattr(self.slave) == self.attrs_before

    def close(self):
        for fd in (self.master, self.slave):
            try:
                os.close(fd)
            except OSError:
                pass


# --- the harness -------------------------------------------------------------

class Harness:
    def __init__(self, build=None, name="test"):
        self.build = os.path.abspath(build or os.path.join(ROOT, "build"))
        self.cache = os.path.abspath(os.environ.get("CLOCHE_TEST_CACHE") or
                                     os.path.join(self.build, "test-cache"))
        self.tmp = tempfile.mkdtemp(prefix="ct-", dir=os.environ.get("CLOCHE_TEST_TMP", "/tmp"))
        os.chmod(self.tmp, 0o755)
        self.name = name
        self.user = None        # or a pwd entry: see as_user()
        self.bin = os.path.join(self.build, "bin")
        self.ptys, self.procs = [], []
        self.prefix = []        # words before every command: netlab's namespaces
        self.keep = set()       # pids that a test has on purpose
        self.closers = []       # called by close(), last first
        self._accel = None
        self._mounts_before = self._mounts()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        for d in ("home", "config", "state", "data", "run", "t"):
            os.mkdir(os.path.join(self.tmp, d), 0o700)
        # no network where a test does not ask for one: it costs a second of each boot, and the
        # user's package tools would be asked for their registries
        os.mkdir(self.path("config", "cloche"), 0o700)
        with open(self.path("config", "cloche", "config.yaml"), "w") as f:
            f.write("network: {mode: offline}\n")

    # -- where and who

    @property
    def cloche(self):
        path = os.path.join(self.bin, "cloche")
        if not os.path.exists(path):
            raise AssertionError(f"{path} is not built")
        return path

    def path(self, *parts):
        return os.path.join(self.tmp, *parts)

    @property
    def sandboxes(self):
        return self.path("state", "cloche", "sandboxes")

    @property
    def changes(self):
        return self.path("state", "cloche", "changes")

    def as_user(self):
        """From here on run as an ordinary user. As root: a system user who owns nothing."""
        if os.getuid() != 0:
            return
        try:
            self.user = pwd.getpwnam(os.environ.get("CLOCHE_TEST_USER", "games"))
        except KeyError as e:
            raise Skip(f"no ordinary user to run as: {e}") from None
        # neither the build folder nor root's cache need be readable for that user
        self.bin = self.path("bin")
        shutil.copytree(os.path.join(self.build, "bin"), self.bin,
                        ignore=shutil.ignore_patterns("*.p"))
        cache = self.path("cache")
        if os.path.isdir(self.cache):
            subprocess.run(["cp", "-a", "--reflink=auto", self.cache, cache], check=True)
        else:
            os.mkdir(cache)
        self.cache = cache
        for top in ("home", "config", "state", "data", "run", "t", "cache"):
            subprocess.run(["chown", "-hR", f"{self.user.pw_uid}:{self.user.pw_gid}",
                            self.path(top)], check=True)

    def give(self, path):
        """Make a path of the test the running user's own."""
        if self.user:
            subprocess.run(["chown", "-hR", f"{self.user.pw_uid}:{self.user.pw_gid}", path], check=True)

    def env(self, **more):
        e = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": self.path("home"), "LANG": "C.UTF-8", "TERM": "xterm-256color",
            "TMPDIR": self.path("t"), "XDG_CACHE_HOME": self.cache,
            "XDG_CONFIG_HOME": self.path("config"), "XDG_STATE_HOME": self.path("state"),
            "XDG_DATA_HOME": self.path("data"), "XDG_RUNTIME_DIR": self.path("run"),
        }
        for k in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "http_proxy", "https_proxy", "no_proxy"):
            if k in os.environ:
                e[k] = os.environ[k]
        e.update(more)
        return {k: v for k, v in e.items() if v is not None}

    def _preexec(self):
        """For Popen: signals as a shell in the foreground gives them, and the chosen user."""
        user = self.user

        def prepare():
            for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(s, signal.SIG_DFL)    # a background job has ignored the first two
            if user:
                os.setgroups([])
                os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
                os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        return prepare

    # -- the accelerator

    @property
    def accel(self):
        """"kvm" or "tcg": what this machine can do, as `cloche doctor` says."""
        if not self._accel:
            self._accel = os.environ.get("CLOCHE_TEST_ACCEL")
        if not self._accel:
            r = self.run("doctor", timeout_s=60)
            assert r.rc in (0, 3), f"no VM can run here: {r}"
            self._accel = "kvm" if r.rc == 0 else "tcg"
        return self._accel

    def accel_flags(self):
        return ["--accel", "tcg"] if self.accel == "tcg" else []

    def shell_argv(self, project, argv, flags=()):
        """Arguments of `cloche` for a command in a sandbox."""
        dirs = [project] if isinstance(project, str) else list(project or [])
        return ["run", "shell", *dirs, *self.accel_flags(), *flags] + (["--", *argv] if argv else [])

    # -- running

    def start(self, *args, cwd=None, env=None, stdin=subprocess.PIPE, program=None, **popen):
        """`cloche ARGS` in the background, on pipes. Ended by close()."""
        p = subprocess.Popen([*self.prefix, program or self.cloche, *args], cwd=cwd or self.tmp,
                             env=self.env(**(env or {})), stdin=stdin, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, start_new_session=True,
                             preexec_fn=self._preexec(), **popen)
        self.procs.append(p)
        return p

    def finish(self, p, input=None, timeout_s=DEFAULT_TIMEOUT_S):
        """Its Result. AssertionError with the output so far when it does not end."""
        try:
            out, err = p.communicate(input, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            tree = self.tree()
            self.kill_all()
            out, err = p.communicate(timeout=20)
            raise AssertionError(f"no end after {timeout_s} s\nout: {out[-3000:]!r}\nerr: {err[-3000:]!r}\n"
                                 f"{tree}") from None
        finally:
            if p.poll() is not None and p in self.procs:
                self.procs.remove(p)
        return Result(p.returncode if p.returncode >= 0 else 128 - p.returncode, out, err)

    def run(self, *args, input=None, timeout_s=DEFAULT_TIMEOUT_S, **kw):
        """`cloche ARGS` to its end. Without input, stdin is empty."""
        if input is None:
            kw.setdefault("stdin", subprocess.DEVNULL)
        elif isinstance(input, str):
            input = input.encode()
        return self.finish(self.start(*args, **kw), input, timeout_s)

    def run_shell(self, project, *argv, flags=(), **kw):
        """`cloche run shell PROJECT FLAGS -- ARGV` to its end."""
        return self.run(*self.shell_argv(project, argv, flags), **kw)

    def sh(self, project, script, flags=(), **kw):
        """A shell script in a sandbox."""
        return self.run_shell(project, "sh", "-c", script, flags=flags, **kw)

    def pty(self, *args, cwd=None, env=None, rows=24, cols=80, program=None):
        """`cloche ARGS` on a terminal."""
        t = Pty([*self.prefix, program or self.cloche, *args], self.env(**(env or {})), cwd or self.tmp, rows, cols,
                self._preexec())
        self.ptys.append(t)
        return t

    # -- projects

    def project(self, name, files=None, git=False):
        """A folder with these files: text or bytes; None: a folder; ("link", text);
        (content, mode). With git=True everything is committed."""
        top = self.path("p", name)
        os.makedirs(top)
        for rel, what in (files or {}).items():
            self.write(top, rel, what)
        if git:
            self.git(top, "init", "-q", "-b", "main")
            self.git(top, "add", "-A")
            self.git(top, "commit", "-q", "--allow-empty", "-m", "start")
        self.give(self.path("p"))
        return top

    def write(self, top, rel, what):
        full = os.path.join(os.fsencode(top), os.fsencode(rel))
        mode = None
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if isinstance(what, tuple) and what[0] == "link":
            os.symlink(what[1], full)
            return
        if isinstance(what, tuple):
            what, mode = what
        if what is None:
            os.makedirs(full, exist_ok=True)
        else:
            with open(full, "wb") as f:
                f.write(what.encode() if isinstance(what, str) else what)
        if mode is not None:
            os.chmod(full, mode)

    def read(self, top, rel):
        with open(os.path.join(os.fsencode(top), os.fsencode(rel)), "rb") as f:
            return f.read()

    def git(self, top, *args, check=True):
        env = {"PATH": "/usr/bin:/bin", "HOME": self.path("home"), "GIT_CONFIG_NOSYSTEM": "1",
               "GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "test@example.com",
               "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.com",
               "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        p = subprocess.run(["git", "-C", top, *args], env=env, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, errors="backslashreplace")
        if check and p.returncode != 0:
            raise AssertionError(f"git {args}: {p.stderr}")
        return p.stdout

    # -- helpers of a run

    def descendants(self):
        return descendants(os.getpid())

    def tree(self):
        return "\n".join(f"    {pid} (of {ppid}) {comm}: {cmdline(pid)[:160]}"
                         for pid, comm, ppid in self.descendants())

    def helpers(self, name, of=None):
        """Pids of our own descendants (below pid `of`) with that name, oldest first."""
        return [pid for pid, comm, _ in descendants(of or os.getpid()) if comm == name[:15]]

    def wait_helper(self, name, of=None, timeout_s=60):
        """The pid of the oldest helper of that name, once there is one."""
        def there():
            return self.helpers(name, of)
        try:
            return wait_until(there, timeout_s)[0]
        except AssertionError:
            raise AssertionError(f"no {name} in {timeout_s} s; there are:\n{self.tree()}") from None

    def kill_helper(self, name, sig=signal.SIGKILL, of=None, timeout_s=60):
        """Kill the oldest helper of that name of ours; its pid."""
        pid = self.wait_helper(name, of, timeout_s)
        signal_pid(pid, sig)
        return pid

    def _reap(self):
        """Collect what was reparented to us; never what a Popen waits for."""
        mine = {p.pid for p in self.procs} | {t.p.pid for t in self.ptys}
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in mine:
                continue
            st = proc_stat(int(name))
            if st and st[2] == os.getpid() and st[1] == "Z":
                try:
                    os.waitpid(int(name), os.WNOHANG)
                except ChildProcessError:
                    pass

    @staticmethod
    def _mounts():
        with open("/proc/self/mountinfo", "rb") as f:
            return {line.split(b" ")[4] for line in f}

    def leftovers(self, keep_sandboxes=False):
        """What a finished run must not leave: a list of lines, empty when all is well."""
        self._reap()
        out = [f"process {pid} {comm}: {cmdline(pid)[:160]}" for pid, comm, _ in self.descendants()
               if pid not in self.keep]
        # mounts of other tests come and go; ours lie below our scratch folder
        tmp = os.fsencode(self.tmp)
        out += [f"mount {m.decode()}" for m in self._mounts() - self._mounts_before if m.startswith(tmp)]
        if not keep_sandboxes and os.path.isdir(self.sandboxes):
            out += [f"sandbox {n}" for n in os.listdir(self.sandboxes)]
        for d in (self.path("run", "cloche"), self.path("t")):
            if os.path.isdir(d):
                out += [f"file {os.path.join(d, n)}" for n in os.listdir(d)
                        if not n.endswith(".lock") and n != "switch.sock"]
        return out

    def wait_clean(self, timeout_s=15, keep_sandboxes=False):
        """Nothing of any run is left: no process, mount, sandbox or socket."""
        end = time.monotonic() + timeout_s
        while left := self.leftovers(keep_sandboxes):
            if time.monotonic() > end:
                raise AssertionError(f"left behind after {timeout_s} s:\n  " + "\n  ".join(left))
            time.sleep(0.1)

    def kill_all(self):
        """Every descendant of this test, young ones first, until none is left."""
        for _ in range(50):
            kids = self.descendants()
            if not kids:
                return
            for pid, _, _ in reversed(kids):
                signal_pid(pid, signal.SIGKILL)
            time.sleep(0.02)
            self._reap()
            for p in self.procs + [t.p for t in self.ptys]:
                p.poll()

    def close(self):
        while self.closers:
            self.closers.pop()()
        self.kill_all()
        for t in self.ptys:
            t.close()
        if os.environ.get("CLOCHE_TEST_KEEP"):
            print(f"kept: {self.tmp}")
            return

        def unlock(_fn, path, _exc):    # folders without permissions
            try:
                if path != self.tmp:    # what holds ours is everybody's: /tmp
                    os.chmod(os.path.dirname(path), 0o700)
                os.chmod(path, 0o700, follow_symlinks=True)
                os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
            except OSError:
                pass
        shutil.rmtree(self.tmp, onerror=unlock)
        shutil.rmtree(self.tmp, ignore_errors=True)


def prepare(build):
    """Before the first test: the accelerator, and the base image in the shared cache."""
    if os.environ.get("CLOCHE_TEST_NO_PREPARE"):
        return
    h = Harness(build, "prepare")
    try:
        os.environ["CLOCHE_TEST_ACCEL"] = h.accel
        print(f"tests run with {h.accel}; images in {h.cache}", flush=True)
        os.makedirs(h.cache, exist_ok=True)
        r = h.run("image", "build", "base", timeout_s=IMAGE_TIMEOUT_S)
        assert r.rc == 0, f"image build base: exit {r.rc}\n{r.text[-3000:]}\n{r.errtext[-3000:]}"
    finally:
        h.close()
