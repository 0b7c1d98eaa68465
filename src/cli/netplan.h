/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netplan.h - the network of one run: mode, and the policy with where each of its
 * rules comes from. `info` and `net` show it, `run` hands it to the monitor.
 */
#ifndef CLOCHE_CLI_NETPLAN_H
#define CLOCHE_CLI_NETPLAN_H

#include "cli/hostca.h"
#include "cli/netopts.h"
#include "config/profile.h"
#include "image/registry.h"

/* What a policy is made of. Everything is borrowed for the call. */
struct netplan_in {
	const struct netopts *opts; /* settled */
	const struct config_net *config;
	/* the agent's own hosts, in the grammar of host_pattern_parse(); NULL-terminated, or NULL */
	const char *const *providers;
	const char *agent;
	const struct registry_list *image, *user; /* NULL: not known */
};

struct netplan {
	enum net_mode mode;
	struct egress *policy; /* NULL when offline */
	struct registry_list user;
	struct hostca ca; /* empty with --no-host-ca, and offline */
	char *search[NET_SEARCH_MAX];
	size_t n_search;
	bool image_known; /* what its tools fetch from is in the policy */
	/* package tools that are neither in the image nor on this host: bits, by their number
	 * in registry_probes. Only where the profile opens registries */
	uint32_t missing;
	/* lines for the user: what was left out, or has no effect */
	char *notes[4];
	size_t n_notes;
};

/* The rules: pure. Return: 0 with *out, or -errno with @err. */
int netplan_policy(struct egress **out, const struct netplan_in *in, struct err *err) MUST_CHECK;

/*
 * What an agent's profile says of the network: its own hosts as the providers of struct
 * netplan_in (the array is malloc'd, the names are the profile's), and its egress, which is
 * a floor: only a flag goes below.
 */
const char **netplan_providers(const struct profile *p) MUST_CHECK;
void netplan_floor(struct netopts *o, const struct profile *p);

/*
 * netplan_init() - all of it, the user's registries asked where the profile wants them.
 * @providers:	as in struct netplan_in
 * @cache_dir:	for registries.h
 * @image:	of the image, or NULL while it is not built
 * @asking:	for registries.h; may be NULL
 */
int netplan_init(struct netplan *p, const struct netopts *o, const struct config_net *c,
                 const char *agent, const char *const *providers, const char *cache_dir,
                 const struct registry_list *image, void (*asking)(void),
                 struct err *err) MUST_CHECK;
void netplan_fini(struct netplan *p);

/*
 * netplan_search() - the search domains of a resolv.conf(5), the last such line's. Pure.
 * What is no name is passed over. Return: how many; each malloc'd.
 */
size_t netplan_search(char *out[NET_SEARCH_MAX], struct span resolv_conf);

/*
 * netplan_label() - the name of sandbox @id in a shared network, one label: the end of the
 * id, where two of them differ. Pure. Return: @dst.
 */
enum { NETPLAN_LABEL_BYTES = 64 };
const char *netplan_label(char dst[NETPLAN_LABEL_BYTES], const char *id);

/* ---- what is shown ------------------------------------------------------ */

/* "isolated, standard: github.com + 9 hosts" or "offline". 0 or -ENOMEM. */
int netplan_line(const struct netplan *p, struct buf *out) MUST_CHECK;

/* One pattern with all its ports and where they come from. */
struct netplan_host {
	char name[HOST_PATTERN_BYTES]; /* without a port */
	char ports[160];               /* "443,22"; "80,443 and 3 more" */
	char from[160];                /* "registry: npm, pip"; the flag and so on */
	bool deny;
};
/* The hosts of @e in the order of their first rule. *out is malloc'd. */
void netplan_hosts(const struct egress *e, struct netplan_host **out, size_t *out_n);

#endif
