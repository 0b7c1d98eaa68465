/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account.h - who USER of an image is, by that image's own passwd(5) and group(5).
 *
 * Pure: both files are the image's, any bytes. A line that is not of their form is skipped.
 * The rules are docker's, but for root: an image that asks for it gets the agent, uid 1000.
 */
#ifndef CLOCHE_GUEST_ACCOUNT_H
#define CLOCHE_GUEST_ACCOUNT_H

#include "base/span.h"

struct err;

enum {
	ACCOUNT_AGENT_ID = 1000,
	ACCOUNT_GROUPS_MAX = 32,
	ACCOUNT_NAME_MAX = 64,
	ACCOUNT_PATH_MAX = 1024,
	ACCOUNT_FILE_MAX = 1024 * 1024, /* of each file, the rest is not read */
};

struct account {
	uint32_t uid, gid;
	uint32_t groups[ACCOUNT_GROUPS_MAX]; /* more of them, without gid */
	size_t n_groups;
	char name[ACCOUNT_NAME_MAX + 1];
	char home[ACCOUNT_PATH_MAX + 1];
	char shell[ACCOUNT_PATH_MAX + 1];
	bool listed;      /* it stands in passwd */
	bool group_there; /* gid stands in group */
	bool was_root;    /* USER is root, and so is not what it gets */
};

/*
 * account_find() - NAME or UID, with :GROUP or :GID behind it; "" is uid 1000.
 *
 * Of a name that is listed the groups that name it are added, unless a group is said. A number
 * that is not listed has gid 0, as for docker; that of the agent 1000. What passwd does not say
 * is "agent" or the number, /home/agent, /bin/sh.
 *
 * Return: 0; -ENOENT when a name is not listed, -EINVAL for what is no user, with @err.
 */
int account_find(struct account *out, struct span passwd, struct span group, struct span user,
                 struct err *err) MUST_CHECK;

/* Does a line of passwd or group have this name? */
bool account_has_name(struct span file, const char *name);

#endif
