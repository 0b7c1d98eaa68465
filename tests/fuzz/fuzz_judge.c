/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a verdict does not depend on how the client cuts its bytes, an end always
 * brings one, and an ALLOW has a name that the policy allows there and that is pinned.
 *
 * Input: port (0: 443, 1: 80, 2: raw), then the first bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "relay/judge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ADDR = IP4(203, 0, 113, 1) };

static struct egress *policy;
static struct pins *pins;

static void no_op(void *arg, uint32_t addr, uint16_t port)
{
	(void)arg;
	(void)addr;
	(void)port;
}

static void allow(const char *pattern)
{
	struct egress_rule r = { .origin = EGRESS_FROM_FLAG };

	if (host_pattern_parse(&r.host, span_str(pattern), NULL) < 0 || egress_add(policy, &r) < 0)
		abort();
}

static void set_up(void)
{
	static const struct pins_ops ops = { .open = no_op, .close = no_op };
	uint16_t ports[PINS_PORTS_MAX];

	policy = egress_new(EGRESS_STANDARD);
	pins = pins_new(PINS_MAX, &ops, NULL);
	allow("a.test:443");
	allow("a.test:80");
	allow("a.test:22");
	allow("*.b.test:443");
	allow("c.test:443"); /* allowed, never pinned */
	pins_add(pins, ADDR, "a.test", ports, egress_ports(policy, "a.test", ports, PINS_PORTS_MAX),
	         60, 0);
	pins_add(pins, ADDR, "x.b.test", ports, 0, 60, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t ports[] = { 443, 80, 22 };
	struct judge_out all, o;

	if (!policy)
		set_up();
	if (size == 0)
		return 0;
	struct judge_in in = { .policy = policy, .pins = pins, .addr = ADDR };
	in.port = ports[data[0] % ARRAY_LEN(ports)];
	data++;
	size--;
	judge_bytes(&all, &in, span_of(data, size), false);
	if (all.verdict == VERDICT_ALLOW &&
	    (!egress_find(policy, all.name, in.port) || !pins_find(pins, ADDR, all.name, 0) ||
	     strcmp(all.name, "c.test") == 0))
		abort();
	if (all.verdict == VERDICT_MORE && size >= JUDGE_BYTES_MAX)
		abort();
	/* every cut of a short input, a few of a long one */
	for (size_t k = 0; k < size; k += 1 + size / 64) {
		judge_bytes(&o, &in, span_of(data, k), false);
		if (o.verdict != VERDICT_MORE &&
		    (o.verdict != all.verdict || o.why != all.why || o.proto != all.proto ||
		     strcmp(o.name, all.name) != 0))
			abort();
		judge_bytes(&o, &in, span_of(data, k), true);
		if (o.verdict == VERDICT_MORE)
			abort();
	}
	judge_bytes(&o, &in, span_of(data, size), true);
	if (o.verdict == VERDICT_MORE)
		abort();
	return 0;
}
