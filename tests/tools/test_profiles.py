# SPDX-License-Identifier: Apache-2.0
"""The loader of profiles, docs/schemas/profile.json and docs/profiles.md say the same."""
import copy
import glob
import json
import os
import re
import subprocess
import sys
import tomllib

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
import schema  # noqa: E402

TOOL = os.path.abspath(sys.argv[1])
SCHEMA = schema.load("profile")


def load(docs):
    """What the loader says of each document (bytes)."""
    p = subprocess.run([TOOL], input=b"".join(d + b"\0" for d in docs), capture_output=True, check=True)
    got = [json.loads(line) for line in p.stdout.splitlines()]
    assert len(got) == len(docs), (len(got), len(docs))
    return got


def corpus(folder):
    files = sorted(glob.glob(os.path.join(mini.ROOT, folder, "*")))
    assert files, folder
    docs = []
    for name in files:
        with open(name, "rb") as f:
            docs.append(f.read())
    return list(zip([os.path.basename(f) for f in files], load(docs)))


def fits(got):
    """Does it fit the schema, read by a reader who may take yes for true?"""
    return "tree" in got and not got["ambiguous"] and not schema.check(got["tree"], SCHEMA, SCHEMA)


def test_good(tmp):
    for folder in ("profiles", "tests/profiles/good"):
        for name, got in corpus(folder):
            assert got["ok"], (name, got["error"])
            assert not schema.check(got["tree"], SCHEMA, SCHEMA), (name, schema.check(got["tree"], SCHEMA, SCHEMA))


def test_bad(tmp):
    for name, got in corpus("tests/profiles/bad"):
        assert not got["ok"], name
        assert re.match(r"doc:\d+:\d+: ", got["error"]), (name, got["error"])
        assert not fits(got), f"{name}: only the loader refuses it: {got['error']}"


def test_rules_between_keys(tmp):
    for name, got in corpus("tests/profiles/rules"):
        assert not got["ok"], name
        assert re.match(r"doc:\d+:\d+: ", got["error"]), (name, got["error"])
        assert fits(got), (name, schema.check(got["tree"], SCHEMA, SCHEMA))


def places(v, s, path=()):
    """Every key of a value that the schema names: (path to its mapping, key)."""
    if path and path[-1] == "merge":
        return
    if isinstance(v, dict):
        for k, x in v.items():
            yield path, k
            yield from places(x, s, path + (k,))
    elif isinstance(v, list):
        for i, x in enumerate(v):
            yield from places(x, s, path + (i,))


def at(v, path):
    for p in path:
        v = v[p]
    return v


FREE = {("env", "set"), ("quiet", "env")}


def test_every_key_is_held(tmp):
    """Each key of full.yaml: misspelled, without a value, and with values of other types."""
    with open(os.path.join(mini.ROOT, "tests", "profiles", "good", "full.yaml"), "rb") as f:
        full = load([f.read()])[0]["tree"]
    cases = []
    for path, key in places(full, SCHEMA):
        old = at(full, path)[key]
        for why, new in (("null", None), ("a list of lists", [[1]]), ("a number", -7), ("a mapping", {"q": {"q": []}}),
                         ("a text", "\n"), ("truth", True)):
            if type(new) is type(old) and why in ("truth",):
                continue
            doc = copy.deepcopy(full)
            at(doc, path)[key] = new
            cases.append((path, key, why, doc))
        # a free name (a variable, a command) may be another one
        if path not in FREE and "bin" not in path:
            doc = copy.deepcopy(full)
            m = at(doc, path)
            items = [(k + "z" if k == key else k, x) for k, x in m.items()]
            m.clear()
            m.update(items)
            cases.append((path, key, "misspelled", doc))
    got = load([json.dumps(c[3]).encode() for c in cases])
    assert len(cases) > 500, len(cases)
    for (path, key, why, doc), g in zip(cases, got):
        fit = not schema.check(doc, SCHEMA, SCHEMA)
        where = ".".join(map(str, path + (key,)))
        # literal values are any text, of one line or more
        if path[:2] == ("env", "set") and why == "a text" and key not in ("ref", "refs"):
            continue
        if path[:1] == ("command",) or (path == ("quiet", "env") and why == "a text"):
            continue
        if key == "merge" and why == "a mapping":
            continue
        assert not g["ok"], f"{where}: {why} is accepted"
        assert not fit, f"{where}: {why} fits the schema, but: {g['error']}"
        if why == "misspelled":
            assert "unknown key" in g["error"] and f"'{key}'" in g["hint"], (where, g)


def keys():
    p = subprocess.run([TOOL, "--keys"], capture_output=True, text=True, check=True)
    return [line.split("\t")[0] for line in p.stdout.splitlines()]


def schema_keys(s, prefix=""):
    if "$ref" in s:
        node = SCHEMA
        for part in s["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        yield from schema_keys(node, prefix)
    for o in s.get("oneOf", []):
        yield from schema_keys(o, prefix)
    for k, x in s.get("properties", {}).items():
        yield prefix + k
        if k != "merge":
            yield from schema_keys(x, prefix + k + ".")
    if isinstance(s.get("additionalProperties"), dict):
        yield from schema_keys(s["additionalProperties"], prefix[:-1] + ".NAME.")
    if "items" in s:
        yield from schema_keys(s["items"], prefix[:-1] + "[].")


def test_same_keys(tmp):
    assert sorted(set(schema_keys(SCHEMA))) == sorted(keys())


def test_full_has_every_key(tmp):
    with open(os.path.join(mini.ROOT, "tests", "profiles", "good", "full.yaml"), "rb") as f:
        full = load([f.read()])[0]["tree"]
    seen = set()
    for path, key in places(full, SCHEMA):
        name = ""
        for p in path:
            name += "[]" if isinstance(p, int) else ("." if name else "") + p
        name = re.sub(r"^(env\.set|quiet\.env|recipe\.npm\[\]\.bin)\.[A-Za-z_0-9-]+", r"\1.NAME", name)
        seen.add((name + "." if name else "") + key)
    # the two kinds that exclude each other are in other files
    assert set(keys()) - seen == {"image"}, set(keys()) - seen


def test_documented(tmp):
    with open(os.path.join(mini.ROOT, "docs", "profiles.md"), encoding="utf-8") as f:
        page = f.read().split("## The built-in ones")[0]
    named = set(re.findall(r"^\| `([a-z_.\[\]A-Z]+)` \|", page, re.M))
    assert named == set(keys()), (named ^ set(keys()))


def test_places_and_hints(tmp):
    docs = [(b"name: a\ncommand: [a]\nresorces:\n  cpus: 1\n", "doc:3:1: unknown key 'resorces'", "did you mean 'resources'?"),
            (b"name: a\ncommand: [a]\nenv:\n  pass: [A]\n  dney: [B]\n", "doc:5:3: unknown key 'env.dney'",
             "did you mean 'deny'?"),
            (b"name: a\ncommand: [a]\nvolumes:\n  - kind: tmpfs\n    path: /x\n", "doc:5:11: 'volumes.path' must be", ""),
            (b"name: a\ncommand: [a]\nenv:\n  set:\n    A: {vaule: SECRET}\n", "doc:5:9: unknown key 'env.set.A.vaule'",
             "did you mean 'value'?"),
            (b"name: a\n", "doc:1:1: 'command' is missing", "")]
    for (doc, error, hint), got in zip(docs, load([d[0] for d in docs])):
        assert got["error"].startswith(error), got
        assert hint in got["hint"], got


def test_values_are_not_repeated(tmp):
    """A literal may be a secret: no error shows one."""
    for got in load([b"name: a\ncommand: [a]\nenv: {set: {A: {value: [s3cret]}}}\n",
                     b"name: a\ncommand: [a]\nenv: {set: {A: 53cret.1, B: 534534}}\n",
                     b"name: a\ncommand: [a]\nenv: {set: {HOME: s3cret}}\n"]):
        assert not got["ok"]
        assert "cret" not in got["error"] and "534534" not in got["error"], got


# ---- seeds: Python's own readers are the oracle ------------------------------

PROJECTS = ["/work/demo", '/work/o "ther']


def seed(doc, *args):
    p = subprocess.run([TOOL, "--seeds", *args], input=doc, capture_output=True, check=True)
    got = json.loads(p.stdout)
    for path, text in got["files"].items():
        got["files"][path] = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    return got


def put(v, names):
    if isinstance(v, dict):
        return {put(k, names): put(x, names) for k, x in v.items()}
    if isinstance(v, list):
        return [put(x, names) for x in v]
    if isinstance(v, str):
        return re.sub(r"\$\{(\w+)\}", lambda m: names.get(m[1], m[0]), v)
    return v


def lay(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return {k: lay(a.get(k), b[k]) if k in b else a[k] for k in {**a, **b}}
    return b


def expected(tree, login, url, env):
    """What docs/profiles.md says, a second time."""
    names = {"CLOCHE_HOME": tree.get("home", "/home/agent"), "CLOCHE_AGENT_NAME": tree["name"],
             "CLOCHE_SESSION_ID": "demo-1", "CLOCHE_WORKSPACE": PROJECTS[0]}
    if url:
        names["CLOCHE_MCP_URL"] = url
    passed = {n for n in env if n not in tree.get("env", {}).get("metered", [])}
    login = login or bool(passed & set(tree.get("credentials", {}).get("env", [])))
    files = {}

    def take(seeds, default, more):
        for s in seeds:
            when = s.get("when", default)
            if when == "login" and not login:
                continue
            tail = {}
            if when.startswith("env."):
                if when[4:] not in passed:
                    continue
                tail = {"CLOCHE_KEY_TAIL": env[when[4:]][-20:]}
            files[s["path"]] = lay(files.get(s["path"]), put(s["merge"], {**names, **more, **tail}))

    take(tree.get("quiet", {}).get("files", []), "always", {})
    take(tree.get("onboarding", []), "login", {})
    for p in PROJECTS:
        take(tree.get("trust", []), "always", {"CLOCHE_WORKSPACE": p})
    if url:
        take(tree.get("mcp", {}).get("inject", []), "always", {})
    return {"login": login, "files": files}


def test_seeds(tmp):
    env = {"GEMINI_API_KEY": "g" * 30 + "-tail-of-the-key-1234", "ONE": "1", "ANTHROPIC_API_KEY": "metered",
           "CLAUDE_CODE_OAUTH_TOKEN": "x"}
    seen = 0
    for name in sorted(glob.glob(os.path.join(mini.ROOT, "profiles", "*.yaml"))) + [
            os.path.join(mini.ROOT, "tests", "profiles", "good", "full.yaml")]:
        with open(name, "rb") as f:
            doc = f.read()
        tree = load([doc])[0]["tree"]
        for login in (False, True):
            for url in (None, "http://127.0.0.1:4483/mcp?a=\"b\""):
                for e in ({}, env):
                    args = (["login"] if login else []) + ([f"mcp={url}"] if url else [])
                    got = seed(doc, *args, *[f"{k}={v}" for k, v in e.items()])
                    assert got == expected(tree, login, url, e), (name, login, url, e, got)
                    seen += len(got["files"])
    assert seen > 50, seen


def test_no_login_is_claimed(tmp):
    """The login dialogue is skipped only where there is a login."""
    with open(os.path.join(mini.ROOT, "profiles", "claude-code.yaml"), "rb") as f:
        doc = f.read()

    def done(*args):
        return seed(doc, *args)["files"][".claude.json"].get("hasCompletedOnboarding")

    assert done() is None
    assert done("ANTHROPIC_API_KEY=metered-so-it-is-not-passed") is None
    assert done("CLAUDE_CODE_OAUTH_TOKEN=x") is True
    assert done("login") is True
    got = seed(doc)["files"]
    assert got[".claude.json"] == {"projects": {p: {"hasTrustDialogAccepted": True} for p in PROJECTS}}, got


def test_seeds_of_odd_texts(tmp):
    odd = {"a b": {"x.y": [1, -2.5, True, "t\\\"\u00fc\u2028\u0001", {"k": [], "l": {}}], "": {}}, "plain": "${HOME} ${ ${CLOCHE_HOME}",
           "n": 12345678901234567890123, "e": {"f": {"g": 1e10}}}
    for fmt in ("json", "toml", "yaml"):
        doc = {"name": "a", "command": ["a"], "trust": [{"path": "f." + fmt, "format": fmt, "merge": odd}]}
        got = seed(json.dumps(doc).encode())["files"]["f." + fmt]
        want = put(odd, {"CLOCHE_HOME": "/home/agent"})
        assert got == want, (fmt, got)


mini.main(globals())
