/* SPDX-License-Identifier: Apache-2.0 */
#include "disk/store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "disk/disk.h"
#include "manifest/manifest.h"

enum {
	BLOCK = 4096,
	OPEN_FILES = 64,
	CLONE_MIN = 64 * 1024, /* below, a copy is cheaper than a clone */
	COPY_BUFFER = 256 * 1024,
	MANIFEST_BYTES_MAX = 1 << 30,
};

enum state { LIVE, FROZEN, CHANGED_UNTOLD, CHANGED };

struct open_file {
	uint32_t entry;
	int fd; /* -1: free */
	uint64_t used;
};

struct store {
	const int *workspaces;
	size_t n_workspaces;
	int cache, meta;
	uint64_t size;
	bool moved_ok;

	void *map;
	size_t map_len;
	struct manifest m;
	uint32_t *order; /* files with data, by block */
	size_t n_order;
	uint8_t *state; /* by entry */
	uint32_t n_frozen, n_changed, n_untold;
	uint32_t untold_from; /* no untold one below */
	uint64_t frozen_bytes, opens;

	struct open_file files[OPEN_FILES];
	uint64_t tick;
	bool no_noatime; /* not allowed here */
	struct buf path;

	size_t freeze_at;     /* index in order */
	uint64_t freeze_from; /* offset in that file */
	bool no_clone, no_copy_range;
	uint8_t *copy; /* COPY_BUFFER */
};

struct store *store_new(const int *workspaces, size_t n_workspaces, int cache, uint64_t size)
{
	struct store *s = xcalloc(1, sizeof(*s));

	s->workspaces = workspaces;
	s->n_workspaces = n_workspaces;
	s->cache = cache;
	s->size = size;
	s->meta = -1;
	for (size_t i = 0; i < OPEN_FILES; i++)
		s->files[i].fd = -1;
	return s;
}

void store_free(struct store *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < OPEN_FILES; i++)
		auto_close_(&s->files[i].fd);
	auto_close_(&s->meta);
	if (s->map)
		(void)munmap(s->map, s->map_len); /* ours, whole */
	free(s->order);
	free(s->state);
	free(s->copy);
	buf_fini(&s->path);
	free(s);
}

bool store_is_open(const struct store *s)
{
	return s->state != NULL;
}

void store_allow_moved(struct store *s)
{
	s->moved_ok = true;
}

/* The directories are those that were scanned, each. */
static int check_projects(const struct store *s, const struct manifest *m, struct err *err)
{
	if (m->n_projects != s->n_workspaces)
		return err_set(err, -ESTALE, "%zu workspaces for a manifest of %u", s->n_workspaces,
		               m->n_projects);
	for (uint32_t i = 0; i < m->n_projects && !s->moved_ok; i++) {
		struct manifest_project p;
		struct stat st;

		manifest_project(m, i, &p);
		if (fstat(s->workspaces[i], &st) < 0)
			return err_errno(err, "cannot look at workspace %u", i);
		if (st.st_dev != p.dev || st.st_ino != p.ino)
			return err_set(err, -ESTALE,
			               "workspace %u is not the directory that was scanned", i);
	}
	return 0;
}

int store_open(struct store *s, int manifest, int meta, struct err *err)
{
	struct manifest m;
	uint32_t *order = NULL;
	size_t n = 0;
	struct stat st;
	int r;

	if (store_is_open(s))
		return err_set(err, -EALREADY, "the disk has its image already");
	if (fstat(manifest, &st) < 0)
		return err_errno(err, "cannot look at the manifest");
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > MANIFEST_BYTES_MAX)
		return err_set(err, -EPROTO, "the manifest is no file, or of no good size");
	void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, manifest, 0);
	if (map == MAP_FAILED)
		return err_errno(err, "cannot map the manifest");
	r = manifest_open(&m, span_of(map, (size_t)st.st_size), err);
	if (r == 0 && (m.image_blocks > s->size / BLOCK || m.data_block > m.image_blocks))
		r = err_set(err, -EFBIG, "the image is larger than the disk");
	if (r == 0)
		r = check_projects(s, &m, err);
	if (r == 0) {
		r = manifest_order(&m, &order, &n);
		if (r < 0)
			(void)err_code(err, r, "cannot sort the manifest");
	}
	/* sparse, so that what was frozen never ends early */
	if (r == 0 && ftruncate(s->cache, (off_t)(m.image_blocks * BLOCK)) < 0)
		r = err_errno(err, "cannot set the size of the cache");
	if (r == 0) {
		s->state = calloc(m.count, 1);
		s->copy = malloc(COPY_BUFFER);
		if (!s->state || !s->copy)
			r = err_set(err, -ENOMEM, "no memory for %u files", m.count);
	}
	if (r < 0) {
		(void)munmap(map, (size_t)st.st_size); /* ours, whole */
		free(order);
		free(s->state);
		free(s->copy);
		s->state = NULL;
		s->copy = NULL;
		return r;
	}
	s->map = map;
	s->map_len = (size_t)st.st_size;
	s->m = m;
	s->order = order;
	s->n_order = n;
	s->meta = meta;
	(void)close(manifest); /* the mapping stays */
	return 0;
}

/* ---- files of the workspace ---- */

static void file_drop(struct store *s, uint32_t entry)
{
	for (size_t i = 0; i < OPEN_FILES; i++) {
		if (s->files[i].fd >= 0 && s->files[i].entry == entry) {
			(void)close(s->files[i].fd); /* only read */
			s->files[i].fd = -1;
		}
	}
}

static int mark_changed(struct store *s, uint32_t entry)
{
	ASSERT(s->state[entry] == LIVE);
	s->state[entry] = CHANGED_UNTOLD;
	s->n_changed++;
	s->n_untold++;
	s->untold_from = MIN(s->untold_from, entry);
	file_drop(s, entry);
	return -ESTALE;
}

/* Errors of open() that say: this is not the file that was scanned. */
static bool is_gone(int r)
{
	switch (-r) {
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case EXDEV:
	case ENXIO:
	case ENODEV:
		return true;
	default:
		return false;
	}
}

/* Return: a descriptor that the table keeps, or -errno; gone files are marked. */
static int file_open(struct store *s, uint32_t entry, const struct manifest_entry *e)
{
	struct open_file *slot = &s->files[0];
	int fd, r;

	for (size_t i = 0; i < OPEN_FILES; i++) {
		struct open_file *f = &s->files[i];

		if (f->fd >= 0 && f->entry == entry) {
			f->used = ++s->tick;
			return f->fd;
		}
		if (slot->fd >= 0 && (f->fd < 0 || f->used < slot->used))
			slot = f;
	}
	s->path.len = 0;
	r = manifest_path(&s->m, entry, &s->path);
	if (r < 0)
		return r;
	struct span path = span_of(s->path.p, s->path.len);
	int dir = s->workspaces[e->project];
	int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
	s->opens++;
	fd = s->no_noatime ? -EPERM : path_open(dir, path, flags | O_NOATIME, 0);
	if (fd == -EPERM) { /* somebody else's file: reading marks it as read */
		s->no_noatime = true;
		fd = path_open(dir, path, flags, 0);
	}
	if (fd < 0)
		return is_gone(fd) ? mark_changed(s, entry) : fd;
	auto_close_(&slot->fd);
	*slot = (struct open_file){ .entry = entry, .fd = fd, .used = ++s->tick };
	return fd;
}

static int64_t ns_of(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* Is @fd still what the manifest says? 0, -ESTALE (marked), or -errno. */
static int file_check(struct store *s, uint32_t entry, const struct manifest_entry *e, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode) && (uint64_t)st.st_size == e->size && st.st_ino == e->ino &&
	    st.st_dev == e->dev && ns_of(&st.st_mtim) == e->mtime_ns &&
	    ns_of(&st.st_ctim) == e->ctime_ns)
		return 0;
	return mark_changed(s, entry);
}

static int live_read(struct store *s, uint32_t entry, const struct manifest_entry *e,
                     uint64_t offset, void *buf, size_t len)
{
	int fd = file_open(s, entry, e);
	int r = fd < 0 ? fd : file_check(s, entry, e, fd);

	if (r < 0)
		return r;
	int got = fd_pread_exact(fd, buf, len, (off_t)offset);
	r = file_check(s, entry, e, fd);
	return r < 0 ? r : got == -ENODATA ? -EIO : got;
}

/* Bytes of file @entry (the first name of its inode), all within its size. */
static int file_read(struct store *s, uint32_t entry, const struct manifest_entry *e,
                     uint64_t offset, void *buf, size_t len)
{
	switch ((enum state)s->state[entry]) {
	case LIVE:
		return live_read(s, entry, e, offset, buf, len);
	case FROZEN: {
		int r = fd_pread_exact(s->cache, buf, len, (off_t)(e->block * BLOCK + offset));
		return r == -ENODATA ? -EIO : r;
	}
	case CHANGED_UNTOLD:
	case CHANGED:
		break;
	}
	return -ESTALE;
}

/* ---- the disk ---- */

/* The metadata file may end before its last block does. */
static int meta_read(const struct store *s, uint64_t offset, uint8_t *buf, size_t len)
{
	while (len) {
		ssize_t n = pread(s->meta, buf, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) {
			memset(buf, 0, len);
			return 0;
		}
		buf += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int store_read(struct store *s, uint64_t offset, void *buf, size_t len)
{
	uint64_t meta_end = s->m.data_block * BLOCK, end = s->m.image_blocks * BLOCK;
	uint8_t *p = buf;

	ASSERT(store_is_open(s) && offset <= s->size && len <= s->size - offset);
	while (len) {
		size_t n = len, data = 0;
		int r = 0;

		if (offset < meta_end) {
			n = data = (size_t)MIN(len, meta_end - offset);
			r = meta_read(s, offset, p, n);
		} else if (offset < end && s->n_frozen == s->n_order) {
			n = data = (size_t)MIN(len, end - offset); /* one read for many files */
			r = fd_pread_exact(s->cache, p, n, (off_t)offset);
		} else if (offset < end) {
			uint32_t i = manifest_file_at(&s->m, s->order, s->n_order, offset / BLOCK);
			struct manifest_entry e;

			n = MIN(len, BLOCK - (size_t)(offset % BLOCK));
			if (i != MANIFEST_NONE) {
				manifest_get(&s->m, i, &e);
				uint64_t at = offset - e.block * BLOCK;

				n = (size_t)MIN(len, align_up(e.size, BLOCK) - at);
				data = at < e.size ? (size_t)MIN(n, e.size - at) : 0;
				r = data ? file_read(s, i, &e, at, p, data) : 0;
			}
		}
		if (r < 0)
			return r;
		memset(p + data, 0, n - data);
		p += n;
		len -= n;
		offset += n;
	}
	return 0;
}

ssize_t store_read_entry(struct store *s, uint32_t entry, uint64_t offset, void *buf, size_t len)
{
	struct manifest_entry e;
	int r;

	if (!store_is_open(s))
		return -EAGAIN;
	if (entry >= s->m.count)
		return -EINVAL;
	manifest_get(&s->m, entry, &e);
	if (e.kind != MANIFEST_FILE || e.flags & MANIFEST_ABSENT)
		return -EINVAL;
	if (e.same_as != entry) { /* another name: the data is counted with the first */
		entry = e.same_as;
		manifest_get(&s->m, entry, &e);
	}
	if (offset >= e.size)
		return 0;
	if (e.block == 0)
		return -EINVAL;
	len = (size_t)MIN(len, e.size - offset);
	if (e.flags & MANIFEST_GENERATED)
		r = meta_read(s, e.block * BLOCK + offset, buf, len);
	else
		r = file_read(s, entry, &e, offset, buf, len);
	return r < 0 ? r : (ssize_t)len;
}

uint32_t store_next_changed(struct store *s)
{
	if (s->n_untold == 0)
		return MANIFEST_NONE;
	for (uint32_t i = s->untold_from; i < s->m.count; i++) {
		if (s->state[i] == CHANGED_UNTOLD) {
			s->state[i] = CHANGED;
			s->n_untold--;
			s->untold_from = i + 1;
			return i;
		}
	}
	ASSERT(!"n_untold counts them");
	return MANIFEST_NONE;
}

void store_stats(const struct store *s, struct disk_stats *out)
{
	out->files = (uint32_t)s->n_order;
	out->frozen = s->n_frozen;
	out->changed = s->n_changed;
	out->frozen_bytes = s->frozen_bytes;
	out->workspace_opens = s->opens;
}

/* ---- freezing ---- */

/* Errors of a copying call that say: this file system pair does not do that. */
static bool not_supported(int e)
{
	return e == EXDEV || e == EINVAL || e == EOPNOTSUPP || e == ENOSYS || e == ENOTTY ||
	       e == EPERM || e == EACCES || e == ETXTBSY || e == EBADF;
}

enum { COPY_SOURCE_ERROR = 1 }; /* the file cannot be read; the cache is good */

/*
 * Copy bytes of @fd at @from to the cache at @to. Return: 0 with *done > 0,
 * COPY_SOURCE_ERROR, or -errno of the cache.
 */
static int copy_some(struct store *s, int fd, uint64_t from, uint64_t to, uint64_t len,
                     uint64_t *done)
{
	ssize_t n;

	if (!s->no_clone && from == 0 && len >= CLONE_MIN) {
		struct file_clone_range c = { .src_fd = fd,
			                      .src_length = len & ~(uint64_t)(BLOCK - 1),
			                      .dest_offset = to };

		if (ioctl(s->cache, FICLONERANGE, &c) == 0) {
			*done = c.src_length;
			return 0;
		}
		if (!not_supported(errno))
			return errno == EIO ? COPY_SOURCE_ERROR : -errno;
		s->no_clone = true;
	}
	if (len >= CLONE_MIN) { /* a hole stays one */
		off_t data = lseek(fd, (off_t)from, SEEK_DATA);

		if (data < 0 && errno == ENXIO)
			data = (off_t)(from + len);
		if (data > (off_t)from) {
			*done = MIN((uint64_t)data - from, len);
			return 0;
		}
		off_t hole = lseek(fd, (off_t)from, SEEK_HOLE);
		if (hole > (off_t)from)
			len = MIN(len, (uint64_t)hole - from);
	}
	len = MIN(len, STORE_STEP_BYTES);
	if (!s->no_copy_range) {
		off_t in = (off_t)from, out = (off_t)to;

		n = copy_file_range(fd, &in, s->cache, &out, (size_t)len, 0);
		if (n > 0) {
			*done = (uint64_t)n;
			return 0;
		}
		if (n < 0 && errno != EIO) {
			if (!not_supported(errno))
				return -errno;
			s->no_copy_range = true;
		}
	}
	do {
		n = pread(fd, s->copy, (size_t)MIN(len, COPY_BUFFER), (off_t)from);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return COPY_SOURCE_ERROR;
	*done = (uint64_t)n;
	return fd_pwrite_all(s->cache, s->copy, (size_t)n, (off_t)to);
}

static bool below_reserve(const struct store *s)
{
	struct statfs f;

	if (fstatfs(s->cache, &f) < 0 || f.f_blocks == 0)
		return false; /* then the write will say it */
	return (uint64_t)f.f_bavail < f.f_blocks / 100 * STORE_RESERVE_PERCENT + 1 ||
	       (uint64_t)f.f_bavail * (uint64_t)f.f_bsize < 2 * STORE_STEP_BYTES;
}

/* Give back what was copied of a file that will not be frozen. */
static void cache_forget(const struct store *s, const struct manifest_entry *e)
{
	/* a file system without holes keeps it: it is never read */
	(void)fallocate(s->cache, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	                (off_t)(e->block * BLOCK), (off_t)align_up(e->size, BLOCK));
}

/* One part of one file. Return: 0 with *done bytes (the file is through when freeze_from is 0). */
static int freeze_file(struct store *s, uint64_t *done)
{
	uint32_t entry = s->order[s->freeze_at];
	struct manifest_entry e;
	int r = 0;

	*done = 0;
	if (s->state[entry] != LIVE) {
		s->freeze_at++;
		s->freeze_from = 0;
		return 0;
	}
	manifest_get(&s->m, entry, &e);
	int fd = file_open(s, entry, &e);
	if (fd >= 0)
		r = file_check(s, entry, &e, fd);
	if (fd >= 0 && r == 0) {
		r = copy_some(s, fd, s->freeze_from, e.block * BLOCK + s->freeze_from,
		              e.size - s->freeze_from, done);
		int c = file_check(s, entry, &e, fd); /* may close fd */
		if (r < 0) {
			cache_forget(s, &e);
			return r;
		}
		if (c < 0)
			r = COPY_SOURCE_ERROR;
	}
	s->freeze_from += *done;
	if (fd < 0 || r != 0 || s->state[entry] != LIVE) { /* not readable now, or changed */
		if (s->freeze_from)
			cache_forget(s, &e);
	} else if (s->freeze_from < e.size) {
		return 0;
	} else {
		s->state[entry] = FROZEN;
		s->n_frozen++;
		s->frozen_bytes += e.size;
		file_drop(s, entry);
	}
	s->freeze_at++;
	s->freeze_from = 0;
	return 0;
}

int store_freeze_step(struct store *s)
{
	uint64_t bytes = 0, done;

	ASSERT(store_is_open(s));
	if (s->freeze_at < s->n_order && below_reserve(s))
		return -ENOSPC;
	for (int files = 0; files < STORE_STEP_FILES && bytes < STORE_STEP_BYTES; files++) {
		if (s->freeze_at == s->n_order)
			return 0;
		int r = freeze_file(s, &done);
		if (r < 0)
			return r;
		bytes += done;
	}
	return s->freeze_at < s->n_order;
}
