/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_fixture MANIFEST META DIR... - manifest and metadata image of folders, for
 * tests of cloche-disk: no rules, no exclusions, one thread. A file named
 * "GENERATED" gets content of ours in the metadata part. Prints a line for each
 * regular file: entry, block, size, path.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "erofs/erofs.h"
#include "manifest/manifest.h"

static const char generated[] = "content of ours\n";

struct node {
	struct manifest_entry e;
	char *path; /* to open it; NULL for entry 0 */
	char *name;
	char *link;
	uint32_t links; /* in the image */
};

struct tree {
	struct node *v;
	uint32_t n, cap;
	uint32_t n_generated;
};

static struct node *add(struct tree *t)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 1024;
		t->v = xrealloc(t->v, t->cap * sizeof(*t->v));
	}
	t->v[t->n] = (struct node){ 0 };
	return &t->v[t->n++];
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void fill(struct tree *t, uint32_t parent, uint16_t project, const char *path,
                 const char *name)
{
	struct stat st;

	if (lstat(path, &st) < 0) {
		perror(path);
		exit(1);
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
		return;
	struct node *n = add(t);
	uint32_t i = t->n - 1;

	n->path = xstrdup(path);
	n->name = xstrdup(name);
	n->e = (struct manifest_entry){
		.parent = parent,
		.kind = S_ISREG(st.st_mode)   ? MANIFEST_FILE
		        : S_ISDIR(st.st_mode) ? MANIFEST_DIR
		                              : MANIFEST_LINK,
		.project = project,
		.mode = st.st_mode & 07777,
		.uid = st.st_uid,
		.gid = st.st_gid,
		.nlink = (uint32_t)st.st_nlink,
		.mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		.ctime_ns = st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
		.ino = st.st_ino,
		.dev = st.st_dev,
		.same_as = i,
	};
	if (S_ISREG(st.st_mode)) {
		n->e.size = (uint64_t)st.st_size;
		for (uint32_t k = 0; st.st_nlink > 1 && k < i; k++) {
			if (t->v[k].e.ino == st.st_ino && t->v[k].e.dev == st.st_dev)
				n->e.same_as = t->v[k].e.same_as;
		}
		if (strcmp(name, "GENERATED") == 0) {
			n->e.flags |= MANIFEST_GENERATED;
			n->e.size = sizeof(generated) - 1;
			n->e.block = 1 + t->n_generated++;
		}
	} else if (S_ISLNK(st.st_mode)) {
		n->link = xcalloc(1, MANIFEST_LINK_MAX + 1);
		if (readlink(path, n->link, MANIFEST_LINK_MAX) < 0)
			exit(1);
	}
}

static void list(struct tree *t, uint32_t dir)
{
	char **names = NULL;
	size_t n = 0, cap = 0;
	DIR *d = opendir(t->v[dir].path);

	if (!d) {
		perror(t->v[dir].path);
		exit(1);
	}
	for (struct dirent *e; (e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 64;
			names = xrealloc(names, cap * sizeof(*names));
		}
		names[n++] = xstrdup(e->d_name);
	}
	(void)closedir(d); /* only read */
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	t->v[dir].e.first_child = t->n;
	for (size_t i = 0; i < n; i++) {
		AUTO_FREE char *path = xasprintf("%s/%s", t->v[dir].path, names[i]);

		fill(t, dir, t->v[dir].e.project, path, names[i]);
		free(names[i]);
	}
	t->v[dir].e.n_children = t->n - t->v[dir].e.first_child;
	free(names);
}

static int src_inode(void *arg, uint32_t i, struct erofs_inode *out)
{
	const struct tree *t = arg;
	const struct manifest_entry *e = &t->v[i].e;

	out->uid = out->gid = 1000;
	out->mtime_s = e->mtime_ns / 1000000000;
	out->mtime_ns = (uint32_t)(e->mtime_ns % 1000000000);
	out->mode = e->mode & 0777;
	switch ((enum manifest_kind)e->kind) {
	case MANIFEST_DIR:
		out->mode |= S_IFDIR;
		out->n_dirents = e->n_children;
		out->parent = e->parent;
		break;
	case MANIFEST_LINK:
		out->mode |= S_IFLNK;
		out->link = span_str(t->v[i].link);
		break;
	case MANIFEST_FILE:
	case MANIFEST_OTHER:
		out->mode |= S_IFREG;
		out->size = e->size;
		out->is_placed = e->flags & MANIFEST_GENERATED;
		out->block_at = e->block;
		break;
	}
	return 0;
}

static int src_dirent(void *arg, uint32_t dir, uint32_t k, struct erofs_dirent *out)
{
	static const uint32_t modes[] = { 0, S_IFDIR, S_IFREG, S_IFLNK };
	const struct tree *t = arg;
	const struct node *n = &t->v[t->v[dir].e.first_child + k];

	out->name = span_str(n->name);
	out->inode = n->e.same_as;
	out->mode = modes[n->e.kind];
	return 0;
}

static void src_placed(void *arg, uint32_t i, uint64_t block)
{
	struct tree *t = arg;

	t->v[i].e.block = block;
}

static void die(const struct err *err)
{
	(void)fprintf(stderr, "disk_fixture: %s\n", err->text);
	exit(1);
}

static uint64_t image(struct tree *t, int fd, uint64_t *out_blocks)
{
	const struct erofs_source src = { .arg = t,
		                          .n_inodes = t->n,
		                          .inode = src_inode,
		                          .dirent = src_dirent,
		                          .placed = src_placed };
	struct erofs_opts o = { .volume = "workspace", .meta_block = 1 + t->n_generated };
	struct erofs_result r;
	struct err err;

	for (uint32_t k = 0; k < t->n_generated; k++) {
		if (fd_pwrite_all(fd, generated, sizeof(generated) - 1, (1 + k) * 4096) < 0)
			exit(1);
	}
	if (erofs_write(fd, &src, &o, &r, &err) < 0)
		die(&err);
	*out_blocks = r.image_blocks;
	return r.data_block;
}

int main(int argc, char **argv)
{
	struct manifest_writer *w = manifest_writer_new();
	struct tree t = { 0 };
	uint64_t data_block, blocks;
	struct err err;

	if (argc < 4) {
		(void)fprintf(stderr, "usage: disk_fixture MANIFEST META DIR...\n");
		return 2;
	}
	int manifest = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int meta = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	*add(&t) = (struct node){ .e = { .kind = MANIFEST_DIR, .mode = 0755, .nlink = 2 } };
	t.v[0].e.first_child = 1;
	for (int i = 3; i < argc; i++) {
		const char *slash = strrchr(argv[i], '/');

		fill(&t, 0, (uint16_t)(i - 3), argv[i], slash ? slash + 1 : argv[i]);
	}
	t.v[0].e.n_children = t.n - 1;
	for (uint32_t i = 1; i < t.n; i++) { /* grows on the way */
		if (t.v[i].e.kind == MANIFEST_DIR)
			list(&t, i);
	}
	data_block = image(&t, meta, &blocks);
	for (uint32_t i = 0; i < t.n; i++) {
		struct manifest_entry *e = &t.v[i].e;
		uint32_t index;

		if (e->kind == MANIFEST_FILE) {
			e->block = t.v[e->same_as].e.block;
			printf("%u %llu %llu %s\n", i, (unsigned long long)e->block,
			       (unsigned long long)e->size, t.v[i].path);
		}
		e->name = t.v[i].name ? span_str(t.v[i].name) : span_of("", 0);
		e->link = t.v[i].link ? span_str(t.v[i].link) : span_of("", 0);
		if (manifest_add(w, e, &index) < 0 || index != i)
			return 1;
	}
	for (int i = 3; i < argc; i++) {
		struct stat st;
		struct manifest_project p = { .entry = (uint32_t)(i - 2),
			                      .path = span_str(argv[i]) };

		if (stat(argv[i], &st) < 0)
			return 1;
		p.dev = st.st_dev;
		p.ino = st.st_ino;
		if (manifest_add_project(w, &p) < 0)
			return 1;
	}
	manifest_set_image(w, data_block, blocks);
	if (manifest_write(w, manifest, 0, &err) < 0)
		die(&err);
	manifest_writer_free(w);
	return fd_close(&meta) == 0 && fd_close(&manifest) == 0 ? 0 : 1;
}
