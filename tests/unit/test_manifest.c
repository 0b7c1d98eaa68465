/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "manifest/manifest.h"

/* Layout that the table of broken manifests pokes at: header 72, records 96. */
enum { HEADER = 72, ENTRY = 96, PROJECT = 24 };

static uint32_t add(struct manifest_writer *w, uint32_t parent, const char *name,
                    struct manifest_entry e)
{
	uint32_t i = 0;

	e.parent = parent;
	e.name = span_str(name);
	assert_int_equal(manifest_add(w, &e, &i), 0);
	return i;
}

#define SAME(n) .same_as = (n)

/*
 * 0 root, 1 demo, 2 web; below demo 3 .env, 4 a, 5 b, 6 link, 7 src; below src 8 x.c.
 * a and b are one inode.
 */
static struct buf sample(void)
{
	struct manifest_writer *w = manifest_writer_new();
	struct buf b = { 0 };
	struct stat st;

	add(w, 0, "", (struct manifest_entry){ .kind = MANIFEST_DIR });
	uint32_t demo = add(w, 0, "demo",
	                    (struct manifest_entry){ .kind = MANIFEST_DIR, .project = 1, SAME(1) });
	add(w, 0, "web", (struct manifest_entry){ .kind = MANIFEST_DIR, SAME(2) });
	add(w, demo, ".env",
	    (struct manifest_entry){ .kind = MANIFEST_FILE,
	                             .project = 1,
	                             .flags = MANIFEST_HIDDEN,
	                             .size = 9,
	                             SAME(3) });
	struct manifest_entry file = { .kind = MANIFEST_FILE,
		                       .project = 1,
		                       .mode = 0644,
		                       .size = 8193,
		                       .ino = 7,
		                       .dev = 1,
		                       .nlink = 2,
		                       SAME(4) };
	add(w, demo, "a", file);
	add(w, demo, "b", file);
	add(w, demo, "link",
	    (struct manifest_entry){
		    .kind = MANIFEST_LINK, .project = 1, .link = span_str("a"), SAME(6) });
	uint32_t src = add(w, demo, "src",
	                   (struct manifest_entry){
				   .kind = MANIFEST_DIR, .project = 1, .mode = 0755, SAME(7) });
	add(w, src, "x.c",
	    (struct manifest_entry){
		    .kind = MANIFEST_FILE, .project = 1, .size = 4096, .block = 13, SAME(8) });
	manifest_set_block(w, 4, 10); /* 5 follows by itself */
	struct manifest_project web = {
		.entry = 2, .path = span_str("/h/web"), .dev = 1, .ino = 2
	};
	struct manifest_project dem = {
		.entry = 1, .path = span_str("/h/demo"), .dev = 1, .ino = 3
	};
	assert_int_equal(manifest_add_project(w, &web), 0);
	assert_int_equal(manifest_add_project(w, &dem), 0);
	struct manifest_rules r1 = { .dir = 1,
		                     .source = MANIFEST_RULES_GITIGNORE,
		                     .text = span_str("*.o\n") };
	struct manifest_rules r2 = { .dir = 2, .source = MANIFEST_RULES_HEAVY };
	assert_int_equal(manifest_add_rules(w, &r1), 0);
	assert_int_equal(manifest_add_rules(w, &r2), 0);
	manifest_set_image(w, 10, 14);

	AUTO_CLOSE int fd = fd_memfd("test");
	assert_int_equal(manifest_write(w, fd, 12345, NULL), 0);
	assert_int_equal(manifest_write(w, fd, 12345, NULL), 0); /* twice gives the same */
	manifest_writer_free(w);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(buf_reserve(&b, (size_t)st.st_size), 0);
	b.len = (size_t)st.st_size;
	assert_int_equal(fd_pread_exact(fd, b.p, b.len, 0), 0);
	return b;
}

static void test_read(void **state UNUSED)
{
	AUTO_BUF struct buf b = sample();
	AUTO_BUF struct buf path = { 0 };
	AUTO_FREE uint32_t *order = NULL;
	size_t n = 0;
	struct manifest m;
	struct manifest_entry e;
	struct manifest_project p;
	struct manifest_rules r;
	struct err err = { 0 };

	if (manifest_open(&m, span_of(b.p, b.len), &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(m.count, 9);
	assert_int_equal(m.scanned_ns, 12345);
	manifest_get(&m, 5, &e);
	assert_true(span_eq(e.name, span_str("b")));
	assert_int_equal(e.same_as, 4);
	assert_int_equal(e.block, 10);
	manifest_get(&m, 1, &e);
	assert_int_equal(e.first_child, 3);
	assert_int_equal(e.n_children, 5);
	manifest_get(&m, 6, &e);
	assert_true(span_eq(e.link, span_str("a")));

	assert_int_equal(manifest_find(&m, 1, span_str("src/x.c")), 8);
	assert_int_equal(manifest_find(&m, 1, span_str("")), 1);
	assert_int_equal(manifest_find(&m, 1, span_str("src/x")), MANIFEST_NONE);
	assert_int_equal(manifest_find(&m, 1, span_str("a/x")), MANIFEST_NONE);
	assert_int_equal(manifest_child(&m, 0, span_str("web")), 2);
	assert_int_equal(manifest_path(&m, 8, &path), 0);
	assert_true(span_eq(span_of(path.p, path.len), span_str("src/x.c")));
	path.len = 0;
	assert_int_equal(manifest_path(&m, 1, &path), 0);
	assert_int_equal(path.len, 0);

	manifest_project(&m, 0, &p);
	assert_true(span_eq(p.path, span_str("/h/web")));
	assert_int_equal(p.entry, 2);
	manifest_project(&m, 1, &p);
	assert_true(span_eq(p.path, span_str("/h/demo")));
	assert_int_equal(p.ino, 3);
	manifest_rules(&m, 0, &r);
	assert_true(span_eq(r.text, span_str("*.o\n")));
	manifest_rules(&m, 1, &r);
	assert_int_equal(r.source, MANIFEST_RULES_HEAVY);
	assert_int_equal(r.text.len, 0);

	assert_int_equal(manifest_order(&m, &order, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(manifest_file_at(&m, order, n, 9), MANIFEST_NONE);
	assert_int_equal(manifest_file_at(&m, order, n, 10), 4);
	assert_int_equal(manifest_file_at(&m, order, n, 12), 4);
	assert_int_equal(manifest_file_at(&m, order, n, 13), 8);
	assert_int_equal(manifest_file_at(&m, order, n, 14), MANIFEST_NONE);
}

#define AT(entry, field) (HEADER + (entry)*ENTRY + (field))

static void test_broken(void **state UNUSED)
{
	AUTO_BUF struct buf good = sample();
	const size_t projects = HEADER + 9 * ENTRY;
	const size_t rules = projects + 2 * PROJECT;
	const struct {
		const char *why;
		size_t at;
		unsigned width;
		uint64_t value;
		int want;
	} t[] = {
		{ "magic", 0, 1, 'X', -EPROTO },
		{ "version of the future", 8, 4, 2, -EPROTO },
		{ "one entry fewer", 12, 4, 8, -EPROTO },
		{ "one entry more", 12, 4, 10, -EPROTO },
		{ "no entry", 12, 4, 0, -EPROTO },
		{ "over the limit of entries", 12, 4, MANIFEST_ENTRIES_MAX + 1, -EFBIG },
		{ "over the limit of projects", 16, 4, MANIFEST_PROJECTS_MAX + 1, -EFBIG },
		{ "fewer projects than directories", 16, 4, 1, -EPROTO },
		{ "metadata behind the image's end", 24, 8, 15, -EPROTO },
		{ "image larger than can be addressed", 32, 8, ((uint64_t)1 << 40) + 1, -EPROTO },
		{ "reserved byte", 56, 1, 1, -EPROTO },
		{ "names longer than the file", 48, 8, 1 << 20, -EPROTO },
		{ "names over the limit", 48, 8, (uint64_t)1 << 32, -EFBIG },
		{ "root with a name", AT(0, 40), 1, 1, -EPROTO },
		{ "root's parent is another", AT(0, 0), 4, 1, -EPROTO },
		{ "root that is hidden", AT(0, 34), 2, MANIFEST_HIDDEN, -EPROTO },
		{ "its own parent", AT(7, 0), 4, 7, -EPROTO },
		{ "cycle of two", AT(7, 0), 4, 8, -EPROTO },
		{ "parent that does not claim it", AT(8, 0), 4, 1, -EPROTO },
		{ "parent far outside", AT(8, 0), 4, 0xffffffff, -EPROTO },
		{ "first child outside", AT(7, 12), 4, 0xfffffff0, -EPROTO },
		{ "child shared by two", AT(2, 16), 4, 1, -EPROTO },
		{ "more children than entries", AT(7, 16), 4, 2, -EPROTO },
		{ "children of a file", AT(4, 16), 4, 1, -EPROTO },
		{ "first child without children", AT(4, 12), 4, 1, -EPROTO },
		{ "kind 0", AT(4, 41), 1, 0, -EPROTO },
		{ "kind 5", AT(4, 41), 1, 5, -EPROTO },
		{ "special file in the image", AT(8, 41), 1, MANIFEST_OTHER, -EPROTO },
		{ "why without skipping", AT(4, 42), 1, 1, -EPROTO },
		{ "skipping without why", AT(4, 34), 2, MANIFEST_SKIPPED, -EPROTO },
		{ "unknown why", AT(4, 42), 1, MANIFEST_WHY_LAST + 1, -EPROTO },
		{ "unknown flag", AT(4, 34), 2, 0x8000, -EPROTO },
		{ "hidden and excluded", AT(3, 34), 2, MANIFEST_HIDDEN | MANIFEST_EXCLUDED,
		  -EPROTO },
		{ "data of a hidden file", AT(8, 34), 2, MANIFEST_HIDDEN, -EPROTO },
		{ "hidden directory with children", AT(7, 34), 2, MANIFEST_HIDDEN, -EPROTO },
		{ "name offset", AT(4, 4), 4, 0, -EPROTO },
		{ "empty name", AT(8, 40), 1, 0, -EPROTO },
		{ "name beyond the names", AT(8, 40), 1, 255, -EPROTO },
		{ "link text of a file", AT(8, 38), 2, 1, -EPROTO },
		{ "link without text", AT(6, 38), 2, 0, -EPROTO },
		{ "link text over the limit", AT(6, 38), 2, MANIFEST_LINK_MAX + 1, -EPROTO },
		{ "mode with a kind", AT(4, 32), 2, 010000, -EPROTO },
		{ "negative size", AT(4, 48), 8, (uint64_t)1 << 63, -EPROTO },
		{ "size beyond the image", AT(8, 48), 8, 4097, -EPROTO },
		{ "block in the metadata", AT(8, 88), 8, 9, -EPROTO },
		{ "block beyond the image", AT(8, 88), 8, 14, -EPROTO },
		{ "block that overflows", AT(8, 88), 8, UINT64_MAX, -EPROTO },
		{ "blocks of two files overlap", AT(8, 88), 8, 12, -EPROTO },
		{ "data without a block", AT(8, 88), 8, 0, -EPROTO },
		{ "block of a directory", AT(7, 88), 8, 13, -EPROTO },
		{ "hard link forward", AT(4, 8), 4, 5, -EPROTO },
		{ "hard link to a directory", AT(5, 8), 4, 1, -EPROTO },
		{ "hard link to a hidden file", AT(5, 8), 4, 3, -EPROTO },
		{ "hard link to another inode", AT(8, 8), 4, 4, -EPROTO },
		{ "hard link with another block", AT(5, 88), 8, 11, -EPROTO },
		{ "project index outside", AT(2, 36), 2, 2, -EPROTO },
		{ "two directories of one project", AT(2, 36), 2, 1, -EPROTO },
		{ "entry of another project", AT(8, 36), 2, 0, -EPROTO },
		{ "project of no directory", projects, 4, 3, -EPROTO },
		{ "project of the root", projects, 4, 0, -EPROTO },
		{ "project path too long", projects + 4, 2, 200, -EPROTO },
		{ "project path empty", projects + 4, 2, 0, -EPROTO },
		{ "rules of a file", rules, 4, 4, -EPROTO },
		{ "rules outside", rules, 4, 9, -EPROTO },
		{ "rules of source 0", rules + 8, 4, 0, -EPROTO },
		{ "rules of source 5", rules + 8, 4, 5, -EPROTO },
		{ "rules with text where there is none", rules + 8, 4, 4, 0 },
		{ "rules end before they start", rules + 12 + 4, 4, 0, -EPROTO },
		{ "rules end outside", rules + 12 + 4, 4, 0xffffffff, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_FREE uint8_t *copy = xmemdup(good.p, good.len);
		struct manifest m;
		int want = t[i].want ? t[i].want : -EPROTO;

		for (unsigned k = 0; k < t[i].width; k++)
			copy[t[i].at + k] = (uint8_t)(t[i].value >> 8 * k);
		int got = manifest_open(&m, span_of(copy, good.len), NULL);
		if (got != want)
			fail_msg("%s: got %d, want %d", t[i].why, got, want);
	}
	for (size_t len = 0; len < good.len; len++) {
		AUTO_FREE uint8_t *copy = xmemdup(good.p, len); /* exact, for the sanitizer */
		struct manifest m;

		if (manifest_open(&m, span_of(copy, len), NULL) == 0)
			fail_msg("cut at %zu: accepted", len);
	}
}

static void test_names(void **state UNUSED)
{
	static const struct {
		const char *why;
		const char *first, *second;
		int want;
	} t[] = {
		{ "sorted", "a", "b", 0 },
		{ "prefix first", "a", "a.", 0 },
		{ "bytes are unsigned", "a", "\xff", 0 },
		{ "twice the same", "a", "a", -EPROTO },
		{ "not sorted", "b", "a", -EPROTO },
		{ "dot", ".", "a", -EPROTO },
		{ "dot dot", "..", "a", -EPROTO },
		{ "slash", "a/b", "b", -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct manifest_writer *w = manifest_writer_new();
		AUTO_CLOSE int fd = fd_memfd("test");
		AUTO_FREE char *bytes = NULL;
		size_t len = 0;
		struct manifest m;

		add(w, 0, "", (struct manifest_entry){ .kind = MANIFEST_DIR });
		add(w, 0, "p", (struct manifest_entry){ .kind = MANIFEST_DIR, SAME(1) });
		add(w, 1, t[i].first, (struct manifest_entry){ .kind = MANIFEST_FILE, SAME(2) });
		add(w, 1, t[i].second, (struct manifest_entry){ .kind = MANIFEST_FILE, SAME(3) });
		struct manifest_project p = { .entry = 1, .path = span_str("/p") };
		assert_int_equal(manifest_add_project(w, &p), 0);
		assert_int_equal(manifest_write(w, fd, 0, NULL), 0);
		manifest_writer_free(w);
		assert_int_equal(fd_read_file(fd, 1 << 20, &bytes, &len), 0);
		int got = manifest_open(&m, span_of(bytes, len), NULL);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
	}
}

static void test_depth(void **state UNUSED)
{
	/* the project is level 1; below it 256 levels are legal, one more is not */
	for (int levels = 255; levels <= 257; levels++) {
		struct manifest_writer *w = manifest_writer_new();
		AUTO_CLOSE int fd = fd_memfd("test");
		AUTO_FREE char *bytes = NULL;
		AUTO_BUF struct buf path = { 0 };
		size_t len = 0;
		struct manifest m;

		add(w, 0, "", (struct manifest_entry){ .kind = MANIFEST_DIR });
		for (uint32_t i = 0; i <= (uint32_t)levels; i++)
			add(w, i, "d",
			    (struct manifest_entry){ .kind = MANIFEST_DIR, SAME(i + 1) });
		struct manifest_project p = { .entry = 1, .path = span_str("/p") };
		assert_int_equal(manifest_add_project(w, &p), 0);
		assert_int_equal(manifest_write(w, fd, 0, NULL), 0);
		manifest_writer_free(w);
		assert_int_equal(fd_read_file(fd, 1 << 20, &bytes, &len), 0);
		int got = manifest_open(&m, span_of(bytes, len), NULL);
		assert_int_equal(got, levels <= 256 ? 0 : -EPROTO);
		if (got == 0) {
			assert_int_equal(manifest_path(&m, m.count - 1, &path), 0);
			assert_int_equal(path.len, 2 * levels - 1);
		}
	}
}

static void test_writer(void **state UNUSED)
{
	struct manifest_writer *w = manifest_writer_new();
	static const uint8_t long_name[256] = { 'x' };
	struct manifest_entry e = { .kind = MANIFEST_DIR };
	uint32_t i = 0;

	assert_int_equal(manifest_add(w, &e, &i), 0);
	e.name = span_of(long_name, 256);
	assert_int_equal(manifest_add(w, &e, &i), -EFBIG);
	e.name = span_of(long_name, 255);
	assert_int_equal(manifest_add(w, &e, &i), 0);
	e.parent = 2; /* not given out yet */
	assert_int_equal(manifest_add(w, &e, &i), -EINVAL);
	e.parent = 1;
	assert_int_equal(manifest_add(w, &e, &i), 0);
	e.parent = 0; /* that directory is complete */
	assert_int_equal(manifest_add(w, &e, &i), -EINVAL);
	manifest_writer_free(w);
	manifest_writer_free(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),   cmocka_unit_test(test_broken),
		cmocka_unit_test(test_names),  cmocka_unit_test(test_depth),
		cmocka_unit_test(test_writer),
	};

	if (argc == 2) { /* writes the sample: seed of the fuzz corpus */
		AUTO_BUF struct buf b = sample();
		AUTO_CLOSE int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		return fd < 0 || fd_write_all(fd, b.p, b.len) < 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
