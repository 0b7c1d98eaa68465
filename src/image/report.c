/* SPDX-License-Identifier: Apache-2.0 */
#include "image/worker.h"

#include <errno.h>

enum { REPORT_MAGIC = 0x31524943 }; /* "CIR1" */

void worker_report_put(uint8_t out[WORKER_REPORT_BYTES], const struct worker_report *r)
{
	struct wr w = wr_of(out, WORKER_REPORT_BYTES);

	wr_le(&w, REPORT_MAGIC, 4);
	wr_le(&w, r->entries, 8);
	wr_put(&w, r->text, WORKER_TEXT_MAX);
	memset(w.p, 0, w.left);
	AUTO_BUF struct buf text = { 0 };
	if (registry_put(&r->registries, &text) == 0)
		wr_put(&w, text.p, text.len);
}

int worker_report_parse(struct worker_report *out, const uint8_t in[WORKER_REPORT_BYTES])
{
	struct rd r = rd_of(in, WORKER_REPORT_BYTES);
	struct worker_report x = { 0 };

	if (rd_le(&r, 4) != REPORT_MAGIC)
		return -EPROTO;
	x.entries = rd_le(&r, 8);
	struct span s = rd_take(&r, WORKER_TEXT_MAX);
	if (r.bad)
		return -EPROTO;
	memcpy(x.text, s.p, s.len);
	for (const char *c = x.text; *c; c++) {
		bool ok = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
		          (*c >= '0' && *c <= '9') || strchr(".+~_-", *c);
		if (!ok || c - x.text >= WORKER_TEXT_MAX)
			return -EPROTO;
	}
	s = rd_take(&r, REGISTRY_TEXT_MAX);
	s.len = strnlen((const char *)s.p, s.len);
	if (registry_parse(&x.registries, s) < 0)
		return -EPROTO;
	*out = x;
	return 0;
}
