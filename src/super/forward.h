/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward.h - connections from the host to servers in the guest, worker side.
 *
 * cloche-relay accepts them (published ports, callbacks) and hands each over with
 * the port of the guest that is meant (wire/relayctl.h). A channel of the guest is
 * opened by MSG_CONNECT, and bytes go both ways, each way within its credit and
 * with an end of its own. Neither the relay nor the guest is believed: a relay that
 * breaks its protocol is not listened to any more, a guest that does ends the
 * machine, as everywhere.
 */
#ifndef CLOCHE_SUPER_FORWARD_H
#define CLOCHE_SUPER_FORWARD_H

#include "event/loop.h"
#include "wire/mux.h"

enum {
	FORWARD_FIRST = 128,
	FORWARD_MAX = 64, /* channels, and so connections at one time */
	/* when all are in use, one without a byte for so long makes room */
	FORWARD_IDLE_MS = 5 * 60 * 1000,
};

struct forward;

struct forward_ops {
	/* may connections be made now? */
	bool (*ready)(void *arg);
	/* send MSG_CONNECT; its answer comes by forward_answered(). 0 or -errno */
	int (*connect)(void *arg, uint16_t channel, uint16_t port);
	/* something was queued for the guest */
	void (*flush)(void *arg);
	void *arg;
};

/*
 * @guest:	borrowed; outlives it
 * @relay_fd:	nonblocking SOCK_SEQPACKET; taken, also on failure
 *
 * Return: 0 or -errno.
 */
int forward_new(struct forward **out, struct loop *l, struct mux *guest, int relay_fd,
                const struct forward_ops *ops) MUST_CHECK;
void forward_free(struct forward *f);

/* Is it one of ours? The functions below are for those. */
bool forward_has(uint16_t channel);

/* From the guest. Return: 0, -EPROTO for a lie, other -errno. */
int forward_answered(struct forward *f, uint16_t channel, int code) MUST_CHECK;
int forward_data(struct forward *f, uint16_t channel, uint8_t stream, struct span b) MUST_CHECK;
int forward_end(struct forward *f, uint16_t channel, uint8_t stream, bool reset) MUST_CHECK;
int forward_writable(struct forward *f, uint16_t channel) MUST_CHECK;

/* All connections are cut. */
void forward_close(struct forward *f);
/* Connections at the moment. */
size_t forward_count(const struct forward *f);

#endif
