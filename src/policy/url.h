/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url.h - who a URL in a tool's configuration speaks to: scheme, host, port.
 *
 * Pure. Only http and https. What stands before an '@' (a login) and behind the
 * host is passed over and never kept. The host is a name in the grammar of
 * base/hostname.h: an address is refused, as in every rule of the policy.
 */
#ifndef CLOCHE_POLICY_URL_H
#define CLOCHE_POLICY_URL_H

#include "policy/host.h"

enum { URL_BYTES_MAX = 2048, URL_ORIGIN_BYTES = HOST_NAME_BYTES + 16 };

struct url_origin {
	char host[HOST_NAME_BYTES]; /* lower case */
	uint16_t port;              /* of the URL, or of its scheme; never 0 */
	bool tls;                   /* https */
};

/*
 * url_origin_parse() - @s is one URL, without blanks around it.
 * @out_why:	on failure what is wrong, for a person; may be NULL
 *
 * Return: 0 or -EINVAL.
 */
int url_origin_parse(struct url_origin *out, struct span s, const char **out_why) MUST_CHECK;

/* "https://host:443" in @dst of URL_ORIGIN_BYTES. Return: @dst. */
const char *url_origin_str(char *dst, const struct url_origin *u);

#endif
