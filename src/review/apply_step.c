/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps that touch the host. Whatever comes out from under a name is looked
 * at before it is destroyed: a rename does not change an inode's number, size
 * or modification time, so a thing that was swapped in or written to since it
 * was verified shows, and goes back to where it was.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "review/apply_priv.h"

enum { X_BITS = 0111, PIECE = 256 * 1024, XATTR_MAX = 64 * 1024 };

void apply_tmp_name(char dst[COMPARE_TMP_LEN + 1])
{
	static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
	uint8_t rnd[COMPARE_TMP_LEN - 12];

	random_bytes(rnd, sizeof(rnd));
	memcpy(dst, COMPARE_TMP_PREFIX, 12);
	for (size_t i = 0; i < sizeof(rnd); i++)
		dst[12 + i] = base32[rnd[i] & 31];
	dst[COMPARE_TMP_LEN] = '\0';
}

void apply_hook(const struct apply_work *w, enum apply_point at, const char *name)
{
	if (w->o->hook)
		w->o->hook(w->o->hook_arg, at, w->i, w->dir_fd, name);
}

int apply_note(struct apply_work *w, struct span path, const struct stat *st, const struct hash *h)
{
	struct changeset_applied a = { .project = w->ch.project, .path = path };

	if (w->o->applied_fd < 0)
		return 0;
	if (st) {
		a.kind = S_ISREG(st->st_mode)   ? MANIFEST_FILE
		         : S_ISDIR(st->st_mode) ? MANIFEST_DIR
		                                : MANIFEST_LINK;
		a.mode = st->st_mode & 07777;
		a.size = (uint64_t)st->st_size;
		a.ino = st->st_ino;
		a.mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
		a.ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
	}
	if (h)
		a.hash = *h;
	return changeset_applied_put(w->o->applied_fd, &a);
}

/* --- making the new thing --- */

/* Holes stay holes; the bytes that are hashed are the bytes that are written. */
static int copy_hashed(int from, int to, uint64_t size, struct hash *out)
{
	static const uint8_t zero[PIECE];
	AUTO_FREE uint8_t *b = xmalloc(PIECE);
	struct hash_state h;
	uint64_t at = 0;

	hash_init(&h);
	while (at < size) {
		off_t data = lseek(from, (off_t)at, SEEK_DATA);
		if (data < 0 && errno != ENXIO)
			data = (off_t)at; /* a file system without holes */
		uint64_t end = data < 0 || (uint64_t)data > size ? size : (uint64_t)data;
		for (; at < end; at += MIN(end - at, (uint64_t)PIECE))
			hash_update(&h, zero, (size_t)MIN(end - at, (uint64_t)PIECE));
		if (at == size)
			break;
		off_t hole = lseek(from, (off_t)at, SEEK_HOLE);
		end = hole < 0 || (uint64_t)hole > size ? size : (uint64_t)hole;
		while (at < end) {
			size_t n = (size_t)MIN(end - at, (uint64_t)PIECE);
			int r = fd_pread_exact(from, b, n, (off_t)at);
			if (r < 0)
				return r == -ENODATA ? -EBADMSG : r;
			hash_update(&h, b, n);
			r = fd_pwrite_all(to, b, n, (off_t)at);
			if (r < 0)
				return r;
			at += n;
		}
	}
	hash_final(&h, out);
	return ftruncate(to, (off_t)size) < 0 ? -errno : 0;
}

/*
 * ACLs and the user's attributes stay with the name. Capabilities of a file do
 * not: they were given to the old content.
 */
static int copy_xattrs(int from, int to)
{
	AUTO_FREE char *names = xmalloc(XATTR_MAX);
	AUTO_FREE char *value = xmalloc(XATTR_MAX);
	ssize_t n = flistxattr(from, names, XATTR_MAX);

	if (n < 0)
		return errno == ENOTSUP ? 0 : -errno;
	for (const char *p = names; p < names + n; p += strlen(p) + 1) {
		bool security = strncmp(p, "security.", 9) == 0;
		if (strcmp(p, "security.capability") == 0 || strncmp(p, "trusted.", 8) == 0)
			continue;
		ssize_t k = fgetxattr(from, p, value, XATTR_MAX);
		if (k < 0 && errno == ENODATA)
			continue;
		/* labels are the system's: it gives a new file its own */
		if ((k < 0 || fsetxattr(to, p, value, (size_t)k, 0) < 0) && !security)
			return -errno;
	}
	return 0;
}

static int keep_owner(int fd, const struct stat *have, const struct stat *want)
{
	if (have->st_uid == want->st_uid && have->st_gid == want->st_gid)
		return 0;
	return fchown(fd, want->st_uid, want->st_gid) < 0 ? -EPERM : 0;
}

static int dress_old(struct apply_work *w, int fd, const struct stat *st)
{
	AUTO_CLOSE int old =
		openat(w->dir_fd, w->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat now;

	if (old < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	if (fstat(old, &now) < 0 || !apply_same_inode(&now, &w->st))
		return -ESTALE;
	int r = keep_owner(fd, st, &w->st);
	if (r == 0)
		r = copy_xattrs(old, fd);
	if (r < 0)
		return r;
	mode_t mode = (w->st.st_mode & 0777 & ~(mode_t)X_BITS) | (w->ch.new_mode & X_BITS);
	w->out->no_setid = w->st.st_mode & 07000;
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

static int dress_new(struct apply_work *w, int fd, const struct stat *st)
{
	struct stat up;

	if (w->o->as_root) {
		if (fstat(w->dir_fd, &up) < 0)
			return -errno;
		int r = keep_owner(fd, st, &up);
		if (r < 0)
			return r;
	}
	return fchmod(fd, w->ch.new_mode & 0777 & ~w->o->mask) < 0 ? -errno : 0;
}

static int fill_file(struct apply_work *w, int fd)
{
	AUTO_CLOSE int from = -1;
	struct hash h;
	struct stat st;

	if (w->ch.new_size > 0 || changeset_has_blob(w->o->set, w->ch.ordinal)) {
		from = changeset_blob_open(w->o->set, w->ch.ordinal);
		if (from < 0)
			return from == -ENOENT ? -EBADMSG : from;
		if (fstat(from, &st) < 0)
			return -errno;
		if ((uint64_t)st.st_size != w->ch.new_size)
			return -EBADMSG;
		int r = copy_hashed(from, fd, w->ch.new_size, &h);
		if (r < 0)
			return r;
	} else {
		hash_bytes(&h, "", 0);
	}
	return hash_eq(&h, &w->ch.hash) ? 0 : -EBADMSG;
}

int apply_make_file(struct apply_work *w, const char *tmp, struct stat *out_st)
{
	AUTO_CLOSE int fd =
		openat(w->dir_fd, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return -errno;
	int r = fill_file(w, fd);
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r == 0) {
		/* over a link or a directory it is a new file */
		bool old = w->have_st && S_ISREG(w->st.st_mode);
		r = old ? dress_old(w, fd, &st) : dress_new(w, fd, &st);
	}
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && fstat(fd, out_st) < 0)
		r = -errno;
	if (r == 0)
		r = fd_close(&fd);
	return r;
}

int apply_make_link(struct apply_work *w, const char *tmp, struct stat *out_st)
{
	char text[CHANGE_LINK_MAX + 1];
	struct stat up;

	if (w->ch.link.len > CHANGE_LINK_MAX)
		return -ENAMETOOLONG;
	memcpy(text, w->ch.link.p, w->ch.link.len);
	text[w->ch.link.len] = '\0';
	if (symlinkat(text, w->dir_fd, tmp) < 0)
		return -errno;
	if (w->o->as_root &&
	    (fstat(w->dir_fd, &up) < 0 ||
	     fchownat(w->dir_fd, tmp, up.st_uid, up.st_gid, AT_SYMLINK_NOFOLLOW) < 0))
		return -errno;
	return fstatat(w->dir_fd, tmp, out_st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int apply_make_dir(struct apply_work *w, int dir_fd, const char *name, uint32_t mode)
{
	struct stat up;

	/* the umask of the process is 0 while something is applied */
	if (mkdirat(dir_fd, name, mode & 0777 & ~w->o->mask) < 0)
		return -errno;
	if (w->o->as_root && (fstat(dir_fd, &up) < 0 || fchownat(dir_fd, name, up.st_uid, up.st_gid,
	                                                         AT_SYMLINK_NOFOLLOW) < 0))
		return -errno;
	return 0;
}

/* --- changing places --- */

static bool no_exchange(int e)
{
	return e == EINVAL || e == ENOSYS || e == EOPNOTSUPP;
}

static int unlink_any(int dir_fd, const char *name, mode_t mode)
{
	return unlinkat(dir_fd, name, S_ISDIR(mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
}

/* What the user made meanwhile has no place to go back to: give it a name that is seen. */
static void keep_aside(struct apply_work *w, const char *tmp)
{
	char name[COMPARE_TMP_LEN + 16];

	(void)snprintf(name, sizeof(name), "cloche-kept-%s", tmp + 12);
	if (renameat2(w->dir_fd, tmp, w->dir_fd, name, RENAME_NOREPLACE) < 0)
		(void)snprintf(name, sizeof(name), "%s", tmp);
	(void)apply_say(w, APPLY_CONFLICT, 0,
	                "changed on the host meanwhile; a version is kept beside it as %s", name);
}

/* The old thing is under @tmp and is not what was verified: undo. */
static int undo_exchange(struct apply_work *w, const char *tmp, const struct stat *ours)
{
	struct stat st;

	apply_hook(w, APPLY_AT_PUT_BACK, tmp);
	if (renameat2(w->dir_fd, tmp, w->dir_fd, w->name, RENAME_EXCHANGE) < 0) {
		/* the name is gone meanwhile: the old thing simply goes back */
		if (errno != ENOENT ||
		    renameat2(w->dir_fd, tmp, w->dir_fd, w->name, RENAME_NOREPLACE) < 0)
			keep_aside(w, tmp);
		return -ESTALE;
	}
	if (fstatat(w->dir_fd, tmp, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == ours->st_ino &&
	    st.st_dev == ours->st_dev) {
		(void)unlink_any(w->dir_fd, tmp, st.st_mode); /* ours; the journal knows it */
		return -ESTALE;
	}
	/* replaced once more in between: the newest keeps the name, the other one is kept */
	if (renameat2(w->dir_fd, tmp, w->dir_fd, w->name, RENAME_EXCHANGE) < 0)
		(void)0; /* then the older one has the name; both are there */
	keep_aside(w, tmp);
	return -ESTALE;
}

/* No exchange on this file system: look, then rename, with nothing in between. */
static int swap_plain(struct apply_work *w, const char *tmp)
{
	struct stat st;

	if (fstatat(w->dir_fd, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	if (!apply_same_inode(&st, &w->st))
		return -ESTALE;
	return renameat(w->dir_fd, tmp, w->dir_fd, w->name) < 0 ? -errno : 0;
}

static int swap_new(struct apply_work *w, const char *tmp)
{
	if (renameat2(w->dir_fd, tmp, w->dir_fd, w->name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno == EEXIST)
		return -ESTALE;
	if (!no_exchange(errno))
		return -errno;
	/* a link does not replace either; directories cannot have one and get a plain mkdir */
	if (linkat(w->dir_fd, tmp, w->dir_fd, w->name, 0) == 0)
		return unlinkat(w->dir_fd, tmp, 0) < 0 ? -errno : 0;
	return errno == EEXIST ? -ESTALE : -errno;
}

int apply_swap(struct apply_work *w, const char *tmp, const struct stat *tmp_st)
{
	struct stat st;
	int r = journal_swap(w->o->journal_fd, w->ch.slot, tmp, tmp_st->st_ino,
	                     span_of(w->path.p, w->path.len));

	if (r < 0)
		return r;
	apply_hook(w, APPLY_AT_VERIFIED, tmp);
	if (!w->have_st)
		return swap_new(w, tmp);
	if (renameat2(w->dir_fd, tmp, w->dir_fd, w->name, RENAME_EXCHANGE) < 0) {
		if (errno == ENOENT)
			return -ESTALE;
		return no_exchange(errno) ? swap_plain(w, tmp) : -errno;
	}
	apply_hook(w, APPLY_AT_MOVED, tmp);
	if (fstatat(w->dir_fd, tmp, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!apply_same_inode(&st, &w->st))
		return undo_exchange(w, tmp, tmp_st);
	return unlink_any(w->dir_fd, tmp, st.st_mode);
}

static int put_back(struct apply_work *w, const char *tmp, int from_fd, const char *name)
{
	apply_hook(w, APPLY_AT_PUT_BACK, tmp);
	if (renameat2(w->dir_fd, tmp, from_fd, name, RENAME_NOREPLACE) < 0)
		keep_aside(w, tmp);
	return -ESTALE;
}

/* Where things cannot be moved out of their directory (a mount point between). */
static int remove_plain(int from_fd, const char *name, const struct stat *st)
{
	struct stat now;

	if (fstatat(from_fd, name, &now, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!apply_same_inode(&now, st))
		return -ESTALE;
	return unlinkat(from_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int apply_remove(struct apply_work *w, int from_fd, const char *name, struct span path,
                 const struct stat *st)
{
	char tmp[COMPARE_TMP_LEN + 1];
	struct stat now;

	apply_tmp_name(tmp);
	int r = journal_swap(w->o->journal_fd, w->ch.slot, tmp, 0, path);
	if (r < 0)
		return r;
	apply_hook(w, APPLY_AT_VERIFIED, name);
	if (renameat2(from_fd, name, w->dir_fd, tmp, RENAME_NOREPLACE) < 0) {
		if (errno == ENOENT)
			return 0; /* gone by itself */
		if (no_exchange(errno) || errno == EXDEV)
			return remove_plain(from_fd, name, st);
		return -errno;
	}
	apply_hook(w, APPLY_AT_MOVED, tmp);
	if (fstatat(w->dir_fd, tmp, &now, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!apply_same_inode(&now, st))
		return put_back(w, tmp, from_fd, name);
	return unlinkat(w->dir_fd, tmp, 0) < 0 ? -errno : 0;
}

/* --- trees --- */

static int remove_child(struct apply_work *w, int fd, const char *name, uint32_t entry,
                        struct buf *path, bool *out_stays)
{
	const struct manifest *m = &w->o->set->manifest;
	struct span s = span_str(name);
	uint32_t child = entry == MANIFEST_NONE ? MANIFEST_NONE : manifest_child(m, entry, s);
	struct manifest_entry e;
	struct stat st;
	int r;

	if (child != MANIFEST_NONE)
		manifest_get(m, child, &e);
	if ((child != MANIFEST_NONE && e.flags & MANIFEST_ABSENT) || classify_is_git(s)) {
		*out_stays = true;
		return 0;
	}
	if (!compare_baseline_at(w->o->list, w->ch.project, span_of(path->p, path->len), child,
	                         &e)) {
		*out_stays = true; /* appeared after the check: not ours to remove */
		return 0;
	}
	if (e.kind == MANIFEST_DIR) {
		r = apply_remove_tree(w, fd, name, child, path);
		if (r == -ENOTEMPTY) {
			*out_stays = true;
			r = 0;
		}
		return r;
	}
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!apply_same_stat(&e, &st))
		return -ESTALE;
	r = apply_remove(w, fd, name, span_of(path->p, path->len), &st);
	if (r == 0 && w->ch.flags & COMPARE_KEEPS_DIR)
		r = apply_note(w, span_of(path->p, path->len), NULL, NULL);
	return r;
}

int apply_remove_tree(struct apply_work *w, int dir_fd, const char *name, uint32_t entry,
                      struct buf *path)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	size_t len = path->len;
	bool stays = false;
	int r = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : errno == ENOTDIR || errno == ELOOP ? -ESTALE : -errno;
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
		else
			r = remove_child(w, fd, e->d_name, entry, path, &stays);
	}
	if (r == 0 && errno)
		r = -errno;
	path->len = len;
	if (r == 0 && stays && fsync(fd) < 0)
		r = -errno;
	(void)closedir(d); /* only read */
	if (r < 0)
		return r;
	if (stays)
		return -ENOTEMPTY;
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0)
		return errno == EEXIST ? -ENOTEMPTY : -errno;
	return 0;
}
