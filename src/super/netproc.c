/* SPDX-License-Identifier: Apache-2.0 */
#include "super/netproc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/vis.h"
#include "super/netproc_priv.h"
#include "super/spawn.h"

enum {
	SETTLE_MS = 50,      /* net and relay end with each other: which was the first? */
	QEMU_GONE_MS = 2000, /* between their goodbye and QEMU's own end */
	LATE_MS = 1000,      /* for a process of a closed network to end by itself */
	FLUSH_MS = 1000,     /* for the relay to write its last events */
};

static void close_pair(int sv[2])
{
	auto_close_(&sv[0]);
	auto_close_(&sv[1]);
	sv[0] = sv[1] = -1;
}

/* ---- the end ------------------------------------------------------------ */

static void on_late(void *arg)
{
	struct netproc *n = arg;

	child_end(&n->net, 0);
	child_end(&n->relay, 0);
	child_end(&n->keeper, 0);
}

/* However it ended: nothing of it goes on. */
static void close_network(struct netproc *n)
{
	n->closed = true;
	loop_timer_del(n->o.l, &n->quiet);
	loop_fd_del(n->o.l, &n->control_src);
	auto_close_(&n->control[0]); /* the relay's reason to end, if it has no other */
	n->control[0] = -1;
	netserve_closed(n);
	child_end(&n->keeper, 0);
	loop_timer_set(n->o.l, &n->late, LATE_MS, on_late, n);
}

static void network_gone(struct netproc *n, const struct err *why)
{
	if (n->closed)
		return;
	close_network(n);
	if (n->expected)
		return;
	log_error("the network is closed: %s", why->text);
	n->o.closed(n->o.arg, why);
}

static void on_quiet(void *arg)
{
	struct netproc *n = arg;
	struct err e = { 0 };

	err_set(&e, -EPIPE, "cloche-net lost its machine");
	network_gone(n, &e);
}

static bool has_ended(const struct child *c)
{
	return c->l && !c->running;
}

/* A signal tells most, then a status; both end with 0 when QEMU did, of which we should hear. */
static void on_settled(void *arg)
{
	struct netproc *n = arg;
	struct child *both[] = { &n->relay, &n->net }, *why = NULL;
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(both); i++) {
		struct child *c = both[i];
		if (has_ended(c) && c->status &&
		    (!why || (WIFSIGNALED(c->status) && !WIFSIGNALED(why->status))))
			why = c;
	}
	if (!why) {
		loop_timer_set(n->o.l, &n->quiet, QEMU_GONE_MS, on_quiet, n);
		return;
	}
	child_describe(why, &e);
	network_gone(n, &e);
}

static void start_keeper(struct netproc *n);

static void on_child(void *arg, struct child *c)
{
	struct netproc *n = arg;
	struct err e = { 0 };

	if (n->closed)
		return;
	child_describe(c, &e);
	if (c == &n->net || c == &n->relay) {
		if (n->quiet.when_ns == 0)
			loop_timer_set(n->o.l, &n->quiet, SETTLE_MS, on_settled, n);
	} else if (c == &n->keeper && !n->expected) {
		log_warn("%s", e.text);
		if (!n->keeper_again) {
			n->keeper_again = true;
			start_keeper(n);
			return;
		}
		n->o.note(n->o.arg, LOG_WARN,
		          "cloche-keeper ended twice: changes of the host's resolver are not "
		          "followed any more");
	} else if (c == &n->sw) {
		log_info("%s", e.text); /* cloche-net lost its peers, and says so */
	}
}

/* ---- the relay ---------------------------------------------------------- */

int netproc_ask(struct netproc *n, struct relayctl *m, const int *fds, size_t n_fds,
                const struct netproc_asked *who)
{
	static uint8_t b[RELAYCTL_BYTES_MAX];
	struct netproc_asked *a = NULL;

	if (n->closed || n->control[0] < 0)
		return -ENETDOWN;
	for (size_t i = 0; i < NETPROC_ASKED_MAX && !a; i++) {
		if (n->asked[i].number == 0)
			a = &n->asked[i];
	}
	if (!a)
		return -EBUSY;
	m->number = n->number + 1;
	size_t len = relayctl_put(b, sizeof(b), m);
	if (len == 0)
		return -EINVAL;
	int r = fd_send(n->control[0], b, len, fds, n_fds);
	if (r < 0)
		return r;
	n->number++;
	*a = *who;
	a->number = n->number;
	return 0;
}

/* As the relay did it: the later word counts. */
static void apply(struct netproc *n, const struct netproc_asked *a)
{
	struct egress_rule rule = { .origin = EGRESS_FROM_LIVE };
	const char *why = NULL;
	int r = host_pattern_parse(&rule.host, span_str(a->text), &why);

	if (r == 0 && a->type == NETCTL_ALLOW) {
		r = egress_add(n->policy, &rule);
		if (r == 0)
			(void)egress_undeny(n->policy, &rule.host);
	} else if (r == 0) {
		r = egress_deny_from(n->policy, &rule.host, EGRESS_FROM_LIVE);
	}
	if (r < 0)
		log_error("the monitor's copy of the policy is not the relay's: %s", strerror(-r));
}

static void note_lost(struct netproc *n, struct span why)
{
	char line[400], seen[200];

	(void)snprintf(
		line, sizeof(line),
		"the network's log cannot be written (%s): it is not complete, its rules hold",
		vis_str(seen, sizeof(seen), why));
	n->o.note(n->o.arg, LOG_WARN, line);
}

static void on_control(void *arg, uint32_t events UNUSED)
{
	static uint8_t b[RELAYCTL_BYTES_MAX];
	struct netproc *n = arg;
	struct netproc_asked *a = NULL;
	struct relayctl m;
	struct err e = { 0 };
	ssize_t k = fd_recv(n->control[0], b, sizeof(b), NULL, 0, NULL);

	if (k == -EAGAIN)
		return;
	if (k == 0) { /* its pidfd says the rest */
		loop_fd_del(n->o.l, &n->control_src);
		return;
	}
	bool parsed = k > 0 && relayctl_parse(&m, span_of(b, (size_t)k)) == 0;
	if (parsed && m.type == RELAYCTL_LOST && !n->log_lost) {
		n->log_lost = true;
		note_lost(n, m.text);
		return;
	}
	bool ok = parsed && (m.type == RELAYCTL_OK || m.type == RELAYCTL_ERR);
	for (size_t i = 0; ok && i < NETPROC_ASKED_MAX && !a; i++) {
		if (n->asked[i].number && n->asked[i].number == m.number)
			a = &n->asked[i];
	}
	if (!a) {
		err_set(&e, -EPROTO, "cloche-relay broke its protocol");
		network_gone(n, &e);
		child_end(&n->relay, 0);
		return;
	}
	struct netproc_asked was = *a;
	*a = (struct netproc_asked){ 0 };
	int code = m.type == RELAYCTL_OK ? 0 : -EINVAL;
	struct span text = code ? m.text : (struct span){ 0 };
	if (code == 0 && (was.type == NETCTL_ALLOW || was.type == NETCTL_DENY))
		apply(n, &was);
	if (was.client >= 0) {
		netserve_answer(n, &was, code, text);
	} else if (code < 0) {
		char line[400], why[300];
		(void)snprintf(line, sizeof(line), "a port of the sandbox is not published: %s",
		               vis_str(why, sizeof(why), text));
		n->o.note(n->o.arg, LOG_WARN, line);
	}
}

void netproc_open_ports(struct netproc *n)
{
	for (size_t i = 0; i < n->spec.n_ports; i++) {
		struct net_port *p = &n->spec.ports[i];
		struct relayctl m = { .type = RELAYCTL_LISTEN,
			              .listen = { .guest_port = p->guest_port,
			                          .once = p->once,
			                          .deadline_s = p->deadline_s,
			                          .label = span_str(p->label ? p->label : "") } };
		const struct netproc_asked us = { .client = -1, .type = NETCTL_CALLBACK };
		int r = netproc_ask(n, &m, p->fds, p->n_fds, &us);
		if (r < 0 && !n->closed)
			log_error("cannot publish port %u: %s", p->guest_port, strerror(-r));
		for (size_t k = 0; k < p->n_fds; k++) {
			(void)close(p->fds[k]); /* the relay's alone: it closes a used one */
			p->fds[k] = -1;
		}
		p->n_fds = 0;
	}
	n->spec.n_ports = 0;
}

/* ---- start -------------------------------------------------------------- */

static int make_pair(int type, int sv[2], struct err *err)
{
	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sv) < 0)
		return err_errno(err, "cannot create a socket pair");
	return 0;
}

/* One label of [a-z0-9-] of a sandbox's id. */
static void make_name(struct netproc *n)
{
	const char *from = n->spec.name ? n->spec.name : n->id;
	size_t k = 0;

	for (; *from && k + 1 < sizeof(n->name); from++) {
		char c = *from >= 'A' && *from <= 'Z' ? (char)(*from - 'A' + 'a') : *from;
		bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
		if (ok || (k > 0 && n->name[k - 1] != '-'))
			n->name[k++] = ok ? c : '-';
	}
	while (k > 0 && n->name[k - 1] == '-')
		k--;
	n->name[k] = '\0';
}

int netproc_new(struct netproc **out, const struct netproc_opts *o, struct err *err)
{
	struct netproc *n = xcalloc(1, sizeof(*n));
	int r = 0;

	*n = (struct netproc){ .o = *o,
		               .spec = *o->spec,
		               .frames = { -1, -1 },
		               .worker = { -1, -1 },
		               .flows = { -1, -1 },
		               .keep = { -1, -1 },
		               .control = { -1, -1 },
		               .control_src = { .fd = -1 },
		               .listen_src = { .fd = -1 },
		               .switch_fd = -1,
		               .run_dir = -1,
		               .listen_fd = -1 };
	child_init(&n->net, "cloche-net");
	child_init(&n->relay, "cloche-relay");
	child_init(&n->keeper, "cloche-keeper");
	child_init(&n->sw, "cloche-switch");
	(void)snprintf(n->id, sizeof(n->id), "%s", o->id);
	make_name(n);
	if (n->spec.mode == NET_OFFLINE)
		n->policy = egress_new(EGRESS_LOCKED);
	else
		r = net_policy_read(n->spec.policy_fd, &n->policy);
	if (r < 0)
		err_code(err, r, "cannot read the network's policy");
	if (r == 0 && n->spec.mode != NET_OFFLINE)
		r = make_pair(SOCK_STREAM, n->frames, err);
	if (r == 0)
		r = make_pair(SOCK_SEQPACKET, n->worker, err);
	if (r == 0)
		r = make_pair(SOCK_SEQPACKET, n->flows, err);
	if (r == 0)
		r = make_pair(SOCK_SEQPACKET, n->keep, err);
	if (r == 0)
		r = make_pair(SOCK_SEQPACKET, n->control, err);
	if (r == 0 && n->spec.mode == NET_ISOLATED)
		n->address = NET_GUEST;
	if (r == 0 && n->spec.mode == NET_SHARED)
		r = netswitch_join(n, &n->switch_fd, &n->address, err);
	if (r < 0) {
		netproc_free(n);
		return r;
	}
	*out = n;
	return 0;
}

int netproc_qemu_fd(const struct netproc *n)
{
	return n->frames[0];
}

int netproc_worker_fd(const struct netproc *n)
{
	return n->worker[0];
}

uint32_t netproc_address(const struct netproc *n)
{
	return n->address;
}

void netproc_mac(const struct netproc *n, uint8_t out[6])
{
	const uint8_t mac[6] = {
		0x02, 0xc1, 0x0c, 0x57, (uint8_t)(n->address >> 8), (uint8_t)n->address,
	};

	memcpy(out, mac, sizeof(mac));
}

static int watch(struct netproc *n, struct child *c, int spawned, struct err *err)
{
	return spawned < 0 ? spawned : child_watch(c, n->o.l, on_child, n, err);
}

static int start_net(struct netproc *n, struct err *err)
{
	uint8_t mac[6];
	const struct ip4_net *privates;

	netproc_mac(n, mac);
	struct spawn_net s = {
		.name = n->id,
		.frames_fd = n->frames[1],
		.relay_fd = n->flows[0],
		.switch_fd = n->switch_fd,
		.log_fd = n->o.log_fd,
		.address = n->address,
		.mac = mac,
		.profile = egress_profile_name(egress_profile_of(n->policy)),
		.search = n->spec.n_search ? n->spec.search[0] : NULL,
		.n_privates = egress_privates(n->policy, &privates),
		.uid = n->o.uid,
	};
	s.privates = privates;
	return watch(n, &n->net, spawn_net(&n->net.p, &n->net.err_fd, &s, err), err);
}

static int start_relay(struct netproc *n, struct err *err)
{
	const char *path = n->spec.events_path ? n->spec.events_path : "/dev/null";
	bool offline = n->spec.mode == NET_OFFLINE;
	AUTO_CLOSE int events =
		open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);

	if (events < 0)
		return err_errno(err, "cannot write the network's events to '%s'", path);
	AUTO_CLOSE int own = offline ? net_policy_fd(n->policy) : -1;
	if (offline && own < 0)
		return err_code(err, own, "cannot make a policy");
	struct spawn_relay s = {
		.net_fd = n->flows[1],
		.control_fd = n->control[1],
		.keeper_fd = offline ? -1 : n->keep[1],
		.worker_fd = n->worker[1],
		.policy_fd = offline ? own : n->spec.policy_fd,
		.events_fd = events,
		.log_fd = n->o.log_fd,
		.uid = n->o.uid,
	};
	return watch(n, &n->relay, spawn_relay(&n->relay.p, &n->relay.err_fd, &s, err), err);
}

/* Without it the network works with the resolver as it was. */
static void start_keeper(struct netproc *n)
{
	struct spawn_keeper s = { .relay_fd = n->keep[0], .log_fd = n->o.log_fd, .uid = n->o.uid };
	struct err e = { 0 };

	child_end(&n->keeper, 0); /* what is left of one before */
	child_init(&n->keeper, "cloche-keeper");
	if (watch(n, &n->keeper, spawn_keeper(&n->keeper.p, &n->keeper.err_fd, &s, &e), &e) < 0)
		log_error("%s", e.text);
}

int netproc_start(struct netproc *n, struct err *err)
{
	int r = start_relay(n, err);

	if (r == 0 && n->spec.mode != NET_OFFLINE) {
		r = start_net(n, err);
		if (r == 0)
			start_keeper(n);
		if (r == 0 && !n->keeper.running)
			r = err_set(err, -EIO, "cannot start cloche-keeper");
		/* an end that is open here, too, would hide the end of a process */
		auto_close_(&n->flows[0]);
	}
	/* offline the other end is ours: the relay serves ports only */
	auto_close_(&n->flows[1]);
	auto_close_(&n->control[1]);
	auto_close_(&n->switch_fd);
	auto_close_(&n->keep[1]);
	close_pair(n->frames);
	close_pair(n->worker);
	if (r == 0)
		r = fd_set_nonblock(n->control[0], true);
	if (r == 0)
		r = loop_fd_add(n->o.l, &n->control_src, n->control[0], EPOLLIN, on_control, n);
	if (r < 0)
		return err->code ? r : err_code(err, r, "cannot watch cloche-relay");
	return netserve_start(n, err);
}

void netproc_expect_end(struct netproc *n)
{
	n->expected = true;
}

static void log_usage(const struct child *c)
{
	if (c->p.cpu_us)
		log_info("%s used cpu_us=%llu rss_max=%llu", c->name,
		         (unsigned long long)c->p.cpu_us, (unsigned long long)c->p.rss_max);
}

/* It ends by itself, since all that it has to do with is gone; else it is ended. */
static void finish(struct child *c, int ms)
{
	int status;

	if (c->running && proc_wait(&c->p, ms, &status) < 0)
		log_warn("%s did not end by itself", c->name);
	child_end(c, 0);
	log_usage(c);
}

void netproc_end(struct netproc *n)
{
	if (!n)
		return;
	n->expected = n->closed = true;
	netserve_end(n);
	loop_fd_del(n->o.l, &n->control_src);
	auto_close_(&n->control[0]);
	n->control[0] = -1;
	finish(&n->net, 200);
	finish(&n->relay, FLUSH_MS);
	child_end(&n->keeper, 0);
	log_usage(&n->keeper);
	netswitch_left(n);
}

void netproc_free(struct netproc *n)
{
	if (!n)
		return;
	loop_timer_del(n->o.l, &n->quiet);
	loop_timer_del(n->o.l, &n->late);
	loop_fd_del(n->o.l, &n->control_src);
	netserve_end(n);
	close_pair(n->frames);
	close_pair(n->worker);
	close_pair(n->flows);
	close_pair(n->keep);
	close_pair(n->control);
	auto_close_(&n->switch_fd);
	auto_close_(&n->run_dir);
	for (size_t i = 0; i < n->spec.n_ports; i++) {
		for (size_t k = 0; k < n->spec.ports[i].n_fds; k++)
			auto_close_(&n->spec.ports[i].fds[k]);
	}
	if (n->spec.mode != NET_OFFLINE)
		auto_close_(&n->spec.policy_fd);
	egress_free(n->policy);
	free(n);
}
