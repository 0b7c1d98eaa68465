# SPDX-License-Identifier: Apache-2.0
"""The network of a sandbox, from inside the guest, against the servers of tests/lib/netlab.py.

What is refused is shown three ways: the guest got nothing, the event log says why, and
no packet with the canary reached the laboratory. Each test boots as few machines as it
can and asks them much: a table per test says what is tried and what must come of it.
"""
import glob
import json
import os
import shutil
import socket
import struct
import subprocess
import time

import netguest as ng
import netlab
from harness import Skip, wait_until
from netguest import Guest
from schema import assert_valid

LOCKED = ["--network", "isolated", "--egress", "locked"]


def allow(*names):
    return [w for n in names for w in ("--allow-host", n)]


def lab_of(h):
    try:
        h.lab = netlab.Lab(h)
    except netlab.Unavailable as e:
        raise Skip(str(e)) from None
    return h.lab


class Events:
    """The event log of the newest sandbox."""

    def __init__(self, h):
        self.h = h

    def path(self):
        found = glob.glob(self.h.path("state", "cloche", "**", "events.jsonl"), recursive=True)
        found += glob.glob(self.h.path("state", "cloche", "**", "*events.jsonl"), recursive=True)
        return max(found, key=os.path.getmtime) if found else None

    def all(self):
        path = self.path()
        if not path:
            return []
        with open(path, encoding="ascii") as f:
            return [json.loads(x) for x in f if x.endswith("\n")]

    def check(self):
        """Every line is as docs/schemas/net-event.json says."""
        for e in self.all():
            assert_valid(json.dumps(e), "net-event")

    def find(self, **want):
        """Those that have all of these; a value may be a predicate."""
        def fits(e):
            return all((v(e.get(k)) if callable(v) else e.get(k) == v) for k, v in want.items())
        return [e for e in self.all() if fits(e)]

    def need(self, **want):
        """At least one of them, soon: what was counted is written once a second."""
        try:
            return wait_until(lambda: self.find(**want), 8)
        except AssertionError:
            tail = "\n".join(json.dumps(e) for e in self.all()[-60:])
            raise AssertionError(f"no event {want}; there are:\n{tail}") from None


def canary(tag):
    return f"CANARY-{tag}-4711".encode()


def none_arrived(lab, *tags):
    for t in tags:
        c = canary(t)
        for form in (c, c.lower(), c.hex().encode()):
            assert not lab.arrived(form), f"{c} reached the world: {lab.arrived(form)[0][:200]!r}"


# --- the gate: what leaves the guest at all ------------------------------------------

def gate_frames():
    """(name, frames, reason in the log): all to an address and port that are open, where that
    can be, so that the one thing that is wrong decides."""
    up, closed = "203.0.113.20", "203.0.113.77"
    c = canary
    syn = lambda tag, dst=up, port=80, **kw: ng.tcp_segment(c(tag), port, dst, **kw)
    rows = []

    def row(tag, reason, *frames):
        rows.append((tag, frames, reason))

    def v4(tag, reason, payload, proto, dst=up, **kw):
        row(tag, reason, ng.ether(ng.ip4(payload, proto, dst, **kw)))

    v4("icmp", "icmp", ng.icmp_echo(c("icmp")), 1)
    v4("icmp-elsewhere", "icmp", ng.icmp_echo(c("icmp-elsewhere")), 1, "198.51.100.9")
    v4("icmp-gateway", "icmp", ng.icmp_echo(c("icmp-gateway")), 1, ng.GATEWAY)
    v4("udp-open-addr", "udp", ng.udp_datagram(c("udp-open-addr"), 80, up), 17)
    v4("udp-dns-elsewhere", "udp", ng.udp_datagram(c("udp-dns-elsewhere"), 53, netlab.DNS_ADDR), 17, netlab.DNS_ADDR)
    v4("udp-gateway", "udp", ng.udp_datagram(c("udp-gateway"), 123, ng.GATEWAY), 17, ng.GATEWAY)
    v4("syn-literal", "address", syn("syn-literal", closed), 6, closed)
    v4("syn-port", "address", syn("syn-port", up, 8080), 6)
    v4("syn-25", "port", syn("syn-25", up, 25), 6)
    v4("syn-gateway", "address", syn("syn-gateway", ng.GATEWAY, 80), 6, ng.GATEWAY)
    for tag, dst in (("ten", "10.9.0.1"), ("lan", "192.168.7.1"), ("meta", "169.254.169.254"),
                     ("cgn", "100.64.9.1"), ("net172", "172.16.9.1"), ("loop", "127.0.0.1"),
                     ("zero", "0.0.0.0"), ("cast", "224.0.0.251"), ("all", "255.255.255.255")):
        v4(f"syn-{tag}", ("closed", "address"), syn(f"syn-{tag}", dst, 80), 6, dst)
    v4("syn-host", ("closed", "address"), syn("syn-host", netlab.HOST_ADDR, 22), 6, netlab.HOST_ADDR)
    for tag, proto in (("gre", 47), ("sctp", 132), ("ipip", 4), ("igmp", 2), ("esp", 50)):
        v4(f"proto-{tag}", "protocol", c(f"proto-{tag}"), proto)
    v4("options-lsrr", "options", syn("options-lsrr"), 6, options=bytes([131, 7, 4, 198, 51, 100, 9, 0]))
    # fragments: of TCP to the open port, and of a question to our own resolver
    whole = ng.udp_datagram(ng.question("canary-frag-4711.test"), 53, ng.GATEWAY)
    row("frag-dns", "fragment", ng.ether(ng.ip4(whole[:24], 17, ng.GATEWAY, frag=0x2000)),
        ng.ether(ng.ip4(whole[24:], 17, ng.GATEWAY, frag=3)))
    v4("frag-tcp", "fragment", syn("frag-tcp"), 6, frag=0x2000)
    v4("frag-offset", "fragment", c("frag-offset") + bytes(32), 6, frag=0x0010)
    for tag, tpid in (("vlan", 0x8100), ("qinq", 0x88a8)):
        inner = struct.pack(">HH", 7, 0x0800) + ng.ip4(syn(tag), 6, up)
        row(tag, "vlan", ng.ether(inner, tpid))
    for tag, src in (("spoof-peer", "10.87.255.3"), ("spoof-world", "203.0.113.1"), ("spoof-loop", "127.0.0.1"),
                     ("spoof-gateway", ng.GATEWAY)):
        v4(tag, "spoofed", syn(tag, src=src), 6, src=src)
    row("spoof-mac", "spoofed", ng.ether(ng.ip4(syn("spoof-mac"), 6, up), src=bytes.fromhex("02c10c570010")))
    row("arp-spoof", "spoofed", ng.ether(
        struct.pack(">HHBBH", 1, 0x800, 6, 4, 2) + ng.GUEST_MAC + socket.inet_aton("10.87.255.9") +
        ng.GATEWAY_MAC + socket.inet_aton(ng.GATEWAY), 0x0806))
    for tag, kind in (("ncsi", 0x88f8), ("lldp", 0x88cc), ("pppoe", 0x8863), ("wol", 0x0842), ("llc", 200)):
        row(f"type-{tag}", "ethertype", ng.ether(c(f"type-{tag}") + bytes(200), kind))
    dst6 = "2001:db8::53"
    udp6 = ng.udp_datagram(c("ip6-udp"), 53, dst6, src="2001:db8:0:1::99")
    tcp6 = ng.tcp_segment(c("ip6-tcp"), 443, dst6, src="2001:db8:0:1::99")
    row("ip6-udp", "ipv6", ng.ether(ng.ip6(udp6, 17, dst6), 0x86dd))
    row("ip6-tcp", "ipv6", ng.ether(ng.ip6(tcp6, 6, dst6), 0x86dd))
    row("ip6-hop", "ipv6", ng.ether(ng.ip6(bytes([17, 0, 5, 2, 0, 0, 1, 0]) + udp6, 0, dst6), 0x86dd))
    # what is no packet
    good = ng.ip4(syn("bad"), 6, up)
    row("bad-short", "malformed", ng.ether(good[:30]))
    row("bad-ihl", "malformed", ng.ether(b"\x44" + good[1:]))
    row("bad-version", "malformed", ng.ether(b"\x55" + good[1:]))
    row("bad-length", "malformed", ng.ether(good[:2] + struct.pack(">H", 9000) + good[4:]))
    bad = bytearray(good)
    bad[20 + 12] = 15 << 4
    row("bad-offset", "malformed", ng.ether(bytes(bad[:40])))
    return rows


def test_gate(h):
    """Every kind of frame that must not pass, and that nothing of it arrives anywhere."""
    lab = lab_of(h)
    p = h.project("demo", {})
    ev = Events(h)
    lab.dns.set("plain.test", ["203.0.113.20"])
    web = lab.http("203.0.113.20", "plain")
    tunnel = netlab.UdpEcho(lab, "198.51.100.53", 53)
    with Guest(h, p, LOCKED + allow("plain.test:80")) as g:
        # what is allowed works, so a refusal is one of the gate's
        assert g.resolve("plain.test").addrs == ["203.0.113.20"]
        assert b"plain /first" in g.talk("203.0.113.20", 80, "s=GET /first HTTP/1.1\r\nHost: plain.test\r\n\r\n",
                                         "p=/first\n").data
        before = len(lab.packets)

        rows = gate_frames()
        for tag, frames, _ in rows:
            a = g.ask("frame", "0", *frames)
            assert a.word == f"sent={len(frames)}", (tag, a)
        # the same with the guest's own sockets: nothing hangs
        tries = [("talk", "203.0.113.77", "80", "s=" + canary("literal").decode(), "e"),
                 ("talk", "198.51.100.53", "53", "s=" + canary("tcp53").decode(), "e"),
                 ("talk", "203.0.113.20", "8080", "s=x"),
                 ("talk", "10.9.0.1", "80", "s=x"),
                 ("talk", netlab.HOST_ADDR, "80", "s=x"),
                 ("talk", ng.SERVICE, "80", "s=x"),
                 ("talk", "203.0.113.20", "25", "s=x")]
        for words, a in zip(tries, g.all(tries)):
            assert a.word == "refused" and a.ms < 3000, (words, a)
        tries = [("udp", "198.51.100.53", "53", "1000", ng.question("canary-udp53-4711.test")),
                 ("udp", netlab.DNS_ADDR, "53", "1000", ng.question("canary-udp53b-4711.test")),
                 ("udp", "203.0.113.20", "443", "1000", canary("quic")),
                 ("udp", "255.255.255.255", "67", "1000", canary("broadcast")),
                 ("udp", "224.0.0.251", "5353", "1000", canary("multicast"))]
        for words, a in zip(tries, g.all(tries)):
            assert not a.got, (words, a)

        # questions: what is none is dropped, a name outside the policy never leaves
        long = ".".join([canary("dns").hex()] * 3)
        for name, qtype in ((f"{long}.tunnel.test", 1), (f"{canary('txt').hex()}.tunnel.test", 16),
                            ("data.plain.test", 1), ("plain.test.other", 1), ("test", 1), ("other.test", 28)):
            r = g.resolve(name, qtype)
            assert r and r.rcode == 3 and not r.addrs, (name, r)
        for qtype in (28, 16, 65, 15, 255, 2, 64):
            r = g.resolve("plain.test", qtype)
            assert r and r.rcode in (0, 5) and not r.records, (qtype, r)
        assert g.resolve("PLAIN.Test").addrs == ["203.0.113.20"]
        assert g.talk(ng.GATEWAY, 53).word == "refused"
        q = ng.question("plain.test")
        broken = {
            "two questions": q[:4] + b"\0\2" + q[6:] + ng.dns_labels("canary-two-4711.test") + b"\0\1\0\1",
            "an answer": q[:2] + b"\x81\x80" + q[4:],
            "opcode": q[:2] + b"\x28\0" + q[4:],
            "more bytes": q + canary("trail"),
            "pointer": q[:12] + b"\xc0\x0c\0\1\0\1",
            "cut": q[:-3],
            "no question": q[:4] + b"\0\0" + q[6:12],
            "class": q[:-2] + b"\0\3",
            "label of 64": ng.question(b"\x40" + b"a" * 64 + b"\4test\0"),
            "reserved label": ng.question(b"\x80plain\4test\0"),
            "empty": b"",
        }
        for why, msg in broken.items():
            a = g.udp(ng.GATEWAY, 53, msg, 700)
            assert not a.got or a.data[3] & 15 in (1, 4, 5), (why, a)
        r = g.resolve(b"\7pla\0in1\4test\0")
        assert r is None or r.rcode in (1, 3, 5), r
        assert g.talk("203.0.113.20", 80, "s=GET /last HTTP/1.1\r\nHost: plain.test\r\n\r\n", "p=/last\n").got

        for tag, _, reason in rows:
            want = reason if isinstance(reason, tuple) else (reason,)
            ev.need(ev="drop", verdict="refused", reason=lambda r, w=want: r in w)
        for reason in {r for _, _, r in rows if isinstance(r, str)}:
            ev.need(ev="drop", reason=reason)
        ev.need(ev="dns", verdict="refused", name="data.plain.test")
    assert before > 0
    none_arrived(lab, *[t for t, _, _ in rows], "literal", "tcp53", "quic", "broadcast", "multicast", "dns", "txt",
                 "udp53", "udp53b", "two", "trail", "frag")
    assert lab.seen() == {("udp", netlab.DNS_ADDR, 53), ("tcp", "203.0.113.20", 80)}, lab.seen()
    assert {(q.name, q.qtype) for q in lab.dns.log} == {("plain.test", 1)}, lab.dns.log
    assert [r for _, r in web.requests()] == ["/first", "/last"], web.requests()
    assert tunnel.log == []
    ev.check()
    h.wait_clean()


# --- the first bytes ---------------------------------------------------------------------

def hello_rows():
    """(tag, passes, steps, reason): to 203.0.113.12:443, where exact.test answers."""
    good = ng.client_hello("exact.test")
    many = struct.pack(">HH", 21, 3000) + bytes(3000)
    huge = struct.pack(">HH", 21, 15000) + bytes(15000)
    mark = lambda tag: struct.pack(">HH", 0xff77, len(canary(tag))) + canary(tag)
    hello = lambda tag, sni, ext=b"", **kw: ng.client_hello(sni, mark(tag) + ext, **kw)
    return [
        ("plain", True, [good], None),
        ("upper", True, [ng.client_hello("EXACT.Test")], None),
        ("grease", True, [ng.client_hello("exact.test", grease=True)], None),
        ("long", True, [ng.client_hello("exact.test", many)], None),
        ("two-segments", True, [good[:40], 300, good[40:]], None),
        ("byte-by-byte", True, [x for b in good[:12] for x in (bytes([b]), 20)] + [good[12:]], None),
        ("three-records", True, [ng.records(good, 3, 60)], None),
        ("no-sni", False, [hello("no-sni", None)], "no-name"),
        ("other", False, [hello("other", "b.test")], "name"),
        ("unpinned", False, [hello("unpinned", "c.test")], "mismatch"),
        ("nul", False, [hello("nul", "exact.test\0.b.test")], "malformed"),
        ("two-names", False, [hello("two-names", "exact.test", extra_names=["b.test"])], "malformed"),
        ("ech", False, [hello("ech", "exact.test", ng.ech_outer())], "ech"),
        ("long-name", False, [hello("long-name", ".".join(["a" * 63] * 4) + ".test")], ("malformed", "name")),
        ("dot", None, [hello("dot", "exact.test.")], ("malformed", "name", None)),
        ("literal", False, [hello("literal", "203.0.113.12")], ("malformed", "name", "literal", "no-name")),
        ("empty-name", False, [hello("empty-name", "")], ("malformed", "no-name")),
        ("garbage", False, [canary("garbage") + bytes(range(256))], "not-tls-or-http"),
        ("sslv2", False, [b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + canary("sslv2") + bytes(30)],
         ("not-tls-or-http", "malformed")),
        ("too-long", False, [ng.client_hello(None, mark("too-long") + huge + huge)], ("too-long", "malformed", "no-name")),
        ("split-evil", False, [hello("split-evil", "b.test")[:60], 300, hello("split-evil", "b.test")[60:]], "name"),
        ("records-evil", False, [ng.records(hello("records-evil", "b.test"), 2, 50)], "name"),
        ("half", False, [hello("half", "exact.test")[:70], "h"], ("ended", "malformed")),
        ("http-here", None, [b"GET / HTTP/1.1\r\nHost: exact.test\r\nX: " + canary("http-here") + b"\r\n\r\n"], None),
        ("ssh-here", False, [b"SSH-2.0-" + canary("ssh-here") + b"\r\n"], "not-tls-or-http"),
    ]


def http_rows():
    """(tag, requests that arrive, steps, reason): to 203.0.113.20:80, where plain.test answers."""
    def req(path, host="plain.test", line="GET {} HTTP/1.1", more="", body=""):
        first = line.format(path)
        return (first + "\r\n" + (f"Host: {host}\r\n" if host is not None else "") + more + "\r\n" + body).encode()

    def bad(tag, **kw):
        return req("/" + canary(tag).decode(), **kw)
    def connect(tag, host):
        return b"CONNECT " + canary(tag) + b".test:443 HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n"
    chunked = dict(line="POST {} HTTP/1.1", more="Transfer-Encoding: chunked\r\n")
    inner = "GET /{} HTTP/1.1\r\nHost: other.test\r\n\r\n"

    return [
        ("one", ["/one"], [req("/one")], None),
        ("port", ["/port"], [req("/port", "plain.test:80")], None),
        ("case", ["/case"], [req("/case", "Plain.TEST")], None),
        ("two", ["/k1", "/k2"], [req("/k1"), 200, req("/k2")], None),
        ("pipelined", ["/p1", "/p2"], [req("/p1") + req("/p2")], None),
        ("absolute", ["http://plain.test/abs"], [req("http://plain.test/abs")], None),
        ("split", ["/split"], [x for b in req("/split") for x in (bytes([b]), 5)], None),
        ("post", ["/post", "/after-post"],
         [req("/post", line="POST {} HTTP/1.1", more="Content-Length: 5\r\n", body="12345"), req("/after-post")], None),
        ("chunked", ["/chunked", "/after-chunked"],
         [req("/chunked", body="5\r\nabcde\r\n0\r\n\r\n", **chunked), req("/after-chunked")], None),
        ("body-evil", ["/body-evil"],      # a body is a body, whatever is in it
         [req("/body-evil", line="POST {} HTTP/1.1", more=f"Content-Length: {len(inner.format('in-body'))}\r\n",
              body=inner.format("in-body"))], None),
        ("no-host", [], [bad("no-host", host=None)], ("no-name", "malformed")),
        ("http10", [], [bad("http10", host=None, line="GET {} HTTP/1.0")], "no-name"),
        ("other-host", [], [bad("other-host", host="other.test")], "name"),
        ("unpinned-host", [], [bad("unpinned-host", host="c.test")], ("mismatch", "name")),
        ("literal-host", [], [bad("literal-host", host="203.0.113.20")], ("literal", "malformed", "name")),
        ("other-port", [], [bad("other-port", host="plain.test:8080")], ("port", "malformed", "name")),
        ("two-hosts", [], [bad("two-hosts", more="Host: other.test\r\n")], "malformed"),
        ("fold", [], [bad("fold", more=" other.test\r\n")], "malformed"),
        ("space-colon", [], [bad("space-colon", host=None, more="Host : plain.test\r\n")], "malformed"),
        ("bare-lf", [], [b"GET /" + canary("bare-lf") + b" HTTP/1.1\nHost: other.test\n\n"], ("malformed", "name")),
        ("absolute-other", [], [req("http://other.test/" + canary("absolute-other").decode())],
         ("malformed", "mismatch", "name")),
        ("second", ["/s1"], [req("/s1"), 300, bad("second", host="other.test")], "name"),
        ("second-pipelined", ["/s2"], [req("/s2") + bad("second-pipelined", host="other.test")], "name"),
        ("second-after-post", ["/s3"],
         [req("/s3", line="POST {} HTTP/1.1", more="Content-Length: 4\r\n", body="1234") +
          bad("second-after-post", host="other.test")], "name"),
        ("te-cl", [], [bad("te-cl", line="POST {} HTTP/1.1",
                           more="Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", body="0\r\n\r\n")], "malformed"),
        ("two-cl", [], [bad("two-cl", line="POST {} HTTP/1.1", more="Content-Length: 0\r\nContent-Length: 30\r\n")],
         "malformed"),
        ("te-odd", [], [bad("te-odd", line="POST {} HTTP/1.1", more="Transfer-Encoding: xchunked\r\n")], "malformed"),
        ("chunk-evil", ["/s4"], [req("/s4", body="5\r\nabcde\r\n0\r\n\r\n", **chunked) +
                                 bad("chunk-evil", host="other.test")], "name"),
        ("connect", [], [connect("connect", "plain.test")], ("connect", "malformed")),
        ("connect-own", [], [connect("connect-own", canary("connect-own").decode() + ".test:443")],
         ("connect", "name")),
        ("connect-second", ["/s5"], [req("/s5"), 200, connect("connect-second", "plain.test")],
         ("connect", "malformed")),
        ("h2c", [], [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + canary("h2c")], ("http2", "malformed")),
        ("long-head", [], [b"GET /" + canary("long-head") + b" HTTP/1.1\r\nX: " + b"a" * 17000], "too-long"),
        ("garbage", [], [b"\0\1\2" + canary("garbage80")], "not-tls-or-http"),
        ("ssh", [], [b"SSH-2.0-x\r\n" + canary("ssh80")], "not-tls-or-http"),
    ]


def steps_of(pieces):
    out = []
    for x in pieces:
        out.append(f"w={x}" if isinstance(x, int) else x if isinstance(x, str) else b"s=" + x)
    return out


def refused(ev, tag, answer, reason):
    """That connection of the guest has a refusal in the log, with one of these reasons."""
    want = reason if isinstance(reason, tuple) else (reason,)
    try:
        got = ev.need(verdict="refused", guest_port=answer.port)
    except AssertionError as e:
        raise AssertionError(f"{tag}: {answer}: {e}") from None
    assert got[0]["reason"] in want, (tag, want, got)


def test_first_bytes(h):
    """On an address that is open, the client's first bytes decide; what was judged is what arrives."""
    lab = lab_of(h)
    p = h.project("demo", {})
    ev = Events(h)
    for name, addr in (("a.test", 10), ("b.test", 10), ("c.test", 11), ("exact.test", 12), ("plain.test", 20),
                       ("raw.test", 30), ("proxy.test", 31), ("doh.test", 10)):
        lab.dns.set(name, [f"203.0.113.{addr}"])
    both = lab.https("203.0.113.10", ["a.test", "b.test", "doh.test"])
    lab.https("203.0.113.11", ["c.test"])
    exact = lab.echo("203.0.113.12", 443)
    plain = lab.http("203.0.113.20", "plain")
    raw, banner = lab.echo("203.0.113.30", 7000), lab.echo("203.0.113.30", 22, banner=b"SSH-2.0-lab\r\n")
    proxy80, proxy3128 = netlab.Proxy(lab, "203.0.113.31", 80), netlab.Proxy(lab, "203.0.113.31", 3128)
    lab.trust_ca()
    flags = LOCKED + allow("a.test", "c.test", "exact.test", "plain.test:80", "c.test:80", "raw.test:7000",
                           "raw.test:22", "proxy.test:80", "proxy.test:3128")
    with Guest(h, p, flags) as g:
        slow = None
        for n in ("a", "c", "exact", "plain", "raw", "proxy"):
            assert g.resolve(f"{n}.test").addrs, n
        # the relay waits 10 s for a verdict, no longer
        part = ng.client_hello("exact.test")
        slow = g.begin("talk", "203.0.113.12", "443", b"s=" + part[:50], "t=20000", "e")
        slow80 = g.begin("talk", "203.0.113.20", "80", "s=GET / HT", "t=20000", "e")

        # two names on one address are told apart
        rc, out = g.sh("curl -sS https://a.test/mine; curl -sS --resolve b.test:443:203.0.113.10 https://b.test/canary-b; "
                       "curl -sS --resolve doh.test:443:203.0.113.10 --data-binary canary-doh "
                       "-H 'Content-Type: application/dns-message' https://doh.test/dns-query; "
                       "curl -sS --connect-to c.test:443:203.0.113.10:443 https://c.test/canary-c; "
                       "curl -sSk https://203.0.113.10/canary-ip; true")
        assert "a.test /mine" in out and "canary" not in out, out
        assert both.requests() == [("a.test", "/mine")], both.requests()
        assert [c.sni for c in both.log] == ["a.test"], [c.hello for c in both.log]
        ev.need(ev="flow", verdict="refused", reason="name", name="b.test", addr="203.0.113.10")
        ev.need(ev="flow", verdict="refused", reason="name", name="doh.test")
        ev.need(ev="flow", verdict="refused", reason="mismatch", name="c.test", addr="203.0.113.10")
        ev.need(ev="flow", verdict="allowed", name="a.test", addr="203.0.113.10", port=443)

        # TLS
        rows = hello_rows()
        answers = g.all([("talk", "203.0.113.12", "443", "t=3000", *steps_of(steps),
                          f"r={sum(len(x) for x in steps if isinstance(x, bytes))}") for _, _, steps, _ in rows])
        for (tag, passes, steps, reason), a in zip(rows, answers):
            sent = b"".join(x for x in steps if isinstance(x, bytes))
            if passes:
                assert a.data == sent, (tag, a)
                assert any(bytes(c.data) == sent for c in exact.log), tag
                ev.need(ev="flow", verdict="allowed", guest_port=a.port, name="exact.test", proto="tls")
            elif passes is False:
                assert not a.data and a.endswith(("reset", "eof")), (tag, a)
                refused(ev, tag, a, reason)
        ok = {b"".join(x for x in s if isinstance(x, bytes)) for _, passes, s, _ in rows if passes is not False}
        extra = [bytes(c.data) for c in exact.log if bytes(c.data) not in ok]
        assert all(x.startswith(b"GET / HTTP/1.1\r\nHost: exact.test\r\n") for x in extra), extra

        # HTTP
        rows80 = http_rows()
        answers = g.all([("talk", "203.0.113.20", "80", "t=3000", *steps_of(steps), *(["h"] if reason is None else []),
                          "e") for _, _, steps, reason in rows80])
        paths = [path for _, path in plain.requests()]
        for (tag, want, steps, reason), a in zip(rows80, answers):
            if not reason or len(steps) > 1:    # of one write, what comes first may be cut off, too
                assert all(paths.count(w) == 1 for w in want), (tag, want, paths, a)
            if reason:
                assert a.endswith(("reset", "eof")), (tag, a)
                refused(ev, tag, a, reason)
        assert len(paths) == len(set(paths)) and set(paths) <= {w for _, want, *_ in rows80 for w in want}, paths
        hosts = {x[0].lower().split(":")[0] for x in plain.requests()}
        assert hosts == {"plain.test"}, hosts

        # a port that the policy names: any bytes, servers that speak first, but no other host's head
        every = bytes(range(256)) * 40
        a = g.talk("203.0.113.30", 7000, b"s=" + every, f"r={len(every)}", "h", "e")
        assert a.data == every and a.endswith("eof"), a
        a = g.talk("203.0.113.30", 22, "r=13", "s=SSH-2.0-guest\r\n", "r=17")
        assert a.got == [b"SSH-2.0-lab\r\n", b"SSH-2.0-guest\r\n"][:len(a.got)] and len(a.got) == 2, a
        for tag, first in (("raw-http", b"GET / HTTP/1.1\r\nHost: other.test\r\nX: " + canary("raw-http") + b"\r\n\r\n"),
                           ("raw-tls", ng.client_hello("b.test", struct.pack(">HH", 0xff77, 19) + canary("raw-tls")))):
            a = g.talk("203.0.113.30", 7000, b"s=" + first, "t=3000", "e")
            assert not a.data, (tag, a)
        # a proxy on an allowed host leads nowhere else
        for port in (80, 3128):
            a = g.talk("203.0.113.31", port, b"s=CONNECT " + canary("proxy") + b".test:443 HTTP/1.1\r\n"
                       b"Host: proxy.test\r\n\r\n", "t=3000", "e")
            assert not a.data, a
            a = g.talk("203.0.113.31", port, b"s=GET http://other.test/" + canary("proxy-get") +
                       b" HTTP/1.1\r\nHost: other.test\r\n\r\n", "t=3000", "e")
            assert not a.data, a
        assert proxy80.asked == [] and proxy3128.asked == []

        # many at once: up to the limits all are served, beyond them they are refused, and it goes on
        for n in (100, 1500):
            i = g.begin("flows", "203.0.113.30", "22", str(n), "1000")
            a = g.wait(i + "+")
            assert n > 100 or a.endswith("failed=0"), a
            g.wait(i)
        ev.need(verdict="refused", reason=lambda r: r in ("limit", "flows"))

        # size, both ways, and half-close
        rc, out = g.sh("curl -sS http://plain.test/bytes/3000000 | wc -c; head -c 3000000 /dev/zero | "
                       "curl -sS --data-binary @- http://plain.test/upload")
        assert out.split()[0] == "3000000" and "/upload" in out, out
        assert len(plain.log[-1].requests[-1][1]) == 3000000

        # segments that overlap, come in another order, are urgent, or come with the SYN
        assert g.ask("addr", "-") == "ok"
        good = b"GET /seg HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n"
        evil = good.replace(b"plain.test", b"other.test")
        seen = len(plain.log)
        seg = lambda *steps: g.ask("segments", "203.0.113.20", 80, *steps)
        at = lambda off, b: f"{off}=".encode() + b
        # the link loses nothing, so what comes behind a gap may be dropped: it is sent again
        for steps in ((at(0, good),), (at(20, good[20:]), "w=100", at(0, good[:20]), at(20, good[20:])),
                      (at(0, good[:9]), at(5, good[5:]))):
            a = seg(*steps)
            assert b"plain /seg" in a.data, (steps, a)
        overlaps = [(at(10, evil[10:]), at(0, good)), (at(10, good[10:]), at(0, evil)),
                    (at(0, good[:30]), at(25, evil[25:]), at(30, good[30:])),
                    (at(1, evil[1:]), at(1, good[1:]), at(0, b"G")),
                    (at(1, good[1:]), at(1, evil[1:]), at(0, b"G"))]
        for o in overlaps:
            seg(*o, "w=300", at(0, good), "w=300")
        a = seg(f"0!2000=".encode() + good)
        assert b"plain /seg" in a.data, a
        a = seg(b"SYN=" + good, at(0, good))
        assert b"plain /seg" in a.data or a.word == "refused", a
        seg(b"SYN=" + evil, at(0, good), "w=300")
        seg(at(0, good[:-2]), f"{len(good) - 2}.", "w=200", at(len(good) - 2, evil))
        for c in plain.log[seen:]:
            for head, _ in c.requests:
                assert head + b"\r\n\r\n" == good, head
            assert b"other.test" not in c.data and len(c.data) <= 2 * len(good), bytes(c.data)
        assert g.ask("addr", ng.GUEST) == "ok"
        a = g.talk("203.0.113.20", 80, b"f=" + good, "p=/seg\n")
        assert b"plain /seg" in a.data, a
        a = g.talk("203.0.113.20", 80, b"s=" + good[:-1], b"o=" + good[-1:], "p=/seg\n", "t=2000")
        assert len(plain.log[-1].data) <= len(good)

        for a in (g.wait(slow), g.wait(slow80)):
            assert a.endswith(("reset", "eof")) and not a.data, a
        ev.need(ev="flow", verdict="refused", reason="timeout")
    none_arrived(lab, *[t for t, ok, _, _ in hello_rows() if ok is False], *[t for t, *_ in rows80], "garbage80", "ssh80",
                 "raw-http", "raw-tls", "proxy", "proxy-get")
    for c in (b"canary-b", b"canary-doh", b"canary-ip", b"canary-c"):
        assert not lab.arrived(c)
    assert {p for k, a, p in lab.seen() if a == "203.0.113.10"} == {443}
    ev.check()
    h.wait_clean()


# --- names and their answers -----------------------------------------------------------------

def test_answers(h):
    """What an answer may open, for how long, and what a dead or changed resolver does."""
    lab = lab_of(h)
    p = h.project("demo", {})
    ev = Events(h)
    closed = {"loop.test": "127.0.0.1", "ten.test": "10.9.0.1", "lan.test": "192.168.7.1", "net172.test": "172.16.9.1",
              "cgn.test": "100.64.9.1", "meta.test": "169.254.169.254", "cast.test": "224.0.0.1",
              "zero.test": "0.0.0.0", "own.test": netlab.HOST_ADDR, "all.test": "255.255.255.255",
              "guest.test": ng.GUEST}
    dns = lab.dns
    for name, addr in closed.items():
        dns.set(name, [addr])
    dns.set("mixed.test", ["203.0.113.41", "10.9.0.41"])
    dns.set("chain.test", cname="one.elsewhere.test")
    dns.set("one.elsewhere.test", cname="two.elsewhere.test")
    dns.set("two.elsewhere.test", ["203.0.113.42"])
    dns.set("inward.test", cname="two.inward.test")
    dns.set("two.inward.test", ["10.9.0.42"])
    dns.set("ring.test", cname="ring2.test")
    dns.set("ring2.test", cname="ring.test")
    for i in range(25):
        dns.set(f"l{i}.test" if i else "deep.test", cname=f"l{i + 1}.test")
    dns.set("l25.test", ["203.0.113.43"])
    dns.set("extra.test", ["203.0.113.44"], extra=[("other.test", "203.0.113.66"), ("c.test", "203.0.113.67")])
    dns.set("many.test", [f"203.0.113.{i}" for i in range(80, 100)])
    dns.set("cut.test", ["203.0.113.45"], truncate=True)
    dns.set("bad.test", rcode=2)
    dns.set("mute.test", silent=True)
    dns.set("low.test", ["203.0.113.46"], ttl=0)
    dns.set("high.test", ["203.0.113.47"], ttl=1000000)
    dns.set("short.test", ["203.0.113.48"], ttl=1)
    dns.set("turn.test", ttl=0, script=lambda n: ["203.0.113.49"] if n == 0 else ["10.9.0.49"])
    dns.set("x.wild.test", ["203.0.113.50"])
    dns.set("wild.test", ["203.0.113.51"])
    dns.set("late.test", ["203.0.113.52"])
    dns.set("intra.corp.test", ["203.0.113.54"])
    names = [*closed, "mixed.test", "chain.test", "inward.test", "ring.test", "deep.test", "extra.test", "many.test",
             "cut.test", "bad.test", "mute.test", "low.test", "high.test", "short.test:7000", "turn.test",
             "*.wild.test", "late.test", "hosted.test", "hosted-in.test", "intra.corp.test", "chain.test:80"]
    for a in (42, 44, 66, 67, 41):
        lab.http(f"203.0.113.{a}", f"at{a}")
    inside = [lab.http(a, "inside") for a in ("10.9.0.1", "10.9.0.41", "10.9.0.49", "192.168.7.1", "169.254.169.254")]
    own = lab.http(netlab.HOST_ADDR, "own", where="host")
    loop = lab.http("127.0.0.1", "loop", where="host")
    echo = lab.echo("203.0.113.48", 7000)
    lab.hosts("127.0.0.1 localhost\n203.0.113.70 hosted.test\n127.0.0.1 hosted-in.test\n")

    with Guest(h, p, LOCKED + allow(*names)) as g:
        started = time.monotonic()
        r = g.resolve("short.test")
        assert r.addrs == ["203.0.113.48"] and r.ttls == [30], r
        long = g.begin("talk", "203.0.113.48", "7000", "s=first\n", "r=6", "w=102000", "s=later", "t=5000", "r=5", "h", "e")

        # answers that lead inside
        tries = list(closed) + ["inward.test"]
        for name in tries:
            r = g.resolve(name)
            assert r and not r.addrs, (name, r)
            ev.need(ev="dns", verdict="refused", reason="rebinding", name=name)
        for a in g.all([("talk", a, "80", "t=1000", "s=x") for a in
                        ("10.9.0.1", "192.168.7.1", "169.254.169.254", netlab.HOST_ADDR, "127.0.0.2")]):
            assert a.word == "refused", a
        r = g.resolve("mixed.test")
        assert r.addrs in ([], ["203.0.113.41"]), r
        assert g.talk("10.9.0.41", 80, "t=1000").word == "refused"

        # chains, and records that nobody asked for
        assert g.resolve("chain.test").addrs == ["203.0.113.42"]
        out = g.talk("203.0.113.42", 80, "s=GET / HTTP/1.1\r\nHost: chain.test\r\n\r\n", "p=at42")
        assert b"at42" in out.data, out
        out = g.talk("203.0.113.42", 80, "s=GET / HTTP/1.1\r\nHost: two.elsewhere.test\r\n\r\n", "t=3000", "p=at42")
        assert not out.data, out
        assert g.resolve("two.elsewhere.test").rcode == 3
        for name in ("ring.test", "deep.test", "bad.test", "mute.test"):
            r = g.resolve(name)
            assert r and r.rcode in (2, 5) and not r.addrs, (name, r)
        r = g.resolve("extra.test")
        assert r.addrs == ["203.0.113.44"], r
        for a in (66, 67):
            assert g.talk(f"203.0.113.{a}", 80, "t=1000").word == "refused"
        r = g.resolve("many.test")
        assert 4 <= len(r.addrs) <= 20 and set(r.addrs) <= {f"203.0.113.{i}" for i in range(80, 100)}, r
        assert g.resolve("cut.test").addrs == ["203.0.113.45"]
        assert {q.proto for q in dns.log if q.name == "cut.test"} == {"udp", "tcp"}
        assert g.resolve("low.test").ttls == [30] and g.resolve("high.test").ttls == [3600]
        assert g.resolve("x.wild.test").addrs == ["203.0.113.50"]
        assert g.resolve("wild.test").rcode == 3 and g.resolve("y.x.wild.test").rcode == 3
        assert g.resolve("turn.test").addrs == ["203.0.113.49"]
        assert not any(q.qtype != 1 for q in dns.log), dns.log
        assert "wild.test" not in dns.names() and "two.elsewhere.test" not in dns.names(), dns.names()

        # hosts and resolv.conf of the host, which may change
        assert g.resolve("hosted.test").addrs == ["203.0.113.70"] and not g.resolve("hosted-in.test").addrs
        assert "hosted.test" not in dns.names()
        second, stub = netlab.Dns(lab, "203.0.113.153"), netlab.Dns(lab, "127.0.0.53", where="host")
        second.set("late.test", ["203.0.113.55"])
        stub.set("intra.corp.test", ["203.0.113.56"])
        lab.resolv_conf("nameserver 203.0.113.153\n")
        wait_until(lambda: g.resolve("late.test").addrs == ["203.0.113.55"], 10)
        lab.resolv_conf("nameserver 127.0.0.53\nsearch corp.test\n", rename=False)
        wait_until(lambda: g.resolve("intra.corp.test").addrs == ["203.0.113.56"], 10)
        lab.resolv_conf(f"nameserver {netlab.DNS_ADDR}\n")
        wait_until(lambda: g.resolve("intra.corp.test").addrs == ["203.0.113.54"], 40)

        # the resolver is dead for a minute: answers say so, nothing else ends
        dns.dead, died = True, time.monotonic()
        r = g.resolve("late.test") or g.resolve("mixed.test")
        while time.monotonic() < died + 60:
            r = g.resolve("cut.test")
            assert r is None or r.rcode in (0, 2), r
            time.sleep(5)
        dns.dead = False
        wait_until(lambda: (g.resolve("bad.test") or r).rcode == 2 and
                   (g.resolve("late.test") or r).addrs == ["203.0.113.52"], 30)
        ev.need(ev="dns", reason="upstream")
        assert not (g.resolve("turn.test") or r).addrs

        # what was open stays open, and opens nothing new: 30 s of the clamp and 60 s of grace are over
        while time.monotonic() < started + 100:
            time.sleep(1)
        a = g.talk("203.0.113.48", 7000, "t=2000", "s=" + canary("expired").decode() + "\n", "r=5")
        assert a.word == "refused" or not a.got, a
        a = g.wait(long, 60)
        assert a.got == [b"first\n", b"later", b""] and a.endswith("eof"), a
    assert not any(s.log for s in inside) and not own.log and not loop.log
    assert bytes(echo.log[0].data) == b"first\nlater", echo.log[0].data
    none_arrived(lab, "expired")
    ev.check()
    h.wait_clean()


test_answers.timeout_s = 400


# --- permissive --------------------------------------------------------------------------------

def test_permissive(h):
    """Everything that is open in the world, UDP too; nothing of what is closed in every profile."""
    lab = lab_of(h)
    p = h.project("demo", {})
    ev = Events(h)
    lab.dns.set("free.test", ["203.0.113.10"])
    lab.dns.set("ten.test", ["10.9.0.1"])
    web = lab.http("203.0.113.10", "free")
    udp = netlab.UdpEcho(lab, "203.0.113.10", 443)
    closed = [netlab.UdpEcho(lab, a, 443) for a in ("10.9.0.1", "192.168.7.1", "169.254.169.254", "100.64.9.1")]
    closed.append(netlab.UdpEcho(lab, netlab.HOST_ADDR, 443, where="host"))
    closed.append(netlab.UdpEcho(lab, "127.0.0.1", 443, where="host"))
    closed_tcp = [lab.http(a, "inside") for a in ("10.9.0.1", "192.168.7.1", "169.254.169.254")]
    mail = lab.echo("203.0.113.10", 25)
    with Guest(h, p, ["--network", "isolated", "--egress", "permissive"]) as g:
        rc, out = g.sh("curl -sS http://free.test/byname; curl -sS http://203.0.113.10/byaddr")
        assert "/byname" in out and "/byaddr" in out, out
        a = g.udp("203.0.113.10", 443, "datagram", 5000)
        assert a.data == b"datagram", a
        big = bytes(1 for _ in range(8000))
        assert g.udp("203.0.113.10", 443, big, 5000).data == big
        assert g.resolve("unknown.test").rcode == 3 and "unknown.test" in lab.dns.names()
        assert not g.resolve("ten.test").addrs
        addrs = ("10.9.0.1", "192.168.7.1", "169.254.169.254", "100.64.9.1", netlab.HOST_ADDR, "127.0.0.1", ng.SERVICE)
        for a in g.all([("udp", a, "443", "1500", canary("udp")) for a in addrs[:5]] +
                       [("udp", a, "5353", "1500", canary("many")) for a in ("255.255.255.255", "224.0.0.251",
                                                                             "10.87.255.255")]):
            assert not a.got, a
        for a in g.all([("talk", a, "80", "t=3000", "s=" + canary("tcp").decode(), "e") for a in
                        addrs[:5] + (ng.SERVICE,)]):
            assert not a.data and a.word != "timeout", a
        a = g.talk("203.0.113.10", 25, "t=3000", "s=" + canary("mail").decode(), "e")
        assert not a.data, a
        for tag, frame in (("icmp", ng.ether(ng.ip4(ng.icmp_echo(canary("icmp")), 1, "203.0.113.10"))),
                           ("ip6", ng.ether(ng.ip6(ng.udp_datagram(canary("ip6"), 53, "2001:db8::53",
                                                                   src="2001:db8:0:1::99"), 17, "2001:db8::53"), 0x86dd)),
                           ("spoof", ng.ether(ng.ip4(ng.udp_datagram(canary("spoof"), 443, "203.0.113.10",
                                                                     src="10.87.255.3"), 17, "203.0.113.10",
                                                     src="10.87.255.3"))),
                           ("frag", ng.ether(ng.ip4(ng.udp_datagram(canary("frag"), 443, "203.0.113.10"), 17,
                                                    "203.0.113.10", frag=0x2000)))):
            g.ask("frame", "0", frame)
        for reason in ("icmp", "ipv6", "spoofed", "fragment"):
            ev.need(ev="drop", reason=reason)
    assert "network isolated, PERMISSIVE" in g.result.errtext, g.result
    assert [d for _, d in udp.log] == [b"datagram", big], udp.log
    assert not any(u.log for u in closed) and not any(t.log for t in closed_tcp) and not mail.log
    none_arrived(lab, "udp", "many", "tcp", "mail", "icmp", "ip6", "spoof", "frag")
    assert web.requests() == [("free.test", "/byname"), ("203.0.113.10", "/byaddr")]
    ev.check()
    h.wait_clean()


# --- names in the guest's own programs ------------------------------------------------------------

PYTHON_GET = """
import socket, ssl, sys
s = ssl.create_default_context().wrap_socket(socket.create_connection((sys.argv[1], 443)), server_hostname=sys.argv[1])
s.sendall(b"GET /python HTTP/1.0\\r\\nHost: " + sys.argv[1].encode() + b"\\r\\n\\r\\n"); print(s.recv(4096).decode())
"""


def repository(h, lab):
    """A bare repository with one commit below the laboratory's folder."""
    root = os.path.join(lab.tmp, "repos")
    os.mkdir(root)
    src = h.project("origin", {"hello.txt": "hello\n"}, git=True)
    h.git(src, "clone", "-q", "--bare", src, os.path.join(root, "r.git"))
    h.git(os.path.join(root, "r.git"), "config", "http.receivepack", "true")
    lab.give(root)
    return root


def test_tools(h):
    """curl, git and python by name under `standard`; a rule given and taken meanwhile; learn."""
    lab = lab_of(h)
    p = h.project("demo", {"get.py": PYTHON_GET})
    ev = Events(h)
    root = repository(h, lab)
    lab.dns.set("git.test", ["203.0.113.11"])
    lab.dns.set("web.test", ["203.0.113.10"])
    lab.dns.set("new.test", ["203.0.113.12"])
    lab.dns.set("github.com", ["203.0.113.13"])
    lab.https("203.0.113.11", ["git.test"], git_root=root)
    lab.https("203.0.113.10", ["web.test"])
    new = lab.https("203.0.113.12", ["new.test"])
    hub = lab.https("203.0.113.13", ["github.com"])
    lab.trust_ca()
    flags = ["--network", "isolated"] + allow("git.test", "git.test:22", "web.test")
    if netlab.Ssh.available():
        ssh = netlab.Ssh(lab, "203.0.113.11", 22)
        shutil.copy(ssh.key, os.path.join(p, "key"))
        h.write(p, "known_hosts", f"git.test {ssh.host_key()}\n")
        h.give(p)
    with Guest(h, p, flags, root=False) as g:
        rc, out = g.sh("cat /etc/resolv.conf; getent hosts web.test; curl -sS https://web.test/curl")
        assert f"nameserver {ng.GATEWAY}" in out and "203.0.113.10" in out and "web.test /curl" in out, out
        rc, out = g.sh("python3 get.py web.test")
        assert "web.test /python" in out, out
        rc, out = g.sh("cd /tmp && git clone -q https://git.test/git/r.git a && cat a/hello.txt && cd a && "
                       "git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m two && git push -q")
        assert rc == 0 and "hello\n" in out, out
        assert "two" in h.git(os.path.join(root, "r.git"), "log", "--format=%s")
        if netlab.Ssh.available():
            rc, out = g.sh("cp key ~/key; chmod 600 ~/key; cd /tmp && GIT_SSH_COMMAND='ssh -i ~/key -oBatchMode=yes "
                           f"-oUserKnownHostsFile=/work/demo/known_hosts' git clone -q ssh://git@git.test{root}/r.git b && "
                           "cat b/hello.txt")
            assert rc == 0 and "hello\n" in out, out
            ev.need(ev="flow", verdict="allowed", name="git.test", port=22)
        # the source hosts are in `standard`
        rc, out = g.sh("curl -sS https://github.com/x")
        assert "github.com /x" in out and hub.requests() == [("github.com", "/x")], out
        # outside the policy: no address, at once, and the question stays here
        t0 = time.monotonic()
        rc, out = g.sh("curl -sS --max-time 20 https://new.test/before; echo $?; getent hosts new.test; echo $?")
        assert out.splitlines()[-3:][0] == "6" or "Could not resolve" in out, out
        assert time.monotonic() - t0 < 10 and "new.test" not in lab.dns.names()
        ev.need(ev="dns", verdict="refused", name="new.test")

        # asked and changed from outside, while it runs
        ident = sandbox_id(h)
        r = h.run("net", "allow", "new.test", ident)
        assert r.rc == 0, r
        rc, out = g.sh("curl -sS https://new.test/after")
        assert "new.test /after" in out, out
        r = h.run("net", "deny", "new.test", ident)
        assert r.rc == 0, r
        rc, out = g.sh("curl -sS --max-time 20 https://new.test/denied; echo $?")
        assert "new.test" not in out.splitlines()[0] or "resolve" in out or "reset" in out.lower(), out
        ev.need(ev="policy", name="new.test")
    assert [r for _, r in new.requests()] == ["/after"], new.requests()
    assert "refused" in g.result.errtext and "new.test" in g.result.errtext, g.result
    # afterwards
    r = h.run("net", "log", "--denied")
    assert r.rc == 0 and "new.test" in r.text and "web.test" not in r.text, r
    assert "web.test" in h.run("net", "log").text
    ev.check()
    h.wait_clean()


def sandbox_id(h):
    return next(n for n in os.listdir(h.sandboxes) if os.path.isdir(os.path.join(h.sandboxes, n)))


# --- ports ---------------------------------------------------------------------------------------

def test_ports(h):
    """--host-service and --allow-private open that and no more; published ports and callbacks lead in."""
    lab = lab_of(h)
    p = h.project("demo", {})
    ev = Events(h)
    lab.dns.set("ten.test", ["10.9.0.1"])
    lab.dns.set("ten2.test", ["10.9.1.1"])
    svc = lab.http("127.0.0.1", "service", 8899, where="host")
    other = lab.http("127.0.0.1", "other", 8898, where="host")
    ten, ten2 = lab.http("10.9.0.1", "ten"), lab.http("10.9.1.1", "ten2")
    flags = LOCKED + ["--host-service", "8899", "--allow-private", "10.9.0.0/24", "-p", "18080:8080", "-p", "18081:8081",
                      "-p", "8082", "--callback", "1455"] + allow("ten.test:80", "ten2.test:80")
    with Guest(h, p, flags, root=False) as g:
        rc, out = g.sh("curl -sS http://host.cloche:8899/in; curl -sS http://ten.test/in; "
                       "curl -sS --max-time 10 http://host.cloche:8898/no; curl -sS --max-time 10 http://ten2.test/no; true")
        assert "service /in" in out and "ten /in" in out and "/no" not in out, out
        a = g.talk("10.9.0.77", 80, "t=2000", "s=x", "e")
        assert a.word == "refused", a
        ev.need(ev="drop", verdict="refused", reason="address", addr=ng.SERVICE, port=8898)
        listening = [g.begin("listen", addr, str(port), f"from {port}\n", "2") for addr, port in
                     (("127.0.0.1", 8080), ("0.0.0.0", 8081), ("::", 8082), ("127.0.0.1", 1455))]
        for i in listening:
            assert g.wait(i + "+") == "listening"
        at = published(h)
        for port, guest in ((18080, 8080), (18081, 8081), (8082, 8082)):
            r = lab.run("bash", "-c", f"exec 3<>/dev/tcp/{at}/{port}; echo hello >&3; head -n2 <&3")
            assert r.stdout == f"from {guest}\nhello\n".encode(), (port, r)
            # an address of its own, so that other ports of localhost are as before
            r = lab.run("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}")
            assert r.returncode != 0, r
        # nothing listens there in the guest: closed, at once
        r = lab.run("bash", "-c", f"exec 3<>/dev/tcp/{at}/18080; head -n1 <&3")
        r = lab.run("bash", "-c", f"exec 3<>/dev/tcp/{at}/18080; cat <&3")
        assert r.stdout in (b"", b"from 8080\n"), r
        # a callback: one connection, on localhost
        r = lab.run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1455; echo code >&3; head -n2 <&3")
        assert r.stdout == b"from 1455\ncode\n", r
        r = lab.run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1455")
        assert r.returncode != 0, r
    assert not other.log and not ten2.log
    assert svc.requests() == [("host.cloche:8899", "/in")] and ten.requests() == [("ten.test", "/in")]
    ev.check()
    h.wait_clean()


def test_ports_offline(h):
    """Ports go over the control channel: they lead in without any network."""
    lab = lab_of(h)
    p = h.project("demo", {})
    with Guest(h, p, ["--network", "offline", "-p", "18080:8080"], root=False) as g:
        i = g.begin("listen", "127.0.0.1", "8080", "from 8080\n", "1")
        assert g.wait(i + "+") == "listening"
        r = lab.run("bash", "-c", f"exec 3<>/dev/tcp/{published(h)}/18080; echo hello >&3; head -n2 <&3")
        assert r.stdout == b"from 8080\nhello\n", r
        assert g.sh("ls /sys/class/net")[1] == "lo\n"
    assert lab.seen() == set(), lab.seen()
    h.wait_clean()


def published(h):
    """The address in 127/8 of the one sandbox's ports, from what listens in the host namespace."""
    out = h.lab.host.run("cat", "/proc/net/tcp")
    for line in out.splitlines()[1:]:
        addr, port = line.split()[1].split(":")
        if int(port, 16) == 18080 and line.split()[3] == "0A":
            return socket.inet_ntoa(struct.pack("<I", int(addr, 16)))
    raise AssertionError(out)


# --- two sandboxes ---------------------------------------------------------------------------------

def test_shared(h):
    """Those that chose it reach each other by address and by name; an isolated one is not there."""
    lab = lab_of(h)
    ev = Events(h)
    lab.dns.set("web.test", ["203.0.113.10"])
    lab.http("203.0.113.10", "web")
    pa, pb, pc = (h.project(n, {}) for n in ("alpha", "beta", "gamma"))
    shared = ["--network", "shared", "--egress", "locked"]
    with Guest(h, pa, shared + allow("web.test:80")) as a:
        ida = sandbox_id(h)
        with Guest(h, pb, shared) as b, Guest(h, pc, LOCKED) as c:
            ids = [n for n in os.listdir(h.sandboxes)]
            idb = next(n for n in ids if n.startswith("beta"))
            idc = next(n for n in ids if n.startswith("gamma"))
            addr = [x.sh("awk '/32 host LOCAL/{print a} {a=$2}' /proc/net/fib_trie | grep ^10.87 | sort -u")[1].strip()
                    for x in (a, b, c)]
            assert addr[0] != addr[1] and addr[2] == ng.GUEST, addr
            listening = [x.begin("listen", "0.0.0.0", "9000", f"from {n}\n", "3") for x, n in
                         ((a, "alpha"), (b, "beta"), (c, "gamma"))]
            for x, i in zip((a, b, c), listening):
                assert x.wait(i + "+") == "listening"
            assert a.talk(addr[1], 9000, "p=\n").data == b"from beta\n"
            assert b.talk(addr[0], 9000, "p=\n").data == b"from alpha\n"
            r = a.resolve(f"{idb}.cloche")
            assert r.addrs == [addr[1]], r
            assert b.resolve(f"{ida}.cloche").addrs == [addr[0]]
            # the isolated one: no name, no address, from neither side
            assert a.resolve(f"{idc}.cloche").rcode == 3 and c.resolve(f"{ida}.cloche").rcode == 3
            for x, to in ((c, addr[0]), (c, addr[1]), (a, ng.GUEST), (a, "10.87.9.9"), (b, "10.87.254.1")):
                r = x.talk(to, 9000, "t=2000", "s=" + canary("peer").decode(), "r=5")
                assert not r.data, (to, r)
            # what one may reach the other may not, at the same address
            assert a.resolve("web.test").addrs == ["203.0.113.10"] and b.resolve("web.test").rcode == 3
            for x in (b, c):
                r = x.talk("203.0.113.10", 80, "t=2000", "s=GET /" + canary("opened").decode() +
                           " HTTP/1.1\r\nHost: web.test\r\n\r\n", "e")
                assert r.word == "refused", r
            # nobody takes the other's address or name
            frames = [ng.ether(ng.ip4(ng.tcp_segment(canary("steal"), 9000, addr[0], src=addr[1]), 6, addr[0], src=addr[1]),
                               src=bytes.fromhex("02c10c57") + socket.inet_aton(addr[1])[2:])]
            assert c.ask("frame", "500", *frames).word == "sent=1"
            ev.need(ev="drop", reason="spoofed")
    none_arrived(lab, "peer", "opened", "steal")
    h.wait_clean()


test_shared.alone = True


# --- when a part of it is gone, or wrong ----------------------------------------------------------

def test_killed(h):
    """Killing a process of the network closes the network, never opens it, and is said."""
    lab = lab_of(h)
    p = h.project("demo", {})
    lab.dns.set("plain.test", ["203.0.113.20"])
    web = lab.http("203.0.113.20", "plain")
    for helper in ("cloche-net", "cloche-relay"):
        with Guest(h, p, LOCKED + allow("plain.test:80")) as g:
            assert g.resolve("plain.test").addrs
            get = "s=GET /" + helper + " HTTP/1.1\r\nHost: plain.test\r\n\r\n"
            assert g.talk("203.0.113.20", 80, get, "p=\n\n", "t=500").data
            h.kill_helper(helper)
            time.sleep(0.5)
            seen = len(web.requests())
            answers = g.all([("talk", "203.0.113.20", "80", "t=2000", "s=GET /" + canary("dead").decode() +
                              " HTTP/1.1\r\nHost: plain.test\r\n\r\n", "e"),
                             ("udp", ng.GATEWAY, "53", "1000", ng.question("plain.test")),
                             ("udp", netlab.DNS_ADDR, "53", "1000", canary("dead")),
                             ("frame", "0", ng.ether(ng.ip4(ng.icmp_echo(canary("dead")), 1, "203.0.113.20")))])
            assert not any(a.got and any(a.got) for a in answers), answers
            assert len(web.requests()) == seen
            assert g.sh("echo alive")[1] == "alive\n"
        assert "the network is closed (" in g.result.errtext, g.result
    none_arrived(lab, "dead")
    h.wait_clean()


def test_refusals(h):
    """What cannot be meant, or not be enforced, is refused before anything starts."""
    p = h.project("demo", {})
    cases = [
        (["--network", "bridged"], 2, "--network"),
        (["--egress", "open"], 2, "--egress"),
        (["--allow-host", "10.0.0.1"], 2, "address"),
        (["--allow-host", "*"], 2, ""),
        (["--allow-host", "*.test"], 2, ""),
        (["--allow-host", "a..test"], 2, ""),
        (["--allow-host", "a.test:0"], 2, ""),
        (["--allow-host", "a.test:65536"], 2, ""),
        (["--allow-host", "a.test:"], 2, ""),
        (["--allow-host", "a.test:25"], 2, "25"),
        (["--allow-private", "0.0.0.0/0"], 2, ""),
        (["--allow-private", "127.0.0.0/8"], 2, ""),
        (["--host-service", "0"], 2, ""),
        (["-p", "70000:1"], 2, ""),
        (["--network", "offline", "--allow-host", "a.test"], 2, ""),
    ]
    for flags, rc, text in cases:
        r = h.run("run", "shell", p, *h.accel_flags(), *flags, "--", "true", timeout_s=30)
        assert r.rc in (rc, 125) and text in r.errtext and r.errtext.startswith("cloche: "), (flags, r)
    # without the program that enforces it there is no network, and no run
    bin2 = h.path("bin2")
    shutil.copytree(h.bin, bin2, ignore=shutil.ignore_patterns("*.p"))
    os.unlink(os.path.join(bin2, "cloche-net"))
    h.bin = bin2
    r = h.run("run", "shell", p, *h.accel_flags(), "--network", "isolated", "--", "echo", "ran", timeout_s=120)
    assert r.rc == 125 and not r.out, r
    h.wait_clean()


LEAKY = """#!/usr/bin/python3
import socket, sys
sys.path.insert(0, {lib!r})
import fakenet
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
net = fakenet.FakeNet(leak={leak}, blind={blind})
net.sock = socket.socket(fileno=int(words["--frames"]))
net.run()
"""


def test_self_test(h):
    """A network that lets a bypass through, or does not see one, refuses the run; no command starts."""
    import fakenet
    lab = lab_of(h)
    p = h.project("demo", {})
    good = h.bin
    for name, leak, blind in (("tcp", fakenet.TCP_TLS, 0), ("icmp", 0, fakenet.ICMP)):
        h.bin = h.path(f"bin-{name}")
        shutil.copytree(good, h.bin, ignore=shutil.ignore_patterns("*.p"))
        with open(os.path.join(h.bin, "cloche-net"), "w", encoding="ascii") as f:
            f.write(LEAKY.format(lib=os.path.dirname(os.path.abspath(fakenet.__file__)), leak=leak, blind=blind))
        os.chmod(os.path.join(h.bin, "cloche-net"), 0o755)
        r = h.sh(p, "echo ran", flags=LOCKED + ["--apply=none"])
        assert r.rc == 125 and not r.out, (name, r)
        assert "network does not hold, so nothing was run" in r.errtext, r
        h.wait_clean()
    assert not lab.seen() - {("udp", netlab.DNS_ADDR, 53)}, lab.seen()


def test_learn(h):
    """What `net learn` prints of an open run makes the same run pass under `locked`, and no more than that."""
    lab = lab_of(h)
    p = h.project("demo", {})
    for name, addr in (("need.test", 10), ("also.test", 11), ("more.test", 12)):
        lab.dns.set(name, [f"203.0.113.{addr}"])
    lab.https("203.0.113.10", ["need.test"])
    lab.http("203.0.113.11", "also", 8080)
    more = lab.https("203.0.113.12", ["more.test"])
    lab.trust_ca()
    script = "curl -sSf https://need.test/ && curl -sSf http://also.test:8080/"
    r = h.sh(p, script, flags=["--network", "isolated", "--egress", "permissive", "--apply=none"])
    assert r.rc == 0, r
    r = h.run("net", "learn")
    assert r.rc == 0, r
    flags = next(x for x in r.text.splitlines() if x.startswith("--egress")).split()
    assert flags == ["--egress", "locked", "--allow-host", "also.test:8080", "--allow-host", "need.test"] or \
        flags == ["--egress", "locked", "--allow-host", "need.test", "--allow-host", "also.test:8080"], r
    r = h.sh(p, script + "; curl -sS https://more.test/", flags=["--network", "isolated", "--apply=none", *flags])
    assert r.rc == 6 and "need.test /" in r.text and "also /" in r.text, r
    assert "refused: 1 request to 1 host (more.test 1)" in r.errtext, r
    learnt = json.loads(h.run("net", "learn", "--json").text)
    assert [x["rule"] for x in learnt["refused"]] == ["more.test"], learnt
    assert not more.log
    h.wait_clean()


def test_ordinary_user(h):
    """The whole of it for a user without any rights, in a user namespace."""
    h.as_user()
    lab = lab_of(h)
    p = h.project("demo", {})
    ev = Events(h)
    lab.dns.set("web.test", ["203.0.113.10"])
    web = lab.https("203.0.113.10", ["web.test"])
    lab.trust_ca()
    r = h.sh(p, "curl -sS https://web.test/user; curl -sS --max-time 10 https://203.0.113.10/" +
             canary("user").decode() + "; getent hosts other.test; true", flags=LOCKED + ["--apply=none"] + allow("web.test"))
    assert r.rc == 0 and r.text.startswith("web.test /user\n"), r
    ev.need(ev="dns", verdict="refused", name="other.test")
    assert web.requests() == [("web.test", "/user")]
    assert lab.seen() == {("udp", netlab.DNS_ADDR, 53), ("tcp", "203.0.113.10", 443)}, lab.seen()
    h.wait_clean()


def registry_or_skip(command, why):
    """The URL of a registry that answers, as its tool on this host knows it."""
    import urllib.error
    import urllib.request
    r = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    urls = [u for u in r.stdout.split() if u.startswith("http")]
    if not urls:
        raise Skip(f"{why}: no registry is configured on this host")
    try:
        urllib.request.urlopen(urls[0], timeout=10).close()
    except urllib.error.HTTPError:
        pass                # it answers
    except OSError as e:
        raise Skip(f"{why}: {urls[0].split('/')[2]} cannot be reached: {e}") from None
    return urls[0]


def under_both(h, p, url, script, uid, done, flags=()):
    """@script works under `standard` alone; the log has the registry of @url by its name both times."""
    host = url.split("/")[2].split(":")[0]
    for profile in ("standard", "locked"):
        with Guest(h, p, ["--network", "isolated", "--egress", profile, "--memory", "2g", *flags]) as g:
            rc, out = g.sh(script, uid=uid, timeout_s=400)
            ev = Events(h)
            if profile == "standard":
                assert rc == 0 and done in out, out
                ev.need(ev="flow", verdict="allowed", name=host)
            else:
                assert rc != 0 and done not in out, out
                ev.need(ev="dns", verdict="refused", reason="name", name=host)
                assert not ev.find(ev="flow", verdict="allowed"), ev.all()
            ev.check()
    h.wait_clean()


def test_registry_apt(h):
    """apt installs in the guest under `standard`, whose registries nobody wrote down; not under `locked`."""
    url = registry_or_skip("apt-get indextargets --format '$(SITE)' 2>/dev/null | head -n1", "apt")
    under_both(h, h.project("demo", {}), url, "apt-get -o Acquire::Retries=0 -qq update && apt-get -qq install -y hello "
               "&& hello", 0, "Hello, world!")


test_registry_apt.timeout_s = 900


def test_registry_npm(h):
    """The same of npm: its registry is the one that the user's own npm is configured for."""
    if not shutil.which("npm") or not shutil.which("node"):
        raise Skip("npm and node are not on this host")
    url = registry_or_skip("npm config get registry", "npm")
    p = h.project("demo", {"package.json": '{"name": "x", "version": "1.0.0", "dependencies": {"is-odd": "*"}}\n'})
    with open(h.path("home", ".npmrc"), "w", encoding="ascii") as f:
        f.write(f"registry={url}\n")
    # the host's own node and a whole npm, as the base image has none
    node = os.path.realpath(shutil.which("node"))
    os.makedirs(os.path.join(p, "lib"))
    for line in subprocess.run(["ldd", node], capture_output=True, text=True, check=True).stdout.splitlines():
        lib = line.split("=>")[-1].split("(")[0].strip()
        if lib.startswith("/") and not os.path.basename(lib).startswith(("libc.", "ld-", "libm.", "libpthread.", "libdl.")):
            shutil.copy(lib, os.path.join(p, "lib"))
    shutil.copy(node, os.path.join(p, "node"))
    subprocess.run(["npm", "pack", "--silent", "npm@10"], cwd=p, check=True, stdout=subprocess.DEVNULL)
    subprocess.run("tar xzf npm-*.tgz && rm npm-*.tgz && mv package npm", shell=True, cwd=p, check=True)
    # npm takes the registry from its configuration, in the guest as on the host
    under_both(h, p, url, f"cd /tmp && cp /work/demo/package.json . && echo registry={url} >.npmrc && "
               "LD_LIBRARY_PATH=/work/demo/lib /work/demo/node /work/demo/npm/bin/npm-cli.js install --no-audit "
               "--no-fund --fetch-retries 0 && ls -d node_modules/is-odd", 1000, "node_modules/is-odd\n")


test_registry_npm.timeout_s = 900
