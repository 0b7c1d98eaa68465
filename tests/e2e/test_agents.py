# SPDX-License-Identifier: Apache-2.0
"""The real agents in a machine, from their packages, against the mock model of tests/mock-llm on
the host's loopback: each writes a file and runs a command, and what it did is reviewed and
applied. Without npm, or where its registry cannot be reached, they are skipped."""
import json
import os
import re
import subprocess
import sys
import time

from harness import ROOT, Skip
from schema import assert_valid
from tmux import Tmux

KEY = "sk-test-0123456789abcdefghijklmnop"
SCENARIO = {"steps": [
    {"tool": "write_file", "path": "hello.txt", "content": "hello from the model\n"},
    {"tool": "shell", "command": "cat hello.txt; id -un; hostname > seen.txt"},
    {"text": "all done"},
]}
UNREACHABLE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH")


def agents_cache(h):
    """A cache of their own, so that tests that copy the usual one do not copy a gigabyte."""
    top = h.cache + "-agents"
    images = os.path.join(top, "cloche", "images")
    os.makedirs(images, mode=0o700, exist_ok=True)
    usual = os.path.join(h.cache, "cloche", "images")
    for n in os.listdir(usual):
        if n.startswith("base-") and not os.path.exists(os.path.join(images, n)):
            subprocess.run(["cp", "-al", os.path.join(usual, n), images], check=True)
    return top


def user_npm():
    """npm as the user of the tests has configured it; their home is not the test's."""
    e = {k: v for k, v in os.environ.items()
         if k.lower().startswith("npm_config_") or k in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")}
    rc = os.path.expanduser("~/.npmrc")
    if "npm_config_userconfig" not in e and os.path.exists(rc):
        e["npm_config_userconfig"] = rc
    e["npm_config_fetch_retries"] = "1"
    return e


class Mock:
    def __init__(self, h, scenario):
        self.log = h.path("t", "requests.jsonl")
        path = h.path("t", "scenario.json")
        with open(path, "w") as f:
            json.dump(scenario, f)
        self.p = subprocess.Popen(
            [sys.executable, os.path.join(ROOT, "tests", "mock-llm", "mock_llm.py"), "--scenario", path,
             "--log", self.log, "--require-credential", KEY],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        h.keep.add(self.p.pid)
        h.closers.append(self.close)
        self.port = int(self.p.stdout.readline().split()[1])

    def close(self):
        self.p.terminate()
        self.p.wait()
        self.p.stdout.close()

    def requests(self):
        with open(self.log) as f:
            return [json.loads(line) for line in f]


def build(h, agent, env):
    t = time.monotonic()
    r = h.run("image", "build", agent, env=env, timeout_s=280)
    if "npm is not installed" in r.errtext:
        raise Skip("npm is not installed, so no agent's packages")
    if r.rc and UNREACHABLE.search(r.errtext):
        raise Skip("npm cannot reach its registry")
    assert r.rc == 0, r
    print(f"packages of {agent}: {time.monotonic() - t:.1f} s")


def session(h, agent, words, flags, values, timeout_s=200, may_be_refused=False):
    """One headless session; the requests that the model got."""
    env = h.env(XDG_CACHE_HOME=agents_cache(h), **user_npm())
    build(h, agent, env)
    p = h.project("demo", {"README.md": "a demo\n"}, git=True)
    mock = Mock(h, SCENARIO)
    url = f"http://host.cloche:{mock.port}"
    for k, v in values.items():
        env[k] = v.replace("@URL@", url)
    words = [w.replace("@URL@", url) for w in words]
    r = h.run("run", agent, p, *h.accel_flags(), "--network", "isolated", "--egress", "locked",
              "--host-service", str(mock.port), "--apply", "auto", *flags, "--", *words,
              env=env, timeout_s=timeout_s)
    assert r.rc == 0 and "all done" in r.text, r
    assert h.read(p, "hello.txt") == b"hello from the model\n", os.listdir(p)
    assert h.read(p, "seen.txt") == b"cloche\n"
    got = mock.requests()
    steps = [q for q in got if q["kind"] == "step"]
    assert len(steps) >= 3, got
    out = "".join(str(q["results"]) for q in got)
    assert "agent" in out and "hello from the model" in out, out
    # nothing else was tried: the switches of the profile leave it no reason
    assert may_be_refused or "refused" not in r.errtext, r.errtext
    return got


def on_a_terminal(h, agent, words, flags, values, prompt, leave):
    """A session as its user has it: from the first screen, on which nothing but @prompt may
    wait for the user, to the answer, the review and what was written back."""
    env = h.env(XDG_CACHE_HOME=agents_cache(h), **user_npm())
    build(h, agent, env)
    p = h.project("demo", {"README.md": "a demo\n"}, git=True)
    mock = Mock(h, SCENARIO)
    url = f"http://host.cloche:{mock.port}"
    for k, v in values.items():
        env[k] = v.replace("@URL@", url)
    t = Tmux(h, [h.cloche, "run", agent, p, *h.accel_flags(), "--network", "isolated", "--egress",
                 "locked", "--host-service", str(mock.port), *flags, "--",
                 *[w.replace("@URL@", url) for w in words]], env, p)
    first = t.expect(prompt, 120).string
    print(first)
    t.type("go")
    t.expect("go", 60)
    t.key("Enter")
    t.resize(90, 28)        # while it works
    t.expect("all done", 240)
    assert mock.requests(), "the mock was never asked"
    t.type(leave)
    t.expect(re.escape(leave), 60)
    t.key("Enter")
    # the review: one file after the other, both wanted
    for name in ("hello.txt", "seen.txt"):
        t.expect(re.escape(name) + r"(.*\n)+.*\[y,n", 60)
        t.type("y")
        t.key("Enter")
    rc = t.wait(60)
    assert rc == 0, (rc, t.screen())
    assert h.read(p, "hello.txt") == b"hello from the model\n" and h.read(p, "seen.txt") == b"cloche\n"
    steps = [q for q in mock.requests() if q["kind"] == "step"]
    assert len(steps) >= 3, steps


def test_claude(h):
    env = h.env(XDG_CACHE_HOME=agents_cache(h))
    r = h.run("run", "claude", h.project("none"), *h.accel_flags(), "--pull", "never",
              env=env | {"CLOCHE_IMAGE_DIR": h.path("t", "images")})
    assert r.rc == 125 and "--pull never forbids it" in r.errtext, r
    session(h, "claude", ["-p", "go", "--dangerously-skip-permissions"],
            ["--env-forward", "ANTHROPIC_BASE_URL", "--allow-env", "ANTHROPIC_API_KEY"],
            {"ANTHROPIC_BASE_URL": "@URL@", "ANTHROPIC_API_KEY": KEY})
    r = h.run("info", "claude", h.path("p", "demo"), *h.accel_flags(), "--json", env=env)
    layer, = assert_valid(r.text, "info")["layers"]
    assert layer["package"] == "@anthropic-ai/claude-code-linux-x64" and len(layer["digest"]) == 64, layer


CODEX_MOCK = ["-c", 'model_provider="mock"']
for key, value in {"name": '"mock"', "base_url": '"@URL@/v1"', "env_key": '"CODEX_API_KEY"',
                   "wire_api": '"responses"'}.items():
    CODEX_MOCK += ["-c", f"model_providers.mock.{key}={value}"]


def test_codex(h):
    session(h, "codex", ["exec", "--dangerously-bypass-approvals-and-sandbox", *CODEX_MOCK, "go"],
            ["--allow-env", "CODEX_API_KEY"], {"CODEX_API_KEY": KEY})


def test_gemini(h):
    session(h, "gemini", ["-p", "go", "--yolo"], ["--env-forward", "GOOGLE_GEMINI_BASE_URL"],
            {"GOOGLE_GEMINI_BASE_URL": "@URL@", "GEMINI_API_KEY": KEY})


def test_opencode(h):
    config = {"model": "anthropic/claude-sonnet-4-5",
              "provider": {"anthropic": {"options": {"baseURL": "@URL@/v1"}}}}
    session(h, "opencode", ["run", "go"], ["--allow-env", "ANTHROPIC_API_KEY"],
            {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "ANTHROPIC_API_KEY": KEY}, timeout_s=500,
            may_be_refused=True)    # in the background it looks for a package of its plugins


test_opencode.timeout_s = 800   # an emulated machine is very slow at its run-time's code


def test_claude_on_a_terminal(h):
    on_a_terminal(
        h, "claude", [], ["--env-forward", "ANTHROPIC_BASE_URL", "--allow-env", "ANTHROPIC_API_KEY"],
        {"ANTHROPIC_BASE_URL": "@URL@", "ANTHROPIC_API_KEY": KEY}, r"❯\s*\n", "/exit")


def test_codex_on_a_terminal(h):
    on_a_terminal(
        h, "codex", ["--dangerously-bypass-approvals-and-sandbox", *CODEX_MOCK],
        ["--allow-env", "CODEX_API_KEY"], {"CODEX_API_KEY": KEY}, r"› Ask Codex", "/quit")


test_claude_on_a_terminal.timeout_s = test_codex_on_a_terminal.timeout_s = 600
