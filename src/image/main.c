/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-image - the caged side of an image build.
 *
 * Trusts: its program file and the built-in recipes. Touches: the descriptors
 * it was started with, nothing else: it enters its cage before the first byte
 * of input. A compromise yields a bad image, which is what the archive's author
 * could have sent anyway.
 *
 *	cloche-image rootfs RECIPE   0 tar in, 1 report, 3 image out, 4 package out
 *	cloche-image oci-read root|config
 *	                             0 manifest, index or config of an image in, 3 words out
 *	cloche-image oci-merge HEX:SIZE...
 *	                             10, 11, ... layers in, the lowest first, 1 report, 3 image out
 *	cloche-image kernel          0 package in, 1 report, 3 kernel out, 4 modules out
 *	cloche-image package NAME [--omit PATTERN]... [--bin NAME=PATH]...
 *	                             0 tarball of npm in, 1 report, 3 layer out
 *
 * Exit: 0; 3 for an input that is cut short or damaged (of oci-merge the report names the
 * layer); 5 for an image of another system; 4 for what is refused, and for errors of its own.
 * The reason is one line on stderr.
 *
 * `build`, `layer`, `ls`, `rm`, `verify`, `open`, `scratch` are for developers: they do
 * what the command `cloche image` does, with the user's rights, and parse nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "cage/cage.h"
#include "config/profile.h"
#include "image/layer.h"
#include "image/ocireader.h"
#include "image/worker.h"

enum { FD_OUT = 3, FD_OUT2 = 4, FD_LAYERS = 10 };

static int say(const struct err *e)
{
	(void)fprintf(stderr, "cloche-image: %s\n", e->text);
	if (e->hint[0])
		(void)fprintf(stderr, "hint: %s\n", e->hint);
	return e->code == -EBADMSG   ? WORKER_EXIT_DAMAGED
	       : e->code == -ENOEXEC ? WORKER_EXIT_OTHER
	                             : WORKER_EXIT_REFUSED;
}

static int enter_cage(struct err *err)
{
	struct cage_opts o = { .role = CAGE_IMAGE, .memory_max = (uint64_t)4 << 30 };
	uint32_t seed;

	/* a name in UTF-8 reads as bytes in either; in "C" libarchive drops it */
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		return err_set(err, -ENOENT, "the locale C.UTF-8 is missing");
	(void)signal(SIGPIPE, SIG_IGN); /* EPIPE says it, with a reason */
	random_bytes(&seed, sizeof(seed));
	if (cage_uid_pick(seed, &o.uid) < 0)
		o.uid = 0;
	return cage_enter(&o, err);
}

static int report(const struct worker_report *r, struct err *err)
{
	uint8_t b[WORKER_REPORT_BYTES];

	worker_report_put(b, r);
	int e = fd_write_all(1, b, sizeof(b));
	return e < 0 ? err_code(err, e, "cannot write the report") : 0;
}

static int main_rootfs(const char *name)
{
	struct rootfs_opts o = { .out_fd = FD_OUT, .deb_fd = FD_OUT2 };
	struct worker_report rep = { 0 };
	struct recipe recipe = { 0 };
	struct err err = { 0 };

	o.now_s = time(NULL);
	random_bytes(o.uuid, sizeof(o.uuid));
	int r = recipe_load(&recipe, name, &err);
	if (r == 0)
		r = enter_cage(&err);
	o.recipe = &recipe;
	struct tar *in = r == 0 ? tar_open_fd(0) : NULL;
	if (r == 0 && !in)
		r = err_set(&err, -ENOMEM, "no memory");
	if (r == 0)
		r = rootfs_write(in, &o, &rep, &err);
	tar_free(in);
	recipe_fini(&recipe);
	if (r == 0)
		r = tar_drain(0);
	if (r == 0)
		r = report(&rep, &err);
	return r < 0 ? say(&err) : 0;
}

static int package_args(struct package_opts *o, int argc, char **argv, struct err *err)
{
	o->name = argv[0];
	for (int i = 1; i + 1 < argc; i += 2) {
		char *eq = strchr(argv[i + 1], '=');
		if (strcmp(argv[i], "--omit") == 0 && o->n_omit < PACKAGE_OMIT_MAX) {
			o->omit[o->n_omit++] = argv[i + 1];
		} else if (strcmp(argv[i], "--bin") == 0 && eq && o->n_bin < PACKAGE_BIN_MAX) {
			*eq = '\0';
			o->bin[o->n_bin++] =
				(struct package_bin){ .name = argv[i + 1], .path = eq + 1 };
		} else {
			return err_set(err, -EINVAL, "wrong arguments");
		}
	}
	return argc % 2 ? 0 : err_set(err, -EINVAL, "wrong arguments");
}

static int main_package(int argc, char **argv)
{
	struct package_opts o = { .out_fd = FD_OUT };
	struct worker_report rep = { 0 };
	struct err err = { 0 };

	o.now_s = time(NULL);
	random_bytes(o.uuid, sizeof(o.uuid));
	int r = package_args(&o, argc, argv, &err);
	if (r == 0)
		r = enter_cage(&err);
	struct tar *in = r == 0 ? tar_open_gz(0) : NULL;
	if (r == 0 && !in)
		r = err_set(&err, -ENOMEM, "no memory");
	if (r == 0)
		r = package_write(in, &o, &rep, &err);
	tar_free(in);
	if (r == 0)
		r = report(&rep, &err);
	return r < 0 ? say(&err) : 0;
}

static int main_oci_read(bool config)
{
	AUTO_BUF struct buf words = { 0 };
	AUTO_FREE char *json = NULL;
	struct err err = { 0 };
	size_t n = 0;

	int r = enter_cage(&err);
	if (r == 0) {
		r = fd_read_file(0, OCI_JSON_MAX, &json, &n);
		if (r < 0)
			(void)err_code(&err, r, "cannot read it");
	}
	if (r == 0)
		r = config ? oci_read_config(span_of(json, n), &words, &err)
		           : oci_read_root(span_of(json, n), &words, &err);
	if (r == 0) {
		r = fd_write_all(FD_OUT, words.p, words.len);
		if (r < 0)
			(void)err_code(&err, r, "cannot write the words");
	}
	return r < 0 ? say(&err) : 0;
}

/* "HEX:SIZE", from our own side. */
static bool layer_arg(struct oci_layer *l, const char *s)
{
	struct hash h;
	AUTO_FREE char *hex = xstrndup(s, strcspn(s, ":"));
	const char *size = strchr(s, ':');

	if (!size || hash_parse(&h, hex) < 0)
		return false;
	_Static_assert(sizeof(h.b) == SHA256_BYTES, "both are 32 bytes");
	memcpy(l->sum, h.b, sizeof(l->sum));
	l->size = strtoull(size + 1, NULL, 10);
	return true;
}

static int main_oci_merge(int argc, char **argv)
{
	static struct oci_layer layers[OCI_LAYERS_MAX];
	struct rootfs_opts o = { .out_fd = FD_OUT, .deb_fd = -1, .now_s = time(NULL) };
	struct worker_report rep = { 0 };
	struct err err = { 0 };
	int bad = -1, r = 0;

	random_bytes(o.uuid, sizeof(o.uuid));
	for (int i = 0; i < argc && r == 0; i++) {
		if (i == OCI_LAYERS_MAX || !layer_arg(&layers[i], argv[i]))
			r = err_set(&err, -EINVAL, "wrong arguments");
		else
			layers[i].fd = FD_LAYERS + i;
	}
	if (r == 0)
		r = enter_cage(&err);
	if (r == 0)
		r = oci_merge(layers, (size_t)argc, &o, &rep, &bad, &err);
	if (bad >= 0) {
		rep = (struct worker_report){ 0 };
		(void)snprintf(rep.text, sizeof(rep.text), "%.64s", argv[bad]);
		(void)!report(&rep, NULL); /* then nobody knows which one it was */
	} else if (r == 0) {
		r = report(&rep, &err);
	}
	return r < 0 ? say(&err) : 0;
}

static int main_kernel(void)
{
	struct worker_report rep = { 0 };
	struct err err = { 0 };

	int r = enter_cage(&err);
	if (r == 0)
		r = kernel_write(0, FD_OUT, FD_OUT2, &rep, &err);
	if (r == 0)
		r = report(&rep, &err);
	return r < 0 ? say(&err) : 0;
}

/* ---- for developers ----------------------------------------------------- */

static bool show(void *arg, const struct image_progress *p)
{
	static enum image_phase last = IMAGE_PHASE_WAIT;

	(void)arg;
	if (p->phase == last)
		return true;
	last = p->phase;
	(void)fprintf(stderr, "%6.1f s  %s (%" PRIu64 " MiB)\n", (double)p->elapsed_ms / 1000,
	              p->text, p->bytes >> 20);
	return true;
}

static int main_build(const struct image_opts *o, bool force)
{
	struct err err = { 0 };
	bool built;

	if (image_build(o, force, show, NULL, &built, &err) < 0)
		return say(&err);
	(void)printf("%s\n", built ? "built" : "there already");
	return 0;
}

static int main_list(const struct image_opts *o)
{
	struct image_info *list = NULL;
	struct err err = { 0 };
	size_t n = 0;

	if (image_list(o, &list, &n, &err) < 0)
		return say(&err);
	for (size_t i = 0; i < n; i++) {
		char hex[HASH_HEX_BYTES];
		hash_hex(hex, &list[i].digest);
		(void)printf("%s %s %s %s %" PRIu64 " %s\n", list[i].name, list[i].id,
		             list[i].suite, hex, list[i].size,
		             list[i].is_current ? "current" : "old");
	}
	free(list);
	return 0;
}

static int main_open(const struct image_opts *o)
{
	struct image img = IMAGE_INIT;
	struct err err = { 0 };

	if (image_open(o, &img, &err) < 0)
		return say(&err);
	(void)printf("%s\n%s\n%s\n%s\n", img.rootfs_path, img.kernel_path, img.initrd_path,
	             img.info.kernel_release);
	image_close(&img);
	return 0;
}

static int main_scratch(const struct image_opts *o, const char *path, const char *mib)
{
	struct err err = { 0 };
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *dir = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		(void)err_errno(&err, "cannot open '%s'", dir);
	else
		(void)!image_scratch_create(o, fd, slash ? slash + 1 : path,
		                            strtoull(mib, NULL, 10) << 20, &err);
	return err.code ? say(&err) : 0;
}

/* A layer by the words of a recipe: PACKAGE VERSION LOCK [NAME=PATH]... */
static int main_layer(const struct image_opts *o, int argc, char **argv)
{
	struct layer_opts lo = { .cache_dir = o->cache_dir,
		                 .lock_path = argv[2][0] == '/' ? argv[2] : NULL };
	struct profile_pair bin[PACKAGE_BIN_MAX];
	struct profile_npm npm = { .package = argv[0], .version = argv[1], .bin.v = bin };
	struct layer l = LAYER_INIT;
	struct err err = { 0 };
	bool built;

	for (int i = 3; i < argc && npm.bin.n < PACKAGE_BIN_MAX; i++) {
		char *eq = strchr(argv[i], '=');
		if (!eq)
			return 2;
		*eq = '\0';
		bin[npm.bin.n++] = (struct profile_pair){ argv[i], eq + 1 };
	}
	if (layer_build(&lo, &npm, false, show, NULL, &built, &err) < 0 ||
	    layer_open(&lo, &npm, &l, &err) < 0)
		return say(&err);
	(void)printf("%s %s\n", l.path, built ? "built" : "there already");
	layer_close(&l);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	struct image_opts o = { .name = argc > 2 ? argv[2] : NULL,
		                .suite = getenv("CLOCHE_SUITE") };
	struct err err = { 0 };

	if (strcmp(verb, "rootfs") == 0 && argc == 3)
		return main_rootfs(argv[2]);
	if (strcmp(verb, "package") == 0 && argc >= 3)
		return main_package(argc - 2, argv + 2);
	if (strcmp(verb, "oci-read") == 0 && argc == 3)
		return main_oci_read(strcmp(argv[2], "config") == 0);
	if (strcmp(verb, "oci-merge") == 0 && argc >= 2)
		return main_oci_merge(argc - 2, argv + 2);
	if (strcmp(verb, "kernel") == 0 && argc == 2)
		return main_kernel();
	if (strcmp(verb, "build") == 0 && argc <= 4)
		return main_build(&o, argc == 4 && strcmp(argv[3], "--force") == 0);
	if (strcmp(verb, "layer") == 0 && argc >= 5)
		return main_layer(&o, argc - 2, argv + 2);
	if (strcmp(verb, "ls") == 0 && argc == 2)
		return main_list(&o);
	if (strcmp(verb, "rm") == 0 && argc == 3)
		return image_rm(&o, argv[2], NULL, &err) < 0 ? say(&err) : 0;
	if (strcmp(verb, "verify") == 0 && argc <= 3)
		return image_verify(&o, &err) < 0 ? say(&err) : 0;
	if (strcmp(verb, "open") == 0 && argc <= 3)
		return main_open(&o);
	if (strcmp(verb, "scratch") == 0 && argc == 4)
		return main_scratch(&o, argv[2], argv[3]);
	(void)fputs(
		"usage: cloche-image rootfs RECIPE | kernel | package NAME ... | oci-read ... | "
		"oci-merge ... | "
		"build [NAME [--force]] | layer PACKAGE VERSION LOCK [BIN=PATH]... | ls | "
		"rm NAME | verify [NAME] | open [NAME] | scratch FILE MIB\n",
		stderr);
	return 2;
}
