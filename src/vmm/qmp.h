/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qmp.h - the few QMP commands and events that we use, over one socket.
 *
 * QEMU may be compromised by its guest, so the peer is hostile: lines are
 * capped, JSON with duplicate keys or an unexpected shape, an answer to no
 * question, or a flood of events ends the connection (-EPROTO). Only numbers,
 * enums and a short printable text leave this module.
 *
 * Commands are queued until the greeting is answered; answers come in order.
 */
#ifndef CLOCHE_VMM_QMP_H
#define CLOCHE_VMM_QMP_H

#include "base/span.h"
#include "base/util.h"

struct err;
struct loop;

enum {
	QMP_LINE_MAX = 1024 * 1024,
	QMP_PENDING_MAX = 32,        /* commands without an answer: -EBUSY beyond */
	QMP_TEXT_MAX = 200,          /* bytes of a text that is passed on, made visible */
	QMP_EVENTS_PER_SECOND = 200, /* more is a flood */
	QMP_TIMEOUT_MS = 30 * 1000,  /* for one answer */
};

/* ---- the parser, pure --------------------------------------------------- */

enum qmp_kind { QMP_GREETING, QMP_RETURN, QMP_ERROR, QMP_EVENT };

enum qmp_event {
	QMP_EV_OTHER, /* known to QEMU, of no use to us */
	QMP_EV_STOP,
	QMP_EV_RESUME,
	QMP_EV_SHUTDOWN, /* flag: the guest asked for it */
	QMP_EV_RESET,    /* flag: as above */
	QMP_EV_GUEST_PANICKED,
	QMP_EV_BLOCK_IO_ERROR, /* flag: no space left on the host; text: node name */
	QMP_EV_NETDEV_GONE,    /* NETDEV_STREAM_DISCONNECTED; text: its id */
};

/* Of query-status. */
enum qmp_state {
	QMP_STATE_UNKNOWN, /* or any that we do not handle */
	QMP_STATE_RUNNING,
	QMP_STATE_PAUSED,
	QMP_STATE_IO_ERROR,
	QMP_STATE_SHUTDOWN,
	QMP_STATE_PRELAUNCH,
	QMP_STATE_PANICKED,
	QMP_STATE_INTERNAL_ERROR, /* KVM could not go on */
};

struct qmp_msg {
	enum qmp_kind kind;
	enum qmp_event event;
	uint64_t id; /* RETURN and ERROR; 0: none */
	bool flag;
	enum qmp_state state; /* RETURN that has one */
	char text[QMP_TEXT_MAX];
};

/*
 * qmp_parse() - one line without its newline.
 * Return: 0, or -EPROTO, -ENOMEM.
 */
int qmp_parse(struct qmp_msg *out, struct span line) MUST_CHECK;

/* ---- the client --------------------------------------------------------- */

struct qmp;

/* @code: 0, -EREMOTEIO when QEMU refused (@m->text says why), or what ended the connection. */
typedef void (*qmp_done_fn)(void *arg, int code, const struct qmp_msg *m);

struct qmp_handlers {
	void (*ready)(void *arg);                          /* greeting answered; may be NULL */
	void (*event)(void *arg, const struct qmp_msg *m); /* never QMP_EV_OTHER */
	/* once, also when qmp_free() was not called; 0: QEMU closed. It may free @q. */
	void (*closed)(void *arg, int code);
	void *arg;
};

/*
 * qmp_new() - speak QMP on @fd.
 * @fd:		nonblocking connected socket; taken, also on failure
 * Return: 0 with *out, or -errno.
 */
int qmp_new(struct qmp **out, struct loop *l, int fd, const struct qmp_handlers *h) MUST_CHECK;

/* Pending commands get no answer. Accepts NULL. */
void qmp_free(struct qmp *q);

/* Each: 0, -EBUSY, -EPIPE after the end, -EINVAL. @done may be NULL. */
int qmp_cont(struct qmp *q, qmp_done_fn done, void *arg) MUST_CHECK;
int qmp_stop(struct qmp *q, qmp_done_fn done, void *arg) MUST_CHECK;
int qmp_quit(struct qmp *q, qmp_done_fn done, void *arg) MUST_CHECK;
int qmp_query_status(struct qmp *q, qmp_done_fn done, void *arg) MUST_CHECK; /* m->state */
int qmp_block_resize(struct qmp *q, const char *serial, uint64_t bytes, qmp_done_fn done,
                     void *arg) MUST_CHECK;

#endif
