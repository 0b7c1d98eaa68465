/* SPDX-License-Identifier: Apache-2.0 */
/* USER of an image against that image's own passwd and group. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/util.h"
#include "guest/account.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
			     "short:x:1\n"
			     "late:x:7:8:one:/late:/bin/sh:more\n"
			     "big:x:4294967296:1::/big:/bin/sh\n"
			     "web:x:33:44::/srv/web:/bin/zsh\n"
			     "web:x:34:44::/second:/bin/sh\n"
			     "node:x:1000:1001::/home/node:/bin/bash\n"
			     "nohome:x:50:50:::\n"
			     "relative:x:51:50::home:sh\n"
			     "1234:x:60:60::/number:/bin/sh\n"
			     "ctl:x:61:60::/a\x1b]b:/bin/sh\n"
			     "last:x:70:70::/last:/bin/sh";
static const char group[] = "root:x:0:web\n"
			    "web:x:44:\n"
			    "bad:x:x:web\n"
			    "extra:x:55:a,web,b\n"
			    "other:x:56:webb,we\n"
			    "node:x:1001:\n";

static void test_users(void **state)
{
	static const struct {
		const char *why, *user;
		int want;
		uint32_t uid, gid;
		const char *name, *home, *shell;
		size_t groups;
		bool listed, was_root;
	} t[] = {
		{ "nothing said: uid 1000 of the image", "", 0, 1000, 1001, "node", "/home/node",
		  "/bin/bash", 0, true, false },
		{ "a name, and the groups that name it", "web", 0, 33, 44, "web", "/srv/web",
		  "/bin/zsh", 1, true, false },
		{ "a number that is listed", "33", 0, 33, 44, "web", "/srv/web", "/bin/zsh", 1,
		  true, false },
		{ "a group said: no others", "web:extra", 0, 33, 55, "web", "/srv/web", "/bin/zsh",
		  0, true, false },
		{ "a group by number", "web:77", 0, 33, 77, "web", "/srv/web", "/bin/zsh", 0, true,
		  false },
		{ "an empty group is none", "web:", 0, 33, 44, "web", "/srv/web", "/bin/zsh", 1,
		  true, false },
		{ "a number that is not listed", "4000", 0, 4000, 0, "user", "/home/agent",
		  "/bin/sh", 0, false, false },
		{ "a name that looks like a number", "1234", 0, 60, 60, "1234", "/number",
		  "/bin/sh", 0, true, false },
		{ "the last line has no end", "last", 0, 70, 70, "last", "/last", "/bin/sh", 0,
		  true, false },
		{ "no home and shell said", "nohome", 0, 50, 50, "nohome", "/home/agent", "/bin/sh",
		  0, true, false },
		{ "relative ones count as none", "relative", 0, 51, 50, "relative", "/home/agent",
		  "/bin/sh", 0, true, false },
		{ "a home with a control character", "ctl", 0, 61, 60, "ctl", "/home/agent",
		  "/bin/sh", 0, true, false },
		{ "root gets the agent", "root", 0, 1000, 1001, "node", "/home/node", "/bin/bash",
		  0, true, true },
		{ "root by number", "0", 0, 1000, 1001, "node", "/home/node", "/bin/bash", 0, true,
		  true },
		{ "root with a group", "0:web", 0, 1000, 1001, "node", "/home/node", "/bin/bash", 0,
		  true, true },
		{ "the largest", "2147483647", 0, 2147483647, 0, "user", "/home/agent", "/bin/sh",
		  0, false, false },
		{ "one over it is a name", "2147483648", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false,
		  false },
		{ "no such name", "nobody", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false, false },
		{ "no such group", "web:nobody", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false, false },
		{ "a line cut short", "short", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false, false },
		{ "a line with too much", "late", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false,
		  false },
		{ "a uid beyond 32 bits", "big", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false, false },
		{ "only a group", ":web", -EINVAL, 0, 0, NULL, NULL, NULL, 0, false, false },
		{ "a minus", "-1", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false, false },
		{ "two colons", "web:x:y", -ENOENT, 0, 0, NULL, NULL, NULL, 0, false, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct account a = { .uid = 99 };
		struct err e = { 0 };
		int r = account_find(&a, span_str(passwd), span_str(group), span_str(t[i].user),
		                     &e);
		if (r != t[i].want)
			fail_msg("%s: %d %s", t[i].why, r, e.text);
		if (r < 0) {
			assert_int_equal(a.uid, 99);
			assert_true(e.text[0]);
			continue;
		}
		if (a.uid != t[i].uid || a.gid != t[i].gid || strcmp(a.name, t[i].name) != 0 ||
		    strcmp(a.home, t[i].home) != 0 || strcmp(a.shell, t[i].shell) != 0 ||
		    a.n_groups != t[i].groups || a.listed != t[i].listed ||
		    a.was_root != t[i].was_root)
			fail_msg("%s: %u:%u %s %s %s %zu", t[i].why, a.uid, a.gid, a.name, a.home,
			         a.shell, a.n_groups);
	}
}

static void test_empty_files(void **state)
{
	static const struct span none;
	struct account a;

	(void)state;
	assert_int_equal(account_find(&a, none, none, none, NULL), 0);
	assert_int_equal(a.uid, 1000);
	assert_string_equal(a.name, "agent");
	assert_string_equal(a.home, "/home/agent");
	assert_false(a.listed || a.group_there || a.was_root);
	assert_int_equal(account_find(&a, none, none, span_str("root"), NULL), 0);
	assert_true(a.uid == 1000 && a.was_root);
	assert_int_equal(account_find(&a, none, none, span_str("1000"), NULL), 0);
	assert_true(a.gid == 1000 && strcmp(a.name, "agent") == 0);
	assert_int_equal(account_find(&a, none, none, span_str("5:6"), NULL), 0);
	assert_true(a.uid == 5 && a.gid == 6);
	assert_true(account_has_name(span_str(passwd), "short"));
	assert_false(account_has_name(span_str(passwd), "shor"));
	assert_false(account_has_name(none, "x"));
}

static void test_many_groups(void **state)
{
	struct buf b = { 0 };
	struct account a;

	(void)state;
	for (int i = 0; i < ACCOUNT_GROUPS_MAX + 1; i++)
		assert_int_equal(buf_printf(&b, "g%d:x:%d:web\n", i, 2000 + i), 0);
	assert_int_equal(
		account_find(&a, span_str(passwd), span_of(b.p, b.len), span_str("web"), NULL), 0);
	assert_int_equal(a.n_groups, ACCOUNT_GROUPS_MAX);
	buf_fini(&b);

	/* a name at its limit, and one over it */
	for (int over = 0; over <= 1; over++) {
		char name[ACCOUNT_NAME_MAX + 2] = { 0 };
		memset(name, 'a', (size_t)(ACCOUNT_NAME_MAX + over));
		AUTO_FREE char *line = xasprintf("%s:x:80:80::/x:/bin/sh\n", name);
		int r = account_find(&a, span_str(line), span_str(""), span_str(name), NULL);
		assert_int_equal(r, over ? -ENOENT : 0);
	}
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_empty_files),
		cmocka_unit_test(test_many_groups),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
