/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change.h - the change stream: what the guest's overlay upper holds.
 *
 * Phase 1, the index: a depth-first walk of the upper of /work, names of a
 * directory in span_cmp() order; each record has the name only, the place
 * follows from DIR and UP. Ordinals count the records from 0. Phase 2, the
 * blobs: for each ordinal the host asked for, a BLOB, its EXTENTs in ascending
 * order (what lies between is a hole), and a BLOB_END.
 *
 * Wire form of each: type u8, length u32 of what follows, then the fields.
 * The reader is a value machine fed with whole records; it checks order, depth,
 * names, counts and limits, so a stream that was accepted describes a tree. A
 * stream is never trusted beyond that: nothing on the host is touched by it.
 * The index file of a change set has the same form (re-encoded).
 */
#ifndef CLOCHE_WIRE_CHANGE_H
#define CLOCHE_WIRE_CHANGE_H

#include "base/hash.h"
#include "base/span.h"

enum {
	CHANGE_RECORDS_DEFAULT = 2 * 1000 * 1000,
	CHANGE_RECORDS_MAX = 8 * 1000 * 1000, /* for who asks for more: recover --limit */
	CHANGE_DEPTH_MAX = 256,
	CHANGE_NAME_MAX = 255,
	CHANGE_PATH_MAX = 64 * 1024,
	CHANGE_LINK_MAX = 4095,
	CHANGE_EXTENT_MAX = 32 * 1024, /* data bytes in one EXTENT */
	CHANGE_RECORD_MAX = CHANGE_EXTENT_MAX + 64,
};

enum change_type {
	CHANGE_DIR = 1,      /* enter; name, mode, mtime, opaque */
	CHANGE_UP = 2,       /* leave */
	CHANGE_FILE = 3,     /* name, mode, mtime, size, hash */
	CHANGE_LINK = 4,     /* name, mtime, text */
	CHANGE_WHITEOUT = 5, /* name */
	CHANGE_SPECIAL = 6,  /* name, mode with S_IFMT: reported, never created */
	CHANGE_END = 7,      /* number of records before it */
	CHANGE_BLOB = 16,    /* ordinal, size */
	CHANGE_EXTENT = 17,  /* offset, bytes */
	CHANGE_BLOB_END = 18,
	CHANGE_BLOBS_END = 19,
};

enum {
	CHANGE_OPAQUE = 1,   /* directory: nothing of the baseline's children is left */
	CHANGE_SUSPECT = 2,  /* file: zero length after a crash of the machine (recover) */
	CHANGE_HARDLINK = 4, /* file: has another name in this upper */
};

struct change_record {
	uint8_t type;
	uint8_t flags;
	uint32_t mode; /* permission bits 07777; SPECIAL: S_IFMT, too */
	int64_t mtime_ns;
	uint64_t size;     /* FILE, BLOB: bytes */
	uint64_t offset;   /* EXTENT */
	uint32_t ordinal;  /* BLOB; END: the count */
	struct hash hash;  /* FILE */
	struct span name;  /* borrowed */
	struct span bytes; /* LINK: text; EXTENT: data; borrowed */
};

/* The next record of a buffer. 0 with *out_used; -EAGAIN when cut; -EPROTO. */
int change_parse(struct change_record *out, const void *buf, size_t len,
                 size_t *out_used) MUST_CHECK;
/* Bytes written, or 0 when it does not fit or breaks a limit. */
size_t change_put(uint8_t *dst, size_t cap, const struct change_record *r) MUST_CHECK;

/* Checks that a sequence of index records is a walk of a tree. */
struct change_walk {
	uint32_t count; /* records taken so far == ordinal of the next */
	uint32_t records_max;
	uint64_t bytes, bytes_max; /* sum of FILE sizes */
	uint32_t depth;
	uint64_t path_len;
	bool ended;
	/* name last seen at each depth, for the order; storage of the machine */
	uint8_t last[CHANGE_DEPTH_MAX + 1][CHANGE_NAME_MAX];
	uint16_t last_len[CHANGE_DEPTH_MAX + 1];
	uint16_t name_len[CHANGE_DEPTH_MAX + 1];
};
void change_walk_init(struct change_walk *w, uint32_t records_max, uint64_t bytes_max);
/* 0; -EPROTO; -EFBIG over records_max or bytes_max; -ENAMETOOLONG over depth or path. */
int change_walk_take(struct change_walk *w, const struct change_record *r) MUST_CHECK;

/* Checks phase 2 record by record: ordinals ascending, extents ascending and within the size. */
struct change_blobs {
	bool in_blob, ended, any;
	uint32_t ordinal;
	uint64_t size, at;
};
int change_blobs_take(struct change_blobs *b, const struct change_record *r) MUST_CHECK;

#endif
