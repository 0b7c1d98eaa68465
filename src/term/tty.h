/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tty.h - the user's terminal: raw mode that always ends, size, job control.
 *
 * One terminal at a time is "entered", process-wide, because signal handlers
 * and exit need to find it. From term_tty_enter() to term_tty_leave() every way
 * out of the process restores it: return from main and exit() (atexit), each
 * fatal signal (handlers that restore, put the former action back and raise
 * again, so the exit status stays the signal's), abort() and ASSERT(). Only
 * SIGKILL cannot be caught. A forked child never restores its parent's terminal.
 *
 * Handlers are set for crashes always, for other fatal signals only where the action is the
 * default, and for SIGTSTP, SIGCONT and SIGWINCH likewise. _exit() and exec restore nothing:
 * leave first.
 *
 * A caller with an event loop blocks SIGTERM, SIGHUP, SIGINT, SIGWINCH, SIGTSTP
 * and SIGCONT there and calls the functions below; handlers are only for what
 * arrives outside of the loop. While the process is not in the foreground the
 * terminal is somebody else's and is never touched.
 */
#ifndef CLOCHE_TERM_TTY_H
#define CLOCHE_TERM_TTY_H

#include "base/span.h"

struct err;

enum term_tty_mode {
	TERM_TTY_RAW,   /* every byte to us, no echo, no signals, output untouched */
	TERM_TTY_LINE,  /* line editing and echo by the kernel, CR is Enter */
	TERM_TTY_QUIET, /* as LINE without echo: secrets */
};

/*
 * Appends control sequences for the screen. Runs in signal handlers too: must be
 * async-signal-safe and write at most TERM_TTY_SEQ_MAX bytes.
 * term_filter_reset_seq() and term_filter_resume_seq() do: call them from one of these.
 */
enum { TERM_TTY_SEQ_MAX = 512 };
typedef void (*term_tty_seq_fn)(const void *arg, struct wr *out);

struct term_tty_spec {
	int in_fd;  /* the terminal that is read; its settings are changed. Borrowed until leave */
	int out_fd; /* where @bye and @back go; -1: nothing is written. Borrowed until leave */
	enum term_tty_mode mode;
	term_tty_seq_fn bye;  /* NULL or: undo what the guest did to the screen */
	term_tty_seq_fn back; /* NULL or: do it again after a stop */
	const void *arg;
};

/* isatty(3): a real terminal. /dev/null and /dev/zero are character devices, too. */
bool term_is_tty(int fd);

/*
 * term_tty_enter() - take the terminal.
 *
 * In the background the process group stops (SIGTTIN) until the shell puts it
 * in the foreground, as any program that reads its terminal.
 *
 * Return: 0; -EBUSY when one is entered already, -ENOTTY, -EIO in the background without
 * job control, or -errno. @err is filled.
 */
int term_tty_enter(const struct term_tty_spec *spec, struct err *err) MUST_CHECK;

/*
 * term_tty_leave() - give it back: write @bye, discard input that nobody typed for the
 * shell (TCIFLUSH, then until @drain_ms passed in silence, at most five times as long),
 * restore the settings. Safe when nothing is entered.
 * @drain_ms:	0: only flush; 50 when term_filter_may_answer()
 */
void term_tty_leave(int drain_ms);

bool term_tty_entered(void);

/*
 * term_tty_suspend() - the answer to SIGTSTP: leave, stop this process, and after
 * SIGCONT take the terminal again when in the foreground. Send the window size
 * to the guest afterwards, twice with one row less in between: a program there
 * repaints only when the size changes.
 */
void term_tty_suspend(void);

/* The answer to SIGCONT (a SIGSTOP cannot be caught): take the terminal again if it is ours. */
void term_tty_continue(void);

struct term_size {
	uint16_t cols, rows;          /* 1 .. 9999 */
	uint16_t width_px, height_px; /* 0 when not known */
};

/* Size of the terminal on @fd (the one in use, never /dev/tty); 80x24 when it has none. */
struct term_size term_tty_size(int fd);

/*
 * SIGWINCH and a stop with continue set a flag when they come to the handlers here (not in
 * a loop). Return: whether it was set; clears it.
 */
bool term_tty_resized(void);

#endif
