/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/span.h"
#include "guest/guest.h"

enum {
	PORT_WAIT_MS = 10 * 1000,
	PORT_OPEN_MS = 20 * 1000,
	MODULES_MAX = 64,
	VIRTIO_RNG = 4,
	VIRTIO_BALLOON = 5,
	VIRTIO_FS = 26,
};

static const char port_name[] = "cloche.0";

int boot_mounts(struct guest *g)
{
	static const struct {
		const char *type, *at;
		unsigned long flags;
	} t[] = {
		{ "proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC },
		{ "sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC },
		{ "devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		(void)mkdir(t[i].at, 0755); /* there already: fine */
		if (mount(t[i].type, t[i].at, t[i].type, t[i].flags, NULL) < 0 && errno != EBUSY)
			return -errno;
	}
	if (mkdir("/priv", 0700) < 0 && errno != EEXIST)
		return -errno;
	g->priv = open("/priv", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	g->random = open("/dev/random", O_RDWR | O_CLOEXEC);
	g->exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	return g->priv < 0 || g->random < 0 || g->exe < 0 ? -errno : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int is_module(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > 3 && strcmp(e->d_name + n - 3, ".ko") == 0;
}

/*
 * The card's driver frees what was sent when it sends more, instead of asking for an
 * interrupt each time: half of all interrupts. It would want them to bound its queue,
 * and here the windows of the terminator of its connections do (64 KiB each).
 */
static const char *options(const char *module)
{
	return strstr(module, "virtio_net.ko") ? "napi_tx=0" : "";
}

/* Load all of a folder in the order of their names; takes @dir_fd. */
static void load_folder(int dir_fd, char *failed, size_t cap)
{
	char *names[MODULES_MAX];
	size_t n = 0;
	DIR *d = dir_fd < 0 ? NULL : fdopendir(dir_fd);

	if (!d) {
		auto_close_(&dir_fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d)) && n < MODULES_MAX;) {
		if (is_module(e) && (names[n] = strdup(e->d_name)))
			n++;
	}
	qsort(names, n, sizeof(names[0]), by_name);
	for (size_t i = 0; i < n; i++) {
		int fd = openat(dirfd(d), names[i], O_RDONLY | O_CLOEXEC);
		long r = fd < 0 ? -1 : syscall(SYS_finit_module, fd, options(names[i]), 0);
		size_t len = strlen(failed);
		if (r < 0 && errno != EEXIST)
			(void)snprintf(failed + len, cap - len, " %s (%s)", names[i],
			               strerror(errno));
		if (fd >= 0)
			(void)close(fd);
		(void)unlinkat(dirfd(d), names[i], 0); /* the initramfs is memory */
		free(names[i]);
	}
	(void)closedir(d);
}

static bool have_device(unsigned id)
{
	DIR *d = opendir("/sys/bus/virtio/devices");
	bool found = false;

	if (!d)
		return false;
	for (struct dirent *e; !found && (e = readdir(d));) {
		char path[300], text[32];
		(void)snprintf(path, sizeof(path), "%s/device", e->d_name);
		found = e->d_name[0] != '.' &&
		        file_get_text(dirfd(d), path, text, sizeof(text)) > 0 &&
		        strtoul(text, NULL, 16) == id;
	}
	(void)closedir(d);
	return found;
}

static int open_folder(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void boot_modules(struct guest *g, char *failed, size_t cap)
{
	static const struct {
		const char *folder;
		unsigned id;
	} groups[] = {
		{ "/modules/rng", VIRTIO_RNG },
		{ "/modules/balloon", VIRTIO_BALLOON },
		{ "/modules/virtiofs", VIRTIO_FS },
	};

	load_folder(open_folder("/modules"), failed, cap);
	for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
		if (access(groups[i].folder, F_OK) == 0 && have_device(groups[i].id))
			load_folder(open_folder(groups[i].folder), failed, cap);
	}
	/* the sessions' root will lie over it; loaded when the host says what the network is */
	g->net_modules = open_folder("/modules/net");
}

void boot_load_net(struct guest *g, char *failed, size_t cap)
{
	load_folder(take_fd(&g->net_modules), failed, cap);
}

/* The device file of the control port; names are guesses until sysfs says so. */
static int find_port(char *out, size_t cap)
{
	DIR *d = opendir("/sys/class/virtio-ports");
	int r = -ENOENT;

	if (!d)
		return r;
	for (struct dirent *e; r < 0 && (e = readdir(d));) {
		char path[300], text[64];
		(void)snprintf(path, sizeof(path), "%s/name", e->d_name);
		if (e->d_name[0] == '.' || file_get_text(dirfd(d), path, text, sizeof(text)) <= 0)
			continue;
		text[strcspn(text, "\n")] = '\0';
		if (strcmp(text, port_name) == 0) {
			(void)snprintf(out, cap, "/dev/%s", e->d_name);
			r = 0;
		}
	}
	(void)closedir(d);
	return r;
}

int boot_port(struct guest *g)
{
	uint64_t until = guest_now_ns() + PORT_WAIT_MS * 1000000ull;
	char path[300];

	for (;;) {
		if (find_port(path, sizeof(path)) == 0) {
			g->port = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
			if (g->port >= 0)
				break;
			if (errno != ENOENT && errno != ENXIO)
				return -errno;
		}
		if (guest_now_ns() > until)
			return -ENODEV;
		guest_sleep_ms(1);
	}
	/* the host's end is announced a moment after the name: not an end yet */
	until = guest_now_ns() + PORT_OPEN_MS * 1000000ull;
	for (;;) {
		struct pollfd p = { .fd = g->port, .events = POLLIN | POLLOUT };
		if (poll(&p, 1, 0) >= 0 && !(p.revents & POLLHUP))
			return 0;
		if (guest_now_ns() > until)
			return -EPIPE;
		guest_sleep_ms(1);
	}
}

/* Sessions live in a cgroup: who was hit when memory ran out, and a bound on their number. */
void boot_cgroup(struct guest *g)
{
	char text[32];
	unsigned long threads = 0;

	g->cgroup = -1;
	if (fchdir(g->priv) < 0 || (mkdir("cg", 0700) < 0 && errno != EEXIST))
		return;
	if (mount("cgroup2", "cg", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0) {
		(void)file_put_text(g->priv, "cg/cgroup.subtree_control", "+memory");
		(void)file_put_text(g->priv, "cg/cgroup.subtree_control", "+pids");
		(void)mkdir("cg/agent", 0700);
		(void)file_put_text(g->priv, "cg/agent/cgroup.subtree_control", "+memory");
		/* a fork bomb leaves room for PID 1's own helpers */
		if (file_get_text(AT_FDCWD, "/proc/sys/kernel/threads-max", text, sizeof(text)) > 0)
			threads = strtoul(text, NULL, 10);
		(void)snprintf(text, sizeof(text), "%lu", MIN(threads / 4 * 3, 24000ul));
		if (threads > 0)
			(void)file_put_text(g->priv, "cg/agent/pids.max", text);
		g->cgroup = open("cg/agent", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	(void)!chdir("/");
}
