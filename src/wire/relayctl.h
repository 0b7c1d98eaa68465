/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relayctl.h - what cloche-relay is told by the monitor and by cloche-keeper,
 * and what it hands to the worker.
 *
 * One message a packet of a SOCK_SEQPACKET socketpair. The relay parses answers
 * of the world and may be compromised, so the monitor and the worker check what
 * it says like anything else; in the other direction the codec is as strict.
 *
 *   monitor -> relay   all of them; each gets one OK or ERR with its number
 *   relay -> monitor   LOST, which nobody asked for
 *   keeper  -> relay   RESOLV and HOSTS, on a socket of its own; no replies
 *   relay  -> worker   FORWARD with one descriptor, on a socket of its own; no
 *                      replies: who cannot serve a connection closes it
 *
 * Wire form, little endian: type u16, number u32, then the fields of its kind.
 * Byte strings have their length as u32 before them.
 */
#ifndef CLOCHE_WIRE_RELAYCTL_H
#define CLOCHE_WIRE_RELAYCTL_H

#include "base/span.h"

enum {
	RELAYCTL_FILE_MAX = 64 * 1024, /* of /etc/resolv.conf, of /etc/hosts */
	RELAYCTL_BYTES_MAX = RELAYCTL_FILE_MAX + 64,
	RELAYCTL_PATTERN_MAX = 261, /* "*." NAME ":65535" */
	RELAYCTL_LABEL_MAX = 64,
	RELAYCTL_TEXT_MAX = 512,
	RELAYCTL_DEADLINE_MAX_S = 24 * 3600,
	RELAYCTL_LISTEN_FDS_MAX = 4,
};

enum relayctl_type {
	RELAYCTL_RESOLV = 1, /* the whole of /etc/resolv.conf; empty: there is none */
	RELAYCTL_HOSTS,
	RELAYCTL_ALLOW, /* a host pattern (policy/host.h) for this session */
	RELAYCTL_DENY,
	/*
	 * Serve connections to these listening sockets (RELAYCTL_LISTEN_FDS_MAX at
	 * most: 127.0.0.1 and ::1, say). They are one entry: `once` closes all of
	 * them at the first connection, the deadline does so without one.
	 */
	RELAYCTL_LISTEN,
	RELAYCTL_OK = 32,
	RELAYCTL_ERR,
	RELAYCTL_LOST, /* the event log could not be written, and has a hole; at most once */
	RELAYCTL_FORWARD = 64, /* an accepted connection comes along, for that port of the guest */
};

struct relayctl {
	uint16_t type;
	uint32_t number; /* chosen by who asks; OK and ERR repeat it */
	union {
		struct span file; /* RESOLV, HOSTS */
		struct span
			pattern; /* ALLOW, DENY: 1 to RELAYCTL_PATTERN_MAX bytes, printable ASCII */
		struct {
			uint16_t guest_port; /* not 0 */
			bool once;           /* a callback: closed after its first connection */
			uint32_t deadline_s; /* 0: none */
			struct span label;   /* printable ASCII, for the event log; may be empty */
		} listen;
		struct span text;    /* ERR, LOST: one line, for a person */
		uint16_t guest_port; /* FORWARD: not 0 */
	};
};

/* Return: 0 or -EPROTO. Borrows from @in. */
int relayctl_parse(struct relayctl *out, struct span in) MUST_CHECK;
/* Bytes written, or 0 when it does not fit or breaks a limit. */
size_t relayctl_put(uint8_t *dst, size_t cap, const struct relayctl *m) MUST_CHECK;

#endif
