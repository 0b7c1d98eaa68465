/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/hosts.h"

#include "policy/egress.h"

const char *const host_sources[] = {
	"github.com",
	"github.com:22",
	"api.github.com",
	"*.githubusercontent.com",
	"*.docker.io",
	"ghcr.io",
	NULL,
};

static const char *const github[] = { "*.github.com", NULL };
static const char *const docker[] = { "docker.io", "*.docker.com", NULL };

const struct host_extra host_extras[] = {
	{ "github", github },
	{ "docker", docker },
	{ NULL, NULL },
};

int host_sources_add(struct egress *e)
{
	for (size_t i = 0; host_sources[i]; i++) {
		struct egress_rule r = { .origin = EGRESS_FROM_SOURCES };
		int got = host_pattern_parse(&r.host, span_str(host_sources[i]), NULL);

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
