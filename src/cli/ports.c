/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"

enum { BACKLOG = 128 };

uint32_t ports_address(const char *id, unsigned turn)
{
	AUTO_FREE char *key = xasprintf("%s/%u", id, turn);
	struct hash h;

	hash_bytes(&h, key, strlen(key));
	uint32_t last = h.b[2] % 254 + 1;
	return IP4(127, 64 | (h.b[0] & 63), h.b[1], last);
}

/* A listening socket of @family (@addr only for IPv4). fd or -errno. */
static int listen_on(int family, uint32_t addr, uint16_t port)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET,
		                  .sin_port = htons(port),
		                  .sin_addr.s_addr = htonl(addr) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
		                   .sin6_port = htons(port),
		                   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const int on = 1;
	AUTO_CLOSE int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	/* a port of a sandbox that just ended must not stay closed for a minute */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return -errno;
	if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
		return -errno;
	int r = family == AF_INET ? bind(fd, (const struct sockaddr *)&a4, sizeof(a4))
	                          : bind(fd, (const struct sockaddr *)&a6, sizeof(a6));
	if (r < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return take_fd(&fd);
}

static void close_port(struct net_port *p)
{
	for (size_t i = 0; i < p->n_fds; i++)
		auto_close_(&p->fds[i]);
	p->n_fds = 0;
}

/* 127.0.0.1, and ::1 where this machine has it. */
static int on_localhost(struct net_port *p, uint16_t port)
{
	int fd = listen_on(AF_INET, IP4(127, 0, 0, 1), port);

	if (fd < 0)
		return fd;
	p->fds[p->n_fds++] = fd;
	fd = listen_on(AF_INET6, 0, port);
	if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)
		return 0;
	if (fd < 0) {
		close_port(p);
		return fd;
	}
	p->fds[p->n_fds++] = fd;
	return 0;
}

static int cannot(struct err *err, int code, const char *what, uint16_t port)
{
	if (code == -EADDRINUSE) {
		err_set(err, code, "%s: port %u is in use on this machine", what, port);
		return err_hint(err, "another number, as -p %u:PORT, or end what listens there",
		                port < 55000 ? port + 10000u : port - 10000u);
	}
	if (code == -EACCES) {
		err_set(err, code, "%s: port %u is below those that this user may open", what,
		        port);
		return err_hint(err, "a number from 1024 on, as -p %u:%u", 8000u + port, port);
	}
	return err_code(err, code, "%s: cannot listen on port %u", what, port);
}

int ports_open_callback(struct net_port *out, uint16_t port, struct err *err)
{
	struct net_port p = { .once = true,
		              .guest_port = port,
		              .deadline_s = PORTS_CALLBACK_S,
		              .label = "callback" };
	int r = on_localhost(&p, port);

	if (r == -EADDRINUSE) {
		err_set(err, r, "callback: port %u of localhost is in use", port);
		return err_hint(err, "a login comes back to this very number: end what listens "
		                     "there");
	}
	if (r < 0)
		return cannot(err, r, "callback", port);
	*out = p;
	return 0;
}

/* All published ports at one address: 0, or -errno and the port that could not be had. */
static int publish_at(struct ports *p, const struct netopts *o, uint32_t addr, uint16_t *out_port)
{
	for (size_t i = 0; i < o->n_ports; i++) {
		struct net_port *v = &p->v[p->n];
		*v = (struct net_port){ .guest_port = o->ports[i].guest, .label = "publish" };
		*out_port = p->host[p->n] = o->ports[i].host;
		int r = 0;
		if (addr == 0) {
			r = on_localhost(v, o->ports[i].host);
		} else {
			int fd = listen_on(AF_INET, addr, o->ports[i].host);
			r = MIN(fd, 0);
			if (fd >= 0)
				v->fds[v->n_fds++] = fd;
		}
		if (r < 0) {
			ports_close(p);
			return r;
		}
		p->n++;
	}
	p->address = addr;
	return 0;
}

int ports_open(struct ports *out, const struct netopts *o, const char *id, struct err *err)
{
	struct ports p = { 0 };
	uint16_t port = 0;
	int r = 0;

	/* another sandbox may have the address; a server on all addresses has its port everywhere */
	for (unsigned turn = 0; turn < PORTS_TURNS; turn++) {
		r = publish_at(&p, o, o->publish_localhost ? 0 : ports_address(id, turn), &port);
		if (r != -EADDRINUSE || o->publish_localhost)
			break;
	}
	if (r < 0)
		return cannot(err, r, "publish", port);
	for (size_t i = 0; i < o->n_callbacks; i++) {
		r = ports_open_callback(&p.v[p.n], o->callbacks[i], err);
		if (r < 0) {
			ports_close(&p);
			return r;
		}
		p.host[p.n++] = o->callbacks[i];
	}
	*out = p;
	return 0;
}

void ports_close(struct ports *p)
{
	for (size_t i = 0; i < p->n; i++)
		close_port(&p->v[i]);
	p->n = 0;
}

int ports_put(const struct ports *p, struct buf *out)
{
	char ip[IP4_STR_BYTES] = "localhost";
	int r = 0;

	if (p->address)
		(void)ip4_str(ip, p->address);
	for (size_t i = 0; i < p->n && r == 0; i++) {
		const struct net_port *v = &p->v[i];
		if (v->once)
			r = buf_printf(out,
			               "        callback http://localhost:%u -> guest %u, once, "
			               "within 5 minutes\n",
			               p->host[i], v->guest_port);
		else
			r = buf_printf(out, "        http://%s:%u -> guest %u\n", ip, p->host[i],
			               v->guest_port);
	}
	return r;
}
