#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cloche-net as the guest and the relay see it: a guest of raw frames, both sides hostile at
times. Nothing leaves this process's sockets. Argument: the program."""

import os
import random
import re
import resource
import signal
import socket
import struct
import sys
import time
import unittest

from netlib import (ACK, ANSWER, BROADCAST, CLOSE, DATAGRAM, FIN, FLOW, GATEWAY, GATEWAY_MAC, GUEST,
                    GUEST_MAC, OPEN, PSH, QUESTION, RST, SERVICE, SYN, URG, Gone, Net, addr, arp, eth,
                    ip, parse, question, read_all, tcp_segment, udp)

PROGRAM = sys.argv.pop(1)
# an end of each flow is held here, and of those there are 1024
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
HOST = "198.51.100.7"
OTHER = "198.51.100.8"


def wait_until(what, seconds=5.0):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class NetTest(unittest.TestCase):
    def net(self, *a, **kw):
        n = Net(PROGRAM, *a, **kw)
        self.addCleanup(n.end)
        return n

    def opened(self, *a, **kw):
        n = self.net(*a, **kw)
        n.open(HOST, 443)
        return n

    # --- the neighbourhood ---

    def test_arp(self):
        n = self.net()
        for target in (GATEWAY, SERVICE, "203.0.113.9", "10.87.3.4"):
            n.send(eth(arp(1, GUEST_MAC, GUEST, target), 0x0806, dst=BROADCAST))
            frame = n.recv()
            self.assertEqual(frame, eth(arp(2, GATEWAY_MAC, target, GUEST, GUEST_MAC), 0x0806,
                                        src=GATEWAY_MAC, dst=GUEST_MAC))
        # asks whether its own address is taken; announces; claims another's; answers unasked
        n.send(eth(arp(1, GUEST_MAC, "0.0.0.0", GUEST), 0x0806, dst=BROADCAST),
               eth(arp(1, GUEST_MAC, GUEST, GUEST), 0x0806, dst=BROADCAST),
               eth(arp(2, GUEST_MAC, GUEST, GATEWAY), 0x0806))
        self.assertTrue(n.quiet())
        n.send(eth(arp(1, GUEST_MAC, GATEWAY, GATEWAY), 0x0806, dst=BROADCAST))
        self.assertEqual(n.dropped()[0], "spoofed")

    def dhcp(self, kind, **kw):
        options = b"".join(bytes([c, len(v)]) + v for c, v in kw.pop("options", []))
        body = struct.pack("!BBBBIHH4s4s4s4s", 1, 1, 6, 0, 0xabcdef01, 0, kw.pop("flags", 0),
                           socket.inet_aton(kw.pop("client", "0.0.0.0")), b"", b"", b"")
        body += kw.pop("mac", GUEST_MAC).ljust(16, b"\0") + b"\0" * 192 + b"\x63\x82\x53\x63"
        body += bytes([53, 1, kind]) + options + b"\xff"
        return eth(udp(body, 68, 67, kw.pop("dst", "255.255.255.255"),
                       src=kw.pop("src", "0.0.0.0")), dst=kw.pop("eth_dst", BROADCAST))

    def dhcp_answer(self, n):
        p = n.packet()
        self.assertEqual((p.src, p.sport, p.dport), (GATEWAY, 67, 68))
        out, at = {}, 240
        while p.payload[at] != 255:
            out[p.payload[at]] = p.payload[at + 2:at + 2 + p.payload[at + 1]]
            at += 2 + p.payload[at + 1]
        self.assertEqual(p.payload[4:8], bytes.fromhex("abcdef01"))
        self.assertGreaterEqual(len(p.payload), 300)
        return p, out, socket.inet_ntoa(p.payload[16:20])

    def test_dhcp(self):
        n = self.net()
        n.send(self.dhcp(1))
        p, o, yours = self.dhcp_answer(n)
        self.assertEqual((p.dst, p.eth_dst, yours), (GUEST, GUEST_MAC, GUEST))
        self.assertEqual((o[53], o[1], o[3], o[6], o[54]), (
            b"\x02", b"\xff\xff\0\0", *[socket.inet_aton(GATEWAY)] * 3))
        self.assertEqual((o[26], o[51], o[119]), (struct.pack("!H", 16000), b"\xff" * 4, b"\x06cloche\0"))
        me, server = (50, socket.inet_aton(GUEST)), (54, socket.inet_aton(GATEWAY))
        n.send(self.dhcp(3, options=[me, server], flags=0x8000))
        p, o, yours = self.dhcp_answer(n)
        self.assertEqual((o[53], p.dst, p.eth_dst, yours), (b"\x05", "255.255.255.255", BROADCAST, GUEST))
        # renewal, unicast
        n.send(self.dhcp(3, client=GUEST, src=GUEST, dst=GATEWAY, eth_dst=GATEWAY_MAC))
        p, o, yours = self.dhcp_answer(n)
        self.assertEqual((o[53], p.dst, yours), (b"\x05", GUEST, GUEST))
        # an address of its own choice
        n.send(self.dhcp(3, options=[(50, socket.inet_aton("10.87.0.9"))]))
        p, o, yours = self.dhcp_answer(n)
        self.assertEqual((o[53], yours, sorted(o)), (b"\x06", "0.0.0.0", [53, 54]))
        # somebody else's offer, a release, another card: no answer
        n.send(self.dhcp(3, options=[me, (54, socket.inet_aton("10.87.0.9"))]), self.dhcp(7),
               self.dhcp(1, mac=b"\x02\0\0\0\0\1"))
        self.assertTrue(n.quiet())
        self.assertEqual(n.dropped()[0], "spoofed")

    # --- names ---

    def test_names(self):
        n = self.net()
        n.ask("WWW.Example.com")
        kind, (ident, qtype, name), _ = n.message(QUESTION)
        self.assertEqual((qtype, name), (1, "www.example.com"))
        n.answer(ident, [HOST, OTHER])
        self.assertEqual(n.dns_answer(), (0, [HOST, OTHER]))
        n.ask("www.example.com", qtype=28)
        ident = n.message(QUESTION)[1][0]
        n.answer(ident)
        self.assertEqual(n.dns_answer(), (0, []))
        for rcode in (2, 3, 5):
            n.ask("no.example.com")
            n.answer(n.message(QUESTION)[1][0], rcode=rcode)
            self.assertEqual(n.dns_answer(), (rcode, []))

    def test_names_that_are_none(self):
        n = self.net()
        for name in ("10.0.0.1", "", "a..b"[:1] + ".0x7f"):
            n.ask(name)
            self.assertEqual(n.dns_answer(), (3, []), name)
        bad = [question("two.example", counts=(2, 0, 0, 0)), question("q.example", extra=b"x"),
               question("resp.example", flags=0x8100), question("opcode.example", flags=0x0900),
               b"", b"\0" * 11, b"\0" * 12]
        for b in bad:
            n.send(eth(udp(b, 5353, 53, GATEWAY)))
        self.assertTrue(n.quiet())
        self.assertIsNone(n.message(QUESTION, 0.1))
        self.assertTrue(wait_until(lambda: n.dropped(0.1) and False or
                                   sum(m[4] for m in n.seen) == len(bad)), n.seen)
        self.assertEqual({m[0] for m in n.seen}, {"dns"})

    def test_many_questions(self):
        n = self.net()
        for i in range(257):
            n.ask(f"n{i}.example", sport=1000 + i)
        ids = {n.message(QUESTION)[1][0] for _ in range(256)}
        self.assertEqual(ids, set(range(256)))
        self.assertEqual(n.dns_answer(sport=1256), (2, []), "the one too many")
        n.answer(7, [HOST])
        self.assertEqual(n.dns_answer(sport=1007), (0, [HOST]))
        n.ask("again.example", sport=99)
        self.assertEqual(n.message(QUESTION)[1][0], 7)

    def test_question_without_answer(self):
        n = self.net()
        n.ask("slow.example")
        ident = n.message(QUESTION)[1][0]
        begin = time.monotonic()
        self.assertEqual(n.dns_answer(timeout=30), (2, []))
        self.assertGreater(time.monotonic() - begin, 10)
        n.answer(ident, [HOST])         # late: for nobody
        n.sync()
        self.assertTrue(n.quiet(0.1))

    def test_self_test_name(self):
        n = self.net()
        nobody = "198.51.100.1"

        def refused():
            n.ask("selftest.cloche", sport=77)
            rcode, addrs = n.dns_answer(sport=77)
            self.assertEqual(rcode, 0)
            return int(addrs[0].split(".")[3])

        v6 = struct.pack("!IHBB16s16s", 6 << 28, 0, 59, 64, socket.inet_pton(socket.AF_INET6, "fe80::1"),
                         socket.inet_pton(socket.AF_INET6, "2001:db8::1"))
        icmp = b"\x08\0\xf7\xff\0\0\0\0"
        want = 0
        self.assertEqual(refused(), 0)
        # what is like them is not them
        n.send(eth(ip(icmp, 1, OTHER)), eth(v6[:-1] + b"\2", 0x86dd),
               eth(ip(tcp_segment(9, 80, 1, 0, SYN, dst=nobody), 6, nobody)))
        self.assertEqual(refused(), 0)
        for bit, frame in (
                (1, eth(ip(tcp_segment(9, 443, 1, 0, SYN, dst=nobody), 6, nobody))),
                (2, eth(ip(tcp_segment(9, 53, 1, 0, SYN, dst=nobody), 6, nobody))),
                (4, eth(udp(b"x", 9, 53, nobody))),
                (8, eth(ip(icmp, 1, nobody))),
                (16, eth(v6, 0x86dd, dst=bytes.fromhex("333300000001")))):
            n.send(frame)
            want |= bit
            self.assertEqual(refused(), want)
        n.ask("selftest.cloche", qtype=28)
        self.assertEqual(n.dns_answer(), (0, []))
        self.assertIsNone(n.message(QUESTION, 0.1), "that name is nobody else's")

    # --- what is refused ---

    def test_refused(self):
        """Every reason, with the message that it must leave; nothing arrives anywhere."""
        ok = tcp_segment(9, 443, 1, 0, SYN, dst=HOST)
        bad_sum = bytearray(ip(ok, 6, HOST))
        bad_sum[10] ^= 1
        frag = "fragment", 6, HOST, 0
        rows = [
            ("first fragment", frag, ip(ok, 6, HOST, frag=0x2000)),
            ("last fragment", frag, ip(ok, 6, HOST, frag=0x0001)),
            ("reserved bit", frag, ip(ok, 6, HOST, frag=0x8000)),
            ("options", ("options", 6, HOST, 0), ip(ok, 6, HOST, options=b"\x01\x01\x01\0")),
            ("not opened", ("address", 6, OTHER, 443), ip(tcp_segment(9, 443, 1, 0, SYN, dst=OTHER), 6, OTHER)),
            ("other port", ("address", 6, HOST, 80), ip(tcp_segment(9, 80, 1, 0, SYN, dst=HOST), 6, HOST)),
            ("mail", ("port", 6, HOST, 25), ip(tcp_segment(9, 25, 1, 0, SYN, dst=HOST), 6, HOST)),
            ("loopback", ("closed", 6, "127.0.0.1", 443),
             ip(tcp_segment(9, 443, 1, 0, SYN, dst="127.0.0.1"), 6, "127.0.0.1")),
            ("metadata", ("closed", 6, "169.254.169.254", 80),
             ip(tcp_segment(9, 80, 1, 0, SYN, dst="169.254.169.254"), 6, "169.254.169.254")),
            ("host service not opened", ("address", 6, SERVICE, 8080),
             ip(tcp_segment(9, 8080, 1, 0, SYN, dst=SERVICE), 6, SERVICE)),
            ("gateway", ("closed", 6, GATEWAY, 53), ip(tcp_segment(9, 53, 1, 0, SYN, dst=GATEWAY), 6, GATEWAY)),
            ("udp elsewhere", ("udp", 17, HOST, 443), udp(b"quic", 9, 443, HOST)),
            ("dns elsewhere", ("udp", 17, "8.8.8.8", 53), udp(question("a.example"), 9, 53, "8.8.8.8")),
            ("ping", ("icmp", 1, HOST, 0), ip(b"\x08\0\xf7\xff\0\0\0\0", 1, HOST)),
            ("ping of the gateway", ("icmp", 1, GATEWAY, 0), ip(b"\x08\0\xf7\xff\0\0\0\0", 1, GATEWAY)),
            ("sctp", ("protocol", 132, HOST, 0), ip(b"\0" * 12, 132, HOST)),
            ("6in4", ("protocol", 41, HOST, 0), ip(b"\x60" + b"\0" * 39, 41, HOST)),
            ("gre", ("protocol", 47, HOST, 0), ip(b"\0" * 8, 47, HOST)),
            ("another source", ("spoofed", 6, HOST, 0), ip(ok, 6, HOST, src="10.87.0.9")),
            ("no source", ("spoofed", 6, HOST, 0), ip(ok, 6, HOST, src="0.0.0.0")),
            ("header checksum", ("malformed", 0, "0.0.0.0", 0), bytes(bad_sum)),
            ("total length too long", ("malformed", 0, "0.0.0.0", 0), ip(ok, 6, HOST, length=41)),
            ("no time to live", ("malformed", 0, "0.0.0.0", 0), ip(ok, 6, HOST, ttl=0)),
            ("tcp checksum", ("malformed", 6, HOST, 0), ip(tcp_segment(9, 443, 1, 0, SYN, dst=HOST, check=1), 6, HOST)),
            ("no flags", ("malformed", 6, HOST, 0), ip(tcp_segment(9, 443, 1, 0, 0, dst=HOST), 6, HOST)),
            ("syn and fin", ("malformed", 6, HOST, 0), ip(tcp_segment(9, 443, 1, 0, SYN | FIN, dst=HOST), 6, HOST)),
            ("port 0", ("malformed", 6, HOST, 0), ip(tcp_segment(9, 0, 1, 0, SYN, dst=HOST), 6, HOST)),
            ("offset", ("malformed", 6, HOST, 0), ip(tcp_segment(9, 443, 1, 0, SYN, dst=HOST, offset=6), 6, HOST)),
            ("option of no length", ("malformed", 6, HOST, 0),
             ip(tcp_segment(9, 443, 1, 0, SYN, dst=HOST, options=b"\x08\0\0\0"), 6, HOST)),
            ("udp length", ("malformed", 17, GATEWAY, 0), udp(b"x", 9, 53, GATEWAY, total=8)),
            ("udp checksum", ("malformed", 17, GATEWAY, 0), udp(b"x", 9, 53, GATEWAY, check=1)),
        ]
        rows = [(why, want, eth(packet)) for why, want, packet in rows]
        rows += [(why, (want,), frame) for why, want, frame in [
                ("vlan", "vlan", eth(b"\0\1\x08\0" + ip(ok, 6, HOST), 0x8100)),
                ("q-in-q", "vlan", eth(b"\0\1\x08\0" + ip(ok, 6, HOST), 0x88a8)),
                ("ipv6", "ipv6", eth(b"\x60" + b"\0" * 39, 0x86dd)),
                ("nc-si, which libslirp answers", "ethertype", eth(b"\0" * 40, 0x88f8)),
                ("lldp", "ethertype", eth(b"\0" * 40, 0x88cc, dst=bytes.fromhex("0180c200000e"))),
                ("a length", "ethertype", eth(b"\0" * 40, 40)),
                ("another card", "spoofed", eth(ip(ok, 6, HOST), src=b"\x02\0\0\0\0\1")),
                ("to another card", "malformed", eth(ip(ok, 6, HOST), dst=b"\x02\0\0\0\0\1")),
                ("short", "malformed", b"\0" * 13),
                ("long", "malformed", eth(b"\x45" + b"\0" * 16000)),
        ]]
        for why, want, frame in rows:
            n = self.opened()
            n.send(frame)
            got = n.dropped() or ()
            self.assertEqual(got[:len(want)], want, why)
            n.sync()
            self.assertIsNone(n.message(FLOW, 0), why)
            self.assertIsNone(n.message(QUESTION, 0), why)
            self.assertIsNone(n.message(DATAGRAM, 0), why)
            n.end()

    def test_refused_at_once(self):
        n = self.net()
        begin = time.monotonic()
        c = n.connect(HOST, 443, handshake=False)
        p = c.next()
        self.assertEqual((p.flags, p.ack), (RST | ACK, 1001))
        n.send(eth(udp(b"quic", 9, 443, HOST)))
        p = n.packet()
        self.assertEqual((p.proto, p.src, p.raw[34:36]), (1, HOST, b"\x03\x0d"))
        self.assertLess(time.monotonic() - begin, 2)
        # a segment out of nowhere is reset, a reset is not answered
        c.segment(ACK, b"data", ack=77)
        p = c.next()
        self.assertEqual((p.flags, p.seq), (RST, 77))
        c.segment(RST)
        self.assertTrue(n.quiet(0.2))

    def test_drops_are_few_messages(self):
        n = self.net()
        for i in range(3000):
            n.send(eth(udp(b"x", 9, 1000 + i % 300, HOST)))
            n.recv(0)
        end, messages = time.monotonic() + 2.5, 0
        while time.monotonic() < end:
            if n.message(3, 0.2):
                messages += 1
            while n.recv(0):
                pass
        self.assertLess(messages, 90)
        self.assertGreater(messages, 20)

    # --- connections ---

    def test_both_ways(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        for size in (1, 15946, 60000):
            data = os.urandom(size)
            for at in range(0, size, 15000):
                c.write(data[at:at + 15000])
            self.assertEqual(read_all(r, size), data)
            r.sendall(data)
            self.assertEqual(c.read(size), data)
        n.sync()

    def flows_left(self, n):
        self.assertEqual(n.end(), 0, n.log)
        return re.search(r"flows=(\d+) half-open=(\d+)", n.log).groups()

    def test_half_close_by_guest(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        c.write(b"question")
        c.write(b"", FIN | ACK)
        self.assertEqual(read_all(r, 99), b"question")
        r.sendall(b"answer" * 5000)
        self.assertEqual(c.read(30000), b"answer" * 5000)
        r.close()
        self.assertEqual(c.until_end(), "fin")
        n.sync()
        self.assertEqual(self.flows_left(n), ("0", "0"))

    def test_half_close_by_relay(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        r.sendall(b"bye")
        r.shutdown(socket.SHUT_WR)
        self.assertEqual((c.read(3), c.until_end()), (b"bye", "fin"))
        c.write(b"still here")
        self.assertEqual(read_all(r, 10), b"still here")
        c.write(b"", FIN | ACK)
        self.assertEqual(r.recv(1), b"")
        n.sync()
        self.assertEqual(self.flows_left(n), ("0", "0"), "nothing waits in TIME_WAIT")

    def test_resets(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        c.write(b"unread")
        r.close()               # with bytes unread: a reset
        self.assertEqual(c.until_end(), "rst")
        c = n.connect(HOST, 443, sport=40001)
        r = c.accept()
        c.segment(RST, ack=0)
        self.assertEqual(r.recv(1), b"")
        n.sync()
        self.assertEqual(self.flows_left(n), ("0", "0"))

    def test_urgent_data_is_data(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        c.write(b"U", ACK | PSH | URG, urgent=2000)
        c.write(b"V", ACK | PSH, urgent=0xffff)
        c.write(b"W", ACK | PSH | URG, urgent=1)
        self.assertEqual(read_all(r, 4000, 0.5), b"UVW", "not one byte more")

    def test_data_on_the_syn(self):
        n = self.opened()
        c = n.connect(HOST, 443, options=b"\x02\x04\x3e\x58\x22\x0a" + b"c" * 8 + b"\x01\x01",
                      syn_data=b"early")
        r = c.accept()
        c.write(b"early and late")
        self.assertEqual(read_all(r, 99, 0.3), b"early and late")

    def test_order_and_overlap(self):
        """What the relay sees is what was sent first, in order; nothing is put together later."""
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        s = c.seq
        c.segment(ACK, b"67890", seq=s + 5)             # a gap: not taken
        c.segment(ACK, b"12345", seq=s)
        self.assertEqual(read_all(r, 99, 0.3), b"12345")
        c.segment(ACK, b"XX345abc", seq=s)              # other words for what was said
        self.assertEqual(read_all(r, 99, 0.3), b"abc")
        c.segment(ACK, b"later", seq=s + 20)
        c.segment(ACK, b"LATER", seq=s + 20)
        c.segment(ACK, b"evil", seq=s + 8)
        c.segment(ACK, b"q" * 15, seq=s + 8)
        self.assertEqual(read_all(r, 99, 0.3), b"evil" + b"q" * 11)
        c.segment(ACK, b"one at a time", seq=s - 4000)  # long gone
        c.segment(ACK, b"beyond", seq=s + 100000)
        c.segment(ACK, b"bad", seq=s + 23, check=1)
        self.assertEqual(read_all(r, 99, 0.3), b"")
        c.segment(FIN | ACK, b"", seq=s + 30)
        c.segment(ACK, b"!", seq=s + 23)
        self.assertEqual(read_all(r, 99, 0.3), b"!")
        r.setblocking(False)
        self.assertRaises(BlockingIOError, r.recv, 1)   # the FIN stood behind a gap

    def test_split_into_bytes(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        data = os.urandom(700)
        for i in range(len(data)):
            c.segment(ACK, data[i:i + 1], seq=c.seq + i)
        self.assertEqual(read_all(r, 700), data)

    def test_opened_and_closed(self):
        n = self.net()
        c = n.connect(HOST, 443, handshake=False)
        self.assertTrue(c.next().flags & RST)
        n.open(HOST, 443)
        n.open(HOST, 22)
        n.sync()
        c = n.connect(HOST, 443, sport=40001)
        r = c.accept()
        n.close(HOST, 443)
        n.sync()
        self.assertTrue(n.connect(HOST, 443, sport=40002, handshake=False).next().flags & RST)
        n.connect(HOST, 22, sport=40003).accept()
        c.write(b"stays")
        self.assertEqual(read_all(r, 5), b"stays", "an open connection outlives its rule")
        n.close(HOST)
        n.sync()
        self.assertTrue(n.connect(HOST, 22, sport=40004, handshake=False).next().flags & RST)
        c.write(b"and stays")
        self.assertEqual(read_all(r, 9), b"and stays")
        n.open(HOST, 443)
        n.sync()
        n.connect(HOST, 443, sport=40005).accept()

    def test_host_service(self):
        n = self.net()
        n.open(SERVICE, 8080)
        n.connect(SERVICE, 8080).accept()
        self.assertTrue(n.connect(SERVICE, 8081, sport=9, handshake=False).next().flags & RST)

    def test_half_open_cap(self):
        n = self.opened()
        for i in range(128):
            c = n.connect(HOST, 443, sport=1000 + i, handshake=False)
            self.assertEqual(c.next().flags, SYN | ACK)
        # one more is not heard: its SYN comes again, when there may be room
        self.assertIsNone(n.connect(HOST, 443, sport=2000, handshake=False).next(0.2))
        c = n.connect(HOST, 443, sport=1000, handshake=False)   # the same again: no second answer
        self.assertIsNone(c.next(0.2))
        # one of them is given up by the guest: there is room again
        n.connect(HOST, 443, sport=1000, handshake=False, seq=5000).segment(RST, seq=1001)
        n.connect(HOST, 443, sport=2000).accept()

    def test_burst(self):
        """More at once than may be half-open: all are there when the SYNs have come again."""
        n, answered = self.opened(), {}
        ports = range(1000, 1200)

        def round_of(wanted):
            for sport in wanted:
                n.connect(HOST, 443, sport=sport, handshake=False)
            for _ in range(2):      # as sync(): what came before a question is answered before it
                n.ask("selftest.cloche", sport=9)
                while (p := n.packet(timeout=20)).proto == 6:
                    self.assertEqual(p.flags, SYN | ACK)
                    answered[p.dport] = p
            for sport in [s for s in wanted if s in answered]:
                n.send(eth(ip(tcp_segment(sport, 443, 1001, answered[sport].seq + 1, ACK, dst=HOST), 6, HOST)))
            n.sync()
        round_of(ports)
        self.assertEqual(len(answered), 128)
        round_of([s for s in ports if s not in answered])
        self.assertEqual(len(answered), 200)
        for _ in ports:
            n.message(FLOW)
        self.assertEqual(n.seen, [])

    def test_flow_cap(self):
        n = self.opened()
        socks = []
        for i in range(1024):
            socks.append(n.connect(HOST, 443, sport=1000 + i).accept())
        c = n.connect(HOST, 443, sport=9000, handshake=False)
        self.assertEqual(c.next().flags, RST | ACK)
        self.assertEqual(n.dropped()[0], "flows")
        socks[77].close()
        c = n.packet(lambda p: p.dport == 1077)
        self.assertTrue(c.flags & FIN)
        n.send(eth(ip(tcp_segment(1077, 443, 1001, c.seq + 1, FIN | ACK, dst=HOST), 6, HOST)))
        n.sync()
        n.connect(HOST, 443, sport=9001).accept()

    def test_no_descriptors(self):
        """Without one for a connection both ends of it are told, and the rest goes on."""
        n = self.opened(nofile=40)
        kept, refused = [], 0
        for i in range(45):
            c = n.connect(HOST, 443, sport=2000 + i)
            if n.message(FLOW, 1):
                kept.append(c)
            else:
                self.assertEqual(c.until_end(5), "rst")
                refused += 1
        self.assertGreater(len(kept), 10)
        self.assertGreater(refused, 5)
        for c in kept:
            c.segment(RST, ack=0)
        n.sync()
        n.connect(HOST, 443, sport=9000).accept()
        n.sync()
        self.assertEqual(self.flows_left(n), ("1", "0"))

    def test_many_short_connections(self):
        """More than the cap, one after the other, the far end closing first: none lingers."""
        n = self.opened()
        for i in range(1500):
            c = n.connect(HOST, 443, sport=2000 + i % 500, seq=i * 7919)
            r = c.accept()
            r.close()
            self.assertEqual(c.until_end(), "fin")
            c.write(b"", FIN | ACK)
        n.sync()
        self.assertEqual(self.flows_left(n), ("0", "0"))

    def test_simultaneous_close(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        r.close()
        p = c.next()
        self.assertTrue(p.flags & FIN)
        c.segment(FIN | ACK)                    # says nothing of their FIN yet
        c.seq += 1
        self.assertIsNotNone(c.next())
        c.segment(ACK, ack=p.seq + 1)
        n.sync()
        self.assertEqual(self.flows_left(n), ("0", "0"))

    def test_guest_reads_nothing(self):
        """The relay is held up, memory is bounded, and all of it arrives in the end."""
        n = self.opened(sndbuf=4096)
        c = n.connect(HOST, 443)
        r = c.accept()
        r.setblocking(False)
        sent = 0
        while True:
            try:
                sent += r.send(b"0123456789abcdef" * 4096)
            except BlockingIOError:
                if not wait_until(lambda: self.writable(r), 0.5):
                    break
        self.assertLess(sent, 2 << 20)
        got = 0
        while got < sent:
            got += len(c.read(min(16 * 1024, sent - got)))
        self.assertEqual(got, sent)

    @staticmethod
    def writable(sock):
        import select
        return bool(select.select([], [sock], [], 0)[1])

    def test_relay_reads_nothing(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        data = os.urandom(1 << 20)
        at = 0
        while at < len(data):
            room = min(c.peer_window, 15000, len(data) - at)
            c.segment(ACK, data[at:at + room])
            p = c.next(0.3)
            if p is None or p.window == 0:
                break
            c.peer_window = p.window
            at = (p.ack - 1001) & 0xffffffff
            c.seq = p.ack
        self.assertLess(at, 1 << 20)
        out = read_all(r, at)
        self.assertEqual(out, data[:at])
        c.segment(ACK, data[at:at + 1000])
        self.assertEqual(read_all(r, 1000), data[at:at + 1000])

    def test_many_destinations(self):
        """More of them than forwards are kept for."""
        n = self.net("permissive")
        for i in range(1300):
            host = f"203.0.{112 + i // 250}.{1 + i % 250}"
            c = n.connect(host, 443, sport=1000 + i)
            r = c.accept()
            if i % 100 == 0:
                c.write(b"x")
                self.assertEqual(read_all(r, 1), b"x")
            c.segment(RST, ack=0)
            r.close()
        n.sync()
        self.assertEqual(self.flows_left(n), ("0", "0"))

    # --- permissive ---

    def test_permissive(self):
        n = self.net("permissive", args=["--allow-private", "192.168.7.0/24"])
        n.connect(HOST, 8443).accept()
        n.connect("192.168.7.9", 80, sport=40001).accept()
        for i, (host, port, why) in enumerate([
                ("192.168.8.9", 80, "closed"), ("10.0.0.1", 80, "closed"), ("127.0.0.1", 80, "closed"),
                ("169.254.169.254", 80, "closed"), ("224.0.0.1", 80, "closed"),
                ("10.87.0.9", 80, "closed"), (HOST, 25, "port"), (SERVICE, 80, "address")]):
            c = n.connect(host, port, sport=41000 + i, handshake=False)
            self.assertEqual(c.next().flags, RST | ACK, host)
            self.assertEqual(n.dropped()[:4], (why, 6, host, port))

    def test_datagrams(self):
        n = self.net("permissive")
        n.send(eth(udp(b"ping", 6000, 123, HOST)))
        kind, fields, _ = n.message(DATAGRAM)
        self.assertEqual(fields, (6000, HOST, 123, b"ping"))
        n.say(DATAGRAM, struct.pack("<HIHH", 6000, addr(HOST), 123, 4) + b"pong")
        p = n.packet()
        self.assertEqual((p.src, p.sport, p.dst, p.dport, p.payload), (HOST, 123, GUEST, 6000, b"pong"))
        big = os.urandom(15972)
        n.send(eth(udp(big, 6000, 123, HOST)))
        self.assertEqual(n.message(DATAGRAM)[1][3], big)
        n.say(DATAGRAM, struct.pack("<HIHH", 6000, addr(HOST), 123, len(big)) + big)
        self.assertEqual(n.packet().payload, big)
        n.say(DATAGRAM, struct.pack("<HIHH", 6000, addr(HOST), 123, 16384) + b"\0" * 16384)
        n.sync()                                        # larger than a frame: lost
        for host, port, why in [("10.1.2.3", 53, "closed"), ("224.0.0.251", 5353, "closed"),
                                ("255.255.255.255", 9, "closed"), (HOST, 25, "port"),
                                (SERVICE, 9, "udp")]:
            n.send(eth(udp(b"x", 6000, port, host)))
            self.assertEqual(n.dropped()[:4], (why, 17, host, port))
        n.send(eth(udp(b"x", 6000, 9, "255.255.255.255"), dst=BROADCAST))
        self.assertEqual(n.dropped()[0], "udp")
        self.assertIsNone(n.message(DATAGRAM, 0.1))

    # --- ends ---

    def test_relay_gone(self):
        n = self.opened()
        c = n.connect(HOST, 443)
        r = c.accept()
        n.relay.close()
        self.assertEqual(n.proc.wait(5), 1)
        n.frames.settimeout(5)
        self.assertEqual(n.frames.recv(1), b"")
        self.assertEqual(r.recv(1), b"", "what was open is closed")
        n.end()
        self.assertIn("the network is closed", n.log)

    def test_guest_gone(self):
        n = self.opened()
        n.connect(HOST, 443).accept()
        self.assertEqual(n.end(), 0)

    def test_relay_breaks_the_protocol(self):
        for why, bad in [("unknown", b"\x63\0"), ("short", struct.pack("<HI", OPEN, 1)),
                         ("ours", struct.pack("<HIHH", FLOW, 1, 1, 1)), ("empty", b"\0"),
                         ("not asked", struct.pack("<HHBIB", ANSWER, 3, 0, 1, 0)),
                         ("datagram", struct.pack("<HHIHH", DATAGRAM, 1, 1, 1, 0))]:
            n = self.net()
            n.relay.send(bad)
            self.assertEqual(n.proc.wait(5), 1, why)

    def test_broken_stream(self):
        n = self.net()
        n.frames.sendall(b"\0\1\x10\1")         # 4096 + 65536 + 1
        self.assertEqual(n.proc.wait(5), 1)
        n = self.net()
        n.frames.sendall(b"\0\0\0\0" * 3)       # no frames at all, but no harm
        self.assertEqual(n.dropped()[0], "malformed")
        n.frames.sendall(struct.pack("!I", 69632) + b"x" * 69632)
        n.sync()

    def test_usage(self):
        import subprocess
        for args in ([], ["--frames", "0"], ["--frames", "0", "--relay", "0", "--address", GUEST,
                                             "--mac", "01:00:00:00:00:00", "--profile", "locked"]):
            got = subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True)
            self.assertEqual(got.returncode, 2)

    def test_cage(self):
        n = self.net()
        n.sync()
        with open(f"/proc/{n.proc.pid}/status", encoding="ascii") as f:
            status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        self.assertEqual(int(status["CapEff"], 16), 0)

    def test_hostile_frames(self):
        """Frames near to right ones, many of them: it lives, and does what it should."""
        n = self.opened()
        seed = random.randrange(1 << 32)
        rnd = random.Random(seed)
        good = [eth(ip(tcp_segment(9, 443, 1, 0, SYN, dst=HOST, options=b"\x02\x04\x05\xb4"), 6, HOST)),
                eth(ip(tcp_segment(9, 443, 2, 1, ACK, b"data", HOST), 6, HOST)),
                eth(udp(question("a.example"), 9, 53, GATEWAY)), self.dhcp(1),
                eth(arp(1, GUEST_MAC, GUEST, GATEWAY), 0x0806)]
        for _ in range(20):
            frames = []
            for _ in range(300):
                f = bytearray(rnd.choice(good))
                for _ in range(rnd.choice((1, 1, 2, 5))):
                    f[rnd.randrange(len(f))] = rnd.randrange(256)
                frames.append(bytes(f[:rnd.randrange(len(f))] if rnd.random() < 0.2 else f))
            n.send(*frames)
            while n.recv(0.01):
                pass
            while n.recv_message(0):
                pass
        n.open(OTHER, 443)
        self.assertIsNone(n.proc.poll(), f"seed {seed}")
        c = n.connect(OTHER, 443, sport=60000)
        c.accept()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    unittest.main(verbosity=1)
