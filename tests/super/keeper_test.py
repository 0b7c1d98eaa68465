# SPDX-License-Identifier: Apache-2.0
"""cloche-keeper, with a folder in place of /etc: keeper_test.py BIN [NAME...]"""
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

BIN = None
RESOLV, HOSTS = 1, 2


class Keeper:
    def __init__(self, files):
        self.top = tempfile.TemporaryDirectory(prefix="cloche-keeper-")
        self.etc = os.path.join(self.top.name, "etc")
        self.run = os.path.join(self.top.name, "run")
        os.mkdir(self.etc)
        os.mkdir(self.run)
        for d in (self.top.name, self.etc, self.run):
            os.chmod(d, 0o755)
        for name, text in files.items():
            self.write(name, text)
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        uid = ["--uid", "64990"] if os.getuid() == 0 else []
        self.p = subprocess.Popen([os.path.join(BIN, "cloche-keeper"), "--relay", str(theirs.fileno()),
                                   "--etc", self.etc, *uid],
                                  pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.close()
        assert self.p.wait(10) == 0
        self.p.stderr.close()
        self.top.cleanup()

    def write(self, name, text):
        with open(os.path.join(self.etc, name), "w") as f:
            f.write(text)

    def hear(self, timeout=10):
        """The next message: (type, text), or None."""
        if not select.select([self.ours], [], [], timeout)[0]:
            return None
        b = self.ours.recv(1 << 17)
        kind, number, n = struct.unpack_from("<HII", b)
        assert number == 0 and n == len(b) - 10
        return kind, b[10:].decode()

    def expect(self, kind, text):
        got = self.hear()
        assert got == (kind, text), (got and (got[0], got[1][:60]), text[:60])


def test_start():
    with Keeper({"resolv.conf": "nameserver 1.2.3.4\n", "hosts": "127.0.0.1 localhost\n"}) as k:
        k.expect(RESOLV, "nameserver 1.2.3.4\n")
        k.expect(HOSTS, "127.0.0.1 localhost\n")
        with open(f"/proc/{k.p.pid}/status") as f:
            status = f.read()
        assert "NoNewPrivs:\t1" in status
        if os.getuid() == 0:
            assert "Uid:\t64990\t64990\t64990\t64990" in status and "CapEff:\t0000000000000000" in status
        assert k.hear(0.3) is None


def test_changes():
    """Written over, replaced, taken away, there again; the same again is no news."""
    with Keeper({"resolv.conf": "a\n"}) as k:
        k.expect(RESOLV, "a\n")
        k.expect(HOSTS, "")
        t0 = time.monotonic()
        k.write("resolv.conf", "b\n")
        k.expect(RESOLV, "b\n")
        k.write("new", "c\n")
        os.rename(os.path.join(k.etc, "new"), os.path.join(k.etc, "resolv.conf"))
        k.expect(RESOLV, "c\n")
        k.write("hosts", "h\n")
        k.expect(HOSTS, "h\n")
        os.unlink(os.path.join(k.etc, "resolv.conf"))
        k.expect(RESOLV, "")
        k.write("resolv.conf", "d\n")
        k.expect(RESOLV, "d\n")
        assert time.monotonic() - t0 < 10
        k.write("resolv.conf", "d\n")
        k.write("other", "x\n")
        assert k.hear(0.4) is None


def test_links():
    """Into another folder, as of systemd-resolved and NetworkManager; and a link that is moved."""
    with Keeper({}) as k:
        k.expect(RESOLV, "")
        k.expect(HOSTS, "")
        stub, full = os.path.join(k.run, "stub"), os.path.join(k.run, "full")
        os.symlink(stub, os.path.join(k.etc, "resolv.conf"))
        with open(stub, "w") as f:
            f.write("stub 1\n")
        # the folder it leads to could not be watched before there was a link
        os.utime(k.etc)
        os.symlink("x", os.path.join(k.etc, "nudge"))
        k.expect(RESOLV, "stub 1\n")
        with open(stub + ".new", "w") as f:
            f.write("stub 2\n")
        os.rename(stub + ".new", stub)
        k.expect(RESOLV, "stub 2\n")
        with open(full, "w") as f:
            f.write("full\n")
        os.symlink(full, os.path.join(k.etc, "tmp"))
        os.rename(os.path.join(k.etc, "tmp"), os.path.join(k.etc, "resolv.conf"))
        k.expect(RESOLV, "full\n")
        with open(full, "a") as f:
            f.write("more\n")
        k.expect(RESOLV, "full\nmore\n")


def test_long():
    """The limit, and beyond it whole lines."""
    line = "10.0.0.1 name\n"
    with Keeper({"hosts": "x" * 65535 + "\n", "resolv.conf": "r\n"}) as k:
        k.expect(RESOLV, "r\n")
        k.expect(HOSTS, "x" * 65535 + "\n")
        k.write("hosts", line * 10000)
        kind, text = k.hear()
        assert kind == HOSTS and len(text) <= 65536 and text == line * (65536 // len(line))
        k.write("hosts", "y" * 65537)
        k.expect(HOSTS, "")


def test_end():
    """Without a relay there is nothing to do."""
    with Keeper({"resolv.conf": "a\n"}) as k:
        k.expect(RESOLV, "a\n")
        k.expect(HOSTS, "")
        k.write("hosts", "h\n")         # whatever its last call said
        k.expect(HOSTS, "h\n")
        k.ours.shutdown(socket.SHUT_RDWR)
        assert k.p.wait(10) == 0


def main():
    global BIN
    BIN = os.path.abspath(sys.argv[1])
    names = sys.argv[2:]
    failed = 0
    for name, fn in list(globals().items()):
        if not name.startswith("test_") or (names and name not in names):
            continue
        try:
            fn()
            print(f"ok {name}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
