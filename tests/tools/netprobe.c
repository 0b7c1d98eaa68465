/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netprobe.c - the hands of a network test in its guest. Static, so it runs in any image.
 *
 * Reads one command a line from stdin: ID, then words between tabs, with \xNN for
 * any byte. Each runs in a process of its own, so a command that waits holds up no
 * other; the answer is one line "ID TEXT" in the same escapes, without spaces in data.
 *
 *   talk ADDR PORT STEP...	a TCP conversation, see talk()
 *   udp ADDR PORT MS DATA	one datagram, and what comes back within so long
 *   frame MS FRAME...		Ethernet frames out of eth0, and the frames that come in
 *   segments ADDR PORT STEP...	TCP by hand, see segments()
 *   flows ADDR PORT N MS	N connections at one time, kept for so long
 *   listen ADDR PORT TEXT N	N connections one after the other, each gets TEXT and an echo
 *   sh UID COMMAND		a shell command as that user
 *   addr ADDR|-		give eth0 this address, or none
 *
 * tests/lib/netguest.py speaks to it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/tcp.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	LINE_MAX_BYTES = 1 << 20,
	WORDS_MAX = 512,
	FRAME_MAX = 17000,
	GOT_MAX = 200000,
	TEXT_MAX = 1 << 20 /* of an answer; a network that leaks sends without end */
};

struct word {
	uint8_t *p;
	size_t n;
};

static const char *id;
static char *text; /* the answer so far */
static size_t text_n, text_cap;

static void put_raw(const char *p, size_t n)
{
	if (text_n + n > TEXT_MAX)
		return;
	if (text_n + n + 1 > text_cap) {
		text_cap = (text_n + n + 1) * 2;
		text = realloc(text, text_cap);
		if (!text)
			abort();
	}
	memcpy(text + text_n, p, n);
	text_n += n;
}

static void __attribute__((format(printf, 1, 2))) put(const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	put_raw(line, n < (int)sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

static void put_bytes(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] > ' ' && p[i] < 0x7f && p[i] != '\\')
			put_raw((const char *)&p[i], 1);
		else
			put("\\x%02x", p[i]);
	}
}

/* A long line is several writes, and other children have the same pipe: they take turns. */
static void answer(const char *mark)
{
	static struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const char *p = text;
	char head[64];
	int n = snprintf(head, sizeof(head), "%s%s ", id, mark);
	int fd = open("/tmp/.netprobe", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	put_raw("\n", 1);
	(void)fcntl(fd, F_SETLKW, &lock);
	(void)!write(1, head, (size_t)n);
	while (text_n) {
		ssize_t got = write(1, p, text_n);

		if (got < 0)
			_exit(1);
		p += got;
		text_n -= (size_t)got;
	}
	close(fd);
	text_n = 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static const char *errno_word(int e)
{
	switch (e) {
	case ECONNREFUSED:
		return "refused";
	case ECONNRESET:
	case EPIPE:
		return "reset";
	case ETIMEDOUT:
	case EINPROGRESS:
		return "timeout";
	case EHOSTUNREACH:
	case ENETUNREACH:
		return "unreachable";
	default:
		return strerrorname_np(e);
	}
}

static int num(const struct word *w)
{
	return atoi((const char *)w->p);
}

static socklen_t address(const struct word *addr, int port, struct sockaddr_storage *ss)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (strchr((const char *)addr->p, ':')) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)port);
		inet_pton(AF_INET6, (const char *)addr->p, &in6->sin6_addr);
		return sizeof(*in6);
	}
	in->sin_family = AF_INET;
	in->sin_port = htons((uint16_t)port);
	inet_pton(AF_INET, (const char *)addr->p, &in->sin_addr);
	return sizeof(*in);
}

/* Return: 0, or an errno. */
static int connected(int s, int timeout_ms)
{
	struct pollfd pf = { .fd = s, .events = POLLOUT };
	int e = ETIMEDOUT;
	socklen_t n = sizeof(e);

	if (poll(&pf, 1, timeout_ms) == 1)
		getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &n);
	return e;
}

static int own_port(int s)
{
	struct sockaddr_in a = { 0 }; /* sin_port lies where sin6_port does */
	socklen_t n = sizeof(a);

	(void)getsockname(s, (struct sockaddr *)&a, &n);
	return ntohs(a.sin_port);
}

/* Reads until @n bytes, @pattern, the end, or the time is over. False: it ended, which is said. */
static bool read_some(int s, size_t n, const struct word *pattern, int timeout_ms)
{
	static uint8_t got[GOT_MAX];
	size_t have = 0;
	int64_t end = now_ms() + timeout_ms;
	const char *why = NULL;

	while (have < n && have < sizeof(got)) {
		int64_t left = end - now_ms();
		struct pollfd pf = { .fd = s, .events = POLLIN };

		if (left <= 0 || poll(&pf, 1, (int)left) != 1)
			break;
		ssize_t k = recv(s, got + have, (n < sizeof(got) ? n : sizeof(got)) - have, 0);
		if (k <= 0) {
			why = k == 0 ? "eof" : errno_word(errno);
			break;
		}
		have += (size_t)k;
		if (pattern && memmem(got, have, pattern->p, pattern->n))
			break;
	}
	put(" got=");
	put_bytes(got, have);
	if (why)
		put(" %s", why);
	return !why;
}

/*
 * Steps: s=DATA send; o=DATA send as urgent; f=DATA send with the SYN (first step);
 * w=MS wait; t=MS limit of each wait from here on; r=N read N bytes; p=DATA read until these;
 * e read to the end; h half-close; b=N send N bytes of 'x', and drop what comes meanwhile;
 * k=N as b, and nothing is read.
 * Answer: "connected ms=N port=OURS", then of each read "got=DATA", at last "eof", "reset" or "open".
 */
static void talk(int argc, struct word *w)
{
	struct sockaddr_storage to;
	socklen_t n = address(&w[0], num(&w[1]), &to);
	int s = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), timeout_ms = 8000;
	int64_t t0 = now_ms();
	int first = 2, e;

	if (argc > 2 && !strncmp((char *)w[2].p, "t=", 2))
		timeout_ms = atoi((char *)w[2].p + 2); /* of the connect, too */
	fcntl(s, F_SETFL, O_NONBLOCK);
	if (argc > 2 && !strncmp((char *)w[2].p, "f=", 2)) {
		e = sendto(s, w[2].p + 2, w[2].n - 2, MSG_FASTOPEN, (struct sockaddr *)&to, n) < 0
		            ? errno
		            : 0;
		if (e == 0)
			first = 3;
		else if (e == EINPROGRESS)
			w[2].p[0] = 's'; /* no cookie from an earlier one: the data comes after */
	} else {
		e = connect(s, (struct sockaddr *)&to, n) ? errno : 0;
	}
	if (e == EINPROGRESS || e == 0)
		e = connected(s, timeout_ms);
	put("%s ms=%d port=%d", e ? errno_word(e) : "connected", (int)(now_ms() - t0), own_port(s));
	if (e)
		return;
	for (int i = first; i < argc; i++) {
		char kind = (char)w[i].p[0];
		struct word arg = { w[i].n > 2 ? w[i].p + 2 : w[i].p + w[i].n,
			            w[i].n > 2 ? w[i].n - 2 : 0 };

		if (kind == 's' || kind == 'o') {
			while (arg.n) {
				struct pollfd pf = { .fd = s, .events = POLLOUT };
				ssize_t k = send(s, arg.p, arg.n,
				                 MSG_NOSIGNAL | (kind == 'o' ? MSG_OOB : 0));

				if (k < 0 && errno == EAGAIN && poll(&pf, 1, timeout_ms) == 1)
					continue;
				if (k < 0) {
					put(" %s", errno_word(errno));
					return;
				}
				arg.p += k;
				arg.n -= (size_t)k;
			}
		} else if (kind == 'b' || kind == 'k') {
			static uint8_t chunk[65536], waste[65536];
			long left = atol((char *)arg.p);
			int64_t end = now_ms() + timeout_ms;

			memset(chunk, 'x', sizeof(chunk));
			while (left > 0) {
				struct pollfd pf = { .fd = s,
					             .events =
					                     POLLOUT | (kind == 'b' ? POLLIN : 0) };

				if (poll(&pf, 1, (int)(end - now_ms())) != 1) {
					put(" stalled=%ld", left);
					break;
				}
				if (pf.revents & POLLIN && recv(s, waste, sizeof(waste), 0) == 0)
					break;
				if (!(pf.revents & (POLLOUT | POLLERR)))
					continue;
				ssize_t k = send(s, chunk, left < 65536 ? (size_t)left : 65536,
				                 MSG_NOSIGNAL);
				if (k < 0 && errno != EAGAIN) {
					put(" %s", errno_word(errno));
					return;
				}
				left -= k > 0 ? k : 0;
			}
		} else if (kind == 'w') {
			usleep((useconds_t)num(&arg) * 1000);
		} else if (kind == 't') {
			timeout_ms = num(&arg);
		} else if (kind == 'h') {
			shutdown(s, SHUT_WR);
		} else if (kind == 'r') {
			if (!read_some(s, (size_t)num(&arg), NULL, timeout_ms))
				return;
		} else if (kind == 'p') {
			if (!read_some(s, SIZE_MAX, &arg, timeout_ms))
				return;
		} else if (kind == 'e') {
			if (!read_some(s, SIZE_MAX, NULL, timeout_ms))
				return;
		}
	}
	put(" open");
}

static void udp(int argc, struct word *w)
{
	static uint8_t got[65536];
	struct sockaddr_storage to;
	socklen_t n = address(&w[0], num(&w[1]), &to);
	int s = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct pollfd pf = { .fd = s, .events = POLLIN };
	int on = 1;

	(void)argc;
	setsockopt(s, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
	if (connect(s, (struct sockaddr *)&to, n) || send(s, w[3].p, w[3].n, 0) < 0) {
		put("%s", errno_word(errno));
		return;
	}
	if (poll(&pf, 1, num(&w[2])) != 1) {
		put("silence");
		return;
	}
	ssize_t k = recv(s, got, sizeof(got), 0);
	if (k < 0) {
		put("%s", errno_word(errno));
		return;
	}
	put("got=");
	put_bytes(got, (size_t)k);
}

static int packet_socket(uint8_t mac[6])
{
	int s = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(3));
	struct sockaddr_ll ll = { .sll_family = AF_PACKET,
		                  .sll_protocol = htons(3),
		                  .sll_ifindex = (int)if_nametoindex("eth0") };
	struct ifreq r = { .ifr_name = "eth0" };

	if (s < 0 || bind(s, (struct sockaddr *)&ll, sizeof(ll)) || ioctl(s, SIOCGIFHWADDR, &r)) {
		put("error=%s", errno_word(errno));
		return -1;
	}
	memcpy(mac, r.ifr_hwaddr.sa_data, 6);
	return s;
}

static ssize_t packet_recv(int s, uint8_t *buf, size_t cap, int64_t end)
{
	for (;;) {
		struct pollfd pf = { .fd = s, .events = POLLIN };
		struct sockaddr_ll from = { 0 };
		socklen_t n = sizeof(from);
		int64_t left = end - now_ms();

		if (left <= 0 || poll(&pf, 1, (int)left) != 1)
			return -1;
		ssize_t k = recvfrom(s, buf, cap, 0, (struct sockaddr *)&from, &n);
		if (k > 0 && from.sll_pkttype != PACKET_OUTGOING)
			return k;
	}
}

static void frame(int argc, struct word *w)
{
	static uint8_t got[FRAME_MAX];
	uint8_t mac[6];
	int s = packet_socket(mac);
	ssize_t n;

	if (s < 0)
		return;
	for (int i = 1; i < argc; i++)
		if (send(s, w[i].p, w[i].n, 0) < 0)
			put("error=%s ", errno_word(errno));
	put("sent=%d", argc - 1);
	int64_t end = now_ms() + num(&w[0]);
	while ((n = packet_recv(s, got, sizeof(got), end)) > 0) {
		put(" in=");
		put_bytes(got, (size_t)n);
	}
}

static int addr_ioctl(int s, unsigned long what, const char *addr)
{
	struct ifreq r = { .ifr_name = "eth0" };
	struct sockaddr_in *in = (struct sockaddr_in *)&r.ifr_addr;

	in->sin_family = AF_INET;
	inet_pton(AF_INET, addr, &in->sin_addr);
	return ioctl(s, what, &r);
}

/* No address: the kernel answers nothing that comes in, so segments() has the flow alone. */
static void set_addr(int argc, struct word *w)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct rtentry r = { .rt_flags = RTF_UP | RTF_GATEWAY };
	const char *a = (const char *)w[0].p;

	(void)argc;
	if (!strcmp(a, "-")) {
		put("%s", addr_ioctl(s, SIOCSIFADDR, "0.0.0.0") ? errno_word(errno) : "ok");
		return;
	}
	((struct sockaddr_in *)&r.rt_dst)->sin_family = AF_INET;
	((struct sockaddr_in *)&r.rt_genmask)->sin_family = AF_INET;
	((struct sockaddr_in *)&r.rt_gateway)->sin_family = AF_INET;
	inet_pton(AF_INET, "10.87.0.1", &((struct sockaddr_in *)&r.rt_gateway)->sin_addr);
	if (addr_ioctl(s, SIOCSIFADDR, a) || addr_ioctl(s, SIOCSIFNETMASK, "255.255.0.0") ||
	    (ioctl(s, SIOCADDRT, &r) && errno != EEXIST))
		put("%s", errno_word(errno));
	else
		put("ok");
}

/* --- TCP by hand ---------------------------------------------------------------- */

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32 };

struct flow {
	int s;
	uint8_t mac[6];
	uint32_t src, dst;     /* network order */
	uint16_t sport, dport; /* host order */
	uint32_t iss, irs;     /* ours and the peer's first sequence number */
	uint32_t ack;          /* what we have of the peer, as a sequence number */
};

static uint32_t sum(uint32_t acc, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		acc += (uint32_t)(p[i] << 8 | p[i + 1]);
	if (n & 1)
		acc += (uint32_t)p[n - 1] << 8;
	return acc;
}

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint16_t folded(uint32_t acc)
{
	while (acc >> 16)
		acc = (acc & 0xffff) + (acc >> 16);
	return (uint16_t)~acc;
}

static void segment(struct flow *f, uint32_t seq, uint8_t flags, uint16_t urg, const uint8_t *data,
                    size_t n)
{
	static const uint8_t gateway[6] = { 0x02, 0xc1, 0x0c, 0, 0, 1 };
	static uint8_t b[FRAME_MAX];
	uint8_t *ip = b + 14, *t = ip + 20;

	if (n > FRAME_MAX - 54)
		return;
	memcpy(b, gateway, 6);
	memcpy(b + 6, f->mac, 6);
	put16(b + 12, 0x0800);
	memset(ip, 0, 40);
	ip[0] = 0x45;
	put16(ip + 2, (uint32_t)(40 + n));
	put16(ip + 6, 0x4000);
	ip[8] = 64;
	ip[9] = 6;
	memcpy(ip + 12, &f->src, 4);
	memcpy(ip + 16, &f->dst, 4);
	put16(ip + 10, folded(sum(0, ip, 20)));
	put16(t, f->sport);
	put16(t + 2, f->dport);
	put32(t + 4, seq);
	put32(t + 8, flags & ACK ? f->ack : 0);
	t[12] = 5 << 4;
	t[13] = flags;
	put16(t + 14, 65535);
	put16(t + 18, urg);
	memcpy(t + 20, data, n);
	put16(t + 16, folded(sum(sum(6 + 20 + (uint32_t)n, ip + 12, 8), t, 20 + n)));
	(void)!send(f->s, b, 54 + n, 0);
}

/* The next segment of the flow; ARP questions for us are answered meanwhile. 0: time is over. */
static const uint8_t *segment_recv(struct flow *f, int64_t end, size_t *out_data, size_t *out_n)
{
	static uint8_t b[FRAME_MAX];
	ssize_t n;

	while ((n = packet_recv(f->s, b, sizeof(b), end)) > 0) {
		if (n >= 42 && b[12] == 8 && b[13] == 6 && b[21] == 1 &&
		    !memcmp(b + 38, &f->src, 4)) {
			uint8_t r[42];

			memcpy(r, b + 6, 6);
			memcpy(r + 6, f->mac, 6);
			memcpy(r + 12, b + 12, 8);
			put16(r + 20, 2);
			memcpy(r + 22, f->mac, 6);
			memcpy(r + 28, &f->src, 4);
			memcpy(r + 32, b + 22, 10);
			(void)!send(f->s, r, sizeof(r), 0);
			continue;
		}
		if (n < 54 || b[12] != 8 || b[13] != 0 || b[23] != 6 || memcmp(b + 26, &f->dst, 4))
			continue;
		const uint8_t *t = b + 14 + (b[14] & 15) * 4;
		size_t total = (size_t)(b[16] << 8 | b[17]) + 14;
		size_t at = (size_t)(t - b) + (size_t)(t[12] >> 4) * 4;
		if (total > (size_t)n || at > total || (t[0] << 8 | t[1]) != f->dport ||
		    (t[2] << 8 | t[3]) != f->sport)
			continue;
		*out_data = at - (size_t)(t - b);
		*out_n = total - at;
		return t;
	}
	return NULL;
}

/* Reads what the peer says until @end, or its end. True: it ended. */
static bool drain(struct flow *f, int64_t end)
{
	const uint8_t *t;
	size_t at, n;

	while ((t = segment_recv(f, end, &at, &n))) {
		if (t[13] & RST) {
			put(" reset");
			return true;
		}
		if (get32(t + 4) != f->ack)
			continue;
		if (n) {
			put(" got=");
			put_bytes(t + at, n);
			f->ack += (uint32_t)n;
		}
		if (t[13] & FIN)
			f->ack++;
		if (n || t[13] & FIN)
			segment(f, f->iss + 1, ACK, 0, NULL, 0);
		if (t[13] & FIN) {
			put(" eof");
			return true;
		}
	}
	return false;
}

/*
 * Steps: SYN=DATA data with the SYN; OFFSET=DATA a segment there; OFFSET!URG=DATA the
 * same with an urgent pointer; OFFSET. the FIN there; w=MS wait and read.
 * Answer: "connected", or "refused" or "timeout", then as talk().
 */
static void segments(int argc, struct word *w)
{
	struct flow f = { .dport = (uint16_t)num(&w[1]) };
	const uint8_t *t, *first = NULL;
	size_t at, n, first_n = 0;
	int i = 2;

	f.s = packet_socket(f.mac);
	if (f.s < 0)
		return;
	inet_pton(AF_INET, "10.87.255.2", &f.src);
	inet_pton(AF_INET, (const char *)w[0].p, &f.dst);
	f.sport = (uint16_t)(20000 + getpid() % 20000);
	f.iss = (uint32_t)now_ms() * 1000;
	if (argc > 2 && w[2].n >= 4 && !memcmp(w[2].p, "SYN=", 4)) {
		first = w[2].p + 4;
		first_n = w[2].n - 4;
		i = 3;
	}
	segment(&f, f.iss, SYN, 0, first, first_n);
	do {
		t = segment_recv(&f, now_ms() + 5000, &at, &n);
	} while (t && !(t[13] & (SYN | RST)));
	if (!t || t[13] & RST) {
		put("%s", t ? "refused" : "timeout");
		return;
	}
	put("connected");
	f.irs = get32(t + 4);
	f.ack = f.irs + 1;
	segment(&f, f.iss + 1, ACK, 0, NULL, 0);
	for (; i < argc; i++) {
		char *rest;
		unsigned long off = strtoul((char *)w[i].p, &rest, 10), urg = 0;

		if (w[i].p[0] == 'w') {
			if (drain(&f, now_ms() + atoi((char *)w[i].p + 2)))
				return;
			continue;
		}
		if (*rest == '!')
			urg = strtoul(rest + 1, &rest, 10);
		if (*rest == '.') {
			segment(&f, f.iss + 1 + (uint32_t)off, FIN | ACK, 0, NULL, 0);
			continue;
		}
		const uint8_t *data = (uint8_t *)rest + 1;
		segment(&f, f.iss + 1 + (uint32_t)off, (uint8_t)(ACK | PSH | (urg ? URG : 0)),
		        (uint16_t)urg, data, (size_t)(w[i].p + w[i].n - data));
	}
	if (!drain(&f, now_ms() + 3000))
		put(" open");
}

/* --- more of the socket kind ------------------------------------------------------- */

static void flows(int argc, struct word *w)
{
	struct sockaddr_storage to;
	socklen_t len = address(&w[0], num(&w[1]), &to);
	int n = num(&w[2]), good = 0, bad = 0;
	int *s = calloc((size_t)n, sizeof(*s));

	(void)argc;
	for (int i = 0; i < n; i++) {
		s[i] = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (s[i] >= 0 && connect(s[i], (struct sockaddr *)&to, len) &&
		    errno != EINPROGRESS) {
			close(s[i]);
			s[i] = -1;
		}
	}
	int64_t end = now_ms() + 5000;
	for (int i = 0; i < n; i++) {
		int64_t left = end - now_ms();

		if (s[i] >= 0 && connected(s[i], left > 0 ? (int)left : 0) == 0)
			good++;
		else
			bad++;
	}
	put("connected=%d failed=%d", good, bad);
	answer("+");
	usleep((useconds_t)num(&w[3]) * 1000);
	put("done");
}

static void listener(int argc, struct word *w)
{
	struct sockaddr_storage at;
	socklen_t len = address(&w[0], num(&w[1]), &at);
	int s = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	(void)argc;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(s, (struct sockaddr *)&at, len) || listen(s, 64)) {
		put("%s", errno_word(errno));
		return;
	}
	put("listening");
	answer("+");
	for (int i = 0; i < num(&w[3]); i++) {
		int c = accept4(s, NULL, NULL, SOCK_CLOEXEC);

		if (c < 0)
			continue;
		if (w[2].n)
			send(c, w[2].p, w[2].n, MSG_NOSIGNAL);
		put(i ? " |" : "|");
		for (;;) {
			uint8_t b[4096];
			ssize_t k = recv(c, b, sizeof(b), 0);

			if (k <= 0)
				break;
			put_bytes(b, (size_t)k);
			send(c, b, (size_t)k, MSG_NOSIGNAL);
		}
		close(c);
	}
}

static void shell(int argc, struct word *w)
{
	uid_t uid = (uid_t)num(&w[0]);
	uint8_t b[65536];
	size_t have = 0;
	int p[2], status;
	ssize_t n;

	(void)argc;
	if (pipe(p))
		abort();
	pid_t pid = fork();
	if (pid == 0) {
		dup2(p[1], 1);
		dup2(p[1], 2);
		close(p[0]);
		close(p[1]);
		if (uid) {
			if (setgroups(0, NULL) || setresgid(uid, uid, uid) ||
			    setresuid(uid, uid, uid))
				_exit(124);
			setenv("HOME", "/home/agent", 1);
		}
		execl("/bin/bash", "bash", "-c", (char *)w[1].p, NULL);
		_exit(127);
	}
	close(p[1]);
	while ((n = read(p[0], b + have, sizeof(b) - have)) > 0)
		have += (size_t)n;
	waitpid(pid, &status, 0);
	put("rc=%d out=", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	put_bytes(b, have);
}

static const struct {
	const char *name;
	int words; /* at least */
	void (*fn)(int argc, struct word *w);
} commands[] = {
	{ "talk", 2, talk },         { "udp", 4, udp },       { "frame", 1, frame },
	{ "segments", 2, segments }, { "flows", 4, flows },   { "listen", 4, listener },
	{ "sh", 2, shell },          { "addr", 1, set_addr },
};

static size_t split(char *line, struct word *w)
{
	size_t n = 0;
	uint8_t *to = (uint8_t *)line;

	w[0].p = to;
	for (char *p = line;; p++) {
		if (*p == '\t' || *p == '\0') {
			bool last = *p == '\0';

			w[n].n = (size_t)(to - w[n].p);
			*to++ = '\0';
			if (last || n + 1 == WORDS_MAX)
				return n + 1;
			w[++n].p = to;
		} else if (*p == '\\' && p[1] == 'x' && p[2] && p[3]) {
			char hex[3] = { p[2], p[3], 0 };

			*to++ = (uint8_t)strtoul(hex, NULL, 16);
			p += 3;
		} else {
			*to++ = (uint8_t)*p;
		}
	}
}

int main(void)
{
	static char line[LINE_MAX_BYTES];
	static struct word w[WORDS_MAX];

	signal(SIGCHLD, SIG_IGN);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		pid_t pid = fork();
		if (pid)
			continue;
		signal(SIGCHLD, SIG_DFL);
		signal(SIGPIPE, SIG_IGN);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(0);
		(void)open("/dev/null", O_RDONLY);
		size_t n = split(line, w);
		id = (const char *)w[0].p;
		for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
			if (n >= 2 && !strcmp((const char *)w[1].p, commands[i].name) &&
			    n >= 2 + (size_t)commands[i].words) {
				commands[i].fn((int)n - 2, w + 2);
				answer("");
				_exit(0);
			}
		put("no such command");
		answer("");
		_exit(1);
	}
	return 0;
}
