/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/judge.h"

#include <errno.h>
#include <string.h>

#include "wire/hello.h"

static const char *const why_names[WHYS] = {
	[WHY_NONE] = "none",
	[WHY_LITERAL] = "literal",
	[WHY_CLOSED] = "closed",
	[WHY_HOST_ADDRESS] = "host-address",
	[WHY_PORT] = "port",
	[WHY_SERVICE] = "service",
	[WHY_NAME] = "name",
	[WHY_MISMATCH] = "mismatch",
	[WHY_NO_NAME] = "no-name",
	[WHY_ECH] = "ech",
	[WHY_PROTOCOL] = "not-tls-or-http",
	[WHY_MALFORMED] = "malformed",
	[WHY_CONNECT] = "connect",
	[WHY_UPGRADE] = "upgrade",
	[WHY_HTTP2] = "http2",
	[WHY_TOO_LONG] = "too-long",
	[WHY_TIMEOUT] = "timeout",
	[WHY_ENDED] = "ended",
	[WHY_LIMIT] = "limit",
	[WHY_DENIED] = "denied",
	[WHY_REBINDING] = "rebinding",
	[WHY_UPSTREAM] = "upstream",
	[WHY_MULTICAST] = "multicast",
};

const char *why_name(enum why w)
{
	ASSERT(w < WHYS && why_names[w]);
	return why_names[w];
}

const char *proto_name(enum proto p)
{
	static const char *const names[] = { NULL, "tls", "http", "raw", "service" };

	ASSERT(p < ARRAY_LEN(names));
	return names[p];
}

static void refuse(struct judge_out *out, enum why why)
{
	out->verdict = VERDICT_REFUSE;
	out->why = why;
}

/* The network of the sandboxes: nothing of it lies behind the relay. */
static bool own_net(uint32_t addr)
{
	return ip4_net_has((struct ip4_net){ .addr = IP4(10, 87, 0, 0), .bits = 16 }, addr);
}

static const char *closed(const struct egress *policy, uint32_t addr)
{
	return own_net(addr) ? "private" : egress_addr_closed(policy, addr);
}

/* A name at that address that opens the port to any protocol. */
static const struct pin *raw_pin(const struct judge_in *in)
{
	for (const struct pin *p = NULL; (p = pins_next(in->pins, in->addr, p, in->now_ms));) {
		const struct egress_rule *r = egress_find(in->policy, p->name, in->port);

		if (r && r->kind == EGRESS_RAW)
			return p;
	}
	return NULL;
}

static void copy_name(struct judge_out *out, const char *name)
{
	memcpy(out->name, name, strlen(name) + 1);
}

void judge_dest(struct judge_out *out, const struct judge_in *in)
{
	*out = (struct judge_out){ .verdict = VERDICT_MORE };
	if (in->addr == (uint32_t)JUDGE_SERVICE_ADDR) {
		out->proto = PROTO_SERVICE;
		copy_name(out, JUDGE_SERVICE_NAME);
		out->verdict = VERDICT_ALLOW;
		if (!egress_service_ok(in->policy, in->port))
			refuse(out, WHY_SERVICE);
		return;
	}
	out->detail = closed(in->policy, in->addr);
	if (out->detail) {
		refuse(out, WHY_CLOSED);
		return;
	}
	if (egress_port_closed(in->port, NULL)) {
		refuse(out, WHY_PORT);
		return;
	}
	const struct pin *pin = pins_next(in->pins, in->addr, NULL, in->now_ms);
	if (egress_profile_of(in->policy) == EGRESS_PERMISSIVE) {
		out->verdict = VERDICT_ALLOW;
		out->proto = PROTO_RAW;
		if (pin)
			copy_name(out, pin->name);
		return;
	}
	if (!pin) {
		refuse(out, WHY_LITERAL);
		return;
	}
	pin = raw_pin(in);
	if (!pin)
		return;
	out->raw = true;
	copy_name(out, pin->name);
}

/* @out->name is set. */
static void check_name(struct judge_out *out, const struct judge_in *in, const char *allowed)
{
	bool same = allowed && strcmp(allowed, out->name) == 0;

	out->verdict = VERDICT_ALLOW;
	if (!egress_find(in->policy, out->name, in->port))
		refuse(out, WHY_NAME);
	else if (!same && !pins_find(in->pins, in->addr, out->name, in->now_ms))
		refuse(out, WHY_MISMATCH);
}

static void judge_tls(struct judge_out *out, const struct judge_in *in, struct span first,
                      bool ended)
{
	struct hello h;
	int r = hello_parse(&h, first);

	out->proto = PROTO_TLS;
	if (r == -EAGAIN) {
		if (ended)
			refuse(out, WHY_ENDED);
		return;
	}
	if (r < 0) {
		refuse(out, r == -EMSGSIZE ? WHY_TOO_LONG : WHY_MALFORMED);
		return;
	}
	copy_name(out, h.name);
	if (h.ech)
		refuse(out, WHY_ECH);
	else if (h.quic)
		refuse(out, WHY_PROTOCOL);
	else if (!h.name[0])
		refuse(out, WHY_NO_NAME);
	else
		check_name(out, in, NULL);
}

static void judge_request(struct judge_out *out, const struct judge_in *in,
                          const struct http1_head *h, const char *allowed)
{
	bool later = allowed != NULL;

	out->proto = PROTO_HTTP;
	if (host_name_parse(out->name, span_str(h->host), NULL) < 0) {
		out->name[0] = '\0';
		refuse(out, h->host[0] ? WHY_LITERAL : WHY_NO_NAME);
		return;
	}
	if (h->connect) {
		refuse(out, WHY_CONNECT);
		return;
	}
	if (h->port && h->port != in->port) {
		refuse(out, WHY_PORT);
		return;
	}
	/* to WebSocket, and nothing else: http1_head_parse() sees to that */
	if (h->upgrade && later) {
		refuse(out, WHY_UPGRADE);
		return;
	}
	check_name(out, in, allowed);
}

void judge_head(struct judge_out *out, const struct judge_in *in, const struct http1_head *h,
                const char *allowed)
{
	*out = (struct judge_out){ 0 };
	judge_request(out, in, h, allowed);
}

static void judge_http(struct judge_out *out, const struct judge_in *in, struct span first,
                       bool ended)
{
	struct http1_head h;
	int r = http1_head_parse(&h, first, true);

	out->proto = PROTO_HTTP;
	if (r == -EAGAIN) {
		if (ended)
			refuse(out, WHY_ENDED);
		return;
	}
	if (r < 0) {
		refuse(out, r == -EMSGSIZE ? WHY_TOO_LONG : WHY_MALFORMED);
		return;
	}
	judge_request(out, in, &h, NULL);
}

/* HTTP/2 in cleartext, whose requests we cannot read: its method is nobody else's (RFC 9113 3.4). */
static bool is_http2(struct span s)
{
	return s.len >= 4 && memcmp(s.p, "PRI ", 4) == 0;
}

/*
 * TLS, HTTP, or with @out->raw any other bytes. What may still become one of them is
 * waited for; the first line of SSH, SMTP and git is enough to tell that they are neither.
 */
static void judge_first(struct judge_out *out, const struct judge_in *in, struct span first,
                        bool ended)
{
	struct span line = first;

	if (hello_is_tls(first) && (first.len >= 2 || !ended || !out->raw)) {
		judge_tls(out, in, first, ended);
		return;
	}
	/* servers pass over empty lines before a request (RFC 9112 2.2): so do we, to see it */
	while (out->raw && line.len && (*line.p == '\r' || *line.p == '\n'))
		line = span_of(line.p + 1, line.len - 1);
	bool maybe = line.len == 0 || http1_is_request(line);
	if (maybe && line.len && memchr(line.p, '\n', line.len)) {
		judge_http(out, in, first, ended);
	} else if (maybe && first.len >= JUDGE_BYTES_MAX) {
		refuse(out, WHY_TOO_LONG);
	} else if (maybe && !ended) {
		out->word = out->raw && !memchr(line.p, ' ', line.len) &&
		            !memchr(line.p, '\t', line.len);
	} else if (out->raw) {
		out->verdict = VERDICT_ALLOW;
		out->proto = PROTO_RAW;
	} else {
		refuse(out, maybe ? WHY_ENDED : WHY_PROTOCOL);
	}
}

void judge_bytes(struct judge_out *out, const struct judge_in *in, struct span first, bool ended)
{
	judge_dest(out, in);
	if (out->verdict != VERDICT_MORE)
		return;
	if (first.len == 0) {
		if (ended && out->raw) {
			/* it only listens */
			out->verdict = VERDICT_ALLOW;
			out->proto = PROTO_RAW;
		} else if (ended) {
			refuse(out, WHY_ENDED);
		}
		return;
	}
	if (is_http2(first)) {
		out->proto = PROTO_HTTP;
		refuse(out, WHY_HTTP2);
		return;
	}
	judge_first(out, in, first, ended);
}

enum why judge_datagram(const struct judge_in *in, const char **out_detail)
{
	*out_detail = NULL;
	if (egress_profile_of(in->policy) != EGRESS_PERMISSIVE)
		return WHY_PROTOCOL; /* the gate passes none: it is not the one that we know */
	const char *range = closed(in->policy, in->addr);
	if (range && (strcmp(range, "multicast") == 0 || strcmp(range, "broadcast") == 0))
		return WHY_MULTICAST;
	*out_detail = range;
	if (range)
		return WHY_CLOSED;
	return egress_port_closed(in->port, NULL) ? WHY_PORT : WHY_NONE;
}

enum why judge_answer(const struct egress *policy, uint32_t addr, const char **out_detail)
{
	*out_detail = closed(policy, addr);
	return *out_detail ? WHY_REBINDING : WHY_NONE;
}
