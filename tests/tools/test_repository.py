# SPDX-License-Identifier: Apache-2.0
"""A repository's own .cloche.yaml, as `cloche info` shows what it comes to; no machine."""
import json
import os
import subprocess
import sys

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
import schema  # noqa: E402

CLOCHE = os.path.abspath(sys.argv[1])


def info(tmp, *flags, config=None, as_text=False, projects=("p",)):
    conf = os.path.join(tmp, "config", "cloche")
    os.makedirs(conf, exist_ok=True)
    with open(os.path.join(conf, "config.yaml"), "w", encoding="utf-8") as f:
        f.write(json.dumps(config or {}))
    env = {"PATH": "/usr/bin:/bin:/usr/sbin", "HOME": tmp, "XDG_RUNTIME_DIR": tmp,
           **{f"XDG_{n.upper()}_HOME": os.path.join(tmp, n) for n in ("config", "state", "cache", "data")}}
    p = subprocess.run([CLOCHE, "info", "shell", *[os.path.join(tmp, x) for x in projects], "--accel", "tcg",
                        *([] if as_text else ["--json"]), *flags],
                       env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if p.returncode == 0 and not as_text:
        return schema.assert_valid(p.stdout, "info")
    return p


def project(tmp, text, name="p"):
    d = os.path.join(tmp, name)
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, ".cloche.yaml"), "w", encoding="utf-8") as f:
        f.write(text if isinstance(text, str) else json.dumps(text))
    return d


def effects(j):
    return {e["key"]: e["effect"] for e in j["repository"]}


def test_none(tmp):
    os.makedirs(os.path.join(tmp, "p"))
    assert info(tmp)["repository"] == []


def test_tighter(tmp):
    project(tmp, {"vm": {"cpus": 1, "memory": "1g", "tmp_size": 64}, "review": {"apply": "none"},
                  "network": {"egress": "locked"}, "workspace": {"exclude": ["*.key1"]}})
    with open(os.path.join(tmp, "p", "a.key1"), "w", encoding="utf-8") as f:
        f.write("x")
    j = info(tmp)
    assert set(effects(j).values()) == {"applied"}, j["repository"]
    assert j["resources"]["vcpus"] == 1 and j["resources"]["memory"] == 1 << 30 and j["resources"]["tmp"] == 64 << 20
    assert j["apply"] == "none" and j["egress"]["profile"] == "locked", j["egress"]
    assert "a.key1" in json.dumps(j["scan"]["lists"]["excluded"]), j["scan"]["lists"]
    text = info(tmp, as_text=True).stdout
    assert "repository  .cloche.yaml asks for: vm.cpus 1 (applied), vm.memory 1g (applied)" in text, text


def test_looser(tmp):
    asks = {"vm": {"cpus": 64, "memory": "64g", "accel": "kvm"}, "review": {"apply": "auto"},
            "network": {"mode": "shared", "egress": "permissive", "allow_hosts": ["evil.example"],
                        "allow_private": ["10.0.0.0/8"], "host_services": [22], "publish_localhost": True},
            "image": {"mirror": "http://evil.example"}, "agents": {"shell": {"command": ["evil"]}}}
    os.makedirs(os.path.join(tmp, "p"))
    before = info(tmp)
    project(tmp, asks)
    after = info(tmp)
    assert set(effects(after).values()) == {"ignored"}, after["repository"]
    assert all(e["reason"] for e in after["repository"])
    for j in (before, after):
        del j["repository"], j["scan"]
    assert before == after
    assert "evil.example (ignored: a repository may not set this)" in info(tmp, as_text=True).stdout


def test_order_of_words(tmp):
    project(tmp, {"vm": {"cpus": 2}, "network": {"egress": "locked"}, "review": {"apply": "ask"}})
    j = info(tmp, config={"vm": {"cpus": 8}, "network": {"egress": "permissive"}, "review": {"apply": "auto"}})
    assert (j["resources"]["vcpus"], j["egress"]["profile"], j["apply"]) == (2, "locked", "ask")
    j = info(tmp, config={"vm": {"cpus": 1}, "network": {"egress": "locked"}, "review": {"apply": "none"}})
    assert (j["resources"]["vcpus"], j["egress"]["profile"], j["apply"]) == (1, "locked", "none")
    j = info(tmp, "--cpus", "6", "--egress", "standard", "--apply", "auto")
    assert (j["resources"]["vcpus"], j["egress"]["profile"], j["apply"]) == (6, "standard", "auto")
    assert set(effects(j).values()) == {"ignored"}


def test_denied_hosts(tmp):
    def hosts(*flags, **k):
        return json.dumps(info(tmp, *flags, **k)["egress"])

    project(tmp, {"network": {"deny_hosts": ["ghcr.io"]}})
    j = info(tmp)
    assert effects(j) == {"network.deny_hosts": "applied"}
    os.remove(os.path.join(tmp, "p", ".cloche.yaml"))
    assert json.dumps(j["egress"]) != hosts()
    # the user's own file, and a flag with the same word that lifts it
    assert hosts(config={"network": {"deny_hosts": ["ghcr.io"]}}) == json.dumps(j["egress"])
    p = info(tmp, config={"network": {"deny_hosts": ["ghcr.io"], "egress": "permissive"}})
    assert p.returncode == 125 and "refuses none" in p.stderr, p
    lifted = info(tmp, "--allow-host", "ghcr.io", config={"network": {"deny_hosts": ["ghcr.io"]}})
    assert "ghcr.io" in json.dumps(lifted["egress"])


def test_two_projects(tmp):
    project(tmp, {"vm": {"cpus": 1}}, "p")
    project(tmp, {"vm": {"memory": "512m"}}, "q")
    r = info(tmp, projects=("p", "q"))["resources"]
    assert (r["vcpus"], r["memory"]) == (1, 512 << 20)


def test_what_counts_as_absent(tmp):
    d = project(tmp, "vm: {cpus: 1}\n")
    path = os.path.join(d, ".cloche.yaml")

    def absent(want):
        j = info(tmp)
        assert j["repository"] == [] and j["resources"]["vcpus"] == 2, j
        p = info(tmp, as_text=True)
        assert p.returncode == 0 and want in p.stdout and "counts as absent" in p.stdout, p
        assert "\x1b" not in p.stdout

    for text, want in (("vm: {cpu: 1}\n", ".cloche.yaml:1:11: unknown key 'vm.cpu'"),
                       ("vm: {cpus: 1", ".cloche.yaml:"), ("x: &a 1\ny: *a\n", ".cloche.yaml:1:"),
                       ("workspace: {exclude: [\"\\e]0;x\\a\"]}\n", "control characters"),
                       ("'\x1b[2J\x1b': 1\n", ".cloche.yaml:"),
                       ("#" * 70000, "more than")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        absent(want)
    os.rename(path, path + "2")
    os.symlink("/etc/hostname", path)
    absent("not a regular file")
    os.remove(path)
    os.mkfifo(path)
    absent("not a regular file")
    os.remove(path)
    os.mkdir(path)
    absent("not a regular file")


mini.main(globals())
