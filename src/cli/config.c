/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche config`: a first file, what holds, and whether a file will do.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/near.h"
#include "base/path.h"
#include "base/vis.h"
#include "cli/cli.h"
#include "cli/repoplan.h"
#include "config/profiles.h"
#include "config/yamlread.h"

enum { C_JSON = 1, C_ORIGIN };

static const struct cli_opt opts[] = {
	{ "json", 0, CLI_FLAG, C_JSON, NULL, "show: machine-readable" },
	{ "origin", 0, CLI_FLAG, C_ORIGIN, NULL, "show: with where each value is from" },
};
const struct cli_opt *const config_opts = opts;
const size_t config_n_opts = ARRAY_LEN(opts);

struct words {
	bool json, origin;
};

static int on_opt(void *arg, int id, const char *v UNUSED, struct err *err UNUSED)
{
	struct words *w = arg;

	w->json |= id == C_JSON;
	w->origin |= id == C_ORIGIN;
	return 0;
}

static int file_of(char **out, struct err *err)
{
	struct state_dirs d;
	int r = state_dirs_init(&d, false, err);

	if (r < 0)
		return r;
	*out = xasprintf("%s/config.yaml", d.config);
	state_dirs_fini(&d);
	return 0;
}

/* ---- init ----------------------------------------------------------------- */

/* Whole or not there, and never over one that is: a hard link does not replace. */
static int write_new(const char *path, const char *text, struct err *err)
{
	AUTO_FREE char *dir = xstrndup(path, (size_t)(strrchr(path, '/') - path));
	AUTO_FREE char *part = xasprintf("%s/.config.yaml.%ld", dir, (long)getpid());
	AUTO_CLOSE int top = -1;
	int r = path_own_dir(dir, &top, err);

	if (r < 0)
		return r;
	AUTO_CLOSE int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_errno(err, "cannot create '%s'", part);
	if (fd_write_all(fd, text, strlen(text)) < 0 || fsync(fd) < 0)
		r = err_errno(err, "cannot write '%s'", part);
	else if (link(part, path) < 0)
		r = errno == EEXIST ? err_set(err, -EEXIST,
		                              "'%s' is there already: it stays as it is", path)
		                    : err_errno(err, "cannot create '%s'", path);
	(void)unlink(part); /* ours; what was linked has its name */
	return r;
}

static int init(const char *path, struct err *err)
{
	int r = write_new(path, config_templates[0].text, err);

	if (r == -EEXIST)
		err_hint(err, "cloche config check reads it, cloche config show prints what holds");
	if (r < 0)
		return cli_fail(err);
	(void)printf("%s\n", path);
	return cli_written(fflush(stdout) == 0 ? 0 : -errno, 0);
}

/* ---- show ----------------------------------------------------------------- */

static int value_put(struct buf *b, const struct ynode *said, const char *by_default)
{
	char text[1024];

	if (said && said->kind == YNODE_TEXT) /* of a form that config_parse() knows */
		return buf_printf(b, "%s", vis_str(text, sizeof(text), span_str(said->text)));
	return said ? ynode_json(b, said, -1) : buf_printf(b, "%s", by_default);
}

static int show_text(struct buf *b, const struct config *c, const char *path, bool origin)
{
	const char *value, *key;
	int r = 0;

	for (size_t i = 0; r == 0 && (key = config_key(i, &value)); i++) {
		const struct ynode *n = config_said(c, key);

		r = buf_printf(b, "%s: ", key);
		if (r == 0)
			r = value_put(b, n, value);
		if (r == 0 && origin && n)
			r = buf_printf(b, "  # %s:%u", path, n->key_at.line);
		else if (r == 0 && origin)
			r = buf_printf(b, "  # default");
		if (r == 0)
			r = buf_printf(b, "\n");
	}
	return r;
}

static int show_json(struct buf *b, const struct config *c, const char *path)
{
	json_t *list = json_array();
	const char *value, *key;

	for (size_t i = 0; list && (key = config_key(i, &value)); i++) {
		const struct ynode *n = config_said(c, key);
		struct buf v = { 0 };
		json_t *j = NULL;

		if (n && ynode_json(&v, n, -1) == 0)
			j = json_loadb((const char *)v.p, v.len, JSON_DECODE_ANY, NULL);
		else if (!n)
			j = json_loads(value, JSON_DECODE_ANY, NULL);
		if (!j) /* a word */
			j = json_string(value);
		(void)json_array_append_new(list, n ? json_pack("{ss so ss si}", "key", key,
		                                                "value", j, "origin", path, "line",
		                                                (int)n->key_at.line)
		                                    : json_pack("{ss so ss}", "key", key, "value",
		                                                j, "origin", "default"));
		buf_fini(&v);
	}
	json_t *top = json_pack("{si so}", "schema", 1, "keys", list);
	AUTO_FREE char *s = top ? json_dumps(top, JSON_INDENT(2)) : NULL;
	json_decref(top);
	return s ? buf_printf(b, "%s\n", s) : -ENOMEM;
}

static int show(const char *path, const struct words *w, struct err *err)
{
	AUTO_FREE char *shown = vis_dup(span_str(path));
	struct buf b = { 0 };
	struct config c;

	config_init(&c);
	int r = config_load(&c, path, err);
	if (r < 0) {
		config_fini(&c);
		return cli_fail(err);
	}
	r = w->json ? show_json(&b, &c, shown) : show_text(&b, &c, shown, w->origin);
	int code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
	buf_fini(&b);
	config_fini(&c);
	return code;
}

/* ---- check ---------------------------------------------------------------- */

/* What a repository brings is read in the cage, here as well. */
static int check_repository(const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *dir = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct state_project p = { .name = dir, .path = dir };
	struct repoplan rp = { 0 };

	if (fd < 0)
		return err_errno(err, "cannot open '%s'", dir);
	if (faccessat(fd, REPO_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, "cannot read '%s'", path);
	int r = repoplan_read(&rp, &p, &fd, 1, err);
	if (r == 0 && rp.warnings.len)
		r = err_set(err, -EINVAL, "%.*s", (int)rp.warnings.len - 1, (char *)rp.warnings.p);
	repoplan_fini(&rp);
	return r;
}

static int check(const char *path, struct err *err)
{
	const char *base = strrchr(path, '/');
	struct profiles profiles = { 0 };
	struct config c;
	int r;

	base = base ? base + 1 : path;
	if (strcmp(base, REPO_FILE) == 0) {
		r = check_repository(path, err);
	} else {
		if (access(path, F_OK) < 0)
			return err_errno(err, "cannot read '%s'", path);
		config_init(&c);
		r = config_load(&c, path, err);
		if (r == 0) /* "agents:" has the keys of profiles */
			r = profiles_load(&profiles, "/nonexistent", config_agents(&c), base, err);
		for (size_t i = 0; r == 0 && i < profiles.n; i++) {
			if (profiles.v[i].err.code) {
				*err = profiles.v[i].err;
				r = err->code;
			}
		}
		profiles_fini(&profiles);
		config_fini(&c);
	}
	return r;
}

static int check_all(char **files, size_t n, const char *own)
{
	int code = 0;

	for (size_t i = 0; i < n || (n == 0 && i == 0); i++) {
		const char *path = n ? files[i] : own;
		AUTO_FREE char *shown = vis_dup(span_str(path));
		struct err e = { 0 };
		int r = n == 0 && access(path, F_OK) < 0 ? -ENOENT : check(path, &e);

		if (n == 0 && r == -ENOENT) {
			(void)printf("%s: not there, so the defaults hold\n", shown);
		} else if (r == 0) {
			(void)printf("%s: ok\n", shown);
		} else {
			(void)cli_fail(&e);
			code = CLI_EXIT_OPEN;
		}
	}
	return cli_written(fflush(stdout) == 0 ? 0 : -errno, code);
}

int cmd_config(int argc, char **argv)
{
	static const char *const verbs[] = { "init", "show", "check", NULL };
	AUTO_FREE char **v = xcalloc((size_t)argc + 1, sizeof(*v));
	AUTO_FREE char *path = NULL;
	struct words w = { 0 };
	struct err e = { 0 };
	char seen[64];
	size_t n = 0;
	int rest;

	if (cli_parse(argc, argv, opts, ARRAY_LEN(opts), on_opt, &w, v, &n, &rest, &e) < 0)
		return cli_usage(&e);
	const char *verb = n ? v[0] : "show";
	bool is_show = strcmp(verb, "show") == 0, is_check = strcmp(verb, "check") == 0;
	if (!is_show && !is_check && strcmp(verb, "init") != 0) {
		const char *near = near_word(verb, verbs, 3);
		err_set(&e, -EINVAL, "cloche config has no '%s'",
		        vis_str(seen, sizeof(seen), span_str(verb)));
		if (near)
			err_hint(&e, "did you mean '%s'?", near);
		return cli_usage(&e);
	}
	if ((!is_check && n > 1) || (!is_show && (w.json || w.origin))) {
		err_set(&e, -EINVAL,
		        n > 1 && !is_check ? "config %s takes no more words"
		                           : "--json and --origin are for show, not %s",
		        verb);
		return cli_usage(&e);
	}
	if (file_of(&path, &e) < 0)
		return cli_fail(&e);
	if (is_show)
		return show(path, &w, &e);
	return is_check ? check_all(v + 1, n - 1, path) : init(path, &e);
}
