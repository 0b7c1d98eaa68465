/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.c - QEMU started in its cage, and what it said when it ends too early. */
#include "vmm/vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/vis.h"

enum { CAGE_ARGS_MAX = 32, EXIT_CAGE_REFUSED = 125 };

/* What QEMU reads by name beside its libraries. */
static const char *const qemu_data[] = {
	"/usr/share/qemu",     /* qboot.rom */
	"?/usr/share/seabios", /* links of the folder above lead here */
	"?/etc/localtime",
};

int vmm_spawn(struct proc *out, int *out_stderr, const struct vmm_config *cfg,
              const struct vmm_launch *launch, struct err *err)
{
	AUTO_FREE char *qemu = NULL, *dir = NULL, *cage = NULL;
	char uid[16], skip[16];
	struct vmm_config c = *cfg;
	struct vmm_argv a = { 0 };
	int p[2];

	if (!c.qemu) {
		if (proc_find_program("qemu-system-x86_64", &qemu) < 0) {
			(void)err_set(err, -ENOENT, "QEMU is not installed");
			return err_hint(err, "sudo apt install qemu-system-x86");
		}
		c.qemu = qemu;
	}
	int r = vmm_qemu_argv(&a, &c, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < c.n_disks; i++) {
		const struct vmm_disk *d = &c.disks[i];

		/* QEMU takes a descriptor of exactly the mode that it would open */
		if (d->kind == VMM_DISK_RAW_FD &&
		    (fcntl(d->fd, F_GETFL) & O_ACCMODE) != (d->read_only ? O_RDONLY : O_RDWR)) {
			vmm_argv_fini(&a);
			return err_set(err, -EINVAL, "disk '%s' is not open in its mode",
			               d->serial);
		}
	}
	if (pipe2(p, O_CLOEXEC) < 0) {
		r = err_errno(err, "cannot start QEMU");
		vmm_argv_fini(&a);
		return r;
	}
	AUTO_CLOSE int rd = p[0];
	AUTO_CLOSE int wr = p[1];
	AUTO_FREE const char **v = xcalloc(CAGE_ARGS_MAX + a.n + 1, sizeof(*v));
	size_t n = 0;

	if (!launch->uncaged) {
		dir = proc_self_dir();
		cage = launch->cage ? xstrdup(launch->cage) : xasprintf("%s/cloche-cage", dir);
		v[n++] = cage;
		v[n++] = "--role";
		v[n++] = "qemu";
		if (launch->uid) {
			(void)snprintf(uid, sizeof(uid), "%u", launch->uid);
			v[n++] = "--uid";
			v[n++] = uid;
		}
		if (launch->skip_layers) {
			(void)snprintf(skip, sizeof(skip), "%u", launch->skip_layers);
			v[n++] = "--skip";
			v[n++] = skip;
		}
		for (size_t i = 0; i < ARRAY_LEN(qemu_data); i++) {
			v[n++] = "--ro";
			v[n++] = qemu_data[i];
		}
		v[n++] = "--ro";
		v[n++] = c.kernel;
		v[n++] = "--ro";
		v[n++] = c.initrd;
		if (c.accel == VMM_ACCEL_KVM) {
			v[n++] = "--dev";
			v[n++] = "/dev/kvm";
		}
		v[n++] = "--";
	}
	ASSERT(n <= CAGE_ARGS_MAX);
	for (size_t i = 0; i < a.n; i++)
		v[n++] = a.v[i];
	AUTO_FREE struct proc_fd *fds = xcalloc(a.n_fds + 2, sizeof(*fds));
	memcpy(fds, a.fds, a.n_fds * sizeof(*fds));
	fds[a.n_fds] = (struct proc_fd){ .from = wr, .to = 1 };
	fds[a.n_fds + 1] = (struct proc_fd){ .from = wr, .to = 2 };
	struct proc_spec spec = {
		.path = v[0], .argv = v, .fds = fds, .n_fds = a.n_fds + 2,
		/*
		 * In the session of its monitor, which has left the user's: Ctrl-C there is the
		 * guest's. Not in one of its own: the kernel shares a busy machine out among
		 * sessions (sched_autogroup), and every frame and disk block would wait for its
		 * turn once more at each end.
		 */
	};
	r = proc_spawn(out, &spec, err);
	vmm_argv_fini(&a);
	if (r < 0)
		return r;
	r = fd_set_nonblock(rd, true);
	ASSERT(r == 0);
	*out_stderr = take_fd(&rd);
	return 0;
}

int vmm_tail_read(struct vmm_tail *t, int fd)
{
	char b[4096];

	for (int turns = 0; turns < 16; turns++) {
		ssize_t n = read(fd, b, sizeof(b));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) {
			t->at_end = true;
			return 0;
		}
		size_t have = (size_t)n;
		const char *p = b;
		if (have > sizeof(t->b)) {
			p += have - sizeof(t->b);
			have = sizeof(t->b);
		}
		if (t->len + have > sizeof(t->b)) {
			size_t drop = t->len + have - sizeof(t->b);

			memmove(t->b, t->b + drop, t->len - drop);
			t->len -= drop;
		}
		memcpy(t->b + t->len, p, have);
		t->len += have;
	}
	return -EAGAIN; /* others of the loop are due */
}

/* The start of the last @lines lines of @t. */
static size_t last_lines(const struct vmm_tail *t, int lines)
{
	size_t end = t->len;

	while (end > 0 && t->b[end - 1] == '\n')
		end--;
	for (size_t i = end; i > 0; i--) {
		if (t->b[i - 1] == '\n' && --lines == 0)
			return i;
	}
	return 0;
}

int vmm_exit_err(struct err *err, const struct vmm_tail *t, int wait_status)
{
	size_t from = last_lines(t, 2), end = t->len;
	char text[ERR_TEXT_BYTES / 2 + 100];

	while (end > from && t->b[end - 1] == '\n')
		end--;
	/* the newest bytes are the ones that say why */
	if (end - from > 300)
		from = end - 300;
	(void)vis_str(text, sizeof(text), span_of(t->b + from, end - from));
	const char *sep = text[0] ? ": " : "";
	if (WIFSIGNALED(wait_status))
		return err_set(err, -EIO, "QEMU was ended by signal %d%s%s", WTERMSIG(wait_status),
		               sep, text);
	if (WEXITSTATUS(wait_status) == EXIT_CAGE_REFUSED)
		return err_set(err, -EIO, "QEMU's cage was refused%s%s", sep, text);
	return err_set(err, -EIO, "QEMU ended with status %d%s%s", WEXITSTATUS(wait_status), sep,
	               text);
}
