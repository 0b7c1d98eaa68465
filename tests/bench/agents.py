#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""agents.py BUILD [AGENT...]: a scripted session of an agent, beside the same one on bare QEMU.

The session is that of tests/e2e/test_agents.py: the agent asks the mock model on this
host's loopback, writes a file, runs a command, answers, and ends. The reference is
QEMU with the same kernel, memory and vCPUs, QEMU's own user network, and all that the
agent sees in a sandbox (base image, packages, home, environment, project) on one ext4
disk; its first process is bench_agent_init. Both are timed from the start of the program
to its end, so ours has the boot, the scan, and the way out of the changes in it. The two
take turns; of BENCH_N (default 5) each the median counts, at most 1.15 of the reference's.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", d) for d in ("lib", "e2e")]

import benchlib as bl  # noqa: E402 pylint: disable=wrong-import-position
import guestvm  # noqa: E402 pylint: disable=wrong-import-position
import harness  # noqa: E402 pylint: disable=wrong-import-position
import test_agents as ta  # noqa: E402 pylint: disable=wrong-import-position

SESSION_MAX = 1.15
MEMORY_MIB, CPUS = 4096, 2
NETWORK = ["--network", "isolated", "--egress", "locked"]
# flags of ours, words of the agent, variables of its user; @URL@ is the mock's
AGENTS = {
    "claude": (["--env-forward", "ANTHROPIC_BASE_URL", "--allow-env", "ANTHROPIC_API_KEY"],
               ["-p", "go", "--dangerously-skip-permissions"],
               {"ANTHROPIC_BASE_URL": "@URL@", "ANTHROPIC_API_KEY": ta.KEY}),
    "codex": (["--allow-env", "CODEX_API_KEY"],
              ["exec", "--dangerously-bypass-approvals-and-sandbox", *ta.CODEX_MOCK, "go"],
              {"CODEX_API_KEY": ta.KEY}),
    "gemini": (["--env-forward", "GOOGLE_GEMINI_BASE_URL"], ["-p", "go", "--yolo"],
               {"GOOGLE_GEMINI_BASE_URL": "@URL@", "GEMINI_API_KEY": ta.KEY}),
}


class Session:
    def __init__(self, h, agent):
        self.h, self.agent = h, agent
        self.flags, self.words, values = AGENTS[agent]
        self.env = h.env(XDG_CACHE_HOME=ta.agents_cache(h), **ta.user_npm())
        ta.build(h, agent, self.env)
        self.mock = ta.Mock(h, ta.SCENARIO)
        self.env.update({k: v.replace("@URL@", f"http://host.cloche:{self.mock.port}")
                         for k, v in values.items()})
        self.project = h.project("demo", {"README.md": "a demo\n"}, git=True)

    def ours(self, words, *flags):
        words = [w.replace("@URL@", f"http://host.cloche:{self.mock.port}") for w in words]
        t = time.monotonic()
        r = self.h.run("run", self.agent, self.project, *self.h.accel_flags(), *NETWORK, "--memory",
                       f"{MEMORY_MIB}m", "--cpus", str(CPUS), "--host-service", str(self.mock.port),
                       "--apply", "none", "--quiet", *self.flags, *flags, "--", *words, env=self.env,
                       timeout_s=600)
        t = time.monotonic() - t
        assert r.rc == 0, r
        return t, r.out

    def once(self):
        t, out = self.ours(self.words)
        assert b"all done" in out, out
        self.h.run("discard", "--all", "--yes", cwd=self.project, env=self.env)
        return t


class Bare:
    """The same files on one disk, and nothing of ours in the way."""

    def __init__(self, s):
        self.s, h = s, s.h
        top, self.disk = h.path("t", "root"), h.path("t", "disk")
        images = os.path.join(ta.agents_cache(h), "cloche", "images")
        info = h.run("info", s.agent, s.project, *h.accel_flags(), "--json", env=s.env)
        j = json.loads(info.text)
        self.image = os.path.join(images, j["image"]["id"])
        self.extract(os.path.join(self.image, "rootfs.erofs"), top)
        for layer in reversed(j["layers"]):
            name = layer["package"].replace("/", ".").lstrip("@") + "-" + layer["version"]
            found = [d for d in os.listdir(os.path.join(images, "layers")) if d.startswith(name + "-")]
            assert len(found) == 1, (name, found)
            self.extract(os.path.join(images, "layers", found[0], "layer.erofs"), top)
        # what a sandbox's user finds: the environment, the home with its first-start files
        out = s.ours(["-c", "env -0"], "--exec", "bash")[1]
        self.words = out.split(b"\0")[:-1]
        home = top + next(w[5:].decode() for w in self.words if w.startswith(b"HOME="))
        os.makedirs(home, exist_ok=True)
        out = s.ours(["-c", 'tar -c -C "$HOME" .'], "--exec", "bash")[1]
        subprocess.run(["tar", "-x", "-C", home], input=out, check=True)
        shutil.copytree(s.project, top + "/work/demo", symlinks=True)
        for d in ("root", "dev", "proc", "sys", "tmp"):
            os.makedirs(os.path.join(top, d), exist_ok=True)
        subprocess.run(["chown", "-hR", "1000:1000", home, top + "/work/demo"], check=True)
        with open(self.disk, "wb") as f:
            f.truncate(6 << 30)
        subprocess.run([guestvm.MKFS, "-q", "-F", "-d", top, self.disk], check=True)
        shutil.rmtree(top)

    @staticmethod
    def extract(image, top):
        """fsck.erofs refuses a folder that is not empty, so by way of another one."""
        part = top + ".part"
        subprocess.run(["fsck.erofs", f"--extract={part}", "--preserve", image], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["cp", "-a", "--remove-destination", part + "/.", top + "/"] if os.path.exists(top)
                       else ["mv", part, top], check=True)
        shutil.rmtree(part, ignore_errors=True)

    def initrd(self, words, env):
        h = self.s.h
        path = h.path("t", "bare-initrd")
        cmd = b"\0".join([b"/work/demo", str(len(words)).encode(), *[w.encode() for w in words], *env]) + b"\0"
        with open(f"{h.build}/tests/bench/bench_agent_init", "rb") as f, open(path, "wb") as o:
            o.write(guestvm.cpio([("init", 0o100755, f.read()), ("cmd", 0o100644, cmd)]))
            o.write(bytes(-o.tell() % 4))
            with open(f"{self.image}/modules.cpio", "rb") as m:
                shutil.copyfileobj(m, o)
        return path

    def once(self):
        s, h = self.s, self.s.h
        url = f"http://10.0.2.2:{s.mock.port}"
        ours = f"http://host.cloche:{s.mock.port}".encode()
        env = [w.replace(ours, url.encode()) for w in self.words]
        initrd = self.initrd([s.agent] + [w.replace("@URL@", url) for w in s.words], env)
        disk = self.disk + ".run"
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", self.disk, disk], check=True)
        out = h.path("t", "bare-out")
        tcg = h.accel == "tcg"
        line = "quiet reboot=t panic=-1 audit=0 apparmor=0"
        if tcg:
            line += f" no_timer_check tsc=reliable tsc_early_khz={guestvm.tsc_khz()}"
        argv = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-bios",
                "qboot.rom", "-M", "microvm,x-option-roms=off,isa-serial=off,acpi=on",
                "-accel", "tcg,thread=single" if tcg else "kvm", "-cpu", "max,erms=off" if tcg else "host",
                "-m", f"{MEMORY_MIB}M", "-smp", str(CPUS), "-kernel", f"{self.image}/vmlinux", "-initrd", initrd,
                "-append", line, "-drive", f"if=none,id=d,format=raw,file={disk}",
                "-device", "virtio-blk-device,drive=d", "-device", "virtio-rng-device",
                "-netdev", "user,id=n", "-device", "virtio-net-device,netdev=n",
                "-device", "virtio-serial-device", "-chardev", f"file,id=c,path={out}",
                "-device", "virtserialport,chardev=c,name=out"]
        t = time.monotonic()
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=600, check=False)
        t = time.monotonic() - t
        os.remove(disk)
        with open(out, "rb") as f:
            said = f.read()
        assert b"all done" in said and b"\nexit 0\n" in said, (p.stdout, said[-3000:])
        return t


def main():
    build, agents = sys.argv[1], sys.argv[2:] or list(AGENTS)
    n = int(os.environ.get("BENCH_N", "5"))
    if os.geteuid() != 0:
        print("agents.py: left out: the reference's disk has files of root and of the agent's user")
        return 0
    harness.prepare(build)
    for agent in agents:
        h = harness.Harness(build, "bench-agents")
        try:
            try:
                s = Session(h, agent)
            except harness.Skip as e:
                print(f"{agent}: left out: {e}")
                continue
            b = Bare(s)
            ours, bare = [], []
            for _ in range(n):
                bare.append(b.once())
                ours.append(s.once())
            o, r = statistics.median(ours), statistics.median(bare)
            print(f"{agent}: cloche {o:.1f} s ({min(ours):.1f} to {max(ours):.1f}), bare QEMU {r:.1f} s "
                  f"({min(bare):.1f} to {max(bare):.1f}); load {os.getloadavg()[0]:.1f}")
            bl.target(f"session of {agent}, of bare QEMU's", o / r, SESSION_MAX)
        finally:
            h.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
