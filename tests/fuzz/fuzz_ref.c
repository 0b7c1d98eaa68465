/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a reference that is accepted is one word that begins with its source, reads as
 * itself, and so does what is shown of it. The words of skopeo are cut to their buffer.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "image/ref.h"
#include "image/skopeo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct image_ref *r, const char *text)
{
	struct image_ref again;

	if (ref_parse(&again, text, "/elsewhere", NULL) < 0 || strcmp(again.text, r->text) != 0 ||
	    strcmp(again.digest, r->digest) != 0 || again.source != r->source)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_FREE char *text = xstrndup((const char *)data, size);
	struct image_ref r;
	char words[64], name[32];

	(void)skopeo_read(span_of(data, size), words, sizeof(words));
	if (strlen(words) >= sizeof(words))
		abort();
	if (ref_parse(&r, text, "/cwd", NULL) < 0)
		return 0;
	if (r.text[0] == '-' || !strchr(r.text, ':') || (r.digest[0] && !ref_digest_ok(r.digest)))
		abort();
	for (const char *p = r.text; *p; p++) {
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			abort();
	}
	same(&r, r.text);
	same(&r, ref_short(&r));
	ref_agent(name, sizeof(name), &r);
	if (name[0] == '\0' || name[0] == '-' ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name))
		abort();
	return 0;
}
