/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netctl.h - the network of a running sandbox, asked and changed from outside.
 *
 * The monitor listens on a SOCK_SEQPACKET socket RUNTIME/ID.net (net.h) and
 * serves only processes of its own user (SO_PEERCRED). One struct a message;
 * both programs are of one build. A request gets one answer; several may follow
 * on one connection.
 */
#ifndef CLOCHE_SUPER_NETCTL_H
#define CLOCHE_SUPER_NETCTL_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct err;
struct sockaddr_un;

enum netctl_type {
	NETCTL_ALLOW = 1, /* text: a host pattern, allowed from now on */
	NETCTL_DENY,      /* text: a host pattern, refused from now on; a port 0 is every port */
	NETCTL_CALLBACK,  /* port, once, deadline_s, text: a label; listening sockets come along */
	NETCTL_LIST, /* the answer brings the policy in force: a descriptor for net_policy_read() */
	NETCTL_ANSWER = 32, /* code 0 or -errno; text: why not, for a person; mode */
};

enum { NETCTL_TEXT_BYTES = 512, NETCTL_FDS_MAX = 4, NETCTL_WAIT_MS = 10 * 1000 };

struct netctl_msg {
	uint32_t type;
	int32_t code;
	uint16_t port;      /* of the guest */
	uint8_t once, mode; /* enum net_mode */
	uint32_t deadline_s;
	char text[NETCTL_TEXT_BYTES];
};

/* Where the sandbox @id listens, below net_runtime_dir(). Return: 0, or -EINVAL for a bad id. */
int netctl_address(int dir_fd, const char *id, struct sockaddr_un *out) MUST_CHECK;

/*
 * netctl_call() - one request to the sandbox @id.
 * @fds:	what goes along, borrowed
 * @out:	the answer, whose code is 0; may be NULL
 * @out_fd:	the descriptor that came along, the caller's, or -1; may be NULL
 *
 * Return: 0, or -errno with @err: -ENOENT when the sandbox does not run or has no
 * network, the code of the answer otherwise.
 */
int netctl_call(const char *id, const struct netctl_msg *req, const int *fds, size_t n_fds,
                struct netctl_msg *out, int *out_fd, struct err *err) MUST_CHECK;

#endif
