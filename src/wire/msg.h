/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msg.h - control messages between cloche-super's worker and the guest's PID 1.
 *
 * One message a FRAME_CONTROL, type u16, sequence u32, then fields. Strings are
 * length-prefixed bytes; lists are a count and their items. The decoder checks
 * every limit, consumes exactly, and a decoded message borrows from the input.
 * Which message is legal in which state is the table msg_rules[]; both ends
 * check it before they act.
 *
 * EXEC, EXPORT and CONNECT open their channel on both sides when sent and
 * received, also when they fail: the guest then resets it. The number may be used
 * again after MSG_EXITED (or after EXPORT's and WANT's end, or that of FRAME_ERR
 * of a CONNECT, and mux_is_open() == false).
 *
 * Every host message gets exactly one MSG_DONE with its sequence number, in
 * order of completion; EXEC is done when the process runs or could not be
 * started, EXPORT when the index has been sent, WANT when the blobs have,
 * NET_TEST when every bypass was tried, CONNECT when the guest's server answered.
 */
#ifndef CLOCHE_WIRE_MSG_H
#define CLOCHE_WIRE_MSG_H

#include "base/span.h"

enum {
	MSG_VERSION = 1,
	MSG_BYTES_MAX = 64 * 1024, /* == FRAME_PAYLOAD_MAX */
	MSG_STRING_MAX = 32 * 1024,
	MSG_ARGS_MAX = 4096, /* words of argv and of env, each */
	MSG_LAYERS_MAX = 16,
	MSG_PROJECTS_MAX = 64,
	MSG_ENTROPY_MIN = 32,
	MSG_ENTROPY_MAX = 512,
	MSG_FILE_CHUNK_MAX = 32 * 1024,
	MSG_WANT_MAX = 4096, /* ranges in one WANT */
	MSG_TEXT_MAX = 1024,
	MSG_SEARCH_MAX = 6, /* search domains; resolv.conf(5) */
	MSG_DOMAIN_MAX = 253,
	MSG_MTU_MIN = 1280,
	MSG_USER_MAX = 256,
};

enum msg_type {
	/* host to guest */
	MSG_HELLO = 1,
	MSG_CLOCK,
	MSG_ENTROPY,
	MSG_SETUP,
	MSG_MOUNT_ROOT,
	MSG_MOUNT_WORK,
	MSG_FILE,
	MSG_ARGS, /* a part of argv or env of the next EXEC: both may exceed one frame */
	MSG_EXEC,
	MSG_RESIZE,
	MSG_SIGNAL,
	MSG_EXPORT,
	MSG_WANT,
	MSG_THAW,
	MSG_SYNC,
	MSG_POWEROFF,
	MSG_NET,      /* address, route, resolver; again: the same, or another */
	MSG_NET_TEST, /* do the obvious bypasses fail? */
	MSG_CONNECT,  /* to a server in the guest */
	MSG_ACCOUNT,  /* who runs commands, by the image's own files of users */
	/* guest to host */
	MSG_READY = 64,
	MSG_DONE,
	MSG_EXITED,
	MSG_OOM,
	MSG_LOG,
};

/* States of the guest; bits, so that a rule can name several. */
enum msg_state {
	MSG_STATE_START = 1,   /* before HELLO and READY */
	MSG_STATE_BARE = 2,    /* up, nothing mounted */
	MSG_STATE_ROOT = 4,    /* root overlay mounted */
	MSG_STATE_WORK = 8,    /* workspace mounted: runs commands */
	MSG_STATE_FROZEN = 16, /* between EXPORT and THAW */
	MSG_STATE_OFF = 32,    /* after POWEROFF */
};

struct msg_rule {
	enum msg_type type;
	const char *name;
	bool from_guest;
	unsigned states;             /* enum msg_state, or'ed: legal in these */
	size_t min_bytes, max_bytes; /* of the whole payload */
};
extern const struct msg_rule msg_rules[];
extern const size_t msg_rules_count;
const struct msg_rule *msg_rule_find(unsigned type);

enum { MSG_EXEC_PTY = 1, MSG_EXEC_ROOT = 2 /* root with all capabilities, no filter */ };
enum { MSG_SETUP_SUDO = 1 /* the agent may become root: no no_new_privs */ };
enum {
	MSG_FILE_APPEND = 1, /* another chunk of the file before */
	MSG_FILE_DIR = 2,
	MSG_FILE_EXTEND = 4, /* the first chunk goes behind what a file of that name holds */
	MSG_FILE_KEEP = 8,   /* what is there already, of any kind, stays as it is */
};
enum { MSG_WANT_LAST = 1 /* no more WANT follows; send the blobs now */ };

struct msg_range {
	uint32_t first, count; /* ordinals of records in the index */
};

struct msg {
	uint16_t type;
	uint32_t seq;
	union {
		struct {
			uint32_t version;
		} hello;
		struct {
			int64_t realtime_ns;
		} clock;
		struct {
			struct span bytes;
		} entropy;
		struct {
			struct span hostname;
			uint32_t flags;
			uint64_t tmp_bytes; /* size of /tmp */
			uint32_t sync_ms;   /* syncfs of the scratch disk every so often; 0 never */
			int32_t tz_reserved;
		} setup;
		struct {
			uint32_t n_layers; /* virtio serials of EROFS disks, topmost first */
			struct span layers[MSG_LAYERS_MAX];
			struct span scratch; /* serial of the ext4 disk */
		} mount_root;
		struct {
			struct span disk; /* serial of the workspace EROFS */
			uint32_t n_projects;
			struct span projects
				[MSG_PROJECTS_MAX]; /* names below /work; the first is /workspace */
		} mount_work;
		struct {
			struct span
				path; /* absolute in the guest; parents are created, no link followed */
			uint32_t mode, uid, gid, flags;
			struct span bytes;
		} file;
		struct {
			uint8_t is_env;
			uint32_t n;
			struct span words[MSG_ARGS_MAX];
		} args;
		struct {
			uint16_t channel; /* opened by this message on both sides */
			uint32_t flags;   /* MSG_EXEC_* */
			uint32_t uid, gid;
			struct span cwd;
			uint16_t rows, cols;
			/* argv and env came with MSG_ARGS before; "login" runs them below a login
			 * environment (/etc/profile, then env again) */
			uint8_t login;
		} exec;
		struct {
			uint16_t channel, rows, cols;
		} resize;
		struct {
			uint16_t channel;
			uint8_t signo;
		} signal;
		struct {
			uint16_t channel; /* the index and the blobs come on its FRAME_OUT */
			uint32_t records_max;
			uint64_t bytes_max;
		} export;
		struct {
			uint32_t flags;
			uint32_t n;
			struct msg_range ranges[MSG_WANT_MAX];
		} want;
		struct {
			uint32_t address, gateway, dns; /* host byte order (base/ip.h) */
			uint8_t prefix;                 /* 1 to 30 */
			uint16_t mtu;
			uint32_t n_search;
			struct span search[MSG_SEARCH_MAX]; /* printable, no space */
		} net;
		struct {
			uint16_t channel; /* opened by this message on both sides */
			uint16_t port;    /* 127.0.0.1, else ::1, else the card's address */
		} connect;
		struct {
			struct span user; /* NAME, UID, with :GROUP or :GID; empty: uid 1000 */
			struct span home; /* absolute, made if missing; empty: the image's */
		} account;
		struct {
			uint32_t version;
			struct span kernel; /* release */
			uint64_t
				init_ns; /* CLOCK_MONOTONIC when PID 1 began: the kernel's boot time */
			uint64_t ready_ns; /* ... and when it said so */
		} ready;
		struct {
			uint32_t ref;     /* sequence number of the host's message */
			int32_t code;     /* 0 or -errno (generic Linux numbers) */
			struct span text; /* what failed; empty on success */
		} done;
		struct {
			uint16_t channel;
			uint8_t by_signal; /* then code is the signal */
			uint8_t code;
			uint8_t oom; /* the kernel's OOM killer ended a process of this session */
		} exited;
		struct {
			struct span process;
		} oom;
		struct {
			uint8_t level; /* enum log_level */
			struct span text;
		} log;
	};
};

/*
 * msg_parse() - decode one message; borrows from @in. Only the member of its
 * type is set, and nothing of @out is to be used on failure.
 *
 * Return: 0, or -EPROTO (unknown type, a limit, bytes missing or left over).
 */
int msg_parse(struct msg *out, struct span in) MUST_CHECK;
/* Bytes written, or 0 when it does not fit or breaks a limit. */
size_t msg_put(uint8_t *dst, size_t cap, const struct msg *m) MUST_CHECK;

#endif
