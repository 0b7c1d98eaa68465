/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop for the terminal, the sandbox and signals.
 *
 * Bytes to the guest are exact. Bytes from the guest go through the terminal
 * filter when they end on a terminal, and are exact when they end in a pipe or
 * file. What cannot be written now is kept, and the guest is granted no more:
 * a stopped pager stops the command, not this program.
 */
#include "cli/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/vis.h"
#include "review/changeset.h"
#include "term/filter.h"
#include "term/progress.h"
#include "term/screen.h"
#include "term/tty.h"

enum {
	CHANNEL = 1,
	STDIN_CHUNK = 32 * 1024,
	DRAIN_MS = 50,
	TERM_GRACE_MS = 10 * 1000,
	NOTES_MAX = 200, /* lines for the user; more would only bury them */
	RESET_WAIT_MS = 500,
	AGENT_ID = 1000, /* uid and gid of the agent in the guest */
};

/* One of our outputs. */
struct sink {
	int fd; /* to write to; a non-blocking twin of 1 or 2 where there is one */
	bool own_fd, can_poll, filtered, ended, broken;
	uint8_t stream;
	struct term_filter *filter;
	struct buf out; /* filtered bytes that wait */
	size_t owed;    /* guest bytes in it that were not granted again */
	struct loop_fd src;
};

struct session {
	const struct session_opts *o;
	struct session_result *res;
	struct loop *l;
	struct client c;
	struct term_progress progress;
	struct loop_timer tick, grace;
	struct loop_fd in;
	bool in_always, in_eof, in_waiting; /* a file: no readiness; at its end; no credit */
	bool pty, entered, started, exited, finishing, up, interrupted, failed;
	bool status_came; /* the worker said how the command ended: nothing more of it comes */
	bool shown;       /* something of the guest went to a terminal */
	bool lost;        /* the connection is over, the monitor is not */
	size_t file, file_at, files_out; /* next file and byte to send; answers that are due */
	unsigned notes;
	unsigned breaks; /* how often the user asked to stop while we finish */
	struct sink sink[2];
	struct term_filter filter;
	struct term_size size;
};

static void begin_finish(struct session *s);

static uint64_t now_ns(const struct session *s)
{
	return loop_now_ns(s->l);
}

/* ---- terminal ----------------------------------------------------------- */

static void bye_seq(const void *arg, struct wr *out)
{
	term_filter_reset_seq(arg, out);
}

static void back_seq(const void *arg, struct wr *out)
{
	term_filter_resume_seq(arg, out);
}

/* Output on a terminal that was never made raw (input from a pipe) leaves its modes, too. */
static void reset_screen(struct session *s, int fd)
{
	uint8_t room[TERM_FILTER_RESET_MAX];
	struct wr w = wr_of(room, sizeof(room));
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	term_filter_reset_seq(&s->filter, &w);
	if (poll(&p, 1, RESET_WAIT_MS) > 0) /* a stopped terminal must not keep us */
		(void)!write(fd, room, sizeof(room) - w.left);
}

static void leave_tty(struct session *s)
{
	int fd = -1;

	for (size_t i = 0; i < ARRAY_LEN(s->sink); i++) {
		struct sink *k = &s->sink[i];
		if (!k->filtered)
			continue;
		/* what still waits would set again what is reset here */
		buf_fini(&k->out);
		k->out = (struct buf){ 0 };
		k->broken = true;
		fd = k->fd;
	}
	if (s->entered)
		term_tty_leave(term_filter_may_answer(&s->filter) ? DRAIN_MS : 0);
	else if (s->shown && fd >= 0)
		reset_screen(s, fd);
	s->entered = s->shown = false;
}

static void on_tick(void *arg)
{
	struct session *s = arg;

	term_progress_tick(&s->progress);
	loop_timer_set(s->l, &s->tick, TERM_PROGRESS_TICK_MS, on_tick, s);
}

static void say(struct session *s, const char *fmt, ...) PRINTF_FMT(2, 3);
static void say(struct session *s, const char *fmt, ...)
{
	char line[1400];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (s->entered) /* raw: the line must bring its own return */
		(void)fprintf(stderr, "\r\ncloche: %s\r\n", line);
	else
		term_progress_line(&s->progress, "cloche: %s", line);
}

/* ---- output ------------------------------------------------------------- */

static int grant(struct session *s, struct sink *k)
{
	size_t n = k->owed;

	k->owed = 0;
	if (n == 0 || !s->c.connected)
		return 0;
	int r = mux_consumed(s->c.port.mux, CHANNEL, k->stream, n);
	port_flush(&s->c.port);
	return r;
}

static void sink_broken(struct session *s, struct sink *k)
{
	k->broken = true;
	buf_fini(&k->out);
	if (k->can_poll)
		loop_fd_del(s->l, &k->src);
	/* nobody reads any more: the writer in the guest gets its SIGPIPE */
	if (s->c.connected && !k->ended) {
		(void)!mux_send_reset(s->c.port.mux, CHANNEL, k->stream);
		port_flush(&s->c.port);
	}
	k->owed = 0;
}

static void sink_flush(struct session *s, struct sink *k)
{
	while (k->out.len && !k->broken) {
		ssize_t n = write(k->fd, k->out.p, k->out.len);
		if (n > 0) {
			buf_consume(&k->out, (size_t)n);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && k->can_poll) {
			loop_fd_set(s->l, &k->src, EPOLLOUT);
			return;
		}
		if (n < 0 && errno == EAGAIN) { /* somebody else made it non-blocking */
			if (fd_write_all(k->fd, k->out.p, k->out.len) == 0) {
				k->out.len = 0;
				continue;
			}
		}
		if (errno != EPIPE)
			say(s, "cannot write the command's output: %s", strerror(errno));
		sink_broken(s, k);
		return;
	}
	if (k->can_poll && !k->broken)
		loop_fd_set(s->l, &k->src, 0);
	if (grant(s, k) < 0)
		sink_broken(s, k);
}

static void on_sink(void *arg, uint32_t events)
{
	struct session *s = arg;

	for (size_t i = 0; i < ARRAY_LEN(s->sink); i++) {
		struct sink *k = &s->sink[i];
		if (!k->can_poll || k->broken)
			continue;
		if (k->out.len)
			sink_flush(s, k);
		else if (events & EPOLLERR)
			sink_broken(s, k); /* the reader left while nothing was to be said */
	}
}

static int sink_take(struct session *s, struct sink *k, struct span bytes)
{
	k->owed += bytes.len;
	if (k->broken) {
		k->owed = 0;
		return mux_consumed(s->c.port.mux, CHANNEL, k->stream, bytes.len);
	}
	if (!k->filtered) {
		int r = buf_put(&k->out, bytes.p, bytes.len);
		if (r < 0)
			return r;
	}
	s->shown = s->shown || k->filtered;
	while (k->filtered && bytes.len) {
		int r = buf_reserve(&k->out, TERM_FILTER_ROOM_MIN + bytes.len);
		if (r < 0)
			return r;
		struct wr w = wr_of(k->out.p + k->out.len, k->out.cap - k->out.len);
		size_t room = w.left;
		size_t n = term_filter_run(k->filter, bytes, &w);
		k->out.len += room - w.left;
		bytes.p += n;
		bytes.len -= n;
	}
	sink_flush(s, k);
	return 0;
}

static void sink_init(struct session *s, struct sink *k, int std_fd, uint8_t stream)
{
	char path[32];
	struct stat st;

	*k = (struct sink){ .fd = std_fd, .stream = stream, .src = { .fd = -1 } };
	k->filtered = term_is_tty(std_fd);
	k->filter = &s->filter;
	/* a description of our own: the shell's must not become non-blocking */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", std_fd);
	if (fstat(std_fd, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode))) {
		int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
		if (fd >= 0) {
			k->fd = fd;
			k->own_fd = true;
		}
	}
	/* watched only while something waits; a plain file refuses and never blocks long */
	k->can_poll = k->own_fd && loop_fd_add(s->l, &k->src, k->fd, 0, on_sink, s) == 0;
	if (k->own_fd && !k->can_poll) {
		auto_close_(&k->fd);
		k->fd = std_fd;
		k->own_fd = false;
	}
}

/* ---- input -------------------------------------------------------------- */

static void stop_input(struct session *s)
{
	if (!s->in_always)
		loop_fd_del(s->l, &s->in);
	s->in_eof = true;
}

static void read_input(struct session *s)
{
	uint8_t b[STDIN_CHUNK];

	do {
		if (s->in_eof || !s->started || s->exited || !s->c.connected)
			return;
		size_t room = mux_credit(s->c.port.mux, CHANNEL, FRAME_IN);
		if (room == 0) {
			s->in_waiting = true; /* on_writable() goes on */
			if (!s->in_always)
				loop_fd_set(s->l, &s->in, 0);
			return;
		}
		ssize_t n = read(0, b, MIN(room, sizeof(b)));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			return;
		if (n <= 0) {
			/* a terminal that is gone reads as EIO: the end of the input, too */
			stop_input(s);
			(void)!mux_send_eof(s->c.port.mux, CHANNEL, FRAME_IN);
			port_flush(&s->c.port);
			return;
		}
		if (mux_send(s->c.port.mux, CHANNEL, FRAME_IN, b, (size_t)n) < 0) {
			stop_input(s); /* the command reads no more */
			return;
		}
		port_flush(&s->c.port);
	} while (s->in_always);
}

static void on_stdin(void *arg, uint32_t events UNUSED)
{
	read_input(arg);
}

static void start_input(struct session *s)
{
	if (fcntl(0, F_GETFD) < 0) { /* started with stdin closed */
		s->in_always = s->in_eof = true;
		(void)!mux_send_eof(s->c.port.mux, CHANNEL, FRAME_IN);
		port_flush(&s->c.port);
		return;
	}
	int r = loop_fd_add(s->l, &s->in, 0, EPOLLIN, on_stdin, s);
	if (r < 0) { /* EPERM: a file or /dev/null is always ready */
		s->in_always = true;
		read_input(s);
	}
}

/* ---- what the sandbox says ---------------------------------------------- */

static void send_resize(struct session *s, uint16_t rows, uint16_t cols)
{
	struct ctl m = { .type = CTL_RESIZE, .resize = { CHANNEL, rows, cols } };

	(void)!client_send(&s->c, &m); /* gone: over() comes */
}

static void start_command(struct session *s)
{
	struct ctl m = { .type = CTL_EXEC };
	struct err e = { 0 };

	int r = client_send_words(&s->c, false, s->o->argv, s->o->n_argv, &e);
	if (r == 0)
		r = client_send_words(&s->c, true, s->o->env, s->o->n_env, &e);
	m.exec.channel = CHANNEL;
	m.exec.flags =
		(s->pty ? CTL_EXEC_PTY : 0) | (s->o->root ? CTL_EXEC_ROOT : 0) | CTL_EXEC_LOGIN;
	m.exec.rows = s->size.rows;
	m.exec.cols = s->size.cols;
	m.exec.cwd = span_str(s->o->cwd);
	if (r == 0)
		r = mux_open(s->c.port.mux, CHANNEL);
	if (r == 0)
		r = client_send(&s->c, &m);
	if (r < 0) {
		if (!e.code)
			err_code(&e, r, "cannot start the command");
		s->res->err = e;
		s->failed = true;
		begin_finish(s);
	}
}

/*
 * Files for the guest, in pieces of which a few may be on their way at once: the
 * worker keeps no queue. One that the guest cannot take is said, and the run goes on.
 */
static int send_files(struct session *s)
{
	while (s->file < s->o->n_files && s->files_out < CTL_FILES_MAX) {
		const struct session_file *f = &s->o->files[s->file];
		size_t n = MIN(f->bytes.len - s->file_at, (size_t)MSG_FILE_CHUNK_MAX);
		struct ctl m = { .type = CTL_FILE,
			         .file = { .path = span_str(f->path),
			                   .mode = f->agent ? 0600 : 0644,
			                   .uid = f->agent ? AGENT_ID : 0,
			                   .gid = f->agent ? AGENT_ID : 0,
			                   .bytes = span_of(f->bytes.p + s->file_at, n) } };
		m.file.flags = s->file_at  ? MSG_FILE_APPEND
		               : f->extend ? MSG_FILE_EXTEND
		               : f->keep   ? MSG_FILE_KEEP
		                           : 0;
		int r = client_send(&s->c, &m);
		if (r < 0)
			return r;
		s->files_out++;
		s->file_at += n;
		if (s->file_at == f->bytes.len) {
			s->file++;
			s->file_at = 0;
		}
	}
	return 0;
}

static bool files_done(const struct session *s)
{
	return s->file == s->o->n_files && s->files_out == 0;
}

/* Text of the worker, which made the guest's part of it visible before: no doubled backslashes. */
static const char *seen(char *dst, size_t cap, struct span text)
{
	AUTO_BUF struct buf b = { 0 };

	if (vis_put(&b, text, VIS_KEEP_BACKSLASH) < 0)
		b.len = 0;
	(void)snprintf(dst, cap, "%.*s", (int)MIN(b.len, cap - 1), (const char *)b.p);
	return dst;
}

static void on_started(struct session *s, const struct ctl *m)
{
	loop_timer_del(s->l, &s->tick);
	term_progress_end(&s->progress);
	if (m->started.code < 0) {
		err_set(&s->res->err, m->started.code, "cannot start the command: %.*s",
		        (int)m->started.text.len, (const char *)m->started.text.p);
		s->failed = true;
		begin_finish(s);
		return;
	}
	if (s->pty) {
		struct term_tty_spec t = { .in_fd = 0,
			                   .out_fd = 1,
			                   .mode = TERM_TTY_RAW,
			                   .bye = bye_seq,
			                   .back = back_seq,
			                   .arg = &s->filter };
		if (term_tty_enter(&t, &s->res->err) < 0) {
			s->failed = true;
			begin_finish(s);
			return;
		}
		s->entered = true;
	}
	s->started = true;
	start_input(s);
}

static void begin_finish(struct session *s)
{
	struct ctl m = { .type = CTL_FINISH };

	if (s->finishing)
		return;
	s->finishing = true;
	s->exited = true;
	stop_input(s);
	leave_tty(s);
	m.finish.exit_status = s->res->exit_status;
	(void)!client_send(&s->c, &m); /* gone: over() comes */
	if (!s->o->quiet) {
		term_progress_phase(&s->progress, "taking out the changes");
		loop_timer_set(s->l, &s->tick, TERM_PROGRESS_TICK_MS, on_tick, s);
	}
}

/* The status came; the last bytes of output may still wait to be written. */
static void maybe_finish(struct session *s)
{
	if (!s->exited || s->finishing || s->failed)
		return; /* a failed sandbox ends by itself */
	for (size_t i = 0; i < ARRAY_LEN(s->sink); i++) {
		if (s->sink[i].out.len && !s->sink[i].broken && s->sink[i].can_poll) {
			/* ask again shortly; a reader that never comes back is ended by a signal */
			return;
		}
	}
	begin_finish(s);
}

static void on_phase(struct session *s, const struct ctl *m)
{
	if (s->res->phase_ns[m->phase.phase] != 0)
		return; /* said once */
	s->res->phase_ns[m->phase.phase] = m->phase.at_ns ? m->phase.at_ns : 1;
	if (m->phase.phase == CTL_PHASE_BOOTED) {
		s->res->guest_kernel_ns = m->phase.extra;
		s->res->guest_init_ns = m->phase.extra2;
	}
	if (s->started || s->exited)
		return;
	if (m->phase.phase == CTL_PHASE_BOOTED && !s->o->quiet)
		term_progress_phase(&s->progress, "mounting the project");
	if (m->phase.phase == CTL_PHASE_SCANNED && s->o->banner) {
		term_progress_stop(&s->progress);
		s->o->banner(s->o->arg);
	}
}

static void maybe_start(struct session *s)
{
	if (!s->interrupted && !s->failed && !s->finishing)
		start_command(s);
}

static int on_message(void *arg, const struct ctl *m)
{
	struct session *s = arg;
	char text[1400];

	switch (m->type) {
	case CTL_PHASE:
		on_phase(s, m);
		return 0;
	case CTL_UP:
		if (s->up)
			return -EPROTO;
		s->up = true;
		if (s->o->up)
			s->o->up(s->o->arg);
		if (send_files(s) < 0)
			return 0; /* gone: over() comes */
		if (files_done(s))
			maybe_start(s);
		return 0;
	case CTL_FILED:
		if (s->files_out == 0)
			return -EPROTO;
		s->files_out--;
		if (m->filed.code < 0)
			say(s, "the guest did not take a file: %s",
			    seen(text, sizeof(text), m->filed.text));
		if (send_files(s) == 0 && files_done(s))
			maybe_start(s);
		return 0;
	case CTL_STARTED:
		if (!s->up || s->started || m->started.channel != CHANNEL)
			return -EPROTO;
		if (!s->exited && !s->failed && !s->finishing) /* else given up meanwhile */
			on_started(s, m);
		return 0;
	case CTL_EXITED:
		if (m->exited.channel != CHANNEL || s->status_came)
			return -EPROTO;
		s->status_came = true;
		if (s->exited)
			return 0; /* given up meanwhile */
		if (!s->started)
			return -EPROTO;
		s->exited = true;
		s->res->exit_status = m->exited.by_signal ? 128 + m->exited.code : m->exited.code;
		s->res->signal = m->exited.by_signal ? m->exited.code : 0;
		s->res->oom = m->exited.oom;
		stop_input(s);
		maybe_finish(s);
		return 0;
	case CTL_NOTE:
		if (s->notes < NOTES_MAX)
			say(s, "%s", seen(text, sizeof(text), m->note.text));
		else if (s->notes == NOTES_MAX)
			say(s, "more notes of the sandbox are not shown");
		s->notes = MIN(s->notes + 1, NOTES_MAX + 1u);
		return 0;
	case CTL_STAGED:
		return 0; /* the monitor says it again, and names the set: it is believed, not this */
	case CTL_FAILED:
		if (s->failed)
			return 0;
		s->failed = true;
		if (s->res->err.code == 0) {
			/* an err is made visible where it is printed */
			err_set(&s->res->err, m->failed.code, "%.*s", (int)m->failed.text.len,
			        (const char *)m->failed.text.p);
			if (m->failed.hint.len)
				err_hint(&s->res->err, "%.*s", (int)m->failed.hint.len,
				         (const char *)m->failed.hint.p);
		}
		s->exited = true;
		stop_input(s);
		leave_tty(s);
		return 0;
	default:
		return -EPROTO;
	}
}

static int on_output(void *arg, uint16_t ch, uint8_t stream, struct span bytes)
{
	struct session *s = arg;

	if (ch != CHANNEL || stream == FRAME_IN || !s->up || s->status_came)
		return -EPROTO;
	if (s->exited || s->finishing || s->failed) /* given up: the screen is the user's again */
		return mux_consumed(s->c.port.mux, ch, stream, bytes.len);
	if (!s->started)
		return -EPROTO;
	int r = sink_take(s, &s->sink[stream == FRAME_ERR], bytes);
	port_flush(&s->c.port);
	return r;
}

static int on_output_end(void *arg, uint16_t ch, uint8_t stream)
{
	struct session *s = arg;

	if (ch == CHANNEL && stream != FRAME_IN)
		s->sink[stream == FRAME_ERR].ended = true;
	return 0;
}

static void on_writable(void *arg, uint16_t ch, uint8_t stream)
{
	struct session *s = arg;

	if (ch != CHANNEL || stream != FRAME_IN || !s->in_waiting || s->in_eof)
		return;
	s->in_waiting = false;
	if (s->in_always)
		read_input(s);
	else
		loop_fd_set(s->l, &s->in, EPOLLIN);
}

/* Nobody talks to us, but the sandbox may live on: the terminal is the user's at once. */
static void on_lost(void *arg, int code)
{
	struct session *s = arg;

	s->lost = true;
	s->exited = s->finishing = true;
	stop_input(s);
	leave_tty(s);
	if (code == 0)
		return; /* the usual end: the monitor's follows */
	if (!s->res->err.code)
		err_set(&s->res->err, code, "the sandbox's worker broke its protocol");
	s->failed = true;
	client_interrupt(&s->c);
}

static void on_over(void *arg)
{
	struct session *s = arg;
	struct link_msg *last = &s->c.last;

	leave_tty(s);
	if ((last->type == LINK_STAGED && changeset_id_ok(last->id)) ||
	    last->type == LINK_UNCHANGED) {
		s->res->staged = true;
		if (last->type == LINK_STAGED) {
			s->res->records = last->records;
			(void)snprintf(s->res->set_id, sizeof(s->res->set_id), "%.*s",
			               (int)sizeof(s->res->set_id) - 1, last->id);
		}
	} else {
		s->failed = true;
		/* the monitor knows causes that the worker does not */
		if (s->res->err.code == 0 || (last->code && last->text[0])) {
			err_set(&s->res->err, last->code < 0 ? last->code : -EIO, "%s",
			        last->text[0] ? last->text : "the sandbox ended unexpectedly");
			if (last->hint[0])
				err_hint(&s->res->err, "%s", last->hint);
		}
		s->res->recoverable = last->pad != 0;
	}
	loop_stop(s->l, 0);
}

/* ---- signals ------------------------------------------------------------ */

static void forward(struct session *s, int signo)
{
	struct ctl m = { .type = CTL_SIGNAL, .signal = { CHANNEL, (uint8_t)signo } };

	(void)!client_send(&s->c, &m); /* gone: over() comes */
}

static void on_grace(void *arg)
{
	struct session *s = arg;

	if (!s->exited) {
		s->res->exit_status = 128 + SIGTERM;
		begin_finish(s);
	}
}

static void on_signal(void *arg, int signo)
{
	struct session *s = arg;

	switch (signo) {
	case SIGWINCH:
		if (s->started && s->pty) {
			s->size = term_tty_size(0);
			send_resize(s, s->size.rows, s->size.cols);
		}
		return;
	case SIGTSTP:
		if (s->entered) {
			term_tty_suspend();
			s->size = term_tty_size(0);
			if (s->size.rows > 1)
				send_resize(s, (uint16_t)(s->size.rows - 1), s->size.cols);
			send_resize(s, s->size.rows, s->size.cols);
		} else {
			term_progress_stop(&s->progress);
			(void)raise(SIGSTOP);
		}
		return;
	case SIGCONT:
		term_tty_continue();
		return;
	default:
		break;
	}
	if (s->finishing || s->failed) {
		if (++s->breaks == 1) {
			say(s, "%s; once more leaves that to the background",
			    s->failed || s->lost ? "the sandbox is being ended"
			                         : "taking out the changes");
			return;
		}
		if (s->lost)
			client_interrupt(&s->c);
		s->res->detached = true;
		loop_stop(s->l, 0);
		return;
	}
	if (!s->started) { /* nothing ran: nothing can be lost */
		s->interrupted = true;
		s->res->exit_status = 128 + signo;
		if (s->breaks++ == 0) {
			client_interrupt(&s->c);
		} else if (s->breaks == 2) {
			say(s, "the sandbox is being ended; once more leaves that to the "
			       "background");
		} else {
			client_interrupt(&s->c);
			s->res->detached = true;
			loop_stop(s->l, 0);
		}
		return;
	}
	forward(s, signo);
	if (signo != SIGINT && signo != SIGQUIT && s->grace.when_ns == 0)
		loop_timer_set(s->l, &s->grace, TERM_GRACE_MS, on_grace, s);
}

/* ---- run ---------------------------------------------------------------- */

static int start(struct session *s)
{
	static const int signos[] = { SIGINT,   SIGTERM, SIGHUP,  SIGQUIT,
		                      SIGWINCH, SIGTSTP, SIGCONT, -1 };
	int r;

	s->l = loop_new();
	if (!s->l)
		return err_set(&s->res->err, -EMFILE, "cannot create an event loop");
	(void)signal(SIGPIPE, SIG_IGN);
	r = loop_signals(s->l, signos, on_signal, s);
	if (r < 0)
		return err_code(&s->res->err, r, "cannot watch signals");
	s->in.fd = -1;
	s->pty = term_is_tty(0) && term_is_tty(1);
	s->size = term_tty_size(0);
	sink_init(s, &s->sink[0], 1, FRAME_OUT);
	sink_init(s, &s->sink[1], 2, FRAME_ERR);
	term_progress_init(&s->progress, s->o->quiet ? -1 : 2, NULL, NULL);
	if (!s->o->quiet) {
		term_progress_phase(&s->progress, "starting the microVM");
		loop_timer_set(s->l, &s->tick, TERM_PROGRESS_TICK_MS, on_tick, s);
	}
	s->c.message = on_message;
	s->c.output = on_output;
	s->c.eof = on_output_end;
	s->c.writable = on_writable;
	s->c.lost = on_lost;
	s->c.over = on_over;
	s->c.arg = s;
	return client_start(&s->c, s->l, &s->o->spec, &s->res->err);
}

int session_run(const struct session_opts *o, struct session_result *out)
{
	static struct session s; /* one a process, and large */

	s = (struct session){ .o = o, .res = out };
	*out = (struct session_result){ .exit_status = -1 };
	int r = start(&s);
	while (r == 0 && !s.res->detached) {
		r = loop_once(s.l, s.exited && !s.finishing ? 20 : -1);
		maybe_finish(&s);
		if (s.c.ended && !s.c.connected)
			break;
	}
	leave_tty(&s);
	term_progress_end(&s.progress);
	for (size_t i = 0; i < ARRAY_LEN(s.sink); i++) {
		if (s.sink[i].own_fd)
			auto_close_(&s.sink[i].fd);
		buf_fini(&s.sink[i].out);
	}
	if (r == 0 && now_ns(&s) && s.failed && out->err.code == 0)
		err_set(&out->err, -EIO, "the sandbox ended unexpectedly");
	client_fini(&s.c);
	loop_free(s.l);
	if (r < 0 && out->err.code == 0)
		err_code(&out->err, r, "event loop");
	return out->err.code;
}
