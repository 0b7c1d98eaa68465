#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The user's terminal is what it was, however the program that took it ends.

Each test runs in a process that leads a session on a fresh pseudo terminal, as
a shell does, and holds the other end of that terminal too, as the user does.
usage: test_term.py PATH-OF-term_helper [NAME...]
"""
import array
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
import traceback

HELPER = os.path.abspath(sys.argv[1])
DEADLINE_S = 8
SANITIZED = b"__asan_init" in open(HELPER, "rb").read()
OFF = [b"\x1b[?1049l", b"\x1b[?1003l", b"\x1b[<2u", b"\x1b[?25h", b"\x1b[m"]


class Terminal:
    """The user, the terminal and the shell of one test."""

    def __init__(self):
        self.master, slave = pty.openpty()
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        self.slave = slave
        for s in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        self.resize(80, 24)
        self.got = b""
        self.before = self.attrs()

    def attrs(self):
        return termios.tcgetattr(self.slave)

    def raw_now(self):
        return not self.attrs()[3] & (termios.ECHO | termios.ICANON | termios.ISIG)

    def resize(self, cols, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def start(self, what, foreground=True, stdin=None):
        pid = os.fork()
        if pid == 0:
            # also what whoever started us in the background has ignored (INT, QUIT)
            for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(s, signal.SIG_DFL)
            os.setpgid(0, 0)
            if foreground:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
                os.tcsetpgrp(self.slave, os.getpid())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})
            os.dup2(os.open(stdin, os.O_RDONLY) if stdin else self.slave, 0)
            os.dup2(self.slave, 1)
            os.dup2(self.slave, 2)
            os.closerange(3, 100)
            os.environ["TERM"] = "xterm-256color"
            os.environ["ASAN_OPTIONS"] = "detect_leaks=0"
            os.execv(HELPER, [HELPER, what])
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass  # it did so itself
        if foreground:
            os.tcsetpgrp(self.slave, pid)
        return pid

    def own(self):
        """The shell takes the terminal back."""
        os.tcsetpgrp(self.slave, os.getpgrp())

    def foreground(self, pid):
        os.tcsetpgrp(self.slave, pid)
        os.kill(-pid, signal.SIGCONT)

    def type(self, data):
        os.write(self.master, data)

    def pump(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                self.got += os.read(self.master, 65536)

    def expect(self, what):
        end = time.monotonic() + DEADLINE_S
        while what not in self.got:
            if time.monotonic() > end:
                raise AssertionError(f"{what!r} did not come, got {self.got!r}")
            self.pump(0.02)
        self.got = self.got[self.got.index(what) + len(what):]

    def wait(self, pid, flags=0, read=True):
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            got, status = os.waitpid(pid, flags | os.WNOHANG)
            if got:
                if read:
                    self.pump(0.05)
                return status
            if read:
                self.pump(0.02)
            else:
                time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        raise AssertionError("does not end")

    def wait_stopped(self, pid, by):
        status = self.wait(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status
        assert os.WSTOPSIG(status) == by, status

    def is_as_before(self):
        assert self.attrs() == self.before, "the settings differ"

    def all_off(self):
        for seq in OFF:
            assert seq in self.got, (seq, self.got)

    def pending(self):
        """Bytes that the shell would read next."""
        raw = self.attrs()
        raw[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self.slave, termios.TCSANOW, raw)
        n = array.array("i", [0])
        fcntl.ioctl(self.slave, termios.FIONREAD, n)
        return n[0]


def dies(kind, status_of, key=None, signo=None):
    t = Terminal()
    pid = t.start(kind)
    t.expect(b"READY")
    assert t.raw_now()
    if key:
        t.type(key)
    else:
        os.kill(pid, signo)
    status = t.wait(pid)
    assert status_of(status), status
    t.is_as_before()
    t.all_off()
    assert b"title" not in t.got


def exits(code):
    return lambda s: os.WIFEXITED(s) and os.WEXITSTATUS(s) == code


def killed(signo):
    if SANITIZED and signo in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE):
        return lambda s: s != 0  # the sanitizer reports and exits in its own way
    return lambda s: os.WIFSIGNALED(s) and os.WTERMSIG(s) == signo


def test_leave():
    dies("plain", exits(0), key=b"q")


def test_exit():
    dies("plain", exits(3), key=b"e")


def test_return_from_main():
    dies("plain", exits(4), key=b"m")


def test_abort():
    dies("plain", killed(signal.SIGABRT), key=b"a")


def test_crash():
    dies("plain", killed(signal.SIGSEGV), key=b"s")


def test_stack_overflow():
    dies("plain", killed(signal.SIGSEGV), key=b"k")


def test_assert():
    dies("plain", killed(signal.SIGABRT), key=b"A")


def test_signals():
    for s in ("TERM", "HUP", "INT", "QUIT", "SEGV", "ABRT", "BUS", "FPE", "USR1", "ALRM", "PIPE"):
        signo = getattr(signal, "SIG" + s)
        in_child(lambda: dies("plain", killed(signo), signo=signo), "signal " + s)


def test_loop_term():
    dies("loop", exits(143), signo=signal.SIGTERM)


def test_loop_crash():
    dies("loop", killed(signal.SIGSEGV), key=b"s")


def test_keys_are_bytes():
    """Ctrl-C, Ctrl-Z and Enter reach the guest and do nothing here."""
    t = Terminal()
    pid = t.start("plain")
    t.expect(b"READY")
    for key in (3, 26, 28, 13, 17, 19, 22):
        t.type(bytes([key]))
        t.expect(b"KEY %02x" % key)
    t.type(b"q")
    assert t.wait(pid) == 0
    t.is_as_before()


def test_fork_keeps_raw():
    t = Terminal()
    pid = t.start("plain")
    t.expect(b"READY")
    t.type(b"f")
    t.expect(b"FORKED")
    assert t.raw_now()
    assert b"\x1b[?1049l" not in t.got
    t.type(b"q")
    assert t.wait(pid) == 0
    t.is_as_before()


def test_late_answers():
    """An answer that comes after the end is not left for the shell."""
    t = Terminal()
    pid = t.start("plain")
    t.expect(b"READY")
    t.type(b"q")
    t.expect(OFF[1])
    t.type(b"\x1b[<35;1;1M")
    time.sleep(0.02)
    t.type(b"\x1b[?62;22c")
    assert t.wait(pid) == 0
    assert b"62" not in t.got, t.got  # not echoed either
    t.is_as_before()
    assert t.pending() == 0


def test_mouse_flood():
    """A terminal that never stops sending cannot keep the program."""
    t = Terminal()
    pid = t.start("plain")
    t.expect(b"READY")
    t.type(b"q")
    t.expect(OFF[1])
    end = time.monotonic() + 3
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        assert time.monotonic() < end
        t.type(b"\x1b[<35;1;1M")
        time.sleep(0.01)
    t.is_as_before()


def test_hung_terminal():
    """Nobody reads the output: it ends all the same."""
    t = Terminal()
    pid = t.start("plain")
    t.expect(b"READY")
    t.type(b"w")
    time.sleep(0.3)
    begin = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    status = t.wait(pid, read=False)
    assert killed(signal.SIGTERM)(status), status
    assert time.monotonic() - begin < 2
    t.is_as_before()


def test_hangup():
    t = Terminal()
    pid = t.start("plain")
    t.expect(b"READY")
    os.close(t.master)  # the window is closed
    status = t.wait(pid, read=False)
    assert killed(signal.SIGHUP)(status) or exits(5)(status), status


def test_background_start():
    t = Terminal()
    pid = t.start("plain", foreground=False)
    t.wait_stopped(pid, signal.SIGTTIN)
    t.is_as_before()
    assert b"READY" not in t.got
    os.kill(pid, signal.SIGCONT)  # "bg": it still needs the terminal
    t.wait_stopped(pid, signal.SIGTTIN)
    t.foreground(pid)
    t.expect(b"READY")
    assert t.raw_now()
    t.type(b"q")
    assert t.wait(pid) == 0
    t.is_as_before()


def test_background_orphan():
    """In a group that nobody could ever continue: an error, no endless loop."""
    t = Terminal()
    r, w = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setpgid(0, 0)
        if os.fork() == 0:
            time.sleep(0.2)
            for s in (signal.SIGTTOU, signal.SIGTTIN):
                signal.signal(s, signal.SIG_DFL)
            os.dup2(t.slave, 0)
            os.dup2(w, 1)
            os.execv(HELPER, [HELPER, "plain"])
        os._exit(0)
    os.close(w)
    os.waitpid(middle, 0)
    assert select.select([r], [], [], DEADLINE_S)[0]
    got = os.read(r, 1000)
    assert got.startswith(b"ERROR"), got
    t.is_as_before()


def stop_and_go(kind):
    t = Terminal()
    pid = t.start(kind)
    t.expect(b"READY")
    for _ in range(2):
        t.got = b""
        os.kill(pid, signal.SIGTSTP)
        t.wait_stopped(pid, signal.SIGTSTP)
        t.own()
        t.is_as_before()
        t.all_off()
        t.resize(101, 31)
        t.foreground(pid)
        t.expect(b"\x1b[?1049h")
        t.expect(b"\x1b[?1003h")
        t.expect(b"SIZE 101x31")
        assert t.raw_now()
        t.resize(80, 24)
        t.expect(b"SIZE 80x24")
    t.type(b"q")
    assert t.wait(pid) == 0
    t.is_as_before()


def test_stop_and_go():
    stop_and_go("plain")


def test_stop_and_go_loop():
    stop_and_go("loop")


def background_end(kind, status_of):
    """Stopped, continued in the background, killed there: the terminal is the shell's."""
    t = Terminal()
    pid = t.start(kind)
    t.expect(b"READY")
    os.kill(pid, signal.SIGTSTP)
    t.wait_stopped(pid, signal.SIGTSTP)
    t.own()
    shell = t.attrs()
    shell[3] &= ~termios.ECHO  # a shell that edits lines has settings of its own
    termios.tcsetattr(t.slave, termios.TCSANOW, shell)
    os.kill(pid, signal.SIGCONT)
    t.pump(0.2)
    t.got = b""
    os.kill(pid, signal.SIGTERM)
    status = t.wait(pid)
    assert status_of(status), status
    assert t.attrs() == shell
    assert b"\x1b" not in t.got, t.got


def test_background_end():
    background_end("plain", killed(signal.SIGTERM))


def test_background_end_loop():
    background_end("loop", exits(143))


def sigstop(kind):
    """SIGSTOP cannot be caught; what the shell set meanwhile is overridden by SIGCONT."""
    t = Terminal()
    pid = t.start(kind)
    t.expect(b"READY")
    os.kill(pid, signal.SIGSTOP)
    t.wait_stopped(pid, signal.SIGSTOP)
    t.own()
    termios.tcsetattr(t.slave, termios.TCSANOW, t.before)
    t.foreground(pid)
    t.expect(b"SIZE 80x24")
    assert t.raw_now()
    t.type(b"q")
    assert t.wait(pid) == 0
    t.is_as_before()


def test_sigstop():
    sigstop("plain")


def test_sigstop_loop():
    sigstop("loop")


def test_resize():
    for kind in ("plain", "loop"):
        def one():
            t = Terminal()
            pid = t.start(kind)
            t.expect(b"READY")
            t.resize(132, 50)
            t.expect(b"SIZE 132x50")
            t.type(b"q")
            assert t.wait(pid) == 0
        in_child(one, "resize " + kind)


def test_ask():
    t = Terminal()
    raw = t.attrs()
    raw[0] &= ~termios.ICRNL
    raw[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(t.slave, termios.TCSANOW, raw)
    t.type(b"y\r")  # typed while the terminal was raw
    t.before = t.attrs()
    pid = t.start("ask")
    t.expect(b"accept \\e[31m? ")
    t.expect(b"ANSWER <y>")
    t.type(b"no\r")
    t.expect(b"no")  # echoed once
    t.expect(b"ANSWER <no>")
    assert t.wait(pid) == 0
    assert b"no" not in t.got
    t.is_as_before()


def test_ask_end_of_input():
    t = Terminal()
    pid = t.start("ask")
    t.expect(b"accept")
    t.type(b"\x04")
    t.expect(b"NONE No data available")
    assert exits(1)(t.wait(pid))
    t.is_as_before()


def test_quiet():
    t = Terminal()
    pid = t.start("quiet")
    t.expect(b"accept")
    t.type(b"secret\r")
    t.expect(b"? ")
    assert b"secret" not in t.got
    t.expect(b"ANSWER <secret>")
    t.expect(b"accept")
    os.kill(pid, signal.SIGINT)
    assert killed(signal.SIGINT)(t.wait(pid))
    t.is_as_before()


def test_ask_devices():
    """/dev/zero and /dev/null are no terminals, and are no answer."""
    for path, why in (("/dev/zero", b"NONE Invalid"), ("/dev/null", b"NONE No data")):
        def one():
            t = Terminal()
            begin = time.monotonic()
            pid = t.start("ask", stdin=path)
            t.expect(why)
            assert exits(1)(t.wait(pid))
            assert time.monotonic() - begin < 3
        in_child(one, "ask " + path)


def test_progress():
    t = Terminal()
    t.resize(40, 24)
    pid = t.start("progress")
    assert t.wait(pid) == 0
    lines = t.got.split(b"\r")
    assert b"warning" in t.got and b"done" in t.got
    for line in lines:
        text = line.replace(b"\x1b[K", b"").decode()
        assert len(text.strip("\n")) <= 39, text
    assert t.got.index(b"\r\x1b[Kwarning") > 0


def in_child(fn, name):
    """Run in a process of its own, which may lead a session. Raises when it failed."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            fn()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        raise AssertionError(name)


def main():
    names = sys.argv[2:] or [n for n in globals() if n.startswith("test_")]
    failed = []
    for name in names:
        begin = time.monotonic()
        try:
            in_child(globals()[name], name)
        except AssertionError:
            failed.append(name)
        print(f"{'FAIL' if name in failed else 'ok  '} {name} {time.monotonic() - begin:.2f} s",
              flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
