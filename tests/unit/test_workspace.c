/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/gitconfig.h"
#include "workspace/gitindex.h"
#include "workspace/scan.h"
#include "workspace/sha1.h"
#include "workspace/symlink.h"

static void hex(char *dst, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)sprintf(dst + 2 * i, "%02x", p[i]);
}

static void test_hashes(void **state UNUSED)
{
	/* the examples of FIPS 180 and lengths around the padding */
	static const struct {
		const char *text;
		const char *sha1, *sha256;
	} t[] = {
		{ "", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
		  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "a9993e364706816aba3e25717850c26c9cd0d89d",
		  "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
		  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint8_t b[32];
		char s[65];

		sha1(b, t[i].text, strlen(t[i].text));
		hex(s, b, 20);
		assert_string_equal(s, t[i].sha1);
		sha256(b, t[i].text, strlen(t[i].text));
		hex(s, b, 32);
		assert_string_equal(s, t[i].sha256);
	}
}

static void test_urls(void **state UNUSED)
{
	static const struct {
		const char *why, *url, *want; /* NULL: dropped */
	} t[] = {
		{ "plain https", "https://h/x.git", "https://h/x.git" },
		{ "user and password", "https://u:p@h/x", "https://h/x" },
		{ "token as user name", "https://ghp_abc@h/x", "https://h/x" },
		{ "any https user", "https://alice@h/x", "https://h/x" },
		{ "port stays", "https://u:p@h:8443/x", "https://h:8443/x" },
		{ "two at signs", "https://u:p@q@h/x", "https://h/x" },
		{ "scheme in capitals", "HTTPS://u:p@h/x", "HTTPS://h/x" },
		{ "no path", "https://u:p@h", "https://h" },
		{ "query", "https://h/x?private_token=t", "https://h/x" },
		{ "at sign in the path", "https://h/@scope/x", "https://h/@scope/x" },
		{ "credentials in the path", "https://proxy/https://u:p@h/x", NULL },
		{ "empty authority", "https:///u:p@h/x", NULL },
		{ "backslash for a slash", "https://h\\u:p@h/x", NULL },
		{ "ssh login", "ssh://git@h/x", "ssh://git@h/x" },
		{ "ssh password", "ssh://git:pw@h/x", "ssh://git@h/x" },
		{ "ssh token", "ssh://ghp_0123456789@h/x", "ssh://h/x" },
		{ "ssh long login", "ssh://aaaaaaaaaaaaaaaaaaaaaaaaa@h/x", "ssh://h/x" },
		{ "scp", "git@h:x/y.git", "git@h:x/y.git" },
		{ "scp without user", "h:x/y.git", "h:x/y.git" },
		{ "scp token", "ghp_0123@h:x", "h:x" },
		{ "scp, two at signs", "x@y:p@h/x", NULL },
		{ "scp password", "git:pw@h:x", NULL },
		{ "path", "/srv/git/x.git", "/srv/git/x.git" },
		{ "relative path with at sign", "../a@b/x", "../a@b/x" },
		{ "file", "file:///srv/x", "file:///srv/x" },
		{ "helper", "ext::sh -c id", NULL },
		{ "helper with dashes", "remote-x::h", NULL },
		{ "control byte", "https://h/\nx", NULL },
		{ "scheme with odd bytes", "ht tp://u@h/", NULL },
		{ "empty", "", "" },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };
		int ret = gitconfig_clean_url(span_str(t[i].url), &b);

		if (!t[i].want ? ret != -EINVAL
		               : ret < 0 || !span_eq(span_of(b.p, b.len), span_str(t[i].want)))
			fail_msg("%s: got %d '%.*s'", t[i].why, ret, (int)b.len,
			         b.p ? (char *)b.p : "");
		if (t[i].want && (ret == 1) != (strcmp(t[i].url, t[i].want) != 0))
			fail_msg("%s: wrong about a change", t[i].why);
	}
}

static void test_sanitise(void **state UNUSED)
{
	static const struct {
		const char *why, *in, *want; /* NULL: refused */
		int flags;
	} t[] = {
		{ "kept", "[core]\n bare = true\n", "[core]\n\tbare = \"true\"\n", 0 },
		{ "key on the header's line", "[core] sshCommand = x\n[core] bare",
		  "[core]\n\tbare\n", 0 },
		{ "dropped key with its continuation", "[core]\npager = a\\\nb\nbare=0",
		  "[core]\n\tbare = \"0\"\n", 0 },
		{ "a value that looks like a header", "[user]\nname = \"[core]\"",
		  "[user]\n\tname = \"[core]\"\n", 0 },
		{ "a value that ends the line", "[user]\nname = \"a\\nb\"",
		  "[user]\n\tname = \"a\\nb\"\n", 0 },
		{ "quotes and backslashes", "[user]\nname = \"a\\\"b\\\\c\"",
		  "[user]\n\tname = \"a\\\"b\\\\c\"\n", 0 },
		{ "case", "[CoRe]\nBARE=1", "[core]\n\tbare = \"1\"\n", 0 },
		{ "old subsections", "[branch.Main]\nmerge=refs/heads/main",
		  "[branch \"main\"]\n\tmerge = \"refs/heads/main\"\n", 0 },
		{ "subsections are escaped", "[branch \"a\\\"b\\\\\"]\nremote=o",
		  "[branch \"a\\\"b\\\\\"]\n\tremote = \"o\"\n", 0 },
		{ "url", "[remote \"o\"]\nurl=https://t:x@h/p\nproxy=x\nuploadpack=x\nvcs=x",
		  "[remote \"o\"]\n\turl = \"https://h/p\"\n", 0 },
		{ "includes", "[include]path=x\n[includeIf \"gitdir:/\"]path=x", "", 0 },
		{ "programs",
		  "[core]askPass=x\ngitProxy=x\nhooksPath=x\nfsmonitor=x\neditor=x\n"
		  "alternateRefsCommand=x\nattributesFile=x\nexcludesFile=x\n[diff]external=x\n"
		  "[diff \"a\"]textconv=x\ncommand=x\n[merge \"a\"]driver=x\n[merge]tool=x\n"
		  "[submodule \"a\"]update=!x\n[gc]recentObjectsHook=x\n[gpg]program=x\n"
		  "[filter \"a\"]clean=x\nsmudge=x\nprocess=x\n[alias]a=!x\n"
		  "[credential]helper=x\n[uploadpack]packObjectsHook=x\n[init]templateDir=x\n"
		  "[remote \"a\"]receivepack=x\n[url \"x\"]insteadOf=y\n[http]extraHeader=x\n"
		  "[branch \"b\"]mergeOptions=--exec=x\n[log]showSignature=1\n",
		  "", 0 },
		{ "worktree", "[core]worktree=../x", "", 0 },
		{ "worktree of a submodule", "[core]worktree=../x",
		  "[core]\n\tworktree = \"../x\"\n", GITCONFIG_SUBMODULE },
		{ "absolute worktree of a submodule", "[core]worktree=/x", "",
		  GITCONFIG_SUBMODULE },
		{ "a url where a name is usual", "[branch \"b\"]remote=https://u:p@h/x",
		  "[branch \"b\"]\n\tremote = \"https://h/x\"\n", 0 },
		{ "a url where none belongs", "[core]bare=https://u:p@h/x", "", 0 },
		{ "value of an odd kind", "[core]eol=\"a`b`\"", "", 0 },
		{ "newline in a url", "[remote \"o\"]url=\"a\\nb\"", "", 0 },
		{ "byte order mark", "\xef\xbb\xbf[core]bare", "[core]\n\tbare\n", 0 },
		{ "carriage returns", "[core]\r\nbare = 1\r\n", "[core]\n\tbare = \"1\"\n", 0 },
		{ "colours", "[color \"diff\"]new = green bold",
		  "[color \"diff\"]\n\tnew = \"green bold\"\n", 0 },
		{ "key before any section", "bare=1\n", "", 0 },
		{ "header without an end", "[core", NULL, 0 },
		{ "empty header", "[]", NULL, 0 },
		{ "quote without an end", "[user]name=\"a", NULL, 0 },
		{ "unknown escape", "[user]name=a\\x", NULL, 0 },
		{ "newline in a subsection", "[a \"b\nc\"]", NULL, 0 },
		{ "key without '='", "[user]name a", NULL, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };
		struct gitconfig_report r = { 0 };
		uint32_t line = 0;
		int ret = gitconfig_sanitise(span_str(t[i].in), t[i].flags, &b, &r, &line);

		if (!t[i].want ? ret != -EPROTO || line == 0
		               : ret != 0 || !span_eq(span_of(b.p, b.len), span_str(t[i].want)))
			fail_msg("%s: got %d '%.*s'", t[i].why, ret, (int)b.len,
			         b.p ? (char *)b.p : "");
		gitconfig_report_fini(&r);
	}
	AUTO_BUF struct buf b = { 0 };
	struct gitconfig_report r = { 0 };
	assert_int_equal(gitconfig_sanitise(span_str("[extensions]objectFormat=SHA256\n[alias]a=b\n"
	                                             "[alias]a=c\n[remote \"o\"]url=ext::x"),
	                                    0, &b, &r, NULL),
	                 0);
	assert_true(r.sha256);
	assert_int_equal(r.dropped, 3);
	assert_int_equal(r.n_names, 2);
	assert_string_equal(r.names[0], "alias.a");
	assert_int_equal(r.credentials, 1);
	gitconfig_report_fini(&r);
}

static void test_config_limits(void **state UNUSED)
{
	const struct {
		const char *why;
		size_t name, value;
		int want;
	} t[] = {
		{ "value at the limit", 1, GITCONFIG_VALUE_MAX, 0 },
		{ "value one over", 1, GITCONFIG_VALUE_MAX + 1, -EFBIG },
		{ "key at the limit", GITCONFIG_NAME_MAX, 1, 0 },
		{ "key one over", GITCONFIG_NAME_MAX + 1, 1, -EFBIG },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf in = { 0 };
		AUTO_BUF struct buf out = { 0 };
		struct gitconfig_report r = { 0 };

		assert_int_equal(buf_put(&in, "[user]\n", 7), 0);
		for (size_t k = 0; k < t[i].name; k++)
			assert_int_equal(buf_put(&in, "n", 1), 0);
		assert_int_equal(buf_put(&in, "=", 1), 0);
		for (size_t k = 0; k < t[i].value; k++)
			assert_int_equal(buf_put(&in, "v", 1), 0);
		int got = gitconfig_sanitise(span_of(in.p, in.len), 0, &out, &r, NULL);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		gitconfig_report_fini(&r);
	}
}

/* ---- index ---- */

static void put_n(struct buf *b, uint32_t v, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		uint8_t c = (uint8_t)(v >> 8 * i);
		assert_int_equal(buf_put(b, &c, 1), 0);
	}
}

static void put_zeros(struct buf *b, size_t n)
{
	while (n--)
		put_n(b, 0, 1);
}

/* A version 2 index with the names "a" and "dir/b". */
static struct buf index_v2(void)
{
	static const char *const names[] = { "a", "dir/b" };
	struct buf b = { 0 };

	assert_int_equal(buf_put(&b, "DIRC", 4), 0);
	put_n(&b, 2, 4);
	put_n(&b, 2, 4);
	for (size_t i = 0; i < 2; i++) {
		size_t start = b.len;

		put_zeros(&b, 24);
		put_n(&b, 0100644, 4);
		put_zeros(&b, 12 + 20);
		put_n(&b, (uint32_t)strlen(names[i]), 2);
		assert_int_equal(buf_put(&b, names[i], strlen(names[i])), 0);
		put_zeros(&b, 8 - (b.len - start) % 8);
	}
	assert_int_equal(buf_put(&b, "UNTR\0\0\0\2xyTREE\0\0\0\1z", 19), 0);
	put_zeros(&b, 20);
	return b;
}

static int count(void *arg, const struct gitindex_entry *e)
{
	int *seen = arg;

	seen[e->skip_worktree]++;
	return 0;
}

static bool is_b(void *arg UNUSED, const struct gitindex_entry *e)
{
	return span_eq(e->path, span_str("dir/b"));
}

static void test_index(void **state UNUSED)
{
	AUTO_BUF struct buf b = index_v2();
	AUTO_BUF struct buf out = { 0 };
	struct gitindex_info info;
	int seen[2] = { 0 };

	assert_int_equal(gitindex_read(span_of(b.p, b.len), 20, count, seen, &info), 0);
	assert_int_equal(seen[0], 2);
	assert_true(info.caches);
	assert_false(info.split);
	assert_int_equal(gitindex_skip(span_of(b.p, b.len), 20, is_b, NULL, &out), 0);
	assert_int_equal(out.p[7], 3);
	seen[0] = seen[1] = 0;
	assert_int_equal(gitindex_read(span_of(out.p, out.len), 20, count, seen, &info), 0);
	assert_int_equal(seen[0], 1);
	assert_int_equal(seen[1], 1);
	assert_false(info.caches);
	assert_non_null(memmem(out.p, out.len, "TREE", 4));
	assert_int_equal(gitindex_read(span_of(out.p, out.len), 32, count, seen, &info), -EPROTO);
	assert_int_equal(gitindex_read(span_of(out.p, out.len), 16, count, seen, &info), -EINVAL);
}

static void test_index_broken(void **state UNUSED)
{
	AUTO_BUF struct buf good = index_v2();
	static const struct {
		const char *why;
		size_t at;
		uint8_t value;
		int want;
	} t[] = {
		{ "magic", 0, 'X', -EPROTO },
		{ "version 1", 7, 1, -ENOTSUP },
		{ "version 5", 7, 5, -ENOTSUP },
		{ "version 4, but padded names", 7, 4, -EPROTO },
		{ "one entry more", 11, 3, -EPROTO },
		{ "entries over the limit", 8, 1, -EFBIG },
		{ "extended entry in version 2", 12 + 60, 0x40, -EPROTO },
		{ "length and name disagree", 12 + 61, 2, -EPROTO },
		{ "extension beyond the end", 12 + 72 + 72 + 7, 200, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_FREE uint8_t *copy = xmemdup(good.p, good.len);
		struct gitindex_info info;
		int seen[2] = { 0 };

		copy[t[i].at] = t[i].value;
		int got = gitindex_read(span_of(copy, good.len), 20, count, seen, &info);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
	}
	for (size_t len = 0; len < good.len; len++) {
		AUTO_FREE uint8_t *copy = xmemdup(good.p, len);
		struct gitindex_info info;

		/* some cuts leave a whole index: only what is read counts here */
		assert_true(gitindex_read(span_of(copy, len), 20, NULL, NULL, &info) <= 0);
	}
}

/* ---- links ---- */

struct fake {
	const char *name;
	int parent;
	enum symlink_node kind;
	const char *text;
};

/* /home/u/p is the project; number 0 is its directory */
static const struct fake tree[] = {
	{ "", 0, SYMLINK_DIR, NULL },
	{ "src", 0, SYMLINK_DIR, NULL },
	{ "deep", 1, SYMLINK_DIR, NULL },
	{ "file", 0, SYMLINK_FILE, NULL },
	{ ".env", 0, SYMLINK_ABSENT, NULL },
	{ "up", 2, SYMLINK_LINK, "../.." },          /* src/deep/up: the project */
	{ "out", 0, SYMLINK_LINK, "/etc" },          /* leaves */
	{ "loop", 0, SYMLINK_LINK, "loop" },         /* goes round */
	{ "abs", 1, SYMLINK_LINK, "/home/u/p/src" }, /* absolute, inside */
	{ "probe", 2, SYMLINK_LINK, NULL },          /* src/deep/probe: the one that is judged */
};

static const char *probe_text;

static enum symlink_node fake_child(void *arg UNUSED, const void *dir, struct span name,
                                    const void **out)
{
	for (size_t i = 1; i < ARRAY_LEN(tree); i++) {
		if (&tree[tree[i].parent] == dir && span_eq(span_str(tree[i].name), name)) {
			*out = &tree[i];
			return tree[i].kind;
		}
	}
	return SYMLINK_NONE;
}

static const void *fake_parent(void *arg UNUSED, const void *node)
{
	const struct fake *f = node;

	return &tree[f->parent];
}

static struct span fake_text(void *arg UNUSED, const void *link)
{
	const struct fake *f = link;

	return span_str(f->text ? f->text : probe_text);
}

static void test_links(void **state UNUSED)
{
	static const struct {
		const char *why, *text;
		enum symlink_verdict want;
		const char *rewritten;
	} t[] = {
		{ "beside it", "x", SYMLINK_INSIDE, NULL },
		{ "up to the project", "../..", SYMLINK_INSIDE, NULL },
		{ "one above the project", "../../..", SYMLINK_OUTSIDE, NULL },
		{ "out and in again", "../../../p/file", SYMLINK_OUTSIDE, NULL },
		{ "a file", "../../file", SYMLINK_INSIDE, NULL },
		{ "unknown name, by its words", "no/../../..", SYMLINK_INSIDE, NULL },
		{ "unknown name, out by its words", "no/../../../..", SYMLINK_OUTSIDE, NULL },
		{ "through a link, by where it leads", "up/src", SYMLINK_INSIDE, NULL },
		{ "through a link, one above", "up/..", SYMLINK_OUTSIDE, NULL },
		{ "through a link that leaves", "../../out/passwd", SYMLINK_OUTSIDE, NULL },
		{ "through an absolute link", "../abs/..", SYMLINK_INSIDE, NULL },
		{ "through an absolute link, above", "../abs/../..", SYMLINK_OUTSIDE, NULL },
		{ "hidden", "../../.env", SYMLINK_HIDDEN, NULL },
		{ "below what is hidden", "../../.env/x", SYMLINK_HIDDEN, NULL },
		{ "round", "../../loop", SYMLINK_LOOP, NULL },
		{ "itself", "probe", SYMLINK_LOOP, NULL },
		{ "absolute, outside", "/etc/passwd", SYMLINK_OUTSIDE, NULL },
		{ "absolute, a neighbour with the same beginning", "/home/u/pp", SYMLINK_OUTSIDE,
		  NULL },
		{ "absolute, the parent", "/home/u", SYMLINK_OUTSIDE, NULL },
		{ "absolute, inside", "/home/u/p/src/x", SYMLINK_INSIDE, "../../src/x" },
		{ "absolute, the project", "/home/u/p", SYMLINK_INSIDE, "../../." },
		{ "absolute, odd slashes", "//home/./u//p//src", SYMLINK_INSIDE, "../../src" },
		{ "absolute, hidden", "/home/u/p/.env", SYMLINK_HIDDEN, "../../.env" },
		{ "absolute, inside and out", "/home/u/p/../x", SYMLINK_OUTSIDE, NULL },
		{ "root", "/", SYMLINK_OUTSIDE, NULL },
	};
	struct symlink_tree st = { .root = &tree[0],
		                   .child = fake_child,
		                   .parent = fake_parent,
		                   .text = fake_text,
		                   .path = span_str("/home/u/p") };

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };

		probe_text = t[i].text;
		int got = symlink_judge(&st, &tree[9], &b);
		if (got != (int)t[i].want ||
		    !span_eq(span_of(b.p, b.len), span_str(t[i].rewritten ? t[i].rewritten : "")))
			fail_msg("%s: got %d '%.*s'", t[i].why, got, (int)b.len,
			         b.p ? (char *)b.p : "");
	}
}

/* ---- the scan, without its cage ---- */

static void make_file(int dirfd, const char *name, const char *content)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, content, strlen(content)), 0);
}

static void test_scan(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-test-scan-XXXXXX";
	AUTO_FREE char *bytes = NULL;
	AUTO_FREE char *report = NULL;
	size_t len = 0, report_len = 0;
	struct err err = { 0 };
	struct manifest m;

	assert_non_null(mkdtemp(dir));
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(fd, ".git", 0755), 0);
	assert_int_equal(mkdirat(fd, ".git/hooks", 0755), 0);
	assert_int_equal(mkdirat(fd, "src", 0755), 0);
	make_file(fd, ".git/config", "[alias]\nx = y\n[core]\nbare = false\n");
	make_file(fd, ".gitignore", "*.o\n");
	make_file(fd, ".clocheignore", "tmp\n");
	make_file(fd, "src/a.o", "x");
	make_file(fd, ".env", "x");
	assert_int_equal(symlinkat(dir, fd, "abs"), 0);
	assert_int_equal(symlinkat("/etc", fd, "out"), 0);
	assert_int_equal(linkat(fd, ".gitignore", fd, "same", 0), 0);

	AUTO_CLOSE int manifest_fd = fd_memfd("manifest");
	AUTO_CLOSE int meta_fd = fd_memfd("meta");
	AUTO_CLOSE int report_fd = fd_memfd("report");
	struct scan_project p = { .name = "demo", .fd = fd, .path = dir };
	struct scan_opts o = { .projects = &p,
		               .n_projects = 1,
		               .manifest_fd = manifest_fd,
		               .meta_fd = meta_fd,
		               .report_fd = report_fd,
		               .exclude = span_str("*.tmp\n"),
		               .heavy = true };
	if (scan_run(&o, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(lseek(manifest_fd, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_file(manifest_fd, 1 << 20, &bytes, &len), 0);
	assert_int_equal(manifest_open(&m, span_of(bytes, len), NULL), 0);
	assert_int_not_equal(manifest_find(&m, 1, span_str("src/a.o")), MANIFEST_NONE);
	assert_int_equal(lseek(report_fd, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_file(report_fd, 1 << 20, &report, &report_len), 0);
	assert_non_null(strstr(report, "\"alias.x\""));

	/* an error leaves a report, too, and frees everything */
	assert_int_equal(mkdirat(fd, "src/.clocheignore", 0755), 0);
	assert_int_equal(scan_run(&o, &err), -EINVAL);
	assert_true(err.hint[0] != '\0');
	assert_int_equal(path_remove_tree(AT_FDCWD, dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hashes),   cmocka_unit_test(test_urls),
		cmocka_unit_test(test_sanitise), cmocka_unit_test(test_config_limits),
		cmocka_unit_test(test_index),    cmocka_unit_test(test_index_broken),
		cmocka_unit_test(test_links),    cmocka_unit_test(test_scan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
