/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - a file system tree merged from archive entries, in memory.
 *
 * Pure: entries in, a tree for the EROFS writer out. File data is elsewhere
 * (blocks of the image that is being written); a node only says where. Rules:
 *
 * - names are relative, "./" in front and one '/' behind are dropped, ".." and
 *   an absolute name are refused, and so is a path through anything that is not
 *   a directory, a symlink above all;
 * - a later entry replaces an earlier one of the same name, with all below it;
 *   a directory on a directory only takes the new owner, mode and time;
 * - parents that the archive left out are made, 0755 root;
 * - a hard link needs an earlier target that is not a directory.
 *
 * Memory is bounded by the limits: about 150 bytes and the name for each entry.
 */
#ifndef CLOCHE_IMAGE_TREE_H
#define CLOCHE_IMAGE_TREE_H

#include "base/span.h"
#include "erofs/erofs.h"

enum {
	TREE_ENTRIES_MAX = 1000 * 1000,
	TREE_DEPTH_MAX = 128,
	TREE_TEXT_MAX = 256 * 1024 * 1024, /* names, link texts and xattrs together */
	TREE_XATTRS_MAX = 8,               /* a node */
};
#define TREE_BYTES_MAX ((uint64_t)30 << 30)
#define TREE_NONE UINT32_MAX

struct tree_limits {
	uint32_t entries; /* 0: TREE_ENTRIES_MAX */
	uint64_t bytes;   /* of file data; 0: TREE_BYTES_MAX */
};

struct tree_meta {
	uint32_t mode; /* S_IFMT and 07777 */
	uint32_t uid, gid;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t rdev;
	struct span link; /* symlinks */
	uint64_t size;    /* regular files */
	const struct erofs_xattr *xattrs;
	size_t n_xattrs;
};

struct tree;

struct tree *tree_new(const struct tree_limits *lim) MUST_CHECK; /* NULL without memory */
void tree_free(struct tree *t);

/*
 * tree_add() - put one entry at @path.
 * @out_node:	the node, for tree_set_block(); may be NULL
 *
 * Return: 0; -EPROTO for a name, type or path that is refused; -EFBIG over a
 * limit; -ENOMEM. The tree is unchanged on failure, but for parents made.
 */
int tree_add(struct tree *t, struct span path, const struct tree_meta *m,
             uint32_t *out_node) MUST_CHECK;

/* A hard link at @path to what is at @target now. As tree_add(). */
int tree_add_link(struct tree *t, struct span path, struct span target) MUST_CHECK;

/* A file at @path with metadata @m and the data of the file at @from (same blocks). */
int tree_add_copy(struct tree *t, struct span path, struct span from,
                  const struct tree_meta *m) MUST_CHECK;

/* Data of a regular file lies at @block of the image. */
void tree_set_block(struct tree *t, uint32_t node, uint64_t block);

/* Remove @path with all below. Return: 0, or -ENOENT. */
int tree_remove(struct tree *t, struct span path);

/* Remove all that is below the directory @path; it stays. Return: 0, or -ENOENT. */
int tree_empty(struct tree *t, struct span path);

/*
 * Layers over each other: what is added from now on is of the next layer.
 * tree_whiteout() - remove what earlier layers have at @path; nothing there is fine.
 * tree_opaque() - remove what earlier layers have below the directory @path.
 * Return: 0, or -EPROTO for a path that is refused, or that is no directory.
 */
void tree_next_layer(struct tree *t);
int tree_whiteout(struct tree *t, struct span path) MUST_CHECK;
int tree_opaque(struct tree *t, struct span path) MUST_CHECK;

/* Return: the node at @path (no link followed), or TREE_NONE. */
uint32_t tree_lookup(const struct tree *t, struct span path);

/* The mode of a node. */
uint32_t tree_mode(const struct tree *t, uint32_t node);

/* How many entries were dropped xattrs of: others than security.capability and user.*. */
uint32_t tree_xattrs_dropped(const struct tree *t);

/*
 * tree_source() - the tree as the EROFS writer reads it.
 * Sorts and numbers; the tree must not change any more, and lives longer than @out.
 *
 * Return: 0 or -ENOMEM.
 */
int tree_source(struct tree *t, struct erofs_source *out) MUST_CHECK;

#endif
