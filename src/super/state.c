/* SPDX-License-Identifier: Apache-2.0 */
#include "super/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"

/* NULL when neither the variable nor HOME says where: never a guess. */
static char *xdg(const char *var, const char *below_home)
{
	const char *v = getenv(var);
	const char *home = getenv("HOME");

	if (v && v[0] == '/')
		return xasprintf("%s/cloche", v);
	return home && home[0] == '/' ? xasprintf("%s/%s/cloche", home, below_home) : NULL;
}

int state_dirs_init(struct state_dirs *d, bool create, struct err *err)
{
	*d = (struct state_dirs){
		.state = xdg("XDG_STATE_HOME", ".local/state"),
		.cache = xdg("XDG_CACHE_HOME", ".cache"),
		.config = xdg("XDG_CONFIG_HOME", ".config"),
	};
	if (!d->state || !d->cache || !d->config) {
		state_dirs_fini(d);
		err_set(err, -ENOENT, "HOME is not set: there is no place for state");
		return err_hint(err,
		                "set HOME, or XDG_STATE_HOME, XDG_CACHE_HOME and XDG_CONFIG_HOME");
	}
	d->sandboxes = xasprintf("%s/sandboxes", d->state);
	d->changes = xasprintf("%s/changes", d->state);
	d->logs = xasprintf("%s/logs", d->state);
	if (!create)
		return 0;
	const char *const all[] = { d->state, d->sandboxes, d->changes, d->logs, d->cache };
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		int fd = -1;
		int r = path_own_dir(all[i], &fd, err);
		if (r < 0) {
			err_hint(err,
			         "set HOME or the XDG_*_HOME variables to folders that you own");
			state_dirs_fini(d);
			return r;
		}
		auto_close_(&fd);
	}
	return 0;
}

void state_dirs_fini(struct state_dirs *d)
{
	free(d->state);
	free(d->sandboxes);
	free(d->changes);
	free(d->logs);
	free(d->cache);
	free(d->config);
	*d = (struct state_dirs){ 0 };
}

static const char *const phase_names[] = { "", "starting", "running", "staged" };

/* A path is bytes, JSON is Unicode: what is not UTF-8, or looks like hex, is written as hex. */
static json_t *path_json(const char *p)
{
	json_t *j = strncmp(p, "hex:", 4) == 0 ? NULL : json_string(p);

	if (j)
		return j;
	size_t n = strlen(p);
	AUTO_FREE char *hex = xmalloc(2 * n + 5);
	memcpy(hex, "hex:", 5);
	for (size_t i = 0; i < n; i++)
		(void)snprintf(hex + 4 + 2 * i, 3, "%02x", (unsigned char)p[i]);
	return json_string(hex);
}

static char *path_from(const json_t *j)
{
	const char *s = json_string_value(j);

	if (!s)
		return NULL;
	if (strncmp(s, "hex:", 4) != 0)
		return xstrdup(s);
	size_t n = strlen(s + 4) / 2;
	char *p = xcalloc(n + 1, 1);
	for (size_t i = 0; i < n; i++) {
		unsigned v = 0;
		if (sscanf(s + 4 + 2 * i, "%2x", &v) != 1)
			v = '?';
		p[i] = (char)v;
	}
	return p;
}

int state_write(int dirfd, const struct state *s, struct err *err)
{
	json_t *projects = json_array();

	for (size_t i = 0; i < s->n_projects; i++) {
		json_t *p = json_object();
		(void)json_object_set_new(p, "name", path_json(s->projects[i].name));
		(void)json_object_set_new(p, "path", path_json(s->projects[i].path));
		(void)json_object_set_new(p, "dev", json_integer((json_int_t)s->projects[i].dev));
		(void)json_object_set_new(p, "ino", json_integer((json_int_t)s->projects[i].ino));
		(void)json_array_append_new(projects, p);
	}
	json_t *j = json_pack("{si ss ss ss sI sI sI si si ss ss so so ss}", "schema", STATE_SCHEMA,
	                      "id", s->id, "agent", s->agent, "phase", phase_names[s->phase],
	                      "created_s", (json_int_t)s->created_s, "scratch_bytes",
	                      (json_int_t)s->scratch_bytes, "tmp_bytes", (json_int_t)s->tmp_bytes,
	                      "memory_mib", (int)s->memory_mib, "vcpus", (int)s->vcpus, "image",
	                      s->image, "accel", s->accel, "log", path_json(s->log ? s->log : ""),
	                      "projects", projects, "failure", s->failure);
	if (j) {
		(void)json_object_set_new(j, "network", json_string(net_mode_name(s->network)));
		(void)json_object_set_new(j, "egress", json_string(s->egress));
		(void)json_object_set_new(j, "events", path_json(s->events ? s->events : ""));
	}
	AUTO_FREE char *text = j ? json_dumps(j, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
	json_decref(j);
	if (!text)
		return err_set(err, -EINVAL, "cannot write the state of sandbox '%s'", s->id);
	AUTO_CLOSE int fd = openat(dirfd, "state.json.new",
	                           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_errno(err, "cannot write the state of sandbox '%s'", s->id);
	int r = fd_write_all(fd, text, strlen(text));
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0)
		r = fd_close(&fd);
	if (r == 0 && renameat(dirfd, "state.json.new", dirfd, "state.json") < 0)
		r = -errno;
	if (r == 0 && fsync(dirfd) < 0)
		r = -errno;
	return r < 0 ? err_code(err, r, "cannot write the state of sandbox '%s'", s->id) : 0;
}

static void get_str(const json_t *j, const char *key, char *dst, size_t cap)
{
	const char *v = json_string_value(json_object_get(j, key));

	(void)snprintf(dst, cap, "%s", v ? v : "");
}

static uint64_t get_u64(const json_t *j, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(j, key));

	return v < 0 ? 0 : (uint64_t)v;
}

int state_read(int dirfd, struct state *out, struct err *err)
{
	AUTO_CLOSE int fd =
		openat(dirfd, "state.json", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	AUTO_FREE char *text = NULL;
	size_t len = 0;

	if (fd < 0)
		return err_errno(err, "cannot read state.json");
	int r = fd_read_file(fd, STATE_BYTES_MAX, &text, &len);
	if (r < 0)
		return err_code(err, r, "cannot read state.json");
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(j) ||
	    json_integer_value(json_object_get(j, "schema")) != STATE_SCHEMA) {
		json_decref(j);
		return err_set(err, -EPROTO, "state.json is not of this version");
	}
	struct state s = { 0 };
	char phase[16], mode[16];
	get_str(j, "id", s.id, sizeof(s.id));
	get_str(j, "agent", s.agent, sizeof(s.agent));
	get_str(j, "image", s.image, sizeof(s.image));
	get_str(j, "accel", s.accel, sizeof(s.accel));
	get_str(j, "failure", s.failure, sizeof(s.failure));
	get_str(j, "phase", phase, sizeof(phase));
	for (unsigned i = STATE_STARTING; i <= STATE_STAGED; i++) {
		if (strcmp(phase, phase_names[i]) == 0)
			s.phase = (enum state_phase)i;
	}
	s.created_s = (int64_t)get_u64(j, "created_s");
	s.scratch_bytes = get_u64(j, "scratch_bytes");
	s.tmp_bytes = get_u64(j, "tmp_bytes");
	s.memory_mib = (uint32_t)get_u64(j, "memory_mib");
	s.vcpus = (uint32_t)get_u64(j, "vcpus");
	s.log = path_from(json_object_get(j, "log"));
	s.events = path_from(json_object_get(j, "events"));
	if (s.events && !s.events[0]) {
		free(s.events);
		s.events = NULL;
	}
	get_str(j, "egress", s.egress, sizeof(s.egress));
	get_str(j, "network", mode, sizeof(mode));
	bool known = !mode[0] || net_mode_parse(mode, &s.network) == 0;
	const json_t *projects = json_object_get(j, "projects");
	for (size_t i = 0; i < json_array_size(projects) && i < MSG_PROJECTS_MAX; i++) {
		const json_t *p = json_array_get(projects, i);
		struct state_project *sp = &s.projects[s.n_projects];
		sp->name = path_from(json_object_get(p, "name"));
		sp->path = path_from(json_object_get(p, "path"));
		sp->dev = (uint64_t)json_integer_value(json_object_get(p, "dev"));
		sp->ino = (uint64_t)json_integer_value(json_object_get(p, "ino"));
		s.n_projects++;
		if (!sp->name || !sp->path)
			s.phase = 0;
	}
	json_decref(j);
	if (!known || s.phase == 0 || s.id[0] == '\0' || s.n_projects == 0) {
		state_fini(&s);
		return err_set(err, -EPROTO, "state.json is damaged");
	}
	*out = s;
	return 0;
}

void state_fini(struct state *s)
{
	for (size_t i = 0; i < s->n_projects; i++) {
		free(s->projects[i].name);
		free(s->projects[i].path);
	}
	free(s->log);
	free(s->events);
	*s = (struct state){ 0 };
}

enum { GATE_TRIES = 200, GATE_PAUSE_NS = 10 * 1000 * 1000 };

/* A process that was stopped with the gate in its hands must not stop all others: 2 s at most. */
static void gate_enter(int top_fd)
{
	for (int i = 0; i < GATE_TRIES && flock(top_fd, LOCK_EX | LOCK_NB) < 0; i++)
		(void)nanosleep(&(struct timespec){ .tv_nsec = GATE_PAUSE_NS }, NULL);
}

static void gate_leave(int top_fd)
{
	(void)flock(top_fd, LOCK_UN); /* cannot fail */
}

static int try_lock(int dirfd, int *out_lock)
{
	AUTO_CLOSE int fd = openat(dirfd, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	*out_lock = take_fd(&fd);
	return 0;
}

int state_lock(int top_fd, int dirfd, int *out_lock)
{
	gate_enter(top_fd);
	int r = try_lock(dirfd, out_lock);
	gate_leave(top_fd);
	return r;
}

enum { FRESH_S = 600 };

/* Then it is locked: for good, as the caller removes it, and the others see that. */
static bool dead_and_empty(int top, int fd, int *out_lock)
{
	AUTO_CLOSE int lock = -1;
	struct state s = { 0 };
	bool empty = false;

	gate_enter(top);
	if (try_lock(fd, &lock) == 0) { /* else alive, or not ours */
		int r = state_read(fd, &s, NULL);
		empty = r == -ENOENT || (r == 0 && s.phase != STATE_RUNNING);
		if (faccessat(fd, "keep", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			empty = false; /* --keep */
		if (r == 0)
			state_fini(&s);
	}
	if (empty)
		*out_lock = take_fd(&lock);
	else
		auto_close_(&lock);
	gate_leave(top);
	return empty;
}

int state_sweep(const struct state_dirs *d)
{
	AUTO_CLOSE int top = open(d->sandboxes, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int gone = 0;

	if (top < 0)
		return errno == ENOENT ? 0 : -errno;
	int dup_fd = dup(top);
	DIR *dir = dup_fd < 0 ? NULL : fdopendir(dup_fd);
	if (!dir)
		return -errno;
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat age;
		bool fresh = strncmp(e->d_name, ".new-", 5) == 0;
		if (e->d_name[0] == '.' && !fresh)
			continue;
		/* one that is just being made has no lock yet: only an old one is dead */
		if (fresh && (fstatat(top, e->d_name, &age, AT_SYMLINK_NOFOLLOW) < 0 ||
		              time(NULL) - age.st_mtime < FRESH_S))
			continue;
		AUTO_CLOSE int fd =
			openat(top, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		AUTO_CLOSE int lock = -1;
		if (fd >= 0 && dead_and_empty(top, fd, &lock) &&
		    path_remove_tree(top, e->d_name) == 0)
			gone++;
	}
	(void)closedir(dir); /* only read */
	return gone;
}

static int by_age(const void *a, const void *b)
{
	const struct state_item *x = a, *y = b;

	return x->s.created_s < y->s.created_s ? 1 : x->s.created_s > y->s.created_s ? -1 : 0;
}

/* The gate is held. */
static bool list_one(int top, const char *name, struct state_item *it)
{
	AUTO_CLOSE int fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_CLOSE int lock = -1;
	struct err why = { 0 };

	if (fd < 0)
		return false;
	int r = state_read(fd, &it->s, &why);
	if (r == -ENOENT)
		return false; /* just being made, or nothing began: the sweep's */
	int busy = try_lock(fd, &lock);
	it->alive = busy == -EBUSY;
	if (r == 0)
		return true;
	/* without our lock file it is nothing of ours */
	if ((busy < 0 && busy != -EBUSY) || strlen(name) >= sizeof(it->s.id))
		return false;
	it->damaged = true;
	(void)snprintf(it->s.id, sizeof(it->s.id), "%s", name);
	(void)snprintf(it->s.failure, sizeof(it->s.failure), "%s", why.text);
	return true;
}

int state_list(const struct state_dirs *d, struct state_item **out, size_t *out_n, struct err *err)
{
	DIR *dir = opendir(d->sandboxes);
	struct state_item *v = NULL;
	size_t n = 0;

	*out = NULL;
	*out_n = 0;
	if (!dir)
		return errno == ENOENT ? 0 : err_errno(err, "cannot read '%s'", d->sandboxes);
	gate_enter(dirfd(dir));
	for (struct dirent *e; (e = readdir(dir));) {
		struct state_item it = { 0 };
		if (e->d_name[0] == '.' || !list_one(dirfd(dir), e->d_name, &it))
			continue;
		v = xrealloc(v, (n + 1) * sizeof(*v));
		v[n++] = it;
	}
	gate_leave(dirfd(dir));
	(void)closedir(dir); /* only read */
	if (n)
		qsort(v, n, sizeof(*v), by_age);
	*out = v;
	*out_n = n;
	return 0;
}

void state_items_free(struct state_item *it, size_t n)
{
	for (size_t i = 0; i < n; i++)
		state_fini(&it[i].s);
	free(it);
}

struct log_file {
	char name[256];
	struct timespec t;
};

static int newest_first(const void *a, const void *b)
{
	const struct log_file *x = a, *y = b;

	if (x->t.tv_sec != y->t.tv_sec)
		return x->t.tv_sec < y->t.tv_sec ? 1 : -1;
	return x->t.tv_nsec < y->t.tv_nsec ? 1 : x->t.tv_nsec > y->t.tv_nsec ? -1 : 0;
}

static bool is_events(const char *name)
{
	size_t n = strlen(name), k = strlen(STATE_EVENTS_SUFFIX);

	return n > k && strcmp(name + n - k, STATE_EVENTS_SUFFIX) == 0;
}

/* Of the logs, or of the files of decisions. */
static void prune(const struct state_dirs *d, size_t keep, bool events)
{
	DIR *dir = opendir(d->logs);
	struct log_file *v = NULL;
	size_t n = 0;

	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st;
		if (e->d_name[0] == '.' || is_events(e->d_name) != events ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		v = xrealloc(v, (n + 1) * sizeof(*v));
		(void)snprintf(v[n].name, sizeof(v[n].name), "%s", e->d_name);
		v[n++].t = st.st_mtim;
	}
	if (n)
		qsort(v, n, sizeof(*v), newest_first);
	for (size_t i = keep; i < n; i++)
		(void)unlinkat(dirfd(dir), v[i].name, 0); /* another run may have been first */
	free(v);
	(void)closedir(dir); /* only read */
}

void state_prune_logs(const struct state_dirs *d, size_t keep)
{
	prune(d, keep, false);
	prune(d, keep, true);
}
