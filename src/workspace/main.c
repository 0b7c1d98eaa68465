/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-scan - looks at the projects once and writes what the guest will see (scan.h).
 *
 * Trusts: who started it. Names, link texts, ignore files, git configurations
 * and indexes come out of the projects and are not trusted. May touch: reads
 * below the project directories, three files it was given. A compromise yields
 * a wrong manifest: the user sees a wrong tree in the guest, and reads of it go
 * through cloche-disk, which can read the projects only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/vis.h"
#include "cage/cage.h"
#include "config/repo.h"
#include "workspace/scan.h"

enum { STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_CAGE = 3 };

struct args {
	struct scan_opts o;
	struct scan_project projects[MANIFEST_PROJECTS_MAX];
	struct buf exclude;
	bool has_uuid;
	const char *removed; /* a project whose directory is gone */
	uint64_t uid;
};

static int usage(const char *what)
{
	(void)fprintf(
		stderr,
		"cloche-scan: %s\n"
		"usage: cloche-scan --project NAME=FD... --manifest FD --meta FD [--report FD]\n"
		"       [--exclude PATTERN]... [--heavy] [--skip-dev-ino DEV:INO]...\n"
		"       [--uuid HEX] [--uid UID]\n"
		"       cloche-scan --repository IN OUT UID\n",
		what);
	return STATUS_USAGE;
}

static bool number(const char *s, const char **out_end, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(s, &end, 10);
	*out_end = end;
	return *s >= '0' && *s <= '9' && errno == 0 && *out <= max;
}

static bool whole_number(const char *s, uint64_t max, uint64_t *out)
{
	const char *end;

	return number(s, &end, max, out) && *end == '\0';
}

static bool descriptor(const char *s, int *out)
{
	uint64_t v;

	if (!whole_number(s, INT32_MAX, &v) || fcntl((int)v, F_GETFD) < 0)
		return false;
	*out = (int)v;
	return true;
}

/* NAME=FD; the path on the host is what the kernel calls the directory. */
static bool add_project(struct args *a, const char *s)
{
	const char *eq = strrchr(s, '=');
	char link[64], path[8192];
	struct stat st, at;
	int fd;

	if (!eq || a->o.n_projects == MANIFEST_PROJECTS_MAX || !descriptor(eq + 1, &fd) ||
	    !path_name_ok(span_of(s, (size_t)(eq - s))))
		return false;
	char *name = xstrndup(s, (size_t)(eq - s));
	for (size_t i = 0; i < a->o.n_projects; i++) {
		if (strcmp(a->projects[i].name, name) == 0) {
			free(name);
			return false;
		}
	}
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || path[0] != '/' || (size_t)n == sizeof(path) - 1)
		return false;
	path[n] = '\0';
	/* a directory may have such a name; one that was removed is no more to be looked at */
	if (n > 10 && strcmp(path + n - 10, " (deleted)") == 0 &&
	    (fstat(fd, &st) < 0 || stat(path, &at) < 0 || st.st_dev != at.st_dev ||
	     st.st_ino != at.st_ino))
		a->removed = name;
	/* both live as long as the process */
	a->projects[a->o.n_projects++] =
		(struct scan_project){ .name = name, .fd = fd, .path = xstrdup(path) };
	return true;
}

static bool parse_uuid(uint8_t *out, const char *s)
{
	if (strlen(s) != 32)
		return false;
	for (size_t i = 0; i < 32; i++) {
		const char *digits = "0123456789abcdef";
		const char *d = strchr(digits, s[i]);

		if (!d)
			return false;
		out[i / 2] = (uint8_t)(out[i / 2] << 4 | (d - digits));
	}
	return true;
}

static bool add_skip(struct scan_opts *o, const char *s)
{
	const char *end;
	uint64_t dev, ino;

	if (o->n_skip == SCAN_SKIP_MAX || !number(s, &end, UINT64_MAX, &dev) || *end != ':' ||
	    !whole_number(end + 1, UINT64_MAX, &ino))
		return false;
	o->skip[o->n_skip].dev = dev;
	o->skip[o->n_skip++].ino = ino;
	return true;
}

static bool add_exclude(struct args *a, const char *s)
{
	if (strchr(s, '\n'))
		return false;
	return buf_put(&a->exclude, s, strlen(s)) == 0 && buf_put(&a->exclude, "\n", 1) == 0;
}

static const char *parse(int argc, char **argv, struct args *a)
{
	a->o = (struct scan_opts){ .manifest_fd = -1, .meta_fd = -1, .report_fd = -1 };
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i];
		bool ok;

		if (strcmp(name, "--heavy") == 0) {
			a->o.heavy = true;
			continue;
		}
		if (++i == argc)
			return "an option without its value, or a word that is none";
		if (strcmp(name, "--project") == 0)
			ok = add_project(a, argv[i]);
		else if (strcmp(name, "--manifest") == 0)
			ok = descriptor(argv[i], &a->o.manifest_fd);
		else if (strcmp(name, "--meta") == 0)
			ok = descriptor(argv[i], &a->o.meta_fd);
		else if (strcmp(name, "--report") == 0)
			ok = descriptor(argv[i], &a->o.report_fd);
		else if (strcmp(name, "--exclude") == 0)
			ok = add_exclude(a, argv[i]);
		else if (strcmp(name, "--skip-dev-ino") == 0)
			ok = add_skip(&a->o, argv[i]);
		else if (strcmp(name, "--uuid") == 0)
			ok = a->has_uuid = parse_uuid(a->o.uuid, argv[i]);
		else if (strcmp(name, "--uid") == 0)
			ok = whole_number(argv[i], INT32_MAX, &a->uid);
		else
			return "unknown option";
		if (!ok)
			return name;
	}
	if (a->o.n_projects == 0 || a->o.manifest_fd < 0 || a->o.meta_fd < 0)
		return "a project, the manifest or the image is missing";
	a->o.projects = a->projects;
	a->o.exclude = span_of(a->exclude.p, a->exclude.len);
	return NULL;
}

static int fail(const struct err *err, int status)
{
	log_error("%s", err->text);
	if (err->hint[0])
		log_error("%s", err->hint);
	return status;
}

/* `cloche-scan --repository IN OUT UID`: a repository's configuration, as lines (repo.h). */
static int repository(char **words)
{
	struct cage_opts cage = { .role = CAGE_SCAN };
	struct repo_asks asks = { 0 };
	AUTO_FREE char *text = NULL;
	struct err err = { 0 };
	struct buf b = { 0 };
	uint64_t uid;
	size_t n = 0;
	int in, out;

	log_open(2, "cloche-scan", "", LOG_INFO);
	if (!descriptor(words[0], &in) || !descriptor(words[1], &out) ||
	    !whole_number(words[2], INT32_MAX, &uid))
		return usage("--repository");
	cage.uid = (uid_t)uid;
	if (cage_enter(&cage, &err) < 0)
		return fail(&err, STATUS_CAGE);
	int r = fd_read_file(in, REPO_BYTES_MAX, &text, &n);
	if (r == -EFBIG)
		err_set(&err, r, "%s: more than %d bytes", REPO_FILE, REPO_BYTES_MAX);
	else if (r < 0)
		err_code(&err, r, "cannot read %s", REPO_FILE);
	else
		r = repo_read(&asks, text, n, &err);
	if (r == 0 && (repo_put(&b, &asks) < 0 || fd_write_all(out, b.p, b.len) < 0))
		r = err_errno(&err, "cannot say what is in %s", REPO_FILE);
	buf_fini(&b);
	repo_asks_fini(&asks);
	if (r == 0)
		return 0;
	/* for the user, not for a log */
	(void)fprintf(stderr, "%s%s%s", err.text, err.hint[0] ? ": " : "", err.hint);
	return STATUS_FAILED;
}

int main(int argc, char **argv)
{
	struct args a = { 0 };
	struct cage_fs fs[MANIFEST_PROJECTS_MAX];
	struct err err = { 0 };

	if (argc == 5 && strcmp(argv[1], "--repository") == 0)
		return repository(argv + 2);
	const char *bad = parse(argc, argv, &a);
	if (bad)
		return usage(bad);
	log_open(2, "cloche-scan", "", LOG_INFO);
	if (a.removed) {
		char shown[128];
		log_error("the directory of project '%s' was removed",
		          vis_str(shown, sizeof(shown), span_str(a.removed)));
		return STATUS_FAILED;
	}
	if (!a.has_uuid)
		random_bytes(a.o.uuid, sizeof(a.o.uuid));
	for (size_t i = 0; i < a.o.n_projects; i++)
		fs[i] = (struct cage_fs){ .fd = a.projects[i].fd, .access = CAGE_FS_READ };
	struct cage_opts cage = {
		.role = CAGE_SCAN, .fs = fs, .n_fs = a.o.n_projects, .uid = (uid_t)a.uid
	};
	if (cage_enter(&cage, &err) < 0)
		return fail(&err, STATUS_CAGE);
	return scan_run(&a.o, &err) < 0 ? fail(&err, STATUS_FAILED) : 0;
}
