/* SPDX-License-Identifier: Apache-2.0 */
#include "term/prompt.h"

#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/vis.h"
#include "term/tty.h"

static int64_t now_ms(void)
{
	struct timespec t = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Return: 0 when a byte can be read, or -ETIMEDOUT, -EINTR, -errno. @end_ms < 0: no limit. */
static int wait_input(const struct term_prompt *p, int64_t end_ms)
{
	for (;;) {
		struct pollfd fd[2] = { { .fd = p->in_fd, .events = POLLIN },
			                { .fd = p->wake_fd, .events = POLLIN } };
		int64_t left = end_ms < 0 ? -1 : MAX(end_ms - now_ms(), 0);

		if (p->stop && *p->stop)
			return -EINTR;
		int n = poll(fd, 2, (int)left);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			continue; /* a resize must not cancel the question */
		if (fd[1].revents)
			return -EINTR;
		if (n == 0)
			return -ETIMEDOUT;
		return 0;
	}
}

static int read_line(struct term_prompt *p, int64_t end_ms, char *out, size_t cap)
{
	size_t n = 0;

	for (;;) {
		char c;
		int r = wait_input(p, end_ms);

		if (r < 0)
			return r;
		ssize_t k = read(p->in_fd, &c, 1); /* one: the rest is the next question's */
		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k <= 0)
			return k < 0 && errno != EIO ? -errno : -ENODATA; /* EIO: hung up */
		bool second_half = p->after_cr && c == '\n' && n == 0;
		p->after_cr = c == '\r';
		if (second_half)
			continue;
		if (c == '\n' || c == '\r')
			break;
		if (c == '\0')
			return -EINVAL;
		if (n + 1 == cap)
			return -EMSGSIZE;
		out[n++] = c;
	}
	out[n] = '\0';
	return (int)n;
}

int term_prompt_ask(struct term_prompt *p, const char *question, bool echo, int timeout_ms,
                    char *out, size_t cap)
{
	char line[TERM_ANSWER_MAX];
	AUTO_BUF struct buf b = { 0 };
	bool is_tty = term_is_tty(p->in_fd);
	struct term_tty_spec spec = { .in_fd = p->in_fd,
		                      .out_fd = -1,
		                      .mode = echo ? TERM_TTY_LINE : TERM_TTY_QUIET };
	int r;

	ASSERT(cap >= 2 && cap <= TERM_ANSWER_MAX);
	r = vis_put(&b, span_str(question), VIS_KEEP_NEWLINE | VIS_KEEP_TAB | VIS_KEEP_BACKSLASH);
	if (r < 0)
		return r;
	/* the mode first: a question on the screen may be answered at once */
	if (is_tty)
		r = term_tty_enter(&spec, NULL);
	if (r < 0)
		return r;
	if (p->out_fd >= 0)
		r = fd_write_all(p->out_fd, b.p, b.len);
	if (r == 0)
		r = read_line(p, timeout_ms < 0 ? -1 : now_ms() + timeout_ms, line, cap);
	if (is_tty) {
		term_tty_leave(0);
		/* Enter was not shown, or no Enter came: what follows begins on a new line */
		if (p->out_fd >= 0 && (!echo || r < 0) && fd_write_all(p->out_fd, "\n", 1) < 0 &&
		    r >= 0)
			r = -EIO;
	}
	if (r >= 0)
		memcpy(out, line, (size_t)r + 1);
	explicit_bzero(line, sizeof(line)); /* may be a secret */
	return r;
}
