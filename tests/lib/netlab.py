# SPDX-License-Identifier: Apache-2.0
"""A network laboratory: two network namespaces, joined by a veth pair.

    host     where `cloche` runs. It has 192.0.2.2, no default route, and routes to
             the ranges below only: nothing of the real network is in it. It has an
             /etc of its own (resolv.conf, hosts) and its own added CAs.
    world    where the servers are. Every address of these ranges is its own:
             203.0.113.0/24 and 198.51.100.0/24 (open ones), 10.9.0.0/16, 172.16.9.0/24,
             192.168.7.0/24, 100.64.9.0/24, 169.254.169.254 (closed in every profile),
             2001:db8::/32. What must not arrive would arrive, were it sent.

The servers are threads of the test, each with a `log`; their sockets are made in the
namespaces and handed over. `lab.packets` has every packet that came from the host.

    lab = netlab.Lab(h)                 # closed by h.close()
    lab.dns.set("a.test", ["203.0.113.10"])
    web = lab.https("203.0.113.10", ["a.test"])
    r = h.sh(p, "curl -s https://a.test/", flags=["--allow-host", "a.test"])
    assert lab.dns.names() == ["a.test"] and web.log[0].sni == "a.test"

Works for root and for an ordinary user (then in a user namespace that maps the one
uid, so that `cloche` sees itself as that user). It lives as long as two processes
that end when the test's end of a socket closes, however that comes about.
Standard library, iproute2, util-linux and openssl; git and dropbear for their servers.
"""
import collections
import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

HOST_ADDR, WORLD_ADDR = "192.0.2.2", "192.0.2.1"
DNS_ADDR = "203.0.113.53"
OPEN_NETS = ("203.0.113.0/24", "198.51.100.0/24")
CLOSED_NETS = ("10.9.0.0/16", "172.16.9.0/24", "192.168.7.0/24", "100.64.9.0/24", "169.254.169.254/32")
HOST6, WORLD6, NET6 = "2001:db8:0:1::2", "2001:db8:0:1::1", "2001:db8::/32"
PACKETS_BYTES_MAX, CONN_BYTES_MAX = 256 << 20, 64 << 20
A, NS, CNAME, SOA, TXT, AAAA, HTTPS = 1, 2, 5, 6, 16, 28, 65


class Unavailable(Exception):
    """Namespaces cannot be made here; the text says why."""


# --- the processes that hold the namespaces -----------------------------------

def _anchor(fd, world_fd, etc, cas):
    """In a fresh namespace: makes sockets and runs commands for the test, until it is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)    # PR_SET_PDEATHSIG
    ctl, world = socket.socket(fileno=fd), None
    if world_fd is not None:
        world = subprocess.Popen(["unshare", "-n", sys.executable, __file__, "anchor", str(world_fd)],
                                 pass_fds=[world_fd])
        os.close(world_fd)
        subprocess.run(["mount", "--bind", etc, "/etc"], check=True)
        if os.path.isdir("/usr/local/share/ca-certificates"):
            subprocess.run(["mount", "--bind", cas, "/usr/local/share/ca-certificates"], check=True)
        ctl.sendall(struct.pack("<I", world.pid))
    while True:
        head = ctl.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            break
        op = json.loads(ctl.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))
        fds, answer = [], {}
        try:
            if "run" in op:
                p = subprocess.run(op["run"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, check=False)
                answer = {"rc": p.returncode, "out": p.stdout.decode(errors="replace")}
            else:
                s = socket.socket(op["family"], op["type"], op["proto"])
                for level, name, value in op["options"]:
                    s.setsockopt(level, name, value)
                if op["bind"]:
                    s.bind(tuple(op["bind"]))
                if op["type"] == socket.SOCK_STREAM and op["bind"]:
                    s.listen(512)
                fds = [s.detach()]
        except OSError as e:
            answer = {"error": str(e)}
        text = json.dumps(answer).encode()
        socket.send_fds(ctl, [struct.pack("<I", len(text)) + text], fds)
        for f in fds:
            os.close(f)
    if world:
        world.wait()        # its socket was closed, too


class Anchor:
    """The test's end of one of them."""

    def __init__(self, ctl):
        self.ctl, self.lock, self.pid = ctl, threading.Lock(), 0

    def _ask(self, op):
        text = json.dumps(op).encode()
        with self.lock:
            self.ctl.sendall(struct.pack("<I", len(text)) + text)
            head, fds, _, _ = socket.recv_fds(self.ctl, 4, 1)
            if len(head) < 4:
                raise AssertionError("the namespace's process is gone")
            answer = json.loads(self.ctl.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))
        if "error" in answer:
            raise OSError(f"{op}: {answer['error']}")
        return answer, fds

    def run(self, *argv, check=True):
        """A command in the namespace; its output."""
        answer, _ = self._ask({"run": argv})
        if check and answer["rc"]:
            raise AssertionError(f"{argv}: exit {answer['rc']}: {answer['out']}")
        return answer["out"]

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM, bind=None, proto=0, options=()):
        """A socket of the namespace; a stream socket that is bound listens."""
        _, fds = self._ask({"family": family, "type": kind, "proto": proto, "bind": bind,
                            "options": [list(o) for o in options]})
        return socket.socket(family, kind, proto, fileno=fds[0])


# --- DNS -----------------------------------------------------------------------

Query = collections.namedtuple("Query", "name qtype proto at")


def dns_name(name):
    return b"".join(bytes([len(x)]) + x.encode("latin-1") for x in name.split(".") if x) + b"\0"


def dns_record(name, kind, ttl, data):
    return dns_name(name) + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data


def dns_parse_question(msg):
    """(id, name, qtype) of the first question."""
    ident, _, _ = struct.unpack_from(">HHH", msg)
    at, labels = 12, []
    while msg[at]:
        labels.append(msg[at + 1:at + 1 + msg[at]].decode("latin-1"))
        at += 1 + msg[at]
    return ident, ".".join(labels).lower(), struct.unpack_from(">H", msg, at + 1)[0], msg[12:at + 5]


class Dns:
    """An authoritative server for what set() told it; NXDOMAIN for the rest. UDP and TCP.

    A name answers with its addresses, or by a chain of `cname`s to them. `extra` are
    (owner, address) records that nobody asked for; `truncate` cuts every UDP answer, so that
    only TCP helps; `rcode` answers an error; `silent` not at all. `script` is called with the
    number of earlier A questions for the name, and returns the addresses. `dead` silences all."""

    def __init__(self, lab, addr=DNS_ADDR, where="world"):
        self.zone, self.log, self.dead = {}, [], False
        ns = getattr(lab, where)
        self.udp = ns.socket(kind=socket.SOCK_DGRAM, bind=(addr, 53))
        self.tcp = ns.socket(bind=(addr, 53), options=[(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)])
        lab.thread(self._udp, self.udp)
        lab.thread(self._tcp, self.tcp)

    def set(self, name, addrs=(), ttl=300, cname=None, extra=(), rcode=0, silent=False, truncate=False,
            script=None, raw=(), delay_s=0.0):
        self.zone[name.lower()] = {"addrs": list(addrs), "ttl": ttl, "cname": cname, "extra": extra,
                                   "rcode": rcode, "silent": silent, "truncate": truncate,
                                   "script": script, "asked": 0, "raw": raw, "delay_s": delay_s}

    def names(self):
        """What was asked for, each name once, in the order of the first question."""
        return list(dict.fromkeys(q.name for q in self.log))

    def answer(self, msg, proto):
        ident, name, qtype, question = dns_parse_question(msg)
        self.log.append(Query(name, qtype, proto, time.monotonic()))
        z = self.zone.get(name)
        if self.dead or (z and z["silent"]):
            return None
        if z and z["delay_s"]:
            time.sleep(z["delay_s"])
        head = lambda flags, n: struct.pack(">HHHHHH", ident, 0x8180 | flags, 1, n, 0, 0) + question
        if z is None:
            return head(3, 0)
        if z["rcode"]:
            return head(z["rcode"], 0)
        if z["truncate"] and proto == "udp":
            return head(0x0200, 0)
        records, owner = [], name
        for _ in range(30):
            if not z["cname"]:
                break
            records.append(dns_record(owner, CNAME, z["ttl"], dns_name(z["cname"])))
            owner = z["cname"].lower()
            if owner not in self.zone:
                break
            z = self.zone[owner]
        if owner in self.zone and qtype == A:
            addrs = z["script"](z["asked"]) if z["script"] else z["addrs"]
            z["asked"] += 1
            records += [dns_record(owner, A, z["ttl"], socket.inet_aton(a)) for a in addrs]
        records += [dns_record(owner, kind, z["ttl"], data) for kind, data in z["raw"] if kind == qtype]
        for who, addr in self.zone[name]["extra"]:
            records.append(dns_record(who, A, 300, socket.inet_aton(addr)))
        out = head(0, len(records)) + b"".join(records)
        if proto == "udp" and len(out) > 1232:
            return head(0x0200, 0)
        return out

    def _udp(self, s):
        while True:
            msg, peer = s.recvfrom(4096)
            if peer is None:
                return
            try:
                out = self.answer(msg, "udp")
            except (IndexError, struct.error):
                continue
            if out:
                s.sendto(out, peer)

    def _tcp(self, s):
        while True:
            c, _ = s.accept()
            threading.Thread(target=self._tcp_one, args=(c,), daemon=True).start()

    def _tcp_one(self, c):
        with c:
            try:
                while True:
                    n = c.recv(2, socket.MSG_WAITALL)
                    if len(n) < 2:
                        return
                    out = self.answer(c.recv(struct.unpack(">H", n)[0], socket.MSG_WAITALL), "tcp")
                    if out is None:
                        time.sleep(5)
                        return
                    c.sendall(struct.pack(">H", len(out)) + out)
            except (OSError, IndexError, struct.error):
                pass


# --- TCP servers -----------------------------------------------------------------

class Conn:
    """One connection as its server saw it."""

    def __init__(self, sock, peer):
        self.sock, self.peer = sock, peer
        self.data = bytearray()     # every byte, in order (of TLS: decrypted)
        self.hello = b""            # TLS: the first bytes as they came
        self.sni = None
        self.requests = []          # HTTP: (head, body) of each, verbatim
        self.error = None
        self.ended = False

    def recv(self, n=65536):
        got = self.sock.recv(n)
        self.data += got
        if len(self.data) > CONN_BYTES_MAX:
            raise OSError("more than a test sends")
        return got


class Server:
    """`log` has a Conn for every connection, in order."""

    def __init__(self, lab, addr, port, where="world"):
        self.lab, self.addr, self.port, self.log = lab, addr, port, []
        family = socket.AF_INET6 if ":" in addr else socket.AF_INET
        self.sock = getattr(lab, where).socket(
            family, bind=(addr, port), options=[(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)])
        lab.thread(self._accept, self.sock)

    def _accept(self, listener):
        while True:
            sock, peer = listener.accept()
            c = Conn(sock, peer)
            self.log.append(c)
            threading.Thread(target=self._one, args=(c,), daemon=True).start()

    def _one(self, c):
        try:
            self.serve(c)
        except (OSError, ValueError) as e:
            c.error = str(e)
        finally:
            c.ended = True
            c.sock.close()

    def serve(self, c):
        raise NotImplementedError

    def bytes(self):
        """All that came, of all connections."""
        return b"".join(bytes(c.hello) + bytes(c.data) for c in self.log)


class Echo(Server):
    """Sends back what comes, and keeps it; `banner` is said first; `quiet` sends nothing back."""

    def __init__(self, lab, addr, port, banner=b"", quiet=False, where="world"):
        self.banner, self.quiet = banner, quiet
        super().__init__(lab, addr, port, where)

    def serve(self, c):
        if self.banner:
            c.sock.sendall(self.banner)
        while got := c.recv():
            if not self.quiet:
                c.sock.sendall(got)
        c.sock.shutdown(socket.SHUT_WR)


class Http(Server):
    """HTTP/1.1 with keep-alive, over TLS when it has names for a certificate.

    Answers "NAME PATH\\n", NAME being `label`, or what answer(c, method, path, body) returns:
    (status, headers, body) or None. /bytes/N gives N bytes, /git/... is git http-backend over
    `git_root`. A /dns-query is answered as DNS over HTTPS by the lab's server."""

    def __init__(self, lab, addr, port, label, names=(), answer=None, git_root=None, where="world"):
        self.label, self.answer, self.git_root = label, answer, git_root
        self.context = None
        if names:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*lab.cert(*names))
        super().__init__(lab, addr, port, where)

    def requests(self):
        """(host, path) of every request, in order."""
        out = []
        for c in list(self.log):
            for head, _ in c.requests:
                first, *rest = head.decode("latin-1").split("\r\n")
                host = [x.split(":", 1)[1].strip() for x in rest if x.lower().startswith("host:")]
                out.append((host[0] if host else "", first.split()[1]))
        return out

    def serve(self, c):
        c.sock.settimeout(60)
        if self.context:
            raw = c.sock
            c.hello = raw.recv(65536, socket.MSG_PEEK)
            self.context.sni_callback = None
            context = self.context

            def remember(sock, name, _context):
                sock.cloche_sni = name
            context.sni_callback = remember
            c.sock = context.wrap_socket(raw, server_side=True)
            c.sni = getattr(c.sock, "cloche_sni", None)
        buf = b""
        while True:
            while b"\r\n\r\n" not in buf:
                got = c.recv()
                if not got:
                    return
                buf += got
            head, buf = buf.split(b"\r\n\r\n", 1)
            fields = {k.strip().lower(): v.strip() for k, _, v in
                      (x.partition(":") for x in head.decode("latin-1").split("\r\n")[1:])}
            method, path, _ = (head.decode("latin-1").split("\r\n")[0] + "  ").split(" ", 2)
            if fields.get("expect"):
                c.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body, buf = self._body(c, fields, buf)
            c.requests.append((head, body))
            status, headers, out = self._answer(c, method, path, body, fields)
            c.sock.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(out)}\r\n".encode() +
                           "".join(f"{k}: {v}\r\n" for k, v in headers).encode() + b"\r\n" +
                           (b"" if method == "HEAD" else out))
            if fields.get("connection", "").lower() == "close":
                return

    @staticmethod
    def _body(c, fields, buf):
        if fields.get("transfer-encoding", "").lower() == "chunked":
            out = b""
            while True:
                while b"\r\n" not in buf:
                    buf += c.recv() or b"0\r\n\r\n"
                size, buf = buf.split(b"\r\n", 1)
                n = int(size.split(b";")[0], 16)
                while len(buf) < n + 2:
                    got = c.recv()
                    if not got:
                        raise OSError("cut in a chunk")
                    buf += got
                out, buf = out + buf[:n], buf[n + 2:]
                if n == 0:
                    return out, buf
        n = int(fields.get("content-length", "0") or 0)
        while len(buf) < n:
            got = c.recv()
            if not got:
                raise OSError("cut in the body")
            buf += got
        return buf[:n], buf[n:]

    def _answer(self, c, method, path, body, fields):
        got = self.answer and self.answer(c, method, path, body)
        if got:
            return got
        if path.startswith("/bytes/"):
            return "200 OK", [], b"x" * int(path.split("/")[2])
        if path.startswith("/dns-query") and body:
            return "200 OK", [("Content-Type", "application/dns-message")], \
                self.lab.dns.answer(body, "https") or b""
        if path.startswith("/git/") and self.git_root:
            return self._git(method, path[4:], body, fields)
        return "200 OK", [("Content-Type", "text/plain")], f"{self.label} {path}\n".encode()

    def _git(self, method, path, body, fields):
        path, _, query = path.partition("?")
        env = {"PATH": "/usr/bin:/bin", "GIT_PROJECT_ROOT": self.git_root, "GIT_HTTP_EXPORT_ALL": "1",
               "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query,
               "REMOTE_USER": "git", "REMOTE_ADDR": HOST_ADDR, "HOME": self.lab.tmp,
               "CONTENT_TYPE": fields.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
               "HTTP_CONTENT_ENCODING": fields.get("content-encoding", ""),
               "GIT_PROTOCOL": fields.get("git-protocol", ""), "GIT_CONFIG_COUNT": "1",
               "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        p = subprocess.run(["git", "http-backend"], env=env, input=body, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, check=False)
        head, _, out = p.stdout.partition(b"\r\n\r\n")
        headers = [tuple(x.split(": ", 1)) for x in head.decode().split("\r\n") if ": " in x]
        status = dict(headers).get("Status", "200 OK")
        return status, [x for x in headers if x[0] != "Status"], out


class Proxy(Server):
    """An HTTP proxy that does what it is asked: CONNECT, and GET with a whole URL. `asked` has them."""

    def __init__(self, lab, addr, port, where="world"):
        self.asked = []
        super().__init__(lab, addr, port, where)

    def serve(self, c):
        head = b""
        while b"\r\n\r\n" not in head:
            got = c.recv()
            if not got:
                return
            head += got
        method, target, _ = head.decode("latin-1").split(" ", 2)
        self.asked.append((method, target))
        if method != "CONNECT":
            c.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nproxy\n")
            return
        c.sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        while got := c.recv():
            c.sock.sendall(got)


class Ssh(Server):
    """An SSH server for the user "git" of the laboratory's /etc/passwd, with one key (`key`);
    `command` replaces what is asked for. dropbear, as installing it starts no service."""

    def __init__(self, lab, addr, port, command=None, where="world"):
        self.key, self.host_key_file = os.path.join(lab.tmp, "ssh.key"), os.path.join(lab.tmp, "ssh.host")
        if not os.path.exists(self.key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", self.key], check=True)
            subprocess.run(["dropbearkey", "-t", "ed25519", "-f", self.host_key_file], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            home = os.path.join(lab.tmp, "home")
            os.makedirs(os.path.join(home, ".ssh"), 0o700)
            os.rename(self.key + ".pub", os.path.join(home, ".ssh", "authorized_keys"))
            uid = lab.user.pw_uid if lab.user else os.geteuid()
            with open(os.path.join(lab.etc, "passwd"), "a", encoding="ascii") as f:
                f.write(f"git:x:{uid}:{lab.user.pw_gid if lab.user else os.getegid()}::{home}:/bin/sh\n")
            lab.give(home, self.host_key_file, self.key)
        # not in the PATH of an ordinary user
        self.argv = [*lab.enter(where), "/usr/sbin/dropbear", "-i", "-s", "-j", "-k", "-r", self.host_key_file,
                     *(["-c", command] if command else [])]
        super().__init__(lab, addr, port, where)

    @staticmethod
    def available():
        return shutil.which("dropbear", path="/usr/sbin:/usr/bin") is not None

    def host_key(self):
        """As known_hosts has it, behind the name."""
        out = subprocess.run(["dropbearkey", "-y", "-f", self.host_key_file], check=True, capture_output=True, text=True)
        return next(" ".join(x.split()[:2]) for x in out.stdout.splitlines() if x.startswith("ssh-"))

    def serve(self, c):
        with open(os.path.join(self.lab.tmp, "ssh.log"), "ab") as log:
            p = subprocess.Popen(self.argv, stdin=c.sock, stdout=c.sock, stderr=log, preexec_fn=self.lab._become)
        self.lab.procs.append(p)
        c.sock.close()
        p.wait()


class UdpEcho:
    """`log` has (peer, datagram)."""

    def __init__(self, lab, addr, port, where="world"):
        self.log = []
        self.sock = getattr(lab, where).socket(kind=socket.SOCK_DGRAM, bind=(addr, port))
        lab.thread(self._run, self.sock)

    def _run(self, s):
        while True:
            data, peer = s.recvfrom(65536)
            if peer is None:
                return      # shut down
            self.log.append((peer, data))
            s.sendto(data, peer)


# --- the laboratory ---------------------------------------------------------------

class Lab:
    """@h: a Harness, whose `cloche` runs in the host namespace from now on, or None with @tmp
    and, as root, the @user (of pwd) to be. Without @sniff there are no `packets`."""

    def __init__(self, h=None, tmp=None, user=None, sniff=True):
        self.h, self.tmp = h, os.path.join(h.tmp, "lab") if h else os.path.join(tmp, "lab")
        self.user = h.user if h else user
        self.root = os.geteuid() == 0 and not self.user
        self.procs, self.socks, self.packets, self.packets_lost = [], [], [], not sniff
        self._certs, self._packet_bytes, self.closed = {}, 0, False
        os.mkdir(self.tmp, 0o755)
        self._files()
        self._anchors()
        try:
            self._wire()
            self.dns = Dns(self)
        except BaseException:
            self.close()
            raise
        if h:
            h.prefix = self.enter("host")
            h.keep |= {self.host.pid, self.world.pid}
            h.closers.append(self.close)

    # setting up

    def _files(self):
        self.etc, self.cas = os.path.join(self.tmp, "etc"), os.path.join(self.tmp, "cas")
        os.mkdir(self.cas, 0o755)
        # a copy, so that resolv.conf can be replaced as a resolver's client does it: by a rename
        subprocess.run(["cp", "-a", "--no-preserve=ownership", "/etc", self.etc], check=False,
                       stderr=subprocess.DEVNULL)   # what an ordinary user cannot read stays away
        for name in ("resolv.conf", "hosts"):
            path = os.path.join(self.etc, name)
            if os.path.lexists(path):
                os.unlink(path)
        self.resolv_conf(f"nameserver {DNS_ADDR}\noptions timeout:1 attempts:2\n")
        self.hosts("127.0.0.1 localhost\n")
        self.give(self.etc, self.cas)

    def give(self, *paths):
        """To the laboratory's user."""
        if self.user:
            subprocess.run(["chown", "-hR", f"{self.user.pw_uid}:{self.user.pw_gid}", *paths], check=True)

    def _anchors(self):
        # what another user may read, too
        program = os.path.join(self.tmp, "netlab.py")
        shutil.copy(os.path.abspath(__file__), program)
        os.chmod(program, 0o644)
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        argv = ["unshare", "-n", "-m"]
        if not self.root:
            argv += ["-U", "--map-current-user", "--keep-caps"]
        host, host_end = socket.socketpair()
        world, world_end = socket.socketpair()
        # its standard error: why namespaces cannot be had here
        with open(os.path.join(self.tmp, "anchor.err"), "w+b") as err:
            p = subprocess.Popen(
                [*argv, python, program, "anchor", str(host_end.fileno()), str(world_end.fileno()),
                 self.etc, self.cas],
                pass_fds=[host_end.fileno(), world_end.fileno()], preexec_fn=self._become,
                stdin=subprocess.DEVNULL, stdout=err, stderr=err)
            host_end.close()
            world_end.close()
            self.host, self.world = Anchor(host), Anchor(world)
            self.host.pid, self._anchor = p.pid, p
            pid = host.recv(4, socket.MSG_WAITALL)
            if len(pid) < 4:
                p.wait()
                host.close()
                world.close()
                err.seek(0)
                raise Unavailable("no network namespaces here: " +
                                  err.read().decode(errors="replace").strip()[-300:])
            self.world.pid = struct.unpack("<I", pid)[0]

    def _become(self):
        """In a child: the lab's user."""
        if self.user:
            os.setgroups([])
            os.setresgid(self.user.pw_gid, self.user.pw_gid, self.user.pw_gid)
            os.setresuid(self.user.pw_uid, self.user.pw_uid, self.user.pw_uid)

    def _wire(self):
        h, w = self.host.run, self.world.run
        w("true")           # it is in its namespace once it answers
        h("ip", "link", "set", "lo", "up")
        w("ip", "link", "set", "lo", "up")
        h("ip", "link", "add", "lab0", "type", "veth", "peer", "name", "lab1")
        h("ip", "link", "set", "lab1", "netns", str(self.world.pid))
        for run, name, addr, addr6 in ((h, "lab0", HOST_ADDR, HOST6), (w, "lab1", WORLD_ADDR, WORLD6)):
            run("ip", "addr", "add", f"{addr}/24", "dev", name)
            run("ip", "link", "set", name, "up")
            run("ip", "-6", "addr", "add", f"{addr6}/64", "dev", name, "nodad", check=False)
        for net in OPEN_NETS + CLOSED_NETS:
            w("ip", "route", "add", "local", net, "dev", "lo")
            h("ip", "route", "add", net, "via", WORLD_ADDR)
        w("ip", "-6", "route", "add", "local", NET6, "dev", "lo", check=False)
        h("ip", "-6", "route", "add", NET6, "via", WORLD6, check=False)
        if not self.packets_lost:
            self.thread(self._sniff, self.world.socket(socket.AF_PACKET, socket.SOCK_RAW, proto=socket.htons(3)))

    def thread(self, fn, sock):
        """A server's thread over one socket: ends with the lab, quietly."""
        def run():
            try:
                fn(sock)
            except OSError:
                if not self.closed and sock in self.socks:
                    raise
        self.socks.append(sock)
        threading.Thread(target=run, daemon=True).start()

    def forget(self, sock):
        """End the server of that socket."""
        self.socks.remove(sock)
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass            # of datagrams; it wakes who waits in it all the same
        sock.close()

    def _sniff(self, s):
        while True:
            data, where = s.recvfrom(65600)
            if where is None:
                return          # shut down
            if where[0] != "lab1" or where[2] == 4:     # 4: PACKET_OUTGOING
                continue
            self._packet_bytes += len(data)
            if self._packet_bytes > PACKETS_BYTES_MAX:
                self.packets_lost = True
                continue
            self.packets.append(data)

    def close(self):
        if self.closed:
            return
        self.closed = True
        if self.h:
            self.h.prefix = []
        for p in self.procs:
            if p.poll() is None:
                p.kill()
            p.wait()
        try:
            self.world.run("ip", "link", "del", "lab1", check=False)    # wakes who listens on it
        except (OSError, AssertionError):
            pass            # it was killed
        for s in self.socks:
            try:
                s.shutdown(socket.SHUT_RDWR)    # wakes who waits in it; close() alone does not
            except OSError:
                pass
            s.close()
        self.host.ctl.close()
        self.world.ctl.close()
        try:
            self._anchor.wait(10)
        except subprocess.TimeoutExpired:
            self._anchor.kill()
            self._anchor.wait()

    # for tests

    def enter(self, where):
        """Words before a command that make it run there, with the same process id and user."""
        pid = getattr(self, where).pid
        # the mounts are the host's for both
        argv = ["nsenter", f"--net=/proc/{pid}/ns/net", f"--mount=/proc/{self.host.pid}/ns/mnt"]
        if not self.root:
            argv += [f"--user=/proc/{self.host.pid}/ns/user", "--preserve-credentials"]
        return [*argv, "--"]

    def run(self, *argv, where="host", **kw):
        """A command there, to its end, as subprocess.run() has it."""
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("timeout", 60)
        return subprocess.run([*self.enter(where), *argv], check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, preexec_fn=self._become, **kw)

    def _etc_file(self, name, text, rename):
        path = os.path.join(self.etc, name)
        out = path + ".new" if rename else path
        with open(out, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(out, 0o644)
        if rename:
            os.rename(out, path)

    def resolv_conf(self, text, rename=True):
        """The host's new /etc/resolv.conf, put there by a rename, or written into the old one."""
        self._etc_file("resolv.conf", text, rename)

    def hosts(self, text, rename=True):
        self._etc_file("hosts", text, rename)

    @property
    def ca(self):
        """The laboratory's CA: path of its certificate."""
        path = os.path.join(self.tmp, "ca.crt")
        if not os.path.exists(path):
            self._openssl("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                          "-keyout", os.path.join(self.tmp, "ca.key"), "-out", path, "-days", "30",
                          "-subj", "/CN=cloche test laboratory", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
            os.chmod(path, 0o644)
        return path

    def trust_ca(self):
        """As an administrator of the host adds a CA."""
        shutil.copy(self.ca, os.path.join(self.cas, "laboratory.crt"))

    def cert(self, *names):
        """(certificate, key) for these names, by the laboratory's CA."""
        if names not in self._certs:
            base = os.path.join(self.tmp, f"cert{len(self._certs)}")
            self._openssl("-x509", "-CA", self.ca, "-CAkey", os.path.join(self.tmp, "ca.key"), "-newkey", "ec",
                          "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", base + ".key",
                          "-out", base + ".crt", "-days", "30", "-subj", "/CN=server",
                          "-addext", "basicConstraints=critical,CA:FALSE",
                          "-addext", "subjectAltName=" + ",".join(f"DNS:{n}" for n in names))
            self._certs[names] = (base + ".crt", base + ".key")
        return self._certs[names]

    @staticmethod
    def _openssl(*args):
        subprocess.run(["openssl", "req", *args], check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def https(self, addr, names, port=443, label=None, **kw):
        return Http(self, addr, port, label or names[0], names=tuple(names), **kw)

    def http(self, addr, label, port=80, **kw):
        return Http(self, addr, port, label, **kw)

    def echo(self, addr, port, **kw):
        return Echo(self, addr, port, **kw)

    def arrived(self, canary):
        """The packets from the host that have these bytes in them."""
        assert not self.packets_lost
        return [p for p in list(self.packets) if canary in p]

    def seen(self):
        """What came from the host: a set of (protocol, address, port): ("tcp", "203.0.113.10", 443).
        Other IP protocols by number and port 0, ARP and IPv6 neighbours left out."""
        assert not self.packets_lost
        out = set()
        for p in list(self.packets):
            kind = struct.unpack_from(">H", p, 12)[0]
            if kind == 0x0800:
                ihl, proto = (p[14] & 15) * 4, p[23]
                addr = socket.inet_ntoa(p[30:34])
                first = struct.unpack_from(">H", p, 20)[0] & 0x1fff == 0
            elif kind == 0x86dd:
                ihl, proto, first = 40, p[20], True
                addr = socket.inet_ntop(socket.AF_INET6, p[38:54])
                if proto in (0, 58) and (proto == 0 or p[54] in range(133, 138) or p[54] == 143):
                    continue
            elif kind == 0x0806:
                continue
            else:
                out.add((f"ethertype {kind:04x}", "", 0))
                continue
            port = struct.unpack_from(">H", p, 14 + ihl + 2)[0] if proto in (6, 17) and first else 0
            out.add(({1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}.get(proto, str(proto)), addr, port))
        return out


if __name__ == "__main__":
    if sys.argv[1] == "anchor":
        a = sys.argv[2:]
        _anchor(int(a[0]), int(a[1]) if len(a) > 1 else None, *(a[2:] or (None, None)))
