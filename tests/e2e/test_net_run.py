# SPDX-License-Identifier: Apache-2.0
"""The user's side of the network with a machine: ports, callbacks, CAs of the host, what is said
at the start and at the end, and changes to a session that runs. Everything in a laboratory of
its own (netlab.py): nothing leaves this machine."""
import os
import re
import select
import socket
import time

import netlab
from harness import Skip, wait_until
from schema import assert_valid

LOCKED = ["--network", "isolated", "--egress", "locked"]
SERVER = ("$|=1; $s=IO::Socket::INET->new(Listen=>9,LocalAddr=>q(127.0.0.1),LocalPort=>$ARGV[0],ReuseAddr=>1) or die;"
          "print qq(up\\n); while($c=$s->accept){print $c qq(guest $ARGV[0]\\n); close $c}")


def lab_of(h):
    try:
        return netlab.Lab(h)
    except netlab.Unavailable as e:
        raise Skip(str(e)) from None


def ask(lab, addr, port, family=socket.AF_INET):
    """What a server on the host's loopback says; None: nobody listens."""
    s = lab.host.socket(family)
    s.settimeout(20)
    try:
        s.connect((addr, port))
        out = b""
        while got := s.recv(4096):
            out += got
        return out
    except ConnectionRefusedError:
        return None
    except ConnectionResetError:    # the end of who accepted it
        return out
    finally:
        s.close()


class Session:
    """A run that stays: `ready` is on its output once its servers listen."""

    def __init__(self, h, p, script, flags, ups=1):
        self.h, self.got = h, b""
        self.p = h.start(*h.shell_argv(p, ["sh", "-c", script], flags))
        for _ in range(ups):
            assert self.line() == "up\n", self.h.finish(self.p)
        self.id, = os.listdir(h.sandboxes)

    def line(self, timeout_s=150):
        """One line of output, past the buffer of `stdout`, so that waiting has an end."""
        while b"\n" not in self.got:
            if not select.select([self.p.stdout], [], [], timeout_s)[0]:
                self.h.kill_all()
                raise AssertionError(f"no line in {timeout_s} s\n{self.h.finish(self.p)}")
            more = os.read(self.p.stdout.fileno(), 65536)
            if not more:
                return self.got.decode()
            self.got += more
        line, self.got = self.got.split(b"\n", 1)
        return line.decode() + "\n"

    def ask(self, text):
        self.p.stdin.write(text.encode() + b"\n")
        self.p.stdin.flush()
        return self.line()

    def end(self):
        """Ends the script (it waits for input); the Result."""
        return self.h.finish(self.p, b"\n")


def serve(*ports):
    return "".join(f"perl -MIO::Socket::INET -e '{SERVER}' {n} & " for n in ports)


def test_ports(h):
    """Published on an address of its own; callbacks on localhost, once. No policy is in the way,
    and none is needed: the ports work without any network, too."""
    lab = lab_of(h)
    p = h.project("demo", {})
    for flags in (LOCKED, ["--network", "offline"]):
        s = Session(h, p, serve(8000, 3000, 1455) + "read x", [*flags, "-p", "8080:8000", "-p", "3000", "--callback", "1455"], 3)
        # both are there while it runs; the banner says where at the end
        assert ask(lab, "127.0.0.1", 3000) is None
        assert ask(lab, "127.0.0.1", 1455) == b"guest 1455\n"
        wait_until(lambda: ask(lab, "127.0.0.1", 1455) is None, 10)
        addrs = set(re.findall(r"127\.\d+\.\d+\.\d+:8080\b", lab.run("ss", "-Hltn").stdout.decode()))
        assert len(addrs) == 1, addrs
        addr = addrs.pop().split(":")[0]
        assert 64 <= int(addr.split(".")[1]) < 128, addr
        for _ in range(3):
            assert ask(lab, addr, 8080) == b"guest 8000\n"
        assert ask(lab, addr, 3000) == b"guest 3000\n"
        if flags == LOCKED:     # another sandbox wants the same number at the same time
            r = h.run_shell(p, "true", flags=["--network", "offline", "-p", "3000"])
            assert r.rc == 0, r
        # one more login
        r = h.run("net", "callback", "1455")
        assert r.rc == 0 and "http://localhost:1455" in r.errtext, r
        assert ask(lab, "127.0.0.1", 1455) == b"guest 1455\n"
        wait_until(lambda: ask(lab, "127.0.0.1", 1455) is None, 10)
        r = s.end()
        assert f"http://{addr}:8080 -> guest 8000\n" in r.errtext, r
        assert f"http://{addr}:3000 -> guest 3000\n" in r.errtext, r
        assert "callback http://localhost:1455 -> guest 1455, once" in r.errtext, r
        assert ask(lab, addr, 8080) is None
        h.wait_clean()


test_ports.timeout_s = 600


def test_relay_gone(h):
    """A published port whose relay is gone refuses; nobody waits at a door that is not served."""
    lab = lab_of(h)
    p = h.project("demo", {})
    s = Session(h, p, serve(8000) + "read x", ["--network", "offline", "-p", "8080:8000", "--callback", "1455"])
    addr, = set(re.findall(r"(127\.\d+\.\d+\.\d+):8080\b", lab.run("ss", "-Hltn").stdout.decode()))
    assert ask(lab, addr, 8080) == b"guest 8000\n"
    h.kill_helper("cloche-relay")
    wait_until(lambda: ask(lab, addr, 8080) is None, 10)
    assert ask(lab, "127.0.0.1", 1455) is None
    r = s.end()
    assert "the network is closed (" in r.errtext, r
    h.wait_clean()


def test_publish_localhost(h):
    lab = lab_of(h)
    p = h.project("demo", {})
    s = Session(h, p, serve(3000) + "read x", ["--network", "offline", "-p", "3000", "--publish-localhost"])
    assert ask(lab, "127.0.0.1", 3000) == b"guest 3000\n"
    assert ask(lab, "::1", 3000, socket.AF_INET6) == b"guest 3000\n"
    r = h.run_shell(p, "true", flags=["--network", "offline", "-p", "3000", "--publish-localhost"])
    assert r.rc == 125 and "port 3000 is in use" in r.errtext, r
    r = s.end()
    assert "http://localhost:3000 -> guest 3000\n" in r.errtext, r
    h.wait_clean()


def test_host_ca(h):
    """A CA that was added to the host is good in the guest; not with --no-host-ca."""
    lab = lab_of(h)
    lab.dns.set("a.test", ["203.0.113.10"])
    lab.https("203.0.113.10", ["a.test"])
    p = h.project("demo", {})
    flags = [*LOCKED, "--allow-host", "a.test"]
    script = ("curl -sS https://a.test/x; echo $?; echo $NODE_EXTRA_CA_CERTS; grep -c BEGIN $NODE_EXTRA_CA_CERTS;"
              "stat -c '%a %u' $NODE_EXTRA_CA_CERTS /etc/ssl/certs/ca-certificates.crt;"
              "python3 -c 'import ssl; print(ssl.create_default_context().cert_store_stats()[\"x509_ca\"])'")
    lab.trust_ca()
    r = h.sh(p, script, flags=flags)
    lines = r.text.splitlines()
    assert lines[:2] == ["a.test /x", "0"], r
    assert lines[2:4] == ["/usr/local/share/ca-certificates/cloche-host.crt", "1"], r
    assert lines[4:6] == ["644 0", "644 0"], r
    assert int(lines[6]) > 50, r        # Debian's are still there
    r = h.run("info", "shell", p, *h.accel_flags(), *flags)
    assert "CAs" in r.text and "laboratory.crt" in r.text, r
    j = assert_valid(h.run("info", "shell", p, *h.accel_flags(), *flags, "--json").text, "info")
    assert j["host_ca"] == ["laboratory.crt"], j
    r = h.sh(p, "curl -sS https://a.test/x; echo $?; env", flags=[*flags, "--no-host-ca"])
    assert "a.test /x" not in r.text and "NODE_EXTRA" not in r.text, r
    assert re.search(r"^60$", r.text, re.M), r
    h.wait_clean()


def test_live_changes(h):
    """allow and deny hold at once, in the session's log, in check and in hosts."""
    lab = lab_of(h)
    for name, addr in (("a.test", "203.0.113.10"), ("b.test", "203.0.113.11")):
        lab.dns.set(name, [addr])
        lab.http(addr, name)
    p = h.project("demo", {})
    ask_for = "while read n; do curl -sS -m 20 http://$n/ || echo no $n; done; echo end"
    s = Session(h, p, "echo up; " + ask_for, [*LOCKED, "--allow-host", "a.test:80"])

    get = s.ask
    assert get("a.test") == "a.test /\n"
    assert get("b.test") == "no b.test\n"
    assert lab.dns.names() == ["a.test"], lab.dns.names()
    r = h.run("net", "check", "b.test:80", s.id)
    assert r.rc == 3 and f"cloche net allow b.test:80 {s.id}" in r.text, r
    r = h.run("net", "allow", "b.test:80")
    assert r.rc == 0 and r.errtext == f"{s.id}: b.test:80 is allowed from now on\n", r
    assert h.run("net", "check", "b.test:80", s.id).rc == 0
    assert get("b.test") == "b.test /\n"
    j = assert_valid(h.run("net", "hosts", s.id, "--json").text, "net-hosts")
    assert {(x["host"], x["origin"]) for x in j["egress"]["hosts"]} == {("a.test", "flag"), ("b.test", "live")}, j
    r = h.run("net", "deny", "a.test", s.id)
    assert r.rc == 0, r
    r = h.run("net", "check", "a.test:80", s.id)
    assert r.rc == 3 and "denies it" in r.text, r
    assert get("a.test") == "no a.test\n"
    r = h.run("net", "allow", "*", s.id)
    assert r.rc == 2, r
    follow = h.start("net", "log", "-f", s.id)
    s.p.stdin.close()
    s.p.stdin = None
    assert s.line() == "end\n"
    r = h.finish(s.p)
    log = h.finish(follow, timeout_s=60)
    assert log.rc == 0, log
    assert re.search(r"allowed policy b\.test:80\n", log.text) and re.search(r"refused policy a\.test\n", log.text), log
    assert log.text.splitlines()[-1].split()[1:2] == ["end"], log
    assert re.search(r"refused: \d+ requests to 2 hosts \(.*a\.test", r.errtext), r
    assert h.run("net", "allow", "b.test", s.id).rc == 125
    h.wait_clean()


test_live_changes.timeout_s = 400


def test_what_is_said(h):
    """The banner, the refusals at the end, and a run with what the first one learned."""
    lab = lab_of(h)
    lab.dns.set("a.test", ["203.0.113.10"])
    lab.dns.set("b.test", ["203.0.113.10"])
    lab.http("203.0.113.10", "web")
    lab.http("127.0.0.1", "service", port=8099, where="host")
    p = h.project("demo", {})
    script = ("curl -sS -m 20 http://host.cloche:8099/; curl -s -m 20 http://host.cloche:8100/;"
              "curl -sS -m 20 http://a.test/ && curl -s -m 20 http://b.test/; curl -s -m 20 http://203.0.113.10:81/;"
              "getent hosts statsig.test; true")
    r = h.sh(p, script, flags=[*LOCKED, "--allow-host", "a.test:80", "--host-service", "8099"])
    assert r.rc == 0 and r.text == "service /\nweb /\n", r
    assert "network isolated, locked: a.test   keys: none\n" in r.errtext, r
    assert ("refused: 4 requests to 4 hosts (10.87.0.2 1, 203.0.113.10 1, b.test 1, statsig.test 1)"
            "   cloche net log --denied\n") in r.errtext, r
    denied = h.run("net", "log", "--denied").text
    assert "b.test (name)" in denied and "203.0.113.10 port 81" in denied, denied
    learned = h.run("net", "learn").text
    flags = re.search(r"^(--egress .*)$", learned, re.M)[1].split()
    assert flags == ["--egress", "locked", "--allow-host", "a.test:80"], learned
    assert "# used too: --host-service 8099\n" in learned, learned
    assert "#   - b.test # name, 1 time\n" in learned and "#   - statsig.test # name, 1 time\n" in learned, learned
    r = h.sh(p, "curl -sS -m 20 http://a.test/", flags=["--network", "isolated", *flags, "-q"])
    assert r.rc == 0 and r.text == "web /\n" and "refused" not in r.errtext, r
    # permissive says so, every time; closed stays closed
    r = h.sh(p, "curl -sS -m 20 http://b.test/; curl -sS -m 5 http://10.9.0.1/",
             flags=["--network", "isolated", "--egress", "permissive", "--allow-host", "b.test"])
    assert r.text == "web /\n", r
    assert "isolated, PERMISSIVE: every host" in r.errtext and "the network is PERMISSIVE" in r.errtext, r
    assert "--allow-host has no effect" in r.errtext, r
    assert "refused: 1 request to 1 host (10.9.0.1 1)" in r.errtext, r
    h.wait_clean()


test_what_is_said.timeout_s = 400


def test_as_an_ordinary_user(h):
    h.as_user()
    lab = lab_of(h)
    lab.dns.set("a.test", ["203.0.113.10"])
    lab.https("203.0.113.10", ["a.test"])
    lab.trust_ca()
    lab.give(lab.cas)
    p = h.project("demo", {})
    s = Session(h, p, serve(3000) + "curl -sS https://a.test/; read x",
                [*LOCKED, "--allow-host", "a.test", "-p", "3000"])
    assert s.line() == "a.test /\n"
    addr = re.search(r"(127\.\d+\.\d+\.\d+):3000", lab.run("ss", "-Hltn").stdout.decode())[1]
    assert ask(lab, addr, 3000) == b"guest 3000\n"
    assert h.run("net", "check", "a.test", s.id).rc == 0
    s.end()
    t0 = time.monotonic()
    h.wait_clean()
    assert time.monotonic() - t0 < 10
