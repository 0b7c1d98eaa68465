/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal survives the death of the process, which is what it is for. It
 * is not synced at each step: after a power failure every step is either done
 * or not done by itself, and the worst is a temporary file that stays.
 *
 *   plan SLOT            chosen, once each
 *   temp SLOT NAME       a temporary thing of ours is being made
 *   swap SLOT NAME INODE PATH   it is complete; PATH (hex) is about to change places with it
 *   over SLOT            nothing temporary is left
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "review/apply_priv.h"

static int put(int fd, const char *text, size_t n)
{
	return fd < 0 ? 0 : fd_write_all(fd, text, n);
}

int journal_plan(int fd, const uint32_t *slots, size_t n)
{
	AUTO_BUF struct buf b = { 0 };

	for (size_t i = 0; i < n; i++) {
		if (buf_printf(&b, "plan %u\n", slots[i]) < 0)
			return -ENOMEM;
	}
	return put(fd, (const char *)b.p, b.len);
}

int journal_temp(int fd, uint32_t slot, const char *tmp)
{
	char line[80];
	int n = snprintf(line, sizeof(line), "temp %u %s\n", slot, tmp);

	return put(fd, line, (size_t)n);
}

int journal_swap(int fd, uint32_t slot, const char *tmp, uint64_t ino, struct span path)
{
	AUTO_BUF struct buf b = { 0 };
	int r = buf_printf(&b, "swap %u %s %" PRIu64 " ", slot, tmp, ino);

	for (size_t i = 0; r == 0 && i < path.len; i++)
		r = buf_printf(&b, "%02x", path.p[i]);
	if (r == 0)
		r = buf_put(&b, "\n", 1);
	return r < 0 ? r : put(fd, (const char *)b.p, b.len);
}

int journal_over(int fd, uint32_t slot)
{
	char line[32];
	int n = snprintf(line, sizeof(line), "over %u\n", slot);

	return put(fd, line, (size_t)n);
}

int journal_clear(int fd)
{
	if (fd < 0)
		return 0;
	return ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

void journal_fini(struct journal *j)
{
	free(j->plan);
	buf_fini(&j->path);
	*j = (struct journal){ 0 };
}

/* The next word of a line, which shrinks. */
static struct span word(struct span *line)
{
	const uint8_t *sp = line->len ? memchr(line->p, ' ', line->len) : NULL;
	size_t n = sp ? (size_t)(sp - line->p) : line->len;
	struct span w = span_of(line->p, n);

	n += sp ? 1 : 0;
	line->p += n;
	line->len -= n;
	return w;
}

static bool number(struct span w, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	if (w.len == 0 || w.len > 20)
		return false;
	for (size_t i = 0; i < w.len; i++) {
		if (w.p[i] < '0' || w.p[i] > '9')
			return false;
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(w.p[i] - '0'), &v))
			return false;
	}
	*out = v;
	return v <= max;
}

static int hex(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool unhex(struct span w, struct buf *out)
{
	out->len = 0;
	if (w.len % 2 || w.len / 2 > PATH_BYTES_MAX || buf_reserve(out, w.len / 2 + 1) < 0)
		return false;
	for (size_t i = 0; i < w.len; i += 2) {
		int hi = hex(w.p[i]), lo = hex(w.p[i + 1]);
		if (hi < 0 || lo < 0)
			return false;
		out->p[out->len++] = (uint8_t)(hi << 4 | lo);
	}
	return path_check(span_of(out->p, out->len)) > 0;
}

static bool tmp_name(struct span w, char *dst)
{
	if (w.len != COMPARE_TMP_LEN || memcmp(w.p, COMPARE_TMP_PREFIX, 12) != 0 ||
	    !path_name_ok(w))
		return false;
	memcpy(dst, w.p, w.len);
	dst[w.len] = '\0';
	return true;
}

static bool take_line(struct journal *j, struct span line)
{
	struct span verb = word(&line);
	uint64_t slot, ino;

	if (!number(word(&line), UINT32_MAX - 1, &slot))
		return false;
	if (span_eq(verb, span_str("plan"))) {
		/* doubling by powers of two: no capacity to keep */
		if ((j->n_plan & (j->n_plan - 1)) == 0)
			j->plan = xrealloc(j->plan, MAX(2 * j->n_plan, 1u) * sizeof(*j->plan));
		j->plan[j->n_plan++] = (uint32_t)slot;
		return true;
	}
	if (span_eq(verb, span_str("over"))) {
		j->open = j->made_open = false;
		return true;
	}
	j->open = false;
	j->slot = (uint32_t)slot;
	if (!tmp_name(word(&line), j->tmp))
		return false;
	j->swap = span_eq(verb, span_str("swap"));
	if (!j->swap) {
		j->open = j->made_open = span_eq(verb, span_str("temp"));
		memcpy(j->made, j->tmp, sizeof(j->made));
		return j->open;
	}
	if (!number(word(&line), UINT64_MAX, &ino) || !unhex(word(&line), &j->path))
		return false;
	j->ino = ino;
	j->open = true;
	/* without an inode something is moved away to make room for what was made */
	j->made_open = j->made_open && ino == 0;
	return true;
}

void journal_parse(struct journal *out, struct span text)
{
	*out = (struct journal){ 0 };
	while (text.len) {
		const uint8_t *nl = memchr(text.p, '\n', text.len);
		if (!nl)
			return; /* cut: its step had not begun */
		size_t n = (size_t)(nl - text.p);
		if (!take_line(out, span_of(text.p, n)))
			return;
		text = span_of(nl + 1, text.len - n - 1);
	}
}
