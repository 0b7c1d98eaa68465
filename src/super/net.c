/* SPDX-License-Identifier: Apache-2.0 */
#include "super/net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"

static const char *const mode_names[] = {
	[NET_OFFLINE] = "offline",
	[NET_ISOLATED] = "isolated",
	[NET_SHARED] = "shared",
};

int net_mode_parse(const char *s, enum net_mode *out)
{
	for (size_t i = 0; i < ARRAY_LEN(mode_names); i++) {
		if (strcmp(s, mode_names[i]) == 0) {
			*out = (enum net_mode)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *net_mode_name(enum net_mode m)
{
	return m <= NET_SHARED ? mode_names[m] : "?";
}

enum { POLICY_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

int net_policy_fd(const struct egress *e)
{
	AUTO_BUF struct buf b = { 0 };
	int r = egress_put(e, &b);

	if (r < 0)
		return r;
	AUTO_CLOSE int fd = memfd_create("policy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* not at an offset: who reads it next begins at the start */
	r = fd_pwrite_all(fd, b.p, b.len, 0);
	if (r < 0)
		return r;
	return fcntl(fd, F_ADD_SEALS, POLICY_SEALS) < 0 ? -errno : take_fd(&fd);
}

int net_policy_read(int fd, struct egress **out)
{
	struct stat st;

	if (fcntl(fd, F_GET_SEALS) != POLICY_SEALS)
		return -EPERM;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > EGRESS_BYTES_MAX)
		return -E2BIG;
	AUTO_FREE uint8_t *b = malloc((size_t)st.st_size + 1);
	if (!b)
		return -ENOMEM;
	int r = fd_pread_exact(fd, b, (size_t)st.st_size, 0);
	return r < 0 ? r : egress_parse(out, span_of(b, (size_t)st.st_size));
}

/* In /tmp anybody may have been first: a link, or a folder of theirs. */
static int own_tmp_dir(const char *path, bool create, struct err *err)
{
	struct stat st;

	if (create && mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_errno(err, "cannot create directory '%s'", path);
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, "cannot open directory '%s'", path);
	if (st.st_uid != geteuid() || (st.st_mode & 077)) {
		err_set(err, -EPERM, "directory '%s' is not yours alone", path);
		return err_hint(err, "remove it, or set XDG_RUNTIME_DIR to a folder of your own");
	}
	return take_fd(&fd);
}

int net_runtime_dir(bool create, struct err *err)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	int fd = -1;

	if (!run || run[0] != '/') {
		AUTO_FREE char *tmp = xasprintf("/tmp/cloche-%u", (unsigned)geteuid());
		return own_tmp_dir(tmp, create, err);
	}
	AUTO_FREE char *path = xasprintf("%s/cloche", run);
	if (!create && access(path, F_OK) < 0)
		return err_errno(err, "cannot open directory '%s'", path);
	int r = path_own_dir(path, &fd, err);
	return r < 0 ? r : fd;
}
