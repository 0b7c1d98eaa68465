# SPDX-License-Identifier: Apache-2.0
"""A host tree, the change set of a pretended guest, and the tool that applies it.

The guest is a dict of what its overlay's upper would hold; Box.make() scans the
host tree into a manifest, sorts both, and hands lines to `review_tool mk`:

  E PARENT KIND FLAGS WHY MODE NLINK SIZE MTIME CTIME INO DEV PROJECT BLOCK SAME NAME LINK
  P ENTRY PATH DEV INO      R DIR SOURCE TEXT
  D NAME MODE FLAGS   U   F NAME MODE FLAGS CONTENT [BASEFILE]   L NAME TEXT   W NAME   S NAME MODE
"""
import json
import os
import shutil
import stat
import subprocess
import tempfile

HIDDEN, EXCLUDED, SKIPPED, TRACKED, IGNORED = 1, 2, 4, 8, 16
GITIGNORE, CLOCHEIGNORE, EXCLUDE, HEAVY = 1, 2, 3, 4
OPAQUE, SUSPECT = 1, 2
TOOL = None


def b(s):
    return s if isinstance(s, bytes) else os.fsencode(s)


def hx(s):
    return b(s).hex() or "-"


class Guest:
    """What the guest changed, by path below the project."""

    def __init__(self):
        self.root = {"kind": "dir", "mode": 0o755, "flags": 0, "in": {}}

    def _dir(self, path):
        at = self.root
        for name in [c for c in b(path).split(b"/") if c]:
            at = at["in"].setdefault(name, {"kind": "dir", "mode": None, "flags": 0, "in": {}})
        return at

    def _put(self, path, what):
        parent, _, name = b(path).rpartition(b"/")
        self._dir(parent)["in"][name] = what
        return self

    def file(self, path, content, mode=0o644, flags=0, base=False):
        return self._put(path, {"kind": "file", "mode": mode, "flags": flags,
                                "content": hx(content), "base": base})

    def big(self, path, source, mode=0o644):
        return self._put(path, {"kind": "file", "mode": mode, "flags": 0,
                                "content": "@" + source, "base": False})

    def same(self, path, source, mode=0o644):
        return self._put(path, {"kind": "file", "mode": mode, "flags": 0,
                                "content": "=" + source, "base": False})

    def link(self, path, text):
        return self._put(path, {"kind": "link", "text": hx(text)})

    def delete(self, path):
        return self._put(path, {"kind": "del"})

    def special(self, path, mode):
        return self._put(path, {"kind": "special", "mode": mode})

    def dir(self, path, mode=0o755, opaque=False):
        d = self._dir(path)
        d["mode"], d["flags"] = mode, OPAQUE if opaque else 0
        return self


class Box:
    def __init__(self, name="demo", where=None):
        self.top = tempfile.mkdtemp(prefix="cloche-review-", dir=where)
        self.project = os.path.join(self.top, name)
        self.changes = os.path.join(self.top, "changes")
        self.locks = os.path.join(self.top, "locks")
        for d in (self.project, self.changes, self.locks):
            os.mkdir(d)
        self.name = name
        self.flags = {}     # path: (flags, why)
        self.rules = []     # (dir, source, text)
        self.hash_base = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["chmod", "-R", "u+rwx", self.top], check=False)
        shutil.rmtree(self.top, ignore_errors=True)

    # the host

    def at(self, path):
        return os.path.join(b(self.project), b(path))

    def write(self, path, content=b"", mode=0o644):
        p = self.at(path)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(b(content))
        os.chmod(p, mode)

    def read(self, path):
        with open(self.at(path), "rb") as f:
            return f.read()

    def mode(self, path):
        return stat.S_IMODE(os.lstat(self.at(path)).st_mode)

    def exists(self, path):
        return os.path.lexists(self.at(path))

    def leftovers(self):
        return [n for _, ds, fs in os.walk(self.project) for n in ds + fs
                if n.startswith(".cloche-tmp-") or n.startswith("cloche-kept-")]

    # the manifest

    def _scan(self):
        lines, self.index = [], {}
        seen = {}
        block = 1

        def entry(path, parent, name, project):
            nonlocal block
            i = len(lines)
            st = os.lstat(path)
            rel = os.path.relpath(path, b(self.project)) if project is not None else None
            flags, why = self.flags.get(os.fsdecode(rel) if rel else None, (0, 0))
            absent = flags & 7
            kind = (1 if stat.S_ISDIR(st.st_mode) else 2 if stat.S_ISREG(st.st_mode) else
                    3 if stat.S_ISLNK(st.st_mode) else 4)
            if kind == 4 and not absent:
                flags, why, absent = SKIPPED, 1, SKIPPED
            size, blk, same, link = st.st_size if kind == 2 else 0, 0, i, b""
            if kind == 3 and not absent:
                link = os.readlink(path)
            if kind == 2 and not absent:
                same, blk = seen.get((st.st_dev, st.st_ino), (i, 0))
                if same == i and size:
                    blk, block = block, block + (size + 4095) // 4096
                seen.setdefault((st.st_dev, st.st_ino), (i, blk))
            lines.append("E %d %d %d %d %d %d %d %d %d %d %d %d %d %d %s %s" % (
                parent, kind, flags, why, stat.S_IMODE(st.st_mode), st.st_nlink, size,
                st.st_mtime_ns, st.st_ctime_ns, st.st_ino, st.st_dev, 0, blk, same,
                hx(name), hx(link)))
            return i, kind == 1 and not absent

        lines.append("E 0 1 0 0 493 1 0 0 0 0 0 0 0 0 - -")
        i, _ = entry(b(self.project), 0, b(self.name), 0)
        self.index[b""] = i
        queue = [(b(self.project), i)]
        while queue:
            path, parent = queue.pop(0)
            for name in sorted(os.listdir(path)):
                p = os.path.join(path, name)
                i, walk = entry(p, parent, name, 0)
                self.index[os.path.relpath(p, b(self.project))] = i
                if walk:
                    queue.append((p, i))
        st = os.stat(self.project)
        lines.append("P 1 %s %d %d" % (hx(self.project), st.st_dev, st.st_ino))
        for d, source, text in self.rules:
            lines.append("R %d %d %s" % (self.index[b(d)], source, hx(text)))
        return lines

    # the set

    def _emit(self, d, path, lines):
        for name in sorted(d["in"]):
            e, p = d["in"][name], os.path.join(path, name) if path else name
            if e["kind"] == "dir":
                mode = e["mode"]
                if mode is None:
                    on_host = os.path.isdir(self.at(p)) and not os.path.islink(self.at(p))
                    mode = self.mode(p) if on_host else 0o755
                lines.append("D %s %d %d" % (hx(name), mode, e["flags"]))
                self._emit(e, p, lines)
                lines.append("U")
            elif e["kind"] == "file":
                lines.append("F %s %d %d %s%s" % (
                    hx(name), e["mode"], e["flags"], e["content"],
                    " " + os.fsdecode(self.at(p)) if e["base"] else ""))
            elif e["kind"] == "link":
                lines.append("L %s %s" % (hx(name), e["text"]))
            elif e["kind"] == "del":
                lines.append("W %s" % hx(name))
            else:
                lines.append("S %s %d" % (hx(name), e["mode"]))

    def make(self, guest, id="set-aaaaaa", sandbox="box1", created=1000, scan=None, env=None,
             check=True):
        lines = list(scan if scan is not None else self._scan())
        lines.append("D %s %d %d" % (hx(self.name), guest.root["mode"], guest.root["flags"]))
        self._emit(guest.root, b"", lines)
        lines.append("U")
        return self.tool("mk", id, sandbox, str(created), stdin="\n".join(lines) + "\n",
                         env=env, check=check)

    def scan(self):
        return self._scan()

    # the tool

    def tool(self, verb, *args, stdin="", env=None, check=False, timeout=60):
        e = dict(os.environ)
        e.update(env or {})
        r = subprocess.run([TOOL, verb, self.changes, self.locks, *args],
                           input=b(stdin), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env=e, timeout=timeout)
        if check and r.returncode != 0:
            raise AssertionError("%s: %d %r %r" % (verb, r.returncode, r.stdout, r.stderr))
        return r

    def list(self, id="set-aaaaaa"):
        return json.loads(self.tool("list", id, check=True).stdout)

    def items(self, id="set-aaaaaa"):
        return {c["path"]: c for c in self.list(id)["changes"]}

    def apply(self, *args, id="set-aaaaaa", want=None, env=None):
        r = self.tool("apply", id, *args, env=env)
        if want is not None and r.returncode != want:
            raise AssertionError("apply: exit %d, wanted %d: %r %r" % (
                r.returncode, want, r.stdout, r.stderr))
        return json.loads(r.stdout) if r.stdout else None

    def hooked(self, at, cmd, id="set-aaaaaa", nth=None):
        env = {"HOOK_AT": str(at), "HOOK_CMD": cmd}
        if nth:
            env["HOOK_NTH"] = str(nth)
        return self.tool("apply-hooked", id, self.project, env=env)
