/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what one run would be: flags over configuration over defaults,
 * checked. `info` prints it, `run` does exactly that.
 */
#ifndef CLOCHE_CLI_PLAN_H
#define CLOCHE_CLI_PLAN_H

#include "cli/cli.h"
#include "cli/layers.h"
#include "cli/netplan.h"
#include "cli/repoplan.h"
#include "config/env.h"
#include "config/profiles.h"
#include "image/image.h"
#include "image/pull.h"
#include "super/client.h"
#include "vmm/vmm.h"

enum { PLAN_PROJECTS_MAX = 20, PLAN_ENV_MAX = 64 };

enum plan_pull { PLAN_PULL_MISSING, PLAN_PULL_ALWAYS, PLAN_PULL_NEVER, PLAN_PULL_BACKGROUND };

struct plan {
	struct config config;
	struct state_dirs dirs;
	char agent[PROFILE_NAME_MAX + 1]; /* its canonical name */
	struct profiles profiles;
	const struct profile_entry *entry; /* of the agent, in profiles */
	const struct profile *profile;
	struct env_set env; /* by cli_env() */
	struct state_project projects[PLAN_PROJECTS_MAX];
	int project_fds[PLAN_PROJECTS_MAX];
	size_t n_projects;
	char *hint_below_git; /* the project lies below this git root, or NULL */
	char *cwd;            /* in the guest */
	/* words behind "--", or NULL */
	const char *const *words;
	size_t n_words;
	bool has_words;
	bool dir_given; /* a project was named, and not only stood in */
	/* from flags */
	enum vmm_accel accel_asked;
	uint32_t memory_mib, vcpus, ready_s; /* ready 0: by accelerator */
	uint64_t disk_bytes, tmp_bytes;
	const char *exclude[2 * CONFIG_LIST_MAX + REPO_ASKS_MAX];
	size_t n_exclude;
	enum config_apply apply;
	bool apply_given, allow_home, debug, timings, keep, root_user, json, quiet;
	enum plan_pull pull;
	struct netopts net; /* settled */
	/* patterns of --env-forward, names of --allow-env */
	const char *env_forward[PLAN_ENV_MAX], *allow_env[PLAN_ENV_MAX];
	size_t n_env_forward, n_allow_env;
	bool image_given;     /* by --image */
	const char *boot_dir; /* of kernel and modules that the user gives, or NULL */
	const char *image_name, *log_file, *trace_file, *exec; /* image_name: of ours */
	/* an image of somebody else lies in place of ours, which lends it the kernel */
	bool has_ref;
	bool is_adhoc; /* run-image: no profile but its own */
	struct image_ref ref;
	struct pull_image oci; /* by cli_pull_get(), or what the cache has; closed with the plan */
	struct profile_entry adhoc;
	/* worked out by plan_host() */
	struct vmm_kvm_report kvm;
	enum vmm_accel accel;
	bool accel_ok;
	struct err accel_err;
	struct err
		refusal; /* info: why a run would be refused, whatever the machine can; or code 0 */
	/* by layers_open() or layers_get(); closed with the plan */
	struct layers layers;
	struct repoplan repo; /* settled, like what the flags say */
	/* worked out by plan_network() */
	struct netplan netplan;
};

extern const struct cli_opt plan_opts[];
extern const size_t plan_n_opts;

/*
 * plan_parse() - read configuration and command line of `run` and `info`.
 * @argv:	borrowed as long as @p lives
 * Return: 0, or -errno with @err; *out_exit is the exit code for it.
 */
int plan_parse(struct plan *p, int argc, char **argv, int *out_exit, struct err *err) MUST_CHECK;
void plan_fini(struct plan *p);

/*
 * plan_open_dir() - open @dir as a project.
 * @out_path:	its absolute path without links, PATH_MAX bytes
 * Return: an fd the caller closes, or -errno with @err: it must be there, and be neither the
 * root nor the home directory unless @allow_home.
 */
int plan_open_dir(const char *dir, bool allow_home, char *out_path, struct err *err) MUST_CHECK;

/* Probe the accelerator. Return: 0 or -errno with @err when no machine could run. */
int plan_host(struct plan *p, struct err *err) MUST_CHECK;

/*
 * plan_network() - the network's policy. @image: its registries, or NULL (not built).
 * Return: 0, or -errno with @err.
 */
int plan_network(struct plan *p, const struct registry_list *image, struct err *err) MUST_CHECK;

/* Says that the user's package tools are asked, for netplan_init(): they may take a while. */
void plan_asking(void);

/* The base image of an agent, where no flag names one. */
const char *plan_image_name(const struct profile *p);

/*
 * plan_image_ok() - is there a way to an image with the agent in it: layers of packages, --image,
 * `image:` of the profile, or an agent that every image has.
 * Return: 0, or -ENOTSUP with @err that says what to do.
 */
int plan_image_ok(const struct plan *p, struct err *err) MUST_CHECK;

uint32_t plan_ready_ms(const struct plan *p);

/* Scan the projects without a sandbox (for `info`); the report's JSON is malloc'd. */
int plan_scan(struct plan *p, char **out_report, struct err *err) MUST_CHECK;

#endif
