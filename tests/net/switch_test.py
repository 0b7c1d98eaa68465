#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shared network: cloche-switch with ports that we play, honest ones and others, and with
two cloche-net between raw guests. Arguments: cloche-switch, cloche-net."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from netlib import (ACK, GATEWAY, GATEWAY_MAC, GUEST, OPEN, RST, SYN, Gone, Net, addr, eth, ip,
                    tcp_segment, text, udp)

SWITCH, PROGRAM = sys.argv[1:3]
del sys.argv[1:3]
HELLO, FORGET, WELCOME, REFUSED, UP, DOWN, PACKET = 1, 2, 3, 4, 5, 6, 7
TAKEN, BAD, EXHAUSTED, FULL = 1, 2, 3, 4
FIRST = "10.87.0.16"


class Port:
    """A connection to the switch."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(path)
        self.sock.settimeout(5)

    def send(self, kind, body=b""):
        self.sock.send(bytes([kind]) + body)

    def recv(self, timeout=5.0):
        """(type, body), None after the time-out, b"" as type at the end."""
        self.sock.settimeout(timeout)
        try:
            data = self.sock.recv(65536)
        except (socket.timeout, BlockingIOError):
            return None
        except ConnectionResetError:
            data = b""
        return (data[0], data[1:]) if data else (b"", b"")

    def hello(self, name, want=0, keep=False):
        self.send(HELLO, struct.pack("<BI", keep, want) + name.encode())
        kind, body = self.recv()
        self.address = text(struct.unpack("<I", body)[0]) if kind == WELCOME else None
        return self.address if kind == WELCOME else -body[0] if kind == REFUSED else None

    def peers(self, n):
        """The next n comings and goings."""
        out = []
        for _ in range(n):
            kind, body = self.recv()
            out.append((kind, text(struct.unpack("<I", body[:4])[0]), body[4:].decode()))
        return out

    def packet(self, dst, src=None, payload=b"hello", **kw):
        self.send(PACKET, udp(payload, 5, 6, dst, src=src or self.address, **kw))


class SwitchTest(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.mkdtemp(prefix="cloche-switch.")
        self.addCleanup(shutil.rmtree, self.tmp)
        self.path = os.path.join(self.tmp, "s")
        self.map = os.path.join(self.tmp, "addresses")
        self.proc = None

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        listen = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listen.bind(self.path)
        listen.listen(64)
        fd = os.open(self.map, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.proc = subprocess.Popen([SWITCH, "--listen", str(listen.fileno()), "--map", str(fd)],
                                     pass_fds=[listen.fileno(), fd], stdin=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, env={})
        listen.close()
        os.close(fd)
        self.addCleanup(self.end, self.proc)

    @staticmethod
    def end(proc):
        if proc.poll() is None:
            proc.kill()
        proc.wait()
        proc.stderr.close()

    def port(self):
        p = Port(self.path)
        self.addCleanup(p.sock.close)
        return p

    def join(self, *names, **kw):
        out = []
        for name in names:
            p = self.port()
            self.assertIsInstance(p.hello(name, **kw), str)
            out.append(p)
        return out

    def test_join(self):
        self.start()
        a = self.port()
        self.assertEqual(a.hello("alpha"), FIRST)
        b = self.port()
        self.assertEqual(b.hello("beta"), "10.87.0.17")
        self.assertEqual(a.peers(1), [(UP, "10.87.0.17", "beta")])
        self.assertEqual(b.peers(1), [(UP, FIRST, "alpha")])
        self.assertEqual(self.port().hello("beta"), -TAKEN)
        c = self.port()
        self.assertEqual(c.hello("gamma", want=addr("10.87.200.5")), "10.87.200.5")
        self.assertEqual(c.peers(2), [(UP, FIRST, "alpha"), (UP, "10.87.0.17", "beta")])
        d = self.port()
        self.assertEqual(d.hello("delta", want=addr("10.87.0.1")), "10.87.0.18", "never the gateway's")
        b.sock.close()
        self.assertEqual(a.peers(3), [(UP, "10.87.200.5", "gamma"), (UP, "10.87.0.18", "delta"),
                                      (DOWN, "10.87.0.17", "")])
        self.assertEqual(self.port().hello("epsilon"), "10.87.0.17", "the lowest that is free")

    def test_packets(self):
        self.start()
        a, b, c = self.join("a", "b", "c")
        a.peers(2), b.peers(2), c.peers(2)
        a.packet(b.address)
        self.assertEqual(b.recv(), (PACKET, udp(b"hello", 5, 6, b.address, src=a.address)))
        good = ip(tcp_segment(5, 6, 1, 0, SYN, dst=b.address, src=a.address), 6, b.address, src=a.address)
        a.send(PACKET, good)
        self.assertEqual(b.recv(), (PACKET, good))
        bad = bytearray(good)
        bad[10] ^= 1
        for why, packet in [
                ("another's source", udp(b"x", 5, 6, b.address, src=c.address)),
                ("no source", udp(b"x", 5, 6, b.address, src="0.0.0.0")),
                ("to the gateway", udp(b"x", 5, 6, GATEWAY, src=a.address)),
                ("to itself", udp(b"x", 5, 6, a.address, src=a.address)),
                ("to nobody", udp(b"x", 5, 6, "10.87.0.99", src=a.address)),
                ("to the world", udp(b"x", 5, 6, "198.51.100.7", src=a.address)),
                ("to everybody", udp(b"x", 5, 6, "10.87.255.255", src=a.address)),
                ("to really everybody", udp(b"x", 5, 6, "255.255.255.255", src=a.address)),
                ("multicast", udp(b"x", 5, 6, "224.0.0.1", src=a.address)),
                ("icmp", ip(b"\x08\0\xf7\xff\0\0\0\0", 1, b.address, src=a.address)),
                ("fragment", ip(b"x" * 8, 17, b.address, src=a.address, frag=0x2000)),
                ("options", ip(b"x" * 8, 17, b.address, src=a.address, options=b"\1\1\1\0")),
                ("padded", good + b"\0"), ("cut", good[:-1]), ("checksum", bytes(bad)), ("short", b"E")]:
            a.send(PACKET, packet)
        a.packet(b.address, payload=b"last")
        self.assertEqual(b.recv()[1][-4:], b"last")
        self.assertIsNone(c.recv(0.1))

    def test_wrong_messages(self):
        self.start()
        keep, = self.join("keep")
        for why, first in [("packet first", bytes([PACKET]) + b"E"), ("unknown", b"\x63"),
                           ("welcome", bytes([WELCOME]) + b"\0" * 4), ("cut", bytes([HELLO])),
                           ("bad name", bytes([HELLO]) + b"\0" * 5 + b"A.b")]:
            p = self.port()
            p.sock.send(first)
            self.assertEqual(p.recv(), (b"", b""), why)
        a, = self.join("a")
        a.send(HELLO, struct.pack("<BI", 0, 0) + b"again")
        while (m := a.recv()) and m[0] != b"":
            pass
        self.assertEqual(m, (b"", b""))
        self.assertEqual(keep.peers(2), [(UP, "10.87.0.17", "a"), (DOWN, "10.87.0.17", "")])

    def test_full_port_loses(self):
        self.start()
        a, b = self.join("a", "b")
        a.peers(1), b.peers(1)
        for i in range(200):
            a.packet(b.address, payload=struct.pack("!I", i) + b"x" * 8000)
        c, = self.join("c")             # nobody is held up
        self.assertEqual(a.peers(1), [(UP, c.address, "c")])
        got, ups = [], []
        while m := b.recv(0.3):
            if m[0] == PACKET:
                got.append(struct.unpack("!I", m[1][28:32])[0])
            else:
                ups.append(m[0])
        self.assertTrue(0 < len(got) < 200, len(got))
        self.assertEqual(got, sorted(got))
        self.assertEqual(ups, [UP], "comings are not lost")

    def test_addresses_are_kept(self):
        self.start()
        a, = self.join("alpha", keep=True)
        b, = self.join("beta")
        c, = self.join("gamma", keep=True)
        for p in (a, b, c):
            p.sock.close()
        self.assertEqual(self.proc.wait(5), 0, "it ends with the last port")
        with open(self.map, encoding="ascii") as f:
            self.assertEqual(f.read(), "cloche-switch 1\n10.87.0.16 alpha\n10.87.0.18 gamma\nend 2\n")
        self.start()
        d, = self.join("delta")
        self.assertEqual(d.address, "10.87.0.17", "beta's was not kept")
        p = self.port()
        self.assertEqual(p.hello("gamma"), "10.87.0.18")
        e, = self.join("epsilon")
        self.assertEqual(e.address, "10.87.0.19", "alpha's is alpha's")
        # forgotten: there is room again
        p = self.port()
        p.send(FORGET, b"alpha")
        self.assertEqual(p.recv(), (WELCOME, struct.pack("<I", addr(FIRST))))
        self.assertEqual(p.recv(), (b"", b""))
        p = self.port()
        p.send(FORGET, b"gamma")
        self.assertEqual(p.recv(), (REFUSED, bytes([TAKEN])), "it is there")
        p = self.port()
        p.send(FORGET, b"nobody")
        self.assertEqual(p.recv(), (WELCOME, b"\0" * 4))
        z, = self.join("zeta")
        self.assertEqual(z.address, FIRST)

    def test_corrupt_list(self):
        for i, bad in enumerate([b"\0\xff garbage", b"cloche-switch 1\n10.87.0.16 alpha\n", b"\n" * 600000]):
            with open(self.map, "wb") as f:
                f.write(bad)
            self.start()
            a, = self.join("beta", keep=True)
            self.assertEqual(a.address, FIRST)
            a.sock.close()
            self.assertEqual(self.proc.wait(5), 0)
            self.assertIn(b"begun again", self.proc.stderr.read())
            with open(self.map, "rb") as f:
                self.assertEqual(f.read(), b"cloche-switch 1\n10.87.0.16 beta\nend 1\n")

    def test_exhausted(self):
        with open(self.map, "w", encoding="ascii") as f:
            f.write("cloche-switch 1\n")
            for i in range(4096):
                f.write(f"{text(addr(FIRST) + i)} n{i}\n")
            f.write("end 4096\n")
        self.start()
        self.join("n7")
        self.assertEqual(self.port().hello("more"), -EXHAUSTED)

    def test_too_many(self):
        self.start()
        ports = [self.port() for _ in range(256)]
        for i, p in enumerate(ports):
            p.send(HELLO, struct.pack("<BI", 0, 0) + b"n%d" % i)
        self.assertEqual([p.recv()[0] for p in ports], [WELCOME] * 256)
        self.assertEqual(self.port().recv(), (REFUSED, bytes([FULL])))

    # --- with cloche-net on both sides ---

    def sandbox(self, name):
        p = self.port()
        address = p.hello(name)
        mac = bytes.fromhex("02c10c57") + socket.inet_aton(address)[2:]
        n = Net(PROGRAM, switch=p.sock, address=address, mac=mac)
        self.addCleanup(n.end)
        return n

    def packet(self, n, payload, proto, dst, **kw):
        n.send(eth(ip(payload, proto, dst, src=n.address, **kw), src=n.mac))

    def test_sandboxes_reach_each_other(self):
        self.start()
        a, b = self.sandbox("alpha"), self.sandbox("beta")
        b.sync()
        for n, name, want in [(a, "beta.cloche", (0, [b.address])), (b, "alpha.cloche", (0, [a.address]))]:
            for _ in range(50):         # it is told when the other one comes
                n.ask(name, sport=7)
                if n.message(1, 0.05):
                    continue
                break
            self.assertEqual(n.dns_answer(sport=7), want)
        a.ask("beta.cloche", qtype=28, sport=8)
        self.assertEqual(a.dns_answer(sport=8), (0, []))
        a.ask("x.beta.cloche", sport=9)
        self.assertIsNotNone(a.message(1), "no name of the network: the relay's to refuse")
        # TCP and UDP, any port, with the gateway's card as sender
        self.packet(a, tcp_segment(5, 25, 1, 0, SYN, dst=b.address, src=a.address), 6, b.address)
        p = b.packet()
        self.assertEqual((p.src, p.dst, p.dport, p.flags, p.eth_src, p.eth_dst),
                         (a.address, b.address, 25, SYN, GATEWAY_MAC, b.mac))
        self.packet(b, tcp_segment(25, 5, 9, 2, SYN | ACK, dst=a.address, src=b.address), 6, a.address)
        self.assertEqual(a.packet().flags, SYN | ACK)
        a.send(eth(udp(b"u" * 9000, 5, 6, b.address, src=a.address), src=a.mac))
        self.assertEqual(b.packet().payload, b"u" * 9000)
        # nothing else
        self.packet(a, b"\x08\0\xf7\xff\0\0\0\0", 1, b.address)
        self.assertEqual(a.dropped()[0], "icmp")
        self.packet(a, tcp_segment(5, 80, 1, 0, SYN, dst="10.87.0.99", src=a.address), 6, "10.87.0.99")
        self.assertEqual(a.packet().flags, RST | ACK)
        self.assertEqual(a.dropped()[:3], ("peer", 6, "10.87.0.99"))
        self.assertTrue(b.quiet(0.1))
        # what is open to one is not open to the other
        a.open("198.51.100.7", 443)
        a.sync()
        a.connect("198.51.100.7", 443).accept()
        self.assertTrue(b.connect("198.51.100.7", 443, handshake=False).next().flags & RST)

    def test_isolated_is_alone(self):
        self.start()
        a = self.sandbox("alpha")
        lone = Net(PROGRAM)
        self.addCleanup(lone.end)
        lone.ask("alpha.cloche")
        self.assertIsNotNone(lone.message(1), "it knows no other sandbox")
        lone.send(eth(ip(tcp_segment(5, 80, 1, 0, SYN, dst=a.address), 6, a.address)))
        self.assertEqual(lone.dropped()[:3], ("closed", 6, a.address))
        self.packet(a, tcp_segment(5, 80, 1, 0, SYN, dst=GUEST, src=a.address), 6, GUEST)
        self.assertEqual(a.dropped()[0], "closed")
        self.assertTrue(a.packet(timeout=1).flags & RST)
        self.assertFalse([f for f in iter(lambda: lone.recv(0.1), None) if f[23:24] == b"\6" and not f[47] & RST])

    def test_hostile_port(self):
        """A compromised cloche-net has a port of its own, and no more; the other gate looks, too."""
        self.start()
        bad, = self.join("bad")
        a = self.sandbox("alpha")
        bad.peers(1)
        a.sync()
        bad.packet(a.address)
        self.assertEqual(a.packet().src, bad.address)
        for check, frag in ((1, 0), (None, 0x2000)):
            seg = tcp_segment(5, 80, 1, 0, SYN, dst=a.address, src=bad.address, check=check)
            bad.send(PACKET, ip(seg, 6, a.address, src=bad.address, frag=frag))
        self.assertTrue(a.quiet(0.2))
        self.assertEqual(a.dropped()[:3], ("peer", 6, bad.address))

    def test_switch_dies(self):
        self.start()
        a, b = self.sandbox("alpha"), self.sandbox("beta")
        a.open("198.51.100.7", 443)
        a.sync(), b.sync()
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait()
        a.sync()
        a.ask("beta.cloche", sport=7)
        self.assertIsNotNone(a.message(1))
        self.packet(a, tcp_segment(5, 80, 1, 0, SYN, dst=b.address, src=a.address), 6, b.address)
        self.assertEqual(a.dropped()[0], "peer")
        a.connect("198.51.100.7", 443).accept()
        a.end()
        self.assertIn("shared network is gone", a.log)

    def test_ends(self):
        self.start()
        a, b = self.sandbox("alpha"), self.sandbox("beta")
        a.end()
        self.assertIsNone(self.proc.poll())
        b.end()
        self.assertEqual(self.proc.wait(5), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
