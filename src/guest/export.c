/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way out of what changed: first everybody who could change more is ended,
 * then a child walks the upper and writes to a pipe, which is read within the
 * host's credit. The child blocks, this process never does.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "guest/guest.h"
#include "wire/change.h"

enum { READ_BYTES = 64 * 1024, READS_A_TURN = 16 };

static uint8_t chunk[READ_BYTES];

/* The child's last word. */
struct verdict {
	int32_t code;
	char text[ERR_TEXT_BYTES];
};

static void close_pipes(struct guest *g)
{
	struct export_run *x = &g->ex;

	loop_fd_del(g->loop, &x->out_src);
	auto_close_(&x->out);
	auto_close_(&x->status);
	x->out = x->status = -1;
}

/* The export is over, one way or the other. */
static void end(struct guest *g)
{
	struct export_run *x = &g->ex;

	if (x->channel) {
		mux_close(g->mux, x->channel);
		loop_timer_del(g->loop, &x->timer);
		close_pipes(g);
		free(x->want);
		if (x->pid > 0 && !x->reaped)
			(void)kill(x->pid, SIGKILL);
	}
	*x = (struct export_run){ .out = -1, .status = -1 };
}

static void fail(struct guest *g, const struct err *err)
{
	guest_done(g, g->ex.seq, err->code, err);
	end(g);
}

static void finish_if_over(struct guest *g)
{
	struct export_run *x = &g->ex;
	struct verdict v = { .code = -EIO, .text = "the walk was cut short" };
	struct err err;

	if (!x->eof || !x->reaped)
		return;
	ssize_t n = read(x->status, &v, sizeof(v));
	v.text[sizeof(v.text) - 1] = '\0';
	close_pipes(g);
	x->pid = 0;
	if (n != (ssize_t)sizeof(v) || v.code < 0) {
		(void)err_set(&err, v.code < 0 ? v.code : -EIO, "%s", v.text);
		fail(g, &err);
		return;
	}
	guest_done(g, x->seq, 0, NULL);
	if (x->blobs) {
		/* -EPIPE: the host wants no more of it */
		int r = mux_send_eof(g->mux, x->channel, FRAME_OUT);
		if (r < 0 && r != -EPIPE)
			g->off = true;
		end(g);
	}
}

static void on_records(void *arg, uint32_t events UNUSED)
{
	struct guest *g = arg;
	struct export_run *x = &g->ex;

	for (int turn = 0; turn < READS_A_TURN; turn++) {
		size_t credit = mux_credit(g->mux, x->channel, FRAME_OUT);
		if (credit == 0) {
			loop_fd_del(g->loop, &x->out_src);
			return; /* export_writable() goes on */
		}
		ssize_t n = read(x->out, chunk, MIN(credit, sizeof(chunk)));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n > 0 && mux_send(g->mux, x->channel, FRAME_OUT, chunk, (size_t)n) == 0)
			continue;
		x->eof = true;
		loop_fd_del(g->loop, &x->out_src);
		finish_if_over(g);
		return;
	}
}

int export_writable(struct guest *g)
{
	struct export_run *x = &g->ex;

	if (x->out < 0 || x->eof)
		return 0;
	if (!x->out_src.fn)
		return loop_fd_add(g->loop, &x->out_src, x->out, EPOLLIN, on_records, g);
	return 0;
}

void export_reset(struct guest *g)
{
	struct err err;

	if (!g->ex.pid) {
		end(g);
		return;
	}
	(void)err_set(&err, -EPIPE, "the host wants no more of it");
	fail(g, &err);
}

static int start_walk(struct guest *g, struct err *err)
{
	struct export_run *x = &g->ex;
	AUTO_CLOSE int upper =
		openat(g->scratch, "work/upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int out[2] = { -1, -1 }, status[2] = { -1, -1 };
	int r = 0;

	if (upper < 0)
		return err_errno(err, "cannot open the changes");
	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(status, O_CLOEXEC) < 0) {
		r = err_errno(err, "cannot make pipes");
		goto out;
	}
	(void)fcntl(out[0], F_SETPIPE_SZ, 1024 * 1024); /* fewer turns; the default will do */
	x->eof = x->reaped = false;
	x->pid = fork();
	if (x->pid < 0) {
		x->pid = 0;
		r = err_errno(err, "cannot start the walk");
		goto out;
	}
	if (x->pid == 0) {
		const struct walk_spec s = {
			.root = upper,
			.out = out[1],
			.records_max = x->records_max,
			.bytes_max = x->bytes_max,
			.blobs = x->blobs,
			.want = x->want,
			.n_want = x->n_want,
		};
		struct verdict v = { 0 };
		struct err e = { 0 };
		v.code = walk_run(&s, &e);
		memcpy(v.text, e.text, sizeof(v.text));
		(void)!fd_write_all(status[1], &v, sizeof(v));
		_exit(0);
	}
	x->out = take_fd(&out[0]);
	x->status = take_fd(&status[0]);
	r = fd_set_nonblock(x->out, true);
	if (r == 0)
		r = loop_fd_add(g->loop, &x->out_src, x->out, EPOLLIN, on_records, g);
	if (r < 0)
		(void)err_code(err, r, "cannot watch the walk");
out:
	for (int i = 0; i < 2; i++) {
		auto_close_(&out[i]);
		auto_close_(&status[i]);
	}
	return r;
}

static void on_stuck(void *arg)
{
	struct guest *g = arg;
	struct err err;

	(void)err_set(&err, -EBUSY, "the agent's processes could not be ended");
	fail(g, &err);
}

void export_progress(struct guest *g)
{
	if (g->ex.waiting)
		loop_timer_set(g->loop, &g->ex.timer, GUEST_KILL_MS, on_stuck, g);
}

int export_start(struct guest *g, const struct msg *m, struct err *err)
{
	struct export_run *x = &g->ex;
	int r = mux_open(g->mux, m->export.channel);

	if (r < 0)
		return err_code(err, r, "channel %u is in use", m->export.channel);
	if (mux_send_eof(g->mux, m->export.channel, FRAME_ERR) < 0)
		g->off = true;
	connect_close_all(g); /* their servers end now */
	*x = (struct export_run){
		.channel = m->export.channel,
		.seq = m->seq,
		.records_max = m->export.records_max,
		.bytes_max = m->export.bytes_max,
		.waiting = true,
		.out = -1,
		.status = -1,
	};
	g->state = MSG_STATE_FROZEN;
	/* all but this process; none can escape by forking (kill(2), all at once) */
	(void)kill(-1, SIGKILL);
	export_progress(g);
	guest_reap(g); /* perhaps there was nobody */
	return 1;
}

void export_no_children(struct guest *g)
{
	struct err err;

	if (!g->ex.waiting)
		return;
	g->ex.waiting = false;
	loop_timer_del(g->loop, &g->ex.timer);
	(void)syncfs(g->scratch); /* later reads are of what a crash would keep */
	if (start_walk(g, &err) < 0)
		fail(g, &err);
}

bool export_reaped(struct guest *g, pid_t pid, int status UNUSED)
{
	if (!g->ex.channel || g->ex.pid != pid)
		return false;
	g->ex.reaped = true;
	finish_if_over(g);
	return true;
}

static int add_ranges(struct export_run *x, const struct msg *m)
{
	enum {
		RANGES_MAX = CHANGE_RECORDS_MAX / 2
	}; /* half of the most records: they do not touch */

	if (m->want.n > RANGES_MAX - x->n_want)
		return -E2BIG;
	if (x->n_want + m->want.n > x->cap_want) {
		size_t cap = MAX(2 * x->cap_want, x->n_want + m->want.n);
		struct msg_range *v = realloc(x->want, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		x->want = v;
		x->cap_want = cap;
	}
	for (uint32_t i = 0; i < m->want.n; i++) {
		const struct msg_range *r = &m->want.ranges[i];
		if (x->n_want > 0) {
			const struct msg_range *l = &x->want[x->n_want - 1];
			if (r->first < (uint64_t)l->first + l->count)
				return -EINVAL;
		}
		x->want[x->n_want++] = *r;
	}
	return 0;
}

int export_want(struct guest *g, const struct msg *m, struct err *err)
{
	struct export_run *x = &g->ex;

	if (!x->channel || x->waiting || x->pid || x->blobs)
		return err_set(err, -EINVAL, "there is no index to ask about");
	int r = add_ranges(x, m);
	if (r < 0)
		return err_code(err, r, "cannot note what is wanted");
	if (!(m->want.flags & MSG_WANT_LAST))
		return 0;
	x->blobs = true;
	x->seq = m->seq;
	r = start_walk(g, err);
	if (r < 0) {
		end(g);
		return r;
	}
	return 1;
}

void export_thaw(struct guest *g)
{
	struct err err;

	if (g->ex.waiting || g->ex.pid) { /* its own request is still open */
		(void)err_set(&err, -ECANCELED, "thawed before the export was over");
		guest_done(g, g->ex.seq, err.code, &err);
	}
	end(g);
	g->state = MSG_STATE_WORK;
}
