/* SPDX-License-Identifier: Apache-2.0 */
/* relay_priv.h - between the files of relay/. */
#ifndef CLOCHE_RELAY_RELAY_PRIV_H
#define CLOCHE_RELAY_RELAY_PRIV_H

#include "event/loop.h"
#include "relay/events.h"
#include "relay/judge.h"
#include "relay/relay.h"
#include "wire/netmsg.h"

struct flow;
struct listener;
struct lookups;
struct udp_flow;

enum {
	RELAY_FLOWS_MAX = 1024,
	RELAY_JUDGED_MAX = 256, /* of them without a verdict yet */
	RELAY_JUDGE_MS = 10 * 1000,
	RELAY_RAW_WAIT_MS = 300, /* for a client that may wait for the server's first word */
	RELAY_DIAL_MS = 15 * 1000,
	RELAY_UDP_MAX = 256,
	RELAY_UDP_IDLE_MS = 60 * 1000,
	RELAY_LOOKUPS_MAX = 64, /* names that are asked for upstream at one time */
	RELAY_LISTENERS_MAX = 64,
	RELAY_SWEEP_MS = 5 * 1000,
	RELAY_OUT_MAX = 4 * 1024 * 1024, /* messages that wait for cloche-net */
};

/* A socket with messages, whose writes may have to wait. */
struct outbox {
	struct buf b; /* u32 length, message; repeated */
	size_t at;
};

struct relay {
	const struct relay_opts *o;
	struct loop *l;
	struct egress *policy;
	struct pins *pins;
	struct resolve *resolve;
	struct events *events;
	struct lookups *lookups;
	struct flow *flows;
	size_t n_flows, n_judged;
	struct udp_flow *udp;
	size_t n_udp;
	struct listener *listeners;
	size_t n_listeners;
	struct loop_fd net_src, control_src, keeper_src;
	struct outbox out;
	struct loop_timer sweep;
	const char *end; /* why it is over, for the last event */
};

static inline uint64_t relay_now_ms(const struct relay *r)
{
	return loop_now_ns(r->l) / 1000000;
}

/* ---- net.c: the socket to cloche-net ---------------------------------------- */

int net_start(struct relay *r) MUST_CHECK;
void net_send(struct relay *r, const struct netmsg *m);
/* The same where a loss does not matter: not while others wait. */
void net_send_datagram(struct relay *r, const struct netmsg *m);
void net_fini(struct relay *r);
/* ops of the pins */
void net_open(void *arg, uint32_t addr, uint16_t port);
void net_close(void *arg, uint32_t addr, uint16_t port);

/* ---- lookup.c: questions ------------------------------------------------------ */

struct lookups *lookups_new(struct relay *r) MUST_CHECK;
void lookups_free(struct lookups *ls);
void lookup_question(struct relay *r, uint16_t id, uint16_t qtype, const char *name);
void lookup_set_resolv(struct relay *r, struct span text);
void lookup_set_hosts(struct relay *r, struct span text);
void lookup_sweep(struct relay *r, uint64_t now_ms);

/* ---- flow.c: TCP -------------------------------------------------------------- */

/* @fd is taken. */
void flow_start(struct relay *r, int fd, uint32_t addr, uint16_t port, uint16_t guest_port);
/* End the flows whose name is not allowed any more. */
void flows_recheck(struct relay *r);
void flows_fini(struct relay *r);

/* ---- udp.c -------------------------------------------------------------------- */

void udp_send(struct relay *r, uint16_t guest_port, uint32_t addr, uint16_t port,
              struct span payload);
void udp_sweep(struct relay *r, uint64_t now_ms);
void udp_fini(struct relay *r);

/* ---- listen.c: published ports ------------------------------------------------- */

struct relayctl;
/* @fds are taken, also on failure. Return: 0 or -errno with a text for the monitor. */
int listen_add(struct relay *r, const struct relayctl *m, const int *fds, size_t n,
               const char **out_why) MUST_CHECK;
void listen_fini(struct relay *r);

/* ---- control.c ----------------------------------------------------------------- */

int control_start(struct relay *r) MUST_CHECK;
/* The log has holes from now on; the monitor tells the user. */
void control_lost(struct relay *r, const char *why);

/* ---- dial.c --------------------------------------------------------------------- */

/*
 * dial_own() - would a connection to @addr end in this machine? The kernel is asked
 * for a route; nothing is sent. A /32 of --allow-private opens one of our own.
 */
bool dial_own(const struct egress *policy, uint32_t addr);
/*
 * A socket of @type that is connecting to @addr: the destination is judged once more.
 * Return: fd (nonblocking), -errno, or 0 with *out_why when it must not be.
 */
int dial(const struct egress *policy, int type, uint32_t addr, uint16_t port, enum why *out_why,
         const char **out_detail) MUST_CHECK;

/* ---- relay.c -------------------------------------------------------------------- */

void relay_stop(struct relay *r, int code, const char *why);

#endif
