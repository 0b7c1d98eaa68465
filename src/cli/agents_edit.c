/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche agents`: verbs that make, change, copy and remove profiles of the user's own.
 *
 * What is written is checked first, under the lock of the folder, and replaces a file as a
 * whole. A file that is changed keeps its comments and its order.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/vis.h"
#include "cli/agents.h"
#include "cli/version.h"
#include "config/profile_store.h"
#include "config/yamledit.h"
#include "term/prompt.h"
#include "term/tty.h"

extern char **environ;

static const char *const wrote[] = {
	"Nothing in a project was read or changed.",
	"No value of a variable was read.",
	"config.yaml was not changed.",
	"The file is readable by you alone (0600).",
	NULL,
};
static const char *const removed[] = {
	"Nothing in a project was read or changed.",
	"config.yaml was not changed.",
	"Sandboxes, change sets and logins of the agent stay.",
	NULL,
};

/* ---- init --------------------------------------------------------------- */

static int put_template(struct buf *b, const char *name)
{
	static const char token[] = "AGENT_NAME";
	const char *t = profile_templates[0].text;
	int r = 0;

	for (const char *at; r == 0 && (at = strstr(t, token)); t = at + strlen(token)) {
		r = buf_put(b, t, (size_t)(at - t));
		if (r == 0)
			r = buf_printf(b, "%s", name);
	}
	return r == 0 ? buf_printf(b, "%s", t) : r;
}

int agents_init(struct agents *a)
{
	const char *name = a->n_words ? a->words[0] : "my-agent";
	AUTO_BUF struct buf b = { 0 };
	struct err e = { 0 };
	char seen[100];

	if (!profile_name_ok(name)) {
		(void)err_set(&e, -EINVAL, "'%s' cannot be the name of an agent",
		              vis_str(seen, sizeof(seen), span_str(name)));
		return cli_usage(&e);
	}
	return put_template(&b, name) < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
}

/* ---- what add, import and export share ---------------------------------- */

/* A name that a file may have: no other profile is meant by it. */
static int name_free(const struct agents *a, const char *name, struct err *err)
{
	char seen[100];

	(void)vis_str(seen, sizeof(seen), span_str(name));
	if (!profile_name_ok(name)) {
		(void)err_set(err, -EINVAL, "'%s' cannot be the name of an agent", seen);
		return err_hint(err,
		                "at most %d of a-z, 0-9, '.', '-' and '_'; the first a letter "
		                "or a digit",
		                PROFILE_NAME_MAX);
	}
	const struct profile_entry *e = profiles_find(&a->ps, name);
	if (e && strcmp(e->name, name) != 0)
		return err_set(err, -EEXIST, "'%s' is another name of %s", name, e->name);
	return 0;
}

/* The own file of the agent, read; *out_file NULL when there is none. Names to free(). */
static int own_file(const struct agents *a, const char *name, char **out_file, char **out_text,
                    size_t *out_len, struct err *err)
{
	char **files = NULL;
	size_t n = 0;

	*out_file = *out_text = NULL;
	int r = profiles_files_of(&a->ps, name, &files, &n, err);
	for (size_t i = 0; i + 1 < n; i++)
		free(files[i]);
	if (r == 0 && n) {
		AUTO_CLOSE int fd = open(a->ps.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		*out_file = files[n - 1];
		r = fd < 0 ? err_errno(err, "cannot open '%s'", a->ps.dir)
		           : profile_read_file(fd, *out_file, out_text, out_len, err);
	}
	free(files);
	return r;
}

/* Check a text and put it into the folder; the receipt or a line goes to the user. */
static int store(struct agents *a, struct profile_store *s, const char *file, struct span text,
                 struct agents_write *w, struct err *err)
{
	AUTO_FREE char *path = xasprintf("%s/%s", s->dir, file);
	struct profile *p = NULL;
	int code;

	if (profile_parse(&p, path, text.p, text.len, PROFILE_FILE, err) < 0 ||
	    profile_store_write(s, file, text, err) < 0) {
		profile_free(p);
		return cli_fail(err);
	}
	w->after = text;
	if (a->json) {
		code = agents_print_json(agents_receipt(a, path, true, p, w, NULL, wrote), 0);
	} else {
		char seen[512];
		(void)fprintf(stderr, "%s %s (%s)\ncheck it with: cloche agents doctor %s\n",
		              w->replaced ? "changed" : "wrote",
		              vis_str(seen, sizeof(seen), span_str(path)), w->comments, p->name);
		code = 0;
	}
	const struct profile_entry *was = profiles_find(&a->ps, p->name);
	if (was && !was->path && profile_builtin_text(p->name))
		(void)fprintf(stderr,
		              "cloche: it stands for the built-in profile '%s' from now on\n",
		              p->name);
	profile_free(p);
	return code;
}

/* ---- add ---------------------------------------------------------------- */

struct edit {
	struct buf text;
	bool json; /* the file is JSON and stays it */
	struct err *err;
	int r;
};

static void set(struct edit *e, const char *path_text, const char *value)
{
	AUTO_FREE char *room = xstrdup(path_text);
	const char *path[YAML_PATH_MAX];
	struct buf out = { 0 };
	size_t depth = 0;

	for (char *save = NULL, *p = strtok_r(room, ".", &save); p; p = strtok_r(NULL, ".", &save))
		path[depth++] = p;
	if (e->r == 0)
		e->r = yaml_edit_set(&out, span_of(e->text.p, e->text.len), path, depth, value,
		                     e->err);
	if (e->r == 0) {
		buf_fini(&e->text);
		e->text = out;
	}
}

static int put_value(struct edit *e, struct buf *b, const char *s)
{
	return e->json ? ynode_json_text(b, s) : yaml_put_text(b, s);
}

static void set_text(struct edit *e, const char *path, const char *s)
{
	AUTO_BUF struct buf b = { 0 };

	if (!s || e->r < 0)
		return;
	if (put_value(e, &b, s) < 0 || buf_put(&b, "", 1) < 0)
		e->r = err_set(e->err, -ENOMEM, "no memory");
	else
		set(e, path, (const char *)b.p);
}

static void set_list(struct edit *e, const char *path, const struct agents_texts *t)
{
	AUTO_BUF struct buf b = { 0 };
	int r = buf_put(&b, "[", 1);

	if (t->n == 0 || e->r < 0)
		return;
	for (size_t i = 0; i < t->n && r == 0; i++) {
		r = i ? buf_printf(&b, ", ") : 0;
		if (r == 0)
			r = put_value(e, &b, t->v[i]);
	}
	if (r == 0)
		r = buf_put(&b, "]", 2); /* with its NUL */
	if (r < 0)
		e->r = err_set(e->err, -ENOMEM, "no memory");
	else
		set(e, path, (const char *)b.p);
}

static void apply_options(struct edit *e, const struct agents *a)
{
	set_text(e, "description", a->description);
	set_list(e, "command", &a->command);
	set_text(e, "image", a->image);
	/* sizes with a unit are texts, plain MiB and CPUs are numbers */
	if (a->cpus)
		set(e, "resources.cpus", a->cpus);
	if (a->memory)
		set(e, "resources.memory", a->memory);
	if (a->tmp_size)
		set(e, "resources.tmp_size", a->tmp_size);
	set_text(e, "egress", a->egress);
	set_list(e, "hosts", &a->hosts);
	set_list(e, "env.pass", &a->env);
	set_list(e, "env.required", &a->required);
	if (a->mcp)
		set_text(e, "mcp.mode", "env");
	set_text(e, "mcp.authz", a->authz);
}

/* Options that go into the text as they are must be what they are for. */
static int check_numbers(const struct agents *a, struct err *err)
{
	uint64_t n;

	if (a->cpus && cli_number(a->cpus, 1, 64, "--cpus", &n, err) < 0)
		return -EINVAL;
	if (a->memory && config_size(a->memory, &n) < 0)
		return err_set(err, -EINVAL, "--memory is no size");
	if (a->tmp_size && config_size(a->tmp_size, &n) < 0)
		return err_set(err, -EINVAL, "--tmp-size is no size");
	if (a->authz && !a->mcp)
		return err_set(err, -EINVAL, "--mcp-authz-profile needs --mcp");
	return 0;
}

int agents_add(struct agents *a)
{
	const char *name = a->words[0];
	struct profile_store s = PROFILE_STORE_INIT;
	struct err e = { 0 };
	struct edit ed = { .err = &e };
	struct agents_write w = { .comments = "new" };
	AUTO_FREE char *file = NULL;
	AUTO_FREE char *text = NULL;
	size_t len = 0;
	int code = CLI_EXIT_USAGE;

	if (check_numbers(a, &e) < 0 || name_free(a, name, &e) < 0)
		return cli_usage(&e);
	const struct profile_entry *was = profiles_find(&a->ps, name);
	bool fresh = !was || !was->path;
	if (!a->command.n && fresh) {
		(void)err_set(&e, -EINVAL, "which command? --command PROGRAM [--command WORD]...");
		return cli_usage(&e);
	}
	code = CLI_EXIT_REFUSED;
	if (profile_store_open(&s, a->ps.dir, &e) < 0 ||
	    own_file(a, name, &file, &text, &len, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (!a->force && (file || was)) {
		(void)err_set(&e, -EEXIST, "%s is there already: %s", name,
		              file              ? file
		              : was->configured ? "in config.yaml"
		                                : "it is built in");
		if (file)
			(void)err_hint(&e,
			               "--force changes what the options say, and nothing else");
		else
			(void)err_hint(&e,
			               "agents: in config.yaml changes single keys of it; --force "
			               "makes a profile that stands for it");
		code = cli_fail(&e);
		goto out;
	}
	if (file) {
		w = (struct agents_write){ .replaced = true,
			                   .comments = "kept",
			                   .before = span_of(text, len) };
		ed.json = strlen(file) > 5 && strcmp(file + strlen(file) - 5, ".json") == 0;
		ed.r = buf_put(&ed.text, text, len);
	} else {
		w.created = true;
		file = xasprintf("%s.yaml", name);
		set_text(&ed, "name", name);
	}
	apply_options(&ed, a);
	code = ed.r < 0 ? cli_fail(&e)
	                : store(a, &s, file, span_of(ed.text.p, ed.text.len), &w, &e);
out:
	buf_fini(&ed.text);
	profile_store_close(&s);
	return code;
}

/* ---- import ------------------------------------------------------------- */

static int read_input(const char *word, char **out, size_t *out_len, struct err *err)
{
	char seen[256];

	if (strcmp(word, "-") == 0) {
		if (term_is_tty(0))
			return err_set(err, -EINVAL, "- reads a pipe, not a terminal");
		int r = fd_read_file(0, PROFILE_BYTES_MAX, out, out_len);
		return r < 0 ? err_code(err, r, "cannot read the profile from stdin") : 0;
	}
	int r = profile_read_file(AT_FDCWD, word, out, out_len, err);
	if (r == -ENOENT)
		return err_hint(err,
		                "'%s' is looked for as a file; images cannot be asked for their "
		                "profile in this version",
		                vis_str(seen, sizeof(seen), span_str(word)));
	return r;
}

int agents_import(struct agents *a)
{
	static const char *const name_path[] = { "name" };
	struct profile_store s = PROFILE_STORE_INIT;
	struct err e = { 0 };
	struct buf renamed = { 0 };
	struct agents_write w = { .comments = "verbatim" };
	struct profile *p = NULL;
	char **old = NULL;
	AUTO_FREE char *text = NULL;
	AUTO_FREE char *old_text = NULL;
	AUTO_FREE char *old_file = NULL;
	AUTO_FREE char *file = NULL;
	size_t len = 0, old_len = 0, n_old = 0;
	int code = CLI_EXIT_REFUSED;

	if (read_input(a->words[0], &text, &len, &e) < 0)
		return cli_fail(&e);
	struct span body = span_of(text, len);
	if (a->name) {
		AUTO_BUF struct buf value = { 0 };
		if (yaml_put_text(&value, a->name) < 0 || buf_put(&value, "", 1) < 0 ||
		    yaml_edit_set(&renamed, body, name_path, 1, (const char *)value.p, &e) < 0) {
			(void)err_wrap(&e, "--name");
			return cli_fail(&e);
		}
		body = span_of(renamed.p, renamed.len);
		w.comments = "kept";
	}
	bool from_stdin = strcmp(a->words[0], "-") == 0;
	if (profile_parse(&p, from_stdin ? "stdin" : a->words[0], body.p, body.len, PROFILE_FILE,
	                  &e) < 0 ||
	    name_free(a, p->name, &e) < 0 || profile_store_open(&s, a->ps.dir, &e) < 0 ||
	    profiles_files_of(&a->ps, p->name, &old, &n_old, &e) < 0 ||
	    own_file(a, p->name, &old_file, &old_text, &old_len, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (n_old && !a->force) {
		(void)err_set(&e, -EEXIST, "%s is there already: %s", p->name, old[n_old - 1]);
		(void)err_hint(&e, "--force replaces it, --name gives this one another name");
		code = cli_fail(&e);
		goto out;
	}
	/* the kind of text decides the ending; what declared the name before goes */
	size_t first = 0;
	while (first < body.len && memchr(" \t\r\n", body.p[first], 4))
		first++;
	file = xasprintf("%s.%s", p->name,
	                 first < body.len && body.p[first] == '{' ? "json" : "yaml");
	w.created = n_old == 0;
	w.replaced = n_old != 0;
	if (old_text)
		w.before = span_of(old_text, old_len);
	code = store(a, &s, file, body, &w, &e);
	for (size_t i = 0; i < n_old && code == 0; i++) {
		if (strcmp(old[i], file) != 0 && profile_store_remove(&s, old[i], &e) < 0)
			code = cli_fail(&e);
	}
out:
	for (size_t i = 0; i < n_old; i++)
		free(old[i]);
	free(old);
	profile_free(p);
	buf_fini(&renamed);
	profile_store_close(&s);
	return code;
}

/* ---- export ------------------------------------------------------------- */

static const char header[] = "# Exported by cloche";

/* The text of a profile as it was written; of one that only config.yaml has, as JSON. */
static int text_of(struct agents *a, const struct profile_entry *e, struct buf *b, struct err *err)
{
	AUTO_FREE char *file = NULL;
	AUTO_FREE char *text = NULL;
	const char *builtin = profile_builtin_text(e->name);
	size_t len = 0;

	int r = own_file(a, e->name, &file, &text, &len, err);
	if (r < 0)
		return r;
	if (file)
		return buf_put(b, text, len);
	if (builtin)
		return buf_put(b, builtin, strlen(builtin));
	if (!e->profile)
		return err_set(err, -EINVAL, "%s", e->err.text);
	r = ynode_json(b, e->profile->tree, 0);
	return r == 0 ? buf_put(b, "\n", 1) : r;
}

/* Literal values of an own profile may be secrets: they stay, and their names are told. */
static int strip_values(struct buf *b, const struct profile_entry *e, struct err *err)
{
	const struct profile *p = e->profile;

	for (size_t i = 0; p && i < p->env.set.n; i++) {
		const char *path[] = { "env", "set", p->env.set.v[i].name };
		struct buf out = { 0 };
		if (!p->env.set.v[i].value)
			continue;
		int r = yaml_edit_delete(&out, span_of(b->p, b->len), path, 3, err);
		if (r < 0)
			return r;
		buf_fini(b);
		*b = out;
		if (r == 1)
			(void)fprintf(
				stderr,
				"cloche: the value of %s is left out (--with-values keeps it)\n",
				path[2]);
	}
	return 0;
}

/* The same profile under another name, which its other names must not follow. */
static int rename_text(struct buf *b, const char *name, struct err *err)
{
	static const char *const name_path[] = { "name" }, *const aliases[] = { "aliases" };
	AUTO_BUF struct buf value = { 0 };
	struct buf out = { 0 }, out2 = { 0 };

	if (yaml_put_text(&value, name) < 0 || buf_put(&value, "", 1) < 0)
		return err_set(err, -ENOMEM, "no memory");
	int r = yaml_edit_set(&out, span_of(b->p, b->len), name_path, 1, (const char *)value.p,
	                      err);
	if (r == 0)
		r = yaml_edit_delete(&out2, span_of(out.p, out.len), aliases, 1, err);
	buf_fini(&out);
	if (r < 0)
		return r;
	buf_fini(b);
	*b = out2;
	return 0;
}

static int put_header(struct buf *out, const struct buf *text, const char *name, const char *source)
{
	size_t n = sizeof(header) - 1;
	int r = 0;

	if (!(text->len >= n && memcmp(text->p, header, n) == 0)) {
		AUTO_FREE char *seen = vis_dup(span_str(source));
		r = buf_printf(out,
		               "%s %s: the profile '%s', %s.\n"
		               "# cloche agents import FILE takes it in; docs/profiles.md has the "
		               "keys.\n",
		               header, CLI_VERSION, name, seen);
	}
	return r == 0 ? buf_put(out, text->p, text->len) : r;
}

static int export_to_store(struct agents *a, const char *name, const struct buf *text,
                           struct err *err)
{
	struct profile_store s = PROFILE_STORE_INIT;
	struct agents_write w = { .comments = "kept" };
	AUTO_FREE char *file = NULL;
	AUTO_FREE char *old = NULL;
	size_t len = 0;
	int code;

	if (name_free(a, name, err) < 0)
		return cli_usage(err);
	if (profile_store_open(&s, a->ps.dir, err) < 0 ||
	    own_file(a, name, &file, &old, &len, err) < 0) {
		code = cli_fail(err);
	} else if (file && !a->force) {
		(void)err_set(err, -EEXIST, "%s is there already: %s", name, file);
		(void)err_hint(err, "--force replaces it");
		code = cli_fail(err);
	} else {
		w.created = !file;
		w.replaced = file != NULL;
		if (old)
			w.before = span_of(old, len);
		if (!file)
			file = xasprintf("%s.yaml", name);
		code = store(a, &s, file, span_of(text->p, text->len), &w, err);
	}
	profile_store_close(&s);
	return code;
}

int agents_export(struct agents *a)
{
	struct err e = { 0 };
	const struct profile_entry *entry = agents_entry(a, &e);
	AUTO_BUF struct buf text = { 0 };
	AUTO_BUF struct buf out = { 0 };
	const char *dest = a->n_words > 1 ? a->words[1] : NULL;

	if (!entry)
		return cli_fail(&e);
	if (text_of(a, entry, &text, &e) < 0)
		return cli_fail(&e);
	bool own = entry->path || !profile_builtin_text(entry->name);
	if (entry->configured && profile_builtin_text(entry->name))
		(void)fprintf(stderr, "cloche: what config.yaml says of %s is not in it\n",
		              entry->name);
	if (own && !a->with_values && strip_values(&text, entry, &e) < 0)
		return cli_fail(&e);
	if (dest && strcmp(dest, entry->name) != 0 && rename_text(&text, dest, &e) < 0)
		return cli_fail(&e);
	if (!dest && a->json) {
		struct ynode *tree = NULL;
		int r = ynode_parse(&tree, entry->name, text.p, text.len, &e);
		if (r == 0 && tree)
			r = ynode_json(&out, tree, 0);
		if (r == 0)
			r = buf_put(&out, "\n", 1);
		ynode_free(tree);
		return r < 0 ? cli_fail(&e) : cli_print(&out, 0);
	}
	const char *source = entry->path ? entry->path : own ? a->ps.config : "built in";
	if (put_header(&out, &text, entry->name, source) < 0)
		return CLI_EXIT_REFUSED;
	return dest ? export_to_store(a, dest, &out, &e) : cli_print(&out, 0);
}

/* ---- edit --------------------------------------------------------------- */

/* The user's editor on the file; it may have arguments, so the shell splits it. */
static int run_editor(const char *path, struct err *err)
{
	const char *editor = getenv("VISUAL");
	struct proc p = { .pidfd = -1 };
	int status = 0;

	if (!editor || !editor[0])
		editor = getenv("EDITOR");
	if (!editor || !editor[0])
		editor = "vi";
	AUTO_FREE char *line = xasprintf("exec %s \"$1\"", editor);
	const char *const argv[] = { "sh", "-c", line, "sh", path, NULL };
	struct proc_fd fds[] = { { 0, 0 }, { 1, 1 }, { 2, 2 } };
	char cwd[4096];
	struct proc_spec spec = { .path = "/bin/sh",
		                  .argv = argv,
		                  .envp = (const char *const *)environ,
		                  .fds = fds,
		                  .n_fds = ARRAY_LEN(fds),
		                  .cwd = getcwd(cwd, sizeof(cwd)) };
	int r = proc_spawn(&p, &spec, err);
	if (r < 0)
		return r;
	r = proc_wait(&p, -1, &status);
	if (r < 0)
		return err_code(err, r, "cannot wait for the editor");
	if (status != 0)
		return err_set(err, -EIO, "the editor '%s' ended with status %d", editor,
		               proc_shell_status(status));
	return 0;
}

int agents_edit(struct agents *a)
{
	struct err e = { 0 };
	const struct profile_entry *entry = agents_entry(a, &e);
	struct profile *p = NULL;
	AUTO_FREE char *text = NULL;
	size_t len = 0;

	if (!entry)
		return cli_fail(&e);
	if (!entry->path) {
		(void)err_set(&e, -EPERM, "%s is %s", entry->name,
		              profile_builtin_text(entry->name) ? "built in" : "in config.yaml");
		(void)err_hint(&e,
		               "agents: in config.yaml changes single keys; "
		               "cloche agents export %s NEW-NAME makes a copy of yours",
		               entry->name);
		return cli_fail(&e);
	}
	if (run_editor(entry->path, &e) < 0)
		return cli_fail(&e);
	/* what was written stays; a run would refuse it with the same words */
	if (profile_read_file(AT_FDCWD, entry->path, &text, &len, &e) < 0 ||
	    profile_parse(&p, entry->path, text, len, PROFILE_FILE, &e) < 0)
		return cli_fail(&e);
	if (strcmp(p->name, entry->name) != 0)
		(void)fprintf(stderr, "cloche: the agent is called %s now\n", p->name);
	profile_free(p);
	return 0;
}

/* ---- rm ----------------------------------------------------------------- */

int agents_rm(struct agents *a)
{
	struct profile_store s = PROFILE_STORE_INIT;
	struct err e = { 0 };
	const struct profile_entry *entry = agents_entry(a, &e);
	struct agents_write w = { .comments = "removed" };
	char **files = NULL;
	AUTO_FREE char *old_file = NULL;
	AUTO_FREE char *old = NULL;
	size_t n = 0, len = 0;
	int code;

	if (!entry)
		return cli_fail(&e);
	if (!entry->path) {
		(void)err_set(&e, -EPERM, "%s is %s, which agents rm does not change", entry->name,
		              profile_builtin_text(entry->name) ? "built in" : "in config.yaml");
		return cli_fail(&e);
	}
	if (profile_store_open(&s, a->ps.dir, &e) < 0 ||
	    profiles_files_of(&a->ps, entry->name, &files, &n, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (own_file(a, entry->name, &old_file, &old, &len, &e) == 0 && old)
		w.before = span_of(old, len);
	if (!a->yes) {
		struct term_prompt p = { .in_fd = 0, .out_fd = 2, .wake_fd = -1 };
		struct buf q = { 0 };
		char answer[16];
		int r = buf_printf(&q, "remove");
		for (size_t i = 0; i < n && r == 0; i++)
			r = buf_printf(&q, "%s %s/%s", i ? "," : "", s.dir, files[i]);
		if (r == 0)
			r = buf_put(&q, "? [y/N] ", 9); /* with its NUL */
		if (r == 0)
			r = term_prompt_ask(&p, (const char *)q.p, true, -1, answer,
			                    sizeof(answer));
		buf_fini(&q);
		if (r < 0 || (answer[0] != 'y' && answer[0] != 'Y')) {
			(void)fprintf(stderr, "nothing was removed\n");
			code = CLI_EXIT_OPEN;
			goto out;
		}
	}
	code = 0;
	for (size_t i = 0; i < n && code == 0; i++) {
		if (profile_store_remove(&s, files[i], &e) < 0)
			code = cli_fail(&e);
		else if (!a->json)
			(void)fprintf(stderr, "removed %s/%s\n", s.dir, files[i]);
	}
	if (code == 0 && entry->builtin && !a->json)
		(void)fprintf(stderr, "the built-in profile '%s' is used again\n", entry->name);
	if (code == 0 && a->json)
		code = agents_print_json(
			agents_receipt(a, entry->path, true, NULL, &w, NULL, removed), 0);
out:
	for (size_t i = 0; i < n; i++)
		free(files[i]);
	free(files);
	profile_store_close(&s);
	return code;
}
