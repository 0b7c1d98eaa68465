/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.json is written by the monitor and by what reviews and applies, never by
 * the process that reads the guest; it is still read as input that is not trusted.
 * The caps are small, a key twice is an error, and every value is copied into a
 * fixed place or refused.
 *
 * A path is bytes, JSON is text: "path_hex" is what counts, "path" is for
 * people and never read.
 */
#include "review/changeset_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"

void changeset_meta_fini(struct changeset_meta *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_projects; i++)
		free(m->projects[i].path);
	free(m->projects);
	m->projects = NULL;
	m->n_projects = 0;
}

static bool get_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
		return false;
	*out = json_integer_value(v);
	return true;
}

/* Printable ASCII only: these names are ours, never a guest's. */
static bool get_text(const json_t *o, const char *key, char *dst, size_t cap)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_string(v) || json_string_length(v) >= cap)
		return false;
	for (size_t i = 0; i < json_string_length(v); i++) {
		uint8_t ch = (uint8_t)json_string_value(v)[i];
		if (ch <= 0x20 || ch >= 0x7f)
			return false;
	}
	memcpy(dst, json_string_value(v), json_string_length(v) + 1);
	return true;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* An absolute path without NUL from lower-case hex; malloc'd, or NULL. */
static char *path_from_hex(const char *hex, size_t n)
{
	if (n % 2 || n / 2 >= PATH_MAX || n < 2)
		return NULL;
	char *path = xmalloc(n / 2 + 1);
	for (size_t i = 0; i < n / 2; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
		if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) {
			free(path);
			return NULL;
		}
		path[i] = (char)(hi << 4 | lo);
	}
	path[n / 2] = '\0';
	if (path[0] != '/') {
		free(path);
		return NULL;
	}
	return path;
}

static bool get_projects(const json_t *o, struct changeset_meta *m)
{
	const json_t *a = json_object_get(o, "projects");

	if (!json_is_array(a) || json_array_size(a) > MANIFEST_PROJECTS_MAX)
		return false;
	m->projects = xcalloc(json_array_size(a) + 1, sizeof(*m->projects));
	for (size_t i = 0; i < json_array_size(a); i++) {
		const json_t *p = json_array_get(a, i);
		const json_t *hex = json_object_get(p, "path_hex");
		int64_t dev, ino;

		if (!json_is_string(hex) || !get_int(p, "dev", INT64_MIN, INT64_MAX, &dev) ||
		    !get_int(p, "ino", INT64_MIN, INT64_MAX, &ino))
			return false;
		char *path = path_from_hex(json_string_value(hex), json_string_length(hex));
		if (!path)
			return false;
		m->projects[m->n_projects++] = (struct changeset_project){ .path = path,
			                                                   .dev = (uint64_t)dev,
			                                                   .ino = (uint64_t)ino };
	}
	return true;
}

static bool get_counts(const json_t *o, struct changeset_meta *m)
{
	const json_t *c = json_object_get(o, "counts");
	int64_t v[5];
	static const char *const keys[] = { "pending", "applied", "rejected", "conflict", "aside" };

	if (!c)
		return true; /* nobody has counted yet */
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (!get_int(c, keys[i], 0, UINT32_MAX, &v[i]))
			return false;
	}
	m->counted = true;
	m->counts = (struct changeset_counts){ .pending = (uint32_t)v[0],
		                               .applied = (uint32_t)v[1],
		                               .rejected = (uint32_t)v[2],
		                               .conflict = (uint32_t)v[3],
		                               .aside = (uint32_t)v[4] };
	return true;
}

static bool get_all(const json_t *o, struct changeset_meta *m)
{
	int64_t schema, exit_status;
	const json_t *recovered = json_object_get(o, "recovered");
	const char *manifest = json_string_value(json_object_get(o, "manifest"));

	if (!json_is_object(o) ||
	    !get_int(o, "schema", CHANGESET_SCHEMA, CHANGESET_SCHEMA, &schema))
		return false;
	if (!get_text(o, "id", m->id, sizeof(m->id)) || !changeset_id_ok(m->id) ||
	    !get_text(o, "agent", m->agent, sizeof(m->agent)) ||
	    !get_text(o, "session", m->session, sizeof(m->session)) ||
	    !get_text(o, "sandbox", m->sandbox, sizeof(m->sandbox)))
		return false;
	if (!get_int(o, "created", 0, INT64_MAX, &m->created_s) ||
	    !get_int(o, "closed", 0, INT64_MAX, &m->closed_s) ||
	    !get_int(o, "exit_status", -1, 255, &exit_status) || !json_is_boolean(recovered) ||
	    !manifest || hash_parse(&m->manifest, manifest) < 0)
		return false;
	m->exit_status = (int)exit_status;
	m->recovered = json_is_true(recovered);
	return get_projects(o, m) && get_counts(o, m);
}

int changeset_meta_parse(struct changeset_meta *out, struct span text)
{
	struct changeset_meta m = { 0 };

	if (text.len > CHANGESET_META_MAX)
		return -EPROTO;
	json_t *o = json_loadb((const char *)text.p, text.len, JSON_REJECT_DUPLICATES, NULL);
	bool ok = o && get_all(o, &m);
	json_decref(o);
	if (!ok) {
		changeset_meta_fini(&m);
		*out = (struct changeset_meta){ 0 };
		return -EPROTO;
	}
	*out = m;
	return 0;
}

int changeset_meta_read(int dir_fd, struct changeset_meta *out, struct err *err)
{
	AUTO_CLOSE int fd = path_open(dir_fd, span_str("meta.json"), O_RDONLY | O_NONBLOCK, 0);
	AUTO_FREE char *text = NULL;
	size_t len = 0;
	struct stat st;

	*out = (struct changeset_meta){ 0 };
	if (fd < 0)
		return err_code(err, fd, "cannot open meta.json");
	if (fstat(fd, &st) < 0)
		return err_errno(err, "cannot read meta.json");
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EPROTO, "meta.json is not a regular file");
	int r = fd_read_file(fd, CHANGESET_META_MAX, &text, &len);
	if (r < 0)
		return err_code(err, r, "cannot read meta.json");
	r = changeset_meta_parse(out, span_of(text, len));
	return r < 0 ? err_set(err, r, "meta.json is damaged") : 0;
}

static json_t *project_json(const struct changeset_project *p)
{
	size_t n = strlen(p->path);
	AUTO_FREE char *hex = xmalloc(2 * n + 1);
	AUTO_FREE char *shown = vis_dup(span_str(p->path));

	for (size_t i = 0; i < n; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", (unsigned)(uint8_t)p->path[i]);
	hex[2 * n] = '\0';
	return json_pack("{s:s, s:s, s:I, s:I}", "path", shown, "path_hex", hex, "dev",
	                 (json_int_t)p->dev, "ino", (json_int_t)p->ino);
}

static char *meta_text(const struct changeset_meta *m)
{
	char hex[HASH_HEX_BYTES];
	char *text = NULL;

	hash_hex(hex, &m->manifest);
	json_t *projects = json_array();
	json_t *o =
		json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:b, s:s}", "schema",
	                  CHANGESET_SCHEMA, "id", m->id, "agent", m->agent, "session", m->session,
	                  "sandbox", m->sandbox, "created", (json_int_t)m->created_s, "closed",
	                  (json_int_t)m->closed_s, "exit_status", m->exit_status, "recovered",
	                  m->recovered, "manifest", hex);

	for (uint32_t i = 0; i < m->n_projects; i++) {
		if (json_array_append_new(projects, project_json(&m->projects[i])) < 0)
			goto out;
	}
	if (!o || json_object_set(o, "projects", projects) < 0)
		goto out;
	if (m->counted && json_object_set_new(o, "counts",
	                                      json_pack("{s:I, s:I, s:I, s:I, s:I}", "pending",
	                                                (json_int_t)m->counts.pending, "applied",
	                                                (json_int_t)m->counts.applied, "rejected",
	                                                (json_int_t)m->counts.rejected, "conflict",
	                                                (json_int_t)m->counts.conflict, "aside",
	                                                (json_int_t)m->counts.aside)) < 0)
		goto out;
	text = json_dumps(o, JSON_INDENT(1));
out:
	json_decref(projects);
	json_decref(o);
	return text;
}

int changeset_meta_write(int dir_fd, const struct changeset_meta *m, struct err *err)
{
	AUTO_FREE char *text = meta_text(m);

	if (!text)
		return err_set(err, -EINVAL, "cannot write meta.json: a name is not text");
	/* a torn one of a crash is overwritten: the set's lock or its writer owns the name */
	AUTO_CLOSE int fd = path_open(dir_fd, span_str(".meta.new"),
	                              O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0600);
	if (fd < 0)
		return err_code(err, fd, "cannot create meta.json");
	int r = fd_write_all(fd, text, strlen(text));
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0)
		r = fd_close(&fd);
	if (r == 0 && renameat(dir_fd, ".meta.new", dir_fd, "meta.json") < 0)
		r = -errno;
	if (r == 0 && fsync(dir_fd) < 0)
		r = -errno;
	return r < 0 ? err_code(err, r, "cannot write meta.json") : 0;
}
