/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-relay - judges what a sandbox may reach, and reaches it (relay.h).
 *
 * Trusts: the monitor, which starts it and gives it the policy; cloche-keeper. Not
 * trusted: cloche-net, which parses the guest's frames; what clients and servers
 * say; DNS answers. May touch: INET sockets of the host's network, which nothing in
 * the kernel bounds to the policy; its sockets; one file that it appends to. It
 * opens no file, binds no address, starts nothing. A compromise yields what a
 * program of the host's network can connect to, with no secret to tell it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "cage/cage.h"
#include "policy/egress.h"
#include "relay/relay.h"
#include "relay/resolve.h"

enum { STATUS_USAGE = 2, STATUS_CAGE = 3 };

struct args {
	struct relay_opts o;
	int policy, log;
	uid_t uid;
};

static int usage(void)
{
	(void)fprintf(stderr, "usage: cloche-relay --net FD --control FD --policy FD --events FD "
	                      "[--keeper FD] [--worker FD] [--log FD] [--uid UID]\n");
	return STATUS_USAGE;
}

static bool number(const char *s, long *out)
{
	char *end;

	errno = 0;
	*out = strtol(s, &end, 10);
	return *s >= '0' && *s <= '9' && *end == '\0' && errno == 0 && *out <= INT32_MAX;
}

static bool parse(int argc, char **argv, struct args *a)
{
	struct {
		const char *name;
		int *fd;
	} fds[] = {
		{ "--net", &a->o.net },       { "--control", &a->o.control },
		{ "--keeper", &a->o.keeper }, { "--worker", &a->o.worker },
		{ "--events", &a->o.events }, { "--policy", &a->policy },
		{ "--log", &a->log },
	};
	/* tests only: less patience than users get */
	struct {
		const char *name;
		unsigned *value;
	} limits[] = {
		{ "--judge-ms", &a->o.judge_ms },
		{ "--dial-ms", &a->o.dial_ms },
		{ "--udp-idle-ms", &a->o.udp_idle_ms },
	};

	*a = (struct args){
		.o = { .net = -1, .control = -1, .keeper = -1, .worker = -1, .events = -1 },
		.policy = -1,
		.log = STDERR_FILENO
	};
	for (int i = 1; i < argc; i += 2) {
		bool known = false;
		long v;

		if (i + 1 == argc || !number(argv[i + 1], &v))
			return false;
		for (size_t k = 0; k < ARRAY_LEN(fds); k++) {
			if (strcmp(argv[i], fds[k].name) != 0)
				continue;
			*fds[k].fd = (int)v;
			known = true;
		}
		for (size_t k = 0; k < ARRAY_LEN(limits); k++) {
			if (strcmp(argv[i], limits[k].name) != 0)
				continue;
			*limits[k].value = (unsigned)v;
			known = true;
		}
		if (strcmp(argv[i], "--events-max") == 0)
			a->o.events_max = (uint64_t)v;
		else if (strcmp(argv[i], "--uid") == 0)
			a->uid = (uid_t)v;
		else if (!known)
			return false;
	}
	return a->o.net >= 0 && a->o.control >= 0 && a->o.events >= 0 && a->policy >= 0;
}

static int read_policy(int fd, struct egress **out, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t len;
	int r = fd_read_file(fd, EGRESS_BYTES_MAX, &text, &len);

	if (r == 0)
		r = egress_parse(out, span_of(text, len));
	return r < 0 ? err_code(err, r, "cannot read the policy") : 0;
}

static int fail(const struct err *err, int status)
{
	log_error("%s%s%s", err->text, err->hint[0] ? ": " : "", err->hint);
	return status;
}

int main(int argc, char **argv)
{
	struct resolve *resolve;
	struct egress *policy;
	struct err err = { 0 };
	struct args a;

	if (!parse(argc, argv, &a))
		return usage();
	log_open(a.log, "cloche-relay", NULL, LOG_INFO);
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	if (resolve_new(&resolve, &err) < 0)
		return fail(&err, EXIT_FAILURE);
	const struct cage_opts cage = { .role = CAGE_RELAY, .uid = a.uid };
	if (cage_enter(&cage, &err) < 0)
		return fail(&err, STATUS_CAGE);
	/* ---- from here on bytes from outside ---- */
	if (read_policy(a.policy, &policy, &err) < 0)
		return fail(&err, EXIT_FAILURE);
	int r = relay_run(&a.o, policy, resolve, &err);
	egress_free(policy);
	return r < 0 ? fail(&err, EXIT_FAILURE) : EXIT_SUCCESS;
}
