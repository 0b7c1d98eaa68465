/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nettraffic.c - TCP traffic of net.py, both ends of it. Static, so it runs in any image.
 *
 *   nettraffic serve ADDR PORT		the server, for ever
 *   nettraffic up ADDR PORT BYTES	send so much; the seconds until the server has it all
 *   nettraffic down ADDR PORT BYTES	receive so much
 *   nettraffic conns ADDR PORT N	so many connections one after the other, a byte each way
 *   nettraffic ping ADDR PORT N	so many round trips of a byte on one connection
 *   nettraffic mtu N			of eth0
 *   nettraffic addr ADDR BITS GATEWAY	configure eth0
 *
 * A connection begins with one letter (u, d, c, p) and a decimal number with a
 * newline; the server answers every upload with one byte at its end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024 };

static char buf[CHUNK];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct sockaddr_in address(const char *addr, const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };

	if (inet_pton(AF_INET, addr, &a.sin_addr) != 1)
		die(addr);
	return a;
}

static int dial(const struct sockaddr_in *a, char kind, long n)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	char head[32];

	if (s < 0 || connect(s, (const struct sockaddr *)a, sizeof(*a)))
		die("connect");
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	int len = snprintf(head, sizeof(head), "%c%ld\n", kind, n);
	if (send(s, head, (size_t)len, MSG_NOSIGNAL) != len)
		die("send");
	return s;
}

static void send_all(int s, long n)
{
	while (n > 0) {
		ssize_t k = send(s, buf, n < CHUNK ? (size_t)n : CHUNK, MSG_NOSIGNAL);

		if (k <= 0)
			die("send");
		n -= k;
	}
}

static void recv_all(int s, long n)
{
	while (n > 0) {
		ssize_t k = recv(s, buf, n < CHUNK ? (size_t)n : CHUNK, 0);

		if (k <= 0)
			die("recv");
		n -= k;
	}
}

static void serve_one(int c)
{
	char head[32];
	size_t have = 0;
	int on = 1;

	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	do {
		if (have == sizeof(head) - 1 || recv(c, head + have, 1, 0) != 1)
			return;
	} while (head[have++] != '\n');
	head[have] = '\0';
	long n = atol(head + 1);

	switch (head[0]) {
	case 'u':
		recv_all(c, n);
		send_all(c, 1);
		break;
	case 'd':
		send_all(c, n);
		break;
	case 'c':
		send_all(c, 1);
		break;
	case 'p':
		while (n-- > 0) {
			recv_all(c, 1);
			send_all(c, 1);
		}
		break;
	default:
		return;
	}
	shutdown(c, SHUT_WR);
	(void)!recv(c, head, sizeof(head),
	            0); /* its end first, so that ports are not left waiting here */
}

static int serve(const struct sockaddr_in *a)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	signal(SIGCHLD, SIG_IGN);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(s, (const struct sockaddr *)a, sizeof(*a)) || listen(s, 512))
		die("listen");
	for (;;) {
		int c = accept(s, NULL, NULL);

		if (c < 0)
			continue;
		if (fork() == 0) {
			close(s);
			serve_one(c);
			_exit(0);
		}
		close(c);
	}
}

static int configure(char **argv)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq r = { .ifr_name = "eth0" };
	struct sockaddr_in *in = (struct sockaddr_in *)&r.ifr_addr;
	struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };

	in->sin_family = AF_INET;
	inet_pton(AF_INET, argv[0], &in->sin_addr);
	if (ioctl(s, SIOCSIFADDR, &r))
		die("address");
	in->sin_addr.s_addr = htonl(~0u << (32 - atoi(argv[1])));
	if (ioctl(s, SIOCSIFNETMASK, &r))
		die("netmask");
	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(s, SIOCSIFFLAGS, &r))
		die("up");
	((struct sockaddr_in *)&route.rt_dst)->sin_family = AF_INET;
	((struct sockaddr_in *)&route.rt_genmask)->sin_family = AF_INET;
	((struct sockaddr_in *)&route.rt_gateway)->sin_family = AF_INET;
	inet_pton(AF_INET, argv[2], &((struct sockaddr_in *)&route.rt_gateway)->sin_addr);
	if (ioctl(s, SIOCADDRT, &route) && errno != EEXIST)
		die("route");
	return 0;
}

int main(int argc, char **argv)
{
	double t0;
	int s;

	if (argc == 3 && !strcmp(argv[1], "mtu")) {
		struct ifreq r = { .ifr_name = "eth0", .ifr_mtu = atoi(argv[2]) };

		if (ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFMTU, &r))
			die("mtu");
		return 0;
	}
	if (argc == 5 && !strcmp(argv[1], "addr"))
		return configure(argv + 2);
	if (argc < 4) {
		(void)fprintf(stderr, "usage: nettraffic serve|up|down|conns|ping ADDR PORT [N]\n");
		return 2;
	}
	struct sockaddr_in a = address(argv[2], argv[3]);
	if (!strcmp(argv[1], "serve"))
		return serve(&a);
	long n = argc > 4 ? atol(argv[4]) : 1;

	memset(buf, 'x', sizeof(buf));
	t0 = now_s();
	switch (argv[1][0]) {
	case 'u':
		s = dial(&a, 'u', n);
		send_all(s, n);
		recv_all(s, 1);
		break;
	case 'd':
		s = dial(&a, 'd', n);
		recv_all(s, n);
		break;
	case 'c':
		for (long i = 0; i < n; i++) {
			s = dial(&a, 'c', 1);
			recv_all(s, 1);
			close(s);
		}
		break;
	case 'p':
		s = dial(&a, 'p', n);
		t0 = now_s();
		for (long i = 0; i < n; i++) {
			send_all(s, 1);
			recv_all(s, 1);
		}
		break;
	default:
		return 2;
	}
	printf("%.6f\n", now_s() - t0);
	return 0;
}
