#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""net.py BUILD: TCP through a sandbox's network, against QEMU's built-in user network.

All machines have the same kernel, image, memory and vCPUs, and speak to one server
over one veth pair (tests/lib/netlab.py); each measurement goes round all of them
before it begins anew. Of BENCH_N rounds (default 5) the best counts and the median
is shown. The reference is as QEMU ships it, with the MTU of 1500 that it has and a
guest with the kernel's own settings; "QEMU user, ours" has those that our guest sets
(src/guest/net.c), and "at 1500" is our network with that MTU in the guest. CPU is that of QEMU and of the
network's processes, per GB. passt and slirp4netns stand beside it where they start.
"""
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import benchlib as bl  # noqa: E402 pylint: disable=wrong-import-position
import guestvm  # noqa: E402 pylint: disable=wrong-import-position
import harness  # noqa: E402 pylint: disable=wrong-import-position
import netguest  # noqa: E402 pylint: disable=wrong-import-position
import netlab  # noqa: E402 pylint: disable=wrong-import-position

SERVER, PORT, NAMES = "203.0.113.10", 5001, 10000
BYTES, CONNS, PINGS = 64 << 20, 300, 300
OWN_MTU_MIN, EQUAL_MTU_MIN, CONNS_MIN = 1.3, 0.8, 0.8
KINDS = ("up", "down", "conns", "ping")


def children(pid):
    return [pid] + [p for p, _, _ in harness.descendants(pid)]


def cpu_s(pids):
    return sum(bl.cpu_ns(p) or 0 for p in pids) / 1e9


class Cloche:
    """A sandbox, as a user runs it."""
    nothing = 0

    def __init__(self, h, name, flags, mtu=None):
        self.name, self.mtu = name, mtu
        self.p = h.project(name.replace(" ", "-"), {})
        shutil.copy(f"{h.build}/tests/bench/nettraffic", self.p)
        self.g = netguest.Guest(h, self.p, ["--network", "isolated", "--egress", "locked", "--allow-host",
                                            f"bench.test:{PORT}", "--cpus", "1", "--memory", "1g", *flags])
        self.tool = "/work/" + os.path.basename(self.p) + "/nettraffic"
        self.pids = [p for p, comm, _ in harness.descendants(self.g.p.pid)
                     if comm.startswith(("qemu-system", "cloche-net", "cloche-relay"))]
        if mtu:
            self.run("mtu", mtu)

    def run(self, *words):
        # the name again: what it opened may have ended meanwhile
        self.g.resolve("bench.test")
        rc, out = self.g.sh(" ".join([self.tool, *[str(w) for w in words]]), uid=0, timeout_s=300)
        if rc:
            raise RuntimeError(f"{self.name}: {out}")
        return out

    def close(self):
        self.g.finish()


def allow_many(h, ident, n):
    """`cloche net allow` so many times, on its socket (src/super/netctl.h)."""
    message = struct.Struct("@IiHBBI512s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(h.path("run", "cloche", f"{ident}.net"))
        for i in range(n):
            s.send(message.pack(1, 0, 0, 0, 0, 0, f"host{i}.example.org:443".encode()))
            kind, code, *_ = message.unpack(s.recv(message.size))
            assert (kind, code) == (32, 0), (i, kind, code)


class Bare:
    """The same guest on bare QEMU, with another network behind its card."""
    nothing = 0

    def __init__(self, b, lab, name, devices, address, gateway, bits=24, prefix=None, helpers=(), ours=False):
        self.name, self.helpers = name, list(helpers)
        tmp = tempfile.mkdtemp(dir=b.tmp)
        self.vm = guestvm.Guest(b.image(), f"{b.build}/bin/cloche-init", tmp, memory_mib=1024, cpus=1,
                                accel=b.accel, devices=devices, prefix=prefix or lab.enter("host"))
        try:
            self.host = self.vm.up(work=False)
            with open(f"{b.build}/tests/bench/nettraffic", "rb") as f:
                self.host.file("/usr/local/bin/nettraffic", f.read(), mode=0o755)
            self.host.net(address, gateway, gateway, prefix=bits, mtu=1500)
            if not ours:
                self.host.run("/bin/sh", "-c", "echo 0 >/proc/sys/net/core/busy_read", root=True)
            # what a machine in a lab lacks is told by its first connection
            self.run("ping", SERVER, PORT, 1)
        except BaseException:
            self.close()
            raise
        self.pids = [self.vm.qemu.pid] + [p.pid for p in self.helpers]

    def run(self, *words):
        r = self.host.run("/usr/local/bin/nettraffic", *[str(w) for w in words], root=True, timeout_s=300)
        if r.rc:
            raise RuntimeError(f"{self.name}: {r.err.decode()}")
        return r.out.decode()

    def close(self):
        self.vm.close()
        for p in self.helpers:
            p.terminate()
            p.wait()


def qemu_user(b, lab, name="QEMU user", **kw):
    return Bare(b, lab, name, ["-netdev", "user,id=n0", "-device", "virtio-net-device,netdev=n0"],
                "10.0.2.15", "10.0.2.2", **kw)


def passt(b, lab):
    os.mkdir(f"{b.tmp}/passt")
    os.chmod(f"{b.tmp}/passt", 0o777)   # root's passt becomes nobody
    sock = f"{b.tmp}/passt/sock"
    p = subprocess.Popen([*lab.enter("host"), "passt", "-f", "-s", sock, "-a", "10.1.1.2", "-n", "24", "-g", "10.1.1.1",
                          "-i", "lab0", "--no-dhcp", "--no-dhcpv6", "--no-ra", "-m", "1500"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        harness.wait_until(lambda: os.path.exists(sock), 5)
        return Bare(b, lab, "passt", ["-netdev", f"stream,id=n0,server=off,addr.type=unix,addr.path={sock}",
                                      "-device", "virtio-net-device,netdev=n0"], "10.1.1.2", "10.1.1.1", helpers=[p])
    except BaseException:
        p.terminate()
        p.wait()
        raise


def slirp4netns(b, lab):
    """Its tap lies in a namespace of its own, where a bridge leads to QEMU's."""
    holder = subprocess.Popen([*lab.enter("host"), "unshare", "-n", "sleep", "100000"])
    slirp = None
    try:
        time.sleep(0.3)
        slirp = subprocess.Popen([*lab.enter("host"), "slirp4netns", "--disable-dns", "--mtu=1500", str(holder.pid), "tap0"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        harness.wait_until(lambda: subprocess.run([*inside, "ip", "link", "show", "tap0"], check=False,
                                                  capture_output=True).returncode == 0, 5)
        for words in ("link add br0 type bridge", "tuntap add tapq mode tap", "link set tap0 master br0",
                      "link set tapq master br0", "link set tap0 up", "link set tapq up", "link set br0 up"):
            subprocess.run([*inside, "ip", *words.split()], check=True, capture_output=True)
        return Bare(b, lab, "slirp4netns", ["-netdev", "tap,id=n0,ifname=tapq,script=no,downscript=no",
                                            "-device", "virtio-net-device,netdev=n0"],
                    "10.0.2.100", "10.0.2.2", prefix=inside, helpers=[slirp, holder])
    except BaseException:
        for p in (slirp, holder):
            if p:
                p.terminate()
                p.wait()
        raise


def cpu_of_nothing(arm):
    """What it costs to have the program run in the guest: a sandbox does more for that than a bare machine."""
    spent = []
    for _ in range(3):
        before = cpu_s(arm.pids)
        arm.run("conns", SERVER, PORT, 0)
        spent.append(cpu_s(arm.pids) - before)
    return min(spent)


def measure(arm, kind):
    """(rate, CPU s per GB): MB/s, connections/s, or ms per round trip."""
    n = {"up": BYTES, "down": BYTES, "conns": CONNS, "ping": PINGS}[kind]
    before = cpu_s(arm.pids)
    took = float(arm.run(kind, SERVER, PORT, n).split()[-1])
    cpu = max(cpu_s(arm.pids) - before - arm.nothing, 0)
    if kind == "conns":
        return n / took, 1e3 * cpu / n
    if kind == "ping":
        return 1e3 * took / n, 1e3 * cpu / n
    return n / took / 1e6, cpu / n * 1e9


def main(b):
    h = harness.Harness(b.build, "net")
    h.cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    h._accel = b.accel
    arms, server = [], None
    try:
        lab = netlab.Lab(h, sniff=False)
        lab.dns.set("bench.test", [SERVER])
        server = subprocess.Popen([*lab.enter("world"), f"{b.build}/tests/bench/nettraffic", "serve", SERVER, str(PORT)])
        arms = [qemu_user(b, lab), Cloche(h, "cloche", []), Cloche(h, "cloche at 1500", [], mtu=1500),
                qemu_user(b, lab, "QEMU user, ours", ours=True)]
        known = set(os.listdir(h.sandboxes))
        arms.append(Cloche(h, f"cloche {NAMES} names", []))
        allow_many(h, (set(os.listdir(h.sandboxes)) - known).pop(), NAMES)
        for start in (passt, slirp4netns):
            try:
                arms.append(start(b, lab))
            except (OSError, AssertionError, RuntimeError, subprocess.CalledProcessError) as e:
                print(f"  {start.__name__} does not start here: {str(e).splitlines()[0][:150]}")
        for a in arms:      # an emulator translates what it has not run before
            for k in KINDS:
                measure(a, k)
        for a in arms:
            a.nothing = cpu_of_nothing(a)
        got = {(a.name, k): [] for a in arms for k in KINDS}
        for _ in range(bl.N):
            for k in KINDS:
                for a in arms:
                    got[a.name, k].append(measure(a, k))

        def best(name, kind):
            return (min if kind == "ping" else max)(x[0] for x in got[name, kind])
        print(f"accelerator {b.accel}; {bl.N} rounds; best, (median), CPU s per GB; load {os.getloadavg()[0]:.1f}")
        rows = []
        for a in arms:
            row = [a.name]
            for k in ("up", "down"):
                v = got[a.name, k]
                row += [best(a.name, k), f"({statistics.median(x[0] for x in v):.1f})", f"{min(x[1] for x in v):.2f}",
                        f"{best(a.name, k) / best('QEMU user', k):.2f}"]
            row += [best(a.name, "conns"), f"{min(x[1] for x in got[a.name, 'conns']):.2f}", f"{best(a.name, 'ping'):.2f}"]
            rows.append(row)
        bl.table(["", "guest to host MB/s", "", "CPU", "ratio", "host to guest MB/s", "", "CPU", "ratio",
                  "connections/s", "CPU ms each", "round trip ms"], rows)
        for k, what in (("up", "guest to host"), ("down", "host to guest")):
            ref = best("QEMU user", k)
            bl.target(f"{what}, own MTU, of QEMU's", best("cloche", k) / ref, OWN_MTU_MIN, least_ok=True)
            bl.target(f"{what}, MTU 1500, of QEMU's", best("cloche at 1500", k) / ref, EQUAL_MTU_MIN, least_ok=True)
            bl.target(f"{what}, {NAMES} names, of few", best(f"cloche {NAMES} names", k) / best("cloche", k), 0.95,
                      least_ok=True)
        bl.target("connections per second, of QEMU's", best("cloche", "conns") / best("QEMU user", "conns"), CONNS_MIN,
                  least_ok=True)
    finally:
        for a in arms:
            try:
                a.close()
            except (OSError, AssertionError) as e:
                print(f"  {a.name}: {e}")
        if server:
            server.kill()
            server.wait()
        h.close()


if __name__ == "__main__":
    bl.main(main)
