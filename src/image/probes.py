#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""probes.py OUT.c probes.conf: the probes of registry.h as a table, checked."""
import re
import sys

out, path = sys.argv[1:]
probes = []
with open(path, encoding="ascii") as f:
    for no, line in enumerate(f, 1):
        line = line.rstrip("\n")
        if not line or line.startswith("#"):
            continue
        verb, _, rest = line.partition(" ")
        words = rest.split()
        if verb == "probe":
            name, *sides = words
            assert re.fullmatch("[a-z][a-z0-9-]{0,15}", name) and sides, f"{path}:{no}"
            assert set(sides) <= {"image", "host"}, f"{path}:{no}: a side is image or host"
            assert name not in [p["name"] for p in probes], f"{path}:{no}: {name} stands twice"
            probes.append({"name": name, "sides": sides, "needs": "", "env": [], "file": [], "run": []})
        elif verb == "needs":
            probes[-1]["needs"], = words
        elif verb in ("env", "file"):
            probes[-1][verb] += words
        elif verb == "run":
            probes[-1]["run"].append(rest)
        else:
            sys.exit(f"{path}:{no}: what is '{verb}'?")


def text(s):
    # octal without the risk of a digit that follows
    return '"' + "".join(f"\\{b:03o}" if b < 32 or b > 126 or b in b'"\\?' else chr(b) for b in s.encode()) + '"'


def names(v):
    return "(const char *const[]){ " + "".join(text(s) + ", " for s in v) + "NULL }"


with open(out, "w", encoding="ascii") as f:
    f.write('#include "image/registry.h"\n\nconst struct registry_probe registry_probes[] = {\n')
    for p in probes:
        assert p["needs"] and p["run"], f"{path}: {p['name']} needs a program and a script"
        side = " | ".join(f"REGISTRY_{s.upper()}" for s in p["sides"])
        script = "\n\t\t  ".join(text(s + "\n") for s in p["run"])
        f.write(f"\t{{ {text(p['name'])}, {text(p['needs'])}, {side},\n\t\t  {names(p['env'])},\n"
                f"\t\t  {names(p['file'])},\n\t\t  {script} }},\n")
    f.write("};\nconst size_t registry_probes_n = sizeof(registry_probes) / sizeof(registry_probes[0]);\n")
