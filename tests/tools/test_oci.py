# SPDX-License-Identifier: Apache-2.0
"""The caged workers for images of somebody else: layers merged as the specification says, and
everything that a layer, a manifest or a config may not say refused with its reason."""
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

import mini

IMAGE = os.path.abspath(sys.argv[1])             # cloche-image
DIR, SYM, LNK, CHR, FIFO = "dir", "symlink", "hard link", "device", "fifo"
KIND = {DIR: tarfile.DIRTYPE, SYM: tarfile.SYMTYPE, LNK: tarfile.LNKTYPE, CHR: tarfile.CHRTYPE, FIFO: tarfile.FIFOTYPE}


def layer(*entries):
    """(name, bytes) a file, (name, kind[, link text]); a dict behind it: mode, uid, gid."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, what, *rest in entries:
            ti = tarfile.TarInfo(name)
            more = rest.pop() if rest and isinstance(rest[-1], dict) else {}
            ti.mode = more.get("mode", 0o755 if what == DIR else 0o644)
            ti.uid, ti.gid = more.get("uid", 0), more.get("gid", 0)
            data = None if what in KIND else what
            if data is None:
                ti.type = KIND[what]
                ti.linkname = rest[0] if rest else ""
            else:
                ti.size = len(data)
            ti.pax_headers = more.get("pax", {})
            t.addfile(ti, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def merge(tmp, *blobs, sums=None):
    """Run the worker: (status, stderr, its report, path of the image)."""
    out = os.path.join(tmp, "out.erofs")
    files = []
    args = []
    for i, b in enumerate(blobs):
        path = os.path.join(tmp, f"layer{i}")
        with open(path, "wb") as f:
            f.write(b)
        files.append(os.open(path, os.O_RDONLY))
        hexa, size = sums[i] if sums else (hashlib.sha256(b).hexdigest(), len(b))
        args.append(f"{hexa}:{size}")
    o = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    high = [os.dup2(fd, 200 + i) for i, fd in enumerate(files + [o])]

    def place():
        for i in range(len(files)):
            os.dup2(200 + i, 10 + i)
        os.dup2(high[-1], 3)

    p = subprocess.run([IMAGE, "oci-merge", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env={}, preexec_fn=place,
                       pass_fds=[3] + [10 + i for i in range(len(files))], timeout=120)
    for fd in files + [o] + high:
        os.close(fd)
    return p.returncode, p.stderr.decode(), p.stdout, out


def tree(tmp, image):
    top = os.path.join(tmp, "x")
    shutil.rmtree(top, ignore_errors=True)
    p = subprocess.run(["fsck.erofs", f"--extract={top}", image], capture_output=True)
    assert p.returncode == 0, p.stdout.decode()
    out = {}
    for d, dirs, files in os.walk(top):
        for n in dirs + files:
            path = os.path.join(d, n)
            rel = os.path.relpath(path, top)
            if os.path.islink(path):
                out[rel] = "->" + os.readlink(path)
            elif os.path.isdir(path):
                out[rel] = None
            else:
                with open(path, "rb") as f:
                    out[rel] = f.read()
    return out


def good(tmp, *layers):
    rc, err, rep, image = merge(tmp, *layers)
    assert rc == 0, err
    return tree(tmp, image)


def test_merge(tmp):
    low = layer(("a", DIR), ("a/one", b"1"), ("a/two", b"2"), ("b", b"file"), ("l", SYM, "a/one"),
                ("h", LNK, "a/one"), ("e", b""))
    assert good(tmp, low) == {"a": None, "a/one": b"1", "a/two": b"2", "b": b"file", "l": "->a/one",
                              "h": b"1", "e": b""}
    # replaced: file by folder, folder by file, link by file
    up = layer(("b", DIR), ("b/x", b"x"), ("a", b"now a file"), ("l", b"no link"))
    assert good(tmp, low, up) == {"a": b"now a file", "b": None, "b/x": b"x", "l": b"no link", "h": b"1",
                                  "e": b""}
    # a folder on a folder takes the new owner and keeps what it has
    got = merge(tmp, low, layer(("a", DIR, {"mode": 0o700, "uid": 7, "gid": 8})))
    assert got[0] == 0 and set(tree(tmp, got[3])) >= {"a/one", "a/two"}
    if os.getuid() == 0:
        st = os.stat(os.path.join(tmp, "x", "a"))
        assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (7, 8, 0o700), st
    # whiteouts: of a file, of a folder, and of what is not there
    for mark, gone in ((".wh.b", {"b"}), ("a/.wh.one", {"a/one"}), (".wh.a", {"a", "a/one", "a/two"}),
                       (".wh.nope", set()), ("nope/.wh.x", set()), ("./a/.wh.one", {"a/one"})):
        want = set(good(tmp, low)) - gone
        assert set(good(tmp, low, layer((mark, b"")))) == want, mark
    # the layer's own entries stay, in either order; so for opaque folders
    for order in (0, 1):
        two = [(".wh.a", b""), ("a/new", b"n")]
        got = good(tmp, low, layer(*(two[::-1] if order else two)))
        assert {k for k in got if k.startswith("a")} == {"a", "a/new"}, got
        two = [("a/.wh..wh..opq", b""), ("a/new", b"n")]
        got = good(tmp, low, layer(("a", DIR), *(two[::-1] if order else two)))
        assert {k for k in got if k.startswith("a")} == {"a", "a/new"}, got
    # in the same layer a mark does not touch what the layer has; in the next it does
    assert good(tmp, low, layer(("c", b"c"), (".wh.c", b"")))["c"] == b"c"
    assert "c" not in good(tmp, low, layer(("c", b"c")), layer((".wh.c", b"")))
    assert set(good(tmp, low, layer((".wh..wh..opq", b""), ("only", b"o")))) == {"only"}
    # a hard link to a file of a lower layer; and its target may go then
    got = good(tmp, low, layer(("again", LNK, "a/two"), ("a/.wh.two", b"")))
    assert got["again"] == b"2" and "a/two" not in got, got
    # marks of aufs for itself are dropped
    assert set(good(tmp, low, layer((".wh..wh.plnk", DIR), (".wh..wh.aufs", b"")))) == set(good(tmp, low))


def test_forms(tmp):
    low = layer(("bin", DIR), ("bin/sh", b"#!"), ("x", b"1"))
    rc, err, rep, _ = merge(tmp, low)
    assert rc == 0 and b"sh" in rep and b"nosh" not in rep, rep
    assert b"nosh" in merge(tmp, layer(("x", b"1")))[2]
    assert good(tmp, gzip.compress(low)) == good(tmp, low)
    zstd = shutil.which("zstd")
    if zstd:
        z = subprocess.run([zstd, "-q", "-c"], input=low, stdout=subprocess.PIPE, check=True).stdout
        assert good(tmp, z) == good(tmp, low)
    # empty layers are legal, and so is an image of none
    assert good(tmp, layer(), low, gzip.compress(layer())) == good(tmp, low)
    assert good(tmp) == {}
    assert good(tmp, low, b"") == good(tmp, low)
    # what lies behind the end of an archive is hashed, and nothing else
    assert good(tmp, low + bytes(100000)) == good(tmp, low)
    assert good(tmp, layer(("./", DIR, {"mode": 0o700}), ("y", b"2"))) == {"y": b"2"}
    assert os.stat(os.path.join(tmp, "x")).st_mode & 0o7777 == 0o700
    # devices of /dev are the guest's
    assert good(tmp, layer(("dev", DIR), ("dev/null", CHR), ("y", b"2"))) == {"dev": None, "y": b"2"}


def test_wrong_blobs(tmp):
    one, two = layer(("a", b"1")), layer(("b", b"2"))
    s = [(hashlib.sha256(x).hexdigest(), len(x)) for x in (one, two)]
    for blobs, why in (((one, two[:-512]), "cut"), ((one, two + b"x"), "more"), ((one, b""), "empty"),
                       ((one, b"\x1f\x8b" + two[2:]), "other bytes"), ((one, os.urandom(len(two))), "noise")):
        rc, err, rep, _ = merge(tmp, *blobs, sums=s)
        assert rc == 3 and s[1][0].encode() in rep, (why, rc, err)
    # damaged, but it is what was meant: refused, and not fetched again and again
    for bad in (b"\x1f\x8bnothing", os.urandom(4096), gzip.compress(one)[:-20]):
        rc, err, _, _ = merge(tmp, one, bad)
        assert rc == 4 and "archive" in err, (rc, err)


def test_hostile(tmp):
    link = layer(("evil", SYM, "/etc"), ("d", DIR), ("f", b"x"))
    cases = [
        ("up", [layer(("../x", b"1"))], "../x"),
        ("up in the middle", [layer(("a/../../x", b"1"))], "is refused"),
        ("absolute", [layer(("/etc/x", b"1"))], "/etc/x"),
        ("through a link of its own", [layer(("evil", SYM, "/etc"), ("evil/x", b"1"))], "through a link"),
        ("through a link below", [link, layer(("evil/x", b"1"))], "through a link"),
        ("through a file", [link, layer(("f/x", b"1"))], "is refused"),
        ("a hard link that is absolute", [layer(("a", b"1"), ("b", LNK, "/etc/passwd"))], "'b'"),
        ("a hard link up", [layer(("a", b"1"), ("b", LNK, "../../etc/passwd"))], "'b'"),
        ("a hard link through a link", [link, layer(("b", LNK, "evil/passwd"))], "'b'"),
        ("a hard link to a folder", [link, layer(("b", LNK, "d"))], "'b'"),
        ("a hard link to nothing", [layer(("b", LNK, "nope"))], "'b'"),
        ("a device", [layer(("x", CHR))], "is a device"),
        ("a fifo", [layer(("x", FIFO))], "is a device"),
        ("removes what it is in", [layer(("a/.wh..", b""))], "from within"),
        ("removes the root", [layer((".wh.", b""))], "from within"),
        ("removes what is above", [layer(("a/.wh...", b""))], "from within"),
        ("opaque where no folder is", [link, layer(("f/.wh..wh..opq", b""))], "no folder"),
        ("opaque through a link", [link, layer(("evil/.wh..wh..opq", b""))], "no folder"),
        ("a name with nothing in it", [layer(("a//b", b"1"))], "is refused"),
        ("a file where the guest mounts", [layer(("proc", b"1"))], "/proc is no folder"),
        ("a link where the guest mounts", [layer(("dev", SYM, "/x"))], "/dev is no folder"),
        ("too deep", [layer(("a/" * 200 + "x", b"1"))], "is refused"),
    ]
    for why, layers, word in cases:
        rc, err, _, _ = merge(tmp, *layers)
        assert rc == 4 and word in err and "\x1b" not in err and err.count("\n") == 1, (why, rc, err)
    # a mark through a link removes nothing anywhere
    assert "evil" in good(tmp, link, layer(("evil/.wh.passwd", b"")))


def big_layer(count):
    """A gzip of many empty files, made block by block."""
    out = io.BytesIO()
    block = tarfile.TarInfo("f00000000").tobuf(tarfile.USTAR_FORMAT)
    zeros = int(block[148:154], 8)
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as z:
        for at in range(0, count, 10000):
            part = []
            for i in range(at, min(at + 10000, count)):
                n = b"%08d" % i
                part.append(b"f" + n + block[9:148] + b"%06o" % (zeros + sum(n) - 8 * 48) + block[154:])
            z.write(b"".join(part))
        z.write(bytes(1024))
    return out.getvalue()


def test_bombs(tmp):
    rc, err, _, _ = merge(tmp, big_layer(1000 * 1000 + 10))
    assert rc == 4 and "over a limit" in err, (rc, err)
    # 40 GiB of nothing
    ti = tarfile.TarInfo("huge")
    ti.size = 40 << 30
    rc, err, _, image = merge(tmp, gzip.compress(ti.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    assert rc == 4 and "over a limit" in err, (rc, err)
    assert os.path.getsize(image) < 1 << 30


def read(what, text):
    p = None
    r, w = os.memfd_create("in"), os.memfd_create("out")
    os.write(r, text if isinstance(text, bytes) else json.dumps(text).encode())
    os.lseek(r, 0, 0)
    h = os.dup2(w, 60)
    p = subprocess.run([IMAGE, "oci-read", what], stdin=r, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                       env={}, pass_fds=(3,), preexec_fn=lambda: os.dup2(h, 3), timeout=30)
    out = os.pread(w, 1 << 20, 0)
    for fd in (r, w, h):
        os.close(fd)
    return p.returncode, p.stderr.decode(), out


D = "sha256:" + "0" * 64


def manifest(**more):
    return {"schemaVersion": 2, "config": {"digest": D, "size": 2}, "layers": [{"digest": D, "size": 3}], **more}


def test_documents(tmp):
    del tmp
    rc, err, out = read("root", manifest())
    assert rc == 0 and out == f"config={D} 2\0layer={D} 3\0".encode(), (err, out)

    def index(*ps):
        return {"schemaVersion": 2, "manifests": [{"digest": D, "size": 9, "platform": p} for p in ps]}
    arm, amd = {"os": "linux", "architecture": "arm64"}, {"os": "linux", "architecture": "amd64"}
    rc, err, out = read("root", index(arm, amd))
    assert rc == 0 and out == f"manifest={D} 9\0".encode(), (err, out)
    for doc, code, word in [
            (index(arm, {"os": "windows", "architecture": "amd64"}), 5, "made for linux/arm64, windows/amd64"),
            (index(dict(amd, variant="v3")), 5, "not for linux/amd64"), (index(), 5, "made for nothing"),
            (b"", 4, "no JSON"), (b"[]", 4, "no JSON"), (b"\xff\xfe", 4, "no JSON"), ({}, 4, "schema 2"),
            (manifest(schemaVersion=1), 4, "schema 2"), (manifest(manifests=[]), 4, "neither"),
            (b'{"schemaVersion":2,"schemaVersion":2,"layers":[]}', 4, "no JSON"),
            (manifest(config={"digest": "sha256:0", "size": 1}), 4, "SHA-256"),
            (manifest(config={"digest": D}), 4, "no size"), (manifest(config={"digest": D, "size": -1}), 4, "no size"),
            (manifest(config={"digest": D, "size": 5 << 20}), 4, "too large"),
            (manifest(layers=[{"digest": D, "size": 1, "mediaType": "text/\x1b[2J"}]), 4, "no archive"),
            (manifest(layers=[{"digest": D, "size": 1}] * 128), 4, "127 layers"),
            (manifest(layers=[7]), 4, "SHA-256")]:
        rc, err, out = read("root", doc)
        assert rc == code and word in err and "\x1b" not in err, (doc, rc, err)
    assert read("root", manifest(layers=[{"digest": D, "size": 1}] * 127))[0] == 0

    def config(c=None, **more):
        return {"os": "linux", "architecture": "amd64", "config": c, **more}
    rc, err, out = read("config", config({"User": "a", "WorkingDir": "/w", "Env": ["A=b"], "Entrypoint": ["/e"],
                                          "Cmd": ["c"], "Labels": {"l": "v"}}))
    assert rc == 0, err
    assert out == b"os=linux\0arch=amd64\0user=a\0workdir=/w\0env=A=b\0entrypoint=/e\0cmd=c\0label=l\0value=v\0", out
    assert read("config", config())[2] == b"os=linux\0arch=amd64\0user=\0workdir=\0"
    for doc, code, word in [(config(architecture="arm64"), 5, "linux/arm64"), (config(os="plan9"), 5, "plan9"),
                            (config({"User": 7}), 4, "wrong text"), (config({"Env": "A=b"}), 4, "wrong Env"),
                            (config({"Cmd": [1]}), 4, "wrong Cmd"), (config({"Labels": []}), 4, "wrong Labels"),
                            (config([]), 4, "wrong config"), (config({"Env": ["A=b"] * 4097}), 4, "more than 4096"),
                            (config({"Env": ["A=" + "b" * (1 << 20)]}), 4, "too large"),
                            (b'{"os":"linux","architecture":"amd64","config":{"User":"a\\u0000b"}}', 4, "no JSON")]:
        rc, err, out = read("config", doc)
        assert rc == code and word in err, (doc, rc, err)


mini.main(globals())
