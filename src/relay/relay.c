/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/relay.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/relay_priv.h"
#include "relay/resolve.h"

void relay_stop(struct relay *r, int code, const char *why)
{
	if (r->end)
		return; /* the first cause is the one to tell */
	r->end = why;
	loop_stop(r->l, code);
}

static void on_sweep(void *arg)
{
	struct relay *r = arg;
	uint64_t now_ms = relay_now_ms(r);

	pins_sweep(r->pins, now_ms);
	udp_sweep(r, now_ms);
	lookup_sweep(r, now_ms);
	unsigned ms = r->o->udp_idle_ms ? r->o->udp_idle_ms : RELAY_SWEEP_MS;
	loop_timer_set(r->l, &r->sweep, MIN(ms, (unsigned)RELAY_SWEEP_MS), on_sweep, r);
}

static void on_lost(void *arg, int code)
{
	struct relay *r = arg;

	log_error("the events cannot be written: %s", strerror(-code));
	control_lost(r, strerror(-code));
}

/* The user's services have no answer that opens them: they are open. */
static void open_services(struct relay *r)
{
	const uint16_t *ports;
	size_t n = egress_services(r->policy, &ports);

	for (size_t i = 0; i < n; i++)
		net_open(r, JUDGE_SERVICE_ADDR, ports[i]);
}

int relay_run(const struct relay_opts *o, struct egress *policy, struct resolve *resolve,
              struct err *err)
{
	static const struct pins_ops ops = { .open = net_open, .close = net_close };
	struct relay r = {
		.o = o,
		.policy = policy,
		.resolve = resolve,
		.net_src = { .fd = -1 },
		.control_src = { .fd = -1 },
		.keeper_src = { .fd = -1 },
	};
	struct event last = { .ev = "end" };

	r.l = loop_new();
	if (!r.l)
		return err_set(err, -EMFILE, "no descriptors left for a loop");
	r.events = events_new(r.l, o->events, o->events_max ? o->events_max : EVENTS_BYTES_MAX,
	                      on_lost, &r);
	r.pins = pins_new(PINS_MAX, &ops, &r);
	r.lookups = lookups_new(&r);
	resolve_start(resolve, r.l);
	int code = net_start(&r);
	if (code == 0)
		code = control_start(&r);
	if (code < 0) {
		(void)err_code(err, code, "cannot watch the sockets of the relay");
	} else {
		open_services(&r);
		on_sweep(&r);
		code = loop_run(r.l);
		last.reason = r.end;
		if (code < 0)
			(void)err_code(err, code, "the relay ends");
	}
	loop_timer_del(r.l, &r.sweep);
	flows_fini(&r);
	udp_fini(&r);
	listen_fini(&r);
	resolve_free(resolve);
	lookups_free(r.lookups);
	net_fini(&r);
	loop_fd_del(r.l, &r.control_src);
	loop_fd_del(r.l, &r.keeper_src);
	events_free(r.events, &last);
	pins_free(r.pins);
	loop_free(r.l);
	return code;
}
