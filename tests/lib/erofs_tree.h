/* SPDX-License-Identifier: Apache-2.0 */
/*
 * erofs_tree.h - trees in memory for tests of the EROFS writer: built by hand or
 * by chance, given to the writer as a source, compared with what the
 * independent reader finds in the image.
 */
#ifndef CLOCHE_TESTS_EROFS_TREE_H
#define CLOCHE_TESTS_EROFS_TREE_H

#include "erofs/erofs.h"

struct et_name {
	uint8_t *name;
	size_t len;
	uint32_t inode;
};

struct et_inode {
	struct erofs_inode in;
	struct et_name *names; /* directories; sorted by et_sort() */
	uint32_t n_names, cap_names;
	struct erofs_xattr xattrs[EROFS_XATTRS_MAX];
	uint32_t refs;
	uint64_t block; /* what placed() said; 0: nothing */
};

struct et {
	struct et_inode *v;
	uint32_t n, cap;
	uint32_t placed_calls;
};

/* Where choices come from: bytes of an input, or a seed for ever. */
struct et_rng {
	const uint8_t *p;
	size_t left;
	bool seeded;
	uint64_t state;
};

void et_init(struct et *t); /* an empty root */
void et_fini(struct et *t);
/* A new inode without a name. */
uint32_t et_inode(struct et *t, uint32_t mode);
/* Name @inode in directory @dir; false when the name is there already. */
bool et_name(struct et *t, uint32_t dir, const void *name, size_t len, uint32_t inode);
/* Both. */
uint32_t et_add(struct et *t, uint32_t dir, const char *name, uint32_t mode);
void et_link_text(struct et *t, uint32_t inode, const void *text, size_t len);
void et_xattr(struct et *t, uint32_t inode, const char *name, const void *value, size_t len);
void et_sort(struct et *t);

/* A number below @n (> 0); 0 when the input is used up. */
uint32_t et_pick(struct et_rng *r, uint32_t n);
bool et_more(const struct et_rng *r);
/* Grow @t by chance up to @max_inodes; sorted. File sizes stay below @max_size. */
void et_random(struct et *t, struct et_rng *r, uint32_t max_inodes, uint64_t max_size);

struct erofs_source et_source(struct et *t);

/* NULL, or how the image of @len bytes at @p differs from @t. Allocates its own memory. */
const char *et_compare(const struct et *t, const void *p, size_t len, const struct erofs_opts *o,
                       const struct erofs_result *r);

#endif
