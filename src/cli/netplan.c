/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/netplan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "cli/registries.h"
#include "policy/sources.h"

enum { RESOLV_BYTES_MAX = 64 * 1024 };

/* ---- rules -------------------------------------------------------------- */

static int add(struct egress *e, const struct egress_rule *r, struct err *err)
{
	char text[HOST_PATTERN_BYTES];
	int got = egress_add(e, r);

	if (got == -E2BIG)
		return err_set(err, got, "too many rules of the network at '%s'",
		               host_pattern_str(text, &r->host));
	return got < 0 ? err_code(err, got, "cannot open '%s'", host_pattern_str(text, &r->host))
	               : 0;
}

static int add_providers(struct egress *e, const struct netplan_in *in, struct err *err)
{
	AUTO_FREE char *note = xstrdup(in->agent);

	for (const char *const *h = in->providers; h && *h; h++) {
		struct egress_rule r = { .origin = EGRESS_FROM_PROVIDER, .note = note };
		const char *why;
		if (host_pattern_parse(&r.host, span_str(*h), &why) < 0)
			return err_set(err, -EINVAL, "the profile of %s: host '%s': %s", in->agent,
			               *h, why);
		int got = add(e, &r, err);
		if (got < 0)
			return got;
	}
	return 0;
}

/* ", npm" behind what is there, where it is not yet. */
static void add_word(char *dst, size_t cap, const char *word, const char *more)
{
	AUTO_FREE char *w = xasprintf("%s%s", word, more);
	size_t n = strlen(dst), len = strlen(w);

	for (const char *p = dst; (p = strstr(p, w)); p += len) {
		bool starts = p == dst || p[-1] == ' ';
		if (starts && (p[len] == '\0' || p[len] == ','))
			return;
	}
	if (n + len + 3 < cap)
		(void)snprintf(dst + n, cap - n, "%s%s", n ? ", " : "", w);
}

static bool same_place(const struct registry *a, const struct registry *b)
{
	return a->at.port == b->at.port && strcmp(a->at.host, b->at.host) == 0;
}

/* Which tools fetch from there: those of the image, and the user's. */
static void tools_of(char *dst, size_t cap, const struct netplan_in *in, const struct registry *g)
{
	dst[0] = '\0';
	for (size_t i = 0; in->image && i < in->image->n; i++) {
		if (same_place(&in->image->v[i], g))
			add_word(dst, cap, in->image->v[i].tool, "");
	}
	for (size_t i = 0; in->user && i < in->user->n; i++) {
		if (same_place(&in->user->v[i], g))
			add_word(dst, cap, in->user->v[i].tool, " of this host");
	}
}

static int add_registries(struct egress *e, const struct netplan_in *in,
                          const struct registry_list *l, struct err *err)
{
	char tools[EGRESS_NOTE_MAX];

	for (size_t i = 0; l && i < l->n; i++) {
		/* what the URL says is TLS or HTTP, whatever the port */
		struct egress_rule r = { .origin = EGRESS_FROM_REGISTRY,
			                 .kind = EGRESS_NAMED,
			                 .note = tools };
		if (egress_port_closed(l->v[i].at.port, NULL))
			continue;
		memcpy(r.host.name, l->v[i].at.host, sizeof(r.host.name));
		r.host.port = l->v[i].at.port;
		tools_of(tools, sizeof(tools), in, &l->v[i]);
		int got = add(e, &r, err);
		if (got < 0)
			return got;
	}
	return 0;
}

static int add_hosts(struct egress *e, const struct config_hosts *h, enum egress_origin origin,
                     struct err *err)
{
	for (size_t i = 0; i < h->n; i++) {
		struct egress_rule r = { .host = h->v[i], .origin = origin };
		int got = add(e, &r, err);
		if (got < 0)
			return got;
	}
	return 0;
}

static int deny_hosts(struct egress *e, const struct config_hosts *h, struct err *err)
{
	char text[HOST_NAME_BYTES + 8];

	for (size_t i = 0; i < h->n; i++) {
		int got = egress_deny_from(e, &h->v[i], EGRESS_FROM_CONFIG);
		if (got == -ENOTSUP) {
			err_set(err, got,
			        "network.deny_hosts has hosts, and the profile "
			        "permissive refuses none");
			return err_hint(err, "leave one of the two out, or say --egress standard");
		}
		if (got < 0)
			return err_code(err, got, "cannot refuse the host %s",
			                host_pattern_str(text, &h->v[i]));
	}
	return 0;
}

static int add_privates(struct egress *e, const struct ip4_net *v, size_t n, struct err *err)
{
	char text[IP4_NET_STR_BYTES];

	for (size_t i = 0; i < n; i++) {
		int got = egress_allow_private(e, v[i]);
		if (got < 0)
			return err_code(err, got, "cannot open the range %s",
			                ip4_net_str(text, v[i]));
	}
	return 0;
}

static int add_services(struct egress *e, const uint16_t *v, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		int got = egress_add_service(e, v[i]);
		if (got < 0)
			return err_code(err, got, "cannot open port %u of this host", v[i]);
	}
	return 0;
}

int netplan_policy(struct egress **out, const struct netplan_in *in, struct err *err)
{
	const struct netopts *o = in->opts;
	const struct config_net *c = in->config;
	struct egress *e = egress_new(o->profile);
	int r = 0;

	if (o->profile != EGRESS_PERMISSIVE)
		r = add_providers(e, in, err);
	if (r == 0 && o->profile == EGRESS_STANDARD) {
		r = host_sources_add(e);
		if (r < 0)
			(void)err_code(err, r, "cannot open the source hosts");
		if (r == 0)
			r = add_registries(e, in, in->image, err);
		if (r == 0)
			r = add_registries(e, in, in->user, err);
	}
	if (r == 0 && o->profile != EGRESS_PERMISSIVE)
		r = add_hosts(e, &c->hosts, EGRESS_FROM_CONFIG, err);
	if (r == 0)
		r = deny_hosts(e, &c->deny, err);
	if (r == 0 && o->profile != EGRESS_PERMISSIVE)
		r = add_hosts(e, &o->hosts, EGRESS_FROM_FLAG, err);
	/* the word of this run counts more than the file's */
	for (size_t i = 0; i < o->hosts.n; i++)
		(void)egress_undeny(e, &o->hosts.v[i]);
	if (r == 0)
		r = add_privates(e, c->privates, c->n_privates, err);
	if (r == 0)
		r = add_privates(e, o->privates, o->n_privates, err);
	if (r == 0)
		r = add_services(e, c->services, c->n_services, err);
	if (r == 0)
		r = add_services(e, o->services, o->n_services, err);
	if (r < 0) {
		egress_free(e);
		return r;
	}
	*out = e;
	return 0;
}

const char **netplan_providers(const struct profile *p)
{
	const char **hosts = xcalloc(p->hosts.n + p->allow_hosts.n + 1, sizeof(*hosts));
	size_t n = 0;

	for (size_t i = 0; i < p->hosts.n; i++)
		hosts[n++] = p->hosts.v[i];
	for (size_t i = 0; i < p->allow_hosts.n; i++)
		hosts[n++] = p->allow_hosts.v[i];
	return hosts;
}

void netplan_floor(struct netopts *o, const struct profile *p)
{
	if (o->profile_given || !ynode_get(p->tree, "egress"))
		return;
	o->profile = MAX(o->profile, p->egress == PROFILE_LOCKED ? EGRESS_LOCKED : EGRESS_STANDARD);
}

/* ---- the rest ----------------------------------------------------------- */

size_t netplan_search(char *out[NET_SEARCH_MAX], struct span text)
{
	static const char *const words[] = { "search", "domain" };
	size_t n = 0;

	while (text.len) {
		const uint8_t *nl = memchr(text.p, '\n', text.len);
		size_t len = nl ? (size_t)(nl - text.p) : text.len;
		AUTO_FREE char *line = xstrndup((const char *)text.p, len);
		char *save = NULL, *w = strtok_r(line, " \t\r", &save);
		text = span_of(text.p + len + (nl != NULL), text.len - len - (nl != NULL));
		if (!w || (strcmp(w, words[0]) != 0 && strcmp(w, words[1]) != 0))
			continue;
		while (n) /* the last line counts, resolv.conf(5) */
			free(out[--n]);
		while (n < NET_SEARCH_MAX && (w = strtok_r(NULL, " \t\r", &save))) {
			char name[HOST_NAME_BYTES];
			size_t k = strlen(w);
			k -= k > 1 && w[k - 1] == '.';
			if (host_name_parse(name, span_of(w, k), NULL) == 0)
				out[n++] = xstrdup(name);
		}
	}
	return n;
}

static void read_search(struct netplan *p)
{
	AUTO_CLOSE int fd = open("/etc/resolv.conf", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO_FREE char *text = NULL;
	size_t n = 0;

	if (fd >= 0 && fd_read_file(fd, RESOLV_BYTES_MAX, &text, &n) == 0)
		p->n_search = netplan_search(p->search, span_of(text, n));
}

static void note(struct netplan *p, char *text)
{
	if (p->n_notes < ARRAY_LEN(p->notes))
		p->notes[p->n_notes++] = text;
	else
		free(text);
}

static uint32_t missing_tools(const struct registry_list *image, const struct registry_list *user)
{
	uint32_t missing = 0;

	ASSERT(registry_probes_n <= 32);
	for (size_t i = 0; i < registry_probes_n; i++) {
		if ((!image || !registry_has(image, registry_probes[i].name)) &&
		    !registry_has(user, registry_probes[i].name))
			missing |= (uint32_t)1 << i;
	}
	return missing;
}

int netplan_init(struct netplan *p, const struct netopts *o, const struct config_net *c,
                 const char *agent, const char *const *providers, const char *cache_dir,
                 const struct registry_list *image, void (*asking)(void), struct err *err)
{
	struct err quiet = { 0 };
	char *said = NULL;
	int r;

	*p = (struct netplan){ .mode = o->mode, .image_known = image != NULL };
	if (o->mode == NET_OFFLINE)
		return 0;
	if (o->profile == EGRESS_STANDARD) {
		r = registries_of_user(&p->user, cache_dir, asking, &said, &quiet);
		if (said)
			note(p, said);
		if (r < 0) /* a run without them is a run */
			note(p, xasprintf("%s", quiet.text));
		p->missing = missing_tools(image, &p->user);
	}
	if (o->profile == EGRESS_PERMISSIVE && o->hosts.n)
		note(p, xstrdup("--allow-host has no effect: permissive opens every host"));
	if (!o->no_host_ca) {
		r = hostca_load(&p->ca, HOSTCA_DIR, &quiet);
		if (r < 0)
			note(p, xasprintf("%s", quiet.text));
		if (p->ca.left_out)
			note(p, xasprintf("of the CAs of this host, the guest does not get %s",
			                  p->ca.left_out));
	}
	read_search(p);
	struct netplan_in in = { .opts = o,
		                 .config = c,
		                 .providers = providers,
		                 .agent = agent,
		                 .image = image,
		                 .user = &p->user };
	r = netplan_policy(&p->policy, &in, err);
	if (r < 0)
		netplan_fini(p);
	return r;
}

void netplan_fini(struct netplan *p)
{
	egress_free(p->policy);
	hostca_fini(&p->ca);
	for (size_t i = 0; i < p->n_search; i++)
		free(p->search[i]);
	for (size_t i = 0; i < p->n_notes; i++)
		free(p->notes[i]);
	*p = (struct netplan){ 0 };
}

const char *netplan_label(char dst[NETPLAN_LABEL_BYTES], const char *id)
{
	size_t len = strlen(id), k = 0;

	for (const char *c = id + (len < NETPLAN_LABEL_BYTES ? 0 : len - NETPLAN_LABEL_BYTES + 1);
	     *c; c++) {
		char low = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
		bool ok = (low >= 'a' && low <= 'z') || (low >= '0' && low <= '9');
		if (ok || (k > 0 && dst[k - 1] != '-'))
			dst[k++] = ok ? low : '-';
	}
	dst[k] = '\0';
	return dst;
}

/* ---- what is shown ------------------------------------------------------ */

static void pattern_name(char *dst, const struct host_pattern *h)
{
	struct host_pattern bare = *h;

	bare.port = 0;
	(void)host_pattern_str(dst, &bare);
}

/* Indexes of the rules, those of one pattern together, in the order of their first. */
struct grouped {
	char name[HOST_PATTERN_BYTES];
	size_t at, first;
	bool deny;
};

static int same_pattern(const struct grouped *x, const struct grouped *y)
{
	int c = strcmp(x->name, y->name);

	return c ? c : (int)x->deny - (int)y->deny;
}

static int by_pattern(const void *a, const void *b)
{
	const struct grouped *x = a, *y = b;
	int c = same_pattern(x, y);

	return c ? c : (x->at > y->at) - (x->at < y->at);
}

static int by_first(const void *a, const void *b)
{
	const struct grouped *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static void take_rule(struct netplan_host *h, const struct egress_rule *r)
{
	char port[8] = "every";
	size_t len = strlen(h->ports);

	if (r->host.port)
		(void)snprintf(port, sizeof(port), "%u", r->host.port);
	if (len + 8 < sizeof(h->ports))
		(void)snprintf(h->ports + len, sizeof(h->ports) - len, "%s%s", len ? "," : "",
		               port);
	AUTO_FREE char *from =
		r->note ? xasprintf("%s (%s)", egress_origin_name(r->origin), r->note)
			: xstrdup(egress_origin_name(r->origin));
	add_word(h->from, sizeof(h->from), from, "");
}

void netplan_hosts(const struct egress *e, struct netplan_host **out, size_t *out_n)
{
	size_t count = egress_count(e), n = 0;
	AUTO_FREE struct grouped *g = xcalloc(count + 1, sizeof(*g));
	struct netplan_host *v = xcalloc(count + 1, sizeof(*v));

	for (size_t i = 0; i < count; i++) {
		const struct egress_rule *r = egress_rule_at(e, i);
		g[i].at = g[i].first = i;
		g[i].deny = r->deny;
		pattern_name(g[i].name, &r->host);
	}
	qsort(g, count, sizeof(*g), by_pattern);
	for (size_t i = 1; i < count; i++) {
		if (same_pattern(&g[i - 1], &g[i]) == 0)
			g[i].first = g[i - 1].first;
	}
	qsort(g, count, sizeof(*g), by_first);
	for (size_t i = 0; i < count; i++) {
		if (i == 0 || g[i].first != g[i - 1].first) {
			memcpy(v[n].name, g[i].name, sizeof(v[n].name));
			v[n++].deny = g[i].deny;
		}
		take_rule(&v[n - 1], egress_rule_at(e, g[i].at));
	}
	*out = v;
	*out_n = n;
}

int netplan_line(const struct netplan *p, struct buf *out)
{
	struct netplan_host *v;
	size_t n, allowed = 0;
	const char *first = NULL;

	if (p->mode == NET_OFFLINE)
		return buf_printf(out, "offline");
	enum egress_profile profile = egress_profile_of(p->policy);
	int r = buf_printf(out, "%s, %s: ", net_mode_name(p->mode),
	                   profile == EGRESS_PERMISSIVE ? "PERMISSIVE"
	                                                : egress_profile_name(profile));
	if (r < 0)
		return r;
	if (profile == EGRESS_PERMISSIVE)
		return buf_printf(out, "every host of the internet");
	netplan_hosts(p->policy, &v, &n);
	for (size_t i = 0; i < n; i++) {
		if (!v[i].deny && allowed++ == 0)
			first = v[i].name;
	}
	if (!first)
		r = buf_printf(out, "no host");
	else if (allowed == 1)
		r = buf_printf(out, "%s", first);
	else
		r = buf_printf(out, "%s + %zu host%s", first, allowed - 1, allowed == 2 ? "" : "s");
	free(v);
	return r;
}
