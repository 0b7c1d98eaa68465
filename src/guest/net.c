/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's network card. Nothing here runs when the sandbox is offline: the
 * driver is loaded when the host says what the network is.
 *
 * All of it can be said again. What is the same already stays untouched, so that
 * connections live on (a restored machine is told once more); what differs is
 * replaced, without a moment in which there are two of it.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/ip.h"
#include "base/mem.h"
#include "guest/guest.h"

enum { CARD_WAIT_MS = 3000, HOSTS_BYTES_MAX = 64 * 1024 };

/* Ends our line in /etc/hosts, so that it can be told from those of the image and the user. */
#define HOSTS_MARK "\t# cloche\n"

void net_loopback_up(void)
{
	AUTO_CLOSE int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_name = "lo" };

	if (s >= 0 && ioctl(s, SIOCGIFFLAGS, &ifr) == 0) {
		ifr.ifr_flags |= IFF_UP | IFF_RUNNING;
		(void)ioctl(s, SIOCSIFFLAGS, &ifr); /* a kernel without it */
	}
}

/* The interface with a device behind it: there is one card at most. */
static bool find_card(char name[static IFNAMSIZ])
{
	DIR *d = opendir("/sys/class/net");
	bool found = false;

	if (!d)
		return false;
	for (struct dirent *e; !found && (e = readdir(d));) {
		char path[300];
		(void)snprintf(path, sizeof(path), "%s/device", e->d_name);
		if (e->d_name[0] == '.' || strlen(e->d_name) >= IFNAMSIZ ||
		    faccessat(dirfd(d), path, F_OK, 0) < 0)
			continue;
		(void)snprintf(name, IFNAMSIZ, "%.*s", IFNAMSIZ - 1, e->d_name);
		found = true;
	}
	(void)closedir(d);
	return found;
}

static int load_card(struct guest *g, struct err *err)
{
	uint64_t until = guest_now_ns() + CARD_WAIT_MS * 1000000ull;
	char failed[200] = "";

	/* IPv6 is not carried (docs/network.md): the card must not talk it on its own */
	(void)file_put_text(AT_FDCWD, "/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
	/*
	 * Microseconds that a read() that would wait looks at the card itself before it sleeps.
	 * Sleeping, an interrupt and waking up cost more than what comes in one go, of which
	 * there is 64 KiB at most; whoever only waits sleeps after these few.
	 */
	(void)file_put_text(AT_FDCWD, "/proc/sys/net/core/busy_read", "50");
	boot_load_net(g, failed, sizeof(failed));
	while (!find_card(g->card)) {
		if (failed[0])
			return err_set(err, -ENODEV, "cannot load the network card's driver:%s",
			               failed);
		if (guest_now_ns() > until)
			return err_set(err, -ENODEV, "there is no network card");
		guest_sleep_ms(2);
	}
	return 0;
}

static void put_addr(struct sockaddr *sa, uint32_t addr)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(addr) };

	memcpy(sa, &in, sizeof(in));
}

static int change_route(int s, unsigned long request, uint32_t gateway, char *card)
{
	struct rtentry rt = { .rt_flags = RTF_UP | RTF_GATEWAY, .rt_dev = card };

	put_addr(&rt.rt_dst, 0);
	put_addr(&rt.rt_genmask, 0);
	put_addr(&rt.rt_gateway, gateway);
	return ioctl(s, request, &rt) < 0 ? -errno : 0;
}

static int set_card(struct guest *g, const struct msg *m, struct err *err)
{
	AUTO_CLOSE int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { 0 };

	if (s < 0)
		return err_errno(err, "cannot make a socket");
	(void)snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", g->card);
	ifr.ifr_mtu = m->net.mtu;
	if (ioctl(s, SIOCSIFMTU, &ifr) < 0)
		return err_errno(err, "cannot set an MTU of %u", m->net.mtu);
	/* the kernel leaves an address and a mask alone that are these already */
	put_addr(&ifr.ifr_addr, m->net.address);
	if (ioctl(s, SIOCSIFADDR, &ifr) < 0)
		return err_errno(err, "cannot set the address");
	put_addr(&ifr.ifr_netmask, (uint32_t)(UINT64_C(0xffffffff) << (32 - m->net.prefix)));
	if (ioctl(s, SIOCSIFNETMASK, &ifr) < 0)
		return err_errno(err, "cannot set the network");
	if (ioctl(s, SIOCGIFFLAGS, &ifr) < 0)
		return err_errno(err, "cannot read the card's state");
	ifr.ifr_flags |= IFF_UP | IFF_RUNNING;
	if (ioctl(s, SIOCSIFFLAGS, &ifr) < 0)
		return err_errno(err, "cannot turn the card on");
	int r = change_route(s, SIOCADDRT, m->net.gateway, g->card);
	if (r < 0 && r != -EEXIST)
		return err_code(err, r, "cannot set the default route");
	if (g->gateway && g->gateway != m->net.gateway)
		(void)change_route(s, SIOCDELRT, g->gateway, g->card); /* gone already: fine */
	g->address = m->net.address;
	g->gateway = m->net.gateway;
	g->dns = m->net.dns;
	return 0;
}

/* A file of ours in the sessions' /etc: in the place of whatever is there, links too. */
static int put_etc(struct guest *g, const char *name, struct span text, struct err *err)
{
	AUTO_CLOSE int etc =
		openat(g->root, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (etc < 0)
		return err_errno(err, "cannot open /etc");
	(void)unlinkat(etc, ".cloche.new", 0); /* of an earlier try */
	AUTO_CLOSE int fd = openat(etc, ".cloche.new",
	                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	int r = fd < 0 ? -errno : fd_write_all(fd, text.p, text.len);
	if (r == 0 && fchmod(fd, 0644) < 0)
		r = -errno;
	if (r == 0 && renameat(etc, ".cloche.new", etc, name) < 0)
		r = -errno;
	return r < 0 ? err_code(err, r, "cannot write /etc/%s", name) : 0;
}

static int put_resolver(struct guest *g, const struct msg *m, struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	char ip[IP4_STR_BYTES];
	int r = buf_printf(&b, "nameserver %s\n", ip4_str(ip, m->net.dns));

	for (size_t i = 0; r == 0 && i < m->net.n_search; i++)
		r = buf_printf(&b, "%s%.*s", i ? " " : "search ", (int)m->net.search[i].len,
		               (const char *)m->net.search[i].p);
	if (r == 0 && m->net.n_search)
		r = buf_printf(&b, "\n");
	if (r < 0)
		return err_code(err, r, "cannot write /etc/resolv.conf");
	return put_etc(g, "resolv.conf", span_of(b.p, b.len), err);
}

static bool ends_with_mark(struct span line)
{
	size_t n = sizeof(HOSTS_MARK) - 1;

	return line.len >= n && memcmp(line.p + line.len - n, HOSTS_MARK, n) == 0;
}

/* What is in /etc/hosts stays, but the line that is ours. */
static int put_hosts(struct guest *g, struct err *err)
{
	AUTO_BUF struct buf b = { 0 };
	AUTO_FREE char *text = NULL;
	char host[65] = "", ip[IP4_STR_BYTES];
	size_t len = 0;
	int r = 0;

	AUTO_CLOSE int fd =
		openat(g->root, "etc/hosts", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && fd_read_file(fd, HOSTS_BYTES_MAX, &text, &len) < 0)
		return 0; /* larger than any of ours: it is the user's alone */
	for (size_t at = 0; r == 0 && at < len;) {
		const char *nl = memchr(text + at, '\n', len - at);
		size_t n = nl ? (size_t)(nl - (text + at)) + 1 : len - at;
		if (!ends_with_mark(span_of(text + at, n)))
			r = buf_put(&b, text + at, n);
		if (r == 0 && !nl)
			r = buf_put(&b, "\n", 1);
		at += n;
	}
	if (gethostname(host, sizeof(host) - 1) < 0)
		return err_errno(err, "cannot read the host name");
	if (r == 0)
		r = buf_printf(&b, "%s\t%s" HOSTS_MARK, ip4_str(ip, g->address), host);
	if (r < 0)
		return err_code(err, r, "cannot write /etc/hosts");
	return put_etc(g, "hosts", span_of(b.p, b.len), err);
}

int net_setup(struct guest *g, const struct msg *m, struct err *err)
{
	int r = g->card[0] ? 0 : load_card(g, err);

	if (r == 0)
		r = set_card(g, m, err);
	if (r == 0)
		r = put_resolver(g, m, err);
	if (r == 0)
		r = put_hosts(g, err);
	return r;
}
