/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl.h - control messages between a client (the CLI) and cloche-super's worker.
 *
 * They travel as FRAME_CONTROL of the same multiplexer as the guest channel
 * (wire/mux.h), over the sandbox's socket. The worker parses the guest, so a
 * client does not trust it: every message is parsed with limits, and text is
 * shown through vis_*. In the other direction the client is the user, but the
 * codec is as strict.
 *
 * Wire form, little endian: type u16, then the fields of its kind. Strings are
 * length-prefixed.
 */
#ifndef CLOCHE_SUPER_CTL_H
#define CLOCHE_SUPER_CTL_H

#include "base/span.h"

enum {
	CTL_BYTES_MAX = 64 * 1024,
	CTL_STRING_MAX = 32 * 1024,
	CTL_WORDS_MAX = 4096, /* in one CTL_ARGS */
	CTL_TEXT_MAX = 1024,
	CTL_ID_MAX = 80,
	CTL_FILES_MAX = 8, /* of CTL_FILE without an answer */
};

enum ctl_type {
	/* client to worker */
	CTL_ARGS = 1, /* words for the next CTL_EXEC; repeated until all are said */
	CTL_EXEC,     /* start a command on a channel */
	CTL_RESIZE,
	CTL_SIGNAL,
	CTL_FINISH, /* end what runs, take the changes out, stop the machine */
	CTL_FILE,   /* put a file into the guest; answered by CTL_FILED, in order */
	/* worker to client */
	CTL_PHASE = 64, /* something was reached, for progress and --timings */
	CTL_UP,         /* commands can be started */
	CTL_STARTED,    /* the command of a channel runs */
	CTL_EXITED,
	CTL_NOTE,   /* a line for the user */
	CTL_STAGED, /* the change set is on disk, or there was no change */
	CTL_FAILED, /* the sandbox is over; text and hint say why */
	CTL_FILED,  /* the guest has the file, or says why not */
};

/* In the order of a run. Times are CLOCK_MONOTONIC of the host. */
enum ctl_phase {
	CTL_PHASE_SPAWNED = 1, /* all processes were started */
	CTL_PHASE_SCANNED,     /* manifest and image metadata are there */
	CTL_PHASE_BOOTED,      /* PID 1 answered */
	CTL_PHASE_MOUNTED,     /* root and projects are mounted */
	CTL_PHASE_STARTED,     /* the command runs */
	CTL_PHASE_OUTPUT,      /* its first byte came */
	CTL_PHASE_EXITED,
	CTL_PHASE_INDEXED, /* the guest's index is in */
	CTL_PHASE_STAGED,  /* the change set is on disk */
	CTL_PHASE_OFF,
	CTL_PHASES
};

enum { CTL_EXEC_PTY = 1, CTL_EXEC_ROOT = 2, CTL_EXEC_LOGIN = 4 };

struct ctl {
	uint16_t type;
	union {
		struct {
			uint8_t is_env;
			uint32_t n;
			struct span words[CTL_WORDS_MAX];
		} args;
		struct {
			uint16_t channel, rows, cols;
			uint32_t flags;
			struct span cwd;
		} exec;
		struct {
			uint16_t channel, rows, cols;
		} resize;
		struct {
			uint16_t channel;
			uint8_t signo;
		} signal;
		struct {
			int32_t exit_status; /* of the command, for the change set; -1 unknown */
		} finish;
		struct { /* the fields of MSG_FILE (wire/msg.h) */
			struct span path;
			uint32_t mode, uid, gid, flags;
			struct span bytes;
		} file;
		struct {
			uint8_t phase;
			uint64_t at_ns;
			uint64_t extra;  /* BOOTED: the guest's time to PID 1 in ns; else 0 */
			uint64_t extra2; /* BOOTED: PID 1 to ready, ns */
		} phase;
		struct {
			uint16_t channel;
			int32_t code; /* 0 or -errno: it could not be started */
			struct span text;
		} started;
		struct {
			uint16_t channel;
			uint8_t by_signal, code, oom;
		} exited;
		struct {
			uint8_t level; /* enum log_level */
			struct span text;
		} note;
		struct {
			struct span id; /* empty: nothing had changed */
			uint32_t records;
			uint64_t bytes; /* of new content */
		} staged;
		struct {
			int32_t code; /* -errno */
			struct span text, hint;
		} failed;
		struct {
			int32_t code; /* 0 or -errno */
			struct span text;
		} filed;
	};
};

/* Return: 0, or -EPROTO (unknown type, a limit, bytes missing or left over). */
int ctl_parse(struct ctl *out, struct span in) MUST_CHECK;
/* Bytes written, or 0 when it does not fit or breaks a limit. */
size_t ctl_put(uint8_t *dst, size_t cap, const struct ctl *c) MUST_CHECK;

#endif
