/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret_paths.h - names that usually hold secrets, and names that are only heavy.
 *
 * Two const tables in gitignore spelling (secret_paths.c). The security
 * patterns hide a name from the guest and keep a change of the guest's from
 * ever being applied to one; nothing negates them, and they compare without
 * regard to ASCII case, since a file system may, too. The performance patterns
 * are an option and can be negated.
 */
#ifndef CLOCHE_POLICY_SECRET_PATHS_H
#define CLOCHE_POLICY_SECRET_PATHS_H

#include "base/span.h"

struct ignore_list;

/*
 * secret_path_match() - does a security pattern match @path or a directory above it?
 * @path:	relative to the project, no leading or trailing '/'
 * @is_dir:	about @path itself; its parents are directories
 *
 * Return: the pattern that matches, for messages, or NULL. Costs a few compares a component.
 */
const char *secret_path_match(struct span path, bool is_dir);

/*
 * secret_name_match() - the same for the last component alone, the parents known to be clean.
 * @parent:	name of the directory that holds it ("" at the top), for the patterns of
 *		two components such as ".docker/config.json"
 * @grandparent: the one above, for ".config/gh/hosts.yml"
 */
const char *secret_name_match(struct span grandparent, struct span parent, struct span name,
                              bool is_dir);

/*
 * Is @pattern (of a negated line) the spelling of a security pattern? Such a negation has no
 * effect and the user is told so.
 */
bool secret_pattern_named(struct span pattern);

/* The tables, NULL-terminated, for `info` and for tests. */
extern const char *const secret_patterns[];
extern const char *const heavy_patterns[];

#endif
