/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h - the CLI's side of a sandbox: starts cloche-super, speaks ctl.h
 * with its worker, and reads the monitor's last word.
 *
 * What comes from the worker has been through ctl_parse(); text is shown
 * through vis_* by the handlers.
 */
#ifndef CLOCHE_SUPER_CLIENT_H
#define CLOCHE_SUPER_CLIENT_H

#include "base/proc.h"
#include "super/ctl.h"
#include "super/link.h"
#include "super/net.h"
#include "super/port.h"
#include "super/state.h"
#include "vmm/vmm.h"

enum {
	/* numbers of descriptors in the monitor */
	CLIENT_FD_POLICY = 104,
	CLIENT_FD_KERNEL = 105,
	CLIENT_FD_INITRD = 106,
	CLIENT_FD_ROOTFS = 107,
	CLIENT_FD_PROJECTS = 110,
	CLIENT_FD_LAYERS = 130,
	CLIENT_LAYERS_MAX = 8,
	CLIENT_FD_PORTS = 140,
	CLIENT_PORT_FDS_MAX = 64,
	CLIENT_FDS_END = CLIENT_FD_PORTS + CLIENT_PORT_FDS_MAX,
};

/* What to start. Strings are borrowed for the call. */
struct client_spec {
	const char *id, *agent, *hostname, *log_path;
	const struct state_project *projects;
	const int *project_fds; /* opened by the caller, who checked them; borrowed */
	size_t n_projects;
	int kernel_fd, initrd_fd, rootfs_fd; /* read-only; borrowed */
	const int *layer_fds; /* the same, over the root file system, topmost first */
	size_t n_layers;      /* at most CLIENT_LAYERS_MAX */
	const char *image;
	/* USER of an image of somebody else, looked up in it, and a home (NULL: the image's);
	 * user NULL: the agent of a base image */
	const char *user, *home;
	uint32_t memory_mib, vcpus, ready_ms;
	uint64_t disk_bytes, tmp_bytes;
	uint64_t records_max, content_max; /* of the change set; 0: the default */
	enum vmm_accel accel;              /* KVM or TCG */
	const char *const *exclude;
	size_t n_exclude;
	bool heavy, sudo, debug, keep, recover;
	int log_fd;          /* borrowed; -1: none */
	int scan_report_fd;  /* borrowed; -1: none */
	struct net_spec net; /* all zero: offline */
};

struct client {
	struct loop *l;
	struct port port;
	bool connected;
	struct proc super;
	struct loop_fd super_src;
	int report_fd;
	bool ended; /* the monitor is gone; `last` is its word */
	struct link_msg last;
	/* the owner's */
	/* 0, or -EPROTO for what must not be said now: the connection is over */
	int (*message)(void *arg, const struct ctl *c);
	int (*output)(void *arg, uint16_t channel, uint8_t stream, struct span bytes);
	int (*eof)(void *arg, uint16_t channel, uint8_t stream);
	void (*writable)(void *arg, uint16_t channel, uint8_t stream);
	/* the connection ended before the monitor: 0, or -errno, -EPROTO after a lie */
	void (*lost)(void *arg, int code);
	void (*over)(void *arg); /* the monitor has ended: all is said and cleaned up */
	void *arg;
};

/* Start the sandbox; the handlers are set in @c before. 0 or -errno. */
int client_start(struct client *c, struct loop *l, const struct client_spec *s,
                 struct err *err) MUST_CHECK;
void client_fini(struct client *c);

/* -EPIPE once the connection is over. */
int client_send(struct client *c, const struct ctl *m) MUST_CHECK;
/* Words for the next EXEC, in as many messages as it takes. -E2BIG for a word too long. */
int client_send_words(struct client *c, bool is_env, const char *const *words, size_t n,
                      struct err *err) MUST_CHECK;

/* End the monitor (it exports and cleans up) by SIGTERM; a second time: at once. */
void client_interrupt(struct client *c);

#endif
