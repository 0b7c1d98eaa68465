/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/qmp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "event/loop.h"

enum {
	READ_BYTES = 64 * 1024,
	OUT_MAX = 64 * 1024, /* our own commands that QEMU does not take */
	ID_CAPABILITIES = 1,
	ID_FIRST = 2,
	ID_LAST = 1 << 30,
};

struct pending {
	uint64_t id;
	qmp_done_fn done;
	void *arg;
};

struct qmp {
	struct loop *loop;
	struct loop_fd src;
	struct loop_timer timer;
	int fd;
	struct qmp_handlers h;
	bool greeted, ready, ended;
	bool busy, freed; /* inside a handler of ours; qmp_free() was called there */
	struct buf in, out, waiting;
	size_t scanned; /* bytes of @in without a newline */
	struct pending pending[QMP_PENDING_MAX];
	size_t n_pending;
	uint64_t next_id;
	uint64_t second; /* of the event count */
	unsigned events;
};

static void destroy(struct qmp *q)
{
	buf_fini(&q->in);
	buf_fini(&q->out);
	buf_fini(&q->waiting);
	free(q);
}

static void stop(struct qmp *q)
{
	q->ended = true;
	loop_timer_del(q->loop, &q->timer);
	loop_fd_del(q->loop, &q->src);
	if (q->fd >= 0)
		(void)close(q->fd); /* nothing of value is on its way */
	q->fd = -1;
}

/* The connection is over: tell those who wait, oldest first, then the owner. */
static void end(struct qmp *q, int code)
{
	if (q->ended)
		return;
	stop(q);
	size_t n = q->n_pending;
	q->n_pending = 0;
	for (size_t i = 0; i < n && !q->freed; i++)
		if (q->pending[i].done)
			q->pending[i].done(q->pending[i].arg, code ? code : -EPIPE, NULL);
	if (!q->freed && q->h.closed)
		q->h.closed(q->h.arg, code);
}

static void on_timeout(void *arg)
{
	struct qmp *q = arg;

	q->busy = true;
	end(q, -ETIMEDOUT);
	q->busy = false;
	if (q->freed)
		destroy(q);
}

static void arm(struct qmp *q)
{
	if (q->n_pending || !q->ready)
		loop_timer_set(q->loop, &q->timer, QMP_TIMEOUT_MS, on_timeout, q);
	else
		loop_timer_del(q->loop, &q->timer);
}

/* Write what can be written. Return: 0 or -errno. */
static int flush(struct qmp *q)
{
	while (q->out.len > 0) {
		ssize_t n = send(q->fd, q->out.p, q->out.len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return errno == EPIPE || errno == ECONNRESET ? -EPIPE : -errno;
		buf_consume(&q->out, (size_t)n);
	}
	loop_fd_set(q->loop, &q->src, EPOLLIN | (q->out.len ? EPOLLOUT : 0));
	return 0;
}

static int on_greeting(struct qmp *q)
{
	if (q->greeted)
		return -EPROTO;
	q->greeted = true;
	int r = buf_printf(&q->out, "{\"execute\":\"qmp_capabilities\",\"id\":%d}\n",
	                   ID_CAPABILITIES);
	return r < 0 ? r : flush(q);
}

static int on_ready(struct qmp *q, const struct qmp_msg *m)
{
	if (!q->greeted || m->id != ID_CAPABILITIES || m->kind != QMP_RETURN)
		return -EPROTO;
	q->ready = true;
	int r = q->waiting.len ? buf_put(&q->out, q->waiting.p, q->waiting.len) : 0;
	buf_fini(&q->waiting);
	q->waiting = (struct buf){ 0 };
	if (r == 0)
		r = flush(q);
	if (r < 0)
		return r;
	arm(q);
	if (q->h.ready)
		q->h.ready(q->h.arg);
	return 0;
}

static int on_answer(struct qmp *q, const struct qmp_msg *m)
{
	if (!q->ready)
		return on_ready(q, m);
	if (q->n_pending == 0 || m->id != q->pending[0].id)
		return -EPROTO; /* an answer to no question, or out of order */
	struct pending p = q->pending[0];
	q->n_pending--;
	memmove(q->pending, q->pending + 1, q->n_pending * sizeof(p));
	arm(q);
	if (p.done)
		p.done(p.arg, m->kind == QMP_RETURN ? 0 : -EREMOTEIO, m);
	return 0;
}

static int on_event(struct qmp *q, const struct qmp_msg *m)
{
	uint64_t second = loop_now_ns(q->loop) / 1000000000;

	if (second != q->second) {
		q->second = second;
		q->events = 0;
	}
	if (++q->events > QMP_EVENTS_PER_SECOND)
		return -EPROTO;
	/* events may come before the answer to qmp_capabilities */
	if (!q->greeted)
		return -EPROTO;
	if (m->event != QMP_EV_OTHER && q->h.event)
		q->h.event(q->h.arg, m);
	return 0;
}

static int on_line(struct qmp *q, struct span line)
{
	struct qmp_msg m;

	if (line.len > 0 && line.p[line.len - 1] == '\r')
		line.len--; /* QEMU ends its lines with CR LF */
	int r = qmp_parse(&m, line);
	if (r < 0)
		return r;
	switch (m.kind) {
	case QMP_GREETING:
		return on_greeting(q);
	case QMP_EVENT:
		return on_event(q, &m);
	case QMP_RETURN:
	case QMP_ERROR:
		break;
	}
	return on_answer(q, &m);
}

/* Hand on the whole lines of @in. Return: 0 or -errno. */
static int take_lines(struct qmp *q)
{
	size_t done = 0;
	int r = 0;

	while (r == 0 && !q->ended && !q->freed) {
		size_t from = MAX(done, q->scanned);
		const uint8_t *nl =
			from < q->in.len ? memchr(q->in.p + from, '\n', q->in.len - from) : NULL;

		if (!nl)
			break;
		size_t at = (size_t)(nl - q->in.p);
		if (at - done > QMP_LINE_MAX)
			return -EPROTO;
		r = on_line(q, span_of(q->in.p + done, at - done));
		done = at + 1;
	}
	if (q->ended || q->freed)
		return 0;
	buf_consume(&q->in, done);
	q->scanned = q->in.len;
	if (r == 0 && q->in.len > QMP_LINE_MAX)
		r = -EPROTO;
	return r;
}

static void on_io(void *arg, uint32_t events)
{
	struct qmp *q = arg;
	int r = 0;

	q->busy = true;
	if (events & EPOLLOUT)
		r = flush(q);
	if (r == 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		r = buf_reserve(&q->in, READ_BYTES);
		ssize_t n = r < 0 ? -1 : read(q->fd, q->in.p + q->in.len, READ_BYTES);

		if (n > 0) {
			q->in.len += (size_t)n;
			r = take_lines(q);
		} else if (n == 0) {
			end(q, q->in.len ? -EPROTO : 0);
		} else if (r == 0 && errno != EINTR && errno != EAGAIN) {
			r = -errno;
		}
	}
	if (r < 0 && !q->freed)
		end(q, r);
	q->busy = false;
	if (q->freed)
		destroy(q);
}

int qmp_new(struct qmp **out, struct loop *l, int fd, const struct qmp_handlers *h)
{
	struct qmp *q = xcalloc(1, sizeof(*q));

	q->loop = l;
	q->fd = fd;
	q->src.fd = -1;
	q->h = *h;
	q->next_id = ID_FIRST;
	int r = loop_fd_add(l, &q->src, fd, EPOLLIN, on_io, q);
	if (r < 0) {
		(void)close(fd); /* taken; nothing was sent */
		destroy(q);
		return r;
	}
	arm(q);
	*out = q;
	return 0;
}

void qmp_free(struct qmp *q)
{
	if (!q)
		return;
	if (!q->ended)
		stop(q);
	q->freed = true;
	if (!q->busy)
		destroy(q);
}

static int send_command(struct qmp *q, struct buf *text, qmp_done_fn done, void *arg)
{
	struct buf *to = q->ready ? &q->out : &q->waiting;

	if (q->ended)
		return -EPIPE;
	if (q->n_pending == QMP_PENDING_MAX || to->len > OUT_MAX || q->next_id >= ID_LAST)
		return -EBUSY;
	uint64_t id = q->next_id;
	size_t before = to->len;
	int r = buf_put(to, text->p, text->len);
	if (r == 0)
		r = buf_printf(to, ",\"id\":%llu}\n", (unsigned long long)id);
	if (r < 0) {
		to->len = before;
		return r;
	}
	q->next_id++;
	q->pending[q->n_pending++] = (struct pending){ .id = id, .done = done, .arg = arg };
	if (q->n_pending == 1)
		arm(q);
	if (q->ready)
		/* a failed write shows as an event of the loop as well, with its end() */
		(void)flush(q);
	return 0;
}

static int simple(struct qmp *q, const char *name, qmp_done_fn done, void *arg)
{
	AUTO_BUF struct buf b = { 0 };
	int r = buf_printf(&b, "{\"execute\":\"%s\"", name);

	return r < 0 ? r : send_command(q, &b, done, arg);
}

int qmp_cont(struct qmp *q, qmp_done_fn done, void *arg)
{
	return simple(q, "cont", done, arg);
}

int qmp_stop(struct qmp *q, qmp_done_fn done, void *arg)
{
	return simple(q, "stop", done, arg);
}

int qmp_quit(struct qmp *q, qmp_done_fn done, void *arg)
{
	return simple(q, "quit", done, arg);
}

int qmp_query_status(struct qmp *q, qmp_done_fn done, void *arg)
{
	return simple(q, "query-status", done, arg);
}

int qmp_block_resize(struct qmp *q, const char *serial, uint64_t bytes, qmp_done_fn done, void *arg)
{
	AUTO_BUF struct buf b = { 0 };

	if (bytes > INT64_MAX ||
	    strspn(serial, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(serial))
		return -EINVAL;
	int r = buf_printf(&b,
	                   "{\"execute\":\"block_resize\",\"arguments\":{\"node-name\":\"%s\","
	                   "\"size\":%llu}",
	                   serial, (unsigned long long)bytes);
	return r < 0 ? r : send_command(q, &b, done, arg);
}
