/* SPDX-License-Identifier: Apache-2.0 */
/* scan_out.c - the tree as an image and a manifest. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "erofs/erofs.h"
#include "workspace/scan_priv.h"

enum { GUEST_ID = 1000 };

static bool present(const struct node *n)
{
	return !(n->flags & MANIFEST_ABSENT);
}

static int cmp_roots(const void *a, const void *b)
{
	struct node *const *x = a, *const *y = b;

	return span_cmp(scan_name(*x), scan_name(*y));
}

/* Breadth first: the order of the manifest. */
static int number(struct scan *s, struct err *err)
{
	size_t cap = (size_t)s->n_nodes + s->o->n_projects + 1;
	struct node **sorted = xmemdup(s->roots, s->o->n_projects * sizeof(*sorted));

	s->order = calloc(cap, sizeof(*s->order));
	if (!s->order) {
		free(sorted);
		return err_code(err, -ENOMEM, "cannot write the manifest");
	}
	qsort(sorted, s->o->n_projects, sizeof(*sorted), cmp_roots);
	s->n_order = 1;
	for (size_t i = 0; i < s->o->n_projects; i++)
		s->order[s->n_order++] = sorted[i];
	free(sorted);
	for (uint32_t i = 1; i < s->n_order; i++) {
		struct node *n = s->order[i];

		n->index = i;
		n->n_present = 0;
		for (uint32_t k = 0; k < n->n_kids; k++) {
			ASSERT(s->n_order < cap);
			n->n_present += present(&n->kids[k]);
			s->order[s->n_order++] = &n->kids[k];
		}
	}
	return 0;
}

static uint64_t mix(uint64_t ino, uint64_t dev)
{
	uint64_t h = (ino ^ dev << 40) * 0x9e3779b97f4a7c15u;

	return h ^ h >> 29;
}

/* Files with several names: the first in manifest order stands for all. */
static int find_hard_links(struct scan *s, struct err *err)
{
	struct node **linked = s->linked.p;
	size_t size = 16;

	while (size < 2 * s->linked.n)
		size *= 2;
	AUTO_FREE struct node **table = calloc(size, sizeof(*table));
	if (!table)
		return err_code(err, -ENOMEM, "cannot write the manifest");
	/* first: the lowest index of each inode; nodes that were dropped have index 0 */
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < s->linked.n; i++) {
			struct node *n = linked[i];

			if (n->index == 0 || !present(n) || n->gen)
				continue;
			size_t at = mix(n->ino, n->dev) & (size - 1);
			while (table[at] && (table[at]->ino != n->ino || table[at]->dev != n->dev))
				at = (at + 1) & (size - 1);
			if (pass == 0 && (!table[at] || n->index < table[at]->index))
				table[at] = n;
			/* seen at two moments: as two files, unless it did not change between */
			if (pass == 1 && table[at] != n && table[at]->size == n->size &&
			    table[at]->mtime_ns == n->mtime_ns)
				n->same_as = table[at];
		}
	}
	return 0;
}

static int number_inodes(struct scan *s, struct err *err)
{
	s->by_einode = calloc(s->n_order, sizeof(*s->by_einode));
	if (!s->by_einode)
		return err_code(err, -ENOMEM, "cannot write the image");
	s->n_einodes = 1;
	for (uint32_t i = 1; i < s->n_order; i++) {
		struct node *n = s->order[i];

		if (!present(n))
			continue;
		if (n->same_as) {
			n->einode = n->same_as->einode; /* comes before it */
			continue;
		}
		s->by_einode[s->n_einodes] = n;
		n->einode = s->n_einodes++;
	}
	return 0;
}

/* ---- the image ---- */

struct source {
	struct scan *s;
	struct manifest_writer *w;
	struct node *dir; /* dirent() before: goes on from there */
	uint32_t k, pos;
};

static uint32_t file_type(const struct node *n)
{
	return n->kind == MANIFEST_DIR ? S_IFDIR : n->kind == MANIFEST_LINK ? S_IFLNK : S_IFREG;
}

static int src_inode(void *arg, uint32_t inode, struct erofs_inode *out)
{
	struct source *src = arg;
	struct scan *s = src->s;

	*out = (struct erofs_inode){ .mode = S_IFDIR | 0755, .uid = GUEST_ID, .gid = GUEST_ID };
	if (inode == 0) {
		out->mtime_s = s->scanned_ns / 1000000000;
		out->n_dirents = (uint32_t)s->o->n_projects;
		return 0;
	}
	struct node *n = s->by_einode[inode];
	int64_t ns = n->mtime_ns % 1000000000;

	if (ns < 0)
		ns += 1000000000;
	out->mode = file_type(n) | (n->mode & 0777);
	out->mtime_s = (n->mtime_ns - ns) / 1000000000;
	out->mtime_ns = (uint32_t)ns;
	switch (n->kind) {
	case MANIFEST_DIR:
		out->n_dirents = n->n_present;
		out->parent = n->own & OWN_PROJECT ? 0 : n->parent->einode;
		break;
	case MANIFEST_LINK:
		out->mode = S_IFLNK | 0777;
		out->link = span_of(n->link, n->link_len);
		break;
	default:
		out->size = n->gen ? n->gen->content.len : n->size;
		out->is_placed = n->gen && out->size;
		out->block_at = n->gen ? n->gen->block : 0;
		break;
	}
	return 0;
}

static int src_dirent(void *arg, uint32_t dir, uint32_t k, struct erofs_dirent *out)
{
	struct source *src = arg;
	struct scan *s = src->s;
	struct node *n;

	if (dir == 0) {
		n = s->order[1 + k];
	} else {
		struct node *d = s->by_einode[dir];

		if (d->n_present == d->n_kids) {
			n = &d->kids[k];
		} else {
			if (src->dir != d || src->k > k) {
				src->dir = d;
				src->k = src->pos = 0;
				while (!present(&d->kids[src->pos]))
					src->pos++;
			}
			for (; src->k < k; src->k++)
				while (!present(&d->kids[++src->pos]))
					;
			n = &d->kids[src->pos];
		}
	}
	*out = (struct erofs_dirent){ .name = scan_name(n),
		                      .inode = n->einode,
		                      .mode = file_type(n) };
	return 0;
}

static void src_placed(void *arg, uint32_t inode, uint64_t block)
{
	struct source *src = arg;

	manifest_set_block(src->w, src->s->by_einode[inode]->index, block);
}

/* Contents of ours go first, each from a block of its own on. */
static int write_generated(struct scan *s, uint64_t *out_next, struct err *err)
{
	static const uint8_t zeros[EROFS_BLOCK_BYTES];
	struct generated **gen = s->generated.p;
	uint64_t block = 1;

	for (size_t i = 0; i < s->generated.n; i++) {
		struct buf *b = &gen[i]->content;
		size_t tail = b->len % EROFS_BLOCK_BYTES;
		off_t at = (off_t)(block * EROFS_BLOCK_BYTES);

		if (!present(gen[i]->node) || gen[i]->node->index == 0 || b->len == 0)
			continue;
		int ret = fd_pwrite_all(s->o->meta_fd, b->p, b->len, at);
		if (ret == 0 && tail)
			ret = fd_pwrite_all(s->o->meta_fd, zeros, EROFS_BLOCK_BYTES - tail,
			                    at + (off_t)b->len);
		if (ret < 0)
			return err_code(err, ret, "cannot write the image");
		gen[i]->block = block;
		block += (b->len + EROFS_BLOCK_BYTES - 1) / EROFS_BLOCK_BYTES;
	}
	*out_next = block;
	return 0;
}

/* ---- the manifest ---- */

static int add_entries(struct scan *s, struct manifest_writer *w)
{
	struct manifest_entry root = { .kind = MANIFEST_DIR, .mode = 0755 };
	uint32_t index;
	int ret = manifest_add(w, &root, &index);

	for (uint32_t i = 1; i < s->n_order && ret == 0; i++) {
		const struct node *n = s->order[i];
		struct manifest_entry e = {
			.parent = n->own & OWN_PROJECT ? 0 : n->parent->index,
			.kind = n->kind,
			.why = n->why,
			.flags = n->flags,
			.project = n->project,
			.mode = n->mode,
			.uid = n->uid,
			.gid = n->gid,
			.nlink = n->nlink,
			.size = n->kind == MANIFEST_FILE ? n->size : 0,
			.mtime_ns = n->mtime_ns,
			.ctime_ns = n->ctime_ns,
			.ino = n->ino,
			.dev = n->dev,
			.block = n->gen && present(n) ? n->gen->block : 0,
			.same_as = n->same_as ? n->same_as->index : i,
			.name = scan_name(n),
			.link = n->kind == MANIFEST_LINK ? span_of(n->link, n->link_len)
			                                 : (struct span){ 0 },
		};

		ret = manifest_add(w, &e, &index);
	}
	return ret;
}

static int cmp_rules(const void *a, const void *b)
{
	const struct rule *x = a, *y = b;

	if (x->dir->index != y->dir->index)
		return x->dir->index < y->dir->index ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

/* The files of one source. Of .gitignore what finds no room is left out and said. */
static int add_files(struct scan *s, struct manifest_writer *w, uint8_t source, bool *out_cut)
{
	const struct rule *rules = s->rules.p;

	for (size_t i = 0; i < s->rules.n; i++) {
		struct manifest_rules r = { .dir = rules[i].dir->index,
			                    .source = source,
			                    .text = span_of(rules[i].text, rules[i].len) };

		if (rules[i].source != source || r.dir == 0) /* 0: went with a directory above it */
			continue;
		int ret = manifest_add_rules(w, &r);
		if (ret == -EFBIG && source == MANIFEST_RULES_GITIGNORE) {
			*out_cut = true;
			return 0;
		}
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int add_rules(struct scan *s, struct manifest_writer *w, struct err *err)
{
	struct rule *rules = s->rules.p;
	bool cut = false;
	int ret = 0;

	if (s->rules.n)
		qsort(rules, s->rules.n, sizeof(*rules), cmp_rules);
	/* the weaker first; and what hides before what sets aside, as it must have room */
	for (size_t i = 0; i < s->o->n_projects && ret == 0; i++) {
		struct manifest_rules r = { .dir = s->roots[i]->index,
			                    .source = MANIFEST_RULES_HEAVY };

		if (s->heavy && !s->index_failed)
			ret = manifest_add_rules(w, &r);
	}
	if (ret == 0)
		ret = add_files(s, w, MANIFEST_RULES_CLOCHEIGNORE, &cut);
	for (size_t i = 0; i < s->o->n_projects && ret == 0; i++) {
		struct manifest_rules r = { .dir = s->roots[i]->index,
			                    .source = MANIFEST_RULES_EXCLUDE,
			                    .text = s->o->exclude };

		if (s->o->exclude.len)
			ret = manifest_add_rules(w, &r);
	}
	if (ret == 0)
		ret = add_files(s, w, MANIFEST_RULES_GITIGNORE, &cut);
	if (cut)
		scan_note(s, NOTE_RULES_CUT, NULL, (struct span){ 0 });
	if (ret == -EFBIG)
		return err_set(err, ret, "more than %d bytes of exclusion rules",
		               MANIFEST_RULES_MAX);
	return ret < 0 ? err_code(err, ret, "cannot write the manifest") : 0;
}

static int write_all(struct scan *s, struct manifest_writer *w, struct err *err)
{
	struct source src = { .s = s, .w = w };
	struct erofs_source es = { .arg = &src,
		                   .n_inodes = s->n_einodes,
		                   .inode = src_inode,
		                   .dirent = src_dirent,
		                   .placed = src_placed };
	struct erofs_opts opts = { .volume = "cloche-work",
		                   .build_time_s = s->scanned_ns / 1000000000 };
	struct erofs_result res;
	int ret = write_generated(s, &opts.meta_block, err);

	if (ret < 0)
		return ret;
	ret = add_entries(s, w);
	if (ret < 0)
		return err_code(err, ret, "cannot write the manifest");
	for (size_t i = 0; i < s->o->n_projects; i++) {
		struct manifest_project p = { .entry = s->roots[i]->index,
			                      .path = span_str(s->o->projects[i].path),
			                      .dev = s->roots[i]->dev,
			                      .ino = s->roots[i]->ino };

		ret = manifest_add_project(w, &p);
		if (ret < 0)
			return err_code(err, ret, "cannot write the manifest");
	}
	ret = add_rules(s, w, err);
	if (ret < 0)
		return ret;
	memcpy(opts.uuid, s->o->uuid, sizeof(opts.uuid));
	ret = erofs_write(s->o->meta_fd, &es, &opts, &res, err);
	if (ret < 0)
		return ret;
	s->data_block = res.data_block;
	s->image_blocks = res.image_blocks;
	s->meta_blocks = res.meta_blocks;
	manifest_set_image(w, res.data_block, res.image_blocks);
	return manifest_write(w, s->o->manifest_fd, s->scanned_ns, err);
}

int scan_out(struct scan *s, struct err *err)
{
	struct manifest_writer *w;
	int ret = number(s, err);

	if (ret == 0)
		ret = find_hard_links(s, err);
	if (ret == 0)
		ret = number_inodes(s, err);
	if (ret < 0)
		return ret;
	w = manifest_writer_new();
	ret = write_all(s, w, err);
	manifest_writer_free(w);
	return ret;
}
