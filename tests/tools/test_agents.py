# SPDX-License-Identifier: Apache-2.0
"""`cloche agents`, `cloche env`, and what `run` says of agents: everything that needs no machine."""
import json
import os
import subprocess
import sys

import mini

sys.path.insert(0, os.path.join(mini.ROOT, "tests", "lib"))
import schema  # noqa: E402

CLOCHE = os.path.abspath(sys.argv[1])
BUILTIN = ["claude-code", "codex", "cursor", "gemini", "grok", "hermes", "opencode", "shell", "ubuntu"]
SECRET = "s3cret-V4LUE"


class Home:
    """A user of their own, with a project."""

    def __init__(self, tmp):
        self.tmp = tmp
        self.project = os.path.join(tmp, "demo")
        self.config = os.path.join(tmp, "config", "cloche")
        self.profiles = os.path.join(self.config, "profiles")
        os.makedirs(self.project)
        self.env = {"HOME": os.path.join(tmp, "home"), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        os.makedirs(self.env["HOME"])
        for what in ("CONFIG", "STATE", "CACHE", "RUNTIME"):
            self.env[f"XDG_{what}_{'DIR' if what == 'RUNTIME' else 'HOME'}"] = os.path.join(tmp, what.lower())

    def run(self, *argv, env=None, stdin="", timeout=30):
        p = subprocess.run([CLOCHE, *argv], cwd=self.project, env={**self.env, **(env or {})}, input=stdin,
                           capture_output=True, text=True, timeout=timeout)
        assert SECRET not in p.stdout + p.stderr, (argv, p)
        return p

    def ok(self, *argv, **more):
        p = self.run(*argv, **more)
        assert p.returncode == 0, (argv, p)
        return p

    def json(self, name, *argv, **more):
        p = self.run(*argv, "--json", **more)
        return schema.assert_valid(p.stdout, name), p

    def profile(self, name, text):
        os.makedirs(self.profiles, exist_ok=True)
        path = os.path.join(self.profiles, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def configure(self, text):
        os.makedirs(self.config, exist_ok=True)
        with open(os.path.join(self.config, "config.yaml"), "w", encoding="utf-8") as f:
            f.write(text)

    def fails(self, want, *argv, code=125, **more):
        p = self.run(*argv, **more)
        assert p.returncode == code and want in p.stderr, (argv, want, p)
        assert p.stderr.startswith("cloche: "), p
        return p


def variables(report):
    return {v["name"]: v for v in report["variables"]}


# ---- env -------------------------------------------------------------------


def test_env_names_never_values(tmp):
    h = Home(tmp)
    env = {"ANTHROPIC_API_KEY": SECRET, "CLAUDE_CODE_OAUTH_TOKEN": SECRET, "NODE_OPTIONS": "--" + SECRET,
           "AWS_SECRET_ACCESS_KEY": SECRET, "CLAUDE_REF": "op://" + SECRET, "CLAUDE_LINES": SECRET + "\n" + SECRET}
    p = h.ok("env", "claude", env=env)
    assert "CLAUDE_CODE_OAUTH_TOKEN" in p.stdout and "environment (CLAUDE_*)" in p.stdout, p
    got, p = h.json("env", "env", "claude", env=env)
    v = variables(got)
    assert got["agent"] == "claude-code" and got["ok"] and p.returncode == 0
    assert v["ANTHROPIC_API_KEY"]["state"] == "metered"
    assert v["CLAUDE_REF"]["state"] == "reference"
    assert v["CLAUDE_LINES"]["state"] == "passed"
    assert v["NODE_OPTIONS"] == {"name": "NODE_OPTIONS", "state": "passed", "origin": "environment", "required": False,
                                 "by": "NODE_OPTIONS", "memory_hint": True}
    assert v["GOMEMLIMIT"]["origin"] == "memory"
    assert v["DISABLE_TELEMETRY"]["origin"] == "profile quiet"
    assert v["HOME"]["origin"] == "cloche"
    assert "AWS_SECRET_ACCESS_KEY" not in v
    # from the home directory, too
    h.project = h.env["HOME"]
    h.ok("env", "codex")


def test_env_flags(tmp):
    h = Home(tmp)
    env = {"ANTHROPIC_API_KEY": SECRET, "MY_ONE": SECRET, "MY_TWO": SECRET, "MY_DB": "postgres://" + SECRET}
    got, _ = h.json("env", "env", "claude", "--env-forward", "MY_*", "--allow-env", "ANTHROPIC_API_KEY", env=env)
    v = variables(got)
    assert v["MY_ONE"]["state"] == "passed" and v["MY_ONE"]["origin"] == "command line"
    assert v["MY_DB"]["state"] == "reference"
    assert v["ANTHROPIC_API_KEY"]["state"] == "passed" and v["ANTHROPIC_API_KEY"]["origin"] == "command line"
    for bad in ("*", "", " ", "*X", "X*Y", "A=B"):
        h.fails("--env-forward", "env", "claude", "--env-forward", bad, code=2)
    h.fails("--allow-env", "env", "claude", "--allow-env", "MY_*", code=2)


def test_required_all_at_once(tmp):
    """`env` fails like a run would, with the same words."""
    h = Home(tmp)
    h.profile("own.yaml", "name: own\nkind: shell\ncommand: [/bin/sh]\n"
              "env: {pass: [ONE, TWO, THREE], required: [ONE, TWO, THREE]}\n"
              "secrets: [{name: login, required: true, hint: make it first}]\n")
    want = "cloche: own needs what is not there: ONE, TWO (set, but a reference), secret login\n"
    env = {"TWO": "op://" + SECRET, "THREE": SECRET}
    for argv in (("env", "own"), ("run", "own")):
        p = h.run(*argv, env=env)
        assert p.returncode == 125 and want in p.stderr, (argv, p)
    got, p = h.json("env", "env", "own", env=env)
    assert not got["ok"] and got["missing_secrets"] == ["login"] and p.returncode == 125
    assert variables(got)["ONE"] == {"name": "ONE", "state": "unset", "origin": "environment", "required": True,
                                     "by": "ONE"}


def test_git_identity(tmp):
    h = Home(tmp)
    with open(os.path.join(h.env["HOME"], ".gitconfig"), "w", encoding="utf-8") as f:
        f.write("[user]\n\tname = Ada\n\temail = ada@example.com\n")
    # the project's own configuration is not asked
    os.makedirs(os.path.join(h.project, ".git"))
    with open(os.path.join(h.project, ".git", "config"), "w", encoding="utf-8") as f:
        f.write("[user]\n\tname = Mallory\n")
    got, _ = h.json("env", "env", "shell", env={"GIT_AUTHOR_NAME": "Me"})
    v = variables(got)
    assert v["GIT_AUTHOR_NAME"]["origin"] == "environment"
    assert v["GIT_COMMITTER_NAME"]["origin"] == "git configuration"
    assert v["GIT_AUTHOR_EMAIL"]["origin"] == "git configuration"
    os.unlink(os.path.join(h.env["HOME"], ".gitconfig"))
    os.mkfifo(os.path.join(h.env["HOME"], ".gitconfig"))
    got, _ = h.json("env", "env", "shell", timeout=20)    # git hangs, we do not
    assert "GIT_AUTHOR_NAME" not in variables(got)


def test_memory_from_everywhere(tmp):
    """Flag, the user's word on the agent, on every run, the built-in profile's, the default."""
    h = Home(tmp)

    def memory(*flags):
        got = json.loads(h.run("info", "shell", *flags, "--json").stdout)
        return got["resources"]["memory"] >> 20, got["resources"]["vcpus"], got["profile"]

    assert memory() == (4096, 2, "built-in")
    h.configure("vm: {memory: 1g, cpus: 3}\n")
    assert memory() == (1024, 3, "built-in")
    h.configure("vm: {memory: 1g, cpus: 3}\nagents: {shell: {resources: {memory: 2g}}}\n")
    assert memory() == (2048, 3, "built-in")
    assert memory("--memory", "512m", "--cpus", "1") == (512, 1, "built-in")
    path = h.profile("s.yaml", "name: shell\nkind: shell\ncommand: [/bin/sh]\nresources: {memory: 3g, cpus: 4}\n")
    assert memory() == (2048, 4, path)


def test_hosts_and_egress(tmp):
    """The profile's hosts are in the policy; what it asks for is a floor, and a flag is a flag."""
    h = Home(tmp)

    def egress(*argv):
        got = json.loads(h.run("info", *argv, "--json").stdout)["egress"]
        return got["profile"], [r["host"] for r in got["hosts"]]

    profile, hosts = egress("claude", "--network", "isolated")
    assert profile == "standard" and "api.anthropic.com" in hosts and "github.com" in hosts, hosts
    profile, hosts = egress("claude", "--network", "isolated", "--egress", "locked")
    assert "*.claude.com" in hosts and "github.com" not in hosts, hosts
    h.configure("network: {egress: permissive}\nagents: {codex: {egress: locked, allow_hosts: [a.example.com]}}\n")
    profile, hosts = egress("codex", "--network", "isolated")
    assert profile == "locked" and hosts[-1] == "a.example.com", (profile, hosts)
    assert egress("claude", "--network", "isolated")[0] == "permissive"
    assert egress("codex", "--network", "isolated", "--egress", "standard")[0] == "standard"


# ---- run -------------------------------------------------------------------


def test_unknown_and_invalid(tmp):
    h = Home(tmp)
    p = h.fails("unknown agent 'cluade'", "run", "cluade")
    assert "did you mean claude? known agents: " + ", ".join(BUILTIN) in p.stderr, p
    h.fails("unknown agent '../x'", "run", "../x")
    path = h.profile("mine.yaml", "name: mine\ncommand: [x]\nhost: [a]\n")
    p = h.fails(f"agent 'mine' is declared, but not valid: {path}:3:1: unknown key 'host'", "run", "mine")
    assert "hint: did you mean 'hosts'?" in p.stderr, p
    p = h.fails("unknown agent 'other'", "run", "other")
    assert "mine" not in p.stderr, p


def test_run_without_a_layer(tmp):
    h = Home(tmp)
    p = h.fails("there is no image with claude-code in it", "run", "claude")
    assert "@anthropic-ai/claude-code-linux-x64 2.1.332" in p.stderr and "--image" in p.stderr, p
    for name, hint in (("hermes", "/opt/hermes"), ("cursor", "terms"), ("grok", "recipe.npm")):
        p = h.fails(f"there is no image with {name} in it", "run", name)
        assert hint in p.stderr, p
    h.fails("comes from a registry", "run", "ubuntu")
    h.fails("comes from a registry", "run", "claude", "--image", "registry.example.com/a:b")
    # nothing was made on the way
    assert not os.path.exists(os.path.join(tmp, "state")) and not os.path.exists(os.path.join(tmp, "cache"))


def test_problems_are_said(tmp):
    h = Home(tmp)
    h.profile("claude.yaml", "name: claude-code\ncommand: [claude]\nkind: shell\n")
    p = h.run("run", "claude", "--pull", "never", "--memory", "256m")
    assert "the built-in profile 'claude-code' denies ANTHROPIC_API_KEY" in p.stderr, p
    p = h.run("run", "shell", "--pull", "never", env={"MY_REF": "op://x"})
    assert "MY_REF" not in p.stderr, p
    p = h.run("run", "shell", "--pull", "never", "--env-forward", "MY_REF", env={"MY_REF": "op://" + SECRET})
    assert "cloche: MY_REF is not passed: its value is the reference of a secret manager" in p.stderr, p
    assert "(--allow-env MY_REF)" in p.stderr, p


mini.main(globals())
