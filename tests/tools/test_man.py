# SPDX-License-Identifier: Apache-2.0
"""The manual page has every command and every option that `cloche help` knows."""
import os
import re
import subprocess
import sys

import mini

CLOCHE = os.path.abspath(sys.argv[1])


def help_of(*words):
    p = subprocess.run([CLOCHE, "help", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert p.returncode == 0, p
    return p.stdout


def test_all_is_there(tmp):
    with open(os.path.join(mini.ROOT, "man", "cloche.1.scd"), encoding="utf-8") as f:
        page = f.read()
    commands = re.findall(r"^  (\w+) ", help_of(), re.M)
    assert "run" in commands and len(commands) > 8, commands
    missing = [c for c in commands if not re.search(rf"\*{c}\b", page)]
    options = set()
    for c in commands:
        options |= set(re.findall(r"^ +(?:-\w, +)?(--[a-z-]+)", help_of(c), re.M))
    assert "--accel" in options, options
    missing += [o for o in sorted(options) if f"*{o}*" not in page]
    assert not missing, missing


mini.main(globals())
