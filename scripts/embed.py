#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT.c HEADER STRUCT ARRAY FILE...: files as a constant array of {name, text}.

HEADER declares `struct STRUCT { const char *name, *text; }`, `extern const struct
STRUCT ARRAY[]` and `extern const size_t ARRAY_n`. The name is the file's, without
its extension; the order is that of the arguments.
"""
import os
import sys


def main(out, header, struct, array, *files):
    with open(out, "w", encoding="ascii") as f:
        f.write(f'#include "{header}"\n\nconst struct {struct} {array}[] = {{\n')
        for path in files:
            with open(path, "rb") as g:
                data = g.read()
            name = os.path.splitext(os.path.basename(path))[0]
            body = "".join(f"\\{b:03o}" if b < 32 or b > 126 or b in b'"\\?' else chr(b) for b in data)
            lines = body.replace("\\012", '\\012"\n\t  "')
            f.write(f'\t{{ "{name}",\n\t  "{lines}" }},\n')
        f.write(f"}};\nconst size_t {array}_n = sizeof({array}) / sizeof({array}[0]);\n")


main(*sys.argv[1:])
