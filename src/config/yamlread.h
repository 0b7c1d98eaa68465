/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yamlread.h - a strict reading of small YAML files: sections of keys with plain
 * values or lists of them. The only adapter of libyaml.
 *
 * Refused, with line and column: a second document, aliases and anchors, tags,
 * duplicate keys, keys that are no scalars, deeper nesting, NUL bytes.
 */
#ifndef CLOCHE_CONFIG_YAMLREAD_H
#define CLOCHE_CONFIG_YAMLREAD_H

#include "base/util.h"

struct err;

struct yaml_mark {
	unsigned line, column; /* from 1 */
};

/*
 * Called for each value. @name NULL: the section itself (value NULL: it is a
 * mapping or empty). @in_list with @value NULL: a list begins. 0, or -errno with the
 * error set by the callee.
 */
typedef int (*yaml_value_fn)(void *arg, const char *section, const char *name, bool in_list,
                             const char *value, const struct yaml_mark *m);

/* Pure. Return: 0, -EINVAL with @err ("name:line:column: ..."), -ENOMEM. */
int yaml_read(const char *name, const void *p, size_t n, yaml_value_fn fn, void *arg,
              struct err *err) MUST_CHECK;

#endif
