/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.c - landlock(7) by raw system calls.
 *
 * The constants are written out: Debian 12's headers end at ABI 2, and what
 * counts is the kernel that runs, which is asked for its ABI.
 */
#include "cage/cage_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"

enum {
	LL_CREATE_RULESET = 444, /* the same on every architecture */
	LL_ADD_RULE = 445,
	LL_RESTRICT_SELF = 446,
	LL_CREATE_RULESET_VERSION = 1,
	LL_RULE_PATH_BENEATH = 1,
};

/* linux/landlock.h, ABI 7 */
enum {
	LL_EXECUTE = 1 << 0,
	LL_WRITE_FILE = 1 << 1,
	LL_READ_FILE = 1 << 2,
	LL_READ_DIR = 1 << 3,
	LL_REMOVE_DIR = 1 << 4,
	LL_REMOVE_FILE = 1 << 5,
	LL_MAKE_CHAR = 1 << 6,
	LL_MAKE_DIR = 1 << 7,
	LL_MAKE_REG = 1 << 8,
	LL_MAKE_SOCK = 1 << 9,
	LL_MAKE_FIFO = 1 << 10,
	LL_MAKE_BLOCK = 1 << 11,
	LL_MAKE_SYM = 1 << 12,
	LL_REFER = 1 << 13,     /* ABI 2 */
	LL_TRUNCATE = 1 << 14,  /* ABI 3 */
	LL_IOCTL_DEV = 1 << 15, /* ABI 5 */

	LL_ABI1 = (1 << 13) - 1,
	LL_OF_FILES = LL_EXECUTE | LL_WRITE_FILE | LL_READ_FILE | LL_TRUNCATE | LL_IOCTL_DEV,
	LL_NET_BIND = 1, /* TCP: ABI 4 */
	LL_NET_CONNECT = 2,
	LL_SCOPE_ALL = 3 /* abstract unix sockets, signals: ABI 6 */
};

struct ll_ruleset {
	uint64_t fs, net, scoped;
};

struct ll_path_beneath {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));

int cage_landlock_abi(void)
{
	long r = syscall(LL_CREATE_RULESET, NULL, 0, LL_CREATE_RULESET_VERSION);

	return r > 0 ? (int)r : 0;
}

static uint64_t handled_by(int abi)
{
	uint64_t h = LL_ABI1;

	if (abi >= 2)
		h |= LL_REFER;
	if (abi >= 3)
		h |= LL_TRUNCATE;
	if (abi >= 5)
		h |= LL_IOCTL_DEV;
	return h;
}

static int add(int ruleset, int fd, unsigned access, uint64_t handled)
{
	struct ll_path_beneath rule = { .fd = fd };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (access & CAGE_FS_READ)
		rule.allowed |= LL_READ_FILE | LL_READ_DIR;
	if (access & CAGE_FS_WRITE)
		/* no devices, sockets or pipes: no role has a reason to make them */
		rule.allowed |= LL_WRITE_FILE | LL_TRUNCATE | LL_REMOVE_DIR | LL_REMOVE_FILE |
		                LL_MAKE_DIR | LL_MAKE_REG | LL_MAKE_SYM | LL_REFER;
	if (access & CAGE_FS_EXEC)
		rule.allowed |= LL_EXECUTE;
	if (access & CAGE_FS_DEV)
		rule.allowed |= LL_READ_FILE | LL_WRITE_FILE | LL_IOCTL_DEV;
	rule.allowed &= handled;
	if (!S_ISDIR(st.st_mode))
		rule.allowed &= LL_OF_FILES;
	if (rule.allowed == 0)
		return 0; /* a rule without a right is an error, and says nothing */
	if (syscall(LL_ADD_RULE, ruleset, LL_RULE_PATH_BENEATH, &rule, 0) < 0)
		return -errno;
	return 0;
}

int cage_landlock_enter(const struct cage_opts *o, int abi, unsigned *layers, struct err *err)
{
	struct ll_ruleset rs = { .fs = handled_by(abi) };
	size_t size = sizeof(rs.fs);

	if (abi <= 0 || (o->skip_layers & CAGE_LANDLOCK))
		return 0;
	if (abi >= 4 && !(o->skip_layers & CAGE_LANDLOCK_NET)) {
		rs.net = LL_NET_BIND | (cage_roles[o->role].host_net ? 0 : LL_NET_CONNECT);
		size = offsetof(struct ll_ruleset, scoped);
	}
	if (abi >= 6 && !(o->skip_layers & CAGE_LANDLOCK_SCOPE)) {
		rs.scoped = LL_SCOPE_ALL;
		size = sizeof(rs);
	}
	AUTO_CLOSE int ruleset = (int)syscall(LL_CREATE_RULESET, &rs, size, 0);
	if (ruleset < 0)
		return err_errno(err, "cannot make a landlock ruleset");
	for (size_t i = 0; i < o->n_fs; i++) {
		int r = add(ruleset, o->fs[i].fd, o->fs[i].access, rs.fs);

		if (r < 0)
			return err_code(err, r, "cannot allow descriptor %d in the cage",
			                o->fs[i].fd);
	}
	for (size_t i = 0; i < o->n_paths; i++) {
		AUTO_CLOSE int fd = open(o->paths[i].path, O_PATH | O_CLOEXEC);

		if (fd < 0 && o->paths[i].optional)
			continue;
		if (fd < 0)
			return err_errno(err, "cannot allow '%s' in the cage", o->paths[i].path);
		int r = add(ruleset, fd, o->paths[i].access, rs.fs);
		if (r < 0)
			return err_code(err, r, "cannot allow '%s' in the cage", o->paths[i].path);
	}
	if (syscall(LL_RESTRICT_SELF, ruleset, 0) < 0)
		return err_errno(err, "cannot enter landlock");
	*layers |= CAGE_LANDLOCK;
	if (rs.net)
		*layers |= CAGE_LANDLOCK_NET;
	if (rs.scoped)
		*layers |= CAGE_LANDLOCK_SCOPE;
	return 0;
}
