/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "term/progress.h"
#include "term/prompt.h"
#include "term/screen.h"
#include "term/tty.h"

static void test_numbers(void **state UNUSED)
{
	char s[TERM_FMT_BYTES];
	static const struct {
		uint64_t v;
		const char *want;
	} size[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.0 KiB" },
		{ 1536, "1.5 KiB" },
		{ 10188, "9.9 KiB" },
		{ 10189, "10 KiB" },
		{ 10235, "10 KiB" },
		{ 612ull << 20, "612 MiB" },
		{ 1181116006, "1.1 GiB" },
		{ (1ull << 30) - 1, "1.0 GiB" },
		{ (1ull << 20) - 1, "1.0 MiB" },
		{ UINT64_MAX, "16 EiB" },
	};
	static const struct {
		uint64_t ms;
		const char *want;
	} took[] = {
		{ 0, "0.00 s" },          { 410, "0.41 s" },          { 9994, "9.99 s" },
		{ 9995, "10 s" },         { 59499, "59 s" },          { 59500, "1 min 0 s" },
		{ 723000, "12 min 3 s" }, { 3599499, "59 min 59 s" }, { 3600000, "1 h 0 min" },
		{ 90000000, "1 d 1 h" },
	};
	static const struct {
		uint64_t v;
		const char *want;
	} age[] = { { 0, "0 s" },    { 59, "59 s" },    { 60, "1 min" },  { 3599, "59 min" },
		    { 7200, "2 h" }, { 86399, "23 h" }, { 86400, "1 d" }, { 86400 * 3, "3 d" } };
	static const struct {
		uint64_t v;
		const char *want;
	} count[] = { { 0, "0" },
		      { 999, "999" },
		      { 1000, "1 000" },
		      { 84211, "84 211" },
		      { UINT64_MAX, "18 446 744 073 709 551 615" } };

	for (size_t i = 0; i < ARRAY_LEN(size); i++)
		assert_string_equal(term_fmt_size(s, size[i].v), size[i].want);
	for (size_t i = 0; i < ARRAY_LEN(took); i++)
		assert_string_equal(term_fmt_duration(s, took[i].ms * 1000000), took[i].want);
	for (size_t i = 0; i < ARRAY_LEN(age); i++)
		assert_string_equal(term_fmt_age(s, age[i].v), age[i].want);
	for (size_t i = 0; i < ARRAY_LEN(count); i++)
		assert_string_equal(term_fmt_count(s, count[i].v), count[i].want);
}

static void test_cut(void **state UNUSED)
{
	static const struct {
		const char *in, *want;
		size_t cols;
		bool pad;
	} t[] = {
		{ "abc", "abc", 3, false },
		{ "abcd", "ab…", 3, false },
		{ "abc", "abc  ", 5, true },
		{ "abc", "", 0, true },
		{ "abc", "…", 1, true },
		{ "\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad\xe6\x96\x87", 4, false },
		{ "\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad…", 3, false },
		{ "\xe4\xb8\xad\xe6\x96\x87", "… ", 2, true }, /* half of a wide one is none */
		{ "e\xcc\x81x", "e\xcc\x81x", 2, false },
		{ "\033[31mx", "\\e[31mx", 9, false },
		{ "a\nb", "a\\nb", 9, false },
		{ "\xff", "\\xff", 4, false },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };

		assert_int_equal(term_put_cut(&b, span_str(t[i].in), t[i].cols, t[i].pad), 0);
		assert_int_equal(buf_put(&b, "", 1), 0);
		assert_string_equal((char *)b.p, t[i].want);
	}
}

static void test_table(void **state UNUSED)
{
	static const struct term_col cols[] = { { "SESSION", TERM_LEFT, false },
		                                { "PROJECT", TERM_LEFT, true },
		                                { "MEM", TERM_RIGHT, false },
		                                { "CHANGES", TERM_LEFT, false } };
	static const char *const a[] = { "claude@refactor", "~/code/a-long-name", "612 MiB", "7" };
	static const char *const b[] = { "\033[2Jx", "\xe4\xb8\xad", NULL, "" };
	static const char wide[] = "SESSION          PROJECT                 MEM  CHANGES\n"
				   "claude@refactor  ~/code/a-long-name  612 MiB  7\n"
				   "\\e[2Jx           \xe4\xb8\xad                        -\n";
	static const char narrow[] = "SESSION          PROJECT         MEM  CHANGES\n"
				     "claude@refactor  ~/code/a-…  612 MiB  7\n"
				     "\\e[2Jx           \xe4\xb8\xad                -\n";
	struct term_table t;
	AUTO_BUF struct buf out = { 0 };

	term_table_init(&t, cols, ARRAY_LEN(cols));
	term_table_row(&t, a);
	term_table_row(&t, b);
	assert_int_equal(term_table_put(&t, 0, &out), 0);
	assert_int_equal(buf_put(&out, "", 1), 0);
	assert_string_equal((char *)out.p, wide);
	out.len = 0;
	assert_int_equal(term_table_put(&t, 45, &out), 0);
	assert_int_equal(buf_put(&out, "", 1), 0);
	assert_string_equal((char *)out.p, narrow);
	/* too narrow for anything: it still ends, with the columns that may not shrink whole */
	out.len = 0;
	assert_int_equal(term_table_put(&t, 1, &out), 0);
	term_table_fini(&t);
	term_table_fini(&t);
}

static uint64_t fake_now;

static uint64_t fake_clock(void *arg UNUSED)
{
	return fake_now;
}

static char *all_of(int fd)
{
	char *text = NULL;
	size_t len = 0;

	assert_true(lseek(fd, 0, SEEK_SET) == 0);
	assert_int_equal(fd_read_file(fd, 1 << 16, &text, &len), 0);
	return text;
}

static void test_progress_plain(void **state UNUSED)
{
	AUTO_CLOSE int fd = fd_memfd("progress");
	struct term_progress p;

	fake_now = 1;
	term_progress_init(&p, fd, fake_clock, NULL);
	assert_false(p.redraw);
	term_progress_phase(&p, "scan %s", "\033]0;x\a");
	term_progress_detail(&p, "12 files");
	term_progress_phase(&p, "scan %s", "\033]0;x\a"); /* still: no line of its own */
	fake_now += 299999999;
	term_progress_tick(&p);
	term_progress_phase(&p, "boot");
	fake_now += 300000000;
	term_progress_line(&p, "a warning");
	term_progress_end(&p);
	term_progress_end(&p);
	AUTO_FREE char *text = all_of(fd);
	assert_string_equal(text, "scan \\e]0;x\\x07\nboot\na warning\nboot: 0.30 s\n");
	assert_int_equal(p.n_phases, 2);
	assert_int_equal(p.phase[0].took_ns, 299999999);
	/* more phases than are remembered */
	for (int i = 0; i < 100; i++)
		term_progress_phase(&p, "n %d", i);
	term_progress_end(&p);
	assert_int_equal(p.n_phases, TERM_PROGRESS_PHASES_MAX);
}

static void test_progress_redraw(void **state UNUSED)
{
	AUTO_CLOSE int fd = fd_memfd("progress");
	struct term_progress p;

	fake_now = 1;
	term_progress_init(&p, fd, fake_clock, NULL);
	p.redraw = true; /* as on a terminal of 80 columns */
	term_progress_phase(&p, "boot");
	term_progress_detail(&p, "early"); /* too soon after the last drawing */
	fake_now += 310000000;
	term_progress_tick(&p);
	term_progress_line(&p, "a warning");
	term_progress_stop(&p);
	term_progress_stop(&p);
	term_progress_end(&p);
	AUTO_FREE char *text = all_of(fd);
	assert_string_equal(text, "\rboot\033[K"
	                          "\rboot  early  0.31 s\033[K"
	                          "\r\033[K"
	                          "a warning\n"
	                          "\rboot  early  0.31 s\033[K"
	                          "\r\033[K");
}

static int ask(struct term_prompt *p, char *out, size_t cap, int timeout_ms)
{
	return term_prompt_ask(p, "", true, timeout_ms, out, cap);
}

static void test_prompt_pipe(void **state UNUSED)
{
	static const char in[] = "y\r\nno\rmaybe\n\r\n\nlast\r\n\nunfinished";
	static const char *const want[] = { "y", "no", "maybe", "", "", "last", "" };
	int fd[2];
	char out[16];

	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	assert_int_equal(fd_write_all(fd[1], in, strlen(in)), 0);
	assert_int_equal(close(fd[1]), 0);
	struct term_prompt p = { .in_fd = fd[0], .out_fd = -1, .wake_fd = -1 };
	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		assert_int_equal(ask(&p, out, sizeof(out), 1000), (int)strlen(want[i]));
		assert_string_equal(out, want[i]);
	}
	assert_int_equal(ask(&p, out, sizeof(out), 1000), -ENODATA);
	assert_int_equal(ask(&p, out, sizeof(out), 1000), -ENODATA);
	assert_int_equal(close(fd[0]), 0);
}

static void test_prompt_bounds(void **state UNUSED)
{
	static const struct {
		const char *path;
		int want;
	} t[] = { { "/dev/zero", -EINVAL }, { "/dev/null", -ENODATA } };
	char out[4] = "old";
	int fd[2], wake[2];

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_CLOSE int in = open(t[i].path, O_RDONLY | O_CLOEXEC);
		struct term_prompt p = { .in_fd = in, .out_fd = -1, .wake_fd = -1 };

		assert_false(term_is_tty(in));
		assert_int_equal(ask(&p, out, sizeof(out), 1000), t[i].want);
		assert_string_equal(out, "old");
	}
	assert_int_equal(pipe2(fd, O_CLOEXEC) | pipe2(wake, O_CLOEXEC), 0);
	struct term_prompt p = { .in_fd = fd[0], .out_fd = -1, .wake_fd = wake[0] };
	/* room for three: one below, the limit, one above */
	assert_int_equal(fd_write_all(fd[1], "ab\nabc\nabcd\n", 12), 0);
	assert_int_equal(ask(&p, out, sizeof(out), 1000), 2);
	assert_int_equal(ask(&p, out, sizeof(out), 1000), 3);
	assert_int_equal(ask(&p, out, sizeof(out), 1000), -EMSGSIZE);
	assert_string_equal(out, "abc");
	assert_int_equal(ask(&p, out, sizeof(out), 1000), 0); /* the LF of the long line */
	assert_int_equal(ask(&p, out, sizeof(out), 20), -ETIMEDOUT);
	static volatile sig_atomic_t stop = 1;
	p.stop = &stop;
	assert_int_equal(ask(&p, out, sizeof(out), 1000), -EINTR);
	p.stop = NULL;
	assert_int_equal(fd_write_all(wake[1], "x", 1), 0);
	assert_int_equal(ask(&p, out, sizeof(out), 1000), -EINTR);
	assert_int_equal(close(fd[0]) | close(fd[1]) | close(wake[0]) | close(wake[1]), 0);
	p.wake_fd = -1;
	assert_int_equal(ask(&p, out, sizeof(out), 1000), -EBADF);
}

static void test_not_a_terminal(void **state UNUSED)
{
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct term_tty_spec spec = { .in_fd = null, .out_fd = -1 };
	struct term_size s = term_tty_size(null);

	assert_int_equal(term_tty_enter(&spec, NULL), -ENOTTY);
	assert_false(term_tty_entered());
	term_tty_leave(50);
	assert_int_equal(s.cols, 80);
	assert_int_equal(s.rows, 24);
	assert_false(term_can_redraw(null));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),         cmocka_unit_test(test_cut),
		cmocka_unit_test(test_table),           cmocka_unit_test(test_progress_plain),
		cmocka_unit_test(test_progress_redraw), cmocka_unit_test(test_prompt_pipe),
		cmocka_unit_test(test_prompt_bounds),   cmocka_unit_test(test_not_a_terminal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
