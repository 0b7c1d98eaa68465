/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index: a hash table of patterns. Each pattern (a name, with or without
 * "*.") has the list of its rules, allow and deny apart, both short
 * (EGRESS_PORTS_MAX). A question for a.b.c walks the patterns a.b.c, *.b.c and
 * *.c, the most specific first.
 */
#include "policy/egress.h"

#include <errno.h>

#include "base/hash.h"

enum {
	MAGIC = 0x50474543, /* "CEGP" */
	VERSION = 1,
	HEADER_BYTES = 14,
	FLAG_WILD = 1,
	FLAG_DENY = 2,
	BUCKETS_MIN = 64,
	LABELS_MAX = HOST_NAME_MAX_BYTES / 2 + 1,
};

struct node {
	struct egress_rule r;
	struct node *next; /* of the same pattern and direction */
};

struct entry {
	struct entry *next; /* of the same bucket */
	uint64_t hash;
	struct node *allow, *deny;
	/* of host_pattern */
	bool wild;
	char name[];
};

struct egress {
	enum egress_profile profile;
	uint8_t key[HASH_KEY_BYTES];
	struct node **rules; /* in the order of adding */
	size_t n, cap;
	struct entry **buckets;
	size_t n_buckets, n_entries; /* n_buckets: a power of two */
	struct ip4_net privates[EGRESS_PRIVATE_MAX];
	uint16_t services[EGRESS_SERVICES_MAX];
	size_t n_privates, n_services;
};

static const char *const profile_names[] = {
	[EGRESS_PERMISSIVE] = "permissive",
	[EGRESS_STANDARD] = "standard",
	[EGRESS_LOCKED] = "locked",
};

int egress_profile_parse(const char *s, enum egress_profile *out)
{
	for (size_t i = 0; i < ARRAY_LEN(profile_names); i++) {
		if (strcmp(s, profile_names[i]) == 0) {
			*out = (enum egress_profile)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *egress_profile_name(enum egress_profile p)
{
	ASSERT((size_t)p < ARRAY_LEN(profile_names));
	return profile_names[p];
}

static const char *const origin_names[] = {
	[EGRESS_FROM_PROVIDER] = "provider", [EGRESS_FROM_SOURCES] = "sources",
	[EGRESS_FROM_REGISTRY] = "registry", [EGRESS_FROM_CONFIG] = "config",
	[EGRESS_FROM_FLAG] = "flag",         [EGRESS_FROM_LIVE] = "live",
};

static bool origin_ok(unsigned o)
{
	return o >= EGRESS_FROM_PROVIDER && o < ARRAY_LEN(origin_names);
}

const char *egress_origin_name(enum egress_origin o)
{
	ASSERT(origin_ok(o));
	return origin_names[o];
}

struct egress *egress_new(enum egress_profile p)
{
	struct egress *e = xcalloc(1, sizeof(*e));

	ASSERT((size_t)p < ARRAY_LEN(profile_names));
	e->profile = p;
	random_bytes(e->key, sizeof(e->key));
	e->n_buckets = BUCKETS_MIN;
	e->buckets = xcalloc(e->n_buckets, sizeof(struct entry *));
	return e;
}

static void node_free(struct node *n)
{
	free(n->r.note);
	free(n);
}

void egress_free(struct egress *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < e->n; i++)
		node_free(e->rules[i]);
	for (size_t i = 0; i < e->n_buckets; i++) {
		for (struct entry *x = e->buckets[i], *next; x; x = next) {
			next = x->next;
			free(x);
		}
	}
	free(e->rules);
	free(e->buckets);
	free(e);
}

enum egress_profile egress_profile_of(const struct egress *e)
{
	return e->profile;
}

/* ---- index ---- */

static uint64_t name_hash(const struct egress *e, const char *name, size_t len)
{
	return hash_keyed(e->key, name, len);
}

static struct entry *entry_find(const struct egress *e, const char *name, size_t len, bool wild)
{
	uint64_t h = name_hash(e, name, len);

	for (struct entry *x = e->buckets[h & (e->n_buckets - 1)]; x; x = x->next) {
		if (x->hash == h && x->wild == wild && strlen(x->name) == len &&
		    memcmp(x->name, name, len) == 0)
			return x;
	}
	return NULL;
}

static struct entry *entry_of(const struct egress *e, const struct host_pattern *h)
{
	return entry_find(e, h->name, strlen(h->name), h->wild);
}

/* Without memory the table stays as it is: slower, not wrong. */
static void grow(struct egress *e)
{
	size_t n = e->n_buckets * 2;
	struct entry **b = calloc(n, sizeof(struct entry *));

	if (!b)
		return;
	for (size_t i = 0; i < e->n_buckets; i++) {
		for (struct entry *x = e->buckets[i], *next; x; x = next) {
			next = x->next;
			x->next = b[x->hash & (n - 1)];
			b[x->hash & (n - 1)] = x;
		}
	}
	free(e->buckets);
	e->buckets = b;
	e->n_buckets = n;
}

static struct entry *entry_make(struct egress *e, const struct host_pattern *h)
{
	size_t len = strlen(h->name);
	struct entry *x = malloc(sizeof(*x) + len + 1);

	if (!x)
		return NULL;
	*x = (struct entry){ .hash = name_hash(e, h->name, len), .wild = h->wild };
	memcpy(x->name, h->name, len + 1);
	if (e->n_entries >= e->n_buckets)
		grow(e);
	struct entry **at = &e->buckets[x->hash & (e->n_buckets - 1)];
	x->next = *at;
	*at = x;
	e->n_entries++;
	return x;
}

/* Drop @x when no rule is left of it. */
static void entry_tidy(struct egress *e, struct entry *x)
{
	struct entry **at = &e->buckets[x->hash & (e->n_buckets - 1)];

	if (x->allow || x->deny)
		return;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	e->n_entries--;
	free(x);
}

/* The patterns that match @name, the most specific first. Return: how many. */
static size_t entries_for(const struct egress *e, const char *name,
                          const struct entry *out[LABELS_MAX])
{
	size_t len = strlen(name), n = 0;
	const struct entry *x;

	if (len > HOST_NAME_MAX_BYTES)
		return 0;
	x = entry_find(e, name, len, false);
	if (x)
		out[n++] = x;
	for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
		if (n == LABELS_MAX)
			break; /* more labels than a name has */
		x = entry_find(e, dot + 1, len - (size_t)(dot + 1 - name), true);
		if (x)
			out[n++] = x;
	}
	return n;
}

/* ---- filling ---- */

static size_t note_len(const struct egress_rule *r)
{
	return r->note ? strlen(r->note) : 0;
}

static bool rule_ok(const struct egress_rule *r)
{
	if (!host_pattern_ok(&r->host) || !origin_ok(r->origin) || note_len(r) > EGRESS_NOTE_MAX)
		return false;
	if (r->deny)
		return r->kind == 0;
	return r->host.port && !egress_port_closed(r->host.port, NULL) &&
	       (r->kind == EGRESS_NAMED || r->kind == EGRESS_RAW);
}

static struct egress_rule with_defaults(const struct egress_rule *r)
{
	struct egress_rule d = *r;

	if (d.deny) {
		d.kind = 0;
		return d;
	}
	if (d.host.port == 0)
		d.host.port = 443;
	if (d.kind == 0)
		d.kind = d.host.port == 80 || d.host.port == 443 ? EGRESS_NAMED : EGRESS_RAW;
	return d;
}

/* @r with a note of its own, or NULL without memory. */
static struct node *node_make(const struct egress_rule *r)
{
	struct node *n = malloc(sizeof(*n));

	if (!n)
		return NULL;
	*n = (struct node){ .r = *r };
	n->r.note = NULL;
	/* bytes behind the name are nobody's business */
	memset(n->r.host.name, 0, sizeof(n->r.host.name));
	memcpy(n->r.host.name, r->host.name, strlen(r->host.name));
	if (note_len(r)) {
		n->r.note = strdup(r->note);
		if (!n->r.note) {
			free(n);
			return NULL;
		}
	}
	return n;
}

static int rules_reserve(struct egress *e)
{
	if (e->n < e->cap)
		return 0;
	size_t cap = e->cap ? e->cap * 2 : 16;
	struct node **p = realloc(e->rules, cap * sizeof(struct node *));
	if (!p)
		return -ENOMEM;
	e->rules = p;
	e->cap = cap;
	return 0;
}

/* @fresh says the same as @old of the list: the later word counts. Takes @fresh. */
static void replace(struct node *old, struct node *fresh)
{
	if (old->r.kind != fresh->r.kind) {
		free(old->r.note);
		old->r.note = take_ptr(&fresh->r.note);
		old->r.kind = fresh->r.kind;
		old->r.origin = fresh->r.origin;
	}
	node_free(fresh);
}

int egress_add(struct egress *e, const struct egress_rule *given)
{
	struct egress_rule r = with_defaults(given);
	struct node **at, *n;
	size_t same = 0;

	if (!rule_ok(&r))
		return -EINVAL;
	if (r.deny && e->profile == EGRESS_PERMISSIVE)
		return -ENOTSUP;
	struct entry *x = entry_of(e, &r.host);
	for (n = x ? (r.deny ? x->deny : x->allow) : NULL; n; n = n->next, same++) {
		if (n->r.host.port == r.host.port) {
			struct node *fresh = node_make(&r);

			if (!fresh)
				return -ENOMEM;
			replace(n, fresh);
			return 0;
		}
	}
	if (e->n >= EGRESS_RULES_MAX || same >= EGRESS_PORTS_MAX)
		return -E2BIG;
	if (rules_reserve(e) < 0 || !(n = node_make(&r)))
		return -ENOMEM;
	if (!x && !(x = entry_make(e, &r.host))) {
		node_free(n);
		return -ENOMEM;
	}
	for (at = r.deny ? &x->deny : &x->allow; *at;)
		at = &(*at)->next;
	*at = n;
	e->rules[e->n++] = n;
	return 0;
}

static void rule_remove(struct egress *e, const struct node *n)
{
	size_t i = 0;

	while (e->rules[i] != n)
		i++;
	e->n--;
	memmove(&e->rules[i], &e->rules[i + 1], (e->n - i) * sizeof(struct node *));
}

/* Of the list at @at, what has @port (0: all) or, @wide, is for every port. Return: how many. */
static size_t take_back(struct egress *e, struct node **at, uint16_t port, bool wide)
{
	size_t gone = 0;

	while (*at) {
		struct node *n = *at;
		bool hit = port == 0 || n->r.host.port == port || (wide && n->r.host.port == 0);

		if (!hit) {
			at = &n->next;
			continue;
		}
		*at = n->next;
		rule_remove(e, n);
		node_free(n);
		gone++;
	}
	return gone;
}

int egress_deny_from(struct egress *e, const struct host_pattern *h, enum egress_origin origin)
{
	struct egress_rule r = { .host = *h, .origin = (uint8_t)origin, .deny = true };
	int got = egress_add(e, &r);

	if (got < 0)
		return got;
	struct entry *x = entry_of(e, h);
	ASSERT(x); /* the rule that was just added is in it */
	(void)take_back(e, &x->allow, h->port, false);
	return 0;
}

int egress_deny(struct egress *e, const struct host_pattern *h)
{
	return egress_deny_from(e, h, EGRESS_FROM_CONFIG);
}

size_t egress_undeny(struct egress *e, const struct host_pattern *h)
{
	struct entry *x = host_pattern_ok(h) ? entry_of(e, h) : NULL;
	size_t n;

	if (!x)
		return 0;
	n = take_back(e, &x->deny, h->port, true);
	entry_tidy(e, x);
	return n;
}

int egress_add_service(struct egress *e, uint16_t port)
{
	if (port == 0 || egress_port_closed(port, NULL))
		return -EINVAL;
	if (egress_service_ok(e, port))
		return 0;
	if (e->n_services == EGRESS_SERVICES_MAX)
		return -E2BIG;
	e->services[e->n_services++] = port;
	return 0;
}

/* ---- addresses and ports ---- */

/* RFC 6890 and its registry; the first that has the address names it. */
static const struct {
	const char *why;
	struct ip4_net net;
	bool may_open; /* by egress_allow_private() */
} closed[] = {
	{ "metadata", { IP4(169, 254, 169, 254), 32 }, true },
	{ "this-network", { IP4(0, 0, 0, 0), 8 }, false },
	{ "private", { IP4(10, 0, 0, 0), 8 }, true },
	{ "shared-space", { IP4(100, 64, 0, 0), 10 }, true },
	{ "loopback", { IP4(127, 0, 0, 0), 8 }, true },
	{ "link-local", { IP4(169, 254, 0, 0), 16 }, true },
	{ "private", { IP4(172, 16, 0, 0), 12 }, true },
	{ "reserved", { IP4(192, 0, 0, 0), 24 }, false },
	{ "private", { IP4(192, 168, 0, 0), 16 }, true },
	{ "multicast", { IP4(224, 0, 0, 0), 4 }, false },
	{ "broadcast", { IP4(255, 255, 255, 255), 32 }, false },
	{ "reserved", { IP4(240, 0, 0, 0), 4 }, false },
};

enum { METADATA = 0 }; /* of closed */

int egress_allow_private(struct egress *e, struct ip4_net n)
{
	bool ok = false;

	for (size_t i = 0; i < ARRAY_LEN(closed) && !ok; i++)
		ok = closed[i].may_open && n.bits >= closed[i].net.bits && n.bits <= 32 &&
		     ip4_net_has(closed[i].net, n.addr);
	if (!ok || !ip4_net_has(n, n.addr))
		return -EINVAL;
	for (size_t i = 0; i < e->n_privates; i++) {
		if (e->privates[i].addr == n.addr && e->privates[i].bits == n.bits)
			return 0;
	}
	if (e->n_privates == EGRESS_PRIVATE_MAX)
		return -E2BIG;
	e->privates[e->n_privates++] = (struct ip4_net){ .addr = n.addr, .bits = n.bits };
	return 0;
}

const char *egress_addr_closed(const struct egress *e, uint32_t addr)
{
	bool metadata = ip4_net_has(closed[METADATA].net, addr);
	size_t i = 0;

	while (i < ARRAY_LEN(closed) && !ip4_net_has(closed[i].net, addr))
		i++;
	if (i == ARRAY_LEN(closed))
		return NULL;
	for (size_t k = 0; k < e->n_privates; k++) {
		if (ip4_net_has(e->privates[k], addr) && (!metadata || e->privates[k].bits == 32))
			return NULL;
	}
	return closed[i].why;
}

bool egress_port_closed(uint16_t port, const char **out_why)
{
	if (port != 25)
		return false;
	if (out_why)
		*out_why = "mail between servers, which spam abuses";
	return true;
}

/* ---- questions ---- */

static const struct node *of_port(const struct node *n, uint16_t port)
{
	while (n && n->r.host.port != port)
		n = n->next;
	return n;
}

static const struct egress_rule *denied(const struct entry *const *x, size_t n, uint16_t port)
{
	for (size_t i = 0; i < n; i++) {
		const struct node *d = of_port(x[i]->deny, 0);

		if (!d)
			d = of_port(x[i]->deny, port);
		if (d)
			return &d->r;
	}
	return NULL;
}

size_t egress_ports(const struct egress *e, const char *name, uint16_t *out, size_t cap)
{
	const struct entry *x[LABELS_MAX];
	size_t n, got = 0;

	if (e->profile == EGRESS_PERMISSIVE)
		return 0;
	n = entries_for(e, name, x);
	for (size_t i = 0; i < n; i++) {
		for (const struct node *a = x[i]->allow; a && got < cap; a = a->next) {
			uint16_t port = a->r.host.port;
			bool seen = false;

			for (size_t k = 0; k < i && !seen; k++)
				seen = of_port(x[k]->allow, port) != NULL;
			if (!seen && !denied(x, n, port))
				out[got++] = port;
		}
	}
	return got;
}

bool egress_name_ok(const struct egress *e, const char *name)
{
	uint16_t port;

	return e->profile == EGRESS_PERMISSIVE || egress_ports(e, name, &port, 1) > 0;
}

const struct egress_rule *egress_find(const struct egress *e, const char *name, uint16_t port)
{
	static const struct egress_rule any = { .host = { .wild = true }, .kind = EGRESS_RAW };
	const struct entry *x[LABELS_MAX];
	const struct node *a = NULL;

	if (egress_port_closed(port, NULL))
		return NULL;
	if (e->profile == EGRESS_PERMISSIVE)
		return &any;
	size_t n = entries_for(e, name, x);
	if (denied(x, n, port))
		return NULL;
	for (size_t i = 0; i < n && !a; i++)
		a = of_port(x[i]->allow, port);
	return a ? &a->r : NULL;
}

const struct egress_rule *egress_denied(const struct egress *e, const char *name, uint16_t port)
{
	const struct entry *x[LABELS_MAX];
	size_t n = entries_for(e, name, x);

	return denied(x, n, port);
}

bool egress_service_ok(const struct egress *e, uint16_t port)
{
	for (size_t i = 0; i < e->n_services; i++) {
		if (e->services[i] == port)
			return true;
	}
	return false;
}

size_t egress_count(const struct egress *e)
{
	return e->n;
}

const struct egress_rule *egress_rule_at(const struct egress *e, size_t i)
{
	ASSERT(i < e->n);
	return &e->rules[i]->r;
}

size_t egress_privates(const struct egress *e, const struct ip4_net **out)
{
	*out = e->privates;
	return e->n_privates;
}

size_t egress_services(const struct egress *e, const uint16_t **out)
{
	*out = e->services;
	return e->n_services;
}

/* ---- the carried form ---- */

static size_t rule_bytes(const struct egress_rule *r)
{
	return 7 + strlen(r->host.name) + note_len(r);
}

int egress_put(const struct egress *e, struct buf *out)
{
	size_t need = HEADER_BYTES + 5 * e->n_privates + 2 * e->n_services;

	for (size_t i = 0; i < e->n; i++)
		need += rule_bytes(&e->rules[i]->r); /* bounded by EGRESS_RULES_MAX */
	int got = buf_reserve(out, need);
	if (got < 0)
		return got;
	struct wr w = wr_of(out->p + out->len, need);
	wr_le(&w, MAGIC, 4);
	wr_le(&w, VERSION, 1);
	wr_le(&w, e->profile, 1);
	wr_le(&w, e->n, 4);
	wr_le(&w, e->n_privates, 2);
	wr_le(&w, e->n_services, 2);
	for (size_t i = 0; i < e->n; i++) {
		const struct egress_rule *r = &e->rules[i]->r;

		wr_le(&w, (r->host.wild ? FLAG_WILD : 0) | (r->deny ? FLAG_DENY : 0), 1);
		wr_le(&w, r->kind, 1);
		wr_le(&w, r->origin, 1);
		wr_le(&w, r->host.port, 2);
		wr_blob(&w, span_str(r->host.name), 1);
		wr_blob(&w, span_of(r->note, note_len(r)), 1);
	}
	for (size_t i = 0; i < e->n_privates; i++) {
		wr_le(&w, e->privates[i].addr, 4);
		wr_le(&w, e->privates[i].bits, 1);
	}
	for (size_t i = 0; i < e->n_services; i++)
		wr_le(&w, e->services[i], 2);
	ASSERT(!w.bad && w.left == 0);
	out->len += need;
	return 0;
}

/* One rule, and it must be a new one in the form in which it is kept. */
static int rule_take(struct egress *e, struct rd *r)
{
	char note[EGRESS_NOTE_MAX + 1] = "";
	struct egress_rule v = { .note = note };
	size_t before = e->n;

	uint8_t flags = (uint8_t)rd_le(r, 1);
	v.kind = (uint8_t)rd_le(r, 1);
	v.origin = (uint8_t)rd_le(r, 1);
	v.host.port = (uint16_t)rd_le(r, 2);
	struct span name = rd_blob(r, 1, HOST_NAME_MAX_BYTES);
	struct span text = rd_blob(r, 1, EGRESS_NOTE_MAX);
	if (r->bad || (flags & ~(FLAG_WILD | FLAG_DENY)) ||
	    (text.len && memchr(text.p, '\0', text.len)) || !host_name_ok(name))
		return -EPROTO;
	if (name.len) /* always: the grammar has no empty name */
		memcpy(v.host.name, name.p, name.len);
	if (text.len)
		memcpy(note, text.p, text.len);
	v.host.wild = flags & FLAG_WILD;
	v.deny = flags & FLAG_DENY;
	if (!rule_ok(&v))
		return -EPROTO; /* also where egress_add() would put in a default */
	int got = egress_add(e, &v);
	if (got == -ENOMEM || got == -E2BIG)
		return got;
	return got < 0 || e->n == before ? -EPROTO : 0;
}

static int body_take(struct egress *e, struct rd *r, size_t rules, size_t privates, size_t services)
{
	for (size_t i = 0; i < rules; i++) {
		int got = rule_take(e, r);

		if (got < 0)
			return got;
	}
	for (size_t i = 0; i < privates; i++) {
		struct ip4_net n = { .addr = (uint32_t)rd_le(r, 4) };

		n.bits = (uint8_t)rd_le(r, 1);
		if (r->bad || egress_allow_private(e, n) < 0 || e->n_privates != i + 1)
			return -EPROTO;
	}
	for (size_t i = 0; i < services; i++) {
		uint16_t port = (uint16_t)rd_le(r, 2);

		if (r->bad || egress_add_service(e, port) < 0 || e->n_services != i + 1)
			return -EPROTO;
	}
	return r->bad || r->left ? -EPROTO : 0;
}

int egress_parse(struct egress **out, struct span in)
{
	struct rd r = rd_of(in.p, in.len);

	if (in.len > EGRESS_BYTES_MAX)
		return -E2BIG;
	uint32_t magic = (uint32_t)rd_le(&r, 4);
	uint8_t version = (uint8_t)rd_le(&r, 1), profile = (uint8_t)rd_le(&r, 1);
	size_t rules = (size_t)rd_le(&r, 4);
	size_t privates = (size_t)rd_le(&r, 2), services = (size_t)rd_le(&r, 2);
	if (r.bad || magic != MAGIC || version != VERSION || profile >= ARRAY_LEN(profile_names))
		return -EPROTO;
	if (rules > EGRESS_RULES_MAX || privates > EGRESS_PRIVATE_MAX ||
	    services > EGRESS_SERVICES_MAX)
		return -E2BIG;
	struct egress *e = egress_new((enum egress_profile)profile);
	int got = body_take(e, &r, rules, privates, services);
	if (got < 0) {
		egress_free(e);
		return got;
	}
	*out = e;
	return 0;
}
