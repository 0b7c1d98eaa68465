#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the tests in a virtual machine: every function test_*(h) of test_*.py here.

    run.py [--build DIR] [--jobs N] [--list] [WORD...]

A WORD keeps the tests whose "file.function" has it as a part. Each test runs in
a process of its own, with a deadline (a function attribute `timeout_s` changes
it; `alone = True` runs it with no other beside it), and gets a fresh
tests/lib/harness.py Harness. Prints "ok NAME 3.2s", or "FAILED NAME 3.2s" with
the output, or "skipped NAME reason"; ends with "N passed, N failed".
"""
import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "lib"))
TIMEOUT_S = 300
SKIP_STATUS = 77


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    mod = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mod)
    return mod


def discover(folder):
    """All tests as (name, file, function name, timeout in seconds, alone)."""
    out = []
    for fn in sorted(os.listdir(folder)):
        if not (fn.startswith("test_") and fn.endswith(".py")):
            continue
        path = os.path.join(folder, fn)
        mod = load(path)
        for key, f in vars(mod).items():
            if key.startswith("test_") and callable(f):
                out.append((f"{fn[5:-3]}.{key[5:]}", path, key,
                            getattr(f, "timeout_s", TIMEOUT_S), getattr(f, "alone", False)))
    return out


def child(path, key, build):
    """In the process of one test."""
    import harness
    mod = load(path)
    h = harness.Harness(build=build, name=key)
    try:
        getattr(mod, key)(h)
    except harness.Skip as e:
        print(e)
        return SKIP_STATUS
    finally:
        h.close()
    return 0


class Runner:
    def __init__(self, build, jobs, out=sys.stdout):
        self.build, self.jobs, self.out = build, jobs, out
        self.lock = threading.Lock()
        self.passed = self.failed = 0

    def say(self, text):
        self.out.write(text + "\n")
        self.out.flush()

    def run_one(self, test):
        name, path, key, timeout_s, _ = test
        t0 = time.monotonic()
        p = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--child", path, key, "--build", self.build],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        why = None
        try:
            text, _ = p.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            why = f"no end after {timeout_s} s"
            # first a chance for the harness to end its sandboxes in order
            p.send_signal(signal.SIGTERM)
            try:
                text, _ = p.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                text, _ = p.communicate()
        took = time.monotonic() - t0
        text = text.decode(errors="backslashreplace")
        with self.lock:
            if why is None and p.returncode == 0:
                self.passed += 1
                self.say(f"ok {name} {took:.1f}s")
            elif why is None and p.returncode == SKIP_STATUS:
                last = text.strip().splitlines()[-1] if text.strip() else ""
                self.say(f"skipped {name} {last}")
            else:
                self.failed += 1
                self.say(f"FAILED {name} {took:.1f}s" + (f" ({why})" if why else ""))
                for line in text[-12000:].splitlines():
                    self.say("    " + line)

    def run(self, tests):
        together = [t for t in tests if not t[4]]
        queue = iter(together)

        def worker():
            while True:
                with self.lock:
                    t = next(queue, None)
                if t is None:
                    return
                self.run_one(t)

        threads = [threading.Thread(target=worker) for _ in range(self.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for t in tests:
            if t[4]:
                self.run_one(t)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default=os.path.join(ROOT, "build"))
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--folder", default=HERE, help="for the runner's own test")
    ap.add_argument("--child", nargs=2, metavar=("FILE", "FUNCTION"))
    ap.add_argument("words", nargs="*")
    a = ap.parse_args()
    build = os.path.abspath(a.build)
    if a.child:
        return child(a.child[0], a.child[1], build)
    tests = discover(a.folder)
    if a.words:
        tests = [t for t in tests if any(w in t[0] for w in a.words)]
    if a.list:
        for t in tests:
            print(t[0])
        return 0
    r = Runner(build, a.jobs)
    if tests:
        import harness
        try:
            harness.prepare(build)      # the base image, once for all
        except Exception as e:
            r.say(f"FAILED prepare 0.0s\n    {e}")
            r.failed += 1
            tests = []
    r.run(tests)
    print(f"{r.passed} passed, {r.failed} failed")
    return 1 if r.failed else 0


if __name__ == "__main__":
    sys.exit(main())
