/* SPDX-License-Identifier: Apache-2.0 */
#include "image/npm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/vis.h"
#include "image/image_priv.h"

enum { TICK_MS = 250, SAID_MAX = 64 * 1024, GRACE_MS = 3000, ARGS_MAX = 24 };

/* ---- names -------------------------------------------------------------- */

static const char lower[] = "abcdefghijklmnopqrstuvwxyz";
static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
static const char digits[] = "0123456789";

static bool one_of(char c, const char *set)
{
	return c && strchr(set, c);
}

/* The length of a part of a package's name at @s; 0 when it is none. */
static size_t name_part(const char *s)
{
	size_t n = 0;

	if (!one_of(s[0], lower) && !one_of(s[0], digits))
		return 0; /* neither hidden nor an option */
	while (one_of(s[n], lower) || one_of(s[n], digits) || one_of(s[n], "._-"))
		n++;
	return n;
}

bool npm_name_ok(const char *s)
{
	if (strlen(s) > NPM_NAME_MAX)
		return false;
	if (*s == '@') {
		size_t n = name_part(s + 1);
		if (n == 0 || s[1 + n] != '/')
			return false;
		s += n + 2;
	}
	size_t n = name_part(s);
	return n && s[n] == '\0' && strcmp(s, "node_modules") != 0;
}

bool npm_version_ok(const char *s)
{
	if (strlen(s) >= NPM_VERSION_MAX)
		return false;
	for (int i = 0; i < 3; i++) {
		size_t n = strspn(s, digits);
		if (n == 0 || (n > 1 && s[0] == '0') || (i < 2 && s[n] != '.'))
			return false;
		s += n + (i < 2);
	}
	for (int i = 0; i < 2; i++) { /* -PRERELEASE, +BUILD */
		if (*s != (i ? '+' : '-'))
			continue;
		size_t n = 1;
		while (one_of(s[n], lower) || one_of(s[n], upper) || one_of(s[n], digits) ||
		       one_of(s[n], ".-"))
			n++;
		if (n == 1)
			return false;
		s += n;
	}
	return *s == '\0';
}

bool npm_bin_ok(const char *s)
{
	size_t n = 0;

	while (one_of(s[n], lower) || one_of(s[n], upper) || one_of(s[n], digits) ||
	       one_of(s[n], "._+-"))
		n++;
	return n && n < 64 && s[n] == '\0' && s[0] != '.' && s[0] != '-';
}

/* ---- integrity ---------------------------------------------------------- */

static const char prefix[] = "sha512-";
static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
enum { PREFIX = sizeof(prefix) - 1, BASE64_CHARS = 88 };

int npm_integrity_parse(uint8_t out[SHA512_BYTES], struct span text)
{
	uint8_t sum[SHA512_BYTES + 2];
	size_t n = 0;

	if (text.len && text.p[text.len - 1] == '\n')
		text.len--;
	if (text.len != PREFIX + BASE64_CHARS || memcmp(text.p, prefix, PREFIX) != 0)
		return -EINVAL;
	const uint8_t *p = text.p + PREFIX;
	/* 64 bytes are 21 groups of 3, and one: "xx==" */
	if (p[86] != '=' || p[87] != '=')
		return -EINVAL;
	for (size_t i = 0; i < BASE64_CHARS; i += 4) {
		uint32_t v = 0;
		for (size_t k = 0; k < 4; k++) {
			char c = (char)p[i + k];
			const char *at = one_of(c, base64) ? strchr(base64, c) : NULL;
			if (!at && i + k < 86)
				return -EINVAL;
			v = v << 6 | (at ? (uint32_t)(at - base64) : 0);
		}
		if (i == BASE64_CHARS - 4 && (v & 0xffff))
			return -EINVAL; /* bits that say nothing are zero */
		for (size_t k = 0; k < 3; k++)
			sum[n++] = (uint8_t)(v >> (16 - 8 * k));
	}
	memcpy(out, sum, SHA512_BYTES);
	return 0;
}

void npm_integrity_put(char dst[NPM_INTEGRITY_BYTES], const uint8_t sum[SHA512_BYTES])
{
	char *p = dst + PREFIX;

	memcpy(dst, prefix, PREFIX);
	for (size_t i = 0; i < SHA512_BYTES; i += 3) {
		uint32_t v = (uint32_t)sum[i] << 16;
		if (i + 1 < SHA512_BYTES)
			v |= (uint32_t)sum[i + 1] << 8 | sum[i + 2];
		for (int k = 18; k >= 0; k -= 6)
			*p++ = base64[v >> k & 63];
	}
	p[-1] = p[-2] = '=';
	*p = '\0';
}

static int hash_file(int fd, uint8_t out[SHA512_BYTES])
{
	enum { PIECE = 1024 * 1024 };
	AUTO_FREE uint8_t *b = xmalloc(PIECE);
	struct sha512_state s;
	off_t at = 0;

	sha512_init(&s);
	for (;;) {
		ssize_t n = pread(fd, b, PIECE, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		sha512_update(&s, b, (size_t)n);
		at += n;
	}
	sha512_final(&s, out);
	return 0;
}

/* ---- npm ---------------------------------------------------------------- */

struct span npm_last_words(struct span text)
{
	static const char *const empty_words[] = { "code ", "errno ", "syscall ", "path ", "A " };
	struct span last = { 0 };

	while (text.len) {
		const uint8_t *nl = memchr(text.p, '\n', text.len);
		size_t n = nl ? (size_t)(nl - text.p) : text.len;
		struct span line = span_of(text.p, n);
		text = span_of(text.p + n + (nl != NULL), text.len - n - (nl != NULL));
		/* "npm error ..." of today, "npm ERR! ..." of older ones */
		bool is_npm = line.len > 10 && memcmp(line.p, "npm error ", 10) == 0;
		bool is_old = line.len > 9 && memcmp(line.p, "npm ERR! ", 9) == 0;
		if (!is_npm && !is_old) {
			if (line.len && !last.len)
				last = line;
			continue;
		}
		size_t skip = is_npm ? 10 : 9;
		line = span_of(line.p + skip, line.len - skip);
		bool says = memchr(line.p, ' ', line.len) != NULL;
		for (size_t i = 0; i < ARRAY_LEN(empty_words); i++)
			says &= line.len < strlen(empty_words[i]) ||
			        memcmp(line.p, empty_words[i], strlen(empty_words[i])) != 0;
		if (says)
			return line;
	}
	return last;
}

/* In the system's folders, else where the user's PATH has it (version managers of node). */
static int find_npm(char **out)
{
	const char *path = getenv("PATH");

	if (proc_find_program("npm", out) == 0)
		return 0;
	AUTO_FREE char *copy = xstrdup(path ? path : "");
	for (char *save = NULL, *d = strtok_r(copy, ":", &save); d;
	     d = strtok_r(NULL, ":", &save)) {
		AUTO_FREE char *p = xasprintf("%s/npm", d);
		if (d[0] == '/' && access(p, X_OK) == 0) {
			*out = take_ptr(&p);
			return 0;
		}
	}
	return -ENOENT;
}

/* npm started once, and what it says. */
struct job {
	struct proc p;
	int out_fd, err_fd;
	struct buf out, err;
	bool is_over;
	int status;
};
#define JOB_INIT                                                           \
	{                                                                  \
		.p.pidfd = -1, .out_fd = -1, .err_fd = -1, .is_over = true \
	}

static int job_start(struct job *j, const char *npm, const char *const *args, const char *cwd,
                     struct err *err)
{
	static const char *const ours[] = { "--ignore-scripts", "--loglevel=error", "--no-progress",
		                            "--no-update-notifier", "--no-color" };
	extern char **environ;
	const char *argv[ARGS_MAX];
	int o[2], e[2];
	size_t n = 0;

	argv[n++] = npm;
	for (; *args; args++)
		argv[n++] = *args;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		argv[n++] = ours[i];
	/* the folder of a project is where .npmrc is looked for: ours, and empty */
	AUTO_FREE char *pre = xasprintf("--prefix=%s", cwd);
	argv[n++] = pre;
	argv[n] = NULL;
	ASSERT(n < ARGS_MAX);
	if (pipe2(o, O_CLOEXEC) < 0)
		return err_errno(err, "cannot start npm");
	j->out_fd = o[0];
	AUTO_CLOSE int out_w = o[1];
	if (pipe2(e, O_CLOEXEC) < 0)
		return err_errno(err, "cannot start npm");
	j->err_fd = e[0];
	AUTO_CLOSE int err_w = e[1];
	struct proc_fd fds[] = { { .from = out_w, .to = 1 }, { .from = err_w, .to = 2 } };
	/*
	 * The whole environment: what the user's .npmrc refers to may be any of it, and
	 * npm runs for them as it always does.
	 */
	struct proc_spec spec = { .path = npm,
		                  .argv = argv,
		                  .envp = (const char *const *)environ,
		                  .fds = fds,
		                  .n_fds = ARRAY_LEN(fds),
		                  .cwd = cwd };
	int r = proc_spawn(&j->p, &spec, err);
	j->is_over = r < 0;
	return r;
}

static void job_read(int *fd, struct buf *to)
{
	char piece[4096];
	ssize_t n = read(*fd, piece, sizeof(piece));

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		close_now(fd);
		return;
	}
	if (to->len < SAID_MAX)
		(void)!buf_put(to, piece, (size_t)n); /* the rest is for nobody */
}

static void job_fini(struct job *j)
{
	if (!j->is_over)
		proc_end(&j->p, GRACE_MS);
	close_now(&j->out_fd);
	close_now(&j->err_fd);
	buf_fini(&j->out);
	buf_fini(&j->err);
}

static bool job_busy(const struct job *j)
{
	return !j->is_over || j->out_fd >= 0 || j->err_fd >= 0;
}

static int jobs_watch(struct job *jobs, size_t n, bool (*tick)(void *arg), void *arg,
                      struct err *err)
{
	for (;;) {
		struct pollfd pf[6];
		bool busy = false;

		ASSERT(n <= 2);
		for (size_t i = 0; i < n; i++) {
			struct job *j = &jobs[i];
			if (j->is_over && j->status != 0 && j->err_fd < 0)
				return 0; /* the other need not end */
			busy |= job_busy(j);
			pf[3 * i] = (struct pollfd){ .fd = j->is_over ? -1 : j->p.pidfd,
				                     .events = POLLIN };
			pf[3 * i + 1] = (struct pollfd){ .fd = j->out_fd, .events = POLLIN };
			pf[3 * i + 2] = (struct pollfd){ .fd = j->err_fd, .events = POLLIN };
		}
		if (!busy)
			return 0;
		int r = poll(pf, 3 * n, TICK_MS);
		if (r < 0 && errno != EINTR)
			return err_errno(err, "cannot wait for npm");
		for (size_t i = 0; i < n && r > 0; i++) {
			struct job *j = &jobs[i];
			if (j->out_fd >= 0 && pf[3 * i + 1].revents)
				job_read(&j->out_fd, &j->out);
			if (j->err_fd >= 0 && pf[3 * i + 2].revents)
				job_read(&j->err_fd, &j->err);
			if (!j->is_over && pf[3 * i].revents &&
			    proc_wait(&j->p, 0, &j->status) == 0)
				j->is_over = true;
		}
		if (!tick(arg))
			return err_set(err, -ECANCELED, "cancelled");
	}
}

static int job_failed(const struct job *j, const char *spec, struct err *err)
{
	char why[300];
	struct span words = npm_last_words(span_of(j->err.p, j->err.len));

	if (j->status == 0)
		return 0;
	(void)vis_str(why, sizeof(why), words);
	(void)err_set(err, -EIO, "npm cannot fetch %s: %s (exit status %d)", spec,
	              why[0] ? why : "no message", proc_shell_status(j->status));
	return err_hint(err, "npm view %s shows what npm says", spec);
}

/* The one file that npm left in @dirfd. */
static int open_tarball(int dirfd, int *out, struct err *err)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	AUTO_CLOSE int fd = -1;
	struct dirent *e;
	struct stat st;
	size_t n = 0;

	if (!d) {
		close_now(&copy);
		return err_errno(err, "cannot read what npm left");
	}
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);
		if (len < 5 || strcmp(e->d_name + len - 4, ".tgz") != 0)
			continue;
		close_now(&fd);
		fd = openat(dirfd, e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		n++;
	}
	(void)closedir(d); /* only read */
	if (n != 1 || fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, -EIO, "npm left no tarball");
	if ((uint64_t)st.st_size > NPM_TARBALL_MAX)
		return err_set(err, -EFBIG, "the tarball is larger than %llu MiB",
		               (unsigned long long)(NPM_TARBALL_MAX >> 20));
	*out = take_fd(&fd);
	return 0;
}

int npm_fetch(const char *package, const char *version, const char *path, int dirfd,
              const uint8_t *known, bool (*tick)(void *arg), void *arg, int *out_fd,
              uint8_t out_sum[SHA512_BYTES], struct err *err)
{
	struct job jobs[2] = { JOB_INIT, JOB_INIT };
	AUTO_FREE char *npm = NULL;
	AUTO_CLOSE int fd = -1;
	uint8_t want[SHA512_BYTES], got[SHA512_BYTES];

	if (!npm_name_ok(package) || !npm_version_ok(version))
		return err_set(err, -EINVAL, "not a package of npm at an exact version");
	AUTO_FREE char *spec = xasprintf("%s@%s", package, version);
	if (find_npm(&npm) < 0)
		return image_no_program(err, "npm", "npm");
	const char *const pack[] = { "pack", spec, "--pack-destination", path, NULL };
	const char *const view[] = { "view", spec, "dist.integrity", NULL };
	int r = job_start(&jobs[0], npm, pack, path, err);
	if (r == 0 && !known)
		r = job_start(&jobs[1], npm, view, path, err);
	if (r == 0)
		r = jobs_watch(jobs, known ? 1 : 2, tick, arg, err);
	for (size_t i = 0; i < ARRAY_LEN(jobs) && r == 0; i++)
		r = job_failed(&jobs[i], spec, err);
	if (r == 0 && known) {
		memcpy(want, known, sizeof(want));
	} else if (r == 0 &&
	           npm_integrity_parse(want, span_of(jobs[1].out.p, jobs[1].out.len)) < 0) {
		r = err_set(err, -EBADMSG, "the registry names no SHA-512 of %s", spec);
	}
	if (r == 0)
		r = open_tarball(dirfd, &fd, err);
	if (r == 0) {
		r = hash_file(fd, got);
		if (r < 0)
			(void)err_code(err, r, "cannot read the tarball of %s", spec);
	}
	if (r == 0 && memcmp(want, got, sizeof(want)) != 0) {
		char a[NPM_INTEGRITY_BYTES], b[NPM_INTEGRITY_BYTES];
		npm_integrity_put(a, want);
		npm_integrity_put(b, got);
		r = err_set(err, -EBADMSG,
		            "the tarball of %s is not the one %s: %.20s..., not %.20s...", spec,
		            known ? "that was locked" : "that the registry names", b, a);
	}
	for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
		job_fini(&jobs[i]);
	if (r < 0)
		return r;
	*out_fd = take_fd(&fd);
	memcpy(out_sum, got, SHA512_BYTES);
	return 0;
}
