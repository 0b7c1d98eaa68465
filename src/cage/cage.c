/* SPDX-License-Identifier: Apache-2.0 */
#include "cage/cage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "cage/cage_priv.h"

/* a sanitizer's shadow memory has more address space than any limit */
#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LIMIT_MEMORY 0
#endif
#endif
#ifndef LIMIT_MEMORY
#define LIMIT_MEMORY 1
#endif

static int limit(int what, uint64_t value, struct err *err)
{
	struct rlimit now, r = { .rlim_cur = value, .rlim_max = value };

	/* only downwards: a stricter limit of the user's stays */
	if (getrlimit((__rlimit_resource_t)what, &now) == 0 && now.rlim_max < value)
		r.rlim_cur = r.rlim_max = now.rlim_max;
	if (setrlimit((__rlimit_resource_t)what, &r) < 0)
		return err_errno(err, "cannot set a limit of the cage");
	return 0;
}

static int set_limits(const struct cage_opts *o, struct err *err)
{
	const struct cage_role_info *role = &cage_roles[o->role];
	uint64_t memory = o->memory_max ? o->memory_max : role->memory_max;
	/*
	 * 1, not 0: a core_pattern that is a pipe ignores 0, and takes 1 as "none"
	 * (fs/coredump.c). It counts for QEMU, which exec makes dumpable again.
	 */
	int r = limit(RLIMIT_CORE, 1, err);

	if (r == 0)
		r = limit(RLIMIT_NOFILE, o->nofile_max ? o->nofile_max : role->nofile_max, err);
	if (r == 0 && memory && LIMIT_MEMORY)
		r = limit(RLIMIT_AS, memory, err);
	if (r == 0)
		r = limit(RLIMIT_MSGQUEUE, 0, err);
	if (r == 0 && !role->threads)
		r = limit(RLIMIT_NPROC, 0, err);
	return r;
}

static bool one_thread(void)
{
	struct stat st;

	/* one link a thread, and "." and ".."; without /proc: believe the caller */
	return stat("/proc/self/task", &st) < 0 || st.st_nlink <= 3;
}

static int refuse_floor(unsigned layers, struct err *err)
{
	(void)err_set(err, -EPERM, "this host offers too little to confine a process: %s",
	              layers & CAGE_SECCOMP ? "neither landlock nor a namespace with an empty root"
	                                    : "no seccomp");
	return err_hint(err,
	                "enable Landlock (kernel 5.13 or newer, 'landlock' in the lsm= list of "
	                "the kernel command line) or unprivileged user namespaces (sysctl "
	                "kernel.unprivileged_userns_clone=1, user.max_user_namespaces, "
	                "kernel.apparmor_restrict_unprivileged_userns=0)");
}

/* Namespaces, ids and capabilities, in the order that the privilege at hand allows. */
static int isolate(const struct cage_opts *o, int abi, unsigned *layers, struct err *err)
{
	const struct cage_role_info *role = &cage_roles[o->role];
	bool root = geteuid() == 0;
	bool landlock = abi > 0 && !(o->skip_layers & CAGE_LANDLOCK);
	bool leave = root && o->uid != 0 && !role->keeps_root;
	bool ids_set = false;
	int r = 0;

	if (root)
		r = cage_ns_enter(o, false, layers, err);
	if (r < 0)
		return r;
	/* an ordinary user, or root of a container that may not make namespaces */
	if (!(*layers & CAGE_MOUNTNS) && !(root && (o->skip_layers & CAGE_MOUNTNS)) &&
	    !(role->real_ids && landlock)) {
		if (leave) {
			r = cage_ids_enter(o->uid, true, 0);
			if (r < 0)
				return err_code(err, r, "cannot become uid %u", o->uid);
			ids_set = true;
		}
		r = cage_ns_enter(o, true, layers, err);
		if (r < 0)
			return r;
	}
	r = cage_ids_enter(o->uid, leave && !ids_set, root && !ids_set ? role->root_caps : 0);
	if (r < 0)
		return err_code(err, r, "cannot become uid %u", o->uid);
	if (leave)
		*layers |= CAGE_UID;
	return 0;
}

int cage_enter(const struct cage_opts *o, struct err *err)
{
	struct err own = { 0 };
	pid_t parent = getppid();
	unsigned layers = 0;
	int death = 0;

	if (!err)
		err = &own;
	*err = (struct err){ 0 };
	ASSERT(o->role < CAGE_ROLES);
	ASSERT(o->role == CAGE_QEMU || o->n_paths == 0);
	if (o->out_layers)
		*o->out_layers = 0;
	if (!one_thread())
		return err_set(err, -EBUSY, "the cage needs a process with one thread");
	(void)prctl(PR_GET_PDEATHSIG, &death);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(err, "cannot set no_new_privs");
	layers |= CAGE_NO_NEW_PRIVS;

	int abi = cage_landlock_abi();
	int r = isolate(o, abi, &layers, err);
	if (r == 0)
		r = set_limits(o, err);
	if (r == 0)
		r = cage_landlock_enter(o, abi, &layers, err);
	if (r < 0)
		return r;
	if (!(layers & (CAGE_LANDLOCK | CAGE_MOUNTNS))) {
		if (o->out_layers)
			*o->out_layers = layers;
		return refuse_floor(layers | CAGE_SECCOMP, err);
	}
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_errno(err, "cannot hide the process from debuggers");
	/* a change of ids and capabilities took this away (prctl(2)) */
	if (death) {
		(void)prctl(PR_SET_PDEATHSIG, death);
		if (getppid() != parent)
			_exit(128 + death); /* it ended meanwhile */
	}
	if (o->skip_layers & CAGE_SECCOMP) {
		r = -ENOSYS;
	} else {
		r = cage_filter_load(o->role);
	}
	if (r < 0) {
		if (o->out_layers)
			*o->out_layers = layers;
		if (r == -EINVAL || r == -ENOSYS)
			return refuse_floor(layers, err);
		return err_code(err, r, "cannot load the filter of role '%s'",
		                cage_roles[o->role].name);
	}
	if (o->out_layers)
		*o->out_layers = layers | CAGE_SECCOMP;
	return 0;
}

/* ---- what the host offers ---------------------------------------------- */

struct probe_answer {
	int code;
	unsigned layers;
	char why[256];
};

enum { PROBE_MS = 5000 };

int cage_probe(struct cage_probe *out)
{
	return cage_probe_role(CAGE_REVIEW, out);
}

int cage_probe_role(enum cage_role role, struct cage_probe *out)
{
	struct probe_answer a = { .code = -EIO };
	int p[2], status;

	*out = (struct cage_probe){ .landlock_abi = cage_landlock_abi(), .root = geteuid() == 0 };
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	AUTO_CLOSE int rd = p[0];
	AUTO_CLOSE int wr = p[1];
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		struct err err = { 0 };
		struct cage_opts o = { .role = role, .out_layers = &a.layers };

		if (out->root && cage_uid_pick(1, &o.uid) < 0)
			o.uid = 0;
		a.code = cage_enter(&o, &err);
		(void)snprintf(a.why, sizeof(a.why), "%.*s", (int)sizeof(a.why) - 1, err.text);
		_exit(fd_write_all(wr, &a, sizeof(a)) < 0 ? 1 : 0);
	}
	auto_close_(&wr);
	wr = -1;
	struct pollfd pf = { .fd = rd, .events = POLLIN };
	if (poll(&pf, 1, PROBE_MS) <= 0 || fd_read_exact(rd, &a, sizeof(a)) < 0) {
		(void)kill(pid, SIGKILL); /* ours, not reaped yet */
		a = (struct probe_answer){ .code = -EIO, .why = "the probe gave no answer" };
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	a.why[sizeof(a.why) - 1] = '\0';
	out->layers = a.layers;
	out->floor = a.code == 0;
	memcpy(out->why, a.why, sizeof(out->why));
	return 0;
}

const char *cage_layers_str(char *dst, size_t cap, unsigned layers)
{
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {
		{ CAGE_SECCOMP, "seccomp" }, { CAGE_LANDLOCK, "landlock" },
		{ CAGE_USERNS, "userns" },   { CAGE_MOUNTNS, "mountns" },
		{ CAGE_NETNS, "netns" },     { CAGE_IPCNS, "ipcns" },
		{ CAGE_UID, "uid" },
	};
	size_t n = 0;

	ASSERT(cap > 0);
	dst[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (!(layers & names[i].bit))
			continue;
		int w = snprintf(dst + n, cap - n, "%s%s", n ? " " : "", names[i].name);
		if (w < 0 || (size_t)w >= cap - n) {
			dst[n] = '\0'; /* whole names only */
			break;
		}
		n += (size_t)w;
	}
	return dst;
}
