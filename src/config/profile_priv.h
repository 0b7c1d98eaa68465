/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile_priv.h - the schema of profiles as tables: profile_schema.c fills them,
 * profile.c reads a tree by them.
 */
#ifndef CLOCHE_CONFIG_PROFILE_PRIV_H
#define CLOCHE_CONFIG_PROFILE_PRIV_H

#include "config/profile.h"

enum pkey_kind {
	PKEY_TEXT,  /* const char * */
	PKEY_BOOL,  /* bool */
	PKEY_INT,   /* uint64_t, from min to max */
	PKEY_SIZE,  /* uint64_t bytes, from min to max */
	PKEY_ENUM,  /* unsigned: index of words */
	PKEY_TEXTS, /* struct profile_texts, at most max of them, each once unless repeats */
	PKEY_INTS,  /* {uint64_t *v; size_t n}, each from min to max */
	PKEY_MAP,   /* the struct of shape */
	PKEY_LIST,  /* {struct of shape *v; size_t n}, at most max */
	PKEY_DICT,  /* the same, from a mapping: the struct begins with name and value */
	PKEY_TREE,  /* const struct ynode *: any mapping */
};

struct load;
struct pshape;

struct pkey {
	const char *name;
	enum pkey_kind kind;
	size_t at; /* offset in the struct of this level */
	const char *what;
	bool required, repeats, secret_value;
	bool (*ok)(const char *s); /* TEXT, TEXTS, and values of a DICT */
	const char *const *words;  /* ENUM, TEXTS: NULL-terminated */
	uint64_t min, max;
	const struct pshape *shape;
};

struct pshape {
	const struct pkey *keys;
	size_t n_keys, size;
	bool text_ok;                   /* an entry may be a text alone: its first member */
	bool (*name_ok)(const char *s); /* DICT: of the keys */
	const char *name_what;          /* DICT: "a variable's name" */
	/* rules between keys; @n is the node it came from */
	int (*done)(struct load *l, void *obj, const struct ynode *n);
};

extern const struct pshape profile_shape;

/* For done(): the error "file:line:column: 'key' TEXT" about @n. Return: -EINVAL. */
int profile_bad(struct load *l, const struct ynode *n, const char *fmt, ...) PRINTF_FMT(3, 4);
/* The same about the entry @key of @n, or @n itself where it is not there. */
int profile_bad_key(struct load *l, const struct ynode *n, const char *key, const char *fmt, ...)
	PRINTF_FMT(4, 5);
/* Zeroed memory that lives as long as the profile. */
void *profile_grab(struct load *l, size_t n, size_t size);

#endif
