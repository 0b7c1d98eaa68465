/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/change.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/path.h"

enum { HEAD_BYTES = 5, MODE_MAX = 07777 };

/* The least and the most bytes that follow the head of each type. */
static bool body_range(unsigned type, size_t *out_min, size_t *out_max)
{
	size_t fix;

	switch (type) {
	case CHANGE_DIR:
		fix = 1 + 2 + 8 + 1;
		*out_min = fix + 1;
		*out_max = fix + CHANGE_NAME_MAX;
		return true;
	case CHANGE_FILE:
		fix = 1 + 2 + 8 + 8 + HASH_BYTES + 1;
		*out_min = fix + 1;
		*out_max = fix + CHANGE_NAME_MAX;
		return true;
	case CHANGE_LINK:
		fix = 8 + 1 + 2;
		*out_min = fix + 1 + 1;
		*out_max = fix + CHANGE_NAME_MAX + CHANGE_LINK_MAX;
		return true;
	case CHANGE_WHITEOUT:
		*out_min = 1 + 1;
		*out_max = 1 + CHANGE_NAME_MAX;
		return true;
	case CHANGE_SPECIAL:
		*out_min = 4 + 1 + 1;
		*out_max = 4 + 1 + CHANGE_NAME_MAX;
		return true;
	case CHANGE_END:
		*out_min = *out_max = 4;
		return true;
	case CHANGE_BLOB:
		*out_min = *out_max = 4 + 8;
		return true;
	case CHANGE_EXTENT:
		*out_min = 8 + 1;
		*out_max = 8 + CHANGE_EXTENT_MAX;
		return true;
	case CHANGE_UP:
	case CHANGE_BLOB_END:
	case CHANGE_BLOBS_END:
		*out_min = *out_max = 0;
		return true;
	default:
		return false;
	}
}

static bool special_ok(uint32_t mode)
{
	uint32_t kind = mode & S_IFMT;

	return (mode & ~(uint32_t)(S_IFMT | MODE_MAX)) == 0 &&
	       (kind == S_IFIFO || kind == S_IFSOCK || kind == S_IFCHR || kind == S_IFBLK);
}

/* The rules for values that the wire form could say, but must not. */
static bool record_ok(const struct change_record *r)
{
	switch (r->type) {
	case CHANGE_DIR:
		return path_name_ok(r->name) && r->mode <= MODE_MAX &&
		       (r->flags & ~CHANGE_OPAQUE) == 0;
	case CHANGE_FILE:
		return path_name_ok(r->name) && r->mode <= MODE_MAX && r->size <= INT64_MAX &&
		       (r->flags & ~(CHANGE_SUSPECT | CHANGE_HARDLINK)) == 0;
	case CHANGE_LINK:
		return path_name_ok(r->name) && r->bytes.len >= 1 &&
		       r->bytes.len <= CHANGE_LINK_MAX && !memchr(r->bytes.p, 0, r->bytes.len);
	case CHANGE_WHITEOUT:
		return path_name_ok(r->name);
	case CHANGE_SPECIAL:
		return path_name_ok(r->name) && special_ok(r->mode);
	case CHANGE_BLOB:
		return r->size <= INT64_MAX;
	case CHANGE_EXTENT:
		return r->bytes.len >= 1 && r->bytes.len <= CHANGE_EXTENT_MAX &&
		       r->offset <= (uint64_t)INT64_MAX - r->bytes.len;
	default:
		return true;
	}
}

int change_parse(struct change_record *out, const void *buf, size_t len, size_t *out_used)
{
	struct rd r = rd_of(buf, len);
	struct change_record c = { 0 };
	size_t min, max;

	if (len < HEAD_BYTES)
		return -EAGAIN;
	c.type = (uint8_t)rd_le(&r, 1);
	size_t n = (size_t)rd_le(&r, 4);
	if (!body_range(c.type, &min, &max) || n < min || n > max)
		return -EPROTO;
	if (r.left < n)
		return -EAGAIN;
	struct span body = rd_take(&r, n);
	r = rd_of(body.p, body.len);
	switch (c.type) {
	case CHANGE_DIR:
	case CHANGE_FILE:
		c.flags = (uint8_t)rd_le(&r, 1);
		c.mode = (uint32_t)rd_le(&r, 2);
		c.mtime_ns = (int64_t)rd_le(&r, 8);
		if (c.type == CHANGE_FILE) {
			c.size = rd_le(&r, 8);
			struct span h = rd_take(&r, HASH_BYTES);
			if (!r.bad)
				memcpy(c.hash.b, h.p, HASH_BYTES);
		}
		c.name = rd_blob(&r, 1, CHANGE_NAME_MAX);
		break;
	case CHANGE_LINK:
		c.mtime_ns = (int64_t)rd_le(&r, 8);
		c.name = rd_blob(&r, 1, CHANGE_NAME_MAX);
		c.bytes = rd_blob(&r, 2, CHANGE_LINK_MAX);
		break;
	case CHANGE_WHITEOUT:
		c.name = rd_blob(&r, 1, CHANGE_NAME_MAX);
		break;
	case CHANGE_SPECIAL:
		c.mode = (uint32_t)rd_le(&r, 4);
		c.name = rd_blob(&r, 1, CHANGE_NAME_MAX);
		break;
	case CHANGE_END:
		c.ordinal = (uint32_t)rd_le(&r, 4);
		break;
	case CHANGE_BLOB:
		c.ordinal = (uint32_t)rd_le(&r, 4);
		c.size = rd_le(&r, 8);
		break;
	case CHANGE_EXTENT:
		c.offset = rd_le(&r, 8);
		c.bytes = rd_take(&r, r.left);
		break;
	default:
		break;
	}
	if (r.bad || r.left != 0 || !record_ok(&c))
		return -EPROTO;
	*out = c;
	*out_used = HEAD_BYTES + n;
	return 0;
}

size_t change_put(uint8_t *dst, size_t cap, const struct change_record *r)
{
	size_t min, max;

	if (!body_range(r->type, &min, &max) || !record_ok(r) || cap < HEAD_BYTES)
		return 0;
	struct wr w = wr_of(dst + HEAD_BYTES, cap - HEAD_BYTES);
	switch (r->type) {
	case CHANGE_DIR:
	case CHANGE_FILE:
		wr_le(&w, r->flags, 1);
		wr_le(&w, r->mode, 2);
		wr_le(&w, (uint64_t)r->mtime_ns, 8);
		if (r->type == CHANGE_FILE) {
			wr_le(&w, r->size, 8);
			wr_put(&w, r->hash.b, HASH_BYTES);
		}
		wr_blob(&w, r->name, 1);
		break;
	case CHANGE_LINK:
		wr_le(&w, (uint64_t)r->mtime_ns, 8);
		wr_blob(&w, r->name, 1);
		wr_blob(&w, r->bytes, 2);
		break;
	case CHANGE_WHITEOUT:
		wr_blob(&w, r->name, 1);
		break;
	case CHANGE_SPECIAL:
		wr_le(&w, r->mode, 4);
		wr_blob(&w, r->name, 1);
		break;
	case CHANGE_END:
		wr_le(&w, r->ordinal, 4);
		break;
	case CHANGE_BLOB:
		wr_le(&w, r->ordinal, 4);
		wr_le(&w, r->size, 8);
		break;
	case CHANGE_EXTENT:
		wr_le(&w, r->offset, 8);
		wr_put(&w, r->bytes.p, r->bytes.len);
		break;
	default:
		break;
	}
	if (w.bad)
		return 0;
	size_t n = cap - HEAD_BYTES - w.left;
	struct wr head = wr_of(dst, HEAD_BYTES);
	wr_le(&head, r->type, 1);
	wr_le(&head, n, 4);
	return HEAD_BYTES + n;
}

void change_walk_init(struct change_walk *w, uint32_t records_max, uint64_t bytes_max)
{
	*w = (struct change_walk){
		.records_max = MIN(records_max, (uint32_t)CHANGE_RECORDS_MAX),
		.bytes_max = bytes_max,
	};
}

/* Names of one directory come strictly ascending, so none comes twice. */
static int take_name(struct change_walk *w, struct span name)
{
	if (!path_name_ok(name))
		return -EPROTO;
	uint16_t len = w->last_len[w->depth];
	if (len > 0 && span_cmp(span_of(w->last[w->depth], len), name) >= 0)
		return -EPROTO;
	if (w->path_len + (w->depth > 0) + name.len > CHANGE_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(w->last[w->depth], name.p, name.len);
	w->last_len[w->depth] = (uint16_t)name.len;
	return 0;
}

int change_walk_take(struct change_walk *w, const struct change_record *r)
{
	int e;

	if (w->ended)
		return -EPROTO;
	if (r->type == CHANGE_END) {
		if (w->depth != 0 || r->ordinal != w->count)
			return -EPROTO;
		w->ended = true;
		return 0;
	}
	if (w->count >= w->records_max)
		return -EFBIG;
	switch (r->type) {
	case CHANGE_DIR:
		if (w->depth >= CHANGE_DEPTH_MAX)
			return -ENAMETOOLONG;
		e = take_name(w, r->name);
		if (e < 0)
			return e;
		w->path_len += r->name.len + (w->depth > 0);
		w->depth++;
		w->name_len[w->depth] = (uint16_t)r->name.len;
		w->last_len[w->depth] = 0;
		break;
	case CHANGE_UP:
		if (w->depth == 0)
			return -EPROTO;
		w->path_len -= w->name_len[w->depth] + (uint64_t)(w->depth > 1);
		w->depth--;
		break;
	case CHANGE_FILE:
		if (r->size > w->bytes_max - w->bytes)
			return -EFBIG;
		e = take_name(w, r->name);
		if (e < 0)
			return e;
		w->bytes += r->size;
		break;
	case CHANGE_LINK:
	case CHANGE_WHITEOUT:
	case CHANGE_SPECIAL:
		e = take_name(w, r->name);
		if (e < 0)
			return e;
		break;
	default:
		return -EPROTO; /* a record of phase 2, or none at all */
	}
	w->count++;
	return 0;
}

int change_blobs_take(struct change_blobs *b, const struct change_record *r)
{
	if (b->ended)
		return -EPROTO;
	switch (r->type) {
	case CHANGE_BLOB:
		if (b->in_blob || (b->any && r->ordinal <= b->ordinal))
			return -EPROTO;
		b->in_blob = b->any = true;
		b->ordinal = r->ordinal;
		b->size = r->size;
		b->at = 0;
		return 0;
	case CHANGE_EXTENT:
		if (!b->in_blob || r->offset < b->at || r->offset > b->size ||
		    r->bytes.len > b->size - r->offset)
			return -EPROTO;
		b->at = r->offset + r->bytes.len;
		return 0;
	case CHANGE_BLOB_END:
		if (!b->in_blob)
			return -EPROTO;
		b->in_blob = false;
		return 0;
	case CHANGE_BLOBS_END:
		if (b->in_blob)
			return -EPROTO;
		b->ended = true;
		return 0;
	default:
		return -EPROTO;
	}
}
