/* SPDX-License-Identifier: Apache-2.0 */
#include "review/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "review/apply_priv.h"
#include "review/changeset_priv.h"

enum { X_BITS = 0111 };

int apply_say(struct apply_work *w, enum apply_result result, int code, const char *fmt, ...)
{
	va_list ap;

	w->out->result = (uint8_t)result;
	w->out->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(w->out->text, sizeof(w->out->text), fmt, ap); /* cut is fine */
	va_end(ap);
	if (code < 0) {
		size_t n = strlen(w->out->text);
		char b[64];
		(void)snprintf(w->out->text + n, sizeof(w->out->text) - n, ": %s",
		               strerror_r(-code, b, sizeof(b)));
	}
	return result;
}

static int work_init(struct apply_work *w, const struct apply_opts *o, uint32_t i,
                     struct apply_outcome *out)
{
	*w = (struct apply_work){ .o = o, .i = i, .dir_fd = -1, .project_fd = -1, .out = out };
	*out = (struct apply_outcome){ .change = i };
	compare_get(o->list, i, &w->ch);
	if (w->ch.project != COMPARE_NO_PROJECT)
		w->project_fd = o->project_fds[w->ch.project];
	return compare_path(o->list, i, &w->path);
}

static void work_fini(struct apply_work *w)
{
	auto_close_(&w->dir_fd);
	buf_fini(&w->path);
}

void apply_check(const struct apply_opts *o, uint32_t i, struct apply_outcome *out)
{
	struct apply_work w;

	if (work_init(&w, o, i, out) < 0)
		(void)apply_say(&w, APPLY_FAILED, -ENOMEM, "out of memory");
	else if (apply_verify(&w) == APPLY_GO)
		out->result = APPLY_DONE;
	out->broke_link = w.have_st && S_ISREG(w.st.st_mode) && w.st.st_nlink > 1;
	work_fini(&w);
}

/* What a failed step means for the user. */
static int say_error(struct apply_work *w, int r, const char *what)
{
	if (w->out->text[0])
		return w->out->result; /* the step knew more */
	switch (r) {
	case -ESTALE:
		return apply_say(w, APPLY_CONFLICT, 0, "changed on the host meanwhile");
	case -EBADMSG:
		return apply_say(w, APPLY_REFUSED, r, "its content in the change set is damaged");
	case -EPERM:
		return apply_say(w, APPLY_REFUSED, r, "its owner or attributes cannot be kept");
	case -ENOTDIR:
	case -ELOOP:
	case -EXDEV:
		return apply_say(w, APPLY_CONFLICT, 0,
		                 "a directory above it was replaced on the host");
	default:
		return apply_say(w, APPLY_FAILED, r, "%s", what);
	}
}

/* Make what is missing of the directories above, as the guest had them. */
static int make_parents(struct apply_work *w)
{
	AUTO_CLOSE int at = path_open_dir(w->project_fd, span_of("", 0));
	struct span parent = path_parent(span_of(w->path.p, w->path.len));
	size_t done = 0;
	uint32_t depth = 0;

	if (at < 0)
		return at;
	while (done < parent.len) {
		const uint8_t *slash = memchr(parent.p + done, '/', parent.len - done);
		size_t n = slash ? (size_t)(slash - (parent.p + done)) : parent.len - done;
		char name[PATH_NAME_MAX + 1];
		struct stat st;

		memcpy(name, parent.p + done, n);
		name[n] = '\0';
		depth++;
		w->dir_fd = at;
		int r = apply_make_dir(w, at, name, compare_parent_mode(w->o->list, w->i, depth));
		w->dir_fd = -1;
		if (r < 0 && r != -EEXIST)
			return r;
		bool made = r == 0;
		int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return -errno;
		if (made) {
			if (fsync(at) < 0 || fstat(next, &st) < 0) {
				r = -errno;
				(void)close(next); /* only read */
				return r;
			}
			r = apply_note(w, span_of(parent.p, done + n), &st, NULL);
			if (r < 0) {
				(void)close(next); /* only read */
				return r;
			}
		}
		auto_close_(&at);
		at = next;
		done += n + (slash ? 1 : 0);
	}
	w->dir_fd = take_fd(&at);
	return 0;
}

/* Remove our own temporary thing after a failure; somebody else's under its name stays. */
static void drop_tmp(struct apply_work *w, const char *tmp, const struct stat *ours)
{
	struct stat st;

	if (fstatat(w->dir_fd, tmp, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (ours && (st.st_ino != ours->st_ino || st.st_dev != ours->st_dev))
		return;
	(void)unlinkat(w->dir_fd, tmp, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

static int remove_old_tree(struct apply_work *w)
{
	AUTO_BUF struct buf path = { 0 };

	if (buf_put(&path, w->path.p, w->path.len) < 0)
		return -ENOMEM;
	return apply_remove_tree(w, w->dir_fd, w->name, w->ch.entry, &path);
}

/* A file, a link, or a directory in place of something else. */
static int put_new(struct apply_work *w)
{
	char tmp[COMPARE_TMP_LEN + 1];
	struct stat made = { 0 };

	apply_tmp_name(tmp);
	int r = journal_temp(w->o->journal_fd, w->ch.slot, tmp);
	if (r < 0)
		return say_error(w, r, "cannot write the journal");
	if (w->ch.new_type == MANIFEST_FILE) {
		r = apply_make_file(w, tmp, &made);
	} else if (w->ch.new_type == MANIFEST_LINK) {
		r = apply_make_link(w, tmp, &made);
	} else {
		r = apply_make_dir(w, w->dir_fd, tmp, w->ch.new_mode);
		if (r == 0 && fstatat(w->dir_fd, tmp, &made, AT_SYMLINK_NOFOLLOW) < 0)
			r = -errno;
	}
	if (r < 0) {
		drop_tmp(w, tmp, NULL);
		return say_error(w, r, "cannot write it");
	}
	if (w->have_st && S_ISDIR(w->st.st_mode)) {
		r = remove_old_tree(w);
		w->have_st = false;
		if (r < 0) {
			drop_tmp(w, tmp, &made);
			return r == -ENOTEMPTY ? say_error(w, -ESTALE, "")
			                       : say_error(w, r, "cannot remove the directory");
		}
	}
	r = apply_swap(w, tmp, &made);
	if (r < 0) {
		drop_tmp(w, tmp, &made);
		return say_error(w, r, "cannot put it in place");
	}
	return APPLY_DONE;
}

static int do_delete(struct apply_work *w)
{
	int r;

	if (w->ch.old_type == MANIFEST_DIR) {
		r = remove_old_tree(w);
		if (r == -ENOTEMPTY && w->ch.flags & COMPARE_KEEPS_DIR)
			return apply_say(w, APPLY_DONE, 0,
			                 "the directory stays: it holds things that the sandbox "
			                 "could not see");
		if (r == -ENOTEMPTY)
			r = -ESTALE;
	} else {
		r = apply_remove(w, w->dir_fd, w->name, span_of(w->path.p, w->path.len), &w->st);
	}
	return r < 0 ? say_error(w, r, "cannot delete it") : APPLY_DONE;
}

static int do_mode(struct apply_work *w)
{
	AUTO_CLOSE int fd =
		openat(w->dir_fd, w->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return say_error(w, -errno, "cannot open it");
	apply_hook(w, APPLY_AT_VERIFIED, w->name);
	if (fstat(fd, &st) < 0)
		return say_error(w, -errno, "cannot open it");
	if (st.st_ino != w->st.st_ino || st.st_mode != w->st.st_mode)
		return say_error(w, -ESTALE, "");
	mode_t mode = (st.st_mode & 07777 & ~(mode_t)X_BITS) | (w->ch.new_mode & X_BITS);
	if (fchmod(fd, mode) < 0)
		return say_error(w, -errno, "cannot change its mode");
	return fsync(fd) < 0 ? say_error(w, -errno, "cannot change its mode") : APPLY_DONE;
}

static int act(struct apply_work *w)
{
	w->out->broke_link = w->have_st && S_ISREG(w->st.st_mode) && w->st.st_nlink > 1 &&
	                     w->ch.kind != COMPARE_MODE;
	if (w->dir_fd < 0) {
		int r = make_parents(w);
		if (r < 0)
			return say_error(w, r, "cannot make its directory");
	}
	switch (w->ch.kind) {
	case COMPARE_MODE:
		return do_mode(w);
	case COMPARE_DELETED:
		return do_delete(w);
	default:
		break;
	}
	if (w->ch.kind == COMPARE_ADDED && w->ch.new_type == MANIFEST_DIR) {
		apply_hook(w, APPLY_AT_VERIFIED, w->name);
		int r = apply_make_dir(w, w->dir_fd, w->name, w->ch.new_mode);
		return r < 0 ? say_error(w, r == -EEXIST ? -ESTALE : r, "cannot make it")
		             : APPLY_DONE;
	}
	return put_new(w);
}

/* Record what the host has now, for sets to come. */
static int note_done(struct apply_work *w, bool was_baseline)
{
	struct span path = span_of(w->path.p, w->path.len);
	struct stat st;

	if (w->ch.kind == COMPARE_DELETED) {
		/* a directory that stays was noted name by name */
		return w->out->text[0] ? 0 : apply_note(w, path, NULL, NULL);
	}
	if (w->ch.kind == COMPARE_MODE && w->ch.new_type == MANIFEST_FILE && !was_baseline)
		return 0; /* its content is the user's: not what our hash says */
	if (fstatat(w->dir_fd, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (w->ch.new_type == MANIFEST_FILE && !S_ISREG(st.st_mode))
		return 0;
	if (w->ch.new_type == MANIFEST_LINK) {
		struct hash h;
		hash_bytes(&h, w->ch.link.p, w->ch.link.len);
		return apply_note(w, path, &st, &h);
	}
	return apply_note(w, path, &st, w->ch.new_type == MANIFEST_FILE ? &w->ch.hash : NULL);
}

static enum changeset_status status_of(uint8_t result)
{
	switch ((enum apply_result)result) {
	case APPLY_DONE:
	case APPLY_ALREADY:
		return CHANGESET_APPLIED;
	case APPLY_CONFLICT:
		return CHANGESET_CONFLICT;
	case APPLY_REFUSED:
	case APPLY_BLOCKED:
	case APPLY_FAILED:
		break;
	}
	return CHANGESET_PENDING;
}

static void apply_one(const struct apply_opts *o, uint32_t i, struct apply_outcome *out)
{
	struct apply_work w;
	int r;

	if (work_init(&w, o, i, out) < 0) {
		(void)apply_say(&w, APPLY_FAILED, -ENOMEM, "out of memory");
		work_fini(&w);
		return;
	}
	r = apply_verify(&w);
	bool was_baseline = w.have_st && apply_same_stat(&w.ch.base, &w.st);
	if (r == APPLY_GO) {
		r = act(&w);
		out->result = (uint8_t)r;
		if (journal_over(o->journal_fd, w.ch.slot) < 0)
			(void)0; /* recovery finds nothing under the name and goes on */
	}
	if (r == APPLY_DONE && fsync(w.dir_fd) < 0)
		r = apply_say(&w, APPLY_FAILED, -errno, "cannot sync its directory");
	if (r == APPLY_DONE)
		apply_hook(&w, APPLY_AT_DONE, w.name);
	if ((r == APPLY_DONE || (r == APPLY_ALREADY && w.dir_fd >= 0)) &&
	    note_done(&w, was_baseline) < 0)
		(void)apply_say(&w, APPLY_FAILED, -EIO, "it is in place, but cannot be recorded");
	int e = changeset_status_set(o->set, w.ch.slot, status_of(out->result));
	if (e < 0)
		(void)apply_say(&w, APPLY_FAILED, e, "its status cannot be written");
	work_fini(&w);
}

/* The rest would fail the same way. */
static bool stops(const struct apply_outcome *out)
{
	return out->result == APPLY_FAILED &&
	       (out->code == -ENOSPC || out->code == -EDQUOT || out->code == -EIO ||
	        out->code == -EROFS || out->code == -ENOMEM);
}

/* Pages of the index that were read for a long list are not needed again. */
static void let_go(const struct apply_opts *o, size_t k)
{
	size_t from = 0;

	if (k % 16384 == 16383)
		changeset_drop(o->set->index, &from, o->set->index.len);
}

static int begin(const struct apply_opts *o, const uint32_t *chosen, size_t n, struct err *err)
{
	AUTO_FREE uint32_t *slots = xcalloc(n + 1, sizeof(*slots));
	struct compare_change ch;
	int r = journal_clear(o->journal_fd);

	for (size_t k = 0; k < n; k++) {
		compare_get(o->list, chosen[k], &ch);
		slots[k] = ch.slot;
		let_go(o, k);
	}
	if (r == 0)
		r = journal_plan(o->journal_fd, slots, n);
	return r < 0 ? err_code(err, r, "cannot write the journal") : 0;
}

int apply_run(const struct apply_opts *o, const uint32_t *chosen, size_t n, apply_report_fn report,
              void *arg, struct err *err)
{
	struct apply_outcome out = { 0 };
	int open = 0;
	bool stopped = false;

	for (size_t k = 0; k < n; k++) {
		if (chosen[k] >= compare_count(o->list) || (k && chosen[k] <= chosen[k - 1]))
			return err_set(err, -EINVAL, "not a list of changes");
	}
	int r = begin(o, chosen, n, err);
	if (r < 0)
		return r;
	mode_t old = umask(0);
	for (size_t k = 0; k < n; k++) {
		if (stopped)
			out.change = chosen[k]; /* with the reason of the one that failed */
		else
			apply_one(o, chosen[k], &out);
		stopped = stopped || stops(&out);
		open += out.result != APPLY_DONE && out.result != APPLY_ALREADY;
		if (report)
			report(arg, &out);
		let_go(o, k);
	}
	(void)umask(old);
	if ((o->applied_fd >= 0 && fdatasync(o->applied_fd) < 0) ||
	    changeset_status_sync(o->set) < 0)
		return err_errno(err, "cannot sync the change set's state");
	/* what was not reached stays in the plan only after a crash */
	r = journal_clear(o->journal_fd);
	return r < 0 ? err_code(err, r, "cannot clear the journal") : open;
}

/* --- after a crash --- */

static uint32_t by_slot(const struct apply_opts *o, uint32_t slot)
{
	struct compare_change ch;

	for (uint32_t i = 0; i < compare_count(o->list); i++) {
		compare_get(o->list, i, &ch);
		if (ch.slot == slot)
			return i;
	}
	return COMPARE_NONE;
}

/* Is what lies under the temporary name the baseline's thing from @j->path? */
static bool is_baseline(struct apply_work *w, const struct journal *j, const struct stat *st)
{
	const struct manifest *m = &w->o->set->manifest;
	struct manifest_project p;
	struct manifest_entry e;
	struct stat like = *st;
	struct span path = span_of(j->path.p, j->path.len);

	manifest_project(m, w->ch.project, &p);
	if (!compare_baseline_at(w->o->list, w->ch.project, path, manifest_find(m, p.entry, path),
	                         &e))
		return false;
	/* the rename changed the ctime and nothing else */
	like.st_ctim.tv_sec = e.ctime_ns / 1000000000;
	like.st_ctim.tv_nsec = e.ctime_ns % 1000000000;
	return apply_same_stat(&e, &like);
}

static int undo(struct apply_work *w, const struct journal *j)
{
	struct span path = span_of(j->path.p, j->path.len), base = path_base(path);
	AUTO_CLOSE int fd = path_open_dir(w->project_fd, path_parent(path));
	char name[PATH_NAME_MAX + 1];
	struct stat st;

	if (fd < 0)
		return fd;
	memcpy(name, base.p, base.len);
	name[base.len] = '\0';
	if (j->ino && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == j->ino) {
		/* our new thing has the name, the host's is under the temporary one */
		if (renameat2(w->dir_fd, j->tmp, fd, name, RENAME_EXCHANGE) < 0)
			return -errno;
		return unlinkat(w->dir_fd, j->tmp, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0
		               ? -errno
		               : 0;
	}
	return renameat2(w->dir_fd, j->tmp, fd, name, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

static int recover_step(struct apply_work *w, const struct journal *j)
{
	struct stat st;
	int r = apply_open_parent(w);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (j->made_open)
		drop_tmp(w, j->made, NULL);
	if (fstatat(w->dir_fd, j->tmp, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	bool ours = !j->swap || (j->ino && st.st_ino == j->ino);
	if (ours || is_baseline(w, j, &st))
		return unlinkat(w->dir_fd, j->tmp, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0
		               ? -errno
		               : 0;
	return undo(w, j);
}

static int still_pending(const struct apply_opts *o, const struct journal *j, uint32_t **out,
                         size_t *out_n)
{
	uint32_t slots = compare_slots(o->list);
	AUTO_FREE uint8_t *want = xcalloc(slots / 8 + 1, 1);
	AUTO_FREE uint32_t *left = xcalloc(j->n_plan + 1, sizeof(*left));
	struct compare_change ch;
	size_t n = 0;

	for (size_t k = 0; k < j->n_plan; k++) {
		if (j->plan[k] < slots)
			want[j->plan[k] / 8] |= (uint8_t)(1 << j->plan[k] % 8);
	}
	for (uint32_t i = 0; i < compare_count(o->list) && n < j->n_plan; i++) {
		compare_get(o->list, i, &ch);
		if (want[ch.slot / 8] >> ch.slot % 8 & 1 && ch.status == CHANGESET_PENDING)
			left[n++] = i;
	}
	*out = take_ptr(&left);
	*out_n = n;
	return 0;
}

int apply_planned(const struct apply_opts *o, struct span text, uint32_t **out_left, size_t *out_n)
{
	struct journal j;

	journal_parse(&j, text);
	int r = still_pending(o, &j, out_left, out_n);
	journal_fini(&j);
	return r;
}

int apply_recover(const struct apply_opts *o, uint32_t **out_left, size_t *out_n, struct err *err)
{
	AUTO_FREE char *text = NULL;
	struct journal j;
	size_t len = 0;
	int r = 0;

	*out_left = NULL;
	*out_n = 0;
	if (o->journal_fd < 0)
		return 0;
	if (lseek(o->journal_fd, 0, SEEK_SET) < 0)
		return err_errno(err, "cannot read the journal");
	r = fd_read_file(o->journal_fd, JOURNAL_MAX, &text, &len);
	if (r < 0)
		return err_code(err, r, "cannot read the journal");
	if (len == 0)
		return 0;
	journal_parse(&j, span_of(text, len));
	uint32_t i = j.open ? by_slot(o, j.slot) : COMPARE_NONE;
	if (i != COMPARE_NONE) {
		struct apply_outcome out;
		struct apply_work w;
		r = work_init(&w, o, i, &out);
		if (r == 0)
			r = recover_step(&w, &j);
		if (r < 0) {
			char shown[200];
			(void)err_code(err, r,
			               "cannot finish what was begun for '%s' (temporary name %s)",
			               vis_str(shown, sizeof(shown), span_of(w.path.p, w.path.len)),
			               j.tmp);
		}
		work_fini(&w);
	}
	if (r == 0)
		r = still_pending(o, &j, out_left, out_n);
	if (r == 0)
		r = journal_clear(o->journal_fd);
	journal_fini(&j);
	return r < 0 ? r : 1;
}

/* --- for renames and diffs --- */

int apply_hash_host(const struct apply_opts *o, uint32_t i, struct hash *out)
{
	struct apply_outcome ignored;
	struct apply_work w;
	struct stat st;
	int r = work_init(&w, o, i, &ignored);

	if (r == 0)
		r = apply_open_parent(&w);
	if (r == 0 && fstatat(w.dir_fd, w.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r == 0 && (w.ch.old_type != MANIFEST_FILE || !apply_same_stat(&w.ch.base, &st)))
		r = -ESTALE;
	if (r == 0)
		r = apply_hash_at(w.dir_fd, w.name, &st, out);
	work_fini(&w);
	return r;
}

int apply_open_host(const struct apply_opts *o, uint32_t i, bool *out_same)
{
	struct apply_outcome ignored;
	struct apply_work w;
	struct stat st;
	int fd = -1, r = work_init(&w, o, i, &ignored);

	if (r == 0)
		r = apply_open_parent(&w);
	if (r == 0) {
		fd = openat(w.dir_fd, w.name,
		            O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
		r = fd < 0 ? -errno : fstat(fd, &st) < 0 ? -errno : 0;
	}
	if (r == 0 && !S_ISREG(st.st_mode))
		r = -EINVAL;
	if (r == 0)
		*out_same = apply_same_stat(&w.ch.base, &st);
	if (r < 0)
		auto_close_(&fd);
	work_fini(&w);
	return r < 0 ? r : fd;
}

const char *apply_result_str(uint8_t result)
{
	static const char *const text[] = {
		[APPLY_DONE] = "applied",      [APPLY_ALREADY] = "already there",
		[APPLY_CONFLICT] = "conflict", [APPLY_REFUSED] = "refused",
		[APPLY_BLOCKED] = "blocked",   [APPLY_FAILED] = "failed",
	};

	return result < ARRAY_LEN(text) ? text[result] : "unknown";
}
