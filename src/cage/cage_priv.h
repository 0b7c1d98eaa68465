/* SPDX-License-Identifier: Apache-2.0 */
/* cage_priv.h - between the files of cage/. */
#ifndef CLOCHE_CAGE_CAGE_PRIV_H
#define CLOCHE_CAGE_CAGE_PRIV_H

#include "cage/cage.h"

/* What a role is, beside its list of calls. */
struct cage_role_info {
	const char *name;
	uint64_t memory_max; /* address space; 0: no limit */
	unsigned nofile_max;
	bool threads;
	bool keeps_root;    /* started as root it stays root: opts.uid is not looked at */
	bool real_ids;      /* no user namespace when landlock holds: it must see and set
	                         the groups of its user, which a namespace cannot map */
	bool host_net;      /* stays in the host's network namespace, and may connect by TCP */
	uint64_t root_caps; /* capabilities it keeps when it was started as root */
};

extern const struct cage_role_info cage_roles[CAGE_ROLES];

/* seccomp(2) for @role, last of all. 0 or -errno. */
int cage_filter_load(enum cage_role role) MUST_CHECK;

/* ABI of landlock(7) that the kernel speaks; 0: none. */
int cage_landlock_abi(void);

/*
 * Deny all but opts.fs and opts.paths. Adds to *layers.
 * Return: 0, also without landlock; -errno when it should work and does not.
 */
int cage_landlock_enter(const struct cage_opts *o, int abi, unsigned *layers,
                        struct err *err) MUST_CHECK;

/*
 * Namespaces and the empty root. Adds to *layers what holds; CAGE_MOUNTNS only
 * when every directory of opts.fs was replaced by one without a way up.
 * @user:	make a user namespace first
 *
 * Return: 0, also when nothing is offered; -errno when the process is in a
 * state that it must not go on with.
 */
int cage_ns_enter(const struct cage_opts *o, bool user, unsigned *layers,
                  struct err *err) MUST_CHECK;

/* Leave root, keep @keep of the capabilities; without @set_ids only drop them. 0 or -errno. */
int cage_ids_enter(uid_t uid, bool set_ids, uint64_t keep) MUST_CHECK;

/* Is [@uid] inside a range of subuid(5) text? Lines that cannot be read count as no range. */
bool cage_subid_has(const char *text, size_t len, uid_t uid);

/* Does uid_map(5) text (user_namespaces(7)) map @uid? */
bool cage_idmap_has(const char *text, size_t len, uid_t uid);

#endif
