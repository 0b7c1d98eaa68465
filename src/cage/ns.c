/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns.c - namespaces, and a root directory with nothing in it.
 *
 * The new root is a tmpfs put on top of "/", filled, made read-only, and
 * entered by pivot_root(2), after which the old tree is let go. A directory
 * descriptor that is held from before is a hole in that: ".." from it walks the
 * host's tree to its top. So each of them is bound into the new root, and the
 * copy, where ".." ends at the empty root, takes its number. A directory
 * descriptor that is not in the list is closed.
 */
#include "cage/cage_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"

/* glibc of Debian 12 declares some of these, that of 13 all: by number, under our own names */
enum {
	NR_OPEN_TREE = 428,
	NR_MOVE_MOUNT = 429,
	NR_FSOPEN = 430,
	NR_FSCONFIG = 431,
	NR_FSMOUNT = 432,
	NR_MOUNT_SETATTR = 442,
	TREE_CLONE = 1,
	TREE_RECURSIVE = 0x8000, /* AT_RECURSIVE */
	MOVE_F_EMPTY_PATH = 4,
	MOVE_T_EMPTY_PATH = 0x40,
	FSCONF_STRING = 1,
	FSCONF_CREATE = 6,
	ATTR_RDONLY = 1,
	ATTR_NOSUID = 2,
	ATTR_NODEV = 4,
	ATTR_NOEXEC = 8,
	ROOT_PATH_MAX = 4096,
};

struct attr {
	uint64_t set, clr, propagation, userns_fd;
};

static int write_file(const char *path, const char *text)
{
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fd_write_all(fd, text, strlen(text));
}

/* A user namespace in which our own ids are the only ones. */
static int userns_enter(void)
{
	char line[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER) < 0)
		return -errno;
	/* the files of /proc/self belong to us only while we are dumpable */
	(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	(void)snprintf(line, sizeof(line), "%u %u 1\n", uid, uid);
	int r = write_file("/proc/self/uid_map", line);
	if (r < 0)
		return r;
	r = write_file("/proc/self/setgroups", "deny");
	if (r < 0)
		return r;
	(void)snprintf(line, sizeof(line), "%u %u 1\n", gid, gid);
	return write_file("/proc/self/gid_map", line);
}

static int set_attr(int fd, uint64_t set, bool recursive)
{
	struct attr a = { .set = set };

	if (syscall(NR_MOUNT_SETATTR, fd, "", AT_EMPTY_PATH | (recursive ? TREE_RECURSIVE : 0), &a,
	            sizeof(a)) < 0)
		return -errno;
	return 0;
}

/* A detached copy of what @fd shows, with @attr. Return: fd or -errno. */
static int tree_clone(int fd, uint64_t attr)
{
	AUTO_CLOSE int t = (int)syscall(NR_OPEN_TREE, fd, "",
	                                AT_EMPTY_PATH | TREE_RECURSIVE | TREE_CLONE | O_CLOEXEC);
	if (t < 0)
		return -errno;
	int r = set_attr(t, attr, true);
	if (r < 0)
		return r;
	return take_fd(&t);
}

static int attach(int tree, int dirfd, const char *name)
{
	if (syscall(NR_MOVE_MOUNT, tree, "", dirfd, name, MOVE_F_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

/*
 * Bind what opts.fs[i] shows as /fN. The descriptor belongs to the mount
 * namespace that we left and cannot be bound itself: its path is opened again
 * here, and must lead to the same directory.
 */
static int bind_fd(int root, const struct cage_fs *f, const char *name)
{
	char proc[64], path[ROOT_PATH_MAX];
	struct stat want, got;

	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", f->fd);
	ssize_t n = readlink(proc, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	AUTO_CLOSE int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(f->fd, &want) < 0 || fstat(fd, &got) < 0)
		return -errno;
	if (want.st_dev != got.st_dev || want.st_ino != got.st_ino)
		return -ESTALE;
	uint64_t attr = ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC;
	if (!(f->access & CAGE_FS_WRITE))
		attr |= ATTR_RDONLY;
	AUTO_CLOSE int tree = tree_clone(fd, attr);
	if (tree < 0)
		return tree;
	if (mkdirat(root, name, 0755) < 0)
		return -errno;
	return attach(tree, root, name);
}

/* Put the bound copy of opts.fs[i] at its number. */
static int replace_fd(const struct cage_fs *f, const char *name)
{
	char path[32];
	int fl = fcntl(f->fd, F_GETFL), fdfl = fcntl(f->fd, F_GETFD);

	if (fl < 0 || fdfl < 0)
		return -errno;
	(void)snprintf(path, sizeof(path), "/%s", name);
	AUTO_CLOSE int fd = open(path, (fl & O_PATH) | O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return dup3(fd, f->fd, fdfl & FD_CLOEXEC ? O_CLOEXEC : 0) < 0 ? -errno : 0;
}

/* Make the folders above the last component of @path below @root; *base is that component. */
static int make_parents(int root, const char *path, int *out_fd, const char **base)
{
	char part[256];
	AUTO_CLOSE int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);

	if (dir < 0)
		return -errno;
	while (*path == '/')
		path++;
	for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
		size_t n = (size_t)(slash - path);

		if (n == 0 || n >= sizeof(part))
			return -EINVAL;
		memcpy(part, path, n);
		part[n] = '\0';
		if (strcmp(part, "..") == 0)
			return -EINVAL;
		if (mkdirat(dir, part, 0755) < 0 && errno != EEXIST && errno != EROFS)
			return -errno;
		int next = openat(dir, part, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (next < 0)
			return -errno;
		(void)close(dir); /* a path descriptor */
		dir = next;
	}
	*base = path;
	*out_fd = take_fd(&dir);
	return 0;
}

/* Bind a path of opts.paths at the same place below @root. */
static int bind_path(int root, const struct cage_path *p, uid_t owner)
{
	char text[ROOT_PATH_MAX];
	const char *base;
	struct stat st;
	AUTO_CLOSE int dir = -1;

	if (p->path[0] != '/' || p->path[1] == '\0')
		return -EINVAL;
	/* /lib and the like are links on a merged /usr: the same link here */
	if (!strchr(p->path + 1, '/')) {
		ssize_t n = readlink(p->path, text, sizeof(text) - 1);

		if (n > 0) {
			text[n] = '\0';
			return symlinkat(text, root, p->path + 1) < 0 ? -errno : 0;
		}
	}
	AUTO_CLOSE int src = open(p->path, O_PATH | O_CLOEXEC);
	if (src < 0 || fstat(src, &st) < 0)
		return errno == ENOENT && p->optional ? 0 : -errno;
	int r = make_parents(root, p->path, &dir, &base);
	if (r < 0)
		return r;
	AUTO_CLOSE int there = openat(dir, base, O_PATH | O_CLOEXEC);
	if (there >= 0)
		return 0; /* a folder that was bound before shows it */
	if ((p->access & CAGE_FS_DEV) && S_ISCHR(st.st_mode) && geteuid() == 0 &&
	    mknodat(dir, base, S_IFCHR | 0600, st.st_rdev) == 0)
		/* a node that the sandbox's uid may open, whatever the host's says */
		return fchownat(dir, base, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	uint64_t attr = ATTR_NOSUID;
	if (!(p->access & CAGE_FS_DEV))
		attr |= ATTR_NODEV;
	if (!(p->access & (CAGE_FS_WRITE | CAGE_FS_DEV)))
		attr |= ATTR_RDONLY;
	if (!(p->access & (CAGE_FS_EXEC | CAGE_FS_LIB)))
		attr |= ATTR_NOEXEC;
	AUTO_CLOSE int tree = tree_clone(src, attr);
	if (tree < 0)
		return tree;
	if (S_ISDIR(st.st_mode)) {
		if (mkdirat(dir, base, 0755) < 0)
			return -errno;
	} else {
		AUTO_CLOSE int f = openat(dir, base, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
		if (f < 0)
			return -errno;
	}
	return attach(tree, dir, base);
}

/* Close directories that are open and not listed. Return: 0 or -errno. */
static int close_other_dirs(const struct cage_opts *o, int keep)
{
	DIR *d = opendir("/proc/self/fd");

	if (!d)
		return -errno;
	for (struct dirent *e; (e = readdir(d));) {
		int fd = atoi(e->d_name);
		bool listed = fd == dirfd(d) || fd == keep || e->d_name[0] == '.';
		struct stat st;

		for (size_t i = 0; i < o->n_fs; i++)
			listed |= o->fs[i].fd == fd;
		if (!listed && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
			(void)close(fd); /* nothing can be lost with a directory */
	}
	(void)closedir(d); /* as above */
	return 0;
}

static int new_root(void)
{
	AUTO_CLOSE int fs = (int)syscall(NR_FSOPEN, "tmpfs", 1 /* FSOPEN_CLOEXEC */);

	if (fs < 0 || syscall(NR_FSCONFIG, fs, FSCONF_STRING, "mode", "0755", 0) < 0 ||
	    syscall(NR_FSCONFIG, fs, FSCONF_STRING, "size", "64k", 0) < 0 ||
	    syscall(NR_FSCONFIG, fs, FSCONF_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	/* device nodes that root puts here must work; nobody may add one later */
	AUTO_CLOSE int m = (int)syscall(NR_FSMOUNT, fs, 1 /* FSMOUNT_CLOEXEC */, ATTR_NOSUID);
	if (m < 0)
		return -errno;
	if (syscall(NR_MOVE_MOUNT, m, "", AT_FDCWD, "/", MOVE_F_EMPTY_PATH) < 0)
		return -errno;
	return take_fd(&m);
}

static void fs_name(char dst[24], size_t i)
{
	(void)snprintf(dst, 24, "f%zu", i);
}

/*
 * Build and enter the empty root. *all: every directory of opts.fs is without
 * a way up now. Nothing has changed for the caller when -errno comes back with
 * *entered false.
 */
static int root_enter(const struct cage_opts *o, bool *all, bool *entered, struct err *err)
{
	char name[24];
	AUTO_FREE bool *bound = xcalloc(o->n_fs + 1, sizeof(*bound));

	*all = true;
	*entered = false;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	AUTO_CLOSE int root = new_root();
	if (root < 0)
		return root;
	for (size_t i = 0; i < o->n_fs; i++) {
		struct stat st;

		if (fstat(o->fs[i].fd, &st) == 0 && !S_ISDIR(st.st_mode))
			continue; /* an open file leads nowhere */
		fs_name(name, i);
		bound[i] = bind_fd(root, &o->fs[i], name) == 0;
		*all &= bound[i];
	}
	for (size_t i = 0; i < o->n_paths; i++) {
		int r = bind_path(root, &o->paths[i], o->uid);

		if (r < 0)
			return err_code(err, r, "cannot show '%s' in the cage", o->paths[i].path);
	}
	int r = close_other_dirs(o, root);
	if (r < 0)
		*all = false;
	r = set_attr(root, ATTR_RDONLY, false);
	if (r < 0)
		return r;
	if (fchdir(root) < 0)
		return -errno;
	*entered = true;
	/* where "/" is the boot's own ramfs it cannot be exchanged: chroot holds as
	 * well, as no role keeps the capability to leave it */
	if (syscall(SYS_pivot_root, ".", ".") == 0) {
		if (umount2(".", MNT_DETACH) < 0)
			return -errno;
	} else if (chroot(".") < 0) {
		return -errno;
	}
	if (chdir("/") < 0)
		return -errno;
	for (size_t i = 0; i < o->n_fs; i++) {
		fs_name(name, i);
		if (!bound[i])
			continue;
		r = replace_fd(&o->fs[i], name);
		if (r < 0)
			return r;
	}
	return 0;
}

int cage_ns_enter(const struct cage_opts *o, bool user, unsigned *layers, struct err *err)
{
	static const struct {
		int flag;
		unsigned layer;
	} each[] = {
		{ CLONE_NEWNET, CAGE_NETNS },
		{ CLONE_NEWIPC, CAGE_IPCNS },
		{ CLONE_NEWUTS, 0 },
	};
	unsigned skip = o->skip_layers;
	bool all, entered;

	if (user) {
		if (skip & CAGE_USERNS)
			return 0;
		int r = userns_enter();
		if (r < 0)
			return 0; /* not offered; a namespace without ids still holds us */
		*layers |= CAGE_USERNS;
	}
	for (size_t i = 0; i < ARRAY_LEN(each); i++) {
		if (each[i].layer && (skip & each[i].layer))
			continue;
		if (each[i].flag == CLONE_NEWNET && cage_roles[o->role].host_net)
			continue;
		if (unshare(each[i].flag) == 0)
			*layers |= each[i].layer;
	}
	if ((skip & CAGE_MOUNTNS) || unshare(CLONE_NEWNS) < 0)
		return 0;
	/* the role's uid must be able to walk the new root, whatever our caller's umask is */
	mode_t mask = umask(022);
	int r = root_enter(o, &all, &entered, err);
	(void)umask(mask);
	if (r < 0 && (entered || (err && err->code)))
		return err && err->code ? r : err_code(err, r, "cannot enter an empty root");
	if (r == 0 && all)
		*layers |= CAGE_MOUNTNS;
	return 0;
}
