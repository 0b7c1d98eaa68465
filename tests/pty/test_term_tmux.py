#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tmux as a second terminal: the same screen with the filter and without it for what may
pass, and no title, clipboard or resize for what may not.
usage: test_term_tmux.py PATH-OF-term_helper
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

HELPER = os.path.abspath(sys.argv[1])
E = b"\x1b"
ALLOWED = [
    b"plain\r\ntext\twith\btabs",
    E + b"[2J" + E + b"[5;10Hhere" + E + b"[1;31mred" + E + b"[0m" + E + b"[3A" + E + b"[2Cx" + E + b"[K",
    E + b"[38;2;10;20;30mcolour" + E + b"[48;5;200mback" + E + b"[m" + E + b"[38:2::1:2:3mcolon" + E + b"[4:3mcurl",
    E + b"[?1049h" + E + b"[Halt" + E + b"[?1049lback",
    b"a\r\nb\r\nc\r\n" + E + b"[2;3r" + E + b"[3;1H\n\nx" + E + b"[r",
    E + b"[5;5Habcdef" + E + b"[5;5H" + E + b"[2@" + E + b"[1P" + E + b"[1L" + E + b"[M" + E + b"[3X",
    E + b"(0lqqk" + E + b"(B" + E + b")0\x0ex\x0fy",
    E + b"[3g" + E + b"[10G" + E + b"H\r\tx" + E + b"[2Zy",
    E + b"7" + E + b"[10;10Hx" + E + b"8y" + E + b"[4hinsert" + E + b"[Hxx" + E + b"[4l",
    E + b"[?7l" + b"0123456789" * 9 + E + b"[?7h" + b"x" + E + b"[5b",
    "\u4e2d\u6587 wide \U0001f600 e\u0301".encode(),
    E + b"]8;;https://example.com/" + E + b"\\link" + E + b"]8;;" + E + b"\\",
]
HOSTILE = [
    E + b"]0;stolen\a", E + b"]2;stolen" + E + b"\\", E + b"kstolen" + E + b"\\",
    E + b"]52;c;c3RvbGVu\a", E + b"]52;;c3RvbGVu" + E + b"\\",
    E + b"Ptmux;" + E + E + b"]52;c;c3RvbGVu\a" + E + b"\\", b"\xc2\x9d2;stolen\a", b"\x9d2;stolen\a",
    E + b"_stolen" + E + b"\\", E + b"[8;5;5t", E + b"]" + E + b"]2;stolen\a",
]


def filtered(data):
    return subprocess.run([HELPER, "filter"], input=data, stdout=subprocess.PIPE, check=True).stdout


def main():
    if not shutil.which("tmux"):
        print("no tmux")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as d:
        env = {"PATH": os.environ["PATH"], "HOME": d, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}

        def tmux(*args):
            return subprocess.run(["tmux", "-u", "-S", d + "/s", "-f", "/dev/null", *args], env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout

        count = 0

        def show(data):
            """The screen, title, clipboard and size after @data."""
            nonlocal count
            count += 1
            path, name = f"{d}/{count}", f"w{count}"
            with open(path, "wb") as f:
                f.write(data)
            script = f"stty raw -echo; cat {path}; touch {path}.done; exec sleep 60"
            tmux("new-session", "-d", "-s", name, "-n", "window", "-x", "80", "-y", "24", "sh", "-c", script)
            end = time.monotonic() + 10
            while not os.path.exists(path + ".done"):
                assert time.monotonic() < end, "tmux did not start"
                time.sleep(0.02)
            time.sleep(0.15)
            screen = tmux("capture-pane", "-p", "-e", "-t", name)
            state = tmux("display-message", "-p", "-t", name,
                         "#{pane_title}|#{window_name}|#{cursor_x},#{cursor_y}|#{pane_width}x#{pane_height}")
            clip = tmux("list-buffers")
            tmux("kill-session", "-t", name)
            return screen, state, clip

        tmux("new-session", "-d", "-s", "keep", "sleep", "120")
        tmux("set-option", "-s", "set-clipboard", "on")
        tmux("set-option", "-g", "automatic-rename", "off")  # by the command: not what is tested
        tmux("set-option", "-g", "allow-rename", "on")
        tmux("set-option", "-g", "allow-passthrough", "on")
        try:
            failed = 0
            blank = show(b"")
            for data in ALLOWED:
                raw, cooked = show(data), show(filtered(data))
                if raw != cooked:
                    failed += 1
                    print("differs:", data, raw[1], cooked[1])
            power = 0
            for data in HOSTILE:
                _, state, clip = show(filtered(data))
                if state.split(b"|")[0] != blank[1].split(b"|")[0] or clip or b"stolen" in state:
                    failed += 1
                    print("acted:", data, state, clip)
            for data in HOSTILE[:5]:  # the oracle can see it: unfiltered, these act
                _, state, clip = show(data)
                power += b"stolen" in state or b"stolen" in clip
            if power < 3:
                failed += 1
                print("tmux shows no effect without the filter:", power)
        finally:
            tmux("kill-server")  # ours alone: the socket is in our folder
    print(len(ALLOWED), "allowed,", len(HOSTILE), "hostile,", failed, "failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
