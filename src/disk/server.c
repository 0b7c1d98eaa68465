/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads are answered in the order they came, but for those that wait for the
 * image. The next request is not looked at before the replies so far have left,
 * so a client that does not read holds up nothing but itself, and the output
 * buffer has a bound.
 *
 * Freezing waits until no read came for IDLE_MS. Under a load without a pause it
 * takes a small step each STARVED_MS, so that it ends at all.
 */
#include "disk/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "disk/disk.h"
#include "disk/nbd.h"
#include "disk/store.h"
#include "event/loop.h"
#include "manifest/manifest.h"

enum {
	INPUT_BYTES = 64 * 1024,
	BATCH_BYTES = 256 * 1024, /* replies are sent together up to this */
	OUTPUT_BYTES = BATCH_BYTES + NBD_READ_MAX + NBD_REPLY_HEADER + NBD_REPLY_MAX,
	HELD_MAX = 64,
	QUEUE_BYTES = 256 * 1024, /* of control messages; then requests and events wait */
	HASH_STEP_BYTES = 256 * 1024,
	IDLE_MS = 20,
	STARVED_MS = 250,
	ROUNDS = 32,
};
#define MS UINT64_C(1000000)

struct hash_job {
	uint32_t entry;
	uint64_t offset;
	struct hash_state state;
};

struct server {
	const struct server_opts *o;
	struct loop *loop;
	struct store *store;

	int nbd_fd; /* -1 once it is over */
	struct loop_fd nbd_src;
	struct nbd nbd;
	bool nbd_ending; /* close when the output is out */
	uint8_t *in, *out;
	size_t in_len, out_len, out_sent;
	struct nbd_request held[HELD_MAX];
	size_t n_held;

	struct loop_fd control_src;
	struct buf queue; /* length u32 and bytes of each message */
	size_t queue_sent;
	struct hash_job *jobs; /* ring */
	size_t job_at, n_jobs;

	struct loop_timer work;
	bool freezing;
	uint64_t last_read_ns, last_freeze_ns;
	uint64_t requests, bytes, errors;
};

static void work_soon(struct server *s);
static void nbd_pump(struct server *s);

/* ---- control ---- */

static void control_watch(struct server *s)
{
	size_t waiting = s->queue.len - s->queue_sent;
	uint32_t ev = waiting ? EPOLLOUT : 0;

	if (waiting < QUEUE_BYTES && s->n_jobs < DISK_REQUESTS_MAX)
		ev |= EPOLLIN;
	loop_fd_set(s->loop, &s->control_src, ev);
}

static void control_flush(struct server *s)
{
	while (s->queue_sent < s->queue.len) {
		uint32_t n;

		memcpy(&n, s->queue.p + s->queue_sent, sizeof(n));
		int r = fd_send(s->o->control, s->queue.p + s->queue_sent + sizeof(n), n, NULL, 0);
		if (r == -EAGAIN)
			break;
		if (r < 0) { /* nobody is there any more */
			loop_stop(s->loop, 0);
			return;
		}
		s->queue_sent += sizeof(n) + n;
	}
	if (s->queue_sent == s->queue.len || s->queue_sent > QUEUE_BYTES) {
		buf_consume(&s->queue, s->queue_sent);
		s->queue_sent = 0;
	}
	control_watch(s);
}

static void control_put(struct server *s, const struct disk_msg *m)
{
	uint8_t b[4 + DISK_MSG_MAX];
	size_t n = disk_msg_put(b + 4, DISK_MSG_MAX, m);
	uint32_t len = (uint32_t)n;

	ASSERT(n > 0);
	memcpy(b, &len, sizeof(len));
	if (buf_put(&s->queue, b, 4 + n) < 0)
		loop_stop(s->loop, -ENOMEM);
}

/* What the host changed is told as the queue has room: it may be every file. */
static void control_tell_changed(struct server *s)
{
	while (s->queue.len - s->queue_sent < QUEUE_BYTES) {
		struct disk_msg m = { .type = DISK_CHANGED, .entry = store_next_changed(s->store) };

		if (m.entry == MANIFEST_NONE)
			break;
		control_put(s, &m);
	}
	control_flush(s);
}

static int status_of(int64_t r)
{
	return r < -4095 ? -EIO : (int)r;
}

static int take_ready(struct server *s, int fds[2])
{
	struct disk_msg m = { .type = DISK_READY_DONE };
	struct err err = { 0 };

	m.status = status_of(store_open(s->store, fds[0], fds[1], &err));
	if (m.status == 0)
		fds[0] = fds[1] = -1; /* the store's */
	else
		log_error("no image: %s", err.text);
	control_put(s, &m);
	nbd_pump(s); /* what waited */
	work_soon(s);
	return 0;
}

static int take_message(struct server *s, const struct disk_msg *q, int fds[2])
{
	struct disk_msg m = { .entry = q->entry };
	static uint8_t data[DISK_DATA_MAX];
	ssize_t n;

	switch ((enum disk_type)q->type) {
	case DISK_READY:
		return take_ready(s, fds);
	case DISK_HASH: {
		struct hash_job *j = &s->jobs[(s->job_at + s->n_jobs) % DISK_REQUESTS_MAX];

		ASSERT(s->n_jobs < DISK_REQUESTS_MAX); /* control_read() looked */
		j->entry = q->entry;
		j->offset = 0;
		hash_init(&j->state);
		s->n_jobs++;
		work_soon(s);
		return 0;
	}
	case DISK_READ:
		n = store_read_entry(s->store, q->entry, q->offset, data, q->length);
		m.type = DISK_READ_DONE;
		m.offset = q->offset;
		m.status = n < 0 ? status_of(n) : 0;
		m.data = span_of(data, n > 0 ? (size_t)n : 0);
		control_put(s, &m);
		return 0;
	case DISK_FREEZE:
		s->freezing = q->on;
		s->last_freeze_ns = loop_now_ns(s->loop);
		work_soon(s);
		return 0;
	case DISK_STATS:
		m.type = DISK_STATS_DONE;
		m.stats = (struct disk_stats){ .freezing = s->freezing,
			                       .requests = s->requests,
			                       .bytes = s->bytes,
			                       .errors = s->errors };
		store_stats(s->store, &m.stats);
		control_put(s, &m);
		return 0;
	case DISK_SHUTDOWN:
		loop_stop(s->loop, 0);
		return 0;
	case DISK_READY_DONE:
	case DISK_HASH_DONE:
	case DISK_READ_DONE:
	case DISK_FREEZE_DONE:
	case DISK_STATS_DONE:
	case DISK_CHANGED:
		break;
	}
	return -EPROTO; /* ours to say */
}

/* One message. Return: 1, 0 when there is none now, -ENODATA at the end, -EPROTO, -errno. */
static int control_read(struct server *s)
{
	uint8_t b[64]; /* requests are short; a longer packet is cut, which is -EPROTO */
	int fds[2] = { -1, -1 };
	size_t n_fds = 0;
	struct disk_msg m;

	if (s->n_jobs == DISK_REQUESTS_MAX || s->queue.len - s->queue_sent >= QUEUE_BYTES)
		return 0;
	ssize_t n = fd_recv(s->o->control, b, sizeof(b), fds, ARRAY_LEN(fds), &n_fds);
	if (n == -EAGAIN)
		return 0;
	if (n == 0 || n == -ECONNRESET)
		return -ENODATA;
	if (n < 0)
		return (int)n;
	int r = disk_msg_parse(&m, b, (size_t)n);
	if (r == 0 && n_fds != disk_msg_fds(m.type))
		r = -EPROTO;
	if (r == 0)
		r = take_message(s, &m, fds);
	auto_close_(&fds[0]);
	auto_close_(&fds[1]);
	return r < 0 ? r : 1;
}

static void on_control(void *arg, uint32_t events)
{
	struct server *s = arg;
	int r;

	do {
		r = control_read(s);
	} while (r > 0);
	if (r == 0 && (events & (EPOLLHUP | EPOLLERR)))
		r = -ENODATA; /* what is still unread would have no answer */
	if (r == -ENODATA) {
		loop_stop(s->loop, 0);
	} else if (r < 0) {
		log_error("control: %s", strerrorname_np(-r));
		loop_stop(s->loop, r);
	} else {
		control_tell_changed(s);
	}
}

/* ---- NBD ---- */

static void nbd_end(struct server *s)
{
	loop_fd_del(s->loop, &s->nbd_src);
	s->nbd_fd = -1;
	s->n_held = 0;
	s->in_len = s->out_len = s->out_sent = 0;
	(void)close(s->o->nbd); /* the client sees it; nothing of ours is lost */
}

static void nbd_watch(struct server *s, uint32_t ev)
{
	if (s->out_sent < s->out_len)
		ev |= EPOLLOUT;
	else if (s->n_held < HELD_MAX)
		ev |= EPOLLIN;
	loop_fd_set(s->loop, &s->nbd_src, ev);
}

/* Return: true when all is out. */
static bool nbd_send(struct server *s)
{
	while (s->out_sent < s->out_len) {
		ssize_t n = write(s->nbd_fd, s->out + s->out_sent, s->out_len - s->out_sent);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno != EAGAIN)
				nbd_end(s);
			return false;
		}
		s->out_sent += (size_t)n;
	}
	s->out_len = s->out_sent = 0;
	if (s->nbd_ending)
		nbd_end(s);
	return !s->nbd_ending;
}

/* Put the reply to @q into the output, which has the room. */
static void nbd_answer(struct server *s, const struct nbd_request *q)
{
	struct wr w = wr_of(s->out + s->out_len, NBD_REPLY_HEADER);
	uint8_t *data = s->out + s->out_len + NBD_REPLY_HEADER;
	int r = 0;

	ASSERT(OUTPUT_BYTES - s->out_len >= NBD_REPLY_HEADER + q->length);
	if (store_is_open(s->store))
		r = store_read(s->store, q->offset, data, q->length);
	else
		memset(data, 0, q->length); /* below DISK_EARLY_BYTES */
	nbd_put_reply(&w, q->cookie, -r);
	s->out_len += NBD_REPLY_HEADER + (r == 0 ? q->length : 0);
	s->requests++;
	s->bytes += r == 0 ? q->length : 0;
	s->errors += r < 0;
	s->last_read_ns = loop_now_ns(s->loop);
}

static bool must_wait(const struct server *s, const struct nbd_request *q)
{
	return !store_is_open(s->store) && q->offset + q->length > DISK_EARLY_BYTES;
}

/* Take requests off the input until it is used up or a batch of replies is full. */
static int nbd_parse(struct server *s)
{
	size_t at = 0;
	int r = 0;

	while (s->n_held && store_is_open(s->store) && s->out_len < BATCH_BYTES) {
		nbd_answer(s, &s->held[0]);
		s->n_held--;
		memmove(s->held, s->held + 1, s->n_held * sizeof(s->held[0]));
	}
	while (s->out_len < BATCH_BYTES && s->n_held < HELD_MAX && !s->nbd_ending) {
		struct wr w = wr_of(s->out + s->out_len, OUTPUT_BYTES - s->out_len);
		struct nbd_request q;
		size_t used = 0, room = w.left;

		r = nbd_take(&s->nbd, s->in + at, s->in_len - at, &used, &w, &q);
		if (r < 0)
			break;
		at += used;
		s->out_len += room - w.left;
		if (r == NBD_END)
			s->nbd_ending = true;
		else if (r == NBD_REQUEST && must_wait(s, &q))
			s->held[s->n_held++] = q;
		else if (r == NBD_REQUEST)
			nbd_answer(s, &q);
	}
	s->in_len -= at;
	memmove(s->in, s->in + at, s->in_len);
	return r == -EPROTO ? r : 0;
}

/*
 * Read, answer, send, until one of them cannot go on, or ROUNDS of it: the control
 * peer gets its turn under any load.
 */
static void nbd_pump(struct server *s)
{
	uint64_t errors = s->errors;
	uint32_t more = 0;

	for (int round = 0; s->nbd_fd >= 0; round++) {
		if (round == ROUNDS) {
			more = EPOLLOUT; /* come back at once: input may lie here already */
			break;
		}
		if (s->out_len && !nbd_send(s))
			break;
		if (nbd_parse(s) < 0) {
			log_warn("the disk's client broke the protocol; closed");
			nbd_end(s);
			break;
		}
		if (s->out_len)
			continue;
		if (s->nbd_ending) {
			nbd_end(s);
			break;
		}
		if (s->n_held == HELD_MAX)
			break;
		ASSERT(s->in_len < INPUT_BYTES); /* nbd_take() never waits for that many */
		ssize_t n = read(s->nbd_fd, s->in + s->in_len, INPUT_BYTES - s->in_len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			nbd_end(s);
			break;
		}
		s->in_len += (size_t)n;
	}
	if (s->nbd_fd >= 0)
		nbd_watch(s, more);
	if (s->errors != errors)
		control_tell_changed(s);
}

static void on_nbd(void *arg, uint32_t events)
{
	struct server *s = arg;

	if (events & (EPOLLHUP | EPOLLERR))
		nbd_end(s); /* nobody takes a reply any more */
	else
		nbd_pump(s);
}

/* ---- work between reads ---- */

static void hash_step(struct server *s)
{
	static uint8_t data[HASH_STEP_BYTES];
	struct hash_job *j = &s->jobs[s->job_at];
	ssize_t n = store_read_entry(s->store, j->entry, j->offset, data, sizeof(data));
	struct disk_msg m = { .type = DISK_HASH_DONE, .entry = j->entry };

	if (n > 0) {
		hash_update(&j->state, data, (size_t)n);
		j->offset += (uint64_t)n;
		return;
	}
	if (n == 0)
		hash_final(&j->state, &m.hash);
	else
		m.status = status_of(n);
	s->job_at = (s->job_at + 1) % DISK_REQUESTS_MAX;
	s->n_jobs--;
	control_put(s, &m);
	control_tell_changed(s);
}

static void freeze_step(struct server *s)
{
	int r = store_freeze_step(s->store);

	s->last_freeze_ns = loop_now_ns(s->loop);
	if (r <= 0) {
		struct disk_msg m = { .type = DISK_FREEZE_DONE, .status = status_of(r) };

		s->freezing = false;
		if (r < 0)
			log_warn("freezing ended early: %s", strerrorname_np(-m.status));
		control_put(s, &m);
	}
	control_tell_changed(s);
}

static void on_work(void *arg)
{
	struct server *s = arg;
	uint64_t wait_ms = 0;

	if (s->n_jobs) {
		hash_step(s);
	} else if (s->freezing && store_is_open(s->store)) {
		uint64_t now = loop_now_ns(s->loop), idle = now - s->last_read_ns;

		if (idle >= IDLE_MS * MS || now - s->last_freeze_ns >= STARVED_MS * MS)
			freeze_step(s);
		else
			wait_ms = IDLE_MS - idle / MS;
	}
	if (s->n_jobs || (s->freezing && store_is_open(s->store)))
		loop_timer_set(s->loop, &s->work, wait_ms, on_work, s);
}

static void work_soon(struct server *s)
{
	loop_timer_set(s->loop, &s->work, 0, on_work, s);
}

int server_run(const struct server_opts *o)
{
	struct server s = { .o = o, .nbd_fd = o->nbd, .nbd_src.fd = -1, .control_src.fd = -1 };
	struct wr w;
	int r = -ENOMEM;

	s.loop = loop_new();
	s.store = store_new(o->workspaces, o->n_workspaces, o->cache, o->size);
	if (s.store && o->moved)
		store_allow_moved(s.store);
	s.in = malloc(INPUT_BYTES);
	s.out = malloc(OUTPUT_BYTES);
	s.jobs = xcalloc(DISK_REQUESTS_MAX, sizeof(*s.jobs));
	if (!s.loop || !s.in || !s.out)
		goto out;
	r = fd_set_nonblock(o->nbd, true);
	if (r == 0)
		r = fd_set_nonblock(o->control, true);
	if (r == 0)
		r = loop_fd_add(s.loop, &s.nbd_src, o->nbd, EPOLLOUT, on_nbd, &s);
	if (r == 0)
		r = loop_fd_add(s.loop, &s.control_src, o->control, EPOLLIN, on_control, &s);
	if (r < 0)
		goto out;
	w = wr_of(s.out, OUTPUT_BYTES);
	nbd_init(&s.nbd, o->size, &w);
	s.out_len = OUTPUT_BYTES - w.left;
	r = loop_run(s.loop);
out:
	store_free(s.store);
	loop_free(s.loop);
	buf_fini(&s.queue);
	free(s.in);
	free(s.out);
	free(s.jobs);
	return r;
}
