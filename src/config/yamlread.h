/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yamlread.h - a strict reading of small YAML files, with the place of everything.
 * The only adapter of libyaml.
 *
 * Refused, with line and column: a second document, aliases and anchors, tags,
 * duplicate keys, keys that are no scalars, merge keys, NUL bytes, text that is not
 * UTF-8, and what is beyond the limits below.
 *
 * Two ways to read: a tree whose nodes know their bytes (profiles, and edits that
 * leave the rest of a file as it is), and a walk over its sections of keys (config.yaml).
 */
#ifndef CLOCHE_CONFIG_YAMLREAD_H
#define CLOCHE_CONFIG_YAMLREAD_H

#include "base/mem.h"
#include "base/span.h"

struct err;

/* A key is compared with all others of its mapping, an entry of a list with none. */
enum {
	YNODE_DEPTH_MAX = 24,
	YNODE_COUNT_MAX = 50000,
	YNODE_WIDTH_MAX = 4096,
	YNODE_LIST_MAX = 16384
};

struct yaml_mark {
	unsigned line, column; /* from 1 */
};

enum ynode_kind { YNODE_NULL, YNODE_TEXT, YNODE_LIST, YNODE_MAP };

/* A value. In a mapping it also has a key. Children are the caller's to read, not to change. */
struct ynode {
	enum ynode_kind kind;
	bool plain;     /* TEXT: written without quotes */
	bool flow;      /* LIST, MAP: written in brackets */
	uint8_t source; /* what ynode_set_source() said; 0 at first */
	struct yaml_mark at, key_at;
	/* bytes of the input: of the key, and of the value (an empty NULL: begin == end). A block
	 * value ends behind the last byte of its last entry, comments not included. */
	size_t key_begin, key_end, begin, end;
	char *key, *text;
	struct ynode *child, *next;
	size_t n; /* children */
};

/*
 * ynode_parse() - the tree of a document. Pure.
 * @name:	of the file, for messages ("name:line:column: ...")
 * @out:	NULL for a document without content; else freed with ynode_free()
 *
 * Return: 0, -EINVAL with @err, -ENOMEM.
 */
int ynode_parse(struct ynode **out, const char *name, const void *p, size_t n,
                struct err *err) MUST_CHECK;
void ynode_free(struct ynode *n);

/* The value of @key in a mapping, or NULL (also when @map is NULL or no mapping). */
const struct ynode *ynode_get(const struct ynode *map, const char *key);

/* Say of @n and everything below it where it comes from. */
void ynode_set_source(struct ynode *n, uint8_t source);

/*
 * ynode_merge() - a new tree: @over laid over @base (each may be NULL). Mappings merge key by
 * key, anything else replaces. Every node keeps its source and place.
 */
struct ynode *ynode_merge(const struct ynode *base, const struct ynode *over) MUST_CHECK;

/* What YAML readers take a TEXT for. */
enum ynode_type {
	YNODE_STRING,
	YNODE_BOOL,      /* true, false */
	YNODE_NUMBER,    /* as JSON writes numbers */
	YNODE_AMBIGUOUS, /* plain, and some readers see no string: yes, 0x1, 1_0, 2024-01-01, ... */
};
enum ynode_type ynode_type(const struct ynode *text);

/*
 * ynode_json() - append the tree as JSON, keys in their order, numbers as they are written;
 * an ambiguous text comes out as a string. @indent: spaces at the left, or < 0 for one line.
 * Return: 0 or -ENOMEM.
 */
int ynode_json(struct buf *b, const struct ynode *n, int indent) MUST_CHECK;
/* A text as a JSON string, with its quotes; what is not UTF-8 as U+FFFD. */
int ynode_json_text(struct buf *b, const char *s) MUST_CHECK;

/*
 * Called by yaml_walk() for each value. @name NULL: the section itself (value NULL: it is a
 * mapping or empty). @in_list with @value NULL: a list begins. 0, or -errno with the
 * error set by the callee.
 */
typedef int (*yaml_value_fn)(void *arg, const char *section, const char *name, bool in_list,
                             const char *value, const struct yaml_mark *m);

/*
 * yaml_walk() - go over sections of keys with single values or lists of them; what is nested
 * deeper is an error. @top may be NULL, an empty document. Pure.
 * @name:	of the file, for messages
 * @skip:	this section is left out
 *
 * Return: 0, -EINVAL with @err ("name:line:column: ...").
 */
int yaml_walk(const char *name, const struct ynode *top, const char *skip, yaml_value_fn fn,
              void *arg, struct err *err) MUST_CHECK;

#endif
