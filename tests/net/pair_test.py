#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cloche-net and cloche-relay together: a guest of raw frames on one side, the laboratory's
servers on the other. Arguments: the two programs."""
import os
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab  # noqa: E402
import schema  # noqa: E402
from netlib import ACK, FIN, PSH, RST, URG, Net, eth, ip, udp  # noqa: E402
from relaylib import Relay, hello  # noqa: E402

NET, RELAY = (os.path.abspath(p) for p in (sys.argv.pop(1), sys.argv.pop(1)))
ONE, TWO, THREE = "203.0.113.10", "203.0.113.11", "203.0.113.12"


class Pair(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.mkdtemp(prefix="cloche-pair-")
        os.chmod(cls.tmp, 0o755)
        try:
            cls.lab = netlab.Lab(tmp=cls.tmp)
        except netlab.Unavailable as e:
            shutil.rmtree(cls.tmp)
            raise unittest.SkipTest(str(e)) from e
        cls.lab.dns.set("a.test", [ONE])
        cls.lab.dns.set("b.test", [TWO])

    @classmethod
    def tearDownClass(cls):
        cls.lab.close()
        shutil.rmtree(cls.tmp, ignore_errors=True)

    def pair(self, profile="standard", **kw):
        kw.setdefault("rules", ["a.test:443", "a.test:80", "b.test:443", "a.test:2222"])
        n = Net(NET, profile)
        r = Relay(self.lab, RELAY, self.tmp, profile=profile, net=n.relay, **kw)

        def end():
            self.assertEqual(n.end(), 0)        # QEMU is gone, and both end
            self.assertEqual(r.proc.wait(10), 0, r.log())
            with open(r.events_path, encoding="ascii") as f:
                for line in f:
                    schema.assert_valid(line, "net-event")
        self.addCleanup(end)
        return n, r

    def server(self, address=ONE, port=443, **kw):
        s = netlab.Echo(self.lab, address, port, **kw)
        self.addCleanup(self.lab.forget, s.sock)
        return s

    def resolved(self, n, name="a.test"):
        n.ask(name)
        rcode, addrs = n.dns_answer()
        self.assertEqual(rcode, 0)
        return addrs[0]

    def test_a_name_opens_its_address(self):
        n, r = self.pair()
        s = self.server()
        t = n.connect(ONE, 443, handshake=False)
        self.assertTrue(t.next().flags & RST)
        self.assertEqual(r.event(ev="drop")["reason"], "address")
        self.assertEqual(self.resolved(n), ONE)
        t = n.connect(ONE, 443, sport=40001)
        t.write(hello("a.test") + b"hi")
        self.assertEqual(t.read(len(hello("a.test")) + 2), hello("a.test") + b"hi")
        t.write(b"", ACK | FIN)
        self.assertEqual(t.until_end(), "fin")
        self.assertEqual(len(s.log), 1)
        self.assertEqual(r.event(ev="close")["guest_port"], 40001)
        # its other ports, and the addresses of nobody, stay closed
        for address, port in ((ONE, 8080), (TWO, 443), (ONE, 25)):
            t = n.connect(address, port, sport=41000 + port, handshake=False)
            self.assertTrue(t.next().flags & RST)

    def test_refused_is_reset(self):
        n, r = self.pair()
        s = self.server()
        self.resolved(n)
        self.resolved(n, "b.test")
        for i, (data, reason) in enumerate([
                (hello("evil.test"), "name"), (hello("b.test"), "mismatch"), (hello(None), "no-name"),
                (b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "name"), (b"\0\1\2", "not-tls-or-http")]):
            t = n.connect(ONE, 443, sport=42000 + i)
            t.segment(ACK | PSH, data)
            t.seq += len(data)
            self.assertEqual(t.until_end(), "rst", data)
            self.assertEqual(r.event(ev="flow", guest_port=42000 + i)["reason"], reason)
        # byte by byte
        t = n.connect(ONE, 443, sport=42100)
        for b in hello("evil.test"):
            if t.rst:
                break
            t.write(bytes([b]))
        self.assertEqual(t.until_end(), "rst")
        # later on a connection that was fine
        h = self.server(ONE, 80, quiet=True)
        t = n.connect(ONE, 80, sport=42200)
        fine = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
        t.write(fine)
        end = time.monotonic() + 5
        while not (h.log and bytes(h.log[0].data) == fine) and time.monotonic() < end:
            time.sleep(0.01)
        t.segment(ACK | PSH, b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        self.assertEqual(t.until_end(), "rst")
        self.assertEqual((s.log, bytes(h.log[0].data)), ([], fine))

    def test_one_reading_of_a_stream(self):
        """Segments that lie, and what the relay judged is what the server gets."""
        n, r = self.pair()
        s = self.server(quiet=True)
        self.resolved(n)
        good, bad = hello("a.test"), hello("evil.a")
        self.assertEqual(len(good), len(bad))
        half = len(good) // 2
        # data with the SYN; the second half first and otherwise; the first half twice and otherwise
        t = n.connect(ONE, 443, sport=43000, syn_data=b"x" * 10)
        base = t.seq
        t.segment(ACK | PSH, bad[half:], seq=base + half)
        t.segment(ACK | PSH, good[:half])
        t.segment(ACK | PSH, bad[:half])
        t.segment(ACK | PSH, bad[half - 5:half] + good[half:], seq=base + half - 5)
        t.segment(ACK | PSH | URG, good[half:], seq=base + half, urgent=2000)
        t.segment(ACK | PSH | URG, b"end", seq=base + len(good), urgent=1)
        t.seq = base + len(good) + 3
        t.settle()
        t.write(b"", ACK | FIN)
        end = time.monotonic() + 5
        while not (s.log and s.log[0].ended) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(bytes(s.log[0].data), good + b"end")
        self.assertEqual(r.event(ev="flow")["name"], "a.test")

    def test_server_speaks_first(self):
        n, _ = self.pair()
        self.server(ONE, 2222, banner=b"SSH-2.0-server\r\n")
        self.resolved(n)
        t = n.connect(ONE, 2222)
        self.assertEqual(t.read(16), b"SSH-2.0-server\r\n")
        t.write(b"SSH-2.0-client x\r\n")
        self.assertEqual(t.read(18), b"SSH-2.0-client x\r\n")

    def test_names_do_not_leave(self):
        n, r = self.pair()
        n.ask("canary-31337.evil.test")
        self.assertEqual(n.dns_answer(), (3, []))
        n.send(eth(ip(b"\x08\0\xf7\xff\0\0\0\0canary-31337", 1, ONE)))       # echo request
        n.send(eth(udp(b"canary-31337", 5000, 53, "203.0.113.53")))
        r.event(ev="drop", reason="icmp")
        r.event(ev="drop", reason="udp")
        self.assertEqual(self.lab.arrived(b"canary-31337"), [])

    def test_permissive(self):
        n, r = self.pair(profile="permissive", rules=[])
        echo = netlab.UdpEcho(self.lab, THREE, 5000)
        self.addCleanup(self.lab.forget, echo.sock)
        self.server(THREE, 9999)
        n.send(eth(udp(b"datagram", 6000, 5000, THREE)))
        p = n.packet(lambda p: p.proto == 17 and p.dport == 6000)
        self.assertEqual((p.src, p.sport, p.payload[:8]), (THREE, 5000, b"datagram"))
        t = n.connect(THREE, 9999)
        t.write(b"anything")
        self.assertEqual(t.read(8), b"anything")
        t = n.connect("192.168.7.1", 80, sport=44000, handshake=False)
        self.assertTrue(t.next().flags & RST)
        self.assertEqual(r.event(ev="drop")["reason"], "closed")
        self.assertEqual({a for _, a, _ in self.lab.seen()} & {"192.168.7.1"}, set())

    def test_deaths(self):
        """Either of them gone: nothing passes any more, and the other one ends."""
        for victim in ("net", "relay"):
            n = Net(NET)
            r = Relay(self.lab, RELAY, self.tmp, rules=["a.test:443"], net=n.relay)
            s = netlab.Echo(self.lab, ONE, 443)
            self.resolved(n)
            t = n.connect(ONE, 443)
            t.write(hello("a.test"))
            t.read(len(hello("a.test")))
            (n if victim == "net" else r).proc.kill()
            self.assertEqual(n.proc.wait(10), -9 if victim == "net" else 1)
            self.assertEqual(r.proc.wait(10), 0 if victim == "net" else -9)
            end = time.monotonic() + 5
            while not s.log[0].ended and time.monotonic() < end:
                time.sleep(0.01)
            self.assertEqual(bytes(s.log[0].data), hello("a.test"))
            if victim == "net":
                self.assertEqual(r.events()[-1]["reason"], "net")
            n.end()
            self.lab.forget(s.sock)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
