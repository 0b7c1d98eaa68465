/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands with a terminal or three pipes.
 *
 * Never more is read from a process than the host has granted, so a slow host
 * stops the process and nothing else. The end goes: command exits, its output
 * is drained, the streams end, MSG_EXITED. Somebody else may hold the output (a
 * daemon left behind): what the command itself wrote is in the pipe when it has
 * exited, so after that much has been read, silence or a short while ends it.
 *
 * On a terminal the session's leader is a process of ours: when a leader dies
 * the kernel hangs the terminal up and throws away what nobody has read yet. So
 * it lives until everything has been read. The command is not its child but
 * ours, by way of a parent that exits at once: as in any login its process group
 * then has no parent within the session, and a stop character that nobody could
 * undo has no effect on it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "guest/guest.h"

enum { READ_BYTES = 64 * 1024, PTY_TAIL = 128 * 1024, READS_A_TURN = 16 };

/* One way out of the command. */
struct outlet {
	struct session *s;
	uint8_t stream;
	int fd; /* -1: ended */
	struct loop_fd src;
	bool paused; /* no credit */
	size_t tail; /* bytes of the command that were unread when it exited */
	size_t got;  /* read since it exited */
};

struct session {
	struct guest *g;
	uint16_t channel;
	uint32_t seq;
	bool pty;
	bool running;  /* MSG_DONE was sent: MSG_EXITED follows */
	pid_t command; /* 0: not known yet */
	pid_t leader;  /* pty: of its session; 0 once it is gone */
	bool exited;
	int status;
	uint64_t exit_ns;
	int report; /* why it did not start; its end: it runs */
	struct loop_fd report_src;
	int name; /* pty: the command's own process number, said by itself */
	struct loop_fd name_src;
	int slave;            /* pty: held open, so that the output ends with the command */
	struct outlet out[2]; /* standard output or the terminal; standard error */
	int in;               /* pty: a duplicate of the terminal's end */
	struct loop_fd in_src;
	struct buf queue; /* for the command, at most MUX_CREDIT_MAX */
	bool in_eof;
	uint8_t last_in;
	struct loop_timer timer;
	int cgroup;
	char cgroup_name[24];
};

static uint8_t chunk[READ_BYTES];

static void close_in(struct session *s)
{
	loop_fd_del(s->g->loop, &s->in_src);
	auto_close_(&s->in);
	s->in = -1;
	buf_fini(&s->queue);
}

static void close_out(struct outlet *o)
{
	loop_fd_del(o->s->g->loop, &o->src);
	auto_close_(&o->fd);
	o->fd = -1;
	o->paused = false;
	/* -EPIPE: the host wants no more of it */
	int r = mux_send_eof(o->s->g->mux, o->s->channel, o->stream);
	if (r < 0 && r != -EPIPE)
		o->s->g->off = true;
}

static bool oom_hit(const struct session *s)
{
	char text[512];
	const char *p;

	if (s->cgroup < 0 || file_get_text(s->cgroup, "memory.events", text, sizeof(text)) <= 0)
		return false;
	p = strstr(text, "oom_kill ");
	return p && strtoul(p + strlen("oom_kill "), NULL, 10) > 0;
}

static void session_free(struct session *s)
{
	struct guest *g = s->g;

	close_in(s);
	for (size_t i = 0; i < ARRAY_LEN(s->out); i++) {
		loop_fd_del(g->loop, &s->out[i].src);
		auto_close_(&s->out[i].fd);
	}
	loop_fd_del(g->loop, &s->report_src);
	auto_close_(&s->report);
	loop_fd_del(g->loop, &s->name_src);
	auto_close_(&s->name);
	auto_close_(&s->slave);
	loop_timer_del(g->loop, &s->timer);
	if (s->cgroup >= 0) {
		(void)close(s->cgroup);
		/* EBUSY: somebody lives on in it */
		(void)unlinkat(g->cgroup, s->cgroup_name, AT_REMOVEDIR);
	}
	g->sessions[s->channel] = NULL;
	free(s);
}

static void session_finish(struct session *s)
{
	struct guest *g = s->g;
	struct msg m = { .type = MSG_EXITED };
	bool sig = WIFSIGNALED(s->status);

	m.exited.channel = s->channel;
	m.exited.by_signal = sig;
	m.exited.code = (uint8_t)(sig ? WTERMSIG(s->status) : WEXITSTATUS(s->status));
	m.exited.oom = oom_hit(s);
	for (size_t i = 0; i < ARRAY_LEN(s->out); i++) {
		if (s->out[i].fd >= 0)
			close_out(&s->out[i]);
	}
	if (s->leader)
		(void)kill(s->leader, SIGKILL); /* hangs up on whoever is left */
	mux_close(g->mux, s->channel);
	guest_send(g, &m);
	session_free(s);
}

static void arm_quiet(struct session *s);

/* Is the command over, and everything it wrote on its way? */
static bool session_over(struct session *s)
{
	return s->exited && s->running && s->out[0].fd < 0 && s->out[1].fd < 0;
}

static void on_quiet(void *arg)
{
	struct session *s = arg;
	struct outlet *paused = NULL;

	for (size_t i = 0; i < ARRAY_LEN(s->out); i++) {
		if (s->out[i].fd >= 0 && s->out[i].paused)
			paused = &s->out[i];
	}
	if (paused || !s->running)
		arm_quiet(s); /* it is the host that is slow */
	else
		session_finish(s);
}

static void arm_quiet(struct session *s)
{
	loop_timer_set(s->g->loop, &s->timer, GUEST_QUIET_MS, on_quiet, s);
}

static void on_out(void *arg, uint32_t events);

static int outlet_watch(struct outlet *o)
{
	if (o->src.fn)
		return 0;
	return loop_fd_add(o->s->g->loop, &o->src, o->fd, EPOLLIN, on_out, o);
}

/* Read what there is, within the credit. Return: false once the session is gone. */
static bool outlet_pump(struct outlet *o)
{
	struct session *s = o->s;
	struct guest *g = s->g;

	for (int turn = 0; turn < READS_A_TURN && o->fd >= 0; turn++) {
		size_t credit = mux_credit(g->mux, s->channel, o->stream);
		if (credit == 0) {
			/* not watched at all: a hang-up would be reported again and again */
			loop_fd_del(g->loop, &o->src);
			o->paused = true;
			return true;
		}
		ssize_t n = read(o->fd, chunk, MIN(credit, sizeof(chunk)));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) { /* EIO: the last one left the terminal */
			close_out(o);
			break;
		}
		if (mux_send(g->mux, s->channel, o->stream, chunk, (size_t)n) < 0) {
			close_out(o);
			break;
		}
		if (s->exited) {
			o->got += (size_t)n;
			arm_quiet(s);
			if (o->got > o->tail &&
			    guest_now_ns() - s->exit_ns > GUEST_TAIL_MS * 1000000ull) {
				close_out(o);
				break;
			}
		}
	}
	if (session_over(s)) {
		session_finish(s);
		return false;
	}
	if (o->fd >= 0 && outlet_watch(o) < 0)
		close_out(o);
	return true;
}

static void on_out(void *arg, uint32_t events UNUSED)
{
	(void)outlet_pump(arg);
}

static void session_exited(struct session *s, int status)
{
	if (s->exited)
		return;
	s->exited = true;
	s->status = status;
	s->exit_ns = guest_now_ns();
	close_in(s);
	auto_close_(&s->slave);
	s->slave = -1;
	for (size_t i = 0; i < ARRAY_LEN(s->out); i++) {
		struct outlet *o = &s->out[i];
		int n = 0;
		o->tail = s->pty ? PTY_TAIL : 0;
		if (o->fd >= 0 && !s->pty && ioctl(o->fd, FIONREAD, &n) == 0)
			o->tail = (size_t)n;
	}
	arm_quiet(s);
	for (size_t i = 0; i < ARRAY_LEN(s->out); i++) {
		if (s->out[i].fd >= 0 && !outlet_pump(&s->out[i]))
			return;
	}
	if (session_over(s))
		session_finish(s);
}

/* The command on a terminal says its number before it does anything else. */
static void learn_name(struct session *s)
{
	pid_t pid = 0;
	ssize_t n = read(s->name, &pid, sizeof(pid));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	loop_fd_del(s->g->loop, &s->name_src);
	auto_close_(&s->name);
	s->name = -1;
	if (n == (ssize_t)sizeof(pid))
		s->command = pid;
	else
		session_exited(s, SIGKILL); /* as if: it never came to be */
}

static void on_name(void *arg, uint32_t events UNUSED)
{
	learn_name(arg);
}

bool session_reaped(struct guest *g, pid_t pid, int status)
{
	for (unsigned ch = 1; ch < FRAME_CHANNELS_MAX; ch++) {
		struct session *s = g->sessions[ch];
		if (s && s->name >= 0)
			learn_name(s);
		s = g->sessions[ch];
		if (!s)
			continue;
		if (s->leader == pid) {
			s->leader = 0;
			return true;
		}
		if (s->command == pid && !s->exited) {
			session_exited(s, status);
			return true;
		}
	}
	return false;
}

/* Closed without a word: the program runs. */
static void on_report(void *arg, uint32_t events UNUSED)
{
	struct session *s = arg;
	struct guest *g = s->g;
	struct launch_fail f;
	ssize_t n = read(s->report, &f, sizeof(f));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	loop_fd_del(g->loop, &s->report_src);
	auto_close_(&s->report);
	s->report = -1;
	if (n == (ssize_t)sizeof(f) && f.code < 0) {
		struct err err;
		f.what[sizeof(f.what) - 1] = '\0';
		int r = err_code(&err, f.code, "%s", f.what);
		guest_done(g, s->seq, r, &err);
		if (s->leader)
			(void)kill(s->leader, SIGKILL);
		mux_close(g->mux, s->channel);
		session_free(s);
		return;
	}
	s->running = true;
	guest_done(g, s->seq, 0, NULL);
	if (session_over(s))
		session_finish(s);
}

/* ---- towards the command ---- */

static void on_in(void *arg, uint32_t events);

/* The terminal's way to say end: its own character, twice when a line is open. */
static void send_veof(struct session *s)
{
	struct termios t;

	if (tcgetattr(s->in, &t) < 0 || !(t.c_lflag & ICANON))
		return;
	uint8_t b[2] = { t.c_cc[VEOF], t.c_cc[VEOF] };
	(void)!write(s->in, b, s->last_in == '\n' || s->last_in == 0 ? 1 : 2);
}

static int in_flush(struct session *s)
{
	struct guest *g = s->g;

	while (s->in >= 0 && s->queue.len > 0) {
		ssize_t n = write(s->in, s->queue.p, s->queue.len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (!s->in_src.fn &&
			    loop_fd_add(g->loop, &s->in_src, s->in, EPOLLOUT, on_in, s) < 0)
				close_in(s);
			return 0;
		}
		if (n <= 0) { /* nobody reads it any more */
			close_in(s);
			return mux_send_reset(g->mux, s->channel, FRAME_IN);
		}
		s->last_in = s->queue.p[n - 1];
		buf_consume(&s->queue, (size_t)n);
		int r = mux_consumed(g->mux, s->channel, FRAME_IN, (size_t)n);
		if (r < 0)
			return r;
	}
	loop_fd_del(g->loop, &s->in_src);
	if (s->in >= 0 && s->in_eof) {
		if (s->pty)
			send_veof(s);
		close_in(s);
	}
	return 0;
}

static void on_in(void *arg, uint32_t events)
{
	struct session *s = arg;

	if (events & EPOLLERR && !s->pty) {
		close_in(s);
		if (mux_send_reset(s->g->mux, s->channel, FRAME_IN) < 0)
			s->g->off = true;
		return;
	}
	if (in_flush(s) < 0)
		s->g->off = true;
}

int session_data(struct guest *g, uint16_t ch, struct span bytes)
{
	struct session *s = g->sessions[ch];

	if (!s || s->in < 0)
		return 0; /* late; the credit is not given back, so it has an end */
	int r = buf_put(&s->queue, bytes.p, bytes.len);
	return r < 0 ? r : in_flush(s);
}

int session_eof(struct guest *g, uint16_t ch)
{
	struct session *s = g->sessions[ch];

	if (!s)
		return 0;
	s->in_eof = true;
	return in_flush(s);
}

int session_reset(struct guest *g, uint16_t ch, uint8_t stream)
{
	struct session *s = g->sessions[ch];

	if (!s)
		return 0;
	if (stream == FRAME_IN) {
		buf_fini(&s->queue);
		s->in_eof = true;
		return in_flush(s);
	}
	struct outlet *o = &s->out[stream == FRAME_ERR];
	if (o->fd >= 0)
		close_out(o); /* SIGPIPE, or a hang-up, for the command */
	if (s->pty && stream == FRAME_OUT)
		close_in(s);
	if (session_over(s))
		session_finish(s);
	return 0;
}

int session_writable(struct guest *g, uint16_t ch, uint8_t stream)
{
	struct session *s = g->sessions[ch];

	if (!s || stream == FRAME_IN)
		return 0;
	struct outlet *o = &s->out[stream == FRAME_ERR];
	if (o->fd >= 0 && o->paused) {
		o->paused = false;
		(void)outlet_pump(o);
	}
	return 0;
}

/* ---- the host's requests ---- */

int session_resize(struct guest *g, const struct msg *m, struct err *err)
{
	struct session *s = g->sessions[m->resize.channel];
	struct winsize w = { .ws_row = m->resize.rows, .ws_col = m->resize.cols };

	if (!s || !s->pty || s->out[0].fd < 0)
		return err_set(err, -ESRCH, "channel %u has no terminal", m->resize.channel);
	if (ioctl(s->out[0].fd, TIOCSWINSZ, &w) < 0)
		return err_errno(err, "cannot resize the terminal");
	return 0;
}

int session_signal(struct guest *g, const struct msg *m, struct err *err)
{
	struct session *s = g->sessions[m->signal.channel];
	pid_t group = 0;

	if (s && !s->exited && !s->pty)
		group = s->command;
	else if (s && !s->exited && s->out[0].fd >= 0)
		(void)ioctl(s->out[0].fd, TIOCGPGRP, &group);
	if (group <= 1)
		return err_set(err, -ESRCH, "channel %u runs nothing", m->signal.channel);
	if (kill(-group, m->signal.signo) < 0)
		return err_errno(err, "cannot signal");
	return 0;
}

static NORETURN void fail_fork(const struct launch *l)
{
	struct launch_fail f = { .code = -errno, .what = "cannot start a process" };

	(void)!write(l->report, &f, sizeof(f));
	_exit(126);
}

/* The command, with the terminal in its hands. */
static NORETURN void run_on_terminal(const struct launch *l, int slave, int name)
{
	pid_t pid = getpid();

	(void)!write(name, &pid, sizeof(pid));
	(void)setpgid(0, 0);
	(void)tcsetpgrp(slave, pid); /* SIGTTOU is ignored still */
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(slave, fd);
	launch_child(l);
}

/* The leader of a terminal's session. */
static NORETURN void lead(const struct launch *l, int slave, int name)
{
	/* not HUP: with the terminal gone the leader's end is what hangs up on the command */
	static const int ignored[] = { SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU };

	if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		fail_fork(l);
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
	pid_t middle = fork();
	if (middle < 0)
		fail_fork(l);
	if (middle == 0) {
		pid_t pid = fork();
		if (pid < 0)
			fail_fork(l);
		if (pid == 0)
			run_on_terminal(l, slave, name);
		_exit(0);
	}
	(void)syscall(SYS_close_range, 0, ~0u, 0);
	(void)waitpid(middle, NULL, 0);
	for (;;)
		(void)pause();
}

static int open_pty(const struct guest *g, const struct msg *m, int *out_master, int *out_slave)
{
	AUTO_CLOSE int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	struct winsize w = { .ws_row = m->exec.rows, .ws_col = m->exec.cols };
	int unlock = 0;

	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return -errno;
	(void)ioctl(master, TIOCSWINSZ, &w);
	AUTO_CLOSE int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	uid_t uid = m->exec.flags & MSG_EXEC_ROOT ? 0 : user_uid(g, m->exec.uid);
	if (fchown(slave, uid, 5) < 0)
		return -errno;
	*out_master = take_fd(&master);
	*out_slave = take_fd(&slave);
	return 0;
}

struct child_fds {
	int in, out, err; /* the command's ends */
};

static int open_ends(struct session *s, const struct msg *m, struct child_fds *c)
{
	int p[2], r;

	if (s->pty) {
		r = open_pty(s->g, m, &s->out[0].fd, &s->slave);
		if (r < 0)
			return r;
		s->in = fcntl(s->out[0].fd, F_DUPFD_CLOEXEC, 0);
		return s->in < 0 ? -errno : 0;
	}
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	c->in = p[0];
	s->in = p[1];
	for (size_t i = 0; i < ARRAY_LEN(s->out); i++) {
		if (pipe2(p, O_CLOEXEC) < 0)
			return -errno;
		s->out[i].fd = p[0];
		*(i ? &c->err : &c->out) = p[1];
		r = fd_set_nonblock(p[0], true);
		if (r < 0)
			return r;
	}
	return fd_set_nonblock(s->in, true);
}

static void open_cgroup(struct session *s)
{
	struct guest *g = s->g;

	if (g->cgroup < 0)
		return;
	(void)snprintf(s->cgroup_name, sizeof(s->cgroup_name), "s%u", ++g->session_count);
	if (mkdirat(g->cgroup, s->cgroup_name, 0700) == 0)
		s->cgroup = openat(g->cgroup, s->cgroup_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static NORETURN void child(const struct session *s, const struct launch *l,
                           const struct child_fds *c, int name)
{
	if (s->pty)
		lead(l, s->slave, name);
	(void)setsid();
	/* none of them is 0 to 2: those are taken since the start */
	(void)dup2(c->in, 0);
	(void)dup2(c->out, 1);
	(void)dup2(c->err, 2);
	launch_child(l);
}

static int start(struct session *s, const struct msg *m, struct child_fds *c, struct err *err)
{
	struct guest *g = s->g;
	int report[2] = { -1, -1 }, name[2] = { -1, -1 };
	bool agents = g->has_account && m->exec.uid == ACCOUNT_AGENT_ID &&
	              !(m->exec.flags & MSG_EXEC_ROOT);
	AUTO_FREE char *cwd = strndup((const char *)m->exec.cwd.p, m->exec.cwd.len);
	AUTO_CLOSE int env_fd = -1;
	int r;

	if (!cwd || user_env(g, &g->env) < 0 || words_end(&g->argv) < 0 || words_end(&g->env) < 0)
		return err_set(err, -ENOMEM, "no memory for the command");
	if (g->argv.n == 0 || !g->argv.v[0][0])
		return err_set(err, -EINVAL, "no command");
	r = open_ends(s, m, c);
	if (r < 0)
		return err_code(err, r, s->pty ? "cannot open a terminal" : "cannot make pipes");
	if (m->exec.login) {
		env_fd = launch_pack_env(g->env.v);
		if (env_fd < 0)
			return err_code(err, env_fd, "cannot pass the environment");
	}
	open_cgroup(s);
	if (pipe2(report, O_CLOEXEC) < 0 || pipe2(name, O_CLOEXEC | O_NONBLOCK) < 0) {
		r = err_errno(err, "cannot make pipes");
		goto out;
	}
	const struct launch l = {
		.argv = g->argv.v,
		.env = g->env.v,
		.cwd = cwd,
		.uid = user_uid(g, m->exec.uid),
		.gid = user_gid(g, m->exec.gid),
		.groups = agents ? g->account.groups : NULL,
		.n_groups = agents ? g->account.n_groups : 0,
		.privileged = m->exec.flags & MSG_EXEC_ROOT,
		.sudo = g->sudo,
		.login = m->exec.login,
		.exe = g->exe,
		.env_fd = env_fd,
		.cgroup = s->cgroup,
		.report = report[1],
	};
	pid_t pid = fork();
	if (pid < 0) {
		r = err_errno(err, "cannot start a process");
		goto out;
	}
	if (pid == 0)
		child(s, &l, c, name[1]);
	*(s->pty ? &s->leader : &s->command) = pid;
	s->report = report[0];
	report[0] = -1;
	r = loop_fd_add(g->loop, &s->report_src, s->report, EPOLLIN, on_report, s);
	if (r == 0 && s->pty) {
		s->name = name[0];
		name[0] = -1;
		r = loop_fd_add(g->loop, &s->name_src, s->name, EPOLLIN, on_name, s);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(s->out); i++) {
		if (s->out[i].fd >= 0)
			r = outlet_watch(&s->out[i]);
	}
	if (r == 0 && s->pty && mux_send_eof(g->mux, s->channel, FRAME_ERR) < 0)
		r = -ENOBUFS;
	if (r < 0) {
		(void)kill(pid, SIGKILL);
		r = err_code(err, r, "cannot watch the command");
	}
out:
	for (int i = 0; i < 2; i++) {
		auto_close_(&report[i]);
		auto_close_(&name[i]);
	}
	return r;
}

int session_exec(struct guest *g, const struct msg *m, struct err *err)
{
	uint16_t ch = m->exec.channel;
	int r = mux_open(g->mux, ch);

	if (r < 0) {
		words_clear(&g->argv);
		words_clear(&g->env);
		return err_code(err, r, "channel %u is in use", ch);
	}
	struct session *s = calloc(1, sizeof(*s));
	if (s) {
		struct child_fds c = { -1, -1, -1 };
		*s = (struct session){ .g = g,
			               .channel = ch,
			               .seq = m->seq,
			               .pty = m->exec.flags & MSG_EXEC_PTY,
			               .in = -1,
			               .report = -1,
			               .name = -1,
			               .slave = -1,
			               .cgroup = -1 };
		s->out[0] = (struct outlet){ .s = s, .stream = FRAME_OUT, .fd = -1 };
		s->out[1] = (struct outlet){ .s = s, .stream = FRAME_ERR, .fd = -1 };
		g->sessions[ch] = s;
		r = start(s, m, &c, err);
		auto_close_(&c.in);
		auto_close_(&c.out);
		auto_close_(&c.err);
		if (r < 0)
			session_free(s);
	} else {
		r = err_set(err, -ENOMEM, "no memory for a session");
	}
	if (r < 0)
		mux_close(g->mux, ch); /* the host has opened it, too */
	words_clear(&g->argv);
	words_clear(&g->env);
	return r < 0 ? r : 1;
}
