/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress.h - which hosts a sandbox may reach: the policy, and its answers.
 *
 * Pure: a value that is filled once, asked often, and carried between processes
 * in a form of its own. The relay asks it for every question and every flow;
 * `cloche net check` asks the same functions.
 *
 * A rule is a host pattern, one port, and what the first bytes of a connection
 * must be. A deny rule wins over every allow rule that matches. Looking a name
 * up costs a hash of the name and of each of its parents, not the number of rules.
 * The hash is keyed (base/hash.h): a list cannot be written to make its users slow.
 */
#ifndef CLOCHE_POLICY_EGRESS_H
#define CLOCHE_POLICY_EGRESS_H

#include "base/ip.h"
#include "base/mem.h"
#include "policy/host.h"

enum egress_profile { EGRESS_PERMISSIVE, EGRESS_STANDARD, EGRESS_LOCKED };
/* "permissive", "standard", "locked". Return: 0 or -EINVAL. */
int egress_profile_parse(const char *s, enum egress_profile *out) MUST_CHECK;
const char *egress_profile_name(enum egress_profile p);

enum egress_kind {
	/* TLS or HTTP/1 whose head names an allowed host; all else is refused */
	EGRESS_NAMED = 1,
	/* as NAMED when the client begins with such a head; any other bytes, and servers that
	 * speak first, pass too (git over ssh) */
	EGRESS_RAW = 2,
};

/* Where a rule comes from; `info` shows it. */
enum egress_origin {
	EGRESS_FROM_PROVIDER = 1, /* the agent's profile */
	EGRESS_FROM_SOURCES,      /* source hosts: data of cloche */
	EGRESS_FROM_REGISTRY,     /* configuration of a package tool; the note says which */
	EGRESS_FROM_CONFIG,
	EGRESS_FROM_FLAG,
	EGRESS_FROM_LIVE, /* `cloche net allow` on a running session */
};
const char *egress_origin_name(enum egress_origin o);

enum {
	EGRESS_RULES_MAX = 20000,
	EGRESS_PORTS_MAX = 64, /* rules of one pattern, allow and deny each */
	EGRESS_NOTE_MAX = 200,
	EGRESS_PRIVATE_MAX = 64,
	EGRESS_SERVICES_MAX = 64,
	EGRESS_BYTES_MAX = 16 * 1024 * 1024, /* of the carried form */
};

struct egress_rule {
	struct host_pattern host; /* its port is set */
	uint8_t kind, origin;     /* kind is 0 in a deny rule */
	bool deny;                /* port 0: every port */
	char *note;               /* or NULL; malloc'd */
};

struct egress; /* opaque: rules, ranges, services, index */

/* An empty policy; aborts without memory. */
struct egress *egress_new(enum egress_profile p) MUST_CHECK;
void egress_free(struct egress *e);
enum egress_profile egress_profile_of(const struct egress *e);

/*
 * egress_add() - take one rule; @r is copied. Without a port: 443 for an allow rule.
 * kind 0: NAMED for ports 80 and 443, RAW for a port that was named otherwise.
 *
 * A rule of the same host, port and direction stays where it is; when the kinds
 * differ the new one's kind, origin and note take its place, so the later word
 * counts. An allow rule does not lift a denial: see egress_undeny().
 * PERMISSIVE has no policy to add to: allow rules are kept and have no effect, a
 * denial, which could not be enforced there, is -ENOTSUP.
 *
 * Return: 0, -EINVAL (not in the grammar; an allow rule for a closed port),
 * -E2BIG (EGRESS_RULES_MAX, or EGRESS_PORTS_MAX rules of one pattern), -ENOTSUP,
 * -ENOMEM.
 */
int egress_add(struct egress *e, const struct egress_rule *r) MUST_CHECK;
/*
 * Take back what was allowed of @h (its port, or every port) and refuse it from now on.
 * Rules of exactly this pattern go; others that match (a wildcard above) stay, and lose.
 * @origin is that of the deny rule: CONFIG for egress_deny(). Return: as egress_add().
 */
int egress_deny(struct egress *e, const struct host_pattern *h) MUST_CHECK;
int egress_deny_from(struct egress *e, const struct host_pattern *h,
                     enum egress_origin origin) MUST_CHECK;
/*
 * Take back the denials of exactly @h: that of its port and that of every port, or all
 * of them when @h has no port. Return: how many there were.
 */
size_t egress_undeny(struct egress *e, const struct host_pattern *h);
/*
 * egress_allow_private() - open a range for names that resolve into it. It lies within
 * one range that egress_addr_closed() calls loopback, private, link-local or
 * shared-space, else -EINVAL: the rest is never a service of somebody's network.
 * The metadata address opens by 169.254.169.254/32 only, not by a range around it.
 * Return: 0 (also when it is there), -EINVAL, -E2BIG (EGRESS_PRIVATE_MAX).
 */
int egress_allow_private(struct egress *e, struct ip4_net n) MUST_CHECK;
/* Return: 0 (also when it is there), -EINVAL (0, a closed port), -E2BIG. */
int egress_add_service(struct egress *e, uint16_t port) MUST_CHECK;

/* In the order of adding. Pointers into @e live until the next call that changes it. */
size_t egress_count(const struct egress *e);
const struct egress_rule *egress_rule_at(const struct egress *e, size_t i);
size_t egress_privates(const struct egress *e, const struct ip4_net **out);
size_t egress_services(const struct egress *e, const uint16_t **out);

/* May @name (lower case) be resolved: does any allow rule cover it on a port that is not denied? */
bool egress_name_ok(const struct egress *e, const char *name);
/*
 * The ports on which egress_find() allows @name, each once, at most @cap of them: what an
 * answer opens. 0 under PERMISSIVE, where ports are not opened one by one.
 */
size_t egress_ports(const struct egress *e, const char *name, uint16_t *out, size_t cap);
/*
 * The rule that allows @name on @port, or NULL. Of several the most specific: the name
 * itself, then the nearest wildcard. Under PERMISSIVE: a constant rule, kind RAW. A closed
 * port: NULL, always.
 */
const struct egress_rule *egress_find(const struct egress *e, const char *name, uint16_t port);
/* The deny rule that refuses @name on @port, or NULL: for telling why. */
const struct egress_rule *egress_denied(const struct egress *e, const char *name, uint16_t port);
bool egress_service_ok(const struct egress *e, uint16_t port);

/*
 * egress_addr_closed() - why no connection may go to @addr, in every profile:
 * "loopback", "private", "link-local", "metadata", "multicast", "broadcast",
 * "reserved", "this-network", "shared-space"; NULL when it may.
 * Ranges of egress_allow_private() are open. Documentation and benchmark ranges
 * are not closed: some machines route them. The host's own addresses are not
 * known here: the relay asks the kernel.
 */
const char *egress_addr_closed(const struct egress *e, uint32_t addr);
/* Ports closed to everybody (25), with @why set; it may be NULL. */
bool egress_port_closed(uint16_t port, const char **out_why);

/*
 * The carried form, little endian; what one writes the other reads to an equal value,
 * and nothing else is read: put(parse(x)) is x.
 *
 *   magic u32, version u8, profile u8, rules u32, ranges u16, services u16
 *   rule:	flags u8 (1 wild, 2 deny), kind u8, origin u8, port u16, name u8+, note u8+
 *   range:	addr u32, bits u8
 *   service:	port u16
 *
 * put appends to @out: 0, -ENOMEM (then @out is as before). parse: 0 with *out, -EPROTO,
 * -E2BIG, -ENOMEM.
 */
int egress_put(const struct egress *e, struct buf *out) MUST_CHECK;
int egress_parse(struct egress **out, struct span in) MUST_CHECK;

#endif
