# SPDX-License-Identifier: Apache-2.0
"""The far end of a guest's network card, in Python: a network that leads nowhere.

Speaks QEMU's stream of frames, answers ARP, refuses TCP, answers the self-test's
question with what it saw (docs/network.md), and can be told to leak, each kind
of forbidden packet for itself, to prove that the test notices.
"""
import ipaddress
import socket
import struct
import threading

GATEWAY, GUEST, MTU = "10.87.0.1", "10.87.255.2", 16000
GATEWAY_MAC = bytes.fromhex("02c10c000001")
GUEST_MAC = "02:c1:0c:57:ff:02"
TCP_TLS, TCP_DNS, UDP_DNS, ICMP, IPV6 = 1, 2, 4, 8, 16
ALL = 31


def checksum(b):
    b += bytes(len(b) % 2)
    s = sum(struct.unpack(f"!{len(b) // 2}H", b))
    while s >> 16:
        s = (s & 0xffff) + (s >> 16)
    return s ^ 0xffff


def ipv4(proto, src, dst, payload):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, proto, 0, src, dst)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def with_sum(proto, src, dst, seg, at):
    s = checksum(src + dst + struct.pack("!BBH", 0, proto, len(seg)) + seg) or 0xffff
    return seg[:at] + struct.pack("!H", s) + seg[at + 2:]


def tcp(src, dst, sport, dport, seq, ack, flags):
    seg = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 0x50, flags, 65000, 0, 0)
    return ipv4(6, src, dst, with_sum(6, src, dst, seg, 16))


def udp(src, dst, sport, dport, payload):
    seg = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    return ipv4(17, src, dst, with_sum(17, src, dst, seg, 6))


class FakeNet:
    """
    leak: kinds that get through (bits as above); blind: kinds that are dropped and not
    counted; mute: TCP to closed ports hangs; deaf: the resolver says nothing.
    """

    def __init__(self, leak=0, blind=0, mute=False, deaf=False, answer=None):
        self.leak, self.blind, self.mute, self.deaf, self.answer = leak, blind, mute, deaf, answer
        self.seen = 0
        self.frames = []            # (ethertype, protocol, destination) of all
        self.questions = 0
        self.sock, self.theirs = socket.socketpair()
        self.devices = ["-netdev", f"stream,id=net,server=off,addr.type=fd,addr.str={self.theirs.fileno()}",
                        "-device", f"virtio-net-device,netdev=net,mac={GUEST_MAC},host_mtu={MTU}"]
        self.fds = [self.theirs.fileno()]
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        """QEMU has its end."""
        self.theirs.close()
        self.thread.start()

    def close(self):
        self.sock.close()

    def recv(self, n):
        b = b""
        while len(b) < n:
            k = self.sock.recv(n - len(b))
            if not k:
                raise OSError("end")
            b += k
        return b

    def run(self):
        try:
            while True:
                n = struct.unpack("!I", self.recv(4))[0]
                self.take(self.recv(n))
        except OSError:
            pass

    def send(self, mac, ethertype, payload):
        f = mac + GATEWAY_MAC + struct.pack("!H", ethertype) + payload
        self.sock.sendall(struct.pack("!I", len(f)) + f)

    def take(self, f):
        mac, kind, p = f[6:12], struct.unpack("!H", f[12:14])[0], f[14:]
        if kind == 0x0806:
            if p[6:8] == b"\0\1" and p[24:28] != p[14:18]:
                self.send(mac, 0x0806, p[:6] + b"\0\2" + GATEWAY_MAC + p[24:28] + p[8:14] + p[14:18])
            self.frames.append((kind, 0, str(ipaddress.ip_address(p[24:28]))))
        elif kind == 0x86dd:
            self.frames.append((kind, p[6], str(ipaddress.ip_address(p[24:40]))))
            if p[24:40] == ipaddress.ip_address("2001:db8::1").packed:
                self.saw(IPV6)
                if self.leak & IPV6:
                    self.send(mac, kind, p[:8] + p[24:40] + p[8:24] + p[42:44] + p[40:42] + p[44:])
        elif kind == 0x0800:
            self.frames.append((kind, p[9], str(ipaddress.ip_address(p[16:20]))))
            self.take_ip(mac, p[9], p[12:16], p[16:20], p[(p[0] & 15) * 4:])
        else:
            self.frames.append((kind, 0, ""))

    def saw(self, bit):
        if not self.blind & bit:
            self.seen |= bit

    def take_ip(self, mac, proto, src, dst, seg):
        if proto == 1 and seg[0] == 8:
            self.saw(ICMP)
            if self.leak & ICMP:
                b = b"\0\0\0\0" + seg[4:]
                b = b[:2] + struct.pack("!H", checksum(b)) + b[4:]
                self.send(mac, 0x0800, ipv4(1, dst, src, b))
        elif proto == 6:
            sport, dport, seq = struct.unpack("!HHI", seg[:8])
            bit = {443: TCP_TLS, 53: TCP_DNS}.get(dport, 0)
            if not seg[13] & 2:
                return
            self.saw(bit)
            if self.leak & bit:
                self.send(mac, 0x0800, tcp(dst, src, dport, sport, 1000, seq + 1, 0x12))
            elif not self.mute:
                self.send(mac, 0x0800, tcp(dst, src, dport, sport, 0, seq + 1, 0x14))
        elif proto == 17:
            sport, dport = struct.unpack("!HH", seg[:4])
            if dst != ipaddress.ip_address(GATEWAY).packed:
                self.saw(UDP_DNS if dport == 53 else 0)
                if self.leak & UDP_DNS:
                    self.send(mac, 0x0800, udp(dst, src, dport, sport, seg[8:]))
                return
            self.questions += 1
            q = seg[8:]
            if not self.deaf:
                bits = self.seen if self.answer is None else self.answer
                a = q[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + q[12:] + \
                    b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + bytes([198, 51, 100, bits])
                self.send(mac, 0x0800, udp(dst, src, 53, sport, a))
