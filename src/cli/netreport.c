/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/netreport.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/vis.h"
#include "term/screen.h"

enum { INFO_HOSTS = 40, REFUSED_SHOWN = 5, CAS_SHOWN = 5 };

char *netreport_events_path(const struct state_dirs *d, const char *id)
{
	return xasprintf("%s/%s" STATE_EVENTS_SUFFIX, d->logs, id);
}

int netreport_banner(struct buf *b, const struct netplan *p, const char *keys)
{
	int r = buf_printf(b, "        network ");

	if (r == 0)
		r = netplan_line(p, b);
	if (r == 0)
		r = buf_printf(b, "   keys: %s\n", keys);
	if (r == 0 && p->policy && egress_profile_of(p->policy) == EGRESS_PERMISSIVE)
		r = buf_printf(b, "cloche: the network is PERMISSIVE: the guest can send what it "
		                  "reads to any host of the internet\n");
	for (size_t i = 0; i < p->n_notes && r == 0; i++)
		r = buf_printf(b, "cloche: %s\n", p->notes[i]);
	return r;
}

/* ---- a policy ----------------------------------------------------------- */

int netreport_policy(struct buf *b, const struct egress *e, const char *indent, size_t max)
{
	static const struct term_col cols[] = { { NULL, TERM_LEFT, false },
		                                { NULL, TERM_LEFT, false },
		                                { NULL, TERM_LEFT, false } };
	const struct ip4_net *nets;
	const uint16_t *ports;
	struct netplan_host *v;
	struct term_table t;
	AUTO_BUF struct buf text = { 0 };
	char a[IP4_NET_STR_BYTES], port[32];
	size_t n, shown = 0;

	netplan_hosts(e, &v, &n);
	term_table_init(&t, cols, ARRAY_LEN(cols));
	if (egress_profile_of(e) == EGRESS_PERMISSIVE)
		term_table_row(&t, (const char *const[]){ "every host", "every port but 25", "" });
	for (size_t i = 0; i < n && shown < max; i++, shown++) {
		AUTO_FREE char *from = xasprintf("%s%s", v[i].deny ? "DENIED: " : "", v[i].from);
		term_table_row(&t, (const char *const[]){ v[i].name, v[i].ports, from });
	}
	size_t k = egress_privates(e, &nets);
	for (size_t i = 0; i < k; i++)
		term_table_row(&t, (const char *const[]){ ip4_net_str(a, nets[i]), "",
		                                          "private range, for names in it" });
	k = egress_services(e, &ports);
	for (size_t i = 0; i < k; i++) {
		AUTO_FREE char *where = xasprintf("127.0.0.1:%u of this host", ports[i]);
		(void)snprintf(port, sizeof(port), "%u", ports[i]);
		term_table_row(&t, (const char *const[]){ "host.cloche", port, where });
	}
	int r = t.n_rows ? term_table_put(&t, 0, &text) : 0;
	term_table_fini(&t);
	free(v);
	/* one indent a line */
	for (size_t at = 0; r == 0 && at < text.len;) {
		const uint8_t *nl = memchr(text.p + at, '\n', text.len - at);
		size_t len = (nl ? (size_t)(nl - text.p) : text.len) - at;
		r = buf_printf(b, "%s%.*s\n", indent, (int)len, (const char *)text.p + at);
		at += len + 1;
	}
	if (r == 0 && n > shown)
		r = buf_printf(b, "%sand %zu more: cloche net hosts\n", indent, n - shown);
	return r;
}

static json_t *rule_json(const struct egress_rule *r)
{
	char name[HOST_PATTERN_BYTES];
	struct host_pattern bare = r->host;

	bare.port = 0;
	json_t *j = json_pack("{ss si sb ss}", "host", host_pattern_str(name, &bare), "port",
	                      (int)r->host.port, "denied", r->deny, "origin",
	                      egress_origin_name(r->origin));
	if (j && r->note)
		(void)json_object_set_new(j, "note", json_string(r->note));
	if (j && !r->deny)
		(void)json_object_set_new(j, "raw", json_boolean(r->kind == EGRESS_RAW));
	return j;
}

json_t *netreport_policy_json(const struct egress *e)
{
	json_t *hosts = json_array(), *privates = json_array(), *services = json_array();
	const struct ip4_net *nets;
	const uint16_t *ports;
	char a[IP4_NET_STR_BYTES];

	for (size_t i = 0; i < egress_count(e); i++)
		(void)json_array_append_new(hosts, rule_json(egress_rule_at(e, i)));
	size_t n = egress_privates(e, &nets);
	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(privates, json_string(ip4_net_str(a, nets[i])));
	n = egress_services(e, &ports);
	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(services, json_integer(ports[i]));
	return json_pack("{ss so so so}", "profile", egress_profile_name(egress_profile_of(e)),
	                 "hosts", hosts, "private", privates, "services", services);
}

/* ---- info --------------------------------------------------------------- */

static int put_ports(struct buf *b, const struct netopts *o)
{
	const char *where = o->publish_localhost ? "localhost" : "127.x.y.z of its own";
	int r = 0;

	for (size_t i = 0; i < o->n_ports && r == 0; i++)
		r = buf_printf(b, "  %-9s %s:%u -> guest %u\n", i ? "" : "ports", where,
		               o->ports[i].host, o->ports[i].guest);
	for (size_t i = 0; i < o->n_callbacks && r == 0; i++)
		r = buf_printf(b, "  %-9s localhost:%u -> guest, once, within 5 minutes\n",
		               i ? "" : "callback", o->callbacks[i]);
	return r;
}

static int put_cas(struct buf *b, const struct hostca *h)
{
	int r = h->n ? buf_printf(b, "  %-9s %zu added to this host:", "CAs", h->certs) : 0;

	for (size_t i = 0; i < h->n && i < CAS_SHOWN && r == 0; i++)
		r = buf_printf(b, " %s", h->names[i]);
	if (r == 0 && h->n > CAS_SHOWN)
		r = buf_printf(b, " and %zu more", h->n - CAS_SHOWN);
	if (r == 0 && h->n)
		r = buf_printf(b, " (--no-host-ca)\n");
	return r;
}

/* A tool that the agent may bring along has no registry in the policy: better said than met. */
static int put_missing(struct buf *b, uint32_t missing)
{
	int r = 0;
	bool any = false;

	for (size_t i = 0; i < registry_probes_n && r == 0; i++) {
		if (!(missing & (uint32_t)1 << i))
			continue;
		r = buf_printf(b, "%s%s", any ? ", " : "            no registry of ",
		               registry_probes[i].name);
		any = true;
	}
	if (r == 0 && any)
		r = buf_printf(b, ": neither in the image nor on this host\n");
	return r;
}

int netreport_info(struct buf *b, const struct netplan *p, const struct netopts *o)
{
	int r;

	if (p->mode == NET_OFFLINE) {
		r = buf_printf(b, "network     offline (no network device)\n");
		return r == 0 ? put_ports(b, o) : r;
	}
	enum egress_profile profile = egress_profile_of(p->policy);
	r = buf_printf(b, "network     %s, %s\n", net_mode_name(p->mode),
	               profile == EGRESS_PERMISSIVE ? "PERMISSIVE" : egress_profile_name(profile));
	if (r == 0)
		r = netreport_policy(b, p->policy, "            ", INFO_HOSTS);
	if (r == 0 && profile != EGRESS_PERMISSIVE && egress_count(p->policy) == 0)
		r = buf_printf(b, "            no host: --allow-host NAME opens one\n");
	if (r == 0 && profile == EGRESS_STANDARD && !p->image_known)
		r = buf_printf(b,
		               "            and the registries of the image, once it is built\n");
	if (r == 0 && p->image_known)
		r = put_missing(b, p->missing);
	if (r == 0)
		r = put_ports(b, o);
	if (r == 0)
		r = put_cas(b, &p->ca);
	for (size_t i = 0; i < p->n_notes && r == 0; i++)
		r = buf_printf(b, "            note: %s\n", p->notes[i]);
	return r;
}

void netreport_info_json(json_t *top, const struct netplan *p, const struct netopts *o)
{
	json_t *ports = json_array(), *callbacks = json_array(), *cas = json_array();
	json_t *egress = p->policy ? netreport_policy_json(p->policy) : json_null();

	if (p->policy) {
		json_t *missing = json_array();
		for (size_t i = 0; i < registry_probes_n; i++) {
			if (p->missing & (uint32_t)1 << i)
				(void)json_array_append_new(missing,
				                            json_string(registry_probes[i].name));
		}
		(void)json_object_set_new(egress, "image_known", json_boolean(p->image_known));
		(void)json_object_set_new(egress, "no_registry", missing);
	}
	for (size_t i = 0; i < o->n_ports; i++)
		(void)json_array_append_new(ports,
		                            json_pack("{si si sb}", "host", (int)o->ports[i].host,
		                                      "guest", (int)o->ports[i].guest, "localhost",
		                                      o->publish_localhost));
	for (size_t i = 0; i < o->n_callbacks; i++)
		(void)json_array_append_new(callbacks, json_integer(o->callbacks[i]));
	for (size_t i = 0; i < p->ca.n; i++)
		(void)json_array_append_new(cas, json_string(p->ca.names[i]));
	(void)json_object_set_new(top, "network", json_string(net_mode_name(p->mode)));
	(void)json_object_set_new(top, "egress", egress);
	(void)json_object_set_new(top, "ports", ports);
	(void)json_object_set_new(top, "callbacks", callbacks);
	(void)json_object_set_new(top, "host_ca", cas);
}

/* ---- what was refused --------------------------------------------------- */

bool netreport_is_request(const struct netevent *e)
{
	bool of_test = strcmp(e->name, "selftest.cloche") == 0 ||
	               (e->n_addrs && e->addrs[0] == IP4(198, 51, 100, 1));

	if (strcmp(e->ev, "drop") == 0)
		return e->n_addrs && !of_test && strcmp(e->proto, "igmp") != 0;
	if (strcmp(e->ev, "dns") == 0)
		return !of_test && strcmp(e->detail, "AAAA") != 0;
	return strcmp(e->ev, "flow") == 0 || strcmp(e->ev, "udp") == 0;
}

struct refused {
	struct netsum s;
	uint64_t lost;
};

static int add_refused(void *arg, const struct netevent *e)
{
	struct refused *r = arg;

	if (e->verdict == NETEVENT_REFUSED && netreport_is_request(e))
		netsum_add(&r->s, e, false);
	if (strcmp(e->ev, "lost") == 0)
		r->lost += e->count;
	return 0;
}

int netreport_refused(struct buf *b, const char *path)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	AUTO_BUF struct buf carry = { 0 };
	struct refused all = { 0 };
	struct netsum *s = &all.s;
	char seen[160];
	uint64_t bad = 0;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = netevent_each(fd, &carry, add_refused, &all, &bad);
	netsum_sort(s);
	if (r == 0 && s->total)
		r = buf_printf(b, "refused: %llu request%s", (unsigned long long)s->total,
		               s->total == 1 ? "" : "s");
	if (r == 0 && s->n)
		r = buf_printf(b, " to %zu host%s (", s->n, s->n == 1 ? "" : "s");
	for (size_t i = 0; r == 0 && i < s->n && i < REFUSED_SHOWN; i++)
		r = buf_printf(b, "%s%s %llu", i ? ", " : "",
		               vis_str(seen, sizeof(seen), span_str(s->v[i].host)),
		               (unsigned long long)s->v[i].count);
	if (r == 0 && s->n)
		r = buf_printf(b, "%s)", s->n > REFUSED_SHOWN ? ", ..." : "");
	if (r == 0 && s->total)
		r = buf_printf(b, "   cloche net log --denied\n");
	if (r == 0 && bad)
		r = buf_printf(b, "cloche: %llu lines of the network's log could not be read\n",
		               (unsigned long long)bad);
	if (r == 0 && all.lost)
		r = buf_printf(b, "cloche: %llu lines of the network's log could not be written\n",
		               (unsigned long long)all.lost);
	netsum_fini(s);
	return r;
}
