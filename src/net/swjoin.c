/* SPDX-License-Identifier: Apache-2.0 */
#include "net/swjoin.h"

#include <errno.h>
#include <poll.h>

#include "base/err.h"
#include "base/fd.h"
#include "net/swmsg.h"

enum { ANSWER_MS = 10 * 1000, ANSWER_BYTES = 128 };

static int ask(int sock, const struct swmsg *m, uint32_t *out_addr, struct err *err)
{
	static const int codes[] = {
		[SWMSG_NAME_TAKEN] = -EEXIST,
		[SWMSG_NAME_BAD] = -EINVAL,
		[SWMSG_EXHAUSTED] = -ENOSPC,
		[SWMSG_FULL] = -EUSERS,
	};
	struct pollfd p = { .fd = sock, .events = POLLIN };
	uint8_t b[ANSWER_BYTES];
	struct swmsg a;
	size_t n = swmsg_put(b, sizeof(b), m);

	if (n == 0)
		return err_set(err, -EINVAL, "%s", swmsg_why_str(SWMSG_NAME_BAD));
	int r = fd_send(sock, b, n, NULL, 0);
	if (r < 0)
		return err_code(err, r == -EPIPE ? -ECONNRESET : r,
		                "cannot ask the shared network");
	while ((r = poll(&p, 1, ANSWER_MS)) < 0 && errno == EINTR)
		;
	if (r == 0)
		return err_code(err, -ETIMEDOUT, "the shared network does not answer");
	ssize_t k = fd_recv(sock, b, sizeof(b), NULL, 0, NULL);
	if (k <= 0)
		return err_code(err, k < 0 ? (int)k : -ECONNRESET, "the shared network is gone");
	if (swmsg_parse(&a, span_of(b, (size_t)k)) < 0 ||
	    (a.type != SWMSG_WELCOME && a.type != SWMSG_REFUSED))
		return err_set(err, -EPROTO, "the shared network answers nonsense");
	if (a.type == SWMSG_REFUSED)
		return err_set(err, codes[a.why], "%s", swmsg_why_str(a.why));
	*out_addr = a.addr;
	return 0;
}

int switch_join(int sock, const char *name, uint32_t want, bool keep, uint32_t *out_addr,
                struct err *err)
{
	struct swmsg m = {
		.type = SWMSG_HELLO, .addr = want, .keep = keep, .name = span_str(name)
	};

	return ask(sock, &m, out_addr, err);
}

int switch_forget(int sock, const char *name, struct err *err)
{
	struct swmsg m = { .type = SWMSG_FORGET, .name = span_str(name) };
	uint32_t addr;

	return ask(sock, &m, &addr, err);
}
