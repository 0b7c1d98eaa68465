/* SPDX-License-Identifier: Apache-2.0 */
/*
 * erofs_reader.h - reads uncompressed EROFS images, for tests only.
 *
 * Written from the format (kernel: fs/erofs/erofs_fs.h) and on purpose without a
 * line of the writer, so that a shared mistake cannot hide. It is stricter than
 * a kernel: whatever a kernel could stumble over is an error. Every function
 * that can fail returns NULL, or what is wrong with the image.
 */
#ifndef CLOCHE_TESTS_EROFS_READER_H
#define CLOCHE_TESTS_EROFS_READER_H

#include <stddef.h>
#include <stdint.h>

struct er {
	const uint8_t *p; /* the image, at least up to the end of its metadata */
	size_t len;
	uint64_t root_nid, inodes, blocks, meta_at; /* meta_at: byte that nid 0 is at */
	const uint8_t *uuid, *volume;
};

struct er_inode {
	uint64_t nid, size;
	uint32_t mode, uid, gid, nlink, ino;
	uint32_t rdev;  /* devices */
	uint32_t block; /* first whole block */
	int layout;     /* 0: plain, 2: the tail is inline */
	int64_t mtime_s;
	uint32_t mtime_ns;
	const uint8_t *xattrs; /* entries; NULL: none */
	size_t xattrs_len;
	const uint8_t *tail; /* inline tail; NULL: none */
};

struct er_dirent {
	const uint8_t *name;
	size_t len;
	uint64_t nid;
	int type;
};

struct er_xattr {
	int index;
	const uint8_t *name, *value;
	size_t name_len, value_len;
};

const char *er_open(struct er *e, const void *p, size_t len);
const char *er_inode(const struct er *e, uint64_t nid, struct er_inode *out);
/* Block @k of what a directory or symlink holds. */
const char *er_block(const struct er *e, const struct er_inode *in, uint64_t k, const uint8_t **out,
                     size_t *out_len);
/* Calls @fn with every dirent; what that returns ends the walk. */
const char *er_readdir(const struct er *e, const struct er_inode *dir,
                       const char *(*fn)(void *arg, const struct er_dirent *d), void *arg);
/* By binary search, as the kernel does. *out_nid is 0 when there is none. */
const char *er_lookup(const struct er *e, const struct er_inode *dir, const void *name, size_t len,
                      uint64_t *out_nid);
/* The attribute at *pos of in->xattrs; moves *pos on. */
const char *er_xattr(const struct er_inode *in, size_t *pos, struct er_xattr *out);

#endif
