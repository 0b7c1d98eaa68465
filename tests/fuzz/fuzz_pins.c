/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: whatever is added, expires and is refreshed, what was told to be open is
 * what the pins that are there open together, and no pin is there beyond the cap.
 *
 * Input: steps of 6 bytes: what, address, name, ports, ttl, time that passes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/pins.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX = 5, ADDRS = 4, NAMES = 4, PORTS = 4 };

static bool is_open[ADDRS][PORTS];
static uint8_t ports_now[NAMES]; /* bits; 0x80: refused */

static void on_open(void *arg, uint32_t addr, uint16_t port)
{
	(void)arg;
	if (is_open[addr][port - 1])
		abort();
	is_open[addr][port - 1] = true;
}

static void on_close(void *arg, uint32_t addr, uint16_t port)
{
	(void)arg;
	if (!is_open[addr][port - 1])
		abort();
	is_open[addr][port - 1] = false;
}

static int expand(uint8_t bits, uint16_t *out)
{
	int n = 0;

	for (uint16_t i = 0; i < PORTS; i++) {
		if (bits & 1U << i)
			out[n++] = (uint16_t)(i + 1);
	}
	return n;
}

static int ports_of(void *arg, const char *name, uint16_t *out)
{
	uint8_t bits = ports_now[name[1] - '0'];

	(void)arg;
	return bits & 0x80 ? -1 : expand(bits, out);
}

static void check(struct pins *p)
{
	bool want[ADDRS][PORTS] = { 0 };
	size_t n = 0;

	for (uint32_t a = 0; a < ADDRS; a++) {
		/* at time 0 nothing is over: also what was not swept yet */
		for (const struct pin *q = NULL; (q = pins_next(p, a, q, 0));) {
			n++;
			for (size_t i = 0; i < q->n_ports; i++)
				want[a][q->ports[i] - 1] = true;
			if (pins_find(p, a, q->name, 0) != q)
				abort();
		}
	}
	if (n != pins_count(p) || n > MAX || memcmp(want, is_open, sizeof(want)) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct pins_ops ops = { .open = on_open, .close = on_close };
	struct pins *p = pins_new(MAX, &ops, NULL);
	uint64_t now_ms = 1;

	memset(is_open, 0, sizeof(is_open));
	memset(ports_now, 0, sizeof(ports_now));
	for (; size >= 6; data += 6, size -= 6) {
		uint16_t ports[PORTS];
		char name[8];

		now_ms += data[5] * UINT64_C(1000);
		(void)snprintf(name, sizeof(name), "n%d", data[2] % NAMES);
		switch (data[0] % 3) {
		case 0:
			pins_add(p, data[1] % ADDRS, name, ports, (size_t)expand(data[3], ports),
			         data[4] * 20U, now_ms);
			if (!pins_find(p, data[1] % ADDRS, name, now_ms))
				abort();
			break;
		case 1:
			pins_sweep(p, now_ms);
			for (uint32_t a = 0; a < ADDRS; a++) {
				const struct pin *q = pins_next(p, a, NULL, 0);
				if (q && q->until_ms <= now_ms)
					abort();
			}
			break;
		default:
			ports_now[data[2] % NAMES] = data[3];
			pins_refresh(p, ports_of, NULL);
		}
		check(p);
	}
	pins_free(p);
	return 0;
}
