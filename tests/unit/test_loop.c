/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "event/loop.h"

static uint64_t now;

static uint64_t fake_clock(void *arg UNUSED)
{
	return now;
}

struct tick {
	struct loop *l;
	struct loop_timer t;
	int count;
};

static void on_tick(void *arg)
{
	struct tick *k = arg;

	k->count++;
	loop_timer_set(k->l, &k->t, 10, on_tick, k);
}

static void test_timers(void **state UNUSED)
{
	struct loop *l = loop_new();
	struct tick k = { .l = l };

	loop_set_clock(l, fake_clock, NULL);
	loop_timer_set(l, &k.t, 10, on_tick, &k);
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(k.count, 0);
	now += 10 * 1000000u;
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(k.count, 1);
	loop_timer_del(l, &k.t);
	now += 100 * 1000000u;
	assert_int_equal(loop_once(l, 0), 0);
	assert_int_equal(k.count, 1);
	loop_free(l);
}

struct pair {
	struct loop *l;
	struct loop_fd a, b;
	int calls;
};

/* whoever runs first removes both: the other's event of the same turn is dropped */
static void on_either(void *arg, uint32_t events UNUSED)
{
	struct pair *p = arg;

	p->calls++;
	loop_fd_del(p->l, &p->a);
	loop_fd_del(p->l, &p->b);
}

static void test_remove_in_handler(void **state UNUSED)
{
	struct pair p = { .l = loop_new() };
	int x[2], y[2];

	assert_int_equal(pipe(x) | pipe(y), 0);
	assert_int_equal(loop_fd_add(p.l, &p.a, x[0], EPOLLIN, on_either, &p), 0);
	assert_int_equal(loop_fd_add(p.l, &p.b, y[0], EPOLLIN, on_either, &p), 0);
	assert_int_equal(write(x[1], "1", 1) + write(y[1], "1", 1), 2);
	assert_int_equal(loop_once(p.l, 1000), 0);
	assert_int_equal(p.calls, 1);
	loop_free(p.l);
}

static void on_signal(void *arg, int signo)
{
	loop_stop(arg, signo);
}

static void test_signal(void **state UNUSED)
{
	struct loop *l = loop_new();
	static const int set[] = { SIGUSR1, -1 };

	assert_int_equal(loop_signals(l, set, on_signal, l), 0);
	assert_int_equal(kill(getpid(), SIGUSR1), 0);
	assert_int_equal(loop_run(l), SIGUSR1);
	loop_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timers),
		cmocka_unit_test(test_remove_in_handler),
		cmocka_unit_test(test_signal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
