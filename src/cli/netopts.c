/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/netopts.h"

#include <errno.h>
#include <string.h>

#include "base/vis.h"

/* What is wrong with the value @v of @flag. */
static int refuse(struct err *err, const char *flag, const char *v, const char *why)
{
	char seen[128];

	return err_set(err, -EINVAL, "%s: '%s': %s", flag, vis_str(seen, sizeof(seen), span_str(v)),
	               why);
}

static int too_many(struct err *err, const char *flag, int max)
{
	return err_set(err, -E2BIG, "%s: at most %d times", flag, max);
}

int netopts_port_parse(struct netopts_port *out, const char *s, const char **out_why)
{
	const char *colon = strchr(s, ':');
	struct netopts_port p = { 0 };
	int r = 0;

	if (!colon && s[strspn(s, "0123456789")]) {
		*out_why = "there is no colon: HOST:GUEST, or GUEST alone for the same number";
		return -EINVAL;
	}
	if (colon && strchr(colon + 1, ':')) {
		*out_why = "one colon only: where it is bound is no choice (--publish-localhost)";
		return -EINVAL;
	}
	if (colon) {
		AUTO_FREE char *host = xstrndup(s, (size_t)(colon - s));
		r = config_port(host, &p.host, out_why);
	}
	if (r == 0)
		r = config_port(colon ? colon + 1 : s, &p.guest, out_why);
	if (r < 0)
		return r;
	if (!colon)
		p.host = p.guest;
	*out = p;
	return 0;
}

static int add_port(struct netopts *o, const char *v, struct err *err)
{
	struct netopts_port p;
	const char *why;

	if (netopts_port_parse(&p, v, &why) < 0)
		return refuse(err, "--publish", v, why);
	for (size_t i = 0; i < o->n_ports; i++) {
		if (o->ports[i].host == p.host)
			return err_set(err, -EINVAL, "--publish: port %u of the host stands twice",
			               p.host);
	}
	if (o->n_ports == NETOPTS_PORTS_MAX)
		return too_many(err, "--publish", NETOPTS_PORTS_MAX);
	o->ports[o->n_ports++] = p;
	return 0;
}

static int add_callback(struct netopts *o, const char *v, struct err *err)
{
	const char *why;
	uint16_t port;

	if (config_port(v, &port, &why) < 0)
		return refuse(err, "--callback", v, why);
	for (size_t i = 0; i < o->n_callbacks; i++) {
		if (o->callbacks[i] == port)
			return err_set(err, -EINVAL, "--callback: port %u stands twice", port);
	}
	if (o->n_callbacks == NETOPTS_CALLBACKS_MAX)
		return too_many(err, "--callback", NETOPTS_CALLBACKS_MAX);
	o->callbacks[o->n_callbacks++] = port;
	return 0;
}

int netopts_take(struct netopts *o, int id, const char *v, struct err *err)
{
	const char *why;
	int r;

	switch (id) {
	case NETOPT_NETWORK:
		o->mode_given = true;
		if (net_mode_parse(v, &o->mode) < 0)
			return refuse(err, "--network", v, "it is offline, isolated or shared");
		return 0;
	case NETOPT_EGRESS:
		o->profile_given = true;
		if (egress_profile_parse(v, &o->profile) < 0)
			return refuse(err, "--egress", v, "it is permissive, standard or locked");
		return 0;
	case NETOPT_HOST:
		r = config_add_host(&o->hosts, v, &why);
		if (r == -E2BIG)
			return too_many(err, "--allow-host", CONFIG_HOSTS_MAX);
		return r < 0 ? refuse(err, "--allow-host", v, why) : 0;
	case NETOPT_PRIVATE:
		if (o->n_privates == EGRESS_PRIVATE_MAX)
			return too_many(err, "--allow-private", EGRESS_PRIVATE_MAX);
		if (config_private(v, &o->privates[o->n_privates], &why) < 0)
			return refuse(err, "--allow-private", v, why);
		o->n_privates++;
		return 0;
	case NETOPT_SERVICE:
		if (o->n_services == EGRESS_SERVICES_MAX)
			return too_many(err, "--host-service", EGRESS_SERVICES_MAX);
		if (config_service(v, &o->services[o->n_services], &why) < 0)
			return refuse(err, "--host-service", v, why);
		o->n_services++;
		return 0;
	case NETOPT_NO_CA:
		o->no_host_ca = true;
		return 0;
	case NETOPT_PUBLISH:
		return add_port(o, v, err);
	case NETOPT_LOCALHOST:
		o->publish_localhost = true;
		return 0;
	case NETOPT_CALLBACK:
		return add_callback(o, v, err);
	default:
		return err_set(err, -EINVAL, "unknown option");
	}
}

void netopts_fini(struct netopts *o)
{
	config_hosts_fini(&o->hosts);
}

int netopts_settle(struct netopts *o, const struct config_net *c, struct err *err)
{
	if (!o->mode_given && net_mode_parse(c->mode, &o->mode) < 0)
		return err_set(err, -EINVAL, "network.mode must be offline, isolated or shared");
	if (!o->profile_given)
		o->profile = c->profile;
	o->no_host_ca |= !c->host_ca;
	o->publish_localhost |= c->publish_localhost;
	/* ports are fine: they go over the control channel, not over a card */
	const char *flag = o->profile_given ? "--egress"
	                   : o->hosts.n     ? "--allow-host"
	                   : o->n_privates  ? "--allow-private"
	                   : o->n_services  ? "--host-service"
	                                    : NULL;
	if (o->mode == NET_OFFLINE && flag) {
		err_set(err, -EINVAL, "%s and %s contradict each other: offline has no network",
		        flag, o->mode_given ? "--network offline" : "network.mode: offline");
		return err_hint(err, "leave %s out, or say --network isolated", flag);
	}
	for (size_t i = 0; i < o->n_ports; i++) {
		for (size_t k = 0; k < o->n_callbacks; k++) {
			if (o->publish_localhost && o->ports[i].host == o->callbacks[k])
				return err_set(err, -EINVAL,
				               "--publish and --callback both want port %u of "
				               "localhost",
				               o->callbacks[k]);
		}
	}
	return 0;
}
