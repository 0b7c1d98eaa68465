/* SPDX-License-Identifier: Apache-2.0 */
/*
 * erofs.h - writes EROFS images from any tree.
 *
 * The writer is pure but for its output: it pulls a tree out of a source
 * (struct erofs_source) and writes metadata to a descriptor. File data is never
 * touched here. It lies where the source says:
 *
 * - placed: already in the image at a block the source knows. An image built
 *   from a tar stream writes its data as it arrives, from block 1 on, and asks
 *   for the metadata behind it.
 * - to place: the writer gives out consecutive blocks behind the metadata and
 *   reports each through placed(). A workspace image is metadata only; its
 *   data is served on demand at those addresses.
 *
 * Format: uncompressed, 4096-byte blocks, 64-byte extended inodes, superblock
 * at byte 1024 (kernel: fs/erofs/erofs_fs.h, Documentation/filesystems/erofs.rst).
 * Directories and symlinks are inlined where they fit (tail packing); file data
 * is plain and block aligned. The same source gives the same bytes.
 *
 * Block addresses have 32 bits: an image ends below 16 TiB.
 */
#ifndef CLOCHE_EROFS_EROFS_H
#define CLOCHE_EROFS_EROFS_H

#include <sys/types.h>

#include "base/span.h"

struct err;

enum {
	EROFS_BLOCK_BYTES = 4096,
	EROFS_NAME_MAX = 255,
	EROFS_LINK_MAX = 4095,
	EROFS_INODES_MAX = 16 * 1000 * 1000,
	EROFS_XATTRS_MAX = 16,
	EROFS_XATTR_VALUE_MAX = 4096,
};

struct erofs_xattr {
	struct span name; /* whole: "security.capability", "user.x"; other prefixes are refused */
	struct span value;
};

/* One inode. Hard links are several dirents with one inode number. */
struct erofs_inode {
	uint32_t mode; /* S_IFMT and permission bits */
	uint32_t uid, gid;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t rdev;      /* character and block devices, as makedev() packs it */
	uint64_t size;      /* regular files: bytes */
	struct span link;   /* symlinks: their text, 1 to EROFS_LINK_MAX bytes */
	uint32_t n_dirents; /* directories: without "." and ".." */
	uint32_t parent;    /* directories: inode of the parent; the root's is itself */
	bool is_placed;     /* regular files of size > 0: data lies at block_at */
	uint64_t block_at;  /* absolute block number; all of it in [1, meta_block) */
	const struct erofs_xattr *xattrs; /* valid until the next call into the source */
	uint32_t n_xattrs;
};

struct erofs_dirent {
	struct span name; /* valid until the next call into the source */
	uint32_t inode;
	uint32_t mode; /* only S_IFMT is used */
};

/* Answers about a tree that stays the same while the writer runs. 0 or -errno ends the work. */
struct erofs_source {
	void *arg;
	/*
	 * Inode 0 is the root directory. Every other directory has exactly one
	 * dirent. Another inode without any is left out of the image.
	 */
	uint32_t n_inodes;
	int (*inode)(void *arg, uint32_t inode, struct erofs_inode *out);
	/* dirent @k of directory @dir, in span_cmp() order of names; never "." or ".." */
	int (*dirent)(void *arg, uint32_t dir, uint32_t k, struct erofs_dirent *out);
	/*
	 * Data of @inode goes to @block: called once, in order of inodes, for
	 * each regular file of size > 0 that is not placed. May be NULL.
	 */
	void (*placed)(void *arg, uint32_t inode, uint64_t block);
};

struct erofs_opts {
	uint8_t uuid[16];
	uint8_t volume[16]; /* NUL-padded name */
	int64_t build_time_s;
	uint64_t meta_block; /* first block of the metadata; 1, or behind placed data */
	uint64_t data_align; /* a file to place starts at a multiple of this block; 0 or 1: any */
};

struct erofs_result {
	uint64_t meta_block, meta_blocks; /* where the metadata lies */
	uint64_t data_block;   /* end of the metadata: data given out lies from here on */
	uint64_t image_blocks; /* whole image, data included; the file may end earlier */
	uint64_t inodes;       /* written */
};

/*
 * erofs_write() - write superblock (block 0) and metadata of @src to @fd.
 * @fd:	written with pwrite; block 0 and [meta_block, meta_block + meta_blocks).
 *	The superblock goes last: a work cut short leaves no valid image.
 *
 * The source is asked for everything twice and must answer the same. Memory is
 * O(inodes), 24 bytes each at most, besides what the source holds.
 *
 * Return: 0, -EINVAL for a tree the format cannot hold (@err names the inode),
 * -EFBIG over a limit, or -errno of the write.
 */
int erofs_write(int fd, const struct erofs_source *src, const struct erofs_opts *opts,
                struct erofs_result *out, struct err *err) MUST_CHECK;

#endif
