/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two workers. Each is a fork of the command line that keeps exactly the
 * descriptors it needs, enters the cage, and only then reads the set. The one
 * that shows gets the set and the projects read-only: taken over, it can lie on
 * the screen. The one that applies may write below the set and the projects:
 * taken over, it can change the projects, and nothing else of the user's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "cage/cage.h"
#include "review/changeset_priv.h"
#include "review/review_priv.h"

enum { RENAME_FILE_MAX = 16 * 1024 * 1024, RENAME_TOTAL_MAX = 64 * 1024 * 1024 };

struct worker {
	const struct review *r;
	int sock;
	struct changeset *set;
	struct compare *list;
	struct span *applied;
	struct apply_opts opts;
};

NORETURN static void fail(const struct worker *w, const struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	uint8_t code[4];
	struct wr wr = wr_of(code, sizeof(code));

	wr_le(&wr, (uint32_t)err->code, 4);
	if (buf_put(&b, code, sizeof(code)) == 0 &&
	    buf_put(&b, err->text, strlen(err->text) + 1) == 0 &&
	    buf_put(&b, err->hint, strlen(err->hint)) == 0 &&
	    review_send(w->sock, REVIEW_MSG_ERROR, span_of(b.p, b.len)) == 0)
		_exit(0);
	_exit(1); /* the parent sees the end of the stream */
}

static void enter_cage(struct worker *w, enum cage_role role)
{
	const struct review *r = w->r;
	unsigned access = role == CAGE_APPLY ? CAGE_FS_READ | CAGE_FS_WRITE : CAGE_FS_READ;
	AUTO_FREE struct cage_fs *fs = xcalloc(r->meta.n_projects + 1, sizeof(*fs));
	struct err err = { 0 };
	size_t n = 0;

	fs[n++] = (struct cage_fs){ .fd = r->dir_fd, .access = access };
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		if (r->project_fds[i] >= 0)
			fs[n++] = (struct cage_fs){ .fd = r->project_fds[i], .access = access };
	}
	struct cage_opts opts = { .role = role, .fs = fs, .n_fs = n };
	if (!r->env.no_cage && cage_enter(&opts, &err) < 0)
		fail(w, &err);
}

static void map_applied(struct worker *w)
{
	const struct review *r = w->r;

	w->applied = xcalloc(r->n_applied + 1, sizeof(*w->applied));
	for (size_t i = 0; i < r->n_applied; i++) {
		struct stat st;
		if (fstat(r->applied_fds[i], &st) < 0 || st.st_size <= 0 ||
		    st.st_size > CHANGESET_APPLIED_MAX)
			continue;
		void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, r->applied_fds[i],
		               0);
		if (p != MAP_FAILED)
			w->applied[i] = span_of(p, (size_t)st.st_size);
	}
}

static void load(struct worker *w, int flags)
{
	const struct review *r = w->r;
	struct err err = { 0 };
	int fd = dup(r->dir_fd);

	if (fd < 0 || changeset_open_fd(&w->set, fd, flags, &err) < 0)
		fail(w, &err);
	/* meta.json was read twice: by the parent, and with the set */
	if (w->set->manifest.n_projects != r->meta.n_projects) {
		(void)err_set(&err, -EPROTO, "meta.json changed meanwhile");
		fail(w, &err);
	}
	map_applied(w);
	if (compare_new(&w->list, w->set, w->applied, r->n_applied, &err) < 0)
		fail(w, &err);
	w->opts = (struct apply_opts){
		.set = w->set,
		.list = w->list,
		.project_fds = r->project_fds,
		.applied_fd = -1,
		.journal_fd = -1,
		.mask = r->mask,
		.as_root = r->as_root,
	};
}

static void begin(struct worker *w, const struct review *r, int sock)
{
	*w = (struct worker){ .r = r, .sock = sock };
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != r->self)
		_exit(1);
}

/* --- the one that shows --- */

static int hash_of(void *arg, uint32_t i, struct hash *out)
{
	const struct worker *w = arg;

	return apply_hash_host(&w->opts, i, out);
}

static void send_items(struct worker *w)
{
	AUTO_BUF struct buf b = { 0 };
	AUTO_BUF struct buf path = { 0 };
	struct compare_change c;
	struct apply_outcome host;

	compare_renames(w->list, hash_of, w, RENAME_FILE_MAX, RENAME_TOTAL_MAX);
	for (uint32_t i = 0; i < compare_count(w->list); i++) {
		compare_get(w->list, i, &c);
		host = (struct apply_outcome){ .change = i };
		/* what is not about to be applied costs no look at the host */
		if (c.status != CHANGESET_APPLIED && !(c.flags & COMPARE_IGNORED))
			apply_check(&w->opts, i, &host);
		if (host.broke_link && (c.kind == COMPARE_MODIFIED || c.kind == COMPARE_TYPE))
			c.flags |= COMPARE_BREAKS_LINK;
		if (i % 16384 == 0) {
			size_t from =
				0; /* pages of the index that were read are not needed again */
			changeset_drop(w->set->index, &from, w->set->index.len);
		}
		b.len = path.len = 0;
		if (compare_path(w->list, i, &path) < 0 ||
		    review_put_item(&b, &c, span_of(path.p, path.len), &host) < 0 ||
		    review_send(w->sock, REVIEW_MSG_ITEM, span_of(b.p, b.len)) < 0)
			_exit(1);
	}
}

/* Changes that a cut-off apply still has to do: looked up, not recovered. */
static void add_plan(struct worker *w, struct buf *b)
{
	AUTO_CLOSE int fd =
		path_open(w->set->dir_fd, span_str("journal"), O_RDONLY | O_NONBLOCK, 0);
	AUTO_FREE char *text = NULL;
	size_t len = 0;

	if (fd < 0 || fd_read_file(fd, 64 * 1024 * 1024, &text, &len) < 0 || len == 0)
		return;
	AUTO_FREE uint32_t *left = NULL;
	size_t n = 0;
	if (apply_planned(&w->opts, span_of(text, len), &left, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		uint8_t v[4];
		struct wr wr = wr_of(v, sizeof(v));
		wr_le(&wr, left[i], 4);
		if (buf_put(b, v, sizeof(v)) < 0)
			return;
	}
}

static void send_summary(struct worker *w)
{
	AUTO_BUF struct buf b = { 0 };
	struct compare_summary s;

	/* both ends are the same binary: the struct itself, its texts checked by the parent */
	compare_summary(w->list, &s);
	if (buf_put(&b, &s, sizeof(s)) < 0)
		_exit(1);
	add_plan(w, &b);
	if (review_send(w->sock, REVIEW_MSG_SUMMARY, span_of(b.p, b.len)) < 0)
		_exit(1);
}

/* Map at most DIFF_BYTES_MAX; larger sides are never looked at. */
static struct span map_side(int fd, uint64_t *out_size)
{
	struct stat st;

	*out_size = 0;
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return (struct span){ 0 };
	*out_size = (uint64_t)st.st_size;
	if (st.st_size == 0 || st.st_size > DIFF_BYTES_MAX)
		return (struct span){ 0 };
	/* read, not mapped: the host's file may shrink meanwhile */
	char *p = malloc((size_t)st.st_size);
	if (!p)
		return (struct span){ 0 };
	size_t n = 0;
	while (n < (size_t)st.st_size) {
		ssize_t k = pread(fd, p + n, (size_t)st.st_size - n, (off_t)n);
		if (k <= 0)
			break;
		n += (size_t)k;
	}
	return span_of(p, n);
}

static int diff_file(struct worker *w, uint32_t i, const struct compare_change *c, struct span path,
                     int flags, struct buf *out, struct diff_stat *stat)
{
	AUTO_CLOSE int old = -1;
	AUTO_CLOSE int new = -1;
	uint64_t a_size, b_size;
	bool same = true, had = c->old_type == MANIFEST_FILE, has = c->new_type == MANIFEST_FILE;

	if (had) {
		old = apply_open_host(&w->opts, i, &same);
		/* what the sandbox made of it is the user's to see in any case */
		if (old < 0 && buf_printf(out, "(the host's file cannot be read: %s)\n",
		                          has ? "this is all of the sandbox's" : "no diff") < 0)
			return -ENOMEM;
		if (old < 0 && !has)
			return 0;
		had = old >= 0;
	}
	if (has && (c->new_size > 0 || changeset_has_blob(w->set, c->ordinal))) {
		new = changeset_blob_open(w->set, c->ordinal);
		if (new < 0)
			return buf_printf(out, "(the change set does not hold its content)\n");
	}
	struct span a = map_side(old, &a_size), b = map_side(new, &b_size);
	int r = 0;
	if (had && !same)
		r = buf_printf(out, "(changed on the host meanwhile: this is against the host's "
		                    "present file)\n");
	if (r == 0 && (a_size > DIFF_BYTES_MAX || b_size > DIFF_BYTES_MAX)) {
		*stat = (struct diff_stat){ .too_big = true };
		r = diff_notice(out, path, stat, a_size, b_size);
	} else if (r == 0) {
		r = diff_render(out, path, a, had, b, has, flags, stat);
	}
	free((void *)(uintptr_t)a.p);
	free((void *)(uintptr_t)b.p);
	return r;
}

static void answer_diff(struct worker *w, uint32_t i, int flags)
{
	AUTO_BUF struct buf path = { 0 };
	AUTO_BUF struct buf out = { 0 };
	struct diff_stat stat = { 0 };
	struct compare_change c;

	if (i >= compare_count(w->list) || buf_put(&out, &stat, sizeof(stat)) < 0 ||
	    compare_path(w->list, i, &path) < 0)
		_exit(1);
	compare_get(w->list, i, &c);
	bool file = c.old_type == MANIFEST_FILE || c.new_type == MANIFEST_FILE;
	int r = 0;
	if (file && c.kind != COMPARE_MODE && c.new_type != MANIFEST_OTHER)
		r = diff_file(w, i, &c, span_of(path.p, path.len), flags, &out, &stat);
	if (r == -ENOMEM || r == -EIO)
		r = buf_printf(&out, "(no diff: out of memory)\n");
	if (r < 0)
		_exit(1);
	memcpy(out.p, &stat, sizeof(stat));
	if (review_send(w->sock, REVIEW_MSG_DIFF, span_of(out.p, out.len)) < 0)
		_exit(1);
}

void review_worker_show(const struct review *r, int sock)
{
	AUTO_BUF struct buf b = { 0 };
	struct worker w;
	struct err err = { 0 };
	uint8_t type;

	begin(&w, r, sock);
	if (diff_init() < 0) {
		(void)err_set(&err, -EIO, "cannot start libgit2");
		fail(&w, &err);
	}
	enter_cage(&w, CAGE_REVIEW);
	load(&w, CHANGESET_READONLY);
	send_items(&w);
	send_summary(&w);
	while (review_recv(sock, &type, &b) == 0) {
		struct rd rd = rd_of(b.p, b.len);
		uint32_t i = (uint32_t)rd_le(&rd, 4), flags = (uint32_t)rd_le(&rd, 4);
		if (type != REVIEW_MSG_DIFF || rd.bad)
			break;
		answer_diff(&w, i, (int)flags);
	}
	_exit(0);
}

/* --- the one that applies --- */

static void report(void *arg, const struct apply_outcome *o)
{
	const struct worker *w = arg;
	AUTO_BUF struct buf b = { 0 };

	/* a parent that is gone is no reason to stop in the middle of a plan: the kernel does it */
	if (review_put_outcome(&b, o) == 0 &&
	    review_send(w->sock, REVIEW_MSG_OUTCOME, span_of(b.p, b.len)) < 0)
		_exit(1);
}

static int open_state(int dir_fd, const char *name, int flags)
{
	AUTO_CLOSE int fd = path_open(dir_fd, span_str(name), flags | O_CREAT | O_NONBLOCK, 0600);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? take_fd(&fd) : -EPROTO;
}

void review_worker_apply(const struct review *r, int sock, const uint32_t *chosen, size_t n)
{
	AUTO_FREE uint32_t *left = NULL;
	struct changeset_counts counts;
	struct err err = { 0 };
	struct worker w;
	size_t n_left = 0;

	begin(&w, r, sock);
	enter_cage(&w, CAGE_APPLY);
	load(&w, 0);
	w.opts.applied_fd = open_state(w.set->dir_fd, "applied", O_WRONLY | O_APPEND);
	w.opts.journal_fd = open_state(w.set->dir_fd, "journal", O_RDWR | O_APPEND);
	if (w.opts.applied_fd < 0 || w.opts.journal_fd < 0) {
		(void)err_code(&err, MIN(w.opts.applied_fd, w.opts.journal_fd),
		               "cannot write the change set's state");
		fail(&w, &err);
	}
	if (apply_recover(&w.opts, &left, &n_left, &err) < 0 ||
	    apply_run(&w.opts, chosen, n, report, &w, &err) < 0)
		fail(&w, &err);
	compare_counts(w.list, &counts);
	if (changeset_settle(w.set, &counts, time(NULL), &err) < 0)
		fail(&w, &err);
	if (review_send(sock, REVIEW_MSG_DONE, span_of("", 0)) < 0)
		_exit(1);
	_exit(0);
}
