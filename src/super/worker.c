/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-worker - the half of cloche-super that listens to the guest.
 *
 * Trusts: its monitor. Believes nothing of the guest, QEMU, cloche-disk or the
 * client beyond what the codecs checked. Touches: the descriptors it was
 * started with (guest channel, QMP, client socket, sockets to cloche-disk,
 * cloche-relay and the monitor), the connections that the relay hands over, and
 * the staging folder of this sandbox. A compromise of it
 * yields a corrupt change set and what QEMU's cage can reach: no project file,
 * no network, no process.
 *
 * One thread, one loop. The life of a sandbox is a line of stages; every
 * message that is not legal in a stage ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/ip.h"
#include "base/log.h"
#include "base/vis.h"
#include "cage/cage.h"
#include "disk/disk.h"
#include "super/ctl.h"
#include "super/export.h"
#include "super/forward.h"
#include "super/link.h"
#include "super/net.h"
#include "super/port.h"
#include "vmm/qmp.h"
#include "wire/msg.h"

enum {
	EXPORT_CHANNEL = FRAME_CHANNELS_MAX - 1,
	CALLS_MAX = 64, /* host messages without an answer */
	CALLS_KEPT = 8, /* of them for our own: a client's flood must not stop the way back */
	EXPORT_SILENCE_MS = 300 * 1000,
	OFF_MS = 5 * 1000,
	FLUSH_MS = 3 * 1000, /* for the client to take the last words */
	FLUSH_TICK_MS = 20,
	/* what others make us write down or show: so many at once, so many a second, in all */
	LOG_BURST = 200,
	LOG_PER_S = 20,
	LOG_MAX = 20 * 1000,
	NOTE_BURST = 10,
	NOTE_PER_S = 1,
	NOTE_MAX = 200,
	SMALL_TREE_BYTES = 16 * 1024 * 1024,
	SYNC_MS = 5 * 1000, /* lab-measured: unsynced small files are lost when QEMU dies */
	WORDS_BYTES = MSG_BYTES_MAX - 64,
};

enum stage { ST_BOOT, ST_SETUP, ST_UP, ST_EXPORT, ST_PUBLISH, ST_OFF };

enum call_kind {
	CALL_NONE,
	CALL_SETUP,
	CALL_LAST_SETUP,
	CALL_EXEC,
	CALL_EXPORT,
	CALL_WANT,
	CALL_NET_TEST,
	CALL_FILE, /* from here on: who asks from outside, and may be many */
	CALL_CONNECT,
	CALL_OTHER
};

struct call {
	uint32_t seq;
	enum call_kind kind;
	uint16_t channel;
};

/* A flood of lines fills the host's disk, a flood of notes the user's screen. */
struct budget {
	uint32_t burst, per_s, left_in_all;
	uint32_t tokens;
	uint64_t at_ns; /* of the last refill; 0: never used */
	bool told;
};

struct chan {
	bool open, started, exited, said;
	struct buf pend[FRAME_STREAMS];
	bool eof[FRAME_STREAMS], eof_sent[FRAME_STREAMS], reset[FRAME_STREAMS];
	struct ctl exit;
};

struct worker {
	struct loop *l;
	struct port guest, client;
	bool has_client;
	struct qmp *qmp;
	int disk_fd, mon_fd, staging_fd, manifest_fd;
	struct loop_fd disk_src, mon_src;
	struct loop_timer timer, off_timer;
	enum stage stage;
	bool booted, scanned, work_sent, ran, output_seen, finishing, failed, no_space;
	bool mounted, net_proven;
	bool guest_lied; /* after its change set was complete: it is not listened to any more */
	struct budget logs, notes;
	uint64_t leave_by_ns;
	int code; /* exit status of this process */
	int exit_status;
	uint32_t seq;
	struct call calls[CALLS_MAX];
	struct chan chans[FRAME_CHANNELS_MAX];
	struct forward *fwd;
	struct export *ex;
	struct manifest manifest;
	void *map;
	size_t map_len;
	char set_id[CHANGESET_ID_MAX + 1];
	uint32_t set_records;
	uint64_t set_bytes;
	/* configuration, from the monitor's command line */
	const char *sandbox, *hostname;
	const char *user, *home; /* of an image of somebody else; NULL: not said */
	const char *layers[MSG_LAYERS_MAX], *projects[MSG_PROJECTS_MAX];
	uint32_t n_layers, n_projects;
	uint64_t tmp_bytes, records_max, content_max;
	uint32_t ready_ms, silence_ms;
	bool recover, sudo;
	uint32_t net_address; /* 0: offline */
	const char *search[NET_SEARCH_MAX];
	uint32_t n_search;
	bool net_test; /* the network must prove itself before the first command */
};

static struct worker w = {
	/* one sandbox a process */
	.logs = { .burst = LOG_BURST, .per_s = LOG_PER_S, .left_in_all = LOG_MAX },
	.notes = { .burst = NOTE_BURST, .per_s = NOTE_PER_S, .left_in_all = NOTE_MAX },
	.silence_ms = EXPORT_SILENCE_MS,
};

static uint64_t now_ns(void)
{
	return loop_now_ns(w.l);
}

static bool may(struct budget *b, const char *what)
{
	uint64_t now = now_ns(), s = (now - b->at_ns) / 1000000000;

	if (b->at_ns == 0) {
		b->at_ns = now;
		b->tokens = b->burst;
	} else if (s > 0) {
		b->at_ns += s * 1000000000;
		b->tokens = (uint32_t)MIN(b->tokens + s * b->per_s, (uint64_t)b->burst);
	}
	if (b->tokens > 0 && b->left_in_all > 0) {
		b->tokens--;
		b->left_in_all--;
		b->told = false;
		return true;
	}
	if (!b->told)
		log_warn("too many %s: some are left out", what);
	b->told = true;
	return false;
}

/* ---- to the client ------------------------------------------------------ */

static void tell(const struct ctl *c)
{
	static uint8_t b[CTL_BYTES_MAX];
	size_t n = w.has_client ? ctl_put(b, sizeof(b), c) : 0;

	if (n == 0)
		return;
	if (mux_send_control(w.client.mux, span_of(b, n)) == 0)
		port_flush(&w.client);
}

static void tell_phase(enum ctl_phase p, uint64_t extra, uint64_t extra2)
{
	tell(&(struct ctl){ .type = CTL_PHASE,
	                    .phase = { .phase = (uint8_t)p,
	                               .at_ns = now_ns(),
	                               .extra = extra,
	                               .extra2 = extra2 } });
}

static void tell_note(enum log_level level, const char *text)
{
	size_t n = MIN(strlen(text), (size_t)CTL_TEXT_MAX);

	if (!may(&w.notes, "notes"))
		return;

	tell(&(struct ctl){ .type = CTL_NOTE,
	                    .note = { .level = (uint8_t)level, .text = span_of(text, n) } });
}

/* ---- ends --------------------------------------------------------------- */

static void on_leave(void *arg UNUSED)
{
	if (!w.has_client || port_pending(&w.client) == 0 || now_ns() >= w.leave_by_ns)
		loop_stop(w.l, w.code);
	else
		loop_timer_set(w.l, &w.off_timer, FLUSH_TICK_MS, on_leave, NULL);
}

/* The client has the last word queued: give the socket a moment, then go. */
static void leave(int code)
{
	w.code = code;
	if (w.leave_by_ns == 0)
		w.leave_by_ns = now_ns() + FLUSH_MS * UINT64_C(1000000);
	on_leave(NULL);
}

/* The sandbox is over. The monitor decides what is kept. */
static void fail(const struct err *e)
{
	if (w.failed)
		return;
	w.failed = true;
	if (w.guest.fd >= 0)
		port_stall(&w.guest, true); /* its end is still seen */
	log_error("%s", e->text);
	struct link_msg m = link_err(LINK_FAILED, e);
	(void)link_send(w.mon_fd, &m); /* a dead monitor has killed us already */
	tell(&(struct ctl){ .type = CTL_FAILED,
	                    .failed = { .code = e->code,
	                                .text = span_str(e->text),
	                                .hint = span_str(e->hint) } });
	leave(1);
}

static int fail_now(const struct err *e)
{
	fail(e);
	return 0;
}

/* ---- to the guest ------------------------------------------------------- */

static int call(struct msg *m, enum call_kind kind, uint16_t channel)
{
	static uint8_t b[MSG_BYTES_MAX];
	size_t n_calls = kind >= CALL_FILE && w.stage == ST_UP ? CALLS_MAX - CALLS_KEPT : CALLS_MAX;
	struct call *c = NULL;

	for (size_t i = 0; i < n_calls && !c; i++) {
		if (w.calls[i].kind == CALL_NONE)
			c = &w.calls[i];
	}
	if (!c)
		return -EBUSY;
	m->seq = ++w.seq;
	size_t n = msg_put(b, sizeof(b), m);
	if (n == 0)
		return -E2BIG;
	int r = mux_send_control(w.guest.mux, span_of(b, n));
	if (r < 0)
		return r;
	*c = (struct call){ .seq = m->seq, .kind = kind, .channel = channel };
	port_flush(&w.guest);
	return 0;
}

static void must_call(struct msg *m, enum call_kind kind)
{
	struct err e = { 0 };
	int r = call(m, kind, 0);

	if (r < 0) {
		err_code(&e, r, "cannot give the guest its orders");
		fail(&e);
	}
}

static void on_off_deadline(void *arg UNUSED)
{
	log_warn("the guest did not power off in %d ms", OFF_MS);
	if (w.qmp)
		(void)!qmp_quit(w.qmp, NULL, NULL); /* the monitor's kill is the backstop */
	leave(w.failed ? 1 : 0);
}

static void power_off(void)
{
	struct link_msg m = { .type = LINK_OFF };
	struct msg off = { .type = MSG_POWEROFF };

	if (w.stage == ST_OFF)
		return;
	w.stage = ST_OFF;
	(void)link_send(w.mon_fd, &m);
	if (w.guest.fd < 0 || w.guest_lied || call(&off, CALL_OTHER, 0) < 0) {
		leave(w.failed ? 1 : 0);
		return;
	}
	loop_timer_set(w.l, &w.timer, OFF_MS, on_off_deadline, NULL);
}

/* ---- streams between client and guest ----------------------------------- */

static struct port *port_to(uint8_t stream)
{
	return stream == FRAME_IN ? &w.guest : &w.client;
}

static struct port *port_from(uint8_t stream)
{
	return stream == FRAME_IN ? &w.client : &w.guest;
}

static void chan_done(uint16_t ch)
{
	struct chan *c = &w.chans[ch];

	for (int s = 0; s < FRAME_STREAMS; s++)
		buf_fini(&c->pend[s]);
	mux_close(w.guest.mux, ch);
	if (w.has_client)
		mux_close(w.client.mux, ch);
	*c = (struct chan){ 0 };
}

static int finish_run(int exit_status);

/* The status follows the last byte, never before it. */
static void maybe_exited(uint16_t ch)
{
	struct chan *c = &w.chans[ch];

	if (!c->exited || c->said)
		return;
	for (int s = FRAME_OUT; s <= FRAME_ERR; s++) {
		if (w.has_client && !c->eof_sent[s] && !c->reset[s])
			return;
	}
	c->said = true;
	tell(&c->exit);
	tell_phase(CTL_PHASE_EXITED, 0, 0);
	chan_done(ch);
}

static int pump(uint16_t ch, uint8_t stream)
{
	struct chan *c = &w.chans[ch];
	struct port *to = port_to(stream), *from = port_from(stream);
	struct buf *b = &c->pend[stream];

	if (!c->open || (!c->started && stream != FRAME_IN))
		return 0; /* nothing is heard of a command before it runs */
	if (to == &w.client && !w.has_client)
		c->reset[stream] = true;
	if (c->reset[stream] && b->len) { /* nobody reads it: still take it, so the writer ends */
		int r = from->fd >= 0 ? mux_consumed(from->mux, ch, stream, b->len) : 0;
		buf_consume(b, b->len);
		if (r < 0)
			return r;
	}
	while (b->len) {
		size_t n = MIN(b->len, mux_credit(to->mux, ch, stream));
		if (n == 0)
			break;
		int r = mux_send(to->mux, ch, stream, b->p, n);
		if (r == -ENOBUFS)
			break;
		if (r < 0)
			return r;
		buf_consume(b, n);
		if (from->fd >= 0)
			r = mux_consumed(from->mux, ch, stream, n);
		if (r < 0)
			return r;
	}
	if (b->len == 0 && c->eof[stream] && !c->eof_sent[stream] && !c->reset[stream]) {
		c->eof_sent[stream] = true;
		int r = mux_send_eof(to->mux, ch, stream);
		if (r < 0 && r != -EPIPE)
			return r;
	}
	port_flush(to);
	if (from->fd >= 0)
		port_flush(from);
	maybe_exited(ch);
	return 0;
}

static int take_data(uint16_t ch, uint8_t stream, struct span bytes)
{
	struct chan *c = &w.chans[ch];

	if (!c->open || (stream != FRAME_IN && c->exited))
		return -EPROTO;
	if (stream != FRAME_IN && !w.output_seen) {
		w.output_seen = true;
		tell_phase(CTL_PHASE_OUTPUT, 0, 0);
	}
	int r = buf_put(&c->pend[stream], bytes.p, bytes.len);
	return r < 0 ? r : pump(ch, stream);
}

static int take_eof(uint16_t ch, uint8_t stream)
{
	if (!w.chans[ch].open)
		return 0; /* crossed with the end of the channel */
	w.chans[ch].eof[stream] = true;
	return pump(ch, stream);
}

/* The reader (or writer) of a stream gave up: tell the other side. */
static int take_reset(struct port *from, uint16_t ch, uint8_t stream)
{
	struct chan *c = &w.chans[ch];

	if (!c->open || c->reset[stream])
		return 0;
	c->reset[stream] = true;
	struct port *other = from == &w.guest ? &w.client : &w.guest;
	if (other->fd >= 0 && (other != &w.client || w.has_client)) {
		int r = mux_send_reset(other->mux, ch, stream);
		if (r < 0 && r != -EPIPE)
			return r;
		port_flush(other);
	}
	return pump(ch, stream);
}

/* ---- export ------------------------------------------------------------- */

static int to_disk(const struct disk_msg *m)
{
	uint8_t b[256]; /* none of ours carries data */
	size_t n = disk_msg_put(b, sizeof(b), m);

	if (w.disk_fd < 0 || n == 0)
		return -EPIPE;
	return fd_send(w.disk_fd, b, n, NULL, 0);
}

static void arm_silence(void);
static void disk_gone(void);

static int ex_ask(void *arg UNUSED, uint32_t entry)
{
	return to_disk(&(struct disk_msg){ .type = DISK_HASH, .entry = entry });
}

static int ex_want(void *arg UNUSED, const struct msg_range *r, uint32_t n, bool last)
{
	static struct msg m;

	m = (struct msg){ .type = MSG_WANT };
	m.want.flags = last ? MSG_WANT_LAST : 0;
	m.want.n = n;
	memcpy(m.want.ranges, r, n * sizeof(*r));
	if (last)
		tell_phase(CTL_PHASE_INDEXED, 0, 0);
	return call(&m, CALL_WANT, 0);
}

static int ex_done(void *arg UNUSED, const char *id, uint32_t records, uint64_t bytes)
{
	struct link_msg m = {
		.type = LINK_STAGED, .code = w.exit_status, .records = records, .bytes = bytes
	};

	(void)snprintf(w.set_id, sizeof(w.set_id), "%s", id);
	(void)snprintf(m.id, sizeof(m.id), "%s", id);
	w.set_records = records;
	w.set_bytes = bytes;
	w.stage = ST_PUBLISH;
	loop_timer_del(w.l, &w.timer);
	return link_send(w.mon_fd, &m);
}

static void on_silence(void *arg UNUSED)
{
	struct err e = { 0 };

	if (w.disk_fd >= 0 && w.ex && export_asked(w.ex)) {
		log_warn("cloche-disk does not answer: the files are fetched from the guest");
		disk_gone();
		if (!w.failed)
			arm_silence();
		return;
	}
	err_set(&e, -ETIMEDOUT, "the guest was silent for %u s while its changes were taken out",
	        w.silence_ms / 1000);
	fail(&e);
}

/* Only what brings the change set forward arms it again, so it cannot be put off for ever. */
static void arm_silence(void)
{
	loop_timer_set(w.l, &w.timer, w.silence_ms, on_silence, NULL);
}

static void start_export(void)
{
	struct export_ops ops = { .ask_hash = ex_ask, .want = ex_want, .done = ex_done };
	struct export_opts o = {
		.staging_fd = w.staging_fd,
		.manifest = w.map ? &w.manifest : NULL,
		.records_max = (uint32_t)w.records_max,
		.bytes_max = w.content_max,
		.recovered = w.recover,
		.id = w.sandbox, /* one run, one set; what else it is, the monitor says */
	};
	struct err e = { 0 };

	w.stage = ST_EXPORT;
	forward_close(w.fwd); /* their servers end now */
	int r = export_new(&w.ex, &o, &ops, &e);
	if (r < 0) {
		fail(&e);
		return;
	}
	struct msg m = { .type = MSG_EXPORT };
	m.export.channel = EXPORT_CHANNEL;
	m.export.records_max = (uint32_t)w.records_max;
	m.export.bytes_max = w.content_max;
	r = mux_open(w.guest.mux, EXPORT_CHANNEL);
	if (r == 0)
		r = call(&m, CALL_EXPORT, EXPORT_CHANNEL);
	if (r < 0) {
		err_code(&e, r, "cannot ask the guest for its changes");
		fail(&e);
		return;
	}
	arm_silence();
}

static int finish_run(int exit_status)
{
	if (w.finishing)
		return 0;
	w.finishing = true;
	w.exit_status = exit_status;
	if (w.stage == ST_UP) {
		if (w.ran || w.recover) {
			start_export();
			return 0;
		}
		struct link_msg m = { .type = LINK_UNCHANGED };
		(void)link_send(w.mon_fd, &m);
		tell(&(struct ctl){ .type = CTL_STAGED });
		power_off();
		return 0;
	}
	if (w.stage < ST_UP) { /* nothing ran, so nothing can be lost */
		struct err e = { 0 };
		err_set(&e, -ECANCELED, "interrupted before the microVM was ready");
		fail(&e);
	}
	return 0;
}

/* ---- setup -------------------------------------------------------------- */

/* The guest takes them in their order: the root is mounted before it. */
static void setup_net(void)
{
	static struct msg m;

	if (!w.net_address)
		return;
	m = (struct msg){ .type = MSG_NET };
	m.net.address = w.net_address;
	m.net.gateway = m.net.dns = NET_GATEWAY;
	m.net.prefix = NET_PREFIX;
	m.net.mtu = NET_MTU;
	m.net.n_search = w.n_search;
	for (uint32_t i = 0; i < w.n_search; i++)
		m.net.search[i] = span_str(w.search[i]);
	must_call(&m, CALL_SETUP);
	if (!w.net_test)
		return;
	m = (struct msg){ .type = MSG_NET_TEST };
	must_call(&m, CALL_NET_TEST);
}

static void setup_guest(void)
{
	static uint8_t seed[MSG_ENTROPY_MAX];
	struct timespec ts;
	struct msg m = { .type = MSG_CLOCK };

	w.stage = ST_SETUP;
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	m.clock.realtime_ns = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
	must_call(&m, CALL_SETUP);
	random_bytes(seed, sizeof(seed));
	m = (struct msg){ .type = MSG_ENTROPY };
	m.entropy.bytes = span_of(seed, sizeof(seed));
	must_call(&m, CALL_SETUP);
	explicit_bzero(seed, sizeof(seed));
	m = (struct msg){ .type = MSG_SETUP };
	m.setup.hostname = span_str(w.hostname);
	m.setup.flags = w.sudo ? MSG_SETUP_SUDO : 0;
	m.setup.tmp_bytes = w.tmp_bytes;
	m.setup.sync_ms = SYNC_MS;
	must_call(&m, CALL_SETUP);
	m = (struct msg){ .type = MSG_MOUNT_ROOT };
	m.mount_root.n_layers = w.n_layers;
	for (uint32_t i = 0; i < w.n_layers; i++)
		m.mount_root.layers[i] = span_str(w.layers[i]);
	m.mount_root.scratch = span_str("scratch");
	must_call(&m, CALL_SETUP);
	if (w.user) {
		m = (struct msg){ .type = MSG_ACCOUNT };
		m.account.user = span_str(w.user);
		m.account.home = span_str(w.home ? w.home : "");
		must_call(&m, CALL_SETUP);
	}
	setup_net();
}

static void on_mon_scanned(void);

static void maybe_mount_work(void)
{
	static struct msg m;

	if (w.stage != ST_SETUP || !w.scanned || w.work_sent || w.failed)
		return;
	w.work_sent = true;
	m = (struct msg){ .type = MSG_MOUNT_WORK };
	m.mount_work.disk = span_str("work");
	m.mount_work.n_projects = w.n_projects;
	for (uint32_t i = 0; i < w.n_projects; i++)
		m.mount_work.projects[i] = span_str(w.projects[i]);
	must_call(&m, CALL_LAST_SETUP);
}

/* Nothing of the agent runs in a network that was not seen to hold. */
static void maybe_up(void)
{
	if (!w.mounted || w.stage != ST_SETUP || w.failed ||
	    (w.net_address && w.net_test && !w.net_proven))
		return;
	w.stage = ST_UP;
	loop_timer_del(w.l, &w.timer); /* the ready deadline was met */
	if (w.recover || w.finishing) {
		w.finishing = false;
		(void)finish_run(-1);
		return;
	}
	tell(&(struct ctl){ .type = CTL_UP });
}

static void on_mounted(void)
{
	w.mounted = true;
	tell_phase(CTL_PHASE_MOUNTED, 0, 0);
	maybe_up();
}

static void on_net_tested(int code, const char *text)
{
	struct err e = { 0 };

	if (code < 0) {
		err_set(&e, code, "the sandbox's network does not hold, so nothing was run: %s",
		        text);
		err_hint(&e, "--network offline runs without one");
		fail(&e);
		return;
	}
	w.net_proven = true;
	log_info("the network's self-test passed");
	maybe_up();
}

static void on_ready_deadline(void *arg UNUSED)
{
	struct err e = { 0 };

	err_set(&e, -ETIMEDOUT, "the microVM was not ready within %u s", w.ready_ms / 1000);
	err_hint(&e, "see the log; a slow machine may need --ready-timeout SECONDS");
	fail(&e);
}

static void arm_ready(void)
{
	loop_timer_set(w.l, &w.timer, w.ready_ms, on_ready_deadline, NULL);
}

/* ---- from the guest ----------------------------------------------------- */

static unsigned guest_state(void)
{
	switch (w.stage) {
	case ST_BOOT:
		return MSG_STATE_START | MSG_STATE_BARE;
	case ST_SETUP:
		return MSG_STATE_BARE | MSG_STATE_ROOT | MSG_STATE_WORK;
	case ST_UP:
		return MSG_STATE_WORK;
	case ST_EXPORT:
	case ST_PUBLISH:
		return MSG_STATE_WORK | MSG_STATE_FROZEN;
	case ST_OFF:
		return MSG_STATE_WORK | MSG_STATE_FROZEN | MSG_STATE_OFF | MSG_STATE_ROOT |
		       MSG_STATE_BARE;
	}
	return 0;
}

static int on_done(const struct msg *m)
{
	struct call *c = NULL;
	char text[600];

	for (size_t i = 0; i < CALLS_MAX && !c; i++) {
		if (w.calls[i].kind != CALL_NONE && w.calls[i].seq == m->done.ref)
			c = &w.calls[i];
	}
	if (!c)
		return -EPROTO; /* an answer to nothing */
	struct call was = *c;
	*c = (struct call){ 0 };
	int code = m->done.code;
	if (code > 0 || code < -4095)
		return -EPROTO;
	(void)vis_str(text, sizeof(text), m->done.text);
	for (size_t i = 0; i < CALLS_MAX && was.kind == CALL_LAST_SETUP; i++) {
		if (w.calls[i].kind == CALL_SETUP)
			return -EPROTO; /* mounted, and yet not set up */
	}
	if (w.stage == ST_EXPORT && (was.kind == CALL_EXPORT || was.kind == CALL_WANT))
		arm_silence();
	switch (was.kind) {
	case CALL_EXEC:
		if (!w.chans[was.channel].open)
			return -EPROTO;
		tell(&(struct ctl){ .type = CTL_STARTED,
		                    .started = { .channel = was.channel,
		                                 .code = code,
		                                 .text = m->done.text } });
		if (code < 0) {
			chan_done(was.channel);
			return 0;
		}
		tell_phase(CTL_PHASE_STARTED, 0, 0);
		/* gone: said by the monitor */
		(void)to_disk(&(struct disk_msg){ .type = DISK_FREEZE, .on = 1 });
		w.chans[was.channel].started = true;
		for (uint8_t s = FRAME_OUT; s <= FRAME_ERR; s++) {
			int r = pump(was.channel, s); /* what came before this message */
			if (r < 0)
				return r;
		}
		return 0;
	case CALL_LAST_SETUP:
	case CALL_SETUP:
	case CALL_EXPORT:
	case CALL_WANT:
		if (code < 0) {
			struct err e = { 0 };
			if (was.kind == CALL_EXPORT && (code == -EFBIG || code == -ENAMETOOLONG)) {
				err_set(&e, code, "the changes are beyond a limit: %s", text);
				export_limit_hint(w.sandbox, code, &e);
			} else {
				err_set(&e, code, "the guest could not do its part: %s", text);
			}
			fail(&e);
		} else if (was.kind == CALL_LAST_SETUP) {
			on_mounted();
		} else if (was.kind != CALL_SETUP && w.stage == ST_EXPORT) {
			struct err e = { 0 };
			int r = export_answered(w.ex, &e);
			if (r < 0 && r != -EAGAIN)
				fail(&e);
		}
		return 0;
	case CALL_FILE:
		tell(&(struct ctl){ .type = CTL_FILED,
		                    .filed = { .code = code, .text = m->done.text } });
		return 0;
	case CALL_NET_TEST:
		on_net_tested(code, text);
		return 0;
	case CALL_CONNECT:
		return forward_answered(w.fwd, was.channel, code);
	case CALL_NONE:
	case CALL_OTHER:
		if (code < 0 && may(&w.logs, "lines of the guest"))
			log_warn("guest: %s", text);
		return 0;
	}
	return 0;
}

static int g_control(void *arg UNUSED, struct span in)
{
	static struct msg m; /* too big for the stack */
	char text[MSG_TEXT_MAX + 64];

	if (w.failed || w.guest_lied)
		return 0;
	int r = msg_parse(&m, in);
	if (r < 0)
		return r;
	const struct msg_rule *rule = msg_rule_find(m.type);
	if (!rule || !rule->from_guest || !(rule->states & guest_state()))
		return -EPROTO;
	switch (m.type) {
	case MSG_READY: {
		if (w.booted || m.ready.version != MSG_VERSION ||
		    m.ready.ready_ns < m.ready.init_ns)
			return -EPROTO;
		w.booted = true;
		struct link_msg lm = { .type = LINK_BOOTED };
		(void)link_send(w.mon_fd, &lm);
		log_info("guest kernel %s, %llu ms to PID 1, %llu ms to ready",
		         vis_str(text, sizeof(text), m.ready.kernel),
		         (unsigned long long)m.ready.init_ns / 1000000,
		         (unsigned long long)(m.ready.ready_ns - m.ready.init_ns) / 1000000);
		tell_phase(CTL_PHASE_BOOTED, m.ready.init_ns, m.ready.ready_ns - m.ready.init_ns);
		arm_ready(); /* progress: the deadline begins anew */
		setup_guest();
		maybe_mount_work();
		return 0;
	}
	case MSG_DONE:
		return on_done(&m);
	case MSG_EXITED: {
		struct chan *c = &w.chans[m.exited.channel];
		if (!c->started || c->exited)
			return -EPROTO;
		c->exited = true;
		c->exit = (struct ctl){ .type = CTL_EXITED,
			                .exited = { .channel = m.exited.channel,
			                            .by_signal = m.exited.by_signal,
			                            .code = m.exited.code,
			                            .oom = m.exited.oom } };
		for (uint8_t s = FRAME_OUT; s <= FRAME_ERR; s++) {
			c->eof[s] = true; /* the guest sends nothing more on this channel */
			r = pump(m.exited.channel, s);
			if (r < 0 || !c->open)
				return r;
		}
		maybe_exited(m.exited.channel);
		return 0;
	}
	case MSG_OOM:
		(void)snprintf(text, sizeof(text),
		               "the guest ran out of memory; its kernel ended '%.*s'",
		               (int)MIN(m.oom.process.len, (size_t)64),
		               (const char *)m.oom.process.p);
		tell_note(LOG_WARN, text);
		return 0;
	case MSG_LOG:
		if (may(&w.logs, "lines of the guest"))
			log_line(m.log.level <= LOG_DEBUG ? (enum log_level)m.log.level : LOG_DEBUG,
			         "guest: %s", vis_str(text, sizeof(text), m.log.text));
		return 0;
	default:
		return -EPROTO;
	}
}

static int g_data(void *arg UNUSED, uint16_t ch, uint8_t stream, struct span bytes)
{
	if (w.failed || w.guest_lied)
		return 0;
	if (forward_has(ch))
		return w.fwd ? forward_data(w.fwd, ch, stream, bytes) : -EPROTO;
	if (ch != EXPORT_CHANNEL)
		return take_data(ch, stream, bytes);
	struct err e = { 0 };
	if (!w.ex || stream != FRAME_OUT || w.stage != ST_EXPORT)
		return -EPROTO;
	arm_silence();
	int r = export_feed(w.ex, bytes, &e);
	if (r == -EAGAIN)
		port_stall(&w.guest, true); /* until cloche-disk has answered */
	else if (r < 0)
		return fail_now(&e);
	return mux_consumed(w.guest.mux, ch, stream, bytes.len);
}

static int g_eof(void *arg UNUSED, uint16_t ch, uint8_t stream)
{
	struct err e = { 0 };

	if (w.failed || w.guest_lied)
		return 0;
	if (forward_has(ch))
		return w.fwd ? forward_end(w.fwd, ch, stream, false) : -EPROTO;
	if (ch != EXPORT_CHANNEL)
		return take_eof(ch, stream);
	if (stream == FRAME_OUT && w.stage == ST_EXPORT) {
		err_set(&e, -EPROTO, "the guest ended its change set before it was complete");
		fail(&e);
	}
	return 0;
}

static int g_reset(void *arg UNUSED, uint16_t ch, uint8_t stream)
{
	if (w.failed || w.guest_lied)
		return 0;
	if (forward_has(ch))
		return w.fwd ? forward_end(w.fwd, ch, stream, true) : -EPROTO;
	if (ch != EXPORT_CHANNEL)
		return take_reset(&w.guest, ch, stream);
	/* streams of this channel that nobody uses end at once; its data must not be cut */
	return stream == FRAME_OUT && w.stage == ST_EXPORT ? -EPROTO : 0;
}

static int any_writable(void *arg UNUSED, uint16_t ch, uint8_t stream)
{
	if (forward_has(ch))
		return w.fwd ? forward_writable(w.fwd, ch) : 0;
	return ch == EXPORT_CHANNEL ? 0 : pump(ch, stream);
}

static void g_over(void *arg UNUSED, int code)
{
	struct err e = { 0 };

	if (w.stage == ST_OFF || w.failed) {
		tell_phase(CTL_PHASE_OFF, 0, 0);
		leave(w.failed ? 1 : 0);
		return;
	}
	if (w.stage == ST_PUBLISH) { /* its change set is complete: the monitor's answer counts */
		w.guest_lied = true;
		return;
	}
	if (code == 0 && w.stage == ST_BOOT)
		return; /* QEMU ended: the monitor knows why and says so */
	if (code == 0)
		err_set(&e, -EPIPE, "the microVM ended unexpectedly");
	else
		err_code(&e, code, "the guest broke the control protocol");
	fail(&e);
}

/* ---- from the client ---------------------------------------------------- */

static int c_exec(const struct ctl *c)
{
	uint16_t ch = c->exec.channel;
	struct link_msg lm = { .type = LINK_RUNNING };
	struct msg m = { .type = MSG_EXEC };

	if (w.stage != ST_UP || w.finishing || ch >= FORWARD_FIRST || w.chans[ch].open)
		return -EPROTO; /* FORWARD_FIRST and above are ours */
	if (!w.ran) {
		/* written down before the first command can change anything */
		(void)link_send(w.mon_fd, &lm);
		w.ran = true;
	}
	m.exec.channel = ch;
	m.exec.flags = (c->exec.flags & CTL_EXEC_PTY ? MSG_EXEC_PTY : 0) |
	               (c->exec.flags & CTL_EXEC_ROOT ? MSG_EXEC_ROOT : 0);
	m.exec.uid = m.exec.gid = c->exec.flags & CTL_EXEC_ROOT ? 0 : 1000;
	m.exec.login = c->exec.flags & CTL_EXEC_LOGIN ? 1 : 0;
	m.exec.rows = c->exec.rows;
	m.exec.cols = c->exec.cols;
	m.exec.cwd = c->exec.cwd;
	int r = mux_open(w.client.mux, ch);
	if (r == 0)
		r = mux_open(w.guest.mux, ch);
	if (r < 0)
		return r;
	w.chans[ch].open = true;
	return call(&m, CALL_EXEC, ch);
}

static int c_control(void *arg UNUSED, struct span in)
{
	static struct ctl c; /* too big for the stack */
	static struct msg m;

	if (w.failed)
		return 0;
	int r = ctl_parse(&c, in);
	if (r < 0)
		return r;
	switch (c.type) {
	case CTL_ARGS:
		if (w.stage != ST_UP)
			return -EPROTO;
		m = (struct msg){ .type = MSG_ARGS };
		m.args.is_env = c.args.is_env;
		m.args.n = c.args.n;
		memcpy(m.args.words, c.args.words, c.args.n * sizeof(c.args.words[0]));
		return call(&m, CALL_OTHER, 0);
	case CTL_FILE:
		if (w.stage != ST_UP)
			return -EPROTO;
		m = (struct msg){ .type = MSG_FILE,
			          .file = { .path = c.file.path,
			                    .mode = c.file.mode,
			                    .uid = c.file.uid,
			                    .gid = c.file.gid,
			                    .flags = c.file.flags,
			                    .bytes = c.file.bytes } };
		r = call(&m, CALL_FILE, 0);
		return r == -E2BIG ? -EPROTO : r; /* a path or flags that msg_put() refuses */
	case CTL_EXEC:
		return c_exec(&c);
	case CTL_RESIZE:
		if (c.resize.channel >= FORWARD_FIRST || !w.chans[c.resize.channel].open)
			return 0; /* it ended meanwhile */
		m = (struct msg){ .type = MSG_RESIZE };
		m.resize.channel = c.resize.channel;
		m.resize.rows = c.resize.rows;
		m.resize.cols = c.resize.cols;
		(void)!call(&m, CALL_OTHER, 0); /* busy: the next one will do */
		return 0;
	case CTL_SIGNAL:
		if (c.signal.channel >= FORWARD_FIRST || !w.chans[c.signal.channel].open)
			return 0;
		m = (struct msg){ .type = MSG_SIGNAL };
		m.signal.channel = c.signal.channel;
		m.signal.signo = c.signal.signo;
		r = call(&m, CALL_OTHER, 0);
		return r == -EBUSY ? 0 : r; /* dozens wait already: the guest does not listen */
	case CTL_FINISH:
		return finish_run(c.finish.exit_status);
	default:
		return -EPROTO;
	}
}

static int c_data(void *arg UNUSED, uint16_t ch, uint8_t stream, struct span bytes)
{
	return take_data(ch, stream, bytes);
}

static int c_eof(void *arg UNUSED, uint16_t ch, uint8_t stream)
{
	return take_eof(ch, stream);
}

static int c_reset(void *arg UNUSED, uint16_t ch, uint8_t stream)
{
	return take_reset(&w.client, ch, stream);
}

/* The client is gone (killed, or its terminal closed): nothing it made is lost. */
static void c_over(void *arg UNUSED, int code)
{
	if (code < 0)
		log_warn("client ended: %s", strerror(-code));
	w.has_client = false;
	for (uint16_t ch = 1; ch < EXPORT_CHANNEL; ch++) {
		if (!w.chans[ch].open)
			continue;
		w.chans[ch].eof[FRAME_IN] = true;
		for (uint8_t s = 0; s < FRAME_STREAMS && w.chans[ch].open; s++)
			(void)pump(ch, s); /* the guest's end is handled where it is read */
	}
	if (w.failed || w.stage == ST_OFF)
		return;
	(void)finish_run(-1);
}

/* ---- connections from the host ------------------------------------------ */

static bool fwd_ready(void *arg UNUSED)
{
	return w.stage == ST_UP && !w.finishing && !w.failed;
}

static int fwd_connect(void *arg UNUSED, uint16_t channel, uint16_t port)
{
	struct msg m = { .type = MSG_CONNECT, .connect = { .channel = channel, .port = port } };

	return call(&m, CALL_CONNECT, channel);
}

static void fwd_flush(void *arg UNUSED)
{
	if (w.guest.fd >= 0)
		port_flush(&w.guest);
}

/* ---- from cloche-disk, the monitor, QEMU -------------------------------- */

static void disk_gone(void)
{
	struct err e = { 0 };

	if (w.disk_fd < 0)
		return;
	loop_fd_del(w.l, &w.disk_src);
	auto_close_(&w.disk_fd);
	w.disk_fd = -1;
	if (w.failed)
		return;
	if (!w.scanned && w.stage < ST_UP) {
		err_set(&e, -EPIPE, "cloche-disk ended before it served the project");
		fail(&e);
		return;
	}
	if (!w.ex)
		return;
	if (export_no_hashes(w.ex, &e) < 0)
		fail(&e);
	else
		port_stall(&w.guest, false);
}

static void disk_lied(const char *how)
{
	log_error("cloche-disk %s: it is not listened to any more", how);
	disk_gone();
}

static void on_disk(void *arg UNUSED, uint32_t events UNUSED)
{
	static uint8_t b[DISK_MSG_MAX];
	struct err e = { 0 };
	struct disk_msg d;
	ssize_t k = fd_recv(w.disk_fd, b, sizeof(b), NULL, 0, NULL);
	int r;

	if (k == -EAGAIN)
		return;
	if (w.failed || k == 0) {
		disk_gone();
		return;
	}
	if (k < 0 || disk_msg_parse(&d, b, (size_t)k) < 0) {
		disk_lied("broke its protocol");
		return;
	}
	switch (d.type) {
	case DISK_READY_DONE:
		if (w.scanned) {
			disk_lied("was ready twice");
			return;
		}
		if (d.status == 0) {
			on_mon_scanned();
			return;
		}
		err_code(&e, d.status, "cloche-disk cannot serve the project");
		if (d.status == -ESTALE)
			err_set(&e, d.status,
			        "the project's folder was replaced while it was read");
		fail(&e);
		return;
	case DISK_HASH_DONE:
		if (!w.ex || !export_asked(w.ex)) {
			disk_lied("answered a question nobody asked");
			return;
		}
		r = export_hash(w.ex, d.entry, d.status, &d.hash, &e);
		if (r == -EAGAIN)
			return;
		if (r < 0)
			fail(&e);
		else
			port_stall(&w.guest, false);
		return;
	case DISK_CHANGED:
		if (may(&w.logs, "changes on the host"))
			log_warn("a project file was changed on the host before it was captured: "
			         "entry %u",
			         (unsigned)d.entry);
		return;
	case DISK_FREEZE_DONE:
		if (!may(&w.logs, "lines of cloche-disk"))
			return;
		if (d.status < 0)
			log_warn("the freeze of the project ended: %s", strerror(-d.status));
		else
			log_info("all project files are frozen");
		return;
	default:
		disk_lied("said what it must not");
		return;
	}
}

static void on_mon(void *arg UNUSED, uint32_t events UNUSED)
{
	struct link_msg m;
	int r = link_recv(w.mon_fd, &m);
	struct err e = { 0 };

	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		loop_stop(w.l, 1); /* no monitor, no sandbox */
		return;
	}
	switch (m.type) {
	case LINK_SPAWNED:
		tell_phase(CTL_PHASE_SPAWNED, 0, 0);
		return;
	case LINK_SCANNED:
		return; /* cloche-disk says when it serves the project */
	case LINK_OK:
		if (w.stage != ST_PUBLISH)
			return; /* of LINK_RUNNING */
		if (m.code < 0) {
			err_code(&e, m.code, "cannot publish the change set");
			fail(&e);
			return;
		}
		tell_phase(CTL_PHASE_STAGED, 0, 0);
		tell(&(struct ctl){ .type = CTL_STAGED,
		                    .staged = { .id = span_str(w.set_id),
		                                .records = w.set_records,
		                                .bytes = w.set_bytes } });
		power_off();
		return;
	case LINK_BROKEN:
		err_set(&e, m.code < 0 ? m.code : -EIO, "%s", m.text);
		if (m.hint[0])
			err_hint(&e, "%s", m.hint);
		if (w.stage == ST_OFF) {
			tell_phase(CTL_PHASE_OFF, 0, 0);
			leave(0);
			return;
		}
		if (w.stage == ST_PUBLISH)
			return; /* the change set is complete: LINK_OK comes */
		fail(&e);
		return;
	case LINK_DISK_GONE:
		if (!w.scanned) {
			err_set(&e, m.code < 0 ? m.code : -EIO, "%s", m.text);
			fail(&e);
			return;
		}
		if (w.stage < ST_EXPORT)
			tell_note(LOG_WARN,
			          "the process that serves the project's files ended; files "
			          "that were not read yet give errors from now on");
		disk_gone();
		return;
	case LINK_END:
		(void)finish_run(128 + SIGTERM);
		return;
	case LINK_NOTE:
		tell_note(m.code == LOG_INFO ? LOG_INFO : LOG_WARN, m.text);
		return;
	default:
		return;
	}
}

static void on_mon_scanned(void)
{
	struct err e = { 0 };
	struct stat st;

	w.scanned = true;
	tell_phase(CTL_PHASE_SCANNED, 0, 0);
	if (fstat(w.manifest_fd, &st) < 0 || st.st_size <= 0) {
		err_set(&e, -EIO, "the project's manifest is empty");
		fail(&e);
		return;
	}
	w.map_len = (size_t)st.st_size;
	w.map = mmap(NULL, w.map_len, PROT_READ, MAP_PRIVATE, w.manifest_fd, 0);
	if (w.map == MAP_FAILED) {
		w.map = NULL;
		err_errno(&e, "cannot read the project's manifest");
		fail(&e);
		return;
	}
	if (manifest_open(&w.manifest, span_of(w.map, w.map_len), &e) < 0) {
		fail(&e);
		return;
	}
	/* a small tree is copied or cloned while the guest boots: frozen from the start */
	if ((w.manifest.image_blocks - w.manifest.data_block) * 4096 <= SMALL_TREE_BYTES)
		(void)to_disk(&(struct disk_msg){ .type = DISK_FREEZE, .on = 1 });
	maybe_mount_work();
}

static void on_qmp_event(void *arg UNUSED, const struct qmp_msg *m)
{
	switch (m->event) {
	case QMP_EV_BLOCK_IO_ERROR:
		if (m->flag && !w.no_space) {
			w.no_space = true;
			tell_note(LOG_WARN,
			          "no space left on the host's disk: the sandbox is paused "
			          "until there is some");
			if (may(&w.logs, "lines of QEMU"))
				log_warn("no space left on the host: paused");
		}
		return;
	case QMP_EV_RESUME:
		w.no_space = false;
		return;
	case QMP_EV_GUEST_PANICKED:
		tell_note(LOG_ERROR, "the guest's kernel panicked");
		return;
	default:
		return;
	}
}

static struct loop_timer space_timer;

/* A paused guest goes on when the user has made room: just try, QEMU stops again if not. */
static void on_space_timer(void *arg UNUSED)
{
	if (w.no_space && w.qmp)
		(void)!qmp_cont(w.qmp, NULL, NULL);
	loop_timer_set(w.l, &space_timer, 2000, on_space_timer, NULL);
}

static void on_qmp_closed(void *arg UNUSED, int code)
{
	if (code < 0 && w.stage != ST_OFF)
		log_warn("QMP: %s", strerror(-code));
	qmp_free(w.qmp);
	w.qmp = NULL; /* QEMU's end itself is seen on the guest channel */
}

/* ---- main --------------------------------------------------------------- */

static const struct mux_ops guest_ops = { .control = g_control,
	                                  .data = g_data,
	                                  .eof = g_eof,
	                                  .reset = g_reset,
	                                  .writable = any_writable };
static const struct mux_ops client_ops = { .control = c_control,
	                                   .data = c_data,
	                                   .eof = c_eof,
	                                   .reset = c_reset,
	                                   .writable = any_writable };

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "guest", 1, 0, 'g' },      { "qmp", 1, 0, 'q' },
		{ "disk", 1, 0, 'd' },       { "monitor", 1, 0, 'm' },
		{ "client", 1, 0, 'c' },     { "staging", 1, 0, 's' },
		{ "manifest", 1, 0, 'f' },   { "log", 1, 0, 'l' },
		{ "sandbox", 1, 0, 'i' },    { "hostname", 1, 0, 'h' },
		{ "layer", 1, 0, 'L' },      { "project", 1, 0, 'P' },
		{ "tmp", 1, 0, 't' },        { "content", 1, 0, 'S' },
		{ "ready-ms", 1, 0, 'r' },   { "records", 1, 0, 'R' },
		{ "silence-ms", 1, 0, 'T' }, /* of the guest during the export; for tests */
		{ "recover", 0, 0, 'x' },    { "sudo", 0, 0, 'u' },
		{ "debug", 0, 0, 'D' },      { "uid", 1, 0, 'U' },
		{ "relay", 1, 0, 'y' },      { "net", 1, 0, 'n' }, /* the guest's address */
		{ "net-test", 0, 0, 'N' },   { "search", 1, 0, 'e' },
		{ "user", 1, 0, 'a' }, /* USER of the image */
		{ "home", 1, 0, 'H' },       { 0 },
	};
	int guest = -1, qmp = -1, client = -1, log_fd = -1, relay = -1, c;
	enum log_level level = LOG_INFO;
	uid_t uid = 0;
	struct err e = { 0 };

	w.disk_fd = w.mon_fd = w.staging_fd = w.manifest_fd = -1;
	w.disk_src.fd = w.mon_src.fd = -1;
	w.hostname = "cloche";
	w.sandbox = "";
	w.records_max = CHANGE_RECORDS_DEFAULT;
	w.exit_status = -1;
	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 'g':
			guest = atoi(optarg);
			break;
		case 'q':
			qmp = atoi(optarg);
			break;
		case 'd':
			w.disk_fd = atoi(optarg);
			break;
		case 'm':
			w.mon_fd = atoi(optarg);
			break;
		case 'c':
			client = atoi(optarg);
			break;
		case 's':
			w.staging_fd = atoi(optarg);
			break;
		case 'f':
			w.manifest_fd = atoi(optarg);
			break;
		case 'l':
			log_fd = atoi(optarg);
			break;
		case 'i':
			w.sandbox = optarg;
			break;
		case 'h':
			w.hostname = optarg;
			break;
		case 'a':
			w.user = optarg;
			break;
		case 'H':
			w.home = optarg;
			break;
		case 'L':
			ASSERT(w.n_layers < MSG_LAYERS_MAX);
			w.layers[w.n_layers++] = optarg;
			break;
		case 'P':
			ASSERT(w.n_projects < MSG_PROJECTS_MAX);
			w.projects[w.n_projects++] = optarg;
			break;
		case 't':
			w.tmp_bytes = strtoull(optarg, NULL, 10);
			break;
		case 'S':
			w.content_max = strtoull(optarg, NULL, 10);
			break;
		case 'r':
			w.ready_ms = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'T':
			w.silence_ms = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'R':
			w.records_max = strtoull(optarg, NULL, 10);
			break;
		case 'x':
			w.recover = true;
			break;
		case 'u':
			w.sudo = true;
			break;
		case 'D':
			level = LOG_DEBUG;
			break;
		case 'U':
			uid = (uid_t)strtoul(optarg, NULL, 10);
			break;
		case 'y':
			relay = atoi(optarg);
			break;
		case 'n':
			if (ip4_parse(&w.net_address, span_str(optarg)) < 0)
				return 2;
			break;
		case 'N':
			w.net_test = true;
			break;
		case 'e':
			ASSERT(w.n_search < NET_SEARCH_MAX);
			w.search[w.n_search++] = optarg;
			break;
		default:
			return 2;
		}
	}
	if (guest < 0 || w.mon_fd < 0 || w.staging_fd < 0 || w.manifest_fd < 0)
		return 2;
	log_open(log_fd, "cloche-worker", w.sandbox, level);
	(void)signal(SIGPIPE, SIG_IGN);
	for (int fd = 3; fd < 64; fd++)
		(void)!fd_set_cloexec(fd, true); /* EBADF: not open */
	tzset();
	w.l = loop_new();
	if (!w.l)
		return 1;

	/* everything below reads bytes from outside */
	struct cage_fs fs[] = { { .fd = w.staging_fd, .access = CAGE_FS_READ | CAGE_FS_WRITE } };
	unsigned layers = 0;
	struct cage_opts co = {
		.role = CAGE_WORKER, .fs = fs, .n_fs = 1, .uid = uid, .out_layers = &layers
	};
	if (cage_enter(&co, &e) < 0) {
		log_error("%s", e.text);
		struct link_msg m = link_err(LINK_FAILED, &e);
		(void)link_send(w.mon_fd, &m);
		return 1;
	}
	log_debug("cage: %s", cage_layers_str((char[128]){ 0 }, 128, layers));
	bool ok = port_init(&w.guest, w.l, guest, MUX_HOST, &guest_ops, g_over, NULL) == 0;
	if (client >= 0) {
		ok = ok &&
		     port_init(&w.client, w.l, client, MUX_GUEST, &client_ops, c_over, NULL) == 0;
		w.has_client = true;
	}
	ok = ok && fd_set_nonblock(w.mon_fd, true) == 0 &&
	     loop_fd_add(w.l, &w.mon_src, w.mon_fd, EPOLLIN, on_mon, NULL) == 0;
	struct forward_ops fo = { .ready = fwd_ready, .connect = fwd_connect, .flush = fwd_flush };
	if (relay >= 0)
		ok = ok && fd_set_nonblock(relay, true) == 0 &&
		     forward_new(&w.fwd, w.l, w.guest.mux, relay, &fo) == 0;
	if (w.disk_fd >= 0)
		ok = ok && fd_set_nonblock(w.disk_fd, true) == 0 &&
		     loop_fd_add(w.l, &w.disk_src, w.disk_fd, EPOLLIN, on_disk, NULL) == 0;
	struct qmp_handlers qh = { .event = on_qmp_event, .closed = on_qmp_closed };
	ok = ok && fd_set_nonblock(qmp, true) == 0 && qmp_new(&w.qmp, w.l, qmp, &qh) == 0;
	if (!ok)
		return 1;
	arm_ready();
	loop_timer_set(w.l, &space_timer, 2000, on_space_timer, NULL);
	struct msg hello = { .type = MSG_HELLO };
	hello.hello.version = MSG_VERSION;
	must_call(&hello, CALL_OTHER);
	int r = loop_run(w.l);
	forward_free(w.fwd);
	export_free(w.ex); /* an unfinished set is removed */
	return r < 0 ? 1 : r;
}
