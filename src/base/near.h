/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.h - the known word that somebody who made a typing mistake meant.
 */
#ifndef CLOCHE_BASE_NEAR_H
#define CLOCHE_BASE_NEAR_H

#include "base/util.h"

/*
 * near_word() - the one of @known that is fewest changes of a letter (or swaps of two) away
 * from @word, at most three and fewer than it has letters; NULL when there is none. Pure.
 */
const char *near_word(const char *word, const char *const *known, size_t n);

#endif
