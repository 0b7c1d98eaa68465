/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the user's own configuration, $XDG_CONFIG_HOME/cloche/config.yaml.
 *
 * YAML with a strict schema: an unknown or misspelled key, a wrong type, a
 * duplicate key or a second document is an error with file, line and column,
 * and the nearest key. A regular file of at most CONFIG_BYTES_MAX; an empty or
 * missing one is the default. Flags win over it.
 */
#ifndef CLOCHE_CONFIG_CONFIG_H
#define CLOCHE_CONFIG_CONFIG_H

#include "base/ip.h"
#include "base/mem.h"
#include "policy/egress.h"

struct err;
struct ynode;

enum { CONFIG_BYTES_MAX = 1024 * 1024, CONFIG_LIST_MAX = 256, CONFIG_HOSTS_MAX = 10000 };

enum config_apply { CONFIG_APPLY_ASK, CONFIG_APPLY_AUTO, CONFIG_APPLY_NONE };

/* What is demanded of who signed an image of somebody else. */
enum config_verify { CONFIG_VERIFY_OFF, CONFIG_VERIFY_WARN, CONFIG_VERIFY_REQUIRE };

struct config_hosts {
	struct host_pattern *v;
	size_t n; /* at most CONFIG_HOSTS_MAX */
};

/* What network.* says; the flags of a run are added to the lists. */
struct config_net {
	char mode[10];                               /* network.mode: offline, isolated, shared */
	enum egress_profile profile;                 /* network.egress, network.egress_profile */
	struct config_hosts hosts;                   /* network.allow_hosts */
	struct config_hosts deny;                    /* network.deny_hosts */
	struct ip4_net privates[EGRESS_PRIVATE_MAX]; /* network.allow_private */
	size_t n_privates;
	uint16_t services[EGRESS_SERVICES_MAX]; /* network.host_services */
	size_t n_services;
	bool host_ca;           /* network.host_ca */
	bool publish_localhost; /* network.publish_localhost */
};

struct config {
	/* vm */
	char accel[8];       /* vm.accel: auto, kvm, tcg */
	uint32_t cpus;       /* vm.cpus: 1 to 64 */
	uint32_t memory_mib; /* vm.memory: SIZE */
	uint64_t disk_bytes; /* vm.disk: SIZE */
	uint64_t tmp_bytes;  /* vm.tmp_size: SIZE */
	/* workspace */
	bool exclude_heavy;             /* workspace.exclude_heavy */
	char *exclude[CONFIG_LIST_MAX]; /* workspace.exclude */
	size_t n_exclude;
	/* review */
	enum config_apply apply; /* review.apply: ask, auto, none */
	struct config_net net;
	/* image */
	char *image_suite, *image_mirror; /* image.suite, image.mirror; NULL: default */
	char image_pull[12];              /* image.pull: missing, always, background, never */
	enum config_verify image_verify;  /* image.verify */
	char *image_boot;                 /* image.boot: absolute, or NULL */
	/* image.cosign_key, .cosign_identity, .cosign_issuer; NULL: not said */
	char *cosign_key, *cosign_identity, *cosign_issuer;
	struct ynode *doc; /* all of it; NULL when the file is empty */
};

/* The defaults. */
void config_init(struct config *c);
void config_fini(struct config *c);

/*
 * config_load() - read the file at @path over the defaults in @c.
 * A missing file is no error. Return: 0, or -errno with @err ("config.yaml:3:5: ...").
 */
int config_load(struct config *c, const char *path, struct err *err) MUST_CHECK;

/* The same from bytes; pure. @name is for messages. */
int config_parse(struct config *c, const char *name, const void *p, size_t n,
                 struct err *err) MUST_CHECK;

/*
 * config_set() - one value, as if it stood in a file: @key is "section.name"; of a list it is
 * one more entry. Return: 0, or -errno; @out_why is a constant for a person, or NULL.
 */
int config_set(struct config *c, const char *key, const char *value,
               const char **out_why) MUST_CHECK;

/*
 * Key number @i as "section.name", and its default as YAML; NULL behind the last one. A key
 * that is another name of one is left out.
 */
const char *config_key(size_t i, const char **out_default);
/* What the file says about it, or NULL. */
const struct ynode *config_said(const struct config *c, const char *key);

/* `agents:`, which profiles_load() reads, or NULL. */
const struct ynode *config_agents(const struct config *c);
/* Does the file say something about this key? */
bool config_has(const struct config *c, const char *section, const char *name);

/*
 * config_size() - "512", "2g", "4GiB": a plain number is MiB; m, mi, mib, g, gi, gib in any case.
 * Return: 0 with bytes, or -EINVAL.
 */
int config_size(const char *s, uint64_t *out_bytes) MUST_CHECK;

/*
 * Values of the network that flags have as well. What is refused, and why, goes to
 * @out_why for a person. Return: 0 or -EINVAL.
 */
/*
 * NAME[:PORT] with a port that is not closed to everybody, or @SET for the hosts of
 * policy/sources.h with that name, behind those in @h. -E2BIG beyond CONFIG_HOSTS_MAX.
 */
int config_add_host(struct config_hosts *h, const char *s, const char **out_why) MUST_CHECK;
void config_hosts_fini(struct config_hosts *h);
/* A range within those that --allow-private may open: private, link-local, shared space. */
int config_private(const char *s, struct ip4_net *out, const char **out_why) MUST_CHECK;
/* 1 to 65535, decimal, without leading zeros. */
int config_port(const char *s, uint16_t *out, const char **out_why) MUST_CHECK;
/* ... of a service on the host: one that is not closed to everybody. */
int config_service(const char *s, uint16_t *out, const char **out_why) MUST_CHECK;

const char *config_apply_name(enum config_apply a);
int config_apply_parse(const char *s, enum config_apply *out) MUST_CHECK;

#endif
