# SPDX-License-Identifier: Apache-2.0
"""The list of packages is well formed, and the CI's tools are in it."""
import os
import re

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


mini.main(globals())
