/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oci.c - which blobs an image consists of, and the two caged workers that read them.
 *
 *	manifest, config --bytes--> cloche-image oci-read --words--> here
 *	layers --descriptors--> cloche-image oci-merge --> out_fd
 *
 * This process compares hashes and passes bytes on; it parses none of them.
 */
#include "image/oci.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/proc.h"
#include "base/vis.h"
#include "erofs/erofs.h"
#include "image/image_priv.h"
#include "image/ref.h"
#include "image/worker.h"

enum { TAIL_BYTES = 2048, FD_OUT = 3, FD_LAYERS = 10, ARG_BYTES = 96 };

struct blob {
	char digest[OCI_DIGEST_BYTES];
	uint64_t size;
};

struct work {
	int blobs; /* blobs/sha256 */
	struct image_oci_stats *st;
	struct blob layers[OCI_LAYERS_MAX];
	size_t n_layers;
	struct blob config;
	struct err *err;
};

/* ---- blobs -------------------------------------------------------------- */

static int bad_blob(struct work *w, const char *digest, const char *why)
{
	memcpy(w->st->bad_blob, digest, OCI_DIGEST_BYTES);
	return err_set(w->err, -EBADMSG, "its part %.19s... %s", digest, why);
}

static int open_blob(struct work *w, const struct blob *b, int *out)
{
	AUTO_CLOSE int fd =
		openat(w->blobs, b->digest + 7, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return bad_blob(w, b->digest, "is missing");
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(w->err, "cannot open a part of the image");
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != b->size)
		return bad_blob(w, b->digest, "has another size");
	*out = take_fd(&fd);
	return 0;
}

/* A small blob whole, as a file of memory whose bytes were hashed: what is read is what it is. */
static int load_blob(struct work *w, const struct blob *b, bool sized, int *out)
{
	AUTO_FREE char *text = NULL;
	AUTO_CLOSE int fd = -1;
	struct sha256_state s;
	uint8_t sum[SHA256_BYTES];
	char hex[SHA256_HEX_BYTES];
	size_t n = 0;
	int r = 0;

	if (sized) {
		r = open_blob(w, b, &fd);
	} else { /* the root: nothing above it says a size */
		fd = openat(w->blobs, b->digest + 7,
		            O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			r = errno == ENOENT ? bad_blob(w, b->digest, "is missing")
			                    : err_errno(w->err, "cannot open a part of the image");
	}
	if (r < 0)
		return r;
	r = fd_read_file(fd, OCI_JSON_MAX, &text, &n);
	if (r < 0)
		return err_code(w->err, r, "cannot read a part of the image");
	sha256_init(&s);
	sha256_update(&s, text, n);
	sha256_final(&s, sum);
	sha256_hex(hex, sum);
	if (strcmp(hex, b->digest + 7) != 0)
		return bad_blob(w, b->digest, "is damaged");
	AUTO_CLOSE int mem = fd_memfd("blob");
	if (mem < 0 || fd_write_all(mem, text, n) < 0 || lseek(mem, 0, SEEK_SET) < 0)
		return err_errno(w->err, "cannot pass a part of the image on");
	*out = take_fd(&mem);
	return 0;
}

/* ---- the workers -------------------------------------------------------- */

/* Runs `cloche-image argv...`, and says its reason when it fails. */
static int run_worker(struct work *w, const char *const *argv, const struct proc_fd *more,
                      size_t n_more, int *out_status)
{
	struct proc_fd fds[OCI_LAYERS_MAX + 4];
	struct proc p = { .pidfd = -1 };
	char tail[TAIL_BYTES], why[ERR_TEXT_BYTES];
	size_t n_tail = 0;
	int e[2];
	AUTO_FREE char *dir = proc_self_dir();
	AUTO_FREE char *path = xasprintf("%s/cloche-image", dir);

	ASSERT(n_more + 1 <= ARRAY_LEN(fds));
	if (pipe2(e, O_CLOEXEC) < 0)
		return err_errno(w->err, "cannot make pipes");
	AUTO_CLOSE int err_r = e[0];
	AUTO_CLOSE int err_w = e[1];
	memcpy(fds, more, n_more * sizeof(*more));
	fds[n_more] = (struct proc_fd){ .from = err_w, .to = 2 };
	struct proc_spec spec = { .path = path, .argv = argv, .fds = fds, .n_fds = n_more + 1 };
	int r = proc_spawn(&p, &spec, w->err);
	if (r < 0)
		return r;
	close_now(&err_w);
	for (;;) { /* it says little, and ends */
		char drop[256];
		bool full = n_tail == sizeof(tail);
		ssize_t k = read(err_r, full ? drop : tail + n_tail,
		                 full ? sizeof(drop) : sizeof(tail) - n_tail);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		n_tail += full ? 0 : (size_t)k;
	}
	r = proc_wait(&p, -1, out_status);
	if (r < 0)
		return err_code(w->err, r, "cannot wait for cloche-image");
	if (*out_status == 0)
		return 0;
	static const char own[] = "cloche-image: ";
	struct span said = span_of(tail, n_tail);
	while (said.len && said.p[said.len - 1] == '\n')
		said.len--;
	if (said.len > sizeof(own) - 1 && memcmp(said.p, own, sizeof(own) - 1) == 0)
		said = span_of(said.p + sizeof(own) - 1, said.len - (sizeof(own) - 1));
	(void)vis_str(why, sizeof(why), said);
	int code = proc_shell_status(*out_status) == WORKER_EXIT_OTHER ? -ENOEXEC : -EPROTO;
	return err_set(w->err, code, "%s", why[0] ? why : "cloche-image failed");
}

/* The words that the reader has for one blob; *out is malloc'd. */
static int read_words(struct work *w, const char *what, int blob, char **out, size_t *out_n)
{
	AUTO_CLOSE int said = fd_memfd("words");
	const char *const argv[] = { "cloche-image", "oci-read", what, NULL };
	int status = 0;

	if (said < 0)
		return err_code(w->err, said, "cannot create a temporary file");
	const struct proc_fd fds[] = { { .from = blob, .to = 0 }, { .from = said, .to = FD_OUT } };
	int r = run_worker(w, argv, fds, ARRAY_LEN(fds), &status);
	if (r < 0)
		return r;
	if (lseek(said, 0, SEEK_SET) < 0)
		return err_errno(w->err, "cannot read a temporary file");
	r = fd_read_file(said, OCI_WORDS_MAX, out, out_n);
	return r < 0 ? err_code(w->err, r, "cannot read what cloche-image says") : 0;
}

static int lied(struct work *w)
{
	return err_set(w->err, -EPROTO, "cloche-image broke its protocol");
}

/* ---- from the root down ------------------------------------------------- */

/* Return: 1 when it was an index, and *at is the manifest below. */
static int take_root(struct work *w, struct blob *at, bool sized)
{
	AUTO_CLOSE int fd = -1;
	AUTO_FREE char *text = NULL;
	const char *tag, *value;
	size_t n = 0, len;
	bool next = false;

	int r = load_blob(w, at, sized, &fd);
	if (r == 0)
		r = read_words(w, "root", fd, &text, &n);
	if (r < 0)
		return r;
	struct span said = span_of(text, n);
	while ((r = oci_word(&said, &tag, &len, &value)) == 1) {
		struct blob b;
		bool layer = len == 5 && memcmp(tag, "layer", 5) == 0;
		if (oci_blob_parse(value, layer ? OCI_BLOB_MAX : OCI_JSON_MAX, b.digest, &b.size) <
		    0)
			return lied(w);
		if (layer && w->n_layers < OCI_LAYERS_MAX)
			w->layers[w->n_layers++] = b;
		else if (len == 6 && memcmp(tag, "config", 6) == 0)
			w->config = b;
		else if (len == 8 && memcmp(tag, "manifest", 8) == 0 && !next)
			*at = b, next = true;
		else
			return lied(w);
	}
	if (r < 0 || next == (w->config.digest[0] != '\0'))
		return lied(w);
	return next;
}

static int take_config(struct work *w, struct oci_config *cfg)
{
	AUTO_CLOSE int fd = -1;
	AUTO_FREE char *text = NULL;
	size_t n = 0;

	int r = load_blob(w, &w->config, true, &fd);
	if (r == 0)
		r = read_words(w, "config", fd, &text, &n);
	if (r < 0)
		return r;
	return oci_config_words(cfg, span_of(text, n)) < 0 ? lied(w) : 0;
}

static int report_of(struct work *w, int fd, struct worker_report *out)
{
	uint8_t b[WORKER_REPORT_BYTES];

	if (fd_pread_exact(fd, b, sizeof(b), 0) < 0 || worker_report_parse(out, b) < 0)
		return lied(w);
	return 0;
}

static int merge(struct work *w, int out_fd)
{
	const char *argv[OCI_LAYERS_MAX + 3] = { "cloche-image", "oci-merge" };
	char args[OCI_LAYERS_MAX][ARG_BYTES];
	struct proc_fd fds[OCI_LAYERS_MAX + 2];
	int layer_fds[OCI_LAYERS_MAX], status = 0, r = 0;
	struct worker_report rep = { 0 };
	size_t n = 0, opened = 0;
	struct stat st;

	AUTO_CLOSE int report = fd_memfd("report");
	if (report < 0)
		return err_code(w->err, report, "cannot create a temporary file");
	fds[n++] = (struct proc_fd){ .from = report, .to = 1 };
	fds[n++] = (struct proc_fd){ .from = out_fd, .to = FD_OUT };
	for (; opened < w->n_layers; opened++) {
		const struct blob *b = &w->layers[opened];
		r = open_blob(w, b, &layer_fds[opened]);
		if (r < 0)
			break;
		(void)snprintf(args[opened], sizeof(args[opened]), "%s:%llu", b->digest + 7,
		               (unsigned long long)b->size);
		argv[2 + opened] = args[opened];
		fds[n++] = (struct proc_fd){ .from = layer_fds[opened],
			                     .to = FD_LAYERS + (int)opened };
		w->st->layer_bytes += b->size;
	}
	if (r == 0)
		r = run_worker(w, argv, fds, n, &status);
	for (size_t i = 0; i < opened; i++)
		close_now(&layer_fds[i]);
	if (r < 0 && proc_shell_status(status) == WORKER_EXIT_DAMAGED) {
		/* which one: the name of a layer that we gave it */
		if (report_of(w, report, &rep) < 0)
			return w->err->code;
		for (size_t i = 0; i < w->n_layers; i++) {
			if (strcmp(w->layers[i].digest + 7, rep.text) == 0)
				return bad_blob(w, w->layers[i].digest, "is damaged");
		}
		return lied(w);
	}
	if (r == 0)
		r = report_of(w, report, &rep);
	if (r < 0)
		return r;
	if (fstat(out_fd, &st) < 0 || st.st_size == 0 || st.st_size % EROFS_BLOCK_BYTES)
		return err_set(w->err, -EPROTO, "the image has no possible size");
	w->st->entries = rep.entries;
	w->st->has_shell = strcmp(rep.text, "sh") == 0;
	return 0;
}

int image_oci_build(int layout_fd, const char *digest, int out_fd, struct oci_config *cfg,
                    struct image_oci_stats *st, struct err *err)
{
	struct err own = { 0 };
	struct work *w = xcalloc(1, sizeof(*w)); /* large for a stack */
	struct oci_config c = { 0 };
	struct blob at = { 0 };
	int r = 1;

	*st = (struct image_oci_stats){ 0 };
	*w = (struct work){ .st = st, .err = err ? err : &own };
	w->blobs =
		openat(layout_fd, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (w->blobs < 0) {
		r = err_errno(w->err, "cannot open the image's parts");
		goto out;
	}
	ASSERT(ref_digest_ok(digest));
	memcpy(at.digest, digest, sizeof(at.digest));
	for (int depth = 0; r == 1; depth++) {
		if (depth == OCI_DEPTH_MAX) {
			r = err_set(w->err, -EPROTO, "its indexes lie too deep in each other");
			break;
		}
		r = take_root(w, &at, depth > 0);
	}
	if (r == 0) {
		memcpy(st->manifest, at.digest, sizeof(st->manifest));
		r = take_config(w, &c);
	}
	if (r == 0)
		r = merge(w, out_fd);
	if (r == 0) {
		*cfg = c;
		c = (struct oci_config){ 0 };
	}
out:
	oci_config_free(&c);
	close_now(&w->blobs);
	free(w);
	return r;
}
