/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/hostca.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/vis.h"

static const char begin[] = "-----BEGIN CERTIFICATE-----";
static const char end[] = "-----END CERTIFICATE-----";

static bool is_base64(struct span s)
{
	size_t n = 0;

	while (n < s.len && ((s.p[n] >= 'A' && s.p[n] <= 'Z') || (s.p[n] >= 'a' && s.p[n] <= 'z') ||
	                     (s.p[n] >= '0' && s.p[n] <= '9') || s.p[n] == '+' || s.p[n] == '/'))
		n++;
	while (n < s.len && s.p[n] == '=')
		n++;
	return n == s.len && s.len > 0 && s.len <= HOSTCA_LINE_MAX;
}

static bool take_line(struct span *text, struct span *line)
{
	const uint8_t *nl = text->len ? memchr(text->p, '\n', text->len) : NULL;
	size_t n = nl ? (size_t)(nl - text->p) : text->len;

	if (text->len == 0)
		return false;
	*line = span_of(text->p, n);
	n += nl != NULL;
	*text = span_of(text->p + n, text->len - n);
	while (line->len && (line->p[line->len - 1] == '\r' || line->p[line->len - 1] == ' '))
		line->len--;
	return true;
}

int hostca_take(struct buf *out, struct span file)
{
	size_t before = out->len, lines = 0;
	bool inside = false;
	struct span line;
	int r = 0, n = 0;

	while (r == 0 && take_line(&file, &line)) {
		if (span_eq(line, span_str(begin))) {
			r = inside ? -EINVAL : buf_printf(out, "%s\n", begin);
			inside = true;
			lines = 0;
		} else if (!inside) {
			continue;
		} else if (span_eq(line, span_str(end))) {
			r = lines ? buf_printf(out, "%s\n", end) : -EINVAL;
			inside = false;
			n++;
		} else {
			lines++;
			r = is_base64(line) ? buf_printf(out, "%.*s\n", (int)line.len, line.p)
			                    : -EINVAL;
		}
	}
	if (r == 0 && inside)
		r = -EINVAL;
	if (r < 0)
		out->len = before;
	return r < 0 ? r : n;
}

/* ---- the folder --------------------------------------------------------- */

static void leave_out(struct hostca *h, const char *name, const char *why)
{
	if (!h->left_out)
		h->left_out = xasprintf("%s: %s", name, why);
}

static void load_file(struct hostca *h, int dir, const char *name, const char *shown)
{
	AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	AUTO_FREE char *text = NULL;
	struct stat st;
	size_t len = 0;

	if (fd < 0 || fstat(fd, &st) < 0) {
		leave_out(h, shown, strerror(errno));
		return;
	}
	if (!S_ISREG(st.st_mode)) {
		leave_out(h, shown, "no regular file");
		return;
	}
	int r = fd_read_file(fd, HOSTCA_BYTES_MAX, &text, &len);
	if (r < 0) {
		leave_out(h, shown, strerror(-r));
		return;
	}
	size_t before = h->pem.len;
	int n = hostca_take(&h->pem, span_of(text, len));
	if (n <= 0) {
		leave_out(h, shown, n == 0 ? "no certificate in PEM" : "a damaged certificate");
		return;
	}
	if (h->n == HOSTCA_FILES_MAX || h->pem.len > HOSTCA_BYTES_MAX) {
		h->pem.len = before;
		leave_out(h, shown,
		          h->n == HOSTCA_FILES_MAX ? "more than 256 files" : "more than 1 MiB");
		return;
	}
	h->names[h->n++] = xstrdup(shown);
	h->certs += (size_t)n;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of names, so that two runs give the guest the same file. */
static int load_dir(struct hostca *h, int fd, const char *prefix, int depth)
{
	struct dirent **v = NULL;
	int n = scandirat(fd, ".", &v, NULL, by_name);

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		const char *name = v[i]->d_name;
		size_t len = strlen(name);
		struct stat st;
		AUTO_FREE char *seen = vis_dup(span_str(name));
		AUTO_FREE char *shown = xasprintf("%s%s", prefix, seen);
		if (name[0] == '.' || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			/* hidden, or gone meanwhile */
		} else if (S_ISDIR(st.st_mode) && depth < HOSTCA_DEPTH_MAX) {
			AUTO_CLOSE int sub =
				openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			AUTO_FREE char *below = xasprintf("%s/", shown);
			int r = sub < 0 ? -errno : load_dir(h, sub, below, depth + 1);
			if (r < 0)
				leave_out(h, shown, strerror(-r));
		} else if (len > 4 && strcmp(name + len - 4, ".crt") == 0) {
			load_file(h, fd, name, shown);
		}
		free(v[i]);
	}
	free(v);
	return 0;
}

int hostca_load(struct hostca *out, const char *dir, struct err *err)
{
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	*out = (struct hostca){ 0 };
	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(err, "cannot read '%s'", dir);
	int r = load_dir(out, fd, "", 0);
	if (r < 0) {
		hostca_fini(out);
		return err_code(err, r, "cannot read '%s'", dir);
	}
	return 0;
}

void hostca_fini(struct hostca *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->names[i]);
	buf_fini(&h->pem);
	free(h->left_out);
	*h = (struct hostca){ 0 };
}
