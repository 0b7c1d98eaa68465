/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the network hold? Before the first agent process runs, what a policy
 * forbids is really sent: TCP and UDP to an address that no answer opened, an
 * echo request, IPv6. None of it may get through. That silence is not mere
 * luck, the resolver says: its answer to the last question names what it saw and
 * dropped before, as frames come to it in their order. So nothing is waited for
 * that does not come.
 *
 * Packets go only to 198.51.100.1 and [2001:db8::1], which are nobody's
 * (RFC 5737, RFC 3849): a network that is open after all harms nobody.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/ip.h"
#include "guest/guest.h"
#include "guest/selftest.h"

enum {
	PROBE_ID = 0xc10c,
	REFUSED_MS = 3000, /* a connection must be refused, not merely hang */
	ANSWER_MS = 2000,  /* ... and the resolver is asked again after that */
	QUESTIONS = 3,
};

#define PROBE_ADDR IP4(198, 51, 100, 1)

struct probe {
	const struct guest *g;
	unsigned sent; /* SELFTEST_* */
	int udp, icmp, ipv6;
};

static struct sockaddr_in in_addr4(uint32_t addr, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
		                     .sin_port = htons(port),
		                     .sin_addr.s_addr = htonl(addr) };
}

static int try_tcp(struct probe *p, uint16_t port, unsigned bit, struct err *err)
{
	AUTO_CLOSE int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = in_addr4(PROBE_ADDR, port);
	struct pollfd pf = { .fd = s, .events = POLLOUT };
	int code = 0;
	socklen_t n = sizeof(code);

	if (s < 0)
		return err_errno(err, "cannot make a socket");
	if (connect(s, (struct sockaddr *)&to, sizeof(to)) == 0)
		return err_set(err, -EPERM, "a connection to 198.51.100.1:%u was taken", port);
	if (errno != EINPROGRESS)
		return 0; /* nothing was sent */
	p->sent |= bit;
	if (poll(&pf, 1, REFUSED_MS) == 0)
		return err_set(err, -ETIMEDOUT, "a connection to 198.51.100.1:%u was not refused",
		               port);
	if (getsockopt(s, SOL_SOCKET, SO_ERROR, &code, &n) < 0 || code == 0)
		return err_set(err, -EPERM, "a connection to 198.51.100.1:%u was taken", port);
	return 0;
}

/* Tried once more when it hangs: a host that stands still for a moment is no leak. */
static int refused(struct probe *p, uint16_t port, unsigned bit, struct err *err)
{
	int r = try_tcp(p, port, bit, err);

	return r == -ETIMEDOUT ? try_tcp(p, port, bit, err) : r;
}

static void send_udp(struct probe *p)
{
	struct sockaddr_in to = in_addr4(PROBE_ADDR, 53);
	uint8_t b[SELFTEST_BYTES_MAX];
	size_t n = selftest_question(b, PROBE_ID);

	p->udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->udp >= 0 && sendto(p->udp, b, n, 0, (struct sockaddr *)&to, sizeof(to)) > 0)
		p->sent |= SELFTEST_UDP_DNS;
}

static void send_icmp(struct probe *p)
{
	struct sockaddr_in to = in_addr4(PROBE_ADDR, 0);
	uint8_t b[SELFTEST_BYTES_MAX];
	size_t n = selftest_echo(b, PROBE_ID);

	p->icmp = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_ICMP);
	if (p->icmp >= 0 && sendto(p->icmp, b, n, 0, (struct sockaddr *)&to, sizeof(to)) > 0)
		p->sent |= SELFTEST_ICMP;
}

/* The gateway's MAC, which the attempts before have asked for; else everybody's. */
static void gateway_mac(const struct guest *g, int s, uint8_t mac[6])
{
	struct arpreq a = { 0 };
	struct sockaddr_in in = in_addr4(g->gateway, 0);

	memset(mac, 0xff, 6);
	memcpy(&a.arp_pa, &in, sizeof(in));
	(void)snprintf(a.arp_dev, sizeof(a.arp_dev), "%.*s", (int)sizeof(a.arp_dev) - 1, g->card);
	if (ioctl(s, SIOCGARP, &a) == 0 && (a.arp_flags & ATF_COM))
		memcpy(mac, a.arp_ha.sa_data, 6);
}

/* IPv6 is off on our card; whoever becomes root in the guest can write frames all the same. */
static void send_ipv6(struct probe *p)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IPV6) };
	uint8_t b[SELFTEST_BYTES_MAX], to[6];
	struct ifreq ifr = { 0 };

	p->ipv6 = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_IPV6));
	if (p->ipv6 < 0)
		return; /* a kernel without it */
	(void)snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", p->g->card);
	ll.sll_ifindex = (int)if_nametoindex(p->g->card);
	if (ll.sll_ifindex == 0 || bind(p->ipv6, (struct sockaddr *)&ll, sizeof(ll)) < 0 ||
	    ioctl(p->ipv6, SIOCGIFHWADDR, &ifr) < 0)
		return;
	gateway_mac(p->g, p->udp, to);
	size_t n = selftest_ipv6(b, to, (const uint8_t *)ifr.ifr_hwaddr.sa_data);
	if (send(p->ipv6, b, n, 0) > 0)
		p->sent |= SELFTEST_IPV6;
}

/* The bits of the resolver's answer. */
static int ask(struct probe *p, struct err *err)
{
	AUTO_CLOSE int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = in_addr4(p->g->dns, 53);
	uint8_t b[SELFTEST_BYTES_MAX], got[512];

	if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof(to)) < 0)
		return err_errno(err, "cannot ask the resolver");
	for (int i = 0; i < QUESTIONS; i++) {
		struct pollfd pf = { .fd = s, .events = POLLIN };
		uint16_t id = (uint16_t)(PROBE_ID + 1 + i);
		size_t n = selftest_question(b, id);
		if (send(s, b, n, 0) < 0)
			return err_errno(err, "cannot ask the resolver");
		while (poll(&pf, 1, ANSWER_MS) > 0) {
			ssize_t k = recv(s, got, sizeof(got), 0);
			int bits = k < 0 ? -EPROTO : selftest_answer(span_of(got, (size_t)k), id);
			if (bits >= 0)
				return bits;
			if (k < 0 && errno != EAGAIN)
				return err_errno(err, "the resolver does not answer");
		}
	}
	return err_set(err, -ETIMEDOUT, "the resolver does not answer");
}

static bool echo_answered(int fd)
{
	uint8_t b[512];

	for (;;) {
		ssize_t n = recv(fd, b, sizeof(b), 0);
		if (n < 0)
			return false;
		size_t head = (size_t)(b[0] & 15) * 4;
		/* anything from there, its refusals too, came by a way that should not be */
		if ((size_t)n >= head + 8 && b[head] == 0 && b[head + 4] == PROBE_ID >> 8 &&
		    b[head + 5] == (PROBE_ID & 255))
			return true;
	}
}

static bool ipv6_answered(int fd)
{
	uint8_t b[2048];

	for (;;) {
		ssize_t n = recv(fd, b, sizeof(b), 0);
		if (n < 0)
			return false;
		if (selftest_is_ipv6_answer(span_of(b, (size_t)n)))
			return true;
	}
}

static const struct {
	unsigned bit;
	const char *name;
} names[] = {
	{ SELFTEST_TCP_TLS, "TCP to port 443" },
	{ SELFTEST_TCP_DNS, "TCP to port 53" },
	{ SELFTEST_UDP_DNS, "UDP to port 53" },
	{ SELFTEST_ICMP, "an echo request" },
	{ SELFTEST_IPV6, "IPv6" },
};

static int run(const struct guest *g, struct err *err)
{
	struct probe p = { .g = g, .udp = -1, .icmp = -1, .ipv6 = -1 };
	uint8_t b[512];
	int r = refused(&p, 443, SELFTEST_TCP_TLS, err);

	if (r == 0)
		r = refused(&p, 53, SELFTEST_TCP_DNS, err);
	if (r < 0)
		return r;
	send_udp(&p);
	send_icmp(&p);
	send_ipv6(&p);
	int bits = ask(&p, err);
	if (bits < 0)
		return bits;
	if (recv(p.udp, b, sizeof(b), 0) >= 0)
		return err_set(err, -EPERM, "198.51.100.1 answered by UDP");
	if (echo_answered(p.icmp))
		return err_set(err, -EPERM, "198.51.100.1 answered an echo request");
	if (p.ipv6 >= 0 && ipv6_answered(p.ipv6))
		return err_set(err, -EPERM, "[2001:db8::1] answered");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		/* a kernel may have no packet sockets; the others are always there */
		if (!(p.sent & names[i].bit) && names[i].bit != SELFTEST_IPV6)
			return err_set(err, -ENETUNREACH, "%s could not be tried", names[i].name);
		if ((p.sent & names[i].bit) && !(bits & (int)names[i].bit))
			return err_set(err, -EPERM, "%s was sent, and nobody stopped it",
			               names[i].name);
	}
	return 0; /* the sockets end with this process */
}

/* ---- the parent's side ---- */

struct verdict {
	int32_t code;
	char text[ERR_TEXT_BYTES];
};

static void on_verdict(void *arg, uint32_t events UNUSED)
{
	struct guest *g = arg;
	struct verdict v = { 0 };
	struct err err = { 0 };
	ssize_t n = read(g->test, &v, sizeof(v));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	v.text[sizeof(v.text) - 1] = '\0';
	if (n != (ssize_t)sizeof(v))
		(void)err_set(&err, -EIO, "the test was cut short");
	else if (v.code < 0)
		(void)err_set(&err, v.code, "%s", v.text);
	loop_fd_del(g->loop, &g->test_src);
	auto_close_(&g->test);
	g->test = -1;
	guest_done(g, g->test_seq, err.code, &err);
}

int net_test(struct guest *g, const struct msg *m, struct err *err)
{
	int p[2];

	if (!g->card[0])
		return err_set(err, -ENODEV, "there is no network yet");
	if (g->test >= 0)
		return err_set(err, -EBUSY, "the test runs already");
	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_errno(err, "cannot make a pipe");
	AUTO_CLOSE int rd = p[0];
	AUTO_CLOSE int wr = p[1];
	pid_t pid = fork();
	if (pid < 0)
		return err_errno(err, "cannot start a process");
	if (pid == 0) {
		struct verdict v = { 0 };
		struct err e = { 0 };
		v.code = run(g, &e);
		memcpy(v.text, e.text, sizeof(v.text));
		_exit(write(wr, &v, sizeof(v)) == (ssize_t)sizeof(v) ? 0 : 1);
	}
	int r = loop_fd_add(g->loop, &g->test_src, rd, EPOLLIN, on_verdict, g);
	if (r < 0) {
		(void)kill(pid, SIGKILL);
		return err_code(err, r, "cannot watch the test");
	}
	g->test = take_fd(&rd);
	g->test_seq = m->seq;
	return 1;
}
