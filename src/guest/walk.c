/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the overlay left in the upper of /work, as a change stream.
 *
 * The upper is read, never the merged view: cost follows the change. Nobody
 * runs while this does, so both phases see the same tree and an ordinal names
 * the same file in both. Folders are walked by descriptor, so depth is bounded
 * by our limit and not by the length of a path string.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/vis.h"
#include "guest/guest.h"
#include "wire/change.h"

enum { READ_BYTES = 256 * 1024, OUT_BYTES = 128 * 1024 };

struct walker {
	const struct walk_spec *spec;
	struct err *err;
	size_t want_i; /* range of spec->want that comes next */
	size_t out_n;
	struct change_walk check;
	uint8_t read[READ_BYTES];
	uint8_t out[OUT_BYTES + CHANGE_RECORD_MAX];
	uint8_t zero[READ_BYTES];
};

static int flush(struct walker *w)
{
	int r = fd_write_all(w->spec->out, w->out, w->out_n);

	w->out_n = 0;
	return r < 0 ? err_code(w->err, r, "cannot hand the changes on") : 0;
}

static int put(struct walker *w, const struct change_record *r)
{
	size_t n = change_put(w->out + w->out_n, sizeof(w->out) - w->out_n, r);

	if (n == 0)
		return err_set(w->err, -EINVAL, "a record of type %u cannot be said", r->type);
	w->out_n += n;
	return w->out_n >= OUT_BYTES ? flush(w) : 0;
}

static int failed(struct walker *w, int code, const char *what, const char *name)
{
	char seen[300];

	return err_code(w->err, code, "cannot %s '%s'", what,
	                vis_str(seen, sizeof(seen), span_str(name)));
}

/* Count a record of the index, and send it in phase 1. */
static int take(struct walker *w, const struct change_record *r)
{
	int e = change_walk_take(&w->check, r);

	if (e == -EFBIG && w->check.count >= w->check.records_max)
		return err_set(w->err, e, "more than %u changed names", w->check.records_max);
	if (e == -EFBIG)
		return err_set(w->err, e, "more than %llu bytes in changed files",
		               (unsigned long long)w->check.bytes_max);
	if (e == -ENAMETOOLONG)
		return err_set(w->err, e,
		               "folders nested deeper than %d, or a path beyond %d bytes",
		               CHANGE_DEPTH_MAX, CHANGE_PATH_MAX);
	if (e < 0)
		return err_code(w->err, e, "the changes are no tree");
	return w->spec->blobs ? 0 : put(w, r);
}

typedef int (*piece_fn)(struct walker *w, void *arg, uint64_t at, const uint8_t *p, size_t n);

/* All pieces of data of a file, ascending; what lies between is a hole. */
static int read_pieces(struct walker *w, int fd, uint64_t size, const char *name, piece_fn fn,
                       void *arg)
{
	uint64_t at = 0;

	while (at < size) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			return 0; /* a hole up to the end */
		if (data < 0)
			return failed(w, -errno, "read", name);
		off_t hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			return failed(w, -errno, "read", name);
		uint64_t end = MIN((uint64_t)hole, size);
		for (at = (uint64_t)data; at < end;) {
			ssize_t n = pread(fd, w->read, (size_t)MIN(end - at, (uint64_t)READ_BYTES),
			                  (off_t)at);
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				return failed(w, n < 0 ? -errno : -EIO, "read", name);
			int r = fn(w, arg, at, w->read, (size_t)n);
			if (r < 0)
				return r;
			at += (uint64_t)n;
		}
	}
	return 0;
}

struct hashing {
	struct hash_state st;
	uint64_t at;
};

static void hash_hole(struct walker *w, struct hashing *h, uint64_t to)
{
	while (h->at < to) {
		size_t n = (size_t)MIN(to - h->at, (uint64_t)sizeof(w->zero));
		hash_update(&h->st, w->zero, n);
		h->at += n;
	}
}

static int hash_piece(struct walker *w, void *arg, uint64_t at, const uint8_t *p, size_t n)
{
	struct hashing *h = arg;

	hash_hole(w, h, at);
	hash_update(&h->st, p, n);
	h->at = at + n;
	return 0;
}

static int send_piece(struct walker *w, void *arg UNUSED, uint64_t at, const uint8_t *p, size_t n)
{
	while (n > 0) {
		size_t k = MIN(n, (size_t)CHANGE_EXTENT_MAX);
		struct change_record r = { .type = CHANGE_EXTENT,
			                   .offset = at,
			                   .bytes = span_of(p, k) };
		int e = put(w, &r);
		if (e < 0)
			return e;
		p += k;
		at += k;
		n -= k;
	}
	return 0;
}

/* Is record @ordinal wanted? Ordinals are asked for in ascending order. */
static bool wanted(struct walker *w, uint32_t ordinal)
{
	while (w->want_i < w->spec->n_want) {
		const struct msg_range *r = &w->spec->want[w->want_i];
		if (ordinal < r->first)
			return false;
		if (ordinal - r->first < r->count)
			return true;
		w->want_i++;
	}
	return false;
}

static int walk_file(struct walker *w, int dir, const char *name, struct change_record *r)
{
	uint32_t ordinal = w->check.count;
	bool send = w->spec->blobs && wanted(w, ordinal);
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int e;

	if (!w->spec->blobs || send) {
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME | O_NONBLOCK);
		if (fd < 0 || fstat(fd, &st) < 0)
			return failed(w, -errno, "open", name);
		r->size = (uint64_t)st.st_size;
	}
	if (!w->spec->blobs) {
		struct hashing h = { .at = 0 };
		hash_init(&h.st);
		e = read_pieces(w, fd, r->size, name, hash_piece, &h);
		if (e < 0)
			return e;
		hash_hole(w, &h, r->size);
		hash_final(&h.st, &r->hash);
	}
	e = take(w, r);
	if (e < 0 || !send)
		return e;
	struct change_record b = { .type = CHANGE_BLOB, .ordinal = ordinal, .size = r->size };
	e = put(w, &b);
	if (e == 0)
		e = read_pieces(w, fd, r->size, name, send_piece, NULL);
	b.type = CHANGE_BLOB_END;
	return e < 0 ? e : put(w, &b);
}

static int walk_link(struct walker *w, int dir, const char *name, struct change_record *r)
{
	char text[CHANGE_LINK_MAX + 1];
	ssize_t n = readlinkat(dir, name, text, sizeof(text));

	if (n < 0)
		return failed(w, -errno, "read the link", name);
	r->bytes = span_of(text, (size_t)n);
	return take(w, r);
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b); /* of unsigned bytes, C17 7.24.4.2 */
}

static int list(int fd, char ***out, size_t *out_n)
{
	size_t n = 0, cap = 0;
	char **v = NULL;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), r = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);

	if (!d)
		return -errno;
	for (;;) {
		errno = 0;
		struct dirent *e = readdir(d);
		if (!e) {
			r = -errno;
			break;
		}
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 64;
			v = xrealloc(v, cap * sizeof(*v)); /* a child: its death is reported */
		}
		v[n++] = xstrdup(e->d_name);
	}
	(void)closedir(d);
	qsort(v, n, sizeof(*v), by_bytes);
	*out = v;
	*out_n = n;
	return r;
}

static bool is_opaque(int fd)
{
	char v[4];

	return fgetxattr(fd, "trusted.overlay.opaque", v, sizeof(v)) == 1 && v[0] == 'y';
}

static int walk_dir(struct walker *w, int fd);

static int walk_entry(struct walker *w, int dir, const char *name)
{
	struct change_record r = { .name = span_str(name) };
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(w, -errno, "look at", name);
	r.mode = st.st_mode & 07777;
	r.mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		r.type = CHANGE_FILE;
		r.size = (uint64_t)st.st_size;
		if (st.st_nlink > 1)
			r.flags = CHANGE_HARDLINK;
		return walk_file(w, dir, name, &r);
	case S_IFLNK:
		r.type = CHANGE_LINK;
		return walk_link(w, dir, name, &r);
	case S_IFDIR: {
		AUTO_CLOSE int fd = openat(
			dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME);
		if (fd < 0)
			return failed(w, -errno, "open", name);
		r.type = CHANGE_DIR;
		r.flags = is_opaque(fd) ? CHANGE_OPAQUE : 0;
		int e = take(w, &r);
		if (e == 0)
			e = walk_dir(w, fd);
		r = (struct change_record){ .type = CHANGE_UP };
		return e < 0 ? e : take(w, &r);
	}
	default:
		if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0)) {
			r.type =
				CHANGE_WHITEOUT; /* first: whiteouts are hard links of each other */
		} else {
			r.type = CHANGE_SPECIAL;
			r.mode = st.st_mode;
		}
		return take(w, &r);
	}
}

static int walk_dir(struct walker *w, int fd)
{
	char **names = NULL;
	size_t n = 0;
	int r = list(fd, &names, &n);

	if (r < 0)
		r = err_code(w->err, r, "cannot list a folder");
	for (size_t i = 0; i < n; i++) {
		if (r == 0)
			r = walk_entry(w, fd, names[i]);
		free(names[i]);
	}
	free(names);
	return r;
}

/* Every ordinal asked for must have been a file. */
static int check_wants(struct walker *w, uint32_t count)
{
	if (w->spec->n_want == 0)
		return 0;
	const struct msg_range *last = &w->spec->want[w->spec->n_want - 1];
	if ((uint64_t)last->first + last->count > count)
		return err_set(w->err, -EINVAL, "there are only %u records", count);
	return 0;
}

int walk_run(const struct walk_spec *s, struct err *err)
{
	AUTO_FREE struct walker *w = calloc(1, sizeof(*w));
	struct change_record end = { .type = CHANGE_END };

	if (!w)
		return err_set(err, -ENOMEM, "no memory for the walk");
	w->spec = s;
	w->err = err;
	change_walk_init(&w->check, s->records_max, s->bytes_max);
	int r = walk_dir(w, s->root);
	if (r < 0)
		return r;
	end.ordinal = w->check.count;
	if (s->blobs) {
		r = check_wants(w, w->check.count);
		end.type = CHANGE_BLOBS_END;
	}
	if (r == 0)
		r = put(w, &end);
	return r < 0 ? r : flush(w);
}
