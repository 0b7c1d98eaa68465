/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: what was understood of a resolv.conf, written down again, is understood as
 * the same; the search list gives names in the grammar, and ends. The same bytes as a
 * hosts file: an address is only found where the name is known.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "relay/resolvconf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print(struct buf *b, const struct resolvconf *c)
{
	int r = 0;

	for (size_t i = 0; i < c->n_servers; i++)
		r |= buf_printf(b, "nameserver %s\n", c->servers[i]);
	r |= buf_printf(b, "search");
	for (size_t i = 0; i < c->n_search; i++)
		r |= buf_printf(b, " %s", c->search[i]);
	r |= buf_printf(b, "\noptions ndots:%u timeout:%u attempts:%u%s\n", c->ndots, c->timeout_s,
	                c->attempts, c->use_vc ? " use-vc" : "");
	if (r < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct resolvconf c, d;
	AUTO_BUF struct buf b = { 0 };
	char name[HOST_NAME_BYTES];
	uint32_t addrs[HOSTS_ADDRS_MAX];
	size_t n = 0;
	bool known;

	resolvconf_parse(&c, span_of(data, size));
	print(&b, &c);
	resolvconf_parse(&d, span_of(b.p, b.len));
	c.left_out = 0;
	if (memcmp(&c, &d, sizeof(c)) != 0)
		abort();
	while (resolvconf_candidate(&c, "a.b", n, name)) {
		if (!host_name_ok(span_str(name)) || ++n > c.n_search + 1)
			abort();
	}
	if (n == 0)
		abort();
	size_t found = hosts_find(span_of(data, size), "localhost", addrs, &known);
	if (found > HOSTS_ADDRS_MAX || (found && !known))
		abort();
	return 0;
}
