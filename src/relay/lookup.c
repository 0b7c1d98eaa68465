/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c - questions of the guest: the policy, the host's files, the cache, then
 * the host's servers with its search list.
 *
 * Equal questions wait for one answer. A lookup has a time of its own, after which
 * its askers are told SERVFAIL; what the servers say later still fills the cache, so
 * that the guest's next try succeeds. Without a resolv.conf yet it waits for one.
 */
#include "relay/relay_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/resolve.h"

enum {
	CACHE_MAX = 1024,
	HOSTS_TTL_S = PINS_TTL_MIN_S,
	DEADLINE_MIN_MS = 2 * 1000,
	DEADLINE_MAX_MS =
		12 * 1000, /* cloche-net itself gives up after 15 s, and uses the number again */
	CACHE_BUCKETS = 256,
};

struct cached {
	char name[HOST_NAME_BYTES];
	uint64_t until_ms;
	size_t n;
	uint32_t addrs[ANSWER_ADDRS_MAX];
	struct cached *next;
};

struct lookup {
	struct relay *r;
	char name[HOST_NAME_BYTES];
	size_t candidate; /* of the search list: the next to ask for */
	bool asked;       /* resolve.c has a question of ours */
	bool no_data, failed;
	struct loop_timer deadline;
	uint16_t ids[NETMSG_IDS]; /* who waits */
	size_t n_ids;
	struct lookup *next;
};

struct lookups {
	struct relay *r;
	struct resolvconf conf;
	bool have_conf;
	struct buf hosts;
	struct lookup *list;
	size_t n;
	struct cached *cache[CACHE_BUCKETS];
	size_t n_cached;
	uint8_t key[HASH_KEY_BYTES]; /* names are chosen by the guest */
};

/* ---- answers ------------------------------------------------------------------- */

static void reply(struct relay *r, uint16_t id, uint8_t rcode, uint64_t ttl_s,
                  const uint32_t *addrs, size_t n)
{
	struct netmsg m = { .type = NETMSG_ANSWER };

	m.answer.id = id;
	m.answer.rcode = rcode;
	m.answer.ttl_s = (uint32_t)ttl_s;
	m.answer.n = (uint8_t)n;
	if (n)
		memcpy(m.answer.addrs, addrs, n * sizeof(*addrs));
	net_send(r, &m);
}

static void tell(struct relay *r, const char *name, const char *verdict, const char *reason,
                 const char *detail, const uint32_t *addrs, size_t n)
{
	struct event e = { .ev = "dns",
		           .verdict = verdict,
		           .reason = reason,
		           .detail = detail,
		           .name = name,
		           .n_addrs = n,
		           .addrs = addrs };

	events_write(r->events, &e);
}

/* What an answer opens. Before the guest hears of it, or its SYN comes too early. */
static void pin(struct relay *r, const char *name, const uint32_t *addrs, size_t n, uint64_t ttl_s)
{
	uint16_t ports[PINS_PORTS_MAX];
	size_t n_ports = egress_ports(r->policy, name, ports, PINS_PORTS_MAX);

	for (size_t i = 0; i < n; i++)
		pins_add(r->pins, addrs[i], name, ports, n_ports, (uint32_t)ttl_s, relay_now_ms(r));
}

/* ---- cache ---------------------------------------------------------------------- */

static struct cached **bucket(struct lookups *ls, const char *name)
{
	return &ls->cache[hash_keyed(ls->key, name, strlen(name)) % CACHE_BUCKETS];
}

static void cache_sweep(struct lookups *ls, uint64_t now_ms)
{
	for (size_t i = 0; i < CACHE_BUCKETS; i++) {
		for (struct cached **at = &ls->cache[i]; *at;) {
			struct cached *c = *at;

			if (c->until_ms > now_ms) {
				at = &c->next;
				continue;
			}
			*at = c->next;
			free(c);
			ls->n_cached--;
		}
	}
}

static const struct cached *cache_find(struct lookups *ls, const char *name, uint64_t now_ms)
{
	const struct cached *c = *bucket(ls, name);

	while (c && (c->until_ms <= now_ms || strcmp(c->name, name) != 0))
		c = c->next;
	return c;
}

static void cache_put(struct lookups *ls, const char *name, const uint32_t *addrs, size_t n,
                      uint64_t ttl_s)
{
	struct cached **at = bucket(ls, name);

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	if (!*at) {
		if (ls->n_cached == CACHE_MAX)
			return; /* it is asked for again; those that are there end in an hour at most */
		*at = xcalloc(1, sizeof(**at));
		memcpy((*at)->name, name, strlen(name) + 1);
		ls->n_cached++;
	}
	(*at)->until_ms = relay_now_ms(ls->r) + ttl_s * 1000;
	(*at)->n = n;
	memcpy((*at)->addrs, addrs, n * sizeof(*addrs));
}

/* ---- lookups --------------------------------------------------------------------- */

static void finish(struct lookup *k, uint8_t rcode, uint64_t ttl_s, const uint32_t *addrs, size_t n)
{
	for (size_t i = 0; i < k->n_ids; i++)
		reply(k->r, k->ids[i], rcode, ttl_s, addrs, n);
	k->n_ids = 0;
	loop_timer_del(k->r->l, &k->deadline);
}

static void drop(struct lookup *k)
{
	struct lookup **at = &k->r->lookups->list;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	k->r->lookups->n--;
	loop_timer_del(k->r->l, &k->deadline);
	free(k);
}

/* A whole answer, from a server or the hosts file: refused as a whole, or pinned and kept. */
static uint8_t judge(struct relay *r, const char *name, const uint32_t *addrs, size_t n,
                     uint64_t ttl_s)
{
	for (size_t i = 0; i < n; i++) {
		const char *detail;
		enum why why = judge_answer(r->policy, addrs[i], &detail);

		if (why == WHY_NONE && dial_own(r->policy, addrs[i])) {
			why = WHY_REBINDING;
			detail = why_name(WHY_HOST_ADDRESS);
		}
		if (why == WHY_NONE)
			continue;
		tell(r, name, "refused", why_name(why), detail, &addrs[i], 1);
		return NETMSG_NXDOMAIN;
	}
	pin(r, name, addrs, n, ttl_s);
	cache_put(r->lookups, name, addrs, n, ttl_s);
	tell(r, name, "allowed", NULL, NULL, addrs, n);
	return NETMSG_NOERROR;
}

static void give_up(struct lookup *k)
{
	struct relay *r = k->r;

	if (k->failed)
		tell(r, k->name, NULL, why_name(WHY_UPSTREAM), NULL, NULL, 0);
	else
		tell(r, k->name, "allowed", k->no_data ? "no-data" : "nxdomain", NULL, NULL, 0);
	finish(k,
	       k->failed    ? NETMSG_SERVFAIL
	       : k->no_data ? NETMSG_NOERROR
	                    : NETMSG_NXDOMAIN,
	       0, NULL, 0);
	drop(k);
}

static void on_answer(void *arg, int code, const struct answer *a);

/* The next name of the search list, or the end. */
static void ask(struct lookup *k)
{
	struct lookups *ls = k->r->lookups;
	char name[HOST_NAME_BYTES];

	if (!ls->have_conf)
		return; /* lookup_set_resolv() comes back */
	if (!resolvconf_candidate(&ls->conf, k->name, k->candidate, name)) {
		give_up(k);
		return;
	}
	k->candidate++;
	k->asked = true;
	resolve_ask(k->r->resolve, name, on_answer, k);
}

static void on_answer(void *arg, int code, const struct answer *a)
{
	struct lookup *k = arg;

	k->asked = false;
	if (code == -ECANCELED)
		return; /* c-ares is about to get its new servers: lookup_set_resolv() goes on */
	if (code == 0 && a->rcode == NETMSG_NOERROR && a->n > 0) {
		uint32_t ttl_s = pins_ttl_s(a->ttl_s);
		uint8_t rcode = NETMSG_NXDOMAIN;

		/* a `net deny` may have come meanwhile */
		if (egress_name_ok(k->r->policy, k->name))
			rcode = judge(k->r, k->name, a->addrs, a->n, ttl_s);
		finish(k, rcode, ttl_s, a->addrs, rcode == NETMSG_NOERROR ? a->n : 0);
		drop(k);
		return;
	}
	if (code < 0 || (a->rcode != NETMSG_NOERROR && a->rcode != NETMSG_NXDOMAIN))
		k->failed = true;
	else if (a->rcode == NETMSG_NOERROR)
		k->no_data = true;
	if (k->failed && k->n_ids == 0)
		drop(k); /* nobody waits, nobody answers */
	else
		ask(k);
}

static void on_deadline(void *arg)
{
	struct lookup *k = arg;

	tell(k->r, k->name, NULL, why_name(WHY_UPSTREAM), "timeout", NULL, 0);
	finish(k, NETMSG_SERVFAIL, 0, NULL, 0);
	if (!k->asked)
		drop(k); /* else its answer, which comes or not, ends it */
}

static uint64_t deadline_ms(const struct lookups *ls)
{
	const struct resolvconf *c = &ls->conf;

	if (!ls->have_conf)
		return DEADLINE_MAX_MS;
	uint64_t ms = (uint64_t)c->timeout_s * c->attempts * c->n_servers * 1000;
	return MIN(MAX(ms, (uint64_t)DEADLINE_MIN_MS), (uint64_t)DEADLINE_MAX_MS);
}

static void lookup_start(struct relay *r, uint16_t id, const char *name)
{
	struct lookups *ls = r->lookups;
	struct lookup *k = ls->list;

	while (k && strcmp(k->name, name) != 0)
		k = k->next;
	if (!k && ls->n == RELAY_LOOKUPS_MAX) {
		tell(r, name, NULL, why_name(WHY_LIMIT), NULL, NULL, 0);
		reply(r, id, NETMSG_SERVFAIL, 0, NULL, 0);
		return;
	}
	bool fresh = !k;
	if (fresh) {
		k = xcalloc(1, sizeof(*k));
		k->r = r;
		memcpy(k->name, name, strlen(name) + 1);
		k->next = ls->list;
		ls->list = k;
		ls->n++;
	}
	if (k->n_ids == ARRAY_LEN(k->ids)) {
		reply(r, id, NETMSG_SERVFAIL, 0, NULL, 0); /* cloche-net uses a number twice */
		return;
	}
	if (k->n_ids == 0)
		loop_timer_set(r->l, &k->deadline, deadline_ms(ls), on_deadline, k);
	k->ids[k->n_ids++] = id;
	if (fresh)
		ask(k); /* it may be over when this comes back */
}

static bool from_hosts(struct relay *r, uint16_t id, const char *name)
{
	uint32_t addrs[HOSTS_ADDRS_MAX];
	bool known;
	size_t n = hosts_find(span_of(r->lookups->hosts.p, r->lookups->hosts.len), name, addrs,
	                      &known);

	if (!known)
		return false;
	uint8_t rcode = n ? judge(r, name, addrs, n, HOSTS_TTL_S) : NETMSG_NOERROR;
	reply(r, id, rcode, HOSTS_TTL_S, addrs, rcode == NETMSG_NOERROR ? n : 0);
	return true;
}

enum { TYPE_A = 1 };

/*
 * What a question asks for beside addresses: a lookup of a program is two, of which
 * one counts, and who sends data in TXT questions is seen.
 */
static const char *other_type(uint16_t qtype)
{
	static const struct {
		uint16_t type;
		const char *name;
	} t[] = { { 28, "AAAA" }, { 12, "PTR" },  { 15, "MX" },    { 16, "TXT" },
		  { 33, "SRV" },  { 64, "SVCB" }, { 65, "HTTPS" }, { 255, "ANY" } };

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		if (t[i].type == qtype)
			return t[i].name;
	}
	return qtype == TYPE_A ? NULL : "other";
}

/* Names of our own, which no server knows: the user's services, and nothing else here. */
static bool of_cloche(struct relay *r, uint16_t id, uint16_t qtype, const char *name)
{
	static const uint32_t service = JUDGE_SERVICE_ADDR;
	static const char suffix[] = ".cloche";
	const uint16_t *ports;
	size_t len = strlen(name);

	if (strcmp(name, JUDGE_SERVICE_NAME) == 0 && egress_services(r->policy, &ports) > 0) {
		reply(r, id, NETMSG_NOERROR, JUDGE_TTL_SERVICE_S, &service,
		      qtype == TYPE_A ? 1 : 0);
		return true;
	}
	if (strcmp(name, suffix + 1) != 0 &&
	    (len < sizeof(suffix) || strcmp(name + len - (sizeof(suffix) - 1), suffix) != 0))
		return false;
	tell(r, name, "refused", why_name(WHY_NAME), other_type(qtype), NULL, 0);
	reply(r, id, NETMSG_NXDOMAIN, 0, NULL, 0);
	return true;
}

void lookup_question(struct relay *r, uint16_t id, uint16_t qtype, const char *name)
{
	uint64_t now_ms = relay_now_ms(r);

	if (of_cloche(r, id, qtype, name))
		return;
	if (!egress_name_ok(r->policy, name)) {
		tell(r, name, "refused", why_name(WHY_NAME), other_type(qtype), NULL, 0);
		reply(r, id, NETMSG_NXDOMAIN, 0, NULL, 0);
		return;
	}
	if (qtype != TYPE_A) {
		/* no IPv6, and no keys or ports of another way to the name */
		reply(r, id, NETMSG_NOERROR, 0, NULL, 0);
		return;
	}
	const struct cached *c = cache_find(r->lookups, name, now_ms);
	if (c) {
		uint64_t ttl_s = (c->until_ms - now_ms + 999) / 1000;

		pin(r, name, c->addrs, c->n, ttl_s);
		reply(r, id, NETMSG_NOERROR, ttl_s, c->addrs, c->n);
		return;
	}
	if (!from_hosts(r, id, name))
		lookup_start(r, id, name);
}

/* ---- the host's files ---------------------------------------------------------------- */

void lookup_set_resolv(struct relay *r, struct span text)
{
	struct lookups *ls = r->lookups;

	resolvconf_parse(&ls->conf, text);
	/* another network may have other answers for the same name */
	cache_sweep(ls, UINT64_MAX);
	int code = resolve_servers(r->resolve, &ls->conf);
	ls->have_conf = code == 0;
	if (code < 0)
		log_warn("the name servers of resolv.conf cannot be used: %s", strerror(-code));
	else
		log_info("name servers of the host are set servers=%zu left_out=%u",
		         ls->conf.n_servers, ls->conf.left_out);
	/* a lookup that ends takes itself out of the list */
	for (struct lookup *k = ls->list, *next; k; k = next) {
		next = k->next;
		if (k->asked)
			continue;
		k->no_data = k->failed = false;
		k->candidate = 0;
		if (k->n_ids == 0)
			drop(k);
		else
			ask(k);
	}
}

void lookup_set_hosts(struct relay *r, struct span text)
{
	struct lookups *ls = r->lookups;

	buf_consume(&ls->hosts, ls->hosts.len);
	if (buf_put(&ls->hosts, text.p, text.len) < 0)
		log_warn("no memory for the host's hosts file");
	cache_sweep(ls, UINT64_MAX); /* a name of it may be of another address now */
}

struct lookups *lookups_new(struct relay *r)
{
	struct lookups *ls = xcalloc(1, sizeof(*ls));

	ls->r = r;
	random_bytes(ls->key, sizeof(ls->key));
	return ls;
}

void lookups_free(struct lookups *ls)
{
	if (!ls)
		return;
	while (ls->list)
		drop(ls->list);
	cache_sweep(ls, UINT64_MAX);
	buf_fini(&ls->hosts);
	free(ls);
}

void lookup_sweep(struct relay *r, uint64_t now_ms)
{
	cache_sweep(r->lookups, now_ms);
}
