/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "super/net.h"
#include "super/netctl.h"

static char dir[] = "/tmp/cloche-netctl-XXXXXX";

static int setup(void **state UNUSED)
{
	return mkdtemp(dir) && setenv("XDG_RUNTIME_DIR", dir, 1) == 0 ? 0 : -1;
}

static int teardown(void **state UNUSED)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/cloche/box.net", dir);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/cloche", dir);
	(void)rmdir(path);
	return rmdir(dir);
}

static void test_modes(void **state UNUSED)
{
	enum net_mode m;

	for (unsigned i = NET_OFFLINE; i <= NET_SHARED; i++) {
		assert_int_equal(net_mode_parse(net_mode_name((enum net_mode)i), &m), 0);
		assert_int_equal(m, i);
	}
	assert_int_equal(net_mode_parse("Isolated", &m), -EINVAL);
	assert_int_equal(net_mode_parse("", &m), -EINVAL);
}

static void test_policy(void **state UNUSED)
{
	struct egress_rule r = { .origin = EGRESS_FROM_FLAG };
	struct egress *e = egress_new(EGRESS_LOCKED), *back = NULL;

	assert_int_equal(host_pattern_parse(&r.host, span_str("*.example.org"), NULL), 0);
	assert_int_equal(egress_add(e, &r), 0);
	AUTO_CLOSE int fd = net_policy_fd(e);
	assert_true(fd >= 0);
	for (int i = 0; i < 2; i++) { /* reading it leaves it to the next */
		assert_int_equal(net_policy_read(fd, &back), 0);
		assert_int_equal(egress_profile_of(back), EGRESS_LOCKED);
		assert_non_null(egress_find(back, "a.example.org", 443));
		egress_free(back);
		back = NULL;
	}
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(ftruncate(fd, 1), -1);
	/* what could be changed behind our back is refused */
	AUTO_CLOSE int open_fd = fd_memfd("policy");
	assert_int_equal(net_policy_read(open_fd, &back), -EPERM);
	egress_free(e);
}

static void test_nobody(void **state UNUSED)
{
	struct netctl_msg req = { .type = NETCTL_LIST };
	struct err e = { 0 };

	assert_int_equal(netctl_call("box", &req, NULL, 0, NULL, NULL, &e), -ENOENT);
	AUTO_CLOSE int d = net_runtime_dir(true, &e);
	assert_true(d >= 0);
	assert_int_equal(netctl_call("box", &req, NULL, 0, NULL, NULL, &e), -ENOENT);
	assert_non_null(strstr(e.text, "does not run"));
	assert_int_equal(netctl_call("../box", &req, NULL, 0, NULL, NULL, &e), -EINVAL);
	assert_int_equal(netctl_call("", &req, NULL, 0, NULL, NULL, &e), -EINVAL);
	/* others could have listened there */
	assert_int_equal(fchmod(d, 0702), 0);
	assert_int_equal(net_runtime_dir(false, &e), -EPERM);
	assert_int_equal(fchmod(d, 0700), 0);
}

static void serve(int l, const struct netctl_msg *answer)
{
	struct netctl_msg got;
	int s = accept(l, NULL, NULL), fd = -1;
	size_t n = 0;

	if (s < 0 || fd_recv(s, &got, sizeof(got), &fd, 1, &n) != (ssize_t)sizeof(got))
		_exit(1);
	/* what came along goes back */
	_exit(fd_send(s, answer, sizeof(*answer), &fd, n) == 0 ? 0 : 1);
}

static void test_call(void **state UNUSED)
{
	const struct netctl_msg good = { .type = NETCTL_ANSWER, .mode = NET_SHARED },
				bad = { .type = NETCTL_ANSWER, .code = -EINVAL, .text = "no host" },
				odd = { .type = NETCTL_LIST };
	const struct {
		const struct netctl_msg *answer;
		int want;
		const char *text;
	} t[] = { { &good, 0, "" }, { &bad, -EINVAL, "no host" }, { &odd, -EPIPE, "answer" } };
	struct netctl_msg req = { .type = NETCTL_CALLBACK, .port = 1455 }, got;
	struct sockaddr_un a;
	struct err e = { 0 };

	AUTO_CLOSE int d = net_runtime_dir(true, &e);
	assert_true(d >= 0);
	AUTO_CLOSE int l = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(netctl_address(d, "box", &a), 0);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 1), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int fd = -1, status;
		pid_t pid = fork();
		if (pid == 0)
			serve(l, t[i].answer);
		AUTO_CLOSE int mine = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_int_equal(netctl_call("box", &req, &mine, 1, &got, &fd, &e), t[i].want);
		if (t[i].want == 0) {
			assert_int_equal(got.mode, NET_SHARED);
			assert_true(fd >= 0 && close(fd) == 0);
		} else {
			assert_int_equal(fd, -1);
			assert_non_null(strstr(e.text, t[i].text));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_policy),
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_call),
	};

	return cmocka_run_group_tests(t, setup, teardown);
}
