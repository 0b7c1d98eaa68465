#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stress_sessions.py BUILD [SECONDS]: sessions, some of which lose a process at a random time.

For so long, two at a time: a session that writes a file with a known content and syncs.
In every second one a random one of its processes is killed (-9) at a random time. Then
either a change set is there, or `cloche recover` makes one, or the session had not come
as far as its command; after a "synced" the content must not be lost. At the end nothing
is left: no process, mount, sandbox or socket; and our own processes stayed small.
"""
import fcntl
import os
import random
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import harness  # noqa: E402

VICTIMS = ["cloche-super", "cloche-worker", "cloche-disk", "cloche-scan", "qemu-system-x86", "cloche"]
RSS_MAX_KIB = 64 * 1024


def rss_kib(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            for line in f:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


class Stress:
    def __init__(self, h, seconds):
        self.h = h
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.count = {}
        self.peak = {}
        self.problems = []

    def note(self, what):
        with self.lock:
            self.count[what] = self.count.get(what, 0) + 1

    def project(self, n):
        """Its name and folder; a new one for each session."""
        return f"p{n}", self.h.project(f"p{n}", {"a.txt": "one\n"})

    def watch(self, pid):
        for child, comm, _ in harness.descendants(pid) + [(pid, "cloche", 0)]:
            if comm.startswith("cloche"):
                self.peak[comm] = max(self.peak.get(comm, 0), rss_kib(child))

    def session(self, n, rng):
        h = self.h
        with self.lock:
            name, p = self.project(n)
        word = f"word-{n}"
        q = h.start(*h.shell_argv(p, ["sh", "-c", f"echo {word} >new.txt; sync; echo synced; sleep 2"],
                                  flags=["--apply=none"]))
        victim = rng.choice(VICTIMS) if n % 2 else None
        when = time.monotonic() + rng.uniform(0, 40 if h.accel == "tcg" else 4)
        while q.poll() is None and time.monotonic() < self.end + 300:
            self.watch(q.pid)
            if victim and time.monotonic() >= when:
                pids = [pid for pid, comm, _ in harness.descendants(q.pid) if comm == victim[:15]]
                if victim == "cloche":
                    pids = [q.pid]
                if pids:
                    harness.signal_pid(pids[0], 9)
                    self.note(f"killed {victim}")
                    victim = None
            time.sleep(0.2)
        r = h.finish(q, timeout_s=120)
        synced = b"synced" in r.out
        got = h.run("diff", "--no-colour", cwd=p, timeout_s=60)
        if word in got.text:
            self.note("staged")
        else:
            # the monitor of a killed command line may still be at work
            harness.wait_until(lambda: not self.living(name), 60)
            rec = [h.run("recover", s, *h.accel_flags(), "--apply=none", cwd=p, timeout_s=300)
                   for s in self.sandboxes(name)]
            got = h.run("diff", "--no-colour", cwd=p, timeout_s=60)
            if word in got.text:
                self.note("recovered")
            elif synced:
                self.problems.append(f"{name}: synced, and lost\n{r}\n{rec}\n{got}")
            else:
                self.note("had not begun")
        h.run("discard", "--yes", cwd=p, timeout_s=60)
        for s in self.sandboxes(name):
            h.run("recover", s, "--discard", cwd=p, timeout_s=60)

    def sandboxes(self, name):
        try:
            return [s for s in os.listdir(self.h.sandboxes) if s.startswith(name + "-")]
        except FileNotFoundError:
            return []

    def living(self, name):
        """Sandboxes whose monitor still holds their lock."""
        out = []
        for s in self.sandboxes(name):
            try:
                with open(os.path.join(self.h.sandboxes, s, "lock"), "rb") as f:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                out.append(s)
            except OSError:
                pass
        return out

    def worker(self, k, seed=0):
        rng = random.Random(f"{seed} {k}")
        n = k
        while time.monotonic() < self.end:
            try:
                self.session(n, rng)
            except Exception as e:      # the others go on
                self.problems.append(f"p{n}: {type(e).__name__}: {e}")
            n += 4


    def run(self, seed=0):
        """Two sessions at a time until it is time."""
        threads = [threading.Thread(target=self.worker, args=(k, seed)) for k in (0, 1)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def report(self):
        print(", ".join(f"{k}: {v}" for k, v in sorted(self.count.items())))
        print("largest, KiB: " + ", ".join(f"{k} {v}" for k, v in sorted(self.peak.items())))
        for k, v in self.peak.items():
            if v > RSS_MAX_KIB:
                self.problems.append(f"{k} took {v} KiB")
        for p in self.problems:
            print(f"FAILED {p}")


def main():
    build, seconds = sys.argv[1], float(sys.argv[2] if len(sys.argv) > 2 else 60)
    harness.prepare(build)
    h = harness.Harness(build, "stress_sessions")
    try:
        s = Stress(h, seconds)
        print(f"with {h.accel}")
        s.run()
        h.wait_clean(30)
        s.report()
        return 1 if s.problems else 0
    finally:
        h.close()


if __name__ == "__main__":
    sys.exit(main())
