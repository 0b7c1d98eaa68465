# SPDX-License-Identifier: Apache-2.0
"""The workspace disk in a real guest: EROFS metadata of ours, file data from cloche-disk over
NBD, with a host that changes its files meanwhile."""
import glob
import hashlib
import os
import random
import sys

import guestvm
import harness

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "disk"))

from disk_client import Disk  # noqa: E402 pylint: disable=wrong-import-position


def image_of(h):
    env = os.environ.get("CLOCHE_TEST_GUEST_IMAGE")
    if env:
        return env
    found = [os.path.dirname(p) for p in glob.glob(h.cache + "/**/vmlinux", recursive=True)]
    found = [d for d in found if os.path.exists(os.path.join(d, "rootfs.erofs"))]
    if not found:
        raise harness.Skip("no image is built")
    return max(found, key=os.path.getmtime)


def project(top):
    """Files, folders and links; {relative path: content}."""
    rng = random.Random(7)
    files = {}
    for d in range(40):
        for f in range(20):
            files[f"src/{d:02}/file-{f}.c"] = rng.randbytes(rng.randrange(12000))
    files["empty"] = b""
    files["page"] = rng.randbytes(4096)
    files["large"] = rng.randbytes((6 << 20) + 123)
    for n in range(30):
        files[f"late/{n}"] = rng.randbytes(30000 + n)
    for path, content in files.items():
        full = os.path.join(top, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as f:
            f.write(content)
    os.symlink("../page", f"{top}/src/link")
    os.link(f"{top}/page", f"{top}/second-name")
    files["second-name"] = files["page"]
    with open(f"{top}/sparse", "wb") as f:
        f.truncate(5 << 30)  # over 4 GiB
        f.seek((5 << 30) - 5)
        f.write(b"tail!")
    return files


class Machine:
    """A guest whose workspace disk is a cloche-disk."""

    def __init__(self, h, top):
        self.disk = Disk(f"{h.build}/bin/cloche-disk", f"{h.build}/tests/disk/disk_fixture",
                         h.path("disk"), top)
        fd = self.disk.nbd_socket.fileno()
        self.guest = guestvm.Guest(
            image_of(h), f"{h.build}/bin/cloche-init", h.path("vm"), fds=[fd],
            devices=["-blockdev", "driver=nbd,node-name=work,read-only=on,server.type=fd,"
                     f"server.str={fd}", "-device", "virtio-blk-device,drive=work,serial=work"])
        self.disk.nbd_socket.close()  # QEMU's now

    def sha256(self, *paths):
        """{path: digest, or None where the guest cannot read it} below /work/demo."""
        r = self.guest.host.run("sh", "-c", "cd /work/demo && exec sha256sum -- \"$@\"", "-",
                                *paths, timeout_s=200)
        got = dict.fromkeys(paths)
        for line in r.out.decode().splitlines():
            digest, _, path = line.partition("  ")
            got[path] = digest
        return got

    def close(self):
        self.guest.close()
        self.disk.end()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def digest(b):
    return hashlib.sha256(b).hexdigest()


def test_lazy_disk(h):
    os.makedirs(h.path("disk"))
    top = h.path("tree", "demo")
    os.makedirs(top)
    files = project(top)
    with Machine(h, top) as m:
        host, disk = m.guest.host, m.disk
        # the machine boots to its root while nothing of the project is known
        host.hello(timeout_s=120)
        host.clock()
        host.entropy()
        host.setup()
        host.mount_root()
        disk.scan()
        assert disk.ready() == 0
        host.mount_work(["demo"])

        early = [p for p in files if not p.startswith("late/")]
        got = {}
        for i in range(0, len(early), 200):
            got |= m.sha256(*early[i:i + 200])
        assert got == {p: digest(files[p]) for p in early}
        r = host.run("sh", "-c", "cd /work/demo && stat -c %s sparse && tail -c 5 sparse && "
                     "readlink src/link && stat -c %h page && find . | wc -l", timeout_s=100)
        out = r.out.decode().split()
        assert out[:4] == [str(5 << 30), "tail!../page", "2", out[3]], r
        want = 1 + sum(len(d) + len(f) for _, d, f in os.walk(top))
        assert int(out[3]) == want, (out, want)

        # the host changes files that nobody has read: no bytes instead of wrong ones
        late = [f"late/{n}" for n in range(30)]
        for p in late[:10]:
            with open(f"{top}/{p}", "r+b") as f:
                f.write(b"changed")
        got = m.sha256(*late[:15])
        assert got == {p: None for p in late[:10]} | {p: digest(files[p]) for p in late[10:15]}
        assert disk.freeze() == 0
        assert sorted(disk.changed) == sorted(disk.files[f"{top}/{p}"][0] for p in late[:10])

        # after the freeze it may do what it likes
        for p in late[10:]:
            os.remove(f"{top}/{p}")
        got = m.sha256(*late[10:25])
        assert got == {p: digest(files[p]) for p in late[10:25]}

        # without the disk, reads fail and the guest lives
        disk.process.kill()
        assert m.sha256(*late[25:]) == dict.fromkeys(late[25:])
        assert host.run("true").rc == 0
        host.poweroff()
