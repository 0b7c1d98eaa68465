/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's side, and the monitor's, which makes a set of what a worker
 * staged. Nothing has its final name before all of it is on the
 * disk, so a set is complete or it is not there. The writer's flock on the
 * folder tells a sweep that somebody is still at work; both take the lock of
 * `changes/` for the moment in which a folder exists and has no lock yet.
 */
#include "review/changeset.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "review/changeset_priv.h"

enum { INDEX_BUFFER = 64 * 1024, COPY_PIECE = 256 * 1024 };

/* No index or base of ours is larger: a liar must not keep the monitor copying for ever. */
#define STAGED_MAX ((off_t)4 << 30)

struct changeset_writer {
	int changes_fd, dir_fd, blobs_fd, index_fd, base_fd;
	struct changeset_meta meta;
	char tmp[CHANGESET_ID_MAX + 8]; /* ".new-ID" */
	uint8_t *out;                   /* index bytes not yet written */
	size_t out_len;
	uint32_t records;
	bool ended;
	int64_t last_base;

	int blob_fd; /* -1 between blobs */
	uint64_t blob_size, blob_at;
	struct hash blob_want;
	struct hash_state *hash;
	struct buf blobs; /* ordinals written, for the sync at the end */
};

static void writer_free(struct changeset_writer *w)
{
	if (!w)
		return;
	auto_close_(&w->blob_fd);
	auto_close_(&w->base_fd);
	auto_close_(&w->index_fd);
	auto_close_(&w->blobs_fd);
	auto_close_(&w->dir_fd);
	auto_close_(&w->changes_fd);
	changeset_meta_fini(&w->meta);
	buf_fini(&w->blobs);
	free(w->hash);
	free(w->out);
	free(w);
}

void changeset_abort(struct changeset_writer *w)
{
	if (!w)
		return;
	if (w->dir_fd >= 0 && path_remove_tree(w->changes_fd, w->tmp) < 0)
		(void)0; /* a sweep does it, once our lock is gone */
	writer_free(w);
}

static int create_at(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? -errno : fd;
}

/* mkdir and lock, as one step for changeset_sweep(). */
static int make_folder(struct changeset_writer *w, struct err *err)
{
	w->changes_fd = path_open_dir(w->changes_fd, span_of("", 0));
	if (w->changes_fd < 0)
		return err_code(err, w->changes_fd, "cannot open the folder of change sets");
	if (flock(w->changes_fd, LOCK_SH) < 0)
		return err_errno(err, "cannot lock the folder of change sets");
	if (mkdirat(w->changes_fd, w->tmp, 0700) < 0)
		return err_errno(err, "cannot create change set '%s'", w->meta.id);
	w->dir_fd = path_open_dir(w->changes_fd, span_str(w->tmp));
	if (w->dir_fd < 0)
		return err_code(err, w->dir_fd, "cannot open change set '%s'", w->meta.id);
	if (flock(w->dir_fd, LOCK_EX | LOCK_NB) < 0)
		return err_errno(err, "cannot lock change set '%s'", w->meta.id);
	(void)flock(w->changes_fd, LOCK_UN); /* cannot fail for a lock that is held */
	return 0;
}

/* The folder ".new-ID", empty. */
static int begin(struct changeset_writer **out, int changes_fd, const struct changeset_meta *meta,
                 struct err *err)
{
	if (!changeset_id_ok(meta->id))
		return err_set(err, -EINVAL, "not an id of a change set");
	struct changeset_writer *w = xcalloc(1, sizeof(*w));
	w->meta = *meta;
	w->meta.projects = NULL;
	w->meta.n_projects = 0;
	w->meta.counted = false;
	w->meta.closed_s = 0;
	w->changes_fd = changes_fd;
	w->dir_fd = w->blobs_fd = w->index_fd = w->base_fd = w->blob_fd = -1;
	w->last_base = -1;
	w->hash = xmalloc(sizeof(*w->hash));
	(void)snprintf(w->tmp, sizeof(w->tmp), ".new-%s", w->meta.id);
	int r = make_folder(w, err);
	if (r < 0) {
		changeset_abort(w);
		return r;
	}
	*out = w;
	return 0;
}

int changeset_begin(struct changeset_writer **out, int changes_fd,
                    const struct changeset_meta *meta, struct err *err)
{
	struct changeset_writer *w;
	int r = begin(&w, changes_fd, meta, err);

	if (r < 0)
		return r;
	w->out = xmalloc(INDEX_BUFFER);
	if (mkdirat(w->dir_fd, "blobs", 0700) < 0) {
		r = err_errno(err, "cannot create change set '%s'", w->meta.id);
		goto fail;
	}
	w->blobs_fd = path_open_dir(w->dir_fd, span_str("blobs"));
	w->index_fd = create_at(w->dir_fd, "index");
	w->base_fd = create_at(w->dir_fd, "base");
	r = MIN(w->blobs_fd, MIN(w->index_fd, w->base_fd));
	if (r < 0) {
		err_code(err, r, "cannot create change set '%s'", w->meta.id);
		goto fail;
	}
	*out = w;
	return 0;
fail:
	changeset_abort(w);
	return r;
}

static int flush_index(struct changeset_writer *w, struct err *err)
{
	int r = fd_write_all(w->index_fd, w->out, w->out_len);

	if (r < 0)
		return err_code(err, r, "cannot write the index of change set '%s'", w->meta.id);
	w->out_len = 0;
	return 0;
}

int changeset_put_record(struct changeset_writer *w, const struct change_record *rec,
                         struct err *err)
{
	if (w->ended || rec->type > CHANGE_END)
		return err_set(err, -EINVAL, "a record behind the end of the index");
	if (INDEX_BUFFER - w->out_len < CHANGE_LINK_MAX + CHANGE_NAME_MAX + 128) {
		int r = flush_index(w, err);
		if (r < 0)
			return r;
	}
	size_t n = change_put(w->out + w->out_len, INDEX_BUFFER - w->out_len, rec);
	if (n == 0)
		return err_set(err, -EINVAL, "a record that has no wire form");
	w->out_len += n;
	if (rec->type == CHANGE_END)
		w->ended = true;
	else
		w->records++;
	return 0;
}

int changeset_blob_begin(struct changeset_writer *w, uint32_t ordinal, uint64_t size,
                         const struct hash *want, struct err *err)
{
	char name[16];

	ASSERT(w->blob_fd < 0);
	if (size > INT64_MAX)
		return err_set(err, -EFBIG, "a file is too large");
	(void)snprintf(name, sizeof(name), "%u", ordinal);
	int fd = create_at(w->blobs_fd, name);
	if (fd < 0)
		return err_code(err, fd, "cannot create a file in change set '%s'", w->meta.id);
	if (buf_put(&w->blobs, &ordinal, sizeof(ordinal)) < 0) {
		(void)close(fd); /* empty */
		return err_set(err, -ENOMEM, "out of memory");
	}
	w->blob_fd = fd;
	w->blob_size = size;
	w->blob_at = 0;
	w->blob_want = *want;
	hash_init(w->hash);
	return 0;
}

/* A hole counts as the zeros that a reader sees. */
static void hash_hole(struct changeset_writer *w, uint64_t n)
{
	static const uint8_t zero[64 * 1024];

	w->blob_at += n;
	for (; n; n -= MIN(n, sizeof(zero)))
		hash_update(w->hash, zero, (size_t)MIN(n, sizeof(zero)));
}

int changeset_blob_extent(struct changeset_writer *w, uint64_t offset, struct span bytes,
                          struct err *err)
{
	ASSERT(w->blob_fd >= 0);
	if (offset < w->blob_at || offset > w->blob_size || bytes.len > w->blob_size - offset)
		return err_set(err, -EPROTO, "an extent lies outside of its file");
	hash_hole(w, offset - w->blob_at);
	int r = fd_pwrite_all(w->blob_fd, bytes.p, bytes.len, (off_t)offset);
	if (r < 0)
		return err_code(err, r, "cannot write to change set '%s'", w->meta.id);
	hash_update(w->hash, bytes.p, bytes.len);
	w->blob_at += bytes.len;
	return 0;
}

int changeset_blob_end(struct changeset_writer *w, struct err *err)
{
	struct hash got;

	ASSERT(w->blob_fd >= 0);
	hash_hole(w, w->blob_size - w->blob_at);
	hash_final(w->hash, &got);
	if (ftruncate(w->blob_fd, (off_t)w->blob_size) < 0)
		return err_errno(err, "cannot write to change set '%s'", w->meta.id);
	int r = fd_close(&w->blob_fd);
	if (r < 0)
		return err_code(err, r, "cannot write to change set '%s'", w->meta.id);
	if (!hash_eq(&got, &w->blob_want))
		return err_set(err, -EBADMSG, "a file's content is not what its record says");
	return 0;
}

int changeset_put_baseline(struct changeset_writer *w, uint32_t ordinal, const struct hash *h,
                           struct err *err)
{
	uint8_t b[4 + HASH_BYTES];
	struct wr out = wr_of(b, sizeof(b));

	if ((int64_t)ordinal <= w->last_base)
		return err_set(err, -EINVAL, "baseline hashes are not in ascending order");
	wr_le(&out, ordinal, 4);
	wr_put(&out, h->b, HASH_BYTES);
	int r = fd_write_all(w->base_fd, b, sizeof(b));
	if (r < 0)
		return err_code(err, r, "cannot write to change set '%s'", w->meta.id);
	w->last_base = ordinal;
	return 0;
}

/* Copy (or clone) all of @from into the set as @name, synced, and hash what was written. */
static int copy_in(struct changeset_writer *w, const char *name, int from, struct hash *out,
                   struct err *err)
{
	AUTO_CLOSE int fd = create_at(w->dir_fd, name);
	AUTO_FREE uint8_t *b = xmalloc(COPY_PIECE);

	if (fd < 0)
		return err_code(err, fd, "cannot create '%s' of '%s'", name, w->meta.id);
	bool cloned = ioctl(fd, FICLONE, from) == 0;
	hash_init(w->hash);
	for (off_t at = 0;;) {
		ssize_t n = pread(cloned ? fd : from, b, COPY_PIECE, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(err, "cannot read '%s' of '%s'", name, w->meta.id);
		if (n == 0)
			break;
		hash_update(w->hash, b, (size_t)n);
		int r = cloned ? 0 : fd_write_all(fd, b, (size_t)n);
		if (r < 0)
			return err_code(err, r, "cannot write '%s' of '%s'", name, w->meta.id);
		at += n;
		if (at > STAGED_MAX)
			return err_set(err, -EFBIG, "'%s' of '%s' is too large", name, w->meta.id);
	}
	hash_final(w->hash, out);
	if (fsync(fd) < 0)
		return err_errno(err, "cannot write '%s' of '%s'", name, w->meta.id);
	int r = fd_close(&fd);
	return r < 0 ? err_code(err, r, "cannot write '%s' of '%s'", name, w->meta.id) : 0;
}

static int read_projects(struct changeset_writer *w, int manifest_fd, struct err *err)
{
	struct manifest m;
	struct stat st;

	if (fstat(manifest_fd, &st) < 0 || st.st_size <= 0)
		return err_set(err, -EPROTO, "the baseline is empty");
	void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, manifest_fd, 0);
	if (map == MAP_FAILED)
		return err_errno(err, "cannot map the baseline");
	int r = manifest_open(&m, span_of(map, (size_t)st.st_size), err);
	if (r == 0) {
		w->meta.projects = xcalloc(m.n_projects + 1, sizeof(*w->meta.projects));
		for (uint32_t i = 0; i < m.n_projects; i++) {
			struct manifest_project p;
			manifest_project(&m, i, &p);
			w->meta.projects[i] = (struct changeset_project){
				.path = xstrndup((const char *)p.path.p, p.path.len),
				.dev = p.dev,
				.ino = p.ino,
			};
		}
		w->meta.n_projects = m.n_projects;
	}
	(void)munmap(map, (size_t)st.st_size); /* cannot fail for what mmap() gave */
	return r;
}

/*
 * All blobs were handed to the kernel before. A few are synced one by one; for many that
 * costs a commit of the file system each (12 s for 5,000 files), and one sync of it all less.
 */
static int sync_all(struct changeset_writer *w, struct err *err)
{
	enum { ONE_BY_ONE = 64 };
	char name[16];
	uint32_t ordinal;

	if (w->blobs.len / sizeof(ordinal) > ONE_BY_ONE && syncfs(w->blobs_fd) == 0)
		return 0;
	for (size_t i = 0; i < w->blobs.len; i += sizeof(ordinal)) {
		memcpy(&ordinal, w->blobs.p + i, sizeof(ordinal));
		(void)snprintf(name, sizeof(name), "%u", ordinal);
		AUTO_CLOSE int fd = openat(w->blobs_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 || fsync(fd) < 0)
			return err_errno(err, "cannot write to change set '%s'", w->meta.id);
	}
	if (fsync(w->blobs_fd) < 0 || fsync(w->index_fd) < 0 || fsync(w->base_fd) < 0)
		return err_errno(err, "cannot write to change set '%s'", w->meta.id);
	return 0;
}

/* What makes a staged set whole; meta's projects are there. */
static int put_meta(struct changeset_writer *w, int manifest_fd, struct err *err)
{
	int r = copy_in(w, "manifest", manifest_fd, &w->meta.manifest, err);

	if (r < 0)
		return r;
	AUTO_CLOSE int status = create_at(w->dir_fd, "status");
	if (status < 0)
		return err_code(err, status, "cannot write to change set '%s'", w->meta.id);
	return changeset_meta_write(w->dir_fd, &w->meta, err); /* syncs the folder, too */
}

static int give_name(struct changeset_writer *w, struct err *err)
{
	int r = path_rename_new(w->changes_fd, w->tmp, w->changes_fd, w->meta.id);

	if (r < 0)
		return err_code(err, r, "cannot name change set '%s'", w->meta.id);
	/* it has its name now: what fails from here on must not remove it */
	(void)snprintf(w->tmp, sizeof(w->tmp), "%s", w->meta.id);
	if (fsync(w->changes_fd) < 0)
		return err_errno(err, "cannot sync the folder of change sets");
	return 0;
}

static int commit(struct changeset_writer *w, int manifest_fd, struct err *err)
{
	if (w->blob_fd >= 0)
		return err_set(err, -EINVAL, "a file is not complete");
	if (!w->ended) {
		struct change_record end = { .type = CHANGE_END, .ordinal = w->records };
		int r = changeset_put_record(w, &end, err);
		if (r < 0)
			return r;
	}
	int r = flush_index(w, err);
	if (r == 0)
		r = sync_all(w, err);
	if (r == 0 && manifest_fd >= 0)
		r = read_projects(w, manifest_fd, err);
	if (r == 0 && manifest_fd >= 0)
		r = put_meta(w, manifest_fd, err);
	if (r == 0 && manifest_fd < 0 && fsync(w->dir_fd) < 0)
		r = err_errno(err, "cannot write to change set '%s'", w->meta.id);
	return r < 0 ? r : give_name(w, err);
}

static int end(struct changeset_writer *w, int r)
{
	if (r < 0 && strncmp(w->tmp, ".new-", 5) == 0)
		changeset_abort(w);
	else
		writer_free(w);
	return r;
}

int changeset_commit(struct changeset_writer *w, int manifest_fd, struct err *err)
{
	return end(w, commit(w, manifest_fd, err));
}

/* --- adopting --- */

static int take_file(struct changeset_writer *w, int staged_fd, const char *name, struct err *err)
{
	AUTO_CLOSE int fd = path_open(staged_fd, span_str(name), O_RDONLY | O_NONBLOCK, 0);
	struct hash unused;
	struct stat st;

	if (fd < 0)
		return err_code(err, fd, "cannot open '%s' of '%s'", name, w->meta.id);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > STAGED_MAX)
		return err_set(err, -EPROTO, "'%s' of '%s' is no file of ours", name, w->meta.id);
	return copy_in(w, name, fd, &unused, err);
}

static int adopt(struct changeset_writer *w, int staged_fd, int manifest_fd, struct err *err)
{
	int r = take_file(w, staged_fd, "index", err);

	if (r == 0)
		r = take_file(w, staged_fd, "base", err);
	if (r == 0)
		r = put_meta(w, manifest_fd, err);
	if (r < 0)
		return r;
	/* last: after a crash behind it, the sweep of `.new-*` takes the contents with it, and
	 * what is left has no `blobs`, so it is not taken for a whole set but exported again */
	if (renameat(staged_fd, "blobs", w->dir_fd, "blobs") < 0)
		return err_errno(err, "cannot take the contents of '%s'", w->meta.id);
	w->blobs_fd = path_open_dir(w->dir_fd, span_str("blobs")); /* and not a link or a file */
	r = w->blobs_fd < 0
	            ? err_code(err, w->blobs_fd, "cannot take the contents of '%s'", w->meta.id)
	            : 0;
	if (r == 0 && fsync(w->dir_fd) < 0)
		r = err_errno(err, "cannot write to change set '%s'", w->meta.id);
	if (r == 0)
		r = give_name(w, err);
	if (r < 0 && strncmp(w->tmp, ".new-", 5) == 0 &&
	    renameat(w->dir_fd, "blobs", staged_fd, "blobs") < 0)
		(void)err_wrap(err, "the contents of '%s' are lost", w->meta.id);
	return r;
}

int changeset_adopt(int changes_fd, int staged_fd, const struct changeset_meta *meta,
                    int manifest_fd, struct err *err)
{
	struct changeset_writer *w;
	int r = begin(&w, changes_fd, meta, err);

	if (r < 0)
		return r;
	w->meta.projects = xcalloc(meta->n_projects + 1, sizeof(*w->meta.projects));
	for (uint32_t i = 0; i < meta->n_projects; i++) {
		w->meta.projects[i] = meta->projects[i];
		w->meta.projects[i].path = xstrdup(meta->projects[i].path);
	}
	w->meta.n_projects = meta->n_projects;
	return end(w, adopt(w, staged_fd, manifest_fd, err));
}
