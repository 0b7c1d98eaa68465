/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h - what cloche knows about one agent, as data.
 *
 * A profile is a YAML or JSON document with a strict schema: an unknown or
 * misspelled key, a value of another type, a text that YAML readers disagree
 * about and that has no quotes, or a rule between keys that does not hold is an
 * error with file, line and column. docs/profiles.md describes every key,
 * docs/schemas/profile.json is the same for editors, and tests hold both to
 * profile_schema.c.
 *
 * Everything here is pure. Strings and lists belong to the profile and live as
 * long as it does. Nothing of a profile is executed or opened by reading it.
 */
#ifndef CLOCHE_CONFIG_PROFILE_H
#define CLOCHE_CONFIG_PROFILE_H

#include "config/yamlread.h"

enum {
	PROFILE_BYTES_MAX = 1024 * 1024,
	PROFILE_NAME_MAX = 64,
	PROFILE_TEXT_MAX = 4096,       /* of a text that is no value of a variable */
	PROFILE_VALUE_MAX = 32 * 1024, /* of a variable */
	PROFILE_LIST_MAX = 256,
	PROFILE_SOURCES = 4,
};

/* Who said a value: ynode.source of the tree. */
enum profile_source {
	PROFILE_BUILTIN = 1,
	PROFILE_FILE,   /* a file of the user's own */
	PROFILE_CONFIG, /* agents.NAME of config.yaml, laid over */
};

enum profile_kind { PROFILE_AGENT, PROFILE_SHELL };
enum profile_egress { PROFILE_STANDARD, PROFILE_LOCKED };

struct profile_texts {
	const char **v;
	size_t n;
};

/* A name in a mapping and its text. */
struct profile_pair {
	const char *name, *value;
};
struct profile_pairs {
	struct profile_pair *v;
	size_t n;
};

/* One package of npm in a layer: unpacked, nothing of it run. */
struct profile_npm {
	const char *package, *version; /* exact */
	struct profile_texts omit;     /* patterns of files to leave out */
	struct profile_pairs bin;      /* command in /usr/local/bin, path in the package */
};

struct profile_recipe {
	const char *over; /* the base image it lies over */
	struct {
		struct profile_npm *v;
		size_t n;
	} npm;
	struct profile_texts commands; /* run in a microVM over the base image */
	const char *hint;              /* what to do where it cannot be built; or NULL */
};

struct profile_resources { /* 0: not said */
	uint64_t cpus, memory, disk, tmp_size, min_memory;
};

/* A variable of the guest. */
struct profile_var {
	const char *name, *value;  /* value: a literal, or NULL */
	const char *ref;           /* taken into refs */
	struct profile_texts refs; /* "env.NAME", "secrets.NAME": the first that has a value */
};

struct profile_env {
	struct profile_texts pass;     /* names or PREFIX* taken from the user's environment */
	struct profile_texts required; /* must have a value */
	struct profile_texts metered;  /* never passed: would be charged in place of the login */
	struct profile_texts deny;     /* never passed, for other reasons */
	struct profile_texts paths;    /* hold a path of the host, which means nothing inside */
	struct profile_texts heap;     /* "node", "go": size hints for this machine's memory */
	struct {
		struct profile_var *v;
		size_t n;
	} set;
};

enum profile_from { PROFILE_FROM_KEYRING, PROFILE_FROM_FILE, PROFILE_FROM_ENV };

/* Where `secret import` may read a secret on the host. */
struct profile_locator {
	unsigned from; /* enum profile_from */
	const char *service, *path, *var, *hint;
};

struct profile_secret {
	const char *name;
	bool required;
	const char *field, *expiry; /* JSON members to take, at any depth */
	const char *hint;
	struct {
		struct profile_locator *v;
		size_t n;
	} sources;
};

struct profile_credentials {
	struct profile_texts paths; /* below home: kept for the agent's next run */
	struct profile_texts login; /* files below home: one of them is a login */
	struct profile_texts env;   /* variables: one of them is a login */
	const char *hint;           /* how to log in */
};

/* A secret delivered as a file in guest memory. */
struct profile_file {
	const char *secret, *path;
	const char *mode_text;
	uint32_t mode;
};

enum profile_volume_kind { PROFILE_TMPFS, PROFILE_PERSIST };
struct profile_volume {
	unsigned kind; /* enum profile_volume_kind */
	const char *path;
	uint64_t size; /* TMPFS: bytes */
	bool file;     /* PERSIST: the path is a file */
};

enum profile_format { PROFILE_JSON, PROFILE_JSONC, PROFILE_TOML, PROFILE_YAML };
enum profile_setting_kind { PROFILE_COPY_FILE, PROFILE_COPY_DIR, PROFILE_MERGE };

/* A setting of the host's own agent that may be copied in. */
struct profile_setting {
	const char *category;
	const char *path, *to; /* below the home of the host, of the guest */
	unsigned kind;         /* enum profile_setting_kind */
	unsigned format;       /* MERGE */
	bool optional;
	struct profile_texts keys; /* MERGE: the members that are taken */
	struct profile_texts drop; /* MERGE: members removed at any depth below them */
};

enum profile_when { PROFILE_WHEN_UNSAID, PROFILE_ALWAYS, PROFILE_LOGIN, PROFILE_ENV };

/* Members that are added to a file in the guest's home, where they are not there yet. */
struct profile_seed {
	const char *path;
	unsigned format; /* enum profile_format */
	const char *when_text;
	enum profile_when when;
	const char *when_env;      /* ENV: this variable reaches the guest */
	const struct ynode *merge; /* a mapping; "${CLOCHE_...}" in keys and texts is replaced */
};
struct profile_seeds {
	struct profile_seed *v;
	size_t n;
};

enum profile_mcp_mode { PROFILE_MCP_NONE, PROFILE_MCP_ENV, PROFILE_MCP_CONFIG };
struct profile_mcp {
	unsigned mode;
	unsigned authz; /* index of profile_authz_names; PROFILE_AUTHZ_UNSAID */
	struct profile_seeds inject;
};
enum { PROFILE_AUTHZ_UNSAID = 255 };
extern const char *const profile_authz_names[];

struct profile_quiet {
	struct profile_pairs env;
	struct profile_seeds files;
};

struct profile {
	const char *name;
	struct profile_texts aliases;
	const char *description; /* or NULL */
	unsigned kind;
	struct profile_texts command; /* argv */
	const char *home;
	const char *image; /* a base image of ours or a reference; or NULL */
	bool has_recipe;
	struct profile_recipe recipe;
	struct profile_resources resources;
	bool sudo;
	unsigned egress;
	struct profile_texts hosts;       /* of the provider: NAME[:PORT] */
	struct profile_texts allow_hosts; /* more */
	struct {
		uint64_t *v;
		size_t n;
	} callback_ports;
	struct profile_env env;
	struct {
		struct profile_secret *v;
		size_t n;
	} secrets;
	struct profile_credentials credentials;
	struct {
		struct profile_file *v;
		size_t n;
	} files;
	struct {
		struct profile_volume *v;
		size_t n;
	} volumes;
	struct {
		struct profile_setting *v;
		size_t n;
	} settings;
	struct profile_mcp mcp;
	struct profile_seeds onboarding, trust;
	struct profile_quiet quiet;

	/* where all of it comes from; texts above point into it */
	struct ynode *tree;
	enum profile_source from; /* of the document itself */
	void **blocks;
	size_t n_blocks;
};

/*
 * profile_decode() - check a tree and make a profile of it.
 * @tree:	taken, also on failure; NULL is an empty document
 * @names:	of the files, by ynode.source, for messages
 *
 * Return: 0 with *out for profile_free(), or -EINVAL with @err.
 */
int profile_decode(struct profile **out, struct ynode *tree,
                   const char *const names[PROFILE_SOURCES], struct err *err) MUST_CHECK;
/* The same from bytes, all of them from @source. -EFBIG over PROFILE_BYTES_MAX. */
int profile_parse(struct profile **out, const char *name, const void *p, size_t n,
                  enum profile_source source, struct err *err) MUST_CHECK;
void profile_free(struct profile *p);

bool profile_name_ok(const char *s);
/* NAME or PREFIX*, as in env.pass; never a lone star. */
bool profile_pattern_ok(const char *s);
bool profile_pattern_match(const char *pattern, const char *name);
/* Is it @p's name or one of its aliases? */
bool profile_is(const struct profile *p, const char *name);
bool profile_texts_have(const struct profile_texts *t, const char *s);

const char *profile_kind_name(const struct profile *p);
const char *profile_egress_name(const struct profile *p);

/*
 * profile_without_effect() - the next key that @p has and that no run acts on yet.
 * @i:	0 at first, counted on
 * Return: the key; NULL behind the last one.
 */
const char *profile_without_effect(const struct profile *p, size_t *i);

/* The value that a key ("env.pass") has in the document, or NULL: who said it is its source. */
const struct ynode *profile_at(const struct profile *p, const char *key);

/*
 * profile_each_key() - every key of the schema in its order, as "env.pass", "recipe.npm[].bin"
 * or "env.set.NAME.ref". For documentation, and the tests that hold it.
 */
void profile_each_key(void (*fn)(void *arg, const char *key, const char *what), void *arg);

#endif
