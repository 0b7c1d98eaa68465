/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.h - where package tools fetch from: asked of the tools, never known
 * by name here.
 *
 * The probes are data (probes.conf). Those of the image run in its tree when it
 * is built, those of the host for the user (cli/registries.h). One shell script
 * runs them all; it writes a line "@NAME" before the lines of each probe. What
 * comes out is text from outside: registry_scan() takes the URLs out of it, and
 * the list travels on in a form of its own that says exactly what it means.
 *
 * Pure. A list holds each tool's origin once.
 */
#ifndef CLOCHE_IMAGE_REGISTRY_H
#define CLOCHE_IMAGE_REGISTRY_H

#include "base/mem.h"
#include "policy/url.h"

enum {
	REGISTRY_MAX = 64,
	REGISTRY_TOOL_BYTES = 17,
	REGISTRY_OUTPUT_MAX = 64 * 1024, /* of all probes together */
	REGISTRY_LINE_MAX = REGISTRY_TOOL_BYTES + URL_ORIGIN_BYTES,
	REGISTRY_TEXT_MAX = REGISTRY_MAX * REGISTRY_LINE_MAX,
};

/* Where the hooks of a build leave things in the tree; recipes drop the folder. */
#define REGISTRY_DIR "var/cache/cloche"
#define REGISTRY_FILE "registries" /* what the script wrote */

enum { REGISTRY_IMAGE = 1, REGISTRY_HOST = 2 }; /* sides of a probe, bits */

struct registry_probe {
	const char *name, *needs;
	unsigned sides;
	const char *const *env, *const *files; /* NULL-terminated; env may end in '*' */
	const char *script;
};
extern const struct registry_probe registry_probes[];
extern const size_t registry_probes_n;

struct registry {
	char tool[REGISTRY_TOOL_BYTES]; /* name of the probe */
	struct url_origin at;
};

struct registry_list {
	struct registry v[REGISTRY_MAX];
	size_t n;
};

/* The shell script that asks the probes of @side. 0 or -ENOMEM. */
int registry_script(struct buf *out, unsigned side) MUST_CHECK;

/* Take one in; the same again changes nothing. 0, or -E2BIG when the list is full. */
int registry_add(struct registry_list *l, const char *tool, const struct url_origin *at) MUST_CHECK;

/*
 * registry_scan() - what the script wrote, at most REGISTRY_OUTPUT_MAX of it. Lines
 * that are no URL, and those of no probe of ours, are passed over.
 * Return: how many origins were left out because the list was full.
 */
size_t registry_scan(struct registry_list *out, struct span text);

/* Is there an origin of @tool? */
bool registry_has(const struct registry_list *l, const char *tool);

/* Our own form: lines "npm https://packages.example.org:443\n". 0 or -ENOMEM. */
int registry_put(const struct registry_list *l, struct buf *out) MUST_CHECK;
/* Exactly what registry_put() writes, else -EPROTO. An empty text is an empty list. */
int registry_parse(struct registry_list *out, struct span text) MUST_CHECK;

#endif
