/* SPDX-License-Identifier: Apache-2.0 */
/* pullstore.c - images of somebody else in the cache: found, listed, removed. */
#include "image/pullstore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"

enum { HEX = SHA256_HEX_BYTES - 1, SHORT_MIN = 12, USED_AFTER_S = 3600, NAME_BYTES = 80 };

/* ---- folders ------------------------------------------------------------ */

static int own_dir(const struct pull_store *s, const char *below, int *out, struct err *err)
{
	AUTO_FREE char *path = xasprintf("%s%s", s->path, below);

	return path_own_dir(path, out, err);
}

int store_open(struct pull_store *s, const char *cache_dir, struct err *err)
{
	struct image_opts io = { .cache_dir = cache_dir };
	AUTO_FREE char *path = NULL;

	*s = (struct pull_store)PULL_STORE_INIT;
	int r = image_cache_open(&io, &s->cache, &path, err);
	if (r < 0)
		return r;
	s->path = xasprintf("%s/oci", path);
	r = own_dir(s, "", &s->oci, err);
	if (r == 0)
		r = own_dir(s, "/blobs/sha256", &s->blobs, err);
	if (r == 0)
		r = own_dir(s, "/refs", &s->refs, err);
	if (r < 0)
		store_close(s);
	return r;
}

void store_close(struct pull_store *s)
{
	close_now(&s->cache);
	close_now(&s->oci);
	close_now(&s->blobs);
	close_now(&s->refs);
	free(s->path);
	s->path = NULL;
}

static void ref_key(char dst[SHA256_HEX_BYTES], const char *ref)
{
	struct sha256_state h;
	uint8_t sum[SHA256_BYTES];

	sha256_init(&h);
	sha256_update(&h, ref, strlen(ref));
	sha256_final(&h, sum);
	sha256_hex(dst, sum);
}

int store_lock(const struct pull_store *s, const char *ref)
{
	char key[SHA256_HEX_BYTES], name[NAME_BYTES];

	ref_key(key, ref);
	(void)snprintf(name, sizeof(name), ".lock-%s", key);
	return image_lock_file(s->refs, name);
}

/* ---- references --------------------------------------------------------- */

static int load_entry(const struct pull_store *s, const char *name, struct pull_entry *out)
{
	AUTO_CLOSE int fd = openat(s->refs, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	AUTO_FREE char *text = NULL;
	size_t n = 0;

	if (fd < 0)
		return -errno;
	int r = fd_read_file(fd, PULL_TEXT_MAX, &text, &n);
	return r < 0 ? r : pull_entry_parse(out, text, n);
}

int store_get_entry(const struct pull_store *s, const char *ref, struct pull_entry *out)
{
	char key[SHA256_HEX_BYTES], name[NAME_BYTES];
	struct pull_entry e;

	ref_key(key, ref);
	(void)snprintf(name, sizeof(name), "%s.json", key);
	int r = load_entry(s, name, &e);
	if (r == 0 && strcmp(e.ref, ref) != 0)
		r = -EBADMSG;
	if (r == 0)
		*out = e;
	return r;
}

int store_put_entry(const struct pull_store *s, const struct pull_entry *e, struct err *err)
{
	char key[SHA256_HEX_BYTES], name[NAME_BYTES];
	AUTO_FREE char *json = NULL;

	ref_key(key, e->ref);
	(void)snprintf(name, sizeof(name), "%s.json", key);
	int r = pull_entry_format(e, &json);
	if (r == 0)
		r = image_write_file(s->refs, name, json, strlen(json));
	return r < 0 ? err_code(err, r, "cannot write to the image cache") : 0;
}

void store_tell_moved(const struct pull_opts *o, const struct image_ref *ref)
{
	struct pull_store s = PULL_STORE_INIT;
	struct pull_entry e;
	char text[REF_TEXT_BYTES + 300];

	if (!o->note || store_open(&s, o->cache_dir, NULL) < 0)
		return;
	if (store_get_entry(&s, ref->text, &e) == 0 && e.was[0]) {
		(void)snprintf(text, sizeof(text),
		               "'%s' moved: it was %s, and is %s since it was fetched in the "
		               "background",
		               ref_short(ref), e.was, e.digest);
		o->note(o->arg, text);
		e.was[0] = '\0';
		(void)!store_put_entry(&s, &e, NULL); /* then it is said once more */
	}
	store_close(&s);
}

/* ---- the lock file ------------------------------------------------------ */

static int read_lock(const char *path, char **out, size_t *out_n)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	*out_n = 0;
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return fd_read_file(fd, IMAGE_LOCK_MAX, out, out_n);
}

static int lock_failed(const char *path, int r, struct err *err)
{
	if (r != -EBADMSG)
		return err_code(err, r, "cannot use the lock file '%s'", path);
	(void)err_set(err, r, "the lock file '%s' is damaged", path);
	return err_hint(err, "mend it, or move it away");
}

int store_lock_get(const struct pull_store *s UNUSED, const char *path, const char *ref,
                   char out[REF_DIGEST_BYTES], struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t n = 0;

	out[0] = '\0';
	if (!path)
		return 0;
	int r = read_lock(path, &text, &n);
	if (r == 0 && n)
		r = pull_lock_get(text, n, ref, out);
	return r < 0 ? lock_failed(path, r, err) : 0;
}

/* Under the cache's lock, so that two pulls do not lose each other's line. */
int store_lock_put(const struct pull_store *s, const char *path, const char *ref,
                   const char *digest, struct err *err)
{
	AUTO_FREE char *text = NULL, *out = NULL;
	size_t n = 0;

	if (!path)
		return 0;
	const char *slash = strrchr(path, '/');
	ASSERT(slash);
	AUTO_FREE char *dir = xstrndup(path, MAX((size_t)(slash - path), (size_t)1));
	AUTO_CLOSE int guard = image_lock_file(s->cache, ".lock");
	AUTO_CLOSE int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (guard < 0 || flock(guard, LOCK_EX) < 0 || dirfd < 0)
		return err_errno(err, "cannot write the lock file '%s'", path);
	int r = read_lock(path, &text, &n);
	if (r == 0)
		r = pull_lock_put(text, n, ref, digest, &out);
	if (r == 0 && out)
		r = image_write_file(dirfd, slash + 1, out, strlen(out));
	return r < 0 ? lock_failed(path, r, err) : 0;
}

/* ---- images ------------------------------------------------------------- */

int store_load(const struct pull_store *s, const char *digest, struct pull_info *out, int *out_fd)
{
	AUTO_FREE char *text = NULL;
	struct pull_info i;
	struct stat st;
	size_t n = 0;

	AUTO_CLOSE int dir =
		openat(s->oci, digest + 7, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return -errno;
	AUTO_CLOSE int m = openat(dir, IMAGE_MANIFEST, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_CLOSE int fd = openat(dir, IMAGE_ROOTFS, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (m < 0 || fd < 0 || fstat(fd, &st) < 0)
		return -EBADMSG;
	int r = fd_read_file(m, PULL_TEXT_MAX, &text, &n);
	if (r == 0)
		r = pull_info_parse(&i, text, n);
	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != i.size ||
	    strcmp(i.digest, digest) != 0) {
		pull_info_fini(&i);
		return -EBADMSG;
	}
	*out = i;
	if (out_fd)
		*out_fd = take_fd(&fd);
	return 0;
}

void pull_close(struct pull_image *img)
{
	pull_info_fini(&img->info);
	close_now(&img->fd);
	free(img->path);
	*img = (struct pull_image)PULL_IMAGE_INIT;
}

static int load_failed(const char *what, int r, struct err *err)
{
	if (r == -ENOENT)
		return err_set(err, r, "image '%s' is not in the cache", what);
	if (r != -EBADMSG)
		return err_code(err, r, "cannot open image '%s'", what);
	(void)err_set(err, r, "image '%s' is damaged in the cache", what);
	return err_hint(err, "cloche image pull fetches it again");
}

static int load_image(const struct pull_store *s, const char *digest, struct pull_image *out)
{
	struct pull_image img = PULL_IMAGE_INIT;
	int r = store_load(s, digest, &img.info, &img.fd);

	if (r < 0)
		return r;
	img.path = xasprintf("%s/%s/%s", s->path, digest + 7, IMAGE_ROOTFS);
	*out = img;
	return 0;
}

int pull_load(const struct pull_opts *o, const char *digest, struct pull_image *out,
              struct err *err)
{
	struct pull_store s = PULL_STORE_INIT;
	int r = store_open(&s, o->cache_dir, err);

	if (r < 0)
		return r;
	r = load_image(&s, digest, out);
	store_close(&s);
	return r < 0 ? load_failed(digest, r, err) : 0;
}

int pull_open(const struct pull_opts *o, const struct image_ref *ref, struct pull_image *out,
              struct err *err)
{
	struct pull_store s = PULL_STORE_INIT;
	struct pull_entry e = { 0 };
	struct pull_image img = PULL_IMAGE_INIT;
	int r = store_open(&s, o->cache_dir, err);

	if (r < 0)
		return r;
	r = store_get_entry(&s, ref->text, &e);
	/* an image that came by another name is the one of this digest all the same */
	if (r < 0 && ref->digest[0]) {
		e = (struct pull_entry){ 0 };
		memcpy(e.digest, ref->digest, sizeof(e.digest));
		r = 0;
	}
	if (r == 0)
		r = load_image(&s, e.digest, &img);
	store_close(&s);
	if (r < 0)
		return load_failed(ref_short(ref), r, err);
	if (o->verify == PULL_VERIFY_REQUIRE && e.vouched == PULL_BY_NOBODY) {
		pull_close(&img);
		(void)err_set(err, -EKEYREJECTED,
		              "image.verify is require, and nobody vouched for '%s' when it was "
		              "fetched",
		              ref_short(ref));
		return err_hint(err, "cloche image pull %s looks for a signature now",
		                ref_short(ref));
	}
	(void)snprintf(img.info.ref, sizeof(img.info.ref), "%s", ref->text);
	img.info.vouched = e.vouched;
	img.info.seen_s = e.seen_s;
	*out = img;
	return 0;
}

void pull_used(const struct pull_opts *o, const struct pull_image *img)
{
	struct pull_store s = PULL_STORE_INIT;
	struct pull_info i;
	AUTO_FREE char *json = NULL;
	int64_t now = time(NULL);

	/* good enough to find the old ones by, and no write for every run */
	if (now - img->info.used_s < USED_AFTER_S || store_open(&s, o->cache_dir, NULL) < 0)
		return;
	if (store_load(&s, img->info.digest, &i, NULL) == 0) {
		AUTO_CLOSE int dir = openat(s.oci, img->info.digest + 7,
		                            O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		i.used_s = now;
		if (dir >= 0 && pull_info_format(&i, &json) == 0)
			(void)!image_write_file(dir, IMAGE_MANIFEST, json, strlen(json));
		pull_info_fini(&i);
	}
	store_close(&s);
}

/* ---- all of them -------------------------------------------------------- */

static DIR *open_list(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

	if (!d)
		close_now(&fd);
	return d;
}

static bool is_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdef") == n && s[n] == '\0';
}

/* Every entry of refs/ to @fn; false stops. */
static int each_entry(const struct pull_store *s,
                      void (*fn)(void *arg, const struct pull_entry *e, const char *file),
                      void *arg)
{
	DIR *d = open_list(s->refs);
	struct dirent *e;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		struct pull_entry x;
		if (e->d_name[0] != '.' && load_entry(s, e->d_name, &x) == 0)
			fn(arg, &x, e->d_name);
	}
	(void)closedir(d); /* only read */
	return 0;
}

struct list {
	struct pull_info *v;
	size_t n, cap;
};

static void add_ref(void *arg, const struct pull_entry *e, const char *file UNUSED)
{
	struct list *l = arg;

	for (size_t i = 0; i < l->n; i++) {
		struct pull_info *x = &l->v[i];
		if (strcmp(x->digest, e->digest) != 0)
			continue;
		/* the one that sorts first, so that it is always the same one */
		x->more_refs += x->ref[0] != '\0';
		if (!x->ref[0] || strcmp(e->ref, x->ref) < 0) {
			(void)snprintf(x->ref, sizeof(x->ref), "%s", e->ref);
			x->vouched = e->vouched;
			x->seen_s = e->seen_s;
		}
	}
}

static int by_use(const void *a, const void *b)
{
	const struct pull_info *x = a, *y = b;

	if (x->used_s != y->used_s)
		return x->used_s < y->used_s ? 1 : -1;
	return strcmp(x->digest, y->digest);
}

int pull_list(const struct pull_opts *o, struct pull_info **out, size_t *out_n, struct err *err)
{
	struct pull_store s = PULL_STORE_INIT;
	struct list l = { 0 };
	struct dirent *e;
	int r = store_open(&s, o->cache_dir, err);

	*out = NULL;
	*out_n = 0;
	if (r < 0)
		return r;
	DIR *d = open_list(s.oci);
	if (!d) {
		r = err_errno(err, "cannot read the image cache");
		store_close(&s);
		return r;
	}
	while ((e = readdir(d))) {
		char digest[REF_DIGEST_BYTES];
		struct pull_info i;
		if (!is_hex(e->d_name, HEX))
			continue;
		(void)snprintf(digest, sizeof(digest), "sha256:%.64s", e->d_name);
		if (store_load(&s, digest, &i, NULL) < 0)
			continue;
		if (l.n == l.cap) {
			l.cap = l.cap ? l.cap * 2 : 8;
			l.v = xrealloc(l.v, l.cap * sizeof(*l.v));
		}
		l.v[l.n++] = i;
	}
	(void)closedir(d); /* only read */
	(void)!each_entry(&s, add_ref, &l);
	store_close(&s);
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), by_use);
	*out = l.v;
	*out_n = l.n;
	return 0;
}

int pull_find(const struct pull_opts *o, const char *name, char digest[REF_DIGEST_BYTES],
              struct err *err)
{
	const char *hex = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name;
	size_t n = strlen(hex), found = 0;
	struct pull_store s = PULL_STORE_INIT;
	struct pull_entry entry;
	struct image_ref ref;
	struct dirent *e;
	char seen[128];

	int r = store_open(&s, o->cache_dir, err);
	if (r < 0)
		return r;
	(void)vis_str(seen, sizeof(seen), span_str(name));
	DIR *d = n >= SHORT_MIN && n <= HEX && is_hex(hex, n) ? open_list(s.oci) : NULL;
	while (d && (e = readdir(d))) {
		if (is_hex(e->d_name, HEX) && strncmp(e->d_name, hex, n) == 0) {
			(void)snprintf(digest, REF_DIGEST_BYTES, "sha256:%.64s", e->d_name);
			found++;
		}
	}
	if (d)
		(void)closedir(d); /* only read */
	if (found > 1) {
		r = err_set(err, -EEXIST, "the digests of %zu images begin with '%s'", found, seen);
	} else if (found == 0) {
		r = ref_parse(&ref, name, "/", NULL) == 0 ? store_get_entry(&s, ref.text, &entry)
		                                          : -ENOENT;
		if (r == 0)
			memcpy(digest, entry.digest, REF_DIGEST_BYTES);
		else
			(void)err_set(err, r, "no image '%s' in the cache", seen);
	}
	store_close(&s);
	return r;
}

struct unref {
	const struct pull_store *s;
	const char *digest;
};

static void drop_ref(void *arg, const struct pull_entry *e, const char *file)
{
	const struct unref *u = arg;

	if (strcmp(e->digest, u->digest) == 0)
		(void)unlinkat(u->s->refs, file, 0); /* without its image it means nothing */
}

int pull_rm(const struct pull_opts *o, const char *digest, struct err *err)
{
	struct pull_store s = PULL_STORE_INIT;
	struct unref u = { &s, digest };
	int r = store_open(&s, o->cache_dir, err);

	if (r < 0)
		return r;
	AUTO_FREE char *tmp = xasprintf(".tmp-rm-%s", digest + 7);
	(void)!each_entry(&s, drop_ref, &u);
	(void)!path_remove_tree(s.oci, tmp); /* of an interrupted one */
	/* out of sight in one step, so that nobody opens a half-removed image */
	r = renameat(s.oci, digest + 7, s.oci, tmp) < 0 ? -errno : path_remove_tree(s.oci, tmp);
	store_close(&s);
	return r < 0 ? load_failed(digest, r, err) : 0;
}

int pull_check(const struct pull_opts *o, const char *digest, struct err *err)
{
	struct pull_image img = PULL_IMAGE_INIT;
	struct hash h;
	uint64_t size;
	int r = pull_load(o, digest, &img, err);

	if (r < 0)
		return r;
	r = image_hash_fd(img.fd, &h, &size);
	if (r == 0 && (size != img.info.size || !hash_eq(&h, &img.info.hash)))
		r = -EBADMSG;
	pull_close(&img);
	return r < 0 ? load_failed(digest, r, err) : 0;
}
