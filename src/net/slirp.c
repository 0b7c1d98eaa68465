/* SPDX-License-Identifier: Apache-2.0 */
#include "net/slirp.h"

#include <errno.h>
#include <slirp/libslirp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/ip.h"
#include "base/log.h"
#include "base/mem.h"

enum {
	FORWARDS_MAX = GATE_FLOWS_MAX, /* each flow may have one of its own */
	FDS_MAX = 4096,                /* the limit of the role */
	PATH_BYTES = 32,
	TEST_PORT = 4000,
	GUEST_ERRORS_SAID = 10,
};

#define TEST_ADDR IP4(198, 51, 100, 2) /* nobody's (RFC 5737), and nobody is asked */

struct forward {
	uint32_t addr;
	uint16_t port;  /* 0: free */
	unsigned flows; /* that use it */
	uint64_t used;  /* when, in SYNs */
};

struct tcpend {
	struct tcpend_config c;
	Slirp *slirp;
	SlirpCb cb; /* libslirp keeps pointers to this and the next */
	struct forward forwards[FORWARDS_MAX];
	size_t n_forwards;
	uint64_t syns;
	int16_t flow_of_fd[FDS_MAX];        /* flow + 1; 0: none */
	int16_t forward_of[GATE_FLOWS_MAX]; /* of a flow; -1: none */
	int now;      /* flow whose frame is being taken in, or GATE_NO_FLOW */
	int last_rst; /* flow that libslirp last sent a reset on */
	bool failed;  /* no socket could be made for `now` */
	/* poll */
	struct pollfd *fill;
	const struct pollfd *turn;
	size_t n;
	unsigned guest_errors;
	/* self-test */
	bool testing, test_connected, test_gone;
	struct packet_end test_peer;
	uint32_t test_seq;
};

/* ---- socket() and connect() of this executable -------------------------- */

/* What libslirp is told between the two calls. It has no threads, nor have we. */
static struct {
	struct tcpend *t;
	int near, far;
} hook = { .near = -1, .far = -1 };

/* Under other C names: the prototypes of sys/socket.h have types of their own (GNU C). */
__attribute__((used, visibility("default"))) int hook_socket(int family, int type,
                                                             int protocol) __asm__("socket");
__attribute__((used, visibility("default"))) int hook_connect(int fd, const void *addr,
                                                              socklen_t len) __asm__("connect");

int hook_socket(int family, int type, int protocol)
{
	int sv[2];

	if (!hook.t || (hook.t->now == GATE_NO_FLOW && !hook.t->testing) || family != AF_UNIX ||
	    (type & ~SOCK_CLOEXEC) != SOCK_STREAM || protocol != 0) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	int r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv);
	if (r == 0 && sv[0] >= FDS_MAX) {
		(void)close(sv[0]); /* nothing was written to either */
		(void)close(sv[1]);
		errno = EMFILE;
		r = -1;
	}
	if (r < 0) {
		hook.t->failed = true;
		return -1;
	}
	auto_close_(&hook.far); /* of a call that was never completed */
	hook.near = sv[0];
	hook.far = sv[1];
	return sv[0];
}

static void path_of(char dst[PATH_BYTES], uint32_t addr, uint16_t port)
{
	char a[IP4_STR_BYTES];

	(void)snprintf(dst, PATH_BYTES, "%s:%u", ip4_str(a, addr), port);
}

int hook_connect(int fd, const void *addr, socklen_t len)
{
	struct tcpend *t = hook.t;
	const struct sockaddr_un *un = addr;
	struct gate_flow_key k = { .addr = TEST_ADDR, .port = TEST_PORT };
	char want[PATH_BYTES];

	if (!t || fd < 0 || fd != hook.near || len != sizeof(*un) || un->sun_family != AF_UNIX) {
		errno = ECONNREFUSED;
		return -1;
	}
	hook.near = -1;
	if (!t->testing)
		k = gate_flow_key(t->c.gate, t->now);
	path_of(want, k.addr, k.port);
	/* the forward that libslirp found is the one of the frame that it has: else something is
	 * wrong in one of us, and the relay must not be told a wrong address */
	ASSERT(strcmp(want, un->sun_path) == 0);
	if (t->testing) {
		t->test_connected = true;
		auto_close_(&hook.far);
	} else {
		t->c.connected(t->c.arg, &k, take_fd(&hook.far));
	}
	return 0;
}

/* ---- forwards ----------------------------------------------------------- */

static struct in_addr in_of(uint32_t addr)
{
	return (struct in_addr){ .s_addr = htonl(addr) };
}

static void forward_remove(struct tcpend *t, struct forward *f)
{
	ASSERT(f->flows == 0);
	(void)slirp_remove_guestfwd(t->slirp, in_of(f->addr), f->port); /* it is there */
	*f = (struct forward){ 0 };
	t->n_forwards--;
}

static struct forward *forward_find(struct tcpend *t, uint32_t addr, uint16_t port)
{
	for (size_t i = 0; i < FORWARDS_MAX; i++) {
		if (t->forwards[i].addr == addr && t->forwards[i].port == port)
			return &t->forwards[i];
	}
	return NULL;
}

/* A free entry; when there is none, that of the forward whose last use was longest ago. */
static struct forward *forward_room(struct tcpend *t)
{
	struct forward *best = NULL;

	for (size_t i = 0; i < FORWARDS_MAX; i++) {
		struct forward *f = &t->forwards[i];

		if (f->port == 0)
			return f;
		if (f->flows == 0 && (!best || f->used < best->used))
			best = f;
	}
	ASSERT(best); /* fewer flows than forwards: the new flow has none yet */
	forward_remove(t, best);
	return best;
}

static struct forward *forward_get(struct tcpend *t, uint32_t addr, uint16_t port)
{
	struct forward *f = forward_find(t, addr, port);
	char path[PATH_BYTES];
	struct in_addr in = in_of(addr);

	if (f)
		return f;
	f = forward_room(t);
	path_of(path, addr, port);
	if (slirp_add_unix(t->slirp, path, &in, port) < 0)
		return NULL;
	*f = (struct forward){ .addr = addr, .port = port };
	t->n_forwards++;
	return f;
}

void tcpend_forget(struct tcpend *t, uint32_t addr, uint16_t port)
{
	for (size_t i = 0; i < FORWARDS_MAX; i++) {
		struct forward *f = &t->forwards[i];

		if (f->port && f->addr == addr && (port == 0 || f->port == port) && f->flows == 0)
			forward_remove(t, f);
	}
}

/* ---- flows -------------------------------------------------------------- */

static void flow_gone(struct tcpend *t, int flow)
{
	int n = t->forward_of[flow];

	if (n >= 0)
		t->forwards[n].flows--;
	t->forward_of[flow] = -1;
	if (t->last_rst == flow)
		t->last_rst = GATE_NO_FLOW;
	if (t->now == flow)
		t->now = GATE_NO_FLOW;
	gate_flow_gone(t->c.gate, flow);
}

static void take_in(struct tcpend *t, int flow, const uint8_t *frame, size_t len)
{
	t->now = flow;
	slirp_input(t->slirp, frame, (int)len);
	t->now = GATE_NO_FLOW;
}

/* Flows that both ends are through with: libslirp would keep each for ten seconds more. */
static void end_done(struct tcpend *t)
{
	uint8_t rst[GATE_REPLY_MAX];
	int flow;

	while ((flow = gate_flow_done(t->c.gate)) != GATE_NO_FLOW) {
		size_t n = gate_flow_reset_put(t->c.gate, flow, rst, sizeof(rst));

		take_in(t, flow, rst, n);
	}
}

/* No descriptors: libslirp says goodbye in its way; both ends get a reset instead. */
static void end_failed(struct tcpend *t, int flow)
{
	uint8_t rst[GATE_REPLY_MAX];
	struct gate_out out;

	t->failed = false;
	size_t n = gate_flow_refuse_put(t->c.gate, flow, rst, sizeof(rst));
	t->c.down(t->c.arg, rst, n, &out);
	n = gate_flow_reset_put(t->c.gate, flow, rst, sizeof(rst));
	take_in(t, flow, rst, n);
	log_warn("no socket for a connection of the guest: %s", strerror(EMFILE));
}

void tcpend_input(struct tcpend *t, const uint8_t *frame, const struct gate_out *o)
{
	if (o->syn) {
		struct forward *f = forward_get(t, o->addr, o->port);

		if (!f) { /* an address of libslirp's own, which the gate does not let pass */
			flow_gone(t, o->flow);
			return;
		}
		f->flows++;
		f->used = ++t->syns;
		t->forward_of[o->flow] = (int16_t)(f - t->forwards);
	}
	take_in(t, o->flow, frame, o->len);
	if (t->failed)
		end_failed(t, o->flow);
	end_done(t);
}

/* ---- callbacks of libslirp ---------------------------------------------- */

static ssize_t cb_send(const void *buf, size_t len, void *opaque)
{
	struct tcpend *t = opaque;
	struct gate_out out;

	if (t->testing) {
		struct packet p;
		uint8_t b[GATE_REPLY_MAX];

		if (len > sizeof(b) || len < ETH_BYTES)
			return (ssize_t)len;
		memcpy(b, buf, len);
		if (packet_ip(&p, b + ETH_BYTES, len - ETH_BYTES) == 0 && packet_tcp(&p) == 0) {
			t->test_peer = (struct packet_end){ p.src, p.sport };
			t->test_seq = p.seq;
		}
		return (ssize_t)len;
	}
	if (t->failed)
		return (ssize_t)len; /* a FIN; the guest gets a reset, from end_failed() */
	t->c.down(t->c.arg, buf, len, &out);
	if (out.verdict == GATE_TO_GUEST && out.rst && out.flow != GATE_NO_FLOW)
		t->last_rst = out.flow;
	return (ssize_t)len;
}

static void cb_guest_error(const char *msg, void *opaque)
{
	struct tcpend *t = opaque;

	if (t->guest_errors++ < GUEST_ERRORS_SAID)
		log_warn("libslirp: %s", msg);
}

static int64_t cb_clock(void *opaque)
{
	const struct tcpend *t = opaque;
	struct timespec ts;

	if (t->c.now_ns)
		return t->c.now_ns();
	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Timers are for IPv6 router advertisements, and there are none. */
static void *cb_timer_new(SlirpTimerCb cb UNUSED, void *cb_opaque UNUSED, void *opaque)
{
	return opaque;
}

static void *cb_timer_new_opaque(SlirpTimerId id UNUSED, void *cb_opaque UNUSED, void *opaque)
{
	return opaque;
}

static void cb_timer_free(void *timer UNUSED, void *opaque UNUSED)
{
}

static void cb_timer_mod(void *timer UNUSED, int64_t when UNUSED, void *opaque UNUSED)
{
}

static void cb_register(int fd, void *opaque)
{
	struct tcpend *t = opaque;

	if (t->testing)
		return;
	ASSERT(fd >= 0 && fd < FDS_MAX && t->now != GATE_NO_FLOW);
	t->flow_of_fd[fd] = (int16_t)(t->now + 1);
}

/*
 * libslirp frees a socket. Without a descriptor it is one whose handshake was not
 * completed: that of the frame that it has, or the one that it has just sent a
 * reset on because it timed out.
 */
static void cb_unregister(int fd, void *opaque)
{
	struct tcpend *t = opaque;
	int flow = t->now;

	if (t->testing) {
		t->test_gone = true;
		return;
	}
	if (fd >= 0) {
		ASSERT(fd < FDS_MAX);
		flow = t->flow_of_fd[fd] - 1;
		t->flow_of_fd[fd] = 0;
	} else if (flow == GATE_NO_FLOW) {
		flow = t->last_rst;
	}
	if (flow != GATE_NO_FLOW)
		flow_gone(t, flow);
}

static void cb_notify(void *opaque UNUSED)
{
	/* one thread: every turn asks again what to poll for */
}

static void cb_init_completed(Slirp *slirp UNUSED, void *opaque UNUSED)
{
}

static int cb_add_poll(int fd, int events, void *opaque)
{
	struct tcpend *t = opaque;
	short e = 0;

	if (t->n == GATE_FLOWS_MAX)
		return -1; /* the self-test's, and none of the guest's */
	if (events & SLIRP_POLL_IN)
		e |= POLLIN;
	if (events & SLIRP_POLL_OUT)
		e |= POLLOUT;
	/* no POLLPRI: urgent data of the relay's would be carried as urgent */
	t->fill[t->n] = (struct pollfd){ .fd = fd, .events = e };
	return (int)t->n++;
}

static int cb_revents(int idx, void *opaque)
{
	const struct tcpend *t = opaque;
	int r = 0;

	if (idx < 0 || (size_t)idx >= t->n)
		return 0;
	short e = t->turn[idx].revents;
	if (e & POLLIN)
		r |= SLIRP_POLL_IN;
	if (e & POLLOUT)
		r |= SLIRP_POLL_OUT;
	if (e & POLLERR)
		r |= SLIRP_POLL_ERR;
	if (e & POLLHUP)
		r |= SLIRP_POLL_HUP;
	return r;
}

size_t tcpend_fill(struct tcpend *t, struct pollfd *v, int *timeout_ms)
{
	uint32_t ms = *timeout_ms < 0 ? UINT32_MAX : (uint32_t)*timeout_ms;

	t->fill = v;
	t->n = 0;
	slirp_pollfds_fill(t->slirp, &ms, cb_add_poll, t);
	/* without flows it asks for a second, and has nothing to do then */
	if (gate_flows(t->c.gate, NULL))
		*timeout_ms = (int)MIN(ms, (uint32_t)INT32_MAX);
	return t->n;
}

void tcpend_turn(struct tcpend *t, const struct pollfd *v, size_t n)
{
	t->turn = v;
	t->n = n;
	t->last_rst = GATE_NO_FLOW;
	slirp_pollfds_poll(t->slirp, 0, cb_revents, t);
	t->n = 0;
	end_done(t);
}

/* ---- making one --------------------------------------------------------- */

/* libslirp learns where the guest is from the only ARP that it ever sees. */
static void tell_mac(struct tcpend *t)
{
	uint8_t f[ETH_BYTES + ARP_BYTES];
	struct packet_macs m = { 0 };

	memcpy(m.from, t->c.mac, MAC_BYTES);
	ASSERT(packet_arp_reply_put(f, sizeof(f), &m, t->c.addr, t->c.addr) == sizeof(f));
	slirp_input(t->slirp, f, sizeof(f));
}

int tcpend_new(struct tcpend **out, const struct tcpend_config *c, struct err *err)
{
	struct tcpend *t = xcalloc(1, sizeof(*t));
	SlirpConfig cfg = {
		.version = 4,
		.restricted = 1,
		.in_enabled = true,
		/* all addresses are its network; these two, its own, it would not forward */
		.vhost = in_of(c->gateway),
		.vnameserver = in_of(c->gateway),
		.vdhcp_start = in_of(c->addr),
		.if_mtu = c->mtu,
		.if_mru = c->mtu,
		.disable_host_loopback = true,
		.disable_dns = true,
		.disable_dhcp = true,
	};

	ASSERT(!hook.t);
	t->c = *c;
	t->now = t->last_rst = GATE_NO_FLOW;
	for (size_t i = 0; i < GATE_FLOWS_MAX; i++)
		t->forward_of[i] = -1;
	t->cb = (SlirpCb){
		.send_packet = cb_send,
		.guest_error = cb_guest_error,
		.clock_get_ns = cb_clock,
		.timer_new = cb_timer_new,
		.timer_free = cb_timer_free,
		.timer_mod = cb_timer_mod,
		.register_poll_fd = cb_register,
		.unregister_poll_fd = cb_unregister,
		.notify = cb_notify,
		.init_completed = cb_init_completed,
		.timer_new_opaque = cb_timer_new_opaque,
	};
	t->slirp = slirp_new(&cfg, &t->cb, t);
	if (!t->slirp) {
		free(t);
		return err_set(err, -EINVAL, "libslirp %s refuses its configuration",
		               slirp_version_string());
	}
	hook.t = t;
	tell_mac(t);
	*out = t;
	return 0;
}

void tcpend_free(struct tcpend *t)
{
	if (!t)
		return;
	t->testing = true; /* flows that are left are nobody's now */
	slirp_cleanup(t->slirp);
	auto_close_(&hook.far);
	hook.near = -1;
	hook.t = NULL;
	free(t);
}

static void test_segment(struct tcpend *t, uint32_t seq, uint32_t ack, unsigned flags)
{
	struct packet_end guest = { t->c.addr, TEST_PORT }, far = { TEST_ADDR, TEST_PORT };
	struct packet_macs m = { 0 };
	uint8_t f[GATE_REPLY_MAX];
	size_t n = packet_tcp_put(f, sizeof(f), &m, guest, far, seq, ack, flags);

	slirp_input(t->slirp, f, (int)n);
}

int tcpend_self_test(struct tcpend *t, struct err *err)
{
	struct in_addr in = in_of(TEST_ADDR);
	char path[PATH_BYTES];
	bool answered;

	t->testing = true;
	path_of(path, TEST_ADDR, TEST_PORT);
	t->test_gone = t->test_connected = false;
	int r = slirp_add_unix(t->slirp, path, &in, TEST_PORT);
	test_segment(t, 1, 0, TCP_SYN);
	answered = t->test_peer.addr == TEST_ADDR && t->test_peer.port == TEST_PORT;
	test_segment(t, 2, t->test_seq + 1, TCP_ACK);
	bool connected = t->test_connected;
	test_segment(t, 2, t->test_seq + 1, TCP_RST | TCP_ACK);
	(void)slirp_remove_guestfwd(t->slirp, in, TEST_PORT); /* it is there, or r says so */
	t->testing = false;
	if (r == 0 && answered && connected && t->test_gone)
		return 0;
	return err_set(err, -ENOSYS, "libslirp %s does not end connections as it should: %s",
	               slirp_version_string(),
	               !answered    ? "no answer to a SYN"
	               : !connected ? "it does not call our connect()"
	                            : "a reset does not end one");
}

size_t tcpend_count(struct tcpend *t)
{
	AUTO_FREE char *info = slirp_connection_info(t->slirp); /* glib's memory is malloc's */
	size_t n = 0;

	for (const char *p = info; (p = strstr(p, "TCP[")); p++)
		n++;
	return n;
}
