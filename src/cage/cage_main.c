/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-cage - run another program, QEMU, in a cage.
 *
 * Trusts: its arguments (from our monitor). Reads nothing from outside. Touches:
 * only what the cage needs (namespaces, mounts in its own, its own ids). What it
 * starts keeps the inherited descriptors, sees read-only copies of the listed
 * paths and nothing else, and cannot open a socket, start a program or name
 * another process. It stays the same process, so the monitor's pidfd and the
 * death signal of its parent are QEMU's.
 *
 *   cloche-cage --role qemu [--uid N] [--exec PATH] [--lib PATH] [--ro PATH]
 *               [--dev PATH] [--skip BITS] [--report] -- PROGRAM ARGUMENT...
 *
 * --exec may be executed, --lib may be mapped as code, --ro may be read, --dev
 * is a device; a '?' before the path makes it optional. PROGRAM itself need not
 * be listed. --report writes "cage: LAYERS" to stderr.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "cage/cage.h"

enum { PATHS_MAX = 64, EXIT_REFUSED = 125, EXIT_NO_EXEC = 126 };

/* What a dynamically linked program of the distribution needs. */
static const struct cage_path system_paths[] = {
	{ .path = "/usr/lib", .access = CAGE_FS_READ | CAGE_FS_LIB },
	{ .path = "/usr/lib64", .access = CAGE_FS_READ | CAGE_FS_LIB, .optional = true },
	{ .path = "/lib", .access = CAGE_FS_READ | CAGE_FS_LIB },
	{ .path = "/lib64", .access = CAGE_FS_READ | CAGE_FS_LIB, .optional = true },
	/* the kernel opens it to execute, when it starts PROGRAM */
	{ .path = "/lib64/ld-linux-x86-64.so.2",
	  .access = CAGE_FS_READ | CAGE_FS_EXEC,
	  .optional = true },
	{ .path = "/etc/ld.so.cache", .access = CAGE_FS_READ, .optional = true },
	{ .path = "/dev/null", .access = CAGE_FS_DEV },
	{ .path = "/dev/urandom", .access = CAGE_FS_DEV },
};

NORETURN static void usage(const char *what)
{
	(void)fprintf(stderr,
	              "cloche-cage: %s\nusage: cloche-cage --role qemu [--uid N] "
	              "[--exec|--lib|--ro|--dev PATH]... [--report] -- PROGRAM ARGUMENT...\n",
	              what);
	exit(EXIT_REFUSED);
}

static unsigned long number(const char *s)
{
	char *end;

	errno = 0;
	unsigned long v = strtoul(s, &end, 0);
	if (errno || end == s || *end || v > 0x7fffffff)
		usage("not a number");
	return v;
}

/* The access that an option name gives, or 0. */
static unsigned access_of(const char *option)
{
	if (strcmp(option, "--exec") == 0)
		return CAGE_FS_READ | CAGE_FS_EXEC;
	if (strcmp(option, "--lib") == 0)
		return CAGE_FS_READ | CAGE_FS_LIB;
	if (strcmp(option, "--ro") == 0)
		return CAGE_FS_READ;
	if (strcmp(option, "--dev") == 0)
		return CAGE_FS_DEV;
	return 0;
}

int main(int argc, char **argv)
{
	static struct cage_path paths[PATHS_MAX];
	unsigned layers = 0;
	struct cage_opts o = { .role = CAGE_ROLES, .paths = paths, .out_layers = &layers };
	bool report = false;
	struct err err = { 0 };
	int i;

	for (size_t k = 0; k < ARRAY_LEN(system_paths); k++)
		paths[o.n_paths++] = system_paths[k];
	for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		unsigned access = access_of(argv[i]);

		if (strcmp(argv[i], "--report") == 0) {
			report = true;
			continue;
		}
		if (i + 1 >= argc)
			usage("an option without its value");
		const char *value = argv[++i];
		if (access) {
			if (o.n_paths >= PATHS_MAX - 1)
				usage("too many paths");
			bool optional = value[0] == '?';
			paths[o.n_paths++] = (struct cage_path){ .path = value + optional,
				                                 .access = access,
				                                 .optional = optional };
		} else if (strcmp(argv[i - 1], "--role") == 0 && strcmp(value, "qemu") == 0) {
			o.role = CAGE_QEMU;
		} else if (strcmp(argv[i - 1], "--uid") == 0) {
			o.uid = (uid_t)number(value);
		} else if (strcmp(argv[i - 1], "--skip") == 0) {
			o.skip_layers = (unsigned)number(value);
		} else {
			usage("an option that is not known");
		}
	}
	if (o.role != CAGE_QEMU)
		usage("--role qemu is missing");
	if (i + 1 >= argc || argv[i + 1][0] != '/')
		usage("PROGRAM must be an absolute path behind '--'");
	argv += i + 1;
	paths[o.n_paths++] =
		(struct cage_path){ .path = argv[0], .access = CAGE_FS_READ | CAGE_FS_EXEC };
	if (cage_enter(&o, &err) < 0) {
		(void)fprintf(stderr, "cloche-cage: %s\n", err.text);
		if (err.hint[0])
			(void)fprintf(stderr, "hint: %s\n", err.hint);
		return EXIT_REFUSED;
	}
	if (report) {
		char b[128];

		(void)fprintf(stderr, "cage: %s\n", cage_layers_str(b, sizeof(b), layers));
	}
	char *none[] = { NULL };
	(void)execve(argv[0], argv, none);
	(void)fprintf(stderr, "cloche-cage: cannot execute '%s': %s\n", argv[0], strerror(errno));
	return EXIT_NO_EXEC;
}
