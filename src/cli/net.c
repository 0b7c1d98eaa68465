/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche net`: what the network of a sandbox allows, what it decided, and
 * changes while it runs.
 *
 * Without a sandbox, check and hosts speak of the policy that a run here would
 * have; log and learn of the last session; allow, deny and callback of the one
 * that runs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/near.h"
#include "base/vis.h"
#include "cli/cli.h"
#include "cli/netreport.h"
#include "cli/plan.h"
#include "image/image.h"
#include "review/changeset.h"
#include "super/netctl.h"
#include "term/screen.h"
#include "term/tty.h"

enum { N_DENIED = 1, N_FOLLOW, N_JSON, N_IMAGE, N_AGENT, FOLLOW_MS = 250 };

static const struct cli_opt net_opts_[] = {
	{ "denied", 0, CLI_FLAG, N_DENIED, NULL, "log: only what was refused" },
	{ "follow", 'f', CLI_FLAG, N_FOLLOW, NULL, "log: go on until the session ends" },
	{ "json", 0, CLI_FLAG, N_JSON, NULL, "machine-readable output" },
	{ "agent", 0, CLI_VALUE, N_AGENT, "NAME", "check, hosts: of a run of this agent" },
	{ "image", 0, CLI_VALUE, N_IMAGE, "NAME", "check, hosts: with this base image" },
	NETOPTS_POLICY,
};
const struct cli_opt *const net_opts = net_opts_;
const size_t net_n_opts = ARRAY_LEN(net_opts_);

struct net_cmd {
	struct config config;
	struct state_dirs dirs;
	struct netopts opts;
	bool denied, follow, json;
	const char *image, *agent;
	unsigned policy_opts; /* how many were given */
};

static int on_opt(void *arg, int id, const char *v, struct err *err)
{
	struct net_cmd *c = arg;

	if (id >= NETOPT_FIRST) {
		c->policy_opts++;
		return netopts_take(&c->opts, id, v, err);
	}
	switch (id) {
	case N_DENIED:
		c->denied = true;
		return 0;
	case N_FOLLOW:
		c->follow = true;
		return 0;
	case N_JSON:
		c->json = true;
		return 0;
	case N_AGENT:
		c->policy_opts++;
		c->agent = v;
		return 0;
	default:
		c->policy_opts++;
		c->image = v;
		return 0;
	}
}

/* ---- which session ------------------------------------------------------ */

static int check_id(const char *id, struct err *err)
{
	char seen[128];

	if (changeset_id_ok(id))
		return 0;
	return err_set(err, -EINVAL, "'%s' is no name of a sandbox",
	               vis_str(seen, sizeof(seen), span_str(id)));
}

/* The log of @id, or the newest; *out_id is malloc'd. fd, or -errno with @err. */
static int open_events(const struct net_cmd *c, const char *id, char **out_id, struct err *err)
{
	static const char suffix[] = STATE_EVENTS_SUFFIX;
	AUTO_FREE char *name = NULL;
	struct timespec newest = { 0 };

	if (id) {
		int r = check_id(id, err);
		if (r < 0)
			return r;
		name = xstrdup(id);
	} else {
		DIR *d = opendir(c->dirs.logs);
		for (struct dirent *e; d && (e = readdir(d));) {
			size_t n = strlen(e->d_name), k = sizeof(suffix) - 1;
			struct stat st;
			if (n <= k || strcmp(e->d_name + n - k, suffix) != 0 ||
			    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
				continue;
			if (name && (st.st_mtim.tv_sec < newest.tv_sec ||
			             (st.st_mtim.tv_sec == newest.tv_sec &&
			              st.st_mtim.tv_nsec <= newest.tv_nsec)))
				continue;
			newest = st.st_mtim;
			free(name);
			name = xstrndup(e->d_name, n - k);
		}
		if (d)
			(void)closedir(d); /* only read */
		if (!name) {
			err_set(err, -ENOENT, "no session has decided anything yet");
			return err_hint(err, "a run with a network leaves a log");
		}
	}
	AUTO_FREE char *path = netreport_events_path(&c->dirs, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		char seen[128];
		return err_errno(err, "cannot read the log of '%s'",
		                 vis_str(seen, sizeof(seen), span_str(name)));
	}
	*out_id = take_ptr(&name);
	return fd;
}

static bool is_alive(const struct net_cmd *c, const char *id)
{
	struct state_item *v = NULL;
	bool alive = false;
	size_t n = 0;

	if (state_list(&c->dirs, &v, &n, NULL) < 0)
		return false;
	for (size_t i = 0; i < n; i++)
		alive |= v[i].alive && strcmp(v[i].s.id, id) == 0;
	state_items_free(v, n);
	return alive;
}

/* @id, or the one that runs; *out is malloc'd. 0, or -errno with @err, -E2BIG for several. */
static int running(const struct net_cmd *c, const char *id, char **out, struct err *err)
{
	AUTO_BUF struct buf names = { 0 };
	struct state_item *v = NULL;
	size_t n = 0, alive = 0;

	if (id) {
		int r = check_id(id, err);
		if (r == 0)
			*out = xstrdup(id);
		return r;
	}
	int r = state_list(&c->dirs, &v, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (!v[i].alive)
			continue;
		alive++;
		free(*out);
		*out = xstrdup(v[i].s.id);
		(void)!buf_printf(&names, " %s", v[i].s.id);
	}
	state_items_free(v, n);
	if (alive == 0)
		return err_set(err, -ENOENT, "no sandbox runs");
	if (alive > 1) {
		err_set(err, -E2BIG, "several sandboxes run: which one?");
		return err_hint(err, "give one of%.*s", (int)names.len, (const char *)names.p);
	}
	return 0;
}

/* ---- log ---------------------------------------------------------------- */

struct log_out {
	const struct net_cmd *c;
	bool ended;
	int r; /* of writing */
};

static json_t *event_json(const struct netevent *e)
{
	json_t *j = json_pack("{ss ss}", "t", e->time, "ev", e->ev), *addrs;
	char ip[IP4_STR_BYTES];
	static const char *const verdicts[] = { NULL, "allowed", "refused" };
	const struct {
		const char *key, *text;
	} texts[] = { { "reason", e->reason },
		      { "detail", e->detail },
		      { "name", e->name },
		      { "proto", e->proto } };

	if (verdicts[e->verdict])
		(void)json_object_set_new(j, "verdict", json_string(verdicts[e->verdict]));
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		AUTO_FREE char *seen = vis_dup(span_str(texts[i].text));
		if (seen[0])
			(void)json_object_set_new(j, texts[i].key, json_string(seen));
	}
	addrs = json_array();
	for (size_t i = 0; i < e->n_addrs; i++)
		(void)json_array_append_new(addrs, json_string(ip4_str(ip, e->addrs[i])));
	(void)json_object_set_new(j, "addrs", addrs);
	if (e->port)
		(void)json_object_set_new(j, "port", json_integer(e->port));
	if (e->guest_port)
		(void)json_object_set_new(j, "guest_port", json_integer(e->guest_port));
	if (e->has_bytes) {
		(void)json_object_set_new(j, "bytes_out", json_integer((json_int_t)e->bytes_out));
		(void)json_object_set_new(j, "bytes_in", json_integer((json_int_t)e->bytes_in));
	}
	(void)json_object_set_new(j, "count", json_integer((json_int_t)e->count));
	return j;
}

/* 23:59:59 refused flow   statsig.example:443 192.0.2.7  name (detail) */
static int event_text(struct buf *b, const struct netevent *e)
{
	static const char *const verdicts[] = { "", "allowed", "refused" };
	char seen[NETEVENT_NAME_MAX], more[NETEVENT_NAME_MAX], ip[IP4_STR_BYTES];
	char s1[TERM_FMT_BYTES], s2[TERM_FMT_BYTES];

	int r = buf_printf(b, "%.8s %-7s %-6s", e->time + 11, verdicts[e->verdict], e->ev);
	if (r == 0 && e->name[0])
		r = buf_printf(b, " %s", vis_str(seen, sizeof(seen), span_str(e->name)));
	for (size_t i = 0; i < e->n_addrs && r == 0; i++)
		r = buf_printf(b, " %s", ip4_str(ip, e->addrs[i]));
	if (r == 0 && e->port)
		r = buf_printf(b, " port %u", e->port);
	if (r == 0 && e->guest_port && e->ev[0] == 'p')
		r = buf_printf(b, " guest %u", e->guest_port);
	if (r == 0 && e->proto[0])
		r = buf_printf(b, " %s", e->proto);
	if (r == 0 && e->has_bytes)
		r = buf_printf(b, " %s out, %s in", term_fmt_size(s1, e->bytes_out),
		               term_fmt_size(s2, e->bytes_in));
	if (r == 0 && e->reason[0])
		r = buf_printf(b, " (%s%s%s)", e->reason, e->detail[0] ? ": " : "",
		               vis_str(more, sizeof(more), span_str(e->detail)));
	if (r == 0 && e->count > 1)
		r = buf_printf(b, " %llu times", (unsigned long long)e->count);
	return r == 0 ? buf_printf(b, "\n") : r;
}

static int log_event(void *arg, const struct netevent *e)
{
	struct log_out *o = arg;
	AUTO_BUF struct buf b = { 0 };
	int r;

	o->ended = strcmp(e->ev, "end") == 0;
	if (o->c->denied && e->verdict != NETEVENT_REFUSED)
		return 0;
	if (o->c->json) {
		json_t *j = event_json(e);
		AUTO_FREE char *s = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
		json_decref(j);
		r = s ? buf_printf(&b, "%s\n", s) : -ENOMEM;
	} else {
		r = event_text(&b, e);
	}
	return r == 0 ? fd_write_all(1, b.p, b.len) : r;
}

static int say_bad(uint64_t bad)
{
	if (bad)
		(void)fprintf(stderr, "cloche: %llu lines of the log could not be read\n",
		              (unsigned long long)bad);
	return bad ? CLI_EXIT_REFUSED : 0;
}

static int verb_log(struct net_cmd *c, char **words, size_t n, struct err *err)
{
	struct log_out o = { .c = c };
	AUTO_BUF struct buf carry = { 0 };
	AUTO_FREE char *id = NULL;
	uint64_t bad = 0;

	AUTO_CLOSE int fd = open_events(c, n ? words[0] : NULL, &id, err);
	if (fd < 0)
		return cli_fail(err);
	(void)signal(SIGPIPE, SIG_IGN); /* a reader that has seen enough is no error */
	for (bool last = false;;) {
		int r = netevent_each(fd, &carry, log_event, &o, &bad);
		if (r == -EPIPE)
			return 0;
		if (r < 0) {
			err_code(err, r, "cannot show the log of '%s'", id);
			return cli_fail(err);
		}
		if (!c->follow || o.ended || last)
			return say_bad(bad);
		/* what is written between the last look and the end is read once more */
		last = !is_alive(c, id);
		(void)poll(NULL, 0, last ? 0 : FOLLOW_MS);
	}
}

/* ---- the policy --------------------------------------------------------- */

/* Of a run of @c's agent here. */
static int plan_policy(struct net_cmd *c, struct netplan *p, struct err *err)
{
	AUTO_FREE char *dir = xasprintf("%s/profiles", c->dirs.config);
	AUTO_FREE const char **hosts = NULL;
	const struct profile_entry *entry;
	struct image img = IMAGE_INIT;
	struct profiles profiles = { 0 };
	struct err quiet = { 0 };

	int r = netopts_settle(&c->opts, &c->config.net, err);
	if (r == 0)
		r = profiles_load(&profiles, dir, config_agents(&c->config), "config.yaml", err);
	if (r == 0)
		r = profiles_get(&profiles, c->agent ? c->agent : "shell", &entry, err);
	if (r < 0)
		goto out;
	const struct profile *pr = entry->profile;
	hosts = netplan_providers(pr);
	netplan_floor(&c->opts, pr);
	struct image_opts io = { .name = c->image ? c->image : plan_image_name(pr),
		                 .suite = c->config.image_suite,
		                 .mirror = c->config.image_mirror };
	/* of an image of somebody else nothing is known, as in a run */
	static const struct registry_list none;
	bool foreign = ref_looks_so(io.name);
	bool built = !foreign && image_open(&io, &img, &quiet) == 0;
	r = netplan_init(p, &c->opts, &c->config.net, pr->name, hosts, c->dirs.cache,
	                 foreign ? &none
	                 : built ? &img.registries
	                         : NULL,
	                 plan_asking, err);
	image_close(&img);
	for (size_t i = 0; r == 0 && i < p->n_notes; i++)
		(void)fprintf(stderr, "cloche: %s\n", p->notes[i]);
	if (r == 0 && p->policy && !built && !foreign &&
	    egress_profile_of(p->policy) == EGRESS_STANDARD)
		(void)fprintf(stderr,
		              "cloche: image '%s' is not built: its registries are not "
		              "known yet\n",
		              io.name);
out:
	profiles_fini(&profiles);
	return r;
}

/* The policy in force in sandbox @id, or the one that a run here would have. */
static int get_policy(struct net_cmd *c, const char *id, struct netplan *p, struct err *err)
{
	*p = (struct netplan){ 0 };
	if (id) {
		struct netctl_msg req = { .type = NETCTL_LIST }, got;
		AUTO_CLOSE int fd = -1;
		int r = check_id(id, err);
		if (r == 0)
			r = netctl_call(id, &req, NULL, 0, &got, &fd, err);
		if (r < 0)
			return r;
		p->mode = (enum net_mode)got.mode;
		r = fd < 0 ? -EPROTO : net_policy_read(fd, &p->policy);
		return r < 0 ? err_code(err, r, "cannot read the policy of '%s'", id) : 0;
	}
	return plan_policy(c, p, err);
}

static int verb_hosts(struct net_cmd *c, char **words, size_t n, struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	struct netplan p;

	int r = get_policy(c, n ? words[0] : NULL, &p, err);
	if (r < 0)
		return r == -EINVAL ? cli_usage(err) : cli_fail(err);
	if (c->json) {
		json_t *top = json_pack("{si ss so}", "schema", 1, "network", net_mode_name(p.mode),
		                        "egress",
		                        p.policy ? netreport_policy_json(p.policy) : json_null());
		AUTO_FREE char *s = json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS);
		json_decref(top);
		r = s ? buf_printf(&b, "%s\n", s) : -ENOMEM;
	} else if (p.mode == NET_OFFLINE) {
		(void)fprintf(stderr, "offline: no host\n");
	} else {
		r = netreport_policy(&b, p.policy, "", SIZE_MAX);
		if (r == 0 && b.len == 0)
			(void)fprintf(stderr, "%s: no host\n",
			              egress_profile_name(egress_profile_of(p.policy)));
	}
	netplan_fini(&p);
	return r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
}

/* ---- check -------------------------------------------------------------- */

struct check {
	bool allowed;
	char why[640], hint[400];
	char rule[HOST_PATTERN_BYTES], from[EGRESS_NOTE_MAX + 40];
};

static void name_rule(struct check *k, const struct egress_rule *r)
{
	(void)host_pattern_str(k->rule, &r->host);
	(void)snprintf(k->from, sizeof(k->from), "%s%s%s%s", egress_origin_name(r->origin),
	               r->note ? " (" : "", r->note ? r->note : "", r->note ? ")" : "");
}

static void open_by(struct check *k, const char *id, const char *flag, const char *what)
{
	if (id && strcmp(flag, "--allow-host") == 0)
		(void)snprintf(k->hint, sizeof(k->hint), "cloche net allow %s %s", what, id);
	else
		(void)snprintf(k->hint, sizeof(k->hint), "%s %s", flag, what);
}

/* What the relay would say to an address that no name gave. */
static void check_address(struct check *k, const struct egress *e, uint32_t addr, uint16_t port,
                          const char *text)
{
	const char *closed = egress_addr_closed(e, addr), *why;

	if (egress_port_closed(port, &why)) {
		(void)snprintf(k->why, sizeof(k->why), "port %u is closed in every profile (%s)",
		               port, why);
	} else if (closed && strcmp(closed, "loopback") == 0) {
		(void)snprintf(k->why, sizeof(k->why), "it is this machine itself (loopback)");
		open_by(k, NULL, "--host-service",
		        "PORT opens one port of it, as host.cloche:PORT");
	} else if (closed) {
		(void)snprintf(k->why, sizeof(k->why), "the range is closed in every profile (%s)",
		               closed);
		open_by(k, NULL, "--allow-private", text);
	} else if (egress_profile_of(e) == EGRESS_PERMISSIVE) {
		k->allowed = true;
		(void)snprintf(k->why, sizeof(k->why), "the profile is permissive");
	} else {
		(void)snprintf(
			k->why, sizeof(k->why),
			"it is an address: only what a name of the policy resolved to is open");
	}
}

static void check_name(struct check *k, const struct egress *e, const struct host_pattern *h,
                       const char *id)
{
	uint16_t ports[16];
	const char *why;
	char text[HOST_PATTERN_BYTES];

	if (egress_port_closed(h->port, &why)) {
		(void)snprintf(k->why, sizeof(k->why), "port %u is closed in every profile (%s)",
		               h->port, why);
		return;
	}
	if (strcmp(h->name, "host.cloche") == 0) {
		k->allowed = egress_service_ok(e, h->port);
		(void)snprintf(k->why, sizeof(k->why), "%sa --host-service",
		               k->allowed ? "" : "it is not ");
		(void)snprintf(text, sizeof(text), "%u", h->port);
		if (!k->allowed)
			open_by(k, NULL, "--host-service", text);
		return;
	}
	const struct egress_rule *r = egress_find(e, h->name, h->port);
	if (r && egress_profile_of(e) == EGRESS_PERMISSIVE) {
		k->allowed = true;
		(void)snprintf(k->why, sizeof(k->why), "the profile is permissive");
		return;
	}
	if (r) {
		k->allowed = true;
		name_rule(k, r);
		(void)snprintf(k->why, sizeof(k->why), "rule %s, from %s%s", k->rule, k->from,
		               r->kind == EGRESS_RAW ? "; any protocol"
		                                     : "; TLS or HTTP with its name");
		return;
	}
	r = egress_denied(e, h->name, h->port);
	if (r) {
		name_rule(k, r);
		(void)snprintf(k->why, sizeof(k->why), "rule %s denies it, from %s", k->rule,
		               k->from);
	} else {
		size_t n = egress_ports(e, h->name, ports, ARRAY_LEN(ports));
		int at = snprintf(k->why, sizeof(k->why), "no rule of %s allows it%s",
		                  egress_profile_name(egress_profile_of(e)),
		                  n ? " on this port, but on" : "");
		for (size_t i = 0; i < n && at > 0 && (size_t)at < sizeof(k->why); i++)
			at += snprintf(k->why + at, sizeof(k->why) - (size_t)at, "%s %u",
			               i ? "," : "", ports[i]);
	}
	struct host_pattern want = *h;
	if (want.port == 443)
		want.port = 0;
	open_by(k, id, "--allow-host", host_pattern_str(text, &want));
}

static int print_check(const struct net_cmd *c, const char *word, const struct check *k)
{
	AUTO_BUF struct buf b = { 0 };
	char seen[300];
	int r;

	(void)vis_str(seen, sizeof(seen), span_str(word));
	if (c->json) {
		json_t *top = json_pack("{si ss sb ss}", "schema", 1, "host", seen, "allowed",
		                        k->allowed, "why", k->why);
		if (k->rule[0]) {
			(void)json_object_set_new(top, "rule", json_string(k->rule));
			(void)json_object_set_new(top, "from", json_string(k->from));
		}
		if (k->hint[0])
			(void)json_object_set_new(top, "hint", json_string(k->hint));
		AUTO_FREE char *s = json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS);
		json_decref(top);
		r = s ? buf_printf(&b, "%s\n", s) : -ENOMEM;
	} else {
		r = buf_printf(&b, "%s %s: %s\n", k->allowed ? "allowed" : "refused", seen, k->why);
		if (r == 0 && k->hint[0])
			r = buf_printf(&b, "hint: %s\n", k->hint);
	}
	return r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, k->allowed ? 0 : CLI_EXIT_OPEN);
}

static int verb_check(struct net_cmd *c, char **words, size_t n, struct err *err)
{
	struct host_pattern h = { 0 };
	struct check k = { 0 };
	struct netplan p;
	const char *why = NULL;
	char seen[128];
	uint32_t addr = 0;

	if (n == 0) {
		err_set(err, -EINVAL, "net check: which host?");
		err_hint(err, "cloche net check NAME[:PORT] [SANDBOX]");
		return cli_usage(err);
	}
	AUTO_FREE char *bare = xstrndup(words[0], strcspn(words[0], ":"));
	bool is_addr = ip4_parse(&addr, span_str(bare)) == 0;
	const char *port = words[0] + strlen(bare);
	int r = 0;
	if (!is_addr)
		r = host_pattern_parse(&h, span_str(words[0]), &why);
	else if (*port)
		r = config_port(port + 1, &h.port, &why);
	if (r == 0 && h.wild) {
		r = -EINVAL;
		why = "one name, not a pattern";
	}
	if (r < 0) {
		err_set(err, r, "net check: '%s': %s",
		        vis_str(seen, sizeof(seen), span_str(words[0])), why);
		return cli_usage(err);
	}
	h.port = h.port ? h.port : 443;
	const char *id = n > 1 ? words[1] : NULL;
	r = get_policy(c, id, &p, err);
	if (r < 0)
		return r == -EINVAL ? cli_usage(err) : cli_fail(err);
	if (p.mode == NET_OFFLINE) {
		(void)snprintf(k.why, sizeof(k.why), "offline has no network");
		open_by(&k, NULL, "--network", "isolated");
	} else if (is_addr) {
		check_address(&k, p.policy, addr, h.port, bare);
	} else {
		check_name(&k, p.policy, &h, id);
	}
	netplan_fini(&p);
	return print_check(c, words[0], &k);
}

/* ---- learn -------------------------------------------------------------- */

struct learn {
	struct netsum used, refused;
};

static int learn_event(void *arg, const struct netevent *e)
{
	struct learn *l = arg;

	/* a name that was only asked for was not used */
	if (e->verdict == NETEVENT_ALLOWED && strcmp(e->ev, "flow") == 0)
		netsum_add(&l->used, e, true);
	if (e->verdict == NETEVENT_REFUSED && netreport_is_request(e) &&
	    (strcmp(e->ev, "dns") == 0 || strcmp(e->ev, "flow") == 0))
		netsum_add(&l->refused, e, true);
	return 0;
}

/* As --allow-host takes it, or NULL for what no rule can name. */
static char *as_rule(const struct netsum_host *h)
{
	char text[HOST_PATTERN_BYTES];
	struct host_pattern p = { .port = h->port == 443 ? 0 : h->port };

	if (!h->is_name || host_name_parse(p.name, span_str(h->host), NULL) < 0 ||
	    egress_port_closed(p.port, NULL) || strcmp(p.name, "host.cloche") == 0)
		return NULL;
	return xstrdup(host_pattern_str(text, &p));
}

static int put_used(struct buf *b, const struct netsum *s)
{
	size_t n = 0;
	int r = buf_printf(b, "# as flags\n--egress locked");

	for (size_t i = 0; i < s->n && r == 0; i++) {
		AUTO_FREE char *rule = as_rule(&s->v[i]);
		n += rule != NULL;
		if (rule)
			r = buf_printf(b, " --allow-host %s", rule);
	}
	if (r == 0)
		r = buf_printf(b,
		               "\n# in config.yaml\nnetwork:\n  egress: locked\n  allow_hosts:%s\n",
		               n ? "" : " []");
	for (size_t i = 0; i < s->n && r == 0; i++) {
		AUTO_FREE char *rule = as_rule(&s->v[i]);
		if (rule)
			r = buf_printf(b, "    - %s\n", rule);
	}
	return r;
}

/* What stands in no rule: by address, to host.cloche, or with no name at all. */
static int put_rest(struct buf *b, const struct netsum *s)
{
	char seen[300];
	int r = 0;

	for (size_t i = 0; i < s->n && r == 0; i++) {
		const struct netsum_host *h = &s->v[i];
		AUTO_FREE char *rule = as_rule(h);
		if (rule)
			continue;
		if (strcmp(h->host, "host.cloche") == 0)
			r = buf_printf(b, "# used too: --host-service %u\n", h->port);
		else
			r = buf_printf(
				b, "# used too, and no rule of a name can open it: %s port %u\n",
				vis_str(seen, sizeof(seen), span_str(h->host)), h->port);
	}
	return r;
}

static int put_refused(struct buf *b, const struct netsum *s)
{
	char seen[300];
	int r = s->n ? buf_printf(b, "# refused; take out the '#' of what is needed\n") : 0;

	for (size_t i = 0; i < s->n && r == 0; i++) {
		const struct netsum_host *h = &s->v[i];
		AUTO_FREE char *rule = as_rule(h);
		r = buf_printf(b, "#   - %s # %s, %llu time%s\n",
		               rule ? rule : vis_str(seen, sizeof(seen), span_str(h->host)),
		               h->reason[0] ? h->reason : "refused", (unsigned long long)h->count,
		               h->count == 1 ? "" : "s");
	}
	return r;
}

static json_t *sum_json(const struct netsum *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->n; i++) {
		AUTO_FREE char *seen = vis_dup(span_str(s->v[i].host));
		AUTO_FREE char *rule = as_rule(&s->v[i]);
		json_t *j = json_pack("{ss sI}", "host", seen, "count", (json_int_t)s->v[i].count);
		if (s->v[i].port)
			(void)json_object_set_new(j, "port", json_integer(s->v[i].port));
		if (rule)
			(void)json_object_set_new(j, "rule", json_string(rule));
		if (s->v[i].reason[0])
			(void)json_object_set_new(j, "reason", json_string(s->v[i].reason));
		(void)json_array_append_new(list, j);
	}
	return list;
}

static int verb_learn(struct net_cmd *c, char **words, size_t n, struct err *err)
{
	struct learn l = { 0 };
	AUTO_BUF struct buf b = { 0 }, carry = { 0 };
	AUTO_FREE char *id = NULL;
	uint64_t bad = 0;

	AUTO_CLOSE int fd = open_events(c, n ? words[0] : NULL, &id, err);
	if (fd < 0)
		return cli_fail(err);
	int r = netevent_each(fd, &carry, learn_event, &l, &bad);
	netsum_sort(&l.used);
	netsum_sort(&l.refused);
	if (r == 0 && c->json) {
		json_t *top = json_pack("{si ss so so}", "schema", 1, "sandbox", id, "used",
		                        sum_json(&l.used), "refused", sum_json(&l.refused));
		AUTO_FREE char *s = json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS);
		json_decref(top);
		r = s ? buf_printf(&b, "%s\n", s) : -ENOMEM;
	} else if (r == 0) {
		r = buf_printf(&b, "# used by %s\n", id);
		if (r == 0)
			r = put_used(&b, &l.used);
		if (r == 0)
			r = put_refused(&b, &l.refused);
		if (r == 0)
			r = put_rest(&b, &l.used);
	}
	netsum_fini(&l.used);
	netsum_fini(&l.refused);
	if (r < 0) {
		err_code(err, r, "cannot read the log of '%s'", id);
		return cli_fail(err);
	}
	int code = cli_print(&b, 0);
	return code ? code : say_bad(bad);
}

/* ---- changes ------------------------------------------------------------ */

static int change(struct net_cmd *c, enum netctl_type type, char **words, size_t n, struct err *err)
{
	const char *verb = type == NETCTL_ALLOW ? "allow" : "deny";
	struct netctl_msg req = { .type = type };
	struct config_hosts hosts = { 0 };
	AUTO_FREE char *id = NULL;
	char text[HOST_PATTERN_BYTES], seen[128];
	const char *why = NULL;
	int r;

	if (n == 0) {
		err_set(err, -EINVAL, "net %s: which host?", verb);
		err_hint(err, "cloche net %s NAME[:PORT] [SANDBOX]", verb);
		return cli_usage(err);
	}
	r = config_add_host(&hosts, words[0], &why);
	if (r < 0) {
		err_set(err, r, "net %s: '%s': %s", verb,
		        vis_str(seen, sizeof(seen), span_str(words[0])), why);
		return cli_usage(err);
	}
	r = running(c, n > 1 ? words[1] : NULL, &id, err);
	bool usage = r == -E2BIG || r == -EINVAL;
	for (size_t i = 0; r == 0 && i < hosts.n; i++) {
		(void)snprintf(req.text, sizeof(req.text), "%s",
		               host_pattern_str(text, &hosts.v[i]));
		r = netctl_call(id, &req, NULL, 0, NULL, NULL, err);
		if (r == 0)
			(void)fprintf(stderr, "%s: %s is %s from now on\n", id, text,
			              type == NETCTL_ALLOW ? "allowed" : "refused");
	}
	config_hosts_fini(&hosts);
	if (r < 0)
		return usage ? cli_usage(err) : cli_fail(err);
	return 0;
}

static int verb_allow(struct net_cmd *c, char **words, size_t n, struct err *err)
{
	return change(c, NETCTL_ALLOW, words, n, err);
}

static int verb_deny(struct net_cmd *c, char **words, size_t n, struct err *err)
{
	return change(c, NETCTL_DENY, words, n, err);
}

static int verb_callback(struct net_cmd *c, char **words, size_t n, struct err *err)
{
	AUTO_FREE char *id = NULL;
	struct net_port p = { 0 };
	const char *why = NULL;
	char seen[64];
	uint16_t port = 0;

	if (n == 0) {
		err_set(err, -EINVAL, "net callback: which port?");
		err_hint(err, "cloche net callback PORT [SANDBOX]");
		return cli_usage(err);
	}
	if (config_port(words[0], &port, &why) < 0) {
		err_set(err, -EINVAL, "net callback: '%s': %s",
		        vis_str(seen, sizeof(seen), span_str(words[0])), why);
		return cli_usage(err);
	}
	int r = running(c, n > 1 ? words[1] : NULL, &id, err);
	if (r < 0)
		return r == -E2BIG || r == -EINVAL ? cli_usage(err) : cli_fail(err);
	r = ports_open_callback(&p, port, err);
	if (r < 0)
		return cli_fail(err);
	struct netctl_msg req = {
		.type = NETCTL_CALLBACK, .port = port, .once = true, .deadline_s = PORTS_CALLBACK_S
	};
	r = netctl_call(id, &req, p.fds, p.n_fds, NULL, NULL, err);
	for (size_t i = 0; i < p.n_fds; i++)
		auto_close_(&p.fds[i]);
	if (r < 0)
		return cli_fail(err);
	(void)fprintf(stderr, "%s: http://localhost:%u leads to the guest once, within 5 minutes\n",
	              id, port);
	return 0;
}

/* ---- the command -------------------------------------------------------- */

static const struct verb {
	const char *name;
	int (*fn)(struct net_cmd *c, char **words, size_t n, struct err *err);
	size_t words_max;
	bool policy; /* the options of a policy make sense without a sandbox */
} verbs[] = {
	{ "log", verb_log, 1, false },           { "check", verb_check, 2, true },
	{ "hosts", verb_hosts, 1, true },        { "learn", verb_learn, 1, false },
	{ "allow", verb_allow, 2, false },       { "deny", verb_deny, 2, false },
	{ "callback", verb_callback, 2, false },
};

static const struct verb *find_verb(const char *word, struct err *err)
{
	const char *names[ARRAY_LEN(verbs)];
	char seen[64];

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		names[i] = verbs[i].name;
		if (word && strcmp(word, verbs[i].name) == 0)
			return &verbs[i];
	}
	if (!word) {
		err_set(err, -EINVAL, "net log, check, hosts, learn, allow, deny or callback?");
		return NULL;
	}
	err_set(err, -EINVAL, "net: what is '%s'?", vis_str(seen, sizeof(seen), span_str(word)));
	const char *near = near_word(word, names, ARRAY_LEN(names));
	if (near)
		err_hint(err, "did you mean net %s?", near);
	else
		err_hint(err, "log, check, hosts, learn, allow, deny or callback");
	return NULL;
}

int cmd_net(int argc, char **argv)
{
	static struct net_cmd c;
	struct err e = { 0 };
	AUTO_FREE char **words = xcalloc((size_t)argc + 1, sizeof(*words));
	size_t n = 0;
	int rest, code = CLI_EXIT_REFUSED;

	config_init(&c.config);
	if (cli_parse(argc, argv, net_opts_, net_n_opts, on_opt, &c, words, &n, &rest, &e) < 0)
		return cli_usage(&e);
	const struct verb *v = find_verb(n ? words[0] : NULL, &e);
	if (!v)
		return cli_usage(&e);
	if (n - 1 > v->words_max || rest < argc) {
		err_set(&e, -EINVAL, "net %s: too many words", v->name);
		return cli_usage(&e);
	}
	bool has_id = v->policy && n - 1 == v->words_max;
	if (c.policy_opts && (!v->policy || has_id)) {
		err_set(&e, -EINVAL,
		        v->policy ? "net %s of a sandbox that runs: its policy is what it is"
		                  : "net %s takes no options of a policy",
		        v->name);
		return cli_usage(&e);
	}
	if (state_dirs_init(&c.dirs, true, &e) < 0)
		return cli_fail(&e);
	AUTO_FREE char *file = xasprintf("%s/config.yaml", c.dirs.config);
	if (config_load(&c.config, file, &e) < 0)
		code = cli_fail(&e);
	else
		code = v->fn(&c, words + 1, n - 1, &e);
	state_dirs_fini(&c.dirs);
	config_fini(&c.config);
	return code;
}
