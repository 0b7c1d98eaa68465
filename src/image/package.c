/* SPDX-License-Identifier: Apache-2.0 */
/*
 * package.c - a package of npm as a layer: its tarball's files at the place where
 * `npm install --global` would put them.
 *
 * The tarball is named by the registry and its hash was checked before, but its
 * author may be anyone. So it is read as npm itself does, or stricter: the first
 * component of every path is dropped, only files and folders are taken, owners
 * and the odd mode bits are not.
 */
#include "image/worker.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/path.h"
#include "base/vis.h"
#include "image/sink.h"

#define MODULES_DIR "usr/local/lib/node_modules/"
#define BIN_DIR "usr/local/bin/"

static int refuse(struct err *err, int code, struct span path, const char *why)
{
	char name[160];

	(void)vis_str(name, sizeof(name), path);
	return err_set(err, code, "entry '%s' of the package %s", name, why);
}

/* What is behind the first component; empty for that folder itself. */
static int inside(struct span path, struct span *out)
{
	while (path.len > 2 && path.p[0] == '.' && path.p[1] == '/')
		path = span_of(path.p + 2, path.len - 2);
	while (path.len > 1 && path.p[path.len - 1] == '/')
		path.len--;
	if (path_check(path) < 0)
		return -EPROTO; /* "..", absolute, empty components */
	const uint8_t *slash = memchr(path.p, '/', path.len);
	size_t n = slash ? (size_t)(slash - path.p) + 1 : path.len;
	*out = span_of(path.p + n, path.len - n);
	return 0;
}

static bool omitted(const struct package_opts *o, const char *path)
{
	for (size_t i = 0; i < o->n_omit; i++) {
		if (fnmatch(o->omit[i], path, 0) == 0)
			return true;
	}
	return false;
}

static bool is_bin(const struct package_opts *o, const char *path)
{
	for (size_t i = 0; i < o->n_bin; i++) {
		if (strcmp(o->bin[i].path, path) == 0)
			return true;
	}
	return false;
}

static int take(struct tar *in, const struct tar_entry *e, const struct package_opts *o,
                struct tree *t, struct sink *sink, struct err *err)
{
	struct span rel;
	uint32_t node;

	if (S_ISDIR(e->meta.mode) && span_eq(e->path, span_str("./")))
		return 0;
	if (inside(e->path, &rel) < 0)
		return refuse(err, -EPROTO, e->path, "leads out of it");
	if (e->hardlink.len || !(S_ISREG(e->meta.mode) || S_ISDIR(e->meta.mode)))
		return refuse(err, -EPROTO, e->path, "is neither a file nor a folder");
	if (rel.len == 0) {
		if (S_ISREG(e->meta.mode))
			return refuse(err, -EPROTO, e->path, "lies beside its folder");
		return 0;
	}
	AUTO_FREE char *path = xstrndup((const char *)rel.p, rel.len);
	if (omitted(o, path))
		return 0;
	AUTO_FREE char *full = xasprintf(MODULES_DIR "%s/%s", o->name, path);
	bool run = (e->meta.mode & 0111) || is_bin(o, path);
	struct tree_meta m = {
		.mode = S_ISDIR(e->meta.mode) ? S_IFDIR | 0755 : S_IFREG | (run ? 0755 : 0644),
		.mtime_s = e->meta.mtime_s,
		.size = S_ISREG(e->meta.mode) ? e->meta.size : 0,
	};
	int r = tree_add(t, span_str(full), &m, &node);
	if (r == 0 && m.size) {
		tree_set_block(t, node, sink_block(sink));
		r = sink_take(sink, in, m.size, NULL);
		if (r < 0 && tar_is_damaged(in))
			return r;
	}
	if (r == -EFBIG)
		return refuse(err, r, e->path, "goes over a limit");
	if (r == -EPROTO)
		return refuse(err, r, e->path, "is refused");
	return r < 0 ? err_code(err, r, "cannot keep a file of the package") : 0;
}

static int link_bin(const struct package_opts *o, const struct package_bin *b, struct tree *t,
                    struct err *err)
{
	AUTO_FREE char *target = xasprintf(MODULES_DIR "%s/%s", o->name, b->path);
	AUTO_FREE char *link = xasprintf("../lib/node_modules/%s/%s", o->name, b->path);
	AUTO_FREE char *path = xasprintf(BIN_DIR "%s", b->name);
	struct tree_meta m = { .mode = S_IFLNK | 0777,
		               .mtime_s = o->now_s,
		               .link = span_str(link) };
	uint32_t node = tree_lookup(t, span_str(target));
	char seen[160];

	if (node == TREE_NONE || !S_ISREG(tree_mode(t, node)))
		return err_set(err, -ENOENT, "the package has no file '%s'",
		               vis_str(seen, sizeof(seen), span_str(b->path)));
	int r = tree_add(t, span_str(path), &m, NULL);
	return r < 0 ? err_code(err, r, "cannot make a command") : 0;
}

int package_merge(struct tar *in, const struct package_opts *o, struct tree *t, uint64_t *out_block,
                  struct err *err)
{
	struct sink sink;
	struct tar_entry e = { 0 };
	bool is_empty = true;
	char why[200];
	int r = sink_init(&sink, o->out_fd);

	if (r < 0)
		return err_set(err, r, "no memory");
	while ((r = tar_next(in, &e)) == 1) {
		is_empty = false;
		r = take(in, &e, o, t, &sink, err);
		if (r < 0)
			break;
	}
	if (r < 0 && tar_is_damaged(in))
		r = err_set(err, -EBADMSG, "cannot read the package: %s",
		            vis_str(why, sizeof(why), span_str(tar_error(in))));
	else if (r == 0 && is_empty)
		r = err_set(err, -EBADMSG, "cannot read the package: it is empty");
	for (size_t i = 0; i < o->n_bin && r == 0; i++)
		r = link_bin(o, &o->bin[i], t, err);
	if (r == 0) {
		r = sink_flush(&sink);
		if (r < 0)
			(void)err_code(err, r, "cannot write the layer");
	}
	if (r == 0)
		*out_block = sink_block(&sink);
	sink_fini(&sink);
	return r;
}

int package_write(struct tar *in, const struct package_opts *o, struct worker_report *out,
                  struct err *err)
{
	struct erofs_opts eo = { .volume = "cloche-layer", .build_time_s = o->now_s };
	struct tree_limits lim = o->limits;
	struct erofs_source src;
	struct erofs_result res;

	if (lim.entries == 0)
		lim.entries = PACKAGE_ENTRIES_MAX;
	if (lim.bytes == 0)
		lim.bytes = PACKAGE_BYTES_MAX;
	struct tree *t = tree_new(&lim);
	if (!t)
		return err_set(err, -ENOMEM, "no memory");
	int r = package_merge(in, o, t, &eo.meta_block, err);
	if (r == 0) {
		r = tree_source(t, &src);
		if (r < 0)
			(void)err_code(err, r, "cannot sort the tree");
	}
	if (r == 0) {
		memcpy(eo.uuid, o->uuid, sizeof(eo.uuid));
		r = erofs_write(o->out_fd, &src, &eo, &res, err);
	}
	if (r == 0)
		*out = (struct worker_report){ .entries = res.inodes };
	tree_free(t);
	return r;
}
