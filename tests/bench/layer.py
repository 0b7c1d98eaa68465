#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""layer.py BUILD [AGENT...]: the layers of an agent's packages, against `npm pack` and `tar -x`.

Ours fetches the same packages by the same npm with the same cache (warm on both sides: the
network is nobody's merit), checks their hashes, and writes images. The two take turns; of
BENCH_N (default 5) each the median counts, at most 1.3 of the reference's.
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
import harness  # noqa: E402 pylint: disable=wrong-import-position
import test_agents as ta  # noqa: E402 pylint: disable=wrong-import-position

LAYER_MAX = 1.3


def packages(h, agent, env):
    r = h.run("info", agent, h.project("p-" + agent, {}), *h.accel_flags(), "--json", env=env)
    return [f"{x['package']}@{x['version']}" for x in json.loads(r.text)["layers"]]


def reference(folder, names, env):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    t = time.monotonic()
    for n in names:
        r = subprocess.run(["npm", "pack", "--silent", n], cwd=folder, env=env, check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        into = os.path.join(folder, "x-" + n.replace("/", "."))
        os.makedirs(into)
        subprocess.run(["tar", "-xzf", r.stdout.decode().split()[-1], "-C", into], cwd=folder, check=True)
    return time.monotonic() - t


def ours(h, agent, env, images):
    shutil.rmtree(os.path.join(images, "layers"), ignore_errors=True)
    t = time.monotonic()
    r = h.run("image", "build", agent, env=env, timeout_s=600)
    assert r.rc == 0, r
    return time.monotonic() - t


def main():
    build, agents = sys.argv[1], sys.argv[2:] or ["claude", "codex", "gemini"]
    n = int(os.environ.get("BENCH_N", "5"))
    if not shutil.which("npm"):
        print("layer.py: left out: npm is not installed")
        return 0
    harness.prepare(build)
    h = harness.Harness(build, "bench-layer")
    try:
        images = h.path("t", "cloche", "images")
        os.makedirs(images, mode=0o700)
        usual = os.path.join(h.cache, "cloche", "images")
        for d in os.listdir(usual):
            if d.startswith("base-"):
                subprocess.run(["cp", "-al", os.path.join(usual, d), images], check=True)
        env = h.env(XDG_CACHE_HOME=h.path("t"), npm_config_cache=h.path("t", "npm"), **ta.user_npm())
        for agent in agents:
            ours(h, agent, env, images)             # npm's cache is warm from here on
            names = packages(h, agent, env)
            a, b = [], []
            for _ in range(n):
                b.append(reference(h.path("t", "ref"), names, env))
                a.append(ours(h, agent, env, images))
            o, r = statistics.median(a), statistics.median(b)
            print(f"{agent} ({', '.join(names)}): cloche {o:.1f} s ({min(a):.1f} to {max(a):.1f}), "
                  f"npm pack and tar -x {r:.1f} s ({min(b):.1f} to {max(b):.1f}); load {os.getloadavg()[0]:.1f}")
            bl.target(f"layers of {agent}, of npm pack and tar -x", o / r, LAYER_MAX)
    finally:
        h.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
