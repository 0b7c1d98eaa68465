/* SPDX-License-Identifier: Apache-2.0 */
/* References of images, what skopeo's words mean, and what a signature policy asks. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/util.h"
#include "image/ref.h"
#include "image/skopeo.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIG "sha256:" HEX

static void test_spellings(void **state)
{
	static const struct {
		const char *why, *text, *want, *shown;
	} t[] = {
		{ "one word", "debian", "docker://docker.io/library/debian:latest",
		  "debian:latest" },
		{ "with a tag", "debian:13", "docker://docker.io/library/debian:13", "debian:13" },
		{ "of a user", "ada/tool", "docker://docker.io/ada/tool:latest",
		  "ada/tool:latest" },
		{ "docker.io said", "docker.io/debian", "docker://docker.io/library/debian:latest",
		  "debian:latest" },
		{ "its other name", "index.docker.io/library/debian",
		  "docker://docker.io/library/debian:latest", "debian:latest" },
		{ "its port", "docker.io:443/debian", "docker://docker.io/library/debian:latest",
		  "debian:latest" },
		{ "a path that looks like a host", "docker.io/localhost/x",
		  "docker://docker.io/localhost/x:latest", "docker.io/localhost/x:latest" },
		{ "one with a dot", "docker.io/a.b/x", "docker://docker.io/a.b/x:latest",
		  "docker.io/a.b/x:latest" },
		{ "deeper than library", "library/a/b", "docker://docker.io/library/a/b:latest",
		  "library/a/b:latest" },
		{ "the name of a source", "docker://oci", "docker://docker.io/library/oci:latest",
		  "docker.io/library/oci:latest" },
		{ "with the scheme", "docker://debian", "docker://docker.io/library/debian:latest",
		  "debian:latest" },
		{ "the scheme in capitals", "DOCKER://debian",
		  "docker://docker.io/library/debian:latest", "debian:latest" },
		{ "a host in capitals", "GHCR.io/a/b", "docker://ghcr.io/a/b:latest",
		  "ghcr.io/a/b:latest" },
		{ "localhost in capitals", "LocalHost/a", "docker://localhost/a:latest",
		  "localhost/a:latest" },
		{ "the usual port, and no dot", "registry:443/a", "docker://registry:443/a:latest",
		  "registry:443/a:latest" },
		{ "the usual port", "ghcr.io:443/a/b:v1", "docker://ghcr.io/a/b:v1",
		  "ghcr.io/a/b:v1" },
		{ "another port", "localhost:5000/a", "docker://localhost:5000/a:latest",
		  "localhost:5000/a:latest" },
		{ "localhost alone", "localhost/a", "docker://localhost/a:latest",
		  "localhost/a:latest" },
		{ "IPv6", "[::1]:5000/a:b", "docker://[::1]:5000/a:b", "[::1]:5000/a:b" },
		{ "a digest", "debian@" DIG, "docker://docker.io/library/debian@" DIG,
		  "debian@" DIG },
		{ "a tag beside it", "debian:13@" DIG, "docker://docker.io/library/debian@" DIG,
		  "debian@" DIG },
		{ "joined parts", "x/a.b_c__d---e:T_.-1", "docker://docker.io/x/a.b_c__d---e:T_.-1",
		  "x/a.b_c__d---e:T_.-1" },
		{ "podman's store", "containers-storage:localhost/x",
		  "containers-storage:localhost/x:latest",
		  "containers-storage:localhost/x:latest" },
		{ "docker", "docker-daemon:x:1", "docker-daemon:docker.io/library/x:1",
		  "docker-daemon:docker.io/library/x:1" },
		{ "a layout", "oci:dir/x", "oci:/cwd/dir/x", "oci:/cwd/dir/x" },
		{ "of an absolute path", "oci:/dir:v1", "oci:/dir:v1", "oci:/dir:v1" },
		{ "its word with a colon", "oci:/d:a.b/c:1", "oci:/d:a.b/c:1", "oci:/d:a.b/c:1" },
		{ "an archive", "oci-archive:x.tar", "oci-archive:/cwd/x.tar",
		  "oci-archive:/cwd/x.tar" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct image_ref r, again;
		struct err e = { 0 };
		if (ref_parse(&r, t[i].text, "/cwd", &e) < 0)
			fail_msg("%s: %s", t[i].why, e.text);
		if (strcmp(r.text, t[i].want) != 0 || strcmp(ref_short(&r), t[i].shown) != 0)
			fail_msg("%s: got %s (%s)", t[i].why, r.text, ref_short(&r));
		assert_int_equal(ref_parse(&again, r.text, "/other", NULL), 0);
		assert_string_equal(again.text, r.text);
		/* what is shown means the same */
		assert_int_equal(ref_parse(&again, ref_short(&r), "/other", NULL), 0);
		assert_string_equal(again.text, r.text);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *why, *text;
	} t[] = {
		{ "nothing", "" },
		{ "an option", "-x" },
		{ "a long one", "--help" },
		{ "an option behind the source", "docker://--help" },
		{ "a blank", "a b" },
		{ "a newline", "debian\n" },
		{ "another line", "debian\nx" },
		{ "an escape", "deb\x1b[2Jian" },
		{ "not ASCII", "d\xc3\xa9"
		               "bian" },
		{ "capitals in a path", "Debian" },
		{ "a host that only capitals show", "Registry/a" },
		{ "capitals behind a host", "ghcr.io/A" },
		{ "two dots", "a/../b" },
		{ "an empty part", "a//b" },
		{ "a slash at the end", "a/" },
		{ "a slash at the start", "/a" },
		{ "the scheme twice", "docker://docker://a" },
		{ "three underscores", "a___b" },
		{ "a dash at the end", "a-" },
		{ "an empty tag", "a:" },
		{ "two tags", "a:b:c" },
		{ "a tag with a dash first", "a:-x" },
		{ "a tag with a slash", "a:b/c" },
		{ "shell words", "a;id" },
		{ "shell again", "$(id)" },
		{ "an empty digest", "a@" },
		{ "a short digest", "a@sha256:0123" },
		{ "a digest in capitals",
		  "a@sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef"
		  "0123456789abcdef" },
		{ "a digit more", "a@" DIG "0" },
		{ "another hash", "a@sha512:" HEX HEX },
		{ "something behind the digest", "a@" DIG "/b" },
		{ "a port of 0", "h:0/a" },
		{ "a port with zeros", "h:0443/a" },
		{ "a port too large", "h:65536/a" },
		{ "a port of letters", "h:x/a" },
		{ "a port that is missing", "h:/a" },
		{ "a host with a dot at the end", "ghcr.io./a" },
		{ "a host with two dots", "ghcr..io/a" },
		{ "a host with a user", "me@ghcr.io/a" },
		{ "a bracket alone", "[::1/a" },
		{ "an empty bracket", "[]/a" },
		{ "https", "https://ghcr.io/a/b" },
		{ "a folder of skopeo's", "dir:/x" },
		{ "docker's archive", "docker-archive:x.tar" },
		{ "a digest in podman's store", "containers-storage:a@" DIG },
		{ "a store of one's own", "containers-storage:[overlay@/x]a" },
		{ "no path", "oci:" },
		{ "no path but a word", "oci::x" },
		{ "a path with a blank", "oci:a b" },
		{ "a path with a control", "oci:a\x07" },
		{ "a word with an option's dash", "oci:a:-x" },
		{ "a word that is empty", "oci:a:" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct image_ref r = { .text = "untouched" };
		struct err e = { 0 };
		if (ref_parse(&r, t[i].text, "/cwd", &e) != -EINVAL || !e.text[0])
			fail_msg("%s: accepted as %s", t[i].why, r.text);
		assert_string_equal(r.text, "untouched");
		for (const char *p = e.text; *p; p++)
			assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
	}
}

/* n letters between two texts */
static char *long_text(const char *before, size_t n, const char *after)
{
	AUTO_FREE char *mid = xcalloc(1, n + 1);

	memset(mid, 'a', n);
	return xasprintf("%s%s%s", before, mid, after);
}

static void test_lengths(void **state)
{
	static const struct {
		const char *why, *before, *after;
		size_t at, below;
	} t[] = {
		{ "a tag", "x:", "", REF_TAG_MAX, REF_TAG_MAX },
		{ "a name, with its host", "h.x/", "", REF_NAME_MAX - 4, REF_NAME_MAX - 4 },
		{ "a name, with docker.io", "ab/", "", REF_NAME_MAX - 13, REF_NAME_MAX - 13 },
		{ "a path", "oci:/", "", REF_PATH_MAX - 1, REF_PATH_MAX - 1 },
		{ "a relative path", "oci:", "", REF_PATH_MAX - 5, REF_PATH_MAX - 5 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct image_ref r;
		for (int over = -1; over <= 1; over++) {
			AUTO_FREE char *s = long_text(t[i].before, t[i].at + (size_t)(over + 1) - 1,
			                              t[i].after);
			int got = ref_parse(&r, s, "/cwd", NULL);
			if ((got == 0) != (over <= 0) || (over > 0 && got != -ENAMETOOLONG))
				fail_msg("%s, %d over: %d", t[i].why, over, got);
		}
	}
	struct image_ref r;
	AUTO_FREE char *huge = long_text("", 1 << 20, "");
	assert_int_equal(ref_parse(&r, huge, "/cwd", NULL), -ENAMETOOLONG);
	AUTO_FREE char *word = long_text("oci:/x:", REF_NAME_MAX, "");
	AUTO_FREE char *over = long_text("oci:/x:", REF_NAME_MAX + 1, "");
	assert_int_equal(ref_parse(&r, word, "/cwd", NULL), 0);
	assert_int_equal(ref_parse(&r, over, "/cwd", NULL), -EINVAL);
}

static void test_agent_names(void **state)
{
	static const struct {
		const char *text, *want;
	} t[] = {
		{ "debian:13", "debian" },           { "ghcr.io/ada/My__x", "" },
		{ "ghcr.io/ada/my__x.y", "my-x-y" }, { "oci:/tmp/Some_Dir", "some-dir" },
		{ "oci:/tmp/---", "run-image" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct image_ref r;
		char name[65], four[5];
		if (ref_parse(&r, t[i].text, "/", NULL) < 0) {
			assert_string_equal(t[i].want, "");
			continue;
		}
		ref_agent(name, sizeof(name), &r);
		assert_string_equal(name, t[i].want);
		ref_agent(four, sizeof(four), &r);
		assert_true(strlen(four) <= 4);
	}
}

static void test_at(void **state)
{
	struct image_ref r;
	char text[REF_TEXT_BYTES];

	(void)state;
	assert_int_equal(ref_parse(&r, "ghcr.io/a:b", "/", NULL), 0);
	ref_at(text, &r, DIG);
	assert_string_equal(text, "docker://ghcr.io/a@" DIG);
	assert_true(ref_looks_so("a:b") && ref_looks_so("a/b") && ref_looks_so("a@b"));
	assert_false(ref_looks_so("base") || ref_looks_so(""));
}

#define FATAL "time=\"2026-01-01T00:00:00Z\" level=fatal msg="

static void test_skopeo_words(void **state)
{
	static const struct {
		const char *why, *said, *words;
		enum skopeo_fault want;
	} t[] = {
		{ "nothing said", "", "", SKOPEO_OTHER },
		{ "a line of its own", "oh\n", "oh", SKOPEO_OTHER },
		{ "the fatal one counts", FATAL "\"x509: a\"\nlater\n", "x509: a", SKOPEO_TLS },
		{ "not a warning", "level=warning msg=\"unauthorized\"\n" FATAL "\"odd\"\n", "odd",
		  SKOPEO_OTHER },
		{ "quotes in it", FATAL "\"a \\\"b\\\" c\"\n", "a \"b\" c", SKOPEO_OTHER },
		{ "line ends in it", FATAL "\"a:\\n\\t* b\\n\"\n", "a: * b ", SKOPEO_OTHER },
		{ "a quote that is missing", FATAL "\"a b", "a b", SKOPEO_OTHER },
		{ "a backslash last", FATAL "\"a\\", "a\\", SKOPEO_OTHER },
		{ "login",
		  FATAL "\"reading manifest 1 in h/x: unauthorized: authentication required\"",
		  "reading manifest 1 in h/x: unauthorized: authentication required",
		  SKOPEO_LOGIN },
		{ "absent",
		  FATAL "\"reading manifest 1 in h/x: manifest unknown: manifest unknown\"", NULL,
		  SKOPEO_ABSENT },
		{ "refused", FATAL "\"dial tcp 127.0.0.1:1: connect: connection refused\"", NULL,
		  SKOPEO_NETWORK },
		{ "no host", FATAL "\"lookup h: no such host\"", NULL, SKOPEO_NETWORK },
		{ "plain http", FATAL "\"http: server gave HTTP response to HTTPS client\"", NULL,
		  SKOPEO_TLS },
		{ "a list without it",
		  FATAL "\"choosing: no image found in manifest list for architecture amd64\"",
		  NULL, SKOPEO_ARCH },
		{ "an index without it",
		  FATAL "\"choosing: no image found in image index for architecture\"", NULL,
		  SKOPEO_ARCH },
		{ "broken",
		  FATAL "\"reading blob sha256:1: Digest did not match, expected a, got b\"", NULL,
		  SKOPEO_DIGEST },
		{ "no signature",
		  FATAL
		  "\"Source image rejected: A signature was required, but no signature exists\"",
		  NULL, SKOPEO_SIGNATURE },
		{ "full", FATAL "\"write /x: no space left on device\"", NULL, SKOPEO_SPACE },
		{ "rate", FATAL "\"toomanyrequests: You have reached\"", NULL, SKOPEO_RATE },
		{ "helper",
		  FATAL "\"error getting credentials - err: exec: \\\"docker-credential-x\\\"\"",
		  NULL, SKOPEO_HELPER },
		{ "daemon",
		  FATAL "\"Cannot connect to the Docker daemon at unix:///var/run/docker.sock\"",
		  NULL, SKOPEO_STORE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		char words[SKOPEO_WORDS_BYTES];
		enum skopeo_fault got = skopeo_read(span_str(t[i].said), words, sizeof(words));
		if (got != t[i].want || (t[i].words && strcmp(words, t[i].words) != 0))
			fail_msg("%s: kind %d, '%s'", t[i].why, (int)got, words);
		char two[2];
		(void)skopeo_read(span_str(t[i].said), two, sizeof(two));
		assert_true(strlen(two) <= 1);
	}
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(test_spellings), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_lengths),   cmocka_unit_test(test_agent_names),
		cmocka_unit_test(test_at),        cmocka_unit_test(test_skopeo_words),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
