/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties: the cleaned configuration can be read, cleaning it again changes
 * nothing, and no url in it names a helper program or a password.
 */
#include <stdlib.h>

#include "workspace/gitconfig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check(void *arg UNUSED, const struct gitconfig_var *v)
{
	AUTO_BUF struct buf clean = { 0 };

	if (span_eq(v->section, span_str("remote")) && span_eq(v->key, span_str("url")) &&
	    gitconfig_clean_url(v->value, &clean) != 0)
		abort();
	if (span_eq(v->section, span_str("include")) || span_eq(v->section, span_str("alias")))
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_BUF struct buf once = { 0 };
	AUTO_BUF struct buf twice = { 0 };
	struct gitconfig_report r = { 0 };

	if (gitconfig_sanitise(span_of(data, size), 0, &once, &r, NULL) < 0)
		return 0;
	gitconfig_report_fini(&r);
	struct span s = span_of(once.p, once.len);
	if (gitconfig_parse(s, check, NULL, NULL) < 0 ||
	    gitconfig_sanitise(s, 0, &twice, &r, NULL) < 0 || r.dropped || r.credentials ||
	    !span_eq(s, span_of(twice.p, twice.len)))
		abort();
	gitconfig_report_fini(&r);
	return 0;
}
