#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""git check-ignore and our matcher say the same about random patterns and trees."""
import os, random, subprocess, sys, tempfile

TOOL, ROUNDS, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
NAMES = ["a", "b", "ab", "abc", "a.o", "b.o", ".x", "A", "a b", "#a", "!a", "[a]", "a*", "a\\",
         "-", "]", "a ", "foo", "foobar", "x1", "\xe9", "n\nl"]
ATOMS = ["a", "b", "c", ".o", "*", "*", "**", "?", "/", "/", "**/", "/**", "/**/", "[ab]", "[!a]",
         "[^b]", "[a-c]", "[]a]", "[a-]", "[[:alpha:]]", "[[:digit:]x]", "[[:nope:]]", "[", "]",
         "\\", "\\*", "\\a", "\\/", "\\#", "#", "!", " ", "\\ ", "foo", "bar", ".", "x1", "1",
         "-", "[\\]]", "[a\\-c]", "\xe9", "***", "[!-a]", "[--0]", "[a-c-e]", "[[:]", "[[:a]",
         "[[a]:]", "[!]a]", "[.-0]"]


def enc(s):
    return s.encode("latin-1")


def pattern(rng):
    if rng.random() < 0.35:                      # near a real name, so that much matches
        s = rng.choice(NAMES)
        if rng.random() < 0.4:
            s = s + "/" + rng.choice(NAMES)
        s = list(s)
        for _ in range(rng.randrange(3)):
            s.insert(rng.randrange(len(s) + 1), rng.choice(ATOMS))
        s = "".join(s)
    else:
        s = "".join(rng.choice(ATOMS) for _ in range(rng.randrange(1, 7)))
    if rng.random() < 0.25:
        s = "!" + s
    if rng.random() < 0.15:
        s = "/" + s
    if rng.random() < 0.15:
        s += "/"
    if rng.random() < 0.1:
        s += rng.choice([" ", "  ", "\\ ", "\t", "\r"])
    return s.replace("\n", "")


def patterns(rng):
    lines = [pattern(rng) for _ in range(rng.randrange(1, 30 if rng.random() < 0.2 else 7))]
    text = rng.choice(["\n", "\n", "\r\n"]).join(lines)
    return enc(rng.choice(["", "", "", "\xef\xbb\xbf"]) + text + rng.choice(["\n", "\n", ""]))


def tree(rng, top, rel, depth, paths):
    for name in rng.sample(NAMES, rng.randrange(2, 6)):
        path = (rel + "/" if rel else "") + name
        full = os.path.join(top, enc(path))
        if depth < 3 and rng.random() < 0.5:
            os.mkdir(full)
            paths.append((path, True))
            tree(rng, top, path, depth + 1, paths)
        else:
            open(full, "wb").close()
            paths.append((path, False))


def main():
    checked = ignored = 0
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
           "GIT_CONFIG_GLOBAL": "/dev/null"}
    for round_ in range(ROUNDS):
        rng = random.Random(SEED * 1000003 + round_)
        with tempfile.TemporaryDirectory(prefix="ignore-oracle-") as top_s:
            top = os.fsencode(top_s)
            subprocess.run(["git", "init", "-q", top_s], env=env, check=True)
            paths, lists = [], []
            tree(rng, top, "", 0, paths)
            dirs = [""] + [p for p, d in paths if d and rng.random() < 0.4]
            for d in dirs:
                text = patterns(rng)
                lists.append((d, 1, text))
                with open(os.path.join(top, enc(d), b".gitignore"), "wb") as f:
                    f.write(text)
            if rng.random() < 0.5:
                text = patterns(rng)
                lists.append(("", 0, text))
                with open(os.path.join(top, b".git/info/exclude"), "wb") as f:
                    f.write(text)
            else:
                open(os.path.join(top, b".git/info/exclude"), "wb").close()
            # a path with a newline or a trailing blank is fine with -z
            asked = b"".join(enc(p) + b"\0" for p, _ in paths)
            r = subprocess.run(["git", "-C", top_s, "-c", "core.ignoreCase=false", "check-ignore",
                                "--no-index", "-v", "-n", "-z", "--stdin"], env=env, input=asked,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if r.returncode > 1:
                sys.exit("git: %s" % r.stderr)
            f = r.stdout.split(b"\0")
            want = [bool(f[i]) and not f[i + 2].startswith(b"!") for i in range(0, len(f) - 1, 4)]
            why = [f[i:i + 4] for i in range(0, len(f) - 1, 4)]
            q = b"%d\n" % len(lists)
            for d, rank, text in lists:
                q += b"%d\n%d\n%d\n" % (len(enc(d)), rank, len(text)) + enc(d) + text
            q += b"%d\n" % len(paths)
            for p, d in paths:
                q += b"%d\n%d\n" % (d, len(enc(p))) + enc(p)
            out = subprocess.run([TOOL], input=q, stdout=subprocess.PIPE, check=True).stdout
            got = [x == b"1" for x in out.split()]
            if len(got) != len(paths) or len(want) != len(paths):
                sys.exit("round %d: %d, %d answers for %d paths"
                         % (round_, len(got), len(want), len(paths)))
            for (p, d), w, g, y in zip(paths, want, got, why):
                checked += 1
                ignored += w
                if w != g:
                    sys.exit("round %d, %r%s: git says %s by %r, we say %s; files %r"
                             % (round_, p, "/" if d else "", w, y, g, lists))
    print("%d paths, %d of them ignored, no difference" % (checked, ignored))
    if ignored == 0:
        sys.exit("nothing was ignored: this tested nothing")


main()
