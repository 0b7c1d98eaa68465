/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of half a million changes takes 60 MiB as it comes from the worker: what is more
 * than a few MiB goes to a file without a name beside the change sets, and is read back in
 * pieces. Where there is none to be had (a full disk), memory must do.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "review/review_priv.h"

enum { STORE_MEMORY = 4 * 1024 * 1024, STORE_PIECE = 64 * 1024 };

void review_store_fini(struct review_store *s)
{
	auto_close_(&s->fd);
	buf_fini(&s->b);
	buf_fini(&s->win);
}

int review_store_put(struct review_store *s, int dir_fd, struct span bytes)
{
	if (s->b.len + bytes.len > STORE_MEMORY && !s->no_file) {
		if (s->fd < 0)
			s->fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (s->fd >= 0 && fd_pwrite_all(s->fd, s->b.p, s->b.len, (off_t)s->in_file) == 0) {
			s->in_file += s->b.len;
			s->b.len = 0;
		} else {
			s->no_file = true;
		}
	}
	return buf_put(&s->b, bytes.p, bytes.len);
}

uint64_t review_store_len(const struct review_store *s)
{
	return s->in_file + s->b.len;
}

struct span review_store_get(struct review_store *s, uint64_t at, size_t n)
{
	if (at >= s->in_file)
		return span_of(s->b.p + (at - s->in_file), n);
	/* what was put at once lies together: a record is in the file or in memory */
	if (at < s->win_at || at + n > s->win_at + s->win.len) {
		size_t want = (size_t)MIN(MAX((uint64_t)n, (uint64_t)STORE_PIECE), s->in_file - at);
		s->win.len = 0;
		int r = buf_reserve(&s->win, want);
		if (r == 0)
			r = fd_pread_exact(s->fd, s->win.p, want, (off_t)at);
		/* ours, and written a moment ago: without it nothing that was shown can be meant */
		ASSERT(r == 0);
		s->win.len = want;
		s->win_at = at;
	}
	return span_of(s->win.p + (at - s->win_at), n);
}
