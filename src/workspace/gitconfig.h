/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gitconfig.h - reads git configuration as git does, and says it again without
 * what could run a program, name a file outside or give a credential away.
 *
 * The file is never copied: it is lexed (git-config(1), "Syntax"), each
 * variable is compared with an allow-list of keys (gitconfig.c), and what is on
 * the list is written anew in one plain form. New keys of newer gits are
 * dropped until they are listed. URLs lose passwords, tokens and query strings.
 * Pure.
 */
#ifndef CLOCHE_WORKSPACE_GITCONFIG_H
#define CLOCHE_WORKSPACE_GITCONFIG_H

#include "base/mem.h"
#include "base/span.h"

enum {
	GITCONFIG_BYTES_MAX = 4 * 1024 * 1024,
	GITCONFIG_VARS_MAX = 100 * 1000,
	GITCONFIG_NAME_MAX = 1024, /* section, subsection or key */
	GITCONFIG_VALUE_MAX = 64 * 1024,
	GITCONFIG_DROPPED_MAX = 32, /* names kept for the report */
};

/* One variable; spans are valid during the call. */
struct gitconfig_var {
	struct span section;    /* lower case, without a dot; empty before the first header */
	struct span subsection; /* as written; p is NULL when there is none */
	struct span key;        /* lower case */
	struct span value;      /* quotes and escapes resolved; p is NULL for a bare key (true) */
	uint32_t line;
};

/*
 * gitconfig_parse() - call @fn for every variable, in order.
 *
 * Return: 0; -EPROTO where git would refuse the file (*out_line says where),
 * -EFBIG over a limit, -ENOMEM, or what @fn returned.
 */
int gitconfig_parse(struct span text, int (*fn)(void *arg, const struct gitconfig_var *v),
                    void *arg, uint32_t *out_line) MUST_CHECK;

struct gitconfig_report {
	uint32_t kept, dropped;
	uint32_t credentials; /* URLs that lost something */
	bool sha256;          /* extensions.objectformat */
	/* "section.key" of what was dropped, each once, without subsections (they may be URLs) */
	char *names[GITCONFIG_DROPPED_MAX];
	size_t n_names;
};

void gitconfig_report_fini(struct gitconfig_report *r);

enum {                          /* flags of gitconfig_sanitise() */
       GITCONFIG_SUBMODULE = 1, /* of a submodule: a relative core.worktree stays */
};

/*
 * gitconfig_sanitise() - append the cleaned configuration to @out.
 * Return: as gitconfig_parse(); @out and @report are only filled on success.
 */
int gitconfig_sanitise(struct span text, int flags, struct buf *out,
                       struct gitconfig_report *report, uint32_t *out_line) MUST_CHECK;

/*
 * gitconfig_clean_url() - append @url without credentials to @out.
 * Return: 0 unchanged, 1 something was removed, -EINVAL when it must be dropped
 * (helper "x::", unparsable with an '@'), -ENOMEM.
 */
int gitconfig_clean_url(struct span url, struct buf *out) MUST_CHECK;

#endif
