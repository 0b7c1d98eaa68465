/* SPDX-License-Identifier: Apache-2.0 */
/* flow_priv.h - a TCP connection of the guest, between flow.c and flow_client.c. */
#ifndef CLOCHE_RELAY_FLOW_PRIV_H
#define CLOCHE_RELAY_FLOW_PRIV_H

#include "relay/copy.h"
#include "relay/relay_priv.h"

enum mode { MODE_JUDGE, MODE_HTTP, MODE_UPGRADE, MODE_OPAQUE };

enum {
	IN_BYTES = 64 * 1024, /* a head that is not whole, and what came with it */
	STATUS_BYTES = 64,    /* of the first response: enough for its status */
};
_Static_assert((int)IN_BYTES > (int)HTTP1_HEAD_MAX, "a head that is too long is seen");
_Static_assert((int)IN_BYTES <= (int)COPY_BYTES, "what was judged can be held");

struct flow {
	struct relay *r;
	uint32_t addr;
	uint16_t port, guest_port;
	enum mode mode;
	enum proto proto;
	char name[HOST_NAME_BYTES];
	int client, server; /* server: -1 before it is dialed */
	bool connected;
	struct loop_fd client_src, server_src;
	struct loop_timer judge_timer, dial_timer;
	struct copy out, in; /* from the client, to the client */
	/* client's bytes: `have` were taken out of the socket, `stays` (0, 1) behind them were not */
	uint8_t *buf;
	size_t have, stays;
	/* of them, a word that was waited with: so many may go without a verdict, so many went */
	size_t due, sent;
	bool word;        /* all of them are one */
	bool half_closed; /* the client will send no more than what is there */
	bool gone;        /* it does not listen any more, either */
	bool announced;   /* there is an event that says it may */
	bool over;        /* freed by the next reap() */
	bool counted;     /* in r->n_judged */
	struct http1_stream stream;
	uint64_t heads;
	uint8_t status[STATUS_BYTES];
	size_t status_len;
	struct flow *next, **prev;
};

/* ---- flow.c ---- */

/* It is over, with an event if it was allowed; freed when the handler at hand is through. */
void flow_end(struct flow *f, const char *reason);
/* No: with a reset on both sides, where there is somebody. */
void flow_refuse(struct flow *f, enum why why, const char *name, const char *detail);
void flow_announce(struct flow *f);
/* There is a verdict, or its server is dialed without one. */
void flow_uncount(struct flow *f);
void flow_judge_later(struct flow *f);
/* On a port of any protocol: wait a little for the client's (next) bytes. */
void flow_raw_wait(struct flow *f);
void flow_dial(struct flow *f);

/* ---- flow_client.c ---- */

void flow_judge_apply(struct flow *f, const struct judge_out *o);
/* The client has said something, or the server is there now. */
void flow_client_step(struct flow *f);
void flow_in_step(struct flow *f);
/* The server takes bytes again. */
void flow_out_step(struct flow *f);
void flow_opaque_begin(struct flow *f);
/* What is due of a word goes to the server, if it is there and takes it. */
void flow_word_push(struct flow *f);

#endif
