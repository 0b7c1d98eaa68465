/* SPDX-License-Identifier: Apache-2.0 */
#include "net/switch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/ip.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/loop.h"
#include "net/packet.h"
#include "net/swmap.h"
#include "net/swmsg.h"

enum {
	BATCH = 64,
	NOTES_MAX = 64 * 1024, /* bytes of notes that a port has not taken yet */
	NOTE_HEAD = 2,
	NOTE_MAX = 128,
};

struct port {
	struct swtch *s;
	struct loop_fd src;
	struct loop_timer hello;
	int fd;        /* -1: free */
	uint32_t addr; /* 0: it has not said HELLO */
	char name[SWMSG_NAME_MAX + 1];
	struct buf notes; /* comings and goings, each behind its length of u16 */
	uint64_t passed, lost, refused;
};

struct swtch {
	struct switch_opts o;
	struct loop *loop;
	struct loop_fd src;
	struct loop_timer alone;
	struct swmap *map;
	struct port ports[SWITCH_PORTS_MAX];
	size_t n_ports, n_joined;
	int16_t by_addr[65536]; /* port + 1 of the address's last 16 bits */
};

static void map_save(struct swtch *s)
{
	AUTO_BUF struct buf b = { 0 };

	if (s->o.map < 0)
		return;
	/* in place: a file cut short by a crash is corrupt, and begun again */
	int r = swmap_put(s->map, &b);
	if (r == 0)
		r = fd_pwrite_all(s->o.map, b.p, b.len, 0);
	if (r == 0 && (ftruncate(s->o.map, (off_t)b.len) < 0 || fdatasync(s->o.map) < 0))
		r = -errno;
	if (r < 0)
		log_warn("addresses are not kept: %s", strerror(-r));
}

static void map_load(struct swtch *s)
{
	AUTO_FREE char *text = NULL;
	size_t len = 0;

	if (s->o.map < 0)
		return;
	int r = fd_read_file(s->o.map, SWMAP_TEXT_MAX, &text, &len);
	if (r == 0 && len == 0)
		return; /* a new one */
	if (r == 0)
		r = swmap_parse(s->map, span_of(text, len));
	if (r < 0)
		log_warn("the list of addresses is not readable, and begun again: %s",
		         strerror(-r));
}

/* ---- ports -------------------------------------------------------------- */

static void port_close(struct port *p);

static struct port *port_of(struct swtch *s, uint32_t addr)
{
	int n = addr >= SWMAP_FIRST && addr <= SWMAP_LAST ? s->by_addr[addr & 0xffff] : 0;

	return n ? &s->ports[n - 1] : NULL;
}

/* Write what waits; a port that is that far behind is none. */
static void notes_flush(struct port *p)
{
	while (p->notes.len) {
		size_t n = get_be16(p->notes.p);
		ssize_t k = send(p->fd, p->notes.p + NOTE_HEAD, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (k < 0 && errno == EAGAIN)
			break;
		if (k < 0) {
			port_close(p);
			return;
		}
		buf_consume(&p->notes, NOTE_HEAD + n);
	}
	loop_fd_set(p->s->loop, &p->src, EPOLLIN | (p->notes.len ? EPOLLOUT : 0U));
}

static void note(struct port *p, const struct swmsg *m)
{
	uint8_t b[NOTE_HEAD + NOTE_MAX];
	size_t n = swmsg_put(b + NOTE_HEAD, NOTE_MAX, m);

	ASSERT(n > 0);
	put_be16(b, (unsigned)n);
	if (p->notes.len + NOTE_HEAD + n > NOTES_MAX || buf_put(&p->notes, b, NOTE_HEAD + n) < 0) {
		log_warn("sandbox '%s' takes no notes and leaves the shared network", p->name);
		port_close(p);
		return;
	}
	notes_flush(p);
}

static void tell_others(struct swtch *s, const struct port *about, uint8_t type)
{
	struct swmsg m = { .type = type, .addr = about->addr, .name = span_str(about->name) };
	uint32_t addr = about->addr;

	for (size_t i = 0; i < SWITCH_PORTS_MAX; i++) {
		struct port *p = &s->ports[i];

		if (p->fd >= 0 && p->addr && p->addr != addr)
			note(p, &m);
	}
}

static void maybe_stop(struct swtch *s)
{
	if (s->n_ports == 0 && s->alone.when_ns == 0)
		loop_stop(s->loop, 0);
}

static void port_close(struct port *p)
{
	struct swtch *s = p->s;

	if (p->fd < 0)
		return;
	loop_fd_del(s->loop, &p->src);
	loop_timer_del(s->loop, &p->hello);
	auto_close_(&p->fd);
	buf_fini(&p->notes);
	s->n_ports--;
	if (p->addr) {
		struct port gone = *p;

		log_info("sandbox '%s' left passed=%llu lost=%llu refused=%llu", p->name,
		         (unsigned long long)p->passed, (unsigned long long)p->lost,
		         (unsigned long long)p->refused);
		s->by_addr[p->addr & 0xffff] = 0;
		s->n_joined--;
		swmap_release(s->map, span_str(p->name));
		p->addr = 0;
		tell_others(s, &gone, SWMSG_PEER_DOWN);
	}
	maybe_stop(s);
}

/* The one message before a port is one: answered, and the connection ends. */
static void say_last(struct port *p, const struct swmsg *m)
{
	uint8_t b[NOTE_MAX];
	size_t n = swmsg_put(b, sizeof(b), m);

	ASSERT(n > 0);
	(void)!send(p->fd, b, n, MSG_DONTWAIT | MSG_NOSIGNAL); /* it does not read: its loss */
	port_close(p);
}

static void refuse(struct port *p, enum swmsg_why why)
{
	say_last(p, &(struct swmsg){ .type = SWMSG_REFUSED, .why = (uint8_t)why });
}

static struct port *port_by_name(struct swtch *s, struct span name)
{
	for (size_t i = 0; i < SWITCH_PORTS_MAX; i++) {
		struct port *p = &s->ports[i];

		if (p->fd >= 0 && p->addr && span_eq(span_str(p->name), name))
			return p;
	}
	return NULL;
}

static void on_forget(struct port *p, const struct swmsg *m)
{
	struct swmsg answer = { .type = SWMSG_WELCOME };

	if (port_by_name(p->s, m->name)) {
		refuse(p, SWMSG_NAME_TAKEN);
		return;
	}
	if (swmap_remove(p->s->map, m->name, &answer.addr) == 0)
		map_save(p->s);
	say_last(p, &answer);
}

static void on_hello(struct port *p, const struct swmsg *m)
{
	struct swmsg answer = { .type = SWMSG_WELCOME };
	struct swtch *s = p->s;
	char a[IP4_STR_BYTES];

	if (port_by_name(s, m->name)) {
		refuse(p, SWMSG_NAME_TAKEN);
		return;
	}
	if (swmap_assign(s->map, m->name, m->addr, m->keep, &answer.addr) < 0) {
		refuse(p, SWMSG_EXHAUSTED);
		return;
	}
	if (m->keep)
		map_save(s);
	loop_timer_del(s->loop, &p->hello);
	loop_timer_del(s->loop, &s->alone);
	p->addr = answer.addr;
	memcpy(p->name, m->name.p, m->name.len); /* swmsg_name_ok(): it fits */
	p->name[m->name.len] = '\0';
	s->by_addr[p->addr & 0xffff] = (int16_t)(p - s->ports + 1);
	s->n_joined++;
	log_info("sandbox '%s' came address=%s", p->name, ip4_str(a, p->addr));
	note(p, &answer);
	for (size_t i = 0; i < SWITCH_PORTS_MAX && p->fd >= 0; i++) {
		struct port *k = &s->ports[i];
		struct swmsg up = { .type = SWMSG_PEER_UP,
			            .addr = k->addr,
			            .name = span_str(k->name) };

		if (k != p && k->fd >= 0 && k->addr)
			note(p, &up);
	}
	if (p->fd >= 0)
		tell_others(s, p, SWMSG_PEER_UP);
}

static void on_packet(struct port *p, uint8_t *msg, size_t len)
{
	struct packet k;

	if (packet_ip(&k, msg + 1, len - 1) != 0 || k.len != len - 1 || k.src != p->addr ||
	    (k.proto != PROTO_TCP && k.proto != PROTO_UDP)) {
		p->refused++;
		return;
	}
	struct port *to = port_of(p->s, k.dst);
	if (!to || to == p) {
		p->refused++;
		return;
	}
	if (send(to->fd, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		to->lost++; /* full; when it is gone, its own event says so */
	else
		to->passed++;
}

/* A port's message; the port may be gone afterwards. */
static void on_message(struct port *p, uint8_t *b, size_t len)
{
	struct swmsg m;

	if (swmsg_parse(&m, span_of(b, len)) < 0) {
		log_warn("a port does not keep to the protocol and is closed name='%s'", p->name);
		port_close(p);
	} else if (p->addr && m.type == SWMSG_PACKET) {
		on_packet(p, b, len);
	} else if (!p->addr && m.type == SWMSG_HELLO) {
		on_hello(p, &m);
	} else if (!p->addr && m.type == SWMSG_FORGET) {
		on_forget(p, &m);
	} else {
		log_warn("a port sends message %u, which is not its turn name='%s'", m.type,
		         p->name);
		port_close(p);
	}
}

static void port_ready(void *arg, uint32_t events)
{
	uint8_t b[SWMSG_BYTES_MAX];
	struct port *p = arg;

	if (events & EPOLLOUT)
		notes_flush(p);
	for (int i = 0; i < BATCH && p->fd >= 0; i++) {
		ssize_t k = fd_recv(p->fd, b, sizeof(b), NULL, 0, NULL);

		if (k == -EAGAIN)
			return;
		if (k <= 0) {
			port_close(p);
			return;
		}
		on_message(p, b, (size_t)k);
	}
}

static void hello_late(void *arg)
{
	port_close(arg);
}

static void someone_came(void *arg, uint32_t events UNUSED)
{
	struct swtch *s = arg;
	AUTO_CLOSE int fd = accept4(s->o.listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct port *p = NULL;

	if (fd < 0)
		return; /* gone again */
	for (size_t i = 0; i < SWITCH_PORTS_MAX && !p; i++) {
		if (s->ports[i].fd < 0)
			p = &s->ports[i];
	}
	if (!p) {
		struct swmsg m = { .type = SWMSG_REFUSED, .why = SWMSG_FULL };
		uint8_t b[NOTE_MAX];
		size_t n = swmsg_put(b, sizeof(b), &m);

		(void)!send(fd, b, n, MSG_DONTWAIT | MSG_NOSIGNAL); /* as above */
		return;
	}
	*p = (struct port){ .s = s, .fd = -1, .src = { .fd = -1 } };
	if (loop_fd_add(s->loop, &p->src, fd, EPOLLIN, port_ready, p) < 0)
		return;
	p->fd = take_fd(&fd);
	s->n_ports++;
	loop_timer_set(s->loop, &p->hello, SWITCH_HELLO_MS, hello_late, p);
}

static void nobody_came(void *arg)
{
	maybe_stop(arg);
}

struct swtch *switch_new(const struct switch_opts *o)
{
	struct swtch *s = xcalloc(1, sizeof(*s));

	s->o = *o;
	s->src.fd = -1;
	s->map = swmap_new();
	for (size_t i = 0; i < SWITCH_PORTS_MAX; i++)
		s->ports[i] = (struct port){ .s = s, .fd = -1, .src = { .fd = -1 } };
	map_load(s);
	return s;
}

void switch_free(struct swtch *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < SWITCH_PORTS_MAX; i++) {
		auto_close_(&s->ports[i].fd);
		buf_fini(&s->ports[i].notes);
	}
	loop_free(s->loop);
	swmap_free(s->map);
	free(s);
}

int switch_run(struct swtch *s)
{
	s->loop = loop_new();
	if (!s->loop)
		return -errno;
	int r = loop_fd_add(s->loop, &s->src, s->o.listen, EPOLLIN, someone_came, s);
	if (r < 0)
		return r;
	loop_timer_set(s->loop, &s->alone, SWITCH_ALONE_MS, nobody_came, s);
	return loop_run(s->loop);
}
