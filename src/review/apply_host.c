/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at the host. An entry is the baseline's when size, both times, inode,
 * mode and kind say so; when they do not, a file may still have the baseline's
 * content (it was only touched), which a hash tells if one is known. Nothing
 * but a regular file is ever opened for its content, and never blocking.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "review/apply_priv.h"

enum { X_BITS = 0111, PIECE = 256 * 1024 };

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint8_t kind_of(mode_t mode)
{
	if (S_ISREG(mode))
		return MANIFEST_FILE;
	if (S_ISDIR(mode))
		return MANIFEST_DIR;
	return S_ISLNK(mode) ? MANIFEST_LINK : MANIFEST_OTHER;
}

bool apply_same_stat(const struct manifest_entry *e, const struct stat *st)
{
	if (e->kind != kind_of(st->st_mode))
		return false;
	if (e->kind == MANIFEST_DIR)
		return true; /* its times change with every name in it */
	if (e->ino != st->st_ino || e->mtime_ns != ns_of(st->st_mtim) ||
	    e->ctime_ns != ns_of(st->st_ctim))
		return false;
	if (e->kind == MANIFEST_FILE)
		return e->size == (uint64_t)st->st_size && e->mode == (st->st_mode & 07777);
	return true;
}

bool apply_same_inode(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       (a->st_mode & S_IFMT) == (b->st_mode & S_IFMT) &&
	       ns_of(a->st_mtim) == ns_of(b->st_mtim);
}

int apply_hash_fd(int fd, struct hash *out)
{
	AUTO_FREE uint8_t *b = xmalloc(PIECE);
	struct hash_state h;

	hash_init(&h);
	for (off_t at = 0;;) {
		ssize_t n = pread(fd, b, PIECE, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		hash_update(&h, b, (size_t)n);
		at += n;
	}
	hash_final(&h, out);
	return 0;
}

int apply_hash_at(int dir_fd, const char *name, const struct stat *st, struct hash *out)
{
	AUTO_CLOSE int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	struct stat now;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &now) < 0)
		return -errno;
	if (!S_ISREG(now.st_mode) || !apply_same_inode(st, &now))
		return -ESTALE;
	int r = apply_hash_fd(fd, out);
	if (r == 0 && (fstat(fd, &now) < 0 || !apply_same_inode(st, &now)))
		r = -ESTALE;
	return r;
}

int apply_open_parent(struct apply_work *w)
{
	struct span path = span_of(w->path.p, w->path.len), base = path_base(path);

	if (w->project_fd < 0)
		return -ESTALE;
	memcpy(w->name, base.p, base.len);
	w->name[base.len] = '\0';
	w->dir_fd = path_open_dir(w->project_fd, path_parent(path));
	return w->dir_fd < 0 ? w->dir_fd : 0;
}

/* Look at the name. 0, -ENOENT, -errno. */
static int look(struct apply_work *w)
{
	w->have_st = false;
	if (fstatat(w->dir_fd, w->name, &w->st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	w->have_st = true;
	return 0;
}

static bool link_equals(const struct apply_work *w)
{
	char text[CHANGE_LINK_MAX + 2];
	ssize_t n = readlinkat(w->dir_fd, w->name, text, sizeof(text));

	return n >= 0 && span_eq(span_of(text, (size_t)n), w->ch.link);
}

/* Has the host what the change would make? */
static bool already(struct apply_work *w)
{
	struct hash h;

	if (!w->have_st || w->ch.new_type != kind_of(w->st.st_mode))
		return false;
	switch (w->ch.new_type) {
	case MANIFEST_FILE:
		return w->ch.new_size == (uint64_t)w->st.st_size &&
		       ((w->st.st_mode ^ w->ch.new_mode) & X_BITS) == 0 &&
		       apply_hash_at(w->dir_fd, w->name, &w->st, &h) == 0 &&
		       hash_eq(&h, &w->ch.hash);
	case MANIFEST_LINK:
		return link_equals(w);
	case MANIFEST_DIR:
		return true;
	default:
		return false;
	}
}

static bool only_touched(struct apply_work *w)
{
	struct hash h;

	return w->ch.base_hash_known && S_ISREG(w->st.st_mode) && w->ch.old_type == MANIFEST_FILE &&
	       w->ch.old_size == (uint64_t)w->st.st_size &&
	       apply_hash_at(w->dir_fd, w->name, &w->st, &h) == 0 && hash_eq(&h, &w->ch.base_hash);
}

static int open_child_dir(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int verify_name(struct apply_work *w, int dir_fd, const char *name, uint32_t entry,
                       struct buf *path, struct buf *what)
{
	const struct manifest *m = &w->o->set->manifest;
	struct span s = span_str(name);
	uint32_t child = entry == MANIFEST_NONE ? MANIFEST_NONE : manifest_child(m, entry, s);
	struct manifest_entry e;
	struct stat st;

	if (child != MANIFEST_NONE) {
		manifest_get(m, child, &e);
		if (e.flags & MANIFEST_ABSENT)
			return 0; /* stays */
	}
	if (classify_is_git(s))
		return 0; /* stays */
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!compare_baseline_at(w->o->list, w->ch.project, span_of(path->p, path->len), child,
	                         &e) ||
	    !apply_same_stat(&e, &st)) {
		what->len = 0;
		if (buf_put(what, path->p, path->len) < 0)
			return -ENOMEM;
		return -ESTALE;
	}
	if (e.kind != MANIFEST_DIR)
		return 0;
	return apply_verify_tree(w, dir_fd, name, child, path, what);
}

int apply_verify_tree(struct apply_work *w, int dir_fd, const char *name, uint32_t entry,
                      struct buf *path, struct buf *what)
{
	int fd = open_child_dir(dir_fd, name);
	size_t len = path->len;
	int r = 0;

	if (fd < 0)
		return fd;
	DIR *d = fdopendir(fd);
	if (!d) {
		(void)close(fd); /* only read */
		return -ENOMEM;
	}
	errno = 0;
	for (struct dirent *e; r == 0 && (e = readdir(d)); errno = 0) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		path->len = len;
		if (buf_put(path, "/", 1) < 0 || buf_put(path, e->d_name, strlen(e->d_name)) < 0)
			r = -ENOMEM;
		else if (path->len > PATH_BYTES_MAX)
			r = -ENAMETOOLONG;
		else
			r = verify_name(w, fd, e->d_name, entry, path, what);
	}
	if (r == 0 && errno)
		r = -errno;
	path->len = len;
	(void)closedir(d); /* only read */
	return r;
}

static int verify_old_dir(struct apply_work *w)
{
	AUTO_BUF struct buf path = { 0 };
	AUTO_BUF struct buf what = { 0 };
	char shown[160];

	if (!S_ISDIR(w->st.st_mode))
		return apply_say(w, APPLY_CONFLICT, 0, "the host has no directory there any more");
	if (buf_put(&path, w->path.p, w->path.len) < 0)
		return apply_say(w, APPLY_FAILED, -ENOMEM, "out of memory");
	int r = apply_verify_tree(w, w->dir_fd, w->name, w->ch.entry, &path, &what);
	if (r == -ESTALE)
		return apply_say(w, APPLY_CONFLICT, 0, "'%s' in it was changed on the host",
		                 vis_str(shown, sizeof(shown), span_of(what.p, what.len)));
	if (r < 0)
		return apply_say(w, APPLY_FAILED, r, "cannot read the directory");
	return APPLY_GO;
}

/* The thing that is replaced or deleted must be the baseline's. */
static int verify_old(struct apply_work *w)
{
	if (w->ch.old_type == MANIFEST_DIR)
		return verify_old_dir(w);
	if (apply_same_stat(&w->ch.base, &w->st) || only_touched(w))
		return APPLY_GO;
	if (already(w))
		return apply_say(w, APPLY_ALREADY, 0, "the host has it already");
	return apply_say(w, APPLY_CONFLICT, 0, "changed on the host since the sandbox saw it");
}

static int verify_mode(struct apply_work *w)
{
	if (kind_of(w->st.st_mode) != w->ch.old_type)
		return apply_say(w, APPLY_CONFLICT, 0, "the host has another kind of thing there");
	if (((w->st.st_mode ^ w->ch.new_mode) & X_BITS) == 0)
		return apply_say(w, APPLY_ALREADY, 0, "the host has it already");
	if ((w->st.st_mode ^ w->ch.old_mode) & X_BITS)
		return apply_say(w, APPLY_CONFLICT, 0, "its mode was changed on the host, too");
	return APPLY_GO;
}

static int verify_parent_gone(struct apply_work *w, int r)
{
	if (r == -ESTALE)
		return apply_say(w, APPLY_FAILED, -ENOENT,
		                 "the project is not there, or another directory");
	if (r == -ENOENT && w->ch.kind == COMPARE_DELETED)
		return apply_say(w, APPLY_ALREADY, 0, "the host has it already");
	if (r == -ENOENT && w->ch.kind == COMPARE_ADDED)
		return APPLY_GO; /* parents are made on the way */
	uint32_t blocker = compare_blocker(w->o->list, w->i);
	if (blocker != COMPARE_NONE && (r == -ENOENT || r == -ENOTDIR || r == -ELOOP))
		return apply_say(w, APPLY_BLOCKED, 0,
		                 "its directory is a change that was not applied");
	if (r == -ENOENT)
		return apply_say(w, APPLY_CONFLICT, 0, "deleted on the host");
	if (r == -ENOTDIR || r == -ELOOP || r == -EXDEV)
		return apply_say(w, APPLY_CONFLICT, 0,
		                 "a directory above it was replaced on the host");
	return apply_say(w, APPLY_FAILED, r, "cannot open its directory");
}

int apply_verify(struct apply_work *w)
{
	if (w->ch.flags & COMPARE_REFUSED)
		return apply_say(w, APPLY_REFUSED, 0, "%s", compare_why_str(w->ch.why));
	int r = apply_open_parent(w);
	if (r < 0)
		return verify_parent_gone(w, r);
	r = look(w);
	if (r < 0 && r != -ENOENT)
		return apply_say(w, APPLY_FAILED, r, "cannot look at it");
	switch (w->ch.kind) {
	case COMPARE_ADDED:
		if (r == -ENOENT)
			return APPLY_GO;
		if (already(w))
			return apply_say(w, APPLY_ALREADY, 0, "the host has it already");
		return apply_say(w, APPLY_CONFLICT, 0, "it was made on the host, too");
	case COMPARE_MODIFIED:
		if (r == -ENOENT)
			return apply_say(w, APPLY_CONFLICT, 0, "deleted on the host");
		return verify_old(w);
	case COMPARE_DELETED:
		if (r == -ENOENT)
			return apply_say(w, APPLY_ALREADY, 0, "the host has it already");
		return verify_old(w);
	case COMPARE_MODE:
		if (r == -ENOENT)
			return apply_say(w, APPLY_CONFLICT, 0, "deleted on the host");
		return verify_mode(w);
	case COMPARE_TYPE:
		if (r == -ENOENT)
			return APPLY_GO; /* half done before, or the user removed the old one */
		if (already(w))
			return apply_say(w, APPLY_ALREADY, 0, "the host has it already");
		if (w->ch.flags & COMPARE_KEEPS_DIR)
			return apply_say(
				w, APPLY_CONFLICT, 0,
				"the directory holds things that the sandbox could not see");
		return verify_old(w);
	default:
		return apply_say(w, APPLY_REFUSED, 0, "an unknown kind of change");
	}
}
