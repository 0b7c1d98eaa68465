/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_init.c - the least that a first process can do, as the reference of start.py.
 *
 * Without a word it ends the machine through QEMU's isa-debug-exit device: the
 * time to that is the kernel's alone. With the word "port" it loads what the
 * control port needs, writes one byte to it, and reboots.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EXIT_PORT = 0xf4 };

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_modules(void)
{
	static const char *const wanted[] = { "virtio.ko", "virtio_ring.ko", "virtio_mmio.ko",
		                              "virtio_console.ko" };
	struct dirent **v;
	int n = scandir("/modules", &v, NULL, by_name);

	for (int i = 0; i < n; i++) {
		for (size_t k = 0; k < sizeof(wanted) / sizeof(*wanted); k++) {
			char path[300];
			const char *dash = strchr(v[i]->d_name, '-');
			if (!dash || strcmp(dash + 1, wanted[k]) != 0)
				continue;
			(void)snprintf(path, sizeof(path), "/modules/%s", v[i]->d_name);
			int fd = open(path, O_RDONLY | O_CLOEXEC);
			(void)syscall(SYS_finit_module, fd, "", 0);
			(void)close(fd);
		}
		free(v[i]);
	}
}

static int open_port(void)
{
	DIR *d = opendir("/sys/class/virtio-ports");
	int fd = -1;

	for (struct dirent *e; d && fd < 0 && (e = readdir(d));) {
		char path[300];
		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/dev/%s", e->d_name);
		fd = open(path, O_WRONLY | O_CLOEXEC); /* there is only one */
	}
	if (d)
		(void)closedir(d);
	return fd;
}

int main(int argc, char **argv)
{
	int fd = -1;

	if (getpid() != 1)
		return 1;
	if (argc < 2 || strcmp(argv[1], "port") != 0) {
		if (iopl(3) == 0)
			outb(1, EXIT_PORT);
	} else {
		(void)mkdir("/sys", 0755);
		(void)mkdir("/dev", 0755);
		(void)mount("sysfs", "/sys", "sysfs", 0, NULL);
		(void)mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
		load_modules();
		while ((fd = open_port()) < 0)
			(void)usleep(500);
		while (write(fd, "+", 1) != 1) /* the host's end is announced a moment later */
			(void)usleep(500);
	}
	(void)reboot(RB_AUTOBOOT);
	for (;;)
		(void)pause();
}
