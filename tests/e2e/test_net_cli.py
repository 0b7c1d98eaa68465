# SPDX-License-Identifier: Apache-2.0
"""The user's side of the network, without a machine: `cloche net`, options, info, early errors."""
import os
import re
import socket
import time

from harness import Skip
from schema import assert_valid

T = '{"t":"2026-01-31T23:59:59.%03dZ"'


def config(h, text):
    os.makedirs(h.path("config", "cloche"), exist_ok=True)
    with open(h.path("config", "cloche", "config.yaml"), "w") as f:
        f.write(text)


def events(h, sandbox, lines):
    """A log as the relay writes it: a line is the text behind the time."""
    d = h.path("state", "cloche", "logs")
    os.makedirs(d, 0o700, exist_ok=True)
    os.chmod(h.path("state", "cloche"), 0o700)
    with open(os.path.join(d, sandbox + ".events.jsonl"), "w") as f:
        for i, text in enumerate(lines):
            f.write((T % i) + text + "}\n" if text.startswith(",") else text + "\n")


SESSION = [
    ',"ev":"dns","verdict":"allowed","name":"api.example.com","addrs":["192.0.2.1","192.0.2.2"]',
    ',"ev":"dns","verdict":"allowed","name":"only-asked.example","addr":"192.0.2.9"',
    ',"ev":"flow","verdict":"allowed","name":"api.example.com","proto":"tls","addr":"192.0.2.1","port":443,'
    '"guest_port":40000',
    ',"ev":"flow","verdict":"allowed","name":"git.example.com","proto":"raw","addr":"192.0.2.3","port":22,'
    '"guest_port":40001',
    ',"ev":"flow","verdict":"allowed","name":"host.cloche","proto":"service","addr":"10.87.0.2","port":11434,'
    '"guest_port":40002',
    ',"ev":"flow","verdict":"refused","reason":"name","name":"evil\\u001b[31m\\u00e4.example","addr":"192.0.2.1",'
    '"port":443,"guest_port":40003',
    ',"ev":"dns","verdict":"refused","reason":"policy","name":"statsig.example"',
    ',"ev":"dns","verdict":"refused","reason":"policy","name":"statsig.example"',
    ',"ev":"drop","verdict":"refused","reason":"address","proto":"tcp","addr":"10.0.0.7","port":443,"count":3',
    ',"ev":"close","name":"api.example.com","proto":"tls","addr":"192.0.2.1","port":443,"guest_port":40000,'
    '"bytes_out":517,"bytes_in":90210',
    ',"ev":"end"',
]


def test_log(h):
    events(h, "demo-aaaaaa", SESSION)
    r = h.run("net", "log")
    assert r.rc == 0 and len(r.text.splitlines()) == len(SESSION), r
    assert "23:59:59 allowed flow   api.example.com 192.0.2.1 port 443 tls\n" in r.text, r
    assert "517 B out, 88 KiB in" in r.text, r
    assert "10.0.0.7 port 443 tcp (address) 3 times" in r.text, r
    # what the guest named never steers the terminal
    assert "\x1b" not in r.text and "evil\\e[31m" in r.text, r
    denied = h.run("net", "log", "--denied", "demo-aaaaaa")
    assert denied.rc == 0 and len(denied.text.splitlines()) == 4, denied
    assert all(line.split()[1] == "refused" for line in denied.text.splitlines()), denied
    lines = h.run("net", "log", "--json").text.splitlines()
    got = [assert_valid(line, "net-log") for line in lines]
    assert len(got) == len(SESSION) and got[0]["addrs"] == ["192.0.2.1", "192.0.2.2"], got
    assert got[5]["name"] == "evil\\e[31m\\xe4.example", got[5]
    # -f ends with the session
    assert h.run("net", "log", "-f", timeout_s=20).text == r.text


def test_log_follows(h):
    events(h, "demo-aaaaaa", SESSION[:3])
    p = h.start("net", "log", "-f", "demo-aaaaaa")
    # no such sandbox lives: what is there, then the end
    r = h.finish(p, timeout_s=20)
    assert r.rc == 0 and len(r.text.splitlines()) == 3, r


def test_log_of_the_newest(h):
    events(h, "demo-aaaaaa", SESSION[:1])
    events(h, "demo-bbbbbb", SESSION[6:7])
    old = h.path("state", "cloche", "logs", "demo-aaaaaa.events.jsonl")
    os.utime(old, (1, 1))
    assert "statsig.example" in h.run("net", "log").text
    assert "api.example.com" in h.run("net", "log", "demo-aaaaaa").text
    r = h.run("net", "log", "demo-cccccc")
    assert r.rc == 125 and "demo-cccccc" in r.errtext, r
    r = h.run("net", "log", "../../../etc/passwd")
    assert r.rc == 125 and "no name of a sandbox" in r.errtext, r


def test_log_damaged(h):
    """A relay that was taken over writes what it likes: counted, not believed, not shown."""
    events(h, "demo-aaaaaa", [SESSION[0], "\x1b]0;evil\x07", "{}", SESSION[6],
                              ',"ev":"dns","name":"x","name":"y"', "x" * 5000, SESSION[7]])
    r = h.run("net", "log")
    assert r.rc == 125 and len(r.text.splitlines()) == 3, r
    assert "lines of the log could not be read" in r.errtext and "\x1b" not in r.text, r


def test_learn(h):
    events(h, "demo-aaaaaa", SESSION)
    r = h.run("net", "learn")
    assert r.rc == 0, r
    t = r.text
    # what was connected to, and nothing that was only asked for
    assert "\n--egress locked --allow-host api.example.com --allow-host git.example.com:22\n" in t, t
    assert "  allow_hosts:\n    - api.example.com\n    - git.example.com:22\n" in t, t
    assert "only-asked" not in t and "10.0.0.7" not in t, t
    assert "#   - statsig.example # policy, 2 times\n" in t, t
    assert "# used too: --host-service 11434\n" in t, t
    assert "\x1b" not in t and "evil\\e[31m" in t, t
    # the YAML is one, and the flags are good
    body = t[t.index("network:\n"):]
    config(h, body)
    flags = re.search(r"^(--egress .*)$", t, re.M)[1].split()
    j = assert_valid(h.run("net", "hosts", "--network", "isolated", "--json").text, "net-hosts")
    assert {(x["host"], x["port"], x["origin"]) for x in j["egress"]["hosts"]} == {
        ("api.example.com", 443, "config"), ("git.example.com", 22, "config")}, j
    assert j["egress"]["profile"] == "locked", j
    os.unlink(h.path("config", "cloche", "config.yaml"))
    j = assert_valid(h.run("net", "hosts", "--network", "isolated", *flags, "--json").text, "net-hosts")
    assert [x["origin"] for x in j["egress"]["hosts"]] == ["flag", "flag"], j
    j = assert_valid(h.run("net", "learn", "--json").text, "net-learn")
    assert [x["host"] for x in j["used"] if "rule" in x] == ["api.example.com", "git.example.com"], j
    assert {x["host"]: x["count"] for x in j["refused"]}["statsig.example"] == 2, j


def test_learn_nothing(h):
    events(h, "demo-aaaaaa", [SESSION[-1]])
    r = h.run("net", "learn")
    assert r.rc == 0 and "--egress locked\n" in r.text and "allow_hosts: []\n" in r.text, r
    config(h, r.text[r.text.index("network:\n"):])
    assert h.run("net", "hosts").rc == 0


def test_check(h):
    config(h, "network:\n  mode: isolated\n  egress: locked\n  allow_hosts: ['*.corp.example', 'api.example:8443']\n"
              "  host_services: [11434]\n  allow_private: [10.1.0.0/16]\n")
    cases = [
        ("a.corp.example", 0, "rule *.corp.example:443, from config"),
        ("a.b.corp.example:443", 0, "rule *.corp.example:443"),
        ("A.CORP.Example", 0, "rule *.corp.example:443"),
        ("corp.example", 3, "no rule of locked allows it\nhint: --allow-host corp.example\n"),
        ("xcorp.example", 3, "no rule of locked"),
        ("api.example:8443", 0, "any protocol"),
        ("api.example", 3, "on this port, but on 8443"),
        ("mail.example:25", 3, "closed in every profile"),
        ("host.cloche:11434", 0, "a --host-service"),
        ("host.cloche:5432", 3, "hint: --host-service 5432"),
        ("127.0.0.1:80", 3, "loopback"),
        ("192.168.1.1", 3, "--allow-private 192.168.1.1"),
        ("169.254.169.254", 3, "metadata"),
        ("10.1.2.3", 3, "only what a name"),
        ("192.0.2.1:443", 3, "only what a name"),
    ]
    for word, rc, text in cases:
        r = h.run("net", "check", word)
        assert r.rc == rc and text in r.text, (word, rc, text, r)
        j = assert_valid(h.run("net", "check", word, "--json").text, "net-check")
        assert j["allowed"] == (rc == 0), j
    # an agent's own hosts; those of another are not open
    r = h.run("net", "hosts", "--agent", "claude-code", "--json")
    j = assert_valid(r.text, "net-hosts")
    own = [x for x in j["egress"]["hosts"] if x["origin"] == "provider"]
    assert own and all(x["note"] == "claude-code" for x in own), j
    assert h.run("net", "check", own[0]["host"].replace("*", "x"), "--agent", "claude-code").rc == 0
    assert h.run("net", "check", own[0]["host"].replace("*", "x")).rc == 3
    # flags add to it; an explicit profile replaces it
    assert h.run("net", "check", "new.example", "--allow-host", "new.example").rc == 0
    r = h.run("net", "check", "new.example", "--egress", "permissive")
    assert r.rc == 0 and "permissive" in r.text, r
    r = h.run("net", "check", "new.example", "--network", "offline")
    assert r.rc == 3 and "offline" in r.text, r
    r = h.run("net", "check", "192.0.2.1:25", "--egress", "permissive")
    assert r.rc == 3 and "port 25" in r.text, r
    for word, text in (("*.corp.example", "not a pattern"), ("a b", "letters"), ("a.example:0", "1 to 65535"), ("", "'"),
                       ("192.0.2.1:99999", "1 to 65535"), ("192.0.2.1:", "1 to 65535"), ("10.1.2.3:http", "1 to 65535")):
        r = h.run("net", "check", word)
        assert r.rc == 2 and text in r.errtext, (word, r)


def test_registries_of_the_user(h):
    """The user's package tools are asked once; a project has no say; no login is kept."""
    if not os.path.exists("/usr/bin/npm"):
        raise Skip("no npm in the system's folders")
    p = h.project("demo", {".npmrc": "registry=https://evil.example/\n"})
    with open(h.path("home", ".npmrc"), "w") as f:
        f.write("registry=https://me:secret@packages.example:8443/npm/\n@corp:registry=http://corp.example/\n")

    def hosts(**kw):
        t = h.run("net", "hosts", "--network", "isolated", "--json", cwd=p, **kw)
        j = assert_valid(t.text, "net-hosts")
        return {(x["host"], x["port"]) for x in j["egress"]["hosts"] if "npm of this host" in x.get("note", "")}

    cache = os.path.join(h.cache, "cloche", "registries.json")
    got = hosts()
    assert got == {("packages.example", 8443), ("corp.example", 80)}, got
    text = open(cache).read()
    assert "packages.example" in text and "secret" not in text and "me:" not in text, text
    assert os.stat(cache).st_mode & 0o077 == 0
    written = os.stat(cache).st_mtime_ns
    t0 = time.monotonic()
    assert hosts() == got and os.stat(cache).st_mtime_ns == written
    again = time.monotonic() - t0
    # a file changed: asked again
    with open(h.path("home", ".npmrc"), "w") as f:
        f.write("registry=https://other.example/\n")
    t0 = time.monotonic()
    assert hosts() == {("other.example", 443)}
    assert again < time.monotonic() - t0
    # a variable, too; and a damaged cache is none
    assert hosts(env={"npm_config_registry": "https://var.example/"}) == {("var.example", 443)}
    with open(cache, "w") as f:
        f.write('{"schema":1,"key":"')
    assert hosts() == {("other.example", 443)}


def test_info(h):
    p = h.project("demo", {})
    config(h, "network:\n  allow_hosts: [config.example]\n")
    flags = ["--network", "isolated", "--egress", "locked", "--allow-host", "*.flag.example:8443",
             "--allow-private", "10.1.0.0/16", "--host-service", "11434", "-p", "8080:80", "-p", "3000",
             "--callback", "1455"]
    r = h.run("info", "shell", p, *h.accel_flags(), *flags)
    for want in ("network     isolated, locked\n", r"config\.example +443 +config\n",
                 r"\*\.flag\.example +8443 +flag\n", r"10\.1\.0\.0/16 .*private range",
                 r"host\.cloche +11434 +127\.0\.0\.1:11434 of this host",
                 "ports     127.x.y.z of its own:8080 -> guest 80\n", ":3000 -> guest 3000\n",
                 "callback  localhost:1455 -> guest, once"):
        assert re.search(want, r.text), (want, r.text)
    assert "github" not in r.text, r
    j = assert_valid(h.run("info", "shell", p, *h.accel_flags(), *flags, "--json").text, "info")
    assert j["network"] == "isolated" and j["egress"]["profile"] == "locked", j
    assert j["ports"] == [{"host": 8080, "guest": 80, "localhost": False},
                          {"host": 3000, "guest": 3000, "localhost": False}], j
    assert j["callbacks"] == [1455] and j["egress"]["services"] == [11434], j
    j = assert_valid(h.run("info", "shell", p, *h.accel_flags(), "--network", "isolated", "--egress", "permissive",
                           "--publish-localhost", "-p", "80", "--json").text, "info")
    assert j["egress"]["profile"] == "permissive" and j["ports"][0]["localhost"], j
    r = h.run("info", "shell", p, *h.accel_flags(), "--network", "isolated", "--egress-profile", "permissive")
    assert "isolated, PERMISSIVE" in r.text and "every host" in r.text, r
    j = assert_valid(h.run("info", "shell", p, *h.accel_flags(), "--network", "offline", "--json").text, "info")
    assert j["network"] == "offline" and j["egress"] is None and j["ports"] == [], j


def test_refusals(h):
    """Words about the network that cannot be right: the reason, and at once."""
    p = h.project("demo", {})
    events(h, "demo-aaaaaa", SESSION)
    cases = [
        (["run", "shell", p, "--network", "on"], 2, "--network: 'on': it is offline, isolated or shared"),
        (["run", "shell", p, "--egress", "open"], 2, "--egress: 'open'"),
        (["run", "shell", p, "--egress-profile", "open"], 2, "--egress: 'open'"),
        (["run", "shell", p, "--allow-host", "192.0.2.1"], 2, "--allow-host: '192.0.2.1': "),
        (["run", "shell", p, "--allow-host", "a.example:25"], 2, "closed in every profile"),
        (["run", "shell", p, "--allow-host", "*.com"], 2, "two labels or more"),
        (["run", "shell", p, "--allow-private", "0.0.0.0/0"], 2, "it is not within"),
        (["run", "shell", p, "--host-service", "http"], 2, "1 to 65535"),
        (["run", "shell", p, "-p", "8080-80"], 2, "there is no colon"),
        (["run", "shell", p, "-p", "0:80"], 2, "1 to 65535"),
        (["run", "shell", p, "--port", "80:65536"], 2, "1 to 65535"),
        (["run", "shell", p, "-p", "80:1", "-p", "80:2"], 2, "port 80 of the host stands twice"),
        (["run", "shell", p, "--callback", "x"], 2, "--callback: 'x'"),
        (["run", "shell", p, "--network", "offline", "--egress", "locked"], 2, "contradict each other"),
        (["run", "shell", p, "--network", "offline", "--allow-host", "a.example"], 2, "contradict"),
        (["run", "shell", p, "--network", "offline", "--host-service", "80"], 2, "contradict"),
        (["net"], 2, "net log, check, hosts"),
        (["net", "hsots"], 2, "did you mean net hosts"),
        (["net", "check"], 2, "which host?"),
        (["net", "allow"], 2, "which host?"),
        (["net", "deny", "192.0.2.1"], 2, "net deny: '192.0.2.1'"),
        (["net", "callback", "0"], 2, "1 to 65535"),
        (["net", "allow", "a.example"], 125, "no sandbox runs"),
        (["net", "deny", "a.example", "demo-aaaaaa"], 125, "does not run"),
        (["net", "hosts", "demo-aaaaaa"], 125, "does not run"),
        (["net", "check", "a.example", "demo-aaaaaa", "--egress", "locked"], 2, "its policy is what it is"),
        (["net", "log", "--egress", "locked"], 2, "takes no options of a policy"),
        (["net", "log", "a", "b"], 2, "too many words"),
    ]
    for argv, rc, text in cases:
        r = h.run(*argv, timeout_s=30)
        assert r.rc == rc and text in r.errtext and not r.out, (argv, rc, text, r)
        assert r.errtext.startswith("cloche: "), r
    for text, want in (("network:\n  mode: on\n", "config.yaml:2:9: 'network.mode' must be"),
                       ("network:\n  allow_hosts:\n    - a.example\n    - '*'\n", "config.yaml:4:7: "),
                       ("network:\n  egres: locked\n", "did you mean 'egress'?")):
        config(h, text)
        r = h.run("net", "hosts")
        assert r.rc == 125 and want in r.errtext, (text, r)


def test_port_in_use(h):
    """Told before anything is started."""
    p = h.project("demo", {})
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen()
        port = s.getsockname()[1]
        for flags in (["-p", f"{port}:80"], ["-p", str(port), "--publish-localhost"], ["--callback", str(port)]):
            r = h.run_shell(p, "true", flags=["--network", "offline", *flags])
            assert r.rc == 125 and f"port {port}" in r.errtext and "in use" in r.errtext, r
            assert "hint: " in r.errtext, r
    assert not os.path.exists(h.sandboxes) or os.listdir(h.sandboxes) == []
    h.wait_clean()
