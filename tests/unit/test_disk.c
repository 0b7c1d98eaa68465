/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "disk/disk.h"
#include "disk/nbd.h"

enum { SIZE = 1024 * 1024, ROOM = 4096 };

/* ---- NBD ---- */

static void be(uint8_t **p, uint64_t v, int n)
{
	while (n-- > 0)
		*(*p)++ = (uint8_t)(v >> (8 * n));
}

static uint64_t be_at(const uint8_t *p, int n)
{
	uint64_t v = 0;

	for (int i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static struct nbd session(enum nbd_state state)
{
	uint8_t b[ROOM];
	struct wr w = wr_of(b, sizeof(b));
	struct nbd s;

	nbd_init(&s, SIZE, &w);
	assert_int_equal(ROOM - w.left, 18);
	assert_memory_equal(b, "NBDMAGICIHAVEOPT\0\3", 18);
	s.state = state;
	return s;
}

static void test_flags(void **state UNUSED)
{
	static const struct {
		const char *why;
		size_t len;
		uint32_t flags;
		int want;
	} rows[] = {
		{ "both flags", 4, 3, NBD_NONE },
		{ "with zeroes", 4, 1, NBD_NONE },
		{ "cut short", 3, 3, -EAGAIN },
		{ "oldstyle client", 4, 0, -EPROTO },
		{ "no fixed newstyle", 4, 2, -EPROTO },
		{ "unknown flag", 4, 7, -EPROTO },
		{ "unknown high flag", 4, 0x80000003, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct nbd s = session(NBD_FLAGS);
		uint8_t in[4], out[ROOM], *p = in;
		struct wr w = wr_of(out, sizeof(out));
		struct nbd_request q;
		size_t used = 99;

		be(&p, rows[i].flags, 4);
		int got = nbd_take(&s, in, rows[i].len, &used, &w, &q);
		if (got != rows[i].want || w.left != ROOM)
			fail_msg("%s: got %d, want %d", rows[i].why, got, rows[i].want);
		if (got == 0)
			assert_int_equal(used, 4);
	}
}

static size_t option(uint8_t *in, uint32_t opt, uint32_t len, const void *data, size_t n)
{
	uint8_t *p = in;

	be(&p, 0x49484156454f5054, 8);
	be(&p, opt, 4);
	be(&p, len, 4);
	memcpy(p, data, n);
	return 16 + n;
}

static void test_options(void **state UNUSED)
{
	static const struct {
		const char *why;
		uint32_t opt, len;
		const char *data;
		size_t n;
		int want;
		enum nbd_state after;
		size_t reply; /* bytes */
		uint32_t type;
	} rows[] = {
		{ "go", 7, 6, "\0\0\0\0\0\0", 6, NBD_NONE, NBD_TRANSMISSION, 86, 3 },
		{ "go with wishes", 7, 10, "\0\0\0\0\0\2\0\3\0\0", 10, NBD_NONE, NBD_TRANSMISSION,
		  86, 3 },
		{ "info", 6, 6, "\0\0\0\0\0\0", 6, NBD_NONE, NBD_OPTIONS, 86, 3 },
		{ "another export", 7, 7, "\0\0\0\1x\0\0", 7, NBD_NONE, NBD_OPTIONS, 20,
		  0x80000006 },
		{ "wishes cut short", 7, 8, "\0\0\0\0\0\2\0\3", 8, NBD_NONE, NBD_OPTIONS, 20,
		  0x80000003 },
		{ "a byte too many", 7, 7, "\0\0\0\0\0\0x", 7, NBD_NONE, NBD_OPTIONS, 20,
		  0x80000003 },
		{ "name beyond the data", 7, 6, "\xff\xff\xff\xff\0\0", 6, NBD_NONE, NBD_OPTIONS,
		  20, 0x80000003 },
		{ "nothing at all", 7, 0, "", 0, NBD_NONE, NBD_OPTIONS, 20, 0x80000003 },
		{ "list", 3, 0, "", 0, NBD_NONE, NBD_OPTIONS, 44, 2 },
		{ "list with data", 3, 1, "x", 1, NBD_NONE, NBD_OPTIONS, 20, 0x80000003 },
		{ "structured replies", 8, 0, "", 0, NBD_NONE, NBD_OPTIONS, 20, 0x80000001 },
		{ "TLS", 5, 0, "", 0, NBD_NONE, NBD_OPTIONS, 20, 0x80000001 },
		{ "unknown", 0xffffffff, 3, "abc", 3, NBD_NONE, NBD_OPTIONS, 20, 0x80000001 },
		{ "abort", 2, 0, "", 0, NBD_END, NBD_CLOSED, 20, 1 },
		{ "old way", 1, 0, "", 0, NBD_NONE, NBD_TRANSMISSION, 134, 0 },
		{ "old way, another export", 1, 1, "x", 1, -EPROTO, NBD_OPTIONS, 0, 0 },
		{ "data still to come", 8, 5, "abcd", 4, -EAGAIN, NBD_OPTIONS, 0, 0 },
		{ "most data", 8, NBD_OPTION_MAX, "", 0, -EAGAIN, NBD_OPTIONS, 0, 0 },
		{ "one over the limit", 8, NBD_OPTION_MAX + 1, "", 0, -EPROTO, NBD_OPTIONS, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct nbd s = session(NBD_OPTIONS);
		uint8_t in[64], out[ROOM];
		struct wr w = wr_of(out, sizeof(out));
		struct nbd_request q;
		size_t used = 99;
		size_t n = option(in, rows[i].opt, rows[i].len, rows[i].data, rows[i].n);
		int got = nbd_take(&s, in, n, &used, &w, &q);

		if (got != rows[i].want || s.state != rows[i].after ||
		    ROOM - w.left != rows[i].reply)
			fail_msg("%s: got %d, state %d, %zu bytes", rows[i].why, got, (int)s.state,
			         ROOM - w.left);
		if (got >= 0)
			assert_int_equal(used, n);
		if (rows[i].type && be_at(out + 12, 4) != rows[i].type)
			fail_msg("%s: reply %x", rows[i].why, (unsigned)be_at(out + 12, 4));
	}
}

static void test_option_magic(void **state UNUSED)
{
	struct nbd s = session(NBD_OPTIONS);
	uint8_t in[64], out[ROOM];
	struct wr w = wr_of(out, sizeof(out));
	struct nbd_request q;
	size_t used, n = option(in, 3, 0, "", 0);

	in[7] ^= 1;
	assert_int_equal(nbd_take(&s, in, n, &used, &w, &q), -EPROTO);
	in[7] ^= 1;
	for (int i = 0; i < NBD_OPTIONS_MAX; i++) {
		w = wr_of(out, sizeof(out));
		assert_int_equal(nbd_take(&s, in, n, &used, &w, &q), NBD_NONE);
	}
	w = wr_of(out, sizeof(out));
	assert_int_equal(nbd_take(&s, in, n, &used, &w, &q), -EPROTO); /* no end of options */
}

static void test_export(void **state UNUSED)
{
	struct nbd s = session(NBD_OPTIONS);
	uint8_t in[64], out[ROOM];
	struct wr w = wr_of(out, sizeof(out));
	struct nbd_request q;
	size_t used, n = option(in, 7, 6, "\0\0\0\0\0\0", 6);

	assert_int_equal(nbd_take(&s, in, n, &used, &w, &q), NBD_NONE);
	assert_int_equal(be_at(out + 22, 8), SIZE);
	assert_int_equal(be_at(out + 30, 2), 7); /* flags, read-only, flush */
	assert_int_equal(be_at(out + 62, 4), NBD_READ_MAX);
	assert_int_equal(be_at(out + 66 + 12, 4), 1); /* ACK */
}

static void test_requests(void **state UNUSED)
{
	enum { DATA = 16 };
	static const struct {
		const char *why;
		uint64_t offset;
		uint32_t magic, length;
		uint16_t flags, command;
		int want;
		int error; /* of the reply; -1: no reply */
	} rows[] = {
#define M 0x25609513
		{ "first block", 0, M, 512, 0, 0, NBD_REQUEST, -1 },
		{ "last block", SIZE - 512, M, 512, 0, 0, NBD_REQUEST, -1 },
		{ "the whole export", 0, M, SIZE, 0, 0, NBD_REQUEST, -1 },
		{ "a block beyond", SIZE, M, 512, 0, 0, NBD_NONE, EINVAL },
		{ "ends a block beyond", SIZE - 512, M, 1024, 0, 0, NBD_NONE, EINVAL },
		{ "longer than the export", 0, M, SIZE + 512, 0, 0, NBD_NONE, EINVAL },
		{ "wraps around", UINT64_MAX - 511, M, 1024, 0, 0, NBD_NONE, EINVAL },
		{ "empty", 0, M, 0, 0, 0, NBD_NONE, EINVAL },
		{ "length not aligned", 0, M, 513, 0, 0, NBD_NONE, EINVAL },
		{ "offset not aligned", 1, M, 512, 0, 0, NBD_NONE, EINVAL },
		{ "longest number", 0, M, UINT32_MAX, 0, 0, NBD_NONE, EINVAL },
		{ "unknown flag", 0, M, 512, 4, 0, NBD_NONE, EINVAL },
		{ "wrong magic", 0, M + 1, 512, 0, 0, -EPROTO, -1 },
		{ "structured magic", 0, 0x668e33ef, 512, 0, 0, -EPROTO, -1 },
		{ "write", 0, M, 512, 0, 1, -EPROTO, -1 },
		{ "goodbye", 0, M, 0, 0, 2, NBD_END, -1 },
		{ "flush", 0, M, 0, 0, 3, NBD_NONE, 0 },
		{ "flush of a range", 0, M, 512, 0, 3, NBD_NONE, EINVAL },
		{ "trim", 0, M, 512, 0, 4, NBD_NONE, EPERM },
		{ "cache", 0, M, 512, 0, 5, NBD_NONE, EINVAL },
		{ "write zeroes", 0, M, 512, 0, 6, NBD_NONE, EPERM },
		{ "block status", 0, M, 512, 0, 7, NBD_NONE, EINVAL },
		{ "no such command", 0, M, 512, 0, 999, NBD_NONE, EINVAL },
#undef M
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct nbd s = session(NBD_TRANSMISSION);
		uint8_t in[28], out[ROOM], *p = in;
		struct wr w = wr_of(out, sizeof(out));
		struct nbd_request q = { 0 };
		size_t used = 0;

		be(&p, rows[i].magic, 4);
		be(&p, rows[i].flags, 2);
		be(&p, rows[i].command, 2);
		be(&p, 0x1122334455667788, 8);
		be(&p, rows[i].offset, 8);
		be(&p, rows[i].length, 4);
		assert_int_equal(nbd_take(&s, in, 27, &used, &w, &q), -EAGAIN);
		int got = nbd_take(&s, in, 28, &used, &w, &q);
		if (got != rows[i].want)
			fail_msg("%s: got %d, want %d", rows[i].why, got, rows[i].want);
		if ((w.left == ROOM) != (rows[i].error < 0))
			fail_msg("%s: %zu bytes of reply", rows[i].why, ROOM - w.left);
		if (rows[i].error >= 0 &&
		    (be_at(out, 4) != 0x67446698 || be_at(out + 4, 4) != (unsigned)rows[i].error ||
		     be_at(out + 8, 8) != 0x1122334455667788))
			fail_msg("%s: reply", rows[i].why);
		if (got == NBD_REQUEST &&
		    (q.offset != rows[i].offset || q.length != rows[i].length ||
		     q.cookie != 0x1122334455667788))
			fail_msg("%s: request", rows[i].why);
	}
}

static void test_read_max(void **state UNUSED)
{
	for (int over = -1; over <= 1; over++) {
		uint8_t in[28] = { 0x25, 0x60, 0x95, 0x13 }, out[ROOM], *p = in + 24;
		struct wr w = wr_of(out, sizeof(out));
		struct nbd_request q;
		struct nbd s;
		size_t used;

		nbd_init(&s, 1ull << 40, &w);
		s.state = NBD_TRANSMISSION;
		be(&p, (uint64_t)(NBD_READ_MAX + over * NBD_ALIGN), 4);
		assert_int_equal(nbd_take(&s, in, 28, &used, &w, &q),
		                 over > 0 ? NBD_NONE : NBD_REQUEST);
	}
}

/* ---- control messages ---- */

static void test_messages(void **state UNUSED)
{
	static uint8_t big[DISK_DATA_MAX + 1];
	const struct {
		const char *why;
		struct disk_msg m;
		size_t len; /* 0: refused */
	} rows[] = {
		{ "ready", { .type = DISK_READY }, 4 },
		{ "hash", { .type = DISK_HASH, .entry = 0xfffffffe }, 8 },
		{ "read", { .type = DISK_READ, .length = DISK_DATA_MAX, .offset = 5 }, 20 },
		{ "read of nothing", { .type = DISK_READ, .length = 0 }, 0 },
		{ "read of too much", { .type = DISK_READ, .length = DISK_DATA_MAX + 1 }, 0 },
		{ "read far behind", { .type = DISK_READ, .length = 1, .offset = 1ull << 63 }, 0 },
		{ "freeze", { .type = DISK_FREEZE, .on = 1 }, 5 },
		{ "freeze twice", { .type = DISK_FREEZE, .on = 2 }, 0 },
		{ "stats", { .type = DISK_STATS }, 4 },
		{ "shutdown", { .type = DISK_SHUTDOWN }, 4 },
		{ "ready done", { .type = DISK_READY_DONE, .status = -ESTALE }, 8 },
		{ "lowest status", { .type = DISK_READY_DONE, .status = -4095 }, 8 },
		{ "lower status", { .type = DISK_READY_DONE, .status = -4096 }, 0 },
		{ "status above 0", { .type = DISK_READY_DONE, .status = 1 }, 0 },
		{ "hash done", { .type = DISK_HASH_DONE, .entry = 1, .hash.b = { 1, 2 } }, 44 },
		{ "read done",
		  { .type = DISK_READ_DONE, .data = { big, DISK_DATA_MAX } },
		  24 + DISK_DATA_MAX },
		{ "read done, too much",
		  { .type = DISK_READ_DONE, .data = { big, sizeof(big) } },
		  0 },
		{ "an error with data",
		  { .type = DISK_READ_DONE, .status = -EIO, .data = { big, 1 } },
		  0 },
		{ "freeze done", { .type = DISK_FREEZE_DONE, .status = -ENOSPC }, 8 },
		{ "stats done",
		  { .type = DISK_STATS_DONE, .stats = { 1, 2, 3, 4, 5, 6, 7, 8, 9 } },
		  60 },
		{ "changed", { .type = DISK_CHANGED, .entry = 7 }, 8 },
		{ "no type", { .type = 0 }, 0 },
		{ "unknown type", { .type = 7 }, 0 },
	};
	static uint8_t b[DISK_MSG_MAX + 1], again[DISK_MSG_MAX + 1];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct disk_msg m;
		size_t n = disk_msg_put(b, DISK_MSG_MAX, &rows[i].m);

		if (n != rows[i].len)
			fail_msg("%s: %zu bytes", rows[i].why, n);
		if (n == 0)
			continue;
		assert_int_equal(disk_msg_put(again, n - 1, &rows[i].m), 0);
		if (disk_msg_parse(&m, b, n) != 0 || disk_msg_put(again, n, &m) != n ||
		    memcmp(again, b, n) != 0)
			fail_msg("%s: not the same again", rows[i].why);
		for (size_t k = 0; k < MIN(n, (size_t)70); k++) {
			if (disk_msg_parse(&m, b, k) != -EPROTO)
				fail_msg("%s: cut to %zu bytes", rows[i].why, k);
		}
		b[n] = 0;
		if (disk_msg_parse(&m, b, n + 1) != -EPROTO)
			fail_msg("%s: a byte too many", rows[i].why);
		b[2] = 1;
		if (disk_msg_parse(&m, b, n) != -EPROTO)
			fail_msg("%s: reserved", rows[i].why);
	}
	assert_int_equal(disk_msg_fds(DISK_READY), 2);
	assert_int_equal(disk_msg_fds(DISK_HASH), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags),        cmocka_unit_test(test_options),
		cmocka_unit_test(test_option_magic), cmocka_unit_test(test_export),
		cmocka_unit_test(test_requests),     cmocka_unit_test(test_read_max),
		cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
