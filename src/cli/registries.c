/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/registries.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/proc.h"

enum { SCHEMA = 1, ENV_MAX = 256, TIMED_OUT = 124 /* exit status of timeout(1) */ };

#define SYSTEM_PATH "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

/* ---- the cache's form --------------------------------------------------- */

int registries_cache_put(struct buf *out, const char *key, int64_t now_s,
                         const struct registry_list *l)
{
	json_t *list = json_array();

	for (size_t i = 0; i < l->n; i++) {
		char url[URL_ORIGIN_BYTES];
		(void)json_array_append_new(list, json_sprintf("%s %s", l->v[i].tool,
		                                               url_origin_str(url, &l->v[i].at)));
	}
	json_t *top = json_pack("{si ss sI so}", "schema", SCHEMA, "key", key, "asked_s",
	                        (json_int_t)now_s, "registries", list);
	AUTO_FREE char *s = top ? json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
	json_decref(top);
	return s ? buf_printf(out, "%s\n", s) : -ENOMEM;
}

static int take_list(struct registry_list *out, const json_t *list)
{
	AUTO_BUF struct buf text = { 0 };

	if (!json_is_array(list) || json_array_size(list) > REGISTRY_MAX)
		return -EPROTO;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));
		if (!s || strchr(s, '\n'))
			return -EPROTO;
		if (buf_printf(&text, "%s\n", s) < 0)
			return -ENOMEM;
	}
	return registry_parse(out, span_of(text.p, text.len));
}

int registries_cache_parse(struct registry_list *out, struct span text, const char *key,
                           int64_t now_s)
{
	if (text.len > REGISTRIES_BYTES_MAX)
		return -EPROTO;
	json_t *o = json_loadb((const char *)text.p, text.len, JSON_REJECT_DUPLICATES, NULL);
	const char *k = json_string_value(json_object_get(o, "key"));
	json_t *asked = json_object_get(o, "asked_s");
	json_int_t age = now_s - json_integer_value(asked);
	int r = 0;

	if (!k || !json_is_integer(asked) ||
	    json_integer_value(json_object_get(o, "schema")) != SCHEMA)
		r = -EPROTO;
	else if (strcmp(k, key) != 0 || age < 0 || age > REGISTRIES_AGE_S)
		r = -ESTALE;
	if (r == 0)
		r = take_list(out, json_object_get(o, "registries"));
	json_decref(o);
	return r;
}

/* ---- what an answer depends on ------------------------------------------ */

static void add(struct hash_state *h, const char *what, const char *value)
{
	hash_update(h, what, strlen(what) + 1);
	hash_update(h, value, strlen(value) + 1);
}

static void add_file(struct hash_state *h, const char *path)
{
	char text[96] = "-";
	struct stat st;

	if (stat(path, &st) == 0)
		(void)snprintf(text, sizeof(text), "%lld.%09ld %lld", (long long)st.st_mtim.tv_sec,
		               st.st_mtim.tv_nsec, (long long)st.st_size);
	add(h, path, text);
}

static char *expand(const char *path, const char *home)
{
	static const char config[] = "~/.config/";
	const char *xdg = getenv("XDG_CONFIG_HOME");
	size_t n = sizeof(config) - 1;

	if (strncmp(path, config, n) == 0 && xdg && xdg[0] == '/')
		return xasprintf("%s/%s", xdg, path + n);
	return path[0] == '~' ? xasprintf("%s%s", home, path + 1) : xstrdup(path);
}

static bool wanted(const struct registry_probe *p, const char *var)
{
	for (const char *const *e = p->env; *e; e++) {
		size_t n = strlen(*e), name = strcspn(var, "=");
		if ((*e)[n - 1] == '*' ? name >= n - 1 && strncmp(var, *e, n - 1) == 0
		                       : name == n && strncmp(var, *e, n) == 0)
			return true;
	}
	return false;
}

struct env {
	char *v[ENV_MAX + 1];
	size_t n;
};

/* The variables of all probes; a tool must not see the rest, and must not ask the network. */
static void make_env(struct env *e, struct hash_state *h, const char *home)
{
	static const char *const ours[] = { ("PATH=" SYSTEM_PATH), "LC_ALL=C.UTF-8",
		                            "npm_config_update_notifier=false",
		                            "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1" };
	extern char **environ;

	for (char **v = environ; *v && e->n < ENV_MAX - 16; v++) {
		bool pass = strncmp(*v, "XDG_CONFIG_HOME=", 16) == 0;
		for (size_t i = 0; i < registry_probes_n && !pass; i++)
			pass = (registry_probes[i].sides & REGISTRY_HOST) &&
			       wanted(&registry_probes[i], *v);
		if (!pass)
			continue;
		add(h, "env", *v);
		e->v[e->n++] = xstrdup(*v);
	}
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		e->v[e->n++] = xstrdup(ours[i]);
	e->v[e->n++] = xasprintf("HOME=%s", home);
}

static void env_fini(struct env *e)
{
	for (size_t i = 0; i < e->n; i++)
		free(e->v[i]);
}

/* What the answer depends on, as hex; a hash, because variables may hold logins. */
static void make_key(struct env *e, const char *home, char key[HASH_HEX_BYTES])
{
	struct hash_state h;
	struct hash sum;

	hash_init(&h);
	make_env(e, &h, home);
	for (size_t i = 0; i < registry_probes_n; i++) {
		const struct registry_probe *p = &registry_probes[i];
		AUTO_FREE char *program = NULL;
		if (!(p->sides & REGISTRY_HOST))
			continue;
		add(&h, p->name, p->script);
		if (proc_find_program(p->needs, &program) < 0)
			continue; /* its files do not matter */
		add_file(&h, program);
		for (const char *const *f = p->files; *f; f++) {
			AUTO_FREE char *path = expand(*f, home);
			add_file(&h, path);
		}
	}
	hash_final(&h, &sum);
	hash_hex(key, &sum);
}

/* ---- asking ------------------------------------------------------------- */

static int ask(struct registry_list *out, const struct env *e, char **out_note, struct err *err)
{
	AUTO_BUF struct buf script = { 0 }, text = { 0 };
	AUTO_FREE char *timeout = NULL;
	struct proc p = { .pidfd = -1 };
	int io[2], status = 0;

	int r = registry_script(&script, REGISTRY_HOST);
	if (r == 0)
		r = buf_put(&script, "", 1);
	if (r == 0)
		r = proc_find_program("timeout", &timeout);
	if (r < 0)
		return err_code(err, r, "cannot ask the package tools");
	if (pipe2(io, O_CLOEXEC) < 0)
		return err_errno(err, "cannot create a pipe");
	AUTO_CLOSE int rd = io[0];
	AUTO_CLOSE int wr = io[1];
	AUTO_FREE char *wait = xasprintf("%d", REGISTRIES_WAIT_S);
	/* it ends the tools with the shell: they are of its process group */
	const char *const argv[] = {
		"timeout", "-k", "1", wait, "/bin/sh", "-c", (const char *)script.p, NULL
	};
	struct proc_fd fds[] = { { .from = wr, .to = 1 } };
	struct proc_spec spec = { .path = timeout,
		                  .argv = argv,
		                  .envp = (const char *const *)e->v,
		                  .fds = fds,
		                  .n_fds = 1,
		                  .new_session = true };
	r = proc_spawn(&p, &spec, err);
	if (r < 0)
		return r;
	auto_close_(&wr);
	char piece[4096];
	ssize_t n;
	for (;;) {
		/* silence for longer: something outlived timeout(1) and holds the pipe */
		struct pollfd pf = { .fd = rd, .events = POLLIN };
		if (poll(&pf, 1, (REGISTRIES_WAIT_S + 3) * 1000) == 0)
			break;
		n = read(rd, piece, sizeof(piece));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (text.len < REGISTRY_OUTPUT_MAX && buf_put(&text, piece, (size_t)n) < 0)
			break;
	}
	r = proc_wait(&p, 5000, &status);
	proc_end(&p, 0);
	size_t left_out = registry_scan(out, span_of(text.p, text.len));
	if (r < 0 || proc_shell_status(status) == TIMED_OUT) {
		*out_note = xasprintf("a package tool did not say in %d s where it fetches from: "
		                      "its registry may be refused",
		                      REGISTRIES_WAIT_S);
		return -ETIMEDOUT;
	}
	if (left_out)
		*out_note = xasprintf("the package tools name more than %d registries: %zu are "
		                      "left out",
		                      REGISTRY_MAX, left_out);
	return 0;
}

static int write_cache(const char *path, const struct buf *b)
{
	AUTO_FREE char *tmp = xasprintf("%s.%d", path, (int)getpid());
	AUTO_CLOSE int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	int r = fd_write_all(fd, b->p, b->len);
	if (r == 0)
		r = fd_close(&fd);
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r < 0)
		(void)unlink(tmp); /* the first error counts */
	return r;
}

int registries_of_user(struct registry_list *out, const char *cache_dir, void (*asking)(void),
                       char **out_note, struct err *err)
{
	const char *home = getenv("HOME");
	AUTO_FREE char *path = xasprintf("%s/registries.json", cache_dir);
	AUTO_FREE char *text = NULL;
	char key[HASH_HEX_BYTES];
	struct env e = { 0 };
	int64_t now_s = time(NULL);
	size_t len = 0;

	*out = (struct registry_list){ 0 };
	*out_note = NULL;
	make_key(&e, home && home[0] == '/' ? home : "/", key);
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int r = fd < 0 ? -errno : fd_read_file(fd, REGISTRIES_BYTES_MAX, &text, &len);
	if (r == 0)
		r = registries_cache_parse(out, span_of(text, len), key, now_s);
	if (r < 0) { /* missing, stale, damaged: asked */
		if (asking)
			asking();
		r = ask(out, &e, out_note, err);
		AUTO_BUF struct buf b = { 0 };
		if (r == 0 && registries_cache_put(&b, key, now_s, out) == 0)
			(void)!write_cache(path, &b); /* asked again next time */
		if (r == -ETIMEDOUT)
			r = 0; /* with what was said in time */
	}
	env_fini(&e);
	return r;
}
