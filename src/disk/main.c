/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-disk - serves the workspace disk of one sandbox (disk.h).
 *
 * Trusts: who started it. The NBD client (QEMU, which the guest may have taken
 * over), the manifest and the metadata image (made by cloche-scan out of the
 * project) and the control peer (which parses what the guest says) are not
 * trusted. May touch: reads below the workspace directories, its cache file, two
 * sockets. A compromise yields what the guest may read anyway, and wrong data.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "cage/cage.h"
#include "disk/server.h"

enum { STATUS_USAGE = 2, STATUS_CAGE = 3 };

static int usage(void)
{
	(void)fprintf(stderr, "usage: cloche-disk --nbd FD --control FD --workspace FD... "
	                      "--cache FD --size BYTES [--uid UID] [--moved 1]\n");
	return STATUS_USAGE;
}

static bool number(const char *s, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(s, &end, 10);
	return *s >= '0' && *s <= '9' && *end == '\0' && errno == 0 && *out <= max;
}

static bool parse(int argc, char **argv, struct server_opts *o, uint64_t *uid)
{
	*o = (struct server_opts){ .nbd = -1, .control = -1, .cache = -1 };
	for (int i = 1; i < argc; i += 2) {
		const char *name = argv[i];
		bool is_size = strcmp(name, "--size") == 0;
		uint64_t v;

		if (i + 1 == argc || !number(argv[i + 1], is_size ? INT64_MAX : INT32_MAX, &v))
			return false;
		if (is_size)
			o->size = v;
		else if (strcmp(name, "--nbd") == 0)
			o->nbd = (int)v;
		else if (strcmp(name, "--control") == 0)
			o->control = (int)v;
		else if (strcmp(name, "--cache") == 0)
			o->cache = (int)v;
		else if (strcmp(name, "--uid") == 0)
			*uid = v;
		else if (strcmp(name, "--moved") == 0)
			o->moved = v != 0;
		else if (strcmp(name, "--workspace") == 0 &&
		         o->n_workspaces < SERVER_WORKSPACES_MAX)
			o->workspaces[o->n_workspaces++] = (int)v;
		else
			return false;
	}
	return o->nbd >= 0 && o->control >= 0 && o->cache >= 0 && o->n_workspaces > 0 &&
	       o->size >= 4096 && o->size % 4096 == 0;
}

int main(int argc, char **argv)
{
	struct cage_fs fs[SERVER_WORKSPACES_MAX];
	struct server_opts o;
	struct err err = { 0 };
	uint64_t uid = 0;

	if (!parse(argc, argv, &o, &uid))
		return usage();
	log_open(STDERR_FILENO, "cloche-disk", NULL, LOG_INFO);
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	for (size_t i = 0; i < o.n_workspaces; i++)
		fs[i] = (struct cage_fs){ .fd = o.workspaces[i], .access = CAGE_FS_READ };
	const struct cage_opts cage = {
		.role = CAGE_DISK,
		.fs = fs,
		.n_fs = o.n_workspaces,
		.uid = (uid_t)uid,
	};
	if (cage_enter(&cage, &err) < 0) {
		log_error("%s%s%s", err.text, err.hint[0] ? ": " : "", err.hint);
		return STATUS_CAGE;
	}
	/* ---- from here on bytes from outside ---- */
	return server_run(&o) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
