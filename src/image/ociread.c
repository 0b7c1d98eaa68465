/* SPDX-License-Identifier: Apache-2.0 */
/* ociread.c - manifests, indexes and configs, any bytes. */
#include "image/ocireader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/err.h"
#include "base/vis.h"
#include "image/ref.h"

static const char want_os[] = "linux", want_arch[] = "amd64";

static json_t *load(struct span json, struct err *err)
{
	json_error_t e;
	json_t *o = json.len <= OCI_JSON_MAX
	                    ? json_loadb((const char *)json.p, json.len, JSON_REJECT_DUPLICATES, &e)
	                    : NULL;

	if (json_is_object(o))
		return o;
	json_decref(o);
	(void)err_set(err, -EPROTO, "it is no JSON object");
	return NULL;
}

static int put(struct buf *out, const char *tag, const char *value)
{
	size_t n = strlen(tag) + 1 + strlen(value) + 1;

	if (n > OCI_WORDS_MAX || out->len > OCI_WORDS_MAX - n)
		return -EFBIG;
	int r = buf_put(out, tag, strlen(tag));
	if (r == 0)
		r = buf_put(out, "=", 1);
	return r < 0 ? r : buf_put(out, value, strlen(value) + 1);
}

/* A text member; "" when it is missing or null, NULL when it is something else. */
static const char *text(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	return !v || json_is_null(v) ? "" : json_string_value(v);
}

static int put_descriptor(struct buf *out, const char *tag, json_t *d, uint64_t max,
                          struct err *err)
{
	const char *digest = json_string_value(json_object_get(d, "digest"));
	json_t *size = json_object_get(d, "size");
	char words[128];

	if (!digest || !ref_digest_ok(digest))
		return err_set(err, -EPROTO, "a part of it has no SHA-256 for a name");
	if (!json_is_integer(size) || json_integer_value(size) < 0)
		return err_set(err, -EPROTO, "a part of it has no size");
	if ((uint64_t)json_integer_value(size) > max)
		return err_set(err, -EFBIG,
		               "a part of it is too large (%" JSON_INTEGER_FORMAT " bytes)",
		               json_integer_value(size));
	(void)snprintf(words, sizeof(words), "%s %" JSON_INTEGER_FORMAT, digest,
	               json_integer_value(size));
	int r = put(out, tag, words);
	return r < 0 ? err_code(err, r, "it is too large") : 0;
}

/* ---- an index ----------------------------------------------------------- */

/* "linux/arm64, ..." of all that it has, for the error. */
static int none_for_us(json_t *list, struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	char seen[64];
	size_t i;
	json_t *d;

	json_array_foreach(list, i, d)
	{
		json_t *p = json_object_get(d, "platform");
		const char *os = text(p, "os"), *arch = text(p, "architecture");
		if (i >= 8 || !os || !arch)
			break;
		AUTO_FREE char *both = xasprintf("%s/%s", os[0] ? os : "?", arch[0] ? arch : "?");
		if (buf_printf(&b, "%s%s", b.len ? ", " : "",
		               vis_str(seen, sizeof(seen), span_str(both))) < 0)
			break;
	}
	return err_set(err, -ENOEXEC, "it is made for %.*s, not for %s/%s", b.len ? (int)b.len : 7,
	               b.len ? (const char *)b.p : "nothing", want_os, want_arch);
}

static int read_index(json_t *list, struct buf *out, struct err *err)
{
	size_t i;
	json_t *d;

	if (json_array_size(list) > OCI_LIST_MAX)
		return err_set(err, -EFBIG, "it is an index of more than %d images", OCI_LIST_MAX);
	json_array_foreach(list, i, d)
	{
		json_t *p = json_object_get(d, "platform");
		const char *os = text(p, "os"), *arch = text(p, "architecture");
		const char *variant = text(p, "variant");
		/* variants above are for newer processors than every amd64 */
		if (os && arch && variant && strcmp(os, want_os) == 0 &&
		    strcmp(arch, want_arch) == 0 && (!variant[0] || strcmp(variant, "v1") == 0))
			return put_descriptor(out, "manifest", d, OCI_JSON_MAX, err);
	}
	return none_for_us(list, err);
}

/* ---- a manifest --------------------------------------------------------- */

static bool layer_type_ok(const char *type)
{
	static const char *const known[] = {
		"application/vnd.oci.image.layer.v1.tar",
		"application/vnd.oci.image.layer.v1.tar+gzip",
		"application/vnd.oci.image.layer.v1.tar+zstd",
		"application/vnd.oci.image.layer.nondistributable.v1.tar",
		"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
		"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
		"application/vnd.docker.image.rootfs.diff.tar",
		"application/vnd.docker.image.rootfs.diff.tar.gzip",
		"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcmp(type, known[i]) == 0)
			return true;
	}
	return false;
}

static int read_manifest(json_t *o, struct buf *out, struct err *err)
{
	json_t *layers = json_object_get(o, "layers"), *d;
	char seen[128];
	size_t i;

	if (json_array_size(layers) > OCI_LAYERS_MAX)
		return err_set(err, -EFBIG, "it has more than %d layers", OCI_LAYERS_MAX);
	int r = put_descriptor(out, "config", json_object_get(o, "config"), OCI_JSON_MAX, err);
	if (r < 0)
		return r;
	json_array_foreach(layers, i, d)
	{
		const char *type = text(d, "mediaType");
		if (!type || (type[0] && !layer_type_ok(type)))
			return err_set(err, -EPROTO,
			               "it has a layer of the type '%s', which is no archive",
			               vis_str(seen, sizeof(seen), span_str(type ? type : "?")));
		r = put_descriptor(out, "layer", d, OCI_BLOB_MAX, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int oci_read_root(struct span json, struct buf *out, struct err *err)
{
	json_t *o = load(json, err);
	json_t *list = json_object_get(o, "manifests"), *layers = json_object_get(o, "layers");
	int r;

	if (!o)
		return -EPROTO;
	if (json_integer_value(json_object_get(o, "schemaVersion")) != 2)
		r = err_set(err, -EPROTO, "its manifest is not of schema 2");
	else if (json_is_array(list) && !layers && !json_object_get(o, "config"))
		r = read_index(list, out, err);
	else if (json_is_array(layers) && !list)
		r = read_manifest(o, out, err);
	else /* also what could be taken for both */
		r = err_set(err, -EPROTO, "it is neither an index nor a manifest");
	json_decref(o);
	return r;
}

/* ---- a config ----------------------------------------------------------- */

static int wrong(struct err *err, const char *what)
{
	return err_set(err, -EPROTO, "its config has a wrong %s", what);
}

static int put_list(struct buf *out, json_t *c, const char *key, const char *tag, struct err *err)
{
	json_t *list = json_object_get(c, key), *v;
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list))
		return wrong(err, key);
	if (json_array_size(list) > OCI_LIST_MAX)
		return err_set(err, -EFBIG, "its config has more than %d of %s", OCI_LIST_MAX, key);
	json_array_foreach(list, i, v)
	{
		if (!json_is_string(v))
			return wrong(err, key);
		int r = put(out, tag, json_string_value(v));
		if (r < 0)
			return err_code(err, r, "its config is too large");
	}
	return 0;
}

static int put_labels(struct buf *out, json_t *c, struct err *err)
{
	json_t *map = json_object_get(c, "Labels"), *v;
	const char *key;

	if (!map || json_is_null(map))
		return 0;
	if (!json_is_object(map))
		return wrong(err, "Labels");
	if (json_object_size(map) > OCI_LIST_MAX)
		return err_set(err, -EFBIG, "its config has more than %d labels", OCI_LIST_MAX);
	json_object_foreach(map, key, v)
	{
		if (!json_is_string(v))
			return wrong(err, "Labels");
		int r = put(out, "label", key);
		if (r == 0)
			r = put(out, "value", json_string_value(v));
		if (r < 0)
			return err_code(err, r, "its config is too large");
	}
	return 0;
}

int oci_read_config(struct span json, struct buf *out, struct err *err)
{
	json_t *o = load(json, err), *c = json_object_get(o, "config");
	const char *os = text(o, "os"), *arch = text(o, "architecture");
	const char *user = text(c, "User"), *dir = text(c, "WorkingDir");
	char seen[2][64];
	int r = -EPROTO;

	if (!o)
		return r;
	if (c && !json_is_object(c) && !json_is_null(c)) {
		r = wrong(err, "config");
	} else if (!os || !arch || !user || !dir) {
		r = wrong(err, "text");
	} else if (strcmp(os, want_os) != 0 || strcmp(arch, want_arch) != 0) {
		r = err_set(err, -ENOEXEC, "it is made for %s/%s, not for %s/%s",
		            vis_str(seen[0], sizeof(seen[0]), span_str(os[0] ? os : "?")),
		            vis_str(seen[1], sizeof(seen[1]), span_str(arch[0] ? arch : "?")),
		            want_os, want_arch);
	} else {
		r = put(out, "os", os);
		if (r == 0)
			r = put(out, "arch", arch);
		if (r == 0)
			r = put(out, "user", user);
		if (r == 0)
			r = put(out, "workdir", dir);
		if (r < 0)
			(void)err_code(err, r, "its config is too large");
		if (r == 0)
			r = put_list(out, c, "Env", "env", err);
		if (r == 0)
			r = put_list(out, c, "Entrypoint", "entrypoint", err);
		if (r == 0)
			r = put_list(out, c, "Cmd", "cmd", err);
		if (r == 0)
			r = put_labels(out, c, err);
	}
	json_decref(o);
	return r;
}
