/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche run`: one command in a fresh sandbox, then the way back.
 */
#include "cli/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "cli/cli.h"
#include "cli/env.h"
#include "cli/netreport.h"
#include "cli/plan.h"
#include "cli/pull.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/sets.h"
#include "review/changeset.h"
#include "term/progress.h"
#include "term/screen.h"
#include "term/tty.h"

enum { LOGS_KEPT = 30 };

struct run {
	struct plan p;
	struct image img;
	struct ports ports;
	char label[NETPLAN_LABEL_BYTES]; /* in the shared network */
	int scan_report_fd;
	bool quiet;
	bool refresh; /* --pull background, and the image was there */
	uint64_t t0_ns;
	struct seed_files seeds;
	struct session_file *files;
	size_t n_files;
};

uint64_t run_monotonic_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- image -------------------------------------------------------------- */

static bool on_image_progress(void *arg, const struct image_progress *ip)
{
	char size[TERM_FMT_BYTES];

	term_progress_phase(arg, "building the image: %s", ip->text);
	if (ip->bytes)
		term_progress_detail(arg, "%s", term_fmt_size(size, ip->bytes));
	return true;
}

int run_get_image(const struct plan *p, struct image *img, bool quiet, struct err *err)
{
	struct image_opts io = { .name = p->image_name,
		                 .suite = p->config.image_suite,
		                 .mirror = p->config.image_mirror,
		                 .boot_dir = p->boot_dir };
	struct term_progress pr;

	if (p->pull != PLAN_PULL_ALWAYS) {
		int r = image_open(&io, img, err);
		if (r != -ENOENT)
			return r;
		if (p->pull == PLAN_PULL_NEVER) {
			err_set(err, -ENOENT,
			        "image '%s' is not built, and --pull never forbids it", io.name);
			return err_hint(err, "cloche image build %s", io.name);
		}
	}
	term_progress_init(&pr, quiet ? -1 : 2, NULL, NULL);
	int r = image_build(&io, p->pull == PLAN_PULL_ALWAYS, on_image_progress, &pr, NULL, err);
	term_progress_end(&pr);
	return r < 0 ? r : image_open(&io, img, err);
}

/* ---- banner ------------------------------------------------------------- */

static void banner(void *arg)
{
	struct run *run = arg;
	AUTO_FREE char *text = NULL;
	struct buf b = { 0 };

	if (run->quiet)
		return;
	if (lseek(run->scan_report_fd, 0, SEEK_SET) == 0)
		(void)!fd_read_file(run->scan_report_fd, REPORT_BYTES_MAX, &text,
		                    NULL); /* shown without */
	int r = report_banner(&b, &run->p, text);
	if (r == 0 && run->p.netplan.mode == NET_SHARED)
		r = buf_printf(&b, "        known to the others as %s.cloche\n", run->label);
	if (r == 0 && ports_put(&run->ports, &b) == 0)
		(void)!write(2, b.p, b.len); /* a closed stderr shows nothing */
	buf_fini(&b);
}

/* ---- log ---------------------------------------------------------------- */

static int open_log(const struct plan *p, const char *id, char **out_path, int *out_fd,
                    struct err *err)
{
	AUTO_FREE char *path =
		p->log_file ? xstrdup(p->log_file) : xasprintf("%s/%s.log", p->dirs.logs, id);

	if (!p->log_file)
		state_prune_logs(&p->dirs, LOGS_KEPT);
	int fd = open(path,
	              O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
	              0600);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0) {
		int r = err_errno(err, "cannot write the log '%s'", path);
		auto_close_(&fd);
		return r;
	}
	if (!S_ISREG(st.st_mode) && p->log_file && !S_ISCHR(st.st_mode)) {
		(void)close(fd); /* nothing was written */
		return err_set(err, -EINVAL, "the log '%s' is not a regular file", path);
	}
	if (S_ISREG(st.st_mode))
		(void)fchmod(fd, 0600); /* of an older file; ours in any case */
	*out_path = realpath(path, NULL);
	if (!*out_path)
		*out_path = take_ptr(&path);
	*out_fd = fd;
	return 0;
}

/* A port that its server closed must not stay open here, where nobody accepts. */
static void on_up(void *arg)
{
	struct run *run = arg;

	ports_close(&run->ports);
	/* the machine holds its image: what the cache gets now is for the next run */
	if (run->refresh)
		cli_pull_refresh(&run->p);
}

/* ---- end ---------------------------------------------------------------- */

/* Why a command died, where that helps. */
static void diagnose(const struct session_result *r, const struct plan *p)
{
	char more[TERM_FMT_BYTES];
	uint32_t twice = 2 * p->memory_mib;
	int sig = r->signal ? r->signal : r->exit_status > 128 ? r->exit_status - 128 : 0;

	/* whole GiB where that is no less */
	(void)snprintf(more, sizeof(more), twice % 1024 ? "%um" : "%ug",
	               (unsigned)(twice % 1024 ? twice : twice / 1024));
	if (r->oom)
		(void)fprintf(
			stderr,
			"cloche: the guest ran out of memory (%u MiB)\nhint: try --memory %s\n",
			(unsigned)p->memory_mib, more);
	else if (sig == SIGKILL)
		(void)fprintf(stderr,
		              "cloche: %s was killed, perhaps for want of memory\nhint: try "
		              "--memory %s\n",
		              p->agent, more);
	else if (sig == SIGSEGV || sig == SIGABRT)
		(void)fprintf(stderr, "cloche: %s crashed (%s)\n", p->agent,
		              sig == SIGSEGV ? "segmentation fault" : "abort");
}

int run_session(const struct plan *p, const struct session_opts *so, struct session_result *res)
{
	int r = session_run(so, res);

	if (r < 0) {
		(void)cli_fail(&res->err);
		if (res->recoverable)
			(void)fprintf(stderr,
			              "hint: the sandbox's disk is kept: cloche recover %s\n",
			              so->spec.id);
		(void)fprintf(stderr, "log: %s\n", so->spec.log_path);
	}
	if (p->timings)
		report_timings(so, res);
	if (p->trace_file)
		report_trace(p->trace_file, so, res);
	return r;
}

/* What the network refused; said with --quiet, too: it may be why the command failed. */
static void report_refused(const struct session_opts *so)
{
	AUTO_BUF struct buf b = { 0 };

	if (so->spec.net.mode == NET_OFFLINE || !so->spec.net.events_path)
		return;
	int r = netreport_refused(&b, so->spec.net.events_path);
	if (r < 0)
		(void)fprintf(stderr, "cloche: cannot read what the network refused: %s\n",
		              strerror(-r));
	else
		(void)!fd_write_all(2, b.p, b.len); /* a closed stderr shows nothing */
}

int run_after(const struct plan *p, const struct session_opts *so, const struct session_result *res)
{
	char took[TERM_FMT_BYTES];
	int status = res->exit_status >= 0 ? res->exit_status : CLI_EXIT_REFUSED;
	bool tty = term_is_tty(0) && term_is_tty(2);

	if (res->detached) {
		(void)fprintf(stderr,
		              "cloche: the sandbox finishes in the background: cloche changes\n");
		return status;
	}
	diagnose(res, p);
	report_refused(so);
	if (!p->quiet && res->exit_status >= 0 && tty)
		(void)fprintf(stderr, "%s exited %d after %s\n", p->agent, res->exit_status,
		              term_fmt_duration(took, run_monotonic_ns() - so->t0_ns));
	if (res->err.code)
		return res->exit_status >= 0 && res->staged ? status : CLI_EXIT_REFUSED;
	if (res->set_id[0]) {
		struct sets_end e = {
			.id = res->set_id,
			.spec = &so->spec,
			.apply = p->apply,
			.tty = tty,
			.quiet = p->quiet,
		};
		int r = sets_end_of_run(&e);
		if (r == CLI_EXIT_REFUSED && status == 0)
			return r; /* an error after the command must not look like success */
	} else if (!p->quiet && tty) {
		(void)fprintf(stderr, "no changes\n");
	}
	return status;
}

/* What the monitor is told of the network; *out_fd is the policy, the caller's. */
static int make_net_spec(struct run *run, const char *id, const char *events_path,
                         struct net_spec *out, int *out_fd, struct err *err)
{
	const struct netplan *n = &run->p.netplan;

	int r = ports_open(&run->ports, &run->p.net, id, err);
	if (r < 0)
		return r;
	*out = (struct net_spec){ .mode = n->mode,
		                  .policy_fd = -1,
		                  .events_path = events_path,
		                  .name = netplan_label(run->label, id) };
	memcpy(out->ports, run->ports.v, sizeof(out->ports));
	out->n_ports = run->ports.n;
	for (size_t i = 0; i < n->n_search; i++)
		out->search[out->n_search++] = n->search[i];
	if (n->mode == NET_OFFLINE)
		return 0;
	out->profile = egress_profile_of(n->policy);
	*out_fd = out->policy_fd = net_policy_fd(n->policy);
	return *out_fd < 0 ? err_code(err, *out_fd, "cannot keep the network's policy") : 0;
}

static int refuse_no_sandbox(struct plan *p, struct err *err)
{
	int r = state_dirs_init(&p->dirs, true, err);

	if (r == 0)
		(void)state_sweep(&p->dirs); /* left-overs are no reason not to run */
	return r;
}

/* An agent's own words come first; those of a shell are a command of their own. */
static const char **make_argv(const struct plan *p, size_t *out_n)
{
	const struct profile_texts *own = &p->profile->command;
	const char **all = xcalloc(own->n + p->n_words + 2, sizeof(*all));
	size_t n = 0;

	if (p->exec) {
		all[n++] = p->exec;
	} else if (!p->has_words || p->profile->kind == PROFILE_AGENT) {
		for (size_t i = 0; i < own->n; i++)
			all[n++] = own->v[i];
	}
	for (size_t i = 0; i < p->n_words; i++)
		all[n++] = p->words[i];
	*out_n = n;
	return all;
}

/* What of the profiles and the environment the user should hear before anything starts. */
static void say_first(const struct plan *p)
{
	AUTO_BUF struct buf b = { 0 };
	const char *key;

	for (size_t i = 0; i < p->profiles.n_problems; i++)
		(void)!buf_printf(&b, "cloche: %s\n", p->profiles.problems[i]);
	/* of a built-in profile only `info` says it: nobody here asked for it */
	for (size_t i = 0; (key = profile_without_effect(p->profile, &i));) {
		if (profile_at(p->profile, key)->source != PROFILE_BUILTIN)
			(void)!buf_printf(&b, "cloche: '%s' of %s has no effect yet\n", key,
			                  p->agent);
	}
	(void)!cli_env_warnings(&b, &p->env);
	if (p->profile->resources.min_memory >> 20 > p->memory_mib)
		(void)!buf_printf(&b,
		                  "cloche: %s is known to fail with less than %llu MiB of memory\n",
		                  p->agent,
		                  (unsigned long long)(p->profile->resources.min_memory >> 20));
	(void)!fd_write_all(2, b.p, b.len); /* a closed stderr hears nothing */
}

/* Files for the guest: CAs of this host, and what answers the agent's first questions. */
static int make_files(struct run *run, struct span cas, struct err *err)
{
	const struct plan *p = &run->p;
	const char *home = p->root_user ? "/root" : p->profile->home;

	int r = cli_seeds(&run->seeds, p, err);
	if (r < 0)
		return r;
	run->files = xcalloc(run->seeds.n + 2, sizeof(*run->files));
	if (cas.len) {
		run->files[run->n_files++] =
			(struct session_file){ .path = xstrdup(HOSTCA_GUEST_FILE), .bytes = cas };
		run->files[run->n_files++] = (struct session_file){
			.path = xstrdup(HOSTCA_GUEST_BUNDLE), .bytes = cas, .extend = true
		};
	}
	for (size_t i = 0; i < run->seeds.n; i++) {
		const struct seed_file *f = &run->seeds.v[i];
		run->files[run->n_files++] =
			(struct session_file){ .path = xasprintf("%s/%s", home, f->path),
			                       .bytes = span_of(f->text.p, f->text.len),
			                       .agent = !p->root_user,
			                       .keep = true };
	}
	return 0;
}

static void free_files(struct run *run)
{
	for (size_t i = 0; i < run->n_files; i++)
		free(run->files[i].path);
	free(run->files);
	seed_files_fini(&run->seeds);
}

/* The image of somebody else, and what it says about the run. */
static int get_foreign(struct run *run, const char *id, struct err *err)
{
	struct plan *p = &run->p;
	int r = cli_pull_get(p, err);
	if (r < 0)
		return r;
	run->refresh = p->pull == PLAN_PULL_BACKGROUND && !p->ref.digest[0] && !p->oci.asked;
	const char *dir = p->oci.info.config.workdir;
	if (p->is_adhoc && !p->dir_given && dir && dir[0] && strcmp(dir, "/") != 0) {
		free(p->cwd);
		p->cwd = xstrdup(dir);
	}
	r = cli_env(p, id, err);
	if (r == 0)
		r = env_check(&p->env, p->profile, err);
	if (r == 0)
		say_first(p);
	return r;
}

int cmd_run(int argc, char **argv)
{
	static struct run run;
	struct plan *p = &run.p;
	struct err e = { 0 };
	/* what its package tools fetch from is not known of an image of somebody else */
	static const struct registry_list no_registries;
	char **env_text = NULL;
	AUTO_FREE const char **all = NULL;
	size_t n_env = 0;
	int exit_code = CLI_EXIT_REFUSED, log_fd = -1, policy_fd = -1;
	AUTO_FREE char *log_path = NULL;
	AUTO_FREE char *events_path = NULL;
	struct net_spec net;
	char id[CHANGESET_ID_MAX + 1];

	run.t0_ns = run_monotonic_ns();
	run.img = (struct image)IMAGE_INIT;
	run.scan_report_fd = -1;
	if (plan_parse(p, argc, argv, &exit_code, &e) < 0) {
		(void)cli_fail(&e);
		goto out;
	}
	exit_code = CLI_EXIT_REFUSED;
	run.quiet = p->quiet;
	if (plan_image_ok(p, &e) < 0)
		goto fail;
	changeset_make_id(id, p->projects[0].path);
	if (!p->has_ref) { /* ENV of an image counts too: not before it is there */
		if (cli_env(p, id, &e) < 0 || env_check(&p->env, p->profile, &e) < 0)
			goto fail;
		say_first(p);
	}
	state_dirs_fini(&p->dirs);
	if (refuse_no_sandbox(p, &e) < 0 || plan_host(p, &e) < 0 ||
	    run_get_image(p, &run.img, p->quiet, &e) < 0 ||
	    layers_get(&p->layers, p->profile, &p->dirs, p->pull != PLAN_PULL_NEVER, p->quiet, &e) <
	            0 ||
	    (p->has_ref && get_foreign(&run, id, &e) < 0) ||
	    plan_network(p, p->has_ref ? &no_registries : &run.img.registries, &e) < 0)
		goto fail;
	if (open_log(p, id, &log_path, &log_fd, &e) < 0)
		goto fail;
	run.scan_report_fd = fd_memfd("scan-report");
	if (run.scan_report_fd < 0) {
		err_code(&e, run.scan_report_fd, "cannot create a temporary file");
		goto fail;
	}
	events_path = netreport_events_path(&p->dirs, id);
	if (make_net_spec(&run, id, events_path, &net, &policy_fd, &e) < 0)
		goto fail;
	const struct span cas = span_of(p->netplan.ca.pem.p, p->netplan.ca.pem.len);
	if (make_files(&run, cas, &e) < 0)
		goto fail;
	env_text = env_strings(&p->env, &n_env);
	size_t n = 0;
	if (p->is_adhoc) {
		if (cli_pull_argv(p, &all, &n, &e) < 0)
			goto fail;
	} else {
		all = make_argv(p, &n);
	}
	struct session_opts so = {
		.spec = {
			.id = id,
			.agent = p->agent,
			.hostname = "cloche",
			.log_path = log_path,
			.projects = p->projects,
			.project_fds = p->project_fds,
			.n_projects = p->n_projects,
			.kernel_fd = run.img.kernel_fd,
			.initrd_fd = run.img.initrd_fd,
			.rootfs_fd = p->has_ref ? p->oci.fd : run.img.rootfs_fd,
			.layer_fds = p->layers.fds,
			.n_layers = p->layers.n,
			.image = p->has_ref ? p->oci.info.digest : run.img.info.id,
			.user = p->has_ref ? p->oci.info.config.user : NULL,
			.home = p->is_adhoc ? NULL : p->profile->home,
			.memory_mib = p->memory_mib,
			.vcpus = p->vcpus,
			.ready_ms = plan_ready_ms(p),
			.disk_bytes = p->disk_bytes,
			.tmp_bytes = p->tmp_bytes,
			.accel = p->accel,
			.exclude = p->exclude,
			.n_exclude = p->n_exclude,
			.heavy = p->config.exclude_heavy,
			.sudo = p->root_user || p->profile->sudo,
			.debug = p->debug,
			.keep = p->keep || getenv("CLOCHE_KEEP_SANDBOX"),
			.log_fd = log_fd,
			.scan_report_fd = run.scan_report_fd,
			.net = net,
		},
		.files = run.files,
		.n_files = run.n_files,
		.argv = all,
		.n_argv = n,
		.env = (const char *const *)env_text,
		.n_env = n_env,
		.cwd = p->cwd,
		.root = p->root_user,
		.quiet = p->quiet,
		.timings = p->timings,
		.banner = banner,
		.up = on_up,
		.arg = &run,
		.t0_ns = run.t0_ns,
	};
	struct session_result res;
	(void)run_session(p, &so, &res);
	exit_code = run_after(p, &so, &res);
	goto out;
fail:
	exit_code = cli_fail(&e);
out:
	env_strings_free(env_text);
	free_files(&run);
	auto_close_(&log_fd);
	auto_close_(&policy_fd);
	ports_close(&run.ports);
	auto_close_(&run.scan_report_fd);
	image_close(&run.img);
	plan_fini(p);
	return exit_code;
}
