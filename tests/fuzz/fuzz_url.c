/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what is accepted says back as a URL that reads as the same host, port and scheme. */
#include <stdlib.h>
#include <string.h>

#include "policy/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct url_origin u = { 0 }, v = { 0 };
	char text[URL_ORIGIN_BYTES];
	const char *why = NULL;

	if (url_origin_parse(&u, span_of(data, size), &why) < 0) {
		if (!why || u.host[0])
			abort();
		return 0;
	}
	if (u.port == 0 || !host_name_ok(span_str(u.host)) ||
	    url_origin_parse(&v, span_str(url_origin_str(text, &u)), NULL) < 0)
		abort();
	if (strcmp(u.host, v.host) != 0 || u.port != v.port || u.tls != v.tls)
		abort();
	return 0;
}
