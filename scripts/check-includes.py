#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold the include arrows of docs/architecture.md ("Folders").

Checked of every file below src/: it includes only its own folder and folders of
lower layers; the guest only what runs in the guest; a third-party header only
in that library's adapter file; a _priv.h only in its own folder; a .c file its
own header first. Every header compiles alone.
"""
import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# Lowest first. A folder sees the folders of the lines above its own.
LAYERS = [
    ["base"],
    ["event", "wire", "policy", "manifest", "erofs"],
    ["config", "cage", "secret", "term"],
    ["workspace", "image", "disk", "vmm", "net", "relay", "broker", "review"],
    ["super"],
    ["cli"],
]

# Within a layer, or in the guest, on purpose: (who, whom): why.
SIDEWAYS = {
    ("disk", "workspace"): "the disk server reads the snapshot that the scan describes",
}

# Folders that see exactly these (beside themselves), whatever their layer.
ONLY = {
    "guest": ["base", "event", "wire"],
}

# Never, also when the layers would allow it: these hold keys, or parse packets.
NEVER = {("net", "broker"), ("broker", "net"), ("net", "secret"), ("relay", "secret")}

# Header (or its first folder): its adapter files, below src/. Empty: not in src/ at all.
THIRD_PARTY = {
    "sodium.h": ["base/hash.c", "secret/lock.c"],
    "seccomp.h": ["cage/roles.c"],
    "cap-ng.h": ["cage/ids.c"],
    "yaml.h": ["config/yamlread.c"],
    "git2.h": ["review/git2.c"],
    "archive.h": ["image/tar.c"],
    "archive_entry.h": ["image/tar.c"],
    "slirp": ["net/slirp.c"],
    "curl": ["broker/upstream.c"],
    "ares.h": ["relay/resolve.c"],
    "microhttpd.h": ["broker/pages.c"],
    "libsecret": ["secret/keyring.c"],
    "vterm.h": [],
    "cmocka.h": [],
}

# One file in each folder: it turns a format of that folder's own into its structs.
# cli/ is left out: each command writes its own --json.
ONE_A_FOLDER = {"jansson.h"}
# ... beside these: formats that have nothing in common with that file's.
ALSO = {"image/pullmeta.c", "image/ociread.c"}

# What a C library and the kernel's own headers bring.
LIBC = set("""
    aio.h assert.h byteswap.h cpuid.h ctype.h dirent.h dlfcn.h elf.h endian.h err.h errno.h
    execinfo.h fcntl.h features.h float.h fnmatch.h ftw.h getopt.h glob.h grp.h ifaddrs.h immintrin.h
    inttypes.h langinfo.h libgen.h limits.h link.h locale.h malloc.h math.h mntent.h netdb.h
    paths.h poll.h pthread.h pty.h pwd.h regex.h sched.h search.h semaphore.h setjmp.h shadow.h
    signal.h spawn.h stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h
    stdio_ext.h stdlib.h string.h strings.h syscall.h syslog.h termios.h threads.h time.h uchar.h
    ucontext.h unistd.h utime.h utmp.h wchar.h wctype.h wordexp.h x86intrin.h
""".split())
LIBC_DIRS = {"sys", "linux", "asm", "net", "netinet", "arpa", "bits", "scsi"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def layer_of():
    return {folder: i for i, layer in enumerate(LAYERS) for folder in layer}


def check_quoted(rel, folder, inc, layers):
    """What is wrong with `#include "inc"` in src/rel, or None."""
    if "/" not in inc:
        return f'"{inc}": name the folder too ("{folder}/{inc}")'
    other = inc.split("/")[0]
    if ".." in inc.split("/"):
        return f'"{inc}": paths start at src/'
    if other == folder:
        return None
    if inc.endswith("_priv.h"):
        return f'"{inc}" is private to {other}/'
    if (folder, other) in NEVER:
        return f'"{inc}": {folder} must never see {other}'
    if (folder, other) in SIDEWAYS:
        return None
    if folder in ONLY:
        if other in ONLY[folder]:
            return None
        return f'"{inc}": {folder} sees only {", ".join(ONLY[folder])}'
    if other in ONLY:
        return f'"{inc}": nothing else includes {other}'
    if other not in layers:
        return f'"{inc}": folder {other} is in no layer'
    if layers[other] < layers[folder]:
        return None
    return f'"{inc}": {folder} includes {"sideways" if layers[other] == layers[folder] else "upward"}'


def check_system(rel, inc):
    top = inc.split("/")[0]
    if inc in ONE_A_FOLDER:
        return None             # see check_one_a_folder()
    key = inc if inc in THIRD_PARTY else top
    if key in THIRD_PARTY:
        if rel in THIRD_PARTY[key]:
            return None
        where = ", ".join(THIRD_PARTY[key]) or "tests only"
        return f"<{inc}> belongs into its adapter ({where})"
    if inc in LIBC or (top in LIBC_DIRS and "/" in inc):
        return None
    return f"<{inc}>: an unknown library; give it an adapter file in THIRD_PARTY"


def check_file(src, rel, layers):
    folder = rel.split("/")[0]
    with open(os.path.join(src, rel), encoding="utf-8") as f:
        text = f.read()
    bad = []
    if folder not in layers and folder not in ONLY:
        bad.append(f"folder {folder} is in no layer")
    first = None
    for kind, inc in INCLUDE.findall(text):
        first = first or inc
        if kind == '"':
            bad.append(check_quoted(rel, folder, inc, layers) if folder in layers or folder in ONLY
                       else None)
        else:
            bad.append(check_system(rel, inc))
    own = rel[:-2] + ".h"
    if rel.endswith(".c") and os.path.exists(os.path.join(src, own)) and first != own:
        bad.append(f'its own header "{own}" is not its first include')
    return [f"src/{rel}: {b}" for b in bad if b]


def check_one_a_folder(src, files):
    seen, bad = {}, []
    for rel in files:
        with open(os.path.join(src, rel), encoding="utf-8") as f:
            for _, inc in INCLUDE.findall(f.read()):
                key = (rel.split("/")[0], inc)
                if inc in ONE_A_FOLDER and key[0] != "cli" and rel not in ALSO and seen.setdefault(key, rel) != rel:
                    bad.append(f"src/{rel}: <{inc}> is for one file of {key[0]}/, and {seen[key]} has it")
    return bad


def check_alone(src, rel, cc):
    got = subprocess.run(
        [*cc, "-fsyntax-only", "-x", "c", "-std=gnu17", "-Wall", "-Wextra", "-Werror",
         "-Wno-unused-function", "-Wno-pragma-once-outside-header", "-D_GNU_SOURCE",
         "-D_FILE_OFFSET_BITS=64", "-I", src, "-include", os.path.join(src, rel), "/dev/null"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if got.returncode == 0:
        return []
    return [f"src/{rel}: does not compile alone:\n" + got.stderr.rstrip()]


def files_of(src):
    out = []
    for d, _, names in os.walk(src):
        for n in names:
            if n.endswith((".c", ".h")):
                out.append(os.path.relpath(os.path.join(d, n), src))
    return sorted(out)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ap = argparse.ArgumentParser()
    ap.add_argument("--src", default=os.path.join(root, "src"))
    ap.add_argument("--no-compile", action="store_true")
    a = ap.parse_args()
    layers = layer_of()
    files = files_of(a.src)
    bad = []
    for rel in files:
        bad += check_file(a.src, rel, layers)
    bad += check_one_a_folder(a.src, files)
    headers = [f for f in files if f.endswith(".h")]
    if not a.no_compile:
        cc = os.environ.get("CC", "cc").split()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for b in pool.map(lambda h: check_alone(a.src, h, cc), headers):
                bad += b
    for b in bad:
        print(b)
    print(f"{len(files)} files, {len(headers)} headers, {len(bad)} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
