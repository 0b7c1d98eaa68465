/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.h - asks the host's DNS servers for A records: the adapter of c-ares.
 *
 * One name at a time, as it is: the search list is lookup.c's. c-ares does the
 * waiting, the repeats, the other servers, and TCP where an answer was cut; what
 * came is read by answer.h.
 */
#ifndef CLOCHE_RELAY_RESOLVE_H
#define CLOCHE_RELAY_RESOLVE_H

#include "relay/answer.h"
#include "relay/resolvconf.h"

struct err;
struct loop;
struct resolve;

/*
 * @code: 0 with @a (which may hold an rcode); -EIO: no server gave a usable answer;
 * -ECANCELED: other servers were set. May be called before resolve_ask() returns.
 */
typedef void (*resolve_fn)(void *arg, int code, const struct answer *a);

/* Before the cage: it seeds itself from a file. 0 or -errno with @err. */
int resolve_new(struct resolve **out, struct err *err) MUST_CHECK;
void resolve_free(struct resolve *r); /* what is asked for is not called back */
/* Before anything is asked. */
void resolve_start(struct resolve *r, struct loop *l);

/* Other servers from now on. Ends every question with -ECANCELED first. 0 or -errno. */
int resolve_servers(struct resolve *r, const struct resolvconf *c) MUST_CHECK;
void resolve_ask(struct resolve *r, const char *name, resolve_fn fn, void *arg);

#endif
