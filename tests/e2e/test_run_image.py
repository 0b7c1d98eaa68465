# SPDX-License-Identifier: Apache-2.0
"""Images of somebody else in a real VM: what the image says is run, as whom, where, with what,
and the changes come back. The images are a static busybox and a few files."""
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import time

from harness import Skip, signal_pid, wait_until
from registrylib import Image, Registry, program, tar_of

BUSYBOX = "/bin/busybox"
APPLETS = ("sh", "cat", "id", "env", "ls", "pwd", "stat", "touch", "echo", "sleep", "mkdir")
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:44::/srv/web:/bin/sh\n"
GROUP = b"root:x:0:\nweb:x:44:\nextra:x:55:web\n"


def busybox_layer(extra=()):
    if not os.path.exists(BUSYBOX):
        raise Skip("busybox-static is not installed")
    with open(BUSYBOX, "rb") as f:
        body = f.read()
    return tar_of([("bin", "d"), ("bin/busybox", "f", body, 0o755),
                   *[("bin/" + a, "l", "busybox") for a in APPLETS],
                   ("etc", "d"), ("tmp", "d", 0o1777), ("srv", "d"), ("srv/web", "d", 0o755, 33, 44),
                   # no two tests have an image in common, since they share the cache
                   ("etc/nonce", "f", secrets.token_bytes(16)), *extra])


@contextlib.contextmanager
def registry(h, tls=True):
    if not shutil.which("skopeo") or not program():
        raise Skip("skopeo or docker-registry is not to be had")
    r = Registry(h.path("registry"), tls=tls)
    with r:
        os.makedirs(h.path("home"), exist_ok=True)
        r.trust(h.path("home"))
        yield r


def forget(h, *digests):
    for d in digests:
        h.run("image", "rm", d)


def flags(h, *more):
    return [*h.accel_flags(), *more]


def test_says_who_and_where(h):
    p = h.project("demo", {"a.txt": "one\n"})
    with registry(h) as r:
        img = Image([busybox_layer([("etc/passwd", "f", PASSWD), ("etc/group", "f", GROUP)])],
                    {"User": "web", "WorkingDir": "/srv/web", "Env": ["PATH=/bin:/opt/x", "GREET=hi there"],
                     "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo from cmd"]})
        digest = r.push("t/busy", "1", img)
        ref = f"{r.host}/t/busy:1"
        script = ("id; echo home=$HOME user=$USER greet=$GREET path=$PATH; pwd; cat a.txt; "
                  "echo two >a.txt; echo new >b.txt; stat -c %u:%g b.txt .")
        try:
            # a project is named: the command starts there, whatever WORKDIR says
            got = h.run("run-image", ref, p, *flags(h, "--apply=auto"), "--", script)
            assert got.rc == 0, got
            lines = got.text.splitlines()
            assert lines[0] == "uid=33(web) gid=44(web) groups=44(web),55(extra)", got
            assert lines[1].startswith("home=/srv/web user=web greet=hi there path=/bin:/opt/x"), got
            assert lines[2:4] == ["/work/demo", "one"] and lines[4:6] == ["33:44", "33:44"], got
            assert h.read(p, "a.txt") == b"two\n" and h.read(p, "b.txt") == b"new\n"
            # none is named: WORKDIR and CMD, and the registry is not needed any more
            r.stop()
            got = h.run("run-image", ref, *flags(h, "--apply=none"), cwd=p)
            assert got.rc == 0 and got.text == "from cmd\n", got
            got = h.run("run-image", ref, *flags(h, "--apply=none"), "--", "pwd", cwd=p)
            assert got.rc == 0 and got.text == "/srv/web\n", got
            got = h.run("info", "shell", p, "--image", ref, "--json")
            doc = json.loads(got.out)
            assert doc["foreign_image"]["digest"] == digest and doc["foreign_image"]["user"] == "web", doc
        finally:
            forget(h, digest)
    h.wait_clean()


def test_agent_of_an_image_without_users(h):
    """No passwd at all, USER root: uid 1000 with a home of its own, and root only when asked for."""
    p = h.project("demo", {"a.txt": "one\n"})
    with registry(h) as r:
        img = Image([busybox_layer()], {"User": "root"}, docker=False)
        digest = r.push("t/bare", "1", img)
        ref = f"{r.host}/t/bare:1"
        script = "id; echo $HOME $USER; touch $HOME/x && echo ok; touch /etc/x || echo closed; echo b >b.txt"
        try:
            got = h.run("run-image", ref, p, *flags(h, "--apply=auto"), "--", "sh", "-c", script)
            assert got.rc == 0, got
            assert got.text.splitlines() == ["uid=1000(agent) gid=1000(agent) groups=1000(agent)",
                                             "/home/agent agent", "ok", "closed"], got
            assert h.read(p, "b.txt") == b"b\n"
            got = h.run("run-image", ref, p, *flags(h, "--apply=none"), "--user", "root", "--", "sh", "-c",
                        "id -u; touch /etc/x && echo open")
            assert got.text.splitlines() == ["0", "open"], got
            # by its digest, and by a profile
            h.write(h.path("config"), "cloche/profiles/bare.yaml",
                    f"name: bare\ncommand: [/bin/sh, -c]\nimage: {r.host}/t/bare@{digest}\n")
            got = h.run("run", "bare", p, *flags(h, "--apply=none"), "--", "echo $HOME; pwd")
            assert got.text.splitlines() == ["/home/agent", "/work/demo"], got
            got = h.run("run-image", ref, p, *flags(h), "--", "no-such-program")
            assert got.rc == 127, got
        finally:
            forget(h, digest)
    h.wait_clean()


def test_user_that_is_not_there(h):
    p = h.project("demo", {"a.txt": "one\n"})
    with registry(h) as r:
        img = Image([busybox_layer([("etc/passwd", "f", PASSWD)])], {"User": "nobody-here"})
        digest = r.push("t/odd", "1", img)
        try:
            got = h.run("run-image", f"{r.host}/t/odd:1", p, *flags(h), "--", "sh", "-c", "id")
            assert got.rc == 125 and "nobody-here" in got.errtext and "/etc/passwd" in got.errtext, got
        finally:
            forget(h, digest)
    h.wait_clean()


def test_background(h):
    """The run boots what is there; what the tag means now is fetched meanwhile, and said next time."""
    p = h.project("demo", {"a.txt": "one\n"})
    with registry(h) as r:
        one = Image([busybox_layer([("etc/which", "f", b"first\n")])], {})
        two = Image([busybox_layer([("etc/which", "f", b"second\n")])], {})
        d1 = r.push("t/tag", "1", one)
        ref = f"{r.host}/t/tag:1"
        try:
            assert h.run("image", "pull", ref).rc == 0
            d2 = r.push("t/tag", "1", two)
            got = h.run("run-image", ref, p, *flags(h), "--pull", "background", "--", "cat", "/etc/which")
            assert got.rc == 0 and got.text == "first\n" and d2 not in got.errtext, got
            wait_until(lambda: h.run("image", "inspect", ref).text.count(d2), 60)
            got = h.run("run-image", ref, p, *flags(h), "--", "cat", "/etc/which")
            assert got.text == "second\n", got
            assert d1 in got.errtext and d2 in got.errtext and "moved" in got.errtext, got
            got = h.run("run-image", ref, p, *flags(h), "--pull", "never", "--", "cat", "/etc/which")
            assert got.text == "second\n" and "moved" not in got.errtext, got
        finally:
            forget(h, d1, d2)
    h.wait_clean()


def test_boot_folder(h):
    """A kernel that is given is used, with its own modules; half a folder is none."""
    p = h.project("demo", {"a.txt": "one\n"})
    assert h.run("run", "shell", p, *flags(h), "--", "true").rc == 0      # so that there is an image
    base = [i for i in json.loads(h.run("image", "ls", "--json").out)["images"]
            if i["current"] and i["name"] == "base"][0]
    images = os.environ.get("CLOCHE_IMAGE_DIR") or os.path.join(h.cache, "cloche", "images")
    boot = h.path("boot")
    os.makedirs(boot)
    for n in ("vmlinux", "modules.cpio"):
        shutil.copy(os.path.join(images, base["id"], n), os.path.join(boot, n))
    # that it is this one is seen by a modules.cpio whose name of the initramfs is another
    with open(os.path.join(boot, "modules.cpio"), "ab") as f:
        f.write(bytes(512))
    got = h.run("run", "shell", p, *flags(h, "--boot", boot), "--", "sh", "-c", "uname -r; cat a.txt")
    assert got.rc == 0 and got.text == base["kernel"] + "\none\n", got
    h.write(h.path("config"), "cloche/config.yaml", f"image: {{boot: {boot}}}\n")
    got = h.run("info", "shell", p)
    assert f"given, with its modules: {boot}" in got.text, got
    before = sorted(os.listdir(boot))
    cases = (("vmlinux", b"", f"'{boot}' has no vmlinux, or an empty one"), ("vmlinux", b"MZ" * 99, "no ELF kernel"),
             ("vmlinux", None, "has no vmlinux"), ("modules.cpio", b"", "has no modules.cpio"),
             ("modules.cpio", None, "has no modules.cpio"))
    for name, body, want in cases:
        path = os.path.join(boot, name)
        shutil.move(path, path + ".kept")
        if body is not None:
            with open(path, "wb") as f:
                f.write(body)
        got = h.run("run", "shell", p, *flags(h), "--", "true")
        assert got.rc == 125 and want in got.errtext, (name, got)
        got = h.run("info", "shell", p)
        assert got.rc == 3 and want in got.text, (name, got)
        shutil.move(path + ".kept", path)
    assert sorted(os.listdir(boot)) == before
    got = h.run("run", "shell", p, *flags(h, "--boot", h.path("nowhere")), "--", "true")
    assert got.rc == 125 and "boot folder" in got.errtext, got
    h.wait_clean()


def test_recover(h):
    """The work of another uid is taken out of a dead run, too, without the image."""
    p = h.project("demo", {"a.txt": "one\n", "sub/b.txt": "b\n"})
    with registry(h) as r:
        img = Image([busybox_layer([("etc/passwd", "f", PASSWD), ("etc/group", "f", GROUP)])], {"User": "web"})
        digest = r.push("t/busy", "1", img)
        q = h.start("run-image", f"{r.host}/t/busy:1", p, *flags(h), "--", "sh", "-c",
                    "echo two >>a.txt; echo kept >sub/made; echo up; sleep 100")
        try:
            assert q.stdout.readline() == b"up\n"
            time.sleep(7)       # longer than the guest's syncfs
            signal_pid(h.wait_helper("qemu-system-x86"), signal.SIGKILL)
            got = h.finish(q, timeout_s=120)
            assert got.rc == 125 and "cloche recover" in got.errtext, got
        finally:
            forget(h, digest)
    h.wait_clean(keep_sandboxes=True)
    sid = re.search(r"demo-\w{6}", h.run("recover").text)[0]
    got = h.run("recover", sid, *flags(h), timeout_s=240)
    assert got.rc in (0, 3), got
    assert h.run("apply", cwd=p).rc == 0
    assert h.read(p, "sub/made") == b"kept\n" and h.read(p, "a.txt") == b"one\ntwo\n"
    h.wait_clean()
