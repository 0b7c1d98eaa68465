/* SPDX-License-Identifier: Apache-2.0 */
#include "image/tar.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

enum { INPUT_BYTES = 256 * 1024, XATTRS_SEEN_MAX = 64 };

struct tar {
	struct archive *a;     /* the tar */
	struct archive *outer; /* the ar around it, or NULL */
	int fd;
	uint8_t *input; /* INPUT_BYTES, of fd */
	int read_error; /* -errno of the input, which libarchive would only call fatal */
	bool is_damaged;
	bool is_layer;
	struct sha256_state sum;
	uint64_t n_read;
	struct erofs_xattr xattrs[XATTRS_SEEN_MAX];
};

static la_ssize_t input_read(struct archive *a, void *arg, const void **out)
{
	struct tar *t = arg;
	ssize_t n;

	(void)a;
	do
		n = read(t->fd, t->input, INPUT_BYTES);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		t->read_error = -errno;
		return -1;
	}
	if (t->is_layer && n > 0) {
		sha256_update(&t->sum, t->input, (size_t)n);
		t->n_read += (uint64_t)n;
	}
	*out = t->input;
	return n;
}

static struct tar *tar_new(int fd)
{
	struct tar *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->fd = fd;
	t->a = archive_read_new();
	if (fd >= 0)
		t->input = malloc(INPUT_BYTES);
	if (!t->a || (fd >= 0 && !t->input)) {
		tar_free(t);
		return NULL;
	}
	return t;
}

struct tar *tar_open_fd(int fd)
{
	struct tar *t = tar_new(fd);

	if (t && (archive_read_support_format_tar(t->a) != ARCHIVE_OK ||
	          archive_read_open(t->a, t, NULL, input_read, NULL) != ARCHIVE_OK)) {
		/* an input that is no tar is the first tar_next()'s to say */
	}
	return t;
}

struct tar *tar_open_gz(int fd)
{
	struct tar *t = tar_new(fd);

	if (t && (archive_read_support_format_tar(t->a) != ARCHIVE_OK ||
	          archive_read_support_filter_gzip(t->a) != ARCHIVE_OK ||
	          archive_read_open(t->a, t, NULL, input_read, NULL) != ARCHIVE_OK)) {
		/* as above */
	}
	return t;
}

struct tar *tar_open_layer(int fd)
{
	struct tar *t = tar_new(fd);

	if (!t)
		return NULL;
	t->is_layer = true;
	sha256_init(&t->sum);
	if (archive_read_support_format_tar(t->a) != ARCHIVE_OK ||
	    archive_read_support_format_empty(t->a) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(t->a) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(t->a) != ARCHIVE_OK ||
	    archive_read_open(t->a, t, NULL, input_read, NULL) != ARCHIVE_OK) {
		/* as above */
	}
	return t;
}

int tar_layer_sum(struct tar *t, uint64_t max, uint8_t sum[SHA256_BYTES], uint64_t *out_size)
{
	const void *p;

	ASSERT(t->is_layer);
	if (t->read_error)
		return t->read_error;
	while (t->n_read <= max) {
		la_ssize_t n = input_read(NULL, t, &p);
		if (n < 0)
			return t->read_error;
		if (n == 0) {
			sha256_final(&t->sum, sum);
			*out_size = t->n_read;
			return 0;
		}
	}
	return -EFBIG;
}

struct tar *tar_open_mem(struct span bytes)
{
	struct tar *t = tar_new(-1);

	if (t && (archive_read_support_format_tar(t->a) != ARCHIVE_OK ||
	          archive_read_open_memory(t->a, bytes.p, bytes.len) != ARCHIVE_OK)) {
		/* as above */
	}
	return t;
}

static la_ssize_t nested_read(struct archive *a, void *arg, const void **out)
{
	struct tar *t = arg;
	size_t n = 0;
	la_int64_t off;

	(void)a;
	int r = archive_read_data_block(t->outer, out, &n, &off);
	if (r == ARCHIVE_EOF)
		return 0;
	return r == ARCHIVE_OK || r == ARCHIVE_WARN ? (la_ssize_t)n : -1;
}

int tar_open_deb(int fd, struct tar **out)
{
	struct tar *t = tar_new(fd);
	struct archive_entry *e;

	if (!t)
		return -ENOMEM;
	t->outer = archive_read_new();
	if (!t->outer || archive_read_support_format_ar(t->outer) != ARCHIVE_OK ||
	    archive_read_open(t->outer, t, NULL, input_read, NULL) != ARCHIVE_OK)
		goto bad;
	for (int members = 0;; members++) {
		if (members > 8 || archive_read_next_header(t->outer, &e) != ARCHIVE_OK)
			goto bad;
		const char *name = archive_entry_pathname(e);
		if (name && strncmp(name, "data.tar", 8) == 0)
			break;
	}
	if (archive_read_support_format_tar(t->a) != ARCHIVE_OK ||
	    archive_read_support_filter_xz(t->a) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(t->a) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(t->a) != ARCHIVE_OK ||
	    archive_read_open(t->a, t, NULL, nested_read, NULL) != ARCHIVE_OK)
		goto bad;
	*out = t;
	return 0;
bad:;
	int r = t->read_error ? t->read_error : -EPROTO;
	tar_free(t);
	return r;
}

void tar_free(struct tar *t)
{
	if (!t)
		return;
	if (t->a)
		(void)archive_read_free(t->a); /* only read */
	if (t->outer)
		(void)archive_read_free(t->outer);
	free(t->input);
	free(t);
}

static struct span span_or_empty(const char *s)
{
	return s ? span_str(s) : (struct span){ 0 };
}

int tar_next(struct tar *t, struct tar_entry *out)
{
	struct archive_entry *e;
	int r = archive_read_next_header(t->a, &e);

	if (r == ARCHIVE_EOF)
		return 0;
	t->is_damaged = r != ARCHIVE_OK && r != ARCHIVE_WARN;
	if (t->read_error)
		return t->read_error;
	/* a warning is about a name that the locale cannot show, which is fine here */
	if (t->is_damaged)
		return -EPROTO;
	struct tar_entry x = {
		.path = span_or_empty(archive_entry_pathname(e)),
		.hardlink = span_or_empty(archive_entry_hardlink(e)),
	};
	la_int64_t uid = archive_entry_uid(e), gid = archive_entry_gid(e),
		   size = archive_entry_size(e);
	if (uid < 0 || gid < 0 || uid >= UINT32_MAX || gid >= UINT32_MAX || size < 0)
		return -EPROTO;
	x.meta = (struct tree_meta){
		.mode = archive_entry_mode(e),
		.uid = (uint32_t)uid,
		.gid = (uint32_t)gid,
		.mtime_s = archive_entry_mtime(e),
		.mtime_ns = (uint32_t)archive_entry_mtime_nsec(e),
		.link = span_or_empty(archive_entry_symlink(e)),
		.size = (uint64_t)size,
	};
	if (S_ISCHR(x.meta.mode) || S_ISBLK(x.meta.mode)) {
		la_int64_t maj = archive_entry_rdevmajor(e), min = archive_entry_rdevminor(e);
		if (maj < 0 || maj > 0xfff || min < 0 || min > 0xfffff)
			return -EPROTO;
		x.meta.rdev = (uint32_t)makedev((unsigned)maj, (unsigned)min);
	}
	const char *name;
	const void *value;
	size_t size_x;
	(void)archive_entry_xattr_reset(e); /* returns a count */
	while (archive_entry_xattr_next(e, &name, &value, &size_x) == ARCHIVE_OK) {
		if (x.meta.n_xattrs == XATTRS_SEEN_MAX)
			return -EPROTO;
		t->xattrs[x.meta.n_xattrs++] = (struct erofs_xattr){
			.name = span_or_empty(name),
			.value = span_of(value, size_x),
		};
	}
	x.meta.xattrs = t->xattrs;
	*out = x;
	return 1;
}

int tar_data(struct tar *t, struct span *out, uint64_t *out_off)
{
	const void *p;
	size_t n;
	la_int64_t off;
	int r = archive_read_data_block(t->a, &p, &n, &off);

	if (r == ARCHIVE_EOF)
		return 0;
	t->is_damaged = r != ARCHIVE_OK && r != ARCHIVE_WARN;
	if (t->read_error)
		return t->read_error;
	if (t->is_damaged || off < 0)
		return -EPROTO;
	*out = span_of(p, n);
	*out_off = (uint64_t)off;
	return 1;
}

int tar_drain(int fd)
{
	char b[65536];

	for (;;) {
		ssize_t n = read(fd, b, sizeof(b));
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

bool tar_is_damaged(const struct tar *t)
{
	return t->is_damaged;
}

const char *tar_error(const struct tar *t)
{
	const char *s = t ? archive_error_string(t->a) : NULL;

	return s ? s : "damaged archive";
}

int tar_unpack(struct span in, size_t max, struct buf *out)
{
	struct archive *a = archive_read_new();
	struct archive_entry *e;
	size_t before = out->len;
	int r = -EPROTO;

	if (!a)
		return -ENOMEM;
	if (archive_read_support_format_raw(a) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(a) != ARCHIVE_OK ||
	    archive_read_support_filter_xz(a) != ARCHIVE_OK ||
	    archive_read_support_filter_lz4(a) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(a) != ARCHIVE_OK ||
	    archive_read_open_memory(a, in.p, in.len) != ARCHIVE_OK ||
	    archive_read_next_header(a, &e) != ARCHIVE_OK)
		goto done;
	for (;;) {
		const void *p;
		size_t n;
		la_int64_t off;
		int k = archive_read_data_block(a, &p, &n, &off);

		if (k == ARCHIVE_EOF) {
			r = 0;
			break;
		}
		if (k != ARCHIVE_OK || off != (la_int64_t)(out->len - before))
			break;
		if (n > max - (out->len - before)) {
			r = -EFBIG;
			break;
		}
		r = buf_put(out, p, n);
		if (r < 0)
			break;
		r = -EPROTO;
	}
done:
	if (r < 0)
		out->len = before;
	(void)archive_read_free(a); /* only read */
	return r;
}
