# SPDX-License-Identifier: Apache-2.0
"""setup.sh with stubs of dpkg-query, apt-get, sudo and id in a PATH of its own."""
import os
import shutil
import subprocess

import mini

SETUP = os.path.join(mini.ROOT, "scripts", "setup.sh")
TOOLS = ["sh", "sed", "awk", "dirname", "env", "cat", "true"]


def script(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)


def world(tmp, uid, have, sudo=None, apt="exit 0"):
    """A machine: who we are, what is installed, what sudo and apt-get do."""
    d = os.path.join(tmp, "bin")
    os.makedirs(d)
    for t in TOOLS:
        os.symlink(shutil.which(t), os.path.join(d, t))
    script(d, "id", f"echo {uid}\n")
    script(d, "dpkg-query", f'for p; do :; done\ncase " {have} " in *" $p "*|*" all "*) echo installed;;'
                            ' *) echo not-installed;; esac\n')
    script(d, "apt-get", f'echo "$(id -u) $*" >>{tmp}/apt.log\n{apt}\n')
    if sudo is not None:
        script(d, "sudo", sudo)
    return d


def run(d, *groups):
    return subprocess.run([SETUP, *groups], env={"PATH": d}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)


def log(tmp):
    try:
        with open(os.path.join(tmp, "apt.log"), encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def test_nothing_missing_is_silent(tmp):
    p = run(world(tmp, 1000, "all"), "build", "run", "test", "check")
    assert (p.returncode, p.stdout, p.stderr) == (0, "", "") and not log(tmp)


def test_root_installs(tmp):
    p = run(world(tmp, 0, "gcc"), "build")
    assert p.returncode == 0, p
    assert " update" in log(tmp) and "install" in log(tmp) and " ninja-build" in log(tmp)
    assert " gcc " not in log(tmp), "what is there is not asked for"


def test_user_with_sudo(tmp):
    p = run(world(tmp, 1000, "", sudo='[ "$1" = -n ] && shift\nexec "$@"\n'), "run")
    assert p.returncode == 0 and "qemu-system-x86" in log(tmp), p


def test_user_without_sudo_gets_the_line(tmp):
    p = run(world(tmp, 1000, ""), "run")
    assert p.returncode == 1 and not log(tmp)
    assert "apt-get install -y" in p.stderr and "mmdebstrap" in p.stderr, p


def test_sudo_that_wants_a_password_and_no_terminal(tmp):
    p = run(world(tmp, 1000, "", sudo="exit 1\n"), "run")
    assert p.returncode == 1 and "apt-get install" in p.stderr and not log(tmp), p


def test_broken_source_is_not_the_end(tmp):
    p = run(world(tmp, 0, "", apt='[ "$1" != update ]'), "run")
    assert p.returncode == 0 and "install" in log(tmp), p


def test_failed_install_is_an_error(tmp):
    p = run(world(tmp, 0, "", apt="exit 100"), "run")
    assert p.returncode == 1 and "could not install" in p.stderr, p


def test_another_system(tmp):
    d = world(tmp, 0, "")
    os.unlink(os.path.join(d, "apt-get"))
    p = run(d, "run")
    assert p.returncode == 1 and "not a Debian" in p.stderr and "qemu-system-x86" in p.stderr


mini.main(globals())
