/* SPDX-License-Identifier: Apache-2.0 */
/* ociwords.c - what the caged reader says, checked again. */
#include "image/oci.h"

#include <errno.h>
#include <string.h>

#include "image/ref.h"

int oci_word(struct span *said, const char **out_tag, size_t *out_tag_len, const char **out_value)
{
	if (said->len == 0)
		return 0;
	const uint8_t *end = memchr(said->p, 0, said->len);
	const uint8_t *eq = end ? memchr(said->p, '=', (size_t)(end - said->p)) : NULL;
	if (!eq || eq == said->p)
		return -EPROTO;
	*out_tag = (const char *)said->p;
	*out_tag_len = (size_t)(eq - said->p);
	*out_value = (const char *)eq + 1;
	*said = span_of(end + 1, said->len - (size_t)(end + 1 - said->p));
	return 1;
}

int oci_blob_parse(const char *s, uint64_t max, char digest[OCI_DIGEST_BYTES], uint64_t *out_size)
{
	char d[OCI_DIGEST_BYTES];
	uint64_t v = 0;
	size_t n = strcspn(s, " ");

	if (n != OCI_DIGEST_BYTES - 1 || s[n] != ' ' || s[n + 1] == '\0')
		return -EPROTO;
	memcpy(d, s, n);
	d[n] = '\0';
	if (!ref_digest_ok(d))
		return -EPROTO;
	for (const char *p = s + n + 1; *p; p++) {
		if (*p < '0' || *p > '9' || v > UINT64_MAX / 10 - 1)
			return -EPROTO;
		v = v * 10 + (uint64_t)(*p - '0');
	}
	if (v > max)
		return -EPROTO;
	memcpy(digest, d, sizeof(d));
	*out_size = v;
	return 0;
}

/* ---- a config ----------------------------------------------------------- */

static void free_list(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

void oci_config_free(struct oci_config *c)
{
	free(c->user);
	free(c->workdir);
	free(c->os);
	free(c->arch);
	free_list(c->env);
	free_list(c->entrypoint);
	free_list(c->cmd);
	for (size_t i = 0; i < c->n_labels; i++) {
		free(c->labels[i].name);
		free(c->labels[i].value);
	}
	free(c->labels);
	*c = (struct oci_config){ 0 };
}

static int put_text(char **to, const char *value)
{
	if (*to)
		return -EPROTO; /* said twice */
	*to = xstrdup(value);
	return 0;
}

static int put_item(char ***list, size_t *n, const char *value)
{
	if (*n == OCI_LIST_MAX)
		return -EPROTO;
	*list = xrealloc(*list, (*n + 2) * sizeof(**list));
	(*list)[(*n)++] = xstrdup(value);
	(*list)[*n] = NULL;
	return 0;
}

static int put_label(struct oci_config *c, bool is_value, const char *text)
{
	if (is_value) {
		if (c->n_labels == 0 || c->labels[c->n_labels - 1].value)
			return -EPROTO;
		c->labels[c->n_labels - 1].value = xstrdup(text);
		return 0;
	}
	if (c->n_labels == OCI_LIST_MAX || (c->n_labels && !c->labels[c->n_labels - 1].value))
		return -EPROTO;
	c->labels = xrealloc(c->labels, (c->n_labels + 1) * sizeof(*c->labels));
	c->labels[c->n_labels++] = (struct oci_label){ .name = xstrdup(text) };
	return 0;
}

static bool is(const char *tag, size_t n, const char *want)
{
	return n == strlen(want) && memcmp(tag, want, n) == 0;
}

int oci_config_words(struct oci_config *out, struct span said)
{
	struct oci_config c = { 0 };
	size_t n_env = 0, n_entry = 0, n_cmd = 0, n;
	const char *tag, *value;
	int r;

	if (said.len > OCI_WORDS_MAX)
		return -EPROTO;
	while ((r = oci_word(&said, &tag, &n, &value)) == 1) {
		if (is(tag, n, "os"))
			r = put_text(&c.os, value);
		else if (is(tag, n, "arch"))
			r = put_text(&c.arch, value);
		else if (is(tag, n, "user"))
			r = put_text(&c.user, value);
		else if (is(tag, n, "workdir"))
			r = put_text(&c.workdir, value);
		else if (is(tag, n, "env"))
			r = put_item(&c.env, &n_env, value);
		else if (is(tag, n, "entrypoint"))
			r = put_item(&c.entrypoint, &n_entry, value);
		else if (is(tag, n, "cmd"))
			r = put_item(&c.cmd, &n_cmd, value);
		else if (is(tag, n, "label") || is(tag, n, "value"))
			r = put_label(&c, tag[0] == 'v', value);
		else
			r = -EPROTO;
		if (r < 0)
			break;
	}
	if (r == 0 && (!c.os || !c.arch || !c.user || !c.workdir ||
	               (c.n_labels && !c.labels[c.n_labels - 1].value)))
		r = -EPROTO;
	if (r < 0) {
		oci_config_free(&c);
		return r;
	}
	*out = c;
	return 0;
}
