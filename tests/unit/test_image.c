/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_image.c - the pure parts of image: kernel files, initramfs, the merged
 * tree, recipes, accounts, apt's files, reports and manifests. Builds of whole
 * images are in tests/e2e.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "image/apt.h"
#include "image/cpio.h"
#include "image/image_priv.h"
#include "image/layer.h"
#include "image/kernel.h"
#include "image/tree.h"
#include "image/worker.h"

static void put_le(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* ---- bzImage ------------------------------------------------------------ */

enum { BZ_BYTES = 2048, BZ_PAYLOAD = 1024 }; /* one setup sector */

static void bz_fill(uint8_t b[BZ_BYTES], uint32_t off, uint32_t len, uint32_t elf)
{
	memset(b, 0, BZ_BYTES);
	b[0x1f1] = 1;
	memcpy(b + 0x202, "HdrS", 4);
	put_le(b + 0x206, 0x020f, 2);
	put_le(b + 0x248, off, 4);
	put_le(b + 0x24c, len, 4);
	if ((uint64_t)BZ_PAYLOAD + off + len <= BZ_BYTES && len >= 4) {
		memcpy(b + BZ_PAYLOAD + off, "\x28\xb5\x2f\xfd", 4);
		put_le(b + BZ_PAYLOAD + off + len - 4, elf, 4);
	}
}

static void test_bzimage(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		uint32_t off, len, elf;
		size_t cut;
	} t[] = {
		{ "plain", 0, 0, 100, 1000, 0 },
		{ "payload further in", 0, 500, 100, 1000, 0 },
		{ "payload up to the last byte", 0, 0, 1024, 1000, 0 },
		{ "payload one byte too long", -EPROTO, 0, 1025, 1000, 0 },
		{ "offset beyond the file", -EPROTO, 5000, 100, 1000, 0 },
		{ "offset and length wrap", -EPROTO, 0xffffffff, 0xffffffff, 1000, 0 },
		{ "shortest payload", 0, 0, 16, 1, 0 },
		{ "one below", -EPROTO, 0, 15, 1, 0 },
		{ "unpacks to nothing", -EPROTO, 0, 100, 0, 0 },
		{ "unpacks to the limit", 0, 0, 100, KERNEL_ELF_MAX, 0 },
		{ "one over the limit", -EPROTO, 0, 100, KERNEL_ELF_MAX + 1u, 0 },
		{ "header cut short", -EPROTO, 0, 100, 1000, BZ_BYTES - 0x24f },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint8_t b[BZ_BYTES];
		struct bzimage z;
		bz_fill(b, t[i].off, t[i].len, t[i].elf);
		int got = bzimage_payload(&z, span_of(b, BZ_BYTES - t[i].cut));
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		if (got == 0) {
			assert_int_equal(z.elf_bytes, t[i].elf);
			assert_int_equal(z.payload.len, t[i].len - 4); /* zstd: without the size */
			assert_ptr_equal(z.payload.p, b + BZ_PAYLOAD + t[i].off);
		}
	}
	static const struct {
		const char *magic;
		size_t n;
		enum bzimage_kind kind;
		size_t trailer;
	} kinds[] = {
		{ "\x1f\x8b", 2, BZIMAGE_GZIP, 0 }, /* its own size is part of the stream */
		{ "\xfd"
		  "7zXZ\0",
		  6, BZIMAGE_XZ, 4 },
		{ "\x02\x21\x4c\x18", 4, BZIMAGE_LZ4, 4 },
		{ "\x28\xb5\x2f\xfd", 4, BZIMAGE_ZSTD, 4 },
	};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		uint8_t b[BZ_BYTES];
		struct bzimage z;
		bz_fill(b, 0, 100, 1000);
		memcpy(b + BZ_PAYLOAD, kinds[i].magic, kinds[i].n);
		assert_int_equal(bzimage_payload(&z, span_of(b, BZ_BYTES)), 0);
		assert_int_equal(z.kind, kinds[i].kind);
		assert_int_equal(z.payload.len, 100 - kinds[i].trailer);
	}
	uint8_t b[BZ_BYTES];
	struct bzimage z;
	bz_fill(b, 0, 100, 1000);
	memcpy(b + BZ_PAYLOAD, "BZh9", 4);
	assert_int_equal(bzimage_payload(&z, span_of(b, BZ_BYTES)), -EPROTO); /* bzip2: not ours */
	bz_fill(b, 0, 100, 1000);
	put_le(b + 0x206, 0x0207, 2);
	assert_int_equal(bzimage_payload(&z, span_of(b, BZ_BYTES)), -EPROTO); /* older protocol */
	bz_fill(b, 0, 100, 1000);
	b[0x202] = 'h';
	assert_int_equal(bzimage_payload(&z, span_of(b, BZ_BYTES)), -EPROTO);
}

/* ---- ELF ---------------------------------------------------------------- */

enum { ELF_BYTES = 512, NOTE_AT = 256 };

static void elf_head(uint8_t *b, unsigned type)
{
	memcpy(b, ELFMAG, SELFMAG);
	b[EI_CLASS] = ELFCLASS64;
	b[EI_DATA] = ELFDATA2LSB;
	b[EI_VERSION] = EV_CURRENT;
	put_le(b + 16, type, 2);
	put_le(b + 18, EM_X86_64, 2);
}

static void vmlinux_fill(uint8_t b[ELF_BYTES])
{
	memset(b, 0, ELF_BYTES);
	elf_head(b, ET_EXEC);
	put_le(b + 32, 64, 8); /* phoff */
	put_le(b + 54, 56, 2);
	put_le(b + 56, 2, 2);
	uint8_t *load = b + 64, *note = b + 120;
	put_le(load, PT_LOAD, 4);
	put_le(load + 8, 0, 8);
	put_le(load + 32, ELF_BYTES, 8);
	put_le(load + 40, ELF_BYTES, 8);
	put_le(note, PT_NOTE, 4);
	put_le(note + 8, NOTE_AT, 8);
	put_le(note + 32, 40, 8);
	put_le(note + 40, 40, 8);
	uint8_t *n = b + NOTE_AT;
	put_le(n, 4, 4); /* another note first: "GNU", 4 bytes */
	put_le(n + 4, 4, 4);
	put_le(n + 8, 1, 4);
	memcpy(n + 12, "GNU", 4);
	n += 20;
	put_le(n, 4, 4);
	put_le(n + 4, 4, 4);
	put_le(n + 8, 18, 4);
	memcpy(n + 12, "Xen", 4);
	put_le(n + 16, 0x1000000, 4);
}

static void test_kernel_elf(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		size_t at, n;
		uint64_t v;
	} t[] = {
		{ "as it should be", 0, 511, 1, 0 },
		{ "no magic", -EPROTO, 0, 1, 0 },
		{ "32 bits", -EPROTO, EI_CLASS, 1, ELFCLASS32 },
		{ "big endian", -EPROTO, EI_DATA, 1, ELFDATA2MSB },
		{ "relocatable", -EPROTO, 16, 2, ET_REL },
		{ "another machine", -EPROTO, 18, 2, EM_AARCH64 },
		{ "no program headers", -EPROTO, 56, 2, 0 },
		{ "too many", -EPROTO, 56, 2, 65 },
		{ "headers beyond the file", -EPROTO, 32, 8, ELF_BYTES - 56 },
		{ "headers wrap around", -EPROTO, 32, 8, UINT64_MAX },
		{ "segment ends at the end", 0, 64 + 32, 8, ELF_BYTES },
		{ "segment one too long", -EPROTO, 64 + 32, 8, ELF_BYTES + 1 },
		{ "smaller in memory", -EPROTO, 64 + 40, 8, ELF_BYTES - 1 },
		{ "note of another type", -EPROTO, NOTE_AT + 28, 4, 17 },
		{ "note of another owner", -EPROTO, NOTE_AT + 32, 1, 'Y' },
		{ "note longer than its segment", -EPROTO, NOTE_AT + 24, 4, 5000 },
		{ "name longer than its segment", -EPROTO, NOTE_AT + 20, 4, 0xffffffff },
		{ "entry zero", -EPROTO, NOTE_AT + 36, 4, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint8_t b[ELF_BYTES];
		uint64_t entry = 0;
		vmlinux_fill(b);
		put_le(b + t[i].at, t[i].v, t[i].n);
		int got = kernel_elf_check(span_of(b, sizeof(b)), &entry);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		if (got == 0)
			assert_int_equal(entry, 0x1000000);
	}
}

/* A module with a .modinfo of @info; returns its length. */
static size_t ko_fill(uint8_t *b, size_t cap, const char *info, size_t n)
{
	static const char names[] = "\0.shstrtab\0.modinfo";
	size_t at = 64;

	memset(b, 0, cap);
	elf_head(b, ET_REL);
	memcpy(b + at, names, sizeof(names));
	size_t info_at = at + sizeof(names);
	memcpy(b + info_at, info, n);
	size_t sh = info_at + n;
	put_le(b + 40, sh, 8);
	put_le(b + 58, 64, 2);
	put_le(b + 60, 3, 2);
	put_le(b + 62, 1, 2);
	put_le(b + sh + 64, 1, 4);
	put_le(b + sh + 64 + 24, at, 8);
	put_le(b + sh + 64 + 32, sizeof(names), 8);
	put_le(b + sh + 128, 11, 4);
	put_le(b + sh + 128 + 4, SHT_PROGBITS, 4);
	put_le(b + sh + 128 + 24, info_at, 8);
	put_le(b + sh + 128 + 32, n, 8);
	return sh + 192;
}

static void test_kmod_slim(void **state UNUSED)
{
	static const char tail[] = "~Module signature appended~\n";
	static const struct {
		const char *why;
		uint32_t data; /* length that the signature names */
		bool cut;
	} t[] = {
		{ "signature of 5 bytes", 5, true },
		{ "nothing in it", 0, true },
		{ "longer than the file", 4096, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint8_t b[1024], was[1024];
		size_t n = ko_fill(b, sizeof(b), "depends=\0", 9);
		size_t at = n + 5;
		memset(b + n, 'S', 5);
		at = n + MIN(t[i].data, 5u);
		memset(b + at, 0, 12);
		b[at + 10] = (uint8_t)(t[i].data >> 8);
		b[at + 11] = (uint8_t)t[i].data;
		memcpy(b + at + 12, tail, sizeof(tail) - 1);
		size_t len = at + 12 + sizeof(tail) - 1;
		memcpy(was, b, sizeof(was));
		size_t got = kmod_slim(b, len);
		if (got != (t[i].cut ? n : len))
			fail_msg("%s: %zu of %zu bytes left", t[i].why, got, len);
		if (memcmp(b, was, len) != 0)
			fail_msg("%s: more than the end was changed", t[i].why);
		struct kmod_deps d;
		if (t[i].cut)
			assert_int_equal(kmod_depends(&d, span_of(b, got)), 0);
	}
	/* the section .modinfo under the name of the type information: hidden; else kept */
	static const struct {
		const char *name;
		bool hidden;
	} s[] = { { ".BTF\0xxx", true }, { ".BTF.base", true }, { ".BTFxxxx", false } };
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		uint8_t b[1024];
		size_t n = ko_fill(b, sizeof(b), "depends=\0", 9);
		size_t sh = n - 192;
		/* a fourth header, named by bytes behind it */
		uint8_t *h = b + n;
		memset(h, 0, 64);
		put_le(b + 60, 4, 2);
		memcpy(h + 64, s[i].name, 9);
		put_le(b + sh + 64 + 32, (uint64_t)(h + 74 - b) - 64, 8);
		put_le(h, (uint64_t)(h + 64 - b) - 64, 4);
		put_le(h + 4, SHT_PROGBITS, 4);
		put_le(h + 32, 7, 8);
		assert_int_equal(kmod_slim(b, n + 74), n + 74);
		if ((h[32] == 0) != s[i].hidden || (h[4] == 0) != s[i].hidden)
			fail_msg("%s: size %u, type %u", s[i].name, h[32], h[4]);
	}
	assert_int_equal(kmod_slim((uint8_t[]){ 1, 2, 3 }, 3), 3);
}

static void test_kmod_depends(void **state UNUSED)
{
#define INFO(s) s, sizeof(s) - 1
	static const struct {
		const char *why;
		int want;
		const char *info;
		size_t n;
		size_t deps;
	} t[] = {
		{ "none", 0, INFO("license=GPL\0depends=\0name=x\0"), 0 },
		{ "not said", 0, INFO("license=GPL\0"), 0 },
		{ "one", 0, INFO("depends=virtio\0"), 1 },
		{ "two", 0, INFO("a=b\0depends=virtio-rng,failover\0"), 2 },
		{ "empty section", 0, INFO(""), 0 },
		{ "no final NUL", -EPROTO, INFO("depends=virtio"), 0 },
		{ "empty name", -EPROTO, INFO("depends=a,,b\0"), 0 },
		{ "a path as name", -EPROTO, INFO("depends=../x\0"), 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint8_t b[1024];
		struct kmod_deps d;
		size_t n = ko_fill(b, sizeof(b), t[i].info, t[i].n);
		int got = kmod_depends(&d, span_of(b, n));
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		if (got == 0)
			assert_int_equal(d.n, t[i].deps);
		if (got == 0 && kmod_depends(&d, span_of(b, n - 1)) != -EPROTO)
			fail_msg("%s: one byte less is accepted", t[i].why);
	}
	for (size_t k = KMOD_DEPS_MAX - 1; k <= KMOD_DEPS_MAX + 1; k++) {
		uint8_t b[1024];
		char info[300] = "depends=a";
		struct kmod_deps d;
		for (size_t i = 1; i < k; i++)
			strcat(info, ",a");
		size_t n = ko_fill(b, sizeof(b), info, strlen(info) + 1);
		assert_int_equal(kmod_depends(&d, span_of(b, n)), k <= KMOD_DEPS_MAX ? 0 : -EPROTO);
	}
}

static struct kmod km(const char *name, const char *d1, const char *d2)
{
	struct kmod k = { .name = span_str(name), .is_wanted = true };

	if (d1)
		k.deps.name[k.deps.n++] = span_str(d1);
	if (d2)
		k.deps.name[k.deps.n++] = span_str(d2);
	return k;
}

static void test_kmod_order(void **state UNUSED)
{
	uint16_t order[KMOD_LIST_MAX];
	struct kmod mods[] = {
		km("virtio_net", "net-failover", "built_in"),
		km("failover", NULL, NULL),
		km("net_failover", "failover", NULL),
		km("erofs", NULL, NULL),
	};

	assert_int_equal(kmod_order(mods, 4, order), 4);
	assert_int_equal(order[0], 1); /* failover, net_failover, virtio_net, erofs */
	assert_int_equal(order[1], 2);
	assert_int_equal(order[2], 0);
	assert_int_equal(order[3], 3);
	mods[0].is_wanted = mods[1].is_wanted = mods[2].is_wanted = false;
	assert_int_equal(kmod_order(mods, 4, order), 1);
	struct kmod circle[] = { km("a", "b", NULL), km("b", "a", NULL) };
	assert_int_equal(kmod_order(circle, 2, order), -EPROTO);
	struct kmod self[] = { km("a", "a", NULL) };
	assert_int_equal(kmod_order(self, 1, order), -EPROTO);
	assert_true(span_eq(kmod_name_of_path(span_str("./a/b/virtio-rng.ko.xz")),
	                    span_str("virtio-rng")));
	assert_true(span_eq(kmod_name_of_path(span_str("x.ko")), span_str("x")));
	assert_int_equal(kmod_name_of_path(span_str("a/.ko")).len, 0);
	assert_int_equal(kmod_name_of_path(span_str("a/x.kon")).len, 0);
	assert_int_equal(kmod_name_of_path(span_str("a/x.ko/")).len, 0);
}

/* ---- cpio --------------------------------------------------------------- */

static void test_cpio(void **state UNUSED)
{
	struct cpio c = { 0 };

	assert_int_equal(cpio_add(&c, "a", S_IFREG | 0755, span_str("hello")), 0);
	/* 110 of head, "a\0", 5 of data padded to 8 */
	assert_int_equal(c.out.len, 112 + 8);
	assert_memory_equal(c.out.p, "07070100000001000081ed", 22);
	assert_memory_equal(c.out.p + 112, "hello\0\0\0", 8);
	assert_int_equal(cpio_add(&c, "d", S_IFDIR | 0755, span_str("")), 0);
	assert_int_equal(cpio_end(&c), 0);
	assert_int_equal(c.out.len % 512, 0);
	assert_int_equal(cpio_add(&c, "/a", S_IFREG | 0755, span_str("")), -EINVAL);
	assert_int_equal(cpio_add(&c, "", S_IFREG | 0755, span_str("")), -EINVAL);
	assert_int_equal(cpio_add(&c, "l", S_IFLNK | 0777, span_str("x")), -EINVAL);
	cpio_fini(&c);
}

/* ---- tree --------------------------------------------------------------- */

static const struct tree_meta t_file = { .mode = S_IFREG | 0644, .size = 5 };
static const struct tree_meta t_dir = { .mode = S_IFDIR | 0700, .uid = 3 };

static int add(struct tree *t, const char *path, const struct tree_meta *m)
{
	uint32_t node;
	int r = tree_add(t, span_str(path), m, &node);

	if (r == 0 && S_ISREG(m->mode))
		tree_set_block(t, node, 1);
	return r;
}

static uint32_t at(struct tree *t, const char *path)
{
	return tree_lookup(t, span_str(path));
}

static void test_tree_paths(void **state UNUSED)
{
	static const struct tree_meta link = { .mode = S_IFLNK,
		                               .link = { (const uint8_t *)"d", 1 } };
	static const struct {
		const char *why;
		int want;
		const char *path;
	} t[] = {
		{ "plain", 0, "a" },
		{ "dot in front", 0, "./b/c" },
		{ "several dots", 0, "././b/d" },
		{ "absolute", -EPROTO, "/a" },
		{ "up", -EPROTO, "../a" },
		{ "up inside", -EPROTO, "d/../a" },
		{ "up at the end", -EPROTO, "d/.." },
		{ "dot inside", -EPROTO, "d/./a" },
		{ "two slashes", -EPROTO, "d//a" },
		{ "two slashes behind", -EPROTO, "d/a//" },
		{ "empty", -EPROTO, "" },
		{ "a file for the root", -EPROTO, "./" },
		{ "through a symlink", -EPROTO, "l/a" },
		{ "through a file", -EPROTO, "f/a" },
		{ "through a device", -EPROTO, "null/a" },
		{ "parents made", 0, "x/y/z" },
	};
	static const struct tree_meta dev = { .mode = S_IFCHR | 0666, .rdev = 259 };
	struct tree *tr = tree_new(NULL);

	assert_int_equal(add(tr, "d/", &t_dir), 0);
	assert_int_equal(add(tr, "f", &t_file), 0);
	assert_int_equal(add(tr, "l", &link), 0);
	assert_int_equal(add(tr, "null", &dev), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int got = add(tr, t[i].path, &t_file);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
	}
	assert_int_equal(tree_mode(tr, at(tr, "x/y")), S_IFDIR | 0755);
	assert_int_equal(tree_mode(tr, at(tr, "./")), S_IFDIR | 0755);
	assert_int_equal(add(tr, ".", &t_dir), 0);
	assert_int_equal(tree_mode(tr, at(tr, ".")), S_IFDIR | 0700);
	tree_free(tr);
}

static void test_tree_replace(void **state UNUSED)
{
	struct tree *t = tree_new(NULL);
	struct erofs_source s;
	struct erofs_inode in;
	struct erofs_dirent d;

	assert_int_equal(add(t, "d/e/f", &t_file), 0);
	assert_int_equal(add(t, "d/e/g", &t_file), 0);
	uint32_t old = at(t, "d/e/f");
	assert_int_equal(add(t, "d/e/f", &t_file), 0);
	assert_int_not_equal(at(t, "d/e/f"), old);
	/* a directory on a directory keeps what is in it */
	assert_int_equal(add(t, "d/e", &t_dir), 0);
	assert_int_not_equal(at(t, "d/e/g"), TREE_NONE);
	assert_int_equal(tree_mode(t, at(t, "d/e")), S_IFDIR | 0700);
	/* a file on a directory takes all below away */
	assert_int_equal(add(t, "d", &t_file), 0);
	assert_int_equal(at(t, "d/e"), TREE_NONE);
	assert_int_equal(add(t, "d/e", &t_file), -EPROTO);
	/* hard links */
	assert_int_equal(tree_add_link(t, span_str("./h"), span_str("./d")), 0);
	assert_int_equal(at(t, "h"), at(t, "d"));
	assert_int_equal(tree_add_link(t, span_str("h"), span_str("h")), 0);
	assert_int_equal(tree_add_link(t, span_str("i"), span_str("nothing")), -EPROTO);
	assert_int_equal(add(t, "x/y/z", &t_file), 0);
	assert_int_equal(tree_add_link(t, span_str("i"), span_str("x")), -EPROTO); /* directory */
	assert_int_equal(tree_add_link(t, span_str("../i"), span_str("d")), -EPROTO);
	/* the target lies in the directory that the link replaces */
	uint32_t z = at(t, "x/y/z");
	assert_int_equal(tree_add_link(t, span_str("x"), span_str("x/y/z")), 0);
	assert_int_equal(at(t, "x"), z);
	/* removal */
	assert_int_equal(add(t, "q/r/s", &t_file), 0);
	assert_int_equal(add(t, "q/t", &t_file), 0);
	assert_int_equal(tree_empty(t, span_str("q")), 0);
	assert_int_equal(at(t, "q/r"), TREE_NONE);
	assert_int_equal(tree_remove(t, span_str("q")), 0);
	assert_int_equal(tree_remove(t, span_str("q")), -ENOENT);
	assert_int_equal(tree_empty(t, span_str("h")), -ENOENT);
	assert_int_equal(add(t, "q", &t_file), 0);
	/* what the writer sees: root, d = h, q, x, in order */
	assert_int_equal(tree_source(t, &s), 0);
	assert_int_equal(s.n_inodes, 4);
	assert_int_equal(s.inode(s.arg, 0, &in), 0);
	assert_int_equal(in.n_dirents, 4);
	static const char *const names[] = { "d", "h", "q", "x" };
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(s.dirent(s.arg, 0, i, &d), 0);
		assert_true(span_eq(d.name, span_str(names[i])));
	}
	tree_free(t);
}

static void test_tree_limits(void **state UNUSED)
{
	struct tree_limits lim = { .entries = 3, .bytes = 10 };
	struct tree *t = tree_new(&lim);
	char name[PATH_NAME_MAX + 3] = { 0 };

	assert_int_equal(add(t, "a", &t_file), 0); /* the root is one */
	assert_int_equal(add(t, "b", &t_file), 0);
	assert_int_equal(add(t, "c", &t_dir), -EFBIG);
	tree_free(t);
	lim.entries = 10;
	t = tree_new(&lim);
	assert_int_equal(add(t, "a", &t_file), 0);
	assert_int_equal(add(t, "a", &t_file), 0); /* replaced data stays in the image */
	struct tree_meta one = { .mode = S_IFREG, .size = 1 };
	assert_int_equal(add(t, "b", &one), -EFBIG);
	one.size = UINT64_MAX;
	assert_int_equal(add(t, "b", &one), -EFBIG);
	tree_free(t);
	t = tree_new(NULL);
	for (int n = PATH_NAME_MAX - 1; n <= PATH_NAME_MAX + 1; n++) {
		memset(name, 'n', (size_t)n);
		name[n] = '\0';
		assert_int_equal(add(t, name, &t_file), n <= PATH_NAME_MAX ? 0 : -EPROTO);
	}
	for (int depth = TREE_DEPTH_MAX - 1; depth <= TREE_DEPTH_MAX + 1; depth++) {
		char path[2 * TREE_DEPTH_MAX + 8] = { 0 };
		for (int i = 0; i < depth; i++)
			strcat(path, i ? "/e" : "e");
		assert_int_equal(add(t, path, &t_dir), depth <= TREE_DEPTH_MAX ? 0 : -EPROTO);
	}
	assert_int_equal(tree_remove(t, span_str("e")), 0); /* without recursion */
	uint8_t text[EROFS_LINK_MAX + 1];
	memset(text, 'l', sizeof(text));
	for (size_t n = EROFS_LINK_MAX - 1; n <= EROFS_LINK_MAX + 1; n++) {
		struct tree_meta m = { .mode = S_IFLNK, .link = span_of(text, n) };
		assert_int_equal(add(t, "link", &m), n <= EROFS_LINK_MAX ? 0 : -EPROTO);
	}
	struct tree_meta m = { .mode = S_IFLNK };
	assert_int_equal(add(t, "link", &m), -EPROTO);
	m.mode = 0;
	assert_int_equal(add(t, "odd", &m), -EPROTO);
	tree_free(t);
}

static void test_tree_xattrs(void **state UNUSED)
{
	struct erofs_xattr x[TREE_XATTRS_MAX + 2] = {
		{ span_str("security.capability"), span_str("12345") },
		{ span_str("user.note"), span_str("") },
		{ span_str("trusted.overlay.opaque"), span_str("y") },
		{ span_str("security.selinux"), span_str("u") },
		{ span_str("user."), span_str("u") },
	};
	struct tree_meta m = { .mode = S_IFREG | 0755, .xattrs = x, .n_xattrs = 5 };
	struct tree *t = tree_new(NULL);
	struct erofs_source s;
	struct erofs_inode in;

	assert_int_equal(add(t, "f", &m), 0);
	assert_int_equal(tree_xattrs_dropped(t), 1);
	assert_int_equal(tree_source(t, &s), 0);
	assert_int_equal(s.inode(s.arg, 1, &in), 0);
	assert_int_equal(in.n_xattrs, 2);
	assert_true(span_eq(in.xattrs[0].value, span_str("12345")));
	x[1] = x[0]; /* twice the same name */
	assert_int_equal(add(t, "g", &m), -EPROTO);
	char names[ARRAY_LEN(x)][16];
	for (size_t i = 0; i < ARRAY_LEN(x); i++) {
		(void)snprintf(names[i], sizeof(names[i]), "user.%zu", i);
		x[i].name = span_str(names[i]);
	}
	for (m.n_xattrs = TREE_XATTRS_MAX - 1; m.n_xattrs <= TREE_XATTRS_MAX + 1; m.n_xattrs++)
		assert_int_equal(add(t, "h", &m), m.n_xattrs <= TREE_XATTRS_MAX ? 0 : -EFBIG);
	tree_free(t);
}

/* Names come and go without end: the table must not fill up with graves. */
static void test_tree_churn(void **state UNUSED)
{
	struct tree *t = tree_new(NULL);

	for (int i = 0; i < 20000; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "d/%d", i);
		assert_int_equal(add(t, name, &t_file), 0);
		if (i % 100 == 99)
			assert_int_equal(tree_empty(t, span_str("d")), 0);
	}
	assert_int_equal(at(t, "d/1"), TREE_NONE);
	tree_free(t);
}

/* ---- recipes and accounts ----------------------------------------------- */

static void test_recipes(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		const char *text;
	} t[] = {
		{ "smallest", 0, "name a\n" },
		{ "no name", -EINVAL, "packages b\n" },
		{ "two names", -EINVAL, "name a\nname b\n" },
		{ "all verbs", 0,
		  "name a\npackages b c\nempty d\ndrop e/f\ndir 0755 0 0 g\nlink h i\n"
		  "copy 0644 1 1 j k\nfile 0600 0 0 l\n| m\n|\nuser n 1000 1000 /o /p\n" },
		{ "unknown verb", -EINVAL, "name a\nrun b\n" },
		{ "absolute path", -EINVAL, "name a\ndrop /etc\n" },
		{ "path goes up", -EINVAL, "name a\ndrop a/../b\n" },
		{ "mode too big", -EINVAL, "name a\ndir 10000 0 0 b\n" },
		{ "mode not octal", -EINVAL, "name a\ndir 0785 0 0 b\n" },
		{ "words left over", -EINVAL, "name a\ndrop b c\n" },
		{ "text without a file", -EINVAL, "name a\n| b\n" },
		{ "package is an option", -EINVAL, "name a\npackages -b\n" },
		{ "package with a comma", -EINVAL, "name a\npackages b,c\n" },
		{ "include of nothing", -EINVAL, "name a\ninclude b\n" },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct recipe r = { 0 };
		int got = recipe_parse(&r, span_str(t[i].text), NULL, NULL);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		if (got == 0 && r.n_steps) {
			assert_int_equal(r.n_steps, 7);
			assert_int_equal(r.n_packages, 2);
			assert_true(span_eq(recipe_step_body(&r, &r.steps[5]), span_str("m\n\n")));
		}
		recipe_fini(&r);
	}
	/* those that are built in */
	for (size_t k = 0; image_recipe_name(k); k++) {
		struct recipe r = { 0 };
		assert_int_equal(recipe_load(&r, image_recipe_name(k), NULL), 0);
		assert_true(span_eq(r.name, span_str(image_recipe_name(k))));
		assert_true(r.n_packages > 10); /* base is in all of them */
		recipe_fini(&r);
	}
	struct recipe base = { 0 }, minimal = { 0 }, node = { 0 };
	struct hash a, b, c;
	struct err err = { 0 };
	assert_int_equal(recipe_load(&base, "base", NULL), 0);
	assert_int_equal(recipe_load(&minimal, "minimal", NULL), 0);
	assert_int_equal(recipe_load(&node, "node", NULL), 0);
	recipe_hash(&base, "trixie", &a);
	recipe_hash(&minimal, "trixie", &b);
	assert_true(hash_eq(&a, &b));
	recipe_hash(&base, "bookworm", &b);
	assert_false(hash_eq(&a, &b));
	recipe_hash(&node, "trixie", &c);
	assert_false(hash_eq(&a, &c));
	base.steps[base.n_steps - 1].mode ^= 1;
	recipe_hash(&base, "trixie", &b);
	assert_false(hash_eq(&a, &b));
	assert_int_equal(recipe_load(&base, "nothing", &err), -ENOENT);
	assert_non_null(strstr(err.hint, "node"));
	recipe_fini(&base);
	recipe_fini(&minimal);
	recipe_fini(&node);
}

static void set(struct buf *b, const char *s)
{
	b->len = 0;
	assert_int_equal(buf_put(b, s, strlen(s)), 0);
}

static void is(const struct buf *b, const char *s)
{
	if (b->len != strlen(s) || memcmp(b->p, s, b->len) != 0)
		fail_msg("got '%.*s', want '%s'", (int)b->len, (const char *)b->p, s);
}

static void test_accounts(void **state UNUSED)
{
	AUTO_BUF struct buf pw = { 0 }, gr = { 0 }, sh = { 0 };
	struct span agent = span_str("agent"), home = span_str("/home/agent"),
		    bash = span_str("/bin/bash");

	set(&pw, "root:x:0:0:root:/root:/bin/bash"); /* without a final newline */
	set(&gr, "root:x:0:\n");
	set(&sh, "root::1:0:99999:7:::\nmail:*:1::::::\nbin:$y$x:1::::::\n");
	assert_int_equal(account_add(&pw, &gr, &sh, agent, 1000, 1000, home, bash), 1);
	is(&pw, "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n");
	is(&gr, "root:x:0:\nagent:x:1000:\n");
	assert_int_equal(account_lock_all(&sh), 0);
	is(&sh, "root:!:1:0:99999:7:::\nmail:*:1::::::\nbin:!$y$x:1::::::\nagent:!:::::::\n");
	/* a second time, and an image with a user of its own */
	assert_int_equal(account_add(&pw, &gr, &sh, agent, 1000, 1000, home, bash), 0);
	set(&pw, "node:x:1000:1000::/home/node:/bin/sh\n");
	assert_int_equal(account_add(&pw, &gr, &sh, agent, 1000, 1000, home, bash), 0);
	is(&pw, "node:x:1000:1000::/home/node:/bin/sh\n");
	set(&pw, "agent:x:1001:1001::/:/bin/sh\n");
	assert_int_equal(account_add(&pw, &gr, &sh, agent, 1000, 1000, home, bash), -EEXIST);
	/* nothing there at all */
	pw.len = gr.len = sh.len = 0;
	assert_int_equal(account_add(&pw, &gr, &sh, agent, 1000, 1000, home, bash), 1);
	is(&gr, "agent:x:1000:\n");
}

/* ---- apt ---------------------------------------------------------------- */

static void test_apt_sources(void **state UNUSED)
{
	static struct apt_entries e;

	apt_parse_list(
		span_str("# comment\n"
	                 "deb http://a.example/debian/ trixie main # more\n"
	                 "deb-src http://a.example/debian trixie main\n"
	                 "deb [arch=amd64 signed-by=/k.gpg] https://b.example/x y-security main\n"
	                 "deb cdrom:[Debian]/ trixie main\n"
	                 "deb [ signed-by=/k http://c.example/d e main\n"
	                 "deb http://d.example/\"x e main\n"
	                 "deb\n deb\thttp://e.example\tf"),
		&e);
	assert_int_equal(e.n, 3);
	assert_string_equal(e.e[0].uri, "http://a.example/debian");
	assert_string_equal(e.e[0].suite, "trixie");
	assert_string_equal(e.e[1].signed_by, "/k.gpg");
	assert_string_equal(e.e[2].uri, "http://e.example");
	e.n = 0;
	apt_parse_deb822(span_str("Types: deb deb-src\nURIs: http://a.example/debian\n"
	                          "Suites: trixie trixie-updates\nComponents: main\n"
	                          "# comment\nSigned-By: /k.gpg\n\n"
	                          "types: deb\nuris: http://b.example\nsuites: s\nEnabled: no\n\n\n"
	                          "Types: deb\nURIs: http://c.example\nSuites: s\nSigned-By:\n"
	                          " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n xyz\n\n"
	                          "Types: deb-src\nURIs: http://d.example\nSuites: s\n"),
	                 &e);
	assert_int_equal(e.n, 3);
	assert_string_equal(e.e[1].suite, "trixie-updates");
	assert_string_equal(e.e[1].signed_by, "/k.gpg");
	assert_string_equal(e.e[2].uri, "http://c.example");
	assert_string_equal(e.e[2].signed_by, "");
	/* never more than there is room for */
	e.n = 0;
	AUTO_BUF struct buf many = { 0 };
	for (int i = 0; i < APT_ENTRIES_MAX + 1; i++)
		assert_int_equal(buf_printf(&many, "deb http://a.example s%d main\n", i), 0);
	apt_parse_list(span_of(many.p, many.len), &e);
	assert_int_equal(e.n, APT_ENTRIES_MAX);
}

static void test_apt_release(void **state UNUSED)
{
	char name[256];
	struct apt_entry e = { .uri = "http://user@m.example:80/a_b/debian", .suite = "s/t" };

	assert_true(apt_release_name(&e, name, sizeof(name)));
	assert_string_equal(name, "m.example:80_a%5fb_debian_dists_s_t");
	assert_false(apt_release_name(&e, name, 20));
	assert_true(apt_release_has_origin(span_str("-----BEGIN\nHash: x\n\nOrigin: Debian\n"),
	                                   "Debian"));
	assert_false(apt_release_has_origin(span_str("Origin: Debian Backports\n"), "Debian"));
	assert_false(apt_release_has_origin(span_str(""), "Debian"));
	assert_true(apt_uri_ok("http://a.example/debian"));
	assert_false(apt_uri_ok("http://user:password@a.example/debian"));
	assert_false(apt_uri_ok("ftp://a.example/debian"));
	assert_false(apt_uri_ok("http://a.example/debian trixie main [trusted=yes]"));
	assert_false(apt_uri_ok(""));
}

static void test_apt_conf(void **state UNUSED)
{
	char *out[APT_OPTIONS_MAX];
	size_t n = apt_conf_pick(span_str("APT::Architecture \"amd64\";\n"
	                                  "Acquire::http::Proxy \"http://p.example:3142/\";\n"
	                                  "Acquire::https \"\";\n"
	                                  "Acquire::https::CaInfo \"/etc/ca.pem\";\n"
	                                  "Acquire::http::Proxy::x \"a\" b\";\n"
	                                  "Acquire::Retries \"3\"\n"
	                                  "Acquire::Check-Valid-Until \"false\";"),
	                         out);

	assert_int_equal(n, 3);
	assert_string_equal(out[0], "Acquire::http::Proxy \"http://p.example:3142/\";");
	assert_string_equal(out[2], "Acquire::Check-Valid-Until \"false\";");
	for (size_t i = 0; i < n; i++)
		free(out[i]);
}

static void remove_dir(const char *dir)
{
	AUTO_CLOSE int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(path_remove_tree(tmp, dir + strlen("/tmp/")), 0);
}

static void put_file(int dir, const char *name, const char *text)
{
	AUTO_CLOSE int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void test_apt_host(void **state UNUSED)
{
	char dir[] = "/tmp/test_image.XXXXXX";
	struct apt_host h;
	struct err err = { 0 };

	assert_non_null(mkdtemp(dir));
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE char *lists = xasprintf("%s/lists", dir);
	assert_int_equal(mkdirat(fd, "lists", 0700), 0);
	assert_int_equal(mkdirat(fd, "sources.list.d", 0700), 0);
	assert_int_equal(apt_host_find(dir, lists, "trixie", &h, &err), -ENOENT);
	assert_non_null(strstr(err.hint, "image.mirror"));
	put_file(fd, "sources.list", "deb http://other.example/x trixie main\n");
	put_file(fd, "sources.list.d/debian.sources",
	         "Types: deb\nURIs: http://m.example/debian\nSuites: trixie\nSigned-By: /k.gpg\n\n"
	         "Types: deb\nURIs: http://m.example/sec\nSuites: trixie-security\n");
	put_file(fd, "lists/other.example_x_dists_trixie_Release", "Origin: Other\n");
	/* no Release file of Debian: the host's own code name decides */
	assert_int_equal(apt_host_find(dir, lists, "trixie", &h, NULL), 0);
	assert_string_equal(h.uri, "http://m.example/debian");
	assert_string_equal(h.security, "http://m.example/sec");
	assert_int_equal(apt_host_find(dir, lists, NULL, &h, NULL), -ENOENT);
	/* with one, the origin does */
	put_file(fd, "lists/m.example_debian_dists_trixie_InRelease", "Origin: Debian\n");
	assert_int_equal(apt_host_find(dir, lists, NULL, &h, NULL), 0);
	assert_string_equal(h.signed_by, "/k.gpg");
	assert_string_equal(h.security, "");
	put_file(fd, "lists/m.example_sec_dists_trixie-security_InRelease", "Origin: Debian\n");
	assert_int_equal(apt_host_find(dir, lists, NULL, &h, NULL), 0);
	assert_string_equal(h.security, "http://m.example/sec");
	remove_dir(dir);
}

/* ---- reports and manifests ---------------------------------------------- */

static void test_report(void **state UNUSED)
{
	struct worker_report r = { .entries = 7 }, got;
	uint8_t b[WORKER_REPORT_BYTES];

	memcpy(r.text, "linux-image_6.12~1+x_amd64.deb", 30);
	worker_report_put(b, &r);
	assert_int_equal(worker_report_parse(&got, b), 0);
	assert_int_equal(got.entries, 7);
	assert_string_equal(got.text, r.text);
	static const char bad[] = "/ \n\"%\x80\x1b";
	for (size_t i = 0; i < sizeof(bad) - 1; i++) {
		b[12] = (uint8_t)bad[i];
		assert_int_equal(worker_report_parse(&got, b), -EPROTO);
	}
	memset(b + 12, 'a', WORKER_TEXT_MAX);
	assert_int_equal(worker_report_parse(&got, b), 0);
	b[0] ^= 1;
	assert_int_equal(worker_report_parse(&got, b), -EPROTO);
}

static void test_manifest(void **state UNUSED)
{
	struct image_manifest m = {
		.info = { .name = "base", .id = "base-0", .suite = "trixie", .kernel_release = "6.12",
		          .built_s = 1700000000 },
		.package = "p.deb", .size = { 4096, 2, 3 },
		.digest = { { { 1 } }, { { 2 } }, { { 0xff } } },
	}, got;
	char *s = NULL;

	assert_int_equal(image_manifest_format(&m, &s), 0);
	assert_int_equal(image_manifest_parse(&got, s, strlen(s)), 0);
	assert_int_equal(got.info.size, 4101);
	assert_string_equal(got.info.kernel_release, "6.12");
	assert_true(hash_eq(&got.info.digest, &m.digest[0]));
	assert_true(hash_eq(&got.digest[2], &m.digest[2]));
	/* any byte less is no manifest */
	for (size_t n = 0; n + 2 < strlen(s); n++)
		assert_int_equal(image_manifest_parse(&got, s, n), -EBADMSG);
	static const struct {
		const char *why, *from, *to;
	} t[] = {
		{ "another schema", "\"schema\": 1", "\"schema\": 2" },
		{ "a key twice", "\"schema\": 1", "\"schema\": 1, \"schema\": 1" },
		{ "size of nothing", "\"size\": 4096", "\"size\": 0" },
		{ "negative size", "\"size\": 4096", "\"size\": -1" },
		{ "size is text", "\"size\": 4096", "\"size\": \"1\"" },
		{ "name with a slash", "\"base\"", "\"../base\"" },
		{ "name with an escape", "\"base\"", "\"b\\u001b\"" },
		{ "digest too short", "\"blake2b\": \"0100", "\"blake2b\": \"01" },
		{ "digest in capitals", "\"blake2b\": \"ff", "\"blake2b\": \"FF" },
		{ "built before time", "1700000000", "-1" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		const char *where = strstr(s, t[i].from);
		if (!where)
			fail_msg("%s: no '%s'", t[i].why, t[i].from);
		AUTO_FREE char *x = xasprintf("%.*s%s%s", (int)(where - s), s, t[i].to,
		                              where + strlen(t[i].from));
		if (image_manifest_parse(&got, x, strlen(x)) != -EBADMSG)
			fail_msg("%s: accepted", t[i].why);
	}
	free(s);
}

static void test_cache(void **state UNUSED)
{
	char dir[] = "/tmp/test_image.XXXXXX";
	struct image img = IMAGE_INIT;
	struct err err = { 0 };
	struct image_info *list = NULL;
	size_t n = 7;

	assert_non_null(mkdtemp(dir));
	AUTO_FREE char *cache = xasprintf("%s/c", dir);
	struct image_opts o = { .cache_dir = cache };
	assert_int_equal(image_list(&o, &list, &n, &err), 0);
	assert_int_equal(n, 0);
	assert_int_equal(image_open(&o, &img, &err), -ENOENT);
	assert_non_null(strstr(err.hint, "cloche image build base"));
	assert_int_equal(image_rm(&o, "base", NULL, NULL), -ENOENT);
	o.suite = "../x";
	assert_int_equal(image_open(&o, &img, NULL), -EINVAL);
	o.suite = NULL;
	o.name = "nothing";
	assert_int_equal(image_open(&o, &img, NULL), -ENOENT);
	/* an image as a build would leave it */
	o.name = NULL;
	struct image_spec spec;
	assert_int_equal(image_spec_init(&spec, &o, NULL), 0);
	AUTO_CLOSE int fd = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(fd, spec.id, 0700), 0);
	AUTO_CLOSE int sub = openat(fd, spec.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct image_manifest m = { .package = "p" };
	memcpy(m.info.name, spec.name, sizeof(m.info.name));
	memcpy(m.info.id, spec.id, sizeof(m.info.id));
	memcpy(m.info.suite, spec.suite, sizeof(m.info.suite));
	memcpy(m.info.kernel_release, "6", 2);
	for (int i = 0; i < IMAGE_FILES; i++) {
		m.size[i] = 4;
		hash_bytes(&m.digest[i], "data", 4);
		assert_int_equal(image_write_file(sub, image_file_names[i], "data", 4), 0);
	}
	char *text = NULL;
	assert_int_equal(image_manifest_format(&m, &text), 0);
	assert_int_equal(image_write_file(sub, IMAGE_MANIFEST, text, strlen(text)), 0);
	free(text);
	bool built = true;
	assert_int_equal(image_build(&o, false, NULL, NULL, &built, &err), 0);
	assert_false(built); /* nothing to do */
	assert_int_equal(image_verify(&o, &err), 0);
	assert_int_equal(image_list(&o, &list, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_true(list[0].is_current);
	free(list);
	put_file(sub, IMAGE_KERNEL, "dat4"); /* the size is right */
	assert_int_equal(image_verify(&o, &err), -EBADMSG);
	put_file(sub, IMAGE_KERNEL, "data5");
	assert_int_equal(image_open(&o, &img, &err), -EBADMSG);
	assert_non_null(strstr(err.hint, "--force"));
	put_file(sub, IMAGE_KERNEL, "data");
	assert_int_equal(image_rm(&o, "bas", &n, NULL), -ENOENT);
	assert_int_equal(image_rm(&o, "minimal", &n, &err), 0); /* base by its other name */
	assert_int_equal(n, 1);
	/* a damaged one too */
	assert_int_equal(mkdirat(fd, spec.id, 0700), 0);
	assert_int_equal(image_rm(&o, spec.id, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(image_open(&o, &img, NULL), -ENOENT);
	image_spec_fini(&spec);
	remove_dir(dir);
}

static void test_npm_names(void **state UNUSED)
{
	static const struct {
		const char *s;
		bool ok;
	} names[] = {
		{ "npm", true },         { "@a/b", true },        { "@a-b.c/d_e.f", true },
		{ "7zip", true },        { "", false },           { "@", false },
		{ "@a", false },         { "@a/", false },        { "@/b", false },
		{ "@a/b/c", false },     { "a/b", false },        { ".x", false },
		{ "-g", false },         { "@a/-b", false },      { "A", false },
		{ "a b", false },        { "a\n", false },        { "..", false },
		{ "a@1", false },        { "node_modules", false }, { "https://x", false },
	}, versions[] = {
		{ "1.2.3", true },         { "0.0.0", true },       { "0.171.0-linux-x64", true },
		{ "1.2.3-rc.1+b.2", true }, { "1.2.3+b", true },    { "", false },
		{ "1", false },            { "1.2", false },        { "1.2.3.4", false },
		{ "v1.2.3", false },       { "^1.2.3", false },     { "1.2.x", false },
		{ "latest", false },       { "01.2.3", false },     { "1.2.3-", false },
		{ "1.2.3+", false },       { "1.2.3 ", false },     { "1.2.3-a/b", false },
	}, bins[] = {
		{ "claude", true }, { "cursor-agent", true }, { "a+b_c.d", true }, { "", false },
		{ ".x", false },    { "-x", false },          { "a/b", false },    { "a b", false },
	};
	char longest[NPM_NAME_MAX + 2];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(npm_name_ok(names[i].s), names[i].ok);
	for (size_t i = 0; i < ARRAY_LEN(versions); i++)
		assert_int_equal(npm_version_ok(versions[i].s), versions[i].ok);
	for (size_t i = 0; i < ARRAY_LEN(bins); i++)
		assert_int_equal(npm_bin_ok(bins[i].s), bins[i].ok);
	memset(longest, 'a', sizeof(longest));
	longest[NPM_NAME_MAX + 1] = '\0';
	assert_false(npm_name_ok(longest));
	longest[NPM_NAME_MAX] = '\0';
	assert_true(npm_name_ok(longest));
	longest[NPM_NAME_MAX - 1] = '\0';
	assert_true(npm_name_ok(longest));
	char version[NPM_VERSION_MAX + 1];
	memset(version, '1', sizeof(version));
	memcpy(version, "1.1.", 4);
	version[NPM_VERSION_MAX] = '\0';
	assert_false(npm_version_ok(version));
	version[NPM_VERSION_MAX - 1] = '\0';
	assert_true(npm_version_ok(version));
}

/* The SHA-512 of "abc" (FIPS 180-4's example), and of nothing. */
#define SUM_ABC                                                                \
	"sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/" \
	"uu9RU1EI2Q86A4qmslPpUyknw"                                            \
	"=="
#define SUM_NONE                                               \
	"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/"            \
	"SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg" \
	"=="

static void test_npm_integrity(void **state UNUSED)
{
	static const char *const bad[] = {
		"",
		"sha512-",
		"sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0=",
		SUM_ABC " " SUM_NONE,
		SUM_ABC "\n\n",
		SUM_ABC "?opt",
		" " SUM_ABC,
		"sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/"
		"uu9RU1EI2Q86A4qmslPpUyknx==",
		"sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/"
		"uu9RU1EI2Q86A4qmslPpUykn===",
		"sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0_BqDa6PCOj/"
		"uu9RU1EI2Q86A4qmslPpUyknw==",
	};
	uint8_t sum[SHA512_BYTES], got[SHA512_BYTES];
	char text[NPM_INTEGRITY_BYTES];
	struct sha512_state s;

	sha512_init(&s);
	sha512_update(&s, "a", 1);
	sha512_update(&s, "bc", 2);
	sha512_final(&s, sum);
	npm_integrity_put(text, sum);
	assert_string_equal(text, SUM_ABC);
	assert_int_equal(npm_integrity_parse(got, span_str(SUM_ABC "\n")), 0);
	assert_memory_equal(got, sum, sizeof(sum));
	sha512_init(&s);
	sha512_final(&s, sum);
	npm_integrity_put(text, sum);
	assert_string_equal(text, SUM_NONE);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (npm_integrity_parse(got, span_str(bad[i])) != -EINVAL)
			fail_msg("taken: %s", bad[i]);
	}
}

static void test_npm_words(void **state UNUSED)
{
	static const struct {
		const char *said, *want;
	} t[] = {
		{ "", "" },
		{ "npm error code E404\nnpm error 404 Not Found - GET x\nnpm error 404\n",
		  "404 Not Found - GET x" },
		{ "npm ERR! code ETARGET\nnpm ERR! notarget No matching version found for a@1\n",
		  "notarget No matching version found for a@1" },
		{ "npm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error errno -1\n"
		  "npm error network request failed\nnpm error A complete log is in x\n",
		  "network request failed" },
		{ "node: not a program\nat all", "node: not a program" },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct span w = npm_last_words(span_str(t[i].said));
		assert_true(span_eq(w, span_str(t[i].want)));
	}
}

static void test_layer_files(void **state UNUSED)
{
	struct layer_info l = { .id = "a.b-1.2.3-0123456789ab",
		                .package = "@a/b",
		                .version = "1.2.3",
		                .integrity = SUM_ABC,
		                .built_s = 5,
		                .size = 4096 },
			  got;
	char *text = NULL, *lock = NULL, *more = NULL, found[NPM_INTEGRITY_BYTES];

	assert_int_equal(image_layer_format(&l, &text), 0);
	assert_int_equal(image_layer_parse(&got, text, strlen(text)), 0);
	assert_memory_equal(&got, &l, sizeof(l));
	for (size_t n = 0; n < strlen(text) - 2; n++)
		assert_int_equal(image_layer_parse(&got, text, n), -EBADMSG);
	free(text);
	(void)snprintf(l.version, sizeof(l.version), "latest");
	assert_int_equal(image_layer_format(&l, &text), 0);
	assert_int_equal(image_layer_parse(&got, text, strlen(text)), -EBADMSG);
	free(text);

	assert_int_equal(image_lock_put(NULL, 0, "@a/b", "1.2.3", SUM_ABC, &lock), 0);
	assert_int_equal(image_lock_get(lock, strlen(lock), "@a/b", "1.2.3", found), 1);
	assert_string_equal(found, SUM_ABC);
	assert_int_equal(image_lock_get(lock, strlen(lock), "@a/b", "1.2.4", found), 0);
	/* the same again is no change; another one keeps the first */
	assert_int_equal(image_lock_put(lock, strlen(lock), "@a/b", "1.2.3", SUM_ABC, &more), 0);
	assert_null(more);
	assert_int_equal(image_lock_put(lock, strlen(lock), "c", "1.0.0", SUM_NONE, &more), 0);
	assert_int_equal(image_lock_get(more, strlen(more), "@a/b", "1.2.3", found), 1);
	assert_int_equal(image_lock_get(more, strlen(more), "c", "1.0.0", found), 1);
	assert_string_equal(found, SUM_NONE);
	free(more);
	free(lock);
	static const char *const bad[] = { "",
		                           "{}",
		                           "[]",
		                           "{\"schema\": 2, \"npm\": {}}",
		                           "{\"schema\": 1, \"npm\": []}",
		                           "{\"schema\": 1, \"npm\": {\"c@1.0.0\": 7}}",
		                           "{\"schema\": 1, \"npm\": {}, \"npm\": {}}" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(image_lock_get(bad[i], strlen(bad[i]), "c", "1.0.0", found),
		                 -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bzimage),     cmocka_unit_test(test_kernel_elf),
		cmocka_unit_test(test_kmod_slim),   cmocka_unit_test(test_kmod_depends),
		cmocka_unit_test(test_kmod_order),  cmocka_unit_test(test_cpio),
		cmocka_unit_test(test_tree_paths),  cmocka_unit_test(test_tree_replace),
		cmocka_unit_test(test_tree_limits), cmocka_unit_test(test_tree_xattrs),
		cmocka_unit_test(test_tree_churn),  cmocka_unit_test(test_recipes),
		cmocka_unit_test(test_accounts),    cmocka_unit_test(test_apt_sources),
		cmocka_unit_test(test_apt_release), cmocka_unit_test(test_apt_conf),
		cmocka_unit_test(test_apt_host),    cmocka_unit_test(test_report),
		cmocka_unit_test(test_manifest),    cmocka_unit_test(test_cache),
		cmocka_unit_test(test_npm_names),   cmocka_unit_test(test_npm_integrity),
		cmocka_unit_test(test_npm_words),   cmocka_unit_test(test_layer_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
