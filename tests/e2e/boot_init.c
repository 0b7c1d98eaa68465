/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_init.c - PID 1 of boot_smoke: loads /mods/NN.ko in order, finds the
 * control port by its name, says when it started and when it got there, lists
 * the disks by their serials, waits for the host to close, and reboots (with
 * -no-reboot: QEMU ends).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* First line of a small file, "" when it cannot be read. */
static const char *first_line(const char *path, char *dst, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, dst, cap - 1) : 0;

	dst[n > 0 ? n : 0] = '\0';
	dst[strcspn(dst, "\n")] = '\0';
	if (fd >= 0)
		(void)close(fd);
	return dst;
}

static int find_port(void)
{
	DIR *d = opendir("/sys/class/virtio-ports");
	int fd = -1;

	for (struct dirent *e; d && fd < 0 && (e = readdir(d));) {
		char path[512], name[64];

		(void)snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", e->d_name);
		if (strcmp(first_line(path, name, sizeof(name)), "cloche.0") != 0)
			continue;
		(void)snprintf(path, sizeof(path), "/dev/%s", e->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (d)
		(void)closedir(d);
	return fd;
}

static void list_disks(int port)
{
	DIR *d = opendir("/sys/block");

	for (struct dirent *e; d && (e = readdir(d));) {
		char path[512], serial[64], size[64], ro[8];

		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/sys/block/%s/serial", e->d_name);
		(void)first_line(path, serial, sizeof(serial));
		(void)snprintf(path, sizeof(path), "/sys/block/%s/size", e->d_name);
		(void)first_line(path, size, sizeof(size));
		(void)snprintf(path, sizeof(path), "/sys/block/%s/ro", e->d_name);
		(void)first_line(path, ro, sizeof(ro));
		(void)dprintf(port, "disk %s sectors=%s ro=%s\n", serial, size, ro);
	}
	if (d)
		(void)closedir(d);
}

int main(void)
{
	long started = now_us(), loaded;
	char b[64];
	int fd = -1;

	(void)mkdir("/proc", 0755);
	(void)mkdir("/sys", 0755);
	(void)mkdir("/dev", 0755);
	(void)mount("proc", "/proc", "proc", 0, NULL);
	(void)mount("sysfs", "/sys", "sysfs", 0, NULL);
	(void)mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	for (int i = 0;; i++) {
		(void)snprintf(b, sizeof(b), "/mods/%02d.ko", i);
		int m = open(b, O_RDONLY | O_CLOEXEC);
		if (m < 0)
			break;
		/* 4: the file may be compressed */
		if (syscall(SYS_finit_module, m, "", 0) < 0 && errno != EEXIST &&
		    syscall(SYS_finit_module, m, "", 4) < 0)
			(void)!write(2, "boot_init: a module does not load\n", 34);
		(void)close(m);
	}
	loaded = now_us();
	for (int i = 0; fd < 0 && i < 5000; i++) {
		fd = find_port();
		if (fd < 0)
			(void)usleep(1000);
	}
	(void)dprintf(fd, "hello pid1_us=%ld modules_us=%ld port_us=%ld\n", started, loaded,
	              now_us());
	list_disks(fd);
	(void)dprintf(fd, "end\n");
	while (read(fd, b, sizeof(b)) > 0)
		;
	(void)reboot(RB_AUTOBOOT);
	for (;;)
		(void)pause();
}
