/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>

/* 1.34 has newer names for what 1.18 must be asked by */
#define CARES_NO_DEPRECATED
#include <ares.h>

#include "base/err.h"
#include "base/mem.h"
#include "event/loop.h"

/*
 * Of one server, twice: c-ares 1.18 takes these when it is made only, which is
 * before resolv.conf is known. lookup.c keeps the whole time that the file says.
 */
enum { TRY_MS = 2000, TRIES = 2, EDNS_BYTES = 1232 };

/* A descriptor of c-ares on the loop. */
struct watch {
	struct resolve *r;
	ares_channel channel;
	struct loop_fd src;
	int fd;
	struct watch *next;
};

struct question {
	resolve_fn fn;
	void *arg;
	char name[HOST_NAME_BYTES];
};

struct resolve {
	struct loop *l;
	ares_channel udp, tcp; /* "options use-vc" cannot be set later, so there are two */
	ares_channel now;
	struct watch *watches;
	struct loop_timer timer;
};

static void set_timer(struct resolve *r);

static void process(struct resolve *r, ares_channel c, int rd, int wr)
{
	ares_process_fd(c, rd < 0 ? ARES_SOCKET_BAD : rd, wr < 0 ? ARES_SOCKET_BAD : wr);
	set_timer(r);
}

static void on_timer(void *arg)
{
	struct resolve *r = arg;

	/* each of them: one may still wait for answers of earlier servers */
	ares_process_fd(r->udp, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	ares_process_fd(r->tcp, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	set_timer(r);
}

static void set_timer(struct resolve *r)
{
	struct timeval max = { .tv_sec = 60 }, a, b;
	struct timeval *t = ares_timeout(r->udp, &max, &a);
	struct timeval *u = ares_timeout(r->tcp, &max, &b);
	uint64_t ms = MIN((uint64_t)t->tv_sec * 1000 + (uint64_t)t->tv_usec / 1000,
	                  (uint64_t)u->tv_sec * 1000 + (uint64_t)u->tv_usec / 1000);

	loop_timer_set(r->l, &r->timer, ms + 1, on_timer, r);
}

static void on_fd(void *arg, uint32_t events)
{
	struct watch *w = arg;
	bool rd = events & (EPOLLIN | EPOLLHUP | EPOLLERR);
	bool wr = events & (EPOLLOUT | EPOLLHUP | EPOLLERR);

	/* it may end in here */
	process(w->r, w->channel, rd ? w->fd : -1, wr ? w->fd : -1);
}

static void on_state(struct resolve *r, ares_channel c, int fd, int rd, int wr)
{
	struct watch **at = &r->watches;
	uint32_t ev = (rd ? (uint32_t)EPOLLIN : 0) | (wr ? (uint32_t)EPOLLOUT : 0);

	while (*at && ((*at)->fd != fd || (*at)->channel != c))
		at = &(*at)->next;
	struct watch *w = *at;
	if (!rd && !wr) {
		if (!w)
			return;
		*at = w->next;
		loop_fd_del(r->l, &w->src);
		free(w);
		return;
	}
	if (w) {
		loop_fd_set(r->l, &w->src, ev);
		return;
	}
	w = xcalloc(1, sizeof(*w));
	*w = (struct watch){ .r = r, .channel = c, .fd = fd, .src = { .fd = -1 } };
	w->next = r->watches;
	r->watches = w;
	/* without memory for it the question times out */
	(void)!loop_fd_add(r->l, &w->src, fd, ev, on_fd, w);
}

static void on_udp_state(void *arg, ares_socket_t fd, int rd, int wr)
{
	struct resolve *r = arg;

	on_state(r, r->udp, fd, rd, wr);
}

static void on_tcp_state(void *arg, ares_socket_t fd, int rd, int wr)
{
	struct resolve *r = arg;

	on_state(r, r->tcp, fd, rd, wr);
}

static int channel_new(struct resolve *r, bool tcp, ares_channel *out, struct err *err)
{
	static char lookups[] = "b"; /* DNS, no file of its own */
	static char nothing[] = "/dev/null";
	struct ares_options o = {
		.flags = ARES_FLAG_NOALIASES | ARES_FLAG_NOSEARCH | ARES_FLAG_EDNS |
		         (tcp ? ARES_FLAG_USEVC : 0),
		.timeout = TRY_MS,
		.tries = TRIES,
		.ednspsz = EDNS_BYTES,
		.lookups = lookups,
		.resolvconf_path = nothing,
		.sock_state_cb = tcp ? on_tcp_state : on_udp_state,
		.sock_state_cb_data = r,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_EDNSPSZ |
	           ARES_OPT_LOOKUPS | ARES_OPT_RESOLVCONF | ARES_OPT_SOCK_STATE_CB |
	           ARES_OPT_NOROTATE | ARES_OPT_DOMAINS;
#ifdef ARES_OPT_QUERY_CACHE
	mask |= ARES_OPT_QUERY_CACHE; /* of 0 s: ours knows what it may open */
#endif
	int r2 = ares_init_options(out, &o, mask);

	if (r2 != ARES_SUCCESS)
		return err_set(err, -EIO, "cannot start the resolver: %s", ares_strerror(r2));
	return 0;
}

int resolve_new(struct resolve **out, struct err *err)
{
	struct resolve *r = xcalloc(1, sizeof(*r));
	int k = ares_library_init(ARES_LIB_INIT_ALL);

	if (k != ARES_SUCCESS) {
		free(r);
		return err_set(err, -EIO, "cannot start the resolver: %s", ares_strerror(k));
	}
	k = channel_new(r, false, &r->udp, err);
	if (k == 0)
		k = channel_new(r, true, &r->tcp, err);
	if (k < 0) {
		resolve_free(r);
		return k;
	}
	r->now = r->udp;
	*out = r;
	return 0;
}

void resolve_free(struct resolve *r)
{
	if (!r)
		return;
	if (r->udp)
		ares_destroy(r->udp);
	if (r->tcp)
		ares_destroy(r->tcp);
	if (r->l)
		loop_timer_del(r->l, &r->timer);
	ares_library_cleanup();
	free(r);
}

void resolve_start(struct resolve *r, struct loop *l)
{
	r->l = l;
}

int resolve_servers(struct resolve *r, const struct resolvconf *c)
{
	struct ares_addr_port_node nodes[RESOLVCONF_SERVERS_MAX] = { 0 };

	/* c-ares refuses other servers while it waits for the old ones */
	ares_cancel(r->udp);
	ares_cancel(r->tcp);
	for (size_t i = 0; i < c->n_servers; i++) {
		struct ares_addr_port_node *n = &nodes[i];

		n->next = i + 1 < c->n_servers ? n + 1 : NULL;
		n->family = AF_INET;
		if (inet_pton(AF_INET, c->servers[i], &n->addr.addr4) == 1)
			continue;
		n->family = AF_INET6;
		int k = inet_pton(AF_INET6, c->servers[i], &n->addr.addr6);
		ASSERT(k == 1); /* resolvconf_parse() has read it */
	}
	r->now = c->use_vc ? r->tcp : r->udp;
	int k = ares_set_servers_ports(r->now, nodes);
	return k == ARES_SUCCESS ? 0 : k == ARES_ENOMEM ? -ENOMEM : -EIO;
}

static void on_answer(void *arg, int status, int timeouts UNUSED, unsigned char *p, int len)
{
	struct question *q = arg;
	struct answer a = { 0 };
	int code = -EIO;

	if (status == ARES_ECANCELLED)
		code = -ECANCELED;
	else if (status == ARES_EDESTRUCTION)
		code = -ECONNABORTED;
	/* whatever it says: a message with an rcode comes with it */
	else if (p && len > 0 && answer_parse(&a, span_of(p, (size_t)len), q->name) == 0)
		code = 0;
	if (code != -ECONNABORTED)
		q->fn(q->arg, code, code == 0 ? &a : NULL);
	free(q);
}

void resolve_ask(struct resolve *r, const char *name, resolve_fn fn, void *arg)
{
	struct question *q = xcalloc(1, sizeof(*q));

	*q = (struct question){ .fn = fn, .arg = arg };
	memcpy(q->name, name, strlen(name) + 1);
	enum { CLASS_IN = 1, TYPE_A = 1 };
	ares_query(r->now, name, CLASS_IN, TYPE_A, on_answer, q);
	set_timer(r);
}
