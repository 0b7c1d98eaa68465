/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h - the log of decisions: one JSON object a line (docs/network.md,
 * docs/schemas/net-event.json).
 *
 * event_put() is pure. The writer holds two limits, so that a guest cannot fill
 * the user's disk with refusals: EVENTS_LINES_A_SECOND, beyond which events of
 * one kind become one line with their number at the end of the second, and
 * EVENTS_BYTES_MAX of the file, behind which there is one last line that says so.
 *
 * A line that cannot be written (a full disk) is lost, the decision holds. It takes no
 * other line with it: what was written of it is ended before the next one, and as soon as
 * lines can be written again one of them, "lost", says how many there were.
 */
#ifndef CLOCHE_RELAY_EVENTS_H
#define CLOCHE_RELAY_EVENTS_H

#include "base/span.h"

struct loop;

enum {
	EVENTS_LINES_A_SECOND = 200,
	EVENTS_BYTES_MAX = 32 * 1024 * 1024,
	EVENT_LINE_MAX = 4096,
};

struct event {
	const char *ev;      /* "dns", "flow", ... */
	const char *verdict; /* "allowed", "refused"; NULL: no decision */
	const char *reason;  /* static text, or NULL */
	const char *detail;  /* or NULL */
	const char *name;    /* any bytes; NULL or "": unknown */
	const char *proto;   /* or NULL */
	size_t n_addrs;      /* 1: "addr", more: "addrs" */
	const uint32_t *addrs;
	uint16_t port, guest_port; /* 0: unknown */
	bool has_bytes;
	uint64_t bytes_out, bytes_in;
	uint64_t count; /* 0: this one */
};

/* One line with its newline at @dst. @t_ms: since 1970. Return: bytes, 0 when it does not fit. */
size_t event_put(char *dst, size_t cap, uint64_t t_ms, const struct event *e) MUST_CHECK;

struct events;

/*
 * @fd:		append-only, and read to see whether its last line has an end; borrowed
 * @bytes_max:	EVENTS_BYTES_MAX, less in tests
 * @lost:	told once, when the first line is lost: -errno. May be NULL.
 * Aborts without memory.
 */
struct events *events_new(struct loop *l, int fd, uint64_t bytes_max,
                          void (*lost)(void *arg, int code), void *arg) MUST_CHECK;
/* Writes what was counted, then @last (may be NULL). */
void events_free(struct events *e, const struct event *last);
void events_write(struct events *e, const struct event *ev);

#endif
