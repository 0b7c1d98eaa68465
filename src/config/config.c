/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/near.h"
#include "base/vis.h"
#include "config/yamlread.h"
#include "policy/sources.h"

void config_init(struct config *c)
{
	*c = (struct config){
		.accel = "auto",
		.cpus = 2,
		.memory_mib = 4096,
		.disk_bytes = (uint64_t)16 << 30,
		.apply = CONFIG_APPLY_ASK,
		.image_pull = "missing",
		.image_verify = CONFIG_VERIFY_WARN,
		.net = { .mode = "isolated", .profile = EGRESS_STANDARD, .host_ca = true },
	};
}

void config_fini(struct config *c)
{
	for (size_t i = 0; i < c->n_exclude; i++)
		free(c->exclude[i]);
	config_hosts_fini(&c->net.hosts);
	config_hosts_fini(&c->net.deny);
	free(c->image_suite);
	free(c->image_mirror);
	free(c->image_boot);
	free(c->cosign_key);
	free(c->cosign_identity);
	free(c->cosign_issuer);
	ynode_free(c->doc);
	*c = (struct config){ 0 };
}

int config_size(const char *s, uint64_t *out)
{
	static const struct {
		const char *suffix;
		unsigned shift;
	} units[] = { { "", 20 },  { "m", 20 },  { "mi", 20 }, { "mib", 20 },
		      { "g", 30 }, { "gi", 30 }, { "gib", 30 } };
	uint64_t v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9'; p++) {
		v = v * 10 + (uint64_t)(*p - '0');
		if (v > UINT32_MAX) /* of MiB, and far beyond in GiB */
			return -EINVAL;
	}
	if (p == s)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (strcasecmp(p, units[i].suffix) != 0)
			continue;
		if (v << units[i].shift >> 20 > UINT32_MAX)
			return -EINVAL;
		*out = v << units[i].shift;
		return 0;
	}
	return -EINVAL;
}

static const char *const apply_names[] = { "ask", "auto", "none" };

const char *config_apply_name(enum config_apply a)
{
	return apply_names[a];
}

int config_apply_parse(const char *s, enum config_apply *out)
{
	for (unsigned i = 0; i < ARRAY_LEN(apply_names); i++) {
		if (strcmp(s, apply_names[i]) == 0) {
			*out = (enum config_apply)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- values of the network ---------------------------------------------- */

static int refuse(const char **out_why, const char *why)
{
	*out_why = why;
	return -EINVAL;
}

static const char port_closed[] = "that port is closed in every profile (mail between servers)";

static int add_set(struct config_hosts *h, const char *name, const char **out_why)
{
	const struct host_extra *x = host_extra_find(name);

	if (!x)
		return refuse(out_why, "there is no set of hosts with that name");
	for (size_t i = 0; x->patterns[i]; i++) {
		int r = config_add_host(h, x->patterns[i], out_why);
		if (r < 0)
			return r;
	}
	return 0;
}

int config_add_host(struct config_hosts *h, const char *s, const char **out_why)
{
	struct host_pattern p;

	if (s[0] == '@')
		return add_set(h, s + 1, out_why);
	int r = host_pattern_parse(&p, span_str(s), out_why);
	if (r < 0)
		return r;
	if (egress_port_closed(p.port, NULL))
		return refuse(out_why, port_closed);
	if (h->n == CONFIG_HOSTS_MAX)
		return -E2BIG;
	if ((h->n & (h->n - 1)) == 0) /* 0, 1, 2, 4, ...: full */
		h->v = xrealloc(h->v, (h->n ? 2 * h->n : 1) * sizeof(*h->v));
	h->v[h->n++] = p;
	return 0;
}

void config_hosts_fini(struct config_hosts *h)
{
	free(h->v);
	*h = (struct config_hosts){ 0 };
}

int config_port(const char *s, uint16_t *out, const char **out_why)
{
	uint32_t v = 0;
	size_t n = 0;

	for (; s[n] >= '0' && s[n] <= '9' && n < 6; n++)
		v = v * 10 + (uint32_t)(s[n] - '0');
	if (n == 0 || s[n] || s[0] == '0' || v > UINT16_MAX)
		return refuse(out_why, "a port is a number from 1 to 65535");
	*out = (uint16_t)v;
	return 0;
}

int config_service(const char *s, uint16_t *out, const char **out_why)
{
	uint16_t port;
	int r = config_port(s, &port, out_why);

	if (r < 0)
		return r;
	if (egress_port_closed(port, NULL))
		return refuse(out_why, port_closed);
	*out = port;
	return 0;
}

/*
 * Only what is closed can be opened, and of that not what leads to the host itself
 * (--host-service opens that port by port), nor what no connection goes to.
 */
int config_private(const char *s, struct ip4_net *out, const char **out_why)
{
	static const struct ip4_net closed[] = {
		{ IP4(10, 0, 0, 0), 8 },     { IP4(172, 16, 0, 0), 12 },
		{ IP4(192, 168, 0, 0), 16 }, { IP4(169, 254, 0, 0), 16 },
		{ IP4(100, 64, 0, 0), 10 },
	};
	static const struct ip4_net loopback = { IP4(127, 0, 0, 0), 8 };
	struct ip4_net n;

	if (ip4_net_parse(&n, span_str(s)) < 0)
		return refuse(out_why, "it is no IPv4 range, as 10.1.0.0/16 (no bits set behind "
		                       "the prefix)");
	if (n.bits >= loopback.bits && ip4_net_has(loopback, n.addr))
		return refuse(out_why, "loopback is opened port by port, with --host-service");
	for (size_t i = 0; i < ARRAY_LEN(closed); i++) {
		if (n.bits >= closed[i].bits && ip4_net_has(closed[i], n.addr)) {
			*out = n;
			return 0;
		}
	}
	return refuse(out_why, "it is not within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, "
	                       "169.254.0.0/16 or 100.64.0.0/10");
}

/* ---- keys --------------------------------------------------------------- */

static int set_accel(struct config *c, const char *v)
{
	if (strcmp(v, "auto") != 0 && strcmp(v, "kvm") != 0 && strcmp(v, "tcg") != 0)
		return -EINVAL;
	(void)snprintf(c->accel, sizeof(c->accel), "%s", v);
	return 0;
}

static int set_cpus(struct config *c, const char *v)
{
	unsigned n = 0;

	for (const char *p = v; *p; p++) {
		if (*p < '0' || *p > '9' || n > 64)
			return -EINVAL;
		n = n * 10 + (unsigned)(*p - '0');
	}
	if (n < 1 || n > 64)
		return -EINVAL;
	c->cpus = n;
	return 0;
}

static int size_in(const char *v, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t n;

	if (config_size(v, &n) < 0 || n < min || n > max)
		return -EINVAL;
	*out = n;
	return 0;
}

static int set_memory(struct config *c, const char *v)
{
	uint64_t n;

	if (size_in(v, (uint64_t)256 << 20, (uint64_t)1 << 40, &n) < 0)
		return -EINVAL;
	c->memory_mib = (uint32_t)(n >> 20);
	return 0;
}

static int set_disk(struct config *c, const char *v)
{
	return size_in(v, (uint64_t)64 << 20, (uint64_t)1 << 44, &c->disk_bytes);
}

static int set_tmp(struct config *c, const char *v)
{
	return size_in(v, (uint64_t)1 << 20, (uint64_t)64 << 30, &c->tmp_bytes);
}

static int set_bool(bool *dst, const char *v)
{
	if (strcmp(v, "true") != 0 && strcmp(v, "false") != 0)
		return -EINVAL;
	*dst = v[0] == 't';
	return 0;
}

static int set_heavy(struct config *c, const char *v)
{
	return set_bool(&c->exclude_heavy, v);
}

static int add_exclude(struct config *c, const char *v)
{
	if (v[0] == '\0')
		return -EINVAL;
	if (c->n_exclude == CONFIG_LIST_MAX)
		return -E2BIG;
	c->exclude[c->n_exclude++] = xstrdup(v);
	return 0;
}

static int set_apply(struct config *c, const char *v)
{
	return config_apply_parse(v, &c->apply);
}

static int set_string(char **dst, const char *v)
{
	if (v[0] == '\0' || strlen(v) > 512)
		return -EINVAL;
	for (const char *p = v; *p; p++) {
		if (*p <= ' ' || *p > '~')
			return -EINVAL;
	}
	free(*dst);
	*dst = xstrdup(v);
	return 0;
}

static int set_suite(struct config *c, const char *v)
{
	return set_string(&c->image_suite, v);
}

static int set_mirror(struct config *c, const char *v)
{
	return set_string(&c->image_mirror, v);
}

static int set_pull(struct config *c, const char *v)
{
	static const char *const names[] = { "missing", "always", "background", "never" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (strcmp(v, names[i]) == 0) {
			(void)snprintf(c->image_pull, sizeof(c->image_pull), "%s", v);
			return 0;
		}
	}
	return -EINVAL;
}

static int set_verify(struct config *c, const char *v)
{
	static const char *const names[] = { "off", "warn", "require" };

	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		if (strcmp(v, names[i]) == 0) {
			c->image_verify = (enum config_verify)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int set_boot(struct config *c, const char *v)
{
	return v[0] == '/' ? set_string(&c->image_boot, v) : -EINVAL;
}

/* It becomes the argument of a program: a path from the root, or a scheme of cosign's. */
static int set_cosign_key(struct config *c, const char *v)
{
	if (v[0] != '/' && !strstr(v, "://"))
		return -EINVAL;
	return v[0] == '-' ? -EINVAL : set_string(&c->cosign_key, v);
}

static int set_cosign_identity(struct config *c, const char *v)
{
	return v[0] == '-' ? -EINVAL : set_string(&c->cosign_identity, v);
}

static int set_cosign_issuer(struct config *c, const char *v)
{
	return v[0] == '-' ? -EINVAL : set_string(&c->cosign_issuer, v);
}

static int set_mode(struct config *c, const char *v)
{
	if (strcmp(v, "offline") != 0 && strcmp(v, "isolated") != 0 && strcmp(v, "shared") != 0)
		return -EINVAL;
	(void)snprintf(c->net.mode, sizeof(c->net.mode), "%s", v);
	return 0;
}

static int set_egress(struct config *c, const char *v)
{
	return egress_profile_parse(v, &c->net.profile);
}

static int set_host_ca(struct config *c, const char *v)
{
	return set_bool(&c->net.host_ca, v);
}

static int set_localhost(struct config *c, const char *v)
{
	return set_bool(&c->net.publish_localhost, v);
}

static int add_host(struct config *c, const char *v, const char **why)
{
	return config_add_host(&c->net.hosts, v, why);
}

static int deny_host(struct config *c, const char *v, const char **why)
{
	return config_add_host(&c->net.deny, v, why);
}

static int add_private(struct config *c, const char *v, const char **why)
{
	if (c->net.n_privates == EGRESS_PRIVATE_MAX)
		return -E2BIG;
	int r = config_private(v, &c->net.privates[c->net.n_privates], why);
	c->net.n_privates += r == 0;
	return r;
}

static int add_service(struct config *c, const char *v, const char **why)
{
	if (c->net.n_services == EGRESS_SERVICES_MAX)
		return -E2BIG;
	int r = config_service(v, &c->net.services[c->net.n_services], why);
	c->net.n_services += r == 0;
	return r;
}

static const struct key {
	const char *section, *name;
	bool list;
	int (*set)(struct config *c, const char *v);
	const char *what;
	/* instead of set: says why */
	int (*add)(struct config *c, const char *v, const char **why);
	const char *same_as; /* another name of this key: only one of the two may stand */
} keys[] = {
	{ "vm", "accel", false, set_accel, "auto, kvm or tcg" },
	{ "vm", "cpus", false, set_cpus, "a number from 1 to 64" },
	{ "vm", "memory", false, set_memory, "a size from 256m, as 4g" },
	{ "vm", "disk", false, set_disk, "a size from 64m, as 16g" },
	{ "vm", "tmp_size", false, set_tmp, "a size from 1m to 64g" },
	{ "workspace", "exclude_heavy", false, set_heavy, "true or false" },
	{ "workspace", "exclude", true, add_exclude, "patterns that are not empty, at most 256" },
	{ "review", "apply", false, set_apply, "ask, auto or none" },
	{ "network", "mode", false, set_mode, "offline, isolated or shared" },
	{ "network", "egress", false, set_egress, "permissive, standard or locked" },
	{ .section = "network",
	  .name = "egress_profile",
	  .set = set_egress,
	  .what = "permissive, standard or locked",
	  .same_as = "egress" },
	{ .section = "network",
	  .name = "allow_hosts",
	  .list = true,
	  .what = "hosts as NAME, NAME:PORT or @SET, at most 10000",
	  .add = add_host },
	{ .section = "network",
	  .name = "deny_hosts",
	  .list = true,
	  .what = "hosts as NAME, NAME:PORT or @SET, at most 10000",
	  .add = deny_host },
	{ .section = "network",
	  .name = "allow_private",
	  .list = true,
	  .what = "IPv4 ranges, at most 64",
	  .add = add_private },
	{ .section = "network",
	  .name = "host_services",
	  .list = true,
	  .what = "ports, at most 64",
	  .add = add_service },
	{ "network", "host_ca", false, set_host_ca, "true or false" },
	{ "network", "publish_localhost", false, set_localhost, "true or false" },
	{ "image", "suite", false, set_suite, "a Debian code name" },
	{ "image", "mirror", false, set_mirror, "a URL" },
	{ "image", "pull", false, set_pull, "missing, always, background or never" },
	{ "image", "verify", false, set_verify, "off, warn or require" },
	{ "image", "boot", false, set_boot, "a folder, as a path from the root" },
	{ "image", "cosign_key", false, set_cosign_key, "a path from the root, or a URL" },
	{ "image", "cosign_identity", false, set_cosign_identity,
	  "who signs, as in the certificate" },
	{ "image", "cosign_issuer", false, set_cosign_issuer, "a URL" },
};

static int put(struct config *c, const struct key *k, const char *value, const char **out_why)
{
	return k->add ? k->add(c, value, out_why) : k->set(c, value);
}

int config_set(struct config *c, const char *key, const char *value, const char **out_why)
{
	*out_why = NULL;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		size_t n = strlen(keys[i].section);

		if (strncmp(key, keys[i].section, n) == 0 && key[n] == '.' &&
		    strcmp(key + n + 1, keys[i].name) == 0)
			return put(c, &keys[i], value, out_why);
	}
	return -ENOENT;
}

struct load {
	struct config *c;
	const char *name;
	struct err *err;
	const struct key *key;
	bool seen[ARRAY_LEN(keys)];
};

static int at(const struct load *l, const struct yaml_mark *m, const char *fmt, ...)
	PRINTF_FMT(3, 4);
static int at(const struct load *l, const struct yaml_mark *m, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(l->err, -EINVAL, "%s:%u:%u: %s", l->name, m->line, m->column, text);
}

/* The sections, or the keys of one, that a typing mistake may stand for. */
static const char *near_key(const char *section, const char *name)
{
	const char *known[ARRAY_LEN(keys) + 1];
	size_t n = 0;

	if (!section)
		known[n++] = "agents";
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (!section || strcmp(keys[i].section, section) == 0)
			known[n++] = section ? keys[i].name : keys[i].section;
	}
	return near_word(name, known, n);
}

static int unknown_key(struct load *l, const struct yaml_mark *m, const char *section,
                       const char *name)
{
	char seen[128];
	const char *near = near_key(section, name);

	(void)at(l, m, "unknown key '%s%s%s'", section ? section : "", section ? "." : "",
	         vis_str(seen, sizeof(seen), span_str(name)));
	if (near)
		return err_hint(l->err, "did you mean '%s'?", near);
	return -EINVAL;
}

static int on_value(void *arg, const char *section, const char *name, bool in_list,
                    const char *value, const struct yaml_mark *m)
{
	struct load *l = arg;
	char seen[128];
	const struct key *k = NULL;
	bool known_section = false;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (strcmp(keys[i].section, section) != 0)
			continue;
		known_section = true;
		if (name && strcmp(keys[i].name, name) == 0)
			k = &keys[i];
	}
	if (!known_section)
		return unknown_key(l, m, NULL, section);
	if (!name)
		return value ? at(l, m, "'%s' must be a mapping", section) : 0;
	if (!k)
		return unknown_key(l, m, section, name);
	if (k->list != in_list)
		return at(l, m, "'%s.%s' must be %s", section, name,
		          k->list ? "a list" : "a single value");
	if (!value)
		return 0;                  /* an empty list */
	if (!k->list && l->seen[k - keys]) /* the reader refuses duplicates; be sure */
		return at(l, m, "'%s.%s' stands twice", section, name);
	l->seen[k - keys] = true;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct key *o = &keys[i];
		bool other = o != k && strcmp(o->section, section) == 0 && l->seen[i] &&
		             ((k->same_as && strcmp(o->name, k->same_as) == 0) ||
		              (o->same_as && strcmp(o->same_as, k->name) == 0));
		if (other)
			return at(l, m, "'%s.%s' and '%s.%s' are the same key", section, o->name,
			          section, name);
	}
	const char *why = NULL;
	int r = put(l->c, k, value, &why);
	if (r < 0 && why)
		return at(l, m, "'%s.%s': '%s': %s", section, name,
		          vis_str(seen, sizeof(seen), span_str(value)), why);
	if (r < 0)
		return at(l, m, "'%s.%s' must be %s, not '%s'", section, name, k->what,
		          vis_str(seen, sizeof(seen), span_str(value)));
	return 0;
}

int config_parse(struct config *c, const char *name, const void *p, size_t n, struct err *err)
{
	struct load l = { .c = c, .name = name, .err = err };
	struct ynode *top = NULL;
	int r = ynode_parse(&top, name, p, n, err);

	if (r == 0)
		r = yaml_walk(name, top, "agents", on_value, &l, err);
	const struct ynode *agents = ynode_get(top, "agents");
	if (r == 0 && agents && agents->kind != YNODE_MAP && agents->kind != YNODE_NULL)
		r = at(&l, &agents->at, "'agents' must be a mapping");
	if (r < 0) {
		ynode_free(top);
		return r;
	}
	ynode_free(c->doc);
	c->doc = top;
	return 0;
}

static const struct {
	const char *key, *value;
} defaults[] = {
	{ "vm.accel", "auto" },
	{ "vm.cpus", "2" },
	{ "vm.memory", "4g" },
	{ "vm.disk", "16g" },
	{ "vm.tmp_size", "null" }, /* half of the memory */
	{ "workspace.exclude", "[]" },
	{ "workspace.exclude_heavy", "false" },
	{ "review.apply", "ask" },
	{ "network.mode", "isolated" },
	{ "network.egress", "standard" },
	{ "network.allow_hosts", "[]" },
	{ "network.deny_hosts", "[]" },
	{ "network.allow_private", "[]" },
	{ "network.host_services", "[]" },
	{ "network.host_ca", "true" },
	{ "network.publish_localhost", "false" },
	{ "image.suite", "null" }, /* the recipe's */
	{ "image.mirror", "null" },
	{ "image.pull", "missing" },
	{ "image.verify", "warn" },
	{ "image.boot", "null" },
	{ "image.cosign_key", "null" },
	{ "image.cosign_identity", "null" },
	{ "image.cosign_issuer", "null" },
};

const char *config_key(size_t i, const char **out_default)
{
	if (i >= ARRAY_LEN(defaults))
		return NULL;
	*out_default = defaults[i].value;
	return defaults[i].key;
}

const struct ynode *config_said(const struct config *c, const char *key)
{
	char section[32] = "";
	const char *dot = strchr(key, '.');

	ASSERT(dot && (size_t)(dot - key) < sizeof(section));
	memcpy(section, key, (size_t)(dot - key));
	const struct ynode *s = ynode_get(c->doc, section), *n = ynode_get(s, dot + 1);
	for (size_t i = 0; i < ARRAY_LEN(keys) && !n; i++) {
		if (keys[i].same_as && strcmp(keys[i].section, section) == 0 &&
		    strcmp(keys[i].same_as, dot + 1) == 0)
			n = ynode_get(s, keys[i].name);
	}
	return n;
}

const struct ynode *config_agents(const struct config *c)
{
	return ynode_get(c->doc, "agents");
}

bool config_has(const struct config *c, const char *section, const char *name)
{
	return ynode_get(ynode_get(c->doc, section), name) != NULL;
}

int config_load(struct config *c, const char *path, struct err *err)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO_FREE char *text = NULL;
	const char *base = strrchr(path, '/');
	struct stat st;
	size_t len = 0;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR
		               ? 0
		               : err_errno(err, "cannot read the configuration '%s'", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "the configuration '%s' is not a regular file", path);
	int r = fd_read_file(fd, CONFIG_BYTES_MAX, &text, &len);
	if (r < 0)
		return err_code(err, r, "cannot read the configuration '%s'", path);
	r = config_parse(c, base ? base + 1 : path, text, len, err);
	if (r < 0)
		err_hint(err, "see docs/configuration.md; the file is %s", path);
	return r;
}
