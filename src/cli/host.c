/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche doctor`: what this host can do, with remedies. `cloche image`: the
 * images in the cache.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/near.h"
#include "base/proc.h"
#include "cage/cage.h"
#include "cli/cli.h"
#include "cli/plan.h"
#include "cli/pull.h"
#include "cli/run.h"
#include "term/progress.h"
#include "term/screen.h"
#include "term/tty.h"

enum { H_JSON = 1, H_FORCE, H_YES, H_SUITE, H_MIRROR, H_QUIET };

static const struct cli_opt doctor_opts_[] = {
	{ "json", 0, CLI_FLAG, H_JSON, NULL, "machine-readable output" },
};
static const struct cli_opt image_opts_[] = {
	{ "json", 0, CLI_FLAG, H_JSON, NULL, "machine-readable output (ls, pull, inspect)" },
	{ "force", 'f', CLI_FLAG, H_FORCE, NULL, "build anew although it is there" },
	{ "suite", 0, CLI_VALUE, H_SUITE, "NAME", "Debian suite (default: image.suite, trixie)" },
	{ "mirror", 0, CLI_VALUE, H_MIRROR, "URL", "Debian mirror (default: the host's own)" },
	{ "quiet", 'q', CLI_FLAG, H_QUIET, NULL, "no progress, and no digest (pull)" },
};
const struct cli_opt *const host_opts[] = { doctor_opts_, image_opts_ };
const size_t host_n_opts[] = { ARRAY_LEN(doctor_opts_), ARRAY_LEN(image_opts_) };

/* ---- doctor ------------------------------------------------------------- */

enum level { OK, WARN, FAIL };

struct doctor {
	json_t *checks;
	struct buf text;
	bool json, no_run;
};

static void check(struct doctor *d, enum level lv, const char *name, const char *found,
                  const char *remedy)
{
	static const char *const words[] = { "ok", "warn", "fail" };

	json_t *j = json_pack("{ss ss ss}", "check", name, "result", words[lv], "found", found);
	if (remedy && remedy[0])
		(void)json_object_set_new(j, "remedy", json_string(remedy));
	(void)json_array_append_new(d->checks, j);
	(void)!buf_printf(&d->text, "%-5s %-12s %s\n", words[lv], name, found);
	if (remedy && remedy[0])
		(void)!buf_printf(&d->text, "%-5s %-12s -> %s\n", "", "", remedy);
}

static void check_program(struct doctor *d, const char *program, const char *package, bool needed)
{
	AUTO_FREE char *path = NULL;
	AUTO_FREE char *remedy = xasprintf("apt install %s", package);

	if (proc_find_program(program, &path) == 0) {
		check(d, OK, program, path, NULL);
		return;
	}
	check(d, needed ? FAIL : WARN, program, "not found", remedy);
	d->no_run |= needed;
}

/* The programs of a network: what each of them has given up when the guest is heard. */
static void check_network(struct doctor *d)
{
	static const struct {
		const char *name;
		enum cage_role role;
		const char *note;
	} t[] = {
		{ "cloche-net", CAGE_NET, "" },
		{ "cloche-relay", CAGE_RELAY,
		  "; in the host's network, to reach what the policy allows" },
		{ "cloche-switch", CAGE_SWITCH, "" },
	};
	char layers[160], text[300];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct cage_probe p;
		int r = cage_probe_role(t[i].role, &p);
		(void)snprintf(text, sizeof(text), "%s%s",
		               r < 0 ? strerror(-r)
		                     : cage_layers_str(layers, sizeof(layers), p.layers),
		               t[i].note);
		check(d, r == 0 && p.floor ? OK : FAIL, t[i].name, text,
		      r == 0 && p.floor ? NULL
		      : r == 0          ? p.why
		                        : "cloche needs to start processes");
	}
	check(d, OK, "cloche-keeper", "no cage: it hears nobody, and reads the host's own files",
	      NULL);
}

static int on_flag(void *arg, int id, const char *value, struct err *err UNUSED)
{
	struct doctor *d = arg;

	(void)value;
	if (id == H_JSON)
		d->json = true;
	return 0;
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor d = { .checks = json_array() };
	struct vmm_kvm_report kvm;
	struct cage_probe cage;
	struct utsname u;
	struct err e = { 0 };
	char layers[160], text[512];
	size_t n_words = 0;
	int rest;
	AUTO_FREE char **words = xcalloc((size_t)argc + 1, sizeof(*words));

	if (cli_parse(argc, argv, doctor_opts_, ARRAY_LEN(doctor_opts_), on_flag, &d, words,
	              &n_words, &rest, &e) < 0)
		return cli_usage(&e);
	(void)uname(&u); /* cannot fail */
	bool x86 = strcmp(u.machine, "x86_64") == 0;
	(void)snprintf(text, sizeof(text), "%s, Linux %s", u.machine, u.release);
	check(&d, x86 ? OK : FAIL, "host", text, x86 ? NULL : "cloche runs on x86-64 hosts only");
	d.no_run |= !x86;

	vmm_kvm_probe(&kvm, NULL);
	bool have_kvm = kvm.state == VMM_KVM_USABLE;
	(void)snprintf(text, sizeof(text), "%s%s%s", vmm_kvm_name(kvm.state),
	               kvm.reason[0] ? ": " : "", kvm.reason);
	check(&d, have_kvm ? OK : WARN, "kvm", text,
	      have_kvm        ? NULL
	      : kvm.remedy[0] ? kvm.remedy
	                      : "run with --accel tcg (slow, weaker)");

	int r = cage_probe(&cage);
	if (r < 0) {
		check(&d, FAIL, "cage", strerror(-r), "cloche needs to start processes");
		d.no_run = true;
	} else {
		(void)snprintf(text, sizeof(text), "%s",
		               cage_layers_str(layers, sizeof(layers), cage.layers));
		check(&d, cage.floor ? (cage.layers & CAGE_MOUNTNS ? OK : WARN) : FAIL, "cage",
		      text,
		      cage.floor
		              ? (cage.layers & CAGE_MOUNTNS
		                         ? NULL
		                         : "unprivileged user namespaces would add an empty root")
		              : cage.why);
		d.no_run |= !cage.floor;
	}
	check_network(&d);
	check_program(&d, "qemu-system-x86_64", "qemu-system-x86", true);
	check_program(&d, "mkfs.ext4", "e2fsprogs", true);
	check_program(&d, "mmdebstrap", "mmdebstrap", false);
	check_program(&d, "git", "git", false);

	struct state_dirs dirs;
	if (state_dirs_init(&dirs, true, &e) < 0) {
		check(&d, FAIL, "folders", e.text, e.hint);
		d.no_run = true;
	} else {
		struct statvfs vfs;
		char size[TERM_FMT_BYTES];
		if (statvfs(dirs.state, &vfs) == 0) {
			uint64_t free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
			(void)snprintf(text, sizeof(text), "%s, %s free", dirs.state,
			               term_fmt_size(size, free_bytes));
			check(&d, free_bytes < (uint64_t)2 << 30 ? WARN : OK, "folders", text,
			      free_bytes < (uint64_t)2 << 30 ? "at least 2 GiB are advisable"
			                                     : NULL);
		}
		struct image img = IMAGE_INIT;
		struct image_opts io = { 0 };
		if (image_open(&io, &img, &e) == 0)
			check(&d, OK, "image", img.info.id, NULL);
		else
			check(&d, WARN, "image", "base is not built", "cloche image build base");
		image_close(&img);
		state_dirs_fini(&dirs);
	}
	int code = d.no_run ? CLI_EXIT_REFUSED : have_kvm ? 0 : CLI_EXIT_OPEN;
	const char *can = d.no_run ? "nothing" : have_kvm ? "microvm" : "emulation";
	if (d.json) {
		json_t *top = json_pack("{si ss so s{ss ss} ss}", "schema", 1, "can_run", can,
		                        "checks", d.checks, "kvm", "state", vmm_kvm_name(kvm.state),
		                        "reason", kvm.reason, "cage",
		                        cage_layers_str(layers, sizeof(layers), cage.layers));
		AUTO_FREE char *s = json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS);
		json_decref(top);
		buf_fini(&d.text);
		if (!s || buf_printf(&d.text, "%s\n", s) < 0)
			return CLI_EXIT_REFUSED;
	} else {
		json_decref(d.checks);
		(void)!buf_printf(&d.text, "%s\n",
		                  d.no_run   ? "cloche cannot run here"
		                  : have_kvm ? "a microVM can run here"
		                             : "only emulation can run here: --accel tcg");
	}
	code = cli_print(&d.text, code);
	buf_fini(&d.text);
	return code;
}

/* ---- image -------------------------------------------------------------- */

struct image_cmd {
	bool json, force, quiet;
	struct config c;
	const char *suite, *mirror;
};

static int on_image_opt(void *arg, int id, const char *value, struct err *err UNUSED)
{
	struct image_cmd *c = arg;

	switch (id) {
	case H_JSON:
		c->json = true;
		break;
	case H_QUIET:
		c->quiet = true;
		break;
	case H_FORCE:
		c->force = true;
		break;
	case H_SUITE:
		c->suite = value;
		break;
	case H_MIRROR:
		c->mirror = value;
		break;
	default:
		break;
	}
	return 0;
}

static void rfc3339(char dst[32], int64_t s)
{
	time_t t = (time_t)s;
	struct tm tm;

	(void)strftime(dst, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
}

static int layers_ls(json_t *list, struct term_table *t, const struct layer_opts *lo, size_t *out_n,
                     struct err *err)
{
	struct layer_info *v = NULL;
	int r = layer_list(lo, &v, out_n, err);

	for (size_t i = 0; i < *out_n && r == 0; i++) {
		char hex[HASH_HEX_BYTES], when[32], size[TERM_FMT_BYTES], age[TERM_FMT_BYTES];
		int64_t secs = MAX((int64_t)0, (int64_t)time(NULL) - v[i].built_s);
		hash_hex(hex, &v[i].digest);
		rfc3339(when, v[i].built_s);
		(void)json_array_append_new(list, json_pack("{ss ss ss ss ss sI ss}", "id", v[i].id,
		                                            "package", v[i].package, "version",
		                                            v[i].version, "integrity",
		                                            v[i].integrity, "digest", hex, "size",
		                                            (json_int_t)v[i].size, "built", when));
		hex[12] = '\0';
		const char *row[] = { v[i].id,
			              "",
			              "",
			              hex,
			              term_fmt_size(size, v[i].size),
			              term_fmt_age(age, (uint64_t)secs),
			              "layer" };
		term_table_row(t, row);
	}
	free(v);
	return r;
}

/* Images of somebody else. */
static int foreign_ls(json_t *list, struct term_table *t, const struct pull_opts *po, size_t *out_n,
                      struct err *err)
{
	struct pull_info *v = NULL;
	int r = pull_list(po, &v, out_n, err);

	for (size_t i = 0; i < *out_n && r == 0; i++) {
		char built[32], used[32], size[TERM_FMT_BYTES], age[TERM_FMT_BYTES], note[80];
		char digest[13];
		int64_t now = time(NULL);
		struct image_ref ref;
		rfc3339(built, v[i].built_s);
		rfc3339(used, v[i].used_s);
		(void)json_array_append_new(
			list, json_pack("{ss so* si ss sI ss ss}", "digest", v[i].digest, "ref",
		                        v[i].ref[0] ? json_string(v[i].ref) : NULL, "more_refs",
		                        (int)v[i].more_refs, "vouched",
		                        pull_vouched_name(v[i].vouched), "size",
		                        (json_int_t)v[i].size, "built", built, "last_used", used));
		bool named = v[i].ref[0] && ref_parse(&ref, v[i].ref, "/", NULL) == 0;
		(void)snprintf(digest, sizeof(digest), "%.12s", v[i].digest + 7);
		(void)snprintf(note, sizeof(note), "used %s ago",
		               term_fmt_age(age, (uint64_t)MAX((int64_t)0, now - v[i].used_s)));
		(void)term_fmt_age(age, (uint64_t)MAX((int64_t)0, now - v[i].built_s));
		const char *row[] = { named ? ref_short(&ref) : "(no name)", "",  "",  digest,
			              term_fmt_size(size, v[i].size),        age, note };
		term_table_row(t, row);
	}
	for (size_t i = 0; i < *out_n; i++)
		pull_info_fini(&v[i]);
	free(v);
	return r;
}

static int image_ls(const struct image_cmd *c, const struct image_opts *io,
                    const struct layer_opts *lo, const struct pull_opts *po, struct err *err)
{
	static const struct term_col cols[] = {
		{ "IMAGE", TERM_LEFT, false }, { "SUITE", TERM_LEFT, false },
		{ "KERNEL", TERM_LEFT, true }, { "DIGEST", TERM_LEFT, false },
		{ "SIZE", TERM_RIGHT, false }, { "AGE", TERM_RIGHT, false },
		{ "NOTE", TERM_LEFT, false }
	};
	struct image_info *v = NULL;
	struct buf b = { 0 };
	size_t n = 0, n_layers = 0, n_foreign = 0;
	int r = image_list(io, &v, &n, err);

	if (r < 0)
		return cli_fail(err);
	json_t *list = json_array(), *layers = json_array(), *foreign = json_array();
	struct term_table t;
	term_table_init(&t, cols, ARRAY_LEN(cols));
	for (size_t i = 0; i < n; i++) {
		char hex[HASH_HEX_BYTES], when[32], size[TERM_FMT_BYTES], age[TERM_FMT_BYTES];
		int64_t secs = MAX((int64_t)0, (int64_t)time(NULL) - v[i].built_s);
		bool old = secs > (int64_t)IMAGE_OLD_DAYS * 86400;
		hash_hex(hex, &v[i].digest);
		rfc3339(when, v[i].built_s);
		(void)json_array_append_new(
			list, json_pack("{ss ss ss ss ss sI ss sb}", "name", v[i].name, "id",
		                        v[i].id, "suite", v[i].suite, "kernel", v[i].kernel_release,
		                        "digest", hex, "size", (json_int_t)v[i].size, "built", when,
		                        "current", v[i].is_current));
		hex[12] = '\0';
		const char *row[] = { v[i].id,
			              v[i].suite,
			              v[i].kernel_release,
			              hex,
			              term_fmt_size(size, v[i].size),
			              term_fmt_age(age, (uint64_t)secs),
			              !v[i].is_current ? "not used by this version"
			              : old            ? "old: cloche image build --force"
			                               : "" };
		term_table_row(&t, row);
	}
	r = layers_ls(layers, &t, lo, &n_layers, err);
	if (r == 0)
		r = foreign_ls(foreign, &t, po, &n_foreign, err);
	if (r < 0) {
		json_decref(list);
		json_decref(layers);
		json_decref(foreign);
		term_table_fini(&t);
		free(v);
		return cli_fail(err);
	}
	if (c->json) {
		json_t *top = json_pack("{si so so so}", "schema", 1, "images", list, "layers",
		                        layers, "foreign", foreign);
		AUTO_FREE char *s = json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS);
		r = s ? buf_printf(&b, "%s\n", s) : -ENOMEM;
		json_decref(top);
	} else {
		json_decref(list);
		json_decref(layers);
		json_decref(foreign);
		n += n_foreign;
		r = n + n_layers
		            ? term_table_put(&t, term_is_tty(1) ? term_tty_size(1).cols : 0, &b)
		            : 0;
		if (n + n_layers == 0)
			(void)fprintf(stderr, "no images\nhint: cloche image build base\n");
	}
	term_table_fini(&t);
	free(v);
	int code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
	buf_fini(&b);
	return code;
}

static bool on_progress(void *arg, const struct image_progress *ip)
{
	char size[TERM_FMT_BYTES];

	term_progress_phase(arg, "%s", ip->text);
	if (ip->bytes)
		term_progress_detail(arg, "%s", term_fmt_size(size, ip->bytes));
	return true;
}

static bool is_recipe(const char *name)
{
	const char *own;

	if (strcmp(name, "minimal") == 0)
		return true;
	for (size_t k = 0; (own = image_recipe_name(k)); k++) {
		if (strcmp(name, own) == 0)
			return true;
	}
	return false;
}

static int build_base(const struct image_opts *io, bool force, struct err *err)
{
	struct term_progress pr;
	struct image img = IMAGE_INIT;
	bool built = false;

	term_progress_init(&pr, 2, NULL, NULL);
	int r = image_build(io, force, on_progress, &pr, &built, err);
	term_progress_end(&pr);
	if (r == 0)
		r = image_open(io, &img, err);
	if (r == 0)
		(void)fprintf(stderr, "image %s %s\n", img.info.id,
		              built ? "is built" : "is up to date");
	image_close(&img);
	return r;
}

/* An agent: the base that its recipe lies over, unless there, and its layers. */
static int build_agent(const struct image_cmd *c, struct image_opts io,
                       const struct state_dirs *dirs, const char *name, struct err *err)
{
	AUTO_FREE char *dir = xasprintf("%s/profiles", dirs->config);
	const struct profile_entry *entry;
	struct profiles ps = { 0 };
	size_t n = 0;
	int r = profiles_load(&ps, dir, config_agents(&c->c), "config.yaml", err);

	if (r == 0 && !profiles_find(&ps, name)) { /* neither: the recipes are named */
		profiles_fini(&ps);
		return build_base(&io, c->force, err);
	}
	if (r == 0)
		r = profiles_get(&ps, name, &entry, err);
	if (r == 0 && !layers_wanted(entry->profile)) {
		r = err_set(err, -ENOTSUP, "there is nothing to build for %s", entry->name);
		if (entry->profile->recipe.hint)
			(void)err_hint(err, "%s", entry->profile->recipe.hint);
	}
	if (r == 0) {
		io.name = entry->profile->recipe.over;
		r = build_base(&io, false, err);
	}
	if (r == 0)
		r = layers_build(entry->profile, dirs, c->force, false, &n, err);
	if (r == 0)
		(void)fprintf(stderr, "the layer of %s %s\n", entry->name,
		              n ? "is built" : "is up to date");
	profiles_fini(&ps);
	return r;
}

static int verify(const struct image_opts *io, const struct layer_opts *lo,
                  const struct pull_opts *po, const char *name, struct err *err)
{
	struct layer_info *v = NULL;
	char digest[REF_DIGEST_BYTES];
	size_t n = 0;

	if (name && !is_recipe(name) && pull_find(po, name, digest, err) == 0) {
		int x = pull_check(po, digest, err);
		if (x == 0)
			(void)fprintf(stderr, "the image is intact\n");
		return x;
	}
	*err = (struct err){ 0 };
	int r = name ? layer_verify(lo, name, err) : layer_list(lo, &v, &n, err);

	if (r == -ENOENT || (!name && r == 0)) {
		*err = (struct err){ 0 };
		r = image_verify(io, err);
	}
	for (size_t i = 0; i < n && r == 0; i++)
		r = layer_verify(lo, v[i].id, err);
	free(v);
	if (r == 0 && n)
		(void)fprintf(stderr, "the image and %zu layer%s are intact\n", n,
		              n > 1 ? "s" : "");
	else if (r == 0)
		(void)fprintf(stderr, "the image is intact\n");
	return r;
}

/* Images of a recipe, or layers of a package, either by id; an image of somebody else. */
static int remove_any(const struct image_opts *io, const struct layer_opts *lo,
                      const struct pull_opts *po, const char *name, struct err *err)
{
	char digest[REF_DIGEST_BYTES];
	size_t gone = 0;
	int layers = layer_rm(lo, name, err);

	if (layers < 0)
		return layers;
	bool recipe = is_recipe(name);
	if (layers == 0 && !recipe && pull_find(po, name, digest, err) == 0) {
		int r = pull_rm(po, digest, err);
		if (r == 0)
			(void)fprintf(stderr, "1 image removed\n");
		return r;
	}
	if (err->code == -EEXIST)
		return err->code;
	*err = (struct err){ 0 };
	int r = image_rm(io, name, &gone, err);
	if (r == -ENOENT && layers)
		r = 0;
	gone += (size_t)layers;
	if (r == 0)
		(void)fprintf(stderr, "%zu image%s removed\n", gone, gone == 1 ? "" : "s");
	return r;
}

int cmd_image(int argc, char **argv)
{
	static const char *const verbs[] = { "build", "ls", "rm", "verify", "pull", "inspect" };
	struct image_cmd c = { 0 };
	struct cli_pull cp = { 0 };
	struct err e = { 0 };
	struct state_dirs dirs = { 0 };
	size_t n = 0;
	int rest, code = CLI_EXIT_REFUSED;
	AUTO_FREE char **words = xcalloc((size_t)argc + 1, sizeof(*words));

	config_init(&c.c);
	if (cli_parse(argc, argv, image_opts_, ARRAY_LEN(image_opts_), on_image_opt, &c, words, &n,
	              &rest, &e) < 0)
		return cli_usage(&e);
	if (n == 0) {
		err_set(&e, -EINVAL, "image build, pull, ls, inspect, rm or verify?");
		return cli_usage(&e);
	}
	if (state_dirs_init(&dirs, true, &e) < 0)
		return cli_fail(&e);
	AUTO_FREE char *file = xasprintf("%s/config.yaml", dirs.config);
	AUTO_FREE char *lock = layers_lock_path(&dirs);
	struct layer_opts lo = { .lock_path = lock };
	if (config_load(&c.c, file, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	cli_pull_init(&cp, &c.c, &dirs, true);
	struct image_opts io = { .name = n > 1 ? words[1] : NULL,
		                 .suite = c.suite ? c.suite : c.c.image_suite,
		                 .mirror = c.mirror ? c.mirror : c.c.image_mirror };
	if (strcmp(words[0], "ls") == 0 && n == 1) {
		io.name = NULL;
		code = image_ls(&c, &io, &lo, &cp.o, &e);
	} else if (strcmp(words[0], "pull") == 0 && n == 2) {
		code = cli_image_pull(&c.c, &dirs, words[1], c.json, c.quiet);
	} else if (strcmp(words[0], "inspect") == 0 && n == 2) {
		code = cli_image_inspect(&c.c, &dirs, words[1], c.json);
	} else if (strcmp(words[0], "build") == 0 && n <= 2) {
		bool agent = n == 2 && !is_recipe(words[1]);
		code = (agent ? build_agent(&c, io, &dirs, words[1], &e)
		              : build_base(&io, c.force, &e)) < 0
		               ? cli_fail(&e)
		               : 0;
	} else if (strcmp(words[0], "rm") == 0 && n == 2) {
		code = remove_any(&io, &lo, &cp.o, words[1], &e) < 0 ? cli_fail(&e) : 0;
	} else if (strcmp(words[0], "verify") == 0 && n <= 2) {
		code = verify(&io, &lo, &cp.o, n > 1 ? words[1] : NULL, &e) < 0 ? cli_fail(&e) : 0;
	} else {
		const char *near = near_word(words[0], verbs, ARRAY_LEN(verbs));
		err_set(&e, -EINVAL,
		        "image build [NAME], pull REF, ls, inspect REF, rm NAME or verify [NAME]?");
		if (near)
			err_hint(&e, "did you mean image %s?", near);
		code = cli_usage(&e);
	}
out:
	cli_pull_fini(&cp);
	state_dirs_fini(&dirs);
	config_fini(&c.c);
	return code;
}
