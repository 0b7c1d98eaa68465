/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: whatever a repository's file or the process that reads it says, a run never
 * gets more than it had; and what repo_read() accepts comes back from its lines.
 * Input: the file, or with a first byte of '=' the lines.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config/repo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct repo_run before = { .cpus = 4,
	                                .memory_mib = 4096,
	                                .disk_bytes = (uint64_t)16 << 30,
	                                .tmp_bytes = (uint64_t)2 << 30,
	                                .mode = 1,
	                                .egress = EGRESS_STANDARD,
	                                .host_ca = true,
	                                .apply = CONFIG_APPLY_ASK };

static void check(const struct repo_asks *a)
{
	struct repo_effect *e = calloc(a->n + 1, sizeof(*e));
	struct repo_run r = before;

	if (repo_tighten(&r, a, e) == 0) {
		for (size_t i = 0; i < a->n; i++) {
			if ((e[i].fate == REPO_IGNORED) != (e[i].why != NULL))
				abort();
		}
	}
	if (r.cpus > before.cpus || r.cpus < 1 || r.memory_mib > before.memory_mib ||
	    r.disk_bytes > before.disk_bytes || r.tmp_bytes > before.tmp_bytes ||
	    r.mode > before.mode || r.egress < before.egress || r.publish_localhost ||
	    r.apply == CONFIG_APPLY_AUTO)
		abort();
	for (size_t i = 0; i < r.n_exclude; i++) {
		if (r.exclude[i][0] == '!')
			abort();
	}
	config_hosts_fini(&r.deny);
	free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct repo_asks a, again;
	struct buf b = { 0 };
	struct err e = { 0 };

	if (size && data[0] == '=') {
		if (repo_parse(&a, span_of(data + 1, size - 1)) < 0)
			return 0;
		check(&a);
		repo_asks_fini(&a);
		return 0;
	}
	if (repo_read(&a, data, size, &e) < 0)
		return 0;
	check(&a);
	if (repo_put(&b, &a) < 0 || repo_parse(&again, span_of(b.p, b.len)) < 0 || again.n != a.n ||
	    (a.n && memcmp(again.v, a.v, a.n * sizeof(*a.v)) != 0))
		abort();
	repo_asks_fini(&again);
	repo_asks_fini(&a);
	buf_fini(&b);
	return 0;
}
