/* SPDX-License-Identifier: Apache-2.0 */
#include "super/client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/log.h"
#include "super/spawn.h"

static int on_control(void *arg, struct span in)
{
	static struct ctl m; /* too big for the stack */
	struct client *c = arg;
	int r = ctl_parse(&m, in);

	if (r < 0)
		return r;
	if (m.type < CTL_PHASE)
		return -EPROTO; /* a message of ours, sent to us */
	return c->message(c->arg, &m);
}

static int on_data(void *arg, uint16_t ch, uint8_t stream, struct span bytes)
{
	struct client *c = arg;

	return c->output(c->arg, ch, stream, bytes);
}

static int on_eof(void *arg, uint16_t ch, uint8_t stream)
{
	struct client *c = arg;

	return c->eof(c->arg, ch, stream);
}

static int on_reset(void *arg, uint16_t ch, uint8_t stream)
{
	struct client *c = arg;

	/* cut short or not: nothing more comes; or nobody reads what we send */
	if (stream != FRAME_IN)
		return c->eof(c->arg, ch, stream);
	c->writable(c->arg, ch, stream);
	return 0;
}

static int on_writable(void *arg, uint16_t ch, uint8_t stream)
{
	struct client *c = arg;

	c->writable(c->arg, ch, stream);
	return 0;
}

static const struct mux_ops ops = { .control = on_control,
	                            .data = on_data,
	                            .eof = on_eof,
	                            .reset = on_reset,
	                            .writable = on_writable };

static void on_over(void *arg, int code)
{
	struct client *c = arg;

	c->connected = false;
	if (code < 0)
		log_debug("connection to the sandbox: %s", strerror(-code));
	if (c->ended)
		c->over(c->arg);
	else
		c->lost(c->arg, code);
}

static void on_super(void *arg, uint32_t events UNUSED)
{
	struct client *c = arg;

	loop_fd_del(c->l, &c->super_src);
	int status = 0;
	if (proc_wait(&c->super, -1, &status) < 0)
		return; /* its pidfd said that it is over */
	if (fd_read_exact(c->report_fd, &c->last, sizeof(c->last)) < 0) {
		struct err e = { 0 };
		err_set(&e, -EIO, "the sandbox's monitor was killed (status %d)",
		        proc_shell_status(status));
		c->last = link_err(LINK_FAILED, &e);
		c->last.pad = 1; /* whether there is something to recover, the folder tells */
	}
	c->last.text[sizeof(c->last.text) - 1] = '\0';
	c->last.hint[sizeof(c->last.hint) - 1] = '\0';
	c->last.id[sizeof(c->last.id) - 1] = '\0';
	c->ended = true;
	if (!c->connected)
		c->over(c->arg);
}

enum {
	CLIENT_ARGS =
		2 * (MSG_PROJECTS_MAX + SPAWN_EXCLUDES_MAX + NET_PORTS_MAX + NET_SEARCH_MAX) + 96,
	CLIENT_FDS = 32 + CLIENT_LAYERS_MAX + CLIENT_PORT_FDS_MAX,
};

struct words {
	char *v[CLIENT_ARGS];
	size_t n;
};

static void put(struct words *w, char *s)
{
	ASSERT(w->n + 1 < CLIENT_ARGS);
	w->v[w->n++] = s;
}

static void put2(struct words *w, const char *key, char *value)
{
	put(w, xstrdup(key));
	put(w, value);
}

/* @s has CLIENT_PORT_FDS_MAX descriptors of ports at most. */
static void put_net(struct words *w, struct proc_fd *fds, size_t *k, const struct net_spec *s)
{
	int to = CLIENT_FD_PORTS;

	for (size_t i = 0; i < s->n_ports; i++) {
		const struct net_port *p = &s->ports[i];
		put2(w, "--port",
		     xasprintf("%d+%u:%u:%d:%u:%s", to, p->n_fds, p->guest_port, p->once,
		               p->deadline_s, p->label ? p->label : ""));
		for (size_t n = 0; n < p->n_fds; n++)
			fds[(*k)++] = (struct proc_fd){ .from = p->fds[n], .to = to++ };
	}
	if (s->events_path)
		put2(w, "--events", xstrdup(s->events_path));
	if (s->mode == NET_OFFLINE)
		return;
	put2(w, "--network", xstrdup(net_mode_name(s->mode)));
	put2(w, "--egress", xstrdup(egress_profile_name(s->profile)));
	fds[(*k)++] = (struct proc_fd){ .from = s->policy_fd, .to = CLIENT_FD_POLICY };
	put2(w, "--policy", xasprintf("%d", CLIENT_FD_POLICY));
	for (size_t i = 0; i < s->n_search; i++)
		put2(w, "--search", xstrdup(s->search[i]));
	if (s->name)
		put2(w, "--net-name", xstrdup(s->name));
	if (s->keep_address)
		put(w, xstrdup("--keep-address"));
}

int client_start(struct client *c, struct loop *l, const struct client_spec *s, struct err *err)
{
	extern char **environ;
	AUTO_FREE char *dir = proc_self_dir();
	AUTO_FREE char *path = xasprintf("%s/cloche-super", dir);
	struct words w = { 0 };
	struct proc_fd fds[CLIENT_FDS];
	size_t k = 0, port_fds = 0;
	int sv[2], rep[2];

	c->l = l;
	c->super.pidfd = -1;
	c->super_src.fd = -1;
	if (s->n_layers > CLIENT_LAYERS_MAX)
		return err_set(err, -E2BIG, "more than %d layers in one sandbox",
		               CLIENT_LAYERS_MAX);
	if (s->n_projects > 20)
		return err_set(err, -E2BIG, "more than 20 projects in one sandbox");
	for (size_t i = 0; i < s->net.n_ports; i++)
		port_fds += s->net.ports[i].n_fds;
	if (s->net.n_ports > NET_PORTS_MAX || port_fds > CLIENT_PORT_FDS_MAX)
		return err_set(err, -E2BIG, "too many published ports");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return err_errno(err, "cannot create a socket pair");
	AUTO_CLOSE int theirs = sv[1];
	AUTO_CLOSE int ours = sv[0];
	if (pipe2(rep, O_CLOEXEC) < 0)
		return err_errno(err, "cannot create a pipe");
	c->report_fd = rep[0];
	AUTO_CLOSE int rep_w = rep[1];

	put(&w, xstrdup("cloche-super"));
	put2(&w, "--id", xstrdup(s->id));
	put2(&w, "--agent", xstrdup(s->agent));
	put2(&w, "--hostname", xstrdup(s->hostname));
	fds[k++] = (struct proc_fd){ .from = theirs, .to = 100 };
	put2(&w, "--client", xstrdup("100"));
	fds[k++] = (struct proc_fd){ .from = rep_w, .to = 101 };
	put2(&w, "--report", xstrdup("101"));
	if (s->log_fd >= 0) {
		fds[k++] = (struct proc_fd){ .from = s->log_fd, .to = 102 };
		put2(&w, "--log", xstrdup("102"));
		put2(&w, "--log-path", xstrdup(s->log_path));
	}
	if (s->scan_report_fd >= 0) {
		fds[k++] = (struct proc_fd){ .from = s->scan_report_fd, .to = 103 };
		put2(&w, "--scan-report", xstrdup("103"));
	}
	for (size_t i = 0; i < s->n_projects; i++) {
		int to = CLIENT_FD_PROJECTS + (int)i;
		fds[k++] = (struct proc_fd){ .from = s->project_fds[i], .to = to };
		put2(&w, "--project",
		     xasprintf("%d:%s:%s", to, s->projects[i].name, s->projects[i].path));
	}
	fds[k++] = (struct proc_fd){ .from = s->kernel_fd, .to = CLIENT_FD_KERNEL };
	put2(&w, "--kernel", xasprintf("%d", CLIENT_FD_KERNEL));
	fds[k++] = (struct proc_fd){ .from = s->initrd_fd, .to = CLIENT_FD_INITRD };
	put2(&w, "--initrd", xasprintf("%d", CLIENT_FD_INITRD));
	fds[k++] = (struct proc_fd){ .from = s->rootfs_fd, .to = CLIENT_FD_ROOTFS };
	put2(&w, "--rootfs", xasprintf("%d", CLIENT_FD_ROOTFS));
	for (size_t i = 0; i < s->n_layers; i++) {
		int to = CLIENT_FD_LAYERS + (int)i;
		fds[k++] = (struct proc_fd){ .from = s->layer_fds[i], .to = to };
		put2(&w, "--layer", xasprintf("%d", to));
	}
	put2(&w, "--image", xstrdup(s->image));
	put2(&w, "--memory", xasprintf("%u", (unsigned)s->memory_mib));
	put2(&w, "--cpus", xasprintf("%u", (unsigned)s->vcpus));
	put2(&w, "--disk", xasprintf("%llu", (unsigned long long)s->disk_bytes));
	put2(&w, "--tmp", xasprintf("%llu", (unsigned long long)s->tmp_bytes));
	put2(&w, "--accel", xstrdup(vmm_accel_name(s->accel)));
	put2(&w, "--ready-ms", xasprintf("%u", (unsigned)s->ready_ms));
	if (s->records_max)
		put2(&w, "--records", xasprintf("%llu", (unsigned long long)s->records_max));
	if (s->content_max)
		put2(&w, "--content", xasprintf("%llu", (unsigned long long)s->content_max));
	for (size_t i = 0; i < s->n_exclude; i++)
		put2(&w, "--exclude", xstrdup(s->exclude[i]));
	if (s->heavy)
		put(&w, xstrdup("--heavy"));
	if (s->sudo)
		put(&w, xstrdup("--sudo"));
	if (s->user)
		put2(&w, "--user", xstrdup(s->user));
	if (s->user && s->home)
		put2(&w, "--home", xstrdup(s->home));
	if (s->debug)
		put(&w, xstrdup("--debug"));
	if (s->keep)
		put(&w, xstrdup("--keep"));
	if (s->recover)
		put(&w, xstrdup("--recover"));
	put_net(&w, fds, &k, &s->net);
	w.v[w.n] = NULL;
	struct proc_spec spec = {
		.path = path,
		.argv = (const char *const *)w.v,
		.envp = (const char *const *)environ,
		.fds = fds,
		.n_fds = k,
		.keep_on_parent_death = true, /* a closed terminal loses nothing */
		.new_session = true,
	};
	int r = proc_spawn(&c->super, &spec, err);
	for (size_t i = 0; i < w.n; i++)
		free(w.v[i]);
	if (r < 0)
		return r;
	r = port_init(&c->port, l, take_fd(&ours), MUX_HOST, &ops, on_over, c);
	if (r == 0)
		r = loop_fd_add(l, &c->super_src, c->super.pidfd, EPOLLIN, on_super, c);
	if (r < 0)
		return err_code(err, r, "cannot watch the sandbox");
	c->connected = true;
	return 0;
}

void client_fini(struct client *c)
{
	if (c->l && c->super_src.fd >= 0)
		loop_fd_del(c->l, &c->super_src);
	port_fini(&c->port);
	if (c->l)
		auto_close_(&c->report_fd);
	c->report_fd = -1;
}

int client_send(struct client *c, const struct ctl *m)
{
	static uint8_t b[CTL_BYTES_MAX];

	if (!c->connected)
		return -EPIPE;
	size_t n = ctl_put(b, sizeof(b), m);
	if (n == 0)
		return -E2BIG;
	int r = mux_send_control(c->port.mux, span_of(b, n));
	if (r == 0)
		port_flush(&c->port);
	return r;
}

int client_send_words(struct client *c, bool is_env, const char *const *words, size_t n,
                      struct err *err)
{
	static struct ctl m; /* too big for the stack */
	size_t bytes = 0;

	m = (struct ctl){ .type = CTL_ARGS };
	m.args.is_env = is_env;
	for (size_t i = 0; i <= n; i++) {
		size_t len = i < n ? strlen(words[i]) : 0;
		if (len > CTL_STRING_MAX)
			return err_set(err, -E2BIG, "%s of %zu bytes is longer than %d",
			               is_env ? "a variable" : "a word of the command", len,
			               CTL_STRING_MAX);
		if (m.args.n && (i == n || m.args.n == CTL_WORDS_MAX ||
		                 bytes + len + 4 > CTL_BYTES_MAX - 1024)) {
			int r = client_send(c, &m);
			if (r < 0)
				return err_code(err, r, "cannot send the command to the sandbox");
			m.args.n = 0;
			bytes = 0;
		}
		if (i < n) {
			m.args.words[m.args.n++] = span_of(words[i], len);
			bytes += len + 4;
		}
	}
	return 0;
}

void client_interrupt(struct client *c)
{
	(void)proc_signal(&c->super, SIGTERM); /* gone: over() comes */
}
