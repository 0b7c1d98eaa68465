/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dhcp.h"

#include <errno.h>

#include "net/packet.h"

enum {
	/* RFC 2131 figure 1 */
	OP_REQUEST = 1,
	OP_REPLY = 2,
	HTYPE_ETHERNET = 1,
	AT_XID = 4,
	AT_SECS = 8,
	AT_FLAGS = 10,
	AT_CLIENT = 12,
	AT_YOURS = 16,
	AT_MAC = 28,
	AT_COOKIE = 236,
	FIXED_BYTES = 240,
	ANSWER_MIN = 300, /* RFC 1542 2.1: some clients drop a shorter one */
	FLAG_BROADCAST = 0x8000,
	/* RFC 2132, RFC 3397 */
	OPT_PAD = 0,
	OPT_MASK = 1,
	OPT_ROUTER = 3,
	OPT_DNS = 6,
	OPT_MTU = 26,
	OPT_REQUESTED = 50,
	OPT_LEASE = 51,
	OPT_OVERLOAD = 52,
	OPT_TYPE = 53,
	OPT_SERVER = 54,
	OPT_SEARCH = 119,
	OPT_END = 255,
	TYPE_LAST = 8,
	LABEL_MAX = 63,
};
#define COOKIE 0x63825363u
#define LEASE_FOR_EVER 0xffffffffu

/* An option that may stand once, of one length. */
static bool once(uint32_t *seen, unsigned bit, size_t len, size_t want)
{
	bool ok = !(*seen & bit) && len == want;

	*seen |= bit;
	return ok;
}

static int parse_options(struct dhcp_request *q, struct rd *r)
{
	uint32_t seen = 0;

	for (;;) {
		unsigned code = (unsigned)rd_le(r, 1);

		if (r->bad)
			return -EPROTO; /* no end */
		if (code == OPT_END)
			break;
		if (code == OPT_PAD)
			continue;
		struct span v = rd_blob(r, 1, UINT8_MAX);
		bool ok = !r->bad;
		if (ok && code == OPT_TYPE) {
			ok = once(&seen, 1, v.len, 1);
			q->type = ok ? v.p[0] : 0;
		} else if (ok && code == OPT_REQUESTED) {
			ok = once(&seen, 2, v.len, 4);
			q->requested = ok ? get_be32(v.p) : 0;
		} else if (ok && code == OPT_SERVER) {
			ok = once(&seen, 4, v.len, 4);
			q->server = ok ? get_be32(v.p) : 0;
		} else if (code == OPT_OVERLOAD) {
			ok = false; /* options hidden in the name fields: nothing for us */
		}
		if (!ok)
			return -EPROTO;
	}
	while (r->left) { /* nothing but padding behind the end */
		if (rd_le(r, 1) != OPT_PAD)
			return -EPROTO;
	}
	return q->type ? 0 : -EPROTO; /* BOOTP without a type */
}

int dhcp_parse(struct dhcp_request *out, struct span in)
{
	struct dhcp_request q = { 0 };

	if (in.len < FIXED_BYTES || in.len > DHCP_BYTES_MAX)
		return -EPROTO;
	/* hops: a relay agent was involved, and there is none */
	if (in.p[0] != OP_REQUEST || in.p[1] != HTYPE_ETHERNET || in.p[2] != MAC_BYTES ||
	    in.p[3] != 0)
		return -EPROTO;
	if (get_be32(in.p + AT_COOKIE) != COOKIE)
		return -EPROTO;
	q.xid = get_be32(in.p + AT_XID);
	q.secs = get_be16(in.p + AT_SECS);
	q.broadcast = get_be16(in.p + AT_FLAGS) & FLAG_BROADCAST;
	q.client = get_be32(in.p + AT_CLIENT);
	memcpy(q.mac, in.p + AT_MAC, MAC_BYTES);
	struct rd r = rd_of(in.p + FIXED_BYTES, in.len - FIXED_BYTES);
	int e = parse_options(&q, &r);
	if (e < 0)
		return e;
	if (q.type > TYPE_LAST)
		return -EPROTO;
	if (q.type != DHCP_DISCOVER && q.type != DHCP_REQUEST && q.type != DHCP_INFORM)
		return -ENOTSUP;
	*out = q;
	return 0;
}

enum dhcp_type dhcp_decide(const struct dhcp_request *q, const struct dhcp_config *c)
{
	if (q->type == DHCP_DISCOVER)
		return DHCP_OFFER;
	if (q->type == DHCP_INFORM)
		return q->client == c->addr ? DHCP_ACK : DHCP_NONE;
	if (q->server && q->server != c->server)
		return DHCP_NONE;
	uint32_t want = q->requested ? q->requested : q->client;
	return want == c->addr ? DHCP_ACK : DHCP_NAK;
}

static void put_option(struct wr *w, unsigned code, const void *p, size_t n)
{
	wr_le(w, code, 1);
	wr_blob(w, span_of(p, n), 1);
}

static void put_option32(struct wr *w, unsigned code, uint32_t v)
{
	uint8_t b[4];

	put_be32(b, v);
	put_option(w, code, b, sizeof(b));
}

/* "a.b" as labels (RFC 1035 3.1). Return: bytes; 0 when it is none. */
static size_t domain_put(uint8_t dst[DHCP_SEARCH_MAX + 2], const char *name)
{
	size_t n = 0;

	if (strlen(name) > DHCP_SEARCH_MAX)
		return 0;
	while (*name) {
		size_t len = strcspn(name, ".");

		if (len == 0 || len > LABEL_MAX)
			return 0;
		dst[n++] = (uint8_t)len;
		memcpy(dst + n, name, len);
		n += len;
		name += len;
		if (*name == '.' && *++name == '\0')
			return 0;
	}
	if (n)
		dst[n++] = 0;
	return n;
}

size_t dhcp_answer_put(uint8_t *dst, size_t cap, const struct dhcp_request *q,
                       const struct dhcp_config *c, enum dhcp_type type)
{
	uint8_t fixed[FIXED_BYTES] = { OP_REPLY, HTYPE_ETHERNET, MAC_BYTES };
	uint8_t domain[DHCP_SEARCH_MAX + 2], mtu[2], t = (uint8_t)type;
	struct wr w = wr_of(dst, MIN(cap, (size_t)DHCP_ANSWER_MAX));

	put_be32(fixed + AT_XID, q->xid);
	put_be16(fixed + AT_FLAGS, q->broadcast ? FLAG_BROADCAST : 0);
	/* RFC 2131 table 3: a NAK names no address, an INFORM has its own */
	if (type == DHCP_ACK)
		put_be32(fixed + AT_CLIENT, q->client);
	if (type != DHCP_NAK && q->type != DHCP_INFORM)
		put_be32(fixed + AT_YOURS, c->addr);
	memcpy(fixed + AT_MAC, q->mac, MAC_BYTES);
	put_be32(fixed + AT_COOKIE, COOKIE);
	wr_put(&w, fixed, sizeof(fixed));
	put_option(&w, OPT_TYPE, &t, 1);
	put_option32(&w, OPT_SERVER, c->server);
	if (type != DHCP_NAK) {
		if (q->type != DHCP_INFORM)
			put_option32(&w, OPT_LEASE, LEASE_FOR_EVER);
		put_option32(&w, OPT_MASK, c->mask);
		put_option32(&w, OPT_ROUTER, c->router);
		put_option32(&w, OPT_DNS, c->dns);
		put_be16(mtu, c->mtu);
		put_option(&w, OPT_MTU, mtu, sizeof(mtu));
		size_t n = c->search ? domain_put(domain, c->search) : 0;
		if (n)
			put_option(&w, OPT_SEARCH, domain, n);
	}
	wr_le(&w, OPT_END, 1);
	while (!w.bad && (size_t)(w.p - dst) < ANSWER_MIN)
		wr_le(&w, OPT_PAD, 1);
	return w.bad ? 0 : (size_t)(w.p - dst);
}
