# SPDX-License-Identifier: Apache-2.0
"""`cloche config init|show|check`."""
import json
import os
import re
import subprocess
import sys

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
import schema  # noqa: E402

CLOCHE = os.path.abspath(sys.argv[1])


def cloche(tmp, *words, cwd=None):
    env = {"PATH": "/usr/bin:/bin", "HOME": tmp, "XDG_RUNTIME_DIR": tmp,
           **{f"XDG_{n.upper()}_HOME": os.path.join(tmp, n) for n in ("config", "state", "cache", "data")}}
    return subprocess.run([CLOCHE, "config", *words], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, cwd=cwd)


def own(tmp, text):
    path = os.path.join(tmp, "config", "cloche", "config.yaml")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def test_init(tmp):
    p = cloche(tmp, "init")
    path = os.path.join(tmp, "config", "cloche", "config.yaml")
    assert (p.returncode, p.stdout, p.stderr) == (0, path + "\n", ""), p
    assert os.stat(path).st_mode & 0o777 == 0o600 and os.listdir(os.path.dirname(path)) == ["config.yaml"]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    # all of it is comment, and taken out of the comment it is what holds anyway
    assert all(line.startswith("#") or not line for line in text.splitlines())
    before = json.loads(cloche(tmp, "show", "--json").stdout)["keys"]
    body = text[text.index("#vm:"):text.index("#agents:")]
    own(tmp, re.sub(r"(?m)^#", "", body))
    after = json.loads(cloche(tmp, "show", "--json").stdout)["keys"]
    said = {k["key"]: k["value"] for k in after if k["origin"] != "default"}
    assert len(said) >= 16, said
    for k in before:
        want = "2g" if k["key"] == "vm.tmp_size" else k["value"]
        assert said.get(k["key"], want) == want, (k, said)
    # what is there stays
    own(tmp, "vm: {cpus: 3}\n")
    p = cloche(tmp, "init")
    assert p.returncode == 125 and "is there already" in p.stderr, p
    with open(path, encoding="utf-8") as f:
        assert f.read() == "vm: {cpus: 3}\n"
    os.remove(path)
    os.symlink("/nonexistent/x", path)
    p = cloche(tmp, "init")
    assert p.returncode == 125 and os.path.islink(path) and not os.path.exists("/nonexistent/x"), p


def test_show(tmp):
    p = cloche(tmp, "show")
    assert p.returncode == 0 and "vm.cpus: 2\n" in p.stdout and "network.egress: standard\n" in p.stdout, p
    with open(os.path.join(mini.ROOT, "docs", "schemas", "config.json"), encoding="utf-8") as f:
        s = json.load(f)["properties"]
    keys = {f"{a}.{b}" for a in s for b in s[a].get("properties", {})} - {"network.egress_profile"}
    assert {line.split(":")[0] for line in p.stdout.splitlines()} == keys
    path = own(tmp, "# mine\nvm:\n  cpus: 3\nnetwork:\n  egress_profile: locked\n  allow_hosts: [a.example, '*.b.example']\n")
    p = cloche(tmp, "show", "--origin")
    assert f"vm.cpus: 3  # {path}:3\n" in p.stdout and "vm.memory: 4g  # default\n" in p.stdout, p
    assert f'network.allow_hosts: ["a.example","*.b.example"]  # {path}:6\n' in p.stdout, p.stdout
    j = schema.assert_valid(cloche(tmp, "--json").stdout, "config-show")
    by = {k["key"]: k for k in j["keys"]}
    assert by["network.egress"] == {"key": "network.egress", "value": "locked", "origin": path, "line": 5}
    assert by["vm.cpus"]["value"] == 3 and by["vm.accel"]["origin"] == "default"
    own(tmp, "vm: {cpu: 3}\n")
    p = cloche(tmp, "show")
    assert p.returncode == 125 and "config.yaml:1:6: unknown key 'vm.cpu'" in p.stderr.replace(":11:", ":6:"), p


def test_check(tmp):
    assert cloche(tmp, "check").returncode == 0
    path = own(tmp, "vm: {cpus: 3}\nagents: {claude: {resources: {memory: 8g}}}\n")
    p = cloche(tmp, "check")
    assert (p.returncode, p.stdout) == (0, path + ": ok\n"), p
    for text, want in (("vm: {cpu: 3}\n", "did you mean 'cpus'"), ("a: [", "config.yaml:"),
                       ("agents: {claude: {resource: {}}}\n", "config.yaml:1:")):
        own(tmp, text)
        p = cloche(tmp, "check")
        assert p.returncode == 3 and want in p.stderr, p
    d = os.path.join(tmp, "p")
    os.makedirs(d)
    repo = os.path.join(d, ".cloche.yaml")
    with open(repo, "w", encoding="utf-8") as f:
        f.write("vm: {cpus: 1}\n")
    own(tmp, "")
    p = cloche(tmp, "check", repo, path)
    assert (p.returncode, p.stdout) == (0, f"{repo}: ok\n{path}: ok\n"), p
    with open(repo, "w", encoding="utf-8") as f:
        f.write("vm: {cpus: 1, x: 2}\n")
    p = cloche(tmp, "check", ".cloche.yaml", path, cwd=d)
    assert p.returncode == 3 and ".cloche.yaml:1:18: unknown key 'vm.x'" in p.stderr and p.stdout == path + ": ok\n", p
    p = cloche(tmp, "check", os.path.join(tmp, "none.yaml"))
    assert p.returncode == 3 and "No such file" in p.stderr, p


def test_words(tmp):
    for words, want in ((("shwo",), "did you mean 'show'"), (("init", "x"), "no more words"),
                        (("show", "x"), "no more words"), (("check", "--json"), "are for show"), (("--what",), "--what")):
        p = cloche(tmp, *words)
        assert p.returncode == 2 and want in p.stderr, p


mini.main(globals())
