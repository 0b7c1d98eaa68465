/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "wire/change.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/mux.h"

#define HDR(type, stream, ch, len)                                                        \
	0x0c, 0xc1, type, stream, (ch)&255, (ch) >> 8, 0, 0, (len)&255, (len) >> 8 & 255, \
		(len) >> 16 & 255, 0

static void test_frame_limits(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		size_t len;
		uint8_t b[20];
	} t[] = {
		{ "nothing yet", -EAGAIN, 0, { 0 } },
		{ "header cut short", -EAGAIN, 11, { HDR(2, 0, 1, 1) } },
		{ "wrong magic", -EPROTO, 12, { 0x0c, 0xc0, 2, 0, 1, 0, 0, 0, 1 } },
		{ "reserved is not 0", -EPROTO, 12, { 0x0c, 0xc1, 2, 0, 1, 0, 1, 0, 1 } },
		{ "data incomplete", -EAGAIN, 12, { HDR(2, 0, 1, 65536) } },
		{ "data one over the limit", -EPROTO, 12, { HDR(2, 0, 1, 65537) } },
		{ "data of no bytes", -EPROTO, 12, { HDR(2, 0, 1, 0) } },
		{ "data of one byte", 0, 13, { HDR(2, 0, 1, 1) } },
		{ "length beyond 24 bits",
		  -EPROTO,
		  12,
		  { 0x0c, 0xc1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 1 } },
		{ "data on channel 0", -EPROTO, 13, { HDR(2, 0, 0, 1) } },
		{ "last channel", 0, 13, { HDR(2, 0, 255, 1) } },
		{ "no such channel", -EPROTO, 13, { HDR(2, 0, 256, 1) } },
		{ "last stream", 0, 13, { HDR(2, 2, 1, 1) } },
		{ "no such stream", -EPROTO, 13, { HDR(2, 3, 1, 1) } },
		{ "type 0", -EPROTO, 12, { HDR(0, 0, 1, 0) } },
		{ "type 6", -EPROTO, 12, { HDR(6, 0, 1, 0) } },
		{ "control", 0, 13, { HDR(1, 0, 0, 1) } },
		{ "control of no bytes", -EPROTO, 12, { HDR(1, 0, 0, 0) } },
		{ "control on a channel", -EPROTO, 13, { HDR(1, 0, 1, 1) } },
		{ "control on a stream", -EPROTO, 13, { HDR(1, 1, 0, 1) } },
		{ "control one over the limit", -EPROTO, 12, { HDR(1, 0, 0, 65537) } },
		{ "end", 0, 12, { HDR(3, 1, 9, 0) } },
		{ "end with a byte", -EPROTO, 13, { HDR(3, 1, 9, 1) } },
		{ "credit", 0, 16, { HDR(4, 1, 9, 4) } },
		{ "credit one short", -EPROTO, 16, { HDR(4, 1, 9, 3) } },
		{ "credit one long", -EPROTO, 17, { HDR(4, 1, 9, 5) } },
		{ "reset", 0, 12, { HDR(5, 1, 9, 0) } },
		{ "reset with a byte", -EPROTO, 13, { HDR(5, 1, 9, 1) } },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct frame f;
		size_t used;
		int got = frame_parse(&f, t[i].b, t[i].len, &used);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		if (got == 0 && used != t[i].len)
			fail_msg("%s: used %zu of %zu", t[i].why, used, t[i].len);
	}
}

static void test_frame_put(void **state UNUSED)
{
	uint8_t b[FRAME_HEADER_BYTES + 4];
	struct frame f = { .type = FRAME_DATA, .channel = 1, .payload = span_str("abcd") };

	assert_int_equal(frame_put(b, sizeof(b) - 1, &f), 0);
	assert_int_equal(frame_put(b, sizeof(b), &f), sizeof(b));
	f.channel = FRAME_CHANNELS_MAX;
	assert_int_equal(frame_put(b, sizeof(b), &f), 0);
}

/* ---- mux ---- */

struct end {
	struct mux *m;
	struct buf got[FRAME_CHANNELS_MAX][FRAME_STREAMS];
	unsigned control, eof, reset, writable;
};

static int on_control(void *arg, struct span msg UNUSED)
{
	((struct end *)arg)->control++;
	return 0;
}

static int on_data(void *arg, uint16_t ch, uint8_t stream, struct span bytes)
{
	struct end *e = arg;

	return buf_put(&e->got[ch][stream], bytes.p, bytes.len);
}

static int on_eof(void *arg, uint16_t ch UNUSED, uint8_t stream UNUSED)
{
	((struct end *)arg)->eof++;
	return 0;
}

static int on_reset(void *arg, uint16_t ch UNUSED, uint8_t stream UNUSED)
{
	((struct end *)arg)->reset++;
	return 0;
}

static int on_writable(void *arg, uint16_t ch UNUSED, uint8_t stream UNUSED)
{
	((struct end *)arg)->writable++;
	return 0;
}

static const struct mux_ops ops = { on_control, on_data, on_eof, on_reset, on_writable };

static struct end host, guest;

static int setup(void **state UNUSED)
{
	host.m = mux_new(MUX_HOST, &ops, &host);
	guest.m = mux_new(MUX_GUEST, &ops, &guest);
	return host.m && guest.m ? 0 : -1;
}

static void end_fini(struct end *e)
{
	mux_free(e->m);
	for (size_t ch = 0; ch < FRAME_CHANNELS_MAX; ch++) {
		for (size_t s = 0; s < FRAME_STREAMS; s++)
			buf_fini(&e->got[ch][s]);
	}
	*e = (struct end){ 0 };
}

static int teardown(void **state UNUSED)
{
	end_fini(&host);
	end_fini(&guest);
	return 0;
}

/* All that is queued, in pieces of @step bytes. */
static int carry(struct end *from, struct end *to, size_t step)
{
	for (;;) {
		struct span s = mux_out(from->m);
		size_t n = MIN(s.len, step);
		if (n == 0)
			return 0;
		int r = mux_feed(to->m, s.p, n);
		if (r < 0)
			return r;
		mux_out_done(from->m, n);
	}
}

static void open_both(uint16_t ch)
{
	assert_int_equal(mux_open(host.m, ch), 0);
	assert_int_equal(mux_open(guest.m, ch), 0);
}

static uint8_t big[MUX_CREDIT_MAX + 1];

static void test_mux_credit(void **state UNUSED)
{
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)(i * 7 + i / 251);
	open_both(3);
	assert_int_equal(mux_open(host.m, 3), -EBUSY);
	assert_int_equal(mux_open(host.m, 0), -EINVAL);
	assert_int_equal(mux_open(host.m, FRAME_CHANNELS_MAX), -EINVAL);
	assert_int_equal(mux_credit(guest.m, 3, FRAME_OUT), MUX_CREDIT_MAX);
	assert_int_equal(mux_credit(guest.m, 3, FRAME_IN), 0);
	assert_int_equal(mux_credit(host.m, 3, FRAME_OUT), 0);
	/* one below, the limit, one above */
	assert_int_equal(mux_send(guest.m, 3, FRAME_OUT, big, sizeof(big)), -ENOBUFS);
	assert_int_equal(mux_send(guest.m, 3, FRAME_OUT, big, MUX_CREDIT_MAX - 1), 0);
	assert_int_equal(mux_send(guest.m, 3, FRAME_OUT, big + MUX_CREDIT_MAX - 1, 1), 0);
	assert_int_equal(mux_send(guest.m, 3, FRAME_OUT, big, 1), -ENOBUFS);
	assert_int_equal(carry(&guest, &host, 1000), 0);
	assert_int_equal(host.got[3][FRAME_OUT].len, MUX_CREDIT_MAX);
	assert_memory_equal(host.got[3][FRAME_OUT].p, big, MUX_CREDIT_MAX);
	/* granted anew once the consumer is done with enough of it */
	assert_int_equal(mux_consumed(host.m, 3, FRAME_OUT, 1), 0);
	assert_int_equal(mux_out(host.m).len, 0);
	assert_int_equal(mux_consumed(host.m, 3, FRAME_OUT, MUX_CREDIT_MAX - 1), 0);
	assert_int_equal(carry(&host, &guest, 1), 0);
	assert_int_equal(guest.writable, 1);
	assert_int_equal(mux_credit(guest.m, 3, FRAME_OUT), MUX_CREDIT_MAX);
}

static void test_mux_ends(void **state UNUSED)
{
	open_both(1);
	assert_int_equal(mux_send_eof(host.m, 1, FRAME_IN), 0);
	assert_int_equal(mux_send_eof(host.m, 1, FRAME_IN), -EPIPE);
	assert_int_equal(mux_send(host.m, 1, FRAME_IN, "x", 1), -EPIPE);
	assert_int_equal(carry(&host, &guest, 100), 0);
	assert_int_equal(guest.eof, 1);
	assert_int_equal(mux_send(guest.m, 1, FRAME_OUT, "tail", 4), 0);
	assert_int_equal(mux_send_eof(guest.m, 1, FRAME_OUT), 0);
	assert_int_equal(mux_send_eof(guest.m, 1, FRAME_ERR), 0);
	mux_close(guest.m, 1);
	assert_false(mux_is_open(guest.m, 1));
	assert_int_equal(carry(&guest, &host, 3), 0);
	assert_int_equal(host.got[1][FRAME_OUT].len, 4);
	assert_int_equal(host.eof, 2);
	assert_true(mux_is_open(host.m, 1)); /* until its owner is done */
	mux_close(host.m, 1);
	assert_false(mux_is_open(host.m, 1));
	assert_int_equal(mux_out(host.m).len, 0);
	open_both(1);
}

/* A close while data is under way either way: no lie, and the number is free again. */
static void test_mux_close_races(void **state UNUSED)
{
	open_both(9);
	assert_int_equal(mux_send(host.m, 9, FRAME_IN, "abc", 3), 0);
	assert_int_equal(mux_send(guest.m, 9, FRAME_OUT, "def", 3), 0);
	mux_close(guest.m, 9);
	assert_true(mux_is_open(guest.m, 9)); /* the host has not ended IN yet */
	assert_int_equal(carry(&host, &guest, 5), 0);
	assert_int_equal(guest.got[9][FRAME_IN].len, 0);
	assert_int_equal(carry(&guest, &host, 5), 0);
	assert_int_equal(host.got[9][FRAME_OUT].len, 3);
	assert_int_equal(host.reset, 3);
	assert_int_equal(carry(&host, &guest, 5), 0); /* the answer to RESET */
	assert_false(mux_is_open(guest.m, 9));
	mux_close(host.m, 9);
	assert_false(mux_is_open(host.m, 9));
	open_both(9);
	/* both at once */
	mux_close(guest.m, 9);
	mux_close(host.m, 9);
	assert_int_equal(carry(&host, &guest, 5), 0);
	assert_int_equal(carry(&guest, &host, 5), 0);
	assert_int_equal(carry(&host, &guest, 5), 0);
	assert_false(mux_is_open(guest.m, 9));
	assert_false(mux_is_open(host.m, 9));
	/* the receiver wants no more of one stream only */
	open_both(9);
	assert_int_equal(mux_send_reset(host.m, 9, FRAME_OUT), 0);
	assert_int_equal(carry(&host, &guest, 100), 0);
	assert_int_equal(guest.reset, 1);
	assert_int_equal(mux_send(guest.m, 9, FRAME_OUT, "x", 1), -EPIPE);
	assert_int_equal(mux_send(guest.m, 9, FRAME_ERR, "x", 1), 0);
}

/* A long queue holds data back, control passes, and writable() comes when it is short again. */
static void test_mux_queue(void **state UNUSED)
{
	unsigned n = 0;
	uint16_t ch;

	for (ch = 1; ch < 20; ch++) {
		open_both(ch);
		if (mux_credit(guest.m, ch, FRAME_OUT) == 0)
			break;
		assert_int_equal(mux_send(guest.m, ch, FRAME_OUT, big, MUX_CREDIT_MAX), 0);
	}
	assert_true(ch < 20);
	assert_int_equal(mux_send(guest.m, ch, FRAME_OUT, "x", 1), -ENOBUFS);
	while (mux_send_control(guest.m, span_of(big, FRAME_PAYLOAD_MAX)) == 0)
		n++;
	assert_true(n > 10);
	assert_true(mux_out(guest.m).len <= MUX_OUT_MAX);
	assert_int_equal(mux_send_control(guest.m, span_of(big, FRAME_PAYLOAD_MAX + 1)), -EMSGSIZE);
	assert_int_equal(mux_send_control(guest.m, span_of(big, 0)), -EMSGSIZE);
	assert_int_equal(guest.writable, 0);
	assert_int_equal(carry(&guest, &host, 100000), 0);
	assert_int_equal(guest.writable, 1 + (unsigned)ch); /* OUT of ch, ERR of all */
	assert_int_equal(host.control, n);
}

/* Each lie ends the connection, and it stays ended. */
static void test_mux_lies(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		struct frame f;
	} t[] = {
		{ "data on a closed channel",
		  -EPROTO,
		  { FRAME_DATA, FRAME_OUT, 2, { (const uint8_t *)"x", 1 } } },
		{ "end of a closed channel", -EPROTO, { FRAME_EOF, FRAME_OUT, 2, { NULL, 0 } } },
		{ "late reset", 0, { FRAME_RESET, FRAME_OUT, 2, { NULL, 0 } } },
		{ "late credit",
		  0,
		  { FRAME_CREDIT, FRAME_IN, 2, { (const uint8_t *)"\1\0\0", 4 } } },
		{ "data in the wrong direction",
		  -EPROTO,
		  { FRAME_DATA, FRAME_IN, 1, { (const uint8_t *)"x", 1 } } },
		{ "end in the wrong direction", -EPROTO, { FRAME_EOF, FRAME_IN, 1, { NULL, 0 } } },
		{ "credit for their own stream",
		  -EPROTO,
		  { FRAME_CREDIT, FRAME_OUT, 1, { (const uint8_t *)"\1\0\0", 4 } } },
		{ "credit of 0",
		  -EPROTO,
		  { FRAME_CREDIT, FRAME_IN, 1, { (const uint8_t *)"\0\0\0", 4 } } },
		{ "one byte of credit too many",
		  -EPROTO,
		  { FRAME_CREDIT, FRAME_IN, 1, { (const uint8_t *)"\1\0\0", 4 } } },
		{ "a byte of data", 0, { FRAME_DATA, FRAME_OUT, 1, { (const uint8_t *)"x", 1 } } },
		{ "end", 0, { FRAME_EOF, FRAME_OUT, 1, { NULL, 0 } } },
		{ "refuse standard input", 0, { FRAME_RESET, FRAME_IN, 1, { NULL, 0 } } },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint8_t b[64];
		struct mux *m = mux_new(MUX_HOST, &ops, &host);
		size_t n = frame_put(b, sizeof(b), &t[i].f);

		assert_true(n > 0);
		assert_int_equal(mux_open(m, 1), 0);
		int got = mux_feed(m, b, n);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		if (got < 0 && mux_feed(m, b, 0) != got)
			fail_msg("%s: believed again", t[i].why);
		if (t[i].f.type == FRAME_EOF && got == 0)
			assert_int_equal(mux_feed(m, b, n), -EPROTO); /* ended twice */
		mux_free(m);
	}
}

static void test_mux_overrun(void **state UNUSED)
{
	static uint8_t b[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];
	struct frame f = { FRAME_DATA, FRAME_OUT, 1, { big, FRAME_PAYLOAD_MAX } };
	size_t n = frame_put(b, sizeof(b), &f);

	open_both(1);
	for (unsigned i = 0; i < MUX_CREDIT_MAX / FRAME_PAYLOAD_MAX; i++)
		assert_int_equal(mux_feed(host.m, b, n), 0);
	f.payload.len = 1;
	n = frame_put(b, sizeof(b), &f);
	assert_int_equal(mux_feed(host.m, b, n), -EPROTO);
}

/* ---- messages ---- */

static struct msg m, back;
static uint8_t wire[MSG_BYTES_MAX + 1];

static void round_trip(const char *why, bool want)
{
	size_t n = msg_put(wire, sizeof(wire), &m);

	if ((n > 0) != want)
		fail_msg("%s: put %zu, want %d", why, n, want);
	if (n == 0)
		return;
	const struct msg_rule *r = msg_rule_find(m.type);
	if (!r || n < r->min_bytes || n > r->max_bytes)
		fail_msg("%s: %zu bytes break the rule", why, n);
	if (msg_parse(&back, span_of(wire, n)) != 0)
		fail_msg("%s: not understood", why);
	static uint8_t again[MSG_BYTES_MAX];
	if (msg_put(again, sizeof(again), &back) != n || memcmp(again, wire, n) != 0)
		fail_msg("%s: comes out otherwise", why);
	for (size_t cut = 0; cut<n; cut += n> 4096 ? 997 : 1) {
		if (msg_parse(&back, span_of(wire, cut)) != -EPROTO)
			fail_msg("%s: believed when cut at %zu", why, cut);
	}
	wire[n] = 0;
	if (msg_parse(&back, span_of(wire, n + 1)) != -EPROTO)
		fail_msg("%s: believed with a byte left over", why);
	if (msg_put(again, n - 1, &m) != 0)
		fail_msg("%s: overflows its buffer", why);
}

static void start(unsigned type)
{
	memset(&m, 0, sizeof(m));
	m.type = (uint16_t)type;
	m.seq = 0x01020304;
}

static uint8_t text[64 * 1024];

static void test_msg_values(void **state UNUSED)
{
	struct span s = span_of(text, 0);

	memset(text, 'a', sizeof(text));
	start(0);
	round_trip("type 0", false);
	start(MSG_ACCOUNT + 1);
	round_trip("no such type", false);
	for (unsigned i = MSG_THAW; i <= MSG_POWEROFF; i++) {
		start(i);
		round_trip("empty message", true);
	}
	start(MSG_NET_TEST);
	round_trip("empty message", true);
	start(MSG_HELLO);
	m.hello.version = UINT32_MAX;
	round_trip("hello", true);
	start(MSG_CLOCK);
	m.clock.realtime_ns = INT64_MAX;
	round_trip("clock", true);
	m.clock.realtime_ns = -1;
	round_trip("clock before 1970", false);

	for (int d = -1; d <= 1; d++) {
		start(MSG_ENTROPY);
		m.entropy.bytes = span_of(text, (size_t)(MSG_ENTROPY_MAX + d));
		round_trip("entropy, most", d <= 0);
		m.entropy.bytes = span_of(text, (size_t)(MSG_ENTROPY_MIN + d));
		round_trip("entropy, least", d >= 0);

		start(MSG_SETUP);
		m.setup.hostname = span_of(text, (size_t)(64 + d));
		m.setup.tmp_bytes = UINT64_MAX;
		m.setup.flags = MSG_SETUP_SUDO;
		round_trip("host name", d <= 0);

		start(MSG_MOUNT_ROOT);
		m.mount_root.scratch = span_str("scratch");
		m.mount_root.n_layers = (uint32_t)(MSG_LAYERS_MAX + d);
		for (size_t i = 0; i < MSG_LAYERS_MAX; i++)
			m.mount_root.layers[i] = span_of(text, 20);
		round_trip("layers, most", d <= 0);
		m.mount_root.n_layers = (uint32_t)(1 + d);
		m.mount_root.layers[0] = span_of(text, (size_t)(20 + d));
		round_trip("layers, least; serial", d == 0);

		start(MSG_MOUNT_WORK);
		m.mount_work.disk = span_str("work");
		m.mount_work.n_projects = (uint32_t)(MSG_PROJECTS_MAX + d);
		for (size_t i = 0; i < MSG_PROJECTS_MAX; i++)
			m.mount_work.projects[i] = span_of(text, 255);
		round_trip("projects, most", d <= 0);
		m.mount_work.n_projects = 1;
		m.mount_work.projects[0].len = (size_t)(255 + d);
		round_trip("project name, longest", d <= 0);
		m.mount_work.projects[0].len = (size_t)(1 + d);
		round_trip("project name, shortest", d >= 0);

		start(MSG_FILE);
		m.file.path = span_str("/a");
		m.file.bytes = span_of(text, (size_t)(MSG_FILE_CHUNK_MAX + d));
		round_trip("chunk", d <= 0);
		m.file.bytes.len = 0;
		m.file.mode = (uint32_t)(07777 + d);
		round_trip("mode", d <= 0);

		start(MSG_ARGS);
		m.args.n = (uint32_t)(MSG_ARGS_MAX + d);
		for (size_t i = 0; i < MSG_ARGS_MAX; i++)
			m.args.words[i] = span_of(text, 13);
		round_trip("words, most", d <= 0);
		m.args.n = (uint32_t)(1 + d);
		m.args.words[0] = span_of(text, (size_t)(MSG_STRING_MAX + d));
		round_trip("words, least; longest word", d == 0);

		start(MSG_WANT);
		m.want.n = (uint32_t)(MSG_WANT_MAX + d);
		for (uint32_t i = 0; i < MSG_WANT_MAX; i++)
			m.want.ranges[i] = (struct msg_range){ i * 3, 2 };
		round_trip("ranges, most", d <= 0);

		start(MSG_DONE);
		m.done.ref = 7;
		m.done.code = -4095 - d;
		m.done.text = span_of(text, MSG_TEXT_MAX);
		round_trip("error number", d <= 0);
		m.done.code = -1;
		m.done.text.len = (size_t)(MSG_TEXT_MAX + d);
		round_trip("text", d <= 0);

		start(MSG_EXEC);
		m.exec.cwd = span_str("/");
		m.exec.channel = (uint16_t)(FRAME_CHANNELS_MAX - 1 + d);
		round_trip("channel, last", d <= 0);
		m.exec.channel = (uint16_t)(1 + d);
		round_trip("channel, first", d >= 0);
		m.exec.channel = 1;
		m.exec.login = (uint8_t)(1 + d);
		round_trip("login", d <= 0);

		start(MSG_NET);
		m.net.address = m.net.gateway = m.net.dns = UINT32_MAX;
		m.net.mtu = (uint16_t)(MSG_MTU_MIN + d);
		m.net.prefix = 16;
		round_trip("MTU", d >= 0);
		m.net.mtu = UINT16_MAX;
		m.net.prefix = (uint8_t)(30 + d);
		round_trip("prefix, longest", d <= 0);
		m.net.prefix = (uint8_t)(1 + d);
		round_trip("prefix, shortest", d >= 0);
		m.net.prefix = 16;
		m.net.n_search = (uint32_t)(MSG_SEARCH_MAX + d);
		for (size_t i = 0; i < MSG_SEARCH_MAX; i++)
			m.net.search[i] = span_of(text, MSG_DOMAIN_MAX);
		round_trip("search domains, most", d <= 0);
		m.net.n_search = 1;
		m.net.search[0].len = (size_t)(MSG_DOMAIN_MAX + d);
		round_trip("search domain, longest", d <= 0);
		m.net.search[0].len = (size_t)(1 + d);
		round_trip("search domain, shortest", d >= 0);

		start(MSG_CONNECT);
		m.connect.port = UINT16_MAX;
		m.connect.channel = (uint16_t)(FRAME_CHANNELS_MAX - 1 + d);
		round_trip("channel, last", d <= 0);
		m.connect.channel = (uint16_t)(1 + d);
		round_trip("channel, first", d >= 0);
		m.connect.channel = 1;
		m.connect.port = (uint16_t)(1 + d);
		round_trip("port, first", d >= 0);

		start(MSG_ACCOUNT);
		m.account.user = span_of(text, (size_t)(MSG_USER_MAX + d));
		round_trip("user, longest", d <= 0);
		m.account.user.len = 0;
		round_trip("nothing said", true);
		m.account.home = span_str(d < 0 ? "/a" : d == 0 ? "a" : "/a/../b");
		round_trip("home", d < 0);

		start(MSG_SIGNAL);
		m.signal.channel = 1;
		m.signal.signo = (uint8_t)(64 + d);
		round_trip("signal, last", d <= 0);
		m.signal.signo = (uint8_t)(1 + d);
		round_trip("signal, first", d >= 0);

		start(MSG_OOM);
		m.oom.process = span_of(text, (size_t)(64 + d));
		round_trip("process", d <= 0);

		start(MSG_LOG);
		m.log.level = (uint8_t)(3 + d);
		m.log.text = s;
		round_trip("level", d <= 0);
	}
	start(MSG_DONE);
	m.done.text = span_str("x");
	round_trip("success with a text", false);
	m.done.text.len = 0;
	round_trip("success", true);
	m.done.code = 1;
	round_trip("positive code", false);
	start(MSG_READY);
	m.ready.kernel = span_str("6.1");
	round_trip("ready", true);
	start(MSG_RESIZE);
	m.resize.channel = 1;
	m.resize.rows = UINT16_MAX;
	round_trip("resize", true);
	start(MSG_EXPORT);
	m.export.channel = 255;
	m.export.bytes_max = UINT64_MAX;
	round_trip("export", true);
	start(MSG_EXITED);
	m.exited.channel = 1;
	m.exited.code = 255;
	round_trip("exit 255", true);
	m.exited.by_signal = 1;
	round_trip("signal 255", false);
	m.exited.code = 9;
	round_trip("signal 9", true);
}

static void test_msg_lies(void **state UNUSED)
{
	static const struct {
		const char *why, *path;
		size_t len; /* 0: of the text */
		bool want;
	} paths[] = {
		{ "plain", "/home/agent/.x", 0, true },  { "relative", "home", 0, false },
		{ "the root", "/", 0, false },           { "double slash", "//a", 0, false },
		{ "slash at the end", "/a/", 0, false }, { "dot", "/a/./b", 0, false },
		{ "dot dot", "/a/../b", 0, false },      { "NUL", "/a\0b", 4, false },
	};
	static const struct {
		const char *why, *word;
		size_t len;
		bool env, want;
	} words[] = {
		{ "empty argument", "", 0, false, true },
		{ "NUL in an argument", "a\0b", 3, false, false },
		{ "variable", "A=", 2, true, true },
		{ "no value", "AB", 2, true, false },
		{ "no name", "=B", 2, true, false },
		{ "empty", "", 0, true, false },
		{ "NUL in a variable", "A=\0", 3, true, false },
	};
	static const struct {
		const char *why;
		struct msg_range r[2];
		bool want;
	} ranges[] = {
		{ "apart", { { 0, 1 }, { 2, 1 } }, true },
		{ "touching", { { 0, 1 }, { 1, 1 } }, false },
		{ "overlapping", { { 0, 2 }, { 1, 1 } }, false },
		{ "descending", { { 5, 1 }, { 1, 1 } }, false },
		{ "empty", { { 0, 0 }, { 2, 1 } }, false },
		{ "up to the last number", { { 0, 1 }, { 2, UINT32_MAX - 2 } }, true },
		{ "beyond the last number", { { 0, 1 }, { 2, UINT32_MAX - 1 } }, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		start(MSG_FILE);
		m.file.path = span_str(paths[i].path);
		if (paths[i].len)
			m.file.path.len = paths[i].len;
		round_trip(paths[i].why, paths[i].want);
	}
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		start(MSG_ARGS);
		m.args.is_env = words[i].env;
		m.args.n = 1;
		m.args.words[0] = span_of(words[i].word, words[i].len);
		round_trip(words[i].why, words[i].want);
	}
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
		start(MSG_WANT);
		m.want.n = 2;
		m.want.ranges[0] = ranges[i].r[0];
		m.want.ranges[1] = ranges[i].r[1];
		round_trip(ranges[i].why, ranges[i].want);
	}
	static const struct {
		const char *word;
		bool want;
	} domains[] = {
		{ "lan", true },   { "corp.example", true }, { "a b", false },
		{ "a\tb", false }, { "a\nb", false },        { "\x7f", false },
	};
	for (size_t i = 0; i < ARRAY_LEN(domains); i++) {
		start(MSG_NET);
		m.net.prefix = 16;
		m.net.mtu = 16000;
		m.net.n_search = 1;
		m.net.search[0] = span_str(domains[i].word);
		round_trip("search domain", domains[i].want);
	}
	start(MSG_FILE);
	m.file.path = span_str("/d");
	m.file.flags = MSG_FILE_DIR;
	round_trip("directory", true);
	m.file.bytes = span_str("x");
	round_trip("directory with content", false);
	m.file.bytes.len = 0;
	m.file.flags = MSG_FILE_DIR | MSG_FILE_APPEND;
	round_trip("directory, appended", false);
	m.file.flags = MSG_FILE_DIR | MSG_FILE_EXTEND;
	round_trip("directory, extended", false);
	m.file.flags = MSG_FILE_EXTEND;
	round_trip("extended", true);
	m.file.flags = MSG_FILE_APPEND | MSG_FILE_EXTEND;
	round_trip("a further chunk, extended", false);
	m.file.flags = MSG_FILE_KEEP;
	round_trip("kept", true);
	m.file.flags = MSG_FILE_KEEP | MSG_FILE_EXTEND;
	round_trip("kept, extended", false);
	m.file.flags = MSG_FILE_KEEP | MSG_FILE_APPEND;
	round_trip("a further chunk, kept", false);
	m.file.flags = MSG_FILE_KEEP << 1;
	round_trip("an unknown flag", false);
	start(MSG_EXEC);
	m.exec.channel = 1;
	m.exec.cwd = span_str("tmp");
	round_trip("relative cwd", false);
	start(MSG_MOUNT_WORK);
	m.mount_work.disk = span_str("work");
	m.mount_work.n_projects = 1;
	m.mount_work.projects[0] = span_str("..");
	round_trip("project ..", false);
	m.mount_work.projects[0] = span_str("a/b");
	round_trip("project with a slash", false);
}

/* One rule a type, each with at least one state, sizes that fit one frame. */
static void test_msg_rules(void **state UNUSED)
{
	for (size_t i = 0; i < msg_rules_count; i++) {
		const struct msg_rule *r = &msg_rules[i];

		assert_ptr_equal(msg_rule_find(r->type), r);
		assert_true(r->states != 0 && r->states < 64);
		assert_true(r->min_bytes >= 6 && r->min_bytes <= r->max_bytes);
		assert_true(r->max_bytes <= MSG_BYTES_MAX);
		assert_int_equal(r->from_guest, r->type >= MSG_READY);
	}
	assert_null(msg_rule_find(0));
}

/* The page that describes the protocol has this table, row for row. */
static void test_msg_page(void **state UNUSED)
{
	static const char *const states[] = { "START", "BARE", "ROOT", "WORK", "FROZEN", "OFF" };
	static char page[64 * 1024];
	FILE *f = fopen(DOCS_DIR "/protocol.md", "r");

	assert_non_null(f);
	page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
	(void)fclose(f); /* only read */
	for (size_t i = 0; i < msg_rules_count; i++) {
		const struct msg_rule *r = &msg_rules[i];
		char row[256], *p = row, *end = row + sizeof(row);

		p += snprintf(p, (size_t)(end - p), "\n| %u | %s | %s |", (unsigned)r->type,
		              r->name, r->from_guest ? "guest" : "host");
		for (size_t s = 0; s < ARRAY_LEN(states); s++) {
			if (r->states >> s & 1)
				p += snprintf(p, (size_t)(end - p), " %s", states[s]);
		}
		(void)snprintf(p, (size_t)(end - p), " | %zu to %zu |\n", r->min_bytes,
		               r->max_bytes);
		if (!strstr(page, row))
			fail_msg("docs/protocol.md lacks:%s", row);
	}
}

/* ---- change stream ---- */

static void test_change_values(void **state UNUSED)
{
	static uint8_t data[CHANGE_EXTENT_MAX + 1];
	static uint8_t b[CHANGE_RECORD_MAX], again[CHANGE_RECORD_MAX];
	struct span n1 = span_str("a"), n255 = span_of(text, 255), n256 = span_of(text, 256);
	const struct {
		const char *why;
		bool want;
		struct change_record r;
	} t[] = {
		{ "type 0", false, { .type = 0 } },
		{ "type between", false, { .type = CHANGE_END + 1 } },
		{ "type above", false, { .type = CHANGE_BLOBS_END + 1 } },
		{ "directory",
		  true,
		  { .type = CHANGE_DIR, .name = n255, .mode = 07777, .flags = 1 } },
		{ "name too long", false, { .type = CHANGE_DIR, .name = n256 } },
		{ "no name", false, { .type = CHANGE_DIR } },
		{ "mode too big", false, { .type = CHANGE_DIR, .name = n1, .mode = 010000 } },
		{ "flag of a file",
		  false,
		  { .type = CHANGE_DIR, .name = n1, .flags = CHANGE_SUSPECT } },
		{ "file",
		  true,
		  { .type = CHANGE_FILE,
		    .name = n1,
		    .flags = 6,
		    .size = INT64_MAX,
		    .mtime_ns = -1 } },
		{ "size too big", false, { .type = CHANGE_FILE, .name = n1, .size = 1ull << 63 } },
		{ "flag of a directory", false, { .type = CHANGE_FILE, .name = n1, .flags = 1 } },
		{ "dot dot", false, { .type = CHANGE_FILE, .name = span_str("..") } },
		{ "slash", false, { .type = CHANGE_FILE, .name = span_str("a/b") } },
		{ "NUL", false, { .type = CHANGE_FILE, .name = span_of("a\0b", 3) } },
		{ "newline and bad UTF-8",
		  true,
		  { .type = CHANGE_FILE, .name = span_str("\n\xff") } },
		{ "link",
		  true,
		  { .type = CHANGE_LINK, .name = n255, .bytes = span_of(text, 4095) } },
		{ "link too long",
		  false,
		  { .type = CHANGE_LINK, .name = n1, .bytes = span_of(text, 4096) } },
		{ "empty link", false, { .type = CHANGE_LINK, .name = n1 } },
		{ "link with NUL",
		  false,
		  { .type = CHANGE_LINK, .name = n1, .bytes = span_of("a\0", 2) } },
		{ "whiteout", true, { .type = CHANGE_WHITEOUT, .name = n255 } },
		{ "fifo", true, { .type = CHANGE_SPECIAL, .name = n1, .mode = S_IFIFO | 0644 } },
		{ "regular as special",
		  false,
		  { .type = CHANGE_SPECIAL, .name = n1, .mode = S_IFREG } },
		{ "directory as special",
		  false,
		  { .type = CHANGE_SPECIAL, .name = n1, .mode = S_IFDIR } },
		{ "mode beyond", false, { .type = CHANGE_SPECIAL, .name = n1, .mode = 0210000 } },
		{ "end", true, { .type = CHANGE_END, .ordinal = UINT32_MAX } },
		{ "up", true, { .type = CHANGE_UP } },
		{ "blob", true, { .type = CHANGE_BLOB, .ordinal = 1, .size = INT64_MAX } },
		{ "blob too big", false, { .type = CHANGE_BLOB, .size = 1ull << 63 } },
		{ "extent",
		  true,
		  { .type = CHANGE_EXTENT, .bytes = span_of(data, CHANGE_EXTENT_MAX) } },
		{ "extent too big",
		  false,
		  { .type = CHANGE_EXTENT, .bytes = span_of(data, sizeof(data)) } },
		{ "empty extent", false, { .type = CHANGE_EXTENT } },
		{ "extent to the end",
		  true,
		  { .type = CHANGE_EXTENT, .offset = INT64_MAX - 1, .bytes = span_of(data, 1) } },
		{ "extent beyond the end",
		  false,
		  { .type = CHANGE_EXTENT, .offset = INT64_MAX, .bytes = span_of(data, 1) } },
		{ "end of blob", true, { .type = CHANGE_BLOB_END } },
		{ "end of blobs", true, { .type = CHANGE_BLOBS_END } },
	};

	memset(text, 'a', sizeof(text));
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct change_record r;
		size_t used, n = change_put(b, sizeof(b), &t[i].r);
		if ((n > 0) != t[i].want)
			fail_msg("%s: put %zu", t[i].why, n);
		if (n == 0)
			continue;
		for (size_t cut = 0; cut<n; cut += n> 1000 ? 97 : 1) {
			if (change_parse(&r, b, cut, &used) != -EAGAIN)
				fail_msg("%s: cut at %zu", t[i].why, cut);
		}
		if (change_parse(&r, b, n, &used) != 0 || used != n)
			fail_msg("%s: not understood", t[i].why);
		if (change_put(again, sizeof(again), &r) != n || memcmp(again, b, n) != 0)
			fail_msg("%s: comes out otherwise", t[i].why);
		if (change_put(again, n - 1, &r) != 0)
			fail_msg("%s: overflows its buffer", t[i].why);
		/* a length that the type cannot have is refused before it is waited for */
		b[4] = 1;
		if (change_parse(&r, b, 5, &used) != -EPROTO)
			fail_msg("%s: believed a length of 16 MiB", t[i].why);
	}
}

struct step {
	uint8_t type;
	const char *name;
	uint64_t size;
	int want;
};

static void walk_steps(const char *why, const struct step *s, size_t n, uint32_t records,
                       uint64_t bytes)
{
	static struct change_walk w;

	change_walk_init(&w, records, bytes);
	for (size_t i = 0; i < n; i++) {
		struct change_record r = { .type = s[i].type, .size = s[i].size };
		if (s[i].name)
			r.name = span_str(s[i].name);
		if (s[i].type == CHANGE_END)
			r.ordinal = (uint32_t)s[i].size;
		int got = change_walk_take(&w, &r);
		if (got != s[i].want)
			fail_msg("%s, step %zu: got %d, want %d", why, i, got, s[i].want);
	}
}
#define STEPS(why, records, bytes, ...)                           \
	do {                                                      \
		static const struct step s[] = { __VA_ARGS__ };   \
		walk_steps(why, s, ARRAY_LEN(s), records, bytes); \
	} while (0)

static void test_change_walk(void **state UNUSED)
{
	STEPS("a tree", 100, 10, { CHANGE_DIR, "a", 0, 0 }, { CHANGE_FILE, "b", 10, 0 },
	      { CHANGE_DIR, "c", 0, 0 }, { CHANGE_FILE, "a", 0, 0 }, { CHANGE_UP, NULL, 0, 0 },
	      { CHANGE_LINK, "d", 0, 0 }, { CHANGE_UP, NULL, 0, 0 }, { CHANGE_WHITEOUT, "b", 0, 0 },
	      { CHANGE_SPECIAL, "c", 0, 0 }, { CHANGE_END, NULL, 9, 0 },
	      { CHANGE_END, NULL, 9, -EPROTO }, { CHANGE_FILE, "x", 0, -EPROTO });
	STEPS("nothing", 0, 0, { CHANGE_END, NULL, 0, 0 });
	STEPS("name twice", 9, 9, { CHANGE_FILE, "a", 0, 0 }, { CHANGE_DIR, "a", 0, -EPROTO });
	STEPS("descending", 9, 9, { CHANGE_FILE, "b", 0, 0 }, { CHANGE_FILE, "a", 0, -EPROTO });
	STEPS("unsigned order", 9, 9, { CHANGE_FILE, "a", 0, 0 }, { CHANGE_FILE, "\xff", 0, 0 },
	      { CHANGE_FILE, "b", 0, -EPROTO });
	STEPS("a new directory has an order of its own", 9, 9, { CHANGE_DIR, "z", 0, 0 },
	      { CHANGE_FILE, "a", 0, 0 }, { CHANGE_UP, NULL, 0, 0 },
	      { CHANGE_FILE, "y", 0, -EPROTO });
	STEPS("up at the top", 9, 9, { CHANGE_UP, NULL, 0, -EPROTO });
	STEPS("end below", 9, 9, { CHANGE_DIR, "a", 0, 0 }, { CHANGE_END, NULL, 1, -EPROTO });
	STEPS("wrong count", 9, 9, { CHANGE_FILE, "a", 0, 0 }, { CHANGE_END, NULL, 2, -EPROTO });
	STEPS("phase 2", 9, 9, { CHANGE_BLOB, NULL, 0, -EPROTO });
	STEPS("records", 1, 9, { CHANGE_FILE, "a", 0, 0 }, { CHANGE_FILE, "b", 0, -EFBIG });
	STEPS("bytes", 9, 9, { CHANGE_FILE, "a", 9, 0 }, { CHANGE_FILE, "b", 0, 0 },
	      { CHANGE_FILE, "c", 1, -EFBIG });
}

static void test_change_depth(void **state UNUSED)
{
	static struct change_walk w;
	struct change_record r = { .type = CHANGE_DIR, .name = span_of(text, 255) };

	memset(text, 'a', sizeof(text));
	change_walk_init(&w, UINT32_MAX, 0);
	assert_int_equal(w.records_max, CHANGE_RECORDS_MAX);
	for (int i = 0; i < CHANGE_DEPTH_MAX; i++)
		assert_int_equal(change_walk_take(&w, &r), 0);
	assert_int_equal(w.path_len, 256 * 256 - 1);
	assert_int_equal(change_walk_take(&w, &r), -ENAMETOOLONG);
	/* 65535 so far: a slash fits, a name does not */
	r.type = CHANGE_WHITEOUT;
	r.name.len = 1;
	assert_int_equal(change_walk_take(&w, &r), -ENAMETOOLONG);
	r.type = CHANGE_UP;
	assert_int_equal(change_walk_take(&w, &r), 0);
	r.type = CHANGE_WHITEOUT;
	r.name = span_str("b");
	assert_int_equal(change_walk_take(&w, &r), 0);
	for (int i = 1; i < CHANGE_DEPTH_MAX; i++) {
		r.type = CHANGE_UP;
		assert_int_equal(change_walk_take(&w, &r), 0);
	}
	assert_int_equal(w.path_len, 0);
	r = (struct change_record){ .type = CHANGE_END, .ordinal = w.count };
	assert_int_equal(change_walk_take(&w, &r), 0);
}

static void test_change_blobs(void **state UNUSED)
{
	static const struct {
		const char *why;
		uint8_t type;
		uint32_t ordinal;
		uint64_t size; /* of BLOB; offset of EXTENT */
		size_t n;
		int want;
		bool again; /* start anew before it */
	} t[] = {
		{ "end of none", CHANGE_BLOB_END, 0, 0, 0, -EPROTO, true },
		{ "extent of none", CHANGE_EXTENT, 0, 0, 1, -EPROTO, true },
		{ "index record", CHANGE_FILE, 0, 0, 0, -EPROTO, true },
		{ "blob", CHANGE_BLOB, 0, 10, 0, 0, true },
		{ "blob in a blob", CHANGE_BLOB, 1, 10, 0, -EPROTO, false },
		{ "all ends in a blob", CHANGE_BLOBS_END, 0, 0, 0, -EPROTO, false },
		{ "extent", CHANGE_EXTENT, 0, 2, 3, 0, false },
		{ "overlap", CHANGE_EXTENT, 0, 4, 1, -EPROTO, false },
		{ "touching", CHANGE_EXTENT, 0, 5, 4, 0, false },
		{ "one over the size", CHANGE_EXTENT, 0, 9, 2, -EPROTO, false },
		{ "up to the size", CHANGE_EXTENT, 0, 9, 1, 0, false },
		{ "beyond", CHANGE_EXTENT, 0, 11, 1, -EPROTO, false },
		{ "end of blob", CHANGE_BLOB_END, 0, 0, 0, 0, false },
		{ "same ordinal", CHANGE_BLOB, 0, 10, 0, -EPROTO, false },
		{ "next", CHANGE_BLOB, 7, 0, 0, 0, false },
		{ "only a hole", CHANGE_BLOB_END, 0, 0, 0, 0, false },
		{ "all", CHANGE_BLOBS_END, 0, 0, 0, 0, false },
		{ "after all", CHANGE_BLOB, 8, 0, 0, -EPROTO, false },
	};
	struct change_blobs b = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct change_record r = { .type = t[i].type,
			                   .ordinal = t[i].ordinal,
			                   .size = t[i].size,
			                   .offset = t[i].size,
			                   .bytes = span_of(text, t[i].n) };
		if (t[i].again)
			b = (struct change_blobs){ 0 };
		int got = change_blobs_take(&b, &r);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
	}
}

int main(void)
{
#define MUX_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame_limits),
		cmocka_unit_test(test_frame_put),
		MUX_TEST(test_mux_credit),
		MUX_TEST(test_mux_ends),
		MUX_TEST(test_mux_close_races),
		MUX_TEST(test_mux_queue),
		MUX_TEST(test_mux_lies),
		MUX_TEST(test_mux_overrun),
		cmocka_unit_test(test_msg_values),
		cmocka_unit_test(test_msg_lies),
		cmocka_unit_test(test_msg_rules),
		cmocka_unit_test(test_msg_page),
		cmocka_unit_test(test_change_values),
		cmocka_unit_test(test_change_walk),
		cmocka_unit_test(test_change_depth),
		cmocka_unit_test(test_change_blobs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
