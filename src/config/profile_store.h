/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile_store.h - writing the user's own profiles.
 *
 * One writer at a time, by a lock beside the files; a file is replaced as a whole or
 * not at all (temporary name, fsync, rename). Files are 0600, the folder 0700.
 */
#ifndef CLOCHE_CONFIG_PROFILE_STORE_H
#define CLOCHE_CONFIG_PROFILE_STORE_H

#include "base/mem.h"
#include "base/span.h"

struct err;

enum { PROFILE_STORE_WAIT_MS = 2000 };

struct profile_store {
	char *dir;
	int dirfd, lock_fd;
};
#define PROFILE_STORE_INIT                 \
	{                                  \
		.dirfd = -1, .lock_fd = -1 \
	}

/*
 * profile_store_open() - create @dir where it is missing, and take its lock.
 * Return: 0, -EAGAIN when somebody else has the lock for PROFILE_STORE_WAIT_MS, -errno with
 * @err. profile_store_close() in any case.
 */
int profile_store_open(struct profile_store *s, const char *dir, struct err *err) MUST_CHECK;
void profile_store_close(struct profile_store *s);

/* Put @text into the file @name (one component). 0 or -errno with @err. */
int profile_store_write(const struct profile_store *s, const char *name, struct span text,
                        struct err *err) MUST_CHECK;
/* Remove it; none is an error, too. */
int profile_store_remove(const struct profile_store *s, const char *name,
                         struct err *err) MUST_CHECK;

#endif
