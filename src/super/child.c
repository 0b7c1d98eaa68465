/* SPDX-License-Identifier: Apache-2.0 */
#include "super/child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/log.h"

void child_init(struct child *c, const char *name)
{
	*c = (struct child){ .name = name,
		             .p = { .pidfd = -1 },
		             .err_fd = -1,
		             .src = { .fd = -1 },
		             .err_src = { .fd = -1 } };
}

static void close_stderr(struct child *c)
{
	if (c->l)
		loop_fd_del(c->l, &c->err_src);
	auto_close_(&c->err_fd);
	c->err_fd = -1;
}

static void on_end(void *arg, uint32_t events UNUSED)
{
	struct child *c = arg;

	loop_fd_del(c->l, &c->src);
	if (proc_wait(&c->p, 0, &c->status) < 0)
		return;
	c->running = false;
	log_debug("%s ended: status %d", c->name, proc_shell_status(c->status));
	c->ended(c->arg, c);
}

static void on_stderr(void *arg, uint32_t events UNUSED)
{
	struct child *c = arg;

	if (vmm_tail_read(&c->tail, c->err_fd) != -EAGAIN || c->tail.at_end)
		loop_fd_del(c->l, &c->err_src);
}

int child_watch(struct child *c, struct loop *l, void (*ended)(void *arg, struct child *c),
                void *arg, struct err *err)
{
	c->l = l;
	c->ended = ended;
	c->arg = arg;
	c->running = true;
	int r = loop_fd_add(l, &c->src, c->p.pidfd, EPOLLIN, on_end, c);
	if (r == 0 && c->err_fd >= 0) {
		r = fd_set_nonblock(c->err_fd, true);
		if (r == 0)
			r = loop_fd_add(l, &c->err_src, c->err_fd, EPOLLIN, on_stderr, c);
	}
	return r < 0 ? err_code(err, r, "cannot watch %s", c->name) : 0;
}

void child_describe(struct child *c, struct err *e)
{
	char line[VMM_TAIL_BYTES + 1];

	if (c->err_fd >= 0)
		(void)vmm_tail_read(&c->tail, c->err_fd); /* what is left of it */
	(void)snprintf(line, sizeof(line), "%.*s", (int)c->tail.len, c->tail.b);
	line[strcspn(line, "\n")] = '\0';
	if (line[0]) {
		char *hint = strstr(line, "\thint: ");
		if (hint)
			*hint = '\0';
		err_set(e, -EIO, "%s", strncmp(line, "cloche: ", 8) == 0 ? line + 8 : line);
		if (hint)
			err_hint(e, "%s", hint + 7);
	} else if (WIFSIGNALED(c->status)) {
		err_set(e, -EIO, "%s was ended by signal %d", c->name, WTERMSIG(c->status));
	} else {
		err_set(e, -EIO, "%s ended with status %d", c->name, WEXITSTATUS(c->status));
	}
}

void child_end(struct child *c, int grace_ms)
{
	if (c->l)
		loop_fd_del(c->l, &c->src);
	close_stderr(c);
	proc_end(&c->p, grace_ms);
	c->running = false;
}
