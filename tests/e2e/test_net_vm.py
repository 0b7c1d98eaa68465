# SPDX-License-Identifier: Apache-2.0
"""The network of a sandbox in a virtual machine, from its monitor's and its guest's side:
set up, proven, reached from the host, and closed when one of its processes dies.
"""
import os
import re
import signal
import socket
import struct
import threading
import time

import harness
from harness import signal_pid

FLAGS = ["--network", "isolated", "--egress", "standard"]

SERVER = """
import socket, sys, threading
def serve(c):
    n = 0
    while True:
        b = c.recv(65536)
        if not b:
            break
        n += len(b)
        c.sendall(b)
    c.sendall(b"end %d" % n)    # the half that is open still
    c.close()
def listen(host, port):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((host, port))
    s.listen(100)
    while True:
        threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
for where in sys.argv[1:]:
    host, port = where.rsplit(":", 1)
    threading.Thread(target=listen, args=(host, int(port)), daemon=True).start()
import time
time.sleep(0.5)
print("up", flush=True)
sys.stdin.read()
open("made", "w").write("kept")
"""


def log_of(h):
    d = h.path("state", "cloche", "logs")
    out = ""
    for n in sorted(os.listdir(d)):
        if not n.endswith(".jsonl"):
            with open(os.path.join(d, n), errors="replace") as f:
                out += f.read()
    return out


def free_ports(n):
    ss = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in ss]
    for s in ss:
        s.close()
    return ports


def talk(port, data, host="127.0.0.1"):
    """Everything there, our half closed, everything back."""
    c = socket.create_connection((host, port), timeout=60)
    got = bytearray()

    def read():
        while b := c.recv(1 << 16):
            got.extend(b)
    t = threading.Thread(target=read)
    t.start()
    c.sendall(data)
    c.shutdown(socket.SHUT_WR)
    t.join(120)
    assert not t.is_alive(), f"{len(got)} bytes and no end"
    c.close()
    return bytes(got)


def test_inside(h):
    """What the guest sees, and that it was proven before."""
    p = h.project("demo", {"a.txt": "one\n"})
    r = h.sh(p, """
        cat /proc/net/route /etc/resolv.conf /etc/hosts /sys/class/net/eth0/mtu
        cat /sys/class/net/eth0/address /proc/net/if_inet6
        python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('10.87.0.1', 53)); print('from', s.getsockname()[0])
s = socket.socket(); s.settimeout(20)
try: s.connect(('198.51.100.7', 80)); print('connected')
except OSError as e: print('refused', e)
"
        """, flags=FLAGS)
    print(r.text)
    assert r.rc == 0, r
    assert "eth0\t00000000\t0100570A\t0003" in r.text and "nameserver 10.87.0.1\n" in r.text
    assert re.search(r"^10\.87\.255\.2\tcloche\t# cloche$", r.text, re.M) and "\n16000\n" in r.text
    assert "02:c1:0c:57:ff:02" in r.text and "from 10.87.255.2" in r.text
    assert "eth0" not in r.text.split("02:c1:0c")[1]           # no IPv6 on the card
    assert "refused [Errno 111]" in r.text
    log = log_of(h)
    assert "the network's self-test passed" in log, log
    assert "cloche-net used" in log and "cloche-keeper used" in log
    h.wait_clean()


def test_published(h):
    """Servers on 127.0.0.1, 0.0.0.0, [::1], [::] and the card; half-close; many bytes; nobody there."""
    p = h.project("demo", {"s.py": SERVER})
    where = ["127.0.0.1:8001", "0.0.0.0:8002", "::1:8003", ":::8004", "10.87.255.2:8005"]
    ports = free_ports(6)
    flags = FLAGS + ["--publish-localhost"]
    for port, guest in zip(ports, [8001, 8002, 8003, 8004, 8005, 8006]):
        flags += ["-p", f"{port}:{guest}"]
    q = h.start(*h.shell_argv(p, ["python3", "s.py", *where], flags))
    assert q.stdout.readline() == b"up\n", q.stderr.read()
    for i, port in enumerate(ports[:5]):
        data = os.urandom(1000 * (i + 1))
        assert talk(port, data) == data + b"end %d" % len(data), where[i]
    big = os.urandom(8 << 20)
    t0 = time.monotonic()
    assert talk(ports[1], big) == big + b"end %d" % len(big)
    print(f"16 MiB in {time.monotonic() - t0:.1f} s")
    # side by side
    errors = []

    def one(i):
        data = bytes([i]) * 200000
        if talk(ports[i % 5], data) != data + b"end 200000":
            errors.append(i)
    ts = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert not errors, errors
    # nobody listens: taken and closed, as a forwarder has it
    c = socket.create_connection(("127.0.0.1", ports[5]), timeout=30)
    assert c.recv(1) == b""
    # a client that dies leaves nothing behind
    for _ in range(100):
        c = socket.create_connection(("127.0.0.1", ports[0]), timeout=30)
        c.send(b"x")
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
    end = time.monotonic() + 20
    while True:     # 64 at one time; the guest needs a moment to let go of as many
        try:
            if talk(ports[0], b"after") == b"afterend 5":
                break
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
    if os.geteuid() == 0:       # nobody else may look into a caged process
        worker = h.helpers("cloche-worker")[0]
        n = len(os.listdir(f"/proc/{worker}/fd"))
        assert n < 40, f"{n} descriptors"
    stays = socket.create_connection(("127.0.0.1", ports[0]), timeout=30)
    stays.send(b"y")
    r = h.finish(q, b"")
    assert r.rc == 0, r
    assert stays.recv(10) in (b"y", b"")
    stays.close()
    for port in ports:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5)
            raise AssertionError(f"{port} is open still")
        except ConnectionRefusedError:
            pass
    h.wait_clean()


def test_published_offline(h):
    """No card at all, and the guest's server is reached."""
    p = h.project("demo", {"s.py": SERVER})
    [port] = free_ports(1)
    q = h.start(*h.shell_argv(p, ["python3", "s.py", "127.0.0.1:8001"],
                              ["--network", "offline", "--publish-localhost", "-p", f"{port}:8001"]))
    assert q.stdout.readline() == b"up\n", q.stderr.read()
    assert not h.helpers("cloche-net") and not h.helpers("cloche-keeper")
    assert talk(port, b"hello") == b"helloend 5"
    r = h.finish(q, b"")
    assert r.rc == 0, r
    h.wait_clean()


LIVE = """
echo up
read x
python3 -c "
import socket
s = socket.socket(); s.settimeout(5)
try: s.connect(('10.87.0.2', 80)); print('open')
except OSError as e: print('closed')
"
echo kept > made
"""


def killed(h, who, how=signal.SIGKILL):
    p = h.project("demo", {"a.txt": "one\n"})
    q = h.start(*h.shell_argv(p, ["sh", "-c", LIVE], FLAGS))
    assert q.stdout.readline() == b"up\n", q.stderr.read()
    others = {n: h.helpers(n)[0] for n in ("cloche-net", "cloche-relay", "cloche-keeper")}
    assert signal_pid(others[who], how)
    return p, q, others


def network_closed(h, who):
    p, q, _ = killed(h, who)
    end = time.monotonic() + 10
    while h.helpers("cloche-net") or h.helpers("cloche-relay") or h.helpers("cloche-keeper"):
        assert time.monotonic() < end, h.tree()
        time.sleep(0.05)
    r = h.finish(q, b"\n")
    assert r.rc == 0 and r.text.endswith("closed\n"), r
    assert r.errtext.count("the network is closed") == 1 and f"{who} was ended by signal 9" in r.errtext, r
    assert "goes on without it" in r.errtext
    assert h.run("apply", cwd=p).rc == 0
    assert h.read(p, "made") == b"kept\n"
    h.wait_clean()


def test_net_killed(h):
    network_closed(h, "cloche-net")


def test_relay_killed(h):
    network_closed(h, "cloche-relay")


def test_one_session(h):
    """The processes that hand frames to each other share one session, and it is not the user's:
    a busy machine is shared out among sessions, and a frame would wait for each in turn."""
    p = h.project("demo", {"a.txt": "one\n"})
    q = h.start(*h.shell_argv(p, ["sh", "-c", LIVE], FLAGS))
    assert q.stdout.readline() == b"up\n", q.stderr.read()
    names = ("qemu-system", "cloche-net", "cloche-relay", "cloche-disk", "cloche-worker")
    pids = {n: pid for pid, comm, _ in harness.descendants(q.pid) for n in names if comm.startswith(n)}
    assert set(pids) == set(names), pids
    sessions = {os.getsid(pid) for pid in pids.values()}
    assert len(sessions) == 1 and os.getsid(q.pid) not in sessions, (pids, sessions)
    assert h.finish(q, b"\n").rc == 0
    h.wait_clean()


def test_keeper_killed(h):
    """Once: started again. Twice: said."""
    p, q, others = killed(h, "cloche-keeper")
    end = time.monotonic() + 10
    while not (new := [x for x in h.helpers("cloche-keeper") if x != others["cloche-keeper"]]):
        assert time.monotonic() < end, h.tree()
        time.sleep(0.05)
    assert signal_pid(new[0], signal.SIGKILL)
    r = h.finish(q, b"\n")
    assert r.rc == 0, r
    assert "cloche-keeper ended twice" in r.errtext and "network is closed" not in r.errtext, r
    assert h.run("apply", cwd=p).rc == 0
    h.wait_clean()


def test_killed_at_start(h):
    """A policy that nobody enforces is no policy: nothing runs."""
    p = h.project("demo", {"a.txt": "one\n"})
    q = h.start(*h.shell_argv(p, ["sh", "-c", "echo ran"], FLAGS))
    h.kill_helper("cloche-net")
    r = h.finish(q, b"")
    assert r.rc == 125 and "ran" not in r.text, r
    assert "has no network: cloche-net was ended by signal 9" in r.errtext, r
    h.wait_clean()


def test_as_user(h):
    """The same for an ordinary user, whose cages are made of user namespaces."""
    h.as_user()
    p = h.project("demo", {"s.py": SERVER})
    [port] = free_ports(1)
    q = h.start(*h.shell_argv(p, ["python3", "s.py", "127.0.0.1:8001"],
                              FLAGS + ["--publish-localhost", "-p", f"{port}:8001"]))
    assert q.stdout.readline() == b"up\n", q.stderr.read()
    assert talk(port, b"hello") == b"helloend 5"
    [name] = [n for n in os.listdir(h.path("run", "cloche")) if n.endswith(".net")]
    r = h.run("net", "allow", "more.example", name[:-4])
    assert r.rc == 0, r
    r = h.finish(q, b"")
    assert r.rc == 0, r
    assert "self-test passed" in log_of(h)
    h.wait_clean()
