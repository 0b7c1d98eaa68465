/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yamlread.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/vis.h"

enum { KEYS_MAX = 256, EVENTS_MAX = 100000 };

struct reader {
	yaml_parser_t y;
	yaml_event_t ev;
	bool have_ev;
	unsigned events;
	const char *name;
	struct err *err;
	/* "section" and "section.key" seen so far */
	char *seen[KEYS_MAX];
	size_t n_seen;
};

static struct yaml_mark mark_of(const yaml_mark_t *m)
{
	return (struct yaml_mark){ .line = (unsigned)m->line + 1,
		                   .column = (unsigned)m->column + 1 };
}

static int bad(struct reader *r, const char *what)
{
	struct yaml_mark m = mark_of(&r->ev.start_mark);

	return err_set(r->err, -EINVAL, "%s:%u:%u: %s", r->name, m.line, m.column, what);
}

static int next(struct reader *r)
{
	if (r->have_ev)
		yaml_event_delete(&r->ev);
	r->have_ev = false;
	if (!yaml_parser_parse(&r->y, &r->ev)) {
		struct yaml_mark m = mark_of(&r->y.problem_mark);
		return err_set(r->err, -EINVAL, "%s:%u:%u: %s", r->name, m.line, m.column,
		               r->y.problem ? r->y.problem : "not valid YAML");
	}
	r->have_ev = true;
	if (++r->events > EVENTS_MAX)
		return bad(r, "the file has too many entries");
	switch (r->ev.type) {
	case YAML_ALIAS_EVENT:
		return bad(r, "aliases are not allowed");
	case YAML_SCALAR_EVENT:
		if (r->ev.data.scalar.anchor || r->ev.data.scalar.tag)
			return bad(r, "anchors and tags are not allowed");
		if (memchr(r->ev.data.scalar.value, 0, r->ev.data.scalar.length))
			return bad(r, "a value holds a NUL byte");
		return 0;
	case YAML_MAPPING_START_EVENT:
		return r->ev.data.mapping_start.anchor || r->ev.data.mapping_start.tag
		               ? bad(r, "anchors and tags are not allowed")
		               : 0;
	case YAML_SEQUENCE_START_EVENT:
		return r->ev.data.sequence_start.anchor || r->ev.data.sequence_start.tag
		               ? bad(r, "anchors and tags are not allowed")
		               : 0;
	default:
		return 0;
	}
}

static int once(struct reader *r, const char *section, const char *key)
{
	AUTO_FREE char *full = key ? xasprintf("%s.%s", section, key) : xstrdup(section);

	for (size_t i = 0; i < r->n_seen; i++) {
		if (strcmp(r->seen[i], full) == 0)
			return bad(r, "this key stands twice");
	}
	if (r->n_seen == KEYS_MAX)
		return bad(r, "too many keys");
	r->seen[r->n_seen++] = take_ptr(&full);
	return 0;
}

static const char *scalar(const struct reader *r)
{
	return (const char *)r->ev.data.scalar.value;
}

/* A plain empty value or "~" is null. */
static bool is_null(const struct reader *r)
{
	return r->ev.type == YAML_SCALAR_EVENT &&
	       r->ev.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (scalar(r)[0] == '\0' || strcmp(scalar(r), "~") == 0 ||
	        strcmp(scalar(r), "null") == 0);
}

static int read_value(struct reader *r, const char *section, const char *key, yaml_value_fn fn,
                      void *arg)
{
	struct yaml_mark m = mark_of(&r->ev.start_mark);
	int e;

	if (r->ev.type == YAML_SCALAR_EVENT) {
		if (is_null(r))
			return bad(r, "this key has no value");
		return fn(arg, section, key, false, scalar(r), &m);
	}
	if (r->ev.type != YAML_SEQUENCE_START_EVENT)
		return bad(r, "a single value or a list is expected here");
	e = fn(arg, section, key, true, NULL, &m);
	while (e == 0) {
		e = next(r);
		if (e < 0 || r->ev.type == YAML_SEQUENCE_END_EVENT)
			break;
		if (r->ev.type != YAML_SCALAR_EVENT)
			return bad(r, "a list of single values is expected here");
		m = mark_of(&r->ev.start_mark);
		e = fn(arg, section, key, true, scalar(r), &m);
	}
	return e;
}

static int read_section(struct reader *r, const char *section, yaml_value_fn fn, void *arg)
{
	struct yaml_mark m = mark_of(&r->ev.start_mark);

	if (r->ev.type == YAML_SCALAR_EVENT)
		return fn(arg, section, NULL, false, is_null(r) ? NULL : scalar(r), &m);
	if (r->ev.type != YAML_MAPPING_START_EVENT)
		return fn(arg, section, NULL, true, "", &m);
	int e = fn(arg, section, NULL, false, NULL, &m);
	while (e == 0) {
		e = next(r);
		if (e < 0 || r->ev.type == YAML_MAPPING_END_EVENT)
			break;
		if (r->ev.type != YAML_SCALAR_EVENT)
			return bad(r, "a key is expected here");
		AUTO_FREE char *key = xstrdup(scalar(r));
		e = once(r, section, key);
		if (e == 0)
			e = next(r);
		if (e == 0)
			e = read_value(r, section, key, fn, arg);
	}
	return e;
}

static int read_document(struct reader *r, yaml_value_fn fn, void *arg)
{
	int e = next(r); /* stream start */

	if (e == 0)
		e = next(r);
	if (e < 0 || r->ev.type == YAML_STREAM_END_EVENT)
		return e; /* empty: the defaults */
	e = next(r);      /* behind the document's start */
	if (e < 0)
		return e;
	if (!is_null(r)) {
		if (r->ev.type != YAML_MAPPING_START_EVENT)
			return bad(r, "the file must be a mapping");
		for (;;) {
			e = next(r);
			if (e < 0)
				return e;
			if (r->ev.type == YAML_MAPPING_END_EVENT)
				break;
			if (r->ev.type != YAML_SCALAR_EVENT)
				return bad(r, "a key is expected here");
			AUTO_FREE char *section = xstrdup(scalar(r));
			e = once(r, section, NULL);
			if (e == 0)
				e = next(r);
			if (e == 0)
				e = read_section(r, section, fn, arg);
			if (e < 0)
				return e;
		}
	}
	e = next(r); /* document end */
	if (e == 0)
		e = next(r);
	if (e == 0 && r->ev.type != YAML_STREAM_END_EVENT)
		return bad(r, "only one document is allowed");
	return e;
}

int yaml_read(const char *name, const void *p, size_t n, yaml_value_fn fn, void *arg,
              struct err *err)
{
	struct reader r = { .name = name, .err = err };

	if (!yaml_parser_initialize(&r.y))
		return err_set(err, -ENOMEM, "no memory to read '%s'", name);
	yaml_parser_set_input_string(&r.y, p, n);
	int e = read_document(&r, fn, arg);
	if (r.have_ev)
		yaml_event_delete(&r.ev);
	yaml_parser_delete(&r.y);
	for (size_t i = 0; i < r.n_seen; i++)
		free(r.seen[i]);
	return e;
}
