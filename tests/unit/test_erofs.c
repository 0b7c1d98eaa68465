/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "lib/erofs_reader.h"
#include "lib/erofs_tree.h"

static const struct erofs_opts opts = {
	.uuid = { 1, 2, 3 },
	.volume = "test",
	.build_time_s = 1700000000,
	.meta_block = 1,
};

static int write_only(struct et *t, const struct erofs_opts *o, struct erofs_result *r,
                      struct err *err)
{
	AUTO_CLOSE int fd = fd_memfd("image");
	struct erofs_source src = et_source(t);

	return erofs_write(fd, &src, o, r, err);
}

/* Write and compare with what the independent reader finds. */
static void check(struct et *t, const struct erofs_opts *o, const char *why)
{
	AUTO_CLOSE int fd = fd_memfd("image");
	struct erofs_result r;
	struct err err = { 0 };

	et_sort(t);
	struct erofs_source src = et_source(t);
	if (erofs_write(fd, &src, o, &r, &err) < 0)
		fail_msg("%s: %s", why, err.text);
	size_t len = (size_t)r.data_block * EROFS_BLOCK_BYTES;
	void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	const char *bad = et_compare(t, p, len, o, &r);
	if (bad)
		fail_msg("%s: %s", why, bad);
	(void)munmap(p, len);
}

static uint32_t add_file(struct et *t, uint32_t dir, const char *name, uint64_t size)
{
	uint32_t i = et_add(t, dir, name, S_IFREG | 0644);

	t->v[i].in.size = size;
	return i;
}

static void test_kinds(void **state UNUSED)
{
	struct et t;

	et_init(&t);
	check(&t, &opts, "an empty root");
	uint32_t d = et_add(&t, 0, "dir", S_IFDIR | 01777);
	(void)et_add(&t, d, "fifo", S_IFIFO | 0600);
	(void)et_add(&t, d, "socket", S_IFSOCK | 0600);
	uint32_t c = et_add(&t, d, "null", S_IFCHR | 0666);
	t.v[c].in.rdev = (uint32_t)makedev(1, 3);
	c = et_add(&t, d, "far", S_IFBLK | 0666);
	t.v[c].in.rdev = (uint32_t)makedev(4095, 1048575);
	uint32_t l = et_add(&t, 0, "link", S_IFLNK | 0777);
	et_link_text(&t, l, "dir/null", 8);
	uint32_t f = add_file(&t, 0, "file", 5000);
	t.v[f].in.mtime_s = -1;
	t.v[f].in.mtime_ns = 999999999;
	et_xattr(&t, f, "security.capability", "\1\0\0\2", 4);
	et_xattr(&t, f, "user.empty", "", 0);
	assert_true(et_name(&t, d, "other name", 10, f));
	assert_true(et_name(&t, d, "link too", 8, l));
	check(&t, &opts, "one of each kind");
	et_fini(&t);
}

static void test_names(void **state UNUSED)
{
	static const char *const names[] = { "-",  "!", "+",  ".-",   ".+x",      "..-",  "...",
		                             ".a", "0", "\1", "\x7f", "\xff\xfe", "a\nb", "a b" };
	char longest[EROFS_NAME_MAX + 1];
	struct et t;

	et_init(&t);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		(void)add_file(&t, 0, names[i], i);
	memset(longest, '.', EROFS_NAME_MAX);
	longest[EROFS_NAME_MAX] = '\0';
	(void)add_file(&t, 0, longest, 1);
	check(&t, &opts, "names around the dots in order, and the longest");
	et_fini(&t);
}

/* Everything that decides between inline and whole blocks, at the limit and beside it. */
static void test_tails(void **state UNUSED)
{
	struct et t;
	char name[300];
	AUTO_FREE char *text = xcalloc(1, EROFS_LINK_MAX + 1);

	et_init(&t);
	memset(text, 't', EROFS_LINK_MAX);
	for (size_t len = 4096 - 64 - 2; len <= EROFS_LINK_MAX; len++) {
		(void)snprintf(name, sizeof(name), "link%zu", len);
		uint32_t l = et_add(&t, 0, name, S_IFLNK | 0777);
		et_link_text(&t, l, text, len);
	}
	for (size_t x = 0; x < 40; x++) { /* attributes that leave the link just no room */
		(void)snprintf(name, sizeof(name), "attr%zu", x);
		uint32_t l = et_add(&t, 0, name, S_IFLNK | 0777);
		et_link_text(&t, l, text, 2000);
		et_xattr(&t, l, "user.a", text, 1990 + x);
	}
	for (size_t n = 0; n < 40; n++) { /* directories of about a block, and of about two */
		uint32_t d;

		(void)snprintf(name, sizeof(name), "dir%zu", n);
		d = et_add(&t, 0, name, S_IFDIR | 0755);
		for (size_t k = 0; k < (n % 2 ? 39 : 80); k++) {
			memset(name, 'n', 89);
			(void)snprintf(name, sizeof(name), "%03zu", k);
			name[3] = '-';
			name[k ? 88 : 60 + n] = '\0';
			(void)add_file(&t, d, name, 0);
		}
	}
	check(&t, &opts, "tails");
	et_fini(&t);
}

/* More attributes than a block holds; on the root, too, which must stay first. */
static void test_many_xattrs(void **state UNUSED)
{
	AUTO_FREE char *value = xcalloc(1, EROFS_XATTR_VALUE_MAX);
	char name[32];
	struct et t;

	et_init(&t);
	(void)add_file(&t, 0, "before", 1);
	uint32_t l = et_add(&t, 0, "link", S_IFLNK | 0777);
	et_link_text(&t, l, "x", 1);
	(void)add_file(&t, 0, "z", 1);
	for (int k = 0; k < EROFS_XATTRS_MAX; k++) {
		(void)snprintf(name, sizeof(name), "user.%d", k);
		memset(value, k, EROFS_XATTR_VALUE_MAX);
		et_xattr(&t, 0, name, value, EROFS_XATTR_VALUE_MAX);
		et_xattr(&t, l, name, value, EROFS_XATTR_VALUE_MAX);
	}
	check(&t, &opts, "the most attributes");
	et_fini(&t);
}

static void test_exact_block(void **state UNUSED)
{
	/* "." and ".." take 27 bytes; 15 names of 255 and one that fills the block */
	enum { MANY = 15, LEFT = 4096 - 27 - MANY * (12 + 255) - 12 };

	for (int extra = -1; extra <= 1; extra++) {
		struct et t;
		char name[EROFS_NAME_MAX + 1];

		et_init(&t);
		for (int k = 0; k < MANY; k++) {
			memset(name, 'x', EROFS_NAME_MAX);
			name[0] = (char)('a' + k);
			name[EROFS_NAME_MAX] = '\0';
			(void)add_file(&t, 0, name, 0);
		}
		memset(name, 'z', sizeof(name));
		name[LEFT + extra] = '\0';
		(void)add_file(&t, 0, name, 0);
		check(&t, &opts, "a directory that fills one block");
		et_fini(&t);
	}
}

static void test_large(void **state UNUSED)
{
	enum { MANY = 100000, DEEP = 3000 };
	struct et t;
	char name[32];

	et_init(&t);
	uint32_t big = et_add(&t, 0, "big", S_IFDIR | 0755);
	t.v[big].names = xcalloc(MANY, sizeof(struct et_name)); /* et_name() is quadratic */
	t.v[big].cap_names = MANY;
	for (int k = 0; k < MANY; k++) {
		(void)snprintf(name, sizeof(name), "file-%06d.c", k);
		uint32_t i = et_inode(&t, S_IFREG | 0644);
		t.v[i].in.size = 1;
		t.v[i].refs = 1;
		t.v[big].names[t.v[big].n_names++] =
			(struct et_name){ (uint8_t *)xstrdup(name), strlen(name), i };
	}
	t.v[big].in.n_dirents = MANY;
	uint32_t d = 0;
	for (int k = 0; k < DEEP; k++)
		d = et_add(&t, d, "down", S_IFDIR | 0755);
	check(&t, &opts, "100,000 names in one directory, and 3,000 levels");
	et_fini(&t);
}

static void test_sizes(void **state UNUSED)
{
	static const struct {
		const char *why;
		uint64_t size;
		int want;
	} rows[] = {
		/* block 0, one of metadata; the last address of 32 bits is the image's end */
		{ "up to the last block", (UINT32_MAX - 2ull) * 4096, 0 },
		{ "a byte over", (UINT32_MAX - 2ull) * 4096 + 1, -EFBIG },
		{ "nothing like it", UINT64_MAX, -EFBIG },
		{ "over 4 GiB", (1ull << 32) + 1, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct et t;
		struct erofs_result r;
		struct err err;

		et_init(&t);
		(void)add_file(&t, 0, "f", rows[i].size);
		int got = write_only(&t, &opts, &r, &err);
		if (got != rows[i].want)
			fail_msg("%s: got %d, want %d", rows[i].why, got, rows[i].want);
		if (got == 0) {
			t.placed_calls = 0;
			check(&t, &opts, rows[i].why);
		}
		et_fini(&t);
	}
}

static void test_placed(void **state UNUSED)
{
	struct erofs_opts o = opts;
	struct et t;

	o.meta_block = 0x12345; /* the root's nid still fits 16 bits */
	o.data_align = 512;
	et_init(&t);
	uint32_t f = add_file(&t, 0, "placed", 3 * 4096);
	t.v[f].in.is_placed = true;
	t.v[f].in.block_at = o.meta_block - 3;
	(void)add_file(&t, 0, "empty", 0);
	(void)add_file(&t, 0, "later", 4096);
	(void)add_file(&t, 0, "last", 4097);
	/* the reader gets the metadata only, so compare by hand */
	AUTO_CLOSE int fd = fd_memfd("image");
	struct erofs_source src = et_source(&t);
	struct erofs_result r;
	struct err err;
	et_sort(&t);
	assert_int_equal(erofs_write(fd, &src, &o, &r, &err), 0);
	size_t len = (size_t)r.data_block * EROFS_BLOCK_BYTES;
	void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	const char *bad = et_compare(&t, p, len, &o, &r);
	if (bad)
		fail_msg("%s", bad);
	assert_int_equal(t.v[3].block, align_up(r.data_block, 512));
	assert_int_equal(t.v[4].block, t.v[3].block + 512);
	assert_int_equal(r.image_blocks, t.v[4].block + 2);
	(void)munmap(p, len);
	t.v[f].in.block_at++;
	assert_int_equal(write_only(&t, &o, &r, &err), -EINVAL); /* reaches the metadata */
	t.v[f].in.block_at = 0;
	assert_int_equal(write_only(&t, &o, &r, &err), -EINVAL); /* the superblock */
	et_fini(&t);
}

/* What the format cannot hold is refused, and the image stays without a superblock. */
enum bad {
	BAD_NONE,
	BAD_ROOT_KIND,
	BAD_KIND,
	BAD_NAME_EMPTY,
	BAD_NAME_DOT,
	BAD_NAME_SLASH,
	BAD_NAME_NUL,
	BAD_NAME_LONG,
	BAD_ORDER,
	BAD_TWICE,
	BAD_INODE,
	BAD_ROOT_NAMED,
	BAD_DIR_TWO_NAMES,
	BAD_DIR_LOOP,
	BAD_DIR_LOST,
	BAD_PARENT,
	BAD_LINK_EMPTY,
	BAD_LINK_LONG,
	BAD_LINK_NUL,
	BAD_NS,
	BAD_XATTR_PREFIX,
	BAD_XATTR_TRUSTED,
	BAD_XATTR_BARE,
	BAD_XATTR_TWICE,
	BAD_XATTR_VALUE,
	BAD_XATTRS_MANY,
	BAD_LAST
};

static void set_name(struct et *t, uint32_t dir, uint32_t k, const char *name, size_t len)
{
	struct et_name *n = &t->v[dir].names[k];

	free(n->name);
	n->name = xmemdup(name, len + 1);
	n->len = len;
}

static void test_refusals(void **state UNUSED)
{
	AUTO_FREE char *big = xcalloc(1, 5000);

	memset(big, 'b', 4999);
	for (enum bad b = BAD_NONE; b < BAD_LAST; b++) {
		int want = b == BAD_NONE ? 0 : -EINVAL;
		struct erofs_result r;
		struct err err = { 0 };
		struct et t;

		et_init(&t);
		uint32_t d = et_add(&t, 0, "d", S_IFDIR | 0755);
		uint32_t e = et_add(&t, d, "e", S_IFDIR | 0755);
		uint32_t f = add_file(&t, d, "f", 1);
		uint32_t l = et_add(&t, d, "l", S_IFLNK | 0777);
		et_link_text(&t, l, "x", 1);
		switch (b) {
		case BAD_NONE:
		case BAD_LAST:
			break;
		case BAD_ROOT_KIND:
			t.v[0].in.mode = S_IFREG;
			break;
		case BAD_KIND:
			t.v[f].in.mode = 0644;
			break;
		case BAD_NAME_EMPTY:
			set_name(&t, d, 0, "", 0);
			break;
		case BAD_NAME_DOT:
			set_name(&t, d, 0, "..", 2);
			break;
		case BAD_NAME_SLASH:
			set_name(&t, d, 0, "a/b", 3);
			break;
		case BAD_NAME_NUL:
			set_name(&t, d, 0, "a\0b", 3);
			break;
		case BAD_NAME_LONG:
			set_name(&t, d, 0, big, EROFS_NAME_MAX + 1);
			break;
		case BAD_ORDER:
			set_name(&t, d, 0, "g", 1);
			break;
		case BAD_TWICE:
			set_name(&t, d, 0, "f", 1);
			break;
		case BAD_INODE:
			t.v[d].names[1].inode = t.n;
			break;
		case BAD_ROOT_NAMED:
			t.v[d].names[0].inode = 0;
			break;
		case BAD_DIR_TWO_NAMES:
			assert_true(et_name(&t, d, "second", 6, e));
			break;
		case BAD_DIR_LOOP: /* d is in e, which is in d; the root has neither */
			t.v[0].in.n_dirents = 0;
			assert_true(et_name(&t, e, "up", 2, d));
			break;
		case BAD_DIR_LOST:
			t.v[0].in.n_dirents = 0;
			break;
		case BAD_PARENT:
			t.v[e].in.parent = 0;
			break;
		case BAD_LINK_EMPTY:
			t.v[l].in.link.len = 0;
			break;
		case BAD_LINK_LONG:
			et_link_text(&t, l, big, EROFS_LINK_MAX + 1);
			break;
		case BAD_LINK_NUL:
			et_link_text(&t, l, "a\0b", 3);
			break;
		case BAD_NS:
			t.v[f].in.mtime_ns = 1000000000;
			break;
		case BAD_XATTR_PREFIX:
			et_xattr(&t, f, "system.posix_acl_access", "", 0);
			break;
		case BAD_XATTR_TRUSTED:
			et_xattr(&t, f, "trusted.overlay.opaque", "y", 1);
			break;
		case BAD_XATTR_BARE:
			et_xattr(&t, f, "user.", "", 0);
			break;
		case BAD_XATTR_TWICE:
			et_xattr(&t, f, "user.a", "", 0);
			et_xattr(&t, f, "user.a", "", 0);
			break;
		case BAD_XATTR_VALUE:
			et_xattr(&t, f, "user.a", big, EROFS_XATTR_VALUE_MAX + 1);
			want = -EFBIG;
			break;
		case BAD_XATTRS_MANY:
			t.v[f].in.n_xattrs = EROFS_XATTRS_MAX + 1;
			want = -EFBIG;
			break;
		}
		int got = write_only(&t, &opts, &r, &err);
		if (got != want)
			fail_msg("case %d: got %d, want %d: %s", (int)b, got, want, err.text);
		if (want && (err.code != want || !err.text[0]))
			fail_msg("case %d: no text", (int)b);
		if (b == BAD_XATTRS_MANY)
			t.v[f].in.n_xattrs = 0;
		et_fini(&t);
	}
}

static int inode_gone(void *arg UNUSED, uint32_t i UNUSED, struct erofs_inode *out UNUSED)
{
	return -ESTALE;
}

static void test_errors(void **state UNUSED)
{
	struct erofs_result r;
	struct err err;
	struct et t;

	et_init(&t);
	struct erofs_source src = et_source(&t);
	AUTO_CLOSE int ro = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(erofs_write(ro, &src, &opts, &r, &err), -EBADF);
	assert_int_equal(err.code, -EBADF);
	assert_int_equal(erofs_write(ro, &src, &opts, &r, NULL), -EBADF);
	src.inode = inode_gone;
	assert_int_equal(erofs_write(ro, &src, &opts, &r, &err), -ESTALE);
	src.n_inodes = 0;
	assert_int_equal(erofs_write(ro, &src, &opts, &r, &err), -EINVAL);
	src.n_inodes = EROFS_INODES_MAX + 1;
	assert_int_equal(erofs_write(ro, &src, &opts, &r, &err), -EFBIG);
	struct erofs_opts o = opts;
	o.meta_block = 0;
	src = et_source(&t);
	assert_int_equal(erofs_write(ro, &src, &o, &r, &err), -EFBIG);
	o.meta_block = 1ull << 32;
	assert_int_equal(erofs_write(ro, &src, &o, &r, &err), -EFBIG);
	et_fini(&t);
}

/* A source whose second answer differs from the first is found out. */
static int flip_calls;

static int inode_flips(void *arg, uint32_t i, struct erofs_inode *out)
{
	struct et *t = arg;

	*out = t->v[i].in;
	if (++flip_calls > (int)t->n && S_ISDIR(out->mode))
		out->n_dirents--;
	return 0;
}

static void test_source_changes(void **state UNUSED)
{
	struct erofs_result r;
	struct err err;
	struct et t;

	et_init(&t);
	(void)add_file(&t, 0, "a", 1);
	struct erofs_source src = et_source(&t);
	src.inode = inode_flips;
	flip_calls = 0;
	AUTO_CLOSE int fd = fd_memfd("image");
	assert_int_equal(erofs_write(fd, &src, &opts, &r, &err), -EINVAL);
	et_fini(&t);
}

static void test_chance(void **state UNUSED)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct et_rng rng = { .seeded = true, .state = seed };
		char why[32];
		struct et t;

		et_init(&t);
		et_random(&t, &rng, 20 + et_pick(&rng, 2000), 1ull << 33);
		(void)snprintf(why, sizeof(why), "seed %u", (unsigned)seed);
		check(&t, &opts, why);
		et_fini(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),          cmocka_unit_test(test_names),
		cmocka_unit_test(test_tails),          cmocka_unit_test(test_exact_block),
		cmocka_unit_test(test_many_xattrs),    cmocka_unit_test(test_large),
		cmocka_unit_test(test_sizes),          cmocka_unit_test(test_placed),
		cmocka_unit_test(test_refusals),       cmocka_unit_test(test_errors),
		cmocka_unit_test(test_source_changes), cmocka_unit_test(test_chance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
