/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow_client.c - what a client says, and whether and how it goes on.
 *
 * The client's side is in one of these modes:
 *
 *   JUDGE    its first bytes are collected until there is a verdict; nothing of
 *            them goes anywhere. Where a rule is raw the server may be dialed, and
 *            heard, meanwhile: it may have to speak first. There also goes a word
 *            that the client has said and waits with (no blank, no end of line: not
 *            yet a request); if it becomes a request after all, that is refused.
 *   HTTP     every request head is judged before it goes on (wire/http1.h).
 *   UPGRADE  one head that asks for WebSocket went on; the server's answer decides.
 *   OPAQUE   copied as it comes.
 *
 * A refused client shall see a reset. A unix socket gives one to its peer when it is
 * closed with bytes in it that nobody has read, and libslirp makes an RST of that. So
 * as long as a refusal is possible the last byte that came stays in the socket: it is
 * looked at (MSG_PEEK), and taken when a later one has come or when it has been
 * judged. A byte that stays would wake a level-triggered poll for ever, so in these
 * modes the client is watched by edges, and read until nothing new is there.
 */
#include "relay/flow_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- copying ------------------------------------------------------------------------ */

/* The server does not take any more. What it said before is still read. */
static void out_failed(struct flow *f)
{
	copy_fini(&f->out);
	f->out.eof = f->out.shut = true;
}

static void out_step(struct flow *f)
{
	bool read_failed;
	int r = copy_step(&f->out, NULL, NULL, &read_failed);

	if (r == 0)
		return;
	if (read_failed)
		flow_end(f, "client");
	else
		out_failed(f);
}

static void on_status(void *arg, struct span s)
{
	struct flow *f = arg;
	size_t n = MIN(s.len, STATUS_BYTES - f->status_len);

	memcpy(f->status + f->status_len, s.p, n);
	f->status_len += n;
}

static void http_pump(struct flow *f);

/* The first response to a request for another protocol. */
static void upgrade_step(struct flow *f)
{
	int code = http1_status_parse(span_of(f->status, f->status_len));

	if (f->out.len > 0)
		return; /* an answer before the whole question: its rest goes first */
	if (code == -EAGAIN && f->status_len < STATUS_BYTES && !f->in.eof)
		return;
	http1_stream_switched(&f->stream, code == 101);
	if (code == 101) {
		flow_opaque_begin(f);
		return;
	}
	f->mode = MODE_HTTP; /* no: what follows is requests as before */
	http_pump(f);
}

void flow_in_step(struct flow *f)
{
	bool read_failed;
	int r = copy_step(&f->in, f->mode == MODE_UPGRADE ? on_status : NULL, f, &read_failed);

	if (r < 0) {
		flow_end(f, read_failed ? "reset" : "client");
		return;
	}
	if (f->mode == MODE_UPGRADE)
		upgrade_step(f);
}

void flow_out_step(struct flow *f)
{
	if (copy_flush(&f->out) < 0)
		out_failed(f);
	else if (f->mode == MODE_HTTP)
		http_pump(f); /* it was not read meanwhile, and edges are past */
	else if (f->mode == MODE_UPGRADE)
		upgrade_step(f);
	else if (f->mode == MODE_JUDGE)
		flow_word_push(f);
	else if (f->buf && f->out.len == 0)
		flow_opaque_begin(f);
}

void flow_word_push(struct flow *f)
{
	if (!f->connected || f->out.len > 0 || f->sent >= f->due)
		return;
	if (copy_push(&f->out, span_of(f->buf + f->sent, f->due - f->sent)) < 0)
		out_failed(f);
	f->sent = f->due;
}

/* Take @n bytes out of the client's socket that were looked at before. */
static bool take(struct flow *f, uint8_t *dst, size_t n)
{
	while (n > 0) {
		ssize_t k = recv(f->client, dst, n, MSG_DONTWAIT);

		if (k <= 0)
			return false; /* they were there */
		dst += k;
		n -= (size_t)k;
	}
	return true;
}

/*
 * Look at what is in the client's socket, behind f->buf[f->have].
 * Return: 1 with *out_n bytes (0: the end, or with `stays` nothing new and no more
 * to come); 0: nothing new; -1: the flow is over.
 */
static int look(struct flow *f, size_t room, size_t *out_n)
{
	ssize_t k = recv(f->client, f->buf + f->have, room, MSG_DONTWAIT | MSG_PEEK);

	if (k < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return 0;
		flow_end(f, "client");
		return -1;
	}
	if (k > 0 && (size_t)k == f->stays && !f->half_closed)
		return 0;
	*out_n = (size_t)k;
	return 1;
}

static int http_judge(void *arg, const struct http1_head *h)
{
	struct flow *f = arg;
	struct judge_out o;
	struct judge_in in = { .policy = f->r->policy,
		               .pins = f->r->pins,
		               .addr = f->addr,
		               .port = f->port,
		               .now_ms = relay_now_ms(f->r) };

	if (f->heads++ == 0)
		return 0; /* it gave the verdict that let us dial */
	judge_head(&o, &in, h, f->name);
	if (o.verdict != VERDICT_ALLOW) {
		flow_refuse(f, o.why, o.name, o.detail);
		return -EACCES;
	}
	if (strcmp(o.name, f->name) != 0) {
		memcpy(f->name, o.name, sizeof(f->name));
		flow_announce(f);
	}
	return 0;
}

static void http_pump(struct flow *f)
{
	while (!f->over && f->mode == MODE_HTTP && copy_reads(&f->out)) {
		size_t n, used;
		int r = look(f, IN_BYTES - f->have, &n);

		if (r <= 0)
			return;
		size_t all = f->have + n;
		if (n == 0 && all == 0) {
			if (copy_end(&f->out) < 0)
				out_failed(f);
			return;
		}
		r = http1_stream_take(&f->stream, span_of(f->buf, all), http_judge, f, &used);
		if (r < 0) {
			flow_refuse(f, r == -EMSGSIZE ? WHY_TOO_LONG : WHY_MALFORMED, f->name,
			            NULL);
			return;
		}
		if (used == 0 && f->half_closed && n == f->stays) {
			flow_refuse(f, WHY_ENDED, f->name, NULL); /* within a head */
			return;
		}
		size_t stays = used < all && n > 0 ? 1 : 0;
		if (!take(f, f->buf + f->have, n - stays)) {
			flow_end(f, "client");
			return;
		}
		if (copy_push(&f->out, span_of(f->buf, used)) < 0)
			out_failed(f);
		f->have = all - stays - used;
		f->stays = stays;
		memmove(f->buf, f->buf + used, f->have);
		if (http1_stream_waits(&f->stream))
			f->mode = MODE_UPGRADE;
	}
}

/* The server is there and whatever the client says may go. */
void flow_opaque_begin(struct flow *f)
{
	uint8_t again; /* the last byte of a word: it went, and is still in the socket */

	f->mode = MODE_OPAQUE;
	if (f->out.len > 0)
		return; /* a word: flow_out_step() comes back */
	if (f->sent > f->have && !take(f, &again, f->sent - f->have)) {
		flow_end(f, "client");
		return;
	}
	if (f->have > f->sent &&
	    copy_push(&f->out, span_of(f->buf + f->sent, f->have - f->sent)) < 0)
		out_failed(f);
	f->have = f->stays = f->sent = f->due = 0;
	free(f->buf);
	f->buf = NULL;
	out_step(f);
}

/* ---- the verdict ---------------------------------------------------------------------- */

void flow_judge_apply(struct flow *f, const struct judge_out *o)
{
	if (o->verdict == VERDICT_REFUSE) {
		if (o->proto != PROTO_UNKNOWN)
			f->proto = o->proto;
		flow_refuse(f, o->why, o->name, o->detail);
		return;
	}
	if (f->sent > 0 && o->proto != PROTO_RAW) {
		/* a request whose first bytes went as those of another protocol */
		flow_refuse(f, WHY_MALFORMED, o->name, NULL);
		return;
	}
	flow_uncount(f);
	loop_timer_del(f->r->l, &f->judge_timer);
	bool told = f->announced && f->proto == o->proto && strcmp(f->name, o->name) == 0;
	f->proto = o->proto;
	memcpy(f->name, o->name, sizeof(f->name));
	f->mode = o->proto == PROTO_HTTP ? MODE_HTTP : MODE_OPAQUE;
	f->stream.allow_address = true; /* the judge tells why not */
	f->stays = 0; /* what was looked at lies in the socket, and is new to who comes next */
	if (f->server < 0) {
		flow_dial(f);
		return;
	}
	/* dialed for the server's first word; now the client has named itself */
	if (!told)
		flow_announce(f);
	if (f->connected && f->mode == MODE_OPAQUE)
		flow_opaque_begin(f);
	else if (f->connected)
		http_pump(f);
}

static void judge_step(struct flow *f)
{
	struct judge_in in = { .policy = f->r->policy,
		               .pins = f->r->pins,
		               .addr = f->addr,
		               .port = f->port,
		               .now_ms = relay_now_ms(f->r) };
	bool silent = f->have + f->stays == 0;
	struct judge_out o;
	size_t n;
	int r = look(f, JUDGE_BYTES_MAX - f->have, &n);

	if (r <= 0)
		return;
	judge_bytes(&o, &in, span_of(f->buf, f->have + n), n == 0 || f->half_closed);
	if (o.verdict != VERDICT_MORE) {
		flow_judge_apply(f, &o);
		return;
	}
	ASSERT(n > 0); /* an end gives a verdict */
	/* a wait that runs goes on: who sends a byte now and then does not lengthen it */
	if (o.word && (silent || f->judge_timer.when_ns == 0))
		flow_raw_wait(f);
	else if (!o.word && (f->word || (silent && o.raw)))
		flow_judge_later(f);
	f->word = o.word;
	if (!take(f, f->buf + f->have, n - 1)) {
		flow_end(f, "client");
		return;
	}
	f->have += n - 1;
	f->stays = 1;
}

void flow_client_step(struct flow *f)
{
	if (f->mode == MODE_JUDGE)
		judge_step(f);
	else if (f->mode == MODE_HTTP && f->connected)
		http_pump(f);
	else if (f->mode == MODE_OPAQUE && f->connected)
		out_step(f);
}
