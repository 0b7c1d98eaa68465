/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/erofs_tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "lib/erofs_reader.h"

uint32_t et_inode(struct et *t, uint32_t mode)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 64;
		t->v = xrealloc(t->v, t->cap * sizeof(*t->v));
	}
	t->v[t->n] = (struct et_inode){ .in.mode = mode };
	return t->n++;
}

void et_init(struct et *t)
{
	*t = (struct et){ 0 };
	(void)et_inode(t, S_IFDIR | 0755);
}

static void free_bytes(struct span s)
{
	free((void *)(uintptr_t)s.p);
}

void et_fini(struct et *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		struct et_inode *in = &t->v[i];

		for (uint32_t k = 0; k < in->n_names; k++)
			free(in->names[k].name);
		for (uint32_t k = 0; k < in->in.n_xattrs; k++) {
			free_bytes(in->xattrs[k].name);
			free_bytes(in->xattrs[k].value);
		}
		free_bytes(in->in.link);
		free(in->names);
	}
	free(t->v);
	*t = (struct et){ 0 };
}

static int cmp_bytes(const uint8_t *a, size_t an, const uint8_t *b, size_t bn)
{
	int c = memcmp(a, b, MIN(an, bn));

	return c ? c : (an > bn) - (an < bn);
}

bool et_name(struct et *t, uint32_t dir, const void *name, size_t len, uint32_t inode)
{
	struct et_inode *d = &t->v[dir];

	for (uint32_t k = 0; k < d->n_names; k++) {
		if (cmp_bytes(d->names[k].name, d->names[k].len, name, len) == 0)
			return false;
	}
	if (d->n_names == d->cap_names) {
		d->cap_names = d->cap_names ? 2 * d->cap_names : 8;
		d->names = xrealloc(d->names, d->cap_names * sizeof(*d->names));
	}
	d->names[d->n_names++] =
		(struct et_name){ .name = xmemdup(name, len), .len = len, .inode = inode };
	d->in.n_dirents = d->n_names;
	t->v[inode].refs++;
	if (S_ISDIR(t->v[inode].in.mode))
		t->v[inode].in.parent = dir;
	return true;
}

uint32_t et_add(struct et *t, uint32_t dir, const char *name, uint32_t mode)
{
	uint32_t i = et_inode(t, mode);

	ASSERT(et_name(t, dir, name, strlen(name), i));
	return i;
}

void et_link_text(struct et *t, uint32_t inode, const void *text, size_t len)
{
	free_bytes(t->v[inode].in.link);
	t->v[inode].in.link = span_of(xmemdup(text, len), len);
}

void et_xattr(struct et *t, uint32_t inode, const char *name, const void *value, size_t len)
{
	struct et_inode *in = &t->v[inode];

	in->xattrs[in->in.n_xattrs++] = (struct erofs_xattr){
		.name = span_of(xstrdup(name), strlen(name)),
		.value = span_of(xmemdup(value, len), len),
	};
}

static int cmp_names(const void *a, const void *b)
{
	const struct et_name *x = a, *y = b;

	return cmp_bytes(x->name, x->len, y->name, y->len);
}

void et_sort(struct et *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		if (t->v[i].n_names)
			qsort(t->v[i].names, t->v[i].n_names, sizeof(struct et_name), cmp_names);
	}
}

/* ---- chance ---- */

uint32_t et_pick(struct et_rng *r, uint32_t n)
{
	uint32_t v = 0;

	if (r->seeded) { /* splitmix64 */
		uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		return (uint32_t)((z ^ z >> 31) % n);
	}
	for (uint32_t top = n - 1; top && r->left; top >>= 8, r->left--)
		v = v << 8 | *r->p++;
	return v % n;
}

bool et_more(const struct et_rng *r)
{
	return r->seeded || r->left > 0;
}

static size_t pick_name(struct et_rng *r, uint8_t name[255])
{
	static const size_t special[] = { 1, 2, 3, 254, 255, 100 };
	size_t len = et_pick(r, 8) ? 1 + et_pick(r, 20) : special[et_pick(r, ARRAY_LEN(special))];
	bool wild = et_pick(r, 4) == 0;

	for (size_t i = 0; i < len; i++) {
		name[i] = wild ? (uint8_t)(1 + et_pick(r, 255)) : (uint8_t)('a' + et_pick(r, 26));
		if (name[i] == '/')
			name[i] = '.';
	}
	if (et_pick(r, 8) == 0)
		name[0] = "-.+!"[et_pick(r, 4)]; /* around "." and ".." in the order */
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		name[len - 1] = '-';
	return len;
}

static void pick_xattrs(struct et *t, struct et_rng *r, uint32_t i)
{
	uint32_t n = et_pick(r, 6) ? 1 + et_pick(r, 2) : EROFS_XATTRS_MAX;

	for (uint32_t k = 0; k < n; k++) {
		uint8_t value[EROFS_XATTR_VALUE_MAX];
		size_t len = et_pick(r, 4) ? et_pick(r, 30) : et_pick(r, sizeof(value) + 1);
		char name[32];

		memset(value, (int)et_pick(r, 256), sizeof(value));
		if (k == 0) { /* what a kernel takes for one: revision 2, and the sets */
			len = 20;
			memcpy(value, "\0\0\0\2", 4);
		}
		(void)snprintf(name, sizeof(name), k ? "user.attribute%u" : "security.capability",
		               k);
		et_xattr(t, i, name, value, len);
	}
}

/* What every inode has. */
static void pick_common(struct et *t, struct et_rng *r, uint32_t i)
{
	struct erofs_inode *in = &t->v[i].in;

	in->mode |= et_pick(r, 010000);
	in->uid = et_pick(r, 3) ? 1000 : et_pick(r, UINT32_MAX);
	in->gid = et_pick(r, 3) ? 1000 : et_pick(r, UINT32_MAX);
	in->mtime_s = (int64_t)et_pick(r, UINT32_MAX) * (et_pick(r, 8) ? 1 : -4);
	in->mtime_ns = et_pick(r, 1000000000);
	if (et_pick(r, 12) == 0)
		pick_xattrs(t, r, i);
}

static uint32_t pick_inode(struct et *t, struct et_rng *r, uint64_t max_size)
{
	static const uint32_t kinds[] = { S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFDIR,
		                          S_IFLNK, S_IFIFO, S_IFCHR, S_IFBLK, S_IFSOCK };
	uint32_t i = et_inode(t, kinds[et_pick(r, ARRAY_LEN(kinds))]);
	struct erofs_inode *in = &t->v[i].in;

	pick_common(t, r, i);
	if (S_ISREG(in->mode)) {
		uint64_t size = et_pick(r, 4) ? et_pick(r, 20000)
		                              : (uint64_t)et_pick(r, UINT32_MAX) << et_pick(r, 14);
		in->size = et_pick(r, 8) ? MIN(size, max_size) : 0;
	} else if (S_ISLNK(in->mode)) {
		uint8_t text[EROFS_LINK_MAX];
		size_t len = et_pick(r, 4) ? 1 + et_pick(r, 60) : 1 + et_pick(r, EROFS_LINK_MAX);

		memset(text, (int)(1 + et_pick(r, 255)), sizeof(text));
		et_link_text(t, i, text, len);
	} else if (S_ISCHR(in->mode) || S_ISBLK(in->mode)) {
		in->rdev = et_pick(r, 5) ? et_pick(r, 0x10000) : et_pick(r, UINT32_MAX);
	}
	return i;
}

static uint32_t pick_dir(const struct et *t, struct et_rng *r)
{
	for (int tries = 0; tries < 8; tries++) {
		uint32_t i = et_pick(r, t->n);
		if (S_ISDIR(t->v[i].in.mode) && (i == 0 || t->v[i].refs))
			return i;
	}
	return 0;
}

void et_random(struct et *t, struct et_rng *r, uint32_t max_inodes, uint64_t max_size)
{
	uint8_t name[256];
	size_t len;

	pick_common(t, r, 0);
	while (et_more(r) && t->n < max_inodes) {
		uint32_t dir = pick_dir(t, r), what = et_pick(r, 20), i;

		if (what == 0 && t->n > 1) { /* another name of something */
			i = 1 + et_pick(r, t->n - 1);
			len = pick_name(r, name);
			if (!S_ISDIR(t->v[i].in.mode))
				(void)et_name(t, dir, name, len, i);
		} else if (what == 1) { /* a large directory */
			uint32_t many = 1 + et_pick(r, 700);

			len = 12 + et_pick(r, 244);
			for (uint32_t k = 0; k < many && t->n < max_inodes; k++) {
				memset(name, 'x', sizeof(name));
				(void)snprintf((char *)name, sizeof(name), "%08x", k);
				name[8] = '-';
				i = et_inode(t, S_IFREG | 0644);
				(void)et_name(t, dir, name, len, i);
			}
		} else if (what == 2) { /* a deep one */
			uint32_t many = 1 + et_pick(r, 40);

			for (uint32_t k = 0; k < many && t->n < max_inodes; k++) {
				i = et_inode(t, S_IFDIR | 0755);
				len = pick_name(r, name);
				if (!et_name(t, dir, name, len, i)) {
					t->n--;
					break;
				}
				dir = i;
			}
		} else {
			i = pick_inode(t, r, max_size);
			len = pick_name(r, name);
			if (!et_name(t, dir, name, len, i) && S_ISDIR(t->v[i].in.mode))
				t->v[i].in.mode = S_IFIFO; /* without a name, like the others */
		}
	}
	et_sort(t);
}

/* ---- as a source ---- */

static int src_inode(void *arg, uint32_t i, struct erofs_inode *out)
{
	struct et *t = arg;

	if (i >= t->n)
		return -ENOENT;
	*out = t->v[i].in;
	out->xattrs = t->v[i].xattrs;
	return 0;
}

static int src_dirent(void *arg, uint32_t dir, uint32_t k, struct erofs_dirent *out)
{
	const struct et *t = arg;
	const struct et_name *n = &t->v[dir].names[k];

	*out = (struct erofs_dirent){
		.name = span_of(n->name, n->len),
		.inode = n->inode,
		.mode = n->inode < t->n ? t->v[n->inode].in.mode : S_IFREG,
	};
	return 0;
}

static void src_placed(void *arg, uint32_t i, uint64_t block)
{
	struct et *t = arg;

	t->placed_calls++;
	t->v[i].block = block;
}

struct erofs_source et_source(struct et *t)
{
	return (struct erofs_source){
		.arg = t,
		.n_inodes = t->n,
		.inode = src_inode,
		.dirent = src_dirent,
		.placed = src_placed,
	};
}

/* ---- compare ---- */

struct cmp {
	const struct et *t;
	struct er e;
	const struct erofs_result *r;
	uint64_t *nids; /* by model inode; 0: not seen */
	uint32_t dir, k;
	uint32_t dots;
};

static int type_of(uint32_t mode)
{
	static const struct {
		uint32_t fmt;
		int type;
	} t[] = { { S_IFREG, 1 }, { S_IFDIR, 2 },  { S_IFCHR, 3 }, { S_IFBLK, 4 },
		  { S_IFIFO, 5 }, { S_IFSOCK, 6 }, { S_IFLNK, 7 } };

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (t[i].fmt == (mode & S_IFMT))
			return t[i].type;
	}
	return 0;
}

static const char *cmp_dirent(void *arg, const struct er_dirent *d)
{
	struct cmp *c = arg;
	const struct et_inode *dir = &c->t->v[c->dir];

	if (d->name[0] == '.' && (d->len == 1 || (d->len == 2 && d->name[1] == '.'))) {
		uint32_t want = d->len == 1 ? c->dir : dir->in.parent;

		c->dots |= 1u << d->len;
		if (d->type != 2 || d->nid != c->nids[want])
			return "'.' or '..'";
		return NULL;
	}
	if (c->k >= dir->n_names)
		return "a name too many";
	const struct et_name *n = &dir->names[c->k++];
	if (n->len != d->len || memcmp(n->name, d->name, d->len) != 0)
		return "another name";
	if (d->type != type_of(c->t->v[n->inode].in.mode))
		return "another type";
	if (d->nid == 0 || (c->nids[n->inode] && c->nids[n->inode] != d->nid))
		return "names of one inode lead to two";
	c->nids[n->inode] = d->nid;
	return NULL;
}

static const char *cmp_xattrs(const struct et_inode *m, const struct er_inode *in)
{
	size_t pos = 0;

	if ((in->xattrs != NULL) != (m->in.n_xattrs != 0))
		return "attributes";
	for (uint32_t k = 0; k < m->in.n_xattrs; k++) {
		struct er_xattr x;
		const char *w = er_xattr(in, &pos, &x);
		const char *prefix;

		if (w)
			return w;
		if (x.index != 1 && x.index != 6)
			return "attribute prefix";
		prefix = x.index == 1 ? "user." : "security.";
		size_t n = strlen(prefix);
		if (m->xattrs[k].name.len != n + x.name_len ||
		    memcmp(m->xattrs[k].name.p, prefix, n) != 0 ||
		    memcmp(m->xattrs[k].name.p + n, x.name, x.name_len) != 0)
			return "attribute name";
		if (m->xattrs[k].value.len != x.value_len ||
		    (x.value_len && memcmp(m->xattrs[k].value.p, x.value, x.value_len) != 0))
			return "attribute value";
	}
	return pos == in->xattrs_len ? NULL : "bytes behind the attributes";
}

static const char *cmp_inode(struct cmp *c, uint32_t i, struct er_inode *in)
{
	const struct et_inode *m = &c->t->v[i];
	const char *w = er_inode(&c->e, c->nids[i], in);

	if (w)
		return w;
	if (c->nids[i] * 32 + c->e.meta_at < c->r->meta_block * EROFS_BLOCK_BYTES)
		return "inode before the metadata";
	if (in->mode != m->in.mode || in->uid != m->in.uid || in->gid != m->in.gid)
		return "mode or owner";
	if (in->mtime_s != m->in.mtime_s || in->mtime_ns != m->in.mtime_ns)
		return "time";
	w = cmp_xattrs(m, in);
	if (w)
		return w;
	if (!S_ISDIR(in->mode) && in->nlink != m->refs)
		return "link count";
	if (S_ISREG(in->mode)) {
		uint64_t n = (m->in.size + EROFS_BLOCK_BYTES - 1) / EROFS_BLOCK_BYTES;
		uint64_t want = m->in.is_placed ? m->in.block_at : m->block;

		if (in->size != m->in.size || in->layout != 0)
			return "size or layout of a file";
		if (n && (in->block != want || want == 0))
			return "block of a file";
		if (n && !m->in.is_placed &&
		    (want < c->r->data_block || n > c->r->image_blocks - want))
			return "data outside of the image's part for it";
	} else if (S_ISLNK(in->mode)) {
		const uint8_t *p;
		size_t len;

		w = er_block(&c->e, in, 0, &p, &len);
		if (w)
			return w;
		if (in->size != m->in.link.len || len != in->size ||
		    memcmp(p, m->in.link.p, len) != 0)
			return "text of a link";
	} else if (S_ISCHR(in->mode) || S_ISBLK(in->mode)) {
		if (in->rdev != m->in.rdev)
			return "device number";
	}
	return NULL;
}

static const char *cmp_dir(struct cmp *c, uint32_t i, const struct er_inode *in)
{
	const struct et_inode *m = &c->t->v[i];
	uint32_t links = 2;
	uint64_t nid;
	const char *w;

	c->dir = i;
	c->k = c->dots = 0;
	w = er_readdir(&c->e, in, cmp_dirent, c);
	if (w)
		return w;
	if (c->k != m->n_names || c->dots != 6)
		return "names are missing";
	for (uint32_t k = 0; k < m->n_names; k++) {
		links += S_ISDIR(c->t->v[m->names[k].inode].in.mode);
		w = er_lookup(&c->e, in, m->names[k].name, m->names[k].len, &nid);
		if (w || nid != c->nids[m->names[k].inode])
			return w ? w : "a name is not found by search";
	}
	w = er_lookup(&c->e, in, "..", 2, &nid);
	if (w || nid != c->nids[m->in.parent])
		return w ? w : "'..' is not found by search";
	return links == in->nlink ? NULL : "link count of a directory";
}

const char *et_compare(const struct et *t, const void *p, size_t len, const struct erofs_opts *o,
                       const struct erofs_result *r)
{
	AUTO_FREE uint64_t *nids = xcalloc(t->n, sizeof(*nids));
	AUTO_FREE uint32_t *todo = xcalloc(t->n, sizeof(*todo));
	AUTO_FREE uint8_t *done = xcalloc(t->n, 1);
	struct cmp c = { .t = t, .r = r, .nids = nids };
	uint32_t n_todo = 1, n_done = 0, to_place = 0;
	struct er_inode in;
	const char *w = er_open(&c.e, p, len);

	if (w)
		return w;
	if (memcmp(c.e.uuid, o->uuid, 16) != 0 || memcmp(c.e.volume, o->volume, 16) != 0)
		return "uuid or volume name";
	if (len != r->data_block * EROFS_BLOCK_BYTES || c.e.blocks != r->image_blocks)
		return "length of the image";
	if (r->meta_block != o->meta_block || r->data_block != r->meta_block + r->meta_blocks)
		return "place of the metadata";
	nids[0] = c.e.root_nid;
	done[0] = 1;
	while (n_todo) {
		uint32_t i = todo[--n_todo];

		n_done++;
		w = cmp_inode(&c, i, &in);
		if (!w && S_ISDIR(t->v[i].in.mode))
			w = cmp_dir(&c, i, &in);
		if (w)
			return w;
		to_place += S_ISREG(t->v[i].in.mode) && t->v[i].in.size && !t->v[i].in.is_placed;
		for (uint32_t k = 0; k < t->v[i].n_names; k++) {
			uint32_t j = t->v[i].names[k].inode;

			if (!done[j]) {
				done[j] = 1;
				todo[n_todo++] = j;
			}
		}
	}
	if (n_done != c.e.inodes || n_done != r->inodes)
		return "count of inodes";
	if (to_place != t->placed_calls)
		return "placed() was not called once for each file";
	/* data in order and apart */
	uint64_t end = r->data_block;
	for (uint32_t i = 0; i < t->n; i++) {
		const struct et_inode *m = &t->v[i];

		if (!m->block)
			continue;
		if (m->block < end || (o->data_align && m->block % o->data_align))
			return "data overlaps or is not aligned";
		end = m->block + (m->in.size + EROFS_BLOCK_BYTES - 1) / EROFS_BLOCK_BYTES;
	}
	return end == r->image_blocks ? NULL : "blocks behind the data";
}
