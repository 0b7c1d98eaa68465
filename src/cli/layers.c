/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/layers.h"

#include <errno.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "config/profile.h"
#include "term/progress.h"
#include "term/screen.h"

char *layers_lock_path(const struct state_dirs *dirs)
{
	return xasprintf("%s/images.lock.json", dirs->state);
}

bool layers_wanted(const struct profile *p)
{
	return !p->image && p->has_recipe && p->recipe.npm.n && !p->recipe.commands.n;
}

static int check(const struct profile *p, struct err *err)
{
	if (p->recipe.npm.n <= CLIENT_LAYERS_MAX)
		return 0;
	return err_set(err, -E2BIG, "%s asks for more than %d packages", p->name,
	               CLIENT_LAYERS_MAX);
}

int layers_open(struct layers *l, const struct profile *p, const struct state_dirs *dirs,
                struct err *err)
{
	AUTO_FREE char *lock = layers_lock_path(dirs);
	struct layer_opts lo = { .lock_path = lock };
	int r = 0;

	*l = (struct layers){ 0 };
	if (!layers_wanted(p))
		return 0;
	r = check(p, err);
	for (size_t i = 0; i < p->recipe.npm.n && r == 0; i++) {
		const struct profile_npm *npm = &p->recipe.npm.v[i];
		struct layer *x = &l->v[l->n];
		*x = (struct layer)LAYER_INIT;
		r = layer_open(&lo, npm, x, err);
		if (r == -ENOENT) {
			(void)snprintf(x->info.package, sizeof(x->info.package), "%s",
			               npm->package);
			(void)snprintf(x->info.version, sizeof(x->info.version), "%s",
			               npm->version);
			r = 0;
		}
		l->fds[l->n++] = x->fd;
	}
	return r;
}

static bool on_progress(void *arg, const struct image_progress *ip)
{
	char size[TERM_FMT_BYTES];

	term_progress_phase(arg, "%s", ip->text);
	if (ip->bytes)
		term_progress_detail(arg, "%s", term_fmt_size(size, ip->bytes));
	return true;
}

int layers_build(const struct profile *p, const struct state_dirs *dirs, bool force, bool quiet,
                 size_t *out_built, struct err *err)
{
	AUTO_FREE char *lock = layers_lock_path(dirs);
	struct layer_opts lo = { .lock_path = lock };
	struct term_progress pr;
	int r = check(p, err);

	*out_built = 0;
	term_progress_init(&pr, quiet ? -1 : 2, NULL, NULL);
	for (size_t i = 0; i < p->recipe.npm.n && r == 0; i++) {
		bool built = false;
		r = layer_build(&lo, &p->recipe.npm.v[i], force, on_progress, &pr, &built, err);
		*out_built += built;
	}
	term_progress_end(&pr);
	return r;
}

int layers_get(struct layers *l, const struct profile *p, const struct state_dirs *dirs,
               bool may_build, bool quiet, struct err *err)
{
	size_t n;
	int r = layers_open(l, p, dirs, err);
	bool missing = r == -EBADMSG;

	if (r < 0 && r != -EBADMSG)
		return r;
	for (size_t i = 0; i < l->n && !missing; i++)
		missing = l->fds[i] < 0;
	if (!missing)
		return r;
	layers_close(l);
	if (!may_build) {
		err_set(err, -ENOENT, "the layer of %s is not built, and --pull never forbids it",
		        p->name);
		return err_hint(err, "cloche image build %s", p->name);
	}
	*err = (struct err){ 0 };
	r = layers_build(p, dirs, false, quiet, &n, err);
	if (r == 0)
		r = layers_open(l, p, dirs, err);
	for (size_t i = 0; i < l->n && r == 0; i++) {
		if (l->fds[i] < 0)
			r = err_set(err, -ENOENT, "the layer of %s went while it was looked for",
			            p->name);
	}
	return r;
}

void layers_close(struct layers *l)
{
	for (size_t i = 0; i < l->n; i++)
		layer_close(&l->v[i]);
	*l = (struct layers){ 0 };
}
