/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repo.h - .cloche.yaml, the configuration that a repository brings along.
 *
 * It is not trusted: it may tighten what a run would be, and nothing else. Its keys are
 * those of config.yaml. YAML is parsed by the caged cloche-scan (repo_read()), which
 * says what it found as lines of KEY=VALUE (repo_put()); who starts the run reads those
 * (repo_parse()), which is simple enough to be right whoever wrote them, and decides
 * (repo_tighten()). Pure, all of it.
 */
#ifndef CLOCHE_CONFIG_REPO_H
#define CLOCHE_CONFIG_REPO_H

#include "config/config.h"

enum {
	REPO_BYTES_MAX = 64 * 1024, /* of the file */
	REPO_ASKS_MAX = 512,        /* values, each entry of a list is one */
	REPO_KEY_MAX = 48,          /* "section.name" */
	REPO_VALUE_MAX = 255,
	REPO_LINES_MAX = REPO_ASKS_MAX * (REPO_KEY_MAX + REPO_VALUE_MAX + 2),
};
#define REPO_FILE ".cloche.yaml"

struct repo_ask {
	char key[REPO_KEY_MAX + 1];
	char value[REPO_VALUE_MAX + 1];
};

struct repo_asks {
	struct repo_ask *v;
	size_t n;
};

void repo_asks_fini(struct repo_asks *a);

/*
 * repo_read() - what a file asks for. An unknown key, a value of the wrong kind or form, a
 * control character or more than fits refuses all of it.
 * Return: 0 or -EINVAL with @err (".cloche.yaml:3:5: ...").
 */
int repo_read(struct repo_asks *out, const void *p, size_t n, struct err *err) MUST_CHECK;
/* As lines; 0 or -ENOMEM. */
int repo_put(struct buf *b, const struct repo_asks *a) MUST_CHECK;
/* Lines of repo_put(): 0, or -EPROTO for everything else. */
int repo_parse(struct repo_asks *out, struct span lines) MUST_CHECK;

/* What a run would be without the repository, and then with it. */
struct repo_run {
	uint32_t cpus, memory_mib;
	uint64_t disk_bytes, tmp_bytes;
	/* by a flag: the user's own word for this run, which stays */
	uint32_t memory_min_mib; /* below it the agent does not start */
	bool cpus_given, memory_given, disk_given, tmp_given, mode_given, egress_given, apply_given;
	unsigned mode; /* 0 offline, 1 isolated, 2 shared */
	enum egress_profile egress;
	bool host_ca, publish_localhost, exclude_heavy;
	enum config_apply apply;
	/* patterns, and hosts, that come on top; the strings are those of the asks */
	const char *exclude[REPO_ASKS_MAX];
	size_t n_exclude;
	struct config_hosts deny;
};

enum repo_fate {
	REPO_APPLIED,
	REPO_SAME,    /* it is so already */
	REPO_IGNORED, /* see why */
};

struct repo_effect {
	enum repo_fate fate;
	const char *why; /* of IGNORED: a constant */
};

/*
 * repo_tighten() - let @a change @r, where that is tighter.
 * @out:	one for each of @a
 * Return: 0, or -EPROTO for a value that config.yaml could not have.
 */
int repo_tighten(struct repo_run *r, const struct repo_asks *a, struct repo_effect *out) MUST_CHECK;

#endif
