/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - finding, opening, listing and removing images; the initramfs. */
#include "image/image_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "image/cpio.h"

enum { INIT_BYTES_MAX = 64 * 1024 * 1024 };

/* ---- folders ------------------------------------------------------------ */

int image_cache_open(const struct image_opts *o, int *out_fd, char **out_path, struct err *err)
{
	const char *dir = o ? o->cache_dir : NULL, *base;
	AUTO_FREE char *path = NULL;

	if (!dir)
		dir = getenv("CLOCHE_IMAGE_DIR");
	if (dir && dir[0] == '/')
		path = xstrdup(dir);
	else if ((base = getenv("XDG_CACHE_HOME")) && base[0] == '/')
		path = xasprintf("%s/cloche/images", base);
	else if ((base = getenv("HOME")) && base[0] == '/')
		path = xasprintf("%s/.cache/cloche/images", base);
	else
		return err_set(err, -ENOENT, "neither XDG_CACHE_HOME nor HOME is an absolute path");
	int r = path_own_dir(path, out_fd, err);
	if (r < 0) {
		(void)err_wrap(err, "image cache");
		return r;
	}
	if (out_path)
		*out_path = take_ptr(&path);
	return 0;
}

int image_make_locked(int fd, const char *name, mode_t mode, int *out)
{
	if (mkdirat(fd, name, mode) < 0)
		return -errno;
	AUTO_CLOSE int dir = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0 || fchmod(dir, mode) < 0 || flock(dir, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	*out = take_fd(&dir);
	return 0;
}

int image_lock_file(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? -errno : fd;
}

void image_sweep_with(int fd, const char *prefix, void (*rm)(int fd, const char *name))
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *e;
	struct stat st;

	if (!d) {
		close_now(&copy);
		return;
	}
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		AUTO_CLOSE int dir =
			openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (dir < 0 || fstat(dir, &st) < 0 || st.st_uid != getuid() ||
		    flock(dir, LOCK_EX | LOCK_NB) < 0)
			continue;
		rm(fd, e->d_name);
	}
	(void)closedir(d); /* only read */
}

static void remove_tmp(int fd, const char *name)
{
	(void)!path_remove_tree(fd, name); /* tried again next time */
}

void image_sweep(int fd, const char *prefix)
{
	image_sweep_with(fd, prefix, remove_tmp);
}

static bool suite_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n && s[n] == '\0' && n < IMAGE_SUITE_MAX && s[0] != '-';
}

int image_spec_init(struct image_spec *s, const struct image_opts *o, struct err *err)
{
	const char *name = o && o->name ? o->name : "base";
	const char *suite = o && o->suite ? o->suite : IMAGE_DEFAULT_SUITE;
	char hex[HASH_HEX_BYTES];
	struct hash h;

	*s = (struct image_spec){ 0 };
	if (!suite_ok(suite))
		return err_set(err, -EINVAL, "image.suite: not the code name of a Debian release");
	int r = recipe_load(&s->recipe, name, err);
	if (r < 0)
		return r;
	memcpy(s->suite, suite, strlen(suite) + 1);
	memcpy(s->name, s->recipe.name.p, s->recipe.name.len);
	recipe_hash(&s->recipe, suite, &h);
	hash_hex(hex, &h);
	(void)snprintf(s->id, sizeof(s->id), "%s-%.12s", s->name, hex);
	return 0;
}

int image_no_program(struct err *err, const char *program, const char *packages)
{
	(void)err_set(err, -ENOPKG, "%s is not installed", program);
	(void)err_hint(err, "sudo apt install %s", packages);
	return -ENOPKG;
}

/* ---- files -------------------------------------------------------------- */

int image_hash_fd(int fd, struct hash *out, uint64_t *out_size)
{
	enum { PIECE = 1024 * 1024 };
	AUTO_FREE uint8_t *b = xmalloc(PIECE);
	struct hash_state s;
	uint64_t at = 0;

	hash_init(&s);
	for (;;) {
		ssize_t n = pread(fd, b, PIECE, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		hash_update(&s, b, (size_t)n);
		at += (uint64_t)n;
	}
	hash_final(&s, out);
	*out_size = at;
	return 0;
}

int image_write_file(int dirfd, const char *name, const void *p, size_t n)
{
	uint64_t random;

	random_bytes(&random, sizeof(random));
	AUTO_FREE char *tmp = xasprintf(".new-%s-%016llx", name, (unsigned long long)random);
	AUTO_CLOSE int fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	int r = fd_write_all(fd, p, n);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0)
		r = fd_close(&fd);
	if (r == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dirfd, tmp, 0); /* the first error counts */
	else
		(void)fsync(dirfd); /* some file systems cannot; the rename is there */
	return r;
}

int image_manifest_load(int dirfd, struct image_manifest *out)
{
	AUTO_CLOSE int fd = openat(dirfd, IMAGE_MANIFEST, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_FREE char *text = NULL;
	size_t n;

	if (fd < 0)
		return -errno;
	int r = fd_read_file(fd, IMAGE_MANIFEST_MAX, &text, &n);
	if (r < 0)
		return r;
	r = image_manifest_parse(out, text, n);
	for (int i = 0; i < IMAGE_FILES && r == 0; i++) {
		struct stat st;
		if (fstatat(dirfd, image_file_names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode) || (uint64_t)st.st_size != out->size[i])
			r = -EBADMSG;
	}
	return r;
}

/* ---- initramfs ---------------------------------------------------------- */

/* Initramfs files that no one used for a month go. */
static void sweep_initrds(int cache)
{
	int fd = openat(cache, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	struct stat st;

	if (!d) {
		close_now(&fd);
		return;
	}
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, "initrd-", 7) == 0 &&
		    fstatat(cache, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    time(NULL) - st.st_mtime > (time_t)IMAGE_OLD_DAYS * 86400)
			(void)unlinkat(cache, e->d_name, 0); /* made again when needed */
	}
	(void)closedir(d); /* only read */
}

static int make_initrd(int cache, int image_dir, const char *name, struct span init,
                       struct err *err)
{
	AUTO_CLOSE int fd = openat(image_dir, IMAGE_MODULES, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct cpio c = { 0 };
	char *p = NULL;
	size_t n = 0;

	if (fd < 0)
		return err_errno(err, "cannot open %s", IMAGE_MODULES);
	int r = fd_read_file(fd, INIT_BYTES_MAX, &p, &n);
	AUTO_FREE char *modules = p;
	if (r == 0)
		r = cpio_add(&c, "init", S_IFREG | 0755, init);
	if (r == 0)
		r = cpio_end(&c);
	if (r == 0)
		r = buf_put(&c.out, modules, n);
	if (r == 0)
		r = image_write_file(cache, name, c.out.p, c.out.len);
	cpio_fini(&c);
	if (r == 0)
		sweep_initrds(cache);
	return r < 0 ? err_code(err, r, "cannot make the initramfs") : 0;
}

/* The initramfs of @m and the init that lies beside this program. */
static int open_initrd(int cache, int image_dir, const struct image_manifest *m, int *out_fd,
                       char **out_name, struct err *err)
{
	AUTO_FREE char *self = proc_self_dir();
	AUTO_FREE char *init_path = xasprintf("%s/cloche-init", self);
	AUTO_CLOSE int init_fd = open(init_path, O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *init = NULL;
	char hex[HASH_HEX_BYTES];
	struct hash_state s;
	struct hash key;
	size_t n;

	if (init_fd < 0)
		return err_errno(err, "cannot open the guest's init '%s'", init_path);
	int r = fd_read_file(init_fd, INIT_BYTES_MAX, &init, &n);
	if (r < 0)
		return err_code(err, r, "cannot read '%s'", init_path);
	hash_init(&s);
	hash_update(&s, &m->digest[2], sizeof(m->digest[2]));
	hash_update(&s, init, n);
	hash_final(&s, &key);
	hash_hex(hex, &key);
	AUTO_FREE char *name = xasprintf("initrd-%.24s.cpio", hex);
	AUTO_CLOSE int fd = openat(cache, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT) {
		r = make_initrd(cache, image_dir, name, span_of(init, n), err);
		if (r < 0)
			return r;
		fd = openat(cache, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	}
	if (fd < 0)
		return err_errno(err, "cannot open the initramfs");
	(void)futimens(fd, NULL); /* in use: not swept; another owner's is fine too */
	*out_fd = take_fd(&fd);
	*out_name = take_ptr(&name);
	return 0;
}

/* ---- image.h ------------------------------------------------------------ */

const char *image_recipe_name(size_t k)
{
	return k < recipe_texts_n ? recipe_texts[k].name : NULL;
}

void image_close(struct image *img)
{
	close_now(&img->rootfs_fd);
	close_now(&img->kernel_fd);
	close_now(&img->initrd_fd);
	free(img->rootfs_path);
	free(img->kernel_path);
	free(img->initrd_path);
	*img = (struct image)IMAGE_INIT;
}

static int not_built(const struct image_spec *s, int r, struct err *err)
{
	if (r == -ENOENT)
		(void)err_set(err, r, "image '%s' (%s) is not built", s->name, s->suite);
	else if (r == -EBADMSG)
		(void)err_set(err, r, "image '%s' in the cache is damaged", s->name);
	else
		(void)err_code(err, r, "cannot open image '%s'", s->name);
	(void)err_hint(err, "cloche image build %s%s", s->name, r == -EBADMSG ? " --force" : "");
	return r;
}

/* One file of the user's boot folder, which has to hold something. */
static int open_boot_file(int dir, const char *path, const char *name, int *out, struct err *err)
{
	AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 && errno != ENOENT)
		return err_errno(err, "cannot open '%s/%s'", path, name);
	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0)) {
		(void)err_set(err, -ENOENT, "the boot folder '%s' has no %s, or an empty one", path,
		              name);
		return err_hint(err,
		                "it needs " IMAGE_KERNEL " and " IMAGE_MODULES ": nothing is taken "
		                "from elsewhere in their place");
	}
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "'%s/%s' is not a regular file", path, name);
	*out = take_fd(&fd);
	return 0;
}

/* Kernel and modules of the user's own, in place of the image's. */
static int take_boot_dir(int cache, const char *path, struct image *img, char **initrd,
                         struct err *err)
{
	AUTO_CLOSE int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int kernel = -1, modules = -1;
	struct image_manifest m = { 0 };
	uint8_t magic[4] = { 0 };
	uint64_t size;

	if (dir < 0)
		return err_errno(err, "cannot open the boot folder '%s'", path);
	int r = open_boot_file(dir, path, IMAGE_KERNEL, &kernel, err);
	if (r == 0)
		r = open_boot_file(dir, path, IMAGE_MODULES, &modules, err);
	if (r < 0)
		return r;
	if (fd_pread_exact(kernel, magic, sizeof(magic), 0) < 0 ||
	    memcmp(magic, "\177ELF", sizeof(magic)) != 0) {
		(void)err_set(err, -ENOEXEC, "'%s/%s' is no ELF kernel", path, IMAGE_KERNEL);
		return err_hint(err, "a bzImage has one in it: scripts/extract-vmlinux of the "
		                     "kernel's source takes it out");
	}
	r = image_hash_fd(modules, &m.digest[2], &size); /* names the initramfs */
	if (r < 0)
		return err_code(err, r, "cannot read '%s/%s'", path, IMAGE_MODULES);
	r = open_initrd(cache, dir, &m, &img->initrd_fd, initrd, err);
	if (r < 0)
		return r;
	close_now(&img->kernel_fd);
	img->kernel_fd = take_fd(&kernel);
	(void)snprintf(img->info.kernel_release, sizeof(img->info.kernel_release), "of-image.boot");
	return 0;
}

int image_open(const struct image_opts *opts, struct image *out, struct err *err)
{
	AUTO_CLOSE int cache = -1, dir = -1;
	AUTO_FREE char *cache_path = NULL, *initrd = NULL;
	struct image img = IMAGE_INIT;
	struct image_manifest m = { 0 };
	struct image_spec spec;

	int r = image_spec_init(&spec, opts, err);
	if (r < 0)
		return r;
	r = image_cache_open(opts, &cache, &cache_path, err);
	if (r < 0)
		goto out;
	/* `image build --force` may exchange the folder and empty the one we hold: once more */
	for (int turn = 0; turn < 2; turn++) {
		close_now(&dir);
		close_now(&img.rootfs_fd);
		close_now(&img.kernel_fd);
		dir = openat(cache, spec.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		r = dir < 0 ? -errno : image_manifest_load(dir, &m);
		if (r < 0)
			continue;
		img.rootfs_fd = openat(dir, IMAGE_ROOTFS, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		img.kernel_fd = openat(dir, IMAGE_KERNEL, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		r = img.rootfs_fd < 0 || img.kernel_fd < 0 ? -errno : 0;
		if (r == 0)
			break;
	}
	if (r < 0) {
		(void)not_built(&spec, r, err);
		goto out;
	}
	img.info = m.info;
	img.info.is_current = true;
	const char *boot = opts ? opts->boot_dir : NULL;
	r = boot ? take_boot_dir(cache, boot, &img, &initrd, err)
	         : open_initrd(cache, dir, &m, &img.initrd_fd, &initrd, err);
	if (r == -ENOENT)
		r = -EINVAL; /* the image is there: building it would not help */
	if (r < 0)
		goto out;
	img.rootfs_size = m.size[0];
	img.registries = m.registries;
	img.rootfs_path = xasprintf("%s/%s/%s", cache_path, spec.id, IMAGE_ROOTFS);
	img.kernel_path = boot ? xasprintf("%s/%s", boot, IMAGE_KERNEL)
	                       : xasprintf("%s/%s/%s", cache_path, spec.id, IMAGE_KERNEL);
	img.initrd_path = xasprintf("%s/%s", cache_path, initrd);
	*out = img;
	img = (struct image)IMAGE_INIT;
out:
	image_close(&img);
	image_spec_fini(&spec);
	return r;
}

int image_verify(const struct image_opts *opts, struct err *err)
{
	AUTO_CLOSE int cache = -1, dir = -1;
	struct image_manifest m = { 0 };
	struct image_spec spec;

	int r = image_spec_init(&spec, opts, err);
	if (r < 0)
		return r;
	r = image_cache_open(opts, &cache, NULL, err);
	if (r < 0)
		goto out;
	dir = openat(cache, spec.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	r = dir < 0 ? -errno : image_manifest_load(dir, &m);
	for (int i = 0; i < IMAGE_FILES && r == 0; i++) {
		AUTO_CLOSE int fd =
			openat(dir, image_file_names[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		struct hash h;
		uint64_t size;
		r = fd < 0 ? -errno : image_hash_fd(fd, &h, &size);
		if (r == 0 && (size != m.size[i] || !hash_eq(&h, &m.digest[i])))
			r = -EBADMSG;
	}
	if (r < 0)
		(void)not_built(&spec, r, err);
out:
	image_spec_fini(&spec);
	return r;
}

static int compare_info(const void *a, const void *b)
{
	const struct image_info *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : (y->built_s > x->built_s) - (y->built_s < x->built_s);
}

/* Would this version's recipe, for the image's suite, give this folder? */
static bool is_current(const struct image_info *i)
{
	struct image_opts o = { .name = i->name, .suite = i->suite };
	struct image_spec s;

	if (image_spec_init(&s, &o, NULL) < 0)
		return false;
	bool same = strcmp(s.id, i->id) == 0;
	image_spec_fini(&s);
	return same;
}

int image_list(const struct image_opts *opts, struct image_info **out, size_t *out_n,
               struct err *err)
{
	AUTO_CLOSE int cache = -1;
	AUTO_FREE struct image_info *list = NULL;
	struct dirent *e;
	size_t n = 0, cap = 0;

	int r = image_cache_open(opts, &cache, NULL, err);
	if (r < 0)
		return r;
	int fd = openat(cache, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		r = err_errno(err, "cannot read the image cache");
		close_now(&fd);
		return r;
	}
	while ((e = readdir(d))) {
		struct image_manifest m;
		if (e->d_name[0] == '.')
			continue;
		AUTO_CLOSE int dir =
			openat(cache, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (dir < 0 || image_manifest_load(dir, &m) < 0 ||
		    strcmp(m.info.id, e->d_name) != 0)
			continue;
		m.info.is_current = is_current(&m.info);
		if (n == cap) {
			cap = cap ? cap * 2 : 8;
			list = xrealloc(list, cap * sizeof(*list));
		}
		list[n++] = m.info;
	}
	(void)closedir(d); /* only read */
	if (n)
		qsort(list, n, sizeof(*list), compare_info);
	*out = take_ptr(&list);
	*out_n = n;
	return 0;
}

/* "base-0123456789ab" is an image of "base": whole, or what damage left of one. */
static bool is_image_of(const char *folder, const char *name_or_id)
{
	enum { HASH_DIGITS = 12 };
	size_t n = strlen(folder);

	if (n < HASH_DIGITS + 2 || folder[0] == '.' || folder[n - HASH_DIGITS - 1] != '-' ||
	    strspn(folder + n - HASH_DIGITS, "0123456789abcdef") != HASH_DIGITS)
		return false;
	size_t name = n - HASH_DIGITS - 1;
	return strcmp(folder, name_or_id) == 0 ||
	       (strlen(name_or_id) == name && memcmp(folder, name_or_id, name) == 0);
}

/* Out of sight in one step, so that nobody opens a half-removed image. */
static int remove_image(int cache, const char *id, struct err *err)
{
	AUTO_FREE char *tmp = xasprintf(".tmp-rm-%s", id);

	(void)!path_remove_tree(cache, tmp); /* of an interrupted one */
	if (renameat(cache, id, cache, tmp) < 0)
		return err_errno(err, "cannot remove image '%s'", id);
	int r = path_remove_tree(cache, tmp);
	return r < 0 ? err_code(err, r, "cannot remove image '%s'", id) : 0;
}

int image_rm(const struct image_opts *opts, const char *name_or_id, size_t *out_n, struct err *err)
{
	AUTO_CLOSE int cache = -1;
	struct recipe recipe = { 0 };
	char name[IMAGE_NAME_MAX];
	size_t gone = 0, left = 0;
	struct dirent *e;

	/* an alias names the same images */
	(void)snprintf(name, sizeof(name), "%s", name_or_id);
	if (recipe_load(&recipe, name_or_id, NULL) == 0)
		(void)snprintf(name, sizeof(name), "%.*s", (int)recipe.name.len,
		               (const char *)recipe.name.p);
	recipe_fini(&recipe);
	int r = image_cache_open(opts, &cache, NULL, err);
	if (r < 0)
		return r;
	int fd = openat(cache, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		r = err_errno(err, "cannot read the image cache");
		close_now(&fd);
		return r;
	}
	while (r == 0 && (e = readdir(d))) {
		char id[IMAGE_NAME_MAX + 16];
		struct image_manifest m;
		if (is_image_of(e->d_name, name) && strlen(e->d_name) < sizeof(id)) {
			memcpy(id, e->d_name, strlen(e->d_name) + 1);
			r = remove_image(cache, id, err);
			gone += r == 0;
			continue;
		}
		AUTO_CLOSE int dir =
			e->d_name[0] == '.'
				? -1
				: openat(cache, e->d_name,
		                         O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		left += dir >= 0 && image_manifest_load(dir, &m) == 0;
	}
	if (r == 0 && left == 0) { /* no image uses an initramfs any more */
		rewinddir(d);
		while ((e = readdir(d))) {
			if (strncmp(e->d_name, "initrd-", 7) == 0)
				(void)unlinkat(cache, e->d_name, 0); /* made again when needed */
		}
	}
	(void)closedir(d); /* only read */
	if (r < 0)
		return r;
	if (gone == 0) {
		(void)err_set(err, -ENOENT, "no such image in the cache");
		(void)err_hint(err, "cloche image ls");
		return -ENOENT;
	}
	if (out_n)
		*out_n = gone;
	return 0;
}
