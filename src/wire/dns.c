/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/dns.h"

#include <errno.h>

enum {
	HEADER_BYTES = 12,
	QUESTION_AT = HEADER_BYTES, /* where the name stands in our answers */
	LABEL_MAX = 63,
	CLASS_IN = 1,
	TYPE_OPT = 41,
	/* header bits, RFC 1035 4.1.1 and RFC 4035 3.2 */
	F_QR = 0x8000,
	F_OPCODE = 0x7800,
	F_AA = 0x0400,
	F_TC = 0x0200,
	F_RD = 0x0100,
	F_RA = 0x0080,
	F_Z = 0x0040,
	F_RCODE = 0x000f,
	/* of OPT's TTL, RFC 6891 6.1.3 */
	OPT_DO = 0x8000,
	OPT_RCODE_VERSION = 0xffff, /* in its upper half */
	OPT_BYTES = 11,
	A_BYTES = 16, /* with a name of two bytes */
};

/* The wire is big endian, the cursors of base/span.h are not. */
static uint16_t rd_be16(struct rd *r)
{
	uint16_t v = (uint16_t)rd_le(r, 2);

	return (uint16_t)(v << 8 | v >> 8);
}

static void wr_be16(struct wr *w, unsigned v)
{
	wr_le(w, (v & 0xff) << 8 | (v >> 8 & 0xff), 2);
}

static void wr_be32(struct wr *w, uint32_t v)
{
	wr_be16(w, v >> 16);
	wr_be16(w, v & 0xffff);
}

static bool is_name_byte(uint8_t c)
{
	return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' ||
	       c == '_';
}

/* The name in its text form. A compression pointer is a label that is too long. */
static int name_take(struct rd *r, char out[DNS_NAME_MAX + 1])
{
	size_t n = 0;

	for (;;) {
		size_t len = (size_t)rd_le(r, 1);

		if (r->bad || len > LABEL_MAX)
			return -EPROTO;
		if (len == 0)
			break;
		struct span label = rd_take(r, len);
		if (r->bad || len + (n > 0) > DNS_NAME_MAX - n)
			return -EPROTO;
		if (n > 0)
			out[n++] = '.';
		for (size_t i = 0; i < len; i++) {
			if (!is_name_byte(label.p[i]))
				return -EPROTO;
			out[n++] = (char)label.p[i];
		}
	}
	out[n] = '\0';
	return 0;
}

/* RFC 6891 6.1.2; the options are looked through for their lengths only. */
static int opt_take(struct rd *r, struct dns_question *q)
{
	if (rd_le(r, 1) != 0 || rd_be16(r) != TYPE_OPT)
		return -EPROTO;
	uint16_t size = rd_be16(r);
	uint16_t upper = rd_be16(r), flags = rd_be16(r);
	struct span data = rd_take(r, rd_be16(r));
	if (r->bad || (upper & OPT_RCODE_VERSION))
		return -EPROTO;
	struct rd o = rd_of(data.p, data.len);
	while (o.left && !o.bad) {
		(void)rd_be16(&o); /* any code: options are the asker's offers */
		(void)rd_take(&o, rd_be16(&o));
	}
	if (o.bad)
		return -EPROTO;
	q->edns = true;
	q->dnssec_ok = flags & OPT_DO;
	q->udp_max = MIN(MAX(size, (uint16_t)DNS_UDP_MAX), (uint16_t)DNS_EDNS_MAX);
	return 0;
}

int dns_question_parse(struct dns_question *out, struct span in)
{
	struct rd r = rd_of(in.p, in.len);
	struct dns_question q = { .udp_max = DNS_UDP_MAX };

	q.id = rd_be16(&r);
	uint16_t flags = rd_be16(&r);
	uint16_t qd = rd_be16(&r), an = rd_be16(&r), ns = rd_be16(&r), ar = rd_be16(&r);
	/* AD and CD are requests of a resolver that validates; we have nothing to say to them */
	if (r.bad || (flags & (F_QR | F_OPCODE | F_AA | F_TC | F_RA | F_Z | F_RCODE)) || qd != 1 ||
	    an != 0 || ns != 0 || ar > 1)
		return -EPROTO;
	q.rd = flags & F_RD;
	if (name_take(&r, q.asked) < 0)
		return -EPROTO;
	q.qtype = rd_be16(&r);
	if (rd_be16(&r) != CLASS_IN || r.bad)
		return -EPROTO;
	if (ar && opt_take(&r, &q) < 0)
		return -EPROTO;
	if (r.left)
		return -EPROTO;
	for (size_t i = 0; i < sizeof(q.name); i++) {
		char c = q.asked[i];

		q.name[i] = (char)(c >= 'A' && c <= 'Z' ? c | 32 : c);
	}
	*out = q;
	return 0;
}

static void name_put(struct wr *w, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, ".");

		if (len == 0 || len > LABEL_MAX) {
			w->bad = true; /* no name of dns_question_parse() */
			return;
		}
		wr_le(w, len, 1);
		wr_put(w, text, len);
		text += len;
		if (*text == '.')
			text++;
	}
	wr_le(w, 0, 1);
}

size_t dns_answer_put(uint8_t *dst, size_t cap, const struct dns_question *q,
                      const struct dns_answer *a)
{
	size_t limit = MIN(cap, (size_t)q->udp_max), n = 0;
	struct wr w = wr_of(dst, limit);

	if (a->rcode > F_RCODE || a->n > DNS_ADDRS_MAX)
		return 0;
	if (a->rcode == DNS_NOERROR && q->qtype == DNS_TYPE_A)
		n = a->n;
	wr_be16(&w, q->id);
	wr_be16(&w, F_QR | F_RA | (q->rd ? F_RD : 0) | a->rcode);
	wr_be16(&w, 1);
	wr_be16(&w, 0); /* records: known below */
	wr_be16(&w, 0);
	wr_be16(&w, q->edns ? 1 : 0);
	name_put(&w, q->asked);
	wr_be16(&w, q->qtype);
	wr_be16(&w, CLASS_IN);

	size_t tail = q->edns ? OPT_BYTES : 0;
	if (w.bad || w.left < tail)
		return 0;
	n = MIN(n, (w.left - tail) / A_BYTES);
	for (size_t i = 0; i < n; i++) {
		wr_be16(&w, 0xc000 | QUESTION_AT);
		wr_be16(&w, DNS_TYPE_A);
		wr_be16(&w, CLASS_IN);
		wr_be32(&w, a->ttl_s);
		wr_be16(&w, 4);
		wr_be32(&w, a->addrs[i]);
	}
	if (q->edns) {
		wr_le(&w, 0, 1);
		wr_be16(&w, TYPE_OPT);
		wr_be16(&w, DNS_EDNS_MAX);
		wr_be32(&w, q->dnssec_ok ? OPT_DO : 0); /* RFC 3225 3: said back */
		wr_be16(&w, 0);
	}
	ASSERT(!w.bad);
	dst[7] = (uint8_t)n; /* low byte of the count of answers */
	return limit - w.left;
}
