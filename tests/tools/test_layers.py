# SPDX-License-Identifier: Apache-2.0
"""Layers from packages of npm: the caged worker on tarballs of our own, and the user's own
npm against a registry on loopback: pinned, checked, locked, cached."""
import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
from schema import assert_valid  # noqa: E402

REG, SYM, LNK, DIR = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
GOOD = [("package/package.json", REG, b'{"name": "demo", "version": "1.2.3", '
         b'"scripts": {"install": "touch /tmp/never", "prepack": "touch /tmp/never"}}'),
        ("package/bin/demo", REG, b"#!/bin/sh\necho demo\n"),
        ("package/voice/big", REG, b"x" * 5000)]


IMAGE = os.path.abspath(sys.argv[1])             # cloche-image


def tarball(entries, mode=0o644):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, kind, arg in entries:
            ti = tarfile.TarInfo(name)
            ti.type, ti.mode, ti.uid, ti.gid = kind, mode, 1234, 1234
            data = arg if kind == REG else b""
            ti.linkname = "" if kind in (REG, DIR) else arg
            ti.size = len(data)
            t.addfile(ti, io.BytesIO(data))
    return gzip.compress(b.getvalue(), 1)


def package(tmp, data, *args):
    """Run the worker as a build does: (status, stderr, its image)."""
    src, out = os.path.join(tmp, "in.tgz"), os.path.join(tmp, "out.erofs")
    with open(src, "wb") as f:
        f.write(data)
    with open(src, "rb") as f, open(out, "w+b") as o:
        fd = os.dup2(o.fileno(), 50)
        p = subprocess.run([IMAGE, "package", "demo", *args], stdin=f,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, pass_fds=(3,),
                           preexec_fn=lambda: os.dup2(fd, 3), timeout=60)
        os.close(fd)
    return p.returncode, p.stderr.decode(), out


def extract(image, to):
    p = subprocess.run(["fsck.erofs", f"--extract={to}", image], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    assert p.returncode == 0, p.stdout.decode()
    return to


def test_package(tmp):
    rc, err, image = package(tmp, tarball([("package", DIR, "")] + GOOD, 0o6666), "--bin",
                             "demo=bin/demo", "--omit", "voice/*")
    assert rc == 0, err
    top = extract(image, os.path.join(tmp, "x"))
    found = sorted(os.path.relpath(os.path.join(d, f), top) for d, _, fs in os.walk(top) for f in fs)
    mod = "usr/local/lib/node_modules/demo"
    assert found == ["usr/local/bin/demo", mod + "/bin/demo", mod + "/package.json"], found
    assert os.readlink(os.path.join(top, found[0])) == "../lib/node_modules/demo/bin/demo"
    st = os.stat(os.path.join(top, found[0]))
    assert st.st_mode & 0o7777 == 0o755, oct(st.st_mode)    # it is a command, and no setuid
    assert os.stat(os.path.join(top, mod, "package.json")).st_mode & 0o7777 == 0o644
    if os.getuid() == 0:
        assert (st.st_uid, st.st_gid) == (0, 0), st
    # another name of the folder is as good
    rc, err, _ = package(tmp, tarball([("./other/a", REG, b"a")]))
    assert rc == 0, err


def test_hostile_packages(tmp):
    """Each is refused by name, and nothing of it is written anywhere but the image."""
    for why, entries, status, word in [
            ("leaves it", [("package/../../etc/x", REG, b"")], 4, "leads out"),
            ("no folder but ..", [("../x", REG, b"")], 4, "leads out"),
            ("absolute", [("/etc/x", REG, b"")], 4, "leads out"),
            ("symlink", [("package/l", SYM, "/etc")], 4, "neither a file nor a folder"),
            ("path through a symlink", [("package/l", SYM, "/"), ("package/l/x", REG, b"")], 4,
             "neither a file nor a folder"),
            ("hard link out", [("package/l", LNK, "../../etc/passwd")], 4, "neither"),
            ("device", [("package/d", tarfile.CHRTYPE, "")], 4, "neither"),
            ("fifo", [("package/f", tarfile.FIFOTYPE, "")], 4, "neither"),
            ("beside the folder", [("x", REG, b"")], 4, "beside"),
            ("through a file", [("package/a", REG, b"a"), ("package/a/b", REG, b"b")], 4, "refused"),
            ("control characters", [("package/\x1b]0;x\a/../..", REG, b"")], 4, "\\e]0;x"),
            ("no such command", [("package/a", REG, b"")], 4, "no file 'nope'"),
            ("a folder as command", [("package/nope", DIR, "")], 4, "no file 'nope'"),
            ("empty", [], 3, "empty"),
            ("deeper than an image", [("package/" + "d/" * 200 + "f", REG, b"")], 4, "refused")]:
        args = ["--bin", "nope=nope"] if "nope" in word else []
        rc, err, _ = package(tmp, tarball(entries), *args)
        assert rc == status and word in err, (why, rc, err)
        assert "\x1b" not in err, err
    good = tarball(GOOD)
    rc, err, _ = package(tmp, good[:len(good) // 2])
    assert rc == 3, ("cut short", rc, err)
    rc, err, _ = package(tmp, b"not an archive at all, by any means" * 100)
    assert rc == 3, ("no archive", rc, err)


def test_bombs(tmp):
    """A header that promises 5 GiB, and more entries than a package may have."""
    ti = tarfile.TarInfo("package/zeros")
    ti.size = 5 << 30
    rc, err, _ = package(tmp, gzip.compress(ti.tobuf(tarfile.GNU_FORMAT) + bytes(4096), 1))
    assert rc == 4 and "over a limit" in err, (rc, err)
    entries = tarfile.TarInfo("p/again").tobuf() * (200 * 1000 + 1)
    rc, err, _ = package(tmp, gzip.compress(entries + bytes(1024), 1))
    assert rc == 4 and "over a limit" in err, (rc, err)


class Registry:
    """As much of a registry as npm needs, on loopback."""

    def __init__(self):
        self.tarballs, self.integrity, self.seen = {}, {}, []
        reg = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                reg.seen.append(self.path)
                body, kind = reg.answer(self.path)
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"{}")))
                self.end_headers()
                self.wfile.write(body or b"{}")

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def put(self, name, version, data, integrity=None):
        self.tarballs[(name, version)] = data
        self.integrity[(name, version)] = integrity or \
            "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()

    def answer(self, path):
        for (name, version), data in self.tarballs.items():
            if path == f"/{name}/-/{version}.tgz":
                return data, "application/octet-stream"
            if path.replace("%2f", "/").lstrip("/") == name:
                versions = {v: {"name": n, "version": v,
                                "dist": {"tarball": f"{self.url}/{n}/-/{v}.tgz",
                                         "integrity": self.integrity[(n, v)]}}
                            for n, v in self.tarballs if n == name}
                return json.dumps({"name": name, "versions": versions,
                                   "dist-tags": {"latest": version}}).encode(), "application/json"
        return None, "application/json"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Home:
    def __init__(self, tmp, url):
        self.tmp = tmp
        self.lock = os.path.join(tmp, "lock.json")
        self.images = os.path.join(tmp, "images")
        self.env = {"PATH": os.environ["PATH"], "HOME": tmp, "CLOCHE_IMAGE_DIR": self.images,
                    "npm_config_registry": url, "npm_config_fetch_retries": "0", "LC_ALL": "C.UTF-8"}

    def build(self, name="demo", version="1.2.3", env=None):
        p = subprocess.run([IMAGE, "layer", name, version, self.lock, "demo=bin/demo"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, env=self.env | (env or {}), cwd=self.tmp,
                           timeout=120)
        return p

    def image(self, *words):
        """`cloche image`, which sees the same layers."""
        env = self.env | {f"XDG_{n}_HOME": os.path.join(self.tmp, n.lower())
                          for n in ("CONFIG", "STATE", "DATA", "CACHE")}
        return subprocess.run([os.path.join(os.path.dirname(IMAGE), "cloche"), "image", *words],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=env, timeout=60)

    def fresh_npm(self):
        """npm keeps tarballs by their hash: forget them."""
        shutil.rmtree(os.path.join(self.tmp, ".npm"), ignore_errors=True)

    def layers(self):
        d = os.path.join(self.images, "layers")
        return sorted(n for n in os.listdir(d) if not n.startswith("."))


def need_npm():
    if not any(os.access(os.path.join(d, "npm"), os.X_OK)
               for d in ["/usr/bin", "/usr/local/bin", *os.environ["PATH"].split(":")]):
        print("npm is not installed: layers are not built from a registry here")
        return False
    return True


def test_registry(tmp):
    if not need_npm():
        return
    reg = Registry()
    try:
        h = Home(tmp, reg.url)
        reg.put("demo", "1.2.3", tarball(GOOD))
        reg.put("@acme/demo", "1.2.3", tarball(GOOD))
        # a project's own configuration is none of ours
        with open(os.path.join(tmp, ".npmrc"), "w") as f:
            f.write("registry=http://127.0.0.1:1/\n")
        p = h.build(env={"npm_config_userconfig": "/dev/null"})
        assert p.returncode == 0 and p.stdout.endswith("built\n"), p
        assert not os.path.exists("/tmp/never")
        first = h.layers()
        assert len(first) == 1 and first[0].startswith("demo-1.2.3-"), first
        top = extract(p.stdout.split()[0], os.path.join(tmp, "x"))
        assert os.path.exists(os.path.join(top, "usr/local/bin/demo"))
        with open(h.lock) as f:
            lock = json.load(f)
        assert lock == {"schema": 1, "npm": {"demo@1.2.3": reg.integrity[("demo", "1.2.3")]}}, lock
        # once more: nothing to do, nobody asked
        os.unlink(os.path.join(tmp, ".npmrc"))
        n = len(reg.seen)
        p = h.build()
        assert p.stdout.endswith("there already\n") and len(reg.seen) == n, p
        p = h.build("@acme/demo")
        assert p.returncode == 0 and len(h.layers()) == 2 and h.layers()[0].startswith("acme.demo-1.2.3-"), p
        # the registry changes its mind about a version: the lock does not
        other = tarball([*GOOD, ("package/more", REG, b"evil")])
        reg.put("demo", "1.2.3", other)
        shutil.rmtree(os.path.join(h.images, "layers", first[0]))
        h.fresh_npm()
        p = h.build()
        assert p.returncode == 3 and "is not the one that was locked" in p.stderr, p
        left = os.listdir(os.path.join(h.images, "layers"))
        assert len(h.layers()) == 1 and not [x for x in left if x.startswith(".tmp")], left
        # a damaged lock file is no reason to take anything
        with open(h.lock, "w") as f:
            f.write("{}")
        p = h.build()
        assert p.returncode == 3 and "lock file" in p.stderr and "is damaged" in p.stderr, p
        os.unlink(h.lock)
        # what the registry names is not what it gives
        reg.put("demo", "1.2.3", other, integrity=reg.integrity[("@acme/demo", "1.2.3")])
        h.fresh_npm()
        p = h.build()
        assert p.returncode != 0 and "integrity" in p.stderr, p
        reg.put("demo", "1.2.3", other, integrity="sha1-" + base64.b64encode(
            hashlib.sha1(other).digest()).decode())
        h.fresh_npm()
        p = h.build()
        assert p.returncode != 0 and "names no SHA-512" in p.stderr, p
        assert not os.path.exists(h.lock)
        # npm's own words
        p = h.build("absent")
        assert "npm cannot fetch absent@1.2.3: 404" in p.stderr and "hint: npm view" in p.stderr, p
        p = h.build("demo", "9.9.9")
        assert "npm cannot fetch demo@9.9.9: " in p.stderr and "version" in p.stderr, p
        p = h.build(env={"npm_config_registry": "http://127.0.0.1:1/"})
        assert p.returncode != 0 and "ECONNREFUSED" in p.stderr, p
    finally:
        reg.close()


def test_cache(tmp):
    """Layers are listed, verified and removed as images are."""
    if not need_npm():
        return
    reg = Registry()
    try:
        h = Home(tmp, reg.url)
        reg.put("demo", "1.2.3", tarball(GOOD))
        reg.put("@acme/demo", "1.2.3", tarball(GOOD))
        for name in ("demo", "@acme/demo"):
            assert h.build(name).returncode == 0
        p = h.image("ls", "--json")
        got = assert_valid(p.stdout, "images")
        acme, demo = got["layers"]
        assert acme["package"] == "@acme/demo" and demo["package"] == "demo", got
        assert demo["version"] == "1.2.3" and demo["integrity"] == reg.integrity[("demo", "1.2.3")], got
        assert demo["id"] in h.image("ls").stdout and got["images"] == [], p
        p = h.image("verify", demo["id"])
        assert p.returncode == 0 and "intact" in p.stderr, p
        path = os.path.join(h.images, "layers", demo["id"], "layer.erofs")
        with open(path, "r+b") as f:
            f.seek(5000)
            f.write(b"#")
        p = h.image("verify", demo["id"])
        assert p.returncode == 125 and "is damaged" in p.stderr and "cloche image rm" in p.stderr, p
        os.truncate(path, os.path.getsize(path) - 4096)     # seen without reading all: made again
        p = h.build()
        assert p.returncode == 0 and p.stdout.endswith(" built\n"), p
        assert h.image("verify", demo["id"]).returncode == 0
        p = h.image("rm", "@acme/demo")
        assert p.returncode == 0 and "1 image removed" in p.stderr, p
        p = h.image("rm", demo["id"])
        assert p.returncode == 0 and h.layers() == [], p
        p = h.image("rm", "demo")
        assert p.returncode == 125 and "no such image" in p.stderr, p
    finally:
        reg.close()


def test_names(tmp):
    h = Home(tmp, "http://127.0.0.1:1/")
    for name, version, word in [("../x", "1.2.3", "name of a package"), ("-g", "1.2.3", "name of a package"),
                                ("demo", "latest", "exact version"), ("demo", "^1.2.3", "exact version"),
                                ("demo", "1.2", "exact version"), ("Demo", "1.2.3", "name of a package"),
                                ("git+ssh://x/y", "1.2.3", "name of a package")]:
        p = h.build(name, version)
        assert p.returncode == 4 and word in p.stderr, (name, version, p)


mini.main(globals())
