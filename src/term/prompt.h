/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt.h - one question, one answer line, with a bound on everything.
 *
 * Reads byte by byte and never past the end of the line, so what follows on a
 * pipe is still there for the next question. A line ends at LF, CR or CRLF (an
 * Enter typed while the terminal was raw arrives as CR). On a terminal the mode
 * is set for the time of the question and restored on every way out (tty.h).
 */
#ifndef CLOCHE_TERM_PROMPT_H
#define CLOCHE_TERM_PROMPT_H

#include <signal.h>

#include "base/util.h"

enum { TERM_ANSWER_MAX = 1024 };

/* One per input; remembers a CR whose LF may still come. Initialise the fds, zero the rest. */
struct term_prompt {
	int in_fd;   /* terminal, pipe or file; borrowed */
	int out_fd;  /* where the question goes; -1: nowhere */
	int wake_fd; /* readable means stop asking (signalfd, pipe); -1: none */
	const volatile sig_atomic_t *stop; /* NULL, or set by a handler of the caller */
	bool after_cr;
};

/*
 * term_prompt_ask() - print @question and read one line.
 * @question:	made visible (newlines stay); may be ""
 * @echo:	false: what is typed is not shown (terminals only)
 * @timeout_ms:	for the whole answer; -1: none
 * @out:	the line without its end, NUL-terminated
 * @cap:	bytes of @out, 2 to TERM_ANSWER_MAX
 *
 * Return: length of the line (0: just Enter); -ENODATA at the end of input, also behind an
 * unfinished line: no answer; -EMSGSIZE for a line of @cap bytes or more (what was read is
 * gone, the rest is unread); -EINVAL for a NUL byte (/dev/zero); -ETIMEDOUT; -EINTR when
 * told to stop; -EBUSY while the terminal is raw; -errno.
 */
int term_prompt_ask(struct term_prompt *p, const char *question, bool echo, int timeout_ms,
                    char *out, size_t cap) MUST_CHECK;

#endif
