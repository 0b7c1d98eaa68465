/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolvconf.h - the host's resolv.conf(5) and hosts(5), as far as the relay uses them.
 *
 * Pure. Both files belong to the user's host and are made by hand or by a dozen
 * different programs, so what cannot be read is skipped, as the C library does;
 * the limits below are kept by leaving out what comes later.
 */
#ifndef CLOCHE_RELAY_RESOLVCONF_H
#define CLOCHE_RELAY_RESOLVCONF_H

#include "base/hostname.h"

enum {
	RESOLVCONF_SERVERS_MAX = 8,
	RESOLVCONF_SEARCH_MAX = 16,
	RESOLVCONF_ADDR_BYTES = 46,
	RESOLVCONF_NDOTS_MAX = 15, /* these three as the C library caps them */
	RESOLVCONF_TIMEOUT_MAX_S = 30,
	RESOLVCONF_ATTEMPTS_MAX = 5,
	HOSTS_ADDRS_MAX = 16,
};

struct resolvconf {
	size_t n_servers; /* without any line: one, 127.0.0.1, as the C library takes it */
	/* IPv4, or IPv6 without a scope: "fe80::1%eth0" is left out and counted */
	char servers[RESOLVCONF_SERVERS_MAX][RESOLVCONF_ADDR_BYTES];
	size_t n_search;
	char search[RESOLVCONF_SEARCH_MAX][HOST_NAME_BYTES]; /* lower case */
	unsigned ndots, timeout_s, attempts;
	bool use_vc;       /* TCP always */
	unsigned left_out; /* nameserver lines that are not used */
};

void resolvconf_parse(struct resolvconf *out, struct span text);

/*
 * resolvconf_candidate() - the names to ask for @name, in their order.
 * @i:		0, 1, ...
 * @out:	a name in the grammar
 *
 * With fewer dots than ndots the search list comes first, then the name as it is;
 * else the other way round. Return: false behind the last; a candidate that
 * is too long is left out.
 */
bool resolvconf_candidate(const struct resolvconf *c, const char *name, size_t i,
                          char out[HOST_NAME_BYTES]) MUST_CHECK;

/*
 * hosts_find() - IPv4 addresses of @name (lower case) in a hosts file.
 * @out_known:	some line has the name, maybe with IPv6 addresses only; may be NULL
 * Return: how many, at most HOSTS_ADDRS_MAX.
 */
size_t hosts_find(struct span text, const char *name, uint32_t out[HOSTS_ADDRS_MAX],
                  bool *out_known);

#endif
