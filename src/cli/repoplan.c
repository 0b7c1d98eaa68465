/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/repoplan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/vis.h"
#include "cage/cage.h"
#include "super/spawn.h"
#include "vmm/vmm.h"

enum { READ_MS = 30 * 1000, SHOWN_BYTES = 1024 };

void repoplan_fini(struct repoplan *r)
{
	repo_asks_fini(&r->asks);
	free(r->effects);
	buf_fini(&r->warnings);
	config_hosts_fini(&r->run.deny);
	*r = (struct repoplan){ 0 };
}

/* @text is ours, or the caged process's: made safe here. */
static void warn(struct repoplan *r, const struct state_project *p, const char *text)
{
	char name[256], shown[SHOWN_BYTES];

	(void)!buf_printf(&r->warnings, "'%s': %s, so it counts as absent\n",
	                  vis_str(name, sizeof(name), span_str(p->name)),
	                  vis_str(shown, sizeof(shown), span_str(text)));
}

/* Return: a descriptor, or -1 for none (with a warning when something else lies there). */
static int open_file(struct repoplan *r, const struct state_project *p, int dir)
{
	struct stat st;

	if (fstatat(dir, REPO_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (!S_ISREG(st.st_mode)) {
		warn(r, p, REPO_FILE " is not a regular file");
		return -1;
	}
	AUTO_CLOSE int fd = openat(dir, REPO_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		warn(r, p, REPO_FILE " cannot be read");
		return -1;
	}
	return take_fd(&fd);
}

static int append(struct repo_asks *to, const struct repo_asks *more)
{
	if (to->n + more->n > REPO_ASKS_MAX)
		return -E2BIG;
	to->v = xrealloc(to->v, (to->n + more->n + 1) * sizeof(*to->v));
	if (more->n)
		memcpy(to->v + to->n, more->v, more->n * sizeof(*to->v));
	to->n += more->n;
	return 0;
}

static int read_one(struct repoplan *r, const struct state_project *p, int dir, struct err *err)
{
	AUTO_CLOSE int in = open_file(r, p, dir);
	AUTO_CLOSE int out = -1;
	AUTO_CLOSE int err_fd = -1;
	AUTO_FREE char *lines = NULL;
	struct proc scan = { .pidfd = -1 };
	struct vmm_tail tail = { 0 };
	struct repo_asks asks = { 0 };
	int status = 0;
	size_t n = 0;
	uid_t uid = 0;

	if (in < 0)
		return 0;
	if (geteuid() == 0 && cage_uid_pick((uint32_t)getpid(), &uid) < 0)
		return err_set(err, -ENOENT, "cannot find an unprivileged uid for %s", REPO_FILE);
	out = fd_memfd("repository");
	if (out < 0)
		return err_errno(err, "cannot create a temporary file");
	int k = spawn_repository(&scan, &err_fd, in, out, uid, err);
	if (k < 0)
		return k;
	k = proc_wait(&scan, READ_MS, &status);
	if (k < 0) {
		proc_end(&scan, 0);
		return err_code(err, k, "cannot wait for the reading of %s", REPO_FILE);
	}
	(void)!fd_set_nonblock(err_fd, true);
	(void)vmm_tail_read(&tail, err_fd);
	if (proc_shell_status(status) == SPAWN_STATUS_REFUSED) {
		warn(r, p, tail.b);
		return 0;
	}
	if (status != 0)
		return err_set(err, -EIO, "cannot read %s: %.*s", REPO_FILE, (int)tail.len, tail.b);
	if (lseek(out, 0, SEEK_SET) < 0 || fd_read_file(out, REPO_LINES_MAX, &lines, &n) < 0 ||
	    repo_parse(&asks, span_of(lines, n)) < 0)
		return err_set(err, -EPROTO, "the process that reads %s does not say what is in it",
		               REPO_FILE);
	if (append(&r->asks, &asks) < 0)
		warn(r, p, REPO_FILE " has more values than fit");
	repo_asks_fini(&asks);
	return 0;
}

int repoplan_read(struct repoplan *r, const struct state_project *projects, const int *fds,
                  size_t n, struct err *err)
{
	int e = 0;

	for (size_t i = 0; i < n && e == 0; i++)
		e = read_one(r, &projects[i], fds[i], err);
	return e;
}

int repoplan_apply(struct repoplan *r, struct err *err)
{
	r->effects = xcalloc(r->asks.n + 1, sizeof(*r->effects));
	int e = repo_tighten(&r->run, &r->asks, r->effects);

	return e < 0 ? err_code(err, e, "the process that reads %s says what cannot be in it",
	                        REPO_FILE)
	             : 0;
}

static const char *effect_name(enum repo_fate f)
{
	static const char *const names[] = { "applied", "same", "ignored" };

	return names[f];
}

int repoplan_put(struct buf *b, const struct repoplan *r, const char *indent)
{
	char value[4 * REPO_VALUE_MAX + 1];
	int e = 0;

	for (size_t i = 0; i < r->asks.n && e == 0; i++) {
		const struct repo_ask *k = &r->asks.v[i];
		const struct repo_effect *f = &r->effects[i];

		e = buf_printf(b, "%s%s %s %s (%s%s%s)", i ? "," : indent,
		               i ? "" : "repository  " REPO_FILE " asks for:", k->key,
		               vis_str(value, sizeof(value), span_str(k->value)),
		               f->fate == REPO_SAME ? "as it is" : effect_name(f->fate),
		               f->why ? ": " : "", f->why ? f->why : "");
	}
	if (e == 0 && r->asks.n)
		e = buf_printf(b, "\n");
	for (struct span w = span_of(r->warnings.p, r->warnings.len); w.len && e == 0;) {
		const uint8_t *nl = memchr(w.p, '\n', w.len);
		size_t n = nl ? (size_t)(nl - w.p) : w.len;

		e = buf_printf(b, "%srepository  %.*s\n", indent, (int)n, (const char *)w.p);
		w = span_of(w.p + n + (nl != NULL), w.len - n - (nl != NULL));
	}
	return e;
}

json_t *repoplan_json(const struct repoplan *r)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < r->asks.n; i++) {
		const struct repo_effect *f = &r->effects[i];
		json_t *j = json_pack("{s:s, s:s, s:s, s:s*}", "key", r->asks.v[i].key, "value",
		                      r->asks.v[i].value, "effect", effect_name(f->fate), "reason",
		                      f->why);
		if (!j || json_array_append_new(list, j) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
