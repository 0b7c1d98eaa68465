/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-super - one per sandbox: starts, watches and ends its processes.
 *
 * Trusts: the CLI that started it (the same user). Parses nothing from outside:
 * all it reads are fixed structs of its worker, checked field by field. Touches:
 * the sandbox's folder, the images (read-only), the project folders (only to
 * hand their descriptors on). It outlives the CLI, so that a closed terminal
 * loses nothing, and its children do not outlive it (PR_SET_PDEATHSIG).
 *
 * It holds the flock that says that the sandbox lives. Whatever happens to the
 * others, the folder it leaves says what can still be done: nothing ran ->
 * removed; staged -> removed; anything else -> kept for `cloche recover`.
 */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/proc.h"
#include "cage/cage.h"
#include "disk/disk.h"
#include "event/loop.h"
#include "image/image.h"
#include "review/changeset.h"
#include "super/child.h"
#include "super/client.h"
#include "super/link.h"
#include "super/netproc.h"
#include "super/spawn.h"
#include "super/state.h"
#include "vmm/vmm.h"

/* from the worker's last word to its end: longer than its own deadlines together */
enum { OFF_GRACE_MS = 12 * 1000 };

enum { CH_SCAN, CH_DISK, CH_QEMU, CH_WORKER, CHILDREN };
static const char *const child_names[] = { "cloche-scan", "cloche-disk", "QEMU", "cloche-worker" };

struct monitor {
	struct loop *l;
	struct child ch[CHILDREN];
	struct state st;
	struct state_dirs dirs;
	int top_fd, dir_fd, lock_fd, staging_fd, changes_fd; /* sandboxes/, ours, … */
	int manifest_ro_fd; /* for those who read it and must not change the baseline */
	int manifest_fd, meta_fd, cache_fd, scratch_fd, scan_report_fd, log_fd, report_fd;
	int disk_fd, mon_fd; /* our ends */
	struct loop_fd mon_src;
	struct loop_timer timer;
	uid_t uid;
	bool recover, keep, scanned, booted, published, unchanged, off, ending;
	struct link_msg last; /* what the CLI is told at the end */
	struct netproc *net;  /* NULL: offline, and no port is published */
	/* from the command line */
	int client_fd;
	int project_fds[MSG_PROJECTS_MAX];
	const char *exclude[SPAWN_EXCLUDES_MAX];
	size_t n_exclude;
	bool heavy, sudo, debug, skip_own;
	int kernel_fd, initrd_fd, rootfs_fd;
	int layer_fds[CLIENT_LAYERS_MAX];
	size_t n_layers;
	const char *hostname;
	const char *user, *home; /* for the worker; NULL: not said */
	enum vmm_accel accel;
	uint32_t ready_ms;
	uint64_t records_max, content_max;
	struct net_spec spec;
};

static struct monitor m;

/* The disks of the layers, as the guest finds them; topmost first. */
static const char *const layer_serials[] = { "layer0", "layer1", "layer2", "layer3",
	                                     "layer4", "layer5", "layer6", "layer7" };
_Static_assert(ARRAY_LEN(layer_serials) == CLIENT_LAYERS_MAX, "a serial each");

static void to_worker(uint32_t type, int code, const char *text, const char *hint)
{
	struct link_msg lm = { .type = type, .code = code };

	if (text)
		(void)snprintf(lm.text, sizeof(lm.text), "%s", text);
	if (hint)
		(void)snprintf(lm.hint, sizeof(lm.hint), "%s", hint);
	if (m.mon_fd >= 0)
		(void)link_send(m.mon_fd, &lm); /* a dead worker is seen by its pidfd */
}

static void remember(const struct link_msg *lm)
{
	if (m.last.type == 0 || m.last.type == LINK_OK)
		m.last = *lm;
}

static void remember_err(const struct err *e)
{
	struct link_msg lm = link_err(LINK_FAILED, e);

	remember(&lm);
}

/* ---- publishing --------------------------------------------------------- */

/* As root the worker wrote under its own uid: the set is the user's from here on. */
static int own_tree(int dirfd, int depth)
{
	int fd = dup(dirfd);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	int r = 0;

	if (!d)
		return -errno;
	rewinddir(d);
	for (struct dirent *e; r == 0 && (e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (fchownat(dirfd, e->d_name, geteuid(), getegid(), AT_SYMLINK_NOFOLLOW) < 0)
			r = -errno;
		if (r == 0 && e->d_type == DT_DIR && depth < 3) {
			AUTO_CLOSE int sub = openat(
				dirfd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			r = sub < 0 ? -errno : own_tree(sub, depth + 1);
		}
	}
	(void)closedir(d); /* only read */
	return r;
}

/*
 * The worker staged it and may have been taken over: what directories the projects are, which
 * manifest is their baseline and whose set it is, we say. @exit_status: -1 unknown.
 */
static int publish(int exit_status, bool recovered, struct err *err)
{
	struct changeset_project projects[MSG_PROJECTS_MAX];
	struct changeset_meta meta = { .created_s = time(NULL),
		                       .exit_status = exit_status >= 0 && exit_status <= 255
		                                              ? exit_status
		                                              : -1,
		                       .recovered = recovered,
		                       .projects = projects,
		                       .n_projects = (uint32_t)m.st.n_projects };

	(void)snprintf(meta.id, sizeof(meta.id), "%s", m.st.id); /* one run, one set */
	(void)snprintf(meta.agent, sizeof(meta.agent), "%s", m.st.agent);
	(void)snprintf(meta.sandbox, sizeof(meta.sandbox), "%s", m.st.id);
	for (size_t i = 0; i < m.st.n_projects; i++)
		projects[i] = (struct changeset_project){ .path = m.st.projects[i].path,
			                                  .dev = m.st.projects[i].dev,
			                                  .ino = m.st.projects[i].ino };
	AUTO_CLOSE int set =
		openat(m.staging_fd, m.st.id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (set < 0)
		return err_errno(err, "cannot open what was staged");
	int r = m.uid ? own_tree(set, 0) : 0;
	if (r == 0 && m.uid && fchown(set, geteuid(), getegid()) < 0)
		r = -errno;
	if (r < 0)
		return err_code(err, r, "cannot own what was staged");
	return changeset_adopt(m.changes_fd, set, &meta, m.manifest_ro_fd, err);
}

static int set_phase(enum state_phase phase)
{
	struct err e = { 0 };

	m.st.phase = phase;
	int r = state_write(m.dir_fd, &m.st, &e);
	if (r < 0)
		log_error("%s", e.text);
	return r;
}

static void published(const struct link_msg *lm)
{
	m.published = true;
	m.last = *lm;
	(void)snprintf(m.last.id, sizeof(m.last.id), "%s", m.st.id);
	(void)set_phase(STATE_STAGED); /* the set is safe with or without it */
	log_info("change set %s published", m.st.id);
}

/* ---- the worker --------------------------------------------------------- */

static void stop(void *arg UNUSED)
{
	loop_stop(m.l, 0);
}

static void on_worker(void *arg UNUSED, uint32_t events UNUSED)
{
	struct link_msg lm;
	struct err e = { 0 };
	int r = link_recv(m.mon_fd, &lm);

	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		loop_fd_del(m.l, &m.mon_src); /* its pidfd says the rest */
		return;
	}
	switch (lm.type) {
	case LINK_BOOTED:
		m.booted = true;
		return;
	case LINK_RUNNING:
		if (m.net && m.st.phase == STATE_STARTING)
			netproc_open_ports(m.net);
		r = m.st.phase == STATE_STARTING ? set_phase(STATE_RUNNING) : 0;
		to_worker(LINK_OK, r, NULL, NULL);
		return;
	case LINK_STAGED:
		/* a worker that failed has nothing to publish any more */
		if (m.published || m.ending)
			r = m.published ? -EALREADY : -ECANCELED;
		else
			r = publish(lm.code, m.recover, &e);
		if (r == 0)
			published(&lm);
		else
			log_error("cannot publish change set: %s", e.code ? e.text : strerror(-r));
		to_worker(LINK_OK, r, NULL, NULL);
		return;
	case LINK_UNCHANGED:
		if (m.st.phase == STATE_RUNNING) {
			log_error("the worker says that nothing ran, but something did");
			return;
		}
		m.unchanged = true;
		remember(&lm);
		return;
	case LINK_FAILED:
		if (m.ending)
			return;
		m.ending = true;
		remember(&lm);
		loop_timer_set(m.l, &m.timer, OFF_GRACE_MS, stop, NULL);
		return;
	case LINK_OFF:
		if (m.off)
			return;
		m.off = true;
		if (m.net)
			netproc_expect_end(m.net);
		loop_timer_set(m.l, &m.timer, OFF_GRACE_MS, stop, NULL);
		return;
	default:
		err_set(&e, -EPROTO, "the worker said something unknown (%u)", (unsigned)lm.type);
		log_error("%s", e.text);
		remember_err(&e);
		loop_stop(m.l, 0);
		return;
	}
}

/* ---- children ----------------------------------------------------------- */

static void give_image_to_disk(void)
{
	m.scanned = true;
	struct disk_msg ready = { .type = DISK_READY };
	const int fds[] = { m.manifest_ro_fd, m.meta_fd };
	uint8_t b[64];
	size_t n = disk_msg_put(b, sizeof(b), &ready);
	int r = n ? fd_send(m.disk_fd, b, n, fds, 2) : -EINVAL;
	if (r < 0) {
		to_worker(LINK_BROKEN, r, "cannot hand the project's metadata to cloche-disk",
		          NULL);
		return;
	}
	to_worker(LINK_SCANNED, 0, NULL, NULL);
}

static void describe(struct err *e, int c)
{
	child_describe(&m.ch[c], e);
	if (c == CH_QEMU) /* all of its last lines: QEMU says why in any of them */
		(void)!vmm_exit_err(e, &m.ch[c].tail, m.ch[c].status);
}

static void log_usage(const char *name, uint64_t cpu_us, uint64_t rss_max)
{
	log_info("%s used cpu_us=%llu rss_max=%llu", name, (unsigned long long)cpu_us,
	         (unsigned long long)rss_max);
}

static void on_child(void *arg UNUSED, struct child *s)
{
	int c = (int)(s - m.ch);
	struct err e = { 0 };

	switch (c) {
	case CH_SCAN:
		if (s->status == 0) {
			give_image_to_disk();
			return;
		}
		describe(&e, c);
		err_wrap(&e, "cannot read the project");
		remember_err(&e);
		to_worker(LINK_BROKEN, e.code, e.text, e.hint);
		return;
	case CH_DISK:
		if (m.off || m.published)
			return;
		describe(&e, c);
		log_error("%s", e.text);
		to_worker(LINK_DISK_GONE, e.code, e.text, e.hint);
		return;
	case CH_QEMU:
		if (m.net)
			netproc_expect_end(m.net);
		/* the worker has a last word; one that is stopped or lies must not keep us */
		loop_timer_set(m.l, &m.timer, OFF_GRACE_MS, stop, NULL);
		if (m.off || m.published) {
			to_worker(LINK_BROKEN, -EPIPE, "the microVM is off", NULL);
			if (!m.ch[CH_WORKER].running)
				loop_stop(m.l,
				          0); /* both are done: no need to wait for the timer */
			return;
		}
		describe(&e, c);
		err_wrap(&e,
		         m.booted ? "the microVM ended unexpectedly" : "cannot start the microVM");
		remember_err(&e);
		log_error("%s", e.text);
		to_worker(LINK_BROKEN, e.code, e.text, e.hint);
		return;
	case CH_WORKER:
		if (s->status != 0 && m.last.type == 0) {
			describe(&e, c);
			err_wrap(&e, "the sandbox's worker ended");
			remember_err(&e);
		}
		/* the guest powers off by itself in the good case */
		loop_timer_set(m.l, &m.timer, m.off && m.ch[CH_QEMU].running ? 2000 : 0, stop,
		               NULL);
		if (!m.ch[CH_QEMU].running)
			loop_stop(m.l, 0);
		return;
	default:
		return;
	}
}

/* ---- the network -------------------------------------------------------- */

/* A network that cannot be had is refused before anything ran; later the session goes on. */
static void on_net_closed(void *arg UNUSED, const struct err *why)
{
	struct err e = *why;
	char text[ERR_TEXT_BYTES];

	if (m.st.phase == STATE_STARTING) {
		err_wrap(&e, "the sandbox has no network");
		remember_err(&e);
		to_worker(LINK_BROKEN, e.code, e.text, e.hint);
		return;
	}
	(void)snprintf(text, sizeof(text),
	               "the network is closed (%.300s); the session goes on without it", e.text);
	to_worker(LINK_NOTE, LOG_WARN, text, NULL);
}

static void on_net_note(void *arg UNUSED, enum log_level level, const char *text)
{
	to_worker(LINK_NOTE, (int)level, text, NULL);
}

static int make_network(struct err *err)
{
	struct netproc_opts o = {
		.l = m.l,
		.id = m.st.id,
		.spec = &m.spec,
		.state_dir = m.dirs.state,
		.log_fd = m.log_fd,
		.uid = m.uid,
		.closed = on_net_closed,
		.note = on_net_note,
	};

	if (m.spec.mode == NET_OFFLINE && !m.spec.n_ports)
		return 0;
	return netproc_new(&m.net, &o, err);
}

static int watch(int c, struct err *err)
{
	return child_watch(&m.ch[c], m.l, on_child, NULL, err);
}

static void on_signal(void *arg UNUSED, int signo)
{
	static bool again;

	if (again) { /* a worker that does not listen; the work stays on the sandbox's disk */
		struct err e = { 0 };
		err_set(&e, -ECANCELED, "interrupted while the changes were taken out");
		log_warn("signal %d again: the sandbox is ended at once", signo);
		remember_err(&e);
		loop_stop(m.l, 0);
		return;
	}
	again = true;
	log_info("signal %d: the session ends, its changes are kept", signo);
	to_worker(LINK_END, 0, NULL, NULL);
}

/* ---- start -------------------------------------------------------------- */

static int pair(int type, int sv[2], struct err *err)
{
	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sv) < 0)
		return err_errno(err, "cannot create a socket pair");
	return 0;
}

static int new_file(const char *name, int *out, struct err *err)
{
	*out = openat(m.dir_fd, name,
	              O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (m.recover ? 0 : O_EXCL), 0600);
	return *out < 0 ? err_errno(err, "cannot create '%s' in the sandbox's folder", name) : 0;
}

/* A set that was complete when everything died, but not published yet. */
static bool staged_before(void)
{
	AUTO_FREE char *path = xasprintf("staging/%s", m.st.id);

	return faccessat(m.dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * Which directories the projects are. In a recovery as the sandbox saw them: what lies under
 * their paths now, or stands for one that is gone, is something else.
 */
static int know_projects(const struct state *old, struct err *err)
{
	struct stat st;

	for (size_t i = 0; i < m.st.n_projects; i++) {
		struct state_project *p = &m.st.projects[i];
		if (old && i < old->n_projects && old->projects[i].ino) {
			p->dev = old->projects[i].dev;
			p->ino = old->projects[i].ino;
			continue;
		}
		if (fstat(m.project_fds[i], &st) < 0)
			return err_errno(err, "cannot look at project '%s'", p->name);
		p->dev = (uint64_t)st.st_dev;
		p->ino = st.st_ino;
	}
	return 0;
}

static int make_folder(struct err *err)
{
	AUTO_CLOSE int lock = -1;
	struct timespec ts;
	int r;

	m.top_fd = open(m.dirs.sandboxes, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	m.changes_fd = open(m.dirs.changes, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m.top_fd < 0 || m.changes_fd < 0)
		return err_errno(err, "cannot open '%s'", m.dirs.state);
	/* A sweep of another run judges what it can lock: the folder gets its name
	 * only once the lock is held and the state says what it is. */
	char fresh[STATE_ID_MAX + 8];
	(void)snprintf(fresh, sizeof(fresh), ".new-%s", m.st.id);
	const char *name = m.recover ? m.st.id : fresh;
	if (!m.recover && mkdirat(m.top_fd, fresh, 0700) < 0)
		return err_errno(err, "cannot create sandbox '%s'", m.st.id);
	m.dir_fd = openat(m.top_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (m.dir_fd < 0)
		return err_errno(err, "cannot open sandbox '%s'", m.st.id);
	r = new_file("lock", &lock, err);
	if (r < 0)
		return r;
	r = state_lock(m.top_fd, m.dir_fd, &m.lock_fd);
	if (r < 0)
		return err_set(err, r, "sandbox '%s' is in use", m.st.id);
	if (!m.recover) {
		(void)clock_gettime(CLOCK_REALTIME, &ts);
		m.st.created_s = ts.tv_sec;
		m.st.network = m.spec.mode;
		if (m.spec.mode != NET_OFFLINE)
			(void)snprintf(m.st.egress, sizeof(m.st.egress), "%s",
			               egress_profile_name(m.spec.profile));
		m.st.events = m.spec.events_path ? xstrdup(m.spec.events_path) : NULL;
		m.st.phase = STATE_STARTING;
		r = know_projects(NULL, err);
		if (r == 0)
			r = state_write(m.dir_fd, &m.st, err);
		if (r < 0)
			return r;
		if (renameat(m.top_fd, fresh, m.top_fd, m.st.id) < 0)
			return err_errno(err, "cannot create sandbox '%s'", m.st.id);
	}
	if (m.recover) {
		/* whatever comes now, the work is on this disk: leave_folder() must know */
		struct state old;
		m.st.phase = STATE_RUNNING;
		r = state_read(m.dir_fd, &old, err);
		if (r < 0)
			return r;
		m.st.created_s = old.created_s;
		m.st.network = old.network;
		memcpy(m.st.egress, old.egress, sizeof(m.st.egress));
		m.st.events = take_ptr(&old.events);
		r = know_projects(&old, err);
		state_fini(&old);
		if (r < 0)
			return r;
	}
	if (m.recover && !staged_before()) /* what an export left half done */
		(void)!path_remove_tree(m.dir_fd, "staging");
	if (mkdirat(m.dir_fd, "staging", 0700) < 0 && errno != EEXIST)
		return err_errno(err, "cannot create the staging folder");
	m.staging_fd = openat(m.dir_fd, "staging", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (m.staging_fd < 0)
		return err_errno(err, "cannot open the staging folder");
	if (m.uid && fchown(m.staging_fd, m.uid, m.uid) < 0)
		return err_errno(err, "cannot give the staging folder to uid %u", (unsigned)m.uid);
	if (!m.recover) {
		struct image_opts io = { 0 };
		r = image_scratch_create(&io, m.dir_fd, "scratch.img", m.st.scratch_bytes, err);
		if (r < 0)
			return r;
	}
	m.scratch_fd = openat(m.dir_fd, "scratch.img", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (m.scratch_fd < 0)
		return err_errno(err, "cannot open the sandbox's disk");
	r = new_file("manifest", &m.manifest_fd, err);
	if (r < 0)
		return r;
	m.manifest_ro_fd = openat(m.dir_fd, "manifest", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (m.manifest_ro_fd < 0)
		return err_errno(err, "cannot open 'manifest' in the sandbox's folder");
	r = new_file("ws.meta", &m.meta_fd, err);
	if (r == 0)
		r = new_file("ws.cache", &m.cache_fd, err);
	return r;
}

static int start_worker(int guest, int qmp, int disk, int mon, struct err *err)
{
	AUTO_FREE char *dir = proc_self_dir();
	AUTO_FREE char *path = xasprintf("%s/cloche-worker", dir);
	const char *argv[64 + 2 * (MSG_PROJECTS_MAX + CLIENT_LAYERS_MAX)];
	struct proc_fd fds[10];
	char num[5][24], address[IP4_STR_BYTES];
	size_t n = 0, k = 0;
	int err_pipe[2];

	if (pipe2(err_pipe, O_CLOEXEC) < 0)
		return err_errno(err, "cannot create a pipe");
	AUTO_CLOSE int err_w = err_pipe[1];
	m.ch[CH_WORKER].err_fd = err_pipe[0];
	fds[k++] = (struct proc_fd){ .from = err_w, .to = 2 };
	fds[k++] = (struct proc_fd){ .from = guest, .to = 10 };
	fds[k++] = (struct proc_fd){ .from = qmp, .to = 11 };
	fds[k++] = (struct proc_fd){ .from = disk, .to = 12 };
	fds[k++] = (struct proc_fd){ .from = mon, .to = 13 };
	fds[k++] = (struct proc_fd){ .from = m.staging_fd, .to = 14 };
	fds[k++] = (struct proc_fd){ .from = m.manifest_ro_fd, .to = 15 };
	argv[n++] = "cloche-worker";
	argv[n++] = "--guest=10";
	argv[n++] = "--qmp=11";
	argv[n++] = "--disk=12";
	argv[n++] = "--monitor=13";
	argv[n++] = "--staging=14";
	argv[n++] = "--manifest=15";
	if (m.log_fd >= 0) {
		fds[k++] = (struct proc_fd){ .from = m.log_fd, .to = 16 };
		argv[n++] = "--log=16";
	}
	if (m.client_fd >= 0) {
		fds[k++] = (struct proc_fd){ .from = m.client_fd, .to = 17 };
		argv[n++] = "--client=17";
	}
	argv[n++] = "--sandbox";
	argv[n++] = m.st.id;
	argv[n++] = "--hostname";
	argv[n++] = m.hostname;
	for (size_t i = 0; i < m.n_layers; i++) {
		argv[n++] = "--layer";
		argv[n++] = layer_serials[i];
	}
	argv[n++] = "--layer";
	argv[n++] = "base";
	for (size_t i = 0; i < m.st.n_projects; i++) {
		argv[n++] = "--project";
		argv[n++] = m.st.projects[i].name;
	}
	(void)snprintf(num[0], sizeof(num[0]), "%llu", (unsigned long long)m.st.tmp_bytes);
	(void)snprintf(num[1], sizeof(num[1]), "%llu",
	               (unsigned long long)(m.content_max ? m.content_max : m.st.scratch_bytes));
	(void)snprintf(num[2], sizeof(num[2]), "%u", (unsigned)m.ready_ms);
	(void)snprintf(num[3], sizeof(num[3]), "%llu", (unsigned long long)m.records_max);
	(void)snprintf(num[4], sizeof(num[4]), "%u", (unsigned)m.uid);
	argv[n++] = "--tmp";
	argv[n++] = num[0];
	argv[n++] = "--content";
	argv[n++] = num[1];
	argv[n++] = "--ready-ms";
	argv[n++] = num[2];
	argv[n++] = "--records";
	argv[n++] = num[3];
	argv[n++] = "--uid";
	argv[n++] = num[4];
	if (m.net) {
		fds[k++] = (struct proc_fd){ .from = netproc_worker_fd(m.net), .to = 18 };
		argv[n++] = "--relay=18";
	}
	if (m.net && netproc_address(m.net)) {
		argv[n++] = "--net";
		argv[n++] = ip4_str(address, netproc_address(m.net));
		for (size_t i = 0; i < m.spec.n_search; i++) {
			argv[n++] = "--search";
			argv[n++] = m.spec.search[i];
		}
		if (m.spec.profile != EGRESS_PERMISSIVE)
			argv[n++] = "--net-test";
	}
	if (m.recover)
		argv[n++] = "--recover";
	if (m.sudo)
		argv[n++] = "--sudo";
	if (m.user) {
		argv[n++] = "--user";
		argv[n++] = m.user;
	}
	if (m.home) {
		argv[n++] = "--home";
		argv[n++] = m.home;
	}
	if (m.debug)
		argv[n++] = "--debug";
	argv[n] = NULL;
	struct proc_spec spec = { .path = path, .argv = argv, .fds = fds, .n_fds = k };
	int r = proc_spawn(&m.ch[CH_WORKER].p, &spec, err);
	return r < 0 ? r : watch(CH_WORKER, err);
}

/*
 * A path to what is open as @fd. QEMU takes a kernel by its path only, and there is no /proc in
 * its cage; the path that it was opened by may lead to another by then (image build --force).
 * So it gets a second name in the sandbox's folder, or, where it cannot have one, a copy.
 * Return: 0 with a malloc'd path, or -errno with @err.
 */
static int name_file(int fd, const char *name, char **out, struct err *err)
{
	char proc[64], path[PATH_MAX];
	struct stat st, at;

	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	*out = xasprintf("%s/%s/%s", m.dirs.sandboxes, m.st.id, name);
	(void)unlinkat(m.dir_fd, name, 0); /* of the run that is recovered */
	if (linkat(AT_FDCWD, proc, m.dir_fd, name, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	if (fstat(fd, &st) < 0)
		return err_errno(err, "cannot look at the image's %s", name);
	/* on another file system: its own path while that is it, a copy is 30 MB a run */
	ssize_t n = readlink(proc, path, sizeof(path) - 1);
	if (n > 0) {
		path[n] = '\0';
		if (stat(path, &at) == 0 && at.st_dev == st.st_dev && at.st_ino == st.st_ino) {
			free(*out);
			*out = xstrdup(path);
			return 0;
		}
	}
	AUTO_CLOSE int to =
		openat(m.dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (to < 0)
		return err_errno(err, "cannot copy the image's %s", name);
	int r = fd_copy(fd, to, (uint64_t)st.st_size);
	if (r == 0 && m.uid && fchown(to, m.uid, m.uid) < 0)
		r = -errno;
	if (r == 0)
		r = fd_close(&to);
	return r < 0 ? err_code(err, r, "cannot copy the image's %s", name) : 0;
}

static void add_layers(struct vmm_config *cfg)
{
	for (size_t i = 0; i < m.n_layers; i++)
		cfg->disks[cfg->n_disks++] = (struct vmm_disk){ .serial = layer_serials[i],
			                                        .kind = VMM_DISK_RAW_FD,
			                                        .fd = m.layer_fds[i],
			                                        .read_only = true };
}

static int start_qemu(int guest, int qmp, int nbd, struct err *err)
{
	AUTO_FREE char *kernel = NULL, *initrd = NULL;
	int r = name_file(m.kernel_fd, "kernel", &kernel, err);

	if (r == 0)
		r = name_file(m.initrd_fd, "initrd", &initrd, err);
	if (r < 0)
		return r;
	struct vmm_config cfg = {
		.kernel = kernel,
		.initrd = initrd,
		.memory_mib = m.st.memory_mib,
		.vcpus = m.st.vcpus,
		.control_fd = guest,
		.qmp_fd = qmp,
		.console_fd = -1,
		.net_fd = m.net ? netproc_qemu_fd(m.net) : -1,
		.net_mtu = NET_MTU,
		.accel = m.accel,
		.tsc_khz = m.accel == VMM_ACCEL_TCG ? vmm_tsc_khz() : 0,
		.n_disks = 3,
		.disks = {
			{ .serial = "base", .kind = VMM_DISK_RAW_FD, .fd = m.rootfs_fd, .read_only = true },
			{ .serial = "work", .kind = VMM_DISK_NBD_FD, .fd = nbd, .read_only = true },
			{ .serial = "scratch", .kind = VMM_DISK_RAW_FD, .fd = m.scratch_fd },
		},
	};
	add_layers(&cfg);
	struct vmm_launch la = { .uid = m.uid };
	if (m.net)
		netproc_mac(m.net, cfg.net_mac);
	r = vmm_spawn(&m.ch[CH_QEMU].p, &m.ch[CH_QEMU].err_fd, &cfg, &la, err);
	return r < 0 ? r : watch(CH_QEMU, err);
}

static int start(struct err *err)
{
	int g[2], q[2], nbd[2], d[2], mon[2];
	int r = pair(SOCK_STREAM, g, err);

	if (r == 0)
		r = pair(SOCK_STREAM, q, err);
	if (r == 0)
		r = pair(SOCK_STREAM, nbd, err);
	if (r == 0)
		r = pair(SOCK_SEQPACKET, d, err);
	if (r == 0)
		r = pair(SOCK_SEQPACKET, mon, err);
	if (r < 0)
		return r; /* the process ends: the kernel closes them */
	m.disk_fd = d[0];
	m.mon_fd = mon[0];
	r = make_network(err);
	if (r < 0)
		return r;
	/* QEMU first: it has the longest way; the scan beside it */
	r = start_qemu(g[0], q[0], nbd[0], err);
	if (r < 0)
		return r;
	(void)close(g[0]); /* so that QEMU's end is an end of file for the worker */
	(void)close(q[0]);
	(void)close(nbd[0]);
	if (!m.recover) {
		struct spawn_scan sc = {
			.projects = m.st.projects,
			.fds = m.project_fds,
			.n_projects = m.st.n_projects,
			.manifest_fd = m.manifest_fd,
			.meta_fd = m.meta_fd,
			.report_fd = m.scan_report_fd,
			.exclude = m.exclude,
			.n_exclude = m.n_exclude,
			.heavy = m.heavy,
			.dirs = &m.dirs,
			.uid = m.uid,
		};
		r = spawn_scan(&m.ch[CH_SCAN].p, &m.ch[CH_SCAN].err_fd, &sc, err);
		if (r == 0)
			r = watch(CH_SCAN, err);
		if (r < 0)
			return r;
	}
	struct spawn_disk sd = {
		.fds = m.project_fds,
		.n_projects = m.st.n_projects,
		.nbd_fd = nbd[1],
		.control_fd = d[1],
		.cache_fd = m.cache_fd,
		.log_fd = m.log_fd,
		.uid = m.uid,
		.moved = m.recover,
	};
	r = spawn_disk(&m.ch[CH_DISK].p, &m.ch[CH_DISK].err_fd, &sd, err);
	if (r == 0)
		r = watch(CH_DISK, err);
	if (r < 0)
		return r;
	(void)close(nbd[1]);
	(void)close(d[1]);
	r = start_worker(g[1], q[1], d[0], mon[1], err);
	if (r == 0 && m.net)
		r = netproc_start(m.net, err); /* closes what the others have by now */
	if (r < 0)
		return r;
	(void)close(g[1]);
	(void)close(q[1]);
	(void)close(mon[1]);
	auto_close_(&m.client_fd); /* the worker's alone now */
	m.client_fd = -1;
	r = fd_set_nonblock(m.mon_fd, true);
	if (r == 0)
		r = loop_fd_add(m.l, &m.mon_src, m.mon_fd, EPOLLIN, on_worker, NULL);
	if (r < 0)
		return err_code(err, r, "cannot watch the worker");
	to_worker(LINK_SPAWNED, 0, NULL, NULL);
	if (m.recover)
		give_image_to_disk();
	return 0;
}

/* ---- end ---------------------------------------------------------------- */

static void end_children(void)
{
	/* the worker first: it listens to QEMU */
	child_end(&m.ch[CH_WORKER], m.ch[CH_WORKER].running ? 200 : 0);
	child_end(&m.ch[CH_QEMU], m.off && m.ch[CH_QEMU].running ? 300 : 0);
	netproc_end(m.net); /* behind QEMU: what its guest did last is written down */
	child_end(&m.ch[CH_DISK], 0);
	child_end(&m.ch[CH_SCAN], 0);
	for (int i = 0; i < CHILDREN; i++)
		log_usage(child_names[i], m.ch[i].p.cpu_us, m.ch[i].p.rss_max);
}

static void leave_folder(void)
{
	bool done = m.published || m.unchanged || m.st.phase != STATE_RUNNING;

	if (done && !m.keep) {
		int r = path_remove_tree(m.top_fd, m.st.id);
		if (r < 0)
			log_error("cannot remove the sandbox's folder: %s", strerror(-r));
		return;
	}
	if (done) { /* --keep: the sweep of the next run leaves it alone, too */
		AUTO_CLOSE int keep = -1;
		struct err e = { 0 };
		if (new_file("keep", &keep, &e) < 0)
			log_error("%s", e.text);
		(void)set_phase(STATE_STAGED);
		return;
	}
	(void)unlinkat(m.dir_fd, "kernel", 0); /* a recovery brings its own */
	(void)unlinkat(m.dir_fd, "initrd", 0);
	(void)snprintf(m.st.failure, sizeof(m.st.failure), "%s", m.last.text);
	(void)set_phase(STATE_RUNNING);
}

static void report(void)
{
	if (m.report_fd < 0)
		return;
	if (m.last.type == 0)
		m.last.type = LINK_UNCHANGED;
	m.last.pad = m.st.phase == STATE_RUNNING && !m.published && !m.unchanged; /* recoverable */
	(void)!fd_write_all(m.report_fd, &m.last, sizeof(m.last)); /* the CLI may be gone */
}

/* Nothing to boot for when the export was over already. 0 or -errno. */
static int take_staged(struct err *err)
{
	static const struct link_msg lm = { .type = LINK_STAGED };
	struct stat st;
	int r = 0;

	/* a death between its name and the word that it has it; no other set has our id */
	if (fstatat(m.changes_fd, m.st.id, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		published(&lm);
		return 0;
	}
	if (!staged_before())
		return 0;
	r = publish(-1, false, err);
	if (r == 0)
		published(&lm);
	if (r != -ENOENT && r != -EPROTO)
		return r;
	/* it was cut off while it was made a set: all of it is still on the sandbox's disk */
	log_warn("%s: the changes are taken out again", err->text);
	r = path_remove_tree(m.staging_fd, m.st.id);
	return r < 0 ? err_code(err, r, "cannot remove what was staged") : 0;
}

/* FD+N:GUEST_PORT:ONCE:SECONDS:LABEL, N descriptors from FD on */
static bool parse_port(const char *s)
{
	struct net_port *p = &m.spec.ports[m.spec.n_ports];
	unsigned fd, n, port, once, deadline;
	int at = 0;

	if (m.spec.n_ports == NET_PORTS_MAX ||
	    sscanf(s, "%u+%u:%u:%u:%u:%n", &fd, &n, &port, &once, &deadline, &at) != 5 || !at ||
	    n < 1 || n > NET_PORT_FDS_MAX || port < 1 || port > UINT16_MAX)
		return false;
	*p = (struct net_port){ .n_fds = (uint8_t)n,
		                .once = once,
		                .guest_port = (uint16_t)port,
		                .deadline_s = deadline,
		                .label = s + at };
	for (unsigned i = 0; i < n; i++)
		p->fds[i] = (int)(fd + i);
	m.spec.n_ports++;
	return true;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "id", 1, 0, 'i' },
		{ "agent", 1, 0, 'a' },
		{ "client", 1, 0, 'c' },
		{ "report", 1, 0, 'r' },
		{ "scan-report", 1, 0, 'R' },
		{ "log", 1, 0, 'l' },
		{ "log-path", 1, 0, 'L' },
		{ "project", 1, 0, 'p' },
		{ "kernel", 1, 0, 'k' },
		{ "initrd", 1, 0, 'I' },
		{ "rootfs", 1, 0, 'f' },
		{ "image", 1, 0, 'n' },
		{ "memory", 1, 0, 'm' },
		{ "cpus", 1, 0, 'C' },
		{ "disk", 1, 0, 'd' },
		{ "tmp", 1, 0, 't' },
		{ "accel", 1, 0, 'A' },
		{ "ready-ms", 1, 0, 'y' },
		{ "exclude", 1, 0, 'e' },
		{ "heavy", 0, 0, 'h' },
		{ "hostname", 1, 0, 'H' },
		{ "recover", 0, 0, 'x' },
		{ "records", 1, 0, 'N' },
		{ "content", 1, 0, 'B' },
		{ "keep", 0, 0, 'K' },
		{ "sudo", 0, 0, 'u' },
		{ "user", 1, 0, 'U' },
		{ "home", 1, 0, 'O' },
		{ "debug", 0, 0, 'D' },
		{ "network", 1, 0, 'w' },
		{ "egress", 1, 0, 'g' },
		{ "policy", 1, 0, 'o' },
		{ "events", 1, 0, 'E' },
		{ "port", 1, 0, 'P' },
		{ "search", 1, 0, 's' },
		{ "net-name", 1, 0, 'W' },
		{ "keep-address", 0, 0, 'q' },
		{ "layer", 1, 0, 'F' },
		{ 0 },
	};
	static const int signos[] = { SIGTERM, SIGINT, SIGHUP, -1 };
	struct err e = { 0 };
	int c;

	m.top_fd = m.dir_fd = m.lock_fd = m.staging_fd = m.changes_fd = m.manifest_fd = -1;
	m.manifest_ro_fd = m.meta_fd = m.cache_fd = m.scratch_fd = m.scan_report_fd = m.log_fd =
		m.report_fd = -1;
	m.disk_fd = m.mon_fd = m.client_fd = -1;
	m.kernel_fd = m.initrd_fd = m.rootfs_fd = -1;
	m.hostname = "cloche";
	m.records_max = CHANGE_RECORDS_DEFAULT;
	for (int i = 0; i < CHILDREN; i++)
		child_init(&m.ch[i], child_names[i]);
	m.mon_src.fd = -1;
	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 'i':
			(void)snprintf(m.st.id, sizeof(m.st.id), "%s", optarg);
			break;
		case 'a':
			(void)snprintf(m.st.agent, sizeof(m.st.agent), "%s", optarg);
			break;
		case 'c':
			m.client_fd = atoi(optarg);
			break;
		case 'r':
			m.report_fd = atoi(optarg);
			break;
		case 'R':
			m.scan_report_fd = atoi(optarg);
			break;
		case 'l':
			m.log_fd = atoi(optarg);
			break;
		case 'L':
			m.st.log = xstrdup(optarg);
			break;
		case 'p': { /* FD:NAME:/PATH; a name has no slash, so the first ":/" ends it */
			char *name = strchr(optarg, ':');
			char *path = name ? strstr(name + 1, ":/") : NULL;
			if (!path || m.st.n_projects == MSG_PROJECTS_MAX)
				return 2;
			m.project_fds[m.st.n_projects] = atoi(optarg);
			m.st.projects[m.st.n_projects].name =
				xstrndup(name + 1, (size_t)(path - name - 1));
			m.st.projects[m.st.n_projects++].path = xstrdup(path + 1);
			break;
		}
		case 'k':
			m.kernel_fd = atoi(optarg);
			break;
		case 'I':
			m.initrd_fd = atoi(optarg);
			break;
		case 'f':
			m.rootfs_fd = atoi(optarg);
			break;
		case 'F':
			if (m.n_layers == CLIENT_LAYERS_MAX)
				return 2;
			m.layer_fds[m.n_layers++] = atoi(optarg);
			break;
		case 'n':
			(void)snprintf(m.st.image, sizeof(m.st.image), "%s", optarg);
			break;
		case 'm':
			m.st.memory_mib = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'C':
			m.st.vcpus = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'd':
			m.st.scratch_bytes = strtoull(optarg, NULL, 10);
			break;
		case 't':
			m.st.tmp_bytes = strtoull(optarg, NULL, 10);
			break;
		case 'A':
			if (vmm_accel_parse(optarg, &m.accel) < 0)
				return 2;
			(void)snprintf(m.st.accel, sizeof(m.st.accel), "%s", optarg);
			break;
		case 'y':
			m.ready_ms = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'e':
			if (m.n_exclude == SPAWN_EXCLUDES_MAX)
				return 2;
			m.exclude[m.n_exclude++] = optarg;
			break;
		case 'h':
			m.heavy = true;
			break;
		case 'H':
			m.hostname = optarg;
			break;
		case 'U':
			m.user = optarg;
			break;
		case 'O':
			m.home = optarg;
			break;
		case 'x':
			m.recover = true;
			break;
		case 'N':
			m.records_max = strtoull(optarg, NULL, 10);
			break;
		case 'B':
			m.content_max = strtoull(optarg, NULL, 10);
			break;
		case 'K':
			m.keep = true;
			break;
		case 'u':
			m.sudo = true;
			break;
		case 'D':
			m.debug = true;
			break;
		case 'w':
			if (net_mode_parse(optarg, &m.spec.mode) < 0)
				return 2;
			break;
		case 'g':
			if (egress_profile_parse(optarg, &m.spec.profile) < 0)
				return 2;
			break;
		case 'o':
			m.spec.policy_fd = atoi(optarg);
			break;
		case 'E':
			m.spec.events_path = optarg;
			break;
		case 'P':
			if (!parse_port(optarg))
				return 2;
			break;
		case 's':
			if (m.spec.n_search == NET_SEARCH_MAX)
				return 2;
			m.spec.search[m.spec.n_search++] = optarg;
			break;
		case 'W':
			m.spec.name = optarg;
			break;
		case 'q':
			m.spec.keep_address = true;
			break;
		default:
			return 2;
		}
	}
	if (!m.st.id[0] || !m.st.n_projects || m.kernel_fd < 0 || m.initrd_fd < 0 ||
	    m.rootfs_fd < 0)
		return 2;
	for (int fd = 3; fd < CLIENT_FDS_END; fd++)
		(void)!fd_set_cloexec(fd, true); /* EBADF: not open */
	log_open(m.log_fd, "cloche-super", m.st.id, m.debug ? LOG_DEBUG : LOG_INFO);
	m.l = loop_new();
	if (!m.l || loop_signals(m.l, signos, on_signal, NULL) < 0)
		return 1;
	int r = state_dirs_init(&m.dirs, true, &e);
	if (r == 0 && geteuid() == 0) {
		uint32_t seed;
		random_bytes(&seed, sizeof(seed));
		r = cage_uid_pick(seed, &m.uid);
		if (r < 0)
			err_code(&e, r, "cannot find an unprivileged uid for the sandbox");
	}
	if (r == 0)
		r = make_folder(&e);
	if (r == 0 && m.recover)
		r = take_staged(&e);
	if (r == 0 && !m.published) {
		r = start(&e);
		if (r == 0)
			(void)loop_run(m.l);
	}
	if (r < 0) {
		log_error("%s", e.text);
		remember_err(&e);
	}
	end_children();
	/* what the CLI is told must be true: the folder first */
	if (m.dir_fd >= 0 && m.lock_fd >= 0)
		leave_folder();
	struct rusage ru;
	if (getrusage(RUSAGE_SELF, &ru) == 0)
		log_usage("cloche-super",
		          (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000 +
		                  (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec),
		          (uint64_t)ru.ru_maxrss * 1024);
	report();
	return r < 0 ? 1 : 0;
}
