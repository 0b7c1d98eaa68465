/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yamlread.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/err.h"
#include "base/vis.h"

/* ---- reading ------------------------------------------------------------ */

struct reader {
	yaml_parser_t y;
	yaml_event_t ev;
	bool have_ev;
	unsigned depth;
	size_t count;
	const char *name;
	struct err *err;
	/* libyaml counts characters, we count bytes: where the last mark was in both */
	const uint8_t *p;
	size_t n, chars, bytes;
};

static struct yaml_mark mark_of(const yaml_mark_t *m)
{
	return (struct yaml_mark){ .line = (unsigned)m->line + 1,
		                   .column = (unsigned)m->column + 1 };
}

static size_t byte_of(struct reader *r, const yaml_mark_t *m)
{
	if (m->index < r->chars)
		r->chars = r->bytes = 0;
	while (r->chars < m->index && r->bytes < r->n) {
		r->bytes++; /* libyaml has refused what is not UTF-8 */
		while (r->bytes < r->n && (r->p[r->bytes] & 0xc0) == 0x80)
			r->bytes++;
		r->chars++;
	}
	return r->bytes;
}

static int bad_at(const char *name, const struct yaml_mark *m, const char *what, struct err *err)
{
	return err_set(err, -EINVAL, "%s:%u:%u: %s", name, m->line, m->column, what);
}

static int bad(struct reader *r, const char *what)
{
	struct yaml_mark m = mark_of(&r->ev.start_mark);

	return bad_at(r->name, &m, what, r->err);
}

static int next(struct reader *r)
{
	const yaml_event_t *ev = &r->ev;

	if (r->have_ev)
		yaml_event_delete(&r->ev);
	r->have_ev = false;
	if (!yaml_parser_parse(&r->y, &r->ev)) {
		struct yaml_mark m = mark_of(&r->y.problem_mark);
		return bad_at(r->name, &m, r->y.problem ? r->y.problem : "not valid YAML", r->err);
	}
	r->have_ev = true;
	switch (ev->type) {
	case YAML_ALIAS_EVENT:
		return bad(r, "aliases are not allowed");
	case YAML_SCALAR_EVENT:
		if (ev->data.scalar.anchor || ev->data.scalar.tag)
			return bad(r, "anchors and tags are not allowed");
		if (memchr(ev->data.scalar.value, 0, ev->data.scalar.length))
			return bad(r, "a value holds a NUL byte");
		return 0;
	case YAML_MAPPING_START_EVENT:
		return ev->data.mapping_start.anchor || ev->data.mapping_start.tag
		               ? bad(r, "anchors and tags are not allowed")
		               : 0;
	case YAML_SEQUENCE_START_EVENT:
		return ev->data.sequence_start.anchor || ev->data.sequence_start.tag
		               ? bad(r, "anchors and tags are not allowed")
		               : 0;
	default:
		return 0;
	}
}

/* A block scalar's event reaches over the empty lines behind it. */
static size_t trim_end(const struct reader *r, size_t begin, size_t end)
{
	while (end > begin && memchr(" \t\r\n", r->p[end - 1], 4))
		end--;
	return end;
}

static bool is_null(const char *s)
{
	return s[0] == '\0' || strcmp(s, "~") == 0 || strcasecmp(s, "null") == 0;
}

static int read_node(struct reader *r, struct ynode *n);

static int read_children(struct reader *r, struct ynode *n)
{
	struct ynode **tail = &n->child;
	yaml_event_type_t stop =
		n->kind == YNODE_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;

	if (++r->depth > YNODE_DEPTH_MAX)
		return bad(r, "the file is nested too deeply");
	for (;;) {
		int e = next(r);
		if (e < 0)
			return e;
		if (r->ev.type == stop)
			break;
		if (n->n == (n->kind == YNODE_MAP ? (size_t)YNODE_WIDTH_MAX : YNODE_LIST_MAX))
			return bad(r, "too many entries");
		struct ynode *c = xcalloc(1, sizeof(*c));
		*tail = c;
		tail = &c->next;
		n->n++;
		if (n->kind == YNODE_MAP) {
			if (r->ev.type != YAML_SCALAR_EVENT)
				return bad(r, "a key is expected here");
			c->key = xstrdup((const char *)r->ev.data.scalar.value);
			c->key_at = mark_of(&r->ev.start_mark);
			c->key_begin = byte_of(r, &r->ev.start_mark);
			c->key_end = byte_of(r, &r->ev.end_mark);
			if (strcmp(c->key, "<<") == 0)
				return bad(r, "merge keys are not allowed");
			if (ynode_get(n, c->key) != c)
				return bad(r, "this key stands twice");
			e = next(r);
			if (e < 0)
				return e;
		}
		e = read_node(r, c);
		if (e < 0)
			return e;
		n->end = MAX(c->end, c->key_end);
	}
	if (n->flow)
		n->end = byte_of(r, &r->ev.end_mark);
	r->depth--;
	return 0;
}

/* The event at hand is the node's first. */
static int read_node(struct reader *r, struct ynode *n)
{
	const yaml_event_t *ev = &r->ev;

	if (++r->count > YNODE_COUNT_MAX)
		return bad(r, "the file has too many entries");
	n->at = mark_of(&ev->start_mark);
	n->begin = n->end = byte_of(r, &ev->start_mark);
	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		n->end = trim_end(r, n->begin, byte_of(r, &ev->end_mark));
		n->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
		n->text = xstrdup((const char *)ev->data.scalar.value);
		n->kind = n->plain && is_null(n->text) ? YNODE_NULL : YNODE_TEXT;
		return 0;
	case YAML_SEQUENCE_START_EVENT:
		n->kind = YNODE_LIST;
		n->flow = ev->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
		return read_children(r, n);
	case YAML_MAPPING_START_EVENT:
		n->kind = YNODE_MAP;
		n->flow = ev->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
		return read_children(r, n);
	default:
		return bad(r, "a value is expected here");
	}
}

static int read_document(struct reader *r, struct ynode **out)
{
	int e = next(r); /* stream start */

	if (e == 0)
		e = next(r);
	if (e < 0 || r->ev.type == YAML_STREAM_END_EVENT)
		return e; /* empty */
	e = next(r);      /* behind the document's start */
	if (e < 0)
		return e;
	*out = xcalloc(1, sizeof(**out));
	e = read_node(r, *out);
	if (e == 0)
		e = next(r); /* document end */
	if (e == 0)
		e = next(r);
	if (e == 0 && r->ev.type != YAML_STREAM_END_EVENT)
		return bad(r, "only one document is allowed");
	return e;
}

int ynode_parse(struct ynode **out, const char *name, const void *p, size_t n, struct err *err)
{
	struct reader r = { .name = name, .err = err, .p = p, .n = n };
	struct ynode *top = NULL;

	if (!yaml_parser_initialize(&r.y))
		return err_set(err, -ENOMEM, "no memory to read '%s'", name);
	yaml_parser_set_encoding(&r.y, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.y, p ? p : "", n); /* libyaml aborts on NULL */
	int e = read_document(&r, &top);
	if (r.have_ev)
		yaml_event_delete(&r.ev);
	yaml_parser_delete(&r.y);
	if (e < 0 || (top && top->kind == YNODE_NULL)) {
		ynode_free(top);
		top = NULL;
	}
	if (e == 0)
		*out = top;
	return e;
}

void ynode_free(struct ynode *n)
{
	/* depth is bounded, the number of siblings is not */
	while (n) {
		struct ynode *next_one = n->next;
		ynode_free(n->child);
		free(n->key);
		free(n->text);
		free(n);
		n = next_one;
	}
}

/* ---- the tree ----------------------------------------------------------- */

const struct ynode *ynode_get(const struct ynode *map, const char *key)
{
	if (!map || map->kind != YNODE_MAP)
		return NULL;
	for (const struct ynode *c = map->child; c; c = c->next) {
		if (c->key && strcmp(c->key, key) == 0)
			return c;
	}
	return NULL;
}

void ynode_set_source(struct ynode *n, uint8_t source)
{
	n->source = source;
	for (struct ynode *c = n->child; c; c = c->next)
		ynode_set_source(c, source);
}

struct ynode *ynode_merge(const struct ynode *base, const struct ynode *over)
{
	const struct ynode *from = over ? over : base;
	bool both = base && over && base->kind == YNODE_MAP && over->kind == YNODE_MAP;

	if (!from)
		return NULL;
	struct ynode *n = xmalloc(sizeof(*n));
	*n = *from;
	n->key = from->key ? xstrdup(from->key) : NULL;
	n->text = from->text ? xstrdup(from->text) : NULL;
	n->next = n->child = NULL;
	n->n = 0;
	struct ynode **tail = &n->child;
	for (const struct ynode *c = both ? base->child : from->child; c; c = c->next) {
		*tail = ynode_merge(c, both ? ynode_get(over, c->key) : NULL);
		tail = &(*tail)->next;
		n->n++;
	}
	for (const struct ynode *c = both ? over->child : NULL; c; c = c->next) {
		if (ynode_get(base, c->key))
			continue;
		*tail = ynode_merge(NULL, c);
		tail = &(*tail)->next;
		n->n++;
	}
	return n;
}

/* A number as JSON writes it (RFC 8259 6). */
static bool json_number(const char *s)
{
	s += *s == '-';
	if (*s == '0')
		s++;
	else if (*s >= '1' && *s <= '9')
		s += strspn(s, "0123456789");
	else
		return false;
	if (*s == '.') {
		size_t n = strspn(s + 1, "0123456789");
		if (n == 0)
			return false;
		s += 1 + n;
	}
	if (*s == 'e' || *s == 'E') {
		s++;
		s += *s == '+' || *s == '-';
		size_t n = strspn(s, "0123456789");
		if (n == 0)
			return false;
		s += n;
	}
	return *s == '\0';
}

/*
 * What YAML 1.1 or the core schema of YAML 1.2 may take for something else than a string:
 * words of truth, and whatever looks like a number, a time or a date.
 */
static bool ambiguous(const char *s)
{
	static const char *const words[] = { "y",    "n",     "yes", "no", "on",  "off",
		                             "true", "false", "=",   "~",  "null" };
	const char *p = s + (*s == '-' || *s == '+');

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strcasecmp(s, words[i]) == 0)
			return true;
	}
	if (strcasecmp(p, ".inf") == 0 || strcasecmp(p, ".nan") == 0)
		return true;
	bool digit = isdigit((unsigned char)p[0]) || (p[0] == '.' && isdigit((unsigned char)p[1]));
	if (!digit)
		return false;
	if (p[0] == '0' && (p[1] == 'x' || p[1] == 'b' || p[1] == 'o'))
		return true;
	/* one point at most, else it is a version: 2.1.332 stays a string */
	const char *dot = strchr(p, '.');
	if (dot && strchr(dot + 1, '.'))
		return false;
	return p[strspn(p, "0123456789_.:+-eE TtZz")] == '\0';
}

enum ynode_type ynode_type(const struct ynode *text)
{
	if (!text->plain)
		return YNODE_STRING;
	if (strcmp(text->text, "true") == 0 || strcmp(text->text, "false") == 0)
		return YNODE_BOOL;
	if (json_number(text->text))
		return YNODE_NUMBER;
	return ambiguous(text->text) ? YNODE_AMBIGUOUS : YNODE_STRING;
}

/* ---- JSON --------------------------------------------------------------- */

int ynode_json_text(struct buf *b, const char *s)
{
	struct span rest = span_str(s);
	int e = buf_put(b, "\"", 1);

	while (rest.len && e == 0) {
		uint32_t cp;
		size_t n = vis_utf8(rest, &cp);
		if (n == 0)
			e = buf_printf(b, "\\ufffd");
		else if (cp == '"' || cp == '\\')
			e = buf_printf(b, "\\%c", (char)cp);
		else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
		         cp == 0xfeff || cp == 0xfffe || cp == 0xffff)
			/* what a reader of YAML does not take as it is */
			e = buf_printf(b, "\\u%04x", (unsigned)cp);
		else
			e = buf_put(b, rest.p, n);
		n += n == 0;
		rest = span_of(rest.p + n, rest.len - n);
	}
	return e == 0 ? buf_put(b, "\"", 1) : e;
}

static int new_line(struct buf *b, int indent)
{
	return indent < 0 ? 0 : buf_printf(b, "\n%*s", indent, "");
}

int ynode_json(struct buf *b, const struct ynode *n, int indent)
{
	int deeper = indent < 0 ? indent : indent + 2;
	bool map = n->kind == YNODE_MAP;

	if (n->kind == YNODE_NULL)
		return buf_printf(b, "null");
	if (n->kind == YNODE_TEXT) {
		enum ynode_type t = ynode_type(n);
		return t == YNODE_BOOL || t == YNODE_NUMBER ? buf_printf(b, "%s", n->text)
		                                            : ynode_json_text(b, n->text);
	}
	int e = buf_printf(b, map ? "{" : "[");
	for (const struct ynode *c = n->child; c && e == 0; c = c->next) {
		e = new_line(b, deeper);
		if (e == 0 && map)
			e = ynode_json_text(b, c->key);
		if (e == 0 && map)
			e = buf_printf(b, indent < 0 ? ":" : ": ");
		if (e == 0)
			e = ynode_json(b, c, deeper);
		if (e == 0 && c->next)
			e = buf_put(b, ",", 1);
	}
	if (e == 0 && n->child)
		e = new_line(b, indent);
	return e == 0 ? buf_printf(b, map ? "}" : "]") : e;
}

/* ---- sections of keys --------------------------------------------------- */

struct walk {
	const char *name;
	yaml_value_fn fn;
	void *arg;
	struct err *err;
};

static int walk_value(const struct walk *w, const char *section, const struct ynode *n)
{
	if (n->kind == YNODE_NULL)
		return bad_at(w->name, &n->at, "this key has no value", w->err);
	if (n->kind == YNODE_TEXT)
		return w->fn(w->arg, section, n->key, false, n->text, &n->at);
	if (n->kind != YNODE_LIST)
		return bad_at(w->name, &n->at, "a single value or a list is expected here", w->err);
	int e = w->fn(w->arg, section, n->key, true, NULL, &n->at);
	for (const struct ynode *c = n->child; c && e == 0; c = c->next) {
		if (c->kind != YNODE_TEXT && c->kind != YNODE_NULL)
			return bad_at(w->name, &c->at, "a list of single values is expected here",
			              w->err);
		e = w->fn(w->arg, section, n->key, true, c->text, &c->at);
	}
	return e;
}

static int walk_section(const struct walk *w, const struct ynode *n)
{
	if (n->kind == YNODE_TEXT || n->kind == YNODE_NULL)
		return w->fn(w->arg, n->key, NULL, false, n->kind == YNODE_TEXT ? n->text : NULL,
		             &n->at);
	if (n->kind != YNODE_MAP)
		return w->fn(w->arg, n->key, NULL, true, "", &n->at);
	int e = w->fn(w->arg, n->key, NULL, false, NULL, &n->at);
	for (const struct ynode *c = n->child; c && e == 0; c = c->next)
		e = walk_value(w, n->key, c);
	return e;
}

int yaml_walk(const char *name, const struct ynode *top, const char *skip, yaml_value_fn fn,
              void *arg, struct err *err)
{
	struct walk w = { .name = name, .fn = fn, .arg = arg, .err = err };
	int e = 0;

	if (top && top->kind != YNODE_MAP)
		return bad_at(name, &top->at, "the file must be a mapping", err);
	for (const struct ynode *c = top ? top->child : NULL; c && e == 0; c = c->next) {
		if (!skip || strcmp(c->key, skip) != 0)
			e = walk_section(&w, c);
	}
	return e;
}
