/* SPDX-License-Identifier: Apache-2.0 */
/* Property: any bytes give a configuration within its limits or an error with a text, never both. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config c;
	struct err e = { 0 };

	config_init(&c);
	int r = config_parse(&c, "f", data, size, &e);
	if ((r < 0) != (e.code < 0) || (r < 0 && e.text[0] == '\0'))
		abort();
	if (c.cpus < 1 || c.cpus > 64 || c.memory_mib < 256 || c.n_exclude > CONFIG_LIST_MAX)
		abort();
	if (c.net.hosts.n > CONFIG_HOSTS_MAX || c.net.n_privates > EGRESS_PRIVATE_MAX ||
	    c.net.n_services > EGRESS_SERVICES_MAX)
		abort();
	for (size_t i = 0; i < c.net.hosts.n; i++) {
		if (!host_pattern_ok(&c.net.hosts.v[i]) ||
		    egress_port_closed(c.net.hosts.v[i].port, NULL))
			abort();
	}
	config_fini(&c);
	return 0;
}
