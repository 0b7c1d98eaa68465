#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""EROFS images as others see them: fsck.erofs on random trees, and a kernel mount where
we are root and the kernel has the file system. Arguments: erofs_gen, first seed, count."""

import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

SKIP = 77
BLOCK = 4096


def content(inode, size):
    blocks = (size + BLOCK - 1) // BLOCK
    return b"".join(struct.pack("<II", inode, k) * (BLOCK // 8) for k in range(blocks))[:size]


def walk(dirfd, path, want, seen):
    """Compare everything below dirfd (so paths may be longer than PATH_MAX)."""
    for name in os.listdir(dirfd):
        name = os.fsencode(name)
        p = path + b"/" + name
        row = want.get(p)
        assert row is not None, f"{p!r} is too much"
        seen.add(p)
        inode, mode, uid, gid, size, sec, nsec, links, rdev = map(int, row[:9])
        link = b"" if row[9] == "-" else bytes.fromhex(row[9])
        st = os.stat(name, dir_fd=dirfd, follow_symlinks=False)
        got = (st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns)
        assert got == (mode, uid, gid, sec * 10**9 + nsec), f"{p!r}: {got}"
        if stat.S_ISDIR(mode):
            subdirs = sum(1 for q, r in want.items()
                          if q.rpartition(b"/")[0] == p and stat.S_ISDIR(int(r[1])))
            assert st.st_nlink == 2 + subdirs, f"{p!r}: {st.st_nlink} links"
        else:
            assert st.st_nlink == links, f"{p!r}: {st.st_nlink} links, not {links}"
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            assert st.st_rdev == rdev, f"{p!r}: device {st.st_rdev}, not {rdev}"
        if stat.S_ISLNK(mode):
            assert os.readlink(name, dir_fd=dirfd) == link, f"{p!r}: link text"
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            continue
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=dirfd)
        try:
            attrs = {a: v for a, v in (x.split("=") for x in row[10:])}
            for a in os.listxattr(fd):
                v = attrs.pop(os.fsencode(a).hex())
                assert os.getxattr(fd, a).hex() == v, f"{p!r}: {a}"
            assert not attrs, f"{p!r}: attributes are missing"
            if stat.S_ISREG(mode):
                with os.fdopen(os.dup(fd), "rb") as f:
                    assert f.read() == content(inode, size), f"{p!r}: content"
            else:
                walk(fd, p, want, seen)
        finally:
            os.close(fd)


def can_mount():
    if os.geteuid() != 0 or not shutil.which("mount"):
        return False
    with open("/proc/filesystems", encoding="ascii") as f:
        return any(line.split()[-1] == "erofs" for line in f)


def mount(image, where):
    cmd = ["mount", "-t", "erofs", "-o", "ro,loop", image, where]
    return subprocess.run(cmd, capture_output=True, text=True, check=False)


def main():
    gen, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    fsck = shutil.which("fsck.erofs")
    mounts = can_mount()
    if not fsck and not mounts:
        print("neither fsck.erofs nor a kernel with erofs to be had")
        return SKIP
    mounted = 0
    with tempfile.TemporaryDirectory(prefix="erofs-oracle.") as tmp:
        listing, where = (os.path.join(tmp, n) for n in ("list", "mnt"))
        os.mkdir(where)
        for seed in range(first, first + count):
            # a file of its own: mount(8) takes up a loop device that still has the same file,
            # with what the kernel remembers of its former content
            image = os.path.join(tmp, f"image{seed}")
            if seed > first:
                os.unlink(os.path.join(tmp, f"image{seed - 1}"))
            subprocess.run([gen, str(seed), image, listing], check=True)
            if fsck:
                r = subprocess.run([fsck, image], capture_output=True, text=True, check=False)
                assert r.returncode == 0 and "corrupt" not in r.stdout, \
                    f"seed {seed}: {r.stdout}{r.stderr}"
            if not mounts:
                continue
            r = mount(image, where)
            if r.returncode != 0 and mounted == 0:
                print(f"no mount here: {r.stderr.strip()}")
                mounts = False
                continue
            assert r.returncode == 0, f"seed {seed}: {r.stderr}"
            try:
                with open(listing, encoding="ascii") as f:
                    rows = [line.split() for line in f]
                want = {bytes.fromhex(row[0]): row[1:] for row in rows}
                seen = set()
                fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    walk(fd, b"", want, seen)
                finally:
                    os.close(fd)
                assert seen == set(want), f"seed {seed}: {len(want) - len(seen)} names missing"
            except AssertionError as e:
                raise AssertionError(f"seed {seed}: {e}") from e
            finally:
                subprocess.run(["umount", where], check=True)
            mounted += 1
    print(f"{count} trees: fsck {'good' if fsck else 'not installed'}, {mounted} mounted")
    return 0


sys.exit(main())
