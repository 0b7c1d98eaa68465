# SPDX-License-Identifier: Apache-2.0
"""The `cloche` program against a worker and a monitor that lie: a copy of the programs'
folder in which `cloche-super` is this file. No virtual machine.

Whatever comes, `cloche` ends, the terminal is as before, and no control byte of theirs
reaches the user but through the terminal filter.
"""
import os
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import hostile  # noqa: E402
import wire  # noqa: E402
from hostile import (C_EXEC, C_EXITED, C_FAILED, C_FINISH, C_NOTE, C_PHASE, C_STAGED, C_STARTED,  # noqa: E402
                     C_UP, s32)
from wire import CONTROL, CREDIT, DATA, EOF, ERR, IN, OUT, RESET, frame  # noqa: E402

EVIL = b"\x1b]0;PWN\x07\x1b[31mPWN\x9b31m\x1b]52;c;UFdO\x07"
# what must never be written, however it is cut
MARKS = (b"]0;PWN", b"\x9b31m", b"]52;c;")
BROKE = "broke its protocol"


# ---- the fake ----

class Gone(Exception):
    pass


class Fake:
    def __init__(self, argv):
        args = dict(zip(argv[1::2], argv[2::2]))
        self.s = socket.socket(fileno=int(args["--client"]))
        self.report_fd = int(args["--report"])
        self.buf = bytearray()
        self.credit = {}
        self.term = 0
        self.got = []
        self.queue = bytearray()
        signal.signal(signal.SIGTERM, self.on_term)
        self.s.setblocking(False)

    def on_term(self, *_):
        self.term += 1

    def turn(self, timeout_s=0.02):
        r, w, _ = select.select([self.s], [self.s] if self.queue else [], [], timeout_s)
        if w:
            try:
                del self.queue[:self.s.send(self.queue[:1 << 18])]
            except BlockingIOError:
                pass
            except OSError:
                raise Gone from None
        if r:
            try:
                b = self.s.recv(1 << 18)
            except OSError:
                b = b""
            if not b:
                raise Gone
            self.buf += b
            while f := wire.parse_frame(bytes(self.buf)):
                kind, stream, channel, payload, used = f
                del self.buf[:used]
                if kind == CREDIT:
                    key = channel, stream
                    self.credit[key] = self.credit.get(key, wire.CREDIT_MAX) + \
                        int.from_bytes(payload, "little")
                if kind == CONTROL:
                    self.got.append((struct.unpack_from("<H", payload)[0], payload[2:]))

    def until(self, what, timeout_s=15):
        end = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > end:
                raise Gone
            self.turn()

    def raw(self, b):
        self.queue += b

    def say(self, kind, body=b""):
        self.raw(frame(CONTROL, 0, 0, struct.pack("<H", kind) + body))

    def phase(self, n, at=1, extra=0, extra2=0):
        self.say(C_PHASE, struct.pack("<BQQQ", n, at, extra, extra2))

    def started(self, channel=1, code=0, text=b""):
        self.say(C_STARTED, struct.pack("<Hi", channel, code) + s32(text))

    def exited(self, channel=1, code=0, by_signal=0):
        self.say(C_EXITED, struct.pack("<HBBB", channel, by_signal, code, 0))

    def note(self, text, level=1):
        self.say(C_NOTE, bytes([level]) + s32(text))

    def failed(self, text=b"no luck", hint=b"", code=-5):
        self.say(C_FAILED, struct.pack("<i", code) + s32(text) + s32(hint))

    def out(self, b, stream=OUT):
        """With respect for the credit."""
        while b:
            self.until(lambda: self.credit.get((1, stream), wire.CREDIT_MAX) > 0)
            n = min(len(b), self.credit.get((1, stream), wire.CREDIT_MAX), 60000)
            self.credit[1, stream] = self.credit.get((1, stream), wire.CREDIT_MAX) - n
            self.raw(frame(DATA, 1, stream, b[:n]))
            b = b[n:]
            self.until(lambda: len(self.queue) < 1 << 18)

    def up(self):
        for n in (1, 2, 3, 4):
            self.phase(n)
        self.say(C_UP)
        self.until(lambda: any(t == C_EXEC for t, _ in self.got))

    def run(self):
        self.up()
        self.started()

    def finish(self, code=0):
        self.raw(frame(EOF, 1, OUT) + frame(EOF, 1, ERR))
        self.exited(code=code)
        self.until(lambda: any(t == C_FINISH for t, _ in self.got))

    def last(self, kind=hostile.UNCHANGED, **k):
        try:
            while self.queue:
                self.turn()
        except Gone:
            pass
        os.write(self.report_fd, hostile.link(kind, **k))
        os._exit(0)

    def wait_term(self):
        """The client has seen the lie when it asks for the end."""
        try:
            while self.queue and not self.term:
                self.turn()
            self.until(lambda: self.term)
        except Gone:
            pass
        end = time.monotonic() + 10
        while not self.term and time.monotonic() < end:
            time.sleep(0.01)


def lie(before, *frames):
    """A case that says something illegal at a stage and ends when it is told to."""
    def f(x):
        getattr(x, before)() if before else None
        for b in frames:
            x.raw(b)
        x.wait_term()
        x.last(hostile.FAILED, code=-5, text=b"asked to end" if x.term else b"was never told")
    return f


def ctl(kind, body=b""):
    return frame(CONTROL, 0, 0, struct.pack("<H", kind) + body)


ST, EX = struct.pack("<Hi", 1, 0) + s32(b""), struct.pack("<HBBB", 1, 0, 0, 0)
LIES = {
    "garbage": lie("run", b"\0" * 64),
    "cut message": lie("run", ctl(C_NOTE, b"\1")),
    "our message": lie("run", ctl(C_EXEC, bytes(14))),
    "unknown message": lie("run", ctl(99)),
    "up twice": lie("run", ctl(C_UP)),
    "started before up": lie(None, ctl(C_STARTED, ST)),
    "started twice": lie("run", ctl(C_STARTED, ST)),
    "started elsewhere": lie("up", ctl(C_STARTED, struct.pack("<Hi", 2, 0) + s32(b""))),
    "exited before started": lie("up", ctl(C_EXITED, EX)),
    "exited elsewhere": lie("run", ctl(C_EXITED, struct.pack("<HBBB", 2, 0, 0, 0))),
    "exited twice": lie("run", ctl(C_EXITED, EX) * 2),
    "output before started": lie("up", frame(DATA, 1, OUT, EVIL)),
    "output after exited": lie("run", ctl(C_EXITED, EX) + frame(DATA, 1, OUT, EVIL)),
    "output on another channel": lie("run", frame(DATA, 9, OUT, EVIL)),
    "our stream": lie("run", frame(DATA, 1, IN, EVIL)),
    # output beyond the credit is a lie only while nobody reads it: unit/test_wire.c has that
    "credit over the limit": lie("run", frame(CREDIT, 1, IN, b"\xff" * 4)),
    "phase 99": lie("run", ctl(C_PHASE, struct.pack("<BQQQ", 99, 0, 0, 0))),
    "note of 1025 bytes": lie("run", ctl(C_NOTE, b"\1" + s32(b"x" * 1025))),
    "id of 81 bytes": lie("run", ctl(C_STAGED, s32(b"x" * 81) + bytes(12))),
    "failed with success": lie("run", ctl(C_FAILED, bytes(4) + s32(b"") + s32(b""))),
}


def flood(x):
    x.run()
    x.out(b"0123456789abcdef" * (1 << 19))
    x.finish(3)
    x.last()


def notes(x):
    x.run()
    for i in range(5000):
        x.note(EVIL + str(i).encode())
    x.finish()
    x.last()


def phases(x):
    for _ in range(2000):
        x.phase(2, at=(1 << 64) - 1)
        x.phase(3, extra=(1 << 64) - 1, extra2=(1 << 64) - 1)
    x.run()
    for _ in range(2000):
        x.phase(2)
    x.finish()
    x.last()


def bad_id(by_monitor, ident):
    def f(x):
        x.run()
        x.finish()
        x.say(C_STAGED, s32(ident) + bytes(12))
        if by_monitor:
            x.last(hostile.STAGED, ident=ident)
        x.last(hostile.UNCHANGED)
    return f


def failed(x):
    x.run()
    x.out(b"partial")
    x.failed(EVIL + b"\nline\rline", EVIL)
    x.last(hostile.FAILED, code=-5, text=EVIL + b"\nmonitor", hint=EVIL)


def not_started(x):
    x.up()
    x.started(code=-2, text=EVIL)
    x.until(lambda: any(t == C_FINISH for t, _ in x.got))
    x.last()


def modes(x):
    """A program that leaves the terminal as bad as it can, in the middle of a sequence."""
    x.run()
    x.out(b"\x1b[?1049h\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?25lhello" + EVIL)
    x.out(b"\x1b[?1003h\x1b]52;c;")


def modes_fail(x):
    modes(x)
    x.failed()
    x.out(b"\x1b[?1049h\x1b[?1000h late")
    x.last(hostile.FAILED, code=-5, text=b"no luck")


def modes_exit(x):
    modes(x)
    x.finish()
    x.last()


def modes_vanish(x):
    modes(x)
    while x.queue:
        x.turn()
    time.sleep(0.2)
    os._exit(9)


def modes_lie(x):
    modes(x)
    x.raw(b"\0" * 12)
    x.wait_term()
    x.last(hostile.FAILED, code=-5, text=b"ended")


def deaf(x):
    """Lies, and then hears no signal and never ends."""
    modes(x)
    x.raw(b"\0" * 12)
    while x.term < 1:
        try:
            x.turn()
        except Gone:
            time.sleep(0.02)
    time.sleep(60)


def silent_end(x):
    """Closes the connection and lives on."""
    modes(x)
    while x.queue:
        x.turn()
    time.sleep(0.2)
    x.s.close()
    time.sleep(60)


def never_up(_x):
    time.sleep(60)


def cut_report(x):
    x.run()
    x.finish()
    os.write(x.report_fd, b"\4\0\0\0")
    os._exit(0)


CASES = LIES | {f.__name__: f for f in (flood, notes, phases, failed, not_started, modes_fail, modes_exit,
                                        modes_vanish, modes_lie, deaf, silent_end, never_up, cut_report)}
IDS = {"path": b"../../x", "escape": EVIL, "nul": b"a\0b", "long": b"a" * 80, "empty dot": b".",
       "new": b".new-demo-aaaaaa", "other": b"other-aaaaaa"}
CASES |= {f"worker id {n}": bad_id(False, b) for n, b in IDS.items()}
CASES |= {f"monitor id {n}": bad_id(True, b) for n, b in IDS.items()}


def fake(argv):
    x = Fake(argv)
    try:
        CASES[os.environ["HOSTILE_CASE"]](x)
    except Gone:
        os.write(x.report_fd, hostile.link(hostile.FAILED, -5, text=b"the client is gone"))
    os._exit(0)


# ---- the tests ----

def install(h):
    new = h.path("bin")
    shutil.copytree(h.bin, new, ignore=shutil.ignore_patterns("*.p"))
    h.bin = new
    path = os.path.join(new, "cloche-super")
    os.unlink(path)
    with open(path, "w") as f:
        f.write(f"#!{sys.executable} -S\nimport sys\nsys.dont_write_bytecode = True\n"
                f"sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
                "import test_hostile_cli\ntest_hostile_cli.fake(sys.argv)\n")
    os.chmod(path, stat.S_IRWXU)
    return h.project("demo", {"a.txt": "one\n"})


def argv(h, p, *flags):
    return h.shell_argv(p, ["cmd"], flags)


def clean(b):
    for m in MARKS:
        assert m not in b.replace(b"\xc2\x9b", b""), (m, b[-2000:])


def run(h, p, case, *flags, rc=None, err="", **k):
    t0 = time.monotonic()
    r = h.run(*argv(h, p, *flags), env={"HOSTILE_CASE": case}, timeout_s=20, **k)
    print(f"{case} {time.monotonic() - t0:.2f}s")
    assert b"\x1b" not in r.err and b"\x9b" not in r.err.replace(b"\xc2\x9b", b"\x9b"), (case, r)
    assert "Traceback" not in r.errtext, r.errtext
    assert rc is None or r.rc == rc, (case, r)
    assert err in r.errtext, (case, r)
    return r


def test_lies(h):
    p = install(h)
    bad = []
    for case in LIES:
        try:
            r = run(h, p, case, rc=125)
            assert BROKE in r.errtext or "asked to end" in r.errtext, r
            assert b"PWN" not in r.out, r
        except AssertionError as e:
            bad.append(f"{case}: {e}")
    assert not bad, "\n".join(bad)
    h.wait_clean()


def test_floods(h):
    p = install(h)
    r = run(h, p, "flood", rc=3)
    assert r.out == b"0123456789abcdef" * (1 << 19), len(r.out)
    r = run(h, p, "notes", rc=0, err="are not shown")
    assert r.errtext.count("PWN") <= 500, r.errtext.count("PWN")
    r = run(h, p, "phases", rc=0)
    assert r.errtext.count("shell on demo") == 1, r.errtext
    h.wait_clean()


def test_words(h):
    """Texts and ids: shown visibly, and never used as a name."""
    p = install(h)
    r = run(h, p, "failed", rc=125)
    assert r.out == b"partial" and "\\\\e" not in r.errtext and "\\e" in r.errtext and "\nmonitor" not in r.errtext, r
    r = run(h, p, "not_started", err="cannot start the command")
    run(h, p, "cut_report", err="monitor was killed")
    os.makedirs(os.path.join(h.changes, "other-aaaaaa"), exist_ok=True)
    for n in IDS:
        r = run(h, p, f"worker id {n}", "--apply=auto", rc=0)
        assert "other" not in r.errtext, r
        if n != "other":        # that one has the form of an id, but there is no such set
            run(h, p, f"monitor id {n}", "--apply=auto", rc=None if n == "long" else 125)
    assert sorted(os.listdir(h.changes)) == ["other-aaaaaa"]
    assert os.listdir(os.path.join(h.changes, "other-aaaaaa")) == []
    h.wait_clean()


def restored(t):
    assert t.attrs_restored(), "the terminal's settings"
    assert not t.screen.modes & {1049, 1000, 1003, 1006, 2004}, t.screen.modes
    clean(t.out)
    assert b"late" not in t.out


def test_terminal(h):
    p = install(h)
    for case in ("modes_fail", "modes_exit", "modes_vanish", "modes_lie"):
        t = h.pty(*argv(h, p, "--apply=none"), env={"HOSTILE_CASE": case})
        rc = t.wait(20)
        assert rc == (0 if case == "modes_exit" else 125), (case, rc, t.out[-2000:])
        assert b"hello" in t.out, t.out
        restored(t)
    # input from elsewhere: never raw, but the screen is reset all the same
    t = h.pty("-c", 'exec "$0" "$@" </dev/null', h.cloche, *argv(h, p), program="/bin/sh",
              env={"HOSTILE_CASE": "modes_exit"})
    assert t.wait(20) == 0, t.out
    assert b"hello" in t.out
    restored(t)
    h.wait_clean()


def test_no_end(h):
    """Nobody ends on the other side: the terminal is the user's at once, and so is Ctrl-C."""
    p = install(h)
    for case in ("deaf", "silent_end"):
        t = h.pty(*argv(h, p), env={"HOSTILE_CASE": case})
        t.expect("hello", 20)
        end = time.monotonic() + 10
        while not t.attrs_restored():
            t.pump(0.05)
            assert time.monotonic() < end, "still raw"
        t.pump(0.2)
        restored(t)
        t.send(b"\x03")
        t.expect("once more", 10)
        t.send(b"\x03")
        rc = t.wait(10)
        assert rc != 0 and "background" in t.out.decode(errors="replace"), (rc, t.out)
        h.kill_all()
    t = h.pty(*argv(h, p), env={"HOSTILE_CASE": "never_up"})
    t.expect("starting", 20)
    t.pump(0.5)
    for _ in range(3):
        t.send(b"\x03")
        t.pump(0.3)
    assert t.wait(10) == 130, t.out
    restored(t)
    h.kill_all()
