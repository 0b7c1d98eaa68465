#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak_sessions.py BUILD [SECONDS]: rounds of sessions, and what grows from one to the next.

A round is what tests/stress/stress_sessions.py does (sessions of which some lose a process),
always on the same two projects. After each nothing may be left: no process, mount, sandbox or
socket. And nothing may grow with the rounds: files and bytes of our state and cache, open
descriptors of our processes and of this one, resident memory. The first round is the measure.
"""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), d) for d in ("lib", "stress")]
import harness  # noqa: E402
import stress_sessions  # noqa: E402

ROUND_MAX_S = 600
LOGS_MAX = 30 + 2           # kept, and of what was just begun
# what may differ without growing: a log line more, a page more
FILES_MORE, BYTES_MORE, FDS_MORE, KIB_MORE = 4, 1 << 20, 4, 4096
FDS_MAX = 64                # of a session's process at its busiest moment, which a round may miss


def fds(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0            # gone, or not ours to look at


class Round(stress_sessions.Stress):
    def __init__(self, h, seconds):
        super().__init__(h, seconds)
        self.fds = {}

    def project(self, n):
        name = f"p{n % 4}"
        p = self.h.path("p", name)
        if not os.path.isdir(p):
            self.h.project(name, {"a.txt": "one\n"})
        return name, p

    def watch(self, pid):
        super().watch(pid)
        for child, comm, _ in harness.descendants(pid) + [(pid, "cloche", 0)]:
            if comm.startswith("cloche"):
                self.fds[comm] = max(self.fds.get(comm, 0), fds(child))


def on_disk(top):
    """(files, bytes, logs) below a folder; logs are counted by themselves."""
    files = size = logs = 0
    for where, _, names in os.walk(top):
        for n in names:
            try:
                st = os.lstat(os.path.join(where, n))
            except FileNotFoundError:
                continue
            if os.path.basename(where) == "logs":
                logs += 1
                continue
            files += 1
            size += st.st_blocks * 512
    return files, size, logs


def grown(first, now, more):
    """Names whose value is larger than at first by more than may be."""
    return [f"{k}: {first[k]} at first, {v} now" for k, v in sorted(now.items())
            if k in first and v > first[k] + more]


def main():
    build, seconds = sys.argv[1], float(sys.argv[2] if len(sys.argv) > 2 else 3600)
    harness.prepare(build)
    h = harness.Harness(build, "soak_sessions")
    end = time.monotonic() + seconds
    first, n, problems = None, 0, []
    try:
        print(f"with {h.accel}", flush=True)
        while n < 2 or time.monotonic() < end:
            r = Round(h, min(ROUND_MAX_S, max(1, seconds / 6)))
            r.run(seed=n)
            h.wait_clean(30)
            files, size, logs = on_disk(h.path("state"))
            now = {"files": files, "own fds": fds("self")}
            n += 1
            print(f"round {n}: {files} files, {size >> 10} KiB, {logs} logs, {now['own fds']} own "
                  f"descriptors; descriptors {r.fds}", flush=True)
            r.report()
            problems += r.problems
            if first is None:
                first = (now, {"bytes": size}, r.fds, r.peak)
            problems += grown(first[0], now, FILES_MORE) + grown(first[1], {"bytes": size}, BYTES_MORE)
            problems += grown(first[3], r.peak, KIB_MORE)
            problems += [f"{k}: {v} descriptors" for k, v in r.fds.items() if v > FDS_MAX]
            if logs > LOGS_MAX:
                problems.append(f"{logs} logs")
        for p in problems:
            print(f"FAILED {p}")
        print(f"{n} rounds")
        return 1 if problems else 0
    finally:
        h.close()


if __name__ == "__main__":
    sys.exit(main())
