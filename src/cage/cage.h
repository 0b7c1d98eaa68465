/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cage.h - a process gives up everything it does not need, before it reads the
 * first byte from outside.
 *
 * Layers, outermost first; each is tried for real and reported:
 *   limits     core dumps off, not dumpable (own programs), rlimits
 *   namespaces mount (an empty read-only root), net (but CAGE_RELAY), ipc, uts:
 *              directly as root, in a user namespace of our own otherwise
 *   ids        as root: the unprivileged uid that the caller chose; capabilities
 *              away, but what the role's table keeps
 *   landlock   every access to files denied but what opts.fs lists; TCP denied
 *              (ABI 4), device ioctls (5), abstract sockets and signals (6)
 *   seccomp    an allow-list per role, all else kills the process; a few calls
 *              that the C library tries on its own answer an error instead
 *
 * The floor: no_new_privs, seccomp, and landlock or the empty root. Below it
 * cage_enter() refuses, with the reason and the remedy. There is no pid
 * namespace: it would hold only for children, which no role may have, and every
 * call that names another process is denied by the filter instead.
 *
 * Call cage_enter() with ONE thread (start threads after it), with all inputs
 * open, and with everything that is loaded lazily (locale, iconv, NSS, libgit2
 * and curl initialisation, log descriptor) already loaded. Nothing can be
 * gained afterwards. A role's list is in roles.c: a library that needs one more
 * call shows as a death by SIGSYS; run the program's test on each supported C
 * library before adding one.
 *
 * What all roles may do: read, write, seek, poll, epoll, timers, memory, futex,
 * time, random, close, fcntl (flags and locks, never F_SETOWN), abort, exit.
 * open() and the like that a role does not have answer EACCES, not death, as
 * the C library opens files on its own (malloc: /proc/sys/vm/overcommit_memory).
 */
#ifndef CLOCHE_CAGE_CAGE_H
#define CLOCHE_CAGE_CAGE_H

#include <sys/types.h>

#include "base/util.h"

struct err;

enum cage_role {
	CAGE_SCAN,   /* threads; openat, openat2, getdents64, statx, readlinkat */
	CAGE_DISK,   /* threads; as SCAN, pread and pwrite, copy_file_range, FICLONERANGE,
	                fallocate, fsync, sendmsg and recvmsg on inherited sockets */
	CAGE_WORKER, /* one thread; frames, QMP: sendmsg, recvmsg, signalfd; creates, renames,
	                removes and syncs below the fs entries */
	CAGE_IMAGE,  /* one thread; reads a pipe, writes one file; no open */
	CAGE_APPLY,  /* one thread; creates, renames, removes, chmods, chowns, xattrs below the
	                workspace fd, copies, FICLONERANGE; as root it keeps what chown needs */
	CAGE_REVIEW, /* one thread; opens read-only below the fs entries, writes to its fds */
	CAGE_RELAY,  /* one thread; in the host's network: makes TCP and UDP sockets, connects,
	                binds (to learn whether an address is the host's), accepts on inherited
	                ones; never listens; no open */
	CAGE_NET,    /* one thread; sendmsg, recvmsg, AF_UNIX socketpairs of its own; no open */
	CAGE_SWITCH, /* one thread; accept, sendmsg, recvmsg on inherited sockets; no open */
	CAGE_QEMU,   /* execve, then a deny-list (EPERM): see cloche-cage */
	CAGE_ROLES
};

/* What of opts.fs may be done below a directory, or to a file. Bits. */
enum {
	CAGE_FS_READ = 1,  /* open for reading, list */
	CAGE_FS_WRITE = 2, /* open for writing, truncate, create, rename, link, remove */
	CAGE_FS_EXEC = 4,  /* execute: CAGE_QEMU only */
	CAGE_FS_DEV = 8,   /* a device: read, write, ioctl */
	CAGE_FS_LIB = 16,  /* with READ: may be mapped as code, not executed: CAGE_QEMU only */
};

/* By descriptor: for programs of ours. */
struct cage_fs {
	int fd; /* a directory; borrowed. In an empty root it is REPLACED, at the same
	           number, by one that has no way up (".."); directories that are open
	           and not listed are CLOSED */
	unsigned access;
};

/* By path: for CAGE_QEMU. Bound at the same path in the empty root. */
struct cage_path {
	const char *path; /* absolute */
	unsigned access;
	bool optional; /* left out when it does not exist */
};

/* Layers that hold. Bits of out_layers, skip_layers and cage_probe.layers. */
enum {
	CAGE_NO_NEW_PRIVS = 1 << 0,
	CAGE_SECCOMP = 1 << 1,
	CAGE_LANDLOCK = 1 << 2,
	CAGE_LANDLOCK_NET = 1 << 3,
	CAGE_LANDLOCK_SCOPE = 1 << 4,
	CAGE_USERNS = 1 << 5,
	CAGE_MOUNTNS = 1 << 6, /* with the empty root */
	CAGE_NETNS = 1 << 7,
	CAGE_IPCNS = 1 << 8,
	CAGE_UID = 1 << 9, /* runs as an unprivileged uid of its own */
};

struct cage_opts {
	enum cage_role role;
	const struct cage_fs *fs; /* what may be opened; descriptors that are open stay usable */
	size_t n_fs;
	const struct cage_path *paths; /* CAGE_QEMU only */
	size_t n_paths;
	uint64_t memory_max; /* address space in bytes; 0: the role's */
	unsigned nofile_max; /* descriptors; 0: the role's */
	/*
	 * Started as root (real uid 0): become this uid and gid, no groups. 0: stay
	 * root without capabilities. Ignored otherwise. CAGE_APPLY ignores it.
	 * Directories that the role writes to must belong to it; SCAN, DISK and REVIEW keep
	 * CAP_DAC_READ_SEARCH, so they read what root may read below their fds.
	 */
	uid_t uid;
	unsigned skip_layers; /* tests: as if the host did not offer these */
	unsigned *out_layers; /* set on success, and on refusal to what did hold; may be NULL */
};

/*
 * cage_enter() - enter the cage; there is no way back.
 * PR_SET_PDEATHSIG, when set, still holds afterwards.
 *
 * Return: 0; -EPERM when the host offers less than the floor, -EBUSY with more
 * than one thread, other -errno. On an error the process is half caged and
 * should end. @err is filled with the remedy.
 */
int cage_enter(const struct cage_opts *o, struct err *err) MUST_CHECK;

/* What this host offers, found by really entering cages in forked children. */
struct cage_probe {
	unsigned layers;
	int landlock_abi; /* 0: none */
	bool floor;       /* cage_enter() will succeed */
	bool root;        /* asked as root */
	char why[256];    /* why not, when !floor */
};

/* Return: 0 or -errno (no process to be had). Takes a few milliseconds. */
int cage_probe(struct cage_probe *out) MUST_CHECK;
/* ... for one role of our own programs, not CAGE_QEMU: what that program will get. */
int cage_probe_role(enum cage_role role, struct cage_probe *out) MUST_CHECK;

/* "seccomp landlock userns mountns netns ipcns uid" in @dst. Return: @dst. */
const char *cage_layers_str(char *dst, size_t cap, unsigned layers);

/*
 * cage_uid_pick() - the uid (and gid) of one sandbox's helpers, when started as root.
 *
 * Reserved range: 0x7f000000 to 0x7ffdffff. Below are login uids, useradd's
 * subordinate ranges (100000 to 600100000 by default) and systemd's container
 * ranges (up to 0x6fffffff); above are systemd's foreign range (0x7ffe0000) and
 * what does not fit a signed int. Where the administrator gave a part of it away
 * in /etc/subuid or /etc/subgid it is left out. In a container that maps only
 * 65536 ids one from 64000 to 64999 is taken.
 * @seed:	random; the same seed gives the same uid on one host
 *
 * Return: 0, or -ENOENT when no id can be had.
 */
int cage_uid_pick(uint32_t seed, uid_t *out) MUST_CHECK;

#endif
