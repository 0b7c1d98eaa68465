/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_smoke - boot a kernel with vmm_spawn() and time it.
 *
 *   boot_smoke KERNEL-ELF INITRD [--accel A] [--uncaged] [--uid N] [--skip BITS]
 *              [--runs N] [--memory MIB] [--cmdline TEXT] [--console FILE]
 *
 * Each run boots with a read-only and a writable disk, waits for the lines of
 * boot_init.c, asks for the state and resizes the disk over QMP, closes the
 * control port, and waits for the end of QEMU. Prints one line a run:
 * milliseconds from spawn to hello and to the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "event/loop.h"
#include "vmm/qmp.h"
#include "vmm/vmm.h"

enum { DEADLINE_MS = 120 * 1000, SCRATCH_MIB = 64 };

struct boot {
	struct loop *l;
	struct loop_fd port_src, err_src, proc_src;
	struct loop_timer deadline;
	struct proc proc;
	struct qmp *qmp;
	struct vmm_tail tail;
	int port, errfd;
	struct buf text;
	uint64_t start_ns, hello_ns, end_ns;
	bool hello, running, resized, shutdown, failed;
};

static void on_qmp_event(void *arg, const struct qmp_msg *m)
{
	struct boot *b = arg;

	if (m->event == QMP_EV_SHUTDOWN && m->flag)
		b->shutdown = true;
}

static void on_qmp_closed(void *arg UNUSED, int code)
{
	if (code)
		(void)fprintf(stderr, "QMP: %s\n", strerror(-code));
}

static void on_resized(void *arg, int code, const struct qmp_msg *m)
{
	struct boot *b = arg;

	b->resized = code == 0;
	if (code)
		(void)fprintf(stderr, "block_resize: %s\n", m ? m->text : strerror(-code));
	/* the guest has said all: it ends when its port does */
	loop_fd_del(b->l, &b->port_src);
	auto_close_(&b->port);
	b->port = -1;
}

static void on_state(void *arg, int code, const struct qmp_msg *m)
{
	struct boot *b = arg;

	b->running = code == 0 && m->state == QMP_STATE_RUNNING;
}

static void on_port(void *arg, uint32_t events UNUSED)
{
	struct boot *b = arg;
	char piece[512];
	ssize_t n = read(b->port, piece, sizeof(piece));

	if (n <= 0) {
		if (n == 0)
			loop_fd_del(b->l, &b->port_src);
		return;
	}
	if (!b->hello) {
		b->hello = true;
		b->hello_ns = loop_now_ns(b->l);
	}
	if (buf_put(&b->text, piece, (size_t)n) < 0)
		abort();
	if (b->text.len >= 4 && memcmp(b->text.p + b->text.len - 4, "end\n", 4) == 0) {
		if (qmp_query_status(b->qmp, on_state, b) < 0 ||
		    qmp_block_resize(b->qmp, "scratch", (uint64_t)(SCRATCH_MIB + 1) << 20,
		                     on_resized, b) < 0)
			b->failed = true;
	}
}

static void on_stderr(void *arg, uint32_t events UNUSED)
{
	struct boot *b = arg;

	if (vmm_tail_read(&b->tail, b->errfd) == 0)
		loop_fd_del(b->l, &b->err_src);
}

static void on_exit_(void *arg, uint32_t events UNUSED)
{
	struct boot *b = arg;

	b->end_ns = loop_now_ns(b->l);
	loop_stop(b->l, 0);
}

static void on_deadline(void *arg)
{
	struct boot *b = arg;

	b->failed = true;
	(void)fprintf(stderr, "no end within %d s\n", DEADLINE_MS / 1000);
	loop_stop(b->l, 0);
}

static int temp_disk(off_t size, bool read_only)
{
	char path[64];
	int fd = fd_memfd("disk");

	if (fd < 0 || ftruncate(fd, size) < 0)
		abort();
	if (!read_only)
		return fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int ro = open(path, O_RDONLY | O_CLOEXEC);
	(void)close(fd); /* empty */
	return ro;
}

static void pair(int sv[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0 ||
	    fd_set_nonblock(sv[0], true) < 0)
		abort();
}

static int boot_once(struct vmm_config *cfg, const struct vmm_launch *launch, bool verbose)
{
	struct boot b = { .port = -1 };
	struct err err = { 0 };
	int control[2], qmp[2], status = 0;
	AUTO_CLOSE int base = temp_disk(1 << 20, true);
	AUTO_CLOSE int scratch = temp_disk((off_t)SCRATCH_MIB << 20, false);
	struct rusage before, after;

	b.l = loop_new();
	if (!b.l)
		abort();
	b.port_src.fd = b.err_src.fd = b.proc_src.fd = -1;
	pair(control);
	pair(qmp);
	cfg->control_fd = control[1];
	cfg->qmp_fd = qmp[1];
	cfg->n_disks = 2;
	cfg->disks[0] = (struct vmm_disk){ "base", VMM_DISK_RAW_FD, base, true };
	cfg->disks[1] = (struct vmm_disk){ "scratch", VMM_DISK_RAW_FD, scratch, false };
	(void)getrusage(RUSAGE_CHILDREN, &before);
	b.start_ns = loop_now_ns(b.l);
	int r = vmm_spawn(&b.proc, &b.errfd, cfg, launch, &err);
	(void)close(control[1]);
	(void)close(qmp[1]);
	if (r < 0) {
		(void)fprintf(stderr, "boot_smoke: %s\n", err.text);
		return 1;
	}
	b.port = control[0];
	struct qmp_handlers h = { .event = on_qmp_event, .closed = on_qmp_closed, .arg = &b };
	if (qmp_new(&b.qmp, b.l, qmp[0], &h) < 0 ||
	    loop_fd_add(b.l, &b.port_src, b.port, EPOLLIN, on_port, &b) < 0 ||
	    loop_fd_add(b.l, &b.err_src, b.errfd, EPOLLIN, on_stderr, &b) < 0 ||
	    loop_fd_add(b.l, &b.proc_src, b.proc.pidfd, EPOLLIN, on_exit_, &b) < 0)
		abort();
	loop_timer_set(b.l, &b.deadline, DEADLINE_MS, on_deadline, &b);
	(void)loop_run(b.l);
	for (int i = 0; i < 10 && !b.shutdown && !b.failed; i++)
		(void)loop_once(b.l, 10); /* its last event may lie behind its end */
	loop_fd_del(b.l, &b.proc_src);
	if (b.failed)
		proc_end(&b.proc, 0);
	else
		(void)!proc_wait(&b.proc, -1, &status);
	(void)getrusage(RUSAGE_CHILDREN, &after);
	while (!b.tail.at_end && vmm_tail_read(&b.tail, b.errfd) == -EAGAIN)
		(void)usleep(1000);
	if (!b.failed && !b.shutdown)
		(void)vmm_exit_err(&err, &b.tail, status);
	long cpu_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000L +
	              after.ru_utime.tv_usec - before.ru_utime.tv_usec +
	              (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000L +
	              after.ru_stime.tv_usec - before.ru_stime.tv_usec;
	printf("hello %.0f ms, end %.0f ms, cpu %ld ms, running %d, resized %d, shutdown %d%s%s\n",
	       b.hello ? (double)(b.hello_ns - b.start_ns) / 1e6 : -1,
	       (double)(b.end_ns - b.start_ns) / 1e6, cpu_us / 1000, b.running, b.resized,
	       b.shutdown, err.text[0] ? ": " : "", err.text);
	if (verbose && b.text.len)
		printf("%.*s", (int)b.text.len, (const char *)b.text.p);
	if (verbose && b.tail.len)
		printf("%.*s", (int)b.tail.len, b.tail.b);
	qmp_free(b.qmp);
	loop_timer_del(b.l, &b.deadline);
	loop_free(b.l);
	auto_close_(&b.port);
	auto_close_(&b.errfd);
	buf_fini(&b.text);
	return b.hello && b.running && b.resized && b.shutdown ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct vmm_config cfg = { .memory_mib = 512,
		                  .vcpus = 2,
		                  .console_fd = -1,
		                  .net_fd = -1,
		                  .accel = VMM_ACCEL_TCG };
	struct vmm_launch launch = { 0 };
	int runs = 1, bad = 0;

	if (argc < 3)
		return 2;
	cfg.kernel = argv[1];
	cfg.initrd = argv[2];
	for (int i = 3; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--uncaged") == 0) {
			launch.uncaged = true;
			continue;
		}
		if (strcmp(argv[i], "--accel") == 0 && vmm_accel_parse(v, &cfg.accel) < 0)
			return 2;
		if (strcmp(argv[i], "--cage") == 0)
			launch.cage = v;
		if (strcmp(argv[i], "--uid") == 0)
			launch.uid = (uid_t)strtoul(v, NULL, 0);
		if (strcmp(argv[i], "--skip") == 0)
			launch.skip_layers = (unsigned)strtoul(v, NULL, 0);
		if (strcmp(argv[i], "--runs") == 0)
			runs = atoi(v);
		if (strcmp(argv[i], "--memory") == 0)
			cfg.memory_mib = (uint32_t)atoi(v);
		if (strcmp(argv[i], "--vcpus") == 0)
			cfg.vcpus = (uint32_t)atoi(v);
		if (strcmp(argv[i], "--cmdline") == 0)
			cfg.cmdline_extra = v;
		if (strcmp(argv[i], "--console") == 0)
			cfg.console_fd = open(v, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		i++;
	}
	if (cfg.accel == VMM_ACCEL_TCG)
		cfg.tsc_khz = vmm_tsc_khz();
	for (int i = 0; i < runs; i++)
		bad |= boot_once(&cfg, &launch, i == 0);
	return bad;
}
