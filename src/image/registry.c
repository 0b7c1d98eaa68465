/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry.h"

#include <errno.h>

int registry_script(struct buf *out, unsigned side)
{
	/* a tool that hangs or never stops talking costs its own answer only */
	int r = buf_printf(out, "ask() { head -c 8192; echo; }\n");

	for (size_t i = 0; i < registry_probes_n && r == 0; i++) {
		const struct registry_probe *p = &registry_probes[i];
		if (!(p->sides & side))
			continue;
		r = buf_printf(out,
		               "if command -v %s >/dev/null 2>&1; then echo '@%s'; (\n%s) "
		               "</dev/null 2>/dev/null | ask; fi\n",
		               p->needs, p->name, p->script);
	}
	return r == 0 ? buf_printf(out, "exit 0\n") : r;
}

int registry_add(struct registry_list *l, const char *tool, const struct url_origin *at)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct registry *g = &l->v[i];
		if (strcmp(g->tool, tool) == 0 && strcmp(g->at.host, at->host) == 0 &&
		    g->at.port == at->port && g->at.tls == at->tls)
			return 0;
	}
	if (l->n == REGISTRY_MAX)
		return -E2BIG;
	struct registry *g = &l->v[l->n++];
	size_t n = strlen(tool);
	ASSERT(n < sizeof(g->tool));
	memcpy(g->tool, tool, n + 1);
	g->at = *at;
	return 0;
}

static const char *probe_name(struct span s)
{
	for (size_t i = 0; i < registry_probes_n; i++) {
		if (span_eq(s, span_str(registry_probes[i].name)))
			return registry_probes[i].name;
	}
	return NULL;
}

static bool take_line(struct span *text, struct span *line)
{
	const uint8_t *nl = text->len ? memchr(text->p, '\n', text->len) : NULL;
	size_t n = nl ? (size_t)(nl - text->p) : text->len;

	if (text->len == 0)
		return false;
	*line = span_of(text->p, n);
	n += nl != NULL;
	*text = span_of(text->p + n, text->len - n);
	return true;
}

static struct span trim(struct span s)
{
	while (s.len && (s.p[0] == ' ' || s.p[0] == '\t'))
		s = span_of(s.p + 1, s.len - 1);
	while (s.len && strchr(" \t\r", s.p[s.len - 1]) && s.p[s.len - 1])
		s.len--;
	return s;
}

size_t registry_scan(struct registry_list *out, struct span text)
{
	const char *tool = NULL;
	size_t left_out = 0;
	struct span line;

	*out = (struct registry_list){ 0 };
	text.len = MIN(text.len, (size_t)REGISTRY_OUTPUT_MAX);
	while (take_line(&text, &line)) {
		struct url_origin u;
		line = trim(line);
		if (line.len && line.p[0] == '@')
			tool = probe_name(span_of(line.p + 1, line.len - 1));
		else if (tool && url_origin_parse(&u, line, NULL) == 0)
			left_out += registry_add(out, tool, &u) < 0;
	}
	return left_out;
}

bool registry_has(const struct registry_list *l, const char *tool)
{
	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->v[i].tool, tool) == 0)
			return true;
	}
	return false;
}

int registry_put(const struct registry_list *l, struct buf *out)
{
	char text[URL_ORIGIN_BYTES];
	int r = 0;

	for (size_t i = 0; i < l->n && r == 0; i++)
		r = buf_printf(out, "%s %s\n", l->v[i].tool, url_origin_str(text, &l->v[i].at));
	return r;
}

int registry_parse(struct registry_list *out, struct span text)
{
	struct registry_list l = { 0 };
	struct span line;

	if (text.len > REGISTRY_TEXT_MAX || (text.len && text.p[text.len - 1] != '\n'))
		return -EPROTO;
	while (take_line(&text, &line)) {
		const uint8_t *blank = line.len ? memchr(line.p, ' ', line.len) : NULL;
		char back[URL_ORIGIN_BYTES];
		struct url_origin u;
		size_t before = l.n;
		if (!blank)
			return -EPROTO;
		size_t n = (size_t)(blank - line.p);
		const char *tool = probe_name(span_of(line.p, n));
		struct span url = span_of(blank + 1, line.len - n - 1);
		if (!tool || url_origin_parse(&u, url, NULL) < 0 ||
		    !span_eq(url, span_str(url_origin_str(back, &u))) ||
		    registry_add(&l, tool, &u) < 0 || l.n == before)
			return -EPROTO; /* unknown, not as we write it, too many, or there twice */
	}
	*out = l;
	return 0;
}
