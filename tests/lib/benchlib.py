# SPDX-License-Identifier: Apache-2.0
"""What the programs of tests/bench share: runs of `cloche` with their cost, bare boots, tables.

Wall times of a busy machine say little, so each figure comes with the CPU time
that was used for it, and of several runs the least counts. BENCH_N is their
number (default 5), BENCH_ACCEL the accelerator (default: what `cloche doctor`
finds), BENCH_SCRATCH a folder with room for trees (default /var/tmp).
"""
import glob
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from guestvm import cpio, tsc_khz

N = int(os.environ.get("BENCH_N", "5"))
SCRATCH = os.environ.get("BENCH_SCRATCH", "/var/tmp")
GIT = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.com", "-c",
       "init.defaultBranch=main"]


def least(values):
    return min(v for v in values if v is not None)


def target(name, value, limit, least_ok=False):
    """The line that says whether a target holds. Nothing fails by it: machines differ."""
    holds = value >= limit if least_ok else value <= limit
    print(f"TARGET {name}: {value:.2f}, at {'least' if least_ok else 'most'} {limit}: "
          f"{'holds' if holds else 'MISSED'}", flush=True)


def table(head, rows):
    rows = [head] + [[c if isinstance(c, str) else f"{c:.1f}" for c in r] for r in rows]
    width = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for r in rows:
        print("  " + r[0].ljust(width[0]) +
              "".join("  " + c.rjust(w) for c, w in zip(r[1:], width[1:])), flush=True)


def cpu_ns(pid):
    """CPU time of a living process, of the threads that it has; None when it is gone."""
    total = 0
    try:
        for t in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{t}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
    except OSError:
        return None
    return total


def children_cpu():
    """Seconds, of all that were waited for."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def measure(argv, **kw):
    """(CPU s, wall s) of a program and all that it waits for."""
    c, t = children_cpu(), time.monotonic()
    subprocess.run(argv, check=True, **kw)
    return children_cpu() - c, time.monotonic() - t


def find_child(pid, name):
    """A living descendant of @pid by its command name."""
    todo = [pid]
    while todo:
        p = todo.pop()
        try:
            with open(f"/proc/{p}/comm", encoding="utf-8", errors="replace") as f:
                if f.read().startswith(name):
                    return p
            with open(f"/proc/{p}/task/{p}/children", encoding="ascii") as f:
                todo += [int(x) for x in f.read().split()]
        except OSError:
            pass
    return None


class Run:
    """What one `cloche run` cost: rc, wall, marks (ms by phase), cpu (s by process), rss (bytes
    by process), first_s (first byte of output), first_qemu_s and first_ours_s (CPU by then)."""


class Bench:
    """A built cloche, with a state of its own and the user's image cache."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.cloche = f"{self.build}/bin/cloche"
        self.tmp = tempfile.mkdtemp(prefix="cloche-bench.", dir=SCRATCH)
        os.chmod(self.tmp, 0o755)
        self.env = dict(os.environ, XDG_STATE_HOME=f"{self.tmp}/state",
                        XDG_CONFIG_HOME=f"{self.tmp}/config", LC_ALL="C.UTF-8")
        self.env.pop("TZ", None)
        os.makedirs(f"{self.tmp}/config/cloche")
        with open(f"{self.tmp}/config/cloche/config.yaml", "w", encoding="ascii") as f:
            f.write("network: {mode: offline}\n")      # what a network costs is net.py's
        self.accel = os.environ.get("BENCH_ACCEL") or self._accel()
        r = subprocess.run([self.cloche, "image", "build", "base"], env=self.env, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if r.returncode:
            sys.exit(r.stderr.decode(errors="replace"))

    def _accel(self):
        r = subprocess.run([self.cloche, "doctor"], env=self.env, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
        return "kvm" if r.returncode == 0 else "tcg"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        shutil.rmtree(self.tmp, ignore_errors=True)

    def scan_uid(self):
        """Words for a helper that is started by hand: root's helpers take another uid."""
        return ["--uid", "2130706500"] if os.geteuid() == 0 else []

    def image(self):
        """Folder of the cached image."""
        top = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                           "cloche", "images")
        found = [f"{top}/{d}" for d in os.listdir(top)
                 if d.startswith("base-") and os.path.exists(f"{top}/{d}/manifest.json")]
        return max(found, key=os.path.getmtime)

    def sandbox(self):
        """Folder of the one living sandbox."""
        top = f"{self.tmp}/state/cloche/sandboxes"
        return f"{top}/{os.listdir(top)[0]}"

    def run(self, folder, words, flags=(), on_first=None):
        """One `cloche run shell`; on_first() is called at its first byte of output."""
        trace, log = f"{self.tmp}/trace", f"{self.tmp}/log"
        argv = [self.cloche, "run", "shell", folder, "--accel", self.accel, "--quiet",
                "--apply", "none", "--trace", trace, "--log-file", log, *flags, "--", *words]
        r = Run()
        r.first_s = r.first_qemu_s = r.first_ours_s = None
        before = children_cpu()
        t0 = time.monotonic()
        with open(f"{self.tmp}/err", "wb") as err:
            p = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=err)
        select.select([p.stdout], [], [])
        r.first_s = time.monotonic() - t0
        qemu = find_child(p.pid, "qemu-system")
        ours = sum(cpu_ns(x) or 0 for x in (p.pid, find_child(p.pid, "cloche-super"),
                                            find_child(p.pid, "cloche-worker"),
                                            find_child(p.pid, "cloche-disk")) if x)
        if qemu:
            r.first_qemu_s = (cpu_ns(qemu) or 0) / 1e9
            r.first_ours_s = ours / 1e9
            if on_first:
                on_first()
        r.out = p.stdout.read()
        r.rc = p.wait()
        r.wall_s = time.monotonic() - t0
        total = children_cpu() - before
        with open(f"{self.tmp}/err", encoding="utf-8", errors="replace") as f:
            r.err = f.read()
        if r.rc == 125:
            raise RuntimeError(r.err)
        r.cpu, r.rss = {}, {}
        with open(log, encoding="utf-8", errors="replace") as f:
            for m in re.finditer(r"(\S+) used cpu_us=(\d+) rss_max=(\d+)", f.read()):
                r.cpu[m[1]] = int(m[2]) / 1e6
                r.rss[m[1]] = int(m[3])
        r.cpu["cloche"] = max(0.0, total - sum(r.cpu.values()))
        with open(trace, encoding="utf-8") as f:
            t = json.load(f)
        r.marks = {s["reached"]: s["ns"] / 1e6 for s in t["spans"]}
        r.kernel_ms, r.init_ms = t["guest_kernel_ns"] / 1e6, t["guest_init_ns"] / 1e6
        return r


class Bare:
    """The kernel of an image on bare QEMU, with bench_init as its first process."""

    def __init__(self, bench, memory_mib=4096, cpus=2):
        self.bench = bench
        image = bench.image()
        initrd = f"{bench.tmp}/bare-initrd"
        with open(f"{bench.build}/tests/bench/bench_init", "rb") as f, open(initrd, "wb") as o:
            o.write(cpio([("init", 0o100755, f.read())]))
            o.write(bytes(-o.tell() % 4))
            with open(f"{image}/modules.cpio", "rb") as m:
                shutil.copyfileobj(m, o)
        line = "quiet reboot=t panic=-1 audit=0 apparmor=0"
        tcg = bench.accel == "tcg"
        if tcg:
            line += f" no_timer_check tsc=reliable tsc_early_khz={tsc_khz()}"
        self.line = line
        self.argv = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-nographic",
                     "-no-reboot", "-bios", "qboot.rom", "-M", "microvm,x-option-roms=off,isa-serial=off,acpi=on",
                     "-accel", "tcg,thread=single" if tcg else "kvm",
                     "-cpu", "max,erms=off" if tcg else "host", "-m", f"{memory_mib}M",
                     "-smp", str(cpus), "-kernel", f"{image}/vmlinux", "-initrd", initrd]

    def to_pid1(self):
        """(wall s, CPU s) until the first process ends the machine."""
        argv = self.argv + ["-append", self.line, "-device", "isa-debug-exit,iobase=0xf4"]
        c, t = children_cpu(), time.monotonic()
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, check=False)
        wall = time.monotonic() - t
        if p.returncode != 3:
            raise RuntimeError(f"bare boot: status {p.returncode}: {p.stdout.decode()}")
        return wall, children_cpu() - c

    def to_byte(self):
        """(wall s, CPU s) until the first process has written to the control port."""
        ours, theirs = socket.socketpair()
        argv = self.argv + ["-append", self.line + " -- port", "-device", "virtio-serial-device",
                            "-chardev", f"socket,id=c,fd={theirs.fileno()}",
                            "-device", "virtserialport,chardev=c,name=cloche.0"]
        t = time.monotonic()
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             pass_fds=[theirs.fileno()])
        theirs.close()
        got = ours.recv(1)
        wall, cpu = time.monotonic() - t, (cpu_ns(p.pid) or 0) / 1e9
        p.wait(60)
        ours.close()
        if got != b"+":
            raise RuntimeError("bare boot: no byte from the first process")
        return wall, cpu


def project(path, files):
    """A git project with one commit."""
    os.makedirs(path)
    for name, text in files.items():
        os.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
        with open(f"{path}/{name}", "w", encoding="utf-8") as f:
            f.write(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*GIT, "-C", path, *words], check=True)
    return path


def linux_tree(b, name="linux", part=None, only=()):
    """The kernel's source unpacked in the scratch folder of @b; @part keeps one file in so many,
    @only these folders."""
    tars = sorted(glob.glob("/usr/src/linux-source-*.tar.xz"))
    if not tars:
        sys.exit("this needs /usr/src/linux-source-*.tar.xz (package linux-source)")
    top = f"{b.tmp}/{name}"
    os.mkdir(top)
    subprocess.run(["tar", "xf", tars[0], "-C", top, "--strip-components=1", "--wildcards",
                    *[f"*/{x}/*" for x in only]], check=True)
    if os.path.exists(f"{top}/.gitignore"):
        os.unlink(f"{top}/.gitignore")  # Debian's ignores all files: "/*"
    if part:
        for folder, _, files in os.walk(top):
            for i, f in enumerate(sorted(files)):
                if (hash_name(folder[len(top):]) + i) % part and f not in KEPT:
                    os.unlink(f"{folder}/{f}")
    return top


KEPT = {"Makefile", "README", "MAINTAINERS"}


def hash_name(text):
    return sum(text.encode(errors="surrogateescape"))


def main(fn):
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} BUILD")
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the trees are removed, too
    with Bench(sys.argv[1]) as b:
        fn(b)
