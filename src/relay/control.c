/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - what the monitor and cloche-keeper say (wire/relayctl.h). */
#include "relay/relay_priv.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "wire/relayctl.h"

static uint8_t in[RELAYCTL_BYTES_MAX]; /* one thread, not kept across calls */

static int ports_of(void *arg, const char *name, uint16_t *out)
{
	const struct relay *r = arg;

	_Static_assert((int)PINS_PORTS_MAX >= (int)EGRESS_PORTS_MAX, "all of them fit");
	if (!egress_name_ok(r->policy, name))
		return -1;
	return (int)egress_ports(r->policy, name, out, PINS_PORTS_MAX);
}

static int change_policy(struct relay *r, struct span text, bool allow, const char **why)
{
	struct egress_rule rule = { .origin = EGRESS_FROM_LIVE };
	char shown[HOST_NAME_BYTES + 8];
	int k = host_pattern_parse(&rule.host, text, why);

	if (k < 0)
		return k;
	*why = "the policy cannot take this rule";
	if (allow) {
		k = egress_add(r->policy, &rule);
		if (k == 0) /* the later word counts, if it is one */
			(void)egress_undeny(r->policy, &rule.host);
	} else {
		k = egress_deny_from(r->policy, &rule.host, EGRESS_FROM_LIVE);
	}
	if (k == -ENOTSUP)
		*why = "the profile 'permissive' refuses no host";
	if (k < 0)
		return k;
	pins_refresh(r->pins, ports_of, r);
	flows_recheck(r);
	struct event e = { .ev = "policy",
		           .verdict = allow ? "allowed" : "refused",
		           .name = host_pattern_str(shown, &rule.host) };
	events_write(r->events, &e);
	return 0;
}

static void reply(struct relay *r, uint32_t number, int code, const char *why)
{
	uint8_t b[RELAYCTL_TEXT_MAX + 64];
	struct relayctl m = { .type = code < 0 ? RELAYCTL_ERR : RELAYCTL_OK, .number = number };

	if (code < 0)
		m.text = span_str(why);
	size_t n = relayctl_put(b, sizeof(b), &m);
	ASSERT(n > 0);
	/* the monitor waits for one answer at a time: a full socket is a monitor that went */
	if (fd_send(r->o->control, b, n, NULL, 0) < 0)
		relay_stop(r, 0, "monitor");
}

void control_lost(struct relay *r, const char *why)
{
	uint8_t b[RELAYCTL_TEXT_MAX + 64];
	const struct relayctl m = { .type = RELAYCTL_LOST, .text = span_str(why) };
	size_t n = relayctl_put(b, sizeof(b), &m);

	ASSERT(n > 0);
	(void)!fd_send(r->o->control, b, n, NULL, 0); /* the program's log has it, too */
}

static bool file_message(struct relay *r, const struct relayctl *m)
{
	if (m->type == RELAYCTL_RESOLV)
		lookup_set_resolv(r, m->file);
	else if (m->type == RELAYCTL_HOSTS)
		lookup_set_hosts(r, m->file);
	else
		return false;
	return true;
}

static void on_control(void *arg, uint32_t events UNUSED)
{
	struct relay *r = arg;
	int fds[RELAYCTL_LISTEN_FDS_MAX];
	size_t n_fds = 0;
	const char *why = "not a message of the monitor";
	struct relayctl m;
	ssize_t k = fd_recv(r->o->control, in, sizeof(in), fds, ARRAY_LEN(fds), &n_fds);
	int code = 0;

	if (k == -EAGAIN)
		return;
	if (k <= 0 && k != -EPROTO) {
		relay_stop(r, 0, "monitor");
		return;
	}
	if (k > 0 && relayctl_parse(&m, span_of(in, (size_t)k)) < 0)
		k = -EPROTO;
	if (k > 0 && m.type == RELAYCTL_LISTEN) {
		code = listen_add(r, &m, fds, n_fds, &why);
		reply(r, m.number, code, why);
		return;
	}
	while (n_fds > 0)
		(void)close(fds[--n_fds]); /* not asked for */
	if (k < 0) {
		log_error("the monitor sent what is no message");
		relay_stop(r, -EPROTO, "monitor");
		return;
	}
	if (m.type == RELAYCTL_ALLOW || m.type == RELAYCTL_DENY)
		code = change_policy(r, m.pattern, m.type == RELAYCTL_ALLOW, &why);
	else if (!file_message(r, &m))
		code = -EINVAL;
	reply(r, m.number, code, why);
}

static void on_keeper(void *arg, uint32_t events UNUSED)
{
	struct relay *r = arg;
	struct relayctl m;
	ssize_t k = fd_recv(r->o->keeper, in, sizeof(in), NULL, 0, NULL);

	if (k == -EAGAIN)
		return;
	if (k > 0 && relayctl_parse(&m, span_of(in, (size_t)k)) == 0 && file_message(r, &m))
		return;
	/* what it said last holds; the network goes on */
	log_warn("cloche-keeper is gone: changes of resolv.conf and hosts are not seen any more");
	loop_fd_del(r->l, &r->keeper_src);
}

int control_start(struct relay *r)
{
	int k = fd_set_nonblock(r->o->control, true);

	if (k == 0)
		k = loop_fd_add(r->l, &r->control_src, r->o->control, EPOLLIN, on_control, r);
	if (k == 0 && r->o->worker >= 0)
		k = fd_set_nonblock(r->o->worker, true);
	if (k < 0 || r->o->keeper < 0)
		return k;
	k = fd_set_nonblock(r->o->keeper, true);
	if (k == 0)
		k = loop_fd_add(r->l, &r->keeper_src, r->o->keeper, EPOLLIN, on_keeper, r);
	return k;
}
