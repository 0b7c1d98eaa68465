/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swmap.h - which name has which address in the shared network.
 *
 * Pure: a table, and its text. Addresses are 10.87.0.16 to 10.87.254.254; a name
 * gets the lowest that is free, and keeps it: for ever when it is a name that is
 * kept, else as long as it is there. There are at most SWMAP_NAMES_MAX. Only kept
 * names are in the text:
 *
 *   cloche-switch 1
 *   10.87.0.16 demo
 *   end 1
 *
 * by rising address. A text that is anything else is corrupt, as a whole.
 */
#ifndef CLOCHE_NET_SWMAP_H
#define CLOCHE_NET_SWMAP_H

#include "base/ip.h"
#include "base/mem.h"

#define SWMAP_FIRST IP4(10, 87, 0, 16)
#define SWMAP_LAST IP4(10, 87, 254, 254)

enum { SWMAP_NAMES_MAX = 4096, SWMAP_TEXT_MAX = 512 * 1024 };

struct swmap;

struct swmap *swmap_new(void) MUST_CHECK; /* aborts without memory */
void swmap_free(struct swmap *m);

/* Replace what @m has. Return: 0, or -EPROTO, and then @m is empty. */
int swmap_parse(struct swmap *m, struct span text) MUST_CHECK;
/* Append the text to @out. Return: 0, -ENOMEM. */
int swmap_put(const struct swmap *m, struct buf *out) MUST_CHECK;

/*
 * swmap_assign() - the address of @name (swmsg_name_ok()).
 * @want:	taken when the name has none yet and it is free; 0: any
 * @keep:	a name that was kept stays so
 * Return: 0, -ENOSPC.
 */
int swmap_assign(struct swmap *m, struct span name, uint32_t want, bool keep,
                 uint32_t *out_addr) MUST_CHECK;
/* Take the address away; it was @*out_addr. Return: 0, -ENOENT. */
int swmap_remove(struct swmap *m, struct span name, uint32_t *out_addr) MUST_CHECK;
/* The same for a name that is not kept; others stay. */
void swmap_release(struct swmap *m, struct span name);

size_t swmap_count(const struct swmap *m);

#endif
