# SPDX-License-Identifier: Apache-2.0
"""config.yaml: the loader, docs/schemas/config.json and docs/configuration.md say the same."""
import json
import os
import re
import subprocess
import sys

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
import schema  # noqa: E402

CLOCHE = os.path.abspath(sys.argv[1])
SCHEMA = schema.load("config")
# of each key: what must be taken, what must be refused
VALUES = {
    "vm.accel": (["auto", "tcg"], ["fast", 1]),
    "vm.cpus": ([1, 64], [0, 65, "many"]),
    "vm.memory": ([512, "4g", "1GiB"], ["4t", "1.5g", True]),
    "vm.disk": (["64m", "16g"], ["16x", []]),
    "vm.tmp_size": (["1m", 64], ["-1", {}]),
    "workspace.exclude": ([[], ["*.o", "!a"]], ["*.o", [""]]),
    "workspace.exclude_heavy": ([True, False], ["maybe", 1]),
    "review.apply": (["ask", "none"], ["all"]),
    "network.mode": (["offline", "isolated", "shared"], ["on", True]),
    "network.egress": (["permissive", "standard", "locked"], ["open"]),
    "network.egress_profile": (["locked"], ["open", []]),
    "network.allow_hosts": ([[], ["a.example", "*.B.example:8443", "@docker"]], ["a.example", ["a b"], ["*"], ["a.example:0"]]),
    "network.deny_hosts": ([["telemetry.example", "*.ads.example"]], [["*"], "a.example"]),
    "network.allow_private": ([["10.1.0.0/16", "192.168.1.7"]], ["10.0.0.0/8", ["lan"], ["fc00::/7"]]),
    "network.host_services": ([[1, 65535]], [80, [0], [65536], ["http"]]),
    "network.host_ca": ([True, False], ["maybe"]),
    "network.publish_localhost": ([True], [2]),
    "image.suite": (["trixie"], [[]]),
    "image.mirror": (["http://mirror.example/debian"], [[]]),
    "image.pull": (["missing", "always", "background", "never"], ["sometimes", []]),
    "image.verify": (["off", "warn", "require"], ["strict", []]),
    "image.boot": (["/opt/kernel"], ["kernel", []]),
    "image.cosign_key": (["/etc/keys/x.pub", "https://keys.example/x"], [[]]),
    "image.cosign_identity": (["https://ci.example/x@main"], [[]]),
    "image.cosign_issuer": (["https://ci.example"], [[]]),
}


def loads(tmp, text):
    """Does cloche take this file? JSON is YAML."""
    os.makedirs(os.path.join(tmp, "config", "cloche"), exist_ok=True)
    with open(os.path.join(tmp, "config", "cloche", "config.yaml"), "w", encoding="utf-8") as f:
        f.write(text)
    env = {"PATH": "/usr/bin:/bin", "HOME": tmp, "XDG_RUNTIME_DIR": tmp,
           **{f"XDG_{n.upper()}_HOME": os.path.join(tmp, n) for n in ("config", "state", "cache", "data")}}
    p = subprocess.run([CLOCHE, "net", "hosts", "--network", "offline"], env=env, stdin=subprocess.DEVNULL,
                       capture_output=True, text=True)
    assert p.returncode in (0, 125), p
    return p.returncode == 0, p.stderr


def keys_of_schema():
    return {f"{s}.{k}" for s, v in SCHEMA["properties"].items() for k in v.get("properties", {})}


def test_keys(_tmp):
    with open(os.path.join(mini.ROOT, "src", "config", "config.c"), encoding="utf-8") as f:
        table = f.read().split("} keys[] = {")[1].split("\n};")[0]
    found = set(re.findall(r'\{ "(\w+)", "(\w+)",', table))
    found |= set(re.findall(r'\.section = "(\w+)",\s*\.name = "(\w+)"', table))
    assert {f"{s}.{k}" for s, k in found} == keys_of_schema() == set(VALUES)


def test_values(tmp):
    for key, (good, bad) in VALUES.items():
        section, name = key.split(".")
        for want, values in ((True, good), (False, bad)):
            for v in values:
                doc = {section: {name: v}}
                assert (schema.check(doc, SCHEMA, SCHEMA) == []) == want, doc
                got, text = loads(tmp, json.dumps(doc))
                assert got == want, (doc, text)
                assert want or "config.yaml:1:" in text, (doc, text)


def test_docs(tmp):
    with open(os.path.join(mini.ROOT, "docs", "configuration.md"), encoding="utf-8") as f:
        text = f.read()
    got, err = loads(tmp, re.search(r"```yaml\n(.*?)```", text, re.S)[1])
    assert got, err
    named = set(re.findall(r"`((?:%s)\.\w+)`" % "|".join(SCHEMA["properties"]), text))
    assert named == keys_of_schema(), named ^ keys_of_schema()


mini.main(globals())
