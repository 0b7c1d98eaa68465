#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cloche-disk as its peers see it: an NBD client and a control peer, both hostile at times.
Arguments: the program, and disk_fixture."""

import array
import errno
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from disk_client import (BLOCK, CHANGED, FREEZE, FREEZE_DONE, HASH, HASH_DONE, MAGIC, SHUTDOWN,
                         SIZE, STATS_DONE, WAIT, Closed, Disk)

PROGRAM, FIXTURE = sys.argv[1:3]


class DiskTest(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.mkdtemp(prefix="cloche-disk.")
        self.addCleanup(shutil.rmtree, self.tmp)
        self.dir = self.make("project")

    def disk(self, *dirs, **options):
        disk = Disk(PROGRAM, FIXTURE, self.tmp, *dirs, **options)
        self.addCleanup(disk.end)
        return disk

    def make(self, name):
        d = os.path.join(self.tmp, name)
        os.makedirs(f"{d}/sub/deep")
        self.put(f"{d}/a.c", b"int main(void)\n")
        self.put(f"{d}/empty", b"")
        self.put(f"{d}/page", os.urandom(BLOCK))
        self.put(f"{d}/page1", os.urandom(BLOCK + 1))
        self.put(f"{d}/sub/large", os.urandom(3 * 1024 * 1024 + 5))
        self.put(f"{d}/sub/deep/b.c", b"deep\n" * 300)
        os.symlink("../a.c", f"{d}/sub/link")
        os.link(f"{d}/a.c", f"{d}/sub/second-name")
        return d

    @staticmethod
    def put(path, data):
        with open(path, "wb") as f:
            f.write(data)

    @staticmethod
    def content(path):
        with open(path, "rb") as f:
            return f.read()

    def contents(self, disk):
        return {p: self.content(p) for p in disk.files}

    def check_all(self, disk, want):
        for path, data in want.items():
            self.assertEqual(disk.file(path), data, path)
            entry = disk.files[path][0]
            self.assertEqual(disk.hash(entry), hashlib.blake2b(data, digest_size=32).digest())
            self.assertEqual(disk.read_entry(entry, 3, 30000), data[3:30003])

    def test_reads(self):
        disk = self.disk(self.dir)
        disk.start()
        self.check_all(disk, self.contents(disk))
        stats = disk.stats()
        self.assertEqual((stats["files"], stats["frozen"], stats["changed"]), (5, 0, 0))
        self.assertEqual(os.stat(disk.cache).st_blocks, 0, "nothing is written unasked")
        self.assertEqual(disk.read_entry(disk.files[f"{self.dir}/a.c"][0], 1 << 40, 1), b"")
        self.assertEqual(disk.hash(0), -errno.EINVAL)
        self.assertEqual(disk.hash(1 << 31), -errno.EINVAL)
        self.assertEqual(disk.nbd.read(SIZE - BLOCK, BLOCK), bytes(BLOCK))
        self.assertEqual(disk.nbd.read(1 << 35, 4 << 20), bytes(4 << 20))

    def test_image(self):
        """The whole image, over files and metadata, in reads of odd sizes; mounted if possible."""
        self.put(f"{self.dir}/sub/GENERATED", b"the host's")
        disk = self.disk(self.dir)
        disk.start()
        path = f"{self.dir}/sub/GENERATED"
        self.assertEqual(disk.file(path), b"content of ours\n")
        self.assertEqual(disk.hash(disk.files[path][0]),
                         hashlib.blake2b(b"content of ours\n", digest_size=32).digest())
        end = max(b * BLOCK + (s + BLOCK - 1) // BLOCK * BLOCK for _, b, s in disk.files.values())
        image = b""
        sizes = [512, 12800, 4096, 1 << 20, 1536]
        while len(image) < end:
            n = min(sizes[len(image) // 512 % len(sizes)], end - len(image))
            image += disk.nbd.read(len(image), n)
        saved = os.path.join(self.tmp, "image")
        self.put(saved, image)
        if shutil.which("fsck.erofs"):
            r = subprocess.run(["fsck.erofs", saved], capture_output=True, text=True, check=False)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        where = os.path.join(self.tmp, "mnt")
        os.mkdir(where)
        r = subprocess.run(["mount", "-t", "erofs", "-o", "ro,loop", saved, where],
                           capture_output=True, text=True, check=False)
        if r.returncode == 0:
            try:
                os.remove(path)
                self.put(path, b"content of ours\n")
                subprocess.run(["diff", "-r", "--no-dereference", self.dir, f"{where}/project"],
                               check=True)
            finally:
                subprocess.run(["umount", where], check=True)

    def test_before_the_image(self):
        disk = self.disk(self.dir)
        self.assertEqual(disk.nbd.hello(), SIZE)
        self.assertEqual(disk.nbd.read(0, 65536), bytes(65536))
        self.assertEqual(disk.nbd.read((1 << 20) - 512, 512), bytes(512))
        self.assertEqual(disk.hash(1), -errno.EAGAIN)
        held = disk.nbd.send((1 << 20) - 512, 1024)
        held2 = disk.nbd.send(SIZE - 4096, 4096)
        self.assertEqual(disk.nbd.read(BLOCK, BLOCK), bytes(BLOCK))  # overtakes them
        disk.nbd_socket.settimeout(0.1)
        with self.assertRaises(TimeoutError):
            disk.nbd.reply({})
        disk.nbd_socket.settimeout(WAIT)
        disk.scan()
        self.assertEqual(disk.ready(), 0)
        lengths = {held: 1024, held2: 4096}
        self.assertEqual({disk.nbd.reply(lengths)[:2] for _ in lengths}, {(held, 0), (held2, 0)})
        self.check_all(disk, self.contents(disk))
        self.assertEqual(disk.ready(), -errno.EALREADY)

    def test_many_held(self):
        """More reads than are kept wait in the socket, and are all answered."""
        disk = self.disk(self.dir)
        disk.nbd.hello()
        sent = [disk.nbd.send(1 << 21, 512) for _ in range(120)]
        disk.scan()
        self.assertEqual(disk.ready(), 0)
        lengths = dict.fromkeys(sent, 512)
        self.assertEqual([disk.nbd.reply(lengths)[0] for _ in sent], sent)

    def change(self, how, path):
        if how == "append":
            with open(path, "ab") as f:
                f.write(b"x")
        elif how == "rewrite":
            data = self.content(path)
            with open(path, "r+b") as f:
                f.write(data[::-1])
        elif how == "replace":
            self.put(f"{path}.new", self.content(path))
            os.rename(f"{path}.new", path)
        elif how == "delete":
            os.remove(path)
        elif how == "link":
            self.put(f"{self.tmp}/secret", self.content(path))
            os.remove(path)
            os.symlink(f"{self.tmp}/secret", path)
        elif how == "fifo":
            os.remove(path)
            os.mkfifo(path)
        elif how == "folder":
            parent = os.path.dirname(path)
            os.rename(parent, f"{self.tmp}/moved")
            os.symlink(f"{self.tmp}/moved", parent)
        elif how == "times back":
            st = os.stat(path)
            self.put(path, self.content(path)[::-1])
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    def test_host_changes(self):
        for opened in (False, True):
            for how in ("append", "rewrite", "replace", "delete", "link", "fifo", "folder",
                        "times back"):
                with self.subTest(how=how, opened=opened):
                    d = self.make(f"{how}-{opened}")
                    disk = self.disk(d)
                    disk.start()
                    path = f"{d}/sub/deep/b.c"
                    entry = disk.files[path][0]
                    old = self.content(path)
                    time.sleep(0.03)  # the next tick of the file system's clock
                    if opened:
                        self.assertEqual(disk.file(path), old)
                    self.change(how, path)
                    if opened and how == "folder":  # the file itself is what it was
                        self.assertEqual(disk.file(path), old)
                    else:
                        self.assertEqual(disk.file(path), errno.EIO)
                        self.assertEqual(disk.receive(CHANGED), entry)
                        self.assertEqual(disk.file(path), errno.EIO)
                        self.assertEqual(disk.hash(entry), -errno.ESTALE)
                        self.assertEqual(disk.read_entry(entry, 0, 10), -errno.ESTALE)
                        self.assertEqual(disk.stats()["changed"], 1)
                        self.assertEqual(disk.freeze(), 0)
                        self.assertEqual(disk.changed, [entry], "told once")
                        self.assertEqual(disk.file(path), errno.EIO)
                    other = f"{d}/page1"
                    self.assertEqual(disk.file(other), self.content(other))
                    disk.end()
                    shutil.rmtree(f"{self.tmp}/moved", ignore_errors=True)

    def test_freeze(self):
        with open(f"{self.dir}/sparse", "wb") as f:
            f.truncate(1 << 30)
            f.seek(512 << 20)
            f.write(b"in the middle")
        with open(f"{self.dir}/hole", "wb") as f:
            f.truncate(100 << 20)
        disk = self.disk(self.dir)
        disk.start()
        want = {p: d for p, d in ((p, self.content(p)) for p in disk.files
                                  if not p.endswith(("sparse", "hole")))}
        self.assertEqual(disk.freeze(), 0)
        stats = disk.stats()
        self.assertEqual((stats["frozen"], stats["changed"], stats["freezing"]), (7, 0, 0))
        self.assertEqual(stats["frozen_bytes"], (1 << 30) + (100 << 20) +
                         sum(len(d) for p, d in want.items() if "second" not in p))
        self.assertLess(os.stat(disk.cache).st_blocks * 512, 20 << 20, "holes stay holes")
        shutil.rmtree(self.dir)
        self.check_all(disk, want)
        block = disk.files[f"{self.dir}/sparse"][1]
        self.assertEqual(disk.nbd.read(block * BLOCK + (512 << 20), 512),
                         b"in the middle" + bytes(499))
        self.assertEqual(disk.changed, [])

    def test_freeze_of_some(self):
        """Files that changed before stay changed, the others keep their old bytes."""
        disk = self.disk(self.dir)
        disk.send(FREEZE, b"\1")  # before the image: begins with it
        time.sleep(0.01)
        disk.scan()
        disk.send(FREEZE, b"\0")
        disk.nbd.hello()
        self.assertEqual(disk.ready(), 0)
        want = self.contents(disk)
        time.sleep(0.03)
        self.change("append", f"{self.dir}/page")
        self.assertEqual(disk.freeze(), 0)
        page = f"{self.dir}/page"
        self.assertEqual(disk.changed, [disk.files[page][0]])
        for path in want:
            if path != page:
                self.change("append", path)
        del want[page]
        self.check_all(disk, want)
        self.assertEqual(disk.file(page), errno.EIO)

    def test_freeze_under_load(self):
        disk = self.disk(self.dir)
        disk.start()
        disk.send(FREEZE, b"\1")
        end = time.monotonic() + WAIT
        disk.control.setblocking(False)
        while True:
            disk.nbd.read(0, BLOCK)
            try:
                self.assertEqual(struct.unpack("<HHi", disk.control.recv(64)), (FREEZE_DONE, 0, 0))
                break
            except BlockingIOError:
                self.assertLess(time.monotonic(), end)

    def test_races(self):
        """A host that writes during reads and during the freeze: old bytes or none."""
        size = 96 << 10
        names = [f"{self.dir}/race-{n}" for n in range(200)]
        for freeze in (False, True):
            for name in names:
                self.put(name, b"A" * size)
            disk = self.disk(self.dir)
            disk.start()
            time.sleep(0.03)  # the next tick of the file system's clock
            writer = os.fork()
            if writer == 0:
                for name in names:
                    with open(name, "r+b", buffering=0) as f:
                        f.write(b"B" * (size // 2))
                        f.write(b"B" * (size // 2))
                os._exit(0)
            if freeze:
                self.assertEqual(disk.freeze(), 0)
            got = [disk.file(name) for name in names]
            self.assertEqual(os.waitpid(writer, 0)[1], 0)
            for name, before in zip(names, got):
                after = disk.file(name)
                self.assertIn(before, (b"A" * size, errno.EIO))
                if freeze or before == errno.EIO:
                    self.assertEqual(after, before)
                else:
                    self.assertEqual(after, errno.EIO)
            stats = disk.stats()
            self.assertEqual(stats["changed"], sum(disk.file(n) == errno.EIO for n in names))
            disk.end()

    def test_full_cache(self):
        where = os.path.join(self.tmp, "tmpfs")
        os.mkdir(where)
        r = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", where],
                           capture_output=True, check=False)
        if r.returncode != 0:
            self.skipTest("no mount of a small file system here")
        self.addCleanup(subprocess.run, ["umount", "-l", where], check=True)
        self.put(f"{self.dir}/sub/larger", os.urandom(20 << 20))
        disk = self.disk(self.dir, cache=f"{where}/cache")
        disk.start()
        want = self.contents(disk)
        self.assertEqual(disk.freeze(), -errno.ENOSPC)
        self.check_all(disk, want)  # all of it still readable
        self.assertGreater(disk.stats()["frozen"], 0)
        self.assertEqual(disk.stats()["freezing"], 0)

    def test_two_projects(self):
        other = self.make("second")
        disk = self.disk(self.dir, other)
        disk.start()
        want = self.contents(disk)
        self.assertEqual(len(want), 14)
        self.check_all(disk, want)

    def test_wrong_workspace(self):
        other = self.make("second")
        for dirs, scanned in (([other], [self.dir]), ([self.dir], [self.dir, other])):
            disk = self.disk(*dirs)
            disk.dirs = scanned
            disk.scan()
            self.assertEqual(disk.ready(), -errno.ESTALE)

    def test_bad_manifest(self):
        disk = self.disk(self.dir)
        disk.scan()
        manifest = self.content(f"{disk.tmp}/manifest")
        for bad in (b"", b"x", manifest[:-1], manifest + b"x", bytes(len(manifest))):
            self.put(f"{disk.tmp}/manifest", bad)
            self.assertEqual(disk.ready(), -errno.EPROTO)
        self.put(f"{disk.tmp}/manifest", manifest)
        self.assertEqual(disk.ready(), 0)
        small = self.disk(self.dir, size=BLOCK)
        small.scan()
        self.assertEqual(small.ready(), -errno.EFBIG)

    def test_hostile_client(self):
        good = b"IHAVEOPT" + struct.pack(">II", 7, 6) + bytes(6)
        read = struct.pack(">IHHQQI", MAGIC, 0, 0, 1, 0, 512)
        cases = {
            "old client": struct.pack(">I", 0),
            "noise": os.urandom(65536),
            "option magic": struct.pack(">I", 3) + b"IHAVEOPS" + bytes(8),
            "option too long": struct.pack(">I", 3) + b"IHAVEOPT" + b"\xff" * 8,
            "request magic": struct.pack(">I", 3) + good + b"\0" * 28,
            "write": struct.pack(">I", 3) + good + struct.pack(">IHHQQI", MAGIC, 0, 1, 1, 0, 512),
            "bad after good": struct.pack(">I", 3) + good + read + b"\1" * 28,
        }
        for why, data in cases.items():
            with self.subTest(why=why):
                disk = self.disk(self.dir)
                try:
                    disk.nbd_socket.sendall(data)
                    with self.assertRaises(Closed):
                        disk.nbd.get(1 << 20)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.assertEqual(disk.stats()["errors"], 0)  # the control peer is served on
                disk.send(SHUTDOWN)
                self.assertEqual(disk.status(), 0)

    def test_bad_requests(self):
        disk = self.disk(self.dir)
        disk.start()
        for offset, length in ((SIZE, 512), (SIZE - 512, 1024), (0, (4 << 20) + 512), (0, 0),
                               (1, 512), (0, 511), ((1 << 64) - 512, 1024), (0, (1 << 32) - 1)):
            self.assertEqual(disk.nbd.read(offset, length), errno.EINVAL, (offset, length))
        self.assertEqual(len(disk.nbd.read(0, 4 << 20)), 4 << 20)
        for command, error in ((3, 0), (4, errno.EPERM), (7, errno.EINVAL), (99, errno.EINVAL)):
            c = disk.nbd.send(0, 0, command)
            self.assertEqual(disk.nbd.reply({c: 0}), (c, error, b""))
        disk.nbd.send(0, 0, 2)
        with self.assertRaises(Closed):
            disk.nbd.get(1)
        disk.send(SHUTDOWN)
        self.assertEqual(disk.status(), 0)

    def test_client_that_does_not_read(self):
        disk = self.disk(self.dir)
        disk.start()
        disk.nbd_socket.setblocking(False)
        sent = []
        try:
            while len(sent) < 10000:
                sent.append(disk.nbd.send(0, 1 << 20))
        except BlockingIOError:
            pass
        path = f"{self.dir}/sub/large"
        self.assertEqual(disk.hash(disk.files[path][0]),
                         hashlib.blake2b(self.content(path), digest_size=32).digest())
        with open(f"/proc/{disk.process.pid}/statm", encoding="ascii") as f:
            self.assertLess(int(f.read().split()[1]) * BLOCK, 64 << 20)

    def test_client_in_pieces(self):
        disk = self.disk(self.dir)
        disk.start()
        path = f"{self.dir}/page1"
        c = struct.pack(">IHHQQI", MAGIC, 0, 0, 5, disk.files[path][1] * BLOCK, 8192)
        for byte in c + c:
            disk.nbd_socket.send(bytes([byte]))
        for _ in range(2):
            self.assertEqual(disk.nbd.reply({5: 8192})[2][:BLOCK + 1], self.content(path))

    def test_hostile_control(self):
        fd = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, fd)
        for why, data, fds in (("noise", os.urandom(40), []), ("short", b"\2\0", []),
                               ("long", bytes(4000), []), ("ready without files", b"\1\0\0\0", []),
                               ("one file", b"\1\0\0\0", [fd]), ("three", b"\1\0\0\0", [fd] * 3),
                               ("a file too many", b"\5\0\0\0", [fd]),
                               ("an answer", struct.pack("<HHI", CHANGED, 0, 1), [])):
            with self.subTest(why=why):
                disk = self.disk(self.dir)
                anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                disk.control.sendmsg([data], anc if fds else [])
                self.assertEqual(disk.status(), 1)

    def test_many_hashes(self):
        disk = self.disk(self.dir)
        disk.start()
        entry = disk.files[f"{self.dir}/page"][0]
        want = hashlib.blake2b(self.content(f"{self.dir}/page"), digest_size=32).digest()
        disk.control.setblocking(False)
        n = 0
        try:
            while n < 300:
                disk.send(HASH, struct.pack("<I", entry))
                n += 1
        except BlockingIOError:
            pass
        disk.control.settimeout(WAIT)
        for _ in range(n):
            self.assertEqual(struct.unpack("<Ii32s", disk.receive(HASH_DONE)), (entry, 0, want))

    def test_ends(self):
        disk = self.disk(self.dir)
        disk.start()
        disk.control.close()
        self.assertEqual(disk.status(), 0)
        with self.assertRaises(Closed):
            disk.nbd.get(1)
        disk = self.disk(self.dir)
        disk.start()
        disk.nbd_socket.close()  # QEMU is gone, the baseline is still asked for
        path = f"{self.dir}/page"
        self.assertEqual(disk.read_entry(disk.files[path][0], 0, BLOCK), self.content(path))
        disk.send(SHUTDOWN)
        self.assertEqual(disk.status(), 0)
        disk = self.disk(self.dir)
        disk.start()
        disk.process.send_signal(signal.SIGKILL)
        self.assertEqual(disk.status(), -signal.SIGKILL)
        with self.assertRaises(Closed):
            disk.nbd.get(1)
        with self.assertRaises((Closed, ConnectionResetError)):
            disk.receive(STATS_DONE)

    def test_qemu(self):
        if not shutil.which("qemu-io"):
            self.skipTest("no qemu-io")
        disk = self.disk(self.dir)
        disk.scan()
        self.assertEqual(disk.ready(), 0)
        block = disk.files[f"{self.dir}/a.c"][1]
        first = self.content(f"{self.dir}/a.c")[0]
        spec = f"driver=nbd,server.type=fd,server.str={disk.nbd_socket.fileno()}"
        r = subprocess.run(["qemu-io", "-r", "--image-opts", spec, "-c", "length",
                            "-c", f"read -P {first} {block * BLOCK} 1",
                            "-c", f"read 0 {16 << 20}", "-c", f"read -P 0 {SIZE - 4096} 4096"],
                           pass_fds=[disk.nbd_socket.fileno()], capture_output=True, text=True,
                           timeout=WAIT, check=False)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        self.assertIn("1 TiB", r.stdout)
        self.assertNotIn("fail", r.stdout + r.stderr)

    def test_arguments(self):
        for args in ([], ["--nbd"], ["--nbd", "0"], ["--size", "0"], ["--nbd", "-1"]):
            r = subprocess.run([PROGRAM, *args], capture_output=True, check=False)
            self.assertEqual(r.returncode, 2)


unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
