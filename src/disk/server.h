/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - the event side of cloche-disk: one loop over the two sockets, with
 * hashing and freezing in small steps while nobody waits for a read.
 */
#ifndef CLOCHE_DISK_SERVER_H
#define CLOCHE_DISK_SERVER_H

#include "base/util.h"

enum { SERVER_WORKSPACES_MAX = 64 };

struct server_opts {
	int nbd, control, cache; /* borrowed */
	int workspaces[SERVER_WORKSPACES_MAX];
	size_t n_workspaces;
	uint64_t size; /* bytes of the disk; a multiple of 4096 */
	bool moved;    /* the workspaces may be others than those that were scanned */
};

/*
 * server_run() - serve until the control socket ends or says so.
 * Return: 0, -EPROTO when the control peer broke the protocol, or -errno.
 */
int server_run(const struct server_opts *o) MUST_CHECK;

#endif
