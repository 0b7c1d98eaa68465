/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/ip.h"
#include "base/mem.h"
#include "event/loop.h"

/* ---- a line ---------------------------------------------------------------- */

struct out {
	char *p;
	size_t n, cap;
	bool bad;
};

static void put(struct out *o, const char *fmt, ...) PRINTF_FMT(2, 3);
static void put(struct out *o, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int k = vsnprintf(o->p + o->n, o->cap - o->n, fmt, ap);
	va_end(ap);
	if (k < 0 || (size_t)k >= o->cap - o->n) {
		o->bad = true;
		return;
	}
	o->n += (size_t)k;
}

/* Whatever bytes come: what is not printable ASCII is written by its number. */
static void put_string(struct out *o, const char *key, const char *s)
{
	if (!s || !s[0])
		return;
	put(o, ",\"%s\":\"", key);
	for (; *s && !o->bad; s++) {
		unsigned char c = (unsigned char)*s;

		if (c < 0x20 || c > 0x7e)
			put(o, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			put(o, "\\%c", c);
		else
			put(o, "%c", c);
	}
	put(o, "\"");
}

static void put_time(struct out *o, uint64_t t_ms)
{
	time_t s = (time_t)(t_ms / 1000);
	struct tm tm;

	if (!gmtime_r(&s, &tm)) {
		o->bad = true;
		return;
	}
	put(o, "{\"t\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03uZ\"", tm.tm_year + 1900, tm.tm_mon + 1,
	    tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(t_ms % 1000));
}

size_t event_put(char *dst, size_t cap, uint64_t t_ms, const struct event *e)
{
	struct out o = { .p = dst, .cap = cap };
	char ip[IP4_STR_BYTES];

	if (cap == 0)
		return 0;
	put_time(&o, t_ms);
	put_string(&o, "ev", e->ev);
	put_string(&o, "verdict", e->verdict);
	put_string(&o, "reason", e->reason);
	put_string(&o, "detail", e->detail);
	put_string(&o, "name", e->name);
	put_string(&o, "proto", e->proto);
	if (e->n_addrs == 1)
		put(&o, ",\"addr\":\"%s\"", ip4_str(ip, e->addrs[0]));
	for (size_t i = 0; e->n_addrs > 1 && i < e->n_addrs; i++)
		put(&o, "%s\"%s\"", i ? "," : ",\"addrs\":[", ip4_str(ip, e->addrs[i]));
	if (e->n_addrs > 1)
		put(&o, "]");
	if (e->port)
		put(&o, ",\"port\":%u", e->port);
	if (e->guest_port)
		put(&o, ",\"guest_port\":%u", e->guest_port);
	if (e->has_bytes)
		put(&o, ",\"bytes_out\":%" PRIu64 ",\"bytes_in\":%" PRIu64, e->bytes_out,
		    e->bytes_in);
	if (e->count)
		put(&o, ",\"count\":%" PRIu64, e->count);
	put(&o, "}\n");
	return o.bad ? 0 : o.n;
}

/* ---- the writer ------------------------------------------------------------- */

/* Kinds of events: one is what ev, verdict and reason say. All are static text. */
enum { KINDS_MAX = 128, WINDOW_MS = 1000 };

struct kind {
	const char *ev, *verdict, *reason;
	uint64_t count;
};

struct events {
	struct loop *l;
	int fd;
	uint64_t bytes, bytes_max;
	bool full;
	bool torn;           /* the last line has no end */
	uint64_t lost, told; /* lines; and how many of them the log tells of */
	void (*on_lost)(void *arg, int code);
	void *arg;
	unsigned lines; /* in this window */
	struct loop_timer window;
	struct kind kinds[KINDS_MAX];
	size_t n_kinds;
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* What is written of a line stays, and is ended before the next one. */
static int append(struct events *e, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t k = write(e->fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -ENOSPC;
		p += k;
		n -= (size_t)k;
		e->bytes += (size_t)k;
		e->torn = p[-1] != '\n';
	}
	return 0;
}

static bool write_line(struct events *e, const struct event *ev)
{
	char line[1 + EVENT_LINE_MAX] = "\n";
	size_t n = event_put(line + 1, sizeof(line) - 1, now_ms(), ev), before = e->torn ? 1 : 0;

	ASSERT(n > 0); /* every field has its limit, and the line room for all */
	if (n + before > e->bytes_max - e->bytes)
		return false;
	int r = append(e, line + 1 - before, n + before);
	if (r < 0 && e->lost++ == 0 && e->on_lost)
		e->on_lost(e->arg, r);
	return true;
}

/* Lines were lost, and it goes on. */
static void tell_lost(struct events *e)
{
	struct event ev = { .ev = "lost", .count = e->lost - e->told };
	uint64_t before = e->lost;

	if (ev.count == 0)
		return;
	if (write_line(e, &ev) && e->lost == before)
		e->told = before;
	else
		e->lost = before; /* that line is not one of them */
}

static void emit(struct events *e, const struct event *ev)
{
	static const struct event last = { .ev = "end", .reason = "log-full" };

	/* room for the last line is kept */
	if (e->full)
		return;
	e->bytes_max -= EVENT_LINE_MAX;
	tell_lost(e);
	e->full = !write_line(e, ev);
	e->bytes_max += EVENT_LINE_MAX;
	if (e->full)
		(void)write_line(e, &last); /* it fits: see above */
}

static void flush(struct events *e)
{
	for (size_t i = 0; i < e->n_kinds; i++) {
		const struct kind *k = &e->kinds[i];
		struct event ev = {
			.ev = k->ev, .verdict = k->verdict, .reason = k->reason, .count = k->count
		};
		emit(e, &ev);
	}
	e->n_kinds = 0;
}

static void on_window(void *arg)
{
	struct events *e = arg;

	e->lines = 0;
	flush(e);
}

struct events *events_new(struct loop *l, int fd, uint64_t bytes_max,
                          void (*lost)(void *arg, int code), void *arg)
{
	struct events *e = xcalloc(1, sizeof(*e));
	struct stat st;
	char last = '\n';

	e->l = l;
	e->fd = fd;
	e->on_lost = lost;
	e->arg = arg;
	/* a session that goes on writes behind what is there */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
		e->bytes = (uint64_t)st.st_size;
	if (e->bytes && pread(fd, &last, 1, (off_t)e->bytes - 1) == 1)
		e->torn = last != '\n';
	e->bytes_max = MAX(bytes_max, (uint64_t)EVENT_LINE_MAX);
	e->full = e->bytes > e->bytes_max - EVENT_LINE_MAX;
	return e;
}

void events_free(struct events *e, const struct event *last)
{
	if (!e)
		return;
	loop_timer_del(e->l, &e->window);
	flush(e);
	if (last)
		emit(e, last);
	free(e);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static void count(struct events *e, const struct event *ev)
{
	uint64_t n = ev->count ? ev->count : 1;

	for (size_t i = 0; i < e->n_kinds; i++) {
		struct kind *k = &e->kinds[i];

		if (same_text(k->ev, ev->ev) && same_text(k->verdict, ev->verdict) &&
		    same_text(k->reason, ev->reason)) {
			k->count += n;
			return;
		}
	}
	ASSERT(e->n_kinds < KINDS_MAX); /* there are fewer in the program */
	e->kinds[e->n_kinds++] = (struct kind){ ev->ev, ev->verdict, ev->reason, n };
}

void events_write(struct events *e, const struct event *ev)
{
	if (e->window.when_ns == 0)
		loop_timer_set(e->l, &e->window, WINDOW_MS, on_window, e);
	if (e->lines >= EVENTS_LINES_A_SECOND) {
		count(e, ev);
		return;
	}
	e->lines++;
	emit(e, ev);
}
