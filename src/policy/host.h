/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - patterns of hosts in a policy, and what matches them.
 *
 * Pure. A pattern is NAME or *.NAME with an optional :PORT. NAME is in the
 * grammar of base/hostname.h (at most 253 bytes, the wildcard not counted; no
 * address). "*." stands alone as the leftmost label, two labels or more follow
 * it; it matches any depth below, never the name itself. Upper case is accepted
 * and lowered.
 */
#ifndef CLOCHE_POLICY_HOST_H
#define CLOCHE_POLICY_HOST_H

#include "base/hostname.h"

enum { HOST_PATTERN_BYTES = HOST_NAME_BYTES + 8 };

struct host_pattern {
	char name[HOST_NAME_BYTES]; /* lower case, behind the "*." of a wildcard */
	bool wild;
	uint16_t port; /* 0: none was named */
};

/*
 * host_pattern_parse() - a pattern with an optional port (decimal, 1 to 65535,
 * no leading zeros). Return and @out_why: as host_name_parse().
 */
int host_pattern_parse(struct host_pattern *out, struct span s, const char **out_why) MUST_CHECK;

/* @name: lower case, as host_name_parse() gives it. Ports are not looked at. */
bool host_pattern_match(const struct host_pattern *p, const char *name);

/* Same name and wildcard; ports are not looked at. */
bool host_pattern_same(const struct host_pattern *a, const struct host_pattern *b);

/* Is @p what host_pattern_parse() could have given? For values from another process. */
bool host_pattern_ok(const struct host_pattern *p);

/* "*.example.com:443" in @dst, which has room for HOST_PATTERN_BYTES. Return: @dst. */
const char *host_pattern_str(char *dst, const struct host_pattern *p);

#endif
