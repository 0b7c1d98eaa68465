/* SPDX-License-Identifier: Apache-2.0 */
/* netproc_priv.h - what the files behind netproc.h share. */
#ifndef CLOCHE_SUPER_NETPROC_PRIV_H
#define CLOCHE_SUPER_NETPROC_PRIV_H

#include "super/child.h"
#include "super/netctl.h"
#include "super/netproc.h"
#include "wire/relayctl.h"

enum { NETPROC_CLIENTS_MAX = 8, NETPROC_ASKED_MAX = 16 };

/* Who asked the relay, and what. */
struct netproc_asked {
	uint32_t number; /* 0: free */
	int client;      /* index; -1: the monitor itself */
	uint64_t client_serial;
	uint32_t type; /* enum netctl_type */
	char text[NETCTL_TEXT_BYTES];
};

struct netproc_client {
	struct netproc *n;
	uint64_t serial; /* 0: free */
	int fd;
	struct loop_fd src;
};

struct netproc {
	struct netproc_opts o;
	struct net_spec spec;
	struct egress *policy; /* what the relay has, too */
	char id[96], name[64];
	char *search;
	struct child net, relay, keeper, sw;
	bool closed, expected, keeper_again, log_lost;
	uint32_t address;
	int frames[2];  /* QEMU's, cloche-net's */
	int worker[2];  /* the worker's, the relay's */
	int flows[2];   /* cloche-net's, the relay's */
	int keep[2];    /* the keeper's, which stays ours to start it again; the relay's */
	int switch_fd;  /* cloche-net's */
	int control[2]; /* ours, the relay's */
	struct loop_fd control_src;
	struct loop_timer quiet; /* cloche-net said goodbye: is QEMU gone, too? */
	struct loop_timer late;  /* for what is left of a closed network */
	uint32_t number;
	struct netproc_asked asked[NETPROC_ASKED_MAX];
	/* netserve.c */
	int run_dir, listen_fd;
	struct loop_fd listen_src;
	uint64_t serial;
	struct netproc_client clients[NETPROC_CLIENTS_MAX];
};

/* netproc.c: ask the relay. The number of the message is chosen here. 0 or -errno. */
int netproc_ask(struct netproc *n, struct relayctl *m, const int *fds, size_t n_fds,
                const struct netproc_asked *who) MUST_CHECK;

/* netswitch.c: find or start the switch of this user, and enter it; *out_fd is the caller's. */
int netswitch_join(struct netproc *n, int *out_fd, uint32_t *out_addr, struct err *err) MUST_CHECK;
/* We have left it: when that was the end of a switch that we started, its socket goes, too. */
void netswitch_left(struct netproc *n);

/* netserve.c */
int netserve_start(struct netproc *n, struct err *err) MUST_CHECK;
void netserve_answer(struct netproc *n, const struct netproc_asked *who, int code,
                     struct span text);
/* Nobody answers any more. */
void netserve_closed(struct netproc *n);
void netserve_end(struct netproc *n);

#endif
