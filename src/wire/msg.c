/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each message is described once: fields() walks it with a cursor that either
 * reads or writes, and judges every value in both directions, so what one end
 * can say is exactly what the other accepts.
 */
#include "wire/msg.h"

#include <errno.h>

#include "base/log.h"
#include "base/path.h"
#include "wire/frame.h"

_Static_assert((int)MSG_BYTES_MAX == (int)FRAME_PAYLOAD_MAX, "one message fits one frame");

enum {
	HEAD = 2 + 4, /* type, sequence */
	STR = 2,      /* length of a string */
	SERIAL_MAX = 20,
	HOSTNAME_MAX = 64,
	SYNC_MS_MAX = 3600 * 1000,
	SIGNO_MAX = 64,
	ERRNO_MAX = 4095,
	MODE_MAX = 07777,
	PATH_ABS_MAX = 4095,
	KERNEL_MAX = 64,
	PROCESS_MAX = 64,
};

enum {
	ST_UP = MSG_STATE_BARE | MSG_STATE_ROOT | MSG_STATE_WORK | MSG_STATE_FROZEN,
	ST_RUN = MSG_STATE_ROOT | MSG_STATE_WORK,
	ST_ANY = MSG_STATE_START | ST_UP | MSG_STATE_OFF,
};

#define HOST false
#define GUEST true

const struct msg_rule msg_rules[] = {
	{ MSG_HELLO, "HELLO", HOST, MSG_STATE_START, HEAD + 4, HEAD + 4 },
	{ MSG_CLOCK, "CLOCK", HOST, ST_UP, HEAD + 8, HEAD + 8 },
	{ MSG_ENTROPY, "ENTROPY", HOST, ST_UP, HEAD + STR + MSG_ENTROPY_MIN,
	  HEAD + STR + MSG_ENTROPY_MAX },
	{ MSG_SETUP, "SETUP", HOST, MSG_STATE_BARE | MSG_STATE_ROOT, HEAD + STR + 1 + 20,
	  HEAD + STR + HOSTNAME_MAX + 20 },
	{ MSG_MOUNT_ROOT, "MOUNT_ROOT", HOST, MSG_STATE_BARE, HEAD + 1 + 2 * (STR + 1),
	  HEAD + 1 + (MSG_LAYERS_MAX + 1) * (STR + SERIAL_MAX) },
	{ MSG_MOUNT_WORK, "MOUNT_WORK", HOST, MSG_STATE_ROOT, HEAD + STR + 1 + 1 + STR + 1,
	  HEAD + STR + SERIAL_MAX + 1 + MSG_PROJECTS_MAX *(STR + PATH_NAME_MAX) },
	{ MSG_FILE, "FILE", HOST, ST_RUN, HEAD + STR + 2 + 16 + STR,
	  HEAD + STR + PATH_ABS_MAX + 16 + STR + MSG_FILE_CHUNK_MAX },
	{ MSG_ARGS, "ARGS", HOST, ST_RUN, HEAD + 1 + 2 + STR, MSG_BYTES_MAX },
	{ MSG_EXEC, "EXEC", HOST, ST_RUN, HEAD + 14 + STR + 1 + 5,
	  HEAD + 14 + STR + PATH_ABS_MAX + 5 },
	{ MSG_RESIZE, "RESIZE", HOST, ST_RUN | MSG_STATE_FROZEN, HEAD + 6, HEAD + 6 },
	{ MSG_SIGNAL, "SIGNAL", HOST, ST_RUN | MSG_STATE_FROZEN, HEAD + 3, HEAD + 3 },
	{ MSG_EXPORT, "EXPORT", HOST, MSG_STATE_WORK, HEAD + 14, HEAD + 14 },
	{ MSG_WANT, "WANT", HOST, MSG_STATE_FROZEN, HEAD + 6, HEAD + 6 + 8 * MSG_WANT_MAX },
	{ MSG_THAW, "THAW", HOST, MSG_STATE_FROZEN, HEAD, HEAD },
	{ MSG_SYNC, "SYNC", HOST, ST_RUN | MSG_STATE_FROZEN, HEAD, HEAD },
	{ MSG_POWEROFF, "POWEROFF", HOST, MSG_STATE_START | ST_UP, HEAD, HEAD },
	{ MSG_NET, "NET", HOST, ST_RUN, HEAD + 16,
	  HEAD + 16 + MSG_SEARCH_MAX *(STR + MSG_DOMAIN_MAX) },
	{ MSG_NET_TEST, "NET_TEST", HOST, ST_RUN, HEAD, HEAD },
	{ MSG_CONNECT, "CONNECT", HOST, ST_RUN, HEAD + 4, HEAD + 4 },
	{ MSG_ACCOUNT, "ACCOUNT", HOST, MSG_STATE_ROOT, HEAD + 2 * STR,
	  HEAD + 2 * STR + MSG_USER_MAX + PATH_ABS_MAX },
	{ MSG_READY, "READY", GUEST, MSG_STATE_START, HEAD + 4 + STR + 1 + 16,
	  HEAD + 4 + STR + KERNEL_MAX + 16 },
	{ MSG_DONE, "DONE", GUEST, ST_ANY, HEAD + 8 + STR, HEAD + 8 + STR + MSG_TEXT_MAX },
	{ MSG_EXITED, "EXITED", GUEST, ST_RUN | MSG_STATE_FROZEN, HEAD + 5, HEAD + 5 },
	{ MSG_OOM, "OOM", GUEST, ST_RUN | MSG_STATE_FROZEN, HEAD + STR, HEAD + STR + PROCESS_MAX },
	{ MSG_LOG, "LOG", GUEST, ST_ANY, HEAD + 1 + STR, HEAD + 1 + STR + MSG_TEXT_MAX },
};
const size_t msg_rules_count = ARRAY_LEN(msg_rules);

const struct msg_rule *msg_rule_find(unsigned type)
{
	for (size_t i = 0; i < msg_rules_count; i++) {
		if (msg_rules[i].type == type)
			return &msg_rules[i];
	}
	return NULL;
}

struct io {
	bool put;
	bool bad;
	struct rd r;
	struct wr w;
};

static void check(struct io *io, bool ok)
{
	if (!ok)
		io->bad = true;
}

static uint64_t num(struct io *io, uint64_t v, size_t n)
{
	if (io->put) {
		wr_le(&io->w, v, n);
		return v;
	}
	return rd_le(&io->r, n);
}

static void u8(struct io *io, uint8_t *v, unsigned max)
{
	uint8_t got = (uint8_t)num(io, *v, 1);

	if (!io->put)
		*v = got;
	check(io, got <= max);
}

static void u16(struct io *io, uint16_t *v)
{
	uint16_t got = (uint16_t)num(io, *v, 2);

	if (!io->put)
		*v = got;
}

static void u32(struct io *io, uint32_t *v, uint32_t max)
{
	uint32_t got = (uint32_t)num(io, *v, 4);

	if (!io->put)
		*v = got;
	check(io, got <= max);
}

static void u64(struct io *io, uint64_t *v)
{
	uint64_t got = num(io, *v, 8);

	if (!io->put)
		*v = got;
}

static void bytes(struct io *io, struct span *v, size_t min, size_t max)
{
	if (io->put) {
		check(io, v->len <= max);
		if (!io->bad)
			wr_blob(&io->w, *v, STR);
	} else {
		*v = rd_blob(&io->r, STR, max);
	}
	check(io, v->len >= min);
}

/* Bytes that become a C string: no NUL. */
static void string(struct io *io, struct span *v, size_t min, size_t max)
{
	bytes(io, v, min, max);
	if (!io->bad && v->len)
		check(io, !memchr(v->p, 0, v->len));
}

/* A word of a configuration file of the guest. */
static void domain(struct io *io, struct span *v)
{
	bytes(io, v, 1, MSG_DOMAIN_MAX);
	for (size_t i = 0; !io->bad && i < v->len; i++)
		check(io, v->p[i] > ' ' && v->p[i] <= '~');
}

static void name(struct io *io, struct span *v)
{
	string(io, v, 1, PATH_NAME_MAX);
	if (!io->bad)
		check(io, path_name_ok(*v));
}

static void channel(struct io *io, uint16_t *v)
{
	u16(io, v);
	check(io, *v >= 1 && *v < FRAME_CHANNELS_MAX);
}

static void args(struct io *io, struct msg *m)
{
	uint16_t n = (uint16_t)m->args.n;

	u8(io, &m->args.is_env, 1);
	check(io, !io->put || (m->args.n >= 1 && m->args.n <= MSG_ARGS_MAX));
	u16(io, &n);
	check(io, n >= 1 && n <= MSG_ARGS_MAX);
	if (!io->put)
		m->args.n = n;
	for (size_t i = 0; i < n && !io->bad; i++) {
		struct span *w = &m->args.words[i];
		string(io, w, m->args.is_env ? 2 : 0, MSG_STRING_MAX);
		/* NAME=value */
		if (m->args.is_env && !io->bad)
			check(io, w->p[0] != '=' && memchr(w->p, '=', w->len));
		check(io, !io->r.bad && !io->w.bad);
	}
}

static void want(struct io *io, struct msg *m)
{
	uint16_t n = (uint16_t)m->want.n;

	u32(io, &m->want.flags, MSG_WANT_LAST);
	check(io, !io->put || m->want.n <= MSG_WANT_MAX);
	u16(io, &n);
	check(io, n <= MSG_WANT_MAX);
	if (!io->put)
		m->want.n = n;
	uint64_t next = 0; /* ranges ascend and do not touch, so each has one form only */
	for (size_t i = 0; i < n && !io->bad; i++) {
		struct msg_range *r = &m->want.ranges[i];
		u32(io, &r->first, UINT32_MAX);
		u32(io, &r->count, UINT32_MAX);
		uint64_t end = (uint64_t)r->first + r->count;
		check(io, r->count >= 1 && r->first >= next && end <= UINT32_MAX);
		next = end + 1;
	}
}

static void net(struct io *io, struct msg *m)
{
	uint8_t n = (uint8_t)m->net.n_search;

	u32(io, &m->net.address, UINT32_MAX);
	u32(io, &m->net.gateway, UINT32_MAX);
	u32(io, &m->net.dns, UINT32_MAX);
	u8(io, &m->net.prefix, 30);
	u16(io, &m->net.mtu);
	check(io, m->net.prefix >= 1 && m->net.mtu >= MSG_MTU_MIN);
	check(io, !io->put || m->net.n_search <= MSG_SEARCH_MAX);
	u8(io, &n, MSG_SEARCH_MAX);
	if (!io->put)
		m->net.n_search = n;
	for (size_t i = 0; i < n && !io->bad; i++)
		domain(io, &m->net.search[i]);
}

static void fields(struct io *io, struct msg *m)
{
	uint8_t n;

	switch ((enum msg_type)m->type) {
	case MSG_HELLO:
		u32(io, &m->hello.version, UINT32_MAX);
		break;
	case MSG_CLOCK: {
		uint64_t v = (uint64_t)m->clock.realtime_ns;
		u64(io, &v);
		check(io, v <= INT64_MAX);
		if (!io->put)
			m->clock.realtime_ns = (int64_t)v;
		break;
	}
	case MSG_ENTROPY:
		bytes(io, &m->entropy.bytes, MSG_ENTROPY_MIN, MSG_ENTROPY_MAX);
		break;
	case MSG_SETUP: {
		uint32_t tz = (uint32_t)m->setup.tz_reserved;
		string(io, &m->setup.hostname, 1, HOSTNAME_MAX);
		u32(io, &m->setup.flags, MSG_SETUP_SUDO);
		u64(io, &m->setup.tmp_bytes);
		u32(io, &m->setup.sync_ms, SYNC_MS_MAX);
		u32(io, &tz, 0);
		if (!io->put)
			m->setup.tz_reserved = 0;
		break;
	}
	case MSG_MOUNT_ROOT:
		n = (uint8_t)m->mount_root.n_layers;
		check(io, !io->put || (m->mount_root.n_layers >= 1 &&
		                       m->mount_root.n_layers <= MSG_LAYERS_MAX));
		u8(io, &n, MSG_LAYERS_MAX);
		check(io, n >= 1);
		if (!io->put)
			m->mount_root.n_layers = n;
		for (size_t i = 0; i < n && !io->bad; i++)
			string(io, &m->mount_root.layers[i], 1, SERIAL_MAX);
		string(io, &m->mount_root.scratch, 1, SERIAL_MAX);
		break;
	case MSG_MOUNT_WORK:
		n = (uint8_t)m->mount_work.n_projects;
		string(io, &m->mount_work.disk, 1, SERIAL_MAX);
		check(io, !io->put || (m->mount_work.n_projects >= 1 &&
		                       m->mount_work.n_projects <= MSG_PROJECTS_MAX));
		u8(io, &n, MSG_PROJECTS_MAX);
		check(io, n >= 1);
		if (!io->put)
			m->mount_work.n_projects = n;
		for (size_t i = 0; i < n && !io->bad; i++)
			name(io, &m->mount_work.projects[i]);
		break;
	case MSG_FILE:
		string(io, &m->file.path, 2, PATH_ABS_MAX);
		if (!io->bad)
			check(io, m->file.path.p[0] == '/' &&
			                  path_check(span_of(m->file.path.p + 1,
			                                     m->file.path.len - 1)) > 0);
		u32(io, &m->file.mode, MODE_MAX);
		u32(io, &m->file.uid, INT32_MAX);
		u32(io, &m->file.gid, INT32_MAX);
		u32(io, &m->file.flags,
		    MSG_FILE_APPEND | MSG_FILE_DIR | MSG_FILE_EXTEND | MSG_FILE_KEEP);
		bytes(io, &m->file.bytes, 0, MSG_FILE_CHUNK_MAX);
		/* a directory has no content and is made at once */
		if (m->file.flags & MSG_FILE_DIR)
			check(io, m->file.flags == MSG_FILE_DIR && m->file.bytes.len == 0);
		check(io, m->file.flags != (MSG_FILE_APPEND | MSG_FILE_EXTEND));
		check(io, !(m->file.flags & MSG_FILE_KEEP) || m->file.flags == MSG_FILE_KEEP);
		break;
	case MSG_ARGS:
		args(io, m);
		break;
	case MSG_EXEC:
		channel(io, &m->exec.channel);
		u32(io, &m->exec.flags, MSG_EXEC_PTY | MSG_EXEC_ROOT);
		u32(io, &m->exec.uid, INT32_MAX);
		u32(io, &m->exec.gid, INT32_MAX);
		string(io, &m->exec.cwd, 1, PATH_ABS_MAX);
		if (!io->bad)
			check(io, m->exec.cwd.p[0] == '/');
		u16(io, &m->exec.rows);
		u16(io, &m->exec.cols);
		u8(io, &m->exec.login, 1);
		break;
	case MSG_ACCOUNT:
		string(io, &m->account.user, 0, MSG_USER_MAX);
		string(io, &m->account.home, 0, PATH_ABS_MAX);
		if (!io->bad && m->account.home.len)
			check(io, m->account.home.p[0] == '/' &&
			                  path_check(span_of(m->account.home.p + 1,
			                                     m->account.home.len - 1)) > 0);
		break;
	case MSG_RESIZE:
		channel(io, &m->resize.channel);
		u16(io, &m->resize.rows);
		u16(io, &m->resize.cols);
		break;
	case MSG_SIGNAL:
		channel(io, &m->signal.channel);
		u8(io, &m->signal.signo, SIGNO_MAX);
		check(io, m->signal.signo >= 1);
		break;
	case MSG_EXPORT:
		channel(io, &m->export.channel);
		u32(io, &m->export.records_max, UINT32_MAX);
		u64(io, &m->export.bytes_max);
		break;
	case MSG_WANT:
		want(io, m);
		break;
	case MSG_THAW:
	case MSG_SYNC:
	case MSG_POWEROFF:
	case MSG_NET_TEST:
		break;
	case MSG_NET:
		net(io, m);
		break;
	case MSG_CONNECT:
		channel(io, &m->connect.channel);
		u16(io, &m->connect.port);
		check(io, m->connect.port >= 1);
		break;
	case MSG_READY:
		u32(io, &m->ready.version, UINT32_MAX);
		string(io, &m->ready.kernel, 1, KERNEL_MAX);
		u64(io, &m->ready.init_ns);
		u64(io, &m->ready.ready_ns);
		break;
	case MSG_DONE: {
		uint32_t code = (uint32_t) - (int64_t)m->done.code; /* sent as errno */
		u32(io, &m->done.ref, UINT32_MAX);
		u32(io, &code, ERRNO_MAX);
		if (!io->put && !io->bad)
			m->done.code = -(int32_t)code;
		bytes(io, &m->done.text, 0, MSG_TEXT_MAX);
		check(io, code != 0 || m->done.text.len == 0);
		break;
	}
	case MSG_EXITED:
		channel(io, &m->exited.channel);
		u8(io, &m->exited.by_signal, 1);
		u8(io, &m->exited.code, UINT8_MAX);
		u8(io, &m->exited.oom, 1);
		check(io,
		      !m->exited.by_signal || (m->exited.code >= 1 && m->exited.code <= SIGNO_MAX));
		break;
	case MSG_OOM:
		bytes(io, &m->oom.process, 0, PROCESS_MAX);
		break;
	case MSG_LOG:
		u8(io, &m->log.level, LOG_DEBUG);
		bytes(io, &m->log.text, 0, MSG_TEXT_MAX);
		break;
	default:
		io->bad = true;
	}
}

int msg_parse(struct msg *out, struct span in)
{
	struct io io = { .r = rd_of(in.p, in.len) };

	/* members that fields() does not name stay as they are: only those of the type count */
	out->type = (uint16_t)rd_le(&io.r, 2);
	out->seq = (uint32_t)rd_le(&io.r, 4);
	const struct msg_rule *rule = msg_rule_find(out->type);
	if (io.r.bad || !rule || in.len < rule->min_bytes || in.len > rule->max_bytes)
		return -EPROTO;
	fields(&io, out);
	if (io.bad || io.r.bad || io.r.left != 0)
		return -EPROTO;
	return 0;
}

size_t msg_put(uint8_t *dst, size_t cap, const struct msg *m)
{
	size_t room = MIN(cap, (size_t)MSG_BYTES_MAX);
	struct io io = { .put = true, .w = wr_of(dst, room) };

	wr_le(&io.w, m->type, 2);
	wr_le(&io.w, m->seq, 4);
	/* fields() changes nothing while it writes, so this may be a constant */
	fields(&io, (struct msg *)(uintptr_t)m);
	if (io.bad || io.w.bad)
		return 0;
	return room - io.w.left;
}
