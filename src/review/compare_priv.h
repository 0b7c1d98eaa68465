/* SPDX-License-Identifier: Apache-2.0 */
/* compare_priv.h - the overlay of what earlier sets applied, and a name of apply's. */
#ifndef CLOCHE_REVIEW_COMPARE_PRIV_H
#define CLOCHE_REVIEW_COMPARE_PRIV_H

#include "review/changeset.h"

/* ".cloche-tmp-" and 16 letters of base32 */
#define COMPARE_TMP_PREFIX ".cloche-tmp-"
enum { COMPARE_TMP_LEN = 12 + 16 };

/* The last word about one path; a deletion before it is remembered, too. */
struct compare_applied {
	struct changeset_applied a;
	uint32_t seq;         /* from 1; the number of its record */
	uint32_t deleted_seq; /* of the last deletion of this path; 0: never */
};

struct compare_overlay {
	struct compare_applied *slots; /* open addressing; seq 0 is free */
	size_t cap;                    /* a power of two */
	size_t n;
};

/* Tables oldest first. A cut record at the end of a table ends that table. */
int compare_overlay_load(struct compare_overlay *o, const struct span *tables,
                         size_t n_tables) MUST_CHECK;
void compare_overlay_fini(struct compare_overlay *o);
const struct compare_applied *compare_overlay_find(const struct compare_overlay *o,
                                                   uint16_t project, struct span path);
/* The last deletion of a directory above @path; 0: none. */
uint32_t compare_overlay_deleted_above(const struct compare_overlay *o, uint16_t project,
                                       struct span path);

#endif
