/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.h - the network of one sandbox: what the CLI asks for, and the monitor runs.
 *
 * The policy travels as a sealed memfd (egress_put()), so that no process on its
 * way can change what another one reads.
 */
#ifndef CLOCHE_SUPER_NET_H
#define CLOCHE_SUPER_NET_H

#include <stddef.h>
#include <stdint.h>

#include "base/ip.h"
#include "policy/egress.h"

struct err;

enum net_mode {
	NET_OFFLINE,  /* no card at all; of the other fields only the ports count */
	NET_ISOLATED, /* a network of its own */
	NET_SHARED,   /* together with all sandboxes of this user that chose it */
};
/* "offline", "isolated", "shared". Return: 0 or -EINVAL. */
int net_mode_parse(const char *s, enum net_mode *out) MUST_CHECK;
const char *net_mode_name(enum net_mode m);

/* docs/network.md */
#define NET_GATEWAY IP4(10, 87, 0, 1)
#define NET_GUEST IP4(10, 87, 255, 2) /* of an isolated one */
enum { NET_PREFIX = 16, NET_MTU = 16000 };

enum { NET_PORTS_MAX = 32, NET_PORT_FDS_MAX = 4, NET_SEARCH_MAX = 6 };

/* A port of the host that leads to one of the guest. */
struct net_port {
	int fds[NET_PORT_FDS_MAX]; /* listening TCP sockets (127.0.0.1 and ::1, say); borrowed */
	uint8_t n_fds;
	bool once; /* all of them are closed at the first connection */
	uint16_t guest_port;
	uint32_t deadline_s; /* from the start: closed then; 0: with the sandbox */
	const char *label;   /* printable ASCII, for the event log; NULL: none */
};

struct net_spec {
	enum net_mode mode;
	enum egress_profile profile; /* of the policy; a restricting one has a self-test first */
	int policy_fd;               /* a memfd that net_policy_fd() made; borrowed */
	const char *events_path;     /* events.jsonl; made and appended to; NULL: not kept */
	/* SHARED: known to the others as <name>.cloche, one label; NULL: made of the id */
	const char *name;
	bool keep_address; /* SHARED: the name has the same one the next time */
	struct net_port ports[NET_PORTS_MAX];
	size_t n_ports;
	const char *search[NET_SEARCH_MAX]; /* search domains for the guest's resolver */
	size_t n_search;
};

/* @e in a sealed memfd, close-on-exec, the caller's. Return: fd or -errno. */
int net_policy_fd(const struct egress *e) MUST_CHECK;
/* ... and back. The file must be sealed: what was judged cannot change. 0, -EPERM, -errno. */
int net_policy_read(int fd, struct egress **out) MUST_CHECK;

/*
 * The folder of our sockets: $XDG_RUNTIME_DIR/cloche, else /tmp/cloche-UID; 0700, ours.
 * @create: make it. Return: a descriptor (the caller's) or -errno with @err.
 */
int net_runtime_dir(bool create, struct err *err) MUST_CHECK;

#endif
