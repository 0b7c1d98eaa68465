/* SPDX-License-Identifier: Apache-2.0 */
#include "image/recipe.h"

#include <errno.h>
#include <stdio.h>

#include "base/err.h"
#include "base/path.h"
#include "image/registry.h"

/* ---- words -------------------------------------------------------------- */

static struct span take_line(struct span *rest)
{
	const uint8_t *nl = rest->len ? memchr(rest->p, '\n', rest->len) : NULL;
	size_t n = nl ? (size_t)(nl - rest->p) : rest->len;
	struct span line = span_of(rest->p, n);

	*rest = span_of(rest->p + n + (nl != NULL), rest->len - n - (nl != NULL));
	return line;
}

static struct span take_word(struct span *line)
{
	while (line->len && (*line->p == ' ' || *line->p == '\t'))
		*line = span_of(line->p + 1, line->len - 1);
	if (line->len == 0)
		return (struct span){ 0 };
	size_t n = 0;
	while (n < line->len && line->p[n] != ' ' && line->p[n] != '\t')
		n++;
	struct span w = span_of(line->p, n);
	*line = span_of(line->p + n, line->len - n);
	return w;
}

static bool number(struct span s, unsigned base, uint32_t max, uint32_t *out)
{
	uint64_t v = 0;

	if (s.len == 0 || s.len > 10)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] >= (uint8_t)('0' + base))
			return false;
		v = v * base + (s.p[i] - (uint8_t)'0');
	}
	*out = (uint32_t)v;
	return v <= max;
}

/* Package and recipe names: deb-control(5) allows a-z 0-9 + - . */
static bool name_ok(struct span s)
{
	if (s.len == 0 || s.len > 128 || s.p[0] == '-')
		return false;
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = s.p[i];
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
		      c == '.'))
			return false;
	}
	return true;
}

/* ---- recipes ------------------------------------------------------------ */

static const struct {
	const char *word;
	enum recipe_verb verb;
	bool meta;       /* MODE UID GID before the path */
	unsigned n_args; /* after the path */
} verbs[] = {
	{ "empty", RECIPE_EMPTY, false, 0 }, { "drop", RECIPE_DROP, false, 0 },
	{ "dir", RECIPE_DIR, true, 0 },      { "link", RECIPE_LINK, false, 1 },
	{ "copy", RECIPE_COPY, true, 1 },    { "file", RECIPE_FILE, true, 0 },
};

static int add_step(struct recipe *r, const struct recipe_step *s)
{
	if (r->n_steps == RECIPE_STEPS_MAX)
		return -E2BIG;
	r->steps[r->n_steps++] = *s;
	return 0;
}

static int parse_user(struct recipe *r, struct span line)
{
	struct recipe_step s = { .verb = RECIPE_USER, .path = take_word(&line) };

	if (!name_ok(s.path) || !number(take_word(&line), 10, 60000, &s.uid) ||
	    !number(take_word(&line), 10, 60000, &s.gid))
		return -EINVAL;
	s.arg = take_word(&line);
	s.arg2 = take_word(&line);
	if (s.arg.len == 0 || s.arg2.len == 0 || take_word(&line).len)
		return -EINVAL;
	return add_step(r, &s);
}

static int parse_step(struct recipe *r, struct span word, struct span line)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		struct recipe_step s = { .verb = verbs[i].verb, .body_at = r->bodies.len };

		if (!span_eq(word, span_str(verbs[i].word)))
			continue;
		if (verbs[i].meta && (!number(take_word(&line), 8, 07777, &s.mode) ||
		                      !number(take_word(&line), 10, 60000, &s.uid) ||
		                      !number(take_word(&line), 10, 60000, &s.gid)))
			return -EINVAL;
		s.path = take_word(&line);
		if (path_check(s.path) < 0)
			return -EINVAL;
		if (verbs[i].n_args)
			s.arg = take_word(&line);
		if ((verbs[i].n_args && s.arg.len == 0) || take_word(&line).len)
			return -EINVAL;
		return add_step(r, &s);
	}
	return -EINVAL;
}

static int parse_line(struct recipe *r, struct span line, const char *(*find)(const char *),
                      struct err *err)
{
	struct span rest = line, word = take_word(&rest);

	if (word.len == 0 || word.p[0] == '#')
		return 0;
	if (word.p[0] == '|') {
		struct recipe_step *s = r->n_steps ? &r->steps[r->n_steps - 1] : NULL;
		if (!s || s->verb != RECIPE_FILE || line.p[0] != '|')
			return -EINVAL;
		struct span body = span_of(line.p + 1, line.len - 1);
		if (body.len && body.p[0] == ' ')
			body = span_of(body.p + 1, body.len - 1);
		if (body.len + 1 > RECIPE_TEXT_MAX - r->bodies.len)
			return -E2BIG;
		int e = buf_put(&r->bodies, body.p, body.len);
		if (e == 0)
			e = buf_put(&r->bodies, "\n", 1);
		s->body.len = r->bodies.len - s->body_at;
		return e;
	}
	if (span_eq(word, span_str("packages"))) {
		for (struct span w = take_word(&rest); w.len; w = take_word(&rest)) {
			if (!name_ok(w))
				return -EINVAL;
			if (r->n_packages == RECIPE_PACKAGES_MAX)
				return -E2BIG;
			r->packages[r->n_packages++] = w;
		}
		return 0;
	}
	if (span_eq(word, span_str("user")))
		return parse_user(r, rest);
	bool is_name = span_eq(word, span_str("name")), is_alias = span_eq(word, span_str("alias"));
	bool is_include = span_eq(word, span_str("include"));
	if (!is_name && !is_alias && !is_include)
		return parse_step(r, word, rest);
	struct span v = take_word(&rest);
	if (!name_ok(v) || v.len >= RECIPE_NAME_MAX || take_word(&rest).len)
		return -EINVAL;
	if (is_include) {
		char name[RECIPE_NAME_MAX] = { 0 };
		memcpy(name, v.p, v.len);
		const char *text = find ? find(name) : NULL;
		if (!text)
			return -EINVAL;
		struct span own = r->name;
		r->name = (struct span){ 0 };
		int e = recipe_parse(r, span_str(text), NULL, err);
		r->name = own;
		r->alias = (struct span){ 0 }; /* the other's */
		return e;
	}
	struct span *to = is_name ? &r->name : &r->alias;
	if (to->len)
		return -EINVAL;
	*to = v;
	return 0;
}

int recipe_parse(struct recipe *r, struct span text, const char *(*find)(const char *name),
                 struct err *err)
{
	unsigned n = 0;

	if (text.len > RECIPE_TEXT_MAX)
		return err_set(err, -E2BIG, "recipe is too long");
	while (text.len) {
		struct span line = take_line(&text);
		n++;
		int e = parse_line(r, line, find, err);
		if (e < 0)
			return err_code(err, e, "recipe line %u", n);
	}
	if (r->name.len == 0)
		return err_set(err, -EINVAL, "recipe has no name");
	return 0;
}

void recipe_fini(struct recipe *r)
{
	buf_fini(&r->bodies);
	*r = (struct recipe){ 0 };
}

static const char *find_text(const char *name)
{
	for (size_t i = 0; i < recipe_texts_n; i++) {
		if (strcmp(recipe_texts[i].name, name) == 0)
			return recipe_texts[i].text;
	}
	return NULL;
}

int recipe_load(struct recipe *r, const char *name, struct err *err)
{
	for (size_t i = 0; i < recipe_texts_n; i++) {
		struct recipe x = { 0 };
		int e = recipe_parse(&x, span_str(recipe_texts[i].text), find_text, err);
		if (e < 0) {
			recipe_fini(&x);
			(void)err_wrap(err, "built-in recipe '%s'", recipe_texts[i].name);
			return e;
		}
		if (span_eq(x.name, span_str(name)) || span_eq(x.alias, span_str(name))) {
			*r = x;
			return 0;
		}
		recipe_fini(&x);
	}
	char names[128] = "";
	size_t n = 0;
	for (size_t i = 0; i < recipe_texts_n && n < sizeof(names); i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "",
		                      recipe_texts[i].name);
	(void)err_set(err, -ENOENT, "there is no image recipe of that name");
	(void)err_hint(err, "known recipes: %s", names);
	return -ENOENT;
}

struct span recipe_step_body(const struct recipe *r, const struct recipe_step *s)
{
	return s->body.len ? span_of(r->bodies.p + s->body_at, s->body.len) : (struct span){ 0 };
}

static void hash_span(struct hash_state *h, struct span s)
{
	uint8_t n[8];
	struct wr w = wr_of(n, sizeof(n));

	wr_le(&w, s.len, 8);
	hash_update(h, n, sizeof(n));
	if (s.len)
		hash_update(h, s.p, s.len);
}

void recipe_hash(const struct recipe *r, const char *suite, struct hash *out)
{
	enum { FORMAT_VERSION = 2 }; /* one more for a change of the merge or of the layout */
	struct hash_state h;
	char line[96];

	hash_init(&h);
	(void)snprintf(line, sizeof(line), "cloche image %d amd64", FORMAT_VERSION);
	hash_span(&h, span_str(line));
	hash_span(&h, span_str(suite));
	hash_span(&h, r->name);
	for (size_t i = 0; i < r->n_packages; i++)
		hash_span(&h, r->packages[i]);
	for (size_t i = 0; i < r->n_steps; i++) {
		const struct recipe_step *s = &r->steps[i];
		(void)snprintf(line, sizeof(line), "%d %o %u %u", (int)s->verb, s->mode, s->uid,
		               s->gid);
		hash_span(&h, span_str(line));
		hash_span(&h, s->path);
		hash_span(&h, s->arg);
		hash_span(&h, s->arg2);
		hash_span(&h, recipe_step_body(r, s));
	}
	for (size_t i = 0; i < registry_probes_n; i++) {
		if (registry_probes[i].sides & REGISTRY_IMAGE)
			hash_span(&h, span_str(registry_probes[i].script));
	}
	hash_final(&h, out);
}

/* ---- accounts ----------------------------------------------------------- */

static struct span field(struct span line, unsigned k)
{
	for (;; k--) {
		const uint8_t *c = line.len ? memchr(line.p, ':', line.len) : NULL;
		size_t n = c ? (size_t)(c - line.p) : line.len;
		if (k == 0)
			return span_of(line.p, n);
		if (!c)
			return (struct span){ 0 };
		line = span_of(line.p + n + 1, line.len - n - 1);
	}
}

/* Is there a line whose field @k is @v? *out gets it. */
static bool has(const struct buf *b, unsigned k, struct span v, struct span *out)
{
	struct span rest = span_of(b->p, b->len);

	while (rest.len) {
		struct span line = take_line(&rest);
		if (line.len && span_eq(field(line, k), v)) {
			*out = line;
			return true;
		}
	}
	return false;
}

static int end_line(struct buf *b)
{
	return b->len && b->p[b->len - 1] != '\n' ? buf_put(b, "\n", 1) : 0;
}

int account_add(struct buf *passwd, struct buf *group, struct buf *shadow, struct span name,
                uint32_t uid, uint32_t gid, struct span home, struct span shell)
{
	char uid_text[16], gid_text[16];
	struct span line;

	(void)snprintf(uid_text, sizeof(uid_text), "%u", uid);
	(void)snprintf(gid_text, sizeof(gid_text), "%u", gid);
	if (has(passwd, 2, span_str(uid_text), &line))
		return 0;
	if (has(passwd, 0, name, &line))
		return -EEXIST;
	int r = end_line(passwd);
	if (r == 0)
		r = buf_printf(passwd, "%.*s:x:%u:%u::%.*s:%.*s\n", (int)name.len, name.p, uid, gid,
		               (int)home.len, home.p, (int)shell.len, shell.p);
	if (r == 0)
		r = end_line(group);
	if (r == 0 && !has(group, 2, span_str(gid_text), &line))
		r = buf_printf(group, "%.*s:x:%u:\n", (int)name.len, name.p, gid);
	if (r == 0)
		r = end_line(shadow);
	if (r == 0 && !has(shadow, 0, name, &line))
		r = buf_printf(shadow, "%.*s:!:::::::\n", (int)name.len, name.p);
	return r < 0 ? r : 1;
}

int account_lock_all(struct buf *shadow)
{
	AUTO_BUF struct buf b = { 0 };
	struct span rest = span_of(shadow->p, shadow->len);
	int r = 0;

	while (rest.len && r == 0) {
		struct span line = take_line(&rest), pw = field(line, 1);
		size_t name = field(line, 0).len;
		bool open = name < line.len && (pw.len == 0 || (pw.p[0] != '!' && pw.p[0] != '*'));
		r = buf_put(&b, line.p, open ? name + 1 : line.len);
		if (r == 0 && open)
			r = buf_put(&b, "!", 1);
		if (r == 0 && open)
			r = buf_put(&b, line.p + name + 1, line.len - name - 1);
		if (r == 0)
			r = buf_put(&b, "\n", 1);
	}
	if (r == 0) {
		struct buf old = *shadow;
		*shadow = b;
		b = old;
	}
	return r;
}
