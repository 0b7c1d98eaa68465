/* SPDX-License-Identifier: Apache-2.0 */
#include "review/review_priv.h"

#include <errno.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"

enum { HEAD = 4 + 1, FIXED_ITEM = 256 };

int review_send(int sock, uint8_t type, struct span payload)
{
	uint8_t head[HEAD];
	struct wr w = wr_of(head, sizeof(head));

	wr_le(&w, payload.len + 1, 4);
	wr_le(&w, type, 1);
	int r = fd_write_all(sock, head, sizeof(head));
	return r < 0 ? r : fd_write_all(sock, payload.p, payload.len);
}

int review_recv(int sock, uint8_t *out_type, struct buf *out)
{
	uint8_t head[HEAD];
	int r = fd_read_exact(sock, head, sizeof(head));

	if (r < 0)
		return r == -ENODATA || r == -ECONNRESET ? -EPIPE : r;
	struct rd rd = rd_of(head, sizeof(head));
	size_t n = (size_t)rd_le(&rd, 4);
	*out_type = (uint8_t)rd_le(&rd, 1);
	if (n < 1 || n > REVIEW_MSG_MAX)
		return -EPROTO;
	out->len = 0;
	r = buf_reserve(out, n); /* one more than the payload: never nothing */
	if (r < 0)
		return r;
	r = fd_read_exact(sock, out->p, n - 1);
	if (r < 0)
		return r == -ENODATA ? -EPIPE : r;
	out->len = n - 1;
	return 0;
}

/* @reason is one of our own constants; its text goes over the wire like any other. */
int review_put_item(struct buf *b, const struct compare_change *c, struct span path,
                    const struct apply_outcome *host)
{
	struct span reason = span_str(c->reason ? c->reason : "");
	struct span text = span_str(host->text);
	int r = buf_reserve(b, FIXED_ITEM + path.len + c->link.len + c->old_link.len + reason.len +
	                               text.len);

	if (r < 0)
		return r;
	struct wr w = wr_of(b->p + b->len, b->cap - b->len);
	wr_le(&w, c->slot, 4);
	wr_le(&w, c->ordinal, 4);
	wr_le(&w, c->project, 2);
	wr_le(&w, c->kind, 1);
	wr_le(&w, c->why, 1);
	wr_le(&w, c->old_type, 1);
	wr_le(&w, c->new_type, 1);
	wr_le(&w, c->tier, 1);
	wr_le(&w, c->status, 1);
	wr_le(&w, c->flags, 2);
	wr_le(&w, c->old_mode, 4);
	wr_le(&w, c->new_mode, 4);
	wr_le(&w, c->old_size, 8);
	wr_le(&w, c->new_size, 8);
	wr_le(&w, (uint64_t)c->new_mtime_ns, 8);
	wr_le(&w, c->subtree, 4);
	wr_le(&w, c->renamed, 4);
	wr_put(&w, c->hash.b, HASH_BYTES);
	wr_le(&w, host->result, 1);
	wr_le(&w, host->broke_link, 1);
	wr_blob(&w, text, 2);
	wr_blob(&w, reason, 2);
	wr_blob(&w, c->link, 2);
	wr_blob(&w, c->old_link, 2);
	wr_blob(&w, path, 4);
	ASSERT(!w.bad);
	b->len = (size_t)(w.p - b->p);
	return 0;
}

static char *visible_or_null(struct span s)
{
	return s.len ? vis_dup(s) : NULL;
}

int review_get_item(struct review_item *out, struct span b, uint32_t n_projects)
{
	struct rd r = rd_of(b.p, b.len);
	struct compare_change c = { .entry = MANIFEST_NONE };

	c.slot = (uint32_t)rd_le(&r, 4);
	c.ordinal = (uint32_t)rd_le(&r, 4);
	c.project = (uint16_t)rd_le(&r, 2);
	c.kind = (uint8_t)rd_le(&r, 1);
	c.why = (uint8_t)rd_le(&r, 1);
	c.old_type = (uint8_t)rd_le(&r, 1);
	c.new_type = (uint8_t)rd_le(&r, 1);
	c.tier = (uint8_t)rd_le(&r, 1);
	c.status = (uint8_t)rd_le(&r, 1);
	c.flags = (uint16_t)rd_le(&r, 2);
	c.old_mode = (uint32_t)rd_le(&r, 4);
	c.new_mode = (uint32_t)rd_le(&r, 4);
	c.old_size = rd_le(&r, 8);
	c.new_size = rd_le(&r, 8);
	c.new_mtime_ns = (int64_t)rd_le(&r, 8);
	c.subtree = (uint32_t)rd_le(&r, 4);
	c.renamed = (uint32_t)rd_le(&r, 4);
	struct span hash = rd_take(&r, HASH_BYTES);
	uint8_t host = (uint8_t)rd_le(&r, 1);
	rd_le(&r, 1); /* broke_link: in flags as COMPARE_BREAKS_LINK */
	struct span text = rd_blob(&r, 2, APPLY_TEXT_BYTES);
	struct span reason = rd_blob(&r, 2, 256);
	struct span link = rd_blob(&r, 2, CHANGE_LINK_MAX);
	struct span old_link = rd_blob(&r, 2, MANIFEST_LINK_MAX);
	struct span path = rd_blob(&r, 4, CHANGE_PATH_MAX);
	if (r.bad || r.left || path_check(path) < 0)
		return -EPROTO;
	if (c.kind < COMPARE_ADDED || c.kind > COMPARE_TYPE || c.why > COMPARE_WHY_BELOW ||
	    c.old_type > MANIFEST_OTHER || c.new_type > MANIFEST_OTHER || c.tier > CLASSIFY_BUILD ||
	    c.status > CHANGESET_STATUS_LAST || host > APPLY_FAILED)
		return -EPROTO;
	if (c.project >= n_projects && c.project != COMPARE_NO_PROJECT)
		return -EPROTO;
	memcpy(c.hash.b, hash.p, HASH_BYTES);
	*out = (struct review_item){ .c = c, .host = host };
	if (buf_put(&out->raw, path.p, path.len) < 0)
		return -ENOMEM;
	out->path = vis_dup(path);
	out->raw_ok = span_eq(path, span_str(out->path));
	out->link = visible_or_null(link);
	out->old_link = visible_or_null(old_link);
	out->host_text = visible_or_null(text);
	out->reason = visible_or_null(reason);
	return 0;
}

void review_head(const struct review *r, uint32_t i, struct review_head *out)
{
	ASSERT(i < r->n_items);
	*out = r->heads[i];
}

int review_put_outcome(struct buf *b, const struct apply_outcome *o)
{
	struct span text = span_str(o->text);
	int r = buf_reserve(b, 32 + text.len);

	if (r < 0)
		return r;
	struct wr w = wr_of(b->p + b->len, b->cap - b->len);
	wr_le(&w, o->change, 4);
	wr_le(&w, o->result, 1);
	wr_le(&w, o->broke_link, 1);
	wr_le(&w, o->no_setid, 1);
	wr_le(&w, (uint64_t)(int64_t)o->code, 8);
	wr_blob(&w, text, 2);
	ASSERT(!w.bad);
	b->len = (size_t)(w.p - b->p);
	return 0;
}

int review_get_outcome(struct apply_outcome *out, struct span b)
{
	struct rd r = rd_of(b.p, b.len);
	struct apply_outcome o = { 0 };

	o.change = (uint32_t)rd_le(&r, 4);
	o.result = (uint8_t)rd_le(&r, 1);
	o.broke_link = rd_le(&r, 1) != 0;
	o.no_setid = rd_le(&r, 1) != 0;
	o.code = (int)(int64_t)rd_le(&r, 8);
	struct span text = rd_blob(&r, 2, APPLY_TEXT_BYTES);
	if (r.bad || r.left || o.result > APPLY_FAILED)
		return -EPROTO;
	AUTO_BUF struct buf v = { 0 };
	if (vis_put(&v, text, VIS_KEEP_BACKSLASH) < 0)
		return -ENOMEM;
	size_t n = MIN(v.len, sizeof(o.text) - 1);
	if (n)
		memcpy(o.text, v.p, n);
	o.text[n] = '\0';
	*out = o;
	return 0;
}

/* ESC [ digits and ';' m, at most 16 bytes. Return: its length or 0. */
static size_t sgr_len(struct span s)
{
	enum { SGR_MAX = 16 };

	if (s.len < 3 || s.p[0] != 0x1b || s.p[1] != '[')
		return 0;
	for (size_t i = 2; i < MIN(s.len, (size_t)SGR_MAX); i++) {
		if (s.p[i] == 'm')
			return i + 1;
		if (s.p[i] != ';' && (s.p[i] < '0' || s.p[i] > '9'))
			return 0;
	}
	return 0;
}

int review_clean_text(struct buf *out, struct span s, int flags)
{
	int keep = VIS_KEEP_TAB | VIS_KEEP_NEWLINE | VIS_KEEP_BACKSLASH;

	if (!(flags & DIFF_COLOUR))
		return vis_put(out, s, keep);
	while (s.len) {
		const uint8_t *esc = memchr(s.p, 0x1b, s.len);
		size_t n = esc ? (size_t)(esc - s.p) : s.len;
		int r = vis_put(out, span_of(s.p, n), keep);
		if (r < 0)
			return r;
		s = span_of(s.p + n, s.len - n);
		n = sgr_len(s);
		if (n)
			r = buf_put(out, s.p, n);
		else if (s.len)
			r = vis_put(out, span_of(s.p, n = 1), keep);
		if (r < 0)
			return r;
		s = span_of(s.p + n, s.len - n);
	}
	return 0;
}
