# SPDX-License-Identifier: Apache-2.0
"""The network laboratory: its servers answer, its log is whole, and nothing of it is left."""
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
import harness  # noqa: E402
import netlab  # noqa: E402

# a client for one question; dig is no dependency
ASK = """
import socket, struct, sys
def name(n): return b"".join(bytes([len(x)]) + x.encode() for x in n.split(".")) + b"\\0"
q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + name(sys.argv[1]) + struct.pack(">HH", 1, 1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)
s.sendto(q, ("203.0.113.53", 53)); a = s.recv(4096)
if a[2] & 2:
    t = socket.create_connection(("203.0.113.53", 53), 3); t.sendall(struct.pack(">H", len(q)) + q)
    a = t.recv(2, socket.MSG_WAITALL); a = t.recv(struct.unpack(">H", a)[0], socket.MSG_WAITALL)
print(a[3] & 15, struct.unpack_from(">H", a, 6)[0])
"""


def with_lab(f):
    """As the user who runs this, and as an ordinary one when that is root."""
    def test(tmp):
        users = [None]
        if os.geteuid() == 0:
            name = os.environ.get("CLOCHE_TEST_USER")
            users.append(pwd.getpwnam(name) if name else pwd.getpwnam("nobody"))
            os.chmod(tmp, 0o755)
        for i, user in enumerate(users):
            sub = os.path.join(tmp, str(i))
            os.mkdir(sub, 0o755)
            try:
                lab = netlab.Lab(tmp=sub, user=user)
            except netlab.Unavailable as e:
                print(f"skipped {f.__name__[5:]} {'as ' + user.pw_name if user else ''}: {e}")
                continue
            pids = [lab.host.pid, lab.world.pid]
            try:
                f(lab)
            finally:
                lab.close()
            assert not any(harness.proc_stat(p) for p in pids), pids
    return test


@with_lab
def test_host_is_alone(lab):
    routes = lab.run("ip", "route").stdout.decode()
    assert "default" not in routes and "192.0.2.0/24 dev lab0" in routes, routes
    addrs = lab.run("ip", "-br", "addr").stdout.decode().split()
    assert set(x for x in addrs if "." in x) == {"127.0.0.1/8", "192.0.2.2/24"}, addrs
    me = os.geteuid() if not lab.user else lab.user.pw_uid
    assert lab.run("id", "-u").stdout.decode().strip() == str(me)
    lab.resolv_conf("nameserver 198.51.100.53\n")
    assert lab.run("cat", "/etc/resolv.conf").stdout == b"nameserver 198.51.100.53\n"
    with open("/etc/resolv.conf", "rb") as f:
        assert b"198.51.100.53" not in f.read()


@with_lab
def test_servers(lab):
    lab.dns.set("many.test", [f"203.0.113.{i}" for i in range(60, 80)])
    lab.dns.set("chain.test", cname="end.test")
    lab.dns.set("end.test", ["203.0.113.7"], extra=[("other.test", "10.9.0.1")])
    lab.dns.set("cut.test", ["203.0.113.7"], truncate=True)
    lab.dns.set("bad.test", rcode=2)
    for name, want in (("many.test", "0 20"), ("chain.test", "0 2"), ("end.test", "0 2"),
                       ("cut.test", "0 1"), ("bad.test", "2 0"), ("none.test", "3 0")):
        got = lab.run("/usr/bin/python3", "-c", ASK, name).stdout.decode().strip()
        assert got == want, (name, got)
    assert [q.proto for q in lab.dns.log if q.name == "cut.test"] == ["udp", "tcp"]

    web = lab.https("203.0.113.10", ["a.test", "b.test"])
    plain = lab.http("10.9.0.80", "inside")
    curl = ["curl", "-sS", "--max-time", "10"]
    for n in "ab":
        r = lab.run(*curl, "--cacert", lab.ca, "--resolve", f"{n}.test:443:203.0.113.10", f"https://{n}.test/x{n}")
        assert r.stdout == f"a.test /x{n}\n".encode(), r
    assert [c.sni for c in web.log] == ["a.test", "b.test"] and b"a.test" in web.log[0].hello
    assert web.requests() == [("a.test", "/xa"), ("b.test", "/xb")]
    r = lab.run(*curl, "http://10.9.0.80/one", "http://10.9.0.80/two", "-d", "CANARY-4711")
    assert r.stdout == b"inside /one\ninside /two\n", r
    assert len(plain.log) == 1 and plain.log[0].requests[1][1] == b"CANARY-4711"
    harness.wait_until(lambda: lab.arrived(b"CANARY-4711"))
    assert not lab.arrived(b"CANARY-4712")
    assert ("tcp", "10.9.0.80", 80) in lab.seen() and ("udp", "203.0.113.53", 53) in lab.seen()
    lab.run("bash", "-c", "exec 3<>/dev/tcp/198.51.100.9/25")
    assert ("tcp", "198.51.100.9", 25) in lab.seen()


@with_lab
def test_git_and_echo(lab):
    root = os.path.join(lab.tmp, "repos")
    subprocess.run(["git", "init", "-q", "--bare", f"{root}/r.git"], check=True)
    lab.https("203.0.113.11", ["git.test"], git_root=root)
    lab.hosts("203.0.113.11 git.test\n")
    r = lab.run("git", "ls-remote", "https://git.test/git/r.git",
                env={"PATH": os.environ["PATH"], "GIT_SSL_CAINFO": lab.ca})
    assert r.returncode == 0, r
    echo, udp = lab.echo("203.0.113.12", 7000, banner=b"hi\n"), netlab.UdpEcho(lab, "203.0.113.12", 7001)
    r = lab.run("bash", "-c", "exec 3<>/dev/tcp/203.0.113.12/7000; echo abc >&3; head -n2 <&3")
    assert r.stdout == b"hi\nabc\n" and echo.bytes() == b"abc\n", r
    r = lab.run("bash", "-c", "exec 3<>/dev/udp/203.0.113.12/7001; echo abc >&3; head -n1 <&3")
    assert r.stdout == b"abc\n" and udp.log[0][1] == b"abc\n", r
    if netlab.Ssh.available():
        ssh = netlab.Ssh(lab, "203.0.113.13", 22)
        lab.hosts("203.0.113.13 git.test\n")
        known = os.path.join(lab.tmp, "known")
        with open(known, "w", encoding="ascii") as f:
            f.write(f"git.test {ssh.host_key()}\n")
        words = f"ssh -i {ssh.key} -oUserKnownHostsFile={known} -oBatchMode=yes -F/dev/null"
        r = lab.run("git", "ls-remote", f"ssh://git@git.test{root}/r.git",
                    env={"PATH": os.environ["PATH"], "GIT_SSH_COMMAND": words})
        assert r.returncode == 0, r


def test_gone_with_its_test(tmp):
    """A test that is killed leaves no namespace: the processes that hold them end."""
    code = ("import sys, time; sys.path.insert(0, sys.argv[1]); import netlab\n"
            "try: l = netlab.Lab(tmp=sys.argv[2])\n"
            "except netlab.Unavailable: print('none', flush=True); sys.exit()\n"
            "print(l.host.pid, l.world.pid, flush=True); time.sleep(60)")
    p = subprocess.Popen([sys.executable, "-c", code, os.path.join(mini.ROOT, "tests", "lib"), tmp],
                         stdout=subprocess.PIPE)
    line = p.stdout.readline().split()
    p.send_signal(signal.SIGKILL)
    p.wait()
    p.stdout.close()
    for pid in line if line != [b"none"] else []:
        harness.wait_until(lambda pid=pid: (harness.proc_stat(int(pid)) or "ZZ")[1] == "Z", 10)


if shutil.which("ip") and shutil.which("openssl"):
    mini.main(globals())
print("skipped: no iproute2 or openssl")
