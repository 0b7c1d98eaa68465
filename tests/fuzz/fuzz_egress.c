/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties: a policy that is accepted is carried on byte for byte; and for names made
 * of its own rules the index answers what a scan of all rules would.
 */
#include <errno.h>
#include <stdlib.h>

#include "policy/egress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* What egress.h says, without any index. */
static bool scan(const struct egress *e, const char *name, uint16_t port)
{
	bool allowed = false;

	if (port == 25)
		return false;
	if (egress_profile_of(e) == EGRESS_PERMISSIVE)
		return true;
	for (size_t i = 0; i < egress_count(e); i++) {
		const struct egress_rule *r = egress_rule_at(e, i);

		if (!host_pattern_match(&r->host, name))
			continue;
		if (r->deny && (r->host.port == 0 || r->host.port == port))
			return false;
		allowed |= !r->deny && r->host.port == port;
	}
	return allowed;
}

static void ask(const struct egress *e, const char *name)
{
	static const uint16_t extra[] = { 0, 22, 25, 80, 443 };
	uint16_t ports[512];

	if (strlen(name) > HOST_NAME_MAX_BYTES)
		return;
	size_t n = egress_ports(e, name, ports, ARRAY_LEN(ports));

	for (size_t i = 0; i < n; i++)
		check(egress_find(e, name, ports[i]) && scan(e, name, ports[i]));
	for (size_t i = 0; i < ARRAY_LEN(extra); i++)
		check((egress_find(e, name, extra[i]) != NULL) == scan(e, name, extra[i]));
	bool any = egress_profile_of(e) == EGRESS_PERMISSIVE;
	for (size_t i = 0; i < egress_count(e); i++) {
		uint16_t port = egress_rule_at(e, i)->host.port;

		check((egress_find(e, name, port) != NULL) == scan(e, name, port));
		any |= scan(e, name, port) && port;
	}
	check(egress_name_ok(e, name) == any);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_BUF struct buf b = { 0 };
	struct egress *e;

	if (egress_parse(&e, span_of(data, size)) < 0)
		return 0;
	check(egress_put(e, &b) == 0 && span_eq(span_of(b.p, b.len), span_of(data, size)));
	for (size_t i = 0; i < egress_count(e) && i < 16; i++) {
		const struct egress_rule *r = egress_rule_at(e, i);
		const char *dot = strchr(r->host.name, '.');
		char below[HOST_NAME_BYTES + 4] = "x.";

		ask(e, r->host.name);
		ask(e, strcat(below, r->host.name));
		if (dot)
			ask(e, dot + 1);
	}
	/* taking back changes what it says it changes */
	if (egress_count(e) && egress_profile_of(e) != EGRESS_PERMISSIVE) {
		struct host_pattern h = egress_rule_at(e, 0)->host;
		char name[HOST_NAME_BYTES + 4] = "";

		int got = egress_deny(e, &h);
		check(got == 0 || got == -E2BIG);
		strcat(strcpy(name, h.wild ? "x." : ""), h.name);
		if (got == 0) {
			check(!egress_find(e, name, h.port ? h.port : 443));
			check(egress_undeny(e, &h) > 0);
			ask(e, name);
		}
	}
	egress_free(e);
	return 0;
}
