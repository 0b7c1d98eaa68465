/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h - from project directories to a manifest and an EROFS metadata image.
 *
 *	cloche-scan --project NAME=FD... --manifest FD --meta FD [--report FD]
 *	            [--exclude PATTERN]... [--heavy] [--skip-dev-ino DEV:INO]...
 *	            [--uuid 32HEX] [--uid UID]
 *
 * --project	a directory, and the name it has in the image (/work/NAME in the
 *		guest). One to MANIFEST_PROJECTS_MAX; their order is that of the
 *		manifest's projects
 * --manifest, --meta, --report
 *		files opened for reading and writing, empty; written from offset 0.
 *		Without --report there is none
 * --exclude	a gitignore pattern relative to each project; after .clocheignore
 * --heavy	the performance patterns (policy/secret_paths.h), before .clocheignore
 * --skip-dev-ino
 *		decimal; a directory that is not entered: cloche's own state
 * --uuid	of the image; random without it
 * --uid	of the cage, when started as root
 *
 * Status 0: all three files are complete. 1: --report holds { "error", "hint" },
 * stderr the same. 2: wrong arguments. 3: no cage.
 *
 * What the guest gets to see (docs/workspace.md has the reasons):
 * - security patterns hide, always; .clocheignore files and --exclude hide, the
 *   later and the deeper decides; below .git only the security patterns are asked,
 *   and not below refs, logs and objects there (branch names are no file names)
 * - .gitignore, .git/info/exclude: IGNORED, but not for tracked files
 * - fifos, sockets, devices, unreadable things, links that leave: not carried
 * - directories shaped like a git directory, named .git or not: config and
 *   config.worktree are written anew, hooks, remotes, branches and info/attributes hidden;
 *   the index is a copy with what is hidden marked skip-worktree when something is
 * In the image all is 1000:1000 and has neither setuid, setgid nor sticky bits.
 *
 * Image: block 0 superblock, from block 1 generated contents, behind them EROFS
 * metadata up to the manifest's data_block; file data is only addressed. An
 * entry that is GENERATED keeps the host's size and times in the manifest.
 *
 * The report is one JSON object. Lists are { "total": n, "items": [...] } with at
 * most SCAN_LIST_MAX items. "path" is made visible (vis), relative to the project;
 * "hex" (the bytes) is there when the name is no plain text. See scan_report.c.
 */
#ifndef CLOCHE_WORKSPACE_SCAN_H
#define CLOCHE_WORKSPACE_SCAN_H

#include "base/span.h"
#include "manifest/manifest.h"

struct err;

enum {
	SCAN_REPORT_SCHEMA = 1,
	SCAN_LIST_MAX = 200,
	SCAN_SKIP_MAX = 16,
	SCAN_DEPTH_MAX = 256, /* directories below a project */
	SCAN_THREADS = 2,
};

struct scan_project {
	const char *name;
	int fd;
	const char *path; /* absolute on the host, for links and the manifest */
};

struct scan_opts {
	const struct scan_project *projects;
	size_t n_projects;
	int manifest_fd, meta_fd;
	int report_fd;       /* -1: none */
	struct span exclude; /* pattern file made of all --exclude */
	bool heavy;
	struct {
		uint64_t dev, ino;
	} skip[SCAN_SKIP_MAX];
	size_t n_skip;
	uint8_t uuid[16];
	unsigned threads; /* 0: SCAN_THREADS */
};

/* Everything but arguments and cage. Return: 0 or -errno with @err; the report is written. */
int scan_run(const struct scan_opts *o, struct err *err) MUST_CHECK;

#endif
