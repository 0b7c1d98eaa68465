/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netctl_call() and policies for net_test.py:
 *
 *   netctl_tool policy PROFILE [HOST...] [private=CIDR...]   its carried form, to stdout
 *   netctl_tool call ID list|allow|deny|callback [WORD...]   callback: PORT ONCE SECONDS LABEL FD...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "super/netctl.h"
#include "super/net.h"

static int fail(const char *text)
{
	(void)fprintf(stderr, "%s\n", text);
	return 1;
}

static int make_policy(int argc, char **argv)
{
	enum egress_profile profile;
	AUTO_BUF struct buf b = { 0 };

	if (egress_profile_parse(argv[0], &profile) < 0)
		return fail("profile");
	struct egress *e = egress_new(profile);
	for (int i = 1; i < argc; i++) {
		struct egress_rule r = { .origin = EGRESS_FROM_FLAG };
		struct ip4_net net;
		bool private = strncmp(argv[i], "private=", 8) == 0;
		int k = private ? ip4_net_parse(&net, span_str(argv[i] + 8))
		                : host_pattern_parse(&r.host, span_str(argv[i]), NULL);
		if (k == 0)
			k = private ? egress_allow_private(e, net) : egress_add(e, &r);
		if (k < 0)
			return fail(argv[i]);
	}
	if (egress_put(e, &b) < 0 || fd_write_all(1, b.p, b.len) < 0)
		return fail("put");
	egress_free(e);
	return 0;
}

static int show_policy(const char *mode, int fd)
{
	struct egress *e = NULL;
	char text[HOST_NAME_BYTES + 8];

	if (net_policy_read(fd, &e) < 0)
		return fail("policy");
	(void)printf("%s %s\n", mode, egress_profile_name(egress_profile_of(e)));
	for (size_t i = 0; i < egress_count(e); i++) {
		const struct egress_rule *r = egress_rule_at(e, i);
		(void)printf("%c%s\n", r->deny ? '-' : '+', host_pattern_str(text, &r->host));
	}
	egress_free(e);
	return 0;
}

static int call(int argc, char **argv)
{
	static const char *const names[] = { [NETCTL_ALLOW] = "allow",
		                             [NETCTL_DENY] = "deny",
		                             [NETCTL_CALLBACK] = "callback",
		                             [NETCTL_LIST] = "list" };
	struct netctl_msg q = { 0 }, a;
	struct err err = { 0 };
	int fds[NETCTL_FDS_MAX], n = 0;
	AUTO_CLOSE int fd = -1;

	for (uint32_t i = NETCTL_ALLOW; i <= NETCTL_LIST; i++) {
		if (strcmp(argv[1], names[i]) == 0)
			q.type = i;
	}
	if (q.type == NETCTL_CALLBACK && argc >= 6) {
		q.port = (uint16_t)atoi(argv[2]);
		q.once = (uint8_t)atoi(argv[3]);
		q.deadline_s = (uint32_t)atoi(argv[4]);
		(void)snprintf(q.text, sizeof(q.text), "%s", argv[5]);
		for (int i = 6; i < argc && n < NETCTL_FDS_MAX; i++)
			fds[n++] = atoi(argv[i]);
	} else if (argc >= 3) {
		(void)snprintf(q.text, sizeof(q.text), "%s", argv[2]);
	}
	if (netctl_call(argv[0], &q, fds, (size_t)n, &a, &fd, &err) < 0)
		return fail(err.text);
	if (fd >= 0)
		return show_policy(net_mode_name((enum net_mode)a.mode), fd);
	(void)printf("%s\n", net_mode_name((enum net_mode)a.mode));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && strcmp(argv[1], "policy") == 0)
		return make_policy(argc - 2, argv + 2);
	if (argc >= 4 && strcmp(argv[1], "call") == 0)
		return call(argc - 2, argv + 2);
	return fail("usage");
}
