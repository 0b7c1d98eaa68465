/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "cage/cage.h"
#include "super/spawn.h"

enum {
	O_ACCEL = 1,
	O_CPUS,
	O_MEMORY,
	O_DISK,
	O_TMP,
	O_EXCLUDE,
	O_HEAVY,
	O_APPLY,
	O_REVIEW,
	O_TIMINGS,
	O_TRACE,
	O_DEBUG,
	O_LOG,
	O_READY,
	O_HOME,
	O_IMAGE,
	O_BOOT,
	O_PULL,
	O_NOCACHE,
	O_EXEC,
	O_USER,
	O_KEEP,
	O_JSON,
	O_QUIET,
	O_WORKSPACE,
	O_MODE,
	O_NAME,
	O_YES,
	O_ENV_FORWARD,
	O_ALLOW_ENV,
};

const struct cli_opt plan_opts[] = {
	{ "accel", 0, CLI_VALUE, O_ACCEL, "auto|kvm|tcg",
	  "accelerator; tcg is emulation: slow, weaker, never chosen by itself" },
	{ "cpus", 0, CLI_VALUE, O_CPUS, "N", "virtual CPUs (default 2)" },
	{ "memory", 'm', CLI_VALUE, O_MEMORY, "SIZE", "memory: 4g, 512m, or MiB (default 4g)" },
	{ "disk", 0, CLI_VALUE, O_DISK, "SIZE", "the sandbox's own disk, sparse (default 16g)" },
	{ "tmp-size", 0, CLI_VALUE, O_TMP, "SIZE", "size of /tmp (default half of the memory)" },
	{ "workspace", 'w', CLI_VALUE, O_WORKSPACE, "DIR", "project directory, like a plain DIR" },
	{ "workspace-mode", 0, CLI_VALUE, O_MODE, "snapshot", "only snapshot in this version" },
	{ "exclude", 0, CLI_VALUE, O_EXCLUDE, "PATTERN", "hide what matches (gitignore syntax)" },
	{ "exclude-heavy", 0, CLI_FLAG, O_HEAVY, NULL, "hide node_modules/, target/ and the like" },
	{ "allow-home", 0, CLI_FLAG, O_HOME, NULL, "allow / or your home directory as project" },
	{ "apply", 0, CLI_VALUE, O_APPLY, "ask|auto|none",
	  "what to do with the changes at the end" },
	{ "review", 0, CLI_FLAG, O_REVIEW, NULL, "the same as --apply=ask" },
	{ "exec", 0, CLI_VALUE, O_EXEC, "CMD", "run this instead of the agent's own command" },
	{ "env-forward", 0, CLI_VALUE, O_ENV_FORWARD, "PATTERN",
	  "pass variables of yours: NAME, or PREFIX*" },
	{ "allow-env", 0, CLI_VALUE, O_ALLOW_ENV, "NAME",
	  "pass NAME although it is metered, denied or a reference" },
	{ "user", 0, CLI_VALUE, O_USER, "agent|root", "who runs the command in the guest" },
	{ "image", 0, CLI_VALUE, O_IMAGE, "NAME|REF",
	  "base image (default base), or one of a registry" },
	{ "boot", 0, CLI_VALUE, O_BOOT, "DIR", "vmlinux and modules.cpio of your own" },
	{ "pull", 0, CLI_VALUE, O_PULL, "missing|always|background|never",
	  "when the image is built or fetched" },
	{ "no-image-cache", 0, CLI_FLAG, O_NOCACHE, NULL,
	  "build or fetch the image anew; not with --pull never" },
	NETOPTS_POLICY,
	NETOPTS_PORTS,
	{ "name", 0, CLI_VALUE, O_NAME, "SESSION", "not in this version: named sessions" },
	{ "ready-timeout", 0, CLI_VALUE, O_READY, "SECONDS",
	  "for the boot (10; 120 under emulation)" },
	{ "timings", 0, CLI_FLAG, O_TIMINGS, NULL, "print the time of each phase at the end" },
	{ "trace", 0, CLI_VALUE, O_TRACE, "FILE", "write the phases as spans (JSON)" },
	{ "debug", 0, CLI_FLAG, O_DEBUG, NULL, "log in detail" },
	{ "log-file", 0, CLI_VALUE, O_LOG, "FILE", "log here instead of the state folder" },
	{ "keep", 0, CLI_FLAG, O_KEEP, NULL, "keep the sandbox's folder afterwards" },
	{ "quiet", 'q', CLI_FLAG, O_QUIET, NULL, "no progress, no banner" },
	{ "yes", 'y', CLI_FLAG, O_YES, NULL, "answer yes where a run would ask" },
	{ "json", 0, CLI_FLAG, O_JSON, NULL, "machine-readable output (info)" },
};
const size_t plan_n_opts = ARRAY_LEN(plan_opts);

struct parse {
	struct plan *p;
	bool no_cache, review, heavy_given;
	const char *workspace[PLAN_PROJECTS_MAX];
	size_t n_workspace;
};

static int choice(const char *v, const char *const *list, size_t n, const char *what,
                  struct err *err)
{
	char seen[64];
	struct buf b = { 0 };

	for (size_t i = 0; i < n; i++) {
		if (strcmp(v, list[i]) == 0)
			return (int)i;
	}
	for (size_t i = 0; i < n; i++) {
		if (buf_printf(&b, "%s%s", i ? ", " : "", list[i]) < 0)
			break;
	}
	err_set(err, -EINVAL, "%s must be one of %.*s, not '%s'", what, (int)b.len, (char *)b.p,
	        vis_str(seen, sizeof(seen), span_str(v)));
	buf_fini(&b);
	return -EINVAL;
}

static int size_opt(const char *v, const char *what, uint64_t min, uint64_t max, uint64_t *out,
                    struct err *err)
{
	char seen[64];

	if (config_size(v, out) < 0 || *out < min || *out > max)
		return err_set(err, -EINVAL, "%s: '%s' is not a size from %llu MiB to %llu MiB",
		               what, vis_str(seen, sizeof(seen), span_str(v)),
		               (unsigned long long)(min >> 20), (unsigned long long)(max >> 20));
	return 0;
}

/* --env-forward and --allow-env, the latter without a star: what it lifts is named. */
static int env_opt(struct plan *p, int id, const char *v, struct err *err)
{
	const char *opt = id == O_ALLOW_ENV ? "--allow-env" : "--env-forward";
	const char **list = id == O_ALLOW_ENV ? p->allow_env : p->env_forward;
	size_t *n = id == O_ALLOW_ENV ? &p->n_allow_env : &p->n_env_forward;
	char seen[64];

	if (!profile_pattern_ok(v) || (id == O_ALLOW_ENV && strchr(v, '*')))
		return err_set(err, -EINVAL, "%s: '%s' is not the name of a variable%s", opt,
		               vis_str(seen, sizeof(seen), span_str(v)),
		               id == O_ALLOW_ENV ? "" : " or PREFIX*");
	if (*n == PLAN_ENV_MAX)
		return err_set(err, -E2BIG, "%s stands more than %d times", opt, PLAN_ENV_MAX);
	list[(*n)++] = v;
	return 0;
}

static void set_pull(struct plan *p, const char *name)
{
	p->pull = strcmp(name, "always") == 0       ? PLAN_PULL_ALWAYS
	          : strcmp(name, "never") == 0      ? PLAN_PULL_NEVER
	          : strcmp(name, "background") == 0 ? PLAN_PULL_BACKGROUND
	                                            : PLAN_PULL_MISSING;
}

static int on_opt(void *arg, int id, const char *v, struct err *err)
{
	static const char *const pulls[] = { "missing", "always", "never", "if-not-present",
		                             "background" };
	static const char *const users[] = { "agent", "root" };
	static const char *const modes[] = { "snapshot", "direct" };
	struct parse *ps = arg;
	struct plan *p = ps->p;
	uint64_t n;
	int r;

	if (id >= NETOPT_FIRST)
		return netopts_take(&p->net, id, v, err);
	switch (id) {
	case O_ACCEL:
		if (vmm_accel_parse(v, &p->accel_asked) < 0)
			return err_set(err, -EINVAL, "--accel must be auto, kvm or tcg");
		return 0;
	case O_CPUS:
		r = cli_number(v, 1, VMM_VCPUS_MAX, "--cpus", &n, err);
		if (r == 0)
			p->vcpus = (uint32_t)n;
		return r;
	case O_MEMORY:
		r = size_opt(v, "--memory", (uint64_t)256 << 20, (uint64_t)VMM_MEMORY_MAX_MIB << 20,
		             &n, err);
		if (r == 0)
			p->memory_mib = (uint32_t)(n >> 20);
		return r;
	case O_DISK:
		return size_opt(v, "--disk", IMAGE_SCRATCH_MIN, IMAGE_SCRATCH_MAX, &p->disk_bytes,
		                err);
	case O_TMP:
		return size_opt(v, "--tmp-size", (uint64_t)1 << 20, (uint64_t)64 << 30,
		                &p->tmp_bytes, err);
	case O_EXCLUDE:
		if (!v[0] || p->n_exclude == CONFIG_LIST_MAX)
			return err_set(err, -EINVAL, "--exclude needs a pattern, at most %d times",
			               CONFIG_LIST_MAX);
		p->exclude[p->n_exclude++] = v;
		return 0;
	case O_HEAVY:
		p->config.exclude_heavy = true;
		return 0;
	case O_APPLY:
		p->apply_given = true;
		if (config_apply_parse(v, &p->apply) < 0)
			return err_set(err, -EINVAL, "--apply must be ask, auto or none");
		return 0;
	case O_REVIEW:
		ps->review = true;
		return 0;
	case O_TIMINGS:
		p->timings = true;
		return 0;
	case O_TRACE:
		p->trace_file = v;
		return 0;
	case O_DEBUG:
		p->debug = true;
		return 0;
	case O_LOG:
		p->log_file = v;
		return 0;
	case O_READY:
		r = cli_number(v, 1, 86400, "--ready-timeout", &n, err);
		if (r == 0)
			p->ready_s = (uint32_t)n;
		return r;
	case O_HOME:
		p->allow_home = true;
		return 0;
	case O_IMAGE:
		p->image_name = v;
		p->image_given = true;
		return 0;
	case O_BOOT:
		p->boot_dir = v;
		return 0;
	case O_ENV_FORWARD:
	case O_ALLOW_ENV:
		return env_opt(p, id, v, err);
	case O_PULL:
		r = choice(v, pulls, ARRAY_LEN(pulls), "--pull", err);
		if (r >= 0)
			set_pull(p, pulls[r]);
		return r < 0 ? r : 0;
	case O_NOCACHE:
		ps->no_cache = true;
		return 0;
	case O_EXEC:
		p->exec = v;
		return 0;
	case O_USER:
		r = choice(v, users, ARRAY_LEN(users), "--user", err);
		p->root_user = r == 1;
		return r < 0 ? r : 0;
	case O_KEEP:
		p->keep = true;
		return 0;
	case O_JSON:
		p->json = true;
		return 0;
	case O_QUIET:
		p->quiet = true;
		return 0;
	case O_YES:
		return 0; /* nothing here asks but the review, which it must not answer */
	case O_WORKSPACE:
		if (ps->n_workspace == PLAN_PROJECTS_MAX)
			return err_set(err, -E2BIG, "more than %d projects", PLAN_PROJECTS_MAX);
		ps->workspace[ps->n_workspace++] = v;
		return 0;
	case O_MODE:
		r = choice(v, modes, ARRAY_LEN(modes), "--workspace-mode", err);
		if (r == 1) {
			err_set(err, -ENOTSUP, "direct mode is not available in this version");
			return err_hint(
				err,
				"leave --workspace-mode out: the agent works on a copy-on-write "
				"view, and `cloche apply` writes back what you accept");
		}
		return r < 0 ? r : 0;
	case O_NAME:
		err_set(err, -ENOTSUP, "named sessions are not available in this version");
		return err_hint(err,
		                "leave --name out: the run's changes are kept as a change set");
	default:
		return err_set(err, -EINVAL, "unknown option");
	}
}

/* ---- projects ----------------------------------------------------------- */

static bool same_dir(const struct stat *a, const char *path)
{
	struct stat b;

	return path && path[0] == '/' && stat(path, &b) == 0 && a->st_dev == b.st_dev &&
	       a->st_ino == b.st_ino;
}

/* A .git above the project, so that a hint can say so. */
static char *git_root_above(const char *path)
{
	char p[PATH_MAX];
	struct stat st;

	if (strlen(path) + 8 > sizeof(p))
		return NULL;
	(void)snprintf(p, sizeof(p), "%s/.git", path);
	if (lstat(p, &st) == 0)
		return NULL; /* it is one itself */
	(void)snprintf(p, sizeof(p), "%s", path);
	for (char *s; (s = strrchr(p, '/')) && s != p;) {
		*s = '\0';
		size_t n = strlen(p);
		if (n + 6 > sizeof(p))
			return NULL;
		memcpy(p + n, "/.git", 6);
		bool found = lstat(p, &st) == 0;
		p[n] = '\0';
		if (found)
			return xstrdup(p);
	}
	return NULL;
}

int plan_open_dir(const char *dir, bool allow_home, char *out_path, struct err *err)
{
	char seen[256];
	struct stat st;

	(void)vis_str(seen, sizeof(seen), span_str(dir));
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		int code = -errno;
		if (code == -ENOENT || code == -ENOTDIR)
			return err_set(err, code, "'%s' is not an existing directory", seen);
		return err_code(err, code, "cannot open directory '%s'", seen);
	}
	if (!realpath(dir, out_path) || fstat(fd, &st) < 0)
		return err_errno(err, "cannot open directory '%s'", seen);
	if (!allow_home && (same_dir(&st, "/") || same_dir(&st, getenv("HOME")))) {
		err_set(err, -EPERM, "'%s' is %s, not a project", seen,
		        same_dir(&st, "/") ? "the root of the file system" : "your home directory");
		return err_hint(err, "cd into the project, or give --allow-home if you mean it");
	}
	return take_fd(&fd);
}

static int add_project(struct plan *p, const char *dir, struct err *err)
{
	char real[PATH_MAX], seen[256];

	if (p->n_projects == PLAN_PROJECTS_MAX)
		return err_set(err, -E2BIG, "more than %d projects", PLAN_PROJECTS_MAX);
	(void)vis_str(seen, sizeof(seen), span_str(dir));
	AUTO_CLOSE int fd = plan_open_dir(dir, p->allow_home, real, err);
	if (fd == -ENOENT && strcmp(dir, ".") == 0)
		return err_hint(err, "the current directory was removed: cd to one that exists");
	if (fd == -ENOENT || fd == -ENOTDIR)
		return err_hint(err, "put agent arguments after --");
	if (fd < 0)
		return fd;
	const char *base = strrchr(real, '/') + 1;
	if (base[0] == '\0')
		base = "root";
	char *name = xstrdup(base);
	for (unsigned k = 2;; k++) {
		bool taken = false;
		for (size_t i = 0; i < p->n_projects; i++) {
			taken |= strcmp(p->projects[i].name, name) == 0;
			if (strcmp(p->projects[i].path, real) == 0) {
				free(name);
				return err_set(err, -EEXIST, "project '%s' is named twice", seen);
			}
		}
		if (!taken)
			break;
		free(name);
		name = xasprintf("%.240s-%u", base, k);
	}
	p->projects[p->n_projects].name = name;
	p->projects[p->n_projects].path = xstrdup(real);
	p->project_fds[p->n_projects++] = take_fd(&fd);
	if (p->n_projects == 1)
		p->hint_below_git = git_root_above(real);
	return 0;
}

/* `/work/<name>`, and deeper when the user stands below the project. */
static char *guest_cwd(const struct plan *p)
{
	char cwd[PATH_MAX];

	if (getcwd(cwd, sizeof(cwd))) {
		for (size_t i = 0; i < p->n_projects; i++) {
			size_t n = strlen(p->projects[i].path);
			if (strncmp(cwd, p->projects[i].path, n) == 0 && cwd[n] == '/' && n > 1)
				return xasprintf("/work/%s%s", p->projects[i].name, cwd + n);
		}
	}
	return xasprintf("/work/%s", p->projects[0].name);
}

static int parse_agent(struct plan *p, const char *word, struct err *err)
{
	AUTO_FREE char *dir = xasprintf("%s/profiles", p->dirs.config);
	char seen[128];
	const char *at = strchr(word, '@');

	if (at) {
		err_set(err, -ENOTSUP, "named sessions ('%s') are not available in this version",
		        vis_str(seen, sizeof(seen), span_str(word)));
		return err_hint(err,
		                "leave the @NAME out: the run's changes are kept as a change set");
	}
	int r = profiles_load(&p->profiles, dir, config_agents(&p->config), "config.yaml", err);
	if (r == 0)
		r = profiles_get(&p->profiles, word, &p->entry, err);
	if (r < 0)
		return r;
	p->profile = p->entry->profile;
	(void)snprintf(p->agent, sizeof(p->agent), "%s", p->profile->name);
	return 0;
}

static int parse_ref(struct plan *p, const char *text, struct err *err)
{
	char cwd[PATH_MAX];

	p->has_ref = true;
	return ref_parse(&p->ref, text, getcwd(cwd, sizeof(cwd)) ? cwd : "/", err);
}

/* A profile for one run of an image: what custom agents get, a shell's way with words. */
static int make_adhoc(struct plan *p, const char *word, struct err *err)
{
	char name[PROFILE_NAME_MAX + 1];
	int r = parse_ref(p, word, err);

	if (r < 0)
		return r;
	ref_agent(name, sizeof(name), &p->ref);
	/* "2024" alone would be a number */
	AUTO_FREE char *yaml = xasprintf("name: '%s'\nkind: shell\ncommand: [/bin/sh]\n", name);
	r = profile_parse(&p->adhoc.profile, "run-image", yaml, strlen(yaml), PROFILE_BUILTIN, err);
	if (r < 0)
		return r;
	p->is_adhoc = true;
	p->adhoc.name = xstrdup(name);
	p->entry = &p->adhoc;
	p->profile = p->adhoc.profile;
	(void)snprintf(p->agent, sizeof(p->agent), "%s", name);
	return 0;
}

/* Did the user say this of the agent, in a file of their own or in config.yaml? */
static bool own_word(const struct plan *p, const char *key)
{
	const struct ynode *n = profile_at(p->profile, key);

	return n && n->source != PROFILE_BUILTIN;
}

/* A flag, then the user's word on this agent, on every run, the built-in profile's, the default. */
static uint64_t resource(const struct plan *p, uint64_t flag, const char *key, uint64_t profile,
                         const char *vm_key, uint64_t config)
{
	if (flag)
		return flag;
	if (profile && (own_word(p, key) || !config_has(&p->config, "vm", vm_key)))
		return profile;
	return config;
}

const char *plan_image_name(const struct profile *p)
{
	return p->image ? p->image : p->has_recipe ? p->recipe.over : "base";
}

static void settle(struct plan *p)
{
	const struct profile_resources *pr = &p->profile->resources;
	const struct config *c = &p->config;

	p->vcpus = (uint32_t)resource(p, p->vcpus, "resources.cpus", pr->cpus, "cpus", c->cpus);
	p->memory_mib = (uint32_t)resource(p, p->memory_mib, "resources.memory", pr->memory >> 20,
	                                   "memory", c->memory_mib);
	p->disk_bytes =
		resource(p, p->disk_bytes, "resources.disk", pr->disk, "disk", c->disk_bytes);
	p->tmp_bytes = resource(p, p->tmp_bytes, "resources.tmp_size", pr->tmp_size, "tmp_size",
	                        c->tmp_bytes);
	if (p->tmp_bytes == 0)
		p->tmp_bytes = ((uint64_t)p->memory_mib << 20) / 2;
	netplan_floor(&p->net, p->profile);
	if (!p->image_given)
		p->image_name = plan_image_name(p->profile);
	if (!p->boot_dir)
		p->boot_dir = c->image_boot;
}

/* References are told from the plain names of recipes; their kernel comes from a base of ours. */
static int settle_image(struct plan *p, struct err *err)
{
	int r = 0;

	if (!p->has_ref && ref_looks_so(p->image_name))
		r = parse_ref(p, p->image_name, err);
	if (p->has_ref)
		p->image_name = "base";
	return r;
}

static struct repo_run given_by_flags(const struct plan *p)
{
	const struct netopts *o = &p->net;

	return (struct repo_run){
		.cpus_given = p->vcpus,
		.memory_given = p->memory_mib,
		.disk_given = p->disk_bytes,
		.tmp_given = p->tmp_bytes,
		/* whoever opens a host or a range wants a network */
		.mode_given = o->mode_given || o->hosts.n || o->n_privates || o->n_services ||
		              o->profile_given,
		.egress_given = o->profile_given,
		.apply_given = p->apply_given,
	};
}

/* The projects' own files have the last word, where it is a tighter one. */
static int with_repository(struct plan *p, const struct repo_run *given, struct err *err)
{
	struct repo_run *r = &p->repo.run;
	const char *why;

	*r = *given;
	r->cpus = p->vcpus;
	r->memory_mib = p->memory_mib;
	r->memory_min_mib = (uint32_t)(p->profile->resources.min_memory >> 20);
	r->disk_bytes = p->disk_bytes;
	r->tmp_bytes = p->tmp_bytes;
	r->mode = (unsigned)p->net.mode;
	r->egress = p->net.profile;
	r->host_ca = !p->net.no_host_ca;
	r->publish_localhost = p->net.publish_localhost;
	r->exclude_heavy = p->config.exclude_heavy;
	r->apply = p->apply;
	int e = repoplan_read(&p->repo, p->projects, p->project_fds, p->n_projects, err);
	if (e == 0)
		e = repoplan_apply(&p->repo, err);
	if (e < 0)
		return e;
	p->vcpus = r->cpus;
	p->memory_mib = r->memory_mib;
	p->disk_bytes = r->disk_bytes;
	p->tmp_bytes = MIN(r->tmp_bytes, (uint64_t)r->memory_mib << 20);
	p->net.mode = (enum net_mode)r->mode;
	p->net.profile = r->egress;
	p->net.no_host_ca = !r->host_ca;
	p->net.publish_localhost = r->publish_localhost;
	p->config.exclude_heavy = r->exclude_heavy;
	p->apply = r->apply;
	for (size_t i = 0; i < r->n_exclude; i++)
		p->exclude[p->n_exclude++] = r->exclude[i];
	for (size_t i = 0; i < r->deny.n; i++) {
		char text[HOST_NAME_BYTES + 8];
		(void)!config_add_host(&p->config.net.deny, host_pattern_str(text, &r->deny.v[i]),
		                       &why);
	}
	return 0;
}

int plan_image_ok(const struct plan *p, struct err *err)
{
	const struct profile_recipe *r = &p->profile->recipe;

	if (p->image_given || p->profile->image || p->profile->kind == PROFILE_SHELL ||
	    layers_wanted(p->profile))
		return 0;
	err_set(err, -ENOTSUP, "there is no image with %s in it", p->agent);
	if (r->hint)
		return err_hint(err, "%s", r->hint);
	if (r->commands.n)
		return err_hint(err, "this version cannot run the commands of its recipe: name an "
		                     "image that has it with --image");
	return err_hint(err, "name one with --image, or give the profile an image or a recipe");
}

int plan_parse(struct plan *p, int argc, char **argv, int *out_exit, struct err *err)
{
	struct parse ps = { .p = p };
	AUTO_FREE char **words = xcalloc((size_t)argc + 1, sizeof(*words));
	bool adhoc = strcmp(argv[0], "run-image") == 0;
	size_t n_words = 0;
	int rest = argc;

	*p = (struct plan){ .image_name = "base", .oci = PULL_IMAGE_INIT };
	for (size_t i = 0; i < PLAN_PROJECTS_MAX; i++)
		p->project_fds[i] = -1;
	*out_exit = CLI_EXIT_REFUSED;
	config_init(&p->config);
	int r = state_dirs_init(&p->dirs, false, err);
	if (r < 0)
		return r;
	AUTO_FREE char *file = xasprintf("%s/config.yaml", p->dirs.config);
	r = config_load(&p->config, file, err);
	if (r < 0)
		return r;
	if (vmm_accel_parse(p->config.accel, &p->accel_asked) < 0)
		return err_set(err, -EINVAL, "vm.accel must be auto, kvm or tcg");
	p->apply = p->config.apply;
	set_pull(p, p->config.image_pull);
	*out_exit = CLI_EXIT_USAGE;
	r = cli_parse(argc, argv, plan_opts, plan_n_opts, on_opt, &ps, words, &n_words, &rest, err);
	if (r < 0) {
		*out_exit = r == -ENOTSUP ? CLI_EXIT_REFUSED : CLI_EXIT_USAGE;
		return r;
	}
	r = netopts_settle(&p->net, &p->config.net, err);
	if (r < 0)
		return r;
	if (n_words == 0) {
		err_set(err, -EINVAL, adhoc ? "which image?" : "which agent?");
		return err_hint(err,
		                adhoc ? "cloche run-image REF [DIR] [-- WORDS]"
		                      : "cloche run AGENT [DIR] [-- WORDS]; cloche agents lists "
		                        "them");
	}
	if (adhoc && p->image_given)
		return err_set(err, -EINVAL, "--image is for run: run-image has its image already");
	r = adhoc ? make_adhoc(p, words[0], err) : parse_agent(p, words[0], err);
	if (r < 0) {
		*out_exit = CLI_EXIT_REFUSED;
		return r;
	}
	if (ps.no_cache && p->pull == PLAN_PULL_NEVER)
		return err_set(err, -EINVAL,
		               "--no-image-cache and --pull never contradict each other");
	if (ps.no_cache)
		p->pull = PLAN_PULL_ALWAYS;
	if (ps.review && p->apply_given && p->apply != CONFIG_APPLY_ASK)
		return err_set(err, -EINVAL, "--review and --apply=%s contradict each other",
		               config_apply_name(p->apply));
	if (ps.review) {
		p->apply = CONFIG_APPLY_ASK;
		p->apply_given = true;
	}
	/* configured patterns come first, so that a flag may negate one */
	if (p->config.n_exclude) {
		memmove(p->exclude + p->config.n_exclude, p->exclude,
		        p->n_exclude * sizeof(p->exclude[0]));
		memcpy(p->exclude, p->config.exclude, p->config.n_exclude * sizeof(p->exclude[0]));
		p->n_exclude += p->config.n_exclude;
	}
	struct repo_run given = given_by_flags(p);
	settle(p);
	r = settle_image(p, err);
	if (r < 0)
		return r;
	for (size_t i = 1; i < n_words && r == 0; i++)
		r = add_project(p, words[i], err);
	for (size_t i = 0; i < ps.n_workspace && r == 0; i++)
		r = add_project(p, ps.workspace[i], err);
	if (r == 0 && p->n_projects == 0)
		r = add_project(p, ".", err);
	if (r < 0) {
		*out_exit = r == -ENOENT || r == -ENOTDIR ? CLI_EXIT_USAGE : CLI_EXIT_REFUSED;
		return r;
	}
	r = with_repository(p, &given, err);
	if (r < 0) {
		*out_exit = CLI_EXIT_REFUSED;
		return r;
	}
	p->cwd = guest_cwd(p);
	p->dir_given = n_words > 1 || ps.n_workspace;
	if (rest < argc || (argc > 1 && strcmp(argv[argc - 1], "--") == 0)) {
		p->words = (const char *const *)(argv + rest);
		p->n_words = (size_t)(argc - rest);
		p->has_words = true;
	}
	if (p->has_words && p->n_words == 0 && !p->exec && p->profile->kind == PROFILE_SHELL &&
	    !p->is_adhoc)
		return err_set(err, -EINVAL, "no command behind --");
	*out_exit = 0;
	return 0;
}

void plan_fini(struct plan *p)
{
	for (size_t i = 0; i < p->n_projects; i++) {
		free(p->projects[i].name);
		free(p->projects[i].path);
		auto_close_(&p->project_fds[i]);
	}
	free(p->hint_below_git);
	free(p->cwd);
	layers_close(&p->layers);
	pull_close(&p->oci);
	profile_free(p->adhoc.profile);
	free(p->adhoc.name);
	repoplan_fini(&p->repo);
	netplan_fini(&p->netplan);
	netopts_fini(&p->net);
	env_fini(&p->env);
	profiles_fini(&p->profiles);
	config_fini(&p->config);
	state_dirs_fini(&p->dirs);
	*p = (struct plan){ 0 };
}

int plan_host(struct plan *p, struct err *err)
{
	if (p->accel_asked != VMM_ACCEL_TCG)
		vmm_kvm_probe(&p->kvm, NULL);
	int r = vmm_accel_choose(p->accel_asked, &p->kvm, &p->accel, err);

	p->accel_ok = r == 0;
	if (r < 0 && err)
		p->accel_err = *err;
	return r;
}

void plan_asking(void)
{
	(void)fprintf(stderr, "asking the package tools of this host where they fetch from\n");
}

int plan_network(struct plan *p, const struct registry_list *image, struct err *err)
{
	AUTO_FREE const char **hosts = netplan_providers(p->profile);

	return netplan_init(&p->netplan, &p->net, &p->config.net, p->agent, hosts, p->dirs.cache,
	                    image, p->quiet ? NULL : plan_asking, err);
}

uint32_t plan_ready_ms(const struct plan *p)
{
	if (p->ready_s)
		return p->ready_s * 1000;
	return p->accel == VMM_ACCEL_TCG ? 120 * 1000 : 10 * 1000;
}

int plan_scan(struct plan *p, char **out_report, struct err *err)
{
	AUTO_CLOSE int manifest = fd_memfd("manifest");
	AUTO_CLOSE int meta = fd_memfd("meta");
	AUTO_CLOSE int report = fd_memfd("report");
	AUTO_CLOSE int err_fd = -1;
	struct proc scan = { .pidfd = -1 };
	struct vmm_tail tail = { 0 };
	int status = 0;
	uid_t uid = 0;

	if (geteuid() == 0 && cage_uid_pick((uint32_t)getpid(), &uid) < 0)
		return err_set(err, -ENOENT, "cannot find an unprivileged uid for the scan");
	if (manifest < 0 || meta < 0 || report < 0)
		return err_set(err, -EMFILE, "cannot create temporary files");
	struct spawn_scan sc = { .projects = p->projects,
		                 .fds = p->project_fds,
		                 .n_projects = p->n_projects,
		                 .manifest_fd = manifest,
		                 .meta_fd = meta,
		                 .report_fd = report,
		                 .exclude = p->exclude,
		                 .n_exclude = p->n_exclude,
		                 .heavy = p->config.exclude_heavy,
		                 .dirs = &p->dirs };
	int r = spawn_scan(&scan, &err_fd, &sc, err);
	if (r < 0)
		return r;
	r = proc_wait(&scan, -1, &status);
	if (r < 0)
		return err_code(err, r, "cannot wait for the scan");
	(void)!fd_set_nonblock(err_fd, true);
	(void)vmm_tail_read(&tail, err_fd);
	if (status != 0)
		return err_set(err, -EIO, "cannot read the project: %.*s", (int)tail.len, tail.b);
	if (lseek(report, 0, SEEK_SET) < 0)
		return err_errno(err, "cannot read the scan's report");
	r = fd_read_file(report, 4 * 1024 * 1024, out_report, NULL);
	return r < 0 ? err_code(err, r, "cannot read the scan's report") : 0;
}
