/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs on change sets. What came out of a guest is read and drawn by the
 * caged workers of src/review; here are words, terminal and exit codes.
 */
#include "cli/sets.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "cli/plan.h"
#include "review/review.h"
#include "term/prompt.h"
#include "term/screen.h"
#include "term/tty.h"

enum {
	S_SET = 1,
	S_JSON,
	S_ALL,
	S_IGNORED,
	S_APPLY,
	S_YES,
	S_STAT,
	S_NOCOLOUR,
	S_TO,
	S_HOME,
};

static const struct cli_opt changes_opts[] = {
	{ "change-set", 'c', CLI_VALUE, S_SET, "ID",
	  "this change set, not the one of this project" },
	{ "all", 0, CLI_FLAG, S_ALL, NULL, "list the change sets of every project" },
	{ "json", 0, CLI_FLAG, S_JSON, NULL, "machine-readable output (docs/schemas)" },
};
static const struct cli_opt diff_opts[] = {
	{ "change-set", 'c', CLI_VALUE, S_SET, "ID", "this change set" },
	{ "stat", 0, CLI_FLAG, S_STAT, NULL, "only names and counts of lines" },
	{ "no-colour", 0, CLI_FLAG, S_NOCOLOUR, NULL, "no colour (also NO_COLOR)" },
};
static const struct cli_opt review_opts[] = {
	{ "change-set", 'c', CLI_VALUE, S_SET, "ID", "this change set" },
	{ "to", 0, CLI_VALUE, S_TO, "[NAME=]DIR",
	  "the project, when it was moved, restored or cloned anew" },
	{ "allow-home", 0, CLI_FLAG, S_HOME, NULL, "allow / or your home directory there" },
	{ "json", 0, CLI_FLAG, S_JSON, NULL, "machine-readable result" },
};
static const struct cli_opt apply_opts[] = {
	{ "change-set", 'c', CLI_VALUE, S_SET, "ID", "this change set" },
	{ "all", 0, CLI_FLAG, S_ALL, NULL, "also what was rejected or in conflict before" },
	{ "ignored", 0, CLI_FLAG, S_IGNORED, NULL, "also what .gitignore set aside" },
	{ "to", 0, CLI_VALUE, S_TO, "[NAME=]DIR",
	  "the project, when it was moved, restored or cloned anew" },
	{ "allow-home", 0, CLI_FLAG, S_HOME, NULL, "allow / or your home directory there" },
	{ "json", 0, CLI_FLAG, S_JSON, NULL, "machine-readable result" },
};
static const struct cli_opt discard_opts[] = {
	{ "change-set", 'c', CLI_VALUE, S_SET, "ID", "this change set" },
	{ "yes", 'y', CLI_FLAG, S_YES, NULL, "do not ask" },
};

const struct cli_opt *const sets_opts[] = { changes_opts, diff_opts, review_opts, apply_opts,
	                                    discard_opts };
const size_t sets_n_opts[] = { ARRAY_LEN(changes_opts), ARRAY_LEN(diff_opts),
	                       ARRAY_LEN(review_opts), ARRAY_LEN(apply_opts),
	                       ARRAY_LEN(discard_opts) };

struct verb {
	struct state_dirs dirs;
	struct review_env env;
	int out_fd; /* 1; 2 at the end of a run, whose stdout is the command's */
	const char *set;
	bool json, all, ignored, yes, stat, no_colour, allow_home;
	char *to_words[PLAN_PROJECTS_MAX]; /* as given, cut at the '=' of NAME=DIR */
	struct review_to to[PLAN_PROJECTS_MAX];
	char **words;
	size_t n_words;
	char cwd[PATH_MAX];
	char id[CHANGESET_ID_MAX + 1];
};

static int on_opt(void *arg, int id, const char *value, struct err *err)
{
	struct verb *v = arg;

	switch (id) {
	case S_SET:
		v->set = value;
		break;
	case S_JSON:
		v->json = true;
		break;
	case S_ALL:
		v->all = true;
		break;
	case S_IGNORED:
		v->ignored = true;
		break;
	case S_YES:
		v->yes = true;
		break;
	case S_STAT:
		v->stat = true;
		break;
	case S_NOCOLOUR:
		v->no_colour = true;
		break;
	case S_TO:
		if (v->env.n_to == PLAN_PROJECTS_MAX)
			return err_set(err, -E2BIG, "more than %d projects", PLAN_PROJECTS_MAX);
		v->to_words[v->env.n_to++] = xstrdup(value);
		break;
	case S_HOME:
		v->allow_home = true;
		break;
	default:
		break;
	}
	return 0;
}

static int open_env(struct verb *v, struct err *err)
{
	v->env.changes_fd = v->env.locks_fd = -1;
	int r = state_dirs_init(&v->dirs, true, err);
	if (r < 0)
		return r;
	v->env.changes_fd = open(v->dirs.changes, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE char *locks = xasprintf("%s/locks", v->dirs.state);
	r = path_own_dir(locks, &v->env.locks_fd, err);
	if (r < 0)
		return r;
	if (v->env.changes_fd < 0)
		return err_errno(err, "cannot open '%s'", v->dirs.changes);
	/* a directory that was removed is below no project: -c still names a set */
	if (!getcwd(v->cwd, sizeof(v->cwd)) || v->cwd[0] != '/')
		v->cwd[0] = '\0';
	v->env.cwd = v->cwd;
	return 0;
}

/* --to DIR, or NAME=DIR unless there is a directory of that whole name. */
static int open_to(struct verb *v, struct err *err)
{
	v->env.to = v->to;
	for (size_t i = 0; i < v->env.n_to; i++) {
		struct review_to *to = &v->to[i];
		char *word = v->to_words[i], *eq = strchr(word, '='), real[PATH_MAX];
		struct stat st;

		if (eq && stat(word, &st) < 0) {
			*eq = '\0';
			to->project = word;
			word = eq + 1;
		}
		int fd = plan_open_dir(word, v->allow_home, real, err);
		if (fd < 0)
			return fd;
		to->fd = fd;
		to->path = xstrdup(real);
	}
	return 0;
}

static void close_verb(struct verb *v)
{
	for (size_t i = 0; i < v->env.n_to; i++) {
		auto_close_(&v->to[i].fd);
		free((void *)(uintptr_t)v->to[i].path);
		free(v->to_words[i]);
	}
	auto_close_(&v->env.changes_fd);
	auto_close_(&v->env.locks_fd);
	state_dirs_fini(&v->dirs);
	free(v->words);
}

/* Options and folders. Return: -1 to go on, or the exit code. */
static int begin(struct verb *v, int argc, char **argv, const struct cli_opt *opts, size_t n)
{
	struct err e = { 0 };
	int rest;

	*v = (struct verb){ .env = { .changes_fd = -1, .locks_fd = -1 }, .out_fd = 1 };
	for (size_t i = 0; i < ARRAY_LEN(v->to); i++)
		v->to[i].fd = -1;
	v->words = xcalloc((size_t)argc + 1, sizeof(*v->words));
	if (cli_parse(argc, argv, opts, n, on_opt, v, v->words, &v->n_words, &rest, &e) < 0)
		return cli_usage(&e);
	for (int i = rest; i < argc; i++) /* behind "--": paths that begin with a dash */
		v->words[v->n_words++] = argv[i];
	if (open_env(v, &e) < 0 || open_to(v, &e) < 0)
		return cli_fail(&e);
	return -1;
}

/* Which set is meant. Return: -1 to go on, or the exit code. */
static int find(struct verb *v)
{
	struct changeset_list several = { 0 };
	struct err e = { 0 };
	int r = review_find(&v->env, v->set, v->cwd, v->id, &several, &e);
	if (r == 0)
		return -1;
	int code = cli_fail(&e);
	if (r == -ENOTUNIQ) {
		for (size_t i = 0; i < several.n; i++)
			(void)fprintf(stderr, "  %s\n", several.sets[i].id);
		code = CLI_EXIT_USAGE;
	}
	changeset_list_fini(&several);
	return code;
}

/* A word that is not looked at would be believed to name what is meant. -1 to go on. */
static int no_words(const struct verb *v, const char *verb)
{
	struct err e = { 0 };

	if (v->n_words == 0)
		return -1;
	err_set(&e, -EINVAL, "%s takes no paths and no names", verb);
	err_hint(&e, "a change set is named with -c ID");
	return cli_usage(&e);
}

static int diff_flags(const struct verb *v)
{
	return term_can_colour(v->out_fd) && !v->no_colour ? DIFF_COLOUR : 0;
}

/* The cwd below the project of the set, for PATH arguments; "" elsewhere. */
static const char *cwd_rel(const struct verb *v, const struct review *r)
{
	const struct changeset_meta *m = review_meta(r);

	/* with several projects a path begins with the project's name */
	if (m->n_projects != 1)
		return "";
	ssize_t n = review_project_in(review_place(r, 0), v->cwd);
	return n < 0 || v->cwd[n] == '\0' ? "" : v->cwd + n + 1;
}

/* ---- changes ------------------------------------------------------------ */

static int list_sets(struct verb *v)
{
	static const struct term_col cols[] = {
		{ "CHANGE SET", TERM_LEFT, false }, { "AGENT", TERM_LEFT, false },
		{ "PROJECT", TERM_LEFT, true },     { "AGE", TERM_RIGHT, false },
		{ "PENDING", TERM_RIGHT, false },   { "STATE", TERM_LEFT, false }
	};
	struct changeset_list l = { 0 };
	struct err e = { 0 };
	struct buf b = { 0 };

	if (changeset_list(v->env.changes_fd, &l, &e) < 0)
		return cli_fail(&e);
	int r;
	if (v->json) {
		r = review_json_sets(&b, &l);
	} else {
		struct term_table t;
		time_t now = time(NULL);
		term_table_init(&t, cols, ARRAY_LEN(cols));
		for (size_t i = 0; i < l.n; i++) {
			const struct changeset_meta *it = &l.sets[i];
			char age[TERM_FMT_BYTES], pending[24] = "?";
			if (it->counted)
				(void)snprintf(pending, sizeof(pending), "%u",
				               it->counts.pending + it->counts.conflict);
			const char *row[] = { it->id,
				              it->agent,
				              it->n_projects ? it->projects[0].path : "-",
				              term_fmt_age(age,
				                           (uint64_t)MAX(0, now - it->created_s)),
				              pending,
				              it->closed_s ? "closed" : "open" };
			term_table_row(&t, row);
		}
		r = l.n ? term_table_put(&t, term_is_tty(1) ? term_tty_size(1).cols : 0, &b) : 0;
		term_table_fini(&t);
		if (l.n == 0)
			(void)fprintf(stderr, "no change sets\n");
	}
	changeset_list_fini(&l);
	int code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
	buf_fini(&b);
	return code;
}

int cmd_changes(int argc, char **argv)
{
	struct verb v;
	struct err e = { 0 };
	struct review *r = NULL;
	int code = begin(&v, argc, argv, changes_opts, ARRAY_LEN(changes_opts));

	if (code < 0)
		code = no_words(&v, "changes");
	if (code >= 0)
		goto out;
	if (v.all) {
		code = list_sets(&v);
		goto out;
	}
	int f = review_find(&v.env, v.set, v.cwd, v.id, NULL, &e);
	if (f == -ENOENT && !v.set) {
		if (v.json)
			code = list_sets(&v);
		else
			code = 0, (void)fprintf(stderr, "no pending changes for this project\n");
		goto out;
	}
	if (f == -ENOTUNIQ) {
		(void)cli_fail(&e);
		(void)list_sets(&v);
		code = CLI_EXIT_USAGE;
		goto out;
	}
	if (f < 0 || review_open_readonly(&r, &v.env, v.id, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	code = cli_written(v.json ? review_json_list(1, r) : review_text_list(1, r), 0);
out:
	review_close(r);
	close_verb(&v);
	return code;
}

/* ---- diff --------------------------------------------------------------- */

int cmd_diff(int argc, char **argv)
{
	struct verb v;
	struct err e = { 0 };
	struct review *r = NULL;
	uint32_t *list = NULL;
	size_t n = 0;
	int code = begin(&v, argc, argv, diff_opts, ARRAY_LEN(diff_opts));

	if (code < 0)
		code = find(&v);
	if (code >= 0)
		goto out;
	if (review_open_readonly(&r, &v.env, v.id, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (v.n_words) {
		if (review_match(r, cwd_rel(&v, r), v.words, v.n_words, REVIEW_LOOK, &list, &n,
		                 &e) < 0) {
			code = cli_fail(&e);
			goto out;
		}
	} else {
		n = review_count(r);
		list = xcalloc(n, sizeof(*list));
		for (size_t i = 0; i < n; i++)
			list[i] = (uint32_t)i;
	}
	code = 0;
	for (size_t i = 0; i < n && code == 0; i++) {
		struct buf b = { 0 };
		struct diff_stat st;
		int f = v.stat ? review_text_item(&b, r, list[i])
		               : review_diff(r, list[i], diff_flags(&v), &b, &st, &e);
		code = f < 0 ? (e.code ? cli_fail(&e) : CLI_EXIT_REFUSED) : cli_print(&b, 0);
		buf_fini(&b);
	}
out:
	free(list);
	review_close(r);
	close_verb(&v);
	return code;
}

/* ---- review and apply --------------------------------------------------- */

struct talk {
	struct term_prompt p;
	int out_fd;
};

static int ask(void *arg, const char *prompt, char *dst, size_t cap)
{
	struct talk *t = arg;
	int n = term_prompt_ask(&t->p, prompt, true, -1, dst, MIN(cap, (size_t)TERM_ANSWER_MAX));

	if (n == -ENODATA)
		return 0;
	return n < 0 ? n : 1;
}

static void talk_say(void *arg, const char *text, size_t len)
{
	struct talk *t = arg;

	(void)!fd_write_all(t->out_fd, text, len); /* a closed terminal answers no */
}

static int show_result(const struct verb *v, const struct review *r, struct review_result *res)
{
	int f = v->json ? review_json_result(v->out_fd, r, res)
	                : review_text_result(v->out_fd, r, res);

	return cli_written(f, res->exit_code);
}

/* A reader that left must not end us before what was decided or done is recorded. */
static void keep_pipe(void)
{
	(void)signal(SIGPIPE, SIG_IGN);
}

static int do_review(const struct verb *v)
{
	struct talk t = { .p = { .in_fd = 0, .out_fd = 2, .wake_fd = -1 },
		          .out_fd = v->json ? 2 : v->out_fd };
	struct review_io io = {
		.ask = ask, .say = talk_say, .arg = &t, .diff_flags = diff_flags(v)
	};
	struct review_result res = { 0 };
	struct review *r = NULL;
	struct err e = { 0 };

	if (review_open(&r, &v->env, v->id, &e) < 0)
		return cli_fail(&e);
	int f = review_lines(r, &io, &res, &e);
	int code = f < 0 ? cli_fail(&e) : show_result(v, r, &res);
	review_result_fini(&res);
	review_close(r);
	return code;
}

int cmd_review(int argc, char **argv)
{
	struct verb v;
	int code = begin(&v, argc, argv, review_opts, ARRAY_LEN(review_opts));

	keep_pipe();
	if (code < 0 && v.n_words) {
		struct err e = { 0 };
		err_set(&e, -EINVAL, "review takes no paths");
		err_hint(&e, "cloche diff PATH shows one change, cloche apply PATH applies it");
		code = cli_usage(&e);
	}
	if (code < 0)
		code = find(&v);
	if (code < 0)
		code = do_review(&v);
	close_verb(&v);
	return code;
}

static int do_apply(const struct verb *v, int select)
{
	struct review_result res = { 0 };
	struct review *r = NULL;
	struct err e = { 0 };
	uint32_t *list = NULL, skipped = 0;
	size_t n = 0;
	int code;

	if (review_open(&r, &v->env, v->id, &e) < 0)
		return cli_fail(&e);
	int f;
	if (v->n_words)
		f = review_match(r, cwd_rel(v, r), v->words, v->n_words, select, &list, &n, &e);
	else
		f = review_select(r, select, &list, &n, &skipped);
	if (f == 0)
		f = review_apply(r, list, n, &res, &e);
	if (f < 0) {
		code = e.code ? cli_fail(&e) : CLI_EXIT_REFUSED;
	} else {
		res.skipped_tier1 = skipped;
		code = show_result(v, r, &res);
	}
	free(list);
	review_result_fini(&res);
	review_close(r);
	return code;
}

int cmd_apply(int argc, char **argv)
{
	struct verb v;
	int code = begin(&v, argc, argv, apply_opts, ARRAY_LEN(apply_opts));

	keep_pipe();
	if (code < 0)
		code = find(&v);
	if (code < 0)
		code = do_apply(&v, (v.all ? REVIEW_ALL : REVIEW_AUTO) |
		                            (v.ignored ? REVIEW_IGNORED : 0));
	close_verb(&v);
	return code;
}

int cmd_discard(int argc, char **argv)
{
	struct verb v;
	struct err e = { 0 };
	int code = begin(&v, argc, argv, discard_opts, ARRAY_LEN(discard_opts));

	keep_pipe();
	if (code < 0)
		code = no_words(&v, "discard");
	if (code < 0)
		code = find(&v);
	if (code >= 0)
		goto out;
	if (!v.yes) {
		struct term_prompt p = { .in_fd = 0, .out_fd = 2, .wake_fd = -1 };
		AUTO_FREE char *q =
			xasprintf("discard change set %s with everything in it? [y/N] ", v.id);
		char a[16];
		if (term_prompt_ask(&p, q, true, -1, a, sizeof(a)) < 0 ||
		    (a[0] != 'y' && a[0] != 'Y')) {
			(void)fprintf(stderr, "nothing was discarded\n");
			code = CLI_EXIT_OPEN;
			goto out;
		}
	}
	code = review_discard(&v.env, v.id, &e) < 0 ? cli_fail(&e) : 0;
	if (code == 0)
		(void)fprintf(stderr, "change set %s is gone\n", v.id);
out:
	close_verb(&v);
	return code;
}

/* ---- end of a run ------------------------------------------------------- */

/*
 * The set was written by a process that read what the guest sent. Taken over, it could name
 * another directory as the project, and --apply=auto would write there unseen.
 */
static bool same_projects(const struct changeset_meta *m, const struct client_spec *spec)
{
	struct stat st, want;

	if (m->n_projects != spec->n_projects)
		return false;
	for (uint32_t i = 0; i < m->n_projects; i++) {
		const char *path = m->projects[i].path;
		/* by its numbers, too: a bind mount has two paths */
		if (strcmp(path, spec->projects[i].path) != 0 &&
		    (stat(path, &st) < 0 || fstat(spec->project_fds[i], &want) < 0 ||
		     st.st_dev != want.st_dev || st.st_ino != want.st_ino))
			return false;
	}
	return true;
}

int sets_end_of_run(const struct sets_end *end)
{
	struct verb v = { .env = { .changes_fd = -1, .locks_fd = -1 }, .out_fd = 2 };
	struct err e = { 0 };
	struct review *r = NULL;
	struct buf b = { 0 };
	int code;

	(void)snprintf(v.id, sizeof(v.id), "%s", end->id);
	if (open_env(&v, &e) < 0 || review_open_readonly(&r, &v.env, v.id, &e) < 0) {
		code = cli_fail(&e);
		(void)fprintf(stderr, "hint: the change set is kept: cloche changes -c %s\n",
		              end->id);
		goto out;
	}
	v.env.cwd = NULL; /* the project is where it was, or nowhere */
	if (!same_projects(review_meta(r), end->spec)) {
		err_set(&e, -EPROTO, "change set '%s' names another project than the run's", v.id);
		err_hint(&e, "it is kept, and not to be trusted: cloche changes -c %s", v.id);
		code = cli_fail(&e);
		goto out;
	}
	struct changeset_counts n;
	review_counts(r, &n);
	const struct compare_summary *s = review_summary(r);
	if (n.pending + n.conflict == 0 && s->ignored == 0 && s->git.paths == 0 &&
	    s->refused == 0) {
		/* all that the overlay copied equals the baseline: there is nothing to decide */
		review_close(r);
		r = NULL;
		if (!end->quiet)
			(void)fprintf(stderr, "no changes\n");
		code = review_discard(&v.env, v.id, &e) < 0 ? cli_fail(&e) : 0;
		goto out;
	}
	if (!end->quiet)
		(void)!review_text_list(2, r); /* a closed stderr shows nothing */
	review_close(r);
	r = NULL;
	if (n.pending + n.conflict == 0) {
		code = 0;
	} else if (end->apply == CONFIG_APPLY_AUTO) {
		code = do_apply(&v, REVIEW_AUTO);
	} else if (end->apply == CONFIG_APPLY_ASK && end->tty) {
		code = do_review(&v);
	} else {
		(void)fprintf(stderr,
		              "change set %s\nhint: cloche review -c %s, or cloche apply -c %s\n",
		              v.id, v.id, v.id);
		code = CLI_EXIT_OPEN;
	}
out:
	buf_fini(&b);
	review_close(r);
	close_verb(&v);
	return code;
}
