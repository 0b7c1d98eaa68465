/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over the records with a stack of frames, one a directory. A frame
 * knows the baseline's directory at the same place, if there is one, so each
 * record costs one binary search in the manifest. Both the records of a
 * directory and the manifest's children are sorted by span_cmp(), so what an
 * opaque directory removed falls out of a merge, in order.
 *
 * An item holds offsets, not texts: a set of a million changes stays small.
 */
#include "review/compare.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/path.h"
#include "base/vis.h"
#include "policy/ignore.h"
#include "policy/secret_paths.h"
#include "review/compare_items.h"

enum { X_BITS = 0111, DROP_BYTES = 8 * 1024 * 1024 };

enum { NAME_HEAD = 1, NAME_OBJECTS = 2, NAME_REFS = 4, NAME_COMMONDIR = 8 };

struct frame {
	uint32_t node;
	uint32_t entry;      /* baseline directory here, or MANIFEST_NONE */
	uint32_t next, end;  /* opaque: baseline children not yet seen */
	uint32_t refused_by; /* item whose subtree this is in, or COMPARE_NONE */
	uint32_t deleted_seq;
	uint32_t ordinal; /* of the DIR record */
	size_t path_len;  /* of the directory's path in walk.path */
	uint8_t names;    /* NAME_* seen */
	bool opaque, git, ignored;
	bool is_new; /* no directory in the baseline */
	bool any;    /* something below is listed or counted */
};

/* What stands at a place before the change. */
struct base {
	uint8_t type; /* enum manifest_kind; 0: nothing that the guest saw */
	bool absent;  /* the host has something that the guest did not see */
	bool applied; /* from the overlay */
	uint32_t entry;
	uint32_t deleted_seq;
	struct manifest_entry e;
	struct hash hash; /* with applied */
};

struct walk {
	struct compare *c;
	struct frame *f; /* the stack */
	uint32_t depth;
	struct buf path; /* below the project, of the record at hand */
	struct change_record rec;
	int64_t at;
	uint32_t ordinal;
};

static int grow(void *pp, uint32_t n, uint32_t *cap, size_t size)
{
	void **p = pp;
	size_t bytes;

	if (n < *cap)
		return 0;
	uint32_t want = *cap ? *cap + *cap / 2 : 64;
	if (!size_mul(want, size, &bytes))
		return -ENOMEM;
	void *np = realloc(*p, bytes);
	if (!np)
		return -ENOMEM;
	*p = np;
	*cap = want;
	return 0;
}

/* --- the baseline --- */

static void find_base(const struct compare *c, uint32_t dir_entry, uint32_t deleted_seq,
                      uint16_t project, struct span path, struct span name, struct base *out)
{
	const struct compare_applied *a = NULL;

	*out = (struct base){ .entry = MANIFEST_NONE, .deleted_seq = deleted_seq };
	if (dir_entry != MANIFEST_NONE)
		out->entry = manifest_child(&c->set->manifest, dir_entry, name);
	if (out->entry != MANIFEST_NONE) {
		manifest_get(&c->set->manifest, out->entry, &out->e);
		if (out->e.flags & MANIFEST_ABSENT)
			out->absent = true;
		else
			out->type = out->e.kind;
	}
	if (c->overlay.n)
		a = compare_overlay_find(&c->overlay, project, path);
	if (!a)
		return;
	out->deleted_seq = MAX(deleted_seq, a->deleted_seq);
	if (a->seq <= deleted_seq)
		return; /* its directory was deleted later */
	if (a->deleted_seq && !out->absent)
		out->entry = MANIFEST_NONE; /* the manifest's is gone, and all below it */
	out->applied = true;
	out->type = a->a.kind;
	out->hash = a->a.hash;
	out->e.kind = a->a.kind;
	out->e.mode = a->a.mode;
	out->e.size = a->a.size;
	out->e.ino = a->a.ino;
	out->e.mtime_ns = a->a.mtime_ns;
	out->e.ctime_ns = a->a.ctime_ns;
	out->e.nlink = 1;
	out->e.n_children = 0;
	if (out->entry == MANIFEST_NONE)
		out->e.flags = 0;
}

/* What goes when the directory @entry goes: visible entries below, and whether something stays. */
static uint32_t count_subtree(const struct manifest *m, uint32_t entry, bool *out_keeps)
{
	struct manifest_entry d, e;
	uint32_t n = 0;

	manifest_get(m, entry, &d);
	for (uint32_t i = 0; i < d.n_children; i++) {
		manifest_get(m, d.first_child + i, &e);
		if (e.flags & MANIFEST_ABSENT || classify_is_git(e.name)) {
			*out_keeps = true;
			continue;
		}
		n++;
		/* manifest_open() has bounded the depth */
		if (e.kind == MANIFEST_DIR)
			n += count_subtree(m, d.first_child + i, out_keeps);
	}
	return n;
}

/* --- items --- */

static int add_item(struct walk *w, struct compare_item it)
{
	struct compare *c = w->c;
	int r = grow(&c->items, c->n_items, &c->cap_items, sizeof(*c->items));

	if (r < 0)
		return r;
	it.renamed = COMPARE_NONE;
	c->items[c->n_items++] = it;
	w->f[w->depth].any = true;
	return 0;
}

static int add_record(struct walk *w, uint8_t kind, const struct base *b, uint16_t flags,
                      uint8_t why)
{
	if (w->f[w->depth].ignored || flags & COMPARE_IGNORED)
		flags |= COMPARE_IGNORED;
	if (why)
		flags |= COMPARE_REFUSED;
	if (b->type == MANIFEST_FILE && b->e.nlink > 1 &&
	    (kind == COMPARE_MODIFIED || kind == COMPARE_TYPE))
		flags |= COMPARE_BREAKS_LINK;
	if (b->entry != MANIFEST_NONE && b->e.flags & MANIFEST_TRACKED)
		flags |= COMPARE_TRACKED;
	if (w->rec.type == CHANGE_FILE && w->rec.mode & 07000)
		flags |= COMPARE_SETID;
	return add_item(w, (struct compare_item){ .at = w->at,
	                                          .slot = w->ordinal,
	                                          .entry = b->entry,
	                                          .node = w->f[w->depth].node,
	                                          .flags = flags,
	                                          .kind = kind,
	                                          .why = why });
}

/* Set what a removed directory takes with it on the item added last. */
static void note_subtree(struct walk *w, const struct base *b)
{
	struct compare_item *it = &w->c->items[w->c->n_items - 1];
	bool keeps = false;

	if (b->type != MANIFEST_DIR || b->entry == MANIFEST_NONE)
		return;
	it->subtree = count_subtree(&w->c->set->manifest, b->entry, &keeps);
	if (keeps)
		it->flags |= COMPARE_KEEPS_DIR;
}

static int add_virtual(struct walk *w, uint32_t entry)
{
	struct compare *c = w->c;
	struct frame *f = &w->f[w->depth];
	struct manifest_entry e;
	struct base b;
	uint16_t flags = COMPARE_VIRTUAL;

	manifest_get(&c->set->manifest, entry, &e);
	if (e.flags & MANIFEST_ABSENT)
		return 0;
	if (classify_is_git(e.name)) {
		c->sum.git.paths++;
		c->sum.git.deleted++;
		f->any = true;
		return 0;
	}
	/* numbered whatever was applied since: a slot must mean the same for ever */
	uint32_t slot = c->set->records + c->n_virtual++;
	w->path.len = f->path_len;
	if ((w->path.len && buf_put(&w->path, "/", 1) < 0) ||
	    buf_put(&w->path, e.name.p, e.name.len) < 0)
		return -ENOMEM;
	find_base(c, f->entry, f->deleted_seq, c->nodes[f->node].project,
	          span_of(w->path.p, w->path.len), e.name, &b);
	if (b.type == 0) {
		c->sum.unchanged++;
		return 0;
	}
	if (f->ignored || e.flags & MANIFEST_IGNORED)
		flags |= COMPARE_IGNORED;
	if (e.flags & MANIFEST_TRACKED)
		flags |= COMPARE_TRACKED;
	int r = add_item(w, (struct compare_item){ .at = COMPARE_NO_OFFSET,
	                                           .slot = slot,
	                                           .entry = entry,
	                                           .node = f->node,
	                                           .flags = flags,
	                                           .kind = COMPARE_DELETED });
	if (r == 0)
		note_subtree(w, &b);
	return r;
}

/* Opaque: what comes before @name (or all that is left, when NULL) is gone. */
static int merge_until(struct walk *w, const struct span *name)
{
	struct frame *f = &w->f[w->depth];
	struct manifest_entry e;

	while (f->next < f->end) {
		if (name) {
			manifest_get(&w->c->set->manifest, f->next, &e);
			int d = span_cmp(e.name, *name);
			if (d == 0)
				f->next++;
			if (d >= 0)
				return 0;
		}
		int r = add_virtual(w, f->next++);
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- frames --- */

static int push(struct walk *w, const struct base *b, uint16_t project)
{
	struct compare *c = w->c;
	struct frame *up = &w->f[w->depth], *f = up + 1;
	int r = grow(&c->nodes, c->n_nodes, &c->cap_nodes, sizeof(*c->nodes));

	if (r < 0)
		return r;
	ASSERT(w->depth < CHANGE_DEPTH_MAX); /* change_walk has checked it */
	*f = (struct frame){
		.node = c->n_nodes,
		.entry = b->type == MANIFEST_DIR ? b->entry : MANIFEST_NONE,
		.refused_by = up->refused_by,
		.deleted_seq = b->deleted_seq,
		.ordinal = w->ordinal,
		.path_len = w->depth ? w->path.len : 0,
		.opaque = up->opaque || w->rec.flags & CHANGE_OPAQUE,
		.git = up->git,
		.ignored = up->ignored,
		.is_new = b->type != MANIFEST_DIR,
	};
	if (f->opaque && f->entry != MANIFEST_NONE) {
		struct manifest_entry e;
		manifest_get(&c->set->manifest, f->entry, &e);
		f->next = e.first_child;
		f->end = e.first_child + e.n_children;
	}
	c->nodes[c->n_nodes++] = (struct compare_node){
		.at = w->at,
		.parent = up->node,
		.entry = f->entry,
		.type_item = COMPARE_NONE,
		.project = project,
		.depth = (uint16_t)(w->depth + 1),
	};
	w->depth++;
	return 0;
}

static uint8_t name_bit(struct span name)
{
	char b[16];
	size_t n = classify_fold(b, sizeof(b), name);

	if (n == 4 && memcmp(b, "head", 4) == 0)
		return NAME_HEAD;
	if (n == 7 && memcmp(b, "objects", 7) == 0)
		return NAME_OBJECTS;
	if (n == 4 && memcmp(b, "refs", 4) == 0)
		return NAME_REFS;
	if (n == 9 && memcmp(b, "commondir", 9) == 0)
		return NAME_COMMONDIR;
	return 0;
}

/*
 * git takes a directory with HEAD, objects and refs (or HEAD and commondir) for
 * a repository, and then runs the hooks and the programs of its config.
 */
static bool looks_bare(const struct compare *c, const struct frame *f)
{
	static const char *const names[] = { "HEAD", "objects", "refs", "commondir" };
	uint8_t bits = f->names;

	if (bits == 0)
		return false;
	for (unsigned i = 0; f->entry != MANIFEST_NONE && i < ARRAY_LEN(names); i++) {
		if (manifest_child(&c->set->manifest, f->entry, span_str(names[i])) !=
		    MANIFEST_NONE)
			bits |= (uint8_t)(1 << i);
	}
	return bits & NAME_HEAD &&
	       (bits & NAME_COMMONDIR || (bits & NAME_OBJECTS && bits & NAME_REFS));
}

static int pop(struct walk *w)
{
	struct compare *c = w->c;
	struct frame *f = &w->f[w->depth];
	int r = 0;

	if (!f->git && f->refused_by == COMPARE_NONE) {
		r = merge_until(w, NULL);
		if (looks_bare(c, f))
			c->nodes[f->node].bare = true;
	}
	bool any = f->any || c->nodes[f->node].type_item != COMPARE_NONE;
	struct compare_node n = c->nodes[f->node];
	uint16_t flags = f->ignored ? COMPARE_IGNORED : 0;
	w->path.len = f->path_len;
	w->depth--;
	if (r < 0)
		return r;
	if (any)
		w->f[w->depth].any = true;
	/* a directory that came to hold something shows by what it holds */
	if (!any && f->is_new && !f->git && f->refused_by == COMPARE_NONE && w->depth > 0)
		return add_item(w, (struct compare_item){ .at = n.at,
		                                          .slot = f->ordinal,
		                                          .entry = MANIFEST_NONE,
		                                          .node = w->f[w->depth].node,
		                                          .flags = flags,
		                                          .kind = COMPARE_ADDED });
	return 0;
}

/* --- below .git: counted, never listed --- */

static void count_git(struct walk *w)
{
	struct compare_git *g = &w->c->sum.git;
	struct span path = span_of(w->path.p, w->path.len), rest = { 0 };

	/* what is behind the last component that is a .git */
	for (size_t i = path.len; i-- > 0;) {
		if (i > 0 && path.p[i - 1] != '/')
			continue;
		const uint8_t *slash = memchr(path.p + i, '/', path.len - i);
		size_t n = slash ? (size_t)(slash - (path.p + i)) : path.len - i;
		if (classify_is_git(span_of(path.p + i, n))) {
			rest = slash ? span_of(slash + 1, path.len - i - n - 1) : rest;
			break;
		}
	}
	w->f[w->depth].any = true;
	g->paths++;
	if (w->rec.type == CHANGE_WHITEOUT)
		g->deleted++;
	if (rest.len > 8 && memcmp(rest.p, "objects/", 8) == 0) {
		g->objects++;
	} else if (rest.len > 5 && memcmp(rest.p, "refs/", 5) == 0) {
		g->refs++;
		if (g->n_ref < ARRAY_LEN(g->ref))
			(void)vis_str(g->ref[g->n_ref++], sizeof(g->ref[0]), rest);
	} else if (span_eq(rest, span_str("HEAD"))) {
		g->head = true;
	} else if (span_eq(rest, span_str("index"))) {
		g->index = true;
	} else if (span_eq(rest, span_str("config"))) {
		g->config = true;
	} else if (rest.len > 6 && memcmp(rest.p, "hooks/", 6) == 0) {
		g->hooks = true;
	}
}

static int take_git(struct walk *w, uint16_t project)
{
	static const struct base none = { .entry = MANIFEST_NONE };

	if (w->rec.type != CHANGE_DIR) {
		count_git(w);
		return 0;
	}
	int r = push(w, &none, project);
	if (r == 0)
		w->f[w->depth].git = true;
	return r;
}

/* --- records inside a project --- */

/* The components of the path at hand: itself, its parent, and the one above. */
static bool is_secret(const struct walk *w, bool is_dir)
{
	struct span path = span_of(w->path.p, w->path.len);
	struct span up = path_parent(path);

	return secret_name_match(path_base(path_parent(up)), path_base(up), path_base(path),
	                         is_dir) != NULL;
}

static bool is_ignored(const struct walk *w, uint16_t project, const struct base *b, bool is_dir)
{
	const struct compare *c = w->c;
	struct span path = span_of(w->path.p, w->path.len);

	if (b->entry != MANIFEST_NONE && b->type)
		return b->e.flags & MANIFEST_IGNORED;
	if (w->f[w->depth].ignored)
		return true;
	return ignore_set_match(c->git_rules[project], path, is_dir) ||
	       ignore_set_match(c->hide_rules[project], path, is_dir);
}

/* Names that apply makes for its temporary files (apply.c): never a guest's. */
static bool is_own_name(struct span name)
{
	return name.len == COMPARE_TMP_LEN && memcmp(name.p, COMPARE_TMP_PREFIX, 12) == 0;
}

static uint8_t why_refused(const struct walk *w, const struct base *b)
{
	bool is_dir = w->rec.type == CHANGE_DIR;

	if (is_own_name(w->rec.name))
		return COMPARE_WHY_NAME;
	if (is_secret(w, is_dir))
		return COMPARE_WHY_SECRET;
	if (b->absent)
		return COMPARE_WHY_HIDDEN;
	return w->rec.type == CHANGE_SPECIAL ? COMPARE_WHY_SPECIAL : COMPARE_WHY_NONE;
}

static bool mode_change(struct walk *w, const struct base *b)
{
	if ((w->rec.mode ^ b->e.mode) & X_BITS)
		return true;
	if ((w->rec.mode ^ b->e.mode) & 0777)
		w->c->sum.mode_not_carried++;
	w->c->sum.unchanged++;
	return false;
}

static int take_file(struct walk *w, const struct base *b, uint16_t flags)
{
	struct compare *c = w->c;
	struct hash known;
	bool empty = w->rec.size == 0 && hash_eq(&w->rec.hash, &c->empty);
	bool content = changeset_has_blob(c->set, w->ordinal) || empty;

	if (w->rec.flags & CHANGE_SUSPECT)
		flags |= COMPARE_SUSPECT;
	if (b->type == MANIFEST_FILE) {
		bool have = b->applied;
		if (have)
			known = b->hash;
		else
			have = changeset_baseline(c->set, w->ordinal, &known);
		bool same = have ? hash_eq(&known, &w->rec.hash)
		                 : !content || (empty && b->e.size == 0);
		if (same && w->rec.size == b->e.size) {
			if (!mode_change(w, b))
				return 0;
			return add_record(w, COMPARE_MODE, b, flags | COMPARE_NO_BLOB, 0);
		}
	}
	if (!content)
		return add_record(w, b->type ? COMPARE_MODIFIED : COMPARE_ADDED, b, flags,
		                  COMPARE_WHY_NO_CONTENT);
	uint8_t kind = b->type == MANIFEST_FILE ? COMPARE_MODIFIED
	               : b->type                ? COMPARE_TYPE
	                                        : COMPARE_ADDED;
	int r = add_record(w, kind, b, flags, 0);
	if (r == 0)
		note_subtree(w, b);
	return r;
}

static int take_link(struct walk *w, const struct base *b, uint16_t flags)
{
	if (b->type == MANIFEST_LINK) {
		struct hash h;
		hash_bytes(&h, w->rec.bytes.p, w->rec.bytes.len);
		if (b->applied ? hash_eq(&h, &b->hash) : span_eq(w->rec.bytes, b->e.link)) {
			w->c->sum.unchanged++;
			return 0;
		}
	}
	uint8_t kind = b->type == MANIFEST_LINK ? COMPARE_MODIFIED
	               : b->type                ? COMPARE_TYPE
	                                        : COMPARE_ADDED;
	int r = add_record(w, kind, b, flags, 0);
	if (r == 0)
		note_subtree(w, b);
	return r;
}

static int take_dir(struct walk *w, const struct base *b, uint16_t project, uint16_t flags)
{
	struct compare *c = w->c;
	uint32_t item = COMPARE_NONE;
	int r = 0;

	if (b->type == MANIFEST_FILE || b->type == MANIFEST_LINK) {
		item = c->n_items;
		r = add_record(w, COMPARE_TYPE, b, flags, 0);
	} else if (b->type == MANIFEST_DIR && ((w->rec.mode ^ b->e.mode) & X_BITS)) {
		r = add_record(w, COMPARE_MODE, b, flags, 0);
	}
	if (r < 0)
		return r;
	r = push(w, b, project);
	if (r < 0)
		return r;
	c->nodes[w->f[w->depth].node].type_item = item;
	if (flags & COMPARE_IGNORED)
		w->f[w->depth].ignored = true;
	else if (b->type == MANIFEST_DIR)
		w->f[w->depth].ignored = false; /* the scan knew better: tracked */
	return 0;
}

/* A record that is refused; a directory takes all below it along as a count. */
static int take_refused(struct walk *w, const struct base *b, uint16_t project, uint16_t flags,
                        uint8_t why)
{
	uint32_t item = w->c->n_items;
	int r = add_record(w, COMPARE_ADDED, b, flags, why);

	if (r < 0 || w->rec.type != CHANGE_DIR)
		return r;
	r = push(w, b, project);
	if (r == 0)
		w->f[w->depth].refused_by = item;
	return r;
}

static int take_inside(struct walk *w)
{
	struct compare *c = w->c;
	struct frame *f = &w->f[w->depth];
	uint16_t project = c->nodes[f->node].project, flags = 0;
	struct base b;

	w->path.len = f->path_len;
	if ((w->path.len && buf_put(&w->path, "/", 1) < 0) ||
	    buf_put(&w->path, w->rec.name.p, w->rec.name.len) < 0)
		return -ENOMEM;
	if (f->refused_by != COMPARE_NONE) {
		c->items[f->refused_by].subtree++;
		b = (struct base){ .entry = MANIFEST_NONE };
		return w->rec.type == CHANGE_DIR ? push(w, &b, project) : 0;
	}
	if (f->git || classify_is_git(w->rec.name))
		return take_git(w, project);
	f->names |= w->rec.type == CHANGE_WHITEOUT ? 0 : name_bit(w->rec.name);
	find_base(c, f->entry, f->deleted_seq, project, span_of(w->path.p, w->path.len),
	          w->rec.name, &b);
	bool is_dir = w->rec.type == CHANGE_DIR ||
	              (w->rec.type == CHANGE_WHITEOUT && b.type == MANIFEST_DIR);
	if (w->rec.type == CHANGE_WHITEOUT && b.type == 0) {
		c->sum.unchanged++; /* of nothing, or of what the guest did not see */
		return 0;
	}
	if (is_ignored(w, project, &b, is_dir))
		flags |= COMPARE_IGNORED;
	if (w->rec.type == CHANGE_WHITEOUT) {
		int r = add_record(w, COMPARE_DELETED, &b, flags, 0);
		if (r == 0)
			note_subtree(w, &b);
		return r;
	}
	uint8_t why = why_refused(w, &b);
	if (why == COMPARE_WHY_HIDDEN && b.e.flags & MANIFEST_EXCLUDED)
		flags |= COMPARE_IGNORED; /* what the user excluded is expected to be rebuilt */
	if (why)
		return take_refused(w, &b, project, flags, why);
	switch (w->rec.type) {
	case CHANGE_FILE:
		return take_file(w, &b, flags);
	case CHANGE_LINK:
		return take_link(w, &b, flags);
	default:
		return take_dir(w, &b, project, flags);
	}
}

/* --- the level of the projects --- */

static uint32_t project_of(const struct compare *c, uint32_t entry)
{
	for (uint32_t i = 0; i < c->set->manifest.n_projects; i++) {
		struct manifest_project p;
		manifest_project(&c->set->manifest, i, &p);
		if (p.entry == entry)
			return i;
	}
	return COMPARE_NONE;
}

static int take_top(struct walk *w)
{
	struct compare *c = w->c;
	struct base b = { .entry = manifest_child(&c->set->manifest, 0, w->rec.name) };
	uint32_t project = b.entry == MANIFEST_NONE ? COMPARE_NONE : project_of(c, b.entry);
	struct change_record rec = w->rec;

	w->path.len = 0;
	if (project == COMPARE_NONE) {
		if (rec.type == CHANGE_WHITEOUT)
			return 0;
		c->sum.beside++;
		/* the path is its name: there is no project that it could be below */
		b = (struct base){ .entry = MANIFEST_NONE };
		return take_refused(w, &b, COMPARE_NO_PROJECT, 0, COMPARE_WHY_NO_PROJECT);
	}
	manifest_get(&c->set->manifest, b.entry, &b.e);
	b.type = MANIFEST_DIR;
	if (rec.type == CHANGE_DIR)
		return push(w, &b, (uint16_t)project);
	/*
	 * The project's own directory was removed or replaced: all that the guest saw in it is
	 * deleted, the directory itself stays.
	 */
	w->rec.flags = CHANGE_OPAQUE;
	int r = push(w, &b, (uint16_t)project);
	return r < 0 ? r : pop(w);
}

static int walk_all(struct walk *w)
{
	struct compare *c = w->c;
	struct span index = c->set->index;
	size_t at = 0, used, dropped = 0;
	int r = 0;

	for (; r == 0; at += used, w->ordinal++) {
		w->at = (int64_t)at;
		/* checked when the set was opened: it parses, nests and ends with END */
		ASSERT(change_parse(&w->rec, index.p + at, index.len - at, &used) == 0);
		if (w->rec.type == CHANGE_END)
			break;
		if (w->rec.type == CHANGE_UP) {
			r = pop(w);
		} else {
			if (w->depth && !w->f[w->depth].git &&
			    w->f[w->depth].refused_by == COMPARE_NONE)
				r = merge_until(w, &w->rec.name);
			if (r == 0)
				r = w->depth ? take_inside(w) : take_top(w);
		}
		if (at - dropped > DROP_BYTES)
			changeset_drop(index, &dropped, at);
	}
	return r;
}

/* --- rules of the baseline --- */

static int add_rules(struct compare *c, const struct manifest_rules *rules, int rank)
{
	AUTO_BUF struct buf text = { 0 };
	AUTO_BUF struct buf dir = { 0 };
	struct manifest_entry e;
	struct ignore_list *l;
	struct span s = rules->text;

	manifest_get(&c->set->manifest, rules->dir, &e);
	if (e.project >= c->n_rules)
		return 0;
	if (rules->source == MANIFEST_RULES_HEAVY) {
		for (const char *const *p = heavy_patterns; *p; p++) {
			if (buf_printf(&text, "%s\n", *p) < 0)
				return -ENOMEM;
		}
		s = span_of(text.p, text.len);
	}
	int r = ignore_parse(&l, s, 0);
	if (r < 0)
		return r;
	if (manifest_path(&c->set->manifest, rules->dir, &dir) < 0) {
		ignore_free(l);
		return -ENOMEM;
	}
	return ignore_set_add(rules->source == MANIFEST_RULES_GITIGNORE ? c->git_rules[e.project]
	                                                                : c->hide_rules[e.project],
	                      span_of(dir.p, dir.len), l, rank);
}

static int load_rules(struct compare *c)
{
	const struct manifest *m = &c->set->manifest;

	c->git_rules = xcalloc(m->n_projects + 1, sizeof(struct ignore_set *));
	c->hide_rules = xcalloc(m->n_projects + 1, sizeof(struct ignore_set *));
	for (uint32_t i = 0; i < m->n_projects; i++) {
		c->git_rules[i] = ignore_set_new();
		c->hide_rules[i] = ignore_set_new();
		c->n_rules = i + 1;
		if (!c->git_rules[i] || !c->hide_rules[i])
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < m->n_rules; i++) {
		struct manifest_rules rules;
		manifest_rules(m, i, &rules);
		/* among the files of one directory the one that the manifest names later decides */
		int r = add_rules(c, &rules, (int)i);
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- the interface --- */

int compare_new(struct compare **out, const struct changeset *s, const struct span *applied,
                size_t n_applied, struct err *err)
{
	if (s->blobs_gone)
		return err_set(err, -ENODATA, "the contents of this change set were removed");
	struct compare *c = xcalloc(1, sizeof(*c));
	struct walk w = { .c = c };
	int r;

	c->set = s;
	hash_bytes(&c->empty, "", 0);
	w.f = xcalloc(CHANGE_DEPTH_MAX + 2, sizeof(*w.f));
	w.f[0] = (struct frame){ .entry = 0, .refused_by = COMPARE_NONE };
	r = grow(&c->nodes, 0, &c->cap_nodes, sizeof(*c->nodes));
	if (r == 0) {
		c->nodes[c->n_nodes++] = (struct compare_node){ .at = COMPARE_NO_OFFSET,
			                                        .entry = MANIFEST_NONE,
			                                        .type_item = COMPARE_NONE,
			                                        .project = COMPARE_NO_PROJECT };
		r = compare_overlay_load(&c->overlay, applied, n_applied);
	}
	if (r == 0)
		r = load_rules(c);
	if (r == 0)
		r = walk_all(&w);
	if (r == 0)
		r = compare_finish(c);
	buf_fini(&w.path);
	free(w.f);
	if (r < 0) {
		compare_free(c);
		return err_code(err, r, "cannot compare the change set with its baseline");
	}
	*out = c;
	return 0;
}

void compare_free(struct compare *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->n_rules; i++) {
		ignore_set_free(c->git_rules[i]);
		ignore_set_free(c->hide_rules[i]);
	}
	free(c->git_rules);
	free(c->hide_rules);
	compare_overlay_fini(&c->overlay);
	free(c->items);
	free(c->nodes);
	free(c);
}
