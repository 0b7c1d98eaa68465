/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.h - the layers that an agent's profile asks for, over the base image of a run.
 */
#ifndef CLOCHE_CLI_LAYERS_H
#define CLOCHE_CLI_LAYERS_H

#include "image/layer.h"
#include "super/client.h"

struct profile;

struct layers {
	struct layer v[CLIENT_LAYERS_MAX]; /* as the recipe lists them: the topmost first */
	int fds[CLIENT_LAYERS_MAX];        /* borrowed from them; -1: not built */
	size_t n;
};

/* Does the profile's agent come as layers that this version can build? */
bool layers_wanted(const struct profile *p);

/*
 * layers_open() - those that are in the cache; one that is not has fd -1 and its name and
 * version only. Return: 0, or -errno with @err. layers_close() in any case.
 */
int layers_open(struct layers *l, const struct profile *p, const struct state_dirs *dirs,
                struct err *err) MUST_CHECK;

/*
 * layers_get() - all of them, built where they are missing.
 * @may_build:	false: one that is missing is -ENOENT
 */
int layers_get(struct layers *l, const struct profile *p, const struct state_dirs *dirs,
               bool may_build, bool quiet, struct err *err) MUST_CHECK;

/*
 * layers_build() - make those that are missing, or with @force all.
 * @out_built:	how many were made
 */
int layers_build(const struct profile *p, const struct state_dirs *dirs, bool force, bool quiet,
                 size_t *out_built, struct err *err) MUST_CHECK;

void layers_close(struct layers *l);

/* "$XDG_STATE_HOME/cloche/images.lock.json"; malloc'd. */
char *layers_lock_path(const struct state_dirs *dirs) MUST_CHECK;

#endif
