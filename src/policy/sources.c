/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sources.h"

#include "policy/egress.h"

const char *const source_hosts[] = {
	"github.com:443",
	"github.com:22", /* git over ssh: a server that speaks first */
	"api.github.com:443",
	"*.githubusercontent.com:443", /* raw files, release archives */
	"ghcr.io:443",
	"*.docker.io:443",
	NULL,
};

static const char *const github[] = { "*.github.com:443", NULL };
static const char *const docker[] = { "docker.io:443", "*.docker.com:443", NULL };

const struct host_extra host_extras[] = {
	{ "github", github },
	{ "docker", docker },
	{ NULL, NULL },
};

int host_sources_add(struct egress *e)
{
	for (size_t i = 0; source_hosts[i]; i++) {
		struct egress_rule r = { .origin = EGRESS_FROM_SOURCES };
		int got = host_pattern_parse(&r.host, span_str(source_hosts[i]), NULL);

		ASSERT(got == 0); /* our own table */
		got = egress_add(e, &r);
		if (got < 0)
			return got;
	}
	return 0;
}

const struct host_extra *host_extra_find(const char *name)
{
	for (size_t i = 0; host_extras[i].name; i++) {
		if (strcmp(name, host_extras[i].name) == 0)
			return &host_extras[i];
	}
	return NULL;
}
