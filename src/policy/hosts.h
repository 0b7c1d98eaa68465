/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.h - hosts that are data of cloche: where source code and images come from.
 *
 * Package registries are not among them, ever: they come from the configuration of
 * the tools in the image and of the user, at run time. Nor are an agent's provider
 * hosts: they stand in its profile.
 */
#ifndef CLOCHE_POLICY_HOSTS_H
#define CLOCHE_POLICY_HOSTS_H

#include "base/util.h"

struct egress;

/*
 * host_sources_add() - the source hosts that the profile "standard" has, as rules of
 * origin EGRESS_FROM_SOURCES. Return: as egress_add().
 */
int host_sources_add(struct egress *e) MUST_CHECK;

/* Hosts with a name, which a user adds as a whole. */
struct host_extra {
	const char *name;            /* of the set: "github", "docker" */
	const char *const *patterns; /* as host_pattern_parse() reads them; NULL ends them */
};

/* Return: the set of that name, or NULL. */
const struct host_extra *host_extra_find(const char *name);

/* The tables, for `info` and tests; NULL (or a NULL name) ends them. */
extern const char *const host_sources[];
extern const struct host_extra host_extras[];

#endif
