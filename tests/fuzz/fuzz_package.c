/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_package.c - a package of npm from outside, merged as a layer.
 *
 * Properties: everything is a file or a folder of root's, with the modes 0644 or
 * 0755, below the package's own folder; the only link is that of the command that
 * was asked for, and it leads to a file of the package.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "image/worker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const down[] = { "usr", "local", "lib", "node_modules", "demo" };
static const char *const aside[] = { "usr", "local", "bin", "demo" };
enum { DEPTH_IN = 5, DEPTH_BIN = 4 };

static void must(bool ok)
{
	if (!ok)
		abort();
}

static bool on_the_way(const char *const *way, int n, int depth, struct span name)
{
	return depth < n && span_eq(name, span_str(way[depth]));
}

static void walk(const struct erofs_source *s, uint32_t inode, int depth, bool bin)
{
	struct erofs_inode in;

	must(depth <= TREE_DEPTH_MAX);
	must(s->inode(s->arg, inode, &in) == 0);
	must(in.uid == 0 && in.gid == 0 && in.n_xattrs == 0);
	if (S_ISLNK(in.mode)) {
		must(bin && depth == DEPTH_BIN);
		must(span_eq(in.link, span_str("../lib/node_modules/demo/bin")));
		return;
	}
	must(!bin || depth < DEPTH_BIN);
	must(in.mode == (S_IFDIR | 0755) || in.mode == (S_IFREG | 0755) ||
	     in.mode == (S_IFREG | 0644));
	must(S_ISDIR(in.mode) || depth > DEPTH_IN);
	for (uint32_t k = 0; S_ISDIR(in.mode) && k < in.n_dirents; k++) {
		struct erofs_dirent d;
		must(s->dirent(s->arg, inode, k, &d) == 0);
		must(path_name_ok(d.name));
		bool is_bin = depth == 2 ? span_eq(d.name, span_str("bin")) : bin;
		must(is_bin ? on_the_way(aside, DEPTH_BIN, depth, d.name)
		            : depth >= DEPTH_IN || on_the_way(down, DEPTH_IN, depth, d.name));
		walk(s, d.inode, depth + 1, is_bin);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct package_opts o = {
		.name = "demo", .bin = { { "demo", "bin" } }, .omit = { "*/voice/*" }, .n_omit = 1
	};
	struct tree_limits lim = { .entries = 2000, .bytes = 8 * 1024 * 1024 };
	struct erofs_source src;
	uint64_t block;

	if (size == 0)
		return 0;
	o.n_bin = data[size - 1] % 2; /* behind the archive's end */
	struct tar *in = tar_open_mem(span_of(data, size));
	struct tree *t = tree_new(&lim);
	AUTO_CLOSE int fd = fd_memfd("layer");
	o.out_fd = fd;
	must(in && t && fd >= 0);
	if (package_merge(in, &o, t, &block, NULL) == 0) {
		must(tree_source(t, &src) == 0);
		walk(&src, 0, 0, false);
	}
	tree_free(t);
	tar_free(in);
	return 0;
}
