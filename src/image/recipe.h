/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe.h - what an image consists of, as data.
 *
 * Recipes are the files recipes/NAME.conf, built into the programs. Lines of
 * words; '#' starts a comment line:
 *
 *	name NAME			once
 *	alias NAME
 *	include NAME			everything of that recipe first; not nested deeper
 *	packages NAME...		may repeat
 *	empty PATH			remove what is in this directory; dpkg skips it
 *	drop PATH			remove with all below
 *	dir MODE UID GID PATH		a directory (an existing one gets these)
 *	link PATH TEXT			a symlink
 *	copy MODE UID GID PATH FROM	a file with the content of another
 *	file MODE UID GID PATH		a file; its content are the lines that follow and
 *					start with '|' and a blank
 *	user NAME UID GID HOME SHELL	an account with a locked password
 *
 * Paths are relative to the root. Steps apply in their order, after the packages.
 */
#ifndef CLOCHE_IMAGE_RECIPE_H
#define CLOCHE_IMAGE_RECIPE_H

#include "base/hash.h"
#include "base/mem.h"
#include "base/span.h"

struct err;

enum {
	RECIPE_PACKAGES_MAX = 256,
	RECIPE_STEPS_MAX = 256,
	RECIPE_TEXT_MAX = 64 * 1024,
	RECIPE_NAME_MAX = 32,
};

struct recipe_text {
	const char *name, *text;
};
extern const struct recipe_text recipe_texts[];
extern const size_t recipe_texts_n;

enum recipe_verb {
	RECIPE_EMPTY,
	RECIPE_DROP,
	RECIPE_DIR,
	RECIPE_LINK,
	RECIPE_COPY,
	RECIPE_FILE,
	RECIPE_USER,
};

struct recipe_step {
	enum recipe_verb verb;
	uint32_t mode, uid, gid;
	struct span path; /* USER: the name */
	struct span arg;  /* LINK: text; COPY: from; USER: home */
	struct span arg2; /* USER: shell */
	struct span body; /* FILE: into recipe.bodies, see recipe_step_body() */
	size_t body_at;
};

/* Spans point into the texts, which live for ever (or as long as the test's). */
struct recipe {
	struct span name, alias;
	struct span packages[RECIPE_PACKAGES_MAX];
	size_t n_packages;
	struct recipe_step steps[RECIPE_STEPS_MAX];
	size_t n_steps;
	struct buf bodies;
};

/*
 * recipe_parse() - append what @text says to @r (zeroed before the first).
 * @find:	text of an included recipe, or NULL
 *
 * Return: 0, -EINVAL with the line in @err, -E2BIG over a limit, -ENOMEM.
 */
int recipe_parse(struct recipe *r, struct span text, const char *(*find)(const char *name),
                 struct err *err) MUST_CHECK;
void recipe_fini(struct recipe *r);

/* The recipe by name or alias. -ENOENT (hint: the names) when there is none. */
int recipe_load(struct recipe *r, const char *name, struct err *err) MUST_CHECK;

/* Content of a FILE step. */
struct span recipe_step_body(const struct recipe *r, const struct recipe_step *s);

/* Everything that decides the image: the recipe, @suite, the probes and the format version. */
void recipe_hash(const struct recipe *r, const char *suite, struct hash *out);

/*
 * account_add() - a user line, in the files of passwd(5), group(5), shadow(5).
 * Pure; the password is locked. An account with this uid is left as it is.
 *
 * Return: 1 added, 0 there was one, -EEXIST when the name has another uid, -ENOMEM.
 */
int account_add(struct buf *passwd, struct buf *group, struct buf *shadow, struct span name,
                uint32_t uid, uint32_t gid, struct span home, struct span shell) MUST_CHECK;

/* Lock the password of every account in @shadow. 0 or -ENOMEM. */
int account_lock_all(struct buf *shadow) MUST_CHECK;

#endif
