/* SPDX-License-Identifier: Apache-2.0 */
#include "net/swmsg.h"

#include <errno.h>

static const char *const whys[] = {
	[SWMSG_NAME_TAKEN] = "a sandbox of this name is in the shared network",
	[SWMSG_NAME_BAD] = "the name is none for the shared network",
	[SWMSG_EXHAUSTED] = "the shared network has no address left",
	[SWMSG_FULL] = "the shared network has too many sandboxes",
};

const char *swmsg_why_str(unsigned why)
{
	return why < ARRAY_LEN(whys) ? whys[why] : NULL;
}

bool swmsg_name_ok(struct span name)
{
	static const char *const taken[] = { "host", "selftest", "gateway" };

	if (name.len == 0 || name.len > SWMSG_NAME_MAX || name.p[0] == '-' ||
	    name.p[name.len - 1] == '-')
		return false;
	for (size_t i = 0; i < name.len; i++) {
		uint8_t c = name.p[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-')
			return false;
	}
	for (size_t i = 0; i < ARRAY_LEN(taken); i++) {
		if (span_eq(name, span_str(taken[i])))
			return false;
	}
	return true;
}

static bool limits_ok(const struct swmsg *m)
{
	switch (m->type) {
	case SWMSG_HELLO:
	case SWMSG_FORGET:
	case SWMSG_PEER_UP:
		return swmsg_name_ok(m->name);
	case SWMSG_REFUSED:
		return swmsg_why_str(m->why) != NULL;
	case SWMSG_WELCOME:
	case SWMSG_PEER_DOWN:
		return true;
	case SWMSG_PACKET:
		return m->packet.len > 0 && m->packet.len <= SWMSG_PACKET_MAX;
	default:
		return false;
	}
}

int swmsg_parse(struct swmsg *out, struct span in)
{
	struct rd r = rd_of(in.p, in.len);
	struct swmsg m = { .type = (uint8_t)rd_le(&r, 1) };

	switch (m.type) {
	case SWMSG_HELLO: {
		unsigned keep = (unsigned)rd_le(&r, 1);

		if (keep > 1)
			return -EPROTO;
		m.keep = keep;
		m.addr = (uint32_t)rd_le(&r, 4);
		m.name = rd_take(&r, r.left);
		break;
	}
	case SWMSG_FORGET:
		m.name = rd_take(&r, r.left);
		break;
	case SWMSG_WELCOME:
	case SWMSG_PEER_DOWN:
		m.addr = (uint32_t)rd_le(&r, 4);
		break;
	case SWMSG_REFUSED:
		m.why = (uint8_t)rd_le(&r, 1);
		break;
	case SWMSG_PEER_UP:
		m.addr = (uint32_t)rd_le(&r, 4);
		m.name = rd_take(&r, r.left);
		break;
	case SWMSG_PACKET:
		m.packet = rd_take(&r, r.left);
		break;
	default:
		return -EPROTO;
	}
	if (r.bad || r.left || !limits_ok(&m))
		return -EPROTO;
	*out = m;
	return 0;
}

size_t swmsg_put(uint8_t *dst, size_t cap, const struct swmsg *m)
{
	struct wr w = wr_of(dst, cap);

	if (!limits_ok(m))
		return 0;
	wr_le(&w, m->type, 1);
	switch (m->type) {
	case SWMSG_HELLO:
		wr_le(&w, m->keep, 1);
		wr_le(&w, m->addr, 4);
		wr_put(&w, m->name.p, m->name.len);
		break;
	case SWMSG_FORGET:
		wr_put(&w, m->name.p, m->name.len);
		break;
	case SWMSG_WELCOME:
	case SWMSG_PEER_DOWN:
		wr_le(&w, m->addr, 4);
		break;
	case SWMSG_REFUSED:
		wr_le(&w, m->why, 1);
		break;
	case SWMSG_PEER_UP:
		wr_le(&w, m->addr, 4);
		wr_put(&w, m->name.p, m->name.len);
		break;
	default: /* PACKET: limits_ok() knows no other */
		wr_put(&w, m->packet.p, m->packet.len);
		break;
	}
	return w.bad ? 0 : cap - w.left;
}
