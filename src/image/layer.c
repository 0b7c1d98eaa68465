/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c - layers in the cache, and the build of one. */
#include "image/layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/vis.h"
#include "config/profile.h"
#include "erofs/erofs.h"
#include "image/image_priv.h"
#include "image/worker.h"

#define LAYER_FILE "layer.erofs"

enum { TICK_MS = 250, TAIL_BYTES = 2048, HASH_DIGITS = 12 };

/* ---- names -------------------------------------------------------------- */

static void add(struct hash_state *h, const char *s)
{
	hash_update(h, s, strlen(s) + 1); /* with the NUL: texts do not run together */
}

/* "@scope/pkg" is "scope.pkg" in a folder's name. */
static void make_id(char id[LAYER_ID_MAX], const struct profile_npm *npm)
{
	char flat[NPM_NAME_MAX + 1], hex[HASH_HEX_BYTES];
	const char *name = npm->package + (npm->package[0] == '@');
	struct hash_state h;
	struct hash sum;

	(void)snprintf(flat, sizeof(flat), "%s", name);
	char *slash = strchr(flat, '/');
	if (slash)
		*slash = '.';
	hash_init(&h);
	add(&h, "cloche layer 1 npm amd64"); /* another number for a change of the layout */
	add(&h, npm->package);
	add(&h, npm->version);
	for (size_t i = 0; i < npm->omit.n; i++) {
		add(&h, "omit");
		add(&h, npm->omit.v[i]);
	}
	for (size_t i = 0; i < npm->bin.n; i++) {
		add(&h, "bin");
		add(&h, npm->bin.v[i].name);
		add(&h, npm->bin.v[i].value);
	}
	hash_final(&h, &sum);
	hash_hex(hex, &sum);
	(void)snprintf(id, LAYER_ID_MAX, "%s-%s-%.*s", flat, npm->version, HASH_DIGITS, hex);
}

static int check_spec(const struct profile_npm *npm, struct err *err)
{
	char seen[2][128];

	(void)vis_str(seen[0], sizeof(seen[0]), span_str(npm->package));
	(void)vis_str(seen[1], sizeof(seen[1]), span_str(npm->version));
	if (!npm_name_ok(npm->package))
		return err_set(err, -EINVAL, "'%s' is not the name of a package of npm", seen[0]);
	if (!npm_version_ok(npm->version))
		return err_set(err, -EINVAL, "'%s' is not an exact version of %s", seen[1],
		               seen[0]);
	if (npm->bin.n > PACKAGE_BIN_MAX || npm->omit.n > PACKAGE_OMIT_MAX)
		return err_set(err, -E2BIG, "%s: more than %d commands or %d patterns", seen[0],
		               PACKAGE_BIN_MAX, PACKAGE_OMIT_MAX);
	for (size_t i = 0; i < npm->bin.n; i++) {
		(void)vis_str(seen[1], sizeof(seen[1]), span_str(npm->bin.v[i].name));
		if (!npm_bin_ok(npm->bin.v[i].name))
			return err_set(err, -EINVAL, "%s: '%s' is no name of a command", seen[0],
			               seen[1]);
		if (path_check(span_str(npm->bin.v[i].value)) < 0)
			return err_set(err, -EINVAL, "%s: the command '%s' is no file in it",
			               seen[0], seen[1]);
	}
	return 0;
}

/* layers/ in the image cache; *out_cache is the cache itself. */
static int open_layers(const struct layer_opts *o, int *out_cache, int *out, char **out_path,
                       struct err *err)
{
	struct image_opts io = { .cache_dir = o ? o->cache_dir : NULL };
	AUTO_CLOSE int cache = -1;
	AUTO_FREE char *path = NULL;
	int r = image_cache_open(&io, &cache, &path, err);

	if (r < 0)
		return r;
	AUTO_FREE char *below = xasprintf("%s/layers", path);
	r = path_own_dir(below, out, err);
	if (r < 0)
		return r;
	if (out_cache)
		*out_cache = take_fd(&cache);
	if (out_path)
		*out_path = take_ptr(&below);
	return 0;
}

/* ---- the lock file ------------------------------------------------------ */

/* Return: 1 with the hash that is locked, 0 when none is, or -errno with @err. */
static int locked(const struct layer_opts *o, const struct profile_npm *npm,
                  uint8_t sum[SHA512_BYTES], struct err *err)
{
	AUTO_FREE char *text = NULL;
	char found[NPM_INTEGRITY_BYTES];
	size_t n = 0;

	if (!o || !o->lock_path)
		return 0;
	AUTO_CLOSE int fd = open(o->lock_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return 0;
	int r = fd < 0 ? -errno : fd_read_file(fd, IMAGE_LOCK_MAX, &text, &n);
	if (r == 0)
		r = image_lock_get(text, n, npm->package, npm->version, found);
	if (r == 1)
		r = npm_integrity_parse(sum, span_str(found)) < 0 ? -EBADMSG : 1;
	if (r == -EBADMSG) {
		(void)err_set(err, r, "the lock file '%s' is damaged", o->lock_path);
		return err_hint(err,
		                "mend it, or move it away: then what the registry says now counts");
	}
	return r < 0 ? err_code(err, r, "cannot read the lock file '%s'", o->lock_path) : r;
}

/* Under the cache's lock, so that two builds do not lose each other's line. */
static int put_lock(const struct layer_opts *o, int cache, const struct layer_info *info,
                    struct err *err)
{
	AUTO_FREE char *text = NULL, *out = NULL;
	size_t n = 0;

	if (!o || !o->lock_path)
		return 0;
	const char *slash = strrchr(o->lock_path, '/');
	ASSERT(slash);
	AUTO_FREE char *dir =
		xstrndup(o->lock_path, MAX((size_t)(slash - o->lock_path), (size_t)1));
	AUTO_CLOSE int guard = image_lock_file(cache, ".lock");
	AUTO_CLOSE int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (guard < 0 || flock(guard, LOCK_EX) < 0 || dirfd < 0)
		return err_errno(err, "cannot write the lock file '%s'", o->lock_path);
	AUTO_CLOSE int fd = open(o->lock_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int r = fd < 0 ? (errno == ENOENT ? 0 : -errno)
	               : fd_read_file(fd, IMAGE_LOCK_MAX, &text, &n);
	if (r == 0)
		r = image_lock_put(text, n, info->package, info->version, info->integrity, &out);
	if (r == 0 && out)
		r = image_write_file(dirfd, slash + 1, out, strlen(out));
	return r < 0 ? err_code(err, r, "cannot write the lock file '%s'", o->lock_path) : 0;
}

/* ---- the cache ---------------------------------------------------------- */

static int load(int layers, const char *id, struct layer_info *out, int *out_fd)
{
	AUTO_CLOSE int dir = openat(layers, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_FREE char *text = NULL;
	struct stat st;
	size_t n;

	if (dir < 0)
		return -errno;
	AUTO_CLOSE int m = openat(dir, IMAGE_MANIFEST, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_CLOSE int fd = openat(dir, LAYER_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (m < 0 || fd < 0)
		return -EBADMSG;
	int r = fd_read_file(m, IMAGE_MANIFEST_MAX, &text, &n);
	if (r == 0)
		r = image_layer_parse(out, text, n);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != out->size ||
	    strcmp(out->id, id) != 0)
		return -EBADMSG;
	if (out_fd)
		*out_fd = take_fd(&fd);
	return 0;
}

/* In the cache, and of the locked tarball when there is one. */
static int find(int layers, const struct profile_npm *npm, const char *id, const uint8_t *lock,
                struct layer_info *out, int *out_fd)
{
	AUTO_CLOSE int fd = -1;
	struct layer_info info;
	uint8_t sum[SHA512_BYTES];

	int r = load(layers, id, &info, &fd);
	if (r < 0)
		return r;
	if (strcmp(info.package, npm->package) != 0 || strcmp(info.version, npm->version) != 0 ||
	    npm_integrity_parse(sum, span_str(info.integrity)) < 0 ||
	    (lock && memcmp(sum, lock, sizeof(sum)) != 0))
		return -EBADMSG;
	*out = info;
	if (out_fd)
		*out_fd = take_fd(&fd);
	return 0;
}

int layer_open(const struct layer_opts *opts, const struct profile_npm *npm, struct layer *out,
               struct err *err)
{
	AUTO_CLOSE int layers = -1;
	AUTO_FREE char *path = NULL;
	uint8_t lock[SHA512_BYTES];
	char id[LAYER_ID_MAX];
	struct layer l = LAYER_INIT;

	int r = check_spec(npm, err);
	if (r == 0)
		r = open_layers(opts, NULL, &layers, &path, err);
	if (r == 0)
		r = locked(opts, npm, lock, err);
	if (r < 0)
		return r;
	make_id(id, npm);
	r = find(layers, npm, id, r ? lock : NULL, &l.info, &l.fd);
	if (r == -ENOENT)
		return err_set(err, r, "the layer of %s %s is not built", npm->package,
		               npm->version);
	if (r == -EBADMSG) {
		(void)err_set(err, r, "the layer of %s %s in the cache is damaged", npm->package,
		              npm->version);
		return err_hint(err, "cloche image rm %s", id);
	}
	if (r < 0)
		return err_code(err, r, "cannot open the layer of %s %s", npm->package,
		                npm->version);
	l.path = xasprintf("%s/%s/" LAYER_FILE, path, id);
	*out = l;
	return 0;
}

void layer_close(struct layer *l)
{
	close_now(&l->fd);
	free(l->path);
	*l = (struct layer)LAYER_INIT;
}

static int compare_id(const void *a, const void *b)
{
	return strcmp(((const struct layer_info *)a)->id, ((const struct layer_info *)b)->id);
}

int layer_list(const struct layer_opts *opts, struct layer_info **out, size_t *out_n,
               struct err *err)
{
	AUTO_CLOSE int layers = -1;
	AUTO_FREE struct layer_info *list = NULL;
	struct dirent *e;
	size_t n = 0, cap = 0;

	int r = open_layers(opts, NULL, &layers, NULL, err);
	if (r < 0)
		return r;
	int fd = openat(layers, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		r = err_errno(err, "cannot read the cache of layers");
		close_now(&fd);
		return r;
	}
	while ((e = readdir(d))) {
		struct layer_info info;
		if (e->d_name[0] == '.' || load(layers, e->d_name, &info, NULL) < 0)
			continue;
		if (n == cap) {
			cap = cap ? cap * 2 : 8;
			list = xrealloc(list, cap * sizeof(*list));
		}
		list[n++] = info;
	}
	(void)closedir(d); /* only read */
	if (n)
		qsort(list, n, sizeof(*list), compare_id);
	*out = take_ptr(&list);
	*out_n = n;
	return 0;
}

int layer_verify(const struct layer_opts *opts, const char *id, struct err *err)
{
	AUTO_CLOSE int layers = -1, fd = -1;
	struct layer_info info;
	struct hash h;
	uint64_t size;

	int r = open_layers(opts, NULL, &layers, NULL, err);
	if (r < 0)
		return r;
	r = path_name_ok(span_str(id)) ? load(layers, id, &info, &fd) : -ENOENT;
	if (r == 0)
		r = image_hash_fd(fd, &h, &size);
	if (r == 0 && (size != info.size || !hash_eq(&h, &info.digest)))
		r = -EBADMSG;
	if (r == -EBADMSG) {
		(void)err_set(err, r, "layer '%s' in the cache is damaged", id);
		return err_hint(err, "cloche image rm %s", id);
	}
	return r < 0 ? err_code(err, r, "cannot read layer '%s'", id) : 0;
}

/* Is folder @name a layer, whole or damaged, that @what names? */
static bool is_layer_of(int layers, const char *name, const char *what)
{
	struct layer_info info;

	if (name[0] == '.')
		return false;
	return strcmp(name, what) == 0 ||
	       (load(layers, name, &info, NULL) == 0 && strcmp(info.package, what) == 0);
}

int layer_rm(const struct layer_opts *opts, const char *id_or_package, struct err *err)
{
	AUTO_CLOSE int layers = -1;
	struct dirent *e;
	int gone = 0;

	int r = open_layers(opts, NULL, &layers, NULL, err);
	if (r < 0)
		return r;
	int fd = openat(layers, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		r = err_errno(err, "cannot read the cache of layers");
		close_now(&fd);
		return r;
	}
	while (r == 0 && (e = readdir(d))) {
		if (!is_layer_of(layers, e->d_name, id_or_package))
			continue;
		/* out of sight in one step; an open one stays whole for who has it */
		AUTO_FREE char *tmp = xasprintf(".tmp-rm-%s", e->d_name);
		(void)!path_remove_tree(layers, tmp); /* of an interrupted one */
		if (renameat(layers, e->d_name, layers, tmp) < 0)
			r = -errno;
		if (r == 0)
			r = path_remove_tree(layers, tmp);
		if (r < 0)
			(void)err_code(err, r, "cannot remove layer '%s'", e->d_name);
		gone += r == 0;
	}
	(void)closedir(d); /* only read */
	return r < 0 ? r : gone;
}

/* ---- building ----------------------------------------------------------- */

struct build {
	const struct profile_npm *npm;
	char id[LAYER_ID_MAX], tmp_name[LAYER_ID_MAX + 32];
	int cache, layers, tmp, out;
	char *path; /* of layers */
	enum image_phase phase;
	image_progress_fn fn;
	void *arg;
	struct timespec start;
	struct err *err;
};

static bool tell(void *arg)
{
	struct build *b = arg;
	struct timespec now;
	struct stat st = { 0 };
	char text[NPM_NAME_MAX + NPM_VERSION_MAX + 64];
	static const char *const words[] = {
		[IMAGE_PHASE_WAIT] = "waiting for another build of",
		[IMAGE_PHASE_DOWNLOAD] = "fetching",
		[IMAGE_PHASE_WRITE] = "unpacking",
		[IMAGE_PHASE_FINISH] = "checking",
	};

	if (!b->fn)
		return true;
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	if (b->out >= 0)
		(void)fstat(b->out, &st); /* then it shows 0 */
	(void)snprintf(text, sizeof(text), "%s %s %s", words[b->phase], b->npm->package,
	               b->npm->version);
	struct image_progress p = {
		.phase = b->phase,
		.text = text,
		.bytes = (uint64_t)st.st_size,
		.elapsed_ms = (uint64_t)((now.tv_sec - b->start.tv_sec) * 1000 +
		                         (now.tv_nsec - b->start.tv_nsec) / 1000000),
	};
	return b->fn(b->arg, &p);
}

static bool enter(struct build *b, enum image_phase phase)
{
	b->phase = phase;
	return tell(b);
}

static int cancelled(struct build *b)
{
	return err_set(b->err, -ECANCELED, "cancelled");
}

/* The caged worker's arguments; strings are borrowed but the --bin ones. */
static void worker_args(const struct profile_npm *npm, const char **argv, size_t *out_n)
{
	size_t n = 0;

	argv[n++] = "cloche-image";
	argv[n++] = "package";
	argv[n++] = npm->package;
	for (size_t i = 0; i < npm->omit.n; i++) {
		argv[n++] = "--omit";
		argv[n++] = npm->omit.v[i];
	}
	*out_n = n;
}

static int run_worker(struct build *b, int tgz)
{
	const char *argv[4 + 2 * (PACKAGE_OMIT_MAX + PACKAGE_BIN_MAX)];
	char *bins[PACKAGE_BIN_MAX];
	AUTO_FREE char *self = proc_self_dir();
	AUTO_FREE char *worker = xasprintf("%s/cloche-image", self);
	struct proc p = { .pidfd = -1 };
	char tail[TAIL_BYTES], why[400];
	size_t n, n_tail = 0;
	int e[2], status = 0;

	if (pipe2(e, O_CLOEXEC) < 0)
		return err_errno(b->err, "cannot start '%s'", worker);
	AUTO_CLOSE int err_r = e[0];
	AUTO_CLOSE int err_w = e[1];
	worker_args(b->npm, argv, &n);
	for (size_t i = 0; i < b->npm->bin.n; i++) {
		bins[i] = xasprintf("%s=%s", b->npm->bin.v[i].name, b->npm->bin.v[i].value);
		argv[n++] = "--bin";
		argv[n++] = bins[i];
	}
	argv[n] = NULL;
	/* its report says nothing that we need: no descriptor 1 */
	const struct proc_fd fds[] = { { tgz, 0 }, { err_w, 2 }, { b->out, 3 } };
	struct proc_spec spec = { .path = worker, .argv = argv, .fds = fds, .n_fds = 3 };
	int r = proc_spawn(&p, &spec, b->err);
	for (size_t i = 0; i < b->npm->bin.n; i++)
		free(bins[i]);
	if (r < 0)
		return r;
	auto_close_(&err_w);
	err_w = -1;
	for (bool over = false; !over || err_r >= 0;) {
		struct pollfd pf[] = { { .fd = over ? -1 : p.pidfd, .events = POLLIN },
			               { .fd = err_r, .events = POLLIN } };
		if (poll(pf, 2, TICK_MS) > 0 && pf[1].revents) {
			ssize_t k = read(err_r, tail + n_tail, sizeof(tail) - n_tail);
			if (k > 0)
				n_tail += (size_t)k;
			else if (k == 0 || errno != EINTR)
				close_now(&err_r); /* also when the tail is full */
		}
		if (!over && pf[0].revents)
			over = proc_wait(&p, 0, &status) == 0;
		if (!tell(b)) {
			proc_end(&p, 0);
			return cancelled(b);
		}
	}
	if (status == 0)
		return 0;
	while (n_tail && tail[n_tail - 1] == '\n')
		n_tail--;
	(void)vis_str(why, sizeof(why), span_of(tail, n_tail));
	return err_set(b->err, -EPROTO, "%s", why[0] ? why : "cloche-image failed");
}

static int finish(struct build *b, const uint8_t sum[SHA512_BYTES], const struct layer_opts *o)
{
	struct layer_info info = { .built_s = time(NULL) };
	AUTO_FREE char *json = NULL;

	if (!enter(b, IMAGE_PHASE_FINISH))
		return cancelled(b);
	(void)snprintf(info.id, sizeof(info.id), "%s", b->id);
	(void)snprintf(info.package, sizeof(info.package), "%s", b->npm->package);
	(void)snprintf(info.version, sizeof(info.version), "%s", b->npm->version);
	npm_integrity_put(info.integrity, sum);
	int r = image_hash_fd(b->out, &info.digest, &info.size);
	if (r == 0 && (info.size == 0 || info.size % EROFS_BLOCK_BYTES))
		return err_set(b->err, -EPROTO, "the layer has no possible size");
	if (r == 0 && fsync(b->out) < 0)
		r = -errno;
	if (r == 0)
		r = fd_close(&b->out);
	if (r == 0)
		r = image_layer_format(&info, &json);
	if (r == 0)
		r = image_write_file(b->tmp, IMAGE_MANIFEST, json, strlen(json));
	if (r < 0)
		return err_code(b->err, r, "cannot write the layer");
	/* first what later builds are held to, then what they find */
	r = put_lock(o, b->cache, &info, b->err);
	if (r < 0)
		return r;
	r = path_rename_new(b->layers, b->tmp_name, b->layers, b->id);
	if (r == 0)
		close_now(&b->tmp); /* now the layer itself */
	else if (r == -EEXIST)
		r = path_exchange_dirs(b->layers, b->tmp_name, b->id);
	if (r < 0)
		return err_code(b->err, r, "cannot put the layer in place");
	(void)fsync(b->layers); /* some file systems cannot; the rename is there */
	return 0;
}

static int make_folder(struct build *b)
{
	AUTO_CLOSE int lock = image_lock_file(b->cache, ".lock");
	uint32_t random;

	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return err_errno(b->err, "cannot lock the image cache");
	image_sweep(b->layers, ".tmp-");
	random_bytes(&random, sizeof(random));
	(void)snprintf(b->tmp_name, sizeof(b->tmp_name), ".tmp-%s-%08x", b->id, random);
	int r = image_make_locked(b->layers, b->tmp_name, 0700, &b->tmp);
	return r < 0 ? err_code(b->err, r, "cannot create a folder in the image cache") : 0;
}

static int build_locked(struct build *b, const struct layer_opts *o, const uint8_t *lock)
{
	static const char fetched[] = "fetched";
	AUTO_CLOSE int tgz = -1, dir = -1;
	uint8_t sum[SHA512_BYTES];

	int r = make_folder(b);
	if (r < 0)
		return r;
	AUTO_FREE char *path = xasprintf("%s/%s/%s", b->path, b->tmp_name, fetched);
	if (mkdirat(b->tmp, fetched, 0700) < 0)
		return err_errno(b->err, "cannot create a folder in the image cache");
	dir = openat(b->tmp, fetched, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return err_errno(b->err, "cannot create a folder in the image cache");
	if (!enter(b, IMAGE_PHASE_DOWNLOAD))
		return cancelled(b);
	r = npm_fetch(b->npm->package, b->npm->version, path, dir, lock, tell, b, &tgz, sum,
	              b->err);
	if (r < 0)
		return r;
	(void)!path_remove_tree(b->tmp, fetched); /* the descriptor holds what is needed */
	b->out = openat(b->tmp, LAYER_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (b->out < 0)
		return err_errno(b->err, "cannot create the layer");
	if (!enter(b, IMAGE_PHASE_WRITE))
		return cancelled(b);
	r = run_worker(b, tgz);
	return r < 0 ? r : finish(b, sum, o);
}

int layer_build(const struct layer_opts *opts, const struct profile_npm *npm, bool force,
                image_progress_fn fn, void *arg, bool *out_built, struct err *err)
{
	struct err own = { 0 };
	struct build b = { .npm = npm,
		           .cache = -1,
		           .layers = -1,
		           .tmp = -1,
		           .out = -1,
		           .fn = fn,
		           .arg = arg,
		           .err = err ? err : &own };
	AUTO_CLOSE int guard = -1;
	AUTO_FREE char *guard_name = NULL;
	uint8_t lock[SHA512_BYTES];
	struct layer_info info;
	bool built = false;

	(void)clock_gettime(CLOCK_MONOTONIC, &b.start); /* cannot fail for this clock */
	int r = check_spec(npm, b.err);
	if (r < 0)
		return r;
	make_id(b.id, npm);
	r = open_layers(opts, &b.cache, &b.layers, &b.path, b.err);
	if (r == 0)
		r = locked(opts, npm, lock, b.err);
	if (r < 0)
		goto out;
	bool is_locked = r == 1;
	r = 0;
	if (!force && find(b.layers, npm, b.id, is_locked ? lock : NULL, &info, NULL) == 0)
		goto out;
	guard_name = xasprintf(".lock-%s", b.id);
	guard = image_lock_file(b.layers, guard_name);
	if (guard < 0) {
		r = err_code(b.err, guard, "cannot lock the image cache");
		goto out;
	}
	while (flock(guard, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			r = err_errno(b.err, "cannot lock the image cache");
			goto out;
		}
		if (!enter(&b, IMAGE_PHASE_WAIT)) {
			r = cancelled(&b);
			goto out;
		}
		(void)poll(NULL, 0, TICK_MS); /* a pause */
	}
	/* the one we waited for may have done it */
	if (!force && find(b.layers, npm, b.id, is_locked ? lock : NULL, &info, NULL) == 0)
		goto out;
	r = build_locked(&b, opts, is_locked ? lock : NULL);
	built = r == 0;
	if (r < 0)
		(void)err_wrap(b.err, "cannot build the layer of %s", npm->package);
out:
	close_now(&b.out);
	if (b.tmp_name[0])
		(void)!path_remove_tree(b.layers, b.tmp_name); /* or the next build's sweep */
	close_now(&b.tmp);
	close_now(&b.layers);
	close_now(&b.cache);
	free(b.path);
	if (r == 0 && out_built)
		*out_built = built;
	return r;
}
