/* SPDX-License-Identifier: Apache-2.0 */
#include "image/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/vis.h"
#include "erofs/erofs.h"
#include "image/sink.h"

/* ---- merging ------------------------------------------------------------ */

enum { ACCOUNT_BYTES_MAX = 1024 * 1024 };

/* Files whose content a recipe edits: kept while they pass. */
static const char *const account_paths[] = { "etc/passwd", "etc/group", "etc/shadow" };
enum { PASSWD, GROUP, SHADOW, ACCOUNTS };

struct merge {
	struct tar *in;
	const struct rootfs_opts *o;
	struct tree *t;
	struct sink sink;
	struct buf account[ACCOUNTS];
	struct worker_report *rep;
	struct err *err;
};

static int bad_entry(struct merge *m, int code, struct span path)
{
	char name[160];

	(void)vis_str(name, sizeof(name), path);
	if (code == -EFBIG)
		return err_set(m->err, code, "entry '%s' goes over a limit of the image", name);
	if (code == -EPROTO)
		return err_set(m->err, code, "entry '%s' is refused", name);
	return err_code(m->err, code, "cannot keep entry '%s'", name);
}

static struct span strip_dot(struct span p)
{
	return p.len > 2 && p.p[0] == '.' && p.p[1] == '/' ? span_of(p.p + 2, p.len - 2) : p;
}

#define LEFT_DIR REGISTRY_DIR "/"

/* Is it what the probes of package tools wrote? */
static bool take_registries(struct merge *m, const struct tar_entry *e, int *out_r)
{
	AUTO_BUF struct buf text = { 0 };
	struct span d;
	uint64_t off;
	int r;

	if (!span_eq(strip_dot(e->path), span_str(LEFT_DIR REGISTRY_FILE)) ||
	    !S_ISREG(e->meta.mode))
		return false;
	while ((r = tar_data(m->in, &d, &off)) == 1) {
		r = off != text.len || d.len > REGISTRY_OUTPUT_MAX - text.len
		            ? -EPROTO
		            : buf_put(&text, d.p, d.len);
		if (r < 0)
			break;
	}
	if (r == 0 && registry_scan(&m->rep->registries, span_of(text.p, text.len)) > 0)
		r = -EFBIG;
	*out_r = r;
	return true;
}

/* Is it the package of the kernel? */
static bool take_deb(struct merge *m, const struct tar_entry *e, int *out_r)
{
	static const char dir[] = LEFT_DIR;
	struct span p = strip_dot(e->path), d;
	size_t n = sizeof(dir) - 1;
	uint64_t off, at = 0;
	int r;

	if (p.len <= n + 4 || memcmp(p.p, dir, n) != 0 || !S_ISREG(e->meta.mode) ||
	    memcmp(p.p + p.len - 4, ".deb", 4) != 0 || m->o->deb_fd < 0 || m->rep->text[0])
		return false;
	p = span_of(p.p + n, MIN(p.len - n, (size_t)WORKER_TEXT_MAX));
	memcpy(m->rep->text, p.p, p.len);
	while ((r = tar_data(m->in, &d, &off)) == 1) {
		if (off != at) {
			r = -EPROTO;
			break;
		}
		r = fd_write_all(m->o->deb_fd, d.p, d.len);
		if (r < 0)
			break;
		at += d.len;
	}
	*out_r = r;
	return true;
}

static int merge_entry(struct merge *m, const struct tar_entry *e)
{
	uint32_t node;
	int r = 0;

	if (take_deb(m, e, &r) || take_registries(m, e, &r))
		return r;
	if (e->hardlink.len)
		return tree_add_link(m->t, e->path, e->hardlink);
	r = tree_add(m->t, e->path, &e->meta, &node);
	if (r < 0 || !S_ISREG(e->meta.mode) || e->meta.size == 0)
		return r;
	struct buf *copy = NULL;
	for (int i = 0; i < ACCOUNTS; i++) {
		if (!span_eq(strip_dot(e->path), span_str(account_paths[i])))
			continue;
		if (e->meta.size > ACCOUNT_BYTES_MAX)
			return -EFBIG;
		copy = &m->account[i];
		copy->len = 0;
	}
	tree_set_block(m->t, node, sink_block(&m->sink));
	return sink_take(&m->sink, m->in, e->meta.size, copy);
}

/* ---- the recipe's steps ------------------------------------------------- */

static int put_file(struct merge *m, struct span path, const struct tree_meta *meta,
                    struct span body)
{
	struct tree_meta x = *meta;
	uint32_t node;

	x.size = body.len;
	int r = tree_add(m->t, path, &x, &node);
	if (r < 0 || body.len == 0)
		return r;
	tree_set_block(m->t, node, sink_block(&m->sink));
	r = sink_put(&m->sink, body);
	if (r == 0)
		r = sink_align(&m->sink);
	return r;
}

static int apply_step(struct merge *m, const struct recipe_step *s)
{
	struct tree_meta meta = {
		.uid = s->uid,
		.gid = s->gid,
		.mtime_s = m->o->now_s,
		.mode = s->mode,
	};
	int r = 0;

	switch (s->verb) {
	case RECIPE_EMPTY:
		(void)tree_empty(m->t, s->path); /* not there is fine */
		return 0;
	case RECIPE_DROP:
		(void)tree_remove(m->t, s->path); /* not there is fine */
		return 0;
	case RECIPE_DIR:
		meta.mode |= S_IFDIR;
		return tree_add(m->t, s->path, &meta, NULL);
	case RECIPE_LINK:
		meta.mode = S_IFLNK | 0777;
		meta.link = s->arg;
		return tree_add(m->t, s->path, &meta, NULL);
	case RECIPE_COPY:
		meta.mode |= S_IFREG;
		return tree_add_copy(m->t, s->path, s->arg, &meta);
	case RECIPE_FILE:
		meta.mode |= S_IFREG;
		return put_file(m, s->path, &meta, recipe_step_body(m->o->recipe, s));
	case RECIPE_USER:
		r = account_add(&m->account[PASSWD], &m->account[GROUP], &m->account[SHADOW],
		                s->path, s->uid, s->gid, s->arg, s->arg2);
		return MIN(r, 0);
	}
	return r;
}

static int apply_recipe(struct merge *m)
{
	static const struct tree_meta plain = { .mode = S_IFREG | 0644 };
	/* group shadow has this number in Debian's base-passwd since ever */
	static const struct tree_meta hidden = { .mode = S_IFREG | 0640, .gid = 42 };
	const struct recipe *rc = m->o->recipe;
	int r = 0;

	if (!rc)
		return 0;
	for (size_t i = 0; i < rc->n_steps; i++) {
		r = apply_step(m, &rc->steps[i]);
		if (r < 0)
			return bad_entry(m, r, rc->steps[i].path);
	}
	r = account_lock_all(&m->account[SHADOW]);
	for (int i = 0; i < ACCOUNTS && r == 0; i++) {
		struct tree_meta meta = i == SHADOW ? hidden : plain;
		meta.mtime_s = m->o->now_s;
		r = put_file(m, span_str(account_paths[i]), &meta,
		             span_of(m->account[i].p, m->account[i].len));
	}
	return r < 0 ? err_code(m->err, r, "cannot write the accounts") : 0;
}

int rootfs_merge(struct tar *in, const struct rootfs_opts *o, struct tree *t,
                 struct worker_report *rep, uint64_t *out_block, struct err *err)
{
	struct merge m = {
		.in = in,
		.o = o,
		.t = t,
		.rep = rep,
		.err = err,
	};
	struct tar_entry e = { 0 };
	int r;

	if (sink_init(&m.sink, o->out_fd) < 0)
		return err_set(err, -ENOMEM, "no memory");
	bool is_empty = true;
	while ((r = tar_next(in, &e)) == 1) {
		is_empty = false;
		r = merge_entry(&m, &e);
		if (r < 0) {
			r = bad_entry(&m, r, e.path);
			break;
		}
	}
	if (r < 0 && tar_is_damaged(in)) {
		char why[200];
		r = err_set(err, -EBADMSG, "cannot read the archive: %s",
		            vis_str(why, sizeof(why), span_str(tar_error(in))));
	} else if (r == 0 && is_empty) {
		r = err_set(err, -EBADMSG, "cannot read the archive: it is empty");
	}
	if (r == 0)
		r = apply_recipe(&m);
	if (r == 0) {
		r = sink_flush(&m.sink);
		if (r < 0)
			(void)err_code(err, r, "cannot write the image");
	}
	if (r == 0)
		*out_block = sink_block(&m.sink);
	sink_fini(&m.sink);
	for (int i = 0; i < ACCOUNTS; i++)
		buf_fini(&m.account[i]);
	return r;
}

int rootfs_write(struct tar *in, const struct rootfs_opts *o, struct worker_report *out,
                 struct err *err)
{
	struct erofs_opts eo = { .volume = "cloche-base", .build_time_s = o->now_s };
	struct worker_report rep = { 0 };
	struct erofs_source src;
	struct erofs_result res;
	struct tree *t = tree_new(&o->limits);

	if (!t)
		return err_set(err, -ENOMEM, "no memory");
	int r = rootfs_merge(in, o, t, &rep, &eo.meta_block, err);
	if (r == 0) {
		r = tree_source(t, &src);
		if (r < 0)
			(void)err_code(err, r, "cannot sort the tree");
	}
	if (r == 0) {
		memcpy(eo.uuid, o->uuid, sizeof(eo.uuid));
		r = erofs_write(o->out_fd, &src, &eo, &res, err);
	}
	if (r == 0) {
		rep.entries = res.inodes;
		*out = rep;
	}
	tree_free(t);
	return r;
}
