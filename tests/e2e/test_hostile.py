# SPDX-License-Identifier: Apache-2.0
"""cloche-worker against a guest, a QEMU, a cloche-disk and a client that lie, and the
client against a worker that lies. No virtual machine: this program is the other side.

Whatever comes, the worker ends by itself or says clearly what it refuses; it does not
hang, crash or grow, and no part of a change set gets its final name.
"""
import concurrent.futures
import hashlib
import os
import re
import struct
import time

import hostile
import wire
from hostile import (BLOBS_END, EXPORT, Worker, blob, c_blob, c_dir, c_end, c_extent, c_file,
                     c_link, c_special, c_up, c_whiteout, done, exited, log, oom, ready, rec)
from wire import CONTROL, CREDIT, DATA, EOF, ERR, IN, OUT, RESET, frame

MANY = 80                       # more than the questions to cloche-disk on their way
FILES = {"a.txt": "one\n", "d/b": "two\n", **{f"many/{i:03}": f"{i:03}\n" for i in range(MANY)}}
PROTOCOL = "broke the control protocol"

INDEX = c_dir("demo") + c_file("a.txt", b"two\n") + c_link("l", "a.txt") + c_up() + c_end(4)
BLOBS = {1: b"two\n"}


def many_index():
    """All of many/ touched: as many questions to cloche-disk."""
    b = c_dir("demo") + c_dir("many")
    for i in range(MANY):
        b += c_file(f"{i:03}", f"{i:03}\n".encode())
    return b + c_up() + c_up() + c_end(MANY + 4)


MANY_BLOBS = {2 + i: f"{i:03}\n".encode() for i in range(MANY)}


def run_all(h, cases, files=FILES):
    """cases: {name: function(h)}; all of them run, and all that failed are named."""
    if not hasattr(h, "manifest"):
        hostile.make_manifest(h, files)
    bad = []
    for name, f in cases.items():
        t0 = time.monotonic()
        try:
            f(h)
        except (AssertionError, wire.Lie, OSError, KeyError, IndexError) as e:
            bad.append(f"{name}: {type(e).__name__} {e}")
        print(f"{name} {time.monotonic() - t0:.2f}s")
    assert not bad, "\n".join(bad)


# ---- a good session, and one that is cut ----

def good(h, **k):
    w = Worker(h, index=INDEX, blobs=BLOBS, **k)
    w.exec()
    return w


def test_good_session(h):
    """The fake peers are fair: with honest ones the set is there."""
    def answers(right):
        def f(h):
            def on_disk(w, t, b):
                if t != hostile.D_HASH:
                    return False
                entry = struct.unpack_from("<I", b, 4)[0]
                w.asked = getattr(w, "asked", 0) + 1
                i = w.asked - 1
                w.hash_done(entry, digest=wire.hash_bytes(f"{i:03}\n".encode()) if right else bytes(32))
                return True
            w = Worker(h, index=many_index(), blobs=MANY_BLOBS, on_disk=on_disk)
            w.exec()
            w.end(good=True)
            assert w.asked == MANY, w.asked
            assert sum(n for _, n in w.want) == (0 if right else MANY), w.want
        return f

    run_all(h, {
        "plain": lambda h: good(h).end(good=True),
        "no client": lambda h: Worker(h, client=False, args=["--recover"], index=INDEX,
                                      blobs=BLOBS).end(good=True),
        "hashes equal": answers(True),
        "hashes differ": answers(False),
    })


def test_cut_everywhere(h):
    """The guest ends after each byte of a good session."""
    hostile.make_manifest(h, FILES)
    w = good(h)
    w.end(good=True)
    total = w.sent
    def cut(n):
        w = Worker(h, index=INDEX, blobs=BLOBS, budget=n, ready_ms=5000)
        w.guest(b"")
        while not w.up and w.p.poll() is None:
            w.turn(0.02)
            if not w.sides["guest"].open and w.sides["mon"].open and not w.links:
                # before the guest said a word its monitor knows best why
                w.sides["mon"].send(hostile.link(hostile.BROKEN, -32, text=b"QEMU ended"))
                w.sides["mon"].flush()
        if w.up:
            w.say(hostile.ctl_args([b"sh"]))
            w.say(hostile.ctl_exec())
        while w.p.poll() is None and not w.staged and w.failed is None:
            w.turn(0.02)
        try:
            w.end(good=w.staged, refused=None if w.staged else "")
        except AssertionError as e:
            raise AssertionError(f"cut at {n} of {total}: {e}") from None
        assert not w.staged or w.sent >= total - 80, f"staged at {n} of {total}"

    with concurrent.futures.ThreadPoolExecutor(4) as pool:      # they wait for the disk most of the time
        for _ in pool.map(cut, range(total)):
            pass


# ---- silence ----

def test_silence(h):
    def hold(name, **k):
        def on_guest(_w, n, _s, _b):
            return n == name
        return Worker(h, on_guest=on_guest, index=INDEX, blobs=BLOBS, **k)

    def never(h):
        hold("HELLO", ready_ms=300).end(refused="not ready within")

    def setup(h):
        hold("MOUNT_WORK", ready_ms=300).end(refused="not ready within")

    def in_export(h):
        w = hold("EXPORT", silence_ms=300)
        w.exec()
        w.end(refused="silent")

    def in_want(h):
        w = hold("WANT", silence_ms=300)
        w.exec()
        w.end(refused="silent")

    def chatter(h):
        """Lines and notes are no progress."""
        w = hold("EXPORT", silence_ms=600)
        w.exec()
        w.until(lambda: any(n == "EXPORT" for n, _, _ in w.host_msgs))
        t0 = time.monotonic()
        while w.p.poll() is None and time.monotonic() - t0 < 5:
            w.msg(log("still here"))
            w.turn(0.05)
            time.sleep(0.05)
        w.end(refused="silent")

    def no_off(h):
        w = hold("POWEROFF")
        w.exec()
        w.end(good=True)

    def no_scan(h):
        Worker(h, scanned=False, ready_ms=300).end(refused="not ready within")

    def disk_silent(h):
        """Then everything is fetched from the guest."""
        w = Worker(h, index=many_index(), blobs=MANY_BLOBS, silence_ms=300,
                   on_disk=lambda w, t, b: t == hostile.D_HASH)
        w.exec()
        w.end(good=True)
        assert sum(n for _, n in w.want) == MANY

    def out_of_order(h):
        """Mounted before it was set up: the deadline cannot be fooled so."""
        hold("MOUNT_ROOT").end(refused=PROTOCOL)

    run_all(h, {"hello": never, "setup": setup, "order": out_of_order, "export": in_export, "want": in_want,
                "chatter": chatter, "power off": no_off, "scan": no_scan, "disk": disk_silent})


# ---- floods ----

def test_floods(h):
    def flood(stage, b, times, **end):
        def f(h):
            w = Worker(h, index=INDEX, blobs=BLOBS).to(stage)
            for _ in range(times):
                w.sides["guest"].send(b)
                if len(w.sides["guest"].queue) > 1 << 20:
                    w.turn(0.01)
                if w.p.poll() is not None:
                    break
            t0 = time.monotonic()
            while w.sides["guest"].queue and w.p.poll() is None and time.monotonic() - t0 < 15:
                w.turn(0.02)
            if w.p.poll() is None:
                w.sides["guest"].close()
            if stage in ("OFF",):
                end["good"] = True
            w.end(**end)
        return f

    line = frame(CONTROL, 0, 0, log("x" * 1000))
    note = frame(CONTROL, 0, 0, oom())

    def notes_and_deaf_client(h):
        """The user's terminal is stopped; the guest shouts; the end must still be said."""
        w = Worker(h, index=INDEX, blobs=BLOBS, auto_exit=False).to("RUN")
        w.sides["client"].reading = False
        for _ in range(100000):
            w.sides["guest"].send(note)
        w.until(lambda: not w.sides["guest"].queue, 20)
        w.guest(frame(EOF, 1, OUT) + frame(EOF, 1, ERR))
        w.msg(exited())
        w.sides["client"].reading = True
        w.until(lambda: any(t == hostile.C_EXITED for t, _ in w.ctl), why="exit")
        w.say(hostile.ctl_finish())
        w.end(good=True)
        assert sum(t == hostile.C_NOTE for t, _ in w.ctl) <= 200

    def data_nobody_reads(h):
        w = Worker(h, auto_exit=False).to("RUN")
        w.sides["client"].reading = False
        for _ in range(40):
            w.sides["guest"].send(frame(DATA, 1, OUT, b"x" * 32768))
        w.end(refused=PROTOCOL, client_told=False)

    run_all(h, {
        "lines before ready": flood("BOOT", line, 20000),
        "lines": flood("RUN", line, 20000),
        "lines in the export": flood("EXPORT", line, 20000),
        "lines at the end": flood("OFF", line, 20000),
        "notes": flood("RUN", note, 50000),
        "deaf client": notes_and_deaf_client,
        "data": data_nobody_reads,
        "credit": flood("RUN", frame(CREDIT, 9, IN, struct.pack("<I", 1)), 100000),
        "resets": flood("RUN", frame(RESET, 9, IN), 100000),
        "ends of the input": flood("RUN", frame(RESET, 1, IN), 100000),
        "garbage": flood("RUN", b"\x00" * 65536, 20, refused=PROTOCOL),
    })


# ---- every message in every stage ----

def rules():
    """{name: (from_guest, states)} of the table in src/wire/msg.c."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(top, "src/wire/msg.c")) as f:
        text = f.read()
    bits = {"MSG_STATE_" + n: 1 << i for i, n in
            enumerate(["START", "BARE", "ROOT", "WORK", "FROZEN", "OFF"])}
    for name, val in re.findall(r"\t(ST_\w+) = ([^,]+),", text):
        try:
            bits[name] = eval(val, {}, dict(bits))
        except NameError:       # another enum's
            pass
    out = {}
    for name, who, states in re.findall(r'\{ MSG_\w+, "(\w+)", (HOST|GUEST), ([\w |]+),', text):
        out[name] = (who == "GUEST", eval(states, {}, bits))
    assert set(out) == set(wire.TYPE), out
    return out, bits


def test_messages_by_stage(h):
    table, bits = rules()
    b = {k.replace("MSG_STATE_", ""): v for k, v in bits.items()}
    stages = {
        "BOOT": b["START"] | b["BARE"],
        "SETUP": b["BARE"] | b["ROOT"] | b["WORK"],
        "UP": b["WORK"],
        "RUN": b["WORK"],
        "EXPORT": b["WORK"] | b["FROZEN"],
        "OFF": b["WORK"] | b["FROZEN"] | b["OFF"] | b["ROOT"] | b["BARE"],
    }
    body = {"HELLO": struct.pack("<I", 1), "CLOCK": bytes(8), "ENTROPY": wire.s16(bytes(64)),
            "SETUP": wire.s16("x") + bytes(20), "MOUNT_ROOT": b"\1" + wire.s16("b") + wire.s16("s"),
            "MOUNT_WORK": wire.s16("w") + b"\1" + wire.s16("p"),
            "FILE": wire.s16("/x") + bytes(16) + wire.s16(""), "ARGS": b"\0\1\0" + wire.s16("x"),
            "EXEC": struct.pack("<HIII", 1, 0, 0, 0) + wire.s16("/") + bytes(5),
            "RESIZE": struct.pack("<HHH", 1, 1, 1), "SIGNAL": struct.pack("<HB", 1, 1),
            "EXPORT": struct.pack("<HIQ", 1, 1, 1), "WANT": bytes(6), "THAW": b"", "SYNC": b"",
            "POWEROFF": b"", "NET": struct.pack("<IIIBHB", 1, 2, 3, 16, 1500, 0), "NET_TEST": b"",
            "CONNECT": struct.pack("<HH", 1, 80), "ACCOUNT": wire.s16("") + wire.s16("")}
    msgs = {n: wire.message(n, 1, body[n]) for n in wire.HOST}
    msgs |= {"READY": ready(), "DONE": done(99999), "EXITED": exited(77), "OOM": oom(), "LOG": log()}
    msgs |= {"type 0": bytes(6), "type 200": struct.pack("<HI", 200, 0), "short": b"\x40"}

    def case(stage, name):
        legal = name in table and table[name][0] and table[name][1] & stages[stage]

        def f(h):
            w = Worker(h, index=INDEX, blobs=BLOBS, ready_ms=1500).to(stage)
            w.msg(msgs[name])
            w.sides["guest"].flush()
            if name in ("LOG", "OOM") and legal:
                w.turn(0.02)
                w.sides["guest"].close()
                w.end(good=stage == "OFF")
            elif stage == "BOOT" and name == "READY":
                w.until(lambda: any(n == "SETUP" for n, _, _ in w.host_msgs), why="setup")
                w.sides["mon"].close()
                w.end()
            elif stage == "OFF":
                w.end(good=True)
            else:
                w.end(refused=PROTOCOL)
        return f
    run_all(h, {f"{n} in {s}": case(s, n) for s in stages for n in msgs})


# ---- lies in a field ----

def test_lies(h):
    def run(stage, *frames, **end):
        def f(h):
            w = Worker(h, index=INDEX, blobs=BLOBS).to(stage)
            for x in frames:
                w.guest(x(w) if callable(x) else x)
            end.setdefault("refused", PROTOCOL)
            w.end(**end)
        return f

    def ctl(b):
        return frame(CONTROL, 0, 0, b)

    def twice(name):
        return lambda w: ctl(done(w.host_seq[name]))

    def raw(**k):
        v = {"magic": wire.MAGIC, "kind": DATA, "stream": OUT, "channel": 1, "zero": 0, "n": 1} | k
        return struct.pack("<HBBHHI", v["magic"], v["kind"], v["stream"], v["channel"], v["zero"],
                           v["n"]) + b"x"

    def exited_first(h):
        """Before its command was said to run."""
        w = Worker(h, on_guest=lambda w, n, s, b: n == "EXEC")
        w.exec()
        w.until(lambda: "EXEC" in w.host_seq)
        w.msg(exited(1))
        w.end(refused=PROTOCOL)

    def exec_fails_late(h):
        """Done, ended, and then it could not be started after all."""
        w = Worker(h).to("RUN")
        w.msg(exited(1))
        w.until(lambda: any(t == hostile.C_EXITED for t, _ in w.ctl))
        w.msg(done(w.host_seq["EXEC"], 2, "no"))
        w.end(refused=PROTOCOL)

    def data_after_exited(h):
        w = Worker(h).to("RUN")
        w.sides["client"].reading = False
        for _ in range(8):      # more than the client's socket takes at once
            w.guest(frame(DATA, 1, OUT, b"x" * 32768))
        w.msg(exited(1))
        w.guest(frame(DATA, 1, ERR, b"x"))
        for _ in range(5):
            w.turn(0.01)
        w.sides["client"].reading = True
        w.until(lambda: any(t == hostile.C_EXITED for t, _ in w.ctl) or w.failed)
        if not w.failed:        # all had been handed on: what is late is dropped
            assert (1, ERR) not in w.client_out
            w.say(hostile.ctl_finish())
        w.end(good=not w.failed)

    def no_such_exec(h):
        """An honest refusal is passed on, made visible."""
        def on_guest(w, n, seq, _b):
            if n == "EXEC":
                w.msg(done(seq, 2, "\x1b[2J no such file"))
                return True
            return False
        w = Worker(h, on_guest=on_guest)
        w.exec()
        w.until(lambda: any(t == hostile.C_STARTED for t, _ in w.ctl))
        w.say(hostile.ctl_finish())
        w.end(good=True)

    run_all(h, {
        "done twice": run("UP", twice("MOUNT_WORK")),
        "done for nothing": run("UP", ctl(done(12345))),
        "done for seq 0": run("UP", ctl(done(0))),
        "code too large": run("BOOT", lambda w: ctl(done(w.host_seq["HELLO"], 4096, "x"))),
        "code over 2^31": run("BOOT", lambda w: ctl(done(w.host_seq["HELLO"], 1 << 31, "x"))),
        "text of a success": run("BOOT", lambda w: ctl(done(w.host_seq["HELLO"], 0, "x"))),
        "setup fails": run("SETUP", lambda w: ctl(done(w.host_seq["MOUNT_WORK"], 5, "\x1b]0;x\x07")),
                           refused="could not do its part"),
        "version": run("BOOT", ctl(ready(version=2))),
        "clock runs back": run("BOOT", ctl(ready(init_ns=5, ready_ns=4))),
        "kernel name": run("BOOT", ctl(ready(kernel="k" * 65))),
        "kernel with nul": run("BOOT", ctl(ready(kernel="a\0b"))),
        "exited unopened": run("RUN", ctl(exited(2))),
        "exited channel 0": run("RUN", ctl(exited(0))),
        "exited channel 256": run("RUN", ctl(exited(256))),
        "exited the export": run("EXPORT", ctl(exited(EXPORT))),
        "exited twice": run("RUN", ctl(exited(1)), ctl(exited(1))),
        "exited by signal 0": run("RUN", ctl(exited(1, 0, 1))),
        "exited by signal 65": run("RUN", ctl(exited(1, 65, 1))),
        "exited oom 2": run("RUN", ctl(exited(1, 0, 0, 2))),
        "exited first": exited_first,
        "exec fails late": exec_fails_late,
        "data after exited": data_after_exited,
        "no such command": no_such_exec,
        "log level": run("RUN", ctl(log(level=4))),
        "log too long": run("RUN", ctl(log("x" * 1025))),
        "data unopened": run("RUN", frame(DATA, 2, OUT, b"x")),
        "data for the host's stream": run("RUN", frame(DATA, 1, IN, b"x")),
        "end of the host's stream": run("RUN", frame(EOF, 1, IN)),
        "data after the end": run("RUN", frame(EOF, 1, OUT), frame(DATA, 1, OUT, b"x")),
        "end twice": run("RUN", frame(EOF, 1, OUT), frame(EOF, 1, OUT)),
        "data after reset": run("RUN", frame(RESET, 1, OUT), frame(DATA, 1, OUT, b"x")),
        "credit 0": run("RUN", frame(CREDIT, 1, IN, bytes(4))),
        "credit over the limit": run("RUN", frame(CREDIT, 1, IN, struct.pack("<I", 1))),
        "credit 2^32": run("RUN", frame(CREDIT, 1, IN, b"\xff" * 4)),
        "credit for its own": run("RUN", frame(CREDIT, 1, OUT, struct.pack("<I", 1))),
        "more than its credit": run("EXPORT", *[frame(DATA, EXPORT, ERR, b"x" * 60000)] * 5),
        "export's error stream": run("EXPORT", frame(DATA, EXPORT, ERR, b"x")),
        "export before it is asked": run("RUN", frame(DATA, EXPORT, OUT, c_end(0))),
        "export reset": run("EXPORT", frame(RESET, EXPORT, OUT)),
        "export ended": run("EXPORT", frame(EOF, EXPORT, OUT), refused="ended its change set"),
        "export refused": run("EXPORT", lambda w: ctl(done(w.host_seq["EXPORT"], 27, "2000001 \x1b[31mrecords")),
                              refused="beyond a limit"),
        "magic": run("RUN", raw(magic=0xC10D)),
        "type 0": run("RUN", raw(kind=0)),
        "type 6": run("RUN", raw(kind=6)),
        "stream 3": run("RUN", raw(stream=3)),
        "channel 256": run("RUN", raw(channel=256)),
        "channel 65535": run("RUN", raw(channel=65535)),
        "reserved": run("RUN", raw(zero=1)),
        "length 0": run("RUN", raw(n=0)),
        "length 65537": run("RUN", raw(n=65537)),
        "length 2^32-1": run("RUN", raw(n=0xFFFFFFFF)),
        "control on a channel": run("RUN", raw(kind=CONTROL, channel=1)),
        "control on a stream": run("RUN", raw(kind=CONTROL, channel=0, stream=1)),
        "empty control": run("RUN", struct.pack("<HBBHHI", wire.MAGIC, CONTROL, 0, 0, 0, 0)),
        "bytes left over": run("RUN", ctl(log() + b"x")),
    })


# ---- change streams ----

def in_demo(b, n):
    """Records inside the project's directory: n of them."""
    return c_dir("demo") + b + c_up() + c_end(n + 2)


def deep(n, name="x"):
    return b"".join(c_dir(name) for _ in range(n)) + c_up() * n + c_end(2 * n)


def test_many_wants(h):
    """More ranges than one message holds: each part waits for the answer to the one before."""
    n = 10000
    index = c_dir("demo") + b"".join(c_link(f"{i:05}", "x") if i % 2 else c_file(f"{i:05}", b"y")
                                     for i in range(n)) + c_up() + c_end(n + 2)
    blobs = {1 + i: b"y" for i in range(0, n, 2)}

    def honest(h):
        last = []

        def on_guest(w, name, seq, body):
            if name == "WANT" and body[0]:
                last.append(seq)
            return bool(last)
        w = Worker(h, index=index, blobs=blobs, on_guest=on_guest, silence_ms=4000)
        w.exec()
        w.until(lambda: last, why="the last part")
        w.sides["mon"].close()      # storing them is not the matter here
        w.end()
        parts = [b for name, _, b in w.host_msgs if name == "WANT"]
        assert [struct.unpack_from("<IH", b) for b in parts] == [(0, 4096), (1, 904)], parts

    def early(h):
        def on_guest(w, name, _seq, _body):
            if name == "WANT":
                w.data(blob(1, b"y"))
            return name == "WANT"
        w = Worker(h, index=index, blobs=blobs, on_guest=on_guest, silence_ms=4000)
        w.exec()
        w.end(refused="before it was asked")

    run_all(h, {"honest": honest, "early": early})


def test_index_lies(h):
    def bad(index, why, **k):
        def f(h):
            w = Worker(h, index=index, blobs=BLOBS, **k)
            w.exec()
            w.end(refused=why)
        return f

    def fine(index, blobs=None, **k):
        def f(h):
            w = Worker(h, index=index, blobs=blobs or {}, **k)
            w.exec()
            w.end(good=True)
        return f

    lst, chg = "list of changes was refused", "change stream was refused"
    name = "n" * 255
    # 64 KiB of path: 256 directories of 255 bytes and their slashes are 65536 - 1
    run_all(h, {
        "name ..": bad(in_demo(c_whiteout(".."), 1), chg),
        "name .": bad(in_demo(c_whiteout("."), 1), chg),
        "name /": bad(in_demo(c_file("a/b"), 1), chg),
        "name NUL": bad(in_demo(c_dir(b"a\0b") + c_up(), 2), chg),
        "name empty": bad(in_demo(c_link("", "x"), 1), chg),
        "name twice": bad(in_demo(c_whiteout("a") * 2, 2), lst),
        "name twice, other kind": bad(in_demo(c_whiteout("a") + c_file("a"), 2), lst),
        "unsorted": bad(in_demo(c_whiteout("b") + c_whiteout("a"), 2), lst),
        "unsorted after a directory": bad(in_demo(c_dir("b") + c_up() + c_whiteout("a"), 3), lst),
        "link text empty": bad(in_demo(c_link("a", ""), 1), chg),
        "link text NUL": bad(in_demo(c_link("a", "b\0c"), 1), chg),
        "link text 4096": bad(in_demo(c_link("a", "b" * 4096), 1), chg),
        "special is a file": bad(in_demo(c_special("a", 0o100644), 1), chg),
        "mode": bad(in_demo(c_file("a", mode=0o10000), 1), chg),
        "flags of a file": bad(in_demo(c_file("a", flags=1), 1), chg),
        "flags of a directory": bad(c_dir("demo", flags=2), chg),
        "size negative": bad(in_demo(c_file("a", size=1 << 63), 1), chg),
        "unknown type": bad(in_demo(rec(9), 1), chg),
        "length 2^32-1": bad(c_dir("demo") + struct.pack("<BI", wire.C_FILE, 0xFFFFFFFF), chg),
        "left over in a record": bad(c_dir("demo") + rec(wire.C_UP, b"x"), chg),
        "a blob in the index": bad(c_dir("demo") + c_blob(0, 1), lst),
        "blobs end in the index": bad(c_dir("demo") + BLOBS_END, ""),
        "up at the top": bad(c_up(), lst),
        "end inside": bad(c_dir("demo") + c_end(1), lst),
        "end with another count": bad(c_dir("demo") + c_up() + c_end(3), lst),
        "end missing": bad(c_dir("demo") + c_up(), "has no end"),
        "end twice": bad(c_end(0) + c_end(0), ""),
        "depth at the limit": fine(deep(256)),
        "depth over it": bad(deep(257), lst),
        "path at the limit": fine(b"".join(c_dir(name) for _ in range(255)) + c_whiteout(name) +
                                  c_up() * 255 + c_end(511)),
        "records at the limit": fine(in_demo(c_whiteout("a"), 1), args=["--records=3"]),
        "records over it": bad(in_demo(c_whiteout("a") + c_whiteout("b"), 2), lst, args=["--records=3"]),
        "bytes at the limit": fine(in_demo(c_file("a", b"x" * 99), 1), {1: b"x" * 99}, scratch=99),
        "bytes over it": bad(in_demo(c_file("a", size=100), 1), lst, scratch=99),
        "bytes in sum": bad(in_demo(c_file("a", size=50) + c_file("b", size=50), 2), lst, scratch=99),
        "bytes overflow": bad(in_demo(b"".join(c_file(c, size=(1 << 63) - 1) for c in "abc"), 3), lst),
        "empty": fine(c_end(0)),
        "unknown project": fine(c_dir("other") + c_file("f", b"x") + c_up() + c_end(3), {1: b"x"}),
        "file as project": fine(c_file("demo", b"x") + c_end(1), {0: b"x"}),
    })


def test_blob_lies(h):
    def with_blobs(index, b, why, **k):
        def f(h):
            def on_guest(w, name, seq, body):
                if name != "WANT":
                    return False
                for x in b if isinstance(b, list) else [b]:
                    w.data(x)
                w.msg(done(seq))
                return True
            w = Worker(h, index=index, on_guest=on_guest, **{"silence_ms": 300} | k)
            w.exec()
            w.end(refused=why)
        return f

    index = in_demo(c_file("n1", b"11") + c_file("n2", b"22") + c_link("z", "n1"), 3)
    two = blob(2, b"22")
    refused = "file contents were refused"
    big = (1 << 30) + 1
    zero_256m = bytes(1 << 20)
    hh = hashlib.blake2b(digest_size=32)
    for _ in range(256):
        hh.update(zero_256m)
    sparse = in_demo(c_file("n", size=256 << 20, hash=hh.digest()), 1)

    def sparse_ok(h):
        w = Worker(h, index=sparse, on_guest=None, silence_ms=3000)
        del w.hooks["on_guest"]

        def on_guest(w, name, seq, body):
            if name == "WANT":
                w.data(c_blob(1, 256 << 20) + rec(wire.C_BLOB_END) + BLOBS_END)
                w.msg(done(seq))
                return True
            return False
        w.hooks["on_guest"] = on_guest
        w.exec()
        w.end(good=True)
        st = os.stat(os.path.join(w.staging, "demo-aaaaaa/blobs/1"))
        assert st.st_size == 256 << 20 and st.st_blocks < 1024, st

    wrong = c_blob(1, 2) + c_extent(0, b"xx") + rec(wire.C_BLOB_END)
    run_all(h, {
        "never": with_blobs(index, b"", "but they were not"),
        "half": with_blobs(index, blob(1, b"11"), "but they were not"),
        "wrong hash": with_blobs(index, wrong + two + BLOBS_END, "not what its record says"),
        # what comes after a refusal in frames of its own must not finish the set
        "wrong hash, then all is well": with_blobs(index, [wrong, two, BLOBS_END], "not what its record says"),
        "not asked": with_blobs(index, blob(3, b"11"), "nobody asked"),
        "not asked, then its bytes": with_blobs(
            index, [c_blob(0, 2), c_extent(0, b"xx"), rec(wire.C_BLOB_END), BLOBS_END], "nobody asked"),
        "beyond the index": with_blobs(index, blob(99, b"11"), "nobody asked"),
        "ordinal 2^32-1": with_blobs(index, blob(0xFFFFFFFF, b"11"), "nobody asked"),
        "twice": with_blobs(index, blob(1, b"11") * 2, refused),
        "descending": with_blobs(index, two + blob(1, b"11"), refused),
        "left out": with_blobs(index, two + BLOBS_END, "left out"),
        "nothing": with_blobs(index, BLOBS_END, "left out"),
        "size changed": with_blobs(index, c_blob(1, 3), "changed while"),
        "extent beyond": with_blobs(index, c_blob(1, 2) + c_extent(1, b"xx"), refused),
        "extent far beyond": with_blobs(index, c_blob(1, 2) + c_extent((1 << 63) - 2, b"x"), refused),
        "extent overflow": with_blobs(index, c_blob(1, 2) + c_extent((1 << 64) - 1, b"x"),
                                      "change stream was refused"),
        "extent empty": with_blobs(index, c_blob(1, 2) + c_extent(0, b""), "change stream was refused"),
        "extents out of order": with_blobs(index, c_blob(1, 2) + c_extent(1, b"1") + c_extent(0, b"1"), refused),
        "extents overlap": with_blobs(index, c_blob(1, 2) + c_extent(0, b"11") + c_extent(1, b"1"), refused),
        "extent outside": with_blobs(index, c_extent(0, b"11"), refused),
        "extent too long": with_blobs(index, c_blob(1, 2) + c_extent(0, bytes(32769)), "change stream was refused"),
        "blob in a blob": with_blobs(index, c_blob(1, 2) + c_blob(2, 2), refused),
        "end in a blob": with_blobs(index, c_blob(1, 2) + BLOBS_END, refused),
        "index again": with_blobs(index, c_dir("x"), refused),
        "more after the end": with_blobs(index, blob(1, b"11") + two + BLOBS_END + b"\1", "more than its change set"),
        "sparse": sparse_ok,
        "sparse over the limit": with_blobs(in_demo(c_file("n", size=big), 1), b"", "list of changes was refused"),
    })


def test_more_after_the_set(h):
    """The set was complete: what the guest does then harms only itself."""
    def after(stage, what):
        def f(h):
            w = Worker(h, index=INDEX, blobs=BLOBS).to(stage)
            if what is None:
                w.sides["guest"].close()
            else:
                w.guest(what)
            for _ in range(5):
                w.turn(0.01)
            if stage == "PUBLISH":
                w.sides["mon"].send(hostile.link(hostile.BROKEN, -32, text=b"QEMU ended"))
                w.turn(0.01)
                w.sides["mon"].send(hostile.link(hostile.OK))
            w.end(good=True)
            assert any(t == hostile.C_STAGED for t, _ in w.ctl), w.describe()
            assert w.failed is None and w.client_failed is None, (w.failed, w.client_failed)
        return f
    lies = {"gone": None, "data": frame(DATA, EXPORT, OUT, b"x"), "garbage": b"\0" * 100,
            "exited": frame(CONTROL, 0, 0, exited(9)), "done": frame(CONTROL, 0, 0, done(77))}
    run_all(h, {f"{n} in {s}": after(s, b) for s in ("PUBLISH", "OFF") for n, b in lies.items()})


# ---- QEMU's monitor ----

def test_qmp_lies(h):
    def say(b, stage="RUN", times=1):
        def f(h):
            w = Worker(h, qmp=lambda w, c: False, index=INDEX, blobs=BLOBS)
            s = w.sides["qmp"]
            s.send(b if stage == "first" else b'{"QMP": {"version": {}, "capabilities": []}}\r\n')
            w.to("RUN")
            for _ in range(times if stage != "first" else 0):
                s.send(b)
            t0 = time.monotonic()
            while s.queue and s.open and time.monotonic() - t0 < 10:
                w.turn(0.02)
            for _ in range(3):
                w.turn(0.02)
            assert w.p.poll() is None, w.describe()
            w.guest(frame(EOF, 1, OUT) + frame(EOF, 1, ERR))
            w.msg(exited())
            w.until(lambda: any(t == hostile.C_EXITED for t, _ in w.ctl))
            w.say(hostile.ctl_finish())
            w.end(good=True)        # the session does not need QMP
            assert sum(t == hostile.C_NOTE for t, _ in w.ctl) <= 40, w.describe()
        return f

    def ev(name, data="{}"):
        return (f'{{"event": "{name}", "data": {data}, "timestamp": {{"seconds": 1, "microseconds": 1}}}}'
                "\r\n").encode()
    stop = ev("BLOCK_IO_ERROR", '{"device": "", "node-name": "scratch", "operation": "write", "action": '
              '"stop", "nospace": true, "reason": "x"}')
    run_all(h, {
        "no greeting": say(b'{"return": {}}\r\n', "first"),
        "garbage first": say(b"\0\xff\x1b[2J\r\n", "first"),
        "garbage": say(b"\0\xff\x1b[2J\r\n"),
        "endless line": say(b"x" * 65536, times=40),
        "deep nesting": say(b"[" * 60000 + b"\r\n"),
        "answers to nothing": say(b'{"return": {}, "id": 77}\r\n', times=1000),
        "events": say(ev("STOP"), times=20000),
        "panics": say(ev("GUEST_PANICKED", '{"action": "run"}'), times=150),
        "full and not full": say(stop + ev("RESUME"), times=90),
        "greeting again": say(b'{"QMP": {"version": {}, "capabilities": []}}\r\n'),
    })


# ---- cloche-disk ----

def test_disk_lies(h):
    def at(stage, b, **end):
        def f(h):
            w = Worker(h, index=many_index(), blobs=MANY_BLOBS,
                       scanned=stage != "BOOT", silence_ms=1500)
            if stage == "BOOT":
                w.until(lambda: "MOUNT_ROOT" in w.host_seq)
            else:
                w.auto_exit = False
                w.to("RUN")
            for x in b if isinstance(b, list) else [b]:
                w.sides["disk"].send(x)
            for _ in range(5):
                w.turn(0.01)
            if stage == "RUN":
                w.guest(frame(EOF, 1, OUT) + frame(EOF, 1, ERR))
                w.msg(exited())
                w.until(lambda: any(t == hostile.C_EXITED for t, _ in w.ctl))
                w.say(hostile.ctl_finish())
            w.end(**end)
        return f

    def asked(answer, **end):
        """In the export: a hook answers the first question, nobody the others."""
        def f(h):
            def on_disk(w, t, b):
                if t == hostile.D_HASH and not getattr(w, "one", False):
                    w.one = True
                    answer(w, struct.unpack_from("<I", b, 4)[0])
                return t == hostile.D_HASH
            w = Worker(h, index=many_index(), blobs=MANY_BLOBS, on_disk=on_disk, silence_ms=1000)
            w.exec()
            w.end(**end)
        return f

    def msg(t, body=b""):
        return struct.pack("<HH", t, 0) + body

    rdy = msg(hostile.D_READY_DONE, bytes(4))
    changed = msg(hostile.D_CHANGED, struct.pack("<I", 0xFFFFFFFF))
    hash_done = msg(hostile.D_HASH_DONE, struct.pack("<Ii", 3, 0) + bytes(32))
    run_all(h, {
        "garbage before": at("BOOT", b"\xff" * 40, refused="cloche-disk"),
        "gone before": gone_before,
        "cannot serve": at("BOOT", msg(hostile.D_READY_DONE, struct.pack("<i", -5)), refused="cannot serve"),
        "folder replaced": at("BOOT", msg(hostile.D_READY_DONE, struct.pack("<i", -116)), refused="replaced"),
        "status 1": at("BOOT", msg(hostile.D_READY_DONE, struct.pack("<i", 1)), refused="cloche-disk"),
        "ready twice": at("RUN", [rdy] * 100, good=True),
        "hash unasked": at("RUN", hash_done, good=True),
        "data unasked": at("RUN", msg(hostile.D_READ_DONE, struct.pack("<IiQ", 1, 0, 0) + hostile.s32(b"x")), good=True),
        "our own message": at("RUN", msg(hostile.D_SHUTDOWN), good=True),
        "garbage": at("RUN", b"\xff" * 40, good=True),
        "too long": at("RUN", b"\xff" * 40000, good=True),
        "changed, many times": at("RUN", [changed] * 20000, good=True),
        "freeze done, many times": at("RUN", [msg(hostile.D_FREEZE_DONE, struct.pack("<i", -28))] * 5000, good=True),
        "answer for another": asked(lambda w, e: w.hash_done(e + 1), refused="nobody asked"),
        "too many answers": asked(lambda w, e: [w.hash_done(e + i, -5) for i in range(300)], good=True),
        "gone in the export": asked(lambda w, e: w.sides["disk"].close(), good=True),
        "garbage in the export": asked(lambda w, e: w.disk(77, b"x"), good=True),
        "errors": asked(lambda w, e: [w.hash_done(e + i, -5) for i in range(MANY)], good=True),
    })


def gone_before(h):
    w = Worker(h, scanned=False)
    w.until(lambda: "MOUNT_ROOT" in w.host_seq)
    w.sides["disk"].close()
    w.end(refused="cloche-disk")


# ---- the client ----

def test_client_lies(h):
    stages = ("BOOT", "SETUP", "UP", "RUN", "EXPORT", "PUBLISH", "OFF")

    def gone(stage):
        def f(h):
            w = Worker(h, index=INDEX, blobs=BLOBS, silence_ms=500).to(stage)
            w.hooks.pop("on_guest")
            w.sides["client"].close()
            if stage == "EXPORT":       # the guest was held there: go on
                w.behave("EXPORT", w.host_seq["EXPORT"], b"")
            if stage == "OFF":
                w.behave("POWEROFF", w.host_seq["POWEROFF"], b"")
            if stage == "PUBLISH":
                w.sides["mon"].send(hostile.link(hostile.OK))
            # started work is never lost; before that there is none
            if stage in ("BOOT", "SETUP"):
                w.end(refused="interrupted", client_told=False)
            elif stage == "UP":
                while w.p.poll() is None:
                    w.turn(0.02)
                w.end()
                assert any(m[0] == hostile.UNCHANGED for m in w.links)
            else:
                w.end(good=True)
        return f

    def lie(stage, *frames, good=True):
        """The client is cut off, and what its command did is kept."""
        def f(h):
            w = Worker(h, index=INDEX, blobs=BLOBS, silence_ms=800).to(stage)
            w.hooks.pop("on_guest")
            for x in frames:
                w.sides["client"].send(x)
            t0 = time.monotonic()
            while w.sides["client"].queue and w.p.poll() is None and time.monotonic() - t0 < 10:
                w.turn(0.02)
            w.end(good=good and stage != "UP")
        return f

    def ctl(b):
        return frame(CONTROL, 0, 0, b)

    def flood(stage, b, times):
        """Nothing but its own share of time is taken."""
        def f(h):
            w = Worker(h, index=INDEX, blobs=BLOBS, silence_ms=800).to(stage)
            w.hooks.pop("on_guest")
            for _ in range(times):
                w.sides["client"].send(b)
            t0 = time.monotonic()
            while w.sides["client"].queue and w.p.poll() is None and time.monotonic() - t0 < 15:
                w.turn(0.02)
            if w.p.poll() is None:
                w.sides["client"].close()
            w.end(good=True)
        return f

    def deaf(h):
        """It reads nothing at all: the work is still taken out."""
        w = Worker(h, index=INDEX, blobs=BLOBS, auto_exit=False).to("RUN")
        w.sides["client"].reading = False
        w.guest(frame(DATA, 1, OUT, b"x" * 60000) * 4 + frame(EOF, 1, OUT) + frame(EOF, 1, ERR))
        w.msg(exited())
        w.say(hostile.ctl_finish())
        w.end(good=True)

    run_all(h, {f"gone in {s}": gone(s) for s in stages} | {
        "garbage": lie("RUN", b"\0" * 64),
        "worker's message": lie("RUN", ctl(struct.pack("<H", hostile.C_UP))),
        "unknown message": lie("RUN", ctl(struct.pack("<H", 6))),
        "empty exec": lie("RUN", ctl(struct.pack("<H", hostile.C_EXEC))),
        "exec again": lie("RUN", ctl(hostile.ctl_exec())),
        "exec on the export's channel": lie("RUN", ctl(hostile.ctl_exec(EXPORT))),
        "exec on channel 0": lie("RUN", ctl(hostile.ctl_exec(0))),
        "exec with a relative folder": lie("RUN", ctl(hostile.ctl_exec(2, cwd=b"x"))),
        "exec in the export": lie("EXPORT", ctl(hostile.ctl_exec(2)), good=None),
        "no words": lie("RUN", ctl(hostile.ctl_args([]))),
        "a word with NUL": lie("RUN", ctl(hostile.ctl_args([b"a\0b"]))),
        "a variable without name": lie("RUN", ctl(hostile.ctl_args([b"=x"], 1))),
        "words in the export": lie("EXPORT", ctl(hostile.ctl_args([b"x"])), good=None),
        "status 256": lie("RUN", ctl(hostile.ctl_finish(256))),
        "signal 0": lie("RUN", ctl(struct.pack("<HHB", hostile.C_SIGNAL, 1, 0))),
        "data unopened": lie("RUN", frame(DATA, 7, IN, b"x")),
        "data on the guest's stream": lie("RUN", frame(DATA, 1, OUT, b"x")),
        "credit over the limit": lie("RUN", frame(CREDIT, 1, OUT, struct.pack("<I", 1 << 20))),
        "over its credit": lie("RUN", *[frame(DATA, 1, IN, b"x" * 60000)] * 10),
        "sizes": flood("RUN", ctl(struct.pack("<HHHH", hostile.C_RESIZE, 1, 1, 1)), 50000),
        "signals": flood("RUN", ctl(struct.pack("<HHB", hostile.C_SIGNAL, 1, 10)), 50000),
        "words": flood("RUN", ctl(hostile.ctl_args([b"x" * 30000])), 500),
        "finish": flood("RUN", ctl(hostile.ctl_finish()), 50000),
        "deaf": deaf,
    })
