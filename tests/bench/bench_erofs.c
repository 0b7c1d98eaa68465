/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_erofs - CPU time of erofs_write() for a tree of the size and shape of a
 * kernel source (84,000 inodes, 16 names in a folder), from memory; minimum of 5.
 * Fails above the limit, which has room for a slow and busy machine.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "lib/erofs_tree.h"

enum { DIRS = 5200, FILES = 15, RUNS = 5, LIMIT_MS = 300 };

static double cpu_ms(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_SELF, &u); /* cannot fail for this who */
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

int main(void)
{
	const struct erofs_opts o = { .volume = "bench", .meta_block = 1 };
	struct erofs_result r = { 0 };
	double best = 1e9;
	char name[64];
	struct err err;
	struct et t;

	et_init(&t);
	for (uint32_t d = 1; d < DIRS; d++) { /* a folder has up to eight folders */
		uint32_t parent = t.n == 1 ? 0 : (d / 8) * (FILES + 1) + (d / 8 ? 1 : 0);

		while (!S_ISDIR(t.v[parent].in.mode))
			parent--;
		(void)snprintf(name, sizeof(name), "folder-%u", d);
		uint32_t dir = et_add(&t, parent, name, S_IFDIR | 0755);
		for (uint32_t f = 0; f < FILES; f++) {
			(void)snprintf(name, sizeof(name), "some-source-%u.c", f);
			uint32_t i = et_add(&t, dir, name, S_IFREG | 0644);
			t.v[i].in.size = 1 + (uint64_t)i * 7919 % 60000;
		}
	}
	et_sort(&t);
	struct erofs_source src = et_source(&t);
	for (int i = 0; i < RUNS; i++) {
		AUTO_CLOSE int fd = fd_memfd("image");
		double before = cpu_ms();

		if (erofs_write(fd, &src, &o, &r, &err) < 0) {
			(void)fprintf(stderr, "%s\n", err.text);
			return 1;
		}
		best = MIN(best, cpu_ms() - before);
	}
	printf("erofs_write: %llu inodes, %.1f ms CPU, %.1f bytes of metadata an inode\n",
	       (unsigned long long)r.inodes, best,
	       (double)r.meta_blocks * EROFS_BLOCK_BYTES / (double)r.inodes);
	et_fini(&t);
	return best <= LIMIT_MS ? 0 : 1;
}
