/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netproc.h - the processes of a sandbox's network, for its monitor.
 *
 * cloche-net, cloche-relay and cloche-keeper are children like the others. When
 * net or relay ends, the network is closed, never opened: the other one is ended,
 * and frames of the guest go nowhere. A keeper that ends is started once more.
 *
 * From outside the monitor is asked by netctl.h. It trusts what its user says
 * there, checks its form, and lets the relay decide; the relay, which parses answers
 * of the world, is believed only an answer to a question that waits.
 */
#ifndef CLOCHE_SUPER_NETPROC_H
#define CLOCHE_SUPER_NETPROC_H

#include <sys/types.h>

#include "base/log.h"
#include "event/loop.h"
#include "super/net.h"

struct err;

struct netproc;

struct netproc_opts {
	struct loop *l;
	const char *id;
	const struct net_spec *spec; /* copied; ports and policy: taken, closed by netproc_free() */
	const char *state_dir;       /* for the addresses of the shared network */
	int log_fd;                  /* borrowed; -1: none */
	uid_t uid;
	/* the network is closed, @why; once */
	void (*closed)(void *arg, const struct err *why);
	void (*note)(void *arg, enum log_level level, const char *text);
	void *arg;
};

/*
 * netproc_new() - the sockets, and the address; in the shared network, its switch.
 * Return: 0, or -errno with @err.
 */
int netproc_new(struct netproc **out, const struct netproc_opts *o, struct err *err) MUST_CHECK;
void netproc_free(struct netproc *n);

/* QEMU's end of the frames, borrowed: netproc_start() closes it. -1: there is no card. */
int netproc_qemu_fd(const struct netproc *n);
/* The worker's end towards the relay, as above. */
int netproc_worker_fd(const struct netproc *n);
uint32_t netproc_address(const struct netproc *n); /* of the guest; 0: there is no card */
void netproc_mac(const struct netproc *n, uint8_t out[6]);

/* Start the programs, and listen for netctl_call(). 0 or -errno with @err. */
int netproc_start(struct netproc *n, struct err *err) MUST_CHECK;

/* The guest's servers can be reached from now on: the published ports are served. */
void netproc_open_ports(struct netproc *n);

/* QEMU has ended, or is about to: the end of the network is no news. */
void netproc_expect_end(struct netproc *n);

/* The events are written, the programs are gone. */
void netproc_end(struct netproc *n);

#endif
