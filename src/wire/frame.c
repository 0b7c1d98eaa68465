/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frame.h"

#include <errno.h>

/* Which header is possible: decided before a byte of payload is waited for. */
static bool header_ok(unsigned type, unsigned stream, unsigned channel, size_t len)
{
	if (type == FRAME_CONTROL)
		return channel == 0 && stream == 0 && len >= 1 && len <= FRAME_PAYLOAD_MAX;
	if (channel == 0 || channel >= FRAME_CHANNELS_MAX || stream >= FRAME_STREAMS)
		return false;
	switch (type) {
	case FRAME_DATA:
		return len >= 1 && len <= FRAME_PAYLOAD_MAX;
	case FRAME_CREDIT:
		return len == 4;
	case FRAME_EOF:
	case FRAME_RESET:
		return len == 0;
	default:
		return false;
	}
}

int frame_parse(struct frame *out, const void *buf, size_t len, size_t *out_used)
{
	struct rd r = rd_of(buf, len);

	if (len < FRAME_HEADER_BYTES)
		return -EAGAIN;
	unsigned magic = (unsigned)rd_le(&r, 2);
	uint8_t type = (uint8_t)rd_le(&r, 1);
	uint8_t stream = (uint8_t)rd_le(&r, 1);
	uint16_t channel = (uint16_t)rd_le(&r, 2);
	unsigned reserved = (unsigned)rd_le(&r, 2);
	size_t n = (size_t)rd_le(&r, 4);
	if (magic != FRAME_MAGIC || reserved != 0 || !header_ok(type, stream, channel, n))
		return -EPROTO;
	if (r.left < n)
		return -EAGAIN;
	struct span payload = rd_take(&r, n);
	if (r.bad)
		return -EPROTO;
	*out = (struct frame){
		.type = type, .stream = stream, .channel = channel, .payload = payload
	};
	*out_used = FRAME_HEADER_BYTES + n;
	return 0;
}

size_t frame_put(uint8_t *dst, size_t cap, const struct frame *f)
{
	struct wr w = wr_of(dst, cap);

	if (!header_ok(f->type, f->stream, f->channel, f->payload.len))
		return 0;
	wr_le(&w, FRAME_MAGIC, 2);
	wr_le(&w, f->type, 1);
	wr_le(&w, f->stream, 1);
	wr_le(&w, f->channel, 2);
	wr_le(&w, 0, 2);
	wr_blob(&w, f->payload, 4);
	return w.bad ? 0 : FRAME_HEADER_BYTES + f->payload.len;
}
