/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_image_tar.c - an archive from outside, merged and written as an image.
 *
 * Properties: the image reads back, by a reader that shares no line with the
 * writer, as exactly the tree that the merge built (names, metadata, links,
 * xattrs, where the data lies, and the data itself is inside); no name is "..",
 * empty or has a '/'; nothing is deeper than the limit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "erofs/erofs.h"
#include "image/worker.h"
#include "lib/erofs_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IMAGE_MAX = 16 * 1024 * 1024 };

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void same_text(const struct er *e, const struct er_inode *in, struct span want)
{
	size_t done = 0;

	must(in->size == want.len);
	for (uint64_t k = 0; done < want.len; k++) {
		const uint8_t *p;
		size_t n;
		must(er_block(e, in, k, &p, &n) == NULL);
		n = MIN(n, want.len - done);
		must(memcmp(p, want.p + done, n) == 0);
		done += n;
	}
}

static void same_xattrs(const struct er_inode *in, const struct erofs_inode *want)
{
	size_t pos = 0, n = 0;
	struct er_xattr x;

	while (in->xattrs && pos < in->xattrs_len) {
		must(er_xattr(in, &pos, &x) == NULL);
		if (!x.name)
			break;
		bool found = false;
		for (uint32_t i = 0; i < want->n_xattrs; i++) {
			struct span v = want->xattrs[i].value, name = want->xattrs[i].name;
			/* the prefix is a number in the image: compare what is behind it */
			found |= v.len == x.value_len && memcmp(v.p, x.value, v.len) == 0 &&
			         name.len >= x.name_len &&
			         memcmp(name.p + name.len - x.name_len, x.name, x.name_len) == 0;
		}
		must(found);
		n++;
	}
	must(n == want->n_xattrs);
}

static void same(const struct er *e, const struct erofs_source *s, uint32_t inode, uint64_t nid,
                 int depth)
{
	struct erofs_inode want;
	struct er_inode in;

	must(depth <= TREE_DEPTH_MAX);
	must(s->inode(s->arg, inode, &want) == 0);
	must(er_inode(e, nid, &in) == NULL);
	must(in.mode == want.mode && in.uid == want.uid && in.gid == want.gid);
	must(in.mtime_s == want.mtime_s && in.mtime_ns == want.mtime_ns);
	same_xattrs(&in, &want);
	if (S_ISLNK(want.mode))
		same_text(e, &in, want.link);
	if (S_ISREG(want.mode)) {
		must(in.size == want.size);
		if (want.size)
			must(in.block == want.block_at &&
			     want.block_at + (want.size + EROFS_BLOCK_BYTES - 1) /
			                             EROFS_BLOCK_BYTES <=
			             e->blocks);
	}
	if (!S_ISDIR(want.mode))
		return;
	for (uint32_t k = 0; k < want.n_dirents; k++) {
		struct erofs_dirent d;
		uint64_t child = 0;
		must(s->dirent(s->arg, inode, k, &d) == 0);
		must(path_name_ok(d.name));
		must(er_lookup(e, &in, d.name.p, d.name.len, &child) == NULL && child != 0);
		same(e, s, d.inode, child, depth + 1);
	}
}

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* A header whose sum is wrong ends the archive: put the sums right after each change. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	enum { BLOCK = 512, SUM_AT = 148, SUM_BYTES = 8, MAGIC_AT = 257 };

	size = LLVMFuzzerMutate(data, size, max);
	if (seed % 16 == 0)
		return size; /* wrong sums too, now and then */
	for (size_t at = 0; at + BLOCK <= size; at += BLOCK) {
		uint8_t *b = data + at;
		unsigned sum = 0;
		if (memcmp(b + MAGIC_AT, "ustar", 5) != 0)
			continue;
		memset(b + SUM_AT, ' ', SUM_BYTES);
		for (size_t i = 0; i < BLOCK; i++)
			sum += b[i];
		char text[SUM_BYTES];
		(void)snprintf(text, sizeof(text), "%06o", sum);
		memcpy(b + SUM_AT, text, 7);
	}
	return size;
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rootfs_opts o = { .limits = { .entries = 2000, .bytes = IMAGE_MAX / 2 },
		                 .deb_fd = -1 };
	struct erofs_opts eo = { .volume = "fuzz" };
	struct worker_report rep = { 0 };
	struct erofs_result res;
	struct erofs_source src;
	struct er e;

	struct tar *in = tar_open_mem(span_of(data, size));
	struct tree *t = tree_new(&o.limits);
	AUTO_CLOSE int fd = fd_memfd("image");
	o.out_fd = fd;
	must(in && t && fd >= 0);
	if (rootfs_merge(in, &o, t, &rep, &eo.meta_block, NULL) == 0) {
		must(tree_source(t, &src) == 0);
		must(erofs_write(fd, &src, &eo, &res, NULL) == 0);
		size_t len = (size_t)res.image_blocks * EROFS_BLOCK_BYTES;
		must(len <= 2 * IMAGE_MAX);
		struct stat st;
		must(fstat(fd, &st) == 0 && (size_t)st.st_size == len);
		void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
		must(p != MAP_FAILED);
		must(er_open(&e, p, len) == NULL);
		same(&e, &src, 0, e.root_nid, 0);
		(void)munmap(p, len); /* cannot fail */
	}
	tree_free(t);
	tar_free(in);
	return 0;
}
