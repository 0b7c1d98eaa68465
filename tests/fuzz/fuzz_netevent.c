/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a line is accepted as a whole or not at all; what is accepted is within its
 * limits, and the same bytes read through the file's reader give the same.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/netevent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct netevent got;

static int keep(void *arg, const struct netevent *e)
{
	got = *e;
	(*(unsigned *)arg)++;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct netevent e;
	static int fd = -1;
	AUTO_BUF struct buf carry = { 0 };
	char host[NETEVENT_NAME_MAX + 1];
	unsigned n = 0;
	uint64_t bad = 0;

	if (netevent_parse(&e, span_of(data, size)) < 0)
		return 0;
	if (size >= NETEVENT_LINE_MAX || memchr(data, '\n', size) || e.count == 0 || !e.ev[0] ||
	    strlen(e.name) > NETEVENT_NAME_MAX || e.n_addrs > NETEVENT_ADDRS_MAX)
		abort();
	(void)netevent_host(&e, host, sizeof(host));
	if (fd < 0)
		fd = fd_memfd("line");
	if (fd < 0 || ftruncate(fd, 0) < 0 || fd_pwrite_all(fd, data, size, 0) < 0 ||
	    fd_pwrite_all(fd, "\n", 1, (off_t)size) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		abort();
	if (netevent_each(fd, &carry, keep, &n, &bad) < 0 || n != 1 || bad || carry.len)
		abort();
	if (strcmp(got.name, e.name) != 0 || got.count != e.count || got.n_addrs != e.n_addrs)
		abort();
	return 0;
}
