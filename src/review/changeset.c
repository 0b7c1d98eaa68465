/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader. Everything is checked once at opening; afterwards the mapped
 * index can be parsed without asking again. Mappings are private and read
 * only; the folder is the user's own (0700), so a file does not shrink under
 * us unless the user does that.
 */
#include "review/changeset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "review/changeset_priv.h"

enum { BASE_ENTRY = 4 + HASH_BYTES, DROP_BYTES = 8 * 1024 * 1024 };

bool changeset_id_ok(const char *id)
{
	size_t n = strnlen(id, CHANGESET_ID_MAX + 1);

	if (n == 0 || n > CHANGESET_ID_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		char ch = id[i];
		bool alnum = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');
		if (!alnum && (i == 0 || !strchr("._-", ch)))
			return false;
	}
	return true;
}

void changeset_make_id(char dst[CHANGESET_ID_MAX + 1], const char *project_path)
{
	static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
	enum { NAME = 64, RANDOM = 6 };
	const char *end = project_path + strlen(project_path);
	uint8_t rnd[RANDOM];
	size_t n = 0;

	while (end > project_path && end[-1] == '/')
		end--;
	const char *name = end;
	while (name > project_path && name[-1] != '/')
		name--;
	for (; name < end && n < NAME; name++) {
		char ch = *name;
		if (ch >= 'A' && ch <= 'Z')
			ch = (char)(ch - 'A' + 'a');
		bool alnum = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');
		if (!alnum && !strchr("._-", ch))
			ch = '-';
		if (n || alnum)
			dst[n++] = ch;
	}
	if (n == 0) {
		memcpy(dst, "project", 7);
		n = 7;
	}
	dst[n++] = '-';
	random_bytes(rnd, sizeof(rnd));
	for (size_t i = 0; i < RANDOM; i++)
		dst[n++] = base32[rnd[i] & 31];
	dst[n] = '\0';
}

/* --- reading one --- */

/* Map a regular file of the set; an empty span when it is empty. 0 or -errno. */
static int map_file(int dir_fd, const char *name, struct span *out)
{
	AUTO_CLOSE int fd = path_open(dir_fd, span_str(name), O_RDONLY | O_NONBLOCK, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EPROTO;
	if (st.st_size == 0) {
		*out = (struct span){ 0 };
		return 0;
	}
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	*out = span_of(p, (size_t)st.st_size);
	return 0;
}

static void unmap(struct span *s)
{
	if (s->len)
		(void)munmap((void *)(uintptr_t)s->p, s->len); /* ours, so it cannot fail */
	*s = (struct span){ 0 };
}

int changeset_check_index(struct span index, uint32_t *out_records)
{
	struct change_walk *w = malloc(sizeof(*w));
	struct change_record rec;
	size_t at = 0, used, dropped = 0;
	int r = 0;

	if (!w)
		return -ENOMEM;
	change_walk_init(w, CHANGE_RECORDS_MAX, UINT64_MAX / 2);
	while (r == 0 && !w->ended) {
		r = change_parse(&rec, index.p + at, index.len - at, &used);
		if (r == -EAGAIN)
			r = -EPROTO; /* a file has no more to come */
		if (r == 0)
			r = change_walk_take(w, &rec);
		if (r == 0)
			at += used;
		if (at - dropped > DROP_BYTES)
			changeset_drop(index, &dropped, at);
	}
	if (r == 0 && at != index.len)
		r = -EPROTO;
	if (r == 0)
		*out_records = rec.ordinal;
	free(w);
	return r;
}

/* Mapped pages that were read count as resident until they are let go. */
void changeset_drop(struct span map, size_t *from, size_t to)
{
	uintptr_t page = 4096, a = ((uintptr_t)map.p + *from) & ~(page - 1);
	uintptr_t b = ((uintptr_t)map.p + to) & ~(page - 1);

	if (a < (uintptr_t)map.p)
		a = (uintptr_t)map.p & ~(page - 1);
	*from = to;
	if (map.p && ((uintptr_t)map.p & (page - 1)) == 0 && b > a)
		(void)madvise((void *)a, b - a, MADV_DONTNEED); /* only a hint */
}

void changeset_hash_map(struct span map, struct hash *out)
{
	struct hash_state *h = xmalloc(sizeof(*h));
	size_t dropped = 0;

	hash_init(h);
	for (size_t at = 0; at < map.len;) {
		size_t n = MIN(map.len - at, (size_t)DROP_BYTES);
		hash_update(h, map.p + at, n);
		at += n;
		if (map.len > DROP_BYTES) /* a small one is needed again at once */
			changeset_drop(map, &dropped, at);
	}
	hash_final(h, out);
	free(h);
}

int changeset_check_base(const struct changeset *s)
{
	int64_t last = -1;

	if (s->base.len % BASE_ENTRY)
		return -EPROTO;
	for (size_t at = 0; at < s->base.len; at += BASE_ENTRY) {
		struct rd r = rd_of(s->base.p + at, 4);
		int64_t ordinal = (int64_t)rd_le(&r, 4);
		if (ordinal <= last || ordinal >= (int64_t)s->records)
			return -EPROTO;
		last = ordinal;
	}
	return 0;
}

static int map_status(struct changeset *s)
{
	struct stat st;

	if (s->status)
		(void)munmap(s->status, s->n_status); /* ours */
	s->status = NULL;
	s->n_status = 0;
	if (fstat(s->status_fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EPROTO;
	if (st.st_size == 0)
		return 0;
	if (st.st_size > (off_t)CHANGE_RECORDS_MAX + MANIFEST_ENTRIES_MAX)
		return -EPROTO;
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, s->status_fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	s->status = p;
	s->n_status = (uint32_t)st.st_size;
	return 0;
}

/* "0", "17"; no sign, no zero in front, below @max */
static bool parse_ordinal(const char *name, uint32_t max, uint32_t *out)
{
	uint64_t v = 0;
	size_t n = strlen(name);

	if (n == 0 || n > 9 || (n > 1 && name[0] == '0'))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (name[i] < '0' || name[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(name[i] - '0');
	}
	*out = (uint32_t)v;
	return v < max;
}

/* One listing instead of a look for each record. */
static int list_blobs(struct changeset *s)
{
	int fd = path_open_dir(s->dir_fd, span_str("blobs"));
	uint32_t ordinal;

	if (fd == -ENOENT) {
		s->blobs_gone = true;
		return 0;
	}
	if (fd < 0)
		return fd;
	DIR *d = fdopendir(fd);
	if (!d) {
		(void)close(fd); /* only read */
		return -ENOMEM;
	}
	s->has_blob = xcalloc(s->records / 8 + 1, 1);
	errno = 0;
	for (struct dirent *e; (e = readdir(d)); errno = 0) {
		if (parse_ordinal(e->d_name, s->records, &ordinal))
			s->has_blob[ordinal / 8] |= (uint8_t)(1 << ordinal % 8);
	}
	int r = -errno;
	(void)closedir(d); /* only read */
	return r;
}

static int open_all(struct changeset *s, int flags, struct err *err)
{
	int r = changeset_meta_read(s->dir_fd, &s->meta, err);

	if (r < 0)
		return r;
	r = map_file(s->dir_fd, "index", &s->index);
	if (r == 0)
		r = changeset_check_index(s->index, &s->records);
	if (r < 0)
		return err_code(err, r, "cannot read its index");
	r = map_file(s->dir_fd, "base", &s->base);
	if (r == -ENOENT)
		r = 0;
	if (r == 0)
		r = changeset_check_base(s);
	if (r < 0)
		return err_code(err, r, "cannot read its baseline hashes");
	r = map_file(s->dir_fd, "manifest", &s->manifest_map);
	if (r < 0)
		return err_code(err, r, "cannot read its baseline");
	struct hash is;
	size_t dropped = 0;
	changeset_hash_map(s->manifest_map, &is);
	if (!hash_eq(&is, &s->meta.manifest))
		return err_set(err, -EPROTO, "its baseline is not the one that was recorded");
	r = manifest_open(&s->manifest, s->manifest_map, err);
	if (r < 0)
		return r;
	changeset_drop(s->manifest_map, &dropped, s->manifest_map.len); /* it was read whole */
	if (s->manifest.n_projects != s->meta.n_projects)
		return err_set(err, -EPROTO, "meta.json and baseline do not fit");
	s->status_fd = path_open(s->dir_fd, span_str("status"),
	                         (flags & CHANGESET_READONLY ? O_RDONLY : O_RDWR) | O_NONBLOCK, 0);
	r = s->status_fd < 0 ? s->status_fd : map_status(s);
	if (r < 0)
		return err_code(err, r, "cannot read its statuses");
	r = list_blobs(s);
	return r < 0 ? err_code(err, r, "cannot list its contents") : 0;
}

int changeset_open_fd(struct changeset **out, int dir_fd, int flags, struct err *err)
{
	struct changeset *s = xcalloc(1, sizeof(*s));

	s->dir_fd = dir_fd;
	s->status_fd = -1;
	int r = open_all(s, flags, err);
	if (r < 0) {
		s->dir_fd = -1; /* taken on success only */
		changeset_close(s);
		return r;
	}
	*out = s;
	return 0;
}

int changeset_open(struct changeset **out, int changes_fd, const char *id, int flags,
                   struct err *err)
{
	if (!changeset_id_ok(id))
		return err_set(err, -ENOENT, "no change set has that name");
	AUTO_CLOSE int fd = path_open_dir(changes_fd, span_str(id));
	if (fd == -ENOENT)
		return err_set(err, -ENOENT, "no change set '%s'", id);
	if (fd < 0)
		return err_code(err, fd, "cannot open change set '%s'", id);
	int r = changeset_open_fd(out, fd, flags, err);
	if (r < 0)
		return err_wrap(err, "change set '%s'", id);
	(void)take_fd(&fd);
	return 0;
}

void changeset_close(struct changeset *s)
{
	if (!s)
		return;
	unmap(&s->index);
	unmap(&s->base);
	unmap(&s->manifest_map);
	if (s->status)
		(void)munmap(s->status, s->n_status); /* ours */
	auto_close_(&s->status_fd);
	auto_close_(&s->dir_fd);
	changeset_meta_fini(&s->meta);
	free(s->has_blob);
	free(s);
}

enum changeset_status changeset_status_get(const struct changeset *s, uint32_t slot)
{
	uint8_t v = slot < s->n_status ? s->status[slot] : 0;

	return v <= CHANGESET_STATUS_LAST ? (enum changeset_status)v : CHANGESET_PENDING;
}

int changeset_status_set(struct changeset *s, uint32_t slot, enum changeset_status v)
{
	uint8_t b = (uint8_t)v;

	if (s->status_fd < 0 || slot >= CHANGE_RECORDS_MAX + MANIFEST_ENTRIES_MAX)
		return -EBADF;
	if (slot < s->n_status && s->status[slot] == b)
		return 0;
	/* by pwrite(), not through the mapping: a full disk is an error here, a signal there */
	int r = fd_pwrite_all(s->status_fd, &b, 1, slot);
	if (r == 0 && slot >= s->n_status)
		r = map_status(s);
	return r;
}

int changeset_status_sync(struct changeset *s)
{
	return fdatasync(s->status_fd) < 0 ? -errno : 0;
}

int changeset_settle(struct changeset *s, const struct changeset_counts *c, int64_t now_s,
                     struct err *err)
{
	bool open = c->pending || c->conflict;
	int64_t closed = open ? 0 : s->meta.closed_s ? s->meta.closed_s : now_s;

	if (s->meta.counted && closed == s->meta.closed_s &&
	    memcmp(c, &s->meta.counts, sizeof(*c)) == 0)
		return 0;
	s->meta.counts = *c;
	s->meta.counted = true;
	s->meta.closed_s = closed;
	return changeset_meta_write(s->dir_fd, &s->meta, err);
}

int changeset_blob_open(const struct changeset *s, uint32_t ordinal)
{
	char name[32];
	struct stat st;

	(void)snprintf(name, sizeof(name), "blobs/%u", ordinal);
	AUTO_CLOSE int fd = path_open(s->dir_fd, span_str(name), O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? take_fd(&fd) : -EPROTO;
}

bool changeset_has_blob(const struct changeset *s, uint32_t ordinal)
{
	return s->has_blob && ordinal < s->records && (s->has_blob[ordinal / 8] >> ordinal % 8 & 1);
}

bool changeset_baseline(const struct changeset *s, uint32_t ordinal, struct hash *out)
{
	size_t lo = 0, hi = s->base.len / BASE_ENTRY;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		struct rd r = rd_of(s->base.p + mid * BASE_ENTRY, BASE_ENTRY);
		uint32_t at = (uint32_t)rd_le(&r, 4);
		if (at == ordinal) {
			memcpy(out->b, r.p, HASH_BYTES);
			return true;
		}
		if (at < ordinal)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

int changeset_lock(int dir_fd)
{
	AUTO_CLOSE int fd =
		path_open(dir_fd, span_str("lock"), O_RDWR | O_CREAT | O_NONBLOCK, 0600);

	if (fd < 0)
		return fd;
	return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : take_fd(&fd);
}

/* --- what was applied --- */

enum { APPLIED_FIXED = 2 + 1 + 4 + 8 + 8 + 8 + 8 + HASH_BYTES };

int changeset_applied_put(int fd, const struct changeset_applied *a)
{
	AUTO_BUF struct buf b = { 0 };

	if (a->path.len > CHANGE_PATH_MAX)
		return -ENAMETOOLONG;
	int r = buf_reserve(&b, 4 + APPLIED_FIXED + a->path.len);
	if (r < 0)
		return r;
	struct wr w = wr_of(b.p, b.cap);
	wr_le(&w, APPLIED_FIXED + a->path.len, 4);
	wr_le(&w, a->project, 2);
	wr_le(&w, a->kind, 1);
	wr_le(&w, a->mode, 4);
	wr_le(&w, a->size, 8);
	wr_le(&w, a->ino, 8);
	wr_le(&w, (uint64_t)a->mtime_ns, 8);
	wr_le(&w, (uint64_t)a->ctime_ns, 8);
	wr_put(&w, a->hash.b, HASH_BYTES);
	wr_put(&w, a->path.p, a->path.len);
	ASSERT(!w.bad);
	/* one write: O_APPEND keeps records whole unless the machine dies in it */
	return fd_write_all(fd, b.p, (size_t)(w.p - b.p));
}

int changeset_applied_parse(struct changeset_applied *out, struct span b, size_t *out_used)
{
	struct rd r = rd_of(b.p, b.len);
	struct changeset_applied a;
	uint64_t len = rd_le(&r, 4);

	if (r.bad)
		return -EAGAIN;
	if (len <= APPLIED_FIXED || len > APPLIED_FIXED + CHANGE_PATH_MAX)
		return -EPROTO;
	if (r.left < len)
		return -EAGAIN;
	a.project = (uint16_t)rd_le(&r, 2);
	a.kind = (uint8_t)rd_le(&r, 1);
	a.mode = (uint32_t)rd_le(&r, 4);
	a.size = rd_le(&r, 8);
	a.ino = rd_le(&r, 8);
	a.mtime_ns = (int64_t)rd_le(&r, 8);
	a.ctime_ns = (int64_t)rd_le(&r, 8);
	struct span h = rd_take(&r, HASH_BYTES);
	a.path = rd_take(&r, (size_t)len - APPLIED_FIXED);
	if (r.bad || a.kind > MANIFEST_LINK || a.mode > 07777 ||
	    a.project >= MANIFEST_PROJECTS_MAX || path_check(a.path) < 0)
		return -EPROTO;
	memcpy(a.hash.b, h.p, HASH_BYTES);
	*out = a;
	*out_used = 4 + (size_t)len;
	return 0;
}

/* --- the list of sets --- */

static int by_age(const void *x, const void *y)
{
	const struct changeset_meta *a = x, *b = y;

	if (a->created_s != b->created_s)
		return a->created_s < b->created_s ? -1 : 1;
	return strcmp(a->id, b->id);
}

void changeset_list_fini(struct changeset_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		changeset_meta_fini(&l->sets[i]);
	free(l->sets);
	*l = (struct changeset_list){ 0 };
}

static int open_listing(int changes_fd, DIR **out)
{
	int fd = path_open_dir(changes_fd, span_of("", 0));

	if (fd < 0)
		return fd;
	*out = fdopendir(fd);
	if (!*out) {
		int r = -errno;
		(void)close(fd); /* only read */
		return r;
	}
	return 0;
}

static void list_one(struct changeset_list *l, int changes_fd, const char *id)
{
	AUTO_CLOSE int fd = path_open_dir(changes_fd, span_str(id));
	struct changeset_meta m;

	if (fd < 0 || changeset_meta_read(fd, &m, NULL) < 0) {
		l->damaged++;
		return;
	}
	if (strcmp(m.id, id) != 0) {
		changeset_meta_fini(&m);
		l->damaged++;
		return;
	}
	l->sets = xrealloc(l->sets, (l->n + 1) * sizeof(*l->sets));
	l->sets[l->n++] = m;
}

int changeset_list(int changes_fd, struct changeset_list *out, struct err *err)
{
	struct changeset_list l = { 0 };
	DIR *d;
	int r = open_listing(changes_fd, &d);

	if (r < 0)
		return err_code(err, r, "cannot list the change sets");
	for (struct dirent *e; (errno = 0, e = readdir(d));) {
		if (!changeset_id_ok(e->d_name))
			continue;
		if (l.n >= CHANGESET_SETS_MAX) {
			r = -EFBIG;
			break;
		}
		list_one(&l, changes_fd, e->d_name);
	}
	if (r == 0 && errno)
		r = -errno;
	(void)closedir(d); /* only read */
	if (r < 0) {
		changeset_list_fini(&l);
		return err_code(err, r, "cannot list the change sets");
	}
	if (l.n)
		qsort(l.sets, l.n, sizeof(*l.sets), by_age);
	*out = l;
	return 0;
}

static bool sweep_one(int changes_fd, const char *name)
{
	AUTO_CLOSE int fd = path_open_dir(changes_fd, span_str(name));

	/* the lock goes with the last descriptor of a writer, however it died */
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return false;
	return path_remove_tree(changes_fd, name) == 0;
}

int changeset_sweep(int changes_fd)
{
	DIR *d;
	int n = 0, r = open_listing(changes_fd, &d);

	if (r < 0)
		return r;
	/* exclusive: no writer is between making its folder and locking it */
	if (flock(dirfd(d), LOCK_EX) < 0) {
		r = -errno;
		(void)closedir(d); /* only read */
		return r;
	}
	for (struct dirent *e; (e = readdir(d));) {
		if (strncmp(e->d_name, ".new-", 5) == 0 && changeset_id_ok(e->d_name + 5))
			n += sweep_one(changes_fd, e->d_name);
	}
	(void)closedir(d); /* only read; lets the lock go */
	return n;
}

/* Was it closed long enough, judged again under the set's lock? */
static bool retain_one(int changes_fd, const char *id, int64_t now_s)
{
	AUTO_CLOSE int fd = path_open_dir(changes_fd, span_str(id));
	AUTO_CLOSE int lock = fd < 0 ? -1 : changeset_lock(fd);
	struct changeset_meta m;

	if (fd < 0 || lock < 0 || changeset_meta_read(fd, &m, NULL) < 0)
		return false;
	bool due = m.closed_s > 0 && m.counted && !m.counts.pending && !m.counts.conflict &&
	           now_s - m.closed_s >= CHANGESET_KEEP_S;
	changeset_meta_fini(&m);
	if (!due || faccessat(fd, "blobs", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	return path_remove_tree(fd, "blobs") == 0;
}

int changeset_retain(int changes_fd, int64_t now_s)
{
	struct changeset_list l;
	int n = 0, r = changeset_list(changes_fd, &l, NULL);

	if (r < 0)
		return r;
	for (size_t i = 0; i < l.n; i++) {
		if (l.sets[i].closed_s > 0)
			n += retain_one(changes_fd, l.sets[i].id, now_s);
	}
	changeset_list_fini(&l);
	return n;
}
