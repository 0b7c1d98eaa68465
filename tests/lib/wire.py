# SPDX-License-Identifier: Apache-2.0
"""The control channel once more, in Python: an implementation of its own, written
from docs/protocol.md, as oracle for src/wire and as driver of guests in tests.

Frames, streams with credit, messages, change stream. Nothing here imports or
calls the C code. Every departure of the peer raises Lie.
"""
import collections
import hashlib
import ipaddress
import os
import select
import struct
import time

MAGIC = 0xC10C
CONTROL, DATA, EOF, CREDIT, RESET = 1, 2, 3, 4, 5
IN, OUT, ERR = 0, 1, 2
PAYLOAD_MAX = 64 * 1024
CREDIT_MAX = 256 * 1024

# message types by name
HOST = ["HELLO", "CLOCK", "ENTROPY", "SETUP", "MOUNT_ROOT", "MOUNT_WORK", "FILE", "ARGS", "EXEC",
        "RESIZE", "SIGNAL", "EXPORT", "WANT", "THAW", "SYNC", "POWEROFF", "NET", "NET_TEST",
        "CONNECT", "ACCOUNT"]
GUEST = ["READY", "DONE", "EXITED", "OOM", "LOG"]
TYPE = {n: i + 1 for i, n in enumerate(HOST)}
TYPE.update({n: i + 64 for i, n in enumerate(GUEST)})
NAME = {v: k for k, v in TYPE.items()}

EXEC_PTY, EXEC_ROOT = 1, 2
SETUP_SUDO = 1
FILE_APPEND, FILE_DIR, FILE_EXTEND, FILE_KEEP = 1, 2, 4, 8
WANT_LAST = 1


class Lie(Exception):
    """The peer broke the protocol."""


class Closed(Exception):
    """The peer is gone."""


def frame(kind, channel=0, stream=0, payload=b""):
    return struct.pack("<HBBHHI", MAGIC, kind, stream, channel, 0, len(payload)) + payload


def parse_frame(buf):
    """(kind, stream, channel, payload, used) or None when cut."""
    if len(buf) < 12:
        return None
    magic, kind, stream, channel, zero, n = struct.unpack_from("<HBBHHI", buf)
    if magic != MAGIC or zero != 0 or not CONTROL <= kind <= RESET:
        raise Lie(f"header {bytes(buf[:12]).hex()}")
    if kind == CONTROL:
        if channel or stream or not 1 <= n <= PAYLOAD_MAX:
            raise Lie("control frame")
    else:
        if not 1 <= channel <= 255 or stream > 2:
            raise Lie(f"channel {channel} stream {stream}")
        want = {DATA: (1, PAYLOAD_MAX), CREDIT: (4, 4)}.get(kind, (0, 0))
        if not want[0] <= n <= want[1]:
            raise Lie(f"length {n} of type {kind}")
    if len(buf) < 12 + n:
        return None
    return kind, stream, channel, bytes(buf[12:12 + n]), 12 + n


def s16(b):
    if isinstance(b, str):
        b = b.encode()
    return struct.pack("<H", len(b)) + b


def message(name, seq, *parts):
    return struct.pack("<HI", TYPE[name], seq) + b"".join(parts)


class Reader:
    def __init__(self, b):
        self.b, self.at = b, 0

    def take(self, n):
        if n > len(self.b) - self.at:
            raise Lie("cut short")
        v = self.b[self.at:self.at + n]
        self.at += n
        return v

    def num(self, n):
        return int.from_bytes(self.take(n), "little")

    def str16(self):
        return self.take(self.num(2))

    def end(self):
        if self.at != len(self.b):
            raise Lie(f"{len(self.b) - self.at} bytes left over")


Msg = collections.namedtuple("Msg", "name seq f")


def parse_guest(b):
    r = Reader(b)
    t, seq = r.num(2), r.num(4)
    name = NAME.get(t)
    if name not in GUEST:
        raise Lie(f"message type {t}")
    if name == "READY":
        f = {"version": r.num(4), "kernel": r.str16(), "init_ns": r.num(8), "ready_ns": r.num(8)}
    elif name == "DONE":
        f = {"ref": r.num(4), "code": -r.num(4), "text": r.str16()}
        if f["code"] == 0 and f["text"]:
            raise Lie("text of a success")
    elif name == "EXITED":
        f = {"channel": r.num(2), "by_signal": r.num(1), "code": r.num(1), "oom": r.num(1)}
    elif name == "OOM":
        f = {"process": r.str16()}
    else:
        f = {"level": r.num(1), "text": r.str16()}
    r.end()
    return Msg(name, seq, f)


# ---- change stream ----

C_DIR, C_UP, C_FILE, C_LINK, C_WHITEOUT, C_SPECIAL, C_END = 1, 2, 3, 4, 5, 6, 7
C_BLOB, C_EXTENT, C_BLOB_END, C_BLOBS_END = 16, 17, 18, 19
OPAQUE, SUSPECT, HARDLINK = 1, 2, 4

Change = collections.namedtuple("Change", "path type flags mode mtime size hash bytes ordinal")


def parse_record(buf, at):
    """(type, Reader of its fields, offset of the next) or None when cut."""
    if len(buf) - at < 5:
        return None
    n = int.from_bytes(buf[at + 1:at + 5], "little")
    if n > 64 * 1024:
        raise Lie(f"record of {n} bytes")
    if len(buf) - at < 5 + n:
        return None
    return buf[at], Reader(bytes(buf[at + 5:at + 5 + n])), at + 5 + n


def parse_index(buf):
    """All records of phase 1 as Changes with whole paths, checked to be a walk of a tree."""
    out, stack, at, ordinal = [], [[b"", None]], 0, 0
    while True:
        got = parse_record(buf, at)
        if got is None:
            raise Lie("index is cut")
        t, r, at = got
        flags = mode = mtime = size = 0
        h = text = None
        if t == C_END:
            if r.num(4) != ordinal or len(stack) != 1:
                raise Lie("end")
            r.end()
            return out, at
        if t == C_UP:
            r.end()
            stack.pop()
            if not stack:
                raise Lie("up at the top")
            ordinal += 1
            continue
        if t in (C_DIR, C_FILE):
            flags, mode, mtime = r.num(1), r.num(2), struct.unpack("<q", r.take(8))[0]
            if t == C_FILE:
                size, h = r.num(8), r.take(32)
            name = r.take(r.num(1))
        elif t == C_LINK:
            mtime = struct.unpack("<q", r.take(8))[0]
            name = r.take(r.num(1))
            text = r.str16()
        elif t == C_WHITEOUT:
            name = r.take(r.num(1))
        elif t == C_SPECIAL:
            mode = r.num(4)
            name = r.take(r.num(1))
        else:
            raise Lie(f"type {t} in the index")
        r.end()
        if not name or b"/" in name or b"\0" in name or name in (b".", b".."):
            raise Lie(f"name {name!r}")
        if stack[-1][1] is not None and name <= stack[-1][1]:
            raise Lie(f"{name!r} after {stack[-1][1]!r}")
        stack[-1][1] = name
        path = stack[-1][0] + b"/" + name if len(stack) > 1 else name
        out.append(Change(path, t, flags, mode, mtime, size, h, text, ordinal))
        ordinal += 1
        if t == C_DIR:
            stack.append([path, None])


def hash_bytes(b):
    return hashlib.blake2b(b, digest_size=32).digest()


class BlobReader:
    """Phase 2, fed in pieces: sizes, hashes and data bytes, without keeping contents."""

    def __init__(self, keep_max=1 << 20):
        self.buf = bytearray()
        self.blobs = {}  # ordinal: {size, hash, data (sum of extents), content or None}
        self.cur = None
        self.ended = False
        self.keep_max = keep_max

    def feed(self, b):
        self.buf += b
        at = 0
        while True:
            got = parse_record(self.buf, at)
            if got is None:
                break
            t, r, at = got
            self.record(t, r)
        del self.buf[:at]

    def fill(self, to):
        c = self.cur
        while c["at"] < to:
            n = min(to - c["at"], 1 << 20)
            z = bytes(n)
            c["h"].update(z)
            if c["content"] is not None:
                c["content"] += z
            c["at"] += n

    def record(self, t, r):
        if self.ended:
            raise Lie("record after the end")
        c = self.cur
        if t == C_BLOB and c is None:
            ordinal, size = r.num(4), r.num(8)
            if self.blobs and ordinal <= max(self.blobs):
                raise Lie("blobs descend")
            self.cur = {"size": size, "at": 0, "data": 0, "h": hashlib.blake2b(digest_size=32),
                        "content": bytearray() if size <= self.keep_max else None}
            self.blobs[ordinal] = self.cur
        elif t == C_EXTENT and c is not None:
            off = r.num(8)
            b = r.take(len(r.b) - 8)
            if off < c["at"] or off + len(b) > c["size"] or not b:
                raise Lie("extent")
            self.fill(off)
            c["h"].update(b)
            if c["content"] is not None:
                c["content"] += b
            c["at"] += len(b)
            c["data"] += len(b)
        elif t == C_BLOB_END and c is not None:
            self.fill(c["size"])
            c["hash"] = c.pop("h").digest()
            self.cur = None
        elif t == C_BLOBS_END and c is None:
            self.ended = True
        else:
            raise Lie(f"type {t} in the blobs")
        r.end()


# ---- the host's end ----

class Channel:
    def __init__(self):
        self.out = {OUT: bytearray(), ERR: bytearray()}
        self.window = {OUT: CREDIT_MAX, ERR: CREDIT_MAX}   # the guest may send
        self.owed = {OUT: 0, ERR: 0}                       # received, not granted anew
        self.ended = {IN: False, OUT: False, ERR: False}   # by the sender
        self.reset = {OUT: False, ERR: False}
        self.credit = CREDIT_MAX                           # we may send
        self.exited = None
        self.in_reset = False
        self.sink = {}                                     # stream: function of bytes
        self.hold = False                                  # grant nothing: a slow reader


class Host:
    """A blocking driver of one guest. All waiting goes through turn()."""

    def __init__(self, sock):
        self.sock = sock
        sock.setblocking(False)
        self.buf = bytearray()
        self.queue = bytearray()
        self.seq = 0
        self.done = {}
        self.ready = None
        self.logs, self.ooms = [], []
        self.ch = {}
        self.gone = False

    # frames

    def send(self, *a, **k):
        self.queue += frame(*a, **k)

    def turn(self, timeout_s):
        """One wait for something to happen. Raises Closed once the guest is gone."""
        if self.gone:
            raise Closed("the guest is gone")
        w = [self.sock] if self.queue else []
        r, w, _ = select.select([self.sock], w, [], timeout_s)
        if w:
            try:
                del self.queue[:self.sock.send(self.queue[:256 * 1024])]
            except BlockingIOError:
                pass
            except OSError:
                self.gone = True
        if r:
            try:
                b = self.sock.recv(256 * 1024)
            except BlockingIOError:
                return
            except OSError:
                b = b""
            if not b:
                self.gone = True
                return
            self.buf += b
            at = 0
            while True:
                f = parse_frame(memoryview(self.buf)[at:at + 12 + PAYLOAD_MAX])
                if f is None:
                    break
                at += f[4]
                self.take(*f[:4])
            del self.buf[:at]

    def until(self, what, timeout_s=60, why=""):
        end = time.monotonic() + timeout_s
        while not what():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"not within {timeout_s} s: {why}")
            self.turn(min(left, 0.5))

    def take(self, kind, stream, channel, payload):
        if kind == CONTROL:
            return self.take_message(parse_guest(payload))
        c = self.ch.get(channel)
        if kind == CREDIT:
            n = int.from_bytes(payload, "little")
            if c is None:
                return None
            if stream != IN or n == 0 or c.credit + n > CREDIT_MAX:
                raise Lie(f"credit of {n}")
            c.credit += n
            return None
        if kind == RESET and stream == IN:
            if c is not None and not c.ended[IN]:
                c.in_reset = c.ended[IN] = True
                self.send(RESET, channel, IN)
            return None
        if c is None or stream == IN or c.ended[stream]:
            raise Lie(f"frame of type {kind} for channel {channel} stream {stream}")
        if kind == DATA:
            if len(payload) > c.window[stream]:
                raise Lie("credit exceeded")
            c.window[stream] -= len(payload)
            if stream in c.sink:
                c.sink[stream](payload)
            else:
                c.out[stream] += payload
            c.owed[stream] += len(payload)
            if not c.hold:
                self.grant(channel, stream)
        else:
            c.ended[stream] = True
            c.reset[stream] = kind == RESET
        return None

    def grant(self, channel, stream):
        c = self.ch[channel]
        if c.owed[stream] and not c.ended[stream]:
            self.send(CREDIT, channel, stream, struct.pack("<I", c.owed[stream]))
            c.window[stream] += c.owed[stream]
            c.owed[stream] = 0

    def take_message(self, m):
        if m.name == "READY":
            self.ready = m.f
        elif m.name == "DONE":
            if m.f["ref"] in self.done or not 1 <= m.f["ref"] <= self.seq:
                raise Lie(f"DONE for {m.f['ref']}")
            self.done[m.f["ref"]] = m.f
        elif m.name == "EXITED":
            c = self.ch.get(m.f["channel"])
            if c is None or c.exited or not (c.ended[OUT] and c.ended[ERR]):
                raise Lie("EXITED before the end of the output")
            c.exited = m.f
        elif m.name == "OOM":
            self.ooms.append(m.f["process"])
        else:
            self.logs.append(m.f["text"].decode(errors="replace"))

    # messages

    def post(self, name, *parts):
        self.seq += 1
        self.send(CONTROL, 0, 0, message(name, self.seq, *parts))
        return self.seq

    def wait(self, seq, timeout_s=60):
        self.until(lambda: seq in self.done, timeout_s, f"message {seq}")
        return self.done[seq]["code"], self.done[seq]["text"].decode(errors="replace")

    def call(self, name, *parts, timeout_s=60):
        """Send and wait; AssertionError unless it succeeds."""
        code, text = self.wait(self.post(name, *parts), timeout_s)
        assert code == 0, f"{name}: {code} {text}"

    def hello(self, timeout_s=60):
        self.call("HELLO", struct.pack("<I", 1), timeout_s=timeout_s)
        return self.ready

    def clock(self, ns=None):
        self.call("CLOCK", struct.pack("<Q", ns if ns is not None else time.time_ns()))

    def entropy(self, b=None):
        self.call("ENTROPY", s16(b or os.urandom(64)))

    def setup(self, hostname="demo", flags=0, tmp_bytes=64 << 20, sync_ms=0):
        self.call("SETUP", s16(hostname), struct.pack("<IQII", flags, tmp_bytes, sync_ms, 0))

    def mount_root(self, layers=("base",), scratch="scratch"):
        self.call("MOUNT_ROOT", bytes([len(layers)]), *[s16(x) for x in layers], s16(scratch))

    def account(self, user="", home=""):
        self.call("ACCOUNT", s16(user), s16(home))

    def mount_work(self, projects, disk="work"):
        self.call("MOUNT_WORK", s16(disk), bytes([len(projects)]), *[s16(x) for x in projects])

    def file(self, path, content=b"", mode=0o644, uid=0, gid=0, flags=0):
        n = 32 * 1024
        for at in range(0, max(len(content), 1), n):
            f = flags & ~(FILE_EXTEND | FILE_KEEP) | FILE_APPEND if at else flags
            self.call("FILE", s16(path), struct.pack("<IIII", mode, uid, gid, f),
                      s16(content[at:at + n]))

    def free_channel(self):
        for i in range(1, 256):
            c = self.ch.get(i)
            if c is None or (c.exited and all(c.ended.values())):
                return i
        raise AssertionError("no channel is free")

    def start(self, argv, env=None, cwd="/", pty=None, root=False, uid=1000, gid=1000, login=False):
        """Post ARGS and EXEC; (channel, sequence of EXEC)."""
        if env is None:
            env = ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/home/agent",
                   "TERM=xterm-256color", "LC_ALL=C"]
        for is_env, words in ((0, argv), (1, env)):
            at = 0
            while at < len(words):
                n = size = 0
                while at + n < len(words) and n < 4096 and size < 60000:
                    size += 2 + len(words[at + n])
                    if size < 60000 or n == 0:
                        n += 1
                self.post("ARGS", struct.pack("<BH", is_env, n), *[s16(x) for x in words[at:at + n]])
                at += n
        ch = self.free_channel()
        self.ch[ch] = Channel()
        rows, cols = pty or (0, 0)
        flags = (EXEC_PTY if pty else 0) | (EXEC_ROOT if root else 0)
        seq = self.post("EXEC", struct.pack("<HIII", ch, flags, uid, gid), s16(cwd),
                        struct.pack("<HHB", rows, cols, login))
        return ch, seq

    def write(self, ch, b, timeout_s=60):
        c = self.ch[ch]
        while b and not c.ended[IN]:
            self.until(lambda: c.credit > 0 or c.ended[IN], timeout_s, "credit")
            n = min(len(b), c.credit, PAYLOAD_MAX)
            if n and not c.ended[IN]:
                self.send(DATA, ch, IN, bytes(b[:n]))
                c.credit -= n
                b = b[n:]
            if len(self.queue) > 1 << 20:
                self.until(lambda: len(self.queue) < 1 << 18, timeout_s, "queue")

    def eof(self, ch):
        c = self.ch[ch]
        if not c.ended[IN]:
            c.ended[IN] = True
            self.send(EOF, ch, IN)

    def wait_exit(self, ch, timeout_s=60):
        """The exit status as a shell says it."""
        c = self.ch[ch]
        self.until(lambda: c.exited, timeout_s, f"exit of channel {ch}")
        return c.exited["code"] + (128 if c.exited["by_signal"] else 0)

    Run = collections.namedtuple("Run", "rc out err oom")

    def run(self, *argv, stdin=b"", timeout_s=60, **k):
        ch, seq = self.start(list(argv), **k)
        code, text = self.wait(seq, timeout_s)
        if code:
            raise OSError(-code, text)
        c = self.ch[ch]
        if stdin is not None:
            self.write(ch, stdin, timeout_s)
            self.eof(ch)
        rc = self.wait_exit(ch, timeout_s)
        self.eof(ch)
        return self.Run(rc, bytes(c.out[OUT]), bytes(c.out[ERR]), c.exited["oom"])

    def net(self, address, gateway, dns, prefix=16, mtu=16000, search=()):
        self.call("NET", *[ipaddress.ip_address(a).packed[::-1] for a in (address, gateway, dns)],
                  struct.pack("<BHB", prefix, mtu, len(search)), *[s16(x) for x in search])

    def net_test(self, timeout_s=60):
        return self.wait(self.post("NET_TEST"), timeout_s)

    def connect(self, port, timeout_s=60):
        """A connection to a server in the guest: its channel; OSError when there is none."""
        ch = self.free_channel()
        self.ch[ch] = c = Channel()
        code, text = self.wait(self.post("CONNECT", struct.pack("<HH", ch, port)), timeout_s)
        if code:
            self.until(lambda: c.ended[OUT] and c.ended[ERR], 10, "reset of the connection")
            c.exited = True
            raise OSError(-code, text)
        return ch

    def hang_up(self, ch, timeout_s=60):
        """Ends our side, waits for the guest's."""
        c = self.ch[ch]
        self.eof(ch)
        self.until(lambda: c.ended[OUT] and c.ended[ERR], timeout_s, "end of the connection")
        c.exited = True

    def export(self, records_max=2000000, bytes_max=16 << 30, timeout_s=120):
        """(changes, channel); OSError with the guest's reason."""
        ch = self.free_channel()
        self.ch[ch] = c = Channel()
        seq = self.post("EXPORT", struct.pack("<HIQ", ch, records_max, bytes_max))
        code, text = self.wait(seq, timeout_s)
        if code:
            self.until(lambda: c.ended[OUT] and c.ended[ERR], 10, "reset of the export")
            c.exited, c.ended[IN] = True, True
            raise OSError(-code, text)
        self.index = bytes(c.out[OUT])
        changes, used = parse_index(self.index)
        if used != len(c.out[OUT]):
            raise Lie("bytes behind the index")
        del c.out[OUT][:]
        return changes, ch

    def want(self, ch, ordinals, timeout_s=300, keep_max=1 << 20, tape=None):
        """Phase 2. {ordinal: blob}; @tape, a bytearray: the stream itself."""
        c = self.ch[ch]
        r = BlobReader(keep_max)

        def feed(data):
            if tape is not None:
                tape.extend(data)
            r.feed(data)
        c.sink[OUT] = feed
        ranges = []
        for o in sorted(ordinals):
            if ranges and ranges[-1][0] + ranges[-1][1] == o:
                ranges[-1][1] += 1
            else:
                ranges.append([o, 1])
        while True:
            part, ranges = ranges[:4096], ranges[4096:]
            seq = self.post("WANT", struct.pack("<IH", 0 if ranges else WANT_LAST, len(part)),
                            *[struct.pack("<II", *x) for x in part])
            code, text = self.wait(seq, timeout_s)
            if code:
                raise OSError(-code, text)
            if not ranges:
                break
        self.until(lambda: c.ended[OUT], 10, "end of the blobs")
        if not r.ended or r.buf:
            raise Lie("blobs are cut")
        c.exited = True
        c.ended[IN] = True
        return r.blobs

    def poweroff(self, timeout_s=20):
        """Seconds from the request to the end of the machine."""
        t0 = time.monotonic()
        seq = self.post("POWEROFF")
        code, text = self.wait(seq, timeout_s)
        assert code == 0, text
        try:
            self.until(lambda: self.gone, timeout_s, "end of the machine")
        except Closed:
            pass
        return time.monotonic() - t0
