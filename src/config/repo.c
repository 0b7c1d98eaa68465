/* SPDX-License-Identifier: Apache-2.0 */
#include "config/repo.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "config/yamlread.h"

static const char not_here[] = "a repository may not set this";
static const char only_lower[] = "a repository may only lower this";
static const char only_tighter[] = "a repository may only tighten this";
static const char by_flag[] = "a flag of this run says otherwise";

void repo_asks_fini(struct repo_asks *a)
{
	free(a->v);
	*a = (struct repo_asks){ 0 };
}

static bool text_ok(const char *s, size_t n)
{
	if (n == 0 || n > REPO_VALUE_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)s[i] < ' ' || s[i] == 0x7f)
			return false;
	}
	return true;
}

/* @key and @value fit, and are text. Return: 0 or -E2BIG. */
static int add(struct repo_asks *a, const char *key, struct span value)
{
	if (a->n == REPO_ASKS_MAX)
		return -E2BIG;
	if ((a->n & (a->n - 1)) == 0) /* 0, 1, 2, 4, ...: full */
		a->v = xrealloc(a->v, (a->n ? 2 * a->n : 1) * sizeof(*a->v));
	struct repo_ask *k = &a->v[a->n++];
	*k = (struct repo_ask){ .key = "" };
	memcpy(k->key, key, strlen(key));
	memcpy(k->value, value.p, value.len);
	return 0;
}

/* ---- the file ----------------------------------------------------------- */

struct reading {
	struct repo_asks *a;
	struct err *err;
};

static int on_value(void *arg, const char *section, const char *name, bool in_list UNUSED,
                    const char *value, const struct yaml_mark *m)
{
	struct reading *r = arg;
	char key[REPO_KEY_MAX + 1];

	if (!name || !value)
		return 0;
	/* the names are config.yaml's: it was read before */
	(void)snprintf(key, sizeof(key), "%s.%s", section, name);
	if (!text_ok(value, strlen(value)))
		return err_set(r->err, -EINVAL,
		               "%s:%u:%u: '%s' has a value with control characters, an empty "
		               "one, or one of more than %d bytes",
		               REPO_FILE, m->line, m->column, key, REPO_VALUE_MAX);
	if (add(r->a, key, span_str(value)) < 0)
		return err_set(r->err, -EINVAL, "%s:%u:%u: more than %d values", REPO_FILE, m->line,
		               m->column, REPO_ASKS_MAX);
	return 0;
}

int repo_read(struct repo_asks *out, const void *p, size_t n, struct err *err)
{
	struct repo_asks a = { 0 };
	struct reading rd = { .a = &a, .err = err };
	struct config c;

	*out = (struct repo_asks){ 0 };
	if (n > REPO_BYTES_MAX)
		return err_set(err, -EINVAL, "%s: more than %d bytes", REPO_FILE, REPO_BYTES_MAX);
	config_init(&c);
	int r = config_parse(&c, REPO_FILE, p, n, err);
	if (r == 0)
		r = yaml_walk(REPO_FILE, c.doc, "agents", on_value, &rd, err);
	if (r == 0 && config_agents(&c) && add(&a, "agents", span_str("...")) < 0)
		r = err_set(err, -EINVAL, "%s: more than %d values", REPO_FILE, REPO_ASKS_MAX);
	config_fini(&c);
	if (r < 0) {
		repo_asks_fini(&a);
		return r == -ENOMEM ? r : -EINVAL;
	}
	*out = a;
	return 0;
}

/* ---- lines -------------------------------------------------------------- */

int repo_put(struct buf *b, const struct repo_asks *a)
{
	for (size_t i = 0; i < a->n; i++) {
		if (buf_printf(b, "%s=%s\n", a->v[i].key, a->v[i].value) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool key_ok(struct span k)
{
	if (k.len == 0 || k.len > REPO_KEY_MAX)
		return false;
	for (size_t i = 0; i < k.len; i++) {
		if ((k.p[i] < 'a' || k.p[i] > 'z') && k.p[i] != '_' && k.p[i] != '.')
			return false;
	}
	return true;
}

static int parse_line(struct repo_asks *a, struct span s)
{
	const uint8_t *eq = memchr(s.p, '=', s.len);
	char key[REPO_KEY_MAX + 1] = "";

	if (!eq)
		return -EPROTO;
	struct span k = span_of(s.p, (size_t)(eq - s.p));
	struct span v = span_of(eq + 1, s.len - k.len - 1);
	if (!key_ok(k) || !text_ok((const char *)v.p, v.len))
		return -EPROTO;
	memcpy(key, k.p, k.len);
	return add(a, key, v) < 0 ? -EPROTO : 0;
}

int repo_parse(struct repo_asks *out, struct span s)
{
	struct repo_asks a = { 0 };
	int r = s.len > REPO_LINES_MAX ? -EPROTO : 0;

	*out = (struct repo_asks){ 0 };
	while (s.len && r == 0) {
		const uint8_t *nl = memchr(s.p, '\n', s.len);
		if (!nl) {
			r = -EPROTO;
			break;
		}
		size_t n = (size_t)(nl - s.p);
		r = parse_line(&a, span_of(s.p, n));
		s = span_of(nl + 1, s.len - n - 1);
	}
	if (r < 0) {
		repo_asks_fini(&a);
		return r;
	}
	*out = a;
	return 0;
}

/* ---- what it may ---------------------------------------------------------- */

static struct repo_effect ignored(const char *why)
{
	return (struct repo_effect){ REPO_IGNORED, why };
}

static struct repo_effect lower64(uint64_t *now, uint64_t want, bool given)
{
	if (want == *now)
		return (struct repo_effect){ REPO_SAME, NULL };
	if (want > *now)
		return ignored(only_lower);
	if (given)
		return ignored(by_flag);
	*now = want;
	return (struct repo_effect){ REPO_APPLIED, NULL };
}

static struct repo_effect lower32(uint32_t *now, uint32_t want, bool given)
{
	uint64_t v = *now;
	struct repo_effect e = lower64(&v, want, given);

	*now = (uint32_t)v;
	return e;
}

/* Larger is tighter. */
static struct repo_effect tighter(unsigned *now, unsigned want, bool given)
{
	if (want == *now)
		return (struct repo_effect){ REPO_SAME, NULL };
	if (want < *now)
		return ignored(only_tighter);
	if (given)
		return ignored(by_flag);
	*now = want;
	return (struct repo_effect){ REPO_APPLIED, NULL };
}

/* @tight is the value that allows less. */
static struct repo_effect tight_bool(bool *now, bool want, bool tight)
{
	if (want == *now)
		return (struct repo_effect){ REPO_SAME, NULL };
	if (want != tight)
		return ignored(only_tighter);
	*now = want;
	return (struct repo_effect){ REPO_APPLIED, NULL };
}

static unsigned apply_rank(enum config_apply a)
{
	return a == CONFIG_APPLY_AUTO ? 0 : a == CONFIG_APPLY_ASK ? 1 : 2;
}

static struct repo_effect tighten_apply(struct repo_run *r, enum config_apply want)
{
	unsigned now = apply_rank(r->apply);
	struct repo_effect e = tighter(&now, apply_rank(want), r->apply_given);

	if (e.fate == REPO_APPLIED)
		r->apply = want;
	return e;
}

/* Modes are ordered the other way round: offline is 0. */
static struct repo_effect tighten_mode(struct repo_run *r, const char *want)
{
	static const char *const modes[] = { "offline", "isolated", "shared" };
	unsigned now = 2 - r->mode, w = 0;

	while (strcmp(modes[2 - w], want) != 0)
		w++; /* it is one of them: config_set() took it */
	struct repo_effect e = tighter(&now, w, r->mode_given);
	r->mode = 2 - now;
	return e;
}

static struct repo_effect add_exclude(struct repo_run *r, const char *pattern)
{
	if (pattern[0] == '!')
		return ignored("a repository may only hide more");
	ASSERT(r->n_exclude < REPO_ASKS_MAX);
	r->exclude[r->n_exclude++] = pattern;
	return (struct repo_effect){ REPO_APPLIED, NULL };
}

static struct repo_effect add_deny(struct repo_run *r, const char *host)
{
	const char *why;

	if (r->mode == 0)
		return (struct repo_effect){ REPO_SAME, NULL };
	if (r->egress == EGRESS_PERMISSIVE)
		return ignored("the profile permissive refuses no host");
	if (config_add_host(&r->deny, host, &why) < 0)
		return ignored("more hosts than fit");
	return (struct repo_effect){ REPO_APPLIED, NULL };
}

static bool is(const struct repo_ask *k, const char *key)
{
	return strcmp(k->key, key) == 0;
}

static struct repo_effect tighten(struct repo_run *r, const struct repo_ask *k,
                                  const struct config *want)
{
	if (is(k, "vm.cpus"))
		return lower32(&r->cpus, want->cpus, r->cpus_given);
	if (is(k, "vm.memory")) {
		if (want->memory_mib < r->memory_min_mib && want->memory_mib < r->memory_mib)
			return ignored("the agent needs more");
		return lower32(&r->memory_mib, want->memory_mib, r->memory_given);
	}
	if (is(k, "vm.disk"))
		return lower64(&r->disk_bytes, want->disk_bytes, r->disk_given);
	if (is(k, "vm.tmp_size"))
		return lower64(&r->tmp_bytes, want->tmp_bytes, r->tmp_given);
	if (is(k, "workspace.exclude"))
		return add_exclude(r, k->value);
	if (is(k, "workspace.exclude_heavy"))
		return tight_bool(&r->exclude_heavy, want->exclude_heavy, true);
	if (is(k, "review.apply"))
		return tighten_apply(r, want->apply);
	if (is(k, "network.mode"))
		return tighten_mode(r, k->value);
	if (is(k, "network.egress") || is(k, "network.egress_profile")) {
		unsigned now = (unsigned)r->egress;
		struct repo_effect e = tighter(&now, (unsigned)want->net.profile, r->egress_given);
		r->egress = (enum egress_profile)now;
		return e;
	}
	if (is(k, "network.host_ca"))
		return tight_bool(&r->host_ca, want->net.host_ca, false);
	if (is(k, "network.publish_localhost"))
		return tight_bool(&r->publish_localhost, want->net.publish_localhost, false);
	return ignored(not_here);
}

int repo_tighten(struct repo_run *r, const struct repo_asks *a, struct repo_effect *out)
{
	_Static_assert(EGRESS_PERMISSIVE < EGRESS_STANDARD && EGRESS_STANDARD < EGRESS_LOCKED,
	               "larger is tighter");
	struct config want;
	int e = 0;

	config_init(&want);
	for (size_t i = 0; i < a->n && e == 0; i++) {
		const char *why;

		if (is(&a->v[i], "agents"))
			out[i] = ignored(not_here);
		else if (config_set(&want, a->v[i].key, a->v[i].value, &why) < 0)
			e = -EPROTO;
		else if (!is(&a->v[i], "network.deny_hosts"))
			out[i] = tighten(r, &a->v[i], &want);
	}
	/* the profile is known now */
	for (size_t i = 0; i < a->n && e == 0; i++) {
		if (is(&a->v[i], "network.deny_hosts"))
			out[i] = add_deny(r, a->v[i].value);
	}
	config_fini(&want);
	return e;
}
