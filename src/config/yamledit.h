/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yamledit.h - change one value of a YAML text, and leave every other byte as it is.
 *
 * Comments, order, quotes and line ends of the rest stay. Each change is one
 * splice, found by the places that the tree has (yamlread.h); then the result is
 * read again and compared with the tree that was asked for, so a text that is
 * written in a way these few rules do not understand is refused, never damaged.
 *
 * Pure. A path is the keys from the top mapping down; entries of lists have none.
 */
#ifndef CLOCHE_CONFIG_YAMLEDIT_H
#define CLOCHE_CONFIG_YAMLEDIT_H

#include "base/mem.h"
#include "base/span.h"

struct err;

enum { YAML_PATH_MAX = 8 };

/*
 * yaml_edit_set() - give the value at @path another text, or add it with the mappings
 * above it that are missing.
 * @value:	YAML in flow style on one line: text, "quoted", [a, b], {k: v}
 * @out:	empty; gets the whole new text
 *
 * Return: 0; -EINVAL with @err when @text is no YAML, @path leads through a value that is
 * no mapping, or the text is written in a way that cannot be changed like this.
 */
int yaml_edit_set(struct buf *out, struct span text, const char *const *path, size_t depth,
                  const char *value, struct err *err) MUST_CHECK;

/*
 * yaml_edit_delete() - take a key out, with its value; a mapping that is empty then goes, too.
 * Return: 1, or 0 when it is not there (@out gets the text as it is), or as above.
 */
int yaml_edit_delete(struct buf *out, struct span text, const char *const *path, size_t depth,
                     struct err *err) MUST_CHECK;

/* @s as a YAML text for yaml_edit_set(): plain where every reader takes it for a text, else quoted. */
int yaml_put_text(struct buf *out, const char *s) MUST_CHECK;

#endif
