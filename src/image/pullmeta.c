/* SPDX-License-Identifier: Apache-2.0 */
/* pullmeta.c - the texts of pull_priv.h: beside meta.c the module's only user of jansson. */
#include "image/pull_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"

enum { SCHEMA = 1, LIST_MAX = 4096 };

static const char rootfs_file[] = "rootfs.erofs";
static const char *const vouched_names[] = { "nobody", "policy", "cosign" };

const char *pull_vouched_name(enum pull_vouched v)
{
	return vouched_names[v];
}

static bool copy_text(json_t *o, const char *key, char *dst, size_t cap)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s || strlen(s) >= cap)
		return false;
	memcpy(dst, s, strlen(s) + 1);
	return true;
}

static bool get_digest(json_t *o, const char *key, char dst[REF_DIGEST_BYTES])
{
	return copy_text(o, key, dst, REF_DIGEST_BYTES) && ref_digest_ok(dst);
}

static bool get_time(json_t *o, const char *key, int64_t *out)
{
	json_t *v = json_object_get(o, key);

	*out = json_integer_value(v);
	return json_is_integer(v) && *out >= 0;
}

static json_t *load(const void *p, size_t n, size_t max)
{
	json_t *o = n > max ? NULL : json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);

	if (o && json_integer_value(json_object_get(o, "schema")) == SCHEMA)
		return o;
	json_decref(o);
	return NULL;
}

static int dump(json_t *o, char **out)
{
	char *s = o ? json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;

	json_decref(o);
	if (!s)
		return -ENOMEM;
	*out = xasprintf("%s\n", s);
	free(s);
	return 0;
}

/* ---- an image ----------------------------------------------------------- */

static bool get_word(json_t *o, const char *key, char **out)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s)
		return false;
	*out = xstrdup(s);
	return true;
}

static bool get_words(json_t *o, const char *key, char ***out)
{
	json_t *list = json_object_get(o, key);
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n > LIST_MAX)
		return false;
	char **v = xcalloc(n + 1, sizeof(*v));
	*out = v;
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(list, i));
		if (!s)
			return false;
		v[i] = xstrdup(s);
	}
	return true;
}

static bool get_labels(json_t *o, struct oci_config *c)
{
	json_t *map = json_object_get(o, "labels"), *v;
	const char *key;

	if (!json_is_object(map) || json_object_size(map) > LIST_MAX)
		return false;
	c->labels = xcalloc(json_object_size(map) + 1, sizeof(*c->labels));
	json_object_foreach(map, key, v)
	{
		if (!json_is_string(v))
			return false;
		c->labels[c->n_labels].name = xstrdup(key);
		c->labels[c->n_labels++].value = xstrdup(json_string_value(v));
	}
	return true;
}

static bool get_config(json_t *o, struct oci_config *c)
{
	return json_is_object(o) && get_word(o, "user", &c->user) &&
	       get_word(o, "workdir", &c->workdir) && get_word(o, "os", &c->os) &&
	       get_word(o, "arch", &c->arch) && get_words(o, "env", &c->env) &&
	       get_words(o, "entrypoint", &c->entrypoint) && get_words(o, "cmd", &c->cmd) &&
	       get_labels(o, c);
}

int pull_info_parse(struct pull_info *out, const void *p, size_t n)
{
	struct pull_info i = { 0 };
	json_t *o = load(p, n, PULL_TEXT_MAX);
	json_t *f = json_object_get(json_object_get(o, "files"), rootfs_file);
	json_t *size = json_object_get(f, "size");
	const char *hash = json_string_value(json_object_get(f, "blake2b"));
	bool ok = o && json_integer_value(json_object_get(o, "format")) == PULL_FORMAT &&
	          get_digest(o, "digest", i.digest) && get_time(o, "built", &i.built_s) &&
	          get_time(o, "last_used", &i.used_s) && json_is_integer(size) &&
	          json_integer_value(size) > 0 && hash && hash_parse(&i.hash, hash) == 0 &&
	          get_config(json_object_get(o, "config"), &i.config);

	i.size = (uint64_t)json_integer_value(size);
	json_decref(o);
	if (!ok) {
		pull_info_fini(&i);
		return -EBADMSG;
	}
	*out = i;
	return 0;
}

static json_t *words_json(char *const *v)
{
	json_t *list = json_array();

	for (; v && *v; v++)
		(void)json_array_append_new(list, json_string(*v));
	return list;
}

int pull_info_format(const struct pull_info *i, char **out)
{
	const struct oci_config *c = &i->config;
	json_t *labels = json_object();
	char hex[HASH_HEX_BYTES];

	hash_hex(hex, &i->hash);
	for (size_t k = 0; k < c->n_labels; k++)
		(void)json_object_set_new(labels, c->labels[k].name,
		                          json_string(c->labels[k].value));
	json_t *config = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "user",
	                           c->user ? c->user : "", "workdir", c->workdir ? c->workdir : "",
	                           "os", c->os ? c->os : "", "arch", c->arch ? c->arch : "", "env",
	                           words_json(c->env), "entrypoint", words_json(c->entrypoint),
	                           "cmd", words_json(c->cmd), "labels", labels);
	if (!config)
		return -EBADMSG; /* a text that is not UTF-8: the merge lets none through */
	return dump(json_pack("{s:i, s:i, s:s, s:I, s:I, s:o, s:{s:{s:I, s:s}}}", "schema", SCHEMA,
	                      "format", PULL_FORMAT, "digest", i->digest, "built",
	                      (json_int_t)i->built_s, "last_used", (json_int_t)i->used_s, "config",
	                      config, "files", rootfs_file, "size", (json_int_t)i->size, "blake2b",
	                      hex),
	            out);
}

void pull_info_fini(struct pull_info *i)
{
	oci_config_free(&i->config);
}

/* ---- a reference -------------------------------------------------------- */

int pull_entry_parse(struct pull_entry *out, const void *p, size_t n)
{
	struct pull_entry e = { 0 };
	json_t *o = load(p, n, PULL_TEXT_MAX);
	const char *by = json_string_value(json_object_get(o, "vouched"));
	bool ok = o && copy_text(o, "ref", e.ref, sizeof(e.ref)) &&
	          get_digest(o, "digest", e.digest) && get_time(o, "asked", &e.seen_s) && by &&
	          (!json_object_get(o, "moved_from") || get_digest(o, "moved_from", e.was));
	bool known = false;

	for (unsigned i = 0; ok && i < ARRAY_LEN(vouched_names); i++) {
		if (strcmp(by, vouched_names[i]) == 0) {
			e.vouched = (enum pull_vouched)i;
			known = true;
		}
	}
	json_decref(o);
	if (!known)
		return -EBADMSG;
	*out = e;
	return 0;
}

int pull_entry_format(const struct pull_entry *e, char **out)
{
	return dump(json_pack("{s:i, s:s, s:s, s:I, s:s, s:o*}", "schema", SCHEMA, "ref", e->ref,
	                      "digest", e->digest, "asked", (json_int_t)e->seen_s, "vouched",
	                      vouched_names[e->vouched], "moved_from",
	                      e->was[0] ? json_string(e->was) : NULL),
	            out);
}

/* ---- the lock file ------------------------------------------------------ */

/* {"schema": 1, "npm": {...}, "oci": {"docker://NAME:TAG": "sha256:..."}} */
static json_t *load_lock(const void *p, size_t n)
{
	json_t *o = load(p, n, IMAGE_LOCK_MAX);
	json_t *oci = json_object_get(o, "oci");

	if (o && (!oci || json_is_object(oci)))
		return o;
	json_decref(o);
	return NULL;
}

int pull_lock_get(const void *p, size_t n, const char *ref, char out[REF_DIGEST_BYTES])
{
	json_t *o = load_lock(p, n);
	json_t *oci = json_object_get(o, "oci");
	int r = !o ? -EBADMSG : json_object_get(oci, ref) ? 1 : 0;

	if (r == 1 && !get_digest(oci, ref, out))
		r = -EBADMSG;
	json_decref(o);
	return r;
}

int pull_lock_put(const void *p, size_t n, const char *ref, const char *digest, char **out)
{
	json_t *o = n ? load_lock(p, n) : json_pack("{s:i, s:{}}", "schema", SCHEMA, "npm");

	*out = NULL;
	if (!o)
		return n ? -EBADMSG : -ENOMEM;
	json_t *oci = json_object_get(o, "oci");
	const char *old = json_string_value(json_object_get(oci, ref));
	if (old && strcmp(old, digest) == 0) {
		json_decref(o);
		return 0;
	}
	if (!oci) {
		oci = json_object();
		if (json_object_set_new(o, "oci", oci) < 0)
			oci = NULL;
	}
	if (!oci || json_object_set_new(oci, ref, json_string(digest)) < 0) {
		json_decref(o);
		return -ENOMEM;
	}
	return dump(o, out);
}

/* ---- signature policies ------------------------------------------------- */

/* A list of requirements, all of which must hold. */
static int demand_of(json_t *list, enum pull_demand *out)
{
	enum pull_demand d = PULL_DEMAND_NOTHING;

	if (!json_is_array(list) || json_array_size(list) == 0)
		return -EBADMSG;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *type =
			json_string_value(json_object_get(json_array_get(list, i), "type"));
		if (!type)
			return -EBADMSG;
		if (strcmp(type, "reject") == 0)
			d = PULL_DEMAND_REJECT;
		else if (strcmp(type, "insecureAcceptAnything") != 0 && d != PULL_DEMAND_REJECT)
			d = PULL_DEMAND_SIGNED; /* also of kinds that are newer than this */
	}
	*out = d;
	return 0;
}

/* The most specific scope that is there: the name, what is above it, "*.DOMAIN", "". */
static json_t *find_scope(json_t *scopes, const struct image_ref *ref)
{
	AUTO_FREE char *name = xstrdup(ref->name);
	json_t *found = json_object_get(scopes, name);

	for (char *slash; !found && (slash = strrchr(name, '/')) && slash != name;) {
		*slash = '\0';
		found = json_object_get(scopes, name);
	}
	if (ref->source == REF_REGISTRY) {
		for (const char *dot = strchr(ref->host, '.'); !found && dot;
		     dot = strchr(dot + 1, '.')) {
			AUTO_FREE char *wild = xasprintf("*%s", dot);
			found = json_object_get(scopes, wild);
		}
	}
	return found ? found : json_object_get(scopes, "");
}

int pull_policy_demand(const void *p, size_t n, const struct image_ref *ref, enum pull_demand *out)
{
	static const char *const transports[REF_SOURCES] = {
		[REF_REGISTRY] = "docker",
		[REF_CONTAINERS_STORAGE] = "containers-storage",
		[REF_DOCKER_DAEMON] = "docker-daemon",
		[REF_OCI] = "oci",
		[REF_OCI_ARCHIVE] = "oci-archive",
	};
	json_t *o = n > PULL_POLICY_MAX ? NULL : json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
	json_t *scopes = json_object_get(json_object_get(o, "transports"), transports[ref->source]);
	enum pull_demand d = PULL_DEMAND_NOTHING;
	int r = o ? 0 : -EBADMSG;

	/* an image is asked for by its digest, so a rule for one of its tags would never apply */
	AUTO_FREE char *tagged = xasprintf("%s:%s", ref->name, ref->tag);
	json_t *by_tag = ref->tag[0] ? json_object_get(scopes, tagged) : NULL;
	if (r == 0 && by_tag) {
		r = demand_of(by_tag, &d);
		if (r == 0 && ref->source == REF_REGISTRY && d == PULL_DEMAND_SIGNED)
			d = PULL_DEMAND_BY_TAG;
	} else if (r == 0) {
		json_t *scope = find_scope(scopes, ref);
		r = demand_of(scope ? scope : json_object_get(o, "default"), &d);
	}
	json_decref(o);
	if (r == 0)
		*out = d;
	return r;
}
