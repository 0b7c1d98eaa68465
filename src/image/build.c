/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - one build: who runs, and what becomes of it.
 *
 *	mmdebstrap --tar--> cloche-image rootfs --.deb--> cloche-image kernel
 *	                        |                            |
 *	                    rootfs.erofs              vmlinux, modules.cpio
 *
 * apt (inside mmdebstrap) verifies every package. The kernel is not installed:
 * a hook downloads its package into the tree, from where the first worker passes
 * it on. Both workers are caged and hold only the descriptors drawn above. This
 * process reads none of that data; it looks at exit statuses, two small reports
 * and the files' sizes and hashes.
 *
 * Everything appears in .tmp-ID-RANDOM, whose folder descriptor holds a flock
 * for as long as this process lives. mmdebstrap unpacks in a folder of its own
 * below /var/tmp, locked through a descriptor that it inherits: the lock ends
 * with the last process that could write there. Folders without an owner are
 * removed by the next build.
 */
#include "image/image_priv.h"

#include <dirent.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/fs.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/vis.h"
#include "erofs/erofs.h"
#include "image/apt.h"
#include "image/worker.h"

enum {
	TICK_MS = 250,
	GRACE_MS = 10 * 1000, /* for mmdebstrap in unshare mode to clean up */
	TAIL_BYTES = 8192,
	LOG_BYTES_MAX = 8 * 1024 * 1024,
	ARGS_MAX = 128,
	SUBIDS_MIN = 65536,
	LOCK_FD = 9, /* mmdebstrap's number of the lock of its folder */
	PROBES_S = 120,
};

enum { MMDEBSTRAP, ROOTFS, KERNEL, PROCS };
static const char *const proc_names[PROCS] = { "mmdebstrap", "cloche-image rootfs",
	                                       "cloche-image kernel" };

struct child {
	struct proc p;
	int err_fd;            /* its stderr, read end */
	int rep_fd;            /* its report, read end; workers only */
	char tail[TAIL_BYTES]; /* the last of stderr */
	size_t n_tail;
	char line[256]; /* the present line of stderr */
	size_t n_line;
	uint8_t report[WORKER_REPORT_BYTES];
	size_t n_report;
	bool is_over;
	int status;
};

struct build {
	struct image_spec spec;
	const char *mirror;
	int cache; /* folder of all images */
	char *cache_path;
	int tmp; /* our new image; flocked */
	char tmp_name[IMAGE_NAME_MAX + 64];
	char *work;  /* mmdebstrap's folder; NULL before it exists */
	int work_fd; /* flocked */
	int log_fd;
	size_t log_bytes;
	int out[IMAGE_FILES]; /* rootfs, vmlinux, modules: read-write */
	struct child child[PROCS];
	enum image_phase phase;
	image_progress_fn fn;
	void *arg;
	struct timespec start, last;
	char text[256];
	struct err *err;
};

/* ---- progress ----------------------------------------------------------- */

static uint64_t ms_since(const struct timespec *t)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (uint64_t)((now.tv_sec - t->tv_sec) * 1000 + (now.tv_nsec - t->tv_nsec) / 1000000);
}

static bool tell(struct build *b, enum image_phase phase, bool force)
{
	static const char *const words[] = {
		[IMAGE_PHASE_WAIT] = "waiting for another build of the same image",
		[IMAGE_PHASE_INDEX] = "reading package lists",
		[IMAGE_PHASE_DOWNLOAD] = "downloading packages",
		[IMAGE_PHASE_UNPACK] = "unpacking",
		[IMAGE_PHASE_KERNEL] = "downloading the kernel",
		[IMAGE_PHASE_WRITE] = "writing the image",
		[IMAGE_PHASE_FINISH] = "checking",
	};
	struct stat st = { 0 };

	force |= phase != b->phase;
	b->phase = phase;
	if (!b->fn || (!force && ms_since(&b->last) < TICK_MS))
		return true;
	(void)clock_gettime(CLOCK_MONOTONIC, &b->last);
	if (b->out[0] >= 0)
		(void)fstat(b->out[0], &st); /* then it shows 0 */
	struct image_progress p = {
		.phase = phase,
		.text = words[phase],
		.bytes = (uint64_t)st.st_size,
		.elapsed_ms = ms_since(&b->start),
	};
	return b->fn(b->arg, &p);
}

/* ---- what a build needs of the host ------------------------------------- */

static bool has_subids(const char *file, const char *user, uid_t uid)
{
	AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *text = NULL;
	char id[16];
	size_t n;

	if (fd < 0 || fd_read_file(fd, APT_FILE_MAX, &text, &n) < 0)
		return false;
	(void)snprintf(id, sizeof(id), "%u", uid);
	for (char *save = NULL, *l = strtok_r(text, "\n", &save); l;
	     l = strtok_r(NULL, "\n", &save)) {
		char *first = strchr(l, ':'), *count = first ? strchr(first + 1, ':') : NULL;
		if (!count)
			continue;
		*first = '\0';
		if ((strcmp(l, user) == 0 || strcmp(l, id) == 0) && atol(count + 1) >= SUBIDS_MIN)
			return true;
	}
	return false;
}

static int check_subids(struct err *err)
{
	uid_t uid = getuid();
	const struct passwd *pw = getpwuid(uid);
	const char *user = pw ? pw->pw_name : "";

	if (has_subids("/etc/subuid", user, uid) && has_subids("/etc/subgid", user, uid))
		return 0;
	(void)err_set(err, -EPERM,
	              "this user has no range of %d subordinate ids, which building an image needs",
	              SUBIDS_MIN);
	(void)err_hint(err,
	               "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s",
	               pw ? pw->pw_name : "USER");
	return -EPERM;
}

/* Code name of the host when it is Debian; malloc'd or NULL. */
static char *host_codename(void)
{
	AUTO_CLOSE int fd = open("/etc/os-release", O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *text = NULL;
	char *name = NULL;
	bool is_debian = false;
	size_t n;

	if (fd < 0 || fd_read_file(fd, APT_FILE_MAX, &text, &n) < 0)
		return NULL;
	for (char *save = NULL, *l = strtok_r(text, "\n", &save); l;
	     l = strtok_r(NULL, "\n", &save)) {
		if (strcmp(l, "ID=debian") == 0)
			is_debian = true;
		if (strncmp(l, "VERSION_CODENAME=", 17) == 0 && !name)
			name = xstrdup(l + 17);
	}
	if (!is_debian) {
		free(name);
		return NULL;
	}
	return name;
}

/* `apt-config dump`, for the options that reach the mirror. Empty when there is no apt. */
static void read_apt_config(struct buf *out)
{
	static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL };
	const char *const argv[] = { "apt-config", "dump", NULL };
	AUTO_FREE char *path = NULL;
	int p[2];

	if (proc_find_program("apt-config", &path) < 0 || pipe2(p, O_CLOEXEC) < 0)
		return;
	struct proc_fd fds[] = { { .from = p[1], .to = 1 } };
	struct proc_spec spec = { .path = path, .argv = argv, .envp = env, .fds = fds, .n_fds = 1 };
	struct proc proc;
	int r = proc_spawn(&proc, &spec, NULL);
	(void)close(p[1]); /* the child's */
	char piece[4096];
	ssize_t n;
	while (r == 0 &&
	       ((n = read(p[0], piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR))) {
		if (n > 0 && (out->len > APT_FILE_MAX || buf_put(out, piece, (size_t)n) < 0))
			break;
	}
	(void)close(p[0]); /* only read */
	if (r == 0)
		proc_end(&proc, 1000);
}

/* ---- temporary folders -------------------------------------------------- */

static char *work_prefix(void)
{
	return xasprintf("cloche-image-%u-", getuid());
}

/* Not TMPDIR: per-user ones are closed to the subordinate ids, and a tmpfs may be too small. */
static const char work_base[] = "/var/tmp";

/*
 * Is anything mounted below @path here? mmdebstrap mounts /dev and /proc of the
 * tree in a mount namespace of its own; should that ever change, removing the
 * tree must not reach through. Not knowing counts as yes.
 */
static bool has_mounts(const char *path)
{
	enum { MOUNTS_BYTES_MAX = 16 * 1024 * 1024 };
	AUTO_CLOSE int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *text = NULL;
	AUTO_FREE char *below = xasprintf("%s/", path);
	size_t n;

	return fd < 0 || fd_read_file(fd, MOUNTS_BYTES_MAX, &text, &n) < 0 || strstr(text, below);
}

/* In @path: what belongs to the subordinate ids, all of it but the folder itself. */
static void empty_as_subordinate(const char *path)
{
	static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL };
	const char *const argv[] = { "mmdebstrap", "--unshare-helper", "find", path, "-mindepth",
		                     "1",          "-delete",          NULL };
	AUTO_FREE char *program = NULL;
	struct proc_spec spec = { .argv = argv, .envp = env };
	struct proc p;

	if (proc_find_program("mmdebstrap", &program) < 0)
		return;
	spec.path = program;
	if (proc_spawn(&p, &spec, NULL) == 0 && proc_wait(&p, 60 * 1000, NULL) < 0)
		proc_end(&p, 0);
}

/*
 * Remove mmdebstrap's folder. In unshare mode the tree in it belongs to subordinate ids.
 * Their root empties the tree; it cannot take it out of our folder, or list that: we can.
 */
static void remove_work(int fd, const char *name)
{
	AUTO_FREE char *path = xasprintf("%s/%s", work_base, name);

	if (has_mounts(path) || path_remove_tree(fd, name) == 0 || getuid() == 0)
		return;
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));) {
		struct stat st;

		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(st.st_mode) || st.st_uid == getuid())
			continue;
		AUTO_FREE char *tree = xasprintf("%s/%s", path, e->d_name);
		empty_as_subordinate(tree);
	}
	if (d)
		(void)closedir(d); /* only read */
	(void)!path_remove_tree(fd, name);
}

/* Sweep, and make our own folders, while nobody else does either. */
static int make_folders(struct build *b)
{
	AUTO_CLOSE int lock = image_lock_file(b->cache, ".lock");
	AUTO_CLOSE int base = open(work_base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE char *prefix = work_prefix();
	uint32_t random;

	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return err_errno(b->err, "cannot lock the image cache");
	if (base < 0)
		return err_errno(b->err, "cannot open '%s'", work_base);
	image_sweep(b->cache, ".tmp-");
	image_sweep_with(base, prefix, remove_work);
	random_bytes(&random, sizeof(random));
	(void)snprintf(b->tmp_name, sizeof(b->tmp_name), ".tmp-%s-%08x", b->spec.id, random);
	int r = image_make_locked(b->cache, b->tmp_name, 0700, &b->tmp);
	if (r < 0)
		return err_code(b->err, r, "cannot create a folder in the image cache");
	/* apt's own user, and the ids of unshare mode, must pass through this one */
	AUTO_FREE char *name = xasprintf("%s%08x", prefix, random);
	r = image_make_locked(base, name, 0711, &b->work_fd);
	if (r < 0)
		return err_code(b->err, r, "cannot create a folder in '%s'", work_base);
	b->work = xasprintf("%s/%s", work_base, name);
	return 0;
}

static void drop_folders(struct build *b)
{
	if (b->work) {
		AUTO_CLOSE int base = open(work_base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (base >= 0)
			remove_work(base, strrchr(b->work, '/') + 1);
		free(b->work);
		b->work = NULL;
	}
	close_now(&b->work_fd);
	if (b->tmp >= 0)
		(void)!path_remove_tree(b->cache, b->tmp_name); /* or the next build's sweep */
	close_now(&b->tmp);
}

/* ---- mmdebstrap --------------------------------------------------------- */

struct words {
	char *v[ARGS_MAX + 1];
	size_t n;
};

static void words_fini(struct words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i]);
}

static void word(struct words *w, char *s)
{
	ASSERT(w->n < ARGS_MAX);
	w->v[w->n++] = s;
}

/*
 * Runs when everything is installed. apt outside of the tree, with mmdebstrap's
 * configuration, so that it works for a tree without apt too. The cloud
 * kernel's package of the suite depends on the one of today's version.
 */
static const char kernel_hook[] =
	"set -eu; echo 'I: cloche: kernel' >&2; d=\"$1/" REGISTRY_DIR "\"; mkdir -p \"$d\"; cd "
	"\"$d\"; "
	"export APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\"; "
	"p=$(apt-cache --no-all-versions show linux-image-cloud-amd64 | "
	"sed -n 's/^Depends:.*\\(linux-image-[0-9][^ ,(]*\\).*/\\1/p' | head -n 1); "
	"test -n \"$p\"; apt-get -q -o APT::Sandbox::User=root download \"$p\" >&2";

/*
 * Asks the image's own package tools where they fetch from (registry.h), in the
 * tree, without the builder's environment, in a home that is dropped. A tool that
 * fails has no say, and no build fails by it.
 */
static char *registry_hook(void)
{
	AUTO_BUF struct buf script = { 0 }, quoted = { 0 };
	int r = registry_script(&script, REGISTRY_IMAGE);

	for (size_t i = 0; i < script.len && r == 0; i++) {
		if (script.p[i] == '\'')
			r = buf_printf(&quoted, "'\\''");
		else
			r = buf_put(&quoted, &script.p[i], 1);
	}
	if (r < 0)
		return NULL;
	return xasprintf("d=\"$1/" REGISTRY_DIR "\"; mkdir -p \"$d/home\"; "
	                 "timeout -k 5 %d chroot \"$1\" /usr/bin/env -i HOME=/" REGISTRY_DIR
	                 "/home LC_ALL=C.UTF-8 "
	                 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "
	                 "/bin/sh -c '%.*s' </dev/null 2>/dev/null | "
	                 "head -c %d >\"$d/" REGISTRY_FILE "\"; exit 0",
	                 PROBES_S, (int)quoted.len, (const char *)quoted.p, REGISTRY_OUTPUT_MAX);
}

static int mmdebstrap_words(struct build *b, const char *mmdebstrap, struct words *w,
                            struct words *env)
{
	AUTO_BUF struct buf conf = { 0 }, include = { 0 };
	AUTO_FREE char *codename = host_codename();
	struct apt_host host = { 0 };
	char *options[APT_OPTIONS_MAX];
	const struct recipe *rc = &b->spec.recipe;
	const char *mirror = b->mirror;
	int r = 0;

	if (!mirror || !mirror[0])
		mirror = getenv("CLOCHE_MIRROR");
	if (mirror && mirror[0]) {
		if (!apt_uri_ok(mirror)) {
			(void)err_set(b->err, -EINVAL, "image.mirror is no plain http(s) address");
			return err_hint(b->err, "a login for it belongs into apt's auth.conf");
		}
		memcpy(host.uri, mirror, strlen(mirror) + 1);
	} else {
		r = apt_host_find("/etc/apt", "/var/lib/apt/lists", codename, &host, b->err);
		if (r < 0)
			return r;
	}
	static const char keyring[] = "/usr/share/keyrings/debian-archive-keyring.gpg";
	if (!host.signed_by[0] && access(keyring, R_OK) == 0)
		memcpy(host.signed_by, keyring, sizeof(keyring));
	for (size_t i = 0; i < rc->n_packages; i++) {
		r = buf_printf(&include, "%s%.*s", i ? "," : "", (int)rc->packages[i].len,
		               rc->packages[i].p);
		if (r < 0)
			return err_code(b->err, r, "cannot list the packages");
	}
	/*
	 * mmdebstrap's root mode mounts into the tree in our own mount namespace and
	 * forgets that when it is killed. Here mounts and processes end with it.
	 */
	if (getuid() == 0) {
		static const char *const unshare[] = {
			"unshare", "--mount",      "--propagation=private", "--pid",
			"--fork",  "--kill-child", "--mount-proc",          "--"
		};
		for (size_t i = 0; i < ARRAY_LEN(unshare); i++)
			word(w, xstrdup(unshare[i]));
	}
	word(w, xstrdup(mmdebstrap));
	word(w, xasprintf("--mode=%s", getuid() == 0 ? "root" : "unshare"));
	word(w, xstrdup("--variant=apt"));
	word(w, xstrdup("--format=tar"));
	word(w, xstrdup("--architectures=amd64"));
	word(w, xasprintf("--include=%.*s", (int)include.len, (const char *)include.p));
	word(w, xstrdup("--aptopt=APT::Install-Recommends \"false\""));
	word(w, xstrdup("--aptopt=Acquire::Languages \"none\""));
	/* a tree that a crash throws away needs no fsync per file */
	word(w, xstrdup("--dpkgopt=force-unsafe-io"));
	read_apt_config(&conf);
	size_t n = apt_conf_pick(span_of(conf.p, conf.len), options);
	for (size_t i = 0; i < n; i++) {
		word(w, xasprintf("--aptopt=%s", options[i]));
		free(options[i]);
	}
	for (size_t i = 0; i < rc->n_steps; i++) {
		const struct recipe_step *s = &rc->steps[i];
		if (s->verb == RECIPE_EMPTY && s->path.len > 10 &&
		    memcmp(s->path.p, "usr/share/", 10) == 0)
			word(w, xasprintf("--dpkgopt=path-exclude=/%.*s/*", (int)s->path.len,
			                  (const char *)s->path.p));
	}
	AUTO_FREE char *hook = registry_hook();
	if (!hook)
		return err_set(b->err, -ENOMEM, "no memory");
	word(w, xasprintf("--customize-hook=%s", hook));
	word(w, xasprintf("--customize-hook=%s", kernel_hook));
	word(w, xstrdup(b->spec.suite));
	word(w, xstrdup("-"));
	AUTO_FREE char *by =
		host.signed_by[0] ? xasprintf("[signed-by=%s] ", host.signed_by) : xstrdup("");
	word(w, xasprintf("deb %s%s %s main", by, host.uri, b->spec.suite));
	if (host.security[0])
		word(w, xasprintf("deb %s%s %s-security main", by, host.security, b->spec.suite));

	static const char *const passed[] = { "http_proxy", "https_proxy", "no_proxy", "ftp_proxy",
		                              "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "HOME" };
	for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
		const char *v = getenv(passed[i]);
		if (v)
			word(env, xasprintf("%s=%s", passed[i], v));
	}
	word(env, xstrdup("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
	word(env, xstrdup("LC_ALL=C.UTF-8"));
	word(env, xasprintf("TMPDIR=%s", b->work));
	return 0;
}

/* ---- processes ---------------------------------------------------------- */

static int spawn(struct build *b, int which, const char *path, const char *const *argv,
                 const char *const *envp, const struct proc_fd *more, size_t n_more)
{
	struct child *c = &b->child[which];
	struct proc_fd fds[8];
	size_t n = 0;
	int e[2], rep[2] = { -1, -1 };

	if (pipe2(e, O_CLOEXEC) < 0)
		return err_errno(b->err, "cannot start '%s'", path);
	c->err_fd = e[0];
	fds[n++] = (struct proc_fd){ .from = e[1], .to = 2 };
	if (which != MMDEBSTRAP) {
		if (pipe2(rep, O_CLOEXEC) < 0) {
			(void)close(e[1]); /* unused */
			return err_errno(b->err, "cannot start '%s'", path);
		}
		c->rep_fd = rep[0];
		fds[n++] = (struct proc_fd){ .from = rep[1], .to = 1 };
	}
	for (size_t i = 0; i < n_more; i++)
		fds[n++] = more[i];
	struct proc_spec spec = {
		.path = path, .argv = argv, .envp = envp, .fds = fds, .n_fds = n
	};
	int r = proc_spawn(&c->p, &spec, b->err);
	c->is_over = r < 0;
	(void)close(e[1]); /* the child's */
	close_now(&rep[1]);
	return r;
}

static int start_all(struct build *b)
{
	struct words w = { 0 }, env = { 0 };
	int tar[2] = { -1, -1 }, deb[2] = { -1, -1 };
	AUTO_FREE char *mm = NULL, *unshare = NULL, *self = proc_self_dir();
	AUTO_FREE char *worker = xasprintf("%s/cloche-image", self);
	const char *const rootfs_argv[] = { "cloche-image", "rootfs", b->spec.name, NULL };
	const char *const kernel_argv[] = { "cloche-image", "kernel", NULL };

	if (proc_find_program("mmdebstrap", &mm) < 0)
		return image_no_program(b->err, "mmdebstrap", "mmdebstrap uidmap");
	if (getuid() == 0 && proc_find_program("unshare", &unshare) < 0)
		return image_no_program(b->err, "unshare", "util-linux");
	int r = mmdebstrap_words(b, mm, &w, &env);
	if (r < 0)
		goto out;
	if (pipe2(tar, O_CLOEXEC) < 0 || pipe2(deb, O_CLOEXEC) < 0) {
		r = err_errno(b->err, "cannot make a pipe");
		goto out;
	}
	(void)fcntl(tar[1], F_SETPIPE_SZ, 1024 * 1024); /* faster; the default works */
	const struct proc_fd kernel_fds[] = { { deb[0], 0 }, { b->out[1], 3 }, { b->out[2], 4 } };
	const struct proc_fd rootfs_fds[] = { { tar[0], 0 }, { b->out[0], 3 }, { deb[1], 4 } };
	const struct proc_fd mm_fds[] = { { tar[1], 1 }, { b->work_fd, LOCK_FD } };
	r = spawn(b, KERNEL, worker, kernel_argv, NULL, kernel_fds, ARRAY_LEN(kernel_fds));
	if (r == 0)
		r = spawn(b, ROOTFS, worker, rootfs_argv, NULL, rootfs_fds, ARRAY_LEN(rootfs_fds));
	if (r == 0)
		r = spawn(b, MMDEBSTRAP, unshare ? unshare : mm, (const char *const *)w.v,
		          (const char *const *)env.v, mm_fds, ARRAY_LEN(mm_fds));
out:
	close_now(&tar[0]);
	close_now(&tar[1]);
	close_now(&deb[0]);
	close_now(&deb[1]);
	words_fini(&w);
	words_fini(&env);
	return r;
}

/* mmdebstrap says what it does in words; an unknown line changes nothing. */
static void see_line(struct build *b)
{
	static const struct {
		const char *word;
		enum image_phase phase;
	} marks[] = {
		{ "I: running apt-get update", IMAGE_PHASE_INDEX },
		{ "I: downloading packages", IMAGE_PHASE_DOWNLOAD },
		{ "I: extracting archives", IMAGE_PHASE_UNPACK },
		{ "I: installing", IMAGE_PHASE_UNPACK },
		{ "I: cloche: kernel", IMAGE_PHASE_KERNEL },
		{ "I: creating tarball", IMAGE_PHASE_WRITE },
	};
	const char *line = b->child[MMDEBSTRAP].line;

	for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
		if (strncmp(line, marks[i].word, strlen(marks[i].word)) == 0)
			(void)tell(b, marks[i].phase, true); /* cancelled at the next tick */
	}
}

static void read_stderr(struct build *b, int which)
{
	struct child *c = &b->child[which];
	char piece[4096];
	ssize_t n = read(c->err_fd, piece, sizeof(piece));

	if (n <= 0) {
		if (n == 0 || errno != EINTR)
			close_now(&c->err_fd);
		return;
	}
	if (b->log_fd >= 0 && b->log_bytes < LOG_BYTES_MAX) {
		(void)!fd_write_all(b->log_fd, piece, (size_t)n); /* a help for people only */
		b->log_bytes += (size_t)n;
	}
	for (ssize_t i = 0; i < n; i++) {
		if (c->n_tail == TAIL_BYTES) {
			memmove(c->tail, c->tail + TAIL_BYTES / 2, TAIL_BYTES / 2);
			c->n_tail = TAIL_BYTES / 2;
		}
		c->tail[c->n_tail++] = piece[i];
		if (piece[i] == '\n' || piece[i] == '\r') {
			c->line[c->n_line] = '\0';
			if (which == MMDEBSTRAP)
				see_line(b);
			c->n_line = 0;
		} else if (c->n_line + 1 < sizeof(c->line)) {
			c->line[c->n_line++] = piece[i];
		}
	}
}

static void read_report(struct child *c)
{
	ssize_t n = read(c->rep_fd, c->report + c->n_report, sizeof(c->report) - c->n_report);

	if (n > 0)
		c->n_report += (size_t)n;
	if (n == 0 || (n < 0 && errno != EINTR) || c->n_report == sizeof(c->report))
		close_now(&c->rep_fd);
}

/* The line of stderr that says most: apt's first "E: ...", else the last of all. */
static void last_words(const struct child *c, char *dst, size_t cap)
{
	struct span rest = span_of(c->tail, c->n_tail), best = { 0 };

	while (rest.len) {
		const uint8_t *nl = memchr(rest.p, '\n', rest.len);
		size_t n = nl ? (size_t)(nl - rest.p) : rest.len;
		struct span line = span_of(rest.p, n);
		rest = span_of(rest.p + n + (nl != NULL), rest.len - n - (nl != NULL));
		if (line.len)
			best = line;
		if (line.len > 3 && memcmp(line.p, "E: ", 3) == 0)
			break; /* those behind it are its consequences */
	}
	(void)vis_str(dst, cap, best);
}

static bool failed(const struct child *c)
{
	return c->is_over && c->status != 0;
}

/* Turn until all are over, one failed, or the user gave up. */
static int watch(struct build *b)
{
	for (;;) {
		struct pollfd pf[PROCS * 3];
		bool busy = false;

		for (int i = 0; i < PROCS; i++) {
			struct child *c = &b->child[i];
			pf[3 * i] = (struct pollfd){ .fd = c->p.pidfd, .events = POLLIN };
			pf[3 * i + 1] = (struct pollfd){ .fd = c->err_fd, .events = POLLIN };
			pf[3 * i + 2] = (struct pollfd){ .fd = c->rep_fd, .events = POLLIN };
			busy |= !c->is_over || c->rep_fd >= 0;
		}
		if (!busy)
			return 0;
		int r = poll(pf, ARRAY_LEN(pf), TICK_MS);
		if (r < 0 && errno != EINTR)
			return err_errno(b->err, "cannot wait for the build");
		for (int i = 0; i < PROCS && r > 0; i++) {
			struct child *c = &b->child[i];
			if (c->err_fd >= 0 && pf[3 * i + 1].revents)
				read_stderr(b, i);
			if (c->rep_fd >= 0 && pf[3 * i + 2].revents)
				read_report(c);
			if (!c->is_over && pf[3 * i].revents &&
			    proc_wait(&c->p, 0, &c->status) == 0)
				c->is_over = true;
		}
		for (int i = 0; i < PROCS; i++) {
			if (failed(&b->child[i]))
				return -EIO; /* say_failure() has the words */
		}
		if (!tell(b, b->phase, false))
			return err_set(b->err, -ECANCELED, "cancelled");
	}
}

/* Its input was cut short or damaged: then what feeds it failed, or will in a moment. */
static bool is_starved(const struct child *c)
{
	return failed(c) && WIFEXITED(c->status) && WEXITSTATUS(c->status) == WORKER_EXIT_DAMAGED;
}

static void end_all(struct build *b)
{
	static const int order[] = { MMDEBSTRAP, ROOTFS, KERNEL };

	for (int i = ROOTFS; i < PROCS; i++) {
		for (int up = MMDEBSTRAP; up < i && is_starved(&b->child[i]); up++) {
			struct child *c = &b->child[up];
			if (!c->is_over && proc_wait(&c->p, 3000, &c->status) == 0)
				c->is_over = true;
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		struct child *c = &b->child[order[i]];
		if (!c->is_over)
			proc_end(&c->p, order[i] == MMDEBSTRAP && getuid() != 0 ? GRACE_MS : 0);
		while (c->err_fd >= 0) { /* what is there, not what may come */
			struct pollfd pf = { .fd = c->err_fd, .events = POLLIN };
			if (poll(&pf, 1, 0) <= 0)
				break;
			read_stderr(b, order[i]);
		}
		close_now(&c->err_fd);
		close_now(&c->rep_fd);
	}
}

static int say_failure(struct build *b)
{
	char why[300], how[64];
	int which = -1;

	for (int i = ROOTFS; i < PROCS && which < 0; i++)
		which = failed(&b->child[i]) && !is_starved(&b->child[i]) ? i : -1;
	for (int i = MMDEBSTRAP; i < PROCS && which < 0; i++)
		which = failed(&b->child[i]) ? i : -1;
	ASSERT(which >= 0);
	struct child *c = &b->child[which];
	last_words(c, why, sizeof(why));
	if (WIFSIGNALED(c->status))
		(void)snprintf(how, sizeof(how), "ended by signal %d", WTERMSIG(c->status));
	else
		(void)snprintf(how, sizeof(how), "exit status %d", WEXITSTATUS(c->status));
	(void)err_set(b->err, which == MMDEBSTRAP ? -EIO : -EPROTO, "%s: %s (%s)",
	              proc_names[which], why[0] ? why : "no message", how);
	return err_hint(b->err, "all of its output: %s/build-%s.log", b->cache_path, b->spec.name);
}

/* ---- the end of a build ------------------------------------------------- */

static int read_reports(struct build *b, struct image_manifest *m)
{
	struct worker_report rootfs, kernel;

	if (b->child[ROOTFS].n_report != WORKER_REPORT_BYTES ||
	    b->child[KERNEL].n_report != WORKER_REPORT_BYTES ||
	    worker_report_parse(&rootfs, b->child[ROOTFS].report) < 0 ||
	    worker_report_parse(&kernel, b->child[KERNEL].report) < 0 || !kernel.text[0] ||
	    strlen(kernel.text) >= sizeof(m->info.kernel_release))
		return err_set(b->err, -EPROTO, "cloche-image gave a report that makes no sense");
	memcpy(m->info.kernel_release, kernel.text, strlen(kernel.text) + 1);
	memcpy(m->package, rootfs.text, strlen(rootfs.text) + 1);
	m->registries = rootfs.registries;
	return 0;
}

static int finish(struct build *b)
{
	struct image_manifest m = { 0 };
	char *text = NULL;
	int r = read_reports(b, &m);

	if (r < 0)
		return r;
	if (!tell(b, IMAGE_PHASE_FINISH, true))
		return err_set(b->err, -ECANCELED, "cancelled");
	memcpy(m.info.name, b->spec.name, sizeof(m.info.name));
	memcpy(m.info.id, b->spec.id, sizeof(m.info.id));
	memcpy(m.info.suite, b->spec.suite, sizeof(m.info.suite));
	m.info.built_s = time(NULL);
	for (int i = 0; i < IMAGE_FILES; i++) {
		r = image_hash_fd(b->out[i], &m.digest[i], &m.size[i]);
		if (r == 0 && (m.size[i] == 0 || (i == 0 && m.size[i] % EROFS_BLOCK_BYTES)))
			return err_set(b->err, -EPROTO, "%s has no possible size",
			               image_file_names[i]);
		if (r == 0 && fsync(b->out[i]) < 0)
			r = -errno;
		if (r == 0)
			r = fd_close(&b->out[i]);
		if (r < 0)
			return err_code(b->err, r, "cannot write %s", image_file_names[i]);
	}
	r = image_manifest_format(&m, &text);
	AUTO_FREE char *json = text;
	if (r == 0)
		r = image_write_file(b->tmp, IMAGE_MANIFEST, json, strlen(json));
	if (r < 0)
		return err_code(b->err, r, "cannot write the image's manifest");
	/* exchange: at every moment there is a whole image of that name, old or new */
	AUTO_CLOSE int lock = image_lock_file(b->cache, ".lock");
	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return err_errno(b->err, "cannot lock the image cache");
	r = path_rename_new(b->cache, b->tmp_name, b->cache, b->spec.id);
	if (r == 0)
		close_now(&b->tmp); /* now the image itself */
	else if (r == -EEXIST)
		r = path_exchange_dirs(b->cache, b->tmp_name, b->spec.id);
	if (r < 0)
		return err_code(b->err, r, "cannot put the image in place");
	(void)fsync(b->cache); /* some file systems cannot; the rename is there */
	return 0;
}

/* ---- image_build() ------------------------------------------------------ */

/* Is there a whole image, made at @since_s or later? */
static bool have_image(const struct build *b, int64_t since_s)
{
	struct image_manifest m;
	AUTO_CLOSE int dir =
		openat(b->cache, b->spec.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return dir >= 0 && image_manifest_load(dir, &m) == 0 && m.info.built_s >= since_s;
}

static int build_locked(struct build *b)
{
	if (getuid() != 0) {
		AUTO_FREE char *newuidmap = NULL;
		int r = check_subids(b->err);
		if (r < 0)
			return r;
		if (proc_find_program("newuidmap", &newuidmap) < 0)
			return image_no_program(b->err, "newuidmap", "mmdebstrap uidmap");
	}
	int r = make_folders(b);
	if (r < 0)
		return r;
	for (int i = 0; i < IMAGE_FILES; i++) {
		b->out[i] = openat(b->tmp, image_file_names[i],
		                   O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (b->out[i] < 0)
			return err_errno(b->err, "cannot create %s", image_file_names[i]);
	}
	AUTO_FREE char *log = xasprintf("build-%s.log", b->spec.name);
	b->log_fd =
		openat(b->cache, log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (!tell(b, IMAGE_PHASE_INDEX, true))
		return err_set(b->err, -ECANCELED, "cancelled");
	r = start_all(b);
	if (r == 0)
		r = watch(b);
	end_all(b);
	if (r == -EIO)
		r = say_failure(b);
	return r < 0 ? r : finish(b);
}

int image_build(const struct image_opts *opts, bool force, image_progress_fn fn, void *arg,
                bool *out_built, struct err *err)
{
	struct err own = { 0 };
	struct build b = {
		.cache = -1,
		.tmp = -1,
		.work_fd = -1,
		.log_fd = -1,
		.out = { -1, -1, -1 },
		.mirror = opts ? opts->mirror : NULL,
		.fn = fn,
		.arg = arg,
		.err = err ? err : &own,
	};
	AUTO_CLOSE int lock = -1;
	AUTO_FREE char *lock_name = NULL;
	int64_t start_s = time(NULL);
	bool built = false;

	for (int i = 0; i < PROCS; i++)
		b.child[i] = (struct child){
			.p.pidfd = -1, .err_fd = -1, .rep_fd = -1, .is_over = true
		};
	(void)clock_gettime(CLOCK_MONOTONIC, &b.start); /* cannot fail for this clock */
	int r = image_spec_init(&b.spec, opts, b.err);
	if (r < 0)
		return r;
	r = image_cache_open(opts, &b.cache, &b.cache_path, b.err);
	if (r < 0)
		goto out;
	if (!force && have_image(&b, 0))
		goto out;
	lock_name = xasprintf(".lock-%s", b.spec.id);
	lock = image_lock_file(b.cache, lock_name);
	if (lock < 0) {
		r = err_code(b.err, lock, "cannot lock the image cache");
		goto out;
	}
	while (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			r = err_errno(b.err, "cannot lock the image cache");
			goto out;
		}
		if (!tell(&b, IMAGE_PHASE_WAIT, false)) {
			r = err_set(b.err, -ECANCELED, "cancelled");
			goto out;
		}
		(void)poll(NULL, 0, TICK_MS); /* a pause */
	}
	/* the one we waited for may have done it */
	if (have_image(&b, force ? start_s : 0))
		goto out;
	r = build_locked(&b);
	built = r == 0;
	if (r < 0)
		(void)err_wrap(b.err, "cannot build image '%s'", b.spec.name);
out:
	drop_folders(&b);
	for (int i = 0; i < IMAGE_FILES; i++)
		close_now(&b.out[i]);
	close_now(&b.log_fd);
	close_now(&b.cache);
	free(b.cache_path);
	image_spec_fini(&b.spec);
	if (r == 0 && out_built)
		*out_built = built;
	return r;
}
