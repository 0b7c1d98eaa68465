/* SPDX-License-Identifier: Apache-2.0 */
/*
 * erofs_gen SEED IMAGE LIST - an image of the random tree SEED with its data,
 * and one line for each name in it, for erofs_oracle.py to compare with what
 * others read. Block k of inode i holds (i, k) as two numbers, repeated.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "lib/erofs_tree.h"

static void put_hex(FILE *f, struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		(void)fprintf(f, "%02x", s.p[i]);
}

/* path, inode, mode, uid, gid, size, mtime, links, device, link text, attributes */
static void list(FILE *f, const struct et *t, uint32_t dir, const struct buf *path)
{
	for (uint32_t k = 0; k < t->v[dir].n_names; k++) {
		const struct et_name *n = &t->v[dir].names[k];
		const struct et_inode *m = &t->v[n->inode];
		AUTO_BUF struct buf p = { 0 };

		ASSERT(buf_put(&p, path->p, path->len) == 0 && buf_put(&p, "/", 1) == 0 &&
		       buf_put(&p, n->name, n->len) == 0);
		put_hex(f, span_of(p.p, p.len));
		(void)fprintf(f, " %u %u %u %u %llu %lld %u %u %u ", n->inode, m->in.mode,
		              m->in.uid, m->in.gid,
		              S_ISREG(m->in.mode) ? (unsigned long long)m->in.size : 0,
		              (long long)m->in.mtime_s, m->in.mtime_ns,
		              S_ISDIR(m->in.mode) ? 0 : m->refs, m->in.rdev);
		(void)fputs(m->in.link.len ? "" : "-", f);
		put_hex(f, m->in.link);
		for (uint32_t x = 0; x < m->in.n_xattrs; x++) {
			(void)fputc(' ', f);
			put_hex(f, m->xattrs[x].name);
			(void)fputc('=', f);
			put_hex(f, m->xattrs[x].value);
		}
		(void)fputc('\n', f);
		list(f, t, n->inode, &p);
	}
}

static int put_data(int fd, const struct et *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		const struct et_inode *m = &t->v[i];
		uint64_t at = m->in.is_placed ? m->in.block_at : m->block;
		uint64_t n = (m->in.size + EROFS_BLOCK_BYTES - 1) / EROFS_BLOCK_BYTES;

		if (!S_ISREG(m->in.mode) || !at)
			continue;
		for (uint64_t k = 0; k < n; k++) {
			uint32_t b[EROFS_BLOCK_BYTES / 4];

			for (size_t j = 0; j < ARRAY_LEN(b); j += 2) {
				b[j] = i;
				b[j + 1] = (uint32_t)k;
			}
			int r = fd_pwrite_all(fd, b, sizeof(b), (off_t)((at + k) * sizeof(b)));
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct erofs_opts o = { .volume = "oracle", .meta_block = 1, .build_time_s = 1 };
	struct erofs_result r;
	struct buf root = { 0 };
	struct err err;
	struct et t;

	if (argc != 4) {
		(void)fprintf(stderr, "usage: erofs_gen SEED IMAGE LIST\n");
		return 2;
	}
	struct et_rng rng = { .seeded = true, .state = strtoull(argv[1], NULL, 10) };
	o.uuid[0] = (uint8_t)rng.state;
	o.uuid[1] = (uint8_t)(rng.state >> 8);
	et_init(&t);
	et_random(&t, &rng, 2 + et_pick(&rng, et_pick(&rng, 4) ? 300 : 5000), 64 * 1024);
	if (et_pick(&rng, 2)) { /* data first, as an image made from a tar stream */
		for (uint32_t i = 1; i < t.n; i++) {
			if (!S_ISREG(t.v[i].in.mode) || !t.v[i].in.size || et_pick(&rng, 2))
				continue;
			t.v[i].in.is_placed = true;
			t.v[i].in.block_at = o.meta_block;
			o.meta_block +=
				(t.v[i].in.size + EROFS_BLOCK_BYTES - 1) / EROFS_BLOCK_BYTES;
		}
	}
	int fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	FILE *f = fopen(argv[3], "w");
	struct erofs_source src = et_source(&t);
	if (fd < 0 || !f || erofs_write(fd, &src, &o, &r, &err) < 0 || put_data(fd, &t) < 0 ||
	    ftruncate(fd, (off_t)(r.image_blocks * EROFS_BLOCK_BYTES)) < 0) {
		(void)fprintf(stderr, "erofs_gen: %s\n", err.text);
		return 1;
	}
	list(f, &t, 0, &root);
	et_fini(&t);
	return fclose(f) == 0 && close(fd) == 0 ? 0 : 1;
}
