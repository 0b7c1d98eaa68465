/* SPDX-License-Identifier: Apache-2.0 */
/* meta.c - manifest.json: the module's only user of jansson. */
#include "image/image_priv.h"

#include <errno.h>
#include <stdio.h>

#include <jansson.h>

#include "image/layer.h"

enum { SCHEMA = 1 };

const char *const image_file_names[IMAGE_FILES] = { IMAGE_ROOTFS, IMAGE_KERNEL, IMAGE_MODULES };

static bool text_ok(const char *s)
{
	for (; *s; s++) {
		bool ok = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
		          (*s >= '0' && *s <= '9') || strchr(".+~_-", *s);
		if (!ok)
			return false;
	}
	return true;
}

static bool get_text(json_t *o, const char *key, char *dst, size_t cap)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s || strlen(s) >= cap || !text_ok(s))
		return false;
	memcpy(dst, s, strlen(s) + 1);
	return true;
}

static bool get_digest(json_t *o, struct hash *out)
{
	const char *s = json_string_value(json_object_get(o, "blake2b"));

	return s && hash_parse(out, s) == 0;
}

/* "npm https://host:443" each; an image that was built before there were any has none. */
static bool get_registries(json_t *list, struct registry_list *out)
{
	AUTO_BUF struct buf text = { 0 };

	if (!list)
		return true;
	if (!json_is_array(list) || json_array_size(list) > REGISTRY_MAX)
		return false;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));
		if (!s || strchr(s, '\n') || buf_printf(&text, "%s\n", s) < 0)
			return false;
	}
	return registry_parse(out, span_of(text.p, text.len)) == 0;
}

static json_t *put_registries(const struct registry_list *l)
{
	json_t *list = json_array();

	for (size_t i = 0; i < l->n; i++) {
		char url[URL_ORIGIN_BYTES];
		json_t *s = json_sprintf("%s %s", l->v[i].tool, url_origin_str(url, &l->v[i].at));
		if (json_array_append_new(list, s) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

int image_manifest_parse(struct image_manifest *out, const void *p, size_t n)
{
	struct image_manifest m = { 0 };

	if (n > IMAGE_MANIFEST_MAX)
		return -EBADMSG;
	json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
	bool ok = o && json_integer_value(json_object_get(o, "schema")) == SCHEMA &&
	          get_text(o, "name", m.info.name, sizeof(m.info.name)) &&
	          get_text(o, "id", m.info.id, sizeof(m.info.id)) &&
	          get_text(o, "suite", m.info.suite, sizeof(m.info.suite)) &&
	          get_text(o, "kernel_release", m.info.kernel_release,
	                   sizeof(m.info.kernel_release)) &&
	          get_text(o, "kernel_package", m.package, sizeof(m.package));
	json_t *built = json_object_get(o, "built");
	ok = ok && json_is_integer(built) && json_integer_value(built) >= 0 &&
	     get_registries(json_object_get(o, "registries"), &m.registries);
	m.info.built_s = json_integer_value(built);
	for (int i = 0; i < IMAGE_FILES && ok; i++) {
		json_t *f = json_object_get(json_object_get(o, "files"), image_file_names[i]);
		json_t *size = json_object_get(f, "size");
		ok = json_is_integer(size) && json_integer_value(size) > 0 &&
		     get_digest(f, &m.digest[i]);
		m.size[i] = (uint64_t)json_integer_value(size);
		ok = ok && u64_add(m.info.size, m.size[i], &m.info.size);
	}
	json_decref(o);
	if (!ok)
		return -EBADMSG;
	m.info.digest = m.digest[0];
	*out = m;
	return 0;
}

int image_manifest_format(const struct image_manifest *m, char **out)
{
	json_t *files = json_object();
	int bad = 0;

	for (int i = 0; i < IMAGE_FILES; i++) {
		char hex[HASH_HEX_BYTES];
		hash_hex(hex, &m->digest[i]);
		bad |= json_object_set_new(files, image_file_names[i],
		                           json_pack("{s:I, s:s}", "size", (json_int_t)m->size[i],
		                                     "blake2b", hex));
	}
	json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:o}", "schema", SCHEMA,
	                      "name", m->info.name, "id", m->info.id, "suite", m->info.suite,
	                      "kernel_release", m->info.kernel_release, "kernel_package",
	                      m->package, "built", (json_int_t)m->info.built_s, "files", files,
	                      "registries", put_registries(&m->registries));
	char *s = o && !bad ? json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
	json_decref(o);
	if (!s)
		return -ENOMEM;
	*out = xasprintf("%s\n", s);
	free(s);
	return 0;
}

/* ---- layers ------------------------------------------------------------- */

static const char layer_file[] = "layer.erofs";

static bool copy_text(json_t *o, const char *key, char *dst, size_t cap)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s || strlen(s) >= cap)
		return false;
	memcpy(dst, s, strlen(s) + 1);
	return true;
}

int image_layer_parse(struct layer_info *out, const void *p, size_t n)
{
	struct layer_info l = { 0 };
	uint8_t sum[SHA512_BYTES];

	if (n > IMAGE_MANIFEST_MAX)
		return -EBADMSG;
	json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
	json_t *f = json_object_get(json_object_get(o, "files"), layer_file);
	json_t *size = json_object_get(f, "size"), *built = json_object_get(o, "built");
	bool ok = o && json_integer_value(json_object_get(o, "schema")) == SCHEMA &&
	          get_text(o, "id", l.id, sizeof(l.id)) &&
	          copy_text(o, "package", l.package, sizeof(l.package)) && npm_name_ok(l.package) &&
	          copy_text(o, "version", l.version, sizeof(l.version)) &&
	          npm_version_ok(l.version) &&
	          copy_text(o, "integrity", l.integrity, sizeof(l.integrity)) &&
	          npm_integrity_parse(sum, span_str(l.integrity)) == 0 && json_is_integer(built) &&
	          json_integer_value(built) >= 0 && json_is_integer(size) &&
	          json_integer_value(size) > 0 && get_digest(f, &l.digest);
	l.built_s = json_integer_value(built);
	l.size = (uint64_t)json_integer_value(size);
	json_decref(o);
	if (!ok)
		return -EBADMSG;
	*out = l;
	return 0;
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

int image_layer_format(const struct layer_info *l, char **out)
{
	char hex[HASH_HEX_BYTES];

	hash_hex(hex, &l->digest);
	return dump(json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:{s:{s:I, s:s}}}", "schema", SCHEMA,
	                      "id", l->id, "package", l->package, "version", l->version,
	                      "integrity", l->integrity, "built", (json_int_t)l->built_s, "files",
	                      layer_file, "size", (json_int_t)l->size, "blake2b", hex),
	            out);
}

/* ---- the lock file ------------------------------------------------------ */

/* {"schema": 1, "npm": {"PACKAGE@VERSION": "sha512-..."}}; a new reference, or NULL. */
static json_t *load_lock(const void *p, size_t n)
{
	json_t *o = n > IMAGE_LOCK_MAX ? NULL : json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);

	if (o && json_integer_value(json_object_get(o, "schema")) == SCHEMA &&
	    json_is_object(json_object_get(o, "npm")))
		return o;
	json_decref(o);
	return NULL;
}

int image_lock_get(const void *p, size_t n, const char *package, const char *version, char *out)
{
	char key[NPM_NAME_MAX + NPM_VERSION_MAX + 2];
	json_t *o = load_lock(p, n);
	int r = 0;

	if (!o)
		return -EBADMSG;
	(void)snprintf(key, sizeof(key), "%s@%s", package, version);
	json_t *v = json_object_get(json_object_get(o, "npm"), key);
	const char *s = json_string_value(v);
	if (v)
		r = s && strlen(s) < NPM_INTEGRITY_BYTES ? 1 : -EBADMSG;
	if (r == 1)
		memcpy(out, s, strlen(s) + 1);
	json_decref(o);
	return r;
}

int image_lock_put(const void *p, size_t n, const char *package, const char *version,
                   const char *integrity, char **out)
{
	char key[NPM_NAME_MAX + NPM_VERSION_MAX + 2];
	json_t *o = n ? load_lock(p, n) : json_pack("{s:i, s:{}}", "schema", SCHEMA, "npm");

	*out = NULL;
	if (!o)
		return n ? -EBADMSG : -ENOMEM;
	(void)snprintf(key, sizeof(key), "%s@%s", package, version);
	json_t *all = json_object_get(o, "npm");
	const char *old = json_string_value(json_object_get(all, key));
	if (old && strcmp(old, integrity) == 0) {
		json_decref(o);
		return 0;
	}
	if (json_object_set_new(all, key, json_string(integrity)) < 0) {
		json_decref(o);
		return -ENOMEM;
	}
	return dump(o, out);
}
