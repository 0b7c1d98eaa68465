/* SPDX-License-Identifier: Apache-2.0 */
#include "review/review.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "review/changeset_priv.h"
#include "review/review_priv.h"

/* --- which set --- */

/* Is @cwd the directory @path or below it? The length of @path without a last slash, or -1. */
static ssize_t around(const char *path, const char *cwd)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		n--;
	return strncmp(path, cwd, n) == 0 && (cwd[n] == '\0' || cwd[n] == '/') ? (ssize_t)n : -1;
}

static bool same_dir(const struct changeset_project *p, const struct stat *st)
{
	return p->ino == st->st_ino && p->dev == (uint64_t)st->st_dev;
}

ssize_t review_project_in(const struct changeset_project *p, const char *cwd)
{
	char up[PATH_MAX];
	struct stat st;

	if (!cwd || cwd[0] != '/') /* it was removed */
		return -1;
	ssize_t n = around(p->path, cwd);
	if (n >= 0 || snprintf(up, sizeof(up), "%s", cwd) >= (int)sizeof(up))
		return n;
	for (;;) {
		if (stat(up[0] ? up : "/", &st) == 0 && same_dir(p, &st))
			return (ssize_t)strlen(up);
		char *slash = strrchr(up, '/');
		if (!slash)
			return -1;
		*slash = '\0';
	}
}

static bool set_is_around(const struct changeset_meta *m, const char *cwd)
{
	for (uint32_t i = 0; i < m->n_projects; i++) {
		if (review_project_in(&m->projects[i], cwd) >= 0)
			return true;
	}
	return false;
}

static bool wanted(const struct changeset_meta *m, const char *want, const char *cwd)
{
	char name[140];

	if (!want)
		return set_is_around(m, cwd);
	if (strcmp(m->id, want) == 0)
		return true;
	(void)snprintf(name, sizeof(name), "%s@%s", m->agent, m->session);
	return m->session[0] && strcmp(name, want) == 0;
}

int review_find(const struct review_env *env, const char *want, const char *cwd, char *out_id,
                struct changeset_list *out_several, struct err *err)
{
	struct changeset_list all, hit = { 0 };
	int r = changeset_list(env->changes_fd, &all, err);

	if (r < 0)
		return r;
	hit.sets = xcalloc(all.n + 1, sizeof(*hit.sets));
	for (size_t i = 0; i < all.n; i++) {
		struct changeset_meta *m = &all.sets[i];
		bool open = m->closed_s == 0;
		/* by its id a closed set is meant, too */
		if (wanted(m, want, cwd) && (open || (want && strcmp(m->id, want) == 0))) {
			hit.sets[hit.n++] = *m;
			*m = (struct changeset_meta){ 0 };
		}
	}
	changeset_list_fini(&all);
	/* of a session the newest one counts: it holds what the older ones had */
	if (hit.n == 1 || (hit.n > 1 && want)) {
		(void)snprintf(out_id, CHANGESET_ID_MAX + 1, "%s", hit.sets[hit.n - 1].id);
		changeset_list_fini(&hit);
		return 0;
	}
	if (hit.n == 0) {
		char shown[200];
		changeset_list_fini(&hit);
		if (want)
			return err_set(err, -ENOENT, "no change set '%s'",
			               vis_str(shown, sizeof(shown), span_str(want)));
		(void)err_set(err, -ENOENT, "nothing to review for this directory");
		return err_hint(err, "cloche changes lists all change sets");
	}
	(void)err_set(err, -ENOTUNIQ, "%zu change sets are open for this project", hit.n);
	(void)err_hint(err, "name one with -c ID");
	if (out_several)
		*out_several = hit;
	else
		changeset_list_fini(&hit);
	return -ENOTUNIQ;
}

/* --- opening --- */

static int compare_fd(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Everything but these: a worker must not hold the terminal or another set. */
static void keep_only(int *fds, size_t n)
{
	int next = 3;

	qsort(fds, n, sizeof(*fds), compare_fd);
	for (size_t i = 0; i < n; i++) {
		if (fds[i] > next)
			(void)close_range((unsigned)next, (unsigned)fds[i] - 1, 0);
		if (fds[i] >= next)
			next = fds[i] + 1;
	}
	(void)close_range((unsigned)next, ~0u, 0);
}

static void child_begin(const struct review *r, int sock, bool apply)
{
	size_t max = 4 + 2 * (size_t)r->meta.n_projects + r->n_applied, n = 0;
	int *fds = xcalloc(max, sizeof(*fds));
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; i < 3; i++) {
		if (null < 0 || dup2(null, i) < 0)
			_exit(1);
	}
	fds[n++] = sock;
	fds[n++] = r->dir_fd;
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		if (r->project_fds[i] >= 0)
			fds[n++] = r->project_fds[i];
		/* what writes holds the locks, too: it may outlive a parent that is killed */
		if (apply && r->project_locks[i] >= 0)
			fds[n++] = r->project_locks[i];
	}
	if (apply && r->lock_fd >= 0)
		fds[n++] = r->lock_fd;
	for (size_t i = 0; i < r->n_applied; i++)
		fds[n++] = r->applied_fds[i];
	keep_only(fds, n);
	free(fds);
	/* the terminal's signals are the parent's business; it ends us by closing the socket */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGQUIT, SIG_IGN);
	(void)signal(SIGTSTP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
}

static void free_item(struct review_item *it)
{
	free(it->path);
	free(it->link);
	free(it->old_link);
	free(it->renamed);
	free(it->host_text);
	free(it->reason);
	buf_fini(&it->raw);
	*it = (struct review_item){ 0 };
}

static void drop_list(struct review *r)
{
	for (size_t i = 0; i < ARRAY_LEN(r->ring); i++)
		free_item(&r->ring[i]);
	review_store_fini(&r->raw);
	free(r->at);
	free(r->heads);
	free(r->status);
	free(r->host);
	free(r->interrupted);
	r->at = NULL;
	r->heads = NULL;
	r->status = r->host = NULL;
	r->interrupted = NULL;
	r->n_items = 0;
}

static int start(struct review *r, const uint32_t *chosen, size_t n, bool apply, pid_t *out_pid,
                 int *out_sock, struct err *err)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return err_errno(err, "cannot start the review worker");
	r->self = getpid();
	(void)fflush(NULL); /* what is buffered is the parent's to write, once */
	pid_t pid = fork();
	if (pid < 0) {
		int e = errno;
		(void)close(sv[0]); /* unused */
		(void)close(sv[1]);
		return err_code(err, -e, "cannot start the review worker");
	}
	if (pid == 0) {
		drop_list(r); /* the parent's; it makes its own */
		child_begin(r, sv[1], apply);
		if (apply)
			review_worker_apply(r, sv[1], chosen, n);
		review_worker_show(r, sv[1]);
	}
	(void)close(sv[1]); /* the child's */
	*out_pid = pid;
	*out_sock = sv[0];
	return 0;
}

/* Close the socket and reap. Return: 0, or -ECHILD with @err when it died of something. */
static int finish(pid_t *pid, int *sock, struct err *err)
{
	int status = 0;

	auto_close_(sock);
	*sock = -1;
	if (*pid <= 0)
		return 0;
	while (waitpid(*pid, &status, 0) < 0 && errno == EINTR)
		;
	*pid = 0;
	if (WIFSIGNALED(status))
		return err_set(err, -ECHILD, "the review worker was killed by signal %d",
		               WTERMSIG(status));
	return 0;
}

static int take_error(struct span b, struct err *err)
{
	struct rd r = rd_of(b.p, b.len);
	int code = (int)(uint32_t)rd_le(&r, 4);
	char text[ERR_TEXT_BYTES], hint[ERR_HINT_BYTES];
	const uint8_t *nul = r.left ? memchr(r.p, '\0', r.left) : NULL;

	if (r.bad || code >= 0 || code < -4095 || !nul)
		return err_set(err, -EPROTO, "the review worker answered nonsense");
	size_t n = (size_t)(nul - r.p);
	(void)vis_str(text, sizeof(text), span_of(r.p, n));
	(void)vis_str(hint, sizeof(hint), span_of(nul + 1, r.left - n - 1));
	(void)err_set(err, code, "%s", text);
	return hint[0] ? err_hint(err, "%s", hint) : code;
}

static int grow_items(struct review *r)
{
	if (r->n_items >= CHANGE_RECORDS_MAX + MANIFEST_ENTRIES_MAX)
		return -EPROTO;
	if (r->n_items < r->cap_items)
		return 0;
	uint32_t cap = r->cap_items ? r->cap_items * 2 : 64;
	void *at = realloc(r->at, ((size_t)cap + 1) * sizeof(*r->at));
	if (!at)
		return -ENOMEM;
	r->at = at;
	void *heads = realloc(r->heads, (size_t)cap * sizeof(*r->heads));
	if (!heads)
		return -ENOMEM;
	r->heads = heads;
	void *status = realloc(r->status, cap);
	if (!status)
		return -ENOMEM;
	r->status = status;
	void *host = realloc(r->host, cap);
	if (!host)
		return -ENOMEM;
	r->host = host;
	r->cap_items = cap;
	return 0;
}

static int take_item(struct review *r, struct span b)
{
	struct review_item it;
	int e = grow_items(r);

	if (e < 0)
		return e;
	e = review_get_item(&it, b, r->meta.n_projects);
	if (e < 0)
		return e;
	if (it.c.renamed != COMPARE_NONE)
		r->renamed_end = MAX(r->renamed_end, it.c.renamed + 1);
	r->heads[r->n_items] = (struct review_head){
		.slot = it.c.slot, .project = it.c.project, .flags = it.c.flags, .tier = it.c.tier
	};
	r->status[r->n_items] = it.c.status;
	r->host[r->n_items] = REVIEW_HOST_AS_SENT;
	free_item(&it);
	r->at[r->n_items] = review_store_len(&r->raw);
	e = review_store_put(&r->raw, r->env.changes_fd, b);
	if (e == 0)
		r->at[++r->n_items] = review_store_len(&r->raw);
	return e;
}

static int take_summary(struct review *r, struct span b)
{
	struct rd rd = rd_of(b.p, b.len);
	struct span s = rd_take(&rd, sizeof(r->summary));

	if (rd.bad || !s.p || rd.left % 4)
		return -EPROTO;
	memcpy(&r->summary, s.p, sizeof(r->summary));
	struct compare_git *g = &r->summary.git;
	if (g->n_ref > ARRAY_LEN(g->ref))
		return -EPROTO;
	/* a truth value from another process may be any byte */
	for (size_t i = offsetof(struct compare_git, head);
	     i <= offsetof(struct compare_git, hooks); i++)
		((uint8_t *)g)[i] = ((uint8_t *)g)[i] != 0;
	for (uint32_t i = 0; i < g->n_ref; i++) {
		char shown[sizeof(g->ref[0])];
		size_t n = strnlen(g->ref[i], sizeof(g->ref[i]) - 1);
		AUTO_BUF struct buf v = { 0 };
		if (vis_put(&v, span_of(g->ref[i], n), VIS_KEEP_BACKSLASH) < 0)
			return -ENOMEM;
		n = MIN(v.len, sizeof(shown) - 1);
		memcpy(shown, v.p ? (const char *)v.p : "", n);
		shown[n] = '\0';
		memcpy(g->ref[i], shown, sizeof(shown));
	}
	r->interrupted = xcalloc(rd.left / 4 + 1, sizeof(*r->interrupted));
	while (rd.left) {
		uint32_t i = (uint32_t)rd_le(&rd, 4);
		if (i >= r->n_items)
			return -EPROTO;
		r->interrupted[r->n_interrupted++] = i;
	}
	return 0;
}

/* Shown paths name the project when there are several. */
static void name_project(const struct review *r, struct review_item *it)
{
	if (it->c.project == COMPARE_NO_PROJECT || r->meta.n_projects < 2)
		return;
	const char *name = r->names[it->c.project];
	struct buf raw = { 0 };
	if (buf_put(&raw, name, strlen(name)) < 0 || buf_put(&raw, "/", 1) < 0 ||
	    buf_put(&raw, it->raw.p, it->raw.len) < 0) {
		buf_fini(&raw);
		return; /* without memory the short form is better than none */
	}
	buf_fini(&it->raw);
	it->raw = raw;
	free(it->path);
	it->path = vis_dup(span_of(raw.p, raw.len));
	it->raw_ok = span_eq(span_of(raw.p, raw.len), span_str(it->path));
}

static void decode(struct review *r, uint32_t i, struct review_item *out)
{
	/* it was accepted when it came: only memory can be missing, and that aborts */
	struct span b = review_store_get(&r->raw, r->at[i], (size_t)(r->at[i + 1] - r->at[i]));
	int e = review_get_item(out, b, r->meta.n_projects);

	ASSERT(e == 0);
	out->c.status = r->status[i];
	if (r->host[i] != REVIEW_HOST_AS_SENT) {
		out->host = r->host[i];
		free(out->host_text);
		out->host_text = NULL;
	}
	name_project(r, out);
}

static int receive_list(struct review *r, struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	uint8_t type = 0;
	int e;

	do {
		e = review_recv(r->sock, &type, &b);
		if (e < 0)
			break;
		struct span s = span_of(b.p, b.len);
		switch (type) {
		case REVIEW_MSG_ITEM:
			e = take_item(r, s);
			break;
		case REVIEW_MSG_SUMMARY:
			e = take_summary(r, s);
			break;
		case REVIEW_MSG_ERROR:
			return take_error(s, err);
		default:
			e = -EPROTO;
			break;
		}
	} while (e == 0 && type != REVIEW_MSG_SUMMARY);
	/* the other half of a rename must be an item, too */
	if (e == 0 && r->renamed_end > r->n_items)
		e = -EPROTO;
	if (e == 0)
		return 0;
	struct err why = { 0 };
	if (e == -EPIPE && finish(&r->pid, &r->sock, &why) < 0) {
		*err = why;
		return why.code;
	}
	return err_code(err, e, "the review worker gave up");
}

/* --- */

/* Another directory under the same path is not the project. -ENOENT, -ESTALE for such a one. */
static int open_project(const struct changeset_project *p, const char *cwd)
{
	struct stat st;
	AUTO_CLOSE int fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* the device's number may change with a boot, the inode's does not */
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == p->ino)
		return take_fd(&fd);
	/* moved, and not replaced: what stands at its path is the user's word against ours */
	bool gone = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
	ssize_t n = gone ? review_project_in(p, cwd) : -1;
	if (n < 0)
		return gone ? -ENOENT : -ESTALE;
	AUTO_FREE char *moved = n ? xstrndup(cwd, (size_t)n) : xstrdup("/");
	AUTO_CLOSE int at = open(moved, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return at >= 0 && fstat(at, &st) == 0 && same_dir(p, &st) ? take_fd(&at) : -ENOENT;
}

/* By the rule that named them for the guest: "demo", "demo-2". */
static void name_projects(struct review *r)
{
	r->names = xcalloc(r->meta.n_projects + 1, sizeof(*r->names));
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		const char *slash = strrchr(r->meta.projects[i].path, '/');
		const char *base = slash && slash[1] ? slash + 1 : "root";
		char *name = xstrdup(base);
		for (uint32_t k = 2, j = 0; j < i; j++) {
			if (strcmp(r->names[j], name) != 0)
				continue;
			free(name);
			name = xasprintf("%.240s-%u", base, k++);
			j = UINT32_MAX; /* from the first again */
		}
		r->names[i] = name;
	}
}

/* Which project @to stands for, or -EINVAL. */
static int project_of(const struct review *r, const struct review_to *to, struct err *err)
{
	AUTO_BUF struct buf all = { 0 };
	char shown[80];

	if (!to->project && r->meta.n_projects == 1)
		return 0;
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		if (to->project && strcmp(to->project, r->names[i]) == 0)
			return (int)i;
		if (buf_printf(&all, "%s%s", i ? ", " : "",
		               vis_str(shown, sizeof(shown), span_str(r->names[i]))) < 0)
			return err_set(err, -ENOMEM, "out of memory");
	}
	if (to->project)
		(void)err_set(err, -EINVAL, "no project of the change set is named '%s'",
		              vis_str(shown, sizeof(shown), span_str(to->project)));
	else
		(void)err_set(err, -EINVAL, "the change set is of %u projects", r->meta.n_projects);
	return err_hint(err, "say which one: --to NAME=DIR; it has %.*s", (int)all.len,
	                (const char *)all.p);
}

static int open_projects(struct review *r, struct err *err)
{
	struct stat st;

	r->project_fds = xcalloc(r->meta.n_projects + 1, sizeof(int));
	r->project_locks = xcalloc(r->meta.n_projects + 1, sizeof(int));
	r->places = xcalloc(r->meta.n_projects + 1, sizeof(*r->places));
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		r->project_locks[i] = r->project_fds[i] = -1;
		r->places[i] = r->meta.projects[i];
		r->places[i].path = xstrdup(r->meta.projects[i].path);
	}
	for (size_t k = 0; k < r->env.n_to; k++) {
		const struct review_to *to = &r->env.to[k];
		int i = project_of(r, to, err);
		if (i < 0)
			return i;
		if (r->project_fds[i] >= 0)
			return err_set(err, -EINVAL, "project '%s' is given two directories",
			               r->names[i]);
		r->project_fds[i] = fcntl(to->fd, F_DUPFD_CLOEXEC, 3);
		if (r->project_fds[i] < 0 || fstat(to->fd, &st) < 0)
			return err_errno(err, "cannot look at the project");
		free(r->places[i].path);
		r->places[i] = (struct changeset_project){ .path = xstrdup(to->path),
			                                   .dev = (uint64_t)st.st_dev,
			                                   .ino = st.st_ino };
	}
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		if (r->project_fds[i] < 0)
			r->project_fds[i] = open_project(&r->meta.projects[i], r->env.cwd);
	}
	return 0;
}

/* With nothing to write to, say so once and not for each path. */
static int some_project(const struct review *r, struct err *err)
{
	char shown[200];

	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		if (r->project_fds[i] >= 0)
			return 0;
	}
	if (r->meta.n_projects == 0)
		return 0;
	(void)vis_str(shown, sizeof(shown), span_str(r->meta.projects[0].path));
	if (r->project_fds[0] == -ENOENT)
		(void)err_set(err, -ESTALE, "project '%s' is not there any more", shown);
	else
		(void)err_set(err, -ESTALE, "'%s' is not the directory that the sandbox saw",
		              shown);
	return err_hint(err,
	                "if it was moved, restored or cloned anew: --to DIR names it; what differs "
	                "there from what the sandbox saw is a conflict");
}

/* What was applied from the other sets of the same sandbox is part of the baseline. */
static int open_applied(struct review *r, struct err *err)
{
	struct changeset_list l;
	int e = changeset_list(r->env.changes_fd, &l, err);

	if (e < 0)
		return e;
	r->applied_fds = xcalloc(l.n + 1, sizeof(int));
	for (size_t i = 0; i < l.n; i++) {
		const struct changeset_meta *m = &l.sets[i];
		if (!m->sandbox[0] || strcmp(m->sandbox, r->meta.sandbox) != 0 ||
		    strcmp(m->id, r->meta.id) == 0)
			continue;
		AUTO_CLOSE int dir = path_open_dir(r->env.changes_fd, span_str(m->id));
		int fd = dir < 0 ? -1
		                 : path_open(dir, span_str("applied"), O_RDONLY | O_NONBLOCK, 0);
		if (fd >= 0)
			r->applied_fds[r->n_applied++] = fd;
	}
	changeset_list_fini(&l);
	return 0;
}

static int open_set(struct review *r, const char *id, bool readonly, struct err *err)
{
	if (!changeset_id_ok(id))
		return err_set(err, -ENOENT, "no change set has that name");
	r->dir_fd = path_open_dir(r->env.changes_fd, span_str(id));
	if (r->dir_fd < 0)
		return err_code(err, r->dir_fd, "cannot open change set '%s'", id);
	if (!readonly) {
		r->lock_fd = changeset_lock(r->dir_fd);
		if (r->lock_fd == -EWOULDBLOCK)
			return err_set(err, -EBUSY,
			               "change set '%s' is being reviewed or applied elsewhere",
			               id);
		if (r->lock_fd < 0)
			return err_code(err, r->lock_fd, "cannot lock change set '%s'", id);
		r->status_fd = path_open(r->dir_fd, span_str("status"), O_RDWR | O_NONBLOCK, 0);
		if (r->status_fd < 0)
			return err_code(err, r->status_fd, "cannot open change set '%s'", id);
	}
	int e = changeset_meta_read(r->dir_fd, &r->meta, err);
	if (e == 0)
		e = open_applied(r, err);
	if (e < 0)
		return err_wrap(err, "change set '%s'", id);
	name_projects(r);
	e = open_projects(r, err);
	return e < 0 || readonly ? e : some_project(r, err);
}

static int review_open_any(struct review **out, const struct review_env *env, const char *id,
                           bool readonly, struct err *err)
{
	struct review *r = xcalloc(1, sizeof(*r));

	r->env = *env;
	r->dir_fd = r->lock_fd = r->status_fd = r->sock = r->raw.fd = -1;
	r->mask = umask(0);
	(void)umask(r->mask); /* the only way to read it */
	r->as_root = geteuid() == 0;
	int e = open_set(r, id, readonly, err);
	if (e == 0)
		e = start(r, NULL, 0, false, &r->pid, &r->sock, err);
	if (e == 0)
		e = receive_list(r, err);
	if (e < 0) {
		review_close(r);
		return e;
	}
	r->dirty = !r->meta.counted && !readonly;
	*out = r;
	return 0;
}

int review_open(struct review **out, const struct review_env *env, const char *id, struct err *err)
{
	return review_open_any(out, env, id, false, err);
}

int review_open_readonly(struct review **out, const struct review_env *env, const char *id,
                         struct err *err)
{
	return review_open_any(out, env, id, true, err);
}

static void settle(struct review *r)
{
	struct changeset_counts c;

	review_counts(r, &c);
	bool open = c.pending || c.conflict;
	r->meta.counts = c;
	r->meta.counted = true;
	if (open)
		r->meta.closed_s = 0;
	else if (!r->meta.closed_s)
		r->meta.closed_s = time(NULL);
	/* only a summary: the statuses are written already, and the next opening counts again */
	if (changeset_meta_write(r->dir_fd, &r->meta, NULL) == 0)
		r->dirty = false;
}

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; fds && i < n; i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]); /* only read, or a lock */
	}
	free(fds);
}

void review_close(struct review *r)
{
	if (!r)
		return;
	(void)finish(&r->pid, &r->sock, NULL);
	if (r->dirty && r->lock_fd >= 0)
		settle(r);
	drop_list(r);
	for (uint32_t i = 0; r->names && i < r->meta.n_projects; i++)
		free(r->names[i]);
	free(r->names);
	for (uint32_t i = 0; r->places && i < r->meta.n_projects; i++)
		free(r->places[i].path);
	free(r->places);
	close_all(r->project_fds, r->project_fds ? r->meta.n_projects : 0);
	close_all(r->project_locks, r->project_locks ? r->meta.n_projects : 0);
	close_all(r->applied_fds, r->n_applied);
	if (r->dir_fd >= 0)
		(void)close(r->dir_fd);
	if (r->lock_fd >= 0)
		(void)close(r->lock_fd);
	if (r->status_fd >= 0)
		(void)close(r->status_fd); /* every status was written by itself */
	changeset_meta_fini(&r->meta);
	free(r);
}

const struct changeset_meta *review_meta(const struct review *r)
{
	return &r->meta;
}

const struct changeset_project *review_place(const struct review *r, uint32_t i)
{
	ASSERT(i < r->meta.n_projects);
	return &r->places[i];
}

uint32_t review_count(const struct review *r)
{
	return r->n_items;
}

const struct review_item *review_item(const struct review *cr, uint32_t i)
{
	/* the ring is a cache: what the caller sees of @cr does not change */
	struct review *r = (struct review *)(uintptr_t)cr;

	ASSERT(i < r->n_items);
	for (size_t k = 0; k < ARRAY_LEN(r->ring); k++) {
		if (r->ring[k].path && r->ring_of[k] == i)
			return &r->ring[k];
	}
	unsigned k = r->ring_next;
	r->ring_next = (k + 1) % ARRAY_LEN(r->ring);
	free_item(&r->ring[k]);
	decode(r, i, &r->ring[k]);
	r->ring_of[k] = i;
	if (r->ring[k].c.renamed != COMPARE_NONE) {
		struct review_item other;
		decode(r, r->ring[k].c.renamed, &other);
		r->ring[k].renamed = xstrdup(other.path);
		free_item(&other);
	}
	return &r->ring[k];
}

/* Something about @i changed: it is decoded again when it is asked for. */
static void set_status(struct review *r, uint32_t i, uint8_t status, uint8_t host)
{
	r->status[i] = status;
	r->host[i] = host;
	for (size_t k = 0; k < ARRAY_LEN(r->ring); k++) {
		if (r->ring[k].path && r->ring_of[k] == i) {
			/* in place: a caller may hold it */
			r->ring[k].c.status = status;
			if (host != REVIEW_HOST_AS_SENT)
				r->ring[k].host = host;
		}
	}
}

const struct compare_summary *review_summary(const struct review *r)
{
	return &r->summary;
}

void review_counts(const struct review *r, struct changeset_counts *out)
{
	*out = (struct changeset_counts){ .aside = r->summary.git.paths };
	for (uint32_t i = 0; i < r->n_items; i++) {
		struct review_head h;
		review_head(r, i, &h);
		if (h.flags & COMPARE_REFUSED ||
		    (h.flags & COMPARE_IGNORED && r->status[i] == CHANGESET_PENDING))
			out->aside++;
		else if (r->status[i] == CHANGESET_PENDING)
			out->pending++;
		else if (r->status[i] == CHANGESET_APPLIED)
			out->applied++;
		else if (r->status[i] == CHANGESET_REJECTED)
			out->rejected++;
		else
			out->conflict++;
	}
}

const uint32_t *review_interrupted(const struct review *r, size_t *out_n)
{
	*out_n = r->n_interrupted;
	return r->interrupted;
}

int review_diff(struct review *r, uint32_t i, int flags, struct buf *out, struct diff_stat *stat,
                struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	uint8_t ask[8], type = 0;
	struct wr w = wr_of(ask, sizeof(ask));

	ASSERT(i < r->n_items);
	wr_le(&w, i, 4);
	wr_le(&w, (uint32_t)flags, 4);
	int e = r->sock < 0 ? -EPIPE
	                    : review_send(r->sock, REVIEW_MSG_DIFF, span_of(ask, sizeof(ask)));
	if (e == 0)
		e = review_recv(r->sock, &type, &b);
	if (e == 0 && (type != REVIEW_MSG_DIFF || b.len < sizeof(*stat)))
		e = -EPROTO;
	if (e < 0) {
		struct err why = { 0 };
		if (finish(&r->pid, &r->sock, &why) < 0) {
			if (err)
				*err = why;
			return why.code;
		}
		return err_code(err, e, "the review worker gave up");
	}
	struct rd rd = rd_of(b.p, b.len);
	struct span s = rd_take(&rd, sizeof(*stat));
	uint8_t raw[sizeof(*stat)];
	ASSERT(s.p); /* the length was checked above */
	memcpy(raw, s.p, sizeof(raw));
	/* the flags of a struct from another process must not be other values than 0 and 1 */
	struct rd f = rd_of(raw, sizeof(raw));
	stat->added = (uint32_t)rd_le(&f, 4);
	stat->removed = (uint32_t)rd_le(&f, 4);
	stat->binary = raw[offsetof(struct diff_stat, binary)] != 0;
	stat->too_big = raw[offsetof(struct diff_stat, too_big)] != 0;
	stat->cut = raw[offsetof(struct diff_stat, cut)] != 0;
	if (flags & DIFF_RAW)
		return buf_put(out, rd.p, rd.left);
	return review_clean_text(out, span_of(rd.p, rd.left), flags);
}

/* --- choosing --- */

static bool selected(const struct review *r, uint32_t i, const struct review_head *h, int select)
{
	if (select & REVIEW_LOOK)
		return true;
	if (h->flags & COMPARE_REFUSED || r->status[i] == CHANGESET_APPLIED)
		return false;
	if (h->flags & COMPARE_IGNORED && !(select & REVIEW_IGNORED))
		return false;
	return select & REVIEW_ALL || r->status[i] == CHANGESET_PENDING;
}

int review_select(const struct review *r, int select, uint32_t **out, size_t *out_n,
                  uint32_t *out_skipped)
{
	uint32_t *list = calloc(r->n_items + 1u, sizeof(*list));
	uint32_t skipped = 0;
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->n_items; i++) {
		struct review_head h;
		review_head(r, i, &h);
		if (!selected(r, i, &h, select))
			continue;
		if (h.tier == CLASSIFY_AUTO) { /* only by naming its path */
			skipped++;
			continue;
		}
		list[n++] = i;
	}
	*out = list;
	*out_n = n;
	if (out_skipped)
		*out_skipped = skipped;
	return 0;
}

/* Join @rel and @arg, resolving "." and ".." by their text; false when it leaves the project. */
static bool clean_join(struct buf *out, const char *rel, const char *arg)
{
	AUTO_BUF struct buf all = { 0 };

	out->len = 0;
	if (buf_put(&all, rel, strlen(rel)) < 0 || buf_put(&all, "/", 1) < 0 ||
	    buf_put(&all, arg, strlen(arg)) < 0)
		return false;
	for (struct span s = span_of(all.p, all.len); s.len;) {
		const uint8_t *slash = memchr(s.p, '/', s.len);
		size_t n = slash ? (size_t)(slash - s.p) : s.len;
		struct span c = span_of(s.p, n);
		n += slash ? 1 : 0;
		s = span_of(s.p + n, s.len - n);
		if (c.len == 0 || span_eq(c, span_str(".")))
			continue;
		if (span_eq(c, span_str(".."))) {
			if (out->len == 0)
				return false;
			out->len = path_parent(span_of(out->p, out->len)).len;
			continue;
		}
		if ((out->len && buf_put(out, "/", 1) < 0) || buf_put(out, c.p, c.len) < 0)
			return false;
	}
	return true;
}

/* An absolute path must be one below a project's own. */
static bool join(const struct review *r, struct buf *out, const char *cwd_rel, const char *arg)
{
	if (arg[0] != '/')
		return clean_join(out, cwd_rel, arg);
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		ssize_t n = around(r->places[i].path, arg);
		if (n < 0)
			continue;
		const char *name = r->meta.n_projects > 1 ? r->names[i] : "";
		return clean_join(out, name, arg + n);
	}
	return false;
}

static bool below(struct span dir, struct span path)
{
	if (dir.len == 0)
		return true;
	return path.len > dir.len && memcmp(path.p, dir.p, dir.len) == 0 && path.p[dir.len] == '/';
}

/* An argument names an item by its bytes, or by its visible form as it was printed. */
static size_t mark(const struct review *r, struct span want, const char *typed, int select,
                   uint8_t *marks)
{
	size_t n = 0;

	for (uint32_t i = 0; i < r->n_items; i++) {
		const struct review_item *it = review_item(r, i);
		struct span raw = span_of(it->raw.p, it->raw.len);
		bool exact = span_eq(raw, want) || strcmp(it->path, typed) == 0;
		struct review_head h;

		if (!exact && !below(want, raw))
			continue;
		n++;
		review_head(r, i, &h);
		/* naming a directory is not naming what runs by itself in it, or was decided */
		if (exact || select & REVIEW_LOOK ||
		    (h.tier != CLASSIFY_AUTO && selected(r, i, &h, select)))
			marks[i] = 1;
	}
	return n;
}

int review_match(const struct review *r, const char *cwd_rel, char *const *paths, size_t n_paths,
                 int select, uint32_t **out, size_t *out_n, struct err *err)
{
	AUTO_FREE uint8_t *marks = xcalloc(r->n_items + 1u, 1);
	AUTO_BUF struct buf want = { 0 };
	char shown[200];
	size_t n = 0;

	for (size_t k = 0; k < n_paths; k++) {
		/* of a variable that is not set: not the whole project */
		if (paths[k][0] == '\0')
			return err_set(err, -EINVAL, "an empty word names no path");
		if (!join(r, &want, cwd_rel, paths[k]))
			return err_set(err, -ENOENT, "'%s' is not in the project",
			               vis_str(shown, sizeof(shown), span_str(paths[k])));
		if (mark(r, span_of(want.p, want.len), paths[k], select, marks) == 0)
			return err_set(err, -ENOENT, "nothing changed at '%s'",
			               vis_str(shown, sizeof(shown), span_str(paths[k])));
	}
	uint32_t *list = xcalloc(r->n_items + 1u, sizeof(*list));
	for (uint32_t i = 0; i < r->n_items; i++) {
		if (marks[i])
			list[n++] = i;
	}
	*out = list;
	*out_n = n;
	return 0;
}

int review_decide(struct review *r, uint32_t i, enum changeset_status v, struct err *err)
{
	uint8_t b = (uint8_t)v;

	ASSERT(i < r->n_items && (v == CHANGESET_PENDING || v == CHANGESET_REJECTED));
	if (r->status_fd < 0)
		return err_set(err, -EROFS, "the change set was opened only for looking");
	if (r->status[i] == v)
		return 0;
	struct review_head h;
	review_head(r, i, &h);
	int e = fd_pwrite_all(r->status_fd, &b, 1, h.slot);
	if (e == 0 && fdatasync(r->status_fd) < 0)
		e = -errno;
	if (e < 0)
		return err_code(err, e, "cannot write the decision");
	set_status(r, i, b, r->host[i]);
	r->dirty = true;
	return 0;
}

/* --- applying --- */

void review_result_fini(struct review_result *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++)
		free(r->outcomes[i].text);
	free(r->outcomes);
	*r = (struct review_result){ 0 };
}

/* One apply at a time below a directory, whatever set it comes from. */
static int lock_projects(struct review *r, struct err *err)
{
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		char name[64];
		struct stat st;

		if (r->project_fds[i] < 0 || r->project_locks[i] >= 0)
			continue;
		if (fstat(r->project_fds[i], &st) < 0)
			return err_errno(err, "cannot look at the project");
		(void)snprintf(name, sizeof(name), "%" PRIx64 "-%" PRIu64, (uint64_t)st.st_dev,
		               (uint64_t)st.st_ino);
		AUTO_CLOSE int fd = path_open(r->env.locks_fd, span_str(name),
		                              O_RDWR | O_CREAT | O_NONBLOCK, 0600);
		if (fd < 0)
			return err_code(err, fd, "cannot create the project's lock");
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno == EWOULDBLOCK)
				return err_set(err, -EBUSY,
				               "another cloche is applying to this project");
			return err_errno(err, "cannot lock the project");
		}
		r->project_locks[i] = take_fd(&fd);
	}
	return 0;
}

static void unlock_projects(struct review *r)
{
	for (uint32_t i = 0; i < r->meta.n_projects; i++) {
		if (r->project_locks[i] >= 0)
			(void)close(r->project_locks[i]); /* a lock */
		r->project_locks[i] = -1;
	}
}

static void count_outcome(struct review *r, const struct apply_outcome *o,
                          struct review_result *out)
{
	struct review_head h;
	uint8_t status = r->status[o->change];

	review_head(r, o->change, &h);
	switch ((enum apply_result)o->result) {
	case APPLY_DONE:
		out->done++;
		status = CHANGESET_APPLIED;
		break;
	case APPLY_ALREADY:
		out->already++;
		status = CHANGESET_APPLIED;
		break;
	case APPLY_CONFLICT:
		out->conflict++;
		status = CHANGESET_CONFLICT;
		break;
	case APPLY_REFUSED:
		out->refused++;
		break;
	case APPLY_BLOCKED:
		out->blocked++;
		break;
	case APPLY_FAILED:
		out->failed++;
		break;
	}
	set_status(r, o->change, status, o->result);
	out->broke_links += o->broke_link && o->result == APPLY_DONE;
	out->warned_tier2 += h.tier == CLASSIFY_BUILD && o->result == APPLY_DONE;
}

static int receive_outcomes(struct review *r, int sock, const uint32_t *chosen, size_t n,
                            struct review_result *out, struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	uint8_t type;

	for (;;) {
		int e = review_recv(sock, &type, &b);
		if (e < 0)
			return err_code(err, e, "the apply worker gave up");
		struct span s = span_of(b.p, b.len);
		if (type == REVIEW_MSG_DONE)
			return 0;
		if (type == REVIEW_MSG_ERROR)
			return take_error(s, err);
		struct apply_outcome o;
		if (type != REVIEW_MSG_OUTCOME || out->n >= n || review_get_outcome(&o, s) < 0 ||
		    o.change != chosen[out->n])
			return err_set(err, -EPROTO, "the apply worker answered nonsense");
		out->outcomes[out->n++] =
			(struct review_outcome){ .text = o.text[0] ? xstrdup(o.text) : NULL,
			                         .change = o.change,
			                         .result = o.result,
			                         .broke_link = o.broke_link,
			                         .no_setid = o.no_setid };
		count_outcome(r, &o, out);
	}
}

int review_apply(struct review *r, const uint32_t *chosen, size_t n, struct review_result *out,
                 struct err *err)
{
	struct changeset_counts c;
	pid_t pid = 0;
	int sock = -1;

	*out = (struct review_result){ 0 };
	if (r->lock_fd < 0)
		return err_set(err, -EROFS, "the change set was opened only for looking");
	int e = lock_projects(r, err);
	if (e < 0)
		return e;
	out->outcomes = xcalloc(n + 1, sizeof(*out->outcomes));
	e = start(r, chosen, n, true, &pid, &sock, err);
	if (e == 0) {
		e = receive_outcomes(r, sock, chosen, n, out, err);
		struct err why = { 0 };
		if (finish(&pid, &sock, &why) < 0 && e < 0 && err)
			*err = why;
	}
	unlock_projects(r);
	r->dirty = true;
	review_counts(r, &c);
	out->exit_code = c.pending || c.conflict ? REVIEW_EXIT_OPEN : REVIEW_EXIT_DONE;
	for (size_t i = 0; i < out->n; i++) {
		if (out->outcomes[i].result > APPLY_ALREADY)
			out->exit_code = REVIEW_EXIT_OPEN;
	}
	if (e < 0 && out->n == 0)
		review_result_fini(out);
	return e;
}

int review_discard(const struct review_env *env, const char *id, struct err *err)
{
	char gone[CHANGESET_ID_MAX + 8];

	if (!changeset_id_ok(id))
		return err_set(err, -ENOENT, "no change set has that name");
	AUTO_CLOSE int dir = path_open_dir(env->changes_fd, span_str(id));
	if (dir == -ENOENT)
		return err_set(err, -ENOENT, "no change set '%s'", id);
	if (dir < 0)
		return err_code(err, dir, "cannot open change set '%s'", id);
	AUTO_CLOSE int lock = changeset_lock(dir);
	if (lock == -EWOULDBLOCK)
		return err_set(err, -EBUSY,
		               "change set '%s' is being reviewed or applied elsewhere", id);
	if (lock < 0)
		return err_code(err, lock, "cannot lock change set '%s'", id);
	/* out of the list in one step; what is left of a crash is swept like an unfinished one */
	(void)snprintf(gone, sizeof(gone), ".new-%s", id);
	int e = path_rename_new(env->changes_fd, id, env->changes_fd, gone);
	if (e == 0)
		e = path_remove_tree(env->changes_fd, gone);
	return e < 0 ? err_code(err, e, "cannot remove change set '%s'", id) : 0;
}
