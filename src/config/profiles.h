/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiles.h - all the agents that this user can name: the built-in profiles, the
 * user's own files, and what `agents:` of config.yaml lays over either.
 *
 * Own files are $XDG_CONFIG_HOME/cloche/profiles/NAME.yaml, .yml or .json, in
 * the order of their names. One that declares the name of a built-in profile
 * replaces it. A file that cannot be used does not keep the others from
 * loading; but its agent cannot be run until it is mended or removed, also when there
 * is a built-in one of that name: what the user wrote may have been stricter.
 */
#ifndef CLOCHE_CONFIG_PROFILES_H
#define CLOCHE_CONFIG_PROFILES_H

#include "base/err.h"
#include "config/profile.h"

enum { PROFILES_FILES_MAX = 1000 };

/* The built-in ones, as they are in profiles/ of the source. */
struct profile_builtin {
	const char *name, *text;
};
extern const struct profile_builtin profile_builtins[];
extern const size_t profile_builtins_n;
const char *profile_builtin_text(const char *name);
/* One text: a commented profile with every key, for the name AGENT_NAME. */
extern const struct profile_builtin profile_templates[];
extern const size_t profile_templates_n;
/* The same for config.yaml. */
extern const struct profile_builtin config_templates[];
extern const size_t config_templates_n;

struct profile_entry {
	char *name;
	struct profile *profile; /* NULL: declared, but invalid; see err */
	struct profile *builtin; /* of that name, where something stands over it; or NULL */
	char *path;              /* of the file that declares it; NULL: built in or config.yaml */
	bool configured;         /* config.yaml says something about it */
	struct err err;
};

struct profiles {
	struct profile_entry *v;
	size_t n;
	/* what the user should hear: bad files, names that stand twice, lost denials */
	char **problems;
	size_t n_problems;
	char *dir, *config;
};

/*
 * profiles_load() - read all there are.
 * @dir:	the folder of own files; a missing one is no error
 * @agents:	`agents:` of config.yaml, or NULL
 * @config:	that file's name for messages
 *
 * Return: 0, also when some are invalid (problems says so), or -errno with @err when the folder
 * cannot be read at all. profiles_fini() in any case.
 */
int profiles_load(struct profiles *ps, const char *dir, const struct ynode *agents,
                  const char *config, struct err *err) MUST_CHECK;
void profiles_fini(struct profiles *ps);

/* By name, else by alias; NULL when there is none. The entry may be invalid. */
const struct profile_entry *profiles_find(const struct profiles *ps, const char *name);

/*
 * profiles_get() - the profile to run.
 * Return: 0, -ENOENT (the known ones are in the hint), -EINVAL when it is declared but invalid.
 */
int profiles_get(const struct profiles *ps, const char *name, const struct profile_entry **out,
                 struct err *err) MUST_CHECK;

/* "built-in", the file's path or the name of config.yaml. */
const char *profile_source_name(const struct profiles *ps, const struct profile_entry *e,
                                uint8_t source);

/* Denials of the built-in profile that what stands over it has lost; NULL-terminated in @out. */
size_t profile_lost_denials(const struct profile_entry *e, const char **out, size_t cap);

/*
 * profiles_files_of() - the files of the folder that declare @name, valid or not.
 * *out: names to free(), and the array. Return: 0 or -errno with @err.
 */
int profiles_files_of(const struct profiles *ps, const char *name, char ***out, size_t *out_n,
                      struct err *err) MUST_CHECK;

/* Can a file of this name be a profile? (NAME.yaml, .yml, .json; no leading dot) */
bool profile_file_name(const char *name);

/* Read one file whole: regular, at most PROFILE_BYTES_MAX. 0 or -errno with @err. */
int profile_read_file(int dirfd, const char *name, char **out, size_t *out_len,
                      struct err *err) MUST_CHECK;

#endif
