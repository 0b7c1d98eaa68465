/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file systems of the sessions. The disks are mounted in a folder of the
 * initramfs, which lies under the new root and so is out of everybody's sight
 * but ours; the overlays are all that sessions see of them.
 *
 * index=off, also for /work: with an index a write to one of two hard links of
 * the lower layer would show through the other name, too, while the upper holds
 * only the written one: what the agent saw would not be what is exported.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "guest/guest.h"

enum { DISK_WAIT_MS = 3000, DEV_BYTES = 64, TTY_GID = 5 };

#define OVERLAY_OPTIONS "metacopy=off,redirect_dir=off,index=off,xino=on"
#define WORK_OPTIONS "upperdir=s/work/upper,workdir=s/work/work," OVERLAY_OPTIONS

/* The device with this virtio serial; a disk may be found a moment after its driver. */
static int find_disk(struct span serial, char dev[static DEV_BYTES])
{
	uint64_t until = guest_now_ns() + DISK_WAIT_MS * 1000000ull;

	for (;;) {
		DIR *d = opendir("/sys/block");
		if (!d)
			return -errno;
		for (struct dirent *e; (e = readdir(d));) {
			char path[300], text[64];
			(void)snprintf(path, sizeof(path), "%s/serial", e->d_name);
			ssize_t n = e->d_name[0] == '.'
			                    ? -1
			                    : file_get_text(dirfd(d), path, text, sizeof(text));
			if (n <= 0)
				continue;
			n = (ssize_t)strcspn(text, "\n");
			if (span_eq(span_of(text, (size_t)n), serial) && strlen(e->d_name) < 32) {
				(void)snprintf(dev, DEV_BYTES, "/dev/%.32s", e->d_name);
				(void)closedir(d);
				return 0;
			}
		}
		(void)closedir(d);
		if (guest_now_ns() > until)
			return -ENODEV;
		guest_sleep_ms(2);
	}
}

static int mount_disk(struct span serial, const char *at, const char *type, unsigned long flags,
                      struct err *err)
{
	char dev[DEV_BYTES], name[32];

	(void)snprintf(name, sizeof(name), "%.*s", (int)MIN(serial.len, 31u),
	               (const char *)serial.p);
	int r = find_disk(serial, dev);
	if (r < 0)
		return err_code(err, r, "no disk '%s'", name);
	if (mkdir(at, 0700) < 0 && errno != EEXIST)
		return err_errno(err, "cannot make a mount point");
	if (mount(dev, at, type, flags, NULL) < 0)
		return err_errno(err, "cannot mount disk '%s' (%s) as %s", name, dev, type);
	return 0;
}

static int make_dir(const char *path, mode_t mode)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

static void make_link(const char *text, const char *path)
{
	(void)unlink(path); /* nothing there, or what the kernel put there */
	(void)!symlink(text, path);
}

struct mnt {
	const char *type, *at;
	unsigned long flags;
	const char *data;
	mode_t mode; /* of the mount point, when it is missing */
};

static int mount_all(const struct mnt *t, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		int r = make_dir(t[i].at, t[i].mode);
		if (r < 0)
			return err_code(err, r, "cannot make /%s", t[i].at);
		if (mount(t[i].type, t[i].at, t[i].type, t[i].flags, t[i].data) < 0)
			return err_errno(err, "cannot mount /%s", t[i].at);
	}
	return 0;
}

/* Kernel features that no agent needs, closed for good. */
static void harden(void)
{
	static const struct {
		const char *path, *value;
	} t[] = {
		{ "/proc/sys/kernel/kptr_restrict", "2" },
		{ "/proc/sys/kernel/dmesg_restrict", "1" },
		{ "/proc/sys/kernel/unprivileged_bpf_disabled", "1" },
		{ "/proc/sys/kernel/perf_event_paranoid", "3" },
		{ "/proc/sys/kernel/yama/ptrace_scope", "2" },
		{ "/proc/sys/net/core/bpf_jit_harden", "2" },
		{ "/proc/sys/kernel/sysrq", "0" },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		(void)file_put_text(AT_FDCWD, t[i].path, t[i].value); /* a kernel without it */
}

/*
 * EROFS has no ctime and inode numbers of its own, so git would hash every file
 * again at its first status; and its files belong to another uid than root.
 */
static void git_defaults(int root)
{
	static const char text[] = "[core]\n\tcheckStat = minimal\n\ttrustctime = false\n"
				   "[safe]\n\tdirectory = *\n";
	AUTO_CLOSE int fd = openat(root, "etc/gitconfig",
	                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd >= 0)
		(void)!fd_write_all(fd, text, sizeof(text) - 1);
}

/* /proc, /sys, /dev and the rest below the new root, which is the working directory. */
static int fill_root(struct guest *g, struct err *err)
{
	char tmp[64];
	const struct mnt t[] = {
		{ "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0555 },
		{ "sysfs", "sys", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL, 0555 },
		{ "devtmpfs", "dev", MS_NOSUID | MS_NOEXEC, NULL, 0755 },
		{ "devpts", "dev/pts", MS_NOSUID | MS_NOEXEC,
		  "newinstance,ptmxmode=0666,mode=0620,gid=5", 0755 },
		{ "tmpfs", "dev/shm", MS_NOSUID | MS_NODEV, "mode=1777", 01777 },
		{ "tmpfs", "tmp", MS_NOSUID | MS_NODEV, tmp, 01777 },
		{ "tmpfs", "run", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=64m", 0755 },
	};
	int n = snprintf(tmp, sizeof(tmp), "mode=1777");

	if (g->tmp_bytes > 0)
		(void)snprintf(tmp + n, sizeof(tmp) - (size_t)n, ",size=%llu",
		               (unsigned long long)g->tmp_bytes);
	int r = mount_all(t, ARRAY_LEN(t), err);
	if (r < 0)
		return r;
	make_link("pts/ptmx", "dev/ptmx");
	make_link("/proc/self/fd", "dev/fd");
	make_link("/proc/self/fd/0", "dev/stdin");
	make_link("/proc/self/fd/1", "dev/stdout");
	make_link("/proc/self/fd/2", "dev/stderr");
	(void)mkdir("run/lock", 01777);
	(void)chmod("run/lock", 01777);
	if (make_dir("root", 0700) < 0 || chmod("root", 0700) < 0)
		return err_errno(err, "cannot close /root");
	return 0;
}

static int make_uppers(struct err *err)
{
	static const char *const dirs[] = { "s/root", "s/root/upper", "s/root/work",
		                            "s/work", "s/work/upper", "s/work/work" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		int r = make_dir(dirs[i], 0755);
		if (r < 0)
			return err_code(err, r, "cannot make '%s' on the scratch disk", dirs[i]);
	}
	return 0;
}

static int enter_root(struct guest *g, const struct msg *m, struct err *err)
{
	char opts[1024] = "lowerdir=";

	for (uint32_t i = 0; i < m->mount_root.n_layers; i++) {
		char at[16];
		(void)snprintf(at, sizeof(at), "l%u", i);
		int r = mount_disk(m->mount_root.layers[i], at, "erofs",
		                   MS_RDONLY | MS_NODEV | MS_NOATIME, err);
		if (r < 0)
			return r;
		size_t n = strlen(opts);
		(void)snprintf(opts + n, sizeof(opts) - n, "%s%s", i ? ":" : "", at);
	}
	int r = mount_disk(m->mount_root.scratch, "s", "ext4", MS_NODEV | MS_NOATIME, err);
	if (r == 0)
		r = make_uppers(err);
	if (r < 0)
		return r;
	size_t n = strlen(opts);
	(void)snprintf(opts + n, sizeof(opts) - n,
	               ",upperdir=s/root/upper,workdir=s/root/work," OVERLAY_OPTIONS);
	if (make_dir("n", 0755) < 0 ||
	    mount("overlay", "n", "overlay", MS_NODEV | MS_NOATIME, opts) < 0)
		return err_errno(err, "cannot mount the root overlay");
	AUTO_CLOSE int scratch = open("s", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (scratch < 0 || chdir("n") < 0)
		return err_errno(err, "cannot enter the root overlay");
	r = fill_root(g, err);
	if (r < 0)
		return r;
	if (mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return err_errno(err, "cannot switch to the root overlay");
	g->root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (g->root < 0)
		return err_errno(err, "cannot open the root overlay");
	g->scratch = take_fd(&scratch);
	git_defaults(g->root);
	return 0;
}

int mount_root(struct guest *g, const struct msg *m, struct err *err)
{
	if (fchdir(g->priv) < 0)
		return err_errno(err, "cannot enter the private folder");
	int r = enter_root(g, m, err);
	if (r < 0) { /* so that it can be tried again */
		char at[16];
		(void)!fchdir(g->priv);
		(void)umount2("n", MNT_DETACH);
		(void)umount2("s", MNT_DETACH);
		for (unsigned i = 0; i < MSG_LAYERS_MAX; i++) {
			(void)snprintf(at, sizeof(at), "l%u", i);
			(void)umount2(at, MNT_DETACH);
		}
		(void)!chdir("/");
		return r;
	}
	harden();
	net_loopback_up();
	return 0;
}

static int link_workspace(struct guest *g, struct span project, struct err *err)
{
	char text[PATH_NAME_MAX + 8];
	struct stat st;

	(void)snprintf(text, sizeof(text), "/work/%.*s", (int)project.len, (const char *)project.p);
	if (fstatat(g->root, "workspace", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    unlinkat(g->root, "workspace", S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
		return err_errno(err, "cannot replace /workspace");
	if (symlinkat(text, g->root, "workspace") < 0)
		return err_errno(err, "cannot link /workspace");
	return 0;
}

static int enter_work(struct guest *g, const struct msg *m, struct err *err)
{
	struct span disk = m->mount_work.disk;
	char dev[DEV_BYTES];

	/* it was filled while we booted: what the kernel has read of it is stale */
	if (find_disk(disk, dev) == 0) {
		AUTO_CLOSE int fd = open(dev, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || ioctl(fd, BLKFLSBUF, 0) < 0)
			return err_errno(err, "cannot forget what was read of %s", dev);
	}
	int r = mount_disk(disk, "w", "erofs", MS_RDONLY | MS_NODEV | MS_NOSUID | MS_NOATIME, err);
	if (r < 0)
		return r;
	bool other = g->has_account &&
	             (g->account.uid != ACCOUNT_AGENT_ID || g->account.gid != ACCOUNT_AGENT_ID);
	if (other) {
		r = user_map_mount(g, "w", "wm");
		if (r < 0)
			return err_code(err, r, "cannot give the workspace to user %u",
			                g->account.uid);
	}
	if (mkdirat(g->root, "work", 0755) < 0 && errno != EEXIST)
		return err_errno(err, "cannot make /work");
	if (mount("overlay", "/work", "overlay", MS_NODEV | MS_NOSUID | MS_NOATIME,
	          other ? "lowerdir=wm," WORK_OPTIONS : "lowerdir=w," WORK_OPTIONS) < 0)
		return err_errno(err, "cannot mount the workspace overlay");
	for (uint32_t i = 0; i < m->mount_work.n_projects; i++) {
		char path[PATH_NAME_MAX + 8];
		struct span p = m->mount_work.projects[i];
		struct stat st;
		(void)snprintf(path, sizeof(path), "/work/%.*s", (int)p.len, (const char *)p.p);
		if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			return err_set(err, -ENOENT, "the workspace has no '%s'", path);
	}
	return link_workspace(g, m->mount_work.projects[0], err);
}

int mount_work(struct guest *g, const struct msg *m, struct err *err)
{
	if (fchdir(g->priv) < 0)
		return err_errno(err, "cannot enter the private folder");
	int r = enter_work(g, m, err);
	if (r < 0) {
		(void)umount2("/work", MNT_DETACH);
		(void)umount2("wm", MNT_DETACH);
		(void)umount2("w", MNT_DETACH);
	}
	(void)!chdir("/");
	return r;
}

int mount_setup(struct guest *g, const struct msg *m, struct err *err)
{
	char opts[64];

	if (sethostname((const char *)m->setup.hostname.p, m->setup.hostname.len) < 0)
		return err_errno(err, "cannot set the host name");
	g->sudo = m->setup.flags & MSG_SETUP_SUDO;
	g->tmp_bytes = m->setup.tmp_bytes;
	g->sync_ms = m->setup.sync_ms;
	if (g->root >= 0 && g->tmp_bytes > 0) {
		(void)snprintf(opts, sizeof(opts), "mode=1777,size=%llu",
		               (unsigned long long)g->tmp_bytes);
		if (mount("tmpfs", "/tmp", "tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV, opts) < 0)
			return err_errno(err, "cannot set the size of /tmp");
	}
	return 0;
}

void mount_off(struct guest *g)
{
	if (g->scratch < 0)
		return;
	(void)umount2("/work", MNT_DETACH);
	(void)syncfs(g->scratch);
	/* nobody writes any more, so the journal ends clean */
	if (fchdir(g->priv) == 0)
		(void)mount(NULL, "s", NULL, MS_REMOUNT | MS_RDONLY, NULL);
}
