/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_agent_init.c - the first process of agents.py's reference: one ext4 disk as root
 * file system, a network card with the address that QEMU's user network expects, one
 * command as uid 1000, its output on the control port, and the end of the machine.
 *
 * /cmd in the initramfs: the working folder, the number of words, the words, and the
 * environment, each ended by a NUL.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { USER = 1000, WORDS_MAX = 256, CMD_BYTES_MAX = 64 * 1024 };

static void die(const char *what)
{
	perror(what);
	(void)reboot(RB_AUTOBOOT);
	for (;;)
		(void)pause();
}

static void load_modules(const char *dir)
{
	struct dirent **v;
	int n = scandir(dir, &v, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		char path[300];
		struct stat st;

		(void)snprintf(path, sizeof(path), "%s/%s", dir, v[i]->d_name);
		if (v[i]->d_name[0] != '.' && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
			int fd = open(path, O_RDONLY | O_CLOEXEC);
			(void)syscall(SYS_finit_module, fd, "", 0);
			(void)close(fd);
		}
		free(v[i]);
	}
}

static struct sockaddr in_addr_of(const char *text)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct sockaddr out;

	(void)inet_pton(AF_INET, text, &a.sin_addr);
	memcpy(&out, &a, sizeof(out));
	return out;
}

static void up(int s, const char *name, const char *addr)
{
	struct ifreq r = { .ifr_flags = 0 };

	(void)snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (addr) {
		r.ifr_addr = in_addr_of(addr);
		if (ioctl(s, SIOCSIFADDR, &r) < 0)
			die("SIOCSIFADDR");
		r.ifr_netmask = in_addr_of("255.255.255.0");
		(void)ioctl(s, SIOCSIFNETMASK, &r);
	}
	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
		die("SIOCSIFFLAGS");
}

static void network(void)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct rtentry r = { .rt_dst = in_addr_of("0.0.0.0"),
		             .rt_genmask = in_addr_of("0.0.0.0"),
		             .rt_gateway = in_addr_of("10.0.2.2"),
		             .rt_flags = RTF_UP | RTF_GATEWAY };

	up(s, "lo", NULL);
	up(s, "eth0", "10.0.2.15");
	if (ioctl(s, SIOCADDRT, &r) < 0)
		die("SIOCADDRT");
	(void)close(s);
}

static int open_port(void)
{
	for (;;) {
		DIR *d = opendir("/sys/class/virtio-ports");

		for (struct dirent *e; d && (e = readdir(d));) {
			char path[300];
			(void)snprintf(path, sizeof(path), "/dev/%s", e->d_name);
			int fd = e->d_name[0] == '.' ? -1 : open(path, O_WRONLY | O_CLOEXEC);
			if (fd >= 0) {
				(void)closedir(d);
				return fd;
			}
		}
		if (d)
			(void)closedir(d);
		(void)usleep(500);
	}
}

static void mounts(void)
{
	for (int i = 0; mount("/dev/vda", "/root", "ext4", MS_NOATIME, NULL) < 0; i++) {
		if (i == 5000)
			die("/dev/vda");
		(void)usleep(1000);
	}
	if (mount("devtmpfs", "/root/dev", "devtmpfs", 0, NULL) < 0 ||
	    mount("proc", "/root/proc", "proc", 0, NULL) < 0 ||
	    mount("sysfs", "/root/sys", "sysfs", 0, NULL) < 0 ||
	    mount("tmpfs", "/root/tmp", "tmpfs", 0, "mode=1777") < 0)
		die("mount");
	(void)mkdir("/root/dev/pts", 0755);
	(void)mkdir("/root/dev/shm", 0755);
	(void)mount("devpts", "/root/dev/pts", "devpts", 0, "ptmxmode=0666,mode=620,gid=5");
	(void)mount("tmpfs", "/root/dev/shm", "tmpfs", 0, "mode=1777");
}

static void run(int port, char *cmd, size_t len)
{
	char *words[WORDS_MAX + 1] = { NULL }, *env[WORDS_MAX + 1] = { NULL };
	char *dir = cmd, *p = dir + strlen(dir) + 1;
	int n = atoi(p), k = 0, e = 0;

	p += strlen(p) + 1;
	for (; p < cmd + len; p += strlen(p) + 1) {
		if (k < n && k < WORDS_MAX)
			words[k++] = p;
		else if (e < WORDS_MAX)
			env[e++] = p;
	}
	int null = open("/dev/null", O_RDWR);
	if (dup2(null, 0) < 0 || dup2(port, 1) < 0 || dup2(port, 2) < 0 || chdir(dir) < 0 ||
	    setgroups(0, NULL) < 0 || setgid(USER) < 0 || setuid(USER) < 0)
		die(dir);
	(void)setsid();
	environ = env;
	(void)execvpe(words[0], words, env);
	die(words[0]);
}

int main(void)
{
	static char cmd[CMD_BYTES_MAX];
	int status = 0;

	if (getpid() != 1)
		return 1;
	(void)mkdir("/sys", 0755);
	(void)mkdir("/dev", 0755);
	(void)mkdir("/root", 0755);
	(void)mount("sysfs", "/sys", "sysfs", 0, NULL);
	(void)mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	load_modules("/modules");
	load_modules("/modules/rng");
	load_modules("/modules/net");
	int fd = open("/cmd", O_RDONLY | O_CLOEXEC);
	ssize_t len = read(fd, cmd, sizeof(cmd) - 1);
	if (len <= 0)
		die("/cmd");
	network();
	int port = open_port();
	mounts();
	if (chroot("/root") < 0 || chdir("/") < 0)
		die("/root");
	pid_t pid = fork();
	if (pid == 0)
		run(port, cmd, (size_t)len);
	for (pid_t got; (got = wait(&status)) > 0 && got != pid;)
		;
	(void)dprintf(port, "\nexit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 255);
	sync();
	(void)reboot(RB_AUTOBOOT);
	for (;;)
		(void)pause();
}
