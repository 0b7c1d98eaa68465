#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""git and our lexer read random configurations alike, and git reads what the sanitiser wrote
as exactly the allowed part of what it read before."""
import os, random, subprocess, sys, tempfile

TOOL, ROUNDS, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
PIECES = [b"[core]", b"[remote \"o\"]", b"[Remote \"a\\\"b\\\\\"]", b"[branch.Main]", b"[a.b \"c\"]",
          b"[core] bare = true", b"\n", b"\n", b"\n", b"\r\n", b"\t", b" ", b"url = ", b"fetch=", b"bare",
          b"filemode = false", b"\"", b"\\\"", b"\\\\", b"\\\n", b"\\n", b"\\t", b"\\b", b"\\x", b"#", b";",
          b" # comment", b"x", b"sshCommand = rm", b"key-1=", b"=", b"]", b"[", b"[user]\n", b"name = A  B ",
          b"email=\"a@b\" ", b"[]", b"[core ]", b"[remote \"\"]", b"\xff", b"[remote\t\"t\"]", b"9", b"-",
          b"[url \"https://u:p@h/\"]\n", b"insteadOf = x\n", b"[include]path=/etc/passwd\n",
          b"https://u:secret@h/x", b"ssh://git@h/x", b"git@h:x", b"\xef\xbb\xbf", b"\\\r\n", b"\r"]


def git_list(path):
    r = subprocess.run(["git", "config", "--no-includes", "-z", "-l", "-f", path], env=ENV,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return r.stdout if r.returncode == 0 else None


def tool(mode, text):
    r = subprocess.run([TOOL, mode], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode not in (0, 1):
        sys.exit("%s ended with %d on %r" % (mode, r.returncode, text))
    return r.stdout if r.returncode == 0 else None


def main():
    legal = refused = 0
    with tempfile.TemporaryDirectory(prefix="gitconfig-oracle-") as d:
        path = os.path.join(d, "config")
        for round_ in range(ROUNDS):
            rng = random.Random(SEED * 1000003 + round_)
            if rng.random() < 0.5:
                text = b"".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 14)))
            else:  # mostly legal
                text = rng.choice([b"", b"\xef\xbb\xbf"])
                for _ in range(rng.randrange(1, 6)):
                    text += rng.choice(PIECES[:6] + PIECES[36:38]) + rng.choice([b"\n", b" ", b"\r\n"])
                    for _ in range(rng.randrange(3)):
                        text += rng.choice([b"url", b"k", b"Name", b"bare"]) + rng.choice([b" =", b"=", b" = "])
                        text += b"".join(rng.choice(PIECES[12:39]) for _ in range(rng.randrange(4)))
                        text += rng.choice([b"\n", b"\r\n"])
            with open(path, "wb") as f:
                f.write(text)
            want, got = git_list(path), tool("config", text)
            # gits from 2.45 on keep a tab inside a value, older ones made it a blank
            norm = (lambda s: s if s is None else s.replace(b"\t", b" ").replace(b"\r", b" "))
            if norm(want) != norm(got):
                sys.exit("round %d: %r\ngit  %r\nours %r" % (round_, text, want, got))
            if want is None:
                refused += 1
                continue
            legal += 1
            clean = tool("sanitise", text)
            with open(path, "wb") as f:
                f.write(clean)
            again = git_list(path)
            if again is None:
                sys.exit("round %d: git refuses %r made from %r" % (round_, clean, text))
            for word in (b"secret", b"u:p@", b"passwd"):
                if word in clean.lower():
                    sys.exit("round %d: %r survived in %r" % (round_, word, clean))
            for v in again.split(b"\0")[:-1]:
                if v.lower().startswith((b"core.sshcommand", b"include.", b"url.")):
                    sys.exit("round %d: %r survived" % (round_, v))
            names = [v.split(b"\n")[0] for v in want.split(b"\0")]
            for v in again.split(b"\0")[:-1]:
                if v.split(b"\n")[0] not in names:
                    sys.exit("round %d: %r appeared" % (round_, v))
            if tool("sanitise", clean) != clean:
                sys.exit("round %d: cleaning %r twice gives something else" % (round_, clean))
    print("%d configurations read alike, %d refused by both" % (legal, refused))
    if legal < ROUNDS // 10 or refused < ROUNDS // 10:
        sys.exit("lopsided: this tested little")


main()
