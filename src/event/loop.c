/* SPDX-License-Identifier: Apache-2.0 */
#include "event/loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

struct loop {
	int ep;
	int sigfd;
	struct loop_fd sig;
	loop_signal_fn sig_fn;
	void *sig_arg;
	struct loop_timer *timers; /* sorted by when_ns; few, so a list */
	struct epoll_event batch[64];
	int batch_n, batch_i; /* the turn's events, to drop those of removed sources */
	uint64_t (*clock)(void *);
	void *clock_arg;
	bool stop;
	int code;
};

static uint64_t monotonic_ns(void *arg UNUSED)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct loop *loop_new(void)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);

	if (ep < 0)
		return NULL;
	struct loop *l = xcalloc(1, sizeof(*l));
	l->ep = ep;
	l->sigfd = -1;
	l->sig.fd = -1;
	l->clock = monotonic_ns;
	return l;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	auto_close_(&l->sigfd);
	auto_close_(&l->ep);
	free(l);
}

uint64_t loop_now_ns(const struct loop *l)
{
	return l->clock(l->clock_arg);
}

void loop_set_clock(struct loop *l, uint64_t (*now_ns)(void *), void *arg)
{
	l->clock = now_ns ? now_ns : monotonic_ns;
	l->clock_arg = arg;
}

int loop_fd_add(struct loop *l, struct loop_fd *s, int fd, uint32_t events, loop_fd_fn fn,
                void *arg)
{
	struct epoll_event e = { .events = events, .data.ptr = s };

	if (epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &e) < 0)
		return -errno;
	*s = (struct loop_fd){ .fd = fd, .events = events, .fn = fn, .arg = arg };
	return 0;
}

void loop_fd_set(struct loop *l, struct loop_fd *s, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = s };

	if (s->fd < 0 || s->events == events)
		return;
	s->events = events;
	int r = epoll_ctl(l->ep, EPOLL_CTL_MOD, s->fd, &e);
	ASSERT(r == 0); /* it is there: loop_fd_add() put it there */
}

void loop_fd_del(struct loop *l, struct loop_fd *s)
{
	if (s->fd < 0 || !s->fn)
		return;
	(void)epoll_ctl(l->ep, EPOLL_CTL_DEL, s->fd, NULL); /* EBADF: closed before, gone anyway */
	for (int i = l->batch_i; i < l->batch_n; i++) {
		if (l->batch[i].data.ptr == s)
			l->batch[i].data.ptr = NULL;
	}
	*s = (struct loop_fd){ .fd = -1 };
}

void loop_timer_del(struct loop *l, struct loop_timer *t)
{
	for (struct loop_timer **p = &l->timers; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	t->next = NULL;
	t->when_ns = 0;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms, loop_timer_fn fn,
                    void *arg)
{
	struct loop_timer **p = &l->timers;

	loop_timer_del(l, t);
	t->when_ns = loop_now_ns(l) + delay_ms * 1000000u;
	t->fn = fn;
	t->arg = arg;
	while (*p && (*p)->when_ns <= t->when_ns)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
}

static void on_signalfd(void *arg, uint32_t events UNUSED)
{
	struct loop *l = arg;
	struct signalfd_siginfo si;

	while (read(l->sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (l->sig_fn)
			l->sig_fn(l->sig_arg, (int)si.ssi_signo);
	}
}

int loop_signals(struct loop *l, const int *signos, loop_signal_fn fn, void *arg)
{
	sigset_t set;

	(void)sigemptyset(&set);
	for (; *signos >= 0; signos++)
		(void)sigaddset(&set, *signos);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	loop_fd_del(l, &l->sig);
	auto_close_(&l->sigfd);
	l->sigfd = fd;
	l->sig_fn = fn;
	l->sig_arg = arg;
	return loop_fd_add(l, &l->sig, fd, EPOLLIN, on_signalfd, l);
}

static void run_timers(struct loop *l)
{
	uint64_t now = loop_now_ns(l);

	while (!l->stop && l->timers && l->timers->when_ns <= now) {
		struct loop_timer *t = l->timers;

		l->timers = t->next;
		t->next = NULL;
		t->when_ns = 0;
		t->fn(t->arg);
	}
}

int loop_once(struct loop *l, int timeout_ms)
{
	if (l->timers) {
		uint64_t now = loop_now_ns(l), when = l->timers->when_ns;
		uint64_t ms = when <= now ? 0 : (when - now + 999999) / 1000000;
		if (timeout_ms < 0 || ms < (uint64_t)timeout_ms)
			timeout_ms = (int)MIN(ms, 1u << 30);
	}
	int n = epoll_wait(l->ep, l->batch, ARRAY_LEN(l->batch), timeout_ms);
	if (n < 0 && errno != EINTR)
		return -errno;
	l->batch_n = MAX(n, 0);
	for (l->batch_i = 0; l->batch_i < l->batch_n && !l->stop;) {
		struct epoll_event *e = &l->batch[l->batch_i++];
		struct loop_fd *s = e->data.ptr;
		if (s && s->fn)
			s->fn(s->arg, e->events);
	}
	l->batch_n = l->batch_i = 0;
	run_timers(l);
	return 0;
}

int loop_run(struct loop *l)
{
	l->stop = false;
	while (!l->stop) {
		int r = loop_once(l, -1);
		if (r < 0)
			return r;
	}
	return l->code;
}

void loop_stop(struct loop *l, int code)
{
	l->stop = true;
	l->code = code;
}
