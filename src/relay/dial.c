/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/relay_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/fd.h"

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

bool dial_own(const struct egress *policy, uint32_t addr)
{
	struct sockaddr_in to = sockaddr_of(addr, 9), me;
	socklen_t len = sizeof(me);
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return true; /* no descriptor: no way to know, so no */
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		return errno == EACCES; /* a broadcast address; else: no route, no harm */
	if (getsockname(fd, (struct sockaddr *)&me, &len) < 0)
		return true;
	/* from itself to itself */
	return me.sin_addr.s_addr == to.sin_addr.s_addr && !opened_alone(policy, addr);
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
