# SPDX-License-Identifier: Apache-2.0
"""cloche-worker alone, with this program as everybody it talks to: guest, QEMU,
cloche-disk, monitor and client, and cloche-relay when it has a network. By default each of them behaves; a test bends one.

    w = Worker(h)
    w.until(lambda: w.up)
    w.exec()
    ...
    w.end(refused="broke the control protocol")

Standard library only; nothing here calls the C code.
"""
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time

import wire
from wire import CONTROL, CREDIT, DATA, EOF, ERR, IN, OUT, RESET

EXPORT = 255                    # channel
RSS_MAX = 64 << 20
CAGE_UID = 64990                # as root, whom the worker becomes

# link.h
LINK = struct.Struct("<IiIIQ96s512s384s")
BOOTED, RUNNING, STAGED, UNCHANGED, FAILED, OFF = range(1, 7)
OK, SCANNED, SPAWNED, BROKEN, DISK_GONE, END, NOTE = range(32, 39)

# ctl.h
C_ARGS, C_EXEC, C_RESIZE, C_SIGNAL, C_FINISH = range(1, 6)
C_PHASE, C_UP, C_STARTED, C_EXITED, C_NOTE, C_STAGED, C_FAILED = range(64, 71)

# disk.h
D_READY, D_HASH, D_READ, D_FREEZE, D_STATS, D_SHUTDOWN = range(1, 7)
D_READY_DONE, D_HASH_DONE, D_READ_DONE, D_FREEZE_DONE, D_STATS_DONE, D_CHANGED = range(0x101, 0x107)

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""},
                    "capabilities": []}}


def link(kind, code=0, records=0, size=0, ident=b"", text=b"", hint=b""):
    return LINK.pack(kind, code, records, 0, size, ident, text, hint)


def s32(b):
    return struct.pack("<I", len(b)) + b


def ctl_exec(channel=1, flags=0, cwd=b"/work"):
    return struct.pack("<HHHHI", C_EXEC, channel, 24, 80, flags) + s32(cwd)


def ctl_args(words, is_env=0):
    return struct.pack("<HBI", C_ARGS, is_env, len(words)) + b"".join(s32(x) for x in words)


def ctl_finish(status=0):
    return struct.pack("<Hi", C_FINISH, status)


# ---- guest messages ----

def ready(version=1, kernel="6.1.0", init_ns=10**9, ready_ns=2 * 10**9):
    return wire.message("READY", 0, struct.pack("<I", version), wire.s16(kernel),
                        struct.pack("<QQ", init_ns, ready_ns))


def done(ref, code=0, text=""):
    return wire.message("DONE", 0, struct.pack("<II", ref, code), wire.s16(text))


def exited(channel=1, code=0, by_signal=0, oom=0):
    return wire.message("EXITED", 0, struct.pack("<HBBB", channel, by_signal, code, oom))


def oom(name="sh"):
    return wire.message("OOM", 0, wire.s16(name))


def log(text="hello", level=2):
    return wire.message("LOG", 0, bytes([level]), wire.s16(text))


# ---- change stream ----

def rec(kind, body=b""):
    return struct.pack("<BI", kind, len(body)) + body


def s8(b):
    b = b.encode() if isinstance(b, str) else b
    return bytes([len(b)]) + b


def c_dir(name, flags=0, mode=0o755, mtime=0):
    return rec(wire.C_DIR, struct.pack("<BHq", flags, mode, mtime) + s8(name))


def c_up():
    return rec(wire.C_UP)


def c_file(name, content=b"", flags=0, mode=0o644, mtime=0, size=None, hash=None):
    return rec(wire.C_FILE, struct.pack("<BHqQ", flags, mode, mtime,
                                        len(content) if size is None else size) +
               (wire.hash_bytes(content) if hash is None else hash) + s8(name))


def c_link(name, text, mtime=0):
    return rec(wire.C_LINK, struct.pack("<q", mtime) + s8(name) + wire.s16(text))


def c_whiteout(name):
    return rec(wire.C_WHITEOUT, s8(name))


def c_special(name, mode=0o10644):
    return rec(wire.C_SPECIAL, struct.pack("<I", mode) + s8(name))


def c_end(n):
    return rec(wire.C_END, struct.pack("<I", n))


def c_blob(ordinal, size):
    return rec(wire.C_BLOB, struct.pack("<IQ", ordinal, size))


def c_extent(offset, b):
    return rec(wire.C_EXTENT, struct.pack("<Q", offset) + b)


def blob(ordinal, content):
    return c_blob(ordinal, len(content)) + (c_extent(0, content) if content else b"") + \
        rec(wire.C_BLOB_END)


BLOBS_END = rec(wire.C_BLOBS_END)


class Side:
    def __init__(self, sock, packets=False):
        self.sock, self.packets = sock, packets
        sock.setblocking(False)
        self.queue = [] if packets else bytearray()
        self.buf = bytearray()
        self.open, self.reading = True, True

    def send(self, b):
        if self.packets:
            self.queue.append(b)
        else:
            self.queue += b

    def close(self):
        if self.open:
            self.open = False
            self.sock.close()

    def flush(self):
        try:
            while self.open and self.queue:
                if self.packets:
                    self.sock.send(self.queue[0])
                    del self.queue[0]
                else:
                    del self.queue[:self.sock.send(self.queue[:1 << 18])]
        except BlockingIOError:
            pass
        except OSError:
            self.queue.clear()


class Worker:
    """The process and its five peers. Hooks (on_guest, on_ctl, on_disk, on_qmp) get each
    message first and return True when they dealt with it."""

    def __init__(self, h, manifest=None, client=True, relay=False, auto_exit=True, scanned=True, args=(),
                 ready_ms=4000, silence_ms=800, scratch=1 << 30, budget=None, **hooks):
        self.h, self.hooks = h, hooks
        self.auto_exit, self.budget = auto_exit, budget
        self.dir = os.path.join(h.tmp, f"w{time.monotonic_ns()}")
        os.mkdir(self.dir, 0o711)
        self.staging = os.path.join(self.dir, "staging")
        os.mkdir(self.staging, 0o700)
        if os.getuid() == 0:
            os.chown(self.staging, CAGE_UID, CAGE_UID)
        self.sides, theirs = {}, {}
        names = ["guest", "qmp", "disk", "mon"] + ["client"] * client + ["relay"] * relay
        for n in names:
            packets = n in ("disk", "mon", "relay")
            a, b = socket.socketpair(socket.AF_UNIX,
                                     socket.SOCK_SEQPACKET if packets else socket.SOCK_STREAM)
            self.sides[n], theirs[n] = Side(a, packets), b
        fds = [theirs[n].fileno() for n in names]
        staging_fd = os.open(self.staging, os.O_RDONLY | os.O_DIRECTORY)
        manifest_fd = os.open(manifest or h.manifest, os.O_RDONLY)
        self.log_path = os.path.join(self.dir, "log")
        log_fd = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        argv = [os.path.join(h.bin, "cloche-worker"), f"--guest={fds[0]}", f"--qmp={fds[1]}",
                f"--disk={fds[2]}", f"--monitor={fds[3]}", f"--staging={staging_fd}",
                f"--manifest={manifest_fd}", f"--log={log_fd}", "--sandbox", "demo-aaaaaa",
                "--layer", "base", "--project", "demo",
                f"--content={scratch}", f"--ready-ms={ready_ms}", f"--silence-ms={silence_ms}", *args]
        if client:
            argv.append(f"--client={theirs['client'].fileno()}")
        if relay:
            argv += [f"--relay={theirs['relay'].fileno()}", "--net=10.87.255.2", "--net-test"]
        if os.getuid() == 0:
            argv.append(f"--uid={CAGE_UID}")
        self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE,
                                  pass_fds=[*fds, staging_fd, manifest_fd, log_fd])
        self.pidfd = os.pidfd_open(self.p.pid)
        os.set_blocking(self.p.stderr.fileno(), False)
        for s in theirs.values():
            s.close()
        for fd in (staging_fd, manifest_fd, log_fd):
            os.close(fd)
        self.host_msgs, self.host_seq = [], {}
        self.ctl, self.links, self.disk_msgs, self.qmp_cmds = [], [], [], []
        self.windows, self.guest_frames, self.client_out = {}, [], {}
        self.want = []
        self.up = self.staged = self.off = False
        self.failed = self.client_failed = None
        self.rss, self.rss_at = 0, 0
        self.sent = 0
        if "qmp" not in hooks:
            self.sides["qmp"].send(json.dumps(GREETING).encode() + b"\r\n")
        self.sides["mon"].send(link(SPAWNED))
        if scanned:
            self.sides["disk"].send(struct.pack("<HHi", D_READY_DONE, 0, 0))

    # sending

    def guest(self, b):
        """Bytes of the guest, up to the budget: then it is gone."""
        s = self.sides["guest"]
        if self.budget is not None:
            b = b[:max(0, self.budget - self.sent)]
        s.send(b)
        self.sent += len(b)
        if self.budget is not None and self.sent >= self.budget:
            s.flush()
            s.close()

    def msg(self, b):
        self.guest(wire.frame(CONTROL, 0, 0, b))

    def data(self, b, channel=EXPORT, stream=OUT, chunk=30000):
        for at in range(0, len(b), chunk):
            self.guest(wire.frame(DATA, channel, stream, b[at:at + chunk]))

    def say(self, b):
        """A message of the client."""
        self.sides["client"].send(wire.frame(CONTROL, 0, 0, b))

    def client(self, *a):
        self.sides["client"].send(wire.frame(*a))

    def disk(self, kind, *parts):
        self.sides["disk"].send(struct.pack("<HH", kind, 0) + b"".join(parts))

    def hash_done(self, entry, status=0, digest=bytes(32)):
        self.disk(D_HASH_DONE, struct.pack("<Ii", entry, status), digest)

    # the loop

    def look(self):
        now = time.monotonic()
        if now < self.rss_at:
            return
        self.rss_at = now + 0.02
        try:
            with open(f"/proc/{self.p.pid}/status") as f:
                for line in f:
                    if line.startswith("RssAnon:"):
                        self.rss = max(self.rss, int(line.split()[1]) << 10)
        except OSError:
            pass

    def turn(self, timeout_s):
        live = [s for s in self.sides.values() if s.open]
        r = [s.sock for s in live if s.reading]
        wr = [s.sock for s in live if s.queue]
        if self.p.returncode is None:
            r.append(self.pidfd)
        r, wr, _ = select.select(r, wr, [], timeout_s)
        if self.pidfd in r and len(r) == 1:
            self.p.wait()
        self.look()
        for name, s in self.sides.items():
            if not s.open:
                continue
            if s.sock in wr:
                s.flush()
            if s.sock in r:
                try:
                    b = s.sock.recv(1 << 18)
                except (BlockingIOError, ConnectionResetError):
                    continue    # it left bytes of ours unread: its own come next
                except OSError:
                    b = b""
                if not b:
                    s.close()
                elif s.packets:
                    getattr(self, "_" + name)(b)
                else:
                    s.buf += b
                    getattr(self, "_" + name)(s)

    def until(self, what, timeout_s=15, why=""):
        end = time.monotonic() + timeout_s
        while not what():
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not within {timeout_s} s: {why}\n{self.describe()}")
            if self.p.poll() is not None and not any(s.open for s in self.sides.values()):
                if what():
                    return
                raise AssertionError(f"the worker is gone ({self.p.returncode}): {why}\n{self.describe()}")
            self.turn(min(left, 0.05))

    def describe(self):
        with open(self.log_path, errors="replace") as f:
            return f"{f.read()[-3000:]}\nlinks {[x[0] for x in self.links]} ctl {[x[0] for x in self.ctl][-20:]}"

    def _hook(self, name, *a):
        f = self.hooks.get(name)
        return f is not None and f(self, *a)

    @staticmethod
    def _frames(s):
        at, out = 0, []
        view = bytes(s.buf)
        while True:
            f = wire.parse_frame(view[at:at + 12 + wire.PAYLOAD_MAX])
            if f is None:
                break
            at += f[4]
            out.append(f[:4])
        del s.buf[:at]
        return out

    def _guest(self, s):
        for kind, stream, channel, payload in self._frames(s):
            if kind != CONTROL:
                self.guest_frames.append((kind, stream, channel, payload))
                if kind == RESET and stream == OUT and channel != EXPORT:
                    self.guest(wire.frame(RESET, channel, stream))
                self._hook("on_frame", kind, stream, channel, payload)
                continue
            t, seq = struct.unpack_from("<HI", payload)
            name = wire.NAME[t]
            self.host_msgs.append((name, seq, payload[6:]))
            self.host_seq[name] = seq
            if not self._hook("on_guest", name, seq, payload[6:]):
                self.behave(name, seq, payload[6:])

    def behave(self, name, seq, body):
        """What an honest guest does."""
        if name == "HELLO":
            self.msg(ready())
        if name == "EXPORT":
            self.data(self.hooks.get("index", c_end(0)))
        if name == "WANT":
            flags, n = struct.unpack_from("<IH", body)
            self.want += [struct.unpack_from("<II", body, 6 + 8 * i) for i in range(n)]
            if flags & 1:
                for first, count in self.want:
                    for o in range(first, first + count):
                        self.data(blob(o, self.hooks["blobs"][o]))
                self.data(BLOBS_END)
                self.guest(wire.frame(EOF, EXPORT, OUT))
        self.msg(done(seq))
        if name == "EXEC" and self.auto_exit:
            ch = struct.unpack_from("<H", body)[0]
            self.guest(wire.frame(DATA, ch, OUT, b"hello\n") + wire.frame(EOF, ch, OUT) +
                       wire.frame(EOF, ch, ERR))
            self.msg(exited(ch))
        if name == "POWEROFF":
            s = self.sides["guest"]
            s.flush()
            s.close()

    def _client(self, s):
        for kind, stream, channel, payload in self._frames(s):
            if kind == DATA:
                self.client_out[channel, stream] = self.client_out.get((channel, stream), 0) + len(payload)
                self._hook("on_client_data", channel, stream, payload)
                continue
            if kind == RESET:
                self.client(RESET, channel, stream)
                continue
            if kind != CONTROL:
                continue
            t = struct.unpack_from("<H", payload)[0]
            self.ctl.append((t, payload[2:]))
            if t == C_UP:
                self.up = True
            if t == C_FAILED:
                n = struct.unpack_from("<I", payload, 6)[0]
                self.client_failed = payload[10:10 + n].decode(errors="backslashreplace")
            if self._hook("on_ctl", t, payload[2:]):
                continue
            if t == C_EXITED and self.auto_exit:
                self.say(ctl_finish(0))

    def _mon(self, b):
        m = LINK.unpack(b)
        self.links.append(m)
        if m[0] == FAILED and self.failed is None:
            self.failed = m[6].split(b"\0")[0].decode(errors="backslashreplace")
        if m[0] == STAGED:
            self.staged = True
        if m[0] == OFF:
            self.off = True
        if self._hook("on_link", m):
            return
        if m[0] in (RUNNING, STAGED):
            self.sides["mon"].send(link(OK))

    def _relay(self, b):
        raise AssertionError(f"a word to the relay: {b!r}")

    def forward(self, port=8080, fds=None, message=None):
        """cloche-relay hands a connection over: its client's end."""
        with socket.create_server(("127.0.0.1", 0)) as s:
            c = socket.create_connection(s.getsockname())
            served = s.accept()[0]
        if message is None:
            message = struct.pack("<HIH", 64, 0, port)
        self.sides["relay"].sock.setblocking(True)
        socket.send_fds(self.sides["relay"].sock, [message], [served.fileno()] if fds is None else fds)
        self.sides["relay"].sock.setblocking(False)
        served.close()
        c.setblocking(False)
        return c

    def _disk(self, b):
        t = struct.unpack_from("<H", b)[0]
        self.disk_msgs.append(b)
        if self._hook("on_disk", t, b):
            return
        if t == D_HASH:
            self.hash_done(struct.unpack_from("<I", b, 4)[0])

    def _qmp(self, s):
        while (at := s.buf.find(b"\n")) >= 0:
            line = bytes(s.buf[:at])
            del s.buf[:at + 1]
            c = json.loads(line)
            self.qmp_cmds.append(c)
            if not self._hook("qmp", c):
                s.send(json.dumps({"return": {}, "id": c["id"]}).encode() + b"\r\n")

    # ways through a session

    def exec(self, channel=1):
        self.until(lambda: self.up, why="up")
        self.say(ctl_args([b"sh"]) )
        self.say(ctl_exec(channel))

    def to(self, stage):
        """Bring it to BOOT, SETUP, UP, RUN, EXPORT, PUBLISH or OFF and stay there."""
        hold = {"BOOT": "HELLO", "SETUP": "MOUNT_WORK", "EXPORT": "EXPORT", "OFF": "POWEROFF"}.get(stage)
        seen = []

        def on_guest(_w, name, _seq, _body):
            if name == hold:
                seen.append(name)
                return True
            return False

        def on_link(_w, m):
            return stage == "PUBLISH" and m[0] == STAGED

        self.hooks.setdefault("on_guest", on_guest)
        self.hooks.setdefault("on_link", on_link)
        if stage == "RUN":
            self.auto_exit = False
        if stage in ("BOOT", "SETUP"):
            self.until(lambda: seen, why=stage)
            return self
        self.until(lambda: self.up, why="up")
        if stage == "UP":
            return self
        self.exec()
        if stage == "RUN":
            self.until(lambda: any(t == C_STARTED for t, _ in self.ctl), why="started")
        elif stage == "PUBLISH":
            self.until(lambda: self.staged, why="staged")
        else:
            self.until(lambda: seen, why=stage)
        return self

    def end(self, refused=None, good=False, timeout_s=12, client_told=None):
        """It ends by itself, in order. refused: a part of the reason; good: a set was staged."""
        t0 = time.monotonic()
        while self.p.poll() is None:
            if time.monotonic() - t0 > timeout_s:
                self.p.send_signal(signal.SIGKILL)
                self.p.wait()
                raise AssertionError(f"hangs for {timeout_s} s\n{self.describe()}")
            self.turn(0.02)
        while any(s.open and s.reading for n, s in self.sides.items() if n in ("mon", "client")):
            self.turn(0.05)
            for s in self.sides.values():
                s.queue.clear()
        err = self.p.stderr.read() or b""
        self.close()
        what = self.describe()
        assert self.p.returncode in (0, 1), f"exit {self.p.returncode}: {err!r}\n{what}"
        assert not err, f"{err!r}\n{what}"
        assert self.rss < RSS_MAX, f"{self.rss >> 20} MiB\n{what}"
        left = os.listdir(self.staging)
        if good:
            assert left == ["demo-aaaaaa"] and self.staged, (left, what)
            assert sum(m[0] == STAGED for m in self.links) == 1, what
        else:
            assert left == [], (left, what)
            assert not self.staged, what
        if refused is not None:
            assert self.failed is not None and refused in self.failed, (refused, self.failed, what)
            assert all(c.isprintable() for c in self.failed), self.failed
            if client_told is None:
                client_told = "client" in self.sides and self.sides["client"].reading
            if client_told:
                assert self.client_failed == self.failed, (self.client_failed, self.failed, what)
        with open(self.log_path, "rb") as f:
            text = f.read()
        assert len(text) < 1 << 20, f"a log of {len(text)} bytes"
        assert all(b >= 32 or b == 10 for b in text), "the log has raw bytes"
        return self

    def close(self):
        for s in self.sides.values():
            s.close()
        self.p.stderr.close()
        os.close(self.pidfd)


def make_manifest(h, files):
    """A manifest of a project with these files, by the real cloche-scan; its path."""
    top = h.project("demo", files)
    os.chmod(h.path("p"), 0o755)
    path = h.path("manifest")
    m = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    meta = os.open(h.path("meta"), os.O_RDWR | os.O_CREAT, 0o600)
    report = os.open(h.path("report"), os.O_RDWR | os.O_CREAT, 0o600)
    d = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    argv = [os.path.join(h.bin, "cloche-scan"), "--project", f"demo={d}", "--manifest", str(m),
            "--meta", str(meta), "--report", str(report)]
    if os.getuid() == 0:
        argv += ["--uid", str(CAGE_UID)]
    p = subprocess.run(argv, pass_fds=[m, meta, report, d], stdin=subprocess.DEVNULL, capture_output=True)
    assert p.returncode == 0, p
    for fd in (m, meta, report, d):
        os.close(fd)
    h.manifest = path
    return path
