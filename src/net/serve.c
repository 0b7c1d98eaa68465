/* SPDX-License-Identifier: Apache-2.0 */
#include "net/serve.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hostname.h"
#include "base/ip.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/dhcp.h"
#include "net/drops.h"
#include "net/gate.h"
#include "net/stream.h"
#include "net/slirp.h"
#include "net/swmsg.h"
#include "wire/dns.h"
#include "wire/netmsg.h"

#define GATEWAY IP4(10, 87, 0, 1)
#define SERVICE IP4(10, 87, 0, 2)
#define NETMASK IP4(255, 255, 0, 0)
#define PROBE_NET IP4(198, 51, 100, 0)

static const uint8_t gateway_mac[MAC_BYTES] = { 0x02, 0xc1, 0x0c, 0x00, 0x00, 0x01 };

enum {
	PORT_DNS = 53,
	PORT_DHCP_SERVER = 67,
	PORT_DHCP_CLIENT = 68,
	/* a resolver of a C library has given up by then */
	QUESTION_MS = 15 * 1000,
	PEER_TTL_S = 5,
	PEERS_MAX = 256,
	/* messages for a relay that is slow; above HIGH no more frames are taken in */
	QUEUE_HIGH = 1024,
	QUEUE_MAX = QUEUE_HIGH + 64,
	BATCH = 64, /* messages a turn, of each peer */
	POLL_FRAMES = 0,
	POLL_RELAY,
	POLL_SWITCH,
	POLL_FIXED,
};

struct queued {
	uint8_t *bytes;
	size_t len;
	int fd; /* -1: none */
};

enum question_state {
	Q_FREE,
	Q_WAITS,
	Q_LATE, /* the guest has its answer; the relay's will come, and is for nobody */
};

struct question {
	uint8_t state;
	uint16_t guest_port;
	uint64_t until_ns;
	struct dns_question q;
};

struct peer {
	uint32_t addr; /* 0: free */
	char name[SWMSG_NAME_MAX + 1];
};

struct serve {
	struct serve_opts o;
	struct packet_macs to_guest;
	struct gate *gate;
	struct tcpend *tcp;
	struct stream_in in;
	struct stream_out out;
	struct queued queue[QUEUE_MAX];
	size_t queue_at, queue_n;
	struct question questions[NETMSG_IDS];
	unsigned next_id, n_waiting;
	struct drops drops;
	struct peer peers[PEERS_MAX];
	struct pollfd poll[POLL_FIXED + GATE_FLOWS_MAX];
	bool opens_full, ended;
	enum serve_end end;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void end_with(struct serve *s, enum serve_end e)
{
	if (!s->ended)
		s->end = e;
	s->ended = true;
}

/* ---- to the relay ------------------------------------------------------- */

static void relay_lost(struct serve *s, int r)
{
	if (s->ended)
		return;
	log_error("the relay is gone, the network is closed: %s", strerror(-r));
	end_with(s, SERVE_RELAY_GONE);
}

/* Takes @fd (-1: none). */
static void relay_send(struct serve *s, const struct netmsg *m, int fd)
{
	uint8_t b[512];
	size_t n = netmsg_put(b, sizeof(b), m);
	AUTO_CLOSE int own = fd;

	ASSERT(n > 0);
	if (s->queue_n == 0) {
		int r = fd_send(s->o.relay, b, n, &own, own >= 0);

		if (r == 0)
			return;
		/* ETOOMANYREFS: as many descriptors are under way to it as may be */
		if (r != -EAGAIN && r != -ENOBUFS && r != -ETOOMANYREFS) {
			relay_lost(s, r);
			return;
		}
	}
	ASSERT(s->queue_n < QUEUE_MAX); /* a frame is one message at most, see paused() */
	s->queue[(s->queue_at + s->queue_n++) % QUEUE_MAX] =
		(struct queued){ .bytes = xmemdup(b, n), .len = n, .fd = take_fd(&own) };
}

static void queue_drop_first(struct serve *s)
{
	struct queued *q = &s->queue[s->queue_at];

	free(q->bytes);
	auto_close_(&q->fd);
	s->queue_at = (s->queue_at + 1) % QUEUE_MAX;
	s->queue_n--;
}

static void relay_flush(struct serve *s)
{
	while (s->queue_n && !s->ended) {
		const struct queued *q = &s->queue[s->queue_at];
		int r = fd_send(s->o.relay, q->bytes, q->len, &q->fd, q->fd >= 0);

		if (r == -EAGAIN || r == -ENOBUFS || r == -ETOOMANYREFS)
			return;
		if (r < 0) {
			relay_lost(s, r);
			return;
		}
		queue_drop_first(s);
	}
}

static void say_drops(struct serve *s, uint64_t now)
{
	struct netmsg m;

	/* only while the relay keeps up: they wait in their table */
	while (s->queue_n == 0 && !s->ended && drops_take(&s->drops, now, &m))
		relay_send(s, &m, -1);
}

/* ---- to the guest ------------------------------------------------------- */

static void frame_send(struct serve *s, const uint8_t *p, size_t n)
{
	uint8_t *dst = stream_reserve(&s->out, n);

	if (!dst)
		return; /* a guest that reads nothing; it will ask again */
	memcpy(dst, p, n);
	stream_commit(&s->out, n);
}

static void udp_send(struct serve *s, const struct packet_macs *m, struct packet_end from,
                     struct packet_end to, struct span payload)
{
	size_t n = (size_t)ETH_BYTES + IP4_BYTES + UDP_BYTES + payload.len;
	uint8_t *dst = n <= GATE_FRAME_MAX ? stream_reserve(&s->out, n) : NULL;

	if (dst)
		stream_commit(&s->out, packet_udp_put(dst, n, m, from, to, payload));
}

static void answer_put(struct serve *s, const struct dns_question *q, uint16_t guest_port,
                       const struct dns_answer *a)
{
	uint8_t b[DNS_EDNS_MAX];
	struct packet_end from = { GATEWAY, PORT_DNS }, to = { s->o.addr, guest_port };
	size_t n = dns_answer_put(b, sizeof(b), q, a);

	if (n)
		udp_send(s, &s->to_guest, from, to, span_of(b, n));
}

static void answer_code(struct serve *s, const struct dns_question *q, uint16_t guest_port,
                        uint8_t rcode)
{
	answer_put(s, q, guest_port, &(struct dns_answer){ .rcode = rcode });
}

static void answer_addr(struct serve *s, const struct dns_question *q, uint16_t guest_port,
                        uint32_t addr, uint32_t ttl_s)
{
	struct dns_answer a = { .ttl_s = ttl_s, .n = q->qtype == DNS_TYPE_A, .addrs = { addr } };

	answer_put(s, q, guest_port, &a);
}

/* ---- questions ---------------------------------------------------------- */

static const struct peer *peer_by_name(const struct serve *s, const char *name)
{
	size_t n = strcspn(name, ".");

	for (size_t i = 0; i < PEERS_MAX; i++) {
		const struct peer *p = &s->peers[i];

		if (p->addr && strlen(p->name) == n && memcmp(p->name, name, n) == 0 &&
		    strcmp(name + n, ".cloche") == 0)
			return p;
	}
	return NULL;
}

static struct question *question_new(struct serve *s)
{
	for (unsigned i = 0; i < NETMSG_IDS; i++) {
		struct question *q = &s->questions[(s->next_id + i) % NETMSG_IDS];

		if (q->state == Q_FREE) {
			s->next_id = (s->next_id + i + 1) % NETMSG_IDS;
			return q;
		}
	}
	return NULL;
}

static void on_question(struct serve *s, const struct gate_out *o)
{
	struct dns_question q;
	const struct peer *peer;

	if (dns_question_parse(&q, o->payload) < 0) {
		drops_add(&s->drops, NETMSG_DROP_DNS, PROTO_UDP, o->addr, o->port);
		return;
	}
	if (strcmp(q.name, "selftest.cloche") == 0) {
		answer_addr(s, &q, o->guest_port, PROBE_NET | gate_probes(s->gate), 0);
		return;
	}
	peer = s->o.sw >= 0 ? peer_by_name(s, q.name) : NULL;
	if (peer) {
		answer_addr(s, &q, o->guest_port, peer->addr, PEER_TTL_S);
		return;
	}
	if (!host_name_ok(span_str(q.name))) { /* an address, the root: no rule can name it */
		answer_code(s, &q, o->guest_port, DNS_NXDOMAIN);
		return;
	}
	struct question *w = question_new(s);
	if (!w) {
		answer_code(s, &q, o->guest_port, DNS_SERVFAIL);
		return;
	}
	*w = (struct question){ .state = Q_WAITS,
		                .guest_port = o->guest_port,
		                .until_ns = now_ns() + QUESTION_MS * UINT64_C(1000000),
		                .q = q };
	s->n_waiting++;
	struct netmsg m = { .type = NETMSG_QUESTION,
		            .question = { .id = (uint16_t)(w - s->questions),
		                          .qtype = q.qtype,
		                          .name = span_str(q.name) } };
	relay_send(s, &m, -1);
}

static void on_answer(struct serve *s, const struct netmsg *m)
{
	struct question *w = &s->questions[m->answer.id];

	if (w->state == Q_FREE) {
		log_error("the relay answers what was not asked");
		end_with(s, SERVE_BROKEN);
		return;
	}
	if (w->state == Q_WAITS) {
		struct dns_answer a = { .rcode = m->answer.rcode, .ttl_s = m->answer.ttl_s };

		_Static_assert((int)DNS_ADDRS_MAX == (int)NETMSG_ADDRS_MAX, "all of them");
		_Static_assert((int)DNS_NXDOMAIN == (int)NETMSG_NXDOMAIN, "one set of codes");
		a.n = w->q.qtype == DNS_TYPE_A ? m->answer.n : 0;
		memcpy(a.addrs, m->answer.addrs, a.n * sizeof(a.addrs[0]));
		answer_put(s, &w->q, w->guest_port, &a);
		s->n_waiting--;
	}
	w->state = Q_FREE;
}

/* Return: milliseconds until the next one is given up, or -1. */
static int give_up(struct serve *s, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	if (s->n_waiting == 0)
		return -1;
	for (size_t i = 0; i < NETMSG_IDS; i++) {
		struct question *w = &s->questions[i];

		if (w->state != Q_WAITS)
			continue;
		if (w->until_ns <= now) {
			answer_code(s, &w->q, w->guest_port, DNS_SERVFAIL);
			w->state = Q_LATE;
			s->n_waiting--;
		} else {
			next = MIN(next, w->until_ns);
		}
	}
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000 + 1);
}

/* ---- frames ------------------------------------------------------------- */

static void on_dhcp(struct serve *s, const struct gate_out *o)
{
	const struct dhcp_config c = { .addr = s->o.addr,
		                       .mask = NETMASK,
		                       .router = GATEWAY,
		                       .dns = GATEWAY,
		                       .server = GATEWAY,
		                       .mtu = s->o.mtu,
		                       .search = s->o.search };
	struct packet_end from = { GATEWAY, PORT_DHCP_SERVER },
			  to = { s->o.addr, PORT_DHCP_CLIENT };
	struct packet_macs macs = s->to_guest;
	uint8_t b[DHCP_ANSWER_MAX];
	struct dhcp_request q;
	int r = dhcp_parse(&q, o->payload);

	if (r == -ENOTSUP)
		return;
	if (r < 0 || memcmp(q.mac, s->o.mac, MAC_BYTES) != 0) {
		drops_add(&s->drops, r < 0 ? NETMSG_DROP_MALFORMED : NETMSG_DROP_SPOOFED, PROTO_UDP,
		          o->addr, o->port);
		return;
	}
	enum dhcp_type type = dhcp_decide(&q, &c);
	size_t n = type ? dhcp_answer_put(b, sizeof(b), &q, &c, type) : 0;
	/* RFC 2131 4.1: to everybody when it asks for that, and when the answer is no */
	if (q.client == 0 && (q.broadcast || type == DHCP_NAK)) {
		to.addr = UINT32_MAX;
		memset(macs.to, 255, MAC_BYTES);
	}
	if (n)
		udp_send(s, &macs, from, to, span_of(b, n));
}

static void on_datagram(struct serve *s, const struct gate_out *o)
{
	uint8_t b[NETMSG_BYTES_MAX];
	struct netmsg m = { .type = NETMSG_DATAGRAM,
		            .datagram = { .guest_port = o->guest_port,
		                          .addr = o->addr,
		                          .port = o->port,
		                          .payload = o->payload } };
	size_t n = netmsg_put(b, sizeof(b), &m);

	ASSERT(n > 0); /* the gate has its limits, too */
	if (s->queue_n)
		return; /* UDP may be lost, order and memory may not */
	int r = fd_send(s->o.relay, b, n, NULL, 0);
	if (r < 0 && r != -EAGAIN && r != -ENOBUFS)
		relay_lost(s, r);
}

/* The IP packet begins behind ETH_BYTES; the byte before it, of the frame's head, is free now. */
static void on_switch(struct serve *s, uint8_t *frame, size_t len)
{
	uint8_t *p = frame + ETH_BYTES - 1;

	if (s->o.sw < 0)
		return;
	*p = SWMSG_PACKET;
	/* a full port loses packets: the switch's end counts what a sandbox does not take */
	(void)!send(s->o.sw, p, len - ETH_BYTES + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void on_frame(struct serve *s, uint8_t *frame, size_t len)
{
	struct gate_out o;

	gate_judge(s->gate, GATE_GUEST, frame, len, &o);
	if (o.why)
		drops_add(&s->drops, o.why, o.proto, o.addr, o.port);
	if (o.reply_len)
		frame_send(s, o.reply, o.reply_len);
	switch (o.verdict) {
	case GATE_TO_SLIRP:
		tcpend_input(s->tcp, frame, &o);
		break;
	case GATE_TO_SWITCH:
		on_switch(s, frame, o.len);
		break;
	case GATE_IS_DNS:
		on_question(s, &o);
		break;
	case GATE_IS_DHCP:
		on_dhcp(s, &o);
		break;
	case GATE_IS_DATAGRAM:
		on_datagram(s, &o);
		break;
	case GATE_DROP:
	case GATE_TO_GUEST: /* never of a guest's frame */
		break;
	}
}

/* Nothing more is taken from the guest while what came of it cannot be handed on. */
static bool paused(const struct serve *s)
{
	return stream_waiting(&s->out) > STREAM_OUT_HIGH || s->queue_n >= QUEUE_HIGH;
}

/* Return: there may be frames left. */
static bool take_frames(struct serve *s)
{
	uint8_t *frame;
	size_t len;
	int r = 0;

	while (!s->ended && !paused(s) && (r = stream_next(&s->in, &frame, &len)) == 1)
		on_frame(s, frame, len);
	if (r < 0) {
		log_error("QEMU's stream of frames is broken, the network is closed");
		end_with(s, SERVE_BROKEN);
	}
	return r == 1 || paused(s);
}

static void guest_gone(struct serve *s)
{
	size_t half, flows = gate_flows(s->gate, &half);

	if (s->ended)
		return;
	log_info("the guest is gone flows=%zu half-open=%zu opens=%zu refused=%llu", flows, half,
	         gate_opens(s->gate), (unsigned long long)s->drops.total);
	end_with(s, SERVE_GUEST_GONE);
}

static void frames_ready(struct serve *s)
{
	ssize_t k = stream_fill(&s->in, s->o.frames);

	if (k <= 0 && k != -EAGAIN)
		guest_gone(s);
}

/* libslirp has a frame for the guest: it is judged where it is sent from. */
static void tcp_down(void *arg, const void *frame, size_t len, struct gate_out *o)
{
	struct serve *s = arg;
	uint8_t scratch[GATE_FRAME_MAX];
	uint8_t *dst = len && len <= GATE_FRAME_MAX ? stream_reserve(&s->out, len) : NULL;

	*o = (struct gate_out){ .verdict = GATE_DROP, .flow = GATE_NO_FLOW };
	if (len == 0 || len > GATE_FRAME_MAX)
		return;
	if (!dst)
		dst = scratch; /* lost, and sent again by libslirp; the gate must know of it */
	memcpy(dst, frame, len);
	gate_judge(s->gate, GATE_TERMINATOR, dst, len, o);
	if (o->verdict == GATE_TO_GUEST && dst != scratch)
		stream_commit(&s->out, o->len);
}

static void tcp_connected(void *arg, const struct gate_flow_key *k, int fd)
{
	struct netmsg m = {
		.type = NETMSG_FLOW,
		.flow = { .addr = k->addr, .port = k->port, .guest_port = k->guest_port }
	};

	relay_send(arg, &m, fd);
}

/* ---- from the relay ----------------------------------------------------- */

static void on_open(struct serve *s, const struct netmsg *m)
{
	char a[IP4_STR_BYTES];

	if (gate_open(s->gate, m->open.addr, m->open.port) == 0 || s->opens_full)
		return;
	s->opens_full = true;
	log_warn("%d addresses are open, no more: %s:%u stays closed", GATE_OPENS_MAX,
	         ip4_str(a, m->open.addr), m->open.port);
}

static void on_relay(struct serve *s, const struct netmsg *m)
{
	struct packet_end from, to;

	switch (m->type) {
	case NETMSG_ANSWER:
		on_answer(s, m);
		break;
	case NETMSG_OPEN:
		on_open(s, m);
		break;
	case NETMSG_CLOSE:
		gate_close(s->gate, m->open.addr, m->open.port);
		tcpend_forget(s->tcp, m->open.addr, m->open.port);
		break;
	case NETMSG_DATAGRAM:
		from = (struct packet_end){ m->datagram.addr, m->datagram.port };
		to = (struct packet_end){ s->o.addr, m->datagram.guest_port };
		if (s->o.permissive) {
			udp_send(s, &s->to_guest, from, to, m->datagram.payload);
			break;
		}
		log_error("the relay sends datagrams under a profile that has none");
		end_with(s, SERVE_BROKEN);
		break;
	default:
		log_error("the relay sends message %u, which is ours to send", m->type);
		end_with(s, SERVE_BROKEN);
		break;
	}
}

static void relay_ready(struct serve *s)
{
	uint8_t b[NETMSG_BYTES_MAX];

	for (int i = 0; i < BATCH && !s->ended; i++) {
		struct netmsg m;
		ssize_t k = fd_recv(s->o.relay, b, sizeof(b), NULL, 0, NULL);

		if (k == -EAGAIN)
			return;
		if (k <= 0 && k != -EPROTO) {
			relay_lost(s, k < 0 ? (int)k : -EPIPE);
			return;
		}
		if (k < 0 || netmsg_parse(&m, span_of(b, (size_t)k)) < 0) {
			log_error("the relay does not keep to its protocol, the network is closed");
			end_with(s, SERVE_BROKEN);
			return;
		}
		on_relay(s, &m);
	}
}

/* ---- from the switch ---------------------------------------------------- */

static void switch_lost(struct serve *s)
{
	log_warn("the shared network is gone; what leads elsewhere goes on");
	for (size_t i = 0; i < PEERS_MAX; i++) {
		if (s->peers[i].addr)
			gate_peer(s->gate, s->peers[i].addr, false);
		s->peers[i].addr = 0;
	}
	auto_close_(&s->o.sw);
}

static void on_peer(struct serve *s, const struct swmsg *m)
{
	struct peer *p = NULL;

	for (size_t i = 0; i < PEERS_MAX; i++) {
		if (s->peers[i].addr == (m->type == SWMSG_PEER_UP ? 0 : m->addr)) {
			p = &s->peers[i];
			break;
		}
	}
	gate_peer(s->gate, m->addr, m->type == SWMSG_PEER_UP);
	if (!p || m->addr == s->o.addr)
		return;
	*p = (struct peer){ .addr = m->type == SWMSG_PEER_UP ? m->addr : 0 };
	if (m->type == SWMSG_PEER_UP)
		memcpy(p->name, m->name.p, m->name.len); /* swmsg_name_ok(): it fits */
}

static void switch_ready(struct serve *s)
{
	/* a frame's room before the packet */
	uint8_t b[ETH_BYTES - 1 + SWMSG_BYTES_MAX], *in = b + ETH_BYTES - 1;

	for (int i = 0; i < BATCH; i++) {
		struct gate_out o;
		struct swmsg m;
		ssize_t k = fd_recv(s->o.sw, in, SWMSG_BYTES_MAX, NULL, 0, NULL);

		if (k == -EAGAIN)
			return;
		if (k <= 0 || swmsg_parse(&m, span_of(in, (size_t)k)) < 0) {
			switch_lost(s);
			return;
		}
		if (m.type == SWMSG_PEER_UP || m.type == SWMSG_PEER_DOWN) {
			on_peer(s, &m);
			continue;
		}
		if (m.type != SWMSG_PACKET)
			continue; /* a late WELCOME */
		gate_judge(s->gate, GATE_PEER, b, ETH_BYTES + m.packet.len, &o);
		if (o.verdict == GATE_TO_GUEST)
			frame_send(s, b, o.len);
		else if (o.why)
			drops_add(&s->drops, o.why, o.proto, o.addr, o.port);
	}
}

/* ---- the loop ----------------------------------------------------------- */

static int sooner(int a, int b)
{
	return a < 0 ? b : b < 0 ? a : MIN(a, b);
}

static void flush(struct serve *s)
{
	if (!s->ended && stream_flush(&s->out, s->o.frames) < 0)
		guest_gone(s);
}

/*
 * The guest before its connections, and what it set free is sent before anything else is done: it waits
 * for that with a window of 64 KiB, the relay's bytes lie in libslirp's buffers already.
 * Return: there may be frames left.
 */
static bool turn(struct serve *s, bool frames_left)
{
	struct pollfd *p = s->poll;
	uint64_t now = now_ns();
	bool full = stream_waiting(&s->out) > STREAM_OUT_HIGH;
	int timeout = give_up(s, now);
	size_t n = 0;

	if (s->queue_n == 0)
		timeout = sooner(timeout, drops_wait_ms(&s->drops, now));
	if (frames_left && !paused(s))
		timeout = 0;
	p[POLL_FRAMES] = (struct pollfd){ .fd = s->o.frames };
	if (!paused(s))
		p[POLL_FRAMES].events |= POLLIN;
	if (stream_waiting(&s->out))
		p[POLL_FRAMES].events |= POLLOUT;
	p[POLL_RELAY] = (struct pollfd){ .fd = s->o.relay, .events = POLLIN };
	if (s->queue_n)
		p[POLL_RELAY].events |= POLLOUT;
	p[POLL_SWITCH] = (struct pollfd){ .fd = s->o.sw, .events = POLLIN };
	/* also when it is full: what is polled for then is only time */
	n = tcpend_fill(s->tcp, p + POLL_FIXED, &timeout);
	if (full)
		n = 0;
	if (poll(p, POLL_FIXED + n, timeout) < 0 && errno != EINTR) {
		log_error("cannot wait for anything: %s", strerror(errno));
		end_with(s, SERVE_BROKEN);
		return false;
	}
	if (p[POLL_RELAY].revents) /* what it closes is closed for the frames that are there */
		relay_ready(s);
	if (p[POLL_FRAMES].revents & (POLLIN | POLLHUP | POLLERR))
		frames_ready(s);
	frames_left = take_frames(s);
	flush(s);
	if (s->ended)
		return false;
	/* what the frames made of its sockets meanwhile is not in the list, and not asked for */
	tcpend_turn(s->tcp, p + POLL_FIXED, n);
	if (p[POLL_SWITCH].revents)
		switch_ready(s);
	return frames_left;
}

enum serve_end serve_run(struct serve *s)
{
	bool frames_left = false;

	while (!s->ended) {
		frames_left = turn(s, frames_left);
		if (s->ended)
			break;
		relay_flush(s);
		say_drops(s, now_ns());
		flush(s);
	}
	return s->end;
}

int serve_new(struct serve **out, const struct serve_opts *o, struct err *err)
{
	struct serve *s = xcalloc(1, sizeof(*s));
	struct gate_config g = { .addr = o->addr,
		                 .gateway = GATEWAY,
		                 .service = SERVICE,
		                 .permissive = o->permissive,
		                 .shared = o->sw >= 0,
		                 .closed = o->closed };
	struct tcpend_config t = { .addr = o->addr,
		                   .gateway = GATEWAY,
		                   .mtu = o->mtu,
		                   .down = tcp_down,
		                   .connected = tcp_connected,
		                   .arg = s };

	s->o = *o;
	memcpy(g.mac, o->mac, MAC_BYTES);
	memcpy(g.gateway_mac, gateway_mac, MAC_BYTES);
	memcpy(t.mac, o->mac, MAC_BYTES);
	memcpy(s->to_guest.to, o->mac, MAC_BYTES);
	memcpy(s->to_guest.from, gateway_mac, MAC_BYTES);
	random_bytes(g.key, sizeof(g.key));
	stream_in_init(&s->in);
	stream_out_init(&s->out);
	s->gate = t.gate = gate_new(&g);
	int r = tcpend_new(&s->tcp, &t, err);
	if (r == 0)
		r = tcpend_self_test(s->tcp, err);
	if (r < 0) {
		serve_free(s);
		return r;
	}
	*out = s;
	return 0;
}

void serve_free(struct serve *s)
{
	if (!s)
		return;
	while (s->queue_n)
		queue_drop_first(s);
	tcpend_free(s->tcp);
	gate_free(s->gate);
	stream_in_fini(&s->in);
	stream_out_fini(&s->out);
	free(s);
}
