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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/vis.h"
#include "lib/no_rename.h"

static void test_err(void **state UNUSED)
{
	struct err e = { 0 };

	errno = ENOENT;
	assert_int_equal(err_errno(&e, "cannot open kernel '%s'", "k"), -ENOENT);
	assert_int_equal(err_wrap(&e, "cannot start sandbox '%s'", "a"), -ENOENT);
	assert_string_equal(e.text, "cannot start sandbox 'a': cannot open kernel 'k': "
	                            "No such file or directory");
	err_hint(&e, "first");
	err_hint(&e, "second");
	assert_string_equal(e.hint, "first");
	assert_int_equal(err_set(NULL, -EPROTO, "x"), -EPROTO);
	/* a hint or a context without a place for it keeps the code */
	assert_int_equal(err_hint(NULL, "x"), -EPROTO);
	errno = ENOSPC;
	assert_int_equal(err_errno(NULL, "x"), -ENOSPC);
	assert_int_equal(err_wrap(NULL, "x"), -ENOSPC);
}

static void test_cursor(void **state UNUSED)
{
	uint8_t b[16];
	struct wr w = wr_of(b, 7);
	wr_le(&w, 0x0102, 2);
	wr_blob(&w, span_str("abc"), 2);
	assert_false(w.bad);
	wr_le(&w, 1, 1);
	assert_true(w.bad);

	struct rd r = rd_of(b, 7);
	assert_int_equal(rd_le(&r, 2), 0x0102);
	assert_true(span_eq(rd_blob(&r, 2, 3), span_str("abc")));
	assert_false(r.bad);
	assert_int_equal(rd_le(&r, 1), 0);
	assert_true(r.bad);

	r = rd_of(b, 7);
	(void)rd_le(&r, 2);
	assert_int_equal(rd_blob(&r, 2, 2).len, 0); /* one over the limit */
	assert_true(r.bad);
}

static void test_vis(void **state UNUSED)
{
	static const struct {
		const char *why, *in, *want;
		size_t len;
	} t[] = {
		{ "plain", "a b", "a b", 3 },
		{ "escape", "\x1b[2J", "\\e[2J", 4 },
		{ "newline and tab", "a\n\t", "a\\n\\t", 3 },
		{ "NUL", "a\0b", "a\\x00b", 3 },
		{ "backslash", "a\\n", "a\\\\n", 3 },
		{ "two bytes", "\xc3\xa4", "\xc3\xa4", 2 },
		{ "C1 CSI", "\xc2\x9b", "\\xc2\\x9b", 2 },
		{ "raw C1", "\x9b", "\\x9b", 1 },
		{ "overlong slash", "\xc0\xaf", "\\xc0\\xaf", 2 },
		{ "surrogate", "\xed\xa0\x80", "\\xed\\xa0\\x80", 3 },
		{ "beyond Unicode", "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", 4 },
		{ "cut character", "\xe2\x82", "\\xe2\\x82", 2 },
		{ "right-to-left override", "\xe2\x80\xae", "\\xe2\\x80\\xae", 3 },
		{ "zero width space", "\xe2\x80\x8b", "\\xe2\\x80\\x8b", 3 },
		{ "tag letter", "\xf3\xa0\x81\xa1", "\\xf3\\xa0\\x81\\xa1", 4 },
		{ "emoji", "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80", 4 },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_FREE char *got = vis_dup(span_of(t[i].in, t[i].len));
		if (strcmp(got, t[i].want) != 0)
			fail_msg("%s: got '%s', want '%s'", t[i].why, got, t[i].want);
	}
	char small[8];
	assert_string_equal(vis_str(small, sizeof(small), span_str("12345678")), "1234...");
	assert_string_equal(vis_str(small, sizeof(small), span_str("1234567")), "1234567");
}

static void test_path_check(void **state UNUSED)
{
	char long_name[300], deep[600];
	memset(long_name, 'a', sizeof(long_name));
	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = i % 2 ? '/' : 'd';
	const struct {
		const char *why, *s;
		size_t len;
		int want;
	} t[] = {
		{ "empty", "", 0, -EINVAL },
		{ "one", "a", 1, 1 },
		{ "two", "a/b", 3, 2 },
		{ "absolute", "/a", 2, -EINVAL },
		{ "trailing slash", "a/", 2, -EINVAL },
		{ "double slash", "a//b", 4, -EINVAL },
		{ "dot", "a/./b", 5, -EINVAL },
		{ "dotdot", "../a", 4, -EINVAL },
		{ "dotdot at the end", "a/..", 4, -EINVAL },
		{ "three dots are a name", "...", 3, 1 },
		{ "NUL", "a\0b", 3, -EINVAL },
		{ "name of 255", long_name, 255, 1 },
		{ "name of 256", long_name, 256, -ENAMETOOLONG },
		{ "depth 256", deep, 511, 256 },
		{ "depth 257", deep, 513, -ENAMETOOLONG },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int got = path_check(span_of(t[i].s, t[i].len));
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
	}
}

static void test_path_walk(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-test-XXXXXX";
	assert_non_null(mkdtemp(dir));
	AUTO_CLOSE int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int sub = path_mkdirs(d, span_str("a/b/c"), 0755);
	assert_true(sub >= 0);
	AUTO_CLOSE int f = path_open(d, span_str("a/b/c/f"), O_CREAT | O_EXCL | O_WRONLY, 0644);
	assert_true(f >= 0);
	assert_int_equal(symlinkat("/etc", d, "out"), 0);
	assert_int_equal(symlinkat("b", sub, "in"), 0);
	assert_int_equal(path_open(d, span_str("out/passwd"), O_RDONLY, 0), -ELOOP);
	assert_int_equal(path_open(d, span_str("out"), O_RDONLY, 0), -ELOOP);
	assert_int_equal(path_open(d, span_str("a/../a"), O_RDONLY, 0), -EINVAL);
	assert_int_equal(path_mkdirs(d, span_str("out/x"), 0755), -ENOTDIR);

	/* longer than PATH_MAX: 40 names of 200 bytes */
	char *deep = malloc(41 * 201);
	for (int i = 0; i < 40; i++) {
		memset(deep + i * 201, 'x', 200);
		deep[i * 201 + 200] = '/';
	}
	struct span s = span_of(deep, 40 * 201 - 1);
	AUTO_CLOSE int dd = path_mkdirs(d, s, 0755);
	assert_true(dd >= 0);
	AUTO_CLOSE int again = path_open(d, s, O_RDONLY | O_DIRECTORY, 0);
	assert_true(again >= 0);
	struct stat a, b;
	assert_int_equal(fstat(dd, &a) | fstat(again, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	free(deep);

	assert_int_equal(path_remove_tree(AT_FDCWD, dir), 0);
	assert_int_equal(access(dir, F_OK), -1);
	assert_int_equal(access("/etc/passwd", F_OK), 0);
}

/* As a user whose own group has @gid: what a directory of @mode comes to. -1: refused. */
static int own_dir(const char *top, uid_t uid, gid_t gid, mode_t mode)
{
	AUTO_FREE char *dir = xasprintf("%s/own-%u-%o", top, (unsigned)gid, (unsigned)mode);
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct err e = { 0 };
		struct stat st;
		int fd = -1;

		if (geteuid() == 0 &&
		    (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0))
			_exit(1);
		if (mkdir(dir, 0700) < 0 || chmod(dir, mode) < 0)
			_exit(1);
		if (path_own_dir(dir, &fd, &e) < 0)
			_exit(strstr(e.text, "others may write") ? 2 : 1);
		_exit(fstat(fd, &st) == 0 && !(st.st_mode & 022) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
	return WEXITSTATUS(status) ? -1 : 0;
}

static void test_own_dir(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-test-XXXXXX";
	bool root = geteuid() == 0;
	uid_t uid = root ? 4711 : geteuid();

	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0777), 0);
	gid_t gid = root ? uid : getegid();
	assert_int_equal(own_dir(dir, uid, gid, 0700), 0);
	assert_int_equal(own_dir(dir, uid, gid, 0755), 0);
	assert_int_equal(own_dir(dir, uid, gid, 0777), -1);
	assert_int_equal(own_dir(dir, uid, gid, 0702), -1);
	/* the group of this user alone, and one that others may be in */
	if (gid == uid)
		assert_int_equal(own_dir(dir, uid, gid, 0775), 0);
	if (root)
		assert_int_equal(own_dir(dir, uid, 100, 0775), -1);
	assert_int_equal(path_remove_tree(AT_FDCWD, dir), 0);
}

/* Which of the directories has a file "x" in it, after what was done. */
static bool has_x(int dir, const char *name)
{
	AUTO_FREE char *path = xasprintf("%s/x", name);

	return faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* In the directory of the test, on a kernel with or without flags. 0, or the line that is wrong. */
static int rename_cases(int d)
{
#define IS(x)                            \
	do {                             \
		if (!(x))                \
			return __LINE__; \
	} while (0)
	IS(mkdirat(d, "a", 0700) == 0 && mkdirat(d, "b", 0700) == 0);
	AUTO_CLOSE int fd = openat(d, "a/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	AUTO_CLOSE int file = openat(d, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	IS(fd >= 0 && file >= 0 && symlinkat("b", d, "l") == 0);
	IS(path_rename_new(d, "a", d, "b") == -EEXIST && has_x(d, "a"));
	IS(path_rename_new(d, "b", d, "a") == -EEXIST && has_x(d, "a"));
	IS(path_rename_new(d, "a", d, "f") == -EEXIST && has_x(d, "a"));
	IS(path_rename_new(d, "a", d, "l") == -EEXIST && has_x(d, "a"));
	IS(path_rename_new(d, "f", d, "g") == -ENOTDIR);
	IS(path_rename_new(d, "l", d, "g") == -ENOTDIR);
	IS(path_rename_new(d, "none", d, "g") == -ENOENT);
	IS(path_rename_new(d, "a", d, "c") == 0 && has_x(d, "c") && !has_x(d, "a"));
	IS(path_exchange_dirs(d, "c", "b") == 0 && has_x(d, "b") && !has_x(d, "c"));
	IS(path_exchange_dirs(d, "c", "none") == -ENOENT && faccessat(d, "c", F_OK, 0) == 0);
	IS(path_remove_tree(d, "b") == 0 && path_remove_tree(d, "c") == 0);
	IS(unlinkat(d, "f", 0) == 0 && unlinkat(d, "l", 0) == 0);
#undef IS
	return 0;
}

static void test_rename(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-rename-XXXXXX";

	assert_non_null(mkdtemp(dir));
	int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status;
	assert_int_equal(rename_cases(d), 0);
	pid_t pid = fork();
	if (pid == 0) {
		no_rename_flags();
		int line = rename_cases(d);
		if (line)
			(void)fprintf(stderr, "without flags: line %d\n", line);
		_exit(line != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	(void)close(d);
	assert_int_equal(rmdir(dir), 0); /* nothing is left */
}

static void test_proc(void **state UNUSED)
{
	int p[2];
	struct err e = { 0 };
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	const char *const argv[] = { "sh", "-c",
		                     "echo hi >&7; ls /proc/self/fd | wc -l >&7; exit 7", NULL };
	const char *const envp[] = { "PATH=/usr/bin:/bin", NULL };
	struct proc_fd fds[] = { { .from = p[1], .to = 7 } };
	struct proc_spec s = {
		.path = "/bin/sh", .argv = argv, .envp = envp, .fds = fds, .n_fds = 1
	};
	struct proc child;
	assert_int_equal(proc_spawn(&child, &s, &e), 0);
	(void)close(p[1]);
	char out[16] = { 0 };
	assert_int_equal(fd_read_exact(p[0], out, 5), 0);
	assert_string_equal(out, "hi\n5\n"); /* 0 1 2 7, and ls's own */
	int st = 0;
	assert_int_equal(proc_wait(&child, 10000, &st), 0);
	assert_int_equal(proc_shell_status(st), 7);
	(void)close(p[0]);

	s.path = "/usr/bin/no-such-program";
	assert_int_equal(proc_spawn(&child, &s, &e), -ENOENT);
	const char *const sl[] = { "sleep", "1000", NULL };
	s = (struct proc_spec){ .path = "/bin/sleep", .argv = sl };
	assert_int_equal(proc_spawn(&child, &s, &e), 0);
	assert_int_equal(proc_wait(&child, 10, &st), -ETIMEDOUT);
	proc_end(&child, 5000);
	assert_int_equal(child.pidfd, -1);
}

static void test_fd_pass(void **state UNUSED)
{
	int sv[2], in[2] = { -1, -1 };
	size_t n = 0;
	char b[8];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	int out[3] = { 0, 1, 2 };
	assert_int_equal(fd_send(sv[0], "x", 1, out, 2), 0);
	assert_int_equal(fd_recv(sv[1], b, sizeof(b), in, 2, &n), 1);
	assert_int_equal(n, 2);
	assert_int_equal(fcntl(in[0], F_GETFD), FD_CLOEXEC);
	(void)close(in[0]);
	(void)close(in[1]);
	assert_int_equal(fd_send(sv[0], "x", 1, out, 3), 0);
	assert_int_equal(fd_recv(sv[1], b, sizeof(b), in, 2, &n), -EPROTO);
	(void)close(sv[0]);
	assert_int_equal(fd_recv(sv[1], b, sizeof(b), in, 2, &n), 0);
	(void)close(sv[1]);
}

static void test_hash(void **state UNUSED)
{
	struct hash h;
	char hex[HASH_HEX_BYTES];
	/* BLAKE2b-256 of "abc": the vector that b2sum -l 256 prints */
	hash_bytes(&h, "abc", 3);
	hash_hex(hex, &h);
	assert_string_equal(hex,
	                    "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
	struct hash back = { 0 };
	assert_int_equal(hash_parse(&back, hex), 0);
	assert_true(hash_eq(&h, &back));
	hex[0] = 'B';
	assert_int_equal(hash_parse(&back, hex), -EINVAL);
	assert_int_equal(hash_parse(&back, hex + 1), -EINVAL);
	assert_int_equal(hash_parse(&back, ""), -EINVAL);

	struct sha256_state s256;
	uint8_t sum[SHA256_BYTES];
	sha256_init(&s256);
	sha256_update(&s256, "a", 1);
	sha256_update(&s256, "bc", 2);
	sha256_final(&s256, sum);
	sha256_hex(hex, sum); /* FIPS 180-4, example "abc" */
	assert_string_equal(hex,
	                    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_err),       cmocka_unit_test(test_cursor),
		cmocka_unit_test(test_vis),       cmocka_unit_test(test_path_check),
		cmocka_unit_test(test_path_walk), cmocka_unit_test(test_own_dir),
		cmocka_unit_test(test_proc),      cmocka_unit_test(test_fd_pass),
		cmocka_unit_test(test_hash),      cmocka_unit_test(test_rename),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
