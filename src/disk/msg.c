/* SPDX-License-Identifier: Apache-2.0 */
#include "disk/disk.h"

#include <errno.h>

enum { ERRNO_MAX = 4095 };

/* Which fields a type has, in the order of the wire. */
enum {
	F_ON = 1,
	F_ENTRY = 2,
	F_STATUS = 4,
	F_OFFSET = 8,
	F_LENGTH = 16,
	F_HASH = 32,
	F_DATA = 64,
	F_STATS = 128,
};

static const struct {
	uint16_t type, fields;
} forms[] = {
	{ DISK_READY, 0 },
	{ DISK_HASH, F_ENTRY },
	{ DISK_READ, F_ENTRY | F_OFFSET | F_LENGTH },
	{ DISK_FREEZE, F_ON },
	{ DISK_STATS, 0 },
	{ DISK_SHUTDOWN, 0 },
	{ DISK_READY_DONE, F_STATUS },
	{ DISK_HASH_DONE, F_ENTRY | F_STATUS | F_HASH },
	{ DISK_READ_DONE, F_ENTRY | F_STATUS | F_OFFSET | F_DATA },
	{ DISK_FREEZE_DONE, F_STATUS },
	{ DISK_STATS_DONE, F_STATS },
	{ DISK_CHANGED, F_ENTRY },
};

static int fields_of(uint16_t type)
{
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		if (forms[i].type == type)
			return forms[i].fields;
	}
	return -1;
}

size_t disk_msg_fds(uint16_t type)
{
	return type == DISK_READY ? 2 : 0;
}

static bool limits_ok(const struct disk_msg *m, int fields)
{
	if ((fields & F_ON) && m->on > 1)
		return false;
	if ((fields & F_STATUS) && (m->status > 0 || m->status < -ERRNO_MAX))
		return false;
	if ((fields & F_LENGTH) && (m->length == 0 || m->length > DISK_DATA_MAX))
		return false;
	if ((fields & F_OFFSET) && m->offset > INT64_MAX)
		return false;
	if ((fields & F_DATA) && (m->data.len > DISK_DATA_MAX || (m->status && m->data.len)))
		return false;
	return true;
}

int disk_msg_parse(struct disk_msg *out, const void *p, size_t len)
{
	struct rd r = rd_of(p, len);
	struct disk_msg m = { .type = (uint16_t)rd_le(&r, 2) };
	int fields = fields_of(m.type);

	if (rd_le(&r, 2) != 0 || fields < 0)
		return -EPROTO;
	if (fields & F_ON)
		m.on = (uint8_t)rd_le(&r, 1);
	if (fields & F_ENTRY)
		m.entry = (uint32_t)rd_le(&r, 4);
	if (fields & F_STATUS)
		m.status = (int32_t)(uint32_t)rd_le(&r, 4);
	if (fields & F_OFFSET)
		m.offset = rd_le(&r, 8);
	if (fields & F_LENGTH)
		m.length = (uint32_t)rd_le(&r, 4);
	if (fields & F_HASH) {
		struct span s = rd_take(&r, HASH_BYTES);

		if (s.len)
			memcpy(m.hash.b, s.p, HASH_BYTES);
	}
	if (fields & F_DATA)
		m.data = rd_blob(&r, 4, DISK_DATA_MAX);
	if (fields & F_STATS) {
		m.stats.files = (uint32_t)rd_le(&r, 4);
		m.stats.frozen = (uint32_t)rd_le(&r, 4);
		m.stats.changed = (uint32_t)rd_le(&r, 4);
		m.stats.freezing = (uint32_t)rd_le(&r, 4);
		m.stats.frozen_bytes = rd_le(&r, 8);
		m.stats.requests = rd_le(&r, 8);
		m.stats.bytes = rd_le(&r, 8);
		m.stats.errors = rd_le(&r, 8);
		m.stats.workspace_opens = rd_le(&r, 8);
	}
	if (r.bad || r.left || !limits_ok(&m, fields))
		return -EPROTO;
	*out = m;
	return 0;
}

size_t disk_msg_put(uint8_t *dst, size_t cap, const struct disk_msg *m)
{
	struct wr w = wr_of(dst, cap);
	int fields = fields_of(m->type);

	if (fields < 0 || !limits_ok(m, fields))
		return 0;
	wr_le(&w, m->type, 2);
	wr_le(&w, 0, 2);
	if (fields & F_ON)
		wr_le(&w, m->on, 1);
	if (fields & F_ENTRY)
		wr_le(&w, m->entry, 4);
	if (fields & F_STATUS)
		wr_le(&w, (uint32_t)m->status, 4);
	if (fields & F_OFFSET)
		wr_le(&w, m->offset, 8);
	if (fields & F_LENGTH)
		wr_le(&w, m->length, 4);
	if (fields & F_HASH)
		wr_put(&w, m->hash.b, HASH_BYTES);
	if (fields & F_DATA)
		wr_blob(&w, m->data, 4);
	if (fields & F_STATS) {
		wr_le(&w, m->stats.files, 4);
		wr_le(&w, m->stats.frozen, 4);
		wr_le(&w, m->stats.changed, 4);
		wr_le(&w, m->stats.freezing, 4);
		wr_le(&w, m->stats.frozen_bytes, 8);
		wr_le(&w, m->stats.requests, 8);
		wr_le(&w, m->stats.bytes, 8);
		wr_le(&w, m->stats.errors, 8);
		wr_le(&w, m->stats.workspace_opens, 8);
	}
	return w.bad ? 0 : cap - w.left;
}
