# SPDX-License-Identifier: Apache-2.0
"""Images of somebody else: the user's skopeo against Debian's docker-registry on loopback."""
import json
import os
import pty
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
from registrylib import DOCKER_MANIFEST, Image, Registry, digest, program, tar_of  # noqa: E402
from schema import assert_valid  # noqa: E402

CLOCHE = os.path.abspath(sys.argv[1])
# a cosign that knows one key and one digest; Debian 12 has none
COSIGN = """#!/bin/sh
echo "$@" >>%(log)s
[ "$1" = verify ] || exit 9
case "$*" in *@%(good)s) exit 0;; esac
echo 'Error: no matching signatures: \x1b[31mbad' >&2
exit 1
"""


def layer(text=b"hello\n", size=0):
    return tar_of([("etc", "d"), ("etc/x", "f", text), ("etc/nonce", "f", secrets.token_bytes(16)),
                   *([("big", "f", os.urandom(size))] if size else [])])


class Home:
    """A user with a cache, a login and a configuration of their own."""

    def __init__(self, tmp, name="u"):
        self.top = os.path.join(tmp, name)
        os.makedirs(os.path.join(self.top, ".config", "cloche"))
        self.extra = {}

    @property
    def env(self):
        return {"HOME": self.top, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **self.extra}

    def config(self, text):
        with open(os.path.join(self.top, ".config", "cloche", "config.yaml"), "w") as f:
            f.write(text)

    def policy(self, doc):
        path = os.path.join(self.top, ".config", "containers")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "policy.json"), "w") as f:
            json.dump(doc, f)

    def start(self, *args, **kw):
        return subprocess.Popen([CLOCHE, *args], env=self.env, stdin=subprocess.DEVNULL, cwd=self.top,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)

    def cloche(self, *args):
        p = self.start(*args)
        p.out, p.err = p.communicate(timeout=120)
        assert "\x1b" not in p.out + p.err, (p.out, p.err)
        assert not [line for line in p.err.splitlines() if "level=" in line], p.err   # no plumbing
        return p

    def pull(self, ref, *flags, rc=0):
        p = self.cloche("image", "pull", ref, *flags)
        assert p.returncode == rc, (p.returncode, p.out, p.err)
        return p

    def oci(self, *more):
        return os.path.join(self.top, ".cache", "cloche", "images", "oci", *more)

    def blobs(self):
        return sorted(os.listdir(self.oci("blobs", "sha256")))

    def images(self):
        return sorted(n for n in os.listdir(self.oci()) if len(n) == 64)

    def lock(self):
        with open(os.path.join(self.top, ".local", "state", "cloche", "images.lock.json")) as f:
            return json.load(f).get("oci", {})

    def rootfs(self, d):
        return self.oci(d[7:], "rootfs.erofs")

    def file_of(self, d, name):
        to = os.path.join(self.top, "x" + secrets.token_hex(4))
        p = subprocess.run(["fsck.erofs", f"--extract={to}", self.rootfs(d)], capture_output=True)
        assert p.returncode == 0, p
        with open(os.path.join(to, name), "rb") as f:
            return f.read()


class Lab:
    def __init__(self, tmp, tls=True):
        self.reg = Registry(os.path.join(tmp, "registry"), tls=tls)
        self.home = Home(tmp)
        self.tmp = tmp

    def __enter__(self):
        self.reg.start()
        self.reg.trust(self.home.top)
        return self.reg, self.home

    def __exit__(self, *exc):
        self.reg.stop()


def test_pull_and_offline(tmp):
    with Lab(tmp) as (reg, u):
        for docker in (True, False):        # Docker's media types, and OCI's
            name = f"t/x{int(docker)}"
            amd = Image([layer(b"one\n"), layer(b"two\n")], {"Env": ["A=b"], "Cmd": ["/bin/sh"], "User": "web",
                                                            "WorkingDir": "/w", "Entrypoint": ["/e"],
                                                            "Labels": {"l": "v"}}, docker=docker)
            arm = Image([layer()], {}, arch="arm64", docker=docker)
            d = reg.push(name, "1", arm, amd, docker=docker)
            p = u.pull(f"{reg.host}/{name}:1")
            assert p.out == d + "\n" and "nobody vouches" in p.err, (p.out, p.err)
            assert u.file_of(d, "etc/x") == b"two\n"
            assert u.lock()[f"docker://{reg.host}/{name}:1"] == d, u.lock()
            got = assert_valid(u.cloche("image", "inspect", d[7:19], "--json").out, "image")
            assert got["digest"] == d and got["ref"] == f"docker://{reg.host}/{name}:1", got
            assert got["vouched"] == "nobody" and got["config"]["user"] == "web", got
            assert got["config"]["entrypoint"] == ["/e"] and got["config"]["cmd"] == ["/bin/sh"], got
            assert got["config"]["workdir"] == "/w" and got["config"]["env"] == ["A=b"], got
            # the root of everything lies in the cache as it was published
            with open(u.oci("blobs", "sha256", d[7:]), "rb") as f:
                assert digest(f.read()) == d
        ls = assert_valid(u.cloche("image", "ls", "--json").out, "images")
        assert [x["digest"] for x in ls["foreign"]] and len(ls["foreign"]) == 2, ls
        assert d[7:19] in u.cloche("image", "ls").out
        # the same image again is not fetched again
        before = os.stat(u.rootfs(d)).st_ino
        u.pull(f"{reg.host}/t/x0:1")
        assert os.stat(u.rootfs(d)).st_ino == before
        reg.stop()
        p = u.pull(f"{reg.host}/t/x0:1", rc=125)
        assert "cannot reach" in p.err and "--pull never" in p.err, p.err
        # a refresh that fails loses nothing (the entry, the image, the lock)
        assert json.loads(u.cloche("image", "inspect", f"{reg.host}/t/x0:1", "--json").out)["digest"] == d
        p = u.cloche("info", "shell", u.top, "--allow-home", "--image", f"{reg.host}/t/x0:1", "--json")
        assert json.loads(p.out)["foreign_image"] == {"ref": f"docker://{reg.host}/t/x0:1", "cached": True,
                                                      "digest": d, "vouched": "nobody", "user": "web"}, p.out
        p = u.cloche("image", "rm", f"{reg.host}/t/x0:1")
        assert p.returncode == 0 and d[7:] not in u.images(), p.err
        assert u.cloche("image", "rm", f"{reg.host}/t/x0:1").returncode == 125


def test_pins(tmp):
    with Lab(tmp) as (reg, u):
        one, two = Image([layer(b"1")], {}), Image([layer(b"2")], {}, docker=False)
        d1 = reg.push("t/x", "1", one)
        assert u.pull(f"{reg.host}/t/x@{d1}").out == d1 + "\n"
        assert u.pull(f"{reg.host}/t/x:1").out == d1 + "\n"
        # the tag moves: both digests are said, and the pin still means what it meant
        d2 = reg.push("t/x", "1", two)
        p = u.pull(f"{reg.host}/t/x:1")
        assert p.out == d2 + "\n" and d1 in p.err and d2 in p.err and "moved" in p.err, p.err
        assert u.pull(f"{reg.host}/t/x:1@{d1}").out == d1 + "\n"
        assert u.file_of(d1, "etc/x") == b"1" and u.file_of(d2, "etc/x") == b"2"
        # said also when the cache was emptied in between: the lock file knows
        shutil.rmtree(u.oci())
        d3 = reg.push("t/x", "1", one)
        p = u.pull(f"{reg.host}/t/x:1")
        assert d3 == d1 and d2 in p.err and "moved" in p.err, p.err
        # a digest that the registry does not have, and one under which it has other bytes
        p = u.pull(f"{reg.host}/t/x@sha256:{'0' * 64}", rc=125)
        assert "there is no image" in p.err, p.err
        with open(reg.blob_file(d1), "wb") as f:
            f.write(two.manifest)
        shutil.rmtree(u.oci())
        p = u.pull(f"{reg.host}/t/x@{d1}", rc=125)
        assert "no image" in p.err or "other bytes" in p.err or d1 in p.err, p.err
        assert u.images() == [], p.err


def test_refusals(tmp):
    with Lab(tmp) as (reg, u):
        ref = f"{reg.host}/t/x:1"
        reg.push("t/x", "1", Image([layer()], {}))
        reg.trust(u.top, password="wrong")
        p = u.pull(ref, rc=125)
        assert "credentials" in p.err and f"skopeo login {reg.host}" in p.err, p.err
        os.remove(os.path.join(u.top, ".docker", "config.json"))
        p = u.pull(ref, rc=125)
        assert "credentials" in p.err, p.err
        reg.trust(u.top)
        p = u.pull(f"{reg.host}/t/x:2", rc=125)
        assert f"there is no image '{reg.host}/t/x:2'" in p.err, p.err
        # not for this machine: of a list, and alone
        arm, s390 = Image([layer()], {}, arch="arm64"), Image([layer()], {}, arch="s390x")
        reg.push("t/arms", "1", arm, s390)
        reg.push("t/arm", "1", arm)
        p = u.pull(f"{reg.host}/t/arms:1", rc=125)
        assert "linux/amd64" in p.err, p.err
        p = u.pull(f"{reg.host}/t/arm:1", rc=125)
        assert "arm64" in p.err, p.err
        # a CA that nobody trusts
        shutil.rmtree(os.path.join(u.top, ".config", "containers"))
        p = u.pull(ref, rc=125)
        assert "no trusted connection" in p.err and f"certs.d/{reg.host}/ca.crt" in p.err, p.err
        reg.trust(u.top)
        # a helper for credentials that is broken: its words, as a login is needed
        with open(os.path.join(u.top, ".docker", "config.json"), "w") as f:
            json.dump({"credHelpers": {reg.host: "nope"}}, f)
        p = u.pull(ref, rc=125)
        assert "nope" in p.err or "credentials" in p.err, p.err
        p = u.pull("nohost.invalid/x", rc=125)
        assert "cannot reach nohost.invalid" in p.err, p.err
        for word in ("--help", "a b", "-x", "https://h/x", "a;id", "x@sha256:12"):
            p = u.cloche("image", "pull", word)
            assert p.returncode in (0, 2) and (p.returncode == 2 or word == "--help"), (word, p.err)
        assert u.images() == []
    # without skopeo the apt line is said
    u.extra["PATH"] = "/nonexistent"
    sys.stdout.flush()


def test_helper_falls_back(tmp):
    """A registry without a login: a broken credential helper does not matter."""
    reg = Registry(os.path.join(tmp, "registry"), tls=True, user=None)
    u = Home(tmp)
    with reg:
        reg.trust(u.top, login=False)
        os.makedirs(os.path.join(u.top, ".docker"))
        with open(os.path.join(u.top, ".docker", "config.json"), "w") as f:
            json.dump({"credHelpers": {reg.host: "nope"}}, f)
        d = reg.push("t/x", "1", Image([layer()], {}))
        assert u.pull(f"{reg.host}/t/x:1").out == d + "\n"


def test_ordinary_user(tmp):
    """Whoever root is: no folder of root's matters, and owners in the image are as they were."""
    if os.getuid() != 0:
        return
    who = pwd.getpwnam("games")
    with Lab(tmp) as (reg, u):
        os.chmod(tmp, 0o755)
        d = reg.push("t/x", "1", Image([tar_of([("etc", "d"), ("etc/x", "f", b"x", 0o640, 7, 8)])], {}))
        for top, dirs, files in os.walk(u.top):
            for n in [top, *[os.path.join(top, x) for x in dirs + files]]:
                os.chown(n, who.pw_uid, who.pw_gid)
        try:
            p = subprocess.run([CLOCHE, "image", "pull", f"{reg.host}/t/x:1"], env=u.env, cwd=u.top,
                               timeout=120, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               user=who.pw_uid, group=who.pw_gid, extra_groups=[])
        except PermissionError:
            return      # the build lies where others may not look
        assert p.returncode == 0 and p.stdout == d + "\n", p
        assert os.stat(u.rootfs(d)).st_uid == who.pw_uid
        assert u.file_of(d, "etc/x") == b"x"
        got = [os.stat(os.path.join(top, "x")) for top, _, files in os.walk(u.top) if "x" in files]
        assert [(s.st_uid, s.st_gid, s.st_mode & 0o777) for s in got] == [(7, 8, 0o640)], got


def test_plain_http(tmp):
    """Only where registries.conf says so."""
    with Lab(tmp, tls=False) as (reg, u):
        d = reg.push("t/x", "1", Image([layer()], {}))
        p = u.pull(f"{reg.host}/t/x:1", rc=125)
        assert "no trusted connection" in p.err and "insecure = true" in p.err, p.err
        reg.trust(u.top, insecure=True)
        assert u.pull(f"{reg.host}/t/x:1").out == d + "\n"


def test_broken_layers(tmp):
    with Lab(tmp) as (reg, u):
        img = Image([layer(b"one\n"), layer(b"two\n")], {})
        d = reg.push("t/x", "1", img)
        ref = f"{reg.host}/t/x:1"
        # at the registry: refused, nothing is kept under the name
        path = reg.blob_file(img.layers[1])
        with open(path, "rb") as f:
            good = f.read()
        with open(path, "wb") as f:
            f.write(good[:-1] + bytes([good[-1] ^ 1]))
        p = u.pull(ref, rc=125)
        assert "other bytes" in p.err, p.err
        assert u.images() == []
        with open(path, "wb") as f:
            f.write(good)
        u.pull(ref)
        # in the cache: truncated, other bytes, missing; only what is needed is fetched again
        blob = u.oci("blobs", "sha256", img.layers[1][7:])
        for damage in ("cut", "flip", "gone"):
            shutil.rmtree(u.oci(d[7:]))
            if damage == "cut":
                os.truncate(blob, 10)
            elif damage == "flip":
                with open(blob, "r+b") as f:
                    f.write(b"x")
            else:
                os.remove(blob)
            other = u.oci("blobs", "sha256", img.layers[0][7:])
            ino = os.stat(other).st_ino
            u.pull(ref)
            with open(blob, "rb") as f:
                assert digest(f.read()) == img.layers[1], damage
            assert os.stat(other).st_ino == ino, damage
            assert u.file_of(d, "etc/x") == b"two\n"
        # the image itself: cut is seen at once, other bytes by verify; both are made again
        os.truncate(u.rootfs(d), os.path.getsize(u.rootfs(d)) - 4096)
        assert u.cloche("image", "verify", ref).returncode == 125
        u.pull(ref)
        assert u.cloche("image", "verify", ref).returncode == 0
        with open(u.rootfs(d), "r+b") as f:
            f.seek(2000)
            f.write(b"#")
        p = u.cloche("image", "verify", d)
        assert p.returncode == 125 and "damaged" in p.err, p.err


def test_killed(tmp):
    """kill -9 at any time: the next pull heals, and leaves nothing of the first."""
    with Lab(tmp) as (reg, u):
        img = Image([layer(b"one\n", 8 << 20), layer(b"two\n", 8 << 20)], {})
        d = reg.push("t/x", "1", img)
        ref = f"{reg.host}/t/x:1"
        done = 0
        for wait in (0.02, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8):
            p = u.start("image", "pull", ref)
            time.sleep(wait)
            done += p.poll() is not None
            p.send_signal(signal.SIGKILL)
            p.communicate()
            with open(os.path.join(u.top, "n"), "w"):
                pass
        u.pull(ref)
        assert u.file_of(d, "etc/x") == b"two\n" and u.images() == [d[7:]]
        left = [n for n in os.listdir(u.oci()) if n.startswith(".tmp-")]
        assert left == [], left
        assert u.cloche("image", "verify", d).returncode == 0
        assert done < 7


def test_two_at_once(tmp):
    with Lab(tmp) as (reg, u):
        d = reg.push("t/x", "1", Image([layer(b"one\n", 8 << 20)], {}))
        ps = [u.start("image", "pull", f"{reg.host}/t/x:1") for _ in range(4)]
        outs = [p.communicate(timeout=120) for p in ps]
        assert all(p.returncode == 0 for p in ps), outs
        assert {o for o, _ in outs} == {d + "\n"}, outs
        assert sum("finishing" in e for _, e in outs) == 1, outs
        assert u.images() == [d[7:]]


def test_policy(tmp):
    any_, no = [{"type": "insecureAcceptAnything"}], [{"type": "reject"}]
    with Lab(tmp) as (reg, u):
        signed = [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": os.path.join(tmp, "key.gpg")}]
        with open(os.path.join(tmp, "key.gpg"), "wb") as f:
            f.write(b"no key")
        d = reg.push("t/x", "1", Image([layer()], {}))
        ref = f"{reg.host}/t/x:1"
        # off: nobody is asked; warn: what is refused is refused without a terminal
        u.policy({"default": no})
        p = u.pull(ref, rc=125)
        assert "rejected" in p.err and "nothing was fetched" in p.err and u.images() == [], p.err
        u.policy({"default": any_, "transports": {"docker": {f"{reg.host}/t": signed}}})
        p = u.pull(ref, rc=125)
        assert "nothing was fetched" in p.err, p.err
        u.config("image: {verify: 'off'}\n")
        assert u.pull(ref).out == d + "\n"
        # require: what came without a check is not used
        u.config("image: {verify: require}\n")
        p = u.cloche("info", "shell", u.top, "--allow-home", "--image", ref)
        assert p.returncode == 3 and "nobody vouched" in p.out, p.out
        p = u.pull(ref, rc=125)
        assert "nothing was fetched" in p.err, p.err
        u.policy({"default": any_})
        p = u.pull(ref, rc=125)
        assert "nothing here can tell who signed" in p.err and "policy.json" in p.err and \
            "cosign" in p.err, p.err
        u.policy({"default": any_, "transports": {"docker": {f"{reg.host}/t/x:1": signed}}})
        p = u.pull(ref, rc=125)
        assert "alone" in p.err and f"{reg.host}/t/x'" in p.err, p.err
        u.policy({"default": []})
        p = u.pull(ref, rc=125)
        assert "is damaged" in p.err, p.err
        # all spellings of a reference have one verdict
        u.policy({"default": any_, "transports": {"docker": {reg.host: no}}})
        for spelling in (ref, "docker://" + ref, "DOCKER://" + ref.replace("localhost", "LOCALHOST")):
            p = u.pull(spelling, rc=125)
            assert "rejected" in p.err, (spelling, p.err)


def test_policy_asks(tmp):
    """On a terminal the user may say yes; no is the default."""
    with Lab(tmp) as (reg, u):
        d = reg.push("t/x", "1", Image([layer()], {}))
        u.policy({"default": [{"type": "reject"}]})
        for answer, rc in ((b"n\n", 125), (b"\n", 125), (b"y\n", 0)):
            pid, fd = pty.fork()
            if pid == 0:
                os.chdir(u.top)
                os.execve(CLOCHE, ["cloche", "image", "pull", f"{reg.host}/t/x:1"], u.env)
            seen = b""
            end = time.monotonic() + 60
            while b"[y/N]" not in seen and time.monotonic() < end:
                seen += os.read(fd, 4096)
            os.write(fd, answer)
            rest = []

            def drain(fd=fd, rest=rest):
                try:
                    while True:
                        rest.append(os.read(fd, 4096))
                except OSError:
                    pass
            t = threading.Thread(target=drain)
            t.start()
            _, status = os.waitpid(pid, 0)
            t.join(10)
            os.close(fd)
            assert os.waitstatus_to_exitcode(status) == rc, (answer, seen, rest)
            assert b"rejected" in seen, seen
        assert u.images() == [d[7:]]


def test_cosign(tmp):
    with Lab(tmp) as (reg, u):
        one, two = Image([layer(b"1")], {}), Image([layer(b"2")], {})
        d1 = reg.push("t/x", "1", one)
        ref = f"{reg.host}/t/x:1"
        u.config("image: {verify: require, cosign_key: /keys/one.pub}\n")
        p = u.pull(ref, rc=125)
        assert "cosign is not installed" in p.err, p.err
        u.config("image: {verify: warn, cosign_key: /keys/one.pub}\n")
        p = u.pull(ref)
        assert "cosign is not installed" in p.err, p.err
        shutil.rmtree(u.oci())
        # the stub knows one digest; what it is asked is the digest that boots, never the tag
        bin_ = os.path.join(tmp, "bin")
        os.makedirs(bin_)
        log = os.path.join(tmp, "log")
        with open(os.path.join(bin_, "cosign"), "w") as f:
            f.write(COSIGN % {"log": log, "good": d1})
        os.chmod(os.path.join(bin_, "cosign"), 0o755)
        u.extra["PATH"] = f"/usr/bin:/bin:{bin_}"
        u.config("image: {verify: require, cosign_key: /keys/one.pub}\n")
        u.pull(ref)
        assert json.loads(u.cloche("image", "inspect", ref, "--json").out)["vouched"] == "cosign"
        with open(log) as f:
            assert f.read() == f"verify --key /keys/one.pub {reg.host}/t/x@{d1}\n"
        # the tag moves to what nobody signed: refused, and what was there stays
        reg.push("t/x", "1", two)
        p = u.pull(ref, rc=125)
        assert "cosign does not accept" in p.err and "\\e[31mbad" in p.err, p.err
        assert json.loads(u.cloche("image", "inspect", ref, "--json").out)["digest"] == d1
        u.config("image: {verify: warn, cosign_identity: 'https://ci/x@main', cosign_issuer: 'https://ci'}\n")
        p = u.pull(ref, rc=125)
        assert "cosign does not accept" in p.err and "terminal" in p.err, p.err
        with open(log) as f:
            assert f.read().splitlines()[-1].startswith(
                "verify --certificate-identity https://ci/x@main --certificate-oidc-issuer https://ci "), log


def test_local_sources(tmp):
    with Lab(tmp) as (reg, u):
        img = Image([layer(b"local\n")], {"Cmd": ["/x"]}, docker=False)
        img.layout(os.path.join(u.top, "lay"))
        p = u.pull("oci:lay:x")
        d = p.out.strip()
        assert u.file_of(d, "etc/x") == b"local\n", p.out
        assert f"oci:{u.top}/lay:x" in u.lock(), u.lock()
        subprocess.run(["tar", "-C", os.path.join(u.top, "lay"), "-cf", os.path.join(u.top, "lay.tar"), "."],
                       check=True)
        assert u.pull(f"oci-archive:{u.top}/lay.tar").out.strip() == d
        for ref, word in (("oci:nowhere", "there is no image"), ("docker-daemon:x:1", "docker"),
                          ("containers-storage:localhost/nope-at-all", "")):
            p = u.pull(ref, rc=125)
            assert word in p.err.lower(), (ref, p.err)
        # a manifest that is none, and a list that leads nowhere
        reg.push_blob("t/x", b"not json")
        broken = b'{"schemaVersion":2,"mediaType":"%s","config":{"mediaType":"x","size":8,"digest":"%s"},"layers":[]}' % (
            DOCKER_MANIFEST.encode(), digest(b"not json").encode())
        reg.push_manifest("t/x", "bad", broken, DOCKER_MANIFEST)
        p = u.pull(f"{reg.host}/t/x:bad", rc=125)
        assert "t/x:bad" in p.err, p.err


if not shutil.which("skopeo") or not program():
    print("skipped: skopeo or docker-registry is not to be had")
    sys.exit(77)
mini.main(globals())
