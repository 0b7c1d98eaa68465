# SPDX-License-Identifier: Apache-2.0
"""cloche-relay from its sides: cloche-net, the monitor, cloche-keeper and the worker are
played here, the servers are the laboratory's (tests/lib/netlab.py). The formats are written
down a second time, on purpose."""
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time

QUESTION, FLOW, DROPPED, DATAGRAM, ANSWER, OPEN, CLOSE = 1, 2, 3, 4, 32, 33, 34
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3
RESOLV, HOSTS, ALLOW, DENY, LISTEN, OK, ERR, LOST, FORWARD = 1, 2, 3, 4, 5, 32, 33, 34, 64
NAMED, RAW = 1, 2
SERVICE = "10.87.0.2"
A, AAAA, HTTPS = 1, 28, 65


def addr(text):
    return struct.unpack("!I", socket.inet_aton(text))[0]


def text(number):
    return socket.inet_ntoa(struct.pack("!I", number))


def blob(data, size="I"):
    return struct.pack("<" + size, len(data)) + data


def policy(profile, rules=(), private=(), services=()):
    """The carried form. Rules: "name:port", "*.name:port", a "-" before it denies; kind as egress_add()."""
    out = [struct.pack("<4sBBIHH", b"CEGP", 1, ["permissive", "standard", "locked"].index(profile),
                       len(rules), len(private), len(services))]
    for r in rules:
        deny, r = r.startswith("-"), r.lstrip("-")
        wild, r = r.startswith("*."), r[2:] if r.startswith("*.") else r
        name, _, port = r.partition(":")
        port = int(port or (0 if deny else 443))
        kind = 0 if deny else NAMED if port in (80, 443) else RAW
        out.append(struct.pack("<BBBH", wild | deny << 1, kind, 5, port) + blob(name.encode(), "B") + b"\0")
    for p in private:
        net, bits = p.split("/")
        out.append(struct.pack("<IB", addr(net), int(bits)))
    return b"".join(out) + struct.pack(f"<{len(services)}H", *services)


def hello(name, extra=b"", versions=(0x0304,), records=None):
    """A ClientHello with one server name (None: none), in one record, or cut after `records` bytes."""
    def vec(size, data):
        return len(data).to_bytes(size, "big") + data

    ext = b""
    if name is not None:
        ext += struct.pack("!H", 0) + vec(2, vec(2, b"\0" + vec(2, name.encode())))
    ext += struct.pack("!H", 43) + vec(2, vec(1, struct.pack(f"!{len(versions)}H", *versions)))
    body = b"\x03\x03" + bytes(32) + b"\0" + vec(2, b"\x13\x01") + vec(1, b"\0") + vec(2, ext + extra)
    msg = b"\x01" + vec(3, body)
    cut = records or len(msg)
    return b"".join(b"\x16\x03\x01" + vec(2, msg[i:i + cut]) for i in range(0, len(msg), cut))


def extension(kind, data=b""):
    return struct.pack("!HH", kind, len(data)) + data


class Gone(Exception):
    """The relay closed its end."""


class Flow:
    """The guest's end of a TCP connection."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(20)

    def send(self, data):
        self.sock.sendall(data)

    def recv(self, n=65536):
        return self.sock.recv(n)

    def read(self, n):
        out = b""
        while len(out) < n:
            got = self.recv(n - len(out))
            if not got:
                break
            out += got
        return out

    def rest(self):
        out = b""
        while got := self.recv():
            out += got
        return out

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        self.sock.close()

    def end(self):
        """"reset", or what still came before an ordinary end."""
        try:
            return self.rest()
        except ConnectionResetError:
            return "reset"


class Relay:
    """One cloche-relay in the laboratory's host namespace."""

    def __init__(self, lab, program, tmp, profile="standard", rules=(), private=(), services=(), args=(),
                 resolv=True, hosts="", keeper=False, worker=True, where="host", net=None, events_path=None):
        """@net: the other end of a cloche-net that runs; else it is played here."""
        self.tmp, self.number, self.ident, self.guest_port = tmp, 0, 0, 40000
        base = os.path.join(tmp, f"events-{time.monotonic_ns()}")
        self.events_path = events_path or base
        pairs = {name: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                 for name in ("net", "control", "worker", "keeper")}
        if net:
            pairs["net"] = (None, net)
        if not keeper:
            del pairs["keeper"]
        if not worker:
            del pairs["worker"]
        self.net, self.control = pairs["net"][0], pairs["control"][0]
        self.worker = pairs["worker"][0] if worker else None
        self.keeper = pairs["keeper"][0] if keeper else None
        events = os.open(self.events_path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
        p = os.memfd_create("policy")
        os.write(p, policy(profile, rules, private, services))
        os.lseek(p, 0, os.SEEK_SET)
        self.log_path = base + ".log"
        log = os.open(self.log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        fds = {name: pair[1].fileno() for name, pair in pairs.items()}
        fds.update(events=events, policy=p, log=log)
        argv = [program]
        for name, fd in fds.items():
            argv += ["--" + name, str(fd)]
        self.proc = subprocess.Popen(
            [*lab.enter(where), *argv, *args], pass_fds=list(fds.values()), preexec_fn=lab._become,
            stdin=subprocess.DEVNULL)
        lab.procs.append(self.proc)
        for pair in pairs.values():
            pair[1].close()
        for fd in (events, p, log):
            os.close(fd)
        for s in (self.net, self.control, self.worker, self.keeper):
            if s:
                s.settimeout(20)
        self.opened, self.waiting, self.datagrams = set(), {}, []
        if resolv:
            self.resolv("nameserver 203.0.113.53\noptions timeout:1 attempts:2\n")
            self.ask(HOSTS, blob(hosts.encode()))

    # --- the monitor and the keeper ---

    def ask(self, kind, fields, fds=()):
        """A message of the monitor's: "" when the relay did it, else why not."""
        self.number += 1
        socket.send_fds(self.control, [struct.pack("<HI", kind, self.number) + fields], list(fds))
        answer = self.control.recv(65536)
        got, number = struct.unpack("<HI", answer[:6])
        assert number == self.number and got in (OK, ERR), answer
        return "" if got == OK else answer[10:].decode()

    def resolv(self, conf):
        assert self.ask(RESOLV, blob(conf.encode())) == ""

    def hosts(self, lines):
        assert self.ask(HOSTS, blob(lines.encode())) == ""

    def allow(self, pattern):
        return self.ask(ALLOW, blob(pattern.encode()))

    def deny(self, pattern):
        return self.ask(DENY, blob(pattern.encode()))

    def listen(self, guest_port, socks, once=False, deadline_s=0, label=""):
        return self.ask(LISTEN, struct.pack("<HBI", guest_port, once, deadline_s) + blob(label.encode()),
                        [s.fileno() for s in socks])

    # --- cloche-net ---

    def step(self, timeout=20):
        """One message of the relay's to cloche-net, sorted in."""
        if not select.select([self.net], [], [], timeout)[0]:
            raise AssertionError("the relay says nothing")
        b = self.net.recv(65536)
        if not b:
            raise Gone
        kind = struct.unpack("<H", b[:2])[0]
        if kind == ANSWER:
            ident, rcode, ttl, n = struct.unpack("<HBIB", b[2:10])
            self.waiting[ident] = (rcode, ttl, [text(x) for x in struct.unpack(f"<{n}I", b[10:])])
        elif kind in (OPEN, CLOSE):
            a, port = struct.unpack("<IH", b[2:])
            assert ((text(a), port) in self.opened) == (kind == CLOSE), "told twice"
            (self.opened.add if kind == OPEN else self.opened.discard)((text(a), port))
        elif kind == DATAGRAM:
            guest_port, a, port, n = struct.unpack("<HIHH", b[2:12])
            assert len(b) == 12 + n
            self.datagrams.append((guest_port, text(a), port, b[12:]))
        else:
            raise AssertionError(f"message {kind}")
        return kind

    def pending(self):
        """Take in what is there."""
        while select.select([self.net], [], [], 0)[0]:
            self.step()

    def question(self, name, qtype=A):
        self.ident = (self.ident + 1) % 256
        self.net.send(struct.pack("<HHH", QUESTION, self.ident, qtype) + blob(name.encode(), "B"))
        return self.ident

    def answer(self, ident, timeout=20):
        while ident not in self.waiting:
            self.step(timeout)
        return self.waiting.pop(ident)

    def lookup(self, name, qtype=A):
        """(rcode, addresses)."""
        rcode, _, addrs = self.answer(self.question(name, qtype))
        return rcode, addrs

    def flow(self, to, port, guest_port=None):
        if guest_port is None:
            self.guest_port += 1
            guest_port = self.guest_port
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        socket.send_fds(self.net, [struct.pack("<HIHH", FLOW, addr(to), port, guest_port)],
                        [theirs.fileno()])
        theirs.close()
        return Flow(ours)

    def datagram(self, guest_port, to, port, data):
        self.net.send(struct.pack("<HHIH", DATAGRAM, guest_port, addr(to), port) + blob(data, "H"))

    def dropped(self, why, proto=0, to="0.0.0.0", port=0, count=1):
        self.net.send(struct.pack("<HBBIHI", DROPPED, why, proto, addr(to), port, count))

    # --- the log ---

    def events(self, **want):
        """Events with these fields, in order."""
        with open(self.events_path, encoding="ascii") as f:
            lines = [json.loads(x) for x in f if x.endswith("\n")]
        return [e for e in lines if all(e.get(k) == v for k, v in want.items())]

    def event(self, timeout=10, **want):
        """The first such event, waited for."""
        end = time.monotonic() + timeout
        while not (got := self.events(**want)):
            if time.monotonic() > end:
                raise AssertionError(f"no event {want} in {self.events()}")
            time.sleep(0.02)
        return got[0]

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def end(self):
        """Close cloche-net's end; the exit status."""
        self.net.close()
        try:
            return self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.send_signal(signal.SIGKILL)
            self.proc.wait()
            raise
        finally:
            for s in (self.control, self.worker, self.keeper):
                if s:
                    s.close()
