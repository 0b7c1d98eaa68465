/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of images of somebody else, and what a signature policy asks of one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include "image/pull_priv.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIG "sha256:" HEX
#define DIG2 "sha256:f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

#define ANY "[{\"type\":\"insecureAcceptAnything\"}]"
#define NO "[{\"type\":\"reject\"}]"
#define GPG "[{\"type\":\"signedBy\",\"keyType\":\"GPGKeys\",\"keyPath\":\"/k\"}]"
#define SIG "[{\"type\":\"sigstoreSigned\",\"keyPath\":\"/k\"}]"

static void test_policies(void **state)
{
	static const struct {
		const char *why, *ref, *policy;
		int want;
		enum pull_demand demand;
	} t[] = {
		{ "anything", "debian", "{\"default\":" ANY "}", 0, PULL_DEMAND_NOTHING },
		{ "nothing", "debian", "{\"default\":" NO "}", 0, PULL_DEMAND_REJECT },
		{ "signed", "debian", "{\"default\":" GPG "}", 0, PULL_DEMAND_SIGNED },
		{ "a kind that is newer", "debian", "{\"default\":[{\"type\":\"quantum\"}]}", 0,
		  PULL_DEMAND_SIGNED },
		{ "all must hold", "debian",
		  "{\"default\":[{\"type\":\"insecureAcceptAnything\"},{\"type\":\"reject\"}]}", 0,
		  PULL_DEMAND_REJECT },
		{ "the repository before its host", "ghcr.io/a/b",
		  "{\"default\":" NO ",\"transports\":{\"docker\":{\"ghcr.io\":" ANY
		  ",\"ghcr.io/a/b\":" SIG "}}}",
		  0, PULL_DEMAND_SIGNED },
		{ "what lies above it", "ghcr.io/a/b",
		  "{\"default\":" NO ",\"transports\":{\"docker\":{\"ghcr.io/a\":" GPG "}}}", 0,
		  PULL_DEMAND_SIGNED },
		{ "not another with the same beginning", "ghcr.io/ab",
		  "{\"default\":" NO ",\"transports\":{\"docker\":{\"ghcr.io/a\":" GPG "}}}", 0,
		  PULL_DEMAND_REJECT },
		{ "the host, with its port", "h.x:5000/a",
		  "{\"default\":" ANY ",\"transports\":{\"docker\":{\"h.x:5000\":" GPG "}}}", 0,
		  PULL_DEMAND_SIGNED },
		{ "a wildcard", "a.b.example/x",
		  "{\"default\":" ANY ",\"transports\":{\"docker\":{\"*.example\":" GPG "}}}", 0,
		  PULL_DEMAND_SIGNED },
		{ "the nearest wildcard", "a.b.example/x",
		  "{\"default\":" ANY ",\"transports\":{\"docker\":{\"*.example\":" NO
		  ",\"*.b.example\":" GPG "}}}",
		  0, PULL_DEMAND_SIGNED },
		{ "the transport's own default", "debian",
		  "{\"default\":" NO ",\"transports\":{\"docker\":{\"\":" ANY "}}}", 0,
		  PULL_DEMAND_NOTHING },
		{ "another transport", "debian",
		  "{\"default\":" ANY ",\"transports\":{\"oci\":{\"\":" NO "}}}", 0,
		  PULL_DEMAND_NOTHING },
		{ "a layout below a folder", "oci:/a/b/c:v1",
		  "{\"default\":" NO ",\"transports\":{\"oci\":{\"/a/b\":" ANY "}}}", 0,
		  PULL_DEMAND_NOTHING },
		{ "a rule for the tag", "debian:13",
		  "{\"default\":" ANY
		  ",\"transports\":{\"docker\":{\"docker.io/library/debian:13\":" GPG "}}}",
		  0, PULL_DEMAND_BY_TAG },
		{ "one that refuses it", "debian:13",
		  "{\"default\":" ANY
		  ",\"transports\":{\"docker\":{\"docker.io/library/debian:13\":" NO "}}}",
		  0, PULL_DEMAND_REJECT },
		{ "of another tag", "debian:12",
		  "{\"default\":" ANY
		  ",\"transports\":{\"docker\":{\"docker.io/library/debian:13\":" NO "}}}",
		  0, PULL_DEMAND_NOTHING },
		{ "all spellings: the port", "GHCR.io:443/a/b:x",
		  "{\"default\":" ANY ",\"transports\":{\"docker\":{\"ghcr.io/a/b\":" GPG "}}}", 0,
		  PULL_DEMAND_SIGNED },
		{ "all spellings: docker.io", "index.docker.io/debian",
		  "{\"default\":" ANY
		  ",\"transports\":{\"docker\":{\"docker.io/library/debian\":" GPG "}}}",
		  0, PULL_DEMAND_SIGNED },
		{ "an empty list", "debian", "{\"default\":[]}", -EBADMSG, 0 },
		{ "no default", "debian", "{}", -EBADMSG, 0 },
		{ "no list", "debian", "{\"default\":\"reject\"}", -EBADMSG, 0 },
		{ "no type", "debian", "{\"default\":[{}]}", -EBADMSG, 0 },
		{ "twice the same key", "debian", "{\"default\":" NO ",\"default\":" ANY "}",
		  -EBADMSG, 0 },
		{ "no JSON", "debian", "{", -EBADMSG, 0 },
		{ "nothing at all", "debian", "", -EBADMSG, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		enum pull_demand d = (enum pull_demand)99;
		struct image_ref ref;
		assert_int_equal(ref_parse(&ref, t[i].ref, "/", NULL), 0);
		int r = pull_policy_demand(t[i].policy, strlen(t[i].policy), &ref, &d);
		if (r != t[i].want || (r == 0 && d != t[i].demand))
			fail_msg("%s: %d, %d", t[i].why, r, (int)d);
	}
}

static void test_entries(void **state)
{
	struct pull_entry e = { .ref = "docker://h/x:1",
		                .digest = DIG,
		                .vouched = PULL_BY_COSIGN,
		                .seen_s = 77,
		                .was = DIG2 },
			  back;
	AUTO_FREE char *json = NULL;
	static const char *const bad[] = {
		"",
		"{}",
		"[]",
		"{\"schema\":2,\"ref\":\"a\",\"digest\":\"" DIG
		"\",\"asked\":1,\"vouched\":\"nobody\"}",
		"{\"schema\":1,\"ref\":\"a\",\"digest\":\"sha256:0\",\"asked\":1,\"vouched\":"
		"\"nobody\"}",
		"{\"schema\":1,\"ref\":\"a\",\"digest\":\"" DIG
		"\",\"asked\":-1,\"vouched\":\"nobody\"}",
		"{\"schema\":1,\"ref\":\"a\",\"digest\":\"" DIG
		"\",\"asked\":1,\"vouched\":\"me\"}",
		"{\"schema\":1,\"ref\":\"a\",\"digest\":\"" DIG "\",\"asked\":1}",
		"{\"schema\":1,\"ref\":\"a\",\"digest\":\"" DIG
		"\",\"asked\":1,\"vouched\":\"nobody\",\"moved_from\":\"x\"}",
	};

	(void)state;
	assert_int_equal(pull_entry_format(&e, &json), 0);
	assert_int_equal(pull_entry_parse(&back, json, strlen(json)), 0);
	assert_string_equal(back.ref, e.ref);
	assert_string_equal(back.digest, DIG);
	assert_string_equal(back.was, DIG2);
	assert_true(back.vouched == PULL_BY_COSIGN && back.seen_s == 77);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (pull_entry_parse(&back, bad[i], strlen(bad[i])) != -EBADMSG)
			fail_msg("accepted: %s", bad[i]);
	}
}

static void test_lock_file(void **state)
{
	static const char old[] = "{\"schema\": 1, \"npm\": {\"demo@1.0.0\": \"sha512-x\"}}";
	AUTO_FREE char *one = NULL, *two = NULL, *same = NULL, *first = NULL;
	char digest[REF_DIGEST_BYTES];

	(void)state;
	assert_int_equal(pull_lock_get(old, strlen(old), "docker://h/x:1", digest), 0);
	assert_int_equal(pull_lock_put(old, strlen(old), "docker://h/x:1", DIG, &one), 0);
	/* what is there of packages stays */
	assert_non_null(strstr(one, "\"demo@1.0.0\": \"sha512-x\""));
	assert_int_equal(pull_lock_get(one, strlen(one), "docker://h/x:1", digest), 1);
	assert_string_equal(digest, DIG);
	assert_int_equal(pull_lock_put(one, strlen(one), "docker://h/x:1", DIG, &same), 0);
	assert_null(same);
	assert_int_equal(pull_lock_put(one, strlen(one), "docker://h/x:1", DIG2, &two), 0);
	assert_int_equal(pull_lock_get(two, strlen(two), "docker://h/x:1", digest), 1);
	assert_string_equal(digest, DIG2);
	/* a new file is one for packages, too */
	assert_int_equal(pull_lock_put(NULL, 0, "docker://h/x:1", DIG, &first), 0);
	char none[1];
	assert_int_equal(image_lock_get(first, strlen(first), "demo", "1.0.0", none), 0);
	static const char *const bad[] = { "{}", "{\"schema\": 1, \"oci\": []}", "{\"schema\": 2}",
		                           "x",
		                           "{\"schema\": 1, \"oci\": {\"docker://h/x:1\": 3}}" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (pull_lock_get(bad[i], strlen(bad[i]), "docker://h/x:1", digest) != -EBADMSG)
			fail_msg("accepted: %s", bad[i]);
	}
}

static void test_images(void **state)
{
	static const char text[] =
		"{\"schema\":1,\"format\":1,\"digest\":\"" DIG
		"\",\"built\":5,\"last_used\":6,\"files\":{\"rootfs.erofs\":{\"size\":4096,"
		"\"blake2b\":\"" HEX "\"}},\"config\":{\"user\":\"web\",\"workdir\":\"/w\",\"os\":"
		"\"linux\",\"arch\":\"amd64\",\"env\":[\"A=b\"],\"entrypoint\":[\"/"
		"e\",\"f\"],\"cmd\":"
		"[],\"labels\":{\"l\":\"v\"}}}";
	AUTO_FREE char *json = NULL, *again = NULL;
	struct pull_info i = { 0 }, back = { 0 };

	(void)state;
	assert_int_equal(pull_info_parse(&i, text, strlen(text)), 0);
	assert_string_equal(i.config.user, "web");
	assert_string_equal(i.config.entrypoint[1], "f");
	assert_null(i.config.cmd[0]);
	assert_int_equal(i.config.n_labels, 1);
	assert_true(i.size == 4096 && i.built_s == 5 && i.used_s == 6);
	assert_int_equal(pull_info_format(&i, &json), 0);
	assert_int_equal(pull_info_parse(&back, json, strlen(json)), 0);
	assert_int_equal(pull_info_format(&back, &again), 0);
	assert_string_equal(json, again);
	pull_info_fini(&i);
	pull_info_fini(&back);
	/* each part missing or of another kind, in turn */
	static const char *const cut[] = { "\"format\":1,",     "\"built\":5,",
		                           "\"user\":\"web\",", "\"env\":[\"A=b\"],",
		                           "\"size\":4096,",    "\"labels\":{\"l\":\"v\"}" };
	for (size_t k = 0; k < ARRAY_LEN(cut); k++) {
		AUTO_FREE char *less = xstrdup(text);
		char *at = strstr(less, cut[k]);
		memset(at, ' ', strlen(cut[k]));
		assert_int_equal(pull_info_parse(&back, less, strlen(less)), -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(test_policies),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_lock_file),
		cmocka_unit_test(test_images),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
