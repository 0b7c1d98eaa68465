/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: the gate and libslirp count the same connections, after every step, whatever the
 * guest and the relay do and however much time goes by; and the relay reads the bytes that the
 * guest sent, each once and in order.
 *
 * libslirp is the real one. The guest's byte at offset N of a stream is a function of N, so a
 * segment that is sent again, or in another cut, says the same.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ip.h"
#include "lib/netframe.h"
#include "net/gate.h"
#include "net/slirp.h"
#include "policy/egress.h"

enum {
	FLOWS = 6,
	HALF = 4,
	GUESTS = 8,
	STEPS = 300,
	FIN = 1,
	SYN = 2,
	RST = 4,
	ACK = 16,
	URG = 32
};

#define HOST IP4(198, 51, 100, 7)
#define TICK_NS INT64_C(500000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* libslirp 4.7.0 forgets the path of a forward that is removed (slirp.h) */
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

#define HOLDS(cond)              \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

/* One port of the guest, and what became of its present connection. */
struct guest {
	uint32_t iss, irs; /* first sequence numbers */
	uint32_t sent;     /* bytes that were in order, and a FIN */
	uint32_t got;      /* acknowledged of theirs */
	bool answered;
	int fd;      /* the relay's end; -1: none */
	size_t read; /* bytes that the relay has taken */
};

static struct guest guests[GUESTS];
static struct gate *gate;
static struct tcpend *tcp;
static int64_t clock_ns;
static struct rd in;
static struct nf f;
static uint32_t rounds;

static int64_t now_ns(void)
{
	return clock_ns;
}

static uint8_t byte_at(size_t n)
{
	return (uint8_t)(n * 7 + (n >> 8) * 13);
}

static void drop_fd(struct guest *g)
{
	if (g->fd >= 0)
		HOLDS(close(g->fd) == 0);
	g->fd = -1;
}

static void down(void *arg, const void *frame, size_t len, struct gate_out *o)
{
	static uint8_t b[GATE_FRAME_MAX];

	(void)arg;
	HOLDS(len <= sizeof(b));
	memcpy(b, frame, len);
	gate_judge(gate, GATE_TERMINATOR, b, len, o);
	if (o->verdict != GATE_TO_GUEST || o->rst)
		return;
	const uint8_t *t = b + NF_ETH + NF_IP;
	struct guest *g = &guests[nf_g16(t + 2) % GUESTS];
	HOLDS(nf_g32(b + NF_ETH + 12) == HOST && nf_g16(t + 2) == 1000 + (unsigned)(g - guests));
	if (t[13] & SYN) {
		g->answered = true;
		g->irs = nf_g32(t + 4);
	}
	/* it takes what there is, at once */
	uint32_t end = nf_g32(t + 4) +
	               (uint32_t)(o->len - NF_ETH - NF_IP - (size_t)(t[12] >> 4) * 4) +
	               !!(t[13] & SYN) + !!(t[13] & FIN);
	if ((int32_t)(end - g->irs - g->got) > 0)
		g->got = end - g->irs;
}

static void connected(void *arg, const struct gate_flow_key *k, int fd)
{
	struct guest *g = &guests[k->guest_port % GUESTS];

	(void)arg;
	HOLDS(k->addr == HOST && k->port == 443);
	drop_fd(g);
	g->fd = fd;
	g->read = 0;
}

static unsigned byte(void)
{
	return (unsigned)rd_le(&in, 1);
}

static void turn(void)
{
	struct pollfd v[GATE_FLOWS_MAX];
	int timeout = 0;
	size_t n = tcpend_fill(tcp, v, &timeout);

	HOLDS(n <= FLOWS);
	while (poll(v, n, 0) < 0)
		HOLDS(errno == EINTR); /* libFuzzer's alarm */
	tcpend_turn(tcp, v, n);
}

static void segment(void)
{
	unsigned who = byte() % GUESTS, flags = byte(), len = byte();
	int32_t d = (int8_t)byte();
	struct guest *g = &guests[who];
	struct gate_out o;
	uint32_t at = g->sent + (uint32_t)d;

	if ((flags & (SYN | ACK | RST)) == SYN) {
		g->iss = ++rounds * 0x01010101u;
		at = 0;
	}
	nf_tcp(&f, NF_GUEST, 1000 + who, HOST, 443, flags, g->iss + at, g->irs + g->got, len * 40u);
	uint8_t *t = nf_l4_of(&f);
	for (size_t i = 0; i < len * 40u; i++)
		t[20 + i] = byte_at(at - 1 + i); /* the SYN is before the first */
	if (flags & URG)
		nf16(t + 18, 2000);
	nf_fix(&f);
	gate_judge(gate, GATE_GUEST, f.b, f.len, &o);
	if (o.verdict != GATE_TO_SLIRP)
		return;
	if (o.syn) {
		g->sent = 1;
		g->got = 0;
		g->answered = false;
	} else if (!(flags & RST)) {
		/* not all of it need have been taken: then it is a gap for the next one */
		uint32_t end = at + len * 40u + (flags & FIN);
		if ((int32_t)(end - g->sent) > 0)
			g->sent = end;
	}
	tcpend_input(tcp, f.b, &o);
}

static void relay(void)
{
	static uint8_t b[100000];
	unsigned what = byte(), n = byte();
	struct guest *g = &guests[what % GUESTS];
	ssize_t k;

	if (g->fd < 0)
		return;
	switch (what / GUESTS % 4) {
	case 0: /* read */
		k = recv(g->fd, b, n * 300u + 1, MSG_DONTWAIT);
		for (ssize_t i = 0; i < k; i++)
			HOLDS(b[i] == byte_at(g->read + (size_t)i));
		if (k > 0)
			g->read += (size_t)k;
		break;
	case 1: /* write */
		memset(b, 0x55, n * 300u + 1);
		(void)!send(g->fd, b, n * 300u + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 2:
		(void)shutdown(g->fd, SHUT_WR);
		break;
	case 3:
		drop_fd(g);
		break;
	}
}

static void step(void)
{
	unsigned what = byte();

	switch (what % 8) {
	case 0:
	case 1:
	case 2:
	case 3:
		segment();
		break;
	case 4:
	case 5:
		relay();
		break;
	case 6:
		turn();
		break;
	case 7: /* time: up to 128 s */
		for (unsigned i = 0; i < what; i++) {
			clock_ns += TICK_NS;
			turn();
		}
		break;
	}
	HOLDS(tcpend_count(tcp) == gate_flows(gate, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct egress *e;
	struct err *no_err = NULL;

	if (!e)
		e = egress_new(EGRESS_PERMISSIVE);
	HOLDS(signal(SIGPIPE, SIG_IGN) != SIG_ERR); /* libslirp writes without asking */
	const struct gate_config gc = { .addr = NF_GUEST,
		                        .gateway = NF_GATEWAY,
		                        .service = NF_SERVICE,
		                        .mac = NF_GUEST_MAC,
		                        .gateway_mac = NF_GATEWAY_MAC,
		                        .permissive = true,
		                        .closed = e,
		                        .flows_max = FLOWS,
		                        .half_open_max = HALF,
		                        .opens_max = 16 };
	gate = gate_new(&gc);
	const struct tcpend_config tc = { .gate = gate,
		                          .addr = NF_GUEST,
		                          .gateway = NF_GATEWAY,
		                          .mac = NF_GUEST_MAC,
		                          .mtu = 16000,
		                          .down = down,
		                          .connected = connected,
		                          .now_ns = now_ns };
	in = rd_of(data, size);
	clock_ns = 1000 * TICK_NS;
	rounds = 0;
	for (size_t i = 0; i < GUESTS; i++)
		guests[i] = (struct guest){ .fd = -1 };
	HOLDS(tcpend_new(&tcp, &tc, no_err) == 0);
	HOLDS(tcpend_self_test(tcp, no_err) == 0 && tcpend_count(tcp) == 0);
	for (int i = 0; i < STEPS && in.left; i++)
		step();
	/* what is half-open is given up in the end, and libslirp knows of nothing more than we */
	for (size_t i = 0; i < GUESTS; i++)
		drop_fd(&guests[i]);
	for (int i = 0; i < 200; i++) {
		clock_ns += TICK_NS;
		turn();
	}
	size_t half;
	HOLDS(tcpend_count(tcp) == gate_flows(gate, &half) && half == 0);
	tcpend_free(tcp);
	gate_free(gate);
	return 0;
}
