/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "super/state.h"

static char top[] = "/tmp/cloche-state-XXXXXX";
static struct state_dirs dirs;
static int boxes; /* dirs.sandboxes */

static int set_up(void **state UNUSED)
{
	struct err e = { 0 };

	if (!mkdtemp(top) || setenv("XDG_STATE_HOME", top, 1) < 0 ||
	    setenv("XDG_CACHE_HOME", top, 1) < 0 || setenv("XDG_CONFIG_HOME", top, 1) < 0 ||
	    state_dirs_init(&dirs, true, &e) < 0)
		return -1;
	boxes = open(dirs.sandboxes, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return boxes < 0 ? -1 : 0;
}

static int tear_down(void **state UNUSED)
{
	(void)close(boxes);
	state_dirs_fini(&dirs);
	return path_remove_tree(AT_FDCWD, top);
}

static void put(int dir, const char *name, const char *text)
{
	AUTO_CLOSE int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

/* A sandbox's folder as a monitor leaves it; -1 for a state.json of @text. */
static int make(const char *id, int phase, const char *text)
{
	struct state s = { .phase = phase > 0 ? (enum state_phase)phase : 0, .n_projects = 1 };
	static char name[] = "demo", path[] = "/demo";
	struct err e = { 0 };

	assert_int_equal(mkdirat(boxes, id, 0700), 0);
	int dir = openat(boxes, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	put(dir, "lock", "");
	(void)snprintf(s.id, sizeof(s.id), "%s", id);
	s.projects[0].name = name;
	s.projects[0].path = path;
	s.projects[0].dev = UINT64_MAX;
	s.projects[0].ino = UINT64_MAX - 1;
	if (text)
		put(dir, "state.json", text);
	else if (phase > 0)
		assert_int_equal(state_write(dir, &s, &e), 0);
	return dir;
}

/* What a sandbox's network was; a file from before knows of none, an unknown one is damaged. */
static void test_network(void **state UNUSED)
{
	static char name[] = "demo", path[] = "/demo", events[] = "/logs/\xff.events.jsonl";
	static const char plain[] = "{\"schema\":1,\"id\":\"x\",\"phase\":\"running\","
				    "\"projects\":[{\"name\":\"a\",\"path\":\"/a\"}]%s}";
	struct state s = { .id = "x", .phase = STATE_RUNNING, .n_projects = 1 }, got;
	struct err e = { 0 };
	char text[300];

	s.projects[0] = (struct state_project){ .name = name, .path = path };
	s.network = NET_SHARED;
	(void)snprintf(s.egress, sizeof(s.egress), "locked");
	s.events = events;
	AUTO_CLOSE int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(state_write(dir, &s, &e), 0);
	assert_int_equal(state_read(dir, &got, &e), 0);
	assert_int_equal(got.network, NET_SHARED);
	assert_string_equal(got.egress, "locked");
	assert_string_equal(got.events, events);
	state_fini(&got);
	(void)snprintf(text, sizeof(text), plain, "");
	put(dir, "state.json", text);
	assert_int_equal(state_read(dir, &got, &e), 0);
	assert_int_equal(got.network, NET_OFFLINE);
	assert_null(got.events);
	state_fini(&got);
	(void)snprintf(text, sizeof(text), plain, ",\"network\":\"open\"");
	put(dir, "state.json", text);
	assert_int_equal(state_read(dir, &got, &e), -EPROTO);
	assert_int_equal(unlinkat(dir, "state.json", 0), 0);
}

static void test_list_and_sweep(void **state UNUSED)
{
	struct state_item *v;
	struct err e = { 0 };
	size_t n, damaged = 0, running = 0;
	int lock;
	int fds[] = {
		make("starting", STATE_STARTING, NULL),
		make("staged", STATE_STAGED, NULL),
		make("running", STATE_RUNNING, NULL),
		make("nothing", 0, NULL),
		make("garbage", 0, "{\"schema\":"),
		make("newer", 0, "{\"schema\":2}"),
		make("not-ours", 0, "{}"),
		make("alive", STATE_STARTING, NULL),
	};
	assert_int_equal(unlinkat(fds[6], "lock", 0), 0);
	assert_int_equal(state_lock(boxes, fds[7], &lock), 0);
	assert_int_equal(state_lock(boxes, fds[7], &(int){ -1 }), -EBUSY);
	assert_int_equal(state_lock(boxes, fds[6], &(int){ -1 }), -ENOENT);

	assert_int_equal(state_sweep(&dirs), 3); /* starting, staged, nothing */
	assert_int_equal(state_list(&dirs, &v, &n, &e), 0);
	assert_int_equal(n, 4);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(v[i].alive, strcmp(v[i].s.id, "alive") == 0);
		if (v[i].damaged) {
			damaged++;
			assert_true(strcmp(v[i].s.id, "garbage") == 0 ||
			            strcmp(v[i].s.id, "newer") == 0);
			assert_non_null(strstr(v[i].s.failure, "state.json is not of this"));
		} else if (v[i].s.phase == STATE_RUNNING) {
			running++;
			assert_true(v[i].s.projects[0].dev == UINT64_MAX &&
			            v[i].s.projects[0].ino == UINT64_MAX - 1);
		}
	}
	assert_int_equal(damaged, 2);
	assert_int_equal(running, 1);
	state_items_free(v, n);
	(void)close(lock);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		(void)close(fds[i]);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(path_remove_tree(boxes, (const char *[]){ "running", "garbage",
		                                                           "newer", "alive" }[i]),
		                 0);
}

/* Others who only look, all the time: nobody takes them for a monitor, and they no look for one. */
static void test_looking_is_not_living(void **state UNUSED)
{
	enum { LOOKERS = 3, LOOK_S = 1 };
	pid_t pids[LOOKERS];
	int dir = make("running", STATE_RUNNING, NULL), status;

	for (int i = 0; i < LOOKERS; i++) {
		pids[i] = fork();
		if (pids[i] != 0)
			continue;
		/* each opens for itself, as processes do: a lock belongs to an opening */
		for (;;) {
			struct state_item *v;
			struct err e = { 0 };
			size_t n;
			if (i == 0 && state_sweep(&dirs) != 0)
				_exit(1);
			if (i == 0)
				continue;
			if (state_list(&dirs, &v, &n, &e) < 0 || n != 1)
				_exit(2);
			state_items_free(v, n);
		}
	}
	unsigned busy = 0;
	for (time_t end = time(NULL) + LOOK_S; time(NULL) <= end;) {
		AUTO_CLOSE int lock = -1;
		AUTO_CLOSE int own = open(dirs.sandboxes, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		busy += state_lock(own, dir, &lock) == -EBUSY;
	}
	for (int i = 0; i < LOOKERS; i++) {
		assert_int_equal(kill(pids[i], SIGKILL), 0);
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFSIGNALED(status)); /* and did not end with a complaint */
	}
	assert_int_equal(busy, 0);
	(void)close(dir);
	assert_int_equal(path_remove_tree(boxes, "running"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_network),
		cmocka_unit_test(test_list_and_sweep),
		cmocka_unit_test(test_looking_is_not_living),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
