# SPDX-License-Identifier: Apache-2.0
"""A program in a window of tmux: a whole terminal emulator, which answers what programs ask of
a terminal, and whose screen can be read."""
import os
import re
import subprocess
import time


class Tmux:
    """One window of @cols x @rows with @argv in it; `h` is the harness, whose end closes it."""

    def __init__(self, h, argv, env, cwd, cols=100, rows=32):
        self.sock = h.path("t", "tmux")
        self.env = {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        h.closers.append(self.close)
        self.rc_file = h.path("t", "tmux.rc")
        script = '"$@"; echo $? >"$RC_FILE"'
        self.do("new-session", "-d", "-s", "t", "-x", str(cols), "-y", str(rows), "-c", cwd,
                "-e", "RC_FILE=" + self.rc_file, "sh", "-c", script, "sh", *argv)

    def do(self, *words):
        return subprocess.run(["tmux", "-u", "-S", self.sock, "-f", "/dev/null", *words], env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False).stdout.decode(errors="replace")

    def screen(self):
        return self.do("capture-pane", "-p", "-t", "t")

    def type(self, text):
        self.do("send-keys", "-t", "t", "-l", text)

    def key(self, *names):
        """As tmux calls them: Enter, C-c, Escape, Down."""
        self.do("send-keys", "-t", "t", *names)

    def resize(self, cols, rows):
        self.do("resize-window", "-t", "t", "-x", str(cols), "-y", str(rows))

    def expect(self, pattern, timeout_s=60):
        """Wait until the screen matches; the match."""
        end = time.monotonic() + timeout_s
        while True:
            s = self.screen()
            m = re.search(pattern, s)
            if m:
                return m
            if self.ended() or time.monotonic() > end:
                raise AssertionError(f"{pattern!r} did not come; the screen:\n{s}")
            time.sleep(0.2)

    def ended(self):
        return os.path.exists(self.rc_file) and os.path.getsize(self.rc_file) > 0

    def wait(self, timeout_s=60):
        """The exit status of the program."""
        end = time.monotonic() + timeout_s
        while not self.ended():
            if time.monotonic() > end:
                raise AssertionError(f"no end in {timeout_s} s; the screen:\n{self.screen()}")
            time.sleep(0.1)
        with open(self.rc_file, encoding="ascii") as f:
            return int(f.read())

    def close(self):
        self.do("kill-server")      # ours alone: the socket is in the test's folder
