/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netevent.h - the decisions of a session's network, read back (docs/network.md).
 *
 * The relay writes one JSON object a line, and parses what the guest sends, so a
 * line is believed only after netevent_parse(); names are bytes of the guest's
 * choice, and are shown through vis_*.
 */
#ifndef CLOCHE_CLI_NETEVENT_H
#define CLOCHE_CLI_NETEVENT_H

#include "base/mem.h"
#include "base/span.h"

struct err;

enum {
	NETEVENT_LINE_MAX = 4096, /* with its newline */
	NETEVENT_NAME_MAX = 512,
	NETEVENT_WORD_MAX = 63,
	NETEVENT_ADDRS_MAX = 32,
	NETEVENT_FILE_MAX = 64 * 1024 * 1024,
	NETEVENT_HOSTS_MAX = 1000, /* told apart in a summary */
};

enum netevent_verdict { NETEVENT_NONE, NETEVENT_ALLOWED, NETEVENT_REFUSED };

struct netevent {
	char time[32]; /* RFC 3339, UTC */
	char ev[NETEVENT_WORD_MAX + 1];
	enum netevent_verdict verdict;
	/* "" where it is not said; name: any bytes but NUL */
	char reason[NETEVENT_WORD_MAX + 1], proto[NETEVENT_WORD_MAX + 1];
	char detail[NETEVENT_NAME_MAX + 1], name[NETEVENT_NAME_MAX + 1];
	uint32_t addrs[NETEVENT_ADDRS_MAX];
	size_t n_addrs;
	uint16_t port, guest_port; /* 0: not said */
	bool has_bytes;
	uint64_t bytes_out, bytes_in;
	uint64_t count; /* how many this line stands for; at least 1 */
};

/*
 * netevent_parse() - one line without its newline. Pure; allocates nothing.
 * Only the keys of the schema, each once, no blanks: what the relay writes.
 * Return: 0 or -EPROTO.
 */
int netevent_parse(struct netevent *out, struct span line) MUST_CHECK;

/*
 * netevent_each() - call @fn for every whole line of @fd from its position on.
 * @carry:	what came of a line that is not whole yet; zeroed before the first call, so
 *		that a file which grows can be read on
 * @out_bad:	lines that could not be read are counted here
 *
 * Return: 0, what @fn returned if that is not 0, or -errno.
 */
int netevent_each(int fd, struct buf *carry, int (*fn)(void *arg, const struct netevent *e),
                  void *arg, uint64_t *out_bad) MUST_CHECK;

/* Who was asked for: the name, else the first address in @dst; "" when neither is known. */
const char *netevent_host(const struct netevent *e, char *dst, size_t cap);

/* Who was asked for, and how often; in the order of first mention. */
struct netsum_host {
	char *host;    /* not made visible */
	uint16_t port; /* 0 when the summary is by host alone, or unknown */
	bool is_name;
	char reason[NETEVENT_WORD_MAX + 1]; /* of the last one */
	uint64_t count;
};
struct netsum {
	struct netsum_host *v;
	size_t n, cap;
	uint64_t total, others; /* others: beyond NETEVENT_HOSTS_MAX, or without a host */
};
void netsum_add(struct netsum *s, const struct netevent *e, bool by_port);
/* Most often first, then by name. */
void netsum_sort(struct netsum *s);
void netsum_fini(struct netsum *s);

#endif
