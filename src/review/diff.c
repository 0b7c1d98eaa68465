/* SPDX-License-Identifier: Apache-2.0 */
#include "review/diff.h"

#include <errno.h>
#include <inttypes.h>

#include "base/vis.h"
#include "review/git2_priv.h"

static const char *const sgr_reset = "\033[m";

struct render {
	struct buf *out;
	size_t start;
	int flags;
	struct diff_stat *stat;
};

int diff_init(void)
{
	return git2_init();
}

bool diff_is_binary(struct span head)
{
	size_t n = MIN(head.len, (size_t)DIFF_PROBE);

	return n && memchr(head.p, '\0', n);
}

static int text(struct render *r, struct span s)
{
	if (r->flags & DIFF_RAW)
		return buf_put(r->out, s.p, s.len);
	return vis_put(r->out, s, VIS_KEEP_TAB | VIS_KEEP_BACKSLASH);
}

/* One line with its mark. Its newline, if it has one, is ours: what is in it is made visible. */
static int put_line(struct render *r, const char *sgr, const char *mark, struct span s)
{
	bool colour = r->flags & DIFF_COLOUR && sgr;
	int e = 0;

	if (s.len && s.p[s.len - 1] == '\n')
		s.len--;
	if (colour)
		e = buf_put(r->out, sgr, strlen(sgr));
	if (e == 0)
		e = buf_put(r->out, mark, strlen(mark));
	if (e == 0)
		e = text(r, s);
	if (e == 0 && colour)
		e = buf_put(r->out, sgr_reset, strlen(sgr_reset));
	return e < 0 ? e : buf_put(r->out, "\n", 1);
}

static int check_size(struct render *r)
{
	if (r->out->len - r->start <= DIFF_OUT_MAX)
		return 0;
	r->stat->cut = true;
	return -EFBIG;
}

static int on_hunk(void *arg, struct span header)
{
	int e = check_size(arg);

	return e < 0 ? e : put_line(arg, "\033[36m", "", header);
}

static int on_line(void *arg, char origin, struct span s)
{
	struct render *r = arg;
	int e = check_size(r);

	if (e < 0)
		return e;
	switch (origin) {
	case '+':
		r->stat->added++;
		return put_line(r, "\033[32m", "+", s);
	case '-':
		r->stat->removed++;
		return put_line(r, "\033[31m", "-", s);
	case ' ':
		return put_line(r, NULL, " ", s);
	case '=':
	case '<':
	case '>':
		return put_line(r, NULL, "", span_str("\\ No newline at end of file"));
	default:
		return 0;
	}
}

static int head_line(struct render *r, const char *mark, const char *side, struct span path,
                     bool there)
{
	AUTO_BUF struct buf b = { 0 };
	int e;

	if (!there) {
		e = buf_put(&b, "/dev/null", 9);
	} else {
		e = buf_put(&b, side, 2);
		if (e == 0)
			e = r->flags & DIFF_RAW ? buf_put(&b, path.p, path.len)
			                        : vis_put(&b, path, 0);
	}
	if (e < 0)
		return e;
	/* already visible: passes text() unchanged but for backslashes, which are kept */
	return put_line(r, "\033[1m", mark, span_of(b.p, b.len));
}

int diff_render(struct buf *out, struct span path, struct span a, bool had, struct span b, bool has,
                int flags, struct diff_stat *stat)
{
	struct render r = { .out = out, .start = out->len, .flags = flags, .stat = stat };
	int e;

	*stat = (struct diff_stat){ 0 };
	stat->too_big = a.len > DIFF_BYTES_MAX || b.len > DIFF_BYTES_MAX;
	stat->binary = diff_is_binary(a) || diff_is_binary(b);
	if (stat->too_big || stat->binary)
		return diff_notice(out, path, stat, a.len, b.len);
	if (span_eq(a, b))
		return 0;
	e = head_line(&r, "--- ", "a/", path, had);
	if (e == 0)
		e = head_line(&r, "+++ ", "b/", path, has);
	if (e == 0)
		e = git2_diff(a, b, on_hunk, on_line, &r);
	if (e == -EFBIG && stat->cut)
		e = buf_printf(out, "(the diff is longer than %d MiB and was cut here)\n",
		               DIFF_OUT_MAX / 1024 / 1024);
	return e;
}

int diff_notice(struct buf *out, struct span path, const struct diff_stat *stat, uint64_t a_size,
                uint64_t b_size)
{
	AUTO_FREE char *shown = vis_dup(path);

	return buf_printf(out, "%s: %s, %" PRIu64 " -> %" PRIu64 " bytes, no diff shown\n", shown,
	                  stat->binary ? "binary" : "larger than 10 MiB", a_size, b_size);
}
