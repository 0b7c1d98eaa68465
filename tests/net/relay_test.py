#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cloche-relay alone: what it refuses, what it lets pass unchanged, and what it writes down.

It runs in the laboratory's host namespace, which has no route out: what a broken judge would
send arrives at the laboratory's servers, which keep what they see. Argument: the program."""
import faulthandler
import os
import pwd
import random
import select
import shutil
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import netlab  # noqa: E402
import schema  # noqa: E402
from relaylib import (A, AAAA, HTTPS, NOERROR, NXDOMAIN, SERVFAIL, SERVICE, Relay, addr, blob,  # noqa: E402
                      extension, hello)
from relaylib import FORWARD, LOST  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1))
ONE, TWO, THREE = "203.0.113.10", "203.0.113.11", "203.0.113.12"


def get(host, path="/", more=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def wait_until(what, seconds=10.0):
    end = time.monotonic() + seconds
    while not (got := what()):
        if time.monotonic() > end:
            raise AssertionError("not so in time")
        time.sleep(0.01)
    return got


def descriptors(r):
    """How many it has open; 0 where only root may look into a process that hides itself."""
    try:
        return len(os.listdir(f"/proc/{r.proc.pid}/fd"))
    except PermissionError:
        return 0


class Scripted(netlab.Server):
    """A server that is a function of its connection."""

    def __init__(self, lab, address, port, script, where="world"):
        self.script = script
        super().__init__(lab, address, port, where)

    def serve(self, c):
        self.script(c)


class RelayCase(unittest.TestCase):
    user = None

    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.mkdtemp(prefix="cloche-relay-")
        os.chmod(cls.tmp, 0o755)
        try:
            cls.lab = netlab.Lab(tmp=cls.tmp, user=cls.user)
        except netlab.Unavailable as e:
            shutil.rmtree(cls.tmp)
            raise unittest.SkipTest(str(e)) from e
        cls.program = PROGRAM
        if cls.user:        # who may not look into our folders
            cls.program = shutil.copy(PROGRAM, os.path.join(cls.tmp, "cloche-relay"))

    @classmethod
    def tearDownClass(cls):
        cls.lab.close()
        shutil.rmtree(cls.tmp, ignore_errors=True)

    def setUp(self):
        self.lab.dns.zone.clear()
        self.lab.dns.log.clear()
        self.lab.dns.dead = False
        self.servers = []
        # two names on one address, a third elsewhere
        self.lab.dns.set("a.test", [ONE])
        self.lab.dns.set("b.test", [ONE])
        self.lab.dns.set("c.test", [TWO])
        self.lab.dns.set("d.test", [ONE])

    def relay(self, **kw):
        kw.setdefault("rules", ["a.test:443", "a.test:80", "b.test:443", "c.test:443", "c.test:80",
                                "d.test:443", "a.test:2222"])
        r = Relay(self.lab, self.program, self.tmp, **kw)

        def end():
            if r.proc.poll() is None:
                self.assertEqual(r.end(), 0, r.log())
            self.check_events(r)
        self.addCleanup(end)
        return r

    def check_events(self, r):
        with open(r.events_path, encoding="ascii") as f:
            for line in f:
                schema.assert_valid(line, "net-event")

    def opened(self, *names, **kw):
        """A relay of which these names were asked."""
        r = self.relay(**kw)
        for n in names or ("a.test", "b.test", "c.test"):
            self.assertEqual(r.lookup(n)[0], NOERROR)
        return r

    def server(self, kind, *args, **kw):
        s = kind(self.lab, *args, **kw)
        self.addCleanup(self.lab.forget, s.sock)
        return s

    def quiet(self, address=ONE, port=443):
        """A server that keeps what it gets."""
        return self.server(netlab.Echo, address, port, quiet=True)

    def echo(self, address=ONE, port=443, **kw):
        return self.server(netlab.Echo, address, port, **kw)


# --- flows --------------------------------------------------------------------------------

class Flows(RelayCase):
    def test_bytes_pass_unchanged(self):
        r, s = self.opened(), self.echo()
        data = hello("a.test") + random.Random(1).randbytes(300000)
        f = r.flow(ONE, 443)
        sender = threading.Thread(target=lambda: (f.send(data), f.half_close()))
        sender.start()
        self.assertEqual(f.rest(), data)
        sender.join()
        self.assertEqual(bytes(s.log[0].data), data)
        e = r.event(ev="close")
        self.assertEqual((e["reason"], e["bytes_out"], e["bytes_in"]), ("eof", len(data), len(data)))
        self.assertEqual(r.events(ev="flow")[0]["proto"], "tls")

    def test_real_tls(self):
        r = self.opened()
        web = self.server(netlab.Http, ONE, 443, "web", names=("a.test", "b.test"))
        context = ssl.create_default_context(cafile=self.lab.ca)
        for name in ("a.test", "b.test"):
            with context.wrap_socket(r.flow(ONE, 443).sock, server_hostname=name) as s:
                s.sendall(get(name, "/x", "Connection: close\r\n"))
                self.assertIn(b"200 OK", s.recv(4096))
        self.assertEqual([c.sni for c in web.log], ["a.test", "b.test"])

    def test_hello_in_pieces(self):
        """Nothing goes before the verdict, all of it afterwards."""
        r, s = self.opened(), self.quiet()
        data = hello("a.test", records=11)
        f = r.flow(ONE, 443)
        for i in range(len(data) - 1):
            f.send(data[i:i + 1])
            if i % 50 == 0:
                time.sleep(0.01)
        time.sleep(0.2)
        self.assertEqual((s.log, r.events(ev="flow")), ([], []))
        f.send(data[-1:] + b"more")
        f.half_close()
        wait_until(lambda: s.log and s.log[0].ended)
        self.assertEqual(bytes(s.log[0].data), data + b"more")

    def refused(self, r, data, reason, address=ONE, port=443, cut=None, end=False, **want):
        """The client is reset, the event says why, the server saw nothing."""
        before = len(r.events(ev="flow", verdict="refused"))
        f = r.flow(address, port)
        try:
            for i in range(0, len(data), cut or len(data) or 1):
                f.send(data[i:i + (cut or len(data))])
            if end:
                f.half_close()
        except (BrokenPipeError, ConnectionResetError):
            pass
        got = f.end()
        self.assertIn(got, ("reset",) if data and not end else ("reset", b""), (data, got))
        wait_until(lambda: len(r.events(ev="flow", verdict="refused")) > before)
        e = r.events(ev="flow", verdict="refused")[-1]
        self.assertEqual((e["reason"], e["addr"], e["port"], e["guest_port"]),
                         (reason, address, port, r.guest_port), data)
        for k, v in want.items():
            self.assertEqual(e.get(k), v, data)

    def test_tls_refusals(self):
        r, s = self.opened(), self.quiet()
        # the canary: a name that must be in no packet
        canary = "canary-7c1f.test"
        nul = hello("a.testXevil.test").replace(b"X", b"\0")
        long = ".".join(["a" * 62] * 4)
        two = hello("a.test").replace(b"\0\x09\0\0\x06a.test", b"\0\x12\0\0\x06a.test\0\0\x06b.test")
        rows = [
            (hello(canary), "name", {"name": canary, "proto": "tls"}),
            (hello("c.test"), "mismatch", {"name": "c.test"}),
            (hello("d.test"), "mismatch", {"name": "d.test"}),          # allowed, never asked for
            (hello(None), "no-name", {}),
            (hello("a.test", extension(0xfe0d, b"\0" * 12)), "ech", {"name": "a.test"}),
            (hello("a.test", extension(0x39)), "not-tls-or-http", {}),  # QUIC's
            (nul, "malformed", {}),
            (hello(long + ".xx"), "malformed", {}),                      # 254 bytes
            (hello("203.0.113.10"), "malformed", {}),
            (hello("a.test", extension(0, b"\0\x09\0\0\x06b.test")), "malformed", {}),
            (two, "malformed", {}),
            (b"\x16\x03\x01\0\0", "malformed", {}),
            (b"SSH-2.0-x y\r\n", "not-tls-or-http", {}),
            (b"\0\0\0\1", "not-tls-or-http", {}),
        ]
        for data, reason, want in rows:
            self.refused(r, data, reason, **want)
            self.refused(r, data, reason, cut=1, **want)
        # GREASE is nothing to refuse
        f = r.flow(ONE, 443)
        f.send(hello("a.test", extension(0x0a0a) + extension(0xfafa, b"\0"), versions=(0x2a2a, 0x0304)))
        f.half_close()
        self.assertEqual(f.rest(), b"")
        self.assertEqual(len(s.log), 1)
        self.assertEqual(self.lab.arrived(canary.encode()), [])

    def test_http_refusals(self):
        r = self.opened("a.test", "c.test")
        s, s2 = self.quiet(ONE, 80), self.quiet(TWO, 80)
        canary = "canary-9d22.test"
        rows = [
            (get(canary), "name", {"name": canary, "proto": "http"}),
            (get("b.test"), "name", {"name": "b.test"}),        # allowed on 443 only
            (get("c.test"), "mismatch", {"name": "c.test"}),
            (get("203.0.113.10"), "literal", {}),
            (get("a.test:8080"), "port", {"name": "a.test"}),
            (b"GET / HTTP/1.0\r\n\r\n", "no-name", {}),
            (get("a.test", more=f"Host: {canary}\r\n"), "malformed", {}),
            (get("a.test", f"http://{canary}/"), "malformed", {}),
            (get(canary, f"http://{canary}/"), "name", {"name": canary}),      # as to a proxy
            (f"CONNECT {canary}:443 HTTP/1.1\r\nHost: {canary}:443\r\n\r\n".encode(), "connect", {}),
            (b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n", "connect", {}),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2", {}),
            (get("a.test", more="Connection: Upgrade\r\nUpgrade: h2c\r\n"), "malformed", {}),
            (b"GET / HTTP/1.1\nHost: a.test\n\n", "malformed", {}),
            (b"GET / HTTP/1.1\r\nHost : a.test\r\n\r\n", "malformed", {}),
            (b"GET / HTTP/1.1\r\nHost: a.test\r\n x\r\n\r\n", "malformed", {}),
            (b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
             "malformed", {}),
            (b"GET /\r\n", "not-tls-or-http", {}),
        ]
        for data, reason, want in rows:
            self.refused(r, data, reason, port=80, **want)
            self.refused(r, data, reason, port=80, cut=1, **want)
        self.assertEqual((s.log, s2.log), ([], []))
        self.assertEqual(self.lab.arrived(canary.encode()), [])

    def test_unfinished(self):
        r, s = self.opened(args=["--judge-ms", "300"]), self.quiet()
        data = hello("a.test")
        self.refused(r, data[:-1], "timeout")
        self.refused(r, b"", "timeout")
        self.refused(r, data[:-1], "ended", end=True)
        self.refused(r, b"", "ended", end=True)
        self.refused(r, get("a.test")[:-2], "ended", port=80, end=True)
        self.refused(r, b"GET /" + b"a" * 20000, "too-long", port=80)
        self.refused(r, b"GET / HTTP/1.1\r\nHost: a.test\r\nX: " + b"a" * 20000, "too-long", port=80)
        self.refused(r, b"\x16\x03\x01\x40\x00\x01\x00\x50\x00\x03\x03" + b"\0" * 20000, "too-long")
        self.assertEqual(s.log, [])

    def test_ten_seconds(self):
        """The limit that users get: not of the last byte, but of the whole."""
        r = self.opened()
        f = r.flow(ONE, 443)
        start = time.monotonic()
        for b in hello("a.test")[:24]:
            try:
                f.send(bytes([b]))
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.5)
        self.assertEqual(f.end(), "reset")
        self.assertTrue(9 < time.monotonic() - start < 14)
        self.assertEqual(r.event(ev="flow")["reason"], "timeout")

    def test_destinations(self):
        """cloche-net does not bring these, unless it is the guest's by now."""
        r = self.opened()
        closed = {"10.9.0.1": "private", "172.16.9.1": "private", "192.168.7.1": "private",
                  "100.64.9.1": "shared-space", "169.254.169.254": "metadata", "127.0.0.1": "loopback",
                  "10.87.0.1": "private", "10.87.0.16": "private", "224.0.0.1": "multicast",
                  "255.255.255.255": "broadcast", "0.0.0.0": "this-network", "240.0.0.1": "reserved"}
        for address, detail in closed.items():
            self.refused(r, b"", "closed", address, 443, detail=detail)
        self.refused(r, b"", "literal", THREE, 443)
        self.refused(r, b"", "port", ONE, 25)
        self.refused(r, b"", "service", SERVICE, 3000)
        # an address that was a server's becomes the host's own
        self.lab.dns.set("late.test", ["203.0.113.201"])
        r2 = self.opened("late.test", rules=["late.test:443"])
        self.lab.host.run("ip", "addr", "add", "203.0.113.201/32", "dev", "lo")
        self.addCleanup(self.lab.host.run, "ip", "addr", "del", "203.0.113.201/32", "dev", "lo")
        self.refused(r2, hello("late.test"), "host-address", "203.0.113.201")
        seen = {(a, p) for _, a, p in self.lab.seen()}
        for address in closed:
            self.assertNotIn((address, 443), seen)

    def test_addresses_of_the_host(self):
        """Also those from which the host does not speak when it speaks to them."""
        r = self.relay(rules=["second.test:443", "lo.test:443", "a.test:443"], private=["127.0.0.0/8"])
        self.lab.host.run("ip", "addr", "add", "192.0.2.7/24", "dev", "lab0")
        self.addCleanup(self.lab.host.run, "ip", "addr", "del", "192.0.2.7/24", "dev", "lab0")
        s = self.echo("0.0.0.0", 443, where="host")
        for name, address in (("second.test", "192.0.2.7"), ("lo.test", "127.0.0.2")):
            self.lab.dns.set(name, [address])
            self.assertEqual(r.lookup(name), (NXDOMAIN, []), name)
            self.assertEqual(r.event(ev="dns", name=name)["detail"], "host-address")
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))
        # one that becomes the host's when it has been answered
        self.lab.dns.set("second.test", ["192.0.2.8"])
        self.assertEqual(r.lookup("second.test"), (NOERROR, ["192.0.2.8"]))
        self.lab.host.run("ip", "addr", "add", "192.0.2.8/24", "dev", "lab0")
        self.addCleanup(self.lab.host.run, "ip", "addr", "del", "192.0.2.8/24", "dev", "lab0")
        self.refused(r, hello("second.test"), "host-address", "192.0.2.8")
        # a route makes it so, and the host would speak from another address
        self.lab.dns.set("routed.test", ["203.0.113.77"])
        r = self.relay(rules=["routed.test:443"])
        self.assertEqual(r.lookup("routed.test"), (NOERROR, ["203.0.113.77"]))
        route = ("local", "203.0.113.77/32", "dev", "lo", "src", "192.0.2.2", "table", "local")
        self.lab.host.run("ip", "route", "add", *route)
        self.addCleanup(self.lab.host.run, "ip", "route", "del", *route)
        self.refused(r, hello("routed.test"), "host-address", "203.0.113.77")
        # a host that lets programs bind to anything is asked in another way
        r = self.relay(rules=["a.test:443", "second.test:443"])
        self.lab.host.run("/usr/sbin/sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1")
        self.addCleanup(self.lab.host.run, "/usr/sbin/sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=0")
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))
        self.assertEqual(r.lookup("second.test"), (NXDOMAIN, []))
        self.lab.host.run("/usr/sbin/sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=0")
        self.assertEqual(s.log, [])
        r = self.relay(rules=["lo.test:443"], private=["127.0.0.2/32"])
        self.assertEqual(r.lookup("lo.test"), (NOERROR, ["127.0.0.2"]))

    def test_every_head_is_judged(self):
        r = self.opened("a.test", "c.test")
        s = self.server(netlab.Http, ONE, 80, "a")
        body = b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"      # looks like a head, is none
        chunked = b"POST /two HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" + \
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        length = b"POST /three HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        for cut in (10000, 1, 7):
            f = r.flow(ONE, 80)
            data = get("a.test", "/one") + chunked + length + get("A.test:80", "/four")
            for i in range(0, len(data), cut):
                f.send(data[i:i + cut])
            got = b""
            while got.count(b"HTTP/1.1 200") < 4 or not got.endswith(b"/four\n"):
                got += f.recv()
            self.assertEqual([p for _, p in s.requests()][-4:], ["/one", "/two", "/three", "/four"])
            before = len(s.requests())
            f.send(get("c.test", "/canary-5a"))
            self.assertEqual(f.end(), "reset")
            self.assertEqual(len(s.requests()), before)
            e = r.events(ev="flow", verdict="refused")[-1]
            self.assertEqual((e["reason"], e["name"]), ("mismatch", "c.test"))
            self.assertEqual(r.events(ev="close")[-1]["reason"], "mismatch")
        self.assertEqual(self.lab.arrived(b"canary-5a"), [])

    def test_large_upload(self):
        r = self.opened("a.test")
        s = self.server(netlab.Http, ONE, 80, "a")
        body = random.Random(2).randbytes(3_000_000)
        f = r.flow(ONE, 80)
        f.send(b"PUT /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(body))
        f.send(body)
        self.assertIn(b"200 OK", f.recv())
        self.assertEqual(s.log[0].requests[0][1], body)
        f.send(get("a.test", "/after"))
        wait_until(lambda: b"/after" in f.recv())

    def test_websocket(self):
        answer = [b"HTTP/1.1 101 Switching\r\n\r\n"]

        def script(c):
            head = b""
            while b"\r\n\r\n" not in head:
                head += c.recv()
            c.sock.sendall(answer[0][:8])
            time.sleep(0.1)
            c.sock.sendall(answer[0][8:])
            while got := c.recv():
                c.sock.sendall(got)
        s = self.server(Scripted, ONE, 80, script)
        r = self.opened("a.test")
        ask = get("a.test", more="Connection: Upgrade\r\nUpgrade: websocket\r\n")
        frames = b"\x81\x05hello" + get("evil.test")        # not ours to read any more
        f = r.flow(ONE, 80)
        f.send(ask + frames)
        got = f.read(len(answer[0]) + len(frames))
        self.assertEqual(got, answer[0] + frames)
        f.close()
        wait_until(lambda: s.log[0].ended)
        self.assertEqual(bytes(s.log[0].data), ask + frames)
        # the server says no: what follows are requests
        answer[0] = b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"
        f = r.flow(ONE, 80)
        f.send(ask)
        self.assertEqual(f.read(len(answer[0])), answer[0])
        f.send(get("a.test", "/again"))
        self.assertEqual(f.read(len(get("a.test", "/again"))), get("a.test", "/again"))
        f.send(get("evil.test"))
        self.assertEqual(f.end(), "reset")
        # not as the second request
        f = r.flow(ONE, 80)
        f.send(get("a.test") + ask)
        f.end()
        wait_until(lambda: r.events(ev="flow", verdict="refused")[-1]["reason"] == "upgrade")

    def test_half_close(self):
        """Each direction ends alone."""
        def script(c):
            while c.recv():
                pass
            c.sock.sendall(b"after your end")
        s = self.server(Scripted, ONE, 443, script)
        r = self.opened("a.test")
        f = r.flow(ONE, 443)
        f.send(hello("a.test") + b"x" * 100000)
        f.half_close()
        self.assertEqual(f.rest(), b"after your end")
        self.assertEqual(bytes(s.log[0].data), hello("a.test") + b"x" * 100000)

        def first_to_end(c):
            c.sock.shutdown(socket.SHUT_WR)
            while c.recv():
                pass
        s = self.server(Scripted, ONE, 8443, first_to_end)
        r2 = self.opened("a.test", rules=["a.test:8443"])
        f = r2.flow(ONE, 8443)
        f.send(hello("a.test"))
        self.assertEqual(f.rest(), b"")
        f.send(b"y" * 100000)
        f.half_close()
        wait_until(lambda: s.log[0].ended)
        self.assertEqual(len(s.log[0].data), len(hello("a.test")) + 100000)

    def test_slow_client(self):
        """What the client does not take stays at the server."""
        size = 64_000_000
        block = random.Random(3).randbytes(1_000_000)
        sent = [0]

        def script(c):
            c.recv()
            for _ in range(size // len(block)):
                c.sock.sendall(block)
                sent[0] += len(block)
        self.server(Scripted, ONE, 443, script)
        r = self.opened("a.test")
        f = r.flow(ONE, 443)
        f.send(hello("a.test"))
        time.sleep(1)
        held = sent[0]
        self.assertLess(held, size // 2)       # socket buffers, not ours
        with open(f"/proc/{r.proc.pid}/status", encoding="ascii") as status:
            rss = int(next(x for x in status if x.startswith("VmRSS")).split()[1])
        self.assertLess(rss, 32 * 1024)
        for _ in range(size // len(block)):
            self.assertEqual(f.read(len(block)), block)
        self.assertEqual(f.rest(), b"")

    def test_slow_server(self):
        go = threading.Event()

        def script(c):
            go.wait(20)
            while c.recv():
                pass
        s = self.server(Scripted, ONE, 443, script)
        r = self.opened("a.test")
        f = r.flow(ONE, 443)
        data = hello("a.test") + random.Random(4).randbytes(10_000_000)
        f.sock.settimeout(1)
        sent = 0
        try:
            while sent < len(data):
                sent += f.sock.send(data[sent:sent + 65536])
        except TimeoutError:
            pass
        self.assertLess(sent, len(data))
        go.set()
        f.sock.settimeout(20)
        f.send(data[sent:])
        f.half_close()
        wait_until(lambda: s.log[0].ended)
        self.assertEqual(bytes(s.log[0].data), data)

    def test_raw(self):
        r = self.opened("a.test")
        banner = b"SSH-2.0-server\r\n"
        s = self.echo(ONE, 2222, banner=banner)
        # who waits for the server's word gets it
        f = r.flow(ONE, 2222)
        start = time.monotonic()
        self.assertEqual(f.read(len(banner)), banner)
        self.assertGreater(time.monotonic() - start, 0.25)
        f.send(b"SSH-2.0-client x\r\n")
        self.assertEqual(f.read(18), b"SSH-2.0-client x\r\n")
        f.half_close()
        self.assertEqual(f.rest(), b"")
        self.assertEqual(r.event(ev="flow", verdict="allowed")["name"], "a.test")
        # who speaks first need not wait
        f = r.flow(ONE, 2222)
        start = time.monotonic()
        f.send(b"\0\1\2")
        self.assertEqual(f.read(len(banner) + 3), banner + b"\0\1\2")
        self.assertLess(time.monotonic() - start, 0.25)
        f.close()
        # TLS and HTTP name an allowed host here, too, also after the server's word
        before = len(s.bytes())
        self.refused(r, hello("evil.test"), "name", port=2222)
        self.refused(r, get("evil.test"), "name", port=2222)
        self.refused(r, b"\r\n" + get("evil.test"), "malformed", port=2222)
        self.assertEqual(len(s.bytes()), before)
        f = r.flow(ONE, 2222)
        self.assertEqual(f.read(len(banner)), banner)
        f.send(hello("evil.test"))
        self.assertEqual(f.end(), "reset")
        wait_until(lambda: s.log[-1].ended)
        self.assertEqual(bytes(s.log[-1].data), b"")
        self.assertEqual(r.events(ev="flow", verdict="refused")[-1]["reason"], "name")
        # one word, and waits for what the server says to it
        f = r.flow(ONE, 2222)
        f.send(b"pi")
        time.sleep(0.05)
        f.send(b"ng")
        self.assertEqual(f.read(len(banner) + 4), banner + b"ping")
        f.send(b"-pong")
        self.assertEqual(f.read(5), b"-pong")
        f.send(b" and on\n")
        self.assertEqual(f.read(8), b" and on\n")
        f.send(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")    # it is no HTTP any more
        self.assertEqual(len(f.read(35)), 35)
        f.half_close()
        self.assertEqual(f.rest(), b"")
        self.assertEqual(bytes(s.log[-1].data), b"ping-pong and on\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        self.assertEqual(len(r.events(ev="flow", verdict="allowed", guest_port=r.guest_port)), 1)
        # ... also after the server's word, and as the last that it says
        f = r.flow(ONE, 2222)
        self.assertEqual(f.read(len(banner)), banner)
        f.send(b"x")
        self.assertEqual(f.read(1), b"x")
        f.half_close()
        self.assertEqual(f.rest(), b"")
        # ... but that is no way past the judge of requests, whoever they are for
        for rest in (b"T / HTTP/1.1\r\nHost: evil.test\r\n\r\n", b"T / HTTP/1.1\r\nHost: a.test\r\n\r\n",
                     b"ME / HTTP/1.1\r\nHost: evil.test\r\n\r\n"):
            f = r.flow(ONE, 2222)
            f.send(b"GE")
            self.assertEqual(f.read(len(banner) + 2), banner + b"GE")
            f.send(rest)
            self.assertEqual(f.end(), "reset")
            self.assertEqual(bytes(s.log[-1].data), b"GE")
        # a request in pieces is one where they come together
        f = r.flow(ONE, 2222)
        for piece in (b"G", b"ET ", b"/ HTTP/1.1\r\nHost: evil", b".test\r\n\r\n"):
            f.send(piece)
            time.sleep(0.02)
        self.assertEqual(f.end(), "reset")
        self.assertEqual(r.events(ev="flow", verdict="refused")[-1]["reason"], "name")
        # who only listens
        f = r.flow(ONE, 2222)
        f.half_close()
        self.assertEqual(f.rest(), banner)

    def test_servers_that_fail(self):
        r = self.opened("a.test", "c.test", args=["--dial-ms", "500"])
        f = r.flow(ONE, 443)
        f.send(hello("a.test"))     # nobody listens
        self.assertEqual(f.end(), "reset")
        self.assertEqual(r.event(ev="close")["reason"], "dial-refused")
        # nobody answers; there is no way
        for route, reason in ((("via", "192.0.2.77"), "dial-timeout"), ((), "dial-unreachable")):
            kind = () if route else ("unreachable",)
            self.lab.host.run("ip", "route", "add", *kind, TWO + "/32", *route)
            f = r.flow(TWO, 443)
            f.send(hello("c.test"))
            self.assertEqual(f.end(), "reset")
            self.assertEqual(r.events(ev="close")[-1]["reason"], reason)
            self.lab.host.run("ip", "route", "del", *kind, TWO + "/32")

        def reset(c):
            c.recv()
            c.sock.sendall(b"so far")
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server(Scripted, ONE, 443, reset)
        f = r.flow(ONE, 443)
        f.send(hello("a.test"))
        f.end()
        wait_until(lambda: r.events(ev="close")[-1]["reason"] == "reset")

    def test_client_goes(self):
        r, s = self.opened("a.test"), self.quiet()
        f = r.flow(ONE, 443)
        f.send(hello("a.test") + b"last words")
        f.close()
        wait_until(lambda: s.log and s.log[0].ended)
        self.assertEqual(bytes(s.log[0].data), hello("a.test") + b"last words")
        self.assertIn(r.event(ev="close")["reason"], ("client", "eof"))

    def test_limits_of_flows(self):
        r, s = self.opened("a.test"), self.echo()
        waiting = [r.flow(ONE, 443) for _ in range(256)]
        f = r.flow(ONE, 443)
        self.assertIn(f.end(), ("reset", b""))
        self.assertEqual(r.event(ev="flow", verdict="refused")["reason"], "limit")
        for w in waiting:
            w.send(hello("a.test"))
        for w in waiting:
            w.read(len(hello("a.test")))
        # with a verdict they do not count as waiting
        more = [r.flow(ONE, 443) for _ in range(200)]
        for w in more:
            w.send(hello("a.test"))
            w.read(len(hello("a.test")))
        self.assertEqual(len(s.log), 456)
        for w in waiting + more:
            w.close()
        wait_until(lambda: descriptors(r) < 20)
        f = r.flow(ONE, 443)
        f.send(hello("a.test"))
        self.assertEqual(f.read(len(hello("a.test"))), hello("a.test"))

    def test_service(self):
        r = self.relay(services=[3000])
        r.pending()
        self.assertIn((SERVICE, 3000), r.opened)    # without a question
        s = self.echo("127.0.0.1", 3000, where="host")
        self.server(netlab.Echo, "127.0.0.1", 3001, where="host")
        self.assertEqual(r.lookup("host.cloche"), (NOERROR, [SERVICE]))
        f = r.flow(SERVICE, 3000)
        f.send(get("anything"))
        self.assertEqual(f.read(len(get("anything"))), get("anything"))
        f.close()
        self.refused(r, b"", "service", SERVICE, 3001)
        self.assertEqual(len(s.log), 1)
        r = self.relay()
        self.assertEqual(r.lookup("host.cloche"), (NXDOMAIN, []))
        self.refused(r, b"", "service", SERVICE, 3000)
        self.assertEqual(len(s.log), 1)


# --- questions ------------------------------------------------------------------------------

class Questions(RelayCase):
    def test_outside_the_policy(self):
        r = self.relay(rules=["a.test:443", "*.wild.test:443", "-no.wild.test"])
        for name in ("evil.test", "test", "xa.test", "a.test.evil.test", "wild.test", "no.wild.test",
                     "secret.data.evil.test", "x.cloche", "cloche"):
            for kind in (A, AAAA, HTTPS, 16):
                self.assertEqual(r.lookup(name, kind), (NXDOMAIN, []), name)
        self.assertEqual(self.lab.dns.log, [])
        self.assertEqual(r.opened, set())
        self.assertEqual({e["name"] for e in r.events(ev="dns", verdict="refused", reason="name")},
                         {"evil.test", "test", "xa.test", "a.test.evil.test", "wild.test", "no.wild.test",
                          "secret.data.evil.test", "x.cloche", "cloche"})
        # of the two questions of one lookup, one counts
        for name in ("evil.test", "x.cloche"):
            self.assertEqual([e.get("detail") for e in r.events(ev="dns", name=name)],
                             [None, "AAAA", "HTTPS", "TXT"])
        self.lab.dns.set("x.y.wild.test", [ONE])
        self.assertEqual(r.lookup("x.y.wild.test"), (NOERROR, [ONE]))

    def test_empty_policy(self):
        """Legal, and nothing but the user's own services is there."""
        for profile in ("standard", "locked"):
            r = self.relay(rules=[], profile=profile, services=[3000])
            self.assertEqual(r.lookup("a.test"), (NXDOMAIN, []))
            self.assertEqual(r.lookup("host.cloche"), (NOERROR, [SERVICE]))
            self.assertIn(r.flow(ONE, 443).end(), ("reset", b""))
            self.assertEqual(r.event(ev="flow")["reason"], "literal")
            self.assertEqual(r.opened, {(SERVICE, 3000)})
        self.assertEqual(self.lab.dns.log, [])

    def test_other_types(self):
        r = self.relay()
        for kind in (AAAA, HTTPS, 64, 16, 15, 33, 255):
            self.assertEqual(r.lookup("a.test", kind), (NOERROR, []))
        self.assertEqual(self.lab.dns.log, [])

    def test_opens_ports_before_it_answers(self):
        r = self.relay(rules=["a.test:443", "a.test:80", "b.test:8443"])
        ident = r.question("a.test")
        r.answer(ident)
        self.assertEqual(r.opened, {(ONE, 443), (ONE, 80)})
        r.lookup("b.test")
        self.assertEqual(r.opened, {(ONE, 443), (ONE, 80), (ONE, 8443)})

    def test_aliases(self):
        r = self.relay(rules=["a.test:443", "deep.test:443", "long.test:443", "inject.test:443"])
        self.lab.dns.set("a.test", cname="x.elsewhere")
        self.lab.dns.set("x.elsewhere", cname="y.elsewhere")
        self.lab.dns.set("y.elsewhere", [TWO])
        self.assertEqual(r.lookup("a.test"), (NOERROR, [TWO]))
        self.assertEqual(r.opened, {(TWO, 443)})
        # the alias' own name is not allowed
        self.assertEqual(r.lookup("x.elsewhere"), (NXDOMAIN, []))
        for links, name in ((8, "deep.test"), (9, "long.test")):
            at = name
            for i in range(links):
                self.lab.dns.set(at, cname=f"{i}.{links}.test")
                at = f"{i}.{links}.test"
            self.lab.dns.set(at, [THREE])
        self.assertEqual(r.lookup("deep.test"), (NOERROR, [THREE]))
        self.assertEqual(r.lookup("long.test"), (SERVFAIL, []))
        # records that nobody asked for
        self.lab.dns.set("inject.test", [ONE], extra=[("evil.test", "203.0.113.66"), ("test", "203.0.113.67"),
                                                      ("sub.inject.test", "203.0.113.68")])
        self.assertEqual(r.lookup("inject.test"), (NOERROR, [ONE]))
        self.assertNotIn("203.0.113.66", {a for a, _ in r.opened})

    def test_many_addresses(self):
        r = self.relay()
        self.lab.dns.set("a.test", [f"203.0.113.{i}" for i in range(100, 140)])
        rcode, addrs = r.lookup("a.test")
        self.assertEqual((rcode, len(addrs)), (NOERROR, 16))
        self.assertEqual({a for a, _ in r.opened}, set(addrs))

    def test_over_tcp(self):
        r = self.relay()
        self.lab.dns.set("a.test", [ONE], truncate=True)
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))
        self.assertEqual([q.proto for q in self.lab.dns.log], ["udp", "tcp"])
        self.lab.dns.log.clear()
        r.resolv("nameserver 203.0.113.53\noptions use-vc\n")
        self.assertEqual(r.lookup("b.test"), (NOERROR, [ONE]))
        self.assertEqual([q.proto for q in self.lab.dns.log], ["tcp"])

    def test_lifetimes(self):
        r = self.relay()
        for ttl, want in ((0, 30), (1, 30), (300, 300), (1000000, 3600)):
            name = f"ttl{ttl}.test"
            self.lab.dns.set(name, [ONE], ttl=ttl)
            self.assertEqual(r.allow(name), "")
            rcode, got, _ = r.answer(r.question(name))
            self.assertEqual((rcode, got), (NOERROR, want))
        # kept as long: not asked for again, and the rest of its life is told
        self.lab.dns.log.clear()
        time.sleep(1.1)
        rcode, got, addrs = r.answer(r.question("ttl300.test"))
        self.assertEqual((rcode, addrs, self.lab.dns.log), (NOERROR, [ONE], []))
        self.assertIn(got, (298, 299))

    def test_rebinding(self):
        r = self.relay(rules=["a.test:443"], hosts="127.0.0.1 localhost\n")
        own = netlab.HOST_ADDR
        rows = {"10.9.0.1": "private", "172.16.9.1": "private", "192.168.7.1": "private",
                "169.254.169.254": "metadata", "127.0.0.1": "loopback", "127.8.8.8": "loopback",
                "0.0.0.0": "this-network", "100.64.9.1": "shared-space", "224.0.0.251": "multicast",
                "255.255.255.255": "broadcast", "10.87.0.2": "private", own: "host-address",
                "192.0.2.255": "host-address"}      # the last is the broadcast address of its net
        for i, (address, detail) in enumerate(rows.items()):
            name = f"n{i}.test"
            r.allow(name)
            # as a whole: the good address beside it is not used, either
            self.lab.dns.set(name, [THREE, address])
            self.assertEqual(r.lookup(name), (NXDOMAIN, []), address)
            e = r.event(ev="dns", name=name)
            self.assertEqual((e["verdict"], e["reason"], e["detail"], e["addr"]),
                             ("refused", "rebinding", detail, address))
        self.assertEqual(r.opened, set())
        # at the end of a chain, and by the hosts file
        self.lab.dns.set("a.test", cname="inside.test")
        self.lab.dns.set("inside.test", ["192.168.7.1"])
        self.assertEqual(r.lookup("a.test"), (NXDOMAIN, []))
        r.hosts("127.0.0.1 a.test\n")
        self.assertEqual(r.lookup("a.test"), (NXDOMAIN, []))
        # good first, closed later: the second answer is refused
        self.lab.dns.set("turn.test", ttl=0, script=lambda n: [ONE] if n == 0 else ["192.168.7.1"])
        r.allow("turn.test")
        r.hosts("")
        self.assertEqual(r.lookup("turn.test"), (NOERROR, [ONE]))
        r.resolv("nameserver 203.0.113.53\n")       # forgets what it knew
        self.assertEqual(r.lookup("turn.test"), (NXDOMAIN, []))
        self.assertNotIn(("tcp", "192.168.7.1", 443), self.lab.seen())

    def test_private_ranges_that_were_opened(self):
        r = self.relay(rules=["a.test:443"], private=["192.168.7.0/24"])
        self.lab.dns.set("a.test", ["192.168.7.9"])
        self.assertEqual(r.lookup("a.test"), (NOERROR, ["192.168.7.9"]))
        s = self.echo("192.168.7.9", 443)
        f = r.flow("192.168.7.9", 443)
        f.send(hello("a.test"))
        self.assertEqual(f.read(len(hello("a.test"))), hello("a.test"))
        self.assertEqual(len(s.log), 1)
        # an address of the host in an opened range: only by its own /32
        self.lab.host.run("ip", "addr", "add", "192.168.7.200/32", "dev", "lo")
        self.addCleanup(self.lab.host.run, "ip", "addr", "del", "192.168.7.200/32", "dev", "lo")
        self.lab.dns.set("me.test", ["192.168.7.200"])
        r.allow("me.test")
        self.assertEqual(r.lookup("me.test"), (NXDOMAIN, []))
        r = self.relay(rules=["me.test:443"], private=["192.168.7.200/32"])
        self.assertEqual(r.lookup("me.test"), (NOERROR, ["192.168.7.200"]))

    def test_failures(self):
        r = self.relay()
        self.lab.dns.set("a.test", rcode=2)
        self.assertEqual(r.lookup("a.test"), (SERVFAIL, []))
        self.assertEqual(r.event(ev="dns", name="a.test")["reason"], "upstream")
        self.lab.dns.set("b.test", rcode=3)
        self.assertEqual(r.lookup("b.test"), (NXDOMAIN, []))
        self.assertEqual(r.event(ev="dns", name="b.test")["reason"], "nxdomain")
        self.lab.dns.set("c.test", [])
        self.assertEqual(r.lookup("c.test"), (NOERROR, []))
        self.assertEqual(r.event(ev="dns", name="c.test")["reason"], "no-data")

    def test_dead_and_back(self):
        r, s = self.opened("a.test"), self.echo()
        f = r.flow(ONE, 443)
        f.send(hello("a.test"))
        f.read(len(hello("a.test")))
        self.lab.dns.dead = True
        start = time.monotonic()
        self.assertEqual(r.lookup("b.test"), (SERVFAIL, []))
        self.assertTrue(1.5 < time.monotonic() - start < 5)     # timeout:1 attempts:2
        for _ in range(3):
            self.assertEqual(r.lookup("c.test"), (SERVFAIL, []))
        # what is open stays open, what is known stays known
        f.send(b"still here")
        self.assertEqual(f.read(10), b"still here")
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))
        self.lab.dns.dead = False
        wait_until(lambda: r.lookup("b.test") == (NOERROR, [ONE]))
        self.assertEqual(len(s.log), 1)

    def test_equal_questions_are_one(self):
        r = self.relay()
        self.lab.dns.set("a.test", [ONE], delay_s=0.3)
        ids = [r.question("a.test") for _ in range(50)]
        self.assertEqual({tuple(r.answer(i)[2]) for i in ids}, {(ONE,)})
        self.assertEqual(len(self.lab.dns.log), 1)

    def test_many_at_one_time(self):
        r = self.relay(rules=["*.many.test:443"])
        self.lab.dns.dead = True
        ids = [r.question(f"n{i}.many.test") for i in range(80)]
        got = [r.answer(i)[0] for i in ids]
        self.assertEqual(set(got), {SERVFAIL})
        self.assertEqual(len(r.events(ev="dns", reason="limit")), 80 - 64)

    def test_resolv_conf_changes(self):
        r = self.relay(resolv=False)
        ident = r.question("a.test")        # before there is any: it waits
        time.sleep(0.2)
        self.assertEqual(self.lab.dns.log, [])
        r.resolv("nameserver 203.0.113.53\n")
        self.assertEqual(r.answer(ident)[2], [ONE])
        # while a dead server is asked
        dead = netlab.Dns(self.lab, "203.0.113.98")
        dead.dead = True
        r.resolv("nameserver 203.0.113.98\noptions timeout:10\n")
        ident = r.question("b.test")
        time.sleep(0.3)
        r.resolv("nameserver 203.0.113.53\n")
        self.assertEqual(r.answer(ident, 5)[2], [ONE])
        # the second of two; IPv6
        r.resolv("nameserver 203.0.113.99\nnameserver 203.0.113.53\n")
        self.assertEqual(r.lookup("c.test"), (NOERROR, [TWO]))
        try:
            sock = self.lab.world.socket(socket.AF_INET6, socket.SOCK_DGRAM, bind=(netlab.WORLD6, 53))
        except OSError:
            return      # no IPv6 on this machine
        # in the world every address of that range is its own, but for this one now
        way = (netlab.HOST6 + "/128", "dev", "lab1", "table", "local")
        self.lab.world.run("ip", "-6", "route", "add", *way)
        self.addCleanup(self.lab.world.run, "ip", "-6", "route", "del", *way)
        six = netlab.Dns(self.lab, "203.0.113.54")
        six.set("d.test", [THREE])
        self.lab.thread(six._udp, sock)
        r.resolv(f"nameserver {netlab.WORLD6}\n")
        self.assertEqual(r.lookup("d.test"), (NOERROR, [THREE]))

    def test_search_list(self):
        r = self.relay(rules=["git:443", "a.b:443"])
        r.resolv("nameserver 203.0.113.53\nsearch one.corp two.corp\noptions ndots:2\n")
        self.lab.dns.set("git.two.corp", [TWO])
        self.assertEqual(r.lookup("git"), (NOERROR, [TWO]))
        self.assertEqual(self.lab.dns.names(), ["git.one.corp", "git.two.corp"])
        self.assertEqual(r.opened, {(TWO, 443)})
        self.lab.dns.log.clear()
        self.lab.dns.set("a.b", [ONE])
        self.assertEqual(r.lookup("a.b"), (NOERROR, [ONE]))
        self.assertEqual(self.lab.dns.names(), ["a.b.one.corp", "a.b.two.corp", "a.b"])
        # the pinned name is what the guest asked for
        self.echo(TWO, 443)
        f = r.flow(TWO, 443)
        f.send(hello("git"))
        self.assertEqual(f.read(len(hello("git"))), hello("git"))

    def test_hosts_file(self):
        r = self.relay(hosts="203.0.113.12 a.test x\n2001:db8::1 b.test\n")
        self.assertEqual(r.lookup("a.test"), (NOERROR, [THREE]))
        self.assertEqual(r.lookup("b.test"), (NOERROR, []))     # it has another kind of address
        self.assertEqual(self.lab.dns.log, [])
        r.hosts("")
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))

    def test_upper_case_answers(self):
        r = self.relay()
        self.lab.dns.set("a.test", cname="B.TeSt")
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))


# --- permissive -----------------------------------------------------------------------------

class Permissive(RelayCase):
    def relay(self, **kw):
        return super().relay(profile="permissive", rules=[], **kw)

    def test_tcp(self):
        r, s = self.relay(), self.echo(THREE, 12345)
        f = r.flow(THREE, 12345)
        f.send(get("whoever"))
        self.assertEqual(f.read(len(get("whoever"))), get("whoever"))
        f.close()
        self.assertEqual(len(s.log), 1)
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))
        self.assertEqual(r.opened, set())
        for address, port, reason in (("192.168.7.1", 80, "closed"), ("127.0.0.1", 80, "closed"),
                                      (ONE, 25, "port"), (netlab.HOST_ADDR, 80, "host-address")):
            self.assertIn(r.flow(address, port).end(), ("reset", b""))
            self.assertEqual(wait_until(lambda: r.events(ev="flow", addr=address, port=port))[0]["reason"], reason)
        self.assertEqual(r.deny("a.test"), "the profile 'permissive' refuses no host")
        self.assertEqual(r.allow("a.test"), "")

    def test_udp(self):
        r = self.relay(args=["--udp-idle-ms", "600"])
        s = self.server_udp(THREE, 5000)
        for size in (0, 1, 1400, 16384):
            data = random.Random(size).randbytes(size)
            r.datagram(4000, THREE, 5000, data)
            while not r.datagrams:
                r.step()
            self.assertEqual(r.datagrams.pop(), (4000, THREE, 5000, data))
        r.datagram(4001, THREE, 5000, b"other")
        while not r.datagrams:
            r.step()
        self.assertEqual(r.datagrams.pop()[0], 4001)
        # each port of the guest has a socket of its own, one for all its datagrams
        self.assertEqual(len({peer for peer, _ in s.log}), 2)
        e = r.event(ev="close", guest_port=4000)
        self.assertEqual((e["reason"], e["proto"], e["bytes_out"], e["bytes_in"]),
                         ("idle", "udp", 17785, 17785))
        self.assertEqual(len(r.events(ev="udp", verdict="allowed")), 2)

    def server_udp(self, address, port):
        return netlab.UdpEcho(self.lab, address, port)

    def test_udp_that_does_not_go(self):
        r = self.relay()
        rows = [("192.168.7.1", 5000, "closed", "private"), ("169.254.169.254", 80, "closed", "metadata"),
                ("127.0.0.1", 53, "closed", "loopback"), ("224.0.0.251", 5353, "multicast", None),
                ("255.255.255.255", 67, "multicast", None), ("192.0.2.255", 5000, "host-address", None),
                (netlab.HOST_ADDR, 53, "host-address", None), ("10.87.0.2", 5000, "closed", "private"),
                (THREE, 25, "port", None)]
        for address, port, reason, detail in rows:
            r.datagram(4000, address, port, b"canary-udp")
            e = r.event(ev="udp", addr=address, port=port)
            self.assertEqual((e["verdict"], e["reason"], e.get("detail")), ("refused", reason, detail))
        self.assertEqual(self.lab.arrived(b"canary-udp"), [])

    def test_udp_cap(self):
        r = self.relay()
        s = self.server_udp(THREE, 5001)
        for i in range(300):
            r.datagram(1000 + i, THREE, 5001, b"%d" % i)
        wait_until(lambda: len(s.log) == 300)
        wait_until(lambda: sum(e.get("count", 1) for e in r.events(ev="close", reason="limit")) == 300 - 256)
        self.assertLess(descriptors(r), 280)

    def test_udp_elsewhere(self):
        r = RelayCase.relay(self, rules=["a.test:443"])
        r.lookup("a.test")
        r.datagram(4000, ONE, 5000, b"canary-quic")
        self.assertEqual(r.event(ev="udp")["reason"], "not-tls-or-http")
        self.assertEqual(self.lab.arrived(b"canary-quic"), [])


# --- the monitor, the worker, the end -----------------------------------------------------------

class Control(RelayCase):
    def test_allow_and_deny(self):
        r, s = self.relay(rules=["a.test:443"]), self.echo()
        r.lookup("a.test")
        self.assertEqual(r.lookup("b.test"), (NXDOMAIN, []))
        self.assertEqual(r.allow("b.test"), "")
        self.assertEqual(r.lookup("b.test"), (NOERROR, [ONE]))
        f = r.flow(ONE, 443)
        f.send(hello("b.test"))
        f.read(len(hello("b.test")))
        # another port for a name that is pinned already
        self.assertEqual(r.allow("b.test:8443"), "")
        r.pending()
        self.assertIn((ONE, 8443), r.opened)
        # a denial cuts what is open of that name, and nothing else
        g = r.flow(ONE, 443)
        g.send(hello("a.test"))
        g.read(len(hello("a.test")))
        self.assertEqual(r.deny("b.test"), "")
        self.assertIn(f.end(), ("reset", b""))
        self.assertEqual(r.event(ev="close", name="b.test")["reason"], "denied")
        g.send(b"go on")
        self.assertEqual(g.read(5), b"go on")
        r.pending()
        self.assertEqual(r.opened, {(ONE, 443)})
        self.assertEqual(r.lookup("b.test"), (NXDOMAIN, []))
        self.assertEqual(r.allow("b.test"), "")
        self.assertEqual(r.lookup("b.test"), (NOERROR, [ONE]))
        self.assertEqual([(e["verdict"], e["name"]) for e in r.events(ev="policy")],
                         [("allowed", "b.test"), ("allowed", "b.test:8443"), ("refused", "b.test"),
                          ("allowed", "b.test")])
        self.assertEqual(len(s.log), 2)
        for bad in ("*", "a..b", "1.2.3.4", "a.test:0", "a.test:25"):
            self.assertNotEqual(r.allow(bad), "", bad)

    def test_deny_of_a_silent_client(self):
        """It is denied while the relay waits for whether the server may speak first."""
        s = self.echo(ONE, 2222, banner=b"SSH-2.0-server\r\n")
        r = self.relay(args=["--judge-ms", "1500"])
        r.lookup("a.test")
        r.lookup("b.test")      # keeps the address known, and does not open the port
        f = r.flow(ONE, 2222)
        self.assertEqual(r.deny("a.test"), "")
        self.assertIn(f.end(), ("reset", b""))
        self.assertEqual(r.event(ev="flow")["reason"], "timeout")
        self.assertEqual(s.log, [])
        # no name is left at the address
        r = self.relay()
        r.lookup("a.test")
        f = r.flow(ONE, 2222)
        self.assertEqual(r.deny("a.test"), "")
        self.assertIn(f.end(), ("reset", b""))
        self.assertEqual(r.event(ev="flow")["reason"], "literal")
        self.assertEqual(s.log, [])

    def test_allow_that_fails(self):
        """It takes no denial with it."""
        r = self.relay(rules=["*.w.test:443"])
        self.lab.dns.set("x.w.test", [ONE])
        self.assertEqual(r.deny("x.w.test"), "")
        self.assertEqual(r.lookup("x.w.test"), (NXDOMAIN, []))
        self.assertNotEqual(r.allow("x.w.test:25"), "")
        self.assertEqual(r.lookup("x.w.test"), (NXDOMAIN, []))
        # nor does one for which there is no room: 64 ports of one name
        for port in range(1000, 1064):
            self.assertEqual(r.allow(f"y.w.test:{port}"), "")
        self.assertEqual(r.deny("y.w.test:443"), "")
        self.assertNotEqual(r.allow("y.w.test:443"), "")
        self.lab.dns.set("y.w.test", [ONE])
        r.lookup("y.w.test")
        r.pending()
        self.assertNotIn((ONE, 443), r.opened)

    def forwarded(self, r):
        data, fds, _, _ = socket.recv_fds(r.worker, 100, 1)
        kind, _, port = struct.unpack("<HIH", data)
        self.assertEqual((kind, len(fds)), (FORWARD, 1))
        return port, socket.socket(fileno=fds[0])

    def listener(self, address="127.1.2.3", family=socket.AF_INET):
        s = self.lab.host.socket(family, bind=(address, 0))
        self.addCleanup(s.close)
        return s

    def connect(self, to):
        s = self.lab.host.socket(to.family)
        s.settimeout(10)
        s.connect(to.getsockname())
        self.addCleanup(s.close)
        return s

    def test_published_port(self):
        r, s = self.relay(), self.listener()
        self.assertEqual(r.listen(8080, [s], label="-p 8080"), "")
        for i in range(3):
            c = self.connect(s)
            port, w = self.forwarded(r)
            self.assertEqual(port, 8080)
            c.sendall(b"ping")
            self.assertEqual(w.recv(10), b"ping")
            w.sendall(b"pong")
            self.assertEqual(c.recv(10), b"pong")
            w.close()
        wait_until(lambda: [e["reason"] for e in r.events(ev="port", guest_port=8080, name="-p 8080")] ==
                   ["listen"] + ["connect"] * 3)

    def test_callback_is_used_once(self):
        r = self.relay()
        s, t = self.listener("127.0.0.1"), self.listener("127.0.0.2")
        self.assertEqual(r.listen(9999, [s, t], once=True, deadline_s=300), "")
        self.connect(t)
        self.assertEqual(self.forwarded(r)[0], 9999)
        s.close()
        name, t2 = t.getsockname(), self.lab.host.socket()
        t.close()           # ours; the relay has closed its own
        r.event(ev="port", reason="used")
        with self.assertRaises(ConnectionRefusedError):
            t2.connect(name)

    def test_callback_ends_by_itself(self):
        r, s = self.relay(), self.listener()
        self.assertEqual(r.listen(9999, [s], once=True, deadline_s=1), "")
        name = s.getsockname()
        s.close()
        r.event(ev="port", reason="deadline")
        with self.assertRaises(ConnectionRefusedError):
            self.lab.host.socket().connect(name)

    def test_listen_refusals(self):
        r = self.relay()
        plain = self.lab.host.socket()
        self.assertEqual(r.listen(80, []), "no listening socket came along")
        self.assertEqual(r.listen(80, [plain]), "no listening socket came along")
        for i in range(64):
            self.assertEqual(r.listen(80, [self.listener()]), "")
        self.assertEqual(r.listen(80, [self.listener()]), "too many published ports")
        r = self.relay(worker=False)
        self.assertNotEqual(r.listen(80, [self.listener()]), "")

    def test_worker_with_full_hands(self):
        r, s = self.relay(), self.listener()
        r.listen(80, [s])
        for _ in range(600):
            self.connect(s)
        wait_until(lambda: sum(e.get("count", 1) for e in r.events(ev="port", verdict="refused")) > 0)
        self.assertEqual(r.lookup("a.test")[0], NOERROR)

    def test_keeper(self):
        r = self.relay(resolv=False, keeper=True)
        r.keeper.send(struct.pack("<HI", 1, 0) + blob(b"nameserver 203.0.113.53\n"))
        r.keeper.send(struct.pack("<HI", 2, 0) + blob(b"203.0.113.12 b.test\n"))
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))
        self.assertEqual(r.lookup("b.test"), (NOERROR, [THREE]))
        r.keeper.close()
        wait_until(lambda: "keeper is gone" in r.log())
        self.assertEqual(r.lookup("c.test"), (NOERROR, [TWO]))

    def test_keeper_says_other_things(self):
        r = self.relay(keeper=True)
        r.keeper.send(struct.pack("<HI", 3, 0) + blob(b"evil.test"))
        wait_until(lambda: "keeper is gone" in r.log())
        self.assertEqual(r.lookup("evil.test"), (NXDOMAIN, []))

    def test_drops(self):
        r = self.relay()
        r.dropped(1, 6, THREE, 443, 3)
        r.dropped(4, 1, THREE)
        r.dropped(5)
        e = r.event(ev="drop", reason="address")
        self.assertEqual((e["verdict"], e["proto"], e["addr"], e["port"], e["count"]),
                         ("refused", "tcp", THREE, 443, 3))
        self.assertEqual(r.event(ev="drop", reason="icmp")["proto"], "icmp")
        self.assertNotIn("addr", r.event(ev="drop", reason="ipv6"))

    def test_rate_of_events(self):
        r = self.relay()
        for _ in range(20):
            ids = [r.question("evil.test") for _ in range(100)]
            for i in ids:
                self.assertEqual(r.answer(i)[0], NXDOMAIN)
        total = lambda: sum(e.get("count", 1) for e in r.events(ev="dns", verdict="refused"))
        wait_until(lambda: total() == 2000)
        self.assertLess(len(r.events()), 1200)

    def test_size_of_events(self):
        r = self.relay(args=["--events-max", "20000"])
        for _ in range(5):
            for i in [r.question("evil.test") for _ in range(200)]:
                r.answer(i)
        wait_until(lambda: r.events(ev="end", reason="log-full"))
        self.assertLessEqual(os.path.getsize(r.events_path), 20000)
        self.assertEqual(r.end(), 0)
        self.assertEqual(r.events()[-1]["reason"], "log-full")

    def test_full_disk(self):
        """The monitor hears of it once; what is decided does not depend on the log."""
        r = Relay(self.lab, self.program, self.tmp, rules=["a.test:443"], events_path="/dev/full", resolv=False)
        self.addCleanup(r.end)
        r.question("evil.test")
        kind, number = struct.unpack("<HI", (data := r.control.recv(65536))[:6])
        self.assertEqual((kind, number), (LOST, 0))
        self.assertIn(b"No space left", data)
        r.resolv("nameserver 203.0.113.53\n")
        for _ in range(3):
            self.assertEqual(r.lookup("evil.test"), (NXDOMAIN, []))
        self.assertEqual(r.lookup("a.test"), (NOERROR, [ONE]))
        self.assertEqual(select.select([r.control], [], [], 0)[0], [])

    def test_ends(self):
        r = self.relay()
        self.assertEqual(r.end(), 0)
        self.assertEqual(r.events()[-1], {**r.events()[-1], "ev": "end", "reason": "net"})
        r = self.relay()
        f = r.flow(ONE, 443)
        r.control.close()
        self.assertEqual(r.proc.wait(10), 0)
        self.assertEqual(r.events()[-1]["reason"], "monitor")
        f.close()

    def test_lies_of_cloche_net(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        question = struct.pack("<HHH", 1, 1, A) + blob(b"a.test", "B")
        flow = struct.pack("<HIHH", 2, addr(ONE), 443, 4000)
        rows = [(b"x", []), (struct.pack("<H", 99), []), (question + b"x", []), (question[:-1], []),
                (struct.pack("<HHH", 1, 256, A) + blob(b"a.test", "B"), []),
                (struct.pack("<HHH", 1, 1, A) + blob(b"A.test", "B"), []),
                (struct.pack("<HHH", 1, 1, A) + blob(b"a\0.test", "B"), []),
                (flow, []), (flow, [ours, theirs]), (question, [ours]),
                (struct.pack("<HBBIHI", 3, 99, 0, 0, 0, 1), []),
                (struct.pack("<HHBIB", 32, 1, 0, 30, 0), []), (struct.pack("<HIH", 33, addr(ONE), 443), [])]
        for data, socks in rows:
            r = self.relay()
            socket.send_fds(r.net, [data], [s.fileno() for s in socks])
            self.assertEqual(r.proc.wait(10), 1, data)
            self.assertIn("what is no message", r.log())

    def test_lies_of_the_monitor(self):
        r = self.relay()
        r.control.send(b"x")
        self.assertEqual(r.proc.wait(10), 1)
        r = self.relay()
        self.assertNotEqual(r.ask(FORWARD, struct.pack("<H", 1)), "")      # ours to say

    def test_cage(self):
        r = self.relay()
        with open(f"/proc/{r.proc.pid}/status", encoding="ascii") as f:
            status = dict(x.split(":", 1) for x in f)
        self.assertEqual((status["Seccomp"].strip(), status["NoNewPrivs"].strip()), ("2", "1"))
        self.assertEqual(int(status["CapEff"], 16), 0)

    def test_arguments(self):
        for args in ([], ["--net"], ["--net", "x"], ["--net", "3", "--control", "4"], ["--what", "1"]):
            p = self.lab.run(self.program, *args)
            self.assertEqual(p.returncode, 2, args)


class OrdinaryUser(RelayCase):
    """As root's tests run everything as root: some of it as somebody else."""

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("the other tests did")
        cls.user = pwd.getpwnam(os.environ.get("CLOCHE_TEST_USER", "games"))
        super().setUpClass()
        os.chown(cls.tmp, cls.user.pw_uid, cls.user.pw_gid)

    def test_session(self):
        r, s = self.opened("a.test"), self.echo()
        f = r.flow(ONE, 443)
        f.send(hello("a.test"))
        self.assertEqual(f.read(len(hello("a.test"))), hello("a.test"))
        with open(f"/proc/{r.proc.pid}/status", encoding="ascii") as status:
            uid = next(x for x in status if x.startswith("Uid")).split()[1]
        self.assertEqual(uid, str(self.user.pw_uid))
        self.assertEqual(len(s.log), 1)


class HelperUid(RelayCase):
    def test_root_becomes_somebody(self):
        if os.geteuid() != 0:
            self.skipTest("not root")
        r, s = self.opened("a.test", args=["--uid", str(0x7f000123)]), self.echo()
        f = r.flow(ONE, 443)
        f.send(hello("a.test"))
        self.assertEqual(f.read(len(hello("a.test"))), hello("a.test"))
        with open(f"/proc/{r.proc.pid}/status", encoding="ascii") as status:
            uid = next(x for x in status if x.startswith("Uid")).split()[1]
        self.assertEqual(int(uid), 0x7f000123)
        self.assertEqual(len(s.log), 1)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(200)      # where it waits, before meson ends it
    unittest.main(warnings="ignore")     # sockets are closed with what holds them
