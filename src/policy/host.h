/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - names of hosts in a policy: their grammar, and what matches them.
 *
 * Pure. A pattern is NAME or *.NAME with an optional :PORT. Names are at most
 * 253 bytes (without the wildcard) of labels of 1 to 63 of [a-z0-9_-], no hyphen
 * at a label's end, no trailing dot, at least one label that is not all digits
 * (an address is refused: the policy works on names). "*." stands alone as the
 * leftmost label, two labels or more follow it; it matches any depth below, never
 * the name itself. Upper case is accepted and lowered.
 */
#ifndef CLOCHE_POLICY_HOST_H
#define CLOCHE_POLICY_HOST_H

#include "base/span.h"

enum { HOST_NAME_MAX_BYTES = 253, HOST_NAME_BYTES = HOST_NAME_MAX_BYTES + 1 };

struct host_pattern {
	char name[HOST_NAME_BYTES]; /* lower case, behind the "*." of a wildcard */
	bool wild;
	uint16_t port; /* 0: none was named */
};

/*
 * host_name_parse() - a plain name, lowered into @out. One trailing dot is
 * refused: cut it before, where the protocol allows it.
 * @out_why:	on failure what is wrong, for a person; may be NULL
 *
 * Return: 0 or -EINVAL.
 */
int host_name_parse(char out[HOST_NAME_BYTES], struct span s, const char **out_why) MUST_CHECK;

/* The same for a pattern with an optional port (1 to 65535). */
int host_pattern_parse(struct host_pattern *out, struct span s, const char **out_why) MUST_CHECK;

/* @name: lower case, as host_name_parse() gives it. Ports are not looked at. */
bool host_pattern_match(const struct host_pattern *p, const char *name);

/* "*.example.com:443" in @dst, which has room for HOST_NAME_BYTES + 8. Return: @dst. */
const char *host_pattern_str(char *dst, const struct host_pattern *p);

#endif
