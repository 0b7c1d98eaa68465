/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/answer.h"

#include <errno.h>
#include <string.h>

enum {
	WIRE_NAME_MAX = 255,
	JUMPS_MAX = 32, /* pointers of one name: each costs its sender 2 bytes, and us a step */
	HEADER_BYTES = 12,
	TYPE_A = 1,
	TYPE_CNAME = 5,
	CLASS_IN = 1,
	FLAG_QR = 0x8000,
	OPCODE = 0x7800,
	FLAG_TC = 0x0200,
	RCODE = 0x000f,
	TTL_SIGN = 0x80000000u,
};

/* A name in wire form, lowered, expanded. */
struct name {
	uint8_t b[WIRE_NAME_MAX];
	size_t len;
};

struct record {
	struct name owner;
	uint16_t type, class;
	uint32_t ttl_s;
	size_t at, len; /* of the data, in the message */
};

static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)be16(p) << 16 | be16(p + 2);
}

/*
 * The name at @*at, which then lies behind it. A pointer leads strictly before the
 * place where the present run of labels began, so there is no loop.
 */
static bool take_name(struct span in, size_t *at, struct name *out)
{
	size_t p = *at, run = *at;
	unsigned jumps = 0;

	out->len = 0;
	for (;;) {
		if (p >= in.len)
			return false;
		uint8_t n = in.p[p];

		if ((n & 0xc0) == 0xc0) {
			if (in.len - p < 2)
				return false;
			size_t to = be16(in.p + p) & 0x3fffu;
			if (to >= run || to < HEADER_BYTES || jumps == JUMPS_MAX)
				return false;
			if (jumps++ == 0)
				*at = p + 2;
			p = run = to;
			continue;
		}
		if (n > HOST_LABEL_MAX || in.len - p <= n || out->len + 1 + n > WIRE_NAME_MAX)
			return false;
		out->b[out->len++] = n;
		for (size_t i = 0; i < n; i++) {
			uint8_t c = in.p[p + 1 + i];

			out->b[out->len++] = c >= 'A' && c <= 'Z' ? (uint8_t)(c + 'a' - 'A') : c;
		}
		p += 1 + (size_t)n;
		if (n == 0)
			break;
	}
	if (jumps == 0)
		*at = p;
	return true;
}

static bool take_record(struct span in, size_t *at, struct record *out)
{
	if (!take_name(in, at, &out->owner) || in.len - *at < 10)
		return false;
	const uint8_t *p = in.p + *at;
	out->type = be16(p);
	out->class = be16(p + 2);
	out->ttl_s = be32(p + 4);
	if (out->ttl_s & TTL_SIGN)
		out->ttl_s = 0; /* RFC 2181 8 */
	out->len = be16(p + 8);
	out->at = *at + 10;
	if (in.len - out->at < out->len)
		return false;
	*at = out->at + out->len;
	return true;
}

/* @name, which is in the grammar, in wire form. */
static void to_wire(const char *name, struct name *out)
{
	out->len = 0;
	while (*name) {
		size_t n = strcspn(name, ".");

		ASSERT(n > 0 && n <= HOST_LABEL_MAX && out->len + n + 2 <= WIRE_NAME_MAX);
		out->b[out->len++] = (uint8_t)n;
		memcpy(out->b + out->len, name, n);
		out->len += n;
		name += n + (name[n] == '.');
	}
	out->b[out->len++] = 0;
}

static bool same(const struct name *a, const struct name *b)
{
	return a->len == b->len && memcmp(a->b, b->b, a->len) == 0;
}

/* The alias of @owner, if there is one. -EPROTO: two that differ, or one that cannot be read. */
static int find_alias(struct span in, size_t at, unsigned n, const struct name *owner,
                      struct name *out, uint32_t *ttl_s)
{
	struct record r;
	int found = 0;

	for (; n > 0; n--) {
		struct name target;

		if (!take_record(in, &at, &r))
			return -EPROTO;
		if (r.type != TYPE_CNAME || r.class != CLASS_IN || !same(&r.owner, owner))
			continue;
		size_t data = r.at;
		if (!take_name(in, &data, &target) || data != r.at + r.len)
			return -EPROTO;
		if (found && !same(out, &target))
			return -EPROTO;
		*out = target;
		*ttl_s = MIN(*ttl_s, r.ttl_s);
		found = 1;
	}
	return found;
}

static int find_addrs(struct span in, size_t at, unsigned n, const struct name *owner,
                      struct answer *out, uint32_t *ttl_s)
{
	struct record r;

	for (; n > 0; n--) {
		if (!take_record(in, &at, &r))
			return -EPROTO;
		if (r.type != TYPE_A || r.class != CLASS_IN || !same(&r.owner, owner))
			continue;
		if (r.len != 4)
			return -EPROTO;
		*ttl_s = MIN(*ttl_s, r.ttl_s);
		if (out->n < ANSWER_ADDRS_MAX)
			out->addrs[out->n++] = be32(in.p + r.at);
	}
	return 0;
}

int answer_parse(struct answer *out, struct span in, const char *name)
{
	struct name want, asked, next;
	struct answer a = { 0 };
	uint32_t ttl_s = UINT32_MAX;
	size_t at = HEADER_BYTES;

	if (in.len < HEADER_BYTES || in.len > ANSWER_BYTES_MAX)
		return -EPROTO;
	uint16_t flags = be16(in.p + 2);
	unsigned records = be16(in.p + 6);
	/* cut: what asks again over TCP has done so before */
	if (!(flags & FLAG_QR) || (flags & (OPCODE | FLAG_TC)) || be16(in.p + 4) != 1 ||
	    records > ANSWER_RECORDS_MAX)
		return -EPROTO;
	to_wire(name, &want);
	if (!take_name(in, &at, &asked) || !same(&asked, &want) || in.len - at < 4 ||
	    be16(in.p + at) != TYPE_A || be16(in.p + at + 2) != CLASS_IN)
		return -EPROTO;
	at += 4;
	a.rcode = flags & RCODE;
	if (a.rcode != 0) {
		*out = a;
		return 0;
	}
	for (;;) {
		int r = find_alias(in, at, records, &want, &next, &ttl_s);

		if (r < 0)
			return r;
		if (r == 0)
			break;
		if (++a.chain > ANSWER_CHAIN_MAX)
			return -EPROTO; /* a loop ends here, too */
		want = next;
	}
	int r = find_addrs(in, at, records, &want, &a, &ttl_s);
	if (r < 0)
		return r;
	a.ttl_s = a.n ? ttl_s : 0;
	*out = a;
	return 0;
}
