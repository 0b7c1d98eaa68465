/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-init - the first process of the guest.
 *
 * It trusts the host, whose commands come over one virtio-serial port, and
 * nothing that runs in sessions. It holds the guest as its root. A compromise
 * yields the guest, which counts as lost, and the channel, whose other end
 * believes none of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "guest/guest.h"

enum { PORT_BYTES = 64 * 1024, PORT_WRITE_MAX = 32 * 1024, OFF_WAIT_MS = 2000 };

static uint8_t port_bytes[PORT_BYTES];
static uint8_t msg_bytes[MSG_BYTES_MAX];
static struct msg incoming;

uint64_t guest_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void guest_sleep_ms(unsigned ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&ts, NULL); /* sooner is fine */
}

/* ---- to the host ---- */

void guest_send(struct guest *g, const struct msg *m)
{
	size_t n = msg_put(msg_bytes, sizeof(msg_bytes), m);

	ASSERT(n > 0); /* all values are ours and bounded */
	if (mux_send_control(g->mux, span_of(msg_bytes, n)) < 0)
		g->off = true;
}

void guest_done(struct guest *g, uint32_t seq, int code, const struct err *err)
{
	struct msg m = { .type = MSG_DONE };

	m.done.ref = seq;
	m.done.code = code < 0 && code >= -4095 ? code : 0;
	if (m.done.code < 0 && err)
		m.done.text = span_of(err->text, MIN(strlen(err->text), (size_t)MSG_TEXT_MAX));
	guest_send(g, &m);
}

void guest_log(struct guest *g, enum log_level level, const char *fmt, ...)
{
	struct msg m = { .type = MSG_LOG };
	char text[MSG_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	m.log.level = (uint8_t)level;
	m.log.text = span_str(text);
	guest_send(g, &m);
}

/* ---- messages ---- */

static int do_hello(struct guest *g, const struct msg *m, struct err *err)
{
	struct msg r = { .type = MSG_READY };
	struct utsname u;

	if (m->hello.version != MSG_VERSION)
		return err_set(err, -EPROTONOSUPPORT, "host speaks version %u, guest %d",
		               m->hello.version, MSG_VERSION);
	if (uname(&u) < 0)
		return err_errno(err, "cannot name the kernel");
	r.ready.version = MSG_VERSION;
	r.ready.kernel = span_of(u.release, strnlen(u.release, 64));
	r.ready.init_ns = g->init_ns;
	r.ready.ready_ns = guest_now_ns();
	guest_send(g, &r);
	g->state = MSG_STATE_BARE;
	return 0;
}

static int do_clock(struct guest *g UNUSED, const struct msg *m, struct err *err)
{
	struct timespec ts = { .tv_sec = m->clock.realtime_ns / 1000000000,
		               .tv_nsec = m->clock.realtime_ns % 1000000000 };

	if (clock_settime(CLOCK_REALTIME, &ts) < 0)
		return err_errno(err, "cannot set the clock");
	return 0;
}

static int do_entropy(struct guest *g, const struct msg *m, struct err *err)
{
	union { /* the info ends in an array without a size */
		struct rand_pool_info info;
		uint8_t room[sizeof(struct rand_pool_info) + MSG_ENTROPY_MAX];
	} p = { .info = { .entropy_count = (int)m->entropy.bytes.len * 8,
		          .buf_size = (int)m->entropy.bytes.len } };

	memcpy(p.info.buf, m->entropy.bytes.p, m->entropy.bytes.len);
	int r = 0;
	/* the second: a restored machine must not go on where its twin does */
	if (ioctl(g->random, RNDADDENTROPY, &p) < 0 || ioctl(g->random, RNDRESEEDCRNG) < 0)
		r = err_errno(err, "cannot feed the random generator");
	explicit_bzero(&p, sizeof(p));
	return r;
}

static int sync_start(struct guest *g, uint32_t seq, bool quiet, struct err *err);

static void on_sync_timer(void *arg)
{
	struct guest *g = arg;

	if (g->scratch >= 0)
		(void)sync_start(g, 0, true, NULL); /* the next one will do */
	if (g->sync_ms > 0)
		loop_timer_set(g->loop, &g->sync_timer, g->sync_ms, on_sync_timer, g);
}

static int do_setup(struct guest *g, const struct msg *m, struct err *err)
{
	int r = mount_setup(g, m, err);

	loop_timer_del(g->loop, &g->sync_timer);
	if (g->sync_ms > 0)
		loop_timer_set(g->loop, &g->sync_timer, g->sync_ms, on_sync_timer, g);
	return r;
}

static int do_mount_root(struct guest *g, const struct msg *m, struct err *err)
{
	int r = mount_root(g, m, err);

	if (r == 0)
		g->state = MSG_STATE_ROOT;
	return r;
}

static int do_mount_work(struct guest *g, const struct msg *m, struct err *err)
{
	int r = mount_work(g, m, err);

	if (r == 0)
		g->state = MSG_STATE_WORK;
	return r;
}

static int do_args(struct guest *g, const struct msg *m, struct err *err)
{
	int r = words_add(m->args.is_env ? &g->env : &g->argv, m->args.words, m->args.n);

	return r < 0 ? err_code(err, r, "cannot take the words of a command") : 0;
}

static int do_thaw(struct guest *g, const struct msg *m UNUSED, struct err *err UNUSED)
{
	export_thaw(g);
	return 0;
}

/* A child, since a sync takes as long as the disk. */
static int sync_start(struct guest *g, uint32_t seq, bool quiet, struct err *err)
{
	struct helper *free_one = NULL;

	for (size_t i = 0; i < GUEST_SYNCS_MAX; i++) {
		if (quiet && g->syncs[i].pid && g->syncs[i].quiet)
			return 0; /* one is on its way */
		if (!g->syncs[i].pid)
			free_one = &g->syncs[i];
	}
	if (!free_one)
		return err_set(err, -EBUSY, "too many syncs at once");
	pid_t pid = fork();
	if (pid < 0)
		return err_errno(err, "cannot start a sync");
	if (pid == 0)
		_exit(syncfs(g->scratch) < 0 ? errno : 0);
	*free_one = (struct helper){ .pid = pid, .seq = seq, .quiet = quiet };
	return 1;
}

static int do_sync(struct guest *g, const struct msg *m, struct err *err)
{
	return sync_start(g, m->seq, false, err);
}

static int do_poweroff(struct guest *g, const struct msg *m, struct err *err UNUSED)
{
	g->off = true;
	g->off_seq = m->seq;
	g->state = MSG_STATE_OFF;
	return 1;
}

static const struct {
	enum msg_type type;
	/* 0: done; -errno with @err; 1: MSG_DONE comes later */
	int (*fn)(struct guest *g, const struct msg *m, struct err *err);
} handlers[] = {
	{ MSG_HELLO, do_hello },
	{ MSG_CLOCK, do_clock },
	{ MSG_ENTROPY, do_entropy },
	{ MSG_SETUP, do_setup },
	{ MSG_MOUNT_ROOT, do_mount_root },
	{ MSG_MOUNT_WORK, do_mount_work },
	{ MSG_FILE, file_write },
	{ MSG_ARGS, do_args },
	{ MSG_EXEC, session_exec },
	{ MSG_RESIZE, session_resize },
	{ MSG_SIGNAL, session_signal },
	{ MSG_EXPORT, export_start },
	{ MSG_WANT, export_want },
	{ MSG_THAW, do_thaw },
	{ MSG_SYNC, do_sync },
	{ MSG_POWEROFF, do_poweroff },
	{ MSG_NET, net_setup },
	{ MSG_NET_TEST, net_test },
	{ MSG_CONNECT, connect_start },
	{ MSG_ACCOUNT, user_set },
};

static int on_control(void *arg, struct span bytes)
{
	struct guest *g = arg;
	struct err err = { 0 };
	int r = msg_parse(&incoming, bytes);

	if (r < 0)
		return r;
	const struct msg_rule *rule = msg_rule_find(incoming.type);
	if (!rule || rule->from_guest)
		return -EPROTO;
	uint32_t seq = incoming.seq;
	if (rule->type != MSG_FILE)
		file_close(g); /* a program that is open for writing cannot be run */
	if (!(rule->states & g->state)) {
		r = err_set(&err, -EPROTO, "%s is not allowed in state %u", rule->name, g->state);
		guest_done(g, seq, r, &err);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(handlers); i++) {
		if (handlers[i].type == rule->type) {
			r = handlers[i].fn(g, &incoming, &err);
			if (r <= 0)
				guest_done(g, seq, r, &err);
			return 0;
		}
	}
	return -EPROTO;
}

static int on_data(void *arg, uint16_t ch, uint8_t stream UNUSED, struct span bytes)
{
	struct guest *g = arg;

	return g->conns[ch] ? connect_data(g, ch, bytes) : session_data(g, ch, bytes);
}

static int on_eof(void *arg, uint16_t ch, uint8_t stream UNUSED)
{
	struct guest *g = arg;

	return g->conns[ch] ? connect_eof(g, ch) : session_eof(g, ch);
}

static int on_reset(void *arg, uint16_t ch, uint8_t stream)
{
	struct guest *g = arg;

	if (g->ex.channel == ch && stream == FRAME_OUT) {
		export_reset(g);
		return 0;
	}
	return g->conns[ch] ? connect_reset(g, ch, stream) : session_reset(g, ch, stream);
}

static int on_writable(void *arg, uint16_t ch, uint8_t stream)
{
	struct guest *g = arg;

	if (g->ex.channel == ch)
		return stream == FRAME_OUT ? export_writable(g) : 0;
	return g->conns[ch] ? connect_writable(g, ch, stream) : session_writable(g, ch, stream);
}

static const struct mux_ops ops = { on_control, on_data, on_eof, on_reset, on_writable };

/* ---- the port ---- */

static void port_flush(struct guest *g)
{
	while (!g->off) {
		struct span s = mux_out(g->mux);
		if (s.len == 0) {
			loop_fd_set(g->loop, &g->port_src, EPOLLIN);
			return;
		}
		ssize_t n = write(g->port, s.p, MIN(s.len, (size_t)PORT_WRITE_MAX));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_fd_set(g->loop, &g->port_src, EPOLLIN | EPOLLOUT);
			return;
		}
		if (n <= 0) {
			g->off = true;
			return;
		}
		mux_out_done(g->mux, (size_t)n);
	}
}

/* The host's end is gone once a read says 0: nobody is left to run for. */
static void on_port(void *arg, uint32_t events)
{
	struct guest *g = arg;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		ssize_t n = read(g->port, port_bytes, sizeof(port_bytes));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0 || mux_feed(g->mux, port_bytes, (size_t)n) < 0)
			g->off = true;
	}
}

/* ---- processes ---- */

static bool sync_reaped(struct guest *g, pid_t pid, int status)
{
	for (size_t i = 0; i < GUEST_SYNCS_MAX; i++) {
		struct helper *h = &g->syncs[i];
		struct err err = { 0 };
		int r = 0;
		if (h->pid != pid)
			continue;
		if (!WIFEXITED(status))
			r = err_set(&err, -EINTR, "the sync was ended");
		else if (WEXITSTATUS(status))
			r = err_code(&err, -WEXITSTATUS(status), "cannot sync the scratch disk");
		if (!h->quiet)
			guest_done(g, h->seq, r, &err);
		h->pid = 0;
		return true;
	}
	return false;
}

void guest_reap(struct guest *g)
{
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, WNOHANG);
		if (pid < 0 && errno == ECHILD)
			export_no_children(g);
		if (pid <= 0)
			return;
		export_progress(g);
		/* neither: an orphan of a session */
		if (!session_reaped(g, pid, status) && !export_reaped(g, pid, status))
			(void)sync_reaped(g, pid, status);
	}
}

static void on_signal(void *arg, int signo UNUSED)
{
	guest_reap(arg);
}

/* "...;Out of memory: Killed process 123 (name) total-vm:..." of the kernel itself */
static void on_kmsg(void *arg, uint32_t events UNUSED)
{
	struct guest *g = arg;
	char line[1024];

	for (;;) {
		ssize_t n = read(g->kmsg, line, sizeof(line) - 1);
		if (n < 0 && errno == EPIPE)
			continue; /* overrun: some lines are lost */
		if (n <= 0)
			return;
		line[n] = '\0';
		const char *p = strstr(line, "Killed process ");
		if (strtoul(line, NULL, 10) >= 8 || !p)
			continue; /* facility 0 is the kernel */
		const char *a = strchr(p, '('), *b = a ? strchr(a, ')') : NULL;
		struct msg m = { .type = MSG_OOM };
		if (b)
			m.oom.process = span_of(a + 1, MIN((size_t)(b - a - 1), (size_t)64));
		if (g->state & (MSG_STATE_ROOT | MSG_STATE_WORK | MSG_STATE_FROZEN))
			guest_send(g, &m);
	}
}

static void watch_kmsg(struct guest *g)
{
	g->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (g->kmsg < 0 || lseek(g->kmsg, 0, SEEK_END) < 0 ||
	    loop_fd_add(g->loop, &g->kmsg_src, g->kmsg, EPOLLIN, on_kmsg, g) < 0)
		guest_log(g, LOG_WARN, "the kernel's messages cannot be read");
}

/* ---- life and death ---- */

static NORETURN void power_off(struct guest *g)
{
	uint64_t until = guest_now_ns() + OFF_WAIT_MS * 1000000ull;

	(void)kill(-1, SIGKILL);
	while (guest_now_ns() < until) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);
		if (pid < 0)
			break;
		if (pid == 0)
			guest_sleep_ms(1);
	}
	file_close(g);
	mount_off(g);
	if (g->off_seq && g->mux) {
		guest_done(g, g->off_seq, 0, NULL);
		/* blocking, so that the host has it before the machine is gone */
		if (fd_set_nonblock(g->port, false) == 0) {
			struct span s = mux_out(g->mux);
			(void)!fd_write_all(g->port, s.p, s.len);
		}
	}
	(void)reboot(RB_AUTOBOOT); /* with panic=-1 and -no-reboot the end of the machine */
	for (;;)
		(void)pause();
}

static NORETURN void give_up(const char *what, int code)
{
	AUTO_CLOSE int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)dprintf(fd, "<2>cloche-init: %s: %s\n", what, strerror(-code));
	(void)dprintf(2, "cloche-init: %s: %s\n", what, strerror(-code));
	(void)reboot(RB_AUTOBOOT);
	_exit(1);
}

/* 0 to 2 are always taken: a kernel without a console opens none. */
static void open_std(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 2);
	if (fd > 2)
		(void)close(fd);
}

int main(int argc, char **argv)
{
	static struct guest g = { .state = MSG_STATE_START,
		                  .port = -1,
		                  .exe = -1,
		                  .priv = -1,
		                  .random = -1,
		                  .root = -1,
		                  .scratch = -1,
		                  .cgroup = -1,
		                  .kmsg = -1,
		                  .file = -1,
		                  .net_modules = -1,
		                  .test = -1,
		                  .ex = { .out = -1, .status = -1 } };
	static const int signals[] = { SIGCHLD, -1 };
	const struct rlimit files = { 64 * 1024, 512 * 1024 };
	static char failed[512];
	int r;

	if (argc >= 2 && strcmp(argv[1], "--launch") == 0)
		return launch_main(argc, argv);
	if (getpid() != 1) {
		(void)fprintf(stderr, "cloche-init: this is the first process of a guest, "
		                      "and there is one already\n");
		return 1;
	}
	g.init_ns = guest_now_ns();
	r = boot_mounts(&g);
	if (r < 0)
		give_up("cannot mount /proc, /sys and /dev", r);
	open_std();
	log_open(-1, "cloche-init", NULL, LOG_ERROR);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setrlimit(RLIMIT_NOFILE, &files);
	(void)file_put_text(AT_FDCWD, "/proc/self/oom_score_adj", "-1000");
	boot_modules(&g, failed, sizeof(failed));
	r = boot_port(&g);
	if (r < 0)
		give_up("no control port", r);
	g.loop = loop_new();
	g.mux = mux_new(MUX_GUEST, &ops, &g);
	if (!g.loop || !g.mux)
		give_up("no memory", -ENOMEM);
	r = loop_signals(g.loop, signals, on_signal, &g);
	if (r == 0)
		r = loop_fd_add(g.loop, &g.port_src, g.port, EPOLLIN, on_port, &g);
	if (r < 0)
		give_up("cannot watch the control port", r);
	boot_cgroup(&g);
	watch_kmsg(&g);
	if (failed[0])
		guest_log(&g, LOG_WARN, "modules that did not load:%s", failed);
	while (!g.off) {
		port_flush(&g);
		if (!g.off && loop_once(g.loop, -1) < 0)
			break;
	}
	power_off(&g);
}
