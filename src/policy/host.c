/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/host.h"

#include <errno.h>
#include <stdio.h>

static int refuse(const char **out_why, const char *why)
{
	if (out_why)
		*out_why = why;
	return -EINVAL;
}

static int port_parse(uint16_t *out, struct span s, const char **out_why)
{
	uint32_t v = 0;

	if (s.len == 0)
		return refuse(out_why, "no number follows the colon");
	if (s.len > 5 || s.p[0] == '0')
		return refuse(out_why, "a port is a number from 1 to 65535");
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return refuse(out_why, "a port is a number from 1 to 65535");
		v = v * 10 + (uint32_t)(s.p[i] - '0');
	}
	if (v > UINT16_MAX)
		return refuse(out_why, "a port is a number from 1 to 65535");
	*out = (uint16_t)v;
	return 0;
}

/* Two labels or more: what may follow "*.", so that nobody opens a whole top-level domain. */
static bool wild_name_ok(const char *name)
{
	return strchr(name, '.') != NULL;
}

int host_pattern_parse(struct host_pattern *out, struct span s, const char **out_why)
{
	struct host_pattern p = { 0 };
	const uint8_t *colon = s.len ? memchr(s.p, ':', s.len) : NULL;
	int r;

	if (colon) {
		size_t n = (size_t)(colon - s.p);
		struct span port = span_of(colon + 1, s.len - n - 1);

		if (s.p[0] == '[' || (port.len && memchr(port.p, ':', port.len)))
			return refuse(out_why, "it is an address, and the policy works on names");
		r = port_parse(&p.port, port, out_why);
		if (r < 0)
			return r;
		s.len = n;
	}
	if (s.len && s.p[0] == '*') {
		if (s.len < 2 || s.p[1] != '.')
			return refuse(out_why, "'*' is a whole label, as in *.example.com");
		p.wild = true;
		s = span_of(s.p + 2, s.len - 2);
	}
	if (s.len && memchr(s.p, '*', s.len))
		return refuse(out_why, "'*' is only the leftmost label, as in *.example.com");
	r = host_name_parse(p.name, s, out_why);
	if (r < 0)
		return r;
	if (p.wild && !wild_name_ok(p.name))
		return refuse(out_why, "two labels or more follow '*.'");
	*out = p;
	return 0;
}

bool host_pattern_match(const struct host_pattern *p, const char *name)
{
	size_t n = strlen(name), k = strlen(p->name);

	if (!p->wild)
		return n == k && memcmp(name, p->name, n) == 0;
	return n > k + 1 && name[n - k - 1] == '.' && memcmp(name + n - k, p->name, k) == 0;
}

bool host_pattern_same(const struct host_pattern *a, const struct host_pattern *b)
{
	return a->wild == b->wild && strcmp(a->name, b->name) == 0;
}

bool host_pattern_ok(const struct host_pattern *p)
{
	size_t n = strnlen(p->name, sizeof(p->name));

	return n < sizeof(p->name) && host_name_ok(span_of(p->name, n)) &&
	       (!p->wild || wild_name_ok(p->name));
}

const char *host_pattern_str(char *dst, const struct host_pattern *p)
{
	char port[8] = "";

	if (p->port)
		(void)snprintf(port, sizeof(port), ":%u", p->port);
	(void)snprintf(dst, HOST_PATTERN_BYTES, "%s%s%s", p->wild ? "*." : "", p->name, port);
	return dst;
}
