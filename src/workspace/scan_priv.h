/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_priv.h - what the files of the scan share.
 *
 * scan_walk.c	two threads list directories and build the tree of nodes
 * scan_git.c	git directories: clean configurations, tracked names, index copies
 * scan_tree.c	decisions that need the whole tree: heavy names, links, hard links
 * scan_out.c	image and manifest
 * scan_report.c the report
 *
 * Nodes live in arenas that are freed as a whole. While the threads run a node
 * belongs to the thread that lists its parent, its list of children to the one
 * that lists itself; afterwards there is one thread.
 */
#ifndef CLOCHE_WORKSPACE_SCAN_PRIV_H
#define CLOCHE_WORKSPACE_SCAN_PRIV_H

#include <pthread.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/mem.h"
#include "policy/ignore.h"
#include "workspace/scan.h"

enum {                    /* bits of node.own */
       OWN_HEAVY = 1,     /* a performance pattern matches: goes unless something is tracked */
       OWN_PLAIN = 2,     /* below .git/refs and the like: names are no file names */
       OWN_READ = 4,      /* children were listed */
       OWN_GITDIR = 8,    /* holds HEAD, objects and refs, or is called .git */
       OWN_PROJECT = 16,  /* a project's directory */
       OWN_GIT_HIDE = 32, /* hidden as a part of a git directory, not for its name */
};

struct node {
	struct node *parent; /* of a project's directory: itself */
	struct node *kids;   /* consecutive, sorted */
	uint32_t n_kids, n_present;
	uint32_t index;  /* in the manifest */
	uint32_t einode; /* in the image */
	const uint8_t *name;
	const uint8_t *link; /* symlinks: text as read */
	uint16_t link_len, flags, project, mode;
	uint8_t name_len, kind, why, own;
	uint32_t uid, gid, nlink;
	uint64_t size, ino, dev;
	int64_t mtime_ns, ctime_ns;
	struct node *same_as;  /* hard links: the first name */
	struct generated *gen; /* content of ours */
	const char *pattern;   /* HIDDEN: the security pattern */
};

struct generated {
	struct node *node;
	struct buf content;
	uint64_t block;
};

/* How a rule file goes into the manifest. */
struct rule {
	struct node *dir;
	uint8_t source;
	uint8_t order; /* within one directory, the weaker first */
	char *text;
	size_t len;
};

enum note_kind {
	NOTE_NEGATION,    /* of a security pattern; text: the pattern */
	NOTE_IGNORE_FILE, /* a .gitignore that is not honoured; text: why */
	NOTE_ALTERNATES,  /* objects/info/alternates */
	NOTE_GITFILE_OUT, /* .git file that points outside; text: where */
	NOTE_GITFILE_IN,  /* .git file that points to a git directory of the project */
	NOTE_GIT_LINK,    /* .git is a symlink */
	NOTE_CONFIG,      /* text: names of dropped keys */
	NOTE_CREDENTIALS, /* urls that lost some; text: how many */
	NOTE_CONFIG_BAD,  /* cannot be read as configuration; text: why */
	NOTE_INDEX_BAD,   /* cannot be read; text: why */
	NOTE_INDEX_SPLIT, /* tracked names are only known in part */
	NOTE_RELATIVE,    /* a link that was made relative; text: the old one */
	NOTE_RULES_CUT,   /* rules that found no room in the manifest */
	NOTE_KINDS
};

struct note {
	enum note_kind kind;
	struct node *node; /* NULL: the command line */
	char *text;        /* bytes from outside; made visible when it is reported */
	size_t len;
};

/* A git index and the directory that its names are relative to. */
struct repo {
	struct node *gitdir, *worktree; /* worktree NULL: none that is known */
	size_t hash_bytes;
};

struct list {
	void *p;
	size_t n, cap;
};

struct scan {
	const struct scan_opts *o;
	struct node **roots; /* n_projects, each its own allocation in the arena */
	struct ignore_list *exclude, *heavy;

	pthread_mutex_t lock; /* everything below while the threads run */
	struct list tasks;
	size_t busy;
	bool stop;
	pthread_cond_t wake;
	struct err err; /* the first one */
	uint64_t n_nodes;
	struct list lists;   /* struct ignore_list *, to be freed */
	struct list rules;   /* struct rule */
	struct list notes;   /* struct note */
	struct list gitdirs; /* struct node * */
	struct list dotgits; /* struct node *: .git that are no directories */
	struct list heavies; /* struct node * */
	struct list links;   /* struct node * */
	struct list linked;  /* struct node *: files with more than one name */
	struct list chunks;  /* memory of the nodes */

	/* the whole tree, afterwards */
	struct list repos;     /* struct repo */
	struct list generated; /* struct generated * */
	bool tracked_absent;   /* a tracked name is not in the image */
	bool index_failed;     /* what is tracked is not known for sure */
	struct node **order;   /* manifest order; [0] is NULL, the root of the image */
	uint32_t n_order;
	struct node **by_einode; /* [0] is NULL */
	uint32_t n_einodes;
	int64_t scanned_ns;
	uint64_t data_block, image_blocks, meta_blocks;
};

void *list_add(struct list *l, size_t size); /* room for one more; aborts without memory */

int scan_walk(struct scan *s, struct err *err) MUST_CHECK;

/* Add a note; @text is copied. Takes the lock when threads may run. */
void scan_note(struct scan *s, enum note_kind kind, struct node *n, struct span text);

struct node *scan_child(const struct node *dir, struct span name);
struct span scan_name(const struct node *n);
/* Path below the project; appended. */
int scan_path(const struct node *n, struct buf *out) MUST_CHECK;
/* A regular file as it was when it was listed: 0 and an fd, -ESTALE, or -errno. */
int scan_open(struct scan *s, const struct node *n, int *out_fd) MUST_CHECK;
/* Its bytes; *out is malloc'd. */
int scan_read(struct scan *s, const struct node *n, size_t max, char **out,
              size_t *out_len) MUST_CHECK;
/* Out of the image, with all that is below. */
void scan_hide(struct scan *s, struct node *n, uint16_t flag, uint8_t why);

int scan_git_config(struct scan *s, struct err *err) MUST_CHECK;
int scan_git_tracked(struct scan *s, struct err *err) MUST_CHECK;
int scan_git_index(struct scan *s, struct err *err) MUST_CHECK;

int scan_tree(struct scan *s, struct err *err) MUST_CHECK;

int scan_out(struct scan *s, struct err *err) MUST_CHECK;

int scan_report(struct scan *s, struct err *err) MUST_CHECK;
int scan_report_error(int fd, const struct err *e) MUST_CHECK;

#endif
