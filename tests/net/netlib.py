# SPDX-License-Identifier: Apache-2.0
"""cloche-net from its three sides: a guest made of raw frames, a relay, the process itself.
Standard library only; formats are written down here a second time, on purpose."""

import array
import collections
import os
import resource
import select
import socket
import struct
import subprocess
import time

GUEST, GATEWAY, SERVICE = "10.87.255.2", "10.87.0.1", "10.87.0.2"
GUEST_MAC = bytes.fromhex("02c10c57ff02")
GATEWAY_MAC = bytes.fromhex("02c10c000001")
BROADCAST = b"\xff" * 6
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
QUESTION, FLOW, DROPPED, DATAGRAM, ANSWER, OPEN, CLOSE = 1, 2, 3, 4, 32, 33, 34
REASONS = ("- address port udp icmp ipv6 fragment vlan ethertype spoofed malformed protocol "
           "options flows dns peer closed").split()


def addr(text):
    return struct.unpack("!I", socket.inet_aton(text))[0]


def text(number):
    return socket.inet_ntoa(struct.pack("!I", number))


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def eth(payload, kind=0x0800, src=GUEST_MAC, dst=GATEWAY_MAC):
    return dst + src + struct.pack("!H", kind) + payload


def ip(payload, proto, dst, src=GUEST, ttl=64, frag=0, options=b"", ident=7, length=None, tos=0):
    head = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, tos,
                                 20 + len(options) + len(payload) if length is None else length,
                                 ident, frag, ttl, proto, 0, socket.inet_aton(src),
                                 socket.inet_aton(dst)) + options)
    head[10:12] = struct.pack("!H", checksum(bytes(head)))
    return bytes(head) + payload


def pseudo(payload, proto, dst, src):
    return socket.inet_aton(src) + socket.inet_aton(dst) + struct.pack("!HH", proto, len(payload))


def udp(payload, sport, dport, dst, src=GUEST, total=None, check=None):
    head = struct.pack("!HHHH", sport, dport, 8 + len(payload) if total is None else total, 0)
    if check is None:
        check = checksum(pseudo(head + payload, 17, dst, src) + head + payload) or 0xffff
    return ip(head[:6] + struct.pack("!H", check) + payload, 17, dst, src)


def tcp_segment(sport, dport, seq, ack, flags, payload=b"", dst=None, src=GUEST, window=65535,
                options=b"", urgent=0, reserved=0, offset=None, check=None):
    words = 5 + len(options) // 4 if offset is None else offset
    head = bytearray(struct.pack("!HHIIBBHHH", sport, dport, seq & 0xffffffff, ack & 0xffffffff,
                                 words << 4 | reserved, flags, window, 0, urgent) + options)
    if check is None:
        body = bytes(head) + payload
        check = checksum(pseudo(body, 6, dst, src) + body)
    head[16:18] = struct.pack("!H", check)
    return bytes(head) + payload


def arp(op, sender_mac, sender, target, target_mac=b"\0" * 6):
    return struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, op, sender_mac,
                       socket.inet_aton(sender), target_mac, socket.inet_aton(target))


Packet = collections.namedtuple("Packet", "eth_dst eth_src kind src dst proto sport dport seq ack "
                                          "flags window payload raw")


def parse(frame):
    kind = struct.unpack("!H", frame[12:14])[0]
    if kind != 0x0800:
        return Packet(frame[:6], frame[6:12], kind, *[None] * 9, frame[14:], frame)
    head = frame[14:]
    assert head[0] == 0x45 and checksum(head[:20]) == 0, "an IP header of ours is wrong"
    total = struct.unpack("!H", head[2:4])[0]
    assert total == len(head), "a total length of ours is wrong"
    src, dst = socket.inet_ntoa(head[12:16]), socket.inet_ntoa(head[16:20])
    body = head[20:]
    sport = dport = seq = ack = flags = window = None
    if head[9] in (6, 17):
        assert checksum(pseudo(body, head[9], dst, src) + body) == 0, "a checksum of ours is wrong"
        sport, dport = struct.unpack("!HH", body[:4])
    if head[9] == 6:
        seq, ack, off, flags, window = struct.unpack("!IIBBH", body[4:16])
        payload = body[(off >> 4) * 4:]
    else:
        payload = body[8:]
    return Packet(frame[:6], frame[6:12], kind, src, dst, head[9], sport, dport, seq, ack, flags,
                  window, payload, frame)


def question(name, qtype=1, ident=0x1234, extra=b"", flags=0x0100, counts=(1, 0, 0, 0)):
    out = struct.pack("!HH4H", ident, flags, *counts)
    for label in name.split("."):
        out += bytes([len(label)]) + label.encode() if label else b""
    return out + b"\0" + struct.pack("!HH", qtype, 1) + extra


def answers(message):
    """(rcode, [address]) of a response to one question."""
    ident, flags, qd, an, _, _ = struct.unpack("!6H", message[:12])
    assert flags & 0x8000 and qd == 1
    at = 12
    while message[at]:
        at += 1 + message[at]
    at += 5
    out = []
    for _ in range(an):
        at += 2
        kind, _, ttl, size = struct.unpack("!HHIH", message[at:at + 10])
        at += 10
        if kind == 1:
            out.append(socket.inet_ntoa(message[at:at + size]))
        at += size
    return flags & 15, out


class Gone(Exception):
    """The other end of a socket is."""


class Net:
    """One cloche-net, with the relay's and QEMU's ends of its sockets here."""

    def __init__(self, program, profile="standard", args=(), switch=None, address=GUEST,
                 mac=GUEST_MAC, sndbuf=None, nofile=None):
        self.frames, frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.relay, relay = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.address, self.mac = address, mac
        if sndbuf:
            frames.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        fds = [frames, relay] + ([switch] if switch else [])
        argv = [program, "--frames", str(frames.fileno()), "--relay", str(relay.fileno()),
                "--log", "2", "--address", address, "--mac", mac.hex(":"), "--profile", profile]
        if switch:
            argv += ["--switch", str(switch.fileno())]
        self.proc = subprocess.Popen(argv + list(args), pass_fds=[f.fileno() for f in fds],
                                     stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env={},
                                     preexec_fn=nofile and (lambda: resource.setrlimit(
                                         resource.RLIMIT_NOFILE, (nofile, nofile))))
        for f in fds:
            f.close()
        self.buffer = b""
        self.seen = []          # DROPPED messages
        self.waiting = []       # other messages of the relay's socket
        self.ends = []          # the relay's ends of connections

    def end(self):
        """As when QEMU ends. The status; .log is what it logged."""
        self.frames.close()
        try:
            self.proc.wait(10)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        for s in [self.relay, *self.ends]:
            s.close()
        if not self.proc.stderr.closed:
            self.log = self.proc.stderr.read().decode(errors="replace")
            self.proc.stderr.close()
        return self.proc.returncode

    # --- the guest ---

    def send(self, *frames):
        self.frames.sendall(b"".join(struct.pack("!I", len(f)) + f for f in frames))

    def recv(self, timeout=5.0):
        """The next frame for the guest, None after the time-out."""
        end = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 4:
                size = struct.unpack("!I", self.buffer[:4])[0]
                assert size > 0, "a frame of length 0 ends QEMU's receiving"
                if len(self.buffer) >= 4 + size:
                    frame, self.buffer = self.buffer[4:4 + size], self.buffer[4 + size:]
                    return frame
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.frames], [], [], left)[0]:
                return None
            data = self.frames.recv(1 << 20)
            if not data:
                raise Gone("frames")
            self.buffer += data

    def packet(self, want=lambda p: True, timeout=5.0):
        end = time.monotonic() + timeout
        while True:
            frame = self.recv(max(0, end - time.monotonic()))
            if frame is None:
                return None
            p = parse(frame)
            if want(p):
                return p

    def quiet(self, seconds=0.3):
        """Nothing comes to the guest for that long."""
        frame = self.recv(seconds)
        return frame is None

    def ask(self, name, qtype=1, sport=5353, **kw):
        self.send(eth(udp(question(name, qtype, **kw), sport, 53, GATEWAY, src=self.address),
                      src=self.mac))

    def dns_answer(self, sport=5353, timeout=5.0):
        p = self.packet(lambda p: p.proto == 17 and p.dport == sport, timeout)
        assert p and p.src == GATEWAY and p.sport == 53, p
        return answers(p.payload)

    # --- the relay ---

    def recv_message(self, timeout=5.0):
        """(type, fields, descriptor or None), or None."""
        if not select.select([self.relay], [], [], timeout)[0]:
            return None
        fds = array.array("i")
        data, anc, _, _ = self.relay.recvmsg(65536, socket.CMSG_SPACE(4 * 4))
        for level, kind, value in anc:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(value[:len(value) - len(value) % 4])
        if not data:
            raise Gone("relay")
        kind = struct.unpack("<H", data[:2])[0]
        body = data[2:]
        if kind == QUESTION:
            ident, qtype, size = struct.unpack("<HHB", body[:5])
            fields = (ident, qtype, body[5:5 + size].decode())
            assert len(body) == 5 + size
        elif kind == FLOW:
            a, port, guest_port = struct.unpack("<IHH", body)
            fields = (text(a), port, guest_port)
        elif kind == DROPPED:
            why, proto, a, port, count = struct.unpack("<BBIHI", body)
            fields = (REASONS[why], proto, text(a), port, count)
        elif kind == DATAGRAM:
            guest_port, a, port, size = struct.unpack("<HIHH", body[:10])
            fields = (guest_port, text(a), port, body[10:])
            assert len(body) == 10 + size
        else:
            raise AssertionError(f"message {kind} of cloche-net")
        assert len(fds) == (1 if kind == FLOW else 0), (kind, fds)
        if not len(fds):
            return kind, fields, None
        self.ends.append(socket.socket(fileno=fds[0]))
        return kind, fields, self.ends[-1]

    def message(self, kind, timeout=5.0):
        """The next message of that kind; DROPPED ones are kept in .seen, others wait."""
        for i, m in enumerate(self.waiting):
            if m[0] == kind:
                return self.waiting.pop(i)
        end = time.monotonic() + timeout
        while True:
            m = self.recv_message(max(0, end - time.monotonic()))
            if m is None:
                return None
            if m[0] == DROPPED:
                self.seen.append(m[1])
            if m[0] == kind:
                return m
            if m[0] != DROPPED:
                self.waiting.append(m)

    def dropped(self, timeout=3.0):
        """The next DROPPED message's fields."""
        m = self.message(DROPPED, timeout)
        return m[1] if m else None

    def say(self, kind, body):
        self.relay.send(struct.pack("<H", kind) + body)

    def open(self, address, port):
        self.say(OPEN, struct.pack("<IH", addr(address), port))

    def close(self, address, port=0):
        self.say(CLOSE, struct.pack("<IH", addr(address), port))

    def answer(self, ident, addrs=(), rcode=0, ttl=60):
        self.say(ANSWER, struct.pack("<HBIB", ident, rcode, ttl, len(addrs)) +
                 b"".join(struct.pack("<I", addr(a)) for a in addrs))

    def sync(self):
        """Until cloche-net has taken all that was said so far by the relay and the guest."""
        for _ in range(2):
            self.ask("selftest.cloche", sport=9)
            assert self.dns_answer(sport=9)

    # --- TCP ---

    def connect(self, address, port, sport=40000, seq=1000, **kw):
        return Tcp(self, address, port, sport, seq, **kw)


class Tcp:
    """A TCP client as simple as one can be; it sends what the test tells it to."""

    def __init__(self, net, address, port, sport, seq, options=b"\x02\x04\x3e\x58", syn_data=b"",
                 handshake=True):
        self.net, self.address, self.port, self.sport = net, address, port, sport
        self.seq, self.ack = seq, 0
        self.got = b""
        self.relay = None
        self.fin = self.rst = False
        self.segment(SYN, syn_data, options=options)
        if not handshake:
            return
        p = self.next()
        assert p and p.flags == SYN | ACK, f"no answer to the SYN: {p}"
        assert p.ack == (seq + 1) & 0xffffffff, "data on the SYN was acknowledged"
        self.seq, self.ack, self.peer_window = seq + 1, p.seq + 1, p.window
        self.segment(ACK)

    def accept(self):
        """The relay's end, as a socket."""
        m = self.net.message(FLOW)
        assert m, "no flow for the relay"
        assert m[1] == (self.address, self.port, self.sport), m[1]
        self.relay = m[2]
        return m[2]

    def segment(self, flags, payload=b"", seq=None, ack=None, **kw):
        self.net.send(eth(ip(tcp_segment(self.sport, self.port, self.seq if seq is None else seq,
                                         self.ack if ack is None else ack, flags, payload,
                                         self.address, src=self.net.address, **kw),
                             6, self.address, src=self.net.address), src=self.net.mac))

    def next(self, timeout=5.0):
        p = self.net.packet(lambda p: p.proto == 6 and (p.src, p.sport, p.dport) ==
                            (self.address, self.port, self.sport), timeout)
        if p:
            assert p.eth_src == GATEWAY_MAC and p.eth_dst == self.net.mac
        return p

    def write(self, data, flags=ACK | PSH, **kw):
        """Send in order and wait for the acknowledgement."""
        self.segment(flags, data, **kw)
        self.seq = (self.seq + len(data) + bool(flags & FIN)) & 0xffffffff
        self.settle()

    def settle(self, timeout=5.0):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            p = self.next(end - time.monotonic())
            self.take(p)
            if p is None or self.rst or p.ack == self.seq:
                return
        raise AssertionError("not acknowledged")

    def take(self, p):
        if p is None:
            return
        if p.flags & RST:
            self.rst = True
            return
        if p.seq == self.ack:
            self.got += p.payload
            self.ack = (self.ack + len(p.payload)) & 0xffffffff
            if p.flags & FIN:
                self.fin = True
                self.ack = (self.ack + 1) & 0xffffffff
        if p.payload or p.flags & FIN:
            self.segment(ACK)

    def read(self, size, timeout=5.0):
        end = time.monotonic() + timeout
        while len(self.got) < size and not self.fin and not self.rst:
            p = self.next(max(0, end - time.monotonic()))
            if p is None:
                break
            self.take(p)
        out, self.got = self.got[:size], self.got[size:]
        return out

    def until_end(self, timeout=5.0):
        """"fin" or "rst"."""
        end = time.monotonic() + timeout
        while not self.fin and not self.rst and time.monotonic() < end:
            self.take(self.next(max(0, end - time.monotonic())))
        return "rst" if self.rst else "fin" if self.fin else None


def read_all(sock, size, timeout=5.0):
    """Exactly @size bytes, or what came until the time-out or the end."""
    sock.settimeout(timeout)
    out = b""
    try:
        while len(out) < size:
            data = sock.recv(size - len(out))
            if not data:
                break
            out += data
    except socket.timeout:
        pass
    return out
