/* SPDX-License-Identifier: Apache-2.0 */
#include "term/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/vis.h"
#include "term/screen.h"
#include "term/tty.h"

static uint64_t monotonic(void *arg UNUSED)
{
	struct timespec t = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(const struct term_progress *p)
{
	return p->now_ns(p->now_arg);
}

void term_progress_init(struct term_progress *p, int fd, uint64_t (*now_ns)(void *), void *arg)
{
	*p = (struct term_progress){ .fd = fd,
		                     .redraw = fd >= 0 && term_can_redraw(fd),
		                     .now_ns = now_ns ? now_ns : monotonic,
		                     .now_arg = arg };
}

/* What cannot be shown is not worth failing for: the result of the work does not depend on it. */
static void show(struct term_progress *p, const struct buf *b)
{
	if (p->fd >= 0 && b->len && fd_write_all(p->fd, b->p, b->len) < 0)
		p->fd = -1;
}

static void visible(char *dst, size_t cap, const char *fmt, va_list ap)
{
	char raw[TERM_PROGRESS_TEXT_MAX];

	(void)vsnprintf(raw, sizeof(raw), fmt, ap); /* cut is fine */
	(void)vis_str(dst, cap, span_str(raw));
}

static struct term_phase *current(struct term_progress *p)
{
	return &p->phase[MIN(p->n_phases, (size_t)TERM_PROGRESS_PHASES_MAX - 1)];
}

static bool slow(uint64_t ns)
{
	return ns >= TERM_PROGRESS_SLOW_MS * 1000000ull;
}

static void draw(struct term_progress *p)
{
	AUTO_BUF struct buf text = { 0 };
	AUTO_BUF struct buf line = { 0 };
	char took[TERM_FMT_BYTES];
	uint64_t ns = now(p) - p->start_ns;
	size_t cols = term_tty_size(p->fd).cols;
	int r = buf_printf(&text, "%s", current(p)->text);

	if (r == 0 && p->detail[0])
		r = buf_printf(&text, "  %s", p->detail);
	if (r == 0 && slow(ns))
		r = buf_printf(&text, "  %s", term_fmt_duration(took, ns));
	/* the last column stays free: writing there wraps some terminals at once */
	if (r == 0)
		r = buf_put(&line, "\r", 1);
	if (r == 0)
		r = term_put_cut(&line, span_of(text.p, text.len), cols - 1, false);
	if (r == 0)
		r = buf_put(&line, "\033[K", 3);
	if (r < 0)
		return;
	show(p, &line);
	p->shown = true;
	p->drawn_ns = now(p);
}

void term_progress_stop(struct term_progress *p)
{
	struct buf erase = { .p = (uint8_t[]){ '\r', 033, '[', 'K' }, .len = 4 };

	if (p->shown)
		show(p, &erase);
	p->shown = false;
}

void term_progress_end(struct term_progress *p)
{
	char took[TERM_FMT_BYTES];

	term_progress_stop(p);
	if (!p->running)
		return;
	p->running = false;
	struct term_phase *ph = current(p);
	ph->took_ns = now(p) - p->start_ns;
	if (!p->redraw && slow(ph->took_ns)) {
		AUTO_BUF struct buf b = { 0 };
		if (buf_printf(&b, "%s: %s\n", ph->text, term_fmt_duration(took, ph->took_ns)) == 0)
			show(p, &b);
	}
	if (p->n_phases < TERM_PROGRESS_PHASES_MAX)
		p->n_phases++;
}

void term_progress_phase(struct term_progress *p, const char *fmt, ...)
{
	char text[sizeof(p->phase[0].text)];
	va_list ap;

	va_start(ap, fmt);
	visible(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (p->running && strcmp(text, current(p)->text) == 0) {
		term_progress_tick(p); /* who reports steps says the same phase again and again */
		return;
	}
	term_progress_end(p);
	memcpy(current(p)->text, text, sizeof(text));
	p->detail[0] = '\0';
	p->running = true;
	p->start_ns = now(p);
	if (p->redraw) {
		draw(p);
	} else {
		AUTO_BUF struct buf b = { 0 };
		if (buf_printf(&b, "%s\n", current(p)->text) == 0)
			show(p, &b);
	}
}

void term_progress_detail(struct term_progress *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	visible(p->detail, sizeof(p->detail), fmt, ap);
	va_end(ap);
	term_progress_tick(p);
}

void term_progress_tick(struct term_progress *p)
{
	if (p->redraw && p->running &&
	    (!p->shown || now(p) - p->drawn_ns >= TERM_PROGRESS_TICK_MS * 1000000ull))
		draw(p);
}

void term_progress_line(struct term_progress *p, const char *fmt, ...)
{
	char text[4 * TERM_PROGRESS_TEXT_MAX];
	AUTO_BUF struct buf b = { 0 };
	bool again = p->shown;
	va_list ap;

	va_start(ap, fmt);
	visible(text, sizeof(text), fmt, ap);
	va_end(ap);
	term_progress_stop(p);
	if (buf_printf(&b, "%s\n", text) == 0)
		show(p, &b);
	if (again)
		draw(p);
}
