#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cloche-net with Linux as the guest: a veth pair in a network namespace of our own that has no
way out, one end the guest's card, the other carried to cloche-net's stream of frames. The relay
is played here. Argument: the program."""

import ctypes
import errno
import fcntl
import hashlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

from netlib import ANSWER, DATAGRAM, DROPPED, FLOW, GATEWAY, GUEST, GUEST_MAC, QUESTION, Gone, Net, answers, question

HOST, NOBODY = "198.51.100.7", "198.51.100.9"
ECHO, SINK, SOURCE, ANSWERER, EARLY = 7, 9, 19, 80, 81
SIZE = 24 << 20
ETH_P_ALL, PACKET_OUTGOING, SIOCETHTOOL = 3, 4, 0x8946


def sh(*words):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def no_offload(dev):
    """What leaves a card of QEMU's without vnet_hdr is whole segments with their checksums."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        # tso, gso, gro, sg, tx-checksum, in this order: each needs the next
        for cmd in (0x1f, 0x24, 0x2c, 0x19, 0x17):
            value = ctypes.create_string_buffer(struct.pack("II", cmd, 0))
            fcntl.ioctl(s, SIOCETHTOOL, struct.pack("16sP", dev.encode(), ctypes.addressof(value)))


def set_up_card():
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "guest0", "mtu", "16000", "type", "veth", "peer", "name", "wire0", "mtu", "16000")
    for name in ("default", "guest0", "wire0"):
        path = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
        if os.path.exists(path):
            with open(path, "w", encoding="ascii") as f:
                f.write("1")
    sh("ip", "link", "set", "guest0", "address", GUEST_MAC.hex(":"))
    sh("ip", "link", "set", "wire0", "arp", "off", "up")
    sh("ip", "link", "set", "guest0", "up")
    no_offload("guest0")
    sh("ip", "addr", "add", f"{GUEST}/16", "dev", "guest0")
    sh("ip", "route", "add", "default", "via", GATEWAY)


def bridge(frames):
    """In a process of its own: wire0 and the stream of frames."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 20)
    wire.bind(("wire0", 0))
    buffer = bytearray()
    while True:
        ready = select.select([wire, frames], [], [])[0]
        if wire in ready:
            out = []
            for _ in range(64):
                try:
                    frame, sender = wire.recvfrom(65536, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                if sender[2] != PACKET_OUTGOING:
                    out.append(struct.pack("!I", len(frame)) + frame)
            frames.sendall(b"".join(out))
        if frames in ready:
            data = frames.recv(1 << 20)
            if not data:
                return
            buffer += data
            at = 0
            while len(buffer) - at >= 4:
                size = struct.unpack_from("!I", buffer, at)[0]
                if len(buffer) - at - 4 < size:
                    break
                while True:
                    try:
                        wire.send(buffer[at + 4:at + 4 + size])
                        break
                    except OSError as e:
                        if e.errno != errno.ENOBUFS:
                            raise
                        time.sleep(0.001)
                at += 4 + size
            del buffer[:at]


class Relay(threading.Thread):
    """Resolves everything to HOST, which is open; serves each flow by its port."""

    def __init__(self, net):
        super().__init__(daemon=True)
        self.net, self.dropped, self.seen, self.flows = net, [], {}, 0

    def run(self):
        for port in (ECHO, SINK, SOURCE, ANSWERER, EARLY):
            self.net.open(HOST, port)
        try:
            while True:
                m = self.net.recv_message(None)
                if m[0] == QUESTION:
                    ident, qtype, name = m[1]
                    if name.startswith("no."):
                        self.net.answer(ident, rcode=3)
                    else:
                        self.net.answer(ident, [HOST] if qtype == 1 else [])
                elif m[0] == FLOW:
                    self.flows += 1
                    threading.Thread(target=self.serve, args=(m[2], *m[1]), daemon=True).start()
                elif m[0] == DROPPED:
                    self.dropped.append(m[1])
        except (Gone, OSError):
            pass

    def serve(self, sock, _, port, guest_port):
        self.net.ends.remove(sock)
        with sock:
            try:
                if port == ECHO:
                    while data := sock.recv(1 << 16):
                        sock.sendall(data)
                elif port == SINK:
                    digest, total = hashlib.sha256(), 0
                    while data := sock.recv(1 << 18):
                        digest.update(data)
                        total += len(data)
                    sock.sendall(digest.digest())
                elif port == SOURCE:
                    sock.sendall(os.urandom(1 << 20) * (SIZE >> 20))
                elif port == ANSWERER:
                    sock.recv(1 << 16)
                    sock.sendall(b"answer")
                elif port == EARLY:
                    self.seen[guest_port] = sock.recv(100)
            except OSError:
                pass


class KernelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.net = Net(PROGRAM)
        cls.pid = os.fork()
        if cls.pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                bridge(cls.net.frames)
            finally:
                os._exit(0)
        cls.relay = Relay(cls.net)
        cls.relay.start()

    @classmethod
    def tearDownClass(cls):
        os.kill(cls.pid, signal.SIGTERM)        # ours, not reaped yet
        os.waitpid(cls.pid, 0)
        status = cls.net.end()
        assert status == 0, cls.net.log

    def connect(self, port, address=HOST, timeout=20):
        s = socket.create_connection((address, port), timeout)
        self.addCleanup(s.close)
        return s

    def test_names(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(5)
            s.connect((GATEWAY, 53))
            for name, qtype, want in [("www.example", 1, (0, [HOST])), ("www.example", 28, (0, [])),
                                      ("no.example", 1, (3, []))]:
                s.send(question(name, qtype))
                self.assertEqual(answers(s.recv(1000)), want)

    def test_up(self):
        s = self.connect(SINK, timeout=120)
        block = os.urandom(1 << 20)
        digest = hashlib.sha256(block * (SIZE >> 20)).digest()
        begin = time.monotonic()
        for _ in range(SIZE >> 20):
            s.sendall(block)
        s.shutdown(socket.SHUT_WR)
        self.assertEqual(s.recv(100), digest)
        print(f"guest to relay {SIZE / (time.monotonic() - begin) / 1e6:.0f} MB/s", file=sys.stderr)

    def test_down(self):
        s = self.connect(SOURCE, timeout=120)
        begin, first, total = time.monotonic(), b"", 0
        digest = hashlib.sha256()
        while data := s.recv(1 << 20):
            digest.update(data)
            first += data[:max(0, (1 << 20) - len(first))]
            total += len(data)
        self.assertEqual(total, SIZE)
        self.assertEqual(digest.digest(), hashlib.sha256(first * (SIZE >> 20)).digest())
        print(f"relay to guest {SIZE / (time.monotonic() - begin) / 1e6:.0f} MB/s", file=sys.stderr)

    def test_slow_reader(self):
        # before it connects: libslirp waits for half of the largest window that it has seen
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        s.settimeout(20)
        s.connect((HOST, SOURCE))
        time.sleep(0.5)
        total = 0
        while total < 2 << 20:
            total += len(s.recv(8192))
        s.close()                               # in the middle: a reset

    def test_refused_at_once(self):
        begin = time.monotonic()
        self.assertRaises(ConnectionRefusedError, self.connect, 443, NOBODY)
        self.assertRaises(ConnectionRefusedError, self.connect, 443, HOST)
        self.assertRaises(ConnectionRefusedError, self.connect, 25, HOST)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(5)
            s.connect((NOBODY, 53))
            s.send(b"x")
            with self.assertRaises(OSError) as e:
                s.recv(10)
            self.assertEqual(e.exception.errno, errno.EHOSTUNREACH)
        self.assertLess(time.monotonic() - begin, 2)

    def test_urgent(self):
        s = self.connect(EARLY)
        s.send(b"one")
        s.send(b"U", socket.MSG_OOB)
        time.sleep(0.3)
        port = s.getsockname()[1]
        self.assertTrue(self.relay.seen[port] in (b"one", b"oneU"), self.relay.seen[port])
        s = self.connect(ECHO)
        for i in range(50):
            s.send(b"%02d" % i)
            s.send(b"!", socket.MSG_OOB)
        got = b""
        while len(got) < 150:
            got += s.recv(200)
        self.assertEqual(got, b"".join(b"%02d!" % i for i in range(50)))
        s.settimeout(0.3)
        self.assertRaises(socket.timeout, s.recv, 1)

    def test_fast_open(self):
        try:
            with open("/proc/sys/net/ipv4/tcp_fastopen", "w", encoding="ascii") as f:
                f.write("5")                    # client, without a cookie
        except OSError as e:
            self.skipTest(f"no fast open here: {e}")
        with socket.socket() as s:
            s.settimeout(10)
            s.sendto(b"early data", socket.MSG_FASTOPEN, (HOST, EARLY))
            port = s.getsockname()[1]
            end = time.monotonic() + 5
            while port not in self.relay.seen and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(self.relay.seen.get(port), b"early data")

    def test_many_at_once(self):
        socks = [self.connect(ECHO) for _ in range(300)]
        for i, s in enumerate(socks):
            s.sendall(b"%d" % i)
        for i, s in enumerate(socks):
            self.assertEqual(s.recv(10), b"%d" % i)
        for s in socks:
            s.close()

    def test_one_after_the_other(self):
        """The far end closes first, as servers do; more than there may be at one time."""
        begin = time.monotonic()
        for _ in range(1500):
            with socket.create_connection((HOST, ANSWERER), 10) as s:
                s.sendall(b"question")
                self.assertEqual(s.recv(100), b"answer")
                self.assertEqual(s.recv(100), b"")
        print(f"{1500 / (time.monotonic() - begin):.0f} connections/s", file=sys.stderr)

    def test_half_close(self):
        s = self.connect(ECHO)
        s.sendall(b"x" * 300000)
        s.shutdown(socket.SHUT_WR)
        total = 0
        while data := s.recv(1 << 16):
            total += len(data)
        self.assertEqual(total, 300000)

    def test_fragments(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.IPPROTO_IP, 10, 0)      # IP_MTU_DISCOVER: fragment
            s.sendto(b"x" * 30000, (GATEWAY, 53))
        end = time.monotonic() + 5
        while not any(d[0] == "fragment" for d in self.relay.dropped) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(any(d[:3] == ("fragment", 17, GATEWAY) for d in self.relay.dropped))


if __name__ == "__main__":
    if os.environ.get("CLOCHE_NET_TEST") != "inside":
        try:
            subprocess.run(["unshare", "-Urn", "true"], check=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            print("no network namespace to be had here: not run")
            sys.exit(77)
        os.execvpe("unshare", ["unshare", "-Urn", "--kill-child", sys.executable, *sys.argv],
                   dict(os.environ, CLOCHE_NET_TEST="inside"))
    PROGRAM = sys.argv.pop(1)
    set_up_card()
    unittest.main(verbosity=1)
