# SPDX-License-Identifier: Apache-2.0
"""The list of packages is well formed, and the CI's tools are in it."""
import os
import re
import shutil
import subprocess

import mini


def rows():
    with open(os.path.join(mini.ROOT, "scripts", "packages.txt"), encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                yield n, line


def test_each_row_has_group_name_reason(tmp):
    seen = set()
    for n, line in rows():
        m = re.fullmatch(r"(build|run|test|bench|check)\t([a-z0-9][a-z0-9.+-]+)\t+# \S.*", line)
        assert m, f"line {n}: {line!r}"
        assert m[2] not in seen, f"line {n}: {m[2]} is there twice"
        seen.add(m[2])


def test_each_library_is_used(tmp):
    """A package of headers that no file includes is one too many to install."""
    if not shutil.which("dpkg"):
        return
    used = set()
    for folder in ("src", "tests"):
        for top, _, names in os.walk(os.path.join(mini.ROOT, folder)):
            for n in names:
                if n.endswith((".c", ".h")):
                    with open(os.path.join(top, n), encoding="utf-8") as f:
                        used |= set(re.findall(r'^[ \t]*#[ \t]*include[ \t]*<([^>]+)>', f.read(), re.M))
    for n, line in rows():
        group, name = line.split("\t")[:2]
        if group != "build" or not name.startswith("lib") or name == "libc6-dev":
            continue
        r = subprocess.run(["dpkg", "-L", name], capture_output=True, text=True)
        if r.returncode:
            continue        # not installed here: nothing can be said
        headers = {re.sub(r"^/usr/include/(x86_64-linux-gnu/)?", "", h) for h in r.stdout.split("\n")
                   if h.endswith(".h")}
        below = {h.split("/", 1)[1] for h in headers if "/" in h}   # found by a -I of its own
        assert used & (headers | below), f"line {n}: no file includes a header of {name}"


mini.main(globals())
