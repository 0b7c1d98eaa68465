/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First byte even: two ends that keep the rules of mux.h, driven by the input,
 * which also chooses how the wire is cut. Properties: neither ever calls the
 * other a liar; every stream arrives in order and whole up to its end; what is
 * owed to a consumer never exceeds the credit, nor the queue its bound; a
 * channel's number can be used again once its end was announced.
 *
 * Odd: raw bytes to one end. Property: they cost no more than those bounds, and
 * an error stays.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANNELS = 4, OPEN = 1, OVER = 2 };

struct flow {
	uint32_t sent, got, owed;
	bool cut; /* a RESET from either side: its tail may be lost */
	bool ended;
};

struct end {
	struct mux *m;
	struct end *other;
	bool host;
	bool open[CHANNELS + 1], used[CHANNELS + 1];
};

static struct end ends[2];
static struct flow flows[CHANNELS + 1][FRAME_STREAMS];
enum { PERIOD = 64 * 1024 };

static uint8_t pattern[2 * PERIOD], block[MUX_CREDIT_MAX];

/* The bytes of a stream from its byte @i on: PERIOD of them at least. */
static const uint8_t *bytes_at(uint16_t ch, uint8_t stream, uint32_t i)
{
	if (pattern[1] == 0) {
		for (uint32_t k = 0; k < sizeof(pattern); k++)
			pattern[k] = (uint8_t)(k * 31 + (k % PERIOD >> 8));
	}
	return pattern + (i + ch * 977u + stream * 331u) % PERIOD;
}

static void check(bool ok)
{
	if (!ok)
		abort();
}

static int on_control(void *arg, struct span msg)
{
	struct end *e = arg;

	check(msg.len == 2 && msg.p[1] >= 1 && msg.p[1] <= CHANNELS);
	uint16_t ch = msg.p[1];
	if (msg.p[0] == OPEN) {
		check(!e->host && mux_open(e->m, ch) == 0);
		e->open[ch] = true;
	} else {
		check(e->host);
		mux_close(e->m, ch);
		e->open[ch] = false;
		e->used[ch] = false;
	}
	return 0;
}

static int on_data(void *arg, uint16_t ch, uint8_t stream, struct span b)
{
	struct end *e = arg;
	struct flow *f = &flows[ch][stream];

	check(e->open[ch] && !f->ended && b.len > 0);
	check(memcmp(b.p, bytes_at(ch, stream, f->got), b.len) == 0);
	f->got += (uint32_t)b.len;
	f->owed += (uint32_t)b.len;
	check(f->got <= f->sent && f->owed <= MUX_CREDIT_MAX);
	return 0;
}

static int on_eof(void *arg, uint16_t ch, uint8_t stream)
{
	struct end *e = arg;
	struct flow *f = &flows[ch][stream];

	check(e->open[ch] && !f->ended && f->got == f->sent);
	f->ended = true;
	return 0;
}

static int on_reset(void *arg, uint16_t ch, uint8_t stream)
{
	struct end *e = arg;

	check(e->open[ch] && flows[ch][stream].cut);
	return 0;
}

static int on_writable(void *arg, uint16_t ch, uint8_t stream)
{
	struct end *e = arg;

	check(e->open[ch] && (stream == FRAME_IN) == e->host);
	return 0;
}

static const struct mux_ops ops = { on_control, on_data, on_eof, on_reset, on_writable };

static void carry(struct end *from, size_t n)
{
	struct span s = mux_out(from->m);

	n = MIN(n, s.len);
	check(s.len <= MUX_OUT_MAX);
	check(mux_feed(from->other->m, s.p, n) == 0);
	mux_out_done(from->m, n);
}

static void cut_all(uint16_t ch)
{
	for (unsigned i = 0; i < FRAME_STREAMS; i++)
		flows[ch][i].cut = true;
}

static void step(struct end *e, unsigned op, uint16_t ch, uint8_t stream, size_t n)
{
	struct flow *f = &flows[ch][stream];
	bool ours = (stream == FRAME_IN) == e->host;
	uint8_t msg[2] = { OPEN, (uint8_t)ch };

	switch (op) {
	case 0: /* the host opens, once the last use was announced to be over */
		if (!e->host || e->used[ch] || mux_open(e->m, ch) != 0)
			break;
		memset(flows[ch], 0, sizeof(flows[ch]));
		e->open[ch] = e->used[ch] = true;
		check(mux_send_control(e->m, span_of(msg, 2)) == 0);
		break;
	case 1:
		n = MIN(n, mux_credit(e->m, ch, stream));
		if (!ours || !e->open[ch] || n == 0)
			break;
		for (size_t i = 0; i < n; i += PERIOD)
			memcpy(block + i, bytes_at(ch, stream, f->sent + (uint32_t)i),
			       MIN(n - i, (size_t)PERIOD));
		check(mux_send(e->m, ch, stream, block, n) == 0);
		f->sent += (uint32_t)n;
		break;
	case 2:
		if (ours && e->open[ch])
			(void)!mux_send_eof(e->m, ch, stream);
		break;
	case 3:
		if (!e->open[ch])
			break;
		f->cut = true;
		check(mux_send_reset(e->m, ch, stream) == 0);
		break;
	case 4: /* the guest is done, and says so */
		if (e->host || !e->open[ch])
			break;
		cut_all(ch);
		mux_close(e->m, ch);
		e->open[ch] = false;
		msg[0] = OVER;
		check(mux_send_control(e->m, span_of(msg, 2)) == 0);
		break;
	case 5: /* the host loses interest first */
		if (!e->host || !e->open[ch])
			break;
		cut_all(ch);
		mux_close(e->m, ch);
		e->open[ch] = false;
		break;
	case 6:
		if (ours || !e->open[ch])
			break;
		n = MIN(n, f->owed);
		f->owed -= (uint32_t)n;
		check(mux_consumed(e->m, ch, stream, n) == 0);
		break;
	default:
		carry(e, n);
	}
}

static void honest(const uint8_t *p, size_t size)
{
	for (; size >= 4; p += 4, size -= 4) {
		struct end *e = &ends[p[0] >> 7];
		size_t n = (size_t)p[2] << (p[3] & 15);
		step(e, p[0] & 7, (uint16_t)(1 + (p[1] & 3)), (uint8_t)((p[1] >> 2) % 3), n);
	}
	for (int i = 0; i < 4; i++) {
		carry(&ends[0], SIZE_MAX);
		carry(&ends[1], SIZE_MAX);
	}
	check(mux_out(ends[0].m).len == 0 && mux_out(ends[1].m).len == 0);
	for (uint16_t ch = 1; ch <= CHANNELS; ch++) {
		for (unsigned i = 0; i < FRAME_STREAMS; i++)
			check(flows[ch][i].cut || flows[ch][i].got == flows[ch][i].sent);
	}
}

static int take(void *arg UNUSED, uint16_t ch UNUSED, uint8_t stream UNUSED)
{
	return 0;
}

static int take_bytes(void *arg, uint16_t ch, uint8_t stream, struct span b)
{
	size_t *owed = arg;

	owed[ch * FRAME_STREAMS + stream] += b.len;
	check(owed[ch * FRAME_STREAMS + stream] <= MUX_CREDIT_MAX);
	return 0;
}

static int take_control(void *arg UNUSED, struct span b)
{
	check(b.len > 0 && b.len <= FRAME_PAYLOAD_MAX);
	return 0;
}

static void hostile(const uint8_t *p, size_t size)
{
	static const struct mux_ops quiet = { take_control, take_bytes, take, take, take };
	static size_t owed[FRAME_CHANNELS_MAX * FRAME_STREAMS];

	memset(owed, 0, sizeof(owed));
	struct mux *m = mux_new(MUX_HOST, &quiet, owed);
	check(m && mux_open(m, 1) == 0 && mux_open(m, 2) == 0);
	mux_close(m, 2);
	while (size > 0) {
		size_t n = MIN((size_t)1 + p[0] % 50, size);
		int r = mux_feed(m, p, n);
		check(mux_out(m).len <= MUX_OUT_MAX);
		if (r < 0) {
			check(mux_feed(m, p, n) == r && mux_send_control(m, span_str("x")) == r);
			break;
		}
		p += n;
		size -= n;
	}
	mux_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 1) {
		hostile(data + 1, size - 1);
		return 0;
	}
	memset(ends, 0, sizeof(ends));
	memset(flows, 0, sizeof(flows));
	for (int i = 0; i < 2; i++) {
		ends[i].host = i == 0;
		ends[i].other = &ends[1 - i];
		ends[i].m = mux_new(i == 0 ? MUX_HOST : MUX_GUEST, &ops, &ends[i]);
		check(ends[i].m != NULL);
	}
	honest(data + 1, size - 1);
	mux_free(ends[0].m);
	mux_free(ends[1].m);
	return 0;
}
