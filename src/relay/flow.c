/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow.c - a flow from its beginning to its end: what is waited for, dialing, the
 * events of it. What its client says is flow_client.c's.
 */
#include "relay/flow_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

/* ---- its end ------------------------------------------------------------------ */

static void event_of(const struct flow *f, struct event *e, const char *ev, const char *name)
{
	*e = (struct event){
		.ev = ev,
		.name = name,
		.proto = proto_name(f->proto),
		.n_addrs = 1,
		.addrs = &f->addr,
		.port = f->port,
		.guest_port = f->guest_port,
	};
}

void flow_uncount(struct flow *f)
{
	if (f->counted)
		f->r->n_judged--;
	f->counted = false;
}

void flow_end(struct flow *f, const char *reason)
{
	struct event e;

	if (f->over)
		return;
	f->over = true;
	if (!f->announced)
		return;
	event_of(f, &e, "close", f->name);
	e.reason = reason;
	e.has_bytes = true;
	e.bytes_out = f->out.bytes;
	e.bytes_in = f->in.bytes;
	events_write(f->r->events, &e);
}

void flow_refuse(struct flow *f, enum why why, const char *name, const char *detail)
{
	static const struct linger now = { .l_onoff = 1 };
	struct event e;

	if (f->over)
		return;
	event_of(f, &e, "flow", name);
	e.verdict = "refused";
	e.reason = why_name(why);
	e.detail = detail;
	events_write(f->r->events, &e);
	if (f->server >= 0)
		(void)setsockopt(f->server, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	flow_end(f, why_name(why));
}

void flow_announce(struct flow *f)
{
	struct event e;

	f->announced = true;
	event_of(f, &e, "flow", f->name);
	e.verdict = "allowed";
	events_write(f->r->events, &e);
}

static void reap(struct flow *f)
{
	if (!f->over)
		return;
	flow_uncount(f);
	loop_timer_del(f->r->l, &f->judge_timer);
	loop_timer_del(f->r->l, &f->dial_timer);
	loop_fd_del(f->r->l, &f->client_src);
	loop_fd_del(f->r->l, &f->server_src);
	auto_close_(&f->client);
	auto_close_(&f->server);
	copy_fini(&f->out);
	copy_fini(&f->in);
	free(f->buf);
	*f->prev = f->next;
	if (f->next)
		f->next->prev = f->prev;
	f->r->n_flows--;
	free(f);
}

/* ---- what is waited for ---------------------------------------------------------- */

static bool by_edges(const struct flow *f)
{
	return f->mode != MODE_OPAQUE;
}

static void on_client(void *arg, uint32_t events);
static void on_server(void *arg, uint32_t events);

static void watch(struct flow *f)
{
	uint32_t client = EPOLLRDHUP, server = 0;

	if (f->over)
		return;
	if (f->in.len > 0)
		client |= EPOLLOUT;
	if (by_edges(f))
		client |= EPOLLIN | (uint32_t)EPOLLET;
	else if (f->connected && copy_reads(&f->out))
		client |= EPOLLIN;
	else
		client |= (uint32_t)EPOLLET; /* its end is told once, not again and again */
	loop_fd_set(f->r->l, &f->client_src, client);
	if (f->server < 0)
		return;
	if (!f->connected || f->out.len > 0)
		server |= EPOLLOUT;
	if (f->connected && copy_reads(&f->in))
		server |= EPOLLIN;
	loop_fd_set(f->r->l, &f->server_src, server ? server : (uint32_t)EPOLLET);
}

static void check_end(struct flow *f)
{
	if (f->out.shut && (f->in.shut || f->gone))
		flow_end(f, f->in.shut ? "eof" : "client");
}

/* ---- the server ---------------------------------------------------------------------- */

static void on_dial_timeout(void *arg)
{
	struct flow *f = arg;

	flow_end(f, "dial-timeout");
	reap(f);
}

static const char *dial_reason(int error)
{
	switch (error) {
	case ECONNREFUSED:
		return "dial-refused";
	case ETIMEDOUT:
		return "dial-timeout";
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		return "limit";
	default:
		return "dial-unreachable";
	}
}

void flow_dial(struct flow *f)
{
	const char *detail;
	enum why why;
	int fd = dial(f->r->policy, SOCK_STREAM, f->addr, f->port, &why, &detail);

	if (why != WHY_NONE) {
		flow_refuse(f, why, f->name, detail);
		return;
	}
	flow_announce(f);
	if (fd < 0) {
		flow_end(f, dial_reason(-fd));
		return;
	}
	f->server = fd;
	f->out.to = f->in.from = fd;
	if (loop_fd_add(f->r->l, &f->server_src, fd, EPOLLOUT, on_server, f) < 0) {
		flow_end(f, "limit");
		return;
	}
	unsigned ms = f->r->o->dial_ms ? f->r->o->dial_ms : RELAY_DIAL_MS;
	loop_timer_set(f->r->l, &f->dial_timer, ms, on_dial_timeout, f);
}

static void connected(struct flow *f)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(f->server, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error) {
		flow_end(f, dial_reason(error));
		return;
	}
	f->connected = true;
	loop_timer_del(f->r->l, &f->dial_timer);
	if (f->mode == MODE_OPAQUE) {
		flow_opaque_begin(f);
		return;
	}
	flow_word_push(f);
	flow_client_step(f);
}

static void on_server(void *arg, uint32_t events)
{
	struct flow *f = arg;

	if (!f->connected) {
		connected(f);
	} else {
		if ((events & EPOLLOUT) && f->out.len > 0)
			flow_out_step(f);
		if (!f->over && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
			flow_in_step(f);
	}
	if (!f->over)
		check_end(f);
	watch(f);
	reap(f);
}

/* ---- timers ---------------------------------------------------------------------------- */

static void on_judge_timeout(void *arg)
{
	struct flow *f = arg;

	flow_refuse(f, WHY_TIMEOUT, f->name, NULL);
	reap(f);
}

void flow_judge_later(struct flow *f)
{
	unsigned ms = f->r->o->judge_ms ? f->r->o->judge_ms : RELAY_JUDGE_MS;

	loop_timer_set(f->r->l, &f->judge_timer, ms, on_judge_timeout, f);
}

/*
 * The client is silent, or has said one word and waits, and the port was one where the
 * server may have the first word. The policy may have changed meanwhile, and no byte came
 * that asked it.
 */
static void on_raw_wait(void *arg)
{
	struct flow *f = arg;
	struct judge_in in = { .policy = f->r->policy,
		               .pins = f->r->pins,
		               .addr = f->addr,
		               .port = f->port,
		               .now_ms = relay_now_ms(f->r) };
	struct judge_out o;

	judge_dest(&o, &in);
	if (o.verdict == VERDICT_REFUSE) {
		flow_refuse(f, o.why, f->name, o.detail);
	} else if (o.raw) {
		f->due = f->word ? f->have + f->stays : 0;
		if (f->server < 0) {
			memcpy(f->name, o.name, sizeof(f->name));
			flow_uncount(f);
			flow_dial(f);
		} else {
			flow_word_push(f);
		}
	} else {
		f->proto = PROTO_UNKNOWN;
		f->name[0] = '\0';
		flow_judge_later(f); /* now it has to say whom it wants */
	}
	watch(f);
	reap(f);
}

void flow_raw_wait(struct flow *f)
{
	loop_timer_set(f->r->l, &f->judge_timer, RELAY_RAW_WAIT_MS, on_raw_wait, f);
}

/* ---- the client ------------------------------------------------------------------------ */

static void on_client(void *arg, uint32_t events)
{
	struct flow *f = arg;

	f->half_closed |= (events & (EPOLLRDHUP | EPOLLHUP)) != 0;
	f->gone |= (events & (EPOLLHUP | EPOLLERR)) != 0;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		flow_client_step(f);
	if (!f->over && (events & EPOLLOUT) && copy_flush(&f->in) < 0)
		flow_end(f, "client");
	/* nobody is there for the answer that it waits for */
	if (f->gone && f->mode == MODE_UPGRADE)
		flow_end(f, "client");
	if (!f->over)
		check_end(f);
	watch(f);
	reap(f);
}

void flow_start(struct relay *r, int fd, uint32_t addr, uint16_t port, uint16_t guest_port)
{
	struct judge_in in = { .policy = r->policy,
		               .pins = r->pins,
		               .addr = addr,
		               .port = port,
		               .now_ms = relay_now_ms(r) };
	struct flow *f = xcalloc(1, sizeof(*f));
	struct judge_out o;

	*f = (struct flow){ .r = r,
		            .addr = addr,
		            .port = port,
		            .guest_port = guest_port,
		            .client = fd,
		            .server = -1,
		            .client_src = { .fd = -1 },
		            .server_src = { .fd = -1 },
		            .out = { .from = fd, .to = -1 },
		            .in = { .from = -1, .to = fd },
		            .next = r->flows,
		            .prev = &r->flows };
	if (f->next)
		f->next->prev = &f->next;
	r->flows = f;
	r->n_flows++;
	judge_dest(&o, &in);
	if (o.verdict == VERDICT_MORE) {
		f->buf = xmalloc(IN_BYTES);
		f->counted = true;
		r->n_judged++;
	}
	if (r->n_flows > RELAY_FLOWS_MAX || r->n_judged > RELAY_JUDGED_MAX) {
		flow_refuse(f, WHY_LIMIT, o.name, NULL);
	} else if (fd_set_nonblock(fd, true) < 0 ||
	           loop_fd_add(r->l, &f->client_src, fd, EPOLLIN | EPOLLRDHUP | (uint32_t)EPOLLET,
	                       on_client, f) < 0) {
		flow_refuse(f, WHY_LIMIT, o.name, NULL);
	} else if (o.verdict != VERDICT_MORE) {
		flow_judge_apply(f, &o);
	} else if (o.raw) {
		f->proto = PROTO_RAW;
		memcpy(f->name, o.name, sizeof(f->name));
		flow_raw_wait(f);
	} else {
		flow_judge_later(f);
	}
	watch(f);
	reap(f);
}

void flows_recheck(struct relay *r)
{
	for (struct flow *f = r->flows, *next; f; f = next) {
		next = f->next;
		/* without a verdict the next byte asks the new policy */
		if (!f->announced || f->proto == PROTO_SERVICE || !f->name[0] ||
		    egress_find(r->policy, f->name, f->port))
			continue;
		flow_refuse(f, WHY_DENIED, f->name, NULL);
		reap(f);
	}
}

void flows_fini(struct relay *r)
{
	for (struct flow *f = r->flows, *next; f; f = next) {
		next = f->next;
		flow_end(f, "end");
		reap(f);
	}
}
