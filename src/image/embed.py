#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT.c FILE...: the recipes as C arrays, in the order of the arguments."""
import os
import sys

with open(sys.argv[1], "w", encoding="ascii") as out:
    out.write('#include "image/recipe.h"\n\nconst struct recipe_text recipe_texts[] = {\n')
    for path in sys.argv[2:]:
        data = open(path, "rb").read()
        name = os.path.basename(path).removesuffix(".conf")
        body = "".join(f"\\{b:03o}" if b < 32 or b > 126 or b in b'"\\?' else chr(b) for b in data)
        lines = body.replace("\\012", '\\012"\n\t  "')
        out.write(f'\t{{ "{name}",\n\t  "{lines}" }},\n')
    out.write("};\nconst size_t recipe_texts_n = sizeof(recipe_texts) / sizeof(recipe_texts[0]);\n")
