/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registries.h - where the user's own package tools fetch from.
 *
 * The probes of image/registry.h with side HOST, run with the user's rights in "/",
 * so that no file of a project has a say, and only programs of the system's
 * folders, so that a project on PATH has none either. What they said is kept in
 * the cache, and asked anew when a program, a file or a variable that they read has
 * changed, or a day is over: starting npm costs more than starting a sandbox.
 */
#ifndef CLOCHE_CLI_REGISTRIES_H
#define CLOCHE_CLI_REGISTRIES_H

#include "image/registry.h"

struct err;

enum { REGISTRIES_WAIT_S = 20, REGISTRIES_AGE_S = 24 * 3600, REGISTRIES_BYTES_MAX = 64 * 1024 };

/*
 * registries_of_user() - from the cache, or asked.
 * @cache_dir:	…/cloche below XDG_CACHE_HOME
 * @asking:	called before the tools are asked, which may take a while; may be NULL
 * @out_note:	malloc'd, a line for the user when a tool did not answer in time; or NULL
 *
 * Return: 0, or -errno with @err when the tools could not be asked at all.
 */
int registries_of_user(struct registry_list *out, const char *cache_dir, void (*asking)(void),
                       char **out_note, struct err *err) MUST_CHECK;

/* The file in the cache: key (hex) and time, then the list. Pure. */
int registries_cache_put(struct buf *out, const char *key, int64_t now_s,
                         const struct registry_list *l) MUST_CHECK;
/* 0, -ESTALE for another key or too old, -EPROTO for anything that we would not write. */
int registries_cache_parse(struct registry_list *out, struct span text, const char *key,
                           int64_t now_s) MUST_CHECK;

#endif
