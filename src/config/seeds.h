/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds.h - the files that answer an agent's first questions: onboarding, trust,
 * quiet switches and tool servers of its profile, for one sandbox.
 *
 * Pure: the seeds that apply are laid over each other file by file, names in
 * "${CLOCHE_...}" are put in, and the text is written in the file's format. The
 * files are for a home that has none of them yet; one that is there is the
 * agent's own and stays.
 *
 * An agent is never told that its first start is over when no login reaches it:
 * it would fail later instead of asking.
 */
#ifndef CLOCHE_CONFIG_SEEDS_H
#define CLOCHE_CONFIG_SEEDS_H

#include "base/mem.h"

struct env_set;
struct err;
struct profile;
struct ynode;

enum { SEED_BYTES_MAX = 1024 * 1024 };

struct seeds_in {
	const struct profile *profile;
	const struct env_set *env;   /* what the guest gets */
	const char *const *projects; /* as the guest sees them: /work/NAME */
	size_t n_projects;
	const char *mcp_url; /* where tool servers are; NULL: there are none */
	bool login;          /* a file with a login reaches the guest */
};

struct seed_file {
	char *path; /* below home */
	struct buf text;
};

struct seed_files {
	struct seed_file *v;
	size_t n;
	bool login; /* what counted: a file, or a variable of credentials.env */
};

/* Return: 0, or -EFBIG over SEED_BYTES_MAX with @err. seed_files_fini() in any case. */
int seeds_build(struct seed_files *out, const struct seeds_in *in, struct err *err) MUST_CHECK;
void seed_files_fini(struct seed_files *f);

/* A mapping as TOML (v1.0.0); nothing in it is null. 0 or -ENOMEM. */
int seeds_put_toml(struct buf *b, const struct ynode *map) MUST_CHECK;

#endif
