/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche recover`: a sandbox that ended without a change set still has its
 * disk. Boot it again, take the changes out.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "cli/cli.h"
#include "cli/plan.h"
#include "cli/run.h"
#include "term/screen.h"
#include "term/tty.h"
#include "wire/change.h"

enum { R_ACCEL = 1, R_LIMIT, R_READY, R_JSON, R_DISCARD, R_DEBUG, R_APPLY };

static const struct cli_opt opts[] = {
	{ "accel", 0, CLI_VALUE, R_ACCEL, "auto|kvm|tcg", "accelerator, as of run" },
	{ "limit", 0, CLI_VALUE, R_LIMIT, "N|SIZE",
	  "the most names, or content (like 64g), that are taken" },
	{ "ready-timeout", 0, CLI_VALUE, R_READY, "SECONDS", "for the boot" },
	{ "apply", 0, CLI_VALUE, R_APPLY, "ask|auto|none", "what to do with the changes" },
	{ "discard", 0, CLI_FLAG, R_DISCARD, NULL, "give the sandbox's disk up instead" },
	{ "json", 0, CLI_FLAG, R_JSON, NULL, "machine-readable list" },
	{ "debug", 0, CLI_FLAG, R_DEBUG, NULL, "log in detail" },
};
const struct cli_opt *const recover_opts = opts;
const size_t recover_n_opts = ARRAY_LEN(opts);

struct recover {
	struct plan p;
	uint64_t limit, content;
	bool json, discard;
};

static int on_opt(void *arg, int id, const char *v, struct err *err)
{
	struct recover *r = arg;
	uint64_t n;
	int e;

	switch (id) {
	case R_ACCEL:
		if (vmm_accel_parse(v, &r->p.accel_asked) < 0)
			return err_set(err, -EINVAL, "--accel must be auto, kvm or tcg");
		return 0;
	case R_LIMIT:
		if (v[0] && v[strspn(v, "0123456789")] == '\0')
			return cli_number(v, 1, CHANGE_RECORDS_MAX, "--limit", &r->limit, err);
		if (config_size(v, &r->content) < 0 || r->content > INT64_MAX)
			return err_set(err, -EINVAL,
			               "--limit takes a number of names up to %d, or a size with "
			               "its unit, like 64g",
			               CHANGE_RECORDS_MAX);
		return 0;
	case R_READY:
		e = cli_number(v, 1, 86400, "--ready-timeout", &n, err);
		if (e == 0)
			r->p.ready_s = (uint32_t)n;
		return e;
	case R_APPLY:
		if (config_apply_parse(v, &r->p.apply) < 0)
			return err_set(err, -EINVAL, "--apply must be ask, auto or none");
		return 0;
	case R_JSON:
		r->json = true;
		return 0;
	case R_DISCARD:
		r->discard = true;
		return 0;
	case R_DEBUG:
		r->p.debug = true;
		return 0;
	default:
		return -EINVAL;
	}
}

static bool can(const struct state_item *it)
{
	return !it->alive && !it->damaged && it->s.phase == STATE_RUNNING;
}

static int list(const struct recover *rc, const struct state_item *v, size_t n)
{
	static const struct term_col cols[] = { { "SANDBOX", TERM_LEFT, false },
		                                { "AGENT", TERM_LEFT, false },
		                                { "PROJECT", TERM_LEFT, true },
		                                { "AGE", TERM_RIGHT, false },
		                                { "WHY", TERM_LEFT, true } };
	struct buf b = { 0 };
	struct term_table t;
	json_t *arr = json_array();
	const char *damaged = NULL;
	size_t shown = 0;
	int r;

	term_table_init(&t, cols, ARRAY_LEN(cols));
	for (size_t i = 0; i < n; i++) {
		char age[TERM_FMT_BYTES];
		bool dead = v[i].damaged && !v[i].alive;
		if (!can(&v[i]) && !dead)
			continue;
		shown++;
		if (dead)
			damaged = v[i].s.id;
		const char *project = dead ? "" : v[i].s.projects[0].path;
		const char *row[] = {
			v[i].s.id, dead ? "?" : v[i].s.agent, dead ? "?" : project,
			dead ? "?"
			     : term_fmt_age(age, (uint64_t)MAX(0, time(NULL) - v[i].s.created_s)),
			v[i].s.failure
		};
		term_table_row(&t, row);
		AUTO_FREE char *id = vis_dup(span_str(v[i].s.id));
		AUTO_FREE char *path = vis_dup(span_str(project));
		AUTO_FREE char *why = vis_dup(span_str(v[i].s.failure));
		(void)json_array_append_new(
			arr, json_pack("{ss ss ss sI ss sb}", "id", id, "agent", v[i].s.agent,
		                       "project", path, "created_s", (json_int_t)v[i].s.created_s,
		                       "why", why, "damaged", dead));
	}
	if (rc->json) {
		json_t *top = json_pack("{si so}", "schema", 1, "sandboxes", arr);
		AUTO_FREE char *s = json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS);
		r = s ? buf_printf(&b, "%s\n", s) : -ENOMEM;
		json_decref(top);
	} else {
		json_decref(arr);
		r = shown ? term_table_put(&t, term_is_tty(1) ? term_tty_size(1).cols : 0, &b) : 0;
		if (!shown)
			(void)fprintf(stderr, "nothing to recover\n");
		else
			(void)fprintf(stderr, "hint: cloche recover SANDBOX\n");
		if (damaged)
			(void)fprintf(stderr,
			              "hint: a damaged one cannot be brought back; its disk is "
			              "%s/%s/scratch.img (ext4), and cloche recover %s --discard "
			              "removes it\n",
			              rc->p.dirs.sandboxes, damaged, damaged);
	}
	term_table_fini(&t);
	int code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, shown && !rc->json ? CLI_EXIT_OPEN : 0);
	buf_fini(&b);
	return code;
}

static int give_up(const struct recover *rc, const char *id, struct err *err)
{
	AUTO_CLOSE int top = open(rc->p.dirs.sandboxes, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int dir =
		top < 0 ? -1 : openat(top, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_CLOSE int lock = -1;

	if (dir < 0)
		return err_errno(err, "cannot open sandbox '%s'", id);
	int r = state_lock(top, dir, &lock);
	if (r < 0)
		return err_code(err, r, "sandbox '%s' is in use", id);
	r = path_remove_tree(top, id);
	return r < 0 ? err_code(err, r, "cannot remove sandbox '%s'", id) : 0;
}

/*
 * An empty folder of the sandbox, in place of a project that is not there: the changes do
 * not need it, only the comparison does.
 */
static int open_nothing(const struct recover *rc, const char *id)
{
	AUTO_FREE char *path = xasprintf("%s/%s/nothing", rc->p.dirs.sandboxes, id);

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -1;
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int bring_back(struct recover *rc, const struct state *s, struct err *err)
{
	struct image img = IMAGE_INIT;
	int fds[MSG_PROJECTS_MAX], log_fd = -1;
	AUTO_FREE char *log = xasprintf("%s/%s.log", rc->p.dirs.logs, s->id);
	size_t n = 0;
	int r;

	for (; n < s->n_projects; n++) {
		fds[n] = open(s->projects[n].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
		if (fds[n] < 0) {
			int e = errno;
			AUTO_FREE char *shown = vis_dup(span_str(s->projects[n].path));
			(void)fprintf(stderr, "cloche: project '%s' cannot be opened: %s\n", shown,
			              strerror(e));
			fds[n] = open_nothing(rc, s->id);
		}
		if (fds[n] < 0) {
			r = err_errno(err, "cannot make a folder in sandbox '%s'", s->id);
			goto out;
		}
	}
	rc->p.pull = PLAN_PULL_MISSING;
	rc->p.image_name = "base";
	r = plan_host(&rc->p, err);
	if (r == 0)
		r = run_get_image(&rc->p, &img, false, err);
	if (r < 0)
		goto out;
	log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct session_opts so = {
		.spec = {
			.id = s->id,
			.agent = s->agent,
			.hostname = "cloche",
			.log_path = log,
			.projects = s->projects,
			.project_fds = fds,
			.n_projects = s->n_projects,
			.kernel_fd = img.kernel_fd,
			.initrd_fd = img.initrd_fd,
			.rootfs_fd = img.rootfs_fd,
			.image = img.info.id,
			.memory_mib = s->memory_mib,
			.vcpus = s->vcpus,
			.ready_ms = plan_ready_ms(&rc->p),
			.disk_bytes = s->scratch_bytes,
			.tmp_bytes = s->tmp_bytes,
			.records_max = rc->limit,
			.content_max = rc->content,
			.accel = rc->p.accel,
			.recover = true,
			.debug = rc->p.debug,
			.log_fd = log_fd,
			.scan_report_fd = -1,
		},
		.t0_ns = run_monotonic_ns(),
	};
	struct session_result res;
	(void)run_session(&rc->p, &so, &res);
	if (res.err.code == 0)
		res.exit_status = 0; /* of the recovery; the command's was lost with the crash */
	r = run_after(&rc->p, &so, &res);
out:
	while (n)
		auto_close_(&fds[--n]);
	auto_close_(&log_fd);
	image_close(&img);
	return r;
}

int cmd_recover(int argc, char **argv)
{
	static struct recover rc;
	struct state_item *v = NULL;
	struct err e = { 0 };
	size_t n = 0, n_words = 0;
	int rest, code = CLI_EXIT_REFUSED;
	AUTO_FREE char **words = xcalloc((size_t)argc + 1, sizeof(*words));
	AUTO_FREE char *file = NULL;

	config_init(&rc.p.config);
	if (state_dirs_init(&rc.p.dirs, true, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	file = xasprintf("%s/config.yaml", rc.p.dirs.config);
	if (config_load(&rc.p.config, file, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	rc.p.apply = rc.p.config.apply;
	if (vmm_accel_parse(rc.p.config.accel, &rc.p.accel_asked) < 0)
		rc.p.accel_asked = VMM_ACCEL_AUTO;
	if (cli_parse(argc, argv, opts, ARRAY_LEN(opts), on_opt, &rc, words, &n_words, &rest, &e) <
	    0) {
		code = cli_usage(&e);
		goto out;
	}
	while (rest < argc) /* behind "--" */
		words[n_words++] = argv[rest++];
	if (n_words > 1 || (rc.discard && n_words == 0)) {
		err_set(&e, -EINVAL, n_words ? "one sandbox at a time" : "which sandbox?");
		err_hint(&e, "cloche recover lists them");
		code = cli_usage(&e);
		goto out;
	}
	if (state_list(&rc.p.dirs, &v, &n, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (n_words == 0) {
		code = list(&rc, v, n);
		goto out;
	}
	for (size_t i = 0; i < n; i++) {
		if (strcmp(v[i].s.id, words[0]) != 0)
			continue;
		if (v[i].damaged && !v[i].alive && !rc.discard) {
			err_set(&e, -EPROTO, "sandbox '%s' cannot be brought back: %s", words[0],
			        v[i].s.failure);
			err_hint(&e,
			         "its disk is %s/%s/scratch.img (ext4), and cloche recover %s "
			         "--discard removes it",
			         rc.p.dirs.sandboxes, words[0], words[0]);
			code = cli_fail(&e);
		} else if (!can(&v[i]) && !(v[i].damaged && !v[i].alive)) {
			err_set(&e, -EBUSY,
			        v[i].alive ? "sandbox '%s' is running"
			                   : "sandbox '%s' holds nothing to recover",
			        words[0]);
			code = cli_fail(&e);
		} else if (rc.discard) {
			code = give_up(&rc, words[0], &e) < 0 ? cli_fail(&e) : 0;
		} else {
			(void)snprintf(rc.p.agent, sizeof(rc.p.agent), "%s", v[i].s.agent);
			int r = bring_back(&rc, &v[i].s, &e);
			code = r < 0 ? cli_fail(&e) : r;
		}
		goto out;
	}
	err_set(&e, -ENOENT, "there is no sandbox '%s' to recover", words[0]);
	err_hint(&e, "cloche recover lists them");
	code = cli_fail(&e);
out:
	state_items_free(v, n);
	state_dirs_fini(&rc.p.dirs);
	config_fini(&rc.p.config);
	return code;
}
