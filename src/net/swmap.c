/* SPDX-License-Identifier: Apache-2.0 */
#include "net/swmap.h"

#include <errno.h>
#include <stdio.h>

#include "net/swmsg.h"

static const char head[] = "cloche-switch 1\n";

struct entry {
	uint32_t addr;
	bool keep;
	char name[SWMSG_NAME_MAX + 1];
};

/* By rising address: few, and looked through seldom. */
struct swmap {
	size_t n;
	struct entry e[SWMAP_NAMES_MAX];
};

_Static_assert(SWMAP_NAMES_MAX *(IP4_STR_BYTES + SWMSG_NAME_MAX + 2) < SWMAP_TEXT_MAX, "fits");
_Static_assert(SWMAP_NAMES_MAX <= SWMAP_LAST - SWMAP_FIRST, "an address for each");

struct swmap *swmap_new(void)
{
	return xcalloc(1, sizeof(struct swmap));
}

void swmap_free(struct swmap *m)
{
	free(m);
}

static struct entry *find(struct swmap *m, struct span name)
{
	for (size_t i = 0; i < m->n; i++) {
		if (span_eq(span_str(m->e[i].name), name))
			return &m->e[i];
	}
	return NULL;
}

static bool in_range(uint32_t addr)
{
	return addr >= SWMAP_FIRST && addr <= SWMAP_LAST;
}

/* The place of @addr, taken or not. */
static size_t place(const struct swmap *m, uint32_t addr)
{
	size_t i = 0;

	while (i < m->n && m->e[i].addr < addr)
		i++;
	return i;
}

static bool taken(const struct swmap *m, uint32_t addr)
{
	size_t i = place(m, addr);

	return i < m->n && m->e[i].addr == addr;
}

static struct entry *insert(struct swmap *m, uint32_t addr, struct span name, bool keep)
{
	struct entry *e = &m->e[place(m, addr)];

	ASSERT(m->n < SWMAP_NAMES_MAX && name.len <= SWMSG_NAME_MAX);
	memmove(e + 1, e, (size_t)(m->e + m->n - e) * sizeof(*e));
	*e = (struct entry){ .addr = addr, .keep = keep };
	memcpy(e->name, name.p, name.len);
	m->n++;
	return e;
}

static void take_out(struct swmap *m, struct entry *e)
{
	m->n--;
	memmove(e, e + 1, (size_t)(m->e + m->n - e) * sizeof(*e));
}

/* The next line without its end; false when there is none that is whole. */
static bool line_next(struct span *text, struct span *out)
{
	const uint8_t *nl = text->len ? memchr(text->p, '\n', text->len) : NULL;

	if (!nl)
		return false;
	*out = span_of(text->p, (size_t)(nl - text->p));
	*text = span_of(nl + 1, text->len - out->len - 1);
	return true;
}

static int parse_entry(struct swmap *m, struct span line, uint32_t *last)
{
	const uint8_t *sp = line.len ? memchr(line.p, ' ', line.len) : NULL;
	uint32_t addr;

	if (!sp || ip4_parse(&addr, span_of(line.p, (size_t)(sp - line.p))) < 0)
		return -EPROTO;
	struct span name = span_of(sp + 1, line.len - (size_t)(sp - line.p) - 1);
	if (!in_range(addr) || addr <= *last || m->n == SWMAP_NAMES_MAX || !swmsg_name_ok(name) ||
	    find(m, name))
		return -EPROTO;
	*last = addr;
	(void)insert(m, addr, name, true);
	return 0;
}

static int parse(struct swmap *m, struct span text)
{
	struct span line;
	uint32_t last = 0;
	char end[32];

	if (text.len > SWMAP_TEXT_MAX || text.len < sizeof(head) - 1 ||
	    memcmp(text.p, head, sizeof(head) - 1) != 0)
		return -EPROTO;
	text = span_of(text.p + sizeof(head) - 1, text.len - (sizeof(head) - 1));
	while (line_next(&text, &line)) {
		(void)snprintf(end, sizeof(end), "end %zu", m->n);
		if (span_eq(line, span_str(end)))
			return text.len ? -EPROTO : 0;
		int r = parse_entry(m, line, &last);
		if (r < 0)
			return r;
	}
	return -EPROTO; /* cut */
}

int swmap_parse(struct swmap *m, struct span text)
{
	m->n = 0;
	int r = parse(m, text);
	if (r < 0)
		m->n = 0;
	return r;
}

int swmap_put(const struct swmap *m, struct buf *out)
{
	size_t start = out->len, n = 0;
	char a[IP4_STR_BYTES];
	int r = buf_put(out, head, sizeof(head) - 1);

	for (size_t i = 0; r == 0 && i < m->n; i++) {
		if (!m->e[i].keep)
			continue;
		n++;
		r = buf_printf(out, "%s %s\n", ip4_str(a, m->e[i].addr), m->e[i].name);
	}
	if (r == 0)
		r = buf_printf(out, "end %zu\n", n);
	if (r < 0)
		out->len = start;
	return r;
}

int swmap_assign(struct swmap *m, struct span name, uint32_t want, bool keep, uint32_t *out_addr)
{
	struct entry *e = find(m, name);

	if (!e) {
		if (m->n == SWMAP_NAMES_MAX)
			return -ENOSPC;
		uint32_t addr = want;
		if (!in_range(want) || taken(m, want)) {
			addr = SWMAP_FIRST; /* fewer names than addresses: one is free */
			for (size_t i = 0; i < m->n && m->e[i].addr == addr; i++)
				addr++;
		}
		e = insert(m, addr, name, keep);
	}
	e->keep |= keep;
	*out_addr = e->addr;
	return 0;
}

int swmap_remove(struct swmap *m, struct span name, uint32_t *out_addr)
{
	struct entry *e = find(m, name);

	if (!e)
		return -ENOENT;
	*out_addr = e->addr;
	take_out(m, e);
	return 0;
}

void swmap_release(struct swmap *m, struct span name)
{
	struct entry *e = find(m, name);

	if (e && !e->keep)
		take_out(m, e);
}

size_t swmap_count(const struct swmap *m)
{
	return m->n;
}
