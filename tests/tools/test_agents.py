# SPDX-License-Identifier: Apache-2.0
"""`cloche agents`, `cloche env`, and what `run` says of agents: everything that needs no machine."""
import fcntl
import json
import os
import re
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
    p = h.ok("env", "gemini", env={"GOOGLE_APPLICATION_CREDENTIALS": "/home/me/" + SECRET})
    assert "environment: names a file that is not in the guest" in p.stdout, p
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


def test_info_says_what_a_run_would(tmp):
    """Keys by name, and a refusal with the words of run."""
    h = Home(tmp)
    env = {"GEMINI_API_KEY": SECRET, "ANTHROPIC_API_KEY": SECRET, "GH_TOKEN": SECRET}
    got, _ = h.json("info", "info", "gemini", env=env)
    assert got["credentials"] == ["GEMINI_API_KEY"], got
    got, _ = h.json("info", "info", "claude", "--env-forward", "GH_TOKEN", env=env)
    assert got["credentials"] == ["GH_TOKEN"], got
    p = h.run("info", "gemini", env=env)
    assert "keys        GEMINI_API_KEY   in the guest's environment" in p.stdout, p
    p = h.run("info", "claude", env=env)
    assert "keys        none" in p.stdout, p
    for argv in (("hermes",), ("cursor",)):
        got, p = h.json("info", "info", *argv)
        want = got["reason"]
        assert not got["can_run"] and p.returncode == 3, p
        h.fails(want, "run", *argv)
        p = h.run("info", *argv)
        assert "refused     " + want in p.stdout and "\nhint: " in p.stdout, p
    h.profile("own.yaml", "name: own\nimage: base\ncommand: [x]\nenv: {required: [A]}\n")
    got, _ = h.json("info", "info", "own")
    assert got["reason"] == "own needs what is not there: A" and not got["can_run"], got


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
    for name, hint in (("hermes", "/opt/hermes"), ("cursor", "terms"), ("grok", "recipe.npm")):
        p = h.fails(f"there is no image with {name} in it", "run", name)
        assert hint in p.stderr, p
    h.fails("is not the reference of an image", "run", "claude", "--image", "https://registry.example.com/a:b",
            code=2)
    # nothing was made on the way
    assert not os.path.exists(os.path.join(tmp, "state")) and not os.path.exists(os.path.join(tmp, "cache"))
    got, p = h.json("info", "info", "ubuntu")
    assert got["foreign_image"] == {"ref": "docker://docker.io/library/ubuntu:latest", "cached": False}, got
    assert "ubuntu:latest is not in the cache" in h.run("info", "ubuntu").stdout
    p = h.run("net", "hosts", "--agent", "ubuntu")
    assert p.returncode == 0 and "is not built" not in p.stderr, p


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


# ---- agents ----------------------------------------------------------------


def test_list(tmp):
    h = Home(tmp)
    got, p = h.json("agents", "agents", "list")
    assert [a["name"] for a in got["agents"]] == BUILTIN and not got["problems"], got
    claude = got["agents"][0]
    assert claude["aliases"] == ["claude"] and claude["type"] == "built-in", claude
    assert claude["secrets"] == [{"name": "claude-credentials", "required": False, "importable": True}], claude
    h.profile("a.yaml", "name: mine\ncommand: [x]\nsecrets: [{name: s, required: true}]\n")
    h.profile("b.yaml", "name: shell\nkind: shell\ncommand: [/bin/zsh]\n")
    h.profile("c.yaml", "name: bad\ncommand: x\n")
    h.configure("agents: {codex: {sudo: true}, other: {command: [o]}}\n")
    got, p = h.json("agents", "agents")
    by = {a["name"]: a for a in got["agents"]}
    assert by["mine"]["type"] == "own file" and by["shell"]["type"] == "replaces built-in", by
    assert by["codex"]["configured"] and by["other"]["type"] == "config.yaml", by
    assert not by["bad"]["valid"] and "'command' must be a list" in by["bad"]["error"], by
    assert len(got["problems"]) == 1, got
    for words in (("agents",), ("agents", "list"), ("list",)):
        p = h.ok(*words)
        lines = {line.split()[0]: line for line in p.stdout.splitlines()}
        assert "own file" in lines["mine"] and "s!" in lines["mine"], p
        assert "built-in, config.yaml" in lines["codex"], p
        assert "not valid" in lines["bad"], p
        assert "c.yaml:2:10: 'command' must be a list" in p.stderr, p


def test_inspect_with_origins(tmp):
    h = Home(tmp)
    path = h.profile("mine.yaml", "name: mine\ncommand: [x, '-a b']\nenv:\n  pass: [A]\n  required: [A]\n"
                     f"  set: {{TOKEN: '{SECRET}', B: {{value: '{SECRET}'}}}}\n")
    h.configure(f"agents: {{mine: {{hosts: [a.example.com]}}, claude: {{env: {{set: {{X: '{SECRET}'}}}}}}}}\n")
    got, p = h.json("agent", "agents", "inspect", "mine")
    v = {x["key"]: x for x in got["values"]}
    assert v["command"] == {"key": "command", "value": ["x", "-a b"], "origin": path}, v
    assert v["hosts"]["origin"] == "config.yaml" and v["env.set"]["value"] == ["TOKEN", "B"], v
    assert got["required"] == [{"name": "A", "present": False}], got
    p = h.ok("agents", "inspect", "mine", env={"A": SECRET})
    assert f"env.pass               A   [{path}]" in p.stdout and "a.example.com   [config.yaml]" in p.stdout, p
    assert "TOKEN, B" in p.stdout and "A present" in p.stdout, p
    got, p = h.json("agent", "agents", "inspect", "claude")
    v = {x["key"]: x for x in got["values"]}
    assert v["env.pass"]["origin"] == "built-in" and sorted(v["env.set"]["value"]) == ["IS_SANDBOX", "X"], v
    assert v["recipe.npm"]["value"][0]["package"] == "@anthropic-ai/claude-code-linux-x64", v
    h.profile("bad.yaml", "name: bad\n")
    h.fails("'command' is missing", "agents", "inspect", "bad")
    h.fails("unknown agent 'nobody'", "agents", "inspect", "nobody")


def test_doctor(tmp):
    h = Home(tmp)
    got, p = h.json("receipt", "agents", "doctor", "shell")
    assert got["ok"] and got["checks"][0]["message"] == "the definition is built in: nothing to check", got
    assert p.returncode == 0 and "Nothing was changed" in got["non_effects"][0], got
    h.profile("mine.yaml", "name: mine\nimage: x\ncommand: [x]\nenv: {pass: [A, B], required: [A, B]}\n"
              "secrets: [{name: s, required: true, hint: make it}]\n")
    got, p = h.json("receipt", "agents", "doctor", "mine", env={"A": SECRET})
    assert not got["ok"] and p.returncode == 125, p
    texts = [(c["status"], c["message"]) for c in got["checks"]]
    assert ("ok", "A, which it requires, is set") in texts, texts
    assert ("fail", "B, which it requires, has no value: cloche env shows why") in texts, texts
    assert ("fail", "secret s, which it requires, is not there: make it") in texts, texts
    h.profile("bad.yaml", "name: bad\ncommand: [x]\nhostz: []\n")
    p = h.run("agents", "doctor", "bad")
    assert p.returncode == 125 and "bad.yaml:3:1: unknown key 'hostz'; did you mean 'hosts'?" in p.stdout, p
    h.profile("z.yaml", "name: claude-code\naliases: [codex]\ncommand: [x]\n")
    h.profile("zz.yaml", "name: claude-code\naliases: [codex]\ncommand: [x]\n")
    p = h.ok("agents", "doctor", "claude")
    assert "warn  the built-in profile denies ANTHROPIC_API_KEY, this one does not" in p.stdout, p
    assert "warn  its other name 'codex' means codex" in p.stdout, p
    assert "warn  2 files declare it; the last, zz.yaml, is used" in p.stdout, p


def test_init_is_valid_whole(tmp):
    """The template as it is, and with every line taken in."""
    h = Home(tmp)
    text = h.ok("agents", "init", "aider").stdout
    assert "AGENT_NAME" not in text
    h.ok("agents", "import", "-", stdin=text)
    all_of_it = "".join(line[1:] if re.match(r"#(  |[a-z])", line) else line
                        for line in text.splitlines(True))
    p = h.fails("'image' and 'recipe' exclude each other", "agents", "import", "-", "--force", stdin=all_of_it)
    h.ok("agents", "import", "-", "--force", stdin=all_of_it.replace("image: my-image\n", ""))
    tool = subprocess.run([sys.argv[2], "--keys"], capture_output=True, text=True, check=True)
    for key in (line.split("\t")[0] for line in tool.stdout.splitlines()):
        last = key.replace(".NAME", "").replace("[]", "").split(".")[-1]
        assert f"{last}:" in all_of_it, key
    h.fails("cannot be the name", "agents", "init", "A b", code=2)


def test_add(tmp):
    h = Home(tmp)
    got, _ = h.json("receipt", "agents", "add", "aider", "--command", "aider", "--command", "--yes-always", "--image", "x",
                    "--description", "one: line", "--env", "OPENAI_*", "--env-required", "OPENAI_API_KEY",
                    "--memory", "2g", "--cpus", "3", "--tmp-size", "512", "--egress-profile", "locked",
                    "--allow-host", "api.openai.com", "--mcp", "--mcp-authz-profile", "observe",
                    env={"OPENAI_API_KEY": SECRET})
    path = os.path.join(h.profiles, "aider.yaml")
    assert got["config_path"] == path and got["write"]["created"] and not got["write"]["replaced"], got
    assert got["write"]["fingerprint"]["before"] is None and got["write"]["fingerprint"]["after"], got
    a = got["agent"]
    assert a["command"] == ["aider", "--yes-always"] and a["mcp_authz_profile"] == "observe", a
    assert a["env_required"] == [{"name": "OPENAI_API_KEY", "present": True}], a
    assert os.stat(path).st_mode & 0o777 == 0o600 and os.stat(h.profiles).st_mode & 0o777 == 0o700
    assert open(path, encoding="utf-8").read() == (
        'name: aider\ndescription: "one: line"\ncommand: [aider, "--yes-always"]\nimage: x\nresources:\n  cpus: 3\n'
        '  memory: 2g\n  tmp_size: 512\negress: locked\nhosts: [api.openai.com]\nenv:\n  pass: ["OPENAI_*"]\n'
        '  required: [OPENAI_API_KEY]\nmcp:\n  mode: env\n  authz: observe\n')
    # an error writes nothing
    for argv, want, code in (
            (["add", "aider", "--command", "x"], "aider is there already: aider.yaml", 125),
            (["add", "claude-code", "--command", "x"], "it is built in", 125),
            (["add", "claude", "--command", "x"], "'claude' is another name of claude-code", 2),
            (["add", "A", "--command", "x"], "cannot be the name", 2),
            (["add", "../x", "--command", "x"], "cannot be the name", 2),
            (["add", "x" * 65, "--command", "x"], "cannot be the name", 2),
            (["add", "new"], "which command?", 2),
            (["add", "new", "--command", "x", "--cpus", "0"], "--cpus", 2),
            (["add", "new", "--command", "x", "--memory", "lots"], "--memory", 2),
            (["add", "new", "--command", "x", "--mcp-authz-profile", "observe"], "needs --mcp", 2),
            (["add", "new", "--command", "x", "--allow-host", "*"], "'hosts' must be", 125),
            (["add", "new", "--command", "x", "--env", "*"], "'env.pass' must be", 125),
            (["add", "new", "--command", "x", "--egress", "permissive"], "'egress' must be", 125),
            (["add", "new", "--name", "x"], "--name means nothing to agents add", 2),
            (["rm", "new", "--image", "x"], "--image means nothing to agents rm", 2),
            (["adds", "new"], "did you mean cloche agents add?", 2)):
        before = sorted(os.listdir(h.profiles))
        p = h.run("agents", *argv)
        assert p.returncode == code and want in p.stderr, (argv, p)
        assert sorted(os.listdir(h.profiles)) == before, argv


HAND_WRITTEN = """# by hand
name: mine            # its name
command:              # how it starts
  - mine              # program
  - --fast

# what it may reach
hosts: [a.example.com]   # more later
env:
    pass:
    - A               # one
    # - B
# the end"""


def test_add_keeps_what_is_there(tmp):
    h = Home(tmp)
    path = h.profile("by-hand.yaml", HAND_WRITTEN)
    got, _ = h.json("receipt", "agents", "add", "mine", "--force", "--memory", "1g", "--env-required", "A", "--allow-host",
                    "b.example.com", "--allow-host", "c.example.com:8443")
    assert got["config_path"] == path and got["write"]["replaced"] and got["write"]["comment_handling"] == "kept", got
    assert got["write"]["fingerprint"]["before"] != got["write"]["fingerprint"]["after"], got
    assert open(path, encoding="utf-8").read() == HAND_WRITTEN.replace(
        "hosts: [a.example.com]", 'hosts: [b.example.com, "c.example.com:8443"]').replace(
        "    - A               # one\n", "    - A               # one\n    required: [A]\nresources:\n  memory: 1g\n")
    h.profile("j.json", '{\n  "name": "j",\n  "command": ["j"]\n}\n')
    h.ok("agents", "add", "j", "--force", "--image", "x y".replace(" ", "-"), "--cpus", "2")
    with open(os.path.join(h.profiles, "j.json"), encoding="utf-8") as f:
        assert json.load(f) == {"name": "j", "command": ["j"], "image": "x-y", "resources": {"cpus": 2}}


def test_add_stands_for_a_built_in(tmp):
    h = Home(tmp)
    p = h.ok("agents", "add", "claude-code", "--command", "claude", "--image", "x", "--force")
    assert "it stands for the built-in profile 'claude-code'" in p.stderr, p
    p = h.ok("agents", "list")
    assert "the built-in profile 'claude-code' denies ANTHROPIC_API_KEY" in p.stderr, p


def test_import_is_verbatim(tmp):
    h = Home(tmp)
    src = os.path.join(tmp, "demo", "p.yaml")
    with open(src, "w", encoding="utf-8") as f:
        f.write(HAND_WRITTEN)
    got, _ = h.json("receipt", "agents", "import", "p.yaml")
    path = os.path.join(h.profiles, "mine.yaml")
    assert got["write"]["comment_handling"] == "verbatim" and open(path, encoding="utf-8").read() == HAND_WRITTEN, got
    h.fails("mine is there already: mine.yaml", "agents", "import", "p.yaml")
    # the other kind of text takes the place of both
    got, _ = h.json("receipt", "agents", "import", "-", "--force", stdin='{"name": "mine", "command": ["x"]}\n')
    assert sorted(n for n in os.listdir(h.profiles) if n[0] != ".") == ["mine.json"], os.listdir(h.profiles)
    # under another name the comments stay
    got, _ = h.json("receipt", "agents", "import", "p.yaml", "--name", "other")
    with open(os.path.join(h.profiles, "other.yaml"), encoding="utf-8") as f:
        assert f.read() == HAND_WRITTEN.replace("name: mine", "name: other")
    for text, want in (("name: bad\n", "stdin:1:1: 'command' is missing"), ("", "stdin:1:1: the profile is empty"),
                       ("name: claude\ncommand: [x]\n", "'claude' is another name of claude-code"),
                       ("name: ../x\ncommand: [x]\n", "'name' must be"),
                       ("name: a\n---\nname: b\n", "only one document")):
        before = sorted(os.listdir(h.profiles))
        h.fails(want, "agents", "import", "-", stdin=text)
        assert sorted(os.listdir(h.profiles)) == before
    h.fails("looked for as a file", "agents", "import", "ghcr.example.com/a/b:latest")
    os.mkfifo(os.path.join(h.project, "fifo.yaml"))
    h.fails("not a regular file", "agents", "import", "fifo.yaml", timeout=10)
    os.mkdir(os.path.join(h.project, "dir.yaml"))
    h.fails("not a regular file", "agents", "import", "dir.yaml")


def test_export(tmp):
    h = Home(tmp)
    text = h.ok("agents", "export", "claude").stdout
    with open(os.path.join(mini.ROOT, "profiles", "claude-code.yaml"), encoding="utf-8") as f:
        built_in = f.read()
    lines = text.splitlines(True)
    assert lines[0].startswith("# Exported by cloche") and "".join(lines[2:]) == built_in, text
    # into a profile of one's own: another name, no alias that means the first
    p = h.ok("agents", "export", "claude", "my-claude")
    got, _ = h.json("agents", "agents", "list")
    mine = [a for a in got["agents"] if a["name"] == "my-claude"][0]
    assert mine["valid"] and mine["aliases"] == [] and not got["problems"], got
    again = h.ok("agents", "export", "my-claude", "--with-values").stdout
    assert again.count("# Exported by cloche") == 1 and "name: my-claude" in again, again
    h.fails("my-claude is there already", "agents", "export", "codex", "my-claude")
    h.ok("agents", "export", "codex", "my-claude", "--force")
    h.fails("cannot be the name", "agents", "export", "codex", "../x", code=2)
    # literal values of one's own stay at home
    h.profile("s.yaml", f"name: s\ncommand: [x]\nenv:\n  pass: [A]  # a\n  set:\n    T: '{SECRET}'\n    R: {{ref: env.A}}\n")
    p = h.ok("agents", "export", "s")
    assert p.stdout.endswith("name: s\ncommand: [x]\nenv:\n  pass: [A]  # a\n  set:\n    R: {ref: env.A}\n"), p
    assert "the value of T is left out" in p.stderr, p
    full = subprocess.run([CLOCHE, "agents", "export", "s", "--with-values"], env=h.env, capture_output=True, text=True)
    assert SECRET in full.stdout and full.returncode == 0, full
    assert json.loads(h.ok("agents", "export", "s", "--json").stdout)["env"] == {"pass": ["A"], "set": {"R": {"ref": "env.A"}}}
    # of config.yaml
    h.configure("agents: {new: {command: [n1]}, codex: {sudo: true}}\n")
    p = h.ok("agents", "export", "new")
    h.ok("agents", "import", "-", "--name", "new2", stdin=p.stdout)
    p = h.ok("agents", "export", "codex")
    assert "what config.yaml says of codex is not in it" in p.stderr and "sudo" not in p.stdout, p


def test_edit(tmp):
    h = Home(tmp)
    h.fails("codex is built in", "agents", "edit", "codex")
    path = h.profile("mine.yaml", "name: mine\ncommand: [x]\n")
    script = os.path.join(tmp, "my editor")
    with open(script, "w", encoding="utf-8") as f:
        f.write('#!/bin/sh\n[ "$1" = -w ] || exit 3\necho "sudo: $VALUE" >>"$2"\n')
    os.chmod(script, 0o755)
    h.ok("agents", "edit", "mine", env={"EDITOR": "false", "VISUAL": f"'{script}' -w", "VALUE": "true"})
    assert open(path, encoding="utf-8").read().endswith("sudo: true\n")
    # what was written stays, and is not silently used
    h.profile("mine.yaml", "name: mine\ncommand: [x]\n")
    p = h.fails("mine.yaml:3:7: 'sudo' must be true or false", "agents", "edit", "mine",
                env={"EDITOR": f"'{script}' -w", "VALUE": "maybe"})
    assert open(path, encoding="utf-8").read().endswith("sudo: maybe\n")
    h.fails("is declared, but not valid", "run", "mine")
    p = h.fails("ended with status 3", "agents", "edit", "mine", env={"EDITOR": f"'{script}'"})


def test_rm(tmp):
    h = Home(tmp)
    h.fails("claude-code is built in", "agents", "rm", "claude", "-y")
    h.fails("unknown agent", "agents", "rm", "nobody", "-y")
    h.profile("a.yaml", "name: mine\naliases: [m]\ncommand: [x]\n")
    h.profile("b.json", '{"name": "mine", "aliases": ["m"], "command": ["x"]}')
    h.profile("mine.yml", "not: [valid")      # goes by its file's name
    h.profile("other.yaml", "name: other\ncommand: [x]\n")
    p = h.run("agents", "rm", "mine", stdin="\n")
    assert p.returncode == 3 and "nothing was removed" in p.stderr, p
    assert p.stderr.count(".yaml") + p.stderr.count(".json") + p.stderr.count(".yml") >= 3, p
    os.unlink(os.path.join(h.profiles, "mine.yml"))
    got, p = h.json("receipt", "agents", "rm", "m", "-y")
    assert got["ok"] and got["write"]["fingerprint"]["before"] and got["write"]["fingerprint"]["after"] is None, got
    assert sorted(n for n in os.listdir(h.profiles) if n[0] != ".") == ["other.yaml"]
    h.profile("s.yaml", "name: shell\nkind: shell\ncommand: [x]\n")
    p = h.ok("agents", "rm", "shell", stdin="y\n")
    assert "the built-in profile 'shell' is used again" in p.stderr, p
    h.configure("agents: {conf: {command: [x]}}\n")
    h.fails("conf is in config.yaml", "agents", "rm", "conf", "-y")


def test_one_writer_at_a_time(tmp):
    h = Home(tmp)
    h.profile("a.yaml", "name: a\ncommand: [x]\n")
    os.chmod(h.profiles, 0o700)
    with open(os.path.join(h.profiles, ".lock"), "w", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        h.fails("another cloche is changing the profiles", "agents", "add", "b", "--command", "x")
        h.ok("agents", "list")      # readers do not wait
    procs = [subprocess.Popen([CLOCHE, "agents", "add", f"n{i}", "--command", "x"], env=h.env, cwd=h.project,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(10)]
    assert [p.wait() for p in procs] == [0] * 10
    got, _ = h.json("agents", "agents", "list")
    assert sum(a["name"].startswith("n") for a in got["agents"]) == 10
    assert not [n for n in os.listdir(h.profiles) if n.startswith(".n")], "temporary files"
    # a full disk leaves the file as it was
    os.chmod(h.profiles, 0o777)
    h.fails("others may write to directory", "agents", "add", "c", "--command", "x")


def test_keys_without_effect_are_said(tmp):
    h = Home(tmp)
    j, _ = h.json("info", "info", "codex", "--accel", "tcg")
    assert j["callback_ports"] == [1455] and j["profile_unused"] == ["settings"], j
    assert "cloche net callback 1455" in h.ok("info", "codex", "--accel", "tcg").stdout
    own = ("name: own\ncommand: [x]\nimage: base\nsecrets: [tok]\n"
           "volumes:\n- {kind: tmpfs, path: .own}\nfiles:\n- {secret: tok, path: .own/tok}\n")
    h.profile("own.yaml", own)
    text = h.ok("info", "own", "--accel", "tcg").stdout
    assert "unused      files, volumes of the profile: no effect yet\n" in text, text
    assert "callback" not in text and h.json("info", "info", "shell", "--accel", "tcg")[0]["profile_unused"] == []
    # a run says it of what the user wrote, before it looks for an image
    h.profile("mine.yaml", "name: mine\ncommand: [x]\nimage: base\nsettings:\n"
                           "- {category: rules, path: .x, kind: file}\n")
    p = h.run("run", "mine", "--accel", "tcg", "--pull", "never")
    assert p.returncode == 125 and "'settings' of mine has no effect yet\n" in p.stderr, p
    p = h.run("run", "codex", "--accel", "tcg", "--pull", "never")
    assert p.returncode == 125 and "no effect" not in p.stderr, p


mini.main(globals())
