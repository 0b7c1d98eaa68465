/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - what the project trees were when the sandbox saw them.
 *
 * The manifest is the baseline of a sandbox: cloche-scan writes it, cloche-disk
 * serves file data by it, review and apply compare the host with it. Entry 0 is
 * a root that exists nowhere on the host; its children are the projects, one
 * directory each ("demo" for ~/code/demo), so one image holds several projects
 * and is mounted at /work. Below a project the entries are the host's tree.
 * The children of a directory are consecutive entries in span_cmp() order of
 * their names, so a lookup is a binary search a component.
 *
 * What the guest must not or cannot see is in here, too, flagged and without
 * children: so it is never taken for deleted.
 *
 * The file is little endian, read through a mapping, and is input that is not
 * trusted: manifest_open() checks all of it once, O(entries); afterwards every
 * index below count is valid. Readers never allocate.
 */
#ifndef CLOCHE_MANIFEST_MANIFEST_H
#define CLOCHE_MANIFEST_MANIFEST_H

#include "base/mem.h"
#include "base/span.h"

struct err;

enum {
	MANIFEST_ENTRIES_MAX = 4 * 1000 * 1000,
	MANIFEST_PROJECTS_MAX = 64,
	MANIFEST_LINK_MAX = 4095,
	MANIFEST_RULES_MAX = 8 * 1024 * 1024, /* bytes of ignore rules kept */
	MANIFEST_NONE = 0xffffffff,
};

enum manifest_kind {
	MANIFEST_DIR = 1,
	MANIFEST_FILE = 2,
	MANIFEST_LINK = 3,
	MANIFEST_OTHER = 4, /* fifo, socket, device: never in the image */
};

enum {                           /* bits of flags */
       MANIFEST_HIDDEN = 1 << 0, /* a security pattern: not in the image */
       MANIFEST_EXCLUDED =
	       1 << 1, /* an ignore file, --exclude or a performance pattern: not in it */
       MANIFEST_SKIPPED = 1 << 2, /* not carried; `why` says the reason: not in it */
       MANIFEST_TRACKED = 1 << 3, /* in the project's git index (a directory: something below is) */
       MANIFEST_IGNORED = 1 << 4, /* in the image; .gitignore says that changes are set aside */
       MANIFEST_GENERATED =
	       1 << 5,        /* content is ours, in the image's metadata part, not the host's */
       MANIFEST_GIT = 1 << 6, /* a .git or below one */
       MANIFEST_RELATIVE =
	       1 << 7, /* link text was absolute into the project; `link` is the new one */
       MANIFEST_DANGLING = 1 << 8, /* link to something that is hidden or excluded */
};

/* Not in the image: the guest cannot see it. */
enum { MANIFEST_ABSENT = MANIFEST_HIDDEN | MANIFEST_EXCLUDED | MANIFEST_SKIPPED };

enum manifest_why {
	MANIFEST_WHY_NONE = 0,
	MANIFEST_WHY_KIND,       /* fifo, socket, device */
	MANIFEST_WHY_UNREADABLE, /* the user may not read it */
	MANIFEST_WHY_LINK_OUT,   /* a symlink that leaves the project */
	MANIFEST_WHY_OWN_STATE,  /* cloche's own state or cache */
	MANIFEST_WHY_LIMIT,      /* depth or name length */
	MANIFEST_WHY_CHANGED,    /* vanished or changed kind during the scan */
	MANIFEST_WHY_OTHER_FS,   /* reserved: a mount point that is not entered */
	MANIFEST_WHY_LAST = MANIFEST_WHY_OTHER_FS,
};

struct manifest_entry {
	uint32_t parent; /* 0's parent is 0 */
	uint8_t kind;    /* enum manifest_kind */
	uint8_t why;     /* enum manifest_why */
	uint16_t flags;
	uint16_t project; /* index into the projects; 0 for entry 0 */
	uint32_t mode;    /* host's permission bits, all 07777 */
	uint32_t uid, gid, nlink;
	uint64_t size; /* files: bytes on the host, also when the content is GENERATED */
	int64_t mtime_ns, ctime_ns;
	uint64_t ino, dev;
	uint64_t block;   /* files with data in the image: first block; else 0 */
	uint32_t same_as; /* entry of the first name of a hard-linked inode; itself otherwise */
	uint32_t first_child, n_children;
	struct span name; /* borrowed from the mapping */
	struct span link; /* symlinks: text as the guest sees it */
};

struct manifest_project {
	uint32_t entry;   /* its directory, a child of 0 */
	struct span path; /* absolute host path when it was scanned */
	uint64_t dev, ino;
};

/*
 * Ignore rules that were in force in a directory, for judging names that are new.
 * Of one directory a later one decides before an earlier one: HEAVY, then
 * CLOCHEIGNORE, then EXCLUDE, which also beats the CLOCHEIGNORE of deeper
 * directories; .git/info/exclude before .gitignore.
 */
struct manifest_rules {
	uint32_t dir;     /* entry of the directory that the patterns are relative to */
	uint8_t source;   /* enum manifest_rules_source */
	struct span text; /* the file's bytes */
};

enum manifest_rules_source {
	MANIFEST_RULES_GITIGNORE = 1,    /* .gitignore and .git/info/exclude: sets changes aside */
	MANIFEST_RULES_CLOCHEIGNORE = 2, /* .clocheignore: hides */
	MANIFEST_RULES_EXCLUDE = 3,      /* --exclude and configuration: hides */
	MANIFEST_RULES_HEAVY = 4,        /* the performance patterns were on; no text */
};

struct manifest {
	struct span map; /* borrowed */
	uint32_t count, n_projects, n_rules;
	uint64_t data_block; /* first block behind the image's metadata part */
	uint64_t image_blocks;
	int64_t scanned_ns; /* CLOCK_REALTIME when the scan began */
	/* offsets of the tables, the reader's */
	size_t entries_at, projects_at, rules_at, names_at, names_len;
};

/*
 * manifest_open() - check a whole manifest and make it readable.
 * @map:	the file's bytes; borrowed as long as @out is used
 *
 * Return: 0; -EPROTO for anything that the format does not allow, -EFBIG over a limit.
 */
int manifest_open(struct manifest *out, struct span map, struct err *err) MUST_CHECK;

void manifest_get(const struct manifest *m, uint32_t i, struct manifest_entry *out);
void manifest_project(const struct manifest *m, uint32_t i, struct manifest_project *out);
void manifest_rules(const struct manifest *m, uint32_t i, struct manifest_rules *out);

/* Child @name of directory @dir. Return: its index or MANIFEST_NONE. */
uint32_t manifest_child(const struct manifest *m, uint32_t dir, struct span name);

/* Entry of a relative path below @dir ("" is @dir). Return: its index or MANIFEST_NONE. */
uint32_t manifest_find(const struct manifest *m, uint32_t dir, struct span path);

/*
 * manifest_path() - append the path of @i relative to its project's directory
 * ("src/a.c"; nothing for the project itself). Return: 0 or -ENOMEM.
 */
int manifest_path(const struct manifest *m, uint32_t i, struct buf *out) MUST_CHECK;

/*
 * manifest_file_at() - the regular file whose data covers image block @block.
 * @order:	from manifest_order(), entries with data sorted by block
 * Return: its entry, or MANIFEST_NONE.
 */
uint32_t manifest_file_at(const struct manifest *m, const uint32_t *order, size_t n,
                          uint64_t block);
/* *out is malloc'd, n entries. Only the first name of a hard-linked inode is in it. */
int manifest_order(const struct manifest *m, uint32_t **out, size_t *out_n) MUST_CHECK;

/* --- writing; only cloche-scan and tests --- */

struct manifest_writer;

struct manifest_writer *manifest_writer_new(void) MUST_CHECK;
void manifest_writer_free(struct manifest_writer *w);

/*
 * Entries are added directory by directory: all children of one directory in a
 * row, sorted, directories breadth first; e->parent is an index given out
 * before, e->first_child and n_children are worked out. Names and links are copied.
 * Return: 0 with *out_index, -ENOMEM, -EFBIG, -EINVAL out of that order.
 */
int manifest_add(struct manifest_writer *w, const struct manifest_entry *e,
                 uint32_t *out_index) MUST_CHECK;
/* Patch what is known later. */
void manifest_set_block(struct manifest_writer *w, uint32_t i, uint64_t block);
void manifest_set_flags(struct manifest_writer *w, uint32_t i, uint16_t flags, uint8_t why);
int manifest_add_project(struct manifest_writer *w, const struct manifest_project *p) MUST_CHECK;
int manifest_add_rules(struct manifest_writer *w, const struct manifest_rules *r) MUST_CHECK;
void manifest_set_image(struct manifest_writer *w, uint64_t data_block, uint64_t image_blocks);
/* Write the file to @fd from offset 0. */
int manifest_write(struct manifest_writer *w, int fd, int64_t scanned_ns,
                   struct err *err) MUST_CHECK;

#endif
