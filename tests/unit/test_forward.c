/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of connections into the guest, against a guest and a relay made of this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "super/forward.h"
#include "wire/relayctl.h"

static struct {
	struct loop *l;
	struct mux *host, *guest;
	struct forward *f;
	int relay; /* our end */
	bool ready;
	int connect_code;
	/* what the guest was asked and told */
	unsigned asked;
	uint16_t channel, port;
	struct buf in[FORWARD_MAX];
	bool in_eof[FORWARD_MAX], in_reset[FORWARD_MAX], out_reset[FORWARD_MAX];
} t;

/* ---- the host's mux: as the worker has it ---- */

static int h_control(void *arg UNUSED, struct span m UNUSED)
{
	return -EPROTO;
}

static int h_data(void *arg UNUSED, uint16_t ch, uint8_t s, struct span b)
{
	return forward_has(ch) ? forward_data(t.f, ch, s, b) : -EPROTO;
}

static int h_eof(void *arg UNUSED, uint16_t ch, uint8_t s)
{
	return forward_end(t.f, ch, s, false);
}

static int h_reset(void *arg UNUSED, uint16_t ch, uint8_t s)
{
	return forward_end(t.f, ch, s, true);
}

static int h_writable(void *arg UNUSED, uint16_t ch, uint8_t s UNUSED)
{
	return forward_writable(t.f, ch);
}

static const struct mux_ops host_ops = { h_control, h_data, h_eof, h_reset, h_writable };

/* ---- the guest's ---- */

static int g_data(void *arg UNUSED, uint16_t ch, uint8_t s, struct span b)
{
	assert_int_equal(s, FRAME_IN);
	return buf_put(&t.in[ch - FORWARD_FIRST], b.p, b.len);
}

static int g_eof(void *arg UNUSED, uint16_t ch, uint8_t s)
{
	assert_int_equal(s, FRAME_IN);
	t.in_eof[ch - FORWARD_FIRST] = true;
	return 0;
}

static int g_reset(void *arg UNUSED, uint16_t ch, uint8_t s)
{
	(s == FRAME_IN ? t.in_reset : t.out_reset)[ch - FORWARD_FIRST] = true;
	return 0;
}

static int g_writable(void *arg UNUSED, uint16_t ch UNUSED, uint8_t s UNUSED)
{
	return 0;
}

static const struct mux_ops guest_ops = { h_control, g_data, g_eof, g_reset, g_writable };

static int carry(struct mux *from, struct mux *to)
{
	for (struct span s; (s = mux_out(from)).len;) {
		AUTO_FREE uint8_t *b = xmemdup(s.p, s.len);
		size_t n = s.len;
		mux_out_done(from, n);
		int r = mux_feed(to, b, n);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Until nothing moves any more. Return: what the host thinks of the guest. */
static int turn(void)
{
	for (int i = 0; i < 40; i++) {
		assert_int_equal(loop_once(t.l, i < 20 ? 0 : 1), 0);
		assert_int_equal(carry(t.host, t.guest), 0);
		int r = carry(t.guest, t.host);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool op_ready(void *arg UNUSED)
{
	return t.ready;
}

static int op_connect(void *arg UNUSED, uint16_t channel, uint16_t port)
{
	if (t.connect_code < 0)
		return t.connect_code;
	t.asked++;
	t.channel = channel;
	t.port = port;
	assert_int_equal(mux_open(t.guest, channel), 0); /* as the guest does when it hears of it */
	return 0;
}

static void op_flush(void *arg UNUSED)
{
}

static int setup(void **state UNUSED)
{
	const struct forward_ops ops = { op_ready, op_connect, op_flush, NULL };
	int sv[2];

	memset(&t, 0, sizeof(t));
	t.l = loop_new();
	t.host = mux_new(MUX_HOST, &host_ops, NULL);
	t.guest = mux_new(MUX_GUEST, &guest_ops, NULL);
	t.ready = true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv) < 0)
		return -1;
	t.relay = sv[0];
	return forward_new(&t.f, t.l, t.host, sv[1], &ops);
}

static int teardown(void **state UNUSED)
{
	forward_free(t.f);
	mux_free(t.host);
	mux_free(t.guest);
	loop_free(t.l);
	auto_close_(&t.relay);
	for (size_t i = 0; i < FORWARD_MAX; i++)
		buf_fini(&t.in[i]);
	return 0;
}

/* A TCP connection: its client, nonblocking; *out_served goes to the forwarder. */
static int tcp(int *out_served)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	AUTO_CLOSE int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &n), 0);
	assert_int_equal(connect(c, (struct sockaddr *)&a, sizeof(a)), 0);
	*out_served = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	assert_true(*out_served >= 0);
	assert_int_equal(fd_set_nonblock(c, true), 0);
	return c;
}

static void hand_over(int fd, uint16_t port)
{
	struct relayctl m = { .type = RELAYCTL_FORWARD, .guest_port = port };
	uint8_t b[64];
	size_t n = relayctl_put(b, sizeof(b), &m);

	assert_true(n > 0);
	assert_int_equal(fd_send(t.relay, b, n, &fd, 1), 0);
	assert_int_equal(close(fd), 0);
}

static int client(uint16_t port)
{
	int served, c = tcp(&served);

	hand_over(served, port);
	assert_int_equal(turn(), 0);
	return c;
}

static struct buf *in_of(uint16_t ch)
{
	return &t.in[ch - FORWARD_FIRST];
}

/* What is at the client: bytes, 0 at the end, -errno. */
static ssize_t got(int c, char *dst, size_t cap)
{
	ssize_t n = recv(c, dst, cap - 1, 0);

	dst[n > 0 ? n : 0] = '\0';
	return n < 0 ? -errno : n;
}

/* The guest's server is done, and PID 1 with the channel. */
static void guest_ends(uint16_t ch)
{
	(void)!mux_send_eof(t.guest, ch, FRAME_OUT);
	assert_int_equal(mux_send_eof(t.guest, ch, FRAME_ERR), 0);
	mux_close(t.guest, ch);
}

static void test_both_ways(void **state UNUSED)
{
	char b[64];
	AUTO_CLOSE int c = client(8080);
	uint16_t ch = t.channel;

	assert_int_equal(t.asked, 1);
	assert_int_equal(t.port, 8080);
	assert_int_equal(send(c, "early", 5, 0), 5);
	assert_int_equal(turn(), 0);
	assert_int_equal(in_of(ch)->len, 0); /* not before the server took it */
	assert_int_equal(forward_answered(t.f, ch, 0), 0);
	assert_int_equal(turn(), 0);
	assert_int_equal(in_of(ch)->len, 5);
	assert_int_equal(mux_send(t.guest, ch, FRAME_OUT, "hello", 5), 0);
	assert_int_equal(turn(), 0);
	assert_int_equal(got(c, b, sizeof(b)), 5);
	assert_string_equal(b, "hello");
	/* the client's half ends, the server goes on */
	assert_int_equal(shutdown(c, SHUT_WR), 0);
	assert_int_equal(turn(), 0);
	assert_true(t.in_eof[ch - FORWARD_FIRST]);
	assert_int_equal(mux_send(t.guest, ch, FRAME_OUT, "late", 4), 0);
	assert_int_equal(turn(), 0);
	assert_int_equal(got(c, b, sizeof(b)), 4);
	assert_int_equal(got(c, b, sizeof(b)), -EAGAIN);
	guest_ends(ch);
	assert_int_equal(turn(), 0);
	assert_int_equal(got(c, b, sizeof(b)), 0);
	assert_int_equal(forward_count(t.f), 0);
	assert_false(mux_is_open(t.host, ch) || mux_is_open(t.guest, ch));
	/* the server's half ends first */
	AUTO_CLOSE int d = client(8080);
	assert_int_equal(t.channel, ch); /* the number is free again */
	assert_int_equal(forward_answered(t.f, ch, 0), 0);
	assert_int_equal(mux_send(t.guest, ch, FRAME_OUT, "bye", 3), 0);
	assert_int_equal(mux_send_eof(t.guest, ch, FRAME_OUT), 0);
	assert_int_equal(turn(), 0);
	assert_int_equal(got(d, b, sizeof(b)), 3);
	assert_int_equal(got(d, b, sizeof(b)), 0);
	buf_consume(in_of(ch), in_of(ch)->len);
	assert_int_equal(send(d, "still", 5, 0), 5);
	assert_int_equal(turn(), 0);
	assert_int_equal(in_of(ch)->len, 5);
	assert_int_equal(forward_count(t.f), 1);
	assert_int_equal(close(take_fd(&d)), 0);
	assert_int_equal(turn(), 0);
	guest_ends(ch);
	assert_int_equal(turn(), 0);
	assert_int_equal(forward_count(t.f), 0);
}

/* More than all buffers, to a side that takes nothing for a while: nothing is lost or held twice. */
static void test_slow(void **state UNUSED)
{
	enum { BYTES = 4 * 1024 * 1024 };
	AUTO_FREE uint8_t *data = xmalloc(BYTES), *back = xmalloc(BYTES);
	AUTO_CLOSE int c = client(1);
	uint16_t ch = t.channel;
	size_t sent = 0, out = 0, have = 0;

	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 31 + i / 251);
	assert_int_equal(forward_answered(t.f, ch, 0), 0);
	/* the guest's server reads nothing: one window and no more */
	for (int i = 0; i < 100 && sent < BYTES; i++) {
		ssize_t n = send(c, data + sent, BYTES - sent, 0);
		sent += n > 0 ? (size_t)n : 0;
		assert_int_equal(turn(), 0);
	}
	assert_int_equal(in_of(ch)->len, MUX_CREDIT_MAX);
	/* the client is gone by then; what it said still comes */
	bool shut = false;
	for (int i = 0; i < 2000 && !t.in_eof[ch - FORWARD_FIRST]; i++) {
		ssize_t n = sent < BYTES ? send(c, data + sent, BYTES - sent, 0) : 0;
		sent += n > 0 ? (size_t)n : 0;
		if (sent == BYTES && !shut)
			shut = shutdown(c, SHUT_WR) == 0;
		struct buf *b = in_of(ch);
		memcpy(back + have, b->p, b->len);
		have += b->len;
		assert_int_equal(mux_consumed(t.guest, ch, FRAME_IN, b->len), 0);
		buf_consume(b, b->len);
		assert_int_equal(turn(), 0);
	}
	memcpy(back + have, in_of(ch)->p, in_of(ch)->len);
	have += in_of(ch)->len;
	assert_int_equal(have, BYTES);
	assert_memory_equal(back, data, BYTES);
	/* the other way: the client reads nothing */
	for (int i = 0; i < 200 && out < BYTES; i++) {
		size_t n = MIN(mux_credit(t.guest, ch, FRAME_OUT), BYTES - out);
		assert_int_equal(mux_send(t.guest, ch, FRAME_OUT, data + out, n), 0);
		out += n;
		assert_int_equal(turn(), 0);
	}
	have = 0;
	for (int i = 0; i < 4000 && have < BYTES; i++) {
		ssize_t n = recv(c, back + have, BYTES - have, 0);
		have += n > 0 ? (size_t)n : 0;
		size_t k = MIN(mux_credit(t.guest, ch, FRAME_OUT), BYTES - out);
		assert_int_equal(mux_send(t.guest, ch, FRAME_OUT, data + out, k), 0);
		out += k;
		assert_int_equal(turn(), 0);
	}
	assert_int_equal(have, BYTES);
	assert_memory_equal(back, data, BYTES);
	guest_ends(ch);
	assert_int_equal(turn(), 0);
	assert_int_equal(forward_count(t.f), 0);
}

static void test_refusals(void **state UNUSED)
{
	char b[16];

	/* nobody listens in the guest */
	AUTO_CLOSE int c = client(9);
	assert_int_equal(forward_answered(t.f, t.channel, -ECONNREFUSED), 0);
	mux_close(t.guest, t.channel);
	assert_int_equal(turn(), 0);
	assert_int_equal(got(c, b, sizeof(b)), 0);
	assert_int_equal(forward_count(t.f), 0);
	assert_false(mux_is_open(t.host, t.channel));
	/* not the time for it */
	t.ready = false;
	AUTO_CLOSE int d = client(9);
	assert_int_equal(t.asked, 1);
	assert_int_equal(got(d, b, sizeof(b)), 0);
	t.ready = true;
	/* too many questions wait already */
	t.connect_code = -EBUSY;
	AUTO_CLOSE int e = client(9);
	assert_int_equal(got(e, b, sizeof(b)), 0);
	assert_int_equal(forward_count(t.f), 0);
	t.connect_code = 0;
	/* the client leaves before the guest has answered */
	int f = client(9);
	uint16_t ch = t.channel;
	const struct linger now = { .l_onoff = 1 };
	assert_int_equal(setsockopt(f, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	assert_int_equal(close(f), 0);
	assert_int_equal(turn(), 0);
	assert_int_equal(forward_count(t.f), 0);
	assert_true(t.out_reset[ch - FORWARD_FIRST]);
	assert_int_equal(forward_answered(t.f, ch, 0), 0);
	mux_close(t.guest, ch);
	assert_int_equal(turn(), 0);
	assert_false(mux_is_open(t.host, ch));
}

static void test_cap(void **state UNUSED)
{
	int c[FORWARD_MAX];
	char b[16];

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < FORWARD_MAX; i++) {
			c[i] = client((uint16_t)(i + 1));
			assert_int_equal(forward_answered(t.f, t.channel, 0), 0);
		}
		assert_int_equal(forward_count(t.f), FORWARD_MAX);
		unsigned asked = t.asked;
		AUTO_CLOSE int more = client(80);
		assert_int_equal(t.asked, asked);
		assert_int_equal(got(more, b, sizeof(b)), 0);
		for (size_t i = 0; i < FORWARD_MAX; i++) {
			uint16_t ch = (uint16_t)(FORWARD_FIRST + i);
			if (i % 3 == 0) { /* the client dies */
				const struct linger now = { .l_onoff = 1 };
				(void)setsockopt(c[i], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
			}
			assert_int_equal(close(c[i]), 0);
			assert_int_equal(turn(), 0);
			if (i % 3 == 0) {
				assert_true(t.out_reset[i]);
				t.out_reset[i] = false;
				mux_close(t.guest, ch);
			} else if (i % 3 == 1) { /* the server dies */
				assert_int_equal(mux_send_reset(t.guest, ch, FRAME_OUT), 0);
				guest_ends(ch);
			} else {
				guest_ends(ch);
			}
		}
		assert_int_equal(turn(), 0);
		assert_int_equal(forward_count(t.f), 0);
	}
	/* an export cuts them all */
	for (size_t i = 0; i < 3; i++)
		c[i] = client(7);
	forward_close(t.f);
	assert_int_equal(forward_count(t.f), 0);
	assert_int_equal(turn(), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(got(c[i], b, sizeof(b)), 0);
		assert_int_equal(close(c[i]), 0);
	}
}

static uint64_t clock_ns;

static uint64_t now_ns(void *arg UNUSED)
{
	return clock_ns;
}

/* Nobody has to close: but the last place is not kept by who says nothing for five minutes. */
static void test_idle(void **state UNUSED)
{
	const uint64_t ms = 1000000;
	int c[FORWARD_MAX];
	char b[16];

	clock_ns = ms;
	loop_set_clock(t.l, now_ns, NULL);
	for (size_t i = 0; i < FORWARD_MAX; i++) {
		if (i == FORWARD_MAX - 1) { /* with room, nobody is cut */
			clock_ns += 24 * 3600 * 1000 * ms;
			assert_int_equal(turn(), 0);
			assert_int_equal(forward_count(t.f), i);
			/* the first one speaks, the second one is spoken to */
			assert_int_equal(send(c[0], "x", 1, 0), 1);
			assert_int_equal(mux_send(t.guest, FORWARD_FIRST + 1, FRAME_OUT, "y", 1),
			                 0);
			assert_int_equal(turn(), 0);
			for (uint16_t k = 2; k < i; k++)
				assert_int_equal(
					mux_send(t.guest, FORWARD_FIRST + k, FRAME_OUT, "y", 1), 0);
			assert_int_equal(turn(), 0);
		}
		c[i] = client((uint16_t)(i + 1));
		assert_int_equal(forward_answered(t.f, t.channel, 0), 0);
	}
	clock_ns += (FORWARD_IDLE_MS - 1) * ms;
	assert_int_equal(send(c[0], "x", 1, 0), 1);
	assert_int_equal(mux_send(t.guest, FORWARD_FIRST + 1, FRAME_OUT, "y", 1), 0);
	assert_int_equal(turn(), 0);
	assert_int_equal(forward_count(t.f), FORWARD_MAX);
	clock_ns += ms;
	assert_int_equal(turn(), 0);
	/* one, the first of those that were silent; the guest hears of it */
	assert_int_equal(forward_count(t.f), FORWARD_MAX - 1);
	assert_int_equal(got(c[2], b, sizeof(b)), 1); /* what it was sent before */
	assert_int_equal(got(c[2], b, sizeof(b)), 0);
	assert_true(t.out_reset[2]);
	mux_close(t.guest, FORWARD_FIRST + 2);
	assert_int_equal(turn(), 0);
	/* its place is for the next one, and with it the next of the silent goes */
	int more = client(80);
	assert_int_equal(t.channel, FORWARD_FIRST + 2);
	assert_int_equal(forward_count(t.f), FORWARD_MAX - 1);
	assert_true(t.out_reset[3]);
	assert_int_equal(close(more), 0);
	for (size_t i = 0; i < FORWARD_MAX; i++)
		assert_int_equal(close(c[i]), 0);
}

/* A guest that lies ends the machine: each of these is -EPROTO. */
static void test_lies(void **state)
{
	enum lie {
		EARLY_DATA,
		EARLY_EOF,
		ON_ERR,
		ERR_FIRST,
		ERR_BEFORE_IN,
		TWICE,
		NO_CHANNEL,
		LIES
	};

	for (int lie = 0; lie < LIES; lie++) {
		assert_int_equal(teardown(state), 0);
		assert_int_equal(setup(state), 0);
		AUTO_CLOSE int c = client(1);
		uint16_t ch = t.channel;
		int r = 0;
		if (lie > EARLY_EOF)
			assert_int_equal(forward_answered(t.f, ch, 0), 0);
		switch (lie) {
		case EARLY_DATA:
			assert_int_equal(mux_send(t.guest, ch, FRAME_OUT, "x", 1), 0);
			break;
		case EARLY_EOF:
			assert_int_equal(mux_send_eof(t.guest, ch, FRAME_OUT), 0);
			break;
		case ON_ERR:
			assert_int_equal(mux_send(t.guest, ch, FRAME_ERR, "x", 1), 0);
			break;
		case ERR_FIRST:
			assert_int_equal(shutdown(c, SHUT_WR), 0);
			assert_int_equal(turn(), 0);
			assert_int_equal(mux_send_eof(t.guest, ch, FRAME_ERR), 0);
			break;
		case ERR_BEFORE_IN:
			guest_ends(ch);
			break;
		case TWICE:
			r = forward_answered(t.f, ch, 0);
			break;
		default:
			r = forward_data(t.f, (uint16_t)(ch + 1), FRAME_OUT, span_str("x"));
			break;
		}
		if (r == 0)
			r = turn();
		if (r != -EPROTO)
			fail_msg("lie %d: %d", lie, r);
	}
}

/* A relay that lies is not listened to any more; what stands already stays. */
static void test_relay_lies(void **state)
{
	static const uint8_t odd[] = { 64, 0, 0, 0, 0, 0, 0, 0 }; /* port 0 */
	struct relayctl ok = { .type = RELAYCTL_FORWARD, .guest_port = 1 };
	uint8_t b[64];
	char text[16];

	for (int lie = 0; lie < 4; lie++) {
		assert_int_equal(teardown(state), 0);
		assert_int_equal(setup(state), 0);
		AUTO_CLOSE int c = client(1);
		assert_int_equal(forward_answered(t.f, t.channel, 0), 0);
		const int two[] = { c, c };
		ok.type = lie == 3 ? RELAYCTL_OK : RELAYCTL_FORWARD;
		size_t n = relayctl_put(b, sizeof(b), &ok);
		int r = lie == 0 ? fd_send(t.relay, odd, sizeof(odd), two, 1)
		                 : fd_send(t.relay, b, n, two,
		                           lie == 1   ? 0
		                           : lie == 2 ? 2
		                                      : 1);
		assert_int_equal(r, 0);
		assert_int_equal(turn(), 0);
		assert_int_equal(recv(t.relay, text, sizeof(text), 0), 0);
		assert_int_equal(t.asked, 1);
		assert_int_equal(mux_send(t.guest, t.channel, FRAME_OUT, "on", 2), 0);
		assert_int_equal(turn(), 0);
		assert_int_equal(got(c, text, sizeof(text)), 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_both_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_relay_lies, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
