/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: what the caged reader makes of a manifest, an index or a config is what the other
 * side takes, word by word; and any words are either taken whole or refused.
 */
#include <stdlib.h>
#include <string.h>

#include "image/ocireader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_root(const struct buf *b)
{
	struct span said = span_of(b->p, b->len);
	const char *tag, *value;
	size_t n, layers = 0, heads = 0;
	int r;

	while ((r = oci_word(&said, &tag, &n, &value)) == 1) {
		char digest[OCI_DIGEST_BYTES];
		uint64_t bytes;
		if (oci_blob_parse(value, OCI_BLOB_MAX, digest, &bytes) < 0)
			abort();
		layers += n == 5;
		heads += n != 5;
	}
	if (r < 0 || heads != 1 || layers > OCI_LAYERS_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oci_config c;
	struct buf b = { 0 };

	if (oci_read_root(span_of(data, size), &b, NULL) == 0)
		check_root(&b);
	b.len = 0;
	if (oci_read_config(span_of(data, size), &b, NULL) == 0) {
		if (oci_config_words(&c, span_of(b.p, b.len)) < 0)
			abort();
		oci_config_free(&c);
	}
	buf_fini(&b);
	if (oci_config_words(&c, span_of(data, size)) == 0) {
		if (!c.os || !c.arch || !c.user || !c.workdir)
			abort();
		oci_config_free(&c);
	}
	return 0;
}
