/* SPDX-License-Identifier: Apache-2.0 */
#include "config/profiles.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/near.h"
#include "base/vis.h"

enum { DENIALS_MAX = 2 * PROFILE_LIST_MAX, ALIASES_MAX = 8 };

const char *profile_builtin_text(const char *name)
{
	for (size_t i = 0; i < profile_builtins_n; i++) {
		if (strcmp(profile_builtins[i].name, name) == 0)
			return profile_builtins[i].text;
	}
	return NULL;
}

static void problem(struct profiles *ps, char *text)
{
	ps->problems = xrealloc(ps->problems, (ps->n_problems + 1) * sizeof(*ps->problems));
	ps->problems[ps->n_problems++] = text;
}

static struct profile_entry *by_name(const struct profiles *ps, const char *name)
{
	for (size_t i = 0; i < ps->n; i++) {
		if (strcmp(ps->v[i].name, name) == 0)
			return &ps->v[i];
	}
	return NULL;
}

static struct profile_entry *find(const struct profiles *ps, const char *name)
{
	struct profile_entry *e = by_name(ps, name);

	/* what stands for a built-in profile has its other names, too */
	for (size_t i = 0; i < ps->n && !e; i++) {
		const struct profile *now = ps->v[i].profile, *was = ps->v[i].builtin;
		if ((now && profile_texts_have(&now->aliases, name)) ||
		    (was && profile_texts_have(&was->aliases, name)))
			e = &ps->v[i];
	}
	return e;
}

static struct profile_entry *add_entry(struct profiles *ps, const char *name)
{
	ps->v = xrealloc(ps->v, (ps->n + 1) * sizeof(*ps->v));
	ps->v[ps->n] = (struct profile_entry){ .name = xstrdup(name) };
	return &ps->v[ps->n++];
}

/* What stands there now is replaced; a built-in profile is kept for comparison. */
static void put_profile(struct profile_entry *e, struct profile *p)
{
	if (e->profile && e->profile->from == PROFILE_BUILTIN && !e->builtin)
		e->builtin = e->profile;
	else
		profile_free(e->profile);
	e->profile = p;
}

/* ---- files -------------------------------------------------------------- */

bool profile_file_name(const char *name)
{
	static const char *const ends[] = { ".yaml", ".yml", ".json" };
	size_t n = strlen(name);

	for (size_t i = 0; i < ARRAY_LEN(ends) && name[0] != '.'; i++) {
		size_t k = strlen(ends[i]);
		if (n > k && strcmp(name + n - k, ends[i]) == 0)
			return true;
	}
	return false;
}

int profile_read_file(int dirfd, const char *name, char **out, size_t *out_len, struct err *err)
{
	/* the user's own folder: a link to elsewhere is theirs, a FIFO must not block */
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char seen[256];
	struct stat st;

	(void)vis_str(seen, sizeof(seen), span_str(name));
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, "cannot read the profile '%s'", seen);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "the profile '%s' is not a regular file", seen);
	int r = fd_read_file(fd, PROFILE_BYTES_MAX, out, out_len);
	if (r == -EFBIG)
		return err_set(err, r, "the profile '%s' has more than %d bytes", seen,
		               PROFILE_BYTES_MAX);
	return r < 0 ? err_code(err, r, "cannot read the profile '%s'", seen) : 0;
}

/* The name that a document declares, valid or not; else what its file is called. */
static char *declared_name(const struct ynode *tree, const char *file)
{
	const struct ynode *n = ynode_get(tree, "name");

	if (n && n->kind == YNODE_TEXT && profile_name_ok(n->text))
		return xstrdup(n->text);
	return xstrndup(file, (size_t)(strrchr(file, '.') - file));
}

static void load_file(struct profiles *ps, int dirfd, const char *file)
{
	AUTO_FREE char *path = xasprintf("%s/%s", ps->dir, file);
	AUTO_FREE char *text = NULL;
	const char *const names[PROFILE_SOURCES] = { path, path, path, path };
	struct ynode *tree = NULL;
	struct profile *p = NULL;
	struct err err = { 0 };
	size_t len = 0;

	int r = profile_read_file(dirfd, file, &text, &len, &err);
	if (r == 0)
		r = ynode_parse(&tree, path, text, len, &err);
	AUTO_FREE char *name = declared_name(tree, file);
	if (r == 0) {
		if (tree)
			ynode_set_source(tree, PROFILE_FILE);
		r = profile_decode(&p, tree, names, &err);
	}
	if (r < 0)
		problem(ps, xasprintf("%s", err.text));
	struct profile_entry *e = by_name(ps, name);
	if (!e)
		e = add_entry(ps, name);
	if (e->path)
		problem(ps,
		        xasprintf("'%s' is declared twice, in %s and in %s: the last one is used",
		                  name, e->path, path));
	free(e->path);
	e->path = take_ptr(&path);
	put_profile(e, p);
	e->err = r < 0 ? err : (struct err){ 0 };
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_list(char **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i]);
	free(v);
}

/* The names of what may be profiles, sorted; a missing folder has none. */
static int list_files(const struct profiles *ps, int *out_fd, char ***out, size_t *out_n,
                      struct err *err)
{
	AUTO_CLOSE int dirfd = open(ps->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char **files = NULL;
	size_t n = 0;
	int r = 0;

	if (dirfd < 0)
		return errno == ENOENT
		               ? 0
		               : err_errno(err, "cannot read the profiles in '%s'", ps->dir);
	int list_fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	DIR *d = list_fd >= 0 ? fdopendir(list_fd) : NULL;
	if (!d) {
		auto_close_(&list_fd);
		return err_errno(err, "cannot read the profiles in '%s'", ps->dir);
	}
	for (struct dirent *e; r == 0 && (e = readdir(d));) {
		if (!profile_file_name(e->d_name))
			continue;
		if (n == PROFILES_FILES_MAX) {
			r = err_set(err, -E2BIG, "more than %d profiles in '%s'",
			            PROFILES_FILES_MAX, ps->dir);
			break;
		}
		files = xrealloc(files, (n + 1) * sizeof(*files));
		files[n++] = xstrdup(e->d_name);
	}
	(void)closedir(d); /* only read from */
	if (r < 0) {
		free_list(files, n);
		return r;
	}
	if (n)
		qsort(files, n, sizeof(*files), by_bytes);
	*out_fd = take_fd(&dirfd);
	*out = files;
	*out_n = n;
	return 0;
}

static int load_dir(struct profiles *ps, struct err *err)
{
	AUTO_CLOSE int dirfd = -1;
	char **files = NULL;
	size_t n = 0;

	int r = list_files(ps, &dirfd, &files, &n, err);
	for (size_t i = 0; i < n; i++)
		load_file(ps, dirfd, files[i]);
	free_list(files, n);
	return r;
}

int profiles_files_of(const struct profiles *ps, const char *name, char ***out, size_t *out_n,
                      struct err *err)
{
	AUTO_CLOSE int dirfd = -1;
	char **files = NULL;
	size_t n = 0, kept = 0;

	int r = list_files(ps, &dirfd, &files, &n, err);
	for (size_t i = 0; i < n; i++) {
		AUTO_FREE char *text = NULL;
		struct ynode *tree = NULL;
		size_t len = 0;
		/* what cannot be read goes by its file's name, as when it was loaded */
		if (profile_read_file(dirfd, files[i], &text, &len, NULL) == 0)
			(void)!ynode_parse(&tree, files[i], text, len, NULL);
		AUTO_FREE char *declared = declared_name(tree, files[i]);
		ynode_free(tree);
		if (strcmp(declared, name) == 0)
			files[kept++] = files[i];
		else
			free(files[i]);
	}
	*out = files;
	*out_n = kept;
	return r;
}

/* ---- config.yaml -------------------------------------------------------- */

static struct ynode *name_only(const char *name)
{
	AUTO_FREE char *text = xasprintf("name: %s\n", name);
	struct ynode *tree = NULL;

	if (ynode_parse(&tree, name, text, strlen(text), NULL) < 0)
		return NULL;
	ynode_set_source(tree, PROFILE_CONFIG);
	return tree;
}

/* One entry of `agents:`: laid over the profile of that name, or one of its own. */
static void load_configured(struct profiles *ps, const struct ynode *n)
{
	struct profile_entry *e = find(ps, n->key);
	char seen[100];

	(void)vis_str(seen, sizeof(seen), span_str(n->key));
	if (n->kind == YNODE_NULL)
		return;
	if (!profile_name_ok(n->key)) {
		problem(ps, xasprintf("%s:%u:%u: '%s' cannot be the name of an agent", ps->config,
		                      n->key_at.line, n->key_at.column, seen));
		return;
	}
	if (!e)
		e = add_entry(ps, n->key);
	e->configured = true;
	if (e->err.code)
		return; /* a bad file stays bad, whatever is laid over it */
	const struct ynode *own_name = ynode_get(n, "name");
	const char *const names[PROFILE_SOURCES] = { ps->config, e->name,
		                                     e->path ? e->path : e->name, ps->config };
	struct profile *p = NULL;
	int r;
	if (n->kind != YNODE_MAP || own_name) {
		const struct yaml_mark *m = own_name ? &own_name->key_at : &n->at;
		r = err_set(&e->err, -EINVAL, "%s:%u:%u: 'agents.%s' %s", ps->config, m->line,
		            m->column, seen,
		            own_name ? "has its name already" : "must be a mapping");
	} else {
		struct ynode *base = e->profile ? NULL : name_only(n->key);
		struct ynode *over = ynode_merge(NULL, n); /* a copy to say its source in */
		ynode_set_source(over, PROFILE_CONFIG);
		struct ynode *tree = ynode_merge(e->profile ? e->profile->tree : base, over);
		tree->source = e->profile ? e->profile->tree->source : PROFILE_CONFIG;
		ynode_free(over);
		ynode_free(base);
		r = profile_decode(&p, tree, names, &e->err);
	}
	if (r < 0)
		problem(ps, xasprintf("%s", e->err.text));
	put_profile(e, p);
}

/* ---- all ---------------------------------------------------------------- */

static void check_aliases(struct profiles *ps)
{
	for (size_t i = 0; i < ps->n; i++) {
		const struct profile *p = ps->v[i].profile;
		for (size_t k = 0; p && k < p->aliases.n; k++) {
			const char *a = p->aliases.v[k];
			const struct profile_entry *e = find(ps, a);
			if (e != &ps->v[i])
				problem(ps, xasprintf("'%s' means %s, and is no other name of %s",
				                      a, e->name, ps->v[i].name));
		}
	}
}

static void check_denials(struct profiles *ps)
{
	for (size_t i = 0; i < ps->n; i++) {
		const struct profile_entry *e = &ps->v[i];
		const char *lost[DENIALS_MAX];
		struct buf b = { 0 };
		size_t n = profile_lost_denials(e, lost, ARRAY_LEN(lost));
		for (size_t k = 0; k < n; k++) {
			if (buf_printf(&b, "%s%s", k ? ", " : "", lost[k]) < 0)
				break;
		}
		if (n)
			problem(ps, xasprintf("%s: the built-in profile '%s' denies %.*s, and what "
			                      "stands for it does not",
			                      e->path ? e->path : ps->config, e->name, (int)b.len,
			                      (char *)b.p));
		buf_fini(&b);
	}
}

int profiles_load(struct profiles *ps, const char *dir, const struct ynode *agents,
                  const char *config, struct err *err)
{
	*ps = (struct profiles){ .dir = xstrdup(dir), .config = xstrdup(config) };
	for (size_t i = 0; i < profile_builtins_n; i++) {
		const struct profile_builtin *b = &profile_builtins[i];
		struct profile_entry *e = add_entry(ps, b->name);
		int r = profile_parse(&e->profile, b->name, b->text, strlen(b->text),
		                      PROFILE_BUILTIN, &e->err);
		ASSERT(r == 0); /* our own data; a test reads it, too */
	}
	int r = load_dir(ps, err);
	if (r < 0)
		return r;
	for (const struct ynode *n = agents ? agents->child : NULL; n; n = n->next)
		load_configured(ps, n);
	check_aliases(ps);
	check_denials(ps);
	return 0;
}

void profiles_fini(struct profiles *ps)
{
	for (size_t i = 0; i < ps->n; i++) {
		free(ps->v[i].name);
		free(ps->v[i].path);
		profile_free(ps->v[i].profile);
		profile_free(ps->v[i].builtin);
	}
	for (size_t i = 0; i < ps->n_problems; i++)
		free(ps->problems[i]);
	free(ps->v);
	free(ps->problems);
	free(ps->dir);
	free(ps->config);
	*ps = (struct profiles){ 0 };
}

const struct profile_entry *profiles_find(const struct profiles *ps, const char *name)
{
	return find(ps, name);
}

int profiles_get(const struct profiles *ps, const char *name, const struct profile_entry **out,
                 struct err *err)
{
	const struct profile_entry *e = profiles_find(ps, name);
	char seen[100];

	(void)vis_str(seen, sizeof(seen), span_str(name));
	if (e && e->profile) {
		*out = e;
		return 0;
	}
	if (e) {
		(void)err_set(err, -EINVAL, "agent '%s' is declared, but not valid: %s", seen,
		              e->err.text);
		if (e->err.hint[0])
			return err_hint(err, "%s", e->err.hint);
		return err_hint(err, "cloche agents doctor %s", e->name);
	}
	const char **names = xcalloc(ps->n * (1 + ALIASES_MAX), sizeof(*names));
	char list[ERR_HINT_BYTES - 100] = "";
	size_t len = 0, n = 0;
	for (size_t i = 0; i < ps->n; i++) {
		const struct profile *p = ps->v[i].profile;
		if (!p)
			continue;
		names[n++] = p->name;
		for (size_t k = 0; k < p->aliases.n && k < ALIASES_MAX; k++)
			names[n++] = p->aliases.v[k];
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
			                        len ? ", " : "", p->name);
	}
	const char *near = near_word(name, names, n);
	(void)err_set(err, -ENOENT, "unknown agent '%s'", seen);
	if (near)
		err_hint(err, "did you mean %s? known agents: %s", near, list);
	else
		err_hint(err, "known agents: %s; a project directory comes after the agent's name",
		         list);
	free(names);
	return -ENOENT;
}

const char *profile_source_name(const struct profiles *ps, const struct profile_entry *e,
                                uint8_t source)
{
	if (source == PROFILE_BUILTIN)
		return "built-in";
	return source == PROFILE_FILE && e->path ? e->path : ps->config;
}

size_t profile_lost_denials(const struct profile_entry *e, const char **out, size_t cap)
{
	size_t n = 0;

	if (!e->builtin || !e->profile)
		return 0;
	const struct profile_env *now = &e->profile->env;
	const struct profile_texts *lists[] = { &e->builtin->env.metered, &e->builtin->env.deny };
	for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
		for (size_t i = 0; i < lists[k]->n && n < cap; i++) {
			const char *v = lists[k]->v[i];
			if (!profile_texts_have(&now->metered, v) &&
			    !profile_texts_have(&now->deny, v))
				out[n++] = v;
		}
	}
	return n;
}
