#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pull.py BUILD: an image of 500 MB from a registry on loopback, pulled and merged.

The reference in the same run is `skopeo copy` to an OCI layout and `tar -x` of its layers, in
turns, the least of BENCH_N each. At most 1.0 times is asked, and less than 128 MiB of memory
for each process of ours. Packed layers are five of a hundred MiB, 2,000 files each.
"""
import glob
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "lib"))
from benchlib import least, table, target  # noqa: E402
from registrylib import Image, Registry, tar_of  # noqa: E402

LAYERS, FILES, BYTES = 5, 2000, 50000
OURS = ("cloche", "cloche-image")


def layers():
    rnd = random.Random(1)
    words = [rnd.randbytes(64) for _ in range(4096)]
    for k in range(LAYERS):
        yield tar_of([(f"l{k}", "d")] + [(f"l{k}/f{i}", "f", b"".join(rnd.choices(words, k=BYTES // 64)))
                                         for i in range(FILES)])


def peaks(p):
    """Most resident memory of our processes while @p lives, KiB by name."""
    out = {}
    while p.poll() is None:
        for d in glob.glob("/proc/[0-9]*"):
            try:
                with open(d + "/comm") as f:
                    name = f.read().strip()
                if name in OURS:
                    with open(d + "/status") as f:
                        got = [int(line.split()[1]) for line in f if line.startswith("VmHWM")]
                    out[name] = max([out.get(name, 0), *got])
            except OSError:
                pass
        time.sleep(0.02)
    return out


def main():
    cloche = os.path.join(os.path.abspath(sys.argv[1]), "bin", "cloche")
    runs = int(os.environ.get("BENCH_N", "5"))
    with tempfile.TemporaryDirectory(prefix="cloche-bench-",
                                     dir=os.environ.get("BENCH_SCRATCH", "/var/tmp")) as top:
        home, out = os.path.join(top, "home"), os.path.join(top, "out")
        os.makedirs(home)
        env = {"HOME": home, "PATH": "/usr/bin:/bin"}
        with Registry(os.path.join(top, "registry"), user=None) as reg:
            reg.trust(home, login=False, insecure=True)
            img = Image(list(layers()), {"Cmd": ["/x"]}, docker=False)
            reg.push("t/x", "1", img)
            ref = f"{reg.host}/t/x:1"
            pull = [cloche, "image", "pull", "--quiet", ref]

            def ours():
                shutil.rmtree(os.path.join(home, ".cache"), ignore_errors=True)
                os.sync()
                t0 = time.monotonic()
                subprocess.run(pull, env=env, check=True, stderr=subprocess.DEVNULL)
                return time.monotonic() - t0

            def theirs():
                shutil.rmtree(out, ignore_errors=True)
                os.makedirs(os.path.join(out, "x"))
                os.sync()
                t0 = time.monotonic()
                subprocess.run(["skopeo", "copy", "-q", "docker://" + ref, f"oci:{out}/l:x"], env=env,
                               check=True)
                for d in img.layers:
                    subprocess.run(["tar", "-xzf", f"{out}/l/blobs/sha256/{d[7:]}", "-C", f"{out}/x"],
                                   check=True)
                return time.monotonic() - t0

            a, b = [], []
            for _ in range(runs):
                a.append(ours())
                b.append(theirs())
            shutil.rmtree(os.path.join(home, ".cache"))
            memory = peaks(subprocess.Popen(pull, env=env, stderr=subprocess.DEVNULL))
    table(("", "least s"), [("cloche image pull", f"{least(a):.2f}"), ("skopeo copy, tar -x", f"{least(b):.2f}")])
    target("pull and merge, times skopeo copy and tar -x", least(a) / least(b), 1.0)
    target("memory of a pull, MiB", max(memory.values()) / 1024, 128)
    return 0


if __name__ == "__main__":
    sys.exit(main())
