/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest.h - what the files of the guest's PID 1 share.
 *
 * One thread, one loop. The host is trusted; what runs in sessions is not. A
 * request that fails is answered with its reason and changes nothing else; only
 * the end of the channel, or a frame that breaks the protocol, ends the machine.
 * Allocations whose size the host or the agent decides are checked ones.
 */
#ifndef CLOCHE_GUEST_GUEST_H
#define CLOCHE_GUEST_GUEST_H

#include <sys/types.h>

#include "base/err.h"
#include "base/log.h"
#include "event/loop.h"
#include "guest/account.h"
#include "wire/msg.h"
#include "wire/mux.h"

enum {
	GUEST_SYNCS_MAX = 8,
	GUEST_WORDS_MAX = 64 * 1024,
	GUEST_WORDS_BYTES_MAX = 8 * 1024 * 1024,
	GUEST_QUIET_MS = 1000,     /* after a command's end, for those that hold its output */
	GUEST_TAIL_MS = 2000,      /* ... and at most so long when they go on talking */
	GUEST_KILL_MS = 10 * 1000, /* without a single one ending */
	GUEST_CONNS_MAX = 64,      /* from the host to servers in the guest */
};

/* argv or env, gathered from MSG_ARGS; NULL-terminated once words_end() was called. */
struct words {
	char **v;
	size_t n, cap, bytes;
};

struct session;
struct conn;

/* A process of our own that answers a host message when it ends. */
struct helper {
	pid_t pid; /* 0: free */
	uint32_t seq;
	bool quiet; /* the periodic sync: nobody waits */
};

struct export_run {
	uint16_t channel; /* 0: none */
	uint32_t seq;
	uint32_t records_max;
	uint64_t bytes_max;
	bool waiting; /* for the end of the agent's processes */
	bool blobs;   /* phase 2 */
	bool eof;     /* the child wrote all */
	pid_t pid;
	bool reaped;
	int out, status; /* read ends: the records; how it ended */
	struct loop_fd out_src;
	struct loop_timer timer;
	struct msg_range *want;
	size_t n_want, cap_want;
};

struct guest {
	struct loop *loop;
	struct mux *mux;
	unsigned state; /* enum msg_state */
	int port;
	struct loop_fd port_src;
	bool off; /* the channel is over, or POWEROFF: leave the loop */
	uint32_t off_seq;
	uint64_t init_ns;

	int exe;     /* our own program, for the launcher of login sessions */
	int priv;    /* folder of the initramfs with the mounts that no session sees */
	int random;  /* /dev/random */
	int root;    /* "/" of the sessions, once mounted */
	int scratch; /* root of the scratch disk */
	int cgroup;  /* folder of all sessions, or -1 */
	int kmsg;
	struct loop_fd kmsg_src;

	struct account
		account; /* who runs commands; has_account false: uid 1000, as the image has it */
	bool has_account;
	bool sudo;
	uint64_t tmp_bytes;
	uint32_t sync_ms;
	struct loop_timer sync_timer;
	struct helper syncs[GUEST_SYNCS_MAX];

	int file; /* last file of MSG_FILE, for the chunks that follow */
	char *file_path;

	struct words argv, env;
	struct session *sessions[FRAME_CHANNELS_MAX];
	unsigned session_count; /* since boot: names of their cgroups */
	struct export_run ex;

	int net_modules; /* folder of the card's driver, or -1 */
	char card[16];   /* its name; empty: no network */
	uint32_t address, gateway, dns;
	int test; /* read end: what the self-test found */
	uint32_t test_seq;
	struct loop_fd test_src;
	struct conn *conns[FRAME_CHANNELS_MAX];
	unsigned n_conns;
};

/* ---- main.c ---- */
/* Queue a message; a channel that takes none any more ends the machine. */
void guest_send(struct guest *g, const struct msg *m);
void guest_done(struct guest *g, uint32_t seq, int code, const struct err *err);
void guest_log(struct guest *g, enum log_level level, const char *fmt, ...) PRINTF_FMT(3, 4);
/* Take the status of every child that has ended. */
void guest_reap(struct guest *g);
uint64_t guest_now_ns(void);
void guest_sleep_ms(unsigned ms);

/* ---- boot.c ---- */
int boot_mounts(struct guest *g);
void boot_modules(struct guest *g, char *failed, size_t cap); /* names of those that did not load */
void boot_load_net(struct guest *g, char *failed, size_t cap);
int boot_port(struct guest *g);
void boot_cgroup(struct guest *g);

/* ---- mount.c: 0 or -errno with @err ---- */
int mount_root(struct guest *g, const struct msg *m, struct err *err);
int mount_work(struct guest *g, const struct msg *m, struct err *err);
int mount_setup(struct guest *g, const struct msg *m, struct err *err);
void mount_off(struct guest *g); /* what is on the scratch disk is safe after it */

/* ---- file.c ---- */
int file_write(struct guest *g, const struct msg *m, struct err *err);
void file_close(struct guest *g);
/* The folder @path below the root, made where it is missing, for @uid and @gid. fd or -errno. */
int file_make_dirs(int root, struct span path, uid_t uid, gid_t gid);
/* Write a small text to a file of /proc, /sys or a cgroup. */
int file_put_text(int dirfd, const char *path, const char *text);
ssize_t file_get_text(int dirfd, const char *path, char *dst, size_t cap);

/* ---- user.c ---- */
int user_set(struct guest *g, const struct msg *m, struct err *err);
/* The agent's ids, as they are in this image. */
uint32_t user_uid(const struct guest *g, uint32_t uid);
uint32_t user_gid(const struct guest *g, uint32_t gid);
/* HOME, USER and the like, where the host does not say them. */
int user_env(const struct guest *g, struct words *env);
/* The mount @from once more at @to, with the agent's files belonging to the account. 0 or -errno. */
int user_map_mount(struct guest *g, const char *from, const char *to);

/* ---- words.c ---- */
int words_add(struct words *w, const struct span *v, size_t n);
int words_end(struct words *w);
void words_clear(struct words *w);

/* ---- session.c ---- */
/* 1: MSG_DONE follows. */
int session_exec(struct guest *g, const struct msg *m, struct err *err);
int session_resize(struct guest *g, const struct msg *m, struct err *err);
int session_signal(struct guest *g, const struct msg *m, struct err *err);
/* A child of ours ended. Return: whether it was a session's. */
bool session_reaped(struct guest *g, pid_t pid, int status);
int session_data(struct guest *g, uint16_t ch, struct span bytes);
int session_eof(struct guest *g, uint16_t ch);
int session_reset(struct guest *g, uint16_t ch, uint8_t stream);
int session_writable(struct guest *g, uint16_t ch, uint8_t stream);

/* ---- net.c, nettest.c ---- */
void net_loopback_up(void);
int net_setup(struct guest *g, const struct msg *m, struct err *err);
int net_test(struct guest *g, const struct msg *m, struct err *err); /* 1: MSG_DONE follows */

/* ---- connect.c; all but start and close_all: the channel is one of g->conns ---- */
int connect_start(struct guest *g, const struct msg *m, struct err *err); /* as net_test() */
int connect_data(struct guest *g, uint16_t ch, struct span bytes);
int connect_eof(struct guest *g, uint16_t ch);
int connect_reset(struct guest *g, uint16_t ch, uint8_t stream);
int connect_writable(struct guest *g, uint16_t ch, uint8_t stream);
void connect_close_all(struct guest *g);

/* ---- launch.c: the child's side of a session ---- */
struct launch {
	char **argv, **env;
	const char *cwd;
	uid_t uid;
	gid_t gid;
	const uint32_t *groups; /* more of them */
	size_t n_groups;
	bool privileged; /* root with everything */
	bool sudo;       /* the agent may become root */
	bool login;
	int exe, env_fd; /* login: our program, and the packed environment */
	int cgroup;      /* folder of the session, or -1 */
	int report;      /* pipe: why it did not start */
};
enum { LAUNCH_FAIL_TEXT = 120 };
struct launch_fail {
	int32_t code; /* -errno */
	char what[LAUNCH_FAIL_TEXT];
};
NORETURN void launch_child(const struct launch *l);
/* The program in its second life, below /etc/profile: env again, then argv. */
int launch_main(int argc, char **argv);
int launch_pack_env(char **env); /* memfd or -errno */

/* ---- export.c ---- */
int export_start(struct guest *g, const struct msg *m, struct err *err);
int export_want(struct guest *g, const struct msg *m, struct err *err);
void export_thaw(struct guest *g);
void export_progress(struct guest *g);    /* somebody ended: wait on for the others */
void export_no_children(struct guest *g); /* nobody is left: the walk may start */
bool export_reaped(struct guest *g, pid_t pid, int status);
int export_writable(struct guest *g);
void export_reset(struct guest *g);

/* ---- walk.c: runs in a child; pure but for reading below @root and writing to @out ---- */
struct walk_spec {
	int root, out;
	uint32_t records_max;
	uint64_t bytes_max;
	bool blobs;
	const struct msg_range *want;
	size_t n_want;
};
int walk_run(const struct walk_spec *s, struct err *err);

#endif
