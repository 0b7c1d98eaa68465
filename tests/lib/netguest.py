# SPDX-License-Identifier: Apache-2.0
"""A sandbox that a network test talks to: tests/tools/netprobe.c runs in it, and
commands go in and answers come out while the test changes the world around it.

    with Guest(h, p, flags=["--allow-host", "a.test"]) as g:
        g.sh("curl -s http://a.test/")              # (status, output)
        g.talk("203.0.113.10", 80, "s=hello", "e")  # what the probe says

Builders of the frames and questions that an honest kernel would not send are here, too.
"""
import collections
import itertools
import os
import re
import shutil
import socket
import struct
import time

GUEST, GATEWAY, SERVICE = "10.87.255.2", "10.87.0.1", "10.87.0.2"
GATEWAY_MAC = bytes.fromhex("02c10c000001")
GUEST_MAC = bytes.fromhex("02c10c57ff02")


def escape(b):
    b = b.encode() if isinstance(b, str) else bytes(b)
    return "".join(chr(c) if 0x20 <= c < 0x7f and c != 0x5c else f"\\x{c:02x}" for c in b)


def unescape(s):
    return re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), s.encode())


class Answer(str):
    """An answer of the probe; `got` has the data in it, of each read."""

    @property
    def got(self):
        return [unescape(x[4:]) for x in self.split(" ") if x.startswith("got=")]

    @property
    def data(self):
        return b"".join(self.got)

    @property
    def frames(self):
        return [unescape(x[3:]) for x in self.split(" ") if x.startswith("in=")]

    @property
    def ms(self):
        m = re.search(r"\bms=(\d+)", self)
        return int(m[1]) if m else None

    @property
    def port(self):
        """The guest's own, which the event log has as guest_port."""
        m = re.search(r"\bport=(\d+)", self)
        return int(m[1]) if m else None

    @property
    def word(self):
        return self.split(" ")[0]


class Guest:
    """@root: the probe is root in the guest (raw sockets). The run ends with the block."""

    def __init__(self, h, project, flags=(), root=True, ready_s=180, apply="none"):
        self.h, self.ids, self.lines = h, itertools.count(1), {}
        probe = os.path.join(h.build, "tests", "tools", "netprobe")
        shutil.copy(probe, os.path.join(project, "netprobe"))
        h.give(os.path.join(project, "netprobe"))
        self.p = h.start(*h.shell_argv(project, ["./netprobe"],
                                       [*flags, f"--apply={apply}", *(["--user", "root"] if root else [])]))
        os.set_blocking(self.p.stdout.fileno(), False)
        self.buf = b""
        self.root = root
        self.wait(self.begin("sh", "0", "true"), ready_s)

    # commands

    def begin(self, *words):
        """Starts a command; its id for wait()."""
        ident = str(next(self.ids))
        line = "\t".join([ident, *(escape(w) for w in words)]) + "\n"
        self.p.stdin.write(line.encode())
        self.p.stdin.flush()
        return ident

    def wait(self, ident, timeout_s=60):
        """The answer. "7+" is the first one of a command that gives two."""
        end = time.monotonic() + timeout_s
        while ident not in self.lines:
            if time.monotonic() > end:
                raise AssertionError(f"no answer to command {ident} in {timeout_s} s")
            try:
                got = os.read(self.p.stdout.fileno(), 65536)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            if not got:
                self.p.stdout.close()
                self.p.stdout = None
                err = self.h.finish(self.p, timeout_s=60)
                raise AssertionError(f"the sandbox ended: exit {err.rc}\n{err.errtext[-4000:]}")
            *lines, self.buf = (self.buf + got).split(b"\n")
            for line in lines:
                key, _, text = line.decode("latin-1").partition(" ")
                self.lines[key] = Answer(text)
        return self.lines.pop(ident)

    def ask(self, *words, timeout_s=60):
        return self.wait(self.begin(*[str(w) if not isinstance(w, bytes) else w for w in words]), timeout_s)

    def all(self, commands, timeout_s=60):
        """Many at one time; the answers in their order."""
        ids = [self.begin(*[str(w) if not isinstance(w, bytes) else w for w in c]) for c in commands]
        return [self.wait(i, timeout_s) for i in ids]

    def sh(self, script, uid=1000, timeout_s=120):
        """(exit status, output) of a shell command, as the agent by default."""
        a = self.ask("sh", str(uid if self.root else 0), script, timeout_s=timeout_s)
        m = re.match(r"rc=(\d+) out=(.*)", a)
        return int(m[1]), unescape(m[2]).decode(errors="replace")

    def talk(self, addr, port, *steps):
        return self.ask("talk", addr, port, *steps)

    def udp(self, addr, port, data, ms=1500):
        return self.ask("udp", addr, port, ms, data)

    def resolve(self, name, qtype=1, proto="udp", server=GATEWAY):
        """A question to a resolver, by default ours: a Reply, or None when there is none."""
        q = question(name, qtype)
        if proto == "udp":
            a = self.udp(server, 53, q, 6000)
        else:
            a = self.talk(server, 53, b"s=" + struct.pack(">H", len(q)) + q, "t=6000", "r=2000")
        data = a.data[2:] if proto == "tcp" else a.data
        return parse_reply(data) if data else None

    # the end

    def finish(self, timeout_s=60):
        """Ends the probe: the Result of `cloche run`."""
        self.p.stdin.close()
        self.p.stdin = None
        os.set_blocking(self.p.stdout.fileno(), True)
        return self.h.finish(self.p, timeout_s=timeout_s)

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc):
        if self.p.poll() is None and self.p.stdin:
            if kind:
                self.p.terminate()
            try:
                self.result = self.finish()
            except AssertionError:
                if not kind:
                    raise


# --- DNS --------------------------------------------------------------------------

Reply = collections.namedtuple("Reply", "rcode addrs ttls records flags")


def dns_labels(name):
    if isinstance(name, bytes):
        return name
    return b"".join(bytes([len(x)]) + x.encode("latin-1") for x in name.split(".") if x) + b"\0"


def question(name, qtype=1, ident=0x4321, flags=0x0100, qclass=1):
    return struct.pack(">HHHHHH", ident, flags, 1, 0, 0, 0) + dns_labels(name) + struct.pack(">HH", qtype, qclass)


def _skip_name(m, at):
    while m[at]:
        if m[at] >= 0xc0:
            return at + 2
        at += 1 + m[at]
    return at + 1


def parse_reply(m):
    ident, flags, qd, an, ns, ar = struct.unpack_from(">HHHHHH", m)
    at, addrs, ttls, records = 12, [], [], []
    for _ in range(qd):
        at = _skip_name(m, at) + 4
    for _ in range(an + ns + ar):
        at = _skip_name(m, at)
        kind, _, ttl, n = struct.unpack_from(">HHIH", m, at)
        records.append(kind)
        if kind == 1 and n == 4:
            addrs.append(socket.inet_ntoa(m[at + 10:at + 14]))
            ttls.append(ttl)
        at += 10 + n
    return Reply(flags & 15, addrs, ttls, records, flags)


# --- frames -----------------------------------------------------------------------

def checksum(b):
    b += b"\0" * (len(b) % 2)
    s = sum(struct.unpack(f">{len(b) // 2}H", b))
    while s >> 16:
        s = (s & 0xffff) + (s >> 16)
    return ~s & 0xffff


def ether(payload, kind=0x0800, src=GUEST_MAC, dst=GATEWAY_MAC):
    return dst + src + struct.pack(">H", kind) + payload


def ip4(payload, proto, dst, src=GUEST, frag=0x4000, ident=7, options=b"", ttl=64):
    n = 20 + len(options)
    h = struct.pack(">BBHHHBBH4s4s", 0x40 | n // 4, 0, n + len(payload), ident, frag, ttl, proto, 0,
                    socket.inet_aton(src), socket.inet_aton(dst)) + options
    return h[:10] + struct.pack(">H", checksum(h)) + h[12:] + payload


def _pseudo(src, dst, proto, n):
    if ":" in dst:
        return socket.inet_pton(socket.AF_INET6, src) + socket.inet_pton(socket.AF_INET6, dst) + \
            struct.pack(">IHBB", n, 0, 0, proto)
    return socket.inet_aton(src) + socket.inet_aton(dst) + struct.pack(">BBH", 0, proto, n)


def udp_datagram(data, dport, dst, src=GUEST, sport=5353):
    h = struct.pack(">HHHH", sport, dport, 8 + len(data), 0)
    return h[:6] + struct.pack(">H", checksum(_pseudo(src, dst, 17, 8 + len(data)) + h + data)) + data


def tcp_segment(data, dport, dst, src=GUEST, sport=4444, seq=1000, flags=2, ack=0):
    h = struct.pack(">HHIIBBHHH", sport, dport, seq, ack, 5 << 4, flags, 65535, 0, 0)
    c = checksum(_pseudo(src, dst, 6, 20 + len(data)) + h + data)
    return h[:16] + struct.pack(">H", c) + h[18:] + data


def icmp_echo(data, ident=9):
    h = struct.pack(">BBHHH", 8, 0, 0, ident, 1)
    return h[:2] + struct.pack(">H", checksum(h + data)) + h[4:] + data


def ip6(payload, proto, dst, src="2001:db8:0:1::99"):
    return struct.pack(">IHBB", 6 << 28, len(payload), proto, 64) + \
        socket.inet_pton(socket.AF_INET6, src) + socket.inet_pton(socket.AF_INET6, dst) + payload


# --- TLS ----------------------------------------------------------------------------

def client_hello(sni=None, extensions=b"", extra_names=(), grease=False):
    """A TLS 1.2/1.3 ClientHello record; @extensions: further ones, encoded."""
    ext = b""
    if grease:
        ext += struct.pack(">HH", 0x1a1a, 0)
    if sni is not None:
        names = b"".join(struct.pack(">BH", 0, len(n)) + n for n in
                         [x.encode("latin-1") if isinstance(x, str) else x for x in (sni, *extra_names)])
        ext += struct.pack(">HHH", 0, len(names) + 2, len(names)) + names
    ext += struct.pack(">HHHH", 10, 4, 2, 29) + struct.pack(">HHHH", 13, 4, 2, 0x0403) + \
        struct.pack(">HHBH", 43, 3, 2, 0x0304) + struct.pack(">HHHHH", 51, 38, 36, 29, 32) + bytes(range(32))
    ext += extensions
    suites = struct.pack(">HHHH", 0x2a2a if grease else 0x1303, 0x1301, 0x1302, 0xc02f)
    body = b"\x03\x03" + bytes(32) + b"\x20" + bytes(32) + struct.pack(">H", len(suites)) + suites + b"\1\0" + \
        struct.pack(">H", len(ext)) + ext
    shake = b"\1" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(shake)) + shake


def ech_outer():
    """An encrypted_client_hello extension of the outer kind."""
    body = b"\0" + struct.pack(">HHBH", 1, 1, 7, 32) + bytes(32) + struct.pack(">H", 64) + bytes(64)
    return struct.pack(">HH", 0xfe0d, len(body)) + body


def records(hello, *at):
    """The same handshake bytes in several TLS records, cut at these offsets of them."""
    shake = hello[5:]
    cuts = [0, *at, len(shake)]
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", b - a) + shake[a:b] for a, b in zip(cuts, cuts[1:]))
