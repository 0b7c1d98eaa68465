/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_dump.c - prints what cloche-scan wrote, for scan_test.py.
 *
 *	scan_dump MANIFEST META
 *
 * Lines, names and texts in hex ("-" when empty):
 *	H count projects rules data_block image_blocks
 *	M index kind flags why mode size mtime_ns block same_as path link
 *	R dir source text
 *	I nid mode uid gid nlink size mtime_s mtime_ns block path link content
 * M is the manifest, I the image as the independent reader sees it; content is
 * that of files whose data lies in the image file itself. manifest_open() and
 * the reader's checks have to succeed.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "lib/erofs_reader.h"
#include "manifest/manifest.h"

enum { FILE_MAX = 512 * 1024 * 1024 };

struct image {
	struct er e;
	uint64_t data_block;
	struct buf path;
};

static void hex(const void *p, size_t n)
{
	const uint8_t *b = p;

	putchar(' ');
	if (n == 0)
		putchar('-');
	for (size_t i = 0; i < n; i++)
		printf("%02x", b[i]);
}

static struct span load(const char *name)
{
	AUTO_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC);
	char *p = NULL;
	size_t len = 0;

	if (fd < 0 || fd_read_file(fd, FILE_MAX, &p, &len) < 0) {
		perror(name);
		exit(2);
	}
	return span_of(p, len);
}

static const char *show(struct image *im, uint64_t nid);

static const char *show_dirent(void *arg, const struct er_dirent *d)
{
	struct image *im = arg;
	size_t before = im->path.len;

	if (d->name[0] == '.' && (d->len == 1 || (d->len == 2 && d->name[1] == '.')))
		return NULL;
	if ((before && buf_put(&im->path, "/", 1) < 0) || buf_put(&im->path, d->name, d->len) < 0)
		return "no memory";
	const char *bad = show(im, d->nid);
	im->path.len = before;
	return bad;
}

static const char *show(struct image *im, uint64_t nid)
{
	struct er_inode in;
	const char *bad = er_inode(&im->e, nid, &in);

	if (bad)
		return bad;
	printf("I %" PRIu64 " %o %u %u %u %" PRIu64 " %" PRId64 " %u %u", nid, in.mode, in.uid,
	       in.gid, in.nlink, in.size, in.mtime_s, in.mtime_ns, in.block);
	hex(im->path.p, im->path.len);
	if (S_ISLNK(in.mode)) {
		const uint8_t *p;
		size_t len;

		bad = er_block(&im->e, &in, 0, &p, &len);
		if (bad)
			return bad;
		hex(p, len);
	} else {
		hex("", 0);
	}
	uint64_t at = (uint64_t)in.block * 4096;
	if (S_ISREG(in.mode) && in.size && in.block < im->data_block && at < im->e.len &&
	    in.size <= im->e.len - at)
		hex(im->e.p + at, in.size);
	else
		hex("", 0);
	putchar('\n');
	return S_ISDIR(in.mode) ? er_readdir(&im->e, &in, show_dirent, im) : NULL;
}

int main(int argc, char **argv)
{
	struct manifest m;
	struct err err = { 0 };
	struct image im = { 0 };

	if (argc != 3)
		return 2;
	struct span map = load(argv[1]), meta = load(argv[2]);
	if (manifest_open(&m, map, &err) < 0) {
		(void)fprintf(stderr, "manifest: %s\n", err.text);
		return 1;
	}
	printf("H %u %u %u %" PRIu64 " %" PRIu64 "\n", m.count, m.n_projects, m.n_rules,
	       m.data_block, m.image_blocks);
	for (uint32_t i = 1; i < m.count; i++) {
		AUTO_BUF struct buf path = { 0 };
		struct manifest_entry e, project;
		struct manifest_project p;

		manifest_get(&m, i, &e);
		manifest_project(&m, e.project, &p);
		manifest_get(&m, p.entry, &project);
		if (buf_put(&path, project.name.p, project.name.len) < 0 ||
		    (i != p.entry && buf_put(&path, "/", 1) < 0) || manifest_path(&m, i, &path) < 0)
			return 2;
		printf("M %u %u %u %u %o %" PRIu64 " %" PRId64 " %" PRIu64 " %u", i, e.kind,
		       e.flags, e.why, e.mode, e.size, e.mtime_ns, e.block, e.same_as);
		hex(path.p, path.len);
		hex(e.link.p, e.link.len);
		putchar('\n');
	}
	for (uint32_t i = 0; i < m.n_rules; i++) {
		struct manifest_rules r;

		manifest_rules(&m, i, &r);
		printf("R %u %u", r.dir, r.source);
		hex(r.text.p, r.text.len);
		putchar('\n');
	}
	im.data_block = m.data_block;
	const char *bad = er_open(&im.e, meta.p, meta.len);
	if (!bad)
		bad = show(&im, im.e.root_nid);
	if (bad) {
		(void)fprintf(stderr, "image: %s\n", bad);
		return 1;
	}
	return 0;
}
