/* SPDX-License-Identifier: Apache-2.0 */
#include "workspace/gitindex.h"

#include <errno.h>

#include "base/path.h"
#include "workspace/sha1.h"

enum {
	HEADER = 12,
	STAT_BYTES = 40, /* times, device, inode, mode, owner, size */
	MODE_AT = 24,
	FLAG_EXTENDED = 0x4000,
	FLAG_NAME = 0x0fff,
	EXT_SKIP_WORKTREE = 0x4000,
};

/* One entry as it lies in the file. */
struct raw {
	struct gitindex_entry e;
	struct span fixed;  /* stat data and object id */
	uint16_t flags;     /* with FLAG_EXTENDED cleared */
	uint16_t ext;       /* extended flags, 0 without */
	struct span prefix; /* version 4: the number of bytes to cut, as written */
	struct span name;   /* as written, without NULs */
};

struct walk {
	struct rd r;
	size_t hash_bytes;
	uint32_t version, count;
	struct buf path; /* version 4: the path so far */
};

static uint32_t be(struct span s)
{
	uint32_t v = 0;

	for (size_t i = 0; i < s.len; i++)
		v = v << 8 | s.p[i];
	return v;
}

static int open_index(struct walk *w, struct span file, size_t hash_bytes)
{
	*w = (struct walk){ .hash_bytes = hash_bytes };
	if (hash_bytes != GITINDEX_SHA1 && hash_bytes != GITINDEX_SHA256)
		return -EINVAL;
	if (file.len > GITINDEX_BYTES_MAX)
		return -EFBIG;
	if (file.len < HEADER + hash_bytes)
		return -EPROTO;
	w->r = rd_of(file.p, file.len - hash_bytes);
	struct span magic = rd_take(&w->r, 4);
	w->version = be(rd_take(&w->r, 4));
	w->count = be(rd_take(&w->r, 4));
	if (memcmp(magic.p, "DIRC", 4) != 0)
		return -EPROTO;
	if (w->version < 2 || w->version > 4)
		return -ENOTSUP;
	if (w->count > GITINDEX_ENTRIES_MAX)
		return -EFBIG;
	return 0;
}

/* Version 4 cuts a number of bytes, 7 bits a byte with an offset (as in pack files). */
static bool cut_length(struct rd *r, size_t *out)
{
	uint64_t v = 0;

	for (int i = 0; i < 4; i++) {
		uint8_t c = (uint8_t)rd_le(r, 1);

		v = v << 7 | (c & 0x7f);
		if (!(c & 0x80)) {
			*out = (size_t)v;
			return !r->bad;
		}
		v++;
	}
	return false;
}

static int next_entry(struct walk *w, struct raw *out)
{
	const uint8_t *start = w->r.p;
	struct raw x = { 0 };

	x.fixed = rd_take(&w->r, STAT_BYTES + w->hash_bytes);
	x.flags = (uint16_t)be(rd_take(&w->r, 2));
	if (x.flags & FLAG_EXTENDED) {
		if (w->version < 3)
			return -EPROTO;
		x.ext = (uint16_t)be(rd_take(&w->r, 2));
		x.flags &= (uint16_t)~FLAG_EXTENDED;
	}
	if (w->r.bad)
		return -EPROTO;
	size_t cut = 0;
	if (w->version == 4) {
		const uint8_t *p = w->r.p;

		if (!cut_length(&w->r, &cut) || cut > w->path.len)
			return -EPROTO;
		x.prefix = span_of(p, (size_t)(w->r.p - p));
	}
	const uint8_t *nul = w->r.left ? memchr(w->r.p, 0, w->r.left) : NULL;
	if (!nul)
		return -EPROTO;
	x.name = rd_take(&w->r, (size_t)(nul - w->r.p));
	if (x.name.len > PATH_BYTES_MAX)
		return -EFBIG;
	if (w->version == 4) {
		w->path.len -= cut;
		if (w->path.len + x.name.len > PATH_BYTES_MAX)
			return -EFBIG;
		if (buf_put(&w->path, x.name.p, x.name.len) < 0)
			return -ENOMEM;
		(void)rd_take(&w->r, 1);
		x.e.path = span_of(w->path.p, w->path.len);
	} else {
		/* one to eight NULs, so that the entry's length is a multiple of eight */
		size_t len = (size_t)(w->r.p - start);

		(void)rd_take(&w->r, 8 - len % 8);
		x.e.path = x.name;
	}
	if (w->r.bad)
		return -EPROTO;
	if ((x.flags & FLAG_NAME) != MIN(x.e.path.len, (size_t)FLAG_NAME))
		return -EPROTO;
	x.e.mode = be(span_of(x.fixed.p + MODE_AT, 4));
	x.e.stage = x.flags >> 12 & 3;
	x.e.skip_worktree = x.ext & EXT_SKIP_WORKTREE;
	*out = x;
	return 0;
}

static bool is_host_cache(struct span sig)
{
	static const char *const drop[] = {
		"UNTR", "FSMN", /* about the host's directories and its monitor */
		"EOIE", "IEOT", /* offsets into the file as it was */
	};

	for (size_t i = 0; i < ARRAY_LEN(drop); i++)
		if (memcmp(sig.p, drop[i], 4) == 0)
			return true;
	return false;
}

static int next_extension(struct walk *w, struct span *out_sig, struct span *out_all)
{
	const uint8_t *start = w->r.p;
	struct span sig = rd_take(&w->r, 4);
	uint32_t len = be(rd_take(&w->r, 4));

	(void)rd_take(&w->r, len);
	if (w->r.bad)
		return -EPROTO;
	*out_sig = sig;
	*out_all = span_of(start, (size_t)(w->r.p - start));
	return 0;
}

int gitindex_read(struct span file, size_t hash_bytes,
                  int (*fn)(void *arg, const struct gitindex_entry *e), void *arg,
                  struct gitindex_info *out_info)
{
	struct gitindex_info info = { 0 };
	struct walk w;
	struct raw x;
	int ret = open_index(&w, file, hash_bytes);

	if (ret < 0)
		return ret;
	info.version = w.version;
	info.entries = w.count;
	for (uint32_t i = 0; i < w.count && ret == 0; i++) {
		ret = next_entry(&w, &x);
		if (ret == 0 && fn)
			ret = fn(arg, &x.e);
	}
	while (ret == 0 && w.r.left) {
		struct span sig, all;

		ret = next_extension(&w, &sig, &all);
		if (ret < 0)
			break;
		info.split = info.split || memcmp(sig.p, "link", 4) == 0;
		info.caches = info.caches || memcmp(sig.p, "UNTR", 4) == 0 ||
		              memcmp(sig.p, "FSMN", 4) == 0;
	}
	buf_fini(&w.path);
	if (ret == 0)
		*out_info = info;
	return ret;
}

static int put_be(struct buf *b, uint32_t v, size_t n)
{
	uint8_t p[4] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };

	return buf_put(b, p + 4 - n, n);
}

static int put_entry(struct buf *b, const struct walk *w, const struct raw *x)
{
	static const uint8_t zeros[8] = { 0 };
	size_t start = b->len;
	int ret = buf_put(b, x->fixed.p, x->fixed.len);

	if (ret == 0)
		ret = put_be(b, x->flags | (x->ext ? (uint32_t)FLAG_EXTENDED : 0), 2);
	if (ret == 0 && x->ext)
		ret = put_be(b, x->ext, 2);
	if (ret == 0)
		ret = buf_put(b, x->prefix.p, x->prefix.len);
	if (ret == 0)
		ret = buf_put(b, x->name.p, x->name.len);
	if (ret == 0)
		ret = buf_put(b, zeros, w->version == 4 ? 1 : 8 - (b->len - start) % 8);
	return ret;
}

int gitindex_skip(struct span file, size_t hash_bytes,
                  bool (*hidden)(void *arg, const struct gitindex_entry *e), void *arg,
                  struct buf *out)
{
	struct buf b = { 0 };
	struct walk w;
	struct raw x;
	bool extended = false;
	uint8_t sum[SHA256_BYTES];
	int ret = open_index(&w, file, hash_bytes);

	if (ret < 0)
		return ret;
	ret = buf_put(&b, file.p, HEADER);
	for (uint32_t i = 0; i < w.count && ret == 0; i++) {
		ret = next_entry(&w, &x);
		if (ret < 0)
			break;
		if (hidden(arg, &x.e))
			x.ext |= EXT_SKIP_WORKTREE;
		extended = extended || x.ext;
		ret = put_entry(&b, &w, &x);
	}
	while (ret == 0 && w.r.left) {
		struct span sig, all;

		ret = next_extension(&w, &sig, &all);
		if (ret == 0 && !is_host_cache(sig))
			ret = buf_put(&b, all.p, all.len);
	}
	if (ret == 0) {
		if (w.version == 2 && extended)
			b.p[7] = 3;
		if (hash_bytes == GITINDEX_SHA1)
			sha1(sum, b.p, b.len);
		else
			sha256(sum, b.p, b.len);
		ret = buf_put(&b, sum, hash_bytes);
	}
	if (ret == 0)
		ret = buf_put(out, b.p, b.len);
	buf_fini(&w.path);
	buf_fini(&b);
	return ret;
}
