/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.c - empty ext4 disks.
 *
 * mkfs.ext4 runs once a size; its sparse result is kept as scratch-SIZE.img and
 * copied extent by extent (or cloned), which takes a few milliseconds. mkfs
 * writes what we asked for and reads nothing from outside, so it needs no cage.
 */
#include "image/image_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/span.h"

enum { MIB = 1024 * 1024, MKFS_MS = 120 * 1000 };

static int run_mkfs(const char *path, struct err *err)
{
	static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL };
	const char *const argv[] = { "mkfs.ext4",
		                     "-q",
		                     "-F",
		                     "-m0",
		                     "-b",
		                     "4096",
		                     "-L",
		                     "cloche-scratch",
		                     "-U",
		                     "6b0f2f4e-7a0c-4c35-9d1b-0c10c4e5c8a7",
		                     "-O",
		                     "^resize_inode,sparse_super2",
		                     "-E",
		                     "lazy_itable_init=1,lazy_journal_init=1,nodiscard,packed_meta_"
		                     "blocks=1,root_owner=0:0",
		                     path,
		                     NULL };
	AUTO_FREE char *program = NULL;
	struct proc_spec spec = { .argv = argv, .envp = env };
	struct proc p;
	int status = 0;

	if (proc_find_program("mkfs.ext4", &program) < 0)
		return image_no_program(err, "mkfs.ext4", "e2fsprogs");
	spec.path = program;
	int r = proc_spawn(&p, &spec, err);
	if (r < 0)
		return r;
	r = proc_wait(&p, MKFS_MS, &status);
	if (r < 0) {
		proc_end(&p, 0);
		return err_code(err, r, "mkfs.ext4 did not end");
	}
	if (status != 0)
		return err_set(err, -EIO, "mkfs.ext4 failed (status %d)",
		               proc_shell_status(status));
	return 0;
}

/* The template of @size, open for reading; made when missing. */
static int open_template(int cache, const char *cache_path, uint64_t size, int *out,
                         struct err *err)
{
	AUTO_FREE char *name = xasprintf("scratch-%llum.img", (unsigned long long)(size / MIB));
	uint32_t random;
	struct stat st;

	AUTO_CLOSE int fd = openat(cache, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == size) {
		*out = take_fd(&fd);
		return 0;
	}
	random_bytes(&random, sizeof(random));
	AUTO_FREE char *tmp = xasprintf(".new-scratch-%08x", random);
	AUTO_FREE char *path = xasprintf("%s/%s", cache_path, tmp);
	AUTO_CLOSE int made = openat(cache, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (made < 0 || ftruncate(made, (off_t)size) < 0) {
		(void)err_errno(err, "cannot create a scratch disk in the image cache");
		(void)unlinkat(cache, tmp, 0); /* may not be there */
		return err ? err->code : -EIO;
	}
	int r = run_mkfs(path, err);
	if (r == 0 && (fsync(made) < 0 || renameat(cache, tmp, cache, name) < 0))
		r = err_errno(err, "cannot keep the scratch disk");
	if (r < 0) {
		(void)unlinkat(cache, tmp, 0); /* the first error counts */
		return r;
	}
	*out = take_fd(&made);
	return 0;
}

int image_scratch_create(const struct image_opts *opts, int dirfd, const char *name, uint64_t size,
                         struct err *err)
{
	AUTO_CLOSE int cache = -1, template = -1;
	AUTO_FREE char *cache_path = NULL;

	if (!path_name_ok(span_str(name)))
		return err_set(err, -EINVAL, "not the name of a file");
	size -= size % MIB;
	if (size < IMAGE_SCRATCH_MIN || size > IMAGE_SCRATCH_MAX)
		return err_set(err, -EINVAL,
		               "the scratch disk's size is not between 64 MiB and 16 TiB");
	int r = image_cache_open(opts, &cache, &cache_path, err);
	if (r == 0)
		r = open_template(cache, cache_path, size, &template, err);
	if (r < 0)
		return r;
	AUTO_CLOSE int fd =
		openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_errno(err, "cannot create the scratch disk");
	r = fd_copy(template, fd, size);
	if (r == 0)
		r = fd_close(&fd);
	if (r < 0) {
		(void)unlinkat(dirfd, name, 0); /* the first error counts */
		return err_code(err, r, "cannot copy the scratch disk");
	}
	return 0;
}
