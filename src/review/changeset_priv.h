/* SPDX-License-Identifier: Apache-2.0 */
/* changeset_priv.h - what the files of the change set share. */
#ifndef CLOCHE_REVIEW_CHANGESET_PRIV_H
#define CLOCHE_REVIEW_CHANGESET_PRIV_H

#include "review/changeset.h"

/* Read and check `meta.json` of @dir_fd. @out is zeroed on failure. 0 or -errno. */
int changeset_meta_read(int dir_fd, struct changeset_meta *out, struct err *err) MUST_CHECK;
/* Parse its bytes; pure. 0, -EPROTO. */
int changeset_meta_parse(struct changeset_meta *out, struct span text) MUST_CHECK;
/* Write it by rename, synced. 0 or -errno. */
int changeset_meta_write(int dir_fd, const struct changeset_meta *m, struct err *err) MUST_CHECK;

/* Is @index a walk of a tree that ends with the file? 0 with the number of records; pure. */
int changeset_check_index(struct span index, uint32_t *out_records) MUST_CHECK;

/* Whole entries, ascending, of records that exist? 0 or -EPROTO; pure. */
int changeset_check_base(const struct changeset *s) MUST_CHECK;

/* Hash of a mapped file, its pages let go when it is large. */
void changeset_hash_map(struct span map, struct hash *out);

/* Let the pages of a mapping between *from and @to go; *from becomes @to. */
void changeset_drop(struct span map, size_t *from, size_t to);

#endif
