/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a stream ends. Its sender ends it by EOF or RESET. A receiver that wants
 * no more sends RESET, and the sender answers with RESET unless it has ended
 * the stream already: so what is on its way is told from a lie, and a channel
 * is forgotten when every stream was ended by its sender. CREDIT and RESET for
 * a channel that is not open may be late, carry nothing and are passed over.
 */
#include "wire/mux.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
	/* data waits below this, so that control, credit and ends always find room */
	DATA_OUT_MAX = 1024 * 1024,
	/* ... and goes on below this, so that it does not start and stop for each write */
	DATA_OUT_LOW = 256 * 1024,
	/* frames of credit are worth sending from here; the rest of the window is enough meanwhile */
	GRANT_MIN = MUX_CREDIT_MAX / 4,
};

/* One direction of a channel. */
struct stream {
	uint32_t credit;     /* ours: may be sent; theirs: they may send */
	uint32_t unconsumed; /* theirs: the consumer holds */
	uint32_t grant;      /* theirs: consumed, not granted again yet */
	bool ended;          /* its sender sent EOF or RESET */
	bool reset;          /* theirs: we sent RESET, its data is dropped */
};

struct channel {
	bool open;
	bool closing; /* mux_close(): nobody listens any more */
	struct stream s[FRAME_STREAMS];
};

struct mux {
	enum mux_side side;
	const struct mux_ops *ops;
	void *arg;
	int dead;     /* the error that ended this connection */
	bool stalled; /* mux_credit() held data back for the queue's sake */
	struct buf out;
	size_t out_at; /* bytes at the start of out that are on the wire already */
	size_t in_len;
	struct channel ch[FRAME_CHANNELS_MAX];
	uint8_t in[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX]; /* a frame that came in part */
};

struct mux *mux_new(enum mux_side side, const struct mux_ops *ops, void *arg)
{
	struct mux *m = calloc(1, sizeof(*m));

	if (m) {
		m->side = side;
		m->ops = ops;
		m->arg = arg;
	}
	return m;
}

void mux_free(struct mux *m)
{
	if (!m)
		return;
	buf_fini(&m->out);
	free(m);
}

static bool is_ours(const struct mux *m, unsigned stream)
{
	return (stream == FRAME_IN) == (m->side == MUX_HOST);
}

static size_t out_len(const struct mux *m)
{
	return m->out.len - m->out_at;
}

static int queue(struct mux *m, uint8_t type, uint16_t ch, uint8_t stream, struct span payload)
{
	struct frame f = { .type = type, .stream = stream, .channel = ch, .payload = payload };
	size_t need = FRAME_HEADER_BYTES + payload.len;

	if (m->dead)
		return m->dead;
	if (payload.len > FRAME_PAYLOAD_MAX)
		return -EMSGSIZE;
	if (need > MUX_OUT_MAX - out_len(m))
		return -ENOBUFS;
	if (m->out_at > DATA_OUT_LOW && m->out_at > m->out.len / 2) {
		buf_consume(&m->out, m->out_at);
		m->out_at = 0;
	}
	int r = buf_reserve(&m->out, need);
	if (r < 0)
		return r;
	size_t n = frame_put(m->out.p + m->out.len, need, &f);
	ASSERT(n == need);
	m->out.len += n;
	return 0;
}

static int queue_end(struct mux *m, uint8_t type, uint16_t ch, uint8_t stream)
{
	return queue(m, type, ch, stream, (struct span){ 0 });
}

static void forget_if_over(struct channel *c)
{
	if (!c->closing)
		return;
	for (unsigned i = 0; i < FRAME_STREAMS; i++) {
		if (!c->s[i].ended)
			return;
	}
	*c = (struct channel){ 0 };
}

static int take_data(struct mux *m, const struct frame *f, struct channel *c, struct stream *s)
{
	if (f->payload.len > s->credit)
		return -EPROTO;
	s->credit -= (uint32_t)f->payload.len;
	if (c->closing || s->reset)
		return 0; /* on its way before they knew; never granted again */
	s->unconsumed += (uint32_t)f->payload.len;
	return m->ops->data(m->arg, f->channel, f->stream, f->payload);
}

static int take_end(struct mux *m, const struct frame *f, struct channel *c, struct stream *s)
{
	bool quiet = c->closing || s->reset;
	int r = 0;

	s->ended = true;
	if (!quiet && f->type == FRAME_EOF)
		r = m->ops->eof(m->arg, f->channel, f->stream);
	else if (!quiet)
		r = m->ops->reset(m->arg, f->channel, f->stream);
	forget_if_over(c);
	return r;
}

/* The receiver of a stream of ours speaks. */
static int take_answer(struct mux *m, const struct frame *f, struct channel *c, struct stream *s)
{
	int r;

	if (f->type == FRAME_CREDIT) {
		struct rd rd = rd_of(f->payload.p, f->payload.len);
		uint64_t n = rd_le(&rd, 4);

		if (n == 0 || n > MUX_CREDIT_MAX - s->credit)
			return -EPROTO;
		s->credit += (uint32_t)n;
		return s->ended ? 0 : m->ops->writable(m->arg, f->channel, f->stream);
	}
	if (f->type != FRAME_RESET)
		return -EPROTO; /* DATA or EOF in the wrong direction */
	if (s->ended)
		return 0;
	s->ended = true;
	r = queue_end(m, FRAME_RESET, f->channel, f->stream);
	if (r == 0 && !c->closing)
		r = m->ops->reset(m->arg, f->channel, f->stream);
	forget_if_over(c);
	return r;
}

static int take_frame(struct mux *m, const struct frame *f)
{
	if (f->type == FRAME_CONTROL)
		return m->ops->control(m->arg, f->payload);

	struct channel *c = &m->ch[f->channel];
	struct stream *s = &c->s[f->stream];
	if (!c->open)
		return f->type == FRAME_CREDIT || f->type == FRAME_RESET ? 0 : -EPROTO;
	if (is_ours(m, f->stream))
		return take_answer(m, f, c, s);
	if (s->ended || f->type == FRAME_CREDIT)
		return -EPROTO;
	if (f->type == FRAME_DATA)
		return take_data(m, f, c, s);
	return take_end(m, f, c, s);
}

/* How many bytes the frame in m->in needs in all, as far as that is known. */
static size_t in_need(const struct mux *m)
{
	if (m->in_len < FRAME_HEADER_BYTES)
		return FRAME_HEADER_BYTES;
	struct rd r = rd_of(m->in + FRAME_HEADER_BYTES - 4, 4);
	return FRAME_HEADER_BYTES + (size_t)rd_le(&r, 4); /* frame_parse() has checked it */
}

static int feed(struct mux *m, const uint8_t *p, size_t n)
{
	struct frame f;
	size_t used;
	int r;

	while (n > 0) {
		if (m->in_len == 0) {
			r = frame_parse(&f, p, n, &used);
			if (r == 0) {
				r = take_frame(m, &f);
				if (r < 0)
					return r;
				p += used;
				n -= used;
				continue;
			}
			if (r != -EAGAIN)
				return r;
		}
		size_t k = MIN(n, in_need(m) - m->in_len);
		memcpy(m->in + m->in_len, p, k);
		m->in_len += k;
		p += k;
		n -= k;
		r = frame_parse(&f, m->in, m->in_len, &used);
		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return r;
		m->in_len = 0;
		r = take_frame(m, &f);
		if (r < 0)
			return r;
	}
	return 0;
}

int mux_feed(struct mux *m, const void *p, size_t n)
{
	if (!m->dead) {
		int r = feed(m, p, n);
		if (r < 0)
			m->dead = r;
	}
	return m->dead;
}

struct span mux_out(const struct mux *m)
{
	/* before the first byte there is no buffer to point into */
	return m->out.p ? span_of(m->out.p + m->out_at, out_len(m)) : (struct span){ 0 };
}

void mux_out_done(struct mux *m, size_t n)
{
	ASSERT(n <= out_len(m));
	m->out_at += n;
	if (m->out_at == m->out.len)
		m->out_at = m->out.len = 0;
	if (!m->stalled || m->dead || out_len(m) >= DATA_OUT_LOW)
		return;
	m->stalled = false;
	for (unsigned ch = 1; ch < FRAME_CHANNELS_MAX && !m->dead; ch++) {
		for (unsigned i = 0; i < FRAME_STREAMS; i++) {
			const struct channel *c = &m->ch[ch];
			if (!c->open || c->closing || !is_ours(m, i) || c->s[i].ended ||
			    c->s[i].credit == 0)
				continue;
			int r = m->ops->writable(m->arg, (uint16_t)ch, (uint8_t)i);
			if (r < 0) {
				m->dead = r; /* mux_feed() says so */
				break;
			}
		}
	}
}

int mux_send_control(struct mux *m, struct span msg)
{
	if (msg.len == 0)
		return -EMSGSIZE;
	return queue(m, FRAME_CONTROL, 0, 0, msg);
}

int mux_open(struct mux *m, uint16_t ch)
{
	if (ch == 0 || ch >= FRAME_CHANNELS_MAX)
		return -EINVAL;
	if (m->ch[ch].open)
		return -EBUSY;
	m->ch[ch] = (struct channel){ .open = true };
	for (unsigned i = 0; i < FRAME_STREAMS; i++)
		m->ch[ch].s[i].credit = MUX_CREDIT_MAX;
	return 0;
}

void mux_close(struct mux *m, uint16_t ch)
{
	struct channel *c;

	if (ch == 0 || ch >= FRAME_CHANNELS_MAX || !m->ch[ch].open || m->ch[ch].closing)
		return;
	c = &m->ch[ch];
	c->closing = true;
	for (unsigned i = 0; i < FRAME_STREAMS; i++) {
		struct stream *s = &c->s[i];
		if (s->ended || s->reset)
			continue;
		int r = queue_end(m, FRAME_RESET, ch, (uint8_t)i);
		if (r < 0 && !m->dead)
			m->dead = r; /* a peer that does not read; mux_feed() says so */
		if (is_ours(m, i))
			s->ended = true;
		else
			s->reset = true;
	}
	forget_if_over(c);
}

bool mux_is_open(const struct mux *m, uint16_t ch)
{
	return ch < FRAME_CHANNELS_MAX && m->ch[ch].open;
}

/* The stream if it is open and ours to send on (or theirs, to receive from). */
static struct stream *stream_of(struct mux *m, uint16_t ch, uint8_t stream, bool ours)
{
	if (ch == 0 || ch >= FRAME_CHANNELS_MAX || stream >= FRAME_STREAMS || !m->ch[ch].open ||
	    is_ours(m, stream) != ours)
		return NULL;
	return &m->ch[ch].s[stream];
}

size_t mux_credit(struct mux *m, uint16_t ch, uint8_t stream)
{
	struct stream *s = stream_of(m, ch, stream, true);

	if (!s || s->ended || m->dead)
		return 0;
	if (out_len(m) >= DATA_OUT_MAX) {
		m->stalled = true;
		return 0;
	}
	return s->credit;
}

int mux_send(struct mux *m, uint16_t ch, uint8_t stream, const void *p, size_t n)
{
	struct stream *s = stream_of(m, ch, stream, true);
	const uint8_t *b = p;

	if (!s || s->ended)
		return -EPIPE;
	if (n > mux_credit(m, ch, stream))
		return m->dead ? m->dead : -ENOBUFS;
	while (n > 0) {
		size_t k = MIN(n, (size_t)FRAME_PAYLOAD_MAX);
		int r = queue(m, FRAME_DATA, ch, stream, span_of(b, k));
		if (r < 0)
			return r;
		s->credit -= (uint32_t)k;
		b += k;
		n -= k;
	}
	return 0;
}

int mux_send_eof(struct mux *m, uint16_t ch, uint8_t stream)
{
	struct stream *s = stream_of(m, ch, stream, true);

	if (!s || s->ended)
		return -EPIPE;
	int r = queue_end(m, FRAME_EOF, ch, stream);
	if (r == 0) {
		s->ended = true;
		forget_if_over(&m->ch[ch]);
	}
	return r;
}

int mux_send_reset(struct mux *m, uint16_t ch, uint8_t stream)
{
	struct stream *ours = stream_of(m, ch, stream, true);
	struct stream *theirs = stream_of(m, ch, stream, false);

	if (!ours && !theirs)
		return -EPIPE;
	if (ours ? ours->ended : theirs->ended || theirs->reset)
		return 0;
	int r = queue_end(m, FRAME_RESET, ch, stream);
	if (r < 0)
		return r;
	if (ours)
		ours->ended = true;
	else
		theirs->reset = true;
	forget_if_over(&m->ch[ch]);
	return 0;
}

int mux_consumed(struct mux *m, uint16_t ch, uint8_t stream, size_t n)
{
	struct stream *s = stream_of(m, ch, stream, false);
	uint8_t b[4];
	struct wr w = wr_of(b, sizeof(b));

	if (!s || m->ch[ch].closing || s->reset)
		return 0;
	ASSERT(n <= s->unconsumed);
	s->unconsumed -= (uint32_t)n;
	s->grant += (uint32_t)n;
	if (s->ended || s->grant < GRANT_MIN)
		return 0;
	wr_le(&w, s->grant, sizeof(b));
	int r = queue(m, FRAME_CREDIT, ch, stream, span_of(b, sizeof(b)));
	if (r < 0)
		return r;
	s->credit += s->grant;
	s->grant = 0;
	return 0;
}
