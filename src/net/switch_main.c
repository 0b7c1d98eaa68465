/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-switch - the shared network of one user's sandboxes (switch.h).
 *
 * Trusts: who started it. The ports are cloche-net processes, which parse what guests
 * send: not trusted. May touch: its listening socket, its connections, the file of the
 * addresses. A compromise yields the traffic between the sandboxes of this network,
 * each of which still has its own gate.
 *
 *   --listen FD   SOCK_SEQPACKET, listening
 *   --map FD      the file of the addresses, read-write
 *   --log FD      where to log; 2 when it is left out
 *   --uid UID     started as root: run as this one
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
#include "cage/cage.h"
#include "net/switch.h"

enum { STATUS_USAGE = 2, STATUS_CAGE = 3 };

static int usage(void)
{
	(void)fprintf(stderr, "usage: cloche-switch --listen FD [--map FD] [--log FD] "
	                      "[--uid UID]\n");
	return STATUS_USAGE;
}

static bool number(const char *s, int *out)
{
	char *end;

	errno = 0;
	unsigned long v = strtoul(s, &end, 10);
	*out = (int)v;
	return *s >= '0' && *s <= '9' && *end == '\0' && errno == 0 && v <= INT32_MAX;
}

int main(int argc, char **argv)
{
	struct switch_opts o = { .listen = -1, .map = -1 };
	int log = STDERR_FILENO, uid = 0;
	const struct {
		const char *name;
		int *out;
	} args[] = {
		{ "--listen", &o.listen },
		{ "--map", &o.map },
		{ "--log", &log },
		{ "--uid", &uid },
	};
	struct err err = { 0 };

	for (int i = 1; i < argc; i += 2) {
		size_t k = 0;

		while (k < ARRAY_LEN(args) && strcmp(argv[i], args[k].name) != 0)
			k++;
		if (k == ARRAY_LEN(args) || i + 1 == argc || !number(argv[i + 1], args[k].out))
			return usage();
	}
	if (o.listen < 0)
		return usage();
	log_open(log, "cloche-switch", NULL, LOG_INFO);
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	int r = fd_set_nonblock(o.listen, true);
	if (r < 0) {
		log_error("descriptor of the socket: %s", strerror(-r));
		return STATUS_USAGE;
	}
	const struct cage_opts cage = { .role = CAGE_SWITCH, .uid = (uid_t)uid };
	struct swtch *s = NULL;
	if (cage_enter(&cage, &err) < 0) {
		log_error("%s%s%s", err.text, err.hint[0] ? ": " : "", err.hint);
		return STATUS_CAGE;
	}
	/* ---- from here on bytes from outside: the map is one, too ---- */
	s = switch_new(&o);
	r = switch_run(s);
	switch_free(s);
	if (r < 0)
		log_error("the shared network ends: %s", strerror(-r));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
