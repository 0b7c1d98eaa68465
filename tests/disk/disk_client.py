#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An NBD client, and a running cloche-disk with both its sockets, for tests and figures."""

import array
import os
import socket
import struct
import subprocess
import tempfile

BLOCK = 4096
SIZE = 1 << 40
READY, HASH, READ, FREEZE, STATS, SHUTDOWN = range(1, 7)
READY_DONE, HASH_DONE, READ_DONE, FREEZE_DONE, STATS_DONE, CHANGED = range(0x101, 0x107)
MAGIC = 0x25609513
WAIT = 20.0
# a sanitizer's search for leaks needs more of the kernel than the cage gives (and the
# fixture frees nothing)
ENV = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")


class Closed(Exception):
    pass


class Client:
    """An NBD client over a connected socket."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(WAIT)
        self.cookie = 0

    def get(self, n):
        b = b""
        while len(b) < n:
            try:
                part = self.sock.recv(n - len(b))
            except ConnectionResetError as e:
                raise Closed from e
            if not part:
                raise Closed
            b += part
        return b

    def hello(self):
        assert self.get(18) == b"NBDMAGICIHAVEOPT\0\3"
        self.sock.sendall(struct.pack(">I", 3))
        self.sock.sendall(b"IHAVEOPT" + struct.pack(">II", 7, 6) + bytes(6))
        size = None
        while True:
            magic, option, kind, n = struct.unpack(">QIII", self.get(20))
            data = self.get(n)
            assert magic == 0x3E889045565A9 and option == 7
            if kind == 3 and data[:2] == b"\0\0":
                size = struct.unpack(">Q", data[2:10])[0]
            if kind == 1:
                return size

    def send(self, offset, length, command=0, magic=MAGIC):
        self.cookie += 1
        self.sock.sendall(struct.pack(">IHHQQI", magic, 0, command, self.cookie, offset, length))
        return self.cookie

    def reply(self, lengths):
        magic, error, cookie = struct.unpack(">IIQ", self.get(16))
        assert magic == 0x67446698
        return cookie, error, b"" if error else self.get(lengths[cookie])

    def read(self, offset, length):
        """Data, or the error's number."""
        c = self.send(offset, length)
        cookie, error, data = self.reply({c: length})
        assert cookie == c
        return error if error else data


class Disk:
    """A running cloche-disk over a folder (or several) of the test."""

    def __init__(self, program, fixture, tmp, *dirs, size=SIZE, cache=None):
        self.fixture = fixture
        self.tmp = tempfile.mkdtemp(prefix="disk.", dir=tmp)
        self.cache = cache or os.path.join(self.tmp, "cache")
        nbd, nbd_peer = socket.socketpair()
        control, control_peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [os.open(d, os.O_RDONLY | os.O_DIRECTORY) for d in dirs]
        cache_fd = os.open(self.cache, os.O_RDWR | os.O_CREAT, 0o600)
        cmd = [program, "--nbd", str(nbd_peer.fileno()), "--control", str(control_peer.fileno()),
               "--cache", str(cache_fd), "--size", str(size)]
        for fd in fds:
            cmd += ["--workspace", str(fd)]
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            cmd, pass_fds=[nbd_peer.fileno(), control_peer.fileno(), cache_fd] + fds,
            stderr=subprocess.PIPE, env=ENV)
        for fd in fds + [cache_fd]:
            os.close(fd)
        nbd_peer.close()
        control_peer.close()
        self.nbd_socket = nbd
        self.nbd = Client(nbd)
        self.control = control
        self.control.settimeout(WAIT)
        self.dirs = dirs
        self.files = {}
        self.changed = []

    def end(self):
        self.control.close()
        self.nbd_socket.close()
        try:
            self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()

    def status(self):
        return self.process.wait(WAIT)

    def scan(self):
        """Make manifest and image of the folders as they are now."""
        out = subprocess.run([self.fixture, f"{self.tmp}/manifest", f"{self.tmp}/meta", *self.dirs],
                             check=True, capture_output=True, text=True, env=ENV).stdout
        self.files = {}
        for line in out.splitlines():
            entry, block, size, path = line.split(" ", 3)
            self.files[path] = (int(entry), int(block), int(size))

    def send(self, kind, fields=b"", fds=()):
        anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.control.sendmsg([struct.pack("<HH", kind, 0) + fields], anc)

    def receive(self, kind):
        """The next message of @kind; changed files on the way are noted."""
        while True:
            b = self.control.recv(65536)
            if not b:
                raise Closed
            got, zero = struct.unpack("<HH", b[:4])
            assert zero == 0
            if got == CHANGED:
                self.changed.append(struct.unpack("<I", b[4:])[0])
                if kind == CHANGED:
                    return self.changed[-1]
            elif got == kind:
                return b[4:]
            else:
                raise AssertionError(f"message {got:#x} while waiting for {kind:#x}")

    def ready(self):
        fds = [os.open(f"{self.tmp}/{n}", os.O_RDONLY) for n in ("manifest", "meta")]
        self.send(READY, fds=fds)
        for fd in fds:
            os.close(fd)
        return struct.unpack("<i", self.receive(READY_DONE))[0]

    def start(self):
        self.scan()
        assert self.nbd.hello() == SIZE
        assert self.ready() == 0

    def hash(self, entry):
        """Digest, or the negative errno."""
        self.send(HASH, struct.pack("<I", entry))
        e, status, digest = struct.unpack("<Ii32s", self.receive(HASH_DONE))
        assert e == entry
        return digest if status == 0 else status

    def read_entry(self, entry, offset, length):
        self.send(READ, struct.pack("<IQI", entry, offset, length))
        b = self.receive(READ_DONE)
        e, status, at, n = struct.unpack("<IiQI", b[:20])
        assert e == entry and at == offset and n == len(b) - 20
        return b[20:] if status == 0 else status

    def freeze(self):
        self.send(FREEZE, b"\1")
        return struct.unpack("<i", self.receive(FREEZE_DONE))[0]

    def stats(self):
        self.send(STATS)
        names = ("files", "frozen", "changed", "freezing", "frozen_bytes", "requests", "bytes",
                 "errors", "opens")
        return dict(zip(names, struct.unpack("<4I5Q", self.receive(STATS_DONE))))

    def file(self, path):
        """All data of a file through the disk, or an error's number."""
        _, block, size = self.files[path]
        if size == 0:
            return b""
        out = b""
        length = (size + BLOCK - 1) // BLOCK * BLOCK
        while len(out) < length:
            part = self.nbd.read(block * BLOCK + len(out), min(1 << 20, length - len(out)))
            if isinstance(part, int):
                return part
            out += part
        assert out[size:] == bytes(length - size), "bytes behind the end of the file"
        return out[:size]
