/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - the socket between a sandbox's monitor and its worker.
 *
 * SOCK_SEQPACKET, one struct a message, both programs of one build. The worker
 * parses the guest and may be compromised: the monitor checks every field and
 * does nothing for it but what the types below name.
 */
#ifndef CLOCHE_SUPER_LINK_H
#define CLOCHE_SUPER_LINK_H

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"

enum link_type {
	/* worker to monitor */
	LINK_BOOTED = 1, /* the guest answered: no ready deadline any more */
	LINK_RUNNING,    /* a command is about to run: write that down, then LINK_OK */
	LINK_STAGED,     /* staging/ID is complete: publish it, then LINK_OK */
	LINK_UNCHANGED,  /* nothing had changed: the scratch disk is not needed any more */
	LINK_FAILED,     /* text, hint: the run is over; the scratch disk is kept if it ran */
	LINK_OFF,        /* the guest was told to power off */
	/* monitor to worker */
	LINK_OK = 32,   /* code: 0 or -errno */
	LINK_SCANNED,   /* the project's metadata is there */
	LINK_SPAWNED,   /* everything was started */
	LINK_BROKEN,    /* text, hint: a process ended that must not */
	LINK_DISK_GONE, /* cloche-disk ended: project files that were not read yet are lost */
	LINK_END,       /* end the session now, keep its changes (SIGTERM) */
	LINK_NOTE,      /* text: for the user; code: enum log_level */
};

struct link_msg {
	uint32_t type;
	int32_t code;
	uint32_t records;
	uint32_t pad;
	uint64_t bytes;
	char id[96];
	char text[ERR_TEXT_BYTES];
	char hint[ERR_HINT_BYTES];
};

static inline int link_send(int fd, const struct link_msg *m)
{
	return fd_send(fd, m, sizeof(*m), NULL, 0);
}

/* Return: 1 with a message, 0 at the end, or -errno; strings are terminated. */
static inline int link_recv(int fd, struct link_msg *m)
{
	ssize_t k = fd_recv(fd, m, sizeof(*m), NULL, 0, NULL);

	if (k <= 0)
		return (int)k;
	if (k != (ssize_t)sizeof(*m))
		return -EPROTO;
	m->id[sizeof(m->id) - 1] = '\0';
	m->text[sizeof(m->text) - 1] = '\0';
	m->hint[sizeof(m->hint) - 1] = '\0';
	return 1;
}

static inline struct link_msg link_err(uint32_t type, const struct err *e)
{
	struct link_msg m = { .type = type, .code = e->code };

	memcpy(m.text, e->text, sizeof(m.text));
	memcpy(m.hint, e->hint, sizeof(m.hint));
	return m;
}

#endif
