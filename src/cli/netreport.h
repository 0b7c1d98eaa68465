/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netreport.h - the network in words: banner, info, and what was refused.
 */
#ifndef CLOCHE_CLI_NETREPORT_H
#define CLOCHE_CLI_NETREPORT_H

#include <jansson.h>

#include "cli/netevent.h"
#include "cli/netplan.h"
#include "cli/ports.h"

/* The decisions of a session: LOGS/ID.events.jsonl; malloc'd. */
char *netreport_events_path(const struct state_dirs *d, const char *id) MUST_CHECK;

/*
 * Lines of the banner behind the first: network, what is permissive about it, notes.
 * @keys: what stands behind the network on its line
 */
int netreport_banner(struct buf *b, const struct netplan *p, const char *keys) MUST_CHECK;

/* The part of `info`. */
int netreport_info(struct buf *b, const struct netplan *p, const struct netopts *o) MUST_CHECK;
/* Adds "network", "egress", "ports", "callbacks", "host_ca" to @top. */
void netreport_info_json(json_t *top, const struct netplan *p, const struct netopts *o);

/* Every rule, range and port of a policy: {"profile", "hosts", "private", "services"}. */
json_t *netreport_policy_json(const struct egress *e);
/* The same as lines for people, each behind @indent. */
int netreport_policy(struct buf *b, const struct egress *e, const char *indent,
                     size_t max) MUST_CHECK;

/*
 * Is this what somebody in the guest wanted? Not what its kernel says by itself (frames
 * without an address), nor the network's self-test (docs/network.md), nor the question
 * for IPv6 that every lookup asks beside the one for IPv4.
 */
bool netreport_is_request(const struct netevent *e);

/* What was refused, in one line; nothing when nothing was, or there is no log. */
int netreport_refused(struct buf *b, const char *events_path) MUST_CHECK;

#endif
