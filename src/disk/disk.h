/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h - cloche-disk, the process that serves a sandbox's workspace disk, as
 * its monitor or worker sees it: descriptors, and messages of the control socket.
 *
 *	cloche-disk --nbd FD --control FD --workspace FD [--workspace FD]...
 *	            --cache FD --size BYTES [--uid UID] [--moved 1]
 *
 * --nbd	stream socket; the other end is QEMU's `driver=nbd,server.type=fd`.
 *		Read-only export "" of --size bytes (a multiple of 4096)
 * --control	seqpacket socket, the messages below. Its end ends the process
 * --workspace	a directory each, in the order of the manifest's projects
 * --cache	a sparse file that this process alone reads and writes: file data at
 *		the same offsets as in the image
 * --uid	of the cage, when started as root
 * --moved	recover: the directories may be others than those that were scanned
 *
 * The process starts before the tree was scanned: reads below DISK_EARLY_BYTES
 * answer zeros, others wait for DISK_READY. A guest drops what it has cached of
 * the disk (BLKFLSBUF) before it mounts it.
 *
 * From then on a regular file's data comes from the workspace, and only while
 * size, mtime, ctime, inode and device are those of the manifest before and
 * after each read; or from the cache once it was frozen. A file that the host
 * changed before that answers EIO from then on, and DISK_CHANGED says so once.
 * Nothing is written to the cache before DISK_FREEZE.
 *
 * A message is one packet, little endian: type u16, 0 u16, then the fields in the
 * order of struct disk_msg. Exactly as long as its type says, or -EPROTO: the
 * process ends on one. The disk answers in the order of requests of one type.
 */
#ifndef CLOCHE_DISK_DISK_H
#define CLOCHE_DISK_DISK_H

#include "base/hash.h"
#include "base/span.h"

enum {
	DISK_EARLY_BYTES = 1024 * 1024,
	DISK_DATA_MAX = 32 * 1024,
	DISK_MSG_MAX = DISK_DATA_MAX + 64,
	DISK_REQUESTS_MAX = 64, /* of HASH; more are read when some are done */
};

enum disk_type {
	/* to the disk */
	DISK_READY = 1,    /* with two descriptors: manifest, metadata image */
	DISK_HASH = 2,     /* entry */
	DISK_READ = 3,     /* entry, offset, length (1 to DISK_DATA_MAX) */
	DISK_FREEZE = 4,   /* on: copy files to the cache while idle; off: stop that */
	DISK_STATS = 5,    /* no fields */
	DISK_SHUTDOWN = 6, /* no fields; the process ends with status 0 */

	/* from the disk */
	DISK_READY_DONE = 0x101,  /* status; -ESTALE: --workspace is not what was scanned */
	DISK_HASH_DONE = 0x102,   /* entry, status, hash (zeros on an error) */
	DISK_READ_DONE = 0x103,   /* entry, status, offset, data (short at the end of the file) */
	DISK_FREEZE_DONE = 0x104, /* status: why the freeze ended, unasked; see below */
	DISK_STATS_DONE = 0x105,  /* stats */
	DISK_CHANGED = 0x106,     /* entry: the host changed it before its capture; unasked */
};

/*
 * status is 0 or -errno. Of HASH and READ: -ESTALE the host changed the file
 * before its capture; -EINVAL no regular file of the image; -EAGAIN no image yet;
 * others: the host cannot read it now. Of FREEZE_DONE: 0 all files are frozen (or
 * changed); -ENOSPC the cache's file system is below its reserve, files that are
 * not frozen go on to be read from the workspace; others: the cache cannot be written.
 */

struct disk_stats {
	uint32_t files;           /* regular files with data in the image */
	uint32_t frozen;          /* of these in the cache */
	uint32_t changed;         /* of these changed before their capture */
	uint32_t freezing;        /* 1: DISK_FREEZE is on and not done */
	uint64_t frozen_bytes;    /* sum of sizes */
	uint64_t requests;        /* NBD reads answered */
	uint64_t bytes;           /* answered to them */
	uint64_t errors;          /* NBD reads answered with an error */
	uint64_t workspace_opens; /* files opened in the workspace */
};

struct disk_msg {
	uint16_t type;
	uint8_t on;       /* FREEZE: 0 or 1 */
	uint32_t entry;   /* index in the manifest */
	int32_t status;   /* 0, or -4095 to -1 */
	uint64_t offset;  /* READ */
	uint32_t length;  /* READ */
	struct hash hash; /* HASH_DONE */
	struct span data; /* READ_DONE; borrowed from the packet, at most DISK_DATA_MAX */
	struct disk_stats stats;
};

/* Read one packet. 0 or -EPROTO. */
int disk_msg_parse(struct disk_msg *out, const void *p, size_t len) MUST_CHECK;

/* Bytes written to @dst, or 0 when it does not fit or breaks a limit. */
size_t disk_msg_put(uint8_t *dst, size_t cap, const struct disk_msg *m) MUST_CHECK;

/* Descriptors that belong to a message of @type: 2 for READY, else 0. */
size_t disk_msg_fds(uint16_t type);

#endif
