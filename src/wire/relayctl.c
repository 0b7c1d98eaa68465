/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/relayctl.h"

#include <errno.h>

static bool printable(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < 0x20 || s.p[i] > 0x7e)
			return false;
	}
	return true;
}

/* What holds for a message of either direction, whoever made it. */
static bool valid(const struct relayctl *m)
{
	switch (m->type) {
	case RELAYCTL_RESOLV:
	case RELAYCTL_HOSTS:
		return m->file.len <= RELAYCTL_FILE_MAX;
	case RELAYCTL_ALLOW:
	case RELAYCTL_DENY:
		return m->pattern.len > 0 && m->pattern.len <= RELAYCTL_PATTERN_MAX &&
		       printable(m->pattern);
	case RELAYCTL_LISTEN:
		return m->listen.guest_port && m->listen.deadline_s <= RELAYCTL_DEADLINE_MAX_S &&
		       m->listen.label.len <= RELAYCTL_LABEL_MAX && printable(m->listen.label);
	case RELAYCTL_OK:
		return true;
	case RELAYCTL_ERR:
		return m->text.len <= RELAYCTL_TEXT_MAX;
	case RELAYCTL_LOST:
		return m->number == 0 && m->text.len <= RELAYCTL_TEXT_MAX;
	case RELAYCTL_FORWARD:
		return m->guest_port;
	default:
		return false;
	}
}

int relayctl_parse(struct relayctl *out, struct span in)
{
	struct rd r = rd_of(in.p, in.len);
	struct relayctl m = { .type = (uint16_t)rd_le(&r, 2), .number = (uint32_t)rd_le(&r, 4) };

	switch (m.type) {
	case RELAYCTL_RESOLV:
	case RELAYCTL_HOSTS:
		m.file = rd_blob(&r, 4, RELAYCTL_FILE_MAX);
		break;
	case RELAYCTL_ALLOW:
	case RELAYCTL_DENY:
		m.pattern = rd_blob(&r, 4, RELAYCTL_PATTERN_MAX);
		break;
	case RELAYCTL_LISTEN: {
		m.listen.guest_port = (uint16_t)rd_le(&r, 2);
		uint64_t once = rd_le(&r, 1);
		if (once > 1)
			return -EPROTO;
		m.listen.once = once;
		m.listen.deadline_s = (uint32_t)rd_le(&r, 4);
		m.listen.label = rd_blob(&r, 4, RELAYCTL_LABEL_MAX);
		break;
	}
	case RELAYCTL_ERR:
	case RELAYCTL_LOST:
		m.text = rd_blob(&r, 4, RELAYCTL_TEXT_MAX);
		break;
	case RELAYCTL_FORWARD:
		m.guest_port = (uint16_t)rd_le(&r, 2);
		break;
	default: /* RELAYCTL_OK has no fields; valid() knows the others */
		break;
	}
	if (r.bad || r.left || !valid(&m))
		return -EPROTO;
	*out = m;
	return 0;
}

size_t relayctl_put(uint8_t *dst, size_t cap, const struct relayctl *m)
{
	struct wr w = wr_of(dst, cap);

	if (!valid(m))
		return 0;
	wr_le(&w, m->type, 2);
	wr_le(&w, m->number, 4);
	switch (m->type) {
	case RELAYCTL_RESOLV:
	case RELAYCTL_HOSTS:
		wr_blob(&w, m->file, 4);
		break;
	case RELAYCTL_ALLOW:
	case RELAYCTL_DENY:
		wr_blob(&w, m->pattern, 4);
		break;
	case RELAYCTL_LISTEN:
		wr_le(&w, m->listen.guest_port, 2);
		wr_le(&w, m->listen.once, 1);
		wr_le(&w, m->listen.deadline_s, 4);
		wr_blob(&w, m->listen.label, 4);
		break;
	case RELAYCTL_ERR:
	case RELAYCTL_LOST:
		wr_blob(&w, m->text, 4);
		break;
	case RELAYCTL_FORWARD:
		wr_le(&w, m->guest_port, 2);
		break;
	default:
		break;
	}
	return w.bad ? 0 : cap - w.left;
}
