/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - one thread's event loop: descriptors, timers, signals, processes.
 *
 * Handlers never block and may add, change or remove any source, their own
 * included, while they run. A source belongs to the caller and stays valid
 * until it is removed. Time comes from loop_now_ns(), so a test can own the
 * clock with loop_set_clock().
 */
#ifndef CLOCHE_EVENT_LOOP_H
#define CLOCHE_EVENT_LOOP_H

#include "base/util.h"

struct loop;

/* @events of epoll(7): EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR */
typedef void (*loop_fd_fn)(void *arg, uint32_t events);
typedef void (*loop_timer_fn)(void *arg);
typedef void (*loop_signal_fn)(void *arg, int signo);

struct loop_fd {
	int fd; /* borrowed; -1 while not added */
	uint32_t events;
	loop_fd_fn fn;
	void *arg;
};

struct loop_timer {
	uint64_t when_ns; /* 0 while not armed */
	loop_timer_fn fn;
	void *arg;
	struct loop_timer *next; /* the loop's */
};

struct loop *loop_new(void) MUST_CHECK; /* NULL without descriptors */
void loop_free(struct loop *l);

/* Watch @fd for @events. 0 or -errno. */
int loop_fd_add(struct loop *l, struct loop_fd *s, int fd, uint32_t events, loop_fd_fn fn,
                void *arg) MUST_CHECK;
/* Change what is watched for; cheap when it is the same. */
void loop_fd_set(struct loop *l, struct loop_fd *s, uint32_t events);
/* Stop watching; safe on one that was never added (fd -1). Does not close. */
void loop_fd_del(struct loop *l, struct loop_fd *s);

/* Call @fn once, @delay_ms from now; arming again moves it. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms, loop_timer_fn fn,
                    void *arg);
void loop_timer_del(struct loop *l, struct loop_timer *t);

/* Block @signo and get it here instead. -1 in the list ends it. 0 or -errno. */
int loop_signals(struct loop *l, const int *signos, loop_signal_fn fn, void *arg) MUST_CHECK;

uint64_t loop_now_ns(const struct loop *l);
void loop_set_clock(struct loop *l, uint64_t (*now_ns)(void *), void *arg);

/* Run until loop_stop(). Return: the code given there, or -errno. */
int loop_run(struct loop *l);
/* One turn, waiting at most @timeout_ms. 0 or -errno. */
int loop_once(struct loop *l, int timeout_ms);
void loop_stop(struct loop *l, int code);

#endif
