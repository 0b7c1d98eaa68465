/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/url.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

static int refuse(const char **out_why, const char *why)
{
	if (out_why)
		*out_why = why;
	return -EINVAL;
}

/* Cut @scheme off the front of @s. */
static bool take_scheme(struct span *s, const char *scheme)
{
	size_t n = strlen(scheme);

	if (s->len < n || strncasecmp((const char *)s->p, scheme, n) != 0)
		return false;
	*s = span_of(s->p + n, s->len - n);
	return true;
}

/* RFC 3986 3.2: up to the path, the query or the fragment, behind the last '@'. */
static struct span authority(struct span s)
{
	size_t end = 0, from = 0;

	while (end < s.len && !strchr("/?#", s.p[end]))
		end++;
	for (size_t i = 0; i < end; i++) {
		if (s.p[i] == '@')
			from = i + 1;
	}
	return span_of(s.p + from, end - from);
}

int url_origin_parse(struct url_origin *out, struct span s, const char **out_why)
{
	struct url_origin u = { 0 };
	struct host_pattern h;

	if (s.len > URL_BYTES_MAX)
		return refuse(out_why, "it is longer than 2048 bytes");
	for (size_t i = 0; i < s.len; i++) {
		/* a backslash is a slash to some readers and part of the host to others */
		if (s.p[i] <= ' ' || s.p[i] >= 0x7f || s.p[i] == '\\')
			return refuse(out_why, "it holds a byte that no URL has");
	}
	u.tls = take_scheme(&s, "https://");
	if (!u.tls && !take_scheme(&s, "http://"))
		return refuse(out_why, "it does not begin with http:// or https://");
	int r = host_pattern_parse(&h, authority(s), out_why);
	if (r < 0)
		return r;
	if (h.wild)
		return refuse(out_why, "a URL has no wildcard");
	memcpy(u.host, h.name, sizeof(u.host));
	u.port = h.port ? h.port : u.tls ? 443 : 80;
	*out = u;
	return 0;
}

const char *url_origin_str(char *dst, const struct url_origin *u)
{
	(void)snprintf(dst, URL_ORIGIN_BYTES, "%s://%s:%u", u->tls ? "https" : "http", u->host,
	               u->port);
	return dst;
}
