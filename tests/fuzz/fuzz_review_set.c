/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: u16 length of the baseline hashes, u32 length of the index, both, an
 * `applied` table of u16 length, and the manifest. Properties: whatever they
 * say, reading ends; every change has a checked path below a project, a slot
 * below compare_slots() that no other has, and comes in path order; nothing
 * below a .git and nothing that the manifest hides is ever a change that may
 * be applied.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/path.h"
#include "review/changeset_priv.h"
#include "review/compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const struct compare_change *c, struct span path)
{
	if (path_check(path) < 0)
		abort();
	if (c->flags & COMPARE_REFUSED)
		return;
	for (struct span rest = path; rest.len;) {
		const uint8_t *slash = memchr(rest.p, '/', rest.len);
		size_t n = slash ? (size_t)(slash - rest.p) : rest.len;
		if (classify_is_git(span_of(rest.p, n)))
			abort();
		n += slash ? 1 : 0;
		rest = span_of(rest.p + n, rest.len - n);
	}
}

static void check(const struct changeset *s, const struct compare *c)
{
	AUTO_BUF struct buf path = { 0 };
	AUTO_FREE uint8_t *seen = xcalloc(compare_slots(c) + 1, 1);
	struct compare_change ch;
	struct changeset_counts counts;

	for (uint32_t i = 0; i < compare_count(c); i++) {
		compare_get(c, i, &ch);
		if (ch.slot >= compare_slots(c) || seen[ch.slot]++)
			abort();
		if (ch.project >= s->manifest.n_projects && ch.project != COMPARE_NO_PROJECT)
			abort();
		path.len = 0;
		if (compare_path(c, i, &path) < 0)
			abort();
		check_path(&ch, span_of(path.p, path.len));
		if (ch.project == COMPARE_NO_PROJECT && !(ch.flags & COMPARE_REFUSED))
			abort();
		if (ch.entry != MANIFEST_NONE && !(ch.flags & COMPARE_REFUSED)) {
			struct manifest_entry e;
			manifest_get(&s->manifest, ch.entry, &e);
			if (e.flags & MANIFEST_ABSENT)
				abort();
		}
		(void)compare_parent_mode(c, i, 1);
		(void)compare_blocker(c, i);
	}
	compare_counts(c, &counts);
}

static int hash_of(void *arg, uint32_t i, struct hash *out)
{
	(void)arg;
	(void)i;
	*out = (struct hash){ 0 };
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rd r = rd_of(data, size);
	size_t base_len = (size_t)rd_le(&r, 2), index_len = (size_t)rd_le(&r, 4);
	struct changeset s = { .dir_fd = -1, .status_fd = -1 };
	struct compare *c;

	s.base = rd_take(&r, base_len);
	s.index = rd_take(&r, index_len);
	struct span applied = rd_blob(&r, 2, 65535);
	if (r.bad || changeset_check_index(s.index, &s.records) < 0 || changeset_check_base(&s) < 0)
		return 0;
	if (manifest_open(&s.manifest, span_of(r.p, r.left), NULL) < 0)
		return 0;
	/* every other record has its content in the set */
	s.has_blob = xcalloc(s.records / 8 + 1, 1);
	memset(s.has_blob, 0x55, s.records / 8 + 1);
	if (compare_new(&c, &s, &applied, 1, NULL) == 0) {
		compare_renames(c, hash_of, NULL, 1024, 1 << 20);
		check(&s, c);
		compare_free(c);
	}
	free(s.has_blob);
	return 0;
}
