# SPDX-License-Identifier: Apache-2.0
"""cloche-worker and the network: a guest that lies about its self-test or its connections,
a relay that lies, and clients that do neither read nor leave. No virtual machine, as in
test_hostile.py.
"""
import socket
import struct
import time

import hostile
import wire
from hostile import Worker, done, exited
from test_hostile import BLOBS, FILES, INDEX, PROTOCOL, run_all
from wire import CREDIT, DATA, EOF, ERR, IN, OUT, RESET, frame

FIRST = 128                     # channels of connections: forward.h
MOST = 64


def worker(h, **k):
    return Worker(h, relay=True, index=INDEX, blobs=BLOBS, **k)


def names(w):
    return [n for n, _, _ in w.host_msgs]


def connects(w):
    return [struct.unpack("<HH", b) for n, _, b in w.host_msgs if n == "CONNECT"]


def got(w, channel, stream=IN, kind=DATA):
    return b"".join(p for k, s, c, p in w.guest_frames if (k, s, c) == (kind, stream, channel))


def saw(w, kind, channel, stream):
    return any(f[:3] == (kind, stream, channel) for f in w.guest_frames)


def drain(c):
    """What is there, and whether the end is."""
    b = b""
    try:
        while True:
            k = c.recv(1 << 16)
            if not k:
                return b, True
            b += k
    except BlockingIOError:
        return b, False
    except ConnectionResetError:
        return b, True


def up(h, **k):
    w = worker(h, auto_exit=False, **k)
    w.exec()
    w.until(lambda: any(t == hostile.C_STARTED for t, _ in w.ctl), why="started")
    return w


def leave(w):
    """The command exits, the changes come out."""
    w.auto_exit = True
    w.guest(frame(EOF, 1, OUT) + frame(EOF, 1, ERR))
    w.msg(exited(1))
    w.end(good=True)


def test_order(h):
    """Address first, then the proof, and no command before it."""
    def good(h):
        held = []

        def on_guest(w, name, seq, body):
            if name == "NET_TEST":
                held.append(seq)
                return True
            return False
        w = worker(h, on_guest=on_guest, ready_ms=8000, args=["--search", "corp.example"])
        w.until(lambda: "MOUNT_WORK" in names(w), why="mounted")
        order = names(w)
        assert order.index("MOUNT_ROOT") < order.index("NET") < order.index("NET_TEST"), order
        body = next(b for n, _, b in w.host_msgs if n == "NET")
        assert body == bytes([2, 255, 87, 10, 1, 0, 87, 10, 1, 0, 87, 10, 16]) + \
            struct.pack("<HB", 16000, 1) + wire.s16("corp.example"), body
        t0 = time.monotonic()
        while time.monotonic() - t0 < 0.5:
            w.turn(0.05)
        assert not w.up, "up without a proof"
        w.msg(done(held[0]))
        w.exec()
        w.end(good=True)

    def proven(h):
        w = worker(h)
        w.exec()
        w.end(good=True)

    def failing(code, text):
        def f(h):
            def on_guest(w, name, seq, body):
                if name != "NET_TEST":
                    return False
                w.msg(done(seq, code, text))
                return True
            w = worker(h, on_guest=on_guest)
            w.end(refused="does not hold")
            assert "EXEC" not in names(w) and not w.up
        return f

    def silent(h):
        worker(h, on_guest=lambda w, n, s, b: n == "NET_TEST", ready_ms=500).end(refused="not ready")

    def no_net(h):
        def on_guest(w, name, seq, body):
            if name != "NET":
                return False
            w.msg(done(seq, 19, "there is no network card"))
            return True
        worker(h, on_guest=on_guest).end(refused="there is no network card")

    def twice(h):
        def on_guest(w, name, seq, body):
            if name == "NET_TEST":
                w.msg(done(seq))
                w.msg(done(seq))
                return True
            return False
        worker(h, on_guest=on_guest).end(refused=PROTOCOL)

    def before_net(h):
        """Proven before it was set up."""
        def on_guest(w, name, seq, body):
            return name == "NET"
        worker(h, on_guest=on_guest, ready_ms=1500).end(refused=PROTOCOL)

    run_all(h, {"good": good, "proven": proven, "got through": failing(1, "TCP \x1b[1mgot through"),
                "no answer": failing(110, ""), "silent": silent, "no card": no_net, "twice": twice,
                "before": before_net})


def test_connections(h):
    def both_ways(h):
        w = up(h)
        c = w.forward(8080)
        w.until(lambda: connects(w) == [(FIRST, 8080)], why="connect")
        c.send(b"hello")
        w.until(lambda: got(w, FIRST) == b"hello", why="data")
        w.guest(frame(DATA, FIRST, OUT, b"x" * 1000))
        w.until(lambda: drain(c)[0] or False, why="answer")
        c.shutdown(socket.SHUT_WR)
        w.until(lambda: saw(w, EOF, FIRST, IN), why="half-close")
        w.guest(frame(DATA, FIRST, OUT, b"late") + frame(EOF, FIRST, OUT) + frame(EOF, FIRST, ERR))
        end = []
        w.until(lambda: (end.append(drain(c)) or end[-1][1]), why="end")
        assert b"late" in b"".join(b for b, _ in end)
        # the number is used again
        c = w.forward(9)
        w.until(lambda: connects(w)[-1] == (FIRST, 9) and len(connects(w)) == 2, why="again")
        c.close()
        leave(w)

    def refused(h):
        def on_guest(w, name, seq, body):
            if name != "CONNECT":
                return False
            ch = struct.unpack_from("<H", body)[0]
            w.msg(done(seq, 111, "cannot connect"))
            w.guest(frame(RESET, ch, ERR))      # of OUT: hostile.py answers the host's
            return True
        w = up(h, on_guest=on_guest)
        for _ in range(3):
            c = w.forward(9)
            w.until(lambda: drain(c)[1], why="closed")
        assert len(connects(w)) == 3
        leave(w)

    def early(h):
        """Before commands can run there is nobody to connect to."""
        seen = []

        def on_guest(w, name, seq, body):
            if name == "MOUNT_WORK" and not seen:
                seen.append(seq)
                return True
            return False
        w = worker(h, on_guest=on_guest, auto_exit=False, ready_ms=8000)
        w.until(lambda: seen, why="mounting")
        c = w.forward()
        w.until(lambda: drain(c)[1], why="closed")
        w.msg(done(seen[0]))
        w.exec()
        w.until(lambda: any(t == hostile.C_STARTED for t, _ in w.ctl), why="started")
        assert not connects(w)
        leave(w)

    def exported(h):
        """What stands when the changes are taken out is cut, also what is half made."""
        def on_guest(w, name, seq, body):
            return name == "CONNECT" and struct.unpack_from("<HH", body)[1] == 2
        w = up(h, on_guest=on_guest)
        a, b = w.forward(1), w.forward(2)
        w.until(lambda: len(connects(w)) == 2, why="connects")
        leave(w)
        assert drain(a)[1] and drain(b)[1]

    def command_channels(h):
        """A client's commands do not get the channels of connections."""
        for ch in (FIRST, FIRST + MOST - 1, 254):
            w = worker(h)
            w.until(lambda: w.up, why="up")
            w.say(hostile.ctl_args([b"sh"]))
            w.say(hostile.ctl_exec(ch))
            w.until(lambda: w.off or not w.sides["client"].open, why="gone")
            assert "EXEC" not in names(w)
            w.p.kill()
            w.p.wait()
            w.close()

    run_all(h, {"both ways": both_ways, "refused": refused, "early": early, "export": exported,
                "channels": command_channels}, files=FILES)


def test_guest_lies(h):
    """Each ends the machine, and leaves no set."""
    def lie(b, answer=True, more=0):
        def f(h):
            held = []

            def on_guest(w, name, seq, body):
                if name == "CONNECT" and not answer:
                    held.append(seq)
                    return True
                return False
            w = up(h, on_guest=on_guest)
            c = w.forward()
            w.until(lambda: connects(w), why="connect")
            for _ in range(3):
                w.turn(0.05)
            seq = w.host_seq["CONNECT"]
            w.guest(b(seq) if callable(b) else b)
            w.end(refused=PROTOCOL)
            assert drain(c)[1]
        return f

    ctl = lambda m: frame(wire.CONTROL, 0, 0, m)    # noqa: E731
    run_all(h, {
        "data before it stands": lie(frame(DATA, FIRST, OUT, b"x"), answer=False),
        "end before it stands": lie(frame(EOF, FIRST, OUT), answer=False),
        "reset before it stands": lie(frame(RESET, FIRST, OUT), answer=False),
        "data on the error stream": lie(frame(DATA, FIRST, ERR, b"x")),
        "end of all first": lie(frame(EOF, FIRST, ERR)),
        "end of all before ours": lie(frame(EOF, FIRST, OUT) + frame(EOF, FIRST, ERR)),
        "reset of all first": lie(frame(RESET, FIRST, ERR)),
        "data after the end": lie(frame(EOF, FIRST, OUT) + frame(DATA, FIRST, OUT, b"x")),
        "two ends": lie(frame(EOF, FIRST, OUT) + frame(EOF, FIRST, OUT)),
        "data in our direction": lie(frame(DATA, FIRST, IN, b"x")),
        "a credit that is none": lie(frame(CREDIT, FIRST, IN, struct.pack("<I", wire.CREDIT_MAX + 1))),
        "another channel": lie(frame(DATA, FIRST + 1, OUT, b"x")),
        "the last channel": lie(frame(EOF, FIRST + MOST - 1, OUT)),
        "an exit": lie(ctl(exited(FIRST))),
        "answered twice": lie(lambda seq: ctl(done(seq))),
        "answered by another number": lie(lambda seq: ctl(done(seq + 1)), answer=False),
        "beyond the credit": lie(frame(DATA, FIRST, OUT, bytes(60000)) * 300),
    })


def test_floods(h):
    def no_reader(h):
        """All clients stop to read: one window each and no more, and the session goes on."""
        w = up(h)
        cs = []
        for i in range(MOST):
            cs.append(w.forward(i + 1))
            w.until(lambda: len(connects(w)) == len(cs), why="connect")
        more = w.forward(99)
        w.until(lambda: drain(more)[1], why="the 65th is closed")
        assert len(connects(w)) == MOST
        for ch in range(FIRST, FIRST + MOST):
            for _ in range(4):
                w.guest(frame(DATA, ch, OUT, bytes(64 << 10)))
        w.until(lambda: not w.sides["guest"].queue, why="taken")
        w.guest(frame(DATA, 1, OUT, b"and the command talks\n"))
        w.until(lambda: w.client_out.get((1, OUT)), why="the command's output")
        for c in cs[::2]:
            c.close()
        leave(w)

    def no_guest(h):
        """The guest takes nothing: one window of each client."""
        w = up(h)
        cs = [w.forward(i + 1) for i in range(8)]
        w.until(lambda: len(connects(w)) == 8, why="connect")
        t0, sent = time.monotonic(), 0
        while time.monotonic() - t0 < 2:
            for c in cs:
                try:
                    sent += c.send(bytes(1 << 16))
                except BlockingIOError:
                    pass
            w.turn(0.01)
        for ch in range(FIRST, FIRST + 8):
            assert len(got(w, ch)) == wire.CREDIT_MAX
        print(f"{sent >> 20} MiB offered")
        leave(w)

    def comers(h):
        """Clients that come and go at once, a thousand of them."""
        def on_frame(w, kind, stream, channel, payload):
            if channel < FIRST or channel >= FIRST + MOST:
                return False
            if (kind, stream) == (EOF, IN) or (kind, stream) == (RESET, IN):
                if channel in w.standing:
                    w.standing.discard(channel)
                    w.guest(frame(EOF, channel, OUT) + frame(EOF, channel, ERR))
            return False

        def on_guest(w, name, seq, body):
            if name == "CONNECT":
                w.standing.add(struct.unpack_from("<H", body)[0])
            return False
        w = worker(h, auto_exit=False, on_frame=on_frame, on_guest=on_guest)
        w.standing = set()
        w.exec()
        w.until(lambda: any(t == hostile.C_STARTED for t, _ in w.ctl), why="started")
        for i in range(1000):
            c = w.forward(7)
            c.close()
            w.turn(0.001)
        t0 = time.monotonic()
        while time.monotonic() - t0 < 1:
            w.turn(0.05)
        print(f"{len(connects(w))} connections")
        assert len(connects(w)) > 100
        c = w.forward(8)
        w.until(lambda: connects(w)[-1][1] == 8, why="one more")
        c.close()
        leave(w)

    run_all(h, {"no reader": no_reader, "no guest": no_guest, "comers": comers})


def test_relay_lies(h):
    """Its word is not heard any more; what stands goes on, and so does the session."""
    def lie(message, n_fds=1):
        def f(h):
            w = up(h)
            stands = w.forward(1)
            w.until(lambda: connects(w), why="connect")
            w.forward(2, message=message, fds=None if n_fds == 1 else [0] * n_fds)
            w.until(lambda: not w.sides["relay"].open, why="dropped")
            stands.send(b"still")
            w.until(lambda: got(w, FIRST) == b"still", why="data")
            assert len(connects(w)) == 1
            leave(w)
        return f

    def gone(h):
        w = up(h)
        w.sides["relay"].close()
        w.sides["mon"].send(hostile.link(hostile.NOTE, 1, text=b"the network is closed"))
        w.until(lambda: any(t == hostile.C_NOTE and b"network is closed" in b for t, b in w.ctl), why="note")
        leave(w)

    ok = struct.pack("<HIH", 64, 0, 80)
    run_all(h, {"no port": lie(struct.pack("<HIH", 64, 0, 0)), "short": lie(ok[:-1]),
                "long": lie(ok + b"x"), "another type": lie(struct.pack("<HI", 32, 0)),
                "no socket": lie(ok, 0), "two sockets": lie(ok, 2), "huge": lie(bytes(5000)),
                "gone": gone})
