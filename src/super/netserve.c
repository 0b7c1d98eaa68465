/* SPDX-License-Identifier: Apache-2.0 */
/* netserve.c - the monitor's side of netctl.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/vis.h"
#include "super/netproc_priv.h"

static void drop(struct netproc_client *c)
{
	loop_fd_del(c->n->o.l, &c->src);
	auto_close_(&c->fd);
	*c = (struct netproc_client){ .n = c->n, .fd = -1, .src = { .fd = -1 } };
}

static void say(struct netproc_client *c, int code, const char *text, int fd)
{
	struct netctl_msg a = { .type = NETCTL_ANSWER,
		                .code = code,
		                .mode = (uint8_t)c->n->spec.mode };

	(void)snprintf(a.text, sizeof(a.text), "%s", text);
	/* one who asks and does not read loses the connection */
	if (fd_send(c->fd, &a, sizeof(a), &fd, fd >= 0 ? 1 : 0) < 0)
		drop(c);
}

static void list(struct netproc_client *c)
{
	AUTO_CLOSE int fd = net_policy_fd(c->n->policy);

	if (fd < 0)
		say(c, fd, "cannot hand out the policy", -1);
	else
		say(c, 0, "", fd);
}

static void change(struct netproc_client *c, const struct netctl_msg *m, struct netproc_asked *who)
{
	struct host_pattern h;
	const char *why = "";
	char text[NETCTL_TEXT_BYTES];

	if (host_pattern_parse(&h, span_str(m->text), &why) < 0) {
		(void)snprintf(text, sizeof(text), "'%.300s' is no host pattern: %s", m->text, why);
		say(c, -EINVAL, text, -1);
		return;
	}
	(void)snprintf(who->text, sizeof(who->text), "%s", m->text);
	struct relayctl q = { .type = m->type == NETCTL_ALLOW ? RELAYCTL_ALLOW : RELAYCTL_DENY,
		              .pattern = span_str(m->text) };
	int r = netproc_ask(c->n, &q, NULL, 0, who);
	if (r < 0)
		say(c, r, "", -1);
}

static void callback(struct netproc_client *c, const struct netctl_msg *m, const int *fds,
                     size_t n_fds, const struct netproc_asked *who)
{
	struct relayctl q = { .type = RELAYCTL_LISTEN,
		              .listen = { .guest_port = m->port,
		                          .once = m->once,
		                          .deadline_s = m->deadline_s,
		                          .label = span_str(m->text) } };
	int r = n_fds ? netproc_ask(c->n, &q, fds, n_fds, who) : -EINVAL;

	if (r < 0)
		say(c, r, r == -EINVAL ? "no such port, socket or label" : "", -1);
}

static void on_client(void *arg, uint32_t events UNUSED)
{
	struct netproc_client *c = arg;
	struct netproc *n = c->n;
	int fds[NETCTL_FDS_MAX];
	size_t n_fds = 0;
	struct netctl_msg m;
	ssize_t k = fd_recv(c->fd, &m, sizeof(m), fds, ARRAY_LEN(fds), &n_fds);

	if (k == -EAGAIN)
		return;
	if (k != (ssize_t)sizeof(m) || (n_fds && m.type != NETCTL_CALLBACK)) {
		drop(c); /* the end, or what is no question */
	} else {
		struct netproc_asked who = { .client = (int)(c - n->clients),
			                     .client_serial = c->serial,
			                     .type = m.type };
		m.text[sizeof(m.text) - 1] = '\0';
		if (n->closed)
			say(c, -ENETDOWN, "the sandbox's network is closed", -1);
		else if (m.type == NETCTL_LIST)
			list(c);
		else if (m.type == NETCTL_ALLOW || m.type == NETCTL_DENY)
			change(c, &m, &who);
		else if (m.type == NETCTL_CALLBACK)
			callback(c, &m, fds, n_fds, &who);
		else
			drop(c);
	}
	while (n_fds > 0)
		(void)close(fds[--n_fds]); /* the relay has its own */
}

static void on_listen(void *arg, uint32_t events UNUSED)
{
	struct netproc *n = arg;
	struct netproc_client *c = NULL;
	struct ucred who;
	socklen_t len = sizeof(who);
	AUTO_CLOSE int fd = accept4(n->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	for (size_t i = 0; i < NETPROC_CLIENTS_MAX && !c; i++) {
		if (n->clients[i].serial == 0)
			c = &n->clients[i];
	}
	/* the folder is ours alone already; its mode can be changed, a peer's uid not */
	if (fd < 0 || !c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ||
	    who.uid != geteuid())
		return;
	*c = (struct netproc_client){ .n = n, .fd = fd, .src = { .fd = -1 } };
	if (loop_fd_add(n->o.l, &c->src, fd, EPOLLIN, on_client, c) < 0)
		return;
	c->serial = ++n->serial;
	(void)take_fd(&fd);
}

void netserve_answer(struct netproc *n, const struct netproc_asked *who, int code, struct span text)
{
	struct netproc_client *c = &n->clients[who->client];
	char shown[NETCTL_TEXT_BYTES];

	/* not whoever has its place by now */
	if (c->serial && c->serial == who->client_serial)
		say(c, code, vis_str(shown, sizeof(shown), text), -1);
}

void netserve_closed(struct netproc *n)
{
	for (size_t i = 0; i < NETPROC_ASKED_MAX; i++) {
		struct netproc_asked was = n->asked[i];
		n->asked[i] = (struct netproc_asked){ 0 };
		if (was.number && was.client >= 0)
			netserve_answer(n, &was, -ENETDOWN,
			                span_str("the sandbox's network is closed"));
	}
}

int netserve_start(struct netproc *n, struct err *err)
{
	struct sockaddr_un a;

	for (size_t i = 0; i < NETPROC_CLIENTS_MAX; i++)
		n->clients[i] = (struct netproc_client){ .n = n, .fd = -1, .src = { .fd = -1 } };
	n->run_dir = net_runtime_dir(true, err);
	if (n->run_dir < 0)
		return n->run_dir;
	int r = netctl_address(n->run_dir, n->id, &a);
	if (r < 0)
		return err_code(err, r, "'%s' is no name for a socket", n->id);
	/* we hold the sandbox's lock: whoever had this name is dead */
	(void)unlink(a.sun_path);
	n->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (n->listen_fd < 0 || bind(n->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(n->listen_fd, NETPROC_CLIENTS_MAX) < 0)
		return err_errno(err, "cannot listen in the folder of the sockets");
	r = loop_fd_add(n->o.l, &n->listen_src, n->listen_fd, EPOLLIN, on_listen, n);
	return r < 0 ? err_code(err, r, "cannot watch the control socket") : 0;
}

void netserve_end(struct netproc *n)
{
	struct sockaddr_un a;

	if (n->listen_fd < 0)
		return;
	loop_fd_del(n->o.l, &n->listen_src);
	auto_close_(&n->listen_fd);
	n->listen_fd = -1;
	if (netctl_address(n->run_dir, n->id, &a) == 0)
		(void)unlink(a.sun_path);
	for (size_t i = 0; i < NETPROC_CLIENTS_MAX; i++) {
		if (n->clients[i].serial)
			drop(&n->clients[i]);
	}
}
