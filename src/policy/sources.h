/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sources.h - hosts that are data of cloche: where source code and images come from.
 *
 * In the grammar of host_pattern_parse(). Package registries are not among them,
 * ever: those are asked of the tools (image/registry.h). Nor are an agent's
 * provider hosts: they stand in its profile.
 */
#ifndef CLOCHE_POLICY_SOURCES_H
#define CLOCHE_POLICY_SOURCES_H

#include "base/util.h"

struct egress;

/* What the profile "standard" opens, with a port each; NULL-terminated. */
extern const char *const source_hosts[];

/* ... as rules of origin EGRESS_FROM_SOURCES. Return: as egress_add(). */
int host_sources_add(struct egress *e) MUST_CHECK;

/* Hosts with a name, which a user adds as a whole. */
struct host_extra {
	const char *name;            /* of the set: "github", "docker" */
	const char *const *patterns; /* NULL-terminated */
};

/* A NULL name ends them. */
extern const struct host_extra host_extras[];

/* Return: the set of that name, or NULL. */
const struct host_extra *host_extra_find(const char *name);

#endif
