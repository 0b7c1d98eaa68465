/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-net - the network card's other end, for one sandbox (docs/network.md).
 *
 * Trusts: who started it. The guest's frames, the relay's messages (it parses answers
 * of the world) and the switch's (other guests') are not trusted. May touch: the
 * sockets it was given and stream socketpairs of its own; no file, no INET socket,
 * nothing to execute. A compromise yields what the relay still refuses.
 *
 *   --frames FD      QEMU's netdev "stream" (SOCK_STREAM)
 *   --relay FD       the relay (SOCK_SEQPACKET, wire/netmsg.h)
 *   --switch FD      the shared network, after WELCOME (SOCK_SEQPACKET, net/swmsg.h)
 *   --log FD         where to log; 2 when it is left out
 *   --name NAME      of the sandbox, for the log
 *   --address A      the guest's address
 *   --mac M          its MAC, 02:c1:0c:57:ff:02
 *   --profile P      permissive, standard, locked
 *   --allow-private CIDR   a range that is not closed; may be repeated
 *   --search DOMAIN  for DHCP; "cloche" when it is left out
 *   --mtu N          16000 when it is left out
 *   --uid UID        started as root: run as this one
 *
 * Status: 0 when QEMU ended; 1 when the relay did, or a peer broke its protocol; 2 for
 * usage; 3 when there is no cage to be had, or libslirp fails its self-test.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/ip.h"
#include "base/log.h"
#include "cage/cage.h"
#include "net/gate.h"
#include "net/serve.h"
#include "policy/egress.h"

enum {
	STATUS_USAGE = 2,
	STATUS_CAGE = 3,
	MTU_MIN = 576,
	HEAP_KEPT = 32 * 1024 * 1024, /* less than what 200 connections hold */
};

struct args {
	struct serve_opts o;
	struct egress *closed;
	enum egress_profile profile;
	bool has_profile, has_mac;
	int log;
	const char *name;
	uint64_t uid;
};

static int usage(void)
{
	(void)fprintf(stderr, "usage: cloche-net --frames FD --relay FD --address A --mac M "
	                      "--profile P [--switch FD] [--log FD] [--name NAME] "
	                      "[--allow-private CIDR]... [--search DOMAIN] [--mtu N] "
	                      "[--uid UID]\n");
	return STATUS_USAGE;
}

static bool number(const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(s, &end, 10);
	return *s >= '0' && *s <= '9' && *end == '\0' && errno == 0 && *out >= min && *out <= max;
}

static bool fd_arg(const char *s, int *out)
{
	uint64_t v;

	if (!number(s, 0, INT32_MAX, &v))
		return false;
	*out = (int)v;
	return true;
}

static bool mac_arg(const char *s, uint8_t out[MAC_BYTES])
{
	unsigned b[MAC_BYTES];
	int n = 0;

	if (sscanf(s, "%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &n) !=
	            MAC_BYTES ||
	    n != 17 || s[n])
		return false;
	for (size_t i = 0; i < MAC_BYTES; i++)
		out[i] = (uint8_t)b[i];
	return !(out[0] & 1); /* a group is no card */
}

static bool arg(struct args *a, const char *name, const char *v)
{
	struct ip4_net net;
	uint64_t n;

	if (strcmp(name, "--frames") == 0)
		return fd_arg(v, &a->o.frames);
	if (strcmp(name, "--relay") == 0)
		return fd_arg(v, &a->o.relay);
	if (strcmp(name, "--switch") == 0)
		return fd_arg(v, &a->o.sw);
	if (strcmp(name, "--log") == 0)
		return fd_arg(v, &a->log);
	if (strcmp(name, "--name") == 0)
		return (a->name = v) != NULL;
	if (strcmp(name, "--address") == 0)
		return ip4_parse(&a->o.addr, span_str(v)) == 0;
	if (strcmp(name, "--mac") == 0)
		return a->has_mac = mac_arg(v, a->o.mac);
	if (strcmp(name, "--profile") == 0)
		return a->has_profile = egress_profile_parse(v, &a->profile) == 0;
	if (strcmp(name, "--allow-private") == 0)
		return ip4_net_parse(&net, span_str(v)) == 0 &&
		       egress_allow_private(a->closed, net) == 0;
	if (strcmp(name, "--search") == 0)
		return (a->o.search = v) != NULL;
	if (strcmp(name, "--mtu") == 0 && number(v, MTU_MIN, GATE_MTU_MAX, &n)) {
		a->o.mtu = (uint16_t)n;
		return true;
	}
	return strcmp(name, "--uid") == 0 && number(v, 0, INT32_MAX, &a->uid);
}

static bool parse(int argc, char **argv, struct args *a)
{
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc || !arg(a, argv[i], argv[i + 1]))
			return false;
	}
	a->o.permissive = a->profile == EGRESS_PERMISSIVE;
	a->o.closed = a->closed;
	return a->o.frames >= 0 && a->o.relay >= 0 && a->o.addr && a->has_mac && a->has_profile;
}

int main(int argc, char **argv)
{
	struct args a = { .o = { .frames = -1,
		                 .relay = -1,
		                 .sw = -1,
		                 .mtu = GATE_MTU_MAX,
		                 .search = "cloche" },
		          .closed = egress_new(EGRESS_LOCKED),
		          .log = STDERR_FILENO };
	struct serve *s = NULL;
	struct err err = { 0 };

	if (!parse(argc, argv, &a))
		return usage();
	log_open(a.log, "cloche-net", a.name, LOG_INFO);
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	int r = fd_set_nonblock(a.o.relay, true);
	if (r == 0 && a.o.sw >= 0)
		r = fd_set_nonblock(a.o.sw, true);
	if (r < 0) {
		log_error("descriptors of peers: %s", strerror(-r));
		return STATUS_USAGE;
	}
	/* two buffers of 128 KiB go with each connection: without this they are mapped, and
	 * their pages zeroed, for every one anew, a third of our time */
	(void)mallopt(M_MMAP_THRESHOLD, HEAP_KEPT);
	(void)mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
	const struct cage_opts cage = { .role = CAGE_NET, .uid = (uid_t)a.uid };
	if (serve_new(&s, &a.o, &err) < 0 || cage_enter(&cage, &err) < 0) {
		log_error("%s%s%s", err.text, err.hint[0] ? ": " : "", err.hint);
		return STATUS_CAGE;
	}
	/* ---- from here on bytes from outside ---- */
	enum serve_end e = serve_run(s);
	serve_free(s);
	egress_free(a.closed);
	return e == SERVE_GUEST_GONE ? EXIT_SUCCESS : EXIT_FAILURE;
}
