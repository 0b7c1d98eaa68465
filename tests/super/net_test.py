# SPDX-License-Identifier: Apache-2.0
"""The monitor and the processes of a sandbox's network: net_test.py BIN NETCTL [NAME...]

cloche-super, cloche-scan and cloche-disk are the real ones. QEMU's cage, the worker,
cloche-net, cloche-relay, cloche-keeper and cloche-switch are puppets: each connects to
this test and does what it is told.
"""
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ID = "demo-aaaaaa"
LINK = struct.Struct("<IiIIQ96s512s384s")   # super/link.h
BOOTED, RUNNING, STAGED, UNCHANGED, FAILED, OFF = 1, 2, 3, 4, 5, 6
OK, BROKEN, NOTE = 32, 35, 38
BIN = NETCTL = None

PUPPET = """#!{python}
import array, json, os, select, socket, struct, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect({path!r})
f = s.makefile("rw")
def opt(name):
    for i, a in enumerate(sys.argv):
        if a == name:
            return sys.argv[i + 1]
        if a.startswith(name + "="):
            return a[len(name) + 1:]
    return None
def sock(name):
    if name not in socks:
        socks[name] = socket.socket(fileno=int(opt(name)))
    return socks[name]
def recv(name, n_fds=0, timeout=10):
    k = sock(name)
    if not select.select([k], [], [], timeout)[0]:
        return None
    b, anc, _, _ = k.recvmsg(70000, socket.CMSG_SPACE(4 * 8))
    for _, _, data in anc:
        got.extend(array.array("i", data[:len(data) - len(data) % 4]))
    return b.hex()
def send(name, hexed):
    sock(name).send(bytes.fromhex(hexed))
socks, got = {{}}, []
f.write(json.dumps([{name!r}, os.getpid(), sys.argv[1:]]) + "\\n")
f.flush()
for line in f:
    try:
        r = [0, eval(json.loads(line))]
    except SystemExit:
        raise
    except BaseException as e:
        r = [1, repr(e)]
    f.write(json.dumps(r) + "\\n")
    f.flush()
"""


class Puppet:
    def __init__(self, conn):
        self.conn = conn
        self.f = conn.makefile("rw")
        self.name, self.pid, self.argv = json.loads(self.f.readline())

    def __call__(self, expression):
        self.f.write(json.dumps(expression) + "\n")
        self.f.flush()
        bad, got = json.loads(self.f.readline())
        assert not bad, got
        return got

    def exit(self, status=0):
        """Leaves, and is seen to have."""
        self.f.write(json.dumps(f"os._exit({status})") + "\n")
        self.f.flush()
        assert self.f.readline() == ""

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def options(self, name):
        return [b for a, b in zip(self.argv, self.argv[1:]) if a == name]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(what, timeout=20):
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


# relayctl.h
def relayctl(kind, number, rest=b""):
    return struct.pack("<HI", kind, number) + rest


def blob(b):
    return struct.pack("<I", len(b)) + b


class World:
    PROGRAMS = {"cloche-cage": "qemu", "cloche-worker": "worker", "cloche-net": "net",
                "cloche-relay": "relay", "cloche-keeper": "keeper", "cloche-switch": "switch"}

    def __init__(self, real=()):
        self.top = tempfile.mkdtemp(prefix="cloche-net-")
        self.bin = os.path.join(self.top, "bin")
        self.project = os.path.join(self.top, "demo")
        for d in (self.bin, self.project):
            os.mkdir(d)
        with open(os.path.join(self.project, "a.txt"), "w") as f:
            f.write("old\n")
        for n in ("cloche-super", "cloche-scan", "cloche-disk", *real):
            shutil.copy(os.path.join(BIN, n), self.bin)
        self.meet = socket.socket(socket.AF_UNIX)
        self.meet.bind(os.path.join(self.top, "meet"))
        self.meet.listen(20)
        self.meet.settimeout(30)
        for program, name in self.PROGRAMS.items():
            if program in real:
                continue
            path = os.path.join(self.bin, program)
            with open(path, "w") as f:
                f.write(PUPPET.format(python=sys.executable, path=self.meet.getsockname(), name=name))
            os.chmod(path, 0o755)
        self.env = dict(os.environ, HOME=self.top)
        for n in ("STATE", "CACHE", "CONFIG"):
            self.env[f"XDG_{n}_HOME"] = os.path.join(self.top, n)
        self.env["XDG_RUNTIME_DIR"] = os.path.join(self.top, "run" * 30)    # longer than sun_path
        for n in ("STATE", "CACHE", "CONFIG"):
            os.mkdir(self.env[f"XDG_{n}_HOME"], 0o700)
        os.mkdir(self.env["XDG_RUNTIME_DIR"], 0o700)
        self.events = os.path.join(self.top, "events.jsonl")
        self.p, self.supers = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.supers:
            if s.poll() is None:
                s.kill()
            s.wait()
        for p in self.p.values():
            p.conn.close()
        shutil.rmtree(self.top, ignore_errors=True)

    def policy(self, profile="standard", hosts=(), privates=()):
        """A sealed policy, as the command line makes it."""
        args = [NETCTL, "policy", profile, *hosts, *[f"private={x}" for x in privates]]
        rd = os.memfd_create("out")
        subprocess.run(args, check=True, stdout=rd, env=self.env)
        with open(f"/proc/self/fd/{rd}", "rb") as f:
            b = f.read()
        os.close(rd)
        fd = os.memfd_create("policy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.pwrite(fd, b, 0)
        fcntl.fcntl(fd, 1033, 0xf)      # F_ADD_SEALS: all
        return fd

    def start(self, *args, puppets=("qemu", "worker", "net", "relay", "keeper"), policy=None,
              fds=(), network="isolated", egress="standard", name=ID):
        """Starts the monitor; its puppets are in self.p."""
        fd = os.open(self.project, os.O_RDONLY | os.O_DIRECTORY)
        self.report, wr = os.pipe()
        log = os.open(os.path.join(self.top, "log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open("/dev/null", os.O_RDONLY)
        pass_fds = [fd, wr, log, null, *fds]
        net = []
        if network != "offline":
            p = policy if policy is not None else self.policy(egress)
            pass_fds.append(p)
            net = ["--network", network, "--egress", egress, "--policy", str(p), "--events", self.events]
        s = subprocess.Popen(
            [os.path.join(self.bin, "cloche-super"), "--id", name, "--agent", "shell",
             "--project", f"{fd}:demo:{self.project}", "--kernel", str(null),
             "--initrd", str(null), "--rootfs", str(null), "--memory", "128", "--cpus", "1",
             "--disk", str(64 << 20), "--tmp", "1048576", "--accel", "tcg", "--ready-ms", "60000",
             "--report", str(wr), "--log", str(log), "--debug", *net, *args],
            env=self.env, pass_fds=pass_fds)
        self.supers.append(s)
        for n in (fd, wr, log, null):
            os.close(n)
        self.expect(puppets)
        return s

    def expect(self, names):
        names = list(names)
        while names:
            conn, _ = self.meet.accept()
            conn.settimeout(60)
            p = Puppet(conn)
            assert p.name in names, f"{p.name} was started, not {names}"
            names.remove(p.name)
            self.p[p.name] = p

    def say(self, kind, code=0, worker="worker"):
        self.p[worker](f"send('--monitor', {LINK.pack(kind, code, 0, 0, 0, b'', b'', b'').hex()!r})")

    def hear(self, kind):
        """The next message of that kind: (code, text)."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            b = self.p["worker"]("recv('--monitor')")
            assert b, f"the monitor said nothing of kind {kind}"
            m = LINK.unpack(bytes.fromhex(b))
            if m[0] == kind:
                return m[1], m[6].rstrip(b"\0").decode()
        raise AssertionError("not in time")

    def running(self):
        self.say(BOOTED)
        self.say(RUNNING)
        assert self.hear(OK)[0] == 0

    def finish(self, s):
        """The worker's way out: nothing changed, off; QEMU ends and the others with it."""
        self.say(OFF)
        self.p["qemu"].exit()
        self.p["worker"].exit()
        s.wait(30)

    def log(self):
        with open(os.path.join(self.top, "log")) as f:
            return f.read()

    def ctl(self, *args, name=ID):
        """netctl_call(): (status, output)."""
        r = subprocess.run([NETCTL, "call", name, *args], env=self.env, capture_output=True,
                           timeout=30)
        return r.returncode, (r.stdout + r.stderr).decode()

    def ctl_start(self, *args, fds=()):
        return subprocess.Popen([NETCTL, "call", ID, *args], env=self.env, pass_fds=fds,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def asked(self):
        """What the relay is asked next: (type, number, rest)."""
        b = bytes.fromhex(self.p["relay"]("recv('--control')"))
        return struct.unpack("<HI", b[:6]) + (b[6:],)

    def relay_says(self, b):
        self.p["relay"](f"send('--control', {b.hex()!r})")


ALLOW, DENY, LISTEN, R_OK, R_ERR, R_LOST = 3, 4, 5, 32, 33, 34


def test_offline():
    """No process, no card, no socket; and no word of it on anybody's command line."""
    with World() as w:
        s = w.start(network="offline", puppets=("qemu", "worker"))
        for p in w.p.values():
            assert not [a for a in p.argv if "net" in a.replace("-nographic", "")], p.argv
        assert not os.listdir(w.env["XDG_RUNTIME_DIR"])
        w.running()
        status, text = w.ctl("list")
        assert status == 1 and "does not run, or has no network" in text, text
        w.finish(s)


def test_wiring():
    """Who gets what, and that an end that must be seen to end is nobody else's."""
    with World() as w:
        s = w.start("--search", "corp.example", "--search", "lan",
                    policy=w.policy("standard", ["example.org"], ["10.1.0.0/16", "192.168.7.0/24"]))
        net, relay, keeper, worker, qemu = (w.p[n] for n in ("net", "relay", "keeper", "worker", "qemu"))
        assert net.options("--address") == ["10.87.255.2"]
        assert net.options("--mac") == ["02:c1:0c:57:ff:02"]
        assert net.options("--profile") == ["standard"] and net.options("--search") == ["corp.example"]
        assert net.options("--allow-private") == ["10.1.0.0/16", "192.168.7.0/24"]
        assert worker.options("--net") == ["10.87.255.2"] and "--net-test" in worker.argv
        assert worker.options("--search") == ["corp.example", "lan"]
        line = " ".join(qemu.argv)
        assert "mac=02:c1:0c:57:ff:02,host_mtu=16000" in line and "stream,id=net" in line
        # frames: QEMU and net; flows: net and relay; connections: relay and worker; files: keeper and relay
        fd = line.split("addr.str=")[1].split()[0]
        assert qemu(f"os.write({fd}, b'frame')") == 5
        assert net("sock('--frames').recv(99).decode()") == "frame"
        net("sock('--relay').send(b'flow')")
        assert relay("recv('--net')") == b"flow".hex()
        relay("sock('--worker').send(b'conn')")
        assert worker("recv('--relay')") == b"conn".hex()
        keeper("sock('--relay').send(b'file')")
        assert relay("recv('--keeper')") == b"file".hex()
        # the policy is whole for each that reads it, and cannot be changed
        for _ in range(2):
            assert relay("len(os.pread(int(opt('--policy')), 1 << 20, 0)) > 20")
        # the events are appended to
        relay("os.write(int(opt('--events')), b'{}\\n')")
        with open(w.events) as f:
            assert f.read() == "{}\n"
        assert os.stat(w.events).st_mode & 0o777 == 0o600
        # an end that another process had open, too, would hide a death
        net.kill()
        assert relay("recv('--net')") == ""
        fds = "sorted(os.listdir('/proc/self/fd'))"
        print("descriptors:", {n: len(w.p[n](fds)) for n in ("relay", "keeper", "worker")})
        s.kill()


def test_permissive_has_no_test():
    with World() as w:
        w.start(egress="permissive")
        assert "--net-test" not in w.p["worker"].argv and w.p["worker"].options("--net")
        assert w.p["net"].options("--profile") == ["permissive"]


def test_good_end():
    """QEMU's end is the network's; nobody is told of it, the relay has time for its last words."""
    with World() as w:
        s = w.start()
        w.running()
        pids = [p.pid for p in w.p.values()]
        w.say(OFF)
        w.p["qemu"].exit()
        w.p["net"].exit()               # as it does when QEMU is gone
        w.p["worker"].exit()
        time.sleep(0.3)                 # writes its last events; cut short it would be killed
        w.p["relay"]("os.write(int(opt('--events')), b'last\\n')")
        w.p["relay"].exit()
        assert s.wait(20) == 0
        until(lambda: not any(alive(p) for p in pids))
        assert "the network is closed" not in w.log(), w.log()
        with open(w.events) as f:
            assert f.read() == "last\n"
        assert not os.listdir(os.path.join(w.env["XDG_RUNTIME_DIR"], "cloche"))


def test_death_while_running():
    """Of net, or of relay, by a signal or by itself: closed, said once, and the session goes on."""
    for who, how, text in [("net", "kill", "cloche-net was ended by signal 9"),
                           ("relay", "kill", "cloche-relay was ended by signal 9"),
                           ("net", 1, "cloche-net ended with status 1"),
                           ("relay", 1, "cloche-relay ended with status 1")]:
        with World() as w:
            s = w.start()
            w.running()
            pids = {n: w.p[n].pid for n in ("net", "relay", "keeper")}
            other = "relay" if who == "net" else "net"
            if how == "kill":
                w.p[who].kill()
                w.p[other].exit(0 if other == "relay" else 1)   # it saw the other one go
            else:
                w.p[who].exit(how)                              # ... or does not
            code, said = w.hear(NOTE)
            assert code == 1 and "the network is closed" in said and "goes on" in said, said
            assert text in said, (who, how, said)
            until(lambda: not any(alive(p) for p in pids.values()))
            assert alive(w.p["qemu"].pid) and alive(w.p["worker"].pid) and s.poll() is None
            status, out = w.ctl("list")
            assert status == 1 and "network is closed" in out, out
            assert w.p["worker"]("recv('--monitor', timeout=0.5)") is None   # once
            w.finish(s)
            assert s.returncode == 0


def test_death_at_start():
    """A network that cannot be had is refused before anything ran."""
    with World() as w:
        s = w.start()
        w.p["net"].exit(3)      # no cage
        code, said = w.hear(BROKEN)
        assert code < 0 and "the sandbox has no network: cloche-net ended with status 3" in said, said
        w.say(FAILED, -5)
        w.p["worker"].exit(1)
        s.wait(30)
        b = os.read(w.report, LINK.size)
        assert LINK.unpack(b)[0] == FAILED


def test_death_without_machine():
    """net says that QEMU is gone, and QEMU is not: closed all the same, a moment later."""
    with World() as w:
        s = w.start()
        w.running()
        w.p["net"].exit(0)
        w.p["relay"].exit(0)
        _, said = w.hear(NOTE)
        assert "lost its machine" in said, said
        w.finish(s)


def test_keeper():
    """Started once more, on the same socket; twice is said."""
    with World() as w:
        s = w.start()
        w.running()
        w.p["keeper"].kill()
        w.expect(["keeper"])
        w.p["keeper"]("sock('--relay').send(b'again')")
        assert w.p["relay"]("recv('--keeper')") == b"again".hex()
        w.p["keeper"].exit(1)
        _, said = w.hear(NOTE)
        assert "cloche-keeper ended twice" in said, said
        assert alive(w.p["net"].pid) and alive(w.p["relay"].pid)
        assert w.ctl("list")[0] == 0
        w.p["net"].kill()
        assert "cloche-net" in w.hear(NOTE)[1]
        w.finish(s)


def listener():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(5)
    return s


def test_ports():
    """Published when a command is about to run; the sockets are the relay's alone then."""
    with World() as w:
        a, b, c = listener(), listener(), listener()
        # two sockets of one entry have neighbouring numbers
        base = 150
        for i, x in enumerate((a, b, c)):
            os.dup2(x.fileno(), base + i)
        where = [x.getsockname() for x in (a, b, c)]
        fds = [base, base + 1, base + 2]
        s = w.start("--port", f"{base}+2:8080:0:0:web", "--port", f"{base + 2}+1:1455:1:300:a:b", fds=fds)
        for x in (a, b, c):
            x.close()
        for f in fds:
            os.close(f)
        assert w.p["relay"]("recv('--control', timeout=0.5)") is None
        w.running()
        got = []
        for _ in range(2):
            m = bytes.fromhex(w.p["relay"]("recv('--control', 4)"))
            got.append(struct.unpack("<HI", m[:6]) + (m[6:],))
        assert [g[0] for g in got] == [LISTEN, LISTEN]
        assert got[0][2] == struct.pack("<HBI", 8080, 0, 0) + blob(b"web"), got
        assert got[1][2] == struct.pack("<HBI", 1455, 1, 300) + blob(b"a:b"), got
        assert w.p["relay"]("len(got)") == 3
        w.relay_says(relayctl(R_OK, got[0][1]))
        w.relay_says(relayctl(R_ERR, got[1][1], blob(b"too many \x1bports")))
        _, said = w.hear(NOTE)
        assert "not published: too many" in said and "\x1b" not in said, said
        socket.create_connection(where[0]).close()
        w.p["relay"]("[os.close(x) for x in got]")
        for x in where:
            try:
                socket.create_connection(x)
                raise AssertionError("somebody else still listens")
            except ConnectionRefusedError:
                pass
        w.finish(s)


def test_ports_offline():
    """No card, but servers of the guest are published: a relay alone."""
    with World() as w:
        a = listener()
        os.dup2(a.fileno(), 150)
        a.close()
        s = w.start("--port", "150+1:8080:0:0:", network="offline", puppets=("qemu", "worker", "relay"),
                    fds=[150])
        os.close(150)
        assert "netdev" not in " ".join(w.p["qemu"].argv) and not w.p["worker"].options("--net")
        assert any(a.startswith("--relay") for a in w.p["worker"].argv)
        assert w.p["relay"]("recv('--net', timeout=0.3)") is None       # not at its end
        w.running()
        assert struct.unpack("<H", bytes.fromhex(w.p["relay"]("recv('--control', 4)"))[:2])[0] == LISTEN
        w.p["relay"].kill()
        assert "cloche-relay was ended" in w.hear(NOTE)[1]
        w.finish(s)


def test_control():
    """allow, deny, list and callback; what the relay refuses changes nothing."""
    with World() as w:
        s = w.start(policy=w.policy("locked", ["example.org"]))
        w.running()
        status, out = w.ctl("list")
        assert status == 0 and out == "isolated locked\n+example.org:443\n", out

        def change(kind, pattern, answer, want):
            p = w.ctl_start(kind, pattern)
            t, number, rest = w.asked()
            assert t == (ALLOW if kind == "allow" else DENY) and rest == blob(pattern.encode())
            w.relay_says(relayctl(R_OK if answer is None else R_ERR, number,
                                  b"" if answer is None else blob(answer)))
            out = p.communicate(timeout=20)[0].decode()
            assert (p.returncode, out) == want, (p.returncode, out)

        change("allow", "*.crates.io:8443", None, (0, "isolated\n"))
        change("deny", "example.org", None, (0, "isolated\n"))
        change("allow", "more.example", b"it is \x1b[31mfull", (1, "it is \\e[31mfull\n"))
        status, out = w.ctl("list")
        assert "+*.crates.io:8443" in out and "-example.org" in out and "more" not in out, out
        # judged before the relay is asked
        for bad in ("10.0.0.1", "a b", "*.com", "x" * 300 + ".org", ""):
            status, out = w.ctl("allow", bad)
            assert status == 1 and "is no host pattern" in out, (bad, out)
        assert w.p["relay"]("recv('--control', timeout=0.2)") is None
        # a callback's sockets go through
        a = listener()
        p = w.ctl_start("callback", "1455", "1", "300", "login", str(a.fileno()), fds=[a.fileno()])
        m = bytes.fromhex(w.p["relay"]("recv('--control', 4)"))
        assert m[6:] == struct.pack("<HBI", 1455, 1, 300) + blob(b"login")
        w.relay_says(relayctl(R_OK, struct.unpack("<I", m[2:6])[0]))
        assert p.wait(20) == 0
        where = a.getsockname()
        a.close()
        assert w.p["relay"]("socket.socket(fileno=got[-1]).getsockname()")[1] == where[1]
        # no socket, no port
        assert w.ctl("callback", "1455", "1", "300", "login")[0] == 1
        # many at one time; who is over the number waits for nothing
        many = [w.ctl_start("allow", f"h{i}.example") for i in range(8)]
        asked = [w.asked() for _ in range(8)]
        more = w.ctl_start("list")
        assert more.wait(20) == 1
        for t, number, _ in asked:
            w.relay_says(relayctl(R_OK, number))
        assert [p.wait(20) for p in many] == [0] * 8
        # one that leaves before the answer comes: the answer is nobody else's
        p = w.ctl_start("allow", "gone.example")
        _, number, _ = w.asked()
        p.kill()
        p.wait()
        q = w.ctl_start("allow", "next.example")
        _, number2, _ = w.asked()
        w.relay_says(relayctl(R_ERR, number, blob(b"for the one that left")))
        w.relay_says(relayctl(R_OK, number2))
        assert q.communicate(timeout=20)[0] == b"isolated\n" and q.returncode == 0
        w.finish(s)


def test_relay_lies():
    """An answer to nothing, or no message at all: the relay is ended, the network closed."""
    for lie in (relayctl(R_OK, 77), b"\xff" * 9, relayctl(ALLOW, 1, blob(b"a.example"))):
        with World() as w:
            s = w.start()
            w.running()
            pid = w.p["relay"].pid
            p = w.ctl_start("allow", "a.example")
            w.asked()
            try:
                w.relay_says(lie)
            except ValueError:
                pass    # it may be ended before it can tell us that it spoke
            assert "cloche-relay broke its protocol" in w.hear(NOTE)[1]
            until(lambda: not alive(pid))
            assert p.wait(20) == 1 and b"network is closed" in p.stdout.read()
            w.finish(s)


def test_log_with_holes():
    """The relay could not write: the user hears of it, once; a second time is a lie."""
    with World() as w:
        s = w.start()
        w.running()
        lost = relayctl(R_LOST, 0, blob(b"No space \x1b left"))
        w.relay_says(lost)
        text = w.hear(NOTE)[1]
        assert "log cannot be written (No space" in text and "\x1b" not in text, text
        try:
            w.relay_says(lost)
        except ValueError:
            pass
        assert "cloche-relay broke its protocol" in w.hear(NOTE)[1]
        w.finish(s)


def test_strangers():
    """Junk on the control socket, and a stale socket of a monitor that was killed."""
    with World() as w:
        d = os.path.join(w.env["XDG_RUNTIME_DIR"], "cloche")
        os.mkdir(d, 0o700)
        old = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = os.getcwd()
        os.chdir(d)
        old.bind(f"{ID}.net")
        old.close()
        s = w.start()
        w.running()
        for junk in (b"x", b"\0" * 2000, b""):
            k = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            k.connect(f"{ID}.net")
            if junk:
                k.send(junk)
            k.settimeout(10)
            assert not junk or k.recv(10) == b""
            k.close()
        os.chdir(here)
        assert w.ctl("list")[0] == 0
        assert os.stat(d).st_mode & 0o777 == 0o700
        s.kill()
        s.wait()


def test_no_policy():
    """A policy that could be changed behind our back, or is none, is refused."""
    for seal, data in ((False, None), (True, b"junk")):
        with World() as w:
            fd = os.memfd_create("policy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            good = w.policy()
            os.pwrite(fd, data or os.pread(good, 1 << 20, 0), 0)
            if seal:
                        fcntl.fcntl(fd, 1033, 0xf)
            s = w.start(policy=fd, puppets=())
            assert s.wait(30) == 1
            m = LINK.unpack(os.read(w.report, LINK.size))
            assert m[0] == FAILED and b"policy" in m[6], m


def test_shared():
    """One switch for all, by name; the second sandbox joins it; both get what it says."""
    with World(real=("cloche-switch",)) as w:
        first = w.start("--net-name", "one", network="shared")
        one = dict(w.p)
        addr = one["net"].options("--address")[0]
        assert addr.startswith("10.87.") and addr != "10.87.255.2", addr
        tail = ":".join("%02x" % int(x) for x in addr.split(".")[2:])
        assert one["net"].options("--mac") == ["02:c1:0c:57:" + tail]
        assert one["worker"].options("--net") == [addr]
        second = w.start(network="shared", name="Other_Name.x-bbbbbb")
        two = dict(w.p)
        other = two["net"].options("--address")[0]
        assert other != addr
        # the switch tells each of the other
        up = bytes.fromhex(one["net"]("recv('--switch')"))
        assert b"other-name-x-bbbbbb" in up, up
        # a name is one sandbox's
        third = w.start("--net-name", "one", network="shared", name="demo-cccccc", puppets=())
        assert third.wait(30) == 1
        m = LINK.unpack(os.read(w.report, LINK.size))
        assert m[0] == FAILED and b"cannot join the shared network as 'one'" in m[6], m
        with open(os.path.join(w.env["XDG_STATE_HOME"], "cloche", "addresses")) as f:
            print(f.read())
        w.p = one
        w.say(OFF)
        one["qemu"].exit()
        one["net"].exit()
        one["relay"].exit()
        one["worker"].exit()
        assert first.wait(20) == 0
        down = bytes.fromhex(two["net"]("recv('--switch')"))
        assert down, "the switch lives on"
        second.kill()
        second.wait()


def test_shared_alone():
    """The switch ends with its only sandbox, and leaves its lock and nothing else."""
    with World(real=("cloche-switch",)) as w:
        s = w.start(network="shared")
        w.running()
        w.finish(s)
        d = os.path.join(w.env["XDG_RUNTIME_DIR"], "cloche")
        assert os.listdir(d) == ["switch.lock"], os.listdir(d)


def main():
    global BIN, NETCTL
    BIN, NETCTL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    names = sys.argv[3:]
    failed = 0
    for name, fn in list(globals().items()):
        if not name.startswith("test_") or (names and name not in names):
            continue
        t0 = time.monotonic()
        try:
            fn()
            print(f"ok {name} {time.monotonic() - t0:.1f}s", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
