/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ignore.h - gitignore patterns: parsing a pattern file and judging paths by it.
 *
 * Our own matcher, pure: bytes in, verdicts out. It means what git means
 * (gitignore(5)), which tests/oracle holds it to, and its time is bounded:
 * a match costs at most pattern length times path length, whatever both say.
 *
 * One file is a struct ignore_list. How several files work together, each for
 * the directory it lies in, is a struct ignore_set: the deepest file that says
 * anything decides, the last line of it that matches; a name below an ignored
 * directory is ignored, and no negation brings it back.
 *
 * Pattern files come from the project and are not trusted. A line that cannot
 * match anything (an unclosed class, a final backslash) is legal and matches
 * nothing, as in git. Limits are errors, not truncation.
 */
#ifndef CLOCHE_POLICY_IGNORE_H
#define CLOCHE_POLICY_IGNORE_H

#include "base/mem.h"
#include "base/span.h"

enum {
	IGNORE_FILE_MAX = 1024 * 1024,
	IGNORE_PATTERNS_MAX = 100 * 1000,
	IGNORE_PATTERN_MAX = 4096,
	IGNORE_LISTS_MAX = 100 * 1000, /* files in a set */
};

enum {                       /* flags of ignore_parse() */
       IGNORE_FOLD_CASE = 1, /* ASCII letters compare equal in either case */
};

enum ignore_verdict {
	IGNORE_SILENT = 0, /* no pattern matches */
	IGNORE_YES,
	IGNORE_NO, /* a negated pattern matches */
};

struct ignore_list;

/*
 * ignore_parse() - compile a pattern file.
 * @text:	its bytes; not needed afterwards
 *
 * Return: 0, -EFBIG over a limit above, -ENOMEM.
 */
int ignore_parse(struct ignore_list **out, struct span text, int flags) MUST_CHECK;
void ignore_free(struct ignore_list *l);

/* Patterns in it, negated ones included. */
size_t ignore_count(const struct ignore_list *l);

/* Pattern @i (< count) as it was written, without its '!' and trailing spaces; valid as long as
 * the list. @out_line counts from 1. */
struct span ignore_pattern(const struct ignore_list *l, size_t i, bool *out_negated,
                           uint32_t *out_line);

/*
 * ignore_match() - what one file says about one path, parents not considered.
 * @path:	relative to the file's directory, no leading or trailing '/'
 * @out_line:	may be NULL; line of the pattern that decided, from 1
 */
enum ignore_verdict ignore_match(const struct ignore_list *l, struct span path, bool is_dir,
                                 uint32_t *out_line);

/* --- several files --- */

struct ignore_set;

struct ignore_set *ignore_set_new(void) MUST_CHECK;
void ignore_set_free(struct ignore_set *s);

/*
 * ignore_set_add() - add a file.
 * @dir:	directory its patterns are relative to, "" for the top; copied
 * @l:		taken, also on failure
 * @rank:	among files of one directory the higher decides first; git: .gitignore 1,
 *		.git/info/exclude 0
 *
 * Return: 0, -EFBIG, -ENOMEM.
 */
int ignore_set_add(struct ignore_set *s, struct span dir, struct ignore_list *l,
                   int rank) MUST_CHECK;

/*
 * ignore_set_match() - is @path (relative to the top) ignored, by itself or because a directory
 * above it is? Parents are directories; @is_dir is about @path.
 */
bool ignore_set_match(struct ignore_set *s, struct span path, bool is_dir);

#endif
