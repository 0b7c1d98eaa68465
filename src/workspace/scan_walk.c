/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_walk.c - the part of the scan that reads directories.
 *
 * Directories are tasks on a common stack. Last in, first out: so what is open
 * at a time is bounded by depth times threads, not by the width of the tree. A
 * directory's descriptor stays open until the last of its children has been
 * opened relative to it, so nothing is ever opened by more than one name and
 * paths may be longer than PATH_MAX.
 *
 * Everything may change while this reads it. A node is what one statx() said;
 * a directory that turns out to be another when it is opened is not entered.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "policy/secret_paths.h"
#include "workspace/scan_priv.h"

enum {
	DENTS_BYTES = 64 * 1024,
	CHUNK_BYTES = 1024 * 1024,
	OPEN_DIR = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
	OPEN_FILE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
};

/* Ignore files that hold in a directory, the deepest first. */
struct frame {
	const struct frame *up;
	const struct ignore_list *list;
	uint32_t skip; /* bytes of a path below the project that are the frame's directory */
};

/* An open directory that others are opened below. */
struct dirref {
	int fd;
	unsigned refs; /* under the lock */
};

struct task {
	struct node *node;
	struct dirref *up; /* NULL: a project */
	const struct frame *git, *hide;
	uint16_t depth;
};

struct found {
	uint64_t key; /* the first eight bytes, to sort by without looking further */
	const uint8_t *name;
	uint8_t len, type;
};

struct worker {
	struct scan *s;
	uint8_t *dents;
	struct list found; /* struct found */
	struct list tasks; /* struct task: children of the present directory */
	struct buf path;   /* of the directory, with a '/' at the end; empty for the project */
	uint8_t *chunk;    /* arena */
	size_t chunk_left;
	struct list chunks;
	struct list links, linked, heavies;
};

void *list_add(struct list *l, size_t size)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 16;
		l->p = xrealloc(l->p, l->cap * size);
	}
	uint8_t *at = (uint8_t *)l->p + l->n++ * size;
	memset(at, 0, size);
	return at;
}

/* Memory of the arena; NULL without any. */
static void *arena(struct worker *w, size_t n)
{
	n = align_up(n, 16);
	if (n > w->chunk_left) {
		size_t size = MAX(n, (size_t)CHUNK_BYTES);
		uint8_t *p = malloc(size);

		if (!p)
			return NULL;
		*(void **)list_add(&w->chunks, sizeof(void *)) = p;
		if (n > CHUNK_BYTES / 2)
			return p; /* by itself; the present chunk goes on */
		w->chunk = p;
		w->chunk_left = size;
	}
	void *at = w->chunk;
	w->chunk += n;
	w->chunk_left -= n;
	return at;
}

struct span scan_name(const struct node *n)
{
	return span_of(n->name, n->name_len);
}

struct node *scan_child(const struct node *dir, struct span name)
{
	size_t lo = 0, n = dir->n_kids;

	while (n) {
		size_t half = n / 2;
		int c = span_cmp(scan_name(&dir->kids[lo + half]), name);

		if (c == 0)
			return &dir->kids[lo + half];
		if (c < 0) {
			lo += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return NULL;
}

int scan_path(const struct node *n, struct buf *out)
{
	const struct node *chain[SCAN_DEPTH_MAX + 2];
	size_t depth = 0;

	for (; !(n->own & OWN_PROJECT); n = n->parent) {
		ASSERT(depth < ARRAY_LEN(chain));
		chain[depth++] = n;
	}
	while (depth) {
		n = chain[--depth];
		if (buf_put(out, n->name, n->name_len) < 0 || (depth && buf_put(out, "/", 1) < 0))
			return -ENOMEM;
	}
	return 0;
}

void scan_note(struct scan *s, enum note_kind kind, struct node *n, struct span text)
{
	char *copy = xmemdup(text.len ? text.p : (const uint8_t *)"", text.len);

	(void)pthread_mutex_lock(&s->lock); /* cannot fail: initialised, not recursive */
	struct note *note = list_add(&s->notes, sizeof(*note));
	*note = (struct note){ kind, n, copy, text.len };
	(void)pthread_mutex_unlock(&s->lock);
}

static void fail(struct scan *s, const struct err *e)
{
	(void)pthread_mutex_lock(&s->lock);
	if (s->err.code == 0)
		s->err = *e; /* the first one is the reason, the others may follow from it */
	s->stop = true;
	(void)pthread_cond_broadcast(&s->wake);
	(void)pthread_mutex_unlock(&s->lock);
}

static void unref_locked(struct dirref *d)
{
	if (d && --d->refs == 0) {
		(void)close(d->fd); /* only read */
		free(d);
	}
}

static bool fold_eq(struct span a, const char *lower)
{
	return a.len == strlen(lower) && strncasecmp((const char *)a.p, lower, a.len) == 0;
}

/* ---- one name ---- */

static bool may_read(const struct node *n, uid_t uid, gid_t gid)
{
	if (uid == 0)
		return true;
	if (n->uid == uid)
		return n->mode & S_IRUSR;
	if (n->gid == gid && n->mode & S_IRGRP)
		return true;
	return n->mode & S_IROTH;
}

static void skip(struct node *n, uint8_t why)
{
	n->flags = (uint16_t)((n->flags & ~MANIFEST_ABSENT) | MANIFEST_SKIPPED);
	n->why = why;
}

static enum ignore_verdict ask(const struct frame *f, struct span path, bool is_dir)
{
	for (; f; f = f->up) {
		enum ignore_verdict v = ignore_match(
			f->list, span_of(path.p + f->skip, path.len - f->skip), is_dir, NULL);

		if (v != IGNORE_SILENT)
			return v;
	}
	return IGNORE_SILENT;
}

/* What the rules say about a name that was looked at. */
static void decide(struct worker *w, struct node *n, const struct task *t)
{
	struct scan *s = w->s;
	const struct node *dir = t->node;
	struct span name = scan_name(n);
	bool is_dir = n->kind == MANIFEST_DIR;
	bool is_git = fold_eq(name, ".git");

	n->flags |= dir->flags & (MANIFEST_GIT | MANIFEST_IGNORED);
	n->own |= dir->own & OWN_PLAIN;
	if (dir->flags & MANIFEST_GIT && is_dir &&
	    (span_eq(name, span_str("refs")) || span_eq(name, span_str("logs")) ||
	     span_eq(name, span_str("objects"))))
		n->own |= OWN_PLAIN;

	if (!(n->own & OWN_PLAIN)) {
		bool top = dir->own & OWN_PROJECT;
		struct span parent = top ? (struct span){ 0 } : scan_name(dir);
		struct span above = top || dir->parent->own & OWN_PROJECT ? (struct span){ 0 }
		                                                          : scan_name(dir->parent);

		n->pattern = secret_name_match(above, parent, name, is_dir);
		if (n->pattern) {
			n->flags |= MANIFEST_HIDDEN;
			return;
		}
	}
	if (n->kind == MANIFEST_OTHER) {
		skip(n, MANIFEST_WHY_KIND);
		return;
	}
	if (dir->flags & MANIFEST_GIT)
		return;

	size_t dir_len = w->path.len;
	if (buf_put(&w->path, name.p, name.len) < 0) {
		struct err e = { 0 };

		(void)err_code(&e, -ENOMEM, "cannot scan");
		fail(s, &e);
		return;
	}
	struct span path = span_of(w->path.p, w->path.len);
	enum ignore_verdict v = IGNORE_SILENT;
	if (s->exclude)
		v = ignore_match(s->exclude, path, is_dir, NULL);
	if (v == IGNORE_SILENT)
		v = ask(t->hide, path, is_dir);
	if (v == IGNORE_YES)
		n->flags |= MANIFEST_EXCLUDED;
	else if (v == IGNORE_SILENT && s->heavy && !is_git &&
	         ignore_match(s->heavy, path, is_dir, NULL) == IGNORE_YES)
		n->own |= OWN_HEAVY;
	if (!(n->flags & (MANIFEST_EXCLUDED | MANIFEST_IGNORED)) && !is_git &&
	    ask(t->git, path, is_dir) == IGNORE_YES)
		n->flags |= MANIFEST_IGNORED;
	w->path.len = dir_len;
	if (is_git)
		n->flags |= MANIFEST_GIT;
}

/* Return: 0, 1 when the name is gone, or -errno that ends the scan. */
static int look(int fd, const struct found *f, struct node *n, struct err *err)
{
	struct statx x;
	char where[256];

	n->name = f->name;
	n->name_len = f->len;
	if (syscall(SYS_statx, fd, f->name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
	            STATX_BASIC_STATS, &x) < 0) {
		if (errno == ENOENT)
			return 1;
		if (errno == EACCES || errno == EPERM) {
			n->kind = f->type == DT_DIR   ? MANIFEST_DIR
			          : f->type == DT_REG ? MANIFEST_FILE
			          : f->type == DT_LNK ? MANIFEST_LINK
			                              : MANIFEST_OTHER;
			skip(n, MANIFEST_WHY_UNREADABLE);
			return 0;
		}
		return err_errno(err, "cannot look at '%s'",
		                 vis_str(where, sizeof(where), span_of(f->name, f->len)));
	}
	n->mode = x.stx_mode & 07777;
	n->uid = x.stx_uid;
	n->gid = x.stx_gid;
	n->nlink = x.stx_nlink;
	n->size = x.stx_size;
	n->ino = x.stx_ino;
	n->dev = makedev(x.stx_dev_major, x.stx_dev_minor);
	n->mtime_ns = x.stx_mtime.tv_sec * 1000000000LL + x.stx_mtime.tv_nsec;
	n->ctime_ns = x.stx_ctime.tv_sec * 1000000000LL + x.stx_ctime.tv_nsec;
	switch (x.stx_mode & S_IFMT) {
	case S_IFDIR:
		n->kind = MANIFEST_DIR;
		break;
	case S_IFREG:
		n->kind = MANIFEST_FILE;
		break;
	case S_IFLNK:
		n->kind = MANIFEST_LINK;
		break;
	default:
		n->kind = MANIFEST_OTHER;
		break;
	}
	return 0;
}

static int read_link(struct worker *w, int fd, struct node *n)
{
	char text[MANIFEST_LINK_MAX + 1];
	ssize_t len = readlinkat(fd, (const char *)n->name, text, sizeof(text));

	if (len <= 0) { /* another kind by now, or gone */
		skip(n, errno == EACCES ? MANIFEST_WHY_UNREADABLE : MANIFEST_WHY_CHANGED);
		return 0;
	}
	if (len > MANIFEST_LINK_MAX) {
		skip(n, MANIFEST_WHY_LIMIT);
		return 0;
	}
	uint8_t *copy = arena(w, (size_t)len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, (size_t)len);
	n->link = copy;
	n->link_len = (uint16_t)len;
	*(struct node **)list_add(&w->links, sizeof(struct node *)) = n;
	return 0;
}

/* ---- rule files ---- */

static void keep_list(struct worker *w, struct ignore_list *l, struct node *dir, uint8_t source,
                      uint8_t order, char *text, size_t len)
{
	struct scan *s = w->s;

	(void)pthread_mutex_lock(&s->lock);
	*(struct ignore_list **)list_add(&s->lists, sizeof(l)) = l;
	*(struct rule *)list_add(&s->rules, sizeof(struct rule)) =
		(struct rule){ dir, source, order, text, len };
	(void)pthread_mutex_unlock(&s->lock);
}

/* Negations that name what security hides have no effect: say so. */
static void note_negations(struct worker *w, const struct ignore_list *l, struct node *file)
{
	for (size_t i = 0; i < ignore_count(l); i++) {
		bool negated;
		uint32_t line;
		struct span p = ignore_pattern(l, i, &negated, &line);

		if (negated && secret_pattern_named(p))
			scan_note(w->s, NOTE_NEGATION, file, p);
	}
}

static int read_rules(int dirfd, const char *name, char **out, size_t *out_len)
{
	AUTO_CLOSE int fd = openat(dirfd, name, OPEN_FILE);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	return fd_read_file(fd, IGNORE_FILE_MAX, out, out_len);
}

/* A file that only sets changes aside: what cannot be read is noted, and does nothing. */
static int add_git_rules(struct worker *w, struct node *dir, struct node *file, int dirfd,
                         const char *name, uint8_t order, const struct frame **io)
{
	struct ignore_list *l = NULL;
	char *text = NULL;
	size_t len = 0;
	int ret = read_rules(dirfd, name, &text, &len);

	if (ret == 0)
		ret = ignore_parse(&l, span_of(text, len), 0);
	if (ret < 0) {
		free(text);
		scan_note(w->s, NOTE_IGNORE_FILE, file, span_str(strerrordesc_np(-ret)));
		return 0;
	}
	keep_list(w, l, dir, MANIFEST_RULES_GITIGNORE, order, text, len);
	struct frame *f = arena(w, sizeof(*f));
	if (!f)
		return -ENOMEM;
	*f = (struct frame){ *io, l, (uint32_t)w->path.len };
	*io = f;
	return 0;
}

/* A file that hides: one that cannot be honoured ends the scan. */
static int add_hide_rules(struct worker *w, struct node *dir, struct node *file, int dirfd,
                          const struct frame **io, struct err *err)
{
	struct ignore_list *l = NULL;
	char *text = NULL;
	size_t len = 0;
	int ret = file->kind == MANIFEST_FILE ? read_rules(dirfd, ".clocheignore", &text, &len)
	                                      : -EINVAL;
	char where[256];

	if (ret == 0)
		ret = ignore_parse(&l, span_of(text, len), 0);
	if (ret < 0) {
		AUTO_BUF struct buf path = { 0 };

		free(text);
		if (scan_path(file, &path) < 0)
			return err_code(err, -ENOMEM, "cannot scan");
		(void)err_code(err, ret, "cannot honour '%s'",
		               vis_str(where, sizeof(where), span_of(path.p, path.len)));
		return err_hint(err,
		                "it says what the sandbox must not see: make it a readable regular "
		                "file of at most %d bytes, or remove it",
		                IGNORE_FILE_MAX);
	}
	keep_list(w, l, dir, MANIFEST_RULES_CLOCHEIGNORE, 2, text, len);
	note_negations(w, l, file);
	struct frame *f = arena(w, sizeof(*f));
	if (!f)
		return err_code(err, -ENOMEM, "cannot scan");
	*f = (struct frame){ *io, l, (uint32_t)w->path.len };
	*io = f;
	return 0;
}

static int add_rules(struct worker *w, struct task *t, int fd, struct err *err)
{
	struct node *dir = t->node;
	struct node *ignore = scan_child(dir, span_str(".gitignore"));
	struct node *hide = scan_child(dir, span_str(".clocheignore"));
	struct node *git = scan_child(dir, span_str(".git"));
	int ret = 0;

	if (dir->flags & MANIFEST_GIT)
		return 0;
	if (git && git->kind == MANIFEST_DIR && !(git->flags & MANIFEST_ABSENT)) {
		AUTO_CLOSE int gitfd = openat(fd, ".git", OPEN_DIR);
		AUTO_CLOSE int info = gitfd < 0 ? -1 : openat(gitfd, "info", OPEN_DIR);
		struct stat st;

		if (info >= 0 && fstatat(info, "exclude", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && st.st_size > 0)
			ret = add_git_rules(w, dir, git, info, "exclude", 0, &t->git);
	}
	if (ret == 0 && ignore && ignore->kind == MANIFEST_FILE && ignore->size > 0)
		ret = add_git_rules(w, dir, ignore, fd, ".gitignore", 1, &t->git);
	if (ret < 0)
		return err_code(err, ret, "cannot scan");
	if (hide)
		return add_hide_rules(w, dir, hide, fd, &t->hide, err);
	return 0;
}

/* ---- one directory ---- */

static int cmp_found(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return span_cmp(span_of(x->name, x->len), span_of(y->name, y->len));
}

static int list_names(struct worker *w, int fd, struct err *err)
{
	w->found.n = 0;
	for (;;) {
		long n = syscall(SYS_getdents64, fd, w->dents, DENTS_BYTES);

		if (n < 0 && errno != ENOENT)
			return err_errno(err, "cannot list a directory");
		if (n <= 0) /* the end, or removed since it was opened */
			return 0;
		for (long at = 0; at < n;) {
			struct dirent64 *d = (void *)(w->dents + at);
			size_t len = strlen(d->d_name);

			at += d->d_reclen;
			if (d->d_name[0] == '.' && (len == 1 || (len == 2 && d->d_name[1] == '.')))
				continue;
			if (!path_name_ok(span_of(d->d_name, len)))
				return err_set(err, -EUCLEAN,
				               "the file system gives out a name that "
				               "cannot be one");
			uint8_t *name = arena(w, len + 1);
			if (!name)
				return err_code(err, -ENOMEM, "cannot scan");
			memcpy(name, d->d_name, len + 1);
			struct found *f = list_add(&w->found, sizeof(*f));
			*f = (struct found){ .name = name, .len = (uint8_t)len, .type = d->d_type };
			for (size_t i = 0; i < 8; i++)
				f->key = f->key << 8 | (i < len ? name[i] : 0);
		}
		if (w->found.n > MANIFEST_ENTRIES_MAX)
			return err_set(err, -EFBIG, "more than %d names", MANIFEST_ENTRIES_MAX);
	}
}

static bool is_own_state(const struct scan *s, const struct node *n)
{
	for (size_t i = 0; i < s->o->n_skip; i++)
		if (s->o->skip[i].dev == n->dev && s->o->skip[i].ino == n->ino)
			return true;
	return false;
}

static void set_path(struct worker *w, const struct node *dir, struct err *err)
{
	w->path.len = 0;
	if (scan_path(dir, &w->path) < 0 || (w->path.len && buf_put(&w->path, "/", 1) < 0))
		(void)err_code(err, -ENOMEM, "cannot scan");
}

static bool looks_like_gitdir(const struct node *dir)
{
	const struct node *head = scan_child(dir, span_str("HEAD"));
	const struct node *objects = scan_child(dir, span_str("objects"));
	const struct node *refs = scan_child(dir, span_str("refs"));

	return head && objects && refs && head->kind != MANIFEST_DIR;
}

/* The names of an open directory become nodes. */
static int fill(struct worker *w, struct task *t, int fd, struct err *err)
{
	struct scan *s = w->s;
	struct node *dir = t->node;
	int ret = list_names(w, fd, err);

	if (ret < 0)
		return ret;
	set_path(w, dir, err);
	if (err->code)
		return err->code;
	struct found *found = w->found.p;
	if (w->found.n)
		qsort(found, w->found.n, sizeof(*found), cmp_found);
	struct node *kids = arena(w, MAX(w->found.n, (size_t)1) * sizeof(*kids));
	if (!kids)
		return err_code(err, -ENOMEM, "cannot scan");
	uint32_t n = 0;
	for (size_t i = 0; i < w->found.n; i++) {
		struct node *k = &kids[n];

		if (i && cmp_found(&found[i - 1], &found[i]) == 0)
			continue; /* listed twice, as some file systems do under changes */
		*k = (struct node){ .parent = dir, .project = dir->project };
		ret = look(fd, &found[i], k, err);
		if (ret < 0)
			return ret;
		n += ret == 0;
	}
	dir->kids = kids;
	dir->n_kids = n;
	dir->own |= OWN_READ;

	uid_t uid = geteuid();
	gid_t gid = getegid();
	ret = add_rules(w, t, fd, err);
	if (ret < 0)
		return ret;
	bool is_gitdir = dir->flags & MANIFEST_GIT
	                         ? looks_like_gitdir(dir) || fold_eq(scan_name(dir), ".git")
	                         : looks_like_gitdir(dir);
	for (uint32_t i = 0; i < n; i++) {
		struct node *k = &kids[i];

		if (k->flags & MANIFEST_SKIPPED) {
			k->flags |= dir->flags & MANIFEST_GIT;
			continue;
		}
		decide(w, k, t);
		if (k->flags & MANIFEST_ABSENT)
			continue;
		if (k->own & OWN_HEAVY)
			*(struct node **)list_add(&w->heavies, sizeof(k)) = k;
		if (k->kind == MANIFEST_LINK) {
			ret = read_link(w, fd, k);
			if (ret < 0)
				return err_code(err, ret, "cannot scan");
		} else if (k->kind == MANIFEST_FILE) {
			if (!may_read(k, uid, gid)) {
				/* an access list may say otherwise: only trying tells */
				int probe = openat(fd, (const char *)k->name, OPEN_FILE);

				if (probe < 0)
					skip(k, MANIFEST_WHY_UNREADABLE);
				else
					(void)close(probe); /* nothing was read */
			}
			if (k->nlink > 1 && !(k->flags & MANIFEST_ABSENT))
				*(struct node **)list_add(&w->linked, sizeof(k)) = k;
		} else if (k->kind == MANIFEST_DIR) {
			if (is_own_state(s, k))
				skip(k, MANIFEST_WHY_OWN_STATE);
			else if (t->depth >= SCAN_DEPTH_MAX - 1 ||
			         w->path.len + k->name_len + 2 + PATH_NAME_MAX > PATH_BYTES_MAX)
				skip(k, MANIFEST_WHY_LIMIT);
			else
				*(struct task *)list_add(&w->tasks, sizeof(struct task)) =
					(struct task){ .node = k,
					               .git = t->git,
					               .hide = t->hide,
					               .depth = (uint16_t)(t->depth + 1) };
		}
	}
	(void)pthread_mutex_lock(&s->lock);
	s->n_nodes += n;
	bool too_many = s->n_nodes + s->o->n_projects + 1 > MANIFEST_ENTRIES_MAX;
	if (is_gitdir) {
		dir->own |= OWN_GITDIR;
		*(struct node **)list_add(&s->gitdirs, sizeof(dir)) = dir;
	}
	struct node *git = dir->flags & MANIFEST_GIT ? NULL : scan_child(dir, span_str(".git"));
	if (git && git->kind != MANIFEST_DIR && !(git->flags & MANIFEST_ABSENT))
		*(struct node **)list_add(&s->dotgits, sizeof(git)) = git;
	(void)pthread_mutex_unlock(&s->lock);
	if (too_many) {
		(void)err_set(err, -EFBIG, "the project has more than %d files and directories",
		              MANIFEST_ENTRIES_MAX);
		return err_hint(err, "exclude some with a .clocheignore file or --exclude");
	}
	return 0;
}

static int open_task(const struct task *t, int project_fd)
{
	const struct node *n = t->node;
	struct stat st;
	int fd = t->up ? openat(t->up->fd, (const char *)n->name, OPEN_DIR)
	               : openat(project_fd, ".", OPEN_DIR);

	if (fd < 0)
		return -errno;
	if (t->up && (fstat(fd, &st) < 0 || st.st_ino != n->ino || st.st_dev != n->dev)) {
		(void)close(fd); /* only opened */
		return -ESTALE;
	}
	return fd;
}

/* Takes the reference of @t. */
static int run_task(struct worker *w, struct task *t, struct err *err)
{
	struct scan *s = w->s;
	struct node *n = t->node;
	int fd = open_task(t, s->o->projects[n->project].fd);
	int ret = 0;
	char where[256];

	(void)pthread_mutex_lock(&s->lock);
	unref_locked(t->up);
	(void)pthread_mutex_unlock(&s->lock);
	w->tasks.n = 0;
	if (fd < 0) {
		switch (fd) {
		case -EACCES:
		case -EPERM:
			skip(n, MANIFEST_WHY_UNREADABLE);
			break;
		case -ENOENT:
		case -ENOTDIR:
		case -ELOOP:
		case -ESTALE:
			skip(n, MANIFEST_WHY_CHANGED);
			break;
		default:
			ret = fd;
			break;
		}
		if (n->own & OWN_PROJECT || ret < 0)
			return err_code(err, fd, "cannot open directory '%s' of project '%s'",
			                n->own & OWN_PROJECT
			                        ? "."
			                        : vis_str(where, sizeof(where), scan_name(n)),
			                s->o->projects[n->project].name);
		return 0;
	}
	struct dirref *ref = xcalloc(1, sizeof(*ref));
	*ref = (struct dirref){ .fd = fd, .refs = 1 };
	ret = fill(w, t, fd, err);
	if (ret < 0) {
		if (err->code == 0)
			(void)err_code(err, ret, "cannot scan");
		(void)err_wrap(err, "directory '%s' of project '%s'",
		               vis_str(where, sizeof(where), span_of(w->path.p, w->path.len)),
		               s->o->projects[n->project].name);
		w->tasks.n = 0;
	}
	(void)pthread_mutex_lock(&s->lock);
	struct task *kids = w->tasks.p;
	for (size_t i = w->tasks.n; i-- > 0;) {
		kids[i].up = ref;
		ref->refs++;
		*(struct task *)list_add(&s->tasks, sizeof(struct task)) = kids[i];
	}
	if (w->tasks.n > 1)
		(void)pthread_cond_broadcast(&s->wake);
	unref_locked(ref);
	(void)pthread_mutex_unlock(&s->lock);
	return ret;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct scan *s = w->s;

	(void)pthread_mutex_lock(&s->lock);
	for (;;) {
		struct err err = { 0 };

		while (!s->stop && s->tasks.n == 0 && s->busy > 0)
			(void)pthread_cond_wait(&s->wake, &s->lock);
		if (s->stop || s->tasks.n == 0)
			break;
		struct task t = ((struct task *)s->tasks.p)[--s->tasks.n];
		s->busy++;
		(void)pthread_mutex_unlock(&s->lock);
		if (run_task(w, &t, &err) < 0)
			fail(s, &err);
		(void)pthread_mutex_lock(&s->lock);
		s->busy--;
		if (s->busy == 0 && s->tasks.n == 0)
			(void)pthread_cond_broadcast(&s->wake);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void append(struct list *to, struct list *from, size_t size)
{
	for (size_t i = 0; i < from->n; i++)
		memcpy(list_add(to, size), (uint8_t *)from->p + i * size, size);
	free(from->p);
	*from = (struct list){ 0 };
}

static int make_roots(struct scan *s, struct worker *w, struct err *err)
{
	s->roots = xcalloc(s->o->n_projects, sizeof(*s->roots));
	for (size_t i = 0; i < s->o->n_projects; i++) {
		const struct scan_project *p = &s->o->projects[i];
		struct node *n = arena(w, sizeof(*n));
		struct found f = { .name = (const uint8_t *)".", .len = 1, .type = DT_DIR };

		if (!n)
			return err_code(err, -ENOMEM, "cannot scan");
		*n = (struct node){ .project = (uint16_t)i, .own = OWN_PROJECT };
		n->parent = n;
		if (look(p->fd, &f, n, err) != 0)
			return err->code ? err->code
			                 : err_set(err, -ENOENT, "project '%s' is gone", p->name);
		if (n->kind != MANIFEST_DIR || n->flags & MANIFEST_SKIPPED)
			return err_set(err, -EACCES, "project '%s' cannot be read", p->name);
		n->name = (const uint8_t *)p->name;
		n->name_len = (uint8_t)strlen(p->name);
		s->roots[i] = n;
		*(struct task *)list_add(&s->tasks, sizeof(struct task)) =
			(struct task){ .node = n };
	}
	return 0;
}

int scan_walk(struct scan *s, struct err *err)
{
	struct worker workers[8] = { 0 };
	pthread_t threads[8];
	size_t n = s->o->threads ? MIN(s->o->threads, (unsigned)ARRAY_LEN(workers)) : SCAN_THREADS;
	size_t started = 0;
	int ret;

	for (size_t i = 0; i < n; i++) {
		workers[i].s = s;
		workers[i].dents = xmalloc(DENTS_BYTES);
	}
	ret = make_roots(s, &workers[0], err);
	if (ret == 0 && s->exclude)
		note_negations(&workers[0], s->exclude, NULL);
	if (ret == 0) {
		for (size_t i = 1; i < n; i++) {
			if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
				break; /* fewer do as well */
			started = i;
		}
		(void)work(&workers[0]);
		for (size_t i = 1; i <= started; i++)
			(void)pthread_join(threads[i], NULL); /* cannot fail: ours, joined once */
	}
	struct task *left = s->tasks.p;
	for (size_t i = 0; i < s->tasks.n; i++) /* an error came before them */
		unref_locked(left[i].up);
	free(s->tasks.p);
	s->tasks = (struct list){ 0 };
	for (size_t i = 0; i < n; i++) {
		append(&s->links, &workers[i].links, sizeof(void *));
		append(&s->linked, &workers[i].linked, sizeof(void *));
		append(&s->heavies, &workers[i].heavies, sizeof(void *));
		append(&s->chunks, &workers[i].chunks, sizeof(void *));
		free(workers[i].found.p);
		free(workers[i].tasks.p);
		free(workers[i].dents);
		buf_fini(&workers[i].path);
	}
	if (ret == 0 && s->err.code) {
		ret = s->err.code;
		if (err)
			*err = s->err;
	}
	return ret;
}

/* ---- for the passes behind it ---- */

int scan_open(struct scan *s, const struct node *n, int *out_fd)
{
	AUTO_BUF struct buf path = { 0 };
	struct stat st;
	int ret = scan_path(n, &path);

	if (ret < 0)
		return ret;
	AUTO_CLOSE int fd = path_open(s->o->projects[n->project].fd, span_of(path.p, path.len),
	                              O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_ino != n->ino || st.st_dev != n->dev ||
	    (uint64_t)st.st_size != n->size)
		return -ESTALE;
	*out_fd = take_fd(&fd);
	return 0;
}

int scan_read(struct scan *s, const struct node *n, size_t max, char **out, size_t *out_len)
{
	AUTO_CLOSE int fd = -1;
	int ret = scan_open(s, n, &fd);

	return ret < 0 ? ret : fd_read_file(fd, max, out, out_len);
}

void scan_hide(struct scan *s, struct node *n, uint16_t flag, uint8_t why)
{
	if (n->flags & MANIFEST_TRACKED)
		s->tracked_absent = true;
	n->flags =
		(uint16_t)((n->flags & ~(MANIFEST_ABSENT | MANIFEST_DANGLING | MANIFEST_RELATIVE)) |
	                   flag);
	n->why = why;
	n->kids = NULL;
	n->n_kids = 0;
}
