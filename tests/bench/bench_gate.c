/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_gate - CPU time of gate_judge() for one frame, beside a memcpy() of the same frame;
 * minimum of 5. A frame is read whole once (its checksum), so for large ones memcpy() is what
 * it can be compared with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ip.h"
#include "lib/netframe.h"
#include "net/gate.h"
#include "policy/egress.h"

enum { RUNS = 5, LOOPS = 20000, SYN = 2, ACK = 16, OPENS = 10000 };

#define HOST IP4(198, 51, 100, 7)

static struct nf f, copy;
static struct gate *g;
static struct gate_out o;

static double cpu_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* cannot fail for this clock */
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void want(enum gate_verdict v)
{
	if (o.verdict != v) {
		(void)fprintf(stderr, "verdict %d, not %d\n", o.verdict, v);
		exit(1);
	}
}

static void do_copy(unsigned i)
{
	(void)i;
	memcpy(copy.b, f.b, f.len);
	__asm__ volatile("" : : "r"(copy.b) : "memory"); /* it counts */
}

static void do_up(unsigned i)
{
	(void)i;
	gate_judge(g, GATE_GUEST, f.b, f.len, &o);
	want(GATE_TO_SLIRP);
}

static void do_down(unsigned i)
{
	(void)i;
	gate_judge(g, GATE_TERMINATOR, f.b, f.len, &o);
	want(GATE_TO_GUEST);
}

/* To one of the first @n opened addresses; the checksums of the SYN are part of what is timed. */
static void syn_to(unsigned addr)
{
	nf32(nf_ip_of(&f) + 16, HOST + addr);
	nf_fix(&f);
	gate_judge(g, GATE_GUEST, f.b, f.len, &o);
}

static void do_syn_few(unsigned i)
{
	syn_to(i % 10);
	want(GATE_TO_SLIRP);
	gate_flow_gone(g, o.flow);
}

static void do_syn_many(unsigned i)
{
	syn_to(i * 7919 % OPENS);
	want(GATE_TO_SLIRP);
	gate_flow_gone(g, o.flow);
}

static void do_syn_refused(unsigned i)
{
	syn_to(OPENS + i % 1000);
	want(GATE_DROP);
}

static double least(void (*fn)(unsigned))
{
	double best = 1e18;

	for (int run = 0; run < RUNS; run++) {
		double begin = cpu_ns();

		for (unsigned i = 0; i < LOOPS; i++)
			fn(i);
		double ns = (cpu_ns() - begin) / LOOPS;
		best = ns < best ? ns : best;
	}
	return best;
}

static void row(const char *name, void (*fn)(unsigned))
{
	double gate = least(fn), ref = least(do_copy);

	printf("  %-34s %8.0f ns   memcpy %6.0f ns   %5.1f\n", name, gate, ref, gate / ref);
}

static void flow(size_t payload)
{
	nf_tcp(&f, NF_GUEST, 40000, HOST, 443, ACK, 1, 1, payload);
}

int main(void)
{
	struct egress *e = egress_new(EGRESS_STANDARD);
	const struct gate_config c = { .addr = NF_GUEST,
		                       .gateway = NF_GATEWAY,
		                       .service = NF_SERVICE,
		                       .mac = NF_GUEST_MAC,
		                       .gateway_mac = NF_GATEWAY_MAC,
		                       .closed = e };

	g = gate_new(&c);
	for (uint32_t i = 0; i < OPENS; i++) {
		if (gate_open(g, HOST + i, 443) < 0)
			return 1;
	}
	nf_tcp(&f, NF_GUEST, 40000, HOST, 443, SYN, 0, 0, 0);
	do_up(0);
	nf_tcp(&f, HOST, 443, NF_GUEST, 40000, SYN | ACK, 0, 1, 0);
	do_down(0);
	printf("gate_judge(), CPU time of a frame:\n");
	flow(1460);
	row("segment of 1500 bytes, up", do_up);
	flow(15960);
	row("segment of 16000 bytes, up", do_up);
	nf_tcp(&f, HOST, 443, NF_GUEST, 40000, ACK, 1, 1, 15960);
	row("segment of 16000 bytes, down", do_down);
	nf_tcp(&f, NF_GUEST, 40001, HOST, 443, SYN, 0, 0, 0);
	row("SYN, 10 addresses are asked for", do_syn_few);
	row("SYN, 10000 addresses", do_syn_many);
	row("SYN refused, 10000 are open", do_syn_refused);
	gate_free(g);
	egress_free(e);
	return 0;
}
