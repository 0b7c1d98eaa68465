/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/relay_priv.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"

static struct sockaddr_in sockaddr_of(uint32_t addr, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
		                     .sin_port = htons(port),
		                     .sin_addr = { .s_addr = htonl(addr) } };
}

static bool opened_alone(const struct egress *policy, uint32_t addr)
{
	const struct ip4_net *nets;
	size_t n = egress_privates(policy, &nets);

	for (size_t i = 0; i < n; i++) {
		if (nets[i].bits == 32 && nets[i].addr == addr)
			return true;
	}
	return false;
}

/* Is it on one of the interfaces? What cannot be asked is answered with yes. */
static bool on_interface(int fd, uint32_t addr)
{
	enum { SPARE = 16 }; /* that come while we ask */
	struct ifconf c = { 0 };
	struct sockaddr_in a;

	/* without room the kernel says how much there is */
	if (ioctl(fd, SIOCGIFCONF, &c) < 0)
		return true;
	int room = c.ifc_len + (int)(SPARE * sizeof(struct ifreq));
	AUTO_FREE struct ifreq *all = xcalloc(1, (size_t)room);
	c.ifc_len = room;
	c.ifc_req = all;
	if (ioctl(fd, SIOCGIFCONF, &c) < 0 || c.ifc_len == room)
		return true;
	for (size_t i = 0; i < (size_t)c.ifc_len / sizeof(*all); i++) {
		memcpy(&a, &all[i].ifr_addr, sizeof(a));
		if (ntohl(a.sin_addr.s_addr) == addr)
			return true;
	}
	return false;
}

/*
 * Whether the kernel takes packets to @addr for its own, however it came to that: by an
 * address of an interface, or by a local route (whose source may be any). Only what is
 * local can be bound to. Return: 1, 0, or -1 when it does not tell.
 */
static int is_local(int fd, uint32_t addr)
{
	const struct sockaddr_in a = sockaddr_of(addr, 0),
				 nobody = sockaddr_of(IP4(240, 0, 0, 1), 0);

	if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return errno == EADDRNOTAVAIL ? 0 : -1;
	/* ip_nonlocal_bind: then anything can be, also what nobody has */
	AUTO_CLOSE int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (other < 0 || bind(other, (const struct sockaddr *)&nobody, sizeof(nobody)) == 0)
		return -1;
	return 1;
}

/*
 * Where a route leads to ourselves we mostly speak as the address that we speak to. Two
 * kinds have another: what lies in 127.0.0.0/8 (127.0.0.1 speaks), and the second and
 * further addresses of one network on an interface (the first one speaks); for these the
 * interfaces are asked, where is_local() could not tell.
 */
static bool is_own(int fd, uint32_t addr, uint32_t me, bool ask)
{
	return me == addr || me >> 24 == IN_LOOPBACKNET || (ask && on_interface(fd, addr));
}

bool dial_own(const struct egress *policy, uint32_t addr)
{
	struct sockaddr_in to = sockaddr_of(addr, 9), me;
	socklen_t len = sizeof(me);
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return true; /* no descriptor: no way to know, so no */
	int local = is_local(fd, addr);
	if (local == 1)
		return !opened_alone(policy, addr);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		return errno == EACCES; /* a broadcast address; else: no route, no harm */
	if (getsockname(fd, (struct sockaddr *)&me, &len) < 0)
		return true;
	return is_own(fd, addr, ntohl(me.sin_addr.s_addr), local != 0) &&
	       !opened_alone(policy, addr);
}

int dial(const struct egress *policy, int type, uint32_t addr, uint16_t port, enum why *out_why,
         const char **out_detail)
{
	static const int on = 1;
	bool service = addr == (uint32_t)JUDGE_SERVICE_ADDR && type == SOCK_STREAM;
	struct sockaddr_in to = sockaddr_of(service ? INADDR_LOOPBACK : addr, port);

	*out_why = WHY_NONE;
	*out_detail = NULL;
	if (service) {
		if (!egress_service_ok(policy, port))
			*out_why = WHY_SERVICE;
	} else if (judge_answer(policy, addr, out_detail) != WHY_NONE) {
		*out_why = WHY_CLOSED;
	} else if (dial_own(policy, addr)) {
		*out_why = WHY_HOST_ADDRESS;
	} else if (egress_port_closed(port, NULL)) {
		*out_why = WHY_PORT;
	}
	if (*out_why != WHY_NONE)
		return 0;
	AUTO_CLOSE int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (type == SOCK_STREAM) {
		/* the guest's own stack has waited already where it wanted to; a dead far end is
		 * found. Both are a help only. */
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
		return -errno;
	return take_fd(&fd);
}
