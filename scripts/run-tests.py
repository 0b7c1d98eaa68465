#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run every test and count them one by one.

The meson suites first (unit, fuzz replay, oracles, ...), then the tests in a
virtual machine. A test program counts as often as it has tests: cmocka and the
Python tests name each; a program that names none counts once. A program that
dies counts its unfinished test as failed. The last line is always
"N passed, N failed"; the exit status is 1 when something failed or nothing ran.
"""
import argparse
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CMOCKA = re.compile(r"^\[\s*(RUN|OK|FAILED|ERROR|SKIPPED)\s*\] (\S+)$", re.M)
OURS = re.compile(r"^(ok|FAILED|skipped) +(\S+)", re.M)
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed", re.M)


def count_program(text, good):
    """Tests that a program's output names: (passed, failed names, skipped names)."""
    state = {}
    for word, name in CMOCKA.findall(text):
        if word == "RUN":
            state.setdefault(name, "RUN")
        elif name in state:     # not the recapitulation's counts
            state[name] = word
    if not state:
        for word, name in OURS.findall(text):
            state[name] = {"ok": "OK", "FAILED": "FAILED", "skipped": "SKIPPED"}[word]
    passed = sum(1 for s in state.values() if s == "OK")
    skipped = [n for n, s in state.items() if s == "SKIPPED"]
    failed = [n for n, s in state.items() if s not in ("OK", "SKIPPED")]
    if not good and not failed:
        failed = ["(the program itself)"]
    if good and not state:
        passed = 1
    return passed, failed, skipped


def run_meson(build, suites, times):
    log = os.path.join(build, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    cmd = ["meson", "test", "-C", build, "--no-rebuild"]
    for s in suites:
        cmd += ["--suite", s]
    # what fails is shown below once, with its output
    got = subprocess.run(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, errors="replace")
    if not os.path.exists(log):
        if "No suitable tests" in got.stdout or "No tests defined" in got.stdout:
            return 0, 0
        print(got.stdout)
        return 0, 1
    passed = failed = 0
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            t = json.loads(line)
            text = (t.get("stdout") or "") + "\n" + (t.get("stderr") or "")
            name = t["name"].split(" / ")[-1]
            if t["result"] == "SKIP":
                print(f"skipped  {name}: {text.strip()[-200:]}")
                continue
            good = t["result"] in ("OK", "EXPECTEDFAIL")
            p, bad, skipped = count_program(text, good)
            passed += p
            failed += len(bad)
            times.append((t.get("duration") or 0.0, name))
            for s in skipped:
                print(f"skipped  {name}: {s}")
            print(f"{'ok' if good else 'FAILED':8} {name}: {p} passed"
                  f"{', ' + str(len(bad)) + ' failed' if bad else ''}")
            if bad:
                print(f"--- {name} ({t['result']}): {', '.join(bad)}")
                print(text.strip()[-8000:])
                print("---")
    return passed, failed


def run_e2e(build, words, times):
    cmd = [sys.executable, os.path.join(ROOT, "tests", "e2e", "run.py"), "--build", build] + words
    p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                         errors="replace")
    passed = failed = None
    for line in p.stdout:
        m = SUMMARY.match(line)
        if m:
            passed, failed = int(m[1]), int(m[2])
            continue
        sys.stdout.write(line)
        sys.stdout.flush()
        m = re.match(r"^(?:ok|FAILED) +(\S+) ([\d.]+)s", line)
        if m:
            times.append((float(m[2]), "e2e " + m[1]))
    rc = p.wait()
    if passed is None:
        print("FAILED   the e2e runner gave no summary")
        return 0, 1
    if rc != 0 and failed == 0:
        failed = 1
    return passed, failed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default="build")
    ap.add_argument("--suite", action="append", default=[], help="only these meson suites")
    ap.add_argument("--no-e2e", action="store_true")
    ap.add_argument("words", nargs="*", help="e2e tests to run: parts of their names")
    a = ap.parse_args()
    build = os.path.abspath(a.build)
    times = []
    passed, failed = run_meson(build, a.suite, times)
    if not a.no_e2e:
        p, f = run_e2e(build, a.words, times)
        passed, failed = passed + p, failed + f
    slow = [t for t in sorted(times, reverse=True)[:10] if t[0] >= 1.0]
    if slow:
        print("slowest: " + ", ".join(f"{n} {s:.1f} s" for s, n in slow))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
