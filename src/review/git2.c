/* SPDX-License-Identifier: Apache-2.0 */
#include "review/git2_priv.h"

#include <errno.h>
#include <git2.h>

struct walk {
	git2_line_fn line;
	git2_hunk_fn hunk;
	void *arg;
	int error;
};

int git2_init(void)
{
	return git_libgit2_init() < 0 ? -EIO : 0;
}

static int on_hunk(const git_diff_delta *d, const git_diff_hunk *h, void *arg)
{
	struct walk *w = arg;

	(void)d;
	w->error = w->hunk(w->arg, span_of(h->header, h->header_len));
	return w->error;
}

static int on_line(const git_diff_delta *d, const git_diff_hunk *h, const git_diff_line *l,
                   void *arg)
{
	struct walk *w = arg;

	(void)d;
	(void)h;
	w->error = w->line(w->arg, l->origin, span_of(l->content, l->content_len));
	return w->error;
}

int git2_diff(struct span a, struct span b, git2_hunk_fn hunk, git2_line_fn line, void *arg)
{
	git_diff_options opts = GIT_DIFF_OPTIONS_INIT;
	struct walk w = { .line = line, .hunk = hunk, .arg = arg };

	opts.flags = GIT_DIFF_FORCE_TEXT;
	opts.context_lines = 3;
	int r = git_diff_buffers(a.p, a.len, "a", b.p, b.len, "b", &opts, NULL, NULL, on_hunk,
	                         on_line, &w);
	if (w.error < 0)
		return w.error;
	return r < 0 ? -EIO : 0;
}
