/* SPDX-License-Identifier: Apache-2.0 */
#include "image/kernel.h"

#include <elf.h>
#include <errno.h>

/* The @n bytes at @off, or an empty span when they are not all there. */
static struct span sub(struct span s, uint64_t off, uint64_t n)
{
	if (off > s.len || n > s.len - off)
		return (struct span){ 0 };
	return span_of(s.p + off, (size_t)n);
}

static uint64_t le_at(struct span s, uint64_t off, size_t n)
{
	struct span b = sub(s, off, n);
	struct rd r = rd_of(b.p, b.len);

	return rd_le(&r, n); /* 0 beyond the end */
}

/* ---- bzImage ------------------------------------------------------------ */

static bool starts_with(struct span s, const char *magic, size_t n)
{
	return s.len >= n && memcmp(s.p, magic, n) == 0;
}

int bzimage_payload(struct bzimage *out, struct span image)
{
	enum { SETUP_MIN = 0x250, VERSION_PAYLOAD = 0x0208 };
	struct bzimage z = { 0 };

	if (image.len < SETUP_MIN || image.len > KERNEL_BZIMAGE_MAX)
		return -EPROTO;
	if (memcmp(image.p + 0x202, "HdrS", 4) != 0 || le_at(image, 0x206, 2) < VERSION_PAYLOAD)
		return -EPROTO;
	uint64_t sects = le_at(image, 0x1f1, 1);
	if (sects == 0)
		sects = 4; /* the protocol's default for a zero */
	uint64_t at = (sects + 1) * 512 + le_at(image, 0x248, 4);
	struct span p = sub(image, at, le_at(image, 0x24c, 4));
	if (p.len < 16) /* no compressed kernel; also: not all there */
		return -EPROTO;
	uint64_t size = le_at(p, p.len - 4, 4);
	if (size == 0 || size > KERNEL_ELF_MAX)
		return -EPROTO;
	bool keep_trailer = false;
	if (starts_with(p, "\x1f\x8b", 2)) {
		z.kind = BZIMAGE_GZIP;
		keep_trailer = true;
	} else if (starts_with(p,
	                       "\xfd"
	                       "7zXZ\0",
	                       6)) {
		z.kind = BZIMAGE_XZ;
	} else if (starts_with(p, "\x02\x21\x4c\x18", 4)) {
		z.kind = BZIMAGE_LZ4; /* the legacy frame */
	} else if (starts_with(p, "\x28\xb5\x2f\xfd", 4)) {
		z.kind = BZIMAGE_ZSTD;
	} else {
		return -EPROTO;
	}
	z.payload = span_of(p.p, keep_trailer ? p.len : p.len - 4);
	z.elf_bytes = (uint32_t)size;
	*out = z;
	return 0;
}

/* ---- ELF ---------------------------------------------------------------- */

static bool elf_is(struct span e, unsigned type)
{
	return e.len >= sizeof(Elf64_Ehdr) && memcmp(e.p, ELFMAG, SELFMAG) == 0 &&
	       e.p[EI_CLASS] == ELFCLASS64 && e.p[EI_DATA] == ELFDATA2LSB &&
	       e.p[EI_VERSION] == EV_CURRENT && le_at(e, 16, 2) == type &&
	       le_at(e, 18, 2) == EM_X86_64;
}

/* Walk one PT_NOTE segment for the PVH entry. */
static bool note_pvh(struct span notes, uint64_t *out_entry)
{
	enum { XEN_ELFNOTE_PHYS32_ENTRY = 18 };
	struct rd r = rd_of(notes.p, notes.len);

	while (r.left >= 12 && !r.bad) {
		uint64_t namesz = rd_le(&r, 4), descsz = rd_le(&r, 4), type = rd_le(&r, 4);
		struct span name = rd_take(&r, (size_t)namesz);
		(void)rd_take(&r, MIN(r.left, (size_t)(align_up(namesz, 4) - namesz)));
		struct span desc = rd_take(&r, (size_t)descsz);
		(void)rd_take(&r, MIN(r.left, (size_t)(align_up(descsz, 4) - descsz)));
		if (r.bad)
			return false;
		if (type == XEN_ELFNOTE_PHYS32_ENTRY && span_eq(name, span_of("Xen", 4)) &&
		    (desc.len == 4 || desc.len == 8)) {
			*out_entry = le_at(desc, 0, desc.len);
			return *out_entry != 0;
		}
	}
	return false;
}

int kernel_elf_check(struct span elf, uint64_t *out_pvh_entry)
{
	enum { PHDRS_MAX = 64 };
	uint64_t entry = 0;
	bool loads = false;

	if (elf.len > KERNEL_ELF_MAX || !elf_is(elf, ET_EXEC))
		return -EPROTO;
	uint64_t phoff = le_at(elf, 32, 8), phentsize = le_at(elf, 54, 2),
		 phnum = le_at(elf, 56, 2);
	if (phentsize != sizeof(Elf64_Phdr) || phnum == 0 || phnum > PHDRS_MAX)
		return -EPROTO;
	struct span table = sub(elf, phoff, phnum * phentsize);
	if (table.len == 0)
		return -EPROTO;
	for (uint64_t i = 0; i < phnum; i++) {
		struct span ph = sub(table, i * phentsize, phentsize);
		uint64_t type = le_at(ph, 0, 4), off = le_at(ph, 8, 8);
		uint64_t filesz = le_at(ph, 32, 8), memsz = le_at(ph, 40, 8);

		if (type != PT_LOAD && type != PT_NOTE)
			continue;
		struct span body = sub(elf, off, filesz);
		if (body.len != filesz)
			return -EPROTO;
		if (type == PT_LOAD) {
			if (memsz < filesz)
				return -EPROTO;
			loads = true;
		} else if (entry == 0) {
			(void)note_pvh(body, &entry); /* another segment may have it */
		}
	}
	if (!loads || entry == 0)
		return -EPROTO;
	*out_pvh_entry = entry;
	return 0;
}

/* ---- modules ------------------------------------------------------------ */

static int modinfo_section(struct span ko, struct span *out)
{
	enum { SECTIONS_MAX = 4096 };
	uint64_t shoff = le_at(ko, 40, 8), shentsize = le_at(ko, 58, 2), shnum = le_at(ko, 60, 2);
	uint64_t shstrndx = le_at(ko, 62, 2);

	if (shentsize != sizeof(Elf64_Shdr) || shnum == 0 || shnum > SECTIONS_MAX ||
	    shstrndx >= shnum)
		return -EPROTO;
	struct span table = sub(ko, shoff, shnum * shentsize);
	if (table.len == 0)
		return -EPROTO;
	struct span strsh = sub(table, shstrndx * shentsize, shentsize);
	struct span names = sub(ko, le_at(strsh, 24, 8), le_at(strsh, 32, 8));
	for (uint64_t i = 0; i < shnum; i++) {
		static const char want[] = ".modinfo"; /* with its NUL */
		struct span sh = sub(table, i * shentsize, shentsize);
		struct span name = sub(names, le_at(sh, 0, 4), sizeof(want));

		if (name.len != sizeof(want) || memcmp(name.p, want, sizeof(want)) != 0)
			continue;
		uint64_t size = le_at(sh, 32, 8);
		*out = sub(ko, le_at(sh, 24, 8), size);
		return out->len == size && le_at(sh, 4, 4) == SHT_PROGBITS ? 0 : -EPROTO;
	}
	return -EPROTO;
}

static size_t drop_signature(const uint8_t *ko, size_t len)
{
	/* Documentation/admin-guide/module-signing.rst: data, struct module_signature of 12
	 * bytes whose last 4 are the length of that data (big endian), and this text */
	static const char magic[] = "~Module signature appended~\n";
	enum { SIGNATURE_BYTES = 12, MAGIC_BYTES = sizeof(magic) - 1 };

	if (len < SIGNATURE_BYTES + MAGIC_BYTES ||
	    memcmp(ko + len - MAGIC_BYTES, magic, MAGIC_BYTES) != 0)
		return len;
	const uint8_t *n = ko + len - MAGIC_BYTES - 4;
	size_t data = (size_t)n[0] << 24 | (size_t)n[1] << 16 | (size_t)n[2] << 8 | n[3];
	size_t left = len - SIGNATURE_BYTES - MAGIC_BYTES;
	return data > left ? len : left - data;
}

size_t kmod_slim(uint8_t *ko, size_t len)
{
	struct span all = span_of(ko, len), info;

	if (!elf_is(all, ET_REL) || modinfo_section(all, &info) < 0)
		return len;
	uint64_t shoff = le_at(all, 40, 8), shnum = le_at(all, 60, 2);
	struct span table = sub(all, shoff, shnum * sizeof(Elf64_Shdr));
	struct span strsh = sub(table, le_at(all, 62, 2) * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr));
	struct span names = sub(all, le_at(strsh, 24, 8), le_at(strsh, 32, 8));
	for (uint64_t i = 0; i < shnum; i++) {
		static const char btf[] = ".BTF"; /* and .BTF.base */
		uint8_t *sh = ko + shoff + i * sizeof(Elf64_Shdr);
		struct span name = sub(names, le_at(table, i * sizeof(Elf64_Shdr), 4), sizeof(btf));

		if (name.len != sizeof(btf) || memcmp(name.p, btf, sizeof(btf) - 1) != 0 ||
		    (name.p[4] != 0 && name.p[4] != '.'))
			continue;
		/* no name, no type, no bytes: a section header that the loader passes over */
		memset(sh, 0, 16);     /* sh_name, sh_type, sh_flags */
		memset(sh + 32, 0, 8); /* sh_size */
	}
	return drop_signature(ko, len);
}

static bool kmod_name_ok(struct span s)
{
	if (s.len == 0 || s.len >= KMOD_NAME_MAX)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = s.p[i];
		bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		          (c >= '0' && c <= '9') || c == '_' || c == '-';
		if (!ok)
			return false;
	}
	return true;
}

int kmod_depends(struct kmod_deps *out, struct span ko)
{
	static const char key[] = "depends=";
	struct kmod_deps d = { 0 };
	struct span info;

	if (ko.len > KMOD_BYTES_MAX || !elf_is(ko, ET_REL))
		return -EPROTO;
	int r = modinfo_section(ko, &info);
	if (r < 0)
		return r;
	while (info.len) {
		const uint8_t *nul = memchr(info.p, 0, info.len);
		if (!nul)
			return -EPROTO;
		struct span line = span_of(info.p, (size_t)(nul - info.p));
		info = span_of(nul + 1, info.len - line.len - 1);
		if (!starts_with(line, key, sizeof(key) - 1))
			continue;
		struct span rest = span_of(line.p + sizeof(key) - 1, line.len - (sizeof(key) - 1));
		while (rest.len) {
			const uint8_t *comma = memchr(rest.p, ',', rest.len);
			size_t n = comma ? (size_t)(comma - rest.p) : rest.len;
			struct span name = span_of(rest.p, n);
			if (!kmod_name_ok(name) || d.n == KMOD_DEPS_MAX)
				return -EPROTO;
			d.name[d.n++] = name;
			rest = comma ? span_of(comma + 1, rest.len - n - 1)
			             : span_of(rest.p + n, 0);
		}
	}
	*out = d;
	return 0;
}

bool kmod_name_eq(struct span a, struct span b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++) {
		uint8_t x = a.p[i] == '-' ? '_' : a.p[i], y = b.p[i] == '-' ? '_' : b.p[i];
		if (x != y)
			return false;
	}
	return true;
}

struct span kmod_name_of_path(struct span path)
{
	static const char *const ends[] = { ".ko", ".ko.xz", ".ko.zst", ".ko.gz" };

	while (path.len) {
		const uint8_t *slash = memchr(path.p, '/', path.len);
		if (!slash)
			break;
		path = span_of(slash + 1, path.len - (size_t)(slash - path.p) - 1);
	}
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		size_t n = strlen(ends[i]);
		if (path.len <= n || memcmp(path.p + path.len - n, ends[i], n) != 0)
			continue;
		struct span name = span_of(path.p, path.len - n);
		return kmod_name_ok(name) ? name : (struct span){ 0 };
	}
	return (struct span){ 0 };
}

struct order_state {
	const struct kmod *mods;
	size_t n;
	uint8_t mark[KMOD_LIST_MAX]; /* 0 new, 1 being visited, 2 done */
	uint16_t *order;
	size_t n_order;
};

/* Depth is at most KMOD_LIST_MAX: each level marks another module. */
static int order_visit(struct order_state *s, size_t i)
{
	if (s->mark[i] == 2)
		return 0;
	if (s->mark[i] == 1)
		return -EPROTO;
	s->mark[i] = 1;
	for (size_t d = 0; d < s->mods[i].deps.n; d++) {
		for (size_t k = 0; k < s->n; k++) {
			if (!kmod_name_eq(s->mods[k].name, s->mods[i].deps.name[d]))
				continue;
			int r = order_visit(s, k);
			if (r < 0)
				return r;
			break;
		}
	}
	s->mark[i] = 2;
	s->order[s->n_order++] = (uint16_t)i;
	return 0;
}

int kmod_order(const struct kmod *mods, size_t n, uint16_t order[KMOD_LIST_MAX])
{
	uint16_t tmp[KMOD_LIST_MAX];
	struct order_state s = { .mods = mods, .n = n, .order = tmp };

	if (n > KMOD_LIST_MAX)
		return -EPROTO;
	for (size_t i = 0; i < n; i++) {
		int r = mods[i].is_wanted ? order_visit(&s, i) : 0;
		if (r < 0)
			return r;
	}
	memcpy(order, tmp, s.n_order * sizeof(tmp[0]));
	return (int)s.n_order;
}
