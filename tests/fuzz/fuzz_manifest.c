/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties: whatever manifest_open() accepts can be walked from every side
 * without leaving the input, every entry is found again by its path, and the
 * writer says it back byte for byte.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "manifest/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct manifest *m)
{
	AUTO_BUF struct buf path = { 0 };
	uint32_t found = 0;

	for (uint32_t i = 1; i < m->count; i++) {
		struct manifest_entry e;
		struct manifest_project p;

		manifest_get(m, i, &e);
		manifest_project(m, e.project, &p);
		path.len = 0;
		if (manifest_path(m, i, &path) < 0)
			return;
		if (manifest_find(m, p.entry, span_of(path.p, path.len)) != i ||
		    manifest_child(m, e.parent, e.name) != i)
			abort();
		found++;
	}
	if (found != m->count - 1)
		abort();
}

static void data(const struct manifest *m)
{
	AUTO_FREE uint32_t *order = NULL;
	size_t n = 0;

	if (manifest_order(m, &order, &n) < 0)
		return;
	for (size_t k = 0; k < n; k++) {
		struct manifest_entry e;

		manifest_get(m, order[k], &e);
		uint64_t blocks = (e.size + 4095) / 4096;
		if (manifest_file_at(m, order, n, e.block) != order[k] ||
		    manifest_file_at(m, order, n, e.block + blocks - 1) != order[k] ||
		    e.block < m->data_block || e.block + blocks > m->image_blocks)
			abort();
	}
	if (m->data_block > 0 && manifest_file_at(m, order, n, m->data_block - 1) != MANIFEST_NONE)
		abort();
}

static void write_again(const struct manifest *m)
{
	static int fd = -1;
	struct manifest_writer *w = manifest_writer_new();
	uint32_t index;

	if (fd < 0 && (fd = fd_memfd("manifest")) < 0)
		abort();
	for (uint32_t i = 0; i < m->count; i++) {
		struct manifest_entry e;

		manifest_get(m, i, &e);
		if (manifest_add(w, &e, &index) < 0 || index != i)
			abort();
	}
	for (uint32_t i = 0; i < m->n_projects; i++) {
		struct manifest_project p;

		manifest_project(m, i, &p);
		if (manifest_add_project(w, &p) < 0)
			abort();
	}
	for (uint32_t i = 0; i < m->n_rules; i++) {
		struct manifest_rules r;

		manifest_rules(m, i, &r);
		if (manifest_add_rules(w, &r) < 0)
			abort();
	}
	manifest_set_image(w, m->data_block, m->image_blocks);
	uint8_t *again = malloc(m->map.len);
	if (!again || manifest_write(w, fd, m->scanned_ns, NULL) < 0 ||
	    fd_pread_exact(fd, again, m->map.len, 0) < 0 ||
	    memcmp(again, m->map.p, m->map.len) != 0)
		abort();
	free(again);
	manifest_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct manifest m;

	if (manifest_open(&m, span_of(bytes, size), NULL) < 0)
		return 0;
	walk(&m);
	data(&m);
	write_again(&m);
	return 0;
}
