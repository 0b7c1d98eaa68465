/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small program in the place of the tool: takes the terminal, puts it into the
 * state that a guest would, and then dies in the way that a key or signal asks for.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "event/loop.h"
#include "term/filter.h"
#include "term/progress.h"
#include "term/prompt.h"
#include "term/tty.h"

static struct term_filter filter;

static void bye(const void *arg, struct wr *out)
{
	term_filter_reset_seq(arg, out);
}

static void back(const void *arg, struct wr *out)
{
	term_filter_resume_seq(arg, out);
}

static void say(const char *fmt, ...) PRINTF_FMT(1, 2);
static void say(const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n < 0 || fd_write_all(1, line, (size_t)n) < 0)
		_exit(99);
}

static void say_size(void)
{
	struct term_size s = term_tty_size(0);

	say("SIZE %ux%u\r\n", s.cols, s.rows);
}

static int deep(volatile int n)
{
	volatile char room[4096];

	room[0] = (char)n;
	return n < 0 ? 0 : deep(n + 1) + room[0];
}

static int on_key(char c)
{
	static char flood[1 << 20];
	volatile int *volatile nowhere = NULL;

	switch (c) {
	case 'q':
		term_tty_leave(term_filter_may_answer(&filter) ? 50 : 0);
		return 0;
	case 'e':
		exit(3);
	case 'm':
		return 4;
	case 'a':
		abort();
	case 's':
		*nowhere = 1;
		break;
	case 'k':
		return deep(0);
	case 'A':
		ASSERT(c != 'A');
		break;
	case 'f':
		if (fork() == 0)
			exit(0); /* runs atexit, which must leave the terminal alone */
		(void)wait(NULL);
		say("FORKED\r\n");
		break;
	case 'w':
		memset(flood, 'x', sizeof(flood));
		(void)!write(1, flood, sizeof(flood)); /* nobody reads: hangs here */
		break;
	default:
		say("KEY %02x\r\n", (uint8_t)c);
		break;
	}
	return -1;
}

static int enter(void)
{
	struct term_tty_spec spec = { .in_fd = 0,
		                      .out_fd = 1,
		                      .mode = TERM_TTY_RAW,
		                      .bye = bye,
		                      .back = back,
		                      .arg = &filter };
	static const char guest[] = "\033[?1049h\033[?1003h\033[>1u\033]0;title\a";
	uint8_t room[2 * TERM_FILTER_ROOM_MIN];
	struct wr w = wr_of(room, sizeof(room));
	struct err err = { 0 };

	if (term_tty_enter(&spec, &err) < 0) {
		say("ERROR %s\r\n", err.text);
		return 2;
	}
	if (term_filter_run(&filter, span_str(guest), &w) != strlen(guest) ||
	    fd_write_all(1, room, sizeof(room) - w.left) < 0)
		return 2;
	say("READY\r\n");
	return 0;
}

/* signals come to the handlers of tty.c */
static int run_plain(void)
{
	int r = enter();

	while (r == 0) {
		struct pollfd p = { .fd = 0, .events = POLLIN };
		char c;

		if (term_tty_resized())
			say_size();
		if (poll(&p, 1, 50) <= 0)
			continue;
		if (read(0, &c, 1) != 1)
			return 5;
		int code = on_key(c);
		if (code >= 0)
			return code;
	}
	return r;
}

static void on_input(void *arg, uint32_t events UNUSED)
{
	char c;
	int code = read(0, &c, 1) == 1 ? on_key(c) : 5;

	if (code >= 0)
		loop_stop(arg, code);
}

static void on_signal(void *arg, int signo)
{
	if (signo == SIGTSTP) {
		term_tty_suspend();
	} else if (signo == SIGCONT) {
		term_tty_continue();
	} else if (signo == SIGTERM) {
		term_tty_leave(50);
		loop_stop(arg, 143);
	}
	if (signo != SIGTERM)
		say_size();
}

/* signals come through a loop */
static int run_loop(void)
{
	static const int set[] = { SIGTERM, SIGTSTP, SIGCONT, SIGWINCH, -1 };
	struct loop *l = loop_new();
	struct loop_fd in = { .fd = -1 };

	if (!l || loop_signals(l, set, on_signal, l) < 0)
		return 2;
	int r = enter();
	if (r == 0)
		r = loop_fd_add(l, &in, 0, EPOLLIN, on_input, l);
	if (r == 0)
		r = loop_run(l);
	loop_free(l);
	return r;
}

static int run_ask(bool echo)
{
	struct term_prompt p = { .in_fd = 0, .out_fd = 2, .wake_fd = -1 };
	char out[32];

	for (int i = 0; i < 2; i++) {
		int r = term_prompt_ask(&p, "accept \033[31m? ", echo, 5000, out, sizeof(out));

		if (r < 0) {
			say("NONE %s\n", strerror(-r));
			return 1;
		}
		say("ANSWER <%s>\n", out);
	}
	return 0;
}

static int run_progress(void)
{
	struct term_progress p;

	term_progress_init(&p, 2, NULL, NULL);
	term_progress_phase(&p, "boot a very long name of a thing that is being done now");
	(void)usleep(350000);
	term_progress_tick(&p);
	term_progress_line(&p, "warning");
	term_progress_end(&p);
	say("done\n");
	return 0;
}

/* stdin to stdout through the filter, and the end of a session */
static int run_filter(void)
{
	uint8_t in[1024], room[4 * TERM_FILTER_ROOM_MIN];
	ssize_t n;

	while ((n = read(0, in, sizeof(in))) > 0) {
		for (struct span s = span_of(in, (size_t)n); s.len;) {
			struct wr w = wr_of(room, sizeof(room));
			size_t k = term_filter_run(&filter, s, &w);

			if (fd_write_all(1, room, sizeof(room) - w.left) < 0)
				return 1;
			s = span_of(s.p + k, s.len - k);
		}
	}
	return n < 0;
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";

	if (strcmp(what, "plain") == 0)
		return run_plain();
	if (strcmp(what, "loop") == 0)
		return run_loop();
	if (strcmp(what, "ask") == 0 || strcmp(what, "quiet") == 0)
		return run_ask(*what == 'a');
	if (strcmp(what, "filter") == 0)
		return run_filter();
	if (strcmp(what, "progress") == 0)
		return run_progress();
	return 2;
}
