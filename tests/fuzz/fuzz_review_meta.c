/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first byte chooses: meta.json, a journal, or a worker's messages.
 * Properties: an accepted meta has a good id and absolute paths; a journal's
 * names are ours and its path stays inside; an accepted item has a checked
 * path and no text with a control character.
 */
#include <stdlib.h>

#include "base/path.h"
#include "review/apply_priv.h"
#include "review/changeset_priv.h"
#include "review/review_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void meta(struct span s)
{
	struct changeset_meta m;

	if (changeset_meta_parse(&m, s) < 0)
		return;
	if (!changeset_id_ok(m.id))
		abort();
	for (uint32_t i = 0; i < m.n_projects; i++) {
		if (m.projects[i].path[0] != '/')
			abort();
	}
	changeset_meta_fini(&m);
}

static void journal(struct span s)
{
	struct journal j;

	journal_parse(&j, s);
	if (j.open && (strlen(j.tmp) != COMPARE_TMP_LEN || strchr(j.tmp, '/')))
		abort();
	if (j.open && j.swap && path_check(span_of(j.path.p, j.path.len)) < 0)
		abort();
	journal_fini(&j);
}

static void visible(const char *text)
{
	for (; text && *text; text++) {
		if ((uint8_t)*text < 0x20 || *text == 0x7f)
			abort();
	}
}

static void message(struct span s)
{
	struct review_item it;
	struct apply_outcome o;

	if (review_get_outcome(&o, s) == 0)
		visible(o.text);
	if (review_get_item(&it, s, 2) < 0)
		return;
	visible(it.path);
	visible(it.link);
	visible(it.old_link);
	visible(it.host_text);
	visible(it.reason);
	if (path_check(span_of(it.raw.p, it.raw.len)) < 0)
		abort();
	free(it.path);
	free(it.link);
	free(it.old_link);
	free(it.host_text);
	free(it.reason);
	buf_fini(&it.raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	struct span s = span_of(data + 1, size - 1);
	switch (data[0] % 3) {
	case 0:
		meta(s);
		break;
	case 1:
		journal(s);
		break;
	default:
		message(s);
		break;
	}
	return 0;
}
