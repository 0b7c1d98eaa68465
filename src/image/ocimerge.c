/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ocimerge.c - layers over each other (image-spec, layer.md).
 *
 * A whiteout removes what lower layers have, never what its own layer brings, whatever the
 * order of its entries; tree.h knows from which layer a name is. Owners are kept as they are
 * written: nothing is unpacked, so nobody needs to be root.
 */
#include "image/ocireader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/vis.h"
#include "erofs/erofs.h"
#include "image/sink.h"

static const char wh[] = ".wh.", opaque[] = ".wh..wh..opq", meta_prefix[] = ".wh..wh.";

static int refuse(struct err *err, int code, struct span path, const char *why)
{
	char name[160];

	return err_set(err, code, "entry '%s' of a layer %s", vis_str(name, sizeof(name), path),
	               why);
}

static struct span last_name(struct span path, struct span *out_parent)
{
	while (path.len > 1 && path.p[path.len - 1] == '/')
		path.len--;
	const uint8_t *slash = path.len ? memrchr(path.p, '/', path.len) : NULL;
	size_t at = slash ? (size_t)(slash - path.p) + 1 : 0;

	*out_parent = span_of(path.p, slash ? at - 1 : 0);
	return span_of(path.p + at, path.len - at);
}

static bool begins(struct span s, const char *prefix)
{
	size_t n = strlen(prefix);

	return s.len >= n && memcmp(s.p, prefix, n) == 0;
}

/* Return: 1 when the entry was a mark, and is done with. */
static int take_mark(const struct tar_entry *e, struct tree *t, struct err *err)
{
	struct span parent, name = last_name(e->path, &parent);

	if (!begins(name, wh))
		return 0;
	if (span_eq(name, span_str(opaque))) {
		int r = tree_opaque(t, parent.len ? parent : span_str("./"));
		return r < 0 ? refuse(err, r, e->path, "marks what is no folder") : 1;
	}
	if (begins(name, meta_prefix))
		return 1; /* of aufs, for itself */
	struct span gone = span_of(name.p + 4, name.len - 4);
	if (gone.len == 0 || span_eq(gone, span_str(".")) || span_eq(gone, span_str("..")))
		return refuse(err, -EPROTO, e->path, "removes a folder from within");
	AUTO_FREE char *path =
		xasprintf("%.*s%s%.*s", (int)parent.len, (const char *)parent.p,
	                  parent.len ? "/" : "", (int)gone.len, (const char *)gone.p);
	int r = tree_whiteout(t, span_str(path));
	return r < 0 ? refuse(err, r, e->path, "is refused") : 1;
}

static bool below_dev(struct span p)
{
	while (p.len > 2 && p.p[0] == '.' && p.p[1] == '/')
		p = span_of(p.p + 2, p.len - 2);
	return begins(p, "dev/");
}

static int take_entry(struct tar *in, const struct tar_entry *e, struct tree *t, struct sink *sink,
                      struct err *err)
{
	uint32_t node;
	int r = take_mark(e, t, err);

	if (r != 0)
		return MIN(r, 0);
	if (e->hardlink.len) {
		r = tree_add_link(t, e->path, e->hardlink);
		return r == -EPROTO ? refuse(err, r, e->path,
		                             "links to what is not there, or is refused")
		                    : r;
	}
	if (!S_ISREG(e->meta.mode) && !S_ISDIR(e->meta.mode) && !S_ISLNK(e->meta.mode)) {
		/* the guest's own lie over these */
		if (below_dev(e->path))
			return 0;
		return refuse(err, -EPROTO, e->path, "is a device, a fifo or a socket");
	}
	r = tree_add(t, e->path, &e->meta, &node);
	if (r == 0 && S_ISREG(e->meta.mode) && e->meta.size) {
		tree_set_block(t, node, sink_block(sink));
		r = sink_take(sink, in, e->meta.size, NULL);
	}
	return r;
}

int oci_take_layer(struct tar *in, struct tree *t, struct sink *sink, struct err *err)
{
	struct tar_entry e = { 0 };
	char why[200];
	int r;

	tree_next_layer(t);
	while ((r = tar_next(in, &e)) == 1) {
		struct err said = { 0 };
		r = take_entry(in, &e, t, sink, &said);
		if (r == 0)
			continue;
		if (tar_is_damaged(in))
			break;
		if (said.code) {
			if (err)
				*err = said;
			return r;
		}
		if (r == -EFBIG)
			return refuse(err, r, e.path,
			              "goes over a limit (1,000,000 entries, 30 GiB)");
		if (r == -EPROTO)
			return refuse(err, r, e.path,
			              "is refused: it leads out of the image or through a link");
		return err_code(err, r, "cannot keep an entry of a layer");
	}
	if (r < 0 && tar_is_damaged(in))
		return err_set(err, -EPROTO, "a layer is no archive: %s",
		               vis_str(why, sizeof(why), span_str(tar_error(in))));
	return r < 0 ? err_code(err, r, "cannot read a layer") : 0;
}

/* What the guest mounts there, and what a shell starts from. */
static int check_contract(const struct tree *t, struct worker_report *rep, struct err *err)
{
	static const char *const dirs[] = { "proc", "sys",  "dev",  "tmp", "run",
		                            "etc",  "root", "home", "work" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		uint32_t node = tree_lookup(t, span_str(dirs[i]));
		if (node != TREE_NONE && !S_ISDIR(tree_mode(t, node)))
			return err_set(err, -EPROTO,
			               "it cannot be a root file system: its /%s is no folder",
			               dirs[i]);
	}
	(void)snprintf(rep->text, sizeof(rep->text), "%s",
	               tree_lookup(t, span_str("bin/sh")) != TREE_NONE ||
	                               tree_lookup(t, span_str("usr/bin/sh")) != TREE_NONE
	                       ? "sh"
	                       : "nosh");
	return 0;
}

static int take_all(const struct oci_layer *layers, size_t n, struct tree *t, struct sink *sink,
                    int *bad, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		struct tar *in = tar_open_layer(layers[i].fd);
		uint8_t sum[SHA256_BYTES];
		uint64_t size = 0;

		if (!in)
			return err_set(err, -ENOMEM, "no memory");
		int r = oci_take_layer(in, t, sink, err);
		/* what is wrong with it counts only if it is the layer that was meant */
		int k = tar_layer_sum(in, layers[i].size, sum, &size);
		tar_free(in);
		if (k < 0 && k != -EFBIG)
			return err_code(err, k, "cannot read a layer");
		if (k == -EFBIG || size != layers[i].size ||
		    memcmp(sum, layers[i].sum, sizeof(sum)) != 0) {
			*bad = (int)i;
			return err_set(err, -EBADMSG, "a layer is damaged");
		}
		if (r < 0)
			return r;
	}
	return 0;
}

int oci_merge(const struct oci_layer *layers, size_t n, const struct rootfs_opts *o,
              struct worker_report *out, int *bad, struct err *err)
{
	struct erofs_opts eo = { .volume = "cloche-oci", .build_time_s = o->now_s };
	struct worker_report rep = { 0 };
	struct erofs_source src;
	struct erofs_result res;
	struct sink sink;
	struct tree *t = tree_new(&o->limits);

	*bad = -1;
	if (!t)
		return err_set(err, -ENOMEM, "no memory");
	int r = sink_init(&sink, o->out_fd);
	if (r == 0)
		r = take_all(layers, n, t, &sink, bad, err);
	else
		(void)err_set(err, r, "no memory");
	if (r == 0)
		r = check_contract(t, &rep, err);
	if (r == 0) {
		r = sink_flush(&sink);
		eo.meta_block = sink_block(&sink);
		if (r == 0)
			r = tree_source(t, &src);
		if (r < 0)
			(void)err_code(err, r, "cannot write the image");
	}
	if (r == 0) {
		memcpy(eo.uuid, o->uuid, sizeof(eo.uuid));
		r = erofs_write(o->out_fd, &src, &eo, &res, err);
	}
	if (r == 0) {
		rep.entries = res.inodes;
		*out = rep;
	}
	sink_fini(&sink);
	tree_free(t);
	return r;
}
