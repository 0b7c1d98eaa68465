# SPDX-License-Identifier: Apache-2.0
"""The include check finds what it is there for, and lets pass what is right."""
import os

import mini

chk = mini.load_script("scripts", "check-includes.py")


def findings(tmp, files, compile_too=False):
    for rel, text in files.items():
        os.makedirs(os.path.join(tmp, os.path.dirname(rel)), exist_ok=True)
        with open(os.path.join(tmp, rel), "w", encoding="utf-8") as f:
            f.write(text)
    layers = chk.layer_of()
    out = []
    for rel in chk.files_of(tmp):
        out += chk.check_file(tmp, rel, layers)
        if compile_too and rel.endswith(".h"):
            out += chk.check_alone(tmp, rel, ["cc"])
    return out


TABLE = [
    # (why, file, text, part of the finding, or None)
    ("down is right", "super/a.c", '#include "wire/frame.h"\n', None),
    ("own folder", "wire/a.c", '#include "wire/frame.h"\n', None),
    ("upward", "wire/a.c", '#include "super/a.h"\n', "upward"),
    ("sideways", "vmm/a.c", '#include "image/image.h"\n', "sideways"),
    ("listed sideways", "disk/a.c", '#include "workspace/scan.h"\n', None),
    ("guest sees wire", "guest/a.c", '#include "wire/frame.h"\n', None),
    ("guest sees no manifest", "guest/a.c", '#include "manifest/manifest.h"\n', "sees only"),
    ("nobody sees guest", "cli/a.c", '#include "guest/init.h"\n', "nothing else"),
    ("net and broker", "net/a.c", '#include "broker/b.h"\n', "never"),
    ("private header", "cli/a.c", '#include "review/x_priv.h"\n', "private"),
    ("private at home", "review/a.c", '#include "review/x_priv.h"\n', None),
    ("no folder", "wire/a.c", '#include "frame.h"\n', "name the folder"),
    ("dots", "wire/a.c", '#include "wire/../cli/a.h"\n', "start at src"),
    ("unknown folder", "nowhere/a.c", "", "no layer"),
    ("libc", "wire/a.c", "#include <stdint.h>\n#include <sys/stat.h>\n", None),
    ("third party, wrong file", "wire/a.c", "#include <seccomp.h>\n", "adapter"),
    ("third party, adapter", "base/hash.c", "#include <sodium.h>\n", None),
    ("third party, not listed", "wire/a.c", "#include <openssl/ssl.h>\n", "unknown"),
    ("spaces", "wire/a.c", '  #  include   "cli/a.h"\n', "upward"),
]


def test_table(tmp):
    for i, (why, rel, text, want) in enumerate(TABLE):
        got = findings(os.path.join(tmp, str(i)), {rel: text})
        if want is None:
            assert not got, f"{why}: {got}"
        else:
            assert len(got) == 1 and want in got[0], f"{why}: {got}"


def test_one_a_folder(tmp):
    files = {"vmm/a.c": "#include <jansson.h>\n", "image/b.c": "#include <jansson.h>\n"}
    assert not findings(tmp, files)
    files["vmm/c.c"] = "#include <jansson.h>\n"
    assert not findings(tmp, files)
    got = chk.check_one_a_folder(tmp, chk.files_of(tmp))
    assert len(got) == 1 and "vmm/a.c has it" in got[0], got


def test_own_header_first(tmp):
    files = {"wire/a.h": "", "wire/a.c": '#include <stdint.h>\n#include "wire/a.h"\n'}
    got = findings(tmp, files)
    assert len(got) == 1 and "first include" in got[0], got


def test_header_alone(tmp):
    good = {"wire/a.h": "#include <stdint.h>\nstruct a { uint8_t b; };\n"}
    assert not findings(tmp, good, True)
    bad = {"wire/b.h": "struct b { uint8_t b; };\n"}
    got = findings(tmp, bad, True)
    assert len(got) == 1 and "alone" in got[0], got


mini.main(globals())
