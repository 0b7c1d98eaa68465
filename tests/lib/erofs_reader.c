/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/erofs_reader.h"

#include <string.h>
#include <sys/stat.h>

enum { BLK = 4096, SB = 1024 };

static uint64_t le(const uint8_t *p, int n)
{
	uint64_t v = 0;

	for (int i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* Table driven, unlike the writer's. */
static uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
	static uint32_t table[256];

	if (!table[1]) {
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = i;
			for (int k = 0; k < 8; k++)
				c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
			table[i] = c;
		}
	}
	for (size_t i = 0; i < n; i++)
		crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
	return crc;
}

const char *er_open(struct er *e, const void *p, size_t len)
{
	uint8_t block[BLK];
	const uint8_t *s = (const uint8_t *)p + SB;

	*e = (struct er){ .p = p, .len = len };
	if (len < BLK)
		return "no block 0";
	if (le(s, 4) != 0xe0f5e1e2)
		return "bad magic";
	if (le(s + 12, 1) != 12)
		return "block size";
	if (le(s + 80, 4) != 0)
		return "incompatible features";
	if (le(s + 8, 4) & ~3u)
		return "unknown compatible features";
	if (le(s + 8, 4) & 1) {
		memcpy(block, p, BLK);
		memset(block + SB + 4, 0, 4);
		if (crc32c(0xffffffff, block + SB, BLK - SB) != le(s + 4, 4))
			return "checksum of the superblock";
	}
	if (le(s + 13, 1) || le(s + 86, 2) || le(s + 90, 1))
		return "extensions, devices or directory block size";
	e->root_nid = le(s + 14, 2);
	e->inodes = le(s + 16, 8);
	e->blocks = le(s + 36, 4);
	e->meta_at = le(s + 40, 4) * BLK;
	e->uuid = s + 48;
	e->volume = s + 64;
	if (e->root_nid == 0)
		return "root nid 0";
	return NULL;
}

static int has(const struct er *e, uint64_t at, uint64_t n)
{
	return at <= e->len && n <= e->len - at;
}

const char *er_inode(const struct er *e, uint64_t nid, struct er_inode *out)
{
	uint64_t at = e->meta_at + nid * 32;
	const uint8_t *p = e->p + at;
	uint64_t head = 64;

	*out = (struct er_inode){ .nid = nid };
	if (nid > UINT32_MAX || !has(e, at, 64))
		return "inode beyond the end";
	if (at / BLK != (at + 63) / BLK)
		return "inode crosses a block";
	unsigned format = (unsigned)le(p, 2), icount = (unsigned)le(p + 2, 2);
	if ((format & 1) == 0)
		return "compact inode";
	out->layout = format >> 1 & 7;
	if (format >> 4 || (out->layout != 0 && out->layout != 2))
		return "layout of the inode";
	out->mode = (uint32_t)le(p + 4, 2);
	if (le(p + 6, 2))
		return "reserved bytes of the inode";
	out->size = le(p + 8, 8);
	out->block = out->rdev = (uint32_t)le(p + 16, 4);
	out->ino = (uint32_t)le(p + 20, 4);
	out->uid = (uint32_t)le(p + 24, 4);
	out->gid = (uint32_t)le(p + 28, 4);
	out->mtime_s = (int64_t)le(p + 32, 8);
	out->mtime_ns = (uint32_t)le(p + 40, 4);
	out->nlink = (uint32_t)le(p + 44, 4);
	for (int i = 48; i < 64; i++) {
		if (p[i])
			return "reserved bytes of the inode";
	}
	if (out->size > INT64_MAX || out->mtime_ns >= 1000000000)
		return "size or time";
	if (icount) {
		size_t n = 12 + 4 * (size_t)(icount - 1);

		if (!has(e, at + 64, n))
			return "attributes beyond the end";
		if (p[64 + 4])
			return "shared attributes";
		out->xattrs = p + 64 + 12;
		out->xattrs_len = n - 12;
		head += n;
	}
	if (out->layout == 2) {
		uint64_t tail = out->size % BLK, from = at + head;

		if (tail == 0)
			return "inline, but without a tail";
		if (!has(e, from, tail))
			return "tail beyond the end";
		if (from / BLK != (from + tail - 1) / BLK)
			return "tail crosses a block";
		if (S_ISLNK(out->mode) && at / BLK != from / BLK)
			return "inline link in another block than its inode";
		out->tail = e->p + from;
	}
	return NULL;
}

const char *er_block(const struct er *e, const struct er_inode *in, uint64_t k, const uint8_t **out,
                     size_t *out_len)
{
	uint64_t whole = in->size / BLK, tail = in->size % BLK;

	if (k > whole || (k == whole && tail == 0))
		return "no such block";
	*out_len = k < whole ? BLK : tail;
	if (k == whole && in->layout == 2) {
		*out = in->tail;
		return NULL;
	}
	uint64_t at = ((uint64_t)in->block + k) * BLK;
	if (in->block == 0 || !has(e, at, BLK))
		return "block beyond the end";
	*out = e->p + at;
	return NULL;
}

/* Dirent @i of a block of @len bytes with @n dirents. */
static const char *dirent_at(const uint8_t *b, size_t len, size_t n, size_t i,
                             struct er_dirent *out)
{
	size_t off = le(b + 12 * i + 8, 2), end;

	end = i + 1 < n ? le(b + 12 * (i + 1) + 8, 2) : len;
	if (off < 12 * n || off >= end || end > len)
		return "offset of a name";
	*out = (struct er_dirent){
		.name = b + off,
		.len = i + 1 < n ? end - off : strnlen((const char *)b + off, end - off),
		.nid = le(b + 12 * i, 8),
		.type = b[12 * i + 10],
	};
	if (b[12 * i + 11])
		return "reserved byte of a dirent";
	if (out->len == 0 || out->len > 255 || memchr(out->name, '/', out->len) ||
	    memchr(out->name, 0, out->len))
		return "name of a dirent";
	for (size_t k = off + out->len; i + 1 == n && k < len; k++) {
		if (b[k])
			return "bytes behind the last name";
	}
	return NULL;
}

static const char *dir_block(const struct er *e, const struct er_inode *dir, uint64_t k,
                             const uint8_t **b, size_t *len, size_t *n)
{
	const char *w = er_block(e, dir, k, b, len);

	if (w)
		return w;
	if (*len < 12)
		return "directory block without a dirent";
	size_t first = le(*b + 8, 2);
	if (first < 12 || first % 12 || first >= *len)
		return "first name of a directory block";
	*n = first / 12;
	return NULL;
}

static int name_cmp(const uint8_t *a, size_t an, const uint8_t *b, size_t bn)
{
	for (size_t i = 0; i < an && i < bn; i++) {
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	}
	return an == bn ? 0 : an < bn ? -1 : 1;
}

const char *er_readdir(const struct er *e, const struct er_inode *dir,
                       const char *(*fn)(void *arg, const struct er_dirent *d), void *arg)
{
	struct er_dirent last = { 0 }, d;

	if (!S_ISDIR(dir->mode))
		return "not a directory";
	for (uint64_t k = 0; k < (dir->size + BLK - 1) / BLK; k++) {
		const uint8_t *b;
		size_t len, n;
		const char *w = dir_block(e, dir, k, &b, &len, &n);

		for (size_t i = 0; !w && i < n; i++) {
			w = dirent_at(b, len, n, i, &d);
			if (!w && last.name && name_cmp(last.name, last.len, d.name, d.len) >= 0)
				w = "names out of order";
			last = d;
			if (!w)
				w = fn(arg, &d);
		}
		if (w)
			return w;
	}
	return NULL;
}

const char *er_lookup(const struct er *e, const struct er_inode *dir, const void *name, size_t len,
                      uint64_t *out_nid)
{
	uint64_t lo = 0, hi = (dir->size + BLK - 1) / BLK;
	const uint8_t *b;
	struct er_dirent d;
	size_t blen, n;
	const char *w;

	*out_nid = 0;
	/* the last block whose first name is not behind ours */
	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;

		w = dir_block(e, dir, mid, &b, &blen, &n);
		if (!w)
			w = dirent_at(b, blen, n, 0, &d);
		if (w)
			return w;
		if (name_cmp(d.name, d.len, name, len) <= 0)
			lo = mid;
		else
			hi = mid;
	}
	w = dir_block(e, dir, lo, &b, &blen, &n);
	if (w)
		return w;
	size_t a = 0, z = n;
	while (a < z) {
		size_t mid = a + (z - a) / 2;

		w = dirent_at(b, blen, n, mid, &d);
		if (w)
			return w;
		int c = name_cmp(d.name, d.len, name, len);
		if (c == 0) {
			*out_nid = d.nid;
			return NULL;
		}
		if (c < 0)
			a = mid + 1;
		else
			z = mid;
	}
	return NULL;
}

const char *er_xattr(const struct er_inode *in, size_t *pos, struct er_xattr *out)
{
	const uint8_t *p = in->xattrs + *pos;
	size_t left = in->xattrs_len - *pos;

	if (left < 4)
		return "attribute cut short";
	size_t name = p[0], value = le(p + 2, 2), n = (4 + name + value + 3) / 4 * 4;
	if (n > left)
		return "attribute beyond its inode";
	*out = (struct er_xattr){
		.index = p[1],
		.name = p + 4,
		.name_len = name,
		.value = p + 4 + name,
		.value_len = value,
	};
	for (size_t k = 4 + name + value; k < n; k++) {
		if (p[k])
			return "bytes behind an attribute";
	}
	*pos += n;
	return NULL;
}
