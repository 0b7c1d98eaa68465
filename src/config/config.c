/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/vis.h"
#include "config/yamlread.h"

void config_init(struct config *c)
{
	*c = (struct config){
		.accel = "auto",
		.cpus = 2,
		.memory_mib = 4096,
		.disk_bytes = (uint64_t)16 << 30,
		.apply = CONFIG_APPLY_ASK,
	};
}

void config_fini(struct config *c)
{
	for (size_t i = 0; i < c->n_exclude; i++)
		free(c->exclude[i]);
	free(c->image_suite);
	free(c->image_mirror);
	*c = (struct config){ 0 };
}

int config_size(const char *s, uint64_t *out)
{
	static const struct {
		const char *suffix;
		unsigned shift;
	} units[] = { { "", 20 },  { "m", 20 },  { "mi", 20 }, { "mib", 20 },
		      { "g", 30 }, { "gi", 30 }, { "gib", 30 } };
	uint64_t v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9'; p++) {
		v = v * 10 + (uint64_t)(*p - '0');
		if (v > UINT32_MAX) /* of MiB, and far beyond in GiB */
			return -EINVAL;
	}
	if (p == s)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (strcasecmp(p, units[i].suffix) != 0)
			continue;
		if (v << units[i].shift >> 20 > UINT32_MAX)
			return -EINVAL;
		*out = v << units[i].shift;
		return 0;
	}
	return -EINVAL;
}

static const char *const apply_names[] = { "ask", "auto", "none" };

const char *config_apply_name(enum config_apply a)
{
	return apply_names[a];
}

int config_apply_parse(const char *s, enum config_apply *out)
{
	for (unsigned i = 0; i < ARRAY_LEN(apply_names); i++) {
		if (strcmp(s, apply_names[i]) == 0) {
			*out = (enum config_apply)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- keys --------------------------------------------------------------- */

static int set_accel(struct config *c, const char *v)
{
	if (strcmp(v, "auto") != 0 && strcmp(v, "kvm") != 0 && strcmp(v, "tcg") != 0)
		return -EINVAL;
	(void)snprintf(c->accel, sizeof(c->accel), "%s", v);
	return 0;
}

static int set_cpus(struct config *c, const char *v)
{
	unsigned n = 0;

	for (const char *p = v; *p; p++) {
		if (*p < '0' || *p > '9' || n > 64)
			return -EINVAL;
		n = n * 10 + (unsigned)(*p - '0');
	}
	if (n < 1 || n > 64)
		return -EINVAL;
	c->cpus = n;
	return 0;
}

static int size_in(const char *v, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t n;

	if (config_size(v, &n) < 0 || n < min || n > max)
		return -EINVAL;
	*out = n;
	return 0;
}

static int set_memory(struct config *c, const char *v)
{
	uint64_t n;

	if (size_in(v, (uint64_t)256 << 20, (uint64_t)1 << 40, &n) < 0)
		return -EINVAL;
	c->memory_mib = (uint32_t)(n >> 20);
	return 0;
}

static int set_disk(struct config *c, const char *v)
{
	return size_in(v, (uint64_t)64 << 20, (uint64_t)1 << 44, &c->disk_bytes);
}

static int set_tmp(struct config *c, const char *v)
{
	return size_in(v, (uint64_t)1 << 20, (uint64_t)64 << 30, &c->tmp_bytes);
}

static int set_heavy(struct config *c, const char *v)
{
	if (strcmp(v, "true") != 0 && strcmp(v, "false") != 0)
		return -EINVAL;
	c->exclude_heavy = v[0] == 't';
	return 0;
}

static int add_exclude(struct config *c, const char *v)
{
	if (v[0] == '\0')
		return -EINVAL;
	if (c->n_exclude == CONFIG_LIST_MAX)
		return -E2BIG;
	c->exclude[c->n_exclude++] = xstrdup(v);
	return 0;
}

static int set_apply(struct config *c, const char *v)
{
	return config_apply_parse(v, &c->apply);
}

static int set_string(char **dst, const char *v)
{
	if (v[0] == '\0' || strlen(v) > 512)
		return -EINVAL;
	for (const char *p = v; *p; p++) {
		if (*p <= ' ' || *p > '~')
			return -EINVAL;
	}
	free(*dst);
	*dst = xstrdup(v);
	return 0;
}

static int set_suite(struct config *c, const char *v)
{
	return set_string(&c->image_suite, v);
}

static int set_mirror(struct config *c, const char *v)
{
	return set_string(&c->image_mirror, v);
}

static const struct key {
	const char *section, *name;
	bool list;
	int (*set)(struct config *c, const char *v);
	const char *what;
} keys[] = {
	{ "vm", "accel", false, set_accel, "auto, kvm or tcg" },
	{ "vm", "cpus", false, set_cpus, "a number from 1 to 64" },
	{ "vm", "memory", false, set_memory, "a size from 256m, as 4g" },
	{ "vm", "disk", false, set_disk, "a size from 64m, as 16g" },
	{ "vm", "tmp_size", false, set_tmp, "a size from 1m to 64g" },
	{ "workspace", "exclude_heavy", false, set_heavy, "true or false" },
	{ "workspace", "exclude", true, add_exclude, "patterns that are not empty, at most 256" },
	{ "review", "apply", false, set_apply, "ask, auto or none" },
	{ "image", "suite", false, set_suite, "a Debian code name" },
	{ "image", "mirror", false, set_mirror, "a URL" },
};

struct load {
	struct config *c;
	const char *name;
	struct err *err;
	const struct key *key;
	bool seen[ARRAY_LEN(keys)];
};

static int at(const struct load *l, const struct yaml_mark *m, const char *fmt, ...)
	PRINTF_FMT(3, 4);
static int at(const struct load *l, const struct yaml_mark *m, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(l->err, -EINVAL, "%s:%u:%u: %s", l->name, m->line, m->column, text);
}

/* What differs least in letters: enough for a typing mistake in a short list. */
static const char *near_key(const char *section, const char *name)
{
	const char *best = NULL;
	size_t best_same = 1;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const char *k = section ? keys[i].name : keys[i].section;
		size_t same = 0;
		if (section && strcmp(keys[i].section, section) != 0)
			continue;
		while (k[same] && tolower((unsigned char)name[same]) == k[same])
			same++;
		size_t ka = strlen(k), kb = strlen(name), tail = 0;
		while (tail < ka && tail < kb && k[ka - 1 - tail] == name[kb - 1 - tail])
			tail++;
		if (same + tail > best_same) {
			best_same = same + tail;
			best = k;
		}
	}
	return best;
}

static int unknown_key(struct load *l, const struct yaml_mark *m, const char *section,
                       const char *name)
{
	char seen[128];
	const char *near = near_key(section, name);

	(void)at(l, m, "unknown key '%s%s%s'", section ? section : "", section ? "." : "",
	         vis_str(seen, sizeof(seen), span_str(name)));
	if (near)
		return err_hint(l->err, "did you mean '%s'?", near);
	return -EINVAL;
}

static int on_value(void *arg, const char *section, const char *name, bool in_list,
                    const char *value, const struct yaml_mark *m)
{
	struct load *l = arg;
	char seen[128];
	const struct key *k = NULL;
	bool known_section = false;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (strcmp(keys[i].section, section) != 0)
			continue;
		known_section = true;
		if (name && strcmp(keys[i].name, name) == 0)
			k = &keys[i];
	}
	if (!known_section)
		return unknown_key(l, m, NULL, section);
	if (!name)
		return value ? at(l, m, "'%s' must be a mapping", section) : 0;
	if (!k)
		return unknown_key(l, m, section, name);
	if (k->list != in_list)
		return at(l, m, "'%s.%s' must be %s", section, name,
		          k->list ? "a list" : "a single value");
	if (!value)
		return 0;                  /* an empty list */
	if (!k->list && l->seen[k - keys]) /* the reader refuses duplicates; be sure */
		return at(l, m, "'%s.%s' stands twice", section, name);
	l->seen[k - keys] = true;
	int r = k->set(l->c, value);
	if (r < 0)
		return at(l, m, "'%s.%s' must be %s, not '%s'", section, name, k->what,
		          vis_str(seen, sizeof(seen), span_str(value)));
	return 0;
}

int config_parse(struct config *c, const char *name, const void *p, size_t n, struct err *err)
{
	struct load l = { .c = c, .name = name, .err = err };

	return yaml_read(name, p, n, on_value, &l, err);
}

int config_load(struct config *c, const char *path, struct err *err)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO_FREE char *text = NULL;
	const char *base = strrchr(path, '/');
	struct stat st;
	size_t len = 0;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR
		               ? 0
		               : err_errno(err, "cannot read the configuration '%s'", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "the configuration '%s' is not a regular file", path);
	int r = fd_read_file(fd, CONFIG_BYTES_MAX, &text, &len);
	if (r < 0)
		return err_code(err, r, "cannot read the configuration '%s'", path);
	r = config_parse(c, base ? base + 1 : path, text, len, err);
	if (r < 0)
		err_hint(err, "see docs/configuration.md; the file is %s", path);
	return r;
}
