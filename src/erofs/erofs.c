/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two walks over the source. The first checks the tree and learns how large
 * each directory is and how many names each inode has; then every inode gets
 * its place; the second walk writes. The metadata has two regions, each
 * written front to back through a buffer of its own:
 *
 *	meta_block:	inodes in order of their numbers, each followed by its
 *			extended attributes and its inline tail
 *	behind them:	whole directory blocks, and symlinks too long to inline
 *
 * An inode with what follows it never crosses a block. The format asks that
 * only of the tail, but a kernel that reads a symlink while it loads the inode
 * (fs/erofs/inode.c) wants all three in one block.
 *
 * A nid is an offset in units of 32 bytes from meta_blkaddr, and the root's has
 * 16 bits, so the root comes first. meta_blkaddr is one block below the
 * metadata, because an inode at nid 0 would be inode number 0 in the guest,
 * which readdir(3) takes for a deleted entry.
 */
#include "erofs/erofs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/vis.h"

enum {
	SUPER_OFFSET = 1024,
	SUPER_BYTES = 128,
	INODE_BYTES = 64,
	NID_UNIT = 32,
	DIRENT_BYTES = 12,
	XATTR_HEADER_BYTES = 12,
	XATTR_ENTRY_BYTES = 4,
	ROOT_NID = EROFS_BLOCK_BYTES / NID_UNIT,
	OUT_BUFFER_BYTES = 256 * 1024,
	NAMES_PER_BLOCK_MAX = EROFS_BLOCK_BYTES / (DIRENT_BYTES + 1),
};

#define SUPER_MAGIC 0xE0F5E1E2u
#define COMPAT_SB_CHECKSUM 1u
#define COMPAT_MTIME 2u /* the one time of an inode is its mtime */
#define CRC32C_POLY 0x82F63B78u

enum layout { LAYOUT_PLAIN = 0, LAYOUT_INLINE = 2 };

/* file types of dirents */
enum kind { K_NONE, K_REG, K_DIR, K_CHR, K_BLK, K_FIFO, K_SOCK, K_LNK };

struct node {
	uint32_t nid;
	uint32_t links;      /* names; directories: subdirectories */
	uint32_t bytes;      /* content of a directory or a symlink */
	uint32_t block;      /* of that content, from the second region's start */
	uint32_t in_dir;     /* which directory names it (the last that does) */
	uint16_t head_words; /* inode and attributes, in units of 4 bytes */
	uint8_t kind;
	uint8_t named_as : 4; /* kind in dirents; K_NONE: never named */
	uint8_t reached : 1;  /* a directory below the root */
};
_Static_assert(sizeof(struct node) <= 24, "as erofs.h promises");

/* A region of the file, written front to back. */
struct out {
	int fd;
	uint8_t *buf;
	size_t len;
	uint64_t at; /* file offset of buf[0] */
};

struct writer {
	const struct erofs_source *src;
	const struct erofs_opts *opts;
	struct err *err;
	struct node *nodes;
	uint64_t inodes; /* that are written */
	uint64_t inode_blocks, dir_blocks;
	uint64_t next_data;
	struct out inode_out, dir_out;
};

/* The dirents of one directory block, before the offsets of their names are known. */
struct dir_block {
	uint32_t count, name_bytes;
	struct {
		uint64_t nid;
		uint16_t off;
		uint8_t kind;
	} e[NAMES_PER_BLOCK_MAX];
	uint8_t names[EROFS_BLOCK_BYTES];
};

static enum kind kind_of(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return K_REG;
	case S_IFDIR:
		return K_DIR;
	case S_IFCHR:
		return K_CHR;
	case S_IFBLK:
		return K_BLK;
	case S_IFIFO:
		return K_FIFO;
	case S_IFSOCK:
		return K_SOCK;
	case S_IFLNK:
		return K_LNK;
	default:
		return K_NONE;
	}
}

/* ---- extended attributes ---- */

static const struct {
	const char *prefix;
	uint8_t index;
} xattr_prefixes[] = { { "user.", 1 }, { "security.", 6 } };

/* The part of @name behind its prefix; empty when it is none that we write. */
static struct span xattr_suffix(struct span name, uint8_t *out_index)
{
	for (size_t i = 0; i < ARRAY_LEN(xattr_prefixes); i++) {
		size_t n = strlen(xattr_prefixes[i].prefix);

		if (name.len > n && memcmp(name.p, xattr_prefixes[i].prefix, n) == 0) {
			*out_index = xattr_prefixes[i].index;
			return span_of(name.p + n, name.len - n);
		}
	}
	return span_of(NULL, 0);
}

/* Check the attributes and add up their bytes in the image (0 without any). */
static int xattrs_check(const struct writer *w, uint32_t i, const struct erofs_inode *in,
                        size_t *out_bytes)
{
	size_t n = in->n_xattrs ? XATTR_HEADER_BYTES : 0;
	char text[64];
	uint8_t index;

	if (in->n_xattrs > EROFS_XATTRS_MAX)
		return err_set(w->err, -EFBIG, "inode %u has %u extended attributes, over %d", i,
		               in->n_xattrs, EROFS_XATTRS_MAX);
	for (uint32_t k = 0; k < in->n_xattrs; k++) {
		const struct erofs_xattr *x = &in->xattrs[k];

		if (x->name.len > EROFS_NAME_MAX || xattr_suffix(x->name, &index).len == 0 ||
		    memchr(x->name.p, '\0', x->name.len))
			return err_set(w->err, -EINVAL,
			               "inode %u: extended attribute '%s' has no place in an image",
			               i, vis_str(text, sizeof(text), x->name));
		if (x->value.len > EROFS_XATTR_VALUE_MAX)
			return err_set(w->err, -EFBIG,
			               "inode %u: extended attribute '%s' is over %d bytes", i,
			               vis_str(text, sizeof(text), x->name), EROFS_XATTR_VALUE_MAX);
		for (uint32_t j = 0; j < k; j++) {
			if (span_eq(x->name, in->xattrs[j].name))
				return err_set(w->err, -EINVAL,
				               "inode %u: extended attribute '%s' comes twice", i,
				               vis_str(text, sizeof(text), x->name));
		}
		n += align_up(XATTR_ENTRY_BYTES + xattr_suffix(x->name, &index).len + x->value.len,
		              4);
	}
	*out_bytes = n;
	return 0;
}

/* ---- buffered output ---- */

static int out_flush(struct out *o)
{
	int r = fd_pwrite_all(o->fd, o->buf, o->len, (off_t)o->at);

	o->at += o->len;
	o->len = 0;
	return r;
}

static int out_put(struct out *o, const void *p, size_t n)
{
	const uint8_t *b = p; /* NULL: zeros */

	while (n) {
		size_t k = MIN(n, OUT_BUFFER_BYTES - o->len);

		if (b) {
			memcpy(o->buf + o->len, b, k);
			b += k;
		} else {
			memset(o->buf + o->len, 0, k);
		}
		o->len += k;
		n -= k;
		if (o->len == OUT_BUFFER_BYTES) {
			int r = out_flush(o);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* Zeros up to the offset @at of the file. */
static int out_pad(struct out *o, uint64_t at)
{
	ASSERT(at >= o->at + o->len);
	return out_put(o, NULL, (size_t)(at - o->at - o->len));
}

/* ---- directories ---- */

/*
 * The dirents of a directory with "." and ".." merged in: they are sorted like
 * every other name, so "-" comes before them and ".-" between them.
 */
struct dir_iter {
	uint32_t dir, parent, count;
	uint32_t k;    /* next dirent of the source */
	bool have;     /* `next` is one */
	uint32_t dots; /* "." and ".." given out */
	struct erofs_dirent next;
};

/* Return: 1 with a name, 2 with "." or "..", 0 at the end, or -errno. */
static int dir_next(const struct writer *w, struct dir_iter *it, struct erofs_dirent *out)
{
	if (!it->have && it->k < it->count) {
		it->next = (struct erofs_dirent){ 0 };
		int r = w->src->dirent(w->src->arg, it->dir, it->k, &it->next);
		if (r < 0)
			return err_code(w->err, r, "cannot read name %u of directory inode %u",
			                it->k, it->dir);
		it->k++;
		it->have = true;
	}
	if (it->dots < 2) {
		struct span dot = span_of("..", it->dots + 1);

		if (!it->have || span_cmp(dot, it->next.name) < 0) {
			*out = (struct erofs_dirent){
				.name = dot,
				.inode = it->dots ? it->parent : it->dir,
				.mode = S_IFDIR,
			};
			it->dots++;
			return 2;
		}
	}
	if (!it->have)
		return 0;
	*out = it->next;
	it->have = false;
	return 1;
}

static bool name_ok(struct span s)
{
	if (s.len == 0 || s.len > EROFS_NAME_MAX || !s.p)
		return false;
	if (memchr(s.p, '/', s.len) || memchr(s.p, '\0', s.len))
		return false;
	return !(s.p[0] == '.' && (s.len == 1 || (s.len == 2 && s.p[1] == '.')));
}

/* Note that directory @dir names an inode, with all that must agree on it. */
static int name_count(struct writer *w, uint32_t dir, const struct erofs_dirent *d)
{
	enum kind kind = kind_of(d->mode);
	struct node *n;
	char text[128];

	if (d->inode == 0 || d->inode >= w->src->n_inodes)
		return err_set(w->err, -EINVAL, "'%s' names inode %u of %u",
		               vis_str(text, sizeof(text), d->name), d->inode, w->src->n_inodes);
	n = &w->nodes[d->inode];
	if (kind == K_NONE)
		return err_set(w->err, -EINVAL, "'%s' has no known kind (mode %o)",
		               vis_str(text, sizeof(text), d->name), d->mode);
	if (n->named_as != K_NONE && (n->named_as != (unsigned)kind || kind == K_DIR))
		return err_set(w->err, -EINVAL,
		               "'%s': inode %u has two kinds, or is a directory with two names",
		               vis_str(text, sizeof(text), d->name), d->inode);
	n->named_as = kind;
	n->in_dir = dir;
	if (kind == K_DIR)
		w->nodes[dir].links++;
	else
		n->links++;
	return 0;
}

/* First walk: check the names of directory @dir, count links, add up its bytes. */
static int dir_measure(struct writer *w, uint32_t dir, const struct erofs_inode *in)
{
	struct dir_iter it = { .dir = dir, .parent = in->parent, .count = in->n_dirents };
	uint8_t last[EROFS_NAME_MAX];
	size_t last_len = 0;
	uint64_t bytes = 0;
	size_t used = 0;
	struct erofs_dirent d = { 0 };
	char text[128];
	int r;

	while ((r = dir_next(w, &it, &d)) > 0) {
		if (r == 1) {
			if (!name_ok(d.name))
				return err_set(w->err, -EINVAL,
				               "directory inode %u: name %u is no file name", dir,
				               it.k - 1);
			if (last_len && span_cmp(span_of(last, last_len), d.name) >= 0)
				return err_set(w->err, -EINVAL,
				               "directory inode %u: name '%s' is out of order", dir,
				               vis_str(text, sizeof(text), d.name));
			memcpy(last, d.name.p, d.name.len);
			last_len = d.name.len;
			int e = name_count(w, dir, &d);
			if (e < 0)
				return e;
		}
		size_t need = DIRENT_BYTES + d.name.len;
		if (need > EROFS_BLOCK_BYTES - used) {
			bytes += EROFS_BLOCK_BYTES;
			used = 0;
		}
		used += need;
	}
	if (r < 0)
		return r;
	bytes += used;
	if (bytes > UINT32_MAX)
		return err_set(w->err, -EFBIG, "directory inode %u is too large", dir);
	w->nodes[dir].bytes = (uint32_t)bytes;
	return 0;
}

/* Lay the collected block out in @dst. Return: its bytes in use. */
static size_t dir_block_put(const struct dir_block *b, uint8_t dst[EROFS_BLOCK_BYTES])
{
	struct wr o = wr_of(dst, EROFS_BLOCK_BYTES);
	uint32_t names_at = b->count * DIRENT_BYTES;

	for (uint32_t i = 0; i < b->count; i++) {
		wr_le(&o, b->e[i].nid, 8);
		wr_le(&o, names_at + b->e[i].off, 2);
		wr_le(&o, b->e[i].kind, 1);
		wr_le(&o, 0, 1);
	}
	wr_put(&o, b->names, b->name_bytes);
	ASSERT(!o.bad);
	return EROFS_BLOCK_BYTES - o.left;
}

static int changed(const struct writer *w, uint32_t i)
{
	return err_set(w->err, -EINVAL, "inode %u changed while the image was written", i);
}

/* Where the content of @n lies: inline behind the inode, or in whole blocks. */
static enum layout layout_of(const struct node *n)
{
	uint32_t tail = n->bytes % EROFS_BLOCK_BYTES;

	if (tail && n->head_words * 4u + tail <= EROFS_BLOCK_BYTES)
		return LAYOUT_INLINE;
	return LAYOUT_PLAIN;
}

/* Blocks that @n has in the second region. */
static uint32_t blocks_of(const struct node *n)
{
	uint32_t whole = n->bytes / EROFS_BLOCK_BYTES;

	return whole + (n->bytes % EROFS_BLOCK_BYTES && layout_of(n) == LAYOUT_PLAIN);
}

/* Second walk: whole blocks to one region, the tail behind the inode or to it as well. */
static int dir_write(struct writer *w, uint32_t dir, const struct erofs_inode *in)
{
	struct dir_iter it = { .dir = dir, .parent = in->parent, .count = in->n_dirents };
	const struct node *n = &w->nodes[dir];
	struct dir_block b;
	uint8_t block[EROFS_BLOCK_BYTES];
	struct erofs_dirent d = { 0 };
	uint64_t bytes = 0;
	int r;

	b.count = b.name_bytes = 0;
	while ((r = dir_next(w, &it, &d)) > 0) {
		if (d.name.len == 0 || d.name.len > EROFS_NAME_MAX || d.inode >= w->src->n_inodes ||
		    kind_of(d.mode) != (enum kind)w->nodes[d.inode].kind)
			return changed(w, dir);
		if (b.count * DIRENT_BYTES + b.name_bytes + DIRENT_BYTES + d.name.len >
		    EROFS_BLOCK_BYTES) {
			size_t used = dir_block_put(&b, block);

			memset(block + used, 0, sizeof(block) - used);
			bytes += EROFS_BLOCK_BYTES;
			if (bytes > n->bytes)
				return changed(w, dir);
			r = out_put(&w->dir_out, block, sizeof(block));
			if (r < 0)
				return r;
			b.count = b.name_bytes = 0;
		}
		ASSERT(b.count < NAMES_PER_BLOCK_MAX); /* a name has a byte or more */
		b.e[b.count].nid = w->nodes[d.inode].nid;
		b.e[b.count].off = (uint16_t)b.name_bytes;
		b.e[b.count].kind = (uint8_t)kind_of(d.mode);
		memcpy(b.names + b.name_bytes, d.name.p, d.name.len);
		b.name_bytes += (uint32_t)d.name.len;
		b.count++;
	}
	if (r < 0)
		return r;
	size_t used = dir_block_put(&b, block);
	if (bytes + used != n->bytes)
		return changed(w, dir);
	if (layout_of(n) == LAYOUT_INLINE)
		return out_put(&w->inode_out, block, used);
	memset(block + used, 0, sizeof(block) - used);
	return out_put(&w->dir_out, block, sizeof(block));
}

/* ---- inodes ---- */

static uint64_t data_blocks(const struct erofs_inode *in)
{
	return in->size / EROFS_BLOCK_BYTES + (in->size % EROFS_BLOCK_BYTES != 0);
}

/* What both walks check of an inode. @out_xattr_bytes: what its attributes take in the image */
static int inode_get(const struct writer *w, uint32_t i, struct erofs_inode *out,
                     size_t *out_xattr_bytes)
{
	*out = (struct erofs_inode){ 0 };
	int r = w->src->inode(w->src->arg, i, out);
	enum kind kind = kind_of(out->mode);
	uint64_t end;

	if (r < 0)
		return err_code(w->err, r, "cannot read inode %u", i);
	if (kind == K_NONE || out->mode > UINT16_MAX)
		return err_set(w->err, -EINVAL, "inode %u has no known kind (mode %o)", i,
		               out->mode);
	if (out->mtime_ns >= 1000000000u)
		return err_set(w->err, -EINVAL, "inode %u: %u ns are no part of a second", i,
		               out->mtime_ns);
	if (kind == K_REG && out->size && out->is_placed &&
	    (out->block_at == 0 || !u64_add(out->block_at, data_blocks(out), &end) ||
	     end > w->opts->meta_block))
		return err_set(w->err, -EINVAL,
		               "inode %u: its data does not lie before the metadata", i);
	if (kind == K_DIR && (out->parent >= w->src->n_inodes || (i == 0 && out->parent != 0)))
		return err_set(w->err, -EINVAL, "directory inode %u has no parent", i);
	if (kind == K_LNK && (out->link.len == 0 || out->link.len > EROFS_LINK_MAX ||
	                      memchr(out->link.p, '\0', out->link.len)))
		return err_set(w->err, -EINVAL,
		               "inode %u: a link text has 1 to %d bytes, none of them NUL", i,
		               EROFS_LINK_MAX);
	return xattrs_check(w, i, out, out_xattr_bytes);
}

static int inode_measure(struct writer *w, uint32_t i)
{
	struct node *n = &w->nodes[i];
	struct erofs_inode in;
	size_t xattr_bytes = 0;
	int r = inode_get(w, i, &in, &xattr_bytes);

	if (r < 0)
		return r;
	n->kind = (uint8_t)kind_of(in.mode);
	n->head_words = (uint16_t)((INODE_BYTES + xattr_bytes) / 4);
	if (n->kind == K_LNK)
		n->bytes = (uint32_t)in.link.len;
	return n->kind == K_DIR ? dir_measure(w, i, &in) : 0;
}

/* Every name and its inode agree, and every directory hangs below the root. */
static int tree_check(struct writer *w)
{
	struct node *nodes = w->nodes;
	uint32_t n = w->src->n_inodes;

	if (nodes[0].kind != K_DIR)
		return err_set(w->err, -EINVAL, "inode 0 is not a directory");
	nodes[0].reached = 1;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t steps = 0;

		if (nodes[i].named_as != K_NONE && nodes[i].named_as != nodes[i].kind)
			return err_set(w->err, -EINVAL, "inode %u is not of the kind its name says",
			               i);
		if (nodes[i].kind != K_DIR)
			continue;
		for (uint32_t d = i; !nodes[d].reached; d = nodes[d].in_dir) {
			if (nodes[d].named_as == K_NONE || steps++ > n)
				return err_set(w->err, -EINVAL,
				               "directory inode %u is not below the root", i);
		}
		for (uint32_t d = i; !nodes[d].reached; d = nodes[d].in_dir)
			nodes[d].reached = 1;
	}
	return 0;
}

static bool left_out(const struct writer *w, uint32_t i)
{
	return i != 0 && w->nodes[i].named_as == K_NONE;
}

/* Give every inode its nid and its blocks in the second region. */
static int place(struct writer *w)
{
	uint64_t at = 0, dir_blocks = 0;

	for (uint32_t i = 0; i < w->src->n_inodes; i++) {
		struct node *n = &w->nodes[i];
		uint64_t len = (uint64_t)n->head_words * 4, left;

		if (left_out(w, i))
			continue;
		if (layout_of(n) == LAYOUT_INLINE)
			len += n->bytes % EROFS_BLOCK_BYTES;
		at = align_up(at, NID_UNIT);
		left = align_up(at, EROFS_BLOCK_BYTES) - at;
		if (len > left)
			at += left; /* more than a block of attributes starts one, too */
		if (ROOT_NID + at / NID_UNIT > UINT32_MAX)
			return err_set(w->err, -EFBIG, "the tree has too much metadata");
		n->nid = (uint32_t)(ROOT_NID + at / NID_UNIT);
		n->block = (uint32_t)dir_blocks;
		dir_blocks += blocks_of(n);
		if (dir_blocks > UINT32_MAX)
			return err_set(w->err, -EFBIG, "the tree has too large directories");
		at += len;
		w->inodes++;
	}
	w->inode_blocks = align_up(at, EROFS_BLOCK_BYTES) / EROFS_BLOCK_BYTES;
	w->dir_blocks = dir_blocks;
	return 0;
}

static int xattrs_write(struct out *o, const struct erofs_inode *in)
{
	uint8_t b[XATTR_HEADER_BYTES] = { 0 }; /* no filter, no shared ones */
	int r = in->n_xattrs ? out_put(o, b, sizeof(b)) : 0;

	for (uint32_t k = 0; k < in->n_xattrs && r == 0; k++) {
		const struct erofs_xattr *x = &in->xattrs[k];
		struct wr w = wr_of(b, XATTR_ENTRY_BYTES);
		uint8_t index = 0;
		struct span name = xattr_suffix(x->name, &index);
		size_t len = XATTR_ENTRY_BYTES + name.len + x->value.len;

		wr_le(&w, name.len, 1);
		wr_le(&w, index, 1);
		wr_le(&w, x->value.len, 2);
		r = out_put(o, b, XATTR_ENTRY_BYTES);
		if (r == 0)
			r = out_put(o, name.p, name.len);
		if (r == 0)
			r = out_put(o, x->value.len ? x->value.p : NULL, x->value.len);
		if (r == 0)
			r = out_put(o, NULL, align_up(len, 4) - len);
	}
	return r;
}

/* The block a regular file's data is at; gives one out where it has none yet. */
static int data_place(struct writer *w, uint32_t i, const struct erofs_inode *in, uint32_t *out)
{
	uint64_t align = MAX(w->opts->data_align, 1), at, end;

	*out = 0;
	if (in->size == 0)
		return 0;
	if (in->is_placed) {
		*out = (uint32_t)in->block_at; /* below meta_block, which has 32 bits */
		return 0;
	}
	at = w->next_data + (align - w->next_data % align) % align;
	if (!u64_add(at, data_blocks(in), &end) || end > UINT32_MAX)
		return err_set(w->err, -EFBIG, "inode %u ends beyond 16 TiB of image", i);
	w->next_data = end;
	*out = (uint32_t)at;
	if (w->src->placed)
		w->src->placed(w->src->arg, i, at);
	return 0;
}

static int inode_write(struct writer *w, uint32_t i)
{
	const struct node *n = &w->nodes[i];
	enum layout layout = layout_of(n);
	uint64_t meta_at = w->opts->meta_block * EROFS_BLOCK_BYTES;
	uint32_t links = n->links, u = 0;
	uint8_t b[INODE_BYTES];
	struct wr o = wr_of(b, sizeof(b));
	struct erofs_inode in;
	size_t xattr_bytes = 0;
	int r = inode_get(w, i, &in, &xattr_bytes);

	if (r < 0)
		return r;
	if (kind_of(in.mode) != n->kind || INODE_BYTES + xattr_bytes != n->head_words * 4u)
		return changed(w, i);
	uint64_t size = n->bytes;
	switch ((enum kind)n->kind) {
	case K_REG:
		size = in.size;
		r = data_place(w, i, &in, &u);
		if (r < 0)
			return r;
		break;
	case K_DIR:
		if (in.parent != (i == 0 ? 0 : n->in_dir))
			return err_set(w->err, -EINVAL,
			               "directory inode %u: its parent is %u, its name is in %u", i,
			               in.parent, n->in_dir);
		links += 2;
		break;
	case K_LNK:
		if (in.link.len != n->bytes)
			return changed(w, i);
		break;
	case K_CHR:
	case K_BLK:
		u = in.rdev;
		break;
	case K_NONE:
	case K_FIFO:
	case K_SOCK:
		break;
	}
	if (blocks_of(n))
		u = (uint32_t)(w->opts->meta_block + w->inode_blocks + n->block);
	wr_le(&o, 1u | (unsigned)layout << 1, 2); /* extended */
	wr_le(&o, xattr_bytes ? 1u + (xattr_bytes - XATTR_HEADER_BYTES) / 4 : 0, 2);
	wr_le(&o, in.mode, 2);
	wr_le(&o, 0, 2);
	wr_le(&o, size, 8);
	wr_le(&o, u, 4);
	wr_le(&o, (uint64_t)i + 1, 4);
	wr_le(&o, in.uid, 4);
	wr_le(&o, in.gid, 4);
	wr_le(&o, (uint64_t)in.mtime_s, 8);
	wr_le(&o, in.mtime_ns, 4);
	wr_le(&o, links, 4);
	memset(o.p, 0, o.left);
	r = out_pad(&w->inode_out, meta_at + ((uint64_t)n->nid - ROOT_NID) * NID_UNIT);
	if (r == 0)
		r = out_put(&w->inode_out, b, sizeof(b));
	if (r == 0)
		r = xattrs_write(&w->inode_out, &in);
	if (r == 0 && n->kind == K_DIR)
		return dir_write(w, i, &in);
	if (r == 0 && n->kind == K_LNK) {
		struct out *dst = layout == LAYOUT_INLINE ? &w->inode_out : &w->dir_out;

		r = out_put(dst, in.link.p, in.link.len);
		if (r == 0 && layout == LAYOUT_PLAIN)
			r = out_put(dst, NULL, EROFS_BLOCK_BYTES - in.link.len);
	}
	return r;
}

/* ---- superblock ---- */

static uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
	while (n--) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLY : 0);
	}
	return crc;
}

static int super_write(const struct writer *w, int fd, uint64_t blocks)
{
	uint8_t b[EROFS_BLOCK_BYTES] = { 0 };
	struct wr o = wr_of(b + SUPER_OFFSET, SUPER_BYTES);

	wr_le(&o, SUPER_MAGIC, 4);
	wr_le(&o, 0, 4); /* checksum, below */
	wr_le(&o, COMPAT_SB_CHECKSUM | COMPAT_MTIME, 4);
	wr_le(&o, 12, 1); /* log2 of the block size */
	wr_le(&o, 0, 1);  /* no extension slots */
	wr_le(&o, ROOT_NID, 2);
	wr_le(&o, w->inodes, 8);
	wr_le(&o, (uint64_t)w->opts->build_time_s, 8);
	wr_le(&o, 0, 4); /* its nanoseconds */
	wr_le(&o, blocks, 4);
	wr_le(&o, w->opts->meta_block - 1, 4); /* nid 0 is there, the root a block later */
	wr_le(&o, 0, 4);                       /* no shared attributes */
	wr_put(&o, w->opts->uuid, sizeof(w->opts->uuid));
	wr_put(&o, w->opts->volume, sizeof(w->opts->volume));
	wr_le(&o, 0, 4); /* nothing a reader must know beyond the first format */
	ASSERT(!o.bad);  /* all the rest is zero */
	/* the whole rest of the block is covered, the sum itself counts as zero; not inverted */
	o = wr_of(b + SUPER_OFFSET + 4, 4);
	wr_le(&o, crc32c(UINT32_MAX, b + SUPER_OFFSET, sizeof(b) - SUPER_OFFSET), 4);
	return fd_pwrite_all(fd, b, sizeof(b), 0);
}

static int write_all(struct writer *w, int fd, struct erofs_result *out)
{
	const uint64_t meta = w->opts->meta_block;
	uint64_t end = meta + w->inode_blocks + w->dir_blocks;
	int r = 0;

	if (end > UINT32_MAX)
		return err_set(w->err, -EFBIG, "the metadata ends beyond 16 TiB of image");
	w->next_data = end;
	w->inode_out.fd = w->dir_out.fd = fd;
	w->inode_out.at = meta * EROFS_BLOCK_BYTES;
	w->dir_out.at = (meta + w->inode_blocks) * EROFS_BLOCK_BYTES;
	for (uint32_t i = 0; i < w->src->n_inodes && r == 0; i++) {
		if (!left_out(w, i))
			r = inode_write(w, i);
	}
	if (r == 0)
		r = out_pad(&w->inode_out, (meta + w->inode_blocks) * EROFS_BLOCK_BYTES);
	if (r == 0)
		r = out_flush(&w->inode_out);
	if (r == 0)
		r = out_flush(&w->dir_out);
	if (r == 0) {
		ASSERT(w->dir_out.at == end * EROFS_BLOCK_BYTES);
		r = super_write(w, fd, w->next_data);
	}
	if (r < 0) /* what the checks said stays: then the text is set already */
		return w->err && w->err->code == r ? r
		                                   : err_code(w->err, r, "cannot write the image");
	*out = (struct erofs_result){
		.meta_block = meta,
		.meta_blocks = end - meta,
		.data_block = end,
		.image_blocks = w->next_data,
		.inodes = w->inodes,
	};
	return 0;
}

int erofs_write(int fd, const struct erofs_source *src, const struct erofs_opts *opts,
                struct erofs_result *out, struct err *err)
{
	struct err own = { 0 };
	struct writer w = { .src = src, .opts = opts, .err = err ? err : &own };
	int r;

	w.err->code = 0;
	if (src->n_inodes == 0)
		return err_set(w.err, -EINVAL, "a tree has at least its root");
	if (src->n_inodes > EROFS_INODES_MAX)
		return err_set(w.err, -EFBIG, "the tree has %u files and folders, over %d",
		               src->n_inodes, EROFS_INODES_MAX);
	if (opts->meta_block == 0 || opts->meta_block > UINT32_MAX)
		return err_set(w.err, -EFBIG, "no metadata at block %llu",
		               (unsigned long long)opts->meta_block);
	w.nodes = calloc(src->n_inodes, sizeof(*w.nodes));
	w.inode_out.buf = malloc(OUT_BUFFER_BYTES);
	w.dir_out.buf = malloc(OUT_BUFFER_BYTES);
	if (!w.nodes || !w.inode_out.buf || !w.dir_out.buf) {
		r = err_set(w.err, -ENOMEM, "no memory for %u files and folders", src->n_inodes);
		goto done;
	}
	r = 0;
	for (uint32_t i = 0; i < src->n_inodes && r == 0; i++)
		r = inode_measure(&w, i);
	if (r == 0)
		r = tree_check(&w);
	if (r == 0)
		r = place(&w);
	if (r == 0)
		r = write_all(&w, fd, out);
done:
	free(w.nodes);
	free(w.inode_out.buf);
	free(w.dir_out.buf);
	return r;
}
