#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Indexes of all versions and both hashes: the same names as `git ls-files`, and git takes the
copy with skipped entries: right marks, right checksum, clean status."""
import os, random, subprocess, sys, tempfile

TOOL, SEED = sys.argv[1], int(sys.argv[2])
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
       "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@a", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@a"}


def git(d, *args, **kw):
    r = subprocess.run(["git", "-C", d, *args], env=ENV, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, **kw)
    if r.returncode:
        sys.exit("git %r: %s" % (args, r.stderr))
    return r.stdout


def tool(*args, text):
    r = subprocess.run([TOOL, *args], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode:
        sys.exit("%r: %s" % (args, r.stderr))
    return r.stdout


def main():
    done = 0
    rng = random.Random(SEED)
    for fmt, size in (("sha1", "20"), ("sha256", "32")):
        for version in ("2", "3", "4"):
            for ita in (False, True):
                with tempfile.TemporaryDirectory(prefix="gitindex-oracle-") as d:
                    git(d, "init", "-q", "--object-format=" + fmt)
                    git(d, "config", "index.version", version)
                    names = {"a", "b/c", "b/" + "n" * 250, "secret.key", "x/secret.key"}
                    for _ in range(60):
                        names.add("/".join(rng.choice(["d", "ee", "fff", "\xe9"]) +
                                           str(rng.randrange(9)) for _ in range(rng.randrange(1, 5)))
                                  + ".c")
                    for n in names:
                        p = os.path.join(d, n)
                        os.makedirs(os.path.dirname(p), exist_ok=True)
                        with open(p, "w") as f:
                            f.write(n)
                    git(d, "add", "-A")
                    git(d, "commit", "-qm", "x")
                    if ita:
                        open(os.path.join(d, "new"), "w").close()
                        git(d, "add", "-N", "new")
                    git(d, "update-index", "--index-version", version)
                    index = os.path.join(d, ".git/index")
                    with open(index, "rb") as f:
                        text = f.read()
                    want = git(d, "ls-files", "-z")
                    if tool("index", size, text=text) != want:
                        sys.exit("%s v%s: other names" % (fmt, version))
                    copy = tool("skip", size, "secret", text=text)
                    with open(index, "wb") as f:
                        f.write(copy)
                    for n in ("secret.key", "x/secret.key"):
                        os.unlink(os.path.join(d, n))
                    marks = git(d, "ls-files", "-t", "-z").split(b"\0")[:-1]
                    for m in marks:
                        if (m[:1] == b"S") != (b"secret" in m):
                            sys.exit("%s v%s: mark %r" % (fmt, version, m))
                    if git(d, "status", "--porcelain", "-uno").replace(b" A new\n", b""):
                        sys.exit("%s v%s: not clean" % (fmt, version))
                    with open(index, "wb") as f:
                        f.write(copy)
                    git(d, "fsck")  # verifies the checksum of the index
                    done += 1
    print("%d indexes" % done)


main()
