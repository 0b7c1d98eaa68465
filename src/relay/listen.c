/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.c - published ports and callbacks: who connects is handed to the worker,
 * which brings it into the guest. Nothing of the connection is read here.
 */
#include "relay/relay_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/relayctl.h"

enum { ACCEPTS_A_TURN = 16 };

struct listener {
	struct relay *r;
	uint16_t guest_port;
	bool once;
	char label[RELAYCTL_LABEL_MAX + 1];
	int fds[RELAYCTL_LISTEN_FDS_MAX];
	struct loop_fd srcs[RELAYCTL_LISTEN_FDS_MAX];
	size_t n;
	struct loop_timer deadline;
	struct listener *next, **prev;
};

static void tell(const struct listener *s, const char *verdict, const char *reason)
{
	struct event e = { .ev = "port",
		           .verdict = verdict,
		           .reason = reason,
		           .name = s->label,
		           .guest_port = s->guest_port };

	events_write(s->r->events, &e);
}

static void drop(struct listener *s)
{
	for (size_t i = 0; i < s->n; i++) {
		loop_fd_del(s->r->l, &s->srcs[i]);
		/* for all who hold it: who opened the port has it too, for a second start */
		(void)shutdown(s->fds[i], SHUT_RDWR);
		auto_close_(&s->fds[i]);
	}
	loop_timer_del(s->r->l, &s->deadline);
	*s->prev = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->r->n_listeners--;
	free(s);
}

static void on_deadline(void *arg)
{
	struct listener *s = arg;

	tell(s, NULL, "deadline");
	drop(s);
}

/* One connection of any of its sockets. Return: false when nobody waits. */
static bool accept_one(struct listener *s)
{
	uint8_t b[32];
	struct relayctl m = { .type = RELAYCTL_FORWARD, .guest_port = s->guest_port };
	size_t n = relayctl_put(b, sizeof(b), &m);
	AUTO_CLOSE int fd = -1;

	for (size_t i = 0; i < s->n && fd < 0; i++)
		fd = accept4(s->fds[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return false;
	int k = fd_send(s->r->o->worker, b, n, &fd, 1);
	if (k < 0)
		tell(s, "refused", "limit"); /* the worker has its hands full: closed */
	else
		tell(s, "allowed", "connect");
	return true;
}

static void on_connection(void *arg, uint32_t events UNUSED)
{
	struct listener *s = arg;

	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		if (!accept_one(s))
			return;
		if (s->once) {
			tell(s, NULL, "used");
			drop(s);
			return;
		}
	}
}

static bool listens(int fd)
{
	int on = 0;
	socklen_t len = sizeof(on);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on;
}

int listen_add(struct relay *r, const struct relayctl *m, const int *fds, size_t n,
               const char **out_why)
{
	struct listener *s = xcalloc(1, sizeof(*s));
	int k = 0;

	*s = (struct listener){ .r = r,
		                .guest_port = m->listen.guest_port,
		                .once = m->listen.once,
		                .next = r->listeners,
		                .prev = &r->listeners };
	if (m->listen.label.len)
		memcpy(s->label, m->listen.label.p, m->listen.label.len);
	if (s->next)
		s->next->prev = &s->next;
	r->listeners = s;
	r->n_listeners++;
	ASSERT(n <= RELAYCTL_LISTEN_FDS_MAX);
	for (s->n = 0; s->n < n; s->n++) {
		s->fds[s->n] = fds[s->n];
		s->srcs[s->n].fd = -1;
	}
	*out_why = "no listening socket came along";
	if (n == 0)
		k = -EINVAL;
	for (size_t i = 0; i < n && k == 0; i++)
		k = listens(fds[i]) ? 0 : -EINVAL;
	if (k == 0 && (r->o->worker < 0 || r->n_listeners > RELAY_LISTENERS_MAX)) {
		*out_why = "too many published ports";
		k = -E2BIG;
	}
	for (size_t i = 0; i < n && k == 0; i++) {
		*out_why = "no descriptors left";
		k = fd_set_nonblock(fds[i], true);
		if (k == 0)
			k = loop_fd_add(r->l, &s->srcs[i], fds[i], EPOLLIN, on_connection, s);
	}
	if (k < 0) {
		drop(s);
		return k;
	}
	if (m->listen.deadline_s)
		loop_timer_set(r->l, &s->deadline, (uint64_t)m->listen.deadline_s * 1000,
		               on_deadline, s);
	tell(s, "allowed", "listen");
	return 0;
}

void listen_fini(struct relay *r)
{
	while (r->listeners)
		drop(r->listeners);
}
