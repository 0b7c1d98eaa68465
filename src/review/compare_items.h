/* SPDX-License-Identifier: Apache-2.0 */
/* compare_items.h - what a comparison holds, for the files that make, judge and tell it. */
#ifndef CLOCHE_REVIEW_COMPARE_ITEMS_H
#define CLOCHE_REVIEW_COMPARE_ITEMS_H

#include "review/changeset_priv.h"
#include "review/compare.h"
#include "review/compare_priv.h"

struct ignore_set;

enum { COMPARE_NO_OFFSET = -1 };

struct compare_item {
	int64_t at; /* offset of its record; COMPARE_NO_OFFSET for a virtual one */
	uint32_t slot;
	uint32_t entry;
	uint32_t node; /* directory that holds it */
	uint32_t subtree;
	uint32_t renamed;
	uint16_t flags;
	uint8_t kind;
	uint8_t why;
	uint8_t tier;
};

/* A directory of the index. Node 0 is the root that holds the projects. */
struct compare_node {
	int64_t at; /* its DIR record; COMPARE_NO_OFFSET for node 0 */
	uint32_t parent;
	uint32_t entry;
	uint32_t type_item; /* item that made it a directory, or COMPARE_NONE */
	uint16_t project;
	uint16_t depth; /* 0: root, 1: a project */
	bool bare;      /* shaped like a bare git repository */
};

struct compare {
	const struct changeset *set;
	struct compare_item *items;
	uint32_t n_items, cap_items;
	struct compare_node *nodes;
	uint32_t n_nodes, cap_nodes;
	uint32_t n_virtual;
	struct compare_overlay overlay;
	struct ignore_set **git_rules, **hide_rules; /* one a project */
	uint32_t n_rules;
	struct compare_summary sum;
	struct hash empty; /* of no bytes */
};

/* The record at offset @at of the index, which was checked when the set was opened. */
struct change_record compare_record_at(const struct compare *c, int64_t at);

/* The name of a directory of the index; empty for the root. */
struct span compare_node_name(const struct compare *c, uint32_t node);

/*
 * The tier (enum classify_tier) of @it, whose path below the project is @path.
 * Sets @out_reason to a constant text unless the tier is the plain one.
 */
uint8_t compare_judge(const struct compare *c, const struct compare_item *it, struct span path,
                      const char **out_reason);

/* Judge all items and count them into c->sum. 0 or -ENOMEM. */
int compare_finish(struct compare *c) MUST_CHECK;

#endif
