/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - nodes and names of a merged tree.
 *
 * A node is an inode; a dirent is a name in a directory. Both live in growing
 * arrays and are addressed by index. Names are found through one hash table
 * over (directory, name), so that a directory of any size costs the same, and
 * each directory chains its dirents for removal and for the final sort.
 */
#include "image/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/path.h"

enum { ROOT = 0, ARENA_CHUNK = 256 * 1024 };

struct node {
	struct tree_meta m;   /* link and xattrs point into the arena */
	uint64_t block;       /* TREE_NO_BLOCK while not placed */
	uint32_t parent;      /* directories */
	uint32_t first;       /* directories: first dirent, TREE_NONE at the end */
	uint32_t n_dirents;   /* directories */
	uint32_t number;      /* in the image; TREE_NONE before */
	uint32_t sorted_from; /* directories: place in tree.sorted */
};

struct dirent_ {
	struct span name; /* arena */
	uint32_t dir, node;
	uint32_t next, prev; /* of the directory */
	uint32_t layer;      /* the last one that said this name */
};

struct arena {
	struct arena *next;
	size_t used, cap;
	uint8_t p[];
};

struct tree {
	struct tree_limits lim;
	struct node *nodes;
	uint32_t n_nodes, cap_nodes;
	struct dirent_ *dirents;
	uint32_t n_dirents, cap_dirents;
	uint32_t *table; /* dirent + 1; 0 empty; TOMBSTONE removed */
	uint32_t table_cap, table_used;
	struct arena *arena;
	uint64_t text_bytes, data_bytes;
	uint32_t n_xattrs_dropped;
	uint32_t layer;
	uint32_t *by_number; /* image number -> node */
	uint32_t n_numbers;
	uint32_t *sorted; /* dirents of all directories, each sorted */
};

#define TOMBSTONE UINT32_MAX
#define NO_BLOCK UINT64_MAX

/* ---- storage ------------------------------------------------------------ */

static void *arena_take(struct tree *t, size_t n)
{
	n = (size_t)align_up(n, 8);
	if (!t->arena || n > t->arena->cap - t->arena->used) {
		size_t cap = MAX(n, (size_t)ARENA_CHUNK);
		struct arena *a = malloc(sizeof(*a) + cap);
		if (!a)
			return NULL;
		*a = (struct arena){ .next = t->arena, .cap = cap };
		t->arena = a;
	}
	void *p = t->arena->p + t->arena->used;
	t->arena->used += n;
	return p;
}

static int text_copy(struct tree *t, struct span s, struct span *out)
{
	if (s.len > TREE_TEXT_MAX - t->text_bytes)
		return -EFBIG;
	uint8_t *p = arena_take(t, MAX(s.len, (size_t)1));
	if (!p)
		return -ENOMEM;
	if (s.len)
		memcpy(p, s.p, s.len);
	t->text_bytes += s.len;
	*out = span_of(p, s.len);
	return 0;
}

static int grow(void **p, uint32_t *cap, uint32_t need, size_t size)
{
	if (need <= *cap)
		return 0;
	uint32_t n = MAX(*cap ? *cap * 2 : 256, need);
	void *q = realloc(*p, n * size); /* need is bounded by the limit of entries */
	if (!q)
		return -ENOMEM;
	*p = q;
	*cap = n;
	return 0;
}

/* ---- names -------------------------------------------------------------- */

static uint32_t name_hash(uint32_t dir, struct span name)
{
	uint64_t h = 0xcbf29ce484222325u ^ dir; /* FNV-1a, mixed once more below */

	for (size_t i = 0; i < name.len; i++)
		h = (h ^ name.p[i]) * 0x100000001b3u;
	h ^= h >> 29;
	h *= 0x9e3779b97f4a7c15u;
	return (uint32_t)(h >> 32);
}

static uint32_t find(const struct tree *t, uint32_t dir, struct span name)
{
	if (t->table_cap == 0)
		return TREE_NONE;
	uint32_t mask = t->table_cap - 1;
	for (uint32_t i = name_hash(dir, name) & mask;; i = (i + 1) & mask) {
		uint32_t v = t->table[i];
		if (v == 0)
			return TREE_NONE;
		if (v == TOMBSTONE)
			continue;
		const struct dirent_ *d = &t->dirents[v - 1];
		if (d->dir == dir && span_eq(d->name, name))
			return v - 1;
	}
}

static void table_put(struct tree *t, uint32_t dirent)
{
	uint32_t mask = t->table_cap - 1;
	uint32_t i = name_hash(t->dirents[dirent].dir, t->dirents[dirent].name) & mask;

	while (t->table[i] != 0 && t->table[i] != TOMBSTONE)
		i = (i + 1) & mask;
	t->table_used += t->table[i] == 0;
	t->table[i] = dirent + 1;
}

/* Room for one more name, at most half full with tombstones. */
static int table_reserve(struct tree *t)
{
	if (t->table_cap && t->table_used < t->table_cap / 2)
		return 0;
	uint32_t cap = t->table_cap ? t->table_cap * 2 : 1024;
	uint32_t *old = t->table, old_cap = t->table_cap;
	uint32_t *p = calloc(cap, sizeof(*p));

	if (!p)
		return -ENOMEM;
	t->table = p;
	t->table_cap = cap;
	t->table_used = 0;
	for (uint32_t i = 0; i < old_cap; i++) {
		if (old[i] != 0 && old[i] != TOMBSTONE)
			table_put(t, old[i] - 1);
	}
	free(old);
	return 0;
}

static void table_del(struct tree *t, uint32_t dirent)
{
	uint32_t mask = t->table_cap - 1;
	uint32_t i = name_hash(t->dirents[dirent].dir, t->dirents[dirent].name) & mask;

	while (t->table[i] != dirent + 1)
		i = (i + 1) & mask;
	t->table[i] = TOMBSTONE;
}

static void unlink_dirent(struct tree *t, uint32_t dirent)
{
	struct dirent_ *d = &t->dirents[dirent];
	struct node *dir = &t->nodes[d->dir];

	table_del(t, dirent);
	if (d->prev == TREE_NONE)
		dir->first = d->next;
	else
		t->dirents[d->prev].next = d->next;
	if (d->next != TREE_NONE)
		t->dirents[d->next].prev = d->prev;
	dir->n_dirents--;
}

/* All below directory @dir. Iterative: always the first name, down to the leaves. */
static void empty_dir(struct tree *t, uint32_t dir)
{
	uint32_t at = dir;

	for (;;) {
		uint32_t k = t->nodes[at].first;
		if (k == TREE_NONE) {
			if (at == dir)
				return;
			at = t->nodes[at].parent; /* its first name is the one we came through */
			unlink_dirent(t, t->nodes[at].first);
			continue;
		}
		uint32_t child = t->dirents[k].node;
		if (S_ISDIR(t->nodes[child].m.mode) && t->nodes[child].first != TREE_NONE)
			at = child;
		else
			unlink_dirent(t, k);
	}
}

static int add_node(struct tree *t, const struct tree_meta *m, uint32_t *out)
{
	if (t->n_nodes >= t->lim.entries)
		return -EFBIG;
	int r = grow((void **)&t->nodes, &t->cap_nodes, t->n_nodes + 1, sizeof(t->nodes[0]));
	if (r < 0)
		return r;
	t->nodes[t->n_nodes] = (struct node){
		.m = *m,
		.block = NO_BLOCK,
		.first = TREE_NONE,
		.number = TREE_NONE,
	};
	*out = t->n_nodes++;
	return 0;
}

static int add_dirent(struct tree *t, uint32_t dir, struct span name, uint32_t node)
{
	struct span copy;

	if (t->n_dirents >= t->lim.entries)
		return -EFBIG;
	int r = grow((void **)&t->dirents, &t->cap_dirents, t->n_dirents + 1,
	             sizeof(t->dirents[0]));
	if (r == 0)
		r = table_reserve(t);
	if (r == 0)
		r = text_copy(t, name, &copy);
	if (r < 0)
		return r;
	uint32_t k = t->n_dirents++;
	struct node *d = &t->nodes[dir];
	t->dirents[k] = (struct dirent_){
		.name = copy,
		.dir = dir,
		.node = node,
		.next = d->first,
		.prev = TREE_NONE,
		.layer = t->layer,
	};
	if (d->first != TREE_NONE)
		t->dirents[d->first].prev = k;
	d->first = k;
	d->n_dirents++;
	if (S_ISDIR(t->nodes[node].m.mode))
		t->nodes[node].parent = dir;
	table_put(t, k);
	return 0;
}

/* ---- paths -------------------------------------------------------------- */

static struct span clean(struct span p)
{
	while (p.len >= 2 && p.p[0] == '.' && p.p[1] == '/')
		p = span_of(p.p + 2, p.len - 2);
	if (p.len > 1 && p.p[p.len - 1] == '/')
		p.len--;
	if (p.len == 1 && p.p[0] == '.')
		p.len = 0;
	return p;
}

static struct span next_name(struct span *rest)
{
	const uint8_t *slash = rest->len ? memchr(rest->p, '/', rest->len) : NULL;
	size_t n = slash ? (size_t)(slash - rest->p) : rest->len;
	struct span name = span_of(rest->p, n);

	*rest = slash ? span_of(slash + 1, rest->len - n - 1) : span_of(rest->p + n, 0);
	return name;
}

static int check(struct span p)
{
	int depth = path_check(p);

	return depth < 0 || depth > TREE_DEPTH_MAX ? -EPROTO : 0;
}

static const struct tree_meta implied_dir = { .mode = S_IFDIR | 0755 };

/* The directory that holds the last component of @p (checked, not empty). */
static int walk_parent(struct tree *t, struct span p, bool create, uint32_t *out_dir,
                       struct span *out_name)
{
	uint32_t dir = ROOT;

	for (;;) {
		struct span name = next_name(&p);
		if (p.len == 0) {
			*out_dir = dir;
			*out_name = name;
			return 0;
		}
		uint32_t k = find(t, dir, name);
		if (k == TREE_NONE) {
			uint32_t node;
			if (!create)
				return -ENOENT;
			int r = add_node(t, &implied_dir, &node);
			if (r == 0)
				r = add_dirent(t, dir, name, node);
			if (r < 0)
				return r;
			dir = node;
			continue;
		}
		dir = t->dirents[k].node;
		if (!S_ISDIR(t->nodes[dir].m.mode))
			return create ? -EPROTO : -ENOENT;
	}
}

/* ---- the module's functions --------------------------------------------- */

struct tree *tree_new(const struct tree_limits *lim)
{
	struct tree *t = calloc(1, sizeof(*t));
	uint32_t root;

	if (!t)
		return NULL;
	if (lim)
		t->lim = *lim;
	if (t->lim.entries == 0 || t->lim.entries > TREE_ENTRIES_MAX)
		t->lim.entries = TREE_ENTRIES_MAX;
	if (t->lim.bytes == 0)
		t->lim.bytes = TREE_BYTES_MAX;
	if (add_node(t, &implied_dir, &root) < 0) {
		tree_free(t);
		return NULL;
	}
	return t;
}

void tree_free(struct tree *t)
{
	if (!t)
		return;
	while (t->arena) {
		struct arena *next = t->arena->next;
		free(t->arena);
		t->arena = next;
	}
	free(t->nodes);
	free(t->dirents);
	free(t->table);
	free(t->by_number);
	free(t->sorted);
	free(t);
}

static bool xattr_kept(const struct erofs_xattr *x)
{
	static const char user[] = "user.";

	if (x->value.len > EROFS_XATTR_VALUE_MAX || x->name.len > 255 ||
	    memchr(x->name.p, 0, x->name.len))
		return false;
	if (span_eq(x->name, span_str("security.capability")))
		return true;
	return x->name.len >= sizeof(user) && memcmp(x->name.p, user, sizeof(user) - 1) == 0;
}

/* Check @m and copy what it points to. */
static int meta_copy(struct tree *t, const struct tree_meta *m, struct tree_meta *out)
{
	struct tree_meta c = *m;
	int r = 0;

	c.link = (struct span){ 0 };
	c.xattrs = NULL;
	c.n_xattrs = 0;
	switch (m->mode & S_IFMT) {
	case S_IFREG:
		if (m->size > t->lim.bytes - t->data_bytes)
			return -EFBIG;
		break;
	case S_IFLNK:
		if (m->link.len == 0 || m->link.len > EROFS_LINK_MAX ||
		    memchr(m->link.p, 0, m->link.len))
			return -EPROTO;
		r = text_copy(t, m->link, &c.link);
		break;
	case S_IFDIR:
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
	case S_IFSOCK:
		break;
	default:
		return -EPROTO;
	}
	if (r < 0)
		return r;
	c.mode &= S_IFMT | 07777;
	if (!S_ISREG(m->mode))
		c.size = 0;
	if (!S_ISCHR(m->mode) && !S_ISBLK(m->mode))
		c.rdev = 0;
	if (c.mtime_ns > 999999999)
		c.mtime_ns = 0;
	size_t n = 0;
	for (size_t i = 0; i < m->n_xattrs; i++)
		n += xattr_kept(&m->xattrs[i]);
	if (n > TREE_XATTRS_MAX)
		return -EFBIG;
	if (n < m->n_xattrs)
		t->n_xattrs_dropped++;
	if (n) {
		struct erofs_xattr *x = arena_take(t, n * sizeof(*x));
		if (!x)
			return -ENOMEM;
		for (size_t i = 0; i < m->n_xattrs; i++) {
			if (!xattr_kept(&m->xattrs[i]))
				continue;
			bool twice = false;
			for (size_t k = 0; k < c.n_xattrs; k++)
				twice |= span_eq(x[k].name, m->xattrs[i].name);
			if (twice)
				return -EPROTO;
			r = text_copy(t, m->xattrs[i].name, &x[c.n_xattrs].name);
			if (r == 0)
				r = text_copy(t, m->xattrs[i].value, &x[c.n_xattrs].value);
			if (r < 0)
				return r;
			c.n_xattrs++;
		}
		c.xattrs = x;
	}
	*out = c;
	return 0;
}

int tree_add(struct tree *t, struct span path, const struct tree_meta *m, uint32_t *out_node)
{
	struct span p = clean(path), name;
	struct tree_meta c;
	uint32_t dir, node;

	if (p.len == 0) { /* the root itself */
		if (path.len == 0 || !S_ISDIR(m->mode))
			return -EPROTO;
		int r = meta_copy(t, m, &c);
		if (r < 0)
			return r;
		t->nodes[ROOT].m = c;
		if (out_node)
			*out_node = ROOT;
		return 0;
	}
	int r = check(p);
	if (r == 0)
		r = walk_parent(t, p, true, &dir, &name);
	if (r == 0)
		r = meta_copy(t, m, &c);
	if (r < 0)
		return r;
	uint32_t k = find(t, dir, name);
	if (k != TREE_NONE)
		t->dirents[k].layer = t->layer;
	if (k != TREE_NONE && S_ISDIR(t->nodes[t->dirents[k].node].m.mode) && S_ISDIR(c.mode)) {
		node = t->dirents[k].node;
		t->nodes[node].m = c;
	} else if (k != TREE_NONE) {
		r = add_node(t, &c, &node);
		if (r < 0)
			return r;
		uint32_t old = t->dirents[k].node;
		if (S_ISDIR(t->nodes[old].m.mode))
			empty_dir(t, old);
		if (S_ISDIR(c.mode))
			t->nodes[node].parent = dir;
		t->dirents[k].node = node;
	} else {
		r = add_node(t, &c, &node);
		if (r == 0)
			r = add_dirent(t, dir, name, node);
		if (r < 0)
			return r;
	}
	t->data_bytes += c.size;
	if (out_node)
		*out_node = node;
	return 0;
}

int tree_add_link(struct tree *t, struct span path, struct span target)
{
	struct span p = clean(path), name;
	uint32_t dir;
	int r = p.len ? check(p) : -EPROTO;

	if (r < 0)
		return r;
	uint32_t node = tree_lookup(t, target);
	if (node == TREE_NONE || S_ISDIR(t->nodes[node].m.mode))
		return -EPROTO;
	r = walk_parent(t, p, true, &dir, &name);
	if (r < 0)
		return r;
	uint32_t k = find(t, dir, name);
	if (k == TREE_NONE)
		return add_dirent(t, dir, name, node);
	uint32_t old = t->dirents[k].node;
	if (S_ISDIR(t->nodes[old].m.mode))
		empty_dir(t, old); /* the target may lie in it: nodes outlive their names */
	t->dirents[k].node = node;
	t->dirents[k].layer = t->layer;
	return 0;
}

int tree_add_copy(struct tree *t, struct span path, struct span from, const struct tree_meta *m)
{
	uint32_t src = tree_lookup(t, from), node;
	struct tree_meta c = *m;

	if (src == TREE_NONE || !S_ISREG(t->nodes[src].m.mode) || !S_ISREG(m->mode))
		return -ENOENT;
	c.size = t->nodes[src].m.size;
	int r = tree_add(t, path, &c, &node);
	if (r == 0)
		t->nodes[node].block = t->nodes[src].block;
	return r;
}

void tree_set_block(struct tree *t, uint32_t node, uint64_t block)
{
	ASSERT(node < t->n_nodes && S_ISREG(t->nodes[node].m.mode));
	t->nodes[node].block = block;
}

uint32_t tree_lookup(const struct tree *t, struct span path)
{
	struct span p = clean(path);
	uint32_t at = ROOT;

	if (path.len == 0 || (p.len && check(p) < 0))
		return TREE_NONE;
	while (p.len) {
		struct span name = next_name(&p);
		uint32_t k = S_ISDIR(t->nodes[at].m.mode) ? find(t, at, name) : TREE_NONE;
		if (k == TREE_NONE)
			return TREE_NONE;
		at = t->dirents[k].node;
	}
	return at;
}

int tree_remove(struct tree *t, struct span path)
{
	struct span p = clean(path), name;
	uint32_t dir;

	if (p.len == 0 || check(p) < 0 || walk_parent(t, p, false, &dir, &name) < 0)
		return -ENOENT;
	uint32_t k = find(t, dir, name);
	if (k == TREE_NONE)
		return -ENOENT;
	uint32_t node = t->dirents[k].node;
	if (S_ISDIR(t->nodes[node].m.mode))
		empty_dir(t, node);
	unlink_dirent(t, k);
	return 0;
}

int tree_empty(struct tree *t, struct span path)
{
	uint32_t node = tree_lookup(t, path);

	if (node == TREE_NONE || !S_ISDIR(t->nodes[node].m.mode))
		return -ENOENT;
	empty_dir(t, node);
	return 0;
}

void tree_next_layer(struct tree *t)
{
	t->layer++;
}

/*
 * What earlier layers have below @dir. A folder of theirs in which this layer has something
 * stays, as it would be made anew. Depth is bounded by TREE_DEPTH_MAX.
 */
static void prune(struct tree *t, uint32_t dir)
{
	for (uint32_t k = t->nodes[dir].first, next; k != TREE_NONE; k = next) {
		uint32_t node = t->dirents[k].node;
		bool is_dir = S_ISDIR(t->nodes[node].m.mode);

		next = t->dirents[k].next;
		if (is_dir)
			prune(t, node);
		if (t->dirents[k].layer < t->layer &&
		    !(is_dir && t->nodes[node].first != TREE_NONE))
			unlink_dirent(t, k);
	}
}

int tree_whiteout(struct tree *t, struct span path)
{
	struct span p = clean(path), name;
	uint32_t dir;

	if (p.len == 0 || check(p) < 0)
		return -EPROTO;
	if (walk_parent(t, p, false, &dir, &name) < 0)
		return 0;
	uint32_t k = find(t, dir, name);
	if (k == TREE_NONE)
		return 0;
	uint32_t node = t->dirents[k].node;
	bool is_dir = S_ISDIR(t->nodes[node].m.mode);
	if (is_dir)
		prune(t, node);
	if (t->dirents[k].layer < t->layer && !(is_dir && t->nodes[node].first != TREE_NONE))
		unlink_dirent(t, k);
	return 0;
}

int tree_opaque(struct tree *t, struct span path)
{
	struct span p = clean(path);

	if (path.len == 0 || (p.len && check(p) < 0))
		return -EPROTO;
	uint32_t node = tree_lookup(t, path);
	if (node == TREE_NONE)
		return 0; /* made by an entry behind this one */
	if (!S_ISDIR(t->nodes[node].m.mode))
		return -EPROTO;
	prune(t, node);
	return 0;
}

uint32_t tree_mode(const struct tree *t, uint32_t node)
{
	ASSERT(node < t->n_nodes);
	return t->nodes[node].m.mode;
}

uint32_t tree_xattrs_dropped(const struct tree *t)
{
	return t->n_xattrs_dropped;
}

/* ---- for the writer ----------------------------------------------------- */

static int source_inode(void *arg, uint32_t inode, struct erofs_inode *out)
{
	const struct tree *t = arg;
	const struct node *n = &t->nodes[t->by_number[inode]];

	*out = (struct erofs_inode){
		.mode = n->m.mode,
		.uid = n->m.uid,
		.gid = n->m.gid,
		.mtime_s = n->m.mtime_s,
		.mtime_ns = n->m.mtime_ns,
		.rdev = n->m.rdev,
		.size = n->m.size,
		.link = n->m.link,
		.n_dirents = n->n_dirents,
		.xattrs = n->m.xattrs,
		.n_xattrs = (uint32_t)n->m.n_xattrs,
	};
	if (S_ISDIR(n->m.mode))
		out->parent = t->nodes[n->parent].number;
	if (S_ISREG(n->m.mode) && n->m.size) {
		if (n->block == NO_BLOCK)
			return -EINVAL;
		out->is_placed = true;
		out->block_at = n->block;
	}
	return 0;
}

static int source_dirent(void *arg, uint32_t dir, uint32_t k, struct erofs_dirent *out)
{
	const struct tree *t = arg;
	const struct node *n = &t->nodes[t->by_number[dir]];
	const struct dirent_ *d = &t->dirents[t->sorted[n->sorted_from + k]];

	*out = (struct erofs_dirent){
		.name = d->name,
		.inode = t->nodes[d->node].number,
		.mode = t->nodes[d->node].m.mode,
	};
	return 0;
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct tree *t = arg;

	return span_cmp(t->dirents[*(const uint32_t *)a].name,
	                t->dirents[*(const uint32_t *)b].name);
}

int tree_source(struct tree *t, struct erofs_source *out)
{
	uint32_t *numbers = calloc(t->n_nodes, sizeof(*numbers));
	uint32_t *sorted = calloc(MAX(t->n_dirents, 1u), sizeof(*sorted));
	uint32_t n = 0, n_sorted = 0;

	free(t->by_number);
	free(t->sorted);
	t->by_number = numbers;
	t->sorted = sorted;
	if (!numbers || !sorted)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n_nodes; i++)
		t->nodes[i].number = TREE_NONE;
	/* breadth first: the numbers array is the queue */
	t->nodes[ROOT].number = n;
	numbers[n++] = ROOT;
	for (uint32_t at = 0; at < n; at++) {
		struct node *d = &t->nodes[numbers[at]];
		if (!S_ISDIR(d->m.mode))
			continue;
		d->sorted_from = n_sorted;
		for (uint32_t k = d->first; k != TREE_NONE; k = t->dirents[k].next)
			sorted[n_sorted++] = k;
		qsort_r(sorted + d->sorted_from, d->n_dirents, sizeof(*sorted), by_name, t);
		for (uint32_t i = 0; i < d->n_dirents; i++) {
			struct node *c = &t->nodes[t->dirents[sorted[d->sorted_from + i]].node];
			if (c->number == TREE_NONE) {
				c->number = n;
				numbers[n++] = (uint32_t)(c - t->nodes);
			}
		}
	}
	t->n_numbers = n;
	*out = (struct erofs_source){
		.arg = t,
		.n_inodes = n,
		.inode = source_inode,
		.dirent = source_dirent,
	};
	return 0;
}
