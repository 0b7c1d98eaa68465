/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/vis.h"
#include "image/recipe.h"
#include "term/progress.h"
#include "term/prompt.h"
#include "term/screen.h"
#include "term/tty.h"
#include "wire/msg.h"

/* ---- settings ----------------------------------------------------------- */

static void say(void *arg, const char *text)
{
	struct cli_pull *p = arg;

	if (p->progress)
		term_progress_stop(p->progress);
	(void)fprintf(stderr, "cloche: %s\n", text);
}

/* On a terminal only; what it shows was made visible where it came from. */
static bool confirm(void *arg, const char *why)
{
	struct term_prompt t = { .in_fd = 0, .out_fd = 2, .wake_fd = -1 };
	struct cli_pull *p = arg;
	char answer[8];

	if (!term_is_tty(0) || !term_is_tty(2))
		return false;
	if (p->progress)
		term_progress_stop(p->progress);
	AUTO_FREE char *question =
		xasprintf("cloche: %s\nUse it although nobody vouches for it? [y/N] ", why);
	int n = term_prompt_ask(&t, question, true, -1, answer, sizeof(answer));
	return n > 0 && (strcmp(answer, "y") == 0 || strcmp(answer, "yes") == 0);
}

static bool on_progress(void *arg, const struct image_progress *ip)
{
	struct cli_pull *p = arg;

	if (p->progress)
		term_progress_phase(p->progress, "%s", ip->text);
	return true;
}

void cli_pull_init(struct cli_pull *p, const struct config *c, const struct state_dirs *dirs,
                   bool quiet)
{
	*p = (struct cli_pull){ .lock_path = layers_lock_path(dirs) };
	p->o = (struct pull_opts){ .lock_path = p->lock_path,
		                   .verify = (enum pull_verify)c->image_verify,
		                   .cosign_key = c->cosign_key,
		                   .cosign_identity = c->cosign_identity,
		                   .cosign_issuer = c->cosign_issuer,
		                   .confirm = confirm,
		                   .note = quiet ? NULL : say,
		                   .fn = on_progress,
		                   .arg = p };
}

void cli_pull_fini(struct cli_pull *p)
{
	free(p->lock_path);
}

enum pull_policy cli_pull_policy(enum plan_pull p)
{
	static const enum pull_policy by[] = { [PLAN_PULL_MISSING] = PULL_MISSING,
		                               [PLAN_PULL_ALWAYS] = PULL_ALWAYS,
		                               [PLAN_PULL_NEVER] = PULL_NEVER,
		                               [PLAN_PULL_BACKGROUND] = PULL_BACKGROUND };

	return by[p];
}

/* ---- a run -------------------------------------------------------------- */

static int get(struct cli_pull *cp, const struct image_ref *ref, enum pull_policy policy,
               bool quiet, struct pull_image *out, struct err *err)
{
	struct term_progress pr;

	term_progress_init(&pr, quiet ? -1 : 2, NULL, NULL);
	cp->progress = &pr;
	int r = pull_get(&cp->o, ref, policy, out, err);
	cp->progress = NULL;
	term_progress_end(&pr);
	return r;
}

int cli_pull_get(struct plan *p, struct err *err)
{
	struct cli_pull cp;

	cli_pull_init(&cp, &p->config, &p->dirs, false);
	int r = get(&cp, &p->ref, cli_pull_policy(p->pull), p->quiet, &p->oci, err);
	if (r == 0)
		pull_used(&cp.o, &p->oci);
	cli_pull_fini(&cp);
	return r < 0 ? r : cli_pull_check_config(p, err);
}

int cli_pull_check_config(const struct plan *p, struct err *err)
{
	const struct oci_config *c = &p->oci.info.config;

	if (c->user && strlen(c->user) > MSG_USER_MAX)
		return err_set(err, -E2BIG, "USER of the image is longer than %d bytes",
		               MSG_USER_MAX);
	if (c->workdir && c->workdir[0] && (c->workdir[0] != '/' || strlen(c->workdir) >= PATH_MAX))
		return err_set(err, -EINVAL, "WORKDIR of the image is no absolute path");
	return 0;
}

void cli_pull_refresh(const struct plan *p)
{
	extern char **environ;
	AUTO_FREE char *dir = proc_self_dir();
	AUTO_FREE char *path = xasprintf("%s/cloche", dir);
	AUTO_FREE char *log = xasprintf("%s/pull-background.log", p->dirs.logs);
	AUTO_CLOSE int log_fd =
		open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	const char *const argv[] = { "cloche", "image", "pull", "--quiet", p->ref.text, NULL };
	struct proc child = { .pidfd = -1 };
	struct proc_fd fds[] = { { .from = log_fd, .to = 2 } };
	struct proc_spec spec = { .path = path,
		                  .argv = argv,
		                  .envp = (const char *const *)environ,
		                  .fds = fds,
		                  .n_fds = log_fd >= 0 ? 1 : 0,
		                  .keep_on_parent_death = true,
		                  .new_session = true };

	if (proc_spawn(&child, &spec, NULL) == 0)
		auto_close_(&child.pidfd); /* it ends by itself, and nobody waits for it */
}

int cli_pull_argv(const struct plan *p, const char ***out, size_t *out_n, struct err *err)
{
	const struct oci_config *c = &p->oci.info.config;
	const char **all;
	size_t ne = 0, nc = 0, n = 0;

	while (c->entrypoint && c->entrypoint[ne])
		ne++;
	while (c->cmd && c->cmd[nc])
		nc++;
	all = xcalloc(ne + nc + p->n_words + 2, sizeof(*all));
	if (p->exec) {
		all[n++] = p->exec;
		nc = 0; /* CMD is for ENTRYPOINT */
	} else {
		for (size_t i = 0; i < ne; i++)
			all[n++] = c->entrypoint[i];
	}
	for (size_t i = 0; i < nc && !p->has_words; i++)
		all[n++] = c->cmd[i];
	for (size_t i = 0; i < p->n_words; i++)
		all[n++] = p->words[i];
	if (n == 0) {
		free(all);
		err_set(err, -EINVAL, "'%s' has neither ENTRYPOINT nor CMD", ref_short(&p->ref));
		return err_hint(err, "say a command behind --");
	}
	*out = all;
	*out_n = n;
	return 0;
}

/* ---- image pull, image inspect ------------------------------------------ */

static void rfc3339(char dst[32], int64_t s)
{
	time_t t = (time_t)s;
	struct tm tm;

	(void)strftime(dst, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
}

static json_t *list_json(char *const *v)
{
	json_t *list = json_array();

	for (; v && *v; v++)
		(void)json_array_append_new(list, json_string(*v));
	return list;
}

static int put_json(struct buf *b, const struct pull_info *i)
{
	const struct oci_config *c = &i->config;
	json_t *labels = json_object();
	char built[32], used[32], asked[32], hex[HASH_HEX_BYTES];

	rfc3339(built, i->built_s);
	rfc3339(used, i->used_s);
	rfc3339(asked, i->seen_s);
	hash_hex(hex, &i->hash);
	for (size_t k = 0; k < c->n_labels; k++)
		(void)json_object_set_new(labels, c->labels[k].name,
		                          json_string(c->labels[k].value));
	json_t *config =
		json_pack("{ss ss ss ss so so so so}", "user", c->user ? c->user : "", "workdir",
	                  c->workdir ? c->workdir : "", "os", c->os ? c->os : "", "arch",
	                  c->arch ? c->arch : "", "env", list_json(c->env), "entrypoint",
	                  list_json(c->entrypoint), "cmd", list_json(c->cmd), "labels", labels);
	json_t *top =
		json_pack("{si ss so* si ss sI ss ss ss so* so}", "schema", 1, "digest", i->digest,
	                  "ref", i->ref[0] ? json_string(i->ref) : NULL, "more_refs",
	                  (int)i->more_refs, "vouched", pull_vouched_name(i->vouched), "size",
	                  (json_int_t)i->size, "blake2b", hex, "built", built, "last_used", used,
	                  "asked", i->seen_s ? json_string(asked) : NULL, "config", config);
	AUTO_FREE char *s = top ? json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
	json_decref(top);
	return s ? buf_printf(b, "%s\n", s) : -ENOMEM;
}

/* Words of the image, on one line each: "  Cmd: a b". */
static int put_words(struct buf *b, const char *what, char *const *v)
{
	int r = 0;

	if (!v || !*v)
		return 0;
	r = buf_printf(b, "%-12s", what);
	for (size_t i = 0; v[i] && r == 0; i++) {
		AUTO_FREE char *seen = vis_dup(span_str(v[i]));
		r = buf_printf(b, "%s%s", i ? " " : "", seen);
	}
	return r == 0 ? buf_printf(b, "\n") : r;
}

static int put_line(struct buf *b, const char *what, const char *text)
{
	AUTO_FREE char *seen = vis_dup(span_str(text ? text : ""));

	return text && text[0] ? buf_printf(b, "%-12s%s\n", what, seen) : 0;
}

static int put_text(struct buf *b, const struct pull_info *i)
{
	const struct oci_config *c = &i->config;
	char size[TERM_FMT_BYTES], age[TERM_FMT_BYTES], used[TERM_FMT_BYTES];
	int64_t now = time(NULL);

	int r = put_line(b, "image", i->ref[0] ? i->ref : "(no name means it any more)");
	if (r == 0)
		r = buf_printf(b, "digest      %s\nvouched     %s\nsize        %s\n", i->digest,
		               pull_vouched_name(i->vouched), term_fmt_size(size, i->size));
	if (r == 0)
		r = buf_printf(b, "fetched     %s ago, used %s ago\n",
		               term_fmt_age(age, (uint64_t)MAX((int64_t)0, now - i->built_s)),
		               term_fmt_age(used, (uint64_t)MAX((int64_t)0, now - i->used_s)));
	if (r == 0)
		r = put_line(b, "user", c->user);
	if (r == 0)
		r = put_line(b, "workdir", c->workdir);
	if (r == 0)
		r = put_words(b, "entrypoint", c->entrypoint);
	if (r == 0)
		r = put_words(b, "cmd", c->cmd);
	for (size_t k = 0; c->env && c->env[k] && r == 0; k++)
		r = put_line(b, "env", c->env[k]);
	return r;
}

static int print(const struct pull_info *i, bool json)
{
	AUTO_BUF struct buf b = { 0 };
	int r = json ? put_json(&b, i) : put_text(&b, i);

	return cli_print(&b, r < 0 ? CLI_EXIT_REFUSED : 0);
}

static int parse(struct image_ref *ref, const char *name, struct err *err)
{
	char cwd[PATH_MAX];

	return ref_parse(ref, name, getcwd(cwd, sizeof(cwd)) ? cwd : "/", err);
}

int cli_image_pull(const struct config *c, const struct state_dirs *dirs, const char *name,
                   bool json, bool quiet)
{
	struct pull_image img = PULL_IMAGE_INIT;
	struct image_ref ref;
	struct cli_pull cp;
	struct err e = { 0 };

	if (parse(&ref, name, &e) < 0)
		return cli_usage(&e);
	cli_pull_init(&cp, c, dirs, quiet);
	int code = 0, r = get(&cp, &ref, PULL_ALWAYS, quiet, &img, &e);
	if (r == 0) {
		/* the entry of the reference, not only the image */
		struct pull_image named = PULL_IMAGE_INIT;
		if (pull_open(&cp.o, &ref, &named, NULL) == 0) {
			pull_close(&img);
			img = named;
		}
	}
	if (r < 0) {
		code = cli_fail(&e);
	} else if (json) {
		code = print(&img.info, true);
	} else if (!quiet) {
		AUTO_BUF struct buf b = { 0 };
		r = buf_printf(&b, "%s\n", img.info.digest);
		code = cli_print(&b, r < 0 ? CLI_EXIT_REFUSED : 0);
	}
	pull_close(&img);
	cli_pull_fini(&cp);
	return code;
}

int cli_image_inspect(const struct config *c, const struct state_dirs *dirs, const char *name,
                      bool json)
{
	struct pull_info *v = NULL;
	char digest[REF_DIGEST_BYTES];
	struct cli_pull cp;
	struct err e = { 0 };
	size_t n = 0;
	int code = CLI_EXIT_REFUSED;

	cli_pull_init(&cp, c, dirs, true);
	int r = pull_find(&cp.o, name, digest, &e);
	if (r == -ENOENT)
		(void)err_hint(&e,
		               "cloche image ls shows what there is, cloche image pull fetches");
	if (r == 0)
		r = pull_list(&cp.o, &v, &n, &e);
	if (r == 0) {
		r = err_set(&e, -ENOENT, "image '%s' is damaged in the cache", digest);
		for (size_t i = 0; i < n && r < 0; i++) {
			if (strcmp(v[i].digest, digest) != 0)
				continue;
			code = print(&v[i], json);
			r = 0;
		}
	}
	if (r < 0)
		code = cli_fail(&e);
	for (size_t i = 0; i < n; i++)
		pull_info_fini(&v[i]);
	free(v);
	cli_pull_fini(&cp);
	return code;
}
