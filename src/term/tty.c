/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything below give_back() and take() may run in a signal handler, so it
 * uses only calls of signal-safety(7), never waits without a bound, and keeps
 * its state in one static struct. All signals are blocked while that changes.
 */
#include "term/tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

enum {
	WRITE_WAIT_MS = 500, /* a terminal that takes nothing must not keep us from exiting */
	DYING_DRAIN_MS = 50, /* for late answers, on the way out by a signal or exit() */
	DRAIN_TIMES = 5,     /* a guest's mouse reports may not keep us for ever either */
	BACKGROUND_TRIES = 20,
	ALT_STACK_BYTES = 64 * 1024,
};

/* Crashes of our own: taken over from whoever had them, a sanitizer included. */
static const int crash_signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS };
/* Taken over only from the default action: a handler of the caller need not be the end. */
static const int death_signals[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM,
	                             SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ };
static const int job_signals[] = { SIGTSTP, SIGCONT, SIGWINCH };

enum { N_SIGNALS = ARRAY_LEN(crash_signals) + ARRAY_LEN(death_signals) + ARRAY_LEN(job_signals) };

static struct {
	volatile sig_atomic_t entered;
	volatile sig_atomic_t held; /* the terminal is in our mode just now */
	volatile sig_atomic_t resized;
	pid_t owner;
	struct term_tty_spec spec;
	struct termios before, ours;
	struct {
		int signo; /* 0: not taken over */
		struct sigaction old;
	} sig[N_SIGNALS];
	bool own_stack;
	bool at_exit;
} tty;

static uint8_t alt_stack[ALT_STACK_BYTES];

bool term_is_tty(int fd)
{
	return isatty(fd) == 1;
}

static bool in_foreground(void)
{
	pid_t group = tcgetpgrp(tty.spec.in_fd);

	/* not our controlling terminal: there is no job control to respect */
	if (group < 0)
		return errno == ENOTTY;
	return group == getpgrp();
}

static int64_t now_ms(void)
{
	struct timespec t = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Write within a bound of time: a hung terminal takes nothing. */
static void write_bounded(int fd, const uint8_t *p, size_t n)
{
	int flags = fcntl(fd, F_GETFL);
	int64_t end = now_ms() + WRITE_WAIT_MS;

	if (flags < 0)
		return;
	if (!(flags & O_NONBLOCK))
		(void)fcntl(fd, F_SETFL, flags | O_NONBLOCK); /* then write() may wait instead */
	while (n) {
		struct pollfd w = { .fd = fd, .events = POLLOUT };
		int64_t left = end - now_ms();
		ssize_t k;

		if (left <= 0 || poll(&w, 1, (int)left) == 0)
			break;
		k = write(fd, p, n);
		if (k < 0 && errno != EAGAIN && errno != EINTR)
			break;
		if (k > 0) {
			p += k;
			n -= (size_t)k;
		}
	}
	if (!(flags & O_NONBLOCK))
		(void)fcntl(fd, F_SETFL, flags);
}

static void write_seq(term_tty_seq_fn fn)
{
	uint8_t room[TERM_TTY_SEQ_MAX];
	struct wr w = wr_of(room, sizeof(room));

	if (!fn || tty.spec.out_fd < 0)
		return;
	fn(tty.spec.arg, &w);
	write_bounded(tty.spec.out_fd, room, sizeof(room) - w.left);
}

/* Throw away what arrives until @silence_ms passed without anything. */
static void drain(int silence_ms)
{
	int64_t end = now_ms() + (int64_t)silence_ms * DRAIN_TIMES;
	uint8_t junk[512];

	(void)tcflush(tty.spec.in_fd, TCIFLUSH); /* what is left then is read below */
	while (silence_ms > 0) {
		struct pollfd r = { .fd = tty.spec.in_fd, .events = POLLIN };
		int64_t left = MIN(end - now_ms(), silence_ms);

		if (left <= 0 || poll(&r, 1, (int)left) <= 0 || !(r.revents & POLLIN) ||
		    read(tty.spec.in_fd, junk, sizeof(junk)) <= 0)
			return;
	}
}

static void give_back(int drain_ms)
{
	if (!tty.held)
		return;
	tty.held = 0;
	/* in the background the terminal is the shell's, which set it as it wants it */
	if (!in_foreground())
		return;
	if (tty.spec.mode == TERM_TTY_RAW) {
		write_seq(tty.spec.bye);
		drain(drain_ms); /* still raw, so nothing of it is echoed */
	}
	/* NOW: waiting for the output could be for ever, and raw output is done already */
	(void)tcsetattr(tty.spec.in_fd, TCSANOW, &tty.before);
}

static int take(void)
{
	if (tcsetattr(tty.spec.in_fd, TCSANOW, &tty.ours) < 0)
		return -errno;
	tty.held = 1;
	return 0;
}

static void block_all(sigset_t *old)
{
	sigset_t all;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, old); /* fails only for a bad first argument */
}

static void unblock(const sigset_t *old)
{
	(void)sigprocmask(SIG_SETMASK, old, NULL);
}

static bool is_ours(void)
{
	return tty.entered && tty.owner == getpid(); /* a fork has no terminal to restore */
}

/* Stop by @signo with its default action, whatever is set and blocked now. */
static void stop_by(int signo, bool whole_group)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	struct sigaction old;
	sigset_t one, mask;

	(void)sigaction(signo, &dfl, &old);
	(void)sigemptyset(&one);
	(void)sigaddset(&one, signo);
	(void)kill(whole_group ? 0 : getpid(), signo);
	(void)sigprocmask(SIG_UNBLOCK, &one, &mask); /* stops here, and goes on after SIGCONT */
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	(void)sigaction(signo, &old, NULL);
}

void term_tty_continue(void)
{
	sigset_t mask;

	block_all(&mask);
	if (is_ours() && in_foreground()) {
		bool again = !tty.held;

		/* after a SIGSTOP nothing was given back, but the shell changed the settings */
		if (take() == 0 && again)
			write_seq(tty.spec.back);
		tty.resized = 1;
	}
	unblock(&mask);
}

void term_tty_suspend(void)
{
	sigset_t mask;

	block_all(&mask);
	if (is_ours())
		give_back(DYING_DRAIN_MS);
	stop_by(SIGTSTP, false);
	unblock(&mask);
	term_tty_continue();
}

static void on_job(int signo)
{
	int e = errno;

	if (signo == SIGTSTP)
		term_tty_suspend();
	else if (signo == SIGCONT)
		term_tty_continue();
	else
		tty.resized = 1;
	errno = e;
}

static void on_death(int signo)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t one;

	if (is_ours())
		give_back(DYING_DRAIN_MS);
	/* end as if we had not been here: the same signal with the action of before */
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (tty.sig[i].signo == signo)
			dfl = tty.sig[i].old;
	}
	(void)sigaction(signo, &dfl, NULL);
	(void)sigemptyset(&one);
	(void)sigaddset(&one, signo);
	(void)raise(signo);
	(void)sigprocmask(SIG_UNBLOCK, &one, NULL);
}

static void on_exit_of_process(void)
{
	sigset_t mask;

	block_all(&mask);
	if (is_ours())
		give_back(DYING_DRAIN_MS);
	unblock(&mask);
}

static void take_over(size_t slot, int signo, void (*fn)(int), bool always)
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = SA_RESTART | SA_ONSTACK };

	(void)sigfillset(&sa.sa_mask);
	tty.sig[slot].signo = 0;
	if (sigaction(signo, NULL, &tty.sig[slot].old) < 0)
		return;
	const struct sigaction *old = &tty.sig[slot].old;
	bool dfl = !(old->sa_flags & SA_SIGINFO) && old->sa_handler == SIG_DFL;
	bool ign = !(old->sa_flags & SA_SIGINFO) && old->sa_handler == SIG_IGN;
	if (ign || !(dfl || always))
		return;
	if (sigaction(signo, &sa, NULL) == 0)
		tty.sig[slot].signo = signo;
}

static void take_signals(void)
{
	stack_t st = { 0 };
	size_t k = 0;

	/* a stack that overflowed cannot run a handler */
	tty.own_stack = sigaltstack(NULL, &st) == 0 && (st.ss_flags & SS_DISABLE);
	if (tty.own_stack) {
		st = (stack_t){ .ss_sp = alt_stack, .ss_size = sizeof(alt_stack) };
		tty.own_stack = sigaltstack(&st, NULL) == 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(crash_signals); i++)
		take_over(k++, crash_signals[i], on_death, true);
	for (size_t i = 0; i < ARRAY_LEN(death_signals); i++)
		take_over(k++, death_signals[i], on_death, false);
	for (size_t i = 0; i < ARRAY_LEN(job_signals); i++)
		take_over(k++, job_signals[i], on_job, false);
}

static void drop_signals(void)
{
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (tty.sig[i].signo)
			(void)sigaction(tty.sig[i].signo, &tty.sig[i].old, NULL);
		tty.sig[i].signo = 0;
	}
	if (tty.own_stack) {
		stack_t st = { .ss_flags = SS_DISABLE };
		(void)sigaltstack(&st, NULL); /* stays in use: it is static */
	}
	tty.own_stack = false;
}

static void settings_of(struct termios *t, enum term_tty_mode mode)
{
	if (mode == TERM_TTY_RAW) {
		cfmakeraw(t);
		t->c_cc[VMIN] = 1;
		t->c_cc[VTIME] = 0;
		return;
	}
	t->c_iflag |= ICRNL;
	t->c_iflag &= ~(tcflag_t)(INLCR | IGNCR);
	t->c_oflag |= OPOST | ONLCR;
	t->c_lflag |= ICANON | ISIG | IEXTEN | ECHO | ECHOE | ECHOK;
	if (mode == TERM_TTY_QUIET)
		t->c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
}

int term_tty_enter(const struct term_tty_spec *spec, struct err *err)
{
	struct termios before;
	sigset_t mask;
	int r = 0;

	if (tty.entered)
		return err_set(err, -EBUSY, "the terminal is in use already");
	if (!term_is_tty(spec->in_fd))
		return err_set(err, -ENOTTY, "the input is not a terminal");
	tty.spec = *spec;
	/* as any program that reads its terminal: wait in the background until "fg" */
	for (int i = 0; !in_foreground(); i++) {
		if (i == BACKGROUND_TRIES)
			return err_set(err, -EIO, "the terminal belongs to another process group");
		stop_by(SIGTTIN, true);
	}
	if (!tty.at_exit && atexit(on_exit_of_process) != 0)
		return err_set(err, -ENOMEM, "cannot register the restore of the terminal");
	tty.at_exit = true;
	block_all(&mask); /* SIGTTOU too, so a lost race for the foreground does not stop us */
	if (tcgetattr(spec->in_fd, &before) < 0) {
		r = -errno;
	} else {
		tty.before = tty.ours = before;
		settings_of(&tty.ours, spec->mode);
		tty.owner = getpid();
		tty.resized = 0;
		take_signals();
		tty.entered = 1;
		r = take();
		if (r < 0) {
			tty.entered = 0;
			drop_signals();
		}
	}
	unblock(&mask);
	return r < 0 ? err_code(err, r, "cannot set the terminal") : 0;
}

void term_tty_leave(int drain_ms)
{
	sigset_t mask;

	if (!is_ours())
		return;
	block_all(&mask);
	give_back(drain_ms);
	tty.entered = 0;
	drop_signals();
	unblock(&mask);
}

bool term_tty_entered(void)
{
	return is_ours();
}

static uint16_t clamp(unsigned v, unsigned fallback)
{
	return (uint16_t)(v == 0 ? fallback : MIN(v, 9999u));
}

struct term_size term_tty_size(int fd)
{
	struct winsize w = { 0 };

	if (ioctl(fd, TIOCGWINSZ, &w) < 0)
		w = (struct winsize){ 0 };
	return (struct term_size){ .cols = clamp(w.ws_col, 80),
		                   .rows = clamp(w.ws_row, 24),
		                   .width_px = w.ws_xpixel,
		                   .height_px = w.ws_ypixel };
}

bool term_tty_resized(void)
{
	bool r = tty.resized;

	if (r)
		tty.resized = 0;
	return r;
}
