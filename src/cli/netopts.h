/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netopts.h - the network on the command line: options of run, info and net, and
 * what they and the configuration come to.
 *
 * Pure. A flag wins over the configuration where there is one value, and adds to
 * it where there is a list.
 */
#ifndef CLOCHE_CLI_NETOPTS_H
#define CLOCHE_CLI_NETOPTS_H

#include "cli/cli.h"
#include "super/net.h"

enum {
	NETOPTS_PORTS_MAX = 24,
	NETOPTS_CALLBACKS_MAX = NET_PORTS_MAX - NETOPTS_PORTS_MAX,
};

/* Ids of the options, above those of any command. */
enum {
	NETOPT_FIRST = 1000,
	NETOPT_NETWORK = NETOPT_FIRST,
	NETOPT_EGRESS,
	NETOPT_HOST,
	NETOPT_PRIVATE,
	NETOPT_SERVICE,
	NETOPT_NO_CA,
	NETOPT_PUBLISH,
	NETOPT_LOCALHOST,
	NETOPT_CALLBACK,
};

/* Rows for a table of options: what decides the policy, and what does not. */
#define NETOPT_ROW(...)     \
	{                   \
		__VA_ARGS__ \
	}
#define NETOPTS_POLICY                                                                            \
	NETOPT_ROW("network", 0, CLI_VALUE, NETOPT_NETWORK, "MODE",                               \
	           "offline, isolated or shared (default isolated)"),                             \
		NETOPT_ROW("egress", 0, CLI_VALUE, NETOPT_EGRESS, "PROFILE",                      \
	                   "permissive, standard or locked (default standard)"),                  \
		NETOPT_ROW("egress-profile", 0, CLI_VALUE, NETOPT_EGRESS, "PROFILE",              \
	                   "the same as --egress"),                                               \
		NETOPT_ROW(                                                                       \
			"allow-host", 0, CLI_VALUE, NETOPT_HOST, "NAME[:PORT]",                   \
			"open this host too, or *.NAME, or the set @NAME; port 443 without one"), \
		NETOPT_ROW("allow-private", 0, CLI_VALUE, NETOPT_PRIVATE, "RANGE",                \
	                   "open a private range, as 10.1.0.0/16"),                               \
		NETOPT_ROW("host-service", 0, CLI_VALUE, NETOPT_SERVICE, "PORT",                  \
	                   "host.cloche:PORT is this port of your 127.0.0.1")
#define NETOPTS_PORTS                                                                   \
	NETOPT_ROW("publish", 'p', CLI_VALUE, NETOPT_PUBLISH, "[HOST:]GUEST",           \
	           "a port of the guest, on an address of its own in 127/8"),           \
		NETOPT_ROW("port", 0, CLI_VALUE, NETOPT_PUBLISH, "[HOST:]GUEST",        \
	                   "the same as --publish"),                                    \
		NETOPT_ROW("publish-localhost", 0, CLI_FLAG, NETOPT_LOCALHOST, NULL,    \
	                   "publish on 127.0.0.1 and ::1 instead"),                     \
		NETOPT_ROW("callback", 0, CLI_VALUE, NETOPT_CALLBACK, "PORT",           \
	                   "let a login's browser reach the guest once, on localhost"), \
		NETOPT_ROW("no-host-ca", 0, CLI_FLAG, NETOPT_NO_CA, NULL,               \
	                   "do not give the guest the CAs that you added to this host")

struct netopts_port {
	uint16_t host, guest;
};

struct netopts {
	bool mode_given, profile_given;
	enum net_mode mode;
	enum egress_profile profile;
	struct config_hosts hosts;
	struct ip4_net privates[EGRESS_PRIVATE_MAX];
	size_t n_privates;
	uint16_t services[EGRESS_SERVICES_MAX];
	size_t n_services;
	bool no_host_ca, publish_localhost;
	struct netopts_port ports[NETOPTS_PORTS_MAX];
	size_t n_ports;
	uint16_t callbacks[NETOPTS_CALLBACKS_MAX];
	size_t n_callbacks;
};

/* An option with an id from NETOPT_FIRST on. 0, or -errno with @err. */
int netopts_take(struct netopts *o, int id, const char *v, struct err *err) MUST_CHECK;

void netopts_fini(struct netopts *o);

/*
 * netopts_settle() - put what the configuration says where no flag does: mode,
 * profile, host_ca, publish_localhost. The lists of @c stay there.
 *
 * Return: 0, or -EINVAL with @err for what contradicts itself.
 */
int netopts_settle(struct netopts *o, const struct config_net *c, struct err *err) MUST_CHECK;

/* "8080:80" or "80"; pure. 0, or -EINVAL with @out_why. */
int netopts_port_parse(struct netopts_port *out, const char *s, const char **out_why) MUST_CHECK;

#endif
